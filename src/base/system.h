/* Portability layer for functions that differ between Linux and Apple's systems. */
#ifndef HT_BASE_SYSTEM_H
#define HT_BASE_SYSTEM_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>

/* Cores that the process may run on, 1 at least. */
int ht_system_cores(void);

/* Requests huge pages where the system supports them. */
void ht_system_prefer_huge_pages(void *p, size_t bytes);

/* Exchanges two paths atomically: 0, or an errno; ENOSYS or EINVAL where the file system does not support it. */
int ht_system_exchange(const char *a, const char *b);

/* Modification time of a file, in nanoseconds since 1970. */
int64_t ht_system_modified_ns(const struct stat *s);

/* Initialises a condition variable whose timed waits use the clock of ht_now_seconds (base/clock.h). */
void ht_condition_init(pthread_cond_t *c);
/* Waits, with the lock held, for a signal or until the time `until`; false after a timeout. */
bool ht_condition_wait_until(pthread_cond_t *c, pthread_mutex_t *lock, double until);

#endif
