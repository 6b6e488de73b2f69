#include "base/cancel.h"

#include <stddef.h>

/* The public struct holds a plain int, as C++ has no _Atomic; it is lock-free, so that signal handlers may set it. */
_Static_assert(__atomic_always_lock_free(sizeof(int), 0), "a flag that a signal handler may set");

/* `requested` of a flag that follows another one, until it is requested itself. */
enum { REQUESTED = 1, FOLLOWS = 2 };

ht_cancel_both ht_cancel_following(const ht_cancel *other) { return (ht_cancel_both){{FOLLOWS}, other}; }

void ht_cancel_request(ht_cancel *c) { __atomic_store_n(&c->requested, REQUESTED, __ATOMIC_RELEASE); }
void ht_cancel_reset(ht_cancel *c) { __atomic_store_n(&c->requested, 0, __ATOMIC_RELEASE); }

bool ht_cancel_requested(const ht_cancel *c) {
    if (!c) return false;
    const int requested = __atomic_load_n(&c->requested, __ATOMIC_ACQUIRE);
    return requested == FOLLOWS ? ht_cancel_requested(((const ht_cancel_both *)c)->other) : requested != 0;
}
