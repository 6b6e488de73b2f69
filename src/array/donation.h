/* Buffer donation: the test that lets an update such as a[i] += x overwrite the buffer of `a`. */
#ifndef HT_ARRAY_DONATION_H
#define HT_ARRAY_DONATION_H

#include "array/array.h"

/* True when `node` may overwrite the buffer of `evaluated`, one of its inputs, computed before the evaluation `visit`.
 * All references to `evaluated` must come from `node` and from the nodes between the two, and no other reference to
 * these nodes may exist: the array is then unreachable once `node` releases its inputs. The other operands of `node`
 * have been computed. Returns false, conservatively, for subgraphs that are too large to search. */
bool ht_donation_check(const ht_array *evaluated, const ht_array *node, uint64_t visit);

#endif
