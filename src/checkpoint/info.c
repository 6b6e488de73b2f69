/* Checkpoint information without loading weights. For a GGUF file of an unsupported family, only its metadata is
 * used. */
#include "base/checked.h"
#include "base/error.h"
#include "checkpoint/chat_detection.h"
#include "checkpoint/kv_size.h"
#include "checkpoint/sampling.h"
#include "checkpoint/stored_weights.h"
#include "device/device.h"

#include <hearth/model.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_TYPES = 64 };

/* The public struct, first, with storage for its strings. */
typedef struct info {
    ht_model_info public;
    char architecture[64], name[128], quantization[32], tokenizer_kind[64], bos[64], eos[64];
    ht_tensor_type type[MOST_TYPES];
    char type_name[MOST_TYPES][16];
    ht_layer_info *layers;
    ht_sampling sampling;
} info;

/* NULL beyond the maximum number of types. */
static ht_tensor_type *type_named(info *in, const char *name) {
    int32_t n = in->public.n_tensor_types;
    for (int32_t i = 0; i < n; i++)
        if (!strncmp(in->type_name[i], name, sizeof in->type_name[i] - 1)) return &in->type[i];
    if (n == MOST_TYPES) return NULL;
    snprintf(in->type_name[n], sizeof in->type_name[n], "%s", name);
    in->type[n].name = in->type_name[n];
    in->public.tensor_types = in->type;
    in->public.n_tensor_types++;
    return &in->type[n];
}

/* Bits come from the type's name, the group size from the weight type table; except NVFP4, whose block has four scales,
 * and MLX's modes, whose names are not weight types. */
static void describe_quantization(info *in, const char *name) {
    static const struct {
        const char *name;
        int32_t group;
    } others[] = {{"NVFP4", 16}, {"nvfp4", 16}, {"mxfp4", 32}, {"mxfp8", 32}};
    ht_model_info *p = &in->public;
    snprintf(in->quantization, sizeof in->quantization, "%s", name);
    const char *digit = name + strcspn(name, "0123456789");
    p->quantization_bits = (int32_t)strtol(digit, NULL, 10);
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (!strcmp(others[i].name, name)) p->quantization_group = others[i].group;
    for (int t = 0; t < HT_W_COUNT; t++) {
        const ht_weight_type_info *type = ht_weight_type_info_of((ht_weight_type)t);
        if (!p->quantization_group && !strcmp(type->name, name) && type->block > 1) p->quantization_group = type->block;
    }
}

static void describe_tensors(info *in, const ht_checkpoint_files *c) {
    ht_model_info *p = &in->public;
    for (size_t i = 0, n = ht_checkpoint_n_tensors(c); i < n; i++) {
        ht_stored_tensor t, of;
        ht_checkpoint_tensor_at(c, i, &t);
        if (!t.n_bytes) continue; /* scales, counted with their weight */
        bool scale = ht_scheme_owner(c, &t, &of);
        int64_t elements = scale ? 0 : 1;
        for (int d = 0; d < t.n_dims; d++) elements *= t.dims[d];
        p->n_parameters += elements;
        p->weight_bytes += (int64_t)t.n_bytes;
        ht_tensor_type *type = type_named(in, scale ? of.type_name : t.type_name);
        if (!type) continue;
        type->n_tensors += !scale;
        type->n_parameters += elements;
        type->bytes += (int64_t)t.n_bytes;
    }
    const ht_tensor_type *most = NULL;
    for (int32_t i = 0; i < p->n_tensor_types; i++)
        if (!most || p->tensor_types[i].bytes > most->bytes) most = &p->tensor_types[i];
    snprintf(in->quantization, sizeof in->quantization, "none");
    if (most) describe_quantization(in, most->name);
    if (p->n_parameters > 0) p->bits_per_weight = 8 * (double)p->weight_bytes / (double)p->n_parameters;
    p->memory_bytes = p->weight_bytes;
    p->has_weights = ht_checkpoint_n_tensors(c) > 0;
}

/* Tables for row lookups only stay in the file. */
static ht_status add_table(const ht_stored_weight *w, void *user, ht_error *err) {
    (void)err;
    size_t *bytes = user;
    if (w->is_table && !ht_weight_is_f8((ht_weight_type)w->stored.type)) *bytes += w->stored.n_bytes;
    return HT_OK;
}

static void describe_sizes(info *in, const char *architecture, const ht_config *c) {
    ht_model_info *p = &in->public;
    snprintf(in->architecture, sizeof in->architecture, "%s", architecture);
    snprintf(in->name, sizeof in->name, "%s", c->name);
    p->n_layers = c->n_layers;
    p->hidden = c->hidden;
    p->n_heads = c->n_heads;
    p->n_kv_heads = c->n_kv_heads;
    p->head_dim = c->head_dim;
    p->feed_forward = c->feed_forward;
    p->vocab = c->vocab;
    p->context = c->context;
    p->n_experts = c->n_experts;
    p->n_experts_used = c->experts_used;
    p->pooling = c->pooling;
}

static void describe_config(info *in, const ht_checkpoint_files *from, const ht_config *c) {
    ht_model_info *p = &in->public;
    describe_sizes(in, c->family->architecture, c);
    p->tied_head = c->tied_head && p->has_weights && !c->two_sided;
    p->is_encoder = c->two_sided;
    p->n_labels = c->n_labels;
    size_t table_bytes = 0;
    (void)ht_stored_weights_visit_outside(from, c, add_table, &table_bytes, &(ht_error){0});
    p->memory_bytes -= (int64_t)table_bytes;
    for (int64_t i = 0; i < c->n_layers; i++) {
        const ht_layer_config *l = &c->layer[i];
        p->n_sliding_layers += l->slides;
        in->layers[i] = (ht_layer_info){.slides = l->slides,
                                        .has_experts = l->has_experts,
                                        .is_latent = c->latent.rank > 0,
                                        .is_chunked = l->slides && l->chunked,
                                        .n_kv_heads = l->n_kv_heads,
                                        .head_dim = l->head_dim,
                                        .feed_forward = l->feed_forward,
                                        .kv_layer = l->kv_layer,
                                        .state = l->recurrent ? ht_state_values(c) : 0};
    }
    p->layers = in->layers;
    if (p->n_sliding_layers) p->sliding_window = c->window;
    p->n_prediction_layers = ht_prediction_layers(from, c);
}

static void describe_files(info *in, const ht_checkpoint_files *c) {
    ht_model_info *p = &in->public;
    p->n_files = c->gguf ? ht_gguf_set_n_parts(c->parts) : ht_safetensors_n_files(c->tensors);
    for (int i = 0; i < p->n_files; i++)
        p->file_bytes +=
            (int64_t)(c->gguf ? ht_gguf_set_part(c->parts, i)->file : ht_safetensors_file(c->tensors, i))->size;
}

static bool is_kv_dtype(ht_dtype t) { return t == HT_F16 || t == HT_BF16 || t == HT_F32 || t == HT_I8; }

/* Bytes of a layer's KV page, 0 if it has none; *ring is the ring's page count, 0 for a growing cache. */
static size_t page_bytes_of(const ht_model_info *p, int64_t layer, ht_dtype dtype, int64_t *ring) {
    const ht_layer_info *l = &p->layers[layer];
    const ht_kv_shape kv = {(int32_t)l->n_kv_heads, (int32_t)l->head_dim, dtype, l->is_latent, 0};
    *ring = l->slides ? ht_kv_ring_pages(p->sliding_window, HT_LEAST_STEP_ROWS, p->context) : 0;
    return l->kv_layer == layer && l->n_kv_heads && !p->is_encoder ? ht_kv_saved_page_bytes(&kv) : 0;
}

/* Bytes of a layer's states in a sequence of `positions`; SIZE_MAX on overflow. */
static size_t state_bytes_of(const ht_layer_info *l, int64_t positions) {
    const ht_kv_shape kv = {.dtype = HT_F32, .state = l->state};
    size_t bytes;
    if (!l->state) return 0;
    return ht_mul_size(ht_kv_saved_page_bytes(&kv), (size_t)ht_state_pages(positions), &bytes) ? bytes : SIZE_MAX;
}

static int64_t as_i64(size_t bytes) { return bytes < INT64_MAX ? (int64_t)bytes : INT64_MAX; }

int64_t ht_model_info_kv_bytes(const ht_model_info *p, ht_dtype dtype, int64_t positions) {
    size_t total = 0;
    if (!is_kv_dtype(dtype) || !p->layers || positions < 0) return 0;
    positions = ht_min_i64(positions, p->context);
    for (int64_t i = 0; i < p->n_layers; i++) {
        int64_t ring;
        size_t bytes, page = page_bytes_of(p, i, dtype, &ring);
        if (!ht_mul_size(page, (size_t)ht_kv_pages(ring, positions), &bytes) || !ht_add_size(total, bytes, &total) ||
            !ht_add_size(total, state_bytes_of(&p->layers[i], positions), &total))
            return INT64_MAX;
    }
    return as_i64(total);
}

int64_t ht_model_info_kv_bytes_per_position(const ht_model_info *p, ht_dtype dtype) {
    size_t total = 0;
    for (int64_t i = 0; is_kv_dtype(dtype) && p->layers && i < p->n_layers; i++) {
        int64_t ring;
        size_t page = page_bytes_of(p, i, dtype, &ring);
        if (!ring && !ht_add_size(total, page / HT_KV_PAGE, &total)) return INT64_MAX;
    }
    return as_i64(total);
}

/* general.file_type of GGUF (llama.cpp's LLAMA_FTYPE): the quantisation recipe, named after the type of most tensors,
 * not always of most bytes. */
static const char *file_type_of(const ht_checkpoint_files *c) {
    enum { GUESSED = 1024 }; /* flag LLAMA_FTYPE_GUESSED */
    static const char *const names[] = {
        [0] = "F32",     [1] = "F16",     [2] = "Q4_0",       [3] = "Q4_1",    [7] = "Q8_0",     [8] = "Q5_0",
        [9] = "Q5_1",    [10] = "Q2_K",   [11] = "Q3_K_S",    [12] = "Q3_K_M", [13] = "Q3_K_L",  [14] = "Q4_K_S",
        [15] = "Q4_K_M", [16] = "Q5_K_S", [17] = "Q5_K_M",    [18] = "Q6_K",   [19] = "IQ2_XXS", [20] = "IQ2_XS",
        [21] = "Q2_K_S", [22] = "IQ3_XS", [23] = "IQ3_XXS",   [24] = "IQ1_S",  [25] = "IQ4_NL",  [26] = "IQ3_S",
        [27] = "IQ3_M",  [28] = "IQ2_S",  [29] = "IQ2_M",     [30] = "IQ4_XS", [31] = "IQ1_M",   [32] = "BF16",
        [36] = "TQ1_0",  [37] = "TQ2_0",  [38] = "MXFP4_MOE", [39] = "NVFP4",  [40] = "Q1_0"};
    uint64_t number;
    if (!c->gguf || !ht_gguf_get_u64(c->gguf, "general.file_type", &number)) return "";
    number &= ~(uint64_t)GUESSED;
    return number < sizeof names / sizeof *names && names[number] ? names[number] : "";
}

/* Describes a GGUF file of an unsupported family, or with only a vocabulary. Missing fields stay 0. */
static void describe_metadata(info *in, const ht_checkpoint_files *c, ht_config *config) {
    ht_error ignored = {0};
    ht_meta m = {.gguf = c->gguf, .file = c->name, .err = &ignored};
    *config = (ht_config){.pooling = ""};
    (void)ht_meta_text(c->gguf, "general.architecture", m.architecture, sizeof m.architecture);
    (void)ht_meta_text(c->gguf, "general.name", config->name, sizeof config->name);
    ht_meta_sizes(&m, config);
    describe_sizes(in, *m.architecture ? m.architecture : "unknown", config);
    in->public.sliding_window = ht_meta_i64(&m, "attention.sliding_window", 0);
}

/* An unsupported or missing tokenizer is not an error here. */
static void describe_tokenizer(info *in, const ht_checkpoint_files *c) {
    ht_model_info *p = &in->public;
    snprintf(in->tokenizer_kind, sizeof in->tokenizer_kind, "none");
    p->chat_format = "none";
    ht_tokenizer *t;
    if (ht_chat_detect_tokenizer(c, &t, NULL) || !t) return;
    snprintf(in->tokenizer_kind, sizeof in->tokenizer_kind, "%s", ht_tokenizer_kind(t));
    ht_chat_setup chat;
    if (!ht_chat_detect_template(t, &chat, NULL) && chat.name) p->chat_format = chat.name;
    ht_chat_setup_free(&chat);
    if (!p->vocab) p->vocab = ht_tokenizer_vocab_size(t);
    p->bos_id = ht_tokenizer_bos(t);
    p->eos_id = ht_tokenizer_eos(t);
    if (p->bos_id >= 0) snprintf(in->bos, sizeof in->bos, "%s", ht_tokenizer_piece(t, p->bos_id));
    if (p->eos_id >= 0) snprintf(in->eos, sizeof in->eos, "%s", ht_tokenizer_piece(t, p->eos_id));
    for (int32_t id = 0; id < ht_tokenizer_vocab_size(t); id++) p->n_special_tokens += ht_tokenizer_is_special(t, id);
    ht_tokenizer_free(t);
}

static ht_status describe(info *in, const ht_checkpoint_files *c, ht_config *config, ht_error *err) {
    describe_tensors(in, c);
    describe_files(in, c);
    ht_error unknown = {0};
    ht_status known = ht_checkpoint_config(c, config, &unknown);
    if (!known)
        describe_config(in, c, config);
    else if (c->gguf && (known == HT_ERR_UNSUPPORTED || !in->public.has_weights))
        describe_metadata(in, c, config);
    else
        return ht_fail(err, known, "%s", unknown.message);
    in->public.runs = !known && in->public.has_weights;
    in->public.sampling = in->sampling.field;
    in->public.n_sampling = HT_SAMPLING_FIELDS;
    return ht_sampling_read(c, &in->sampling, err);
}

static ht_status read_info(const char *path, bool glance, ht_model_info **out, ht_error *err) {
    *out = NULL;
    ht_checkpoint_files *c;
    ht_status status = ht_checkpoint_open(path, &c, err);
    if (status) return status;
    info *in = calloc(1, sizeof *in);
    ht_config *config = malloc(sizeof *config);
    if (in) in->layers = calloc(HT_MAX_LAYERS, sizeof *in->layers);
    status = in && in->layers && config ? describe(in, c, config, err)
                                        : ht_fail_memory(err, sizeof *in + sizeof *config, "a description");
    if (!status && glance && in->public.runs) status = ht_stored_weights_visit(c, config, false, NULL, NULL, err);
    if (!status) {
        in->public.chat_format = "";
        in->public.bos_id = in->public.eos_id = -1;
        in->public.bos = in->bos;
        in->public.eos = in->eos;
        if (!glance) describe_tokenizer(in, c);
        in->public.architecture = in->architecture;
        in->public.name = in->name;
        in->public.format = c->gguf ? "gguf" : "safetensors";
        in->public.quantization = in->quantization;
        in->public.file_type = in->public.has_weights ? file_type_of(c) : "";
        in->public.tokenizer_kind = in->tokenizer_kind;
        *out = &in->public;
    } else if (in)
        ht_model_info_free(&in->public);
    free(config);
    ht_checkpoint_close(c);
    return status;
}

ht_status ht_model_info_read(const char *path, ht_model_info **out, ht_error *err) {
    return read_info(path, false, out, err);
}

ht_status ht_model_info_glance(const char *path, ht_model_info **out, ht_error *err) {
    return read_info(path, true, out, err);
}

void ht_model_info_free(ht_model_info *p) {
    info *in = (info *)(void *)p; /* `public` is first */
    if (in) free(in->layers);
    free(in);
}
