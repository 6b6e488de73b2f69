/* Strided slices: views and updates. */
#include "array/op.h"
#include "base/checked.h"
#include "base/error.h"
#include "ops/replay_arguments.h"

#include <hearth/index.h>
#include <hearth/ops.h>

#include <string.h>

typedef struct bounds {
    int64_t start[HT_MAX_DIMS], stop[HT_MAX_DIMS], step[HT_MAX_DIMS];
} bounds;

static void open_bounds(const ht_array *x, const int64_t *start, const int64_t *stop, const int64_t *step, bounds *b) {
    for (int i = 0; i < x->n_dims; i++) {
        const int64_t n = x->shape[i], by = b->step[i] = step ? step[i] : 1;
        b->start[i] = start[i] != HT_OPEN ? start[i] : by < 0 ? n - 1 : 0;
        b->stop[i] = stop[i] != HT_OPEN ? stop[i] : by < 0 ? -1 : n;
    }
}

/* ---- recording ---- */

typedef struct slice_args {
    bounds b;
    int64_t size[HT_MAX_DIMS]; /* of the traced array */
    bool fits;                 /* the call was ht_slice_range: bounds are clamped */
} slice_args;

static slice_args args_of(const ht_array *x, const int64_t *start, const int64_t *stop, const int64_t *step,
                          bool fits) {
    slice_args a = {.fits = fits};
    for (int i = 0; i < x->n_dims; i++) {
        a.b.start[i] = start[i];
        a.b.stop[i] = stop[i];
        a.b.step[i] = step ? step[i] : 1;
        a.size[i] = x->shape[i];
    }
    return a;
}

/* Fails for a bound that was the end of a resized axis in the trace: it is ambiguous. */
static bool check_ends(ht_scope *s, const char *op, const slice_args *a, const ht_array *x) {
    for (int i = 0; i < x->n_dims; i++) {
        const int64_t n = a->size[i];
        if (n == x->shape[i]) continue;
        bool forward = a->b.step[i] > 0;
        int64_t bound = forward ? a->b.stop[i] : a->b.start[i];
        if (bound != (forward ? n : n - 1)) continue;
        return ht_scope_fail(
            s, HT_ERR_ARGUMENT,
            "%s: bound %lld of axis %d was the end of the axis when the function was traced, which now has "
            "%lld elements; write HT_OPEN where the end is meant, whatever the size",
            op, (long long)bound, i, (long long)x->shape[i]);
    }
    return true;
}

HT_REPLAY_OF(slice_again, slice_args,
             a->fits                            ? ht_slice_range(s, in[0], a->b.start, a->b.stop, a->b.step)
             : check_ends(s, "slice", a, in[0]) ? ht_slice(s, in[0], a->b.start, a->b.stop, a->b.step)
                                                : NULL)

HT_REPLAY_OF(update_again, slice_args,
             a->fits ? ht_slice_update_range(s, in[0], in[1], a->b.start, a->b.stop, a->b.step)
             : check_ends(s, "slice_update", a, in[0])
                 ? ht_slice_update(s, in[0], in[1], a->b.start, a->b.stop, a->b.step)
                 : NULL)

static ht_array *record_slice(ht_scope *s, slice_args a, ht_array *x) {
    return ht_record_one(s, slice_again, &a, sizeof a, &x, 1);
}

static ht_array *record_update(ht_scope *s, slice_args a, ht_array *x, ht_array *update) {
    return ht_record_one(s, update_again, &a, sizeof a, (ht_array *[]){x, update}, 2);
}

/* ---- views ---- */

ht_array *ht_slice(ht_scope *s, ht_array *x, const int64_t *start, const int64_t *stop, const int64_t *step) {
    bounds b;
    if (!x) return NULL;
    if (ht_recording()) return record_slice(s, args_of(x, start, stop, step, false), x);
    open_bounds(x, start, stop, step, &b);
    for (int i = 0; i < x->n_dims; i++) {
        int64_t by = b.step[i], n = x->shape[i];
        bool ok = by > 0 ? b.start[i] >= 0 && b.start[i] <= b.stop[i] && b.stop[i] <= n
                         : by < 0 && by > -INT64_MAX && b.start[i] < n && b.stop[i] <= b.start[i] && b.stop[i] >= -1;
        if (!ok)
            return ht_scope_fail(s, HT_ERR_ARGUMENT, "slice: axis %d of %lld cannot be cut from %lld to %lld by %lld",
                                 i, (long long)n, (long long)b.start[i], (long long)b.stop[i], (long long)by);
    }
    ht_array *v = ht_view_node(s, HT_OP_SLICE, &x, 1, 0);
    if (!v) return NULL;
    ht_slice_params *p = (void *)v->params;
    for (int i = 0; i < x->n_dims; i++) {
        int64_t by = b.step[i], distance = b.stop[i] - b.start[i];
        p->start[i] = b.start[i];
        p->step[i] = by;
        v->shape[i] = by > 0 ? ht_ceil_div_i64(distance, by) : ht_ceil_div_i64(-distance, -by);
        if (v->shape[i] > 0) v->offset += b.start[i] * x->stride[i];
        v->stride[i] =
            v->shape[i] > 1 ? x->stride[i] * by : x->stride[i]; /* the step of one element may be any number */
    }
    return v;
}

/* Bound of an axis of n elements as Python reads it, clamped to [lowest, highest]. */
static int64_t moved_within(int64_t bound, int64_t n, int64_t lowest, int64_t highest) {
    if (bound < 0) bound += n;
    return bound < lowest ? lowest : bound > highest ? highest : bound;
}

static void fit_bounds(const ht_array *x, const int64_t *start, const int64_t *stop, const int64_t *step, bounds *b) {
    open_bounds(x, start, stop, step, b);
    for (int i = 0; i < x->n_dims; i++) {
        const int64_t n = x->shape[i], lowest = b->step[i] < 0 ? -1 : 0, highest = lowest + n;
        if (start[i] != HT_OPEN) b->start[i] = moved_within(start[i], n, lowest, highest);
        if (stop[i] != HT_OPEN) b->stop[i] = moved_within(stop[i], n, lowest, highest);
        bool empty = b->step[i] < 0 ? b->stop[i] >= b->start[i] : b->stop[i] <= b->start[i];
        if (empty) b->stop[i] = b->start[i];
    }
}

ht_array *ht_slice_range(ht_scope *s, ht_array *x, const int64_t *start, const int64_t *stop, const int64_t *step) {
    bounds b;
    if (!x) return NULL;
    if (ht_recording()) return record_slice(s, args_of(x, start, stop, step, true), x);
    fit_bounds(x, start, stop, step, &b);
    return ht_slice(s, x, b.start, b.stop, b.step);
}

/* ---- updates ---- */

ht_array *ht_slice_update(ht_scope *s, ht_array *x, ht_array *update, const int64_t *start, const int64_t *stop,
                          const int64_t *step) {
    bounds b;
    if (!x || !update) return NULL;
    if (ht_recording()) return record_update(s, args_of(x, start, stop, step, false), x, update);
    open_bounds(x, start, stop, step, &b);
    ht_array *window = ht_slice(s, x, b.start, b.stop, b.step); /* checks the bounds and gives the shape */
    if (!window) return NULL;
    ht_slice_params p = {{0}, {0}};
    for (int i = 0; i < x->n_dims; i++) {
        p.start[i] = window->shape[i] > 0 ? b.start[i] : 0;
        p.step[i] = b.step[i];
    }
    update = ht_broadcast_to(s, ht_astype(s, update, x->dtype), window->shape, window->n_dims);
    ht_scope_drop(s, window); /* a reference to x would prevent its donation */
    return ht_apply(s, HT_OP_SLICE_UPDATE, &p, (ht_array *[]){x, update}, 2);
}

ht_array *ht_slice_update_range(ht_scope *s, ht_array *x, ht_array *update, const int64_t *start, const int64_t *stop,
                                const int64_t *step) {
    bounds b;
    if (!x || !update) return NULL;
    if (ht_recording()) return record_update(s, args_of(x, start, stop, step, true), x, update);
    fit_bounds(x, start, stop, step, &b);
    return ht_slice_update(s, x, update, b.start, b.stop, b.step);
}
