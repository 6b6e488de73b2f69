/* Reductions, scans and softmax. A team of threads reduces a row, or a chunk of a long one, each thread every team-th
 * element. The threads' accumulators are joined in a fixed order, then the chunks'. The order depends only on the row's
 * length. Sums, products and variances of any floating-point type are f64, as in the CPU's plain kernels: these kernels
 * are bound by memory. */
#include "cuda/reduce.h"
#include "cuda/rows.cuh"
#include "device/op_id.h"

enum { GROUP = HT_CUDA_REDUCE_GROUP };

/* v[k] = element i + k * by, or `none` from `end` on. */
template <typename V, typename T, typename F>
static __device__ void load_group(V *v, const T *p, int64_t step, int64_t i, int64_t by, int64_t end, V none,
                                  F convert) {
    const T *q = p + i * step;
    const int64_t far = by * step;
    if (i + (GROUP - 1) * by < end) {
#pragma unroll
        for (int k = 0; k < GROUP; k++, q += far) v[k] = convert(*q);
    } else {
#pragma unroll
        for (int k = 0; k < GROUP; k++, q += far) v[k] = i + k * by < end ? convert(*q) : none;
    }
}

struct as_f64 {
    template <typename T> __device__ double operator()(T x) const { return (double)ht_number(x); }
};
struct as_f32 {
    template <typename T> __device__ float operator()(T x) const { return (float)ht_number(x); }
};
struct as_int {
    template <typename T> __device__ int64_t operator()(T x) const { return (int64_t)ht_number(x); }
};

/* ---- keys: integers in the order of the elements, NaN largest ---- */

static __device__ int64_t key_of(float x, bool min) {
    if (isnan(x)) return INT64_MAX;
    const int32_t bits = (int32_t)ht_float_bits(x + 0.0f); /* one zero */
    const int64_t key = bits ^ (bits >> 31 & INT32_MAX);
    return min ? ~key : key;
}
static __device__ int64_t key_of(double x, bool min) {
    if (isnan(x)) return INT64_MAX;
    int64_t bits;
    x += 0.0;
    memcpy(&bits, &x, sizeof bits);
    const int64_t key = bits ^ (bits >> 63 & INT64_MAX);
    return min ? ~key : key;
}
static __device__ int64_t key_of(int64_t x, bool min) { return min ? ~x : x; }
static __device__ int64_t key_of(uint64_t x, bool min) { return key_of((int64_t)(x ^ (uint64_t)INT64_MIN), min); }

struct as_key {
    bool min;
    template <typename T> __device__ int64_t operator()(T x) const { return key_of(ht_number(x), min); }
};

/* ---- accumulators ---- */

typedef ht_cuda_reduce_arguments arguments;

/* An accumulator begins, adds elements i + k * by of a row for k < n_valid, joins that of other elements of the row, and
 * stores the result of a row. */

/* SUM and MEAN, or PROD. */
template <bool PRODUCT> struct fold_float {
    double all;
    typedef double value;
    __device__ void begin() { all = PRODUCT; }
    static __device__ void load(value *v, const arguments &a, int64_t at, int64_t i, int64_t by, int64_t end) {
        ht_with_float(a.in.dtype, a.in.data,
                      [&](auto *p) { load_group(v, p + at, a.in.step, i, by, end, (double)PRODUCT, as_f64()); });
    }
    __device__ void add(const value *v, int, int64_t, int64_t) {
        if (PRODUCT)
            for (int k = 0; k < GROUP; k++) all *= v[k];
        else
            all += ((v[0] + v[1]) + (v[2] + v[3])) + ((v[4] + v[5]) + (v[6] + v[7]));
    }
    __device__ void join(const fold_float &o) { all = PRODUCT ? all * o.all : all + o.all; }
    __device__ void store(const arguments &a, int64_t row, int64_t) const {
        ht_set_f64(a.out_dtype, a.out, row, a.op == HT_OP_MEAN ? all / (double)a.n : all);
    }
};

template <bool PRODUCT> struct fold_int {
    uint64_t all; /* wraps around */
    typedef int64_t value;
    __device__ void begin() { all = PRODUCT; }
    static __device__ void load(value *v, const arguments &a, int64_t at, int64_t i, int64_t by, int64_t end) {
        ht_with_integer(a.in.dtype, a.in.data,
                        [&](auto *p) { load_group(v, p + at, a.in.step, i, by, end, (int64_t)PRODUCT, as_int()); });
    }
    __device__ void add(const value *v, int, int64_t, int64_t) {
        for (int k = 0; k < GROUP; k++) join({(uint64_t)v[k]});
    }
    __device__ void join(const fold_int &o) { all = PRODUCT ? all * o.all : all + o.all; }
    __device__ void store(const arguments &a, int64_t row, int64_t) const {
        ht_set_int(a.out_dtype, a.out, row, (int64_t)all);
    }
};

template <typename T> static __device__ void copy_to(void *out, int64_t i, const T *from) { ((T *)out)[i] = *from; }

/* MAX, MIN, ARGMAX and ARGMIN: the first index of the largest key. */
struct extreme {
    int64_t key, place;
    typedef int64_t value;
    __device__ void begin() {
        key = INT64_MIN;
        place = 0; /* the result if every key is INT64_MIN */
    }
    static __device__ void load(value *v, const arguments &a, int64_t at, int64_t i, int64_t by, int64_t end) {
        const as_key convert = {a.op == HT_OP_MIN || a.op == HT_OP_ARGMIN};
        const auto some = [&](auto *p) { load_group(v, p + at, a.in.step, i, by, end, INT64_MIN, convert); };
        ht_with_any(a.in.dtype, a.in.data, some);
    }
    __device__ void add(const value *v, int, int64_t i, int64_t by) {
        for (int k = 0; k < GROUP; k++)
            if (v[k] > key) {
                key = v[k];
                place = i + k * by;
            }
    }
    __device__ void join(const extreme &o) {
        if (o.key > key || (o.key == key && o.place < place)) *this = o;
    }
    /* A maximum is copied bit for bit. */
    __device__ void store(const arguments &a, int64_t row, int64_t at) const {
        const int64_t from = at + place * a.in.step;
        if (a.op == HT_OP_ARGMAX || a.op == HT_OP_ARGMIN)
            ht_set_int(a.out_dtype, a.out, row, place);
        else
            ht_with_any(a.in.dtype, a.in.data, [&](auto *p) { copy_to(a.out, row, p + from); });
    }
};

/* VAR: means and sums of squared deviations of groups, merged as Chan, Golub and LeVeque do. */
struct variance {
    double n, mean, squares;
    typedef double value;
    __device__ void begin() { n = mean = squares = 0.0; }
    static __device__ void load(value *v, const arguments &a, int64_t at, int64_t i, int64_t by, int64_t end) {
        fold_float<false>::load(v, a, at, i, by, end);
    }
    __device__ void add(const value *v, int n_valid, int64_t, int64_t) {
        variance o = {(double)n_valid, 0.0, 0.0};
        for (int k = 0; k < GROUP; k++) o.mean += v[k];
        o.mean /= o.n;
        for (int k = 0; k < GROUP; k++)
            if (k < n_valid) o.squares += (v[k] - o.mean) * (v[k] - o.mean);
        join(o);
    }
    __device__ void join(const variance &o) {
        if (o.n == 0.0) return;
        if (n == 0.0) {
            *this = o;
            return;
        }
        const double all = n + o.n, apart = o.mean - mean;
        mean += apart * (o.n / all);
        squares += o.squares + apart * apart * (n * (o.n / all));
        n = all;
    }
    __device__ void store(const arguments &a, int64_t row, int64_t) const {
        const double divisor = (double)(a.n - a.ddof);
        ht_set_f64(a.out_dtype, a.out, row, divisor > 0 ? squares / divisor : squares * (double)INFINITY);
    }
};

static __device__ float exp_of(float x) { return ht_exp_f32(x); }
static __device__ double exp_of(double x) { return exp(x); }

/* LOGSUMEXP and SOFTMAX: the maximum, and the sum of e^(x - max). */
template <typename R> struct exp_sum {
    R max, sum;
    typedef R value;
    __device__ void begin() {
        max = (R)-INFINITY;
        sum = 0;
    }
    static __device__ void load(value *v, const arguments &a, int64_t at, int64_t i, int64_t by, int64_t end);
    __device__ void scale_to(R larger) {
        if (larger == max) return;
        sum *= exp_of(max - larger);
        max = larger;
    }
    __device__ void add(const value *v, int, int64_t, int64_t) {
        R largest = v[0], here = 0;
        for (int k = 1; k < GROUP; k++) largest = ht_larger(largest, v[k]);
        largest = ht_larger(max, largest);
        if (largest == (R)-INFINITY) return;
        scale_to(largest);
        for (int k = 0; k < GROUP; k++) here += exp_of(v[k] - max);
        sum += here;
    }
    __device__ void join(exp_sum o) {
        const R largest = ht_larger(max, o.max);
        if (largest == (R)-INFINITY) return;
        scale_to(largest);
        o.scale_to(largest);
        sum += o.sum;
    }
    __device__ void store(const arguments &a, int64_t row, int64_t) const {
        if (a.op == HT_OP_SOFTMAX)
            ((exp_sum *)a.sums)[row] = *this;
        else
            ht_set_f64(a.out_dtype, a.out, row, isinf(max) ? (double)max : (double)max + log((double)sum));
    }
};

template <>
__device__ void exp_sum<float>::load(float *v, const arguments &a, int64_t at, int64_t i, int64_t by, int64_t end) {
    ht_with_float(a.in.dtype, a.in.data,
                  [&](auto *p) { load_group(v, p + at, a.in.step, i, by, end, -INFINITY, as_f32()); });
}
template <>
__device__ void exp_sum<double>::load(double *v, const arguments &a, int64_t at, int64_t i, int64_t by, int64_t end) {
    ht_with_float(a.in.dtype, a.in.data,
                  [&](auto *p) { load_group(v, p + at, a.in.step, i, by, end, (double)-INFINITY, as_f64()); });
}

/* ---- reductions ---- */

/* The row, chunk and lane that a thread reduces. */
struct place {
    int64_t row, chunk;
    int lane;
};

static __device__ int64_t rows_of_block(const arguments &a) {
    return a.columns ? (int64_t)HT_CUDA_COLUMNS : (int64_t)(HT_CUDA_REDUCE_THREADS / a.team);
}
static __device__ int64_t groups_of_rows(const arguments &a) {
    const int64_t rows = rows_of_block(a);
    return (a.n_rows + rows - 1) / rows;
}

static __device__ place place_of(const arguments &a, int64_t block, int64_t n_groups) {
    const int t = (int)threadIdx.x;
    const int64_t chunk = a.n_chunks > 1 ? block / n_groups : 0, first = (block - chunk * n_groups) * rows_of_block(a);
    if (a.columns) return {first + t % HT_CUDA_COLUMNS, chunk, t / HT_CUDA_COLUMNS};
    return {first + t / a.team, chunk, t % a.team};
}

/* Adjacent threads write adjacent parts. */
static __device__ int64_t part_of(const arguments &a, int64_t row, int64_t chunk) {
    return a.columns ? chunk * a.n_rows + row : row * a.n_chunks + chunk;
}

/* Another lane's value; `shuffle` exchanges each word. */
template <typename A, typename F> static __device__ A of_other_lane(const A &mine, F shuffle) {
    unsigned words[sizeof(A) / 4];
    A out;
    memcpy(words, &mine, sizeof mine);
    for (int i = 0; i < (int)(sizeof(A) / 4); i++) words[i] = shuffle(words[i]);
    memcpy(&out, words, sizeof out);
    return out;
}

/* Lane 0 of every team gets the joined accumulators of the team. */
template <typename A> static __device__ void join_team(A *acc, const arguments &a) {
    __shared__ A kept[HT_CUDA_REDUCE_THREADS];
    const int t = (int)threadIdx.x;
    if (a.columns) {
        __syncthreads();
        kept[t] = *acc;
        __syncthreads();
        if (t < HT_CUDA_COLUMNS)
            for (int lane = 1; lane < HT_CUDA_COLUMN_TEAM; lane++) acc->join(kept[lane * HT_CUDA_COLUMNS + t]);
        return;
    }
    const int width = a.team < 32 ? a.team : 32;
    for (int mask = 1; mask < width; mask *= 2)
        acc->join(of_other_lane(*acc, [&](unsigned word) { return __shfl_xor_sync(~0u, word, mask); }));
    if (a.team <= 32) return;
    __syncthreads();
    if (t % 32 == 0) kept[t / 32] = *acc;
    __syncthreads();
    if (t == 0)
        for (int warp = 1; warp < HT_CUDA_REDUCE_THREADS / 32; warp++) acc->join(kept[warp]);
}

template <typename A> static __device__ void reduce(const arguments &a) {
    const int64_t n_groups = groups_of_rows(a), team = a.team;
    for (int64_t block = blockIdx.x; block < n_groups * a.n_chunks; block += gridDim.x) {
        const place p = place_of(a, block, n_groups);
        const bool mine = p.row < a.n_rows;
        const int64_t at = mine ? ht_row_at(a.in, p.row) : 0, begin = p.chunk * a.chunk;
        const int64_t end = !mine ? 0 : begin + a.chunk < a.n ? begin + a.chunk : a.n;
        A acc;
        acc.begin();
        for (int64_t i = begin + p.lane; i < end; i += team * GROUP) {
            typename A::value v[GROUP];
            A::load(v, a, at, i, team, end);
            const int64_t left = (end - i + team - 1) / team;
            acc.add(v, left < GROUP ? (int)left : (int)GROUP, i, team);
        }
        join_team(&acc, a);
        if (p.lane != 0 || !mine) continue;
        if (a.n_chunks > 1)
            ((A *)a.part)[part_of(a, p.row, p.chunk)] = acc;
        else
            acc.store(a, p.row, at);
    }
}

template <typename A> static __device__ void join_chunks(const arguments &a) {
    const int64_t n_groups = groups_of_rows(a);
    for (int64_t block = blockIdx.x; block < n_groups; block += gridDim.x) {
        const place p = place_of(a, block, n_groups);
        A acc;
        acc.begin();
        for (int64_t c = p.lane; p.row < a.n_rows && c < a.n_chunks; c += a.team)
            acc.join(((const A *)a.part)[part_of(a, p.row, c)]);
        join_team(&acc, a);
        if (p.lane == 0 && p.row < a.n_rows) acc.store(a, p.row, ht_row_at(a.in, p.row));
    }
}

#define REDUCTION(name, accumulator)                                                                                   \
    HT_CUDA_KERNEL(ht_cuda_##name, ht_cuda_reduce_arguments) {                                                         \
        a.joins ? join_chunks<accumulator>(a) : reduce<accumulator>(a);                                                \
    }                                                                                                                  \
    static_assert(sizeof(accumulator) <= HT_CUDA_ACCUMULATOR_BYTES, "scratch is for accumulators of so many bytes");

REDUCTION(sum_float, fold_float<false>)
REDUCTION(sum_int, fold_int<false>)
REDUCTION(prod_float, fold_float<true>)
REDUCTION(prod_int, fold_int<true>)
REDUCTION(extreme, extreme)
REDUCTION(var, variance)
REDUCTION(exp_sum_f32, exp_sum<float>)
REDUCTION(exp_sum_f64, exp_sum<double>)

/* ---- softmax ---- */

template <typename T> static __device__ void softmax_rows(const ht_cuda_softmax_arguments &a) {
    typedef typename ht_computes<T>::type R;
    const int team = a.team, lane = (int)threadIdx.x % team, per_block = (int)blockDim.x / team;
    const int n = (int)a.n, n_quads = (n + 3) / 4;
    const int64_t n_groups = (a.n_rows + per_block - 1) / per_block;
    for (int64_t group = blockIdx.x; group < n_groups; group += gridDim.x) {
        const int64_t row = group * per_block + (int)threadIdx.x / team;
        const bool mine = row < a.n_rows;
        const T *p = (const T *)a.in.data + (mine ? ht_row_at(a.in, row) : 0);
        R v[HT_CUDA_KEPT_QUADS][4], max = (R)-INFINITY, sum = 0;
#pragma unroll
        for (int k = 0; k < HT_CUDA_KEPT_QUADS; k++) {
            for (int j = 0; j < 4; j++) v[k][j] = (R)-INFINITY;
            if (mine && lane + k * team < n_quads) ht_load_quad(v[k], p, a.in, lane + k * team, n, (R)-INFINITY);
        }
#pragma unroll
        for (int k = 0; k < HT_CUDA_KEPT_QUADS; k++)
            for (int j = 0; j < 4; j++) max = ht_larger(max, v[k][j]);
        max = ht_team_max(max, team);
#pragma unroll
        for (int k = 0; k < HT_CUDA_KEPT_QUADS; k++)
            for (int j = 0; j < 4; j++) {
                if (4 * (lane + k * team) + j >= n) continue;
                v[k][j] = exp_of(v[k][j] - max);
                sum += v[k][j];
            }
        const R scale = 1 / ht_team_sum(sum, team);
        T *to = (T *)a.out.data + row * a.n;
#pragma unroll
        for (int k = 0; k < HT_CUDA_KEPT_QUADS; k++) {
            for (int j = 0; j < 4; j++) v[k][j] *= scale;
            if (mine && lane + k * team < n_quads) ht_store_quad(v[k], to, a.out.quads, lane + k * team, n);
        }
    }
}

HT_CUDA_FLOAT_KERNELS(HT_CUDA_LARGE_TEAM, ht_cuda_softmax, ht_cuda_softmax_arguments, softmax_rows)

template <typename R> static __device__ void softmax_of_sums(const arguments &a) {
    const int64_t n_groups = groups_of_rows(a), team = a.team;
    for (int64_t block = blockIdx.x; block < n_groups * a.n_chunks; block += gridDim.x) {
        const place p = place_of(a, block, n_groups);
        if (p.row >= a.n_rows) continue;
        const exp_sum<R> whole = ((const exp_sum<R> *)a.sums)[p.row];
        const R scale = 1 / whole.sum;
        const int64_t begin = p.chunk * a.chunk, end = begin + a.chunk < a.n ? begin + a.chunk : a.n;
        const int64_t at = ht_row_at(a.in, p.row), to = p.row / a.inner * a.n * a.inner + p.row % a.inner;
        for (int64_t i = begin + p.lane; i < end; i += team * GROUP) {
            R v[GROUP];
            exp_sum<R>::load(v, a, at, i, team, end);
#pragma unroll
            for (int k = 0; k < GROUP; k++)
                if (i + k * team < end)
                    ht_set_f64(a.out_dtype, a.out, to + (i + k * team) * a.inner,
                               (double)(exp_of(v[k] - whole.max) * scale));
        }
    }
}

HT_CUDA_KERNEL(ht_cuda_softmax_of_sums, ht_cuda_reduce_arguments) {
    if (a.in.dtype == HT_F64)
        softmax_of_sums<double>(a);
    else
        softmax_of_sums<float>(a);
}

/* ---- scans ----
 *
 * A block, or a thread, goes along a chunk of a line. Lines of several chunks take three launches: the chunks' totals, the totals
 * of the chunks before each, and the results. */

typedef ht_cuda_scan_arguments scan_arguments;

static __device__ double min_f64(double a, double b) { return isnan(a) || a < b ? a : b; }

struct scan_float {
    double v;
    static __device__ scan_float none(const scan_arguments &a) {
        switch (a.op) {
        case HT_OP_CUMSUM: return {0.0};
        case HT_OP_CUMPROD: return {1.0};
        case HT_OP_CUMMIN: return {(double)INFINITY};
        default: return {(double)-INFINITY};
        }
    }
    static __device__ scan_float join(const scan_arguments &s, scan_float x, scan_float y) {
        const double a = x.v, b = y.v;
        switch (s.op) {
        case HT_OP_CUMSUM: return {a + b};
        case HT_OP_CUMPROD: return {a * b};
        case HT_OP_CUMMAX: return {ht_larger(a, b)};
        case HT_OP_CUMMIN: return {min_f64(a, b)};
        default: { /* LOGCUMSUMEXP */
            const double high = ht_larger(a, b), low = min_f64(a, b);
            return {isinf(high) || isinf(low) || isnan(high) ? high : high + log1p(exp(low - high))};
        }
        }
    }
    static __device__ void load(scan_float *v, const scan_arguments &a, int64_t at, int64_t, int64_t i, int64_t step,
                                int64_t by, int64_t left) {
        const scan_float zero = none(a);
        const auto of = [](auto x) { return scan_float{(double)ht_number(x)}; };
        ht_with_float(a.in.dtype, a.in.data, [&](auto *p) { load_group(v, p + at, step, i, by, i + left, zero, of); });
    }
    __device__ void store(const scan_arguments &a, int64_t at) const { ht_set_f64(a.dtype, a.out, at, v); }
};

struct scan_int {
    int64_t v;
    static __device__ scan_int none(const scan_arguments &a) {
        const ht_dtype t = a.dtype;
        const int bits = t == HT_BOOL                 ? 1
                         : t == HT_U8 || t == HT_I8   ? 8
                         : t == HT_U16 || t == HT_I16 ? 16
                         : t == HT_U32 || t == HT_I32 ? 32
                                                      : 64;
        const int64_t lowest = ht_dtype_is_signed(t) ? (int64_t)(UINT64_MAX << (bits - 1)) : 0;
        const int64_t highest = ht_dtype_is_signed(t) ? ~lowest : (int64_t)(UINT64_MAX >> (64 - bits));
        return {a.op == HT_OP_CUMSUM ? 0 : a.op == HT_OP_CUMPROD ? 1 : a.op == HT_OP_CUMMAX ? lowest : highest};
    }
    static __device__ scan_int join(const scan_arguments &s, scan_int x, scan_int y) {
        const int64_t a = x.v, b = y.v;
        const bool a_is_less = ht_dtype_is_signed(s.dtype) ? a < b : (uint64_t)a < (uint64_t)b;
        switch (s.op) {
        case HT_OP_CUMSUM: return {(int64_t)((uint64_t)a + (uint64_t)b)};
        case HT_OP_CUMPROD: return {(int64_t)((uint64_t)a * (uint64_t)b)};
        case HT_OP_CUMMAX: return {a_is_less ? b : a};
        default: return {a_is_less ? a : b};
        }
    }
    static __device__ void load(scan_int *v, const scan_arguments &a, int64_t at, int64_t, int64_t i, int64_t step,
                                int64_t by, int64_t left) {
        const scan_int zero = none(a);
        const auto of = [](auto x) { return scan_int{(int64_t)ht_number(x)}; };
        ht_with_integer(a.in.dtype, a.in.data,
                        [&](auto *p) { load_group(v, p + at, step, i, by, i + left, zero, of); });
    }
    __device__ void store(const scan_arguments &a, int64_t at) const { ht_set_int(a.dtype, a.out, at, v); }
};

/* RECURRENCE: y -> factor * y + add, of the elements so far; the first of a line has the factor 0. */
struct scan_affine {
    double factor, add;
    static __device__ scan_affine none(const scan_arguments &) { return {1.0, 0.0}; }
    /* 0 times an overflowed product is 0, as in a product factor by factor. */
    static __device__ double times(double a, double b) {
        const double y = a * b;
        return isnan(y) && !isnan(a) && !isnan(b) ? 0.0 : y;
    }
    static __device__ scan_affine join(const scan_arguments &, scan_affine x, scan_affine y) {
        return {times(y.factor, x.factor), y.add + times(y.factor, x.add)};
    }
    static __device__ void load(scan_affine *v, const scan_arguments &a, int64_t at, int64_t by_at, int64_t i,
                                int64_t step, int64_t by, int64_t left) {
        ht_with_float(a.in.dtype, a.in.data, [&](auto *p) {
            const auto *q = p + at + i * step;
#pragma unroll
            for (int k = 0; k < GROUP; k++) v[k].add = k * by < left ? (double)ht_number(q[k * by * step]) : 0.0;
        });
        ht_with_float(a.by.dtype, a.by.data, [&](auto *p) {
            const int64_t by_step = a.reverse ? -a.by.step : a.by.step;
            const auto *q = p + by_at + i * by_step;
#pragma unroll
            for (int k = 0; k < GROUP; k++)
                v[k].factor = k * by >= left ? 1.0 : i + k * by == 0 ? 0.0 : (double)ht_number(q[k * by * by_step]);
        });
    }
    __device__ void store(const scan_arguments &a, int64_t at) const { ht_set_f64(a.dtype, a.out, at, add); }
};

/* A line; the scan begins at its index 0. */
struct line {
    int64_t at, by_at, step; /* of the operands */
    int64_t to, to_step;
};

static __device__ line line_of(const scan_arguments &a, int64_t i, bool has_by) {
    const int64_t last = a.n - 1;
    line l = {ht_row_at(a.in, i), has_by ? ht_row_at(a.by, i) : 0, a.in.step, i / a.inner * a.n * a.inner + i % a.inner,
              a.inner};
    if (!a.reverse) return l;
    return {l.at + last * a.in.step, l.by_at + last * a.by.step, -a.in.step, l.to + last * a.inner, -a.inner};
}

static __device__ int64_t scan_part_of(const scan_arguments &a, int64_t line, int64_t chunk) {
    return a.by_threads ? chunk * a.n_lines + line : line * a.n_chunks + chunk;
}

/* Exclusive scan over the block's threads, starting from `carry`; *carry becomes the total. */
template <typename V> static __device__ V before_thread(const scan_arguments &a, const V &mine, V *carry) {
    __shared__ V warp_total[HT_CUDA_REDUCE_THREADS / 32];
    const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32;
    const auto lane_before = [&](const V &x, int by) {
        return of_other_lane(x, [&](unsigned word) { return __shfl_up_sync(~0u, word, by); });
    };
    V sum = mine;
    for (int by = 1; by < 32; by *= 2) {
        const V other = lane_before(sum, by);
        if (lane >= by) sum = V::join(a, other, sum);
    }
    V before = lane_before(sum, 1);
    __syncthreads();
    if (lane == 31) warp_total[warp] = sum;
    __syncthreads();
    V all = *carry;
    for (int w = 0; w < HT_CUDA_REDUCE_THREADS / 32; w++) {
        if (w == warp) before = lane ? V::join(a, all, before) : all;
        all = V::join(a, all, warp_total[w]);
    }
    *carry = all;
    return before;
}

/* Index in a tile in shared memory, padded so that neither adjacent nor every eighth element share a bank. */
static __device__ int tile_place(int i) { return i + i / GROUP; }
enum { TILE_PLACES = HT_CUDA_SCAN_TILE + HT_CUDA_SCAN_TILE / GROUP };

/* A block scans elements [begin, end) of a line, at most a tile; `carry` is the total before them. */
template <typename V>
static __device__ void scan_tile(const scan_arguments &a, const line &l, int64_t begin, int64_t end, V *carry) {
    __shared__ V tile[TILE_PLACES];
    const int t = (int)threadIdx.x;
    V v[GROUP], mine = V::none(a);
    V::load(v, a, l.at, l.by_at, begin + t, l.step, HT_CUDA_REDUCE_THREADS, end - begin - t);
    __syncthreads(); /* the last tile has been stored */
    for (int k = 0; k < GROUP; k++) tile[tile_place(k * HT_CUDA_REDUCE_THREADS + t)] = v[k];
    __syncthreads();
    for (int k = 0; k < GROUP; k++) {
        v[k] = tile[tile_place(t * GROUP + k)];
        mine = V::join(a, mine, v[k]);
    }
    V so_far = before_thread(a, mine, carry);
    if (a.phase == HT_CUDA_SCAN_TOTALS) return;
    for (int k = 0; k < GROUP; k++) {
        const V next = V::join(a, so_far, v[k]);
        tile[tile_place(t * GROUP + k)] = a.inclusive ? next : so_far;
        so_far = next;
    }
    __syncthreads();
    for (int k = 0; k < GROUP; k++) {
        const int64_t i = begin + k * HT_CUDA_REDUCE_THREADS + t;
        if (i < end) tile[tile_place(k * HT_CUDA_REDUCE_THREADS + t)].store(a, l.to + i * l.to_step);
    }
}

template <typename V> static __device__ void scan_by_blocks(const scan_arguments &a, bool has_by) {
    for (int64_t block = blockIdx.x; block < a.n_lines * a.n_chunks; block += gridDim.x) {
        const line l = line_of(a, block / a.n_chunks, has_by);
        const int64_t begin = block % a.n_chunks * a.chunk, end = begin + a.chunk < a.n ? begin + a.chunk : a.n;
        V carry = V::none(a), *part = (V *)a.part + block;
        if (a.phase == HT_CUDA_SCAN_LINES && a.n_chunks > 1) carry = *part;
        for (int64_t i = begin; i < end; i += HT_CUDA_SCAN_TILE)
            scan_tile(a, l, i, i + HT_CUDA_SCAN_TILE < end ? i + HT_CUDA_SCAN_TILE : end, &carry);
        if (a.phase == HT_CUDA_SCAN_TOTALS && threadIdx.x == 0) *part = carry;
    }
}

/* Turns the totals of a line's chunks into exclusive prefix totals, one block per line. */
template <typename V> static __device__ void scan_parts_by_blocks(const scan_arguments &a) {
    const int t = (int)threadIdx.x;
    for (int64_t line = blockIdx.x; line < a.n_lines; line += gridDim.x) {
        V carry = V::none(a), *part = (V *)a.part + line * a.n_chunks;
        for (int64_t i = 0; i < a.n_chunks; i += HT_CUDA_REDUCE_THREADS) {
            const V mine = i + t < a.n_chunks ? part[i + t] : V::none(a);
            const V before = before_thread(a, mine, &carry);
            if (i + t < a.n_chunks) part[i + t] = before;
        }
    }
}

template <typename V>
static __device__ void scan_chunk(const scan_arguments &a, int64_t i, int64_t chunk, bool has_by) {
    const line l = line_of(a, i, has_by);
    const int64_t begin = chunk * a.chunk, end = begin + a.chunk < a.n ? begin + a.chunk : a.n;
    V so_far = V::none(a), *part = (V *)a.part + scan_part_of(a, i, chunk);
    if (a.phase == HT_CUDA_SCAN_LINES && a.n_chunks > 1) so_far = *part;
    for (int64_t j = begin; j < end; j += GROUP) {
        V v[GROUP];
        V::load(v, a, l.at, l.by_at, j, l.step, 1, end - j);
        for (int k = 0; k < GROUP; k++) {
            const V next = V::join(a, so_far, v[k]);
            if (a.phase == HT_CUDA_SCAN_LINES && j + k < end)
                (a.inclusive ? next : so_far).store(a, l.to + (j + k) * l.to_step);
            so_far = next;
        }
    }
    if (a.phase == HT_CUDA_SCAN_TOTALS) *part = so_far;
}

template <typename V> static __device__ void scan_by_threads(const scan_arguments &a, bool has_by) {
    for (int64_t i = ht_first(); i < a.n_lines * a.n_chunks; i += ht_step())
        scan_chunk<V>(a, i % a.n_lines, i / a.n_lines, has_by);
}

template <typename V> static __device__ void scan_parts_by_threads(const scan_arguments &a) {
    for (int64_t i = ht_first(); i < a.n_lines; i += ht_step()) {
        V so_far = V::none(a);
        for (int64_t chunk = 0; chunk < a.n_chunks; chunk++) {
            V *part = (V *)a.part + scan_part_of(a, i, chunk);
            const V mine = *part;
            *part = so_far;
            so_far = V::join(a, so_far, mine);
        }
    }
}

template <typename V> static __device__ void scan(const scan_arguments &a, bool has_by) {
    const bool parts = a.phase == HT_CUDA_SCAN_PARTS;
    if (a.by_threads)
        parts ? scan_parts_by_threads<V>(a) : scan_by_threads<V>(a, has_by);
    else
        parts ? scan_parts_by_blocks<V>(a) : scan_by_blocks<V>(a, has_by);
}

HT_CUDA_KERNEL(ht_cuda_scan_float, ht_cuda_scan_arguments) { scan<scan_float>(a, false); }
HT_CUDA_KERNEL(ht_cuda_scan_int, ht_cuda_scan_arguments) { scan<scan_int>(a, false); }
HT_CUDA_KERNEL(ht_cuda_scan_affine, ht_cuda_scan_arguments) { scan<scan_affine>(a, true); }
