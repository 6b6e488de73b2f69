/* Reductions, scans, norms and rotary embeddings of the CUDA device beside the CPU's plain kernels, over lengths that take
 * each of their ways, strides, dtypes and values that are no numbers. Skipped where there is no GPU. */
#include "array/op.h"
#include "base/dtype.h"
#include "cpu/element.h"
#include "device/params.h"
#include "support/gpu.h"
#include "support/test.h"

#include <hearth/hearth.h>

#include <math.h>
#include <stdio.h>
#include <string.h>

/* ---- operands ---- */

typedef enum value_kind {
    ORDINARY,
    FEW,
    WILD,
    N_VALUES
} value_kind; /* FEW: many are equal; WILD: with infinities and NaN */
typedef enum layout { PLAIN, SWAPPED, EVERY_OTHER, TURNED, SHIFTED, REPEATED, N_LAYOUTS } layout;

static uint64_t seed = 1;
static uint32_t draw(uint32_t n) {
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(seed >> 33) % n;
}

static double draw_value(ht_dtype t, value_kind how) {
    static const double wild[] = {INFINITY, -INFINITY, NAN, 0.0, -0.0, 60000.0, -60000.0, 1e-7};
    if (!ht_dtype_is_float(t)) return (double)draw(how == FEW ? 3 : 200) - (ht_dtype_is_signed(t) ? 100.0 : 0.0);
    if (how == FEW) return (double)draw(4) - 1.0;
    if (how == WILD && draw(40) == 0) return wild[draw(8)];
    return ((double)draw(2000001) - 1e6) * 2e-6;
}

/* An array in host memory, and the view of it that is the operand. */
typedef struct operand {
    ht_dtype dtype;
    int n_dims;
    int64_t shape[4], base[4], size;
    layout layout;
    double largest; /* finite magnitude, at least 1 */
    void *data;
} operand;

static operand operand_new(ht_dtype dtype, const int64_t *shape, int n_dims, layout how, value_kind values) {
    operand o = {.dtype = dtype, .n_dims = n_dims, .size = 1, .layout = how, .largest = 1.0};
    if (how == SWAPPED && n_dims < 2) o.layout = PLAIN;
    for (int d = 0; d < n_dims; d++) o.shape[d] = o.base[d] = shape[d];
    const int last = n_dims - 1;
    if (o.layout == SWAPPED) {
        o.base[last] = shape[last - 1];
        o.base[last - 1] = shape[last];
    }
    if (how == EVERY_OTHER) o.base[last] = 2 * shape[last];
    if (how == SHIFTED) o.base[last] = shape[last] + 1;
    if (how == REPEATED) o.base[0] = 1;
    for (int d = 0; d < n_dims; d++) o.size *= o.base[d];
    o.data = calloc((size_t)o.size + 1, ht_dtype_bytes(dtype));
    assert_non_null(o.data);
    for (int64_t i = 0; i < o.size; i++) {
        const double v = draw_value(dtype, values);
        if (isfinite(v)) o.largest = fmax(o.largest, fabs(v));
        ht_set_f64(dtype, o.data, i, v);
    }
    return o;
}

static ht_array *array_of(ht_scope *s, const operand *o) {
    ht_array *x = ht_array_from(s, o->data, o->dtype, o->base, o->n_dims);
    int64_t start[4], stop[4], step[4];
    const int last = o->n_dims - 1;
    for (int d = 0; d < o->n_dims; d++) {
        start[d] = stop[d] = HT_OPEN;
        step[d] = 1;
    }
    int order[4] = {0, 1, 2, 3};
    switch (o->layout) {
    case SWAPPED:
        order[last] = last - 1;
        order[last - 1] = last;
        return ht_transpose(s, x, order);
    case EVERY_OTHER: step[last] = 2; break;
    case TURNED: step[last] = -1; break;
    case SHIFTED: start[last] = 1; break;
    case REPEATED: return ht_broadcast_to(s, x, o->shape, o->n_dims);
    default: return x;
    }
    return ht_slice(s, x, start, stop, step);
}

/* ---- operations ---- */

typedef struct question {
    const char *name;
    ht_op_id op;
    int axis; /* of reductions and scans */
    bool reverse, inclusive;
    operand x, weight, bias, grad; /* `weight`: also the factors of a recurrence, and positions; without data: none */
    ht_rope_config rope;
} question;

static ht_array *or_none(ht_scope *s, const operand *o) { return o->data ? array_of(s, o) : HT_NONE; }

static ht_array *norm_gradient(ht_scope *s, const question *q) {
    ht_array *in[4] = {array_of(s, &q->x), or_none(s, &q->weight)};
    if (q->op == HT_OP_RMS_NORM_GRAD) {
        in[2] = array_of(s, &q->grad);
        return ht_apply(s, q->op, &(ht_rms_norm_params){0.1f, 1.0f}, in, 3);
    }
    in[2] = or_none(s, &q->bias);
    in[3] = array_of(s, &q->grad);
    return ht_apply(s, q->op, &(ht_layer_norm_params){0.1f}, in, 4);
}

static ht_array *ask(ht_scope *s, const question *q) {
    ht_array *x = array_of(s, &q->x);
    switch ((int)q->op) {
    case HT_OP_SUM: return ht_sum(s, x, &q->axis, 1, false);
    case HT_OP_PROD: return ht_prod(s, x, &q->axis, 1, false);
    case HT_OP_MEAN: return ht_mean(s, x, &q->axis, 1, false);
    case HT_OP_MAX: return ht_max(s, x, &q->axis, 1, false);
    case HT_OP_MIN: return ht_min(s, x, &q->axis, 1, false);
    case HT_OP_ARGMAX: return ht_argmax(s, x, &q->axis, false);
    case HT_OP_ARGMIN: return ht_argmin(s, x, &q->axis, false);
    case HT_OP_VAR: return ht_var(s, x, &q->axis, 1, false, 1);
    case HT_OP_LOGSUMEXP: return ht_logsumexp(s, x, &q->axis, 1, false);
    case HT_OP_SOFTMAX: return ht_softmax(s, x, q->axis);
    case HT_OP_CUMSUM: return ht_cumsum(s, x, q->axis, q->reverse, q->inclusive);
    case HT_OP_CUMPROD: return ht_cumprod(s, x, q->axis, q->reverse, q->inclusive);
    case HT_OP_CUMMAX: return ht_cummax(s, x, q->axis, q->reverse, q->inclusive);
    case HT_OP_CUMMIN: return ht_cummin(s, x, q->axis, q->reverse, q->inclusive);
    case HT_OP_LOGCUMSUMEXP: return ht_logcumsumexp(s, x, q->axis, q->reverse, q->inclusive);
    case HT_OP_RECURRENCE: return ht_recurrence(s, x, array_of(s, &q->weight), q->reverse);
    case HT_OP_RMS_NORM: return ht_rms_norm(s, x, or_none(s, &q->weight), 0.1f, 1.0f);
    case HT_OP_LAYER_NORM: return ht_layer_norm(s, x, or_none(s, &q->weight), or_none(s, &q->bias), 0.1f);
    case HT_OP_ROPE: return ht_rope(s, x, array_of(s, &q->weight), or_none(s, &q->bias), &q->rope);
    default: return norm_gradient(s, q);
    }
}

/* ---- comparison ---- */

static double unit_of(ht_dtype t) {
    return t == HT_F16 ? 0x1p-10 : t == HT_BF16 ? 0x1p-7 : t == HT_F32 ? 0x1p-23 : t == HT_F64 ? 0x1p-52 : 0.0;
}

static bool agree(const question *q, double got, double want, ht_dtype t) {
    if (isnan(got) || isnan(want)) return isnan(got) && isnan(want);
    if (isinf(got) || isinf(want)) return got == want;
    const bool exact = !ht_dtype_is_float(t) || q->op == HT_OP_MAX || q->op == HT_OP_MIN || q->op == HT_OP_CUMMAX ||
                       q->op == HT_OP_CUMMIN;
    const int64_t n = q->x.shape[q->axis];
    /* Differences of nearly equal terms are multiplied by up to eps^-1.5. */
    const bool norm = q->op == HT_OP_LAYER_NORM || q->op == HT_OP_RMS_NORM_GRAD || q->op == HT_OP_LAYER_NORM_GRAD;
    const double walk = (norm ? 64.0 : 8.0) + sqrt((double)n), small = t == HT_F16 ? 0x1p-14 : 1e-3 / (double)n;
    const double floor = q->op == HT_OP_SOFTMAX ? small : q->x.largest;
    const double tolerance = t == HT_F64 ? 64.0 * walk : t == HT_F32 ? walk : 2.0;
    return exact ? got == want : fabs(got - want) <= tolerance * unit_of(t) * fmax(fabs(want), floor);
}

static void describe(const question *q, char *text, size_t n) {
    static const char *const layouts[] = {"plain", "swapped", "every other", "turned", "shifted", "repeated"};
    int at = snprintf(text, n, "%s axis %d reverse %d inclusive %d of %s [", q->name, q->axis, q->reverse, q->inclusive,
                      ht_dtype_name(q->x.dtype));
    for (int d = 0; d < q->x.n_dims; d++) at += snprintf(text + at, n - (size_t)at, " %lld", (long long)q->x.shape[d]);
    snprintf(text + at, n - (size_t)at, " ] %s", layouts[q->x.layout]);
}

static void compare(question *q) {
    char text[200];
    void *got[2] = {0};
    int64_t size = 0;
    ht_dtype dtype = HT_F32;
    describe(q, text, sizeof text);
    for (int i = 0; i < 2; i++) {
        ht_error err = {0};
        ht_scope *s = ht_scope_new(beside_stream[i]);
        ht_array *y = ask(s, q);
        if (!y) fail_msg("%s: %s", text, ht_scope_error(s)->message);
        size = ht_array_size(y);
        dtype = ht_array_dtype(y);
        const size_t bytes = (size_t)size * ht_dtype_bytes(dtype);
        got[i] = malloc(bytes + 1);
        if (ht_array_read(s, y, got[i], bytes, &err)) fail_msg("%s: %s", text, err.message);
        ht_scope_free(s);
    }
    for (int64_t i = 0; i < size; i++) {
        const double want = ht_get_f64(dtype, got[0], i), is = ht_get_f64(dtype, got[1], i);
        if (!agree(q, is, want, dtype)) fail_msg("%s: element %lld is %.17g, not %.17g", text, (long long)i, is, want);
    }
    free(got[0]);
    free(got[1]);
    free(q->x.data);
    free(q->weight.data);
    free(q->bias.data);
    free(q->grad.data);
}

/* ---- cases ---- */

static const ht_dtype floats[] = {HT_F16, HT_BF16, HT_F32, HT_F64};
static const ht_dtype all[] = {HT_BOOL, HT_U8,  HT_U16, HT_U32,  HT_U64, HT_I8, HT_I16,
                               HT_I32,  HT_I64, HT_F16, HT_BF16, HT_F32, HT_F64};
enum { N_FLOATS = 4, N_ALL = 13 };

static const struct {
    int n_dims;
    int64_t shape[3];
} shapes[] = {{1, {1}},        {1, {7}},      {1, {33}},         {1, {1000}},    {1, {1025}},    {1, {8193}},
              {1, {40001}},    {2, {300, 3}}, {2, {3, 300}},     {2, {5, 1031}}, {2, {1031, 5}}, {3, {2, 600, 7}},
              {3, {4, 3, 70}}, {2, {40, 40}}, {2, {2, 9001}},    {2, {9001, 2}}, {2, {64, 512}}, {3, {2, 3, 4096}},
              {2, {2, 5000}},  {1, {20000}},  {3, {1, 17000, 3}}};
enum { N_SHAPES = sizeof shapes / sizeof *shapes };

static int skip_without_gpu(void) {
    if (beside_stream[GPU]) return 0;
    skip();
    return 1;
}

#define ALONG(id, floats_only)                                                                                         \
    { #id, HT_OP_##id, floats_only }
static const struct {
    const char *name;
    ht_op_id op;
    bool floats_only;
} along[] = {ALONG(SUM, false),      ALONG(PROD, false),   ALONG(MEAN, true),        ALONG(MAX, false),
             ALONG(MIN, false),      ALONG(ARGMAX, false), ALONG(ARGMIN, false),     ALONG(VAR, true),
             ALONG(LOGSUMEXP, true), ALONG(SOFTMAX, true), ALONG(CUMSUM, false),     ALONG(CUMPROD, false),
             ALONG(CUMMAX, false),   ALONG(CUMMIN, false), ALONG(LOGCUMSUMEXP, true)};

static void reductions_and_scans(void **state) {
    (void)state;
    if (skip_without_gpu()) return;
    for (size_t o = 0; o < sizeof along / sizeof *along; o++)
        for (int i = 0; i < test_cases(N_SHAPES, 50 * N_SHAPES); i++) {
            if (!test_takes(i + (int)o, 2)) continue;
            const int n_dims = shapes[i % N_SHAPES].n_dims;
            question q = {.name = along[o].name, .op = along[o].op, .axis = (int)draw((uint32_t)n_dims)};
            const ht_dtype dtype = along[o].floats_only ? floats[draw(N_FLOATS)] : all[draw(N_ALL)];
            /* A product of many is nothing, or all. */
            const bool product = q.op == HT_OP_PROD || q.op == HT_OP_CUMPROD;
            const value_kind how = product ? FEW : (value_kind)draw(N_VALUES);
            q.reverse = draw(2);
            q.inclusive = draw(3) > 0;
            q.x = operand_new(dtype, shapes[i % N_SHAPES].shape, n_dims, (layout)draw(N_LAYOUTS), how);
            compare(&q);
        }
}

static void recurrences(void **state) {
    (void)state;
    if (skip_without_gpu()) return;
    for (int i = 0; i < test_cases(N_SHAPES, 2 * N_SHAPES); i++) {
        const int n_dims = shapes[i % N_SHAPES].n_dims;
        const int64_t *shape = shapes[i % N_SHAPES].shape;
        question q = {.name = "RECURRENCE", .op = HT_OP_RECURRENCE, .axis = n_dims - 1, .reverse = draw(2)};
        const ht_dtype dtype = floats[draw(N_FLOATS)];
        q.x = operand_new(dtype, shape, n_dims, (layout)draw(N_LAYOUTS), ORDINARY);
        q.weight = operand_new(dtype, shape, n_dims, (layout)draw(N_LAYOUTS), ORDINARY);
        for (int64_t k = 0; k < q.weight.size; k++) /* a contraction, with some zeros */
            ht_set_f64(dtype, q.weight.data, k, draw(9) ? 0.45 * ht_get_f64(dtype, q.weight.data, k) : 0.0);
        compare(&q);
    }
}

static void norms_and_their_gradients(void **state) {
    (void)state;
    if (skip_without_gpu()) return;
    static const ht_op_id ops[] = {HT_OP_RMS_NORM, HT_OP_LAYER_NORM, HT_OP_RMS_NORM_GRAD, HT_OP_LAYER_NORM_GRAD};
    static const char *const names[] = {"RMS_NORM", "LAYER_NORM", "RMS_NORM_GRAD", "LAYER_NORM_GRAD"};
    for (int i = 0; i < test_cases(4 * N_SHAPES, 8 * N_SHAPES); i++) {
        const int n_dims = shapes[i / 4 % N_SHAPES].n_dims;
        const int64_t *shape = shapes[i / 4 % N_SHAPES].shape;
        question q = {.name = names[i % 4], .op = ops[i % 4], .axis = 0}; /* the gradients' sums are over rows */
        const ht_dtype dtype = floats[draw(N_FLOATS)];
        q.x = operand_new(dtype, shape, n_dims, (layout)draw(N_LAYOUTS), draw(8) ? ORDINARY : FEW);
        q.grad = operand_new(dtype, shape, n_dims, (layout)draw(N_LAYOUTS), ORDINARY);
        if (draw(4)) q.weight = operand_new(dtype, &shape[n_dims - 1], 1, (layout)draw(REPEATED), ORDINARY);
        if (draw(4)) q.bias = operand_new(dtype, &shape[n_dims - 1], 1, (layout)draw(REPEATED), ORDINARY);
        compare(&q);
    }
}

static void rotary_embeddings(void **state) {
    (void)state;
    if (skip_without_gpu()) return;
    static const int64_t heads[][3] = {{1, 1, 2}, {3, 5, 64}, {70, 8, 128}, {2, 3, 81}, {600, 9, 6}, {2, 2, 600}};
    for (int i = 0; i < 48; i++) {
        const int64_t *shape = heads[i % 6];
        question q = {.name = "ROPE", .op = HT_OP_ROPE, .axis = 2};
        const int32_t dims = (int32_t)(draw(2) ? shape[2] / 2 * 2 : shape[2] / 4 * 2);
        q.rope = (ht_rope_config){.theta = draw(2) ? 1e4f : 5e5f,
                                  .scale = draw(2) ? 1.0f : 0.25f,
                                  .magnitude = draw(2) ? 1.0f : 1.25f,
                                  .dims = dims,
                                  .interleaved = draw(2)};
        q.x = operand_new(floats[draw(N_FLOATS)], shape, 3, (layout)draw(N_LAYOUTS), ORDINARY);
        q.weight = operand_new(HT_I32, shape, 1, PLAIN, ORDINARY);
        for (int64_t k = 0; k < q.weight.size; k++)
            ((int32_t *)q.weight.data)[k] = (int32_t)draw(i % 2 ? 1 << 20 : 100);
        if (draw(2) && dims) {
            q.bias = operand_new(HT_F32, &(int64_t){dims / 2}, 1, draw(2) ? EVERY_OTHER : PLAIN, ORDINARY);
            for (int64_t k = 0; k < q.bias.size; k++) ((float *)q.bias.data)[k] = 1.0f + (float)draw(50);
        }
        compare(&q);
    }
}

/* A row has the same bits alone and among others. */
static void rows_do_not_depend_on_how_many_there_are(void **state) {
    (void)state;
    if (skip_without_gpu()) return;
    static const ht_op_id ops[] = {HT_OP_SUM, HT_OP_VAR, HT_OP_LOGSUMEXP, HT_OP_SOFTMAX, HT_OP_RMS_NORM, HT_OP_CUMSUM};
    enum { ROWS = 5, LONGEST = 20001 };
    float *all_rows = malloc(sizeof(float) * ROWS * LONGEST), *one = malloc(sizeof(float) * LONGEST);
    static const int64_t lengths[] = {5, 100, 2000, 4096, 9000, LONGEST};
    for (size_t i = 0; i < 36; i++) {
        const int64_t n = lengths[i / 6];
        question q = {.op = ops[i % 6], .axis = 1, .inclusive = true};
        q.x = operand_new(HT_F32, (int64_t[]){ROWS, n}, 2, PLAIN, ORDINARY);
        ht_scope *s = ht_scope_new(beside_stream[GPU]);
        ht_array *y = ask(s, &q);
        const int64_t each = ht_array_size(y) / ROWS;
        assert_int_equal(ht_array_read(s, y, all_rows, sizeof(float) * (size_t)(ROWS * each), NULL), HT_OK);
        question alone = q;
        alone.x.base[0] = alone.x.shape[0] = 1;
        alone.x.data = (float *)q.x.data + 3 * n; /* not aligned as it was, where n is odd */
        ht_array *last = ask(s, &alone);
        assert_int_equal(ht_array_read(s, last, one, sizeof(float) * (size_t)each, NULL), HT_OK);
        assert_memory_equal(one, all_rows + 3 * each, sizeof(float) * (size_t)each);
        ht_scope_free(s);
        free(q.x.data);
    }
    free(all_rows);
    free(one);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reductions_and_scans),
        cmocka_unit_test(recurrences),
        cmocka_unit_test(norms_and_their_gradients),
        cmocka_unit_test(rotary_embeddings),
        cmocka_unit_test(rows_do_not_depend_on_how_many_there_are),
    };
    return cmocka_run_group_tests(tests, beside_open, beside_close);
}
