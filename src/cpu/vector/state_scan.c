/* Scans of states: the columns of a head's state are independent, so a block of them is in the first-level cache during all
 * rows of a step. One pass over it ends a row and begins the next: per vector of state one load, one store, three
 * multiply-adds and one product. The memory of a state is read once and written once.
 *
 * Bits are those of the plain kernel: an element's operations do not depend on rows per step or on the block. */
#include "cpu/state_scan.h"

#include "cpu/call.h"
#include "device/state.h"
#include "cpu/strided_iterator.h"
#include "cpu/vector/lanes.h"
#include "cpu/vector/vector.h"

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

/* Operands of a row for one head. */
typedef struct scan_row {
    const float *q, *k, *decay;
} scan_row;

HT_INLINE scan_row row_of(const ht_state_scan *s, const column_block *b, int64_t t) {
    return (scan_row){ht_state_scan_at(s->q, b->row + t, b->key_head), ht_state_scan_at(s->k, b->row + t, b->key_head),
                      ht_state_scan_at(s->decay, b->row + t, b->head)};
}

/* Reads the state and decays it for the first row; seen = S^T k. */
HT_INLINE void begin_rows(const ht_state_scan *s, const column_block *b, int vectors, v16f *seen) {
    const scan_row r = row_of(s, b, 0);
    float *state = b->state;
    for (int w = 0; w < vectors; w++) seen[w] = v16f_zero();
    for (int64_t i = 0; i < s->key_dim; i++, state += 16 * vectors) {
        const v16f decay = v16f_set1(r.decay[i * s->key_step]), k = v16f_set1(r.k[i * s->k->stride[2]]);
        HT_UNROLL
        for (int w = 0; w < vectors; w++) {
            v16f x = v16f_zero();
            if (b->before) x = v16f_load_n(b->before + i * s->value_dim + 16 * w, w + 1 < vectors ? 16 : b->tail);
            x = v16f_mul(x, decay);
            v16f_store(state + 16 * w, x);
            seen[w] = v16f_fma(x, k, seen[w]);
        }
    }
}

/* Adds k d^T to the decayed state; out = S^T q. Then decays it for the next row; seen = S^T k of that. */
HT_INLINE void advance(const ht_state_scan *s, const column_block *b, int64_t t, int vectors, bool delta, const v16f *d,
                       v16f *out, v16f *seen) {
    const scan_row r = row_of(s, b, t), next = row_of(s, b, t + 1);
    const int64_t k_step = s->k->stride[2], q_step = s->q->stride[2];
    float *state = b->state;
    for (int w = 0; w < vectors; w++) out[w] = seen[w] = v16f_zero();
    for (int64_t i = 0; i < s->key_dim; i++, state += 16 * vectors) {
        const v16f k = v16f_set1(r.k[i * k_step]), q = v16f_set1(r.q[i * q_step]);
        const v16f decay = v16f_set1(next.decay[i * s->key_step]), next_k = v16f_set1(next.k[i * k_step]);
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
    const float *state = b->state;
    for (int w = 0; w < vectors; w++) out[w] = v16f_zero();
    for (int64_t i = 0; i < s->key_dim; i++, state += 16 * vectors) {
        const v16f k = v16f_set1(r.k[i * s->k->stride[2]]), q = v16f_set1(r.q[i * s->q->stride[2]]);
        HT_UNROLL
        for (int w = 0; w < vectors; w++) {
            const v16f x = v16f_fma(k, d[w], v16f_load(state + 16 * w));
            out[w] = v16f_fma(x, q, out[w]);
            if (b->after) v16f_store_n(b->after + i * s->value_dim + 16 * w, x, w + 1 < vectors ? 16 : b->tail);
        }
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
        if (t + 1 < b->n_rows)
            advance(s, b, t, vectors, delta, d, out, seen);
        else
            end_rows(s, b, vectors, d, out);
        float *to = (float *)s->call->out.data + ((b->row + t) * s->heads + b->head) * s->value_dim + b->column;
        for (int w = 0; w < vectors; w++) v16f_store_n(to + 16 * w, out[w], w + 1 < vectors ? 16 : b->tail);
    }
}

static int64_t blocks_of(const ht_state_scan *s) { return (s->value_dim + COLUMNS - 1) / COLUMNS; }

static void scan_blocks(void *arg, int64_t begin, int64_t end, int worker) {
    const ht_state_scan *s = arg;
    float *states = (float *)(void *)((char *)s->call->scratch + ht_state_scan_bytes(s->call));
    const int64_t blocks = blocks_of(s);
    for (int64_t item = begin; item < end; item++) {
        const int64_t sequence = item / blocks / s->heads;
        column_block b = {.row = s->start[sequence],
                          .n_rows = s->start[sequence + 1] - s->start[sequence],
                          .head = item / blocks % s->heads,
                          .column = item % blocks * COLUMNS,
                          .state = states + worker * s->key_dim * COLUMNS};
        b.key_head = ht_state_scan_key_head(s, b.head);
        if (s->call->n_in == 5) {
            const ht_kv_layer *l = ht_state_of(s->call, s->params->layer, sequence);
            const int64_t at = s->params->first + b.head * s->key_dim * s->value_dim + b.column;
            b.before = ht_state_before(l) + at;
            b.after = ht_state_after(l) + at;
        }
        const int64_t left = s->value_dim - b.column;
        b.tail = left > 16 ? lanes_count(left - 16) : (int)left;
        if (left > 16 && s->rate)
            scan_block(s, &b, 2, true);
        else if (left > 16)
            scan_block(s, &b, 2, false);
        else if (s->rate)
            scan_block(s, &b, 1, true);
        else
            scan_block(s, &b, 1, false);
    }
}

static size_t state_scan_scratch(const ht_call *call) {
    return ht_state_scan_bytes(call) +
           (size_t)ht_pool_threads(ht_call_pool(call)) * (size_t)(call->in[1].shape[2] * COLUMNS) * sizeof(float);
}

static ht_status state_scan(const ht_call *call, ht_error *err) {
    ht_state_scan s;
    const ht_status status = ht_state_scan_start(call, &s, err);
    if (status || s.n_seq == 0) return status;
    const int64_t rows = (call->out.shape[0] + s.n_seq - 1) / s.n_seq;
    ht_pool_run(ht_call_pool(call), s.n_seq * s.heads * blocks_of(&s),
                ht_row_grain(HT_GRAIN_CHEAP, rows * s.key_dim * COLUMNS), scan_blocks, &s);
    return status;
}

void HT_ISA_NAME(ht_vector_state_scan)(ht_kernel kernels[HT_OP_COUNT]) {
    kernels[HT_OP_STATE_SCAN] = (ht_kernel){.run = state_scan, .scratch = state_scan_scratch};
    kernels[HT_OP_STATE_SCAN_ROWS] = (ht_kernel){.run = state_scan, .scratch = state_scan_scratch};
}
