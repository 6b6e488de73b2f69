/* Operations on a device that has no kernel for them, compared with the kernels: values, derivatives, compiled functions. */
#ifndef TESTS_SUPPORT_COMPOSITIONS_H
#define TESTS_SUPPORT_COMPOSITIONS_H

#include "device/op_id.h"

#include <hearth/hearth.h>

/* Stand for the sizes of a run in shapes, and for one more than the largest number of an integer operand. */
enum { M = -1, N = -2 };

enum { COMPOSITION_INPUTS = 4, COMPOSITION_DIMS = 4 };

typedef struct composition_input {
    int n_dims;
    int64_t shape[COMPOSITION_DIMS];
    double low, high; /* integers: low to high - 1; with `high` M or N, from 0 to the size - 1 and from its end back */
    ht_dtype dtype;   /* 0, HT_BOOL: a floating-point dtype of the run */
} composition_input;

typedef enum composition_flags {
    ONLY_F32 = 1,     /* other floating-point dtypes are refused */
    SOME = 2,         /* N > 0 */
    SPECIAL = 4,      /* infinities, NaN, zeros of both signs and large numbers, too */
    CONSTANT = 8,     /* without derivatives */
    ONCE = 16,        /* the kernel has no second derivative */
    FIXED = 32,       /* sizes are numbers: not compiled without shapes, and for one M and N */
    NARROW_STEPS = 64 /* the kernel rounds to the operands' dtype in between: sums, or a result that it reads */
} composition_flags;

typedef struct composition_case {
    const char *name;
    ht_op_id op;
    ht_array *(*f)(ht_scope *s, ht_array *const *in);
    /* Largest difference, in units of the last place of numbers of size 1 (f32 2^-24, f64 2^-53) beside the number's own
     * size or `floor` (0: 1), whichever is larger. */
    double ulps, ulps_f64, floor;
    int flags, n_in;
    composition_input in[COMPOSITION_INPUTS];
} composition_case;

/* Group set-up and tear-down: two devices, the kernels of one of which are withheld by the functions below. */
int compositions_open(void **state);
int compositions_close(void **state);
extern ht_stream *composing_stream;

/* Takes the kernel of an operation from the device of composing_stream, or of all with a composition; gives all back. */
void withhold(ht_op_id op);
void withhold_all(void);
void give_back_kernels(void);

/* Fails the running test where the device without the kernel of c->op, or without all that can be composed, gives other
 * results. */
void test_composition(const composition_case *c);
/* Fails the running test if an operation with a composition was in no case. */
void test_every_composition_was_run(void);

#endif
