/* Copies and fills. */
#include "cuda/make.h"
#include "cuda/grid_rows.cuh"

template <typename T> static __device__ void copy(const ht_cuda_copy_arguments &a) {
    const int last = a.to.n_dims - 1;
    const int64_t size = a.to.shape[last], to_step = a.to.stride[last], from_step = a.from.stride[last];
    for (int64_t row = ht_first_row(); row < a.rows; row += ht_row_step()) {
        T *to = (T *)a.to.data + ht_offset_within(a.to, last, row);
        const T *from = (const T *)a.from.data + ht_offset_within(a.from, last, row);
        for (int64_t i = ht_first_column(); i < size; i += ht_column_step()) to[i * to_step] = from[i * from_step];
    }
}

HT_CUDA_KERNEL(ht_cuda_copy, ht_cuda_copy_arguments) {
    switch (a.bytes) {
    case 1: copy<uint8_t>(a); break;
    case 2: copy<uint16_t>(a); break;
    case 4: copy<uint32_t>(a); break;
    case 8: copy<uint64_t>(a); break;
    default: copy<ht_word16>(a);
    }
}

/* One more column than a square has, so that the elements of a column are in different banks. */
template <typename T> static __device__ void transpose(const ht_cuda_transpose_arguments &a) {
    __shared__ T square[HT_CUDA_SQUARE][HT_CUDA_SQUARE + 1];
    const int along = a.to.n_dims - 1, across = along - 1;
    const int64_t n_along = a.to.shape[along], n_across = a.to.shape[across];
    const int64_t squares = a.squares_across * a.squares_along;
    for (int64_t k = blockIdx.x; k < a.matrices * squares; k += gridDim.x) {
        const int64_t matrix = k / squares;
        const int64_t i0 = k % squares / a.squares_along * HT_CUDA_SQUARE, j0 = k % a.squares_along * HT_CUDA_SQUARE;
        const T *from = (const T *)a.from.data + ht_offset_within(a.from, across, matrix);
        T *to = (T *)a.to.data + ht_offset_within(a.to, across, matrix);
        for (int r = (int)threadIdx.y; r < HT_CUDA_SQUARE; r += HT_CUDA_SQUARE_ROWS) {
            const int64_t i = i0 + threadIdx.x, j = j0 + r;
            if (i < n_across && j < n_along)
                square[r][threadIdx.x] = from[i * a.from.stride[across] + j * a.from.stride[along]];
        }
        __syncthreads();
        for (int r = (int)threadIdx.y; r < HT_CUDA_SQUARE; r += HT_CUDA_SQUARE_ROWS) {
            const int64_t i = i0 + r, j = j0 + threadIdx.x;
            if (i < n_across && j < n_along)
                to[i * a.to.stride[across] + j * a.to.stride[along]] = square[threadIdx.x][r];
        }
        __syncthreads();
    }
}

HT_CUDA_KERNEL(ht_cuda_transpose, ht_cuda_transpose_arguments) {
    switch (a.bytes) {
    case 1: transpose<uint8_t>(a); break;
    case 2: transpose<uint16_t>(a); break;
    case 4: transpose<uint32_t>(a); break;
    default: transpose<uint64_t>(a);
    }
}

HT_CUDA_KERNEL(ht_cuda_sequence, ht_cuda_sequence_arguments) {
    for (int64_t i = ht_first(); i < a.n; i += ht_step()) ht_set_f64(a.dtype, a.out, i, a.value + (double)i * a.step);
}
