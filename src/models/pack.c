#include "models/pack.h"

#include "array/memory.h"
#include "base/checked.h"
#include "base/error.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

enum { READ_BYTES = 1 << 20 }; /* about what one thread reads at a time */

size_t ht_matrix_bytes(const ht_device *d, ht_precision precision, ht_weight_type type, int64_t n_rows, int64_t k) {
    const ht_matrix_ops *ops = d->matrix_ops(d, type, precision);
    return ops ? ops->packed_bytes(type, n_rows, k) : 0;
}

ht_status ht_matrix_new(const ht_device *d, ht_precision precision, ht_weight_type type, int64_t n_rows, int64_t k,
                        const char *name, ht_matrix **out, ht_error *err) {
    *out = NULL;
    const ht_matrix_ops *ops = d->matrix_ops(d, type, precision);
    if (!ops)
        return ht_fail(err, HT_ERR_UNSUPPORTED, "`%s` is stored as %s, which the device %s (%s) cannot multiply by",
                       name, ht_weight_type_info_of(type)->name, d->name, d->instruction_set);
    ht_matrix *m = calloc(1, sizeof *m);
    if (!m) return ht_fail_memory(err, sizeof *m, name);
    *m = (ht_matrix){.ops = ops, .type = type, .n_rows = n_rows, .k = k};
    m->packed_bytes = ops->packed_bytes(type, n_rows, k);
    ht_status status = ht_memory_alloc(m->packed_bytes, name, &m->packed, err);
    if (status)
        free(m);
    else
        *out = m;
    return status;
}

void ht_matrix_free(ht_matrix *m) {
    if (!m) return;
    ht_memory_free(m->packed, m->packed_bytes);
    free(m);
}

typedef struct pack_job {
    ht_matrix *m;
    const ht_stored *t;
    int64_t head_rows; /* 0: rows are in order */
    size_t row_bytes;
    int64_t rows_per_block; /* a multiple of HT_MATRIX_SLAB */
    size_t staging_bytes;   /* per worker: rows as read, and behind them rows put in order */
    size_t ordered_offset;
    unsigned char *staging; /* [n_threads][staging_bytes] */
    pthread_mutex_t lock;   /* of the error */
    _Atomic int status;
    ht_error *err;
} pack_job;

/* Rows [row, row + n) in canonical order. NULL when the file could not be read. */
static const unsigned char *stage_rows(pack_job *job, int64_t row, int64_t n, unsigned char *staging) {
    /* Interleaved rows change places within a head: whole heads are read. */
    int64_t head = job->head_rows ? job->head_rows : 1;
    int64_t first = row / head * head, last = ht_min_i64(ht_ceil_div_i64(row + n, head) * head, job->m->n_rows);
    ht_error local = {0};
    ht_status status = ht_file_read_at(job->t->file, job->t->offset + (size_t)first * job->row_bytes, staging,
                                       (size_t)(last - first) * job->row_bytes, &local);
    if (status) {
        pthread_mutex_lock(&job->lock);
        if (!atomic_load(&job->status)) {
            if (job->err) *job->err = local;
            atomic_store(&job->status, (int)status);
        }
        pthread_mutex_unlock(&job->lock);
        return NULL;
    }
    if (!job->head_rows) return staging;
    unsigned char *ordered = staging + job->ordered_offset;
    for (int64_t i = 0; i < n; i++)
        memcpy(ordered + (size_t)i * job->row_bytes,
               staging + (size_t)(ht_interleaved_row(row + i, head) - first) * job->row_bytes, job->row_bytes);
    return ordered;
}

static void pack_blocks(void *arg, int64_t begin, int64_t end, int worker) {
    pack_job *job = arg;
    unsigned char *staging = job->staging + (size_t)worker * job->staging_bytes;
    for (int64_t block = begin; block < end && !atomic_load(&job->status); block++) {
        int64_t row = block * job->rows_per_block, n = ht_min_i64(job->rows_per_block, job->m->n_rows - row);
        const unsigned char *rows = stage_rows(job, row, n, staging);
        if (rows) job->m->ops->pack(job->m, row, n, rows);
    }
}

ht_status ht_matrix_pack(ht_matrix *m, const ht_stored *t, int64_t head_rows, ht_pool *pool, ht_error *err) {
    pack_job job = {.m = m, .t = t, .head_rows = head_rows, .err = err, .row_bytes = t->n_bytes / (size_t)m->n_rows};
    int64_t slab_bytes = (int64_t)job.row_bytes * HT_MATRIX_SLAB;
    job.rows_per_block = HT_MATRIX_SLAB * ht_max_i64(1, READ_BYTES / ht_max_i64(slab_bytes, 1));
    job.rows_per_block = ht_min_i64(job.rows_per_block, ht_ceil_div_i64(m->n_rows, HT_MATRIX_SLAB) * HT_MATRIX_SLAB);
    job.ordered_offset = (size_t)(job.rows_per_block + 2 * head_rows) * job.row_bytes;
    job.staging_bytes = job.ordered_offset + (head_rows ? (size_t)job.rows_per_block * job.row_bytes : 0);
    size_t staging_bytes = job.staging_bytes * (size_t)ht_pool_threads(pool);
    job.staging = malloc(staging_bytes);
    if (!job.staging) return ht_fail_memory(err, staging_bytes, "reading weights");
    pthread_mutex_init(&job.lock, NULL);
    ht_pool_run(pool, ht_ceil_div_i64(m->n_rows, job.rows_per_block), 1, pack_blocks, &job);
    pthread_mutex_destroy(&job.lock);
    free(job.staging);
    return (ht_status)atomic_load(&job.status);
}

ht_status ht_stored_read_f32(const ht_stored *t, int64_t n, float *out, ht_error *err) {
    unsigned char *bytes = malloc(t->n_bytes ? t->n_bytes : 1);
    if (!bytes) return ht_fail_memory(err, t->n_bytes, "reading weights");
    ht_status status = ht_file_read_at(t->file, t->offset, bytes, t->n_bytes, err);
    if (!status) ht_dequantize((ht_weight_type)t->type, bytes, n, out);
    free(bytes);
    return status;
}
