/* KV cache pages of one layer (device/step.h has the layout), and appending new rows to them. */
#ifndef HT_CPU_KV_H
#define HT_CPU_KV_H

#include "device/kernel.h"
#include "device/params.h"

/* Elements of a page's K part, after which V begins; V has as many. */
static inline int64_t ht_kv_half_page(const ht_kv_layer *l) {
    return (int64_t)l->n_kv_heads * l->head_dim * HT_KV_PAGE;
}

/* Element index in the page of K's [head][tile of pos][0][key of pos]; dimension d lies HT_KV_TILE elements further on
 * each. */
static inline int64_t ht_kv_k_index(const ht_kv_layer *l, int64_t head, int64_t pos) {
    int64_t key = pos % HT_KV_PAGE;
    return (head * HT_KV_PAGE + key / HT_KV_TILE * HT_KV_TILE) * l->head_dim + key % HT_KV_TILE;
}

/* Element index in the page of V's [head][pos][0]; dimensions are adjacent. */
static inline int64_t ht_kv_v_index(const ht_kv_layer *l, int64_t head, int64_t pos) {
    return ht_kv_half_page(l) + (head * HT_KV_PAGE + pos % HT_KV_PAGE) * l->head_dim;
}

/* Of 8-bit pages: the scales, and the index among them of those of K (block b lies HT_KV_TILE further on each) and V
 * (blocks are adjacent). */
static inline uint16_t *ht_kv_scales(const ht_kv_layer *l, void *page) {
    return (uint16_t *)(void *)((char *)page + 2 * ht_kv_half_page(l));
}
static inline int64_t ht_kv_k_scale_index(const ht_kv_layer *l, int64_t head, int64_t pos) {
    int64_t key = pos % HT_KV_PAGE;
    return (head * HT_KV_PAGE + key / HT_KV_TILE * HT_KV_TILE) * ht_kv_blocks(l->head_dim) + key % HT_KV_TILE;
}
static inline int64_t ht_kv_v_scale_index(const ht_kv_layer *l, int64_t head, int64_t pos) {
    return ((l->n_kv_heads + head) * HT_KV_PAGE + pos % HT_KV_PAGE) * ht_kv_blocks(l->head_dim);
}

/* Quantises up to 32 numbers, q[i * step] for x[i]; gives the scale's bits. */
uint16_t ht_kv_quantise(const float *x, int64_t n, int8_t *q, int64_t step);

/* Dimension d of the key and of the value at pos, as stored. */
float ht_kv_key(const ht_kv_layer *l, int64_t head, int64_t pos, int64_t d);
float ht_kv_value(const ht_kv_layer *l, int64_t head, int64_t pos, int64_t d);

/* The first key that a row at `pos` sees. */
static inline int64_t ht_kv_first_visible(const ht_kv_layer *l, int64_t pos) {
    return l->window > 0 && pos >= l->window ? pos - l->window + 1 : 0;
}

/* The sequence that owns a row of the batch. */
static inline int32_t ht_batch_sequence(const ht_batch *b, int64_t row) {
    int32_t low = 0, high = b->n_seq - 1; /* the last one whose first row is not after `row` */
    while (low < high) {
        int32_t middle = low + (high - low + 1) / 2;
        if (b->seq_start[middle] <= row)
            low = middle;
        else
            high = middle - 1;
    }
    return low;
}

/* Runs an attention kernel for the rows that the call is for: with `asked`, on a step that has those rows alone. That takes
 * ht_kv_asked_bytes of the scratch memory, behind which the kernel gets its own. */
ht_status ht_kv_run(const ht_call *call, ht_kernel_fn *attend, ht_error *err);
size_t ht_kv_asked_bytes(const ht_call *call);

/* Checks that every page a row of the step needs is there. */
ht_status ht_kv_check(const ht_call *call, ht_error *err);

/* Appends K and V of every row of the step to their caches, unless they are absent (a layer that shares the cache of an
 * earlier one). ht_kv_check came before. */
void ht_kv_append(const ht_call *call);

/* The layer that row `row` of the step belongs to. */
static inline ht_kv_layer *ht_kv_layer_of(const ht_call *call, int64_t row) {
    const ht_attend_params *p = (const ht_attend_params *)call->params;
    return &call->step->kv[ht_batch_sequence(call->step->batch, row)]->layer[p->layer];
}

#endif
