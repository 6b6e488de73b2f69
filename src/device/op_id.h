/* Operation identifiers: the index of a device's kernel table and of the op table (array/op.h). */
#ifndef HT_DEVICE_OP_ID_H
#define HT_DEVICE_OP_ID_H

/* Each list is X(id, name). Views move no data: they have no kernel. */
#define HT_OP_VIEWS(X)                                                                                                 \
    X(LEAF, leaf) /* data, no inputs */                                                                                \
    X(RESHAPE, reshape)                                                                                                \
    X(TRANSPOSE, transpose)                                                                                            \
    X(AS_STRIDED, as_strided)                                                                                          \
    X(SLICE, slice)                                                                                                    \
    X(DIAGONAL, diagonal)                                                                                              \
    X(BROADCAST, broadcast)                                                                                            \
    X(VIEW_AS, view_as)             /* bytes reinterpreted as another dtype */                                         \
    X(IDENTITY, identity)           /* x as a separate node */                                                         \
    X(STOP_GRADIENT, stop_gradient) /* x, constant to derivatives */                                                   \
    X(AFTER, after)                 /* the first input, ordered after the evaluation of the others */                  \
    X(CUSTOM, custom)               /* a user's function (array/custom.h) */                                           \
    X(CUSTOM_OUT, custom_out)

/* Elementwise operations; all operands have one shape. */
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
    X(WHERE, where)     /* condition ? a : b */                                                                        \
    X(SCALE, scale)     /* x * constant */                                                                             \
    X(SOFTCAP, softcap) /* c * tanh(x / c) */                                                                          \
    X(DRAWN, drawn)     /* functions of random distributions, with MLX's bits (base/math_drawn.h) */

/* Operations on arrays, without packed weights. */
#define HT_OP_KERNELS(X)                                                                                               \
    HT_OP_ELEMENTWISE(X)                                                                                               \
    X(COPY, copy) /* any strides -> contiguous */                                                                      \
    X(FULL, full) /* constant */                                                                                       \
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
    X(STRIDED_ADD, strided_add) /* adjoint of AS_STRIDED: elements added into zeros */                                 \
    X(RECURRENCE, recurrence)   /* y_i = x_i + d_i * y_(i-1) */                                                        \
    X(CONCATENATE, concatenate)                                                                                        \
    X(TAKE, take)             /* slices by an index of one axis */                                                     \
    X(GATHER, gather)         /* slices by indices of several axes */                                                  \
    X(SCATTER, scatter)       /* inverse of GATHER: sets or combines slices */                                         \
    X(TAKE_ALONG, take_along) /* one index per element (take_along_axis) */                                            \
    X(PUT_ALONG, put_along)                                                                                            \
    X(SORT, sort)           /* along the last axis */                                                                  \
    X(ARGSORT, argsort)     /* indices of the sorted elements */                                                       \
    X(PARTITION, partition) /* around the kth element of the sorted axis */                                            \
    X(ARGPARTITION, argpartition)                                                                                      \
    X(RANDOM_BITS, random_bits)                                                                                        \
    X(RANDOM_SUMS, random_sums)                                                                                        \
    X(SLICE_UPDATE, slice_update)                                                                                      \
    X(MATMUL, matmul) /* batched */                                                                                    \
    X(TOP_K, top_k)   /* indices of the k largest, last axis */                                                        \
    X(RMS_NORM, rms_norm)                                                                                              \
    X(GATHER_MM, gather_mm) /* matrices by index */                                                                    \
    X(QUANTIZE, quantize)                                                                                              \
    X(DEQUANTIZE, dequantize)                                                                                          \
    X(QUANTIZED_MATMUL, quantized_matmul)                                                                              \
    X(LAYER_NORM, layer_norm)                                                                                          \
    X(RMS_NORM_GRAD, rms_norm_gradient)                                                                                \
    X(LAYER_NORM_GRAD, layer_norm_gradient)                                                                            \
    X(SDPA, scaled_dot_product_attention)                                                                              \
    X(SDPA_GRAD, attention_gradient)                                                                                   \
    X(ATTEND_ROWS, attend_rows) /* flat rows of many sequences, without caches */                                      \
    X(ATTEND_ROWS_GRAD, attend_rows_gradient)                                                                          \
    X(ROPE, rope)                                                                                                      \
    X(ATTEND, attend)         /* append K and V to the KV caches of the step, then attend */                           \
    X(SHORT_CONV, short_conv) /* causal convolution over rows, whose last inputs are in the state of the step */       \
    X(STATE_SCAN, state_scan) /* recurrence of matrices over rows, which are in the state of the step */               \
    X(STATE_SCAN_ROWS, state_scan_rows) /* flat rows of many sequences, without states */                              \
    X(STATE_SCAN_ROWS_GRAD, state_scan_rows_gradient)                                                                  \
    X(LORA, lora) /* add the adapters of each row's sequence to a projection */

/* Operations on packed weights. */
#define HT_OP_PACKED(X)                                                                                                \
    X(LINEAR, linear)           /* activations x packed weight */                                                      \
    X(LINEAR_BACK, linear_back) /* gradients x transposed packed weight */                                             \
    X(HEAD_LOSS, head_loss)     /* cross-entropy of a head's logits, which are never in memory as a whole */           \
    X(HEAD_LOSS_GRAD, head_loss_grad)                                                                                  \
    X(EMBED, embed)                           /* rows of a packed weight by index */                                   \
    X(LINEAR_GATHER, linear_gather)           /* activations x packed expert weights that each row selects */          \
    X(LINEAR_GATHER_BACK, linear_gather_back) /* gradients x those, transposed */

/* Calls of compiled functions (array/flat_program.h). */
#define HT_OP_CALLS(X)                                                                                                 \
    X(COMPILED, compiled)                                                                                              \
    X(COMPILED_OUT, compiled_out) /* one result of a COMPILED node */

#define HT_OP_LIST(X) HT_OP_VIEWS(X) HT_OP_KERNELS(X) HT_OP_PACKED(X) HT_OP_CALLS(X)

typedef enum ht_op_id {
#define X(id, name) HT_OP_##id,
    HT_OP_LIST(X)
#undef X
        HT_OP_COUNT
} ht_op_id;

#endif
