/* Inspections as npz files (ht_inspection_save), written from the inspection's own memory. */
#include "base/error.h"
#include "formats/npy_header.h"
#include "formats/zip.h"

#include <hearth/inspect.h>

#include <stdio.h>

/* One array of up to three axes, of f32 or i32. */
typedef struct entry {
    const void *values;
    ht_dtype dtype;
    int64_t shape[3];
    int n_dims;
} entry;

static ht_status put(ht_zip_writer *w, const char *name, const entry *e, bool deflate, ht_error *err) {
    char header[HT_NPY_HEADER_WRITTEN], file[64];
    const size_t n = ht_npy_write_header(e->dtype, e->shape, e->n_dims, header);
    size_t bytes = ht_dtype_bytes(e->dtype);
    for (int i = 0; i < e->n_dims; i++) bytes *= (size_t)e->shape[i]; /* it is in memory: no overflow */
    snprintf(file, sizeof file, "%s.npy", name);
    ht_status status = ht_zip_begin(w, file, n + bytes, deflate, err);
    if (!status) status = ht_zip_put(w, header, n, err);
    if (!status) status = ht_zip_put(w, e->values, bytes, err);
    return status;
}

static ht_status put_layer(ht_zip_writer *w, int32_t layer, const char *what, const float *values, const int64_t *shape,
                           bool deflate, ht_error *err) {
    char name[48];
    const entry e = {values, HT_F32, {shape[0], shape[1], shape[2]}, 3};
    if (!values) return HT_OK;
    snprintf(name, sizeof name, "layer.%d.%s", (int)layer, what);
    return put(w, name, &e, deflate, err);
}

/* Whether no layer before this one has written the keys and values that it attends to. */
static bool is_first_of(const ht_inspection *i, int32_t layer) {
    for (int32_t l = 0; l < layer; l++)
        if (i->layers[l].kv_layer == i->layers[layer].kv_layer && (i->layers[l].k || i->layers[l].v)) return false;
    return true;
}

ht_status ht_inspection_save(const ht_inspection *i, const char *path, bool deflate, ht_error *err) {
    ht_zip_writer *w;
    ht_status status = ht_zip_writer_open(path, &w, err);
    if (status) return status;
    const entry tokens = {i->tokens, HT_I32, {i->n_tokens}, 1};
    status = put(w, "tokens", &tokens, deflate, err);
    for (int32_t l = 0; l < i->n_layers && !status; l++) {
        const ht_inspected_layer *x = &i->layers[l];
        const int64_t kv[] = {x->n_kv_heads, i->n_tokens, x->head_dim}, q[] = {x->n_heads, i->n_tokens, x->head_dim};
        const int64_t square[] = {x->n_heads, i->n_tokens, i->n_tokens};
        const bool first = is_first_of(i, l);
        if (first) status = put_layer(w, x->kv_layer, "k", x->k, kv, deflate, err);
        if (first && !status) status = put_layer(w, x->kv_layer, "v", x->v, kv, deflate, err);
        if (!status) status = put_layer(w, l, "q", x->q, q, deflate, err);
        if (!status) status = put_layer(w, l, "attention", x->attention, square, deflate, err);
    }
    if (status == HT_OK) return ht_zip_commit(w, err);
    ht_zip_discard(w);
    return status;
}
