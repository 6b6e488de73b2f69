/* KV cache append: new keys and values of a step, converted to the cache's dtype. */
#include "cpu/call.h"
#include "cpu/kv.h"
#include "cpu/strided_iterator.h"
#include "cpu/vector/attend.h"
#include "cpu/vector/lanes.h"

/* Stores one key into its tile; the stride between dimensions is HT_KV_TILE. */
static void put_key(ht_dtype t, void *page, int64_t at, const float *x, int64_t n) {
    for (int64_t d = 0; d < n; d += 16) {
        int lanes = lanes_count(n - d);
        if (t == HT_F32) {
            float *to = (float *)page + at + d * HT_KV_TILE;
            for (int i = 0; i < lanes; i++) to[i * HT_KV_TILE] = x[d + i];
            continue;
        }
        uint16_t values[16], *to = (uint16_t *)page + at + d * HT_KV_TILE;
        v16f v = v16f_load_n(x + d, lanes);
        if (t == HT_BF16)
            v16f_store_bf16(values, v);
        else
            v16f_store_f16(values, v);
        for (int i = 0; i < lanes; i++) to[i * HT_KV_TILE] = values[i];
    }
}

static void put_value(ht_dtype t, void *page, int64_t at, const float *x, int64_t n) {
    for (int64_t d = 0; d < n; d += 16) {
        int lanes = lanes_count(n - d);
        lanes_store(t, page, at + d, v16f_load_n(x + d, lanes), lanes);
    }
}

/* `value` is NULL in pages of keys alone. */
static void put_quantised(const ht_kv_layer *l, void *page, int64_t head, int64_t pos, const float *key,
                          const float *value) {
    int8_t *k = (int8_t *)page + ht_kv_k_index(l, head, pos), *v = (int8_t *)page + ht_kv_v_index(l, head, pos);
    uint16_t *k_scale = ht_kv_scales(l, page) + ht_kv_k_scale_index(l, head, pos);
    uint16_t *v_scale = ht_kv_scales(l, page) + ht_kv_v_scale_index(l, head, pos);
    for (int64_t d = 0; d < l->shape.head_dim; d += HT_KV_QBLOCK) {
        int64_t n = l->shape.head_dim - d < HT_KV_QBLOCK ? l->shape.head_dim - d : HT_KV_QBLOCK;
        *k_scale = ht_kv_quantise(key + d, n, k + d * HT_KV_TILE, HT_KV_TILE);
        if (value) *v_scale++ = ht_kv_quantise(value + d, n, v + d, 1);
        k_scale += HT_KV_TILE;
    }
}

void HT_ISA_NAME(ht_attend_append_head)(const ht_call *call, const ht_kv_layer *l, int64_t row, int64_t head) {
    const ht_view *k = &call->in[1], *v = &call->in[2];
    int64_t pos = call->step->batch->pos[row];
    void *page = l->pages[ht_kv_page_of(l, pos)]->data;
    const float *key = (const float *)k->data + row * k->stride[0] + head * k->stride[1];
    const float *value = l->shape.keys_only ? NULL : (const float *)v->data + row * v->stride[0] + head * v->stride[1];
    if (l->shape.dtype == HT_I8) {
        put_quantised(l, page, head, pos, key, value);
        return;
    }
    put_key(l->shape.dtype, page, ht_kv_k_index(l, head, pos), key, l->shape.head_dim);
    if (value) put_value(l->shape.dtype, page, ht_kv_v_index(l, head, pos), value, l->shape.head_dim);
}

static void append_rows(void *arg, int64_t begin, int64_t end, int worker) {
    (void)worker;
    const ht_call *call = arg;
    for (int64_t row = begin; row < end; row++) {
        const ht_kv_layer *l = ht_kv_layer_of(call, row);
        for (int64_t head = 0; head < l->shape.n_kv_heads; head++)
            HT_ISA_NAME(ht_attend_append_head)(call, l, row, head);
    }
}

static bool adjacent_f32(const ht_view *v) { return v->dtype == HT_F32 && v->stride[2] == 1; }

bool HT_ISA_NAME(ht_attend_appends_heads)(const ht_call *call) {
    const ht_view *k = &call->in[1], *v = &call->in[2];
    return !ht_view_absent(k) && adjacent_f32(k) && (ht_view_absent(v) || adjacent_f32(v));
}

void HT_ISA_NAME(ht_attend_append)(const ht_call *call) {
    const ht_view *k = &call->in[1];
    if (!HT_ISA_NAME(ht_attend_appends_heads)(call)) {
        ht_kv_append(call);
        return;
    }
    ht_pool_run(ht_call_pool(call), k->shape[0], ht_row_grain(HT_GRAIN_MATH, k->shape[1] * k->shape[2]), append_rows,
                (void *)call);
}
