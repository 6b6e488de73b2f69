/* Functions of one and of two elements for f32, f16 and bf16: sixteen at a time, any strides. */
#include "cpu/reference/reference.h"
#include "cpu/vector/lanes.h"
#include "cpu/vector/math.h"
#include "cpu/vector/vector.h"
#include "cpu/walk.h"
#include "device/params.h"

typedef v16f unary_fn(v16f x, v16f parameter);
typedef v16f binary_fn(v16f a, v16f b);

HT_INLINE void unary_span(const ht_call *call, const ht_span *s, v16f parameter, unary_fn *f) {
    const ht_view *x = &call->in[0], *out = &call->out;
    int64_t i = 0;
    if (x->dtype == HT_F32 && out->dtype == HT_F32 && s->stride[1] == 1) {
        const float *in = (const float *)x->data + s->offset[1];
        float *to = (float *)out->data + s->offset[0];
        for (; i + 16 <= s->n; i += 16) v16f_store(to + i, f(v16f_load(in + i), parameter));
    }
    for (; i < s->n; i += 16) {
        int n = lanes_of(s->n - i);
        v16f v = lanes_load(x->dtype, x->data, s->offset[1] + i * s->stride[1], s->stride[1], n);
        lanes_store(out->dtype, out->data, s->offset[0] + i, f(v, parameter), n);
    }
}

HT_INLINE void binary_span(const ht_call *call, const ht_span *s, binary_fn *f) {
    const ht_view *x = &call->in[0], *y = &call->in[1], *out = &call->out;
    int64_t i = 0;
    if (out->dtype == HT_F32 && s->stride[1] == 1 && s->stride[2] == 1) {
        const float *a = (const float *)x->data + s->offset[1], *b = (const float *)y->data + s->offset[2];
        float *to = (float *)out->data + s->offset[0];
        for (; i + 16 <= s->n; i += 16) v16f_store(to + i, f(v16f_load(a + i), v16f_load(b + i)));
    }
    for (; i < s->n; i += 16) {
        int n = lanes_of(s->n - i);
        v16f a = lanes_load(x->dtype, x->data, s->offset[1] + i * s->stride[1], s->stride[1], n);
        v16f b = lanes_load(y->dtype, y->data, s->offset[2] + i * s->stride[2], s->stride[2], n);
        lanes_store(out->dtype, out->data, s->offset[0] + i, f(a, b), n);
    }
}

static float parameter_of(const ht_call *call) { return ((const ht_scale_params *)call->params)->value; }

#define UNARY(name, grain, parameter, expression)                                                                      \
    HT_INLINE v16f name##_lanes(v16f x, v16f p) {                                                                      \
        (void)p;                                                                                                       \
        return expression;                                                                                             \
    }                                                                                                                  \
    static void name##_span(const ht_call *call, const ht_span *s) {                                                   \
        unary_span(call, s, v16f_set1(parameter), name##_lanes);                                                       \
    }                                                                                                                  \
    static ht_status name##_run(const ht_call *call, ht_error *err) {                                                  \
        if (!lanes_take(call->in[0].dtype) || !lanes_take(call->out.dtype)) return ht_plain_##name(call, err);         \
        ht_elementwise(call, grain, name##_span);                                                                      \
        return HT_OK;                                                                                                  \
    }                                                                                                                  \
    static void name##_rows(const ht_call *call, int64_t begin, int64_t end) {                                         \
        ht_elementwise_rows(call, begin, end, name##_span);                                                            \
    }

UNARY(cast, HT_GRAIN_CHEAP, 0.0f, x)
UNARY(negative, HT_GRAIN_CHEAP, 0.0f, v16f_neg(x))
UNARY(abs, HT_GRAIN_CHEAP, 0.0f, v16f_abs(x))
UNARY(square, HT_GRAIN_CHEAP, 0.0f, v16f_mul(x, x))
UNARY(sqrt, HT_GRAIN_CHEAP, 0.0f, v16f_sqrt(x))
UNARY(rsqrt, HT_GRAIN_CHEAP, 1.0f, v16f_div(p, v16f_sqrt(x)))
UNARY(reciprocal, HT_GRAIN_CHEAP, 1.0f, v16f_div(p, x))
UNARY(exp, HT_GRAIN_MATH, 0.0f, v16f_exp(x))
UNARY(log, HT_GRAIN_MATH, 0.0f, v16f_log(x))
UNARY(tanh, HT_GRAIN_MATH, 0.0f, v16f_tanh(x))
UNARY(sigmoid, HT_GRAIN_MATH, 0.0f, v16f_sigmoid(x))
UNARY(silu, HT_GRAIN_MATH, 0.0f, v16f_silu(x))
UNARY(gelu_tanh, HT_GRAIN_MATH, 0.0f, v16f_gelu_tanh(x))
UNARY(scale, HT_GRAIN_CHEAP, parameter_of(call), v16f_mul(x, p))
UNARY(softcap, HT_GRAIN_MATH, parameter_of(call), v16f_mul(p, v16f_tanh(v16f_div(x, p))))

#define BINARY(name, expression)                                                                                       \
    HT_INLINE v16f name##_lanes(v16f a, v16f b) { return expression; }                                                 \
    static void name##_span(const ht_call *call, const ht_span *s) { binary_span(call, s, name##_lanes); }             \
    static ht_status name##_run(const ht_call *call, ht_error *err) {                                                  \
        if (!lanes_take(call->out.dtype)) return ht_plain_##name(call, err);                                           \
        ht_elementwise(call, HT_GRAIN_CHEAP, name##_span);                                                             \
        return HT_OK;                                                                                                  \
    }                                                                                                                  \
    static void name##_rows(const ht_call *call, int64_t begin, int64_t end) {                                         \
        ht_elementwise_rows(call, begin, end, name##_span);                                                            \
    }

BINARY(add, v16f_add(a, b))
BINARY(subtract, v16f_sub(a, b))
BINARY(multiply, v16f_mul(a, b))
BINARY(divide, v16f_div(a, b))
/* A NaN on the right comes out by itself, one on the left is put back. */
BINARY(minimum, v16f_select(v16f_is_nan(a), a, v16f_min(a, b)))
BINARY(maximum, v16f_select(v16f_is_nan(a), a, v16f_max(a, b)))

#define KERNEL(name)                                                                                                   \
    (ht_kernel) { .run = name##_run, .rows = name##_rows }

void HT_ISA_NAME(ht_vector_elementwise)(ht_kernel kernels[HT_OP_COUNT]) {
    kernels[HT_OP_CAST] = KERNEL(cast);
    kernels[HT_OP_NEGATIVE] = KERNEL(negative);
    kernels[HT_OP_ABS] = KERNEL(abs);
    kernels[HT_OP_SQUARE] = KERNEL(square);
    kernels[HT_OP_SQRT] = KERNEL(sqrt);
    kernels[HT_OP_RSQRT] = KERNEL(rsqrt);
    kernels[HT_OP_RECIPROCAL] = KERNEL(reciprocal);
    kernels[HT_OP_EXP] = KERNEL(exp);
    kernels[HT_OP_LOG] = KERNEL(log);
    kernels[HT_OP_TANH] = KERNEL(tanh);
    kernels[HT_OP_SIGMOID] = KERNEL(sigmoid);
    kernels[HT_OP_SILU] = KERNEL(silu);
    kernels[HT_OP_GELU_TANH] = KERNEL(gelu_tanh);
    kernels[HT_OP_SCALE] = KERNEL(scale);
    kernels[HT_OP_SOFTCAP] = KERNEL(softcap);
    kernels[HT_OP_ADD] = KERNEL(add);
    kernels[HT_OP_SUBTRACT] = KERNEL(subtract);
    kernels[HT_OP_MULTIPLY] = KERNEL(multiply);
    kernels[HT_OP_DIVIDE] = KERNEL(divide);
    kernels[HT_OP_MINIMUM] = KERNEL(minimum);
    kernels[HT_OP_MAXIMUM] = KERNEL(maximum);
}
