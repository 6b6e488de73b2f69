/* Array creation: casts and fills. */
#include "cpu/element.h"
#include "cpu/reference/reference.h"
#include "cpu/strided_iterator.h"
#include "device/params.h"

static void cast_span(const ht_call *call, const ht_strided_span *s) {
    ht_dtype from = call->in[0].dtype, to = call->out.dtype;
    const void *in = call->in[0].data;
    void *out = call->out.data;
    for (int64_t i = 0; i < s->n; i++) {
        int64_t a = s->offset[1] + i * s->stride[1], o = s->offset[0] + i;
        if (!ht_dtype_is_float(from) && !ht_dtype_is_float(to))
            ht_set_int(to, out, o, ht_get_int(from, in, a));
        else if (to == HT_F16 || to == HT_BF16 || to == HT_F32)
            ht_set_f32(to, out, o, ht_get_f32(from, in, a));
        else
            ht_set_f64(to, out, o, ht_get_f64(from, in, a));
    }
}

ht_status ht_plain_cast(const ht_call *call, ht_error *err) {
    (void)err;
    ht_strided_elementwise(call, HT_GRAIN_PLAIN, cast_span);
    return HT_OK;
}

static void sequence_span(const ht_call *call, const ht_strided_span *s, double value, double step) {
    for (int64_t i = s->offset[0]; i < s->offset[0] + s->n; i++)
        ht_set_f64(call->out.dtype, call->out.data, i, value + (double)i * step);
}

static void full_span(const ht_call *call, const ht_strided_span *s) {
    const ht_full_params *p = call->params;
    sequence_span(call, s, p->value, 0.0);
}

static void arange_span(const ht_call *call, const ht_strided_span *s) {
    const ht_full_params *p = call->params;
    sequence_span(call, s, p->value, p->step);
}

ht_status ht_plain_full(const ht_call *call, ht_error *err) {
    (void)err;
    ht_strided_elementwise(call, HT_GRAIN_PLAIN, full_span);
    return HT_OK;
}

ht_status ht_plain_arange(const ht_call *call, ht_error *err) {
    (void)err;
    ht_strided_elementwise(call, HT_GRAIN_PLAIN, arange_span);
    return HT_OK;
}
