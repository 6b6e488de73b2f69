/* Allocations that fail: a scenario is run with its first, second, third ... one failing, alone and with all that follow. For
 * programs that are linked with --wrap for the functions that allocate (tests/CMakeLists.txt). */
#ifndef TESTS_SUPPORT_ALLOCATIONS_H
#define TESTS_SUPPORT_ALLOCATIONS_H

#include <hearth/status.h>

#include <stdbool.h>
#include <stddef.h>

typedef struct allocations_state {
    _Atomic bool armed, all_that_follow;
    _Atomic long until_failure; /* counted on all threads */
    _Atomic size_t from_bytes;  /* smaller ones neither fail nor count; strings are as small as can be */
    _Atomic long n;             /* all so far */
} allocations_state;
extern allocations_state allocations;

/* The malloc that may fail. */
void *__wrap_malloc(size_t n);

/* What a failed allocation may give instead of HT_ERR_MEMORY: arrays can do without some of theirs. */
enum also { NOTHING_ELSE = 0, ALSO_ARGUMENT = 1, ALSO_OK = 2 };

/* The scenario succeeds when memory does; returns how many allocations it makes. Outside soaks some fail: each of the first ones,
 * and every eighth later, to which the number is rounded up. */
long try_every_failure(ht_status (*scenario)(ht_error *err), unsigned also);

#endif
