#include "cpu/coarse_head.h"

#include "base/checked.h"
#include "cpu/matrix_ops.h"
#include "cpu/pack_types.h"
#include "formats/blocks.h"

#include <math.h>
#include <string.h>

enum {
    REST_MAX = (1 << HT_FINE_BITS_UNIT) - 1,
    TOP_MOST = 128,     /* largest top_k; beyond it, too few panels are skipped */
    MORE_SEEDS = 15,    /* panels computed for the threshold, in addition to top_k */
    PANELS_PER_SEED = 8 /* fewest for which the search pays */
};
/* Largest scale of activations. Beyond it an output could overflow although its bound does not. */
#define SCALE_MOST 1e20f

/* ---- the form ---- */

ht_coarse_panels ht_coarse_panels_at(const ht_matrix *m, int64_t panel) {
    int64_t n_blocks = m->k / HT_QBLOCK;
    const uint8_t *first = m->packed,
                  *rest = first + (size_t)ht_panel_count(m->n_rows) * ht_coarse_head_coarse_bytes(n_blocks);
    return (ht_coarse_panels){first + (size_t)panel * ht_coarse_head_coarse_bytes(n_blocks),
                              rest + (size_t)panel * ht_coarse_head_fine_bytes(n_blocks)};
}

size_t ht_coarse_head_bytes(ht_weight_type type, int64_t n_rows, int64_t k) {
    (void)type;
    int64_t n_blocks = k / HT_QBLOCK;
    return (size_t)ht_panel_count(n_rows) *
           (ht_coarse_head_coarse_bytes(n_blocks) + ht_coarse_head_fine_bytes(n_blocks));
}

size_t ht_coarse_head_top_bytes(const ht_matrix *m) {
    return (size_t)ht_panel_count(m->n_rows) * ht_coarse_head_coarse_bytes(m->k / HT_QBLOCK);
}

static void pack_panel(const ht_matrix *m, int64_t panel, int n, const uint8_t *stored, size_t row_bytes) {
    static const uint8_t missing[sizeof(ht_block_q8_0)];
    int64_t n_blocks = m->k / HT_QBLOCK;
    ht_coarse_panels at = ht_coarse_panels_at(m, panel);
    uint8_t *first = (uint8_t *)(uintptr_t)at.first, *rest = (uint8_t *)(uintptr_t)at.rest;
    uint8_t *scales = first + n_blocks * 64 * HT_COARSE_BITS_UNIT, *end = first + ht_coarse_head_coarse_bytes(n_blocks);
    const uint8_t *row[HT_PANEL];
    for (int r = 0; r < HT_PANEL; r++) row[r] = r < n ? stored + (size_t)r * row_bytes : missing;
    for (int64_t b = 0; b < n_blocks; b++, scales += HT_COARSE_SCALES) {
        ht_pack_coarse_block(row, first, rest, scales);
        first += 64 * HT_COARSE_BITS_UNIT;
        rest += 64 * HT_FINE_BITS_UNIT;
        for (int r = 0; r < n; r++) row[r] += sizeof(ht_block_q8_0);
    }
    memset(scales, 0, (size_t)(end - scales));
}

ht_status ht_coarse_head_pack(ht_matrix *m, int64_t row, int64_t n, const void *stored, ht_error *err) {
    (void)err;
    size_t row_bytes = (size_t)(m->k / HT_QBLOCK) * sizeof(ht_block_q8_0);
    const uint8_t *from = stored;
    for (int64_t done = 0; done < n; done += HT_PANEL, from += HT_PANEL * row_bytes)
        pack_panel(m, (row + done) / HT_PANEL, (int)ht_min_i64(HT_PANEL, n - done), from, row_bytes);
    return HT_OK;
}

ht_status ht_coarse_head_row(const ht_matrix *m, int64_t row, float *out, ht_error *err) {
    (void)err;
    ht_coarse_panels at = ht_coarse_panels_at(m, row / HT_PANEL);
    const uint8_t *scales = at.first + m->k / HT_QBLOCK * 64 * HT_COARSE_BITS_UNIT;
    int r = (int)(row % HT_PANEL);
    for (int64_t b = 0; b < m->k / HT_QBLOCK; b++, scales += HT_COARSE_SCALES, out += HT_QBLOCK) {
        ht_block_q8_0 block;
        memcpy(&block.d, scales + 2 * r, sizeof block.d);
        for (int i = 0; i < HT_QBLOCK; i++) {
            int high =
                ht_panel_weight(HT_COARSE_BITS_UNIT, at.first + b * 64 * HT_COARSE_BITS_UNIT, i / 4, 4 * r + i % 4);
            int low = ht_panel_weight(HT_FINE_BITS_UNIT, at.rest + b * 64 * HT_FINE_BITS_UNIT, i / 4, 4 * r + i % 4);
            block.qs[i] = (int8_t)((high << HT_FINE_BITS_UNIT | low) - 128);
        }
        ht_dequantize(HT_W_Q8_0, &block, HT_QBLOCK, out);
    }
    return HT_OK;
}

/* ---- the highest outputs ---- */

typedef struct seed {
    float bound;
    int32_t panel;
} seed;

typedef struct top_job {
    const ht_gemm_schedule *s;
    const ht_gemm *p;
    int64_t n_panels;
    int32_t *offset; /* [n_blocks] */
    float *bound;    /* [n_panels]; NAN: the panel's outputs are computed */
    seed *seeds;     /* [n_seeds], highest bound first */
    int32_t n_seeds;
    float threshold;
} top_job;

static size_t lay_top(const ht_matrix *m, void *scratch, top_job *job) {
    ht_scratch_layout d = {.at = scratch};
    job->offset = ht_scratch_take(&d, m->k / HT_QBLOCK, sizeof *job->offset);
    job->bound = ht_scratch_take(&d, ht_panel_count(m->n_rows), sizeof *job->bound);
    job->seeds = ht_scratch_take(&d, TOP_MOST + MORE_SEEDS, sizeof *job->seeds);
    return d.used;
}

size_t ht_coarse_head_top_scratch(const ht_matrix *m) { return lay_top(m, NULL, &(top_job){0}); }

static const ht_qrows *rows_of(const top_job *job) { return &job->s->x[job->s->of[0].form]; }

static top_job job_of(const ht_gemm_schedule *s) {
    top_job job = {.s = s, .p = s->product, .n_panels = ht_panel_count(s->product->m->n_rows)};
    lay_top(s->product->m, s->top, &job);
    return job;
}

/* Computes the start values of the integer sums; false when a scale exceeds SCALE_MOST or is NaN. */
static bool prepare(top_job *job) {
    const ht_qrows *x = rows_of(job);
    for (int64_t b = 0; b < x->n_blocks; b++) {
        int32_t start = 0;
        for (int p = 0; p < x->planes; p++) {
            const int64_t at = b * x->planes + p;
            const int32_t *sum = x->sum + 2 * b * x->planes + p; /* of the first half of the block */
            int32_t positive = 0;
            for (int i = 0; i < HT_QBLOCK; i++) {
                int8_t q = x->q[HT_QBLOCK * at + i];
                if (q > 0) positive += q;
            }
            start = start * HT_PLANE_STEP + REST_MAX * positive - 128 * (sum[0] + sum[x->planes]);
            if (!(x->scale[at] <= SCALE_MOST)) return false;
        }
        job->offset[b] = start;
    }
    return true;
}

static void find_bounds(void *arg, int64_t begin, int64_t end, int worker) {
    (void)worker;
    const top_job *job = arg;
    const ht_qrows *x = rows_of(job);
    job->s->kernels->coarse_bounds(ht_coarse_panels_at(job->p->m, begin).first, x->n_blocks, end - begin, x->planes,
                                   x->q, x->scale, job->offset, job->bound + begin);
}

static void choose_seeds(top_job *job) {
    int32_t n = 0;
    float lowest = -INFINITY; /* lowest bound among the seeds */
    for (int64_t p = 0; p < job->n_panels; p++) {
        float bound = job->bound[p];
        if (n == job->n_seeds && !(bound > lowest)) continue;
        int32_t at = n < job->n_seeds ? n++ : n - 1;
        for (; at > 0 && job->seeds[at - 1].bound < bound; at--) job->seeds[at] = job->seeds[at - 1];
        job->seeds[at] = (seed){bound, (int32_t)p};
        lowest = job->seeds[n - 1].bound;
    }
}

static void multiply(const top_job *job, int64_t panel, int64_t n) {
    const ht_gemm *p = job->p;
    ht_qtiles tiles = {rows_of(job), job->s->of[0].offset, 0, 1};
    ht_gemm_out out = {.y = p->y, .ldy = p->ldy, .row = panel * HT_PANEL};
    out.n = ht_min_i64(n * HT_PANEL, p->m->n_rows - out.row);
    job->s->kernels->coarse_direct(ht_coarse_panels_at(p->m, panel), p->m->k, &tiles, &out);
}

static void multiply_seeds(void *arg, int64_t begin, int64_t end, int worker) {
    (void)worker;
    const top_job *job = arg;
    for (int64_t i = begin; i < end; i++) {
        multiply(job, job->seeds[i].panel, 1);
        job->bound[job->seeds[i].panel] = NAN;
    }
}

/* The top_k-th highest output of the seeds; false when an output is not finite or the threshold is not above
 * HT_MASKED_LOGIT. */
static bool find_threshold(top_job *job) {
    float top[TOP_MOST];
    int32_t n = 0, k = job->p->top_k;
    for (int32_t i = 0; i < job->n_seeds; i++) {
        int64_t row = (int64_t)job->seeds[i].panel * HT_PANEL, end = ht_min_i64(row + HT_PANEL, job->p->m->n_rows);
        for (; row < end; row++) {
            float y = job->p->y[row];
            if (!isfinite(y)) return false;
            if (n == k && !(y > top[k - 1])) continue;
            int32_t at = n < k ? n++ : n - 1;
            for (; at > 0 && top[at - 1] < y; at--) top[at] = top[at - 1];
            top[at] = y;
        }
    }
    job->threshold = n == k ? top[k - 1] : HT_MASKED_LOGIT;
    return job->threshold > HT_MASKED_LOGIT;
}

static bool reaches(const top_job *job, int64_t panel) { return job->bound[panel] >= job->threshold; }

static void multiply_rest(void *arg, int64_t begin, int64_t end, int worker) {
    (void)worker;
    const top_job *job = arg;
    for (int64_t p = begin; p < end;) {
        int64_t first = p;
        while (p < end && reaches(job, p)) p++;
        if (p > first) multiply(job, first, p - first);
        for (; p < end && !reaches(job, p); p++) {
            if (isnan(job->bound[p])) continue;
            int64_t row = p * HT_PANEL, last = ht_min_i64(row + HT_PANEL, job->p->m->n_rows);
            for (; row < last; row++) job->p->y[row] = HT_MASKED_LOGIT;
        }
    }
}

bool ht_coarse_head_top(const ht_gemm_schedule *s, ht_pool *pool) {
    const ht_gemm *p = s->product;
    if (s->n != 1 || s->n_x != 1 || !ht_is_coarse_head(p->m) || p->bias || p->top_k < 1 || p->top_k > TOP_MOST)
        return false;
    top_job job = job_of(s);
    job.n_seeds = p->top_k + MORE_SEEDS;
    if (job.n_panels < PANELS_PER_SEED * job.n_seeds || !prepare(&job)) return false;
    int64_t grain = ht_max_i64(1, job.n_panels / ((int64_t)ht_pool_threads(pool) * HT_PANEL_PIECES_PER_THREAD));
    ht_pool_run(pool, job.n_panels, grain, find_bounds, &job);
    choose_seeds(&job);
    ht_pool_run(pool, job.n_seeds, 1, multiply_seeds, &job);
    if (!find_threshold(&job)) return false;
    ht_pool_run(pool, job.n_panels, grain, multiply_rest, &job);
    return true;
}
