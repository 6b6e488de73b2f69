/* Scans of states, one column of a head's state at a time, in f32: the vector kernels have the same bits. The gradient is in
 * f64, from the states of all rows. */
#include "cpu/state_scan.h"

#include "cpu/call.h"
#include "cpu/reference/reference.h"
#include "device/state.h"

#include <math.h>
#include <string.h>

/* All rows of a sequence, for column c of a head's state: key_dim elements, `step` apart. */
static void scan_column(const ht_state_scan *s, int64_t sequence, int64_t head, int64_t c, float *state, int64_t step) {
    const int64_t key_head = ht_state_scan_key_head(s, head), n = s->key_dim;
    for (int64_t t = s->start[sequence]; t < s->start[sequence + 1]; t++) {
        const float *q = ht_state_scan_at(s->q, t, key_head), *k = ht_state_scan_at(s->k, t, key_head);
        const float *decay = ht_state_scan_at(s->decay, t, head);
        float d = ht_state_scan_at(s->v, t, head)[c * s->v->stride[2]], seen = 0, out = 0;
        for (int64_t i = 0; i < n; i++) {
            state[i * step] *= decay[i * s->key_step];
            seen = fmaf(state[i * step], k[i * s->k->stride[2]], seen);
        }
        if (s->rate) d = *ht_state_scan_at(s->rate, t, head) * (d - seen);
        for (int64_t i = 0; i < n; i++) {
            state[i * step] = fmaf(k[i * s->k->stride[2]], d, state[i * step]);
            out = fmaf(state[i * step], q[i * s->q->stride[2]], out);
        }
        ((float *)s->call->out.data)[(t * s->heads + head) * s->value_dim + c] = out;
    }
}

static void scan_heads(void *arg, int64_t begin, int64_t end, int worker) {
    const ht_state_scan *s = arg;
    const int64_t n = s->key_dim * s->value_dim;
    for (int64_t unit = begin; unit < end; unit++) {
        const int64_t sequence = unit / s->heads, head = unit % s->heads;
        if (s->call->n_in > 5) {
            float *state =
                (float *)(void *)((char *)s->call->scratch + ht_state_scan_bytes(s->call)) + worker * s->key_dim;
            for (int64_t c = 0; c < s->value_dim; c++) {
                memset(state, 0, (size_t)s->key_dim * sizeof *state);
                scan_column(s, sequence, head, c, state, 1);
            }
        } else {
            const ht_kv_layer *l = ht_state_of(s->call, s->params->layer, sequence);
            float *state = ht_state_after(l) + s->params->first + head * n;
            memcpy(state, ht_state_before(l) + s->params->first + head * n, (size_t)n * sizeof *state);
            for (int64_t c = 0; c < s->value_dim; c++) scan_column(s, sequence, head, c, state + c, s->value_dim);
        }
    }
}

ht_status ht_plain_state_scan(const ht_call *call, ht_error *err) {
    ht_state_scan s;
    const ht_status status = ht_state_scan_start(call, &s, err);
    if (!status) ht_pool_run(ht_call_pool(call), s.n_seq * s.heads, 1, scan_heads, &s);
    return status;
}

ht_status ht_plain_state_scan_rows(const ht_call *call, ht_error *err) { return ht_plain_state_scan(call, err); }

size_t ht_plain_state_scan_rows_scratch(const ht_call *call) {
    return ht_state_scan_bytes(call) +
           (size_t)ht_pool_threads(ht_call_pool(call)) * (size_t)call->in[1].shape[2] * sizeof(float);
}

/* ---- gradient ---- */

/* Sums of the gradients of all operands, as they lie in the result, then the states of a column. */
typedef struct gradient_sums {
    double *q, *k, *v, *decay, *rate;
    double *states; /* [rows + 1][key_dim]: before each row of a sequence, and after the last */
    double *later;  /* [key_dim] gradient of the state after the row, from later rows */
} gradient_sums;

static gradient_sums sums_of(const ht_state_scan *s, double *at) {
    gradient_sums g = {.q = at};
    g.k = g.q + ht_view_size(s->q);
    g.v = g.k + ht_view_size(s->k);
    g.decay = g.v + ht_view_size(s->v);
    g.rate = g.decay + ht_view_size(s->decay);
    g.states = at + ht_view_size(&s->call->out);
    g.later = g.states + (s->q->shape[0] + 1) * s->key_dim;
    return g;
}

size_t ht_plain_state_scan_rows_gradient_scratch(const ht_call *call) {
    const ht_state_scan s = ht_state_scan_of(call);
    const int64_t n = ht_view_size(&call->out) + (s.q->shape[0] + 2) * s.key_dim;
    return ht_state_scan_bytes(call) + (size_t)n * sizeof(double);
}

static double element(const ht_view *x, int64_t t, int64_t head, int64_t i) {
    return (double)ht_state_scan_at(x, t, head)[x->n_dims == 3 ? i * x->stride[2] : 0];
}

/* v - S^T k of column c of the decayed state, or v without a rate. */
static double difference(const ht_state_scan *s, int64_t t, int64_t head, int64_t c, const double *state) {
    double sum = element(s->v, t, head, c);
    for (int64_t i = 0; i < s->key_dim && s->rate; i++)
        sum -= element(s->decay, t, head, i) * state[i] * element(s->k, t, ht_state_scan_key_head(s, head), i);
    return sum;
}

/* Row t of column c; state: before the row. */
static void gradient_of_row(const ht_state_scan *s, int64_t t, int64_t head, int64_t c, const double *state,
                            const gradient_sums *g) {
    const int64_t key_head = ht_state_scan_key_head(s, head), row = t * s->heads + head;
    const double grad = element(&s->call->in[6], t, head, c), u = difference(s, t, head, c, state);
    const double rate = s->rate ? element(s->rate, t, head, 0) : 1, d = rate * u;
    double *dq = g->q + (t * s->key_heads + key_head) * s->key_dim, of_d = 0;
    double *dk = g->k + (t * s->key_heads + key_head) * s->key_dim;
    for (int64_t i = 0; i < s->key_dim; i++) {
        g->later[i] += element(s->q, t, key_head, i) * grad;
        of_d += g->later[i] * element(s->k, t, key_head, i);
    }
    g->v[row * s->value_dim + c] += rate * of_d;
    if (s->rate) g->rate[row] += u * of_d;
    const double of_seen = s->rate ? -rate * of_d : 0;
    for (int64_t i = 0; i < s->key_dim; i++) {
        const double decay = element(s->decay, t, head, i), k = element(s->k, t, key_head, i);
        const double of_decayed = g->later[i] + k * of_seen;
        dq[i] += (decay * state[i] + k * d) * grad;
        dk[i] += g->later[i] * d + decay * state[i] * of_seen;
        g->decay[s->decay->n_dims == 3 ? row * s->key_dim + i : row] += of_decayed * state[i];
        g->later[i] = of_decayed * decay;
    }
}

static void gradient_of_column(const ht_state_scan *s, int64_t sequence, int64_t head, int64_t c,
                               const gradient_sums *g) {
    const int64_t begin = s->start[sequence], end = s->start[sequence + 1], n = s->key_dim;
    memset(g->states, 0, (size_t)n * sizeof *g->states);
    memset(g->later, 0, (size_t)n * sizeof *g->later);
    for (int64_t t = begin; t < end; t++) {
        const double *state = g->states + (t - begin) * n;
        const double d = (s->rate ? element(s->rate, t, head, 0) : 1) * difference(s, t, head, c, state);
        for (int64_t i = 0; i < n; i++)
            g->states[(t - begin + 1) * n + i] =
                element(s->decay, t, head, i) * state[i] + element(s->k, t, ht_state_scan_key_head(s, head), i) * d;
    }
    for (int64_t t = end; t-- > begin;) gradient_of_row(s, t, head, c, g->states + (t - begin) * n, g);
}

ht_status ht_plain_state_scan_rows_gradient(const ht_call *call, ht_error *err) {
    ht_state_scan s;
    const ht_status status = ht_state_scan_start(call, &s, err);
    if (status) return status;
    double *sums = (double *)(void *)((char *)call->scratch + ht_state_scan_bytes(call));
    const gradient_sums g = sums_of(&s, sums);
    const int64_t size = ht_view_size(&call->out);
    memset(sums, 0, (size_t)size * sizeof *sums);
    for (int64_t sequence = 0; sequence < s.n_seq; sequence++)
        for (int64_t head = 0; head < s.heads; head++)
            for (int64_t c = 0; c < s.value_dim; c++) gradient_of_column(&s, sequence, head, c, &g);
    for (int64_t i = 0; i < size; i++) ((float *)call->out.data)[i] = (float)sums[i];
    return HT_OK;
}
