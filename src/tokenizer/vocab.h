/* Vocabulary: token texts in one arena, and a hash index from text to id. */
#ifndef HT_TOKENIZER_VOCAB_H
#define HT_TOKENIZER_VOCAB_H

#include "base/hash.h"
#include "base/table.h"

#include <hearth/status.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The merge table packs an id into 21 bits. */
#define HT_MAX_VOCAB (1 << 21)

typedef struct ht_vocab {
    char *arena; /* texts, each followed by a NUL */
    size_t arena_size, arena_capacity;
    uint32_t *begin, *length; /* [n]: arena range; begin is HT_NO_TOKEN for ids without a token */
    int32_t n;
    int32_t capacity;
    uint32_t longest; /* bytes of the longest token */
    ht_table index;   /* of ids by their text */
} ht_vocab;

#define HT_NO_TOKEN UINT32_MAX

/* Reserves capacity for n tokens of about `bytes` bytes in total. */
ht_status ht_vocab_reserve(ht_vocab *v, int32_t n, size_t bytes, ht_error *err);
/* Sets or replaces the text of `id`, growing the vocabulary; skipped ids stay without a token. */
ht_status ht_vocab_set(ht_vocab *v, int32_t id, const char *text, size_t n, ht_error *err);
/* Builds the index; of ids with equal text the last is found. */
ht_status ht_vocab_index(ht_vocab *v, ht_error *err);
void ht_vocab_free(ht_vocab *v);

int32_t ht_vocab_find(const ht_vocab *v, const char *text, size_t n); /* -1 when absent */
static inline bool ht_vocab_has(const ht_vocab *v, int32_t id) {
    return id >= 0 && id < v->n && v->begin[id] != HT_NO_TOKEN;
}
static inline const char *ht_vocab_text(const ht_vocab *v, int32_t id) { return v->arena + v->begin[id]; }

/* Logs that a special id outside the vocabulary is ignored. */
void ht_vocab_warn_outside(const char *file, const char *key, int64_t id, int64_t n_vocab);

/* Batched lookup in three passes over all tokens, so that their cache misses overlap: hash and prefetch, peek,
 * find_hashed. */
static inline void ht_vocab_prefetch(const ht_vocab *v, uint64_t hash) {
    __builtin_prefetch(ht_table_slot(&v->index, hash));
}
static inline void ht_vocab_peek(const ht_vocab *v, uint64_t hash) {
    uint32_t id = (uint32_t)*ht_table_slot(&v->index, hash);
    if (!id) return;
    __builtin_prefetch(&v->length[id - 1]);
    __builtin_prefetch(v->arena + v->begin[id - 1]);
}
int32_t ht_vocab_find_hashed(const ht_vocab *v, uint64_t hash, const char *text, size_t n);

#endif
