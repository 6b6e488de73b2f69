/* Cancellation flags. */
#include <hearth/cancel.h>

#include <stddef.h>

/* The public struct holds a plain int, as C++ has no _Atomic; it is lock-free, so that signal handlers may set it. */
_Static_assert(__atomic_always_lock_free(sizeof(int), 0), "a flag that a signal handler may set");

void ht_cancel_request(ht_cancel *c) { __atomic_store_n(&c->requested, 1, __ATOMIC_RELEASE); }
void ht_cancel_reset(ht_cancel *c) { __atomic_store_n(&c->requested, 0, __ATOMIC_RELEASE); }
bool ht_cancel_requested(const ht_cancel *c) { return c && __atomic_load_n(&c->requested, __ATOMIC_ACQUIRE) != 0; }
