/* Fused transformer operations (hearth/fast.h). */
#include "function.h"

#define LIBRARY(X)                                                                                                     \
    X(ht_astype)                                                                                                       \
    X(ht_layer_norm)                                                                                                   \
    X(ht_rms_norm)                                                                                                     \
    X(ht_rope_rows)                                                                                                    \
    X(ht_scaled_dot_product_attention)
CORE_SYMBOLS(LIBRARY)

BODY(rms_norm) { return core_finish(s, ht.ht_rms_norm(s, v[0].array, v[1].array, (float)v[2].number, 0)); }

BODY(layer_norm) { return core_finish(s, ht.ht_layer_norm(s, v[0].array, v[1].array, v[2].array, (float)v[3].number)); }

BODY(rope) {
    if (v[3].absent == v[6].absent) {
        PyErr_Format(PyExc_ValueError, "rope: one of base and freqs has to be None");
        return core_give_up(s);
    }
    const ht_rope_config how = {v[3].absent ? 1 : (float)v[3].number, (float)v[4].number, 1, v[1].axis, v[2].truth};
    ht_array *factors = v[6].absent ? core_none : ht.ht_astype(s, v[6].array, HT_F32);
    return core_finish(s, ht.ht_rope_rows(s, v[0].array, v[5].array, factors, &how));
}

BODY(scaled_dot_product_attention) {
    PyObject *mask = v[4].given, *added = NULL;
    const bool causal = core_is_text(mask, "causal");
    if (PyUnicode_Check(mask) && !causal) {
        PyErr_Format(PyExc_ValueError, "scaled_dot_product_attention: mask %R, expected 'causal', an array or None",
                     mask);
        return core_give_up(s);
    }
    if (!causal && !v[4].absent && !(added = core_operand(mask, NULL))) return core_give_up(s);
    const ht_attention_config how = {(float)v[3].number, causal, v[6].whole};
    ht_array *hidden = added ? ((core_array *)added)->a : core_none;
    PyObject *result = core_finish(
        s, ht.ht_scaled_dot_product_attention(s, v[0].array, v[1].array, v[2].array, hidden, v[5].array, &how));
    Py_XDECREF(added);
    return result;
}

#define NAMED   .way = CORE_BY_NAME
#define OR_NONE .or_absent = true
static const core_spec specs[] = {
    FUNCTION(layer_norm, NULL, ARRAY("x"), ARRAY("weight", OR_NONE), ARRAY("bias", OR_NONE), NUMBER("eps")),
    FUNCTION(rms_norm, NULL, ARRAY("x"), ARRAY("weight", OR_NONE), NUMBER("eps")),
    FUNCTION(rope,
             "Of rows [..., T, D] from position `offset` on; `freqs` are divisors of the positions, one for each pair.",
             ARRAY("a"), AXIS("dims"), TRUTH("traditional", NAMED), NUMBER("base", NAMED, OR_NONE),
             NUMBER("scale", NAMED), INDEX("offset", NAMED), ARRAY("freqs", NAMED, .value = "None")),
    FUNCTION(scaled_dot_product_attention,
             "softmax(scale * q k^T + mask) v; `mask` is \"causal\", or of bool, or added to the scores. With "
             "\"causal\", `window`\n"
             "    limits each query to so many keys. It is always fused (`force_fused`).",
             ARRAY("q"), ARRAY("k"), ARRAY("v"), NUMBER("scale", NAMED), OBJECT("mask", NAMED, .value = "None"),
             ARRAY("sinks", NAMED, .value = "None"), WHOLE("window", NAMED, .value = "0"),
             TRUTH("force_fused", NAMED, .value = "False")),
    END_OF_TABLE,
};
const core_family core_fast_family = {"hearth.fast", NULL, symbols, specs};
