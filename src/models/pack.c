#include "models/pack.h"

#include "base/checked.h"
#include "base/error.h"

#include <fenv.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

enum { READ_BYTES = 1 << 20 }; /* approximate bytes that a thread reads at a time */

static const ht_matrix_ops *ops_of(const ht_device *d, const ht_matrix_kind *kind) {
    if (kind->is_head) return d->head_ops(d, kind->type, kind->precision, kind->n_rows, kind->k);
    return d->matrix_ops(d, kind->type, kind->precision);
}

size_t ht_matrix_bytes(const ht_device *d, const ht_matrix_kind *kind) {
    const ht_matrix_ops *ops = ops_of(d, kind);
    return ops ? ops->packed_bytes(kind->type, kind->n_rows, kind->k) : 0;
}

ht_status ht_matrix_new(ht_device *d, const ht_matrix_kind *kind, const char *name, ht_matrix **out, ht_error *err) {
    *out = NULL;
    const ht_matrix_ops *ops = ops_of(d, kind);
    if (!ops)
        return ht_fail(err, HT_ERR_UNSUPPORTED, "`%s` is stored as %s, which the device %s (%s) cannot multiply by",
                       name, ht_weight_type_info_of(kind->type)->name, d->name, d->instruction_set);
    ht_matrix *m = calloc(1, sizeof *m);
    if (!m) return ht_fail_memory(err, sizeof *m, name);
    *m = (ht_matrix){.ops = ops, .device = d, .type = kind->type, .n_rows = kind->n_rows, .k = kind->k};
    m->packed_bytes = ops->packed_bytes(m->type, m->n_rows, m->k);
    *out = m;
    return HT_OK;
}

void ht_matrix_free(ht_matrix *m) {
    if (!m) return;
    if (m->scales) ht_memory_free(m->device->memory, m->scales, m->scale_bytes);
    free(m);
}

ht_status ht_matrix_set_scales(ht_matrix *m, const float *scales, int64_t n, int64_t rows, int64_t columns,
                               ht_error *err) {
    void *memory;
    m->scale_bytes = (size_t)n * sizeof *scales;
    m->scale_rows = rows;
    m->scale_columns = columns;
    ht_status status = ht_memory_alloc(m->device->memory, m->scale_bytes, "scales", &memory, err);
    if (status) return status;
    m->scales = memory;
    return ht_memory_write(m->device->memory, memory, scales, m->scale_bytes, err);
}

/* ---- pieces on all threads ---- */

typedef struct pieces {
    int64_t n;
    ht_pack_piece *piece;
    void *arg;
    const ht_pack_hooks *hooks;
    _Atomic int64_t done;
    pthread_mutex_t lock; /* protects the error */
    _Atomic int status;
    ht_error *err;
} pieces;

/* Keeps the first failure; later ones are often its consequences. */
static void fail_all(pieces *all, ht_status status, const ht_error *why) {
    pthread_mutex_lock(&all->lock);
    if (!atomic_load(&all->status)) {
        if (all->err) *all->err = *why;
        atomic_store(&all->status, (int)status);
    }
    pthread_mutex_unlock(&all->lock);
}

static void report(pieces *all) {
    const ht_pack_hooks *c = all->hooks;
    double done = all->n ? (double)atomic_load(&all->done) / (double)all->n : 1;
    if (!c || !c->progress || c->progress(c->begin + done * (c->end - c->begin), c->progress_user)) return;
    ht_error local = {0};
    fail_all(all, ht_fail(&local, HT_ERR_CANCELLED, "loading was cancelled"), &local);
}

static void run_meanwhile(pieces *all) {
    const ht_pack_hooks *c = all->hooks;
    if (!c || !c->meanwhile) return;
    fenv_t flushing; /* pool threads flush denormals to 0; the callback must not */
    fegetenv(&flushing);
    fesetenv(FE_DFL_ENV);
    ht_error local = {0};
    ht_status status = c->meanwhile(c->meanwhile_user, &local);
    fesetenv(&flushing);
    if (status) fail_all(all, status, &local);
}

/* Item 0 is the `meanwhile` callback, first because it cannot be divided. The others are in memory order: threads
 * take runs of items, and two threads that first touch the same large page would both clear it. */
static void run_pieces(void *arg, int64_t begin, int64_t end, int worker) {
    pieces *all = arg;
    for (int64_t item = begin; item < end && !atomic_load(&all->status); item++) {
        if (item == 0) {
            run_meanwhile(all);
            continue;
        }
        ht_error local = {0};
        ht_status status = all->piece(all->arg, item - 1, worker, &local);
        if (status) fail_all(all, status, &local);
        atomic_fetch_add(&all->done, 1);
        if (worker == 0) report(all);
    }
}

ht_status ht_pack_in_pieces(int64_t n, ht_pack_piece *piece, void *arg, const ht_pack_hooks *hooks, ht_device *d,
                            ht_error *err) {
    pieces all = {.n = n, .piece = piece, .arg = arg, .hooks = hooks, .err = err};
    pthread_mutex_init(&all.lock, NULL);
    d->run_on_host(d, 1 + n, 1, run_pieces, &all);
    if (!atomic_load(&all.status)) report(&all);
    pthread_mutex_destroy(&all.lock);
    return (ht_status)atomic_load(&all.status);
}

/* ---- packing ---- */

/* A task cut into blocks of rows. */
typedef struct part {
    const ht_pack_task *task;
    size_t row_bytes;
    int64_t rows_per_block; /* a multiple of HT_MATRIX_SLAB */
    int64_t first_block;    /* global index of the first block */
    size_t ordered_offset;  /* in staging: the rows in canonical order, after the rows as read */
    size_t room_offset;     /* in staging: scratch of ht_tensor_read */
} part;

typedef struct packing {
    part *parts;
    int64_t n_parts, n_blocks;
    size_t staging_bytes;   /* per worker */
    unsigned char *staging; /* [n_threads][staging_bytes] */
} packing;

/* Rows of a group in which single rows alternate from the first row on: such groups are small and read as a whole. 0: runs of
 * rows are read. */
static int64_t whole_group(const ht_pack_task *task) {
    return task->order.block == 1 && !task->order.first ? task->order.group : 0;
}

/* Rows [row, row + n) in canonical order. */
static ht_status stage_rows(const part *p, int64_t row, int64_t n, unsigned char *staging, const unsigned char **out,
                            ht_error *err) {
    const ht_stored_tensor *t = &p->task->stored;
    const ht_order *order = &p->task->order;
    const int64_t k = p->task->m->k, group = whole_group(p->task);
    ht_status status = HT_OK;
    *out = staging;
    for (int64_t i = 0, run; !group && !status && i < n; i += run) {
        run = ht_min_i64(n - i, ht_order_run(order, row + i));
        status = ht_tensor_read(t, ht_order_stored(order, row + i) * k, run * k, staging + (size_t)i * p->row_bytes,
                                staging + p->room_offset, err);
    }
    if (!group) return status;
    const int64_t first = row / group * group,
                  last = ht_min_i64(ht_ceil_div_i64(row + n, group) * group, p->task->m->n_rows);
    status = ht_tensor_read(t, first * k, (last - first) * k, staging, staging + p->room_offset, err);
    unsigned char *ordered = staging + p->ordered_offset;
    for (int64_t i = 0; !status && i < n; i++)
        memcpy(ordered + (size_t)i * p->row_bytes,
               staging + (size_t)(ht_order_stored(order, row + i) - first) * p->row_bytes, p->row_bytes);
    *out = ordered;
    return status;
}

static const part *part_of_block(const packing *all, int64_t block) {
    int64_t low = 0, high = all->n_parts - 1;
    while (low < high) {
        int64_t middle = (low + high + 1) / 2;
        if (all->parts[middle].first_block <= block)
            low = middle;
        else
            high = middle - 1;
    }
    return &all->parts[low];
}

static ht_status pack_block(void *arg, int64_t block, int worker, ht_error *err) {
    const packing *all = arg;
    const part *p = part_of_block(all, block);
    ht_matrix *m = p->task->m;
    int64_t row = (block - p->first_block) * p->rows_per_block, n = ht_min_i64(p->rows_per_block, m->n_rows - row);
    const unsigned char *rows;
    ht_status status = stage_rows(p, row, n, all->staging + (size_t)worker * all->staging_bytes, &rows, err);
    return status ? status : m->ops->pack(m, row, n, rows, err);
}

static void plan_part(packing *all, const ht_pack_task *task) {
    part *p = &all->parts[all->n_parts++];
    int64_t n_rows = task->m->n_rows;
    *p = (part){.task = task, .row_bytes = task->stored.n_bytes / (size_t)n_rows, .first_block = all->n_blocks};
    int64_t slab_bytes = (int64_t)p->row_bytes * HT_MATRIX_SLAB;
    p->rows_per_block = HT_MATRIX_SLAB * ht_max_i64(1, READ_BYTES / ht_max_i64(slab_bytes, 1));
    p->rows_per_block = ht_min_i64(p->rows_per_block, ht_ceil_div_i64(n_rows, HT_MATRIX_SLAB) * HT_MATRIX_SLAB);
    const int64_t group = whole_group(task), most_rows = p->rows_per_block + 2 * group;
    p->ordered_offset = (size_t)most_rows * p->row_bytes;
    p->room_offset = p->ordered_offset + (group ? (size_t)p->rows_per_block * p->row_bytes : 0);
    size_t staging_bytes = p->room_offset + ht_tensor_read_scratch(&task->stored, most_rows * task->m->k);
    all->staging_bytes = ht_max_size(all->staging_bytes, staging_bytes);
    all->n_blocks += ht_ceil_div_i64(n_rows, p->rows_per_block);
}

ht_status ht_matrices_pack(const ht_pack_task *tasks, int64_t n, const ht_pack_hooks *hooks, ht_device *d,
                           ht_error *err) {
    packing all = {0};
    all.parts = malloc(((size_t)n + 1) * sizeof *all.parts);
    for (int64_t i = 0; all.parts && i < n; i++) plan_part(&all, &tasks[i]);
    size_t staging_bytes = all.staging_bytes * (size_t)d->n_threads;
    all.staging = malloc(staging_bytes + 1);
    ht_status status = all.parts && all.staging ? ht_pack_in_pieces(all.n_blocks, pack_block, &all, hooks, d, err)
                                                : ht_fail_memory(err, staging_bytes, "reading weights");
    const ht_status settled = ht_device_settle(d, status ? NULL : err); /* also after a failure */
    free(all.staging);
    free(all.parts);
    return status ? status : settled;
}

/* ---- rows in the file ---- */

enum { PIECE_BYTES = 8192 }; /* bytes per read; most rows fit */

typedef struct file_rows {
    ht_matrix base;
    ht_stored_tensor tensor; /* its files are the handles below */
    ht_file *file[3];        /* own handles, one per component */
} file_rows;

static size_t no_bytes(ht_weight_type type, int64_t n_rows, int64_t k) {
    (void)type, (void)n_rows, (void)k;
    return 0;
}

static ht_status read_row(const ht_matrix *m, int64_t row, float *out, ht_error *err) {
    const file_rows *t = (const file_rows *)m;
    ht_status status = HT_OK;
    for (int i = 0; !status && i < 3 && t->file[i]; i++) status = ht_file_unchanged(t->file[i], err);
    unsigned char blocks[PIECE_BYTES], scratch[PIECE_BYTES];
    int64_t unit = ht_tensor_unit(&t->tensor), piece = (int64_t)(PIECE_BYTES / ht_tensor_size(&t->tensor, unit)) * unit;
    for (int64_t column = 0; !status && column < m->k; column += piece) {
        int64_t n = ht_min_i64(piece, m->k - column);
        status = ht_tensor_read(&t->tensor, row * m->k + column, n, blocks, scratch, err);
        if (!status) ht_dequantize(m->type, blocks, n, out + column);
    }
    return status;
}

static const ht_matrix_ops row_ops = {.name = "rows in the file", .packed_bytes = no_bytes, .row = read_row};

ht_status ht_file_rows_new(const ht_stored_tensor *source, ht_matrix **out, ht_error *err) {
    *out = NULL;
    file_rows *t = calloc(1, sizeof *t);
    if (!t) return ht_fail_memory(err, sizeof *t, "a table");
    t->base = (ht_matrix){
        .ops = &row_ops, .type = (ht_weight_type)source->type, .n_rows = source->dims[0], .k = source->dims[1]};
    t->tensor = *source;
    ht_status status = HT_OK;
    if (!source->n_parts) {
        status = ht_file_share(source->file, &t->file[0], err);
        t->tensor.file = t->file[0];
    }
    for (int i = 0; !status && i < source->n_parts; i++) {
        status = ht_file_share(source->part[i].file, &t->file[i], err);
        t->tensor.part[i].file = t->file[i];
    }
    if (status)
        ht_file_rows_free(&t->base);
    else
        *out = &t->base;
    return status;
}

void ht_file_rows_free(ht_matrix *m) {
    if (!m) return;
    for (int i = 0; i < 3; i++) ht_file_close(((file_rows *)m)->file[i]);
    free(m);
}
