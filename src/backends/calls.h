/* Calls under way on a backend's model, which ht_backend_cancel ends all at once. */
#ifndef HT_BACKENDS_CALLS_H
#define HT_BACKENDS_CALLS_H

#include "base/cancel.h"

#include <pthread.h>

/* A call, on the stack of its thread. It takes `&call.cancel.flag` for its flag. */
typedef struct ht_backend_call {
    ht_cancel_both cancel;
    struct ht_backend_call *next, *before;
} ht_backend_call;

typedef struct ht_calls {
    pthread_mutex_t lock;
    ht_backend_call *first;
} ht_calls;

void ht_calls_init(ht_calls *calls);
void ht_calls_free(ht_calls *calls);
/* `of_caller` is the flag that the caller has given, or NULL. */
void ht_calls_enter(ht_calls *calls, ht_backend_call *call, const ht_cancel *of_caller);
void ht_calls_leave(ht_calls *calls, ht_backend_call *call);
void ht_calls_cancel(ht_calls *calls);

#endif
