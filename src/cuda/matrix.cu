/* Packed weights, and the products with them. */
#include "cuda/kernel.cuh"
#include "cuda/matrix.h"
#include "cuda/matrix_values.cuh"

/* Any form: eight columns at a time. */
struct ht_form_ANY {
    enum { CYCLES = 1, DEPTH = 1, LOADED = 0 };
    struct raw {};
    static __device__ __forceinline__ raw load(const uint8_t *, int64_t, int) { return raw(); }
    static __device__ __forceinline__ void expand(const raw &, float *) {}
    static __device__ __forceinline__ void part(const ht_cuda_weights &m, const uint8_t *row, int64_t index, int64_t g,
                                                float *w) {
        ht_part_of(m, row, index, g, w);
    }
};
#define HT_CUDA_PLAIN_FORMS(X) X(ANY) X(F32)

/* ---- what all products share ---- */

/* Column c of a row of x in shared memory: where lanes read their columns 4 by 4, neighbouring lanes read neighbouring memory. */
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

/* Four columns of a row of x from c on, 0 behind the last. */
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
 * Eight threads have a row of the matrix, whose columns a product reads once for R rows of x in shared memory. */

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

/* N parts of rows of the matrix times those columns of R rows of x. */
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

/* DEPTH times CYCLES cycles from the i-th on: all is loaded before the first of it is needed. */
template <class F, int R, int N, int DEPTH>
static __device__ __forceinline__ void ht_few_cycles(const uint8_t *const *weights, int64_t i, int64_t first,
                                                     const float *x, int chunk, int lane, float (*sum)[R]) {
    typename F::raw raw[DEPTH][N];
#pragma unroll
    for (int u = 0; u < DEPTH; u++)
#pragma unroll
        for (int j = 0; j < N; j++) raw[u][j] = F::load(weights[j], i + u, lane);
#pragma unroll
    for (int u = 0; u < DEPTH; u++)
#pragma unroll
        for (int c = 0; c < F::CYCLES; c++) {
            const int column = (int)((i + u) * F::CYCLES * HT_CUDA_CYCLE - first) + c * HT_CUDA_CYCLE;
            float w[N][8];
#pragma unroll
            for (int j = 0; j < N; j++) F::expand(raw[u][j], w[j]);
            ht_few_add<R, N>(w, x, chunk, column, lane, sum);
        }
}

/* Rows of x from `x` on, n_x of them, times N rows of the matrix that these eight threads have: `row`, and others that many rows of a
 * block apart. */
template <class F, int R, int N>
static __device__ __forceinline__ void ht_few(const ht_cuda_weights &m, const float *x, int64_t ldx, int n_x,
                                              bool aligned, int chunk, int64_t row, float *shared, float (*sum)[R]) {
    const int lane = threadIdx.x & 7;
    const int64_t span = F::CYCLES * HT_CUDA_CYCLE;
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
        const int64_t of_form = F::LOADED ? m.whole : 0, whole = of_form < first + n ? of_form : first + n;
        int64_t i = first / span;
        for (; (i + F::DEPTH) * span <= whole; i += F::DEPTH)
            ht_few_cycles<F, R, N, F::DEPTH>(weights, i, first, shared, chunk, lane, sum);
        for (; (i + 1) * span <= whole; i++) ht_few_cycles<F, R, N, 1>(weights, i, first, shared, chunk, lane, sum);
        for (int64_t c = i * span; c < first + n; c += HT_CUDA_CYCLE) {
            if (c + lane * HT_CUDA_PART >= m.k) break;
            float w[N][8];
#pragma unroll
            for (int j = 0; j < N; j++) {
                const int64_t mine = row + j * HT_CUDA_FEW_ROWS;
                F::part(m, weights[j], mine < m.n_rows ? mine : m.n_rows - 1, c / HT_CUDA_PART + lane, w[j]);
            }
            ht_few_add<R, N>(w, shared, chunk, (int)(c - first), lane, sum);
        }
    }
#pragma unroll
    for (int j = 0; j < N; j++)
#pragma unroll
        for (int r = 0; r < R; r++) sum[j][r] = ht_lane_sum(sum[j][r]);
}

template <class F, int R, int N>
static __device__ __forceinline__ void ht_few_linear(const ht_cuda_linear_arguments &a) {
    HT_CUDA_SHARED(float, shared);
    const int64_t row = (int64_t)blockIdx.x * HT_CUDA_FEW_ROWS * N + threadIdx.x / HT_CUDA_LANES;
    const int64_t first = (int64_t)blockIdx.y * R;
    const int n_x = a.n - first < R ? (int)(a.n - first) : R, lane = threadIdx.x & 7;
    float sum[N][R];
    ht_few<F, R, N>(a.w, a.x + first * a.ldx, a.ldx, n_x, a.x_aligned, a.chunk, row, shared, sum);
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

static __device__ __forceinline__ ht_cuda_expert ht_expert_of(const ht_cuda_expert *table, const ht_cuda_expert *entry,
                                                              int e) {
    return table ? table[e] : entry[e];
}

static __device__ __forceinline__ int64_t ht_id_of(const int32_t *ids, const int64_t *stride, int per_row,
                                                   int64_t pair) {
    return ids[pair / per_row * stride[0] + pair % per_row * stride[1]];
}

/* One pair per block of the grid's second axis. */
template <class F> static __device__ __forceinline__ void ht_few_gather(const ht_cuda_gather_arguments &a) {
    HT_CUDA_SHARED(float, shared);
    const int64_t row = (int64_t)blockIdx.x * HT_CUDA_FEW_ROWS + threadIdx.x / HT_CUDA_LANES;
    for (int64_t pair = blockIdx.y; pair < a.l.n; pair += gridDim.y) {
        const int64_t id = ht_id_of(a.ids, a.id_stride, a.per_row, pair);
        if (id < 0 || id >= a.n_experts) {
            if (blockIdx.x == 0 && threadIdx.x == 0) ht_report_index(a.report, pair, id, 0, a.n_experts, 0);
            continue;
        }
        const ht_cuda_expert expert = ht_expert_of(a.table, a.entry, (int)id);
        if (!expert.packed) continue;
        ht_cuda_weights m = a.l.w;
        m.packed = expert.packed;
        m.scales = expert.scales;
        float sum[1][1];
        __syncthreads();
        ht_few<F, 1, 1>(m, a.l.x + pair / a.x_share * a.l.ldx, a.l.ldx, 1, a.l.x_aligned, a.l.chunk, row, shared, sum);
        if (row < m.n_rows && (threadIdx.x & 7) == 0) a.l.y[pair * a.l.ldy + row] = sum[0][0];
    }
}

#define X(form)                                                                                                        \
    HT_CUDA_KERNEL(ht_cuda_few_##form##_1, ht_cuda_linear_arguments) {                                                 \
        ht_few_linear<ht_form_##form, 1, HT_CUDA_FEW_ROWS_1>(a);                                                       \
    }                                                                                                                  \
    HT_CUDA_KERNEL(ht_cuda_few_##form##_2, ht_cuda_linear_arguments) {                                                 \
        ht_few_linear<ht_form_##form, 2, HT_CUDA_FEW_ROWS_2>(a);                                                       \
    }                                                                                                                  \
    HT_CUDA_KERNEL(ht_cuda_few_##form##_4, ht_cuda_linear_arguments) {                                                 \
        ht_few_linear<ht_form_##form, 4, HT_CUDA_FEW_ROWS_4>(a);                                                       \
    }                                                                                                                  \
    HT_CUDA_KERNEL(ht_cuda_few_##form##_8, ht_cuda_linear_arguments) {                                                 \
        ht_few_linear<ht_form_##form, 8, HT_CUDA_FEW_ROWS_8>(a);                                                       \
    }                                                                                                                  \
    HT_CUDA_KERNEL(ht_cuda_gather_##form, ht_cuda_gather_arguments) { ht_few_gather<ht_form_##form>(a); }
HT_CUDA_PLAIN_FORMS(X)
#undef X

/* ---- many rows of x ----
 *
 * A block has a tile of y, and shares parts of x and of the matrix, as floats, cycle by cycle. Eight threads, which share the columns of
 * a cycle as the eight of few rows do, have 8 x 8 outputs; a warp has 16 x 16 of them. */

enum { MANY_THREADS = 256 };

/* Row i of the tile's rows of x and y: -1 where there is none. */
typedef struct ht_many_rows {
    const int32_t *order; /* NULL: rows first, first + 1, ... */
    int64_t first;
    int n, x_share;
} ht_many_rows;

static __device__ __forceinline__ int64_t ht_many_row(const ht_many_rows &t, int i) {
    return t.order ? t.order[t.first + i] : t.first + i;
}

template <class F>
static __device__ __forceinline__ void ht_many(const ht_cuda_linear_arguments &a, const ht_cuda_weights &m,
                                               const ht_many_rows &t, int64_t first_row) {
    __shared__ __align__(16) float xs[HT_CUDA_TILE_X * HT_CUDA_CYCLE];
    __shared__ __align__(16) float ws[HT_CUDA_TILE_W * HT_CUDA_CYCLE];
    const int thread = threadIdx.x, lane = thread & 7, quarter = thread >> 3 & 3, warp = thread >> 5;
    const int x0 = (warp & 1) * 16 + (quarter & 1) * 8, w0 = (warp >> 1) * 16 + (quarter >> 1) * 8;
    float sum[8][8];
#pragma unroll
    for (int i = 0; i < 8; i++)
#pragma unroll
        for (int j = 0; j < 8; j++) sum[i][j] = 0;

    const int from = thread / 8; /* a row of each that this thread loads a part of */
    const float *x = from < t.n ? a.x + ht_many_row(t, from) / t.x_share * a.ldx : NULL;
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
            if (row < m.n_rows && column < m.k) F::part(m, ht_row_of(m, row), row, column / HT_CUDA_PART, w);
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
        const int64_t y = x0 + i < t.n ? ht_many_row(t, x0 + i) : 0;
#pragma unroll
        for (int j = 0; j < 8; j++) {
            const float s = ht_lane_sum(sum[i][j]);
            const int64_t row = first_row + w0 + j;
            if (lane == j && x0 + i < t.n && row < m.n_rows) a.y[y * a.ldy + row] = a.bias ? s + a.bias[row] : s;
        }
    }
}

/* Tiles of x are neighbours in the grid, so that they find the weights of a tile of the matrix in the cache. */
template <class F> static __device__ __forceinline__ void ht_many_linear(const ht_cuda_linear_arguments &a) {
    const int64_t tiles = (a.n + HT_CUDA_TILE_X - 1) / HT_CUDA_TILE_X, first = blockIdx.x % tiles * HT_CUDA_TILE_X;
    const int n = a.n - first < HT_CUDA_TILE_X ? (int)(a.n - first) : HT_CUDA_TILE_X;
    const ht_many_rows t = {NULL, first, n, 1};
    ht_many<F>(a, a.w, t, blockIdx.x / tiles * HT_CUDA_TILE_W);
}

template <class F> static __device__ __forceinline__ void ht_many_gather(const ht_cuda_gather_arguments &a) {
    const ht_cuda_expert_tile tile = a.tiles[blockIdx.y];
    if (tile.n == 0) return;
    const ht_cuda_expert expert = ht_expert_of(a.table, a.entry, tile.expert);
    if (!expert.packed) return;
    ht_cuda_weights m = a.l.w;
    m.packed = expert.packed;
    m.scales = expert.scales;
    const ht_many_rows t = {a.order, tile.begin, tile.n, a.x_share};
    ht_many<F>(a.l, m, t, (int64_t)blockIdx.x * HT_CUDA_TILE_W);
}

#define X(form)                                                                                                        \
    HT_CUDA_KERNEL_BOUND(ht_cuda_many_##form, ht_cuda_linear_arguments, MANY_THREADS, 2) {                             \
        ht_many_linear<ht_form_##form>(a);                                                                             \
    }                                                                                                                  \
    HT_CUDA_KERNEL_BOUND(ht_cuda_many_gather_##form, ht_cuda_gather_arguments, MANY_THREADS, 2) {                      \
        ht_many_gather<ht_form_##form>(a);                                                                             \
    }
HT_CUDA_PLAIN_FORMS(X)
#undef X

/* ---- gradients: dy W ----
 *
 * A block has a tile of dx, a warp four of its rows, and a thread four columns; it goes through the rows of the matrix. */

enum { BACK_THREADS = 256, BACK_STEP = 32 }; /* rows of the matrix at a time */

/* Row i of the tile begins at dy + dy_row(i). */
typedef struct ht_back_rows {
    const int32_t *order; /* NULL: rows first, first + 1, ... */
    int64_t first, stride[2];
    int n, per_row;
} ht_back_rows;

static __device__ __forceinline__ int64_t ht_back_row(const ht_back_rows &t, int i) {
    return t.order ? t.order[t.first + i] : t.first + i;
}

static __device__ void ht_back(const ht_cuda_back_arguments &a, const ht_cuda_weights &m, const ht_back_rows &t,
                               int64_t first_column) {
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
            sum[i][j] = there ? a.dx[ht_back_row(t, at) * a.ldx + column + j] : 0.0f;
        }
    for (int64_t first = 0; first < m.n_rows; first += BACK_STEP) {
        if (first) __syncthreads();
        for (int i = thread; i < BACK_STEP * HT_CUDA_BACK_ROWS; i += BACK_THREADS) {
            const int r = i & 31, at = i >> 5; /* neighbours in a row of dy */
            float v = 0;
            if (at < t.n && first + r < m.n_rows) {
                const int64_t row = ht_back_row(t, at);
                v = a.dy[row / t.per_row * t.stride[0] + row % t.per_row * t.stride[1] + (first + r) * a.dy_step];
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
            if (at < t.n && column + j < m.k) a.dx[ht_back_row(t, at) * a.ldx + column + j] = sum[i][j];
        }
}

HT_CUDA_KERNEL(ht_cuda_back, ht_cuda_back_arguments) {
    const int64_t tiles = (a.n + HT_CUDA_BACK_ROWS - 1) / HT_CUDA_BACK_ROWS;
    const int64_t first = blockIdx.x % tiles * HT_CUDA_BACK_ROWS;
    const int n = a.n - first < HT_CUDA_BACK_ROWS ? (int)(a.n - first) : HT_CUDA_BACK_ROWS;
    const ht_back_rows t = {NULL, first, {a.ldy, 0}, n, 1};
    ht_back(a, a.w, t, blockIdx.x / tiles * HT_CUDA_BACK_COLUMNS);
}

HT_CUDA_KERNEL(ht_cuda_back_gather, ht_cuda_back_gather_arguments) {
    const ht_cuda_expert_tile tile = a.tiles[blockIdx.y];
    if (tile.n == 0) return;
    const ht_cuda_expert expert = ht_expert_of(a.table, a.entry, tile.expert);
    if (!expert.packed) return;
    ht_cuda_weights m = a.b.w;
    m.packed = expert.packed;
    m.scales = expert.scales;
    const ht_back_rows t = {a.order, tile.begin, {a.dy_stride[0], a.dy_stride[1]}, tile.n, a.per_row};
    ht_back(a.b, m, t, (int64_t)blockIdx.x * HT_CUDA_BACK_COLUMNS);
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

/* ---- experts ---- */

/* Sums over the threads before this one, and over all of them. */
static __device__ __forceinline__ int ht_sum_before(int mine, int *of_warp, int *all) {
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, warps = (int)blockDim.x / 32;
    int sum = mine;
    for (int by = 1; by < 32; by *= 2) {
        const int other = __shfl_sync(0xffffffffu, sum, lane < by ? lane : lane - by);
        if (lane >= by) sum += other;
    }
    if (lane == 31) of_warp[warp] = sum;
    __syncthreads();
    int before = 0, total = 0;
    for (int w = 0; w < warps; w++) {
        if (w < warp) before += of_warp[w];
        total += of_warp[w];
    }
    __syncthreads();
    *all = total;
    return before + sum - mine;
}

/* One block, in which a thread has an expert at a time. `next` counts the pairs of each, then says where the next of them goes. */
HT_CUDA_KERNEL(ht_cuda_sort_experts, ht_cuda_sort_experts_arguments) {
    enum { NEAR = 1024 };
    __shared__ int of_warp[32], near[NEAR];
    int *next = a.n_experts <= NEAR ? near : a.next;
    for (int e = threadIdx.x; e < a.n_experts; e += blockDim.x) next[e] = 0;
    for (int64_t i = threadIdx.x; i < a.n_tiles; i += blockDim.x) a.tiles[i] = ht_cuda_expert_tile{0, 0, 0, 0};
    for (int64_t i = threadIdx.x; i < a.n_places; i += blockDim.x) a.order[i] = -1;
    __syncthreads();
    for (int64_t i = threadIdx.x; i < a.pairs; i += blockDim.x) {
        const int64_t id = ht_id_of(a.ids, a.id_stride, a.per_row, i);
        if (id < 0 || id >= a.n_experts)
            ht_report_index(a.report, i, id, 0, a.n_experts, 0);
        else
            atomicAdd(&next[id], 1);
    }
    __syncthreads();
    int place = 0, tile = 0; /* of the first of the next blockDim.x experts */
    for (int first = 0; first < a.n_experts; first += (int)blockDim.x) {
        const int e = first + (int)threadIdx.x, n = e < a.n_experts ? next[e] : 0;
        int places, tiles;
        const int begin = place + ht_sum_before((n + 7) / 8 * 8, of_warp, &places);
        int at = tile + ht_sum_before((n + a.per_tile - 1) / a.per_tile, of_warp, &tiles);
        if (e < a.n_experts) {
            next[e] = begin;
            a.tile_begin[e] = at;
            for (int i = 0; i < n; i += a.per_tile) {
                const ht_cuda_expert_tile t = {e, begin + i, n - i < a.per_tile ? n - i : a.per_tile, 0};
                a.tiles[at++] = t;
            }
        }
        place += places, tile += tiles;
    }
    if (threadIdx.x == 0) a.tile_begin[a.n_experts] = tile;
    __syncthreads();
    for (int64_t i = threadIdx.x; i < a.pairs; i += blockDim.x) {
        const int64_t id = ht_id_of(a.ids, a.id_stride, a.per_row, i);
        if (id >= 0 && id < a.n_experts) a.order[atomicAdd(&next[id], 1)] = (int32_t)i;
    }
}

/* ---- losses of a head ---- */

static __device__ __forceinline__ float ht_capped(const ht_cuda_loss_arguments &a, float logit) {
    const float x = logit * a.scale;
    return a.softcap > 0 ? a.softcap * ht_tanh_f32(x * (1 / a.softcap)) : x;
}

static __device__ __forceinline__ int64_t ht_target_of(const ht_cuda_loss_arguments &a, int64_t i) {
    return a.targets[i * a.target_stride];
}

HT_CUDA_KERNEL(ht_cuda_loss_begin, ht_cuda_loss_arguments) {
    for (int64_t i = ht_first(); i < a.t; i += ht_step()) {
        const ht_cuda_loss_state s = {0, -INFINITY, 0};
        if (a.state) a.state[i] = s;
        if (ht_target_of(a, i) >= a.vocab) ht_report_index(a.report, i, ht_target_of(a, i), 0, a.vocab, 0);
    }
}

/* A block of 256 threads per row: the slab's largest logit and the sum of its powers join the row's state. */
HT_CUDA_KERNEL(ht_cuda_loss_sums, ht_cuda_loss_arguments) {
    __shared__ float of_thread[256];
    const int64_t i = blockIdx.x, target = ht_target_of(a, i) - a.row;
    if (ht_target_of(a, i) < 0) return;
    float *logits = a.logits + i * a.slab;
    float most = -INFINITY, sum = 0;
    for (int64_t c = threadIdx.x; c < a.n; c += 256) {
        const float x = ht_capped(a, logits[c]);
        logits[c] = x;
        if (c == target) a.state[i].picked = x;
        if (x > most || isnan(x)) most = x;
    }
    of_thread[threadIdx.x] = most;
    __syncthreads();
    for (int by = 128; by; by /= 2) {
        const float other = threadIdx.x < by ? of_thread[threadIdx.x + by] : 0.0f;
        if (threadIdx.x < by && (other > of_thread[threadIdx.x] || isnan(other))) of_thread[threadIdx.x] = other;
        __syncthreads();
    }
    const float before = a.state[i].max, of_slab = of_thread[0], max = before > of_slab ? before : of_slab;
    __syncthreads();
    for (int64_t c = threadIdx.x; c < a.n; c += 256) sum += ht_exp_f32(logits[c] - max);
    of_thread[threadIdx.x] = sum;
    __syncthreads();
    for (int by = 128; by; by /= 2) {
        if (threadIdx.x < by) of_thread[threadIdx.x] += of_thread[threadIdx.x + by];
        __syncthreads();
    }
    if (threadIdx.x) return;
    a.state[i].sum = a.state[i].sum * exp((double)before - (double)max) + (double)of_thread[0];
    a.state[i].max = max;
}

HT_CUDA_KERNEL(ht_cuda_loss_end, ht_cuda_loss_arguments) {
    for (int64_t i = ht_first(); i < a.t; i += ht_step()) {
        const bool asked = ht_target_of(a, i) >= 0;
        const double lse = (double)a.state[i].max + log(a.state[i].sum);
        a.out[i] = asked ? (float)(lse - (double)a.state[i].picked) : 0.0f;
        a.out[a.t + i] = asked ? (float)lse : 0.0f;
    }
}

/* Logits of the slab become gradients of the products; 0 in rows without a target. */
HT_CUDA_KERNEL(ht_cuda_loss_gradients, ht_cuda_loss_arguments) {
    const int64_t i = blockIdx.x, target = ht_target_of(a, i);
    float *logits = a.logits + i * a.slab;
    const float lse = a.lse[i * a.lse_stride], factor = a.factor[i * a.factor_stride] * a.scale;
    for (int64_t c = threadIdx.x; c < a.n; c += blockDim.x) {
        const float x = ht_capped(a, logits[c]);
        float p = ht_exp_f32(x - lse);
        if (c == target - a.row) p -= 1.0f;
        float g = p * factor;
        if (a.softcap > 0) {
            const float y = x * (1 / a.softcap);
            g *= fmaf(-y, y, 1.0f);
        }
        logits[c] = target < 0 ? 0.0f : g;
    }
}
