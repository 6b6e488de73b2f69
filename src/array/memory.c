/* Memory allocator: bins of freed buffers, three limits, and memory locking. */
#define _GNU_SOURCE
#include "array/memory.h"

#include "base/checked.h"
#include "base/error.h"
#include "base/pages.h"

#include <hearth/memory.h>

#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

/* Freed buffers are kept in bins by size class, eight per power of two: rounding wastes at most an eighth. Large
 * buffers are rounded to pages, kept in a list, and reused only for requests of the same size. */
enum { MIN_SHIFT = 6, MAX_SHIFT = 26, STEPS = 8, N_BINS = (MAX_SHIFT - MIN_SHIFT) * STEPS };

#define DEFAULT_CACHE ((size_t)256 << 20)

typedef struct freed {
    struct freed *next;
    size_t bytes; /* of a large buffer */
} freed;

/* Smaller buffers are not locked: they share pages with others. */
#define SMALLEST_WIRED ((size_t)64 << 10)

typedef struct wired {
    const void *buffer;
    char *begin; /* first whole page inside the buffer */
    size_t bytes;
} wired;

static struct {
    pthread_mutex_t lock;
    freed *bin[N_BINS], *large;
    size_t active, peak, cached, limit, cache_limit;
    size_t reserved, base; /* ht_memory_reserve; bytes that were active before the first one */
    wired *wired;          /* locked buffers */
    size_t n_wired, wired_capacity, wired_bytes, wired_limit;
} memory = {.lock = PTHREAD_MUTEX_INITIALIZER, .cache_limit = DEFAULT_CACHE};

/* Rounds `bytes` up to its size class; *bin is the bin, or -1 for large buffers. */
static size_t size_class(size_t bytes, int *bin) {
    *bin = -1;
    if (bytes < (size_t)1 << MIN_SHIFT) bytes = (size_t)1 << MIN_SHIFT;
    int shift = 63 - __builtin_clzll(bytes);
    if (shift >= MAX_SHIFT) {
        size_t rounded;
        return ht_align_size(bytes, 4096, &rounded) ? rounded : bytes;
    }
    size_t step = ht_max_size((size_t)1 << (shift - 3), 64);
    size_t rounded = (bytes + step - 1) & ~(step - 1);
    shift = 63 - __builtin_clzll(rounded);
    if (shift >= MAX_SHIFT) return rounded;
    *bin = (shift - MIN_SHIFT) * STEPS + (int)((rounded - ((size_t)1 << shift)) >> (shift - 3));
    return rounded;
}

/* ---- memory locking ---- */

/* Tries to lock a buffer within the limit; failure is ignored. */
static void wire(const void *buffer, size_t bytes) {
    if (bytes < SMALLEST_WIRED) return;
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), from = (uintptr_t)buffer;
    uintptr_t begin = (from + page - 1) & ~(page - 1), end = (from + bytes) & ~(page - 1);
    size_t whole = end - begin;
    if (memory.wired_bytes > memory.wired_limit || whole > memory.wired_limit - memory.wired_bytes) return;
    if (memory.n_wired == memory.wired_capacity) {
        size_t more = memory.wired_capacity ? 2 * memory.wired_capacity : 64;
        wired *grown = realloc(memory.wired, more * sizeof *grown);
        if (!grown) return;
        memory.wired = grown;
        memory.wired_capacity = more;
    }
    if (mlock((void *)begin, whole) != 0) return;
    memory.wired[memory.n_wired++] = (wired){buffer, (char *)begin, whole};
    memory.wired_bytes += whole;
}

static void unwire_at(size_t i) {
    (void)munlock(memory.wired[i].begin, memory.wired[i].bytes);
    memory.wired_bytes -= memory.wired[i].bytes;
    memory.wired[i] = memory.wired[--memory.n_wired];
}

/* Unlocks a buffer before it is returned to the system. */
static void unwire(const void *buffer) {
    for (size_t i = memory.n_wired; i-- > 0;)
        if (memory.wired[i].buffer == buffer) {
            unwire_at(i);
            return;
        }
}

/* ---- allocation ---- */

/* Kept beside a reservation however little of it is left. */
#define SMALLEST_CACHE ((size_t)16 << 20)

/* Bytes of freed buffers that may be kept when `active` are in use. */
static size_t most_cached(size_t active) {
    if (!memory.reserved) return memory.cache_limit;
    const size_t in_use = active > memory.base ? active - memory.base : 0;
    const size_t least = ht_min_size(memory.cache_limit, SMALLEST_CACHE);
    return ht_max_size(least, memory.reserved > in_use ? memory.reserved - in_use : 0);
}

/* Buffers from this size on are mapped: the system has them again at once, without holes in a heap. */
#define SMALLEST_MAPPED ((size_t)128 << 10)

static void *new_pages(size_t rounded) {
    return rounded >= SMALLEST_MAPPED ? ht_pages_map(rounded) : ht_pages_new(rounded);
}

static void free_pages(void *p, size_t rounded) {
    if (rounded >= SMALLEST_MAPPED)
        ht_pages_unmap(p, rounded);
    else
        free(p);
}

static void give_back(void *p, size_t rounded) {
    unwire(p);
    free_pages(p, rounded);
}

static void give_back_cache(size_t keep) {
    while (memory.large && memory.cached > keep) {
        freed *f = memory.large;
        memory.large = f->next;
        memory.cached -= f->bytes;
        give_back(f, f->bytes);
    }
    for (int b = N_BINS - 1; b >= 0 && memory.cached > keep; b--) {
        size_t bytes = (((size_t)1 << 3) + (size_t)(b % STEPS)) << (b / STEPS + MIN_SHIFT - 3);
        while (memory.bin[b] && memory.cached > keep) {
            freed *f = memory.bin[b];
            memory.bin[b] = f->next;
            memory.cached -= bytes;
            give_back(f, bytes);
        }
    }
}

/* Removes a freed buffer of that size from the cache; NULL: none. */
static void *take_cached(size_t rounded, int bin) {
    freed **at = bin >= 0 ? &memory.bin[bin] : &memory.large;
    while (bin < 0 && *at && (*at)->bytes != rounded) at = &(*at)->next;
    freed *f = *at;
    if (!f) return NULL;
    *at = f->next;
    memory.cached -= rounded;
    return f;
}

ht_status ht_memory_alloc(size_t bytes, const char *what, void **out, ht_error *err) {
    *out = NULL;
    if (bytes > SIZE_MAX / 2) return ht_fail_memory(err, bytes, what);
    int bin;
    size_t rounded = size_class(bytes, &bin);
    pthread_mutex_lock(&memory.lock);
    if (memory.limit && (rounded > memory.limit || memory.active > memory.limit - rounded)) {
        give_back_cache(0);
        size_t active = memory.active, limit = memory.limit;
        pthread_mutex_unlock(&memory.lock);
        return ht_fail(err, HT_ERR_MEMORY,
                       "%s needs %zu bytes, %zu are in use and the memory limit is %zu; raise the limit or free arrays",
                       what, rounded, active, limit);
    }
    void *p = take_cached(rounded, bin);
    if (!p) {
        if (memory.limit) give_back_cache(memory.limit - memory.active - rounded);
        if (memory.reserved) give_back_cache(most_cached(memory.active + rounded));
        if (!(p = new_pages(rounded))) {
            give_back_cache(0);
            p = new_pages(rounded);
        }
        if (p && memory.wired_limit) wire(p, rounded);
    }
    if (p) {
        memory.active += rounded;
        memory.peak = ht_max_size(memory.peak, memory.active);
    }
    pthread_mutex_unlock(&memory.lock);
    if (!p) return ht_fail_memory(err, rounded, what);
    *out = p;
    return HT_OK;
}

void ht_memory_free(void *p, size_t bytes) {
    if (!p) return;
    int bin;
    size_t rounded = size_class(bytes, &bin);
    pthread_mutex_lock(&memory.lock);
    memory.active -= rounded;
    const size_t most = most_cached(memory.active);
    bool keep = rounded <= most;
    if (keep) {
        give_back_cache(most - rounded); /* evicts older buffers: recently freed sizes are requested again first */
        freed *f = p, **list = bin >= 0 ? &memory.bin[bin] : &memory.large;
        f->next = *list;
        f->bytes = rounded;
        *list = f;
        memory.cached += rounded;
    } else
        unwire(p);
    pthread_mutex_unlock(&memory.lock);
    if (!keep) free_pages(p, rounded);
}

size_t ht_memory_rounded(size_t bytes) {
    int bin;
    return size_class(bytes, &bin);
}

void ht_memory_reserve(size_t bytes) {
    pthread_mutex_lock(&memory.lock);
    if (!memory.reserved) memory.base = memory.active;
    memory.reserved += bytes;
    pthread_mutex_unlock(&memory.lock);
}

void ht_memory_unreserve(size_t bytes) {
    pthread_mutex_lock(&memory.lock);
    memory.reserved -= bytes;
    give_back_cache(most_cached(memory.active));
    pthread_mutex_unlock(&memory.lock);
}

/* ---- statistics and limits ---- */

ht_memory_stats ht_memory_get(void) {
    pthread_mutex_lock(&memory.lock);
    ht_memory_stats stats = {memory.active, memory.peak, memory.cached, memory.wired_bytes};
    pthread_mutex_unlock(&memory.lock);
    return stats;
}

void ht_memory_reset_peak(void) {
    pthread_mutex_lock(&memory.lock);
    memory.peak = memory.active;
    pthread_mutex_unlock(&memory.lock);
}

size_t ht_memory_set_limit(size_t bytes) {
    pthread_mutex_lock(&memory.lock);
    size_t old = memory.limit;
    memory.limit = bytes;
    pthread_mutex_unlock(&memory.lock);
    return old;
}

size_t ht_memory_limit(void) {
    pthread_mutex_lock(&memory.lock);
    size_t limit = memory.limit;
    pthread_mutex_unlock(&memory.lock);
    return limit;
}

size_t ht_memory_set_cache_limit(size_t bytes) {
    pthread_mutex_lock(&memory.lock);
    size_t old = memory.cache_limit;
    memory.cache_limit = bytes;
    give_back_cache(bytes);
    pthread_mutex_unlock(&memory.lock);
    return old;
}

void ht_memory_clear_cache(void) {
    pthread_mutex_lock(&memory.lock);
    give_back_cache(0);
    pthread_mutex_unlock(&memory.lock);
}

size_t ht_memory_set_wired_limit(size_t bytes) {
    pthread_mutex_lock(&memory.lock);
    size_t old = memory.wired_limit;
    memory.wired_limit = bytes;
    while (memory.wired_bytes > bytes) unwire_at(memory.n_wired - 1);
    pthread_mutex_unlock(&memory.lock);
    return old;
}
