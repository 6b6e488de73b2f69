/* Precision of matrix products. */
#ifndef HEARTH_PRECISION_H
#define HEARTH_PRECISION_H

/* `fast` quantises activations to 8 bits per block; `reference` computes in f32 from exactly dequantised weights. */
typedef enum ht_precision { HT_PRECISION_FAST, HT_PRECISION_REFERENCE } ht_precision;

#endif
