/* Array references for ctypes calls, which release the GIL: kept alive whatever their objects stand for meanwhile. */
#include "core.h"

#include <stdlib.h>

PyTypeObject *core_held_type;

typedef struct held {
    PyObject_HEAD ht_array **arrays;
    Py_ssize_t n;
} held;

PyObject *core_hold(PyObject *module, PyObject *arrays) {
    (void)module;
    PyObject *list = PySequence_Tuple(arrays);
    held *h = list ? (held *)PyType_GenericAlloc(core_held_type, 0) : NULL;
    const Py_ssize_t n = list ? PyTuple_Size(list) : 0;
    if (h && !(h->arrays = calloc((size_t)n + 1, sizeof *h->arrays))) PyErr_NoMemory();
    for (Py_ssize_t i = 0; h && h->arrays && i < n && !PyErr_Occurred(); i++) {
        PyObject *array = PyTuple_GetItem(list, i);
        if (!core_is_array(array) || !((core_array *)array)->a)
            PyErr_Format(PyExc_TypeError, "an array was expected, not %R", array);
        else
            h->arrays[h->n++] = core_ht.ht_array_retain(((core_array *)array)->a);
    }
    Py_XDECREF(list);
    if (!PyErr_Occurred()) return (PyObject *)h;
    Py_XDECREF((PyObject *)h);
    return NULL;
}

ht_array *const *core_held(PyObject *self, int *n) {
    held *h = (held *)self;
    *n = (int)h->n;
    return h->arrays;
}

static void dealloc(PyObject *self) {
    held *h = (held *)self;
    PyTypeObject *type = Py_TYPE(self);
    while (h->n) core_ht.ht_array_free(h->arrays[--h->n]);
    free(h->arrays);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(self);
    Py_DECREF(type);
}

static PyObject *get_address(PyObject *self, void *unused) {
    (void)unused;
    return PyLong_FromVoidPtr(((held *)self)->arrays);
}

static Py_ssize_t length(PyObject *self) { return ((held *)self)->n; }

static PyGetSetDef properties[] = {{"_as_parameter_", get_address, NULL, "An ht_array *[], for ctypes.", NULL},
                                   {NULL, NULL, NULL, NULL, NULL}};
static PyType_Slot slots[] = {
    {Py_tp_dealloc, (void *)dealloc}, {Py_tp_getset, properties}, {Py_sq_length, (void *)length}, {0, NULL}};
PyType_Spec core_held_spec = {"hearth._core.Held", sizeof(held), 0,
                              Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, slots};
