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
    ht_plain_kind kind; /* HT_PLAIN_KINDS: it is not plain */
    uint32_t characters;
    uint32_t shared; /* bytes that it begins with as the one before it */
} token_bytes;

static int by_bytes(const void *a, const void *b) {
    const token_bytes *x = a, *y = b;
    const int order = memcmp(x->bytes, y->bytes, x->n < y->n ? x->n : y->n);
    if (order) return order;
    if (x->n != y->n) return x->n < y->n ? -1 : 1;
    return (x->id > y->id) - (x->id < y->id);
}

/* Characters of a token that is plain text, and its narrowest kind; HT_PLAIN_KINDS for any other. */
static void find_kind(token_bytes *t) {
    t->kind = HT_PLAIN_KINDS;
    t->characters = 0;
    if (t->n > 4 * HT_PLAIN_MOST) return;
    ht_plain_kind widest = HT_PLAIN_SMALL;
    for (uint32_t i = 0; i < t->n; i++) {
        const ht_plain_kind kind = ht_plain_kind_of(t->bytes[i]);
        widest = kind > widest ? kind : widest;
        t->characters += (t->bytes[i] & 0xC0) != 0x80;
    }
    if (t->characters <= HT_PLAIN_MOST && ht_utf8_valid((const char *)t->bytes, t->n)) t->kind = widest;
}

static void free_part(ht_trie_part *p) {
    free(p->byte);
    free(p->depth);
    free(p->next);
    free(p->token);
}

static uint32_t count_shared(const token_bytes *a, const token_bytes *b) {
    const uint32_t n = a->n < b->n ? a->n : b->n;
    uint32_t shared = 0;
    while (shared < n && a->bytes[shared] == b->bytes[shared]) shared++;
    return shared;
}

static ht_status fill_part(ht_trie_part *p, token_bytes *sorted, int32_t n, int32_t *same, ht_error *err) {
    size_t n_nodes = 0;
    uint32_t at = 0;
    for (int32_t i = 0; i < n; i++) {
        sorted[i].shared = i ? count_shared(&sorted[i - 1], &sorted[i]) : 0;
        n_nodes += sorted[i].n - sorted[i].shared;
    }
    p->n = (uint32_t)n_nodes;
    p->byte = malloc(n_nodes + 1);
    p->depth = malloc((n_nodes + 1) * sizeof *p->depth);
    p->next = malloc((n_nodes + 1) * sizeof *p->next);
    p->token = malloc((n_nodes + 1) * sizeof *p->token);
    if (!p->byte || !p->depth || !p->next || !p->token) return ht_fail_memory(err, n_nodes * 11, "a trie of tokens");
    for (int32_t i = 0; i < n; i++) {
        const token_bytes *t = &sorted[i];
        for (uint32_t d = t->shared; d < t->n; d++, at++) {
            p->byte[at] = t->bytes[d];
            p->depth[at] = (uint16_t)d;
            p->token[at] = -1;
        }
        if (t->n - 1 > p->deepest) p->deepest = (uint16_t)(t->n - 1);
        int32_t *place = &p->token[at - 1];
        if (t->shared == t->n && same[t->id] < 0) same[t->id] = *place; /* the same bytes again */
        *place = t->id;
    }
    /* A subtree ends at the next node that is no deeper than its root: the backward loop keeps that node by depth. */
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

/* Divides the sorted tokens into plain ones of a kind and the others, which go to `rest`. */
static ht_status find_plain(ht_token_trie *trie, ht_plain_kind kind, const token_bytes *sorted, int32_t n,
                            token_bytes *rest, ht_error *err) {
    ht_plain_tokens *of = &trie->plain[kind];
    const size_t n_words = trie->n_words;
    int32_t n_rest = 0;
    of->mask = calloc((HT_PLAIN_MOST + 1) * n_words + 1, sizeof *of->mask);
    if (!of->mask) return ht_fail_memory(err, HT_PLAIN_MOST * n_words * sizeof *of->mask, "a trie of tokens");
    for (int32_t i = 0; i < n; i++) {
        if (sorted[i].kind <= kind)
            of->mask[sorted[i].characters * n_words + (size_t)sorted[i].id / 32] |= 1u << (sorted[i].id & 31);
        else
            rest[n_rest++] = sorted[i];
    }
    for (size_t w = n_words; w < (HT_PLAIN_MOST + 1) * n_words; w++) of->mask[w] |= of->mask[w - n_words];
    return fill_part(&of->rest, rest, n_rest, trie->same, err);
}

static ht_status fill(ht_token_trie *trie, const ht_tokenizer *t, token_bytes *sorted, ht_error *err) {
    ht_status status = read_texts(trie, t, err);
    int32_t n = 0;
    if (status) return status;
    for (int32_t id = 0; id < trie->n_tokens; id++) {
        size_t length;
        const char *bytes = ht_token_trie_text(trie, id, &length);
        trie->same[id] = -1;
        if (length) sorted[n++] = (token_bytes){.bytes = (const unsigned char *)bytes, .n = (uint32_t)length, .id = id};
    }
    for (int32_t i = 0; i < n; i++) find_kind(&sorted[i]);
    qsort(sorted, (size_t)n, sizeof *sorted, by_bytes);
    status = fill_part(&trie->all, sorted, n, trie->same, err);
    for (int32_t id = 0; id < trie->n_tokens; id++) trie->has_same = trie->has_same || trie->same[id] >= 0;
    for (int kind = 0; kind < HT_PLAIN_KINDS && !status; kind++)
        status = find_plain(trie, (ht_plain_kind)kind, sorted, n, sorted + n, err);
    return status;
}

ht_status ht_token_trie_new(const ht_tokenizer *t, ht_token_trie **out, ht_error *err) {
    const size_t n = (size_t)ht_tokenizer_vocab_size(t), n_words = (n + 31) / 32;
    ht_token_trie *trie = *out = calloc(1, sizeof *trie);
    if (!trie) return ht_fail_memory(err, sizeof *trie, "a trie of tokens");
    trie->n_tokens = (int32_t)n;
    trie->n_words = n_words;
    trie->same = malloc((n + 1) * sizeof *trie->same);
    trie->text_end = malloc((n + 1) * sizeof *trie->text_end);
    token_bytes *sorted = malloc((2 * n + 1) * sizeof *sorted);
    ht_status status = trie->same && trie->text_end && sorted ? fill(trie, t, sorted, err)
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
    for (int kind = 0; kind < HT_PLAIN_KINDS; kind++) {
        free_part(&t->plain[kind].rest);
        free(t->plain[kind].mask);
    }
    free(t->same);
    free(t->text_end);
    free(t->text);
    free(t);
}
