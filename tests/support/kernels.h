/* Running one kernel of a device on memory laid out by the test. */
#ifndef TESTS_SUPPORT_KERNELS_H
#define TESTS_SUPPORT_KERNELS_H

#include "device/device.h"
#include "device/params.h"

/* Every CPU device this machine can run, the plain one first, each of so many threads, up to 4. They live as long as the
 * program. Returns how many. */
enum { TEST_MAX_DEVICES = 5 };
int test_devices(int threads, ht_device *out[TEST_MAX_DEVICES]);

/* Runs the kernel with scratch of exactly the size it asks for, as a step would: pool leased, denormals flushed. On a device with memory of
 * its own the operands, up to eight, are copied there, and the result back; one at the address of the first input is computed in place. */
ht_status test_run(ht_device *d, ht_op_id op, const void *params, int n_in, const ht_view *in, const ht_view *out,
                   const ht_step *step, ht_error *err);
/* The same, failing the test with the message when the kernel fails. */
void test_run_ok(ht_device *d, ht_op_id op, const void *params, int n_in, const ht_view *in, const ht_view *out,
                 const ht_step *step);

/* Whether every device computes want[i], or any NaN for a NaN, from elements i of the operands, vectors of one float type. */
void test_same_bits(ht_op_id op, int n_in, const ht_view *in, const void *want);

/* An exactly sized block of memory, so that sanitizers see what is read and written behind it. */
void *test_room(size_t bytes);
/* The same in a device's memory, and to free it. */
void *test_room_on(ht_device *d, size_t bytes);
void test_room_free(ht_device *d, void *p, size_t bytes);
float *test_random_floats(int64_t n, float size, uint64_t *state); /* in room of their own, below `size` in magnitude */

/* A row-contiguous view of memory that the test owns. */
ht_view test_view(void *data, ht_dtype dtype, int n_dims, const int64_t *shape);
ht_view test_absent(void);

/* Operation names, as in ht_op_id. */
const char *test_op_name(ht_op_id op);

#endif
