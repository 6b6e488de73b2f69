/* Differences between systems: what Linux and Apple's have under different names, or one of them not at all. */
#ifndef HT_BASE_SYSTEM_H
#define HT_BASE_SYSTEM_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>

/* Cores that the process may run on, 1 at least. */
int ht_system_cores(void);

/* Asks for large pages, where there are some to ask for. */
void ht_system_prefer_huge_pages(void *p, size_t bytes);

/* Exchanges what two paths name, in one step: 0, or an errno; ENOSYS or EINVAL where the file system cannot. */
int ht_system_exchange(const char *a, const char *b);

/* When a file was last written, in nanoseconds since 1970. */
int64_t ht_system_modified_ns(const struct stat *s);

/* A condition whose waits end by the clock of ht_now_seconds (base/clock.h). */
void ht_condition_init(pthread_cond_t *c);
/* Waits, with the lock held, until somebody says so, or until that time: then false. */
bool ht_condition_wait_until(pthread_cond_t *c, pthread_mutex_t *lock, double until);

#endif
