/* Optimizers: AdamW and SGD, compiled as one function of all parameters; gradient clipping and schedules. */
#include "array/differentiate.h"
#include "array/op.h"
#include "base/dtype.h"
#include "base/error.h"
#include "base/options.h"
#include "base/plural.h"
#include "train/trainer.h"

#include <hearth/ops.h>
#include <hearth/optimizer.h>
#include <hearth/transform.h>

#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_MOMENTS = 2, MOST_PARAMS = INT_MAX / 8 };

/* Scalars that change from step to step; arguments of the compiled function. */
enum { RATE, DECAY, ROOT, EPS, N_FACTORS };

struct ht_optimizer {
    ht_optimizer_options options; /* weight_decay is not negative */
    int moments_each;             /* moments of one parameter */
    ht_compiled *compiled;        /* update_all */
    int64_t n_steps;
    int n_moments;
    ht_array **moments; /* [n_moments], retained: all first moments, then all second moments */
};

/* ---- options ---- */

static const ht_optimizer_options defaults = {
    .size = sizeof defaults, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8, .weight_decay = -1};

void ht_optimizer_options_init(ht_optimizer_options *options, size_t size) {
    ht_options_init(options, size, &defaults, sizeof defaults);
}

static ht_status check_number(const char *name, double value, double below, ht_error *err) {
    if (value >= 0 && value < below) return HT_OK;
    if (below <= 1) return ht_fail(err, HT_ERR_ARGUMENT, "optimizer: %s is %g, expected 0 to below 1", name, value);
    return ht_fail(err, HT_ERR_ARGUMENT, "optimizer: %s is %g, expected a finite number, 0 or more", name, value);
}

static ht_status read_options(const ht_optimizer_options *given, ht_optimizer_options *o, ht_error *err) {
    const double any = (double)INFINITY;
    ht_status st = ht_options_read(o, given, &defaults, sizeof defaults, "ht_optimizer_options", err);
    if (st) return st;
    if (o->kind != HT_OPTIMIZER_ADAMW && o->kind != HT_OPTIMIZER_SGD)
        return ht_fail(err, HT_ERR_ARGUMENT, "optimizer: there is no kind %d", (int)o->kind);
    const double usual = o->kind == HT_OPTIMIZER_ADAMW ? 0.01 : 0;
    if (o->weight_decay == defaults.weight_decay) o->weight_decay = usual;
    st = check_number("beta1", o->beta1, 1, err);
    if (!st) st = check_number("beta2", o->beta2, 1, err);
    if (!st) st = check_number("eps", o->eps, any, err);
    if (!st) st = check_number("momentum", o->momentum, any, err);
    if (!st) st = check_number("weight_decay", o->weight_decay, any, err);
    return st;
}

/* ---- rules: of one parameter and its gradient, in f32; moment[] are replaced by the new ones ---- */

/* Adds the decay to the step before rounding p: in f32, rounding 1 - 1e-7 alone changes the decay by a third. */
static ht_array *adamw(ht_scope *s, const ht_optimizer_options *o, ht_array *const *factor, ht_array *p, ht_array *g,
                       ht_array **moment) {
    ht_array *m = ht_add(s, ht_scale(s, moment[0], (float)o->beta1), ht_scale(s, g, (float)(1 - o->beta1)));
    ht_array *squares = ht_scale(s, ht_square(s, g), (float)(1 - o->beta2));
    ht_array *v = ht_add(s, ht_scale(s, moment[1], (float)o->beta2), squares);
    ht_array *size = ht_add(s, ht_multiply(s, ht_sqrt(s, v), factor[ROOT]), factor[EPS]);
    ht_array *change = ht_divide(s, ht_multiply(s, m, factor[RATE]), size);
    if (o->weight_decay > 0) change = ht_add(s, change, ht_multiply(s, p, factor[DECAY]));
    moment[0] = m;
    moment[1] = v;
    return ht_subtract(s, p, change);
}

static ht_array *sgd(ht_scope *s, const ht_optimizer_options *o, ht_array *const *factor, ht_array *p, ht_array *g,
                     ht_array **moment) {
    if (o->weight_decay > 0) g = ht_add(s, g, ht_scale(s, p, (float)o->weight_decay));
    if (o->momentum > 0) moment[0] = g = ht_add(s, ht_scale(s, moment[0], (float)o->momentum), g);
    return ht_subtract(s, p, ht_multiply(s, g, factor[RATE]));
}

/* The factors of step t, from 1. */
static void factors_of(ht_scope *s, const ht_optimizer_options *o, double lr, int64_t t, ht_array **factor) {
    const double bias1 = 1 - pow(o->beta1, (double)t), bias2 = 1 - pow(o->beta2, (double)t);
    const bool is_adamw = o->kind == HT_OPTIMIZER_ADAMW;
    const double value[N_FACTORS] = {is_adamw ? lr / bias1 : lr, lr * o->weight_decay, 1 / sqrt(bias2), o->eps};
    for (int i = 0; i < N_FACTORS; i++) factor[i] = ht_full(s, value[i], HT_F32, NULL, 0);
}

/* in: factors, n parameters, n gradients, moments of one kind after the other; out: n parameters, moments. */
static int update_all(ht_scope *s, ht_array *const *in, int n_in, ht_array **out, int max_out, void *user) {
    const ht_optimizer *o = user;
    const int n = (n_in - N_FACTORS) / (2 + o->moments_each);
    ht_array *const *params = in + N_FACTORS, *const *grads = params + n, *const *moments = grads + n;
    (void)max_out;
    for (int i = 0; i < n; i++) {
        ht_array *moment[MOST_MOMENTS] = {NULL};
        for (int k = 0; k < o->moments_each; k++) moment[k] = moments[k * n + i];
        ht_array *p = ht_astype(s, params[i], HT_F32), *g = ht_astype(s, grads[i], HT_F32);
        p = (o->options.kind == HT_OPTIMIZER_ADAMW ? adamw : sgd)(s, &o->options, in, p, g, moment);
        out[i] = ht_astype(s, p, params[i]->dtype);
        for (int k = 0; k < o->moments_each; k++) out[(k + 1) * n + i] = moment[k];
        if (!out[i]) return -1;
    }
    return n * (1 + o->moments_each);
}

/* ---- life ---- */

ht_status ht_optimizer_new(const ht_optimizer_options *options, ht_optimizer **out, ht_error *err) {
    ht_optimizer_options read;
    *out = NULL;
    ht_status st = read_options(options, &read, err);
    if (st) return st;
    ht_optimizer *o = calloc(1, sizeof *o);
    if (!o) return ht_fail_memory(err, sizeof *o, "an optimiser");
    o->options = read;
    o->moments_each = read.kind == HT_OPTIMIZER_ADAMW ? 2 : read.momentum > 0;
    const ht_function f = {update_all, o};
    st = ht_compile(&f, NULL, &o->compiled, err);
    if (st)
        ht_optimizer_free(o);
    else
        *out = o;
    return st;
}

const ht_optimizer_options *ht_optimizer_get_options(const ht_optimizer *o) { return &o->options; }

/* Releases the moments and retains n new ones; takes ownership of the allocated list `moments`. */
static void replace_moments(ht_optimizer *o, ht_array **moments, int n) {
    for (int i = 0; i < o->n_moments; i++) ht_array_free(o->moments[i]);
    free(o->moments);
    o->moments = moments;
    o->n_moments = n;
}

void ht_optimizer_free(ht_optimizer *o) {
    if (!o) return;
    replace_moments(o, NULL, 0);
    ht_compiled_free(o->compiled);
    free(o);
}

/* ---- a step ---- */

static bool is_narrow(ht_dtype dtype) { return dtype == HT_F32 || dtype == HT_BF16 || dtype == HT_F16; }

static ht_status check_param(const ht_optimizer *o, ht_array *const *params, ht_array *const *grads, int i,
                             ht_error *err) {
    const ht_array *p = params[i], *g = grads[i], *m = o->n_moments ? o->moments[i] : p;
    char a[HT_SHAPE_TEXT], b[HT_SHAPE_TEXT];
    if (p == HT_NONE || g == HT_NONE)
        return ht_fail(err, HT_ERR_ARGUMENT, "optimizer: %s %d is absent", p == HT_NONE ? "parameter" : "gradient", i);
    if (!is_narrow(p->dtype))
        return ht_fail(err, HT_ERR_ARGUMENT, "optimizer: parameter %d is %s, expected f32, bf16 or f16", i,
                       ht_dtype_name(p->dtype));
    if (!ht_dtype_is_float(g->dtype))
        return ht_fail(err, HT_ERR_ARGUMENT, "optimizer: gradient %d is %s, expected floating point", i,
                       ht_dtype_name(g->dtype));
    if (!ht_same_shape(p, g))
        return ht_fail(err, HT_ERR_ARGUMENT, "optimizer: parameter %d is %s and its gradient %s, expected one shape", i,
                       ht_shape_text(p->shape, p->n_dims, a), ht_shape_text(g->shape, g->n_dims, b));
    if (!ht_same_shape(p, m))
        return ht_fail(err, HT_ERR_ARGUMENT,
                       "optimizer: parameter %d is %s, but the moments are of one that is %s: every step has the same "
                       "parameters in the same order",
                       i, ht_shape_text(p->shape, p->n_dims, a), ht_shape_text(m->shape, m->n_dims, b));
    return HT_OK;
}

static ht_status check_step(const ht_optimizer *o, ht_scope *s, ht_array *const *params, ht_array *const *grads, int n,
                            double lr, ht_error *err) {
    if (!(lr >= 0) || isinf(lr))
        return ht_fail(err, HT_ERR_ARGUMENT, "optimizer: the learning rate is %g, expected a finite number, 0 or more",
                       lr);
    if (n < 1 || n > MOST_PARAMS)
        return ht_fail(err, HT_ERR_ARGUMENT, "optimizer: %d parameters, expected 1 to %d", n, (int)MOST_PARAMS);
    if (o->n_moments && o->n_moments != n * o->moments_each)
        return ht_fail(err, HT_ERR_ARGUMENT, "optimizer: %d parameter%s, but the moments are of %d", n, ht_plural(n),
                       o->n_moments / o->moments_each);
    ht_status st = HT_OK;
    for (int i = 0; i < n && !st; i++) {
        if (!params[i] || !grads[i]) /* the result of an operation that failed */
            return ht_array_eval(s, (ht_array *[]){params[i], grads[i]}, 2, err);
        st = check_param(o, params, grads, i, err);
    }
    return st;
}

/* Applies the compiled function: fills out[0 .. n * (1 + moments_each)), of the scope. */
static ht_status apply(ht_optimizer *o, ht_scope *s, ht_array *const *params, ht_array *const *grads, int n, double lr,
                       ht_array **out, ht_error *err) {
    const int n_moments = n * o->moments_each, n_in = N_FACTORS + 2 * n + n_moments, n_out = n + n_moments;
    ht_array **in = ht_array_list(s, n_in);
    if (!in) return ht_fail_memory(err, (size_t)n_in * sizeof *in, "a step of an optimiser");
    ht_array **moments = in + N_FACTORS + 2 * n;
    factors_of(s, &o->options, lr, o->n_steps + 1, in);
    memcpy(in + N_FACTORS, params, (size_t)n * sizeof *in);
    memcpy(in + N_FACTORS + n, grads, (size_t)n * sizeof *in);
    for (int i = 0; i < n_moments; i++)
        moments[i] = o->n_moments ? o->moments[i] : ht_zeros(s, HT_F32, params[i % n]->shape, params[i % n]->n_dims);
    ht_compiled_call(s, o->compiled, in, n_in, out, n_out);
    ht_status st = ht_array_eval(s, out, n_out, err);
    for (int i = 0; i < N_FACTORS; i++) ht_scope_drop(s, in[i]);
    for (int i = 0; i < n_moments && !o->n_moments; i++) ht_scope_drop(s, moments[i]);
    free(in);
    return st;
}

ht_status ht_optimizer_step(ht_optimizer *o, ht_scope *s, ht_array *const *params, ht_array *const *grads, int n,
                            double lr, ht_array **new_params, ht_error *err) {
    for (int i = 0; i < n; i++) new_params[i] = NULL;
    ht_status st = check_step(o, s, params, grads, n, lr, err);
    if (st) return st;
    const int n_moments = n * o->moments_each;
    ht_array **out = calloc((size_t)(n + n_moments) + 1, sizeof *out);
    ht_array **moments = calloc((size_t)n_moments + 1, sizeof *moments);
    st = out && moments ? HT_OK : ht_fail_memory(err, (size_t)(n + n_moments) * sizeof *out, "a step of an optimiser");
    if (!st) st = apply(o, s, params, grads, n, lr, out, err);
    if (!st) {
        memcpy(new_params, out, (size_t)n * sizeof *out);
        for (int i = 0; i < n_moments; i++) {
            moments[i] = ht_array_retain(out[n + i]);
            ht_scope_drop(s, out[n + i]);
        }
        replace_moments(o, moments, n_moments);
        o->n_steps++;
        moments = NULL;
    }
    free(moments);
    free(out);
    return st;
}

/* ---- state ---- */

int ht_optimizer_state(const ht_optimizer *o, int64_t *step, ht_array *const **moments) {
    *step = o->n_steps;
    *moments = o->moments;
    return o->n_moments;
}

static ht_status check_state(const ht_optimizer *o, int64_t step, ht_array *const *moments, int n, ht_error *err) {
    if (step < 0) return ht_fail(err, HT_ERR_ARGUMENT, "optimizer: the state has taken %lld steps", (long long)step);
    if (n < 0 || (o->moments_each ? n % o->moments_each : n) != 0)
        return ht_fail(err, HT_ERR_ARGUMENT, "optimizer: the state has %d moments, expected %d for each parameter", n,
                       o->moments_each);
    if (o->moments_each && (step == 0) != (n == 0))
        return ht_fail(err, HT_ERR_ARGUMENT, "optimizer: the state has %d moments after %lld step%s", n,
                       (long long)step, ht_plural(step));
    const int n_params = o->moments_each ? n / o->moments_each : 0;
    for (int i = 0; i < n; i++) {
        if (!moments[i] || moments[i] == HT_NONE || moments[i]->dtype != HT_F32)
            return ht_fail(err, HT_ERR_ARGUMENT, "optimizer: moment %d of the state is no array of f32", i);
        if (!ht_same_shape(moments[i], moments[i % n_params]))
            return ht_fail(err, HT_ERR_ARGUMENT, "optimizer: moments %d and %d of the state differ in shape", i,
                           i % n_params);
    }
    return HT_OK;
}

ht_status ht_optimizer_set_state(ht_optimizer *o, ht_scope *s, int64_t step, ht_array *const *moments, int n,
                                 ht_error *err) {
    ht_status st = check_state(o, step, moments, n, err);
    if (!st && n > 0) st = ht_array_eval(s, moments, n, err);
    if (st) return st;
    ht_array **held = calloc((size_t)n + 1, sizeof *held);
    if (!held) return ht_fail_memory(err, (size_t)n * sizeof *held, "the state of an optimiser");
    for (int i = 0; i < n; i++) held[i] = ht_array_retain(moments[i]);
    replace_moments(o, held, n);
    o->n_steps = step;
    return HT_OK;
}

/* ---- gradient clipping, by the norm of all gradients together ---- */

/* Scalar, f32 (f64 of f64): the sum of the squares of g. */
static ht_array *sum_of_squares(ht_scope *s, ht_array *g) {
    if (g && !ht_dtype_is_float(g->dtype))
        return ht_scope_fail(s, HT_ERR_ARGUMENT, "clip_grad_norm: a gradient is %s, expected floating point",
                             ht_dtype_name(g->dtype));
    return g ? ht_sum(s, ht_square(s, ht_astype(s, g, ht_dtype_promote(g->dtype, HT_F32))), NULL, 0, false) : NULL;
}

/* The norm in f64, where rounding of the sum over arrays is negligible in any order. */
static ht_array *norm_of(ht_scope *s, ht_array *const *grads, int n) {
    ht_array **sums = ht_array_list(s, n);
    bool ok = sums != NULL;
    for (int i = 0; ok && i < n; i++) ok = (sums[i] = sum_of_squares(s, grads[i])) != NULL;
    ht_array *all = NULL;
    if (ok) all = n > 0 ? ht_stack(s, sums, n, 0) : ht_zeros(s, HT_F64, NULL, 0);
    free(sums);
    return all ? ht_sqrt(s, ht_sum(s, ht_astype(s, all, HT_F64), NULL, 0, false)) : NULL;
}

/* g times an f32 factor, rounded once. */
static ht_array *clipped(ht_scope *s, ht_array *g, ht_array *factor) {
    const ht_dtype dtype = g->dtype;
    return ht_astype(s, ht_multiply(s, ht_astype(s, g, ht_dtype_promote(dtype, HT_F32)), factor), dtype);
}

bool ht_clip_grad_norm(ht_scope *s, ht_array *const *grads, int n, double max_norm, ht_array **out, ht_array **norm) {
    bool ok = max_norm >= 0;
    if (!ok) ht_scope_fail(s, HT_ERR_ARGUMENT, "clip_grad_norm: max_norm is %g, expected 0 or more", max_norm);
    ht_array *exact = ok ? norm_of(s, grads, n) : NULL;
    ht_array *at_least = exact ? ht_add(s, exact, ht_full(s, 1e-6, HT_F64, NULL, 0)) : NULL;
    ht_array *one = ht_full(s, 1, HT_F64, NULL, 0);
    ht_array *factor = ht_minimum(s, one, ht_divide(s, ht_full(s, max_norm, HT_F64, NULL, 0), at_least));
    factor = ht_astype(s, factor, HT_F32);
    *norm = ht_astype(s, exact, HT_F32);
    ok = *norm && factor;
    for (int i = 0; ok && i < n; i++) ok = (out[i] = clipped(s, grads[i], factor)) != NULL;
    if (ok) return true;
    for (int i = 0; i < n; i++) out[i] = NULL;
    *norm = NULL;
    return false;
}

/* ---- schedules of the learning rate: pure functions of the step ---- */

static const double pi = 3.14159265358979323846;
static const ht_schedule schedule_defaults = {.size = sizeof schedule_defaults, .learning_rate = 1e-5};

void ht_schedule_init(ht_schedule *schedule, size_t size) {
    ht_options_init(schedule, size, &schedule_defaults, sizeof schedule_defaults);
}

static double factor(const ht_schedule *c, int64_t step) {
    if (step < c->warmup_steps) return (double)step / (double)c->warmup_steps;
    if (c->kind == HT_SCHEDULE_CONSTANT) return 1;
    if (step >= c->total_steps) return 0;
    const double decay_steps = (double)(c->total_steps - c->warmup_steps);
    /* not 1 - r, which would round differently from transformers */
    if (c->kind == HT_SCHEDULE_LINEAR) return (double)(c->total_steps - step) / decay_steps;
    return 0.5 * (1 + cos(pi * ((double)(step - c->warmup_steps) / decay_steps)));
}

double ht_schedule_lr(const ht_schedule *schedule, int64_t step) {
    ht_schedule c;
    if (ht_options_read(&c, schedule, &schedule_defaults, sizeof schedule_defaults, "ht_schedule", NULL))
        return (double)NAN;
    const bool known = c.kind >= HT_SCHEDULE_CONSTANT && c.kind <= HT_SCHEDULE_COSINE;
    if (!known || step < 0 || c.warmup_steps < 0 || c.total_steps < 0 || !(c.learning_rate >= 0)) return (double)NAN;
    return c.learning_rate * factor(&c, step);
}
