#include "serve/grammars.h"

#include "base/error.h"
#include "base/hash.h"

#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_KEPT = 16, LONGEST_KEPT = 1 << 20, MOST_CHECKED = 512 };

typedef struct kept {
    serve_grammar_kind kind;
    char *text;
    size_t n;
    ht_grammar *grammar;
} kept;

/* A schema that has been checked, by hash. A collision costs only a missing or extra note. */
typedef struct checked {
    uint64_t hash;
    bool supported;
} checked;

struct serve_grammars {
    ht_model *model;
    pthread_mutex_t lock;
    kept kept[MOST_KEPT]; /* the most recently used comes first */
    size_t n;
    checked checked[MOST_CHECKED]; /* a ring */
    size_t n_checked;              /* total insertions */
};

ht_status serve_grammars_new(ht_model *m, serve_grammars **out, ht_error *err) {
    serve_grammars *g = *out = calloc(1, sizeof *g);
    if (!g) return ht_fail_memory(err, sizeof *g, "the grammars of a model");
    g->model = m;
    pthread_mutex_init(&g->lock, NULL);
    return HT_OK;
}

static void discard(kept *k) {
    free(k->text);
    ht_grammar_free(k->grammar);
}

void serve_grammars_free(serve_grammars *g) {
    if (!g) return;
    for (size_t i = 0; i < g->n; i++) discard(&g->kept[i]);
    pthread_mutex_destroy(&g->lock);
    free(g);
}

/* The cached grammar, retained; NULL on a miss. */
static ht_grammar *find(serve_grammars *g, serve_grammar_kind kind, const char *text, size_t n) {
    ht_grammar *found = NULL;
    pthread_mutex_lock(&g->lock);
    for (size_t i = 0; i < g->n && !found; i++) {
        const kept k = g->kept[i];
        if (k.kind != kind || k.n != n || memcmp(k.text, text, n) != 0) continue;
        memmove(g->kept + 1, g->kept, i * sizeof *g->kept);
        g->kept[0] = k;
        found = ht_grammar_retain(k.grammar);
    }
    pthread_mutex_unlock(&g->lock);
    return found;
}

/* Caches a compiled grammar and evicts the least recently used. On allocation failure it is not cached. */
static void keep(serve_grammars *g, serve_grammar_kind kind, const char *text, size_t n, ht_grammar *grammar) {
    char *copy = n <= LONGEST_KEPT ? malloc(n + 1) : NULL;
    if (!copy) return;
    memcpy(copy, text, n);
    pthread_mutex_lock(&g->lock);
    const kept oldest = g->n == MOST_KEPT ? g->kept[MOST_KEPT - 1] : (kept){0};
    if (g->n < MOST_KEPT) g->n++;
    memmove(g->kept + 1, g->kept, (g->n - 1) * sizeof *g->kept);
    g->kept[0] = (kept){kind, copy, n, ht_grammar_retain(grammar)};
    pthread_mutex_unlock(&g->lock);
    if (oldest.grammar) {
        kept gone = oldest;
        discard(&gone);
    }
}

ht_status serve_grammars_get(serve_grammars *g, serve_grammar_kind kind, const char *text, size_t n, ht_grammar **out,
                             ht_error *err) {
    ht_status status = HT_OK;
    if ((*out = find(g, kind, text, n))) return HT_OK;
    switch (kind) {
    case SERVE_SCHEMA: status = ht_grammar_from_json_schema(g->model, text, n, NULL, out, err); break;
    case SERVE_REGEX: status = ht_grammar_from_regex(g->model, text, n, out, err); break;
    case SERVE_GBNF: status = ht_grammar_from_gbnf(g->model, text, n, out, err); break;
    }
    if (!status) keep(g, kind, text, n, *out);
    return status;
}

/* Whether the schema was checked before; *supported has the result. */
static bool was_checked(serve_grammars *g, uint64_t hash, bool *supported) {
    bool found = false;
    pthread_mutex_lock(&g->lock);
    for (size_t i = 0; i < MOST_CHECKED && i < g->n_checked && !found; i++) {
        found = g->checked[i].hash == hash;
        if (found) *supported = g->checked[i].supported;
    }
    pthread_mutex_unlock(&g->lock);
    return found;
}

bool serve_grammars_support(serve_grammars *g, const char *schema, size_t n) {
    const uint64_t hash = ht_hash_bytes(schema, n);
    ht_grammar *grammar = NULL;
    bool supported = false;
    if (was_checked(g, hash, &supported)) return supported;
    const ht_status status = ht_grammar_from_json_schema(g->model, schema, n, NULL, &grammar, NULL);
    ht_grammar_free(grammar);
    if (status == HT_ERR_MEMORY) return true;
    pthread_mutex_lock(&g->lock);
    g->checked[g->n_checked++ % MOST_CHECKED] = (checked){hash, status == HT_OK};
    pthread_mutex_unlock(&g->lock);
    return status == HT_OK;
}
