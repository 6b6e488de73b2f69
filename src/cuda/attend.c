/* Attention over KV pages: cuda/attend.cu. The step is in host memory, so every call passes a table of page addresses
 * and row positions: with the kernels' arguments if it is small, else in device memory. */
#include "cuda/attend.h"

#include "base/checked.h"
#include "base/error.h"
#include "cuda/cuda.h"
#include "device/params.h"

#include <stdlib.h>
#include <string.h>

enum {
    RESULT_BYTES = 8 << 20,  /* of units computed together, which fit in the L2 cache; more take several launches */
    RESULT_PAGES = 64,       /* of each query computed together, unless RESULT_BYTES allows fewer */
    SHARED_BYTES = 47 << 10, /* dynamic shared memory of an attend_pages block, in addition to the static */
    BLOCK_BYTES = 2 << 10,   /* reserved and static shared memory of a block, in addition to the dynamic */
    APPEND_THREADS = 128
};

/* The query rows of one sequence. */
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
    bool tensor;         /* on tensor cores */
    int64_t shared_most; /* bytes of shared memory that a block may have */
    int64_t n_addresses, n_streamed, n_tiles;
    char *table; /* in host memory */
    size_t table_bytes;
    /* entries filled in so far */
    int64_t address, tile, unit, result;
} attend_job;

/* ---- rows ---- */

/* Row of the step of row `row` of q. */
static int32_t step_row(const attend_job *job, int32_t row) {
    return job->p->asked ? job->call->step->batch->out_row[row] : row;
}

static int32_t pos_of(const attend_job *job, int32_t row) { return job->call->step->batch->pos[step_row(job, row)]; }

static int64_t first_page(const attend_job *job, int32_t row) {
    return ht_first_visible(job->a.window, job->a.chunked, pos_of(job, row)) / HT_KV_PAGE;
}

static int64_t end_page(const attend_job *job, int32_t row) { return pos_of(job, row) / HT_KV_PAGE + 1; }

/* The rows from `row` on of one sequence; *s advances to it. */
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

/* ---- shared memory ---- */

/* Shared memory of a block with tiles of `tile` queries: queries, weights of a page, and partial sums to reduce. */
static int64_t pages_shared_bytes(const ht_cuda_page_form *f, int64_t tile) {
    const int64_t width = ht_min_i64(f->chunks, HT_CUDA_ATTEND_THREADS);
    const int64_t sums = HT_CUDA_ATTEND_THREADS / width * width * f->chunk;
    const int64_t floats =
        tile * ((int64_t)f->chunks * f->chunk + HT_CUDA_KEYS) + ht_min_i64(tile, HT_CUDA_ATTEND_REDUCED) * sums;
    return floats * (int64_t)sizeof(float);
}

/* Shared memory of a block: the queries, their scores and weights of a page, and `buffers` steps. */
static int64_t tiles_shared_bytes(const ht_cuda_page_form *f, int32_t tile, int32_t buffers) {
    const int chunks = ht_cuda_tiles_chunks(f);
    const int64_t halves = ht_cuda_queries_bytes(tile, chunks) + (int64_t)tile * HT_CUDA_WEIGHTS_STRIDE * 2;
    const int64_t scores = (int64_t)sizeof(ht_cuda_tile_scores) + (int64_t)tile * HT_CUDA_WEIGHTS_STRIDE * 4;
    return scores + ht_cuda_operand_parts(f) * halves +
           (int64_t)buffers * ht_cuda_step_bytes(f, chunks, ht_cuda_value_bytes(f->chunks));
}

/* Blocks of 8 dimensions of the kernel for this head size. */
static int32_t stream_width(const ht_cuda_page_form *f) { return f->chunks <= 8 ? 8 : f->chunks <= 12 ? 12 : 16; }

/* Shared memory of a block: queries, three steps of keys and of values, and weights if queries stay there too. */
static int64_t stream_shared_bytes(const ht_cuda_page_form *f) {
    enum { WARPS = HT_CUDA_TENSOR_THREADS / 32, WEIGHTS = 16 * (HT_CUDA_STEP_KEYS + 8) * 2 /* of a warp */ };
    const int width = stream_width(f), values = ht_cuda_value_bytes(width);
    const int64_t step = ht_cuda_step_elements(0, values) + (f->blocks ? width / 4 * 2 * HT_CUDA_STEP_KEYS : 0);
    const int64_t parts = ht_cuda_operand_parts(f), weights = parts > 1 ? parts * WARPS * WEIGHTS : 0;
    return parts * ht_cuda_queries_bytes(HT_CUDA_STREAM_TILE, width) + 2 * HT_CUDA_STREAM_STEPS * step + weights;
}

/* ---- tiles ---- */

/* Whether one block computes all pages of a tile: if there are enough blocks, or little work for each. */
static bool is_streamed(const attend_job *job, const sequence *s) {
    enum { FEW_PAGES = 2 };
    const ht_cuda_page_form *f = &job->a.form;
    const int64_t queries = (int64_t)s->n * job->a.group;
    const int64_t blocks = ht_ceil_div_i64(queries, HT_CUDA_STREAM_TILE) * f->n_kv_heads;
    return job->tensor && f->head_dim <= HT_CUDA_STREAM_HEAD && queries > HT_CUDA_MOST_TILE &&
           stream_shared_bytes(f) + BLOCK_BYTES <= job->shared_most &&
           (s->n_pages <= FEW_PAGES || 2 * blocks >= ht_cuda_of(job->call->device)->multiprocessors);
}

static int32_t tile_of(const attend_job *job, const sequence *s) {
    return is_streamed(job, s) ? HT_CUDA_STREAM_TILE : job->a.tile;
}

static int64_t tiles_of(const attend_job *job, const sequence *s) {
    return ht_ceil_div_i64((int64_t)s->n * job->a.group, tile_of(job, s));
}

/* The tile size of units: at most what the largest sequence can use and shared memory can hold. */
static void choose_tile(attend_job *job, int64_t most_rows) {
    const ht_cuda_page_form *f = &job->a.form;
    const int64_t queries = most_rows * job->a.group;
    if (job->tensor) {
        const int32_t most = (int32_t)(f->head_dim <= 128 ? 64 : f->head_dim <= 256 ? 32 : 16);
        job->a.tile = 16;
        while (job->a.tile < most && job->a.tile < queries &&
               tiles_shared_bytes(f, 2 * job->a.tile, 2) + BLOCK_BYTES <= job->shared_most)
            job->a.tile *= 2;
    } else {
        const bool several = queries > 1 && pages_shared_bytes(f, HT_CUDA_ATTEND_TILE) <= SHARED_BYTES;
        job->a.tile = several ? HT_CUDA_ATTEND_TILE : 1;
    }
}

/* Buffers all steps of a page if each multiprocessor has at most one block; else as many as let two blocks fit. */
static void choose_buffers(attend_job *job) {
    const int64_t blocks = job->unit * job->a.form.n_kv_heads;
    const bool alone = blocks <= ht_cuda_of(job->call->device)->multiprocessors;
    const int64_t most = (alone ? job->shared_most : job->shared_most / 2) - BLOCK_BYTES;
    job->a.buffers = 2;
    while (job->a.buffers < HT_CUDA_PAGE_STEPS &&
           tiles_shared_bytes(&job->a.form, job->a.tile, job->a.buffers + 1) <= most)
        job->a.buffers++;
}

/* ---- tables ---- */

/* Counts the table's entries. */
static ht_status measure(attend_job *job, ht_error *err) {
    int64_t most = 0;
    int32_t s = 0;
    ht_status status = HT_OK;
    bool one_each = true; /* tile for a sequence */
    for (int32_t row = 0; row < job->n_rows && !status;) {
        const sequence of = next_sequence(job, row, &s);
        status = check_sequence(job, &of, err);
        job->n_addresses += of.n_pages;
        if (!is_streamed(job, &of)) most = ht_max_i64(most, of.n);
        row += of.n;
    }
    if (status) return status;
    choose_tile(job, most);
    s = 0;
    for (int32_t row = 0; row < job->n_rows;) {
        const sequence of = next_sequence(job, row, &s);
        const int64_t tiles = tiles_of(job, &of);
        job->n_tiles += tiles;
        if (is_streamed(job, &of)) job->n_streamed += tiles;
        one_each = one_each && tiles == 1;
        row += of.n;
    }
    job->a.appends = job->tensor && one_each && job->n_streamed == 0 && !ht_view_absent(&job->call->in[1]);
    job->a.tiles_at = job->n_addresses * (int64_t)sizeof(uint64_t);
    job->a.rows_at = job->a.tiles_at + job->n_tiles * (int64_t)sizeof(ht_cuda_attend_tile);
    job->table_bytes = (size_t)job->a.rows_at + (size_t)job->n_rows * sizeof(ht_cuda_attend_row);
    return HT_OK;
}

static ht_cuda_attend_tile *tile_at(const attend_job *job, int64_t i) {
    return (ht_cuda_attend_tile *)(void *)(job->table + job->a.tiles_at) + i;
}

static void fill_tiles(attend_job *job, const sequence *s) {
    const int32_t group = job->a.group, tile = tile_of(job, s), end = (s->row + s->n) * group;
    for (int32_t query = s->row * group; query < end; query += tile) {
        const int32_t n = (int32_t)ht_min_i64(tile, end - query);
        const int64_t first = first_page(job, query / group);
        const int64_t n_pages = end_page(job, (query + n - 1) / group) - first;
        *tile_at(job, job->tile++) = (ht_cuda_attend_tile){.query = query,
                                                           .n = n,
                                                           .first_page = (int32_t)first,
                                                           .n_pages = (int32_t)n_pages,
                                                           .address = (int32_t)(job->address + first - s->first_page),
                                                           .unit = (int32_t)job->unit,
                                                           .result = job->result};
        if (is_streamed(job, s)) continue;
        job->unit += n_pages;
        job->result += n_pages * n;
    }
}

static void fill_sequence(attend_job *job, const sequence *s) {
    uint64_t *addresses = (uint64_t *)(void *)job->table;
    ht_cuda_attend_row *rows = (ht_cuda_attend_row *)(void *)(job->table + job->a.rows_at);
    for (int64_t p = 0; p < s->n_pages; p++)
        addresses[job->address + p] =
            (uint64_t)(uintptr_t)s->layer->pages[ht_kv_page_of(s->layer, (s->first_page + p) * HT_KV_PAGE)]->data;
    for (int32_t row = s->row; row < s->row + s->n; row++)
        rows[row] = (ht_cuda_attend_row){.pos = pos_of(job, row),
                                         .address = (int32_t)(job->address + end_page(job, row) - 1 - s->first_page)};
}

/* Streamed tiles come first. */
static void fill(attend_job *job) {
    for (int streamed = 1; streamed >= 0; streamed--) {
        job->address = 0;
        int32_t s = 0;
        for (int32_t row = 0; row < job->n_rows;) {
            const sequence of = next_sequence(job, row, &s);
            if (streamed) fill_sequence(job, &of);
            if (is_streamed(job, &of) == streamed) fill_tiles(job, &of);
            job->address += of.n_pages;
            row += of.n;
        }
    }
}

/* ---- kernels ---- */

static ht_status append(attend_job *job, ht_error *err) {
    if (ht_view_absent(&job->call->in[1]) || job->a.appends) return HT_OK;
    const ht_cuda_page_form *f = &job->a.form;
    const int64_t items = (int64_t)job->n_rows * f->n_kv_heads * (f->dtype == HT_I8 ? f->blocks : f->chunks);
    const ht_cuda_shape shape = {.grid = {(unsigned)ht_ceil_div_i64(items, APPEND_THREADS), f->keys_only ? 1 : 2},
                                 .block = {APPEND_THREADS}};
    return ht_cuda_launch(ht_cuda_of(job->call->device), HT_CUDA_ID_ht_cuda_append, &shape, &job->a, err);
}

/* The n-th of the kernels for the type of the pages. */
static ht_cuda_kernel_id kernel_for(const ht_cuda_page_form *f, int n) {
    enum { OF_TYPE = HT_CUDA_ID_ht_cuda_attend_tiles_bf16_1 - HT_CUDA_ID_ht_cuda_attend_tiles_f16_1 };
    const int type = f->dtype == HT_F16 ? 0 : f->dtype == HT_BF16 ? 1 : 2;
    return (ht_cuda_kernel_id)(HT_CUDA_ID_ht_cuda_attend_tiles_f16_1 + OF_TYPE * type + n);
}

static ht_status stream_tiles(attend_job *job, ht_error *err) {
    enum { FIRST = HT_CUDA_ID_ht_cuda_attend_stream_f16_8 - HT_CUDA_ID_ht_cuda_attend_tiles_f16_1 };
    if (job->n_streamed == 0) return HT_OK;
    const ht_cuda_page_form *f = &job->a.form;
    const ht_cuda_shape shape = {.grid = {(unsigned)(job->n_streamed * f->n_kv_heads)},
                                 .block = {HT_CUDA_TENSOR_THREADS},
                                 .shared_bytes = (unsigned)stream_shared_bytes(f)};
    job->a.first_tile = 0;
    job->a.end_tile = (int32_t)job->n_streamed;
    return ht_cuda_launch(ht_cuda_of(job->call->device), kernel_for(f, FIRST + stream_width(f) / 4 - 2), &shape,
                          &job->a, err);
}

/* `units` of tiles [first_tile, end_tile). */
static ht_status launch_units(attend_job *job, int64_t units, ht_error *err) {
    const ht_cuda_attend_arguments *a = &job->a;
    ht_cuda_kernel_id kernel = a->tile > 1 ? HT_CUDA_ID_ht_cuda_attend_pages_8 : HT_CUDA_ID_ht_cuda_attend_pages_1;
    ht_cuda_shape shape = {.grid = {(unsigned)(units * a->form.n_kv_heads)},
                           .block = {HT_CUDA_ATTEND_THREADS},
                           .shared_bytes = (unsigned)pages_shared_bytes(&a->form, a->tile)};
    if (job->tensor) {
        int twice = 0; /* how often the smallest tile is doubled */
        while (16 << twice < a->tile) twice++;
        kernel = kernel_for(&a->form, twice);
        shape.block[0] = HT_CUDA_TENSOR_THREADS;
        shape.shared_bytes = (unsigned)tiles_shared_bytes(&a->form, a->tile, a->buffers);
    }
    return ht_cuda_launch(ht_cuda_of(job->call->device), kernel, &shape, a, err);
}

/* ---- results of units ---- */

/* Capacities: partial results of queries, and merged sums of the queries of one tile. */
typedef struct results_room {
    int64_t results, merged;
} results_room;

static results_room room_of(const ht_call *call) {
    const int64_t rows = call->in[0].shape[0], heads = call->in[0].shape[1], head_dim = call->in[0].shape[2];
    const int64_t of_tile = ht_min_i64(rows, HT_CUDA_MOST_TILE) * heads, each = (head_dim + 2) * (int64_t)sizeof(float);
    const int64_t some = ht_min_i64(rows * heads * RESULT_PAGES, RESULT_BYTES / each);
    return (results_room){.results = ht_max_i64(some, of_tile), .merged = of_tile};
}

static size_t attend_scratch(const ht_call *call) {
    const results_room room = room_of(call);
    const int64_t head_dim = call->in[0].shape[2];
    return (size_t)(room.results * (head_dim + 2) + 3 * room.merged * head_dim) * sizeof(float);
}

/* A tile has more results than fit in memory: computes its pages in several launches. */
static ht_status attend_in_parts(attend_job *job, int64_t most, ht_error *err) {
    const ht_cuda_attend_tile *tile = tile_at(job, job->a.first_tile);
    const int32_t pages = (int32_t)(most / tile->n);
    ht_status status = HT_OK;
    for (int32_t first = 0; first < tile->n_pages && !status; first += pages) {
        job->a.first_part = first;
        job->a.end_part = (int32_t)ht_min_i64(first + pages, tile->n_pages);
        status = launch_units(job, job->a.end_part - first, err);
    }
    job->a.first_part = job->a.end_part = 0;
    return status;
}

static ht_status attend_units(attend_job *job, ht_error *err) {
    const ht_call *call = job->call;
    const results_room room = room_of(call);
    const int64_t head_dim = call->in[0].shape[2], n_kv_heads = job->a.form.n_kv_heads;
    const int64_t most = room.results / n_kv_heads, most_tiles = HT_CUDA_ARRIVALS / n_kv_heads;
    job->a.partial = call->scratch;
    job->a.totals = job->a.partial + room.results * head_dim;
    job->a.continued = job->a.totals + room.results * 2;
    job->a.arrivals = ht_cuda_of(call->device)->arrivals;
    if (job->tensor) choose_buffers(job);
    ht_status status = HT_OK;
    for (int64_t first = job->n_streamed, end; first < job->n_tiles && !status; first = end) {
        int64_t units = 0, results = 0;
        for (end = first; end < job->n_tiles && end - first < most_tiles; end++) {
            const ht_cuda_attend_tile *tile = tile_at(job, end);
            if (results + (int64_t)tile->n * tile->n_pages > most) break;
            units += tile->n_pages;
            results += (int64_t)tile->n * tile->n_pages;
        }
        const bool in_parts = end == first;
        if (in_parts) end++;
        job->a.first_tile = (int32_t)first;
        job->a.end_tile = (int32_t)end;
        status = in_parts ? attend_in_parts(job, most, err) : launch_units(job, units, err);
    }
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
    if (!status) status = stream_tiles(job, err);
    if (!status) status = attend_units(job, err);
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
                                        .chunked = l->chunked,
                                        .scale = job->p->scale,
                                        .softcap = job->p->softcap,
                                        .n_heads = (int32_t)call->in[0].shape[1],
                                        .out_dim = (int32_t)call->out.shape[2]};
    job->a.group = job->a.n_heads / l->shape.n_kv_heads;
    job->shared_most = ht_cuda_of(call->device)->most_shared_of_block;
    job->tensor = l->shape.dtype != HT_F32 && l->shape.head_dim <= HT_CUDA_TENSOR_HEAD &&
                  tiles_shared_bytes(&job->a.form, 16, 2) + BLOCK_BYTES <= job->shared_most;
    if (!ht_view_absent(&call->in[3])) {
        job->a.sinks = call->in[3].data;
        job->a.sinks_stride = call->in[3].stride[0];
    }
    if (ht_view_absent(&call->in[1])) return;
    job->a.k = ht_cuda_view_of(&call->in[1]);
    if (!l->shape.keys_only) job->a.v = ht_cuda_view_of(&call->in[2]);
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

void ht_cuda_attend_kernels(ht_kernel *kernels) { kernels[HT_OP_ATTEND] = (ht_kernel){run_attend, attend_scratch}; }
