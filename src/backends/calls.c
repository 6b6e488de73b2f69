#include "backends/calls.h"

#include <stddef.h>

void ht_calls_init(ht_calls *calls) {
    pthread_mutex_init(&calls->lock, NULL);
    calls->first = NULL;
}

void ht_calls_free(ht_calls *calls) { pthread_mutex_destroy(&calls->lock); }

void ht_calls_enter(ht_calls *calls, ht_backend_call *call, const ht_cancel *of_caller) {
    *call = (ht_backend_call){.cancel = ht_cancel_following(of_caller)};
    pthread_mutex_lock(&calls->lock);
    call->next = calls->first;
    if (call->next) call->next->before = call;
    calls->first = call;
    pthread_mutex_unlock(&calls->lock);
}

void ht_calls_leave(ht_calls *calls, ht_backend_call *call) {
    pthread_mutex_lock(&calls->lock);
    if (call->before)
        call->before->next = call->next;
    else
        calls->first = call->next;
    if (call->next) call->next->before = call->before;
    pthread_mutex_unlock(&calls->lock);
}

void ht_calls_cancel(ht_calls *calls) {
    pthread_mutex_lock(&calls->lock);
    for (ht_backend_call *call = calls->first; call; call = call->next) ht_cancel_request(&call->cancel.flag);
    pthread_mutex_unlock(&calls->lock);
}
