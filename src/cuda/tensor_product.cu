/* Products of few rows with packed weights, and what products of many need before (cuda/tensor_product.h). */
#include "cuda/matrix_pairs.cuh"
#include "cuda/tensor_product.h"
#include "cuda/tensor_ring.cuh"
#include "cuda/tensor_rows.cuh"

/* ---- what is behind the last span ---- */

/* Columns 8 t to 8 t + 7 of half h of a cut, of what is behind the last span. */
static __device__ HT_CUDA_APART uint4 ht_loose_pairs(const ht_cuda_weights &m, const uint8_t *row, int64_t index,
                                                     int64_t chunk, float factor) {
    float w[8] = {0, 0, 0, 0, 0, 0, 0, 0};
    uint32_t out[4];
    if (chunk * 8 < m.k) ht_part_of(m, row, index, chunk, w);
    ht_pairs_of_floats(w, factor, out);
    return uint4{out[0], out[1], out[2], out[3]};
}

/* ---- few rows of x ----
 *
 * A warp has a segment of the columns of PANELS panels of 16 rows, and all N * 8 rows of x. What its lanes have of the spans comes to a
 * ring of slots in shared memory, from one panel to the next without a pause: a lane brings what it takes itself, so that nobody
 * waits for another. The first slots are filled before earlier kernels are done. */

/* Where a lane finds its columns of the rows of x: of each half of a cut, for each of its steps. */
typedef struct ht_lane_x {
    const unsigned char *at[2][2];
} ht_lane_x;

/* Bytes of a cut: the image has N * 8 rows. */
#define HT_CUT_STRIDE(N) ((N)*HT_CUDA_CUT_BYTES)

/* With fewer than eight rows, the others' lanes read the last of them once more, from where it is read already. */
static __device__ __forceinline__ ht_lane_x ht_x_of(const ht_cuda_image &x, int64_t n, int lane) {
    const int t = lane & 3, g = lane >> 2 < n ? lane >> 2 : (int)n - 1;
    ht_lane_x out;
#pragma unroll
    for (int h = 0; h < 2; h++)
#pragma unroll
        for (int step = 0; step < 2; step++) out.at[h][step] = x.rows + HT_CUDA_STEP_PLACE(g, h * 4 + t, step);
    return out;
}

/* Half h of a cut, `offset` bytes from the first: two steps of 16 columns. */
template <int N, int PANELS>
static __device__ __forceinline__ void ht_add_half(const uint32_t (*w)[2][4], const ht_lane_x &x, int64_t offset, int h,
                                                   float (*sum)[N][4]) {
    uint2 b[N][2];
#pragma unroll
    for (int j = 0; j < N; j++)
#pragma unroll
        for (int step = 0; step < 2; step++)
            b[j][step] = *(const uint2 *)(x.at[h][step] + (offset + j * HT_CUDA_CUT_BYTES));
#pragma unroll
    for (int p = 0; p < PANELS; p++) {
        const uint32_t first[4] = {w[p][0][0], w[p][1][0], w[p][0][1], w[p][1][1]};
        const uint32_t second[4] = {w[p][0][2], w[p][1][2], w[p][0][3], w[p][1][3]};
#pragma unroll
        for (int j = 0; j < N; j++) {
            const uint32_t of_first[2] = {b[j][0].x, b[j][0].y}, of_second[2] = {b[j][1].x, b[j][1].y};
            ht_mma(sum[p][j], first, of_first);
            ht_mma(sum[p][j], second, of_second);
        }
    }
}

template <class F, int N, int PANELS>
static __device__ __forceinline__ void ht_add_span(const ht_panels<PANELS> &r, const ht_span<F, PANELS> &s,
                                                   const ht_lane_x &x, int64_t i, float (*sum)[N][4]) {
    typename F::scale scale[PANELS][2];
#pragma unroll
    for (int p = 0; p < PANELS; p++)
#pragma unroll
        for (int half = 0; half < 2; half++) scale[p][half] = F::open(r.of->w, s.raw[p][half], r.factor[p]);
#pragma unroll
    for (int c = 0; c < F::CYCLES; c++)
#pragma unroll
        for (int h = 0; h < 2; h++) {
            uint32_t w[PANELS][2][4];
#pragma unroll
            for (int p = 0; p < PANELS; p++)
#pragma unroll
                for (int half = 0; half < 2; half++)
                    F::pairs(r.of->w, s.raw[p][half], scale[p][half], c, h, w[p][half]);
            ht_add_half<N, PANELS>(w, x, i * (F::CYCLES * HT_CUT_STRIDE(N)) + c * HT_CUT_STRIDE(N), h, sum);
        }
}

template <int N, int PANELS>
static __device__ __forceinline__ void ht_add_loose(const ht_panels<PANELS> &at, const ht_lane_rows<PANELS> &r,
                                                    const ht_lane_x &x, int64_t cut, int lane, float (*sum)[N][4]) {
#pragma unroll
    for (int h = 0; h < 2; h++) {
        uint32_t w[PANELS][2][4];
#pragma unroll
        for (int p = 0; p < PANELS; p++)
#pragma unroll
            for (int half = 0; half < 2; half++) {
                const uint4 all =
                    ht_loose_pairs(*r.w, r.row[p][half], r.index[p][half], cut * 8 + h * 4 + (lane & 3), at.factor[p]);
                w[p][half][0] = all.x, w[p][half][1] = all.y, w[p][half][2] = all.z, w[p][half][3] = all.w;
            }
        ht_add_half<N, PANELS>(w, x, cut * HT_CUT_STRIDE(N), h, sum);
    }
}

/* The eight warps' sums of a panel, added and written; `first` is the first row of the matrix. Of few sums one half of the block has
 * those of one panel, the other those of the next. */
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
        for (int j = 1; j < ring.SLOTS; j++) ring.bring(a);
    }
    ht_panels<PANELS> at = ht_panels_at<PANELS>(a, panel);
    ht_await_earlier();
    const ht_lane_x x = ht_x_of(a.x, a.n, lane);
    const float inverse = N == 1 && thread % ALL / HT_CUDA_PANEL < a.n ? a.x.inverse[thread % ALL / HT_CUDA_PANEL] : 0;
    for (int turn = 0; panel < a.panels; turn = (turn + 1) % TURNS) {
        float sum[PANELS][N][4];
#pragma unroll
        for (int p = 0; p < PANELS; p++)
#pragma unroll
            for (int j = 0; j < N; j++)
#pragma unroll
                for (int v = 0; v < 4; v++) sum[p][j][v] = 0;
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
                ring.bring(a);
                ring.take(span, F::ALIKE ? a.matrix[0].w : at.of->w, i);
            }
            ht_add_span<F, N, PANELS>(at, span, x, i, sum);
        }
        if (warp == HT_CUDA_SEGMENTS - 1 && spans * F::CYCLES * HT_CUDA_CUT < at.of->w.k) {
            ht_lane_rows<PANELS> rows;
            rows.find(a, panel, lane);
            for (int64_t cut = spans * F::CYCLES; cut * HT_CUDA_CUT < at.of->w.k; cut++)
                ht_add_loose<N, PANELS>(at, rows, x, cut, lane, sum);
        }
        const ht_panels<PANELS> done = at;
        panel += (int64_t)gridDim.x * PANELS;
        if (panel < a.panels) at = ht_panels_at<PANELS>(a, panel); /* on its way while these sums are added */
#pragma unroll
        for (int p = 0; p < PANELS; p++) {
            ht_put_sums<N>(a, *done.of, done.first + p * HT_CUDA_PANEL, done.factor[p], sum[p],
                           shared + turn * HT_CUDA_SEGMENTS * ALL, thread, turn, inverse);
            if (TURNS == 1) __syncthreads();
        }
    }
}

/* ---- rows of a matrix as f16 ---- */

/* A thread has what a lane has of a span of one row, or of a cut behind the spans. Rows from n on are 0: nobody reads their products. */
template <class F> static __device__ __forceinline__ void ht_tensor_rows(const ht_cuda_tensor_rows_arguments &a) {
    const ht_cuda_weights &m = a.w;
    const int64_t spans = ht_spans_of<F>(m), cuts = (m.k + HT_CUDA_CUT - 1) / HT_CUDA_CUT, whole = spans * F::CYCLES;
    const int64_t units = spans + (cuts > whole ? cuts - whole : 0), groups = a.n_padded / 8;
    for (int64_t at = ht_first(); at < a.n_padded * units * 4; at += ht_step()) {
        const int t = (int)(at & 3), r = (int)(at >> 2 & 7);
        const int64_t i = at / 32 % units, group = at / 32 / units, row = group * 8 + r, index = a.first + row;
        const int64_t cut = i < spans ? i * F::CYCLES : whole + i - spans;
        unsigned char *to = a.to + (cut * groups + group) * HT_CUDA_CUT_BYTES;
        const uint8_t *from = m.packed + index * m.row_bytes;
        const float factor = row < a.n ? __ldg(a.factors + index / HT_CUDA_FACTOR_ROWS) : 0.0f;
        if (i >= spans) {
            for (int h = 0; h < 2; h++) {
                uint4 all = {0, 0, 0, 0};
                if (row < a.n) all = ht_loose_pairs(m, from, index, cut * 8 + h * 4 + t, factor);
                const uint32_t w[4] = {all.x, all.y, all.z, all.w};
                ht_put_chunk(to, false, r, h * 4 + t, w);
            }
            continue;
        }
        typename F::raw raw;
        typename F::scale scale;
        if (row < a.n) {
            ht_load_now visitor;
            F::visit(visitor, raw, m, from, index, i, t);
            scale = F::open(m, raw, factor);
        }
#pragma unroll
        for (int c = 0; c < F::CYCLES; c++)
#pragma unroll
            for (int h = 0; h < 2; h++) {
                uint32_t w[4] = {0, 0, 0, 0};
                if (row < a.n) F::pairs(m, raw, scale, c, h, w);
                ht_put_chunk(to + c * groups * HT_CUDA_CUT_BYTES, false, r, h * 4 + t, w);
            }
    }
}

#define X(form)                                                                                                        \
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
HT_CUDA_EACH_TENSOR_FORM(X)
#undef X

/* ---- factors ---- */

/* A block for 64 rows. Scales and mins of groups are to fit as well: room for eight times the largest weight is left. */
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
    const int64_t row = blockIdx.x;
    const float *x = row < a.n ? a.x + row * a.ldx : NULL;
    float most = 0;
    for (int64_t c = threadIdx.x; x && c < a.k; c += blockDim.x)
        if (fabsf(x[c]) > most) most = fabsf(x[c]);
    ht_put_row(a.to, row, x, a.k, ht_power_for(ht_block_most(most), HT_TOP_OF_ROWS));
}
