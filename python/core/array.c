/* Array objects: a reference to an array of the library, with its operators. Further methods are in the Python class
 * that derives from it. */
#include "core.h"

#include <stddef.h>
#include <structmember.h>

/* ---- coming and going ---- */

void core_array_set(core_array *self, ht_array *a) {
    ht_array *before = self->a;
    PyObject *shape = self->shape;
    core_queue *queue = self->queue;
    const core_place now = core_here();
    self->a = a;
    self->shape = NULL;
    self->queue = now.named ? now.queue : NULL;
    Py_XINCREF((PyObject *)self->queue);
    core_ht.ht_array_free(before);
    Py_XDECREF(shape);
    Py_XDECREF((PyObject *)queue);
}

PyObject *core_array_new(ht_array *a) {
    core_array *self = (core_array *)PyType_GenericAlloc((PyTypeObject *)core_hook.array, 0);
    if (!self) {
        core_ht.ht_array_free(a);
        return NULL;
    }
    core_array_set(self, a);
    return (PyObject *)self;
}

static void dealloc(PyObject *object) {
    core_array *self = (core_array *)object;
    PyTypeObject *type = Py_TYPE(object);
    if (self->weak) PyObject_ClearWeakRefs(object);
    core_ht.ht_array_free(self->a);
    Py_XDECREF((PyObject *)self->queue);
    Py_XDECREF(self->shape);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(object);
    Py_DECREF(type);
}

PyObject *core_finish(ht_scope *s, ht_array *result) {
    if (!result) {
        if (PyErr_Occurred()) {
            core_scope_free(s);
            return NULL;
        }
        PyObject *scope = PyLong_FromVoidPtr(s);
        PyObject *none = scope ? PyObject_CallFunctionObjArgs(core_hook.failed, scope, NULL) : NULL;
        Py_XDECREF(scope);
        Py_XDECREF(none);
        return NULL;
    }
    core_ht.ht_scope_finish(s, result);
    core_scope_give(s);
    return core_array_new(result);
}

/* call(function, argument...): the array that a function of ctypes gives, which takes a scope first. */
PyObject *core_call(PyObject *module, PyObject *const *args, Py_ssize_t n) {
    (void)module;
    if (n < 1) return PyErr_Format(PyExc_TypeError, "call() needs a function");
    PyObject *given = PyTuple_New(n);
    ht_scope *s = given ? core_scope_take() : NULL;
    bool ready = s;
    for (Py_ssize_t i = 0; ready && i < n; i++) {
        PyObject *item = i == 0 ? PyLong_FromVoidPtr(s) : Py_NewRef(args[i]);
        ready = item && PyTuple_SetItem(given, i, item) == 0;
    }
    PyObject *pointer = ready ? PyObject_CallObject(args[0], given) : NULL;
    ht_array *made = pointer && pointer != Py_None ? PyLong_AsVoidPtr(pointer) : NULL;
    Py_XDECREF(pointer);
    PyObject *result = s ? core_finish(s, made) : NULL;
    Py_XDECREF(given);
    return result;
}

/* array._own(pointer): takes over the caller's hold. */
static PyObject *own(PyObject *type, PyObject *pointer) {
    (void)type;
    ht_array *a = PyLong_AsVoidPtr(pointer);
    if (!a) return PyErr_Occurred() ? NULL : PyErr_Format(PyExc_ValueError, "no array");
    return core_array_new(a);
}

PyObject *core_become(PyObject *object, PyObject *other) {
    core_array *self = (core_array *)object, *model = (core_array *)other;
    if (!core_is_array(other)) return PyErr_Format(PyExc_TypeError, "an array was expected");
    if (!model->a) return PyErr_Format(PyExc_ValueError, "an array that was never made");
    ht_array *before = self->a;
    PyObject *shape = self->shape;
    core_queue *queue = self->queue;
    self->a = core_ht.ht_array_retain(model->a);
    self->queue = model->queue;
    self->shape = NULL;
    Py_XINCREF((PyObject *)self->queue);
    core_ht.ht_array_free(before);
    Py_XDECREF(shape);
    Py_XDECREF((PyObject *)queue);
    Py_RETURN_NONE;
}

/* ---- what it is ---- */

static ht_array *array_of(PyObject *self) {
    ht_array *a = ((core_array *)self)->a;
    if (!a) PyErr_SetString(PyExc_ValueError, "an array that was never made");
    return a;
}

static PyObject *get_handle(PyObject *self, void *unused) {
    (void)unused;
    ht_array *a = array_of(self);
    return a ? PyLong_FromVoidPtr(a) : NULL;
}

static PyObject *get_queue(PyObject *self, void *unused) {
    (void)unused;
    core_queue *q = ((core_array *)self)->queue;
    return Py_BuildValue("O", q ? (PyObject *)q : Py_None);
}

static PyObject *get_dtype(PyObject *self, void *unused) {
    (void)unused;
    ht_array *a = array_of(self);
    PyObject *dtype = a ? PyList_GetItem(core_hook.dtypes, (Py_ssize_t)core_ht.ht_array_dtype(a)) : NULL;
    Py_XINCREF(dtype);
    return dtype;
}

static PyObject *get_ndim(PyObject *self, void *unused) {
    (void)unused;
    ht_array *a = array_of(self);
    return a ? PyLong_FromLong(core_ht.ht_array_n_dims(a)) : NULL;
}

static PyObject *get_size(PyObject *self, void *unused) {
    (void)unused;
    ht_array *a = array_of(self);
    return a ? PyLong_FromLongLong(core_ht.ht_array_size(a)) : NULL;
}

static PyObject *get_shape(PyObject *object, void *unused) {
    (void)unused;
    core_array *self = (core_array *)object;
    ht_array *a = array_of(object);
    if (!a || self->shape) return Py_XNewRef(a ? self->shape : NULL);
    core_ht.ht_array_retain(a); /* a tuple that is made may start a collection of garbage, which runs what it finds */
    const int n = core_ht.ht_array_n_dims(a);
    PyObject *shape = PyTuple_New(n);
    for (int i = 0; shape && i < n; i++) {
        PyObject *d = PyLong_FromLongLong(core_ht.ht_array_dim(a, i));
        if (!d || PyTuple_SetItem(shape, i, d)) Py_CLEAR(shape);
    }
    if (shape && self->a == a && !self->shape) self->shape = Py_NewRef(shape);
    core_ht.ht_array_free(a);
    return shape;
}

static PyObject *get_itemsize(PyObject *self, void *unused) {
    (void)unused;
    ht_array *a = array_of(self);
    return a ? PyLong_FromSize_t(core_ht.ht_dtype_bytes(core_ht.ht_array_dtype(a))) : NULL;
}

static PyObject *get_nbytes(PyObject *self, void *unused) {
    (void)unused;
    ht_array *a = array_of(self);
    if (!a) return NULL;
    return PyLong_FromSize_t((size_t)core_ht.ht_array_size(a) * core_ht.ht_dtype_bytes(core_ht.ht_array_dtype(a)));
}

static Py_ssize_t length(PyObject *self) {
    ht_array *a = array_of(self);
    if (!a) return -1;
    if (core_ht.ht_array_n_dims(a)) return (Py_ssize_t)core_ht.ht_array_dim(a, 0);
    PyErr_SetString(PyExc_TypeError, "len() of an array without axes");
    return -1;
}

static Py_hash_t hash(PyObject *self) { return (Py_hash_t)((uintptr_t)self >> 4); }

/* ---- the type ---- */

static PyMethodDef methods[] = {
    {"_own", own, METH_O | METH_CLASS, NULL}, {"_become", core_become, METH_O, NULL}, {NULL, NULL, 0, NULL}};
static char matrices; /* what core_transposed is to turn */
static PyGetSetDef properties[] = {
    {"_handle", get_handle, NULL, "The array of the library, while this object holds it.", NULL},
    {"_queue", get_queue, NULL, "The stream that computes it, or None.", NULL},
    {"dtype", get_dtype, NULL, "The element type.", NULL},
    {"ndim", get_ndim, NULL, "The number of axes.", NULL},
    {"size", get_size, NULL, "The number of elements.", NULL},
    {"shape", get_shape, NULL, "The lengths of the axes.", NULL},
    {"itemsize", get_itemsize, NULL, "The bytes of an element.", NULL},
    {"nbytes", get_nbytes, NULL, "The bytes of all elements.", NULL},
    {"T", core_transposed, NULL, "With its axes in reverse order.", NULL},
    {"mT", core_transposed, NULL, "With its last two axes changed.", &matrices},
    {NULL, NULL, NULL, NULL, NULL}};
static PyMemberDef members[] = {{"__weaklistoffset__", T_PYSSIZET, offsetof(core_array, weak), READONLY, NULL},
                                {NULL, 0, 0, 0, NULL}};
static PyType_Slot slots[] = {{Py_tp_dealloc, (void *)dealloc},
                              {Py_tp_methods, methods},
                              {Py_tp_getset, properties},
                              {Py_tp_members, members},
                              {Py_tp_hash, (void *)hash},
                              {Py_tp_richcompare, (void *)core_compare},
                              {Py_mp_subscript, (void *)core_subscript},
                              {Py_mp_length, (void *)length},
                              {Py_mp_ass_subscript, (void *)core_assign},
                              {Py_bf_getbuffer, (void *)core_get_buffer},
                              {Py_bf_releasebuffer, (void *)core_release_buffer},
                              {Py_nb_negative, (void *)core_negative},
                              {Py_nb_absolute, (void *)core_absolute},
                              {Py_nb_invert, (void *)core_invert},
                              {Py_nb_add, (void *)core_add},
                              {Py_nb_subtract, (void *)core_subtract},
                              {Py_nb_multiply, (void *)core_multiply},
                              {Py_nb_true_divide, (void *)core_divide},
                              {Py_nb_floor_divide, (void *)core_floor_divide},
                              {Py_nb_remainder, (void *)core_remainder},
                              {Py_nb_power, (void *)core_power},
                              {Py_nb_and, (void *)core_and},
                              {Py_nb_or, (void *)core_or},
                              {Py_nb_xor, (void *)core_xor},
                              {Py_nb_lshift, (void *)core_left_shift},
                              {Py_nb_rshift, (void *)core_right_shift},
                              {Py_nb_matrix_multiply, (void *)core_matmul},
                              {Py_nb_inplace_add, (void *)core_in_place_add},
                              {Py_nb_inplace_subtract, (void *)core_in_place_subtract},
                              {Py_nb_inplace_multiply, (void *)core_in_place_multiply},
                              {Py_nb_inplace_true_divide, (void *)core_in_place_divide},
                              {Py_nb_inplace_floor_divide, (void *)core_in_place_floor_divide},
                              {Py_nb_inplace_remainder, (void *)core_in_place_remainder},
                              {Py_nb_inplace_power, (void *)core_in_place_power},
                              {Py_nb_inplace_and, (void *)core_in_place_and},
                              {Py_nb_inplace_or, (void *)core_in_place_or},
                              {Py_nb_inplace_xor, (void *)core_in_place_xor},
                              {Py_nb_inplace_lshift, (void *)core_in_place_left_shift},
                              {Py_nb_inplace_rshift, (void *)core_in_place_right_shift},
                              {Py_nb_inplace_matrix_multiply, (void *)core_in_place_matmul},
                              {0, NULL}};
PyType_Spec core_array_spec = {"hearth._core.Array", sizeof(core_array), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE,
                               slots};
