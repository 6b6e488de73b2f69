/* Products of bf16 arrays in tiles, and of pairs: every sum takes the steps that are promised, to the bit, whatever the sizes,
 * the strides, the threads and what is computed beside it; and is right. In plain C, with the instructions where the processor
 * has them, and elsewhere, of tiles, the same code with every instruction emulated. */
#include "base/half.h"
#include "cpu/cpu.h"
#include "cpu/isa.h"
#include "cpu/matmul_bf16.h"
#include "cpu/reference/reference.h"
#include "support/operands.h"
#include "support/test.h"
#include "support/tile_traps.h"
#include "support/weights.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#pragma weak ht_matmul_bf16_amx /* there is none in some builds */
#pragma weak ht_tiles_trial_amx
#pragma weak ht_matmul_bf16_avx512bf16

typedef enum order { IN_TILES, IN_PAIRS, ORDERS } order;
enum { MOST_FORMS = 8 };
static ht_device *plain, *forms[MOST_FORMS];
static order order_of[MOST_FORMS];
static int n_forms;
static bool traps;

/* With one thread and with several. */
static void add_forms(const ht_kernel *kernel, order how) {
    ht_error err = {0};
    for (int threads = 1; threads <= 3; threads += 2) {
        if (ht_cpu_device_new(threads, "reference", &forms[n_forms], &err)) fail_msg("%s", err.message);
        order_of[n_forms] = how;
        forms[n_forms++]->kernels[HT_OP_MATMUL] = *kernel;
    }
}

static int start(void **state) {
    (void)state;
    ht_error err = {0};
    if (ht_cpu_device_new(2, "reference", &plain, &err)) return -1;
    add_forms(&ht_matmul_bf16_tiles, IN_TILES);
    add_forms(&ht_matmul_bf16_pairs, IN_PAIRS);
    traps = &ht_matmul_bf16_amx && !ht_cpu_isa_available(HT_CPU_AMX) && test_trap_tiles();
    if (traps || ht_cpu_isa_available(HT_CPU_AMX)) add_forms(&ht_matmul_bf16_amx, IN_TILES);
    if (ht_cpu_isa_available(HT_CPU_BF16)) add_forms(&ht_matmul_bf16_avx512bf16, IN_PAIRS);
    return 0;
}

static int stop(void **state) {
    (void)state;
    while (n_forms > 0) ht_cpu_device_free(forms[--n_forms]);
    ht_cpu_device_free(plain);
    return 0;
}

/* One element, in the order that is promised: 32 steps, the even ones and the odd ones, ... */
static float in_tiles(const uint16_t *a, int64_t a_k, const uint16_t *b, int64_t b_k, int64_t k) {
    float sum = 0;
    for (int64_t first = 0; first < k; first += 32) {
        float part[2] = {0};
        for (int64_t l = first; l < first + 32 && l < k; l++)
            part[l % 2] = fmaf(ht_bf16_to_f32(a[l * a_k]), ht_bf16_to_f32(b[l * b_k]), part[l % 2]);
        sum += part[0] + part[1];
    }
    return sum;
}
/* ... or 512 steps, of every two the second one first. */
static float in_pairs(const uint16_t *a, int64_t a_k, const uint16_t *b, int64_t b_k, int64_t k) {
    float sum = 0;
    for (int64_t first = 0; first < k; first += 512) {
        float part = 0;
        for (int64_t l = first; l < first + 512 && l < k; l++) {
            const int64_t at = (l ^ 1) < k ? l ^ 1 : l;
            part = fmaf(ht_bf16_to_f32(a[at * a_k]), ht_bf16_to_f32(b[at * b_k]), part);
        }
        sum += part;
    }
    return sum;
}

/* All forms against that, if no sum passes denormals, against sums in f64, and against the first form of the same order. */
static void check(int n_a, const int64_t *a_dims, layout a_how, int n_b, const int64_t *b_dims, layout b_how,
                  bool transposed, values kind) {
    uint64_t seed = 4 + (uint64_t)a_how;
    operand a = test_operand(HT_BF16, n_a, a_dims, a_how, ORDINARY, &seed);
    operand b = test_operand(HT_BF16, n_b, b_dims, b_how, ORDINARY, &seed);
    if (kind == EXTREME) /* one of each row, as several would be of no certain sum */
        for (int64_t i = 0; i < ht_view_size(&a.view); i += a_dims[n_a - 1])
            ((uint16_t *)a.memory)[i + i / 3 % a_dims[n_a - 1]] = ht_f32_to_bf16(test_value(EXTREME, &seed));
    int64_t dims[4];
    memcpy(dims, a_dims, (size_t)n_a * sizeof *dims);
    dims[n_a - 1] = b_dims[n_b - (transposed ? 2 : 1)];
    ht_matmul_params p = {.transpose_b = transposed};
    const ht_view in[2] = {a.view, b.view};
    ht_view out = test_view(NULL, HT_BF16, n_a, dims);
    const int64_t size = ht_view_size(&out);
    const ht_matmul_shape s = ht_matmul_shape_of(&(ht_call){.params = &p, .in = in, .out = out});
    uint16_t *near = malloc(2 * (size_t)size), *got = malloc(2 * (size_t)size + 64), *wanted[ORDERS], *first[ORDERS];
    assert_true(near && got);
    for (order o = 0; o < ORDERS; o++) {
        wanted[o] = malloc(2 * (size_t)size), first[o] = malloc(2 * (size_t)size);
        assert_true(wanted[o] && first[o]);
    }
    for (int64_t i = 0; i < size; i++) {
        const uint16_t *row = (uint16_t *)a.view.data + ht_matmul_offset(&a.view, &out, i / s.n / s.m);
        const uint16_t *col = (uint16_t *)b.view.data + ht_matmul_offset(&b.view, &out, i / s.n / s.m);
        row += i / s.n % s.m * s.a_row, col += i % s.n * s.b_col;
        wanted[IN_TILES][i] = ht_f32_to_bf16(in_tiles(row, s.a_k, col, s.b_k, s.k));
        wanted[IN_PAIRS][i] = ht_f32_to_bf16(in_pairs(row, s.a_k, col, s.b_k, s.k));
    }
    out.data = near;
    test_run_ok(plain, HT_OP_MATMUL, &p, 2, in, &out, NULL);
    out.data = got;
    if (traps) test_trap_tiles();
    for (int f = 0; f < n_forms; f++) {
        const order o = order_of[f];
        memset(got, 0x5a, 2 * (size_t)size + 64);
        test_run_ok(forms[f], HT_OP_MATMUL, &p, 2, in, &out, NULL);
        for (int64_t i = 0; i < size; i++)
            if (!test_alike(HT_BF16, got, near, i, 1e-4) ||
                !test_alike(HT_BF16, got, wanted[o], i, kind == EXTREME ? 1e-30 : 0))
                fail_msg("form %d, [%lld, %lld, %lld], layouts %d and %d%s: element %lld is %g, not %g (%g)", f,
                         (long long)s.m, (long long)s.n, (long long)s.k, a_how, b_how, transposed ? " turned" : "",
                         (long long)i, (double)ht_bf16_to_f32(got[i]), (double)ht_bf16_to_f32(wanted[o][i]),
                         (double)ht_bf16_to_f32(near[i]));
        if (f == 0 || order_of[f - 1] != o) memcpy(first[o], got, 2 * (size_t)size);
        for (int64_t i = 0; i < size; i++) assert_true(test_alike(HT_BF16, got, first[o], i, 0));
        for (size_t i = 0; i < 64; i++) assert_int_equal(((uint8_t *)(got + size))[i], 0x5a);
    }
    free(a.memory), free(b.memory), free(near), free(got);
    for (order o = 0; o < ORDERS; o++) free(wanted[o]), free(first[o]);
}

/* Sizes on both sides of those of tiles, panels, chunks, pieces, and what is packed at a time. */
static void any_sizes(void **state) {
    (void)state;
    static const int64_t sizes[][4] = {/* matrices, m, n, k */
                                       {1, 1, 1, 1},      {1, 1, 100, 64},    {1, 100, 1, 64},    {1, 1, 70, 33},
                                       {1, 70, 1, 31},    {1, 5, 3, 7},       {1, 16, 16, 32},    {1, 17, 33, 65},
                                       {1, 32, 32, 256},  {1, 33, 31, 257},   {1, 64, 48, 300},   {3, 20, 40, 50},
                                       {9, 8, 8, 40},     {1, 8, 300, 70},    {1, 300, 40, 192},  {1, 40, 300, 140},
                                       {1, 200, 130, 64}, {1, 20, 130, 1024}, {1, 260, 1100, 40}, {1, 9, 33, 1541}};
    for (EACH(i, sizes))
        for (int transposed = 0; transposed < 2; transposed++) {
            if (TEST_SLOW && (i + (size_t)transposed) % 2) continue;
            const int64_t *s = sizes[i];
            check(3, (int64_t[]){s[0], s[1], s[3]}, CONTIGUOUS, 3,
                  transposed ? (int64_t[]){s[0], s[2], s[3]} : (int64_t[]){s[0], s[3], s[2]}, CONTIGUOUS, transposed,
                  ORDINARY);
        }
}

/* Where either operand lies, with axes before the matrices' that the other one lacks, or repeats. */
static void any_strides(void **state) {
    (void)state;
    static const int64_t sizes[][3] = {{7, 5, 33}, {35, 18, 64}, {1, 40, 64}, {40, 1, 70}};
    for (EACH(i, sizes))
        for (int transposed = 0; transposed < 2; transposed++)
            for (int a = 0; a < LAYOUT_COUNT; a++)
                for (int b = 0; b < LAYOUT_COUNT; b++) {
                    if (TEST_SLOW && ((int)i + a + b) % 4) continue;
                    const int64_t m = sizes[i][0], n = sizes[i][1], k = sizes[i][2];
                    check(4, (int64_t[]){2, 3, m, k}, (layout)a, 3,
                          transposed ? (int64_t[]){3, n, k} : (int64_t[]){3, k, n}, (layout)b, transposed, ORDINARY);
                }
}

static void extreme_values(void **state) {
    (void)state;
    static const int64_t sizes[][3] = {{90, 20, 40}, {33, 70, 64}, {1, 40, 200}, {60, 1, 96}};
    for (EACH(i, sizes))
        for (int transposed = 0; transposed < 2; transposed++) {
            const int64_t m = sizes[i][0], n = sizes[i][1], k = sizes[i][2];
            check(2, (int64_t[]){m, k}, CONTIGUOUS, 2, transposed ? (int64_t[]){n, k} : (int64_t[]){k, n}, CONTIGUOUS,
                  transposed, EXTREME);
        }
}

/* What cpu/isa.c asks of a processor, of the compiled code here if the instructions are emulated. */
static void the_trial(void **state) {
    (void)state;
    static float sums[2][HT_TILES_TRIAL];
    ht_tiles_trial_tiles(sums[0]);
    for (int i = 0; i < 32 * 32; i++) assert_true(isfinite(sums[0][i]) && sums[0][i] != 0);
    if (!traps && !ht_cpu_isa_available(HT_CPU_AMX)) skip();
    if (traps) test_trap_tiles();
    ht_tiles_trial_amx(sums[1]);
    assert_memory_equal(sums[0], sums[1], sizeof sums[0]);
}

static void other_dtypes_are_left_to_the_kernel_beside(void **state) {
    (void)state;
    const float a[2] = {1, 2}, b[2] = {3, 4};
    float y[2];
    const ht_view in[2] = {test_view((void *)a, HT_F32, 2, (int64_t[]){1, 2}),
                           test_view((void *)b, HT_F32, 2, (int64_t[]){2, 1})};
    ht_view out = test_view(y, HT_F32, 2, (int64_t[]){1, 1});
    for (int f = 0; f < n_forms; f++) {
        test_run_ok(forms[f], HT_OP_MATMUL, &(ht_matmul_params){0}, 2, in, &out, NULL);
        assert_true(y[0] == 11);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_sizes),
        cmocka_unit_test(any_strides),
        cmocka_unit_test(extreme_values),
        cmocka_unit_test(the_trial),
        cmocka_unit_test(other_dtypes_are_left_to_the_kernel_beside),
    };
    return cmocka_run_group_tests(tests, start, stop);
}
