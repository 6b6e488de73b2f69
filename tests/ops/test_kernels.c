/* Elementwise kernels of every instruction set against the plain ones: odd sizes, tails, any strides, extreme values, one
 * thread and several. */
#include "cpu/element.h"
#include "support/operands.h"
#include "support/test.h"
#include "support/weights.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* One elementwise case: `n_in` operands in different layouts. */
static void elementwise_case(ht_op_id op, const void *params, int n_in, ht_dtype from, ht_dtype to, const shape *s,
                             int how, values kind, double tolerance) {
    uint64_t state = (uint64_t)op * 1000003u + (uint64_t)how * 31u + (uint64_t)from;
    operand o[2];
    for (int i = 0; i < n_in; i++)
        o[i] = test_operand(from, s->n_dims, s->dim, (layout)((how + 2 * i) % LAYOUT_COUNT), kind, &state);
    char what[96];
    snprintf(what, sizeof what, "%d axes, last %lld, layout %d, %s", s->n_dims,
             (long long)(s->n_dims ? s->dim[s->n_dims - 1] : 1), how, kind == EXTREME ? "extreme" : "ordinary");
    comparison c = {.op = op, .params = params, .n_in = n_in, .tolerance = tolerance, .what = what};
    for (int i = 0; i < n_in; i++) c.in[i] = o[i].view;
    c.out = test_view(NULL, to, s->n_dims, s->dim);
    test_compare(&c);
    for (int i = 0; i < n_in; i++) free(o[i].memory);
}

static void all_layouts(ht_op_id op, const void *params, int n_in, ht_dtype from, ht_dtype to) {
    for (EACH(s, shapes))
        for (int how = 0; how < LAYOUT_COUNT; how++)
            for (int kind = 0; kind < VALUES_COUNT; kind++) {
                if (!test_takes((int)(s + (size_t)op) + how + kind + (int)from, 6)) continue;
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
            if (test_takes((int)(s + (size_t)op) + how + (int)from + (int)to, 3))
                elementwise_case(op, params, n_in, from, to, &shapes[which[s]], how, (values)(how % VALUES_COUNT), 0.0);
}

UNIT_TEST(elementwise) {
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

UNIT_TEST(integers) {
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

UNIT_TEST(tests_and_comparisons) {
    static const ht_op_id unary[] = {HT_OP_IS_NAN, HT_OP_IS_INF, HT_OP_IS_FINITE, HT_OP_LOGICAL_NOT};
    static const ht_op_id binary[] = {HT_OP_EQUAL, HT_OP_NOT_EQUAL, HT_OP_LESS, HT_OP_LESS_EQUAL};
    for (int t = HT_BOOL; t < HT_DTYPE_COUNT; t++) {
        for (EACH(i, unary)) some_layouts(unary[i], NULL, 1, (ht_dtype)t, HT_BOOL);
        for (EACH(i, binary)) some_layouts(binary[i], NULL, 2, (ht_dtype)t, HT_BOOL);
    }
    some_layouts(HT_OP_LOGICAL_AND, NULL, 2, HT_BOOL, HT_BOOL);
    some_layouts(HT_OP_LOGICAL_OR, NULL, 2, HT_BOOL, HT_BOOL);
}

UNIT_TEST(casts) {
    for (int from = HT_BOOL; from < HT_DTYPE_COUNT; from++)
        for (int to = HT_BOOL; to < HT_DTYPE_COUNT; to++)
            if (from != to) some_layouts(HT_OP_CAST, NULL, 1, (ht_dtype)from, (ht_dtype)to);
}

UNIT_TEST(choices) {
    static const int which[] = {0, 6, 8, 13, 15, 18};
    for (int t = HT_BOOL; t < HT_DTYPE_COUNT; t++)
        for (EACH(s, which))
            for (int how = 0; how < LAYOUT_COUNT; how++) {
                const shape *of = &shapes[which[s]];
                uint64_t seed = (uint64_t)(t * 7 + how);
                operand o[3];
                for (int i = 0; i < 3; i++)
                    o[i] = test_operand(i ? (ht_dtype)t : HT_BOOL, of->n_dims, of->dim,
                                        (layout)((how + 2 * i) % LAYOUT_COUNT), EXTREME, &seed);
                comparison c = {.op = HT_OP_WHERE, .n_in = 3, .what = "choice"};
                for (int i = 0; i < 3; i++) c.in[i] = o[i].view;
                c.out = test_view(NULL, (ht_dtype)t, of->n_dims, of->dim);
                test_compare(&c);
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
            ht_set_f32(dtype, o.memory, i, test_value(EXTREME, state));
        else
            ht_set_int(dtype, o.memory, i, (int64_t)test_random(state));
    o.view.data = (char *)o.memory + (size_t)first * bytes;
    return o;
}

UNIT_TEST(operands_across) {
    static const shape some[] = {{2, {67, 131}},      {2, {131, 64}},     {2, {5, 1500}},
                                 {2, {1500, 5}},      {2, {4, 4}},        {3, {3, 70, 65}},
                                 {3, {70, 3, 66}},    {3, {9, 300, 3}},   {3, {7, 8, 9}},
                                 {4, {2, 33, 3, 40}}, {4, {5, 6, 7, 20}}, {2, {1200, 1801}}}; /* the last is streamed */
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
                if (s + 1 < sizeof some / sizeof *some ? !test_takes((int)(i + s) + turn, 6) : !test_takes((int)i, 3))
                    continue;
                if (TEST_EMULATED && (turn > 0 || s + 1 == sizeof some / sizeof *some)) continue;
                operand o[3];
                comparison c = {.op = cases[i].op, .n_in = cases[i].n_in, .what = "across"};
                for (int k = 0; k < c.n_in; k++) {
                    o[k] = operand_across(cases[i].in[k], &some[s], &seed);
                    c.in[k] = o[k].view;
                }
                c.out = test_view(NULL, cases[i].to, some[s].n_dims, some[s].dim);
                test_compare(&c);
                for (int k = 0; k < c.n_in; k++) free(o[k].memory);
            }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(elementwise), cmocka_unit_test(integers), cmocka_unit_test(tests_and_comparisons),
        cmocka_unit_test(casts),       cmocka_unit_test(choices),  cmocka_unit_test(operands_across),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
