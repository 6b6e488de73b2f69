/* config.json with generation_config.json, or GGUF metadata: a configuration that is accepted keeps its promises, and is
 * converted. The first byte chooses the reader and the hints; a zero byte parts the two JSON texts. */
#include "checkpoint/convert_metadata.h"
#include "checkpoint/family.h"
#include "fuzz.h"
#include "generate/sampler.h"

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

static void check_rope(const ht_rope_spec *rope, ht_rope_length length, int64_t dims) {
    float factors[2048];
    ht_rope_config how;
    if (dims > 4096) return;
    bool any = ht_rope_prepare(rope, length, (int32_t)dims, &how, factors);
    check(isfinite(how.theta) && isfinite(how.scale) && isfinite(how.magnitude));
    for (int64_t k = 0; any && k < dims / 2; k++) check(factors[k] > 0); /* infinity: the pair stays where it is */
}

static void check_layer(const ht_config *c, const ht_layer_config *l, int64_t i) {
    check(l->n_kv_heads >= 1 && c->n_heads % l->n_kv_heads == 0 && l->head_dim >= 2 && l->head_dim % 2 == 0);
    check(l->feed_forward >= 1 || l->has_experts);
    check(!l->slides || c->window > 0);
    check(!l->chunked || l->slides);
    check(l->kv_layer >= 0 && l->kv_layer <= i && c->layer[l->kv_layer].kv_layer == l->kv_layer);
    check(c->layer[l->kv_layer].slides == l->slides && c->layer[l->kv_layer].head_dim == l->head_dim);
    if (l->has_experts) check(c->experts_used >= 1 && c->experts_used <= c->n_experts && c->expert_feed_forward >= 1);
    for (int k = 0; k < HT_ROPE_LENGTHS; k++)
        check_rope(l->slides && c->has_local_rope ? &c->local_rope : &c->rope, (ht_rope_length)k, l->head_dim);
}

/* What loading relies on without looking again. */
static void check_config(const ht_config *c) {
    check(c->family && c->n_layers >= 1 && c->n_layers <= HT_MAX_LAYERS);
    check(c->n_heads >= 1 && c->hidden >= 1);
    check(c->vocab >= 1 && c->vocab <= INT32_MAX && c->context >= 1 && c->context <= INT32_MAX);
    check(isfinite(c->attention_scale) && isfinite(c->norm_eps));
    check(isfinite(c->attention_softcap) && isfinite(c->final_softcap));
    for (int64_t i = 0; i < c->n_layers; i++) check_layer(c, &c->layer[i], i);
    for (int i = 0; i < c->n_eos; i++) check(c->eos[i] >= 0 && c->eos[i] < c->vocab);
    check(memchr(c->name, 0, sizeof c->name) != NULL);
}

static void check_error(ht_status status, const ht_error *err) {
    check(err->status == status && err->message[0] && memchr(err->message, 0, sizeof err->message) != NULL);
}

/* In the other container it is a configuration, too, or refused by name. */
static void convert(const ht_config *c) {
    ht_error err = {0};
    ht_json *object = ht_json_new_object(), *config;
    float *values;
    int64_t n;
    ht_status status = object ? ht_convert_config_to_gguf(c, object, &err) : HT_OK;
    if (status) check_error(status, &err);
    ht_json_decref(object);
    status = ht_gguf_rope_factors(c, HT_ROPE_FACTORS, &values, &n, &err);
    if (!status && values) {
        ht_rope_spec rope = {.theta = c->rope.theta};
        status = ht_rope_from_factors(values, n, &rope, &err);
        free(values);
    }
    if (status) check_error(status, &err);
    status = ht_convert_config_to_json(c, &config, &err);
    if (refused(status, &err, config)) return;
    static const ht_config_hints no_tensors;
    char *text = ht_json_dump(config, 0);
    static ht_config read;
    if (text && !ht_config_from_json((ht_json_text){text, strlen(text)}, (ht_json_text){0}, &no_tensors, &read, &err))
        check(read.family == c->family && read.n_layers == c->n_layers && read.hidden == c->hidden);
    free(text);
    ht_json_decref(config);
}

/* Sampling values that are accepted are options that a sampler takes. */
static void check_sampling(const ht_checkpoint_files *files) {
    ht_error err = {0};
    ht_sampling s;
    ht_sampler_options in_effect;
    const ht_status status = ht_sampling_read(files, &s, &err);
    if (status)
        check_error(status, &err);
    else
        check(ht_sampler_options_read(NULL, &s, &in_effect, &err) == HT_OK);
}

static void from_gguf(const uint8_t *data, size_t size) {
    ht_gguf *g;
    ht_error err = {0};
    if (ht_gguf_parse(data, size, "fuzz.gguf", &g, &err)) return;
    check_sampling(&(ht_checkpoint_files){.gguf = g, .name = "fuzz.gguf"});
    ht_config c;
    ht_status status = ht_config_from_gguf(g, "fuzz.gguf", &c, &err);
    if (status)
        check_error(status, &err);
    else {
        check_config(&c);
        convert(&c);
    }
    ht_gguf_free(g);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size == 0) return 0;
    uint8_t choice = data[0];
    data++;
    size--;
    if (choice & 128) {
        from_gguf(data, size);
        return 0;
    }
    ht_config_hints hints = {.has_tensors = choice & 1,
                             .has_q_norm = choice & 2,
                             .has_q_bias = choice & 4,
                             .has_more_norms = (choice & 68) == 68,
                             .has_head = choice & 8,
                             .q_rows = choice & 16   ? 4096
                                       : choice & 32 ? 1000
                                                     : 0};
    const uint8_t *part = memchr(data, 0, size);
    ht_json_text config = {(const char *)data, part ? (size_t)(part - data) : size};
    ht_json_text generation = {part ? (const char *)part + 1 : NULL, part ? size - config.size - 1 : 0};
    check_sampling(&(ht_checkpoint_files){.generation_text = (char *)(uintptr_t)generation.data,
                                          .generation_size = generation.size});
    ht_config c;
    ht_error err = {0};
    ht_status status = ht_config_from_json(config, generation, &hints, &c, &err);
    if (status)
        check_error(status, &err);
    else {
        check_config(&c);
        convert(&c);
    }
    return 0;
}
