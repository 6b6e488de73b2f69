#include "support/compositions.h"

#include "array/op.h"
#include "array/topological_order.h"
#include "base/dtype.h"
#include "support/options.h"
#include "support/test.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

/* ---- devices ---- */

ht_stream *composing_stream;
static ht_stream *kernel_stream;
static ht_kernel kernels[HT_OP_COUNT];
static bool was_run[HT_OP_COUNT];

static ht_stream *open_stream(void) {
    ht_device *device;
    ht_stream *stream = NULL;
    ht_error err = {0};
    if (ht_device_open("cpu", OPTIONS_AT(ht_device_options, with.n_threads = 2), &device, &err)) return NULL;
    (void)ht_stream_new(device, &stream, &err);
    ht_device_free(device); /* the stream holds it */
    return stream;
}

int compositions_open(void **state) {
    (void)state;
    kernel_stream = open_stream();
    composing_stream = open_stream();
    if (composing_stream) memcpy(kernels, composing_stream->device->kernels, sizeof kernels);
    return kernel_stream && composing_stream ? 0 : -1;
}

int compositions_close(void **state) {
    (void)state;
    ht_stream_free(kernel_stream);
    ht_stream_free(composing_stream);
    return 0;
}

void withhold(ht_op_id op) { composing_stream->device->kernels[op].run = NULL; }

void withhold_all(void) {
    for (int op = 0; op < HT_OP_COUNT; op++)
        if (ht_op_info_of((ht_op_id)op)->compose) withhold((ht_op_id)op);
}

void give_back_kernels(void) { memcpy(composing_stream->device->kernels, kernels, sizeof kernels); }

void test_every_composition_was_run(void) {
    char missing[1024] = "";
    for (int op = 0; op < HT_OP_COUNT; op++) {
        size_t used = strlen(missing);
        if (ht_op_info_of((ht_op_id)op)->compose && !was_run[op])
            (void)snprintf(missing + used, sizeof missing - used, " %s", ht_op_name((ht_op_id)op));
    }
    if (*missing) fail_msg("no case composes%s", missing);
}

/* ---- operands ---- */

typedef enum memory_layout { IN_ORDER, TRANSPOSED, REPEATED, LAYOUTS } memory_layout;

typedef struct run {
    const composition_case *c;
    int64_t m, n;
    ht_dtype dtype;
    memory_layout layout;
    bool special;
    char name[160];
} run;

/* The same numbers in every run, without a pattern that sums could hide. */
static double spread(int64_t i) {
    double x = sin(1.0 + 12.9898 * (double)i) * 43758.5453;
    return x - floor(x);
}

static int64_t size_of(const run *r, int64_t size) { return size == M ? r->m : size == N ? r->n : size; }

/* Several occur in a row of any length, and two operands meet in many pairs. */
static double special_value(int64_t i, int salt) {
    static const double values[] = {
        0, -0.0, 1,   (double)INFINITY, -1, 2, -(double)INFINITY, 0.5, -88, 88, -1e4, 1e4, -1e30, (double)NAN, 3,
        1, -2,   1e30};
    enum { COUNT = sizeof values / sizeof *values };
    return values[(i * (salt + 1) + i / COUNT * (salt + 3) + 5 * salt) % COUNT];
}

static double value_of(const run *r, const composition_input *in, int64_t i, int salt) {
    const bool whole = in->dtype != HT_BOOL && !ht_dtype_is_float(in->dtype);
    if (r->special && !whole) return special_value(i, salt);
    const double x = spread(i + 1000 * salt);
    if (!whole) return in->low + (in->high - in->low) * x;
    if (in->high >= 0) return floor(in->low + (in->high - in->low) * x);
    const double n = (double)size_of(r, (int64_t)in->high);
    return floor(n * x) - (i % 3 == 1 ? n : 0); /* some are counted from the end */
}

static ht_array *with_layout(ht_scope *s, const run *r, ht_array *x) {
    if (x->n_dims == 0 || r->layout == IN_ORDER) return x;
    if (r->layout == TRANSPOSED) return ht_transpose(s, ht_contiguous(s, ht_transpose(s, x, NULL)), NULL);
    if (x->shape[0] < 2) return x;
    int64_t start[HT_MAX_DIMS] = {0}, stop[HT_MAX_DIMS];
    memcpy(stop, x->shape, sizeof stop);
    stop[0] = 1;
    return ht_broadcast_to(s, ht_slice(s, x, start, stop, NULL), x->shape, x->n_dims);
}

static ht_array *operand(ht_scope *s, const run *r, int index) {
    const composition_input *in = &r->c->in[index];
    int64_t shape[COMPOSITION_DIMS], size = 1;
    for (int i = 0; i < in->n_dims; i++) size *= shape[i] = size_of(r, in->shape[i]);
    double *v = malloc((size_t)(size + 1) * sizeof *v);
    assert_non_null(v);
    for (int64_t i = 0; i < size; i++) v[i] = value_of(r, in, i, index);
    ht_array *x = ht_array_from(s, v, HT_F64, shape, in->n_dims);
    free(v);
    return with_layout(s, r, ht_astype(s, x, in->dtype == HT_BOOL ? r->dtype : in->dtype));
}

/* ---- what is computed ---- */

typedef enum result_kind { VALUES, GRADIENTS, SECOND_DERIVATIVES, STAGES } result_kind;
static const char *const stage_names[STAGES] = {"values", "gradients", "second derivatives"};

/* A function of the operands whose dtype is floating point. */
typedef struct function_of {
    const composition_case *c;
    result_kind stage;
    ht_array *in[COMPOSITION_INPUTS]; /* all operands */
    int at[COMPOSITION_INPUTS], n;    /* those that are its arguments */
} function_of;

static ht_array *weights_like(ht_scope *s, const ht_array *y, int salt) {
    ht_array *w = ht_sin(s, ht_arange(s, 1 + salt, 1.5 + salt + (double)ht_array_size(y), 1, HT_F64));
    const int64_t n = ht_array_size(y);
    w = ht_slice(s, w, &(int64_t){0}, &n, NULL);
    return ht_astype(s, ht_reshape(s, w, y->shape, y->n_dims), y->dtype);
}

static int derive(ht_scope *s, const function_of *f, ht_array *const *in, ht_array **out);

static int call(ht_scope *s, ht_array *const *in, int n_in, ht_array **out, int max_out, void *user) {
    const function_of *f = user;
    (void)n_in, (void)max_out;
    if (f->stage != VALUES) return derive(s, f, in, out);
    ht_array *all[COMPOSITION_INPUTS];
    memcpy(all, f->in, sizeof all);
    for (int i = 0; i < f->n; i++) all[f->at[i]] = in[i];
    out[0] = f->c->f(s, all);
    return out[0] ? 1 : -1;
}

/* Gradients of the sum of all results of the stage below, each with weights. */
static int derive(ht_scope *s, const function_of *f, ht_array *const *in, ht_array **out) {
    function_of below = *f;
    below.stage--;
    ht_array *y[COMPOSITION_INPUTS], *grad[COMPOSITION_INPUTS];
    int n = call(s, in, f->n, y, COMPOSITION_INPUTS, &below);
    for (int i = 0; i < n; i++) grad[i] = weights_like(s, y[i], i);
    const ht_function g = {call, &below};
    return n >= 0 && ht_vjp(s, &g, in, f->n, grad, n, NULL, out) ? f->n : -1;
}

static bool is_argument(const run *r, int i, bool all) { return all || r->c->in[i].dtype == HT_BOOL; }

static function_of function(ht_scope *s, const run *r, result_kind stage, bool all) {
    function_of f = {.c = r->c, .stage = stage};
    for (int i = 0; i < r->c->n_in; i++) {
        f.in[i] = operand(s, r, i);
        if (is_argument(r, i, all)) f.at[f.n++] = i;
    }
    return f;
}

static int results(ht_scope *s, const run *r, result_kind stage, ht_array **out) {
    function_of f = function(s, r, stage, false);
    ht_array *in[COMPOSITION_INPUTS];
    for (int i = 0; i < f.n; i++) in[i] = f.in[f.at[i]];
    int n = call(s, in, f.n, out, COMPOSITION_INPUTS, &f);
    if (n < 0) fail_msg("%s: %s", r->name, ht_scope_error(s) ? ht_scope_error(s)->message : "failed without a word");
    return n;
}

/* ---- comparison ---- */

static double *read_values(ht_scope *s, const run *r, ht_array *a) {
    ht_error err = {0};
    int64_t n = ht_array_size(a);
    double *v = malloc((size_t)(n + 1) * sizeof *v);
    ht_array *wide = ht_astype(s, a, HT_F64);
    if (!v || !wide || ht_array_read(s, wide, v, (size_t)n * sizeof *v, &err)) fail_msg("%s: %s", r->name, err.message);
    return v;
}

/* Results of f16 and bf16 are rounded once, from f32, so that two neighbours may come of nearly equal numbers; their
 * derivatives by reverse rules are rounded after every operation, on one device after more of them than on the other. */
static double tolerance(const run *r, result_kind stage, ht_dtype dtype) {
    const composition_case *c = r->c;
    double ulps = dtype == HT_F64 && c->ulps_f64 > 0 ? c->ulps_f64 : c->ulps,
           unit = dtype == HT_F64 ? 0x1p-53 : 0x1p-24;
    if (stage != VALUES) ulps = 16 + 16 * ulps; /* sums of products with the weights, of several terms each */
    double narrow = dtype == HT_F16 ? 0x1p-10 : dtype == HT_BF16 ? 0x1p-7 : 0;
    if (c->flags & NARROW_STEPS) narrow *= 12;
    if (stage != VALUES) narrow *= 24;
    return ulps * unit + narrow;
}

static void compare(const run *r, result_kind stage, const ht_array *a, const double *got, const ht_array *b,
                    const double *want, const char *how) {
    assert_int_equal(a->dtype, b->dtype);
    if (!ht_same_shape(a, b)) fail_msg("%s: %s %s: another shape", r->name, stage_names[stage], how);
    const double most = tolerance(r, stage, b->dtype), floor = r->c->floor > 0 && stage == VALUES ? r->c->floor : 1;
    for (int64_t i = 0; i < ht_array_size(b); i++) {
        const bool same = got[i] == want[i] || (isnan(got[i]) && isnan(want[i]));
        if (!same && !(fabs(got[i] - want[i]) <= most * fmax(floor, fabs(want[i]))))
            fail_msg("%s: %s %s, element %lld of %lld: %.9g, by kernels %.9g, off by %.2g of %.2g", r->name,
                     stage_names[stage], how, (long long)i, (long long)ht_array_size(b), got[i], want[i],
                     fabs(got[i] - want[i]) / fmax(floor, fabs(want[i])), most);
    }
}

static void compare_stage(const run *r, result_kind stage, const char *how) {
    ht_scope *s = ht_scope_new(composing_stream), *t = ht_scope_new(kernel_stream);
    ht_array *got[COMPOSITION_INPUTS], *want[COMPOSITION_INPUTS];
    const int n = results(s, r, stage, got);
    assert_int_equal(n, results(t, r, stage, want));
    for (int i = 0; i < n; i++) {
        double *a = read_values(s, r, got[i]), *b = read_values(t, r, want[i]);
        compare(r, stage, got[i], a, want[i], b, how);
        free(a);
        free(b);
    }
    ht_scope_free(s);
    ht_scope_free(t);
}

/* Fails when the function does not use the operation at all. */
static void expect_operation(const run *r) {
    ht_scope *t = ht_scope_new(kernel_stream);
    ht_array *y[COMPOSITION_INPUTS];
    ht_worklist list = {0};
    ht_error err;
    uint64_t visit;
    bool found = false;
    (void)results(t, r, VALUES, y);
    assert_int_equal(ht_topological_order(&list, y, 1, &visit, &err), HT_OK);
    for (size_t i = 0; i < list.n; i++) found = found || list.order[i]->op == r->c->op;
    if (!found) fail_msg("%s: does not use %s", r->name, ht_op_name(r->c->op));
    ht_worklist_free(&list);
    ht_scope_free(t);
    was_run[r->c->op] = true;
}

/* ---- compiled functions ---- */

/* Values and gradients of a compiled function with those of the same device, of all runs in turn. */
static void compare_compiled(const run *runs, int n_runs, result_kind stage, bool shapeless) {
    static function_of f; /* read by the compiled function in every trace */
    ht_compiled *compiled;
    ht_error err = {0};
    f = (function_of){.c = runs[0].c, .stage = stage};
    const bool all = stage == VALUES;
    for (int i = 0; i < runs[0].c->n_in; i++)
        if (is_argument(&runs[0], i, all)) f.at[f.n++] = i;
    assert_int_equal(ht_compile(&(ht_function){call, &f}, OPTIONS_AT(ht_compile_options, with.shapeless = shapeless),
                                &compiled, &err),
                     HT_OK);
    for (int k = 0; k < n_runs; k++) {
        const run *r = &runs[k];
        ht_scope *s = ht_scope_new(composing_stream);
        ht_array *got[COMPOSITION_INPUTS], *want[COMPOSITION_INPUTS], *in[COMPOSITION_INPUTS];
        function_of now = function(s, r, stage, all);
        memcpy(f.in, now.in, sizeof f.in);
        for (int i = 0; i < now.n; i++) in[i] = now.in[now.at[i]];
        const int n = ht_compiled_call(s, compiled, in, now.n, got, COMPOSITION_INPUTS);
        if (n < 0) fail_msg("%s, compiled: %s", r->name, ht_scope_error(s)->message);
        assert_int_equal(n, results(s, r, stage, want));
        for (int i = 0; i < n; i++) {
            double *a = read_values(s, r, got[i]), *b = read_values(s, r, want[i]);
            compare(r, stage, got[i], a, want[i], b, shapeless ? "compiled without shapes" : "compiled");
            free(a);
            free(b);
        }
        ht_scope_free(s);
    }
    ht_compiled_free(compiled);
}

/* ---- a case ---- */

static const int64_t sizes[][2] = {{3, 5}, {1, 1}, {2, 16}, {4, 33}, {7, 67}, {2, 130}, {0, 5}, {3, 0}};
enum { N_SIZES = sizeof sizes / sizeof *sizes };

static run describe(const composition_case *c, const int64_t *size, ht_dtype dtype, memory_layout layout,
                    bool special) {
    static const char *const layouts[] = {"", ", transposed", ", repeated"};
    run r = {c, size[0], size[1], dtype, layout, special, ""};
    (void)snprintf(r.name, sizeof r.name, "%s: %s [%lld, %lld] of %s%s%s", ht_op_name(c->op), c->name,
                   (long long)size[0], (long long)size[1], ht_dtype_name(dtype), layouts[layout],
                   special ? ", special values" : "");
    return r;
}

static void check_run(const run *r, const char *how) {
    const bool constant = r->special || r->c->flags & CONSTANT;
    compare_stage(r, VALUES, how);
    if (!constant) compare_stage(r, GRADIENTS, how);
    if (!constant && !(r->c->flags & (ONCE | ONLY_F32)) && r->dtype == HT_F64)
        compare_stage(r, SECOND_DERIVATIVES, how);
}

static void check_compiled(const composition_case *c, const int64_t (*of)[2], int n) {
    run runs[N_SIZES];
    const bool integers_are_arguments = !(c->flags & FIXED);
    for (int i = 0; i < n; i++) runs[i] = describe(c, of[i], HT_F32, IN_ORDER, false);
    compare_compiled(runs, n, VALUES, false);
    if (integers_are_arguments) compare_compiled(runs, n, VALUES, true);
    if (!(c->flags & CONSTANT)) compare_compiled(runs, 1, GRADIENTS, false);
}

void test_composition(const composition_case *c) {
    static const ht_dtype dtypes[] = {HT_F32, HT_F16, HT_BF16, HT_F64};
    const int n_dtypes = c->flags & ONLY_F32 ? 1 : 4;
    const int n_sizes = c->flags & FIXED ? 1 : c->flags & SOME ? N_SIZES - 1 : N_SIZES;
    const run first = describe(c, sizes[0], HT_F32, IN_ORDER, false);
    give_back_kernels(); /* of a test that failed */
    expect_operation(&first);
    for (int all = 0; all < 2; all++) {
        if (all)
            withhold_all();
        else
            withhold(c->op);
        for (int d = 0; d < n_dtypes; d++)
            for (int i = 0; i < n_sizes; i++)
                for (memory_layout layout = IN_ORDER; layout < LAYOUTS; layout++)
                    for (int special = 0; special <= (c->flags & SPECIAL ? 1 : 0); special++) {
                        const run r = describe(c, sizes[i], dtypes[d], layout, special);
                        check_run(&r, all ? "without all that can be composed" : "");
                    }
        check_compiled(c, sizes, n_sizes);
        give_back_kernels();
    }
}
