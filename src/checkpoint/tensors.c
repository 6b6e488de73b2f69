#include "checkpoint/tensors.h"

#include "base/error.h"
#include "checkpoint/scheme.h"

#include <stdio.h>
#include <string.h>

const char *ht_base_name(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash && slash[1] ? slash + 1 : path;
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

ht_status ht_checkpoint_index_names(ht_checkpoint_files *c, ht_error *err) {
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

/* ---- tensors ---- */

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

const char *ht_checkpoint_file_of(const ht_checkpoint_files *c, const ht_safetensor *t) {
    return ht_base_name(ht_safetensors_file(c->tensors, t->file)->path);
}

void ht_checkpoint_locate(const ht_checkpoint_files *c, const ht_safetensor *t, ht_stored_tensor *out) {
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
}

/* The joined weight, where `t` has the elements of one. */
static void from_safetensors(const ht_checkpoint_files *c, const ht_safetensor *t, ht_stored_tensor *out) {
    ht_checkpoint_locate(c, t, out);
    if (c->scheme->complete) c->scheme->complete(c, t, out);
}

const ht_safetensor *ht_checkpoint_elements(const ht_checkpoint_files *c, const char *name) {
    const ht_safetensor *t = ht_checkpoint_safetensor(c, name);
    return t || !c->scheme->elements ? t : c->scheme->elements(c, name);
}

bool ht_checkpoint_find(const ht_checkpoint_files *c, const char *name, ht_stored_tensor *out) {
    if (c->gguf) {
        const ht_gguf_part *part;
        const ht_gguf_tensor *t = ht_gguf_set_find(c->parts, name, &part);
        if (t) from_gguf(part, t, ht_gguf_set_number(c->parts, t, part), out);
        return t != NULL;
    }
    const ht_safetensor *t = ht_checkpoint_elements(c, name);
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

const char *ht_checkpoint_shape_source(const ht_checkpoint_files *c) {
    return c->gguf ? "its metadata" : "config.json";
}

void ht_dims_text(const int64_t *dims, int n, char out[HT_DIMS_TEXT]) {
    *out = '\0';
    for (int i = 0, at = 0; i < n && at < 100; i++)
        at += snprintf(out + at, HT_DIMS_TEXT - (size_t)at, i ? ", %lld" : "%lld", (long long)dims[i]);
}

ht_status ht_checkpoint_need(const ht_checkpoint_files *c, const char *name, const int64_t *dims, int n_dims,
                             ht_stored_tensor *t, ht_error *err) {
    if (!ht_checkpoint_find(c, name, t))
        return ht_fail(err, HT_ERR_FORMAT, "%s: tensor `%s` is missing, which %s implies", ht_base_name(c->path), name,
                       ht_checkpoint_shape_source(c));
    if (t->n_dims != n_dims || memcmp(t->dims, dims, (size_t)n_dims * sizeof *dims)) {
        char found[HT_DIMS_TEXT], expected[HT_DIMS_TEXT];
        ht_dims_text(t->dims, t->n_dims, found);
        ht_dims_text(dims, n_dims, expected);
        return ht_fail(err, HT_ERR_FORMAT, "%s: tensor `%s` is [%s], %s implies [%s]", t->file_name, name, found,
                       ht_checkpoint_shape_source(c), expected);
    }
    if (t->type < 0)
        return ht_fail(err, HT_ERR_UNSUPPORTED, "%s: tensor `%s` is of type %s, expected a float or quantised type",
                       t->file_name, name, t->type_name);
    return HT_OK;
}
