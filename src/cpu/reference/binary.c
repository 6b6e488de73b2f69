/* Functions of two elements of one dtype. Operands come broadcast: a repeated axis has stride 0. Integers wrap around;
 * minimum and maximum give NaN when either side is NaN. */
#include "base/error.h"
#include "cpu/reference/reference.h"
#include "cpu/reference/value.h"
#include "cpu/walk.h"

typedef float f32_fn(float, float);
typedef double f64_fn(double, double);
typedef int64_t int_fn(bool is_signed, int64_t, int64_t);

static inline void apply(const ht_call *call, const ht_span *s, f32_fn *f32, f64_fn *f64, int_fn *integer) {
    ht_dtype t = call->out.dtype;
    bool is_signed = ht_dtype_is_signed(t);
    const void *x = call->in[0].data, *y = call->in[1].data;
    void *out = call->out.data;
    for (int64_t i = 0; i < s->n; i++) {
        int64_t a = s->offset[1] + i * s->stride[1], b = s->offset[2] + i * s->stride[2], o = s->offset[0] + i;
        if (t == HT_F64)
            ht_set_f64(t, out, o, f64(ht_get_f64(t, x, a), ht_get_f64(t, y, b)));
        else if (ht_dtype_is_float(t))
            ht_set_f32(t, out, o, f32(ht_get_f32(t, x, a), ht_get_f32(t, y, b)));
        else
            ht_set_int(t, out, o, integer(is_signed, ht_get_int(t, x, a), ht_get_int(t, y, b)));
    }
}

static bool less(bool is_signed, int64_t a, int64_t b) { return is_signed ? a < b : (uint64_t)a < (uint64_t)b; }

static float add_f32(float a, float b) { return a + b; }
static double add_f64(double a, double b) { return a + b; }
static int64_t add_int(bool s, int64_t a, int64_t b) { return (void)s, (int64_t)((uint64_t)a + (uint64_t)b); }
static float sub_f32(float a, float b) { return a - b; }
static double sub_f64(double a, double b) { return a - b; }
static int64_t sub_int(bool s, int64_t a, int64_t b) { return (void)s, (int64_t)((uint64_t)a - (uint64_t)b); }
static float mul_f32(float a, float b) { return a * b; }
static double mul_f64(double a, double b) { return a * b; }
static int64_t mul_int(bool s, int64_t a, int64_t b) { return (void)s, (int64_t)((uint64_t)a * (uint64_t)b); }
static float minimum_f32(float a, float b) { return isnan(a) || a < b ? a : b; }
static double minimum_f64(double a, double b) { return isnan(a) || a < b ? a : b; }
static int64_t minimum_int(bool s, int64_t a, int64_t b) { return less(s, a, b) ? a : b; }
static float maximum_f32(float a, float b) { return isnan(a) || a > b ? a : b; }
static double maximum_f64(double a, double b) { return isnan(a) || a > b ? a : b; }
static int64_t maximum_int(bool s, int64_t a, int64_t b) { return less(s, b, a) ? a : b; }
static float div_f32(float a, float b) { return a / b; }
static double div_f64(double a, double b) { return a / b; }
/* Towards zero; the divisor was checked. The one signed quotient that does not fit wraps around. */
static int64_t div_int(bool s, int64_t a, int64_t b) {
    if (!s) return (int64_t)((uint64_t)a / (uint64_t)b);
    return b == -1 ? (int64_t)(0 - (uint64_t)a) : a / b;
}

#define BINARY(name)                                                                                                   \
    static void name##_span(const ht_call *call, const ht_span *s) {                                                   \
        apply(call, s, name##_f32, name##_f64, name##_int);                                                            \
    }                                                                                                                  \
    ht_status ht_plain_##name(const ht_call *call, ht_error *err) {                                                    \
        (void)err;                                                                                                     \
        ht_elementwise(call, HT_GRAIN_PLAIN, name##_span);                                                             \
        return HT_OK;                                                                                                  \
    }

BINARY(add)
BINARY(sub)
BINARY(mul)
BINARY(minimum)
BINARY(maximum)

static void div_span(const ht_call *call, const ht_span *s) { apply(call, s, div_f32, div_f64, div_int); }

static void find_zero(void *arg, const ht_span *s) {
    const ht_view *v = ((void **)arg)[0];
    bool *found = ((void **)arg)[1];
    for (int64_t i = 0; i < s->n; i++) *found |= ht_get_int(v->dtype, v->data, s->offset[0] + i * s->stride[0]) == 0;
}

ht_status ht_plain_div(const ht_call *call, ht_error *err) {
    if (!ht_dtype_is_float(call->out.dtype)) {
        const ht_view *divisor = &call->in[1];
        bool found = false;
        ht_walk walk;
        ht_walk_init(&walk, 1, &divisor);
        ht_walk_range(&walk, 0, walk.size, find_zero, (void *[]){(void *)divisor, &found});
        if (found) return ht_fail(err, HT_ERR_ARGUMENT, "division of %s by zero", ht_dtype_name(call->out.dtype));
    }
    ht_elementwise(call, HT_GRAIN_PLAIN, div_span);
    return HT_OK;
}
