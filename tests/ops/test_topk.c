/* Choosing along the last axis, and products with the chosen matrices. */
#include "cpu/call.h"
#include "cpu/cpu.h"
#include "cpu/matrix_ops.h"
#include "device/params.h"
#include "support/kernels.h"
#include "support/test.h"
#include "support/weights.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static ht_device *device;

static int start(void **state) {
    (void)state;
    ht_error err = {0};
    return ht_cpu_device_new(2, NULL, &device, &err) == HT_OK ? 0 : -1;
}
static int stop(void **state) {
    (void)state;
    ht_cpu_device_free(device);
    return 0;
}

static void check_top_k(const float *x, int64_t n, int32_t k, const int32_t *expected) {
    int32_t got[16];
    ht_view in = test_view((void *)(uintptr_t)x, HT_F32, 2, (int64_t[]){1, n});
    ht_view out = test_view(got, HT_I32, 2, (int64_t[]){1, k});
    test_run_ok(device, HT_OP_TOP_K, &(ht_top_k_params){k}, 1, &in, &out, NULL);
    assert_memory_equal(got, expected, (size_t)k * sizeof *got);
}

UNIT_TEST(largest_first) {
    check_top_k((float[]){1, 5, 3, 5, 2}, 5, 3, (int32_t[]){1, 3, 2});
    check_top_k((float[]){1, 5, 3, 5, 2}, 5, 5, (int32_t[]){1, 3, 2, 4, 0});
    check_top_k((float[]){0.0f, -0.0f, 0.0f}, 3, 2, (int32_t[]){0, 1});
    check_top_k((float[]){-INFINITY, 1, INFINITY, -3}, 4, 4, (int32_t[]){2, 1, 3, 0});
    check_top_k((float[]){1, NAN, INFINITY, NAN}, 4, 3, (int32_t[]){1, 3, 2});
    check_top_k((float[]){7}, 1, 1, (int32_t[]){0});
}

/* Rows with strides, against a selection that looks for the largest k times. */
UNIT_TEST(many_rows) {
    enum { ROWS = 37, N = 21, K = 8 };
    float x[ROWS][2 * N];
    uint64_t seed = 5;
    for (int i = 0; i < ROWS; i++)
        for (int j = 0; j < 2 * N; j++) x[i][j] = (float)((int)(test_random(&seed) % 9) - 4);
    int32_t got[ROWS][K];
    ht_view in = test_view(x, HT_F32, 2, (int64_t[]){ROWS, N}), out = test_view(got, HT_I32, 2, (int64_t[]){ROWS, K});
    in.stride[0] = 2 * N;
    in.stride[1] = 2;
    test_run_ok(device, HT_OP_TOP_K, &(ht_top_k_params){K}, 1, &in, &out, NULL);
    for (int i = 0; i < ROWS; i++) {
        bool used[N] = {false};
        for (int k = 0; k < K; k++) {
            int best = -1;
            for (int j = 0; j < N; j++)
                if (!used[j] && (best < 0 || x[i][2 * j] > x[i][2 * best])) best = j;
            used[best] = true;
            assert_int_equal(got[i][k], best);
        }
    }
    float values[ROWS][K];
    ht_view along[] = {in, out}, to = test_view(values, HT_F32, 2, (int64_t[]){ROWS, K});
    test_run_ok(device, HT_OP_TAKE_ALONG, &(ht_axis_params){1}, 2, along, &to, NULL);
    for (int i = 0; i < ROWS; i++)
        for (int k = 0; k < K; k++) assert_true(values[i][k] == x[i][2 * got[i][k]]);
    got[3][2] = N;
    ht_error err = {0};
    assert_int_equal(test_run(device, HT_OP_TAKE_ALONG, &(ht_axis_params){1}, 2, along, &to, NULL, &err), HT_ERR_INDEX);
    assert_non_null(strstr(err.message, "21"));
}

/* ---- products ---- */

enum { EXPERTS = 5, SETS = 2, ROWS_OUT = 19, K = 64, T = 700, M = 3 };

static void make_expert(ht_matrix *m, ht_weight_type type, ht_precision precision, uint64_t seed) {
    const ht_matrix_ops *ops = device->matrix_ops(device, type, precision);
    *m = (ht_matrix){.ops = ops, .type = type, .n_rows = ROWS_OUT, .k = K};
    m->packed_bytes = ops->packed_bytes(type, ROWS_OUT, K);
    m->packed = aligned_alloc(64, (m->packed_bytes + 63) / 64 * 64);
    unsigned char *stored = malloc(ROWS_OUT * test_row_bytes(type, K));
    assert_true(m->packed && stored);
    test_random_weights(type, ROWS_OUT, K, &seed, stored);
    ops->pack(m, 0, ROWS_OUT, stored, NULL);
    free(stored);
}

typedef struct gather_case {
    int64_t t;
    int sets;
    bool per_choice; /* x has a row for each choice */
    int crowd;       /* the one that all ask for; -1: they differ */
} gather_case;

static void check_pair(const ht_matrix *m, const float *x, const float *y) {
    static _Alignas(64) char scratch[1 << 20];
    float alone[ROWS_OUT];
    ht_pool_lease(ht_device_pool(device));
    ht_cpu_ops_of(m)->mul(&(ht_product){m, x, K, 1, NULL, alone, ROWS_OUT, 0}, scratch, ht_device_pool(device));
    ht_pool_release(ht_device_pool(device));
    assert_memory_equal(alone, y, sizeof alone);
}

/* The gradient of a pair's row: the sum over the sets of what each matrix alone gives. */
static void check_pair_back(ht_matrix *const m[SETS], int sets, const float *dy, const float *dx) {
    static _Alignas(64) char scratch[1 << 20];
    float alone[K], sum[K];
    for (int s = 0; s < sets; s++) {
        assert_true(ht_back_scratch(m[s], ht_pool_threads(ht_device_pool(device))) <= sizeof scratch);
        ht_pool_lease(ht_device_pool(device));
        const ht_product p = {m[s], dy + s * ROWS_OUT, ROWS_OUT, 1, NULL, alone, K, 0};
        ht_back_mul(&p, scratch, ht_device_pool(device));
        ht_pool_release(ht_device_pool(device));
        for (int c = 0; c < K; c++) sum[c] = s ? sum[c] + alone[c] : alone[c];
    }
    assert_memory_equal(sum, dx, sizeof sum);
}

static void check_back(ht_matrix *const (*list)[2 * EXPERTS], const ht_linear_gather_params *p, const ht_view *ids,
                       int64_t t) {
    const int64_t width = p->n_sets * ROWS_OUT;
    float *dy = malloc((size_t)(t * M * width) * sizeof *dy), *dx = malloc((size_t)(t * M * K) * sizeof *dx);
    assert_true(dy && dx);
    uint64_t seed = 4;
    for (int64_t i = 0; i < t * M * width; i++) dy[i] = test_random_float(&seed);
    const ht_view in[2] = {test_view(dy, HT_F32, 3, (int64_t[]){t, M, width}), *ids};
    ht_view out = test_view(dx, HT_F32, 3, (int64_t[]){t, M, K});
    test_run_ok(device, HT_OP_LINEAR_GATHER_BACK, p, 2, in, &out, NULL);
    for (int64_t i = 0; i < t * M; i++) {
        const int32_t e = ((const int32_t *)ids->data)[i];
        check_pair_back((ht_matrix *const[SETS]){list[0][e], list[1][e]}, p->n_sets, dy + i * width, dx + i * K);
    }
    free(dy);
    free(dx);
}

/* Every row gives the bits that its matrix alone gives for it, whatever asks beside it; a matrix nobody asks for is not
 * touched, and one that all ask for takes more rows than go at once. */
static void check_products(ht_matrix all[SETS][EXPERTS], const gather_case *c) {
    ht_matrix experts[SETS][EXPERTS], *list[SETS][2 * EXPERTS];
    memcpy(experts, all, sizeof experts);
    for (int s = 0; s < SETS; s++) {
        for (int e = 0; e < EXPERTS; e++) list[s][e] = &experts[s][e];
        experts[s][EXPERTS - 1].packed = NULL; /* nobody asks for the last */
    }
    int64_t n_x = c->per_choice ? c->t * M : c->t, width = c->sets * ROWS_OUT;
    float *x = malloc((size_t)(n_x * K) * sizeof *x), *y = malloc((size_t)(c->t * M * width) * sizeof *y);
    int32_t *ids = malloc((size_t)(c->t * M) * sizeof *ids);
    assert_true(x && y && ids);
    uint64_t seed = 9;
    for (int64_t i = 0; i < n_x * K; i++) x[i] = test_random_float(&seed);
    for (int64_t i = 0; i < c->t * M; i++)
        ids[i] = c->crowd >= 0 ? c->crowd : (int32_t)(test_random(&seed) % (EXPERTS - 1));
    ht_view in[2] = {test_view(x, HT_F32, 2, (int64_t[]){c->t, K}), test_view(ids, HT_I32, 2, (int64_t[]){c->t, M})};
    if (c->per_choice) in[0] = test_view(x, HT_F32, 3, (int64_t[]){c->t, M, K});
    ht_view out = test_view(y, HT_F32, 3, (int64_t[]){c->t, M, width});
    ht_matrix_list lists[SETS] = {{list[0], EXPERTS, 0}, {list[1], EXPERTS, 0}};
    for (int s = 0; s < SETS; s++) ht_matrix_list_find_kinds(&lists[s]);
    const ht_linear_gather_params p = {{&lists[0], &lists[1]}, c->sets};
    test_run_ok(device, HT_OP_LINEAR_GATHER, &p, 2, in, &out, NULL);
    for (int64_t i = 0; i < c->t * M; i++)
        for (int s = 0; s < c->sets; s++)
            check_pair(list[s][ids[i]], x + (c->per_choice ? i : i / M) * K, y + i * width + s * ROWS_OUT);
    check_back(list, &p, &in[1], c->t);
    ids[c->t * M - 1] = EXPERTS;
    ht_error err = {0};
    assert_int_equal(test_run(device, HT_OP_LINEAR_GATHER, &p, 2, in, &out, NULL, &err), HT_ERR_ARGUMENT);
    assert_non_null(strstr(err.message, "expert index 5"));
    free(x);
    free(y);
    free(ids);
}

/* Of the many rows a few cases of each list of types, since each row is computed alone, too. */
static void check_types(ht_precision precision, const ht_weight_type type[SETS][EXPERTS]) {
    ht_matrix experts[SETS][EXPERTS];
    for (int s = 0; s < SETS; s++)
        for (int e = 0; e < EXPERTS; e++)
            make_expert(&experts[s][e], type[s][e], precision, 100 + (uint64_t)(EXPERTS * s + e));
    static const int64_t rows[] = {1, 2, 7, 40, T};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        for (int sets = 1; sets <= SETS; sets++) {
            for (int kind = 0; kind < 3; kind++)
                if (rows[i] < T || test_takes(sets + kind + (int)type[0][1] + (int)precision, 3))
                    check_products(experts, &(gather_case){rows[i], sets, kind == 1, kind == 2 ? 2 : -1});
        }
    for (int s = 0; s < SETS; s++)
        for (int e = 0; e < EXPERTS; e++) free(experts[s][e].packed);
}

#define ALL_OF(type)                                                                                                   \
    { type, type, type, type, type }
#define BOTH_OF(type)                                                                                                  \
    { ALL_OF(type), ALL_OF(type) }
#define MIXED(one, two)                                                                                                \
    {                                                                                                                  \
        {one, two, one, two, one}, { two, two, one, one, two }                                                         \
    }

/* Bytes or planes, words, both at once, and what is multiplied in f32; more types than one list of work takes. */
static void check_integers(ht_precision precision) {
    check_types(precision, (const ht_weight_type[SETS][EXPERTS])BOTH_OF(HT_W_Q4_1));
    check_types(precision, (const ht_weight_type[SETS][EXPERTS])BOTH_OF(HT_W_BF16));
    check_types(precision, (const ht_weight_type[SETS][EXPERTS])BOTH_OF(HT_W_MLX4_32_F32));
    check_types(precision, (const ht_weight_type[SETS][EXPERTS])MIXED(HT_W_Q5_0, HT_W_Q8_0));
    check_types(precision, (const ht_weight_type[SETS][EXPERTS])MIXED(HT_W_Q4_1, HT_W_F16));
    check_types(precision, (const ht_weight_type[SETS][EXPERTS])MIXED(HT_W_F32, HT_W_Q4_0));
    check_types(precision, (const ht_weight_type[SETS][EXPERTS]){
                               {HT_W_Q4_0, HT_W_Q4_1, HT_W_Q5_0, HT_W_Q5_1, HT_W_Q8_0}, ALL_OF(HT_W_Q4_0)});
}

UNIT_TEST(products_in_high_precision) { check_integers(HT_PRECISION_HIGH); }

UNIT_TEST(products_in_fast_precision) { check_integers(HT_PRECISION_FAST); }

UNIT_TEST(products_in_reference_precision) {
    check_types(HT_PRECISION_REFERENCE, (const ht_weight_type[SETS][EXPERTS])BOTH_OF(HT_W_Q4_1));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(largest_first),
        cmocka_unit_test(many_rows),
        cmocka_unit_test(products_in_high_precision),
        cmocka_unit_test(products_in_fast_precision),
        cmocka_unit_test(products_in_reference_precision),
    };
    return cmocka_run_group_tests(tests, start, stop);
}
