/* Sorting and random numbers on the CUDA device: bit for bit what the CPU's plain kernels give, for rows that are shorter and longer
 * than a tile, of any dtype and strides. Skipped where there is no GPU; CTest runs it with a driver on the host, too. */
#include "array/op.h"
#include "support/gpu.h"
#include "support/test.h"

#include <hearth/hearth.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

static uint32_t next(uint64_t *r) {
    *r = *r * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(*r >> 32);
}

/* Bytes of n elements: anything, or few different ones, with both zeros, denormals, infinities and NaNs among them. */
static void *elements(uint64_t *r, ht_dtype t, int64_t n) {
    static const float odd[] = {0.0f, -0.0f, INFINITY, -INFINITY, NAN, -NAN, 1e-41f, -1e-41f, 1.5f};
    const size_t bytes = ht_dtype_bytes(t);
    char *out = malloc((size_t)n * bytes + 1);
    const bool few = next(r) % 2;
    for (int64_t i = 0; i < n; i++) {
        uint64_t bits = (uint64_t)next(r) << 32 | next(r);
        if (few || next(r) % 5 == 0) {
            const float x = odd[bits % (sizeof odd / sizeof *odd)];
            const double d = (double)x;
            if (t == HT_F64)
                memcpy(&bits, &d, sizeof d);
            else if (t == HT_F32)
                memcpy(&bits, &x, sizeof x);
            else
                bits %= 3;
        }
        if (t == HT_BOOL) bits &= 1;
        memcpy(out + (size_t)i * bytes, &bits, bytes);
    }
    return out;
}

/* [rows, n], or every other element of the rows of a turned array. */
static ht_array *rows_of(ht_scope *s, const void *values, ht_dtype t, int64_t rows, int64_t n, bool strided) {
    if (!strided) return ht_array_from(s, values, t, (int64_t[]){rows, n}, 2);
    ht_array *a = ht_transpose(s, ht_array_from(s, values, t, (int64_t[]){2 * n, rows}, 2), NULL);
    return ht_slice(s, a, (int64_t[]){0, 1}, (int64_t[]){rows, 2 * n}, (int64_t[]){1, 2});
}

typedef ht_array *call_fn(ht_scope *s, ht_array *x, int64_t k);
static ht_array *sort(ht_scope *s, ht_array *x, int64_t k) { return (void)k, ht_sort(s, x, -1); }
static ht_array *argsort(ht_scope *s, ht_array *x, int64_t k) { return (void)k, ht_argsort(s, x, -1); }
static ht_array *argtopk(ht_scope *s, ht_array *x, int64_t k) { return ht_argtopk(s, x, (int32_t)k); }
static ht_array *sums(ht_scope *s, ht_array *x, int64_t k) {
    return (void)k, ht_apply(s, HT_OP_RANDOM_SUMS, NULL, &x, 1);
}
/* What a partition has up to its pivot, sorted, and all of its places. */
static ht_array *lower(ht_scope *s, ht_array *x, int64_t k) {
    ht_array *y = ht_partition(s, x, k - 1, -1);
    return ht_sort(s, ht_slice(s, y, (int64_t[]){0, 0}, (int64_t[]){x->shape[0], k}, NULL), -1);
}
static ht_array *places(ht_scope *s, ht_array *x, int64_t k) {
    return ht_sort(s, ht_argpartition(s, x, k - 1, -1), -1);
}

static void compare(call_fn *call, const char *name, ht_dtype t, int64_t rows, int64_t n, int64_t k, uint64_t *r) {
    void *values = elements(r, t, 2 * rows * n), *got[DEVICES] = {0};
    const bool strided = next(r) % 2;
    size_t bytes = 0;
    for (int i = 0; i < DEVICES; i++) {
        ht_scope *s = ht_scope_new(beside_stream[i]);
        ht_array *y = call(s, rows_of(s, values, t, rows, n, strided), k);
        ht_error err = {0};
        if (!y) fail_msg("%s", ht_scope_error(s)->message);
        bytes = (size_t)ht_array_size(y) * ht_dtype_bytes(ht_array_dtype(y));
        got[i] = malloc(bytes + 1);
        if (ht_array_read(s, y, got[i], bytes, &err)) fail_msg("%s", err.message);
        ht_scope_free(s);
    }
    if (memcmp(got[CPU], got[GPU], bytes) != 0)
        fail_msg("%s of %s [%lld, %lld], %lld%s differs", name, ht_dtype_name(t), (long long)rows, (long long)n,
                 (long long)k, strided ? ", strided" : "");
    for (int i = 0; i < DEVICES; i++) free(got[i]);
    free(values);
}

static void rows_are_sorted_as_on_the_cpu(void **state) {
    (void)state;
    static const int64_t lengths[] = {1, 2, 7, 255, 256, 257, 1025, 2048, 2049, 6000, 9001};
    uint64_t r = 1;
    if (!beside_stream[GPU]) skip();
    for (ht_dtype t = HT_BOOL; t < HT_DTYPE_COUNT; t++)
        for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
            if (!test_takes((int)i + (int)t, 4)) continue;
            const int64_t n = lengths[i], rows = n > 2000 ? 1 + next(&r) % 2 : 1 + next(&r) % 5;
            compare(sort, "sort", t, rows, n, 0, &r);
            compare(argsort, "argsort", t, rows, n, 0, &r);
            const int64_t k = 1 + next(&r) % n;
            compare(lower, "partition", t, rows, n, k, &r);
            compare(places, "argpartition", t, rows, n, k, &r);
        }
}

static void the_largest_are_those_of_the_cpu(void **state) {
    (void)state;
    static const int64_t sizes[][2] = {{1, 1},    {8, 2},     {128, 8},     {300, 300},  {2048, 5},
                                       {5000, 1}, {5000, 40}, {9000, 3000}, {9000, 9000}};
    uint64_t r = 2;
    if (!beside_stream[GPU]) skip();
    for (int turn = 0; turn < test_cases(1, 3); turn++)
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
            compare(argtopk, "argtopk", HT_F32, 1 + next(&r) % 3, sizes[i][0], sizes[i][1], &r);
}

static void sums_are_rounded_one_by_one(void **state) {
    (void)state;
    static const int64_t lengths[] = {1, 15, 17, 2048, 5001};
    uint64_t r = 3;
    if (!beside_stream[GPU]) skip();
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        float *x = malloc(2 * (size_t)lengths[i] * sizeof *x), *got[DEVICES];
        for (int64_t k = 0; k < 2 * lengths[i]; k++) x[k] = -(float)(next(&r) % 1000) / 50.0f;
        for (int d = 0; d < DEVICES; d++) {
            ht_scope *s = ht_scope_new(beside_stream[d]);
            ht_error err = {0};
            got[d] = malloc(2 * (size_t)lengths[i] * sizeof *x);
            ht_array *y = sums(s, ht_array_from(s, x, HT_F32, (int64_t[]){2, lengths[i]}, 2), 0);
            if (!y || ht_array_read(s, y, got[d], 2 * (size_t)lengths[i] * sizeof *x, &err))
                fail_msg("%s", err.message);
            ht_scope_free(s);
        }
        assert_memory_equal(got[CPU], got[GPU], 2 * (size_t)lengths[i] * sizeof *x);
        for (int d = 0; d < DEVICES; d++) free(got[d]);
        free(x);
    }
}

static void bits_are_those_of_the_cpu(void **state) {
    (void)state;
    static const int64_t sizes[] = {0, 1, 2, 3, 4, 5, 7, 1000, 4097};
    if (!beside_stream[GPU]) skip();
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (int width = 1; width <= 8; width *= 2) { /* 8: floats */
            char got[DEVICES][4 * 4097] = {{0}};
            const size_t bytes = (size_t)sizes[i] * (width == 8 ? 4 : (size_t)width);
            for (int d = 0; d < DEVICES; d++) {
                ht_scope *s = ht_scope_new(beside_stream[d]);
                ht_array *key = ht_random_key(s, 77 + (uint64_t)i);
                const ht_random_bits_params p = {.shape = {sizes[i]}, .n_dims = 1, .dtype = HT_F32};
                ht_array *y = width == 8 ? ht_apply(s, HT_OP_RANDOM_BITS, &p, &key, 1)
                                         : ht_random_bits(s, width, &sizes[i], 1, key);
                ht_error err = {0};
                if (!y || ht_array_read(s, y, got[d], bytes, &err)) fail_msg("%s", err.message);
                ht_scope_free(s);
            }
            assert_memory_equal(got[CPU], got[GPU], bytes);
        }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_are_sorted_as_on_the_cpu),
        cmocka_unit_test(the_largest_are_those_of_the_cpu),
        cmocka_unit_test(sums_are_rounded_one_by_one),
        cmocka_unit_test(bits_are_those_of_the_cpu),
    };
    return cmocka_run_group_tests(tests, beside_open, beside_close);
}
