/* Conversion of Python's numbers and nested lists to arrays, and back. Special cases (halves, numbers that do not
 * fit, other objects) are the Python part's. */
#include "function.h"

#include <limits.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#define LIBRARY(X)                                                                                                     \
    X(ht_array_from)                                                                                                   \
    X(ht_astype)                                                                                                       \
    X(ht_array_eval)                                                                                                   \
    X(ht_array_eval_async)
CORE_SYMBOLS(LIBRARY)

enum { MOST_AXES = 8 };

/* ---- from numbers ---- */

/* Nested lists of one shape, and what kinds of numbers are in them. */
typedef struct nest {
    PyObject *top;
    int depth;
    int64_t shape[MOST_AXES], n;
    bool floats, whole, truths;
    long long least, most;
} nest;

static bool is_list(PyObject *o) { return PyList_CheckExact(o) || PyTuple_CheckExact(o); }
static Py_ssize_t length_of(PyObject *list) { return PyList_CheckExact(list) ? PyList_Size(list) : PyTuple_Size(list); }

static PyObject *item_of(PyObject *list, Py_ssize_t i) { /* lent */
    return PyList_CheckExact(list) ? PyList_GetItem(list, i) : PyTuple_GetItem(list, i);
}

static bool look_at_number(nest *l, PyObject *o) {
    l->n++;
    if (PyFloat_CheckExact(o)) return l->floats = true;
    if (PyBool_Check(o)) return l->truths = true;
    if (!PyLong_CheckExact(o)) return false;
    int overflow;
    const long long value = PyLong_AsLongLongAndOverflow(o, &overflow);
    if (!l->whole || value < l->least) l->least = value;
    if (!l->whole || value > l->most) l->most = value;
    return l->whole = !overflow;
}

static bool look_at(nest *l, PyObject *o, int level) {
    if (level == l->depth) return look_at_number(l, o);
    if (!is_list(o) || length_of(o) != l->shape[level]) return false;
    for (Py_ssize_t i = 0; i < l->shape[level]; i++)
        if (!look_at(l, item_of(o, i), level + 1)) return false;
    return true;
}

/* False: there is something else in it, or it is no nest of one shape. */
static bool measure(nest *l, PyObject *top) {
    *l = (nest){.top = top};
    PyObject *o = top;
    while (is_list(o)) {
        if (l->depth == MOST_AXES) return false;
        const Py_ssize_t n = length_of(o);
        l->shape[l->depth++] = n;
        if (!n) break;
        o = item_of(o, 0);
    }
    return look_at(l, top, 0);
}

static bool is_floating(ht_dtype dtype) { return dtype >= HT_F16; }

/* Whether numbers from `low` to `high` are elements of a dtype of integers. */
static bool holds(ht_dtype dtype, long long low, long long high) {
    static const long long least[] = {
        [HT_I8] = INT8_MIN, [HT_I16] = INT16_MIN, [HT_I32] = INT32_MIN, [HT_I64] = LLONG_MIN};
    static const long long most[] = {
        [HT_U8] = UINT8_MAX, [HT_U16] = UINT16_MAX, [HT_U32] = UINT32_MAX, [HT_U64] = LLONG_MAX,
        [HT_I8] = INT8_MAX,  [HT_I16] = INT16_MAX,  [HT_I32] = INT32_MAX,  [HT_I64] = LLONG_MAX};
    return low >= (dtype >= HT_I8 ? least[dtype] : 0) && high <= most[dtype];
}

bool core_holds(ht_dtype dtype, PyObject *integer) {
    int overflow;
    const long long value = PyLong_AsLongLongAndOverflow(integer, &overflow);
    if (!overflow) return holds(dtype, value, value);
    if (overflow < 0 || dtype != HT_U64) return false;
    const bool held = PyLong_AsUnsignedLongLong(integer) != ULLONG_MAX || !PyErr_Occurred();
    PyErr_Clear();
    return held;
}

static ht_dtype natural(const nest *l) {
    if (l->floats || !l->n) return HT_F32;
    if (!l->whole) return HT_BOOL;
    return holds(HT_I32, l->least, l->most) ? HT_I32 : HT_I64;
}

bool core_check_holds(ht_dtype dtype, PyObject *number) {
    if (!PyLong_Check(number) || !core_is_of_integers(dtype) || core_holds(dtype, number)) return true;
    PyErr_Format(PyExc_ValueError, "%S is no element of %S", number,
                 PyList_GetItem(core_hook.dtypes, (Py_ssize_t)dtype));
    return false;
}

PyObject *core_integer(PyObject *value) {
    PyObject *integer = PyIndex_Check(value) ? PyNumber_Index(value) : NULL;
    if (PyErr_Occurred() && PyErr_ExceptionMatches(PyExc_TypeError)) PyErr_Clear();
    return integer;
}

/* Whether all of them are elements of a dtype as they are. */
static bool fits(const nest *l, ht_dtype dtype) {
    if (dtype == HT_F32 || dtype == HT_F64) return true;
    if (dtype == HT_BOOL) return !l->whole && !l->floats;
    if (is_floating(dtype) || l->floats) return false;
    return !l->whole || holds(dtype, l->least, l->most);
}

static void write_number(PyObject *o, ht_dtype dtype, char **to) {
    const size_t bytes = core_ht.ht_dtype_bytes(dtype);
    if (dtype == HT_F32 || dtype == HT_F64) {
        const double number = core_double(o);
        const float narrow = (float)number;
        memcpy(*to, dtype == HT_F32 ? (const void *)&narrow : &number, bytes);
    } else {
        const long long value = o == Py_True ? 1 : o == Py_False ? 0 : PyLong_AsLongLong(o);
        const uint8_t u8 = (uint8_t)value;
        const uint16_t u16 = (uint16_t)value;
        const uint32_t u32 = (uint32_t)value;
        memcpy(*to,
               bytes == 1   ? (const void *)&u8
               : bytes == 2 ? (const void *)&u16
               : bytes == 4 ? (const void *)&u32
                            : &value,
               bytes);
    }
    *to += bytes;
}

static void write_all(const nest *l, PyObject *o, int level, ht_dtype dtype, char **to) {
    if (level == l->depth) {
        write_number(o, dtype, to);
        return;
    }
    for (Py_ssize_t i = 0; i < l->shape[level]; i++) write_all(l, item_of(o, i), level + 1, dtype, to);
}

ht_array *core_from_numbers(ht_scope *s, PyObject *o, const ht_dtype *wanted, bool *other) {
    nest l;
    *other = !measure(&l, o);
    if (*other) return NULL;
    const ht_dtype own = natural(&l);
    const bool by_way = wanted && (*wanted == HT_BF16 || (own == HT_F32 && !is_floating(*wanted)));
    const ht_dtype dtype = wanted && !by_way ? *wanted : own;
    *other = !fits(&l, dtype);
    if (*other) return NULL;
    char few[64], *bytes = few;
    const size_t size = (size_t)l.n * core_ht.ht_dtype_bytes(dtype);
    if (size > sizeof few && !(bytes = malloc(size))) {
        PyErr_NoMemory();
        return NULL;
    }
    write_all(&l, o, 0, dtype, &(char *){bytes});
    ht_array *made = PyErr_Occurred() ? NULL : ht.ht_array_from(s, bytes, dtype, l.shape, l.depth);
    if (bytes != few) free(bytes);
    return wanted && made ? ht.ht_astype(s, made, *wanted) : made;
}

static void end(ht_scope *s) {
    core_ht.ht_scope_finish(s, NULL);
    core_scope_give(s);
}

/* array.__init__ */
BODY(init) {
    PyObject *self = v[0].given, *values = v[1].given, *made = NULL;
    if (!core_is_array(self)) {
        PyErr_Format(PyExc_TypeError, "%R is no array", self);
        return core_give_up(s);
    }
    bool other = false;
    ht_array *a = NULL;
    if (core_is_array(values)) {
        if (v[2].absent) {
            end(s);
            return core_become(self, values);
        }
        a = ((core_array *)values)->a;
    } else
        a = core_from_numbers(s, values, v[2].absent ? NULL : &v[2].dtype, &other);
    if (other) {
        made = PyObject_CallFunctionObjArgs(core_hook.made_of, values, v[2].given, NULL);
        a = made ? ((core_array *)made)->a : NULL;
    }
    if (a && !v[2].absent) a = ht.ht_astype(s, a, v[2].dtype);
    if (a) {
        core_ht.ht_scope_finish(s, a);
        core_scope_give(s);
        core_array_set((core_array *)self, a);
    }
    Py_XDECREF(made);
    return a ? Py_NewRef(Py_None) : core_give_up(s);
}

/* ---- to numbers ---- */

static double of_half(uint16_t bits) {
    const int exponent = bits >> 10 & 31;
    const double fraction = bits & 1023, sign = bits >> 15 ? -1 : 1;
    if (exponent == 31) return fraction > 0 ? Py_NAN : sign * Py_HUGE_VAL;
    double value = exponent ? (1024 + fraction) / 16777216 : fraction / 8388608; /* times 2^exponent: 2^-24, 2^-23 */
    for (int i = 0; i < exponent; i++) value *= 2;
    return sign * value * 0.5;
}

#define READ(type, name)                                                                                               \
    type name;                                                                                                         \
    memcpy(&name, data, sizeof name)

static PyObject *number_of(ht_dtype dtype, const char *data) {
    switch (dtype) {
    case HT_BOOL: return PyBool_FromLong(*data);
    case HT_U8: return PyLong_FromLong((unsigned char)*data);
    case HT_I8: return PyLong_FromLong((signed char)*data);
    case HT_U16: {
        READ(uint16_t, x);
        return PyLong_FromLong(x);
    }
    case HT_I16: {
        READ(int16_t, x);
        return PyLong_FromLong(x);
    }
    case HT_U32: {
        READ(uint32_t, x);
        return PyLong_FromUnsignedLong(x);
    }
    case HT_I32: {
        READ(int32_t, x);
        return PyLong_FromLong(x);
    }
    case HT_U64: {
        READ(uint64_t, x);
        return PyLong_FromUnsignedLongLong(x);
    }
    case HT_I64: {
        READ(int64_t, x);
        return PyLong_FromLongLong(x);
    }
    case HT_F16: {
        READ(uint16_t, x);
        return PyFloat_FromDouble(of_half(x));
    }
    case HT_BF16: { /* the upper half of a float */
        READ(uint16_t, x);
        const uint32_t bits = (uint32_t)x << 16;
        float f;
        memcpy(&f, &bits, sizeof f);
        return PyFloat_FromDouble((double)f);
    }
    case HT_F32: {
        READ(float, x);
        return PyFloat_FromDouble((double)x);
    }
    default: {
        READ(double, x);
        return PyFloat_FromDouble(x);
    }
    }
}

/* Elements of an array from `data` on, as nested lists of axes from `axis` on. */
static PyObject *nested(const ht_array *a, int axis, const char *data) {
    const ht_dtype dtype = core_ht.ht_array_dtype(a);
    if (axis == core_ht.ht_array_n_dims(a)) return number_of(dtype, data);
    const Py_ssize_t n = (Py_ssize_t)core_ht.ht_array_dim(a, axis);
    const ptrdiff_t step = (ptrdiff_t)core_ht.ht_array_stride(a, axis) * (ptrdiff_t)core_ht.ht_dtype_bytes(dtype);
    PyObject *list = PyList_New(n);
    for (Py_ssize_t i = 0; list && i < n; i++) {
        PyObject *one = nested(a, axis + 1, data + i * step);
        if (!one || PyList_SetItem(list, i, one)) Py_CLEAR(list);
    }
    return list;
}

PyObject *core_list(ht_array *a) {
    core_ht.ht_array_retain(a); /* whatever its object stands for meanwhile */
    const char *data = core_data(a, true);
    PyObject *list = PyErr_Occurred() ? NULL : nested(a, 0, data);
    core_ht.ht_array_free(a);
    return list;
}

BODY(tolist) {
    end(s);
    return core_list(v[0].array);
}

BODY(item) {
    end(s);
    ht_array *a = v[0].array;
    const int64_t n = core_ht.ht_array_size(a);
    if (n != 1)
        return PyErr_Format(PyExc_ValueError, "item() needs an array of one element, this one has %lld", (long long)n);
    core_ht.ht_array_retain(a);
    const char *data = core_data(a, true);
    PyObject *number = PyErr_Occurred() ? NULL : number_of(core_ht.ht_array_dtype(a), data);
    core_ht.ht_array_free(a);
    return number;
}

/* ---- evaluation ---- */

/* The arrays of trees, held. */
typedef struct leaves {
    ht_array **array, *few[16];
    int n, room;
    bool elsewhere; /* one of them has a stream of its own */
} leaves;

static bool add_leaf(leaves *l, PyObject *o) {
    const core_array *a = (core_array *)o;
    if (l->n == l->room) {
        ht_array **more = l->n > INT_MAX / 4 ? NULL : malloc((size_t)l->n * 2 * sizeof *more);
        if (!more) {
            PyErr_NoMemory();
            return false;
        }
        memcpy(more, l->array, (size_t)l->n * sizeof *more);
        if (l->array != l->few) free(l->array);
        l->array = more;
        l->room = l->n * 2;
    }
    l->elsewhere |= a->queue != NULL;
    if (a->a) l->array[l->n++] = core_ht.ht_array_retain(a->a);
    return true;
}

static bool add_tree(leaves *l, PyObject *o) {
    if (core_is_array(o)) return add_leaf(l, o);
    const bool dict = PyDict_Check(o), list = PyList_Check(o);
    if (!dict && !list && !PyTuple_Check(o)) return true;
    if (Py_EnterRecursiveCall(" in a tree of arrays")) return false; /* also of one that contains itself */
    bool added = true;
    PyObject *key, *value;
    Py_ssize_t at = 0;
    while (dict && added && PyDict_Next(o, &at, &key, &value)) added = add_tree(l, value);
    for (Py_ssize_t i = 0; !dict && added && i < (list ? PyList_Size(o) : PyTuple_Size(o)); i++)
        added = add_tree(l, list ? PyList_GetItem(o, i) : PyTuple_GetItem(o, i));
    Py_LeaveRecursiveCall();
    return added;
}

static PyObject *evaluate(ht_scope *s, PyObject *trees, bool wait) {
    leaves l = {.array = l.few, .room = 16};
    bool read = add_tree(&l, trees);
    ht_error err = {0};
    ht_status status = HT_OK;
    if (read && !l.elsewhere) {
        Py_BEGIN_ALLOW_THREADS;
        status = (wait ? ht.ht_array_eval : ht.ht_array_eval_async)(s, l.array, l.n, &err);
        Py_END_ALLOW_THREADS;
    }
    end(s);
    while (l.n) core_ht.ht_array_free(l.array[--l.n]);
    if (l.array != l.few) free(l.array);
    if (!read) return NULL;
    if (l.elsewhere) return PyObject_CallFunctionObjArgs(core_hook.evaluate, trees, wait ? Py_True : Py_False, NULL);
    return status ? core_raise(&err) : Py_NewRef(Py_None);
}

BODY(eval) { return evaluate(s, v[0].given, true); }
BODY(async_eval) { return evaluate(s, v[0].given, false); }

#define TREES OBJECT("trees", .way = CORE_REST)
static const core_spec specs[] = {
    {"eval",
     "Computes every array in the arguments, which may be nested in lists, tuples and dicts: on the stream it was made "
     "for, or\n"
     "    else on this thread's.",
     of_eval,
     {TREES},
     CORE_REST},
    {"async_eval", "The same without waiting; whoever reads an array waits for it.", of_async_eval, {TREES}, CORE_REST},
    END_OF_TABLE,
};
const core_family core_eval_family = {"hearth", NULL, symbols, specs};

static const core_symbol none[] = {{NULL, NULL}};
static const core_spec methods[] = {
    {"__init__", NULL, of_init, {OBJECT("self"), OBJECT("values"), DTYPE("dtype", .value = "None")}, CORE_REST},
    {"tolist", NULL, of_tolist, {ARRAY("self")}, CORE_REST},
    {"item", NULL, of_item, {ARRAY("self")}, CORE_REST},
    END_OF_TABLE,
};
const core_family core_number_family = {"hearth", "array", none, methods};
