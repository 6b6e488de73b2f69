/* Hash map from graph nodes, by address, to integers. Marks in the nodes would collide, as traversals nest and
 * evaluated arrays are shared between threads. */
#ifndef HT_ARRAY_NODE_MAP_H
#define HT_ARRAY_NODE_MAP_H

#include "array/array.h"

typedef struct ht_node_map {
    const ht_array **key;
    int64_t *value;
    size_t n, capacity; /* a power of two, or 0 */
} ht_node_map;

/* Value of a node; -1: none. */
int64_t ht_node_map_get(const ht_node_map *m, const ht_array *node);
/* Sets or replaces the value of a node; false when memory ran out. */
bool ht_node_map_set(ht_node_map *m, const ht_array *node, int64_t value);
void ht_node_map_free(ht_node_map *m);

#endif
