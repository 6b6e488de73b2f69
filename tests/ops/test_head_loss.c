/* Cross-entropy of an output head, and its gradient, against plain loops over exact weights in f64; the same bits for any
 * number of threads and rows. */
#include "base/checked.h"
#include "cpu/cpu.h"
#include "cpu/head_loss.h"
#include "cpu/matrix.h"
#include "device/params.h"
#include "support/multiply.h"
#include "support/test.h"
#include "support/weights.h"

#include <hearth/hearth.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct fixture {
    ht_matrix matrix;
    double *dense;
} fixture;

static fixture make(const ht_matrix_ops *ops, ht_weight_type type, int64_t n_rows, int64_t k) {
    const size_t row = test_row_bytes(type, k);
    uint64_t seed = 5;
    fixture f = {.dense = malloc((size_t)(n_rows * k) * sizeof(double))};
    uint8_t *stored = test_alloc((size_t)n_rows * row);
    float *values = test_alloc((size_t)k * sizeof *values);
    test_random_weights(type, n_rows, k, &seed, stored);
    for (int64_t r = 0; r < n_rows; r++) {
        ht_dequantize(type, stored + (size_t)r * row, k, values);
        for (int64_t c = 0; c < k; c++) f.dense[r * k + c] = (double)values[c];
    }
    f.matrix = test_pack(ops, type, n_rows, k, stored);
    free(stored);
    free(values);
    return f;
}

static void discard(fixture *f) {
    free(f->matrix.packed);
    free(f->dense);
}

static double logit(const fixture *f, const ht_head_loss_params *p, const float *x, int64_t row, double *slope) {
    double sum = 0;
    for (int64_t c = 0; c < f->matrix.k; c++) sum += (double)x[c] * f->dense[row * f->matrix.k + c];
    sum *= (double)p->scale;
    *slope = (double)p->scale;
    if (p->softcap > 0) {
        const double t = tanh(sum / (double)p->softcap);
        *slope *= 1 - t * t;
        sum = (double)p->softcap * t;
    }
    return sum;
}

/* Loss and gradient of one row. */
static double expected_row(const fixture *f, const ht_head_loss_params *p, const float *x, int64_t target,
                           double factor, double *gradient) {
    const int64_t n = f->matrix.n_rows, k = f->matrix.k;
    double *y = calloc((size_t)n, sizeof *y), *slope = calloc((size_t)n, sizeof *slope), max = -INFINITY, sum = 0;
    for (int64_t r = 0; r < n; r++) {
        y[r] = logit(f, p, x, r, &slope[r]);
        max = fmax(max, y[r]);
    }
    for (int64_t r = 0; r < n; r++) sum += exp(y[r] - max);
    const double lse = max + log(sum), loss = lse - y[target];
    for (int64_t c = 0; c < k; c++) gradient[c] = 0;
    for (int64_t r = 0; r < n; r++) {
        const double g = (exp(y[r] - lse) - (r == target)) * slope[r] * factor;
        for (int64_t c = 0; c < k; c++) gradient[c] += g * f->dense[r * k + c];
    }
    free(y);
    free(slope);
    return loss;
}

/* A device for its threads alone, kept. */
static ht_device *device_of(int threads) {
    static ht_device *devices[8];
    assert_true(threads < 8);
    if (!devices[threads]) assert_int_equal(ht_cpu_device_new(threads, NULL, &devices[threads], NULL), HT_OK);
    return devices[threads];
}

static ht_status run(ht_kernel_fn *fn, ht_scratch_fn *measure, ht_call *call, int threads, ht_error *err) {
    call->device = device_of(threads);
    const size_t bytes = measure(call);
    call->scratch = test_alloc(bytes);
    memset(call->scratch, 0xff, bytes);
    const unsigned state = call->device->begin(call->device);
    const ht_status status = fn(call, err);
    call->device->end(call->device, state);
    free(call->scratch);
    return status;
}

static ht_view view2(void *data, int64_t rows, int64_t columns, int64_t ld) {
    return (ht_view){data, HT_F32, 2, {rows, columns}, {ld, 1}};
}

static void check(const fixture *f, int64_t t, float scale, float cap) {
    const int64_t n = f->matrix.n_rows, k = f->matrix.k, ld = k + 3;
    const ht_head_loss_params p = {&f->matrix, scale, cap};
    uint64_t seed = (uint64_t)t;
    float *x = test_alloc((size_t)(t * ld) * sizeof *x), *factor = test_alloc((size_t)t * sizeof *factor);
    float *loss[2], *dx[2];
    int32_t *target = test_alloc((size_t)t * sizeof *target);
    for (int64_t i = 0; i < t * ld; i++) x[i] = 0.2f * test_random_float(&seed);
    for (int64_t i = 0; i < t; i++) {
        target[i] = i % 3 == 1 ? -1 - (int32_t)i : (int32_t)(test_random(&seed) % (uint32_t)n);
        factor[i] = test_random_float(&seed);
    }
    for (int r = 0; r < 2; r++) { /* with two numbers of threads */
        loss[r] = test_alloc((size_t)(2 * t) * sizeof(float));
        dx[r] = test_alloc((size_t)(t * k) * sizeof(float));
        const ht_view targets = {target, HT_I32, 1, {t}, {1}};
        ht_view in[4] = {view2(x, t, k, ld), targets, view2(loss[r], 2, t, t), {factor, HT_F32, 1, {t}, {1}}};
        ht_call call = {.params = &p, .n_in = 2, .in = in, .out = view2(loss[r], 2, t, t)};
        assert_int_equal(run(ht_cpu_head_loss, ht_cpu_head_loss_scratch, &call, 1 + 2 * r, NULL), HT_OK);
        call = (ht_call){.params = &p, .n_in = 4, .in = in, .out = view2(dx[r], t, k, k)};
        assert_int_equal(run(ht_cpu_head_loss_grad, ht_cpu_head_loss_grad_scratch, &call, 1 + 2 * r, NULL), HT_OK);
    }
    assert_memory_equal(loss[0], loss[1], (size_t)(2 * t) * sizeof(float));
    assert_memory_equal(dx[0], dx[1], (size_t)(t * k) * sizeof(float));
    double *gradient = malloc((size_t)k * sizeof *gradient);
    for (int64_t i = 0; i < t; i++) {
        double wanted = 0, most = 0;
        for (int64_t c = 0; c < k; c++) gradient[c] = 0;
        if (target[i] >= 0) wanted = expected_row(f, &p, x + i * ld, target[i], (double)factor[i], gradient);
        if (!(fabs((double)loss[0][i] - wanted) <= 2e-5 * (1 + fabs(wanted))))
            fail_msg("%s: loss %lld is %.9g, expected %.9g", f->matrix.ops->name, (long long)i, (double)loss[0][i],
                     wanted);
        for (int64_t c = 0; c < k; c++) most = fmax(most, fabs(gradient[c]));
        for (int64_t c = 0; c < k; c++)
            if (!(fabs((double)dx[0][i * k + c] - gradient[c]) <= 1e-4 * most + 1e-9))
                fail_msg("%s: gradient (%lld, %lld) is %.9g, expected %.9g", f->matrix.ops->name, (long long)i,
                         (long long)c, (double)dx[0][i * k + c], gradient[c]);
        if (target[i] < 0) assert_true(loss[0][t + i] == 0);
    }
    free(gradient);
    free(x);
    free(factor);
    free(target);
    for (int r = 0; r < 2; r++) {
        free(loss[r]);
        free(dx[r]);
    }
}

UNIT_TEST(losses_and_gradients) {
    static const ht_weight_type types[] = {HT_W_F32, HT_W_BF16, HT_W_Q8_0, HT_W_Q4_K, HT_W_Q6_K, HT_W_IQ2_XS};
    for (int isa = 0; isa < HT_CPU_ISA_COUNT; isa++) {
        if (!ht_cpu_isa_available((ht_cpu_isa)isa)) continue;
        for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
            const int64_t k = ht_max_i64(40, ht_weight_type_info_of(types[i])->block);
            const int64_t whole = types[i] == HT_W_Q8_0 ? 64 : k;
            fixture f =
                make(ht_cpu_matrix_ops((ht_cpu_isa)isa, types[i], i % 2 ? HT_PRECISION_HIGH : HT_PRECISION_REFERENCE),
                     types[i], 300, whole);
            check(&f, 1, 1, 0);
            check(&f, 13, 0.5f, 0);
            check(&f, 40, 1, 3);
            discard(&f);
        }
        fixture f = make(ht_cpu_coarse_head_ops((ht_cpu_isa)isa, HT_PRECISION_HIGH), HT_W_Q8_0, 200, 96);
        check(&f, 9, 1, 0);
        discard(&f);
    }
}

UNIT_TEST(a_target_that_is_no_token) {
    fixture f = make(ht_cpu_matrix_ops(ht_cpu_isa_best(), HT_W_F32, HT_PRECISION_REFERENCE), HT_W_F32, 50, 8);
    const ht_head_loss_params p = {&f.matrix, 1, 0};
    float x[24] = {0}, loss[6];
    int32_t targets[] = {4, 50, -100};
    ht_view in[2] = {view2(x, 3, 8, 8), {targets, HT_I32, 1, {3}, {1}}};
    ht_call call = {.params = &p, .n_in = 2, .in = in, .out = view2(loss, 2, 3, 3)};
    ht_error err = {0};
    assert_int_equal(run(ht_cpu_head_loss, ht_cpu_head_loss_scratch, &call, 1, &err), HT_ERR_ARGUMENT);
    assert_non_null(strstr(err.message, "target 50 of row 1 is outside the vocabulary of 50"));
    discard(&f);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(losses_and_gradients),
                                       cmocka_unit_test(a_target_that_is_no_token)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
