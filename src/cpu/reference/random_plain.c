/* Random number kernels for machines without a vector form. Bits and sums are the same source, compiled for any
 * machine; functions are computed for one element at a time. */
#define HT_ISA reference
#include "base/error.h"
#include "cpu/reference/reference.h"
#include "cpu/reference/value.h"
#include "cpu/vector/random.c"

ht_status ht_plain_random_bits(const ht_call *call, ht_error *err) { return random_bits(call, err); }
ht_status ht_plain_random_sums(const ht_call *call, ht_error *err) { return random_sums(call, err); }

static float drawn_of(ht_drawn_function f, float x) {
    switch (f) {
    case HT_DRAWN_LOG: return logf(x);
    case HT_DRAWN_LOG1P: return log1pf(x);
    case HT_DRAWN_ERF: return ht_drawn_erf(x);
    case HT_DRAWN_ERFINV: return ht_drawn_erfinv_of(x, logf(ht_drawn_erfinv_inner(x)));
    }
    return x;
}

static void drawn_span(const ht_call *call, const ht_span *s) {
    const ht_drawn_params *p = call->params;
    const ht_dtype t = call->out.dtype;
    for (int64_t i = 0; i < s->n; i++)
        ht_set_f32(t, call->out.data, s->offset[0] + i,
                   drawn_of(p->function, ht_get_f32(t, call->in[0].data, s->offset[1] + i * s->stride[1])));
}

ht_status ht_plain_drawn(const ht_call *call, ht_error *err) {
    const ht_dtype t = call->out.dtype;
    if (t != HT_F32 && t != HT_F16 && t != HT_BF16)
        return ht_fail(err, HT_ERR_UNSUPPORTED, "drawn of %s is not defined: it takes f16, bf16 and f32",
                       ht_dtype_name(t));
    ht_elementwise(call, HT_GRAIN_PLAIN, drawn_span);
    return HT_OK;
}
