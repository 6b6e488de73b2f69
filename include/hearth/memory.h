/* Memory and machine: the library's allocations, limits on them, and facts about the machine from the operating
 * system.
 *
 * Every device has a memory, from which its arrays, weights, caches and plans are allocated; CPU devices share the
 * host's. These calls inspect and control one memory: that of the given device, the host's for NULL. They may be
 * called at any time, from any thread. */
#ifndef HEARTH_MEMORY_H
#define HEARTH_MEMORY_H

#include <hearth/status.h>

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct ht_device ht_device; /* array.h */

/* ---- usage ---- */

typedef struct ht_memory_stats {
    size_t active_bytes; /* in use by arrays, weights, caches and plans */
    size_t peak_bytes;   /* the largest active_bytes since the last reset */
    size_t cache_bytes;  /* freed buffers kept for reuse */
    size_t wired_bytes;  /* locked in memory */
} ht_memory_stats;

HT_API ht_memory_stats ht_memory_get(ht_device *d); /* of the memory as a whole, now */
/* Resets the peak to the active bytes. */
HT_API void ht_memory_reset_peak(ht_device *d);
/* Returns all cached freed buffers to the system, or to the device. */
HT_API void ht_memory_clear_cache(ht_device *d);

/* ---- limits: each setter returns the previous one ---- */

/* An allocation that would make active_bytes larger than the limit frees the cache, then fails with the numbers;
 * one that fits with the active bytes takes space from the cache. Default 0: no limit. */
HT_API size_t ht_memory_set_limit(ht_device *d, size_t bytes);
HT_API size_t ht_memory_limit(ht_device *d); /* the current limit; 0: none */
/* Freed buffers above this total return to the system. Default 256 MiB. */
HT_API size_t ht_memory_set_cache_limit(ht_device *d, size_t bytes);
/* Locks whole pages of new host buffers of 64 KiB and more in memory (mlock), while their total stays within the
 * limit and the process's RLIMIT_MEMLOCK; wired_bytes is their total. A lower limit unlocks the excess. Default 0:
 * none. */
HT_API size_t ht_memory_set_wired_limit(size_t bytes);

/* ---- the machine ---- */

typedef struct ht_machine {
    char processor[128];       /* "" when the system does not say */
    char architecture[32];     /* "x86_64", "aarch64", as the system names it */
    int cores, online;         /* usable by this process; online in the machine */
    size_t memory_bytes;       /* 0 when unknown */
    size_t l1_bytes;           /* of the first core's data; 0: none or unknown, here and below */
    size_t l2_bytes, l3_bytes; /* as the first core sees them */
    char huge_pages[16];       /* "always", "madvise", "never", or "" */
} ht_machine;

/* Current values of the system; unknown ones are 0 or "". */
HT_API void ht_machine_read(ht_machine *m);

#ifdef __cplusplus
}
#endif
#endif
