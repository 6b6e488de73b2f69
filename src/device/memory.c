/* Memory allocator: bins of freed buffers, three limits, and locking of host memory. */
#include "device/memory.h"

#include "base/checked.h"
#include "base/error.h"
#include "base/grow.h"
#include "base/pages.h"
#include "device/device.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* Freed buffers are kept in bins by size class, eight per power of two: rounding wastes at most an eighth. Large
 * buffers are rounded to pages, kept in a list, and reused only for requests of the same size. */
enum { MIN_SHIFT = HT_MEMORY_SHIFT, STEPS = 8, N_BINS = HT_MEMORY_BINS, MAX_SHIFT = MIN_SHIFT + N_BINS / STEPS };

#define DEFAULT_CACHE ((size_t)256 << 20)

/* A freed buffer. In host memory the record is at its beginning. */
typedef struct ht_freed {
    struct ht_freed *next;
    void *buffer;
    size_t bytes;
} freed;

/* Smaller buffers are not locked: they share pages with others. */
#define SMALLEST_WIRED ((size_t)64 << 10)

typedef struct wired {
    const void *buffer;
    char *begin; /* first whole page inside the buffer */
    size_t bytes;
} wired;

static struct {
    wired *wired; /* locked buffers */
    size_t n_wired, wired_capacity, wired_bytes, wired_limit;
} locked;

static ht_memory host = {.name = "cpu", .lock = PTHREAD_MUTEX_INITIALIZER, .cache_limit = DEFAULT_CACHE};

ht_memory *ht_memory_of_host(void) { return &host; }
ht_memory *ht_memory_of(const ht_device *d) { return d ? d->memory : &host; }

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

/* ---- locking of host memory, under its lock ---- */

/* Tries to lock a buffer within the limit; failure is ignored. */
static void wire(const void *buffer, size_t bytes) {
    if (bytes < SMALLEST_WIRED) return;
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), from = (uintptr_t)buffer;
    uintptr_t begin = (from + page - 1) & ~(page - 1), end = (from + bytes) & ~(page - 1);
    size_t whole = end - begin;
    if (locked.wired_bytes > locked.wired_limit || whole > locked.wired_limit - locked.wired_bytes) return;
    if (!HT_GROW(locked.wired, locked.wired_capacity, locked.n_wired + 1)) return;
    if (mlock((void *)begin, whole) != 0) return;
    locked.wired[locked.n_wired++] = (wired){buffer, (char *)begin, whole};
    locked.wired_bytes += whole;
}

static void unwire_at(size_t i) {
    (void)munlock(locked.wired[i].begin, locked.wired[i].bytes);
    locked.wired_bytes -= locked.wired[i].bytes;
    locked.wired[i] = locked.wired[--locked.n_wired];
}

/* Unlocks a buffer before it is returned to the system. */
static void unwire(const void *buffer) {
    for (size_t i = locked.n_wired; i-- > 0;)
        if (locked.wired[i].buffer == buffer) {
            unwire_at(i);
            return;
        }
}

/* ---- allocation ---- */

/* Smallest cache kept in addition to a reservation, however little of it is left. */
#define SMALLEST_CACHE ((size_t)16 << 20)

/* Bytes of freed buffers that may be kept when `active` are in use. */
static size_t most_cached(const ht_memory *m, size_t active) {
    if (!m->reserved) return m->cache_limit;
    const size_t in_use = active > m->base ? active - m->base : 0;
    const size_t least = ht_min_size(m->cache_limit, SMALLEST_CACHE);
    return ht_max_size(least, m->reserved > in_use ? m->reserved - in_use : 0);
}

/* Buffers from this size on are mapped: freeing one returns it to the system at once and leaves no hole in a heap. */
#define SMALLEST_MAPPED ((size_t)128 << 10)

static void *take(ht_memory *m, size_t rounded) {
    if (m->ops) return m->ops->take(m->user, rounded);
    void *p = rounded >= SMALLEST_MAPPED ? ht_pages_map(rounded) : ht_pages_new(rounded);
    if (p && locked.wired_limit) wire(p, rounded);
    return p;
}

static void give_back(ht_memory *m, void *p, size_t rounded) {
    if (m->ops)
        m->ops->give_back(m->user, p, rounded);
    else if (rounded >= SMALLEST_MAPPED)
        ht_pages_unmap(p, rounded);
    else
        free(p);
}

/* Removes the first record of a list and returns its buffer. */
static void *unlink_first(ht_memory *m, freed **list) {
    freed *f = *list;
    void *buffer = f->buffer;
    *list = f->next;
    m->cached -= f->bytes;
    if (m->ops) free(f);
    return buffer;
}

static void give_back_first(ht_memory *m, freed **list) {
    const size_t bytes = (*list)->bytes;
    void *buffer = unlink_first(m, list);
    if (!m->ops) unwire(buffer);
    give_back(m, buffer, bytes);
}

static void give_back_cache(ht_memory *m, size_t keep) {
    while (m->large && m->cached > keep) give_back_first(m, &m->large);
    for (int b = N_BINS - 1; b >= 0 && m->cached > keep; b--)
        while (m->bin[b] && m->cached > keep) give_back_first(m, &m->bin[b]);
}

/* Removes a freed buffer of that size from the cache; NULL: none. */
static void *take_cached(ht_memory *m, size_t rounded, int bin) {
    freed **at = bin >= 0 ? &m->bin[bin] : &m->large;
    while (bin < 0 && *at && (*at)->bytes != rounded) at = &(*at)->next;
    return *at ? unlink_first(m, at) : NULL;
}

/* Keeps a freed buffer; false when there is no memory for its record. */
static bool put_cached(ht_memory *m, void *p, size_t rounded, int bin) {
    freed *f = m->ops ? malloc(sizeof *f) : p, **list = bin >= 0 ? &m->bin[bin] : &m->large;
    if (!f) return false;
    *f = (freed){*list, p, rounded};
    *list = f;
    m->cached += rounded;
    return true;
}

ht_status ht_memory_alloc(ht_memory *m, size_t bytes, const char *what, void **out, ht_error *err) {
    *out = NULL;
    if (bytes > SIZE_MAX / 2) return ht_fail_memory(err, bytes, what);
    int bin;
    size_t rounded = size_class(bytes, &bin);
    pthread_mutex_lock(&m->lock);
    if (m->limit && (rounded > m->limit || m->active > m->limit - rounded)) {
        give_back_cache(m, 0);
        size_t active = m->active, limit = m->limit;
        pthread_mutex_unlock(&m->lock);
        return ht_fail(err, HT_ERR_MEMORY,
                       "cannot allocate %zu bytes for %s%s%s: the memory limit is %zu, with %zu in use; raise the "
                       "limit or free arrays",
                       rounded, what, m->ops ? " on " : "", m->ops ? m->name : "", limit, active);
    }
    void *p = take_cached(m, rounded, bin);
    if (!p) {
        if (m->limit) give_back_cache(m, m->limit - m->active - rounded);
        if (m->reserved) give_back_cache(m, most_cached(m, m->active + rounded));
        if (!(p = take(m, rounded))) {
            give_back_cache(m, 0);
            p = take(m, rounded);
        }
    }
    if (p) {
        m->active += rounded;
        m->peak = ht_max_size(m->peak, m->active);
    }
    size_t active = m->active;
    pthread_mutex_unlock(&m->lock);
    *out = p;
    if (p) return HT_OK;
    if (!m->ops) return ht_fail_memory(err, rounded, what);
    return ht_fail(err, HT_ERR_MEMORY, "%s has no memory left for %s of %zu bytes; %zu are in use", m->name, what,
                   rounded, active);
}

void ht_memory_free(ht_memory *m, void *p, size_t bytes) {
    if (!p) return;
    int bin;
    size_t rounded = size_class(bytes, &bin);
    pthread_mutex_lock(&m->lock);
    m->active -= rounded;
    const size_t most = most_cached(m, m->active);
    bool keep = rounded <= most;
    if (keep) {
        give_back_cache(m, most - rounded); /* evicts older buffers: recently freed sizes are requested again first */
        keep = put_cached(m, p, rounded, bin);
    }
    if (!keep && !m->ops) unwire(p);
    pthread_mutex_unlock(&m->lock);
    if (!keep) give_back(m, p, rounded);
}

size_t ht_memory_rounded(size_t bytes) {
    int bin;
    return size_class(bytes, &bin);
}

bool ht_memory_left(ht_memory *m, size_t *bytes) {
    if (!m->ops || !m->ops->left(m->user, bytes)) return false;
    pthread_mutex_lock(&m->lock);
    *bytes += m->cached; /* released on demand */
    pthread_mutex_unlock(&m->lock);
    return true;
}

void ht_memory_reserve(ht_memory *m, size_t bytes) {
    pthread_mutex_lock(&m->lock);
    if (!m->reserved) m->base = m->active;
    m->reserved += bytes;
    pthread_mutex_unlock(&m->lock);
}

void ht_memory_unreserve(ht_memory *m, size_t bytes) {
    pthread_mutex_lock(&m->lock);
    m->reserved -= bytes;
    give_back_cache(m, most_cached(m, m->active));
    pthread_mutex_unlock(&m->lock);
}

void ht_memory_init(ht_memory *m, const char *name, const ht_memory_ops *ops, void *user, ht_device *device) {
    *m = (ht_memory){.name = name, .ops = ops, .user = user, .device = device, .cache_limit = DEFAULT_CACHE};
    pthread_mutex_init(&m->lock, NULL);
}

void ht_memory_destroy(ht_memory *m) {
    give_back_cache(m, 0);
    pthread_mutex_destroy(&m->lock);
}

ht_status ht_memory_host_alloc(ht_memory *m, size_t bytes, const char *what, void **out, ht_error *err) {
    if (!m->ops || !m->ops->take_host) return ht_memory_alloc(&host, bytes, what, out, err);
    *out = m->ops->take_host(m->user, ht_memory_rounded(bytes));
    if (*out) return HT_OK;
    return ht_fail(err, HT_ERR_MEMORY, "there are no %zu bytes of page-locked memory for %s", bytes, what);
}

void ht_memory_host_free(ht_memory *m, void *p, size_t bytes) {
    if (!m->ops || !m->ops->take_host)
        ht_memory_free(&host, p, bytes);
    else if (p)
        m->ops->give_back_host(m->user, p);
}

/* ---- contents ---- */

ht_status ht_memory_write(ht_memory *m, void *to, const void *from, size_t bytes, ht_error *err) {
    if (m->ops && bytes) return m->ops->write(m->user, to, from, bytes, err);
    if (bytes) memcpy(to, from, bytes);
    return HT_OK;
}

ht_status ht_memory_read(ht_memory *m, void *to, const void *from, size_t bytes, ht_error *err) {
    if (m->ops && bytes) return m->ops->read(m->user, to, from, bytes, err);
    if (bytes) memcpy(to, from, bytes);
    return HT_OK;
}

ht_status ht_memory_fetch(ht_memory *m, void *to, const void *from, size_t bytes, ht_error *err) {
    if (!m->ops || !m->ops->fetch) return ht_memory_read(m, to, from, bytes, err);
    return bytes ? m->ops->fetch(m->user, to, from, bytes, err) : HT_OK;
}

ht_status ht_memory_copy(ht_memory *m, void *to, const void *from, size_t bytes, ht_error *err) {
    if (m->ops && bytes) return m->ops->copy(m->user, to, from, bytes, err);
    if (bytes) memcpy(to, from, bytes);
    return HT_OK;
}

ht_status ht_memory_fill(ht_memory *m, void *to, int byte, size_t bytes, ht_error *err) {
    if (m->ops && bytes) return m->ops->fill(m->user, to, byte, bytes, err);
    if (bytes) memset(to, byte, bytes);
    return HT_OK;
}

/* ---- statistics and limits ---- */

ht_memory_stats ht_memory_get(ht_device *d) {
    ht_memory *m = ht_memory_of(d);
    pthread_mutex_lock(&m->lock);
    ht_memory_stats stats = {m->active, m->peak, m->cached, m->ops ? 0 : locked.wired_bytes};
    pthread_mutex_unlock(&m->lock);
    return stats;
}

void ht_memory_reset_peak(ht_device *d) {
    ht_memory *m = ht_memory_of(d);
    pthread_mutex_lock(&m->lock);
    m->peak = m->active;
    pthread_mutex_unlock(&m->lock);
}

size_t ht_memory_set_limit(ht_device *d, size_t bytes) {
    ht_memory *m = ht_memory_of(d);
    pthread_mutex_lock(&m->lock);
    size_t old = m->limit;
    m->limit = bytes;
    pthread_mutex_unlock(&m->lock);
    return old;
}

size_t ht_memory_limit(ht_device *d) {
    ht_memory *m = ht_memory_of(d);
    pthread_mutex_lock(&m->lock);
    size_t limit = m->limit;
    pthread_mutex_unlock(&m->lock);
    return limit;
}

size_t ht_memory_set_cache_limit(ht_device *d, size_t bytes) {
    ht_memory *m = ht_memory_of(d);
    pthread_mutex_lock(&m->lock);
    size_t old = m->cache_limit;
    m->cache_limit = bytes;
    give_back_cache(m, bytes);
    pthread_mutex_unlock(&m->lock);
    return old;
}

void ht_memory_clear_cache(ht_device *d) {
    ht_memory *m = ht_memory_of(d);
    pthread_mutex_lock(&m->lock);
    give_back_cache(m, 0);
    pthread_mutex_unlock(&m->lock);
}

size_t ht_memory_set_wired_limit(size_t bytes) {
    pthread_mutex_lock(&host.lock);
    size_t old = locked.wired_limit;
    locked.wired_limit = bytes;
    while (locked.wired_bytes > bytes) unwire_at(locked.n_wired - 1);
    pthread_mutex_unlock(&host.lock);
    return old;
}
