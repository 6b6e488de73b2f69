/* The highest logits of rows. Values are ranks as in generate/logits_row.h: distinct, and ordered by value and then by
 * index, so the result does not depend on the order of threads. */
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

/* A threshold that at least k and at most `most` ranks of a block reach. A thread has `used` of N ranks; 0 means none,
 * and at least k are not 0. Found digit by digit of two bits, whose three counts pass through a warp together. */
template <int N> static __device__ uint64_t threshold_of(const uint64_t *rank, int used, int k, int most) {
    enum { DIGITS = RANK_BITS / 2, FIELD = 10 };
    __shared__ int count[DIGITS * 3];
    const int lane = (int)threadIdx.x % 32;
    if (threadIdx.x < DIGITS * 3) count[threadIdx.x] = 0;
    __syncthreads();
    uint64_t threshold = 0;
    for (int shift = RANK_BITS - 2; shift >= 0; shift -= 2) {
        const uint64_t step = (uint64_t)1 << shift;
        unsigned n = 0;
#pragma unroll
        for (int i = 0; i < N; i++) {
            if (i >= used) break;
            n += (rank[i] >= threshold + step) + ((unsigned)(rank[i] >= threshold + 2 * step) << FIELD) +
                 ((unsigned)(rank[i] >= threshold + 3 * step) << 2 * FIELD);
        }
        n = __reduce_add_sync(~0u, n);
        int *of = count + shift / 2 * 3;
        const int mine = lane < 3 ? (int)(n >> lane * FIELD & ((1 << FIELD) - 1)) : 0;
        if (mine) atomicAdd(&of[lane], mine);
        __syncthreads();
        const int digit = of[2] >= k ? 3 : of[1] >= k ? 2 : of[0] >= k ? 1 : 0;
        threshold += (uint64_t)digit * step;
        if (digit && of[digit - 1] <= most) break;
    }
    return threshold;
}

HT_CUDA_KERNEL_OF(512, ht_cuda_top_of_segments, ht_cuda_top_arguments) {
    enum { N = HT_CUDA_TOP_EACH };
    __shared__ int taken;
    const int64_t row = blockIdx.x / a.segments, first = blockIdx.x % a.segments * (int64_t)HT_CUDA_TOP_SEGMENT;
    const int64_t n = a.n - first < HT_CUDA_TOP_SEGMENT ? a.n - first : HT_CUDA_TOP_SEGMENT;
    const float *x = a.x + row * a.n + first;
    uint64_t *out = a.candidates + (int64_t)blockIdx.x * a.room;
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
        for (int i = (int)threadIdx.x; i < a.room; i += HT_CUDA_TOP_THREADS) out[i] = NOT_FINITE;
        return;
    }
    const uint64_t threshold = n > a.room ? threshold_of<N>(rank, N, a.k, a.room) : 1;
#pragma unroll
    for (int i = 0; i < N; i++)
        if (rank[i] >= threshold) out[atomicAdd(&taken, 1)] = rank[i];
    __syncthreads();
    for (int i = taken + (int)threadIdx.x; i < a.room; i += HT_CUDA_TOP_THREADS) out[i] = 0;
}

HT_CUDA_KERNEL_OF(1024, ht_cuda_top_of_rows, ht_cuda_top_arguments) {
    enum { N = HT_CUDA_TOP_ROW_EACH };
    __shared__ int taken;
    __shared__ uint32_t place[HT_CUDA_TOP_MOST];
    const int64_t row = blockIdx.x;
    const int n = a.segments * a.room, t = (int)threadIdx.x;
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
        if (t < a.k) {
            a.id[row * a.k + t] = -1;
            a.value[row * a.k + t] = 0.0f;
        }
        return;
    }
    const uint64_t threshold =
        threshold_of<N>(rank, (n + HT_CUDA_TOP_ROW_THREADS - 1) / HT_CUDA_TOP_ROW_THREADS, a.k, a.k);
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
