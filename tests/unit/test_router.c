/* The sparse mixer of Phi-3.5 MoE: choice, weights and their gradient, against the formulas in f64. */
#include "array/differentiate.h"
#include "models/decoder.h"
#include "support/arrays.h"
#include "support/test.h"
#include "support/weights.h"

#include <math.h>
#include <string.h>

enum { ROWS = 200, EXPERTS = 6 };

static const double jitter = 0.125; /* logits within a quarter of the highest count */

static float logits[ROWS][EXPERTS];

static void fill(void) {
    static const float special[][EXPERTS] = {
        {1, 1, 1, 1, 1, 1},         {0, 0, 0, 0, 0, 0},       {-1, -2, -3, -4, -5, -6},   {4, 3, 3, 2.9f, 1, 4},
        {-8, -8.5f, -9, -20, 9, 0}, {2, 1.5f, 1.4f, 1, 0, 0}, {1e-3f, 0, -1e-3f, 5, 5, 4}};
    uint64_t seed = 5;
    for (int r = 0; r < ROWS; r++)
        for (int e = 0; e < EXPERTS; e++) logits[r][e] = (float)(r % 3 - 1) + 2 * test_random_float(&seed);
    memcpy(logits, special, sizeof special);
}

/* The highest logit that is not taken, the weight of its expert, and the derivatives of that by the logits. */
static int choose(const float *s, int taken, double *weight, double slope[EXPERTS]) {
    int best = -1;
    double sum = 0, p[EXPERTS];
    for (int e = 0; e < EXPERTS; e++)
        if (e != taken && (best < 0 || s[e] > s[best])) best = e;
    const double highest = (double)s[best];
    for (int e = 0; e < EXPERTS; e++) {
        const double distance = (highest - (double)s[e]) / fmax(fabs((double)s[e]), highest);
        p[e] = e == taken || distance > 2 * jitter ? 0 : exp((double)s[e] - highest);
        sum += p[e];
    }
    *weight = 1 / sum;
    for (int e = 0; e < EXPERTS; e++) slope[e] = *weight * ((e == best) - p[e] / sum);
    return best;
}

SCOPE_TEST(choice_and_weights) {
    static const ht_config config = {
        .n_experts = EXPERTS, .experts_used = 2, .routing = {.scores = HT_ROUTER_SPARSE_MIXER, .jitter = 0.125f}};
    static const float factor[] = {1, -3}; /* of the two weights in the loss */
    static const int64_t shape[] = {ROWS, EXPERTS}, two = 2;
    int32_t id[ROWS][2];
    float w[ROWS][2], slope[ROWS][EXPERTS];
    int shared = 0;
    fill();
    ht_ctx c = {.s = s};
    ht_array *x = ht_placeholder(s, ht_array_from(s, logits, HT_F32, shape, 2)), *weights, *gradient;
    ht_array *ids = ht_decoder_route(&c, &config, x, NULL, &weights);
    ht_array *loss = ht_sum(s, ht_multiply(s, weights, ht_array_from(s, factor, HT_F32, &two, 1)), NULL, 0, false);
    ht_array *one = ht_full(s, 1, HT_F32, NULL, 0);
    assert_true(loss && ht_backward(s, &loss, &one, 1, &x, 1, &gradient));
    assert_works(ht_array_read, s, ids, id, sizeof id);
    assert_works(ht_array_read, s, weights, w, sizeof w);
    assert_works(ht_array_read, s, gradient, slope, sizeof slope);
    for (int r = 0; r < ROWS; r++) {
        double wanted[2], by[2][EXPERTS];
        int taken = -1;
        for (int k = 0; k < 2; k++) {
            taken = choose(logits[r], taken, &wanted[k], by[k]);
            assert_int_equal(id[r][k], taken);
            assert_true(fabs((double)w[r][k] - wanted[k]) < 1e-6);
            shared += wanted[k] < 1;
        }
        for (int e = 0; e < EXPERTS; e++) assert_true(fabs((double)slope[r][e] - (by[0][e] - 3 * by[1][e])) < 1e-5);
    }
    assert_in_range(shared, ROWS / 4, 2 * ROWS - ROWS / 4);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(choice_and_weights)};
    return cmocka_run_group_tests(tests, test_open_stream, test_close_stream);
}
