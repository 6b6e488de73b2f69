/* Precision of matrix products. */
#ifndef HEARTH_PRECISION_H
#define HEARTH_PRECISION_H

/* In what activations are multiplied with quantised weights. f16 and bf16 weights are multiplied alike in `high` and
 * `fast` (activations rounded to 14 bits), f32 and 8-bit float weights always in f32. On a GPU `high` and `fast` are
 * the same: activations and weights, but for f32 weights, are rounded to 11 bits, with a scale for each row. */
typedef enum ht_precision {
    HT_PRECISION_HIGH, /* the default: activations rounded to 15 bits, so that answers are those of exact arithmetic */
    HT_PRECISION_FAST, /* activations rounded to 8 bits: up to twice as fast for long prompts */
    HT_PRECISION_REFERENCE /* f32 throughout, from exactly dequantised weights: the yardstick, slow */
} ht_precision;

#endif
