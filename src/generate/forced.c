#include "generate/forced.h"

#include "base/checked.h"
#include "tokenizer/token_trie.h"

#include <string.h>

enum {
    MOST_BYTES = 96,  /* of forced text that is looked for */
    MOST_ALLOWED = 24 /* tokens that may be beginnings of one text; with more there is a choice */
};

/* The token of which all that are allowed are beginnings; -1: there is none, or a token that is no text is allowed. */
static int32_t only_text(const uint32_t *mask, const ht_token_trie *trie, int32_t *n_allowed) {
    int32_t token[MOST_ALLOWED], n = 0, longest = -1;
    size_t length = 0;
    for (size_t w = 0; w < trie->n_words; w++)
        for (uint32_t bits = mask[w]; bits; bits &= bits - 1) {
            if (n == MOST_ALLOWED) return -1;
            token[n++] = (int32_t)(w * 32) + __builtin_ctz(bits);
        }
    *n_allowed = n;
    for (int32_t i = 0; i < n; i++) {
        size_t bytes;
        (void)ht_token_trie_text(trie, token[i], &bytes);
        if (!bytes) return -1; /* an end, or a mark */
        if (bytes > length) {
            length = bytes;
            longest = token[i];
        }
    }
    for (int32_t i = 0; i < n; i++) {
        size_t bytes, all;
        const char *text = ht_token_trie_text(trie, token[i], &bytes), *whole = ht_token_trie_text(trie, longest, &all);
        if (memcmp(text, whole, bytes) != 0) return -1;
    }
    return longest;
}

/* The text that is forced, n bytes, and the one token of its beginning where there is no other. */
typedef struct forced {
    char text[MOST_BYTES];
    size_t n;
    int32_t only; /* -1: several are allowed */
} forced;

static ht_status find(ht_answer_matcher *m, const ht_token_trie *trie, forced *f, ht_error *err) {
    *f = (forced){.only = -1};
    for (bool first = true;; first = false) {
        const uint32_t *mask;
        bool allowed;
        size_t bytes;
        int32_t n_allowed = 0;
        ht_status status = ht_answer_matcher_mask(m, &mask, err);
        if (status) return status;
        const int32_t token = only_text(mask, trie, &n_allowed);
        if (token < 0) return HT_OK;
        const char *text = ht_token_trie_text(trie, token, &bytes);
        if (f->n + bytes > MOST_BYTES) return HT_OK;
        if (first && n_allowed == 1) f->only = token;
        memcpy(f->text + f->n, text, bytes);
        f->n += bytes;
        status = ht_answer_matcher_accept(m, token, &allowed, err);
        if (status) return status;
    }
}

/* Whether ids spell the n bytes: a tokenizer may write a text otherwise at its beginning. */
static bool spell(const int32_t *ids, size_t n_ids, const ht_token_trie *trie, const char *text, size_t n) {
    size_t at = 0;
    for (size_t i = 0; i < n_ids; i++) {
        size_t bytes;
        const char *piece = ht_token_trie_text(trie, ids[i], &bytes);
        if (bytes > n - at || memcmp(piece, text + at, bytes) != 0) return false;
        at += bytes;
    }
    return at == n;
}

ht_status ht_forced_guess(ht_answer_matcher *m, ht_model *model, int32_t room, int32_t *out, int32_t *n,
                          ht_error *err) {
    const size_t before = ht_answer_matcher_length(m);
    const ht_token_trie *trie;
    int32_t *ids;
    size_t n_ids;
    forced f;
    *n = 0;
    ht_status status = ht_model_token_trie(model, &trie, err);
    if (!status) status = find(m, trie, &f, err);
    ht_answer_matcher_truncate(m, before);
    if (status || !f.n || room < 1) return status;
    status = ht_tokenizer_encode(model->tokenizer, f.text, f.n, 0, &ids, &n_ids, err);
    if (status) return status;
    /* The last one may be another, or longer, with what follows. */
    if (n_ids > 1 && spell(ids, n_ids, trie, f.text, f.n)) {
        *n = (int32_t)ht_min_size(n_ids - 1, (size_t)room);
        memcpy(out, ids, (size_t)*n * sizeof *out);
    } else if (f.only >= 0)
        out[(*n)++] = f.only;
    ht_ids_free(ids);
    return HT_OK;
}
