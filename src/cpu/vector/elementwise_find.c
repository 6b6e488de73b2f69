/* Elementwise function lookup, and functions that only move elements. */
#include "base/dtype.h"
#include "cpu/vector/elementwise.h"

static void copy1(const void *const *in, void *out, int64_t n, const void *params) {
    (void)params;
    memmove(out, in[0], (size_t)n);
}
static void copy2(const void *const *in, void *out, int64_t n, const void *params) { copy1(in, out, 2 * n, params); }
static void copy4(const void *const *in, void *out, int64_t n, const void *params) { copy1(in, out, 4 * n, params); }
static void copy8(const void *const *in, void *out, int64_t n, const void *params) { copy1(in, out, 8 * n, params); }

#define WHERE(type, name)                                                                                              \
    static void name(const void *const *in, void *out, int64_t n, const void *params) {                                \
        (void)params;                                                                                                  \
        const uint8_t *c = in[0];                                                                                      \
        const type *a = in[1], *b = in[2];                                                                             \
        type *y = out;                                                                                                 \
        HT_VECTORISE                                                                                                   \
        for (int64_t i = 0; i < n; i++) y[i] = c[i] ? a[i] : b[i];                                                     \
    }
WHERE(uint8_t, where1)
WHERE(uint16_t, where2)
WHERE(uint32_t, where4)
WHERE(uint64_t, where8)

void HT_ISA_NAME(ht_elementwise_through_f32)(ht_dtype from, ht_dtype to, ht_elementwise_fn *fn, int n_in,
                                             const void *const *in, void *out, int64_t n, const void *params) {
    _Alignas(64) float operand[2][ELEMENTWISE_WIDENED], result[ELEMENTWISE_WIDENED];
    for (int64_t i = 0; i < n; i += ELEMENTWISE_WIDENED) {
        int64_t some = n - i < ELEMENTWISE_WIDENED ? n - i : ELEMENTWISE_WIDENED;
        for (int k = 0; k < n_in; k++) elementwise_widen(from, (const uint16_t *)in[k] + i, operand[k], some);
        const void *const wide[2] = {operand[0], operand[1]};
        if (to == HT_BOOL) {
            fn(wide, (uint8_t *)out + i, some, params);
            continue;
        }
        fn(wide, result, some, params);
        elementwise_narrow(to, result, (uint16_t *)out + i, some);
    }
}

static ht_elementwise_fn *by_bytes(ht_dtype t, ht_elementwise_fn *f1, ht_elementwise_fn *f2, ht_elementwise_fn *f4,
                                   ht_elementwise_fn *f8) {
    switch (ht_dtype_bytes(t)) {
    case 1: return f1;
    case 2: return f2;
    case 4: return f4;
    case 8: return f8;
    default: return NULL;
    }
}

ht_elementwise_fn *HT_ISA_NAME(ht_find_elementwise)(ht_op_id op, ht_dtype from, ht_dtype to) {
    if (op == HT_OP_COPY || (op == HT_OP_CAST && from == to)) return by_bytes(to, copy1, copy2, copy4, copy8);
    if (op == HT_OP_WHERE) return by_bytes(to, where1, where2, where4, where8);
    if (op == HT_OP_CAST || op == HT_OP_FULL) return HT_ISA_NAME(ht_find_elementwise_cast)(op, from, to);
    if (from == HT_F64) return HT_ISA_NAME(ht_find_elementwise_f64)(op, from, to);
    if (!ht_dtype_is_float(from)) return HT_ISA_NAME(ht_find_elementwise_int)(op, from, to);
    ht_elementwise_fn *fn = HT_ISA_NAME(ht_find_elementwise_lanes)(op, from, to);
    return fn ? fn : HT_ISA_NAME(ht_find_elementwise_float)(op, from, to);
}
