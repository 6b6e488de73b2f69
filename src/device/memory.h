/* Device memory: allocation with counters, limits and a cache of freed buffers, and copies between it and the host.
 * <hearth/memory.h> has the public side.
 *
 * Memory is either host memory, which everybody reads and writes, or memory that only the kernels of its device touch. An
 * address of the latter is a number to the host. Copies, and what kernels do, happen in the order of submission: memory that
 * is freed and allocated again while work on it is queued is written by that work first. Thread-safe. */
#ifndef HT_DEVICE_MEMORY_H
#define HT_DEVICE_MEMORY_H

#include <hearth/memory.h>

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>

typedef struct ht_memory ht_memory;
struct ht_device;

/* Memory that is not the host's: what its device does. `user` is ht_memory.user. */
typedef struct ht_memory_ops { /* take and give_back are called with the memory's lock held */
    /* Takes `bytes`, a multiple of 64, from the device, 64-byte aligned; NULL: there are none left. */
    void *(*take)(void *user, size_t bytes);
    void (*give_back)(void *user, void *p, size_t bytes); /* after the work that is queued on it */
    /* To the device. The host's memory may change as soon as the call returns. */
    ht_status (*write)(void *user, void *to, const void *from, size_t bytes, ht_error *err);
    /* From the device; waits for the work before it. Failures of kernels are not its to report, a lost device is
     * (device/device.h). */
    ht_status (*read)(void *user, void *to, const void *from, size_t bytes, ht_error *err);
    ht_status (*copy)(void *user, void *to, const void *from, size_t bytes, ht_error *err); /* both on the device */
    ht_status (*fill)(void *user, void *to, int byte, size_t bytes, ht_error *err);
    bool (*left)(void *user, size_t *bytes); /* that nobody has taken; false: unknown */

    /* Host memory that the device copies to by itself (page-locked), 64-byte aligned; NULL: there is none left. All three may
     * be missing together. */
    void *(*take_host)(void *user, size_t bytes);
    void (*give_back_host)(void *user, void *p);
    /* From the device into memory of take_host, in the order of submission: it is there when the queue has been waited for. */
    ht_status (*fetch)(void *user, void *to, const void *from, size_t bytes, ht_error *err);
} ht_memory_ops;

enum { HT_MEMORY_SHIFT = 6, HT_MEMORY_BINS = (26 - HT_MEMORY_SHIFT) * 8 };

struct ht_memory {
    const char *name;         /* of the device, for messages */
    const ht_memory_ops *ops; /* NULL: host memory */
    void *user;
    struct ht_device *device; /* buffers hold it as long as they live; NULL: nobody needs to */

    /* Of the allocator, which ht_memory_init and ht_memory_destroy begin and end. */
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

/* For devices with memory of their own: begins the allocator, with no limits; gives everything back that is cached. */
void ht_memory_init(ht_memory *m, const char *name, const ht_memory_ops *ops, void *user, struct ht_device *device);
void ht_memory_destroy(ht_memory *m);

/* ---- allocation ---- */

/* Allocates max(bytes, 1) bytes, 64-byte aligned, uninitialised. `what` names the allocation in the error message. */
ht_status ht_memory_alloc(ht_memory *m, size_t bytes, const char *what, void **out, ht_error *err);
/* Frees memory of ht_memory_alloc; `bytes` is its size as requested. NULL is fine. */
void ht_memory_free(ht_memory *m, void *p, size_t bytes);

/* Bytes that an allocation of `bytes` takes. */
size_t ht_memory_rounded(size_t bytes);
/* Freed buffers are kept, whatever the cache limit, as long as they and what was allocated since the first reservation are at
 * most `bytes`: for work that allocates the same again and again, and whose peak is known. Reservations add up. */
void ht_memory_reserve(ht_memory *m, size_t bytes);
void ht_memory_unreserve(ht_memory *m, size_t bytes); /* of an earlier reservation */

/* Bytes that the memory of a device has left; false: unknown, as for the host's (models/memory_check.h). */
bool ht_memory_left(ht_memory *m, size_t *bytes);

/* Host memory for what is fetched from a device's memory again and again; plain host memory where the device has no other. */
ht_status ht_memory_host_alloc(ht_memory *m, size_t bytes, const char *what, void **out, ht_error *err);
void ht_memory_host_free(ht_memory *m, void *p,
                         size_t bytes); /* NULL is fine; nothing is being fetched to it any more */

/* ---- contents ---- */

/* The functions of ht_memory_ops, for host memory too. Where there is no `fetch` it is a read. */
ht_status ht_memory_write(ht_memory *m, void *to, const void *from, size_t bytes, ht_error *err);
ht_status ht_memory_read(ht_memory *m, void *to, const void *from, size_t bytes, ht_error *err);
ht_status ht_memory_fetch(ht_memory *m, void *to, const void *from, size_t bytes, ht_error *err);
ht_status ht_memory_copy(ht_memory *m, void *to, const void *from, size_t bytes, ht_error *err);
ht_status ht_memory_fill(ht_memory *m, void *to, int byte, size_t bytes, ht_error *err);

#endif
