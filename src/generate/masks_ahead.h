/* Token masks computed while a step runs. An order names the places whose masks the step will need; a thread finds them, and the
 * grammar keeps them. Whoever draws asks the grammar, which waits or computes: no mask depends on an order. */
#ifndef HT_GENERATE_MASKS_AHEAD_H
#define HT_GENERATE_MASKS_AHEAD_H

#include "grammar/grammar.h"

#include <stdatomic.h>

struct ht_device;

typedef struct ht_masks_ahead ht_masks_ahead;

/* Belongs to one answer. Zeroed it is no order. */
typedef struct ht_mask_order {
    ht_answer_places places; /* of grammars that live until ht_masks_ahead_end */
    bool is_there;           /* it was given to the thread; the owner's */
    _Atomic bool is_late;    /* nobody needs its masks any more; set by any thread */
    struct ht_mask_order *next;
} ht_mask_order;

/* For steps of a device; the thread starts with the first order. NULL when there is no memory. */
ht_masks_ahead *ht_masks_ahead_new(const struct ht_device *d);
void ht_masks_ahead_free(ht_masks_ahead *t); /* NULL is fine; all orders have ended */
/* Orders the unknown masks behind the matcher's text and each of n guesses, unless steps take all cores. */
void ht_masks_ahead_order(ht_masks_ahead *t, ht_mask_order *order, ht_answer_matcher *m, const int32_t *guess, int n);
/* Takes an order back, when the mask that is being computed for it is done. Of one that is not there nothing happens. */
void ht_masks_ahead_end(ht_masks_ahead *t, ht_mask_order *order);

#endif
