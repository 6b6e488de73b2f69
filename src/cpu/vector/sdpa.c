/* Scaled dot-product attention of f32, f16 and bf16 arrays, by tiles of queries and blocks of keys: the scores of a block
 * exist only as long as they are used, the softmax is kept relative to the largest score so far. */
#include "cpu/vector/sdpa.h"

#include "cpu/reference/reference.h"
#include "cpu/vector/vector.h"

/* A thread's own memory. */
typedef struct room {
    float *q, *keys, *turned, *values, *scores, *out;
} room;

static int64_t room_floats(const sdpa_shape *s) {
    return SDPA_ROWS * (s->d_padded + s->dv_padded + SDPA_KEYS) + SDPA_KEYS * (2 * s->d_padded + s->dv_padded);
}

static room room_of(const sdpa_shape *s, int worker) {
    float *at = (float *)s->call->scratch + worker * room_floats(s);
    room r;
    r.q = at, at += SDPA_ROWS * s->d_padded;
    r.out = at, at += SDPA_ROWS * s->dv_padded;
    r.scores = at, at += SDPA_ROWS * SDPA_KEYS;
    r.keys = at, at += SDPA_KEYS * s->d_padded;
    r.turned = at, at += SDPA_KEYS * s->d_padded;
    r.values = at;
    return r;
}

static size_t sdpa_scratch(const ht_call *call) {
    if (!lanes_take(call->in[0].dtype)) return ht_plain_sdpa_scratch(call);
    sdpa_shape s = sdpa_shape_of(call);
    return (size_t)ht_pool_threads(call->pool) * (size_t)room_floats(&s) * sizeof(float);
}

static void store_tile(const sdpa_shape *s, const sdpa_tile *t, const sdpa_running *run, const float *out) {
    const ht_view *to = &s->call->out;
    for (int64_t r = 0; r < t->n; r++) {
        int64_t row = t->first + r;
        int64_t at = ((t->batch * s->heads + sdpa_head(s, t, row)) * s->n_q + sdpa_query(s, row)) * s->dv;
        v16f total = v16f_set1(run->sum[r]);
        for (int64_t i = 0; i < s->dv; i += 16)
            lanes_store(to->dtype, to->data, at + i, v16f_div(v16f_load(out + r * s->dv_padded + i), total),
                        lanes_of(s->dv - i));
    }
}

static void attend_tile(const sdpa_shape *s, const sdpa_tile *t, const room *r) {
    const ht_view *in = s->call->in;
    sdpa_running run;
    int64_t begin, end;
    sdpa_load_rows(s, t, &in[0], s->d, s->how->scale, r->q);
    memset(r->out, 0, (size_t)(t->n * s->dv_padded) * sizeof(float));
    sdpa_start(s, t, &run);
    sdpa_span(s, t, &begin, &end);
    for (int64_t j = begin; j < end; j += SDPA_KEYS) {
        sdpa_load_keys(s, t, &in[1], s->d, j, r->keys);
        panel_transpose(r->keys, s->d_padded, SDPA_KEYS, s->d_padded, r->turned, SDPA_KEYS);
        sdpa_load_keys(s, t, &in[2], s->dv, j, r->values);
        panel_left queries = {r->q, s->d_padded, 1}, weights = {r->scores, SDPA_KEYS, 1};
        panel_multiply(queries, r->turned, SDPA_KEYS, s->d, t->n, SDPA_KEYS, r->scores, SDPA_KEYS, false);
        sdpa_mask(s, t, j, r->scores);
        sdpa_weigh(t, &run, r->scores);
        sdpa_rescale(t, &run, r->out, s->dv_padded);
        panel_multiply(weights, r->values, s->dv_padded, SDPA_KEYS, t->n, s->dv_padded, r->out, s->dv_padded, true);
    }
    store_tile(s, t, &run, r->out);
}

static void attend_tiles(void *arg, int64_t begin, int64_t end, int worker) {
    const sdpa_shape *s = arg;
    room r = room_of(s, worker);
    int64_t tiles = ht_ceil_div_i64(s->rows, SDPA_ROWS);
    for (int64_t i = begin; i < end; i++) {
        int64_t first = i % tiles * SDPA_ROWS, pair = i / tiles;
        sdpa_tile t = {pair / s->kv_heads, pair % s->kv_heads, first, ht_min_i64(SDPA_ROWS, s->rows - first)};
        attend_tile(s, &t, &r);
    }
}

static ht_status sdpa(const ht_call *call, ht_error *err) {
    if (!lanes_take(call->in[0].dtype)) return ht_plain_scaled_dot_product_attention(call, err);
    sdpa_shape s = sdpa_shape_of(call);
    if (ht_view_size(&call->out) == 0) return HT_OK;
    ht_pool_run(call->pool, s.batch * s.kv_heads * ht_ceil_div_i64(s.rows, SDPA_ROWS), 1, attend_tiles, &s);
    return HT_OK;
}

void HT_ISA_NAME(ht_vector_sdpa)(ht_kernel kernels[HT_OP_COUNT]) {
    kernels[HT_OP_SDPA] = (ht_kernel){.run = sdpa, .scratch = sdpa_scratch};
}
