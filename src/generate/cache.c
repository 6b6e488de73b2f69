#include "generate/cache.h"

#include "array/memory.h"
#include "base/checked.h"
#include "base/error.h"
#include "models/kv.h"

#include <stdlib.h>
#include <string.h>

typedef struct layer_owner {
    size_t page_bytes;
    int64_t capacity; /* of the page table */
} layer_owner;

struct ht_cache_owner {
    int64_t reserved; /* positions for which there are pages */
    int64_t written;  /* a step may have written positions up to this - 1: what the rings hold ends here */
    layer_owner *layer;
};

/* ---- sizes ---- */

size_t ht_cache_bytes(const ht_model *m, int64_t positions, int32_t chunk) {
    return ht_kv_bytes(m->kv, m->n_kv_layers, m->kv_dtype, positions, chunk, m->context);
}

size_t ht_cache_held_bytes(const ht_cache *c) {
    size_t total = 0;
    for (int32_t i = 0; i < c->n_layers; i++) total += (size_t)c->layer[i].n_pages * c->owner->layer[i].page_bytes;
    return total;
}

/* ---- pages ---- */

/* Gives back what the positions reserved do not need. */
static void drop_pages(ht_cache *c, int32_t i) {
    ht_kv_layer *l = &c->layer[i];
    int64_t keep = ht_kv_pages(l->ring_pages, l->ring_pages ? c->owner->written : c->owner->reserved);
    while (l->n_pages > keep) ht_memory_free(l->pages[--l->n_pages], c->owner->layer[i].page_bytes);
}

static ht_status grow_table(ht_kv_layer *l, layer_owner *o, int64_t pages, ht_error *err) {
    if (pages <= o->capacity) return HT_OK;
    int64_t capacity = ht_max_i64(pages, l->ring_pages ? l->ring_pages : 2 * o->capacity);
    void **table = realloc(l->pages, (size_t)capacity * sizeof *table);
    if (!table) return ht_fail_memory(err, (size_t)capacity * sizeof *table, "the page table of a KV cache");
    l->pages = table;
    o->capacity = capacity;
    return HT_OK;
}

/* New pages are zero: what a kernel reads beside the keys it was asked for must at least be numbers. */
static ht_status add_pages(ht_cache *c, int32_t i, int64_t pages, ht_error *err) {
    ht_kv_layer *l = &c->layer[i];
    layer_owner *o = &c->owner->layer[i];
    if (!o->page_bytes) return HT_OK; /* a layer that uses the keys of another one */
    ht_status status = grow_table(l, o, pages, err);
    while (status == HT_OK && l->n_pages < pages) {
        void *page;
        status = ht_memory_alloc(o->page_bytes, "a page of the KV cache", &page, err);
        if (status) break;
        memset(page, 0, o->page_bytes);
        l->pages[l->n_pages++] = page;
    }
    return status;
}

ht_status ht_cache_reserve(ht_cache *c, int64_t positions, ht_error *err) {
    ht_status status = HT_OK;
    int32_t i = 0;
    for (; i < c->n_layers && status == HT_OK; i++) {
        int64_t pages = ht_kv_pages(c->layer[i].ring_pages, positions);
        status = add_pages(c, i, ht_max_i64(pages, c->layer[i].n_pages), err);
    }
    if (status) {
        while (i-- > 0) drop_pages(c, i);
        return ht_fail_in(err, status, "the KV cache cannot grow from %lld to %lld positions", (long long)c->length,
                          (long long)positions);
    }
    c->owner->reserved = ht_max_i64(c->owner->reserved, positions);
    c->owner->written = ht_max_i64(c->owner->written, positions);
    return HT_OK;
}

/* ---- going back ---- */

/* The first position that a ring, written up to `written` - 1, still holds. */
static int64_t ring_begin(const ht_kv_layer *l, int64_t written) {
    int64_t pages = ht_ceil_div_i64(written, HT_KV_PAGE);
    return pages > l->ring_pages ? (pages - l->ring_pages) * HT_KV_PAGE : 0;
}

ht_status ht_cache_truncate(ht_cache *c, int64_t n, ht_error *err) {
    if (n < 0 || n > c->length)
        return ht_fail(err, HT_ERR_ARGUMENT, "%lld positions were to be kept of a KV cache that holds %lld",
                       (long long)n, (long long)c->length);
    bool wrapped = false;
    for (int32_t i = 0; i < c->n_layers && n > 0; i++) {
        const ht_kv_layer *l = &c->layer[i];
        if (!l->ring_pages) continue;
        int64_t begin = ring_begin(l, c->owner->written), needed = ht_max_i64(0, n - l->window + 1);
        if (needed < begin)
            return ht_fail(
                err, HT_ERR_LIMIT,
                "going back from %lld to %lld tokens needs the keys from position %lld on, but layer %d with "
                "its window of %lld keeps only those from %lld on; reset the session and prefill again",
                (long long)c->length, (long long)n, (long long)needed, (int)i, (long long)l->window, (long long)begin);
        wrapped = wrapped || begin > 0;
    }
    /* A ring that wrapped keeps all its pages, and stays written as far as it was: the pages that the dropped positions
     * pushed out do not come back. */
    if (!wrapped) c->owner->written = n;
    c->owner->reserved = n;
    for (int32_t i = 0; i < c->n_layers; i++) drop_pages(c, i);
    c->length = n;
    return HT_OK;
}

/* ---- life ---- */

ht_status ht_cache_new(const ht_model *m, int32_t chunk, ht_cache **out, ht_error *err) {
    *out = NULL;
    ht_cache *c = calloc(1, sizeof *c);
    size_t n = (size_t)m->n_kv_layers;
    if (c) {
        c->n_layers = m->n_kv_layers;
        c->layer = calloc(n ? n : 1, sizeof *c->layer);
        c->owner = calloc(1, sizeof *c->owner);
        if (c->owner) c->owner->layer = calloc(n ? n : 1, sizeof *c->owner->layer);
    }
    if (!c || !c->layer || !c->owner || !c->owner->layer) {
        ht_cache_free(c);
        return ht_fail_memory(err, n * sizeof *c->layer, "a KV cache");
    }
    for (int32_t i = 0; i < m->n_kv_layers; i++) {
        const ht_kv_shape *kv = &m->kv[i];
        c->layer[i] = (ht_kv_layer){.n_kv_heads = kv->n_kv_heads,
                                    .head_dim = kv->head_dim,
                                    .dtype = m->kv_dtype,
                                    .window = kv->window,
                                    .ring_pages = ht_kv_ring_pages(kv->window, chunk, m->context)};
        c->owner->layer[i].page_bytes = ht_kv_page_bytes(kv, m->kv_dtype);
        if (c->owner->layer[i].page_bytes == SIZE_MAX) {
            ht_cache_free(c);
            return ht_fail(err, HT_ERR_LIMIT, "layer %d has %d KV heads of %d values: no page of that size can be held",
                           (int)i, (int)kv->n_kv_heads, (int)kv->head_dim);
        }
    }
    *out = c;
    return HT_OK;
}

void ht_cache_free(ht_cache *c) {
    if (!c) return;
    for (int32_t i = 0; c->layer && c->owner && c->owner->layer && i < c->n_layers; i++) {
        c->owner->reserved = c->owner->written = 0;
        drop_pages(c, i);
        free(c->layer[i].pages);
    }
    if (c->owner) free(c->owner->layer);
    free(c->owner);
    free(c->layer);
    free(c);
}
