#include "base/system.h"

#include "base/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

static struct timespec timespec_of(double seconds) {
    const time_t whole = (time_t)seconds;
    return (struct timespec){whole, (long)((seconds - (double)whole) * 1e9)};
}

#ifdef __APPLE__

int ht_system_cores(void) {
    const long n = sysconf(_SC_NPROCESSORS_ONLN);
    return n > 0 ? (int)n : 1;
}

void ht_system_prefer_huge_pages(void *p, size_t bytes) { (void)p, (void)bytes; }

int ht_system_exchange(const char *a, const char *b) { return renamex_np(a, b, RENAME_SWAP) == 0 ? 0 : errno; }

int64_t ht_system_modified_ns(const struct stat *s) {
    return (int64_t)s->st_mtimespec.tv_sec * 1000000000 + s->st_mtimespec.tv_nsec;
}

void ht_condition_init(pthread_cond_t *c) { pthread_cond_init(c, NULL); }

bool ht_condition_wait_until(pthread_cond_t *c, pthread_mutex_t *lock, double until) {
    const double left = until - ht_now_seconds();
    const struct timespec t = timespec_of(left > 0 ? left : 0);
    return pthread_cond_timedwait_relative_np(c, lock, &t) == 0;
}

#else

#include <sched.h>

int ht_system_cores(void) {
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) != 0) return 1;
    const int n = CPU_COUNT(&set);
    return n > 0 ? n : 1;
}

void ht_system_prefer_huge_pages(void *p, size_t bytes) { (void)madvise(p, bytes, MADV_HUGEPAGE); }

int ht_system_exchange(const char *a, const char *b) {
    return renameat2(AT_FDCWD, a, AT_FDCWD, b, RENAME_EXCHANGE) == 0 ? 0 : errno;
}

int64_t ht_system_modified_ns(const struct stat *s) {
    return (int64_t)s->st_mtim.tv_sec * 1000000000 + s->st_mtim.tv_nsec;
}

void ht_condition_init(pthread_cond_t *c) {
    pthread_condattr_t clock;
    pthread_condattr_init(&clock);
    pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
    pthread_cond_init(c, &clock);
    pthread_condattr_destroy(&clock);
}

bool ht_condition_wait_until(pthread_cond_t *c, pthread_mutex_t *lock, double until) {
    const struct timespec t = timespec_of(until);
    return pthread_cond_timedwait(c, lock, &t) == 0;
}

#endif
