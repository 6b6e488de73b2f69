/* The GPU for tests that compare it with the CPU's plain kernels. Where there is a CUDA driver, that of tests/cuda too, it has to
 * open: only without one is there nothing to test. */
#ifndef TESTS_SUPPORT_GPU_H
#define TESTS_SUPPORT_GPU_H

#include <hearth/array.h>

enum { CPU, GPU, DEVICES };
extern ht_device *beside_device[DEVICES]; /* the GPU is NULL where there is no driver */
extern ht_stream *beside_stream[DEVICES];

/* Setup and teardown of a group of tests. */
int beside_open(void **state);
int beside_close(void **state);

#endif
