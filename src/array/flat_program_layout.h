/* Memory layout of flat programs (flat_program.h): a list of kernel calls with elementwise nodes fused. Intermediate
 * results live in one block, in which results that are not alive at the same time share memory. */
#ifndef HT_ARRAY_FLAT_PROGRAM_LAYOUT_H
#define HT_ARRAY_FLAT_PROGRAM_LAYOUT_H

#include "array/array.h"

typedef struct ht_flat_list ht_flat_list;

/* Builds the list of calls that computes results[], which are storages, from in[]. Marks nodes as an evaluation does.
 * All constants have been evaluated. */
ht_status ht_flat_list_new(ht_device *d, ht_array *const *in, int n_in, ht_array *const *results, int n_results,
                           ht_flat_list **list, ht_error *err);
void ht_flat_list_free(ht_flat_list *l); /* NULL is fine */
/* Scratch bytes of a run. */
size_t ht_flat_list_scratch(const ht_flat_list *l);
/* Runs the list. `data` has the addresses of the arguments, then those of the results. The caller is between
 * `begin` and `end` of the device. */
ht_status ht_flat_list_run(ht_flat_list *l, void *const *data, void *scratch, ht_error *err);

#endif
