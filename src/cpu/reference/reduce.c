/* Reductions over the last axis, and softmax along any axis. Floating-point sums are accumulated in f64 and rounded
 * once. NaN orders above every number, so that it propagates. */
#include "base/error.h"
#include "base/math.h"
#include "cpu/axis_view.h"
#include "cpu/call.h"
#include "cpu/element.h"
#include "cpu/reference/reference.h"
#include "device/params.h"

#include <string.h>

/* One row of the operand, and its result element (for softmax, its result row). */
typedef struct row {
    ht_dtype dtype, out_dtype;
    const void *data;
    int64_t at, stride, n;
    void *out;
    int64_t out_at, out_stride; /* softmax only */
    const void *params;
} row;

typedef void row_fn(const row *r);

typedef struct rows_job {
    const ht_call *call;
    row_fn *fn;
    int64_t out_per_row;
} rows_job;

static void run_rows(void *arg, int64_t begin, int64_t end, int worker) {
    (void)worker;
    const rows_job *job = arg;
    const ht_view *in = &job->call->in[0];
    int last = in->n_dims - 1;
    for (int64_t i = begin; i < end; i++) {
        row r = {.dtype = in->dtype,
                 .out_dtype = job->call->out.dtype,
                 .data = in->data,
                 .at = ht_view_offset(in, last, i),
                 .stride = in->stride[last],
                 .n = in->shape[last],
                 .out = job->call->out.data,
                 .out_at = i * job->out_per_row,
                 .params = job->call->params};
        job->fn(&r);
    }
}

static void over_rows(const ht_call *call, row_fn *fn, int64_t out_per_row) {
    const ht_view *in = &call->in[0];
    int64_t n = in->shape[in->n_dims - 1], n_rows = 1;
    for (int d = 0; d < in->n_dims - 1; d++) n_rows *= in->shape[d];
    rows_job job = {.call = call, .fn = fn, .out_per_row = out_per_row};
    ht_pool_run(ht_call_pool(call), n_rows, ht_row_grain(HT_GRAIN_PLAIN, n), run_rows, &job);
}

static double float_at(const row *r, int64_t i) { return ht_get_f64(r->dtype, r->data, r->at + i * r->stride); }
static int64_t int_at(const row *r, int64_t i) { return ht_get_int(r->dtype, r->data, r->at + i * r->stride); }

static double float_sum(const row *r) {
    double sum = 0.0;
    for (int64_t i = 0; i < r->n; i++) sum += float_at(r, i);
    return sum;
}

static void sum_row(const row *r) {
    if (ht_dtype_is_float(r->dtype) || ht_dtype_is_float(r->out_dtype)) {
        ht_set_f64(r->out_dtype, r->out, r->out_at, float_sum(r));
        return;
    }
    uint64_t sum = 0; /* wraps around */
    for (int64_t i = 0; i < r->n; i++) sum += (uint64_t)int_at(r, i);
    ht_set_int(r->out_dtype, r->out, r->out_at, (int64_t)sum);
}

static void prod_row(const row *r) {
    if (ht_dtype_is_float(r->dtype)) {
        double product = 1.0;
        for (int64_t i = 0; i < r->n; i++) product *= float_at(r, i);
        ht_set_f64(r->out_dtype, r->out, r->out_at, product);
        return;
    }
    uint64_t product = 1; /* wraps around */
    for (int64_t i = 0; i < r->n; i++) product *= (uint64_t)int_at(r, i);
    ht_set_int(r->out_dtype, r->out, r->out_at, (int64_t)product);
}

static void mean_row(const row *r) { ht_set_f64(r->out_dtype, r->out, r->out_at, float_sum(r) / (double)r->n); }

/* Order of max: b > a, NaN largest, ties to the earlier element. */
static bool greater(const row *r, int64_t b, int64_t a) {
    if (ht_dtype_is_float(r->dtype)) {
        double x = float_at(r, a), y = float_at(r, b);
        return !isnan(x) && (isnan(y) || y > x);
    }
    int64_t x = int_at(r, a), y = int_at(r, b);
    return ht_dtype_is_signed(r->dtype) ? y > x : (uint64_t)y > (uint64_t)x;
}

/* Order of min: b < a, NaN still first. */
static bool smaller(const row *r, int64_t b, int64_t a) {
    if (ht_dtype_is_float(r->dtype) && (isnan(float_at(r, a)) || isnan(float_at(r, b)))) return greater(r, b, a);
    return greater(r, a, b);
}

static int64_t largest(const row *r) {
    int64_t best = 0;
    for (int64_t i = 1; i < r->n; i++)
        if (greater(r, i, best)) best = i;
    return best;
}

static int64_t smallest(const row *r) {
    int64_t best = 0;
    for (int64_t i = 1; i < r->n; i++)
        if (smaller(r, i, best)) best = i;
    return best;
}

/* Copies an element bit for bit. */
static void copy_element(const row *r, int64_t from, int64_t to) {
    size_t bytes = ht_dtype_bytes(r->dtype);
    memcpy((char *)r->out + (size_t)(r->out_at + to) * bytes,
           (const char *)r->data + (r->at + from * r->stride) * (int64_t)bytes, bytes);
}

static void max_row(const row *r) { copy_element(r, largest(r), 0); }
static void min_row(const row *r) { copy_element(r, smallest(r), 0); }
static void argmax_row(const row *r) { ht_set_int(r->out_dtype, r->out, r->out_at, largest(r)); }
static void argmin_row(const row *r) { ht_set_int(r->out_dtype, r->out, r->out_at, smallest(r)); }

static void var_row(const row *r) {
    const double mean = float_sum(r) / (double)r->n;
    const double divisor = (double)(r->n - ((const ht_var_params *)r->params)->ddof);
    double sum = 0.0;
    for (int64_t i = 0; i < r->n; i++) sum += (float_at(r, i) - mean) * (float_at(r, i) - mean);
    ht_set_f64(r->out_dtype, r->out, r->out_at, divisor > 0 ? sum / divisor : sum * (double)INFINITY);
}

/* Subtracts the maximum against overflow; an infinite maximum is the result. */
static void logsumexp_row(const row *r) {
    const double max = float_at(r, largest(r));
    double sum = 0.0;
    for (int64_t i = 0; i < r->n; i++) {
        const double d = float_at(r, i) - max;
        sum += r->dtype == HT_F64 ? exp(d) : (double)ht_exp_f32((float)d);
    }
    ht_set_f64(r->out_dtype, r->out, r->out_at, isinf(max) ? max : max + log(sum));
}

static void softmax_row(const row *r) {
    bool wide = r->dtype == HT_F64;
    double max = float_at(r, largest(r)), sum = 0.0;
    for (int64_t i = 0; i < r->n; i++) {
        double d = float_at(r, i) - max;
        sum += wide ? exp(d) : (double)ht_exp_f32((float)d);
    }
    for (int64_t i = 0; i < r->n; i++) {
        double d = float_at(r, i) - max;
        ht_set_f64(r->out_dtype, r->out, r->out_at + i * r->out_stride,
                   (wide ? exp(d) : (double)ht_exp_f32((float)d)) / sum);
    }
}

ht_status ht_plain_sum(const ht_call *call, ht_error *err) {
    (void)err;
    over_rows(call, sum_row, 1);
    return HT_OK;
}

ht_status ht_plain_prod(const ht_call *call, ht_error *err) {
    (void)err;
    over_rows(call, prod_row, 1);
    return HT_OK;
}

static ht_status of_some(const ht_call *call, const char *name, row_fn *fn, ht_error *err) {
    const ht_view *in = &call->in[0];
    if (ht_view_size(&call->out) > 0 && in->shape[in->n_dims - 1] == 0)
        return ht_fail(err, HT_ERR_ARGUMENT, "%s over an axis of length 0 has no value", name);
    over_rows(call, fn, 1);
    return HT_OK;
}

ht_status ht_plain_mean(const ht_call *call, ht_error *err) { return of_some(call, "mean", mean_row, err); }
ht_status ht_plain_max(const ht_call *call, ht_error *err) { return of_some(call, "max", max_row, err); }
ht_status ht_plain_min(const ht_call *call, ht_error *err) { return of_some(call, "min", min_row, err); }
ht_status ht_plain_argmax(const ht_call *call, ht_error *err) { return of_some(call, "argmax", argmax_row, err); }
ht_status ht_plain_argmin(const ht_call *call, ht_error *err) { return of_some(call, "argmin", argmin_row, err); }

ht_status ht_plain_var(const ht_call *call, ht_error *err) { return of_some(call, "var", var_row, err); }
ht_status ht_plain_logsumexp(const ht_call *call, ht_error *err) {
    return of_some(call, "logsumexp", logsumexp_row, err);
}

static void softmax_lines(void *arg, int64_t begin, int64_t end, int worker) {
    (void)worker;
    const ht_call *call = arg;
    const ht_view *in = &call->in[0];
    const ht_axis_view along = ht_axis_view_of(in, ((const ht_along_params *)call->params)->behind);
    for (int64_t i = begin; i < end; i++)
        softmax_row(&(row){.dtype = in->dtype,
                           .out_dtype = call->out.dtype,
                           .data = in->data,
                           .at = ht_axis_view_in(&along, i),
                           .stride = in->stride[along.axis],
                           .n = along.n,
                           .out = call->out.data,
                           .out_at = ht_axis_view_out(&along, i),
                           .out_stride = along.inner});
}

ht_status ht_plain_softmax(const ht_call *call, ht_error *err) {
    const ht_view *in = &call->in[0];
    if (!ht_dtype_is_float(in->dtype))
        return ht_fail(err, HT_ERR_UNSUPPORTED, "softmax of %s is not defined; cast to a floating-point type first",
                       ht_dtype_name(in->dtype));
    ht_run_rows(call, in, ht_axis_view_of(in, ((const ht_along_params *)call->params)->behind).n, softmax_lines, call);
    return HT_OK;
}
