/* Attention of few queries, as in decoding, bound by reading K and V once.
 *
 * Scores are [rows][SDPA_KEYS], so lanes are keys, which are transposed sixteen at a time. Keys are split into spans
 * with their own maximum, sum and output, so that several threads can share a head; spans are merged in order. The
 * split depends on the number of keys alone, so results do not depend on the number of threads. */
#include "cpu/vector/sdpa_few.h"

#include "cpu/call.h"
#include "cpu/vector/operand_packing.h"
#include "cpu/vector/sdpa.h"

enum {
    SPAN = 4 * SDPA_KEYS,
    DOT_ROWS = 2,         /* most queries for which dot products are cheaper than transposed keys */
    INLINE_WORK = 1 << 16 /* multiply-adds that take less time than waking a thread */
};

/* Results of one span: maximum, weight sum and weighted sum of V per query. */
typedef struct few_part {
    float *max, *sum, *out; /* [rows], [rows], [rows][dv_padded] */
} few_part;

/* Scratch memory of one thread. */
typedef struct few_scratch {
    float *q;      /* [rows][d_padded] */
    float *keys;   /* [SDPA_KEYS / 16][d][16], and excess lanes written by packing */
    float *scores; /* [rows][SDPA_KEYS] */
    float *values; /* [SDPA_KEYS][dv_padded], unless V is read in place */
} few_scratch;

typedef struct few_job {
    sdpa_shape s;
    int64_t n_spans;
    int64_t scratch_floats, part_floats; /* per thread, per span */
    float *scratches, *parts;
    bool values_in_place;
} few_job;

static few_job job_of(const ht_call *call) {
    few_job job = {.s = sdpa_shape_of(call)};
    const sdpa_shape *s = &job.s;
    job.n_spans = ht_max_i64(1, ht_ceil_div_i64(s->n_k, SPAN));
    job.values_in_place = sdpa_in_place(&call->in[2], s->dv, true);
    job.part_floats = 2 * SDPA_FEW_ROWS + s->rows * s->dv_padded;
    job.scratch_floats =
        s->rows * (s->d_padded + SDPA_KEYS) + SDPA_KEYS * (s->d + (job.values_in_place ? 0 : s->dv_padded));
    job.scratches = call->scratch;
    job.parts = job.scratches ? job.scratches + ht_pool_threads(ht_call_pool(call)) * job.scratch_floats : NULL;
    return job;
}

size_t HT_ISA_NAME(ht_sdpa_few_scratch)(const ht_call *call) {
    few_job job = job_of(call);
    return (size_t)(ht_pool_threads(ht_call_pool(call)) * job.scratch_floats +
                    job.s.batch * job.s.kv_heads * job.n_spans * job.part_floats) *
           sizeof(float);
}

static few_scratch scratch_of(const few_job *job, int worker) {
    const sdpa_shape *s = &job->s;
    few_scratch r = {.q = job->scratches + worker * job->scratch_floats};
    r.scores = r.q + s->rows * s->d_padded;
    r.keys = r.scores + s->rows * SDPA_KEYS;
    r.values = r.keys + SDPA_KEYS * s->d;
    return r;
}

static few_part part_of(const few_job *job, int64_t index) {
    float *at = job->parts + index * job->part_floats;
    return (few_part){at, at + SDPA_FEW_ROWS, at + 2 * SDPA_FEW_ROWS};
}

/* ---- scores ---- */

/* Scores of n_rows queries for sixteen keys, of which n exist; keys are contiguous, of d elements in whole vectors. */
HT_INLINE void dot_sixteen(ht_dtype dtype, int n_rows, const float *q, int64_t d, const packing_operand *keys,
                           int64_t first, int n, float *scores) {
    float scratch[DOT_ROWS][4][16];
    for (int quad = 0; quad < 4; quad++) {
        v16f sum[DOT_ROWS][4];
        int64_t at[4];
        HT_UNROLL
        for (int i = 0; i < 4; i++) at[i] = keys->offset + (first + ht_min_i64(4 * quad + i, n - 1)) * keys->line;
        HT_UNROLL
        for (int r = 0; r < n_rows; r++) HT_UNROLL
        for (int i = 0; i < 4; i++) sum[r][i] = v16f_zero();
        for (int64_t c = 0; c < d; c += 16) {
            HT_UNROLL
            for (int i = 0; i < 4; i++) {
                v16f key = lanes_load(dtype, keys->data, at[i] + c, 1, 16);
                HT_UNROLL
                for (int r = 0; r < n_rows; r++) sum[r][i] = v16f_fma(key, v16f_load(q + r * d + c), sum[r][i]);
            }
        }
        HT_UNROLL
        for (int r = 0; r < n_rows; r++) { /* lane 4 g + i: sum of lanes 4 g .. 4 g + 3 of key i */
            v16f_transpose_quads(sum[r]);
            v16f_store(scratch[r][quad], v16f_add(v16f_add(sum[r][0], sum[r][1]), v16f_add(sum[r][2], sum[r][3])));
        }
    }
    HT_UNROLL
    for (int r = 0; r < n_rows; r++) {
        v16f part[4];
        HT_UNROLL
        for (int g = 0; g < 4; g++)
            part[g] = v16f_load_quads(scratch[r][0] + 4 * g, scratch[r][1] + 4 * g, scratch[r][2] + 4 * g,
                                      scratch[r][3] + 4 * g);
        v16f_store(scores + r * SDPA_KEYS, v16f_add(v16f_add(part[0], part[1]), v16f_add(part[2], part[3])));
    }
}

static void dot_keys(const sdpa_shape *s, const packing_operand *keys, int64_t begin, int64_t m, const float *q,
                     float *scores) {
    const bool one = s->rows == 1;
#define DOT_KEYS(dtype)                                                                                                \
    for (int64_t j = 0; j < m; j += 16) {                                                                              \
        if (one)                                                                                                       \
            dot_sixteen(dtype, 1, q, s->d, keys, begin + j, lanes_count(m - j), scores + j);                           \
        else                                                                                                           \
            dot_sixteen(dtype, DOT_ROWS, q, s->d, keys, begin + j, lanes_count(m - j), scores + j);                    \
    }
    switch (keys->dtype) {
    case HT_F16: DOT_KEYS(HT_F16) break;
    case HT_BF16: DOT_KEYS(HT_BF16) break;
    default: DOT_KEYS(HT_F32)
    }
#undef DOT_KEYS
}

/* Unmasked scores of all queries for m keys from `begin` on. */
static void score(const sdpa_shape *s, const sdpa_tile *t, int64_t begin, int64_t m, const few_scratch *scratch) {
    const ht_view *k = &s->call->in[1];
    const packing_operand keys = {.dtype = k->dtype,
                                  .data = k->data,
                                  .offset = t->batch * k->stride[0] + t->head * k->stride[1],
                                  .line = k->stride[2],
                                  .step = k->stride[3],
                                  .n = s->n_k};
    if (s->rows <= DOT_ROWS && k->stride[3] == 1 && s->d % 16 == 0) {
        dot_keys(s, &keys, begin, m, scratch->q, scratch->scores);
        return;
    }
    for (int64_t j = 0; j < m; j += 16)
        for (int64_t i = 0; i < s->d; i += PACKING_STEPS)
            packing_pack(&keys, begin + j, lanes_count(m - j), i, ht_min_i64(PACKING_STEPS, s->d - i),
                         scratch->keys + j * s->d + 16 * i, 16);
    HT_ISA_NAME(ht_panel_multiply)
    (&(panel_product){.left = {scratch->q, s->d_padded, 1},
                      .b = scratch->keys,
                      .b_step = 16,
                      .b_panel = 16 * s->d,
                      .c = scratch->scores,
                      .c_row = SDPA_KEYS,
                      .m = t->n,
                      .n = sdpa_padded(m),
                      .k = s->d,
                      .mode = PANEL_SET});
}

/* Applies all masks to query r's scores of m keys from `begin` on, and hides the padding lanes. */
static void mask_row(const sdpa_shape *s, const sdpa_tile *t, int64_t r, int64_t begin, int64_t m, float *scores) {
    const ht_view *mask = &s->call->in[3];
    const int64_t query = sdpa_query(s, r), head = sdpa_head(s, t, r);
    if (!ht_view_absent(mask)) {
        int64_t at = t->batch * mask->stride[0] + head * mask->stride[1] + query * mask->stride[2];
        at += begin * mask->stride[3];
        for (int64_t j = 0; j < m; j += 16) {
            v16f x = sdpa_mask_lanes(mask, at + j * mask->stride[3], lanes_count(m - j));
            v16f_store(scores + j, sdpa_masked(mask->dtype, x, v16f_load(scores + j)));
        }
    }
    int64_t first = ht_min_i64(m, sdpa_first(s, query) - begin), last = sdpa_last(s, query) - begin;
    for (int64_t j = 0; j < first; j++) scores[j] = -FLT_MAX;
    for (int64_t j = ht_max_i64(0, last + 1); j < m; j++) scores[j] = -FLT_MAX;
    for (int64_t j = m; j < sdpa_padded(m); j++) scores[j] = -INFINITY;
}

/* Replaces a query's scores by weights relative to the new maximum; returns the factor for earlier sums. */
static float softmax_row(float *x, int64_t m, float *max, float *sum) {
    const v16f old = v16f_set1(*max);
    v16f most = old, total = v16f_zero();
    for (int64_t j = 0; j < m; j += 16) most = v16f_max(v16f_load(x + j), most);
    most = v16f_set1(v16f_hmax(most));
    const v16f from = v16f_select(v16f_eq(most, v16f_set1(-INFINITY)), v16f_zero(), most);
    for (int64_t j = 0; j < m; j += 16) {
        v16f w = sdpa_exp2(v16f_sub(v16f_load(x + j), from));
        v16f_store(x + j, w);
        total = v16f_add(total, w);
    }
    float factor[16], now[16];
    v16f_store(factor, sdpa_exp2(v16f_sub(old, from)));
    v16f_store(now, most);
    *max = now[0];
    *sum = *sum * factor[0] + v16f_sum(total);
    return factor[0];
}

/* ---- spans ---- */

static panel_operand values_at(const few_job *job, const sdpa_tile *t, int64_t begin, int64_t m, float *scratch) {
    const sdpa_shape *s = &job->s;
    const ht_view *v = &s->call->in[2];
    int64_t at = t->batch * v->stride[0] + t->head * v->stride[1] + begin * v->stride[2];
    if (job->values_in_place) return (panel_operand){(const float *)v->data + at, v->stride[2], 1};
    panel_load(v->dtype, v->data, at, v->stride[2], v->stride[3], m, s->dv, scratch, s->dv_padded, 1.0f);
    return (panel_operand){scratch, s->dv_padded, 1};
}

/* Attends to keys [begin, end) of one span. */
static void attend_span(const few_job *job, const sdpa_tile *t, int64_t begin, int64_t end, const few_scratch *scratch,
                        const few_part *part) {
    const sdpa_shape *s = &job->s;
    float factor[SDPA_FEW_ROWS];
    for (int64_t r = 0; r < t->n; r++) {
        part->max[r] = -INFINITY;
        part->sum[r] = 0.0f;
    }
    if (end <= begin) memset(part->out, 0, (size_t)(t->n * s->dv_padded) * sizeof(float));
    for (int64_t j = begin; j < end; j += SDPA_KEYS) {
        const int64_t m = ht_min_i64(SDPA_KEYS, end - j), padded = sdpa_padded(m);
        score(s, t, j, m, scratch);
        for (int64_t r = 0; r < t->n; r++) {
            mask_row(s, t, r, j, m, scratch->scores + r * SDPA_KEYS);
            factor[r] = softmax_row(scratch->scores + r * SDPA_KEYS, padded, &part->max[r], &part->sum[r]);
        }
        panel_operand values = values_at(job, t, j, m, scratch->values);
        HT_ISA_NAME(ht_panel_multiply)
        (&(panel_product){.left = {scratch->scores, SDPA_KEYS, 1},
                          .b = values.at,
                          .b_step = values.row,
                          .b_panel = 16,
                          .c = part->out,
                          .c_row = s->dv_padded,
                          .m = t->n,
                          .n = s->dv_padded,
                          .k = m,
                          .mode = j == begin ? PANEL_SET : PANEL_SCALE,
                          .factor = factor});
    }
}

/* ---- results ---- */

static float exp2_of(float x) {
    float scratch[16];
    v16f_store(scratch, sdpa_exp2(v16f_set1(x)));
    return scratch[0];
}

/* Merges the spans of the tile's query r. */
static void merge_row(const few_job *job, const sdpa_tile *t, int64_t pair, int64_t r) {
    const sdpa_shape *s = &job->s;
    const ht_view *sinks = &s->call->in[4], *to = &s->call->out;
    const int64_t head = sdpa_head(s, t, r);
    float max = -INFINITY, total = 0.0f, factor[16];
    if (!ht_view_absent(sinks)) {
        v16f_store(factor, lanes_load(sinks->dtype, sinks->data, head * sinks->stride[0], 1, 1));
        max = factor[0] * HT_LOG2_E;
    }
    const float sink = max;
    for (int64_t i = 0; i < job->n_spans; i++) {
        const float of_span = part_of(job, pair * job->n_spans + i).max[r];
        max = of_span > max ? of_span : max;
    }
    const float from = max == -INFINITY ? 0.0f : max;
    if (!ht_view_absent(sinks)) total = exp2_of(sink - from);
    for (int64_t i = 0; i < job->n_spans; i++) {
        const few_part part = part_of(job, pair * job->n_spans + i);
        total += part.sum[r] * exp2_of(part.max[r] - from);
    }
    const int64_t at = ((t->batch * s->heads + head) * s->n_q + sdpa_query(s, r)) * s->dv;
    for (int64_t c = 0; c < s->dv; c += 16) {
        v16f sum = v16f_zero();
        for (int64_t i = 0; i < job->n_spans; i++) {
            const few_part part = part_of(job, pair * job->n_spans + i);
            v16f weight = sdpa_exp2(v16f_set1(part.max[r] - from));
            sum = v16f_fma(v16f_load(part.out + r * s->dv_padded + c), weight, sum);
        }
        lanes_store(to->dtype, to->data, at + c, v16f_div(sum, v16f_set1(total)), lanes_count(s->dv - c));
    }
}

static sdpa_tile tile_of(const sdpa_shape *s, int64_t pair) {
    return (sdpa_tile){pair / s->kv_heads, pair % s->kv_heads, 0, s->rows};
}

static void merge_pairs(void *arg, int64_t begin, int64_t end, int worker) {
    (void)worker;
    const few_job *job = arg;
    for (int64_t pair = begin; pair < end; pair++) {
        const sdpa_tile t = tile_of(&job->s, pair);
        for (int64_t r = 0; r < t.n; r++) merge_row(job, &t, pair, r);
    }
}

static void attend_spans(void *arg, int64_t begin, int64_t end, int worker) {
    const few_job *job = arg;
    const sdpa_shape *s = &job->s;
    const few_scratch scratch = scratch_of(job, worker);
    for (int64_t i = begin; i < end; i++) {
        const int64_t pair = i / job->n_spans, first = i % job->n_spans * SPAN;
        const sdpa_tile t = tile_of(s, pair);
        const few_part part = part_of(job, i);
        int64_t from, to;
        sdpa_key_range(s, &t, &from, &to);
        sdpa_load_rows(s, &t, &s->call->in[0], s->d, s->params->scale * HT_LOG2_E, scratch.q);
        attend_span(job, &t, ht_max_i64(first, from), ht_min_i64(first + SPAN, to), &scratch, &part);
        if (job->n_spans == 1) merge_pairs(arg, pair, pair + 1, worker);
    }
}

void HT_ISA_NAME(ht_sdpa_few)(const ht_call *call) {
    few_job job = job_of(call);
    const sdpa_shape *s = &job.s;
    const int64_t pairs = s->batch * s->kv_heads, spans = pairs * job.n_spans;
    const int64_t of_span = ht_max_i64(1, s->rows * ht_min_i64(SPAN, s->n_k) * (s->d + s->dv));
    ht_pool_run(ht_call_pool(call), spans, ht_max_i64(1, INLINE_WORK / of_span), attend_spans, &job);
    if (job.n_spans > 1)
        ht_pool_run(ht_call_pool(call), pairs, ht_max_i64(1, INLINE_WORK / of_span), merge_pairs, &job);
}
