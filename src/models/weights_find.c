/* Tensor lookup: single tensors found, checked, and put into the store. */
#include "base/error.h"
#include "checkpoint/nvfp4.h"
#include "checkpoint/tensor_read.h"
#include "models/file_rows.h"
#include "models/pack.h"
#include "models/weights_internal.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *ht_loader_source(const ht_loader *l) { return l->from->gguf ? "its metadata" : "config.json"; }

static void shape_text(const int64_t *dims, int n, char out[128]) {
    *out = '\0';
    for (int i = 0, at = 0; i < n && at < 100; i++)
        at += snprintf(out + at, 128 - (size_t)at, i ? ", %lld" : "%lld", (long long)dims[i]);
}

ht_status ht_loader_look_up(const ht_loader *l, const char *name, const int64_t *dims, int n_dims,
                            ht_stored_tensor *t) {
    if (!ht_checkpoint_find(l->from, name, t))
        return ht_fail(l->err, HT_ERR_FORMAT, "%s: tensor `%s` is missing, which %s implies",
                       ht_base_name(l->from->path), name, ht_loader_source(l));
    if (l->used) l->used[t->number] = true;
    if (t->n_dims != n_dims || memcmp(t->dims, dims, (size_t)n_dims * sizeof *dims)) {
        char found[128], expected[128];
        shape_text(t->dims, t->n_dims, found);
        shape_text(dims, n_dims, expected);
        return ht_fail(l->err, HT_ERR_FORMAT, "%s: tensor `%s` is [%s], %s implies [%s]", t->file_name, name, found,
                       ht_loader_source(l), expected);
    }
    if (t->type < 0)
        return ht_fail(l->err, HT_ERR_UNSUPPORTED, "%s: tensor `%s` is of type %s, expected a float or quantised type",
                       t->file_name, name, t->type_name);
    return HT_OK;
}

ht_status ht_loader_keep_name(ht_loader *l, const char *name, const char **out) {
    char *copy = strdup(name);
    if (!copy) return ht_fail_memory(l->err, strlen(name) + 1, "a name");
    l->into->names[l->into->n_names++] = copy;
    *out = copy;
    return HT_OK;
}

/* Whether the family has a vector of this name of its own (Gemma 4's `ffn_down_exps.scale`). */
static bool is_place(const ht_loader *l, const char *gguf) {
    for (const ht_weight_place *const *table = l->config->family->layer; *table; table++)
        for (const ht_weight_place *p = *table; p->gguf; p++)
            if (p->bare && !strcmp(p->gguf, gguf)) return true;
    return false;
}

ht_status ht_loader_product_scales(const ht_loader *l, const char *name, int64_t n, int share, int n_shares, float *out,
                                   bool *found) {
    char scale[HT_WEIGHT_NAME];
    ht_stored_tensor t;
    const char *stem = strstr(name, "weight"), *place = strncmp(name, "blk.", 4) ? name : strchr(name + 4, '.') + 1;
    *found = false;
    if (!l->from->gguf) return ht_nvfp4_whole_scales(l->from, name, n, share, n_shares, out, found, l->err);
    if (!stem) return HT_OK;
    snprintf(scale, sizeof scale, "%.*sscale", (int)(stem - name), name);
    if (is_place(l, scale + (place - name)) || !ht_checkpoint_find(l->from, scale, &t)) return HT_OK;
    *found = true;
    ht_status status = ht_loader_look_up(l, scale, &n, 1, &t);
    if (!status) status = ht_tensor_read_f32(&t, n, out, l->err);
    for (int64_t i = 0; !status && i < n; i++)
        if (!isfinite(out[i]) || out[i] == 0)
            status = ht_fail(l->err, HT_ERR_FORMAT, "%s: `%s` holds %g, expected a finite number that is not 0",
                             t.file_name, scale, (double)out[i]);
    return status;
}

ht_status ht_loader_scale_products(const ht_loader *l, const char *name, ht_weight *w) {
    float scale;
    bool found;
    ht_status status = ht_loader_product_scales(l, name, 1, 0, 1, &scale, &found);
    w->scale = found && !status && scale != 1 ? scale : 0;
    return status;
}

ht_status ht_loader_find_scales(ht_loader *l, const ht_stored_tensor *t, const char *name, int64_t n,
                                ht_fp8_scales *out) {
    *out = (ht_fp8_scales){0};
    if (!ht_weight_is_f8((ht_weight_type)t->type)) return HT_OK;
    const int64_t *dims = t->dims + t->n_dims - 2;
    return ht_fp8_scales_find(l->from, name, n, dims[0], dims[1], out, l->err);
}

ht_status ht_loader_set_scales(const ht_fp8_scales *s, int64_t index, int64_t row, ht_matrix *m, ht_error *err) {
    ht_block_scales read;
    ht_status status = ht_fp8_scales_read(s, index, row, m->n_rows, &read, err);
    if (!status && read.values) status = ht_matrix_set_scales(m, read.values, read.n, read.rows, read.columns, err);
    free(read.values);
    return status;
}

ht_status ht_loader_add(ht_loader *l, bool is_head, const ht_stored_tensor *t, const char *name, int64_t head_rows,
                        ht_matrix **out) {
    const ht_matrix_kind kind = {l->precision, (ht_weight_type)t->type, t->dims[0], t->dims[1], is_head};
    size_t at = l->matrix_bytes, bytes = l->device ? ht_matrix_bytes(l->device, &kind) : 0;
    if (!bytes) bytes = t->n_bytes;
    l->bytes += bytes;
    l->matrix_bytes += (bytes + 63) & ~(size_t)63;
    if (!l->into) return HT_OK;
    ht_matrix *m;
    ht_status status = ht_matrix_new(l->device, &kind, name, &m, l->err);
    if (status) return status;
    l->tasks[l->into->n_matrices] = (ht_pack_task){m, *t, head_rows, at};
    l->into->use[l->into->n_matrices].late = l->late;
    l->into->matrices[l->into->n_matrices++] = m;
    *out = m;
    return HT_OK;
}

static ht_status load_as(ht_loader *l, bool is_head, const char *name, int64_t rows, int64_t columns, int64_t head_rows,
                         ht_matrix **out) {
    ht_stored_tensor t;
    ht_fp8_scales scales;
    ht_status status = ht_loader_look_up(l, name, (int64_t[]){rows, columns}, 2, &t);
    if (!status) status = ht_loader_find_scales(l, &t, name, 0, &scales);
    if (!status) status = ht_loader_add(l, is_head, &t, name, head_rows, out);
    return status || !l->into ? status : ht_loader_set_scales(&scales, 0, 0, *out, l->err);
}

ht_status ht_loader_matrix(ht_loader *l, const char *name, int64_t rows, int64_t columns, int64_t head_rows,
                           ht_matrix **out) {
    return load_as(l, false, name, rows, columns, head_rows, out);
}

ht_status ht_loader_head(ht_loader *l, const char *name, ht_matrix **out) {
    return load_as(l, true, name, l->config->vocab, l->config->hidden, 0, out);
}

ht_status ht_loader_table(ht_loader *l, const char *name, int64_t rows, int64_t columns, ht_matrix **out) {
    ht_stored_tensor t;
    ht_status status = ht_loader_look_up(l, name, (int64_t[]){rows, columns}, 2, &t);
    const bool in_memory = l->device && !ht_memory_is_host(l->device->memory); /* its kernels cannot read the file */
    const bool is_f8 = !status && ht_weight_is_f8((ht_weight_type)t.type);
    if (!status && (in_memory || is_f8)) {
        status = ht_loader_matrix(l, name, rows, columns, 0, out);
        if (!status && l->into && !is_f8) l->into->use[l->into->n_matrices - 1].table = true;
        return status;
    }
    if (!status) l->table_bytes += t.n_bytes;
    if (status || !l->into) return status;
    status = ht_file_rows_new(&t, out, l->err);
    if (!status) l->into->tables[l->into->n_tables++] = *out;
    return status;
}

ht_status ht_loader_keep_array(ht_loader *l, const float *values, int64_t n, ht_array **out) {
    ht_array *a = ht_array_retain(ht_array_from(l->scope, values, HT_F32, &n, 1));
    if (a) l->into->arrays[l->into->n_arrays++] = a;
    *out = a;
    return ht_array_eval(l->scope, &a, 1, l->err);
}

ht_status ht_loader_vector(ht_loader *l, const char *name, int64_t n, int64_t head_rows, ht_array **out) {
    ht_stored_tensor t;
    ht_status status = ht_loader_look_up(l, name, &n, 1, &t);
    l->bytes += (size_t)n * sizeof(float);
    if (status || !l->into) return status;
    float *values = malloc((size_t)n * 2 * sizeof *values);
    if (!values) return ht_fail_memory(l->err, (size_t)n * 2 * sizeof *values, name);
    float *ordered = values + n;
    status = ht_tensor_read_f32(&t, n, values, l->err);
    for (int64_t i = 0; !status && head_rows && i < n; i++) ordered[i] = values[ht_interleaved_row(i, head_rows)];
    if (!status) status = ht_loader_keep_array(l, head_rows ? ordered : values, n, out);
    free(values);
    return status;
}
