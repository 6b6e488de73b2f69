/* The gradient of scaled dot-product attention: scores are computed again, block by block, first for the sum of a query's
 * weights, then for the gradients. A thread keeps the sums for the keys and values of its key head. */
#include "cpu/reference/reference.h"
#include "cpu/vector/sdpa.h"
#include "cpu/vector/vector.h"

/* A thread's own memory. */
typedef struct room {
    float *q, *dq, *grad, *out, *scores, *change, *keys, *keys_turned, *values, *values_turned, *dk, *dv;
} room;

static int64_t keys_padded(const sdpa_shape *s) { return (s->n_k + SDPA_KEYS - 1) / SDPA_KEYS * SDPA_KEYS; }

static room lay_out(const sdpa_shape *s, float *base, int64_t *floats) {
    int64_t d = s->d_padded, dv = s->dv_padded,
            n[12] = {SDPA_ROWS * d,         SDPA_ROWS * d,         SDPA_ROWS * dv,     SDPA_ROWS * dv,
                     SDPA_ROWS * SDPA_KEYS, SDPA_ROWS * SDPA_KEYS, SDPA_KEYS * d,      SDPA_KEYS * d,
                     SDPA_KEYS * dv,        SDPA_KEYS * dv,        keys_padded(s) * d, keys_padded(s) * dv};
    room r;
    float **part[12] = {&r.q,    &r.dq,          &r.grad,   &r.out,           &r.scores, &r.change,
                        &r.keys, &r.keys_turned, &r.values, &r.values_turned, &r.dk,     &r.dv};
    *floats = 0;
    for (int i = 0; i < 12; i++) {
        *part[i] = base ? base + *floats : NULL;
        *floats += n[i];
    }
    return r;
}

static size_t gradient_scratch(const ht_call *call) {
    if (!lanes_take(call->in[0].dtype)) return ht_plain_sdpa_grad_scratch(call);
    sdpa_shape s = sdpa_shape_of(call);
    int64_t floats;
    lay_out(&s, NULL, &floats);
    return (size_t)ht_pool_threads(call->pool) * (size_t)floats * sizeof(float);
}

/* Masked scores of the tile and keys [j, j + SDPA_KEYS). */
static void score(const sdpa_shape *s, const sdpa_tile *t, const room *r, int64_t j) {
    sdpa_load_keys(s, t, &s->call->in[1], s->d, j, r->keys);
    panel_transpose(r->keys, s->d_padded, SDPA_KEYS, s->d_padded, r->keys_turned, SDPA_KEYS);
    panel_multiply((panel_left){r->q, s->d_padded, 1}, r->keys_turned, SDPA_KEYS, s->d, t->n, SDPA_KEYS, r->scores,
                   SDPA_KEYS, false);
    sdpa_mask(s, t, j, r->scores);
}

/* Scores become weights, gradients of the weights become those of the scores; a hidden one has none. */
static void turn_to_changes(const sdpa_shape *s, const sdpa_tile *t, const sdpa_running *run, const room *r) {
    for (int64_t i = 0; i < t->n; i++) {
        v16f mean = v16f_zero(), inverse = v16f_set1(1.0f / run->sum[i]);
        for (int64_t c = 0; c < s->dv_padded; c += 16)
            mean = v16f_fma(v16f_load(r->grad + i * s->dv_padded + c), v16f_load(r->out + i * s->dv_padded + c), mean);
        mean = v16f_set1(v16f_sum(mean));
        v16f max = v16f_set1(run->max[i] == -INFINITY ? 0.0f : run->max[i]);
        for (int64_t at = i * SDPA_KEYS; at < (i + 1) * SDPA_KEYS; at += 16) {
            v16f x = v16f_load(r->scores + at), w = v16f_mul(v16f_exp(v16f_sub(x, max)), inverse);
            v16f change = v16f_mul(w, v16f_sub(v16f_load(r->change + at), mean));
            change = v16f_select(v16f_eq(x, v16f_set1(-FLT_MAX)), v16f_zero(), change);
            v16f_store(r->scores + at, w);
            v16f_store(r->change + at, change);
        }
    }
}

static void tile_gradient(const sdpa_shape *s, const sdpa_tile *t, const room *r) {
    const ht_call *call = s->call;
    int64_t begin, end, d = s->d_padded, dv = s->dv_padded;
    sdpa_running run;
    sdpa_load_rows(s, t, &call->in[0], s->d, s->how->scale, r->q);
    sdpa_load_rows(s, t, &call->in[5], s->dv, 1.0f, r->out);
    sdpa_load_rows(s, t, &call->in[6], s->dv, 1.0f, r->grad);
    memset(r->dq, 0, (size_t)(t->n * d) * sizeof(float));
    sdpa_start(s, t, &run);
    sdpa_span(s, t, &begin, &end);
    for (int64_t j = begin; j < end; j += SDPA_KEYS) {
        score(s, t, r, j);
        sdpa_weigh(t, &run, r->scores);
    }
    for (int64_t j = begin; j < end; j += SDPA_KEYS) {
        score(s, t, r, j);
        sdpa_load_keys(s, t, &call->in[2], s->dv, j, r->values);
        panel_transpose(r->values, dv, SDPA_KEYS, dv, r->values_turned, SDPA_KEYS);
        panel_multiply((panel_left){r->grad, dv, 1}, r->values_turned, SDPA_KEYS, s->dv, t->n, SDPA_KEYS, r->change,
                       SDPA_KEYS, false);
        turn_to_changes(s, t, &run, r);
        panel_multiply((panel_left){r->scores, 1, SDPA_KEYS}, r->grad, dv, t->n, SDPA_KEYS, dv, r->dv + j * dv, dv,
                       true);
        panel_multiply((panel_left){r->change, 1, SDPA_KEYS}, r->q, d, t->n, SDPA_KEYS, d, r->dk + j * d, d, true);
        panel_multiply((panel_left){r->change, SDPA_KEYS, 1}, r->keys, d, SDPA_KEYS, t->n, d, r->dq, d, true);
    }
}

static void store_rows(const ht_view *out, int64_t at, int64_t n, const float *from, float scale) {
    for (int64_t i = 0; i < n; i += 16)
        lanes_store(out->dtype, out->data, at + i, v16f_mul(v16f_load(from + i), v16f_set1(scale)), lanes_of(n - i));
}

static void head_gradients(void *arg, int64_t begin, int64_t end, int worker) {
    const sdpa_shape *s = arg;
    const ht_view *out = &s->call->out;
    int64_t floats, keys = ht_view_size(&s->call->in[0]), values = keys + ht_view_size(&s->call->in[1]);
    lay_out(s, NULL, &floats);
    room r = lay_out(s, (float *)s->call->scratch + worker * floats, &floats);
    for (int64_t unit = begin; unit < end; unit++) {
        memset(r.dk, 0, (size_t)(keys_padded(s) * s->d_padded) * sizeof(float));
        memset(r.dv, 0, (size_t)(keys_padded(s) * s->dv_padded) * sizeof(float));
        for (int64_t first = 0; first < s->rows; first += SDPA_ROWS) {
            sdpa_tile t = {unit / s->kv_heads, unit % s->kv_heads, first, ht_min_i64(SDPA_ROWS, s->rows - first)};
            tile_gradient(s, &t, &r);
            for (int64_t i = 0; i < t.n; i++) {
                int64_t head = t.batch * s->heads + sdpa_head(s, &t, first + i);
                store_rows(out, (head * s->n_q + sdpa_query(s, first + i)) * s->d, s->d, r.dq + i * s->d_padded,
                           s->how->scale);
            }
        }
        for (int64_t j = 0; j < s->n_k; j++) {
            store_rows(out, keys + (unit * s->n_k + j) * s->d, s->d, r.dk + j * s->d_padded, 1.0f);
            store_rows(out, values + (unit * s->n_k + j) * s->dv, s->dv, r.dv + j * s->dv_padded, 1.0f);
        }
    }
}

static ht_status gradient(const ht_call *call, ht_error *err) {
    if (!lanes_take(call->in[0].dtype)) return ht_plain_attention_gradient(call, err);
    sdpa_shape s = sdpa_shape_of(call);
    if (ht_view_size(&call->out) == 0) return HT_OK;
    ht_pool_run(call->pool, s.batch * s.kv_heads, 1, head_gradients, &s);
    return HT_OK;
}

void HT_ISA_NAME(ht_vector_sdpa_grad)(ht_kernel kernels[HT_OP_COUNT]) {
    kernels[HT_OP_SDPA_GRAD] = (ht_kernel){.run = gradient, .scratch = gradient_scratch};
}
