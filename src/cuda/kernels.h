/* Kernels by name, with their module (a file of this folder). */
#ifndef HT_CUDA_KERNELS_H
#define HT_CUDA_KERNELS_H

#include "cuda/attend.h"
#include "cuda/attention.h"
#include "cuda/elementwise.h"
#include "cuda/experts.h"
#include "cuda/head_loss.h"
#include "cuda/index.h"
#include "cuda/lora.h"
#include "cuda/make.h"
#include "cuda/matrix_layout.h"
#include "cuda/measure.h"
#include "cuda/norm.h"
#include "cuda/product.h"
#include "cuda/reduce.h"
#include "cuda/sort.h"
#include "cuda/stage.h"
#include "cuda/state.h"
#include "cuda/tensor_product.h"
#include "cuda/top.h"

/* X(module): modules with kernels of the device's table, then all others. */
#define HT_CUDA_OPERATIONS(X)                                                                                          \
    X(attend)                                                                                                          \
    X(attention)                                                                                                       \
    X(elementwise) X(index) X(lora) X(make) X(matrix) X(norm) X(product) X(reduce) X(sort) X(state)
#define HT_CUDA_MODULES(X)                                                                                             \
    HT_CUDA_OPERATIONS(X)                                                                                              \
    X(experts)                                                                                                         \
    X(gemm_large)                                                                                                      \
    X(gemm_medium) X(head_loss) X(matrix_layout) X(measure) X(stage) X(state_gradient) X(tensor_product) X(top)

/* X(module, kernel) */
#define HT_CUDA_KERNELS(X)                                                                                             \
    HT_CUDA_KERNELS_OF_ATTEND(X)                                                                                       \
    HT_CUDA_KERNELS_OF_ATTENTION(X)                                                                                    \
    HT_CUDA_KERNELS_OF_ELEMENTWISE(X)                                                                                  \
    HT_CUDA_KERNELS_OF_EXPERTS(X)                                                                                      \
    HT_CUDA_KERNELS_OF_HEAD_LOSS(X)                                                                                    \
    HT_CUDA_KERNELS_OF_INDEX(X)                                                                                        \
    HT_CUDA_KERNELS_OF_LORA(X)                                                                                         \
    HT_CUDA_KERNELS_OF_MAKE(X)                                                                                         \
    HT_CUDA_KERNELS_OF_MATRIX(X)                                                                                       \
    HT_CUDA_KERNELS_OF_MATRIX_LAYOUT(X)                                                                                \
    HT_CUDA_KERNELS_OF_MEASURE(X)                                                                                      \
    HT_CUDA_KERNELS_OF_NORM(X)                                                                                         \
    HT_CUDA_KERNELS_OF_PRODUCT(X)                                                                                      \
    HT_CUDA_KERNELS_OF_REDUCE(X)                                                                                       \
    HT_CUDA_KERNELS_OF_SORT(X)                                                                                         \
    HT_CUDA_KERNELS_OF_STAGE(X)                                                                                        \
    HT_CUDA_KERNELS_OF_STATE(X)                                                                                        \
    HT_CUDA_KERNELS_OF_TENSOR_PRODUCT(X)                                                                               \
    HT_CUDA_KERNELS_OF_GEMM_MEDIUM(X)                                                                                  \
    HT_CUDA_KERNELS_OF_GEMM_LARGE(X)                                                                                   \
    HT_CUDA_KERNELS_OF_TOP(X)

typedef enum ht_cuda_module_id {
#define X(module) HT_CUDA_MODULE_##module,
    HT_CUDA_MODULES(X)
#undef X
        HT_CUDA_MODULE_COUNT
} ht_cuda_module_id;

typedef enum ht_cuda_kernel_id {
#define X(module, kernel) HT_CUDA_ID_##kernel,
    HT_CUDA_KERNELS(X)
#undef X
        HT_CUDA_KERNEL_COUNT
} ht_cuda_kernel_id;

#endif
