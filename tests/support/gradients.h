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

#endif
