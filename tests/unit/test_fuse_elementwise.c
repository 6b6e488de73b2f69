/* Elementwise nodes run as one program: the bits that one kernel after another gives, and the memory. */
#include "array/array.h"
#include "support/arrays.h"
#include "support/options.h"
#include "support/test.h"
#include "support/weights.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* The plain device runs nothing as a program: it is what others are compared with. */
static ht_stream *plain_stream, *stream;

static ht_stream *open_stream(const char *isa) {
    ht_error err = {0};
    ht_device *d = NULL;
    ht_stream *s = NULL;
    const ht_device_options options = OPTIONS(ht_device_options, with.n_threads = 2, with.instruction_set = isa);
    if (ht_device_open("cpu", &options, &d, &err) || ht_stream_new(d, &s, &err)) fail_msg("%s", err.message);
    ht_device_free(d);
    return s;
}

static int start(void **state) {
    (void)state;
    plain_stream = open_stream("reference");
    stream = open_stream(NULL);
    return 0;
}
static int stop(void **state) {
    (void)state;
    ht_stream_free(plain_stream);
    ht_stream_free(stream);
    return 0;
}

/* ---- random graphs ---- */

enum { MOST_NODES = 40, MOST_TARGETS = 4 };

typedef struct graph {
    ht_array *node[MOST_NODES];
    int n;
} graph;

static ht_array *pick(graph *g, uint64_t *r) { return g->node[test_random(r) % (uint64_t)g->n]; }

static ht_array *leaf(ht_scope *s, const int64_t *shape, int n_dims, uint64_t *r) {
    static const ht_dtype dtypes[] = {HT_F32, HT_F32, HT_F16, HT_BF16, HT_I32, HT_I8, HT_U16, HT_F64, HT_BOOL};
    int64_t part[3], n = 1;
    for (int i = 0; i < n_dims; i++) {
        part[i] = test_random(r) % 4 == 0 ? 1 : shape[i]; /* to be stretched */
        n *= part[i];
    }
    float *values = malloc((size_t)(n + 1) * sizeof *values);
    for (int64_t i = 0; i < n; i++) values[i] = 8.0f * test_random_float(r);
    ht_array *x = ht_array_from(s, values, HT_F32, part, n_dims);
    free(values);
    return ht_astype(s, x, dtypes[test_random(r) % (sizeof dtypes / sizeof *dtypes)]);
}

static ht_array *view(ht_scope *s, ht_array *x, uint64_t *r) {
    int n = ht_array_n_dims(x);
    switch (test_random(r) % 3) {
    case 0: { /* backwards */
        int64_t start[8], stop_at[8], step[8];
        for (int i = 0; i < n; i++) {
            start[i] = ht_array_dim(x, i) - 1;
            stop_at[i] = -1;
            step[i] = -1;
        }
        for (int i = 0; i < n; i++)
            if (ht_array_dim(x, i) == 0) return x;
        return ht_slice(s, x, start, stop_at, step);
    }
    case 1: return n == 2 && ht_array_dim(x, 0) == ht_array_dim(x, 1) ? ht_transpose(s, x, NULL) : x;
    default: return ht_contiguous(s, x);
    }
}

static ht_array *grown(ht_scope *s, graph *g, const int64_t *shape, int n_dims, uint64_t *r) {
    ht_array *a = pick(g, r), *b = pick(g, r);
    switch (test_random(r) % 16) {
    case 0: return leaf(s, shape, n_dims, r);
    case 1: return view(s, a, r);
    case 2: return ht_add(s, a, b);
    case 3: return ht_subtract(s, ht_astype(s, a, HT_F32), b);
    case 4: return ht_multiply(s, a, b);
    case 5: return ht_divide(s, a, b);
    case 6: return ht_maximum(s, a, b);
    case 7: return ht_minimum(s, a, b);
    case 8: return ht_less(s, a, b);
    case 9: return ht_where(s, ht_less_equal(s, a, b), a, pick(g, r));
    case 10: return ht_exp(s, ht_minimum(s, a, ht_full(s, 3.0, HT_F32, NULL, 0)));
    case 11: return ht_tanh(s, a);
    case 12: return ht_square(s, ht_abs(s, a));
    case 13: return ht_astype(s, a, test_random(r) % 2 ? HT_F16 : HT_I32);
    case 14: return ht_floor(s, ht_sqrt(s, ht_abs(s, a)));
    default: return ht_subtract(s, ht_astype(s, a, HT_F32), ht_max(s, b, NULL, 0, false));
    }
}

/* The same graph for the same seed: returns how many arrays are asked for. */
static int build(ht_scope *s, uint64_t seed, ht_array **target) {
    static const struct {
        int n_dims;
        int64_t shape[3];
    } shapes[] = {{1, {7}},     {2, {5, 5}},      {2, {33, 33}}, {3, {3, 1, 700}},
                  {1, {20000}}, {2, {300, 1100}}, {0, {0}},      {2, {141, 141}}};
    uint64_t r = seed;
    size_t which = test_random(&r) % (sizeof shapes / sizeof *shapes);
    if (which == 5 && seed % 4) which = 2; /* the large one less often */
    graph g = {.n = 0};
    g.node[g.n++] = leaf(s, shapes[which].shape, shapes[which].n_dims, &r);
    int n = 3 + (int)(test_random(&r) % (MOST_NODES - 3));
    while (g.n < n) {
        g.node[g.n] = grown(s, &g, shapes[which].shape, shapes[which].n_dims, &r);
        if (!g.node[g.n]) fail_msg("seed %llu: %s", (unsigned long long)seed, ht_scope_error(s)->message);
        g.n++;
    }
    int n_targets = 1 + (int)(test_random(&r) % MOST_TARGETS);
    target[0] = g.node[g.n - 1];
    for (int i = 1; i < n_targets; i++) target[i] = pick(&g, &r);
    return n_targets;
}

static bool same_value(ht_dtype t, const char *a, const char *b) {
    size_t bytes = ht_dtype_bytes(t);
    if (memcmp(a, b, bytes) == 0) return true;
    if (t == HT_F64) return isnan(*(const double *)(const void *)a) && isnan(*(const double *)(const void *)b);
    if (t == HT_F32) return isnan(*(const float *)(const void *)a) && isnan(*(const float *)(const void *)b);
    uint16_t x, y, infinity = t == HT_F16 ? 0x7C00 : 0x7F80;
    if (t != HT_F16 && t != HT_BF16) return false;
    memcpy(&x, a, 2), memcpy(&y, b, 2);
    return (x & 0x7FFF) > infinity && (y & 0x7FFF) > infinity;
}

static void expect_same(uint64_t seed, ht_scope *s, ht_array *got, ht_scope *plain, ht_array *want) {
    size_t bytes = ht_dtype_bytes(ht_array_dtype(got)), n = (size_t)ht_array_size(got);
    assert_int_equal(ht_array_dtype(got), ht_array_dtype(want));
    char *a = malloc(n * bytes + 1), *b = malloc(n * bytes + 1);
    assert_works(ht_array_read, s, got, a, n * bytes);
    assert_works(ht_array_read, plain, want, b, n * bytes);
    for (size_t i = 0; i < n; i++)
        if (!same_value(ht_array_dtype(got), a + i * bytes, b + i * bytes))
            fail_msg("seed %llu: element %zu of %zu of %s differs", (unsigned long long)seed, i, n,
                     ht_dtype_name(ht_array_dtype(got)));
    free(a), free(b);
}

static void compare_graph(uint64_t seed) {
    ht_scope *s = ht_scope_new(stream), *plain = ht_scope_new(plain_stream);
    ht_array *got[MOST_TARGETS], *want[MOST_TARGETS];
    int n = build(s, seed, got);
    assert_int_equal(build(plain, seed, want), n);
    ht_error err = {0};
    if (ht_array_eval(s, got, n, &err)) fail_msg("seed %llu: %s", (unsigned long long)seed, err.message);
    for (int i = 0; i < n; i++) expect_same(seed, s, got[i], plain, want[i]);
    ht_scope_free(s), ht_scope_free(plain);
}

UNIT_TEST(graphs_have_the_bits_of_single_kernels) {
    for (uint64_t seed = 1; seed <= 600; seed++)
        if (seed <= 100 || test_takes_today((int64_t)seed, 4)) compare_graph(seed);
    for (uint64_t seed = 1; seed <= 100; seed++) compare_graph(seed);
    size_t before = ht_memory_get(NULL).active_bytes; /* what streams keep for their kernels */
    for (uint64_t seed = 1; seed <= 100; seed++) compare_graph(seed);
    assert_int_equal(ht_memory_get(NULL).active_bytes, before);
}

/* ---- memory ---- */

/* Of a chain on an array that stays, nothing but the result is in memory. */
UNIT_TEST(what_is_on_the_way_takes_no_memory) {
    ht_scope *s = ht_scope_new(stream);
    const int64_t n = 1 << 20;
    ht_array *x = ht_arange(s, 0, (double)n, 1, HT_F32);
    assert_works(ht_array_eval, s, &x, 1);
    ht_array *y = ht_add(s, ht_exp(s, ht_negative(s, x)), ht_multiply(s, x, ht_full(s, 2, HT_F32, NULL, 0)));
    size_t before = ht_memory_get(NULL).active_bytes;
    ht_memory_reset_peak(NULL);
    assert_works(ht_array_eval, s, &y, 1);
    assert_true(ht_memory_get(NULL).peak_bytes - before <= (size_t)n * 4 + 4096);
    ht_scope_free(s);
}

/* Where memory is too small for a program's outputs, one kernel after another still fits, as results are written over
 * operands: an input that is read again later cannot be written over by the program. */
UNIT_TEST(what_memory_does_not_allow_at_once_runs_one_by_one) {
    ht_scope *s = ht_scope_new(stream);
    const int64_t n = 1 << 20;
    ht_array *x = ht_arange(s, 0, (double)n, 1, HT_F32), *a = ht_sqrt(s, x), *b = ht_add(s, a, x);
    size_t old = ht_memory_set_limit(NULL, ht_memory_get(NULL).active_bytes + (size_t)n * 8 + 65536);
    assert_works(ht_array_eval, s, (ht_array *[]){a, b}, 2);
    old = ht_memory_set_limit(NULL, old);
    float last;
    assert_works(ht_array_read, s, ht_slice(s, b, (int64_t[]){n - 1}, (int64_t[]){n}, NULL), &last, 4);
    assert_float_equal(last, sqrtf((float)(n - 1)) + (float)(n - 1), 0);
    ht_scope_free(s);
}

UNIT_TEST(memory_that_does_not_suffice_leaves_everything_usable) {
    ht_scope *s = ht_scope_new(stream);
    const int64_t n = 1 << 20;
    ht_array *x = ht_arange(s, 0, (double)n, 1, HT_F32), *y;
    assert_works(ht_array_eval, s, &x, 1);
    y = ht_negative(s, ht_add(s, ht_square(s, x), x));
    size_t active = ht_memory_get(NULL).active_bytes, old = ht_memory_set_limit(NULL, active + (size_t)n);
    assert_fails(HT_ERR_MEMORY, "memory limit", ht_array_eval, s, &y, 1);
    assert_int_equal(ht_memory_get(NULL).active_bytes, active);
    ht_memory_set_limit(NULL, old);
    ht_array *z = ht_negative(s, ht_add(s, x, x));
    assert_works(ht_array_eval, s, &z, 1);
    ht_scope_free(s);
}

/* What follows a node that fails fails with it, also inside a group; what does not can be evaluated. */
UNIT_TEST(a_failure_within_reach_of_a_group) {
    ht_error err = {0};
    ht_scope *s = ht_scope_new(stream);
    ht_array *x = test_counting(s, (int64_t[]){3}, 1),
             *at = ht_array_from(s, (int32_t[]){9}, HT_I32, (int64_t[]){1}, 1);
    ht_array *a = ht_square(s, x), *bad = ht_take(s, x, at, 0);
    ht_array *b = ht_add(s, ht_negative(s, a), bad), *c = ht_square(s, b);
    assert_int_equal(ht_array_eval(s, (ht_array *[]){a, c}, 2, &err), HT_ERR_INDEX);
    assert_int_equal(ht_array_eval(s, &b, 1, &err), HT_ERR_INDEX);
    assert_int_equal(ht_array_eval(s, &a, 1, &err), HT_OK);
    float got[3];
    assert_int_equal(ht_array_read(s, a, got, sizeof got, &err), HT_OK);
    assert_memory_equal(got, ((float[]){0, 1, 4}), sizeof got);
    ht_scope_free(s);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(graphs_have_the_bits_of_single_kernels),
        cmocka_unit_test(what_is_on_the_way_takes_no_memory),
        cmocka_unit_test(what_memory_does_not_allow_at_once_runs_one_by_one),
        cmocka_unit_test(memory_that_does_not_suffice_leaves_everything_usable),
        cmocka_unit_test(a_failure_within_reach_of_a_group),
    };
    return cmocka_run_group_tests(tests, start, stop);
}
