/* Norms, their gradients, and rotary embeddings. A team computes a row; its threads keep the first quads in registers
 * and reread the others. Sums are f32, or f64 for f64 inputs. */
#include "cuda/norm.h"
#include "cuda/rows.cuh"

enum { KEPT = HT_CUDA_KEPT_QUADS };

/* ---- rows of quads ---- */

/* The row of a thread's team. */
struct team_row {
    int team, lane;
    int64_t row, at, n, n_quads; /* no quads: there is no row */
};

static __device__ int64_t row_groups(int64_t n_rows, int team) {
    const int per_block = (int)blockDim.x / team;
    return (n_rows + per_block - 1) / per_block;
}

static __device__ team_row row_of(const ht_cuda_rows &x, int64_t group, int64_t n_rows, int64_t n, int team) {
    const int t = (int)threadIdx.x;
    const int64_t row = group * ((int)blockDim.x / team) + t / team;
    const bool mine = row < n_rows;
    return {team, t % team, row, mine ? ht_row_at(x, row) : 0, mine ? n : 0, mine ? (n + 3) / 4 : 0};
}

/* Calls f(quad index, four values of x) for the thread's quads, the first KEPT from `kept`. */
template <typename T, typename R, typename F>
static __device__ void each_quad(R (*kept)[4], const T *p, const ht_cuda_rows &x, const team_row &r, F f) {
#pragma unroll
    for (int k = 0; k < KEPT; k++)
        if (r.lane + k * r.team < r.n_quads) f((int64_t)r.lane + k * r.team, kept[k]);
    for (int64_t q = r.lane + KEPT * r.team; q < r.n_quads; q += r.team) {
        R v[4];
        ht_load_quad(v, p, x, q, r.n, (R)0);
        f(q, v);
    }
}

template <typename T, typename R>
static __device__ void keep_quads(R (*kept)[4], const T *p, const ht_cuda_rows &x, const team_row &r) {
#pragma unroll
    for (int k = 0; k < KEPT; k++)
        if (r.lane + k * r.team < r.n_quads) ht_load_quad(kept[k], p, x, r.lane + k * r.team, r.n, (R)0);
}

/* ---- norms ---- */

/* Sum of (x - mean)^2 over a row; `mean` is 0 for plain squares. The k-th of every KEPT quads of a thread has a
 * separate sum, as in a thread of a larger team (cuda/stage.cu). */
template <typename T, typename R>
static __device__ R sum_of_squares(R (*kept)[4], const T *p, const ht_cuda_rows &x, const team_row &r, R mean) {
    R sums[KEPT] = {0};
    auto add = [&](R &sum, int64_t q, const R *v) {
        for (int j = 0; j < 4; j++) {
            const R d = 4 * q + j < r.n ? v[j] - mean : 0;
            sum += d * d;
        }
    };
#pragma unroll
    for (int k = 0; k < KEPT; k++)
        if (r.lane + k * r.team < r.n_quads) add(sums[k], (int64_t)r.lane + k * r.team, kept[k]);
    for (int64_t first = r.lane + KEPT * r.team; first < r.n_quads; first += KEPT * r.team)
#pragma unroll
        for (int k = 0; k < KEPT; k++) {
            const int64_t q = first + k * r.team;
            R v[4];
            if (q >= r.n_quads) continue;
            ht_load_quad(v, p, x, q, r.n, (R)0);
            add(sums[k], q, v);
        }
    return ht_team_sums<KEPT>(sums, r.team);
}

template <typename T, typename R>
static __device__ R mean_of(R (*kept)[4], const T *p, const ht_cuda_rows &x, const team_row &r) {
    R sum = 0;
    each_quad(kept, p, x, r, [&](int64_t, const R *v) { sum += (v[0] + v[1]) + (v[2] + v[3]); });
    return ht_team_sum(sum, r.team) / (R)r.n;
}

template <typename T, bool CENTRED> static __device__ void norm(const ht_cuda_norm_arguments &a) {
    typedef typename ht_computes<T>::type R;
    const int64_t n_groups = row_groups(a.n_rows, a.team);
    for (int64_t group = blockIdx.x; group < n_groups; group += gridDim.x) {
        const team_row r = row_of(a.x, group, a.n_rows, a.n, a.team);
        const T *p = (const T *)a.x.data + r.at;
        T *to = (T *)a.out.data + r.row * a.n;
        R kept[KEPT][4];
        keep_quads(kept, p, a.x, r);
        const R mean = CENTRED ? mean_of(kept, p, a.x, r) : (R)0;
        const R scale = 1 / sqrt(sum_of_squares(kept, p, a.x, r, mean) / (R)a.n + (R)a.eps);
        each_quad(kept, p, a.x, r, [&](int64_t q, const R *v) {
            R w[4], b[4], y[4];
            if (a.weight.data) ht_load_quad(w, (const T *)a.weight.data, a.weight, q, a.n, (R)0);
            if (CENTRED && a.bias.data) ht_load_quad(b, (const T *)a.bias.data, a.bias, q, a.n, (R)0);
            for (int j = 0; j < 4; j++) {
                y[j] = (v[j] - mean) * scale;
                if (a.weight.data) y[j] *= (R)a.weight_offset + w[j];
                if (CENTRED && a.bias.data) y[j] += b[j];
            }
            ht_store_quad(y, to, a.out.quads, q, a.n);
        });
    }
}

template <typename T> static __device__ void rms_norm(const ht_cuda_norm_arguments &a) { norm<T, false>(a); }
template <typename T> static __device__ void layer_norm(const ht_cuda_norm_arguments &a) { norm<T, true>(a); }
HT_CUDA_FLOAT_KERNELS(HT_CUDA_LARGE_TEAM, ht_cuda_rms_norm, ht_cuda_norm_arguments, rms_norm)
HT_CUDA_FLOAT_KERNELS(HT_CUDA_LARGE_TEAM, ht_cuda_layer_norm, ht_cuda_norm_arguments, layer_norm)

/* ---- gradients ---- */

template <typename T, typename R>
static __device__ void weighted_quad(R *dy, const ht_cuda_norm_grad_arguments &a, int64_t grad_at, int64_t q) {
    ht_load_quad(dy, (const T *)a.grad.data + grad_at, a.grad, q, a.n, (R)0);
    if (!a.weight.data) return;
    R w[4];
    ht_load_quad(w, (const T *)a.weight.data, a.weight, q, a.n, (R)0);
    for (int j = 0; j < 4; j++) dy[j] *= (R)a.weight_offset + w[j];
}

template <typename T> static __device__ void grad_rows(const ht_cuda_norm_grad_arguments &a) {
    typedef typename ht_computes<T>::type R;
    const int64_t n_groups = row_groups(a.n_rows, a.team);
    for (int64_t group = blockIdx.x; group < n_groups; group += gridDim.x) {
        const team_row r = row_of(a.x, group, a.n_rows, a.n, a.team);
        const int64_t grad_at = r.n_quads ? ht_row_at(a.grad, r.row) : 0;
        const T *p = (const T *)a.x.data + r.at;
        T *to = (T *)a.out.data + r.row * a.n;
        R kept[KEPT][4], sum = 0, dot = 0;
        keep_quads(kept, p, a.x, r);
        const R mean = a.centred ? mean_of(kept, p, a.x, r) : (R)0, n = (R)a.n;
        const R scale = 1 / sqrt(sum_of_squares(kept, p, a.x, r, mean) / n + (R)a.eps);
        each_quad(kept, p, a.x, r, [&](int64_t q, const R *v) {
            R dy[4];
            weighted_quad<T>(dy, a, grad_at, q);
            for (int j = 0; j < 4; j++) {
                sum += dy[j];
                if (4 * q + j < a.n) dot += dy[j] * (v[j] - mean);
            }
        });
        dot = ht_team_sum(dot, r.team) * scale * scale / n;
        sum = a.centred ? ht_team_sum(sum, r.team) / n : 0;
        each_quad(kept, p, a.x, r, [&](int64_t q, const R *v) {
            R dy[4], y[4];
            weighted_quad<T>(dy, a, grad_at, q);
            for (int j = 0; j < 4; j++) y[j] = scale * (dy[j] - sum - (v[j] - mean) * dot);
            ht_store_quad(y, to, a.out.quads, q, a.n);
        });
        if (r.lane == 0 && r.n_quads) {
            a.stats[2 * r.row] = (double)mean;
            a.stats[2 * r.row + 1] = (double)scale;
        }
    }
}

HT_CUDA_FLOAT_KERNELS(HT_CUDA_LARGE_TEAM, ht_cuda_norm_grad_rows, ht_cuda_norm_grad_arguments, grad_rows)

/* A chunk of rows of some columns: thread (column, lane) sums every GRAD_TEAM-th row. */
HT_CUDA_KERNEL(ht_cuda_norm_grad_columns, ht_cuda_norm_grad_arguments) {
    enum { COLUMNS = HT_CUDA_GRAD_COLUMNS, TEAM = HT_CUDA_GRAD_TEAM };
    __shared__ double weight_of[COLUMNS * TEAM], bias_of[COLUMNS * TEAM];
    const int t = (int)threadIdx.x, lane = t / COLUMNS;
    const int64_t groups = (a.n + COLUMNS - 1) / COLUMNS;
    for (int64_t block = blockIdx.x; block < groups * a.n_chunks; block += gridDim.x) {
        const int64_t i = block % groups * COLUMNS + t % COLUMNS, chunk = block / groups;
        const int64_t begin = chunk * HT_CUDA_GRAD_CHUNK;
        const int64_t end = begin + HT_CUDA_GRAD_CHUNK < a.n_rows ? begin + HT_CUDA_GRAD_CHUNK : a.n_rows;
        double weight = 0.0, bias = 0.0;
        for (int64_t row = begin + lane; i < a.n && row < end; row += TEAM) {
            const double dy = ht_get_f64(a.grad.dtype, a.grad.data, ht_row_at(a.grad, row) + i * a.grad.step);
            const double x = ht_get_f64(a.x.dtype, a.x.data, ht_row_at(a.x, row) + i * a.x.step);
            weight += dy * (x - a.stats[2 * row]) * a.stats[2 * row + 1];
            bias += dy;
        }
        __syncthreads();
        weight_of[t] = weight;
        bias_of[t] = bias;
        __syncthreads();
        if (lane != 0 || i >= a.n) continue;
        for (int other = 1; other < TEAM; other++) {
            weight += weight_of[other * COLUMNS + t];
            bias += bias_of[other * COLUMNS + t];
        }
        a.part[2 * chunk * a.n + i] = weight;
        a.part[(2 * chunk + 1) * a.n + i] = bias;
    }
}

HT_CUDA_KERNEL(ht_cuda_norm_grad_join, ht_cuda_norm_grad_arguments) {
    for (int64_t i = ht_first(); i < a.n; i += ht_step()) {
        double weight = 0.0, bias = 0.0;
        for (int64_t chunk = 0; chunk < a.n_chunks; chunk++) {
            weight += a.part[2 * chunk * a.n + i];
            bias += a.part[(2 * chunk + 1) * a.n + i];
        }
        if (a.to_weight) ht_set_f64(a.out.dtype, a.to_weight, i, weight);
        if (a.to_bias) ht_set_f64(a.out.dtype, a.to_bias, i, bias);
    }
}

/* ---- rotary embedding ---- */

static __device__ double angle_of(const ht_cuda_rope_arguments &a, int64_t position, int64_t pair) {
    const double frequency =
        pair < HT_CUDA_ROPE_PAIRS ? a.frequency[pair] : pow((double)a.theta, -2.0 * (double)pair / a.dims);
    const double angle = (double)position * a.scale * frequency;
    return a.factors ? angle / (double)a.factors[pair * a.factor_step] : angle;
}

static __device__ void rotation_of(const ht_cuda_rope_arguments &a, double angle, float *cosine, float *sine) {
    if (fabs(angle) < 0x1p+40) { /* false for NaN */
        float rest;
        const uint32_t quarters = ht_reduce_angle(angle, &rest);
        ht_sincos_reduced(rest, quarters, sine, cosine);
    } else {
        *sine = (float)sin(angle);
        *cosine = (float)cos(angle);
    }
    *sine *= a.magnitude;
    *cosine *= a.magnitude;
}

static __device__ void rotation_of(const ht_cuda_rope_arguments &a, double angle, double *cosine, double *sine) {
    *sine = sin(angle) * (double)a.magnitude;
    *cosine = cos(angle) * (double)a.magnitude;
}

/* Some heads of a row; `at` and `to` are the first of them. */
struct heads {
    int64_t at, to, n;
};

template <typename T>
static __device__ void rotate_pair(const ht_cuda_rope_arguments &a, const heads &h, int64_t pair, double angle) {
    typedef typename ht_computes<T>::type R;
    enum { AT_ONCE = 4 }; /* heads loaded before the first is stored */
    const int64_t i = a.interleaved ? 2 * pair : pair, j = a.interleaved ? i + 1 : i + a.dims / 2;
    const T *p = (const T *)a.x.data + h.at;
    T *to = (T *)a.out + h.to;
    R c, s;
    rotation_of(a, angle, &c, &s);
    for (int64_t first = 0; first < h.n; first += AT_ONCE) {
        R x[AT_ONCE], y[AT_ONCE];
#pragma unroll
        for (int k = 0; k < AT_ONCE; k++) {
            if (first + k >= h.n) continue;
            x[k] = (R)ht_number(p[(first + k) * a.head_stride + i * a.x.step]);
            y[k] = (R)ht_number(p[(first + k) * a.head_stride + j * a.x.step]);
        }
#pragma unroll
        for (int k = 0; k < AT_ONCE; k++) {
            if (first + k >= h.n) continue;
            ht_put(to + (first + k) * a.head_dim + i, x[k] * c - y[k] * s);
            ht_put(to + (first + k) * a.head_dim + j, y[k] * c + x[k] * s);
        }
    }
}

/* A thread has a pair, or an element that is copied, of some heads. `I`: 32 bits, where they suffice, divide faster. */
template <typename T, typename I> static __device__ void rope_items(const ht_cuda_rope_arguments &a, I n) {
    const I n_pairs = (I)(a.dims / 2), per_head = (I)a.head_dim - n_pairs;
    const I n_groups = (I)((a.n_heads + a.heads_at_once - 1) / a.heads_at_once);
    for (int64_t item = ht_first(); item < (int64_t)n; item += ht_step()) {
        const I rest = (I)item / per_head, i = (I)item - rest * per_head;
        const int64_t row = (int64_t)(rest / n_groups), first = (int64_t)(rest % n_groups) * a.heads_at_once;
        const int64_t left = a.n_heads - first;
        const heads h = {ht_row_at(a.x, row) + first * a.head_stride, (row * a.n_heads + first) * a.head_dim,
                         left < a.heads_at_once ? left : a.heads_at_once};
        if (i < n_pairs) {
            const int64_t position = ((const int32_t *)a.position.data)[ht_row_at(a.position, row)];
            rotate_pair<T>(a, h, (int64_t)i, angle_of(a, position, (int64_t)i));
            continue;
        }
        const int64_t e = a.dims + (int64_t)(i - n_pairs);
        const T *p = (const T *)a.x.data + h.at + e * a.x.step;
        for (int64_t k = 0; k < h.n; k++) ((T *)a.out)[h.to + k * a.head_dim + e] = p[k * a.head_stride];
    }
}

template <typename T> static __device__ void rope(const ht_cuda_rope_arguments &a) {
    const int64_t n_groups = (a.n_heads + a.heads_at_once - 1) / a.heads_at_once;
    const int64_t n = a.n_rows * n_groups * (a.head_dim - a.dims / 2);
    if (n <= INT32_MAX)
        rope_items<T, uint32_t>(a, (uint32_t)n);
    else
        rope_items<T, uint64_t>(a, (uint64_t)n);
}

HT_CUDA_FLOAT_KERNELS(256, ht_cuda_rope, ht_cuda_rope_arguments, rope)
