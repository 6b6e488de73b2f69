/* Attention over arrays and over cache pages, and adapters. */
#include "cuda/attention.h"

#include "cuda/cuda.h"

const ht_kv_ops ht_cuda_kv = {.page_bytes = ht_kv_saved_page_bytes};

void ht_cuda_attention_kernels(ht_kernel *kernels) { (void)kernels; }
