/* The CUDA driver that runs on the host (tests/cuda/driver.cc): its calls fail when they are told to, and it counts what is held. */
#ifndef TESTS_SUPPORT_CUDA_DRIVER_H
#define TESTS_SUPPORT_CUDA_DRIVER_H

#include <hearth/status.h>

#include <stdbool.h>
#include <stddef.h>

enum { CUDA_RESULT = 999, CUDA_OUT_OF_MEMORY = 2 };

typedef struct cuda_driver { /* NULL: another driver, or none */
    /* Makes the k-th call from now on fail with a result, k from 1; 0: none. A failure that stays fails all calls after it, too. */
    void (*fail_call)(long k, int result, int stays);
    long (*calls)(void);         /* since `fail_call` */
    size_t (*bytes)(void);       /* of the device and page-locked, that have not been given back */
    void (*limit)(size_t bytes); /* memory that the device has; 0: as at first */
} cuda_driver;

/* Found when first asked for. */
const cuda_driver *cuda_driver_on_host(void);
bool cuda_driver_exists(void); /* any */

/* Every call of the driver that an attempt makes is made to fail, once or with `stays` for good, if `takes` says so: then it succeeds
 * all the same, or there is an error; nothing is left behind, and another attempt succeeds. Skips the test with another driver. */
typedef ht_status cuda_attempt_fn(const void *how, ht_error *err);
void cuda_driver_fail_each_call(cuda_attempt_fn *attempt, const void *how, bool stays, bool (*takes)(long k));

#endif
