#define _DEFAULT_SOURCE
#include "base/pages.h"

#include "base/checked.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define HUGE_PAGE ((size_t)2 << 20)

void *ht_pages_new(size_t bytes) {
    size_t rounded;
    if (!ht_align_size(bytes, 64, &rounded)) return NULL;
    if (bytes < 2 * HUGE_PAGE) return aligned_alloc(64, rounded);
    if (!ht_align_size(bytes, HUGE_PAGE, &rounded)) return NULL;
    void *p = aligned_alloc(HUGE_PAGE, rounded);
    if (p) (void)madvise(p, bytes & ~(HUGE_PAGE - 1), MADV_HUGEPAGE);
    return p;
}

void *ht_pages_zeroed(size_t n, size_t size) {
    size_t bytes;
    if (!ht_mul_size(n, size, &bytes)) return NULL;
    void *p = ht_pages_new(bytes);
    if (p) memset(p, 0, bytes);
    return p;
}
