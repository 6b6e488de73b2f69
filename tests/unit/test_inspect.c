/* Inspection: against float32 transformers (tests/golden/make_inspect.py), against the KV cache of a session to the bit, and what
 * is refused. */
#include "base/half.h"
#include "base/text.h"
#include "checkpoint/config.h"
#include "device/device.h"
#include "formats/json.h"
#include "generate/session_internal.h"
#include "support/adapters.h"
#include "support/checkpoints.h"
#include "support/json_file.h"
#include "support/options.h"
#include "support/scratch.h"
#include "support/test.h"
#include "support/tiny_model.h"

#include <hearth/hearth.h>

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Rotating caches of `context` positions, unless that is 0. */
static ht_model *load_sliding(const char *name, ht_precision precision, ht_dtype kv, int64_t context) {
    return tiny_checkpoint_load(name, 2,
                                OPTIONS_AT(ht_model_options, with.precision = precision, with.kv_dtype = kv,
                                           with.context = context, with.sliding = context != 0));
}

static ht_model *load(const char *name, ht_precision precision, ht_dtype kv) {
    return load_sliding(name, precision, kv, 0);
}

static ht_inspection *inspect(ht_model *m, const int32_t *ids, int64_t n, const ht_inspect_options *o) {
    ht_inspection *i;
    assert_works(ht_inspect, m, ids, (size_t)n, o, &i);
    assert_int_equal(i->n_tokens, n);
    assert_memory_equal(i->tokens, ids, (size_t)n * sizeof *ids);
    return i;
}

enum { MOST_LAYERS = 16 };
static const int32_t all_layers[MOST_LAYERS] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};

/* Everything of every layer. */
static ht_inspection *inspect_all(ht_model *m, const int32_t *ids, int64_t n) {
    const int n_layers = (int)m->config->n_layers;
    assert_true(n_layers <= MOST_LAYERS);
    return inspect(m, ids, n,
                   OPTIONS_AT(ht_inspect_options, with.values = true, with.queries = true, with.attention = all_layers,
                              with.n_attention = n_layers));
}

/* ---- golden ---- */

/* Differences of sums in another order, in units of an array's largest value; decimals of the file are exact to 1e-6. */
static const double tolerance = 2e-5;

static void check_shape(const ht_json *layer, const char *what, int64_t heads, int64_t rows, int64_t columns) {
    const ht_json *shape = ht_json_object_get(ht_json_object_get(layer, "shape"), what);
    assert_int_equal(heads, ht_json_integer_value(ht_json_array_get(shape, 0)));
    assert_int_equal(rows, ht_json_integer_value(ht_json_array_get(shape, 1)));
    assert_int_equal(columns, ht_json_integer_value(ht_json_array_get(shape, 2)));
}

/* The largest difference of an array [heads, n, columns], at the positions that the file has. */
static double difference(const ht_json *layer, const char *what, const ht_json *positions, const float *values,
                         int64_t heads, int64_t n, int64_t columns) {
    const ht_json *wanted = ht_json_object_get(layer, what);
    const double largest = ht_json_number_value(ht_json_object_get(ht_json_object_get(layer, "largest"), what));
    double most = 0;
    size_t at = 0;
    check_shape(layer, what, heads, n, columns);
    assert_non_null(values);
    assert_true(largest > 0);
    for (int64_t h = 0; h < heads; h++)
        for (size_t p = 0; p < ht_json_array_size(positions); p++) {
            const float *row = values + (h * n + ht_json_integer_value(ht_json_array_get(positions, p))) * columns;
            for (int64_t c = 0; c < columns; c++) {
                const double off = fabs((double)row[c] - ht_json_number_value(ht_json_array_get(wanted, at++)));
                most = off > most || isnan(off) ? off : most;
            }
        }
    assert_int_equal(at, ht_json_array_size(wanted));
    return most / largest;
}

static void check_case(const ht_json *c) {
    const char *name = ht_json_string_value(ht_json_object_get(c, "checkpoint"));
    const ht_json *list = ht_json_object_get(c, "ids"), *positions = ht_json_object_get(c, "positions");
    const ht_json *layers = ht_json_object_get(c, "layers");
    const int64_t n = (int64_t)ht_json_array_size(list);
    int32_t *ids = json_ids(list);
    ht_model *m = load(name, HT_PRECISION_REFERENCE, HT_F32);
    ht_inspection *i = inspect_all(m, ids, n);
    assert_int_equal(i->n_layers, ht_json_array_size(layers));
    double most = 0;
    for (int32_t k = 0; k < i->n_layers; k++) {
        const ht_inspected_layer *l = &i->layers[k];
        const ht_json *expected = ht_json_array_get(layers, (size_t)k);
        most = fmax(most, difference(expected, "k", positions, l->k, l->n_kv_heads, n, l->head_dim));
        most = fmax(most, difference(expected, "v", positions, l->v, l->n_kv_heads, n, l->head_dim));
        most = fmax(most, difference(expected, "q", positions, l->q, l->n_heads, n, l->head_dim));
        most = fmax(most, difference(expected, "attention", positions, l->attention, l->n_heads, n, n));
    }
    print_message("%s: largest difference %.2e of the largest value\n", name, most);
    assert_true(most < tolerance);
    ht_inspection_free(i);
    ht_model_free(m);
    free(ids);
}

UNIT_TEST(golden) {
    ht_json *document = json_file("tests/golden/inspect.json");
    const ht_json *cases = ht_json_object_get(document, "cases");
    assert_true(ht_json_array_size(cases) > 20);
    for (size_t i = 0; i < ht_json_array_size(cases); i++) check_case(ht_json_array_get(cases, i));
    ht_json_decref(document);
}

/* ---- the cache of a session ---- */

/* Compares a saved vector (device/kv.h) with f32 values, rounded to its dtype. */
static void check_vector(const ht_kv_shape *shape, const unsigned char *saved, const float *x) {
    for (int64_t d = 0; d < shape->head_dim; d++) {
        if (shape->dtype == HT_F32)
            assert_memory_equal(saved + 4 * d, x + d, 4);
        else if (shape->dtype == HT_F16)
            assert_int_equal(ht_u16_at(saved + 2 * d), ht_f32_to_f16(x[d]));
        else if (shape->dtype == HT_BF16)
            assert_int_equal(ht_u16_at(saved + 2 * d), ht_f32_to_bf16(x[d]));
        else {
            const float scale = ht_bf16_to_f32(ht_u16_at(saved + shape->head_dim + 2 * (d / HT_KV_QBLOCK)));
            assert_true(fabsf(scale * (float)(int8_t)saved[d] - x[d]) <= 0.501F * scale);
        }
    }
}

/* All positions that the session holds of a layer. */
static void check_layer(const ht_session *s, int32_t layer, const ht_inspected_layer *l, int64_t n) {
    const ht_kv_layer *kv = &s->cache->layer[layer];
    const size_t each = ht_kv_saved_bytes(&kv->shape), vector = ht_kv_vector_bytes(&kv->shape);
    ht_device *d = s->model->device;
    unsigned char *saved = malloc(each);
    ht_error err = {0};
    assert_non_null(saved);
    assert_int_equal(l->kv_layer, layer);
    for (int64_t pos = ht_cache_first(s->cache, layer); pos < n; pos++) {
        const ht_kv_page *page = kv->pages[ht_kv_page_of(kv, pos)];
        assert_int_equal(d->kv->read(d, &kv->shape, page, pos % HT_KV_PAGE, 1, saved, &err), HT_OK);
        for (int64_t h = 0; h < kv->shape.n_kv_heads; h++) {
            const int64_t at = (h * n + pos) * l->head_dim;
            check_vector(&kv->shape, saved + (size_t)h * vector, l->k + at);
            check_vector(&kv->shape, saved + (size_t)(h + kv->shape.n_kv_heads) * vector, l->v + at);
        }
    }
    free(saved);
}

static int64_t first_key(const ht_inspected_layer *l, int64_t row) {
    if (l->chunked) return row / l->window * l->window;
    return l->window && row >= l->window ? row - l->window + 1 : 0;
}

/* Each row sums to 1; what is masked is 0. */
static void check_weights(const ht_inspected_layer *l, int64_t n) {
    for (int64_t h = 0; h < l->n_heads; h++)
        for (int64_t row = 0; row < n; row++) {
            double sum = 0;
            for (int64_t key = 0; key < n; key++) {
                const float w = l->attention[(h * n + row) * n + key];
                if (key > row || key < first_key(l, row))
                    assert_true(w == 0);
                else
                    assert_true(w >= 0 && w <= 1);
                sum += (double)w;
            }
            assert_true(fabs(sum - 1) < 1e-5);
        }
}

static void check_against_session(ht_model *m, ht_adapter *adapter, const ht_inspection *i) {
    ht_session *s;
    const int64_t n = i->n_tokens;
    assert_works(ht_session_new, m, OPTIONS_AT(ht_session_options, with.chunk = 37), &s);
    assert_works(ht_session_set_adapters, s, &adapter, NULL, adapter != NULL);
    assert_works(ht_session_forward, s, i->tokens, (size_t)n, NULL, NULL, NULL);
    for (int32_t l = 0; l < m->n_cache_layers; l++) check_layer(s, l, &i->layers[l], n);
    ht_session_free(s);
}

static const char *const checkpoints[] = {
    "llama-f32",        "llama-q4_1.gguf",    "qwen2-sliding-f16", "qwen3-moe-f32",       "gemma2-f32",
    "gemma3-q5_1.gguf", "gemma4-shared-bf16", "gemma4-q8_0.gguf",  "gemma4-experts-bf16", "mistral-sliding-f32"};

/* Keys and values, rounded, are those of a session that took the prompt in other steps, in every dtype of the cache. */
UNIT_TEST(keys_are_those_of_the_cache) {
    static const ht_dtype dtypes[] = {HT_F32, HT_F16, HT_BF16, HT_I8};
    const int most = test_is_late() ? 40 : 300; /* plain kernels take their time */
    for (size_t c = 0; c < sizeof checkpoints / sizeof *checkpoints; c++)
        for (size_t d = 0; d < sizeof dtypes / sizeof *dtypes; d++) {
            ht_model *m = load(checkpoints[c], HT_PRECISION_HIGH, dtypes[d]);
            const int n = m->context < most ? (int)m->context : most;
            int32_t *ids = checkpoint_ids(m, n, 0);
            ht_inspection *i = inspect_all(m, ids, n);
            check_against_session(m, NULL, i);
            for (int32_t l = 0; l < i->n_layers; l++) check_weights(&i->layers[l], n);
            ht_inspection_free(i);
            free(ids);
            ht_model_free(m);
        }
}

/* Weights of a row from its query, the keys and the head's sink (-INFINITY: none), in double. */
static void check_row(const ht_config *c, const ht_inspected_layer *l, int64_t n, int64_t head, int64_t row,
                      double sink) {
    const float *q = l->q + (head * n + row) * l->head_dim;
    const float *k = l->k + head / (l->n_heads / l->n_kv_heads) * n * l->head_dim;
    const int64_t first = first_key(l, row);
    double *score = calloc((size_t)n, sizeof *score), top = sink, sum = 0;
    assert_non_null(score);
    for (int64_t key = first; key <= row; key++) {
        double x = 0;
        for (int64_t d = 0; d < l->head_dim; d++) x += (double)q[d] * (double)k[key * l->head_dim + d];
        x *= (double)c->attention_scale;
        if (c->attention_softcap > 0) x = tanh(x / (double)c->attention_softcap) * (double)c->attention_softcap;
        score[key] = x;
        top = fmax(top, x);
    }
    for (int64_t key = first; key <= row; key++) sum += score[key] = exp(score[key] - top);
    sum += exp(sink - top);
    for (int64_t key = first; key <= row; key++)
        assert_true(fabs(score[key] / sum - (double)l->attention[(head * n + row) * n + key]) < 1e-5);
    free(score);
}

/* Prompts that rings of sliding layers do not hold as a whole. */
UNIT_TEST(long_prompts) {
    static const struct {
        const char *name;
        int64_t sliding;
    } cases[] = {{"gemma2-f32", 0}, {"gemma3-f32", 0}, {"gemma4-shared-bf16", 0}, {"llama-f32", 100}};
    enum { N = 1000 };
    static const int64_t rows[] = {0, 1, 99, 255, 256, 511, 600, 767, 768, 769, N - 1};
    const size_t n_cases = test_is_late() ? 1 : sizeof cases / sizeof *cases;
    for (size_t c = 0; c < n_cases; c++) {
        ht_model *m = load_sliding(cases[c].name, HT_PRECISION_HIGH, HT_F32, cases[c].sliding);
        assert_true(m->context >= N);
        int32_t *ids = checkpoint_ids(m, N, 0);
        ht_inspection *i = inspect_all(m, ids, N);
        check_against_session(m, NULL, i);
        for (int32_t l = 0; l < i->n_layers; l++) {
            check_weights(&i->layers[l], N);
            for (size_t r = 0; r < sizeof rows / sizeof *rows; r++)
                for (int64_t h = 0; h < i->layers[l].n_heads; h++)
                    check_row(m->config, &i->layers[l], N, h, rows[r], (double)-INFINITY);
        }
        if (cases[c].sliding) assert_int_equal(i->layers[0].window, cases[c].sliding);
        ht_inspection_free(i);
        free(ids);
        ht_model_free(m);
    }
}

/* A layer that attends to chunks, in a ring. */
UNIT_TEST(chunks) {
    enum { N = 600, CHUNK = 70 };
    static const int64_t rows[] = {0, 1, 69, 70, 71, 255, 256, 419, 420, N - 1};
    ht_model *m = tiny_load(&(tiny_options){.window = CHUNK, .chunked = true, .kv = HT_F32});
    int32_t ids[N];
    tiny_ids(ids, N, 3);
    ht_inspection *i = inspect_all(m, ids, N);
    assert_true(i->layers[0].window == CHUNK && i->layers[0].chunked && !i->layers[5].chunked);
    check_against_session(m, NULL, i);
    for (int32_t l = 0; l < i->n_layers; l++) {
        check_weights(&i->layers[l], N);
        for (size_t r = 0; r < sizeof rows / sizeof *rows; r++)
            for (int64_t h = 0; h < i->layers[l].n_heads; h++)
                check_row(m->config, &i->layers[l], N, h, rows[r], (double)-INFINITY);
    }
    ht_inspection_free(i);
    ht_model_free(m);
}

/* ---- sinks: an observer between the model and the inspection, which adds them to every attention ---- */

enum { MOST_HEADS = 16 };
static const float sinks[MOST_HEADS] = {0.5f, -1, 3, -INFINITY, 0, 20, 1, -40, 2, 2, 2, 2, 2, 2, 2, 2};

typedef struct between {
    ht_observer observer; /* first */
    ht_observer *inspection;
} between;

static ht_forward_fn *real_forward;

static bool attends_with_sinks(ht_observer *o, ht_ctx *c, ht_array *q, ht_array *k, ht_array *v, int kv_layer,
                               const ht_attention *how, ht_array *result) {
    ht_observer *inspection = ((between *)o)->inspection;
    const int64_t n = ht_array_dim(q, 1);
    ht_attention with = *how;
    with.sinks = ht_array_from(c->s, sinks, HT_F32, &n, 1);
    return inspection->attends(inspection, c, q, k, v, kv_layer, &with, result);
}

static ht_array *layer_between(ht_observer *o, ht_ctx *c, ht_layer_fn *layer, const void *model, int index,
                               ht_array *const *in) {
    ht_observer *inspection = ((between *)o)->inspection;
    return inspection->layer(inspection, c, layer, model, index, in);
}

static ht_array *forward_with_sinks(ht_ctx *c, const void *model) {
    between b = {{.attends = attends_with_sinks, .layer = layer_between}, c->observer};
    c->observer = &b.observer;
    ht_array *h = real_forward(c, model);
    c->observer = b.inspection;
    return h;
}

/* Weights beside sinks, of several heads that share keys; a row then sums to less than 1. */
UNIT_TEST(weights_beside_sinks) {
    enum { N = 60 };
    static const char *const names[] = {"llama-f32", "gemma2-f32", "gemma4-shared-bf16"};
    for (size_t k = 0; k < sizeof names / sizeof *names; k++) {
        ht_model *m = load(names[k], HT_PRECISION_HIGH, HT_F32);
        ht_config config = *m->config;
        ht_config *real = m->config;
        ht_family family = *real->family;
        real_forward = family.forward;
        family.forward = forward_with_sinks;
        config.family = &family;
        m->config = &config;
        int32_t *ids = checkpoint_ids(m, N, 0);
        ht_inspection *i = inspect_all(m, ids, N);
        m->config = real;
        for (int32_t l = 0; l < i->n_layers; l++) {
            assert_true(i->layers[l].n_heads <= MOST_HEADS);
            for (int64_t row = 0; row < N; row += 7)
                for (int64_t h = 0; h < i->layers[l].n_heads; h++)
                    check_row(m->config, &i->layers[l], N, h, row, (double)sinks[h]);
        }
        ht_inspection_free(i);
        free(ids);
        ht_model_free(m);
    }
}

enum { N_THREADS = 4, N_SHARED = 90 };

typedef struct caller {
    pthread_t thread;
    ht_model *m;
    const int32_t *ids;
    ht_inspection *found;
} caller;

static void *call(void *arg) {
    caller *c = arg;
    c->found = inspect(c->m, c->ids, N_SHARED, OPTIONS_AT(ht_inspect_options, with.queries = true));
    return NULL;
}

UNIT_TEST(several_threads) {
    ht_model *m = load("qwen3-moe-f32", HT_PRECISION_HIGH, HT_F16);
    int32_t *ids = checkpoint_ids(m, N_SHARED, 0);
    ht_inspection *alone =
        inspect(m, ids, N_SHARED, OPTIONS_AT(ht_inspect_options, with.queries = true, with.values = true));
    caller callers[N_THREADS];
    for (int t = 0; t < N_THREADS; t++) {
        callers[t] = (caller){.m = m, .ids = ids};
        assert_int_equal(pthread_create(&callers[t].thread, NULL, call, &callers[t]), 0);
    }
    check_against_session(m, NULL, alone);
    for (int t = 0; t < N_THREADS; t++) {
        assert_int_equal(pthread_join(callers[t].thread, NULL), 0);
        for (int32_t l = 0; l < alone->n_layers; l++) {
            const ht_inspected_layer *a = &alone->layers[l], *b = &callers[t].found->layers[l];
            assert_memory_equal(a->k, b->k, (size_t)(a->n_kv_heads * N_SHARED * a->head_dim) * sizeof(float));
            assert_memory_equal(a->q, b->q, (size_t)(a->n_heads * N_SHARED * a->head_dim) * sizeof(float));
        }
        ht_inspection_free(callers[t].found);
    }
    ht_inspection_free(alone);
    free(ids);
    ht_model_free(m);
}

UNIT_TEST(adapters_change_keys) {
    static const char *const names[] = {"llama-q4_1.gguf", "gemma4-experts-bf16"};
    for (size_t c = 0; c < sizeof names / sizeof *names; c++) {
        ht_model *m = load(names[c], HT_PRECISION_HIGH, HT_F16);
        ht_adapter *a = test_adapter_for(m, 3, 1, 5);
        int32_t *ids = checkpoint_ids(m, 40, 0);
        ht_inspection *plain = inspect(m, ids, 40, OPTIONS_AT(ht_inspect_options, with.values = true));
        ht_inspection *adapted = inspect(
            m, ids, 40, OPTIONS_AT(ht_inspect_options, with.values = true, with.adapters = &a, with.n_adapters = 1));
        const ht_inspected_layer *l = &plain->layers[0];
        const size_t size = (size_t)(l->n_kv_heads * 40 * l->head_dim);
        assert_true(test_difference(adapted->layers[0].k, l->k, size) > 1e-3);
        check_against_session(m, a, adapted);
        check_against_session(m, NULL, plain);
        /* Scales multiply: by 0 it is as if there were none. */
        static const float zero = 0;
        ht_inspection *none = inspect(
            m, ids, 40,
            OPTIONS_AT(ht_inspect_options, with.adapters = &a, with.n_adapters = 1, with.adapter_scales = &zero));
        assert_true(test_difference(none->layers[0].k, l->k, size) < 1e-6);
        ht_inspection_free(none);
        ht_inspection_free(adapted);
        ht_inspection_free(plain);
        free(ids);
        ht_adapter_free(a);
        ht_model_free(m);
    }
}

/* ---- what is kept ---- */

/* Of fewer layers, and one kind at a time, the bits are those of everything. */
UNIT_TEST(parts_are_those_of_the_whole) {
    enum { N = 70 };
    ht_model *m = load("gemma4-shared-bf16", HT_PRECISION_HIGH, HT_F16);
    int32_t *ids = checkpoint_ids(m, N, 0);
    ht_inspection *whole = inspect_all(m, ids, N);
    assert_int_equal(whole->n_layers, 6);
    for (int32_t k = 0; k < 6; k++) {
        const ht_inspected_layer *w = &whole->layers[k];
        const size_t kv = (size_t)(w->n_kv_heads * N * w->head_dim) * sizeof(float);
        const size_t q = (size_t)(w->n_heads * N * w->head_dim) * sizeof(float);
        const size_t square = (size_t)(w->n_heads * N * N) * sizeof(float);
        ht_inspection *one = inspect(m, ids, N, OPTIONS_AT(ht_inspect_options, with.layers = &k, with.n_layers = 1));
        for (int32_t l = 0; l < 6; l++) {
            assert_true((one->layers[l].k != NULL) == (l == k));
            assert_true(!one->layers[l].v && !one->layers[l].q && !one->layers[l].attention);
        }
        assert_memory_equal(one->layers[k].k, w->k, kv);
        assert_int_equal(one->layers[k].kv_layer, w->kv_layer);
        assert_int_equal(one->bytes, kv);
        ht_inspection_free(one);
        one = inspect(m, ids, N,
                      OPTIONS_AT(ht_inspect_options, with.keys = false, with.queries = true, with.layers = &k,
                                 with.n_layers = 1));
        assert_true(!one->layers[k].k && one->bytes == q);
        assert_memory_equal(one->layers[k].q, w->q, q);
        ht_inspection_free(one);
        one = inspect(m, ids, N,
                      OPTIONS_AT(ht_inspect_options, with.keys = false, with.attention = &k, with.n_attention = 1));
        assert_true(!one->layers[k].k && one->bytes == square);
        assert_memory_equal(one->layers[k].attention, w->attention, square);
        ht_inspection_free(one);
    }
    /* Shared keys are there once. */
    assert_ptr_equal(whole->layers[3].k, whole->layers[1].k);
    assert_int_equal(whole->layers[3].kv_layer, 1);
    ht_inspection_free(whole);
    free(ids);
    ht_model_free(m);
}

static void check_saved(ht_scope *s, ht_array_file *f, const char *name, const float *values, const int64_t shape[3]) {
    for (size_t i = 0; i < ht_array_file_count(f); i++) {
        if (strcmp(ht_array_file_name(f, i), name) != 0) continue;
        ht_array *a = ht_array_file_read(s, f, i);
        const void *data;
        assert_works(ht_array_data, s, a, &data);
        assert_int_equal(ht_array_n_dims(a), 3);
        for (int k = 0; k < 3; k++) assert_int_equal(ht_array_dim(a, k), shape[k]);
        assert_memory_equal(data, values, (size_t)ht_array_size(a) * sizeof(float));
        return;
    }
    fail_msg("%s is not in the file", name);
}

UNIT_TEST(saved_arrays) {
    enum { N = 20 };
    ht_model *m = load("gemma4-shared-bf16", HT_PRECISION_HIGH, HT_F16);
    int32_t *ids = checkpoint_ids(m, N, 0);
    static const int32_t weighed[] = {4};
    ht_inspection *i = inspect(
        m, ids, N, OPTIONS_AT(ht_inspect_options, with.queries = true, with.attention = weighed, with.n_attention = 1));
    for (int deflate = 0; deflate < 2; deflate++) {
        const char *path = scratch_path("k.npz");
        assert_works(ht_inspection_save, i, path, deflate);
        ht_array_file *f;
        assert_works(ht_array_file_open, path, &f);
        ht_scope *s = ht_scope_new(m->stream);
        /* tokens, the keys of three layers that have their own, queries of six, weights of one */
        assert_int_equal(ht_array_file_count(f), 1 + 3 + 6 + 1);
        for (int32_t l = 0; l < i->n_layers; l++) {
            const ht_inspected_layer *x = &i->layers[l];
            char name[32];
            snprintf(name, sizeof name, "layer.%d.k", (int)x->kv_layer);
            check_saved(s, f, name, x->k, (int64_t[]){x->n_kv_heads, N, x->head_dim});
            snprintf(name, sizeof name, "layer.%d.q", (int)l);
            check_saved(s, f, name, x->q, (int64_t[]){x->n_heads, N, x->head_dim});
        }
        check_saved(s, f, "layer.4.attention", i->layers[4].attention, (int64_t[]){i->layers[4].n_heads, N, N});
        ht_scope_free(s);
        ht_array_file_free(f);
    }
    assert_fails(HT_ERR_IO, "", ht_inspection_save, i, "/no/such/place/k.npz", false);
    ht_inspection_free(i);
    free(ids);
    ht_model_free(m);
}

/* ---- pictures ---- */

static int count(const char *text, const char *part) {
    int n = 0;
    for (const char *at = text; (at = strstr(at, part)); at += strlen(part)) n++;
    return n;
}

UNIT_TEST(pictures) {
    enum { N = 60 };
    ht_model *m = tiny_load(&(tiny_options){0});
    static const int32_t layer = 0;
    const ht_inspect_options how =
        OPTIONS(ht_inspect_options, with.keys = false, with.attention = &layer, with.n_attention = 1);
    /* All tokens, in pieces short enough for every one to be labelled: bytes that are no UTF-8, controls, and all that XML
     * gives a meaning. */
    bool quoted = false, control = false, deleted = false, byte = false, space = false;
    for (int32_t first = 0; first < TINY_VOCAB; first += N) {
        int32_t ids[N];
        for (int i = 0; i < N; i++) ids[i] = (first + i) % TINY_VOCAB;
        ht_inspection *inspection = inspect(m, ids, N, &how);
        char *svg;
        assert_works(ht_inspection_draw, inspection, 0, 1, ht_model_tokenizer(m), &svg);
        assert_true(ht_utf8_valid(svg, strlen(svg)));
        for (const char *c = svg; *c; c++) assert_true((unsigned char)*c >= 0x20 || *c == '\n');
        assert_int_equal(count(svg, "<text"), count(svg, "</text>"));
        assert_true(count(svg, "<text") >= 2 * N);
        quoted |= strstr(svg, "&lt;") && strstr(svg, "&amp;") && strstr(svg, "&gt;") && strstr(svg, "&quot;");
        control |= strstr(svg, "\\u0001") != NULL;
        deleted |= strstr(svg, "\\u007F") != NULL;
        byte |= strstr(svg, "\\xFF") != NULL;
        space |= strstr(svg, "\xE2\x90\xA3") != NULL;
        ht_text_free(svg);
        ht_inspection_free(inspection);
    }
    assert_true(quoted && control && deleted && byte && space);
    ht_model_free(m);
}

static void check_refused(const ht_inspection *i, int32_t layer, int32_t head, ht_status status, const char *says) {
    char *svg = (char *)1;
    assert_fails(status, says, ht_inspection_draw, i, layer, head, NULL, &svg);
    assert_null(svg);
}

UNIT_TEST(pictures_of_what_is_not_there) {
    ht_model *m = tiny_load(&(tiny_options){0});
    static const int32_t ids[] = {70};
    static const int32_t layer = 0;
    const ht_inspect_options how = OPTIONS(ht_inspect_options, with.attention = &layer, with.n_attention = 1);
    ht_inspection *i = inspect(m, ids, 1, &how);
    char *svg;
    assert_works(ht_inspection_draw, i, 0, 0, NULL, &svg); /* one token, by its number */
    assert_non_null(strstr(svg, "#"));
    ht_text_free(svg);
    check_refused(i, -1, 0, HT_ERR_ARGUMENT, "no layer -1");
    check_refused(i, i->n_layers, 0, HT_ERR_ARGUMENT, "its layers are 0 to");
    check_refused(i, 0, i->layers[0].n_heads, HT_ERR_ARGUMENT, "its heads are 0 to");
    if (i->n_layers > 1) check_refused(i, 1, 0, HT_ERR_ARGUMENT, "does not hold the attention weights of layer 1");
    ht_inspection larger = *i;
    larger.n_tokens = 2100;
    check_refused(&larger, 0, 0, HT_ERR_LIMIT, "2100 tokens: at most 2048");
    ht_inspection_free(i);
    ht_model_free(m);
}

/* ---- what is refused ---- */

static void refuse(ht_model *m, const int32_t *ids, size_t n, const ht_inspect_options *o, ht_status status,
                   const char *says) {
    ht_inspection *i = (ht_inspection *)1;
    assert_fails(status, says, ht_inspect, m, ids, n, o, &i);
    assert_null(i);
}

UNIT_TEST(refusals) {
    ht_model *m = tiny_load(&(tiny_options){.context = 64});
    int32_t ids[65];
    tiny_ids(ids, 65, 1);
    static const int32_t no_layer[] = {0, 99}, negative[] = {-1}, layer[] = {0};
    refuse(m, ids, 0, NULL, HT_ERR_ARGUMENT, "no tokens");
    refuse(m, ids, 65, NULL, HT_ERR_LIMIT, "prompt of 65 tokens does not fit the context of 64");
    ids[3] = TINY_VOCAB;
    refuse(m, ids, 8, NULL, HT_ERR_ARGUMENT, "token id 288 at place 3");
    ids[3] = -1;
    refuse(m, ids, 8, NULL, HT_ERR_ARGUMENT, "token id -1 at place 3");
    ids[3] = 0;
    refuse(m, ids, 8, OPTIONS_AT(ht_inspect_options, with.layers = no_layer, with.n_layers = 2), HT_ERR_ARGUMENT,
           "no layer 99");
    refuse(m, ids, 8, OPTIONS_AT(ht_inspect_options, with.attention = negative, with.n_attention = 1), HT_ERR_ARGUMENT,
           "no layer -1");
    refuse(m, ids, 8, OPTIONS_AT(ht_inspect_options, with.n_layers = -2), HT_ERR_ARGUMENT, "-2 layers");
    refuse(m, ids, 8, OPTIONS_AT(ht_inspect_options, with.n_adapters = -1), HT_ERR_ARGUMENT, "-1 adapters");
    refuse(m, ids, 8, OPTIONS_AT(ht_inspect_options, with.keys = false), HT_ERR_ARGUMENT, "neither keys");
    ht_cancel cancel = {0};
    ht_cancel_request(&cancel);
    refuse(m, ids, 8, OPTIONS_AT(ht_inspect_options, with.cancel = &cancel), HT_ERR_CANCELLED, "cancelled");
    refuse(m, ids, 8,
           OPTIONS_AT(ht_inspect_options, with.most_bytes = 5000, with.attention = layer, with.n_attention = 1),
           HT_ERR_LIMIT, "inspecting 8 tokens takes");
    ht_model_free(m);
}

/* Numbers that no machine has are refused before anything is allocated. */
UNIT_TEST(attention_beyond_memory) {
    enum { N = 400000 };
    ht_model *m = tiny_load(&(tiny_options){.context = N});
    int32_t *ids = malloc(N * sizeof *ids);
    assert_non_null(ids);
    tiny_ids(ids, N, 1);
    static const int32_t layer = 0;
    refuse(m, ids, N, OPTIONS_AT(ht_inspect_options, with.attention = &layer, with.n_attention = 1), HT_ERR_LIMIT,
           "of memory are free");
    free(ids);
    ht_model_free(m);
}

typedef struct seen {
    ht_cancel cancel;
    double last;
    int calls;
} seen;

static void on_progress(double done, void *user) {
    seen *s = user;
    assert_true(done > s->last && done <= 1);
    s->last = done;
    if (++s->calls == 2) ht_cancel_request(&s->cancel);
}

UNIT_TEST(progress_and_cancellation) {
    ht_model *m = load("gemma4-shared-bf16", HT_PRECISION_HIGH, HT_F16);
    int32_t *ids = checkpoint_ids(m, 300, 0);
    seen s = {0};
    ht_inspection *i =
        inspect(m, ids, 300, OPTIONS_AT(ht_inspect_options, with.progress = on_progress, with.user = &s));
    assert_true(s.last == 1 && s.calls == 2 * 3); /* two steps through the layers with keys of their own */
    ht_inspection_free(i);
    s = (seen){0};
    refuse(m, ids, 300,
           OPTIONS_AT(ht_inspect_options, with.progress = on_progress, with.user = &s, with.cancel = &s.cancel),
           HT_ERR_CANCELLED, "cancelled in layer 2");
    free(ids);
    ht_model_free(m);
}

/* A NaN is what an inspection is for. */
UNIT_TEST(numbers_that_are_none) {
    ht_model *m = tiny_load(&(tiny_options){.nan_token = 65});
    const int32_t ids[] = {70, 65, 71};
    static const int32_t layer = 0;
    ht_inspection *i =
        inspect(m, ids, 3, OPTIONS_AT(ht_inspect_options, with.attention = &layer, with.n_attention = 1));
    const ht_inspected_layer *l = &i->layers[0];
    assert_true(isfinite(l->k[0]) && isnan(l->k[l->head_dim]));
    assert_true(l->attention[0] == 1 && isnan(l->attention[3]));
    char *svg;
    assert_works(ht_inspection_draw, i, 0, 0, NULL, &svg);
    assert_non_null(strstr(svg, "#d62728"));
    ht_text_free(svg);
    ht_inspection_free(i);
    ht_model_free(m);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(golden),
        cmocka_unit_test(keys_are_those_of_the_cache),
        cmocka_unit_test(long_prompts),
        cmocka_unit_test(chunks),
        cmocka_unit_test(weights_beside_sinks),
        cmocka_unit_test(several_threads),
        cmocka_unit_test(adapters_change_keys),
        cmocka_unit_test(parts_are_those_of_the_whole),
        cmocka_unit_test(saved_arrays),
        cmocka_unit_test(pictures),
        cmocka_unit_test(pictures_of_what_is_not_there),
        cmocka_unit_test(refusals),
        cmocka_unit_test(attention_beyond_memory),
        cmocka_unit_test(progress_and_cancellation),
        cmocka_unit_test(numbers_that_are_none),
    };
    if (test_cases(TEST_WATCHES_THREADS, 0)) cmocka_set_test_filter("several_threads");
    return cmocka_run_group_tests(tests, scratch_start, scratch_finish);
}
