#include "generate/cache.h"

#include "base/checked.h"
#include "base/error.h"
#include "base/grow.h"
#include "base/plural.h"
#include "checkpoint/kv_size.h"
#include "device/device.h"

#include <stdlib.h>
#include <string.h>

struct ht_cache_owner {
    ht_device *device;      /* held */
    ht_kv_account *account; /* of its pages; NULL: none */
    int64_t short_length;   /* of the model */
    int64_t reserved;       /* positions for which there are pages */
    int64_t written;        /* a step may have written positions up to this - 1: what the rings hold ends here */
    bool has_states;        /* there are layers of states */
    int64_t previous;       /* positions of the states in the second pages, those before the last step; -1: of none */
    int64_t *capacity;      /* [n_layers] of the page tables */
    int64_t *first;         /* [n_layers] position before which a restored ring holds nothing */
};

/* ---- sizes ---- */

size_t ht_cache_bytes(const ht_model *m, int64_t positions, int32_t chunk) {
    return ht_kv_bytes(m->kv, m->n_cache_layers, m->kv_dtype, m->device->kv->page_bytes, positions, chunk, m->context);
}

static size_t page_bytes(const ht_cache *c, int32_t i) { return c->owner->device->kv->page_bytes(&c->layer[i].shape); }

size_t ht_cache_held_bytes(const ht_cache *c) {
    size_t total = 0;
    for (int32_t i = 0; i < c->n_layers; i++) total += (size_t)c->layer[i].n_pages * page_bytes(c, i);
    return total;
}

/* ---- pages ---- */

/* Pages of a layer for `positions`. */
static int64_t pages_for(const ht_kv_layer *l, int64_t positions) {
    if (l->shape.state) return positions ? HT_STATE_COPIES : 0;
    return ht_kv_pages(l->ring_pages, positions);
}

/* Gives back what the positions reserved do not need. */
static void drop_pages(ht_cache *c, int32_t i) {
    ht_kv_layer *l = &c->layer[i];
    const int64_t keep = pages_for(l, l->ring_pages ? c->owner->written : c->owner->reserved);
    while (l->n_pages > keep) ht_kv_page_release(c->owner->device, &l->shape, l->pages[--l->n_pages]);
}

static ht_status grow_table(ht_kv_layer *l, int64_t *have, int64_t pages, ht_error *err) {
    if (pages <= *have) return HT_OK;
    int64_t capacity = ht_max_i64(pages, l->ring_pages ? l->ring_pages : 2 * *have);
    if (!HT_RESIZE(l->pages, capacity))
        return ht_fail_memory(err, (size_t)capacity * sizeof(ht_kv_page *), "the page table of a KV cache");
    *have = capacity;
    return HT_OK;
}

static ht_status add_pages(ht_cache *c, int32_t i, int64_t pages, ht_error *err) {
    ht_kv_layer *l = &c->layer[i];
    ht_status status = grow_table(l, &c->owner->capacity[i], pages, err);
    while (status == HT_OK && l->n_pages < pages) {
        ht_kv_page *page;
        status = ht_kv_page_new(c->owner->device, &l->shape, c->owner->account, &page, err);
        if (status == HT_OK) l->pages[l->n_pages++] = page;
    }
    return status;
}

/* Replaces the state that the next step writes, if it is shared. */
static ht_status own_state(ht_cache *c, ht_kv_layer *l, ht_error *err) {
    ht_kv_page *own;
    if (!ht_kv_page_is_shared(l->pages[1])) return HT_OK;
    const ht_status status = ht_kv_page_new(c->owner->device, &l->shape, c->owner->account, &own, err);
    if (status) return status;
    ht_kv_page_release(c->owner->device, &l->shape, l->pages[1]);
    l->pages[1] = own;
    return HT_OK;
}

/* Replaces shared pages that the next step writes, up to position `end` - 1, with private copies. */
static ht_status own_pages(ht_cache *c, int32_t i, int64_t end, ht_error *err) {
    ht_kv_layer *l = &c->layer[i];
    ht_device *d = c->owner->device;
    ht_status status = HT_OK;
    if (l->shape.state) return own_state(c, l, err);
    for (int64_t pos = c->length / HT_KV_PAGE * HT_KV_PAGE; pos < end && status == HT_OK; pos += HT_KV_PAGE) {
        ht_kv_page **page = &l->pages[ht_kv_page_of(l, pos)], *own;
        if (!ht_kv_page_is_shared(*page)) continue;
        status = ht_kv_page_copy(d, &l->shape, *page, c->owner->account, &own, err);
        if (status) break;
        ht_kv_page_release(d, &l->shape, *page);
        *page = own;
    }
    return status;
}

/* Whether own_pages, starting at `first`, copies the page of `pos`: it is shared, perhaps with later ring slots. */
static bool takes_copy(const ht_kv_layer *l, int64_t first, int64_t pos) {
    const ht_kv_page *page = l->pages[ht_kv_page_of(l, pos)];
    int refs = atomic_load_explicit(&page->refs, memory_order_acquire);
    for (int64_t p = first; refs > 1 && p < pos; p += HT_KV_PAGE) refs -= l->pages[ht_kv_page_of(l, p)] == page;
    return refs > 1;
}

size_t ht_cache_growth(const ht_cache *c, int64_t positions) {
    size_t bytes = 0;
    for (int32_t i = 0; i < c->n_layers; i++) {
        const ht_kv_layer *l = &c->layer[i];
        int64_t pages = ht_max_i64(0, pages_for(l, positions) - l->n_pages);
        if (l->shape.state) {
            pages += l->n_pages > 1 && ht_kv_page_is_shared(l->pages[1]);
            bytes += (size_t)pages * page_bytes(c, i);
            continue;
        }
        const int64_t first = c->length / HT_KV_PAGE * HT_KV_PAGE;
        const int64_t end = l->ring_pages ? ht_min_i64(positions, first + l->ring_pages * HT_KV_PAGE) : positions;
        for (int64_t pos = first; pos < end; pos += HT_KV_PAGE)
            if (ht_kv_page_of(l, pos) < l->n_pages && takes_copy(l, first, pos)) pages++;
        bytes += (size_t)pages * page_bytes(c, i);
    }
    return bytes;
}

ht_status ht_cache_reserve(ht_cache *c, int64_t positions, ht_error *err) {
    ht_status status = HT_OK;
    int32_t i = 0;
    for (; i < c->n_layers && status == HT_OK; i++) {
        int64_t pages = pages_for(&c->layer[i], positions);
        status = add_pages(c, i, ht_max_i64(pages, c->layer[i].n_pages), err);
        if (status == HT_OK) status = own_pages(c, i, positions, err);
    }
    if (status) {
        while (i-- > 0) drop_pages(c, i);
        return ht_fail_in(err, status, "the KV cache cannot grow from %lld to %lld position%s", (long long)c->length,
                          (long long)positions, ht_plural(positions));
    }
    c->owner->reserved = ht_max_i64(c->owner->reserved, positions);
    c->owner->written = ht_max_i64(c->owner->written, positions);
    c->owner->previous = -1;
    return HT_OK;
}

static void swap_states(ht_cache *c) {
    for (int32_t i = 0; i < c->n_layers; i++) {
        ht_kv_page **pages = c->layer[i].pages, *first;
        if (!c->layer[i].shape.state) continue;
        first = pages[0];
        pages[0] = pages[1];
        pages[1] = first;
    }
}

void ht_cache_advance(ht_cache *c, int64_t rows) {
    swap_states(c);
    c->owner->previous = c->length;
    c->length += rows;
}

/* ---- going back ---- */

/* The first position that a ring, written up to `written` - 1, still holds. */
static int64_t ring_begin(const ht_kv_layer *l, int64_t written) {
    int64_t pages = ht_ceil_div_i64(written, HT_KV_PAGE);
    return pages > l->ring_pages ? (pages - l->ring_pages) * HT_KV_PAGE : 0;
}

int64_t ht_cache_first(const ht_cache *c, int32_t layer) {
    const ht_kv_layer *l = &c->layer[layer];
    return l->ring_pages ? ht_max_i64(c->owner->first[layer], ring_begin(l, c->owner->written)) : 0;
}

ht_kv_page *ht_cache_page(const ht_cache *c, int32_t layer, int64_t index) {
    const ht_kv_layer *l = &c->layer[layer];
    if (l->shape.state) return NULL;
    const int64_t at = ht_kv_page_of(l, index * HT_KV_PAGE);
    if (at >= l->n_pages || index * HT_KV_PAGE < ht_cache_first(c, layer)) return NULL;
    return l->pages[at];
}

/* Gives layer i references to the pages of n positions. Ring slots before the first available page share that page:
 * they must hold numbers, and are copied before they are written. */
static ht_status adopt_layer(ht_cache *c, int32_t i, int64_t n, ht_cache_page_fn *page_of, void *user, ht_error *err) {
    ht_kv_layer *l = &c->layer[i];
    const int64_t pages = ht_ceil_div_i64(n, HT_KV_PAGE), held = ht_kv_pages(l->ring_pages, n);
    int64_t first = pages;
    while (first > pages - held && page_of(user, i, first - 1)) first--;
    ht_status status = grow_table(l, &c->owner->capacity[i], held, err);
    if (status) return status;
    for (int64_t p = pages - held; p < pages; p++) {
        ht_kv_page *page = page_of(user, i, ht_max_i64(p, first));
        l->pages[ht_kv_page_of(l, p * HT_KV_PAGE)] = ht_kv_page_retain(page);
    }
    l->n_pages = held;
    c->owner->first[i] = l->ring_pages ? first * HT_KV_PAGE : 0;
    return HT_OK;
}

bool ht_cache_can_adopt(const ht_cache *c, int64_t n, ht_cache_page_fn *page_of, void *user) {
    for (int32_t i = 0; i < c->n_layers; i++) {
        const ht_kv_layer *l = &c->layer[i];
        if (l->shape.state) return false;
        const int64_t needed = l->ring_pages ? ht_max_i64(0, ht_min_i64(ht_kv_first_visible(l, n), n - 1)) : 0;
        for (int64_t p = needed / HT_KV_PAGE; p * HT_KV_PAGE < n; p++)
            if (!page_of(user, i, p)) return false;
    }
    return true;
}

ht_status ht_cache_adopt(ht_cache *c, int64_t n, ht_cache_page_fn *page_of, void *user, ht_error *err) {
    ht_status status = ht_cache_truncate(c, 0, err); /* it may have reserved pages */
    for (int32_t i = 0; i < c->n_layers && !status; i++) status = adopt_layer(c, i, n, page_of, user, err);
    if (status) {
        (void)ht_cache_truncate(c, 0, NULL);
        return status;
    }
    c->length = c->owner->reserved = c->owner->written = n;
    return HT_OK;
}

void ht_cache_forget_before(ht_cache *c, int32_t layer, int64_t first) { c->owner->first[layer] = first; }

ht_status ht_cache_truncate(ht_cache *c, int64_t n, ht_error *err) {
    if (n < 0 || n > c->length)
        return ht_fail(err, HT_ERR_ARGUMENT, "keeping %lld position%s of a KV cache that holds %lld", (long long)n,
                       ht_plural(n), (long long)c->length);
    if (c->owner->has_states && n < c->length) {
        const bool goes_back = c->owner->previous >= 0 && c->owner->previous <= n;
        if (goes_back) swap_states(c);
        n = goes_back ? c->owner->previous : 0;
        c->owner->previous = -1;
    }
    bool wrapped = false;
    for (int32_t i = 0; i < c->n_layers && n > 0; i++) {
        const ht_kv_layer *l = &c->layer[i];
        if (!l->ring_pages) continue;
        int64_t begin = ht_cache_first(c, i), needed = ht_kv_first_visible(l, n);
        if (needed < begin)
            return ht_fail(err, HT_ERR_LIMIT,
                           "going back from %lld to %lld token%s needs the keys from position %lld on, but layer %d "
                           "with its window of %lld keeps only those from %lld on; reset the session and prefill again",
                           (long long)c->length, (long long)n, ht_plural(n), (long long)needed, (int)i,
                           (long long)l->window, (long long)begin);
        wrapped = wrapped || begin > 0;
    }
    /* A ring that wrapped keeps its pages and where it was written: what dropped positions pushed out is gone. */
    if (!wrapped) c->owner->written = n;
    for (int32_t i = 0; i < c->n_layers && n == 0; i++) c->owner->first[i] = 0;
    c->owner->reserved = n;
    for (int32_t i = 0; i < c->n_layers; i++) drop_pages(c, i);
    c->length = n;
    return HT_OK;
}

/* ---- short and long sequences ---- */

bool ht_cache_is_for(const ht_cache *c, int64_t n) { return c->is_long == (n > c->owner->short_length); }

void ht_cache_begin(ht_cache *c, int64_t n) {
    if (ht_cache_is_for(c, n)) return;
    (void)ht_cache_truncate(c, 0, NULL);
    c->is_long = !c->is_long;
}

/* ---- life ---- */

/* Layers without pages. */
static ht_status new_cache(ht_device *d, int32_t n_layers, ht_cache **out, ht_error *err) {
    size_t n = (size_t)n_layers;
    *out = NULL;
    ht_cache *c = calloc(1, sizeof *c);
    if (c) {
        c->n_layers = n_layers;
        c->layer = calloc(n ? n : 1, sizeof *c->layer);
        c->owner = calloc(1, sizeof *c->owner);
        if (c->owner) {
            c->owner->capacity = calloc(n ? n : 1, sizeof *c->owner->capacity);
            c->owner->first = calloc(n ? n : 1, sizeof *c->owner->first);
        }
    }
    if (!c || !c->layer || !c->owner || !c->owner->capacity || !c->owner->first) {
        ht_cache_free(c);
        return ht_fail_memory(err, n * sizeof *c->layer, "a KV cache");
    }
    c->owner->device = ht_device_retain(d);
    *out = c;
    return HT_OK;
}

ht_status ht_cache_new(const ht_model *m, int32_t chunk, ht_cache **out, ht_error *err) {
    ht_cache *c;
    ht_status status = new_cache(m->device, m->n_cache_layers, &c, err);
    *out = NULL;
    if (!status) c->owner->short_length = m->short_length, c->owner->previous = -1;
    for (int32_t i = 0; !status && i < m->n_cache_layers; i++) {
        const ht_layer_kv *kv = &m->kv[i];
        c->layer[i] = (ht_kv_layer){.shape = kv->shape,
                                    .window = kv->window,
                                    .chunked = kv->chunked,
                                    .ring_pages = ht_kv_ring_pages(kv->window, chunk, m->context)};
        c->owner->has_states |= kv->shape.state > 0;
        if (page_bytes(c, i) == SIZE_MAX)
            status =
                ht_fail(err, HT_ERR_LIMIT, "layer %d has %d KV heads of %d values: no page of that size can be held",
                        (int)i, (int)kv->shape.n_kv_heads, (int)kv->shape.head_dim);
    }
    if (status)
        ht_cache_free(c);
    else
        *out = c;
    return status;
}

ht_status ht_cache_share(const ht_cache *from, ht_cache **out, ht_error *err) {
    ht_cache *c;
    ht_status status = new_cache(from->owner->device, from->n_layers, &c, err);
    *out = NULL;
    for (int32_t i = 0; !status && i < c->n_layers; i++) {
        const ht_kv_layer *theirs = &from->layer[i];
        ht_kv_layer *l = &c->layer[i];
        *l = (ht_kv_layer){.shape = theirs->shape,
                           .window = theirs->window,
                           .chunked = theirs->chunked,
                           .ring_pages = theirs->ring_pages};
        int64_t pages = l->ring_pages ? theirs->n_pages : ht_kv_pages(0, from->length);
        if (l->shape.state) pages = from->length > 0;
        status = grow_table(l, &c->owner->capacity[i], pages, err);
        for (; !status && l->n_pages < pages; l->n_pages++)
            l->pages[l->n_pages] = ht_kv_page_retain(theirs->pages[l->n_pages]);
    }
    if (status) {
        ht_cache_free(c);
        return status;
    }
    c->length = c->owner->reserved = from->length;
    c->is_long = from->is_long;
    c->owner->short_length = from->owner->short_length;
    c->owner->has_states = from->owner->has_states;
    c->owner->previous = -1;
    c->owner->written = from->owner->written;
    c->owner->account = from->owner->account;
    memcpy(c->owner->first, from->owner->first, (size_t)c->n_layers * sizeof *c->owner->first);
    *out = c;
    return HT_OK;
}

void ht_cache_set_account(ht_cache *c, ht_kv_account *account) { c->owner->account = account; }

void ht_cache_free(ht_cache *c) {
    if (!c) return;
    for (int32_t i = 0; c->layer && c->owner && i < c->n_layers; i++) {
        c->owner->reserved = c->owner->written = 0;
        drop_pages(c, i);
        free(c->layer[i].pages);
    }
    if (c->owner) {
        free(c->owner->capacity);
        free(c->owner->first);
        ht_device_free(c->owner->device);
    }
    free(c->owner);
    free(c->layer);
    free(c);
}
