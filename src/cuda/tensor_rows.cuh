/* Rows of x as f16, one block per row (cuda/tensor_product.h). */
#ifndef HT_CUDA_TENSOR_ROWS_CUH
#define HT_CUDA_TENSOR_ROWS_CUH

#include "cuda/tensor.cuh"
#include "cuda/tensor_product.h"

enum { HT_TOP_OF_ROWS = 14, HT_TOP_OF_WEIGHTS = 11 };

/* The power of two that scales `most` to [2^top, 2^(top + 1)); 1 if `most` is 0 or not finite. */
static __device__ __forceinline__ float ht_power_for(float most, int top) {
    const int exponent = (int)(__float_as_uint(most) >> 23 & 255) - 127; /* most >= 0 */
    if (!(most > 0) || exponent == 128) return 1.0f;
    const int power = top - exponent;
    return __uint_as_float((uint32_t)(127 + (power > 100 ? 100 : power)) << 23);
}

/* 1 / x of such a power, which is not as large or small as they can be. */
static __device__ __forceinline__ float ht_inverse_of_power(float x) {
    return __uint_as_float((254u << 23) - __float_as_uint(x));
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

/* Two pairs of a step of columns 8 t to 8 t + 7 of row r. */
static __device__ __forceinline__ void ht_put_step(unsigned char *to, bool apart, int r, int t, int step,
                                                   const uint2 &pairs) {
    if (!apart) {
        *(uint2 *)(to + HT_CUDA_STEP_PLACE(r, t, step)) = pairs;
        return;
    }
    *(uint32_t *)(to + HT_CUDA_PAIR_PLACE(r, t, step, 0)) = pairs.x;
    *(uint32_t *)(to + HT_CUDA_PAIR_PLACE(r, t, step, 1)) = pairs.y;
}

/* Columns 8 t to 8 t + 7 of a K-tile in swizzled row r, as pairs 0 4, 1 5, 2 6 and 3 7. */
static __device__ __forceinline__ void ht_store_chunk(unsigned char *to, bool apart, int r, int t, const uint32_t *w) {
    ht_put_step(to, apart, r, t, 0, uint2{w[0], w[1]});
    ht_put_step(to, apart, r, t, 1, uint2{w[2], w[3]});
}

/* Row `row` of the operand: k columns of x, or zeros if `x` is NULL. */
static __device__ __forceinline__ void ht_store_row(const ht_cuda_swizzled &to, int64_t row, const float *x, int64_t k,
                                                    float factor) {
    const int64_t group = row / 8, groups = to.n_padded / 8, chunks = (k + HT_CUDA_K_TILE - 1) / HT_CUDA_K_TILE * 8;
    if (threadIdx.x == 0 && x) to.inverse[row] = 1.0f / factor;
    for (int64_t at = threadIdx.x; at < chunks; at += blockDim.x) {
        float of[8];
#pragma unroll
        for (int j = 0; j < 8; j++) of[j] = x && at * 8 + j < k ? x[at * 8 + j] : 0.0f;
        const uint32_t w[4] = {ht_pair_of(of[0] * factor, of[4] * factor), ht_pair_of(of[1] * factor, of[5] * factor),
                               ht_pair_of(of[2] * factor, of[6] * factor), ht_pair_of(of[3] * factor, of[7] * factor)};
        ht_store_chunk(to.rows + (at / 8 * groups + group) * HT_CUDA_K_TILE_BYTES, to.apart, (int)(row % 8),
                       (int)(at % 8), w);
    }
}

#endif
