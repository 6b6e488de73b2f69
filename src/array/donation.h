/* Buffer donation: the reference counts of an array, as far as the graph beneath one node accounts for them. */
#ifndef HT_ARRAY_DONATION_H
#define HT_ARRAY_DONATION_H

#include "array/array.h"

/* Whether an evaluated array is held by `node`, which reads it, and by what `node` was computed from in the evaluation
 * `visit`, and by nobody else, now or later: what stands between the two is held by nobody else either. Then it is not needed
 * any more once `node`, whose other operands are computed, lets go of its inputs. False where this takes long to find out. */
bool ht_donation_check(const ht_array *evaluated, const ht_array *node, uint64_t visit);

#endif
