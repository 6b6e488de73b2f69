#include "cpu/state_scan.h"

#include "base/error.h"
#include "device/state.h"

ht_state_scan ht_state_scan_of(const ht_call *call) {
    const ht_view *in = call->in;
    return (ht_state_scan){.call = call,
                           .params = call->params,
                           .q = &in[0],
                           .k = &in[1],
                           .v = &in[2],
                           .decay = &in[3],
                           .rate = ht_view_absent(&in[4]) ? NULL : &in[4],
                           .heads = in[2].shape[1],
                           .key_heads = in[1].shape[1],
                           .key_dim = in[1].shape[2],
                           .value_dim = in[2].shape[2],
                           .key_step = in[3].n_dims == 3 ? in[3].stride[2] : 0};
}

size_t ht_state_scan_bytes(const ht_call *call) {
    if (call->n_in == 5) return 0;
    return ((size_t)call->in[0].shape[0] + 1) * sizeof(int32_t) / 64 * 64 + 64;
}

/* The sequences of flat rows, each of which begins at a row that is its own first one. */
static ht_status find_sequences(const ht_call *call, ht_state_scan *s, ht_error *err) {
    const ht_view *first = &call->in[5];
    int32_t *start = call->scratch;
    for (int64_t t = 0; t < first->shape[0]; t++) {
        const int32_t row = ((const int32_t *)first->data)[t * first->stride[0]];
        if (row == t)
            start[s->n_seq++] = row;
        else if (t == 0 || row != start[s->n_seq - 1])
            return ht_fail(err, HT_ERR_ARGUMENT,
                           "state_scan_rows: the sequence of row %lld begins at row %d, expected that row or the first "
                           "row of the previous row's sequence",
                           (long long)t, (int)row);
    }
    start[s->n_seq] = (int32_t)first->shape[0];
    s->start = start;
    return HT_OK;
}

ht_status ht_state_scan_start(const ht_call *call, ht_state_scan *s, ht_error *err) {
    *s = ht_state_scan_of(call);
    if (call->n_in > 5) return find_sequences(call, s, err);
    s->n_seq = call->step->batch->n_seq;
    s->start = call->step->batch->seq_start;
    return ht_state_check(call, s->params->layer, s->params->first + s->heads * s->key_dim * s->value_dim, err);
}
