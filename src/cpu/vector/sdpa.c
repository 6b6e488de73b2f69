/* Scaled dot-product attention of f32, f16 and bf16 arrays by tiles of queries and blocks of keys, with an online
 * softmax: only one block of scores exists at a time. */
#include "cpu/vector/sdpa.h"

#include "cpu/call.h"
#include "cpu/reference/reference.h"
#include "cpu/vector/sdpa_ragged.h"
#include "cpu/vector/vector.h"

/* Scratch memory of one thread. */
typedef struct scratch {
    float *q, *transposed, *scores, *out;
    sdpa_rows keys, values;
} scratch;

static int64_t layout_scratch(const sdpa_shape *s, float *base, scratch *r) {
    int64_t at = 0,
            n[4] = {SDPA_ROWS * s->d_padded, SDPA_ROWS * s->d_padded, SDPA_KEYS * SDPA_ROWS, SDPA_ROWS * s->dv_padded};
    float **part[4] = {&r->q, &r->transposed, &r->scores, &r->out};
    for (int i = 0; i < 4; at += n[i++]) *part[i] = base ? base + at : NULL;
    at += sdpa_rows_init(s, &s->call->in[1], s->d, false, base ? base + at : NULL, &r->keys);
    at += sdpa_rows_init(s, &s->call->in[2], s->dv, true, base ? base + at : NULL, &r->values);
    return at;
}

static size_t sdpa_scratch(const ht_call *call) {
    if (!lanes_supports(call->in[0].dtype)) return ht_plain_sdpa_scratch(call);
    sdpa_shape s = sdpa_shape_of(call);
    scratch r;
    return (size_t)ht_pool_threads(ht_call_pool(call)) * (size_t)layout_scratch(&s, NULL, &r) * sizeof(float);
}

static void store_tile(const sdpa_shape *s, const sdpa_tile *t, const sdpa_running *run, const float *out) {
    const ht_view *to = &s->out[0];
    for (int64_t r = 0; r < t->n; r++) {
        int64_t row = t->first + r;
        int64_t at = sdpa_out_at(to, t->batch, sdpa_head(s, t, row), sdpa_query(s, row));
        v16f total = v16f_set1(run->sum[r]);
        for (int64_t i = 0; i < s->dv; i += 16)
            lanes_store(to->dtype, to->data, at + i, v16f_div(v16f_load(out + r * s->dv_padded + i), total),
                        lanes_count(s->dv - i));
    }
}

static void attend_tile(const sdpa_shape *s, const sdpa_tile *t, scratch *r) {
    sdpa_running run;
    int64_t begin, end;
    sdpa_load_rows(s, t, &s->call->in[0], s->d, s->params->scale * HT_LOG2_E, r->q);
    sdpa_transpose_rows(t, s->d_padded, r->q, r->transposed);
    sdpa_running_init(s, t, &run);
    sdpa_key_range(s, t, &begin, &end);
    if (end <= begin) memset(r->out, 0, (size_t)(t->n * s->dv_padded) * sizeof(float));
    for (int64_t j = begin; j < end; j += SDPA_KEYS) {
        int64_t m = ht_min_i64(SDPA_KEYS, end - j);
        sdpa_scores(s, t, sdpa_rows_at(s, t, &r->keys, j), m, r->transposed, r->scores);
        sdpa_mask(s, t, j, m, r->scores);
        sdpa_softmax(t, &run, m, r->scores);
        panel_operand values = sdpa_rows_at(s, t, &r->values, j);
        HT_ISA_NAME(ht_panel_multiply)
        (&(panel_product){.left = {r->scores, 1, SDPA_ROWS},
                          .b = values.at,
                          .b_step = values.row,
                          .b_panel = 16,
                          .c = r->out,
                          .c_row = s->dv_padded,
                          .m = t->n,
                          .n = s->dv_padded,
                          .k = m,
                          .mode = j == begin ? PANEL_SET : PANEL_SCALE,
                          .factor = run.factor});
    }
    store_tile(s, t, &run, r->out);
}

static void attend_tiles(void *arg, int64_t begin, int64_t end, int worker) {
    const sdpa_shape *s = arg;
    scratch r;
    layout_scratch(s, (float *)s->call->scratch + worker * layout_scratch(s, NULL, &r), &r);
    int64_t tiles = ht_ceil_div_i64(s->rows, SDPA_ROWS);
    for (int64_t i = begin; i < end; i++) {
        int64_t first = i % tiles * SDPA_ROWS, pair = i / tiles;
        sdpa_tile t = {pair / s->kv_heads, pair % s->kv_heads, first, ht_min_i64(SDPA_ROWS, s->rows - first)};
        attend_tile(s, &t, &r);
    }
}

static ht_status sdpa(const ht_call *call, ht_error *err) {
    if (!lanes_supports(call->in[0].dtype)) return ht_plain_scaled_dot_product_attention(call, err);
    sdpa_shape s = sdpa_shape_of(call);
    if (ht_view_size(&call->out) == 0) return HT_OK;
    ht_pool_run(ht_call_pool(call), s.batch * s.kv_heads * ht_ceil_div_i64(s.rows, SDPA_ROWS), 1, attend_tiles, &s);
    return HT_OK;
}

/* ---- flat rows of many sequences ---- */

typedef struct ragged_job {
    const ht_call *call;
    ht_ragged runs;
    int64_t *tiles; /* [runs.n + 1] tiles of one KV head before each run */
    float *scratch;
    int64_t floats; /* of one thread */
} ragged_job;

static size_t attend_rows_scratch(const ht_call *call) {
    sdpa_sequence whole;
    scratch r;
    sdpa_whole(call, &whole);
    const size_t tiles = ((size_t)call->in[0].shape[0] + 1) * sizeof(int64_t);
    return ht_ragged_bytes(call) + (tiles + 63) / 64 * 64 +
           (size_t)ht_pool_threads(ht_call_pool(call)) * (size_t)layout_scratch(&whole.shape, NULL, &r) * sizeof(float);
}

static void attend_row_tiles(void *arg, int64_t begin, int64_t end, int worker) {
    const ragged_job *job = arg;
    const int64_t kv_heads = job->call->in[1].shape[1];
    sdpa_sequence sequence;
    scratch r;
    sdpa_whole(job->call, &sequence);
    layout_scratch(&sequence.shape, job->scratch + worker * job->floats, &r);
    int64_t run = -1;
    for (int64_t i = begin; i < end; i++) {
        const int64_t before = run;
        run = ht_max_i64(run, 0);
        while (i >= job->tiles[run + 1] * kv_heads) run++;
        if (run != before) {
            sdpa_sequence_of(job->call, &job->runs, run, &job->call->out, 1, &sequence);
            r.keys.view = &sequence.in[1];
            r.values.view = &sequence.in[2];
        }
        const int64_t tiles = job->tiles[run + 1] - job->tiles[run], at = i - job->tiles[run] * kv_heads;
        const int64_t first = at % tiles * SDPA_ROWS;
        /* The run number as the batch index: keys copied for one run must not be reused for another. */
        sdpa_tile t = {run, at / tiles, first, ht_min_i64(SDPA_ROWS, sequence.shape.rows - first)};
        attend_tile(&sequence.shape, &t, &r);
    }
}

static ht_status attend_rows(const ht_call *call, ht_error *err) {
    if (ht_view_size(&call->out) == 0) return HT_OK;
    sdpa_sequence whole;
    scratch r;
    ragged_job job = {.call = call};
    ht_status status = ht_ragged_find(call, call->scratch, &job.runs, err);
    if (status) return status;
    sdpa_whole(call, &whole);
    job.floats = layout_scratch(&whole.shape, NULL, &r);
    job.tiles = (int64_t *)(void *)((char *)call->scratch + ht_ragged_bytes(call));
    const size_t tiles = ((size_t)call->in[0].shape[0] + 1) * sizeof(int64_t);
    job.scratch = (float *)(void *)((char *)job.tiles + (tiles + 63) / 64 * 64);
    job.tiles[0] = 0;
    for (int64_t i = 0; i < job.runs.n; i++) {
        const int64_t rows = (job.runs.start[i + 1] - job.runs.start[i]) * whole.shape.group;
        job.tiles[i + 1] = job.tiles[i] + ht_ceil_div_i64(rows, SDPA_ROWS);
    }
    ht_pool_run(ht_call_pool(call), job.tiles[job.runs.n] * whole.shape.kv_heads, 1, attend_row_tiles, &job);
    return HT_OK;
}

void HT_ISA_NAME(ht_vector_sdpa)(ht_kernel kernels[HT_OP_COUNT]) {
    kernels[HT_OP_ATTEND_ROWS] = (ht_kernel){.run = attend_rows, .scratch = attend_rows_scratch};
    kernels[HT_OP_SDPA] = (ht_kernel){.run = sdpa, .scratch = sdpa_scratch};
}
