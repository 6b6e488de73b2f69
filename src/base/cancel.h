/* Cancel flags that follow another one, for calls with two sources of cancellation. */
#ifndef HT_BASE_CANCEL_H
#define HT_BASE_CANCEL_H

#include <hearth/cancel.h>

/* A flag that is set directly or when `other` is set; pass `&both.flag` as the cancel flag. */
typedef struct ht_cancel_both {
    ht_cancel flag;
    const ht_cancel *other; /* lent; NULL: none */
} ht_cancel_both;

ht_cancel_both ht_cancel_following(const ht_cancel *other);

#endif
