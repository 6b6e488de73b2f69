/* Interning: sequences of 32-bit words, each stored once and numbered in order of first occurrence; and maps from
 * pairs of numbers. Automata compare, share and store states as integers. One thread at a time. */
#ifndef HT_GRAMMAR_INTERN_H
#define HT_GRAMMAR_INTERN_H

#include "base/table.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define HT_INTERN_FAILED UINT32_MAX

typedef struct ht_intern {
    uint32_t *word; /* all sequences, concatenated */
    size_t n_words, word_capacity;
    uint32_t *end; /* [n] of each sequence in `word` */
    uint32_t n;
    size_t capacity;
    ht_table table; /* of numbers by their words */
} ht_intern;

/* A zeroed ht_intern is empty. */
void ht_intern_free(ht_intern *t);
/* The number of n words, which may lie in the table itself. *is_new may be NULL. HT_INTERN_FAILED: no memory, or 2^31 words. */
uint32_t ht_intern_add(ht_intern *t, const uint32_t *words, size_t n, bool *is_new);
/* The same for n bytes, stored as words after their number. */
uint32_t ht_intern_text(ht_intern *t, const char *text, size_t n, bool *is_new);
/* The words of a sequence, borrowed until the next ht_intern_add. */
static inline const uint32_t *ht_intern_at(const ht_intern *t, uint32_t number, size_t *n) {
    const uint32_t begin = number ? t->end[number - 1] : 0;
    *n = t->end[number] - begin;
    return begin ? t->word + begin : t->word; /* which is NULL before there are any words */
}
/* Removes all but the first n sequences. */
void ht_intern_truncate(ht_intern *t, uint32_t n);
/* Bytes of memory in use, without removed sequences, whose memory is kept for reuse. */
size_t ht_intern_bytes(const ht_intern *t);

/* Sorts n words, drops repeated ones, and returns how many are left. */
size_t ht_sort_words(uint32_t *words, size_t n);
/* Whether n sorted words contain one. */
bool ht_sorted_has(const uint32_t *words, size_t n, uint32_t word);

/* A map from pairs of numbers to a number. */
typedef struct ht_pair_map {
    struct ht_pair_slot *slot; /* [n_slots] */
    size_t n_slots, n;
} ht_pair_map;

/* A zeroed ht_pair_map is empty. */
void ht_pair_map_free(ht_pair_map *m);
/* HT_INTERN_FAILED when it has no such pair. */
uint32_t ht_pair_map_find(const ht_pair_map *m, uint32_t a, uint32_t b);
/* Adds a pair that the map does not have; `value` is not HT_INTERN_FAILED. False when memory ran out. */
bool ht_pair_map_add(ht_pair_map *m, uint32_t a, uint32_t b, uint32_t value);
void ht_pair_map_clear(ht_pair_map *m);
size_t ht_pair_map_bytes(const ht_pair_map *m);

#endif
