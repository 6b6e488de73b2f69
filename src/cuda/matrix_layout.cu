/* Laying out rows of weights: a block of a row by a thread. */
#include "cuda/kernel.cuh"

#ifdef __CUDACC__
#define static static __device__
#endif
#include "formats/blocks.h"
#ifdef __CUDACC__
#undef static
#endif

#include "cuda/matrix_layout.h"

HT_CUDA_KERNEL(ht_cuda_lay_out, ht_cuda_lay_out_arguments) {
    const int64_t blocks = a.first.k / ht_cuda_block_of(&a.first);
    for (int64_t i = ht_first(); i < a.n * blocks; i += ht_step()) {
        ht_cuda_row r = a.first;
        r.stored += i / blocks * a.stored_bytes;
        r.packed += i / blocks * a.row_bytes;
        ht_cuda_move_block(&r, i % blocks);
    }
}
