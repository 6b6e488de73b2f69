/* Gradient of scaled dot-product attention. Scores are recomputed block by block, once for the weight sums and once for
 * the gradients. Each thread accumulates dK and dV of its KV heads. */
#include "cpu/reference/reference.h"
#include "cpu/vector/sdpa.h"
#include "cpu/vector/vector.h"

/* Scratch memory of one thread. */
typedef struct scratch {
    float *q, *q_turned, *dq, *out, *grad, *grad_turned, *scores, *change, *dk, *dv;
    sdpa_rows keys, values;
} scratch;

static int64_t layout_scratch(const sdpa_shape *s, float *base, scratch *r) {
    const int64_t q = SDPA_ROWS * s->d_padded, out = SDPA_ROWS * s->dv_padded, block = SDPA_ROWS * SDPA_KEYS;
    int64_t at = 0, n[10] = {q, q, q, out, out, out, block, block, s->n_k * s->d_padded, s->n_k * s->dv_padded};
    float **part[10] = {&r->q,           &r->q_turned, &r->dq,     &r->out, &r->grad,
                        &r->grad_turned, &r->scores,   &r->change, &r->dk,  &r->dv};
    for (int i = 0; i < 10; at += n[i++]) *part[i] = base ? base + at : NULL;
    at += sdpa_rows_init(s, &s->call->in[1], s->d, true, base ? base + at : NULL, &r->keys);
    at += sdpa_rows_init(s, &s->call->in[2], s->dv, false, base ? base + at : NULL, &r->values);
    return at;
}

static size_t gradient_scratch(const ht_call *call) {
    if (!lanes_supports(call->in[0].dtype)) return ht_plain_sdpa_grad_scratch(call);
    sdpa_shape s = sdpa_shape_of(call);
    scratch r;
    return (size_t)ht_pool_threads(call->pool) * (size_t)layout_scratch(&s, NULL, &r) * sizeof(float);
}

/* Softmax state of a tile's queries for the backward pass. */
typedef struct softmax_of {
    float max[SDPA_ROWS], inverse[SDPA_ROWS], mean[SDPA_ROWS];
} softmax_of;

static void find_softmax(const sdpa_shape *s, const sdpa_tile *t, const sdpa_running *run, const scratch *r,
                         softmax_of *to) {
    memset(to, 0, sizeof *to);
    for (int64_t i = 0; i < t->n; i++) {
        v16f mean = v16f_zero();
        for (int64_t c = 0; c < s->dv_padded; c += 16)
            mean = v16f_fma(v16f_load(r->grad + i * s->dv_padded + c), v16f_load(r->out + i * s->dv_padded + c), mean);
        to->mean[i] = v16f_sum(mean);
        to->max[i] = run->max[i] == -INFINITY ? 0.0f : run->max[i];
        to->inverse[i] = 1.0f / run->sum[i];
    }
}

/* Softmax backward: replaces scores by weights and weight gradients by score gradients; hidden keys get 0. */
static void softmax_backward(const sdpa_tile *t, const softmax_of *of, int64_t m, const scratch *r) {
    for (int64_t i = 0; i < t->n; i += 16) {
        const v16f max = v16f_load(of->max + i), inverse = v16f_load(of->inverse + i), mean = v16f_load(of->mean + i);
        for (int64_t at = i; at < m * SDPA_ROWS; at += SDPA_ROWS) {
            v16f x = v16f_load(r->scores + at), w = v16f_mul(sdpa_exp2(v16f_sub(x, max)), inverse);
            v16f change = v16f_mul(w, v16f_sub(v16f_load(r->change + at), mean));
            change = v16f_select(v16f_eq(x, v16f_set1(-FLT_MAX)), v16f_zero(), change);
            v16f_store(r->scores + at, w);
            v16f_store(r->change + at, change);
        }
    }
}

static void tile_gradient(const sdpa_shape *s, const sdpa_tile *t, scratch *r) {
    const ht_call *call = s->call;
    int64_t begin, end, d = s->d_padded, dv = s->dv_padded;
    sdpa_running run;
    softmax_of of;
    sdpa_load_rows(s, t, &call->in[0], s->d, s->params->scale * HT_LOG2_E, r->q);
    sdpa_load_rows(s, t, &call->in[5], s->dv, 1.0f, r->out);
    sdpa_load_rows(s, t, &call->in[6], s->dv, 1.0f, r->grad);
    sdpa_transpose_rows(t, d, r->q, r->q_turned);
    sdpa_transpose_rows(t, dv, r->grad, r->grad_turned);
    memset(r->dq, 0, (size_t)(t->n * d) * sizeof(float));
    sdpa_running_init(s, t, &run);
    sdpa_key_range(s, t, &begin, &end);
    for (int64_t j = begin; j < end; j += SDPA_KEYS) {
        int64_t m = ht_min_i64(SDPA_KEYS, end - j);
        sdpa_scores(t, sdpa_rows_at(s, t, &r->keys, j), m, r->q_turned, s->d, r->scores);
        sdpa_mask(s, t, j, m, r->scores);
        sdpa_softmax(t, &run, m, r->scores);
    }
    find_softmax(s, t, &run, r, &of);
    for (int64_t j = begin; j < end; j += SDPA_KEYS) {
        int64_t m = ht_min_i64(SDPA_KEYS, end - j);
        panel_operand keys = sdpa_rows_at(s, t, &r->keys, j), weights = {r->scores, SDPA_ROWS, 1};
        panel_operand change = {r->change, SDPA_ROWS, 1}, change_turned = {r->change, 1, SDPA_ROWS};
        sdpa_scores(t, keys, m, r->q_turned, s->d, r->scores);
        sdpa_mask(s, t, j, m, r->scores);
        sdpa_scores(t, sdpa_rows_at(s, t, &r->values, j), m, r->grad_turned, s->dv, r->change);
        softmax_backward(t, &of, m, r);
        panel_multiply(weights, r->grad, dv, t->n, m, dv, r->dv + j * dv, dv, true);
        panel_multiply(change, r->q, d, t->n, m, d, r->dk + j * d, d, true);
        panel_multiply(change_turned, keys.at, keys.row, m, t->n, d, r->dq, d, true);
    }
}

static void store_rows(const ht_view *out, int64_t at, int64_t n, const float *from, float scale) {
    for (int64_t i = 0; i < n; i += 16)
        lanes_store(out->dtype, out->data, at + i, v16f_mul(v16f_load(from + i), v16f_set1(scale)), lanes_count(n - i));
}

static void head_gradients(void *arg, int64_t begin, int64_t end, int worker) {
    const sdpa_shape *s = arg;
    const ht_view *out = &s->call->out;
    const float of_keys = 1.0f / HT_LOG2_E; /* queries were scaled by log2(e) */
    int64_t keys = ht_view_size(&s->call->in[0]), values = keys + ht_view_size(&s->call->in[1]);
    scratch r;
    layout_scratch(s, (float *)s->call->scratch + worker * layout_scratch(s, NULL, &r), &r);
    for (int64_t unit = begin; unit < end; unit++) {
        memset(r.dk, 0, (size_t)(s->n_k * s->d_padded) * sizeof(float));
        memset(r.dv, 0, (size_t)(s->n_k * s->dv_padded) * sizeof(float));
        for (int64_t first = 0; first < s->rows; first += SDPA_ROWS) {
            sdpa_tile t = {unit / s->kv_heads, unit % s->kv_heads, first, ht_min_i64(SDPA_ROWS, s->rows - first)};
            tile_gradient(s, &t, &r);
            for (int64_t i = 0; i < t.n; i++) {
                int64_t head = t.batch * s->heads + sdpa_head(s, &t, first + i);
                store_rows(out, (head * s->n_q + sdpa_query(s, first + i)) * s->d, s->d, r.dq + i * s->d_padded,
                           s->params->scale);
            }
        }
        for (int64_t j = 0; j < s->n_k; j++) {
            store_rows(out, keys + (unit * s->n_k + j) * s->d, s->d, r.dk + j * s->d_padded, of_keys);
            store_rows(out, values + (unit * s->n_k + j) * s->dv, s->dv, r.dv + j * s->dv_padded, 1.0f);
        }
    }
}

static ht_status gradient(const ht_call *call, ht_error *err) {
    if (!lanes_supports(call->in[0].dtype)) return ht_plain_attention_gradient(call, err);
    sdpa_shape s = sdpa_shape_of(call);
    if (ht_view_size(&call->out) == 0) return HT_OK;
    ht_pool_run(call->pool, s.batch * s.kv_heads, 1, head_gradients, &s);
    return HT_OK;
}

void HT_ISA_NAME(ht_vector_sdpa_grad)(ht_kernel kernels[HT_OP_COUNT]) {
    kernels[HT_OP_SDPA_GRAD] = (ht_kernel){.run = gradient, .scratch = gradient_scratch};
}
