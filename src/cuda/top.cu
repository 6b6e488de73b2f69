/* The highest logits of rows. Values are ranks, as generate/logits_row.h has them: all different, and ordered by value and then by
 * place, so that there is one answer, whatever the order of the threads. */
#include "cuda/kernel.cuh"
#include "cuda/top.h"

enum { RANK_BITS = 64 };
#define NOT_FINITE (~(uint64_t)0) /* above the rank of any number */

/* -0 is equal to 0. */
static __device__ uint64_t rank_of(float x, int64_t place) {
    uint32_t bits = __float_as_uint(x);
    if (bits == 0x80000000u) bits = 0;
    const uint32_t key = bits >> 31 ? ~bits : bits | 0x80000000u;
    return (uint64_t)key << 32 | (uint32_t) ~(uint32_t)place;
}

static __device__ bool is_finite(float x) { return (__float_as_uint(x) & 0x7f800000u) != 0x7f800000u; }

/* The k-th highest of the ranks of a block, `N` of each thread, some of which may be 0, or a number between it and the next: bit by bit,
 * until k of them are at least as high. At least k of them are not 0. */
template <int N> static __device__ uint64_t threshold_of(const uint64_t *rank, int k) {
    __shared__ int count[RANK_BITS];
    if (threadIdx.x < RANK_BITS) count[threadIdx.x] = 0;
    __syncthreads();
    uint64_t threshold = 0;
    for (int bit = RANK_BITS - 1; bit >= 0; bit--) {
        const uint64_t tried = threshold | (uint64_t)1 << bit;
        int n = 0;
#pragma unroll
        for (int i = 0; i < N; i++) n += rank[i] >= tried;
        n = (int)__reduce_add_sync(~0u, (unsigned)n);
        if (threadIdx.x % 32 == 0 && n) atomicAdd(&count[bit], n);
        __syncthreads();
        if (count[bit] >= k) threshold = tried;
        if (count[bit] == k) break;
    }
    return threshold;
}

HT_CUDA_KERNEL_OF(512, ht_cuda_top_of_segments, ht_cuda_top_arguments) {
    enum { N = HT_CUDA_TOP_EACH };
    __shared__ int taken;
    const int64_t row = blockIdx.x / a.segments, first = blockIdx.x % a.segments * (int64_t)HT_CUDA_TOP_SEGMENT;
    const int64_t n = a.n - first < HT_CUDA_TOP_SEGMENT ? a.n - first : HT_CUDA_TOP_SEGMENT;
    const float *x = a.x + row * a.n + first;
    uint64_t *out = a.candidates + (int64_t)blockIdx.x * a.k;
    uint64_t rank[N];
    bool finite = true;
#pragma unroll
    for (int i = 0; i < N; i++) {
        const int at = i * HT_CUDA_TOP_THREADS + (int)threadIdx.x;
        rank[i] = 0;
        if (at >= n) continue;
        const float v = x[at];
        finite = finite && is_finite(v);
        rank[i] = rank_of(v, first + at);
    }
    if (threadIdx.x == 0) taken = 0;
    if (__syncthreads_or(!finite)) {
        if (threadIdx.x == 0) out[0] = NOT_FINITE;
        return;
    }
    const uint64_t threshold = n > a.k ? threshold_of<N>(rank, a.k) : 1;
#pragma unroll
    for (int i = 0; i < N; i++)
        if (rank[i] >= threshold) out[atomicAdd(&taken, 1)] = rank[i];
    for (int i = (int)(n + threadIdx.x); i < a.k; i += HT_CUDA_TOP_THREADS) out[i] = 0;
}

HT_CUDA_KERNEL_OF(1024, ht_cuda_top_of_rows, ht_cuda_top_arguments) {
    enum { N = HT_CUDA_TOP_ROW_EACH };
    __shared__ int taken;
    __shared__ uint32_t place[HT_CUDA_TOP_MOST];
    const int64_t row = blockIdx.x;
    const int n = a.segments * a.k, t = (int)threadIdx.x;
    const uint64_t *candidates = a.candidates + row * n;
    uint64_t rank[N];
    bool finite = true;
#pragma unroll
    for (int i = 0; i < N; i++) {
        const int at = i * HT_CUDA_TOP_ROW_THREADS + t;
        rank[i] = at < n ? candidates[at] : 0;
        finite = finite && rank[i] != NOT_FINITE;
    }
    if (t == 0) taken = 0;
    if (__syncthreads_or(!finite)) {
        if (t == 0) a.id[row * a.k] = -1;
        return;
    }
    const uint64_t threshold = threshold_of<N>(rank, a.k);
#pragma unroll
    for (int i = 0; i < N; i++)
        if (rank[i] >= threshold) place[atomicAdd(&taken, 1)] = ~(uint32_t)rank[i];
    __syncthreads();
    if (t >= a.k) return;
    int before = 0;
    for (int i = 0; i < a.k; i++) before += place[i] < place[t];
    a.value[row * a.k + before] = a.x[row * a.n + place[t]];
    a.id[row * a.k + before] = (int32_t)place[t];
}
