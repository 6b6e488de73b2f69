/* Optimisers, clipping and schedules against the formulas of torch and transformers, written here in f64. */
#include "support/arrays.h"
#include "support/test.h"

#include <math.h>
#include <string.h>

enum { N_PARAMS = 4, MOST = 64, STEPS = 20 };

/* Odd shapes: a matrix, a row, a scalar, and three axes. */
typedef struct shape {
    int n_dims, size;
    int64_t dim[3];
} shape;
static const shape shapes[N_PARAMS] = {{2, 21, {3, 7}}, {1, 5, {5}}, {0, 1, {0}}, {3, 24, {2, 3, 4}}};

/* Values of all parameters, or of their gradients or moments. */
typedef struct values {
    float v[N_PARAMS][MOST];
} values;

static values drawn(int salt, float scale) {
    values all;
    for (int i = 0; i < N_PARAMS; i++)
        for (int k = 0; k < MOST; k++)
            all.v[i][k] = scale * sinf(12.9898f * (float)(k + 1) + 78.233f * (float)(i + 5 * salt));
    return all;
}

static ht_scope *new_scope(void) {
    ht_scope *s = ht_scope_new(test_stream);
    assert_non_null(s);
    return s;
}

static void arrays_of(ht_scope *s, const values *all, ht_dtype dtype, ht_array **out) {
    for (int i = 0; i < N_PARAMS; i++)
        out[i] = ht_astype(s, ht_array_from(s, all->v[i], HT_F32, shapes[i].dim, shapes[i].n_dims), dtype);
}

static void read_all(ht_scope *s, ht_array *const *arrays, values *out) {
    for (int i = 0; i < N_PARAMS; i++)
        assert_works(ht_array_read, s, ht_astype(s, arrays[i], HT_F32), out->v[i],
                     (size_t)shapes[i].size * sizeof(float));
}

static ht_optimizer_options options_of(ht_optimizer_kind kind) {
    ht_optimizer_options o;
    ht_optimizer_options_init(&o, sizeof o);
    o.kind = kind;
    return o;
}

static ht_optimizer *new_optimizer(const ht_optimizer_options *options) {
    ht_optimizer *o = NULL;
    assert_works(ht_optimizer_new, options, &o);
    return o;
}

/* One step from *params with the gradients of step `t`; *params are the new ones, read. */
static void take_step(ht_optimizer *o, values *params, ht_dtype dtype, int t, double lr) {
    const values g = drawn(100 + t, 0.3f);
    ht_array *p[N_PARAMS], *grads[N_PARAMS], *made[N_PARAMS];
    ht_scope *s = new_scope();
    arrays_of(s, params, dtype, p);
    arrays_of(s, &g, dtype, grads);
    assert_works(ht_optimizer_step, o, s, p, grads, N_PARAMS, lr, made);
    for (int i = 0; i < N_PARAMS; i++) {
        assert_true(ht_array_is_evaluated(made[i]));
        assert_int_equal(ht_array_dtype(made[i]), dtype);
        assert_int_equal(ht_array_n_dims(made[i]), shapes[i].n_dims);
    }
    read_all(s, made, params);
    ht_scope_free(s);
}

/* ---- the rules, as torch documents them ---- */

typedef struct element {
    double p, m, v;
} element;

static void torch_adamw(const ht_optimizer_options *o, double decay, element *e, double g, int t, double lr) {
    e->p *= 1 - lr * decay;
    e->m = o->beta1 * e->m + (1 - o->beta1) * g;
    e->v = o->beta2 * e->v + (1 - o->beta2) * g * g;
    const double size = sqrt(e->v) / sqrt(1 - pow(o->beta2, t)) + o->eps;
    e->p -= lr / (1 - pow(o->beta1, t)) * e->m / size;
}

static void torch_sgd(const ht_optimizer_options *o, double decay, element *e, double g, int t, double lr) {
    g += decay * e->p;
    e->m = t > 1 ? o->momentum * e->m + g : g;
    e->p -= lr * e->m;
}

typedef void torch_rule(const ht_optimizer_options *o, double decay, element *e, double g, int t, double lr);

/* STEPS steps with rates that change, against a rule in f64. */
static void expect_rule(const ht_optimizer_options *options, double decay, torch_rule *rule) {
    ht_optimizer *o = new_optimizer(options);
    values params = drawn(1, 2);
    element exact[N_PARAMS][MOST];
    for (int i = 0; i < N_PARAMS; i++)
        for (int k = 0; k < MOST; k++) exact[i][k] = (element){.p = (double)params.v[i][k]};
    for (int t = 1; t <= STEPS; t++) {
        const double lr = 0.02 * t / (double)STEPS;
        const values g = drawn(100 + t, 0.3f);
        take_step(o, &params, HT_F32, t, lr);
        for (int i = 0; i < N_PARAMS; i++) {
            for (int k = 0; k < shapes[i].size; k++) {
                rule(options, decay, &exact[i][k], (double)g.v[i][k], t, lr);
                const double off = fabs((double)params.v[i][k] - exact[i][k].p);
                assert_true(off <= 2e-7 * t * (1 + fabs(exact[i][k].p)));
            }
        }
    }
    ht_optimizer_free(o);
}

UNIT_TEST(adamw_is_that_of_torch) {
    ht_optimizer_options o = options_of(HT_OPTIMIZER_ADAMW);
    expect_rule(&o, 0.01, torch_adamw); /* the default */
    o.weight_decay = 0;
    expect_rule(&o, 0, torch_adamw);
    o = (ht_optimizer_options){o.size, HT_OPTIMIZER_ADAMW, 0.8, 0.95, 1e-3, 0, 0.2};
    expect_rule(&o, 0.2, torch_adamw);
    o.beta1 = o.beta2 = 0;
    expect_rule(&o, 0.2, torch_adamw);
}

UNIT_TEST(sgd_is_that_of_torch) {
    ht_optimizer_options o = options_of(HT_OPTIMIZER_SGD);
    expect_rule(&o, 0, torch_sgd); /* the defaults */
    o.weight_decay = 0.1;
    expect_rule(&o, 0.1, torch_sgd);
    o.momentum = 0.9;
    expect_rule(&o, 0.1, torch_sgd);
    o.weight_decay = 0;
    expect_rule(&o, 0, torch_sgd);
}

UNIT_TEST(a_decay_that_f32_cannot_write_is_not_lost) {
    const double lr = 1e-5, decay = 0.01; /* 1 - 1e-7 would be 1 - 1.19e-7 */
    ht_optimizer *o = new_optimizer(NULL);
    double worst = 0;
    enum { N = 4096 };
    static float p[N], g[N], made[N];
    for (int i = 0; i < N; i++) p[i] = 1 + (float)i / (float)N, g[i] = 0;
    ht_scope *s = new_scope();
    ht_array *params[1] = {ht_array_from(s, p, HT_F32, (int64_t[]){N}, 1)}, *out[1];
    ht_array *grads[1] = {ht_array_from(s, g, HT_F32, (int64_t[]){N}, 1)};
    assert_works(ht_optimizer_step, o, s, params, grads, 1, lr, out);
    assert_works(ht_array_read, s, out[0], made, sizeof made);
    for (int i = 0; i < N; i++) {
        const double off = (double)made[i] - (double)p[i] * (1 - lr * decay);
        worst = fmax(worst, fabs(off));
    }
    assert_true(worst <= 0.6e-7); /* half of the last bit of numbers from 1 to 2 */
    ht_scope_free(s);
    ht_optimizer_free(o);
}

/* The bits of bf16, of the nearest value, and of the even one of two. */
static float rounded_to_bf16(float x) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    bits += 0x7fff + ((bits >> 16) & 1);
    bits &= 0xffff0000u;
    memcpy(&x, &bits, sizeof x);
    return x;
}

UNIT_TEST(narrow_parameters_are_stepped_in_f32_and_rounded_once) {
    for (int kind = 0; kind < 2; kind++) {
        ht_optimizer_options options = options_of((ht_optimizer_kind)kind);
        options.momentum = 0.9;
        ht_optimizer *narrow = new_optimizer(&options), *wide = new_optimizer(&options);
        values params = drawn(2, 2);
        for (int i = 0; i < N_PARAMS; i++)
            for (int k = 0; k < MOST; k++) params.v[i][k] = rounded_to_bf16(params.v[i][k]);
        int changed = 0;
        for (int t = 1; t <= STEPS; t++) {
            const values before = params, g = drawn(100 + t, 0.3f);
            ht_array *p[N_PARAMS], *grads[N_PARAMS], *made[N_PARAMS];
            values exact;
            ht_scope *s = new_scope();
            arrays_of(s, &params, HT_F32, p);
            arrays_of(s, &g, HT_BF16, grads);
            assert_works(ht_optimizer_step, wide, s, p, grads, N_PARAMS, 0.02, made);
            read_all(s, made, &exact);
            ht_scope_free(s);
            take_step(narrow, &params, HT_BF16, t, 0.02);
            for (int i = 0; i < N_PARAMS; i++) {
                for (int k = 0; k < shapes[i].size; k++) {
                    assert_true(params.v[i][k] == rounded_to_bf16(exact.v[i][k]));
                    changed += params.v[i][k] != before.v[i][k];
                }
            }
        }
        assert_true(changed > STEPS * 10);
        ht_optimizer_free(narrow);
        ht_optimizer_free(wide);
    }
}

/* ---- state ---- */

static void copied_state(ht_optimizer *from, ht_optimizer *to) {
    ht_array *const *moments, *copies[2 * N_PARAMS];
    int64_t step;
    const int n = ht_optimizer_state(from, &step, &moments);
    assert_true(n <= 2 * N_PARAMS);
    ht_scope *s = new_scope();
    for (int i = 0; i < n; i++) {
        float bytes[MOST];
        const shape *of = &shapes[i % N_PARAMS];
        assert_int_equal(ht_array_dtype(moments[i]), HT_F32);
        assert_int_equal(ht_array_size(moments[i]), of->size);
        assert_works(ht_array_read, s, moments[i], bytes, (size_t)of->size * sizeof *bytes);
        copies[i] = ht_array_from(s, bytes, HT_F32, of->dim, of->n_dims);
    }
    assert_works(ht_optimizer_set_state, to, s, step, copies, n);
    ht_scope_free(s);
}

UNIT_TEST(a_restored_state_gives_the_same_bits) {
    const double momentum[] = {0, 0, 0.9};
    const int expected[] = {2 * N_PARAMS, 0, N_PARAMS};
    for (int c = 0; c < 3; c++) {
        ht_optimizer_options options = options_of(c ? HT_OPTIMIZER_SGD : HT_OPTIMIZER_ADAMW);
        options.momentum = momentum[c];
        ht_optimizer *first = new_optimizer(&options), *second = new_optimizer(&options);
        ht_array *const *moments;
        int64_t step;
        assert_int_equal(ht_optimizer_state(first, &step, &moments), 0);
        assert_int_equal(step, 0);
        copied_state(first, second); /* one before the first step, too */
        values params = drawn(3, 2);
        for (int t = 1; t <= 7; t++) take_step(first, &params, HT_F32, t, 0.01);
        take_step(second, &(values){0}, HT_F32, 1, 0.01); /* forgotten by the state that replaces its own */
        assert_int_equal(ht_optimizer_state(first, &step, &moments), expected[c]);
        assert_int_equal(step, 7);
        copied_state(first, second);
        values again = params;
        for (int t = 8; t <= 12; t++) {
            take_step(first, &params, HT_F32, t, 0.01);
            take_step(second, &again, HT_F32, t, 0.01);
            for (int i = 0; i < N_PARAMS; i++)
                assert_memory_equal(params.v[i], again.v[i], (size_t)shapes[i].size * sizeof(float));
        }
        ht_optimizer_free(first);
        ht_optimizer_free(second);
    }
}

static void expect_state(ht_optimizer *o, int64_t step, int n_moments) {
    ht_array *const *moments;
    int64_t found;
    assert_int_equal(ht_optimizer_state(o, &found, &moments), n_moments);
    assert_int_equal(found, step);
}

UNIT_TEST(states_of_another_kind_are_refused) {
    ht_optimizer *adamw = new_optimizer(NULL);
    const ht_optimizer_options plain = options_of(HT_OPTIMIZER_SGD);
    ht_optimizer *sgd = new_optimizer(&plain);
    ht_scope *s = new_scope();
    ht_array *one = ht_ones(s, HT_F32, (int64_t[]){3}, 1), *two = ht_ones(s, HT_F32, (int64_t[]){2}, 1);
    ht_array *half = ht_ones(s, HT_F16, (int64_t[]){3}, 1);
    assert_fails(HT_ERR_ARGUMENT, "the state has 3 moments, expected 2 for each parameter", ht_optimizer_set_state,
                 adamw, s, 4, (ht_array *[]){one, one, one}, 3);
    assert_fails(HT_ERR_ARGUMENT, "moments 1 and 0 of the state differ in shape", ht_optimizer_set_state, adamw, s, 4,
                 (ht_array *[]){one, two}, 2);
    assert_fails(HT_ERR_ARGUMENT, "", ht_optimizer_set_state, adamw, s, 4, (ht_array *[]){one, half}, 2);
    assert_fails(HT_ERR_ARGUMENT, "", ht_optimizer_set_state, adamw, s, 4, (ht_array *[]){one, HT_NONE}, 2);
    assert_fails(HT_ERR_ARGUMENT, "moment 0 of the state is no array of f32", ht_optimizer_set_state, adamw, s, 4,
                 (ht_array *[]){NULL, one}, 2);
    assert_fails(HT_ERR_ARGUMENT, "", ht_optimizer_set_state, adamw, s, -1, NULL, 0);
    assert_fails(HT_ERR_ARGUMENT, "", ht_optimizer_set_state, adamw, s, 0, (ht_array *[]){one, one}, 2);
    assert_fails(HT_ERR_ARGUMENT, "", ht_optimizer_set_state, adamw, s, 9, NULL, 0);
    assert_fails(HT_ERR_ARGUMENT, "", ht_optimizer_set_state, sgd, s, 4, &one, 1);
    expect_state(adamw, 0, 0);
    expect_state(sgd, 0, 0);
    assert_works(ht_optimizer_set_state, sgd, s, 4, NULL, 0);
    expect_state(sgd, 4, 0);
    ht_scope_free(s);
    ht_optimizer_free(adamw);
    ht_optimizer_free(sgd);
}

/* ---- errors of options and steps ---- */

UNIT_TEST(options_out_of_range_are_refused) {
    struct {
        double beta1, beta2, eps, momentum, weight_decay;
        const char *text;
    } wrong[] = {
        {1, 0.9, 0, 0, 0, "beta1 is 1, expected 0 to below 1"},
        {0.9, -0.5, 0, 0, 0, "beta2 is -0.5"},
        {0.9, 0.9, -1, 0, 0, "eps is -1"},
        {0.9, 0.9, 0, (double)NAN, 0, "momentum is"},
        {0.9, 0.9, 0, (double)INFINITY, 0, "momentum is inf"},
        {0.9, 0.9, 0, 0, -0.1, "weight_decay is -0.1"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        ht_optimizer_options o = options_of(HT_OPTIMIZER_ADAMW);
        o.beta1 = wrong[i].beta1, o.beta2 = wrong[i].beta2, o.eps = wrong[i].eps;
        o.momentum = wrong[i].momentum, o.weight_decay = wrong[i].weight_decay;
        ht_optimizer *made = (ht_optimizer *)&o;
        assert_fails(HT_ERR_ARGUMENT, wrong[i].text, ht_optimizer_new, &o, &made);
        assert_null(made);
    }
    ht_optimizer_options o = options_of((ht_optimizer_kind)7);
    ht_optimizer *made;
    assert_fails(HT_ERR_ARGUMENT, "", ht_optimizer_new, &o, &made);
    ht_optimizer_free(NULL);
}

static void expect_no_step(ht_optimizer *o, ht_scope *s, ht_array **params, ht_array **grads, int n, double lr,
                           const char *text) {
    ht_array *made[N_PARAMS];
    ht_error err = {0};
    assert_true(ht_optimizer_step(o, s, params, grads, n, lr, made, &err) != HT_OK);
    for (int i = 0; i < n; i++) assert_null(made[i]);
    if (!strstr(err.message, text)) fail_msg("%s", err.message);
}

UNIT_TEST(a_step_that_fails_changes_nothing) {
    ht_optimizer *o = new_optimizer(NULL);
    values params = drawn(5, 1);
    take_step(o, &params, HT_F32, 1, 0.01);
    ht_array *p[N_PARAMS], *g[N_PARAMS], *good;
    ht_scope *s = new_scope();
    arrays_of(s, &params, HT_F32, p);
    arrays_of(s, &params, HT_F32, g);
    expect_no_step(o, s, p, g, N_PARAMS, (double)NAN, "the learning rate is");
    expect_no_step(o, s, p, g, N_PARAMS, -0.5, "the learning rate is -0.5");
    expect_no_step(o, s, p, g, N_PARAMS, (double)INFINITY, "the learning rate is inf");
    expect_no_step(o, s, p, g, 0, 0.1, "0 parameters");
    expect_no_step(o, s, p, g, 3, 0.1, "3 parameters, but the moments are of 4");
    good = p[1], p[1] = g[1] = p[0];
    expect_no_step(o, s, p, g, N_PARAMS, 0.1, "parameter 1 is [3, 7], but the moments are of one that is [5]");
    p[1] = good;
    expect_no_step(o, s, p, g, N_PARAMS, 0.1, "parameter 1 is [5] and its gradient [3, 7]");
    g[1] = HT_NONE;
    expect_no_step(o, s, p, g, N_PARAMS, 0.1, "gradient 1 is absent");
    g[1] = ht_astype(s, good, HT_I32);
    expect_no_step(o, s, p, g, N_PARAMS, 0.1, "gradient 1 is i32, expected floating point");
    g[1] = good, p[1] = ht_astype(s, good, HT_F64);
    expect_no_step(o, s, p, g, N_PARAMS, 0.1, "parameter 1 is f64, expected f32, bf16 or f16");
    p[1] = good;
    /* one that fails when it is evaluated, and one that failed already */
    g[1] = ht_take(s, good, ht_full(s, 99, HT_I32, (int64_t[]){5}, 1), 0);
    expect_no_step(o, s, p, g, N_PARAMS, 0.1, "99");
    g[1] = ht_add(s, p[0], p[1]);
    expect_no_step(o, s, p, g, N_PARAMS, 0.1, "[3, 7]");
    ht_scope_free(s);
    expect_state(o, 1, 2 * N_PARAMS);

    ht_optimizer *other = new_optimizer(NULL);
    values again = drawn(5, 1);
    take_step(other, &again, HT_F32, 1, 0.01);
    take_step(other, &again, HT_F32, 2, 0.01);
    take_step(o, &params, HT_F32, 2, 0.01);
    for (int i = 0; i < N_PARAMS; i++)
        assert_memory_equal(params.v[i], again.v[i], (size_t)shapes[i].size * sizeof(float));
    ht_optimizer_free(o);
    ht_optimizer_free(other);
}

/* ---- clipping ---- */

static double norm_of(const values *g) {
    double sum = 0;
    for (int i = 0; i < N_PARAMS; i++)
        for (int k = 0; k < shapes[i].size; k++) sum += (double)g->v[i][k] * (double)g->v[i][k];
    return sqrt(sum);
}

static float clip(values *g, ht_dtype dtype, double max_norm, values *clipped) {
    ht_scope *s = new_scope();
    ht_array *grads[N_PARAMS], *norm;
    float found;
    arrays_of(s, g, dtype, grads);
    read_all(s, grads, g); /* in the dtype's values */
    assert_true(ht_clip_grad_norm(s, grads, N_PARAMS, max_norm, grads, &norm));
    for (int i = 0; i < N_PARAMS; i++) assert_int_equal(ht_array_dtype(grads[i]), dtype);
    assert_true(ht_array_dtype(norm) == HT_F32 && ht_array_n_dims(norm) == 0);
    read_all(s, grads, clipped);
    assert_works(ht_array_read, s, norm, &found, sizeof found);
    ht_scope_free(s);
    return found;
}

UNIT_TEST(clipping_is_that_of_torch) {
    const double limits[] = {0, 1e-3, 1, 5, 1e6, (double)INFINITY};
    const ht_dtype dtypes[] = {HT_F32, HT_BF16};
    for (int c = 0; c < 12; c++) {
        values g = drawn(6, 0.5f), clipped;
        const ht_dtype dtype = dtypes[c / 6];
        const float norm = clip(&g, dtype, limits[c % 6], &clipped);
        const double exact = norm_of(&g), factor = fmin(1, limits[c % 6] / (exact + 1e-6));
        assert_true(fabs((double)norm - exact) <= 2e-7 * exact);
        for (int i = 0; i < N_PARAMS; i++) {
            for (int k = 0; k < shapes[i].size; k++) {
                const double expected = (double)g.v[i][k] * factor, off = (double)clipped.v[i][k] - expected;
                if (factor == 1)
                    assert_true(clipped.v[i][k] == g.v[i][k]);
                else
                    assert_true(fabs(off) <= (dtype == HT_F32 ? 3e-7 : 1.001 / 256) * fabs(expected));
            }
        }
    }
}

UNIT_TEST(a_norm_that_is_not_finite_is_said) {
    const float wrong[] = {NAN, INFINITY, -INFINITY};
    for (int c = 0; c < 3; c++) {
        values g = drawn(7, 0.5f), clipped;
        g.v[3][11] = wrong[c];
        const float norm = clip(&g, HT_F32, 1, &clipped);
        assert_true(isnan(norm) || isinf(norm));
    }
}

UNIT_TEST(clipping_of_nothing_has_a_norm_of_0) {
    ht_scope *s = new_scope();
    ht_array *norm = NULL, *out[1];
    float found;
    assert_true(ht_clip_grad_norm(s, NULL, 0, 1, NULL, &norm));
    assert_works(ht_array_read, s, norm, &found, sizeof found);
    assert_true(found == 0);
    ht_array *grads[1] = {ht_ones(s, HT_I32, (int64_t[]){2}, 1)};
    assert_false(ht_clip_grad_norm(s, grads, 1, 1, out, &norm));
    assert_true(!out[0] && !norm);
    test_expect_error(s, norm, "clip_grad_norm: a gradient is i32");
    s = new_scope();
    grads[0] = ht_ones(s, HT_F32, (int64_t[]){2}, 1);
    assert_false(ht_clip_grad_norm(s, grads, 1, -1, out, &norm));
    test_expect_error(s, norm, "clip_grad_norm: max_norm is -1");
}

/* ---- schedules ---- */

/* As transformers writes them. */
static double transformers(ht_schedule_kind kind, double step, double warmup, double total) {
    if (step < warmup) return step / fmax(1, warmup);
    const double rest = fmax(1, total - warmup);
    switch (kind) {
    case HT_SCHEDULE_LINEAR: return fmax(0, (total - step) / rest);
    case HT_SCHEDULE_COSINE: return fmax(0, 0.5 * (1 + cos(3.14159265358979323846 * 0.5 * 2 * (step - warmup) / rest)));
    default: return 1;
    }
}

UNIT_TEST(schedules_are_those_of_transformers) {
    const int64_t lengths[][2] = {{0, 10}, {3, 10}, {10, 10}, {1, 1000}, {0, 1}};
    for (int kind = 0; kind < 3; kind++) {
        for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
            ht_schedule c;
            ht_schedule_init(&c, sizeof c);
            assert_true(c.learning_rate == 1e-5 && c.kind == HT_SCHEDULE_CONSTANT);
            c.kind = (ht_schedule_kind)kind;
            c.learning_rate = 3e-4;
            c.warmup_steps = lengths[i][0];
            c.total_steps = lengths[i][1];
            for (int64_t k = 0; k < c.total_steps; k++) {
                const double factor = transformers(c.kind, (double)k, (double)c.warmup_steps, (double)c.total_steps);
                assert_true(fabs(ht_schedule_lr(&c, k) - 3e-4 * factor) <= 1e-15 * 3e-4);
            }
            for (int64_t k = c.total_steps; k < c.total_steps + 5; k++)
                assert_true(ht_schedule_lr(&c, k) == (kind ? 0 : 3e-4));
        }
    }
}

UNIT_TEST(a_schedule_that_makes_no_sense_is_nan) {
    ht_schedule c;
    ht_schedule_init(&c, sizeof c);
    assert_true(ht_schedule_lr(&c, 5) == 1e-5);
    assert_true(isnan(ht_schedule_lr(&c, -1)));
    c.warmup_steps = -1;
    assert_true(isnan(ht_schedule_lr(&c, 0)));
    c.warmup_steps = 0, c.learning_rate = -1;
    assert_true(isnan(ht_schedule_lr(&c, 0)));
    c.learning_rate = 1, c.kind = (ht_schedule_kind)9;
    assert_true(isnan(ht_schedule_lr(&c, 0)));
    c.kind = HT_SCHEDULE_LINEAR, c.size = 3;
    assert_true(isnan(ht_schedule_lr(&c, 0)));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(adamw_is_that_of_torch),
        cmocka_unit_test(sgd_is_that_of_torch),
        cmocka_unit_test(a_decay_that_f32_cannot_write_is_not_lost),
        cmocka_unit_test(narrow_parameters_are_stepped_in_f32_and_rounded_once),
        cmocka_unit_test(a_restored_state_gives_the_same_bits),
        cmocka_unit_test(states_of_another_kind_are_refused),
        cmocka_unit_test(options_out_of_range_are_refused),
        cmocka_unit_test(a_step_that_fails_changes_nothing),
        cmocka_unit_test(clipping_is_that_of_torch),
        cmocka_unit_test(a_norm_that_is_not_finite_is_said),
        cmocka_unit_test(clipping_of_nothing_has_a_norm_of_0),
        cmocka_unit_test(schedules_are_those_of_transformers),
        cmocka_unit_test(a_schedule_that_makes_no_sense_is_nan),
    };
    return cmocka_run_group_tests(tests, test_open_stream, test_close_stream);
}
