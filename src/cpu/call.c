/* Separate from device.c, whose table links every kernel: kernels need only the thread pool. */
#include "cpu/call.h"

#include "cpu/device.h"
#include "cpu/strided_iterator.h"

ht_pool *ht_device_pool(const ht_device *d) { return ((const ht_cpu_device *)d)->pool; }

void ht_run_rows(const ht_call *call, const ht_view *x, int64_t n, ht_block_fn *fn, const void *job) {
    const int64_t size = ht_view_size(x);
    if (size > 0)
        ht_pool_run(ht_call_pool(call), size / n, ht_row_grain(HT_GRAIN_PLAIN, n), fn, (void *)(uintptr_t)job);
}
