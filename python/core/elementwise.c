/* Elementwise functions, and the operators of arrays. */
#include "function.h"

#define OF_ONE(X)                                                                                                      \
    X(negative, "-a")                                                                                                  \
    X(abs, "|a|")                                                                                                      \
    X(sign, "-1, 0 or 1.")                                                                                             \
    X(square, "a * a")                                                                                                 \
    X(floor, "Rounded down.")                                                                                          \
    X(ceil, "Rounded up.")                                                                                             \
    X(bitwise_invert, "~a")                                                                                            \
    X(sqrt, "The square root.")                                                                                        \
    X(rsqrt, "1 / sqrt(a)")                                                                                            \
    X(reciprocal, "1 / a")                                                                                             \
    X(exp, "e ** a")                                                                                                   \
    X(expm1, "e ** a - 1, exact near 0.")                                                                              \
    X(log, "The natural logarithm.")                                                                                   \
    X(log2, "The logarithm to base 2.")                                                                                \
    X(log10, "The logarithm to base 10.")                                                                              \
    X(log1p, "log(1 + a), exact near 0.")                                                                              \
    X(sin, "The sine of an angle in radians.")                                                                         \
    X(cos, "The cosine.")                                                                                              \
    X(tan, "The tangent.")                                                                                             \
    X(arcsin, "The angle with that sine.")                                                                             \
    X(arccos, "The angle with that cosine.")                                                                           \
    X(arctan, "The angle with that tangent.")                                                                          \
    X(sinh, "The hyperbolic sine.")                                                                                    \
    X(cosh, "The hyperbolic cosine.")                                                                                  \
    X(tanh, "The hyperbolic tangent.")                                                                                 \
    X(erf, "The error function.")                                                                                      \
    X(erfinv, "What erf turns into a.")                                                                                \
    X(sigmoid, "1 / (1 + e ** -a)")                                                                                    \
    X(isnan, "Whether it is NaN.")                                                                                     \
    X(isinf, "Whether it is infinite.")                                                                                \
    X(isfinite, "Whether it is neither NaN nor infinite.")                                                             \
    X(logical_not, "Whether it is 0.")
#define OF_TWO(X)                                                                                                      \
    X(add, "a + b")                                                                                                    \
    X(subtract, "a - b")                                                                                               \
    X(multiply, "a * b")                                                                                               \
    X(divide, "a / b")                                                                                                 \
    X(floor_divide, "a // b")                                                                                          \
    X(remainder, "a % b, with the sign of b.")                                                                         \
    X(power, "a ** b")                                                                                                 \
    X(logaddexp, "log(e ** a + e ** b)")                                                                               \
    X(arctan2, "The angle of the point (b, a).")                                                                       \
    X(minimum, "The smaller one.")                                                                                     \
    X(maximum, "The larger one.")                                                                                      \
    X(equal, "a == b")                                                                                                 \
    X(not_equal, "a != b")                                                                                             \
    X(less, "a < b")                                                                                                   \
    X(less_equal, "a <= b")                                                                                            \
    X(greater, "a > b")                                                                                                \
    X(greater_equal, "a >= b")                                                                                         \
    X(logical_and, "Whether neither is 0.")                                                                            \
    X(logical_or, "Whether one is not 0.")                                                                             \
    X(bitwise_and, "a & b")                                                                                            \
    X(bitwise_or, "a | b")                                                                                             \
    X(bitwise_xor, "a ^ b")                                                                                            \
    X(left_shift, "a << b")                                                                                            \
    X(right_shift, "a >> b")
#define OTHERS(X)                                                                                                      \
    X(ht_allclose)                                                                                                     \
    X(ht_array_equal)                                                                                                  \
    X(ht_clip)                                                                                                         \
    X(ht_isclose)                                                                                                      \
    X(ht_matmul)                                                                                                       \
    X(ht_nan_to_num)                                                                                                   \
    X(ht_round)                                                                                                        \
    X(ht_where)

#define FIELD(name, text)  CORE_FIELD(ht_##name)
#define SYMBOL(name, text) CORE_SYMBOL(ht_##name)
static struct { OF_ONE(FIELD) OF_TWO(FIELD) OTHERS(CORE_FIELD) } ht;
static const core_symbol symbols[] = {OF_ONE(SYMBOL) OF_TWO(SYMBOL) OTHERS(CORE_SYMBOL){NULL, NULL}};

/* ---- functions ---- */

#define BODY_OF_ONE(name, text)                                                                                        \
    BODY(name) { return core_finish(s, ht.ht_##name(s, v[0].array)); }
OF_ONE(BODY_OF_ONE)
#define BODY_OF_TWO(name, text)                                                                                        \
    BODY(name) { return core_finish(s, ht.ht_##name(s, v[0].array, v[1].array)); }
OF_TWO(BODY_OF_TWO)

static ht_array *product(ht_scope *s, ht_array *a, ht_array *b) { return ht.ht_matmul(s, a, b, false); }
BODY(matmul) { return core_finish(s, product(s, v[0].array, v[1].array)); }

BODY(round) { return core_finish(s, ht.ht_round(s, v[0].array, v[1].axis)); }

BODY(nan_to_num) {
    const double high = v[2].absent ? Py_NAN : v[2].number, low = v[3].absent ? Py_NAN : v[3].number;
    return core_finish(s, ht.ht_nan_to_num(s, v[0].array, v[1].number, high, low));
}

BODY(where) { return core_finish(s, ht.ht_where(s, v[0].array, v[1].array, v[2].array)); }
BODY(clip) { return core_finish(s, ht.ht_clip(s, v[0].array, v[1].array, v[2].array)); }

BODY(isclose) { return core_finish(s, ht.ht_isclose(s, v[0].array, v[1].array, v[2].number, v[3].number, v[4].truth)); }

BODY(allclose) {
    return core_finish(s, ht.ht_allclose(s, v[0].array, v[1].array, v[2].number, v[3].number, v[4].truth));
}

BODY(array_equal) { return core_finish(s, ht.ht_array_equal(s, v[0].array, v[1].array, v[2].truth)); }

#define ROW_OF_ONE(name, text) FUNCTION(name, text, ARRAY("a", .way = CORE_BY_PLACE)),
#define PAIR                   ARRAY("a", .beside = 2), ARRAY("b", .beside = 1)
#define FUNCTION_OF_TWO(name, text)                                                                                    \
    { #name, text, of_##name, {PAIR }, CORE_ANY_WAY }
#define ROW_OF_TWO(name, text) FUNCTION_OF_TWO(name, text),
#define CLOSE                                                                                                          \
    PAIR, NUMBER("rtol", .value = "1e-5"), NUMBER("atol", .value = "1e-8"),                                            \
        TRUTH("equal_nan", .value = "False", .way = CORE_BY_NAME)
static const core_spec specs[] = {
    OF_ONE(ROW_OF_ONE) OF_TWO(ROW_OF_TWO) FUNCTION_OF_TWO(matmul, "a @ b"),
    FUNCTION(round, NULL, ARRAY("a"), AXIS("decimals", .value = "0")),
    FUNCTION(nan_to_num, NULL, ARRAY("a"), NUMBER("nan", .value = "0.0"), NUMBER("posinf", .value = "None"),
             NUMBER("neginf", .value = "None")),
    FUNCTION(where, "x where the condition is not 0, else y.", ARRAY("condition"), ARRAY("x", .beside = 3),
             ARRAY("y", .beside = 2)),
    FUNCTION(clip, NULL, ARRAY("a"), ARRAY("a_min", .beside = 1, .or_absent = true),
             ARRAY("a_max", .beside = 1, .or_absent = true)),
    FUNCTION(isclose, NULL, CLOSE),
    FUNCTION(allclose, NULL, CLOSE),
    FUNCTION(array_equal, NULL, PAIR, TRUTH("equal_nan", .value = "False")),
    END_OF_TABLE,
};
const core_family core_elementwise_family = {"hearth", NULL, symbols, specs};

/* ---- operators ---- */

typedef ht_array *one(ht_scope *s, ht_array *a);
typedef ht_array *two(ht_scope *s, ht_array *a, ht_array *b);

static PyObject *call_one(one *f, PyObject *a) {
    PyObject *x = core_operand(a, NULL);
    ht_scope *s = x ? core_scope_take() : NULL;
    PyObject *y = s ? core_finish(s, f(s, ((core_array *)x)->a)) : NULL;
    Py_XDECREF(x);
    return y;
}

static PyObject *call_two(two *f, PyObject *a, PyObject *b) {
    PyObject *x = NULL, *y = NULL, *z = NULL;
    if (core_is_array(a)) {
        x = core_operand(a, NULL);
        y = x ? core_operand(b, x) : NULL;
    } else {
        y = core_operand(b, NULL);
        x = y ? core_operand(a, y) : NULL;
    }
    ht_scope *s = x && y ? core_scope_take() : NULL;
    if (s) z = core_finish(s, f(s, ((core_array *)x)->a, ((core_array *)y)->a));
    Py_XDECREF(x);
    Py_XDECREF(y);
    return z;
}

#define OPERATOR_OF_ONE(slot, name)                                                                                    \
    PyObject *core_##slot(PyObject *a) { return call_one(ht.ht_##name, a); }
OPERATOR_OF_ONE(negative, negative)
OPERATOR_OF_ONE(absolute, abs)
OPERATOR_OF_ONE(invert, bitwise_invert)
#define OPERATOR_OF_TWO(slot, name)                                                                                    \
    PyObject *core_##slot(PyObject *a, PyObject *b) { return call_two(ht.ht_##name, a, b); }
OPERATOR_OF_TWO(add, add)
OPERATOR_OF_TWO(subtract, subtract)
OPERATOR_OF_TWO(multiply, multiply)
OPERATOR_OF_TWO(divide, divide)
OPERATOR_OF_TWO(floor_divide, floor_divide)
OPERATOR_OF_TWO(remainder, remainder)
OPERATOR_OF_TWO(and, bitwise_and)
OPERATOR_OF_TWO(or, bitwise_or)
OPERATOR_OF_TWO(xor, bitwise_xor)
OPERATOR_OF_TWO(left_shift, left_shift)
OPERATOR_OF_TWO(right_shift, right_shift)

PyObject *core_matmul(PyObject *a, PyObject *b) { return call_two(product, a, b); }

PyObject *core_power(PyObject *a, PyObject *b, PyObject *modulus) {
    if (modulus != Py_None) return PyErr_Format(PyExc_TypeError, "arrays have no power with a modulus");
    return call_two(ht.ht_power, a, b);
}

/* Whether something of Python could be an operand: a list or a text is not, and so equals no array. */
static bool is_like_array(PyObject *o) {
    return !PyUnicode_Check(o) && !PyList_Check(o) && !PyTuple_Check(o) && !PyDict_Check(o);
}

PyObject *core_compare(PyObject *a, PyObject *b, int how) {
    if ((how == Py_EQ || how == Py_NE) && !is_like_array(b)) return PyBool_FromLong(how == Py_NE);
    switch (how) {
    case Py_LT: return call_two(ht.ht_less, a, b);
    case Py_LE: return call_two(ht.ht_less_equal, a, b);
    case Py_EQ: return call_two(ht.ht_equal, a, b);
    case Py_NE: return call_two(ht.ht_not_equal, a, b);
    case Py_GT: return call_two(ht.ht_greater, a, b);
    default: return call_two(ht.ht_greater_equal, a, b);
    }
}

/* ---- in place ---- */

/* The object stands for the result from now on, for everybody who has it. */
static PyObject *in_place(PyObject *self, PyObject *result) {
    PyObject *done = result ? core_become(self, result) : NULL;
    Py_XDECREF(result);
    if (!done) return NULL;
    Py_DECREF(done);
    return Py_NewRef(self);
}

#define IN_PLACE(slot)                                                                                                 \
    PyObject *core_in_place_##slot(PyObject *a, PyObject *b) { return in_place(a, core_##slot(a, b)); }
CORE_IN_PLACE(IN_PLACE)

PyObject *core_in_place_power(PyObject *a, PyObject *b, PyObject *modulus) {
    return in_place(a, core_power(a, b, modulus));
}

PyObject *core_in_place_divide(PyObject *a, PyObject *b) {
    const ht_array *before = ((core_array *)a)->a;
    if (before && core_ht.ht_array_dtype(before) < HT_F16)
        return PyErr_Format(PyExc_ValueError, "/= would make floating-point numbers of an array of integers or bool");
    return in_place(a, core_divide(a, b));
}
