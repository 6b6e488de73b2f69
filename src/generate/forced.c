/* Forced text: found byte by byte from the grammar, so that no mask is needed before the step that draws by it. */
#include "generate/forced.h"

#include "base/checked.h"
#include "base/text.h"
#include "grammar/grammar.h"
#include "tokenizer/token_trie.h"

#include <string.h>

enum { MOST_BYTES = 96 }; /* of forced text that is looked for */

/* The token of which a text is made when there is no other way to begin it: no token is the beginning of the text or goes on with
 * it. -1: there are several ways. */
static int32_t only_token(const ht_token_trie *trie, const char *text, size_t n) {
    const ht_trie_part *all = &trie->all;
    int32_t only = -1;
    for (uint32_t depth = 0, at = 0, end = all->n; depth < n; depth++) {
        at = ht_trie_find(all, at, end, (uint8_t)text[depth]);
        if (at == end) break;
        if (all->token[at] >= 0) {
            if (only >= 0) return -1;
            only = all->token[at];
        }
        end = all->next[at++];
        if (depth + 1 == n && at < end) return -1;
    }
    return only;
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
    const ht_token_trie *trie;
    char text[MOST_BYTES];
    int32_t *ids;
    size_t n_ids, bytes = 0;
    *n = 0;
    ht_status status = ht_model_token_trie(model, &trie, err);
    if (!status) status = ht_answer_matcher_forced(m, text, sizeof text, &bytes, err);
    while (bytes && !ht_utf8_valid(text, bytes)) bytes--; /* the rest of a character is a choice */
    if (status || !bytes || room < 1) return status;
    status = ht_tokenizer_encode(model->tokenizer, text, bytes, 0, &ids, &n_ids, err);
    if (status) return status;
    const int32_t only = only_token(trie, text, bytes);
    /* The last one may be another, or longer, with what follows. */
    if (n_ids > 1 && spell(ids, n_ids, trie, text, bytes)) {
        *n = (int32_t)ht_min_size(n_ids - 1, (size_t)room);
        memcpy(out, ids, (size_t)*n * sizeof *out);
    } else if (only >= 0)
        out[(*n)++] = only;
    ht_ids_free(ids);
    return HT_OK;
}
