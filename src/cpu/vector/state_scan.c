/* Scans of states: the columns of a head's state are independent, so a block of them is in the first-level cache during all
 * rows of a step. One pass over it ends a row and begins the next: per vector of state one load, one store, three
 * multiply-adds and one product. The memory of a state is read once and written once.
 *
 * Bits are those of the plain kernel: an element's operations do not depend on rows per step or on the block. */
#include "cpu/state_scan.h"

#include "cpu/call.h"
#include "cpu/streaming_store.h"
#include "cpu/strided_iterator.h"
#include "cpu/vector/lanes.h"
#include "cpu/vector/vector.h"
#include "device/state.h"

enum { COLUMNS = 32 /* of a block: two chains of multiply-adds for each of its two sums hide their latency */ };

/* A block of columns of one head. */
typedef struct column_block {
    int64_t row, n_rows, head, key_head;
    int64_t column;
    int tail;            /* columns of the last vector */
    const float *before; /* [key_dim][value_dim] from the block's first column on; NULL: zeros */
    float *after;        /* NULL: not kept */
    float *state;        /* [key_dim][16 * vectors] */
} column_block;

/* Operands of a row for one head, and elements between those of two key dimensions. */
typedef struct scan_row {
    const float *q, *k, *decay;
    int64_t q_step, k_step, decay_step;
} scan_row;

HT_INLINE scan_row row_of(const ht_state_scan *s, const column_block *b, int64_t t) {
    return (scan_row){ht_state_scan_at(s->q, b->row + t, b->key_head),
                      ht_state_scan_at(s->k, b->row + t, b->key_head),
                      ht_state_scan_at(s->decay, b->row + t, b->head),
                      s->q->stride[2],
                      s->k->stride[2],
                      s->key_step};
}

/* Prefetches the operands and the result of row t: rows are far apart in memory, a row begins with what it reads, and a
 * store to memory that is not in the cache delays the stores after it. */
HT_INLINE void prefetch_row(const ht_state_scan *s, const column_block *b, int64_t t) {
    const scan_row r = row_of(s, b, t);
    for (int64_t i = 0; i < s->key_dim; i += 16) {
        HT_PREFETCH(r.q + i * r.q_step);
        HT_PREFETCH(r.k + i * r.k_step);
    }
    const float *out = (const float *)s->call->out.data + ((b->row + t) * s->heads + b->head) * s->value_dim;
    for (int64_t c = b->column; c < b->column + COLUMNS; c += 16) {
        HT_PREFETCH(ht_state_scan_at(s->v, b->row + t, b->head) + c * s->v->stride[2]);
        HT_PREFETCH(out + c);
    }
    HT_PREFETCH(r.decay);
    if (s->rate) HT_PREFETCH(ht_state_scan_at(s->rate, b->row + t, b->head));
}

/* Reads the state and decays it for the first row; seen = S^T k. */
HT_INLINE void begin_rows(const ht_state_scan *s, const column_block *b, int vectors, v16f *seen) {
    const scan_row r = row_of(s, b, 0);
    const int64_t n = s->key_dim, value_dim = s->value_dim;
    const float *from = b->before;
    const int tail = b->tail;
    float *state = b->state;
    for (int w = 0; w < vectors; w++) seen[w] = v16f_zero();
    for (int64_t i = 0; i < n; i++, state += 16 * vectors) {
        const v16f decay = v16f_set1(r.decay[i * r.decay_step]), k = v16f_set1(r.k[i * r.k_step]);
        HT_UNROLL
        for (int w = 0; w < vectors; w++) {
            v16f x = from ? v16f_load_n(from + 16 * w, w + 1 < vectors ? 16 : tail) : v16f_zero();
            x = v16f_mul(x, decay);
            v16f_store(state + 16 * w, x);
            seen[w] = v16f_fma(x, k, seen[w]);
        }
        if (from) from += value_dim;
    }
}

/* Adds k d^T to the decayed state; out = S^T q. Then decays it for the next row; seen = S^T k of that. */
HT_INLINE void advance(const ht_state_scan *s, const column_block *b, int64_t t, int vectors, bool delta, const v16f *d,
                       v16f *out, v16f *seen) {
    const scan_row r = row_of(s, b, t), next = row_of(s, b, t + 1);
    const int64_t n = s->key_dim;
    float *state = b->state;
    for (int w = 0; w < vectors; w++) out[w] = seen[w] = v16f_zero();
    for (int64_t i = 0; i < n; i++, state += 16 * vectors) {
        const v16f k = v16f_set1(r.k[i * r.k_step]), q = v16f_set1(r.q[i * r.q_step]);
        const v16f decay = v16f_set1(next.decay[i * r.decay_step]), next_k = v16f_set1(next.k[i * r.k_step]);
        HT_UNROLL
        for (int w = 0; w < vectors; w++) {
            v16f x = v16f_fma(k, d[w], v16f_load(state + 16 * w));
            out[w] = v16f_fma(x, q, out[w]);
            x = v16f_mul(x, decay);
            v16f_store(state + 16 * w, x);
            if (delta) seen[w] = v16f_fma(x, next_k, seen[w]);
        }
    }
}

/* The same for the last row, after which the state is kept. */
HT_INLINE void end_rows(const ht_state_scan *s, const column_block *b, int vectors, const v16f *d, v16f *out) {
    const scan_row r = row_of(s, b, b->n_rows - 1);
    const int64_t n = s->key_dim, value_dim = s->value_dim;
    const float *state = b->state;
    const int tail = b->tail;
    float *to = b->after;
    for (int w = 0; w < vectors; w++) out[w] = v16f_zero();
    for (int64_t i = 0; i < n; i++, state += 16 * vectors) {
        const v16f k = v16f_set1(r.k[i * r.k_step]), q = v16f_set1(r.q[i * r.q_step]);
        HT_UNROLL
        for (int w = 0; w < vectors; w++) {
            const v16f x = v16f_fma(k, d[w], v16f_load(state + 16 * w));
            out[w] = v16f_fma(x, q, out[w]);
            if (to) v16f_store_n(to + 16 * w, x, w + 1 < vectors ? 16 : tail);
        }
        if (to) to += value_dim;
    }
}

HT_INLINE void scan_block(const ht_state_scan *s, const column_block *b, int vectors, bool delta) {
    v16f seen[COLUMNS / 16], d[COLUMNS / 16], out[COLUMNS / 16];
    begin_rows(s, b, vectors, seen);
    for (int64_t t = 0; t < b->n_rows; t++) {
        const float *v = ht_state_scan_at(s->v, b->row + t, b->head);
        for (int w = 0; w < vectors; w++) {
            const int64_t at = (b->column + 16 * w) * s->v->stride[2];
            d[w] = lanes_load(HT_F32, v, at, s->v->stride[2], w + 1 < vectors ? 16 : b->tail);
            if (delta)
                d[w] = v16f_mul(v16f_set1(*ht_state_scan_at(s->rate, b->row + t, b->head)), v16f_sub(d[w], seen[w]));
        }
        if (t + 2 < b->n_rows) prefetch_row(s, b, t + 2);
        if (t + 1 < b->n_rows)
            advance(s, b, t, vectors, delta, d, out, seen);
        else
            end_rows(s, b, vectors, d, out);
        float *to = (float *)s->call->out.data + ((b->row + t) * s->heads + b->head) * s->value_dim + b->column;
        for (int w = 0; w < vectors; w++) v16f_store_n(to + 16 * w, out[w], w + 1 < vectors ? 16 : b->tail);
    }
}

/* ---- one row: all columns of a head, so that its state is read and written in order ---- */

/* Result and state of the only row. `sums` has three times value_dim floats, rounded up to vectors. */
static void scan_one_row(const ht_state_scan *s, const column_block *b, bool stream, float *sums) {
    const scan_row r = row_of(s, b, 0);
    const int64_t n = s->value_dim, padded = (n + 15) / 16 * 16, v_step = s->v->stride[2];
    const float *v = ht_state_scan_at(s->v, b->row, b->head), *from = b->before;
    float *d = sums, *out = d + padded, *row = out + padded, *to = b->after;
    memset(sums, 0, (size_t)(2 * padded) * sizeof *sums);
    for (int64_t i = 0; i < s->key_dim && s->rate; i++, from += n) {
        const v16f decay = v16f_set1(r.decay[i * r.decay_step]), k = v16f_set1(r.k[i * r.k_step]);
        for (int64_t c = 0; c < n; c += 16) {
            const v16f x = v16f_mul(v16f_load_n(from + c, lanes_count(n - c)), decay);
            v16f_store(d + c, v16f_fma(x, k, v16f_load(d + c)));
        }
    }
    for (int64_t c = 0; c < n; c += 16) {
        v16f x = lanes_load(HT_F32, v, c * v_step, v_step, lanes_count(n - c));
        if (s->rate)
            x = v16f_mul(v16f_set1(*ht_state_scan_at(s->rate, b->row, b->head)), v16f_sub(x, v16f_load(d + c)));
        v16f_store(d + c, x);
    }
    from = b->before;
    for (int64_t i = 0; i < s->key_dim; i++, from += n, to += n) {
        const v16f decay = v16f_set1(r.decay[i * r.decay_step]), k = v16f_set1(r.k[i * r.k_step]);
        const v16f q = v16f_set1(r.q[i * r.q_step]);
        if (!stream) row = to;
        for (int64_t c = 0; c < n; c += 16) {
            v16f x = v16f_mul(v16f_load_n(from + c, lanes_count(n - c)), decay);
            x = v16f_fma(k, v16f_load(d + c), x);
            v16f_store(out + c, v16f_fma(x, q, v16f_load(out + c)));
            v16f_store_n(row + c, x, lanes_count(n - c));
        }
        if (stream) ht_stream_store(to, row, (size_t)n * sizeof *to, NULL, 0);
    }
    memcpy((float *)s->call->out.data + (b->row * s->heads + b->head) * n, out, (size_t)n * sizeof *out);
}

/* ---- items of work: blocks of columns; the first block of a head does the others' work for a single row ---- */

typedef struct scan_job {
    ht_state_scan s;
    int64_t blocks; /* of a head */
    bool stream;    /* the states of one row bypass the cache */
    float *scratch;
    int64_t floats; /* of scratch, for a thread */
} scan_job;

static int64_t thread_floats(const ht_call *call) {
    const int64_t block = call->in[1].shape[2] * COLUMNS, row = 3 * ((call->in[2].shape[2] + 15) / 16 * 16);
    return block > row ? block : row;
}

static void scan_any_rows(const scan_job *job, const column_block *b) {
    const ht_state_scan *s = &job->s;
    if (b->n_rows < 2 && b->before) {
        const size_t bytes = (size_t)(s->key_dim * s->value_dim) * sizeof(float);
        if (b->column == 0 && b->n_rows == 0) memcpy(b->after, b->before, bytes);
        if (b->column == 0 && b->n_rows == 1) scan_one_row(s, b, job->stream, b->state);
    } else if (b->column + 16 < s->value_dim) {
        if (s->rate)
            scan_block(s, b, 2, true);
        else
            scan_block(s, b, 2, false);
    } else if (s->rate)
        scan_block(s, b, 1, true);
    else
        scan_block(s, b, 1, false);
}

static void scan_items(void *arg, int64_t begin, int64_t end, int worker) {
    const scan_job *job = arg;
    const ht_state_scan *s = &job->s;
    for (int64_t item = begin; item < end; item++) {
        const int64_t sequence = item / job->blocks / s->heads;
        column_block b = {.row = s->start[sequence],
                          .n_rows = s->start[sequence + 1] - s->start[sequence],
                          .head = item / job->blocks % s->heads,
                          .column = item % job->blocks * COLUMNS,
                          .state = job->scratch + worker * job->floats};
        b.key_head = ht_state_scan_key_head(s, b.head);
        if (s->call->n_in == 5) {
            const ht_kv_layer *l = ht_state_of(s->call, s->params->layer, sequence);
            const int64_t at = s->params->first + b.head * s->key_dim * s->value_dim + b.column;
            b.before = ht_state_before(l) + at;
            b.after = ht_state_after(l) + at;
        }
        const int64_t left = s->value_dim - b.column;
        b.tail = lanes_count(left > 16 ? left - 16 : left);
        scan_any_rows(job, &b);
    }
    if (job->stream) ht_stream_fence();
}

static size_t state_scan_scratch(const ht_call *call) {
    return ht_state_scan_bytes(call) +
           (size_t)ht_pool_threads(ht_call_pool(call)) * (size_t)thread_floats(call) * sizeof(float);
}

static ht_status state_scan(const ht_call *call, ht_error *err) {
    scan_job job = {.floats = thread_floats(call),
                    .scratch = (float *)(void *)((char *)call->scratch + ht_state_scan_bytes(call))};
    const ht_status status = ht_state_scan_start(call, &job.s, err);
    if (status || ht_view_size(&call->out) == 0) return status;
    const int64_t rows = call->out.shape[0], n_seq = job.s.n_seq;
    if (call->n_in == 5) { /* a state is read again after those of all other layers */
        const ht_cache *kv = call->step->kv[0];
        const int64_t values = n_seq * kv->n_layers * kv->layer[job.s.params->layer].shape.state;
        job.stream = ht_use_streaming((size_t)values * sizeof(float));
    }
    job.blocks = (job.s.value_dim + COLUMNS - 1) / COLUMNS;
    ht_pool_run(ht_call_pool(call), n_seq * job.s.heads * job.blocks,
                ht_row_grain(HT_GRAIN_CHEAP, (rows + n_seq - 1) / n_seq * job.s.key_dim * COLUMNS), scan_items, &job);
    return status;
}

void HT_ISA_NAME(ht_vector_state_scan)(ht_kernel kernels[HT_OP_COUNT]) {
    kernels[HT_OP_STATE_SCAN] = (ht_kernel){.run = state_scan, .scratch = state_scan_scratch};
    kernels[HT_OP_STATE_SCAN_ROWS] = (ht_kernel){.run = state_scan, .scratch = state_scan_scratch};
}
