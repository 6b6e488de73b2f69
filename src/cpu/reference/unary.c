/* Functions of one element: integers exactly (where the function is one of integers), f16, bf16 and f32 in f32, f64 in
 * f64. */
#include "base/error.h"
#include "base/math.h"
#include "cpu/reference/reference.h"
#include "cpu/reference/value.h"
#include "cpu/walk.h"
#include "device/params.h"

typedef float f32_fn(float);
typedef double f64_fn(double);
typedef uint64_t int_fn(int64_t); /* wraps around */

static inline void apply(const ht_call *call, const ht_span *s, f32_fn *f32, f64_fn *f64, int_fn *integer) {
    ht_dtype t = call->out.dtype;
    const void *in = call->in[0].data;
    void *out = call->out.data;
    for (int64_t i = 0; i < s->n; i++) {
        int64_t a = s->offset[1] + i * s->stride[1], o = s->offset[0] + i;
        if (t == HT_F64)
            ht_set_f64(t, out, o, f64(ht_get_f64(t, in, a)));
        else if (ht_dtype_is_float(t))
            ht_set_f32(t, out, o, f32(ht_get_f32(t, in, a)));
        else
            ht_set_int(t, out, o, (int64_t)integer(ht_get_int(t, in, a)));
    }
}

static ht_status run(const ht_call *call, const char *name, bool takes_integers, ht_elements_fn *fn, ht_error *err) {
    if (!takes_integers && !ht_dtype_is_float(call->out.dtype))
        return ht_fail(err, HT_ERR_UNSUPPORTED, "%s of %s is not defined; cast to a floating-point type first", name,
                       ht_dtype_name(call->out.dtype));
    ht_elementwise(call, HT_GRAIN_PLAIN, fn);
    return HT_OK;
}

static float neg_f32(float x) { return -x; }
static double neg_f64(double x) { return -x; }
static uint64_t neg_int(int64_t x) { return 0 - (uint64_t)x; }
static double abs_f64(double x) { return fabs(x); }
static float abs_f32(float x) { return fabsf(x); }
static uint64_t abs_int(int64_t x) { return x < 0 ? 0 - (uint64_t)x : (uint64_t)x; }
static uint64_t same_int(int64_t x) { return (uint64_t)x; } /* abs of an unsigned type */
static float square_f32(float x) { return x * x; }
static double square_f64(double x) { return x * x; }
static uint64_t square_int(int64_t x) { return (uint64_t)x * (uint64_t)x; }
static float sqrt_f32(float x) { return sqrtf(x); }
static double sqrt_f64(double x) { return sqrt(x); }
static float rsqrt_f32(float x) { return 1.0f / sqrtf(x); }
static double rsqrt_f64(double x) { return 1.0 / sqrt(x); }
static float exp_f32(float x) { return ht_exp_f32(x); }
static double exp_f64(double x) { return exp(x); }
static float log_f32(float x) { return ht_log_f32(x); }
static double log_f64(double x) { return log(x); }
static float sin_f32(float x) { return ht_sin_f32(x); }
static double sin_f64(double x) { return sin(x); }
static float cos_f32(float x) { return ht_cos_f32(x); }
static double cos_f64(double x) { return cos(x); }
static float tanh_f32(float x) { return ht_tanh_f32(x); }
static double tanh_f64(double x) { return tanh(x); }
static float sigmoid_f32(float x) { return ht_sigmoid_f32(x); }
static double sigmoid_f64(double x) { return 1.0 / (1.0 + exp(-x)); }
static float silu_f32(float x) { return ht_silu_f32(x); }
static double silu_f64(double x) { return x / (1.0 + exp(-x)); }
static float gelu_tanh_f32(float x) { return ht_gelu_tanh_f32(x); }
static double gelu_tanh_f64(double x) {
    double u = 0.79788456080286535588 * (x + 0.044715 * x * x * x); /* sqrt(2 / pi) */
    return x / (1.0 + exp(-2.0 * u));
}

static void abs_span(const ht_call *call, const ht_span *s) {
    apply(call, s, abs_f32, abs_f64, ht_dtype_is_signed(call->out.dtype) ? abs_int : same_int);
}
ht_status ht_plain_abs(const ht_call *call, ht_error *err) { return run(call, "abs", true, abs_span, err); }

#define UNARY(name, integer)                                                                                           \
    static void name##_span(const ht_call *call, const ht_span *s) {                                                   \
        apply(call, s, name##_f32, name##_f64, integer);                                                               \
    }                                                                                                                  \
    ht_status ht_plain_##name(const ht_call *call, ht_error *err) {                                                    \
        return run(call, #name, (int_fn *)integer != NULL, name##_span, err);                                          \
    }

UNARY(neg, neg_int)
UNARY(square, square_int)
UNARY(sqrt, NULL)
UNARY(rsqrt, NULL)
UNARY(exp, NULL)
UNARY(log, NULL)
UNARY(sin, NULL)
UNARY(cos, NULL)
UNARY(tanh, NULL)
UNARY(sigmoid, NULL)
UNARY(silu, NULL)
UNARY(gelu_tanh, NULL)

static void scale_span(const ht_call *call, const ht_span *s) {
    float value = ((const ht_scale_params *)call->params)->value;
    ht_dtype t = call->out.dtype;
    for (int64_t i = 0; i < s->n; i++) {
        int64_t a = s->offset[1] + i * s->stride[1], o = s->offset[0] + i;
        if (t == HT_F16 || t == HT_BF16 || t == HT_F32)
            ht_set_f32(t, call->out.data, o, ht_get_f32(t, call->in[0].data, a) * value);
        else
            ht_set_f64(t, call->out.data, o, ht_get_f64(t, call->in[0].data, a) * (double)value);
    }
}
ht_status ht_plain_scale(const ht_call *call, ht_error *err) { return run(call, "scale", true, scale_span, err); }

static void softcap_span(const ht_call *call, const ht_span *s) {
    float cap = ((const ht_scale_params *)call->params)->value;
    ht_dtype t = call->out.dtype;
    for (int64_t i = 0; i < s->n; i++) {
        int64_t a = s->offset[1] + i * s->stride[1], o = s->offset[0] + i;
        if (t == HT_F64)
            ht_set_f64(t, call->out.data, o, (double)cap * tanh(ht_get_f64(t, call->in[0].data, a) / (double)cap));
        else
            ht_set_f32(t, call->out.data, o, cap * ht_tanh_f32(ht_get_f32(t, call->in[0].data, a) / cap));
    }
}
ht_status ht_plain_softcap(const ht_call *call, ht_error *err) {
    return run(call, "softcap", false, softcap_span, err);
}
