/* Rows of x as f16, a row by a block (cuda/tensor_product.h). */
#ifndef HT_CUDA_TENSOR_ROWS_CUH
#define HT_CUDA_TENSOR_ROWS_CUH

#include "cuda/tensor.cuh"
#include "cuda/tensor_product.h"

enum { HT_TOP_OF_ROWS = 14, HT_TOP_OF_WEIGHTS = 11 };

/* The power of two that brings `most` into [2^top, 2^(top + 1)); 1 where it is no number, or 0. */
static __device__ __forceinline__ float ht_power_for(float most, int top) {
    const int exponent = (int)(__float_as_uint(most) >> 23 & 255) - 127; /* most >= 0 */
    if (!(most > 0) || exponent == 128) return 1.0f;
    const int power = top - exponent;
    return __uint_as_float((uint32_t)(127 + (power > 100 ? 100 : power)) << 23);
}

/* The largest of a block's values, whole warps of them, to all threads; NaN is none. */
static __device__ __forceinline__ float ht_block_most(float most) {
    __shared__ float of_warp[32];
    const int warps = (int)blockDim.x / 32;
    for (int by = 16; by; by /= 2) {
        const float other = __shfl_xor_sync(0xffffffffu, most, by);
        most = other > most ? other : most;
    }
    if ((threadIdx.x & 31) == 0) of_warp[threadIdx.x >> 5] = most;
    __syncthreads();
    most = 0;
    for (int w = 0; w < warps; w++) most = of_warp[w] > most ? of_warp[w] : most;
    __syncthreads();
    return most;
}

/* Eight columns in the order of images. */
static __device__ __forceinline__ uint4 ht_chunk_of(const float *w, float factor) {
    return uint4{ht_pair_of(w[0] * factor, w[4] * factor), ht_pair_of(w[1] * factor, w[5] * factor),
                 ht_pair_of(w[2] * factor, w[6] * factor), ht_pair_of(w[3] * factor, w[7] * factor)};
}

/* Row `row` of the image: columns of x, k of them, which are zeros where `x` is NULL. */
static __device__ __forceinline__ void ht_put_row(const ht_cuda_image &to, int64_t row, const float *x, int64_t k,
                                                  float factor) {
    const int64_t group = row / 8, groups = to.n_padded / 8, chunks = (k + HT_CUDA_CUT - 1) / HT_CUDA_CUT * 8;
    if (threadIdx.x == 0 && x) to.inverse[row] = 1.0f / factor;
    for (int64_t at = threadIdx.x; at < chunks; at += blockDim.x) {
        float of[8];
#pragma unroll
        for (int j = 0; j < 8; j++) of[j] = x && at * 8 + j < k ? x[at * 8 + j] : 0.0f;
        *(uint4 *)(to.rows + (at / 8 * groups + group) * HT_CUDA_CUT_BYTES +
                   HT_CUDA_CHUNK_PLACE((int)(row % 8), (int)(at % 8))) = ht_chunk_of(of, factor);
    }
}

#endif
