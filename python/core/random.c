/* Random number functions (hearth/random.h). Functions without a key take one from the list that is
 * `hearth.random.state`. */
#include "function.h"

#define LIBRARY(X)                                                                                                     \
    X(ht_add)                                                                                                          \
    X(ht_arange)                                                                                                       \
    X(ht_expand_dims)                                                                                                  \
    X(ht_random_bernoulli)                                                                                             \
    X(ht_random_bits)                                                                                                  \
    X(ht_random_categorical)                                                                                           \
    X(ht_random_gumbel)                                                                                                \
    X(ht_random_key)                                                                                                   \
    X(ht_random_laplace)                                                                                               \
    X(ht_random_normal)                                                                                                \
    X(ht_random_permutation)                                                                                           \
    X(ht_random_randint)                                                                                               \
    X(ht_random_split)                                                                                                 \
    X(ht_random_truncated_normal)                                                                                      \
    X(ht_random_uniform)                                                                                               \
    X(ht_slice)                                                                                                        \
    X(ht_squeeze)
CORE_SYMBOLS(LIBRARY)

enum { MOST_AXES = 8 };

/* ---- keys ---- */

BODY(key) {
    PyObject *seed = PyNumber_Index(v[0].given);
    if (!seed) return core_give_up(s);
    const uint64_t bits = PyLong_AsUnsignedLongLong(seed);
    if (PyErr_Occurred()) PyErr_Format(PyExc_ValueError, "a seed is an integer of 64 bits without sign, not %S", seed);
    Py_DECREF(seed);
    return PyErr_Occurred() ? core_give_up(s) : core_finish(s, ht.ht_random_key(s, bits));
}

BODY(split) { return core_finish(s, ht.ht_random_split(s, v[0].array, v[1].whole)); }

static ht_array *row(ht_scope *s, ht_array *keys, int64_t i) {
    const int64_t start[2] = {i, 0}, stop[2] = {i + 1, 2};
    return ht.ht_squeeze(s, ht.ht_slice(s, keys, start, stop, NULL), 0);
}

/* The key that was given, or a fresh one: that of the state makes two, of which one becomes the state. NULL after a failure. */
static ht_array *key_or_next(ht_scope *s, const core_value *given) {
    if (!given->absent) return given->array;
    PyObject *state = core_hook.state, *before = PyList_Size(state) > 0 ? PyList_GetItem(state, 0) : NULL;
    if (!before || !core_is_array(before) || !((core_array *)before)->a) {
        if (!PyErr_Occurred()) PyErr_Format(PyExc_ValueError, "random.state is not a list of a key");
        return NULL;
    }
    ht_array *two = ht.ht_random_split(s, ((core_array *)before)->a, 2);
    ht_array *next = row(s, two, 0), *fresh = row(s, two, 1);
    if (!next || !fresh) return NULL;
    PyObject *after = core_array_new(core_ht.ht_array_retain(next));
    return after && PyList_SetItem(state, 0, after) == 0 ? fresh : NULL;
}

/* ---- shapes ---- */

typedef struct shape {
    int64_t sizes[MOST_AXES];
    int n;
} shape;

static shape shape_of(const ht_array *a) {
    shape of = {.n = core_ht.ht_array_n_dims(a)};
    core_shape(a, of.sizes);
    return of;
}

/* ---- numbers between bounds ---- */

typedef __typeof__(ht_random_uniform) drawn;

/* A new reference to what a bound is, None for what the library assumes anyway. NULL after an exception. */
static PyObject *bound(PyObject *value, double standard) {
    if (value == Py_None) return Py_NewRef(value);
    if (PyFloat_CheckExact(value) || PyLong_CheckExact(value)) {
        const double number = core_double(value);
        if (number == standard) return Py_NewRef(Py_None);
        PyErr_Clear();
    }
    return core_operand(value, NULL);
}

static ht_array *array_or_none(PyObject *bound) { return bound == Py_None ? core_none : ((core_array *)bound)->a; }

static PyObject *draw(ht_scope *s, drawn *function, const core_value *v, double low, double high,
                      const core_value *dtype, const core_value *sizes, const core_value *key) {
    PyObject *from = bound(v[0].given, low), *to = from ? bound(v[1].given, high) : NULL;
    ht_array *fresh = to ? key_or_next(s, key) : NULL, *y = NULL;
    if (fresh)
        y = function(s, array_or_none(from), array_or_none(to), dtype->absent ? HT_F32 : dtype->dtype, sizes->sizes,
                     sizes->n, fresh);
    PyObject *result = core_finish(s, y);
    Py_XDECREF(from);
    Py_XDECREF(to);
    return result;
}

BODY(uniform) { return draw(s, ht.ht_random_uniform, v, 0, 1, &v[3], &v[2], &v[4]); }
BODY(normal) { return draw(s, ht.ht_random_normal, v + 2, 0, 1, &v[1], &v[0], &v[4]); }
BODY(laplace) { return draw(s, ht.ht_random_laplace, v + 2, 0, 1, &v[1], &v[0], &v[4]); }

/* False after an exception: some of the integers of [low, high) are no elements of the dtype. What is no two integers is left to
 * the library, and so are ranges without any. */
static bool check_range(PyObject *low, PyObject *high, ht_dtype dtype) {
    PyObject *from = core_is_array(low) ? NULL : core_integer(low), *last = NULL;
    PyObject *to = from && !core_is_array(high) ? core_integer(high) : NULL, *one = to ? PyLong_FromLong(1) : NULL;
    if (one && PyObject_RichCompareBool(from, to, Py_LT) > 0) last = PyNumber_Subtract(to, one);
    const bool good = !last || (core_check_holds(dtype, from) && core_check_holds(dtype, last));
    Py_XDECREF(from);
    Py_XDECREF(to);
    Py_XDECREF(one);
    Py_XDECREF(last);
    return good && !PyErr_Occurred();
}

/* A new reference to the array of a bound, which is of uint64 where int64 does not hold it. */
static PyObject *bound_of_integers(PyObject *value) {
    if (!PyLong_CheckExact(value) || core_holds(HT_I64, value)) return core_operand(value, NULL);
    return PyObject_CallFunctionObjArgs(core_hook.made_of, value, PyList_GetItem(core_hook.dtypes, HT_U64), NULL);
}

BODY(randint) {
    const ht_dtype dtype = v[3].absent ? HT_I32 : v[3].dtype;
    PyObject *low = check_range(v[0].given, v[1].given, dtype) ? bound_of_integers(v[0].given) : NULL;
    PyObject *high = low ? bound_of_integers(v[1].given) : NULL;
    ht_array *key = high ? key_or_next(s, &v[4]) : NULL, *y = NULL;
    if (key)
        y = ht.ht_random_randint(s, ((core_array *)low)->a, ((core_array *)high)->a, dtype, v[2].sizes, v[2].n, key);
    PyObject *result = core_finish(s, y);
    Py_XDECREF(low);
    Py_XDECREF(high);
    return result;
}

BODY(truncated_normal) {
    shape of = {.n = 0};
    if (v[2].absent) {
        ht_array *both = core_sizes_may_be_read("random.truncated_normal without a shape")
                             ? ht.ht_add(s, v[0].array, v[1].array)
                             : NULL;
        if (!both) return core_give_up(s);
        of = shape_of(both);
    }
    ht_array *key = key_or_next(s, &v[4]);
    if (!key) return core_give_up(s);
    const int64_t *sizes = v[2].absent ? of.sizes : v[2].sizes;
    const ht_dtype dtype = v[3].absent ? HT_F32 : v[3].dtype;
    return core_finish(
        s, ht.ht_random_truncated_normal(s, v[0].array, v[1].array, dtype, sizes, v[2].absent ? of.n : v[2].n, key));
}

/* ---- others ---- */

BODY(bits) {
    ht_array *key = key_or_next(s, &v[2]);
    return core_finish(s, key ? ht.ht_random_bits(s, v[1].axis, v[0].sizes, v[0].n, key) : NULL);
}

BODY(gumbel) {
    ht_array *key = key_or_next(s, &v[2]);
    const ht_dtype dtype = v[1].absent ? HT_F32 : v[1].dtype;
    return core_finish(s, key ? ht.ht_random_gumbel(s, dtype, v[0].sizes, v[0].n, key) : NULL);
}

BODY(bernoulli) {
    if (v[1].absent && !core_sizes_may_be_read("random.bernoulli without a shape")) return core_give_up(s);
    const shape of = shape_of(v[0].array);
    ht_array *key = key_or_next(s, &v[2]);
    if (!key) return core_give_up(s);
    return core_finish(s, ht.ht_random_bernoulli(s, v[0].array, v[1].absent ? of.sizes : v[1].sizes,
                                                 v[1].absent ? of.n : v[1].n, key));
}

/* The logits' shape without an axis, and the number of draws for each row behind it. */
static bool rows_of(const core_value *v, int axis, shape *rows) {
    for (int i = axis; i + 1 < rows->n; i++) rows->sizes[i] = rows->sizes[i + 1];
    rows->n--;
    if (v[3].absent) return true;
    rows->sizes[rows->n++] = v[3].whole;
    return true;
}

BODY(categorical) {
    if (!v[2].absent && !v[3].absent) {
        PyErr_Format(PyExc_ValueError, "categorical: one of shape and num_samples says how many are drawn, not both");
        return core_give_up(s);
    }
    int axis;
    if (v[2].absent && !core_sizes_may_be_read("random.categorical without a shape")) return core_give_up(s);
    ht_array *logits = v[0].array;
    shape of = shape_of(logits);
    if (!core_axis("categorical", v[1].axis, of.n, &axis) || !rows_of(v, axis, &of)) return core_give_up(s);
    if (!v[3].absent) logits = ht.ht_expand_dims(s, logits, -1);
    ht_array *key = key_or_next(s, &v[4]);
    if (!key) return core_give_up(s);
    return core_finish(s, ht.ht_random_categorical(s, logits, axis, v[2].absent ? of.sizes : v[2].sizes,
                                                   v[2].absent ? of.n : v[2].n, key));
}

BODY(permutation) {
    PyObject *x = v[0].given;
    if (PyLong_Check(x)) {
        const double n = core_double(x);
        ht_array *numbers = PyErr_Occurred() ? NULL : ht.ht_arange(s, 0, n, 1, HT_U32);
        ht_array *key = numbers ? key_or_next(s, &v[2]) : NULL;
        return core_finish(s, key ? ht.ht_random_permutation(s, numbers, v[1].axis, key) : NULL);
    }
    PyObject *made = core_operand(x, NULL);
    ht_array *key = made ? key_or_next(s, &v[2]) : NULL;
    PyObject *result =
        core_finish(s, key ? ht.ht_random_permutation(s, ((core_array *)made)->a, v[1].axis, key) : NULL);
    Py_XDECREF(made);
    return result;
}

#define KEY        ARRAY("key", .value = "None")
#define SHAPE      SIZES("shape", .value = "()")
#define SHAPE_NONE SIZES("shape", .value = "None")
#define DTYPE_F32  DTYPE("dtype", .value = "float32", .or_absent = true)
static const core_spec specs[] = {
    {"key", NULL, of_key, {OBJECT("seed")}, CORE_REST},
    FUNCTION(split, "So many keys from one, which must not be used any more.", ARRAY("key"),
             WHOLE("num", .value = "2")),
    FUNCTION(bits, NULL, SHAPE, AXIS("width", .value = "4"), KEY),
    FUNCTION(uniform, NULL, OBJECT("low", .value = "0"), OBJECT("high", .value = "1"), SHAPE, DTYPE_F32, KEY),
    FUNCTION(normal, NULL, SHAPE, DTYPE_F32, OBJECT("loc", .value = "None"), OBJECT("scale", .value = "None"), KEY),
    FUNCTION(truncated_normal, NULL, ARRAY("lower"), ARRAY("upper"), SHAPE_NONE, DTYPE_F32, KEY),
    FUNCTION(laplace, NULL, SHAPE, DTYPE_F32, OBJECT("loc", .value = "0.0"), OBJECT("scale", .value = "1.0"), KEY),
    FUNCTION(gumbel, NULL, SHAPE, DTYPE_F32, KEY),
    FUNCTION(randint, "Every integer of [low, high) is as likely as any other.", OBJECT("low"), OBJECT("high"), SHAPE,
             DTYPE("dtype", .value = "int32", .or_absent = true), KEY),
    FUNCTION(bernoulli, NULL, ARRAY("p", .value = "0.5"), SHAPE_NONE, KEY),
    FUNCTION(categorical,
             "Places along an axis, by their logits: one for each row, `num_samples` of them, or "
             "in a shape to which they stretch.",
             ARRAY("logits"), AXIS("axis", .value = "-1"), SHAPE_NONE, WHOLE("num_samples", .value = "None"), KEY),
    FUNCTION(permutation, "The numbers below x, or the slices of an array, in a random order.", OBJECT("x"),
             AXIS("axis", .value = "0"), KEY),
    END_OF_TABLE,
};
const core_family core_random_family = {"hearth.random", NULL, symbols, specs};
