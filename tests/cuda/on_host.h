/* CUDA C as C++ for the host: what the kernels of src/cuda use of it. Blocks run one after the other, their threads as fibers which
 * change places where they wait for each other. */
#ifndef TESTS_CUDA_ON_HOST_H
#define TESTS_CUDA_ON_HOST_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define __device__
#define __host__
#define __global__
#define __forceinline__ inline
#define __noinline__
#define __shared__   static
#define __align__(n) __attribute__((aligned(n)))
#define __launch_bounds__(...)

struct on_host_dim {
    unsigned x, y, z;
};
extern on_host_dim threadIdx, blockIdx, blockDim, gridDim;

/* ---- kernels ---- */

typedef void on_host_body(const void *arguments);
struct on_host_kernel {
    const char *name;
    on_host_body *body;
    size_t bytes; /* of the arguments */
    unsigned shared_bytes = 48 << 10;
    on_host_kernel *next;
    on_host_kernel(const char *name, on_host_body *body, size_t bytes);
};

#define HT_CUDA_KERNEL(name, type)                                                                                     \
    static_assert(sizeof(type) <= 4096, "the arguments of a kernel");                                                  \
    static void name##_body(const type &a);                                                                            \
    static void name##_call(const void *arguments) {                                                                   \
        type copy;                                                                                                     \
        memcpy(&copy, arguments, sizeof copy);                                                                         \
        name##_body(copy);                                                                                             \
    }                                                                                                                  \
    static on_host_kernel name##_entry(#name, name##_call, sizeof(type));                                              \
    static void name##_body(const type &a)

extern unsigned char on_host_shared[];
#define HT_CUDA_SHARED(type, name) type *name = (type *)on_host_shared

/* ---- threads that wait for each other ---- */

void __syncthreads(void);
void __syncwarp(unsigned mask = 0xffffffffu);
/* Gives every lane of the warp what lane `from` has; the lane's own where that one has ended. */
uint64_t on_host_exchange(uint64_t mine, int from);
unsigned on_host_lane(void);
enum { ON_HOST_GATHERED = 64 };
/* What all lanes of the warp have, 64 bytes of each at most: [lane * bytes], zeros where there is no lane. It stays until the
 * lane's next call of this kind. */
const void *on_host_gather(const void *mine, size_t bytes);

template <typename T> static inline T on_host_shuffle(T mine, int from) {
    uint64_t bits = 0;
    memcpy(&bits, &mine, sizeof mine);
    bits = on_host_exchange(bits, from);
    T out;
    memcpy(&out, &bits, sizeof out);
    return out;
}
template <typename T> static inline T __shfl_sync(unsigned, T mine, int from, int width = 32) {
    const int lane = (int)on_host_lane();
    return on_host_shuffle(mine, (lane & ~(width - 1)) + (from & (width - 1)));
}
template <typename T> static inline T __shfl_xor_sync(unsigned, T mine, int mask, int = 32) {
    return on_host_shuffle(mine, (int)on_host_lane() ^ mask);
}
template <typename T> static inline T __shfl_up_sync(unsigned, T mine, unsigned by, int width = 32) {
    const int lane = (int)on_host_lane(), to = lane - (int)by;
    return on_host_shuffle(mine, to >= (lane & ~(width - 1)) ? to : lane);
}
static inline unsigned __reduce_add_sync(unsigned, unsigned mine) {
    const unsigned *all = (const unsigned *)on_host_gather(&mine, sizeof mine);
    unsigned out = 0;
    for (int lane = 0; lane < 32; lane++) out += all[lane];
    return out;
}
static inline bool __any_sync(unsigned mask, bool mine) { return __reduce_add_sync(mask, mine) != 0; }
static inline int __syncthreads_or(int mine) {
    static int found;
    __syncthreads();
    found = 0;
    __syncthreads();
    if (mine) found = 1;
    __syncthreads();
    return found;
}

/* ---- memory ---- */

struct alignas(8) uint2 {
    uint32_t x, y;
};
struct alignas(16) uint4 {
    uint32_t x, y, z, w;
};
struct alignas(16) float4 {
    float x, y, z, w;
};

static inline void __threadfence(void) {}
template <typename T> static inline T __ldg(const T *p) { return *p; }
template <typename T, typename U> static inline T atomicAdd(T *p, U x) {
    const T old = *p;
    *p = (T)(old + x);
    return old;
}
template <typename T> static inline T atomicCAS(T *p, T expected, T x) {
    const T old = *p;
    if (old == expected) *p = x;
    return old;
}
template <typename T> static inline T atomicExch(T *p, T x) {
    const T old = *p;
    *p = x;
    return old;
}
template <typename T> static inline T atomicMin(T *p, T x) {
    const T old = *p;
    if (x < old) *p = x;
    return old;
}

/* ---- arithmetic ---- */

static inline unsigned __float_as_uint(float x) {
    unsigned bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}
static inline float __uint_as_float(unsigned bits) {
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}
static inline unsigned __byte_perm(unsigned x, unsigned y, unsigned selector) {
    const uint64_t bytes = x | (uint64_t)y << 32;
    unsigned out = 0;
    for (int i = 0; i < 4; i++) out |= (unsigned)(bytes >> 8 * (selector >> 4 * i & 7) & 255) << 8 * i;
    return out;
}
static inline int __clz(int x) { return x ? __builtin_clz((unsigned)x) : 32; }

#endif
