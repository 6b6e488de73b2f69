/* Losses over rows of logits, of one instruction set; see cpu/matrix_kernels.h. */
#ifndef HT_CPU_VECTOR_MATRIX_LOSS_H
#define HT_CPU_VECTOR_MATRIX_LOSS_H

#include "cpu/matrix_kernels.h"
#include "cpu/vector/simd.h"

void HT_ISA_NAME(ht_loss_sums)(float *logits, int n, float scale, float cap, ht_loss_state *state);
void HT_ISA_NAME(ht_loss_gradients)(float *logits, int n, float scale, float cap, float lse, float factor, int target);

#endif
