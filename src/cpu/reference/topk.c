/* Top-k: indices of the largest elements along the last axis, for expert routing. */
#include "cpu/call.h"
#include "cpu/element.h"
#include "cpu/reference/reference.h"
#include "cpu/strided_iterator.h"
#include "device/params.h"

#include <math.h>
#include <string.h>

/* Ranking: larger value first, NaN before all numbers, ties by lower index. */
static bool comes_first(float a, int64_t i, float b, int64_t j) {
    if (isnan(a) || isnan(b)) return isnan(a) && (!isnan(b) || i < j);
    return a > b || (a == b && i < j);
}

/* Insertion into the sorted list of the k best so far. */
static void topk_rows(void *arg, int64_t begin, int64_t end, int worker) {
    (void)worker;
    const ht_call *call = arg;
    const ht_view *x = &call->in[0];
    int last = x->n_dims - 1;
    int64_t n = x->shape[last], k = call->out.shape[last];
    for (int64_t row = begin; row < end; row++) {
        const float *values = (const float *)x->data + ht_view_offset(x, last, row);
        int32_t *chosen = (int32_t *)call->out.data + row * k;
        int64_t held = 0;
        for (int64_t i = 0; i < n; i++) {
            float v = values[i * x->stride[last]];
            int64_t at = held;
            while (at > 0 && comes_first(v, i, values[chosen[at - 1] * x->stride[last]], chosen[at - 1])) at--;
            if (at == k) continue;
            held += held < k;
            memmove(chosen + at + 1, chosen + at, (size_t)(held - at - 1) * sizeof *chosen);
            chosen[at] = (int32_t)i;
        }
    }
}

ht_status ht_plain_top_k(const ht_call *call, ht_error *err) {
    (void)err;
    const ht_view *x = &call->in[0];
    ht_run_rows(call, x, x->shape[x->n_dims - 1], topk_rows, call);
    return HT_OK;
}
