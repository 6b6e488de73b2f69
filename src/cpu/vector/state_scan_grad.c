/* Gradient of STATE_SCAN_ROWS, backward through time. A block of columns of a head goes forward first and keeps its state
 * every SEGMENT rows. Then, from the last segment to the first one, it computes the states of the segment's rows again and
 * goes back through them. Sums over columns and over the heads of a key head are added up per segment, in order of head and
 * block: no result depends on the threads. Without a rate the products with its terms are left out.
 *
 * With G the gradient of the state after a row, u = v - S^T k of the decayed state, d = rate u, and D the decayed state:
 *   G += q grad^T    of_d = G^T k    dv = rate of_d    drate = of_d u    of_seen = -rate of_d
 *   dq = (D + k d^T) grad    dk = G d + D of_seen    of_D = G + k of_seen^T    ddecay = of_D S    G = decay of_D */
#include "cpu/call.h"
#include "cpu/scratch_layout.h"
#include "cpu/state_scan.h"
#include "cpu/strided_iterator.h"
#include "cpu/vector/lanes.h"
#include "cpu/vector/vector.h"

enum { COLUMNS = 32, VECTORS = COLUMNS / 16, SEGMENT = 64 };

/* Scratch memory of one thread. n: key_dim, rounded up to vectors. */
typedef struct thread_rows {
    float *states;        /* [SEGMENT + 1][n][COLUMNS] before each row of a segment */
    float *u, *d;         /* [SEGMENT][COLUMNS] */
    float *q, *k, *decay; /* [n] of a row, zeros at the end */
    float *quads; /* [3][n / 4][16] sums over a quarter of the columns: lane 4 g + j is of key dimension 4 i + j */
} thread_rows;

typedef struct gradient_job {
    ht_state_scan s;
    const ht_view *grad;
    int64_t blocks, items, n; /* of a head; heads * blocks */
    int64_t segment;          /* the current one */
    int64_t decays, partial;  /* floats of the decay's part, and of all parts */
    float *kept;              /* [segments][items][n][COLUMNS] states before each segment */
    float *later;             /* [items][n][COLUMNS] G */
    float *sums;              /* [items][SEGMENT][partial]: of q [n], k [n], the decay [decays] and the rate */
    char *threads;
    size_t thread_bytes;
    float *dq, *dk, *dv, *ddecay, *drate; /* parts of the result */
} gradient_job;

static size_t layout_thread(const gradient_job *j, char *at, thread_rows *r) {
    ht_scratch_layout l = {.at = at};
    r->states = ht_scratch_take(&l, (SEGMENT + 1) * j->n * COLUMNS, sizeof(float));
    r->u = ht_scratch_take(&l, SEGMENT * COLUMNS, sizeof(float));
    r->d = ht_scratch_take(&l, SEGMENT * COLUMNS, sizeof(float));
    r->q = ht_scratch_take(&l, j->n, sizeof(float));
    r->k = ht_scratch_take(&l, j->n, sizeof(float));
    r->decay = ht_scratch_take(&l, j->n, sizeof(float));
    r->quads = ht_scratch_take(&l, 3 * j->n * 4, sizeof(float));
    return l.used;
}

/* Sizes and parts of scratch memory; returns its bytes. */
static size_t layout_job(const ht_call *call, gradient_job *j) {
    const ht_state_scan s = j->s;
    thread_rows r;
    j->grad = &call->in[6];
    j->blocks = (s.value_dim + COLUMNS - 1) / COLUMNS;
    j->items = s.heads * j->blocks;
    j->n = (s.key_dim + 15) / 16 * 16;
    j->decays = s.decay->n_dims == 3 ? j->n : 16;
    j->partial = 2 * j->n + j->decays + 16;
    ht_scratch_layout l = {.at = call->scratch, .used = ht_state_scan_bytes(call)};
    const int64_t segments = (s.q->shape[0] + SEGMENT - 1) / SEGMENT;
    j->kept = ht_scratch_take(&l, segments * j->items * j->n * COLUMNS, sizeof(float));
    j->later = ht_scratch_take(&l, j->items * j->n * COLUMNS, sizeof(float));
    j->sums = ht_scratch_take(&l, j->items * SEGMENT * j->partial, sizeof(float));
    j->thread_bytes = layout_thread(j, NULL, &r);
    j->threads = ht_scratch_take(&l, ht_pool_threads(ht_call_pool(call)), j->thread_bytes);
    return l.used;
}

static bool begins(const ht_state_scan *s, int64_t t) {
    const ht_view *first = &s->call->in[5];
    return t == s->q->shape[0] || ((const int32_t *)first->data)[t * first->stride[0]] == t;
}

/* The columns of an item. */
typedef struct item_columns {
    int64_t head, key_head, column;
    int n[VECTORS];
} item_columns;

static item_columns columns_of(const gradient_job *j, int64_t item) {
    item_columns c = {.head = item / j->blocks, .column = item % j->blocks * COLUMNS};
    c.key_head = ht_state_scan_key_head(&j->s, c.head);
    for (int w = 0; w < VECTORS; w++) {
        const int64_t left = j->s.value_dim - c.column - 16 * w;
        c.n[w] = left > 0 ? lanes_count(left) : 0;
    }
    return c;
}

HT_INLINE v16f load_columns(const ht_view *x, int64_t t, const item_columns *c, int w) {
    const int64_t step = x->stride[2];
    if (c->n[w] == 0) return v16f_zero();
    return lanes_load(HT_F32, ht_state_scan_at(x, t, c->head), (c->column + 16 * w) * step, step, c->n[w]);
}

/* Copies a row of key dimensions, with zeros up to n; step 0: the same number for each. */
static void stage(const float *x, int64_t step, int64_t key_dim, float *to) {
    for (int64_t i = 0; i < key_dim; i += 16)
        v16f_store(to + i, lanes_load(HT_F32, x, i * step, step, lanes_count(key_dim - i)));
}

static void stage_row(const ht_state_scan *s, int64_t t, const item_columns *c, const thread_rows *r) {
    stage(ht_state_scan_at(s->q, t, c->key_head), s->q->stride[2], s->key_dim, r->q);
    stage(ht_state_scan_at(s->k, t, c->key_head), s->k->stride[2], s->key_dim, r->k);
    stage(ht_state_scan_at(s->decay, t, c->head), s->key_step, s->key_dim, r->decay);
}

/* The state after row t; `from` and `to` may be the same. */
static void next_state(const gradient_job *j, int64_t t, const item_columns *c, const thread_rows *r, const float *from,
                       float *to, float *u_row, float *d_row) {
    const ht_state_scan *s = &j->s;
    v16f seen[VECTORS], d[VECTORS];
    for (int w = 0; w < VECTORS; w++) seen[w] = v16f_zero();
    for (int64_t i = 0; i < j->n && s->rate; i++) {
        const v16f decay = v16f_set1(r->decay[i]), k = v16f_set1(r->k[i]);
        HT_UNROLL
        for (int w = 0; w < VECTORS; w++)
            seen[w] = v16f_fma(v16f_mul(v16f_load(from + i * COLUMNS + 16 * w), decay), k, seen[w]);
    }
    for (int w = 0; w < VECTORS; w++) {
        const v16f u = v16f_sub(load_columns(s->v, t, c, w), seen[w]);
        d[w] = s->rate ? v16f_mul(v16f_set1(*ht_state_scan_at(s->rate, t, c->head)), u) : u;
        v16f_store(u_row + 16 * w, u);
        v16f_store(d_row + 16 * w, d[w]);
    }
    for (int64_t i = 0; i < j->n; i++) {
        const v16f decay = v16f_set1(r->decay[i]), k = v16f_set1(r->k[i]);
        HT_UNROLL
        for (int w = 0; w < VECTORS; w++) {
            const v16f x = v16f_mul(v16f_load(from + i * COLUMNS + 16 * w), decay);
            v16f_store(to + i * COLUMNS + 16 * w, v16f_fma(k, d[w], x));
        }
    }
}

static void keep_states(void *arg, int64_t begin, int64_t end, int worker) {
    const gradient_job *j = arg;
    const size_t bytes = (size_t)(j->n * COLUMNS) * sizeof(float);
    thread_rows r;
    layout_thread(j, j->threads + (size_t)worker * j->thread_bytes, &r);
    for (int64_t item = begin; item < end; item++) {
        const item_columns c = columns_of(j, item);
        for (int64_t t = 0; t < j->s.q->shape[0]; t++) {
            if (begins(&j->s, t)) memset(r.states, 0, bytes);
            if (t % SEGMENT == 0) memcpy(j->kept + (t / SEGMENT * j->items + item) * j->n * COLUMNS, r.states, bytes);
            stage_row(&j->s, t, &c, &r);
            next_state(j, t, &c, &r, r.states, r.states, r.u, r.d);
        }
    }
}

/* Sums of the lanes of four vectors, over each four lanes. */
HT_INLINE v16f sum_quads(v16f v[4]) {
    v16f_transpose_quads(v);
    return v16f_add(v16f_add(v[0], v[1]), v16f_add(v[2], v[3]));
}

/* Sums over all columns from those over each four: to[i] of key dimension i. */
static void add_quads(const float *quads, int64_t n, float *to) {
    for (int64_t i = 0; i < n; i += 16, quads += 64) {
        v16f sum = v16f_load_quads(quads, quads + 16, quads + 32, quads + 48);
        for (int g = 4; g < 16; g += 4)
            sum = v16f_add(sum, v16f_load_quads(quads + g, quads + 16 + g, quads + 32 + g, quads + 48 + g));
        v16f_store(to + i, sum);
    }
}

/* Row t of a segment: from G of the state after it to that of the state before it. */
HT_INLINE void back_row(const gradient_job *j, int64_t t, const item_columns *c, const thread_rows *r, float *later,
                        bool delta, float *sums) {
    const ht_state_scan *s = &j->s;
    const bool per_channel = s->decay->n_dims == 3;
    const int64_t n = j->n, row = t % SEGMENT;
    const float *before = r->states + row * n * COLUMNS;
    float *quads_q = r->quads, *quads_k = quads_q + 4 * n, *quads_decay = quads_k + 4 * n;
    v16f grad[VECTORS], d[VECTORS], of_d[VECTORS], of_seen[VECTORS], of_decay = v16f_zero(), of_rate = v16f_zero();
    const v16f rate = v16f_set1(delta ? *ht_state_scan_at(s->rate, t, c->head) : 1);
    for (int w = 0; w < VECTORS; w++) {
        grad[w] = load_columns(j->grad, t, c, w);
        d[w] = v16f_load(r->d + row * COLUMNS + 16 * w);
        of_d[w] = v16f_zero();
    }
    for (int64_t i = 0; i < n; i++) {
        const v16f q = v16f_set1(r->q[i]), k = v16f_set1(r->k[i]);
        HT_UNROLL
        for (int w = 0; w < VECTORS; w++) {
            const v16f g = v16f_fma(q, grad[w], v16f_load(later + i * COLUMNS + 16 * w));
            v16f_store(later + i * COLUMNS + 16 * w, g);
            of_d[w] = v16f_fma(g, k, of_d[w]);
        }
    }
    for (int w = 0; w < VECTORS; w++) {
        const v16f of_v = v16f_mul(rate, of_d[w]);
        if (c->n[w]) v16f_store_n(j->dv + (t * s->heads + c->head) * s->value_dim + c->column + 16 * w, of_v, c->n[w]);
        of_rate = v16f_fma(of_d[w], v16f_load(r->u + row * COLUMNS + 16 * w), of_rate);
        of_seen[w] = v16f_neg(of_v);
    }
    for (int64_t i = 0; i < n; i += 4) {
        v16f of_q[4], of_k[4], of_decays[4];
        HT_UNROLL
        for (int a = 0; a < 4; a++) {
            const v16f decay = v16f_set1(r->decay[i + a]), k = v16f_set1(r->k[i + a]);
            of_q[a] = of_k[a] = of_decays[a] = v16f_zero();
            HT_UNROLL
            for (int w = 0; w < VECTORS; w++) {
                const int64_t at = (i + a) * COLUMNS + 16 * w;
                const v16f x = v16f_load(before + at), decayed = v16f_mul(x, decay);
                v16f g = v16f_load(later + at);
                of_q[a] = v16f_fma(v16f_fma(k, d[w], decayed), grad[w], of_q[a]);
                of_k[a] = v16f_fma(g, d[w], of_k[a]);
                if (delta) of_k[a] = v16f_fma(decayed, of_seen[w], of_k[a]);
                if (delta) g = v16f_fma(k, of_seen[w], g);
                of_decays[a] = v16f_fma(g, x, of_decays[a]);
                v16f_store(later + at, v16f_mul(g, decay));
            }
            if (!per_channel) of_decay = v16f_add(of_decay, of_decays[a]);
        }
        v16f_store(quads_q + 4 * i, sum_quads(of_q));
        v16f_store(quads_k + 4 * i, sum_quads(of_k));
        if (per_channel) v16f_store(quads_decay + 4 * i, sum_quads(of_decays));
    }
    add_quads(quads_q, n, sums);
    add_quads(quads_k, n, sums + n);
    if (per_channel)
        add_quads(quads_decay, n, sums + 2 * n);
    else
        sums[2 * n] = v16f_sum(of_decay);
    sums[2 * n + j->decays] = v16f_sum(of_rate);
}

/* The current segment of some items. */
static void back_segment(void *arg, int64_t begin, int64_t end, int worker) {
    const gradient_job *j = arg;
    const int64_t n = j->n, first = j->segment * SEGMENT, left = j->s.q->shape[0] - first;
    const int64_t n_rows = left < SEGMENT ? left : SEGMENT;
    const size_t bytes = (size_t)(n * COLUMNS) * sizeof(float);
    thread_rows r;
    layout_thread(j, j->threads + (size_t)worker * j->thread_bytes, &r);
    for (int64_t item = begin; item < end; item++) {
        const item_columns c = columns_of(j, item);
        float *later = j->later + item * n * COLUMNS, *sums = j->sums + item * SEGMENT * j->partial;
        memcpy(r.states, j->kept + (j->segment * j->items + item) * n * COLUMNS, bytes);
        for (int64_t row = 0; row < n_rows; row++) {
            float *state = r.states + row * n * COLUMNS;
            if (begins(&j->s, first + row)) memset(state, 0, bytes);
            stage_row(&j->s, first + row, &c, &r);
            next_state(j, first + row, &c, &r, state, state + n * COLUMNS, r.u + row * COLUMNS, r.d + row * COLUMNS);
        }
        for (int64_t row = n_rows; row-- > 0;) {
            if (begins(&j->s, first + row + 1)) memset(later, 0, bytes);
            stage_row(&j->s, first + row, &c, &r);
            if (j->s.rate)
                back_row(j, first + row, &c, &r, later, true, sums + row * j->partial);
            else
                back_row(j, first + row, &c, &r, later, false, sums + row * j->partial);
        }
    }
}

/* Adds n sums from `at` on of row `row` of all blocks of a head. */
static void add_blocks(const gradient_job *j, int64_t head, int64_t row, int64_t at, int64_t n, bool add, float *to) {
    for (int64_t i = 0; i < n; i += 16) {
        v16f sum = add ? v16f_load_n(to + i, lanes_count(n - i)) : v16f_zero();
        for (int64_t b = 0; b < j->blocks; b++)
            sum = v16f_add(sum, v16f_load_n(j->sums + ((head * j->blocks + b) * SEGMENT + row) * j->partial + at + i,
                                            lanes_count(n - i)));
        v16f_store_n(to + i, sum, lanes_count(n - i));
    }
}

/* Sums of a segment's rows over columns and, of q and k, over heads. */
static void add_rows(void *arg, int64_t begin, int64_t end, int worker) {
    (void)worker;
    const gradient_job *j = arg;
    const ht_state_scan *s = &j->s;
    const int64_t decays = s->decay->n_dims == 3 ? s->key_dim : 1;
    for (int64_t row = begin; row < end; row++) {
        const int64_t t = j->segment * SEGMENT + row;
        for (int64_t head = 0; head < s->heads; head++) {
            const int64_t key_head = ht_state_scan_key_head(s, head), to = (t * s->key_heads + key_head) * s->key_dim;
            const bool add = head % (s->heads / s->key_heads) > 0;
            add_blocks(j, head, row, 0, s->key_dim, add, j->dq + to);
            add_blocks(j, head, row, j->n, s->key_dim, add, j->dk + to);
            add_blocks(j, head, row, 2 * j->n, decays, false, j->ddecay + (t * s->heads + head) * decays);
            if (s->rate) add_blocks(j, head, row, 2 * j->n + j->decays, 1, false, j->drate + t * s->heads + head);
        }
    }
}

static size_t rows_gradient_scratch(const ht_call *call) {
    gradient_job j = {.s = ht_state_scan_of(call)};
    return layout_job(call, &j);
}

static ht_status rows_gradient(const ht_call *call, ht_error *err) {
    gradient_job j = {0};
    const ht_status status = ht_state_scan_start(call, &j.s, err);
    if (status || ht_view_size(&call->out) == 0) return status;
    (void)layout_job(call, &j);
    j.dq = call->out.data;
    j.dk = j.dq + ht_view_size(j.s.q);
    j.dv = j.dk + ht_view_size(j.s.k);
    j.ddecay = j.dv + ht_view_size(j.s.v);
    j.drate = j.ddecay + ht_view_size(j.s.decay);
    ht_pool *pool = ht_call_pool(call);
    const int64_t rows = j.s.q->shape[0], per_item = j.n * COLUMNS * (rows < SEGMENT ? rows : SEGMENT);
    ht_pool_run(pool, j.items, ht_row_grain(HT_GRAIN_CHEAP, j.n * COLUMNS * rows), keep_states, &j);
    for (j.segment = (rows - 1) / SEGMENT; j.segment >= 0; j.segment--) {
        const int64_t left = rows - j.segment * SEGMENT;
        ht_pool_run(pool, j.items, ht_row_grain(HT_GRAIN_MATH, per_item), back_segment, &j);
        ht_pool_run(pool, left < SEGMENT ? left : SEGMENT, ht_row_grain(HT_GRAIN_CHEAP, j.items * j.partial), add_rows,
                    &j);
    }
    return HT_OK;
}

void HT_ISA_NAME(ht_vector_state_scan_grad)(ht_kernel kernels[HT_OP_COUNT]) {
    kernels[HT_OP_STATE_SCAN_ROWS_GRAD] = (ht_kernel){.run = rows_gradient, .scratch = rows_gradient_scratch};
}
