/* Reductions, scans, norms and rotary embeddings of the CUDA device beside the CPU's plain kernels, over lengths that take
 * each of their ways, strides, dtypes and values that are no numbers. Skipped where there is no GPU. */
#include "array/op.h"
#include "base/dtype.h"
#include "cpu/element.h"
#include "support/gpu.h"
#include "support/operands.h"
#include "support/test.h"
#include "support/weights.h"

#include <hearth/hearth.h>

#include <math.h>
#include <string.h>

/* ---- operands ---- */

typedef enum value_kind {
    PLAIN,
    FEW,
    WILD,
    N_VALUES
} value_kind; /* FEW: many are equal; WILD: with infinities and NaN */

static uint64_t seed = 1;
static uint32_t draw(uint32_t n) { return test_random(&seed) % n; }
static layout any_layout(void) { return (layout)draw(LAYOUT_COUNT); }

static double draw_value(ht_dtype t, value_kind how) {
    static const double wild[] = {INFINITY, -INFINITY, NAN, 0.0, -0.0, 60000.0, -60000.0, 1e-7};
    if (!ht_dtype_is_float(t)) return (double)draw(how == FEW ? 3 : 200) - (ht_dtype_is_signed(t) ? 100.0 : 0.0);
    if (how == FEW) return (double)draw(4) - 1.0;
    if (how == WILD && draw(40) == 0) return wild[draw(8)];
    return ((double)draw(2000001) - 1e6) * 2e-6;
}

static operand operand_new(ht_dtype dtype, const int64_t *dim, int n_dims, layout how, value_kind kind) {
    operand o = test_operand(dtype, n_dims, dim, how, ORDINARY, &seed);
    for (int64_t i = 0; i < o.room; i++) ht_set_f64(dtype, o.memory, i, draw_value(dtype, kind));
    return o;
}

/* Largest finite magnitude, at least 1. */
static double largest_of(const operand *o) {
    double largest = 1.0;
    for (int64_t i = 0; i < o->room; i++) {
        const double v = ht_get_f64(o->view.dtype, o->memory, i);
        if (isfinite(v)) largest = fmax(largest, fabs(v));
    }
    return largest;
}

/* ---- operations ---- */

typedef struct question {
    ht_op_id op;
    int axis; /* of reductions and scans */
    bool reverse, inclusive;
    operand x, weight, bias, grad; /* `weight`: also the factors of a recurrence, and positions; without memory: none */
    ht_rope_config rope;
} question;

static ht_array *or_none(ht_scope *s, const operand *o) { return o->memory ? beside_array(s, o) : HT_NONE; }

static ht_array *norm_gradient(ht_scope *s, const question *q) {
    ht_array *in[4] = {beside_array(s, &q->x), or_none(s, &q->weight)};
    if (q->op == HT_OP_RMS_NORM_GRAD) {
        in[2] = beside_array(s, &q->grad);
        return ht_apply(s, q->op, &(ht_rms_norm_params){0.1f, 1.0f}, in, 3);
    }
    in[2] = or_none(s, &q->bias);
    in[3] = beside_array(s, &q->grad);
    return ht_apply(s, q->op, &(ht_layer_norm_params){0.1f}, in, 4);
}

static ht_array *ask(ht_scope *s, const void *how) {
    const question *q = how;
    ht_array *x = beside_array(s, &q->x);
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
    case HT_OP_RECURRENCE: return ht_recurrence(s, x, beside_array(s, &q->weight), q->reverse);
    case HT_OP_RMS_NORM: return ht_rms_norm(s, x, or_none(s, &q->weight), 0.1f, 1.0f);
    case HT_OP_LAYER_NORM: return ht_layer_norm(s, x, or_none(s, &q->weight), or_none(s, &q->bias), 0.1f);
    case HT_OP_ROPE: return ht_rope(s, x, beside_array(s, &q->weight), or_none(s, &q->bias), &q->rope);
    default: return norm_gradient(s, q);
    }
}

/* ---- comparison ---- */

static double unit_of(ht_dtype t) {
    return t == HT_F16 ? 0x1p-10 : t == HT_BF16 ? 0x1p-7 : t == HT_F32 ? 0x1p-23 : t == HT_F64 ? 0x1p-52 : 0.0;
}

static bool agree(const question *q, double largest, double got, double want, ht_dtype t) {
    if (isnan(got) || isnan(want)) return isnan(got) && isnan(want);
    if (isinf(got) || isinf(want)) return got == want;
    const bool exact = !ht_dtype_is_float(t) || q->op == HT_OP_MAX || q->op == HT_OP_MIN || q->op == HT_OP_CUMMAX ||
                       q->op == HT_OP_CUMMIN;
    const int64_t n = q->x.view.shape[q->axis];
    /* Differences of nearly equal terms are multiplied by up to eps^-1.5. */
    const bool norm = q->op == HT_OP_LAYER_NORM || q->op == HT_OP_RMS_NORM_GRAD || q->op == HT_OP_LAYER_NORM_GRAD;
    const double walk = (norm ? 64.0 : 8.0) + sqrt((double)n), small = t == HT_F16 ? 0x1p-14 : 1e-3 / (double)n;
    const double floor = q->op == HT_OP_SOFTMAX ? small : largest;
    const double tolerance = t == HT_F64 ? 64.0 * walk : t == HT_F32 ? walk : 2.0;
    return exact ? got == want : fabs(got - want) <= tolerance * unit_of(t) * fmax(fabs(want), floor);
}

static void compare(question *q) {
    const ht_view *x = &q->x.view;
    beside_results r = beside_make(ask, q);
    const double largest = largest_of(&q->x);
    for (int64_t i = 0; i < r.size; i++) {
        const double want = ht_get_f64(r.dtype, r.of[CPU], i), is = ht_get_f64(r.dtype, r.of[GPU], i);
        if (!agree(q, largest, is, want, r.dtype))
            fail_msg(
                "%s axis %d reverse %d inclusive %d of %s, %d axes, the first %lld, the last %lld by %lld: element "
                "%lld is %.17g, not %.17g",
                test_op_name(q->op), q->axis, q->reverse, q->inclusive, ht_dtype_name(x->dtype), x->n_dims,
                (long long)x->shape[0], (long long)x->shape[x->n_dims - 1], (long long)x->stride[x->n_dims - 1],
                (long long)i, is, want);
    }
    beside_free(&r);
    free(q->x.memory), free(q->weight.memory), free(q->bias.memory), free(q->grad.memory);
}

/* ---- cases ---- */

static ht_dtype any_float(void) { return float_types[draw(4)]; }
static ht_dtype any_dtype(void) { return draw(13) < 4 ? any_float() : int_types[draw(9)]; }

static const shape lengths[] = {{1, {1}},          {1, {7}},         {1, {33}},         {1, {1000}},    {1, {1025}},
                                {1, {8193}},       {1, {40001}},     {2, {300, 3}},     {2, {3, 300}},  {2, {5, 1031}},
                                {2, {1031, 5}},    {3, {2, 600, 7}}, {3, {4, 3, 70}},   {2, {40, 40}},  {2, {2, 9001}},
                                {2, {9001, 2}},    {2, {64, 512}},   {3, {2, 3, 4096}}, {2, {2, 5000}}, {1, {20000}},
                                {3, {1, 17000, 3}}};
enum { N_SHAPES = sizeof lengths / sizeof *lengths };

static const ht_op_id of_floats[] = {HT_OP_MEAN, HT_OP_VAR, HT_OP_LOGSUMEXP, HT_OP_SOFTMAX, HT_OP_LOGCUMSUMEXP};
static const ht_op_id of_all[] = {HT_OP_SUM,    HT_OP_PROD,   HT_OP_MAX,     HT_OP_MIN,    HT_OP_ARGMAX,
                                  HT_OP_ARGMIN, HT_OP_CUMSUM, HT_OP_CUMPROD, HT_OP_CUMMAX, HT_OP_CUMMIN};
enum { N_OF_FLOATS = sizeof of_floats / sizeof *of_floats, N_OF_ALL = sizeof of_all / sizeof *of_all };

UNIT_TEST(reductions_and_scans) {
    if (!beside_stream[GPU]) skip();
    for (int o = 0; o < N_OF_FLOATS + N_OF_ALL; o++)
        for (int i = 0; i < test_cases(N_SHAPES, 50 * N_SHAPES); i++) {
            if (!test_takes(i + o, 2)) continue;
            const int n_dims = lengths[i % N_SHAPES].n_dims;
            question q = {.op = o < N_OF_ALL ? of_all[o] : of_floats[o - N_OF_ALL],
                          .axis = (int)draw((uint32_t)n_dims)};
            const ht_dtype dtype = o < N_OF_ALL ? any_dtype() : any_float();
            /* A product of many is nothing, or all. */
            const bool product = q.op == HT_OP_PROD || q.op == HT_OP_CUMPROD;
            const value_kind how = product ? FEW : (value_kind)draw(N_VALUES);
            q.reverse = draw(2);
            q.inclusive = draw(3) > 0;
            q.x = operand_new(dtype, lengths[i % N_SHAPES].dim, n_dims, any_layout(), how);
            compare(&q);
        }
}

UNIT_TEST(recurrences) {
    if (!beside_stream[GPU]) skip();
    for (int i = 0; i < test_cases(N_SHAPES, 2 * N_SHAPES); i++) {
        const int n_dims = lengths[i % N_SHAPES].n_dims;
        const int64_t *dim = lengths[i % N_SHAPES].dim;
        question q = {.op = HT_OP_RECURRENCE, .axis = n_dims - 1, .reverse = draw(2)};
        const ht_dtype dtype = any_float();
        q.x = operand_new(dtype, dim, n_dims, any_layout(), PLAIN);
        q.weight = operand_new(dtype, dim, n_dims, any_layout(), PLAIN);
        for (int64_t k = 0; k < q.weight.room; k++) /* a contraction, with some zeros */
            ht_set_f64(dtype, q.weight.memory, k, draw(9) ? 0.45 * ht_get_f64(dtype, q.weight.memory, k) : 0.0);
        compare(&q);
    }
}

UNIT_TEST(norms_and_their_gradients) {
    if (!beside_stream[GPU]) skip();
    static const ht_op_id ops[] = {HT_OP_RMS_NORM, HT_OP_LAYER_NORM, HT_OP_RMS_NORM_GRAD, HT_OP_LAYER_NORM_GRAD};
    for (int i = 0; i < test_cases(4 * N_SHAPES, 8 * N_SHAPES); i++) {
        const int n_dims = lengths[i / 4 % N_SHAPES].n_dims;
        const int64_t *dim = lengths[i / 4 % N_SHAPES].dim;
        question q = {.op = ops[i % 4], .axis = 0}; /* the gradients' sums are over rows */
        const ht_dtype dtype = any_float();
        q.x = operand_new(dtype, dim, n_dims, any_layout(), draw(8) ? PLAIN : FEW);
        q.grad = operand_new(dtype, dim, n_dims, any_layout(), PLAIN);
        if (draw(4)) q.weight = operand_new(dtype, &dim[n_dims - 1], 1, (layout)draw(REPEATED), PLAIN);
        if (draw(4)) q.bias = operand_new(dtype, &dim[n_dims - 1], 1, (layout)draw(REPEATED), PLAIN);
        compare(&q);
    }
}

UNIT_TEST(rotary_embeddings) {
    if (!beside_stream[GPU]) skip();
    static const int64_t heads[][3] = {{1, 1, 2}, {3, 5, 64}, {70, 8, 128}, {2, 3, 81}, {600, 9, 6}, {2, 2, 600}};
    for (int i = 0; i < 48; i++) {
        const int64_t *dim = heads[i % 6];
        question q = {.op = HT_OP_ROPE, .axis = 2};
        const int32_t dims = (int32_t)(draw(2) ? dim[2] / 2 * 2 : dim[2] / 4 * 2);
        q.rope = (ht_rope_config){.theta = draw(2) ? 1e4f : 5e5f,
                                  .scale = draw(2) ? 1.0f : 0.25f,
                                  .magnitude = draw(2) ? 1.0f : 1.25f,
                                  .dims = dims,
                                  .interleaved = draw(2)};
        q.x = operand_new(any_float(), dim, 3, any_layout(), PLAIN);
        q.weight = operand_new(HT_I32, dim, 1, CONTIGUOUS, PLAIN);
        for (int64_t k = 0; k < q.weight.room; k++)
            ((int32_t *)q.weight.memory)[k] = (int32_t)draw(i % 2 ? 1 << 20 : 100);
        if (draw(2) && dims) {
            q.bias = operand_new(HT_F32, &(int64_t){dims / 2}, 1, draw(2) ? EVERY_SECOND : CONTIGUOUS, PLAIN);
            for (int64_t k = 0; k < q.bias.room; k++) ((float *)q.bias.memory)[k] = 1.0f + (float)draw(50);
        }
        compare(&q);
    }
}

/* A row has the same bits alone and among others. */
UNIT_TEST(rows_do_not_depend_on_how_many_there_are) {
    if (!beside_stream[GPU]) skip();
    static const ht_op_id ops[] = {HT_OP_SUM, HT_OP_VAR, HT_OP_LOGSUMEXP, HT_OP_SOFTMAX, HT_OP_RMS_NORM, HT_OP_CUMSUM};
    enum { ROWS = 5, LONGEST = 20001 };
    float *all_rows = malloc(sizeof(float) * ROWS * LONGEST), *one = malloc(sizeof(float) * LONGEST);
    static const int64_t columns[] = {5, 100, 2000, 4096, 9000, LONGEST};
    for (size_t i = 0; i < 36; i++) {
        const int64_t n = columns[i / 6];
        question q = {.op = ops[i % 6], .axis = 1, .inclusive = true};
        q.x = operand_new(HT_F32, (int64_t[]){ROWS, n}, 2, CONTIGUOUS, PLAIN);
        ht_scope *s = ht_scope_new(beside_stream[GPU]);
        ht_array *y = ask(s, &q);
        const int64_t each = ht_array_size(y) / ROWS;
        assert_int_equal(ht_array_read(s, y, all_rows, sizeof(float) * (size_t)(ROWS * each), NULL), HT_OK);
        question alone = q;
        alone.x.view.shape[0] = 1;
        alone.x.view.data = (float *)q.x.memory + 3 * n; /* not aligned as it was, where n is odd */
        ht_array *last = ask(s, &alone);
        assert_int_equal(ht_array_read(s, last, one, sizeof(float) * (size_t)each, NULL), HT_OK);
        assert_memory_equal(one, all_rows + 3 * each, sizeof(float) * (size_t)each);
        ht_scope_free(s);
        free(q.x.memory);
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
