/* Elementwise functions of random distributions (base/math_drawn.h), for f32, f16 and bf16. C library functions are
 * called per element, since no vector form is bit-identical. */
#include "base/math_drawn.h"
#include "cpu/vector/elementwise.h"
#include "device/params.h"

enum { AT_A_TIME = 512 };

static void erfinv_some(const float *x, float *y, int n) {
    float t[AT_A_TIME];
    HT_VECTORISE
    for (int i = 0; i < n; i++) t[i] = ht_drawn_erfinv_inner(x[i]);
    for (int i = 0; i < n; i++) t[i] = logf(t[i]);
    HT_VECTORISE
    for (int i = 0; i < n; i++) y[i] = ht_drawn_erfinv_of(x[i], t[i]);
}

static void drawn_f32(const void *const *in, void *out, int64_t n, const void *params) {
    const float *x = in[0];
    float *y = out;
    switch (((const ht_drawn_params *)params)->function) {
    case HT_DRAWN_LOG:
        for (int64_t i = 0; i < n; i++) y[i] = logf(x[i]);
        break;
    case HT_DRAWN_LOG1P:
        for (int64_t i = 0; i < n; i++) y[i] = log1pf(x[i]);
        break;
    case HT_DRAWN_ERF:
        HT_VECTORISE
        for (int64_t i = 0; i < n; i++) y[i] = ht_drawn_erf(x[i]);
        break;
    case HT_DRAWN_ERFINV:
        for (int64_t i = 0; i < n; i += AT_A_TIME)
            erfinv_some(x + i, y + i, n - i < AT_A_TIME ? (int)(n - i) : AT_A_TIME);
        break;
    }
}

static void drawn_f16(const void *const *in, void *out, int64_t n, const void *params) {
    elementwise_through_f32(HT_F16, HT_F16, drawn_f32, 1, in, out, n, params);
}
static void drawn_bf16(const void *const *in, void *out, int64_t n, const void *params) {
    elementwise_through_f32(HT_BF16, HT_BF16, drawn_f32, 1, in, out, n, params);
}

ht_elementwise_fn *HT_ISA_NAME(ht_find_elementwise_drawn)(ht_op_id op, ht_dtype from, ht_dtype to) {
    (void)op, (void)to;
    return from == HT_F32 ? drawn_f32 : from == HT_F16 ? drawn_f16 : drawn_bf16;
}
