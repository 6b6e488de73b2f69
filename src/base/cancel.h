/* Cancellation flags that follow another one, for calls that end for two reasons. */
#ifndef HT_BASE_CANCEL_H
#define HT_BASE_CANCEL_H

#include <hearth/cancel.h>

/* A flag that is requested by itself, or when `other` is; it is given as `&both.flag` wherever a flag is. */
typedef struct ht_cancel_both {
    ht_cancel flag;
    const ht_cancel *other; /* lent; NULL: none */
} ht_cancel_both;

ht_cancel_both ht_cancel_following(const ht_cancel *other);

#endif
