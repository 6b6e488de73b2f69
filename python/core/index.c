/* Subscripts, array[...]: windows, which integers, slices, None and "..." give, and index arrays for the first axes.
 * Any other index is the Python part's. */
#include "function.h"

#include <stdint.h>

enum { MOST_AXES = 8 };

#define LIBRARY(X)                                                                                                     \
    X(ht_add)                                                                                                          \
    X(ht_astype)                                                                                                       \
    X(ht_broadcast_to)                                                                                                 \
    X(ht_gather)                                                                                                       \
    X(ht_maximum)                                                                                                      \
    X(ht_minimum)                                                                                                      \
    X(ht_multiply)                                                                                                     \
    X(ht_reshape)                                                                                                      \
    X(ht_scatter)                                                                                                      \
    X(ht_slice)                                                                                                        \
    X(ht_slice_update)                                                                                                 \
    X(ht_squeeze)                                                                                                      \
    X(ht_take)
CORE_SYMBOLS(LIBRARY)

/* While a function is traced for any sizes on this thread: windows then keep what their index says, not the numbers. */
static _Thread_local int following;

PyObject *core_follow(PyObject *module, PyObject *on) {
    (void)module;
    following = PyObject_IsTrue(on);
    return following < 0 ? NULL : Py_NewRef(Py_None);
}

bool core_sizes_may_be_read(const char *who) {
    if (!following) return true;
    PyErr_Format(PyExc_ValueError,
                 "%s takes sizes from its operands as numbers, which a function compiled without shapes cannot", who);
    return false;
}

PyObject *core_fixed_sizes(PyObject *module, PyObject *who) {
    (void)module;
    const char *name = PyUnicode_AsUTF8AndSize(who, NULL);
    return name && core_sizes_may_be_read(name) ? Py_NewRef(Py_None) : NULL;
}

/* What of each axis of an array is looked at, and the shape of the result. */
typedef struct window {
    ht_array *a;
    int axis, n_shape;
    int64_t start[MOST_AXES], stop[MOST_AXES], step[MOST_AXES], length[MOST_AXES]; /* of axes of the array */
    int64_t shape[MOST_AXES];                                                      /* of the result */
    bool cut, reshaped; /* it is not the whole; axes come or go */
} window;

static bool add_axis_of_result(window *w, int64_t length) {
    if (w->n_shape == MOST_AXES) return false;
    w->shape[w->n_shape++] = length;
    return true;
}

static bool add_slice(window *w, Py_ssize_t start, Py_ssize_t stop, Py_ssize_t step) {
    const Py_ssize_t n = (Py_ssize_t)core_ht.ht_array_dim(w->a, w->axis);
    const Py_ssize_t length = PySlice_AdjustIndices(n, &start, &stop, step);
    w->start[w->axis] = start;
    w->stop[w->axis] = length ? stop : start;
    w->step[w->axis] = step;
    w->length[w->axis] = length;
    w->cut |= length != n || step != 1;
    w->axis++;
    return add_axis_of_result(w, length);
}

/* False after an exception: the number is outside the axis. */
static bool add_number(window *w, PyObject *index) {
    const int64_t n = core_ht.ht_array_dim(w->a, w->axis);
    int overflow;
    const long long i = PyLong_AsLongLongAndOverflow(index, &overflow);
    if (overflow || i < -n || i >= n) {
        PyErr_Format(PyExc_IndexError, "index %S is outside axis %d of size %lld", index, w->axis, (long long)n);
        return false;
    }
    w->start[w->axis] = i < 0 ? i + n : i;
    w->stop[w->axis] = w->start[w->axis] + 1;
    w->step[w->axis] = w->length[w->axis] = 1;
    w->cut |= n != 1;
    w->reshaped = true;
    w->axis++;
    return true;
}

static bool is_plain(PyObject *i) {
    return PyLong_CheckExact(i) || PySlice_Check(i) || i == Py_None || i == Py_Ellipsis;
}

/* The items of an index, at most twice as many as there are axes; -1 when one of them, or their number, is not of this kind. */
static int items_of(PyObject *index, PyObject *items[2 * MOST_AXES]) {
    const Py_ssize_t n = PyTuple_CheckExact(index) ? PyTuple_Size(index) : 1;
    if (n > 2 * MOST_AXES) return -1;
    for (Py_ssize_t k = 0; k < n; k++) {
        items[k] = PyTuple_CheckExact(index) ? PyTuple_GetItem(index, k) : index;
        if (!is_plain(items[k])) return -1;
    }
    return (int)n;
}

/* How many axes the items name; -1 when there are too many of them, or of "...". */
static int named_by(PyObject *const *items, int n_items, int n_axes) {
    int named = 0, dots = 0;
    for (int k = 0; k < n_items; k++) {
        named += items[k] != Py_None && items[k] != Py_Ellipsis;
        dots += items[k] == Py_Ellipsis;
    }
    return dots > 1 || named > n_axes ? -1 : named;
}

static bool take_item(window *w, PyObject *item, int unnamed) {
    if (item == Py_None) {
        w->reshaped = true;
        return add_axis_of_result(w, 1);
    }
    if (PyLong_CheckExact(item)) return add_number(w, item);
    if (item == Py_Ellipsis) {
        while (unnamed-- > 0)
            if (!add_slice(w, 0, PTRDIFF_MAX, 1)) return false;
        return true;
    }
    Py_ssize_t start, stop, step;
    return PySlice_Unpack(item, &start, &stop, &step) == 0 && add_slice(w, start, stop, step);
}

/* Reads an index of `a` that has only such items. False: it has others, or too many, unless an exception is set. */
static bool read_window(window *w, PyObject *index) {
    PyObject *items[2 * MOST_AXES];
    const int n_axes = core_ht.ht_array_n_dims(w->a), n_items = following ? -1 : items_of(index, items);
    const int named = n_items < 0 ? -1 : named_by(items, n_items, n_axes);
    if (named < 0) return false;
    bool room = true;
    for (int k = 0; room && k < n_items; k++) room = take_item(w, items[k], n_axes - named);
    while (room && w->axis < n_axes) room = add_slice(w, 0, PTRDIFF_MAX, 1);
    if (!room && !PyErr_Occurred()) PyErr_Format(PyExc_ValueError, "an array has at most %d axes", MOST_AXES);
    return room;
}

static ht_array *look(ht_scope *s, const window *w) {
    return w->cut ? ht.ht_slice(s, w->a, w->start, w->stop, w->step) : w->a;
}

/* ---- arrays as indices ---- */

/* Arrays of whole numbers for the first axes, all others being taken whole. */
typedef struct places {
    ht_array *a, *index[MOST_AXES];
    int n, axes[MOST_AXES];
    int64_t shape[MOST_AXES]; /* what the indices have in common */
    int n_shape;
} places;

static bool add_index(places *p, PyObject *o) {
    if (!core_is_array(o) || p->n == MOST_AXES) return false;
    ht_array *index = ((core_array *)o)->a;
    if (!index || core_ht.ht_array_dtype(index) == HT_BOOL) return false;
    const int n = core_ht.ht_array_n_dims(index), more = n - p->n_shape;
    for (int i = p->n_shape - 1; more > 0 && i >= 0; i--) p->shape[i + more] = p->shape[i];
    for (int i = 0; i < more; i++) p->shape[i] = 1;
    if (more > 0) p->n_shape = n;
    for (int i = 0; i < n; i++) {
        int64_t *d = &p->shape[p->n_shape - n + i];
        if (*d == 1) *d = core_ht.ht_array_dim(index, i);
    }
    p->axes[p->n] = p->n;
    p->index[p->n++] = core_ht.ht_array_retain(index);
    return true;
}

static void let_go(places *p) {
    while (p->n) core_ht.ht_array_free(p->index[--p->n]);
}

/* Reads an index that is an array, or a tuple of them, which are held until let_go. False: it is another. */
static bool read_places(places *p, PyObject *index) {
    if (following) return false;
    const bool several = PyTuple_CheckExact(index);
    const Py_ssize_t n = several ? PyTuple_Size(index) : 1;
    for (Py_ssize_t k = 0; k < n; k++)
        if (!add_index(p, several ? PyTuple_GetItem(index, k) : index)) return false;
    const int n_axes = core_ht.ht_array_n_dims(p->a);
    return p->n && p->n <= n_axes && p->n_shape + n_axes <= MOST_AXES;
}

/* The shape of what such an index takes; with an axis of one element in the place of each that it names, if asked. */
static int shape_of(const places *p, bool kept, int64_t shape[MOST_AXES]) {
    int n = 0;
    for (int i = 0; i < p->n_shape; i++) shape[n++] = p->shape[i];
    for (int i = 0; kept && i < p->n; i++) shape[n++] = 1;
    for (int i = p->n; i < core_ht.ht_array_n_dims(p->a); i++) shape[n++] = core_ht.ht_array_dim(p->a, i);
    return n;
}

static ht_array *gather(ht_scope *s, const places *p) {
    if (p->n == 1) return ht.ht_take(s, p->a, p->index[0], 0);
    int64_t size[MOST_AXES], shape[MOST_AXES];
    for (int i = 0; i < core_ht.ht_array_n_dims(p->a); i++) size[i] = i < p->n ? 1 : core_ht.ht_array_dim(p->a, i);
    ht_array *taken = ht.ht_gather(s, p->a, p->index, p->axes, p->n, size);
    return ht.ht_reshape(s, taken, shape, shape_of(p, false, shape));
}

/* What an index of `self`, which stands for `a`, shows. */
static PyObject *look_up(PyObject *self, ht_array *a, PyObject *index) {
    window w = {.a = a};
    places p = {.a = a};
    if (read_window(&w, index)) {
        ht_scope *s = core_scope_take();
        if (!s) return NULL;
        ht_array *y = look(s, &w);
        return core_finish(s, w.reshaped ? ht.ht_reshape(s, y, w.shape, w.n_shape) : y);
    }
    if (PyErr_Occurred()) return NULL;
    PyObject *result = NULL;
    if (read_places(&p, index)) {
        ht_scope *s = core_scope_take();
        result = s ? core_finish(s, gather(s, &p)) : NULL;
    } else
        result = PyObject_CallFunctionObjArgs(core_hook.subscript, self, index, NULL);
    let_go(&p);
    return result;
}

/* The array is held meanwhile: an index may run Python, which makes the object stand for another. */
PyObject *core_subscript(PyObject *self, PyObject *index) {
    ht_array *a = core_ht.ht_array_retain(((core_array *)self)->a);
    if (!a) return PyErr_Format(PyExc_ValueError, "an array that was never made");
    PyObject *result = look_up(self, a, index);
    core_ht.ht_array_free(a);
    return result;
}

/* ---- putting ---- */

/* Values stretched to a shape; leading axes of one element that it lacks go. */
static ht_array *stretch(ht_scope *s, ht_array *values, const int64_t *shape, int n) {
    int more = core_ht.ht_array_n_dims(values) - n;
    for (; more > 0 && core_ht.ht_array_dim(values, 0) == 1; more--) values = ht.ht_squeeze(s, values, 0);
    return ht.ht_broadcast_to(s, values, shape, n);
}

static ht_array *put_window(ht_scope *s, const window *w, ht_array *values, ht_scatter_mode mode) {
    ht_array *a = w->a;
    const int n = core_ht.ht_array_n_dims(a);
    if (core_ht.ht_array_n_dims(values)) values = stretch(s, values, w->shape, w->n_shape);
    if (w->reshaped && values && core_ht.ht_array_n_dims(values)) values = ht.ht_reshape(s, values, w->length, n);
    if (mode != HT_SCATTER_SET) {
        values = ht.ht_astype(s, values, core_ht.ht_array_dtype(a));
        ht_array *(*const join[])(ht_scope *, ht_array *, ht_array *) = {
            [HT_SCATTER_ADD] = ht.ht_add,
            [HT_SCATTER_PROD] = ht.ht_multiply,
            [HT_SCATTER_MIN] = ht.ht_minimum,
            [HT_SCATTER_MAX] = ht.ht_maximum,
        };
        values = join[mode](s, look(s, w), values);
    }
    return ht.ht_slice_update(s, a, values, w->start, w->stop, w->step);
}

static ht_array *put_places(ht_scope *s, const places *p, ht_array *values, ht_scatter_mode mode) {
    int64_t shape[2 * MOST_AXES];
    values = stretch(s, values, shape, shape_of(p, false, shape));
    values = ht.ht_reshape(s, values, shape, shape_of(p, true, shape));
    return ht.ht_scatter(s, p->a, p->index, p->axes, p->n, values, mode);
}

/* `value` in the place of what an index of `self`, which stands for `a`, shows. */
static PyObject *put_at(PyObject *self, ht_array *a, PyObject *index, PyObject *value, int mode) {
    window w = {.a = a};
    places p = {.a = a};
    const bool by_window = read_window(&w, index);
    if (PyErr_Occurred()) return NULL;
    PyObject *values = NULL, *result = NULL;
    if (by_window || read_places(&p, index)) {
        values = core_operand(value, self);
        ht_scope *s = values ? core_scope_take() : NULL;
        ht_array *given = s ? ((core_array *)values)->a : NULL;
        if (s)
            result = core_finish(s, by_window ? put_window(s, &w, given, (ht_scatter_mode)mode)
                                              : put_places(s, &p, given, (ht_scatter_mode)mode));
    } else
        result = PyObject_CallFunction(core_hook.put, "OOOi", self, index, value, mode);
    Py_XDECREF(values);
    let_go(&p);
    return result;
}

PyObject *core_put(PyObject *self, PyObject *index, PyObject *value, int mode) {
    ht_array *a = core_ht.ht_array_retain(((core_array *)self)->a);
    if (!a) return PyErr_Format(PyExc_ValueError, "an array that was never made");
    PyObject *result = put_at(self, a, index, value, mode);
    core_ht.ht_array_free(a);
    return result;
}

int core_assign(PyObject *self, PyObject *index, PyObject *value) {
    if (!value) {
        PyErr_SetString(PyExc_TypeError, "elements of an array cannot be deleted");
        return -1;
    }
    PyObject *updated = core_put(self, index, value, HT_SCATTER_SET);
    PyObject *none = updated ? core_become(self, updated) : NULL;
    Py_XDECREF(updated);
    Py_XDECREF(none);
    return none ? 0 : -1;
}

BODY(put) {
    PyObject *self = v[0].given;
    core_ht.ht_scope_finish(s, NULL);
    core_scope_give(s);
    return core_put(self, v[1].given, v[2].given, v[3].axis);
}

static const core_spec specs[] = {
    FUNCTION(put, NULL, ARRAY("a"), OBJECT("index"), OBJECT("values"), AXIS("mode")),
    END_OF_TABLE,
};
const core_family core_index_family = {"hearth._index", NULL, symbols, specs};
