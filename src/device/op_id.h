/* Operation identifiers: the index of a device's kernel table and of the op table (array/op.h). */
#ifndef HT_DEVICE_OP_ID_H
#define HT_DEVICE_OP_ID_H

/* Each list is X(id, name). Views move no data and have no kernel. */
#define HT_OP_VIEWS(X)                                                                                                 \
    X(LEAF, leaf) /* data, no operation */                                                                             \
    X(RESHAPE, reshape)                                                                                                \
    X(TRANSPOSE, transpose)                                                                                            \
    X(AS_STRIDED, as_strided)                                                                                          \
    X(SLICE, slice)                                                                                                    \
    X(DIAGONAL, diagonal)                                                                                              \
    X(BROADCAST, broadcast)                                                                                            \
    X(VIEW_AS, view_as)             /* the same bytes as another dtype */                                              \
    X(IDENTITY, identity)           /* the same, as a node of its own */                                               \
    X(STOP_GRADIENT, stop_gradient) /* the same, constant to derivatives */                                            \
    X(AFTER, after)                 /* the first, not computed from before the others are */                           \
    X(CUSTOM, custom)               /* a user's function (array/custom.h) */                                           \
    X(CUSTOM_OUT, custom_out)

/* Of one element each of their operands, which have one shape. */
#define HT_OP_ELEMENTWISE(X)                                                                                           \
    X(CAST, cast) /* to another dtype */                                                                               \
    X(NEGATIVE, negative)                                                                                              \
    X(ABS, abs)                                                                                                        \
    X(SIGN, sign)                                                                                                      \
    X(SQUARE, square)                                                                                                  \
    X(SQRT, sqrt)                                                                                                      \
    X(RSQRT, rsqrt)                                                                                                    \
    X(RECIPROCAL, reciprocal)                                                                                          \
    X(EXP, exp)                                                                                                        \
    X(EXPM1, expm1)                                                                                                    \
    X(LOG, log)                                                                                                        \
    X(LOG2, log2)                                                                                                      \
    X(LOG10, log10)                                                                                                    \
    X(LOG1P, log1p)                                                                                                    \
    X(SIN, sin)                                                                                                        \
    X(COS, cos)                                                                                                        \
    X(TAN, tan)                                                                                                        \
    X(ARCSIN, arcsin)                                                                                                  \
    X(ARCCOS, arccos)                                                                                                  \
    X(ARCTAN, arctan)                                                                                                  \
    X(SINH, sinh)                                                                                                      \
    X(COSH, cosh)                                                                                                      \
    X(TANH, tanh)                                                                                                      \
    X(ERF, erf)                                                                                                        \
    X(ERFINV, erfinv)                                                                                                  \
    X(SIGMOID, sigmoid)                                                                                                \
    X(SILU, silu)                                                                                                      \
    X(GELU, gelu)                                                                                                      \
    X(GELU_TANH, gelu_tanh)                                                                                            \
    X(FLOOR, floor)                                                                                                    \
    X(CEIL, ceil)                                                                                                      \
    X(ROUND, round)                                                                                                    \
    X(IS_NAN, is_nan)                                                                                                  \
    X(IS_INF, is_inf)                                                                                                  \
    X(IS_FINITE, is_finite)                                                                                            \
    X(LOGICAL_NOT, logical_not)                                                                                        \
    X(BITWISE_INVERT, bitwise_invert)                                                                                  \
    X(NAN_TO_NUM, nan_to_num)                                                                                          \
    X(ADD, add)                                                                                                        \
    X(SUBTRACT, subtract)                                                                                              \
    X(MULTIPLY, multiply)                                                                                              \
    X(DIVIDE, divide)                                                                                                  \
    X(FLOOR_DIVIDE, floor_divide)                                                                                      \
    X(REMAINDER, remainder)                                                                                            \
    X(POWER, power)                                                                                                    \
    X(LOGADDEXP, logaddexp)                                                                                            \
    X(ARCTAN2, arctan2)                                                                                                \
    X(MINIMUM, minimum)                                                                                                \
    X(MAXIMUM, maximum)                                                                                                \
    X(EQUAL, equal)                                                                                                    \
    X(NOT_EQUAL, not_equal)                                                                                            \
    X(LESS, less)                                                                                                      \
    X(LESS_EQUAL, less_equal)                                                                                          \
    X(LOGICAL_AND, logical_and)                                                                                        \
    X(LOGICAL_OR, logical_or)                                                                                          \
    X(BITWISE_AND, bitwise_and)                                                                                        \
    X(BITWISE_OR, bitwise_or)                                                                                          \
    X(BITWISE_XOR, bitwise_xor)                                                                                        \
    X(LEFT_SHIFT, left_shift)                                                                                          \
    X(RIGHT_SHIFT, right_shift)                                                                                        \
    X(WHERE, where)     /* of two, by a third */                                                                       \
    X(SCALE, scale)     /* x * constant */                                                                             \
    X(SOFTCAP, softcap) /* c * tanh(x / c) */                                                                          \
    X(DRAWN, drawn)     /* a function as random numbers are made with it (base/math_drawn.h) */

/* On arrays alone. */
#define HT_OP_KERNELS(X)                                                                                               \
    HT_OP_ELEMENTWISE(X)                                                                                               \
    X(COPY, copy) /* any strides -> contiguous */                                                                      \
    X(FULL, full) /* one value everywhere */                                                                           \
    X(ARANGE, arange)                                                                                                  \
    X(SUM, sum) /* over the last axis */                                                                               \
    X(PROD, prod)                                                                                                      \
    X(MEAN, mean)                                                                                                      \
    X(MAX, max)                                                                                                        \
    X(MIN, min)                                                                                                        \
    X(ARGMAX, argmax)                                                                                                  \
    X(ARGMIN, argmin)                                                                                                  \
    X(VAR, var)                                                                                                        \
    X(LOGSUMEXP, logsumexp)                                                                                            \
    X(SOFTMAX, softmax)                                                                                                \
    X(CUMSUM, cumsum)                                                                                                  \
    X(CUMPROD, cumprod)                                                                                                \
    X(CUMMAX, cummax)                                                                                                  \
    X(CUMMIN, cummin)                                                                                                  \
    X(LOGCUMSUMEXP, logcumsumexp)                                                                                      \
    X(STRIDED_ADD, strided_add) /* the elements added to zeros, at the places of a window */                           \
    X(RECURRENCE, recurrence)   /* y_i = x_i + d_i * y_(i-1) */                                                        \
    X(CONCATENATE, concatenate)                                                                                        \
    X(TAKE, take)             /* slices of an array by an index of one axis */                                         \
    X(GATHER, gather)         /* by indices of several axes */                                                         \
    X(SCATTER, scatter)       /* put there, or joined with what is there */                                            \
    X(TAKE_ALONG, take_along) /* elements, each by an index of its own */                                              \
    X(PUT_ALONG, put_along)                                                                                            \
    X(SORT, sort)           /* along the last axis */                                                                  \
    X(ARGSORT, argsort)     /* the places that elements come from */                                                   \
    X(PARTITION, partition) /* one element where sorting puts it, between those before and behind it */                \
    X(ARGPARTITION, argpartition)                                                                                      \
    X(RANDOM_BITS, random_bits)                                                                                        \
    X(RANDOM_SUMS, random_sums)                                                                                        \
    X(SLICE_UPDATE, slice_update)                                                                                      \
    X(MATMUL, matmul) /* arrays, batched */                                                                            \
    X(TOP_K, top_k)   /* indices of the largest, over the last axis */                                                 \
    X(RMS_NORM, rms_norm)                                                                                              \
    X(GATHER_MM, gather_mm) /* of matrices by index */                                                                 \
    X(QUANTIZE, quantize)                                                                                              \
    X(DEQUANTIZE, dequantize)                                                                                          \
    X(QUANTIZED_MATMUL, quantized_matmul)                                                                              \
    X(LAYER_NORM, layer_norm)                                                                                          \
    X(RMS_NORM_GRAD, rms_norm_gradient)                                                                                \
    X(LAYER_NORM_GRAD, layer_norm_gradient)                                                                            \
    X(SDPA, scaled_dot_product_attention)                                                                              \
    X(SDPA_GRAD, attention_gradient)                                                                                   \
    X(ROPE, rope)                                                                                                      \
    X(ATTEND, attend) /* append K, V to the caches of the step, then attend */

/* On packed weights. */
#define HT_OP_PACKED(X)                                                                                                \
    X(LINEAR, linear)               /* activations x packed weight */                                                  \
    X(EMBED, embed)                 /* rows of a packed weight by index */                                             \
    X(LINEAR_GATHER, linear_gather) /* activations x those of several packed weights that each row asks for */

/* Calls of compiled functions (array/flat_program.h). */
#define HT_OP_CALLS(X)                                                                                                 \
    X(COMPILED, compiled)                                                                                              \
    X(COMPILED_OUT, compiled_out) /* one of the arrays that it gives */

#define HT_OP_LIST(X) HT_OP_VIEWS(X) HT_OP_KERNELS(X) HT_OP_PACKED(X) HT_OP_CALLS(X)

typedef enum ht_op_id {
#define X(id, name) HT_OP_##id,
    HT_OP_LIST(X)
#undef X
        HT_OP_COUNT
} ht_op_id;

#endif
