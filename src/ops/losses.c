/* Losses, as compositions of reductions, selections and gathered elements. */
#include "array/op.h"
#include "ops/gradient.h"
#include "ops/replay_arguments.h"

#include <hearth/index.h>
#include <hearth/losses.h>

/* f64 of f64, else f32: losses of narrow dtypes are not summed in these. */
static ht_dtype loss_dtype(ht_dtype dtype) { return ht_dtype_promote(ht_dtype_at_least_float(dtype), HT_F32); }

/* ---- cross-entropy ---- */

static bool check_targets(ht_scope *s, const char *name, const ht_array *logits, const ht_array *targets) {
    char a[HT_SHAPE_TEXT], b[HT_SHAPE_TEXT];
    if (logits->n_dims != targets->n_dims + 1 || !ht_shape_begins(logits, targets->shape, targets->n_dims))
        ht_scope_fail(
            s, HT_ERR_ARGUMENT,
            "%s: logits are %s and targets %s, expected [..., V] and [...]: one target for each row of logits", name,
            ht_shape_text(logits->shape, logits->n_dims, a), ht_shape_text(targets->shape, targets->n_dims, b));
    else if (targets->dtype == HT_BOOL || ht_dtype_is_float(targets->dtype))
        ht_scope_fail(s, HT_ERR_ARGUMENT, "%s: targets are %s, expected integers", name, ht_dtype_name(targets->dtype));
    else
        return true;
    return false;
}

/* The losses of the rows where `counts` [...] is true, and 0 elsewhere. Logits of other rows are zeroed before use: NaN
 * or infinities would pass even through a gradient of 0. */
static ht_array *losses_where(ht_scope *s, ht_array *logits, ht_array *targets, ht_array *counts) {
    logits = ht_astype(s, logits, loss_dtype(logits->dtype));
    if (!logits || !counts) return NULL;
    ht_array *zero = ht_constant_like(s, logits, 0);
    ht_array *x = ht_where(s, ht_expand_dims(s, counts, -1), logits, zero);
    ht_array *at = ht_where(s, counts, targets, ht_constant_like(s, targets, 0));
    ht_array *chosen = ht_squeeze(s, ht_take_along_axis(s, x, ht_expand_dims(s, at, -1), -1), -1);
    ht_array *all = ht_logsumexp(s, x, (int[]){-1}, 1, false);
    return ht_where(s, counts, ht_subtract(s, all, chosen), zero);
}

static ht_array *not_negative(ht_scope *s, ht_array *targets) {
    return ht_greater_equal(s, targets, ht_constant_like(s, targets, 0));
}

HT_REPLAY(cross_entropy_again, ht_cross_entropy(s, in[0], in[1]))

ht_array *ht_cross_entropy(ht_scope *s, ht_array *logits, ht_array *targets) {
    if (!logits || !targets) return NULL;
    if (ht_recording())
        return ht_record_plain(s, cross_entropy_again, (ht_plain_args){0}, (ht_array *[]){logits, targets}, 2);
    if (!check_targets(s, "cross_entropy", logits, targets)) return NULL;
    return losses_where(s, logits, targets, not_negative(s, targets));
}

HT_REPLAY(masked_cross_entropy_again, ht_masked_cross_entropy(s, in[0], in[1], in[2]))

ht_array *ht_masked_cross_entropy(ht_scope *s, ht_array *logits, ht_array *targets, ht_array *mask) {
    if (!logits || !targets || !mask) return NULL;
    if (ht_recording())
        return ht_record_plain(s, masked_cross_entropy_again, (ht_plain_args){0}, (ht_array *[]){logits, targets, mask},
                               3);
    if (!check_targets(s, "masked_cross_entropy", logits, targets)) return NULL;
    ht_array *counts = not_negative(s, targets);
    if (mask != HT_NONE) counts = ht_logical_and(s, counts, ht_broadcast_to(s, mask, targets->shape, targets->n_dims));
    ht_array *total = ht_sum(s, losses_where(s, logits, targets, counts), NULL, 0, false);
    if (!total) return NULL;
    ht_array *n = ht_astype(s, ht_sum(s, counts, NULL, 0, false), total->dtype);
    return ht_divide(s, total, ht_maximum(s, n, ht_constant_like(s, total, 1)));
}

/* ---- mean squared error ---- */

HT_REPLAY(mse_again, ht_mse(s, in[0], in[1]))

ht_array *ht_mse(ht_scope *s, ht_array *x, ht_array *y) {
    char a[HT_SHAPE_TEXT], b[HT_SHAPE_TEXT];
    if (!x || !y) return NULL;
    if (ht_recording()) return ht_record_plain(s, mse_again, (ht_plain_args){0}, (ht_array *[]){x, y}, 2);
    if (!ht_same_shape(x, y))
        return ht_scope_fail(s, HT_ERR_ARGUMENT, "mse: predictions are %s and targets %s, expected one shape",
                             ht_shape_text(x->shape, x->n_dims, a), ht_shape_text(y->shape, y->n_dims, b));
    const ht_dtype dtype = loss_dtype(ht_dtype_promote(x->dtype, y->dtype));
    ht_array *off = ht_subtract(s, ht_astype(s, x, dtype), ht_astype(s, y, dtype));
    return ht_mean(s, ht_square(s, off), NULL, 0, false);
}
