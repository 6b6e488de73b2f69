#include "base/pages.h"

#include "base/checked.h"
#include "base/system.h"

#include <stdbool.h>
#include <stdint.h>
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
    if (p) ht_system_prefer_huge_pages(p, bytes & ~(HUGE_PAGE - 1));
    return p;
}

static size_t mapped_size(size_t bytes) { return (bytes + 4095) & ~(size_t)4095; }

void *ht_pages_map(size_t bytes) {
    const bool huge = bytes >= 2 * HUGE_PAGE;
    const size_t size = mapped_size(bytes), spare = huge ? HUGE_PAGE : 0;
    if (bytes > SIZE_MAX / 2) return NULL;
    char *p = mmap(NULL, size + spare, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) return NULL;
    if (!huge) return p;
    const size_t before = (HUGE_PAGE - (uintptr_t)p % HUGE_PAGE) % HUGE_PAGE; /* whole huge pages begin at one */
    if (before) (void)munmap(p, before);
    if (before < spare) (void)munmap(p + before + size, spare - before);
    ht_system_prefer_huge_pages(p + before, size & ~(HUGE_PAGE - 1));
    return p + before;
}

void ht_pages_unmap(void *p, size_t bytes) { (void)munmap(p, mapped_size(bytes)); }

void *ht_pages_zeroed(size_t n, size_t size) {
    size_t bytes;
    if (!ht_mul_size(n, size, &bytes)) return NULL;
    void *p = ht_pages_new(bytes);
    if (p) memset(p, 0, bytes);
    return p;
}
