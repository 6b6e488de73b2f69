/* Byte-pair encoding of one piece of text: the merge table and the two ways of applying it.
 *
 * The order of merges is that of Hugging Face `tokenizers`: among all adjacent pairs that may merge, the one of lowest
 * rank, and of those the leftmost. Short pieces find it by scanning, long ones with a heap. */
#ifndef HT_TOKENIZER_BPE_H
#define HT_TOKENIZER_BPE_H

#include "tokenizer/vocab.h"

#define HT_NO_ORDER UINT32_MAX /* in ht_merges.order: never the result of a merge */

/* Ranks are packed into 22 bits beside two ids. */
#define HT_MAX_MERGES ((1 << 22) - 1)

/* Either the file lists merges: `slots` maps a pair of ids to its rank and `product` a rank to the merged id. Or the
 * file scores its tokens: every two tokens whose texts join to a token merge, in the order of that token's `order`. */
typedef struct ht_merges {
    uint64_t *slots; /* left id (21 bits), right id (21), rank + 1 (22); 0 when free */
    size_t mask;
    int32_t *product; /* [n] */
    int32_t n;
    uint32_t *order; /* [vocabulary]: place of a token among the scores, best first; NULL when merges are listed */
} ht_merges;

ht_status ht_merges_reserve(ht_merges *m, int32_t n, ht_error *err);
/* Adds the next merge; its rank is the number added before. A pair that is listed twice keeps its last rank. The table
 * must have been reserved. */
void ht_merges_add(ht_merges *m, int32_t left, int32_t right, int32_t product);
/* Brings the place of a merge to be added into the cache: of many at a time, they come together. */
void ht_merges_prefetch(const ht_merges *m, int32_t left, int32_t right);
void ht_merges_free(ht_merges *m);

typedef struct ht_bpe_heap_entry {
    uint64_t rank;
    uint32_t at; /* the pair's left symbol */
} ht_bpe_heap_entry;

/* A symbol of a long piece: its neighbours and the pair it begins. */
typedef struct ht_bpe_link {
    uint64_t rank;
    uint32_t next, previous;
    int32_t product;
} ht_bpe_link;

/* The answer to one question "does this pair merge": texts ask the same few thousand ones over and over, and the answer
 * here is in a near cache, where the merge table is in a far one. */
typedef struct ht_bpe_memo {
    uint64_t pair; /* 0 when free */
    uint64_t rank;
    int32_t product;
} ht_bpe_memo;

#define HT_BPE_MEMO_SIZE 2048

/* Working memory of one encoding thread, grown as needed. */
typedef struct ht_bpe_work {
    ht_bpe_memo *memo; /* [HT_BPE_MEMO_SIZE], or NULL: short texts do without */
    int32_t *symbols;  /* in: the initial symbols; out: the merged ones */
    size_t n, capacity;
    ht_bpe_link *links; /* the heap method's, beside symbols */
    ht_bpe_heap_entry *heap;
    size_t n_heap, heap_capacity, link_capacity;
} ht_bpe_work;

/* Adds a memo; without one, when memory ran out, everything is the same but slower. */
void ht_bpe_remember(ht_bpe_work *w);
/* Appends one initial symbol; false when memory ran out. */
bool ht_bpe_push(ht_bpe_work *w, int32_t symbol);
/* Merges w->symbols in place. */
ht_status ht_bpe_merge(const ht_merges *m, const ht_vocab *v, ht_bpe_work *w, ht_error *err);
void ht_bpe_work_free(ht_bpe_work *w);

#endif
