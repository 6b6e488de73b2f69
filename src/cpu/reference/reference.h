/* The plain kernels, one for every operation that has a kernel (those on packed weights are in cpu/linear.h). They take any
 * dtype for which the operation is defined, any strides, and arrays without elements. */
#ifndef HT_CPU_REFERENCE_REFERENCE_H
#define HT_CPU_REFERENCE_REFERENCE_H

#include "device/kernel.h"

#define HT_REFERENCE_LIST(X)                                                                                           \
    X(COPY, copy)                                                                                                      \
    X(CAST, cast)                                                                                                      \
    X(FULL, full)                                                                                                      \
    X(ARANGE, arange)                                                                                                  \
    X(NEG, neg)                                                                                                        \
    X(ABS, abs)                                                                                                        \
    X(SQUARE, square)                                                                                                  \
    X(SQRT, sqrt)                                                                                                      \
    X(RSQRT, rsqrt)                                                                                                    \
    X(EXP, exp)                                                                                                        \
    X(LOG, log)                                                                                                        \
    X(SIN, sin)                                                                                                        \
    X(COS, cos)                                                                                                        \
    X(TANH, tanh)                                                                                                      \
    X(SIGMOID, sigmoid)                                                                                                \
    X(SILU, silu)                                                                                                      \
    X(GELU_TANH, gelu_tanh)                                                                                            \
    X(ADD, add)                                                                                                        \
    X(SUB, sub)                                                                                                        \
    X(MUL, mul)                                                                                                        \
    X(DIV, div)                                                                                                        \
    X(MINIMUM, minimum)                                                                                                \
    X(MAXIMUM, maximum)                                                                                                \
    X(SCALE, scale)                                                                                                    \
    X(SOFTCAP, softcap)                                                                                                \
    X(SUM, sum)                                                                                                        \
    X(MEAN, mean)                                                                                                      \
    X(MAX, max)                                                                                                        \
    X(ARGMAX, argmax)                                                                                                  \
    X(SOFTMAX, softmax)                                                                                                \
    X(MATMUL, matmul)                                                                                                  \
    X(TAKE, take)                                                                                                      \
    X(RMS_NORM, rms_norm)                                                                                              \
    X(ROPE, rope)                                                                                                      \
    X(ATTEND, attend)

#define X(id, name) ht_kernel_fn ht_plain_##name;
HT_REFERENCE_LIST(X)
#undef X

ht_scratch_fn ht_plain_attend_scratch;

#endif
