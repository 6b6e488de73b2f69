/* The loss of a batch and its gradients on tiny checkpoints of every family: against the logits of generation, and against
 * finite differences along random directions. */
#include "array/array.h"
#include "models/weights.h"
#include "support/checkpoints.h"
#include "support/model_run.h"
#include "support/options.h"
#include "support/test.h"
#include "train/trainable.h"

#include <hearth/ops.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const checkpoints[] = {"gemma2-f32",
                                          "gemma2-q4_1.gguf",
                                          "gemma3-f32",
                                          "gemma3-q5_1.gguf",
                                          "gemma4-f32",
                                          "gemma4-shared-bf16",
                                          "gemma4-experts-bf16",
                                          "gemma4-k-is-v-q4_1.gguf",
                                          "gemma4-multimodal-bf16",
                                          "llama-f32",
                                          "llama-q8_0.gguf",
                                          "llama-mlx4-bf16",
                                          "llama-linear-bias-bf16",
                                          "llama-fp8-blocks",
                                          "llama-nvfp4.gguf",
                                          "llama-yarn-f16",
                                          "mistral-sliding-f32",
                                          "qwen2-f32",
                                          "qwen2-q4_0.gguf",
                                          "qwen2-tied-bf16",
                                          "qwen3-f32",
                                          "qwen3-bias-sliding-bf16",
                                          "qwen3-moe-f32",
                                          "qwen3-moe-q4_1.gguf",
                                          "qwen3-moe-mlx4-bf16",
                                          "qwen3-moe-fp8-blocks",
                                          "gemma4-experts-q8_0.gguf",
                                          "../families/deepseek_v2",
                                          "../families/deepseek_v3.gguf",
                                          "../families/mistral4",
                                          "../families/phi3-longrope",
                                          "../families/phimoe.gguf"};

enum { RANK = 3, LENGTHS = 3, N_TOK = 61 };
static const int32_t lengths[LENGTHS] = {23, 1, 37};

static ht_model *load(const char *name, int n_threads) {
    return tiny_checkpoint_load(
        name, n_threads, OPTIONS_AT(ht_model_options, with.precision = HT_PRECISION_REFERENCE, with.kv_dtype = HT_F32));
}

static double uniform(uint64_t *state) {
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (double)(*state >> 40) / (double)(1 << 24) * 2 - 1;
}

/* Three sequences, one of one row; two of three rows are learned. */
typedef struct rows {
    int32_t id[N_TOK], pos[N_TOK], target[N_TOK], seq_start[LENGTHS + 1];
    ht_train_batch batch;
} rows;

static void fill(rows *r, int32_t vocab, uint64_t seed) {
    int32_t n = 0;
    for (int s = 0; s < LENGTHS; s++) {
        r->seq_start[s] = n;
        for (int32_t i = 0; i < lengths[s]; i++, n++) {
            r->id[n] = (int32_t)((uniform(&seed) + 1) / 2 * (vocab - 1));
            r->pos[n] = i;
            r->target[n] = n % 3 == 1 ? -1 : (int32_t)((uniform(&seed) + 1) / 2 * (vocab - 1));
        }
    }
    r->seq_start[LENGTHS] = n;
    r->batch = (ht_train_batch){
        .n_tok = n, .n_seq = LENGTHS, .id = r->id, .pos = r->pos, .seq_start = r->seq_start, .target = r->target};
    for (int32_t i = 0; i < n; i++) r->batch.n_learned += r->target[i] >= 0;
}

/* An adapter of every projection of the model: values, then arrays of a scope. */
typedef struct adapter {
    int n;
    ht_adapter_pair *pair;
    float **value; /* [2 n] */
    int64_t (*shape)[3];
} adapter;

static int by_slot(const void *a, const void *b) {
    return strcmp((*(const ht_projection *const *)a)->slot, (*(const ht_projection *const *)b)->slot);
}

static int dims_of(const adapter *a, int i) { return a->shape[i][2] ? 3 : 2; }

static int64_t size_of(const adapter *a, int i) {
    return a->shape[i][0] * a->shape[i][1] * (a->shape[i][2] ? a->shape[i][2] : 1);
}

static adapter make(const ht_model *m, double size_b) {
    int64_t n;
    uint64_t seed = 11;
    const ht_projection *all = ht_weights_projections(m->weights, &n);
    const ht_projection **sorted = malloc((size_t)n * sizeof *sorted);
    for (int64_t i = 0; i < n; i++) sorted[i] = &all[i];
    qsort(sorted, (size_t)n, sizeof *sorted, by_slot);
    adapter a = {(int)n, calloc((size_t)n, sizeof *a.pair), calloc(2 * (size_t)n, sizeof *a.value),
                 calloc(2 * (size_t)n, sizeof *a.shape)};
    for (int i = 0; i < 2 * a.n; i++) {
        const ht_projection *p = sorted[i / 2];
        const int64_t shape[2] = {i % 2 ? p->n_out : RANK, i % 2 ? RANK : p->n_in};
        memcpy(a.shape[i],
               p->n_experts ? (int64_t[]){p->n_experts, shape[0], shape[1]} : (int64_t[]){shape[0], shape[1], 0},
               sizeof a.shape[i]);
        a.value[i] = malloc((size_t)size_of(&a, i) * sizeof(float));
        const double size = i % 2 ? size_b : 1 / sqrt((double)p->n_in);
        for (int64_t k = 0; k < size_of(&a, i); k++) a.value[i][k] = (float)(size * uniform(&seed));
        a.pair[i / 2] = (ht_adapter_pair){.slot = p->slot, .scale = 2};
    }
    free(sorted);
    return a;
}

static void discard(adapter *a) {
    for (int i = 0; i < 2 * a->n; i++) free(a->value[i]);
    free(a->value);
    free(a->shape);
    free(a->pair);
}

/* The adapter's arrays, moved by `step` along `direction` where there is one. */
static ht_adapters arrays_of(ht_scope *s, adapter *a, float *const *direction, double step) {
    for (int i = 0; i < 2 * a->n; i++) {
        const int64_t n = size_of(a, i);
        float *moved = malloc((size_t)n * sizeof *moved);
        for (int64_t k = 0; k < n; k++)
            moved[k] = direction ? (float)((double)a->value[i][k] + step * (double)direction[i][k]) : a->value[i][k];
        ht_array *x = ht_array_from(s, moved, HT_F32, a->shape[i], dims_of(a, i));
        free(moved);
        assert_non_null(x);
        *(i % 2 ? &a->pair[i / 2].b : &a->pair[i / 2].a) = x;
    }
    return (ht_adapters){.n = a->n, .pair = a->pair, .key = HT_NONE};
}

static double loss_of(const ht_model *m, const ht_train_batch *b, adapter *a, float *const *direction, double step,
                      float *each) {
    assert_works(ht_model_loss_check, m, b);
    ht_scope *s = ht_scope_new(m->stream);
    const ht_adapters adapters = arrays_of(s, a, direction, step);
    ht_array *y = ht_model_loss_rows(s, m, b, &adapters, false);
    if (!y) fail_msg("%s", ht_scope_error(s)->message);
    assert_works(ht_array_read, s, y, each, (size_t)b->n_learned * sizeof *each);
    ht_scope_free(s);
    double sum = 0;
    for (int64_t i = 0; i < b->n_learned; i++) sum += (double)each[i];
    return sum;
}

/* Writes all gradients one after another and returns the loss. */
static double gradients_of(const ht_model *m, const ht_train_batch *b, adapter *a, bool checkpointing, float *out) {
    assert_works(ht_model_loss_check, m, b);
    ht_scope *s = ht_scope_new(m->stream);
    const ht_adapters adapters = arrays_of(s, a, NULL, 0);
    ht_array *sum, **grad = calloc(2 * (size_t)a->n, sizeof *grad);
    if (!ht_model_loss_gradients(s, m, b, &adapters, checkpointing, &sum, grad))
        fail_msg("%s", ht_scope_error(s)->message);
    float loss;
    assert_works(ht_array_read, s, sum, &loss, sizeof loss);
    for (int i = 0; i < 2 * a->n; i++) {
        const int64_t n = size_of(a, i);
        assert_int_equal(ht_array_size(grad[i]), n);
        assert_works(ht_array_read, s, grad[i], out, (size_t)n * sizeof *out);
        out += n;
    }
    free(grad);
    ht_scope_free(s);
    return (double)loss;
}

static int64_t total_of(const adapter *a) {
    int64_t n = 0;
    for (int i = 0; i < 2 * a->n; i++) n += size_of(a, i);
    return n;
}

/* With B = 0 the losses are those of the logits that generation gives. */
static void check_losses(const ht_model *m, const char *name, const rows *r) {
    adapter a = make(m, 0);
    float each[N_TOK], *logits = malloc((size_t)N_TOK * (size_t)m->vocab * sizeof *logits);
    (void)loss_of(m, &r->batch, &a, NULL, 0, each);
    int64_t out = 0;
    for (int s = 0; s < LENGTHS; s++) {
        model_run run = model_run_open(m, lengths[s], 64);
        model_run_feed(&run, r->id + r->seq_start[s], lengths[s], logits);
        model_run_close(&run);
        for (int32_t i = 0; i < lengths[s]; i++) {
            const int32_t target = r->target[r->seq_start[s] + i];
            if (target < 0) continue;
            const float *row = logits + (int64_t)i * m->vocab;
            double max = (double)row[0], sum = 0;
            for (int32_t v = 0; v < m->vocab; v++) max = fmax(max, (double)row[v]);
            for (int32_t v = 0; v < m->vocab; v++) sum += exp((double)row[v] - max);
            const double want = max + log(sum) - (double)row[target];
            if (!(fabs((double)each[out] - want) <= 1e-4 * (1 + want)))
                fail_msg("%s: the loss of row %d of sequence %d is %.7g, that of the logits %.7g", name, i, s,
                         (double)each[out], want);
            out++;
        }
    }
    assert_int_equal(out, r->batch.n_learned);
    free(logits);
    discard(&a);
}

/* <gradient, direction> against (f(x + t d) - f(x - t d)) / 2 t. */
static void check_gradients(const ht_model *m, const char *name, const rows *r, int number) {
    adapter a = make(m, 0.1);
    const int64_t n = total_of(&a);
    float each[N_TOK], *grad = malloc((size_t)n * sizeof *grad), *again = malloc((size_t)n * sizeof *again);
    const double loss = gradients_of(m, &r->batch, &a, false, grad);
    const double plain = loss_of(m, &r->batch, &a, NULL, 0, each);
    if (!(fabs(loss - plain) <= 1e-5 * plain)) fail_msg("%s: loss %.9g, without gradients %.9g", name, loss, plain);
    assert_true(gradients_of(m, &r->batch, &a, true, again) == loss);
    for (int64_t k = 0; k < n; k++)
        if (!(fabsf(grad[k] - again[k]) <= 1e-5f * (1e-3f + fabsf(grad[k]))))
            fail_msg("%s: gradient %lld is %.9g, with layers computed again %.9g", name, (long long)k, (double)grad[k],
                     (double)again[k]);
    uint64_t seed = 3;
    float **direction = calloc(2 * (size_t)a.n, sizeof *direction);
    /* Every array of its own in a soak, else some, and none where that is slow; all A's; all B's. */
    for (int which = TEST_SLOW ? 2 * a.n : 0; which < 2 * a.n + 2; which++) {
        if (which < 2 * a.n && !test_takes(which + number, 10)) continue;
        double expected = 0;
        int64_t at = 0;
        for (int i = 0; i < 2 * a.n; i++) {
            const bool moves = which < 2 * a.n ? i == which : i % 2 == which - 2 * a.n;
            direction[i] = calloc((size_t)size_of(&a, i), sizeof(float));
            for (int64_t k = 0; k < size_of(&a, i); k++, at++) {
                if (moves) direction[i][k] = (float)((grad[at] > 0 ? 1 : -1) * (0.5 + 0.5 * fabs(uniform(&seed))));
                expected += (double)grad[at] * (double)direction[i][k];
            }
        }
        const char *slot = which < 2 * a.n ? a.pair[which / 2].slot : "every layer";
        /* Small enough that no row chooses another expert. */
        const double t =
            m->config->n_experts ? fmin(1e-4, 0.01 / (expected + 1e-9)) : fmin(2e-3, 0.05 / (expected + 1e-9));
        const double up = loss_of(m, &r->batch, &a, direction, t, each);
        const double down = loss_of(m, &r->batch, &a, direction, -t, each);
        const double got = (up - down) / (2 * t);
        if (!(fabs(got - expected) <= 0.01 * expected + 1e-5 / t))
            fail_msg("%s: the derivative along %c of %s is %.6g, finite differences give %.6g", name,
                     which % 2 ? 'B' : 'A', slot, expected, got);
        for (int i = 0; i < 2 * a.n; i++) free(direction[i]);
    }
    free(direction);
    free(grad);
    free(again);
    discard(&a);
}

UNIT_TEST(every_family) {
    for (size_t i = 0; i < sizeof checkpoints / sizeof *checkpoints; i++) {
        ht_model *m = load(checkpoints[i], 2);
        rows r;
        fill(&r, m->vocab, i);
        check_losses(m, checkpoints[i], &r);
        check_gradients(m, checkpoints[i], &r, (int)i);
        ht_model_free(m);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_family)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
