/* Elementwise functions of one operand: integers exactly, f16, bf16 and f32 in f32, f64 in f64. */
#include "base/error.h"
#include "base/math_double.h"
#include "cpu/element.h"
#include "cpu/reference/reference.h"
#include "cpu/strided_iterator.h"
#include "device/params.h"

#include <string.h>

typedef float f32_fn(float);
typedef double f64_fn(double);
typedef uint64_t int_fn(int64_t); /* wraps around */

static inline void apply(const ht_call *call, const ht_strided_span *s, f32_fn *f16, f32_fn *f32, f64_fn *f64,
                         int_fn *integer) {
    ht_dtype t = call->out.dtype;
    const void *in = call->in[0].data;
    void *out = call->out.data;
    for (int64_t i = 0; i < s->n; i++) {
        int64_t a = s->offset[1] + i * s->stride[1], o = s->offset[0] + i;
        if (t == HT_F64)
            ht_set_f64(t, out, o, f64(ht_get_f64(t, in, a)));
        else if (t == HT_F16)
            ht_set_f32(t, out, o, f16(ht_get_f32(t, in, a)));
        else if (ht_dtype_is_float(t))
            ht_set_f32(t, out, o, f32(ht_get_f32(t, in, a)));
        else
            ht_set_int(t, out, o, (int64_t)integer(ht_get_int(t, in, a)));
    }
}

static ht_status run(const ht_call *call, const char *name, bool takes_integers, ht_strided_span_fn *fn,
                     ht_error *err) {
    if (!takes_integers && !ht_dtype_is_float(call->out.dtype))
        return ht_fail(err, HT_ERR_UNSUPPORTED, "%s of %s is not defined; cast to a floating-point type first", name,
                       ht_dtype_name(call->out.dtype));
    ht_strided_elementwise(call, HT_GRAIN_PLAIN, fn);
    return HT_OK;
}

#define UNARY(name, f16, integer)                                                                                      \
    static void name##_span(const ht_call *call, const ht_strided_span *s) {                                           \
        apply(call, s, f16, name##_f32, name##_f64, integer);                                                          \
    }                                                                                                                  \
    ht_status ht_plain_##name(const ht_call *call, ht_error *err) {                                                    \
        return run(call, #name, (int_fn *)integer != NULL, name##_span, err);                                          \
    }

/* ---- numbers ---- */

#define NUMBER(name, expression_f32, expression_f64, expression_int)                                                   \
    static float name##_f32(float x) { return expression_f32; }                                                        \
    static double name##_f64(double x) { return expression_f64; }                                                      \
    static uint64_t name##_int(int64_t x) { return expression_int; }
NUMBER(negative, -x, -x, 0 - (uint64_t)x)
NUMBER(square, x *x, x *x, (uint64_t)x *(uint64_t)x)
NUMBER(abs, fabsf(x), fabs(x), x < 0 ? 0 - (uint64_t)x : (uint64_t)x)
NUMBER(sign, (float)((x > 0.0f) - (x < 0.0f)), (double)((x > 0.0) - (x < 0.0)), x<0 ? UINT64_MAX : x> 0)
static uint64_t same_int(int64_t x) { return (uint64_t)x; } /* abs of an unsigned type */
static uint64_t positive_int(int64_t x) { return x != 0; }  /* sign of an unsigned type */

UNARY(negative, negative_f32, negative_int)
UNARY(square, square_f32, square_int)

static void abs_span(const ht_call *call, const ht_strided_span *s) {
    apply(call, s, abs_f32, abs_f32, abs_f64, ht_dtype_is_signed(call->out.dtype) ? abs_int : same_int);
}
ht_status ht_plain_abs(const ht_call *call, ht_error *err) { return run(call, "abs", true, abs_span, err); }

static void sign_span(const ht_call *call, const ht_strided_span *s) {
    apply(call, s, sign_f32, sign_f32, sign_f64, ht_dtype_is_signed(call->out.dtype) ? sign_int : positive_int);
}
ht_status ht_plain_sign(const ht_call *call, ht_error *err) { return run(call, "sign", true, sign_span, err); }

/* ---- floating point ---- */

/* Expressions in f32, for f16 another one, and in f64. */
#define FLOATING_HALF(name, expression_f16, expression_f32, expression_f64)                                            \
    static float name##_f16(float x) { return expression_f16; }                                                        \
    static float name##_f32(float x) { return expression_f32; }                                                        \
    static double name##_f64(double x) { return expression_f64; }                                                      \
    UNARY(name, name##_f16, NULL)
#define FLOATING(name, expression_f32, expression_f64)                                                                 \
    FLOATING_HALF(name, expression_f32, expression_f32, expression_f64)

/* Newton's method, three steps from the f32 value. */
static double erfinv_f64_of(double x) {
    if (fabs(x) >= 1.0) return fabs(x) == 1.0 ? x * (double)INFINITY : (double)NAN;
    double y = (double)ht_erfinv_f32((float)x);
    if (isinf(y)) y = copysign(5.9, x);
    for (int i = 0; i < 3; i++) y -= (erf(y) - x) * 0.88622692545275801365 * exp(y * y); /* sqrt(pi) / 2 */
    return y;
}

FLOATING(sqrt, sqrtf(x), sqrt(x))
FLOATING(rsqrt, 1.0f / sqrtf(x), 1.0 / sqrt(x))
FLOATING(reciprocal, 1.0f / x, 1.0 / x)
FLOATING(exp, ht_exp_f32(x), ht_exp_f64(x))
FLOATING_HALF(expm1, ht_expm1_half(x), ht_expm1_f32(x), ht_expm1_f64(x))
FLOATING_HALF(log, ht_log_half(x), ht_log_f32(x), ht_log_f64(x))
FLOATING_HALF(log2, ht_log2_half(x), ht_log2_f32(x), ht_log2_f64(x))
FLOATING_HALF(log10, ht_log10_half(x), ht_log10_f32(x), ht_log10_f64(x))
FLOATING(log1p, ht_log1p_f32(x), ht_log1p_f64(x))
FLOATING_HALF(sin, ht_sin_half(x), ht_sin_f32(x), ht_sin_f64(x))
FLOATING_HALF(cos, ht_cos_half(x), ht_cos_f32(x), ht_cos_f64(x))
FLOATING_HALF(tan, ht_tan_half(x), ht_tan_f32(x), ht_tan_f64(x))
FLOATING_HALF(arcsin, ht_asin_half(x), ht_asin_f32(x), ht_asin_f64(x))
FLOATING_HALF(arccos, ht_acos_half(x), ht_acos_f32(x), ht_acos_f64(x))
FLOATING_HALF(arctan, ht_atan_half(x), ht_atan_f32(x), ht_atan_f64(x))
FLOATING_HALF(sinh, ht_sinh_half(x), ht_sinh_f32(x), ht_sinh_f64(x))
FLOATING_HALF(cosh, ht_cosh_half(x), ht_cosh_f32(x), ht_cosh_f64(x))
FLOATING(tanh, ht_tanh_f32(x), ht_tanh_f64(x))
FLOATING(erf, ht_erf_f32(x), erf(x))
FLOATING(erfinv, ht_erfinv_f32(x), erfinv_f64_of(x))
FLOATING(sigmoid, ht_sigmoid_f32(x), ht_sigmoid_f64(x))
FLOATING(silu, ht_silu_f32(x), ht_silu_f64(x))
FLOATING(gelu, ht_gelu_f32(x), 0.5 * x * erfc(-x * 0.70710678118654752440)) /* sqrt(1 / 2) */
FLOATING(gelu_tanh, ht_gelu_tanh_f32(x), ht_gelu_tanh_f64(x))
FLOATING(floor, floorf(x), floor(x))
FLOATING(ceil, ceilf(x), ceil(x))
FLOATING(round, rintf(x), rint(x))

/* ---- integers and bool ---- */

static void bitwise_invert_span(const ht_call *call, const ht_strided_span *s) {
    ht_dtype t = call->out.dtype;
    for (int64_t i = 0; i < s->n; i++)
        ht_set_int(t, call->out.data, s->offset[0] + i,
                   ~ht_get_int(t, call->in[0].data, s->offset[1] + i * s->stride[1]));
}
ht_status ht_plain_bitwise_invert(const ht_call *call, ht_error *err) {
    if (ht_dtype_is_float(call->out.dtype) || call->out.dtype == HT_BOOL)
        return ht_fail(err, HT_ERR_UNSUPPORTED, "bitwise_invert of %s is not defined", ht_dtype_name(call->out.dtype));
    ht_strided_elementwise(call, HT_GRAIN_PLAIN, bitwise_invert_span);
    return HT_OK;
}

/* ---- tests ---- */

typedef bool test_fn(double);

static inline void apply_test(const ht_call *call, const ht_strided_span *s, test_fn *test) {
    uint8_t *out = call->out.data;
    for (int64_t i = 0; i < s->n; i++)
        out[s->offset[0] + i] = test(ht_get_f64(call->in[0].dtype, call->in[0].data, s->offset[1] + i * s->stride[1]));
}

#define TEST(name, expression)                                                                                         \
    static bool name##_test(double x) { return expression; }                                                           \
    static void name##_span(const ht_call *call, const ht_strided_span *s) { apply_test(call, s, name##_test); }       \
    ht_status ht_plain_##name(const ht_call *call, ht_error *err) {                                                    \
        (void)err;                                                                                                     \
        ht_strided_elementwise(call, HT_GRAIN_PLAIN, name##_span);                                                     \
        return HT_OK;                                                                                                  \
    }

TEST(is_nan, isnan(x))
TEST(is_inf, isinf(x))
TEST(is_finite, isfinite(x))
TEST(logical_not, x == 0.0)

/* ---- with parameters ---- */

static double largest_of(ht_dtype t) {
    return t == HT_F16 ? 65504.0 : t == HT_BF16 ? 0x1.fep+127 : t == HT_F32 ? 0x1.fffffep+127 : 0x1.fffffffffffffp+1023;
}

/* Numbers are copied bit for bit. */
static void nan_to_num_span(const ht_call *call, const ht_strided_span *s) {
    const ht_nan_to_num_params *p = call->params;
    ht_dtype t = call->out.dtype;
    const size_t bytes = ht_dtype_bytes(t);
    double high = isnan(p->posinf) ? largest_of(t) : p->posinf, low = isnan(p->neginf) ? -largest_of(t) : p->neginf;
    for (int64_t i = 0; i < s->n; i++) {
        int64_t a = s->offset[1] + i * s->stride[1], o = s->offset[0] + i;
        double x = ht_get_f64(t, call->in[0].data, a);
        if (isfinite(x))
            memmove((char *)call->out.data + (size_t)o * bytes, (const char *)call->in[0].data + a * (int64_t)bytes,
                    bytes);
        else
            ht_set_f64(t, call->out.data, o, isnan(x) ? p->nan : x > 0 ? high : low);
    }
}
ht_status ht_plain_nan_to_num(const ht_call *call, ht_error *err) {
    return run(call, "nan_to_num", false, nan_to_num_span, err);
}

static void scale_span(const ht_call *call, const ht_strided_span *s) {
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

static void softcap_span(const ht_call *call, const ht_strided_span *s) {
    float cap = ((const ht_scale_params *)call->params)->value;
    ht_dtype t = call->out.dtype;
    for (int64_t i = 0; i < s->n; i++) {
        int64_t a = s->offset[1] + i * s->stride[1], o = s->offset[0] + i;
        if (t == HT_F64)
            ht_set_f64(t, call->out.data, o,
                       (double)cap * ht_tanh_f64(ht_get_f64(t, call->in[0].data, a) / (double)cap));
        else
            ht_set_f32(t, call->out.data, o, cap * ht_tanh_f32(ht_get_f32(t, call->in[0].data, a) / cap));
    }
}
ht_status ht_plain_softcap(const ht_call *call, ht_error *err) {
    return run(call, "softcap", false, softcap_span, err);
}
