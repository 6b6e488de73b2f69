/* Byte-pair encoding of one piece of text: the merge table and its application.
 *
 * Merge order of Hugging Face `tokenizers`: the adjacent pair of lowest rank, the leftmost of equal ones. Short pieces
 * scan for it, long ones use a heap. */
#ifndef HT_TOKENIZER_BPE_H
#define HT_TOKENIZER_BPE_H

#include "tokenizer/vocab.h"

#define HT_NO_ORDER UINT32_MAX /* in ht_merges.order: no merge produces this token */

/* A 64-bit key holds two ids and 22 bits of rank. */
#define HT_MAX_MERGES ((1 << 22) - 1)

/* Merge table, of one of two kinds. Listed merges: `slots` is a hash table from id pair to rank, `product` maps a rank
 * to the merged id. Scored tokens (SentencePiece): any two tokens whose concatenation is a token merge, ranked by
 * `order` of that token. */
typedef struct ht_merges {
    uint64_t *slots; /* left id (21 bits), right id (21), rank + 1 (22); 0: free */
    size_t mask;
    int32_t *product; /* [n] */
    int32_t n;
    uint32_t *order; /* [vocab.n]: position by descending score; NULL for listed merges */
} ht_merges;

ht_status ht_merges_reserve(ht_merges *m, int32_t n, ht_error *err);
/* Appends a merge to a reserved table; its rank is the number of merges before it. A repeated pair keeps its last
 * rank. */
void ht_merges_add(ht_merges *m, int32_t left, int32_t right, int32_t product);
/* Prefetches the hash slot of a merge about to be added; called for a batch, so that the cache misses overlap. */
void ht_merges_prefetch(const ht_merges *m, int32_t left, int32_t right);
void ht_merges_free(ht_merges *m);
/* Rank of a listed merge; -1 when there is none. */
int64_t ht_merges_rank(const ht_merges *m, int32_t left, int32_t right);
/* Iterates over the listed merges in no order: start with *at = 0; false at the end. */
bool ht_merges_next(const ht_merges *m, size_t *at, int32_t *left, int32_t *right);

typedef struct ht_bpe_heap_entry {
    uint64_t rank;
    uint32_t at; /* index of the left symbol */
} ht_bpe_heap_entry;

/* Doubly linked list of a long piece's symbols, with the merge of each symbol and its successor. */
typedef struct ht_bpe_link {
    uint64_t rank;
    uint32_t next, previous;
    int32_t product;
} ht_bpe_link;

/* Memoised pair lookup: texts repeat a few thousand pairs, and the memo stays in a nearer cache than the merge
 * table. */
typedef struct ht_bpe_memo {
    uint64_t pair; /* 0: free */
    uint64_t rank;
    int32_t product;
} ht_bpe_memo;

#define HT_BPE_MEMO_SIZE 2048

/* Scratch of one encoding thread, grown as needed. */
typedef struct ht_bpe_work {
    ht_bpe_memo *memo; /* [HT_BPE_MEMO_SIZE], or NULL for short texts */
    int32_t *symbols;  /* in: initial symbols; out: merged symbols */
    size_t n, capacity;
    ht_bpe_link *links; /* heap method only, parallel to symbols */
    ht_bpe_heap_entry *heap;
    size_t n_heap, heap_capacity, link_capacity;
} ht_bpe_work;

/* Allocates the memo; on failure merging works without it, slower. */
void ht_bpe_add_memo(ht_bpe_work *w);
/* Appends an initial symbol; false when out of memory. */
bool ht_bpe_push(ht_bpe_work *w, int32_t symbol);
/* Merges w->symbols in place. */
ht_status ht_bpe_merge(const ht_merges *m, const ht_vocab *v, ht_bpe_work *w, ht_error *err);
void ht_bpe_work_free(ht_bpe_work *w);

#endif
