/* Quantised arrays: groups of consecutive elements of the last axis share a scale. The packing is bit-identical to
 * mlx.core.quantize.
 *
 *   mode     group         element                                   scale
 *   affine   32, 64, 128   scale * q + bias, q of 2 to 6 or 8 bits   floating point, as the bias
 *   mxfp4    32            e2m1                                      e8m0, a power of two (OCP MX)
 *   mxfp8    32            e4m3                                      e8m0, a power of two (OCP MX)
 *   nvfp4    16            e2m1                                      e4m3
 *
 * Element i of a row occupies bits [bits * i, bits * (i + 1)) of the row's u32 words, counted from the lowest bit. */
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
    int32_t group, bits; /* elements per group, bits per element; 0: the mode's default (affine: 64 and 4) */
} ht_quantization;

/* Quantises floating-point w [..., n, k] into parts[0], the packed elements, u32 [..., n, k * bits / 32]; parts[1], the
 * scales [..., n, k / group], of w's dtype for affine, else u8; and parts[2], the biases, shaped as the scales, or
 * HT_NONE for modes other than affine. Returns false, with all parts NULL, on failure. */
HT_API bool ht_quantize(ht_scope *s, ht_array *w, const ht_quantization *how, ht_array *parts[3]);
/* Dequantises to `dtype`, [..., n, k]. `w` is the three parts of ht_quantize, here and below. */
HT_API ht_array *ht_dequantize_groups(ht_scope *s, ht_array *const w[3], const ht_quantization *how, ht_dtype dtype);
/* Matrix product with a quantised w -> [..., m, n]: x [..., m, k] times w^T of w [..., n, k] with `transpose`, else
 * times w [..., k, n]. Leading axes broadcast; x may be a vector [k]. The result has x's dtype, or, for affine, the
 * promoted dtype of x and the scales. */
HT_API ht_array *ht_quantized_matmul(ht_scope *s, ht_array *x, ht_array *const w[3], bool transpose,
                                     const ht_quantization *how);
/* Quantised products of gathered matrices: out[i...] is ht_quantized_matmul of x[left[i...]] and w[right[i...]] ->
 * [i..., m, n]. Indices are as for ht_gather_mm (linalg.h). */
HT_API ht_array *ht_gather_qmm(ht_scope *s, ht_array *x, ht_array *const w[3], ht_array *left, ht_array *right,
                               bool transpose, const ht_quantization *how);

#ifdef __cplusplus
}
#endif
#endif
