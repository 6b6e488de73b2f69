#include "support/allocations.h"

#include "support/test.h"

void *__real_malloc(size_t n);
void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *p, size_t n);
void *__real_aligned_alloc(size_t align, size_t n);
char *__real_strdup(const char *s);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_realloc(void *p, size_t n);
void *__wrap_aligned_alloc(size_t align, size_t n);
char *__wrap_strdup(const char *s);

allocations_state allocations;

static bool fails(size_t bytes) {
    if (bytes < allocations.from_bytes) return false;
    allocations.n++;
    if (!allocations.armed) return false;
    const long left = allocations.until_failure--;
    return allocations.all_that_follow ? left <= 0 : left == 0;
}

void *__wrap_malloc(size_t n) { return fails(n) ? NULL : __real_malloc(n); }
void *__wrap_calloc(size_t n, size_t size) { return fails(n * size) ? NULL : __real_calloc(n, size); }
void *__wrap_realloc(void *p, size_t n) { return fails(n) ? NULL : __real_realloc(p, n); }
void *__wrap_aligned_alloc(size_t align, size_t n) { return fails(n) ? NULL : __real_aligned_alloc(align, n); }
char *__wrap_strdup(const char *s) { return fails(0) ? NULL : __real_strdup(s); }

long try_every_failure(ht_status (*scenario)(ht_error *err), unsigned also) {
    long n = 0;
    for (int mode = 0; mode < 2; mode++) {
        for (long k = 0;; k += k < 40 ? 1 : test_cases(TEST_SLOW ? 16 : 8, 1)) {
            ht_error err = {0};
            allocations.until_failure = k;
            allocations.all_that_follow = mode;
            allocations.armed = true;
            const ht_status st = scenario(&err);
            allocations.armed = false;
            if (allocations.until_failure >= 0) { /* nothing failed any more */
                assert_int_equal(st, HT_OK);
                n = k;
                break;
            }
            if (st == HT_OK && (also & ALSO_OK)) continue;
            const bool good = st == HT_ERR_MEMORY || (st == HT_ERR_ARGUMENT && (also & ALSO_ARGUMENT));
            if (!good || err.status != st || !err.message[0])
                fail_msg("allocation %ld: status %d, \"%s\"", k, st, err.message);
        }
    }
    return n;
}
