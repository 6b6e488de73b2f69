/* Windows of arrays: an index of whole numbers, slices, None and "...". Any other is the Python part's. */
#include "function.h"

#include <stdint.h>

enum { MOST_AXES = 8 };

static struct {
    __typeof__(ht_slice) *slice;
    __typeof__(ht_reshape) *reshape;
} ht;

int core_find_index(void) {
    ht.slice = (__typeof__(ht.slice))core_find("ht_slice");
    ht.reshape = (__typeof__(ht.reshape))core_find("ht_reshape");
    return !PyErr_Occurred();
}

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
    const ht_array *a;
    int axis, n_shape;
    int64_t start[MOST_AXES], stop[MOST_AXES], step[MOST_AXES], shape[MOST_AXES];
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
        PyErr_Format(PyExc_IndexError, "index %S is outside axis %d, which has %lld elements", index, w->axis,
                     (long long)n);
        return false;
    }
    w->start[w->axis] = i < 0 ? i + n : i;
    w->stop[w->axis] = w->start[w->axis] + 1;
    w->step[w->axis] = 1;
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

PyObject *core_subscript(PyObject *self, PyObject *index) {
    ht_array *a = ((core_array *)self)->a;
    if (!a) return PyErr_Format(PyExc_ValueError, "an array that was never made");
    PyObject *items[2 * MOST_AXES];
    const int n_axes = core_ht.ht_array_n_dims(a), n_items = following ? -1 : items_of(index, items);
    const int named = n_items < 0 ? -1 : named_by(items, n_items, n_axes);
    if (named < 0) return PyObject_CallFunctionObjArgs(core_hook.subscript, self, index, NULL);
    window w = {.a = a};
    for (int k = 0; k < n_items; k++)
        if (!take_item(&w, items[k], n_axes - named))
            return PyErr_Occurred() ? NULL : PyErr_Format(PyExc_ValueError, "an array has at most %d axes", MOST_AXES);
    while (w.axis < n_axes)
        if (!add_slice(&w, 0, PTRDIFF_MAX, 1))
            return PyErr_Format(PyExc_ValueError, "an array has at most %d axes", MOST_AXES);
    ht_scope *s = core_scope_take();
    if (!s) return NULL;
    ht_array *y = w.cut ? ht.slice(s, a, w.start, w.stop, w.step) : a;
    return core_finish(s, w.reshaped ? ht.reshape(s, y, w.shape, w.n_shape) : y);
}
