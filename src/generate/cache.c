#include "generate/cache.h"

#include "base/checked.h"
#include "base/error.h"
#include "base/grow.h"
#include "base/plural.h"
#include "checkpoint/kv_size.h"
#include "device/device.h"
#include "generate/snapshots.h"

#include <stdlib.h>
#include <string.h>

/* The states after some positions. */
typedef struct snapshot {
    int64_t position;
    ht_kv_page **page; /* [n_layers]; NULL: the layer has no states */
} snapshot;

typedef struct ht_cache_owner {
    ht_device *device;      /* held */
    ht_kv_account *account; /* of its pages; NULL: none */
    int64_t short_length;   /* of the model */
    int64_t reserved;       /* positions for which there are pages */
    int64_t written;        /* a step may have written positions up to this - 1: what the rings hold ends here */
    bool has_states;        /* there are layers of states */
    int64_t previous;       /* positions of the states in the second pages, those before the last step; -1: of none */
    snapshot *snapshot;     /* [n_snapshots] in order of position */
    int64_t n_snapshots;
    size_t snapshot_capacity;
    bool takes_snapshot; /* the next step begins with a snapshot */
    int64_t mark;        /* position that is kept like a message's end; -1: none */
    int64_t *capacity;   /* [n_layers] of the page tables */
    int64_t *first;      /* [n_layers] position before which a restored ring holds nothing */
} ht_cache_owner;

/* ---- sizes ---- */

size_t ht_cache_bytes(const ht_model *m, int64_t positions, int32_t chunk) {
    return ht_kv_bytes(m->kv, m->n_cache_layers, m->kv_dtype, m->device->kv->page_bytes, positions, chunk, m->context);
}

static size_t page_bytes(const ht_cache *c, int32_t i) { return c->owner->device->kv->page_bytes(&c->layer[i].shape); }

/* Pages of a layer of states, each counted once: snapshots share those of the states before and after the last step. */
static int64_t state_pages(const ht_cache *c, int32_t layer) {
    const ht_kv_layer *l = &c->layer[layer];
    int64_t n = l->n_pages;
    for (int64_t i = 0; i < c->owner->n_snapshots; i++) {
        bool is_shared = false;
        for (int64_t k = 0; k < l->n_pages; k++) is_shared |= l->pages[k] == c->owner->snapshot[i].page[layer];
        n += !is_shared;
    }
    return n;
}

size_t ht_cache_held_bytes(const ht_cache *c) {
    size_t total = 0;
    for (int32_t i = 0; i < c->n_layers; i++) {
        const int64_t pages = c->layer[i].shape.state ? state_pages(c, i) : c->layer[i].n_pages;
        total += (size_t)pages * page_bytes(c, i);
    }
    return total;
}

bool ht_cache_has_states(const ht_cache *c) { return c->owner->has_states; }

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
        if (l->shape.state && l->n_pages > 0) /* the next step writes it */
            status = ht_kv_page_alloc(c->owner->device, &l->shape, c->owner->account, &page, err);
        else
            status = ht_kv_page_new(c->owner->device, &l->shape, c->owner->account, &page, err);
        if (status == HT_OK) l->pages[l->n_pages++] = page;
    }
    return status;
}

static void set_page(ht_cache *c, ht_kv_layer *l, int64_t at, ht_kv_page *page) {
    ht_kv_page_release(c->owner->device, &l->shape, l->pages[at]);
    l->pages[at] = page;
}

/* Replaces the state that the next step writes, if it is shared. */
static ht_status unshare_state(ht_cache *c, ht_kv_layer *l, ht_error *err) {
    ht_kv_page *own;
    if (l->n_pages < 2 || !ht_kv_page_is_shared(l->pages[1])) return HT_OK;
    const ht_status status = ht_kv_page_alloc(c->owner->device, &l->shape, c->owner->account, &own, err);
    if (status) return status;
    c->owner->previous = -1;
    set_page(c, l, 1, own);
    return HT_OK;
}

/* Replaces shared pages that the next step writes, up to position `end` - 1, with private copies. */
static ht_status unshare_pages(ht_cache *c, int32_t i, int64_t end, ht_error *err) {
    ht_kv_layer *l = &c->layer[i];
    ht_status status = HT_OK;
    if (l->shape.state) return unshare_state(c, l, err);
    for (int64_t pos = c->length / HT_KV_PAGE * HT_KV_PAGE; pos < end && status == HT_OK; pos += HT_KV_PAGE) {
        ht_kv_page *page = l->pages[ht_kv_page_of(l, pos)], *own;
        if (!ht_kv_page_is_shared(page)) continue;
        status = ht_kv_page_copy(c->owner->device, &l->shape, page, c->owner->account, &own, err);
        if (status) break;
        set_page(c, l, ht_kv_page_of(l, pos), own);
    }
    return status;
}

/* Whether unshare_pages, starting at `first`, copies the page of `pos`: it is shared, perhaps with later ring slots. */
static bool needs_copy(const ht_kv_layer *l, int64_t first, int64_t pos) {
    const ht_kv_page *page = l->pages[ht_kv_page_of(l, pos)];
    int refs = atomic_load_explicit(&page->refs, memory_order_acquire);
    for (int64_t p = first; refs > 1 && p < pos; p += HT_KV_PAGE) refs -= l->pages[ht_kv_page_of(l, p)] == page;
    return refs > 1;
}

/* The position of the last of the first n snapshots that is at no page end; -1: none. */
static int64_t last_message_snapshot(const ht_cache_owner *o, int64_t n) {
    while (n > 0 && ht_snapshot_is_page_end(o->snapshot[n - 1].position)) n--;
    return n > 0 ? o->snapshot[n - 1].position : -1;
}

/* The same of all snapshots, with that of the next step. */
static int64_t last_message(const ht_cache *c) {
    const ht_cache_owner *o = c->owner;
    if (o->takes_snapshot && !ht_snapshot_is_page_end(c->length)) return c->length;
    return last_message_snapshot(o, o->n_snapshots);
}

/* Most snapshots that steps after the next one add on the way to `positions`: one in each interval, and the first at a
 * message end. Later ones at message ends take the place of others. */
static int64_t snapshots_ahead(const ht_cache *c, int64_t positions) {
    int64_t n = last_message(c) < 0;
    for (int64_t unit = HT_KV_PAGE; unit < positions; unit *= 2) n += ht_snapshot_multiple(unit, positions) > c->length;
    return n;
}

/* Pages of states that steps take on the way to `positions`: for states before and after a step that others share, and
 * for snapshots. */
static int64_t state_growth(const ht_cache *c, const ht_kv_layer *l, int64_t positions) {
    int64_t pages = ht_max_i64(0, pages_for(l, positions) - l->n_pages) + snapshots_ahead(c, positions);
    for (int64_t k = 0; k < l->n_pages; k++)
        pages += ht_kv_page_is_shared(l->pages[k]) || (k == 0 && c->owner->takes_snapshot);
    return pages;
}

size_t ht_cache_growth(const ht_cache *c, int64_t positions) {
    size_t bytes = 0;
    for (int32_t i = 0; i < c->n_layers; i++) {
        const ht_kv_layer *l = &c->layer[i];
        if (l->shape.state) {
            bytes += (size_t)state_growth(c, l, positions) * page_bytes(c, i);
            continue;
        }
        int64_t pages = ht_max_i64(0, pages_for(l, positions) - l->n_pages);
        const int64_t first = c->length / HT_KV_PAGE * HT_KV_PAGE;
        const int64_t end = l->ring_pages ? ht_min_i64(positions, first + l->ring_pages * HT_KV_PAGE) : positions;
        for (int64_t pos = first; pos < end; pos += HT_KV_PAGE)
            if (ht_kv_page_of(l, pos) < l->n_pages && needs_copy(l, first, pos)) pages++;
        bytes += (size_t)pages * page_bytes(c, i);
    }
    return bytes;
}

/* ---- snapshots of states ---- */

static void free_snapshot(ht_cache *c, snapshot *s) {
    for (int32_t i = 0; i < c->n_layers; i++) ht_kv_page_release(c->owner->device, &c->layer[i].shape, s->page[i]);
    free(s->page);
}

/* Adds an entry without pages at its place in the order. */
static ht_status add_snapshot(ht_cache *c, int64_t position, snapshot **out, ht_error *err) {
    ht_cache_owner *o = c->owner;
    const size_t n = (size_t)c->n_layers;
    ht_kv_page **page = calloc(n, sizeof(ht_kv_page *));
    if (!page || !HT_GROW(o->snapshot, o->snapshot_capacity, o->n_snapshots + 1)) {
        free(page);
        return ht_fail_memory(err, n * sizeof *page, "a snapshot of states");
    }
    int64_t at = o->n_snapshots++;
    for (; at > 0 && o->snapshot[at - 1].position > position; at--) o->snapshot[at] = o->snapshot[at - 1];
    o->snapshot[at] = (snapshot){position, page};
    *out = &o->snapshot[at];
    return HT_OK;
}

static void remove_snapshot(ht_cache *c, int64_t at) {
    ht_cache_owner *o = c->owner;
    free_snapshot(c, &o->snapshot[at]);
    o->n_snapshots--;
    memmove(o->snapshot + at, o->snapshot + at + 1, (size_t)(o->n_snapshots - at) * sizeof *o->snapshot);
}

static const snapshot *find_snapshot(const ht_cache *c, int64_t position) {
    for (int64_t i = 0; i < c->owner->n_snapshots; i++)
        if (c->owner->snapshot[i].position == position) return &c->owner->snapshot[i];
    return NULL;
}

static ht_status take_snapshot(ht_cache *c, ht_error *err) {
    snapshot *s;
    const ht_status status = add_snapshot(c, c->length, &s, err);
    for (int32_t i = 0; i < c->n_layers && !status; i++)
        if (c->layer[i].shape.state) s->page[i] = ht_kv_page_retain(c->layer[i].pages[0]);
    return status;
}

ht_status ht_cache_new_snapshot(ht_cache *c, int64_t position, ht_error *err) {
    snapshot *s;
    ht_status status = add_snapshot(c, position, &s, err);
    for (int32_t i = 0; i < c->n_layers && !status; i++)
        if (c->layer[i].shape.state)
            status = ht_kv_page_alloc(c->owner->device, &c->layer[i].shape, c->owner->account, &s->page[i], err);
    return status;
}

int64_t ht_cache_snapshots(const ht_cache *c) { return c->owner->n_snapshots; }
int64_t ht_cache_snapshot_at(const ht_cache *c, int64_t i) { return c->owner->snapshot[i].position; }

void ht_cache_drop_snapshots(ht_cache *c) {
    while (c->owner->n_snapshots > 0) remove_snapshot(c, c->owner->n_snapshots - 1);
}

/* Removes the snapshots that a sequence of `end` tokens does not keep once the next step has taken its own. */
static void thin_snapshots(ht_cache *c, int64_t end) {
    ht_cache_owner *o = c->owner;
    int64_t after = o->takes_snapshot && !ht_snapshot_is_page_end(c->length) ? c->length : -1;
    for (int64_t i = o->n_snapshots - 1; i >= 0; i--) {
        const int64_t position = o->snapshot[i].position;
        if (!ht_snapshot_stays(position, last_message_snapshot(o, i), after, end))
            remove_snapshot(c, i);
        else if (!ht_snapshot_is_page_end(position))
            after = position;
    }
}

void ht_cache_mark(ht_cache *c, int64_t position) { c->owner->mark = position; }

int64_t ht_cache_plan(ht_cache *c, const ht_model *m, const int32_t *token, int64_t n, int64_t end, int64_t step_end) {
    ht_cache_owner *o = c->owner;
    if (!o->has_states) return step_end;
    ht_snapshot_plan p = {.token = token,
                          .n = n,
                          .end = end,
                          .stop_ids = m->stop_ids,
                          .n_stop_ids = m->n_stop_ids,
                          .mark = o->mark,
                          .last_message = last_message_snapshot(o, o->n_snapshots)};
    o->takes_snapshot =
        c->length > 0 && !find_snapshot(c, c->length) && ht_snapshot_next(&p, c->length, c->length + 1) == c->length;
    p.last_message = last_message(c);
    thin_snapshots(c, end);
    return ht_snapshot_next(&p, c->length + 1, step_end);
}

/* ---- steps ---- */

static ht_status reserve_pages(ht_cache *c, int64_t positions, ht_error *err) {
    ht_status status = HT_OK;
    int32_t i = 0;
    for (; i < c->n_layers && status == HT_OK; i++) {
        int64_t pages = pages_for(&c->layer[i], positions);
        status = add_pages(c, i, ht_max_i64(pages, c->layer[i].n_pages), err);
        if (status == HT_OK) status = unshare_pages(c, i, positions, err);
    }
    while (status && i-- > 0) drop_pages(c, i);
    return status;
}

ht_status ht_cache_reserve(ht_cache *c, int64_t positions, ht_error *err) {
    ht_cache_owner *o = c->owner;
    ht_status status = o->takes_snapshot ? take_snapshot(c, err) : HT_OK;
    const bool taken = o->takes_snapshot && !status;
    if (!status) status = reserve_pages(c, positions, err);
    if (status) {
        if (taken) remove_snapshot(c, o->n_snapshots - 1);
        return ht_fail_in(err, status, "the KV cache cannot grow from %lld to %lld position%s", (long long)c->length,
                          (long long)positions, ht_plural(positions));
    }
    o->takes_snapshot = false;
    o->reserved = ht_max_i64(o->reserved, positions);
    o->written = ht_max_i64(o->written, positions);
    o->previous = -1; /* the step writes there */
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

static ht_kv_page *state_page(const ht_cache *c, int32_t layer, int64_t position) {
    const snapshot *s = find_snapshot(c, position);
    if (s) return s->page[layer];
    return position == c->length && position > 0 ? c->layer[layer].pages[0] : NULL;
}

ht_kv_page *ht_cache_page(const ht_cache *c, int32_t layer, int64_t index) {
    const ht_kv_layer *l = &c->layer[layer];
    if (l->shape.state) return state_page(c, layer, index);
    const int64_t at = ht_kv_page_of(l, index * HT_KV_PAGE);
    if (at >= l->n_pages || index * HT_KV_PAGE < ht_cache_first(c, layer)) return NULL;
    return l->pages[at];
}

/* Gives layer i references to the pages of n positions. Ring slots before the first available page share that page:
 * they must hold numbers, and are copied before they are written. */
static ht_status adopt_layer(ht_cache *c, int32_t i, int64_t n, ht_cache_page_fn *page_of, void *user, ht_error *err) {
    ht_kv_layer *l = &c->layer[i];
    const int64_t pages = ht_ceil_div_i64(n, HT_KV_PAGE), held = l->shape.state ? 1 : ht_kv_pages(l->ring_pages, n);
    int64_t first = pages;
    ht_status status = grow_table(l, &c->owner->capacity[i], held, err);
    if (status) return status;
    if (l->shape.state) {
        l->pages[l->n_pages++] = ht_kv_page_retain(page_of(user, i, n));
        return HT_OK;
    }
    while (first > pages - held && page_of(user, i, first - 1)) first--;
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
        if (l->shape.state && !page_of(user, i, n)) return false;
        if (l->shape.state) continue;
        const int64_t needed = l->ring_pages ? ht_max_i64(0, ht_min_i64(ht_kv_first_visible(l, n), n - 1)) : 0;
        for (int64_t p = needed / HT_KV_PAGE; p * HT_KV_PAGE < n; p++)
            if (!page_of(user, i, p)) return false;
    }
    return true;
}

ht_status ht_cache_adopt(ht_cache *c, int64_t n, ht_cache_page_fn *page_of, void *user, ht_error *err) {
    ht_status status = HT_OK;
    ht_cache_truncate(c, 0); /* it may have reserved pages */
    for (int32_t i = 0; i < c->n_layers && !status; i++) status = adopt_layer(c, i, n, page_of, user, err);
    if (status) {
        ht_cache_truncate(c, 0);
        return status;
    }
    c->length = c->owner->reserved = c->owner->written = n;
    return HT_OK;
}

void ht_cache_forget_before(ht_cache *c, int32_t layer, int64_t first) { c->owner->first[layer] = first; }

int64_t ht_cache_kept(const ht_cache *c, int64_t n) {
    const ht_cache_owner *o = c->owner;
    int64_t at = n;
    if (o->has_states && n < c->length) {
        at = o->previous <= n ? ht_max_i64(o->previous, 0) : 0;
        for (int64_t i = 0; i < o->n_snapshots; i++)
            if (o->snapshot[i].position <= n) at = ht_max_i64(at, o->snapshot[i].position);
    }
    for (int32_t i = 0; i < c->n_layers && at > 0; i++)
        if (c->layer[i].ring_pages && ht_kv_first_visible(&c->layer[i], at) < ht_cache_first(c, i)) at = 0;
    return at;
}

/* Makes the states those after n positions. */
static void restore_states(ht_cache *c, int64_t n) {
    if (n == c->owner->previous) {
        swap_states(c);
    } else {
        const snapshot *s = find_snapshot(c, n);
        for (int32_t i = 0; i < c->n_layers && s; i++)
            if (c->layer[i].shape.state) set_page(c, &c->layer[i], 0, ht_kv_page_retain(s->page[i]));
    }
    c->owner->previous = -1;
}

void ht_cache_truncate(ht_cache *c, int64_t n) {
    ht_cache_owner *o = c->owner;
    bool wrapped = false;
    n = ht_cache_kept(c, n);
    if (o->has_states && n < c->length) restore_states(c, n);
    while (o->n_snapshots > 0 && (n == 0 || o->snapshot[o->n_snapshots - 1].position > n))
        remove_snapshot(c, o->n_snapshots - 1);
    for (int32_t i = 0; i < c->n_layers && n > 0; i++)
        wrapped = wrapped || (c->layer[i].ring_pages && ht_cache_first(c, i) > 0);
    /* A ring that wrapped keeps its pages and where it was written: what dropped positions pushed out is gone. */
    if (!wrapped) o->written = n;
    for (int32_t i = 0; i < c->n_layers && n == 0; i++) o->first[i] = 0;
    o->reserved = n;
    for (int32_t i = 0; i < c->n_layers; i++) drop_pages(c, i);
    c->length = n;
    o->takes_snapshot = false;
}

/* ---- short and long sequences ---- */

bool ht_cache_is_for(const ht_cache *c, int64_t n) { return c->is_long == (n > c->owner->short_length); }

void ht_cache_begin(ht_cache *c, int64_t n) {
    if (ht_cache_is_for(c, n)) return;
    ht_cache_truncate(c, 0);
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
    c->owner->previous = c->owner->mark = -1;
    *out = c;
    return HT_OK;
}

ht_status ht_cache_new(const ht_model *m, int32_t chunk, ht_cache **out, ht_error *err) {
    ht_cache *c;
    ht_status status = new_cache(m->device, m->n_cache_layers, &c, err);
    *out = NULL;
    if (!status) c->owner->short_length = m->short_length;
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

static ht_status share_snapshots(ht_cache *c, const ht_cache *from, ht_error *err) {
    ht_status status = HT_OK;
    for (int64_t i = 0; i < from->owner->n_snapshots && !status; i++) {
        const snapshot *theirs = &from->owner->snapshot[i];
        snapshot *s;
        status = add_snapshot(c, theirs->position, &s, err);
        for (int32_t l = 0; l < c->n_layers && !status; l++)
            if (theirs->page[l]) s->page[l] = ht_kv_page_retain(theirs->page[l]);
    }
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
    if (!status) status = share_snapshots(c, from, err);
    if (status) {
        ht_cache_free(c);
        return status;
    }
    c->length = c->owner->reserved = from->length;
    c->is_long = from->is_long;
    c->owner->short_length = from->owner->short_length;
    c->owner->has_states = from->owner->has_states;
    c->owner->mark = from->owner->mark;
    c->owner->written = from->owner->written;
    c->owner->account = from->owner->account;
    memcpy(c->owner->first, from->owner->first, (size_t)c->n_layers * sizeof *c->owner->first);
    *out = c;
    return HT_OK;
}

void ht_cache_set_account(ht_cache *c, ht_kv_account *account) { c->owner->account = account; }

void ht_cache_free(ht_cache *c) {
    if (!c) return;
    if (c->owner) ht_cache_drop_snapshots(c);
    for (int32_t i = 0; c->layer && c->owner && i < c->n_layers; i++) {
        c->owner->reserved = c->owner->written = 0;
        drop_pages(c, i);
        free(c->layer[i].pages);
    }
    if (c->owner) {
        free(c->owner->capacity);
        free(c->owner->first);
        free(c->owner->snapshot);
        ht_device_free(c->owner->device);
    }
    free(c->owner);
    free(c->layer);
    free(c);
}
