/* The GPU for tests that compare it with the CPU's plain kernels. Where there is a CUDA driver, that of tests/cuda too, it has to
 * open: only without one is there nothing to test. */
#ifndef TESTS_SUPPORT_GPU_H
#define TESTS_SUPPORT_GPU_H

#include "device/device.h"

#include <hearth/array.h>

enum { CPU, GPU, DEVICES };
extern ht_device *beside_device[DEVICES]; /* the GPU is NULL where there is no driver */
extern ht_stream *beside_stream[DEVICES];

/* Setup and teardown of a group of tests. */
int beside_open(void **state);
int beside_close(void **state);

/* Fails the test with an error's words. */
void must(ht_status status, const ht_error *err);
/* An operand as an array, with its strides. */
struct operand; /* support/operands.h */
ht_array *beside_array(ht_scope *s, const struct operand *o);
/* Elements of an array, which the caller frees. */
void *beside_read(ht_scope *s, ht_array *a);

/* What `build` makes of the same on every device. */
typedef ht_array *beside_build_fn(ht_scope *s, const void *how);
typedef struct beside_results {
    ht_dtype dtype;
    int64_t size;
    void *of[DEVICES];
} beside_results;
beside_results beside_make(beside_build_fn *build, const void *how);
void beside_free(beside_results *r);
/* Fails unless the elements are alike on both: the same bits, or both NaN. */
void beside_same(const char *what, beside_build_fn *build, const void *how);

#endif
