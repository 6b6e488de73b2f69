/* The plain kernels, by family; table.c puts them together. */
#ifndef HT_CPU_REFERENCE_REFERENCE_H
#define HT_CPU_REFERENCE_REFERENCE_H

#include "device/kernel.h"

void ht_reference_make(ht_kernel kernels[HT_OP_COUNT]);   /* copy, cast, full, arange */
void ht_reference_unary(ht_kernel kernels[HT_OP_COUNT]);  /* neg ... gelu_tanh, scale, softcap */
void ht_reference_binary(ht_kernel kernels[HT_OP_COUNT]); /* add ... maximum */
void ht_reference_reduce(ht_kernel kernels[HT_OP_COUNT]); /* sum, mean, max, argmax, softmax */
void ht_reference_matmul(ht_kernel kernels[HT_OP_COUNT]);
void ht_reference_take(ht_kernel kernels[HT_OP_COUNT]);
void ht_reference_norm(ht_kernel kernels[HT_OP_COUNT]); /* rms_norm */
void ht_reference_rope(ht_kernel kernels[HT_OP_COUNT]);
void ht_reference_attend(ht_kernel kernels[HT_OP_COUNT]);

#endif
