#include "support/gradients.h"

#include "array/array.h"
#include "array/op.h"
#include "ops/gradient.h"
#include "support/test.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_ELEMENTS = 128 };

typedef struct values {
    int n;
    double v[MAX_ELEMENTS];
} values;

/* The same numbers in every run, without a pattern that sums could hide. */
static double spread(int i) {
    double x = sin(1.0 + 12.9898 * (double)i) * 43758.5453;
    return x - floor(x);
}

static values values_of(const gradient_input *in, int salt) {
    values v = {.n = 1};
    for (int i = 0; i < in->n_dims; i++) v.n *= (int)in->shape[i];
    assert_true(v.n <= MAX_ELEMENTS);
    for (int i = 0; i < v.n; i++) v.v[i] = in->low + (in->high - in->low) * spread(i + 1000 * salt);
    return v;
}

static ht_array *array_of(ht_scope *s, const gradient_input *in, const values *v) {
    return ht_array_from(s, v->v, HT_F64, in->shape, in->n_dims);
}

static void read_values(ht_scope *s, ht_array *a, values *out, const char *name) {
    ht_error err = {0};
    if (!a) fail_msg("%s: %s", name, ht_scope_error(s) ? ht_scope_error(s)->message : "no array");
    out->n = (int)ht_array_size(a);
    assert_true(out->n <= MAX_ELEMENTS);
    if (ht_array_read(s, a, out->v, (size_t)out->n * sizeof(double), &err)) fail_msg("%s: %s", name, err.message);
}

static bool differentiated[HT_OP_COUNT];

/* Notes the operations of `a` and of all it is made of; evaluated operands have let go of theirs. */
static void note_operations(const ht_array *a) {
    enum { MOST = 4096 };
    static const ht_array *met[MOST];
    int n = 0, next = 0;
    if (a) met[n++] = a;
    while (next < n) {
        const ht_array *node = met[next++];
        differentiated[node->op] = true;
        for (int i = -1; i < node->n_in; i++) {
            const ht_array *of = i < 0 ? node->base : node->in[i];
            bool known = !of || of == HT_NONE;
            for (int k = 0; k < n && !known; k++) known = met[k] == of;
            assert_true(known || n < MOST);
            if (!known) met[n++] = of;
        }
    }
}

void test_every_rule_was_run(void) {
    char missing[1024] = "";
    for (int op = 0; op < HT_OP_COUNT; op++) {
        ht_vjp_fn *rule = ht_op_info_of((ht_op_id)op)->vjp;
        size_t used = strlen(missing);
        if (rule && rule != ht_vjp_none && !differentiated[op])
            (void)snprintf(missing + used, sizeof missing - used, " %s", ht_op_name((ht_op_id)op));
    }
    if (*missing) fail_msg("no case differentiates%s", missing);
}

/* f is given all its operands, those it does not have as NULL. */
static ht_array *apply(const gradient_case *c, ht_scope *s, ht_array *const *in, int n_in) {
    ht_array *all[GRADIENT_INPUTS] = {NULL};
    memcpy(all, in, (size_t)n_in * sizeof(ht_array *));
    return c->f(s, all);
}

static int call_case(ht_scope *s, ht_array *const *in, int n_in, ht_array **out, int max_out, void *user) {
    (void)max_out;
    out[0] = apply(user, s, in, n_in);
    return out[0] ? 1 : -1;
}

/* <weights, f(in)>, the weights being numbers between 0.5 and 1.5. */
static ht_array *weighed(ht_scope *s, ht_array *y) {
    if (!y) return NULL;
    values w = {.n = (int)ht_array_size(y)};
    assert_true(w.n <= MAX_ELEMENTS);
    for (int i = 0; i < w.n; i++) w.v[i] = 0.5 + spread(5000 + i);
    int64_t shape[8];
    for (int i = 0; i < ht_array_n_dims(y); i++) shape[i] = ht_array_dim(y, i);
    ht_array *weights = ht_array_from(s, w.v, HT_F64, shape, ht_array_n_dims(y));
    return ht_sum(s, ht_multiply(s, ht_astype(s, y, HT_F64), weights), NULL, 0, false);
}

static int call_weighed(ht_scope *s, ht_array *const *in, int n_in, ht_array **out, int max_out, void *user) {
    (void)max_out;
    out[0] = weighed(s, apply(user, s, in, n_in));
    return out[0] ? 1 : -1;
}

/* How fast <weights, f> moves along all inputs' directions: with its gradient, the second derivative. */
static int call_slope(ht_scope *s, ht_array *const *in, int n_in, ht_array **out, int max_out, void *user) {
    (void)max_out;
    const gradient_case *c = user;
    int which[GRADIENT_INPUTS] = {0, 1, 2, 3};
    ht_array *grad[GRADIENT_INPUTS];
    const ht_function f = {call_weighed, user};
    if (!ht_grad(s, &f, in, n_in, (ht_wrt){which, n_in}, grad)) return -1;
    ht_array *sum = ht_full(s, 0.0, HT_F64, NULL, 0);
    for (int i = 0; i < n_in; i++) {
        note_operations(grad[i]);
        values d = values_of(&c->in[i], 50 + i);
        ht_array *direction = array_of(s, &c->in[i], &d);
        sum = ht_add(s, sum, ht_sum(s, ht_multiply(s, grad[i], direction), NULL, 0, false));
    }
    out[0] = sum;
    return sum ? 1 : -1;
}

typedef int call_fn(ht_scope *s, ht_array *const *in, int n_in, ht_array **out, int max_out, void *user);

static double value_at(ht_stream *stream, const gradient_case *c, call_fn *call, const values *at) {
    ht_scope *s = ht_scope_new(stream);
    ht_array *in[GRADIENT_INPUTS] = {NULL}, *out[1] = {NULL};
    for (int i = 0; i < c->n_in; i++) in[i] = array_of(s, &c->in[i], &at[i]);
    values y = {0};
    (void)call(s, in, c->n_in, out, 1, (void *)(uintptr_t)c);
    read_values(s, out[0], &y, c->name);
    ht_scope_free(s);
    return y.v[0];
}

static void expect_near(const gradient_case *c, const char *what, int input, int element, double got, double want,
                        double tolerance) {
    if (fabs(got - want) <= tolerance * (1.0 + fabs(want))) return;
    fail_msg("%s: %s of input %d, element %d is %.9g, finite differences give %.9g", c->name, what, input, element, got,
             want);
}

/* The gradient of one number that `call` makes, for each element of each input. */
static void compare(ht_stream *stream, const gradient_case *c, call_fn *call, const char *what, double tolerance) {
    const double step = 1e-5;
    ht_scope *s = ht_scope_new(stream);
    ht_array *in[GRADIENT_INPUTS], *grad[GRADIENT_INPUTS];
    values at[GRADIENT_INPUTS];
    int which[GRADIENT_INPUTS] = {0, 1, 2, 3};
    for (int i = 0; i < c->n_in; i++) {
        at[i] = values_of(&c->in[i], i);
        in[i] = array_of(s, &c->in[i], &at[i]);
    }
    const ht_function f = {call, (void *)(uintptr_t)c};
    if (!ht_grad(s, &f, in, c->n_in, (ht_wrt){which, c->n_in}, grad))
        fail_msg("%s: %s: %s", c->name, what, ht_scope_error(s)->message);
    note_operations(apply(c, s, in, c->n_in));
    for (int i = 0; i < c->n_in; i++) {
        values g = {0};
        read_values(s, grad[i], &g, c->name);
        for (int k = 0; k < at[i].n; k++) {
            double x = at[i].v[k];
            at[i].v[k] = x + step;
            double above = value_at(stream, c, call, at);
            at[i].v[k] = x - step;
            double below = value_at(stream, c, call, at);
            at[i].v[k] = x;
            expect_near(c, what, i, k, g.v[k], (above - below) / (2.0 * step), tolerance);
        }
    }
    ht_scope_free(s);
}

/* <weights, J t> = <J^T weights, t>. */
static void compare_forward(ht_stream *stream, const gradient_case *c) {
    ht_scope *s = ht_scope_new(stream);
    ht_array *in[GRADIENT_INPUTS], *tangent[GRADIENT_INPUTS], *grad[GRADIENT_INPUTS], *out[1], *moved[1];
    int which[GRADIENT_INPUTS] = {0, 1, 2, 3};
    ht_array *expected = ht_full(s, 0.0, HT_F64, NULL, 0);
    for (int i = 0; i < c->n_in; i++) {
        values at = values_of(&c->in[i], i), t = values_of(&c->in[i], 20 + i);
        in[i] = array_of(s, &c->in[i], &at);
        tangent[i] = array_of(s, &c->in[i], &t);
    }
    const ht_function f = {call_case, (void *)(uintptr_t)c}, one = {call_weighed, (void *)(uintptr_t)c};
    if (ht_jvp(s, &f, in, tangent, c->n_in, out, moved, 1) != 1 ||
        !ht_grad(s, &one, in, c->n_in, (ht_wrt){which, c->n_in}, grad))
        fail_msg("%s: forward mode: %s", c->name, ht_scope_error(s)->message);
    for (int i = 0; i < c->n_in; i++)
        expected = ht_add(s, expected, ht_sum(s, ht_multiply(s, grad[i], tangent[i]), NULL, 0, false));
    values got = {0}, want = {0};
    read_values(s, weighed(s, moved[0]), &got, c->name);
    read_values(s, expected, &want, c->name);
    expect_near(c, "forward mode", 0, 0, got.v[0], want.v[0], 1e-9);
    ht_scope_free(s);
}

void test_gradient(ht_stream *stream, const gradient_case *c) {
    compare(stream, c, call_weighed, "the gradient", 1e-6);
    compare_forward(stream, c);
    compare(stream, c, call_slope, "the second derivative", 1e-5);
}

void test_gradient_of_f32(ht_stream *stream, const gradient_case *c,
                          ht_array *(*exact)(ht_scope *s, ht_array *const *in)) {
    const double step = 1e-5;
    const gradient_case in_f64 = {c->name, exact, 1, {c->in[0]}};
    ht_scope *s = ht_scope_new(stream);
    values at = values_of(&c->in[0], 0), got = {0};
    for (int i = 0; i < at.n; i++) at.v[i] = (double)(float)at.v[i];
    ht_array *x = ht_astype(s, array_of(s, &c->in[0], &at), HT_F32), *grad[1];
    const ht_function f = {call_weighed, (void *)(uintptr_t)c};
    if (!ht_grad(s, &f, &x, 1, (ht_wrt){(int[]){0}, 1}, grad)) fail_msg("%s: %s", c->name, ht_scope_error(s)->message);
    note_operations(apply(c, s, &x, 1));
    read_values(s, ht_astype(s, grad[0], HT_F64), &got, c->name);
    for (int k = 0; k < at.n; k++) {
        double x_k = at.v[k];
        at.v[k] = x_k + step;
        double above = value_at(stream, &in_f64, call_weighed, &at);
        at.v[k] = x_k - step;
        double below = value_at(stream, &in_f64, call_weighed, &at);
        at.v[k] = x_k;
        expect_near(c, "the gradient", 0, k, got.v[k], (above - below) / (2.0 * step), 2e-6);
    }
    ht_scope_free(s);
}
