/* Merges of a tokenizer for writing: as a list, and as scores of tokens. */
#include "base/error.h"
#include "base/grow.h"
#include "tokenizer/save.h"

#include <stdlib.h>
#include <string.h>

/* ---- as a list ---- */

/* The lookup table by rank. A repeated pair has only its last rank. */
static ht_status recover_list(const ht_merges *m, ht_merge_pair **out, size_t *n, ht_error *err) {
    ht_merge_pair *by_rank = malloc(((size_t)m->n + 1) * sizeof *by_rank);
    if (!by_rank) return ht_fail_memory(err, (size_t)m->n * sizeof *by_rank, "a list of merges");
    for (int32_t i = 0; i < m->n; i++) by_rank[i].left = -1;
    ht_merge_pair pair;
    for (size_t at = 0; ht_merges_next(m, &at, &pair.left, &pair.right);) {
        const int64_t rank = ht_merges_rank(m, pair.left, pair.right);
        pair.product = m->product[rank];
        by_rank[rank] = pair;
    }
    *n = 0;
    for (int32_t i = 0; i < m->n; i++)
        if (by_rank[i].left >= 0) by_rank[(*n)++] = by_rank[i];
    *out = by_rank;
    return HT_OK;
}

/* Whether text[at] begins a character. */
static bool is_boundary(const char *text, size_t at) { return ((unsigned char)text[at] & 0xC0) != 0x80; }

/* Splits a token before text[at] into two tokens; false if there are none. */
static bool cut(const ht_vocab *v, int32_t id, size_t at, ht_merge_pair *out) {
    const char *text = ht_vocab_text(v, id);
    if (!is_boundary(text, at)) return false;
    out->left = ht_vocab_find(v, text, at);
    out->right = out->left < 0 ? -1 : ht_vocab_find(v, text + at, v->length[id] - at);
    out->product = id;
    return out->right >= 0;
}

typedef struct pair_list {
    ht_merge_pair *pair;
    size_t n;
} pair_list;

static bool append(pair_list *list, ht_merge_pair pair) {
    if (!HT_GROW_ONE(list->pair, list->n)) return false;
    list->pair[list->n++] = pair;
    return true;
}

static ht_status cut_tokens(const ht_tokenizer *t, ht_merge_pair **out, size_t *n, ht_error *err) {
    const ht_vocab *v = &t->vocab;
    int32_t *by_order = malloc(((size_t)v->n + 1) * sizeof *by_order);
    if (!by_order) return ht_fail_memory(err, (size_t)v->n * sizeof *by_order, "a list of merges");
    int32_t count = 0;
    for (int32_t id = 0; id < v->n; id++) {
        const uint32_t order = t->merges.order[id];
        if (order == HT_NO_ORDER) continue;
        by_order[order] = id; /* orders are dense */
        count++;
    }
    pair_list list = {0};
    ht_merge_pair pair;
    bool good = true;
    for (int32_t i = 0; i < count && good; i++)
        for (size_t at = v->length[by_order[i]]; at > 1 && good;)
            if (cut(v, by_order[i], --at, &pair)) good = append(&list, pair);
    free(by_order);
    if (!good) {
        free(list.pair);
        return ht_fail_memory(err, list.n * sizeof *list.pair, "a list of merges");
    }
    *out = list.pair;
    *n = list.n;
    return HT_OK;
}

ht_status ht_tokenizer_list_merges(const ht_tokenizer *t, ht_merge_pair **out, size_t *n, ht_error *err) {
    *out = NULL;
    *n = 0;
    return t->merges.order ? cut_tokens(t, out, n, err) : recover_list(&t->merges, out, n, err);
}

/* ---- as scores ---- */

/* A token that is one character several times. Converters list the merges of such tokens by the lengths of their parts, so
 * that runs grow from the left; ranks that prefer the longer token do the same. */
typedef struct run {
    const char *character;
    size_t n_character, n;
    int32_t order;
    bool interleaved; /* its merges are not adjacent in the list */
} run;

typedef struct scoring {
    const ht_tokenizer *t;
    int32_t *order; /* [vocab.n] */
    int32_t n_ordered;
    bool *interleaved; /* [vocab.n] */
    const char *why;
} scoring;

static size_t first_character(const char *text, size_t n) {
    size_t length = 1;
    while (length < n && !is_boundary(text, length)) length++;
    return length;
}

static bool is_run(const ht_vocab *v, int32_t id, run *out) {
    const char *text = ht_vocab_text(v, id);
    *out = (run){.character = text, .n = v->length[id], .n_character = first_character(text, v->length[id])};
    return out->n > out->n_character && out->n % out->n_character == 0 &&
           !memcmp(text, text + out->n_character, out->n - out->n_character);
}

/* Added tokens whose text the normalizer leaves alone are found before any merge. */
static bool is_found_before(const ht_tokenizer *t, int32_t id) {
    return (t->flags[id] & HT_TOKEN_ADDED) && !strstr(ht_vocab_text(&t->vocab, id), HT_METASPACE);
}

/* Ranks the products by their first merges. A product whose merges are not adjacent has no single rank. */
static void rank_products(scoring *s, const ht_merge_pair *list, size_t n) {
    run r;
    for (size_t i = 0; i < n && !s->why; i++) {
        const int32_t id = list[i].product;
        if (s->order[id] < 0)
            s->order[id] = s->n_ordered++;
        else if (list[i - 1].product != id && !is_found_before(s->t, id)) {
            s->interleaved[id] = true;
            if (!is_run(&s->t->vocab, id, &r)) s->why = "merges that give one token do not follow each other";
        }
    }
}

static int by_character(const run *a, const run *b) {
    if (a->n_character != b->n_character) return a->n_character < b->n_character ? -1 : 1;
    return memcmp(a->character, b->character, a->n_character);
}

static int by_character_and_order(const void *a, const void *b) {
    const run *x = a, *y = b;
    const int differ = by_character(x, y);
    return differ ? differ : x->order < y->order ? -1 : x->order > y->order;
}

/* Runs of a character whose merges are mixed must come from the longest to the shortest. */
static ht_status check_runs(scoring *s, ht_error *err) {
    const size_t most = (size_t)s->n_ordered + 1;
    run *runs = malloc(most * sizeof *runs);
    if (!runs) return ht_fail_memory(err, most * sizeof *runs, "token scores");
    size_t n = 0;
    for (int32_t id = 0; id < s->t->vocab.n; id++)
        if (s->order[id] >= 0 && is_run(&s->t->vocab, id, &runs[n])) {
            runs[n].order = s->order[id];
            runs[n++].interleaved = s->interleaved[id];
        }
    qsort(runs, n, sizeof *runs, by_character_and_order);
    for (size_t i = 0, end; i < n; i = end) {
        bool mixed = false, falling = true;
        for (end = i; end < n && !by_character(&runs[i], &runs[end]); end++) {
            mixed |= runs[end].interleaved;
            falling &= end == i || runs[end].n < runs[end - 1].n;
        }
        if (mixed && !falling) s->why = "merges of tokens that repeat one character do not prefer the longer token";
    }
    free(runs);
    return HT_OK;
}

static bool is_reachable(const scoring *s, int32_t id) {
    const ht_vocab *v = &s->t->vocab;
    return s->order[id] >= 0 || first_character(ht_vocab_text(v, id), v->length[id]) == v->length[id];
}

/* With scores, every split of a token into two tokens is a merge. So the list must have each split whose parts may
 * occur. */
static void check_cuts(scoring *s, int32_t id) {
    const ht_vocab *v = &s->t->vocab;
    ht_merge_pair pair;
    for (size_t at = 1; at < v->length[id]; at++)
        if (cut(v, id, at, &pair) && ht_merges_rank(&s->t->merges, pair.left, pair.right) < 0 &&
            is_reachable(s, pair.left) && is_reachable(s, pair.right))
            s->why = "not every two tokens that are a token together are listed as a merge";
}

ht_status ht_tokenizer_score_merges(const ht_tokenizer *t, int32_t **order, const char **why, ht_error *err) {
    const size_t vocab = (size_t)t->vocab.n + 1;
    scoring s = {.t = t, .order = malloc(vocab * sizeof *s.order), .interleaved = calloc(vocab, 1)};
    ht_merge_pair *list = NULL;
    size_t n = 0;
    *why = NULL;
    *order = NULL;
    ht_status st = s.order && s.interleaved ? ht_tokenizer_list_merges(t, &list, &n, err)
                                            : ht_fail_memory(err, vocab * sizeof *s.order, "token scores");
    if (!st) {
        memset(s.order, -1, vocab * sizeof *s.order);
        rank_products(&s, list, n);
        st = check_runs(&s, err);
    }
    for (int32_t id = 0; !st && id < t->vocab.n && !s.why && !t->merges.order; id++)
        if (ht_vocab_has(&t->vocab, id) && !is_found_before(t, id)) check_cuts(&s, id);
    *why = s.why;
    if (!st) {
        *order = s.order;
        s.order = NULL;
    }
    free(s.order);
    free(s.interleaved);
    free(list);
    return st;
}
