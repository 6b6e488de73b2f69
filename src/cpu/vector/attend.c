/* Attention over the KV cache of a step: the schedule over threads. The arithmetic is in attend_page.c.
 *
 * The unit of work is a tile: adjacent rows of one sequence, one KV head, all query heads that share it. One thread
 * computes all pages of a tile, and converts each page to f32 once if the tile has enough rows. With few tiles
 * (decoding), several threads compute the pages of a tile, in waves limited by the scratch memory, and every wave's
 * results are merged in page order. */
#include "cpu/vector/attend.h"

#include "base/checked.h"
#include "cpu/call.h"
#include "cpu/kv.h"
#include "cpu/reference/reference.h"
#include "cpu/vector/vector.h"

enum {
    TILE_QUERIES = 96,    /* target: enough to make the conversion of a page cheap */
    CONVERT_QUERIES = 24, /* least queries per tile for converting pages to f32 */
    WAVE_PAGES = 16,      /* least pages per wave and head */
    INLINE_WORK = 1 << 16 /* multiply-adds that take less time than waking a thread */
};

typedef struct attend_job {
    const ht_call *call;
    const ht_kv_layer *layer;                 /* of any sequence: heads, head_dim and dtype are the same */
    int64_t n_heads, head_dim, padded, group; /* group: query heads per KV head */
    int64_t tile_rows;
    bool may_convert;
    bool appends; /* every tile appends its own keys and values to the cache */
    /* scratch */
    float *threads; /* [n_threads][thread_floats] */
    int64_t thread_floats, max_queries;
    float *wave; /* [wave_queries][2 + padded]: max, sum, output of one query and page */
    int64_t wave_queries;
    float *totals; /* split tiles only: [tiles * group][2], running max and sum */
} attend_job;

/* Adjacent rows of one sequence, for one KV head. */
typedef struct attend_tile {
    const ht_kv_layer *layer;
    int64_t row, rows, kv_head;
    int64_t first_page, end_page; /* pages visible to any of the rows */
} attend_tile;

/* K of the tile's KV head in a page. */
static const char *keys_at(const attend_tile *t, int64_t page) {
    const ht_kv_layer *l = t->layer;
    const char *base = l->pages[ht_kv_page_of(l, page * HT_KV_PAGE)]->data;
    return base + (size_t)ht_kv_k_index(l, t->kv_head, 0) * ht_dtype_bytes(l->shape.dtype);
}

/* Page `page` of the tile. `after` is the thread's next tile, or NULL, whose first page is prefetched after the last
 * one. */
static attend_page page_at(const attend_job *job, const attend_tile *t, int64_t page, const attend_tile *after) {
    const ht_kv_layer *l = t->layer;
    const char *base = l->pages[ht_kv_page_of(l, page * HT_KV_PAGE)]->data;
    size_t bytes = ht_dtype_bytes(l->shape.dtype);
    const uint16_t *scales = ht_kv_scales(l, l->pages[ht_kv_page_of(l, page * HT_KV_PAGE)]->data);
    const char *next = page + 1 < t->end_page ? keys_at(t, page + 1) : after ? keys_at(after, after->first_page) : NULL;
    return (attend_page){.dtype = l->shape.dtype,
                         .k = keys_at(t, page),
                         .v = base + (size_t)ht_kv_v_index(l, t->kv_head, 0) * bytes,
                         .k_scale = scales + ht_kv_k_scale_index(l, t->kv_head, 0),
                         .v_scale = scales + ht_kv_v_scale_index(l, t->kv_head, 0),
                         .v_stride = job->head_dim,
                         .head_dim = job->head_dim,
                         .next = next};
}

/* Position relative to the page, clamped to it. */
static int in_page(int64_t pos, int64_t page) {
    int64_t i = pos - page * HT_KV_PAGE;
    return (int)(i < 0 ? 0 : i > HT_KV_PAGE ? HT_KV_PAGE : i);
}

/* Tile `index` of the step, ordered by sequence, row tile, KV head. */
static attend_tile tile_at(const attend_job *job, int64_t index) {
    const ht_step *step = job->call->step;
    const ht_batch *b = step->batch;
    const ht_attend_params *p = job->call->params;
    attend_tile t = {.kv_head = index % job->layer->shape.n_kv_heads};
    int64_t skip = index / job->layer->shape.n_kv_heads;
    for (int32_t s = 0; s < b->n_seq; s++) {
        int64_t rows = b->seq_start[s + 1] - b->seq_start[s], tiles = ht_ceil_div_i64(rows, job->tile_rows);
        if (skip >= tiles) {
            skip -= tiles;
            continue;
        }
        t.row = b->seq_start[s] + skip * job->tile_rows;
        t.rows = ht_min_i64(job->tile_rows, b->seq_start[s + 1] - t.row);
        t.layer = &step->kv[s]->layer[p->layer];
        t.first_page = ht_kv_first_visible(t.layer, b->pos[t.row]) / HT_KV_PAGE;
        t.end_page = b->pos[t.row + t.rows - 1] / HT_KV_PAGE + 1;
        break;
    }
    return t;
}

static int64_t tile_count(const attend_job *job) {
    const ht_batch *b = job->call->step->batch;
    int64_t n = 0;
    for (int32_t s = 0; s < b->n_seq; s++) n += ht_ceil_div_i64(b->seq_start[s + 1] - b->seq_start[s], job->tile_rows);
    return n * job->layer->shape.n_kv_heads;
}

/* Scratch memory of one thread. */
typedef struct thread_scratch {
    float *k, *v;   /* a page converted to f32 */
    float *q;       /* queries of the tile, [max_queries][head_dim] */
    float *totals;  /* running max and sum, [max_queries][2] */
    float *weights; /* [ATTEND_QUERIES][256] */
    float *out;     /* [ATTEND_QUERIES][padded] */
} thread_scratch;

static int64_t scratch_floats(int64_t padded, int64_t queries, bool may_convert) {
    int64_t page = may_convert ? 2 * padded * HT_KV_PAGE : 0;
    return page + queries * padded + (queries * 2 + 15) / 16 * 16 + ATTEND_QUERIES * (HT_KV_PAGE + padded);
}

static thread_scratch scratch_of(const attend_job *job, int worker) {
    float *at = job->threads + worker * job->thread_floats;
    thread_scratch r;
    int64_t page = job->may_convert ? job->padded * HT_KV_PAGE : 0;
    r.k = at, at += page;
    r.v = at, at += page;
    r.q = at, at += job->max_queries * job->padded;
    r.totals = at, at += (job->max_queries * 2 + 15) / 16 * 16;
    r.weights = at, at += ATTEND_QUERIES * HT_KV_PAGE;
    r.out = at;
    return r;
}

static void pack_queries(const attend_job *job, const attend_tile *t, float *to) {
    const ht_view *q = &job->call->in[0];
    for (int64_t r = 0; r < t->rows; r++)
        for (int64_t g = 0; g < job->group; g++) {
            const float *from =
                (const float *)q->data + (t->row + r) * q->stride[0] + (t->kv_head * job->group + g) * q->stride[1];
            for (int64_t d = 0; d < job->head_dim; d++) *to++ = from[d * q->stride[2]];
        }
}

/* Queries [begin, begin + n) of the tile, for one page. */
static attend_group group_of(const attend_job *job, const attend_tile *t, const thread_scratch *scratch, int64_t page,
                             int64_t begin, int n) {
    const ht_attend_params *p = job->call->params;
    attend_group g = {.n = n,
                      .q = scratch->q + begin * job->head_dim,
                      .scale = p->scale,
                      .softcap = p->softcap,
                      .weights = scratch->weights,
                      .out = scratch->out};
    for (int i = 0; i < n; i++) {
        int64_t pos = job->call->step->batch->pos[t->row + (begin + i) / job->group];
        g.first[i] = in_page(ht_kv_first_visible(t->layer, pos), page);
        g.end[i] = in_page(pos + 1, page);
    }
    return g;
}

/* Output of the tile's query i. */
static float *out_of(const attend_job *job, const attend_tile *t, int64_t i) {
    int64_t head = t->kv_head * job->group + i % job->group;
    return (float *)job->call->out.data + ((t->row + i / job->group) * job->n_heads + head) * job->head_dim;
}

/* Divides the tile's query i by its sum; `total` is its running max and sum. */
static void finish(const attend_job *job, const attend_tile *t, int64_t i, const float *total) {
    const ht_view *sinks = &job->call->in[3];
    const float *sink = NULL;
    if (!ht_view_absent(sinks))
        sink = (const float *)sinks->data + (t->kv_head * job->group + i % job->group) * sinks->stride[0];
    HT_ISA_NAME(ht_attend_finish)(out_of(job, t, i), job->head_dim, total[0], total[1], sink);
}

/* Size of the next query group. Groups are balanced: 7 queries are split into 4 and 3. */
static int next_group(int64_t left) {
    int64_t groups = ht_ceil_div_i64(left, ATTEND_QUERIES);
    return (int)ht_ceil_div_i64(left, groups);
}

/* ---- one thread per tile ---- */

static void attend_tile_page(const attend_job *job, const attend_tile *t, const thread_scratch *scratch, int64_t page,
                             const attend_tile *after) {
    attend_page p = page_at(job, t, page, after);
    int64_t queries = t->rows * job->group;
    if (job->may_convert && queries >= CONVERT_QUERIES && p.dtype != HT_F32) {
        const int32_t *pos = job->call->step->batch->pos + t->row;
        HT_ISA_NAME(ht_attend_convert)
        (&p, in_page(ht_kv_first_visible(t->layer, pos[0]), page), in_page(pos[t->rows - 1] + 1, page), scratch->k,
         scratch->v);
        p = (attend_page){
            .dtype = HT_F32, .k = scratch->k, .v = scratch->v, .v_stride = job->padded, .head_dim = job->head_dim};
    }
    for (int64_t begin = 0; begin < queries;) {
        int n = next_group(queries - begin);
        attend_group g = group_of(job, t, scratch, page, begin, n);
        HT_ISA_NAME(ht_attend_page)(&p, &g);
        for (int i = 0; i < n; i++) {
            if (g.first[i] >= g.end[i]) continue;
            float *total = scratch->totals + 2 * (begin + i);
            bool fresh = total[1] == 0.0f; /* later sums are at least 1, the weight of the maximum */
            HT_ISA_NAME(ht_attend_merge)
            (&total[0], &total[1], out_of(job, t, begin + i), job->head_dim, fresh, g.max[i], g.sum[i],
             g.out + i * job->padded);
        }
        begin += n;
    }
}

/* Tiles in descending order of work, so that short tiles balance the threads at the end. */
static attend_tile tile_of_rank(const attend_job *job, int64_t n_tiles, int64_t index) {
    return tile_at(job, n_tiles - 1 - ht_pool_rank(ht_call_pool(job->call), n_tiles, index));
}

static void attend_tiles(void *arg, int64_t begin, int64_t end, int worker) {
    const attend_job *job = arg;
    thread_scratch scratch = scratch_of(job, worker);
    int64_t n_tiles = tile_count(job);
    attend_tile next = tile_of_rank(job, n_tiles, begin);
    for (int64_t index = begin; index < end; index++) {
        const attend_tile t = next;
        if (index + 1 < n_tiles) next = tile_of_rank(job, n_tiles, index + 1);
        int64_t queries = t.rows * job->group;
        if (job->appends)
            for (int64_t row = t.row; row < t.row + t.rows; row++)
                HT_ISA_NAME(ht_attend_append_head)(job->call, t.layer, row, t.kv_head);
        pack_queries(job, &t, scratch.q);
        memset(scratch.totals, 0, (size_t)queries * 2 * sizeof(float));
        for (int64_t page = t.first_page; page < t.end_page; page++) attend_tile_page(job, &t, &scratch, page, &next);
        for (int64_t i = 0; i < queries; i++) finish(job, &t, i, scratch.totals + 2 * i);
    }
}

/* ---- tiles split by pages ---- */

typedef struct wave {
    const attend_job *job;
    int64_t n_tiles, pages, first; /* pages [first, first + pages) of every tile, relative to its first page */
} wave;

static float *slot_of(const wave *w, int64_t tile, int64_t page, int64_t query) {
    const attend_job *job = w->job;
    return job->wave + ((tile * w->pages + page) * job->group + query) * (2 + job->padded);
}

static void attend_wave(void *arg, int64_t begin, int64_t end, int worker) {
    const wave *w = arg;
    const attend_job *job = w->job;
    thread_scratch scratch = scratch_of(job, worker);
    int64_t packed = -1;
    for (int64_t index = begin; index < end; index++) {
        int64_t tile = index / w->pages, page = index % w->pages;
        attend_tile t = tile_at(job, tile);
        int64_t absolute = t.first_page + w->first + page;
        if (absolute >= t.end_page) continue;
        if (packed != tile) pack_queries(job, &t, scratch.q);
        packed = tile;
        attend_page p = page_at(job, &t, absolute, NULL);
        for (int64_t q = 0; q < job->group;) {
            int n = next_group(job->group - q);
            attend_group g = group_of(job, &t, &scratch, absolute, q, n);
            HT_ISA_NAME(ht_attend_page)(&p, &g);
            for (int i = 0; i < n; i++) {
                float *slot = slot_of(w, tile, page, q + i);
                slot[0] = g.max[i];
                slot[1] = g.sum[i];
                memcpy(slot + 2, g.out + i * job->padded, (size_t)job->padded * sizeof(float));
            }
            q += n;
        }
    }
}

static void merge_wave(const wave *w) {
    const attend_job *job = w->job;
    for (int64_t tile = 0; tile < w->n_tiles; tile++) {
        attend_tile t = tile_at(job, tile);
        for (int64_t page = 0; page < w->pages && t.first_page + w->first + page < t.end_page; page++)
            for (int64_t q = 0; q < job->group; q++) {
                float *slot = slot_of(w, tile, page, q), *total = job->totals + 2 * (tile * job->group + q);
                bool fresh = w->first + page == 0;
                HT_ISA_NAME(ht_attend_merge)
                (&total[0], &total[1], out_of(job, &t, q), job->head_dim, fresh, slot[0], slot[1], slot + 2);
            }
    }
}

static void attend_split(const attend_job *job, int64_t n_tiles, int64_t most_pages) {
    int64_t pages = ht_max_i64(1, job->wave_queries / (n_tiles * job->group));
    wave w = {.job = job, .n_tiles = n_tiles, .pages = ht_min_i64(pages, most_pages)};
    for (; w.first < most_pages; w.first += w.pages) {
        ht_pool_run(ht_call_pool(job->call), n_tiles * w.pages, 1, attend_wave, &w);
        merge_wave(&w);
    }
    for (int64_t tile = 0; tile < n_tiles; tile++) {
        attend_tile t = tile_at(job, tile);
        for (int64_t q = 0; q < job->group; q++) finish(job, &t, q, job->totals + 2 * (tile * job->group + q));
    }
}

/* ---- kernel ---- */

/* With fewer tiles, the pages of each tile are split over the threads. */
static int64_t min_unsplit_tiles(int n_threads) { return n_threads > 1 ? 4 * (int64_t)n_threads : 0; }

/* Lays out the scratch memory for the worst case: sequence lengths and the number of KV heads are unknown when it is
 * allocated. */
static size_t layout_scratch(const ht_call *call, attend_job *job) {
    const ht_view *q = &call->in[0];
    int n_threads = ht_pool_threads(ht_call_pool(call));
    *job = (attend_job){.call = call, .n_heads = q->shape[1], .head_dim = q->shape[2]};
    job->padded = attend_padded(job->head_dim);
    job->max_queries = ht_min_i64(ht_max_i64(TILE_QUERIES, job->n_heads), q->shape[0] * job->n_heads);
    job->may_convert = q->shape[0] * job->n_heads >= CONVERT_QUERIES;
    job->thread_floats = (scratch_floats(job->padded, job->max_queries, job->may_convert) + 15) / 16 * 16;
    int64_t split_tiles = ht_min_i64(min_unsplit_tiles(n_threads), q->shape[0] * job->n_heads);
    job->wave_queries = split_tiles > 0 ? ht_max_i64(WAVE_PAGES, split_tiles) * job->n_heads : 0;
    int64_t wave_floats = (job->wave_queries * (2 + job->padded) + 15) / 16 * 16;
    float *at = call->scratch;
    job->threads = at;
    if (at) job->wave = at + n_threads * job->thread_floats, job->totals = job->wave + wave_floats;
    return (size_t)(n_threads * job->thread_floats + wave_floats + split_tiles * job->n_heads * 2) * sizeof(float);
}

static size_t attend_scratch(const ht_call *call) {
    attend_job job;
    size_t vector = layout_scratch(call, &job), plain = ht_plain_attend_scratch(call);
    return ht_max_size(ht_kv_output_rows_bytes(call) + vector, plain);
}

/* Whether no tile reads keys that another tile appends. */
static bool tiles_independent(const attend_job *job) {
    const ht_batch *b = job->call->step->batch;
    for (int32_t s = 0; s < b->n_seq; s++)
        if (b->seq_start[s + 1] - b->seq_start[s] > job->tile_rows) return false;
    return true;
}

static ht_status attend(const ht_call *call, ht_error *err) {
    const ht_view *q = &call->in[0];
    const ht_attend_params *p = call->params;
    ht_status status = ht_kv_check(call, err);
    if (status != HT_OK || ht_view_size(q) == 0) return status;
    attend_job job;
    layout_scratch(call, &job);
    job.layer = &call->step->kv[0]->layer[p->layer];
    job.group = job.n_heads / job.layer->shape.n_kv_heads;

    /* Estimate of the work: every row of a tile is counted with the last row's keys. */
    job.tile_rows = 1;
    int64_t n_tiles = tile_count(&job), most_pages = 0, keys = 0;
    int n_threads = ht_pool_threads(ht_call_pool(call));
    bool split = n_tiles < min_unsplit_tiles(n_threads);
    if (!split) {
        job.tile_rows = ht_max_i64(1, TILE_QUERIES / job.group);
        while (job.tile_rows > 1 && tile_count(&job) < 2 * n_threads) job.tile_rows = (job.tile_rows + 1) / 2;
        n_tiles = tile_count(&job);
    }
    for (int64_t i = 0; i < n_tiles; i++) {
        attend_tile t = tile_at(&job, i);
        most_pages = ht_max_i64(most_pages, t.end_page - t.first_page);
        keys += t.rows * (call->step->batch->pos[t.row + t.rows - 1] + 1 -
                          ht_kv_first_visible(t.layer, call->step->batch->pos[t.row]));
    }
    split = split && most_pages > 1;
    job.appends = !split && tiles_independent(&job) && HT_ISA_NAME(ht_attend_appends_heads)(call);
    if (!job.appends) HT_ISA_NAME(ht_attend_append)(call);
    if (split)
        attend_split(&job, n_tiles, most_pages);
    else
        ht_pool_run(ht_call_pool(call), n_tiles, keys * job.group * job.head_dim < INLINE_WORK ? n_tiles : 1,
                    attend_tiles, &job);
    return HT_OK;
}

static ht_status run(const ht_call *call, ht_error *err) {
    if (call->in[0].dtype != HT_F32 || call->out.dtype != HT_F32) return ht_plain_attend(call, err);
    return ht_kv_run(call, attend, err);
}

void HT_ISA_NAME(ht_vector_attend)(ht_kernel kernels[HT_OP_COUNT]) {
    kernels[HT_OP_ATTEND] = (ht_kernel){.run = run, .scratch = attend_scratch};
}
