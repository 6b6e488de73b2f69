#include "cpu/gather_qmm.h"

#include "base/error.h"
#include "cpu/element.h"
#include "cpu/strided_iterator.h"

/* Index operand of the left (0) or right (1) matrices; the last two operands. */
static const ht_view *index_view(const ht_call *call, int right) { return &call->in[call->n_in - 2 + right]; }

static int64_t index_at(const ht_view *index, int64_t i) {
    return ht_get_int(index->dtype, index->data, ht_view_offset(index, index->n_dims, i));
}

static int64_t matrices(const ht_view *x) {
    int64_t n = 1;
    for (int i = 0; i < x->n_dims - 2; i++) n *= x->shape[i];
    return n;
}

int64_t ht_gather_entries(const ht_call *call) { return matrices(&call->out); }

ht_status ht_gather_check(const ht_call *call, ht_error *err) {
    for (int right = 0; right < 2; right++) {
        const ht_view *index = index_view(call, right);
        if (ht_view_absent(index)) continue;
        int64_t n = ht_view_size(index), limit = matrices(&call->in[right]);
        for (int64_t i = 0; i < n; i++) {
            int64_t at = index_at(index, i);
            if (at < 0 || at >= limit)
                return ht_fail(err, HT_ERR_ARGUMENT,
                               "gather: %s index %lld at position %lld is outside the %lld matrices",
                               right ? "right" : "left", (long long)at, (long long)i, (long long)limit);
        }
    }
    return HT_OK;
}

int64_t ht_gather_left(const ht_call *call, int64_t entry) {
    const ht_view *index = index_view(call, 0), *x = &call->in[0];
    return ht_view_absent(index) ? ht_matmul_offset(x, &call->out, entry)
                                 : ht_view_offset(x, x->n_dims - 2, index_at(index, entry));
}

int64_t ht_gather_right(const ht_call *call, const ht_view *w, int64_t entry) {
    const ht_view *index = index_view(call, 1);
    return ht_view_absent(index) ? ht_matmul_offset(w, &call->out, entry)
                                 : ht_view_offset(w, w->n_dims - 2, index_at(index, entry));
}
