/* Shape functions and views on the same elements. */
#include "function.h"

#define LIBRARY(X)                                                                                                     \
    X(ht_as_strided)                                                                                                   \
    X(ht_astype)                                                                                                       \
    X(ht_broadcast_to)                                                                                                 \
    X(ht_contiguous)                                                                                                   \
    X(ht_diagonal)                                                                                                     \
    X(ht_expand_dims)                                                                                                  \
    X(ht_eye)                                                                                                          \
    X(ht_flatten)                                                                                                      \
    X(ht_full)                                                                                                         \
    X(ht_moveaxis)                                                                                                     \
    X(ht_pad)                                                                                                          \
    X(ht_reshape)                                                                                                      \
    X(ht_slice_range)                                                                                                  \
    X(ht_squeeze)                                                                                                      \
    X(ht_stop_gradient)                                                                                                \
    X(ht_swapaxes)                                                                                                     \
    X(ht_transpose)                                                                                                    \
    X(ht_unflatten)                                                                                                    \
    X(ht_view_as)                                                                                                      \
    X(ht_where)
CORE_SYMBOLS(LIBRARY)

enum { MOST_AXES = 8 };
static int axes_of(const ht_array *a) { return core_ht.ht_array_n_dims(a); }

/* ---- one call each ---- */

BODY(reshape) { return core_finish(s, ht.ht_reshape(s, v[0].array, v[1].sizes, v[1].n)); }
BODY(broadcast_to) { return core_finish(s, ht.ht_broadcast_to(s, v[0].array, v[1].sizes, v[1].n)); }
BODY(swapaxes) { return core_finish(s, ht.ht_swapaxes(s, v[0].array, v[1].axis, v[2].axis)); }
BODY(moveaxis) { return core_finish(s, ht.ht_moveaxis(s, v[0].array, v[1].axis, v[2].axis)); }
BODY(flatten) { return core_finish(s, ht.ht_flatten(s, v[0].array, v[1].axis, v[2].axis)); }
BODY(unflatten) { return core_finish(s, ht.ht_unflatten(s, v[0].array, v[1].axis, v[2].sizes, v[2].n)); }
BODY(matrix_transpose) { return core_finish(s, ht.ht_swapaxes(s, v[0].array, -1, -2)); }
BODY(view) { return core_finish(s, ht.ht_view_as(s, v[0].array, v[1].dtype)); }
BODY(astype) { return core_finish(s, ht.ht_astype(s, v[0].array, v[1].dtype)); }
BODY(contiguous) { return core_finish(s, ht.ht_contiguous(s, v[0].array)); }
BODY(stop_gradient) { return core_finish(s, ht.ht_stop_gradient(s, v[0].array)); }

BODY(diagonal) { return core_finish(s, ht.ht_diagonal(s, v[0].array, v[1].whole, v[2].axis, v[3].axis)); }

BODY(transpose) {
    const int *axes = v[1].absent ? NULL : v[1].axes;
    if (axes && v[1].n != axes_of(v[0].array)) {
        PyErr_Format(PyExc_ValueError, "transpose: %d axes are named, the array has %d", v[1].n, axes_of(v[0].array));
        return core_give_up(s);
    }
    return core_finish(s, ht.ht_transpose(s, v[0].array, axes));
}

/* array.transpose(): without axes it is all of them. */
BODY(transpose_method) {
    core_value given[2] = {v[0], v[1]};
    given[1].absent = v[1].n == 0;
    return of_transpose(s, given);
}

/* array.T, array.mT */
PyObject *core_transposed(PyObject *self, void *matrices) {
    ht_scope *s = core_scope_take();
    if (!s) return NULL;
    ht_array *a = ((core_array *)self)->a;
    if (!a) {
        PyErr_Format(PyExc_ValueError, "an array that was never made");
        return core_give_up(s);
    }
    return core_finish(s, matrices ? ht.ht_swapaxes(s, a, -1, -2) : ht.ht_transpose(s, a, NULL));
}

/* ---- axes that come and go ---- */

/* Axes counted from the front among n, in ascending order; false, with an exception, when they are too many. */
static bool sorted(const core_value *v, int n, int axes[MOST_AXES]) {
    if (v->n > MOST_AXES) {
        PyErr_Format(PyExc_ValueError, "an array has at most %d axes, %d are named", MOST_AXES, v->n);
        return false;
    }
    for (int i = 0; i < v->n; i++) {
        const int axis = v->axes[i] < 0 ? v->axes[i] + n : v->axes[i];
        int at = i;
        for (; at && axes[at - 1] > axis; at--) axes[at] = axes[at - 1];
        axes[at] = axis;
    }
    return true;
}

BODY(expand_dims) {
    ht_array *a = v[0].array;
    int axes[MOST_AXES];
    if (!sorted(&v[1], axes_of(a) + v[1].n, axes)) return core_give_up(s);
    for (int i = 1; i < v[1].n; i++)
        if (axes[i] == axes[i - 1]) {
            PyErr_Format(PyExc_ValueError, "expand_dims: axis %d is named twice", axes[i]);
            return core_give_up(s);
        }
    for (int i = 0; i < v[1].n; i++) a = ht.ht_expand_dims(s, a, axes[i]);
    return core_finish(s, a);
}

BODY(squeeze) {
    ht_array *a = v[0].array;
    int axes[MOST_AXES], n = v[1].n;
    if (v[1].absent) {
        n = 0;
        for (int i = 0; i < axes_of(a); i++)
            if (core_ht.ht_array_dim(a, i) == 1) axes[n++] = i;
    } else if (!sorted(&v[1], axes_of(a), axes))
        return core_give_up(s);
    while (n--) a = ht.ht_squeeze(s, a, axes[n]);
    return core_finish(s, a);
}

BODY(flip) {
    ht_array *a = v[0].array;
    const int n = axes_of(a);
    int64_t open[MOST_AXES], step[MOST_AXES];
    for (int i = 0; i < n; i++) open[i] = HT_OPEN, step[i] = v[1].absent ? -1 : 1;
    for (int i = 0; i < v[1].n; i++) {
        int axis;
        if (!core_axis("flip", v[1].axes[i], n, &axis)) return core_give_up(s);
        step[axis] = -1;
    }
    return core_finish(s, n ? ht.ht_slice_range(s, a, open, open, step) : a);
}

/* ---- diagonals, strides ---- */

/* The square matrix that has a vector on diagonal k: where() on the block of it that the vector touches, and zeros. */
static ht_array *matrix_of(ht_scope *s, ht_array *a, int64_t k) {
    const int64_t length = core_ht.ht_array_dim(a, 0), more = k < 0 ? -k : k, n = length + more;
    const bool upper = k >= 0;
    const int64_t column[2] = {length, 1};
    const int64_t widths[2][2] = {{0, upper ? more : 0}, {0, upper ? 0 : more}};
    ht_array *zero = ht.ht_full(s, 0, core_ht.ht_array_dtype(a), NULL, 0);
    ht_array *mask = ht.ht_eye(s, upper ? length : n, upper ? n : length, k, HT_BOOL);
    ht_array *rows = upper ? ht.ht_reshape(s, a, column, 2) : a;
    ht_array *block = ht.ht_where(s, mask, rows, zero);
    return more ? ht.ht_pad(s, block, widths, zero) : block;
}

BODY(diag) {
    ht_array *a = v[0].array;
    if (axes_of(a) == 2) return core_finish(s, ht.ht_diagonal(s, a, v[1].whole, 0, 1));
    if (!core_sizes_may_be_read("diag")) return core_give_up(s);
    if (axes_of(a) != 1) {
        PyErr_Format(PyExc_ValueError, "diag: needs a vector or a matrix, got %d axes", axes_of(a));
        return core_give_up(s);
    }
    return core_finish(s, matrix_of(s, a, v[1].whole));
}

BODY(as_strided) {
    ht_array *a = v[0].array;
    if ((v[1].absent || v[2].absent) && !core_sizes_may_be_read("as_strided without shape and strides"))
        return core_give_up(s);
    int64_t own[MOST_AXES], rows[MOST_AXES];
    core_shape(a, own);
    const int64_t *shape = v[1].absent ? own : v[1].sizes, *strides = v[2].absent ? rows : v[2].sizes;
    const int n = v[1].absent ? axes_of(a) : v[1].n;
    if (!v[2].absent && v[2].n != n) {
        PyErr_Format(PyExc_ValueError, "as_strided: %d strides for %d axes", v[2].n, n);
        return core_give_up(s);
    }
    bool fits = true;
    if (v[2].absent && n <= MOST_AXES)
        for (int i = n - 1; i >= 0; i--) {
            rows[i] = 1;
            fits = fits && (i == n - 1 || !__builtin_mul_overflow(rows[i + 1], shape[i + 1], &rows[i]));
        }
    if (!fits) {
        PyErr_Format(PyExc_ValueError, "as_strided: a row of that shape has more than 2**63 elements");
        return core_give_up(s);
    }
    return core_finish(s, ht.ht_as_strided(s, a, shape, strides, n, v[3].whole));
}

#define AXES_NONE AXES("axis", .value = "None")
static const core_spec specs[] = {
    FUNCTION(reshape, NULL, ARRAY("a"), SIZES("shape")),
    FUNCTION(transpose, NULL, ARRAY("a"), AXES("axes", .value = "None")),
    AS("permute_dims", transpose, NULL, ARRAY("a"), AXES("axes", .value = "None")),
    FUNCTION(matrix_transpose, NULL, ARRAY("a")),
    FUNCTION(broadcast_to, NULL, ARRAY("a"), SIZES("shape")),
    FUNCTION(expand_dims, NULL, ARRAY("a"), AXES("axis")),
    FUNCTION(squeeze, NULL, ARRAY("a"), AXES_NONE),
    FUNCTION(swapaxes, NULL, ARRAY("a"), AXIS("axis1"), AXIS("axis2")),
    FUNCTION(moveaxis, NULL, ARRAY("a"), AXIS("source"), AXIS("destination")),
    FUNCTION(flatten, NULL, ARRAY("a"), AXIS("start_axis", .value = "0"), AXIS("end_axis", .value = "-1")),
    FUNCTION(unflatten, NULL, ARRAY("a"), AXIS("axis"), SIZES("shape")),
    FUNCTION(diagonal, NULL, ARRAY("a"), WHOLE("offset", .value = "0"), AXIS("axis1", .value = "0"),
             AXIS("axis2", .value = "1")),
    FUNCTION(diag, "A diagonal of a matrix, or the matrix that has a vector on one.", ARRAY("a"),
             WHOLE("k", .value = "0")),
    FUNCTION(as_strided, "Elements at offset + sum(index * stride) of a's, in its row-major order.", ARRAY("a"),
             SIZES("shape", .value = "None"), SIZES("strides", .value = "None"), WHOLE("offset", .value = "0")),
    FUNCTION(view, "The same bytes as elements of another dtype.", ARRAY("a"), DTYPE("dtype")),
    FUNCTION(flip, NULL, ARRAY("a"), AXES_NONE),
    FUNCTION(contiguous, "With its elements row by row in memory.", ARRAY("a")),
    FUNCTION(stop_gradient, "x, which counts as constant wherever derivatives are taken.", ARRAY("x")),
    END_OF_TABLE,
};
const core_family core_shape_family = {"hearth", NULL, symbols, specs};

static const core_symbol no_symbols[] = {{NULL, NULL}};
static const core_spec method_specs[] = {
    FUNCTION(astype, NULL, ARRAY("self"), DTYPE("dtype")),
    FUNCTION(reshape, NULL, ARRAY("self"), SIZES("shape", .way = CORE_REST)),
    AS("transpose", transpose_method, NULL, ARRAY("self"), AXES("axes", .way = CORE_REST)),
    END_OF_TABLE,
};
const core_family core_method_family = {"hearth", "array", no_symbols, method_specs};
