/* Windows of attention: the first position that a row attends to. For C and for CUDA C. */
#ifndef HT_DEVICE_WINDOW_H
#define HT_DEVICE_WINDOW_H

#include <stdbool.h>
#include <stdint.h>

/* First position that a row at `pos` < 2^31 attends to. A sliding window has the last `window` positions, with its own;
 * a chunked one has those since the last multiple of `window`. 0: no window. Never decreases from row to row. */
static inline int64_t ht_first_visible(int64_t window, bool chunked, int64_t pos) {
    if (window <= 0 || pos < window) return 0;
    return chunked ? pos - (int64_t)((uint32_t)pos % (uint32_t)window) : pos - window + 1;
}

#endif
