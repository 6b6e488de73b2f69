#include "checkpoint/checkpoint.h"

#include "base/checked.h"
#include "base/error.h"
#include "base/log.h"
#include "base/text.h"
#include "checkpoint/mlx.h"
#include "checkpoint/nvfp4.h"
#include "formats/json.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CONFIG_BYTES_MAX = 16 << 20 };

const char *ht_base_name(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash && slash[1] ? slash + 1 : path;
}

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

/* ---- names of safetensors ---- */

const char *ht_checkpoint_bare_name(const char *name) {
    static const char *const wrappers[] = {"model.", "language_model.", "text_model."};
    for (size_t i = 0; i < sizeof wrappers / sizeof *wrappers;) {
        const size_t n = strlen(wrappers[i]);
        if (strncmp(name, wrappers[i], n) != 0) {
            i++;
            continue;
        }
        name += n;
        i = 0;
    }
    return name;
}

bool ht_checkpoint_is_tower(const char *name, size_t len) {
    static const char *const words[] = {"vision",        "visual",   "audio", "multi_modal_projector",
                                        "image_newline", "connector"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        for (size_t n = strlen(words[i]), at = 0; at + n <= len; at++)
            if (!memcmp(name + at, words[i], n)) return true;
    return false;
}

bool ht_checkpoint_is_text(const ht_checkpoint_files *c, const char *name) {
    const char *bare = ht_checkpoint_bare_name(name);
    return !ht_checkpoint_is_tower(name, strlen(name)) &&
           (bare != name || !*c->prefix || !strncmp(name, "lm_head.", 8));
}

const ht_safetensor *ht_checkpoint_safetensor(const ht_checkpoint_files *c, const char *name) {
    const ht_safetensor *t = ht_safetensors_find(c->tensors, name);
    if (t) return t;
    const char *bare = ht_checkpoint_bare_name(name);
    size_t at = ht_name_index_find(&c->bare_names, bare, strlen(bare));
    return at == SIZE_MAX ? NULL : ht_safetensors_at(c->tensors, at);
}

/* Indexes the text model's tensors by their bare names. */
static ht_status index_names(ht_checkpoint_files *c, ht_error *err) {
    const size_t n = ht_safetensors_count(c->tensors);
    if (!ht_name_index_init(&c->bare_names, n))
        return ht_fail_memory(err, n * sizeof(ht_indexed_name), "the names of tensors");
    for (size_t i = 0; i < n; i++) {
        const char *name = ht_safetensors_at(c->tensors, i)->name, *bare = ht_checkpoint_bare_name(name);
        size_t first;
        if (ht_checkpoint_is_tower(name, strlen(name))) continue;
        switch (ht_name_index_add(&c->bare_names, bare, strlen(bare), i, &first)) {
        case HT_NAME_ADDED: break;
        case HT_NAME_TWICE:
            return ht_fail(
                err, HT_ERR_FORMAT,
                "%s: tensors `%.100s` and `%.100s` are both `%.100s` of the text model, expected one of them",
                ht_base_name(c->path), ht_safetensors_at(c->tensors, first)->name, name, bare);
        case HT_NAME_CROWDED:
            return ht_fail(err, HT_ERR_FORMAT, "%s: tensor names were made to collide; the file is not honest",
                           ht_base_name(c->path));
        }
    }
    return HT_OK;
}

/* What is before the bare name of weight "X.weight", in any of its forms, followed by `end`; `otherwise` when the weight is
 * absent, NULL when out of memory. */
static char *prefixed(const ht_checkpoint_files *c, const char *name, const char *end, const char *otherwise) {
    enum { MOST = 64 }; /* names with a longer one are found without it */
    const ht_safetensor *t = ht_checkpoint_safetensor(c, name);
    if (!t) t = ht_nvfp4_numbers(c, name);
    if (!t) return strdup(otherwise);
    const size_t n = (size_t)(ht_checkpoint_bare_name(t->name) - t->name), size = MOST + strlen(end) + 1;
    char *out = malloc(size);
    if (out) snprintf(out, size, "%.*s%s", n <= MOST ? (int)n : 0, t->name, end);
    return out;
}

/* Finds what the names of most tensors begin with, which multimodal checkpoints nest deeper, and the output head. */
static ht_status find_prefix(ht_checkpoint_files *c, ht_error *err) {
    static const char head[] = "lm_head.weight";
    c->prefix = prefixed(c, "embed_tokens.weight", "", "model.");
    c->head = prefixed(c, head, head, "");
    if (!c->prefix || !c->head) return ht_fail_memory(err, sizeof head, "a name");
    if (*c->head) return HT_OK;
    free(c->head);
    c->head = NULL;
    return HT_OK;
}

/* ---- opening ---- */

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
    status = index_names(c, err);
    if (!status) status = find_prefix(c, err);
    if (!status) status = ht_mlx_open(c, err);
    return status ? status : ht_nvfp4_open(c, err);
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
    ht_name_index_free(&c->bare_names);
    json_decref(c->quantization);
    free(c->prefix);
    free(c->head);
    free(c->config_text);
    free(c->generation_text);
    free(c->directory);
    free(c->path);
    free(c);
}

static bool exists(const ht_checkpoint_files *c, const char *bare) { return ht_checkpoint_safetensor(c, bare) != NULL; }

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

/* Unties the head when the checkpoint has an output head that differs from the embedding: fine-tuned models come with a
 * config.json that still says tied, and converters leave the field out where a family ties by default. The weight is
 * compared with its scales, as it is stored, so that the rule is the same for every kind of quantisation. */
static ht_status untie(const ht_checkpoint_files *c, ht_config *config, ht_error *err) {
    static const char head[] = "lm_head.";
    char name[128];
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

/* Reads the pooling of a directory for sentence-transformers; "several" are joined there. */
static ht_status read_pooling(const char *directory, ht_config *out, ht_error *err) {
    static const char file[] = "1_Pooling/config.json";
    static const struct {
        const char *field, *name;
    } modes[] = {{"pooling_mode_cls_token", "cls"},
                 {"pooling_mode_mean_tokens", "mean"},
                 {"pooling_mode_lasttoken", "last"},
                 {"pooling_mode_max_tokens", "max"},
                 {"pooling_mode_mean_sqrt_len_tokens", "mean_sqrt_len"},
                 {"pooling_mode_weightedmean_tokens", "weightedmean"}};
    bool found = false;
    char *text;
    size_t size;
    json_t *root;
    ht_status status = find_file(directory, file, &found, err);
    if (status || !found) return status;
    status = read_text(directory, file, &text, &size, err);
    if (status) return status;
    status = ht_json_parse(text, size, file, &root, err);
    free(text);
    if (status) return status;
    ht_json_reader r = {.file = file, .err = err};
    for (size_t i = 0; i < sizeof modes / sizeof *modes; i++) {
        bool on = false;
        ht_json_bool(&r, root, modes[i].field, &on);
        if (on) out->pooling = *out->pooling ? "several" : modes[i].name;
    }
    json_decref(root);
    return r.status;
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
    ht_stored_tensor q;
    if (ht_checkpoint_find(c, "layers.0.self_attn.q_proj.weight", &q) && q.n_dims == 2) hints.q_rows = q.dims[0];
    ht_status status = ht_config_from_json((ht_json_text){c->config_text, c->config_size},
                                           (ht_json_text){c->generation_text, c->generation_size}, &hints, out, err);
    if (!status) status = read_pooling(c->path, out, err);
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
    const ht_safetensor *t = ht_checkpoint_safetensor(c, name);
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
