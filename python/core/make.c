/* Functions that make arrays from nothing but sizes, or of the size of another. */
#include "function.h"

#define LIBRARY(X)                                                                                                     \
    X(ht_arange)                                                                                                       \
    X(ht_astype)                                                                                                       \
    X(ht_broadcast_like)                                                                                               \
    X(ht_broadcast_to)                                                                                                 \
    X(ht_eye)                                                                                                          \
    X(ht_full)                                                                                                         \
    X(ht_full_like)                                                                                                    \
    X(ht_linspace)                                                                                                     \
    X(ht_slice)                                                                                                        \
    X(ht_tri)                                                                                                          \
    X(ht_tril)                                                                                                         \
    X(ht_triu)
CORE_SYMBOLS(LIBRARY)

static ht_dtype dtype_or_f32(const core_value *v) { return v->absent ? HT_F32 : v->dtype; }

/* One value for all elements: an array or a list stands for itself, stretched, any other becomes a number. */
static bool is_number(PyObject *value) {
    return !core_is_array(value) && !PyList_Check(value) && !PyTuple_Check(value);
}

static ht_dtype natural(PyObject *number) {
    return PyBool_Check(number) ? HT_BOOL : PyLong_Check(number) ? HT_I32 : HT_F32;
}

BODY(full) {
    const core_value shape = v[0];
    PyObject *value = v[1].given;
    if (is_number(value)) {
        const double number = core_double(value);
        if (number == -1 && PyErr_Occurred()) return core_give_up(s);
        const ht_dtype dtype = v[2].absent ? natural(value) : v[2].dtype;
        return core_finish(s, ht.ht_full(s, number, dtype, shape.sizes, shape.n));
    }
    PyObject *given = core_operand(value, NULL);
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
    if (is_number(v[1].given)) {
        const double number = core_double(v[1].given);
        if (number == -1 && PyErr_Occurred()) return core_give_up(s);
        return core_finish(s, ht.ht_full_like(s, a, number, dtype));
    }
    PyObject *given = core_operand(v[1].given, NULL);
    if (!given) return core_give_up(s);
    ht_array *filled = ht.ht_broadcast_like(s, ((core_array *)given)->a, a);
    PyObject *result = core_finish(s, ht.ht_astype(s, filled, dtype));
    Py_DECREF(given);
    return result;
}

BODY(zeros_like) { return core_finish(s, ht.ht_full_like(s, v[0].array, 0, dtype_or_own(&v[1], v[0].array))); }
BODY(ones_like) { return core_finish(s, ht.ht_full_like(s, v[0].array, 1, dtype_or_own(&v[1], v[0].array))); }

/* One number is where it stops, by either name. */
BODY(arange) {
    const bool both = !v[0].absent && !v[1].absent;
    if (v[0].absent && v[1].absent) {
        PyErr_Format(PyExc_TypeError, "arange() missing required argument: 'stop'");
        return core_give_up(s);
    }
    PyObject *start = both ? v[0].given : NULL, *stop = v[1].absent ? v[0].given : v[1].given;
    const double from = start ? core_double(start) : 0, to = PyErr_Occurred() ? 0 : core_double(stop);
    const double by = PyErr_Occurred() ? 0 : core_double(v[2].given);
    if (PyErr_Occurred()) return core_give_up(s);
    const bool whole = (!start || PyLong_Check(start)) && PyLong_Check(stop) && PyLong_Check(v[2].given);
    const ht_dtype dtype = !v[3].absent ? v[3].dtype : whole ? HT_I32 : HT_F32;
    return core_finish(s, ht.ht_arange(s, from, to, by, dtype));
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
