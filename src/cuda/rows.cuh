/* Rows in kernels: their elements, alone and by fours, and sums and maxima over the threads of a team. */
#ifndef HT_CUDA_ROWS_CUH
#define HT_CUDA_ROWS_CUH

#include "cuda/kernel.cuh"
#include "cuda/rows.h"

static inline __device__ int64_t ht_row_at(const ht_cuda_rows &r, int64_t row) {
    return ht_offset_of(r, r.n_dims, row);
}

/* ---- elements as types ---- */

struct ht_half {
    uint16_t bits;
};
struct ht_bfloat {
    uint16_t bits;
};
struct ht_truth {
    uint8_t byte;
};

/* An element as the number that computes: float, double, int64_t or uint64_t. */
static inline __device__ float ht_number(ht_half x) { return ht_f16_to_f32(x.bits); }
static inline __device__ float ht_number(ht_bfloat x) { return ht_bf16_to_f32(x.bits); }
static inline __device__ float ht_number(float x) { return x; }
static inline __device__ double ht_number(double x) { return x; }
static inline __device__ int64_t ht_number(ht_truth x) { return x.byte != 0; }
static inline __device__ int64_t ht_number(uint8_t x) { return x; }
static inline __device__ int64_t ht_number(uint16_t x) { return x; }
static inline __device__ int64_t ht_number(uint32_t x) { return x; }
static inline __device__ uint64_t ht_number(uint64_t x) { return x; }
static inline __device__ int64_t ht_number(int8_t x) { return x; }
static inline __device__ int64_t ht_number(int16_t x) { return x; }
static inline __device__ int64_t ht_number(int32_t x) { return x; }
static inline __device__ int64_t ht_number(int64_t x) { return x; }

/* Calls f with the pointer to elements of the type: the choice is made once for several elements. */
template <typename F> static inline __device__ void ht_with_float(ht_dtype t, const void *p, F f) {
    switch (t) {
    case HT_F16: f((const ht_half *)p); break;
    case HT_BF16: f((const ht_bfloat *)p); break;
    case HT_F32: f((const float *)p); break;
    default: f((const double *)p);
    }
}

template <typename F> static inline __device__ void ht_with_integer(ht_dtype t, const void *p, F f) {
    switch (t) {
    case HT_BOOL: f((const ht_truth *)p); break;
    case HT_U8: f((const uint8_t *)p); break;
    case HT_U16: f((const uint16_t *)p); break;
    case HT_U32: f((const uint32_t *)p); break;
    case HT_U64: f((const uint64_t *)p); break;
    case HT_I8: f((const int8_t *)p); break;
    case HT_I16: f((const int16_t *)p); break;
    case HT_I32: f((const int32_t *)p); break;
    default: f((const int64_t *)p);
    }
}

template <typename F> static inline __device__ void ht_with_any(ht_dtype t, const void *p, F f) {
    if (ht_dtype_is_float(t))
        ht_with_float(t, p, f);
    else
        ht_with_integer(t, p, f);
}

/* The kernels of HT_CUDA_FLOATS: `body` of each type. */
#define HT_CUDA_FLOAT_KERNELS(threads, name, type, body)                                                               \
    HT_CUDA_KERNEL_OF(threads, name##_f16, type) { body<ht_half>(a); }                                                 \
    HT_CUDA_KERNEL_OF(threads, name##_bf16, type) { body<ht_bfloat>(a); }                                              \
    HT_CUDA_KERNEL_OF(threads, name##_f32, type) { body<float>(a); }                                                   \
    HT_CUDA_KERNEL_OF(threads, name##_f64, type) { body<double>(a); }

/* ---- quads: elements 4 q .. 4 q + 3 of a row ---- */

template <typename T> struct alignas(4 * sizeof(T)) ht_four { T v[4]; };

template <typename R, typename T> static inline __device__ void ht_take_four(R *v, const T *p) {
    const ht_four<T> x = *(const ht_four<T> *)p;
    for (int k = 0; k < 4; k++) v[k] = (R)ht_number(x.v[k]);
}

/* Quad q of the row at p; `none` past the end. */
template <typename R, typename T>
static inline __device__ void ht_load_quad(R *v, const T *p, const ht_cuda_rows &r, int64_t q, int64_t n, R none) {
    if (r.quads && 4 * q < n)
        ht_take_four(v, p + 4 * q);
    else
        for (int k = 0; k < 4; k++) v[k] = 4 * q + k < n ? (R)ht_number(p[(4 * q + k) * r.step]) : none;
}

/* The same for any dtype; the row begins `at` elements after r.data. */
template <typename R>
static inline __device__ void ht_load_quad(R *v, const ht_cuda_rows &r, int64_t at, int64_t q, int64_t n, R none) {
    ht_with_float(r.dtype, r.data, [&](auto *p) { ht_load_quad(v, p + at, r, q, n, none); });
}

static inline __device__ void ht_put(ht_half *p, float x) { p->bits = ht_f32_to_f16(x); }
static inline __device__ void ht_put(ht_bfloat *p, float x) { p->bits = ht_f32_to_bf16(x); }
static inline __device__ void ht_put(float *p, float x) { *p = x; }
static inline __device__ void ht_put(double *p, double x) { *p = x; }

/* Stores to a contiguous row, whose quads are aligned if `quads` is set. */
template <typename R, typename T>
static inline __device__ void ht_store_quad(const R *v, T *p, bool quads, int64_t q, int64_t n) {
    if (quads && 4 * q < n) {
        ht_four<T> x;
        for (int k = 0; k < 4; k++) ht_put(&x.v[k], v[k]);
        *(ht_four<T> *)(p + 4 * q) = x;
    } else {
        for (int k = 0; k < 4; k++)
            if (4 * q + k < n) ht_put(p + 4 * q + k, v[k]);
    }
}

/* The number that computes with a floating-point type. */
template <typename T> struct ht_computes { typedef float type; };
template <> struct ht_computes<double> { typedef double type; };

/* ---- teams ---- */

/* Sums over the threads of a team, a warp or the whole block. Each thread has N sums, the k-th that of thread t + k *
 * team of a team N times as large. Adds over 32 lanes, then in order. Every thread gets the result. */
template <int N, typename R> static inline __device__ R ht_team_sums(const R *sums, int team) {
    __shared__ R part[N * HT_CUDA_LARGE_TEAM / 32];
    const int warps = team / 32;
    R all[N];
#pragma unroll
    for (int k = 0; k < N; k++) {
        all[k] = sums[k];
        for (int mask = 16; mask > 0; mask /= 2) all[k] += __shfl_xor_sync(~0u, all[k], mask);
    }
    R sum = all[0];
    if (team <= 32) {
#pragma unroll
        for (int k = 1; k < N; k++) sum += all[k];
        return sum;
    }
    __syncthreads(); /* the last sum has been read */
#pragma unroll
    for (int k = 0; k < N; k++)
        if (threadIdx.x % 32 == 0) part[k * warps + threadIdx.x / 32] = all[k];
    __syncthreads();
    sum = part[0];
    for (int w = 1; w < N * warps; w++) sum += part[w];
    return sum;
}

template <typename R> static inline __device__ R ht_team_sum(R v, int team) { return ht_team_sums<1>(&v, team); }

/* The larger number, or NaN if either is NaN. */
template <typename R> static inline __device__ R ht_larger(R a, R b) { return isnan(a) || a > b ? a : b; }

template <typename R> static inline __device__ R ht_team_max(R v, int team) {
    __shared__ R part[32];
    for (int mask = 16; mask > 0; mask /= 2) v = ht_larger(v, __shfl_xor_sync(~0u, v, mask));
    if (team <= 32) return v;
    __syncthreads();
    if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = v;
    __syncthreads();
    R max = part[0];
    for (int w = 1; w < team / 32; w++) max = ht_larger(max, part[w]);
    return max;
}

#endif
