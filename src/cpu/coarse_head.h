/* Coarse output heads: 8-bit weights in two parts, so that finding the highest outputs reads two thirds of them.
 *
 * A stored weight plus 128 is u = 8 h + l, with h of 5 bits and l of 3. Panels (cpu/pack.h) are stored in two regions:
 * one with 5-bit units of h and the scales, one with 3-bit units of l. A full product joins both, bit-identical to that
 * of plain Q8_0 panels.
 *
 * The highest outputs of one row x: l x is at most 7 x where x is positive, else at most 0. So the integer sum of a
 * block is at most
 *
 *   8 * sum of h x + 7 * sum of positive x - 128 * sum of x
 *
 * and an output computed from these sums, in the order of cpu/matrix_kernels.h, is an upper bound. No tolerance is
 * needed: multiplication by scales that are not negative preserves order, and so does rounding. Panels with the highest
 * bounds are computed in full. The top_k-th highest output found is the threshold; other panels are computed only if
 * their bounds reach it. */
#ifndef HT_CPU_COARSE_HEAD_H
#define HT_CPU_COARSE_HEAD_H

#include "cpu/gemm_schedule.h"

enum {
    HT_COARSE_BITS_UNIT = 5, /* bits */
    HT_FINE_BITS_UNIT = 3,
    HT_COARSE_SCALES = 2 * HT_PANEL /* bytes per block */
};

/* Bytes of a panel in either region. */
static inline size_t ht_coarse_head_coarse_bytes(int64_t n_blocks) {
    return ((size_t)n_blocks * (64 * HT_COARSE_BITS_UNIT + HT_COARSE_SCALES) + 63) & ~(size_t)63;
}
static inline size_t ht_coarse_head_fine_bytes(int64_t n_blocks) { return (size_t)n_blocks * 64 * HT_FINE_BITS_UNIT; }

/* The functions of ht_matrix_ops that differ from those of other quantised panels. */
size_t ht_coarse_head_bytes(ht_weight_type type, int64_t n_rows, int64_t k);
ht_status ht_coarse_head_pack(ht_matrix *m, int64_t row, int64_t n, const void *stored, ht_error *err);
ht_status ht_coarse_head_row(const ht_matrix *m, int64_t row, float *out, ht_error *err); /* never fails */
size_t ht_coarse_head_top_bytes(const ht_matrix *m);

/* Both parts of the panels from `panel` on. */
ht_coarse_panels ht_coarse_panels_at(const ht_matrix *m, int64_t panel);

/* Finds the highest outputs of the only product of s for its only row of activations. False when all outputs must be
 * computed: several rows, too many wanted outputs, or numbers for which the bounds do not hold. */
bool ht_coarse_head_top(const ht_gemm_schedule *s, ht_pool *pool);
size_t ht_coarse_head_top_scratch(const ht_matrix *m);

#endif
