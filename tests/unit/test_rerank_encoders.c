/* Reranking with text encoders: tiny random ones with tokenizers, safetensors and GGUF, against float32 transformers
 * (tests/golden/make_rerankers.py); conversions; what they refuse. */
#include "generate/rerank_input.h"
#include "support/cpu_device.h"
#include "support/json_file.h"
#include "support/options.h"
#include "support/scratch.h"
#include "support/test.h"

#include <hearth/hearth.h>

#include <math.h>
#include <stdio.h>

#define RERANKERS "tests/golden/rerankers/"

enum { CASES = 7, DOCUMENTS = 5 }; /* DOCUMENTS whole ones, of which the last is too long; and that one, truncated */

typedef struct golden {
    ht_json *root;
    const char *query, *documents[DOCUMENTS];
    int64_t context, document_tokens;
} golden;

static golden read_golden(const char *name) {
    char path[128];
    snprintf(path, sizeof path, RERANKERS "%.*s/reference.json", (int)strcspn(name, "."), name);
    golden g = {.root = json_file(path)};
    const ht_json *cases = ht_json_object_get(g.root, "cases");
    assert_int_equal(ht_json_array_size(cases), CASES);
    g.query = ht_json_string_value(ht_json_object_get(g.root, "query"));
    g.context = ht_json_integer_value(ht_json_object_get(g.root, "context"));
    g.document_tokens = ht_json_integer_value(ht_json_object_get(g.root, "document_tokens"));
    for (size_t i = 0; i < DOCUMENTS; i++)
        g.documents[i] = ht_json_string_value(ht_json_object_get(ht_json_array_get(cases, i), "document"));
    return g;
}

static const ht_json *golden_case(const golden *g, size_t i) {
    return ht_json_array_get(ht_json_object_get(g->root, "cases"), i);
}

static double golden_logit(const golden *g, size_t i) {
    return ht_json_number_value(ht_json_object_get(golden_case(g, i), "logit"));
}

static ht_model *load(const char *path, ht_device *device) {
    ht_model *m;
    assert_works(ht_model_load, path,
                 OPTIONS_AT(ht_model_options, with.device = device, with.precision = HT_PRECISION_REFERENCE), &m);
    return m;
}

static ht_model *load_golden(const char *name, ht_device *device) {
    char path[128];
    snprintf(path, sizeof path, RERANKERS "%s", name);
    return load(path, device);
}

static ht_ranking *rank(ht_model *m, const golden *g, size_t first, size_t n, const ht_rerank_options *o) {
    ht_ranking *r;
    assert_works(ht_rerank, m, g->query, g->documents + first, n, o, &r);
    assert_int_equal(r->n, n);
    return r;
}

/* ---- scores ---- */

static void same_ids(const ht_json *wanted, const int32_t *found, size_t n) {
    int32_t *ids = json_ids(wanted);
    assert_int_equal(ht_json_array_size(wanted), n);
    assert_memory_equal(ids, found, n * sizeof *ids);
    free(ids);
}

/* The ids and types of a case. */
static void check_input(ht_model *m, const golden *g, size_t i) {
    const ht_json *one = golden_case(g, i), *types = ht_json_object_get(one, "types");
    ht_rerank_input in = {.model = m,
                          .query = g->query,
                          .truncate = i == DOCUMENTS,
                          .document_tokens = i > DOCUMENTS ? g->document_tokens : 0};
    ht_encoding e;
    bool truncated;
    assert_works(ht_rerank_input_open, &in);
    assert_works(ht_rerank_input_encode, &in, g->documents[i < DOCUMENTS ? i : DOCUMENTS - 1], &e, &truncated);
    same_ids(ht_json_object_get(one, "ids"), e.ids, e.n);
    assert_int_equal(e.types != NULL, types != NULL);
    if (types) same_ids(types, e.types, e.n);
    assert_int_equal(truncated, i >= DOCUMENTS);
    ht_encoding_free(&e);
    ht_rerank_input_close(&in);
}

static void check_relevance(const golden *g, size_t i, const ht_relevance *found, double most) {
    assert_int_equal(found->status, HT_OK);
    assert_int_equal(found->n_tokens, ht_json_array_size(ht_json_object_get(golden_case(g, i), "ids")));
    assert_int_equal(found->truncated, i >= DOCUMENTS);
    if (!(fabs(found->logit - golden_logit(g, i)) < most))
        fail_msg("case %zu: logit %g, expected %g", i, found->logit, golden_logit(g, i));
    assert_true(fabs(found->score - 1 / (1 + exp(-found->logit))) < 1e-15);
}

/* Each document alone has the bits that it has with the others, on one thread and several. */
static void check_alone(const char *name, const golden *g, const ht_ranking *all) {
    ht_device *device;
    assert_works(ht_device_open, "cpu", OPTIONS_AT(ht_device_options, with.n_threads = 1), &device);
    ht_model *m = load_golden(name, device);
    for (size_t i = 0; i < DOCUMENTS; i++) {
        ht_ranking *alone = rank(m, g, i, 1, OPTIONS_AT(ht_rerank_options, with.truncate = true));
        assert_true(alone->documents[0].logit == all->documents[i].logit);
        ht_ranking_free(alone);
    }
    ht_model_free(m);
    ht_device_free(device);
}

static void check_golden(void **state) {
    const char *name = *state;
    golden g = read_golden(name);
    ht_model *m = load_golden(name, cpu_device);
    assert_int_equal(m->context, g.context);
    for (size_t i = 0; i < CASES; i++)
        if (i != DOCUMENTS - 1) check_input(m, &g, i);
    /* The last document is too long; the others are scored. */
    ht_ranking *whole = rank(m, &g, 0, DOCUMENTS, NULL),
               *cut = rank(m, &g, 0, DOCUMENTS, OPTIONS_AT(ht_rerank_options, with.truncate = true)),
               *few = rank(m, &g, DOCUMENTS - 1, 1,
                           OPTIONS_AT(ht_rerank_options, with.document_tokens = g.document_tokens));
    for (size_t i = 0; i < DOCUMENTS - 1; i++) {
        check_relevance(&g, i, &whole->documents[i], 1e-4);
        assert_true(whole->documents[i].logit == cut->documents[i].logit);
    }
    assert_int_equal(whole->n_failed, 1);
    assert_int_equal(whole->documents[DOCUMENTS - 1].status, HT_ERR_LIMIT);
    assert_non_null(strstr(whole->documents[DOCUMENTS - 1].message, "does not fit the context of 72"));
    check_relevance(&g, DOCUMENTS, &cut->documents[DOCUMENTS - 1], 1e-4);
    check_relevance(&g, DOCUMENTS + 1, &few->documents[0], 1e-4);
    for (size_t i = 1; i < DOCUMENTS; i++)
        assert_true(cut->documents[cut->order[i - 1]].logit > cut->documents[cut->order[i]].logit);
    check_alone(name, &g, cut);
    ht_ranking_free(whole);
    ht_ranking_free(cut);
    ht_ranking_free(few);
    ht_model_free(m);
    ht_json_decref(g.root);
}

/* ---- conversions ---- */

/* The documents that fit have the reference's logits. */
static void check_converted(const char *path, const golden *g, double most) {
    ht_model *m = load(path, cpu_device);
    ht_ranking *r = rank(m, g, 0, DOCUMENTS - 1, NULL);
    for (size_t i = 0; i < DOCUMENTS - 1; i++) check_relevance(g, i, &r->documents[i], most);
    ht_ranking_free(r);
    ht_model_free(m);
}

static void check_label(const char *directory, const char *name) {
    char path[1024];
    snprintf(path, sizeof path, "%s/config.json", directory);
    ht_json *config = json_file(path);
    const ht_json *names = ht_json_object_get(config, "id2label");
    assert_int_equal(ht_json_object_size(names), 1);
    assert_string_equal(ht_json_string_value(ht_json_object_get(names, "0")), name);
    ht_json_decref(config);
}

/* Readers give a model token types if the tokenizer's configuration says so. */
static void check_inputs(const char *directory, bool types) {
    char path[1024];
    snprintf(path, sizeof path, "%s/tokenizer_config.json", directory);
    ht_json *config = json_file(path);
    const ht_json *names = ht_json_object_get(config, "model_input_names");
    assert_int_equal(ht_json_array_size(names), types ? 3 : 2);
    if (types) assert_string_equal(ht_json_string_value(ht_json_array_get(names, 2)), "token_type_ids");
    ht_json_decref(config);
}

/* A directory as GGUF and back, and in types that round its weights, which Q8_0 holds exactly. */
static void check_conversions(void **state) {
    const char *name = *state;
    char directory[128];
    if (test_is_late()) skip(); /* it rounds no weights */
    golden g = read_golden(name);
    snprintf(directory, sizeof directory, RERANKERS "%s", name);
    const char *gguf = scratch_path_apart("out.gguf"), *q8 = scratch_path_apart("q8.gguf"),
               *q4 = scratch_path_apart("q4.gguf"), *back = scratch_path_apart("back"),
               *other = scratch_path_apart("other"), *label = strcmp(name, "xlm_roberta") ? "LABEL_0" : "RELEVANCE";
    assert_works(ht_convert, directory, gguf, OPTIONS_AT(ht_convert_options, with.container = HT_CONTAINER_GGUF));
    check_converted(gguf, &g, 1e-4);
    assert_works(ht_convert, gguf, back, OPTIONS_AT(ht_convert_options, with.container = HT_CONTAINER_SAFETENSORS));
    check_converted(back, &g, 1e-4);
    check_label(back, label);
    check_inputs(back, !strcmp(name, "bert"));
    assert_works(ht_convert, directory, q8, OPTIONS_AT(ht_convert_options, with.type = "Q8_0"));
    check_converted(q8, &g, 1e-4);
    assert_works(ht_convert, gguf, q4, OPTIONS_AT(ht_convert_options, with.type = "Q4_K_M"));
    check_converted(q4, &g, 0.5);
    if (strcmp(name, "bert")) { /* whose converter leaves out the pooler */
        char file[160];
        snprintf(file, sizeof file, "%s.gguf", directory);
        assert_works(ht_convert, file, other,
                     OPTIONS_AT(ht_convert_options, with.container = HT_CONTAINER_SAFETENSORS));
        check_converted(other, &g, 1e-4);
        check_label(other, label);
    }
    ht_json_decref(g.root);
}

/* ---- refusals ---- */

static void refuse(ht_model *m, const ht_rerank_options *o, const char *says) {
    static const char *const documents[] = {"a text"};
    ht_ranking *r = (ht_ranking *)1;
    assert_fails(HT_ERR_UNSUPPORTED, says, ht_rerank, m, "a query", documents, 1, o, &r);
    assert_null(r);
}

UNIT_TEST(refusals) {
    ht_model *m = load_golden("bert", cpu_device);
    refuse(m, OPTIONS_AT(ht_rerank_options, with.instruction = "find"), "text encoders take no instruction");
    m->config->n_labels = 3;
    refuse(m, NULL, "classification head has 3 labels; rerankers have one");
    m->config->n_labels = 0;
    refuse(m, NULL, "the model (bert) has no classification head");
    /* A vector is no business of a reranker, unless a pooling is chosen. */
    m->config->n_labels = 1;
    ht_embeddings *e;
    static const char *const texts[] = {"a text"};
    assert_fails(HT_ERR_UNSUPPORTED, "pooling is `rank`, which gives scores", ht_embed_text, m, texts, 1, NULL, &e);
    assert_works(ht_embed_text, m, texts, 1, OPTIONS_AT(ht_embed_options, with.pooling = HT_POOLING_CLS), &e);
    ht_embeddings_free(e);
    ht_model_free(m);
    m = load_golden("bert.gguf", cpu_device);
    refuse(m, NULL, "lacks the matrix `cls.weight` of its classification head, BERT's pooler");
    ht_model_free(m);
}

/* ModernBERT's head has GELU. */
UNIT_TEST(activations_of_the_head) {
    static const char stated[] = "\"classifier_activation\": \"gelu\"";
    const ht_config_hints hints = {.has_tensors = true, .n_labels = 1}, no_head = {.has_tensors = true};
    ht_config config;
    size_t n;
    char *text = file_bytes(RERANKERS "modernbert/config.json", &n), *at = memmem(text, n, stated, sizeof stated - 1);
    const ht_json_text json = {text, n};
    assert_non_null(at);
    assert_works(ht_config_from_json, json, (ht_json_text){0}, &hints, &config);
    memcpy(at + sizeof stated - 6, "relu", 4);
    assert_fails(HT_ERR_UNSUPPORTED, "`classifier_activation` is `relu`; only gelu is supported", ht_config_from_json,
                 json, (ht_json_text){0}, &hints, &config);
    assert_works(ht_config_from_json, json, (ht_json_text){0}, &no_head, &config);
    free(text);
}

/* The checkpoint's default prompt begins the query. */
UNIT_TEST(default_prompts) {
    static const char *const documents[] = {"a text"};
    ht_model *m = load_golden("bert", cpu_device);
    ht_modules *modules = &m->modules;
    ht_ranking *plain, *whole, *prompted;
    assert_works(ht_rerank, m, "the head", documents, 1, NULL, &plain);
    assert_works(ht_rerank, m, "find: the head", documents, 1, NULL, &whole);
    modules->prompt = calloc(1, sizeof *modules->prompt);
    modules->n_prompts = 1;
    *modules->prompt = (ht_named_prompt){strdup("query"), strdup("find: ")};
    modules->default_prompt = modules->prompt->name;
    assert_works(ht_rerank, m, "the head", documents, 1, NULL, &prompted);
    assert_true(prompted->documents[0].logit == whole->documents[0].logit);
    assert_true(prompted->documents[0].logit != plain->documents[0].logit);
    ht_ranking_free(plain);
    ht_ranking_free(whole);
    ht_ranking_free(prompted);
    ht_model_free(m);
}

/* A query that fills the context leaves nothing for a document, truncated or not. */
UNIT_TEST(long_queries) {
    static const char *const documents[] = {"a text", ""};
    char query[401] = "";
    ht_ranking *r;
    ht_model *m = load_golden("bert", cpu_device);
    for (int i = 0; i < 100; i++) strcat(query, "a b ");
    assert_works(ht_rerank, m, query, documents, 2, OPTIONS_AT(ht_rerank_options, with.truncate = true), &r);
    assert_int_equal(r->n_failed, 2);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(r->documents[i].status, HT_ERR_LIMIT);
        assert_non_null(strstr(r->documents[i].message, "does not fit the context of 72"));
    }
    ht_ranking_free(r);
    ht_model_free(m);
}

/* A document cannot end its place: special tokens in it are text. */
UNIT_TEST(special_tokens_are_text) {
    static const char *const model[] = {"bert", "xlm_roberta.gguf", "modernbert"}, *const texts[] = {"a [SEP] b",
                                                                                                     "a </s> b",
                                                                                                     "a [SEP] b"};
    for (size_t i = 0; i < 3; i++) {
        ht_model *m = load_golden(model[i], cpu_device);
        const ht_rerank_input in = {.model = m, .query = texts[i]};
        ht_rerank_input both[] = {in, in};
        ht_encoding e, plain;
        bool truncated;
        both[1].query = "a";
        assert_works(ht_rerank_input_encode, &both[0], texts[i], &e, &truncated);
        assert_works(ht_rerank_input_encode, &both[1], "b", &plain, &truncated);
        size_t ends = 0, wanted = 0;
        const int32_t end = plain.ids[plain.n - 1];
        for (size_t k = 0; k < e.n; k++) ends += e.ids[k] == end;
        for (size_t k = 0; k < plain.n; k++) wanted += plain.ids[k] == end;
        assert_int_equal(ends, wanted);
        assert_true(e.n > plain.n + 2);
        ht_encoding_free(&e);
        ht_encoding_free(&plain);
        for (int k = 0; k < 2; k++) ht_rerank_input_close(&both[k]);
        ht_model_free(m);
    }
}

/* Types of the tokenizer that the model has no rows for. */
UNIT_TEST(token_types) {
    golden g = read_golden("bert");
    ht_model *m = load_golden("bert", cpu_device);
    ht_rerank_input in = {.model = m, .query = g.query};
    ht_encoding e;
    bool truncated;
    m->config->n_token_types = 1;
    assert_works(ht_rerank_input_encode, &in, "a text", &e, &truncated);
    assert_null(e.types);
    ht_encoding_free(&e);
    m->config->n_token_types = 2;
    for (size_t i = 0; i < m->tokenizer->n_pair; i++) m->tokenizer->pair[i].type += 1;
    assert_fails(HT_ERR_UNSUPPORTED, "token type 2 is out of the model's range [0, 2)", ht_rerank_input_encode, &in,
                 "a text", &e, &truncated);
    ht_rerank_input_close(&in);
    ht_model_free(m);
    ht_json_decref(g.root);
}

static char *const names[] = {"bert", "xlm_roberta", "xlm_roberta.gguf", "modernbert", "modernbert.gguf"};

int main(void) {
    enum { NAMES = sizeof names / sizeof *names };
    struct CMUnitTest tests[6 + 2 * NAMES] = {cmocka_unit_test(refusals),
                                              cmocka_unit_test(long_queries),
                                              cmocka_unit_test(token_types),
                                              cmocka_unit_test(activations_of_the_head),
                                              cmocka_unit_test(special_tokens_are_text),
                                              cmocka_unit_test(default_prompts)};
    size_t n = 6;
    for (size_t i = 0; i < NAMES; i++) {
        tests[n++] = (struct CMUnitTest){names[i], check_golden, NULL, NULL, names[i]};
        if (!strchr(names[i], '.'))
            tests[n++] = (struct CMUnitTest){names[i], check_conversions, scratch_start, scratch_finish, names[i]};
    }
    return cmocka_run_group_tests(tests, cpu_device_open, cpu_device_close);
}
