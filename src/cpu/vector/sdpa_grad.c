/* Gradient of scaled dot-product attention. Scores are recomputed block by block, once for the weight sums and once for
 * the gradients. Each thread accumulates dK and dV of its KV heads. */
#include "cpu/call.h"
#include "cpu/reference/reference.h"
#include "cpu/vector/sdpa_ragged.h"
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
    return (size_t)ht_pool_threads(ht_call_pool(call)) * (size_t)layout_scratch(&s, NULL, &r) * sizeof(float);
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
static void softmax_backward(const sdpa_shape *s, const sdpa_tile *t, const softmax_of *of, int64_t m,
                             const scratch *r) {
    const v16f one = v16f_set1(1.0f), cap = v16f_set1(s->softcap > 0 ? s->softcap : 1.0f);
    for (int64_t i = 0; i < t->n; i += 16) {
        const v16f max = v16f_load(of->max + i), inverse = v16f_load(of->inverse + i), mean = v16f_load(of->mean + i);
        for (int64_t at = i; at < m * SDPA_ROWS; at += SDPA_ROWS) {
            v16f x = v16f_load(r->scores + at), w = v16f_mul(sdpa_exp2(v16f_sub(x, max)), inverse);
            v16f change = v16f_mul(w, v16f_sub(v16f_load(r->change + at), mean));
            if (s->softcap > 0) { /* the derivative of cap * tanh(score / cap) */
                const v16f tanh = v16f_div(x, cap);
                change = v16f_mul(change, v16f_sub(one, v16f_mul(tanh, tanh)));
            }
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
        sdpa_scores(s, t, sdpa_rows_at(s, t, &r->keys, j), m, r->q_turned, r->scores);
        sdpa_mask(s, t, j, m, r->scores);
        sdpa_softmax(t, &run, m, r->scores);
    }
    find_softmax(s, t, &run, r, &of);
    for (int64_t j = begin; j < end; j += SDPA_KEYS) {
        int64_t m = ht_min_i64(SDPA_KEYS, end - j);
        panel_operand keys = sdpa_rows_at(s, t, &r->keys, j), weights = {r->scores, SDPA_ROWS, 1};
        panel_operand change = {r->change, SDPA_ROWS, 1}, change_turned = {r->change, 1, SDPA_ROWS};
        sdpa_scores(s, t, keys, m, r->q_turned, r->scores);
        sdpa_mask(s, t, j, m, r->scores);
        sdpa_multiply(t, sdpa_rows_at(s, t, &r->values, j), m, r->grad_turned, s->dv, r->change);
        softmax_backward(s, t, &of, m, r);
        panel_multiply(weights, r->grad, dv, t->n, m, dv, r->dv + j * dv, dv, true);
        panel_multiply(change, r->q, d, t->n, m, d, r->dk + j * d, d, true);
        panel_multiply(change_turned, keys.at, keys.row, m, t->n, d, r->dq, d, true);
    }
}

static void store_rows(const ht_view *out, int64_t at, int64_t n, const float *from, float scale) {
    for (int64_t i = 0; i < n; i += 16)
        lanes_store(out->dtype, out->data, at + i, v16f_mul(v16f_load(from + i), v16f_set1(scale)), lanes_count(n - i));
}

/* Gradients of all queries of one KV head, and of its keys and values. */
static void head_gradient(const sdpa_shape *s, int64_t batch, int64_t head, scratch *r) {
    const float of_keys = 1.0f / HT_LOG2_E; /* queries were scaled by log2(e) */
    const ht_view *dq = &s->out[0], *dk = &s->out[1], *dv = &s->out[2];
    memset(r->dk, 0, (size_t)(s->n_k * s->d_padded) * sizeof(float));
    memset(r->dv, 0, (size_t)(s->n_k * s->dv_padded) * sizeof(float));
    for (int64_t first = 0; first < s->rows; first += SDPA_ROWS) {
        sdpa_tile t = {batch, head, first, ht_min_i64(SDPA_ROWS, s->rows - first)};
        tile_gradient(s, &t, r);
        for (int64_t i = 0; i < t.n; i++) {
            const int64_t row = first + i;
            store_rows(dq, sdpa_out_at(dq, batch, sdpa_head(s, &t, row), sdpa_query(s, row)), s->d,
                       r->dq + i * s->d_padded, s->params->scale);
        }
    }
    for (int64_t j = 0; j < s->n_k; j++) {
        store_rows(dk, sdpa_out_at(dk, batch, head, j), s->d, r->dk + j * s->d_padded, of_keys);
        store_rows(dv, sdpa_out_at(dv, batch, head, j), s->dv, r->dv + j * s->dv_padded, 1.0f);
    }
}

static void head_gradients(void *arg, int64_t begin, int64_t end, int worker) {
    const sdpa_shape *s = arg;
    scratch r;
    layout_scratch(s, (float *)s->call->scratch + worker * layout_scratch(s, NULL, &r), &r);
    for (int64_t unit = begin; unit < end; unit++) head_gradient(s, unit / s->kv_heads, unit % s->kv_heads, &r);
}

static ht_status gradient(const ht_call *call, ht_error *err) {
    if (!lanes_supports(call->in[0].dtype)) return ht_plain_attention_gradient(call, err);
    sdpa_shape s = sdpa_shape_of(call);
    if (ht_view_size(&call->out) == 0) return HT_OK;
    sdpa_gradient_parts(call, s.out);
    ht_pool_run(ht_call_pool(call), s.batch * s.kv_heads, 1, head_gradients, &s);
    return HT_OK;
}

/* ---- flat rows of many sequences ---- */

typedef struct ragged_job {
    const ht_call *call;
    ht_ragged runs;
    ht_view out[3];
    float *scratch;
    int64_t floats; /* of one thread */
} ragged_job;

static size_t rows_gradient_scratch(const ht_call *call) {
    sdpa_sequence whole;
    scratch r;
    sdpa_whole(call, &whole);
    return ht_ragged_bytes(call) +
           (size_t)ht_pool_threads(ht_call_pool(call)) * (size_t)layout_scratch(&whole.shape, NULL, &r) * sizeof(float);
}

static void sequence_gradients(void *arg, int64_t begin, int64_t end, int worker) {
    const ragged_job *job = arg;
    sdpa_sequence sequence;
    scratch r;
    sdpa_whole(job->call, &sequence);
    const int64_t kv_heads = sequence.shape.kv_heads;
    layout_scratch(&sequence.shape, job->scratch + worker * job->floats, &r);
    for (int64_t unit = begin; unit < end; unit++) {
        const int64_t run = unit / kv_heads;
        sdpa_sequence_of(job->call, &job->runs, run, job->out, 3, &sequence);
        r.keys.view = &sequence.in[1];
        r.values.view = &sequence.in[2];
        head_gradient(&sequence.shape, run, unit % kv_heads, &r);
    }
}

static ht_status rows_gradient(const ht_call *call, ht_error *err) {
    if (ht_view_size(&call->out) == 0) return HT_OK;
    sdpa_sequence whole;
    scratch r;
    ragged_job job = {.call = call};
    ht_status status = ht_ragged_find(call, call->scratch, &job.runs, err);
    if (status) return status;
    sdpa_whole(call, &whole);
    job.floats = layout_scratch(&whole.shape, NULL, &r);
    job.scratch = (float *)(void *)((char *)call->scratch + ht_ragged_bytes(call));
    sdpa_gradient_parts(call, job.out);
    memset(call->out.data, 0, (size_t)ht_view_size(&call->out) * sizeof(float)); /* of keys that no query sees */
    ht_pool_run(ht_call_pool(call), job.runs.n * whole.shape.kv_heads, 1, sequence_gradients, &job);
    return HT_OK;
}

void HT_ISA_NAME(ht_vector_sdpa_grad)(ht_kernel kernels[HT_OP_COUNT]) {
    kernels[HT_OP_ATTEND_ROWS_GRAD] = (ht_kernel){.run = rows_gradient, .scratch = rows_gradient_scratch};
    kernels[HT_OP_SDPA_GRAD] = (ht_kernel){.run = gradient, .scratch = gradient_scratch};
}
