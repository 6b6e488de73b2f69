#include "checkpoint/checkpoint.h"

#include "base/checked.h"
#include "base/error.h"
#include "base/log.h"
#include "base/text.h"
#include "checkpoint/modules.h"
#include "checkpoint/scheme.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CONFIG_BYTES_MAX = 16 << 20 };

/* Weight files of a directory. */
typedef struct contents {
    int n_safetensors;
    ht_gguf_listing gguf;
} contents;

static ht_status list_weights(const char *path, contents *out, ht_error *err) {
    *out = (contents){0};
    DIR *dir = opendir(path);
    if (!dir) return ht_fail(err, HT_ERR_IO, "%s: the directory cannot be read", path);
    for (const struct dirent *e; (e = readdir(dir));) {
        if (ht_ends_with(e->d_name, ".safetensors")) out->n_safetensors++;
        ht_gguf_listing_add(&out->gguf, e->d_name);
    }
    closedir(dir);
    return HT_OK;
}

static ht_status open_gguf(ht_checkpoint_files *c, ht_error *err) {
    ht_status status = ht_gguf_set_open(c->path, &c->parts, err);
    if (status) return status;
    c->gguf = ht_gguf_set_metadata(c->parts);
    ht_scheme_choose(c, NULL);
    c->name = ht_gguf_set_part(c->parts, 0)->name;
    return ht_checkpoint_list_tensors(c, err);
}

/* Reads a file of a directory, which the caller frees; NULL when it does not exist. */
static ht_status read_text(const char *directory, const char *name, char **text, size_t *size, ht_error *err) {
    char *path = ht_path_join(directory, name);
    *text = NULL;
    *size = 0;
    if (!path) return ht_fail_memory(err, strlen(directory) + strlen(name) + 2, "a path");
    ht_status status = ht_path_exists(path) ? ht_file_read_all(path, CONFIG_BYTES_MAX, text, size, err) : HT_OK;
    free(path);
    return status;
}

/* ---- names of safetensors ---- */

/* The prefix of weight "X.weight", stored in any form, followed by `end`. `otherwise` if the weight is absent, NULL
 * when out of memory. */
static char *prefixed(const ht_checkpoint_files *c, const char *name, const char *end, const char *otherwise) {
    enum { MOST = 64 }; /* a longer prefix is treated as none */
    const ht_safetensor *t = ht_checkpoint_elements(c, name);
    if (!t) return strdup(otherwise);
    const size_t n = (size_t)(ht_checkpoint_bare_name(t->name) - t->name), size = MOST + strlen(end) + 1;
    char *out = malloc(size);
    if (out) snprintf(out, size, "%.*s%s", n <= MOST ? (int)n : 0, t->name, end);
    return out;
}

/* Finds the prefix of most tensor names, which is longer in multimodal checkpoints, and the output head. */
static ht_status find_prefix(ht_checkpoint_files *c, ht_error *err) {
    static const char head[] = "lm_head.weight", *const embeddings[] = {"wte.weight", "embeddings.weight",
                                                                        "embeddings.word_embeddings.weight",
                                                                        "embeddings.tok_embeddings.weight",
                                                                        "embed_tokens.weight"};
    int i = 0;
    while (i < 4 && !ht_checkpoint_elements(c, embeddings[i])) i++;
    c->prefix = prefixed(c, embeddings[i], "", "model.");
    c->head = prefixed(c, head, head, "");
    if (!c->prefix || !c->head) return ht_fail_memory(err, sizeof head, "a name");
    if (*c->head) return HT_OK;
    free(c->head);
    c->head = NULL;
    return HT_OK;
}

/* ---- opening ---- */

static ht_status open_safetensors(ht_checkpoint_files *c, ht_error *err) {
    c->name = "config.json";
    ht_json *config = NULL;
    ht_status status = read_text(c->path, "config.json", &c->config_text, &c->config_size, err);
    if (!status && !c->config_text)
        return ht_fail(err, HT_ERR_FORMAT, "%s: there are weights but no config.json beside them", c->path);
    if (!status) status = read_text(c->path, "generation_config.json", &c->generation_text, &c->generation_size, err);
    if (!status) status = ht_json_parse(c->config_text, c->config_size, "config.json", &config, err);
    if (!status) status = ht_safetensors_open(c->path, &c->tensors, err);
    if (!status) status = ht_checkpoint_list_tensors(c, err);
    if (!status) {
        ht_scheme_choose(c, config);
        status = find_prefix(c, err);
    }
    ht_json_decref(config);
    return status || !c->scheme->join ? status : c->scheme->join(c, err);
}

static bool is_listed_model(const contents *c, const char *name) {
    return !strcmp(c->gguf.name, name) || ht_gguf_same_set(c->gguf.name, name);
}

static char *directory_of(const char *path) {
    size_t n = strlen(path) - strlen(ht_base_name(path));
    return n ? strndup(path, n) : strdup(".");
}

static ht_status open_any(const char *path, ht_checkpoint_files *c, ht_error *err) {
    contents inside;
    if (!ht_path_is_directory(path)) {
        c->path = strdup(path);
        if (!c->path || !(c->directory = directory_of(path))) return ht_fail_memory(err, strlen(path) + 1, "a path");
        if (list_weights(c->directory, &inside, NULL) || inside.gguf.n != 1 ||
            !is_listed_model(&inside, ht_base_name(path))) {
            free(c->directory);
            c->directory = NULL;
        }
        return open_gguf(c, err);
    }
    ht_status status = list_weights(path, &inside, err);
    if (status) return status;
    if (inside.n_safetensors) {
        if (inside.gguf.n)
            ht_log_write(HT_LOG_INFO,
                         "%s: holds safetensors and GGUF files; the safetensors are used. Name `%s` to use it instead",
                         ht_base_name(path), inside.gguf.name);
        c->path = strdup(path);
        return c->path ? open_safetensors(c, err) : ht_fail_memory(err, strlen(path) + 1, "a path");
    }
    if (inside.gguf.n == 0)
        return ht_fail(err, HT_ERR_FORMAT, "%s: the directory holds no weights: neither *.safetensors nor a .gguf file",
                       path);
    if (inside.gguf.n > 1)
        return ht_fail(err, HT_ERR_ARGUMENT, "%s: the directory holds %d GGUF files; name the one to load", path,
                       inside.gguf.n);
    c->path = ht_path_join(path, inside.gguf.name);
    c->directory = strdup(path);
    return c->path && c->directory ? open_gguf(c, err)
                                   : ht_fail_memory(err, strlen(path) + sizeof inside.gguf.name, "a path");
}

ht_status ht_checkpoint_open(const char *path, ht_checkpoint_files **out, ht_error *err) {
    *out = NULL;
    ht_checkpoint_files *c = calloc(1, sizeof *c);
    if (!c) return ht_fail_memory(err, sizeof *c, "a checkpoint");
    ht_status status = open_any(path, c, err);
    if (status)
        ht_checkpoint_close(c);
    else
        *out = c;
    return status;
}

void ht_checkpoint_close(ht_checkpoint_files *c) {
    if (!c) return;
    ht_gguf_set_close(c->parts);
    ht_safetensors_close(c->tensors);
    free(c->stored);
    ht_name_index_free(&c->bare_names);
    ht_json_decref(c->quantization);
    free(c->prefix);
    free(c->head);
    free(c->config_text);
    free(c->generation_text);
    free(c->directory);
    free(c->path);
    free(c);
}

static bool exists(const ht_checkpoint_files *c, const char *bare) { return ht_checkpoint_safetensor(c, bare) != NULL; }

ht_status ht_checkpoint_text(const ht_checkpoint_files *c, const char *name, char **text, size_t *size, ht_error *err) {
    return c->gguf ? ht_checkpoint_text_beside(c, name, text, size, err) : read_text(c->path, name, text, size, err);
}

ht_status ht_checkpoint_text_beside(const ht_checkpoint_files *c, const char *name, char **text, size_t *size,
                                    ht_error *err) {
    *text = NULL;
    return c->directory ? read_text(c->directory, name, text, size, err) : HT_OK;
}

/* If a GGUF file has no EOS ids, reads them from JSON files in its directory. */
static ht_status find_eos(const ht_checkpoint_files *c, ht_config *out, ht_error *err) {
    static const char *const names[] = {"generation_config.json", "config.json"};
    ht_status status = HT_OK;
    for (int i = 0; i < 2 && !status && out->n_eos == 0; i++) {
        char *text;
        size_t size;
        status = ht_checkpoint_text_beside(c, names[i], &text, &size, err);
        if (!status && text) status = ht_config_eos_read((ht_json_text){text, size}, names[i], out, err);
        free(text);
    }
    return status;
}

/* Whether two tensors have the same type, shape and bytes. */
static ht_status compare(const ht_checkpoint_files *c, const ht_safetensor *a, const ht_safetensor *b, bool *same,
                         ht_error *err) {
    enum { PIECE = 1 << 16 };
    *same = !strcmp(a->dtype, b->dtype) && a->rank == b->rank && a->n_bytes == b->n_bytes &&
            !memcmp(a->shape, b->shape, (size_t)a->rank * sizeof *a->shape);
    if (!*same) return HT_OK;
    const ht_file *file_a = ht_safetensors_file(c->tensors, a->file),
                  *file_b = ht_safetensors_file(c->tensors, b->file);
    char *in_a = malloc(2 * (size_t)PIECE), *in_b = in_a ? in_a + PIECE : NULL;
    ht_status status = in_a ? HT_OK : ht_fail_memory(err, 2 * (size_t)PIECE, "comparing two tensors");
    for (size_t at = 0; *same && !status && at < a->n_bytes; at += PIECE) {
        const size_t n = ht_min_size(a->n_bytes - at, PIECE);
        status = ht_file_read_at(file_a, a->offset + at, in_a, n, err);
        if (!status) status = ht_file_read_at(file_b, b->offset + at, in_b, n, err);
        *same = !status && !memcmp(in_a, in_b, n);
    }
    free(in_a);
    return status;
}

/* Unties the head if the checkpoint's output head differs from the embedding. Fine-tuned models may keep a
 * config.json that says tied, and converters omit the field if the family ties by default. Compares stored weights
 * and scales, so that the rule is the same for every quantisation. */
static ht_status untie(const ht_checkpoint_files *c, ht_config *config, ht_error *err) {
    static const char head[] = "lm_head.";
    char name[128];
    if (config->two_sided) return HT_OK; /* the head is of another task */
    for (size_t i = 0, n = ht_safetensors_count(c->tensors); config->tied_head && c->head && i < n; i++) {
        const ht_safetensor *t = ht_safetensors_at(c->tensors, i), *other;
        const char *bare = ht_checkpoint_bare_name(t->name);
        if (strncmp(bare, head, sizeof head - 1) != 0) continue;
        const int length = snprintf(name, sizeof name, "embed_tokens.%s", bare + sizeof head - 1);
        other = length < (int)sizeof name ? ht_checkpoint_safetensor(c, name) : NULL;
        config->tied_head = other != NULL;
        ht_status status = other ? compare(c, t, other, &config->tied_head, err) : HT_OK;
        if (status) return status;
    }
    return HT_OK;
}

/* Reads longrope's divisors, which GGUF files hold as tensors. */
static ht_status read_divisors(const ht_checkpoint_files *c, ht_config *config, ht_error *err) {
    ht_rope_spec *r = &config->rope;
    if (r->kind != HT_ROPE_LONG) return HT_OK;
    const int64_t n = (r->dims ? r->dims : ht_config_head_dim(config, false)) / 2;
    ht_status status = HT_OK;
    ht_stored_tensor t;
    if (n > HT_ROPE_MOST_DIVISORS)
        return ht_fail(err, HT_ERR_UNSUPPORTED, "%s: longrope has %lld divisors; at most %d are supported", c->name,
                       (long long)n, HT_ROPE_MOST_DIVISORS);
    for (int k = 0; !status && k < HT_ROPE_LENGTHS; k++) {
        status = ht_checkpoint_need(c, ht_rope_length_factors[k], &n, 1, &t, err);
        if (!status) status = ht_tensor_read_f32(&t, n, r->divisor[k], err);
    }
    r->n_divisors = (int32_t)n;
    return status ? status : ht_config_check(config, c->name, err);
}

/* Whether the directory is mlx-lm's. Convolutions are [channels, taps, 1] there, and [channels, 1, taps] in directories
 * for transformers. Without one of several taps it goes by settings of groups and the metadata of the files. */
static bool is_of_mlx(const ht_checkpoint_files *c) {
    static const char *const convolutions[] = {"linear_attn", "mamba"};
    for (int i = 0; i < 2 * HT_MAX_LAYERS; i++) {
        char name[64];
        snprintf(name, sizeof name, "layers.%d.%s.conv1d.weight", i / 2, convolutions[i % 2]);
        const ht_safetensor *t = ht_checkpoint_safetensor(c, name);
        if (t && t->rank == 3 && t->shape[1] != t->shape[2]) return t->shape[2] == 1;
    }
    const char *format = ht_safetensors_metadata(c->tensors, "format");
    return c->quantization || (format && !strcmp(format, "mlx"));
}

static ht_status read_config(const ht_checkpoint_files *c, ht_config *out, ht_error *err) {
    if (c->gguf) {
        ht_status status = ht_config_from_gguf(c->gguf, c->name, out, err);
        if (!status) status = read_divisors(c, out, err);
        return status ? status : find_eos(c, out, err);
    }
    ht_config_hints hints = {.has_tensors = true,
                             .has_q_norm = exists(c, "layers.0.self_attn.q_norm.weight"),
                             .has_q_bias = exists(c, "layers.0.self_attn.q_proj.bias"),
                             .has_more_norms = exists(c, "layers.0.pre_feedforward_layernorm.weight"),
                             .has_gate = exists(c, "layers.0.mlp.gate_proj.weight"),
                             .has_head = c->head != NULL,
                             .is_of_mlx = is_of_mlx(c)};
    ht_stored_tensor q;
    if (ht_checkpoint_find(c, "layers.0.self_attn.q_proj.weight", &q) && q.n_dims == 2) hints.q_rows = q.dims[0];
    static const char *const labels[] = {"classifier.weight", "classifier.out_proj.weight"};
    for (int i = 0; i < 2; i++)
        if (ht_checkpoint_find(c, labels[i], &q) && q.n_dims == 2) hints.n_labels = q.dims[0];
    ht_status status = ht_config_from_json((ht_json_text){c->config_text, c->config_size},
                                           (ht_json_text){c->generation_text, c->generation_size}, &hints, out, err);
    if (!status) status = ht_modules_pooling(c, &out->pooling, err);
    return status ? status : untie(c, out, err);
}

ht_status ht_checkpoint_config(const ht_checkpoint_files *c, ht_config *out, ht_error *err) {
    const ht_status status = read_config(c, out, err);
    if (!status && out->n_labels && !*out->pooling) out->pooling = "rank"; /* scores instead of a vector */
    return status;
}

ht_status ht_checkpoint_write_text(const char *directory, const char *name, const char *text, ht_error *err) {
    char *path = ht_path_join(directory, name);
    ht_writer *writer = NULL;
    ht_status status = path ? ht_writer_open(path, &writer, err) : ht_fail_memory(err, strlen(name), "a path");
    if (!status) status = ht_writer_put(writer, text, strlen(text), err);
    if (!status) status = ht_writer_put(writer, "\n", 1, err);
    if (!status)
        status = ht_writer_commit(writer, err);
    else
        ht_writer_discard(writer);
    free(path);
    return status;
}
