/* Interned sequences in a hash table. Maps keep pairs in their slots: a lookup reads one cache line, unlike base/table.h. */
#include "grammar/intern.h"

#include "base/grow.h"
#include "base/hash.h"

#include <stdlib.h>
#include <string.h>

struct ht_pair_slot {
    uint32_t a, b, value; /* HT_INTERN_FAILED: free */
};

/* ---- sequences ---- */

void ht_intern_free(ht_intern *t) {
    free(t->word);
    free(t->end);
    ht_table_free(&t->table);
    *t = (ht_intern){0};
}

uint32_t ht_intern_add(ht_intern *t, const uint32_t *words, size_t n, bool *is_new) {
    if (is_new) *is_new = false;
    const uint64_t hash = ht_hash_bytes(words, n * sizeof *words);
    size_t probe = 0;
    for (uint32_t i; (i = ht_table_next(&t->table, hash, &probe)) != HT_TABLE_END;) {
        size_t n_there;
        const uint32_t *there = ht_intern_at(t, i, &n_there);
        if (n == n_there && (n == 0 || !memcmp(there, words, n * sizeof *words))) return i;
    }
    /* Words of the table itself move when it grows. */
    const bool is_own = t->word && words >= t->word && words < t->word + t->n_words;
    const size_t offset = is_own ? (size_t)(words - t->word) : 0;
    if (t->n_words + n > INT32_MAX || !HT_GROW(t->word, t->word_capacity, t->n_words + n)) return HT_INTERN_FAILED;
    if (!HT_GROW(t->end, t->capacity, (size_t)t->n + 1) || ht_table_add(&t->table, hash, t->n)) return HT_INTERN_FAILED;
    if (n) memmove(t->word + t->n_words, is_own ? t->word + offset : words, n * sizeof *words);
    t->n_words += n;
    t->end[t->n] = (uint32_t)t->n_words;
    if (is_new) *is_new = true;
    return t->n++;
}

uint32_t ht_intern_text(ht_intern *t, const char *text, size_t n, bool *is_new) {
    uint32_t few[64] = {0}, *words = few;
    const size_t n_words = 1 + (n + 3) / 4;
    if (is_new) *is_new = false;
    if (n > INT32_MAX || (n_words > 64 && !(words = calloc(n_words, sizeof *words)))) return HT_INTERN_FAILED;
    words[0] = (uint32_t)n;
    if (n) memcpy(words + 1, text, n);
    const uint32_t number = ht_intern_add(t, words, n_words, is_new);
    if (words != few) free(words);
    return number;
}

void ht_intern_truncate(ht_intern *t, uint32_t n) {
    if (n >= t->n) return;
    t->n = n;
    t->n_words = n ? t->end[n - 1] : 0;
    ht_table_truncate(&t->table, n);
}

size_t ht_intern_bytes(const ht_intern *t) {
    return (t->n_words + (size_t)t->n * 7) * sizeof(uint32_t); /* slots are two to four times as many as sequences */
}

static int ascending(const void *a, const void *b) {
    const uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

size_t ht_sort_words(uint32_t *words, size_t n) {
    size_t kept = 0;
    if (n > 1) qsort(words, n, sizeof *words, ascending);
    for (size_t i = 0; i < n; i++)
        if (!kept || words[kept - 1] != words[i]) words[kept++] = words[i];
    return kept;
}

bool ht_sorted_has(const uint32_t *words, size_t n, uint32_t word) {
    return n && bsearch(&word, words, n, sizeof word, ascending);
}

/* ---- pairs ---- */

void ht_pair_map_free(ht_pair_map *m) {
    free(m->slot);
    *m = (ht_pair_map){0};
}

static size_t first_slot(const ht_pair_map *m, uint32_t a, uint32_t b) {
    return (size_t)ht_hash_number((uint64_t)a << 32 | b) & (m->n_slots - 1);
}

uint32_t ht_pair_map_find(const ht_pair_map *m, uint32_t a, uint32_t b) {
    if (!m->n) return HT_INTERN_FAILED;
    for (size_t at = first_slot(m, a, b);; at = (at + 1) & (m->n_slots - 1)) {
        const struct ht_pair_slot *s = &m->slot[at];
        if (s->value == HT_INTERN_FAILED || (s->a == a && s->b == b)) return s->value;
    }
}

static void put(ht_pair_map *m, struct ht_pair_slot pair) {
    size_t at = first_slot(m, pair.a, pair.b);
    while (m->slot[at].value != HT_INTERN_FAILED) at = (at + 1) & (m->n_slots - 1);
    m->slot[at] = pair;
}

static bool grow_map(ht_pair_map *m) {
    const size_t times = m->n_slots < 4096 ? 4 : 2; /* small maps soon fill up again; large ones take pages */
    ht_pair_map larger = {.n_slots = m->n_slots ? times * m->n_slots : 64, .n = m->n};
    larger.slot = malloc(larger.n_slots * sizeof *larger.slot);
    if (!larger.slot) return false;
    for (size_t i = 0; i < larger.n_slots; i++) larger.slot[i].value = HT_INTERN_FAILED;
    for (size_t i = 0; i < m->n_slots; i++)
        if (m->slot[i].value != HT_INTERN_FAILED) put(&larger, m->slot[i]);
    free(m->slot);
    *m = larger;
    return true;
}

bool ht_pair_map_add(ht_pair_map *m, uint32_t a, uint32_t b, uint32_t value) {
    if (m->n >= m->n_slots / 2 && !grow_map(m)) return false;
    put(m, (struct ht_pair_slot){a, b, value});
    m->n++;
    return true;
}

void ht_pair_map_clear(ht_pair_map *m) {
    for (size_t i = 0; i < m->n_slots; i++) m->slot[i].value = HT_INTERN_FAILED;
    m->n = 0;
}

size_t ht_pair_map_bytes(const ht_pair_map *m) { return m->n * 3 * sizeof *m->slot; }
