/* Call replay: the arguments of a recorded call (array/replay.h) beside its arrays, and a function that makes the call
 * once more. */
#ifndef HT_OPS_REPLAY_ARGUMENTS_H
#define HT_OPS_REPLAY_ARGUMENTS_H

#include "array/replay.h"
#include "base/dtype.h"

#include <string.h>

typedef struct ht_plain_args {
    int64_t number[6];
    double real[3];
    bool all; /* no axes were given */
    int n_axes, axis[HT_MAX_DIMS];
    int64_t size[HT_MAX_DIMS], extra[HT_MAX_DIMS];
} ht_plain_args;

/* The call, written in `a`, the arguments, and `in`, the operands. */
#define HT_REPLAY(name, call)                                                                                          \
    static bool name(ht_scope *s, const void *args, ht_array *const *in, int n_in, ht_array **out) {                   \
        const ht_plain_args *a = args;                                                                                 \
        (void)a, (void)n_in;                                                                                           \
        out[0] = (call);                                                                                               \
        return out[0] != NULL;                                                                                         \
    }

static inline ht_array *ht_record_plain(ht_scope *s, ht_replay_fn *again, ht_plain_args a, ht_array *const *in,
                                        int n_in) {
    return ht_record_one(s, again, &a, sizeof a, in, n_in);
}

/* Adds axes, and the sizes of `n` axes; more than there can be are refused by whoever is called. */
static inline ht_plain_args ht_with_axes(ht_plain_args a, const int *axis, int n) {
    a.all = !axis;
    a.n_axes = n;
    if (axis && n > 0) memcpy(a.axis, axis, (size_t)(n < HT_MAX_DIMS ? n : HT_MAX_DIMS) * sizeof *axis);
    return a;
}
static inline ht_plain_args ht_with_sizes(ht_plain_args a, const int64_t *size, int n) {
    if (n > 0) memcpy(a.size, size, (size_t)(n < HT_MAX_DIMS ? n : HT_MAX_DIMS) * sizeof *size);
    return a;
}
#define HT_AXES(a) ((a)->all ? NULL : (a)->axis)

#endif
