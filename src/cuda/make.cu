/* Copies and fills. */
#include "cuda/kernel.cuh"
#include "cuda/make.h"

template <typename T> static __device__ void copy(const ht_cuda_copy_arguments &a) {
    const int last = a.to.n_dims - 1;
    const int64_t size = a.to.shape[last], to_step = a.to.stride[last], from_step = a.from.stride[last];
    for (int64_t row = ht_first_row(); row < a.rows; row += ht_row_step()) {
        T *to = (T *)a.to.data + ht_offset_of(a.to, last, row);
        const T *from = (const T *)a.from.data + ht_offset_of(a.from, last, row);
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

/* Padding rows to an odd number of banks puts the elements of a column in different banks. */
template <typename T> static __device__ void transpose(const ht_cuda_transpose_arguments &a) {
    enum { SIDE = HT_CUDA_SQUARE, PITCH = SIDE + (sizeof(T) < 4 ? 4 / sizeof(T) : 1) };
    HT_CUDA_SHARED(T, square);
    const int along = a.to.n_dims - 1, across = along - 1, x = (int)threadIdx.x, y = (int)threadIdx.y;
    const int64_t n_along = a.to.shape[along], n_across = a.to.shape[across];
    const int64_t squares = a.squares_across * a.squares_along;
    for (int64_t k = blockIdx.x; k < a.matrices * squares; k += gridDim.x) {
        const int64_t matrix = k / squares;
        const int64_t i0 = k % squares / a.squares_along * SIDE, j0 = k % a.squares_along * SIDE;
        const T *from = (const T *)a.from.data + ht_offset_of(a.from, across, matrix) + i0 * a.from.stride[across] +
                        j0 * a.from.stride[along];
        T *to =
            (T *)a.to.data + ht_offset_of(a.to, across, matrix) + i0 * a.to.stride[across] + j0 * a.to.stride[along];
        const int high = (int)(n_across - i0 < SIDE ? n_across - i0 : SIDE);
        const int wide = (int)(n_along - j0 < SIDE ? n_along - j0 : SIDE);
#pragma unroll
        for (int j = 0; j < SIDE; j += HT_CUDA_SQUARE_ROWS)
#pragma unroll
            for (int i = 0; i < SIDE; i += 32)
                if (i + x < high && j + y < wide)
                    square[(j + y) * PITCH + i + x] =
                        from[(i + x) * a.from.stride[across] + (j + y) * a.from.stride[along]];
        __syncthreads();
#pragma unroll
        for (int i = 0; i < SIDE; i += HT_CUDA_SQUARE_ROWS)
#pragma unroll
            for (int j = 0; j < SIDE; j += 32)
                if (i + y < high && j + x < wide)
                    to[(i + y) * a.to.stride[across] + (j + x) * a.to.stride[along]] = square[(j + x) * PITCH + i + y];
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
