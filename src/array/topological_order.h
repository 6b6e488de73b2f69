/* Topological order of a lazy graph, without recursion. */
#ifndef HT_ARRAY_TOPOLOGICAL_ORDER_H
#define HT_ARRAY_TOPOLOGICAL_ORDER_H

#include "array/array.h"

/* Fills w->order with every node that is not evaluated yet and that `arrays` need, inputs before users, views included.
 * Their `visit` is set to *visit, the number of this traversal, their use counts to zero. A node that failed before gives
 * its failure. */
ht_status ht_topological_order(ht_worklist *w, ht_array *const *arrays, int n, uint64_t *visit, ht_error *err);
/* Adds to a list of n arrays with room for `capacity`, which grows; false when memory ran out. */
bool ht_list_push(ht_array ***list, size_t *n, size_t *capacity, ht_array *a);
void ht_worklist_free(ht_worklist *w);

#endif
