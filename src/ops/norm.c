/* Vector norms. */
#include "array/op.h"
#include "base/dtype.h"

#include <hearth/linalg.h>
#include <hearth/ops.h>

#include <math.h>

ht_array *ht_norm(ht_scope *s, ht_array *x, double order, const int *axis, int n_axes, bool keepdims) {
    if (!x) return NULL;
    x = ht_astype(s, x, ht_dtype_at_least_float(x->dtype));
    if (order == 2.0) return ht_sqrt(s, ht_sum(s, ht_square(s, x), axis, n_axes, keepdims));
    ht_array *size = ht_abs(s, x);
    if (isinf(order)) return (order > 0 ? ht_max : ht_min)(s, size, axis, n_axes, keepdims);
    if (!size || isnan(order))
        return size ? ht_scope_fail(s, HT_ERR_ARGUMENT, "norm: the order is not a number") : NULL;
    if (order == 0.0) {
        ht_array *counts = ht_not_equal(s, size, ht_full(s, 0.0, size->dtype, NULL, 0));
        return ht_sum(s, ht_astype(s, counts, size->dtype), axis, n_axes, keepdims);
    }
    if (order == 1.0) return ht_sum(s, size, axis, n_axes, keepdims);
    ht_array *power = ht_full(s, order, size->dtype, NULL, 0), *root = ht_full(s, 1.0 / order, size->dtype, NULL, 0);
    return ht_power(s, ht_sum(s, ht_power(s, size, power), axis, n_axes, keepdims), root);
}
