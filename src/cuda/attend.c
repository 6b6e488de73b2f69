/* Attention over KV pages: cuda/attend.cu. The step is host memory, so every call takes the addresses of its pages, and the
 * positions of its rows, with it: with the kernels' arguments when they are few, else in memory of the device. */
#include "cuda/attend.h"

#include "base/checked.h"
#include "base/error.h"
#include "cuda/cuda.h"
#include "device/params.h"

#include <stdlib.h>
#include <string.h>

_Static_assert(sizeof(ht_cuda_attend_arguments) <= 4096, "a kernel takes at most so many bytes");

enum {
    PARTIAL_BYTES =
        48 << 20, /* results of pages, beyond which tiles are computed in turns: what stays in the L2 cache */
    SHARED_BYTES = 47 << 10, /* of a block, beside those that the kernel declares */
    APPEND_THREADS = 32,     /* for a vector, which has about as many chunks */
    MERGE_DIMS = 128
};

/* Rows of one sequence that attend. */
typedef struct sequence {
    const ht_kv_layer *layer;
    int32_t row, n;              /* rows of q */
    int64_t first_page, n_pages; /* visible to any of them */
} sequence;

typedef struct attend_job {
    const ht_call *call;
    const ht_attend_params *p;
    ht_cuda_attend_arguments a;
    int32_t n_rows;
    int64_t n_addresses, n_tiles;
    char *table; /* in host memory */
    size_t table_bytes;
    /* what has been filled in of it */
    int64_t address, tile, unit;
} attend_job;

/* ---- rows ---- */

/* Row of the step of row `row` of q. */
static int32_t step_row(const attend_job *job, int32_t row) {
    return job->p->asked ? job->call->step->batch->out_row[row] : row;
}

static int32_t pos_of(const attend_job *job, int32_t row) { return job->call->step->batch->pos[step_row(job, row)]; }

static int64_t first_page(const attend_job *job, int32_t row) {
    const int64_t pos = pos_of(job, row), window = job->a.window;
    return (window > 0 && pos >= window ? pos - window + 1 : 0) / HT_KV_PAGE;
}

static int64_t end_page(const attend_job *job, int32_t row) { return pos_of(job, row) / HT_KV_PAGE + 1; }

/* The sequence of row `row` and those behind it; moves *s on to it. */
static sequence next_sequence(const attend_job *job, int32_t row, int32_t *s) {
    const ht_batch *b = job->call->step->batch;
    sequence out = {.row = row};
    while (step_row(job, row) >= b->seq_start[*s + 1]) ++*s;
    while (row < job->n_rows && step_row(job, row) < b->seq_start[*s + 1]) row++;
    out.n = row - out.row;
    out.layer = &job->call->step->kv[*s]->layer[job->p->layer];
    out.first_page = first_page(job, out.row);
    out.n_pages = end_page(job, row - 1) - out.first_page;
    return out;
}

static ht_status check_sequence(const attend_job *job, const sequence *s, ht_error *err) {
    for (int32_t row = s->row; row < s->row + s->n; row++) {
        const int32_t pos = pos_of(job, row);
        if (pos < 0 || ht_kv_page_of(s->layer, pos) >= s->layer->n_pages)
            return ht_fail(err, HT_ERR_INTERNAL, "row %lld: position %d has no page in the cache, which holds %lld",
                           (long long)row, pos, (long long)s->layer->n_pages);
    }
    return HT_OK;
}

static ht_status check_rows(const attend_job *job, ht_error *err) {
    const ht_batch *b = job->call->step->batch;
    if (!job->p->asked) return HT_OK;
    if (job->n_rows != b->n_out)
        return ht_fail(err, HT_ERR_INTERNAL, "attend: %lld rows, %d are asked for", (long long)job->n_rows,
                       (int)b->n_out);
    for (int32_t i = 0; i < b->n_out; i++)
        if (b->out_row[i] < (i ? b->out_row[i - 1] + 1 : 0) || b->out_row[i] >= b->n_tok)
            return ht_fail(err, HT_ERR_INTERNAL, "attend: rows that are asked for are not in order");
    return HT_OK;
}

/* ---- tables ---- */

static int64_t tiles_of(const attend_job *job, const sequence *s) {
    return ht_ceil_div_i64((int64_t)s->n * job->a.group, job->a.tile);
}

/* Of a block that has tiles of `tile` queries: the queries, their weights of a page, and sums that are brought together. */
static int64_t shared_bytes(const ht_cuda_page_form *f, int64_t tile) {
    const int64_t width = ht_min_i64(f->chunks, HT_CUDA_ATTEND_THREADS);
    const int64_t sums = HT_CUDA_ATTEND_THREADS / width * width * f->chunk;
    const int64_t floats =
        tile * ((int64_t)f->chunks * f->chunk + HT_CUDA_KEYS) + ht_min_i64(tile, HT_CUDA_ATTEND_REDUCED) * sums;
    return floats * (int64_t)sizeof(float);
}

/* Chooses the tile: no larger than the largest sequence has use for, nor than fits in shared memory. */
static void choose_tile(attend_job *job, int64_t most_rows) {
    int32_t tile = 1;
    while (tile < HT_CUDA_ATTEND_TILE && tile < most_rows * job->a.group &&
           shared_bytes(&job->a.form, 2 * tile) <= SHARED_BYTES)
        tile *= 2;
    job->a.tile = tile;
}

/* Counts what the table holds. */
static ht_status measure(attend_job *job, ht_error *err) {
    int64_t most = 0;
    int32_t s = 0;
    ht_status status = HT_OK;
    for (int32_t row = 0; row < job->n_rows && !status;) {
        const sequence of = next_sequence(job, row, &s);
        status = check_sequence(job, &of, err);
        job->n_addresses += of.n_pages;
        most = ht_max_i64(most, of.n);
        row += of.n;
    }
    if (status) return status;
    choose_tile(job, most);
    s = 0;
    for (int32_t row = 0; row < job->n_rows;) {
        const sequence of = next_sequence(job, row, &s);
        job->n_tiles += tiles_of(job, &of);
        row += of.n;
    }
    job->a.tiles_at = job->n_addresses * (int64_t)sizeof(uint64_t);
    job->a.rows_at = job->a.tiles_at + job->n_tiles * (int64_t)sizeof(ht_cuda_attend_tile);
    job->table_bytes = (size_t)job->a.rows_at + (size_t)job->n_rows * sizeof(ht_cuda_attend_row);
    return HT_OK;
}

static ht_cuda_attend_tile *tile_at(const attend_job *job, int64_t i) {
    return (ht_cuda_attend_tile *)(void *)(job->table + job->a.tiles_at) + i;
}

static void fill_sequence(attend_job *job, const sequence *s) {
    uint64_t *addresses = (uint64_t *)(void *)job->table;
    ht_cuda_attend_row *rows = (ht_cuda_attend_row *)(void *)(job->table + job->a.rows_at);
    const int32_t group = job->a.group, end = (s->row + s->n) * group;
    for (int64_t p = 0; p < s->n_pages; p++)
        addresses[job->address + p] =
            (uint64_t)(uintptr_t)s->layer->pages[ht_kv_page_of(s->layer, (s->first_page + p) * HT_KV_PAGE)]->data;
    for (int32_t row = s->row; row < s->row + s->n; row++)
        rows[row] = (ht_cuda_attend_row){.pos = pos_of(job, row),
                                         .address = (int32_t)(job->address + end_page(job, row) - 1 - s->first_page)};
    for (int32_t query = s->row * group; query < end; query += job->a.tile) {
        const int32_t n = (int32_t)ht_min_i64(job->a.tile, end - query);
        const int64_t first = first_page(job, query / group);
        const int64_t n_pages = end_page(job, (query + n - 1) / group) - first;
        *tile_at(job, job->tile++) = (ht_cuda_attend_tile){.query = query,
                                                           .n = n,
                                                           .first_page = (int32_t)first,
                                                           .n_pages = (int32_t)n_pages,
                                                           .address = (int32_t)(job->address + first - s->first_page),
                                                           .unit = (int32_t)job->unit};
        job->unit += n_pages;
    }
    job->address += s->n_pages;
}

static void fill(attend_job *job) {
    int32_t s = 0;
    for (int32_t row = 0; row < job->n_rows;) {
        const sequence of = next_sequence(job, row, &s);
        fill_sequence(job, &of);
        row += of.n;
    }
}

/* ---- kernels ---- */

static ht_status append(attend_job *job, ht_error *err) {
    if (ht_view_absent(&job->call->in[1])) return HT_OK;
    const int64_t blocks = (int64_t)job->n_rows * job->a.form.n_kv_heads;
    const ht_cuda_shape shape = {.grid = {(unsigned)blocks, 2}, .block = {APPEND_THREADS}};
    return ht_cuda_launch(ht_cuda_of(job->call->device), HT_CUDA_ID_ht_cuda_append, &shape, &job->a, err);
}

/* Floats of the results of one unit. */
static int64_t unit_floats(const ht_cuda_attend_arguments *a) {
    return (int64_t)a->form.n_kv_heads * a->tile * (a->form.head_dim + 2);
}

/* Tiles [first_tile, end_tile), of `units`. */
static ht_status launch_tiles(attend_job *job, int64_t units, ht_error *err) {
    ht_cuda_device *d = ht_cuda_of(job->call->device);
    const ht_cuda_attend_arguments *a = &job->a;
    const ht_cuda_kernel_id pages = a->tile == 1   ? HT_CUDA_ID_ht_cuda_attend_pages_1
                                    : a->tile == 2 ? HT_CUDA_ID_ht_cuda_attend_pages_2
                                    : a->tile == 4 ? HT_CUDA_ID_ht_cuda_attend_pages_4
                                                   : HT_CUDA_ID_ht_cuda_attend_pages_8;
    const int64_t queries = (int64_t)(a->end_tile - a->first_tile) * a->tile;
    const unsigned dims = (unsigned)ht_min_i64(MERGE_DIMS, ht_ceil_div_i64(a->form.head_dim, 32) * 32);
    const ht_cuda_shape of_pages = {.grid = {(unsigned)(units * a->form.n_kv_heads)},
                                    .block = {HT_CUDA_ATTEND_THREADS},
                                    .shared_bytes = (unsigned)shared_bytes(&a->form, a->tile)};
    const ht_cuda_shape of_merge = {.grid = {(unsigned)(queries * a->form.n_kv_heads)},
                                    .block = {dims, HT_CUDA_MERGE_SLICES}};
    ht_status status = ht_cuda_launch(d, pages, &of_pages, a, err);
    return status ? status : ht_cuda_launch(d, HT_CUDA_ID_ht_cuda_attend_merge, &of_merge, a, err);
}

/* Units of the tiles from `first` on whose results fit, of one tile at least; *end is behind the last. */
static int64_t next_tiles(const attend_job *job, int64_t first, int64_t *end) {
    const int64_t most = PARTIAL_BYTES / (unit_floats(&job->a) * (int64_t)sizeof(float));
    int64_t units = 0;
    for (*end = first; *end < job->n_tiles; ++*end) {
        const int32_t n = tile_at(job, *end)->n_pages;
        if (units && units + n > most) break;
        units += n;
    }
    return units;
}

static ht_status attend_tiles(attend_job *job, ht_error *err) {
    int64_t most = 0, end;
    for (int64_t first = 0; first < job->n_tiles; first = end) most = ht_max_i64(most, next_tiles(job, first, &end));
    ht_memory *memory = job->call->device->memory;
    const size_t bytes = (size_t)(most * unit_floats(&job->a)) * sizeof(float);
    void *results;
    ht_status status = ht_memory_alloc(memory, bytes, "attention", &results, err);
    if (status) return status;
    job->a.partial = results;
    job->a.totals = job->a.partial + most * job->a.form.n_kv_heads * job->a.tile * job->a.form.head_dim;
    for (int64_t first = 0; first < job->n_tiles && !status; first = end) {
        const int64_t units = next_tiles(job, first, &end);
        job->a.first_tile = (int32_t)first;
        job->a.end_tile = (int32_t)end;
        status = launch_tiles(job, units, err);
    }
    ht_memory_free(memory, results, bytes); /* the next to have it writes to it behind these kernels */
    return status;
}

/* ---- the call ---- */

static ht_status run_with_table(attend_job *job, ht_error *err) {
    ht_memory *memory = job->call->device->memory;
    void *there = NULL;
    ht_status status = HT_OK;
    fill(job);
    if (job->table != (char *)job->a.own) {
        status = ht_memory_alloc(memory, job->table_bytes, "pages of a step", &there, err);
        if (status) return status;
        status = ht_memory_write(memory, there, job->table, job->table_bytes, err);
        job->a.table = there;
    }
    if (!status) status = append(job, err);
    if (!status) status = attend_tiles(job, err);
    ht_memory_free(memory, there, job->table_bytes);
    return status;
}

static void describe(attend_job *job) {
    const ht_call *call = job->call;
    const ht_kv_layer *l = &call->step->kv[0]->layer[job->p->layer];
    job->a = (ht_cuda_attend_arguments){.form = ht_cuda_page_form_of(&l->shape),
                                        .q = ht_cuda_view_of(&call->in[0]),
                                        .out = call->out.data,
                                        .window = l->window,
                                        .scale = job->p->scale,
                                        .softcap = job->p->softcap,
                                        .n_heads = (int32_t)call->in[0].shape[1]};
    job->a.group = job->a.n_heads / l->shape.n_kv_heads;
    if (ht_view_absent(&call->in[1])) return;
    job->a.k = ht_cuda_view_of(&call->in[1]);
    job->a.v = ht_cuda_view_of(&call->in[2]);
}

static ht_status run_attend(const ht_call *call, ht_error *err) {
    if (!call->step) return ht_fail(err, HT_ERR_INTERNAL, "attend: outside a model step");
    attend_job job = {.call = call, .p = call->params, .n_rows = (int32_t)call->in[0].shape[0]};
    if (ht_view_size(&call->in[0]) == 0) return HT_OK;
    describe(&job);
    ht_status status = check_rows(&job, err);
    if (!status) status = measure(&job, err);
    if (status) return status;
    const bool own = job.table_bytes <= sizeof job.a.own;
    job.table = own ? (char *)job.a.own : malloc(job.table_bytes);
    if (!job.table) return ht_fail_memory(err, job.table_bytes, "pages of a step");
    status = run_with_table(&job, err);
    if (!own) free(job.table);
    return status;
}

void ht_cuda_attend_kernels(ht_kernel *kernels) { kernels[HT_OP_ATTEND].run = run_attend; }
