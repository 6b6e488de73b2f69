#include "cpu/kv.h"

#include "base/error.h"
#include "cpu/reference/value.h"
#include "cpu/walk.h"

/* One row's k or v: head by head, with `step` elements between the dimensions of the stored vector. */
static void put(const ht_view *from, int64_t row, int64_t head, const ht_kv_layer *l, void *page, int64_t at,
                int64_t step) {
    int64_t base = row * from->stride[0] + head * from->stride[1];
    for (int64_t d = 0; d < l->head_dim; d++)
        ht_set_f32(l->dtype, page, at + d * step, ht_get_f32(from->dtype, from->data, base + d * from->stride[2]));
}

static void append_rows(void *arg, int64_t begin, int64_t end, int worker) {
    (void)worker;
    const ht_call *call = arg;
    for (int64_t row = begin; row < end; row++) {
        const ht_kv_layer *l = ht_kv_layer_of(call, row);
        int64_t pos = call->step->batch->pos[row];
        void *page = l->pages[ht_kv_page_of(l, pos)];
        for (int64_t head = 0; head < l->n_kv_heads; head++) {
            put(&call->in[1], row, head, l, page, ht_kv_k_index(l, head, pos), HT_KV_TILE);
            put(&call->in[2], row, head, l, page, ht_kv_v_index(l, head, pos), 1);
        }
    }
}

void ht_kv_append(const ht_call *call) {
    const ht_view *k = &call->in[1];
    if (ht_view_absent(k)) return;
    ht_pool_run(call->pool, k->shape[0], ht_row_grain(HT_GRAIN_PLAIN, k->shape[1] * k->shape[2]), append_rows,
                (void *)call);
}

ht_status ht_kv_check(const ht_call *call, ht_error *err) {
    const ht_batch *b = call->step->batch;
    for (int32_t s = 0; s < b->n_seq; s++) {
        const ht_kv_layer *l = ht_kv_layer_of(call, b->seq_start[s]);
        for (int64_t row = b->seq_start[s]; row < b->seq_start[s + 1]; row++)
            if (b->pos[row] < 0 || ht_kv_page_of(l, b->pos[row]) >= l->n_pages)
                return ht_fail(err, HT_ERR_INTERNAL, "row %lld: position %d has no page in the cache, which holds %lld",
                               (long long)row, b->pos[row], (long long)l->n_pages);
    }
    return HT_OK;
}
