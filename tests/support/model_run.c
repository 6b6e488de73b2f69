#include "support/model_run.h"

#include "support/test.h"

#include <stdlib.h>
#include <string.h>

static void check(ht_status status, const ht_error *err) {
    if (status) fail_msg("%s", err->message);
}

static void open_layer(ht_kv_layer *l, const ht_kv_shape *shape, ht_dtype dtype, int64_t capacity, int32_t chunk) {
    *l = (ht_kv_layer){
        .n_kv_heads = shape->n_kv_heads, .head_dim = shape->head_dim, .dtype = dtype, .window = shape->window};
    l->n_pages = (capacity + HT_KV_PAGE - 1) / HT_KV_PAGE;
    if (shape->window) {
        /* The window of a chunk's first row up to its last row, at any offset in a page. */
        int64_t ring = (shape->window + chunk + HT_KV_PAGE - 2) / HT_KV_PAGE + 1;
        if (ring < l->n_pages) l->n_pages = l->ring_pages = ring;
    }
    l->pages = calloc((size_t)l->n_pages, sizeof *l->pages);
    size_t bytes = (size_t)(2 * HT_KV_PAGE * shape->n_kv_heads * shape->head_dim) * ht_dtype_bytes(dtype);
    for (int64_t p = 0; p < l->n_pages; p++) {
        l->pages[p] = aligned_alloc(64, (bytes + 63) & ~(size_t)63);
        assert_non_null(l->pages[p]);
        memset(l->pages[p], 0xFF, bytes); /* NaN: a key that is read unwritten shows */
    }
}

model_run model_run_open(const ht_model *m, int64_t capacity, int32_t chunk) {
    model_run r = {.model = m, .capacity = capacity, .chunk = chunk};
    ht_error err = {0};
    check(ht_exec_new(m->plan, chunk, chunk, &r.exec, &err), &err);
    r.cache.n_layers = m->n_layers;
    r.cache.layer = calloc((size_t)m->n_layers, sizeof *r.cache.layer);
    assert_non_null(r.cache.layer);
    for (int32_t i = 0; i < m->n_layers; i++) open_layer(&r.cache.layer[i], &m->kv[i], m->kv_dtype, capacity, chunk);
    return r;
}

void model_run_close(model_run *r) {
    for (int32_t i = 0; i < r->cache.n_layers; i++) {
        for (int64_t p = 0; p < r->cache.layer[i].n_pages; p++) free(r->cache.layer[i].pages[p]);
        free(r->cache.layer[i].pages);
    }
    free(r->cache.layer);
    ht_exec_free(r->exec);
    *r = (model_run){0};
}

static void step(model_run *r, const int32_t *ids, int32_t n, float *logits) {
    int32_t *pos = malloc((size_t)n * 2 * sizeof *pos), *out_row = pos + n;
    assert_non_null(pos);
    int32_t begin = (int32_t)r->cache.length, seq_start[2] = {0, n}, kv_len = begin + n;
    assert_true(kv_len <= r->capacity);
    for (int32_t i = 0; i < n; i++) {
        pos[i] = begin + i;
        out_row[i] = i;
    }
    ht_batch batch = {.n_tok = n,
                      .n_seq = 1,
                      .n_out = n,
                      .id = ids,
                      .pos = pos,
                      .seq_start = seq_start,
                      .kv_len = &kv_len,
                      .out_row = out_row};
    ht_cache *caches[1] = {&r->cache};
    ht_step s = {.batch = &batch, .kv = caches};
    ht_error err = {0};
    const float *rows;
    check(ht_exec_run(r->exec, &s, &rows, &err), &err);
    memcpy(logits, rows, (size_t)n * (size_t)r->model->vocab * sizeof *logits);
    r->cache.length = kv_len;
    free(pos);
}

void model_run_feed(model_run *r, const int32_t *ids, int64_t n, float *logits) {
    for (int64_t i = 0; i < n; i += r->chunk) {
        int64_t rows = n - i < r->chunk ? n - i : r->chunk;
        step(r, ids + i, (int32_t)rows, logits + i * r->model->vocab);
    }
}
