#include "array/node_map.h"

#include "base/hash.h"

#include <stdlib.h>

/* Slot of a node, or the free slot for it. */
static size_t place_of(const ht_node_map *m, const ht_array *node) {
    size_t i = (size_t)ht_hash_number((uintptr_t)node) & (m->capacity - 1);
    while (m->key[i] && m->key[i] != node) i = (i + 1) & (m->capacity - 1);
    return i;
}

static bool grow(ht_node_map *m) {
    ht_node_map bigger = {.capacity = m->capacity ? m->capacity * 2 : 64};
    bigger.key = calloc(bigger.capacity, sizeof *bigger.key);
    bigger.value = malloc(bigger.capacity * sizeof *bigger.value);
    if (!bigger.key || !bigger.value) {
        ht_node_map_free(&bigger);
        return false;
    }
    for (size_t i = 0; i < m->capacity; i++) {
        if (!m->key[i]) continue;
        size_t at = place_of(&bigger, m->key[i]);
        bigger.key[at] = m->key[i];
        bigger.value[at] = m->value[i];
    }
    bigger.n = m->n;
    ht_node_map_free(m);
    *m = bigger;
    return true;
}

int64_t ht_node_map_get(const ht_node_map *m, const ht_array *node) {
    if (!m->n) return -1;
    size_t i = place_of(m, node);
    return m->key[i] ? m->value[i] : -1;
}

bool ht_node_map_set(ht_node_map *m, const ht_array *node, int64_t value) {
    if (2 * (m->n + 1) > m->capacity && !grow(m)) return false;
    size_t i = place_of(m, node);
    if (!m->key[i]) m->n++;
    m->key[i] = node;
    m->value[i] = value;
    return true;
}

void ht_node_map_free(ht_node_map *m) {
    free(m->key);
    free(m->value);
    *m = (ht_node_map){0};
}
