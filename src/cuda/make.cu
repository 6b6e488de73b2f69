/* Copies and fills. */
#include "cuda/kernel.cuh"
#include "cuda/make.h"

template <typename T> static __device__ void copy(const ht_cuda_copy_arguments &a) {
    T *to = (T *)a.to.data;
    const T *from = (const T *)a.from.data;
    for (int64_t i = ht_first(); i < a.n; i += ht_step())
        to[ht_offset_of(a.to, a.to.n_dims, i)] = from[ht_offset_of(a.from, a.from.n_dims, i)];
}

HT_CUDA_KERNEL(ht_cuda_copy, ht_cuda_copy_arguments) {
    switch (a.bytes) {
    case 1: copy<uint8_t>(a); break;
    case 2: copy<uint16_t>(a); break;
    case 4: copy<uint32_t>(a); break;
    default: copy<uint64_t>(a);
    }
}

HT_CUDA_KERNEL(ht_cuda_sequence, ht_cuda_sequence_arguments) {
    for (int64_t i = ht_first(); i < a.n; i += ht_step()) ht_set_f64(a.dtype, a.out, i, a.value + (double)i * a.step);
}
