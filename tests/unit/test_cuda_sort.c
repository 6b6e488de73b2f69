/* Sorting and random numbers on the CUDA device: bit for bit what the CPU's plain kernels give, for rows that are shorter and longer
 * than a tile, of any dtype and strides. Skipped where there is no GPU; CTest runs it with a driver on the host, too. */
#include "array/op.h"
#include "support/gpu.h"
#include "support/test.h"
#include "support/weights.h"

#include <hearth/hearth.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Bytes of n elements: anything, or few different ones, with both zeros, denormals, infinities and NaNs among them. */
static void *elements(uint64_t *r, ht_dtype t, int64_t n) {
    static const float odd[] = {0.0f, -0.0f, INFINITY, -INFINITY, NAN, -NAN, 1e-41f, -1e-41f, 1.5f};
    const size_t bytes = ht_dtype_bytes(t);
    char *out = malloc((size_t)n * bytes + 1);
    const bool few = test_random(r) % 2;
    for (int64_t i = 0; i < n; i++) {
        uint64_t bits = (uint64_t)test_random(r) << 32 | test_random(r);
        if (few || test_random(r) % 5 == 0) {
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

typedef struct question {
    ht_array *(*call)(ht_scope *s, ht_array *x, int64_t k);
    const char *name;
    ht_dtype dtype;
    int64_t rows, n, k;
    bool strided;
    const void *values;
} question;

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

static ht_array *ask(ht_scope *s, const void *how) {
    const question *q = how;
    return q->call(s, rows_of(s, q->values, q->dtype, q->rows, q->n, q->strided), q->k);
}

static void compare_bits(const char *what, beside_build_fn *build, const void *how) {
    beside_results r = beside_make(build, how);
    if (memcmp(r.of[CPU], r.of[GPU], (size_t)r.size * ht_dtype_bytes(r.dtype)) != 0) fail_msg("%s differs", what);
    beside_free(&r);
}

static void compare(question q, uint64_t *r) {
    void *values = elements(r, q.dtype, 2 * q.rows * q.n);
    char what[128];
    q.values = values;
    q.strided = test_random(r) % 2;
    snprintf(what, sizeof what, "%s of %s [%lld, %lld], %lld%s", q.name, ht_dtype_name(q.dtype), (long long)q.rows,
             (long long)q.n, (long long)q.k, q.strided ? ", strided" : "");
    compare_bits(what, ask, &q);
    free(values);
}

UNIT_TEST(rows_are_sorted_as_on_the_cpu) {
    static const int64_t lengths[] = {1, 2, 7, 255, 256, 257, 1025, 2048, 2049, 6000, 9001};
    uint64_t r = 1;
    if (!beside_stream[GPU]) skip();
    for (ht_dtype t = HT_BOOL; t < HT_DTYPE_COUNT; t++)
        for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
            if (!test_takes((int)i + (int)t, 4)) continue;
            const int64_t n = lengths[i], rows = n > 2000 ? 1 + test_random(&r) % 2 : 1 + test_random(&r) % 5;
            compare((question){sort, "sort", t, rows, n, 0, false, NULL}, &r);
            compare((question){argsort, "argsort", t, rows, n, 0, false, NULL}, &r);
            const int64_t k = 1 + test_random(&r) % n;
            compare((question){lower, "partition", t, rows, n, k, false, NULL}, &r);
            compare((question){places, "argpartition", t, rows, n, k, false, NULL}, &r);
        }
}

UNIT_TEST(the_largest_are_those_of_the_cpu) {
    static const int64_t sizes[][2] = {{1, 1},    {8, 2},     {128, 8},     {300, 300},  {2048, 5},
                                       {5000, 1}, {5000, 40}, {9000, 3000}, {9000, 9000}};
    uint64_t r = 2;
    if (!beside_stream[GPU]) skip();
    for (int turn = 0; turn < test_cases(1, 3); turn++)
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
            compare(
                (question){argtopk, "argtopk", HT_F32, 1 + test_random(&r) % 3, sizes[i][0], sizes[i][1], false, NULL},
                &r);
}

UNIT_TEST(sums_are_rounded_one_by_one) {
    static const int64_t lengths[] = {1, 15, 17, 2048, 5001};
    uint64_t r = 3;
    if (!beside_stream[GPU]) skip();
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        float *x = malloc(2 * (size_t)lengths[i] * sizeof *x);
        for (int64_t k = 0; k < 2 * lengths[i]; k++) x[k] = -(float)(test_random(&r) % 1000) / 50.0f;
        compare_bits("sums", ask, &(question){sums, "sums", HT_F32, 2, lengths[i], 0, false, x});
        free(x);
    }
}

typedef struct drawn {
    int width; /* 8: floats */
    int64_t n;
    uint64_t key;
} drawn;

static ht_array *draw(ht_scope *s, const void *how) {
    const drawn *d = how;
    ht_array *key = ht_random_key(s, d->key);
    const ht_random_bits_params p = {.shape = {d->n}, .n_dims = 1, .dtype = HT_F32};
    return d->width == 8 ? ht_apply(s, HT_OP_RANDOM_BITS, &p, &key, 1) : ht_random_bits(s, d->width, &d->n, 1, key);
}

UNIT_TEST(bits_are_those_of_the_cpu) {
    static const int64_t sizes[] = {0, 1, 2, 3, 4, 5, 7, 1000, 4097};
    if (!beside_stream[GPU]) skip();
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (int width = 1; width <= 8; width *= 2)
            compare_bits("random bits", draw, &(drawn){width, sizes[i], 77 + (uint64_t)i});
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
