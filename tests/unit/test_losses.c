/* Losses against plain loops in f64, and their gradients against finite differences. */
#include "support/arrays.h"
#include "support/gradients.h"
#include "support/test.h"

#include <math.h>
#include <string.h>

enum { MOST = 256 };

/* One batch: [rows, vocab] logits, with a target and a mask for each row. */
typedef struct batch {
    int64_t rows, vocab;
    float logits[MOST];
    int32_t target[MOST];
    bool mask[MOST];
} batch;

static batch drawn(int64_t rows, int64_t vocab) {
    batch b = {.rows = rows, .vocab = vocab};
    for (int64_t i = 0; i < rows * vocab; i++) b.logits[i] = 4 * sinf(12.9898f * (float)i + 1);
    for (int64_t i = 0; i < rows; i++) {
        b.target[i] = (int32_t)((5 * i + 3) % vocab);
        b.mask[i] = i % 3 != 1;
    }
    return b;
}

static double loss_of_row(const batch *b, int64_t row) {
    const float *x = b->logits + row * b->vocab;
    double most = -(double)INFINITY, sum = 0;
    for (int64_t i = 0; i < b->vocab; i++) most = fmax(most, (double)x[i]);
    for (int64_t i = 0; i < b->vocab; i++) sum += exp((double)x[i] - most);
    return b->target[row] < 0 ? 0 : most + log(sum) - (double)x[b->target[row]];
}

static ht_array *logits_of(ht_scope *s, const batch *b) {
    return ht_array_from(s, b->logits, HT_F32, (int64_t[]){b->rows, b->vocab}, 2);
}
static ht_array *targets_of(ht_scope *s, const batch *b) { return ht_array_from(s, b->target, HT_I32, &b->rows, 1); }
static ht_array *mask_of(ht_scope *s, const batch *b) { return ht_array_from(s, b->mask, HT_BOOL, &b->rows, 1); }

static void read_floats(ht_scope *s, ht_array *a, float *out, int64_t n) {
    assert_works(ht_array_read, s, a, out, (size_t)n * sizeof *out);
}
static float read_float(ht_scope *s, ht_array *a) {
    float value;
    read_floats(s, a, &value, 1);
    return value;
}

static void expect_losses(const batch *b, ht_scope *s, ht_array *losses) {
    float found[MOST];
    assert_int_equal(ht_array_n_dims(losses), 1);
    assert_int_equal(ht_array_dtype(losses), HT_F32);
    read_floats(s, losses, found, b->rows);
    for (int64_t i = 0; i < b->rows; i++) {
        const double expected = loss_of_row(b, i);
        if (isinf(expected))
            assert_true(found[i] == (float)expected);
        else
            assert_true(fabs((double)found[i] - expected) <= 1e-6 * (1 + fabs(expected)));
    }
}

/* ---- cross-entropy ---- */

UNIT_TEST(cross_entropy_is_that_of_each_row) {
    const int64_t shapes[][2] = {{1, 1}, {1, 2}, {5, 7}, {3, 67}, {33, 3}, {0, 5}};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        const batch b = drawn(shapes[i][0], shapes[i][1]);
        ht_scope *s = ht_scope_new(test_stream);
        expect_losses(&b, s, ht_cross_entropy(s, logits_of(s, &b), targets_of(s, &b)));
        ht_scope_free(s);
    }
}

UNIT_TEST(targets_may_be_any_integers_and_rows_have_any_axes) {
    const batch b = drawn(12, 5);
    const ht_dtype dtypes[] = {HT_U8, HT_U16, HT_U32, HT_U64, HT_I8, HT_I16, HT_I64};
    for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++) {
        ht_scope *s = ht_scope_new(test_stream);
        ht_array *logits = ht_reshape(s, logits_of(s, &b), (int64_t[]){2, 3, 2, 5}, 4);
        ht_array *targets = ht_reshape(s, ht_astype(s, targets_of(s, &b), dtypes[i]), (int64_t[]){2, 3, 2}, 3);
        ht_array *losses = ht_cross_entropy(s, logits, targets);
        assert_int_equal(ht_array_n_dims(losses), 3);
        expect_losses(&b, s, ht_flatten(s, losses, 0, -1));
        ht_scope_free(s);
    }
}

SCOPE_TEST(one_row_without_axes_has_a_scalar_loss) {
    const batch b = drawn(1, 9);
    ht_array *logits = ht_reshape(s, logits_of(s, &b), (int64_t[]){9}, 1);
    ht_array *loss = ht_cross_entropy(s, logits, ht_full(s, b.target[0], HT_I32, NULL, 0));
    assert_int_equal(ht_array_n_dims(loss), 0);
    assert_true(fabs((double)read_float(s, loss) - loss_of_row(&b, 0)) < 1e-6);
}

SCOPE_TEST(large_and_infinite_logits_are_no_trouble) {
    batch b = drawn(4, 6);
    for (int i = 0; i < 6; i++) b.logits[i] = i == b.target[0] ? -1e4f : 1e4f; /* loss 2e4 + log 5 */
    for (int i = 0; i < 6; i++) b.logits[6 + i] = i == b.target[1] ? 1e4f : -1e4f;
    for (int i = 0; i < 6; i++) b.logits[12 + i] = i == b.target[2] ? 3 : -INFINITY;
    b.logits[18 + b.target[3]] = -INFINITY; /* impossible, so an infinite loss */
    ht_array *losses = ht_cross_entropy(s, logits_of(s, &b), targets_of(s, &b));
    expect_losses(&b, s, losses);
    float found[4];
    read_floats(s, losses, found, 4);
    assert_true(found[0] > 2e4f && found[1] == 0 && found[2] == 0 && isinf(found[3]));
}

SCOPE_TEST(logits_of_bf16_are_summed_in_f32) {
    const batch b = drawn(3, 67);
    ht_array *narrow = ht_astype(s, logits_of(s, &b), HT_BF16);
    batch rounded = b;
    read_floats(s, ht_astype(s, narrow, HT_F32), rounded.logits, 3 * 67);
    expect_losses(&rounded, s, ht_cross_entropy(s, narrow, targets_of(s, &b)));
}

/* ---- masks ---- */

UNIT_TEST(the_mean_is_over_rows_that_count) {
    for (int use_mask = 0; use_mask < 2; use_mask++) {
        batch b = drawn(9, 5);
        b.target[2] = -100;
        b.target[7] = -1;
        b.target[1] = use_mask ? 4000 : 1; /* no token, but masked */
        double sum = 0;
        int n = 0;
        for (int64_t i = 0; i < b.rows; i++) {
            if (b.target[i] < 0 || (use_mask && !b.mask[i])) continue;
            sum += loss_of_row(&b, i);
            n++;
        }
        assert_true(n > 1 && n < b.rows);
        ht_scope *s = ht_scope_new(test_stream);
        ht_array *mask = use_mask ? mask_of(s, &b) : HT_NONE;
        ht_array *loss = ht_masked_cross_entropy(s, logits_of(s, &b), targets_of(s, &b), mask);
        assert_true(ht_array_n_dims(loss) == 0 && ht_array_dtype(loss) == HT_F32);
        assert_true(fabs((double)read_float(s, loss) - sum / n) < 1e-6);
        ht_scope_free(s);
    }
}

SCOPE_TEST(a_mask_of_numbers_is_broadcast) {
    const batch b = drawn(6, 5);
    const float numbers[] = {0.25f, 0, -3};
    ht_array *logits = ht_reshape(s, logits_of(s, &b), (int64_t[]){2, 3, 5}, 3);
    ht_array *targets = ht_reshape(s, targets_of(s, &b), (int64_t[]){2, 3}, 2);
    ht_array *mask = ht_array_from(s, numbers, HT_F32, (int64_t[]){3}, 1);
    const double expected = loss_of_row(&b, 0) + loss_of_row(&b, 2) + loss_of_row(&b, 3) + loss_of_row(&b, 5);
    const float loss = read_float(s, ht_masked_cross_entropy(s, logits, targets, mask));
    assert_true(fabs((double)loss - expected / 4) < 1e-6);
}

static int masked_loss(ht_scope *s, ht_array *const *in, int n_in, ht_array **out, int max_out, void *user) {
    const batch *b = user;
    (void)n_in, (void)max_out;
    out[0] = ht_masked_cross_entropy(s, in[0], targets_of(s, b), mask_of(s, b));
    return 1;
}

static void read_gradient(ht_scope *s, batch *b, float *loss, float *gradient) {
    const ht_function f = {masked_loss, b};
    ht_array *logits = logits_of(s, b), *out[1], *grad[1];
    assert_int_equal(ht_value_and_grad(s, &f, &logits, 1, (ht_wrt){(int[]){0}, 1}, out, 1, grad), 1);
    *loss = read_float(s, out[0]);
    read_floats(s, grad[0], gradient, b->rows * b->vocab);
}

SCOPE_TEST(where_all_is_masked_loss_and_gradient_are_0) {
    batch b = drawn(6, 5);
    for (int i = 0; i < 6; i++) {
        if (i % 2)
            b.target[i] = -100;
        else
            b.mask[i] = false;
    }
    b.logits[3] = NAN; /* whatever the logits */
    b.logits[9] = INFINITY;
    float loss, gradient[MOST];
    read_gradient(s, &b, &loss, gradient);
    assert_true(loss == 0);
    for (int i = 0; i < 30; i++) assert_true(gradient[i] == 0);
}

SCOPE_TEST(masked_rows_have_no_gradient_and_others_sum_to_0) {
    batch b = drawn(6, 5);
    b.target[0] = -100;
    b.logits[2] = -INFINITY;
    b.logits[5] = NAN; /* of row 1, which is masked */
    float loss, gradient[MOST];
    read_gradient(s, &b, &loss, gradient);
    assert_true(isfinite(loss) && loss > 0);
    for (int row = 0; row < 6; row++) {
        const bool counts = row == 2 || row == 3 || row == 5;
        double sum = 0;
        for (int i = 0; i < 5; i++) {
            sum += (double)gradient[row * 5 + i];
            assert_true(counts ? gradient[row * 5 + i] != 0 : gradient[row * 5 + i] == 0);
        }
        assert_true(fabs(sum) < 1e-6);
    }
}

/* ---- gradients ---- */

static ht_array *some_targets(ht_scope *s) {
    return ht_array_from(s, (int32_t[]){3, -100, 0, 2, 2, 3}, HT_I32, (int64_t[]){2, 3}, 2);
}
static ht_array *cross_entropy(ht_scope *s, ht_array *const *in) { return ht_cross_entropy(s, in[0], some_targets(s)); }
static ht_array *masked_cross_entropy(ht_scope *s, ht_array *const *in) {
    ht_array *mask = ht_array_from(s, (bool[]){true, true, false, true, true, true}, HT_BOOL, (int64_t[]){2, 3}, 2);
    return ht_masked_cross_entropy(s, in[0], some_targets(s), mask);
}
static ht_array *mse(ht_scope *s, ht_array *const *in) { return ht_mse(s, in[0], in[1]); }

UNIT_TEST(gradients_are_those_of_finite_differences) {
    const gradient_input logits = {3, {2, 3, 4}, -2, 2}, matrix = {2, {3, 4}, -1.5, 1.5};
    test_gradient(test_stream, &(gradient_case){"cross_entropy", cross_entropy, 1, {logits}});
    test_gradient(test_stream, &(gradient_case){"masked_cross_entropy", masked_cross_entropy, 1, {logits}});
    test_gradient(test_stream, &(gradient_case){"mse", mse, 2, {matrix, matrix}});
}

/* ---- mean squared error, other sizes, errors ---- */

SCOPE_TEST(mse_is_the_mean_of_squares) {
    const batch b = drawn(2, 50);
    double sum = 0;
    for (int i = 0; i < 50; i++) sum += pow((double)b.logits[i] - (double)b.logits[50 + i], 2);
    ht_array *parts[2];
    assert_true(ht_split_equally(s, logits_of(s, &b), 2, 0, parts));
    assert_true(fabs((double)read_float(s, ht_mse(s, parts[0], parts[1])) - sum / 50) < 1e-5);
    /* in f32, also of f16, which has no 300^2, and of integers */
    ht_array *large = ht_full(s, 300, HT_F16, (int64_t[]){3}, 1), *error = ht_mse(s, large, ht_zeros_like(s, large));
    assert_int_equal(ht_array_dtype(error), HT_F32);
    assert_true(read_float(s, error) == 300 * 300);
    ht_array *seven = ht_full(s, 7, HT_I32, (int64_t[]){2}, 1), *four = ht_full(s, 4, HT_I32, (int64_t[]){2}, 1);
    assert_true(read_float(s, ht_mse(s, seven, four)) == 9);
}

static int all_losses(ht_scope *s, ht_array *const *in, int n_in, ht_array **out, int max_out, void *user) {
    (void)n_in, (void)max_out, (void)user;
    out[0] = ht_cross_entropy(s, in[0], in[1]);
    out[1] = ht_masked_cross_entropy(s, in[0], in[1], in[2]);
    out[2] = ht_masked_cross_entropy(s, in[0], in[1], HT_NONE);
    out[3] = ht_mse(s, in[0], ht_scale(s, in[0], 0.5f));
    return 4;
}

UNIT_TEST(losses_follow_the_sizes_of_a_shapeless_function) {
    const ht_function f = {all_losses, NULL};
    ht_compile_options options;
    ht_compile_options_init(&options, sizeof options);
    options.shapeless = true;
    ht_compiled *compiled;
    assert_works(ht_compile, &f, &options, &compiled);
    for (int64_t rows = 3; rows < 12; rows += 4) {
        const batch b = drawn(rows, rows + 2);
        ht_scope *s = ht_scope_new(test_stream);
        ht_array *in[] = {logits_of(s, &b), targets_of(s, &b), mask_of(s, &b)}, *out[4], *direct[4];
        assert_int_equal(ht_compiled_call(s, compiled, in, 3, out, 4), 4);
        assert_int_equal(all_losses(s, in, 3, direct, 4, NULL), 4);
        expect_losses(&b, s, out[0]);
        for (int i = 1; i < 4; i++) assert_true(read_float(s, out[i]) == read_float(s, direct[i]));
        ht_scope_free(s);
    }
    ht_compiled_free(compiled);
}

UNIT_TEST(what_does_not_fit_is_an_error) {
    batch b = drawn(6, 5);
    ht_scope *s = ht_scope_new(test_stream);
    test_expect_error(s, ht_cross_entropy(s, logits_of(s, &b), ht_zeros(s, HT_I32, (int64_t[]){5}, 1)),
                      "cross_entropy: logits are [6, 5] and targets [5]");
    s = ht_scope_new(test_stream);
    test_expect_error(s, ht_cross_entropy(s, logits_of(s, &b), ht_zeros(s, HT_F32, (int64_t[]){6}, 1)),
                      "cross_entropy: targets are f32, expected integers");
    s = ht_scope_new(test_stream);
    ht_array *mask = ht_ones(s, HT_BOOL, (int64_t[]){5}, 1);
    test_expect_error(s, ht_masked_cross_entropy(s, logits_of(s, &b), targets_of(s, &b), mask), "[5]");
    s = ht_scope_new(test_stream);
    test_expect_error(s, ht_mse(s, logits_of(s, &b), targets_of(s, &b)),
                      "mse: predictions are [6, 5] and targets [6], expected one shape");

    ht_error err = {0};
    float losses[6];
    b.target[4] = 5;
    s = ht_scope_new(test_stream);
    ht_array *failing = ht_cross_entropy(s, logits_of(s, &b), targets_of(s, &b));
    assert_int_equal(ht_array_read(s, failing, losses, sizeof losses, &err), HT_ERR_INDEX);
    ht_scope_free(s);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cross_entropy_is_that_of_each_row),
        cmocka_unit_test(targets_may_be_any_integers_and_rows_have_any_axes),
        cmocka_unit_test(one_row_without_axes_has_a_scalar_loss),
        cmocka_unit_test(large_and_infinite_logits_are_no_trouble),
        cmocka_unit_test(logits_of_bf16_are_summed_in_f32),
        cmocka_unit_test(the_mean_is_over_rows_that_count),
        cmocka_unit_test(a_mask_of_numbers_is_broadcast),
        cmocka_unit_test(where_all_is_masked_loss_and_gradient_are_0),
        cmocka_unit_test(masked_rows_have_no_gradient_and_others_sum_to_0),
        cmocka_unit_test(gradients_are_those_of_finite_differences),
        cmocka_unit_test(mse_is_the_mean_of_squares),
        cmocka_unit_test(losses_follow_the_sizes_of_a_shapeless_function),
        cmocka_unit_test(what_does_not_fit_is_an_error),
    };
    return cmocka_run_group_tests(tests, test_open_stream, test_close_stream);
}
