#include "cpu/head_loss.h"

#include "base/checked.h"
#include "base/error.h"
#include "cpu/call.h"
#include "cpu/element.h"
#include "cpu/matrix_ops.h"
#include "cpu/scratch_layout.h"
#include "cpu/strided_iterator.h"
#include "cpu/wide_slab.h"
#include "device/params.h"

#include <math.h>
#include <string.h>

/* Logits of a slab follow an unused slab: the dense kernel adds to y at columns > 0 only, and takes x at column 0. */
enum { LOGITS_ROW = 2 * HT_SLAB };

/* Rows that have a target, gathered without gaps. */
typedef struct job {
    const ht_call *call;
    const ht_head_loss_params *params;
    const ht_matrix_kernels *kernels;
    int64_t n; /* of them */
    int64_t k;
    int32_t *row, *target;
    float *x, *dx;        /* [n][k] */
    float *logits;        /* [n][LOGITS_ROW] */
    float *picked;        /* [n]: the target's logit */
    ht_loss_state *state; /* [n] */
    ht_wide_slab slab;
    int64_t x_parts;
} job;

static int64_t rows_of(const ht_call *call) { return call->in[0].shape[0]; }

/* The whole layout for T rows, all of which may have a target. */
static size_t lay_out(job *j, const ht_call *call, bool backward) {
    const ht_matrix *m = j->params->matrix;
    const int64_t t = rows_of(call), threads = ht_pool_threads(ht_call_pool(call));
    ht_scratch_layout d = {.at = call->scratch};
    j->row = ht_scratch_take(&d, t, sizeof *j->row);
    j->target = ht_scratch_take(&d, t, sizeof *j->target);
    j->state = ht_scratch_take(&d, t, sizeof *j->state);
    j->picked = ht_scratch_take(&d, t, sizeof *j->picked);
    j->x = ht_scratch_take(&d, t * m->k, sizeof *j->x);
    j->dx = backward ? ht_scratch_take(&d, t * m->k, sizeof *j->dx) : NULL;
    j->logits = ht_scratch_take(&d, t * LOGITS_ROW, sizeof *j->logits);
    j->slab = (ht_wide_slab){.m = m};
    j->slab.rows = ht_scratch_take(&d, ht_slab_floats(m), sizeof(float));
    j->slab.columns = backward ? ht_scratch_take(&d, ht_slab_floats(m), sizeof(float)) : NULL;
    j->slab.room = ht_scratch_take(&d, threads * ht_slab_room(m), sizeof(float));
    return d.used;
}

static size_t scratch_of(const ht_call *call, bool backward) {
    job j = {.params = call->params};
    ht_call measured = *call;
    measured.scratch = NULL;
    return lay_out(&j, &measured, backward);
}
size_t ht_cpu_head_loss_scratch(const ht_call *call) { return scratch_of(call, false); }
size_t ht_cpu_head_loss_grad_scratch(const ht_call *call) { return scratch_of(call, true); }

static float f32_at(const ht_view *v, int64_t i) {
    return ht_get_f32(v->dtype, v->data, ht_view_offset(v, v->n_dims, i));
}

static ht_status collect_rows(job *j, ht_error *err) {
    const ht_view *x = &j->call->in[0], *targets = &j->call->in[1];
    for (int64_t i = 0; i < rows_of(j->call); i++) {
        const int64_t target = ht_get_int(targets->dtype, targets->data, ht_view_offset(targets, 1, i));
        if (target < 0) continue;
        if (target >= j->params->matrix->n_rows)
            return ht_fail(err, HT_ERR_ARGUMENT, "target %lld of row %lld is outside the vocabulary of %lld",
                           (long long)target, (long long)i, (long long)j->params->matrix->n_rows);
        j->row[j->n] = (int32_t)i;
        j->target[j->n] = (int32_t)target;
        j->state[j->n] = (ht_loss_state){-INFINITY, 0};
        for (int64_t c = 0; c < j->k; c++)
            j->x[j->n * j->k + c] = ht_get_f32(x->dtype, x->data, i * x->stride[0] + c * x->stride[1]);
        j->n++;
    }
    return HT_OK;
}

static ht_status begin(job *j, const ht_call *call, bool backward, ht_error *err) {
    *j = (job){.call = call, .params = call->params};
    j->kernels = ht_kernels_of(j->params->matrix);
    j->k = j->params->matrix->k;
    (void)lay_out(j, call, backward);
    ht_status status = collect_rows(j, err);
    const int64_t tiles = ht_ceil_div_i64(j->n, j->kernels->tile_rows[0]);
    j->x_parts = ht_max_i64(1, ht_min_i64(4 * (int64_t)ht_pool_threads(ht_call_pool(call)), tiles));
    return status;
}

/* Tiles [first, last) of a part of the rows. */
static void tiles_of(const job *j, int64_t part, int64_t *first, int64_t *last) {
    const int64_t tiles = ht_ceil_div_i64(j->n, j->kernels->tile_rows[0]);
    *first = part * tiles / j->x_parts;
    *last = (part + 1) * tiles / j->x_parts;
}

/* The products of the slab: pieces are groups of its panels by parts of the rows. */
static void multiply_logits(void *arg, int64_t begin, int64_t end, int worker) {
    (void)worker;
    const job *j = arg;
    const ht_matrix_kernels *kernels = j->kernels;
    const int64_t tile = kernels->tile_rows[0], columns = ht_slab_columns(j->slab.m);
    for (int64_t piece = begin; piece < end; piece++) {
        int64_t first, last;
        const int64_t panel = piece / j->x_parts * kernels->tile_panels;
        tiles_of(j, piece % j->x_parts, &first, &last);
        for (int64_t c = 0; c < j->k; c += HT_DENSE_CHUNK)
            for (int64_t i = first * tile; i < ht_min_i64(last * tile, j->n); i += tile) {
                const ht_gemm_out out = {
                    .y = j->logits + i * LOGITS_ROW + HT_SLAB,
                    .ldy = LOGITS_ROW,
                    .row = panel * HT_PANEL,
                    .n = ht_min_i64(kernels->tile_panels * HT_PANEL, j->slab.n_rows - panel * HT_PANEL)};
                kernels->dense[HT_W_F32](j->slab.rows + (panel * columns + c) * HT_PANEL, columns * HT_PANEL, c,
                                         (int)ht_min_i64(HT_DENSE_CHUNK, j->k - c), j->x + i * j->k, j->k,
                                         (int)ht_min_i64(tile, j->n - i), &out);
            }
    }
}

static void make_logits(job *j) {
    ht_slab_decode(&j->slab, ht_call_pool(j->call));
    const int64_t groups = ht_ceil_div_i64(ht_panel_count(j->slab.n_rows), j->kernels->tile_panels);
    ht_pool_run(ht_call_pool(j->call), groups * j->x_parts, 1, multiply_logits, j);
}

static float *logits_at(const job *j, int64_t i) { return j->logits + i * LOGITS_ROW + HT_SLAB; }

/* Index of row i's target in the slab, or -1. */
static int target_in_slab(const job *j, int64_t i) {
    const int64_t at = j->target[i] - j->slab.row;
    return at >= 0 && at < j->slab.n_rows ? (int)at : -1;
}

static void add_sums(void *arg, int64_t begin, int64_t end, int worker) {
    (void)worker;
    const job *j = arg;
    for (int64_t i = begin; i < end; i++) {
        const int target = target_in_slab(j, i);
        j->kernels->loss_sums(logits_at(j, i), (int)j->slab.n_rows, j->params->scale, j->params->softcap, &j->state[i]);
        if (target >= 0) j->picked[i] = logits_at(j, i)[target];
    }
}

ht_status ht_cpu_head_loss(const ht_call *call, ht_error *err) {
    job j;
    ht_status status = begin(&j, call, false, err);
    if (status) return status;
    const int64_t t = rows_of(call), vocab = j.params->matrix->n_rows;
    float *out = call->out.data;
    memset(out, 0, (size_t)(2 * t) * sizeof *out);
    for (; j.slab.row < vocab && j.n; j.slab.row += HT_SLAB) {
        j.slab.n_rows = ht_min_i64(HT_SLAB, vocab - j.slab.row);
        make_logits(&j);
        ht_pool_run(ht_call_pool(call), j.n, 16, add_sums, &j);
    }
    for (int64_t i = 0; i < j.n; i++) {
        const double lse = (double)j.state[i].max + log(j.state[i].sum);
        out[j.row[i]] = (float)(lse - (double)j.picked[i]);
        out[t + j.row[i]] = (float)lse;
    }
    return HT_OK;
}

/* ---- the gradient ---- */

static void make_gradients(void *arg, int64_t begin, int64_t end, int worker) {
    (void)worker;
    const job *j = arg;
    const int64_t t = rows_of(j->call);
    for (int64_t i = begin; i < end; i++) {
        const float lse = f32_at(&j->call->in[2], t + j->row[i]), factor = f32_at(&j->call->in[3], j->row[i]);
        j->kernels->loss_gradients(logits_at(j, i), (int)j->slab.n_rows, j->params->scale, j->params->softcap, lse,
                                   factor, target_in_slab(j, i));
    }
}

static void multiply_back(void *arg, int64_t begin, int64_t end, int worker) {
    (void)worker;
    const job *j = arg;
    const ht_matrix_kernels *kernels = j->kernels;
    const int64_t tile = kernels->tile_rows[0];
    const bool starts = j->slab.row == 0;
    for (int64_t piece = begin; piece < end; piece++) {
        int64_t first, last;
        const int64_t panel = piece / j->x_parts * kernels->tile_panels, column = panel * HT_PANEL;
        tiles_of(j, piece % j->x_parts, &first, &last);
        for (int64_t i = first * tile; i < ht_min_i64(last * tile, j->n); i += tile) {
            const ht_gemm_out out = {.y = j->dx + i * j->k,
                                     .ldy = j->k,
                                     .row = column,
                                     .n = ht_min_i64(kernels->tile_panels * HT_PANEL, j->k - column)};
            kernels->dense[HT_W_F32](j->slab.columns + panel * HT_SLAB * HT_PANEL, HT_SLAB * HT_PANEL,
                                     starts ? 0 : HT_SLAB, (int)j->slab.n_rows,
                                     j->logits + i * LOGITS_ROW + (starts ? HT_SLAB : 0), LOGITS_ROW,
                                     (int)ht_min_i64(tile, j->n - i), &out);
        }
    }
}

ht_status ht_cpu_head_loss_grad(const ht_call *call, ht_error *err) {
    job j;
    ht_status status = begin(&j, call, true, err);
    if (status) return status;
    const int64_t vocab = j.params->matrix->n_rows;
    const int64_t groups = ht_ceil_div_i64(ht_slab_columns(j.slab.m) / HT_PANEL, j.kernels->tile_panels);
    for (; j.slab.row < vocab && j.n; j.slab.row += HT_SLAB) {
        j.slab.n_rows = ht_min_i64(HT_SLAB, vocab - j.slab.row);
        make_logits(&j);
        ht_pool_run(ht_call_pool(call), j.n, 16, make_gradients, &j);
        ht_pool_run(ht_call_pool(call), groups * j.x_parts, 1, multiply_back, &j);
    }
    float *out = call->out.data;
    memset(out, 0, (size_t)(rows_of(call) * j.k) * sizeof *out);
    for (int64_t i = 0; i < j.n; i++) memcpy(out + j.row[i] * j.k, j.dx + i * j.k, (size_t)j.k * sizeof *out);
    return HT_OK;
}
