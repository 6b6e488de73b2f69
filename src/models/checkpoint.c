#include "models/checkpoint.h"

#include "base/checked.h"
#include "base/error.h"
#include "base/text.h"
#include "formats/json.h"
#include "models/mlx.h"
#include "models/nvfp4.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CONFIG_BYTES_MAX = 16 << 20 };

const char *ht_base_name(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash && slash[1] ? slash + 1 : path;
}

/* Weight files of a directory. GGUF files named "mmproj*" are vision towers and not counted. */
typedef struct contents {
    int n_gguf, n_safetensors;
    char gguf[256];
} contents;

/* Whether two GGUF files are parts of one model. */
static bool same_model(const char *a, const char *b) {
    int number, count, other_count;
    size_t prefix, other_prefix;
    return ht_gguf_part_name(a, &number, &count, &prefix) &&
           ht_gguf_part_name(b, &number, &other_count, &other_prefix) && count == other_count &&
           prefix == other_prefix && !memcmp(a, b, prefix);
}

static ht_status list_weights(const char *path, contents *out, ht_error *err) {
    *out = (contents){0};
    DIR *dir = opendir(path);
    if (!dir) return ht_fail(err, HT_ERR_IO, "%s: the directory cannot be read", path);
    for (const struct dirent *e; (e = readdir(dir));) {
        if (ht_ends_with(e->d_name, ".safetensors")) out->n_safetensors++;
        if (!ht_ends_with(e->d_name, ".gguf") || !strncmp(e->d_name, "mmproj", 6)) continue;
        if (out->n_gguf && same_model(out->gguf, e->d_name)) continue;
        out->n_gguf++;
        snprintf(out->gguf, sizeof out->gguf, "%s", e->d_name);
    }
    closedir(dir);
    return HT_OK;
}

static ht_status open_gguf(ht_checkpoint_files *c, ht_error *err) {
    ht_status status = ht_gguf_set_open(c->path, &c->parts, err);
    if (status) return status;
    c->gguf = ht_gguf_set_metadata(c->parts);
    c->name = ht_gguf_set_part(c->parts, 0)->name;
    return HT_OK;
}

static ht_status read_text(const char *directory, const char *name, char **text, size_t *size, ht_error *err) {
    char *path = ht_path_join(directory, name);
    if (!path) return ht_fail_memory(err, strlen(directory) + strlen(name) + 2, "a path");
    ht_status status = ht_file_read_all(path, CONFIG_BYTES_MAX, text, size, err);
    free(path);
    return status;
}

static ht_status find_file(const char *directory, const char *name, bool *found, ht_error *err) {
    char *path = ht_path_join(directory, name);
    if (!path) return ht_fail_memory(err, strlen(directory) + strlen(name) + 2, "a path");
    *found = ht_path_exists(path);
    free(path);
    return HT_OK;
}

/* Finds the tensor prefix of the text model, which multimodal checkpoints nest deeper, and the output head. */
static void find_prefix(ht_checkpoint_files *c) {
    static const char *const prefixes[] = {"model.", "language_model.model.", "model.language_model.", ""};
    static const char *const heads[] = {"lm_head.weight", "language_model.lm_head.weight",
                                        "model.language_model.lm_head.weight", "model.lm_head.weight"};
    ht_stored_tensor t;
    char name[96];
    for (size_t i = 0; !c->prefix && i < sizeof prefixes / sizeof *prefixes; i++) {
        snprintf(name, sizeof name, "%sembed_tokens.weight", prefixes[i]);
        if (ht_checkpoint_find(c, name, &t)) c->prefix = prefixes[i];
    }
    if (!c->prefix) c->prefix = prefixes[0];
    for (size_t i = 0; !c->head && i < sizeof heads / sizeof *heads; i++)
        if (ht_checkpoint_find(c, heads[i], &t)) c->head = heads[i];
}

/* Reads quantization_config; its errors are reported by ht_checkpoint_config. */
static ht_status read_quantized(ht_checkpoint_files *c, ht_error *err) {
    json_t *root;
    ht_status status = ht_json_parse(c->config_text, c->config_size, "config.json", &root, err);
    if (status) return status;
    ht_json_reader r = {.file = "config.json"};
    c->quantized = ht_quantized_read(&r, root);
    json_decref(root);
    return HT_OK;
}

static ht_status open_safetensors(ht_checkpoint_files *c, ht_error *err) {
    c->name = "config.json";
    bool has_config = false, has_generation = false;
    ht_status status = find_file(c->path, "config.json", &has_config, err);
    if (status) return status;
    if (!has_config)
        return ht_fail(err, HT_ERR_FORMAT, "%s: there are weights but no config.json beside them", c->path);
    status = read_text(c->path, "config.json", &c->config_text, &c->config_size, err);
    if (!status) status = find_file(c->path, "generation_config.json", &has_generation, err);
    if (!status && has_generation)
        status = read_text(c->path, "generation_config.json", &c->generation_text, &c->generation_size, err);
    if (!status) status = read_quantized(c, err);
    if (!status) status = ht_safetensors_open(c->path, &c->tensors, err);
    if (status) return status;
    find_prefix(c);
    status = ht_mlx_open(c, err);
    return status ? status : ht_nvfp4_open(c, err);
}

static bool is_listed_model(const contents *c, const char *name) {
    return !strcmp(c->gguf, name) || same_model(c->gguf, name);
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
        if (list_weights(c->directory, &inside, NULL) || inside.n_gguf != 1 ||
            !is_listed_model(&inside, ht_base_name(path))) {
            free(c->directory);
            c->directory = NULL;
        }
        return open_gguf(c, err);
    }
    ht_status status = list_weights(path, &inside, err);
    if (status) return status;
    if (inside.n_safetensors) {
        c->path = strdup(path);
        return c->path ? open_safetensors(c, err) : ht_fail_memory(err, strlen(path) + 1, "a path");
    }
    if (inside.n_gguf == 0)
        return ht_fail(err, HT_ERR_FORMAT, "%s: the directory holds no weights: neither *.safetensors nor a .gguf file",
                       path);
    if (inside.n_gguf > 1)
        return ht_fail(err, HT_ERR_ARGUMENT, "%s: the directory holds %d GGUF files; name the one to load", path,
                       inside.n_gguf);
    c->path = ht_path_join(path, inside.gguf);
    c->directory = strdup(path);
    return c->path && c->directory ? open_gguf(c, err)
                                   : ht_fail_memory(err, strlen(path) + sizeof inside.gguf, "a path");
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
    json_decref(c->quantization);
    free(c->config_text);
    free(c->generation_text);
    free(c->directory);
    free(c->path);
    free(c);
}

static bool exists(const ht_checkpoint_files *c, const char *suffix) {
    char name[128];
    snprintf(name, sizeof name, "%s%s", c->prefix, suffix);
    return ht_safetensors_find(c->tensors, name) != NULL;
}

ht_status ht_checkpoint_text_beside(const ht_checkpoint_files *c, const char *name, char **text, size_t *size,
                                    ht_error *err) {
    bool found = false;
    *text = NULL;
    *size = 0;
    ht_status status = c->directory ? find_file(c->directory, name, &found, err) : HT_OK;
    return status || !found ? status : read_text(c->directory, name, text, size, err);
}

/* Reads the EOS ids of a GGUF file without any from the JSON files beside it. */
static ht_status find_eos(const ht_checkpoint_files *c, ht_config *out, ht_error *err) {
    static const char *const names[] = {"generation_config.json", "config.json"};
    ht_status status = HT_OK;
    for (int i = 0; i < 2 && !status && out->n_eos == 0; i++) {
        char *text;
        size_t size;
        status = ht_checkpoint_text_beside(c, names[i], &text, &size, err);
        if (!status && text) status = ht_config_eos_from_json((ht_json_text){text, size}, names[i], out, err);
        free(text);
    }
    return status;
}

/* Unties the head when the checkpoint has an output head that differs from the embedding: fine-tuned models come with a
 * config.json that still says tied. MLX-quantised tensors are not compared: config.json decides, as in mlx-lm. */
static ht_status untie(const ht_checkpoint_files *c, ht_config *config, ht_error *err) {
    enum { PIECE = 1 << 16 };
    char name[128];
    ht_stored_tensor head, embedding;
    snprintf(name, sizeof name, "%sembed_tokens.weight", c->prefix);
    if (!config->tied_head || !c->head || !ht_checkpoint_find(c, c->head, &head) ||
        !ht_checkpoint_find(c, name, &embedding) || head.n_dims != embedding.n_dims || head.n_parts ||
        embedding.n_parts || memcmp(head.dims, embedding.dims, sizeof head.dims) != 0)
        return HT_OK;
    bool same = head.type == embedding.type;
    char *a = malloc(2 * (size_t)PIECE), *b = a ? a + PIECE : NULL;
    ht_status status = a ? HT_OK : ht_fail_memory(err, 2 * (size_t)PIECE, "comparing two tensors");
    for (size_t at = 0; same && !status && at < head.n_bytes; at += PIECE) {
        size_t n = ht_min_size(head.n_bytes - at, PIECE);
        status = ht_file_read_at(head.file, head.offset + at, a, n, err);
        if (!status) status = ht_file_read_at(embedding.file, embedding.offset + at, b, n, err);
        same = !status && !memcmp(a, b, n);
    }
    free(a);
    config->tied_head = same;
    return status;
}

ht_status ht_checkpoint_config(const ht_checkpoint_files *c, ht_config *out, ht_error *err) {
    if (c->gguf) {
        ht_status status = ht_config_from_gguf(c->gguf, c->name, out, err);
        return status ? status : find_eos(c, out, err);
    }
    ht_config_hints hints = {.has_tensors = true,
                             .has_q_norm = exists(c, "layers.0.self_attn.q_norm.weight"),
                             .has_q_bias = exists(c, "layers.0.self_attn.q_proj.bias"),
                             .has_more_norms = exists(c, "layers.0.pre_feedforward_layernorm.weight"),
                             .has_head = c->head != NULL};
    char name[128];
    ht_stored_tensor q;
    snprintf(name, sizeof name, "%slayers.0.self_attn.q_proj.weight", c->prefix);
    if (ht_checkpoint_find(c, name, &q) && q.n_dims == 2) hints.q_rows = q.dims[0];
    ht_status status = ht_config_from_json((ht_json_text){c->config_text, c->config_size},
                                           (ht_json_text){c->generation_text, c->generation_size}, &hints, out, err);
    return status ? status : untie(c, out, err);
}

static void from_gguf(const ht_gguf_part *part, const ht_gguf_tensor *t, size_t number, ht_stored_tensor *out) {
    *out = (ht_stored_tensor){.name = t->name.data,
                              .name_len = t->name.len,
                              .number = number,
                              .file = part->file,
                              .file_name = part->name,
                              .type_name = t->type_name,
                              .type = t->type,
                              .n_dims = t->n_dims,
                              .offset = (size_t)(t->data - part->file->data),
                              .n_bytes = t->n_bytes};
    for (int i = 0; i < t->n_dims; i++) out->dims[i] = t->dims[t->n_dims - 1 - i];
}

static void from_safetensors(const ht_checkpoint_files *c, const ht_safetensor *t, ht_stored_tensor *out) {
    const ht_file *file = ht_safetensors_file(c->tensors, t->file);
    *out = (ht_stored_tensor){.name = t->name,
                              .name_len = strlen(t->name),
                              .number = (size_t)(t - ht_safetensors_at(c->tensors, 0)),
                              .file = file,
                              .file_name = ht_base_name(file->path),
                              .type_name = t->dtype,
                              .type = t->weight_type,
                              .n_dims = t->rank,
                              .offset = t->offset,
                              .n_bytes = t->n_bytes};
    memcpy(out->dims, t->shape, sizeof out->dims);
    ht_mlx_complete(c, t->name, out);
    ht_nvfp4_complete(c, t->name, out);
}

bool ht_checkpoint_find(const ht_checkpoint_files *c, const char *name, ht_stored_tensor *out) {
    if (c->gguf) {
        const ht_gguf_part *part;
        const ht_gguf_tensor *t = ht_gguf_set_find(c->parts, name, &part);
        if (t) from_gguf(part, t, ht_gguf_set_number(c->parts, t, part), out);
        return t != NULL;
    }
    const ht_safetensor *t = ht_safetensors_find(c->tensors, name);
    if (!t) t = ht_nvfp4_numbers(c, name);
    if (t) from_safetensors(c, t, out);
    return t != NULL;
}

size_t ht_checkpoint_n_tensors(const ht_checkpoint_files *c) {
    return c->gguf ? ht_gguf_set_n_tensors(c->parts) : ht_safetensors_count(c->tensors);
}

void ht_checkpoint_tensor_at(const ht_checkpoint_files *c, size_t i, ht_stored_tensor *out) {
    if (c->gguf) {
        const ht_gguf_part *part;
        const ht_gguf_tensor *t = ht_gguf_set_tensor_at(c->parts, i, &part);
        from_gguf(part, t, i, out);
    } else
        from_safetensors(c, ht_safetensors_at(c->tensors, i), out);
}
