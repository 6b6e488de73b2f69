/* Elementwise kernels of one instruction set: vector block functions where available for the dtypes, else the plain
 * kernel. */
#include "cpu/reference/reference.h"
#include "cpu/vector/elementwise.h"
#include "cpu/vector/vector.h"

static ht_elementwise_fn *function_of(const ht_call *call, ht_op_id op) {
    return HT_ISA_NAME(ht_find_elementwise)(op, call->in[call->n_in - 1].dtype, call->out.dtype);
}

static ht_status run(const ht_call *call, ht_op_id op, ht_kernel_fn *plain, ht_error *err) {
    ht_elementwise_fn *fn = function_of(call, op);
    if (!fn) return plain(call, err);
    ht_elementwise_run(call, op, fn);
    return HT_OK;
}

#define RUN(id, name)                                                                                                  \
    static ht_status name##_run(const ht_call *call, ht_error *err) {                                                  \
        return run(call, HT_OP_##id, ht_plain_##name, err);                                                            \
    }
HT_OP_ELEMENTWISE(RUN)

/* Row-wise kernels (device/kernel.h), which models use between matrix products. */
#define EACH_ROWWISE(X)                                                                                                \
    X(CAST, cast)                                                                                                      \
    X(NEGATIVE, negative)                                                                                              \
    X(ABS, abs)                                                                                                        \
    X(SQUARE, square)                                                                                                  \
    X(SQRT, sqrt)                                                                                                      \
    X(RSQRT, rsqrt)                                                                                                    \
    X(RECIPROCAL, reciprocal)                                                                                          \
    X(EXP, exp)                                                                                                        \
    X(LOG, log)                                                                                                        \
    X(TANH, tanh)                                                                                                      \
    X(SIGMOID, sigmoid)                                                                                                \
    X(SILU, silu)                                                                                                      \
    X(GELU_TANH, gelu_tanh)                                                                                            \
    X(SCALE, scale)                                                                                                    \
    X(SOFTCAP, softcap)                                                                                                \
    X(ADD, add)                                                                                                        \
    X(SUBTRACT, subtract)                                                                                              \
    X(MULTIPLY, multiply)                                                                                              \
    X(DIVIDE, divide)                                                                                                  \
    X(MINIMUM, minimum)                                                                                                \
    X(MAXIMUM, maximum)

#define ROWS(id, name)                                                                                                 \
    static void name##_rows(const ht_call *call, int64_t begin, int64_t end) {                                         \
        ht_elementwise_run_rows(call, HT_OP_##id, function_of(call, HT_OP_##id), begin, end);                          \
    }
EACH_ROWWISE(ROWS)

void HT_ISA_NAME(ht_vector_elementwise)(ht_kernel kernels[HT_OP_COUNT]) {
#define X(id, name) kernels[HT_OP_##id].run = name##_run;
    HT_OP_ELEMENTWISE(X)
#undef X
}

void HT_ISA_NAME(ht_vector_elementwise_rows)(ht_rows_fn *rows[HT_OP_COUNT]) {
#define X(id, name) rows[HT_OP_##id] = name##_rows;
    EACH_ROWWISE(X)
#undef X
}
