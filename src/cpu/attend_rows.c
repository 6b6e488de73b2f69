#include "cpu/attend_rows.h"

#include "base/error.h"

size_t ht_ragged_bytes(const ht_call *call) {
    const size_t n = (size_t)call->in[0].shape[0];
    return ((n + 1) * sizeof(int64_t) + 2 * n * sizeof(int32_t) + 63) / 64 * 64;
}

static int32_t value(const ht_view *v, int64_t i) { return ((const int32_t *)v->data)[i * v->stride[0]]; }

ht_status ht_ragged_find(const ht_call *call, void *memory, ht_ragged *out, ht_error *err) {
    const int64_t n_q = call->in[0].shape[0], n_k = call->in[1].shape[0];
    int64_t *start = memory;
    int32_t *own = (int32_t *)(start + n_q + 1), *first = own + n_q;
    int64_t n = 0;
    for (int64_t i = 0; i < n_q; i++) {
        own[i] = value(&call->in[3], i);
        first[i] = value(&call->in[4], i);
        const bool begins = i == 0 || first[i] != first[i - 1];
        if (first[i] < 0 || own[i] < first[i] || own[i] >= n_k || (!begins && own[i] < own[i - 1]))
            return ht_fail(err, HT_ERR_ARGUMENT,
                           "attend_rows: query %lld is at row %d of a sequence that begins at row %d, of %lld rows of "
                           "keys; rows of a sequence do not go back",
                           (long long)i, (int)own[i], (int)first[i], (long long)n_k);
        if (begins) start[n++] = i;
    }
    start[n] = n_q;
    *out = (ht_ragged){n, start, own, first};
    return HT_OK;
}
