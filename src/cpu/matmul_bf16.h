/* Products of bf16 arrays by instructions for them: tiles (cpu/vector/matmul_tiles.c), or dot products of pairs
 * (cpu/vector/matmul.c with HT_PAIRS); and both in plain C. */
#ifndef HT_CPU_MATMUL_BF16_H
#define HT_CPU_MATMUL_BF16_H

#include "cpu/reference/reference.h"

enum { HT_TILES_TRIAL = 4 * 32 * 32 };

/* Kernels of MATMUL that leave other dtypes to that of the set whose kernels are shared; the plain ones, `tiles` and `pairs`,
 * to the plain one. */
extern const ht_kernel ht_matmul_bf16_tiles, ht_matmul_bf16_amx;
extern const ht_kernel ht_matmul_bf16_pairs, ht_matmul_bf16_avx512bf16;

/* That which takes what they leave, in a set that adds them to another one, and for plain lanes. */
#if defined(HT_ISA_amx) || defined(HT_ISA_avx512bf16)
extern const ht_kernel ht_matmul_kernel_avx512;
#define HT_MATMUL_BESIDE ht_matmul_kernel_avx512
#else
#define HT_MATMUL_BESIDE ht_plain_matmul_kernel
#endif

/* The sums of small products of whole tiles and of parts: the same bits as the plain one, or the tiles are not what is
 * expected. */
void ht_tiles_trial_tiles(float sums[HT_TILES_TRIAL]);
void ht_tiles_trial_amx(float sums[HT_TILES_TRIAL]);

static inline bool ht_matmul_bf16_takes(const ht_call *call) {
    return call->in[0].dtype == HT_BF16 && call->in[1].dtype == HT_BF16 && call->out.dtype == HT_BF16 &&
           ht_view_size(&call->out) > 0 && ht_matmul_shape_of(call).k > 0;
}

#endif
