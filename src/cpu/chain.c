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
} chain_job;

_Static_assert((int)HT_CHAIN_CALLS <= (int)HT_MAX_PRODUCTS, "all products of a chain may be quantised");

static const ht_matrix *matrix_of(const ht_call *call) { return ((const ht_linear_params *)call->params)->matrix; }

static bool is_shared(const chain_job *job, const ht_matrix *m) {
    return ht_is_quantised(m) && (job->n_quantised == 0 || ht_kernels_of(job->product[0].m) == ht_kernels_of(m));
}

static void collect(chain_job *job, bool quantised) {
    const ht_chain *c = job->chain;
    for (int i = 0, n = job->n_quantised; i < c->n_products; i++) {
        const ht_call *call = &c->call[c->n_rowwise + i];
        const ht_matrix *m = matrix_of(call);
        if (is_shared(job, m) != quantised) continue;
        const ht_view *bias = &call->in[1];
        job->product[n++] =
            (ht_product){m, ht_view_absent(bias) ? NULL : (const float *)bias->data, call->out.data, m->n_rows};
        if (quantised) job->n_quantised = n;
    }
}

static chain_job job_of(const ht_chain *c) {
    const ht_view *x = &c->call[c->n_rowwise].in[0];
    chain_job job = {.chain = c, .x = x->data, .ldx = x->stride[0], .n_x = x->shape[0]};
    collect(&job, true);
    collect(&job, false);
    return job;
}

size_t ht_cpu_chain_scratch(const ht_chain *c) {
    chain_job job = job_of(c);
    int n_threads = ht_pool_threads(c->call->pool);
    size_t bytes = job.n_quantised ? ht_quantised_scratch(job.product, job.n_quantised, job.n_x, n_threads) : 0;
    for (int i = job.n_quantised; i < c->n_products; i++) {
        const ht_matrix *m = job.product[i].m;
        bytes = ht_max_size(bytes, m->ops->mul_scratch(m, job.n_x, n_threads));
    }
    return bytes;
}

static void run_rows(const ht_chain *c, int64_t begin, int64_t end) {
    for (int i = 0; i < c->n_rowwise; i++) c->rows[i](&c->call[i], begin, end);
}

static void run_plain(void *arg, int64_t begin, int64_t end, int worker) {
    (void)worker;
    run_rows(((const chain_job *)arg)->chain, begin, end);
}

static void run_tiles(void *arg, int64_t begin, int64_t end, int worker) {
    (void)worker;
    const chain_job *job = arg;
    const ht_qrows *rows = &job->quantised.x;
    for (int64_t t = begin; t < end; t++) {
        int64_t first = ht_qtile_first(rows, t);
        run_rows(job->chain, first, first + ht_qtile_rows(rows, t));
        ht_quantised_take(&job->quantised, t, job->x, job->ldx);
    }
}

void ht_cpu_run_chain(const ht_chain *c) {
    chain_job job = job_of(c);
    ht_pool *pool = c->call->pool;
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
