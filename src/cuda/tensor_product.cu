/* Products of few rows with packed weights, and what products of many need before (cuda/tensor_product.h). */
#include "cuda/matrix_pairs.cuh"
#include "cuda/tensor_product.h"
#include "cuda/tensor_rows.cuh"

/* ---- the parts of a row ---- */

/* Spans that are loaded whole; what is left is columns by eight. */
template <class F> static __device__ __forceinline__ int64_t ht_spans_of(const ht_cuda_weights &m) {
    return F::LOADS_ANY ? (m.k + HT_CUDA_CUT - 1) / HT_CUDA_CUT : m.whole / (F::CYCLES * HT_CUDA_CUT);
}

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
 * A warp has a segment of the columns of PANELS panels of 16 rows, and all N * 8 rows of x. */

/* What a warp has of its panels. */
template <class F, int PANELS> struct ht_lane_rows {
    const uint8_t *row[PANELS][2];
    int32_t index[PANELS][2];
    float factor[PANELS]; /* a panel's rows have one */
    const ht_cuda_tensor_matrix *of;
    int32_t first; /* row of the first panel */
};

template <class F, int PANELS>
static __device__ __forceinline__ ht_lane_rows<F, PANELS> ht_rows_at(const ht_cuda_tensor_arguments &a, int64_t panel) {
    int which = 0;
    while (which + 1 < a.n_matrices && panel >= a.matrix[which + 1].first_panel) which++;
    const ht_cuda_tensor_matrix &of = a.matrix[which];
    ht_lane_rows<F, PANELS> r;
    r.of = &of;
    r.first = (int32_t)((panel - of.first_panel) * HT_CUDA_PANEL);
#pragma unroll
    for (int p = 0; p < PANELS; p++) {
        const int64_t begin = r.first + p * HT_CUDA_PANEL;
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const int64_t row = begin + half * 8 + (threadIdx.x & 31) / 4, last = of.w.n_rows - 1;
            r.index[p][half] = (int32_t)(row < last ? row : last);
            r.row[p][half] = of.w.packed + (row < last ? row : last) * of.w.row_bytes;
        }
        r.factor[p] = __ldg(of.factors + (begin < of.w.n_rows ? begin : of.w.n_rows - 1) / HT_CUDA_FACTOR_ROWS);
    }
    return r;
}

template <class F, int PANELS> struct ht_span { typename F::raw raw[PANELS][2]; };

template <class F, int PANELS>
static __device__ __forceinline__ ht_span<F, PANELS> ht_span_at(const ht_lane_rows<F, PANELS> &r, int64_t i) {
    ht_span<F, PANELS> s;
#pragma unroll
    for (int p = 0; p < PANELS; p++)
#pragma unroll
        for (int half = 0; half < 2; half++)
            s.raw[p][half] = F::load(r.of->w, r.row[p][half], r.index[p][half], i, threadIdx.x & 3);
    return s;
}

/* Where a lane finds its columns of the rows of x: of each half of a cut, for each of its steps. */
typedef struct ht_lane_x {
    const unsigned char *at[2][2];
} ht_lane_x;

/* Bytes of a cut: the image has N * 8 rows. */
#define HT_CUT_STRIDE(N) ((N)*HT_CUDA_CUT_BYTES)

/* With fewer than eight rows, the others' lanes read the last of them once more, from where it is read already. */
static __device__ __forceinline__ ht_lane_x ht_x_of(const ht_cuda_image &x, int64_t n) {
    const int lane = threadIdx.x & 31, t = lane & 3, g = lane >> 2 < n ? lane >> 2 : (int)n - 1;
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
            b[j][step] = *(const uint2 *)(x.at[h][step] + offset + j * HT_CUDA_CUT_BYTES);
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
static __device__ __forceinline__ void ht_add_span(const ht_lane_rows<F, PANELS> &r, const ht_span<F, PANELS> &s,
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

template <class F, int N, int PANELS>
static __device__ __forceinline__ void ht_add_loose(const ht_lane_rows<F, PANELS> &r, const ht_lane_x &x, int64_t cut,
                                                    float (*sum)[N][4]) {
#pragma unroll
    for (int h = 0; h < 2; h++) {
        uint32_t w[PANELS][2][4];
#pragma unroll
        for (int p = 0; p < PANELS; p++)
#pragma unroll
            for (int half = 0; half < 2; half++) {
                const uint4 all = ht_loose_pairs(r.of->w, r.row[p][half], r.index[p][half],
                                                 cut * 8 + h * 4 + (threadIdx.x & 3), r.factor[p]);
                w[p][half][0] = all.x, w[p][half][1] = all.y, w[p][half][2] = all.z, w[p][half][3] = all.w;
            }
        ht_add_half<N, PANELS>(w, x, cut * HT_CUT_STRIDE(N), h, sum);
    }
}

/* The eight warps' sums of a block's panels, added and written; `first` is the first row of the matrix. */
template <int N, int PANELS>
static __device__ __forceinline__ void ht_put_sums(const ht_cuda_tensor_arguments &a, const ht_cuda_tensor_matrix &of,
                                                   int32_t first, const float (*sum)[N][4], float *shared) {
    enum { ROWS = PANELS * HT_CUDA_PANEL, ALL = ROWS * N * 8 };
    const int lane = threadIdx.x & 31, g = lane >> 2, t = lane & 3, warp = threadIdx.x >> 5;
#pragma unroll
    for (int p = 0; p < PANELS; p++)
#pragma unroll
        for (int j = 0; j < N; j++)
#pragma unroll
            for (int i = 0; i < 4; i++) {
                const int row = p * HT_CUDA_PANEL + (i >> 1) * 8 + g, column = j * 8 + 2 * t + (i & 1);
                if (column < a.n) shared[warp * ALL + column * ROWS + row] = sum[p][j][i];
            }
    __syncthreads();
    for (int i = threadIdx.x; i < ALL; i += HT_CUDA_TENSOR_WARPS * 32) {
        const int64_t row = first + i % ROWS, x = i / ROWS;
        if (row >= of.w.n_rows || x >= a.n) continue;
        float total = 0;
#pragma unroll
        for (int w = 0; w < HT_CUDA_SEGMENTS; w++) total += shared[w * ALL + i];
        total = total * a.x.inverse[x] * (1.0f / of.factors[row / HT_CUDA_FACTOR_ROWS]);
        if (of.bias) total += of.bias[row];
        of.y[x * of.ldy + row] = total;
    }
}

/* Spans [i, end) of the panels' columns, the first of which has been loaded; two take turns, so that one comes while the other is added. */
template <class F, int N, int PANELS>
static __device__ __forceinline__ void ht_add_spans(const ht_lane_rows<F, PANELS> &r, ht_span<F, PANELS> &first,
                                                    const ht_lane_x &x, int64_t i, int64_t end, float (*sum)[N][4]) {
    ht_span<F, PANELS> second;
    for (; i < end; i += 2) {
        if (i + 1 < end) second = ht_span_at<F, PANELS>(r, i + 1);
        ht_add_span<F, N, PANELS>(r, first, x, i, sum);
        if (i + 1 >= end) break;
        if (i + 2 < end) first = ht_span_at<F, PANELS>(r, i + 2);
        ht_add_span<F, N, PANELS>(r, second, x, i + 1, sum);
    }
}

template <class F, int N, int PANELS>
static __device__ __forceinline__ void ht_tensor(const ht_cuda_tensor_arguments &a) {
    enum { ALL = PANELS * HT_CUDA_PANEL * N * 8 };
    HT_CUDA_SHARED(float, shared);
    const int warp = threadIdx.x >> 5;
    int64_t panel = (int64_t)blockIdx.x * PANELS;
    ht_lane_rows<F, PANELS> rows = ht_rows_at<F, PANELS>(a, panel);
    int64_t spans = ht_spans_of<F>(rows.of->w), i = spans * warp / HT_CUDA_SEGMENTS;
    ht_span<F, PANELS> next;
    if (i < spans * (warp + 1) / HT_CUDA_SEGMENTS) next = ht_span_at<F, PANELS>(rows, i);
    ht_await_earlier();
    const ht_lane_x x = ht_x_of(a.x, a.n);
    for (int turn = 0; panel < a.panels; turn ^= 1) {
        float sum[PANELS][N][4];
#pragma unroll
        for (int p = 0; p < PANELS; p++)
#pragma unroll
            for (int j = 0; j < N; j++)
#pragma unroll
                for (int v = 0; v < 4; v++) sum[p][j][v] = 0;
        const ht_cuda_tensor_matrix &of = *rows.of;
        const int32_t first = rows.first;
        panel += (int64_t)gridDim.x * PANELS;
        ht_add_spans<F, N, PANELS>(rows, next, x, i, spans * (warp + 1) / HT_CUDA_SEGMENTS, sum);
        if (warp == HT_CUDA_SEGMENTS - 1)
            for (int64_t cut = spans * F::CYCLES; cut * HT_CUDA_CUT < of.w.k; cut++)
                ht_add_loose<F, N, PANELS>(rows, x, cut, sum);
        if (panel < a.panels) { /* the next panels' weights come while these sums are added */
            rows = ht_rows_at<F, PANELS>(a, panel);
            spans = ht_spans_of<F>(rows.of->w);
            i = spans * warp / HT_CUDA_SEGMENTS;
            if (i < spans * (warp + 1) / HT_CUDA_SEGMENTS) next = ht_span_at<F, PANELS>(rows, i);
        }
        ht_put_sums<N, PANELS>(a, of, first, sum, shared + (N == 1 ? turn * HT_CUDA_SEGMENTS * ALL : 0));
        if (N > 1) __syncthreads();
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
                ht_put_chunk(to, r, h * 4 + t, w);
            }
            continue;
        }
        typename F::raw raw;
        typename F::scale scale;
        if (row < a.n) {
            raw = F::load(m, from, index, i, t);
            scale = F::open(m, raw, factor);
        }
#pragma unroll
        for (int c = 0; c < F::CYCLES; c++)
#pragma unroll
            for (int h = 0; h < 2; h++) {
                uint32_t w[4] = {0, 0, 0, 0};
                if (row < a.n) F::pairs(m, raw, scale, c, h, w);
                ht_put_chunk(to + c * groups * HT_CUDA_CUT_BYTES, r, h * 4 + t, w);
            }
    }
}

#define X(form)                                                                                                        \
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
