/* Device memory: allocation with counters, limits and a cache of freed buffers, and copies to and from the host.
 * <hearth/memory.h> has the public side.
 *
 * Memory is either host memory, which all code accesses, or device memory, which only kernels access. Device addresses
 * are opaque to the host. Copies and kernels run in submission order: work queued on freed memory runs before the work
 * of its next owner. Thread-safe. */
#ifndef HT_DEVICE_MEMORY_H
#define HT_DEVICE_MEMORY_H

#include <hearth/memory.h>

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>

typedef struct ht_memory ht_memory;
struct ht_device;

/* Operations on device memory. `user` is ht_memory.user. */
typedef struct ht_memory_ops { /* take and give_back are called with the memory's lock held */
    /* Allocates `bytes`, a multiple of 64, on the device, 64-byte aligned; NULL: out of memory. */
    void *(*take)(void *user, size_t bytes);
    void (*give_back)(void *user, void *p, size_t bytes); /* takes effect after the work queued on it */
    /* Copies to the device. The source may change as soon as the call returns. */
    ht_status (*write)(void *user, void *to, const void *from, size_t bytes, ht_error *err);
    /* Copies from the device, after waiting for the work before it. Reports a lost device, but not failed kernels
     * (device/device.h). */
    ht_status (*read)(void *user, void *to, const void *from, size_t bytes, ht_error *err);
    ht_status (*copy)(void *user, void *to, const void *from, size_t bytes, ht_error *err); /* both on the device */
    ht_status (*fill)(void *user, void *to, int byte, size_t bytes, ht_error *err);
    bool (*left)(void *user, size_t *bytes); /* free bytes of the device; false: unknown */

    /* Page-locked host memory, which the device copies to directly, 64-byte aligned; NULL: none left. The three
     * functions below are optional together. */
    void *(*take_host)(void *user, size_t bytes);
    void (*give_back_host)(void *user, void *p);
    /* Copies from the device to memory of take_host, in submission order: complete when the queue has been waited
     * for. */
    ht_status (*fetch)(void *user, void *to, const void *from, size_t bytes, ht_error *err);
} ht_memory_ops;

enum { HT_MEMORY_SHIFT = 6, HT_MEMORY_BINS = (26 - HT_MEMORY_SHIFT) * 8 };

struct ht_memory {
    const char *name;         /* of the device, for messages */
    const ht_memory_ops *ops; /* NULL: host memory */
    void *user;
    struct ht_device *device; /* retained by live buffers; NULL: needs no references */

    /* Allocator state, between ht_memory_init and ht_memory_destroy. */
    pthread_mutex_t lock;
    struct ht_freed *bin[HT_MEMORY_BINS], *large;
    size_t active, peak, cached, limit, cache_limit;
    size_t reserved, base; /* ht_memory_reserve; bytes that were active before the first one */
};

/* The host's memory, which all CPU devices share. */
ht_memory *ht_memory_of_host(void);
/* The memory of a device, or of the host for NULL. */
ht_memory *ht_memory_of(const struct ht_device *d);
static inline bool ht_memory_is_host(const ht_memory *m) { return m->ops == NULL; }

/* For devices with separate memory. `init` starts an allocator without limits; `destroy` frees all cached memory. */
void ht_memory_init(ht_memory *m, const char *name, const ht_memory_ops *ops, void *user, struct ht_device *device);
void ht_memory_destroy(ht_memory *m);

/* ---- allocation ---- */

/* Allocates max(bytes, 1) bytes, 64-byte aligned, uninitialised. `what` names the allocation in the error message. */
ht_status ht_memory_alloc(ht_memory *m, size_t bytes, const char *what, void **out, ht_error *err);
/* Frees memory of ht_memory_alloc; `bytes` is the requested size. NULL is allowed. */
void ht_memory_free(ht_memory *m, void *p, size_t bytes);

/* Bytes that an allocation of `bytes` takes. */
size_t ht_memory_rounded(size_t bytes);
/* Keeps freed buffers regardless of the cache limit, while they and the allocations since the first reservation total
 * at most `bytes`. For work with a known peak that repeats its allocations. Reservations add up. */
void ht_memory_reserve(ht_memory *m, size_t bytes);
void ht_memory_unreserve(ht_memory *m, size_t bytes); /* of an earlier reservation */

/* Bytes that the memory of a device has left; false: unknown, as for the host's (models/memory_check.h). */
bool ht_memory_left(ht_memory *m, size_t *bytes);

/* Host memory for repeated fetches from device memory; plain host memory if the device has no page-locked memory. */
ht_status ht_memory_host_alloc(ht_memory *m, size_t bytes, const char *what, void **out, ht_error *err);
void ht_memory_host_free(ht_memory *m, void *p, size_t bytes); /* NULL is allowed; no fetch to it may be pending */

/* ---- contents ---- */

/* The functions of ht_memory_ops, also for host memory. Without a `fetch` function, fetching is reading. */
ht_status ht_memory_write(ht_memory *m, void *to, const void *from, size_t bytes, ht_error *err);
ht_status ht_memory_read(ht_memory *m, void *to, const void *from, size_t bytes, ht_error *err);
ht_status ht_memory_fetch(ht_memory *m, void *to, const void *from, size_t bytes, ht_error *err);
ht_status ht_memory_copy(ht_memory *m, void *to, const void *from, size_t bytes, ht_error *err);
ht_status ht_memory_fill(ht_memory *m, void *to, int byte, size_t bytes, ht_error *err);

#endif
