/* Calls of compiled functions, in less time than Python takes to look at their arguments. */
#include "core.h"

#include <stdlib.h>

enum { MOST = 4096 /* arrays that a function may give */ };

/* kind(arguments, shapeless): what a function's trace depends on, if all arguments are arrays; else None. */
PyObject *core_trace_kind(PyObject *module, PyObject *const *args, Py_ssize_t n_args) {
    (void)module;
    enum { ARRAYS = 16, AXES = 128 };
    int64_t kind[2 * ARRAYS + AXES];
    size_t used = 0;
    if (n_args != 2 || !PyTuple_Check(args[0])) return PyErr_Format(PyExc_TypeError, "kind(arguments, shapeless)");
    const Py_ssize_t n = PyTuple_Size(args[0]);
    const int shapeless = PyObject_IsTrue(args[1]);
    if (shapeless < 0) return NULL;
    for (Py_ssize_t i = 0; i < n; i++) {
        PyObject *o = PyTuple_GetItem(args[0], i);
        ht_array *a = core_is_array(o) ? ((core_array *)o)->a : NULL;
        const int n_dims = a ? core_ht.ht_array_n_dims(a) : 0;
        if (!a || used + 2 + (size_t)n_dims > sizeof kind / sizeof *kind) Py_RETURN_NONE;
        kind[used++] = (int64_t)core_ht.ht_array_dtype(a);
        kind[used++] = n_dims;
        for (int d = 0; d < n_dims && !shapeless; d++) kind[used++] = core_ht.ht_array_dim(a, d);
    }
    return PyBytes_FromStringAndSize((const char *)kind, (Py_ssize_t)(used * sizeof *kind));
}

/* The results as a list of arrays; those of a failed call are nobody's. */
static PyObject *list_of(ht_array **made, int n) {
    PyObject *list = PyList_New(n);
    for (int i = 0; list && i < n; i++) {
        PyObject *array = core_array_new(core_ht.ht_array_retain(made[i]));
        if (!array || PyList_SetItem(list, i, array)) Py_CLEAR(list);
    }
    return list;
}

/* replay(compiled, arguments): the arrays that ht_compiled_call gives for a sequence of arrays. */
PyObject *core_replay(PyObject *module, PyObject *const *args, Py_ssize_t n_args) {
    (void)module;
    if (n_args != 2) return PyErr_Format(PyExc_TypeError, "replay(compiled, arguments)");
    ht_compiled *compiled = PyLong_AsVoidPtr(args[0]);
    if (!compiled) return PyErr_Occurred() ? NULL : PyErr_Format(PyExc_ValueError, "no compiled function");
    int n_in, n_out;
    PyObject *held = core_hold(NULL, args[1]);
    ht_array *const *in = held ? core_held(held, &n_in) : NULL;
    ht_scope *s = held ? core_scope_take() : NULL;
    ht_array **made = s ? malloc(MOST * sizeof *made) : NULL; /* calls nest, on threads whose stacks may be small */
    if (!made) {
        if (s) PyErr_NoMemory();
        if (s) core_finish(s, NULL);
        Py_XDECREF(held);
        return NULL;
    }
    Py_BEGIN_ALLOW_THREADS; /* it may call back, or wait for another thread that does */
    n_out = core_ht.ht_compiled_call(s, compiled, in, n_in, made, MOST);
    Py_END_ALLOW_THREADS;
    PyObject *list = n_out >= 0 ? list_of(made, n_out) : NULL;
    free(made);
    Py_DECREF(held);
    if (n_out < 0 || PyErr_Occurred()) return core_finish(s, NULL);
    core_ht.ht_scope_finish(s, NULL);
    core_scope_give(s);
    return list;
}
