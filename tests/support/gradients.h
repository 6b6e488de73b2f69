/* Derivatives against finite differences in f64: reverse mode, forward mode, and the second derivative. */
#ifndef TESTS_SUPPORT_GRADIENTS_H
#define TESTS_SUPPORT_GRADIENTS_H

#include <hearth/hearth.h>

enum { GRADIENT_INPUTS = 4, GRADIENT_DIMS = 4 };

typedef struct gradient_input {
    int n_dims;
    int64_t shape[GRADIENT_DIMS];
    double low, high; /* values are spread over this */
} gradient_input;

/* One function of f64 arrays that can be differentiated where its inputs are. */
typedef struct gradient_case {
    const char *name;
    ht_array *(*f)(ht_scope *s, ht_array *const *in);
    int n_in;
    gradient_input in[GRADIENT_INPUTS];
} gradient_case;

/* Fails the running test where they differ. */
void test_gradient(ht_stream *stream, const gradient_case *c);

/* The same of a function of one array that takes f32 at most: its gradient alone, against differences of `exact`, which is
 * this function in f64. */
void test_gradient_of_f32(ht_stream *stream, const gradient_case *c,
                          ht_array *(*exact)(ht_scope *s, ht_array *const *in));

/* Fails the running test if an operation that has a reverse rule was in no graph that test_gradient differentiated. */
void test_every_rule_was_run(void);

#endif
