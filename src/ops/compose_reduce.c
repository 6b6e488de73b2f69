/* Compositions of reductions over the last axis, of softmax, and of the scan of exponentials. */
#include "ops/compose.h"
#include "ops/gradient.h"

#include <hearth/ops.h>
#include <hearth/transform.h>

#include <math.h>
#include <string.h>

static const int last_axis[1] = {-1};

static int64_t length_of(const ht_array *x) { return x->shape[x->n_dims - 1]; }
static ht_array *zero_of(ht_scope *s, const ht_array *x) { return ht_constant_like(s, x, 0); }

/* ---- moments ---- */

ht_array *ht_compose_mean(ht_scope *s, const void *params, ht_array *const *in) {
    ht_array *x = ht_widened(s, in[0]);
    (void)params;
    if (!x) return NULL;
    ht_array *n = ht_constant_like(s, x, (double)length_of(x));
    return ht_astype(s, ht_divide(s, ht_sum(s, x, last_axis, 1, false), n), in[0]->dtype);
}

/* The second step removes the rounding error of the first mean, which needs no derivative: it cancels. */
ht_array *ht_centred(ht_scope *s, ht_array *x) {
    ht_array *off = ht_subtract(s, x, ht_stop_gradient(s, ht_mean(s, x, last_axis, 1, true)));
    return ht_subtract(s, off, ht_mean(s, off, last_axis, 1, true));
}

ht_array *ht_compose_var(ht_scope *s, const void *params, ht_array *const *in) {
    ht_array *x = ht_widened(s, in[0]);
    if (!x) return NULL;
    const double divisor = (double)length_of(x) - ((const ht_var_params *)params)->ddof;
    ht_array *sum = ht_sum(s, ht_square(s, ht_centred(s, x)), last_axis, 1, false);
    sum = divisor > 0 ? ht_divide(s, sum, ht_constant_like(s, x, divisor)) : ht_times(s, sum, (double)INFINITY);
    return ht_astype(s, sum, in[0]->dtype);
}

/* ---- exponentials ---- */

/* The maximum cancels, so it needs no derivative. Differences from an infinite maximum are NaN: such rows sum the
 * elements equal to it, each with derivative 1. The other branch gets zeros there, because NaN would pass even through
 * a gradient of 0. */
ht_array *ht_compose_logsumexp(ht_scope *s, const void *params, ht_array *const *in) {
    ht_array *x = ht_widened(s, in[0]);
    (void)params;
    ht_array *max = ht_stop_gradient(s, ht_max(s, x, last_axis, 1, true));
    if (!max) return NULL;
    ht_array *infinite = ht_isinf(s, max);
    ht_array *off = ht_where(s, infinite, zero_of(s, x), ht_subtract(s, x, max));
    ht_array *finite = ht_add(s, max, ht_log(s, ht_sum(s, ht_exp(s, off), last_axis, 1, true)));
    ht_array *equal = ht_where(s, ht_equal(s, x, max), x, zero_of(s, x));
    ht_array *y = ht_where(s, infinite, ht_sum(s, equal, last_axis, 1, true), finite);
    return ht_astype(s, ht_squeeze(s, y, -1), in[0]->dtype);
}

ht_array *ht_compose_softmax(ht_scope *s, const void *params, ht_array *const *in) {
    const int axis = -1 - ((const ht_along_params *)params)->behind;
    ht_array *x = ht_widened(s, in[0]);
    if (ht_array_size(in[0]) == 0) return in[0];
    ht_array *e = ht_exp(s, ht_subtract(s, x, ht_stop_gradient(s, ht_max(s, x, &axis, 1, true))));
    return ht_astype(s, ht_divide(s, e, ht_sum(s, e, &axis, 1, true)), in[0]->dtype);
}

/* Inclusive scan of the last axis. With running maxima m: s_i = e^(x_i - m_i) + e^(m_(i-1) - m_i) s_(i-1), a recurrence
 * without positive exponents, and y_i = m_i + log(s_i). The derivatives of the maxima are left out: they cancel. A maximum
 * that is not finite is the result, without a derivative. */
static ht_array *scanned(ht_scope *s, ht_array *x, bool reverse) {
    ht_array *max = ht_stop_gradient(s, ht_cummax(s, x, -1, reverse, true));
    if (!max) return NULL;
    ht_array *zero = zero_of(s, x), *finite = ht_isfinite(s, max),
             *before = ht_neighbour(s, max, -1, reverse, (double)-INFINITY);
    ht_array *continues = ht_logical_and(s, finite, ht_isfinite(s, before));
    ht_array *off = ht_exp(s, ht_where(s, finite, ht_subtract(s, x, max), zero));
    ht_array *step = ht_exp(s, ht_where(s, continues, ht_subtract(s, before, max), zero));
    ht_array *sums = ht_recurrence(s, ht_where(s, finite, off, zero), ht_where(s, continues, step, zero), reverse);
    sums = ht_where(s, finite, sums, ht_constant_like(s, x, 1));
    return ht_where(s, finite, ht_add(s, max, ht_log(s, sums)), max);
}

ht_array *ht_compose_logcumsumexp(ht_scope *s, const void *params, ht_array *const *in) {
    const ht_scan_params *p = params;
    const int axis = -1 - p->behind;
    if (ht_array_size(in[0]) == 0) return in[0];
    ht_array *x = ht_swapaxes(s, ht_widened(s, in[0]), axis, -1);
    ht_array *y = x ? scanned(s, x, p->reverse) : NULL;
    if (y && !p->inclusive) y = ht_neighbour(s, y, -1, p->reverse, (double)-INFINITY);
    return ht_astype(s, ht_swapaxes(s, y, axis, -1), in[0]->dtype);
}

/* ---- indices ---- */

/* Index of the first element that equals the extreme or is NaN, since NaN orders before both extremes. */
static ht_array *place(ht_scope *s, ht_array *x, ht_array *extreme) {
    ht_array *hit = ht_logical_or(s, ht_equal(s, x, extreme), ht_isnan(s, x));
    ht_array *number = ht_arange(s, 0, (double)length_of(x), 1, HT_U32),
             *none = ht_full(s, UINT32_MAX, HT_U32, NULL, 0);
    return ht_min(s, ht_where(s, hit, number, none), last_axis, 1, false);
}

ht_array *ht_compose_argmax(ht_scope *s, const void *params, ht_array *const *in) {
    (void)params;
    return place(s, in[0], ht_max(s, in[0], last_axis, 1, true));
}

ht_array *ht_compose_argmin(ht_scope *s, const void *params, ht_array *const *in) {
    (void)params;
    return place(s, in[0], ht_min(s, in[0], last_axis, 1, true));
}
