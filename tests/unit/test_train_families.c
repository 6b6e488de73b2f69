/* Gradients and steps of training of every model family, safetensors and GGUF, against those of torch and PEFT
 * (tests/golden/make_train_families.py). HEARTH_TEST_FAMILIES selects some by name, separated by commas. */
#include "array/eval_forecast.h"
#include "base/text.h"
#include "models/adapter.h"
#include "models/weights.h"
#include "support/checkpoints.h"
#include "support/options.h"
#include "support/test.h"
#include "support/train_run.h"

#include <hearth/memory.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { STEPS = 10, NAME_SIZE = 160 };

/* n values in [-1, 1) that depend on a name and their index; the script computes the same. */
static void fill_values(const char *name, int64_t n, double scale, float *out) {
    uint32_t seed = 2166136261u; /* FNV-1a */
    for (; *name; name++) seed = (seed ^ (unsigned char)*name) * 16777619u;
    for (int64_t i = 0; i < n; i++) {
        uint32_t x = (seed + (uint32_t)i) * 2654435761u;
        x = (x ^ (x >> 15)) * 2246822519u;
        x ^= x >> 13;
        out[i] = (float)(((double)(x >> 8) / (1 << 23) - 1) * scale);
    }
}

static void slot_name(char out[NAME_SIZE], const char *slot, const char *rest) {
    assert_in_range(snprintf(out, NAME_SIZE, "%s%s", slot, rest), 1, NAME_SIZE - 1);
}

/* The parameters of these slots with the values that the script begins with. */
static ht_trainable *trainable_of(ht_model *m, const train_run *r, const char *const *slot, int n) {
    const int64_t rank = ht_json_integer_value(ht_json_object_get(r->document, "rank"));
    const double alpha = ht_json_number_value(ht_json_object_get(r->document, "alpha"));
    ht_lora *pair = calloc((size_t)n, sizeof *pair);
    assert_non_null(pair);
    for (int i = 0; i < n; i++) {
        const int64_t at = ht_weights_find_projection(m->weights, slot[i]);
        if (at < 0) fail_msg("there is no projection %s", slot[i]);
        int64_t n_all;
        const ht_projection *p = &ht_weights_projections(m->weights, &n_all)[at];
        pair[i] = (ht_lora){.slot = (char *)(uintptr_t)slot[i],
                            .n_experts = p->n_experts,
                            .rank = rank,
                            .n_in = p->n_in,
                            .n_out = p->n_out,
                            .scale = (float)(alpha / (double)rank)};
    }
    ht_adapter *a;
    ht_trainable *t;
    assert_works(ht_adapter_new, pair, n, &a);
    free(pair);
    for (int64_t i = 0; i < a->n; i++) {
        const ht_lora *l = &a->lora[i];
        const int64_t each = (l->n_experts ? l->n_experts : 1) * rank;
        char name[NAME_SIZE];
        slot_name(name, l->slot, ".lora_A");
        fill_values(name, each * l->n_in, 1 / sqrt((double)l->n_in), l->a);
        slot_name(name, l->slot, ".lora_B");
        fill_values(name, each * l->n_out, 0.2, l->b);
    }
    assert_works(ht_trainable_new, m, OPTIONS_AT(ht_lora_options, with.init = a), &t);
    ht_adapter_free(a);
    return t;
}

/* The norm of a gradient, and its product with values that make it sensitive to order and sign. */
static void check_gradient(const char *name, const char *parameter, const float *gradient, int64_t n,
                           const ht_json *wanted, size_t first) {
    char of_values[NAME_SIZE];
    float *values = malloc((size_t)n * sizeof *values);
    assert_non_null(values);
    slot_name(of_values, parameter, " gradient");
    fill_values(of_values, n, 1, values);
    double norm = 0, product = 0;
    for (int64_t i = 0; i < n; i++) {
        norm += (double)gradient[i] * (double)gradient[i];
        product += (double)gradient[i] * (double)values[i];
    }
    norm = sqrt(norm);
    const double want = ht_json_number_value(ht_json_array_get(wanted, first)),
                 want_product = ht_json_number_value(ht_json_array_get(wanted, first + 1));
    /* The float32 reference of Qwen3.5 is 1.9e-5 from a float64 one, and its GGUF file's columns sum in another order. */
    const double bound = strcmp(name, "qwen3_5.gguf") ? 4e-5 : 6e-5;
    if (!(want > 0 && fabs(norm - want) <= 2e-5 * want && fabs(product - want_product) <= bound * want))
        fail_msg("%s: the gradient by %s has norm %.7g and product %.7g, expected %.7g and %.7g", name, parameter, norm,
                 product, want, want_product);
    free(values);
}

static void check_gradients(const char *name, const train_run *r, const ht_trainable *t, ht_stream *stream,
                            bool checkpointing) {
    const ht_json *wanted = ht_json_object_get(r->document, "gradients");
    const int n = ht_trainable_count(t);
    ht_array **grads = calloc((size_t)n, sizeof *grads);
    assert_non_null(grads);
    ht_scope *s = ht_scope_new(stream);
    (void)train_run_gradients(r, t, s, checkpointing, grads);
    for (int i = 0; i < n; i++) {
        const char *parameter = ht_trainable_name(t, i);
        char slot[NAME_SIZE];
        const int64_t size = ht_array_size(grads[i]);
        float *gradient = malloc((size_t)size * sizeof *gradient);
        assert_non_null(gradient);
        assert_works(ht_array_read, s, grads[i], gradient, (size_t)size * sizeof *gradient);
        snprintf(slot, sizeof slot, "%.*s", (int)(strrchr(parameter, '.') - parameter), parameter);
        check_gradient(name, parameter, gradient, size, ht_json_object_get(wanted, slot), i % 2 ? 2 : 0);
        free(gradient);
    }
    ht_scope_free(s);
    free(grads);
}

/* The batch several times over, in memory that the caller frees. */
static int32_t *repeated(const ht_train_batch *b, ht_train_batch *out) {
    enum { TIMES = 16 };
    const size_t n = TIMES * (size_t)b->n_tok, n_seq = TIMES * (size_t)b->n_seq;
    int32_t *id = malloc((3 * n + 2 * n_seq + 1) * sizeof *id), *pos = id + n, *target = pos + n, *start = target + n,
            *match = start + n_seq + 1;
    assert_non_null(id);
    for (size_t i = 0; i < n; i++) {
        const size_t from = i % (size_t)b->n_tok;
        id[i] = b->id[from], pos[i] = b->pos[from], target[i] = b->target[from];
    }
    for (size_t q = 0; q <= n_seq; q++)
        start[q] = (int32_t)(q / (size_t)b->n_seq) * b->n_tok + b->seq_start[q % (size_t)b->n_seq];
    for (size_t q = 0; q < n_seq; q++) {
        const int32_t own = b->match ? b->match[q % (size_t)b->n_seq] : -1;
        match[q] = own < 0 ? -1 : own + (int32_t)(q / (size_t)b->n_seq) * b->n_seq;
    }
    *out = (ht_train_batch){.n_tok = (int32_t)n,
                            .n_seq = (int32_t)n_seq,
                            .id = id,
                            .pos = pos,
                            .seq_start = start,
                            .target = target,
                            .n_learned = TIMES * b->n_learned,
                            .match = b->match ? match : NULL,
                            .temperature = b->temperature};
    return id;
}

/* The forecast of a trainer, on which checkpointing and a refusal depend, beside the memory that the gradients take. */
static void check_forecast(const char *name, const train_run *r, const ht_trainable *t, ht_model *m,
                           bool checkpointing) {
    const int n = ht_trainable_count(t);
    ht_array **made = calloc((size_t)n + 1, sizeof *made);
    assert_non_null(made);
    ht_scope *s = ht_scope_new(m->stream);
    ht_train_batch batch;
    int32_t *rows = repeated(&r->batch, &batch);
    assert_works(ht_trainable_gradients, t, s, &batch, HT_NONE, checkpointing, &made[n], made);
    size_t forecast;
    assert_works(ht_eval_forecast, s, made, n + 1, &forecast);
    ht_memory_reset_peak(m->device);
    const size_t before = ht_memory_get(m->device).active_bytes;
    assert_works(ht_array_eval, s, made, n + 1);
    const size_t taken = ht_memory_get(m->device).peak_bytes - before;
    /* It counts the graph as well, which is not in the device's memory; that is much of so small models. */
    if (!(forecast >= taken && (double)forecast <= 1.5 * (double)taken))
        fail_msg("%s: a forecast of %zu bytes for %zu%s", name, forecast, taken, checkpointing ? ", checkpointed" : "");
    ht_scope_free(s);
    free(rows);
    free(made);
}

static void check_steps(const char *name, const train_run *r, ht_trainable *t, ht_stream *stream, bool checkpointing,
                        const char *run) {
    const ht_json *wanted = ht_json_object_get(r->document, run);
    double loss[STEPS + 1], norm[STEPS + 1], worst = 0;
    assert_int_equal(r->steps, STEPS);
    assert_int_equal(ht_json_array_size(wanted), STEPS + 1);
    train_run_steps(r, t, stream, checkpointing, loss, norm);
    for (int i = 0; i <= STEPS; i++) {
        const double want = ht_json_number_value(ht_json_array_get(wanted, (size_t)i)), apart = fabs(loss[i] - want);
        if (!(apart <= 2e-5 * want))
            fail_msg("%s, %s: loss %.7g after %d steps, expected %.7g", name, run, loss[i], i, want);
        worst = fmax(worst, apart / want);
    }
    print_message("%s: largest relative difference of ten %s %.1e\n", name, run, worst);
}

/* Fails unless `targets` chooses these slots. */
static void check_targets(const char *name, ht_model *m, const char *targets, const char *const *slot, int n) {
    ht_lora_options options;
    ht_trainable *t;
    ht_lora_options_init(&options, sizeof options);
    if (targets) options.targets = targets;
    assert_works(ht_trainable_new, m, &options, &t);
    for (int i = 0; i < n; i++)
        if (2 * i >= ht_trainable_count(t) || strncmp(ht_trainable_name(t, 2 * i), slot[i], strlen(slot[i])) != 0)
            fail_msg("%s: %s does not train %s", name, targets ? targets : "the default", slot[i]);
    if (ht_trainable_count(t) != 2 * n)
        fail_msg("%s: %s also trains %s", name, targets ? targets : "the default", ht_trainable_name(t, 2 * n));
    ht_trainable_free(t);
}

static int by_name(const void *a, const void *b) { return strcmp(*(const char *const *)a, *(const char *const *)b); }

/* The slots of a run, sorted; the caller frees them. */
static const char **slots_of(const ht_json *of, int *n) {
    const bool is_list = ht_json_is_array(of);
    *n = (int)(is_list ? ht_json_array_size(of) : ht_json_object_size(of));
    const char **slot = calloc((size_t)*n + 1, sizeof *slot), *key;
    assert_non_null(slot);
    int at = 0;
    ht_json *value;
    if (is_list)
        for (int i = 0; i < *n; i++) slot[i] = ht_json_string_value(ht_json_array_get(of, (size_t)i));
    else
        ht_json_object_foreach((ht_json *)(uintptr_t)of, key, value) slot[at++] = key;
    qsort(slot, (size_t)*n, sizeof *slot, by_name);
    return slot;
}

/* GGUF files whose matrices are cut otherwise than the directory's, so that their slots have other names, or contain the
 * model's factors on products, which an adapter has as well. */
static const char *const apart[] = {"granite4_dense.gguf", "granite4.gguf",       "granite4_moe.gguf",
                                    "falcon_h1.gguf",      "falcon_h1-norm.gguf", NULL};

typedef struct checkpoint {
    char path[NAME_SIZE];
    const char *description; /* the end of its description's name after the checkpoint's: "", "-embed" */
    bool is_file, checkpointing;
} checkpoint;

enum { MAX = 256 };
static checkpoint checkpoints[MAX];
static int n_checkpoints;

/* Gradients of both containers; steps of directories only, as they have the same weights. */
static void torch_and_peft(void **state) {
    const checkpoint *c = *state;
    const char *name = strrchr(c->path, '/') + 1, *dot = strrchr(name, '.');
    int n, n_default;
    char file[NAME_SIZE];
    snprintf(file, sizeof file, "tests/golden/train/families/%.*s%s.json",
             (int)(c->is_file ? (size_t)(dot - name) : strlen(name)), name, c->description);
    train_run r = train_run_open(file);
    const char **slot = slots_of(ht_json_object_get(r.document, "gradients"), &n),
               **of_default = slots_of(ht_json_object_get(r.document, "default"), &n_default);
    ht_model *m = train_run_model(c->path, HT_PRECISION_REFERENCE);
    if (r.pooling) m->config->pooling = r.pooling;
    check_targets(name, m, "all-linear", slot, n);
    ht_trainable *t = trainable_of(m, &r, slot, n);
    check_gradients(name, &r, t, m->stream, c->checkpointing);
    if (!c->is_file) {
        check_forecast(name, &r, t, m, false);
        check_forecast(name, &r, t, m, true);
        check_steps(name, &r, t, m->stream, !c->checkpointing, "losses");
        check_targets(name, m, NULL, of_default, n_default);
        ht_trainable *d = trainable_of(m, &r, of_default, n_default);
        check_steps(name, &r, d, m->stream, c->checkpointing, "default_losses");
        ht_trainable_free(d);
    }
    ht_trainable_free(t);
    ht_model_free(m);
    free(slot);
    free(of_default);
    train_run_close(&r);
}

static void add_checkpoint(const char *path, bool is_file, void *user) {
    assert_true(n_checkpoints < MAX);
    const char *name = strrchr(path, '/') + 1;
    for (int i = 0; apart[i]; i++)
        if (!strcmp(name, apart[i])) return;
    if (ht_ends_with(name, "-mlx4")) return; /* mlx-lm's, which PEFT does not read */
    checkpoint *c = &checkpoints[n_checkpoints];
    *c = (checkpoint){.description = user, .is_file = is_file, .checkpointing = n_checkpoints % 2};
    slot_name(c->path, path, "");
    n_checkpoints++;
}

static void add_embedder(const char *path, bool is_file, const char *description) {
    const char *list = getenv("HEARTH_TEST_FAMILIES");
    if (!list || checkpoint_is_listed(list, strrchr(path, '/') + 1))
        add_checkpoint(path, is_file, (void *)(uintptr_t)description);
}

int main(void) {
    struct CMUnitTest tests[MAX + 1] = {{0}}; /* cmocka skips the empty ones */
    family_checkpoints_each(add_checkpoint, "");
    static const char *const encoders[] = {"bert", "xlm_roberta", "modernbert"};
    for (int i = 0; i < 3; i++) {
        char path[NAME_SIZE];
        snprintf(path, sizeof path, "tests/golden/encoders/%s", encoders[i]);
        add_embedder(path, false, "");
        strcat(path, ".gguf");
        add_embedder(path, true, "");
    }
    add_embedder("tests/golden/families/phi3-longrope", false, "-embed");
    for (int i = 0; i < n_checkpoints; i++)
        tests[i] =
            (struct CMUnitTest){strrchr(checkpoints[i].path, '/') + 1, torch_and_peft, NULL, NULL, &checkpoints[i]};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
