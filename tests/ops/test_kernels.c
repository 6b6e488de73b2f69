/* Every kernel of every instruction set against the plain one: odd sizes, tails, any strides, extreme values, one thread
 * and several. */
#include "base/half.h"
#include "cpu/reference/value.h"
#include "support/kernels.h"
#include "support/test.h"
#include "support/weights.h"

#include <float.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* How an operand lies in memory. */
typedef enum layout { CONTIGUOUS, SHIFTED, REVERSED_AXES, EVERY_SECOND, BACKWARDS, REPEATED, LAYOUT_COUNT } layout;

typedef struct operand {
    ht_view view;
    void *memory;
} operand;

typedef enum values { ORDINARY, EXTREME, VALUES_COUNT } values;

static float float_value(values kind, uint64_t *state) {
    static const float extremes[] = {INFINITY, -INFINITY, NAN,      0.0f,  -0.0f,     FLT_MAX, -FLT_MAX,
                                     FLT_MIN,  -FLT_MIN,  1e-41f,   1e20f, -1e20f,    65504.f, 65520.f,
                                     88.7f,    -87.3f,    -87.337f, 1.0f,  -103.972f, 0.5f,    2147483648.0f};
    if (kind == EXTREME && test_random(state) % 3 == 0)
        return extremes[test_random(state) % (sizeof extremes / sizeof *extremes)];
    return 4.0f * test_random_float(state);
}

/* An operand of the given shape with random elements, laid out in memory of its own. */
static operand operand_make(ht_dtype dtype, int n_dims, const int64_t *shape, layout how, values kind,
                            uint64_t *state) {
    operand o = {.view = {.dtype = dtype, .n_dims = n_dims}};
    int64_t step = how == EVERY_SECOND ? 2 : 1, size = 1;
    for (int i = 0; i < n_dims; i++) {
        int axis = how == REVERSED_AXES ? i : n_dims - 1 - i; /* the one that varies fastest comes first */
        o.view.shape[axis] = shape[axis];
        o.view.stride[axis] = size * step;
        size *= shape[axis] > 0 ? shape[axis] : 1;
    }
    int64_t room = size * step + 1, first = how == SHIFTED ? 1 : 0;
    if (how == BACKWARDS && n_dims > 0) {
        first = (shape[n_dims - 1] > 0 ? shape[n_dims - 1] : 1) - 1;
        o.view.stride[n_dims - 1] = -1;
    }
    if (how == REPEATED && n_dims > 0) o.view.stride[state[0] % (uint64_t)n_dims] = 0;
    size_t bytes = ht_dtype_bytes(dtype);
    o.memory = malloc((size_t)room * bytes);
    assert_non_null(o.memory);
    for (int64_t i = 0; i < room; i++) {
        if (ht_dtype_is_float(dtype))
            ht_set_f32(dtype, o.memory, i, float_value(kind, state));
        else
            ht_set_int(dtype, o.memory, i, (int64_t)((uint64_t)test_random(state) << 32 | test_random(state)));
    }
    o.view.data = (char *)o.memory + (size_t)first * bytes;
    return o;
}

/* ---- comparing ---- */

/* Equal, or both NaN, or for floats within `tolerance` of the larger of 1 and their size. */
static bool alike(ht_dtype t, const void *a, const void *b, int64_t i, double tolerance) {
    size_t bytes = ht_dtype_bytes(t);
    if (memcmp((const char *)a + (size_t)i * bytes, (const char *)b + (size_t)i * bytes, bytes) == 0) return true;
    if (!ht_dtype_is_float(t)) return false;
    double x = ht_get_f64(t, a, i), y = ht_get_f64(t, b, i);
    if (isnan(x) || isnan(y)) return isnan(x) && isnan(y);
    if (x == 0.0 && y == 0.0) return signbit(x) == signbit(y) || tolerance > 0.0;
    if (isinf(x) || isinf(y) || tolerance == 0.0) return false;
    double rounding = t == HT_F16 ? 0x1p-10 : t == HT_BF16 ? 0x1p-7 : 0.0;
    return fabs(x - y) <= (tolerance + rounding) * fmax(1.0, fmax(fabs(x), fabs(y)));
}

typedef struct comparison {
    ht_op_id op;
    const void *params;
    int n_in;
    ht_view in[8], out; /* out.data is filled in */
    double tolerance;
    const char *what;
} comparison;

/* The kernel of every device and of 1 and 3 threads against the plain one's result. */
static void compare(const comparison *c) {
    int64_t size = ht_view_size(&c->out);
    size_t bytes = (size_t)size * ht_dtype_bytes(c->out.dtype), guard = 64;
    char *want = malloc(bytes + guard), *got = malloc(bytes + guard);
    static ht_device *devices[2][TEST_MAX_DEVICES]; /* kept: starting threads for every case would take the time */
    static int n;
    if (n == 0) n = test_devices(1, devices[0]), test_devices(3, devices[1]);
    ht_view out = c->out;
    out.data = want;
    ht_error err = {0};
    ht_status expected = test_run(devices[0][0], c->op, c->params, c->n_in, c->in, &out, NULL, &err);
    for (int t = 0; t < 2; t++)
        for (int d = t ? 0 : 1; d < n; d++) {
            memset(got, 0x5a, bytes + guard);
            out.data = got;
            ht_status status = test_run(devices[t][d], c->op, c->params, c->n_in, c->in, &out, NULL, &err);
            const char *isa = devices[t][d]->instruction_set;
            if (status != expected)
                fail_msg("%s (%s, %s): status %d, not %d", test_op_name(c->op), isa, c->what, status, expected);
            if (status != HT_OK) continue;
            for (int64_t i = 0; i < size; i++)
                if (!alike(out.dtype, want, got, i, c->tolerance))
                    fail_msg("%s (%s, %s, %s): element %lld of %lld is %g, not %g", test_op_name(c->op), isa, c->what,
                             ht_dtype_name(out.dtype), (long long)i, (long long)size, ht_get_f64(out.dtype, got, i),
                             ht_get_f64(out.dtype, want, i));
            for (size_t i = bytes; i < bytes + guard; i++)
                if (got[i] != 0x5a) fail_msg("%s (%s, %s) writes past its result", test_op_name(c->op), isa, c->what);
        }
    free(want), free(got);
}

/* ---- cases ---- */

typedef struct shape {
    int n_dims;
    int64_t dim[4];
} shape;

static const shape shapes[] = {
    {0, {0}},      {1, {0}},       {1, {1}},        {1, {15}},         {1, {16}},       {1, {17}},    {1, {63}},
    {1, {65}},     {1, {577}},     {2, {3, 0}},     {2, {0, 3}},       {2, {5, 1}},     {2, {1, 33}}, {2, {7, 31}},
    {2, {19, 64}}, {3, {3, 5, 7}}, {3, {2, 1, 17}}, {4, {2, 3, 4, 5}}, {2, {2, 20011}}, {1, {70001}},
};
static const ht_dtype float_types[] = {HT_F32, HT_F16, HT_BF16, HT_F64};
static const ht_dtype int_types[] = {HT_BOOL, HT_U8, HT_U16, HT_U32, HT_U64, HT_I8, HT_I16, HT_I32, HT_I64};
#define EACH(i, list)                                                                                                  \
    size_t i = 0;                                                                                                      \
    i < sizeof(list) / sizeof *(list);                                                                                 \
    i++

/* One elementwise case: `n_in` operands in different layouts. */
static void elementwise_case(ht_op_id op, const void *params, int n_in, ht_dtype from, ht_dtype to, const shape *s,
                             int how, values kind, double tolerance) {
    uint64_t state = (uint64_t)op * 1000003u + (uint64_t)how * 31u + (uint64_t)from;
    operand o[2];
    for (int i = 0; i < n_in; i++)
        o[i] = operand_make(from, s->n_dims, s->dim, (layout)((how + 2 * i) % LAYOUT_COUNT), kind, &state);
    char what[96];
    snprintf(what, sizeof what, "%d axes, last %lld, layout %d, %s", s->n_dims,
             (long long)(s->n_dims ? s->dim[s->n_dims - 1] : 1), how, kind == EXTREME ? "extreme" : "ordinary");
    comparison c = {.op = op, .params = params, .n_in = n_in, .tolerance = tolerance, .what = what};
    for (int i = 0; i < n_in; i++) c.in[i] = o[i].view;
    c.out = test_view(NULL, to, s->n_dims, s->dim);
    compare(&c);
    for (int i = 0; i < n_in; i++) free(o[i].memory);
}

static void all_layouts(ht_op_id op, const void *params, int n_in, ht_dtype from, ht_dtype to) {
    for (EACH(s, shapes))
        for (int how = 0; how < LAYOUT_COUNT; how++)
            for (int kind = 0; kind < VALUES_COUNT; kind++) {
                bool large = shapes[s].n_dims > 0 && shapes[s].dim[shapes[s].n_dims - 1] > 10000;
                if (large && (how > REVERSED_AXES || kind == EXTREME)) continue;
                elementwise_case(op, params, n_in, from, to, &shapes[s], how, (values)kind, 0.0);
            }
}

/* Some shapes in every layout: what blocks of each dtype compute, not how they are cut. */
static void some_layouts(ht_op_id op, const void *params, int n_in, ht_dtype from, ht_dtype to) {
    static const int which[] = {0, 5, 6, 8, 13, 15};
    for (EACH(s, which))
        for (int how = 0; how < LAYOUT_COUNT; how++)
            elementwise_case(op, params, n_in, from, to, &shapes[which[s]], how, (values)(how % VALUES_COUNT), 0.0);
}

static void elementwise(void **state) {
    (void)state;
    static const ht_op_id unary[] = {HT_OP_NEGATIVE, HT_OP_ABS,   HT_OP_SQUARE,    HT_OP_SQRT,  HT_OP_RSQRT,
                                     HT_OP_EXP,      HT_OP_LOG,   HT_OP_SIN,       HT_OP_COS,   HT_OP_TANH,
                                     HT_OP_SIGMOID,  HT_OP_SILU,  HT_OP_GELU_TANH, HT_OP_SCALE, HT_OP_SOFTCAP,
                                     HT_OP_SIGN,     HT_OP_FLOOR, HT_OP_CEIL,      HT_OP_ROUND, HT_OP_RECIPROCAL};
    static const ht_op_id binary[] = {HT_OP_ADD,     HT_OP_SUBTRACT, HT_OP_MULTIPLY,    HT_OP_DIVIDE,
                                      HT_OP_MINIMUM, HT_OP_MAXIMUM,  HT_OP_FLOOR_DIVIDE};
    static const ht_op_id wide[] = {HT_OP_EXPM1,  HT_OP_LOG2,   HT_OP_LOG10,  HT_OP_LOG1P, HT_OP_TAN,
                                    HT_OP_ARCSIN, HT_OP_ARCCOS, HT_OP_ARCTAN, HT_OP_SINH,  HT_OP_COSH,
                                    HT_OP_ERF,    HT_OP_ERFINV, HT_OP_GELU};
    static const ht_op_id wide_binary[] = {HT_OP_POWER, HT_OP_LOGADDEXP, HT_OP_ARCTAN2, HT_OP_REMAINDER};
    ht_scale_params factor = {.value = 3.7f};
    for (EACH(t, float_types)) {
        for (EACH(i, unary)) all_layouts(unary[i], &factor, 1, float_types[t], float_types[t]);
        for (EACH(i, binary)) all_layouts(binary[i], NULL, 2, float_types[t], float_types[t]);
        for (EACH(i, wide)) some_layouts(wide[i], NULL, 1, float_types[t], float_types[t]);
        for (EACH(i, wide_binary)) some_layouts(wide_binary[i], NULL, 2, float_types[t], float_types[t]);
        const ht_nan_to_num_params p = {.nan = 1.0, .posinf = (double)NAN, .neginf = -2.0};
        some_layouts(HT_OP_NAN_TO_NUM, &p, 1, float_types[t], float_types[t]);
        all_layouts(HT_OP_COPY, NULL, 1, float_types[t], float_types[t]);
    }
    for (EACH(t, int_types)) {
        all_layouts(HT_OP_COPY, NULL, 1, int_types[t], int_types[t]);
        elementwise_case(HT_OP_EXP, NULL, 1, int_types[t], int_types[t], &shapes[13], 0, ORDINARY,
                         0.0); /* refused alike */
    }
}

static void integers(void **state) {
    (void)state;
    static const ht_op_id unary[] = {HT_OP_NEGATIVE, HT_OP_ABS, HT_OP_SQUARE, HT_OP_SIGN, HT_OP_BITWISE_INVERT};
    static const ht_op_id binary[] = {HT_OP_ADD,          HT_OP_SUBTRACT,    HT_OP_MULTIPLY,    HT_OP_DIVIDE,
                                      HT_OP_MINIMUM,      HT_OP_MAXIMUM,     HT_OP_BITWISE_AND, HT_OP_BITWISE_OR,
                                      HT_OP_FLOOR_DIVIDE, HT_OP_BITWISE_XOR, HT_OP_LEFT_SHIFT,  HT_OP_RIGHT_SHIFT,
                                      HT_OP_REMAINDER,    HT_OP_POWER};
    for (EACH(t, int_types)) {
        for (EACH(i, unary)) some_layouts(unary[i], NULL, 1, int_types[t], int_types[t]);
        for (EACH(i, binary)) some_layouts(binary[i], NULL, 2, int_types[t], int_types[t]);
    }
}

static void tests_and_comparisons(void **state) {
    (void)state;
    static const ht_op_id unary[] = {HT_OP_IS_NAN, HT_OP_IS_INF, HT_OP_IS_FINITE, HT_OP_LOGICAL_NOT};
    static const ht_op_id binary[] = {HT_OP_EQUAL, HT_OP_NOT_EQUAL, HT_OP_LESS, HT_OP_LESS_EQUAL};
    for (int t = HT_BOOL; t < HT_DTYPE_COUNT; t++) {
        for (EACH(i, unary)) some_layouts(unary[i], NULL, 1, (ht_dtype)t, HT_BOOL);
        for (EACH(i, binary)) some_layouts(binary[i], NULL, 2, (ht_dtype)t, HT_BOOL);
    }
    some_layouts(HT_OP_LOGICAL_AND, NULL, 2, HT_BOOL, HT_BOOL);
    some_layouts(HT_OP_LOGICAL_OR, NULL, 2, HT_BOOL, HT_BOOL);
}

static void casts(void **state) {
    (void)state;
    for (int from = HT_BOOL; from < HT_DTYPE_COUNT; from++)
        for (int to = HT_BOOL; to < HT_DTYPE_COUNT; to++)
            if (from != to) some_layouts(HT_OP_CAST, NULL, 1, (ht_dtype)from, (ht_dtype)to);
}

static void choices(void **state) {
    (void)state;
    static const int which[] = {0, 6, 8, 13, 15, 18};
    for (int t = HT_BOOL; t < HT_DTYPE_COUNT; t++)
        for (EACH(s, which))
            for (int how = 0; how < LAYOUT_COUNT; how++) {
                const shape *of = &shapes[which[s]];
                uint64_t seed = (uint64_t)(t * 7 + how);
                operand o[3];
                for (int i = 0; i < 3; i++)
                    o[i] = operand_make(i ? (ht_dtype)t : HT_BOOL, of->n_dims, of->dim,
                                        (layout)((how + 2 * i) % LAYOUT_COUNT), EXTREME, &seed);
                comparison c = {.op = HT_OP_WHERE, .n_in = 3, .what = "choice"};
                for (int i = 0; i < 3; i++) c.in[i] = o[i].view;
                c.out = test_view(NULL, (ht_dtype)t, of->n_dims, of->dim);
                compare(&c);
                for (int i = 0; i < 3; i++) free(o[i].memory);
            }
}

/* An operand whose axes lie in memory in any order, each forwards or backwards, and whose neighbours are up to two apart. */
static operand operand_across(ht_dtype dtype, const shape *s, uint64_t *state) {
    operand o = {.view = {.dtype = dtype, .n_dims = s->n_dims}};
    int axis[4] = {0, 1, 2, 3};
    for (int i = s->n_dims - 1; i > 0; i--) {
        const int other = (int)(test_random(state) % (uint64_t)(i + 1)), was = axis[i];
        axis[i] = axis[other];
        axis[other] = was;
    }
    int64_t size = test_random(state) % 4 == 0 ? 2 : 1, first = 0;
    for (int i = 0; i < s->n_dims; i++) {
        const int d = axis[i];
        const bool backwards = test_random(state) % 3 == 0;
        o.view.shape[d] = s->dim[d];
        o.view.stride[d] = backwards ? -size : size;
        first += backwards ? size * (s->dim[d] - 1) : 0;
        size *= s->dim[d];
    }
    const size_t bytes = ht_dtype_bytes(dtype);
    o.memory = malloc((size_t)size * bytes);
    assert_non_null(o.memory);
    for (int64_t i = 0; i < size; i++)
        if (ht_dtype_is_float(dtype))
            ht_set_f32(dtype, o.memory, i, float_value(EXTREME, state));
        else
            ht_set_int(dtype, o.memory, i, (int64_t)test_random(state));
    o.view.data = (char *)o.memory + (size_t)first * bytes;
    return o;
}

static void operands_across(void **state) {
    (void)state;
    static const shape some[] = {
        {2, {67, 131}}, {2, {131, 64}},      {2, {5, 1500}},     {2, {1500, 5}},
        {2, {4, 4}},    {3, {3, 70, 65}},    {3, {70, 3, 66}},   {3, {9, 300, 3}},
        {3, {7, 8, 9}}, {4, {2, 33, 3, 40}}, {4, {5, 6, 7, 20}}, {2, {1200, 1801}}}; /* the last is round the caches */
    static const struct {
        ht_op_id op;
        int n_in;
        ht_dtype in[3], to;
    } cases[] = {{HT_OP_ADD, 2, {HT_U8, HT_U8}, HT_U8},
                 {HT_OP_ADD, 2, {HT_I16, HT_I16}, HT_I16},
                 {HT_OP_ADD, 2, {HT_BF16, HT_BF16}, HT_BF16},
                 {HT_OP_MULTIPLY, 2, {HT_F32, HT_F32}, HT_F32},
                 {HT_OP_SUBTRACT, 2, {HT_F64, HT_F64}, HT_F64},
                 {HT_OP_LESS, 2, {HT_F32, HT_F32}, HT_BOOL},
                 {HT_OP_WHERE, 3, {HT_BOOL, HT_F32, HT_F32}, HT_F32},
                 {HT_OP_WHERE, 3, {HT_BOOL, HT_I64, HT_I64}, HT_I64},
                 {HT_OP_CAST, 1, {HT_I8}, HT_F64},
                 {HT_OP_NEGATIVE, 1, {HT_F32}, HT_F32},
                 {HT_OP_COPY, 1, {HT_U8}, HT_U8},
                 {HT_OP_COPY, 1, {HT_F16}, HT_F16},
                 {HT_OP_COPY, 1, {HT_F32}, HT_F32},
                 {HT_OP_COPY, 1, {HT_F64}, HT_F64}};
    uint64_t seed = 5;
    for (EACH(i, cases))
        for (EACH(s, some))
            for (int turn = 0; turn < (s + 1 < sizeof some / sizeof *some ? 6 : 1); turn++) {
                operand o[3];
                comparison c = {.op = cases[i].op, .n_in = cases[i].n_in, .what = "across"};
                for (int k = 0; k < c.n_in; k++) {
                    o[k] = operand_across(cases[i].in[k], &some[s], &seed);
                    c.in[k] = o[k].view;
                }
                c.out = test_view(NULL, cases[i].to, some[s].n_dims, some[s].dim);
                compare(&c);
                for (int k = 0; k < c.n_in; k++) free(o[k].memory);
            }
}

/* Reductions: without extreme values a tolerance, with them only where the result is exact or NaN for certain. */
static void reductions(void **state) {
    (void)state;
    static const ht_op_id ops[] = {HT_OP_SUM,    HT_OP_MEAN,   HT_OP_MAX, HT_OP_MIN,
                                   HT_OP_ARGMAX, HT_OP_ARGMIN, HT_OP_VAR, HT_OP_LOGSUMEXP};
    const ht_var_params one = {.ddof = 1};
    for (EACH(i, ops))
        for (EACH(t, float_types))
            for (EACH(s, shapes)) {
                if (shapes[s].n_dims == 0) continue;
                bool place = ops[i] == HT_OP_ARGMAX || ops[i] == HT_OP_ARGMIN;
                bool exact = place || ops[i] == HT_OP_MAX || ops[i] == HT_OP_MIN;
                for (int how = 0; how < LAYOUT_COUNT; how++) {
                    uint64_t seed = s * 7 + (size_t)how;
                    operand x = operand_make(float_types[t], shapes[s].n_dims, shapes[s].dim, (layout)how,
                                             exact && how % 2 ? EXTREME : ORDINARY, &seed);
                    int64_t n = shapes[s].dim[shapes[s].n_dims - 1];
                    comparison c = {.op = ops[i],
                                    .params = &one,
                                    .n_in = 1,
                                    .in = {x.view},
                                    .what = "rows",
                                    .tolerance = exact                 ? 0.0
                                                 : ops[i] == HT_OP_SUM ? 1e-6 * sqrt((double)n + 1)
                                                                       : 4e-6};
                    c.out = test_view(NULL, place ? HT_U32 : float_types[t], shapes[s].n_dims - 1, shapes[s].dim);
                    compare(&c);
                    free(x.memory);
                }
            }
}

static void reductions_of_extremes(void **state) {
    (void)state;
    static const float rows[][3] = {
        {1.0f, NAN, 2.0f},      {INFINITY, 1.0f, 2.0f},   {-INFINITY, 0.0f, -INFINITY},
        {3e38f, 3e38f, -3e38f}, {-0.0f, 0.0f, -0.0f},     {NAN, NAN, NAN},
        {1000.0f, -1000.0f, 0}, {INFINITY, -INFINITY, 0}, {-INFINITY, -INFINITY, -INFINITY}};
    static const ht_op_id ops[] = {HT_OP_MEAN,   HT_OP_MAX, HT_OP_MIN,      HT_OP_ARGMAX,
                                   HT_OP_ARGMIN, HT_OP_VAR, HT_OP_LOGSUMEXP};
    const ht_var_params none = {0};
    for (EACH(r, rows))
        for (int64_t n = 3; n < 40; n += 7)
            for (EACH(i, ops)) {
                if (r == 3 && (ops[i] == HT_OP_MEAN || ops[i] == HT_OP_VAR)) continue; /* f32 overflows, f64 does not */
                float x[40];
                for (int64_t k = 0; k < n; k++) x[k] = k < n - 3 ? rows[r][2] : rows[r][k - (n - 3)];
                comparison c = {.op = ops[i],
                                .params = &none,
                                .n_in = 1,
                                .in = {test_view(x, HT_F32, 1, &n)},
                                .tolerance = 2e-6,
                                .what = "extremes"};
                bool place = ops[i] == HT_OP_ARGMAX || ops[i] == HT_OP_ARGMIN;
                c.out = test_view(NULL, place ? HT_U32 : HT_F32, 0, &n);
                compare(&c);
            }
}

/* Small integers are added in 32 bits, or as they are; rows and columns are longer than what is folded at a time. */
static void reductions_of_integers(void **state) {
    (void)state;
    static const ht_op_id ops[] = {HT_OP_SUM, HT_OP_PROD, HT_OP_MAX, HT_OP_MIN, HT_OP_ARGMAX, HT_OP_ARGMIN};
    static const shape some[] = {{1, {1}},         {1, {70000}},   {2, {19, 64}}, {3, {3, 5, 7}},
                                 {3, {2, 9, 300}}, {2, {2, 9001}}, {2, {3000, 3}}};
    for (EACH(i, ops))
        for (EACH(t, int_types))
            for (EACH(s, some))
                for (int how = 0; how < LAYOUT_COUNT; how++) {
                    const ht_dtype type = int_types[t];
                    if (type == HT_BOOL && i == 1) continue; /* never in that type */
                    uint64_t seed = s * 7 + (size_t)how;
                    operand x = operand_make(type, some[s].n_dims, some[s].dim, (layout)how, ORDINARY, &seed);
                    comparison c = {.op = ops[i], .n_in = 1, .in = {x.view}, .what = "integers"};
                    ht_dtype to = i >= 4 ? HT_U32 : type;
                    if (i < 2 && ht_dtype_bytes(type) < 4 && (type == HT_BOOL || how % 2))
                        to = type == HT_BOOL || ht_dtype_is_signed(type) ? HT_I32 : HT_U32;
                    c.out = test_view(NULL, to, some[s].n_dims - 1, some[s].dim);
                    compare(&c);
                    free(x.memory);
                }
}

/* Every element of a row in turn is the one that decides: a bool among others, or the largest or the first NaN among floats. */
static void one_element_decides(void **state) {
    (void)state;
    enum { MOST = 1100 };
    static const int64_t lengths[] = {1, 7, 16, 17, 63, 64, 65, 100, 130, 255, 257, MOST};
    ht_device *devices[TEST_MAX_DEVICES];
    const int n_devices = test_devices(1, devices);
    for (int d = 0; d < n_devices; d++)
        for (EACH(l, lengths)) {
            const int64_t n = lengths[l], one = 1, dims[2] = {1, n};
            uint8_t truth[MOST], any, all;
            float x[MOST];
            uint32_t most, least;
            ht_view in = test_view(truth, HT_BOOL, 2, dims), reals = test_view(x, HT_F32, 2, dims);
            ht_view to_any = test_view(&any, HT_BOOL, 1, &one), to_all = test_view(&all, HT_BOOL, 1, &one);
            ht_view to_most = test_view(&most, HT_U32, 1, &one), to_least = test_view(&least, HT_U32, 1, &one);
            for (int64_t i = -1; i < n; i++)
                for (int kind = 0; kind < 4; kind++) {
                    static const float others[] = {0.0f, -INFINITY, INFINITY, 1.0f};
                    const bool other = kind % 2;
                    for (int64_t k = 0; k < n; k++) {
                        truth[k] = (uint8_t)(other ? 1 + k % 255 : 0); /* anything but 0 is true */
                        x[k] = kind == 0 && k % 2 ? -0.0f : others[kind];
                    }
                    if (i >= 0) truth[i] = other ? 0 : 128;
                    if (i >= 0) x[i] = kind == 3 ? NAN : 5.0f;
                    if (i >= 0 && kind == 3) x[n - 1] = NAN;
                    test_run_ok(devices[d], HT_OP_MAX, NULL, 1, &in, &to_any, NULL);
                    test_run_ok(devices[d], HT_OP_MIN, NULL, 1, &in, &to_all, NULL);
                    assert_int_equal(any != 0, other ? n > 1 || i < 0 : i >= 0);
                    assert_int_equal(all != 0, other ? i < 0 : n == 1 && i == 0);
                    test_run_ok(devices[d], HT_OP_ARGMAX, NULL, 1, &reals, &to_most, NULL);
                    test_run_ok(devices[d], HT_OP_ARGMIN, NULL, 1, &reals, &to_least, NULL);
                    assert_int_equal(most, i >= 0 && kind != 2 ? i : i == 0 && n > 1);
                    assert_int_equal(least, i >= 0 && kind >= 2 ? i : i == 0 && n > 1);
                }
        }
    test_devices_free(devices, n_devices);
}

/* Longer than what is folded at a time, along rows and columns, with values that decide in any place. */
static void long_reductions(void **state) {
    (void)state;
    static const ht_op_id ops[] = {HT_OP_MAX, HT_OP_MIN, HT_OP_ARGMAX, HT_OP_ARGMIN, HT_OP_PROD};
    static const float last[] = {NAN, -0.0f, 7.0f, -7.0f};
    static const int64_t dims[][2] = {{3, 20000}, {17, 4099}};
    for (EACH(t, float_types))
        for (EACH(d, dims))
            for (EACH(v, last))
                for (int how = 0; how <= REVERSED_AXES; how++) {
                    uint64_t seed = 5 + v;
                    operand x = operand_make(float_types[t], 2, dims[d], (layout)how, ORDINARY, &seed);
                    for (int64_t k = 0; k < dims[d][1]; k++) /* one row in which few differ */
                        ht_set_f32(float_types[t], x.view.data, x.view.stride[0] + k * x.view.stride[1],
                                   k % 4096 == 4000   ? last[v]
                                   : k % 3000 == 2999 ? 0.0f
                                   : v == 1           ? -0.0f
                                                      : 1.0f);
                    for (EACH(i, ops)) {
                        if (ops[i] == HT_OP_PROD && v > 0) continue;
                        bool place = ops[i] == HT_OP_ARGMAX || ops[i] == HT_OP_ARGMIN;
                        comparison c = {.op = ops[i], .n_in = 1, .in = {x.view}, .what = "long"};
                        c.out = test_view(NULL, place ? HT_U32 : float_types[t], 1, dims[d]);
                        compare(&c);
                    }
                    free(x.memory);
                }
}

/* Nothing depends on the number of threads; of numbers around a thousand, as many digits are left as f32 has. */
static void spreads_of_any_threads(void **state) {
    (void)state;
    static const ht_op_id ops[] = {HT_OP_VAR, HT_OP_LOGSUMEXP, HT_OP_SUM};
    static const int64_t dims[][2] = {{3, 20000}, {300, 4099}, {70, 33}};
    const ht_var_params none = {0};
    ht_device *one[TEST_MAX_DEVICES], *three[TEST_MAX_DEVICES];
    int n = test_devices(1, one);
    assert_int_equal(test_devices(3, three), n);
    for (EACH(d, dims))
        for (int how = 0; how <= REVERSED_AXES; how++) {
            uint64_t seed = 11;
            operand x = operand_make(HT_F32, 2, dims[d], (layout)how, ORDINARY, &seed);
            for (int64_t i = 0; i < dims[d][0] * dims[d][1]; i++) ((float *)x.memory)[i] += 1000.0f;
            for (EACH(o, ops))
                for (int k = 1; k < n; k++) {
                    float a[300], b[300], plain[300];
                    ht_view to_a = test_view(a, HT_F32, 1, dims[d]), to_b = test_view(b, HT_F32, 1, dims[d]);
                    ht_view to_plain = test_view(plain, HT_F32, 1, dims[d]);
                    test_run_ok(one[k], ops[o], &none, 1, &x.view, &to_a, NULL);
                    test_run_ok(three[k], ops[o], &none, 1, &x.view, &to_b, NULL);
                    test_run_ok(one[0], ops[o], &none, 1, &x.view, &to_plain, NULL);
                    assert_memory_equal(a, b, (size_t)dims[d][0] * sizeof *a);
                    for (int64_t i = 0; i < dims[d][0]; i++)
                        assert_true(fabsf(a[i] - plain[i]) <= 5e-7f * fabsf(plain[i]));
                }
            free(x.memory);
        }
    test_devices_free(one, n);
    test_devices_free(three, n);
}

/* Sums do not depend on which axis is last in memory, nor on the number of threads. */
static void sums_are_the_same_along_columns(void **state) {
    (void)state;
    static const int64_t dims[][2] = {{9, 3}, {40, 63}, {40, 65}, {300, 1000}, {17, 9001}};
    static const ht_op_id ops[] = {HT_OP_SUM, HT_OP_MEAN, HT_OP_VAR, HT_OP_LOGSUMEXP};
    const ht_var_params none = {0};
    for (int threads = 1; threads < 4; threads += 2) {
        ht_device *devices[TEST_MAX_DEVICES];
        int n = test_devices(threads, devices);
        for (EACH(i, dims))
            for (EACH(t, float_types))
                for (EACH(o, ops))
                    for (int d = 1; d < n; d++) {
                        const int64_t rows = dims[i][0], length = dims[i][1];
                        const ht_dtype type = float_types[t];
                        if (type == HT_F64) continue;
                        uint64_t seed = 3;
                        operand x = operand_make(type, 2, dims[i], CONTIGUOUS, ORDINARY, &seed);
                        operand y = operand_make(type, 2, dims[i], REVERSED_AXES, ORDINARY, &seed);
                        for (int64_t r = 0; r < rows; r++)
                            for (int64_t k = 0; k < length; k++)
                                ht_set_f32(type, y.view.data, k * rows + r,
                                           ht_get_f32(type, x.view.data, r * length + k));
                        float a[300], b[300];
                        ht_view to_a = test_view(a, type, 1, &rows), to_b = test_view(b, type, 1, &rows);
                        test_run_ok(devices[d], ops[o], &none, 1, &x.view, &to_a, NULL);
                        test_run_ok(devices[d], ops[o], &none, 1, &y.view, &to_b, NULL);
                        assert_memory_equal(a, b, (size_t)rows * ht_dtype_bytes(type));
                        free(x.memory), free(y.memory);
                    }
        test_devices_free(devices, n);
    }
}

/* Values whose first ones say little of their mean, or which all lie near it: digits must not be lost. */
static float hard_value(int kind, int64_t i, int64_t n, uint64_t *seed) {
    const float x = test_random_float(seed);
    switch (kind) {
    case 0: return 1e4f + 1e-2f * x;
    case 1: return (float)i + x;                  /* rises */
    case 2: return i < 64 ? 1e5f + x : x;         /* begins far away */
    case 3: return i == n - 1 ? -1e6f : 3.0f + x; /* ends far away */
    default: return 7.0f;
    }
}

static void variances_keep_their_digits(void **state) {
    (void)state;
    enum { ROWS = 3, KINDS = 5 };
    static const int64_t lengths[] = {2, 64, 65, 513, 4096, 9001};
    const ht_var_params none = {0};
    ht_device *devices[TEST_MAX_DEVICES];
    int n_devices = test_devices(2, devices);
    for (EACH(l, lengths))
        for (int kind = 0; kind < KINDS; kind++) {
            const int64_t n = lengths[l], dims[2] = {ROWS, n};
            uint64_t seed = 7;
            operand rows = operand_make(HT_F32, 2, dims, CONTIGUOUS, ORDINARY, &seed);
            operand columns = operand_make(HT_F32, 2, dims, REVERSED_AXES, ORDINARY, &seed);
            double expected[ROWS];
            for (int64_t r = 0; r < ROWS; r++) {
                float *x = (float *)rows.view.data + r * n;
                double mean = 0.0;
                expected[r] = 0.0;
                for (int64_t i = 0; i < n; i++) {
                    /* one row of another kind beside the others */
                    x[i] = hard_value(r == 1 ? (kind + 1) % KINDS : kind, i, n, &seed);
                    ((float *)columns.view.data)[i * ROWS + r] = x[i];
                    mean += (double)x[i] / (double)n;
                }
                for (int64_t i = 0; i < n; i++)
                    expected[r] += ((double)x[i] - mean) * ((double)x[i] - mean) / (double)n;
            }
            for (int d = 0; d < n_devices; d++) {
                float a[ROWS], b[ROWS];
                const int64_t length = ROWS;
                ht_view to_a = test_view(a, HT_F32, 1, &length), to_b = test_view(b, HT_F32, 1, &length);
                test_run_ok(devices[d], HT_OP_VAR, &none, 1, &rows.view, &to_a, NULL);
                test_run_ok(devices[d], HT_OP_VAR, &none, 1, &columns.view, &to_b, NULL);
                if (d > 0) assert_memory_equal(a, b, sizeof a);
                for (int r = 0; r < ROWS; r++)
                    assert_true(fabs((double)a[r] - expected[r]) <= 5e-7 * expected[r] + 1e-12);
            }
            free(rows.memory), free(columns.memory);
        }
    test_devices_free(devices, n_devices);
}

static void rms_norm(void **state) {
    (void)state;
    static const int64_t lengths[] = {1, 6, 16, 63, 64, 65, 128, 576, 577, 640, 896};
    for (EACH(l, lengths))
        for (EACH(t, float_types))
            for (int how = 0; how < LAYOUT_COUNT; how++)
                for (int weighted = 0; weighted < 3; weighted++) {
                    uint64_t seed = l + 3;
                    int64_t dims[3] = {3, 2, lengths[l]};
                    operand x = operand_make(float_types[t], 3, dims, (layout)how, ORDINARY, &seed);
                    operand w = operand_make(float_types[t], 1, &lengths[l], weighted == 2 ? EVERY_SECOND : CONTIGUOUS,
                                             ORDINARY, &seed);
                    ht_rms_norm_params p = {.eps = 1e-5f, .weight_offset = weighted == 2 ? 1.0f : 0.0f};
                    comparison c = {.op = HT_OP_RMS_NORM, .params = &p, .n_in = 2, .tolerance = 2e-6, .what = "norm"};
                    c.in[0] = x.view;
                    c.in[1] = weighted ? w.view : test_absent();
                    c.out = test_view(NULL, float_types[t], 3, dims);
                    compare(&c);
                    free(x.memory), free(w.memory);
                }
}

static void rope(void **state) {
    (void)state;
    static const struct {
        int64_t head_dim;
        ht_rope_params p;
    } cases[] = {{64, {1e4f, 1.0f, 1.0f, 64, false}},   {64, {1e6f, 0.125f, 1.2f, 64, true}},
                 {6, {1e4f, 1.0f, 1.0f, 6, false}},     {80, {1e4f, 1.0f, 1.0f, 32, false}},
                 {256, {1e6f, 1.0f, 1.0f, 256, false}}, {72, {5e5f, 1.0f, 1.0f, 70, true}}};
    static const int32_t positions[] = {0, 1, 5, 4095, 131071, 1048575};
    for (EACH(i, cases))
        for (int how = 0; how < LAYOUT_COUNT; how++)
            for (int factors = 0; factors < 2; factors++) {
                uint64_t seed = i + 11;
                int64_t dims[3] = {6, 3, cases[i].head_dim}, rows = 6, pairs = cases[i].p.dims / 2;
                ht_dtype type = float_types[(i + (size_t)how) % (sizeof float_types / sizeof *float_types)];
                operand x = operand_make(type, 3, dims, (layout)how, ORDINARY, &seed);
                float factor[128];
                for (int k = 0; k < 128; k++) factor[k] = 1.0f + (float)(k % 9);
                comparison c = {.op = HT_OP_ROPE, .params = &cases[i].p, .n_in = 3, .tolerance = 1e-6, .what = "rope"};
                c.in[0] = x.view;
                c.in[1] = test_view((void *)positions, HT_I32, 1, &rows);
                c.in[2] = factors ? test_view(factor, HT_F32, 1, &pairs) : test_absent();
                c.out = test_view(NULL, type, 3, dims);
                compare(&c);
                free(x.memory);
            }
}

/* Sizes beyond those of tiles, pieces, chunks and blocks, and some that are none of them. */
static void large_matmul(void **state) {
    (void)state;
    static const int64_t sizes[][4] = {
        /* matrices, m, n, k */
        {1, 1, 2100, 300},  {1, 2, 139, 513}, {1, 7, 64, 256}, {1, 9, 2065, 31}, {1, 130, 800, 70},  {1, 2051, 17, 5},
        {1, 2050, 2051, 2}, {5, 33, 49, 257}, {2, 1, 130, 64}, {9, 1, 1, 700},   {2, 140, 140, 140}, {1, 400, 56, 260},
        {1, 70, 1, 270},    {1, 1, 45, 270},  {1, 127, 40, 1}, {1, 127, 33, 4},  {1, 3048, 24, 3},   {1, 3, 1100, 530}};
    for (int i = 0; i < (int)(sizeof sizes / sizeof *sizes); i++)
        for (EACH(t, float_types))
            for (int transposed = 0; transposed < 2; transposed++) {
                uint64_t seed = 8;
                const int64_t *s = sizes[i], a_dims[3] = {s[0], s[1], s[3]}, out[3] = {s[0], s[1], s[2]};
                int64_t b_dims[3] = {s[0], transposed ? s[2] : s[3], transposed ? s[3] : s[2]};
                operand a = operand_make(float_types[t], 3, a_dims, CONTIGUOUS, ORDINARY, &seed);
                operand b = operand_make(float_types[t], 3, b_dims, CONTIGUOUS, ORDINARY, &seed);
                ht_matmul_params p = {.transpose_b = transposed};
                comparison c = {.op = HT_OP_MATMUL,
                                .params = &p,
                                .n_in = 2,
                                .in = {a.view, b.view},
                                .tolerance = 1e-4,
                                .what = "large product"};
                c.out = test_view(NULL, float_types[t], 3, out);
                compare(&c);
                free(a.memory), free(b.memory);
            }
}

/* A sum takes the same steps whatever is computed beside it: one and three rows alone against all of them. */
static void matmul_bits(void **state) {
    (void)state;
    enum { M = 37, MOST = 1100, K = 600 };
    static float all[M * MOST], few[3 * MOST];
    ht_device *devices[2][TEST_MAX_DEVICES];
    int n_devices = test_devices(1, devices[0]);
    test_devices(3, devices[1]);
    for (int64_t n = 150; n <= MOST; n += MOST - 150)
        for (int turned = 0; turned < 2; turned++) {
            uint64_t seed = 9;
            operand a = operand_make(HT_F32, 2, (int64_t[]){M, K}, CONTIGUOUS, ORDINARY, &seed);
            operand b =
                operand_make(HT_F32, 2, turned ? (int64_t[]){n, K} : (int64_t[]){K, n}, CONTIGUOUS, ORDINARY, &seed);
            ht_matmul_params p = {.transpose_b = turned};
            for (int d = 0; d < n_devices; d++)
                for (int64_t row = 0; row < M; row += 9) {
                    const int64_t rows = row % 2 ? 3 : 1;
                    ht_view in[2] = {a.view, b.view}, out = test_view(all, HT_F32, 2, (int64_t[]){M, n});
                    if (row == 0) test_run_ok(devices[1][d], HT_OP_MATMUL, &p, 2, in, &out, NULL);
                    in[0].data = (float *)a.view.data + row * K;
                    in[0].shape[0] = rows;
                    out = test_view(few, HT_F32, 2, (int64_t[]){rows, n});
                    test_run_ok(devices[0][d], HT_OP_MATMUL, &p, 2, in, &out, NULL);
                    assert_memory_equal(few, all + row * n, (size_t)(rows * n) * sizeof *few);
                }
            free(a.memory), free(b.memory);
        }
    for (int t = 0; t < 2; t++) test_devices_free(devices[t], n_devices);
}

static void layer_norm(void **state) {
    (void)state;
    static const int64_t lengths[] = {1, 6, 17, 64, 65, 577};
    for (EACH(l, lengths))
        for (EACH(t, float_types))
            for (int how = 0; how < LAYOUT_COUNT; how++)
                for (int given = 0; given < 4; given++) {
                    uint64_t seed = l + 3;
                    int64_t dims[3] = {3, 2, lengths[l]};
                    operand x = operand_make(float_types[t], 3, dims, (layout)how, ORDINARY, &seed);
                    operand w = operand_make(float_types[t], 1, &lengths[l], (layout)how, ORDINARY, &seed);
                    ht_layer_norm_params p = {.eps = 1e-3f};
                    comparison c = {
                        .op = HT_OP_LAYER_NORM, .params = &p, .n_in = 3, .tolerance = 1e-5, .what = "layer norm"};
                    c.in[0] = x.view;
                    c.in[1] = given & 1 ? w.view : test_absent();
                    c.in[2] = given & 2 ? w.view : test_absent();
                    c.out = test_view(NULL, float_types[t], 3, dims);
                    compare(&c);
                    free(x.memory), free(w.memory);
                }
}

/* Rows enough for several blocks of them. */
static void norm_gradients(void **state) {
    (void)state;
    static const int64_t lengths[] = {1, 6, 17, 32, 65, 577};
    for (EACH(l, lengths))
        for (EACH(t, float_types))
            for (int how = 0; how < LAYOUT_COUNT; how++)
                for (int given = 0; given < 8; given++) {
                    uint64_t seed = l + 5;
                    const bool centred = given & 4;
                    const int64_t dims[3] = {how == 0 ? 0 : how == 1 ? 40 : 3, 3, lengths[l]}, n = dims[2];
                    const int64_t rows = dims[0] * dims[1];
                    operand x = operand_make(float_types[t], 3, dims, (layout)how, ORDINARY, &seed);
                    operand grad =
                        operand_make(float_types[t], 3, dims, (layout)((how + given) % LAYOUT_COUNT), ORDINARY, &seed);
                    operand w = operand_make(float_types[t], 1, &n, (layout)how, ORDINARY, &seed);
                    const ht_layer_norm_params layer = {.eps = 1e-1f};
                    const ht_rms_norm_params rms = {.eps = 1e-1f, .weight_offset = given & 2 ? 1.0f : 0.0f};
                    comparison c = {.op = centred ? HT_OP_LAYER_NORM_GRAD : HT_OP_RMS_NORM_GRAD,
                                    .params = centred ? (const void *)&layer : &rms,
                                    .n_in = centred ? 4 : 3,
                                    .tolerance = how == 1 ? 1e-4 : 2e-5,
                                    .what = "gradient of a norm"};
                    c.in[0] = x.view;
                    c.in[1] = given & 1 ? w.view : test_absent();
                    c.in[2] = given & 2 ? w.view : test_absent();
                    c.in[centred ? 3 : 2] = grad.view;
                    int64_t size = rows * n + (given & 1 ? n : 0) + (centred && given & 2 ? n : 0);
                    c.out = test_view(NULL, float_types[t], 1, &size);
                    compare(&c);
                    free(x.memory), free(w.memory), free(grad.memory);
                }
}

/* The gradients of weight and bias have the same bits with any number of threads. */
static void norm_gradients_have_one_order(void **state) {
    (void)state;
    const int64_t dims[2] = {700, 300}, size = 701 * 300;
    uint64_t seed = 9;
    operand x = operand_make(HT_F32, 2, dims, CONTIGUOUS, ORDINARY, &seed);
    operand grad = operand_make(HT_F32, 2, dims, CONTIGUOUS, ORDINARY, &seed);
    operand w = operand_make(HT_F32, 1, &dims[1], CONTIGUOUS, ORDINARY, &seed);
    const ht_rms_norm_params p = {.eps = 1e-5f};
    const ht_view in[3] = {x.view, w.view, grad.view};
    float *first = malloc((size_t)size * sizeof *first), *other = malloc((size_t)size * sizeof *other);
    for (int threads = 1; threads < 5; threads++) {
        ht_device *devices[TEST_MAX_DEVICES];
        int n = test_devices(threads, devices);
        ht_view out = test_view(threads == 1 ? first : other, HT_F32, 1, &size);
        test_run_ok(devices[n - 1], HT_OP_RMS_NORM_GRAD, &p, 3, in, &out, NULL);
        if (threads > 1) assert_memory_equal(first, other, (size_t)size * sizeof *first);
        test_devices_free(devices, n);
    }
    free(first), free(other), free(x.memory), free(grad.memory), free(w.memory);
}

/* Of the same operands: the result as the plain kernel gives it, any gradient of it, and the gradients of q, k and v. */
static void compare_gradient(const comparison *attention) {
    comparison c = *attention;
    uint64_t seed = 21;
    operand result = operand_make(c.out.dtype, 4, c.out.shape, CONTIGUOUS, ORDINARY, &seed);
    operand grad = operand_make(c.out.dtype, 4, c.out.shape, CONTIGUOUS, ORDINARY, &seed);
    ht_device *devices[TEST_MAX_DEVICES];
    int n = test_devices(1, devices);
    test_run_ok(devices[0], HT_OP_SDPA, c.params, c.n_in, c.in, &result.view, NULL);
    test_devices_free(devices, n);
    int64_t size = ht_view_size(&c.in[0]) + ht_view_size(&c.in[1]) + ht_view_size(&c.in[2]);
    c.op = HT_OP_SDPA_GRAD;
    c.n_in = 7;
    c.in[5] = result.view;
    c.in[6] = grad.view;
    c.tolerance = c.out.dtype == HT_F32 ? 5e-4 : c.out.dtype == HT_F64 ? 1e-12 : 0.1;
    c.what = "gradient of attention";
    c.out = test_view(NULL, c.out.dtype, 1, &size);
    compare(&c);
    free(result.memory), free(grad.memory);
}

#ifdef TEST_EMULATED
enum { ATTENTION_STEP = LAYOUT_COUNT };
#else
enum { ATTENTION_STEP = 2 };
#endif

/* Queries, keys, values, a mask and sinks. */
static void attention(void **state) {
    (void)state;
    static const struct {
        int64_t batch, kv_heads, group, n_q, n_k, d, dv;
        ht_sdpa_params p;
    } cases[] = {{2, 2, 3, 5, 7, 6, 9, {0.4f, false, 0}},       {1, 1, 1, 1, 200, 64, 64, {0.1f, true, 0}},
                 {1, 2, 1, 100, 100, 33, 16, {0.2f, true, 0}},  {1, 1, 2, 70, 140, 16, 20, {0.2f, true, 40}},
                 {1, 1, 2, 9, 4, 8, 8, {0.3f, true, 0}},        {1, 1, 1, 3, 64, 8, 40, {0.3f, false, 0}},
                 {1, 1, 1, 140, 300, 16, 16, {0.3f, true, 30}}, {1, 1, 1, 4, 2, 8, 8, {0.3f, true, 0}},
                 {1, 2, 2, 3, 1100, 18, 20, {0.3f, true, 570}}, {1, 2, 2, 1, 600, 32, 20, {0.3f, false, 0}},
                 {2, 1, 1, 8, 529, 300, 16, {0.05f, false, 0}}};
    for (EACH(i, cases))
        for (EACH(t, float_types))
            for (int how = 0; how < LAYOUT_COUNT; how += ATTENTION_STEP)
                for (int masked = 0; masked < 3; masked++) {
                    uint64_t seed = i + 5;
                    int64_t heads = cases[i].group * cases[i].kv_heads;
                    int64_t q[4] = {cases[i].batch, heads, cases[i].n_q, cases[i].d};
                    int64_t k[4] = {cases[i].batch, cases[i].kv_heads, cases[i].n_k, cases[i].d};
                    int64_t v[4] = {cases[i].batch, cases[i].kv_heads, cases[i].n_k, cases[i].dv};
                    int64_t m[4] = {cases[i].batch, heads, cases[i].n_q, cases[i].n_k};
                    int64_t out[4] = {cases[i].batch, heads, cases[i].n_q, cases[i].dv};
                    ht_dtype type = float_types[t];
                    operand in[5] = {operand_make(type, 4, q, (layout)how, ORDINARY, &seed),
                                     operand_make(type, 4, k, (layout)how, ORDINARY, &seed),
                                     operand_make(type, 4, v, (layout)how, ORDINARY, &seed),
                                     operand_make(masked == 1 ? HT_BOOL : type, 4, m, (layout)how, ORDINARY, &seed),
                                     operand_make(type, 1, &heads, (layout)how, ORDINARY, &seed)};
                    comparison c = {
                        .op = HT_OP_SDPA, .params = &cases[i].p, .n_in = 5, .tolerance = 2e-5, .what = "attention"};
                    for (int a = 0; a < 5; a++) c.in[a] = in[a].view;
                    if (!masked) c.in[3] = test_absent();
                    if (masked != 1) c.in[4] = test_absent();
                    c.out = test_view(NULL, type, 4, out);
                    compare(&c);
                    compare_gradient(&c);
                    for (int a = 0; a < 5; a++) free(in[a].memory);
                }
}

/* Masks with numbers that hide keys, up to whole spans and all of them, for few queries and for many. */
static void attention_under_extreme_masks(void **state) {
    (void)state;
    enum { N_K = 1300 };
    static const float hiding[] = {-INFINITY, -FLT_MAX, -1e30f};
    for (int64_t n_q = 1; n_q < 40; n_q += 19)
        for (EACH(h, hiding))
            for (int seen = 0; seen < 5; seen++) {
                uint64_t seed = 8;
                const int64_t q[4] = {1, 2, n_q, 12}, k[4] = {1, 2, N_K, 12}, m[4] = {1, 2, n_q, N_K}, heads = 2;
                operand in[5] = {operand_make(HT_F32, 4, q, CONTIGUOUS, ORDINARY, &seed),
                                 operand_make(HT_F32, 4, k, CONTIGUOUS, ORDINARY, &seed),
                                 operand_make(HT_F32, 4, k, CONTIGUOUS, ORDINARY, &seed),
                                 operand_make(HT_F32, 4, m, CONTIGUOUS, ORDINARY, &seed),
                                 operand_make(HT_F32, 1, &heads, CONTIGUOUS, ORDINARY, &seed)};
                const int64_t first[] = {0, 512, 1299, 3, N_K}, last[] = {511, 1023, 1299, 3, N_K};
                float *mask = in[3].memory;
                for (int64_t i = 0; i < 2 * n_q * N_K; i++)
                    if (i % N_K < first[seen] || i % N_K > last[seen]) mask[i] = hiding[h];
                comparison c = {.op = HT_OP_SDPA,
                                .params = &(ht_sdpa_params){0.3f, false, 0},
                                .n_in = 5,
                                .tolerance = 2e-5,
                                .what = "attention under a mask"};
                for (int a = 0; a < 5; a++) c.in[a] = in[a].view;
                c.out = test_view(NULL, HT_F32, 4, q);
                if (seen % 2) c.in[4] = test_absent();
                compare(&c);
                for (int a = 0; a < 5; a++) free(in[a].memory);
            }
}

/* Attention has the same bits with any number of threads and with every instruction set. */
static void attention_has_one_order(void **state) {
    (void)state;
    enum { N_K = 1700, D = 48 };
    static const int64_t queries[] = {1, 2, 5, 75};
    for (EACH(i, queries)) {
        uint64_t seed = 9;
        const int64_t n_q = queries[i];
        const int64_t q[4] = {1, 2, n_q, D}, k[4] = {1, 2, N_K, D}, size = 2 * n_q * D;
        operand in[3] = {operand_make(HT_F32, 4, q, CONTIGUOUS, ORDINARY, &seed),
                         operand_make(HT_F32, 4, k, CONTIGUOUS, ORDINARY, &seed),
                         operand_make(HT_F32, 4, k, CONTIGUOUS, ORDINARY, &seed)};
        const ht_view views[5] = {in[0].view, in[1].view, in[2].view, test_absent(), test_absent()};
        const ht_sdpa_params p = {0.3f, true, 0};
        float *first = malloc((size_t)size * sizeof *first), *other = malloc((size_t)size * sizeof *other);
        for (int threads = 1; threads < 5; threads++) {
            ht_device *devices[TEST_MAX_DEVICES];
            int n = test_devices(threads, devices);
            for (int d = 1; d < n; d++) { /* the first is the plain kernel */
                const bool begins = threads == 1 && d == 1;
                ht_view out = test_view(begins ? first : other, HT_F32, 4, q);
                test_run_ok(devices[d], HT_OP_SDPA, &p, 5, views, &out, NULL);
                if (!begins) assert_memory_equal(first, other, (size_t)size * sizeof *first);
            }
            test_devices_free(devices, n);
        }
        free(first), free(other);
        for (int a = 0; a < 3; a++) free(in[a].memory);
    }
}

/* Products and gathers that vector devices take from the plain ones or may come to have of their own. */
static void matmul_and_take(void **state) {
    (void)state;
    for (EACH(t, float_types))
        for (int transposed = 0; transposed < 2; transposed++)
            for (int how = 0; how < LAYOUT_COUNT; how++) {
                uint64_t seed = 5;
                int64_t a_dims[4] = {2, 3, 7, 33}, b_dims[3] = {3, transposed ? 5 : 33, transposed ? 33 : 5},
                        out[4] = {2, 3, 7, 5};
                operand a = operand_make(float_types[t], 4, a_dims, (layout)how, ORDINARY, &seed);
                operand b = operand_make(float_types[t], 3, b_dims, (layout)how, ORDINARY, &seed);
                ht_matmul_params p = {.transpose_b = transposed};
                comparison c = {.op = HT_OP_MATMUL,
                                .params = &p,
                                .n_in = 2,
                                .in = {a.view, b.view},
                                .tolerance = 1e-5,
                                .what = "product"};
                c.out = test_view(NULL, float_types[t], 4, out);
                compare(&c);
                free(a.memory), free(b.memory);
            }
    static const int32_t ids[] = {4, 0, 4, 2};
    for (int bad = 0; bad < 2; bad++)
        for (int how = 0; how < LAYOUT_COUNT; how++) {
            uint64_t seed = 6;
            int64_t dims[3] = {bad ? 4 : 5, 3, 17}, n = 4, out[3] = {4, 3, 17};
            operand x = operand_make(HT_F16, 3, dims, (layout)how, ORDINARY, &seed);
            comparison c = {.op = HT_OP_TAKE,
                            .params = &(ht_axis_params){0},
                            .n_in = 2,
                            .in = {x.view, test_view((void *)ids, HT_I32, 1, &n)},
                            .what = "rows by index"};
            c.out = test_view(NULL, HT_F16, 3, out);
            compare(&c);
            free(x.memory);
        }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(elementwise),
        cmocka_unit_test(integers),
        cmocka_unit_test(tests_and_comparisons),
        cmocka_unit_test(casts),
        cmocka_unit_test(choices),
        cmocka_unit_test(operands_across),
        cmocka_unit_test(reductions),
        cmocka_unit_test(reductions_of_extremes),
        cmocka_unit_test(reductions_of_integers),
        cmocka_unit_test(one_element_decides),
        cmocka_unit_test(long_reductions),
        cmocka_unit_test(spreads_of_any_threads),
        cmocka_unit_test(sums_are_the_same_along_columns),
        cmocka_unit_test(variances_keep_their_digits),
        cmocka_unit_test(rms_norm),
        cmocka_unit_test(rope),
        cmocka_unit_test(matmul_and_take),
        cmocka_unit_test(large_matmul),
        cmocka_unit_test(matmul_bits),
        cmocka_unit_test(layer_norm),
        cmocka_unit_test(norm_gradients),
        cmocka_unit_test(norm_gradients_have_one_order),
        cmocka_unit_test(attention),
        cmocka_unit_test(attention_under_extreme_masks),
        cmocka_unit_test(attention_has_one_order),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
