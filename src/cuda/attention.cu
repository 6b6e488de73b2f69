/* Attention of arrays, in tiles of queries and keys in shared memory: scores are products of two tiles, results
 * products of a weight tile and a vector tile. Softmax runs over key tiles from the start of the query's sequence, so a
 * query's bits do not depend on the rest of the batch. Global memory receives only the results and, for a gradient,
 * three numbers per query.
 *
 * In SDPA a hidden key scores the lowest finite number, which counts only if all keys are hidden. In flat rows a query
 * has only the keys of its sequence. */
#include "cuda/attention.h"
#include "cuda/tensor.cuh"
#include "cuda/window.cuh"

enum { SIDE = HT_CUDA_ATTENTION_SIDE, THREADS = SIDE * SIDE, DEPTH = 16, WIDE = HT_CUDA_ATTENTION_WIDE };

template <typename T> struct tiling {
    enum { N = HT_CUDA_ATTENTION_TILE_F32 };
};
template <> struct tiling<double> {
    enum { N = HT_CUDA_ATTENTION_TILE_F64 };
};

/* Elements of one vector load. */
template <typename T, int N> struct alignas(sizeof(T) * N < 16 ? sizeof(T) * N : 16) numbers { T x[N]; };

template <typename T> struct tiles {
    enum { N = tiling<T>::N, M = N / SIDE, STRIDE = N + 4 }; /* a thread has M x M elements of a tile */
    struct factors {
        T a[DEPTH][STRIDE], b[DEPTH][STRIDE];
    };
    union alignas(16) {
        factors of;           /* DEPTH dimensions of two tiles of vectors */
        T x[DEPTH][WIDE + 4]; /* DEPTH vectors */
    };
    alignas(16) T weights[N][STRIDE]; /* of the vectors, for each row of the result */
    int64_t begin[N], end[N];         /* keys of each query of the tile */
    int64_t base[N];                  /* first key of its sequence */
};

/* ---- elements ---- */

/* One head of a view. */
struct vectors {
    const void *data;
    ht_dtype dtype;
    int64_t at, n, dims, row, dim; /* first element, vectors, dimensions, strides */
};

static __device__ vectors head_of(const ht_cuda_view &v, int64_t b, int64_t h) {
    return {v.data, v.dtype, b * v.stride[0] + h * v.stride[1], v.shape[2], v.shape[3], v.stride[2], v.stride[3]};
}

static __device__ float get(const vectors &v, int64_t i, float) {
    return v.dtype == HT_F16 ? ht_half_value(((const uint16_t *)v.data)[i]) : ht_get_f32(v.dtype, v.data, i);
}
static __device__ double get(const vectors &v, int64_t i, double) { return ht_get_f64(v.dtype, v.data, i); }

/* Dimension d of vector i; 0 outside. */
template <typename T> static __device__ T element(const vectors &v, int64_t i, int64_t d) {
    return i < v.n && d < v.dims ? get(v, v.at + i * v.row + d * v.dim, T()) : T(0);
}

static __device__ void put(const vectors &v, int64_t i, int64_t d, float x) {
    if (i < v.n && d < v.dims) ht_set_f32(v.dtype, (void *)v.data, v.at + i * v.row + d * v.dim, x);
}
static __device__ void put(const vectors &v, int64_t i, int64_t d, double x) {
    if (i < v.n && d < v.dims) ht_set_f64(v.dtype, (void *)v.data, v.at + i * v.row + d * v.dim, x);
}

/* e^x of x <= 0 */
static __device__ float exp_of(float x) { return ht_exp_of_negative(x); }
static __device__ double exp_of(double x) { return exp(x); }
static __device__ float tanh_of(float x) { return ht_tanh_f32(x); }
static __device__ double tanh_of(double x) { return tanh(x); }

static __device__ int column(void) { return (int)threadIdx.x % SIDE; }
static __device__ int row(void) { return (int)threadIdx.x / SIDE; }

/* ---- products of tiles ---- */

/* DEPTH dimensions, from `dim` on, of the N vectors from `first` on. */
template <typename T, int N, int STRIDE>
static __device__ void load_factor(T (*to)[STRIDE], const vectors &v, int64_t first, int64_t dim) {
    for (int at = (int)threadIdx.x; at < N * DEPTH; at += THREADS)
        to[at % DEPTH][at / DEPTH] = element<T>(v, first + at / DEPTH, dim + at % DEPTH);
}

/* c[i][j] is the product of a's vector first_a + row() M + i and b's first_b + column() M + j. */
template <typename T>
static __device__ void dot_products(tiles<T> &s, const vectors &a, int64_t first_a, const vectors &b, int64_t first_b,
                                    T (*c)[tiles<T>::M]) {
    enum { M = tiles<T>::M, N = tiles<T>::N, STRIDE = tiles<T>::STRIDE };
#pragma unroll
    for (int i = 0; i < M; i++)
#pragma unroll
        for (int j = 0; j < M; j++) c[i][j] = T(0);
    for (int64_t dim = 0; dim < a.dims; dim += DEPTH) {
        __syncthreads();
        load_factor<T, N, STRIDE>(s.of.a, a, first_a, dim);
        load_factor<T, N, STRIDE>(s.of.b, b, first_b, dim);
        __syncthreads();
#pragma unroll
        for (int d = 0; d < DEPTH; d++) {
            const numbers<T, M> x = *(const numbers<T, M> *)&s.of.a[d][row() * M];
            const numbers<T, M> y = *(const numbers<T, M> *)&s.of.b[d][column() * M];
#pragma unroll
            for (int i = 0; i < M; i++)
#pragma unroll
                for (int j = 0; j < M; j++) c[i][j] = fma(x.x[i], y.x[j], c[i][j]);
        }
    }
}

/* Sums of a thread: rows row() M + i, dimensions column() 4 + j, and four more, 64 further on. */
template <typename T> struct sums {
    enum { M = tiles<T>::M };
    T x[M][8];
};

/* Adds the tile's weights times WIDE dimensions, from `dim` on, of the N vectors from `first` on. */
template <typename T>
static __device__ void add_weighed(tiles<T> &s, const vectors &v, int64_t first, int64_t dim, sums<T> &to) {
    enum { M = tiles<T>::M, N = tiles<T>::N };
    for (int from = 0; from < N; from += DEPTH) {
        __syncthreads();
        for (int at = (int)threadIdx.x; at < DEPTH * WIDE; at += THREADS)
            s.x[at / WIDE][at % WIDE] = element<T>(v, first + from + at / WIDE, dim + at % WIDE);
        __syncthreads();
#pragma unroll
        for (int k = 0; k < DEPTH; k++) {
            const numbers<T, M> w = *(const numbers<T, M> *)&s.weights[from + k][row() * M];
            const numbers<T, 4> low = *(const numbers<T, 4> *)&s.x[k][column() * 4];
            const numbers<T, 4> high = *(const numbers<T, 4> *)&s.x[k][WIDE / 2 + column() * 4];
#pragma unroll
            for (int i = 0; i < M; i++)
#pragma unroll
                for (int j = 0; j < 4; j++) {
                    to.x[i][j] = fma(w.x[i], low.x[j], to.x[i][j]);
                    to.x[i][4 + j] = fma(w.x[i], high.x[j], to.x[i][4 + j]);
                }
        }
    }
}

template <typename T>
static __device__ void put_sums(const vectors &v, int64_t first, int64_t dim, const sums<T> &from) {
    enum { M = tiles<T>::M };
#pragma unroll
    for (int i = 0; i < M; i++)
#pragma unroll
        for (int j = 0; j < 8; j++)
            put(v, first + row() * M + i, dim + j / 4 * (WIDE / 2) + column() * 4 + j % 4, from.x[i][j]);
}

/* ---- which keys ---- */

struct range {
    int64_t begin, end, base;
};

static __device__ range of_flat_row(const ht_cuda_attention_arguments &a, int64_t i, bool reports) {
    const int32_t *owns = (const int32_t *)a.own.data, *firsts = (const int32_t *)a.first.data;
    const int64_t own = owns[i * a.own.stride[0]], first = firsts[i * a.first.stride[0]], n = a.k.shape[2];
    const bool begins = i == 0 || first != firsts[(i - 1) * a.first.stride[0]];
    if (first < 0 || own < first || own >= n || (!begins && own < owns[(i - 1) * a.own.stride[0]])) {
        if (reports) ht_report(a.report, HT_CUDA_ROWS, i, own, 0, n, first);
        return {0, 0, 0};
    }
    if (!a.two_sided) return {first + ht_first_visible(a.window, a.chunked, own - first), own + 1, first};
    const int64_t oldest = a.window > 0 ? i - a.window : first;
    return {oldest > first ? oldest : first, own + 1, first};
}

static __device__ range of_query(const ht_cuda_attention_arguments &a, int64_t i) {
    const int64_t n = a.k.shape[2], end = i + n - a.q.shape[2] + 1, far = end - a.window;
    if (!a.causal) return {0, n, 0};
    return {a.window > 0 && far > 0 ? far : 0, end < 0 ? 0 : end, 0};
}

/* Key ranges of the tile's queries from `first` on; empty past the last query. */
template <typename T>
static __device__ void load_ranges(const ht_cuda_attention_arguments &a, tiles<T> &s, int64_t first, bool reports) {
    enum { N = tiles<T>::N };
    __syncthreads();
    if (threadIdx.x < N) {
        const int64_t i = first + threadIdx.x;
        range r = {0, 0, -1};
        if (i < a.q.shape[2]) r = a.flat_rows ? of_flat_row(a, i, reports) : of_query(a, i);
        s.begin[threadIdx.x] = r.begin;
        s.end[threadIdx.x] = r.end;
        s.base[threadIdx.x] = r.base;
    }
    __syncthreads();
}

/* Queries [first, last) of the tile, all of one sequence, and the keys that any of them sees. */
struct run {
    int first, last;
    int64_t base, begin, end;
};

template <typename T> static __device__ run next_run(const tiles<T> &s, int first) {
    enum { N = tiles<T>::N };
    run r = {first, first, s.base[first], INT64_MAX, 0};
    for (; r.last < N && s.base[r.last] == r.base; r.last++) {
        if (s.begin[r.last] >= s.end[r.last]) continue;
        if (s.begin[r.last] < r.begin) r.begin = s.begin[r.last];
        if (s.end[r.last] > r.end) r.end = s.end[r.last];
    }
    if (r.begin < r.end) r.begin = r.base + (r.begin - r.base) / N * N; /* where a tile of keys begins */
    return r;
}

/* ---- scores ---- */

template <typename T> struct score {
    T x;     /* -infinity: the query has no such key */
    T slope; /* derivative with respect to the product of query and key */
    bool hidden;
};

/* Score of key j for query i of head h. */
template <typename T>
static __device__ score<T> score_of(const ht_cuda_attention_arguments &a, int64_t b, int64_t h, int64_t i, int64_t j,
                                    int64_t begin, int64_t end, T dot) {
    score<T> out = {-(T)INFINITY, T(0), true};
    if (i >= a.q.shape[2] || j >= a.k.shape[2]) return out;
    const bool outside = j < begin || j >= end;
    if (outside && a.flat_rows) return out;
    const bool masked = a.mask.n_dims > 0;
    const int64_t at =
        masked ? b * a.mask.stride[0] + h * a.mask.stride[1] + i * a.mask.stride[2] + j * a.mask.stride[3] : 0;
    const bool is_bool = masked && a.mask.dtype == HT_BOOL;
    out.x = -(T)FLT_MAX;
    if (outside || (is_bool && ((const uint8_t *)a.mask.data)[at] == 0)) return out;
    out.hidden = false;
    out.slope = (T)a.scale;
    out.x = dot * (T)a.scale;
    if (a.softcap > 0.0f) {
        const T cap = (T)a.softcap, t = tanh_of(out.x / cap);
        out.slope *= T(1) - t * t;
        out.x = cap * t;
    }
    if (masked && !is_bool) out.x += get({a.mask.data, a.mask.dtype, 0, 0, 0, 0, 0}, at, T());
    return out;
}

/* The maximum, and the sum, over the SIDE threads that share a row. */
template <typename T> static __device__ T row_max(T x) {
    for (int step = SIDE / 2; step > 0; step /= 2) x = fmax(x, __shfl_xor_sync(0xffffffffu, x, step));
    return x;
}
template <typename T> static __device__ T row_sum(T x) {
    for (int step = SIDE / 2; step > 0; step /= 2) x += __shfl_xor_sync(0xffffffffu, x, step);
    return x;
}

template <typename T> static __device__ T finite_or_0(T max) { return max == -(T)INFINITY ? T(0) : max; }

/* ---- softmax over tiles of keys ---- */

/* A block's tile of one head. */
struct place {
    int64_t b, h, first;
};

template <typename T> static __device__ place place_of(const ht_cuda_view &v) {
    const int64_t n = (v.shape[2] + tiles<T>::N - 1) / tiles<T>::N, head = blockIdx.x / n;
    return {head / v.shape[1], head % v.shape[1], blockIdx.x % n * tiles<T>::N};
}

template <typename T> struct running {
    enum { M = tiles<T>::M };
    T max[M], sum[M];
    sums<T> out;
};

/* Processes one tile of keys for the queries of a run; if WEIGHS, also their values. */
template <typename T, bool WEIGHS>
static __device__ void soften(const ht_cuda_attention_arguments &a, tiles<T> &s, const place &at, const run &r,
                              int64_t key, running<T> &to) {
    enum { M = tiles<T>::M };
    const int64_t kv = at.h / (a.q.shape[1] / a.k.shape[1]);
    T c[M][M];
    dot_products(s, head_of(a.q, at.b, at.h), at.first, head_of(a.k, at.b, kv), key, c);
    __syncthreads(); /* all threads have read the earlier weights */
#pragma unroll
    for (int i = 0; i < M; i++) {
        const int of = row() * M + i;
        T max = to.max[i], sum = T(0);
#pragma unroll
        for (int j = 0; j < M; j++) {
            const score<T> x =
                score_of(a, at.b, at.h, at.first + of, key + column() * M + j, s.begin[of], s.end[of], c[i][j]);
            c[i][j] = of >= r.first && of < r.last ? x.x : -(T)INFINITY;
            max = fmax(max, c[i][j]);
        }
        max = row_max(max);
        const T base = finite_or_0(max), shrink = exp_of(to.max[i] - base);
#pragma unroll
        for (int j = 0; j < M; j++) {
            c[i][j] = exp_of(c[i][j] - base);
            sum += c[i][j];
            if (WEIGHS) s.weights[column() * M + j][of] = c[i][j];
        }
        to.sum[i] = to.sum[i] * shrink + row_sum(sum);
        to.max[i] = max;
        if (WEIGHS)
#pragma unroll
            for (int j = 0; j < 8; j++) to.out.x[i][j] *= shrink;
    }
    if (WEIGHS) add_weighed(s, head_of(a.v, at.b, kv), key, (int64_t)blockIdx.y * WIDE, to.out);
}

/* Whether any query of the tile sees no key at all, so that all hidden keys count. */
template <typename T>
static __device__ bool sees_none(const ht_cuda_attention_arguments &a, const place &at, const running<T> &of) {
    enum { M = tiles<T>::M };
    bool any = false;
    for (int i = 0; i < M; i++) any = any || (at.first + row() * M + i < a.q.shape[2] && of.max[i] <= -(T)FLT_MAX);
    return __syncthreads_or(any);
}

template <typename T, bool WEIGHS>
static __device__ void soften_all(const ht_cuda_attention_arguments &a, tiles<T> &s, const place &at, running<T> &to) {
    enum { M = tiles<T>::M, N = tiles<T>::N };
    const bool sinks = a.sinks.n_dims > 0;
    const T sink =
        sinks ? get({a.sinks.data, a.sinks.dtype, 0, 0, 0, 0, 0}, at.h * a.sinks.stride[0], T()) : -(T)INFINITY;
    for (int i = 0; i < M; i++) {
        to.max[i] = sink;
        to.sum[i] = sinks ? T(1) : T(0);
        for (int j = 0; j < 8; j++) to.out.x[i][j] = T(0);
    }
    load_ranges(a, s, at.first, at.b == 0 && at.h == 0 && blockIdx.y == 0);
    run r = {};
    for (int first = 0; first < N; first = r.last) {
        r = next_run(s, first);
        if (r.base < 0) break; /* past the last query */
        for (int64_t key = r.begin; key < r.end; key += N) soften<T, WEIGHS>(a, s, at, r, key, to);
        if (a.flat_rows || !sees_none(a, at, to)) continue;
        for (int64_t key = 0; key < a.k.shape[2]; key += N)
            if (key < r.begin || key >= r.end) soften<T, WEIGHS>(a, s, at, r, key, to);
    }
}

template <typename T> static __device__ void attend(const ht_cuda_attention_arguments &a) {
    enum { M = tiles<T>::M };
    __shared__ tiles<T> s;
    const place at = place_of<T>(a.q);
    running<T> state;
    soften_all<T, true>(a, s, at, state);
#pragma unroll
    for (int i = 0; i < M; i++)
#pragma unroll
        for (int j = 0; j < 8; j++) state.out.x[i][j] /= state.sum[i];
    put_sums(head_of(a.out, at.b, at.h), at.first, (int64_t)blockIdx.y * WIDE, state.out);
}

/* ---- gradient ---- */

template <typename T>
static __device__ T *stats_of(const ht_cuda_attention_arguments &a, int64_t b, int64_t h, int64_t i) {
    return (T *)a.stats + ((b * a.q.shape[1] + h) * a.q.shape[2] + i) * HT_CUDA_ATTENTION_STATS;
}

/* Largest score and inverse sum of each query, and sum(weight * gradient), which is dot(gradient, result). */
template <typename T> static __device__ void find_softmax(const ht_cuda_attention_arguments &a) {
    enum { M = tiles<T>::M };
    __shared__ tiles<T> s;
    const place at = place_of<T>(a.q);
    running<T> state;
    soften_all<T, false>(a, s, at, state);
    const vectors result = head_of(a.result, at.b, at.h), grad = head_of(a.grad, at.b, at.h);
#pragma unroll
    for (int i = 0; i < M; i++) {
        const int64_t query = at.first + row() * M + i;
        T mean = T(0);
        for (int64_t d = column(); d < grad.dims; d += SIDE)
            mean = fma(element<T>(grad, query, d), element<T>(result, query, d), mean);
        mean = row_sum(mean);
        if (column() > 0 || query >= a.q.shape[2]) continue;
        T *to = stats_of<T>(a, at.b, at.h, query);
        to[0] = finite_or_0(state.max[i]);
        to[1] = T(1) / state.sum[i];
        to[2] = mean;
    }
}

/* Operand whose gradient is computed. */
enum side { OF_Q, OF_K, OF_V };

/* The weight of key j for query i, or the gradient of their product. `change` is the gradient of the weight. */
template <typename T, side OF>
static __device__ T back(const ht_cuda_attention_arguments &a, int64_t b, int64_t h, int64_t i, int64_t j,
                         int64_t begin, int64_t end, T dot, T change) {
    if (i >= a.q.shape[2] || j >= a.k.shape[2]) return T(0);
    const score<T> x = score_of(a, b, h, i, j, begin, end, dot);
    const T *of = stats_of<T>(a, b, h, i);
    const T weight = exp_of(x.x - of[0]) * of[1];
    if (OF == OF_V) return weight;
    return x.hidden ? T(0) : weight * (change - of[2]) * x.slope;
}

template <typename T> static __device__ void grad_of_queries(const ht_cuda_attention_arguments &a) {
    enum { M = tiles<T>::M, N = tiles<T>::N };
    __shared__ tiles<T> s;
    const place at = place_of<T>(a.q);
    const int64_t kv = at.h / (a.q.shape[1] / a.k.shape[1]), dim = (int64_t)blockIdx.y * WIDE;
    const vectors q = head_of(a.q, at.b, at.h), k = head_of(a.k, at.b, kv), v = head_of(a.v, at.b, kv);
    const vectors grad = head_of(a.grad, at.b, at.h);
    sums<T> out = {};
    T c[M][M], change[M][M];
    load_ranges(a, s, at.first, false);
    run r = {};
    for (int first = 0; first < N; first = r.last) {
        r = next_run(s, first);
        if (r.base < 0) break;
        for (int64_t key = r.begin; key < r.end; key += N) {
            dot_products(s, q, at.first, k, key, c);
            dot_products(s, grad, at.first, v, key, change);
            __syncthreads();
#pragma unroll
            for (int i = 0; i < M; i++)
#pragma unroll
                for (int j = 0; j < M; j++) {
                    const int of = row() * M + i;
                    const bool mine = of >= r.first && of < r.last;
                    s.weights[column() * M + j][of] =
                        mine ? back<T, OF_Q>(a, at.b, at.h, at.first + of, key + column() * M + j, s.begin[of],
                                             s.end[of], c[i][j], change[i][j])
                             : T(0);
                }
            add_weighed(s, k, key, dim, out);
        }
    }
    put_sums(head_of(a.out, at.b, at.h), at.first, dim, out);
}

/* Whether any query of a tile sees keys from `key` on. */
template <typename T>
static __device__ bool meets(const ht_cuda_attention_arguments &a, const tiles<T> &s, const place &at, int64_t h,
                             int64_t first) {
    enum { N = tiles<T>::N };
    bool any = false;
    if (threadIdx.x < N) {
        const int64_t i = first + threadIdx.x;
        any = s.begin[threadIdx.x] < at.first + N && s.end[threadIdx.x] > at.first &&
              s.begin[threadIdx.x] < s.end[threadIdx.x];
        if (!a.flat_rows && i < a.q.shape[2]) any = any || stats_of<T>(a, at.b, h, i)[0] <= -(T)FLT_MAX;
    }
    return __syncthreads_or(any);
}

template <typename T, side OF> static __device__ void grad_of_keys(const ht_cuda_attention_arguments &a) {
    enum { M = tiles<T>::M, N = tiles<T>::N };
    __shared__ tiles<T> s;
    const place at = place_of<T>(a.k);
    const int64_t group = a.q.shape[1] / a.k.shape[1], dim = (int64_t)blockIdx.y * WIDE;
    const vectors k = head_of(a.k, at.b, at.h), v = head_of(a.v, at.b, at.h);
    sums<T> out = {};
    T c[M][M], change[M][M] = {};
    for (int64_t h = at.h * group; h < (at.h + 1) * group; h++) {
        const vectors q = head_of(a.q, at.b, h), grad = head_of(a.grad, at.b, h);
        for (int64_t first = 0; first < q.n; first += N) {
            load_ranges(a, s, first, false);
            if (!meets(a, s, at, h, first)) continue;
            dot_products(s, k, at.first, q, first, c);
            if (OF == OF_K) dot_products(s, v, at.first, grad, first, change);
            __syncthreads();
#pragma unroll
            for (int j = 0; j < M; j++)
#pragma unroll
                for (int i = 0; i < M; i++) {
                    const int of = column() * M + j;
                    s.weights[of][row() * M + i] = back<T, OF>(a, at.b, h, first + of, at.first + row() * M + i,
                                                               s.begin[of], s.end[of], c[i][j], change[i][j]);
                }
            add_weighed(s, OF == OF_K ? q : grad, first, dim, out);
        }
    }
    put_sums(head_of(OF == OF_K ? a.out_k : a.out_v, at.b, at.h), at.first, dim, out);
}

HT_CUDA_KERNEL(ht_cuda_attention_f32, ht_cuda_attention_arguments) { attend<float>(a); }
HT_CUDA_KERNEL(ht_cuda_attention_f64, ht_cuda_attention_arguments) { attend<double>(a); }
HT_CUDA_KERNEL(ht_cuda_attention_softmax_f32, ht_cuda_attention_arguments) { find_softmax<float>(a); }
HT_CUDA_KERNEL(ht_cuda_attention_softmax_f64, ht_cuda_attention_arguments) { find_softmax<double>(a); }
HT_CUDA_KERNEL(ht_cuda_attention_grad_q_f32, ht_cuda_attention_arguments) { grad_of_queries<float>(a); }
HT_CUDA_KERNEL(ht_cuda_attention_grad_q_f64, ht_cuda_attention_arguments) { grad_of_queries<double>(a); }
HT_CUDA_KERNEL(ht_cuda_attention_grad_k_f32, ht_cuda_attention_arguments) { grad_of_keys<float, OF_K>(a); }
HT_CUDA_KERNEL(ht_cuda_attention_grad_k_f64, ht_cuda_attention_arguments) { grad_of_keys<double, OF_K>(a); }
HT_CUDA_KERNEL(ht_cuda_attention_grad_v_f32, ht_cuda_attention_arguments) { grad_of_keys<float, OF_V>(a); }
HT_CUDA_KERNEL(ht_cuda_attention_grad_v_f64, ht_cuda_attention_arguments) { grad_of_keys<double, OF_V>(a); }
