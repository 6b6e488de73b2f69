/* Kernel call lists of flat programs (flat_program.h): elementwise nodes fused, and intermediate results in one block of
 * memory, where those that are not alive at the same time share a place. */
#ifndef HT_ARRAY_FLAT_PROGRAM_LAYOUT_H
#define HT_ARRAY_FLAT_PROGRAM_LAYOUT_H

#include "array/array.h"

typedef struct ht_flat_list ht_flat_list;

/* Of the nodes that make results[..], each a storage, of in[..]. Marks nodes as an evaluation does; every constant among them
 * has been evaluated. */
ht_status ht_flat_list_new(ht_device *d, ht_array *const *in, int n_in, ht_array *const *results, int n_results,
                           ht_flat_list **list, ht_error *err);
void ht_flat_list_free(ht_flat_list *l); /* NULL is fine */
/* Bytes that it needs beside its own block. */
size_t ht_flat_list_scratch(const ht_flat_list *l);
/* data: where the arguments begin, then where the results do. The device's pool is leased. */
ht_status ht_flat_list_run(ht_flat_list *l, void *const *data, void *scratch, ht_error *err);

#endif
