#include "checkpoint/kv_size.h"

#include "base/checked.h"

ht_layer_kv ht_layer_kv_of(const ht_config *c, int64_t layer, ht_dtype dtype) {
    const ht_layer_config *l = &c->layer[layer];
    return (ht_layer_kv){{(int32_t)l->n_kv_heads, (int32_t)l->head_dim, dtype}, l->slides ? c->window : 0};
}

int64_t ht_kv_layers(const ht_config *c) {
    int64_t n = 0;
    while (n < c->n_layers && c->layer[n].kv_layer == n) n++;
    return n;
}

int64_t ht_kv_ring_pages(int64_t window, int64_t chunk, int64_t context) {
    int64_t span;
    if (window <= 0 || !ht_add_i64(window - 1, chunk, &span)) return 0;
    int64_t pages = ht_ceil_div_i64(span - 1, HT_KV_PAGE) + 1;
    return pages < ht_ceil_div_i64(context, HT_KV_PAGE) ? pages : 0;
}

int64_t ht_kv_pages(int64_t ring, int64_t positions) {
    int64_t pages = ht_ceil_div_i64(positions, HT_KV_PAGE);
    return ring ? ht_min_i64(pages, ring) : pages;
}

size_t ht_kv_bytes(const ht_layer_kv *kv, int32_t n_kv_layers, ht_dtype dtype, ht_kv_page_bytes_fn *page_bytes,
                   int64_t positions, int64_t chunk, int64_t context) {
    size_t total = 0;
    for (int32_t i = 0; i < n_kv_layers; i++) {
        size_t pages = (size_t)ht_kv_pages(ht_kv_ring_pages(kv[i].window, chunk, context), positions), bytes;
        const ht_kv_shape shape = {kv[i].shape.n_kv_heads, kv[i].shape.head_dim, dtype};
        if (!ht_mul_size(page_bytes(&shape), pages, &bytes) || !ht_add_size(total, bytes, &total)) return SIZE_MAX;
    }
    return total;
}
