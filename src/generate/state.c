/* Saving and restoring sessions (hearth/state.h). Origins are compared as texts, line by line, so that a file needs no parser
 * for them, and a difference can be shown as it is. */
#include "base/checked.h"
#include "base/error.h"
#include "base/text.h"
#include "device/device.h"
#include "generate/session_internal.h"
#include "generate/state_file.h"
#include "models/pack.h"

#include <hearth/adapter.h>
#include <hearth/state.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ORIGIN_LIMIT = 16 << 20 };

/* ---- where a state comes from ---- */

static uint64_t tokenizer_digest(const ht_tokenizer *t) {
    ht_digest d = {11, 12};
    for (int32_t id = 0, n = t ? ht_tokenizer_vocab_size(t) : 0; id < n; id++) {
        const char *piece = ht_tokenizer_piece(t, id);
        ht_digest_text(&d, piece ? piece : "");
    }
    return d.a ^ d.b;
}

static uint64_t adapter_digest(const ht_adapter *a) {
    ht_digest d = {13, 14};
    for (int64_t i = 0; i < a->n; i++) {
        const ht_lora *l = &a->lora[i];
        const size_t n = (size_t)(ht_max_i64(1, l->n_experts) * l->rank) * sizeof(float);
        ht_digest_text(&d, l->slot);
        ht_digest_bytes(&d, &l->scale, sizeof l->scale);
        ht_digest_bytes(&d, l->a, n * (size_t)l->n_in);
        ht_digest_bytes(&d, l->b, n * (size_t)l->n_out);
    }
    return d.a ^ d.b;
}

static const char *precision_name(ht_precision p) {
    return p == HT_PRECISION_HIGH ? "high" : p == HT_PRECISION_FAST ? "fast" : "reference";
}

/* All that the keys and values depend on beside the tokens; the caller frees *out. */
static ht_status origin_of(const ht_session *s, char **out, ht_error *err) {
    const ht_model *m = s->model;
    char fingerprint[HT_FINGERPRINT_SIZE];
    char *text = NULL;
    size_t size = 0;
    ht_status status = ht_model_fingerprint(m, fingerprint, err);
    *out = NULL;
    if (status) return status;
    FILE *f = open_memstream(&text, &size);
    if (!f) return ht_fail_memory(err, 1, "a state file");
    fprintf(f, "model %s %s\ntokenizer %016llx\nprecision %s\nkeys and values %s\n", m->architecture, fingerprint,
            (unsigned long long)tokenizer_digest(m->tokenizer), precision_name(m->precision),
            ht_dtype_name(m->kv_dtype));
    for (int32_t i = 0; i < m->n_kv_layers; i++)
        fprintf(f, "layer %d of %d heads of %d, window %lld\n", (int)i, (int)m->kv[i].shape.n_kv_heads,
                (int)m->kv[i].shape.head_dim, (long long)m->kv[i].window);
    for (int i = 0; s->adapters && i < s->adapters->n; i++)
        fprintf(f, "adapter %016llx times %.9g\n", (unsigned long long)adapter_digest(s->adapters->adapter[i]),
                (double)s->adapters->scale[i]);
    const bool failed = ferror(f) != 0;
    if (fclose(f) != 0 || failed || !text) {
        free(text);
        return ht_fail_memory(err, size, "a state file");
    }
    *out = text;
    return HT_OK;
}

/* Shows the first line in which the two differ. */
static ht_status compare_origins(const char *path, const char *file, const char *session, ht_error *err) {
    while (*file && *session) {
        const size_t n = strcspn(file, "\n"), m = strcspn(session, "\n");
        if (n != m || memcmp(file, session, n) != 0)
            return ht_fail(err, HT_ERR_ARGUMENT, "%s was saved with \"%.*s\", and this session has \"%.*s\"", path,
                           (int)ht_min_size(n, 200), file, (int)ht_min_size(m, 200), session);
        file += n + (file[n] == '\n');
        session += m + (session[m] == '\n');
    }
    if (!*file && !*session) return HT_OK;
    const char *rest = *file ? file : session;
    return ht_fail(err, HT_ERR_ARGUMENT, "%s was saved with%s \"%.*s\", and this session is with%s", path,
                   *file ? "" : "out", (int)ht_min_size(strcspn(rest, "\n"), 200), rest, *file ? "out" : " it");
}

/* ---- saving ---- */

enum { TOKENS_HEAD = 16, PAGES_HEAD = 8 };

/* Numbers of positions computed and of tokens, then the tokens. */
static ht_status save_tokens(const ht_session *s, ht_state_writer *w, ht_error *err) {
    const size_t n = (size_t)s->n_tokens, bytes = TOKENS_HEAD + 4 * n;
    unsigned char *section = malloc(bytes);
    if (!section) return ht_fail_memory(err, bytes, "a state file");
    ht_state_put_number(section, (uint64_t)s->cache->length, 8);
    ht_state_put_number(section + 8, n, 8);
    for (size_t i = 0; i < n; i++) ht_state_put_number(section + TOKENS_HEAD + 4 * i, (uint32_t)s->token[i], 4);
    ht_status status = ht_state_writer_begin(w, HT_STATE_TOKENS, 0, err);
    if (!status) status = ht_state_writer_put(w, section, bytes, err);
    free(section);
    return status;
}

/* The first position of a layer that the cache holds, then all from there on. */
static ht_status save_layer(const ht_session *s, int32_t i, ht_state_writer *w, char *room, ht_error *err) {
    const ht_kv_layer *l = &s->cache->layer[i];
    const int64_t first = ht_cache_first(s->cache, i);
    ht_device *d = s->model->device;
    unsigned char head[PAGES_HEAD];
    ht_state_put_number(head, (uint64_t)first, 8);
    ht_status status = ht_state_writer_begin(w, HT_STATE_PAGES, (uint64_t)i, err);
    if (!status) status = ht_state_writer_put(w, head, sizeof head, err);
    for (int64_t pos = first, n; !status && pos < s->cache->length; pos += n) {
        n = ht_min_i64(HT_KV_PAGE - pos % HT_KV_PAGE, s->cache->length - pos);
        status = d->kv->read(d, &l->shape, l->pages[ht_kv_page_of(l, pos)], pos % HT_KV_PAGE, n, room, err);
        if (!status) status = ht_state_writer_put(w, room, (size_t)n * ht_kv_saved_bytes(&l->shape), err);
    }
    return status;
}

/* Room for the positions of one page of any layer. */
static size_t page_room(const ht_cache *c) {
    size_t most = 1;
    for (int32_t i = 0; i < c->n_layers; i++)
        most = ht_max_size(most, HT_KV_PAGE * ht_kv_saved_bytes(&c->layer[i].shape));
    return most;
}

static ht_status save_to(const ht_session *s, ht_state_writer *w, ht_error *err) {
    const size_t room_bytes = page_room(s->cache);
    char *origin = NULL, *room = malloc(room_bytes);
    ht_status status = room ? origin_of(s, &origin, err) : ht_fail_memory(err, room_bytes, "a state file");
    if (!status) status = ht_state_writer_begin(w, HT_STATE_ORIGIN, 0, err);
    if (!status) status = ht_state_writer_put(w, origin, strlen(origin), err);
    if (!status) status = save_tokens(s, w, err);
    for (int32_t i = 0; !status && i < s->cache->n_layers; i++) status = save_layer(s, i, w, room, err);
    free(origin);
    free(room);
    return status;
}

ht_status ht_session_save(const ht_session *s, const char *path, ht_error *err) {
    ht_state_writer *w;
    ht_status status = ht_state_writer_open(path, (uint32_t)s->cache->n_layers + 2, &w, err);
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
    ht_cache *cache;
    ht_device *device; /* of the cache */
} restored;

static ht_status malformed(const restored *r, const char *what, ht_error *err) {
    return ht_fail(err, HT_ERR_FORMAT, "%s: the state file is damaged: %s", r->path, what);
}

static ht_status find(const restored *r, uint64_t kind, uint64_t index, const ht_state_section **out, ht_error *err) {
    *out = ht_state_file_find(&r->file, kind, index);
    return *out ? HT_OK : malformed(r, "a section is missing, or there twice", err);
}

static ht_status check_origin(const restored *r, const ht_session *s, ht_error *err) {
    const ht_state_section *section;
    char *theirs = NULL, *ours = NULL;
    ht_status status = find(r, HT_STATE_ORIGIN, 0, &section, err);
    if (!status) status = ht_state_file_read_all(&r->file, section, ORIGIN_LIMIT, &theirs, err);
    if (!status) status = origin_of(s, &ours, err);
    if (!status) status = compare_origins(r->path, theirs, ours, err);
    free(theirs);
    free(ours);
    if (!status && r->file.n != (uint32_t)s->cache->n_layers + 2)
        status = malformed(r, "it has sections that belong to nothing", err);
    return status;
}

static ht_status load_tokens(restored *r, const ht_session *s, ht_error *err) {
    const int64_t context = s->model->context;
    const ht_state_section *section;
    char *bytes = NULL;
    ht_status status = find(r, HT_STATE_TOKENS, 0, &section, err);
    if (!status && section->bytes < TOKENS_HEAD) status = malformed(r, "it holds no number of tokens", err);
    if (!status && (section->bytes - TOKENS_HEAD) / 4 > (uint64_t)context)
        status = ht_fail(err, HT_ERR_LIMIT, "%s holds %llu tokens, and the session's context has %lld positions",
                         r->path, (unsigned long long)((section->bytes - TOKENS_HEAD) / 4), (long long)context);
    if (!status) status = ht_state_file_read_all(&r->file, section, (size_t)section->bytes, &bytes, err);
    if (status) return status;
    const unsigned char *at = (const unsigned char *)bytes;
    const uint64_t length = ht_state_get_number(at, 8), n = ht_state_get_number(at + 8, 8);
    if (n != (section->bytes - TOKENS_HEAD) / 4 || (section->bytes - TOKENS_HEAD) % 4 || length > n)
        status = malformed(r, "its numbers of tokens are not what it holds", err);
    else if (!(r->token = malloc((size_t)n * sizeof *r->token + 1)))
        status = ht_fail_memory(err, (size_t)n * sizeof *r->token, "a session's tokens");
    for (uint64_t i = 0; !status && i < n; i++) {
        r->token[i] = (int32_t)(uint32_t)ht_state_get_number(at + TOKENS_HEAD + 4 * i, 4);
        if (r->token[i] < 0 || r->token[i] >= s->model->vocab)
            status = malformed(r, "a token is none of the model's", err);
    }
    free(bytes);
    r->length = (int64_t)length;
    r->n_tokens = (int64_t)n;
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
    const uint64_t least = l->ring_pages ? (uint64_t)ht_max_i64(0, r->length - l->window + 1) : 0;
    if (at > least) return malformed(r, "keys that the next token looks back on are not there", err);
    *first = (int64_t)at;
    if (section->bytes != PAGES_HEAD + (uint64_t)(r->length - *first) * ht_kv_saved_bytes(&l->shape))
        return malformed(r, "a layer does not hold as many positions as there are", err);
    return HT_OK;
}

static ht_status load_layer(restored *r, ht_device *d, int32_t i, ht_error *err) {
    const ht_kv_layer *l = &r->cache->layer[i];
    const ht_state_section *section;
    const size_t each = ht_kv_saved_bytes(&l->shape);
    int64_t first = 0;
    ht_state_sum sum;
    ht_status status = find(r, HT_STATE_PAGES, (uint64_t)i, &section, err);
    if (!status) status = first_of(r, l, section, &sum, &first, err);
    char *room = status ? NULL : malloc(HT_KV_PAGE * each + 1);
    if (!status && !room) status = ht_fail_memory(err, HT_KV_PAGE * each, "a state file");
    const int64_t held = ht_cache_first(r->cache, i); /* a shorter ring than the saved one's drops what is before */
    for (int64_t pos = first, n; !status && pos < r->length; pos += n) {
        n = ht_min_i64(HT_KV_PAGE - pos % HT_KV_PAGE, r->length - pos);
        status = ht_state_file_read(&r->file, section, PAGES_HEAD + (uint64_t)(pos - first) * each, room,
                                    (size_t)n * each, &sum, err);
        if (!status && pos + n > held)
            status = d->kv->write(d, &l->shape, l->pages[ht_kv_page_of(l, pos)], pos % HT_KV_PAGE, n, room, err);
    }
    if (!status) status = ht_state_file_check(&r->file, section, &sum, err);
    if (!status) ht_cache_forget_before(r->cache, i, first);
    free(room);
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
    if (!status) status = ht_cache_reserve(r->cache, r->length, err);
    if (status) return status;
    r->device = d;
    status = ht_pack_in_pieces(r->cache->n_layers, load_piece, r, NULL, d, err);
    if (!status) status = ht_device_settle(d, err);
    r->cache->length = r->length;
    return status;
}

ht_status ht_session_load(ht_session *s, const char *path, ht_error *err) {
    restored r = {.path = path};
    ht_status status = ht_state_file_open(path, &r.file, err);
    if (!status) status = check_origin(&r, s, err);
    if (!status) status = load_tokens(&r, s, err);
    if (!status) status = load_cache(&r, s, err);
    if (!status) status = ht_session_take(s, r.token, r.n_tokens, r.cache, err);
    if (status) ht_cache_free(r.cache);
    free(r.token);
    ht_state_file_close(&r.file);
    return status;
}
