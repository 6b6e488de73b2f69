/* Token masks computed while a step runs. An order lists the grammar positions whose masks the step will need; a
 * thread computes them. Drawing gets masks from the grammar, which waits or computes: no mask depends on an order. */
#ifndef HT_GENERATE_MASKS_AHEAD_H
#define HT_GENERATE_MASKS_AHEAD_H

#include "grammar/grammar.h"

#include <stdatomic.h>

struct ht_device;

typedef struct ht_masks_ahead ht_masks_ahead;

/* Belongs to one answer. All zeros: no order. */
typedef struct ht_mask_order {
    ht_answer_places places; /* of grammars that live until ht_masks_ahead_end */
    bool is_there;           /* queued; only the owner accesses this flag */
    _Atomic bool is_late;    /* its masks are no longer needed; set by any thread */
    struct ht_mask_order *next;
} ht_mask_order;

/* For steps of a device; the thread starts with the first order. NULL when there is no memory. */
ht_masks_ahead *ht_masks_ahead_new(const struct ht_device *d);
void ht_masks_ahead_free(ht_masks_ahead *t); /* NULL is fine; all orders must have ended */
/* Orders the missing masks after the matcher's text and after each of n guesses, unless steps use all cores. */
void ht_masks_ahead_order(ht_masks_ahead *t, ht_mask_order *order, ht_answer_matcher *m, const int32_t *guess, int n);
/* Cancels an order, after waiting for a mask that is being computed for it. Does nothing if none is queued. */
void ht_masks_ahead_end(ht_masks_ahead *t, ht_mask_order *order);

#endif
