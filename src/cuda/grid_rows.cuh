/* Rows of elements, one thread for each element of a launch of ht_cuda_grid_of_rows (cuda/cuda.h): the threads of a warp have neighbouring
 * elements of a row, or of neighbouring rows where rows are short. */
#ifndef HT_CUDA_GRID_ROWS_CUH
#define HT_CUDA_GRID_ROWS_CUH

#include "cuda/kernel.cuh"

/* for (int64_t row = ht_first_row(); row < n; row += ht_row_step()) */
static inline __device__ int64_t ht_first_row(void) { return (int64_t)blockIdx.x * blockDim.y + threadIdx.y; }
static inline __device__ int64_t ht_row_step(void) { return (int64_t)gridDim.x * blockDim.y; }

/* for (int64_t i = ht_first_column(); i < size; i += ht_column_step()) */
static inline __device__ int64_t ht_first_column(void) { return (int64_t)blockIdx.y * blockDim.x + threadIdx.x; }
static inline __device__ int64_t ht_column_step(void) { return (int64_t)gridDim.y * blockDim.x; }

/* ht_offset_of for an item within the view, without the division by its first axis. */
static inline __device__ int64_t ht_offset_within(const ht_cuda_view &v, int n_dims, int64_t flat) {
    int64_t offset = 0;
    for (int d = n_dims - 1; d > 0; d--) {
        offset += flat % v.shape[d] * v.stride[d];
        flat /= v.shape[d];
    }
    return n_dims > 0 ? offset + flat * v.stride[0] : 0;
}

/* Sixteen bytes that are moved at once. */
struct alignas(16) ht_word16 {
    uint64_t low, high;
};

#endif
