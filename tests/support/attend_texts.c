#include "support/attend_texts.h"

#include "support/test.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

float far_sink(int64_t head) {
    static const float far[] = {-INFINITY, 0, 300, -3e38F, 3e38F, -200, 2, 1e4F};
    return far[head % 8];
}

texts texts_make(const attend_case *c) {
    texts t = {.c = c};
    uint64_t seed = 7;
    for (int s = 0; s < c->n_seq; s++) {
        const int64_t kv = (int64_t)c->length[s] * c->n_kv_heads * c->head_dim;
        t.q[s] = test_random_floats((int64_t)c->length[s] * c->n_heads * c->head_dim, 4, &seed);
        t.k[s] = test_random_floats(kv, 2, &seed);
        t.v[s] = test_random_floats(kv, 1, &seed);
    }
    t.sinks = test_random_floats(c->n_heads, 4, &seed);
    for (int h = 0; h < c->n_heads && c->sinks == FAR_SINKS; h++) t.sinks[h] = far_sink(h);
    return t;
}

void texts_free(texts *t) {
    for (int s = 0; s < MOST_TEXTS; s++) free(t->q[s]), free(t->k[s]), free(t->v[s]);
    free(t->sinks);
}

void caches_make(ht_device *d, const attend_case *c, caches *out) {
    memset(out, 0, sizeof *out);
    out->d = d;
    for (int s = 0; s < c->n_seq; s++) {
        ht_kv_layer *l = &out->layer[s];
        *l = (ht_kv_layer){.shape = {c->n_kv_heads, c->head_dim, c->dtype, c->v_dim > 0, 0},
                           .window = c->window,
                           .chunked = c->chunked,
                           .ring_pages = c->ring_pages,
                           .n_pages = c->ring_pages ? c->ring_pages : (c->length[s] + HT_KV_PAGE - 1) / HT_KV_PAGE,
                           .pages = out->page[s]};
        assert_true(l->n_pages <= MOST_PAGES);
        out->cache[s] = (ht_cache){.n_layers = 1, .layer = l};
        for (int64_t p = 0; p < l->n_pages; p++) {
            const size_t bytes = d->kv->page_bytes(&l->shape);
            l->pages[p] = test_room(sizeof *l->pages[p]);
            *l->pages[p] = (ht_kv_page){.refs = 1, .data = test_room_on(d, bytes)};
            assert_int_equal(ht_memory_fill(d->memory, l->pages[p]->data, 0xff, bytes, NULL), HT_OK);
        }
    }
}

void caches_free(caches *c) {
    for (int s = 0; s < MOST_TEXTS; s++)
        for (int64_t p = 0; p < c->layer[s].n_pages; p++) {
            test_room_free(c->d, c->page[s][p]->data, c->d->kv->page_bytes(&c->layer[s].shape));
            free(c->page[s][p]);
        }
}

void results_make(const attend_case *c, float *out[]) {
    for (int s = 0; s < c->n_seq; s++) {
        const size_t bytes = (size_t)c->length[s] * (size_t)c->n_heads * (size_t)attend_values(c) * sizeof(float);
        out[s] = test_room(bytes);
        memset(out[s], 0xff, bytes);
    }
}

void results_free(const attend_case *c, float *out[]) {
    for (int s = 0; s < c->n_seq; s++) free(out[s]);
}

/* Rows `first` and every `every`th behind it alone: sequences of a few rows may have none of them. */
static void check_asked(ht_device *d, const ht_step *of, const ht_attend_params *params, const ht_view *q,
                        const ht_view *sinks, const float *whole, int32_t first, int32_t every) {
    const int64_t per_q = q->shape[1] * q->shape[2], values = params->v_dim ? params->v_dim : q->shape[2],
                  per_y = q->shape[1] * values;
    ht_batch batch = *of->batch;
    int32_t *row = test_room((size_t)batch.n_tok * sizeof *row);
    float *asked = test_room((size_t)(batch.n_tok * per_q) * sizeof *asked),
          *y = test_room((size_t)(batch.n_tok * per_y) * sizeof *y);
    batch.n_out = 0;
    for (int32_t i = first; i < batch.n_tok; i += every) {
        memcpy(asked + batch.n_out * per_q, (const float *)q->data + i * per_q, (size_t)per_q * sizeof *asked);
        row[batch.n_out++] = i;
    }
    batch.out_row = row;
    const int64_t dims[3] = {batch.n_out, q->shape[1], q->shape[2]};
    const ht_view in[4] = {test_view(asked, HT_F32, 3, dims), test_absent(), test_absent(), *sinks};
    const ht_view to = test_view(y, HT_F32, 3, (int64_t[]){batch.n_out, q->shape[1], values});
    ht_attend_params narrowed = *params;
    narrowed.asked = true;
    test_run_ok(d, HT_OP_ATTEND, &narrowed, 4, in, &to, &(ht_step){.batch = &batch, .kv = of->kv});
    for (int32_t i = 0; i < batch.n_out; i++)
        assert_memory_equal(y + i * per_y, whole + row[i] * per_y, (size_t)per_y * sizeof *y);
    free(row), free(asked), free(y);
}

/* One step: rows begin[s] .. end[s] - 1 of every sequence s. */
static void attend_step(caches *kv, const texts *t, const int *begin, const int *end, int n_asked, float *const out[]) {
    static const int32_t asked[][2] = {{0, 3}, {6, 7}}; /* the first, and every which */
    const attend_case *c = t->c;
    const int64_t per_q = (int64_t)c->n_heads * c->head_dim, per_kv = (int64_t)c->n_kv_heads * c->head_dim,
                  per_y = (int64_t)c->n_heads * attend_values(c);
    int32_t start[MOST_TEXTS + 1] = {0}, kv_len[MOST_TEXTS], n_seq = 0;
    ht_cache *pointer[MOST_TEXTS];
    int which[MOST_TEXTS];
    for (int s = 0; s < c->n_seq; s++) {
        if (begin[s] == end[s]) continue;
        start[n_seq + 1] = start[n_seq] + end[s] - begin[s];
        kv_len[n_seq] = end[s];
        pointer[n_seq] = &kv->cache[s];
        which[n_seq++] = s;
    }
    const int64_t rows = start[n_seq];
    if (rows == 0) return;
    float *q = test_room((size_t)(rows * per_q) * sizeof *q), *y = test_room((size_t)(rows * per_y) * sizeof *y);
    float *k = test_room((size_t)(rows * per_kv) * sizeof *k), *v = test_room((size_t)(rows * per_kv) * sizeof *v);
    int32_t *pos = test_room((size_t)rows * sizeof *pos);
    for (int i = 0; i < n_seq; i++) {
        const int s = which[i], n = end[s] - begin[s];
        memcpy(q + start[i] * per_q, t->q[s] + begin[s] * per_q, (size_t)(n * per_q) * sizeof *q);
        memcpy(k + start[i] * per_kv, t->k[s] + begin[s] * per_kv, (size_t)(n * per_kv) * sizeof *k);
        memcpy(v + start[i] * per_kv, t->v[s] + begin[s] * per_kv, (size_t)(n * per_kv) * sizeof *v);
        for (int r = 0; r < n; r++) pos[start[i] + r] = begin[s] + r;
    }
    const ht_batch batch = {.n_tok = (int32_t)rows, .n_seq = n_seq, .pos = pos, .seq_start = start, .kv_len = kv_len};
    const ht_step step = {.batch = &batch, .kv = pointer};
    const ht_attend_params params = {.scale = 1 / sqrtf((float)c->head_dim), .softcap = c->softcap, .v_dim = c->v_dim};
    const ht_view in[4] = {test_view(q, HT_F32, 3, (int64_t[]){rows, c->n_heads, c->head_dim}),
                           test_view(k, HT_F32, 3, (int64_t[]){rows, c->n_kv_heads, c->head_dim}),
                           c->v_dim ? test_absent()
                                    : test_view(v, HT_F32, 3, (int64_t[]){rows, c->n_kv_heads, c->head_dim}),
                           c->sinks ? test_view(t->sinks, HT_F32, 1, (int64_t[]){c->n_heads}) : test_absent()};
    const ht_view to = test_view(y, HT_F32, 3, (int64_t[]){rows, c->n_heads, attend_values(c)});
    test_run_ok(kv->d, HT_OP_ATTEND, &params, 4, in, &to, &step);
    for (int i = 0; i < n_asked; i++) check_asked(kv->d, &step, &params, &in[0], &in[3], y, asked[i][0], asked[i][1]);
    for (int i = 0; i < n_seq; i++)
        memcpy(out[which[i]] + begin[which[i]] * per_y, y + start[i] * per_y,
               (size_t)((end[which[i]] - begin[which[i]]) * per_y) * sizeof *y);
    free(q), free(y), free(k), free(v), free(pos);
}

void attend_texts(caches *kv, const texts *t, attend_cut cut, float *const out[]) {
    const attend_case *c = t->c;
    for (int turn = 0; turn < (cut.together ? 1 : c->n_seq); turn++) {
        int begin[MOST_TEXTS] = {0}, end[MOST_TEXTS] = {0};
        for (bool more = true; more;) {
            more = false;
            for (int s = 0; s < c->n_seq; s++) {
                if (!cut.together && s != turn) continue;
                const int many = c->length[s] - cut.single, next = end[s] < many ? end[s] + cut.chunk : end[s] + 1;
                begin[s] = end[s];
                end[s] = end[s] < many && next > many ? many : next;
                if (end[s] > c->length[s]) end[s] = c->length[s];
                more |= end[s] < c->length[s];
            }
            attend_step(kv, t, begin, end, cut.n_asked, out);
        }
    }
}

void expect_missing_page(ht_device *d) {
    const attend_case c = {"", 2, 1, 8, HT_F16, 0, 0, 0, 1, {256}, NO_SINKS, false, 0};
    caches kv;
    caches_make(d, &c, &kv);
    float q[16] = {0}, k[8] = {0}, y[16];
    int32_t pos = 256, start[2] = {0, 1}, kv_len = 257;
    const ht_batch batch = {.n_tok = 1, .n_seq = 1, .pos = &pos, .seq_start = start, .kv_len = &kv_len};
    const ht_view in[4] = {test_view(q, HT_F32, 3, (int64_t[]){1, 2, 8}), test_view(k, HT_F32, 3, (int64_t[]){1, 1, 8}),
                           test_view(k, HT_F32, 3, (int64_t[]){1, 1, 8}), test_absent()};
    const ht_view out = test_view(y, HT_F32, 3, (int64_t[]){1, 2, 8});
    ht_error err = {0};
    assert_int_equal(test_run(d, HT_OP_ATTEND, &(ht_attend_params){.scale = 1}, 4, in, &out,
                              &(ht_step){.batch = &batch, .kv = (ht_cache *[]){&kv.cache[0]}}, &err),
                     HT_ERR_INTERNAL);
    assert_non_null(strstr(err.message, "256"));
    caches_free(&kv);
}
