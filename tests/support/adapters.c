#include "support/adapters.h"

#include "models/weights.h"
#include "support/test.h"
#include "support/weights.h"

#include <math.h>
#include <stdlib.h>

ht_adapter *test_adapter_for(const ht_model *m, int64_t rank, int64_t every, uint64_t seed) {
    int64_t n, n_pairs = 0;
    const ht_projection *p = ht_weights_projections(m->weights, &n);
    ht_lora *pair = calloc((size_t)n, sizeof *pair);
    ht_error err = {0};
    ht_adapter *a;
    for (int64_t i = 0; i < n; i++)
        if (i % every == 0)
            pair[n_pairs++] = (ht_lora){.slot = (char *)(uintptr_t)p[i].slot,
                                        .n_experts = p[i].n_experts,
                                        .rank = rank,
                                        .n_in = p[i].n_in,
                                        .n_out = p[i].n_out,
                                        .scale = 0.5f};
    assert_int_equal(ht_adapter_new(pair, n_pairs, &a, &err), HT_OK);
    free(pair);
    for (int64_t i = 0; i < a->n; i++) {
        const ht_lora *l = &a->lora[i];
        const int64_t n_matrices = l->n_experts ? l->n_experts : 1;
        for (int64_t k = 0; k < n_matrices * rank * l->n_in; k++)
            l->a[k] = test_random_float(&seed) / sqrtf((float)l->n_in);
        for (int64_t k = 0; k < n_matrices * rank * l->n_out; k++)
            l->b[k] = 0.3f * test_random_float(&seed) / sqrtf((float)rank);
    }
    return a;
}

double test_difference(const float *a, const float *b, size_t n) {
    double most = 0, largest = 0;
    for (size_t i = 0; i < n; i++) {
        most = fmax(most, fabs((double)a[i] - (double)b[i]));
        largest = fmax(largest, fabs((double)b[i]));
    }
    return most / largest;
}
