/* Saving and restoring sessions (hearth/state.h). */
#include "base/checked.h"
#include "base/error.h"
#include "base/plural.h"
#include "device/device.h"
#include "generate/session_internal.h"
#include "generate/state_file.h"
#include "models/pack.h"

#include <hearth/state.h>

#include <stdlib.h>
#include <string.h>

/* ---- saving ---- */

enum { TOKENS_HEAD = 16, PAGES_HEAD = 8, SNAPSHOT_BYTES = 8, MOST_SNAPSHOTS = 128 };

/* Sections besides those of layers. */
static uint32_t n_others(const ht_session *s) { return 2 + ht_cache_has_states(s->cache); }

/* Positions to save: none if the session will recompute them (ht_cache_begin). The number of tokens then implies the
 * kind of sequence that the saved positions are of. */
static int64_t saved_length(const ht_session *s) {
    return ht_cache_is_for(s->cache, s->n_tokens) ? s->cache->length : 0;
}

/* Numbers of positions computed and of tokens, then the tokens. */
static ht_status save_tokens(const ht_session *s, ht_state_writer *w, ht_error *err) {
    const size_t n = (size_t)s->n_tokens, bytes = TOKENS_HEAD + 4 * n;
    unsigned char *section = malloc(bytes);
    if (!section) return ht_fail_memory(err, bytes, "a state file");
    ht_state_put_number(section, (uint64_t)saved_length(s), 8);
    ht_state_put_number(section + 8, n, 8);
    for (size_t i = 0; i < n; i++) ht_state_put_number(section + TOKENS_HEAD + 4 * i, (uint32_t)s->token[i], 4);
    ht_status status = ht_state_writer_begin(w, HT_STATE_TOKENS, 0, err);
    if (!status) status = ht_state_writer_put(w, section, bytes, err);
    free(section);
    return status;
}

/* Snapshots to save; that of all positions is no other state. */
static int64_t saved_snapshots(const ht_session *s) {
    int64_t n = ht_cache_snapshots(s->cache);
    while (n > 0 && ht_cache_snapshot_at(s->cache, n - 1) >= saved_length(s)) n--;
    return n;
}

/* Positions of snapshots. */
static ht_status save_snapshots(const ht_session *s, ht_state_writer *w, ht_error *err) {
    unsigned char position[SNAPSHOT_BYTES];
    if (!ht_cache_has_states(s->cache)) return HT_OK;
    ht_status status = ht_state_writer_begin(w, HT_STATE_SNAPSHOTS, 0, err);
    for (int64_t i = 0; i < saved_snapshots(s) && !status; i++) {
        ht_state_put_number(position, (uint64_t)ht_cache_snapshot_at(s->cache, i), SNAPSHOT_BYTES);
        status = ht_state_writer_put(w, position, SNAPSHOT_BYTES, err);
    }
    return status;
}

/* The states of a layer in the snapshots, then that after all positions. */
static ht_status save_states(const ht_session *s, int32_t i, ht_state_writer *w, char *buffer, ht_error *err) {
    const ht_kv_shape *shape = &s->cache->layer[i].shape;
    const int64_t length = saved_length(s), n = saved_snapshots(s) + (length > 0);
    ht_device *d = s->model->device;
    ht_status status = ht_state_writer_begin(w, HT_STATE_PAGES, (uint64_t)i, err);
    for (int64_t k = 0; k < n && !status; k++) {
        const int64_t position = k < saved_snapshots(s) ? ht_cache_snapshot_at(s->cache, k) : length;
        status = d->kv->read(d, shape, ht_cache_page(s->cache, i, position), 0, 1, buffer, err);
        if (!status) status = ht_state_writer_put(w, buffer, ht_kv_saved_bytes(shape), err);
    }
    return status;
}

/* The first position of a layer that the cache holds, then all from there on. */
static ht_status save_layer(const ht_session *s, int32_t i, ht_state_writer *w, char *buffer, ht_error *err) {
    const ht_kv_layer *l = &s->cache->layer[i];
    if (l->shape.state) return save_states(s, i, w, buffer, err);
    const int64_t length = saved_length(s), first = length ? ht_cache_first(s->cache, i) : 0;
    const size_t each = ht_kv_saved_bytes(&l->shape);
    ht_device *d = s->model->device;
    unsigned char head[PAGES_HEAD];
    ht_state_put_number(head, (uint64_t)first, 8);
    ht_status status = ht_state_writer_begin(w, HT_STATE_PAGES, (uint64_t)i, err);
    if (!status) status = ht_state_writer_put(w, head, sizeof head, err);
    for (int64_t pos = first, n; !status && pos < length; pos += n) {
        n = ht_min_i64(HT_KV_PAGE - pos % HT_KV_PAGE, length - pos);
        status = d->kv->read(d, &l->shape, l->pages[ht_kv_page_of(l, pos)], pos % HT_KV_PAGE, n, buffer, err);
        if (!status) status = ht_state_writer_put(w, buffer, (size_t)n * each, err);
    }
    return status;
}

static ht_status save_to(const ht_session *s, ht_state_writer *w, ht_error *err) {
    const size_t buffer_bytes = ht_state_buffer_bytes(s->model->kv, s->model->n_cache_layers);
    const ht_session_adapters none = {0}, *a = s->adapters ? s->adapters : &none;
    char *buffer = malloc(buffer_bytes);
    ht_status status = buffer ? HT_OK : ht_fail_memory(err, buffer_bytes, "a state file");
    if (!status) status = ht_state_put_origin(w, s->model, a->adapter, a->scale, a->n, err);
    if (!status) status = save_tokens(s, w, err);
    if (!status) status = save_snapshots(s, w, err);
    for (int32_t i = 0; !status && i < s->cache->n_layers; i++) status = save_layer(s, i, w, buffer, err);
    free(buffer);
    return status;
}

ht_status ht_session_save(const ht_session *s, const char *path, ht_error *err) {
    ht_state_writer *w;
    ht_status status = ht_state_writer_open(path, (uint32_t)s->cache->n_layers + n_others(s), &w, err);
    if (status) return status;
    status = save_to(s, w, err);
    if (!status) return ht_state_writer_commit(w, err);
    ht_state_writer_discard(w);
    return status;
}

/* ---- restoring ---- */

typedef struct restored {
    const char *path;
    ht_state_file file;
    int64_t length, n_tokens;
    int32_t *token;
    int64_t n_snapshots, snapshot[MOST_SNAPSHOTS];
    ht_cache *cache;
    ht_device *device; /* of the cache */
} restored;

static ht_status find(const restored *r, uint64_t kind, uint64_t index, const ht_state_section **out, ht_error *err) {
    *out = ht_state_file_find(&r->file, kind, index);
    return *out ? HT_OK : ht_state_damaged(&r->file, "a section is missing, or there twice", err);
}

static ht_status check_origin(const restored *r, const ht_session *s, ht_error *err) {
    const ht_session_adapters none = {0}, *a = s->adapters ? s->adapters : &none;
    ht_status status = ht_state_check_origin(&r->file, s->model, a->adapter, a->scale, a->n, "session", err);
    if (!status && ht_state_file_find(&r->file, HT_STATE_CACHE, 0))
        status = ht_fail(err, HT_ERR_ARGUMENT, "%s holds an engine's prefix cache, not a session", r->path);
    if (!status && r->file.n != (uint32_t)s->cache->n_layers + n_others(s))
        status = ht_state_damaged(&r->file, "it has sections that belong to nothing", err);
    return status;
}

static ht_status load_tokens(restored *r, const ht_session *s, ht_error *err) {
    const int64_t context = s->model->context;
    const ht_state_section *section;
    char *bytes = NULL;
    ht_status status = find(r, HT_STATE_TOKENS, 0, &section, err);
    if (!status && section->bytes < TOKENS_HEAD)
        status = ht_state_damaged(&r->file, "it holds no number of tokens", err);
    if (!status && (section->bytes - TOKENS_HEAD) / 4 > (uint64_t)context)
        status = ht_fail(err, HT_ERR_LIMIT, "%s holds %llu token%s, and the session's context has %lld position%s",
                         r->path, (unsigned long long)((section->bytes - TOKENS_HEAD) / 4),
                         ht_plural((unsigned long long)((section->bytes - TOKENS_HEAD) / 4)), (long long)context,
                         ht_plural(context));
    if (!status) status = ht_state_file_read_all(&r->file, section, (size_t)section->bytes, &bytes, err);
    if (status) return status;
    const unsigned char *at = (const unsigned char *)bytes;
    const uint64_t length = ht_state_get_number(at, 8), n = ht_state_get_number(at + 8, 8);
    if (n != (section->bytes - TOKENS_HEAD) / 4 || (section->bytes - TOKENS_HEAD) % 4 || length > n)
        status = ht_state_damaged(&r->file, "its numbers of tokens are not what it holds", err);
    else if (!(r->token = malloc((size_t)n * sizeof *r->token + 1)))
        status = ht_fail_memory(err, (size_t)n * sizeof *r->token, "a session's tokens");
    for (uint64_t i = 0; !status && i < n; i++) {
        r->token[i] = (int32_t)(uint32_t)ht_state_get_number(at + TOKENS_HEAD + 4 * i, 4);
        if (r->token[i] < 0 || r->token[i] >= s->model->vocab)
            status = ht_state_damaged(&r->file, "a token is not in the vocabulary", err);
    }
    free(bytes);
    r->length = (int64_t)length;
    r->n_tokens = (int64_t)n;
    return status;
}

static ht_status load_snapshots(restored *r, const ht_session *s, ht_error *err) {
    const ht_state_section *section;
    char *bytes = NULL;
    if (!ht_cache_has_states(s->cache)) return HT_OK;
    ht_status status = find(r, HT_STATE_SNAPSHOTS, 0, &section, err);
    if (!status) status = ht_state_file_read_all(&r->file, section, sizeof r->snapshot, &bytes, err);
    if (!status && section->bytes % SNAPSHOT_BYTES)
        status = ht_state_damaged(&r->file, "positions of snapshots are not whole numbers", err);
    for (int64_t before = 0; !status && (uint64_t)r->n_snapshots < section->bytes / SNAPSHOT_BYTES; r->n_snapshots++) {
        const unsigned char *at = (const unsigned char *)bytes + r->n_snapshots * SNAPSHOT_BYTES;
        const uint64_t position = ht_state_get_number(at, SNAPSHOT_BYTES);
        if (position <= (uint64_t)before || position >= (uint64_t)r->length)
            status = ht_state_damaged(&r->file, "snapshots are not in order of position", err);
        before = r->snapshot[r->n_snapshots] = (int64_t)position;
    }
    free(bytes);
    return status;
}

/* The first position of a layer's section, whose size must be that of all from there on. */
static ht_status first_of(const restored *r, const ht_kv_layer *l, const ht_state_section *section, ht_state_sum *sum,
                          int64_t *first, ht_error *err) {
    unsigned char head[PAGES_HEAD];
    *sum = ht_state_sum_begin(section->kind, section->index);
    ht_status status = ht_state_file_read(&r->file, section, 0, head, sizeof head, sum, err);
    if (status) return status;
    const uint64_t at = ht_state_get_number(head, 8);
    const uint64_t least = l->ring_pages ? (uint64_t)ht_kv_first_visible(l, r->length) : 0;
    if (at > least) return ht_state_damaged(&r->file, "keys that the next token attends to are missing", err);
    *first = (int64_t)at;
    if (section->bytes != PAGES_HEAD + (uint64_t)(r->length - *first) * ht_kv_saved_bytes(&l->shape))
        return ht_state_damaged(&r->file, "a layer does not hold as many positions as there are", err);
    return HT_OK;
}

/* Finds the section of a layer of states, whose size must be that of all snapshots and the last states. */
static ht_status find_states(const restored *r, int32_t i, const ht_state_section **out, ht_error *err) {
    const uint64_t n = (uint64_t)r->n_snapshots + (r->length > 0);
    ht_status status = find(r, HT_STATE_PAGES, (uint64_t)i, out, err);
    if (!status && (*out)->bytes != n * ht_kv_saved_bytes(&r->cache->layer[i].shape))
        status = ht_state_damaged(&r->file, "a layer does not hold as many states as there are", err);
    return status;
}

static ht_status load_states(const restored *r, ht_device *d, int32_t i, ht_error *err) {
    const ht_kv_shape *shape = &r->cache->layer[i].shape;
    const int64_t n = r->n_snapshots + (r->length > 0);
    const size_t each = ht_kv_saved_bytes(shape);
    const ht_state_section *section;
    ht_status status = find_states(r, i, &section, err);
    if (status) return status;
    char *buffer = malloc(each);
    ht_state_sum sum = ht_state_sum_begin(section->kind, section->index);
    if (!buffer) status = ht_fail_memory(err, each, "a state file");
    for (int64_t k = 0; k < n && !status; k++) {
        ht_kv_page *page = ht_cache_page(r->cache, i, k < r->n_snapshots ? r->snapshot[k] : r->length);
        status = ht_state_file_read(&r->file, section, (uint64_t)k * each, buffer, each, &sum, err);
        if (!status) status = d->kv->write(d, shape, page, 0, 1, buffer, err);
    }
    free(buffer);
    return status ? status : ht_state_file_check(&r->file, section, &sum, err);
}

static ht_status load_layer(restored *r, ht_device *d, int32_t i, ht_error *err) {
    const ht_kv_layer *l = &r->cache->layer[i];
    const ht_state_section *section;
    const size_t each = ht_kv_saved_bytes(&l->shape);
    int64_t first = 0;
    if (l->shape.state) return load_states(r, d, i, err);
    ht_state_sum sum;
    ht_status status = find(r, HT_STATE_PAGES, (uint64_t)i, &section, err);
    if (!status) status = first_of(r, l, section, &sum, &first, err);
    char *buffer = status ? NULL : malloc(HT_KV_PAGE * each + 1);
    if (!status && !buffer) status = ht_fail_memory(err, HT_KV_PAGE * each, "a state file");
    const int64_t held = ht_cache_first(r->cache, i); /* a shorter ring than the saved one's drops what is before */
    for (int64_t pos = first, n; !status && pos < r->length; pos += n) {
        n = ht_min_i64(HT_KV_PAGE - pos % HT_KV_PAGE, r->length - pos);
        ht_kv_page *page = pos + n > held ? l->pages[ht_kv_page_of(l, pos)] : NULL;
        const uint64_t at = PAGES_HEAD + (uint64_t)(pos - first) * each;
        status = ht_state_file_read(&r->file, section, at, buffer, (size_t)n * each, &sum, err);
        if (!status && page) status = d->kv->write(d, &l->shape, page, pos % HT_KV_PAGE, n, buffer, err);
    }
    if (!status) status = ht_state_file_check(&r->file, section, &sum, err);
    if (!status) ht_cache_forget_before(r->cache, i, first);
    free(buffer);
    return status;
}

static ht_status load_piece(void *arg, int64_t i, int worker, ht_error *err) {
    restored *r = arg;
    (void)worker;
    return load_layer(r, r->device, (int32_t)i, err);
}

static ht_status load_cache(restored *r, const ht_session *s, ht_error *err) {
    ht_device *d = s->model->device;
    ht_status status = ht_session_new_cache(s->model, s->chunk, &r->cache, err);
    if (!status) ht_cache_begin(r->cache, r->n_tokens);
    for (int32_t i = 0; !status && i < r->cache->n_layers; i++) { /* before there is memory for them */
        const ht_state_section *section;
        if (r->cache->layer[i].shape.state) status = find_states(r, i, &section, err);
    }
    if (!status) status = ht_cache_reserve(r->cache, r->length, err);
    for (int64_t i = 0; i < r->n_snapshots && !status; i++)
        status = ht_cache_new_snapshot(r->cache, r->snapshot[i], err);
    if (status) return status;
    r->cache->length = r->length;
    r->device = d;
    status = ht_pack_in_pieces(r->cache->n_layers, load_piece, r, NULL, d, err);
    return status ? status : ht_device_settle(d, err);
}

ht_status ht_session_load(ht_session *s, const char *path, ht_error *err) {
    restored r = {.path = path};
    ht_status status = ht_state_file_open(path, &r.file, err);
    if (!status) status = check_origin(&r, s, err);
    if (!status) status = load_tokens(&r, s, err);
    if (!status) status = load_snapshots(&r, s, err);
    if (!status) status = load_cache(&r, s, err);
    if (!status) status = ht_session_take(s, r.token, r.n_tokens, r.cache, err);
    if (status) ht_cache_free(r.cache);
    free(r.token);
    ht_state_file_close(&r.file);
    return status;
}
