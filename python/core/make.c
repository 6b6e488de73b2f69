/* Array constructors: from sizes alone, or of the size of another array. */
#include "function.h"

#define LIBRARY(X)                                                                                                     \
    X(ht_add)                                                                                                          \
    X(ht_arange)                                                                                                       \
    X(ht_array_from)                                                                                                   \
    X(ht_astype)                                                                                                       \
    X(ht_broadcast_like)                                                                                               \
    X(ht_broadcast_to)                                                                                                 \
    X(ht_contiguous)                                                                                                   \
    X(ht_eye)                                                                                                          \
    X(ht_full)                                                                                                         \
    X(ht_full_like)                                                                                                    \
    X(ht_linspace)                                                                                                     \
    X(ht_multiply)                                                                                                     \
    X(ht_slice)                                                                                                        \
    X(ht_tri)                                                                                                          \
    X(ht_tril)                                                                                                         \
    X(ht_triu)                                                                                                         \
    X(ht_view_as)
CORE_SYMBOLS(LIBRARY)

static ht_dtype dtype_or_f32(const core_value *v) { return v->absent ? HT_F32 : v->dtype; }

/* ---- numbers of Python ---- */

static ht_dtype natural(PyObject *number) {
    if (PyBool_Check(number) || !PyLong_Check(number)) return PyBool_Check(number) ? HT_BOOL : HT_F32;
    return core_holds(HT_I32, number) ? HT_I32 : HT_I64;
}

/* Whether a double, which the library's functions take, may be another number than an integer that is an element of the dtype. */
static bool is_wide(ht_dtype dtype, PyObject *number) {
    enum { EXACT_BITS = 52 };
    int overflow;
    if (!PyLong_Check(number) || !core_is_of_integers(dtype)) return false;
    const long long value = PyLong_AsLongLongAndOverflow(number, &overflow);
    return overflow || value > 1LL << EXACT_BITS || value < -(1LL << EXACT_BITS);
}

/* The lowest 64 bits of an integer, without axes. */
static ht_array *low_bits(ht_scope *s, PyObject *integer, ht_dtype dtype) {
    const uint64_t bits = PyLong_AsUnsignedLongLongMask(integer);
    return ht.ht_array_from(s, &bits, dtype, NULL, 0);
}

/* ---- one value everywhere ---- */

/* One value for all elements: NULL without an exception when it is an array, which is stretched, or makes one. Scalars of NumPy
 * have a dtype of their own, which counts unless one is named. A new reference to a float or an integer. */
static PyObject *number_of(PyObject *value, bool has_dtype) {
    if (PyFloat_Check(value) || PyLong_Check(value)) return Py_NewRef(value);
    if (core_is_array(value) || PyList_Check(value) || PyTuple_Check(value)) return NULL;
    PyObject *integer = has_dtype ? core_integer(value) : NULL;
    if (integer || PyErr_Occurred() || PyObject_HasAttrString(value, "__array_interface__")) return integer;
    const double number = core_double(value);
    return number == -1 && PyErr_Occurred() ? NULL : PyFloat_FromDouble(number);
}

/* Fills the shape of `like`, or NULL, n sizes. */
static PyObject *fill(ht_scope *s, PyObject *number, ht_dtype dtype, ht_array *like, const int64_t *sizes, int n) {
    if (!core_check_holds(dtype, number)) return core_give_up(s);
    if (is_wide(dtype, number)) {
        ht_array *one = low_bits(s, number, dtype);
        ht_array *all = like ? ht.ht_broadcast_like(s, one, like) : ht.ht_broadcast_to(s, one, sizes, n);
        return core_finish(s, ht.ht_contiguous(s, all));
    }
    const double value = core_double(number);
    if (value == -1 && PyErr_Occurred()) return core_give_up(s);
    return core_finish(s, like ? ht.ht_full_like(s, like, value, dtype) : ht.ht_full(s, value, dtype, sizes, n));
}

/* A new reference to the array of several values, which the dtype has to hold where they are numbers in lists. */
static PyObject *values_of(PyObject *values, const core_value *dtype) {
    if (dtype->absent || !(PyList_Check(values) || PyTuple_Check(values))) return core_operand(values, NULL);
    PyObject *named = PyList_GetItem(core_hook.dtypes, (Py_ssize_t)dtype->dtype);
    return PyObject_CallFunctionObjArgs(core_hook.array, values, named, NULL);
}

BODY(full) {
    const core_value shape = v[0];
    PyObject *number = number_of(v[1].given, !v[2].absent);
    if (number) {
        PyObject *result = fill(s, number, v[2].absent ? natural(number) : v[2].dtype, NULL, shape.sizes, shape.n);
        Py_DECREF(number);
        return result;
    }
    PyObject *given = PyErr_Occurred() ? NULL : values_of(v[1].given, &v[2]);
    if (!given) return core_give_up(s);
    ht_array *filled = ht.ht_broadcast_to(s, ((core_array *)given)->a, shape.sizes, shape.n);
    PyObject *result = core_finish(s, v[2].absent ? filled : ht.ht_astype(s, filled, v[2].dtype));
    Py_DECREF(given);
    return result;
}

BODY(zeros) { return core_finish(s, ht.ht_full(s, 0, dtype_or_f32(&v[1]), v[0].sizes, v[0].n)); }
BODY(ones) { return core_finish(s, ht.ht_full(s, 1, dtype_or_f32(&v[1]), v[0].sizes, v[0].n)); }

static ht_dtype dtype_or_own(const core_value *v, const ht_array *a) {
    return v->absent ? core_ht.ht_array_dtype(a) : v->dtype;
}

BODY(full_like) {
    ht_array *a = v[0].array;
    const ht_dtype dtype = dtype_or_own(&v[2], a);
    PyObject *number = number_of(v[1].given, true);
    if (number) {
        PyObject *result = fill(s, number, dtype, a, NULL, 0);
        Py_DECREF(number);
        return result;
    }
    PyObject *given = PyErr_Occurred() ? NULL : values_of(v[1].given, &(core_value){.dtype = dtype});
    if (!given) return core_give_up(s);
    ht_array *filled = ht.ht_broadcast_like(s, ((core_array *)given)->a, a);
    PyObject *result = core_finish(s, ht.ht_astype(s, filled, dtype));
    Py_DECREF(given);
    return result;
}

BODY(zeros_like) { return core_finish(s, ht.ht_full_like(s, v[0].array, 0, dtype_or_own(&v[1], v[0].array))); }
BODY(ones_like) { return core_finish(s, ht.ht_full_like(s, v[0].array, 1, dtype_or_own(&v[1], v[0].array))); }

/* ---- sequences ---- */

static ht_dtype dtype_of_range(PyObject *start, PyObject *stop, PyObject *step) {
    PyObject *bounds[] = {start, stop, step};
    for (int i = 0; i < 3; i++)
        if (!core_holds(HT_I32, bounds[i])) return HT_I64;
    return HT_I32;
}

/* n integers, exactly: modulo 2^64, in which what overflows on the way comes back. */
static ht_array *integers(ht_scope *s, PyObject *start, PyObject *step, Py_ssize_t n, ht_dtype dtype) {
    ht_array *places = ht.ht_arange(s, 0, (double)n, 1, HT_U64);
    ht_array *x = ht.ht_multiply(s, places, low_bits(s, step, HT_U64));
    x = ht.ht_add(s, x, low_bits(s, start, HT_U64));
    return dtype == HT_U64 ? x : ht.ht_astype(s, ht.ht_view_as(s, x, HT_I64), dtype);
}

/* False after an exception: the first or the last of the integers is none of the dtype. *n is their number. */
static bool check_range(PyObject *start, PyObject *stop, PyObject *step, ht_dtype dtype, Py_ssize_t *n) {
    PyObject *range = PyObject_CallFunctionObjArgs((PyObject *)&PyRange_Type, start, stop, step, NULL);
    *n = range ? PyObject_Size(range) : -1;
    PyObject *last = *n > 0 ? PySequence_GetItem(range, *n - 1) : NULL;
    const bool good = *n == 0 || (last && core_check_holds(dtype, start) && core_check_holds(dtype, last));
    Py_XDECREF(last);
    Py_XDECREF(range);
    return good;
}

static PyObject *arange_of(ht_scope *s, PyObject *start, PyObject *stop, PyObject *step, ht_dtype dtype) {
    const double from = start ? core_double(start) : 0, to = PyErr_Occurred() ? 0 : core_double(stop);
    const double by = PyErr_Occurred() ? 0 : core_double(step);
    return PyErr_Occurred() ? core_give_up(s) : core_finish(s, ht.ht_arange(s, from, to, by, dtype));
}

static PyObject *arange_of_integers(ht_scope *s, PyObject *start, PyObject *stop, PyObject *step,
                                    const core_value *named) {
    const ht_dtype dtype = named->absent ? dtype_of_range(start, stop, step) : named->dtype;
    Py_ssize_t n;
    if (!core_is_of_integers(dtype) || !PyObject_IsTrue(step)) return arange_of(s, start, stop, step, dtype);
    if (!check_range(start, stop, step, dtype, &n)) return core_give_up(s);
    if (is_wide(dtype, start) || is_wide(dtype, stop) || is_wide(dtype, step))
        return core_finish(s, integers(s, start, step, n, dtype));
    return arange_of(s, start, stop, step, dtype);
}

/* One number is where it stops, by either name. */
BODY(arange) {
    const bool both = !v[0].absent && !v[1].absent;
    if (v[0].absent && v[1].absent) {
        PyErr_Format(PyExc_TypeError, "arange() missing required argument: 'stop'");
        return core_give_up(s);
    }
    PyObject *start = both ? v[0].given : NULL, *stop = v[1].absent ? v[0].given : v[1].given, *step = v[2].given;
    PyObject *from = start ? core_integer(start) : PyLong_FromLong(0), *to = from ? core_integer(stop) : NULL;
    PyObject *by = to ? core_integer(step) : NULL;
    PyObject *result = PyErr_Occurred() ? core_give_up(s)
                       : by             ? arange_of_integers(s, from, to, by, &v[3])
                                        : arange_of(s, start, stop, step, v[3].absent ? HT_F32 : v[3].dtype);
    Py_XDECREF(from);
    Py_XDECREF(to);
    Py_XDECREF(by);
    return result;
}

BODY(linspace) {
    const int64_t n = v[2].whole, begin = 0;
    const bool with_end = v[3].truth;
    ht_array *line =
        ht.ht_linspace(s, v[0].number, v[1].number, with_end || n == INT64_MAX ? n : n + 1, dtype_or_f32(&v[4]));
    return core_finish(s, with_end ? line : ht.ht_slice(s, line, &begin, &n, NULL));
}

static int64_t columns_or(const core_value *v, int64_t n) { return v->absent ? n : v->whole; }

BODY(eye) {
    return core_finish(s, ht.ht_eye(s, v[0].whole, columns_or(&v[1], v[0].whole), v[2].whole, dtype_or_f32(&v[3])));
}

BODY(identity) { return core_finish(s, ht.ht_eye(s, v[0].whole, v[0].whole, 0, dtype_or_f32(&v[1]))); }

BODY(tri) {
    return core_finish(s, ht.ht_tri(s, v[0].whole, columns_or(&v[1], v[0].whole), v[2].whole, dtype_or_f32(&v[3])));
}

BODY(tril) { return core_finish(s, ht.ht_tril(s, v[0].array, v[1].whole)); }
BODY(triu) { return core_finish(s, ht.ht_triu(s, v[0].array, v[1].whole)); }

#define DTYPE_F32  DTYPE("dtype", .value = "float32", .or_absent = true)
#define DTYPE_NONE DTYPE("dtype", .value = "None")
#define K_0        WHOLE("k", .value = "0")
static const core_spec specs[] = {
    FUNCTION(full, "One value, or an array that broadcasts, everywhere.", SIZES("shape"), OBJECT("vals"), DTYPE_NONE),
    FUNCTION(zeros, NULL, SIZES("shape"), DTYPE_F32),
    FUNCTION(ones, NULL, SIZES("shape"), DTYPE_F32),
    FUNCTION(full_like, NULL, ARRAY("a"), OBJECT("vals"), DTYPE_NONE),
    FUNCTION(zeros_like, NULL, ARRAY("a"), DTYPE_NONE),
    FUNCTION(ones_like, NULL, ARRAY("a"), DTYPE_NONE),
    FUNCTION(arange, NULL, OBJECT("start", .value = "None"), OBJECT("stop", .value = "None"),
             OBJECT("step", .value = "1"), DTYPE_NONE),
    FUNCTION(linspace, NULL, NUMBER("start"), NUMBER("stop"), WHOLE("num", .value = "50"),
             TRUTH("endpoint", .value = "True"), DTYPE_F32),
    FUNCTION(eye, NULL, WHOLE("n"), WHOLE("m", .value = "None"), K_0, DTYPE_F32),
    FUNCTION(identity, NULL, WHOLE("n"), DTYPE_F32),
    FUNCTION(tri, NULL, WHOLE("n"), WHOLE("m", .value = "None"), K_0, DTYPE_F32),
    FUNCTION(tril, NULL, ARRAY("x"), K_0),
    FUNCTION(triu, NULL, ARRAY("x"), K_0),
    END_OF_TABLE,
};
const core_family core_make_family = {"hearth", NULL, symbols, specs};
