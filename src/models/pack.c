#include "models/pack.h"

#include "array/memory.h"
#include "base/checked.h"
#include "base/error.h"
#include "models/tensor_read.h"

#include <fenv.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

enum { READ_BYTES = 1 << 20 }; /* about what one thread reads at a time */

static const ht_matrix_ops *ops_of(const ht_device *d, const ht_matrix_kind *kind) {
    if (kind->is_head) return d->head_ops(d, kind->type, kind->precision, kind->n_rows, kind->k);
    return d->matrix_ops(d, kind->type, kind->precision);
}

size_t ht_matrix_bytes(const ht_device *d, const ht_matrix_kind *kind) {
    const ht_matrix_ops *ops = ops_of(d, kind);
    return ops ? ops->packed_bytes(kind->type, kind->n_rows, kind->k) : 0;
}

ht_status ht_matrix_new(const ht_device *d, const ht_matrix_kind *kind, const char *name, void *memory, ht_matrix **out,
                        ht_error *err) {
    *out = NULL;
    const ht_matrix_ops *ops = ops_of(d, kind);
    if (!ops)
        return ht_fail(err, HT_ERR_UNSUPPORTED, "`%s` is stored as %s, which the device %s (%s) cannot multiply by",
                       name, ht_weight_type_info_of(kind->type)->name, d->name, d->instruction_set);
    ht_matrix *m = calloc(1, sizeof *m);
    if (!m) return ht_fail_memory(err, sizeof *m, name);
    *m = (ht_matrix){.ops = ops, .type = kind->type, .n_rows = kind->n_rows, .k = kind->k, .packed = memory};
    m->lent = memory != NULL;
    m->packed_bytes = ops->packed_bytes(m->type, m->n_rows, m->k);
    ht_status status = memory ? HT_OK : ht_memory_alloc(m->packed_bytes, name, &m->packed, err);
    if (status)
        free(m);
    else
        *out = m;
    return status;
}

void ht_matrix_free(ht_matrix *m) {
    if (!m) return;
    if (!m->lent) ht_memory_free(m->packed, m->packed_bytes);
    free(m->scales);
    free(m);
}

/* A task cut into blocks of rows. */
typedef struct part {
    const ht_pack_task *task;
    size_t row_bytes;
    int64_t rows_per_block; /* a multiple of HT_MATRIX_SLAB */
    int64_t first_block;    /* in the numbering of all blocks */
    size_t ordered_offset;  /* in staging: behind the rows as read, the rows in order */
    size_t room_offset;     /* and what joining them needs */
} part;

typedef struct pack_job {
    part *parts;
    int64_t n_parts, n_blocks;
    size_t staging_bytes;   /* per worker */
    unsigned char *staging; /* [n_threads][staging_bytes] */
    const ht_pack_company *company;
    size_t total_bytes;
    _Atomic size_t done_bytes;
    pthread_mutex_t lock; /* of the error */
    _Atomic int status;
    ht_error *err;
} pack_job;

/* The first failure is the one that counts. */
static void fail_job(pack_job *job, ht_status status, const ht_error *why) {
    pthread_mutex_lock(&job->lock);
    if (!atomic_load(&job->status)) {
        if (job->err) *job->err = *why;
        atomic_store(&job->status, (int)status);
    }
    pthread_mutex_unlock(&job->lock);
}

/* Rows [row, row + n) in canonical order. NULL when the file could not be read. */
static const unsigned char *stage_rows(pack_job *job, const part *p, int64_t row, int64_t n, unsigned char *staging) {
    /* Interleaved rows change places within a head: whole heads are read. */
    const ht_stored_tensor *t = &p->task->stored;
    int64_t head = p->task->head_rows ? p->task->head_rows : 1;
    int64_t first = row / head * head, last = ht_min_i64(ht_ceil_div_i64(row + n, head) * head, p->task->m->n_rows);
    ht_error local = {0};
    int64_t k = p->task->m->k;
    ht_status status = ht_tensor_read(t, first * k, (last - first) * k, staging, staging + p->room_offset, &local);
    if (status) {
        fail_job(job, status, &local);
        return NULL;
    }
    if (!p->task->head_rows) return staging;
    unsigned char *ordered = staging + p->ordered_offset;
    for (int64_t i = 0; i < n; i++)
        memcpy(ordered + (size_t)i * p->row_bytes,
               staging + (size_t)(ht_interleaved_row(row + i, head) - first) * p->row_bytes, p->row_bytes);
    return ordered;
}

static const part *part_of_block(const pack_job *job, int64_t block) {
    int64_t low = 0, high = job->n_parts - 1;
    while (low < high) {
        int64_t middle = (low + high + 1) / 2;
        if (job->parts[middle].first_block <= block)
            low = middle;
        else
            high = middle - 1;
    }
    return &job->parts[low];
}

static void pack_block(pack_job *job, int64_t block, int worker) {
    const part *p = part_of_block(job, block);
    ht_matrix *m = p->task->m;
    int64_t row = (block - p->first_block) * p->rows_per_block, n = ht_min_i64(p->rows_per_block, m->n_rows - row);
    const unsigned char *rows = stage_rows(job, p, row, n, job->staging + (size_t)worker * job->staging_bytes);
    if (!rows) return;
    m->ops->pack(m, row, n, rows);
    atomic_fetch_add(&job->done_bytes, (size_t)n * p->row_bytes);
}

static void report(pack_job *job) {
    const ht_pack_company *c = job->company;
    double done = job->total_bytes ? (double)atomic_load(&job->done_bytes) / (double)job->total_bytes : 1;
    if (!c || !c->progress || c->progress(done, c->progress_user)) return;
    ht_error local = {0};
    fail_job(job, ht_fail(&local, HT_ERR_CANCELLED, "loading was cancelled"), &local);
}

static void run_meanwhile(pack_job *job) {
    const ht_pack_company *c = job->company;
    if (!c || !c->meanwhile) return;
    fenv_t flushing; /* threads of a pool read tiny numbers as 0; this work reads a file, on whichever thread it is */
    fegetenv(&flushing);
    fesetenv(FE_DFL_ENV);
    ht_error local = {0};
    ht_status status = c->meanwhile(c->meanwhile_user, &local);
    fesetenv(&flushing);
    if (status) fail_job(job, status, &local);
}

/* Item 0 is what is done meanwhile: first, as it cannot be divided. The others are in the order of memory, as threads take
 * runs of items: two that touch one large page for the first time would both clear it. */
static void pack_items(void *arg, int64_t begin, int64_t end, int worker) {
    pack_job *job = arg;
    for (int64_t item = begin; item < end && !atomic_load(&job->status); item++) {
        if (item == 0) {
            run_meanwhile(job);
            continue;
        }
        pack_block(job, item - 1, worker);
        if (worker == 0) report(job);
    }
}

static void plan_part(pack_job *job, const ht_pack_task *task) {
    part *p = &job->parts[job->n_parts++];
    int64_t n_rows = task->m->n_rows;
    *p = (part){.task = task, .row_bytes = task->stored.n_bytes / (size_t)n_rows, .first_block = job->n_blocks};
    int64_t slab_bytes = (int64_t)p->row_bytes * HT_MATRIX_SLAB;
    p->rows_per_block = HT_MATRIX_SLAB * ht_max_i64(1, READ_BYTES / ht_max_i64(slab_bytes, 1));
    p->rows_per_block = ht_min_i64(p->rows_per_block, ht_ceil_div_i64(n_rows, HT_MATRIX_SLAB) * HT_MATRIX_SLAB);
    p->ordered_offset = (size_t)(p->rows_per_block + 2 * task->head_rows) * p->row_bytes;
    p->room_offset = p->ordered_offset + (task->head_rows ? (size_t)p->rows_per_block * p->row_bytes : 0);
    size_t staging_bytes =
        p->room_offset + ht_tensor_read_scratch(&task->stored, (p->rows_per_block + 2 * task->head_rows) * task->m->k);
    job->staging_bytes = ht_max_size(job->staging_bytes, staging_bytes);
    job->n_blocks += ht_ceil_div_i64(n_rows, p->rows_per_block);
    job->total_bytes += (size_t)n_rows * p->row_bytes;
}

ht_status ht_matrices_pack(const ht_pack_task *tasks, int64_t n, const ht_pack_company *company, ht_pool *pool,
                           ht_error *err) {
    pack_job job = {.company = company, .err = err};
    job.parts = malloc(((size_t)n + 1) * sizeof *job.parts);
    for (int64_t i = 0; job.parts && i < n; i++) plan_part(&job, &tasks[i]);
    size_t staging_bytes = job.staging_bytes * (size_t)ht_pool_threads(pool);
    job.staging = malloc(staging_bytes + 1);
    if (!job.parts || !job.staging) {
        free(job.parts);
        free(job.staging);
        return ht_fail_memory(err, staging_bytes, "reading weights");
    }
    pthread_mutex_init(&job.lock, NULL);
    ht_pool_run(pool, 1 + job.n_blocks, 1, pack_items, &job);
    if (!atomic_load(&job.status)) report(&job);
    pthread_mutex_destroy(&job.lock);
    free(job.staging);
    free(job.parts);
    return (ht_status)atomic_load(&job.status);
}

ht_status ht_tensor_read_f32(const ht_stored_tensor *t, int64_t n, float *out, ht_error *err) {
    size_t n_bytes = ht_tensor_size(t, n) + ht_tensor_read_scratch(t, n);
    unsigned char *bytes = malloc(n_bytes ? n_bytes : 1);
    if (!bytes) return ht_fail_memory(err, n_bytes, "reading weights");
    ht_status status = ht_tensor_read(t, 0, n, bytes, bytes + ht_tensor_size(t, n), err);
    if (!status) ht_dequantize((ht_weight_type)t->type, bytes, n, out);
    free(bytes);
    return status;
}
