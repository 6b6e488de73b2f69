/* HEAD_LOSS and its gradient: cross-entropy of an output head, whose logits exist for one slab of the vocabulary at a time. */
#ifndef HT_CPU_HEAD_LOSS_H
#define HT_CPU_HEAD_LOSS_H

#include "device/kernel.h"

ht_kernel_fn ht_cpu_head_loss, ht_cpu_head_loss_grad;
ht_scratch_fn ht_cpu_head_loss_scratch, ht_cpu_head_loss_grad_scratch;

#endif
