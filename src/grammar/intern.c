/* Hash tables of interned sequences and of pairs, with open addressing and linear probing. */
#include "grammar/intern.h"

#include "base/grow.h"

#include <stdlib.h>
#include <string.h>

struct ht_pair_slot {
    uint32_t a, b, value; /* HT_INTERN_FAILED: free */
};

static uint32_t mixed(uint64_t h) { return (uint32_t)(h ^ (h >> 32)); }

static uint32_t hash_words(const uint32_t *words, size_t n) {
    uint64_t h = 0x9e3779b97f4a7c15u ^ n;
    for (size_t i = 0; i < n; i++) {
        h = (h ^ words[i]) * 0xd6e8feb86659fd93u;
        h ^= h >> 29;
    }
    return mixed(h);
}

/* ---- sequences ---- */

void ht_intern_free(ht_intern *t) {
    free(t->word);
    free(t->end);
    free(t->hash);
    free(t->slot);
    *t = (ht_intern){0};
}

static void place(ht_intern *t, uint32_t number) {
    uint32_t at = t->hash[number] & (t->n_slots - 1);
    while (t->slot[at]) at = (at + 1) & (t->n_slots - 1);
    t->slot[at] = number + 1;
}

static void place_all(ht_intern *t) {
    if (t->slot) memset(t->slot, 0, t->n_slots * sizeof *t->slot);
    for (uint32_t i = 0; i < t->n; i++) place(t, i);
}

static bool grow_slots(ht_intern *t) {
    if (t->n_slots && t->n < t->n_slots / 2) return true;
    const uint32_t larger = t->n_slots ? 2 * t->n_slots : 64;
    if (!HT_RESIZE(t->slot, larger)) return false;
    t->n_slots = larger;
    place_all(t);
    return true;
}

static bool is_same(const ht_intern *t, uint32_t number, uint32_t hash, const uint32_t *words, size_t n) {
    size_t n_there;
    if (t->hash[number] != hash) return false;
    const uint32_t *there = ht_intern_at(t, number, &n_there);
    return n == n_there && (n == 0 || !memcmp(there, words, n * sizeof *words));
}

uint32_t ht_intern_add(ht_intern *t, const uint32_t *words, size_t n, bool *is_new) {
    if (is_new) *is_new = false;
    if (!grow_slots(t)) return HT_INTERN_FAILED;
    const uint32_t hash = hash_words(words, n);
    uint32_t at = hash & (t->n_slots - 1);
    for (; t->slot[at]; at = (at + 1) & (t->n_slots - 1))
        if (is_same(t, t->slot[at] - 1, hash, words, n)) return t->slot[at] - 1;
    size_t capacity = t->capacity;
    /* Words of the table itself move when it grows. */
    const bool is_own = t->word && words >= t->word && words < t->word + t->n_words;
    const size_t offset = is_own ? (size_t)(words - t->word) : 0;
    if (t->n_words + n > INT32_MAX || !HT_GROW(t->word, t->word_capacity, t->n_words + n)) return HT_INTERN_FAILED;
    if (!HT_GROW(t->end, capacity, (size_t)t->n + 1) || !HT_GROW(t->hash, t->capacity, (size_t)t->n + 1))
        return HT_INTERN_FAILED;
    if (n) memmove(t->word + t->n_words, is_own ? t->word + offset : words, n * sizeof *words);
    t->n_words += n;
    t->end[t->n] = (uint32_t)t->n_words;
    t->hash[t->n] = hash;
    t->slot[at] = ++t->n;
    if (is_new) *is_new = true;
    return t->n - 1;
}

void ht_intern_truncate(ht_intern *t, uint32_t n) {
    if (n >= t->n) return;
    t->n = n;
    t->n_words = n ? t->end[n - 1] : 0;
    place_all(t);
}

size_t ht_intern_bytes(const ht_intern *t) {
    return (t->n_words + (size_t)t->n * 5) * sizeof(uint32_t); /* slots are two to four times as many as sequences */
}

/* ---- pairs ---- */

void ht_pair_map_free(ht_pair_map *m) {
    free(m->slot);
    *m = (ht_pair_map){0};
}

static size_t first_slot(const ht_pair_map *m, uint32_t a, uint32_t b) {
    const uint64_t h = (((uint64_t)a << 32) | b) * 0x9e3779b97f4a7c15u;
    return mixed(h) & (m->n_slots - 1);
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
    const size_t times = m->n_slots < 4096 ? 4 : 2; /* what is small is soon full again; what is large takes pages */
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
