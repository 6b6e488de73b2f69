/* Random numbers are MLX's, to the bit (tests/golden/random.inc). What is made with a logarithm hangs on the C library, so with
 * another one than that of the references the first numbers are compared, to some units in the last place. */
#include "base/dtype.h"
#include "base/half.h"
#include "support/arrays.h"
#include "support/options.h"
#include "support/test.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

typedef enum kind {
    UNIFORM,
    NORMAL,
    NORMAL_MOVED,
    TRUNCATED_NORMAL,
    LAPLACE,
    GUMBEL,
    RANDINT,
    BERNOULLI,
    CATEGORICAL_ONE,
    CATEGORICAL,
    PERMUTATION,
    SPLIT,
} kind;

static const struct reference {
    kind kind;
    ht_dtype dtype;
    uint64_t seed;
    uint32_t crc, first[4];
} references[] = {
#include "golden/random.inc"
};

enum { N = 100001, CHOICES = 1000, ROWS = 101 };

static ht_array *number(ht_scope *s, double value) { return ht_full(s, value, HT_F32, NULL, 0); }

static ht_array *logits(ht_scope *s) {
    ht_array *x = ht_multiply(s, ht_arange(s, 0, CHOICES, 1, HT_F32), number(s, 37));
    return ht_divide(s, ht_remainder(s, x, number(s, 101)), number(s, 13));
}

static ht_array *draw(ht_scope *s, const struct reference *r) {
    const int64_t n = N, rows = ROWS;
    ht_array *key = ht_random_key(s, r->seed), *loc = number(s, 0.75), *scale = number(s, 1.5);
    switch (r->kind) {
    case UNIFORM: return ht_random_uniform(s, number(s, -1.25), number(s, 3.5), r->dtype, &n, 1, key);
    case NORMAL: return ht_random_normal(s, HT_NONE, HT_NONE, r->dtype, &n, 1, key);
    case NORMAL_MOVED: return ht_random_normal(s, loc, scale, r->dtype, &n, 1, key);
    case TRUNCATED_NORMAL: return ht_random_truncated_normal(s, number(s, -0.75), number(s, 2.5), r->dtype, &n, 1, key);
    case LAPLACE: return ht_random_laplace(s, loc, scale, r->dtype, &n, 1, key);
    case GUMBEL: return ht_random_gumbel(s, r->dtype, &n, 1, key);
    case RANDINT: return ht_random_randint(s, number(s, -1000), number(s, 100000), r->dtype, &n, 1, key);
    case BERNOULLI: return ht_random_bernoulli(s, number(s, 0.375), &n, 1, key);
    case CATEGORICAL_ONE: return ht_random_categorical(s, ht_expand_dims(s, logits(s), 1), 0, &n, 1, key);
    case CATEGORICAL:
        return ht_random_categorical(s, ht_broadcast_to(s, logits(s), (int64_t[]){ROWS, CHOICES}, 2), -1, &rows, 1,
                                     key);
    case PERMUTATION: return ht_random_permutation(s, ht_arange(s, 0, N, 1, HT_U32), 0, key);
    case SPLIT: return ht_random_split(s, key, N);
    }
    return NULL;
}

#ifdef __GLIBC__
static const bool same_library = true;
#else
static const bool same_library = false;
#endif

static float value_of(ht_dtype t, uint32_t word) {
    float f;
    memcpy(&f, &word, sizeof f);
    return t == HT_F16 ? ht_f16_to_f32((uint16_t)word) : t == HT_BF16 ? ht_bf16_to_f32((uint16_t)word) : f;
}

static bool is_near(ht_dtype t, uint32_t a, uint32_t b) {
    const float x = value_of(t, a), y = value_of(t, b), ulp = t == HT_F32 ? 0x1p-23f : t == HT_F16 ? 0x1p-10f : 0x1p-7f;
    return fabsf(x - y) <= 32 * ulp * fmaxf(1.0f, fabsf(y));
}

static void check(const struct reference *r, const unsigned char *bytes, size_t n_bytes) {
    const size_t width = ht_dtype_bytes(r->dtype);
    const bool exact = same_library || !ht_dtype_is_float(r->dtype) || r->kind == UNIFORM;
    for (size_t i = 0; i < 4 && r->kind != CATEGORICAL; i++) {
        uint32_t word = 0;
        memcpy(&word, bytes + i * width, width);
        if (exact ? word != r->first[i] : !is_near(r->dtype, word, r->first[i]))
            fail_msg("kind %d of %s, seed %llu: number %zu is %08x, not %08x", (int)r->kind, ht_dtype_name(r->dtype),
                     (unsigned long long)r->seed, i, word, r->first[i]);
    }
    const uint32_t crc = (uint32_t)crc32(0, bytes, (uInt)n_bytes);
    if ((same_library || (exact && r->kind != CATEGORICAL)) && crc != r->crc)
        fail_msg("kind %d of %s, seed %llu: the numbers have CRC-32 %08x, not %08x", (int)r->kind,
                 ht_dtype_name(r->dtype), (unsigned long long)r->seed, crc, r->crc);
}

static void draw_all(const char *instruction_set) {
    const ht_device_options options =
        OPTIONS(ht_device_options, with.n_threads = 2, with.instruction_set = instruction_set);
    unsigned char *bytes = malloc(2 * N * sizeof(uint32_t));
    ht_device *device = NULL;
    ht_stream *stream = NULL;
    ht_error err = {0};
    assert_non_null(bytes);
    assert_int_equal(ht_device_open("cpu", &options, &device, &err), HT_OK);
    assert_int_equal(ht_stream_new(device, &stream, &err), HT_OK);
    for (size_t i = 0; i < sizeof references / sizeof *references; i++) {
        const struct reference *r = &references[i];
        ht_scope *s = ht_scope_new(stream);
        ht_array *x = draw(s, r);
        const size_t n_bytes = x ? (size_t)ht_array_size(x) * ht_dtype_bytes(r->dtype) : 0;
        if (ht_array_read(s, x, bytes, n_bytes, &err)) fail_msg("%s: %s", instruction_set, err.message);
        assert_int_equal(ht_array_dtype(x), r->dtype);
        check(r, bytes, n_bytes);
        ht_scope_free(s);
    }
    ht_stream_free(stream);
    ht_device_free(device);
    free(bytes);
}

UNIT_TEST(numbers_are_those_of_mlx) {
    int n;
    const ht_instruction_set *sets = ht_instruction_sets(&n);
    bool drawn = false;
    for (int i = 0; i < n && !(drawn && test_is_late()); i++) { /* other devices have one set of kernels */
        if (!sets[i].built_in || !sets[i].machine_has) continue;
        draw_all(sets[i].name);
        drawn = true;
    }
    assert_true(drawn);
}

/* A bound moves what is drawn below it: the derivative with respect to it, against differences. */
static ht_array *drawn_within(ht_scope *s, ht_array *bound) {
    return ht_random_truncated_normal(s, number(s, -1), bound, HT_F32, (int64_t[]){64}, 1, ht_random_key(s, 3));
}
static int sum_within(ht_scope *s, ht_array *const *in, int n_in, ht_array **out, int max_out, void *user) {
    (void)n_in, (void)max_out, (void)user;
    out[0] = ht_sum(s, drawn_within(s, in[0]), NULL, 0, false);
    return out[0] ? 1 : -1;
}
SCOPE_TEST(bounds_have_derivatives) {
    const float step = 0.05f;
    const ht_function f = {sum_within, NULL};
    ht_array *at = number(s, 0.5), *value, *grad, *sum[2];
    float slope, above, below;
    assert_int_equal(ht_value_and_grad(s, &f, &at, 1, (ht_wrt){(int[]){0}, 1}, &value, 1, &grad), 1);
    for (int i = 0; i < 2; i++)
        sum[i] = ht_sum(s, drawn_within(s, number(s, 0.5 + (i ? -(double)step : (double)step))), NULL, 0, false);
    assert_works(ht_array_read, s, grad, &slope, sizeof slope);
    assert_works(ht_array_read, s, sum[0], &above, sizeof above);
    assert_works(ht_array_read, s, sum[1], &below, sizeof below);
    assert_true(slope > 1 && fabsf(slope - (above - below) / (2 * step)) < 0.01f * slope);
}

/* Every integer of a range is drawn, however far from 0 and however many there are, and none is preferred. */
UNIT_TEST(integers_are_all_drawn) {
    enum { MANY = 100000, SIZE = 5 };
    static const int64_t lows[] = {
        0, -3, 100000, 1 << 24, 1 << 30, (int64_t)1 << 40, -((int64_t)1 << 53), INT64_MIN, INT64_MAX - SIZE};
    static int64_t known[MANY], lazy[MANY];
    const int64_t n = MANY;
    for (size_t i = 0; i < sizeof lows / sizeof *lows; i++) {
        ht_scope *s = ht_scope_new(test_stream);
        const int64_t bounds[2] = {lows[i], lows[i] + SIZE};
        ht_array *low = ht_array_from(s, &bounds[0], HT_I64, NULL, 0), *key = ht_random_key(s, 11);
        ht_array *high = ht_array_from(s, &bounds[1], HT_I64, NULL, 0);
        ht_array *x = ht_random_randint(s, low, high, HT_I64, &n, 1, key);
        ht_array *y = ht_random_randint(s, ht_bitwise_invert(s, ht_bitwise_invert(s, low)), high, HT_I64, &n, 1, key);
        int counts[SIZE] = {0};
        assert_works(ht_array_read, s, x, known, sizeof known);
        assert_works(ht_array_read, s, y, lazy, sizeof lazy);
        assert_memory_equal(known, lazy, sizeof known); /* whether the bounds were known when it was built or not */
        for (int k = 0; k < MANY; k++) {
            assert_true(known[k] >= bounds[0] && known[k] < bounds[1]);
            counts[known[k] - bounds[0]]++;
        }
        for (int k = 0; k < SIZE; k++) assert_in_range(counts[k], MANY / SIZE - 700, MANY / SIZE + 700);
        ht_scope_free(s);
    }
}

/* Of 3 * 2^60 integers some would be twice as likely as others if 64 bits were scaled to them. */
SCOPE_TEST(large_ranges_are_even) {
    enum { MANY = 99999 };
    static int64_t x[MANY];
    const int64_t n = MANY, low = 0, high = (int64_t)3 << 60;
    int counts[3] = {0};
    ht_array *drawn = ht_random_randint(s, ht_array_from(s, &low, HT_I64, NULL, 0),
                                        ht_array_from(s, &high, HT_I64, NULL, 0), HT_I64, &n, 1, ht_random_key(s, 2));
    assert_works(ht_array_read, s, drawn, x, sizeof x);
    for (int k = 0; k < MANY; k++) counts[x[k] % 3]++;
    for (int k = 0; k < 3; k++) assert_in_range(counts[k], MANY / 3 - 800, MANY / 3 + 800);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(numbers_are_those_of_mlx),
        cmocka_unit_test(bounds_have_derivatives),
        cmocka_unit_test(integers_are_all_drawn),
        cmocka_unit_test(large_ranges_are_even),
    };
    return cmocka_run_group_tests(tests, test_open_stream, test_close_stream);
}
