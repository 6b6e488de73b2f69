/* Adapter writing: the portable form that all formats share (hearth/adapter.h), and its values tensor by tensor. */
#include "base/checked.h"
#include "base/directory_writer.h"
#include "base/error.h"
#include "base/grow.h"
#include "checkpoint/adapter_file.h"
#include "checkpoint/config.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- slots ---- */

int64_t ht_adapter_slot_layer(const char *slot, const char **rest) {
    static const char prefix[] = "model.layers.";
    char *end;
    int64_t layer = strtoll(slot + sizeof prefix - 1, &end, 10);
    *rest = end + 1;
    return layer;
}

const ht_lora *ht_adapter_partner(const ht_adapter *a, const char *slot, bool *is_up) {
    char other[HT_ADAPTER_SLOT];
    const char *rest;
    long long layer = ht_adapter_slot_layer(slot, &rest);
    *is_up = !strcmp(rest, "experts.up_proj");
    if (!*is_up && strcmp(rest, "experts.gate_proj") != 0) return NULL;
    snprintf(other, sizeof other, "model.layers.%lld.experts.%s", layer, *is_up ? "gate_proj" : "up_proj");
    return ht_adapter_find(a, other);
}

/* ---- tensors ---- */

ht_adapter_tensor_out *ht_adapter_add_tensor(ht_adapter_writing *w, ht_error *err) {
    if (!HT_GROW_ONE(w->tensor, w->n_tensors)) {
        (void)ht_fail_memory(err, w->n_tensors * sizeof *w->tensor, w->path);
        return NULL;
    }
    ht_adapter_tensor_out *t = &w->tensor[w->n_tensors++];
    *t = (ht_adapter_tensor_out){0};
    return t;
}

void ht_adapter_put_piece(ht_adapter_tensor_out *t, const ht_lora *l, const ht_adapter_piece *piece) {
    t->lora[t->n_pieces] = l;
    t->piece[t->n_pieces++] = *piece;
}

/* False when it does not fit in memory. */
static bool count_of(const ht_adapter_tensor_out *t, size_t *out) {
    *out = 1;
    for (int d = 0; d < t->rank; d++)
        if (!ht_mul_size(*out, (size_t)t->shape[d], out)) return false;
    return *out <= SIZE_MAX / sizeof(float);
}

static void put_values(const ht_adapter_writing *w, const ht_adapter_piece *p, const ht_lora *l, float *to) {
    int64_t features = p->is_b ? l->n_out : l->n_in, size = l->rank * features;
    const float *from = (p->is_b ? l->b : l->a) + p->expert * size;
    float factor = p->is_b ? (float)((double)l->scale / w->scale * (p->scale != 0 ? p->scale : 1)) : 1;
    for (int64_t e = 0; e < ht_max_i64(1, p->n_experts); e++, from += size)
        for (int64_t f = 0; f < features; f++) {
            int64_t row = p->is_b ? ht_adapter_stored_row(f, p->head_rows) : f;
            for (int64_t k = 0; k < l->rank; k++)
                to[p->at + e * p->expert_stride + k * p->rank_stride + row * p->feature_stride] =
                    factor * from[p->is_b ? f * l->rank + k : k * features + f];
        }
}

ht_status ht_adapter_values(void *user, int i, const void **bytes, ht_error *err) {
    (void)err; /* the memory is there: ht_adapter_outputs */
    ht_adapter_writing *w = user;
    const ht_adapter_tensor_out *t = &w->tensor[i];
    size_t n = 0;
    (void)count_of(t, &n);
    memset(w->values, 0, n * sizeof *w->values);
    for (int p = 0; p < t->n_pieces; p++) put_values(w, &t->piece[p], t->lora[p], w->values);
    *bytes = w->values;
    return HT_OK;
}

static int by_name(const void *a, const void *b) {
    return strcmp(((const ht_adapter_tensor_out *)a)->name, ((const ht_adapter_tensor_out *)b)->name);
}

ht_status ht_adapter_outputs(ht_adapter_writing *w, ht_tensor_output **out, ht_error *err) {
    size_t most = 0, n;
    qsort(w->tensor, w->n_tensors, sizeof *w->tensor, by_name);
    *out = calloc(w->n_tensors + 1, sizeof **out);
    if (!*out) return ht_fail_memory(err, w->n_tensors * sizeof **out, w->path);
    for (size_t i = 0; i < w->n_tensors; i++) {
        const ht_adapter_tensor_out *t = &w->tensor[i];
        if (!count_of(t, &n)) return ht_fail(err, HT_ERR_LIMIT, "%s: tensor `%s` is too large", w->path, t->name);
        most = ht_max_size(most, n);
        (*out)[i] = (ht_tensor_output){t->name, "F32", t->rank, t->shape, n * sizeof(float)};
    }
    w->values = malloc((most + 1) * sizeof *w->values);
    return w->values ? HT_OK : ht_fail_memory(err, most * sizeof *w->values, w->path);
}

ht_status ht_adapter_write_safetensors(ht_adapter_writing *w, const char *name, ht_error *err) {
    ht_metadata_pair pairs[3] = {{"format", "pt"}};
    int n_pairs = 1;
    if (*w->fingerprint) pairs[n_pairs++] = (ht_metadata_pair){"hearth.base_fingerprint", w->fingerprint};
    if (*w->template_hash) pairs[n_pairs++] = (ht_metadata_pair){"hearth.template_hash", w->template_hash};
    ht_tensor_output *outputs = NULL;
    char *path = ht_path_join(w->path, name);
    ht_status status = path ? ht_adapter_outputs(w, &outputs, err) : ht_fail_memory(err, strlen(w->path), "a path");
    if (!status)
        status = ht_safetensors_write(path, outputs, (int)w->n_tensors, pairs, n_pairs, ht_adapter_values, w, err);
    free(path);
    free(outputs);
    return status;
}

ht_status ht_adapter_write_json(const ht_adapter_writing *w, const char *name, json_t *value, ht_error *err) {
    char *text = value ? ht_json_write(value, JSON_INDENT(2) | JSON_SORT_KEYS) : NULL;
    char *path = ht_path_join(w->path, name);
    ht_writer *writer = NULL;
    ht_status status = text && path ? ht_writer_open(path, &writer, err) : ht_fail_memory(err, 0, w->path);
    if (!status) status = ht_writer_put(writer, text, strlen(text), err);
    if (!status) status = ht_writer_put(writer, "\n", 1, err);
    if (!status)
        status = ht_writer_commit(writer, err);
    else
        ht_writer_discard(writer);
    json_decref(value);
    free(text);
    free(path);
    return status;
}

/* ---- saving ---- */

/* The one rank and scale of the file; the largest scale, so that no B grows. */
static void choose_form(ht_adapter_writing *w) {
    const ht_adapter *a = w->a;
    for (int64_t i = 0; i < a->n; i++) {
        w->rank = ht_max_i64(w->rank, a->lora[i].rank);
        if (fabs((double)a->lora[i].scale) > fabs(w->scale)) w->scale = (double)a->lora[i].scale;
    }
    if (w->scale == 0) w->scale = 1;
    w->wrapped = a->origin.wrapped || (w->m && w->m->wrapped);
    w->experts_outside = a->origin.experts_outside;
    for (int64_t i = 0; w->m && i < w->m->config->n_layers; i++) {
        const ht_layer_config *l = &w->m->config->layer[i];
        if (l->has_experts) w->experts_outside = l->feed_forward > 0;
    }
}

static void choose_origin(ht_adapter_writing *w) {
    const ht_adapter_origin *o = &w->a->origin;
    w->base = o->base;
    const char *fingerprint = o->fingerprint ? o->fingerprint : w->m ? w->m->fingerprint : "";
    const char *template_hash = o->template_hash ? o->template_hash : w->m ? w->m->template_hash : "";
    snprintf(w->fingerprint, sizeof w->fingerprint, "%.16s", fingerprint);
    snprintf(w->template_hash, sizeof w->template_hash, "%.16s", template_hash);
}

static ht_status check(const ht_adapter *a, const ht_adapter_base *m, ht_adapter_format format, ht_error *err) {
    if (!a->n) return ht_fail(err, HT_ERR_ARGUMENT, "the adapter changes nothing: it has no pairs");
    if (a->interleaved)
        return ht_fail(err, HT_ERR_ARGUMENT,
                       "the adapter was read from a GGUF file, where the rows of q and k depend on the model's heads: "
                       "load it for its model");
    if (format == HT_ADAPTER_GGUF && !m)
        return ht_fail(err, HT_ERR_ARGUMENT, "adapters in GGUF name the tensors of their model, which was not given");
    return m ? ht_adapter_check_base(a, m, err) : HT_OK;
}

/* A GGUF file that is there must be an adapter: a model under that name is not lost. */
static ht_status check_replaced(const char *path, ht_error *err) {
    if (!ht_path_exists(path)) return HT_OK;
    ht_file *file;
    ht_gguf *gguf = NULL;
    ht_bytes type = {"", 0};
    ht_status status = ht_file_open(path, &file, err);
    if (status) return status;
    bool is_adapter = !ht_gguf_read(file, path, &gguf, NULL) && ht_gguf_get_string(gguf, "general.type", &type) &&
                      type.len == 7 && !memcmp(type.data, "adapter", 7);
    ht_gguf_free(gguf);
    ht_file_close(file);
    if (is_adapter) return HT_OK;
    return ht_fail(err, HT_ERR_ARGUMENT, "%s: is not replaced, as it is no adapter; remove it, or take another name",
                   path);
}

/* Loading refuses others. */
static ht_status check_values(const ht_adapter *a, ht_error *err) {
    for (int64_t i = 0; i < a->n; i++) {
        const ht_lora *l = &a->lora[i];
        const int64_t each = ht_max_i64(l->n_experts, 1) * l->rank;
        bool finite = true;
        for (int64_t k = 0; finite && k < each * l->n_in; k++) finite = isfinite(l->a[k]);
        for (int64_t k = 0; finite && k < each * l->n_out; k++) finite = isfinite(l->b[k]);
        if (!finite)
            return ht_fail(err, HT_ERR_ARGUMENT, "the adapter of %s holds values that are no finite numbers", l->slot);
    }
    return HT_OK;
}

/* Files of an adapter's directory, in PEFT's format and in mlx-lm's. */
static const char *const known[] = {"adapter_config.json", "adapter_model.safetensors", "adapters.safetensors", NULL};

static ht_status save_directory(ht_adapter_writing *w, const char *path, ht_adapter_format format, ht_error *err) {
    ht_directory_writer *directory;
    ht_status status = ht_directory_writer_open(path, known, &directory, err);
    if (status) return status;
    w->path = ht_directory_writer_path(directory);
    status = format == HT_ADAPTER_PEFT ? ht_adapter_write_peft(w, err) : ht_adapter_write_mlx(w, err);
    if (status == HT_OK) return ht_directory_writer_commit(directory, err);
    ht_directory_writer_discard(directory);
    return status;
}

ht_status ht_adapter_save_check(const char *path, ht_error *err) { return ht_directory_writer_check(path, known, err); }

ht_status ht_adapter_write(const ht_adapter *a, const ht_adapter_base *m, const char *path, ht_adapter_format format,
                           ht_error *err) {
    if (format != HT_ADAPTER_PEFT && format != HT_ADAPTER_MLX && format != HT_ADAPTER_GGUF)
        return ht_fail(err, HT_ERR_ARGUMENT, "there is no format %d of adapters", (int)format);
    ht_adapter_writing w = {.a = a, .m = m, .path = path};
    ht_status status = check(a, m, format, err);
    if (!status) status = check_values(a, err);
    if (status) return status;
    choose_form(&w);
    choose_origin(&w);
    if (format == HT_ADAPTER_GGUF) status = check_replaced(path, err);
    if (!status)
        status = format == HT_ADAPTER_GGUF ? ht_adapter_write_gguf(&w, err) : save_directory(&w, path, format, err);
    free(w.tensor);
    free(w.values);
    return status;
}
