/* Token trie: made from the tokens in the order of their bytes. */
#include "tokenizer/token_trie.h"

#include "base/error.h"
#include "base/text.h"
#include "tokenizer/tokenizer.h"

#include <stdlib.h>
#include <string.h>

typedef struct token_bytes {
    const unsigned char *bytes;
    uint32_t n;
    int32_t id;
} token_bytes;

static int by_bytes(const void *a, const void *b) {
    const token_bytes *x = a, *y = b;
    const int order = memcmp(x->bytes, y->bytes, x->n < y->n ? x->n : y->n);
    if (order) return order;
    if (x->n != y->n) return x->n < y->n ? -1 : 1;
    return (x->id > y->id) - (x->id < y->id);
}

/* Characters of a token that is plain text; 0 of any other. */
static uint32_t count_plain(const char *s, size_t n) {
    uint32_t count = 0;
    if (!ht_utf8_valid(s, n)) return 0;
    for (size_t i = 0; i < n; i++) {
        const unsigned char c = (unsigned char)s[i];
        if (c < 0x20 || c == 0x7F || c == '"' || c == '\\') return 0;
        count += (c & 0xC0) != 0x80;
    }
    return count <= HT_PLAIN_MOST ? count : 0;
}

static void free_part(ht_trie_part *p) {
    free(p->byte);
    free(p->depth);
    free(p->next);
    free(p->token);
}

static ht_status fill_part(ht_trie_part *p, const token_bytes *sorted, int32_t n, int32_t *same, ht_error *err) {
    size_t n_nodes = 0;
    uint32_t shared = 0;
    for (int pass = 0; pass < 2; pass++) {
        uint32_t at = 0;
        for (int32_t i = 0; i < n; i++) {
            const token_bytes *t = &sorted[i], *before = i ? &sorted[i - 1] : NULL;
            shared = 0;
            while (before && shared < before->n && shared < t->n && before->bytes[shared] == t->bytes[shared]) shared++;
            if (!pass) {
                n_nodes += t->n - shared;
                continue;
            }
            for (uint32_t d = shared; d < t->n; d++, at++) {
                p->byte[at] = t->bytes[d];
                p->depth[at] = (uint16_t)d;
                p->token[at] = -1;
                if (d > p->deepest) p->deepest = (uint16_t)d;
            }
            int32_t *place = &p->token[at - 1];
            if (shared == t->n && before && before->n == t->n) { /* the same bytes again */
                if (same[t->id] < 0) same[t->id] = *place;
                *place = t->id;
            } else
                *place = t->id;
        }
        if (pass) break;
        p->n = (uint32_t)n_nodes;
        p->byte = malloc(n_nodes + 1);
        p->depth = malloc((n_nodes + 1) * sizeof *p->depth);
        p->next = malloc((n_nodes + 1) * sizeof *p->next);
        p->token = malloc((n_nodes + 1) * sizeof *p->token);
        if (!p->byte || !p->depth || !p->next || !p->token)
            return ht_fail_memory(err, n_nodes * 11, "a trie of tokens");
    }
    /* The node behind a subtree is the first one that is no deeper than its root; from the last node on, each depth knows it. */
    uint32_t *behind = malloc(((size_t)p->deepest + 2) * sizeof *behind);
    if (!behind) return ht_fail_memory(err, p->deepest, "a trie of tokens");
    for (uint32_t d = 0; d < p->deepest + 2u; d++) behind[d] = p->n;
    for (uint32_t i = p->n; i-- > 0;) {
        p->next[i] = behind[p->depth[i]];
        for (uint32_t d = p->depth[i]; d < p->deepest + 2u && behind[d] != i; d++) behind[d] = i;
    }
    free(behind);
    return HT_OK;
}

/* Texts of all tokens. */
static ht_status read_texts(ht_token_trie *trie, const ht_tokenizer *t, ht_error *err) {
    ht_text all = {0};
    for (int32_t id = 0; id < trie->n_tokens; id++) {
        char *bytes = NULL;
        size_t n = 0;
        if (ht_vocab_has(&t->vocab, id) && !(t->flags[id] & HT_TOKEN_SPECIAL)) {
            const ht_status status = ht_tokenizer_token_bytes(t, id, &bytes, &n, err);
            if (status) {
                ht_text_discard(&all);
                return status;
            }
        }
        if (n <= UINT16_MAX) ht_text_append(&all, bytes, n);
        free(bytes);
        if (all.len > UINT32_MAX) all.failed = true;
        trie->text_end[id] = (uint32_t)all.len;
    }
    ht_text_append(&all, "", 0);
    trie->text = ht_text_take(&all);
    return trie->text ? HT_OK : ht_fail_memory(err, 1, "the texts of tokens");
}

/* Divides the tokens, which are sorted, into plain ones and the rest, of which there are *n_rest. */
static void find_plain(ht_token_trie *trie, const token_bytes *sorted, int32_t n, token_bytes *rest, int32_t *n_rest) {
    *n_rest = 0;
    for (int32_t i = 0; i < n; i++) {
        const uint32_t plain = count_plain((const char *)sorted[i].bytes, sorted[i].n);
        if (!plain) rest[(*n_rest)++] = sorted[i];
        for (uint32_t c = plain; plain && c <= HT_PLAIN_MOST; c++)
            trie->plain[c * trie->n_words + (size_t)sorted[i].id / 32] |= 1u << (sorted[i].id & 31);
    }
}

static ht_status fill(ht_token_trie *trie, const ht_tokenizer *t, token_bytes *sorted, ht_error *err) {
    ht_status status = read_texts(trie, t, err);
    int32_t n = 0, n_rest;
    if (status) return status;
    for (int32_t id = 0; id < trie->n_tokens; id++) {
        size_t length;
        const char *bytes = ht_token_trie_text(trie, id, &length);
        trie->same[id] = -1;
        if (length) sorted[n++] = (token_bytes){(const unsigned char *)bytes, (uint32_t)length, id};
    }
    qsort(sorted, (size_t)n, sizeof *sorted, by_bytes);
    status = fill_part(&trie->all, sorted, n, trie->same, err);
    token_bytes *rest = sorted + n;
    find_plain(trie, sorted, n, rest, &n_rest);
    return status ? status : fill_part(&trie->rest, rest, n_rest, trie->same, err);
}

ht_status ht_token_trie_new(const ht_tokenizer *t, ht_token_trie **out, ht_error *err) {
    const size_t n = (size_t)ht_tokenizer_vocab_size(t), n_words = (n + 31) / 32;
    ht_token_trie *trie = *out = calloc(1, sizeof *trie);
    if (!trie) return ht_fail_memory(err, sizeof *trie, "a trie of tokens");
    trie->n_tokens = (int32_t)n;
    trie->n_words = n_words;
    trie->same = malloc((n + 1) * sizeof *trie->same);
    trie->plain = calloc((HT_PLAIN_MOST + 1) * n_words + 1, sizeof *trie->plain);
    trie->text_end = malloc((n + 1) * sizeof *trie->text_end);
    token_bytes *sorted = malloc((2 * n + 1) * sizeof *sorted);
    ht_status status = trie->same && trie->plain && trie->text_end && sorted
                           ? fill(trie, t, sorted, err)
                           : ht_fail_memory(err, n, "a trie of tokens");
    free(sorted);
    if (!status) return HT_OK;
    ht_token_trie_free(trie);
    *out = NULL;
    return status;
}

void ht_token_trie_free(ht_token_trie *t) {
    if (!t) return;
    free_part(&t->all);
    free_part(&t->rest);
    free(t->same);
    free(t->plain);
    free(t->text_end);
    free(t->text);
    free(t);
}
