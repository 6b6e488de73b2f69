/* Base of every kernel file: threads, elements of any dtype, elementary functions, failures. A kernel is
 * HT_CUDA_KERNEL(name, struct) { ... a.field ... }. The host passes the struct, declared in a header of this folder.
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
#define HT_CUDA_APART __noinline__ /* rare code, which must not take registers of its caller */
/* Lets the next kernel's blocks start, then waits until earlier kernels are done and their writes visible. */
static __device__ __forceinline__ void ht_await_earlier(void) {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;\n\tgriddepcontrol.wait;" ::: "memory");
#endif
}
#define HT_CUDA_KERNEL_WITH(name, type, bounds)                                                                        \
    static_assert(sizeof(type) <= 4096, "the arguments of a kernel");                                                  \
    static __device__ __forceinline__ void name##_body(const type &a);                                                 \
    extern "C" __global__ void bounds name(const __grid_constant__ type a) {                                           \
        ht_await_earlier();                                                                                            \
        name##_body(a);                                                                                                \
    }                                                                                                                  \
    static __device__ __forceinline__ void name##_body(const type &a)
#define HT_CUDA_KERNEL(name, type) HT_CUDA_KERNEL_WITH(name, type, )
/* A kernel of `threads` threads, with registers limited so that `blocks` blocks fit on a multiprocessor. */
#define HT_CUDA_KERNEL_BOUND(name, type, threads, blocks)                                                              \
    HT_CUDA_KERNEL_WITH(name, type, __launch_bounds__(threads, blocks))
/* A kernel of at most `threads` threads per block, which bounds its registers. */
#define HT_CUDA_KERNEL_OF(threads, name, type) HT_CUDA_KERNEL_WITH(name, type, __launch_bounds__(threads))
/* A kernel with clusters of `size` blocks where supported, one block per multiprocessor. */
#if __CUDA_ARCH__ >= 900
#define HT_CUDA_CLUSTER_OF(size) __cluster_dims__(size, 1, 1)
#else
#define HT_CUDA_CLUSTER_OF(size)
#endif
#define HT_CUDA_CLUSTER_KERNEL(name, type, threads, size)                                                              \
    HT_CUDA_KERNEL_WITH(name, type, HT_CUDA_CLUSTER_OF(size) __launch_bounds__(threads, 1))
/* A kernel that calls ht_await_earlier() itself, in every thread, before it accesses anything but weights. */
#define HT_CUDA_EAGER_KERNEL(name, type, threads, blocks)                                                              \
    extern "C" __global__ void __launch_bounds__(threads, blocks) name(const __grid_constant__ type a)
#define HT_CUDA_SHARED(type, name)                                                                                     \
    extern __shared__ __align__(16) unsigned char ht_cuda_shared_bytes[];                                              \
    type *name = (type *)ht_cuda_shared_bytes
#endif

/* Elementary functions, and elements of any dtype, with the CPU's bits. */
#ifdef __CUDACC__
#define static static __device__
#define __builtin_clz __clz
#endif
#include "base/math.h"
#include "base/math_double.h"
#include "base/math_drawn.h"
#include "cpu/element.h"
#ifdef __CUDACC__
#undef static
#endif

/* e^x for x <= 0; results below the smallest normal number are 0. */
static inline __device__ float ht_exp_of_negative(float x) {
    const float lowest = -87.0f;
    float n;
    const float p = ht_expm1_reduced(x < lowest ? lowest : x, &n);
    const float power = ht_float_from_bits(((uint32_t)(int32_t)n + 127u) << 23);
    return x < lowest ? 0.0f : fmaf(power, p, power);
}

/* ---- threads ---- */

/* for (int64_t i = ht_first(); i < n; i += ht_step()): every item by one thread of the grid. */
static inline __device__ int64_t ht_first(void) { return (int64_t)blockIdx.x * blockDim.x + threadIdx.x; }
static inline __device__ int64_t ht_step(void) { return (int64_t)gridDim.x * blockDim.x; }

/* Sixteen bytes, moved by one instruction. */
struct alignas(16) ht_word16 {
    uint64_t low, high;
};

/* Rows of elements, one thread per element of a launch of ht_cuda_grid_of_rows (cuda/cuda.h). A warp has adjacent
 * elements of a row, or of adjacent rows if rows are short.
 *
 * for (int64_t row = ht_first_row(); row < n; row += ht_row_step()) */
static inline __device__ int64_t ht_first_row(void) { return (int64_t)blockIdx.x * blockDim.y + threadIdx.y; }
static inline __device__ int64_t ht_row_step(void) { return (int64_t)gridDim.x * blockDim.y; }
/* for (int64_t i = ht_first_column(); i < size; i += ht_column_step()) */
static inline __device__ int64_t ht_first_column(void) { return (int64_t)blockIdx.y * blockDim.x + threadIdx.x; }
static inline __device__ int64_t ht_column_step(void) { return (int64_t)gridDim.y * blockDim.x; }

/* ---- views ---- */

/* Element offset of item `flat` of the leading n_dims axes in row-major order. The first axis needs no division. */
template <class V> static inline __device__ int64_t ht_offset_of(const V &v, int n_dims, int64_t flat) {
    int64_t offset = 0;
    for (int d = n_dims - 1; d > 0; d--) {
        offset += flat % v.shape[d] * v.stride[d];
        flat /= v.shape[d];
    }
    return n_dims > 0 ? offset + flat * v.stride[0] : 0;
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
