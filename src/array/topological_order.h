/* Topological order of a lazy graph, computed without recursion. */
#ifndef HT_ARRAY_TOPOLOGICAL_ORDER_H
#define HT_ARRAY_TOPOLOGICAL_ORDER_H

#include "array/array.h"

/* Fills w->order with all lazy nodes, views included, on which `arrays` depend, inputs first. Sets the `visit` of each
 * to *visit, the number of this traversal, and clears its use counts. Fails with the error of a node whose evaluation
 * failed earlier. */
ht_status ht_topological_order(ht_worklist *w, ht_array *const *arrays, int n, uint64_t *visit, ht_error *err);
/* Counts the uses of every node of the traversal `visit`. Sets `keep` of the storage that outlives its last kernel:
 * requested in `arrays`, retained by the user, or used by nodes outside the traversal. */
void ht_count_uses(const ht_worklist *w, uint64_t visit, ht_array *const *arrays, int n);
/* Appends to a growing list of n arrays; false when memory ran out. */
bool ht_list_push(ht_array ***list, size_t *n, size_t *capacity, ht_array *a);
void ht_worklist_free(ht_worklist *w);

#endif
