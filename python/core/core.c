/* Module initialisation: the bindings to the library and to the Python part. */
#include "function.h"

#include <dlfcn.h>
#include <string.h>

core_library core_ht;
core_hooks core_hook;
PyTypeObject *core_array_type, *core_queue_type;
static void *library;

core_function *core_find(const char *name) {
    core_function *found = NULL;
    void *symbol = dlsym(library, name);
    memcpy(&found, &symbol, sizeof found); /* ISO C converts no object pointers to functions */
    if (!found && !PyErr_Occurred())
        PyErr_Format(PyExc_ImportError, "libhearth has no %s: it is of another version", name);
    return found;
}

PyObject *core_raise(const ht_error *err) {
    Py_XDECREF(PyObject_CallFunction(core_hook.raised, "is", (int)err->status, err->message));
    return NULL;
}

/* bind(library): the handle under which the library is open. */
static PyObject *bind(PyObject *module, PyObject *handle) {
    (void)module;
    library = PyLong_AsVoidPtr(handle);
    if (PyErr_Occurred()) return NULL;
    int (*version)(void) = (int (*)(void))core_find("ht_abi_version");
    if (!version) return NULL;
    if (version() != HT_ABI_VERSION)
        return PyErr_Format(PyExc_ImportError, "libhearth has the interface %d, and _core was compiled for %d",
                            version(), HT_ABI_VERSION);
#define CORE_FIND(name) core_ht.name = (__typeof__(core_ht.name))core_find(#name);
    CORE_FUNCTIONS(CORE_FIND)
    ht_array *const *none = dlsym(library, "HT_NONE");
    if (!none) return PyErr_Format(PyExc_ImportError, "libhearth has no HT_NONE: it is of another version");
    core_none = *none;
    if (!core_find_functions()) return NULL;
    Py_RETURN_NONE;
}

/* hook(name=value, ...) */
static PyObject *hook(PyObject *module, PyObject *args, PyObject *named) {
    (void)module;
    if (PyTuple_Size(args)) return PyErr_Format(PyExc_TypeError, "hook() takes names");
    const struct {
        const char *name;
        PyObject **place;
    } known[] = {
        {"array", &core_hook.array},       {"operand", &core_hook.operand},     {"failed", &core_hook.failed},
        {"raised", &core_hook.raised},     {"start", &core_hook.start},         {"queue_of", &core_hook.queue_of},
        {"dtypes", &core_hook.dtypes},     {"subscript", &core_hook.subscript}, {"index", &core_hook.index},
        {"put", &core_hook.put},           {"made_of", &core_hook.made_of},     {"evaluate", &core_hook.evaluate},
        {"value_of", &core_hook.value_of}, {"signature", &core_hook.signature}, {"state", &core_hook.state}};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        PyObject *value = named ? PyDict_GetItemString(named, known[i].name) : NULL;
        if (!value) continue;
        Py_XDECREF(*known[i].place);
        *known[i].place = Py_NewRef(value);
    }
    Py_RETURN_NONE;
}

static PyMethodDef methods[] = {{"bind", bind, METH_O, NULL},
                                {"hook", (PyCFunction)(void (*)(void))hook, METH_VARARGS | METH_KEYWORDS, NULL},
                                {"call", (PyCFunction)(void (*)(void))core_call, METH_FASTCALL, NULL},
                                {"kind", (PyCFunction)(void (*)(void))core_trace_kind, METH_FASTCALL, NULL},
                                {"replay", (PyCFunction)(void (*)(void))core_replay, METH_FASTCALL, NULL},
                                {"functions", core_functions, METH_NOARGS, NULL},
                                {"fixed_sizes", core_fixed_sizes, METH_O, NULL},
                                {"use", core_use, METH_VARARGS, NULL},
                                {"current", core_current, METH_NOARGS, NULL},
                                {"take", core_take, METH_NOARGS, NULL},
                                {"hold", core_hold, METH_O, NULL},
                                {"follow", core_follow, METH_O, NULL},
                                {"give", core_give, METH_O, NULL},
                                {"free", core_free, METH_O, NULL},
                                {NULL, NULL, 0, NULL}};
static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, "_core", NULL, -1, methods, NULL, NULL, NULL, NULL};

static PyTypeObject *add_type(PyObject *module, PyType_Spec *spec, const char *name) {
    PyObject *type = PyType_FromSpec(spec);
    if (type && PyModule_AddObjectRef(module, name, type)) Py_CLEAR(type);
    return (PyTypeObject *)type;
}

PyMODINIT_FUNC PyInit__core(void);
PyMODINIT_FUNC PyInit__core(void) {
    PyObject *module = PyModule_Create(&definition);
    if (!module) return NULL;
    core_array_type = add_type(module, &core_array_spec, "Array");
    core_queue_type = add_type(module, &core_queue_spec, "Queue");
    core_held_type = add_type(module, &core_held_spec, "Held");
    if (core_array_type && core_queue_type && core_held_type) return module;
    Py_DECREF(module);
    return NULL;
}
