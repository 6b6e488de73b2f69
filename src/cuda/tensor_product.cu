/* Products of few rows with packed weights, and the preparation of products of many (cuda/tensor_product.h). */
#include "cuda/tensor_product.h"
#include "cuda/tensor_span.cuh"

/* ---- few rows of x ----
 *
 * A warp computes one segment of the columns, for PANELS panels of 16 rows and all N * 8 rows of x. Spans pass through
 * a ring of slots in shared memory, without a pause between panels. Each lane copies the bytes that it uses, so lanes
 * never wait for each other. The first slots are filled before earlier kernels are done. */

/* Adds and stores the eight warps' sums of a panel from row `first` on. If N is 1, half a block stores every other
 * panel. */
template <int N>
static __device__ __forceinline__ void ht_put_sums(const ht_cuda_tensor_arguments &a, const ht_cuda_tensor_matrix &of,
                                                   int32_t first, float factor, const float (*sum)[4], float *shared,
                                                   int thread, int turn, float inverse) {
    enum { ROWS = HT_CUDA_PANEL, ALL = ROWS * N * 8, THREADS = HT_CUDA_TENSOR_WARPS * 32 };
    const int g = thread >> 2 & 7, t = thread & 3, warp = thread >> 5;
#pragma unroll
    for (int j = 0; j < N; j++)
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const int row = (i >> 1) * 8 + g, column = j * 8 + 2 * t + (i & 1);
            if (column < a.n) shared[warp * ALL + column * ROWS + row] = sum[j][i];
        }
    __syncthreads();
    if (N == 1 && thread / ALL != turn) return;
#pragma unroll 1
    for (int i = N == 1 ? thread % ALL : thread; i < ALL; i += THREADS) {
        const int row = first + i % ROWS, x = i / ROWS;
        if (row >= of.w.n_rows || x >= a.n) continue;
        float total = 0;
#pragma unroll
        for (int w = 0; w < HT_CUDA_SEGMENTS; w++) total += shared[w * ALL + i];
        total = total * (N == 1 ? inverse : a.x.inverse[x]) * ht_inverse_of_power(factor);
        if (of.bias) total += of.bias[row];
        of.y[x * of.ldy + row] = total;
    }
}

template <class F, int N, int PANELS>
static __device__ __forceinline__ void ht_tensor(const ht_cuda_tensor_arguments &a) {
    enum { ALL = HT_CUDA_PANEL * N * 8, TURNS = N == 1 ? 2 : 1 };
    HT_CUDA_SHARED(float, shared);
    const int thread = ht_kept_thread(), warp = thread >> 5, lane = thread & 31;
    const int64_t spans = ht_spans_of<F>(a.matrix[0].w); /* all matrices are of one type and width */
    const int32_t begin = (int32_t)(spans * warp / HT_CUDA_SEGMENTS),
                  end = (int32_t)(spans * (warp + 1) / HT_CUDA_SEGMENTS);
    int64_t panel = (int64_t)blockIdx.x * PANELS;
    ht_ring<F, PANELS> ring;
    if (!F::LOADS_ANY) {
        ring.lane = lane;
        ring.policy = ht_read_once();
        ring.first = (unsigned char *)(shared + TURNS * HT_CUDA_SEGMENTS * ALL) + warp * ring.BYTES;
        ring.to = ring.from = ring.first;
        ring.begin = ring.i = begin, ring.end = end;
        ring.rows.step = (int64_t)gridDim.x * PANELS;
        ring.rows.find(a, panel, lane);
#pragma unroll 1
        for (int j = 1; j < ring.SLOTS; j++) ring.async_copy(a);
    }
    ht_panels<PANELS> at = ht_panels_at<PANELS>(a, panel);
    ht_await_earlier();
    const ht_lane_x x = ht_x_of(a.x.rows, 0, a.n, lane);
    const float inverse = N == 1 && thread % ALL / HT_CUDA_PANEL < a.n ? a.x.inverse[thread % ALL / HT_CUDA_PANEL] : 0;
    for (int turn = 0; panel < a.panels; turn = (turn + 1) % TURNS) {
        float sum[PANELS][N][4] = {};
        for (int32_t i = begin; i < end; i++) {
            ht_span<F, PANELS> span;
            if (F::LOADS_ANY) {
                ht_lane_rows<PANELS> rows;
                rows.find(a, panel, lane);
                ht_load_now visitor;
#pragma unroll
                for (int p = 0; p < PANELS; p++)
#pragma unroll
                    for (int half = 0; half < 2; half++)
                        F::visit(visitor, span.raw[p][half], *rows.w, rows.row[p][half], rows.index[p][half], i,
                                 lane & 3);
            } else {
                ring.async_copy(a);
                ring.take(span, F::ALIKE ? a.matrix[0].w : at.of->w, i);
            }
            ht_add_span<F, N, PANELS>(at.of->w, at.factor, span, x, i * (F::CYCLES * HT_K_TILE_STRIDE(N)),
                                      HT_K_TILE_STRIDE(N), sum);
        }
        if (warp == HT_CUDA_SEGMENTS - 1 && spans * F::CYCLES * HT_CUDA_K_TILE < at.of->w.k) {
            ht_lane_rows<PANELS> rows;
            rows.find(a, panel, lane);
            for (int64_t cut = spans * F::CYCLES; cut * HT_CUDA_K_TILE < at.of->w.k; cut++)
                ht_add_loose<N, PANELS>(*rows.w, at.factor, rows.row, rows.index, x, cut, cut * HT_K_TILE_STRIDE(N),
                                        lane, sum);
        }
        const ht_panels<PANELS> done = at;
        panel += (int64_t)gridDim.x * PANELS;
        if (panel < a.panels) at = ht_panels_at<PANELS>(a, panel); /* loads while these sums are added */
#pragma unroll
        for (int p = 0; p < PANELS; p++) {
            ht_put_sums<N>(a, *done.of, done.first + p * HT_CUDA_PANEL, done.factor[p], sum[p],
                           shared + turn * HT_CUDA_SEGMENTS * ALL, thread, turn, inverse);
            if (TURNS == 1) __syncthreads();
        }
    }
}

/* ---- rows of a matrix as f16 ---- */

/* A thread converts a lane's part of one row: of a span, or of a K-tile after the spans. Rows from n on are zeros. */
template <class F> static __device__ __forceinline__ void ht_tensor_rows(const ht_cuda_tensor_rows_arguments &a) {
    const int64_t units = ht_units_of<F>(a.w), groups = a.n_padded / 8;
    for (int64_t at = ht_first(); at < a.n_padded * units * 4; at += ht_step()) {
        const int64_t group = at / 32 / units, row = group * 8 + (at >> 2 & 7), index = a.first + row;
        const float factor = row < a.n ? __ldg(a.factors + index / HT_CUDA_FACTOR_ROWS) : 0.0f;
        ht_store_tile_unit<F>(a.w, a.w.packed, index, row < a.n, factor, at / 32 % units, (int)(at & 3),
                              (int)(at >> 2 & 7), a.to + group * HT_CUDA_K_TILE_BYTES, groups * HT_CUDA_K_TILE_BYTES);
    }
}

#define KERNELS(X, form)                                                                                               \
    static_assert(sizeof(ht_pairs_##form::raw) == HT_CUDA_RAW_##form || ht_pairs_##form::LOADS_ANY,                    \
                  "the host gives rings their slots");                                                                 \
    HT_CUDA_EAGER_KERNEL(ht_cuda_tensor_##form##_8, ht_cuda_tensor_arguments, 256, 2) {                                \
        ht_tensor<ht_pairs_##form, 1, 1>(a);                                                                           \
    }                                                                                                                  \
    HT_CUDA_EAGER_KERNEL(ht_cuda_tensor_##form##_16, ht_cuda_tensor_arguments, 256, 2) {                               \
        ht_tensor<ht_pairs_##form, 2, 1>(a);                                                                           \
    }                                                                                                                  \
    HT_CUDA_EAGER_KERNEL(ht_cuda_tensor_##form##_64, ht_cuda_tensor_arguments, 256, 1) {                               \
        ht_tensor<ht_pairs_##form, 8, 2>(a);                                                                           \
    }                                                                                                                  \
    HT_CUDA_KERNEL(ht_cuda_tensor_rows_##form, ht_cuda_tensor_rows_arguments) { ht_tensor_rows<ht_pairs_##form>(a); }
HT_CUDA_EACH_TENSOR_FORM(KERNELS, )

/* ---- factors ---- */

/* One block per 64 rows. Headroom of eight times the largest weight lets scales and mins of groups fit, too. */
HT_CUDA_KERNEL_OF(1024, ht_cuda_factors, ht_cuda_factors_arguments) {
    const int64_t first = (int64_t)blockIdx.x * HT_CUDA_FACTOR_ROWS, parts = (a.w.k + 7) / 8;
    const int64_t left = a.w.n_rows - first, n = left < HT_CUDA_FACTOR_ROWS ? left : HT_CUDA_FACTOR_ROWS;
    float most = 0;
    for (int64_t at = threadIdx.x; at < n * parts; at += blockDim.x) {
        const int64_t row = first + at / parts;
        float w[8] = {0, 0, 0, 0, 0, 0, 0, 0};
        ht_part_of(a.w, a.w.packed + row * a.w.row_bytes, row, at % parts, w);
        for (int k = 0; k < 8; k++)
            if (fabsf(w[k]) > most) most = fabsf(w[k]);
    }
    most = ht_block_most(most);
    if (threadIdx.x == 0) a.factors[blockIdx.x] = ht_power_for(most, HT_TOP_OF_WEIGHTS);
}

/* A block for a row of x. */
HT_CUDA_KERNEL(ht_cuda_prepare, ht_cuda_prepare_arguments) {
    const int64_t row = blockIdx.x, of = a.order ? a.order[row] : row;
    const float *x = of >= 0 && of < a.n ? a.x + (a.order ? of / a.x_share : of) * a.ldx : NULL;
    float most = 0;
    for (int64_t c = threadIdx.x; x && c < a.k; c += blockDim.x)
        if (fabsf(x[c]) > most) most = fabsf(x[c]);
    ht_store_row(a.to, row, x, a.k, ht_power_for(ht_block_most(most), HT_TOP_OF_ROWS));
}
