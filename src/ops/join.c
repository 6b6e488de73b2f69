/* Concatenation, stacking, repetition, padding and rolling. */
#include "array/differentiate.h"
#include "array/op.h"
#include "base/checked.h"
#include "base/error.h"
#include "ops/replay_arguments.h"

#include <hearth/index.h>
#include <hearth/ops.h>

#include <stdlib.h>
#include <string.h>

/* ---- concatenate ---- */

ht_status ht_shape_concatenate(const ht_op_call *c, ht_result_type *out, ht_error *err) {
    int axis = ((const ht_axis_params *)c->params)->axis;
    char first[HT_SHAPE_TEXT], other[HT_SHAPE_TEXT];
    ht_result_like(c->in[0], c->in[0]->dtype, out);
    for (int k = 1; k < c->n_in; k++) {
        bool fits = c->in[k]->n_dims == out->n_dims;
        for (int i = 0; fits && i < out->n_dims; i++) fits = i == axis || c->in[k]->shape[i] == out->shape[i];
        if (!fits || !ht_add_i64(out->shape[axis], c->in[k]->shape[axis], &out->shape[axis]))
            return ht_fail(err, HT_ERR_ARGUMENT, "%s: shapes %s and %s do not fit together along axis %d", c->op,
                           ht_shape_text(c->in[0]->shape, c->in[0]->n_dims, first),
                           ht_shape_text(c->in[k]->shape, c->in[k]->n_dims, other), axis);
    }
    return HT_OK;
}

/* List of the arrays converted to their promoted dtype; the caller frees it. False when one is NULL. */
static bool promoted(ht_scope *s, ht_array *const *arrays, int n, ht_array ***out) {
    ht_dtype dtype = HT_BOOL;
    *out = NULL;
    for (int i = 0; i < n; i++) {
        if (!arrays[i]) return false;
        dtype = ht_dtype_promote(dtype, arrays[i]->dtype);
    }
    ht_array **all = ht_array_list(s, n);
    if (!all) return false;
    for (int i = 0; i < n; i++) all[i] = ht_astype(s, arrays[i], dtype);
    *out = all;
    return true;
}

ht_array *ht_concatenate(ht_scope *s, ht_array *const *arrays, int n, int axis) {
    ht_array **all;
    if (n < 1) return ht_scope_fail(s, HT_ERR_ARGUMENT, "concatenate: no arrays are given");
    if (!promoted(s, arrays, n, &all)) return NULL;
    ht_array *y = NULL;
    int at;
    if (ht_find_axis(s, "concatenate", arrays[0], axis, &at))
        y = n == 1 ? all[0] : ht_apply(s, HT_OP_CONCATENATE, &(ht_axis_params){at}, all, n);
    free(all);
    return y;
}

ht_array *ht_stack(ht_scope *s, ht_array *const *arrays, int n, int axis) {
    if (n < 1) return ht_scope_fail(s, HT_ERR_ARGUMENT, "stack: no arrays are given");
    ht_array **all = ht_array_list(s, n);
    if (!all) return NULL;
    for (int i = 0; i < n; i++) all[i] = ht_expand_dims(s, arrays[i], axis);
    int at = arrays[0] && axis < 0 ? axis + arrays[0]->n_dims + 1 : axis;
    ht_array *y = ht_concatenate(s, all, n, at);
    free(all);
    return y;
}

static bool meshgrid_again(ht_scope *s, const void *args, ht_array *const *in, int n_in, ht_array **out) {
    const ht_plain_args *a = args;
    return ht_meshgrid(s, in, n_in, a->number[0], a->number[1], out);
}

bool ht_meshgrid(ht_scope *s, ht_array *const *arrays, int n, bool sparse, bool swap, ht_array **grids) {
    int64_t whole[HT_MAX_DIMS], alone[HT_MAX_DIMS];
    for (int i = 0; i < n; i++) grids[i] = NULL;
    const ht_plain_args args = {.number = {sparse, swap}};
    if (n > 0 && ht_recording())
        return ht_record_call(s, &(ht_recorded_call){meshgrid_again, &args, sizeof args, NULL}, arrays, n, grids, n);
    if (n < 1 || n > HT_MAX_DIMS)
        return ht_scope_fail(s, HT_ERR_ARGUMENT, "meshgrid: %d arrays, expected 1 to %d", n, HT_MAX_DIMS);
    for (int i = 0; i < n; i++) {
        if (!arrays[i]) return false;
        whole[swap && n > 1 && i < 2 ? 1 - i : i] = ht_array_size(arrays[i]);
    }
    bool ok = true;
    for (int i = 0; ok && i < n; i++) {
        for (int k = 0; k < n; k++) alone[k] = 1;
        alone[swap && n > 1 && i < 2 ? 1 - i : i] = ht_array_size(arrays[i]);
        ht_array *line = ht_reshape(s, arrays[i], alone, n);
        grids[i] = sparse ? line : ht_broadcast_to(s, line, whole, n);
        ok = grids[i] != NULL;
    }
    for (int i = 0; !ok && i < n; i++) grids[i] = NULL;
    return ok;
}

/* ---- repetition ---- */

static ht_array *repeated(ht_scope *s, ht_array *x, int64_t by, int axis, bool whole);
HT_REPLAY(repeated_again, repeated(s, in[0], a->number[0], a->axis[0], a->number[1]))

/* x with an axis `by` times as long: repeated as a whole (tile), or each element repeated. */
static ht_array *repeated(ht_scope *s, ht_array *x, int64_t by, int axis, bool whole) {
    if (!x || by == 1) return x;
    if (ht_recording())
        return ht_record_plain(s, repeated_again, (ht_plain_args){.number = {by, whole}, .axis = {axis}}, &x, 1);
    int64_t shape[HT_MAX_DIMS], outer = 1, inner = 1, n = x->shape[axis], length;
    memcpy(shape, x->shape, sizeof shape);
    if (by < 0 || !ht_mul_i64(n, by, &length))
        return ht_scope_fail(s, HT_ERR_ARGUMENT, "%lld times an axis of size %lld cannot be", (long long)by,
                             (long long)n);
    for (int i = 0; i < axis; i++) outer *= shape[i];
    for (int i = axis + 1; i < x->n_dims; i++) inner *= shape[i];
    shape[axis] = length;
    const int64_t once[4] = {outer, whole ? 1 : n, whole ? n : 1, inner};
    const int64_t often[4] = {outer, whole ? by : n, whole ? n : by, inner};
    ht_array *y = ht_broadcast_to(s, ht_reshape(s, x, once, 4), often, 4);
    return ht_reshape(s, y, shape, x->n_dims);
}

ht_array *ht_tile(ht_scope *s, ht_array *x, const int64_t *times, int n) {
    if (x && (n < 0 || n > HT_MAX_DIMS))
        return ht_scope_fail(s, HT_ERR_ARGUMENT, "tile: %d axes, at most %d are possible", n, HT_MAX_DIMS);
    while (x && x->n_dims < n) x = ht_expand_dims(s, x, 0);
    for (int i = 0; x && i < n; i++) x = repeated(s, x, times[i], x->n_dims - n + i, true);
    return x;
}

ht_array *ht_repeat(ht_scope *s, ht_array *x, int64_t times, int axis) {
    int at;
    if (!x || !ht_find_axis(s, "repeat", x, axis, &at)) return NULL;
    return repeated(s, x, times, at, false);
}

/* ---- padding and rolling ---- */

/* Padding of n elements along an axis: the edge element or the value. */
static ht_array *padding(ht_scope *s, ht_array *x, int axis, int64_t n, int64_t edge, ht_array *value) {
    int64_t shape[HT_MAX_DIMS];
    memcpy(shape, x->shape, sizeof shape);
    shape[axis] = n;
    return ht_broadcast_to(s, value == HT_NONE ? ht_axis_part(s, x, axis, edge, edge + 1) : value, shape, x->n_dims);
}

/* Padding with edges or a value, and with reflections, of which `edge_again` ones repeat the edge. */
typedef struct pad_args {
    int64_t widths[HT_MAX_DIMS][2];
    bool edge_again;
} pad_args;

static pad_args pad_args_of(const ht_array *x, const int64_t (*widths)[2], bool edge_again) {
    pad_args a = {.edge_again = edge_again};
    memcpy(a.widths, widths, (size_t)x->n_dims * sizeof *widths);
    return a;
}

HT_REPLAY_OF(pad_again, pad_args, ht_pad(s, in[0], a->widths, in[1]))
HT_REPLAY_OF(mirror_again, pad_args, ht_pad_mirrored(s, in[0], a->widths, a->edge_again))

ht_array *ht_pad(ht_scope *s, ht_array *x, const int64_t (*widths)[2], ht_array *value) {
    if (!x || !value) return NULL;
    if (ht_recording()) {
        const pad_args a = pad_args_of(x, widths, false);
        return ht_record_one(s, pad_again, &a, sizeof a, (ht_array *[]){x, value}, 2);
    }
    value = value == HT_NONE ? value : ht_astype(s, value, x->dtype);
    if (value && value != HT_NONE && value->n_dims)
        return ht_scope_fail(s, HT_ERR_ARGUMENT, "pad: the value has %d dimensions, expected none", value->n_dims);
    for (int i = 0, n = x->n_dims; x && i < n; i++) {
        int64_t before = widths[i][0], behind = widths[i][1], length = x->shape[i];
        if (before < 0 || behind < 0 || (value == HT_NONE && length == 0 && before + behind > 0))
            return ht_scope_fail(s, HT_ERR_ARGUMENT, "pad: axis %d of size %lld cannot get %lld and %lld more", i,
                                 (long long)length, (long long)before, (long long)behind);
        if (before + behind == 0) continue;
        ht_array *parts[3] = {padding(s, x, i, before, 0, value), x, padding(s, x, i, behind, length - 1, value)};
        x = ht_concatenate(s, parts, 3, i);
    }
    return x;
}

/* Index of the element of n that repeated reflection puts at position i, which may be negative. */
static int64_t mirrored(int64_t i, int64_t n, bool edge_again) {
    int64_t period = edge_again ? 2 * n : n > 1 ? 2 * (n - 1) : 1, at = (i % period + period) % period;
    return at < n ? at : edge_again ? period - 1 - at : period - at;
}

static ht_array *mirror(ht_scope *s, ht_array *x, int axis, const int64_t width[2], bool edge_again) {
    int64_t n = x->shape[axis], all;
    if (width[0] < 0 || width[1] < 0 || n == 0 || width[0] > INT32_MAX || width[1] > INT32_MAX)
        return ht_scope_fail(s, HT_ERR_ARGUMENT, "pad: axis %d of size %lld cannot get %lld and %lld more", axis,
                             (long long)n, (long long)width[0], (long long)width[1]);
    all = width[0] + n + width[1];
    int64_t *places = malloc((size_t)all * sizeof *places);
    if (!places) return ht_scope_fail(s, HT_ERR_MEMORY, "pad: no memory for %lld elements", (long long)all);
    for (int64_t i = 0; i < all; i++) places[i] = mirrored(i - width[0], n, edge_again);
    ht_array *index = ht_array_from(s, places, HT_I64, &all, 1);
    free(places);
    return ht_take(s, x, index, axis);
}

ht_array *ht_pad_mirrored(ht_scope *s, ht_array *x, const int64_t (*widths)[2], bool edge_again) {
    if (!x) return NULL;
    if (ht_recording()) {
        const pad_args a = pad_args_of(x, widths, edge_again);
        return ht_record_one(s, mirror_again, &a, sizeof a, &x, 1);
    }
    for (int i = 0, n = x->n_dims; x && i < n; i++)
        if (widths[i][0] || widths[i][1]) x = mirror(s, x, i, widths[i], edge_again);
    return x;
}

HT_REPLAY(roll_again, ht_roll(s, in[0], a->number[0], a->axis[0]))

ht_array *ht_roll(ht_scope *s, ht_array *x, int64_t shift, int axis) {
    if (x && ht_recording())
        return ht_record_plain(s, roll_again, (ht_plain_args){.number = {shift}, .axis = {axis}}, &x, 1);
    int at;
    if (!x || !ht_find_axis(s, "roll", x, axis, &at)) return NULL;
    int64_t n = x->shape[at], by = n ? (shift % n + n) % n : 0;
    if (by == 0) return x;
    ht_array *parts[2] = {ht_axis_part(s, x, at, n - by, n), ht_axis_part(s, x, at, 0, n - by)};
    return ht_concatenate(s, parts, 2, at);
}

typedef struct split_args {
    int n, axis;
    bool equal;
    int64_t at[]; /* [n]; empty for equal parts */
} split_args;

static bool split_again(ht_scope *s, const void *args, ht_array *const *in, int n_in, ht_array **out) {
    const split_args *a = args;
    (void)n_in;
    return a->equal ? ht_split_equally(s, in[0], a->n, a->axis, out) : ht_split(s, in[0], a->at, a->n, a->axis, out);
}

static bool record_split(ht_scope *s, ht_array *x, const int64_t *at, int n, int axis, ht_array **parts) {
    const size_t bytes = sizeof(split_args) + (at ? (size_t)n * sizeof *at : 0);
    split_args *a = calloc(1, bytes);
    if (!a) return ht_scope_fail(s, HT_ERR_MEMORY, "out of memory: %d parts of an array", n);
    *a = (split_args){.n = n, .axis = axis, .equal = !at};
    if (at && n) memcpy(a->at, at, (size_t)n * sizeof *at);
    bool ok = ht_record_call(s, &(ht_recorded_call){split_again, a, bytes, NULL}, &x, 1, parts, at ? n + 1 : n);
    free(a);
    return ok;
}

/* Parts of an axis: part i ends at at[i], or at a multiple of an equal share when `at` is NULL, the last at the axis' end. */
static bool cut(ht_scope *s, ht_array *x, int axis, const int64_t *at, int n, ht_array **parts) {
    const int64_t size = x->shape[axis];
    bool ok = true;
    for (int64_t i = 0, begin = 0, end; ok && i < n; i++, begin = end) {
        end = i + 1 == n ? size : at ? at[i] : size / n * (i + 1);
        parts[i] = ht_axis_part(s, x, axis, begin, end);
        ok = parts[i] != NULL;
    }
    for (int i = 0; !ok && i < n; i++) parts[i] = NULL;
    return ok;
}

bool ht_split_equally(ht_scope *s, ht_array *x, int n, int axis, ht_array **parts) {
    for (int i = 0; i < n; i++) parts[i] = NULL;
    int along;
    if (!x || !ht_find_axis(s, "split", x, axis, &along)) return false;
    const int64_t size = x->shape[along];
    if (n < 1 || size % n != 0)
        return ht_scope_fail(s, HT_ERR_ARGUMENT, "split: %lld elements are no %d equal parts", (long long)size, n);
    if (ht_recording()) return record_split(s, x, NULL, n, axis, parts);
    return cut(s, x, along, NULL, n, parts);
}

bool ht_split(ht_scope *s, ht_array *x, const int64_t *at, int n, int axis, ht_array **parts) {
    for (int i = 0; i <= n; i++) parts[i] = NULL;
    if (x && at && n >= 0 && ht_recording()) return record_split(s, x, at, n, axis, parts);
    int along;
    if (!x || !ht_find_axis(s, "split", x, axis, &along)) return false;
    return cut(s, x, along, at, n + 1, parts);
}
