#include "tokenizer/bpe.h"

#include "base/error.h"
#include "base/grow.h"
#include "base/pages.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#define NO_MERGE   UINT64_MAX
#define NO_SYMBOL  UINT32_MAX
#define SHORT      48  /* symbols up to which a linear scan for the lowest rank beats the heap */
#define MAX_JOINED 512 /* bytes of the longest token that scored merging can produce */

static uint64_t pair_key(int32_t left, int32_t right) { return (uint64_t)left << 43 | (uint64_t)right << 22; }

static size_t pair_slot(uint64_t key, size_t mask) {
    uint64_t h = key * 0x9E3779B97F4A7C15u;
    return (size_t)(h >> 32 ^ h >> 13) & mask;
}

ht_status ht_merges_reserve(ht_merges *m, int32_t n, ht_error *err) {
    size_t size = 16;
    while (size < (size_t)n * 2) size *= 2;
    m->slots = ht_pages_zeroed(size, sizeof *m->slots);
    m->product = malloc(((size_t)n + 1) * sizeof *m->product);
    if (!m->slots || !m->product) return ht_fail_memory(err, size * sizeof *m->slots, "merges");
    m->mask = size - 1;
    return HT_OK;
}

#define RANK_BITS ((1u << 22) - 1)

void ht_merges_add(ht_merges *m, int32_t left, int32_t right, int32_t product) {
    uint64_t key = pair_key(left, right);
    size_t i = pair_slot(key, m->mask);
    while (m->slots[i] && (m->slots[i] & ~(uint64_t)RANK_BITS) != key) i = (i + 1) & m->mask;
    m->product[m->n++] = product;
    m->slots[i] = key | (uint64_t)m->n;
}

void ht_merges_prefetch(const ht_merges *m, int32_t left, int32_t right) {
    __builtin_prefetch(&m->slots[pair_slot(pair_key(left, right), m->mask)], 1);
}

void ht_merges_free(ht_merges *m) {
    free(m->slots);
    free(m->product);
    free(m->order);
    *m = (ht_merges){0};
}

static uint64_t listed_rank(const ht_merges *m, int32_t left, int32_t right, int32_t *product) {
    uint64_t key = pair_key(left, right);
    for (size_t i = pair_slot(key, m->mask); m->slots[i]; i = (i + 1) & m->mask)
        if ((m->slots[i] & ~(uint64_t)RANK_BITS) == key) {
            uint64_t rank = (m->slots[i] & RANK_BITS) - 1;
            *product = m->product[rank];
            return rank;
        }
    return NO_MERGE;
}

int64_t ht_merges_rank(const ht_merges *m, int32_t left, int32_t right) {
    int32_t product;
    const uint64_t rank = m->slots ? listed_rank(m, left, right, &product) : NO_MERGE;
    return rank == NO_MERGE ? -1 : (int64_t)rank;
}

bool ht_merges_next(const ht_merges *m, size_t *at, int32_t *left, int32_t *right) {
    while (m->slots && *at <= m->mask) {
        const uint64_t slot = m->slots[(*at)++];
        if (!slot) continue;
        *left = (int32_t)(slot >> 43);
        *right = (int32_t)(slot >> 22 & ((1 << 21) - 1));
        return true;
    }
    return false;
}

/* Rank of a scored merge: best score first, then lowest id; of two splits of one token, the longer left part first. */
static uint64_t scored_rank(const ht_merges *m, const ht_vocab *v, int32_t left, int32_t right, int32_t *product) {
    size_t a = v->length[left], b = v->length[right];
    if (a + b > v->longest || a + b > MAX_JOINED) return NO_MERGE;
    char joined[MAX_JOINED];
    memcpy(joined, ht_vocab_text(v, left), a);
    memcpy(joined + a, ht_vocab_text(v, right), b);
    int32_t id = ht_vocab_find(v, joined, a + b);
    if (id < 0 || m->order[id] == HT_NO_ORDER) return NO_MERGE;
    *product = id;
    return (uint64_t)m->order[id] << 32 | (uint64_t)(MAX_JOINED - a);
}

static uint64_t look_up(const ht_merges *m, const ht_vocab *v, int32_t left, int32_t right, int32_t *product) {
    return m->order ? scored_rank(m, v, left, right, product) : listed_rank(m, left, right, product);
}

static inline uint64_t find_rank(const ht_merges *m, const ht_vocab *v, const ht_bpe_work *w, int32_t left,
                                 int32_t right, int32_t *product) {
    if (!w->memo) return look_up(m, v, left, right, product);
    uint64_t pair = ((uint64_t)left << 32 | (uint32_t)right) + 1;
    ht_bpe_memo *memo = &w->memo[pair * 0x9E3779B97F4A7C15u >> (64 - 11)];
    if (memo->pair != pair) {
        memo->pair = pair;
        memo->product = -1;
        memo->rank = look_up(m, v, left, right, &memo->product);
    }
    *product = memo->product;
    return memo->rank;
}

static_assert(HT_BPE_MEMO_SIZE == 1 << 11, "the memo's index has 11 bits");

void ht_bpe_add_memo(ht_bpe_work *w) {
    if (!w->memo) w->memo = calloc(HT_BPE_MEMO_SIZE, sizeof *w->memo);
}

bool ht_bpe_push(ht_bpe_work *w, int32_t symbol) {
    if (!HT_GROW(w->symbols, w->capacity, w->n + 1)) return false;
    w->symbols[w->n++] = symbol;
    return true;
}

void ht_bpe_work_free(ht_bpe_work *w) {
    free(w->memo);
    free(w->symbols);
    free(w->links);
    free(w->heap);
    *w = (ht_bpe_work){0};
}

static void merge_short(const ht_merges *m, const ht_vocab *v, ht_bpe_work *w) {
    int32_t *symbols = w->symbols, product[SHORT];
    uint64_t rank[SHORT]; /* rank of the pair that begins at i */
    size_t n = w->n;
    for (size_t i = 0; i + 1 < n; i++) rank[i] = find_rank(m, v, w, symbols[i], symbols[i + 1], &product[i]);
    while (n > 1) {
        size_t best = 0;
        for (size_t i = 1; i + 1 < n; i++)
            if (rank[i] < rank[best]) best = i;
        if (rank[best] == NO_MERGE) break;
        symbols[best] = product[best];
        size_t tail = n - best - 2; /* symbols after the pair */
        memmove(symbols + best + 1, symbols + best + 2, tail * sizeof *symbols);
        memmove(rank + best, rank + best + 1, tail * sizeof *rank);
        memmove(product + best, product + best + 1, tail * sizeof *product);
        n--;
        if (best + 1 < n) rank[best] = find_rank(m, v, w, symbols[best], symbols[best + 1], &product[best]);
        if (best > 0) rank[best - 1] = find_rank(m, v, w, symbols[best - 1], symbols[best], &product[best - 1]);
    }
    w->n = n;
}

static bool sooner(const ht_bpe_heap_entry *a, const ht_bpe_heap_entry *b) {
    return a->rank != b->rank ? a->rank < b->rank : a->at < b->at;
}

/* A 4-ary heap: half the depth of a binary one, and siblings share a cache line. */
static void sift_down(ht_bpe_heap_entry *heap, size_t n, size_t at) {
    ht_bpe_heap_entry moved = heap[at];
    for (;;) {
        size_t child = at * 4 + 1, best = child;
        if (child >= n) break;
        size_t end = child + 4 < n ? child + 4 : n;
        for (size_t i = child + 1; i < end; i++)
            if (sooner(&heap[i], &heap[best])) best = i;
        if (!sooner(&heap[best], &moved)) break;
        heap[at] = heap[best];
        at = best;
    }
    heap[at] = moved;
}

static bool heap_push(ht_bpe_work *w, ht_bpe_heap_entry entry) {
    if (!HT_GROW(w->heap, w->heap_capacity, w->n_heap + 1)) return false;
    size_t at = w->n_heap++;
    while (at > 0) {
        size_t parent = (at - 1) / 4;
        if (!sooner(&entry, &w->heap[parent])) break;
        w->heap[at] = w->heap[parent];
        at = parent;
    }
    w->heap[at] = entry;
    return true;
}

/* Pushes the pair that begins at `left` to the heap if it merges. */
static bool offer_pair(const ht_merges *m, const ht_vocab *v, ht_bpe_work *w, uint32_t left) {
    ht_bpe_link *link = &w->links[left];
    link->rank = NO_MERGE;
    if (link->next == NO_SYMBOL) return true;
    link->rank = find_rank(m, v, w, w->symbols[left], w->symbols[link->next], &link->product);
    return link->rank == NO_MERGE || heap_push(w, (ht_bpe_heap_entry){link->rank, left});
}

static bool reserve_links(ht_bpe_work *w) {
    if (w->n <= w->link_capacity) return true;
    free(w->links);
    w->link_capacity = 0;
    w->links = malloc(w->n * sizeof *w->links);
    if (!w->links) return false;
    w->link_capacity = w->n;
    return true;
}

/* Skips stale heap entries, whose pair has changed: symbols only grow, so an equal rank means the same pair. */
static bool merge_long(const ht_merges *m, const ht_vocab *v, ht_bpe_work *w) {
    if (!reserve_links(w)) return false;
    ht_bpe_link *links = w->links;
    uint32_t n = (uint32_t)w->n;
    w->n_heap = 0;
    for (uint32_t i = 0; i < n; i++) {
        links[i].previous = i ? i - 1 : NO_SYMBOL;
        links[i].next = i + 1 < n ? i + 1 : NO_SYMBOL;
        if (!offer_pair(m, v, w, i)) return false;
    }
    while (w->n_heap) {
        ht_bpe_heap_entry top = w->heap[0];
        w->heap[0] = w->heap[--w->n_heap];
        if (w->n_heap) sift_down(w->heap, w->n_heap, 0);
        ht_bpe_link *left = &links[top.at];
        if (left->rank != top.rank) continue;
        uint32_t right = left->next;
        w->symbols[top.at] = left->product;
        w->symbols[right] = -1;
        links[right].rank = NO_MERGE;
        left->next = links[right].next;
        if (left->next != NO_SYMBOL) links[left->next].previous = top.at;
        if (!offer_pair(m, v, w, top.at)) return false;
        if (left->previous != NO_SYMBOL && !offer_pair(m, v, w, left->previous)) return false;
    }
    size_t kept = 0;
    for (uint32_t i = 0; i < n; i++)
        if (w->symbols[i] >= 0) w->symbols[kept++] = w->symbols[i];
    w->n = kept;
    return true;
}

ht_status ht_bpe_merge(const ht_merges *m, const ht_vocab *v, ht_bpe_work *w, ht_error *err) {
    if (w->n < 2 || (!m->order && !m->n)) return HT_OK;
    if (w->n <= SHORT) {
        merge_short(m, v, w);
        return HT_OK;
    }
    if (w->n >= NO_SYMBOL)
        return ht_fail(err, HT_ERR_LIMIT, "a piece of %zu symbols is too long; at most %u", w->n, NO_SYMBOL - 1);
    return merge_long(m, v, w) ? HT_OK : ht_fail_memory(err, w->n * sizeof *w->heap, "encoding");
}
