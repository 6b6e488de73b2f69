/* Array comparison: equal, or close within a tolerance. */
#include "array/op.h"
#include "ops/replay_arguments.h"

#include <hearth/ops.h>

#include <math.h>

static ht_array *constant(ht_scope *s, double value, ht_dtype dtype) { return ht_full(s, value, dtype, NULL, 0); }

static ht_array *both_nan(ht_scope *s, ht_array *a, ht_array *b) {
    return ht_logical_and(s, ht_isnan(s, a), ht_isnan(s, b));
}

/* Infinite elements are compared for equality, as their differences are NaN or infinite. */
ht_array *ht_isclose(ht_scope *s, ht_array *a, ht_array *b, double rtol, double atol, bool equal_nan) {
    if (!a || !b) return NULL;
    ht_dtype dtype = ht_dtype_at_least_float(ht_dtype_promote(a->dtype, b->dtype));
    a = ht_astype(s, a, dtype);
    b = ht_astype(s, b, dtype);
    ht_array *distance = ht_abs(s, ht_subtract(s, a, b));
    ht_array *tolerance = ht_add(s, ht_multiply(s, ht_abs(s, b), constant(s, rtol, dtype)), constant(s, atol, dtype));
    ht_array *finite = ht_logical_and(s, ht_isfinite(s, a), ht_isfinite(s, b));
    ht_array *near = ht_logical_and(s, finite, ht_less_equal(s, distance, tolerance));
    ht_array *close = ht_logical_or(s, near, ht_equal(s, a, b));
    return equal_nan ? ht_logical_or(s, close, both_nan(s, a, b)) : close;
}

ht_array *ht_allclose(ht_scope *s, ht_array *a, ht_array *b, double rtol, double atol, bool equal_nan) {
    return ht_all(s, ht_isclose(s, a, b, rtol, atol, equal_nan), NULL, 0, false);
}

HT_REPLAY(array_equal_again, ht_array_equal(s, in[0], in[1], a->number[0]))

ht_array *ht_array_equal(ht_scope *s, ht_array *a, ht_array *b, bool equal_nan) {
    if (!a || !b) return NULL;
    if (ht_recording())
        return ht_record_plain(s, array_equal_again, (ht_plain_args){.number = {equal_nan}}, (ht_array *[]){a, b}, 2);
    if (!ht_same_shape(a, b)) return constant(s, 0.0, HT_BOOL);
    ht_array *same = ht_equal(s, a, b);
    if (equal_nan) same = ht_logical_or(s, same, both_nan(s, a, b));
    return ht_all(s, same, NULL, 0, false);
}
