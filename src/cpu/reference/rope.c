/* Rotary position embedding. */
#include "cpu/call.h"
#include "cpu/element.h"
#include "cpu/reference/reference.h"
#include "cpu/strided_iterator.h"
#include "device/params.h"

#include <string.h>

static double angle(const ht_call *call, int64_t position, int64_t pair) {
    const ht_rope_params *p = call->params;
    double a = (double)position * (double)p->scale * pow((double)p->theta, -2.0 * (double)pair / p->dims);
    const ht_view *factors = &call->in[2];
    if (call->n_in > 2 && !ht_view_absent(factors))
        a /= ht_get_f64(factors->dtype, factors->data, pair * factors->stride[0]);
    return a;
}

/* Rotates all heads at position index t by the same angles. */
static void rotate_row(const ht_call *call, int64_t t) {
    const ht_rope_params *p = call->params;
    const ht_view *x = &call->in[0], *pos = &call->in[1];
    int lead = x->n_dims - 2;
    int64_t heads = x->shape[lead], head_dim = x->shape[lead + 1], step = x->stride[lead + 1];
    int64_t position = ht_get_int(pos->dtype, pos->data, ht_view_offset(pos, lead, t));
    int64_t from = ht_view_offset(x, lead, t);
    for (int64_t h = 0; h < heads; h++) {
        int64_t in = from + h * x->stride[lead], out = (t * heads + h) * head_dim;
        for (int64_t i = p->dims; i < head_dim; i++)
            ht_set_f64(call->out.dtype, call->out.data, out + i, ht_get_f64(x->dtype, x->data, in + i * step));
        for (int64_t pair = 0; pair < p->dims / 2; pair++) {
            int64_t i = p->interleaved ? 2 * pair : pair, j = p->interleaved ? i + 1 : i + p->dims / 2;
            double turn = angle(call, position, pair);
            double c = cos(turn) * (double)p->magnitude, s = sin(turn) * (double)p->magnitude;
            double a = ht_get_f64(x->dtype, x->data, in + i * step);
            double b = ht_get_f64(x->dtype, x->data, in + j * step);
            ht_set_f64(call->out.dtype, call->out.data, out + i, a * c - b * s);
            ht_set_f64(call->out.dtype, call->out.data, out + j, b * c + a * s);
        }
    }
}

static void rotate_rows(void *arg, int64_t begin, int64_t end, int worker) {
    (void)worker;
    for (int64_t t = begin; t < end; t++) rotate_row(arg, t);
}

ht_status ht_plain_rope(const ht_call *call, ht_error *err) {
    (void)err;
    const ht_view *x = &call->in[0];
    int64_t size = ht_view_size(x), per_row = x->shape[x->n_dims - 2] * x->shape[x->n_dims - 1];
    if (size > 0) /* libm calls dominate */
        ht_pool_run(ht_call_pool(call), size / per_row, ht_row_grain(HT_GRAIN_PLAIN, per_row * 16), rotate_rows,
                    (void *)call);
    return HT_OK;
}
