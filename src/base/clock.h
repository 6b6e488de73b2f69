/* Seconds on a clock that only runs forward, for measuring. */
#ifndef HT_BASE_CLOCK_H
#define HT_BASE_CLOCK_H

#include <time.h>

static inline double ht_now_seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

#endif
