/* Reductions and scans over axes. */
#include "function.h"

#define OVER_AXES(X) X(sum) X(prod) X(mean) X(max) X(min) X(all) X(any) X(logsumexp)
#define SPREADS(X)   X(var) X(std)
#define PLACES(X)    X(argmax) X(argmin)
#define SUMS(X)      X(cumsum) X(cumprod)
#define EXTREMES(X)  X(cummax) X(cummin) X(logcumsumexp)
#define SCANS(X)     SUMS(X) EXTREMES(X)
#define OTHERS(X)                                                                                                      \
    X(ht_astype)                                                                                                       \
    X(ht_expand_dims)                                                                                                  \
    X(ht_flatten)                                                                                                      \
    X(ht_reshape_like)                                                                                                 \
    X(ht_softmax)                                                                                                      \
    X(ht_transpose)

#define FIELD(name)  CORE_FIELD(ht_##name)
#define SYMBOL(name) CORE_SYMBOL(ht_##name)
static struct { OVER_AXES(FIELD) SPREADS(FIELD) PLACES(FIELD) SCANS(FIELD) OTHERS(CORE_FIELD) } ht;
static const core_symbol symbols[] = {OVER_AXES(SYMBOL) SPREADS(SYMBOL) PLACES(SYMBOL) SCANS(SYMBOL)
                                          OTHERS(CORE_SYMBOL){NULL, NULL}};

static const int *axes_of(const core_value *v) { return v->absent ? NULL : v->axes; }
static int count_of(const core_value *v) { return v->absent ? 0 : v->n; }

#define BODY_OVER_AXES(name)                                                                                           \
    BODY(name) { return core_finish(s, ht.ht_##name(s, v[0].array, axes_of(&v[1]), count_of(&v[1]), v[2].truth)); }
OVER_AXES(BODY_OVER_AXES)

#define BODY_OF_SPREAD(name)                                                                                           \
    BODY(name) {                                                                                                       \
        return core_finish(s, ht.ht_##name(s, v[0].array, axes_of(&v[1]), count_of(&v[1]), v[2].truth,                 \
                                           v[4].absent ? v[3].axis : v[4].axis));                                      \
    }
SPREADS(BODY_OF_SPREAD)

#define BODY_OF_PLACE(name)                                                                                            \
    BODY(name) { return core_finish(s, ht.ht_##name(s, v[0].array, v[1].absent ? NULL : &v[1].axis, v[2].truth)); }
PLACES(BODY_OF_PLACE)

/* Scans without an axis are those of all elements in a row. */
static ht_array *row_of(ht_scope *s, ht_array *a, const core_value *axis) {
    return axis->absent ? ht.ht_flatten(s, a, 0, -1) : a;
}

static int axis_of(const core_value *axis) { return axis->absent ? 0 : axis->axis; }

#define BODY_OF_EXTREME(name)                                                                                          \
    BODY(name) {                                                                                                       \
        ht_array *row = row_of(s, v[0].array, &v[1]);                                                                  \
        return core_finish(s, ht.ht_##name(s, row, axis_of(&v[1]), v[2].truth, v[3].truth));                           \
    }
EXTREMES(BODY_OF_EXTREME)

#define BODY_OF_SUM(name)                                                                                              \
    BODY(name) {                                                                                                       \
        ht_array *a = v[4].absent ? v[0].array : ht.ht_astype(s, v[0].array, v[4].dtype);                              \
        ht_array *row = row_of(s, a, &v[1]);                                                                           \
        return core_finish(s, ht.ht_##name(s, row, axis_of(&v[1]), v[2].truth, v[3].truth));                           \
    }
SUMS(BODY_OF_SUM)

/* Over several axes: they are moved behind the others and become one. */
static ht_array *softmax_together(ht_scope *s, ht_array *a, const int *order, int n, int n_together) {
    bool moves = false;
    int back[8];
    for (int i = 0; i < n; i++) back[order[i]] = i, moves |= order[i] != i;
    ht_array *moved = moves ? ht.ht_transpose(s, a, order) : a;
    ht_array *rows = n_together ? ht.ht_flatten(s, moved, n - n_together, -1) : ht.ht_expand_dims(s, moved, -1);
    ht_array *y = ht.ht_reshape_like(s, ht.ht_softmax(s, rows, -1), moved);
    return moves ? ht.ht_transpose(s, y, back) : y;
}

BODY(softmax) {
    ht_array *a = v[0].array;
    const int n = core_ht.ht_array_n_dims(a);
    if (!v[1].absent && v[1].n == 1) return core_finish(s, ht.ht_softmax(s, a, v[1].axes[0]));
    int together[8], order[8], n_together = v[1].absent ? n : v[1].n, n_order = 0;
    bool chosen[8] = {false};
    if (n_together > n) {
        PyErr_Format(PyExc_ValueError, "softmax: %d axes are named, the array has %d", n_together, n);
        return core_give_up(s);
    }
    for (int i = 0; i < n_together; i++) {
        if (!core_axis("softmax", v[1].absent ? i : v[1].axes[i], n, &together[i])) return core_give_up(s);
        if (chosen[together[i]]) {
            PyErr_Format(PyExc_ValueError, "softmax: axis %d is named twice", together[i]);
            return core_give_up(s);
        }
        chosen[together[i]] = true;
    }
    for (int i = 0; i < n; i++)
        if (!chosen[i]) order[n_order++] = i;
    for (int i = 0; i < n_together; i++) order[n_order++] = together[i];
    return core_finish(s, softmax_together(s, a, order, n, n_together));
}

#define REDUCED AXES("axis", .value = "None"), TRUTH("keepdims", .value = "False")
#define SCANNED                                                                                                        \
    ARRAY("a"), AXIS("axis", .value = "None"), TRUTH("reverse", .value = "False", .way = CORE_BY_NAME),                \
        TRUTH("inclusive", .value = "True", .way = CORE_BY_NAME)
#define ROW_OVER_AXES(name) FUNCTION(name, NULL, ARRAY("a"), REDUCED),
#define ROW_OF_SPREAD(name)                                                                                            \
    FUNCTION(name, "`correction` is another name of `ddof`.", ARRAY("a"), REDUCED, AXIS("ddof", .value = "0"),         \
             AXIS("correction", .value = "None", .way = CORE_BY_NAME)),
#define ROW_OF_PLACE(name)                                                                                             \
    FUNCTION(name, NULL, ARRAY("a"), AXIS("axis", .value = "None"), TRUTH("keepdims", .value = "False")),
#define ROW_OF_EXTREME(name) FUNCTION(name, NULL, SCANNED),
#define ROW_OF_SUM(name)     FUNCTION(name, NULL, SCANNED, DTYPE("dtype", .value = "None", .way = CORE_BY_NAME)),
static const core_spec specs[] = {
    OVER_AXES(ROW_OVER_AXES) SPREADS(ROW_OF_SPREAD) PLACES(ROW_OF_PLACE) SUMS(ROW_OF_SUM) EXTREMES(ROW_OF_EXTREME)
        FUNCTION(softmax, "Over one axis, several, or all. It is computed in f32 or wider, `precise` or not.",
                 ARRAY("a"), AXES("axis", .value = "None"), TRUTH("precise", .value = "False", .way = CORE_BY_NAME)),
    END_OF_TABLE,
};
const core_family core_reduce_family = {"hearth", NULL, symbols, specs};
