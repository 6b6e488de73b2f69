/* Operations: those of one and two arrays, as functions and operators, and the call of any other. */
#include "core.h"

#include <stdlib.h>
#include <string.h>

typedef ht_array *one(ht_scope *s, ht_array *a);
typedef ht_array *two(ht_scope *s, ht_array *a, ht_array *b);

/* ---- operands ---- */

/* Bare numbers as arrays, which most programs use few of: by their bits, their kind and the dtype of the array beside. */
enum { SCALARS = 256 };
typedef struct scalar {
    uint64_t bits;
    int kind, beside;
    PyObject *array; /* NULL: free */
} scalar;
static scalar scalars[SCALARS];

/* The place of a number that has one; NULL for other values. */
static scalar *place_of(PyObject *value, PyObject *beside, scalar *key) {
    PyTypeObject *type = Py_TYPE(value);
    key->beside = (int)core_ht.ht_array_dtype(((core_array *)beside)->a);
    if (type == &PyFloat_Type) {
        double number = PyFloat_AsDouble(value);
        memcpy(&key->bits, &number, sizeof number);
        key->kind = 0;
    } else if (type == &PyLong_Type || type == &PyBool_Type) {
        int overflow;
        key->bits = (uint64_t)PyLong_AsLongLongAndOverflow(value, &overflow);
        key->kind = type == &PyLong_Type ? 1 : 2;
        if (overflow) return NULL;
    } else
        return NULL;
    uint64_t mixed = (key->bits ^ key->bits >> 32 ^ (uint64_t)(key->beside * 4 + key->kind)) * 0x9E3779B97F4A7C15u;
    return &scalars[mixed >> 56];
}

/* A new reference to the array that stands for a value beside an array (NULL: alone); NULL after an exception. */
static PyObject *operand(PyObject *value, PyObject *beside) {
    if (core_is_array(value)) {
        if (((core_array *)value)->a) return Py_NewRef(value);
        return PyErr_Format(PyExc_ValueError, "an array that was never made");
    }
    scalar key = {0}, *place = beside ? place_of(value, beside, &key) : NULL;
    if (place && place->array && place->bits == key.bits && place->kind == key.kind && place->beside == key.beside)
        return Py_NewRef(place->array);
    PyObject *array = PyObject_CallFunctionObjArgs(core_hook.operand, value, beside ? beside : Py_None, NULL);
    if (!array || !place || ((core_array *)array)->queue) return array;
    Py_XDECREF(place->array);
    *place = key;
    place->array = Py_NewRef(array);
    return array;
}

/* ---- calls ---- */

static PyObject *call_one(one *f, PyObject *a) {
    PyObject *x = operand(a, NULL);
    ht_scope *s = x ? core_scope_take() : NULL;
    PyObject *y = s ? core_finish(s, f(s, ((core_array *)x)->a)) : NULL;
    Py_XDECREF(x);
    return y;
}

static PyObject *call_two(two *f, PyObject *a, PyObject *b) {
    PyObject *x = NULL, *y = NULL, *z = NULL;
    if (core_is_array(a)) {
        x = operand(a, NULL);
        y = x ? operand(b, x) : NULL;
    } else {
        y = operand(b, NULL);
        x = y ? operand(a, y) : NULL;
    }
    ht_scope *s = x && y ? core_scope_take() : NULL;
    if (s) z = core_finish(s, f(s, ((core_array *)x)->a, ((core_array *)y)->a));
    Py_XDECREF(x);
    Py_XDECREF(y);
    return z;
}

/* call(function, argument...): the array that a function of ctypes gives, which takes a scope first. */
PyObject *core_call(PyObject *module, PyObject *const *args, Py_ssize_t n) {
    (void)module;
    if (n < 1) return PyErr_Format(PyExc_TypeError, "call() needs a function");
    PyObject *given = PyTuple_New(n), *result = NULL;
    ht_scope *s = given ? core_scope_take() : NULL;
    for (Py_ssize_t i = 0; s && i < n; i++) {
        PyObject *item = i == 0                   ? PyLong_FromVoidPtr(s)
                         : core_is_array(args[i]) ? PyLong_FromVoidPtr(((core_array *)args[i])->a)
                                                  : Py_NewRef(args[i]);
        if (!item || PyTuple_SetItem(given, i, item)) {
            core_scope_give(s);
            s = NULL;
        }
    }
    if (s) {
        PyObject *pointer = PyObject_CallObject(args[0], given);
        ht_array *made = pointer && pointer != Py_None ? PyLong_AsVoidPtr(pointer) : NULL;
        Py_XDECREF(pointer);
        result = core_finish(s, made);
    }
    Py_XDECREF(given);
    return result;
}

/* ---- what operators stand for ---- */

#define OF_ONE(X) X(negative, negative) X(absolute, abs) X(invert, bitwise_invert)
#define OF_TWO(X)                                                                                                      \
    X(add, add)                                                                                                        \
    X(subtract, subtract)                                                                                              \
    X(multiply, multiply)                                                                                              \
    X(divide, divide)                                                                                                  \
    X(floor_divide, floor_divide)                                                                                      \
    X(remainder, remainder)                                                                                            \
    X(and, bitwise_and)                                                                                                \
    X(or, bitwise_or)                                                                                                  \
    X(xor, bitwise_xor)                                                                                                \
    X(left_shift, left_shift)                                                                                          \
    X(right_shift, right_shift)

#define FIELD_ONE(slot, name) one *name;
#define FIELD_TWO(slot, name) two *name;
static struct {
    OF_ONE(FIELD_ONE)
    OF_TWO(FIELD_TWO)
    two *power, *compare[6];
    ht_array *(*matmul)(ht_scope *s, ht_array *a, ht_array *b, bool transpose_b);
} operators;

static ht_array *product(ht_scope *s, ht_array *a, ht_array *b) { return operators.matmul(s, a, b, false); }

/* ---- functions ---- */

/* What a function of Python stands for. */
typedef struct operation {
    PyMethodDef method;
    core_function *function;
    int n;
    char text[];
} operation;

/* Puts arguments given by name, "a", "b" and "stream", to their places. */
static int place_named(const operation *o, PyObject *const *args, Py_ssize_t n, PyObject *names, PyObject *place[3]) {
    static const char *const known[3] = {"a", "b", "stream"};
    for (Py_ssize_t i = 0; i < n; i++) place[i == o->n ? 2 : i] = args[i];
    Py_ssize_t n_names = names ? PyTuple_Size(names) : 0;
    for (Py_ssize_t i = 0; i < n_names; i++) {
        PyObject *name = PyTuple_GetItem(names, i);
        int k = 0;
        while (k < 3 && ((k >= o->n && k < 2) || PyUnicode_CompareWithASCIIString(name, known[k]) != 0)) k++;
        if (k == 3 || place[k]) {
            PyErr_Format(PyExc_TypeError, k == 3 ? "%s() takes no argument '%U'" : "%s() was given '%U' twice",
                         o->method.ml_name, name);
            return 0;
        }
        place[k] = args[n + i];
    }
    return 1;
}

static PyObject *call_operation(PyObject *self, PyObject *const *args, Py_ssize_t n, PyObject *names) {
    const operation *o = PyCapsule_GetPointer(self, NULL);
    PyObject *place[3] = {NULL, NULL, NULL};
    if (n > o->n + (o->n == 2)) return PyErr_Format(PyExc_TypeError, "%s() takes %d arrays", o->method.ml_name, o->n);
    if (!place_named(o, args, n, names, place)) return NULL;
    if (!place[0] || !place[o->n - 1])
        return PyErr_Format(PyExc_TypeError, "%s() takes %d array%s", o->method.ml_name, o->n, o->n > 1 ? "s" : "");
    core_place before;
    if (!core_enter(place[2], &before)) return NULL;
    PyObject *y = o->n == 1 ? call_one((one *)o->function, place[0]) : call_two((two *)o->function, place[0], place[1]);
    core_leave(before);
    return y;
}

static void forget(PyObject *capsule) { free(PyCapsule_GetPointer(capsule, NULL)); }

/* operation(name, n, text): ht_`name`, of n arrays, as a function of Python. */
PyObject *core_operation(PyObject *module, PyObject *args) {
    (void)module;
    const char *name, *text;
    int n;
    if (!PyArg_ParseTuple(args, "sis", &name, &n, &text)) return NULL;
    char symbol[64];
    PyOS_snprintf(symbol, sizeof symbol, "ht_%s", name);
    core_function *function = strcmp(name, "matmul") ? core_find(symbol) : (core_function *)product;
    if (!function) return NULL;
    static const char *const signature[] = {"(a, /, *, stream=None)\n--\n\n", "(a, b, stream=None)\n--\n\n"};
    size_t room = 2 * strlen(name) + strlen(text) + 64;
    operation *o = calloc(1, sizeof *o + room);
    PyObject *capsule = o ? PyCapsule_New(o, NULL, forget) : NULL;
    if (!capsule) {
        free(o);
        return o ? NULL : PyErr_NoMemory();
    }
    size_t used = (size_t)PyOS_snprintf(o->text, room, "%s", name) + 1;
    PyOS_snprintf(o->text + used, room - used, "%s%s%s", name, signature[n - 1], text);
    o->method = (PyMethodDef){o->text, (PyCFunction)(void (*)(void))call_operation, METH_FASTCALL | METH_KEYWORDS,
                              o->text + used};
    o->function = function;
    o->n = n;
    PyObject *module_name = PyUnicode_FromString("hearth");
    PyObject *made = module_name ? PyCFunction_NewEx(&o->method, capsule, module_name) : NULL;
    Py_XDECREF(module_name);
    Py_DECREF(capsule);
    return made;
}

/* ---- operators ---- */

#define OPERATOR_ONE(slot, name)                                                                                       \
    PyObject *core_##slot(PyObject *a) { return call_one(operators.name, a); }
OF_ONE(OPERATOR_ONE)
#define OPERATOR_TWO(slot, name)                                                                                       \
    PyObject *core_##slot(PyObject *a, PyObject *b) { return call_two(operators.name, a, b); }
OF_TWO(OPERATOR_TWO)

PyObject *core_power(PyObject *a, PyObject *b, PyObject *modulus) {
    if (modulus != Py_None) return PyErr_Format(PyExc_TypeError, "arrays have no power with a modulus");
    return call_two(operators.power, a, b);
}

PyObject *core_compare(PyObject *a, PyObject *b, int how) { return call_two(operators.compare[how], a, b); }

PyObject *core_matmul(PyObject *a, PyObject *b) { return call_two(product, a, b); }

int core_find_operators(void) {
#define FIND_ONE(slot, name) operators.name = (one *)core_find("ht_" #name);
#define FIND_TWO(slot, name) operators.name = (two *)core_find("ht_" #name);
    OF_ONE(FIND_ONE)
    OF_TWO(FIND_TWO)
    operators.power = (two *)core_find("ht_power");
    operators.compare[Py_LT] = (two *)core_find("ht_less");
    operators.compare[Py_LE] = (two *)core_find("ht_less_equal");
    operators.compare[Py_EQ] = (two *)core_find("ht_equal");
    operators.compare[Py_NE] = (two *)core_find("ht_not_equal");
    operators.compare[Py_GT] = (two *)core_find("ht_greater");
    operators.compare[Py_GE] = (two *)core_find("ht_greater_equal");
    operators.matmul = (__typeof__(operators.matmul))core_find("ht_matmul");
    return !PyErr_Occurred();
}
