/* Tiny random text encoders, safetensors and GGUF, against float32 transformers (tests/golden/make_encoders.py): hidden
 * states of texts of several lengths in one flat batch, which have the bits of each text alone; what they refuse.
 * HEARTH_TEST_ENCODERS selects some by name, separated by commas. */
#include "array/plan.h"
#include "generate/encode.h"
#include "models/label_head.h"
#include "support/checkpoints.h"
#include "support/cpu_device.h"
#include "support/json_file.h"
#include "support/options.h"
#include "support/safetensors_writer.h"
#include "support/scratch.h"
#include "support/test.h"

#include <hearth/hearth.h>

#include <dirent.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char directory[] = "tests/golden/encoders";

/* NAME for tests/golden/encoders/NAME, NAME.gguf for the file; NAME/reference.json answers for both. */
typedef struct checkpoint {
    char name[64], path[128], reference[128];
    bool gguf;
} checkpoint;

enum { MAX = 64, TEXTS = 4, MOST = 64 };
static checkpoint checkpoints[MAX];
static int n_checkpoints;

static ht_model *load(const char *path, ht_precision precision, ht_device *device) {
    ht_model *m;
    assert_works(ht_model_load, path, OPTIONS_AT(ht_model_options, with.device = device, with.precision = precision),
                 &m);
    return m;
}

/* ---- texts ---- */

typedef struct text {
    int64_t n;
    int32_t id[MOST], type[MOST];
    float *states; /* [n, hidden] */
} text;

typedef struct texts {
    int64_t hidden;
    text of[TEXTS];
    int failed;
} texts;

static void read_ids(const ht_json *list, int32_t *to, int64_t n) {
    for (int64_t i = 0; i < n; i++) to[i] = (int32_t)ht_json_integer_value(ht_json_array_get(list, (size_t)i));
}

static void read_texts(const ht_json *document, bool with_types, texts *t) {
    const ht_json *list = ht_json_object_get(document, "texts");
    *t = (texts){.hidden = ht_json_integer_value(ht_json_object_get(document, "hidden"))};
    assert_int_equal(ht_json_array_size(list), TEXTS);
    for (int i = 0; i < TEXTS; i++) {
        const ht_json *one = ht_json_array_get(list, (size_t)i), *types = ht_json_object_get(one, "types"),
                      *ids = ht_json_object_get(one, "ids");
        text *to = &t->of[i];
        to->n = (int64_t)ht_json_array_size(ids);
        assert_in_range(to->n, 1, MOST);
        read_ids(ids, to->id, to->n);
        if (types && with_types) read_ids(types, to->type, to->n);
        to->states = calloc((size_t)(to->n * t->hidden), sizeof(float));
    }
}

static void free_texts(texts *t) {
    for (int i = 0; i < TEXTS; i++) free(t->of[i].states);
}

static void take_row(void *user, const float *state, int64_t position, const int32_t *sequence, int32_t n,
                     float *scratch) {
    texts *t = user;
    (void)scratch;
    assert_int_equal(n, 1);
    memcpy(t->of[*sequence].states + position * t->hidden, state, (size_t)t->hidden * sizeof *state);
}

static void take_failure(void *user, int32_t sequence, const ht_error *err) {
    (void)sequence;
    ((texts *)user)->failed++;
    print_message("%s\n", err->message);
}

static bool after_step(void *user) {
    (void)user;
    return true;
}

/* Computes the texts from `first` on, `n` of them. */
static void encode(ht_model *m, texts *t, int first, int n) {
    texts part = {.hidden = t->hidden};
    ht_prefill_sequence sequence[TEXTS] = {{0}};
    for (int i = 0; i < n; i++) {
        part.of[i] = t->of[first + i];
        sequence[i] = (ht_prefill_sequence){.token = part.of[i].id, .n = part.of[i].n, .type = part.of[i].type};
    }
    const ht_prefill_calls calls = {.row = take_row, .failed = take_failure, .stepped = after_step, .user = &part};
    assert_works(ht_encode, m, &(ht_prefill_options){.hidden = true}, sequence, n, &calls, NULL);
    assert_int_equal(part.failed, 0);
    for (int i = 0; i < n; i++) {
        assert_true(sequence[i].done);
        assert_int_equal(sequence[i].computed, sequence[i].n);
    }
}

/* The largest difference from the reference, in units of its deviation. */
static double difference_of(const ht_json *document, const texts *t) {
    const double std = ht_json_number_value(ht_json_object_get(document, "std"));
    double most = 0;
    for (int i = 0; i < TEXTS; i++) {
        const ht_json *wanted =
            ht_json_object_get(ht_json_array_get(ht_json_object_get(document, "texts"), (size_t)i), "states");
        assert_int_equal(ht_json_array_size(wanted), t->of[i].n * t->hidden);
        for (int64_t k = 0; k < t->of[i].n * t->hidden; k++) {
            const double x = ht_json_number_value(ht_json_array_get(wanted, (size_t)k));
            most = fmax(most, fabs(x - (double)t->of[i].states[k]) / std);
        }
    }
    return most;
}

/* Each text alone, on a device of one thread, has the bits of all in one step. */
static void check_alone(const char *path, ht_precision precision, const ht_json *document, const texts *all) {
    ht_device *device;
    texts t;
    assert_works(ht_device_open, "cpu", OPTIONS_AT(ht_device_options, with.n_threads = 1), &device);
    ht_model *m = load(path, precision, device);
    read_texts(document, true, &t);
    for (int i = 0; i < TEXTS; i++) {
        encode(m, &t, i, 1);
        assert_memory_equal(t.of[i].states, all->of[i].states, (size_t)(t.of[i].n * t.hidden) * sizeof(float));
    }
    free_texts(&t);
    ht_model_free(m);
    ht_device_free(device);
}

/* Scores of a classification head, for all texts at once and for each alone. */
static void check_scores(ht_model *m, const ht_json *document, const checkpoint *c, const texts *t, double most) {
    const ht_json *list = ht_json_object_get(document, "texts");
    const int64_t n = m->config->n_labels;
    float pooled[TEXTS * 32], scores[TEXTS * 4], alone[4];
    assert_int_equal(n, ht_json_array_size(ht_json_object_get(ht_json_array_get(list, 0), "scores")));
    if (n == 0) {
        assert_fails(HT_ERR_UNSUPPORTED, "no classification head", ht_label_head_scores, m, pooled, 1, scores);
        return;
    }
    assert_in_range(n, 1, 4);
    assert_int_equal(t->hidden, 32);
    for (int i = 0; i < TEXTS; i++)
        for (int64_t d = 0; d < t->hidden; d++) {
            const int64_t rows = m->config->label_mean ? t->of[i].n : 1;
            double sum = 0;
            for (int64_t row = 0; row < rows; row++) sum += (double)t->of[i].states[row * t->hidden + d];
            pooled[i * t->hidden + d] = (float)(sum / (double)rows);
        }
    assert_works(ht_label_head_scores, m, pooled, TEXTS, scores);
    for (int i = 0; i < TEXTS; i++) {
        const ht_json *answer = ht_json_array_get(list, (size_t)i), *own = ht_json_object_get(answer, "gguf_scores"),
                      *wanted = c->gguf && own ? own : ht_json_object_get(answer, "scores");
        for (int64_t k = 0; k < n; k++) {
            const double x = ht_json_number_value(ht_json_array_get(wanted, (size_t)k));
            assert_true(fabs(x - (double)scores[i * n + k]) < most);
        }
        assert_works(ht_label_head_scores, m, pooled + i * t->hidden, 1, alone);
        assert_memory_equal(alone, scores + i * n, (size_t)n * sizeof *alone);
    }
}

/* Vectors pooled from the states. */
static void check_vectors(ht_model *m, const texts *t) {
    const int32_t *ids[TEXTS];
    size_t n_ids[TEXTS];
    for (int i = 0; i < TEXTS; i++) ids[i] = t->of[i].id, n_ids[i] = (size_t)t->of[i].n;
    for (ht_pooling pooling = HT_POOLING_LAST; pooling <= HT_POOLING_CLS; pooling++) {
        ht_embeddings *e;
        assert_works(ht_embed_ids, m, ids, n_ids, TEXTS,
                     OPTIONS_AT(ht_embed_options, with.pooling = pooling, with.normalize = false), &e);
        assert_int_equal(e->n_failed, 0);
        for (int i = 0; i < TEXTS; i++)
            for (int64_t d = 0; d < t->hidden; d++) {
                const int64_t n = t->of[i].n;
                double x = (double)t->of[i].states[(pooling == HT_POOLING_CLS ? 0 : n - 1) * t->hidden + d];
                if (pooling == HT_POOLING_MEAN) {
                    x = 0;
                    for (int64_t row = 0; row < n; row++) x += (double)t->of[i].states[row * t->hidden + d];
                    x /= (double)n;
                }
                assert_true((float)x == e->embeddings[i].values[d]);
            }
        ht_embeddings_free(e);
    }
}

static void check_checkpoint(void **state) {
    static const struct {
        ht_precision precision;
        double most;
        const char *name;
    } kinds[] = {{HT_PRECISION_REFERENCE, 2e-4, "reference"}, {HT_PRECISION_HIGH, 1e-2, "high"}};
    const checkpoint *c = *state;
    ht_json *document = json_file(c->reference);
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
        texts t;
        ht_model *m = load(c->path, kinds[k].precision, cpu_device);
        read_texts(document, true, &t);
        encode(m, &t, 0, TEXTS);
        const double difference = difference_of(document, &t);
        print_message("%s: largest difference %.2e of the deviation in %s precision\n", c->name, difference,
                      kinds[k].name);
        assert_true(difference < kinds[k].most);
        check_alone(c->path, kinds[k].precision, document, &t);
        check_scores(m, document, c, &t, kinds[k].most);
        free_texts(&t);
        read_texts(document, false, &t);
        encode(m, &t, 0, TEXTS);
        check_vectors(m, &t);
        free_texts(&t);
        ht_model_free(m);
    }
    ht_json_decref(document);
}

/* ---- long texts ---- */

/* Texts of several tiles of queries and blocks of keys, beyond a step's rows: together and alone, the same bits. */
UNIT_TEST(long_texts_have_the_bits_of_each_alone) {
    enum { N = 5, LONGEST = 300 };
    static const size_t length[N] = {300, 1, 129, 64, 257};
    static const char *const names[] = {"modernbert", "embeddinggemma.gguf"};
    for (size_t k = 0; k < sizeof names / sizeof *names; k++) {
        char path[128];
        static int32_t id[N][LONGEST];
        const int32_t *ids[N];
        snprintf(path, sizeof path, "%s/%s", directory, names[k]);
        ht_model *m = load(path, HT_PRECISION_HIGH, cpu_device);
        for (int i = 0; i < N; i++) {
            ids[i] = id[i];
            for (size_t t = 0; t < length[i]; t++) id[i][t] = (int32_t)(3 + (t * t + 7 * t * (size_t)(i + 1)) % 61);
        }
        ht_embeddings *all, *alone;
        assert_works(ht_embed_ids, m, ids, length, N, NULL, &all);
        for (int i = 0; i < N; i++) {
            assert_works(ht_embed_ids, m, &ids[i], &length[i], 1, NULL, &alone);
            assert_int_equal(all->embeddings[i].status, HT_OK);
            assert_memory_equal(alone->embeddings[0].values, all->embeddings[i].values,
                                (size_t)all->hidden * sizeof(float));
            ht_embeddings_free(alone);
        }
        /* The last token counts: windows and sequences end where they should. */
        id[0][LONGEST - 1]++;
        assert_works(ht_embed_ids, m, ids, length, N, NULL, &alone);
        for (int i = 0; i < N; i++) {
            const bool same =
                !memcmp(alone->embeddings[i].values, all->embeddings[i].values, (size_t)all->hidden * sizeof(float));
            assert_int_equal(same, i != 0);
        }
        ht_embeddings_free(alone);
        ht_embeddings_free(all);
        ht_model_free(m);
    }
}

/* ---- conversions ---- */

static double difference_in(const char *path, const ht_json *document) {
    texts t;
    ht_model *m = load(path, HT_PRECISION_REFERENCE, cpu_device);
    read_texts(document, true, &t);
    encode(m, &t, 0, TEXTS);
    const double difference = difference_of(document, &t);
    free_texts(&t);
    ht_model_free(m);
    return difference;
}

/* Conversions to the other containers and to types that hold the weights exactly compute the same. */
static void check_conversions(void **state) {
    static const struct {
        const char *name, *type;
        ht_container container;
        double most;
    } outputs[] = {{"out.gguf", NULL, HT_CONTAINER_GGUF, 2e-4}, {"q8.gguf", "Q8_0", HT_CONTAINER_GGUF, 2e-4},
                   {"q4.gguf", "Q4_K_M", HT_CONTAINER_GGUF, 2}, {"safetensors", NULL, HT_CONTAINER_SAFETENSORS, 2e-4},
                   {"mlx", NULL, HT_CONTAINER_MLX, 2e-4},       {"mlx8", "8:32", HT_CONTAINER_SAME, 0.2}};
    const checkpoint *c = *state;
    if (test_is_late()) skip(); /* it rounds no weights */
    ht_json *document = json_file(c->reference);
    for (size_t i = 0; i < sizeof outputs / sizeof *outputs; i++) {
        if ((outputs[i].container == HT_CONTAINER_GGUF) == c->gguf && !outputs[i].type) continue;
        if (outputs[i].container == HT_CONTAINER_SAFETENSORS && !c->gguf) continue;
        const char *to = scratch_path_apart(outputs[i].name);
        if (c->gguf && outputs[i].container != HT_CONTAINER_GGUF && !strncmp(c->name, "bert-labels", 11)) {
            assert_fails(
                HT_ERR_UNSUPPORTED, "pooler", ht_convert, c->path, to,
                OPTIONS_AT(ht_convert_options, with.container = outputs[i].container, with.type = outputs[i].type));
            continue;
        }
        assert_works(ht_convert, c->path, to,
                     OPTIONS_AT(ht_convert_options, with.container = outputs[i].container, with.type = outputs[i].type,
                                with.n_threads = 2));
        const double difference = difference_in(to, document);
        print_message("%s: %s differs by %.2e of the deviation\n", c->name, outputs[i].name, difference);
        assert_true(difference < outputs[i].most);
    }
    ht_json_decref(document);
}

/* ---- names ---- */

/* Writes a copy to the scratch directory, with a prefix before the names without one, and a tensor of another task. */
static void write_renamed(const char *path, const char *prefix, const char *other) {
    ht_checkpoint_files *c = checkpoint_files(path);
    safetensors_writer w = {0};
    for (size_t i = 0, n = ht_checkpoint_n_tensors(c); i < n; i++) {
        const ht_safetensor *t = ht_safetensors_at(c->tensors, i);
        char renamed[256];
        snprintf(renamed, sizeof renamed, "%s%s", prefix, ht_checkpoint_bare_name(t->name));
        unsigned char *bytes = checkpoint_bytes(c, t);
        safetensors_put(&w, renamed, t->dtype, t->rank, t->shape, bytes, t->n_bytes);
        free(bytes);
    }
    safetensors_put(&w, other, "F32", 1, (int64_t[]){1}, NULL, 4);
    safetensors_write(&w, "model.safetensors");
    scratch_write("config.json", c->config_text, c->config_size);
    ht_checkpoint_close(c);
}

/* Checkpoints of transformers' classes: with or without the prefix of the model, with the head of pretraining. */
UNIT_TEST(names_of_classes) {
    static const struct {
        const char *name, *prefix[3], *other;
    } classes[] = {{"bert", {"", "bert."}, "cls.predictions.bias"},
                   {"xlm_roberta", {"", "roberta."}, "lm_head.layer_norm.bias"},
                   {"nomic_bert", {"", "bert.", "nomic_bert."}, "cls.predictions.bias"},
                   {"modernbert", {"", "model."}, "head.dense.weight"},
                   {"embeddinggemma", {"", "model."}, "lm_head.weight"}};
    for (size_t i = 0; i < sizeof classes / sizeof *classes; i++) {
        char path[128], reference[160];
        snprintf(path, sizeof path, "%s/%s", directory, classes[i].name);
        snprintf(reference, sizeof reference, "%s/reference.json", path);
        ht_json *document = json_file(reference);
        for (int k = 0; k < 3 && classes[i].prefix[k]; k++) {
            write_renamed(path, classes[i].prefix[k], classes[i].other);
            assert_true(difference_in(scratch_directory(), document) < 2e-4);
        }
        ht_json_decref(document);
    }
}

/* ---- memory ---- */

/* The forecast of a step in which all rows are outputs, or one, is what its executor takes. */
UNIT_TEST(steps_take_the_memory_of_their_forecast) {
    static const char *const names[] = {"bert", "nomic_bert", "modernbert", "embeddinggemma"};
    static const int32_t rows[] = {512, 8192};
    for (size_t i = 0; i < 4 * 2 * 2; i++) {
        char path[128];
        const int32_t n = rows[i / 2 % 2], out = i % 2 ? n : 1;
        const ht_plan *plan;
        ht_exec *exec;
        snprintf(path, sizeof path, "%s/%s", directory, names[i / 4]);
        ht_model *m = load(path, HT_PRECISION_HIGH, cpu_device);
        assert_works(ht_model_plan, m, HT_PLAN_HIDDEN, &plan);
        const double forecast = (double)ht_exec_bytes(plan, n, out);
        const size_t before = ht_memory_get(m->device).active_bytes;
        assert_works(ht_exec_new, plan, n, out, &exec);
        const double taken = (double)(ht_memory_get(m->device).active_bytes - before);
        if (!(taken <= 1.01 * forecast && taken >= 0.99 * forecast))
            fail_msg("%s: %d rows with %d outputs take %.0f bytes, %.0f in the forecast", names[i / 4], (int)n,
                     (int)out, taken, forecast);
        ht_exec_free(exec);
        ht_model_free(m);
    }
}

/* ---- refusals ---- */

UNIT_TEST(generates_no_text) {
    ht_model *m = load("tests/golden/encoders/bert", HT_PRECISION_HIGH, cpu_device);
    ht_session *s;
    ht_engine *e;
    assert_fails(HT_ERR_UNSUPPORTED, "text encoder", ht_session_new, m, NULL, &s);
    assert_works(ht_engine_open, m, NULL, &e); /* so that a server can have the model */
    assert_int_equal(ht_engine_get_statistics(e).kv_budget, 0);
    ht_ticket ticket;
    ht_request request;
    ht_request_init(&request, sizeof request);
    request.ids = (int32_t[]){5, 6};
    request.n_ids = 2;
    assert_fails(HT_ERR_UNSUPPORTED, "text encoder", ht_engine_submit, e, &request, &ticket);
    ht_engine_close(e);
    ht_model_free(m);
}

/* Without the refusal, positions beyond the table fail in the middle of a text. */
UNIT_TEST(contexts_do_not_slide) {
    static const char *const paths[] = {"tests/golden/encoders/bert", "tests/golden/encoders/modernbert.gguf",
                                        "tests/golden/families/gpt2"};
    for (int i = 0; i < 3; i++) {
        ht_model *m;
        assert_fails(HT_ERR_UNSUPPORTED, "cannot slide", ht_model_load, paths[i],
                     OPTIONS_AT(ht_model_options, with.device = cpu_device, with.sliding = true), &m);
    }
}

/* ---- all ---- */

static int by_name(const void *a, const void *b) {
    return strcmp(((const checkpoint *)a)->name, ((const checkpoint *)b)->name);
}

static void find_checkpoints(void) {
    const char *list = getenv("HEARTH_TEST_ENCODERS");
    DIR *d = opendir(directory);
    for (const struct dirent *e; d && (e = readdir(d));) {
        if (*e->d_name == '.' || (list && !checkpoint_is_listed(list, e->d_name)) || n_checkpoints == MAX) continue;
        const char *dot = strrchr(e->d_name, '.');
        checkpoint *c = &checkpoints[n_checkpoints++];
        c->gguf = dot && !strcmp(dot, ".gguf");
        const int stem = (int)(c->gguf ? (size_t)(dot - e->d_name) : strlen(e->d_name));
        snprintf(c->name, sizeof c->name, "%.63s", e->d_name);
        snprintf(c->path, sizeof c->path, "%s/%.63s", directory, e->d_name);
        snprintf(c->reference, sizeof c->reference, "%s/%.*s/reference.json", directory, stem, e->d_name);
    }
    if (d) closedir(d);
    qsort(checkpoints, (size_t)n_checkpoints, sizeof *checkpoints, by_name);
}

/* A wrong directory or a list without a match must not pass as a test of nothing. */
UNIT_TEST(has_checkpoints) { assert_in_range(n_checkpoints, 1, MAX - 1); }

int main(void) {
    enum { OTHERS = 6 };
    find_checkpoints();
    struct CMUnitTest tests[OTHERS + 2 * MAX] = {cmocka_unit_test(has_checkpoints),
                                                 cmocka_unit_test(generates_no_text),
                                                 in_scratch(names_of_classes),
                                                 cmocka_unit_test(steps_take_the_memory_of_their_forecast),
                                                 cmocka_unit_test(contexts_do_not_slide),
                                                 cmocka_unit_test(long_texts_have_the_bits_of_each_alone)};
    for (int i = 0; i < n_checkpoints; i++) {
        checkpoint *c = &checkpoints[i];
        tests[OTHERS + 2 * i] = (struct CMUnitTest){c->name, check_checkpoint, NULL, NULL, c};
        tests[OTHERS + 1 + 2 * i] = (struct CMUnitTest){c->name, check_conversions, scratch_start, scratch_finish, c};
    }
    return cmocka_run_group_tests(tests, cpu_device_open, cpu_device_close);
}
