/* Composition of rotary position embedding: exact angles without f64 on the device.
 *
 * An angle is pos * frequency, and neighbouring f32 numbers are 0.008 apart at 100,000. Frequencies are therefore whole
 * numbers of 2^-64 turns, which i64 multiplication by a position reduces to a fraction of a turn by wrapping around; the
 * error is pos * 2^-65 turns. Only frequency factors, an array, are divided by in f64. */
#include "ops/compose.h"
#include "ops/gradient.h"

#include <hearth/ops.h>

#include <math.h>
#include <stdlib.h>

#define TWO_PI 6.28318530717958647693

/* Fraction of a turn in -1/2 .. 1/2 as a whole number of 2^-64 turns; 2^63 more than i64 holds is the same angle. */
static int64_t fixed_turns(double turns) { return (int64_t)((uint64_t)(int64_t)((turns - rint(turns)) * 0x1p63) * 2); }

/* The same of f64 [n]. */
static ht_array *fixed_turns_of(ht_scope *s, ht_array *turns) {
    ht_array *whole = ht_astype(s, ht_times(s, ht_subtract(s, turns, ht_round(s, turns, 0)), 0x1p63), HT_I64);
    return ht_add(s, whole, whole);
}

/* Angles that a pair turns by per position, i64 [dims / 2] in 2^-64 turns. */
static ht_array *frequencies(ht_scope *s, const ht_rope_params *p, ht_array *factors) {
    const int64_t n = p->dims / 2;
    double *turns = malloc((size_t)n * sizeof *turns);
    int64_t *fixed = malloc((size_t)n * sizeof *fixed);
    ht_array *y = NULL;
    if (!turns || !fixed) ht_scope_fail(s, HT_ERR_MEMORY, "out of memory: the frequencies of a rotary embedding");
    for (int64_t i = 0; turns && fixed && i < n; i++) {
        turns[i] = (double)p->scale * pow((double)p->theta, -2.0 * (double)i / p->dims) / TWO_PI;
        if (isfinite(turns[i])) fixed[i] = fixed_turns(turns[i]);
        if (!isfinite(turns[i]))
            ht_scope_fail(s, HT_ERR_ARGUMENT, "rope: frequency %lld of theta %g and scale %g is not finite",
                          (long long)i, (double)p->theta, (double)p->scale);
    }
    if (turns && fixed && !s->failed) {
        if (factors == HT_NONE)
            y = ht_array_from(s, fixed, HT_I64, &n, 1);
        else
            y = fixed_turns_of(s, ht_divide(s, ht_array_from(s, turns, HT_F64, &n, 1), ht_astype(s, factors, HT_F64)));
    }
    free(turns);
    free(fixed);
    return y;
}

/* Every `step`-th element of the last axis of x [rows, heads, head_dim], from `start` to before `stop`. */
static ht_array *part(ht_scope *s, ht_array *x, int64_t start, int64_t stop, int64_t step) {
    return ht_slice(s, x, (int64_t[]){0, 0, start}, (int64_t[]){x->shape[0], x->shape[1], stop},
                    (int64_t[]){1, 1, step});
}

/* x [rows, heads, head_dim] rotated by cosines and sines [rows, 1, dims / 2]. */
static ht_array *rotated(ht_scope *s, const ht_rope_params *p, ht_array *x, ht_array *cosine, ht_array *sine) {
    const int64_t dims = p->dims, half = dims / 2, head_dim = x->shape[2];
    const int64_t start = p->interleaved ? 1 : half, step = p->interleaved ? 2 : 1;
    ht_array *a = part(s, x, 0, p->interleaved ? dims - 1 : half, step), *b = part(s, x, start, dims, step);
    ht_array *turned[2] = {ht_subtract(s, ht_multiply(s, a, cosine), ht_multiply(s, b, sine)),
                           ht_add(s, ht_multiply(s, b, cosine), ht_multiply(s, a, sine))};
    ht_array *y;
    if (p->interleaved)
        y = ht_reshape(s, ht_stack(s, turned, 2, -1), (int64_t[]){x->shape[0], x->shape[1], dims}, 3);
    else
        y = ht_concatenate(s, turned, 2, -1);
    return dims == head_dim ? y : ht_concatenate(s, (ht_array *[]){y, part(s, x, dims, head_dim, 1)}, 2, -1);
}

ht_array *ht_compose_rope(ht_scope *s, const void *params, ht_array *const *in, int n_in) {
    const ht_rope_params *p = params;
    const ht_array *whole = in[0];
    const int n = whole->n_dims;
    int64_t rows = 1;
    (void)n_in;
    if (p->dims == 0 || ht_array_size(whole) == 0) return in[0];
    for (int i = 0; i < n - 2; i++) rows *= whole->shape[i];
    ht_array *x = ht_widened(s, ht_reshape(s, in[0], (int64_t[]){rows, whole->shape[n - 2], whole->shape[n - 1]}, 3));
    ht_array *pos = ht_astype(s, ht_reshape(s, in[1], (int64_t[]){rows, 1, 1}, 3), HT_I64);
    ht_array *turns = x ? ht_multiply(s, pos, frequencies(s, p, in[2])) : NULL; /* [rows, 1, dims / 2] */
    ht_array *angle = turns ? ht_times(s, ht_astype(s, turns, x->dtype), TWO_PI * 0x1p-64) : NULL;
    ht_array *cosine = ht_cos(s, angle), *sine = ht_sin(s, angle);
    if (p->magnitude != 1) cosine = ht_times(s, cosine, (double)p->magnitude);
    if (p->magnitude != 1) sine = ht_times(s, sine, (double)p->magnitude);
    if (!cosine || !sine) return NULL;
    return ht_astype(s, ht_reshape(s, rotated(s, p, x, cosine, sine), whole->shape, n), whole->dtype);
}
