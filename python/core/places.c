/* Gather, scatter and sort functions; and those that array[...] is made of, under names of their own. */
#include "function.h"

#define LIBRARY(X)                                                                                                     \
    X(ht_argpartition)                                                                                                 \
    X(ht_argsort)                                                                                                      \
    X(ht_broadcast_like)                                                                                               \
    X(ht_flatten)                                                                                                      \
    X(ht_gather)                                                                                                       \
    X(ht_partition)                                                                                                    \
    X(ht_put_along_axis)                                                                                               \
    X(ht_reshape_like)                                                                                                 \
    X(ht_scatter)                                                                                                      \
    X(ht_slice)                                                                                                        \
    X(ht_slice_range)                                                                                                  \
    X(ht_slice_update)                                                                                                 \
    X(ht_slice_update_range)                                                                                           \
    X(ht_sort)                                                                                                         \
    X(ht_take)                                                                                                         \
    X(ht_take_along_axis)                                                                                              \
    X(ht_topk)
CORE_SYMBOLS(LIBRARY)

/* Without an axis it is all elements in a row. */
static ht_array *row_of(ht_scope *s, ht_array *a, const core_value *axis) {
    return axis->absent ? ht.ht_flatten(s, a, 0, -1) : a;
}

static int axis_of(const core_value *axis) { return axis->absent ? 0 : axis->axis; }

/* ---- places ---- */

BODY(take) {
    ht_array *a = row_of(s, v[0].array, &v[2]);
    return core_finish(s, ht.ht_take(s, a, v[1].array, axis_of(&v[2])));
}

BODY(take_along_axis) {
    ht_array *a = row_of(s, v[0].array, &v[2]);
    return core_finish(s, ht.ht_take_along_axis(s, a, v[1].array, axis_of(&v[2])));
}

BODY(put_along_axis) {
    ht_array *a = row_of(s, v[0].array, &v[3]);
    ht_array *put = ht.ht_put_along_axis(s, a, v[1].array, v[2].array, axis_of(&v[3]));
    return core_finish(s, v[3].absent ? ht.ht_reshape_like(s, put, v[0].array) : put);
}

/* ---- windows that begin at a number ---- */

enum { MOST_AXES = 8 };

/* Numbers in a list, or in an array, which is computed. A new reference to a list or a tuple; NULL after an exception. */
static PyObject *starts_of(PyObject *o) {
    if (PyList_Check(o) || PyTuple_Check(o)) return Py_NewRef(o);
    PyObject *array = core_operand(o, NULL), *list = array ? core_list(((core_array *)array)->a) : NULL;
    Py_XDECREF(array);
    return !list || PyList_Check(list) ? list : Py_BuildValue("(N)", list);
}

/* Where the axes begin, those that are not named at 0. */
static bool read_begin(const ht_array *a, PyObject *starts, const core_value *axes, int64_t begin[MOST_AXES]) {
    PyObject *list = starts_of(starts), *numbers = list ? PySequence_Tuple(list) : NULL;
    Py_XDECREF(list);
    if (!numbers) return false;
    const Py_ssize_t n = PyTuple_Size(numbers);
    for (int i = 0; i < MOST_AXES; i++) begin[i] = 0;
    if (n != axes->n) PyErr_Format(PyExc_ValueError, "%zd starts are given for %d axes", n, axes->n);
    for (int i = 0; i < n && !PyErr_Occurred(); i++) {
        int axis;
        PyObject *number = PyNumber_Long(PyTuple_GetItem(numbers, i));
        if (number && core_axis("slice", axes->axes[i], core_ht.ht_array_n_dims(a), &axis))
            begin[axis] = PyLong_AsLongLong(number);
        Py_XDECREF(number);
    }
    Py_DECREF(numbers);
    return !PyErr_Occurred();
}

/* False after an exception. A window that begins nowhere is refused here, as HT_OPEN is one of the numbers below 0. */
static bool find_ends(const int64_t *begin, const int64_t *sizes, int n, int64_t end[MOST_AXES]) {
    for (int i = 0; i < n; i++) {
        if (begin[i] >= 0 && !__builtin_add_overflow(begin[i], sizes[i], &end[i])) continue;
        PyErr_Format(PyExc_ValueError, "slice: axis %d has no %lld elements from %lld on", i, (long long)sizes[i],
                     (long long)begin[i]);
        return false;
    }
    return true;
}

BODY(slice) {
    ht_array *a = v[0].array;
    int64_t begin[MOST_AXES], end[MOST_AXES];
    if (!read_begin(a, v[1].given, &v[2], begin)) return core_give_up(s);
    if (v[3].n != core_ht.ht_array_n_dims(a)) {
        PyErr_Format(PyExc_ValueError, "slice: %d sizes for an array of %d axes", v[3].n, core_ht.ht_array_n_dims(a));
        return core_give_up(s);
    }
    if (!find_ends(begin, v[3].sizes, v[3].n, end)) return core_give_up(s);
    return core_finish(s, ht.ht_slice(s, a, begin, end, NULL));
}

BODY(slice_update) {
    ht_array *a = v[0].array, *update = v[1].array;
    int64_t begin[MOST_AXES], end[MOST_AXES];
    if (!read_begin(a, v[2].given, &v[3], begin)) return core_give_up(s);
    const int n = core_ht.ht_array_n_dims(a), missing = n - core_ht.ht_array_n_dims(update);
    int64_t sizes[MOST_AXES];
    for (int i = 0; i < n; i++) sizes[i] = i < missing ? 1 : core_ht.ht_array_dim(update, i - missing);
    if (!find_ends(begin, sizes, n, end)) return core_give_up(s);
    return core_finish(s, ht.ht_slice_update(s, a, update, begin, end, NULL));
}

/* ---- order ---- */

#define BODY_OF_ORDER(name)                                                                                            \
    BODY(name) { return core_finish(s, ht.ht_##name(s, row_of(s, v[0].array, &v[1]), axis_of(&v[1]))); }
BODY_OF_ORDER(sort)
BODY_OF_ORDER(argsort)
#define BODY_OF_PART(name)                                                                                             \
    BODY(name) { return core_finish(s, ht.ht_##name(s, row_of(s, v[0].array, &v[2]), v[1].whole, axis_of(&v[2]))); }
BODY_OF_PART(partition)
BODY_OF_PART(argpartition)
BODY_OF_PART(topk)

#define AXIS_NONE     AXIS("axis", .value = "None")
#define AXIS_LAST     AXIS("axis", .value = "-1", .or_absent = true)
#define PART(name, k) FUNCTION(name, NULL, ARRAY("a"), WHOLE(k), AXIS_LAST)
static const core_spec specs[] = {
    FUNCTION(take, NULL, ARRAY("a"), INDEX("indices"), AXIS_NONE),
    FUNCTION(take_along_axis, NULL, ARRAY("a"), INDEX("indices"), AXIS_LAST),
    FUNCTION(put_along_axis, NULL, ARRAY("a"), INDEX("indices"), ARRAY("values", .beside = 1), AXIS_NONE),
    FUNCTION(slice,
             "A window of so many elements of every axis; it begins where the axes that are named say, others at 0.",
             ARRAY("a"), OBJECT("start_indices"), AXES("axes"), SIZES("slice_size")),
    FUNCTION(slice_update, NULL, ARRAY("a"), ARRAY("update", .beside = 1), OBJECT("start_indices"), AXES("axes")),
    FUNCTION(sort, NULL, ARRAY("a"), AXIS_LAST),
    FUNCTION(argsort, NULL, ARRAY("a"), AXIS_LAST),
    PART(partition, "kth"),
    PART(argpartition, "kth"),
    FUNCTION(topk, "The k largest, in no order but that the smallest of them comes first.", ARRAY("a"), WHOLE("k"),
             AXIS_LAST),
    END_OF_TABLE,
};
const core_family core_places_family = {"hearth", NULL, symbols, specs};

/* ---- what indices are made of ---- */

static const int64_t *sizes_of(const core_value *v) { return v->absent ? NULL : v->sizes; }

/* Windows and sizes have a number for each axis of the array. */
static bool fits(const ht_array *a, const core_value *v, int n) {
    for (int i = 0; i < n; i++)
        if (!v[i].absent && v[i].n != core_ht.ht_array_n_dims(a)) {
            PyErr_Format(PyExc_ValueError, "%d numbers for an array of %d axes", v[i].n, core_ht.ht_array_n_dims(a));
            return false;
        }
    return true;
}

#define BODY_OF_WINDOW(name, window)                                                                                   \
    BODY(window) {                                                                                                     \
        if (!fits(v[0].array, v + 1, 3)) return core_give_up(s);                                                       \
        return core_finish(s, ht.ht_##name(s, v[0].array, v[1].sizes, v[2].sizes, sizes_of(&v[3])));                   \
    }
BODY_OF_WINDOW(slice, window)
BODY_OF_WINDOW(slice_range, window_range)
#define BODY_OF_UPDATE(name, window)                                                                                   \
    BODY(window) {                                                                                                     \
        if (!fits(v[0].array, v + 2, 3)) return core_give_up(s);                                                       \
        return core_finish(s, ht.ht_##name(s, v[0].array, v[1].array, v[2].sizes, v[3].sizes, sizes_of(&v[4])));       \
    }
BODY_OF_UPDATE(slice_update, window_update)
BODY_OF_UPDATE(slice_update_range, window_update_range)

static bool same_number(const core_value *indices, const core_value *axes) {
    if (indices->n == axes->n) return true;
    PyErr_Format(PyExc_ValueError, "%d indices for %d axes", indices->n, axes->n);
    return false;
}

BODY(gather) {
    if (!same_number(&v[1], &v[2]) || !fits(v[0].array, v + 3, 1)) return core_give_up(s);
    return core_finish(s, ht.ht_gather(s, v[0].array, v[1].arrays, v[2].axes, v[1].n, v[3].sizes));
}

BODY(scatter) {
    if (!same_number(&v[1], &v[2])) return core_give_up(s);
    return core_finish(
        s, ht.ht_scatter(s, v[0].array, v[1].arrays, v[2].axes, v[1].n, v[3].array, (ht_scatter_mode)v[4].axis));
}

BODY(reshape_like) { return core_finish(s, ht.ht_reshape_like(s, v[0].array, v[1].array)); }
BODY(broadcast_like) { return core_finish(s, ht.ht_broadcast_like(s, v[0].array, v[1].array)); }

#define WINDOW SIZES("start"), SIZES("stop"), SIZES("step", .value = "None")
static const core_symbol none[] = {{NULL, NULL}};
static const core_spec hidden[] = {
    FUNCTION(window, NULL, ARRAY("a"), WINDOW),
    FUNCTION(window_range, NULL, ARRAY("a"), WINDOW),
    FUNCTION(window_update, NULL, ARRAY("a"), ARRAY("update"), WINDOW),
    FUNCTION(window_update_range, NULL, ARRAY("a"), ARRAY("update"), WINDOW),
    FUNCTION(gather, NULL, ARRAY("a"), ARRAYS("indices"), AXES("axes"), SIZES("size")),
    FUNCTION(scatter, NULL, ARRAY("a"), ARRAYS("indices"), AXES("axes"), ARRAY("updates"), AXIS("mode")),
    FUNCTION(reshape_like, NULL, ARRAY("a"), ARRAY("like")),
    FUNCTION(broadcast_like, NULL, ARRAY("a"), ARRAY("like")),
    END_OF_TABLE,
};
const core_family core_hidden_family = {"hearth._index", NULL, none, hidden};
