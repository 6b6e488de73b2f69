#include "models/kv.h"

#include "base/checked.h"

ht_kv_shape ht_kv_shape_of(const ht_config *c, int64_t layer) {
    const ht_layer_config *l = &c->layer[layer];
    return (ht_kv_shape){
        .n_kv_heads = (int32_t)l->n_kv_heads, .head_dim = (int32_t)l->head_dim, .window = l->slides ? c->window : 0};
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

size_t ht_kv_page_bytes(const ht_kv_shape *kv, ht_dtype dtype) {
    size_t vector, bytes;
    bool fits = ht_mul_size((size_t)kv->head_dim, ht_dtype_bytes(dtype), &vector);
    if (dtype == HT_I8) fits = fits && ht_add_size(vector, (size_t)ht_kv_blocks(kv->head_dim) * 2, &vector);
    fits = fits && ht_mul_size((size_t)kv->n_kv_heads, vector, &bytes) && ht_mul_size(bytes, 2 * HT_KV_PAGE, &bytes);
    return fits ? bytes : SIZE_MAX;
}

size_t ht_kv_bytes(const ht_kv_shape *kv, int32_t n_kv_layers, ht_dtype dtype, int64_t positions, int64_t chunk,
                   int64_t context) {
    size_t total = 0;
    for (int32_t i = 0; i < n_kv_layers; i++) {
        size_t pages = (size_t)ht_kv_pages(ht_kv_ring_pages(kv[i].window, chunk, context), positions), bytes;
        if (!ht_mul_size(ht_kv_page_bytes(&kv[i], dtype), pages, &bytes) || !ht_add_size(total, bytes, &total))
            return SIZE_MAX;
    }
    return total;
}
