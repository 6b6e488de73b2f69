/* Elements by their place. Arrays are immutable: what puts elements into one gives a new array, which takes over the memory
 * of the old one where nobody else holds that. */
#ifndef HEARTH_INDEX_H
#define HEARTH_INDEX_H

#include <hearth/array.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- a window ---- */
/* x with `update`, which broadcasts and becomes of x's dtype, in the place of ht_slice(s, x, start, stop, step). */
HT_API ht_array *ht_slice_update(ht_scope *s, ht_array *x, ht_array *update, const int64_t *start, const int64_t *stop,
                                 const int64_t *step);

#ifdef __cplusplus
}
#endif
#endif
