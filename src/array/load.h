/* Shared by reading and saving of arrays. */
#ifndef HT_ARRAY_LOAD_H
#define HT_ARRAY_LOAD_H

#include "array/array.h"

extern const char *const ht_dtype_file_names[HT_DTYPE_COUNT]; /* in safetensors and GGUF files */

/* New evaluated array with uninitialised elements, which the caller writes to *data, host memory, before ht_array_filled takes
 * them to the device. Until then the array is the caller's alone. */
ht_array *ht_array_unfilled(ht_scope *s, ht_dtype dtype, const int64_t *shape, int n_dims, void **data);
ht_array *ht_array_filled(ht_scope *s, ht_array *a); /* `a`, or NULL with an error in the scope, as for NULL */

#endif
