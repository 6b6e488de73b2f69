/* Matrix products, quantised arrays and norms. */
#include "function.h"

#include <math.h>

#define LIBRARY(X)                                                                                                     \
    X(ht_addmm)                                                                                                        \
    X(ht_dequantize_groups)                                                                                            \
    X(ht_einsum)                                                                                                       \
    X(ht_gather_mm)                                                                                                    \
    X(ht_gather_qmm)                                                                                                   \
    X(ht_inner)                                                                                                        \
    X(ht_max)                                                                                                          \
    X(ht_min)                                                                                                          \
    X(ht_norm)                                                                                                         \
    X(ht_outer)                                                                                                        \
    X(ht_quantize)                                                                                                     \
    X(ht_quantized_matmul)                                                                                             \
    X(ht_squeeze)                                                                                                      \
    X(ht_tensordot)
CORE_SYMBOLS(LIBRARY)

/* ---- products ---- */

BODY(addmm) {
    const float alpha = (float)v[3].number, beta = (float)v[4].number;
    return core_finish(s, ht.ht_addmm(s, v[0].array, v[1].array, v[2].array, alpha, beta));
}

BODY(inner) { return core_finish(s, ht.ht_inner(s, v[0].array, v[1].array)); }
BODY(outer) { return core_finish(s, ht.ht_outer(s, v[0].array, v[1].array)); }

enum { MOST_AXES = 8 };

static bool read_axes(PyObject *o, int axes[MOST_AXES], Py_ssize_t *n) {
    PyObject *list = PySequence_Tuple(o);
    if (!list) return false;
    *n = PyTuple_Size(list);
    if (*n > MOST_AXES) PyErr_Format(PyExc_ValueError, "tensordot: %zd axes are named, an array has at most 8", *n);
    for (Py_ssize_t i = 0; i < *n && !PyErr_Occurred(); i++) core_int(PyTuple_GetItem(list, i), &axes[i]);
    Py_DECREF(list);
    return !PyErr_Occurred();
}

/* The last axes of one and the first of the other, or two lists. */
static bool read_pairs(PyObject *o, int left[MOST_AXES], int right[MOST_AXES], Py_ssize_t *n) {
    if (PyLong_Check(o)) {
        *n = PyLong_AsSsize_t(o);
        if (*n == -1 && PyErr_Occurred()) return false;
        if (*n < 0 || *n > MOST_AXES) {
            PyErr_Format(PyExc_ValueError, "tensordot: an array has 0 to 8 axes, not %zd", *n);
            return false;
        }
        for (int i = 0; i < *n; i++) left[i] = i - (int)*n, right[i] = i;
        return true;
    }
    PyObject *both = PySequence_Tuple(o);
    Py_ssize_t n_right = 0;
    bool read = both && PyTuple_Size(both) == 2;
    if (both && !read) PyErr_Format(PyExc_ValueError, "tensordot: axes are a number or two lists");
    read = read && read_axes(PyTuple_GetItem(both, 0), left, n) && read_axes(PyTuple_GetItem(both, 1), right, &n_right);
    Py_XDECREF(both);
    if (read && *n != n_right)
        PyErr_Format(PyExc_ValueError, "tensordot: %zd axes of one array and %zd of the other are named", *n, n_right);
    return read && *n == n_right;
}

BODY(tensordot) {
    int left[MOST_AXES], right[MOST_AXES];
    Py_ssize_t n;
    if (!read_pairs(v[2].given, left, right, &n)) return core_give_up(s);
    return core_finish(s, ht.ht_tensordot(s, v[0].array, v[1].array, left, right, (int)n));
}

BODY(einsum) {
    const char *subscripts = PyUnicode_AsUTF8AndSize(v[0].given, NULL);
    if (!subscripts) return core_give_up(s);
    return core_finish(s, ht.ht_einsum(s, subscripts, v[1].arrays, v[1].n));
}

BODY(gather_mm) { return core_finish(s, ht.ht_gather_mm(s, v[0].array, v[1].array, v[2].array, v[3].array)); }

/* ---- quantised ---- */

/* From v[0 .. 3): group_size, bits and mode. False after an exception. */
static bool read_how(const core_value *v, ht_quantization *how) {
    static const char *const modes[] = {"affine", "mxfp4", "mxfp8", "nvfp4"};
    int mode = 0;
    while (mode < 4 && !core_is_text(v[2].given, modes[mode])) mode++;
    if (mode == 4)
        PyErr_Format(PyExc_ValueError, "quantization mode %R is none of affine, mxfp4, mxfp8, nvfp4", v[2].given);
    *how = (ht_quantization){(ht_quantization_mode)mode, v[0].absent ? 0 : v[0].axis, v[1].absent ? 0 : v[1].axis};
    return mode < 4;
}

BODY(quantize) {
    ht_quantization how;
    ht_array *parts[3];
    if (!read_how(v + 1, &how) || !ht.ht_quantize(s, v[0].array, &how, parts)) return core_give_up(s);
    return core_finish_several(s, parts, how.mode == HT_QUANT_AFFINE ? 3 : 2, false);
}

/* A quantised matrix: three arguments from `v` on. */
#define PARTS(v) ((ht_array *[]){(v)[0].array, (v)[1].array, (v)[2].array})

BODY(dequantize) {
    ht_quantization how;
    if (!read_how(v + 3, &how)) return core_give_up(s);
    const bool of_scales = how.mode == HT_QUANT_AFFINE && !v[1].absent;
    const ht_dtype natural = of_scales ? core_ht.ht_array_dtype(v[1].array) : HT_BF16;
    const ht_dtype dtype = v[6].absent ? natural : v[6].dtype;
    return core_finish(s, ht.ht_dequantize_groups(s, PARTS(v), &how, dtype));
}

BODY(quantized_matmul) {
    ht_quantization how;
    if (!read_how(v + 5, &how)) return core_give_up(s);
    return core_finish(s, ht.ht_quantized_matmul(s, v[0].array, PARTS(v + 1), v[4].truth, &how));
}

BODY(gather_qmm) {
    ht_quantization how;
    if (!read_how(v + 7, &how)) return core_give_up(s);
    return core_finish(s, ht.ht_gather_qmm(s, v[0].array, PARTS(v + 1), v[4].array, v[5].array, v[6].truth, &how));
}

#define OR_NONE(name) ARRAY(name, .value = "None")
#define HOW           AXIS("group_size", .value = "None"), AXIS("bits", .value = "None"), OBJECT("mode", .value = "'affine'")
#define CHOSEN        OR_NONE("lhs_indices"), OR_NONE("rhs_indices")
#define SORTED        TRUTH("sorted_indices", .value = "False", .way = CORE_BY_NAME)
static const core_spec specs[] = {
    FUNCTION(addmm, "alpha * (a @ b) + beta * c", ARRAY("c", .beside = 2), ARRAY("a"), ARRAY("b"),
             NUMBER("alpha", .value = "1.0"), NUMBER("beta", .value = "1.0")),
    FUNCTION(inner, NULL, ARRAY("a"), ARRAY("b")),
    FUNCTION(outer, NULL, ARRAY("a"), ARRAY("b")),
    FUNCTION(tensordot, "Over the last `axes` axes of a and the first of b, or over two lists of axes.", ARRAY("a"),
             ARRAY("b"), OBJECT("axes", .value = "2")),
    FUNCTION(einsum, NULL, OBJECT("subscripts"), ARRAYS("operands", .way = CORE_REST)),
    FUNCTION(quantize, "The numbers in 32-bit words, the scales and, with \"affine\", the biases.", ARRAY("w"), HOW),
    FUNCTION(dequantize, NULL, ARRAY("w"), ARRAY("scales"), OR_NONE("biases"), HOW, DTYPE("dtype", .value = "None")),
    FUNCTION(quantized_matmul, "x @ w.T, or x @ w without `transpose`, of the quantised w.", ARRAY("x"), ARRAY("w"),
             ARRAY("scales"), OR_NONE("biases"), TRUTH("transpose", .value = "True"), HOW),
    FUNCTION(gather_qmm,
             "quantized_matmul of the matrices that the indices choose. Entries of one right "
             "matrix meet it together, sorted or not.",
             ARRAY("x"), ARRAY("w"), ARRAY("scales"), OR_NONE("biases"), CHOSEN, TRUTH("transpose", .value = "True"),
             HOW, SORTED),
    FUNCTION(gather_mm, "matmul of the matrices that the indices choose.", ARRAY("a"), ARRAY("b"), CHOSEN, SORTED),
    END_OF_TABLE,
};
const core_family core_linalg_family = {"hearth", NULL, symbols, specs};

/* ---- norms ---- */

static PyObject *of_a_matrix(ht_scope *s, const core_value *v, int axes[2]) {
    double order = 0;
    bool known = PyFloat_Check(v[1].given) || PyLong_Check(v[1].given);
    if (known) order = PyFloat_AsDouble(v[1].given);
    known = known && (fabs(order) == 1 || isinf(order));
    if (core_is_text(v[1].given, "fro") || core_is_text(v[1].given, "f"))
        return core_finish(s, ht.ht_norm(s, v[0].array, 2, axes, 2, v[3].truth));
    if (!known) {
        PyErr_Clear();
        PyErr_Format(PyExc_ValueError,
                     "norm: a matrix has no norm of order %R here; 'fro', 1, -1, inf and -inf are there", v[1].given);
        return core_give_up(s);
    }
    const int rows = fabs(order) == 1 ? 0 : 1;
    ht_array *sums = ht.ht_norm(s, v[0].array, 1, &axes[rows], 1, true);
    ht_array *y = (order > 0 ? ht.ht_max : ht.ht_min)(s, sums, &axes[1 - rows], 1, true);
    if (v[3].truth) return core_finish(s, y);
    const int last = axes[0] > axes[1] ? 0 : 1;
    return core_finish(s, ht.ht_squeeze(s, ht.ht_squeeze(s, y, axes[last]), axes[1 - last]));
}

BODY(norm) {
    ht_array *a = v[0].array;
    const int n_dims = core_ht.ht_array_n_dims(a), n = v[2].absent ? n_dims : v[2].n;
    if (v[1].absent) return core_finish(s, ht.ht_norm(s, a, 2, v[2].absent ? NULL : v[2].axes, v[2].n, v[3].truth));
    int axes[MOST_AXES];
    for (int i = 0; i < n && n <= n_dims; i++)
        if (!core_axis("norm", v[2].absent ? i : v[2].axes[i], n_dims, &axes[i])) return core_give_up(s);
    if (n == 1 && n_dims > 0 && !PyUnicode_Check(v[1].given)) {
        const double order = PyFloat_AsDouble(v[1].given);
        if (order == -1 && PyErr_Occurred()) return core_give_up(s);
        return core_finish(s, ht.ht_norm(s, a, order, axes, 1, v[3].truth));
    }
    if (n == 2 && n_dims > 1) return of_a_matrix(s, v, axes);
    PyErr_Format(PyExc_ValueError, "norm: of order %R over %d axes; one is a vector, two are a matrix", v[1].given, n);
    return core_give_up(s);
}

static const core_symbol none[] = {{NULL, NULL}};
static const core_spec norms[] = {
    FUNCTION(norm,
             "Of all elements, or with `ord` or `axis` of vectors (one axis) or matrices "
             "(two): \"fro\", or 1, -1, inf and -inf, the\n"
             "    largest or smallest sum of columns or rows.",
             ARRAY("a"), OBJECT("ord", .value = "None"), AXES("axis", .value = "None"),
             TRUTH("keepdims", .value = "False")),
    END_OF_TABLE,
};
const core_family core_norm_family = {"hearth.linalg", NULL, none, norms};
