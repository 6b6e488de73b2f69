/* Ground of every kernel file: threads, elements of any dtype, elementary functions, failures. A kernel is HT_CUDA_KERNEL(name, struct) { ... a.member ... }, and its host side passes the
 * struct, which both know from a header of this folder.
 *
 * The same files compile as C++ for a driver that runs on the host (tests/cuda), which defines HT_CUDA_ON_HOST. */
#ifndef HT_CUDA_KERNEL_CUH
#define HT_CUDA_KERNEL_CUH

#include "cuda/fault.h"

#include <float.h>
#include <math.h>
#include <stdint.h>
#include <string.h>

#ifdef HT_CUDA_ON_HOST
#include "on_host.h" /* tests/cuda */
#define HT_CUDA_KERNEL_BOUND(name, type, threads, blocks) HT_CUDA_KERNEL(name, type)
#define HT_CUDA_KERNEL_OF(threads, name, type)            HT_CUDA_KERNEL(name, type)
#define HT_CUDA_CLUSTER_KERNEL(name, type, threads, size) HT_CUDA_KERNEL(name, type)
#define HT_CUDA_EAGER_KERNEL(name, type, threads, blocks) HT_CUDA_KERNEL(name, type)
static inline void ht_await_earlier(void) {}
#define HT_CUDA_APART
#else
#define HT_CUDA_APART __noinline__ /* code that is rarely needed, and is to take no registers of the rest */
/* Lets the blocks of the next kernel begin, and waits until all earlier kernels are done and what they wrote is there. */
static __device__ __forceinline__ void ht_await_earlier(void) {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;\n\tgriddepcontrol.wait;" ::: "memory");
#endif
}
#define HT_CUDA_KERNEL_WITH(name, type, bounds)                                                                        \
    static __device__ __forceinline__ void name##_body(const type &a);                                                 \
    extern "C" __global__ void bounds name(const __grid_constant__ type a) {                                           \
        ht_await_earlier();                                                                                            \
        name##_body(a);                                                                                                \
    }                                                                                                                  \
    static __device__ __forceinline__ void name##_body(const type &a)
#define HT_CUDA_KERNEL(name, type) HT_CUDA_KERNEL_WITH(name, type, )
/* A kernel of so many threads, of which a multiprocessor has registers for `blocks` blocks. */
#define HT_CUDA_KERNEL_BOUND(name, type, threads, blocks)                                                              \
    HT_CUDA_KERNEL_WITH(name, type, __launch_bounds__(threads, blocks))
/* With blocks of at most so many threads, whose registers then suffice. */
#define HT_CUDA_KERNEL_OF(threads, name, type) HT_CUDA_KERNEL_WITH(name, type, __launch_bounds__(threads))
/* With clusters of `size` blocks, each alone on its multiprocessor, where there are clusters. */
#if __CUDA_ARCH__ >= 900
#define HT_CUDA_CLUSTER_OF(size) __cluster_dims__(size, 1, 1)
#else
#define HT_CUDA_CLUSTER_OF(size)
#endif
#define HT_CUDA_CLUSTER_KERNEL(name, type, threads, size)                                                              \
    HT_CUDA_KERNEL_WITH(name, type, HT_CUDA_CLUSTER_OF(size) __launch_bounds__(threads, 1))
/* One that calls ht_await_earlier() itself, in every thread, before it touches anything but weights. */
#define HT_CUDA_EAGER_KERNEL(name, type, threads, blocks)                                                              \
    extern "C" __global__ void __launch_bounds__(threads, blocks) name(const __grid_constant__ type a)
#define HT_CUDA_SHARED(type, name)                                                                                     \
    extern __shared__ __align__(16) unsigned char ht_cuda_shared_bytes[];                                              \
    type *name = (type *)ht_cuda_shared_bytes
#endif

/* The elementary functions of base/, which give the CPU's bits. */
#ifdef __CUDACC__
#define static static __device__
#define __builtin_clz __clz
#endif
#include "base/math.h"
#include "base/math_double.h"
#include "base/math_drawn.h"
#ifdef __CUDACC__
#undef static
#endif

/* Dtypes, as <hearth/dtype.h> numbers them. */
#include <hearth/dtype.h>

static inline __device__ bool ht_is_float(int t) { return t >= HT_F16 && t <= HT_F64; }
static inline __device__ bool ht_is_signed(int t) { return t >= HT_I8 && t <= HT_I64; }

/* ---- threads ---- */

/* for (int64_t i = ht_first(); i < n; i += ht_step()): every item by one thread of the grid. */
static inline __device__ int64_t ht_first(void) { return (int64_t)blockIdx.x * blockDim.x + threadIdx.x; }
static inline __device__ int64_t ht_step(void) { return (int64_t)gridDim.x * blockDim.x; }

/* ---- elements of any dtype, as cpu/element.h has them ---- */

static inline __device__ int64_t ht_get_int(int t, const void *p, int64_t i) {
    switch (t) {
    case HT_BOOL: return ((const uint8_t *)p)[i] != 0;
    case HT_U8: return ((const uint8_t *)p)[i];
    case HT_U16: return ((const uint16_t *)p)[i];
    case HT_U32: return ((const uint32_t *)p)[i];
    case HT_I8: return ((const int8_t *)p)[i];
    case HT_I16: return ((const int16_t *)p)[i];
    case HT_I32: return ((const int32_t *)p)[i];
    case HT_U64:
    case HT_I64: return ((const int64_t *)p)[i];
    default: return 0;
    }
}

/* Stores an integer modulo 2^bits; bool stores v != 0. */
static inline __device__ void ht_set_int(int t, void *p, int64_t i, int64_t v) {
    switch (t) {
    case HT_BOOL: ((uint8_t *)p)[i] = v != 0; break;
    case HT_U8:
    case HT_I8: ((uint8_t *)p)[i] = (uint8_t)v; break;
    case HT_U16:
    case HT_I16: ((uint16_t *)p)[i] = (uint16_t)v; break;
    case HT_U32:
    case HT_I32: ((uint32_t *)p)[i] = (uint32_t)v; break;
    case HT_U64:
    case HT_I64: ((int64_t *)p)[i] = v; break;
    default: break;
    }
}

static inline __device__ float ht_get_f32(int t, const void *p, int64_t i) {
    switch (t) {
    case HT_F16: return ht_f16_to_f32(((const uint16_t *)p)[i]);
    case HT_BF16: return ht_bf16_to_f32(((const uint16_t *)p)[i]);
    case HT_F32: return ((const float *)p)[i];
    case HT_F64: return (float)((const double *)p)[i];
    case HT_U64: return (float)((const uint64_t *)p)[i];
    default: return (float)ht_get_int(t, p, i);
    }
}

static inline __device__ double ht_get_f64(int t, const void *p, int64_t i) {
    switch (t) {
    case HT_F64: return ((const double *)p)[i];
    case HT_U64: return (double)((const uint64_t *)p)[i];
    default: return ht_is_float(t) ? (double)ht_get_f32(t, p, i) : (double)ht_get_int(t, p, i);
    }
}

/* A double as an integer of a type: truncated toward zero, saturated at the type's limits, NaN as 0. */
static inline __device__ int64_t ht_saturated(int t, double v) {
    if (isnan(v)) return 0;
    if (t == HT_U64) return v >= 0x1p64 ? -1 : v > 0 ? (int64_t)(uint64_t)v : 0;
    if (t == HT_I64) return v >= 0x1p63 ? INT64_MAX : v < -0x1p63 ? INT64_MIN : (int64_t)v;
    const bool is_signed = ht_is_signed(t);
    const int bits = t == HT_U8 || t == HT_I8 ? 8 : t == HT_U16 || t == HT_I16 ? 16 : 32;
    const double high = (double)(((int64_t)1 << (bits - is_signed)) - 1), low = is_signed ? -high - 1 : 0;
    return (int64_t)(v < low ? low : v > high ? high : v);
}

static inline __device__ void ht_set_f64(int t, void *p, int64_t i, double v) {
    switch (t) {
    case HT_F16: ((uint16_t *)p)[i] = ht_f32_to_f16((float)v); return;
    case HT_BF16: ((uint16_t *)p)[i] = ht_f32_to_bf16((float)v); return;
    case HT_F32: ((float *)p)[i] = (float)v; return;
    case HT_F64: ((double *)p)[i] = v; return;
    case HT_BOOL: ((uint8_t *)p)[i] = v != 0; return;
    default: ht_set_int(t, p, i, ht_saturated(t, v));
    }
}

static inline __device__ void ht_set_f32(int t, void *p, int64_t i, float v) {
    if (t == HT_F32)
        ((float *)p)[i] = v;
    else
        ht_set_f64(t, p, i, (double)v);
}

/* ---- views ---- */

/* Element offset of item `flat` of the leading n_dims axes in row-major order. */
static inline __device__ int64_t ht_offset_of(const ht_cuda_view &v, int n_dims, int64_t flat) {
    int64_t offset = 0;
    for (int d = n_dims - 1; d >= 0; d--) {
        offset += flat % v.shape[d] * v.stride[d];
        flat /= v.shape[d];
    }
    return offset;
}

/* ---- failures ---- */

/* Reports a bad value; the first kernel that fails is kept, and of it the lowest position. */
static inline __device__ void ht_report(const ht_cuda_reporter &r, ht_cuda_wrong wrong, int64_t position, int64_t value,
                                        int axis, int64_t size, int64_t length) {
    ht_cuda_fault *f = r.fault;
    while (atomicCAS(&f->lock, 0u, 1u) != 0u) {}
    __threadfence();
    volatile ht_cuda_fault *v = f;
    if (v->wrong == HT_CUDA_FINE || (v->mark == r.mark && position < v->position)) {
        v->wrong = wrong;
        v->mark = r.mark;
        v->position = position;
        v->value = value;
        v->op = r.op;
        v->axis = axis;
        v->size = size;
        v->length = length;
    }
    __threadfence();
    atomicExch(&f->lock, 0u);
}

/* An index that is outside. */
static inline __device__ void ht_report_index(const ht_cuda_reporter &r, int64_t position, int64_t value, int axis,
                                              int64_t size, int64_t length) {
    ht_report(r, HT_CUDA_INDEX, position, value, axis, size, length);
}

#endif
