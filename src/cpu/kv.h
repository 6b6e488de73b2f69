/* KV cache pages on the CPU: their layout, and appending rows to them.
 *
 * A page holds K, then V, in its dtype:
 *   K [n_kv_heads][256 / 16 tiles][head_dim][16 keys]   16 scores are accumulated in one vector, dimension by dimension
 *   V [n_kv_heads][256][head_dim]
 *
 * 8-bit pages also hold the bf16 scales of all blocks of 32 dimensions (n_blocks per vector):
 *   K [n_kv_heads][256 / 16 tiles][n_blocks][16 keys]
 *   V [n_kv_heads][256][n_blocks] */
#ifndef HT_CPU_KV_H
#define HT_CPU_KV_H

#include "device/kernel.h"
#include "device/kv.h"
#include "device/params.h"

enum {
    HT_KV_TILE = 16, /* keys per tile of the K layout */
    HT_KV_QMAX = 127 /* largest |q| in 8-bit pages */
};

extern const ht_kv_ops ht_cpu_kv;

/* Elements of a page's K part. The V part follows and has the same size. */
static inline int64_t ht_kv_half_page(const ht_kv_layer *l) {
    return (int64_t)l->shape.n_kv_heads * l->shape.head_dim * HT_KV_PAGE;
}

/* Element index in the page of dimension 0 of a key; the stride between dimensions is HT_KV_TILE. */
static inline int64_t ht_kv_k_index(const ht_kv_layer *l, int64_t head, int64_t pos) {
    int64_t key = pos % HT_KV_PAGE;
    return (head * HT_KV_PAGE + key / HT_KV_TILE * HT_KV_TILE) * l->shape.head_dim + key % HT_KV_TILE;
}

/* Element index in the page of dimension 0 of a value; its dimensions are contiguous. */
static inline int64_t ht_kv_v_index(const ht_kv_layer *l, int64_t head, int64_t pos) {
    return ht_kv_half_page(l) + (head * HT_KV_PAGE + pos % HT_KV_PAGE) * l->shape.head_dim;
}

/* Block scales of an 8-bit page, after its V part. */
static inline uint16_t *ht_kv_scales(const ht_kv_layer *l, void *page) {
    return (uint16_t *)(void *)((char *)page + 2 * ht_kv_half_page(l));
}
/* Index among the page's scales of a key's block 0; the stride between blocks is HT_KV_TILE. */
static inline int64_t ht_kv_k_scale_index(const ht_kv_layer *l, int64_t head, int64_t pos) {
    int64_t key = pos % HT_KV_PAGE;
    return (head * HT_KV_PAGE + key / HT_KV_TILE * HT_KV_TILE) * ht_kv_blocks(l->shape.head_dim) + key % HT_KV_TILE;
}
/* Index among the page's scales of a value's block 0; its blocks are contiguous. */
static inline int64_t ht_kv_v_scale_index(const ht_kv_layer *l, int64_t head, int64_t pos) {
    return ((l->shape.n_kv_heads + head) * HT_KV_PAGE + pos % HT_KV_PAGE) * ht_kv_blocks(l->shape.head_dim);
}

/* Quantises one block of n <= HT_KV_QBLOCK floats to q[i * step]; returns the bf16 bits of the scale. */
uint16_t ht_kv_quantise(const float *x, int64_t n, int8_t *q, int64_t step);

/* Dimension d of the key at `pos`, dequantised. */
float ht_kv_key(const ht_kv_layer *l, int64_t head, int64_t pos, int64_t d);
/* Dimension d of the value at `pos`, dequantised. */
float ht_kv_value(const ht_kv_layer *l, int64_t head, int64_t pos, int64_t d);

/* Sequence of a batch row. */
static inline int32_t ht_batch_sequence(const ht_batch *b, int64_t row) {
    int32_t low = 0, high = b->n_seq - 1; /* binary search for the last sequence with seq_start <= row */
    while (low < high) {
        int32_t middle = low + (high - low + 1) / 2;
        if (b->seq_start[middle] <= row)
            low = middle;
        else
            high = middle - 1;
    }
    return low;
}

/* Runs an attention kernel. With ht_attend_params.asked, the kernel gets a step of the output rows alone, built in the
 * first ht_kv_output_rows_bytes of the scratch memory; the kernel's own scratch memory follows. */
ht_status ht_kv_run(const ht_call *call, ht_kernel_fn *attend, ht_error *err);
/* Scratch bytes of ht_kv_run itself; 0 unless ht_attend_params.asked. */
size_t ht_kv_output_rows_bytes(const ht_call *call);

/* Fails if a position of the step has no page in its cache. */
ht_status ht_kv_check(const ht_call *call, ht_error *err);

/* Appends K and V of every row of the step to the caches. Absent K and V, of a layer that shares an earlier layer's
 * cache, append nothing. Requires ht_kv_check. */
void ht_kv_append(const ht_call *call);

/* Cache layer of row `row` of the step. */
static inline ht_kv_layer *ht_kv_layer_of(const ht_call *call, int64_t row) {
    const ht_attend_params *p = (const ht_attend_params *)call->params;
    return &call->step->kv[ht_batch_sequence(call->step->batch, row)]->layer[p->layer];
}

#endif
