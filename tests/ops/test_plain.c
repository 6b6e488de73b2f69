/* The plain kernels against values written down here: what the operations mean where that is not obvious. */
#include "base/half.h"
#include "cpu/cpu.h"
#include "formats/weight_type.h"
#include "support/kernels.h"
#include "support/test.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static ht_device *plain;

static int start(void **state) {
    (void)state;
    ht_error err = {0};
    return ht_cpu_device_new(2, "reference", &plain, &err) == HT_OK ? 0 : -1;
}
static int stop(void **state) {
    (void)state;
    ht_cpu_device_free(plain);
    return 0;
}

static void run(ht_op_id op, const void *params, int n_in, const ht_view *in, ht_view out) {
    test_run_ok(plain, op, params, n_in, in, &out, NULL);
}
static ht_status status_of(ht_op_id op, const void *params, int n_in, const ht_view *in, ht_view out, ht_error *err) {
    return test_run(plain, op, params, n_in, in, &out, NULL, err);
}

static ht_view row(void *data, ht_dtype dtype, int64_t n) { return test_view(data, dtype, 1, &n); }

UNIT_TEST(integers_wrap_and_divide_downwards) {
    int8_t a[4] = {127, -128, -7, 100}, b[4] = {1, -1, 2, 0}, y[4];
    ht_view in[2] = {row(a, HT_I8, 4), row(b, HT_I8, 4)};
    run(HT_OP_ADD, NULL, 2, in, row(y, HT_I8, 4));
    assert_memory_equal(y, ((int8_t[]){-128, 127, -5, 100}), 4);
    run(HT_OP_MULTIPLY, NULL, 2, in, row(y, HT_I8, 4));
    assert_memory_equal(y, ((int8_t[]){127, -128, -14, 0}), 4);
    run(HT_OP_FLOOR_DIVIDE, NULL, 2, in, row(y, HT_I8, 4));
    assert_memory_equal(y, ((int8_t[]){127, -128, -4, 0}), 4);
    run(HT_OP_REMAINDER, NULL, 2, in, row(y, HT_I8, 4));
    assert_memory_equal(y, ((int8_t[]){0, 0, 1, 0}), 4);
    uint64_t big[2] = {UINT64_MAX, 5}, small[2] = {2, UINT64_MAX}, z[2];
    ht_view wide[2] = {row(big, HT_U64, 2), row(small, HT_U64, 2)};
    run(HT_OP_FLOOR_DIVIDE, NULL, 2, wide, row(z, HT_U64, 2));
    assert_true(z[0] == INT64_MAX && z[1] == 0);
    run(HT_OP_MAXIMUM, NULL, 2, wide, row(z, HT_U64, 2));
    assert_true(z[0] == UINT64_MAX && z[1] == UINT64_MAX);
    int64_t lowest = INT64_MIN, minus = -1, q;
    ht_view edge[2] = {row(&lowest, HT_I64, 1), row(&minus, HT_I64, 1)};
    run(HT_OP_FLOOR_DIVIDE, NULL, 2, edge, row(&q, HT_I64, 1));
    assert_true(q == INT64_MIN);
    ht_error err = {0};
    assert_int_equal(status_of(HT_OP_DIVIDE, NULL, 2, edge, row(&q, HT_I64, 1), &err), HT_ERR_UNSUPPORTED);
    assert_non_null(strstr(err.message, "i64"));
}

UNIT_TEST(remainders_by_infinity) {
    float a[4] = {3.0f, -3.0f, 0.5f, INFINITY}, b[4] = {INFINITY, INFINITY, -INFINITY, 2.0f}, y[4];
    ht_view in[2] = {row(a, HT_F32, 4), row(b, HT_F32, 4)};
    run(HT_OP_REMAINDER, NULL, 2, in, row(y, HT_F32, 4));
    assert_true(y[0] == 3.0f && y[1] == INFINITY && y[2] == -INFINITY && isnan(y[3]));
}

UNIT_TEST(shifts_leave_the_sign) {
    int32_t a[5] = {1, 1, -8, -8, -8}, by[5] = {31, 32, 1, 40, -1}, y[5];
    ht_view in[2] = {row(a, HT_I32, 5), row(by, HT_I32, 5)};
    run(HT_OP_LEFT_SHIFT, NULL, 2, in, row(y, HT_I32, 5));
    assert_memory_equal(y, ((int32_t[]){INT32_MIN, 0, -16, 0, 0}), sizeof y);
    run(HT_OP_RIGHT_SHIFT, NULL, 2, in, row(y, HT_I32, 5));
    assert_memory_equal(y, ((int32_t[]){0, 0, -4, -1, -1}), sizeof y);
    uint8_t b[2] = {200, 200}, few[2] = {1, 8}, z[2];
    ht_view bytes[2] = {row(b, HT_U8, 2), row(few, HT_U8, 2)};
    run(HT_OP_RIGHT_SHIFT, NULL, 2, bytes, row(z, HT_U8, 2));
    assert_memory_equal(z, ((uint8_t[]){100, 0}), 2);
}

UNIT_TEST(casts_saturate) {
    double from[6] = {1e30, -1e30, NAN, 2.9, -2.9, 254.99};
    ht_view in = row(from, HT_F64, 6);
    int32_t i[6];
    run(HT_OP_CAST, NULL, 1, &in, row(i, HT_I32, 6));
    assert_memory_equal(i, ((int32_t[]){INT32_MAX, INT32_MIN, 0, 2, -2, 254}), sizeof i);
    uint8_t u[6];
    run(HT_OP_CAST, NULL, 1, &in, row(u, HT_U8, 6));
    assert_memory_equal(u, ((uint8_t[]){255, 0, 0, 2, 0, 254}), sizeof u);
    uint64_t w[6];
    run(HT_OP_CAST, NULL, 1, &in, row(w, HT_U64, 6));
    assert_true(w[0] == UINT64_MAX && w[1] == 0 && w[5] == 254);
    int64_t v[6];
    run(HT_OP_CAST, NULL, 1, &in, row(v, HT_I64, 6));
    assert_true(v[0] == INT64_MAX && v[1] == INT64_MIN);
    uint8_t truth[6];
    run(HT_OP_CAST, NULL, 1, &in, row(truth, HT_BOOL, 6));
    assert_memory_equal(truth, ((uint8_t[]){1, 1, 1, 1, 1, 1}), sizeof truth);
    int64_t exact = (INT64_C(1) << 53) + 1, back;
    ht_view one = row(&exact, HT_I64, 1);
    run(HT_OP_CAST, NULL, 1, &one, row(&back, HT_I64, 1));
    assert_true(back == exact);
}

UNIT_TEST(reduces) {
    float x[6] = {1, 5, 5, -2, NAN, 7}, y[2];
    int32_t at[2];
    ht_view in = test_view(x, HT_F32, 2, (int64_t[]){2, 3});
    run(HT_OP_ARGMAX, NULL, 1, &in, row(at, HT_U32, 2));
    assert_true(at[0] == 1 && at[1] == 1); /* the first of equals; NaN is the largest */
    run(HT_OP_MAX, NULL, 1, &in, row(y, HT_F32, 2));
    assert_true(y[0] == 5.0f && isnan(y[1]));
    in = test_view(x, HT_F32, 2, (int64_t[]){2, 0});
    run(HT_OP_SUM, NULL, 1, &in, row(y, HT_F32, 2));
    assert_true(y[0] == 0.0f && y[1] == 0.0f);
    ht_error err = {0};
    assert_int_equal(status_of(HT_OP_MAX, NULL, 1, &in, row(y, HT_F32, 2), &err), HT_ERR_ARGUMENT);
    uint32_t many[3] = {UINT32_MAX, 1, 1};
    uint64_t sum;
    in = row(many, HT_U32, 3);
    run(HT_OP_SUM, NULL, 1, &in, test_view(&sum, HT_U64, 0, NULL));
    assert_true(sum == (uint64_t)UINT32_MAX + 2);
    double wide[2] = {1000.0, 1000.0 + log(3.0)}, soft[2];
    in = row(wide, HT_F64, 2);
    run(HT_OP_SOFTMAX, &(ht_along_params){0}, 1, &in, row(soft, HT_F64, 2));
    assert_true(fabs(soft[0] - 0.25) < 1e-12 && fabs(soft[1] - 0.75) < 1e-12);
}

/* A 3 x 4 f32 weight packed for the plain device. */
static ht_matrix matrix_make(const float *w) {
    ht_matrix m = {
        .ops = plain->matrix_ops(plain, HT_W_F32, HT_PRECISION_REFERENCE), .type = HT_W_F32, .n_rows = 3, .k = 4};
    m.packed_bytes = m.ops->packed_bytes(m.type, m.n_rows, m.k);
    m.packed = aligned_alloc(64, (m.packed_bytes + 63) / 64 * 64);
    m.ops->pack(&m, 0, 3, w, NULL);
    return m;
}

UNIT_TEST(packed_weights) {
    const float w[12] = {1, 0, 0, 0, 0, 2, 0, 0, 1, 1, 1, 1};
    ht_matrix m = matrix_make(w);
    ht_linear_params p = {.matrix = &m, .scale = 2.0f};
    float x[8] = {1, 2, 3, 4, 5, 6, 7, 8}, bias[6] = {10, 0, 20, 0, 30, 0}, y[6];
    ht_view in[2] = {test_view(x, HT_F32, 2, (int64_t[]){2, 4}), test_absent()};
    ht_view out = test_view(y, HT_F32, 2, (int64_t[]){2, 3});
    run(HT_OP_LINEAR, &p, 2, in, out);
    assert_memory_equal(y, ((float[]){1, 4, 10, 5, 12, 26}), sizeof y);
    in[0].stride[0] = 1, in[0].stride[1] = 2; /* the rows are 1 3 5 7 and 2 4 6 8 */
    in[1] = row(bias, HT_F32, 3);
    in[1].stride[0] = 2;
    run(HT_OP_LINEAR, &p, 2, in, out);
    assert_memory_equal(y, ((float[]){11, 26, 46, 12, 28, 50}), sizeof y);
    int32_t ids[2] = {2, 1};
    ht_view id = row(ids, HT_I32, 2);
    float e[8];
    run(HT_OP_EMBED, &p, 1, &id, test_view(e, HT_F32, 2, (int64_t[]){2, 4}));
    assert_memory_equal(e, ((float[]){2, 2, 2, 2, 0, 4, 0, 0}), sizeof e);
    ids[0] = 3;
    ht_error err = {0};
    assert_int_equal(status_of(HT_OP_EMBED, &p, 1, &id, test_view(e, HT_F32, 2, (int64_t[]){2, 4}), &err),
                     HT_ERR_ARGUMENT);
    assert_non_null(strstr(err.message, "3"));
    free(m.packed);
}

/* Rows that are equally far apart are read in place: also the same row again and again, but not a row per pair. */
UNIT_TEST(rows_in_place) {
    static const struct {
        int64_t shape[3], stride[3];
        int64_t ld; /* -1: no such rows */
    } cases[] = {{{2, 3, 4}, {12, 4, 1}, 4},  {{2, 3, 4}, {24, 8, 1}, 8}, {{2, 1, 4}, {5, 0, 1}, 5},
                 {{2, 3, 4}, {0, 0, 1}, 0},   {{2, 3, 4}, {4, 0, 1}, -1}, {{2, 3, 4}, {0, 4, 1}, -1},
                 {{2, 3, 4}, {13, 4, 1}, -1}, {{1, 3, 4}, {0, 0, 1}, 0},  {{2, 3, 4}, {12, 4, 2}, -1}};
    float x[64];
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        ht_view v = test_view(x, HT_F32, 3, cases[i].shape);
        memcpy(v.stride, cases[i].stride, sizeof cases[i].stride);
        int64_t ld;
        const bool has = ht_view_has_rows(&v, &ld);
        if (has != (cases[i].ld >= 0) || (has && ld != cases[i].ld)) fail_msg("case %zu: %d", i, (int)has);
    }
}

UNIT_TEST(unknown_instruction_sets_are_named) {
    ht_device *d = plain;
    ht_error err = {0};
    assert_int_equal(ht_cpu_device_new(1, "sse9", &d, &err), HT_ERR_UNSUPPORTED);
    assert_null(d);
    assert_non_null(strstr(err.message, "sse9"));
    assert_non_null(strstr(err.message, "reference"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(integers_wrap_and_divide_downwards),
        cmocka_unit_test(remainders_by_infinity),
        cmocka_unit_test(shifts_leave_the_sign),
        cmocka_unit_test(casts_saturate),
        cmocka_unit_test(reduces),
        cmocka_unit_test(packed_weights),
        cmocka_unit_test(rows_in_place),
        cmocka_unit_test(unknown_instruction_sets_are_named),
    };
    return cmocka_run_group_tests(tests, start, stop);
}
