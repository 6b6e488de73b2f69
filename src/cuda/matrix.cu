/* Packed weights, and the products with them. */
#include "cuda/kernel.cuh"
#include "cuda/matrix.h"
#include "cuda/matrix_values.cuh"

/* ---- shared by all products ---- */

/* Index of column c of a row of x in shared memory: lanes read 4 columns each, adjacent lanes adjacent memory. */
static __device__ __forceinline__ int ht_shared_place(int c) {
    return (c & ~63) + (c >> 2 & 1) * 32 + (c >> 3 & 7) * 4 + (c & 3);
}

/* The sum of the eight lanes of a part, to all of them. */
static __device__ __forceinline__ float ht_lane_sum(float v) {
    v += __shfl_xor_sync(0xffffffffu, v, 4);
    v += __shfl_xor_sync(0xffffffffu, v, 2);
    return v + __shfl_xor_sync(0xffffffffu, v, 1);
}

static __device__ __forceinline__ const uint8_t *ht_row_of(const ht_cuda_weights &m, int64_t row) {
    return m.packed + row * m.row_bytes;
}

/* Four columns of a row of x from c on, 0 past the end. */
static __device__ __forceinline__ float4 ht_four_of(const float *x, int64_t c, int64_t k, bool aligned) {
    if (aligned && c + 4 <= k) return *(const float4 *)(x + c);
    float4 v;
    v.x = c < k ? x[c] : 0.0f;
    v.y = c + 1 < k ? x[c + 1] : 0.0f;
    v.z = c + 2 < k ? x[c + 2] : 0.0f;
    v.w = c + 3 < k ? x[c + 3] : 0.0f;
    return v;
}

static __device__ __forceinline__ float ht_add_part(const float *w, const float4 &a, const float4 &b, float sum) {
    sum = fmaf(a.x, w[0], sum);
    sum = fmaf(a.y, w[1], sum);
    sum = fmaf(a.z, w[2], sum);
    sum = fmaf(a.w, w[3], sum);
    sum = fmaf(b.x, w[4], sum);
    sum = fmaf(b.y, w[5], sum);
    sum = fmaf(b.z, w[6], sum);
    return fmaf(b.w, w[7], sum);
}

/* ---- few rows of x ----
 *
 * Eight threads share a row of the matrix and read its columns once for R rows of x in shared memory. */

/* Columns [first, first + n) of R rows of x; rows from n_x on are 0. */
template <int R>
static __device__ void ht_few_load(const float *x, int64_t ldx, int n_x, int64_t k, bool aligned, int64_t first, int n,
                                   int chunk, float *to) {
    for (int i = threadIdx.x; i < R * (n / 4); i += blockDim.x) {
        const int r = i / (n / 4), c = i % (n / 4) * 4;
        float4 v = {0, 0, 0, 0};
        if (r < n_x) v = ht_four_of(x + r * ldx, first + c, k, aligned);
        *(float4 *)(to + r * chunk + ht_shared_place(c)) = v;
    }
}

/* Adds N parts of rows of the matrix times those columns of R rows of x. */
template <int R, int N>
static __device__ __forceinline__ void ht_few_add(const float (*w)[8], const float *x, int chunk, int column, int lane,
                                                  float (*sum)[R]) {
    const float *at = x + column + lane * 4;
#pragma unroll
    for (int r = 0; r < R; r++) {
        const float4 low = *(const float4 *)(at + r * chunk), high = *(const float4 *)(at + r * chunk + 32);
#pragma unroll
        for (int i = 0; i < N; i++) sum[i][r] = ht_add_part(w[i], low, high, sum[i][r]);
    }
}

/* DEPTH cycles of N rows of f32 from `column` on: all is loaded before the first of it is needed. */
template <int R, int N, int DEPTH>
static __device__ __forceinline__ void ht_few_cycles(const uint8_t *const *weights, int64_t column, int64_t first,
                                                     const float *x, int chunk, int lane, float (*sum)[R]) {
    alignas(16) float w[DEPTH][N][8];
#pragma unroll
    for (int u = 0; u < DEPTH; u++)
#pragma unroll
        for (int j = 0; j < N; j++) {
            const float4 *from = (const float4 *)((const float *)weights[j] + column + u * HT_CUDA_CYCLE) + lane * 2;
            *(float4 *)w[u][j] = __ldg(from), *(float4 *)(w[u][j] + 4) = __ldg(from + 1);
        }
#pragma unroll
    for (int u = 0; u < DEPTH; u++)
        ht_few_add<R, N>(w[u], x, chunk, (int)(column - first) + u * HT_CUDA_CYCLE, lane, sum);
}

/* Computes n_x rows of x, from `x` on, times N rows of the matrix of these eight threads: `row`, and others a block's
 * rows apart. F32: the form of the matrix. */
template <bool F32, int R, int N>
static __device__ __forceinline__ void ht_few(const ht_cuda_weights &m, const float *x, int64_t ldx, int n_x,
                                              bool aligned, int chunk, int64_t row, float *shared, float (*sum)[R]) {
    enum { DEPTH = 4 };
    const int lane = threadIdx.x & 7;
    const uint8_t *weights[N];
#pragma unroll
    for (int j = 0; j < N; j++) {
        const int64_t mine = row + j * HT_CUDA_FEW_ROWS;
        weights[j] = ht_row_of(m, mine < m.n_rows ? mine : m.n_rows - 1);
#pragma unroll
        for (int r = 0; r < R; r++) sum[j][r] = 0;
    }
    for (int64_t first = 0; first < m.k; first += chunk) {
        const int64_t left = m.k - first;
        const int n = left < chunk ? (int)left : chunk, padded = (n + 63) / 64 * 64;
        if (first) __syncthreads();
        ht_few_load<R>(x, ldx, n_x, m.k, aligned, first, padded, chunk, shared);
        __syncthreads();
        const int64_t whole = m.whole < first + n ? m.whole : first + n;
        int64_t c = first;
        for (; F32 && c + DEPTH * HT_CUDA_CYCLE <= whole; c += DEPTH * HT_CUDA_CYCLE)
            ht_few_cycles<R, N, DEPTH>(weights, c, first, shared, chunk, lane, sum);
        for (; F32 && c + HT_CUDA_CYCLE <= whole; c += HT_CUDA_CYCLE)
            ht_few_cycles<R, N, 1>(weights, c, first, shared, chunk, lane, sum);
        for (; c < first + n; c += HT_CUDA_CYCLE) {
            if (c + lane * HT_CUDA_PART >= m.k) break;
            float w[N][8];
#pragma unroll
            for (int j = 0; j < N; j++) {
                const int64_t mine = row + j * HT_CUDA_FEW_ROWS;
                ht_part_of(m, weights[j], mine < m.n_rows ? mine : m.n_rows - 1, c / HT_CUDA_PART + lane, w[j]);
            }
            ht_few_add<R, N>(w, shared, chunk, (int)(c - first), lane, sum);
        }
    }
#pragma unroll
    for (int j = 0; j < N; j++)
#pragma unroll
        for (int r = 0; r < R; r++) sum[j][r] = ht_lane_sum(sum[j][r]);
}

template <bool F32, int R, int N>
static __device__ __forceinline__ void ht_few_linear(const ht_cuda_linear_arguments &a) {
    HT_CUDA_SHARED(float, shared);
    const int64_t row = (int64_t)blockIdx.x * HT_CUDA_FEW_ROWS * N + threadIdx.x / HT_CUDA_LANES;
    const int64_t first = (int64_t)blockIdx.y * R;
    const int n_x = a.n - first < R ? (int)(a.n - first) : R, lane = threadIdx.x & 7;
    float sum[N][R];
    ht_few<F32, R, N>(a.w, a.x + first * a.ldx, a.ldx, n_x, a.x_aligned, a.chunk, row, shared, sum);
#pragma unroll
    for (int j = 0; j < N; j++) {
        const int64_t mine = row + j * HT_CUDA_FEW_ROWS;
        if (mine >= a.w.n_rows) break;
        const float bias = a.bias ? a.bias[mine] : 0.0f;
#pragma unroll
        for (int r = 0; r < R; r++)
            if (r == lane && r < n_x) a.y[(first + r) * a.ldy + mine] = a.bias ? sum[j][r] + bias : sum[j][r];
    }
}

/* The matrix of an expert; its rows are NULL if it is of another type. */
static __device__ __forceinline__ ht_cuda_weights ht_weights_of(const ht_cuda_weights &alike,
                                                                const ht_cuda_expert_list &experts, int64_t e) {
    const ht_cuda_expert expert = ht_expert_of(experts, e);
    ht_cuda_weights m = alike;
    m.packed = expert.packed;
    m.scales = expert.scales;
    return m;
}

/* One pair per block along the grid's second axis. */
HT_CUDA_KERNEL(ht_cuda_gather, ht_cuda_gather_arguments) {
    HT_CUDA_SHARED(float, shared);
    const int64_t row = (int64_t)blockIdx.x * HT_CUDA_FEW_ROWS + threadIdx.x / HT_CUDA_LANES;
    for (int64_t pair = blockIdx.y; pair < a.l.n; pair += gridDim.y) {
        const int64_t id = ht_id_of(a.ids, pair);
        if (id < 0 || id >= a.ids.n_experts) {
            if (blockIdx.x == 0 && threadIdx.x == 0) ht_report_index(a.report, pair, id, 0, a.ids.n_experts, 0);
            continue;
        }
        const ht_cuda_weights m = ht_weights_of(a.l.w, a.experts, id);
        if (!m.packed) continue;
        float sum[1][1];
        __syncthreads();
        ht_few<false, 1, 1>(m, a.l.x + pair / a.x_share * a.l.ldx, a.l.ldx, 1, a.l.x_aligned, a.l.chunk, row, shared,
                            sum);
        if (row < m.n_rows && (threadIdx.x & 7) == 0) a.l.y[pair * a.l.ldy + row] = sum[0][0];
    }
}

#define FEW(form, is_f32, n)                                                                                           \
    HT_CUDA_KERNEL(ht_cuda_few_##form##_##n, ht_cuda_linear_arguments) {                                               \
        ht_few_linear<is_f32, n, HT_CUDA_FEW_ROWS_##n>(a);                                                             \
    }
#define FEW_OF(form, is_f32) FEW(form, is_f32, 1) FEW(form, is_f32, 2) FEW(form, is_f32, 4) FEW(form, is_f32, 8)
FEW_OF(ANY, false)
FEW_OF(F32, true)

/* ---- many rows of x ----
 *
 * A block has a tile of y, and shares parts of x and of the matrix, as floats, cycle by cycle. Eight threads, which share the columns of
 * a cycle as the eight of few rows do, have 8 x 8 outputs; a warp has 16 x 16 of them. */

enum { MANY_THREADS = 256 };

/* The rows of a tile. */
struct ht_tile_rows {
    const int32_t *order; /* NULL: rows first, first + 1, ... */
    int64_t first;
    int n;
    __device__ __forceinline__ int64_t at(int i) const { return order ? order[first + i] : first + i; }
};

static __device__ __forceinline__ void ht_many(const ht_cuda_linear_arguments &a, const ht_cuda_weights &m,
                                               const ht_tile_rows &t, int x_share, int64_t first_row) {
    __shared__ __align__(16) float xs[HT_CUDA_TILE_X * HT_CUDA_CYCLE];
    __shared__ __align__(16) float ws[HT_CUDA_TILE_W * HT_CUDA_CYCLE];
    const int thread = threadIdx.x, lane = thread & 7, quarter = thread >> 3 & 3, warp = thread >> 5;
    const int x0 = (warp & 1) * 16 + (quarter & 1) * 8, w0 = (warp >> 1) * 16 + (quarter >> 1) * 8;
    float sum[8][8] = {};
    const int from = thread / 8; /* a row of each that this thread loads a part of */
    const float *x = from < t.n ? a.x + t.at(from) / x_share * a.ldx : NULL;
    for (int64_t c = 0; c < m.k; c += HT_CUDA_CYCLE) {
        const int64_t column = c + lane * HT_CUDA_PART;
        float4 low = {0, 0, 0, 0}, high = {0, 0, 0, 0};
        if (x) {
            low = ht_four_of(x, column, m.k, a.x_aligned);
            high = ht_four_of(x, column + 4, m.k, a.x_aligned);
        }
        if (c) __syncthreads();
        *(float4 *)(xs + from * 64 + lane * 4) = low;
        *(float4 *)(xs + from * 64 + 32 + lane * 4) = high;
#pragma unroll 1
        for (int r = from; r < HT_CUDA_TILE_W; r += MANY_THREADS / 8) {
            __align__(16) float w[8] = {0, 0, 0, 0, 0, 0, 0, 0};
            const int64_t row = first_row + r;
            if (row < m.n_rows && column < m.k) ht_part_of(m, ht_row_of(m, row), row, column / HT_CUDA_PART, w);
            *(float4 *)(ws + r * 64 + lane * 4) = float4{w[0], w[1], w[2], w[3]};
            *(float4 *)(ws + r * 64 + 32 + lane * 4) = float4{w[4], w[5], w[6], w[7]};
        }
        __syncthreads();
#pragma unroll
        for (int half = 0; half < 2; half++) {
            float4 of_x[8];
#pragma unroll
            for (int i = 0; i < 8; i++) of_x[i] = *(const float4 *)(xs + (x0 + i) * 64 + half * 32 + lane * 4);
#pragma unroll
            for (int j = 0; j < 8; j++) {
                const float4 w = *(const float4 *)(ws + (w0 + j) * 64 + half * 32 + lane * 4);
#pragma unroll
                for (int i = 0; i < 8; i++) {
                    float s = sum[i][j];
                    s = fmaf(of_x[i].x, w.x, s);
                    s = fmaf(of_x[i].y, w.y, s);
                    s = fmaf(of_x[i].z, w.z, s);
                    sum[i][j] = fmaf(of_x[i].w, w.w, s);
                }
            }
        }
    }
#pragma unroll
    for (int i = 0; i < 8; i++) {
        const int64_t y = x0 + i < t.n ? t.at(x0 + i) : 0;
#pragma unroll
        for (int j = 0; j < 8; j++) {
            const float s = ht_lane_sum(sum[i][j]);
            const int64_t row = first_row + w0 + j;
            if (lane == j && x0 + i < t.n && row < m.n_rows) a.y[y * a.ldy + row] = a.bias ? s + a.bias[row] : s;
        }
    }
}

/* Tiles of x are adjacent in the grid, so that the weights of a tile of the matrix stay in the cache. */
HT_CUDA_KERNEL_BOUND(ht_cuda_many, ht_cuda_linear_arguments, MANY_THREADS, 2) {
    const int64_t tiles = (a.n + HT_CUDA_TILE_X - 1) / HT_CUDA_TILE_X, first = blockIdx.x % tiles * HT_CUDA_TILE_X;
    const int n = a.n - first < HT_CUDA_TILE_X ? (int)(a.n - first) : HT_CUDA_TILE_X;
    const ht_tile_rows t = {NULL, first, n};
    ht_many(a, a.w, t, 1, blockIdx.x / tiles * HT_CUDA_TILE_W);
}

HT_CUDA_KERNEL_BOUND(ht_cuda_many_gather, ht_cuda_gather_arguments, MANY_THREADS, 2) {
    const ht_cuda_expert_tile tile = a.tiles[blockIdx.y];
    if (tile.n == 0) return;
    const ht_cuda_weights m = ht_weights_of(a.l.w, a.experts, tile.expert);
    const ht_tile_rows t = {a.order, tile.begin, tile.n};
    if (m.packed) ht_many(a.l, m, t, a.x_share, (int64_t)blockIdx.x * HT_CUDA_TILE_W);
}

/* ---- gradients: dy W ----
 *
 * A block computes a tile of dx over all rows of the matrix: a warp four rows of it, a thread four columns. */

enum { BACK_THREADS = 256, BACK_STEP = 32 }; /* rows of the matrix at a time */

static __device__ __forceinline__ void ht_back(const ht_cuda_back_arguments &a, const ht_cuda_weights &m,
                                               const ht_tile_rows &t, int per_row, int64_t first_column) {
    __shared__ __align__(16) float ys[BACK_STEP * HT_CUDA_BACK_ROWS]; /* [row of W][row of dy] */
    __shared__ __align__(16) float ws[BACK_STEP * HT_CUDA_BACK_COLUMNS];
    const int thread = threadIdx.x, across = thread & 31, warp = thread >> 5;
    const int64_t column = first_column + across * 4;
    float sum[4][4];
#pragma unroll
    for (int i = 0; i < 4; i++)
#pragma unroll
        for (int j = 0; j < 4; j++) {
            const int at = warp * 4 + i;
            const bool there = a.accumulate && at < t.n && column + j < m.k;
            sum[i][j] = there ? a.dx[t.at(at) * a.ldx + column + j] : 0.0f;
        }
    for (int64_t first = 0; first < m.n_rows; first += BACK_STEP) {
        if (first) __syncthreads();
        for (int i = thread; i < BACK_STEP * HT_CUDA_BACK_ROWS; i += BACK_THREADS) {
            const int r = i & 31, at = i >> 5; /* neighbours in a row of dy */
            float v = 0;
            if (at < t.n && first + r < m.n_rows) {
                const int64_t row = t.at(at);
                v = a.dy[row / per_row * a.dy_stride[0] + row % per_row * a.dy_stride[1] + (first + r) * a.dy_step];
            }
            ys[r * HT_CUDA_BACK_ROWS + (at ^ (r & 28))] = v;
        }
#pragma unroll 1
        for (int i = thread; i < BACK_STEP * HT_CUDA_BACK_COLUMNS / 8; i += BACK_THREADS) {
            const int r = i / (HT_CUDA_BACK_COLUMNS / 8), part = i % (HT_CUDA_BACK_COLUMNS / 8);
            __align__(16) float w[8] = {0, 0, 0, 0, 0, 0, 0, 0};
            const int64_t row = first + r, c = first_column + part * 8;
            if (row < m.n_rows && c < m.k) ht_part_of(m, ht_row_of(m, row), row, c / HT_CUDA_PART, w);
            *(float4 *)(ws + r * HT_CUDA_BACK_COLUMNS + part * 8) = float4{w[0], w[1], w[2], w[3]};
            *(float4 *)(ws + r * HT_CUDA_BACK_COLUMNS + part * 8 + 4) = float4{w[4], w[5], w[6], w[7]};
        }
        __syncthreads();
        const int n = m.n_rows - first < BACK_STEP ? (int)(m.n_rows - first) : BACK_STEP;
#pragma unroll 4
        for (int r = 0; r < n; r++) {
            const float4 w = *(const float4 *)(ws + r * HT_CUDA_BACK_COLUMNS + across * 4);
            const float4 y = *(const float4 *)(ys + r * HT_CUDA_BACK_ROWS + ((warp * 4) ^ (r & 28)));
            const float of_y[4] = {y.x, y.y, y.z, y.w};
#pragma unroll
            for (int i = 0; i < 4; i++) {
                sum[i][0] = fmaf(of_y[i], w.x, sum[i][0]);
                sum[i][1] = fmaf(of_y[i], w.y, sum[i][1]);
                sum[i][2] = fmaf(of_y[i], w.z, sum[i][2]);
                sum[i][3] = fmaf(of_y[i], w.w, sum[i][3]);
            }
        }
    }
#pragma unroll
    for (int i = 0; i < 4; i++)
#pragma unroll
        for (int j = 0; j < 4; j++) {
            const int at = warp * 4 + i;
            if (at < t.n && column + j < m.k) a.dx[t.at(at) * a.ldx + column + j] = sum[i][j];
        }
}

HT_CUDA_KERNEL(ht_cuda_back, ht_cuda_back_arguments) {
    const int64_t tiles = (a.n + HT_CUDA_BACK_ROWS - 1) / HT_CUDA_BACK_ROWS;
    const int64_t first = blockIdx.x % tiles * HT_CUDA_BACK_ROWS;
    const int n = a.n - first < HT_CUDA_BACK_ROWS ? (int)(a.n - first) : HT_CUDA_BACK_ROWS;
    const ht_tile_rows t = {NULL, first, n};
    ht_back(a, a.w, t, 1, blockIdx.x / tiles * HT_CUDA_BACK_COLUMNS);
}

HT_CUDA_KERNEL(ht_cuda_back_gather, ht_cuda_back_gather_arguments) {
    const ht_cuda_expert_tile tile = a.tiles[blockIdx.y];
    if (tile.n == 0) return;
    const ht_cuda_weights m = ht_weights_of(a.b.w, a.experts, tile.expert);
    const ht_tile_rows t = {a.order, tile.begin, tile.n};
    if (m.packed) ht_back(a.b, m, t, a.per_row, (int64_t)blockIdx.x * HT_CUDA_BACK_COLUMNS);
}

/* ---- rows by index ---- */

HT_CUDA_KERNEL(ht_cuda_embed, ht_cuda_embed_arguments) {
    for (int64_t i = blockIdx.x; i < a.n; i += gridDim.x) {
        const int64_t id = ht_get_int(a.ids.dtype, a.ids.data, ht_offset_of(a.ids, a.ids.n_dims, i));
        float *out = a.out + i * a.w.k;
        if (id < 0 || id >= a.w.n_rows) {
            if (threadIdx.x == 0) ht_report_index(a.report, i, id, 0, a.w.n_rows, 0);
            for (int64_t c = threadIdx.x; c < a.w.k; c += blockDim.x) out[c] = 0;
            continue;
        }
        for (int64_t part = threadIdx.x; part * 8 < a.w.k; part += blockDim.x) {
            float w[8];
            ht_part_of(a.w, ht_row_of(a.w, id), id, part, w);
            for (int k = 0; k < 8 && part * 8 + k < a.w.k; k++)
                out[part * 8 + k] = a.scale == 1.0f ? w[k] : w[k] * a.scale;
        }
    }
}
