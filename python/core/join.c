/* Functions that join, stack, repeat and pad arrays. */
#include "function.h"

#include <stdlib.h>

#define LIBRARY(X)                                                                                                     \
    X(ht_concatenate)                                                                                                  \
    X(ht_flatten)                                                                                                      \
    X(ht_meshgrid)                                                                                                     \
    X(ht_pad)                                                                                                          \
    X(ht_pad_mirrored)                                                                                                 \
    X(ht_repeat)                                                                                                       \
    X(ht_reshape_like)                                                                                                 \
    X(ht_roll)                                                                                                         \
    X(ht_slice_range)                                                                                                  \
    X(ht_split_equally)                                                                                                \
    X(ht_stack)                                                                                                        \
    X(ht_tile)
CORE_SYMBOLS(LIBRARY)

enum { MOST_AXES = 8 };

/* ---- together ---- */

/* For n arrays; NULL after an exception. */
static ht_array **room_for(int n) {
    ht_array **arrays = calloc((size_t)n + 1, sizeof *arrays);
    if (!arrays) PyErr_NoMemory();
    return arrays;
}

BODY(concatenate) {
    const int n = v[0].n;
    if (!v[1].absent) return core_finish(s, ht.ht_concatenate(s, v[0].arrays, n, v[1].axis));
    ht_array **rows = room_for(n);
    if (!rows) return core_give_up(s);
    for (int i = 0; i < n; i++) rows[i] = ht.ht_flatten(s, v[0].arrays[i], 0, -1);
    PyObject *result = core_finish(s, ht.ht_concatenate(s, rows, n, 0));
    free(rows);
    return result;
}

BODY(stack) { return core_finish(s, ht.ht_stack(s, v[0].arrays, v[0].n, v[1].axis)); }

static PyObject *finish_filled(ht_scope *s, ht_array **results, int n, bool filled, bool as_tuple) {
    PyObject *all = filled ? core_finish_several(s, results, n, as_tuple) : core_give_up(s);
    free(results);
    return all;
}

BODY(meshgrid) {
    const bool swap = core_is_text(v[2].given, "xy");
    if (!swap && !core_is_text(v[2].given, "ij")) {
        PyErr_Format(PyExc_ValueError, "meshgrid: there is no indexing %R, only 'xy' and 'ij'", v[2].given);
        return core_give_up(s);
    }
    ht_array **grids = room_for(v[0].n);
    if (!grids) return core_give_up(s);
    return finish_filled(s, grids, v[0].n, !v[0].n || ht.ht_meshgrid(s, v[0].arrays, v[0].n, v[1].truth, swap, grids),
                         true);
}

/* ---- apart ---- */

/* Between the places, which may be outside the axis, or in no order: pieces are what a slice would give. */
static bool cut(ht_scope *s, ht_array *a, const core_value *places, int axis, ht_array **parts) {
    int64_t start[MOST_AXES], stop[MOST_AXES];
    for (int i = 0; i < MOST_AXES; i++) start[i] = stop[i] = HT_OPEN;
    for (int i = 0; i <= places->n; i++) {
        start[axis] = i ? places->sizes[i - 1] : HT_OPEN;
        stop[axis] = i < places->n ? places->sizes[i] : HT_OPEN;
        parts[i] = ht.ht_slice_range(s, a, start, stop, NULL);
        if (!parts[i]) return false;
    }
    return true;
}

BODY(split) {
    ht_array *a = v[0].array;
    const core_value *places = &v[1];
    if (places->single && (places->sizes[0] < 1 || places->sizes[0] > INT32_MAX)) {
        PyErr_Format(PyExc_ValueError, "split: there are no %lld equal parts", (long long)places->sizes[0]);
        return core_give_up(s);
    }
    int axis, n = places->single ? (int)places->sizes[0] : places->n + 1;
    if (!places->single && !core_axis("split", v[2].axis, core_ht.ht_array_n_dims(a), &axis)) return core_give_up(s);
    ht_array **parts = room_for(n);
    if (!parts) return core_give_up(s);
    const bool filled =
        places->single ? ht.ht_split_equally(s, a, n, v[2].axis, parts) : cut(s, a, places, axis, parts);
    return finish_filled(s, parts, n, filled, false);
}

/* ---- several times ---- */

BODY(tile) { return core_finish(s, ht.ht_tile(s, v[0].array, v[1].sizes, v[1].n)); }

BODY(repeat) {
    ht_array *a = v[2].absent ? ht.ht_flatten(s, v[0].array, 0, -1) : v[0].array;
    return core_finish(s, ht.ht_repeat(s, a, v[1].whole, v[2].absent ? 0 : v[2].axis));
}

BODY(roll) {
    ht_array *a = v[0].array;
    const int n_shifts = v[1].n, n_axes = v[2].n;
    if (v[2].absent) {
        int64_t by = 0;
        for (int i = 0; i < n_shifts; i++)
            if (__builtin_add_overflow(by, v[1].sizes[i], &by)) {
                PyErr_Format(PyExc_ValueError, "roll: the shifts together are no 64-bit integer");
                return core_give_up(s);
            }
        ht_array *row = ht.ht_roll(s, ht.ht_flatten(s, a, 0, -1), by, 0);
        return core_finish(s, ht.ht_reshape_like(s, row, a));
    }
    /* One for all axes, several for one axis, or one each. */
    if (n_shifts != n_axes && n_shifts != 1 && n_axes != 1) {
        PyErr_Format(PyExc_ValueError, "roll: %d shifts for %d axes", n_shifts, n_axes);
        return core_give_up(s);
    }
    const int n = n_shifts == 1 ? n_axes : n_axes == 1 ? n_shifts : n_axes;
    for (int i = 0; i < n; i++) a = ht.ht_roll(s, a, v[1].sizes[n_shifts == 1 ? 0 : i], v[2].axes[n_axes == 1 ? 0 : i]);
    return core_finish(s, a);
}

/* ---- around ---- */

/* One width for both ends, or a pair. */
static bool read_pair(PyObject *o, int64_t pair[2]) {
    if (PyLong_Check(o)) {
        pair[0] = pair[1] = PyLong_AsLongLong(o);
        return !PyErr_Occurred();
    }
    PyObject *both = PySequence_Tuple(o);
    if (both && PyTuple_Size(both) != 2)
        PyErr_Format(PyExc_ValueError, "pad: an axis has two widths, not %zd", PyTuple_Size(both));
    for (int i = 0; both && i < 2 && !PyErr_Occurred(); i++) {
        PyObject *width = PyNumber_Index(PyTuple_GetItem(both, i));
        if (width) pair[i] = PyLong_AsLongLong(width);
        Py_XDECREF(width);
    }
    Py_XDECREF(both);
    return !PyErr_Occurred();
}

static bool is_pair_of_numbers(PyObject *o) {
    return PyTuple_Check(o) && PyTuple_Size(o) == 2 && PyLong_Check(PyTuple_GetItem(o, 0)) &&
           PyLong_Check(PyTuple_GetItem(o, 1));
}

/* A number or a pair for all axes, or a list of as many as there are axes; false after an exception. */
static bool read_widths(PyObject *o, int n_axes, int64_t widths[MOST_AXES][2]) {
    const bool listed = (PyTuple_Check(o) || PyList_Check(o)) && !is_pair_of_numbers(o);
    PyObject *list = listed ? PySequence_Tuple(o) : PyTuple_Pack(1, o);
    if (!list) return false;
    const Py_ssize_t n = PyTuple_Size(list);
    if (n != 1 && n != n_axes) PyErr_Format(PyExc_ValueError, "pad: %zd widths for an array of %d axes", n, n_axes);
    for (int i = 0; i < n_axes && !PyErr_Occurred(); i++) read_pair(PyTuple_GetItem(list, n == 1 ? 0 : i), widths[i]);
    Py_DECREF(list);
    return !PyErr_Occurred();
}

BODY(pad) {
    static const char *const modes[] = {"constant", "edge", "reflect", "symmetric"};
    ht_array *a = v[0].array;
    int mode = 0;
    while (mode < 4 && !core_is_text(v[2].given, modes[mode])) mode++;
    if (mode == 4) {
        PyErr_Format(PyExc_ValueError, "pad: there is no mode %R, only 'constant', 'edge', 'reflect' and 'symmetric'",
                     v[2].given);
        return core_give_up(s);
    }
    int64_t widths[MOST_AXES][2];
    if (!read_widths(v[1].given, core_ht.ht_array_n_dims(a), widths)) return core_give_up(s);
    const int64_t(*fixed)[2] = (const int64_t(*)[2])widths;
    if (mode >= 2) return core_finish(s, ht.ht_pad_mirrored(s, a, fixed, mode == 3));
    return core_finish(s, ht.ht_pad(s, a, fixed, mode == 1 ? core_none : v[3].array));
}

static const core_spec specs[] = {
    FUNCTION(concatenate, NULL, ARRAYS("arrays"), AXIS("axis", .value = "0", .or_absent = true)),
    FUNCTION(stack, NULL, ARRAYS("arrays"), AXIS("axis", .value = "0")),
    FUNCTION(split, "Into so many equal parts, or at the places given.", ARRAY("a"), SIZES("indices_or_sections"),
             AXIS("axis", .value = "0")),
    FUNCTION(tile, NULL, ARRAY("a"), SIZES("reps")),
    FUNCTION(repeat, NULL, ARRAY("a"), WHOLE("repeats"), AXIS("axis", .value = "None")),
    FUNCTION(pad, NULL, ARRAY("a"), OBJECT("pad_width"), OBJECT("mode", .value = "'constant'"),
             ARRAY("constant_values", .value = "0", .beside = 1)),
    FUNCTION(roll, NULL, ARRAY("a"), SIZES("shift"), AXES("axis", .value = "None")),
    FUNCTION(meshgrid, "Each array along an axis of its own, repeated along those of the others unless `sparse`.",
             ARRAYS("arrays", .way = CORE_REST), TRUTH("sparse", .value = "False", .way = CORE_BY_NAME),
             OBJECT("indexing", .value = "'xy'", .way = CORE_BY_NAME)),
    END_OF_TABLE,
};
const core_family core_join_family = {"hearth", NULL, symbols, specs};
