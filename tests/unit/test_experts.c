/* A token reads the matrices of its experts and of no others, and the count of bytes that a token reads says so. */
#include "models/weights.h"
#include "support/checkpoints.h"
#include "support/model_run.h"
#include "support/test.h"

#include <hearth/measure.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PROMPT = 9 };

static ht_model *load(const char *name) { return tiny_checkpoint_load(name, 0, NULL); }

/* The token after the prompt, as if it came for the first time. */
static void decode(model_run *r, float *logits) {
    const int32_t id = 11;
    r->cache.length = PROMPT;
    model_run_feed(r, &id, 1, logits);
}

static void check(const char *name) {
    ht_model *m = load(name);
    int64_t n, dense_bytes = 0, read_bytes = 0, n_read = 0, n_routed = 0;
    ht_matrix *const *all = ht_weights_matrices(m->weights, &n);
    size_t row_bytes = (size_t)m->vocab * sizeof(float), largest = 0;
    float *wanted = malloc(PROMPT * row_bytes), *got = malloc(row_bytes);
    int32_t ids[PROMPT];
    for (int i = 0; i < PROMPT; i++) ids[i] = 7 * i % 50;
    model_run r = model_run_open(m, PROMPT + 1, PROMPT);
    model_run_feed(&r, ids, PROMPT, wanted);
    decode(&r, wanted);

    for (int64_t i = 0; i < n; i++)
        if (all[i]->packed_bytes > largest) largest = all[i]->packed_bytes;
    void *broken = aligned_alloc(64, (largest + 63) / 64 * 64);
    void **packed = calloc((size_t)n, sizeof *packed);
    assert_true(wanted && got && broken && packed);
    memset(broken, 255, largest); /* scales that are no numbers */
    for (int64_t i = 0; i < n; i++) {
        packed[i] = all[i]->packed;
        if (!ht_weights_use(m->weights, i).expert) {
            dense_bytes += (int64_t)all[i]->packed_bytes;
            continue;
        }
        all[i]->packed = broken;
        decode(&r, got);
        all[i]->packed = packed[i];
        n_routed++;
        if (!memcmp(got, wanted, row_bytes)) {
            packed[i] = NULL;
            continue;
        }
        n_read++;
        read_bytes += (int64_t)all[i]->packed_bytes;
    }
    print_message("%s: a token reads %lld of %lld matrices of experts\n", name, (long long)n_read, (long long)n_routed);
    assert_int_equal(n_read * m->config->n_experts, n_routed * m->config->experts_used);
    assert_true(llabs(ht_model_token_bytes(m, false) - dense_bytes - read_bytes) <= n_routed); /* shares are rounded */

    for (int64_t i = 0; i < n; i++) {
        void *kept = all[i]->packed;
        all[i]->packed = packed[i]; /* nothing at all, where nothing is read */
        packed[i] = kept;
    }
    decode(&r, got);
    assert_memory_equal(got, wanted, row_bytes);
    for (int64_t i = 0; i < n; i++) all[i]->packed = packed[i];
    model_run_close(&r);
    free(wanted);
    free(got);
    free(broken);
    free(packed);
    ht_model_free(m);
}

UNIT_TEST(a_token_reads_its_experts_alone) {
    check("qwen3-moe-q4_1.gguf");
    check("qwen3-moe-mlx4-bf16");
    check("qwen3-moe-f32");
    check("gemma4-experts-bf16");
    check("gemma4-experts-mlx4-router8-bf16");
    check("gemma4-experts-q8_0.gguf");
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_token_reads_its_experts_alone)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
