/* Products of bf16 arrays in tiles (cpu/vector/matmul_bf16.c): with the instructions, for each set that has them, and in
 * plain C. */
#ifndef HT_CPU_TILES_H
#define HT_CPU_TILES_H

#include "device/kernel.h"

enum { HT_TILES_TRIAL = 4 * 32 * 32 };

/* The kernel of MATMUL, which leaves other dtypes to that of the set whose kernels are shared; the plain one to the plain one.
 * The trial gives the sums of small products of whole tiles and of parts: the same bits as the plain one, or the tiles are
 * not what is expected. */
#define HT_DECLARE_TILES(name)                                                                                         \
    extern const ht_kernel ht_matmul_bf16_##name;                                                                      \
    void ht_tiles_trial_##name(float sums[HT_TILES_TRIAL]);
HT_DECLARE_TILES(reference)
HT_DECLARE_TILES(amx)
#undef HT_DECLARE_TILES

#endif
