/* LoRA adapters of a step: rows with the same matrices form tiles, which threads take one at a time. Few large tiles
 * (decoding) are shared by several threads: first by columns of the input, then by columns of the output.
 *
 * Rows of a dense projection are contiguous. Rows of experts are sorted by expert and gathered. */
#include "cpu/lora.h"

#include "base/checked.h"
#include "base/error.h"
#include "cpu/call.h"
#include "cpu/experts.h"
#include "cpu/scratch_layout.h"
#include "device/params.h"

#include <string.h>

enum {
    SHARED_WORK = 1 << 15, /* least multiply-adds, of all tiles and of one tile, that are worth waking threads for */
    SPLIT_COLUMNS = 256    /* output columns per thread when a tile is shared */
};

/* Rows of one run and, with experts, of one expert. An item is a row of y; with experts, one of the m per row of x. */
typedef struct tile {
    const ht_lora_use *use; /* [n_uses] */
    int32_t n_uses;
    int64_t expert, first, n;
} tile;

typedef struct lora_job {
    const ht_call *call;
    const ht_lora_params *p;
    const ht_lora_products *products;
    int64_t n_rows, per_row, n_in, n_out; /* per_row: items of a row of the step */
    /* scratch */
    tile *tiles;    /* [n_tiles] */
    int64_t *order; /* [items] of experts: items in the order of the tiles */
    int64_t *first; /* [n_experts + 1] */
    float *workers; /* [n_threads][worker_floats]: low, then gathered rows of x and of y */
    int64_t worker_floats;
    float *chunks; /* [chunks of the input][HT_LORA_ROWS][HT_LORA_RANKS] */
    int64_t n_tiles;
    int64_t work; /* multiply-adds of all tiles */
} lora_job;

static bool has_experts(const lora_job *job) { return job->p->n_experts > 0; }

static bool unit_stride(const ht_view *v) {
    const int last = v->n_dims - 1;
    return v->shape[last] == 1 || v->stride[last] == 1;
}

static lora_job describe(const ht_call *call) {
    const ht_view *x = &call->in[1];
    lora_job job = {.call = call, .p = call->params, .n_rows = call->out.shape[0], .per_row = 1};
    if (has_experts(&job)) job.per_row = call->out.shape[1];
    job.n_in = x->shape[x->n_dims - 1];
    job.n_out = call->out.shape[call->out.n_dims - 1];
    return job;
}

static size_t lay_out(lora_job *job) {
    ht_scratch_layout d = {.at = job->call->scratch};
    const int64_t items = job->n_rows * job->per_row, rows = ht_min_i64(items, HT_LORA_ROWS);
    job->tiles = ht_scratch_take(&d, items, sizeof *job->tiles);
    if (has_experts(job)) {
        job->order = ht_scratch_take(&d, items, sizeof *job->order);
        job->first = ht_scratch_take(&d, job->p->n_experts + 1, sizeof *job->first);
    }
    job->worker_floats = rows * HT_LORA_RANKS;
    if (has_experts(job) || !unit_stride(&job->call->in[1])) job->worker_floats += rows * (job->n_in + job->n_out);
    job->workers =
        ht_scratch_take(&d, ht_pool_threads(ht_call_pool(job->call)) * job->worker_floats, sizeof *job->workers);
    job->chunks =
        ht_scratch_take(&d, ht_ceil_div_i64(job->n_in, HT_LORA_CHUNK) * rows * HT_LORA_RANKS, sizeof *job->chunks);
    return d.used;
}

size_t ht_cpu_lora_scratch(const ht_call *call) {
    ht_call counted = *call;
    counted.scratch = NULL;
    lora_job job = describe(&counted);
    return lay_out(&job);
}

/* ---- tiles ---- */

static void add_tiles(lora_job *job, const ht_lora_run *r, int64_t expert, int64_t first, int64_t n) {
    int64_t ranks = 0;
    for (int32_t i = 0; i < r->n_uses; i++) ranks += r->use[i].pair ? r->use[i].pair->rank : 0;
    job->work += n * ranks * (job->n_in + job->n_out);
    const int64_t n_tiles = ht_ceil_div_i64(n, HT_LORA_ROWS);
    for (int64_t i = 0; i < n_tiles; i++) {
        const int64_t begin = i * n / n_tiles;
        job->tiles[job->n_tiles++] = (tile){r->use, r->n_uses, expert, first + begin, (i + 1) * n / n_tiles - begin};
    }
}

/* Sorts the items of a run by expert. */
static ht_status add_expert_tiles(lora_job *job, const ht_lora_run *r, ht_error *err) {
    const int64_t n = job->p->n_experts, begin = r->first * job->per_row;
    ht_status status =
        ht_experts_sort("lora", &job->call->in[2], r->first, r->first + r->n, n, job->first, job->order + begin, err);
    for (int64_t e = 0; e < n && !status; e++)
        if (job->first[e + 1] > job->first[e])
            add_tiles(job, r, e, begin + job->first[e], job->first[e + 1] - job->first[e]);
    return status;
}

static ht_status find_tiles(lora_job *job, ht_error *err) {
    int32_t sequence = 0;
    ht_status status = HT_OK;
    for (int64_t row = 0; row < job->n_rows && !status;) {
        const ht_lora_run r = ht_lora_next_run(job->call->step, job->p->projection, job->n_rows, row, &sequence);
        if (r.use && has_experts(job))
            status = add_expert_tiles(job, &r, err);
        else if (r.use)
            add_tiles(job, &r, 0, r.first, r.n);
        row += r.n;
    }
    return status;
}

/* ---- products ---- */

/* The rows of a tile: in place, or gathered. */
typedef struct tile_rows {
    const tile *t;
    const float *x;
    float *y;
    int64_t x_row, y_row;
    float *sums; /* y when it is not in place */
} tile_rows;

static int64_t item_of(const lora_job *job, const tile *t, int64_t i) {
    return has_experts(job) ? job->order[t->first + i] : t->first + i;
}

static const float *x_of(const lora_job *job, int64_t item) {
    const ht_view *x = &job->call->in[1];
    const int64_t row = item / job->per_row;
    return (const float *)x->data + row * x->stride[0] + (x->n_dims == 3 ? item % job->per_row * x->stride[1] : 0);
}

static float *y_of(const lora_job *job, int64_t item) { return (float *)job->call->out.data + item * job->n_out; }

static tile_rows bring_rows(const lora_job *job, const tile *t, float *room) {
    const ht_view *x = &job->call->in[1];
    const int64_t first = item_of(job, t, 0), stride = x->stride[x->n_dims - 1];
    const bool in_place = unit_stride(x) && (!has_experts(job) || t->n == 1);
    if (in_place) return (tile_rows){t, x_of(job, first), y_of(job, first), x->stride[0], job->n_out, NULL};
    float *rows = room, *sums = room + t->n * job->n_in;
    for (int64_t i = 0; i < t->n; i++) {
        const float *from = x_of(job, item_of(job, t, i));
        for (int64_t k = 0; k < job->n_in; k++) rows[i * job->n_in + k] = from[k * stride];
        memcpy(sums + i * job->n_out, y_of(job, item_of(job, t, i)), (size_t)job->n_out * sizeof *sums);
    }
    return (tile_rows){t, rows, sums, job->n_in, job->n_out, sums};
}

static void put_rows(const lora_job *job, const tile_rows *r) {
    for (int64_t i = 0; r->sums && i < r->t->n; i++)
        memcpy(y_of(job, item_of(job, r->t, i)), r->sums + i * job->n_out, (size_t)job->n_out * sizeof *r->sums);
}

/* Ranks [rank, rank + ranks) of a pair. */
typedef struct slice {
    const ht_lora_pair *pair;
    const float *a, *b;
    int64_t ranks, b_row;
    float scale;
} slice;

static slice slice_of(const lora_job *job, const ht_lora_use *use, int64_t expert, int64_t rank) {
    const ht_lora_pair *p = use->pair;
    const ht_lora_matrices m = ht_lora_matrices_of(p, job->p);
    return (slice){.pair = p,
                   .a = m.a + expert * m.a_step + rank,
                   .b = m.b + expert * m.b_step + rank * m.b_row,
                   .b_row = m.b_row,
                   .ranks = ht_min_i64(HT_LORA_RANKS, p->rank - rank),
                   .scale = use->scale};
}

/* Columns [column, column + n) of the input. */
static void multiply_down(const lora_job *job, const tile_rows *r, const slice *s, int64_t column, int64_t n,
                          float *low) {
    job->products->down(&(ht_lora_down){.x = r->x + column,
                                        .a = s->a + column * s->pair->rank,
                                        .low = low,
                                        .n = r->t->n,
                                        .n_in = n,
                                        .ranks = s->ranks,
                                        .x_row = r->x_row,
                                        .a_row = s->pair->rank});
}

/* Columns [column, column + n) of the output. */
static void multiply_up(const lora_job *job, const tile_rows *r, const slice *s, int64_t column, int64_t n,
                        const float *low) {
    job->products->up(&(ht_lora_up){.low = low,
                                    .b = s->b + column,
                                    .y = r->y + column,
                                    .n = r->t->n,
                                    .n_out = n,
                                    .ranks = s->ranks,
                                    .y_row = r->y_row,
                                    .b_row = s->b_row});
}

static void scale_low(const slice *s, int64_t n, float *low) {
    for (int64_t i = 0; i < n; i++)
        for (int64_t k = 0; k < s->ranks; k++) low[i * HT_LORA_RANKS + k] *= s->scale;
}

/* Prefetches B while `down` waits for A: one row has too few multiply-adds to hide the latency of B. */
static void fetch_b(const lora_job *job, const slice *s) {
    for (int64_t r = 0; r < s->ranks; r++)
        for (int64_t i = 0; i < job->n_out; i += 16) __builtin_prefetch(s->b + r * s->b_row + i);
}

static void multiply_tiles(void *arg, int64_t begin, int64_t end, int worker) {
    const lora_job *job = arg;
    float *low = job->workers + worker * job->worker_floats;
    for (int64_t at = begin; at < end; at++) {
        const tile *t = &job->tiles[at];
        const tile_rows r = bring_rows(job, t, low + t->n * HT_LORA_RANKS);
        for (int32_t i = 0; i < t->n_uses; i++)
            for (int64_t rank = 0; t->use[i].pair && rank < t->use[i].pair->rank; rank += HT_LORA_RANKS) {
                const slice s = slice_of(job, &t->use[i], t->expert, rank);
                if (t->n == 1) fetch_b(job, &s);
                multiply_down(job, &r, &s, 0, job->n_in, low);
                scale_low(&s, t->n, low);
                multiply_up(job, &r, &s, 0, job->n_out, low);
            }
        put_rows(job, &r);
    }
}

/* ---- a tile shared by all threads ---- */

typedef struct split {
    const lora_job *job;
    const tile_rows *r;
    slice s;
} split;

static void split_down(void *arg, int64_t begin, int64_t end, int worker) {
    (void)worker;
    const split *w = arg;
    for (int64_t c = begin; c < end; c++) {
        const int64_t column = c * HT_LORA_CHUNK;
        multiply_down(w->job, w->r, &w->s, column, ht_min_i64(HT_LORA_CHUNK, w->job->n_in - column),
                      w->job->chunks + c * w->r->t->n * HT_LORA_RANKS);
    }
}

static void split_up(void *arg, int64_t begin, int64_t end, int worker) {
    (void)worker;
    const split *w = arg;
    for (int64_t c = begin; c < end; c++) {
        const int64_t column = c * SPLIT_COLUMNS;
        multiply_up(w->job, w->r, &w->s, column, ht_min_i64(SPLIT_COLUMNS, w->job->n_out - column), w->job->chunks);
    }
}

/* Adds the chunks in order, as `down` does when it has them all. */
static void join_chunks(const split *w) {
    const int64_t n = w->r->t->n, chunks = ht_ceil_div_i64(w->job->n_in, HT_LORA_CHUNK);
    float *low = w->job->chunks;
    for (int64_t c = 1; c < chunks; c++) {
        const float *chunk = low + c * n * HT_LORA_RANKS;
        for (int64_t i = 0; i < n; i++)
            for (int64_t k = 0; k < w->s.ranks; k++) low[i * HT_LORA_RANKS + k] += chunk[i * HT_LORA_RANKS + k];
    }
    scale_low(&w->s, n, low);
}

static void multiply_split(const lora_job *job, const tile *t) {
    const tile_rows r = bring_rows(job, t, job->workers + t->n * HT_LORA_RANKS);
    ht_pool *pool = ht_call_pool(job->call);
    for (int32_t i = 0; i < t->n_uses; i++)
        for (int64_t rank = 0; t->use[i].pair && rank < t->use[i].pair->rank; rank += HT_LORA_RANKS) {
            split w = {job, &r, slice_of(job, &t->use[i], t->expert, rank)};
            ht_pool_run(pool, ht_ceil_div_i64(job->n_in, HT_LORA_CHUNK), 1, split_down, &w);
            join_chunks(&w);
            ht_pool_run(pool, ht_ceil_div_i64(job->n_out, SPLIT_COLUMNS), 1, split_up, &w);
        }
    put_rows(job, &r);
}

ht_status ht_cpu_lora(const ht_call *call, const ht_lora_products *products, ht_error *err) {
    if (!call->step) return ht_fail(err, HT_ERR_INTERNAL, "lora: outside a model step");
    if (call->out.data != call->in[0].data) products->copy(&call->in[0], &call->out, call->device);
    if (!call->step->lora) return HT_OK;
    lora_job job = describe(call);
    job.products = products;
    lay_out(&job);
    ht_status status = find_tiles(&job, err);
    if (status || job.n_tiles == 0) return status;
    const int64_t threads = ht_pool_threads(ht_call_pool(call));
    if (job.work < SHARED_WORK || threads == 1)
        multiply_tiles(&job, 0, job.n_tiles, 0);
    else if (job.n_tiles < threads && job.work >= SHARED_WORK * job.n_tiles)
        for (int64_t i = 0; i < job.n_tiles; i++) multiply_split(&job, &job.tiles[i]);
    else
        ht_pool_run(ht_call_pool(call), job.n_tiles, 1, multiply_tiles, &job);
    return HT_OK;
}
