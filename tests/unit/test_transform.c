/* Transformations: what they give, what they refuse, and what they cost in memory. */
#include "array/array.h"
#include "array/eval_forecast.h"
#include "support/arrays.h"
#include "support/options.h"
#include "support/test.h"

#include <math.h>
#include <string.h>

static float value_of(ht_scope *s, ht_array *a) {
    float v = NAN;
    if (!a) fail_msg("%s", ht_scope_error(s) ? ht_scope_error(s)->message : "no array");
    assert_works(ht_array_read, s, ht_astype(s, a, HT_F32), &v, sizeof v);
    return v;
}

static ht_array *number(ht_scope *s, float v) { return ht_array_from(s, &v, HT_F32, NULL, 0); }

/* x^3, and 2 x beside it */
static int cube(ht_scope *s, ht_array *const *in, int n_in, ht_array **out, int max_out, void *user) {
    (void)n_in, (void)max_out;
    int *calls = user;
    if (calls) ++*calls;
    out[0] = ht_multiply(s, in[0], ht_square(s, in[0]));
    out[1] = ht_scale(s, in[0], 2);
    return 2;
}

SCOPE_TEST(a_function_is_called_once) {
    int calls = 0;
    const ht_function f = {cube, &calls};
    ht_array *x = number(s, 3), *out[2], *grad[1];
    assert_int_equal(ht_value_and_grad(s, &f, &x, 1, (ht_wrt){(int[]){0}, 1}, out, 2, grad), 2);
    assert_int_equal(calls, 1);
    assert_float_equal(value_of(s, out[0]), 27, 0);
    assert_float_equal(value_of(s, out[1]), 6, 0);
    assert_float_equal(value_of(s, grad[0]), 27, 0);
    ht_array *both[2] = {number(s, 1), number(s, 10)};
    assert_true(ht_vjp(s, &f, &x, 1, both, 2, NULL, grad));
    assert_float_equal(value_of(s, grad[0]), 47, 0);
    ht_array *tangent = number(s, 2), *moved[2];
    assert_int_equal(ht_jvp(s, &f, &x, &tangent, 1, out, moved, 2), 2);
    assert_float_equal(value_of(s, moved[0]), 54, 0);
    assert_float_equal(value_of(s, moved[1]), 4, 0);
}

/* The derivative of the function that `user` is. */
static int derivative(ht_scope *s, ht_array *const *in, int n_in, ht_array **out, int max_out, void *user) {
    (void)max_out;
    return ht_grad(s, user, in, n_in, (ht_wrt){(int[]){0}, 1}, out) ? 1 : -1;
}

static int fails(ht_scope *s, ht_array *const *in, int n_in, ht_array **out, int max_out, void *user) {
    (void)out, (void)max_out, (void)n_in;
    if (user) ht_scope_report(s, HT_ERR_UNSUPPORTED, user);
    out[0] = ht_reshape(s, in[0], (int64_t[]){7}, 1);
    return -1;
}

static int gives_three(ht_scope *s, ht_array *const *in, int n_in, ht_array **out, int max_out, void *user) {
    (void)s, (void)n_in, (void)user;
    for (int i = 0; i < max_out && i < 3; i++) out[i] = in[0];
    return 3;
}

static int gives_places(ht_scope *s, ht_array *const *in, int n_in, ht_array **out, int max_out, void *user) {
    (void)n_in, (void)max_out, (void)user;
    out[0] = ht_argmax(s, in[0], NULL, false);
    return 1;
}

static void expect_refusal(const ht_function *f, ht_array *x, ht_scope *s, int room, const char *text) {
    ht_array *out[4], *grad[1];
    assert_int_equal(ht_value_and_grad(s, f, &x, 1, (ht_wrt){(int[]){0}, 1}, out, room, grad), -1);
    assert_null(grad[0]);
    assert_null(out[0]);
    test_expect_error(s, NULL, text);
}

UNIT_TEST(failures_are_the_scopes) {
    ht_function f = {fails, (void *)(uintptr_t) "the user's own words"};
    ht_scope *s = ht_scope_new(test_stream);
    expect_refusal(&f, number(s, 1), s, 4, "the user's own words");
    f.user = NULL;
    s = ht_scope_new(test_stream);
    expect_refusal(&f, number(s, 1), s, 4, "reshape: [] cannot become [7]");
    f.call = gives_three;
    s = ht_scope_new(test_stream);
    expect_refusal(&f, number(s, 1), s, 2, "3 arrays where there is room for 2");
    s = ht_scope_new(test_stream);
    expect_refusal(&f, ht_zeros(s, HT_F32, (int64_t[]){2}, 1), s, 4, "first output is [2] of f32");
    s = ht_scope_new(test_stream);
    expect_refusal(&f, ht_zeros(s, HT_I32, NULL, 0), s, 4, "argument 0 of the function is i32");
    f.call = gives_places;
    s = ht_scope_new(test_stream);
    expect_refusal(&f, ht_zeros(s, HT_F32, (int64_t[]){2}, 1), s, 4, "first output is [] of u32");
    s = ht_scope_new(test_stream);
    f.call = cube;
    ht_array *x = number(s, 1), *cotangent[2] = {number(s, 1), ht_zeros(s, HT_F32, (int64_t[]){2}, 1)}, *grad[1];
    assert_false(ht_vjp(s, &f, &x, 1, cotangent, 2, NULL, grad));
    test_expect_error(s, grad[0], "the gradient of output 1 is [2], expected []");
    s = ht_scope_new(test_stream);
    x = number(s, 1);
    assert_false(ht_grad(s, &f, &x, 1, (ht_wrt){(int[]){1}, 1}, grad));
    test_expect_error(s, grad[0], "there is no argument 1 among the 1");
}

/* ---- gradients of the user's ---- */

typedef struct own_gradient {
    int calls, released;
    bool fail;
} own_gradient;

/* (a b, a + b), with ten times the gradient for a, and none for b. */
static int both_ways(ht_scope *s, ht_array *const *in, int n_in, ht_array **out, int max_out, void *user) {
    (void)n_in, (void)max_out, (void)user;
    out[0] = ht_multiply(s, in[0], in[1]);
    out[1] = ht_add(s, in[0], in[1]);
    return 2;
}
static bool ten_times(ht_scope *s, ht_array *const *in, int n_in, ht_array *const *out, ht_array *const *grad_out,
                      int n_out, ht_array **grad_in, void *user) {
    own_gradient *own = user;
    own->calls++;
    if (own->fail || n_in != 2 || n_out != 2 || !out[0]) {
        ht_scope_report(s, HT_ERR_UNSUPPORTED, "no gradient today");
        return false;
    }
    grad_in[0] = ht_scale(s, ht_add(s, ht_multiply(s, grad_out[0], in[1]), grad_out[1]), 10);
    return true;
}
static void count_release(void *user) { ((own_gradient *)user)->released++; }

static int use_both(ht_scope *s, ht_array *const *in, int n_in, ht_array **out, int max_out, void *user) {
    (void)max_out;
    ht_array *pair[2];
    const ht_function f = {both_ways, NULL};
    const ht_custom_vjp vjp = {ten_times, user, count_release};
    if (ht_custom_function(s, &f, &vjp, in, n_in, pair, 2) != 2) return -1;
    out[0] = ht_add(s, ht_scale(s, pair[0], 3), pair[1]);
    return 1;
}

UNIT_TEST(a_gradient_may_be_the_users) {
    own_gradient own = {0};
    ht_scope *s = ht_scope_new(test_stream);
    const ht_function f = {use_both, &own};
    ht_array *in[2] = {number(s, 2), number(s, 5)}, *out[1], *grad[2], *moved[1];
    assert_int_equal(ht_value_and_grad(s, &f, in, 2, (ht_wrt){(int[]){0, 1}, 2}, out, 1, grad), 1);
    assert_float_equal(value_of(s, out[0]), 37, 0);
    assert_float_equal(value_of(s, grad[0]), 160, 0);
    assert_float_equal(value_of(s, grad[1]), 0, 0);
    assert_int_equal(own.calls, 1);
    ht_array *tangent[2] = {number(s, 1), number(s, 1)};
    assert_int_equal(ht_jvp(s, &f, in, tangent, 2, out, moved, 1), 1);
    assert_float_equal(value_of(s, moved[0]), 160, 0);
    own.fail = true;
    assert_false(ht_grad(s, &f, in, 2, (ht_wrt){(int[]){0}, 1}, grad));
    assert_non_null(strstr(ht_scope_error(s)->message, "no gradient today"));
    ht_scope_free(s);
    assert_int_equal(own.released, 3);
}

/* ---- memory ---- */

enum { LAYERS = 16, WIDTH = 4096, ROUNDS = 8 };

/* A layer whose inside is much larger than its result. */
static int layer(ht_scope *s, ht_array *const *in, int n_in, ht_array **out, int max_out, void *user) {
    (void)n_in, (void)max_out, (void)user;
    ht_array *x = in[0];
    for (int i = 0; i < ROUNDS; i++) x = ht_sin(s, ht_multiply(s, x, in[1]));
    out[0] = x;
    return 1;
}

static int network(ht_scope *s, ht_array *const *in, int n_in, ht_array **out, int max_out, void *user) {
    (void)max_out;
    const ht_function f = {layer, NULL};
    ht_array *x = in[0];
    for (int i = 1; i < n_in; i++) {
        ht_array *pair[2] = {x, in[i]}, *y[1];
        int n = user ? ht_checkpoint(s, &f, pair, 2, y, 1) : layer(s, pair, 2, y, 1, NULL);
        if (n != 1) return -1;
        x = y[0];
    }
    out[0] = ht_sum(s, x, NULL, 0, false);
    return 1;
}

/* Evaluates the gradients; the forecast must cover the peak of memory, which is returned. */
static size_t peak_of(ht_scope *s, const ht_function *f, ht_array *const *in, int n_in, ht_wrt wrt, ht_array **grad) {
    size_t forecast;
    ht_memory_clear_cache(test_device());
    ht_memory_reset_peak(test_device());
    const size_t before = ht_memory_get(test_device()).active_bytes;
    if (!ht_grad(s, f, in, n_in, wrt, grad)) fail_msg("%s", ht_scope_error(s)->message);
    assert_works(ht_eval_forecast, s, grad, wrt.n, &forecast);
    assert_works(ht_array_eval, s, grad, wrt.n);
    const size_t peak = ht_memory_get(test_device()).peak_bytes - before;
    if (peak > forecast) fail_msg("%zu bytes at the peak, %zu in the forecast", peak, forecast);
    return peak;
}

static size_t gradients_and_peak(bool checkpointed, bool backwards, float *grads) {
    ht_scope *s = ht_scope_new(test_stream);
    ht_array *in[LAYERS + 1], *grad[LAYERS + 1];
    int which[LAYERS + 1];
    for (int i = 0; i <= LAYERS; i++) {
        in[i] = ht_full(s, 0.5 + 0.01 * i, HT_F32, (int64_t[]){WIDTH}, 1);
        which[i] = backwards ? LAYERS - i : i;
    }
    assert_works(ht_array_eval, s, in, LAYERS + 1);
    const ht_function f = {network, checkpointed ? in : NULL};
    const size_t peak = peak_of(s, &f, in, LAYERS + 1, (ht_wrt){which, LAYERS + 1}, grad);
    for (int i = 0; i <= LAYERS; i++) grads[which[i]] = value_of(s, ht_sum(s, grad[i], NULL, 0, false));
    ht_scope_free(s);
    return peak;
}

UNIT_TEST(a_checkpoint_saves_memory_and_changes_nothing) {
    float plain[LAYERS + 1], saved[LAYERS + 1];
    for (int backwards = 0; backwards < 2; backwards++) {
        size_t whole = gradients_and_peak(false, backwards, plain), less = gradients_and_peak(true, backwards, saved);
        assert_memory_equal(plain, saved, sizeof plain);
        /* Without it every layer keeps its inside; with it one layer does, and all keep their inputs and gradients. */
        assert_true(whole > (size_t)(LAYERS * ROUNDS) * WIDTH * sizeof(float));
        if (less > whole / 3) fail_msg("%zu bytes at the peak, %zu without checkpoints", less, whole);
    }
}

/* Layers of one input, whose results have different gradients. */
static int parallel_layers(ht_scope *s, ht_array *const *in, int n_in, ht_array **out, int max_out, void *user) {
    (void)max_out, (void)user;
    const ht_function f = {layer, NULL};
    out[0] = ht_full(s, 0, HT_F32, NULL, 0);
    for (int i = 1; i < n_in; i++) {
        ht_array *pair[2] = {in[0], in[i]}, *y;
        if (ht_checkpoint(s, &f, pair, 2, &y, 1) != 1) return -1;
        out[0] = ht_add(s, out[0], ht_sum(s, ht_multiply(s, y, in[i]), NULL, 0, false));
    }
    return 1;
}

SCOPE_TEST(a_checkpoint_does_not_keep_the_gradient_of_its_result) {
    ht_array *in[LAYERS + 1], *grad;
    for (int i = 0; i <= LAYERS; i++) in[i] = ht_full(s, 0.5 + 0.01 * i, HT_F32, (int64_t[]){WIDTH}, 1);
    assert_works(ht_array_eval, s, in, LAYERS + 1);
    const ht_function f = {parallel_layers, NULL};
    const size_t array = WIDTH * sizeof(float), peak = peak_of(s, &f, in, LAYERS + 1, (ht_wrt){(int[]){0}, 1}, &grad);
    /* The inside of one layer and a few gradients, not those of all layers. */
    if (peak > (2 * ROUNDS + 3 * LAYERS / 4) * array) fail_msg("%zu arrays at the peak", peak / array);
}

enum { DEEP = 100000 };

static int deep(ht_scope *s, ht_array *const *in, int n_in, ht_array **out, int max_out, void *user) {
    (void)n_in, (void)max_out, (void)user;
    ht_array *x = in[0];
    for (int i = 0; i < DEEP; i++) x = ht_add(s, x, in[0]);
    out[0] = x;
    return 1;
}

SCOPE_TEST(deep_graphs_are_differentiated_without_recursion) {
    const ht_function f = {deep, NULL};
    ht_array *x = number(s, 1), *grad[1];
    assert_true(ht_grad(s, &f, &x, 1, (ht_wrt){(int[]){0}, 1}, grad));
    assert_float_equal(value_of(s, grad[0]), DEEP + 1, 0);
}

/* ---- compiled functions ---- */

static int call_compiled(ht_scope *s, ht_array *const *in, int n_in, ht_array **out, int max_out, void *user) {
    return ht_compiled_call(s, user, in, n_in, out, max_out);
}

UNIT_TEST(compiling_and_differentiating_go_together) {
    int calls = 0;
    ht_compiled *inner, *outer;
    ht_function f = {cube, &calls}, through = {call_compiled, NULL}, slope = {derivative, &through},
                of_outer = {call_compiled, NULL};
    assert_works(ht_compile, &f, NULL, &inner);
    through.user = inner;
    assert_works(ht_compile, &slope, NULL, &outer); /* compiled(grad(compiled(cube))) */
    of_outer.user = outer;
    for (int i = 1; i < 4; i++) {
        ht_scope *s = ht_scope_new(test_stream);
        ht_array *x = number(s, (float)i), *out[1], *grad[1];
        assert_int_equal(ht_compiled_call(s, outer, &x, 1, out, 1), 1);
        assert_float_equal(value_of(s, out[0]), (float)(3 * i * i), 0);
        assert_true(ht_grad(s, &of_outer, &x, 1, (ht_wrt){(int[]){0}, 1}, grad));
        assert_float_equal(value_of(s, grad[0]), (float)(6 * i), 0);
        ht_scope_free(s);
    }
    assert_int_equal(calls, 1);
    ht_compiled_free(outer);
    ht_compiled_free(inner);
}

static int looks_at_values(ht_scope *s, ht_array *const *in, int n_in, ht_array **out, int max_out, void *user) {
    (void)n_in, (void)max_out, (void)user;
    ht_error err;
    if (!ht_array_eval(s, in, 1, &err)) fail_msg("an argument of a trace was evaluated");
    ht_scope *other = ht_scope_new(test_stream); /* which does not know that it is a trace */
    out[0] = ht_square(s, in[0]);
    ht_status st = ht_array_eval(other, out, 1, &err);
    ht_scope_free(other);
    if (!st) fail_msg("an array of a trace was evaluated");
    ht_scope_report(s, err.status, err.message);
    return -1;
}

UNIT_TEST(a_compiled_function_must_not_look_at_values) {
    ht_compiled *compiled;
    ht_function f = {looks_at_values, NULL};
    assert_works(ht_compile, &f, NULL, &compiled);
    ht_scope *s = ht_scope_new(test_stream);
    ht_array *x = number(s, 1), *out[1];
    assert_int_equal(ht_compiled_call(s, compiled, &x, 1, out, 1), -1);
    test_expect_error(s, out[0], "has no value");
    s = ht_scope_new(test_stream);
    assert_int_equal(ht_compiled_call(s, compiled, (ht_array *[]){HT_NONE}, 1, out, 1), -1);
    test_expect_error(s, out[0], "argument 0 of a compiled function is HT_NONE");
    ht_compiled_free(compiled);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_function_is_called_once),
        cmocka_unit_test(failures_are_the_scopes),
        cmocka_unit_test(a_gradient_may_be_the_users),
        cmocka_unit_test(a_checkpoint_saves_memory_and_changes_nothing),
        cmocka_unit_test(a_checkpoint_does_not_keep_the_gradient_of_its_result),
        cmocka_unit_test(deep_graphs_are_differentiated_without_recursion),
        cmocka_unit_test(compiling_and_differentiating_go_together),
        cmocka_unit_test(a_compiled_function_must_not_look_at_values),
    };
    return cmocka_run_group_tests(tests, test_open_stream, test_close_stream);
}
