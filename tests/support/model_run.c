#include "support/model_run.h"

#include "device/device.h"
#include "models/weights.h"
#include "support/test.h"

#include <stdlib.h>
#include <string.h>

static void check(ht_status status, const ht_error *err) {
    if (status) fail_msg("%s", err->message);
}

static void open_layer(ht_device *d, ht_kv_layer *l, const ht_layer_kv *kv, int64_t capacity, int32_t chunk) {
    ht_error err = {0};
    *l = (ht_kv_layer){.shape = kv->shape, .window = kv->window, .chunked = kv->chunked};
    l->n_pages = kv->shape.state ? HT_STATE_COPIES : (capacity + HT_KV_PAGE - 1) / HT_KV_PAGE;
    if (kv->window) {
        /* The window of a chunk's first row up to its last row, at any offset in a page. */
        int64_t ring = (kv->window + chunk + HT_KV_PAGE - 2) / HT_KV_PAGE + 1;
        if (ring < l->n_pages) l->n_pages = l->ring_pages = ring;
    }
    l->pages = calloc((size_t)l->n_pages, sizeof *l->pages);
    for (int64_t p = 0; p < l->n_pages; p++) {
        check(ht_kv_page_new(d, &l->shape, NULL, &l->pages[p], &err), &err);
        /* NaN: a key that is read unwritten shows; states begin as zeros */
        const int byte = kv->shape.state && p == 0 ? 0 : 0xFF;
        check(ht_memory_fill(d->memory, l->pages[p]->data, byte, d->kv->page_bytes(&l->shape), &err), &err);
    }
}

/* The states after a step become those before the next one. */
static void swap_states(ht_cache *c) {
    for (int32_t i = 0; i < c->n_layers; i++) {
        ht_kv_layer *l = &c->layer[i];
        if (!l->shape.state) continue;
        ht_kv_page *before = l->pages[0];
        l->pages[0] = l->pages[1];
        l->pages[1] = before;
    }
}

model_run model_run_open(const ht_model *m, int64_t capacity, int32_t chunk) {
    model_run r = {.model = m, .capacity = capacity, .chunk = chunk, .rows = 2 * chunk};
    ht_error err = {0};
    r.cache.is_long = r.eager = ht_model_is_long(m, capacity); /* the first plan is that of short sequences */
    check(ht_exec_new(m->plan[0], r.rows, r.rows, &r.exec, &err), &err);
    r.cache.n_layers = m->n_cache_layers;
    r.cache.layer = calloc((size_t)m->n_cache_layers, sizeof *r.cache.layer);
    assert_non_null(r.cache.layer);
    for (int32_t i = 0; i < m->n_cache_layers; i++)
        open_layer(m->device, &r.cache.layer[i], &m->kv[i], capacity, chunk);
    return r;
}

void model_run_close(model_run *r) {
    for (int32_t i = 0; i < r->cache.n_layers; i++) {
        ht_kv_layer *l = &r->cache.layer[i];
        for (int64_t p = 0; p < l->n_pages; p++) ht_kv_page_release(r->model->device, &l->shape, l->pages[p]);
        free(l->pages);
    }
    free(r->cache.layer);
    ht_exec_free(r->exec);
    *r = (model_run){0};
}

/* Logits [n_out, vocab] of a step. */
static void compute(const model_run *host, const ht_step *step, float *logits) {
    const ht_model *m = host->model;
    size_t bytes = (size_t)step->batch->n_out * (size_t)m->vocab * sizeof *logits;
    ht_error err = {0};
    const void *output;
    if (!host->eager) {
        check(ht_exec_run(host->exec, step, (const float **)&output, &err), &err);
        memcpy(logits, output, bytes);
        return;
    }
    ht_scope *s = ht_scope_new(m->stream);
    ht_ctx c = {.s = s, .step = step, .lora = step->lora ? m->weights : NULL, .is_long = host->cache.is_long};
    ht_array *y = m->config->family->forward(&c, ht_weights_decoder(m->weights));
    check(ht_array_data(s, y, &output, &err), &err);
    memcpy(logits, output, bytes);
    ht_scope_free(s);
}

/* One step of n runs of one model, in the executor of the first; run i appends rows[i] > 0 ids and gets its logits. */
static void step(model_run *const *runs, int n, const int32_t *const *ids, const int32_t *rows, float *const *logits) {
    const model_run *host = runs[0];
    int32_t total = 0, seq_start[3] = {0}, kv_len[2];
    ht_cache *caches[2];
    const ht_lora_set *lora[2];
    bool adapters = false;
    int32_t *id = malloc((size_t)host->rows * 3 * sizeof *id), *pos = id + host->rows, *out_row = pos + host->rows;
    assert_non_null(id);
    for (int s = 0; s < n; s++) {
        assert_true(total + rows[s] <= host->rows);
        seq_start[s] = total;
        caches[s] = &runs[s]->cache;
        lora[s] = runs[s]->lora;
        adapters = adapters || lora[s];
        kv_len[s] = (int32_t)caches[s]->length + rows[s];
        assert_true(kv_len[s] <= runs[s]->capacity);
        for (int32_t i = 0; i < rows[s]; i++, total++) {
            id[total] = ids[s][i];
            pos[total] = (int32_t)caches[s]->length + i;
            out_row[total] = total;
        }
    }
    seq_start[n] = total;
    ht_batch batch = {.n_tok = total,
                      .n_seq = n,
                      .n_out = total,
                      .id = id,
                      .pos = pos,
                      .seq_start = seq_start,
                      .kv_len = kv_len,
                      .out_row = out_row};
    size_t vocab = (size_t)host->model->vocab;
    float *all = malloc((size_t)total * vocab * sizeof *all), *output = all;
    assert_non_null(all);
    compute(host, &(ht_step){.batch = &batch, .kv = caches, .lora = adapters ? lora : NULL}, all);
    for (int s = 0; s < n; s++) {
        size_t values = (size_t)rows[s] * vocab;
        memcpy(logits[s], output, values * sizeof *output);
        output += values;
        caches[s]->length = kv_len[s];
        swap_states(caches[s]);
    }
    free(all);
    free(id);
}

void model_run_feed(model_run *r, const int32_t *ids, int64_t n, float *logits) {
    for (int64_t i = 0; i < n; i += r->chunk) {
        int32_t rows = (int32_t)(n - i < r->chunk ? n - i : r->chunk);
        step(&r, 1, &(const int32_t *){ids + i}, &rows, &(float *){logits + i * r->model->vocab});
    }
}

void model_run_feed_two(model_run *const runs[2], const int32_t *const ids[2], const int64_t n[2],
                        float *const logits[2]) {
    int64_t chunk = runs[0]->chunk, vocab = runs[0]->model->vocab;
    for (int64_t at = 0; at < n[0] || at < n[1]; at += chunk) {
        model_run *now[2];
        const int32_t *next[2];
        int32_t rows[2];
        float *to[2];
        int count = 0;
        for (int s = 0; s < 2; s++) {
            if (at >= n[s]) continue;
            now[count] = runs[s];
            next[count] = ids[s] + at;
            rows[count] = (int32_t)(n[s] - at < chunk ? n[s] - at : chunk);
            to[count++] = logits[s] + at * vocab;
        }
        step(now, count, next, rows, to);
    }
}
