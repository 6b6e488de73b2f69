/* Quantised arrays: groups of neighbouring elements of the last axis share a scale, bit for bit as mlx.core.quantize
 * packs them.
 *
 *   affine   groups of 32, 64 or 128; an element is scale * q + bias with q of 2, 3, 4, 5, 6 or 8 bits
 *   mxfp4    groups of 32 in e2m1, times a power of two (a scale of 8 bits, e8m0)
 *   mxfp8    groups of 32 in e4m3, times a power of two
 *   nvfp4    groups of 16 in e2m1, times an e4m3
 *
 * Element i of a row takes bits [bits * i, bits * (i + 1)) of the row's u32 words, the lowest first. */
#ifndef HEARTH_QUANTIZE_H
#define HEARTH_QUANTIZE_H

#include <hearth/array.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum ht_quantization_mode {
    HT_QUANT_AFFINE,
    HT_QUANT_MXFP4,
    HT_QUANT_MXFP8,
    HT_QUANT_NVFP4
} ht_quantization_mode;

typedef struct ht_quantization {
    ht_quantization_mode mode;
    int32_t group, bits; /* 0: the mode's own; 64 and 4 for affine */
} ht_quantization;

/* w [..., n, k] of floating point -> parts[0] u32 [..., n, k * bits / 32], parts[1] the scales [..., n, k / group], of w's
 * dtype with affine, else u8, and parts[2] the biases, HT_NONE for other modes. False, and all NULL, on failure. */
HT_API bool ht_quantize(ht_scope *s, ht_array *w, const ht_quantization *how, ht_array *parts[3]);
/* The elements, of the given dtype. */
HT_API ht_array *ht_dequantize_groups(ht_scope *s, ht_array *numbers, ht_array *scales, ht_array *biases,
                                      const ht_quantization *how, ht_dtype dtype);
/* x [..., m, k] by the quantised w [..., n, k], transposed, -> [..., m, n], or by w [..., k, n] as it is; leading axes
 * broadcast, x may be a vector. The result has x's dtype, with affine the one in which x and the scales meet. */
HT_API ht_array *ht_quantized_matmul(ht_scope *s, ht_array *x, ht_array *numbers, ht_array *scales, ht_array *biases,
                                     bool transpose, const ht_quantization *how);
/* The same of matrix left[i] of x by matrix right[i] of w, for every i: matrices are counted over all leading axes. The
 * indices broadcast, and HT_NONE counts up over the leading axes; -> [i..., m, n]. An index outside is an error of
 * evaluation. */
HT_API ht_array *ht_gather_qmm(ht_scope *s, ht_array *x, ht_array *numbers, ht_array *scales, ht_array *biases,
                               ht_array *left, ht_array *right, bool transpose, const ht_quantization *how);

#ifdef __cplusplus
}
#endif
#endif
