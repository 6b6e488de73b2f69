/* Recorded arguments of library calls (array/replay.h): plain numbers, axes and sizes, and a macro that defines the
 * replay function of a call. */
#ifndef HT_OPS_REPLAY_ARGUMENTS_H
#define HT_OPS_REPLAY_ARGUMENTS_H

#include "array/replay.h"
#include "base/dtype.h"

#include <string.h>

/* Arguments of a call other than its arrays; each call gives its own meaning to the fields. */
typedef struct ht_plain_args {
    int64_t number[6];
    double real[3];
    bool all; /* axes were NULL: all axes */
    int n_axes, axis[HT_MAX_DIMS];
    int64_t size[HT_MAX_DIMS], extra[HT_MAX_DIMS];
} ht_plain_args;

/* Defines replay function `name`, which evaluates `call`, an expression of the arguments `a` and the operands `in`. */
#define HT_REPLAY(name, call) HT_REPLAY_OF(name, ht_plain_args, call)
/* The same with arguments of another type. */
#define HT_REPLAY_OF(name, type, call)                                                                                 \
    static bool name(ht_scope *s, const void *args, ht_array *const *in, int n_in, ht_array **out) {                   \
        const type *a = args;                                                                                          \
        (void)a, (void)n_in;                                                                                           \
        out[0] = (call);                                                                                               \
        return out[0] != NULL;                                                                                         \
    }

/* Records a call with one result. */
static inline ht_array *ht_record_plain(ht_scope *s, ht_replay_fn *again, ht_plain_args a, ht_array *const *in,
                                        int n_in) {
    return ht_record_one(s, again, &a, sizeof a, in, n_in);
}

/* Adds axes to the arguments. Axes beyond HT_MAX_DIMS are not stored: the call itself refuses them. */
static inline ht_plain_args ht_with_axes(ht_plain_args a, const int *axis, int n) {
    a.all = !axis;
    a.n_axes = n;
    if (axis && n > 0) memcpy(a.axis, axis, (size_t)(n < HT_MAX_DIMS ? n : HT_MAX_DIMS) * sizeof *axis);
    return a;
}
/* Adds the sizes of n axes, likewise. */
static inline ht_plain_args ht_with_sizes(ht_plain_args a, const int64_t *size, int n) {
    if (n > 0) memcpy(a.size, size, (size_t)(n < HT_MAX_DIMS ? n : HT_MAX_DIMS) * sizeof *size);
    return a;
}
#define HT_AXES(a) ((a)->all ? NULL : (a)->axis)

#endif
