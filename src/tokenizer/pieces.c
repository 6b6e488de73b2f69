#include "tokenizer/pieces.h"

#include "base/error.h"
#include "base/grow.h"
#include "tokenizer/unicode.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define UNKNOWN_PENALTY 10.0 /* an unknown character's score is this much below the least */
enum { UNKNOWN = -1, UNREACHED = -2 };

/* ---- the trie ---- */

typedef struct entry {
    uint64_t head; /* the first 8 bytes, for a fast comparison */
    const char *text;
    uint32_t n;
    int32_t id;
} entry;

static uint64_t head_of(const char *text, size_t n) {
    uint64_t head = 0;
    for (size_t i = 0; i < 8; i++) head = head << 8 | (i < n ? (unsigned char)text[i] : 0);
    return head;
}

static int by_text(const void *a, const void *b) {
    const entry *x = a, *y = b;
    if (x->head != y->head) return x->head < y->head ? -1 : 1;
    const int order = memcmp(x->text, y->text, x->n < y->n ? x->n : y->n);
    if (order) return order;
    if (x->n != y->n) return x->n < y->n ? -1 : 1;
    return (x->id > y->id) - (x->id < y->id);
}

static size_t count_nodes(const entry *e, size_t n) {
    size_t nodes = 1;
    for (size_t i = 0; i < n; i++) {
        uint32_t shared = 0;
        while (i && shared < e[i].n && shared < e[i - 1].n && e[i].text[shared] == e[i - 1].text[shared]) shared++;
        nodes += e[i].n - shared;
    }
    return nodes;
}

/* The entries that pass through a node, while the trie is built. */
typedef struct entry_range {
    uint32_t begin, end;
} entry_range;

static void fill_nodes(ht_piece_trie *trie, const entry *e, uint32_t n_entries, entry_range *range) {
    uint32_t next = 1, level_end = 1, depth = 0;
    range[0] = (entry_range){0, n_entries};
    for (uint32_t node = 0; node < trie->n; node++) {
        if (node == level_end) {
            level_end = next;
            depth++;
        }
        uint32_t at = range[node].begin;
        const uint32_t end = range[node].end;
        trie->first[node] = next;
        trie->token[node] = -1;
        for (; at < end && e[at].n == depth; at++) trie->token[node] = e[at].id;
        while (at < end) {
            const char byte = e[at].text[depth];
            range[next].begin = at;
            while (at < end && e[at].text[depth] == byte) at++;
            range[next].end = at;
            trie->byte[next++] = (uint8_t)byte;
        }
    }
    trie->first[trie->n] = next;
}

static ht_status build_trie(ht_piece_trie *trie, entry *e, size_t n, ht_error *err) {
    if (n) qsort(e, n, sizeof *e, by_text);
    const size_t nodes = count_nodes(e, n);
    if (nodes >= HT_NO_NODE) return ht_fail(err, HT_ERR_LIMIT, "the vocabulary's texts exceed 4 GiB");
    trie->n = (uint32_t)nodes;
    trie->byte = calloc(nodes, 1);
    trie->first = malloc((nodes + 1) * sizeof *trie->first);
    trie->token = malloc(nodes * sizeof *trie->token);
    entry_range *range = malloc(nodes * sizeof *range);
    const bool good = trie->byte && trie->first && trie->token && range;
    if (good) fill_nodes(trie, e, (uint32_t)n, range);
    free(range);
    return good ? HT_OK : ht_fail_memory(err, nodes * 17, "a trie of tokens");
}

static uint32_t child_of(const ht_piece_trie *trie, uint32_t node, char byte) {
    const uint32_t first = trie->first[node], n = trie->first[node + 1] - first;
    const uint8_t *hit = n ? memchr(trie->byte + first, (unsigned char)byte, n) : NULL;
    return hit ? (uint32_t)(hit - trie->byte) : HT_NO_NODE;
}

static uint32_t node_of(const ht_piece_trie *trie, const char *text, size_t n) {
    uint32_t node = 0;
    for (size_t i = 0; i < n && node != HT_NO_NODE; i++) node = child_of(trie, node, text[i]);
    return node;
}

ht_status ht_pieces_build(ht_pieces *p, const ht_vocab *v, ht_error *err) {
    entry *e = malloc(((size_t)p->n + 1) * sizeof *e);
    if (!e) return ht_fail_memory(err, (size_t)p->n * sizeof *e, "a trie of tokens");
    size_t n = 0;
    p->least_score = INFINITY;
    for (int32_t id = 0; id < p->n; id++) {
        if (!ht_vocab_has(v, id) || (p->score && isnan(p->score[id]))) continue;
        const char *text = ht_vocab_text(v, id);
        const uint32_t length = v->length[id];
        if (p->score && p->score[id] < p->least_score) p->least_score = p->score[id];
        if (length > HT_MAX_PIECE) {
            free(e);
            return ht_fail(err, HT_ERR_LIMIT, "token %d has %u bytes; at most %d are supported", (int)id, length,
                           HT_MAX_PIECE);
        }
        if (length) e[n++] = (entry){head_of(text, length), text, length, id};
    }
    const ht_status st = build_trie(&p->trie, e, n, err);
    free(e);
    if (!st) p->within = node_of(&p->trie, p->prefix, p->n_prefix);
    return st;
}

void ht_pieces_free(ht_pieces *p) {
    free(p->trie.byte);
    free(p->trie.first);
    free(p->trie.token);
    free(p->prefix);
    free(p->score);
    *p = (ht_pieces){0};
}

/* ---- tokenization ---- */

void ht_piece_work_free(ht_piece_work *w) {
    free(w->piece);
    free(w->step);
    *w = (ht_piece_work){0};
}

static bool push(ht_piece_work *w, size_t begin, size_t end, int32_t id) {
    if (!HT_GROW(w->piece, w->capacity, w->n + 1)) return false;
    w->piece[w->n++] = (ht_piece){begin, end, id};
    return true;
}

/* The longest token with the begin of a text, from a node on; -1: none. */
static int32_t find_longest(const ht_piece_trie *trie, uint32_t node, const uint8_t *flags, uint8_t hidden,
                            const char *text, size_t n, size_t *length) {
    int32_t longest = -1;
    for (size_t i = 0; i < n && node != HT_NO_NODE; i++) {
        node = child_of(trie, node, text[i]);
        if (node == HT_NO_NODE || trie->token[node] < 0 || flags[trie->token[node]] & hidden) continue;
        longest = trie->token[node];
        *length = i + 1;
    }
    return longest;
}

static bool has_more_characters(const char *text, size_t n, size_t most) {
    size_t count = 0;
    for (size_t i = 0; i < n && count <= most; i++) count += ((unsigned char)text[i] & 0xC0) != 0x80;
    return count > most;
}

ht_status ht_wordpiece(const ht_pieces *p, const uint8_t *flags, uint8_t hidden, const char *text, size_t n,
                       ht_piece_work *w, ht_error *err) {
    w->n = 0;
    bool good = true, known = !has_more_characters(text, n, p->most_chars);
    for (size_t at = 0, length = 0; at < n && known && good; at += length) {
        const int32_t id = find_longest(&p->trie, at ? p->within : 0, flags, hidden, text + at, n - at, &length);
        known = id >= 0;
        if (known) good = push(w, at, at + length, id);
    }
    if (!known) {
        w->n = 0;
        good = push(w, 0, n, UNKNOWN);
    }
    return good ? HT_OK : ht_fail_memory(err, n, "encoding");
}

static void offer(ht_piece_step *to, double score, size_t begin, int32_t id) {
    if (to->id != UNREACHED && !(score > to->score)) return;
    *to = (ht_piece_step){score, (uint32_t)begin, id};
}

/* Viterbi search. Between equal scores the path with the longest last token remains. */
static void find_best(const ht_pieces *p, const uint8_t *flags, uint8_t hidden, const char *text, size_t n,
                      ht_piece_step *step) {
    const ht_piece_trie *trie = &p->trie;
    step[0] = (ht_piece_step){0, 0, 0};
    for (size_t i = 1; i <= n; i++) step[i].id = UNREACHED;
    for (size_t at = 0, length; at < n; at += length) {
        const double here = step[at].score;
        bool has_single = false;
        uint32_t node = 0;
        ht_utf8_next(text + at, &length);
        for (size_t end = at; end < n && (node = child_of(trie, node, text[end++])) != HT_NO_NODE;) {
            const int32_t id = trie->token[node];
            if (id < 0 || flags[id] & hidden) continue;
            offer(&step[end], here + p->score[id], at, id);
            has_single |= end == at + length;
        }
        if (!has_single) offer(&step[at + length], here + (p->least_score - UNKNOWN_PENALTY), at, UNKNOWN);
    }
}

/* The token with exactly this text, or -1. */
static int32_t find_token(const ht_piece_trie *trie, const uint8_t *flags, uint8_t hidden, const char *text, size_t n) {
    const uint32_t node = node_of(trie, text, n);
    const int32_t id = node == HT_NO_NODE ? -1 : trie->token[node];
    return id >= 0 && flags[id] & hidden ? -1 : id;
}

ht_status ht_unigram(const ht_pieces *p, const uint8_t *flags, uint8_t hidden, int32_t unk, const char *text, size_t n,
                     ht_piece_work *w, ht_error *err) {
    w->n = 0;
    if (n >= UINT32_MAX) return ht_fail(err, HT_ERR_LIMIT, "a piece of %zu bytes is too long", n);
    if (!HT_GROW(w->step, w->step_capacity, n + 1)) return ht_fail_memory(err, (n + 1) * sizeof *w->step, "encoding");
    ht_piece_step *step = w->step;
    find_best(p, flags, hidden, text, n, step);
    /* Reverses the links: each position on the best path then has the token that begins there. */
    ht_piece_step last = step[n];
    for (uint32_t end = (uint32_t)n; end > 0;) {
        const ht_piece_step before = step[last.begin];
        step[last.begin] = (ht_piece_step){0, end, last.id};
        end = last.begin;
        last = before;
    }
    bool good = true;
    for (size_t at = 0, end; at < n && good; at = end) {
        int32_t id = step[at].id;
        end = step[at].begin;
        if (id == UNKNOWN || id == unk) {
            while (end < n && (step[end].id == UNKNOWN || step[end].id == unk)) end = step[end].begin;
            id = find_token(&p->trie, flags, hidden, text + at, end - at);
        }
        good = push(w, at, end, id);
    }
    return good ? HT_OK : ht_fail_memory(err, n, "encoding");
}
