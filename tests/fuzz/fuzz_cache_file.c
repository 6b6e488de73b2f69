/* Files of prefix caches, given to an engine: as they are, or with the checksums that their sections need to be looked at. What
 * is taken can be found, saved and loaded again; what is refused leaves the engine as it was. */
#include "files.h"
#include "generate/engine_internal.h"
#include "generate/state_file.h"

#include <hearth/hearth.h>

#include <stdlib.h>
#include <string.h>

enum { KINDS = 3, HELD = 20 };

static ht_model *models[KINDS];
static ht_engine *engines[KINDS];
static char *origin[KINDS];

/* The models and engines once, and what a cache of theirs says of its origin. */
static void begin(const char *path) {
    static const char *const names[KINDS] = {"tests/golden/tiny/llama-q4_1.gguf", "tests/golden/tiny/gemma3-q5_1.gguf",
                                             "tests/golden/families/lfm2.gguf"};
    for (int k = 0; k < KINDS; k++) {
        ht_error err = {0};
        ht_state_file f;
        ht_model_options o;
        ht_engine_options e;
        ht_model_options_init(&o, sizeof o);
        ht_engine_options_init(&e, sizeof e);
        e.kv_bytes = (size_t)8 << 20;
        check(ht_model_load(names[k], &o, &models[k], &err) == HT_OK);
        check(ht_engine_open(models[k], &e, &engines[k], &err) == HT_OK);
        check(ht_engine_save_cache(engines[k], path, &err) == HT_OK && ht_state_file_open(path, &f, &err) == HT_OK);
        check(ht_state_file_read_all(&f, ht_state_file_find(&f, HT_STATE_ORIGIN, 0), 1 << 16, &origin[k], &err) ==
              HT_OK);
        ht_state_file_close(&f);
    }
}

/* Origin and number of nodes, then the nodes of the input, each a length of 16 bits before its bytes. */
static void write_nodes(const char *path, int kind, const uint8_t *data, size_t size) {
    ht_state_writer *w;
    ht_error err = {0};
    uint32_t nodes = 0;
    unsigned char count[8];
    for (size_t at = 0; at + 2 <= size; at += 2 + ((size_t)data[at] | (size_t)data[at + 1] << 8)) nodes++;
    ht_state_put_number(count, nodes, 8);
    check(ht_state_writer_open(path, nodes + 2, &w, &err) == HT_OK);
    check(ht_state_writer_begin(w, HT_STATE_ORIGIN, 0, &err) == HT_OK);
    check(ht_state_writer_put(w, origin[kind], strlen(origin[kind]), &err) == HT_OK);
    check(ht_state_writer_begin(w, HT_STATE_CACHE, 0, &err) == HT_OK);
    check(ht_state_writer_put(w, count, sizeof count, &err) == HT_OK);
    for (uint32_t i = 0; i < nodes; i++) {
        size_t n = (size_t)data[0] | (size_t)data[1] << 8;
        data += 2;
        size -= 2;
        n = n < size ? n : size;
        check(ht_state_writer_begin(w, HT_STATE_NODE, i, &err) == HT_OK);
        if (n) check(ht_state_writer_put(w, data, n, &err) == HT_OK);
        data += n;
        size -= n;
    }
    check(ht_state_writer_commit(w, &err) == HT_OK);
}

/* A tree adds up. */
static ht_status count(const ht_prefix_entry *entry, void *user, ht_error *err) {
    (void)err;
    check(entry->n > 0 && entry->n <= HT_KV_PAGE && entry->locks == 0);
    *(int64_t *)user += entry->n;
    return HT_OK;
}

static void check_tree(const ht_engine *e) {
    const ht_prefix_figures f = ht_prefix_cache_get_figures(e->prefix);
    int64_t tokens = 0;
    check(ht_prefix_cache_each(e->prefix, count, &tokens, NULL) == HT_OK && tokens == f.tokens);
    check(f.bytes == atomic_load(&e->account.bytes) && f.bytes <= f.budget);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    char path[128];
    static const int32_t ids[HELD] = {5, 6, 7};
    ht_error err = {0};
    snprintf(path, sizeof path, "%s/cache", files_begin());
    if (!models[0]) begin(path);
    if (size == 0) return 0;
    const int kind = *data & 4 ? 2 : *data & 1;
    ht_engine *e = engines[kind];
    ht_request r;
    ht_request_init(&r, sizeof r);
    r.ids = ids;
    r.n_ids = HELD;
    if (*data & 2)
        files_write("cache", data + 1, size - 1);
    else
        write_nodes(path, kind, data + 1, size - 1);
    while (ht_prefix_cache_evict(e->prefix)) {}
    check(ht_engine_warm(e, &r, NULL, &err) == HT_OK);
    const ht_prefix_figures was = ht_prefix_cache_get_figures(e->prefix);
    const ht_status status = ht_engine_load_cache(e, path, &err);
    const ht_prefix_figures is = ht_prefix_cache_get_figures(e->prefix);
    check_tree(e);
    if (status) check(err.status == status && err.message[0] && is.bytes == was.bytes && is.tokens == was.tokens);
    if (!status) {
        check(ht_engine_save_cache(e, path, &err) == HT_OK && ht_engine_load_cache(e, path, &err) == HT_OK);
        check(ht_prefix_cache_get_figures(e->prefix).bytes == is.bytes);
        check(ht_engine_warm(e, &r, NULL, &err) == HT_OK);
        check_tree(e);
    }
    unlink(path);
    return 0;
}
