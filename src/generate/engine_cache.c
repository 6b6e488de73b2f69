/* An engine's prefix cache as a state file: a section for each node of the tree, the most recently used one first,
 * parents before their children.
 *
 *   bytes 0 .. 7   number of the parent's node, plus one; 0: its tokens are the first
 *   8 .. 15        tokens n, plus 2^15 if they are of a long sequence (ht_model_is_long), and adapters k, u16 each, and
 *                  bytes of the salt, u32; a child has its parent's key, and none here
 *   16 ..          the salt; k adapters, each its digest (two u64) and its scale (f32); n tokens, i32 each; a byte for
 *                  each layer, 1 if the layer has a page
 *   then           for each page its n positions, in the format of device/kv.h
 *   then           states of recurrent layers, those after most tokens first: the number of tokens, u16, and the state
 *                  of each layer
 *
 * Saving copies the tree and retains its pages under the prefix cache's lock, and writes without it. Loading reads and
 * checks the whole file before it changes the tree. */
#include "base/checked.h"
#include "base/error.h"
#include "base/plural.h"
#include "device/device.h"
#include "generate/engine_internal.h"
#include "generate/state_file.h"
#include "models/pack.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    NODE_HEAD = 16,
    STATES_HEAD = 2,    /* number of tokens */
    CACHE_BYTES = 8,    /* number of nodes */
    ADAPTER_BYTES = 20, /* digest and scale */
    FIRST_NODE = 2,     /* section index, after origin and cache */
    MOST_NODES = HT_STATE_MOST_SECTIONS - FIRST_NODE,
    OF_LONG = 1 << 15,
    NODES_AT_ONCE = 16 /* read in one job of the device's threads; then steps may run */
};

/* States after the first n tokens of a node. */
typedef struct states {
    int32_t n;
    ht_kv_page **page; /* [n_layers], retained; NULL: no state */
} states;

typedef struct node {
    int64_t parent; /* -1: none */
    int64_t first;  /* position of its first token */
    int32_t n;
    int32_t *token;     /* [n] */
    char *salt;         /* NULL: the parent's, with its adapters */
    ht_digest *adapter; /* [n_adapters] */
    float *scale;
    int n_adapters;
    bool is_long;
    ht_kv_page **page; /* [n_layers], retained; NULL: no page */
    states *states;    /* [n_states] */
    int32_t n_states;
    /* While it is loaded. */
    bool *has;    /* [n_layers] */
    bool skipped; /* its key has an adapter that is not wanted */
    bool fits;    /* its pages are wanted */
    size_t head_bytes;
    ht_state_sum sum; /* of the head */
} node;

typedef struct nodes {
    ht_engine *e;
    const ht_model *m;
    node *node;
    int64_t n;
    /* While they are loaded. */
    ht_state_file file;
    int64_t done;
    size_t left;             /* bytes of pages that still fit */
    const ht_digest *wanted; /* [n_wanted] adapters; NULL: any */
    int n_wanted;
    int64_t skipped_tokens;
} nodes;

static void free_pages(const nodes *s, ht_kv_page **page) {
    for (int32_t l = 0; page && l < s->m->n_cache_layers; l++)
        ht_kv_page_release(s->m->device, &s->m->kv[l].shape, page[l]);
    free(page);
}

static void free_nodes(nodes *s) {
    for (int64_t i = 0; s->node && i < s->n; i++) {
        node *x = &s->node[i];
        for (int32_t k = 0; x->states && k < x->n_states; k++) free_pages(s, x->states[k].page);
        free(x->states);
        free_pages(s, x->page);
        free(x->token);
        free(x->salt);
        free(x->adapter);
        free(x->scale);
        free(x->has);
    }
    free(s->node);
}

static ht_status no_memory(size_t bytes, ht_error *err) { return ht_fail_memory(err, bytes, "a prefix cache's file"); }

/* References to pages [n_layers]; NULL without memory. */
static ht_kv_page **retain_pages(const nodes *s, ht_kv_page *const *page) {
    ht_kv_page **copy = calloc((size_t)s->m->n_cache_layers + 1, sizeof(ht_kv_page *));
    for (int32_t l = 0; copy && l < s->m->n_cache_layers; l++)
        if (page[l]) copy[l] = ht_kv_page_retain(page[l]);
    return copy;
}

/* ---- saving ---- */

static ht_status copy_states(const nodes *s, const ht_prefix_states *from, node *x, ht_error *err) {
    int32_t n = 0;
    for (const ht_prefix_states *k = from; k; k = k->next) n++;
    x->states = calloc((size_t)n + 1, sizeof *x->states);
    for (; from && x->states; from = from->next) {
        states *k = &x->states[x->n_states++];
        *k = (states){from->n, retain_pages(s, from->page)};
        if (!k->page) break;
    }
    return x->states && !from ? HT_OK : no_memory((size_t)n * sizeof *x->states, err);
}

/* Buffer for the key of a node without a parent. */
static bool make_key(node *x, int n_adapters, const char *salt, size_t n_salt) {
    x->salt = strndup(salt, n_salt);
    x->adapter = calloc((size_t)n_adapters + 1, sizeof *x->adapter);
    x->scale = calloc((size_t)n_adapters + 1, sizeof *x->scale);
    x->n_adapters = n_adapters;
    return x->salt && x->adapter && x->scale;
}

/* A node of the tree. */
static ht_status copy_entry(const ht_prefix_entry *entry, void *user, ht_error *err) {
    nodes *s = user;
    const ht_prefix_key *key = entry->key;
    if (key->n_adapters > UINT16_MAX)
        return ht_fail(err, HT_ERR_LIMIT, "a prefix cache's file has at most %d adapters of an answer, not %d",
                       UINT16_MAX, key->n_adapters);
    node *x = &s->node[s->n++];
    *x = (node){.parent = entry->parent, .first = entry->first, .n = entry->n, .is_long = key->is_long};
    const size_t bytes = (size_t)x->n * sizeof *x->token;
    x->token = malloc(bytes);
    x->page = retain_pages(s, entry->page);
    if (!x->token || !x->page || (x->parent < 0 && !make_key(x, key->n_adapters, key->salt, strlen(key->salt))))
        return no_memory(bytes, err);
    memcpy(x->token, entry->token, bytes);
    for (int i = 0; i < x->n_adapters; i++) {
        x->adapter[i] = key->adapters[i];
        x->scale[i] = key->scales[i];
    }
    return copy_states(s, entry->states, x, err);
}

static ht_status copy_tree(nodes *s, ht_error *err) {
    ht_engine *e = s->e;
    pthread_mutex_lock(&e->prefix_lock);
    const size_t n = (size_t)ht_prefix_cache_get_figures(e->prefix).nodes;
    s->node = calloc(n + 1, sizeof *s->node);
    ht_status status =
        s->node ? ht_prefix_cache_each(e->prefix, copy_entry, s, err) : no_memory(n * sizeof *s->node, err);
    pthread_mutex_unlock(&e->prefix_lock);
    if (status || s->n <= MOST_NODES) return status;
    return ht_fail(err, HT_ERR_LIMIT, "the prefix cache has %lld page%s of tokens, and a file holds at most %d",
                   (long long)s->n, ht_plural(s->n), (int)MOST_NODES);
}

/* The first n positions, or the states, of all layers that have a page. */
static ht_status save_pages(const nodes *s, ht_kv_page *const *page, int64_t n, ht_state_writer *w, void *buffer,
                            ht_error *err) {
    ht_status status = HT_OK;
    for (int32_t l = 0; l < s->m->n_cache_layers && !status; l++) {
        const ht_kv_shape *shape = &s->m->kv[l].shape;
        if (!page[l]) continue;
        status = s->m->device->kv->read(s->m->device, shape, page[l], 0, n, buffer, err);
        if (!status) status = ht_state_writer_put(w, buffer, (size_t)n * ht_kv_saved_bytes(shape), err);
    }
    return status;
}

static ht_status save_node(const nodes *s, int64_t i, ht_state_writer *w, void *buffer, ht_error *err) {
    const node *x = &s->node[i];
    const int32_t layers = s->m->n_cache_layers;
    const size_t salt = x->salt ? strlen(x->salt) : 0,
                 bytes = NODE_HEAD + salt + ADAPTER_BYTES * (size_t)x->n_adapters + 4 * (size_t)x->n + (size_t)layers;
    if (salt > UINT32_MAX) return ht_fail(err, HT_ERR_LIMIT, "a salt of %zu bytes", salt);
    unsigned char *head = malloc(bytes), *at = head;
    if (!head) return no_memory(bytes, err);
    ht_state_put_number(at, (uint64_t)(x->parent + 1), 8);
    ht_state_put_number(at + 8, (uint64_t)(x->n + (x->is_long ? OF_LONG : 0)), 2);
    ht_state_put_number(at + 10, (uint64_t)x->n_adapters, 2);
    ht_state_put_number(at + 12, salt, 4);
    at += NODE_HEAD;
    if (salt) memcpy(at, x->salt, salt);
    at += salt;
    for (int k = 0; k < x->n_adapters; k++, at += ADAPTER_BYTES) {
        uint32_t scale;
        memcpy(&scale, &x->scale[k], sizeof scale);
        ht_state_put_number(at, x->adapter[k].a, 8);
        ht_state_put_number(at + 8, x->adapter[k].b, 8);
        ht_state_put_number(at + 16, scale, 4);
    }
    for (int32_t k = 0; k < x->n; k++, at += 4) ht_state_put_number(at, (uint32_t)x->token[k], 4);
    for (int32_t l = 0; l < layers; l++) *at++ = x->page[l] != NULL;
    ht_status status = ht_state_writer_begin(w, HT_STATE_NODE, (uint64_t)i, err);
    if (!status) status = ht_state_writer_put(w, head, bytes, err);
    free(head);
    if (!status) status = save_pages(s, x->page, x->n, w, buffer, err);
    for (int32_t k = 0; k < x->n_states && !status; k++) {
        unsigned char n[STATES_HEAD];
        ht_state_put_number(n, (uint64_t)x->states[k].n, STATES_HEAD);
        status = ht_state_writer_put(w, n, STATES_HEAD, err);
        if (!status) status = save_pages(s, x->states[k].page, 1, w, buffer, err);
    }
    return status;
}

static ht_status save_to(const nodes *s, ht_state_writer *w, ht_error *err) {
    unsigned char count[CACHE_BYTES];
    const size_t buffer_bytes = ht_state_buffer_bytes(s->m->kv, s->m->n_cache_layers);
    void *buffer = malloc(buffer_bytes);
    ht_status status = buffer ? ht_state_put_origin(w, s->m, NULL, NULL, 0, err) : no_memory(buffer_bytes, err);
    if (!status) status = ht_state_writer_begin(w, HT_STATE_CACHE, 0, err);
    ht_state_put_number(count, (uint64_t)s->n, CACHE_BYTES);
    if (!status) status = ht_state_writer_put(w, count, sizeof count, err);
    for (int64_t i = 0; i < s->n && !status; i++) status = save_node(s, i, w, buffer, err);
    free(buffer);
    return status;
}

static ht_status save_nodes(const nodes *s, const char *path, ht_error *err) {
    ht_state_writer *w;
    ht_status status = ht_state_writer_open(path, (uint32_t)s->n + FIRST_NODE, &w, err);
    if (status) return status;
    status = save_to(s, w, err);
    if (!status) return ht_state_writer_commit(w, err);
    ht_state_writer_discard(w);
    return status;
}

static ht_status need_cache(const ht_engine *e, const char *path, ht_error *err) {
    if (e->prefix) return HT_OK;
    return ht_fail(err, HT_ERR_ARGUMENT,
                   "%s: the engine has no prefix cache to be saved or filled: its prefix_bytes is 0", path);
}

ht_status ht_engine_save_cache(ht_engine *e, const char *path, ht_error *err) {
    ht_status status = need_cache(e, path, err);
    if (status) return status;
    nodes s = {.e = e, .m = e->model};
    ht_engine_enter(e);
    status = copy_tree(&s, err);
    if (!status) status = save_nodes(&s, path, err);
    free_nodes(&s);
    ht_engine_leave(e);
    return status;
}

/* ---- loading: heads ---- */

static const ht_state_section *section_of(const nodes *s, int64_t i) { return &s->file.section[FIRST_NODE + i]; }

/* Checks the numbers in a node's head. */
static ht_status check_sizes(const nodes *s, int64_t i, uint64_t parent, uint64_t n, uint64_t key, ht_error *err) {
    if (n < 1 || n > HT_KV_PAGE) return ht_state_damaged(&s->file, "a node has no page's number of tokens", err);
    if (parent > (uint64_t)i || (parent && s->node[parent - 1].n < HT_KV_PAGE))
        return ht_state_damaged(&s->file, "a node follows none that can come before it", err);
    if (parent && key) return ht_state_damaged(&s->file, "a node has another salt or other adapters", err);
    if (NODE_HEAD + key + 4 * n + (uint64_t)s->m->n_cache_layers > section_of(s, i)->bytes)
        return ht_state_damaged(&s->file, "a node is shorter than what it is to hold", err);
    return HT_OK;
}

/* Reads a node's adapters, and skips the node if one is not wanted. False when a scale is not finite. */
static bool take_adapters(const nodes *s, node *x, const unsigned char *at) {
    for (int i = 0; i < x->n_adapters; i++, at += ADAPTER_BYTES) {
        const uint32_t scale = (uint32_t)ht_state_get_number(at + 16, 4);
        x->adapter[i] = (ht_digest){ht_state_get_number(at, 8), ht_state_get_number(at + 8, 8)};
        memcpy(&x->scale[i], &scale, sizeof scale);
        bool wanted = !s->wanted;
        for (int k = 0; k < s->n_wanted && !wanted; k++) wanted = ht_digest_same(s->wanted[k], x->adapter[i]);
        x->skipped = x->skipped || !wanted;
        if (!isfinite(x->scale[i])) return false;
    }
    return true;
}

/* Bytes of states after some tokens, as saved or in memory; 0: the model has none. */
static size_t states_bytes(const nodes *s, ht_kv_page_bytes_fn *of_page) {
    size_t bytes = 0;
    for (int32_t l = 0; l < s->m->n_cache_layers; l++)
        if (s->m->kv[l].shape.state) bytes += of_page(&s->m->kv[l].shape);
    return bytes;
}

/* Reads a node's key, tokens and layers. With the positions of the pages, and states, they must fill the section. */
static ht_status take_head(const nodes *s, int64_t i, size_t salt, int n_adapters, const unsigned char *at,
                           ht_error *err) {
    node *x = &s->node[i];
    const int32_t layers = s->m->n_cache_layers;
    x->token = malloc((size_t)x->n * sizeof *x->token);
    x->has = calloc((size_t)layers + 1, sizeof *x->has);
    x->page = calloc((size_t)layers + 1, sizeof(ht_kv_page *));
    if (!x->token || !x->has || !x->page || (x->parent < 0 && !make_key(x, n_adapters, (const char *)at, salt)))
        return no_memory(x->head_bytes, err);
    if (x->salt && strlen(x->salt) != salt) return ht_state_damaged(&s->file, "a salt holds a zero", err);
    at += salt;
    x->skipped = x->parent >= 0 && s->node[x->parent].skipped;
    if (!take_adapters(s, x, at)) return ht_state_damaged(&s->file, "an adapter's scale is not finite", err);
    at += ADAPTER_BYTES * (size_t)x->n_adapters;
    for (int32_t k = 0; k < x->n; k++, at += 4) {
        x->token[k] = (int32_t)(uint32_t)ht_state_get_number(at, 4);
        if (x->token[k] < 0 || x->token[k] >= s->m->vocab)
            return ht_state_damaged(&s->file, "a token is not in the vocabulary", err);
    }
    uint64_t bytes = x->head_bytes;
    for (int32_t l = 0; l < layers; l++) {
        const bool may_lack = s->m->kv[l].window || s->m->kv[l].shape.state;
        if (at[l] > !s->m->kv[l].shape.state || (!at[l] && !may_lack))
            return ht_state_damaged(&s->file, "a node lacks a layer's page", err);
        x->has[l] = at[l];
        if (x->has[l]) bytes += (uint64_t)x->n * ht_kv_saved_bytes(&s->m->kv[l].shape);
    }
    const uint64_t all = section_of(s, i)->bytes, state = states_bytes(s, ht_kv_saved_page_bytes),
                   each = state ? STATES_HEAD + state : all + 1;
    if (bytes > all || (all - bytes) % each || (all - bytes) / each > (uint64_t)x->n)
        return ht_state_damaged(&s->file, "a node is not as long as its pages", err);
    x->n_states = (int32_t)((all - bytes) / each);
    x->states = calloc((size_t)x->n_states + 1, sizeof *x->states);
    return x->states ? HT_OK : no_memory((size_t)x->n_states * sizeof *x->states, err);
}

/* Takes the node's pages from the budget; false if they do not fit, or its parent's did not. */
static bool take_budget(nodes *s, const node *x) {
    size_t bytes = 0;
    for (int32_t l = 0; l < s->m->n_cache_layers; l++)
        if (x->has[l]) bytes += s->m->device->kv->page_bytes(&s->m->kv[l].shape);
    bytes += (size_t)x->n_states * states_bytes(s, s->m->device->kv->page_bytes);
    if (x->skipped || bytes > s->left || x->first + x->n > s->m->context ||
        (x->parent >= 0 && !s->node[x->parent].fits))
        return false;
    s->left -= bytes;
    return true;
}

static ht_status read_head(nodes *s, int64_t i, ht_error *err) {
    const ht_state_section *section = section_of(s, i);
    unsigned char first[NODE_HEAD];
    node *x = &s->node[i];
    if (section->kind != HT_STATE_NODE || section->index != (uint64_t)i)
        return ht_state_damaged(&s->file, "its nodes are not in their order", err);
    x->sum = ht_state_sum_begin(section->kind, section->index);
    ht_status status = ht_state_file_read(&s->file, section, 0, first, sizeof first, &x->sum, err);
    if (status) return status;
    const uint64_t parent = ht_state_get_number(first, 8), length = ht_state_get_number(first + 8, 2),
                   n = length % OF_LONG, adapters = ht_state_get_number(first + 10, 2),
                   salt = ht_state_get_number(first + 12, 4), key = salt + ADAPTER_BYTES * adapters;
    status = check_sizes(s, i, parent, n, key, err);
    if (status) return status;
    x->parent = (int64_t)parent - 1;
    x->first = parent ? s->node[parent - 1].first + HT_KV_PAGE : 0;
    x->n = (int32_t)n;
    x->is_long = length >= OF_LONG;
    if (parent && x->is_long != s->node[parent - 1].is_long)
        return ht_state_damaged(&s->file, "a node of a long sequence follows one of a short sequence, or the reverse",
                                err);
    x->head_bytes = NODE_HEAD + (size_t)key + 4 * (size_t)n + (size_t)s->m->n_cache_layers;
    unsigned char *rest = malloc(x->head_bytes);
    if (!rest) return no_memory(x->head_bytes, err);
    status = ht_state_file_read(&s->file, section, NODE_HEAD, rest, x->head_bytes - NODE_HEAD, &x->sum, err);
    if (!status) status = take_head(s, i, (size_t)salt, (int)adapters, rest, err);
    free(rest);
    if (!status) x->fits = take_budget(s, x);
    if (!status && x->skipped) s->skipped_tokens += x->n;
    return status;
}

static ht_status check_cache(nodes *s, ht_error *err) {
    char *count = NULL;
    ht_status status = ht_state_check_origin(&s->file, s->m, NULL, NULL, 0, "engine", err);
    if (status) return status;
    const ht_state_section *section = ht_state_file_find(&s->file, HT_STATE_CACHE, 0);
    if (!section && ht_state_file_find(&s->file, HT_STATE_TOKENS, 0))
        return ht_fail(err, HT_ERR_ARGUMENT, "%s holds a session, not an engine's prefix cache", s->file.file->path);
    if (!section || section->bytes != CACHE_BYTES)
        return ht_state_damaged(&s->file, "it does not say what it holds", err);
    status = ht_state_file_read_all(&s->file, section, CACHE_BYTES, &count, err);
    if (status) return status;
    const uint64_t n = ht_state_get_number((const unsigned char *)count, CACHE_BYTES);
    free(count);
    if (s->file.n < FIRST_NODE || n != s->file.n - FIRST_NODE)
        return ht_state_damaged(&s->file, "it has not as many nodes as it says", err);
    s->n = (int64_t)n;
    s->node = calloc((size_t)n + 1, sizeof *s->node);
    return s->node ? HT_OK : no_memory((size_t)n * sizeof *s->node, err);
}

/* ---- loading: pages ---- */

/* Reads the first n positions, or the state, of a layer's page, which is made if it is wanted. */
static ht_status read_page(const nodes *s, node *x, const ht_state_section *section, int32_t l, int64_t n, uint64_t *at,
                           void *buffer, ht_kv_page **page, ht_error *err) {
    const ht_kv_shape *shape = &s->m->kv[l].shape;
    const size_t bytes = (size_t)n * ht_kv_saved_bytes(shape);
    ht_device *d = s->m->device;
    ht_status status = x->fits ? ht_kv_page_new(d, shape, NULL, page, err) : HT_OK;
    if (!status) status = ht_state_file_read(&s->file, section, *at, buffer, bytes, &x->sum, err);
    if (!status && *page) status = d->kv->write(d, shape, *page, 0, n, buffer, err);
    *at += bytes;
    return status;
}

/* Reads states k of a node, after those that it has read. */
static ht_status read_states(const nodes *s, node *x, const ht_state_section *section, int32_t k, uint64_t *at,
                             void *buffer, ht_error *err) {
    unsigned char head[STATES_HEAD];
    states *of = &x->states[k];
    ht_status status = ht_state_file_read(&s->file, section, *at, head, STATES_HEAD, &x->sum, err);
    if (status) return status;
    *at += STATES_HEAD;
    of->n = (int32_t)ht_state_get_number(head, STATES_HEAD);
    if (of->n < 1 || of->n > (k ? x->states[k - 1].n - 1 : x->n))
        return ht_state_damaged(&s->file, "states of a node are not in their order", err);
    of->page = calloc((size_t)s->m->n_cache_layers + 1, sizeof(ht_kv_page *));
    if (!of->page) return no_memory((size_t)s->m->n_cache_layers * sizeof(ht_kv_page *), err);
    for (int32_t l = 0; l < s->m->n_cache_layers && !status; l++)
        if (s->m->kv[l].shape.state) status = read_page(s, x, section, l, 1, at, buffer, &of->page[l], err);
    return status;
}

/* Reads all pages of a node: stores those that fit, and reads the others only for the checksum. */
static ht_status read_node(void *arg, int64_t piece, int worker, ht_error *err) {
    nodes *s = arg;
    node *x = &s->node[s->done + piece];
    const ht_state_section *section = section_of(s, s->done + piece);
    const size_t buffer_bytes = ht_state_buffer_bytes(s->m->kv, s->m->n_cache_layers);
    void *buffer = malloc(buffer_bytes);
    ht_status status = buffer ? HT_OK : no_memory(buffer_bytes, err);
    uint64_t at = x->head_bytes;
    (void)worker;
    for (int32_t l = 0; l < s->m->n_cache_layers && !status; l++)
        if (x->has[l]) status = read_page(s, x, section, l, x->n, &at, buffer, &x->page[l], err);
    for (int32_t k = 0; k < x->n_states && !status; k++) status = read_states(s, x, section, k, &at, buffer, err);
    free(buffer);
    return status ? status : ht_state_file_check(&s->file, section, &x->sum, err);
}

static ht_status read_nodes(nodes *s, ht_error *err) {
    ht_device *d = s->m->device;
    ht_status status = HT_OK;
    for (int64_t i = 0; i < s->n && !status; i++) status = read_head(s, i, err);
    for (; s->done < s->n && !status; s->done += NODES_AT_ONCE)
        status = ht_pack_in_pieces(ht_min_i64(NODES_AT_ONCE, s->n - s->done), read_node, s, NULL, d, err);
    const ht_status settled = ht_device_settle(d, status ? NULL : err);
    return status ? status : settled;
}

/* ---- loading: the tree ---- */

static void count(const nodes *s, ht_kv_page *const *page) {
    for (int32_t l = 0; l < s->m->n_cache_layers; l++)
        if (page[l]) ht_kv_page_count(s->m->device, &s->m->kv[l].shape, page[l], &s->e->account);
}

/* Counts the node's pages, if they fit the engine's memory. */
static bool count_pages(const nodes *s, const node *x) {
    ht_kv_page_bytes_fn *const page_bytes = s->m->device->kv->page_bytes;
    size_t bytes = (size_t)x->n_states * states_bytes(s, page_bytes);
    for (int32_t l = 0; l < s->m->n_cache_layers; l++)
        if (x->page[l]) bytes += page_bytes(&s->m->kv[l].shape);
    if (!ht_cache_fits(&s->e->account, s->e->o.kv_bytes, bytes)) return false;
    count(s, x->page);
    for (int32_t k = 0; k < x->n_states; k++) count(s, x->states[k].page);
    return true;
}

static ht_status add_nodes(nodes *s, ht_error *err) {
    ht_status status = HT_OK;
    ht_prefix_node **made = calloc((size_t)s->n + 1, sizeof(ht_prefix_node *));
    if (!made) return no_memory((size_t)s->n * sizeof(ht_prefix_node *), err);
    pthread_mutex_lock(&s->e->prefix_lock);
    for (int64_t i = 0; i < s->n && !status; i++) {
        const node *x = &s->node[i];
        ht_prefix_node *parent = x->parent < 0 ? NULL : made[x->parent];
        const ht_prefix_key key = {x->salt, x->adapter, x->scale, x->n_adapters, x->is_long};
        if (x->skipped || (x->parent >= 0 && !parent)) continue;
        ht_kv_page *const *page = x->fits && count_pages(s, x) ? x->page : NULL;
        status = ht_prefix_cache_add(s->e->prefix, &key, parent, x->token, x->n, page, &made[i], err);
        for (int32_t k = 0; page && made[i] && !status && k < x->n_states; k++)
            status = ht_prefix_cache_add_states(s->e->prefix, made[i], x->states[k].n, x->states[k].page, err);
    }
    pthread_mutex_unlock(&s->e->prefix_lock);
    free(made);
    return status;
}

/* Page bytes that still fit the budgets of the prefix cache and the engine. */
static size_t bytes_left(ht_engine *e) {
    pthread_mutex_lock(&e->prefix_lock);
    const ht_prefix_figures f = ht_prefix_cache_get_figures(e->prefix);
    pthread_mutex_unlock(&e->prefix_lock);
    const size_t used = atomic_load_explicit(&e->account.bytes, memory_order_relaxed);
    const size_t kept = f.budget > f.bytes ? f.budget - f.bytes : 0;
    return ht_min_size(kept, e->o.kv_bytes > used ? e->o.kv_bytes - used : 0);
}

static ht_status load(nodes *s, const char *path, ht_error *err) {
    ht_engine *e = s->e;
    ht_status status = need_cache(e, path, err);
    if (!status) status = ht_state_file_open(path, &s->file, err);
    if (status) return status;
    ht_engine_enter(e);
    s->left = bytes_left(e);
    status = check_cache(s, err);
    if (!status) status = read_nodes(s, err);
    if (!status) status = add_nodes(s, err);
    free_nodes(s);
    ht_engine_leave(e);
    ht_state_file_close(&s->file);
    return status;
}

ht_status ht_engine_load_cache(ht_engine *e, const char *path, ht_error *err) {
    return load(&(nodes){.e = e, .m = e->model}, path, err);
}

ht_status ht_engine_load_cache_of(ht_engine *e, const char *path, ht_adapter *const *adapters, int n_adapters,
                                  int64_t *skipped_tokens, ht_error *err) {
    if (n_adapters < 0) return ht_fail(err, HT_ERR_ARGUMENT, "%d adapters, expected 0 or more", n_adapters);
    for (int i = 0; i < n_adapters; i++)
        if (!adapters[i]) return ht_fail(err, HT_ERR_ARGUMENT, "adapter %d of %d is NULL", i, n_adapters);
    ht_digest *wanted = calloc((size_t)n_adapters + 1, sizeof *wanted);
    if (!wanted) return no_memory((size_t)n_adapters * sizeof *wanted, err);
    for (int i = 0; i < n_adapters; i++) wanted[i] = ht_adapter_digest(adapters[i]);
    nodes s = {.e = e, .m = e->model, .wanted = wanted, .n_wanted = n_adapters};
    const ht_status status = load(&s, path, err);
    *skipped_tokens = status ? 0 : s.skipped_tokens;
    free(wanted);
    return status;
}
