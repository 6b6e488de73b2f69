/* Runs chains: the row-wise kernels and the quantisation of what they made, a tile of rows at a time on each thread; then
 * all products with quantised weights as one list of work, and the others one after another. */
#include "cpu/chain.h"

#include "base/checked.h"
#include "cpu/matrix_ops.h"
#include "device/params.h"

enum { PLAIN_ROWS = 8 }; /* rows at a time when nothing is quantised */

typedef struct chain_job {
    const ht_chain *chain;
    ht_quantised quantised; /* n == 0: none of the products is */
    const float *x;         /* what the products read */
    int64_t ldx, n_x;
    ht_product product[HT_CHAIN_CALLS]; /* the quantised ones first */
    int n_quantised;
    int64_t most_rows;  /* of a tile */
    size_t local_bytes; /* of local rows, per thread */
    char *local;
} chain_job;

_Static_assert((int)HT_CHAIN_CALLS <= (int)HT_MAX_PRODUCTS, "all products of a chain may be quantised");

static const ht_matrix *matrix_of(const ht_call *call) { return ((const ht_linear_params *)call->params)->matrix; }

static bool is_shared(const chain_job *job, const ht_matrix *m) {
    return m->ops->takes_rows_once && (job->n_quantised == 0 || ht_kernels_of(job->product[0].m) == ht_kernels_of(m));
}

static void collect(chain_job *job, bool quantised) {
    const ht_chain *c = job->chain;
    for (int i = 0, n = job->n_quantised; i < c->n_products; i++) {
        const ht_call *call = &c->call[c->n_rowwise + i];
        const ht_matrix *m = matrix_of(call);
        if (is_shared(job, m) != quantised) continue;
        const ht_view *bias = &call->in[1];
        job->product[n++] = (ht_product){m, ht_view_absent(bias) ? NULL : (const float *)bias->data, call->out.data,
                                         m->n_rows, call->top_k};
        if (quantised) job->n_quantised = n;
    }
}

/* ---- rows of local values ---- */

/* Floats of a row of call i's output. */
static int64_t row_floats(const ht_call *call) {
    int64_t n = 1;
    for (int d = 1; d < call->out.n_dims; d++) n *= call->out.shape[d];
    return n;
}

static size_t local_bytes(const ht_chain *c, int64_t most_rows) {
    int64_t floats = 0;
    for (int i = 0; i < c->n_rowwise; i++)
        if (c->is_local[i]) floats += (most_rows * row_floats(&c->call[i]) + 15) / 16 * 16;
    return (size_t)floats * sizeof(float);
}

/* The calls as one thread makes them: its own rows in the place of local values. */
typedef struct thread_calls {
    ht_call call[HT_CHAIN_CALLS];
    ht_view in[HT_CHAIN_CALLS][HT_CHAIN_INPUTS];
    float *local[HT_CHAIN_CALLS]; /* NULL: not local */
    int64_t width[HT_CHAIN_CALLS];
} thread_calls;

static void copy_calls(const ht_chain *c, int64_t most_rows, float *room, thread_calls *t) {
    for (int i = 0; i < c->n_rowwise; i++) {
        t->call[i] = c->call[i];
        t->call[i].in = t->in[i];
        for (int k = 0; k < c->call[i].n_in; k++) t->in[i][k] = c->call[i].in[k];
        t->width[i] = row_floats(&c->call[i]);
        t->local[i] = c->is_local[i] ? room : NULL;
        if (c->is_local[i]) room += (most_rows * t->width[i] + 15) / 16 * 16;
    }
}

/* Where row 0 would be if row `begin` is at the start of the local rows: kernels count from row 0. */
static float *from_row(const thread_calls *t, int i, int64_t begin) {
    return (float *)((uintptr_t)t->local[i] - (uintptr_t)(begin * t->width[i]) * sizeof(float));
}

static void run_rows(const ht_chain *c, thread_calls *t, int64_t begin, int64_t end) {
    for (int i = 0; i < c->n_rowwise; i++) {
        if (t->local[i]) t->call[i].out.data = from_row(t, i, begin);
        for (int k = 0; k < t->call[i].n_in; k++)
            if (c->local_in[i][k] >= 0) t->in[i][k].data = from_row(t, c->local_in[i][k], begin);
        c->rows[i](&t->call[i], begin, end);
    }
}

/* ---- what there is to do ---- */

static chain_job job_of(const ht_chain *c) {
    const ht_view *x = &c->call[c->n_rowwise].in[0];
    chain_job job = {.chain = c, .x = x->data, .ldx = x->stride[0], .n_x = x->shape[0]};
    collect(&job, true);
    collect(&job, false);
    job.most_rows = job.n_quantised ? ht_kernels_of(job.product[0].m)->direct_rows : PLAIN_ROWS;
    job.local_bytes = (local_bytes(c, job.most_rows) + 63) & ~(size_t)63;
    return job;
}

/* Of the quantised products, before the local rows in the scratch memory. */
static size_t quantised_bytes(const chain_job *job) {
    if (!job->n_quantised) return 0;
    return ht_quantised_scratch(job->product, job->n_quantised, job->n_x, ht_pool_threads(job->chain->call->pool));
}

size_t ht_cpu_chain_scratch(const ht_chain *c) {
    chain_job job = job_of(c);
    int n_threads = ht_pool_threads(c->call->pool);
    size_t bytes = quantised_bytes(&job) + (size_t)n_threads * job.local_bytes;
    for (int i = job.n_quantised; i < c->n_products; i++) {
        const ht_matrix *m = job.product[i].m;
        bytes = ht_max_size(bytes, m->ops->mul_scratch(m, job.n_x, n_threads));
    }
    return bytes;
}

/* ---- the chain ---- */

static float *local_of(const chain_job *job, int worker) {
    return (float *)(void *)(job->local + (size_t)worker * job->local_bytes);
}

static void run_plain(void *arg, int64_t begin, int64_t end, int worker) {
    const chain_job *job = arg;
    thread_calls calls;
    copy_calls(job->chain, job->most_rows, local_of(job, worker), &calls);
    for (int64_t i = begin; i < end; i += job->most_rows)
        run_rows(job->chain, &calls, i, ht_min_i64(end, i + job->most_rows));
}

static void run_tiles(void *arg, int64_t begin, int64_t end, int worker) {
    const chain_job *job = arg;
    const ht_chain *c = job->chain;
    const ht_qrows *rows = &job->quantised.x;
    int last = c->n_rowwise - 1;
    thread_calls calls;
    copy_calls(c, job->most_rows, local_of(job, worker), &calls);
    for (int64_t t = begin; t < end; t++) {
        int64_t first = ht_qtile_first(rows, t);
        run_rows(c, &calls, first, first + ht_qtile_rows(rows, t));
        const float *x = last >= 0 && calls.local[last] ? from_row(&calls, last, first) : job->x;
        ht_quantised_take(&job->quantised, t, x, job->ldx);
    }
}

void ht_cpu_run_chain(const ht_chain *c) {
    chain_job job = job_of(c);
    ht_pool *pool = c->call->pool;
    job.local = (char *)c->call->scratch + quantised_bytes(&job);
    if (job.n_quantised) {
        ht_quantised_begin(&job.quantised, job.product, job.n_quantised, job.n_x, c->call->scratch);
        ht_pool_run(pool, job.quantised.x.n_tiles, 1, run_tiles, &job);
        ht_quantised_multiply(&job.quantised, pool);
    } else
        ht_pool_run(pool, job.n_x, PLAIN_ROWS, run_plain, &job);
    for (int i = job.n_quantised; i < c->n_products; i++) {
        const ht_product *p = &job.product[i];
        p->m->ops->mul(p->m, job.x, job.ldx, job.n_x, p->bias, p->y, p->ldy, c->call->scratch, pool);
    }
}
