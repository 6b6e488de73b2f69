/* Sorting by pivots when they are bad: the ways out, and what they give, against sorting by comparing. */
#include "cpu/sort_trial.h"
#include "support/test.h"
#include "support/weights.h"

#include <stdlib.h>
#include <string.h>

enum { MOST = 90001 };

typedef enum kind { RANDOM, FEW, RARE, EQUAL, RISING, FALLING, PIPE, TOP, KIND_COUNT } kind;

static uint64_t value(kind k, int64_t i, int64_t n, uint64_t *seed) {
    const uint64_t r = (uint64_t)test_random(seed) << 32 | test_random(seed);
    switch (k) {
    case RANDOM: return r;
    case FEW: return r % 5 << 10;
    case RARE: return r % 1000 ? r % 5 << 10 : r;
    case EQUAL: return 7;
    case RISING: return (uint64_t)i;
    case FALLING: return (uint64_t)(n - i);
    case PIPE: return (uint64_t)(i < n / 2 ? i : n - i);
    default: return r % 3 ? UINT64_MAX - r % 3 : r;
    }
}

#define OF_WIDTH(w)                                                                                                    \
    static int compare_##w(const void *a, const void *b) {                                                             \
        const uint##w##_t x = *(const uint##w##_t *)a, y = *(const uint##w##_t *)b;                                    \
        return (x > y) - (x < y);                                                                                      \
    }                                                                                                                  \
    static void check_##w(ht_cpu_isa isa, kind k, int64_t n, int splits) {                                             \
        const size_t bytes = (size_t)n * sizeof(uint##w##_t);                                                          \
        uint##w##_t *given = malloc(bytes), *expected = malloc(bytes), *x = malloc(bytes);                             \
        uint##w##_t *to = malloc(bytes), *room = malloc(bytes);                                                        \
        uint64_t seed = (uint64_t)n;                                                                                   \
        assert_true(given &&expected &&x &&to &&room);                                                                 \
        for (int64_t i = 0; i < n; i++) given[i] = (uint##w##_t)value(k, i, n, &seed);                                 \
        memcpy(expected, given, bytes);                                                                                \
        qsort(expected, (size_t)n, sizeof *expected, compare_##w);                                                     \
        for (int way = 0; way < HT_SORT_WAY_COUNT; way++) {                                                            \
            ht_sort_trial t = {.way = (ht_sort_way)way, .width = (w), .splits = splits, .n = n};                       \
            t.kth = (int64_t)(test_random(&seed) % (uint64_t)n), t.x = x, t.to = to, t.room = room;                    \
            memcpy(x, given, bytes);                                                                                   \
            memset(to, 0x5a, bytes);                                                                                   \
            assert_true(ht_cpu_sort_trial(isa, &t));                                                                   \
            if (way == HT_SORT_PART) {                                                                                 \
                if (to[t.kth] != expected[t.kth])                                                                      \
                    fail_msg("%lld numbers of " #w " bits of kind %d, %d splits", (long long)n, (int)k, splits);       \
                qsort(to, (size_t)t.kth, sizeof *to, compare_##w);                                                     \
                qsort(to + t.kth, (size_t)(n - t.kth), sizeof *to, compare_##w);                                       \
            }                                                                                                          \
            if (way != HT_SORT_FIND) {                                                                                 \
                if (memcmp(way == HT_SORT_WITHIN ? x : to, expected, bytes) != 0)                                      \
                    fail_msg("way %d, %lld numbers of " #w " bits of kind %d, %d splits", way, (long long)n, (int)k,   \
                             splits);                                                                                  \
                continue;                                                                                              \
            }                                                                                                          \
            int64_t below = 0, equal = 0;                                                                              \
            for (int64_t i = 0; i < n; i++) {                                                                          \
                below += expected[i] < expected[t.kth];                                                                \
                equal += expected[i] == expected[t.kth];                                                               \
            }                                                                                                          \
            assert_true(t.number == expected[t.kth]);                                                                  \
            assert_int_equal(t.below, below);                                                                          \
            assert_int_equal(t.equal, equal);                                                                          \
        }                                                                                                              \
        free(given), free(expected), free(x), free(to), free(room);                                                    \
    }
OF_WIDTH(16)
OF_WIDTH(32)
OF_WIDTH(64)

static bool by_pivots(ht_cpu_isa isa, int width) {
    uint64_t x[3] = {0};
    ht_sort_trial none = {.way = HT_SORT_FIND, .width = width, .n = 1, .x = x, .to = x + 1, .room = x + 2};
    return ht_cpu_sort_trial(isa, &none);
}

/* No split at all, and fewer than such rows need: every way ends in digits for some part. With many, none does. */
static void test_bad_pivots(void **state) {
    (void)state;
    static const int64_t lengths[] = {1, 17, 129, 256, 257, 512, 1000, 5003, 40000, MOST};
    static const int splits[] = {0, 1, 2, 5, 60};
    int tried = 0;
    for (int isa = 0; isa < HT_CPU_ISA_COUNT; isa++) {
        if (!by_pivots((ht_cpu_isa)isa, 32)) continue;
        const bool halves = by_pivots((ht_cpu_isa)isa, 16);
        tried++;
        for (size_t s = 0; s < sizeof splits / sizeof *splits; s++)
            for (size_t l = 0; l < sizeof lengths / sizeof *lengths; l++)
                for (int k = 0; k < KIND_COUNT; k++) {
                    if (halves) check_16((ht_cpu_isa)isa, (kind)k, lengths[l], splits[s]);
                    check_32((ht_cpu_isa)isa, (kind)k, lengths[l], splits[s]);
                    check_64((ht_cpu_isa)isa, (kind)k, lengths[l], splits[s]);
                }
    }
    if (!tried) skip();
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_bad_pivots)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
