/* Cumulative sums, products, minima and maxima along an axis, and the recurrence. Floating point is accumulated in f64. */
#include "cpu/axis_view.h"
#include "cpu/call.h"
#include "cpu/element.h"
#include "cpu/reference/reference.h"
#include "cpu/strided_iterator.h"
#include "device/params.h"

typedef double float_fn(double accumulator, double next);
typedef int64_t int_fn(bool is_signed, int64_t accumulator, int64_t next);

typedef struct scan {
    const ht_call *call;
    ht_axis_view along;
    double float_start;
    float_fn *floating;
    int_fn *integer;
} scan;

/* Smallest value of an integer type: the identity of max. */
static int64_t lowest_of(ht_dtype t) {
    return ht_dtype_is_signed(t) ? (int64_t)(UINT64_MAX << (8 * ht_dtype_bytes(t) - 1)) : 0;
}
static int64_t highest_of(ht_dtype t) {
    if (t == HT_BOOL) return 1;
    return ht_dtype_is_signed(t) ? ~lowest_of(t) : (int64_t)(UINT64_MAX >> (64 - 8 * ht_dtype_bytes(t)));
}

static int64_t int_start(const scan *s) {
    ht_dtype t = s->call->out.dtype;
    if (isinf(s->float_start)) return s->float_start < 0 ? lowest_of(t) : highest_of(t);
    return (int64_t)s->float_start;
}

static void scan_line(const scan *s, int64_t at, int64_t to) {
    const ht_scan_params *p = s->call->params;
    const ht_view *x = &s->call->in[0], *out = &s->call->out;
    ht_dtype t = out->dtype;
    const int64_t n = s->along.n, stride = x->stride[s->along.axis], out_stride = s->along.inner;
    int64_t whole = int_start(s);
    double value = s->float_start;
    bool floating = ht_dtype_is_float(t), is_signed = ht_dtype_is_signed(t);
    for (int64_t k = 0; k < n; k++) {
        int64_t i = p->reverse ? n - 1 - k : k;
        for (int step = 0; step < 2; step++) {
            if ((step == 0) == p->inclusive) { /* accumulate before writing if inclusive, else after */
                if (floating)
                    value = s->floating(value, ht_get_f64(t, x->data, at + i * stride));
                else
                    whole = s->integer(is_signed, whole, ht_get_int(t, x->data, at + i * stride));
            } else if (floating)
                ht_set_f64(t, out->data, to + i * out_stride, value);
            else
                ht_set_int(t, out->data, to + i * out_stride, whole);
        }
    }
}

static void scan_lines(void *arg, int64_t begin, int64_t end, int worker) {
    (void)worker;
    const scan *s = arg;
    for (int64_t i = begin; i < end; i++) scan_line(s, ht_axis_view_in(&s->along, i), ht_axis_view_out(&s->along, i));
}

static ht_status run(const ht_call *call, double start, float_fn *floating, int_fn *integer) {
    const ht_view *x = &call->in[0];
    scan s = {call, ht_axis_view_of(x, ((const ht_scan_params *)call->params)->behind), start, floating, integer};
    ht_run_rows(call, x, s.along.n, scan_lines, &s);
    return HT_OK;
}

static bool less(bool is_signed, int64_t a, int64_t b) { return is_signed ? a < b : (uint64_t)a < (uint64_t)b; }

static double sum_f64(double a, double b) { return a + b; }
static int64_t sum_int(bool s, int64_t a, int64_t b) { return (void)s, (int64_t)((uint64_t)a + (uint64_t)b); }
static double prod_f64(double a, double b) { return a * b; }
static int64_t prod_int(bool s, int64_t a, int64_t b) { return (void)s, (int64_t)((uint64_t)a * (uint64_t)b); }
static double max_f64(double a, double b) { return isnan(a) || a > b ? a : b; }
static int64_t max_int(bool s, int64_t a, int64_t b) { return less(s, a, b) ? b : a; }
static double min_f64(double a, double b) { return isnan(a) || a < b ? a : b; }
static int64_t min_int(bool s, int64_t a, int64_t b) { return less(s, b, a) ? b : a; }
static double logsumexp_f64(double a, double b) {
    double high = max_f64(a, b), low = min_f64(a, b);
    return isinf(high) || isinf(low) || isnan(high) ? high : high + log1p(exp(low - high));
}

#define SCAN(name, start, floating, integer)                                                                           \
    ht_status ht_plain_##name(const ht_call *call, ht_error *err) {                                                    \
        (void)err;                                                                                                     \
        return run(call, start, floating, integer);                                                                    \
    }

SCAN(cumsum, 0.0, sum_f64, sum_int)
SCAN(cumprod, 1.0, prod_f64, prod_int)
SCAN(cummax, (double)-INFINITY, max_f64, max_int)
SCAN(cummin, (double)INFINITY, min_f64, min_int)
SCAN(logcumsumexp, (double)-INFINITY, logsumexp_f64, NULL)

/* First-order recurrence y_i = x_i + d_i * y_(i-1) along rows. */
static void recurrence_rows(void *arg, int64_t begin, int64_t end, int worker) {
    (void)worker;
    const ht_call *call = arg;
    const ht_recurrence_params *p = call->params;
    const ht_view *x = &call->in[0], *d = &call->in[1], *out = &call->out;
    int last = x->n_dims - 1;
    int64_t n = x->shape[last];
    for (int64_t row = begin; row < end; row++) {
        int64_t at = ht_view_offset(x, last, row), by = ht_view_offset(d, last, row);
        double y = 0.0;
        for (int64_t k = 0; k < n; k++) {
            int64_t i = p->reverse ? n - 1 - k : k;
            double next = ht_get_f64(x->dtype, x->data, at + i * x->stride[last]);
            y = k ? next + ht_get_f64(d->dtype, d->data, by + i * d->stride[last]) * y : next;
            ht_set_f64(out->dtype, out->data, row * n + i, y);
        }
    }
}

ht_status ht_plain_recurrence(const ht_call *call, ht_error *err) {
    (void)err;
    ht_run_rows(call, &call->out, call->out.shape[call->out.n_dims - 1], recurrence_rows, call);
    return HT_OK;
}
