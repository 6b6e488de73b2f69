/* Configurations through their other container and back: every tiny checkpoint, and what cannot be expressed. */
#include "checkpoint/convert_metadata.h"
#include "models/registry.h"
#include "support/checkpoints.h"
#include "support/metadata_file.h"
#include "support/scratch.h"
#include "support/test.h"
#include "support/warnings.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void open_config(const char *path, ht_checkpoint_files **c, ht_config *config) {
    ht_error err = {0};
    if (ht_checkpoint_open(path, c, &err) || ht_checkpoint_config(*c, config, &err)) fail_msg("%s", err.message);
}

/* ---- equality ---- */

#define SAME(field)                                                                                                    \
    if ((double)a->field != (double)b->field)                                                                          \
    fail_msg("%s: " #field " is %g, was %g", name, (double)b->field, (double)a->field)

static void same_rope(const char *name, const ht_rope_spec *a, const ht_rope_spec *b, ht_rope_length length,
                      int64_t dims) {
    ht_rope_config x, y;
    float *p = calloc((size_t)dims, sizeof *p), *q = calloc((size_t)dims, sizeof *q);
    assert_true(p && q);
    const bool any = ht_rope_prepare(a, length, (int32_t)dims, &x, p);
    if (ht_rope_prepare(b, length, (int32_t)dims, &y, q) != any) fail_msg("%s: another RoPE scheme", name);
    if (x.theta != y.theta || x.scale != y.scale || fabsf(x.magnitude - y.magnitude) > 1e-6f)
        fail_msg("%s: RoPE has theta %g, scale %g, magnitude %g; was %g, %g, %g", name, (double)y.theta,
                 (double)y.scale, (double)y.magnitude, (double)x.theta, (double)x.scale, (double)x.magnitude);
    for (int64_t i = 0; any && i < dims / 2; i++)
        if (p[i] != q[i] && !(fabsf(p[i] - q[i]) <= 2e-5f * p[i]))
            fail_msg("%s: RoPE's divisor %d is %g, was %g", name, (int)i, (double)q[i], (double)p[i]);
    free(p);
    free(q);
}

static void same_layer(const char *name, const ht_layer_config *a, const ht_layer_config *b, bool windows) {
    if (windows) SAME(slides);
    if (windows) SAME(chunked);
    SAME(no_rope);
    SAME(n_kv_heads);
    SAME(head_dim);
    SAME(feed_forward);
    SAME(kv_layer);
    SAME(has_experts);
}

/* windows: the other container has a sliding window too, if there is one. */
static void same_config(const char *name, const ht_config *a, const ht_config *b, bool windows) {
    SAME(n_layers);
    SAME(hidden);
    SAME(n_heads);
    SAME(vocab);
    SAME(norm_eps);
    SAME(attention_scale);
    SAME(layer_norm);
    SAME(attention_softcap);
    SAME(final_softcap);
    SAME(q_bias);
    SAME(out_bias);
    SAME(mlp_bias);
    SAME(norm_bias);
    SAME(head_bias);
    SAME(parallel);
    SAME(embedding_scale);
    SAME(residual_scale);
    SAME(logit_scale);
    SAME(query_beta);
    if (a->query_beta > 0) SAME(query_period);
    SAME(tied_head);
    SAME(n_experts);
    SAME(experts_used);
    SAME(expert_feed_forward);
    if (a->n_experts) {
        SAME(shared_feed_forward);
        SAME(routing.scores);
        SAME(routing.normalized);
        SAME(routing.on_input);
        SAME(routing.shared_scale);
        SAME(routing.jitter);
        if (fmaxf(a->routing.scale, b->routing.scale) != 1) SAME(routing.scale); /* 0 means 1 */
        if (a->routing.groups > 1) SAME(routing.groups_used);
    }
    SAME(layer_input);
    if (a->layer_input) SAME(layer_input_vocab);
    if (windows) {
        SAME(context);
        bool slides = false;
        for (int64_t i = 0; i < a->n_layers; i++) slides |= a->layer[i].slides;
        if (slides) SAME(window);
    }
    for (int64_t i = 0; i < a->n_layers; i++) same_layer(name, &a->layer[i], &b->layer[i], windows);
    int64_t full = 0;
    for (int64_t i = a->n_layers - 1; i >= 0; i--)
        if (!a->layer[i].slides) full = i;
    for (int k = 0; k < HT_ROPE_LENGTHS; k++)
        same_rope(name, &a->rope, &b->rope, (ht_rope_length)k, a->layer[full].head_dim);
    if (a->rope.kind == HT_ROPE_LONG) SAME(rope.original_context);
    if (a->family->defaults.local_rope_theta > 0) same_rope(name, &a->local_rope, &b->local_rope, HT_ROPE_OF_SHORT, 16);
    for (int i = 0; i < a->n_eos && i < 3; i++) {
        bool found = false;
        for (int k = 0; k < b->n_eos; k++) found |= a->eos[i] == b->eos[k];
        if (!found) fail_msg("%s: %d ended an answer", name, (int)a->eos[i]);
    }
}

/* ---- round trips ---- */

/* The configuration that the documents of a GGUF file are read as. */
static ht_config read_documents(const ht_checkpoint_files *c, const ht_config *config) {
    ht_directory_documents d;
    ht_error err = {0};
    if (ht_directory_documents_of(c, config, false, "float32", &d, &err)) fail_msg("%s", err.message);
    assert_true(d.n >= 2);
    assert_string_equal(d.document[0].name, "config.json");
    assert_string_equal(d.document[1].name, "generation_config.json");
    static const ht_config_hints no_tensors;
    const ht_json_text text = {d.document[0].text, strlen(d.document[0].text)},
                       generation = {d.document[1].text, strlen(d.document[1].text)};
    ht_config read;
    if (ht_config_from_json(text, generation, &no_tensors, &read, &err)) fail_msg("%s\n%s", err.message, text.data);
    ht_directory_documents_free(&d);
    return read;
}

/* RoPE as the tensor of divisors says. */
static void apply_factors(const ht_checkpoint_files *c, ht_config *config) {
    ht_stored_tensor t;
    ht_error err = {0};
    if (!ht_checkpoint_find(c, HT_ROPE_FACTORS, &t)) return;
    float *values = calloc((size_t)t.dims[0], sizeof *values);
    assert_non_null(values);
    assert_int_equal(ht_file_read_at(t.file, t.offset, values, t.n_bytes, &err), HT_OK);
    if (ht_rope_from_factors(values, t.dims[0], &config->rope, &err)) fail_msg("%s", err.message);
    free(values);
}

static void gguf_round_trip(const char *path) {
    ht_checkpoint_files *c;
    ht_config config;
    open_config(path, &c, &config);
    if (!config.family->class_name) {
        ht_directory_documents d;
        assert_fails(HT_ERR_UNSUPPORTED, "cannot be written", ht_directory_documents_of, c, &config, false, "float32",
                     &d);
        ht_checkpoint_close(c);
        return;
    }
    ht_config read = read_documents(c, &config);
    assert_ptr_equal(read.family, config.family);
    apply_factors(c, &config);
    same_config(path, &config, &read, true);
    ht_checkpoint_close(c);
}

static bool has_window_in_gguf(const ht_config *c) {
    for (const ht_config_field *f = c->family->fields; f && (f->json || f->gguf); f++)
        if (f->gguf && f->offset == offsetof(ht_config, window)) return true;
    return false;
}

static void directory_round_trip(const char *path) {
    ht_checkpoint_files *c, *file;
    ht_config config, read;
    ht_json *metadata;
    ht_error err = {0};
    open_config(path, &c, &config);
    if (ht_gguf_metadata_of(c, &config, &metadata, &err)) {
        checkpoint_may_refuse(path, &err);
        ht_checkpoint_close(c);
        return;
    }
    metadata_file_write(scratch_path("model.gguf"), metadata, &config);
    ht_json_decref(metadata);
    open_config(scratch_path("model.gguf"), &file, &read);
    const ht_config as_read = read;
    apply_factors(file, &read);
    assert_works(ht_convert_fold_multipliers, &config); /* into the weights */
    same_config(path, &config, &read, has_window_in_gguf(&config));
    if (config.family != &ht_family_mistral && config.family->class_name) {
        const ht_config back = read_documents(file, &as_read);
        same_config(path, &config, &back, has_window_in_gguf(&config));
        assert_ptr_equal(back.family, as_read.family); /* some families share an architecture in GGUF */
    }
    ht_checkpoint_close(file);
    ht_checkpoint_close(c);
}

static void round_trip(const char *name, bool is_file, void *user) {
    (void)user;
    if (is_file)
        gguf_round_trip(tiny_checkpoint(name));
    else
        directory_round_trip(tiny_checkpoint(name));
}

static void family_round_trip(const char *path, bool is_file, void *user) {
    (void)user;
    if (is_file)
        gguf_round_trip(path);
    else
        directory_round_trip(path);
}

static void every_family(void **state) {
    (void)state;
    family_checkpoints_each(family_round_trip, NULL);
}

static void every_tiny_checkpoint(void **state) {
    (void)state;
    tiny_checkpoints_each(round_trip, NULL);
}

/* Granite 4 without Mamba layers has the architecture of Granite 3, which needs no sizes of a recurrence. */
static void granite_without_mamba(void **state) {
    (void)state;
#define GRANITE4(more)                                                                                                 \
    "{\"model_type\": \"granitemoehybrid\", \"hidden_size\": 64, \"num_hidden_layers\": 2, \"num_attention_heads\": "  \
    "4, "                                                                                                              \
    "\"layer_types\": [\"attention\", \"attention\"], \"intermediate_size\": 48, \"shared_intermediate_size\": 96, "   \
    "\"vocab_size\": 40, " more "}"
    static const struct {
        const char *json, *architecture;
    } cases[] = {{GRANITE4("\"num_local_experts\": 0, \"position_embedding_type\": \"rope\""), "granite"},
                 {GRANITE4("\"num_local_experts\": 0"), "granite"},
                 {GRANITE4("\"num_local_experts\": 4, \"position_embedding_type\": \"rope\""), "granitemoe"}};
    static const ht_config_hints no_tensors;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const ht_json_text text = {cases[i].json, strlen(cases[i].json)};
        ht_checkpoint_files *file;
        ht_config config, read;
        ht_json *metadata = ht_json_new_object();
        assert_works(ht_config_from_json, text, (ht_json_text){0}, &no_tensors, &config);
        assert_works(ht_convert_config_to_gguf, &config, metadata);
        metadata_file_write(scratch_path("model.gguf"), metadata, &config);
        ht_json_decref(metadata);
        open_config(scratch_path("model.gguf"), &file, &read);
        assert_string_equal(read.architecture, cases[i].architecture);
        assert_ptr_equal(read.family, config.family);
        assert_int_equal(read.layer[1].no_rope, i == 1);
        assert_int_equal(read.shared_feed_forward, i == 2 ? 96 : 0);
        assert_int_equal(read.layer[1].feed_forward, i == 2 ? 0 : 96);
        same_config(cases[i].json, &config, &read, true);
        ht_checkpoint_close(file);
    }
}

/* ---- RoPE's divisors ---- */

static void llama3(double factor, double low, double high, double context, double theta, int64_t dims) {
    ht_rope_spec spec = {.kind = HT_ROPE_LLAMA3,
                         .theta = theta,
                         .factor = factor,
                         .low_freq_factor = low,
                         .high_freq_factor = high,
                         .original_context = context},
                 found = {.theta = theta};
    ht_rope_config how;
    ht_error err = {0};
    float values[256];
    assert_true(ht_rope_prepare(&spec, HT_ROPE_OF_SHORT, (int32_t)dims, &how, values));
    if (ht_rope_from_factors(values, dims / 2, &found, &err)) fail_msg("%s", err.message);
    same_rope("llama3", &spec, &found, HT_ROPE_OF_SHORT, dims);
    if (low == 1 && high == 4 && dims >= 64) {
        assert_true(found.high_freq_factor == high && found.original_context == context && found.factor == factor);
    }
}

static void llama3_settings_are_found(void **state) {
    (void)state;
    llama3(8, 1, 4, 8192, 500000, 128); /* Llama 3.1 */
    llama3(32, 1, 4, 8192, 500000, 64); /* Llama 3.2 */
    llama3(16, 1, 4, 2048, 10000, 128);
    llama3(8, 1, 4, 64, 500000, 8);
    llama3(4, 2, 3, 512, 10000, 16);
    llama3(4, 2, 8, 4096, 100000, 96);
    llama3(20, 1, 1.5, 32768, 1000000, 128);
}

static void proportional_shares_are_found(void **state) {
    (void)state;
    for (int64_t n = 4; n <= 64; n++)
        for (int64_t turning = 1; turning < n; turning++) {
            float values[64];
            ht_rope_spec found = {.theta = 1e6};
            ht_rope_config how;
            ht_error err = {0};
            for (int64_t i = 0; i < n; i++) values[i] = i < turning ? 1 : 1e30f;
            if (ht_rope_from_factors(values, n, &found, &err))
                fail_msg("%d of %d: %s", (int)turning, (int)n, err.message);
            assert_int_equal(found.kind, HT_ROPE_PROPORTIONAL);
            assert_true(ht_rope_prepare(&found, HT_ROPE_OF_SHORT, (int32_t)(2 * n), &how, values));
            for (int64_t i = 0; i < n; i++) assert_true(i < turning ? values[i] == 1 : isinf(values[i]));
        }
}

static void other_divisors_are_refused(void **state) {
    (void)state;
    static const float values[][4] = {{1, 5, 2, 9}, {1, 2, 1e30f, 4}, {1, -1, 1, 1}, {1, INFINITY, 1, 1}};
    for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
        ht_rope_spec rope = {.theta = 10000};
        ht_error err = {0};
        const ht_status st = ht_rope_from_factors(values[i], 4, &rope, &err);
        assert_int_equal(st, i < 2 ? HT_ERR_UNSUPPORTED : HT_ERR_FORMAT);
        assert_non_null(strstr(err.message, HT_ROPE_FACTORS));
        assert_true(rope.kind == HT_ROPE_PLAIN && rope.theta == 10000);
    }
    ht_rope_spec rope = {.theta = 10000};
    ht_error err = {0};
    assert_int_equal(ht_rope_from_factors((const float[]){1, 1}, 2, &rope, &err), HT_OK);
    assert_int_equal(rope.kind, HT_ROPE_PLAIN);
    assert_int_equal(ht_rope_from_factors((const float[]){4, 4}, 2, &rope, &err), HT_OK);
    assert_true(rope.kind == HT_ROPE_LINEAR && rope.factor == 4);
    assert_fails(HT_ERR_UNSUPPORTED, "another RoPE scaling", ht_rope_from_factors, (const float[]){1, 4}, 2, &rope);
}

/* ---- what one container cannot say ---- */

static const ht_json *number_in(const ht_json *metadata, const char *key) {
    const ht_json *value = ht_json_object_get(ht_json_object_get(metadata, key), "value");
    if (!value) fail_msg("there is no %s", key);
    return value;
}

static void a_window_limits_the_context(void **state) {
    (void)state;
    ht_checkpoint_files *c;
    ht_config config;
    ht_json *metadata;
    ht_error err = {0};
    open_config("tests/golden/tiny/mistral-sliding-f32", &c, &config);
    warnings_begin();
    assert_int_equal(ht_gguf_metadata_of(c, &config, &metadata, &err), HT_OK);
    assert_non_null(strstr(warnings_end(1), "sliding window"));
    assert_int_equal(ht_json_integer_value(number_in(metadata, "llama.context_length")), 9);
    assert_string_equal(ht_json_string_value(ht_json_object_get(metadata, "general.architecture")), "llama");
    assert_string_equal(ht_json_string_value(ht_json_object_get(metadata, "general.name")), "mistral-sliding-f32");
    ht_json_decref(metadata);
    ht_checkpoint_close(c);
}

/* A configuration with one change, and what the error says of it. */
static void refuse_json(const char *path, void (*change)(ht_config *c), const char *says) {
    ht_checkpoint_files *c;
    ht_config config;
    ht_directory_documents d;
    ht_error err = {0};
    open_config(path, &c, &config);
    change(&config);
    assert_int_equal(ht_directory_documents_of(c, &config, false, "float32", &d, &err), HT_ERR_UNSUPPORTED);
    assert_non_null(strstr(err.message, says));
    assert_non_null(strstr(err.message, ".gguf"));
    ht_directory_documents_free(&d);
    ht_checkpoint_close(c);
}

static void bias_queries_alone(ht_config *c) { c->q_bias = true; }
static void widen_one_layer(ht_config *c) { c->layer[0].feed_forward++; }
static void scale_attention(ht_config *c) { c->attention_scale = 0.5f; }
static void drop_bias(ht_config *c) { c->q_bias = false; }

static void what_config_json_cannot_say_is_named(void **state) {
    (void)state;
    refuse_json("tests/golden/tiny/llama-f32.gguf", bias_queries_alone, "attention outputs have no bias");
    refuse_json("tests/golden/tiny/llama-f32.gguf", widen_one_layer, "the feed-forward size of layer 0 is");
    refuse_json("tests/golden/tiny/llama-f32.gguf", scale_attention, "the attention scale is 0.5");
    refuse_json("tests/golden/tiny/qwen2-q4_0.gguf", drop_bias, "queries have no bias");
    ht_checkpoint_files *c;
    ht_config config;
    ht_directory_documents d;
    ht_json *metadata;
    ht_error err = {0};
    open_config("tests/golden/tiny/llama-f32", &c, &config);
    assert_int_equal(ht_directory_documents_of(c, &config, false, "float32", &d, &err), HT_ERR_ARGUMENT);
    ht_checkpoint_close(c);
    open_config("tests/golden/tiny/llama-f32.gguf", &c, &config);
    assert_int_equal(ht_gguf_metadata_of(c, &config, &metadata, &err), HT_ERR_ARGUMENT);
    assert_null(metadata);
    ht_checkpoint_close(c);
}

int main(void) {
    const struct CMUnitTest tests[] = {in_scratch(every_tiny_checkpoint),
                                       in_scratch(every_family),
                                       in_scratch(granite_without_mamba),
                                       cmocka_unit_test(llama3_settings_are_found),
                                       cmocka_unit_test(proportional_shares_are_found),
                                       cmocka_unit_test(other_divisors_are_refused),
                                       cmocka_unit_test(a_window_limits_the_context),
                                       cmocka_unit_test(what_config_json_cannot_say_is_named)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
