/* Adapters of a step: cuda/lora.cu. The sequences' adapters are in host memory, so every call passes a table of them:
 * with the kernels' arguments if it is small, else in device memory. */
#include "cuda/lora.h"

#include "base/checked.h"
#include "base/error.h"
#include "cuda/cuda.h"
#include "device/params.h"

#include <stdlib.h>

enum { MOST_GRID = 65535 };

typedef struct lora_job {
    const ht_call *call;
    const ht_lora_params *p;
    int64_t n_rows;
    ht_cuda_lora_arguments a;
    int64_t n_tiles, low; /* of all runs; floats of low */
    int32_t rank_blocks;  /* of the run that has most */
    void *table;          /* in host memory */
    size_t table_bytes;
} lora_job;

/* ---- tables ---- */

/* Fills the table, or counts its entries if there is none yet. */
static void fill(lora_job *job) {
    ht_cuda_lora_run *runs = job->table;
    ht_cuda_lora_use *uses = runs ? (ht_cuda_lora_use *)(void *)(runs + job->a.n_runs) : NULL;
    int32_t sequence = 0, n_runs = 0, n_uses = 0;
    int64_t low = 0, tile = 0;
    for (int64_t row = 0; row < job->n_rows;) {
        const ht_lora_run r = ht_lora_next_run(job->call->step, job->p->projection, job->n_rows, row, &sequence);
        int64_t blocks = 0;
        row += r.n;
        if (!r.use) continue;
        ht_cuda_lora_run to = {
            .item = r.first * job->a.per_row, .n = r.n * job->a.per_row, .low = low, .tile = tile, .use = n_uses};
        for (int32_t i = 0; i < r.n_uses; i++) {
            const ht_lora_pair *pair = r.use[i].pair;
            if (!pair) continue;
            const ht_lora_matrices m = ht_lora_matrices_of(pair, job->p);
            if (uses)
                uses[n_uses] = (ht_cuda_lora_use){
                    m.a, m.b, m.a_step, m.b_step, m.b_row, (int32_t)pair->rank, to.ranks, r.use[i].scale};
            n_uses++;
            to.ranks += (int32_t)pair->rank;
            to.n_uses++;
            blocks += ht_ceil_div_i64(pair->rank, HT_CUDA_LORA_RANKS);
        }
        low += to.n * to.ranks;
        tile += ht_ceil_div_i64(to.n, job->a.tile);
        if (runs) runs[n_runs] = to;
        n_runs++;
        job->rank_blocks = (int32_t)ht_max_i64(job->rank_blocks, blocks);
    }
    job->a.n_runs = n_runs;
    job->n_tiles = tile;
    job->low = low;
    job->table_bytes = (size_t)n_runs * sizeof(ht_cuda_lora_run) + (size_t)n_uses * sizeof(ht_cuda_lora_use);
}

/* ---- the call ---- */

static void describe(lora_job *job) {
    const ht_call *call = job->call;
    const ht_view *x = &call->in[1];
    const bool experts = job->p->n_experts > 0;
    job->n_rows = call->out.shape[0];
    job->a = (ht_cuda_lora_arguments){.x = ht_cuda_view_of(x),
                                      .y = call->out.data,
                                      .n_in = x->shape[x->n_dims - 1],
                                      .n_out = call->out.shape[call->out.n_dims - 1],
                                      .per_row = experts ? call->out.shape[1] : 1,
                                      .n_experts = job->p->n_experts,
                                      .tile = experts ? 1 : HT_CUDA_LORA_TILE};
    if (experts) job->a.ids = ht_cuda_view_of(&call->in[2]);
}

static ht_status multiply(lora_job *job, ht_error *err) {
    ht_cuda_device *d = ht_cuda_of(job->call->device);
    const int64_t columns = ht_ceil_div_i64(job->a.n_out, HT_CUDA_LORA_THREADS);
    const ht_cuda_shape down = {.grid = {(unsigned)job->n_tiles, (unsigned)job->rank_blocks},
                                .block = {HT_CUDA_LORA_THREADS}};
    const ht_cuda_shape up = {.grid = {(unsigned)job->n_tiles, (unsigned)ht_min_i64(columns, MOST_GRID)},
                              .block = {HT_CUDA_LORA_THREADS}};
    if (job->p->n_experts > 0) job->a.report = ht_cuda_report(d, HT_OP_LORA);
    ht_status status = ht_cuda_launch(d, HT_CUDA_ID_ht_cuda_lora_down, &down, &job->a, err);
    return status ? status : ht_cuda_launch(d, HT_CUDA_ID_ht_cuda_lora_up, &up, &job->a, err);
}

static ht_status run_with_table(lora_job *job, ht_error *err) {
    ht_memory *memory = job->call->device->memory;
    const size_t bytes = (size_t)job->low * sizeof(float);
    void *low = NULL, *table = NULL;
    ht_status status = ht_memory_alloc(memory, bytes, "adapters of a step", &low, err);
    fill(job);
    if (!status && job->table != job->a.own) {
        status = ht_memory_alloc(memory, job->table_bytes, "adapters of a step", &table, err);
        if (!status) status = ht_memory_write(memory, table, job->table, job->table_bytes, err);
    }
    job->a.low = low;
    job->a.table = table;
    if (!status) status = multiply(job, err);
    ht_memory_free(memory, table, job->table_bytes); /* safe: work of its next owner runs after these kernels */
    ht_memory_free(memory, low, bytes);
    return status;
}

static ht_status run_lora(const ht_call *call, ht_error *err) {
    if (!call->step) return ht_fail(err, HT_ERR_INTERNAL, "lora: outside a model step");
    lora_job job = {.call = call, .p = call->params};
    ht_status status = HT_OK;
    if (call->out.data != call->in[0].data)
        status = ht_cuda_strided_copy(ht_cuda_of(call->device), &call->out, &call->in[0], err);
    if (status || !call->step->lora || ht_view_size(&call->out) == 0) return status;
    describe(&job);
    fill(&job);
    if (job.a.n_runs == 0) return HT_OK;
    const bool own = job.table_bytes <= sizeof job.a.own;
    job.table = own ? job.a.own : malloc(job.table_bytes);
    if (!job.table) return ht_fail_memory(err, job.table_bytes, "adapters of a step");
    status = run_with_table(&job, err);
    if (!own) free(job.table);
    return status;
}

void ht_cuda_lora_kernels(ht_kernel *kernels) { kernels[HT_OP_LORA].run = run_lora; }
