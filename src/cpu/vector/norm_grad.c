/* Gradients of RMS norm and layer norm in one pass over the rows. With r = 1 / sqrt(mean(x^2) + eps), x centred in
 * layer norm, and g = output gradient * weight:
 *
 *   dx      = r (g - mean(g) - x r^2 mean(g x)), with mean(g) only in layer norm
 *   dweight = sum over rows of output gradient * x r
 *   dbias   = sum over rows of output gradient
 *
 * Sums over rows are computed per block of rows and added in order; the blocks depend on the shape alone. */
#include "base/checked.h"
#include "cpu/call.h"
#include "cpu/reference/reference.h"
#include "cpu/vector/rows.h"
#include "cpu/vector/vector.h"
#include "device/params.h"

#include <math.h>

enum { BLOCKS = 64, BLOCK_ROWS = 8 }; /* most blocks, and least rows per block */

typedef struct gradient {
    const ht_call *call;
    const ht_view *x, *grad;
    bool centred, has_weight, has_bias, x_contiguous, grad_contiguous;
    float eps, offset;
    int64_t n, padded, rows, block_rows, blocks;
    /* scratch */
    float *weight;  /* [padded]: weight + offset, or 1 */
    float *sums;    /* [blocks][2 padded]: dweight, dbias */
    float *threads; /* [threads][2 padded]: one row of x and of the gradient */
} gradient;

static size_t layout_scratch(gradient *g, float *base) {
    int64_t weight = g->padded, sums = g->blocks * 2 * g->padded;
    if (base) {
        g->weight = base;
        g->sums = base + weight;
        g->threads = base + weight + sums;
    }
    return (size_t)(weight + sums + ht_pool_threads(ht_call_pool(g->call)) * 2 * g->padded) * sizeof(float);
}

static gradient gradient_of(const ht_call *call, bool centred) {
    const ht_view *x = &call->in[0], *grad = &call->in[call->n_in - 1];
    gradient g = {.call = call,
                  .x = x,
                  .grad = grad,
                  .centred = centred,
                  .has_weight = !ht_view_absent(&call->in[1]),
                  .has_bias = centred && !ht_view_absent(&call->in[2]),
                  .x_contiguous = ht_view_contiguous(x),
                  .grad_contiguous = ht_view_contiguous(grad),
                  .n = x->shape[x->n_dims - 1],
                  .rows = row_count(x)};
    g.padded = (g.n + 15) / 16 * 16;
    g.block_rows = ht_max_i64(BLOCK_ROWS, ht_ceil_div_i64(g.rows, BLOCKS));
    g.blocks = ht_ceil_div_i64(g.rows, g.block_rows);
    return g;
}

/* One row as f32: in place, or converted to `buffer`. */
static const float *row_of(const ht_view *v, bool contiguous, int64_t row, int64_t n, float *buffer) {
    int64_t at = row_offset(v, contiguous, row), stride = v->stride[v->n_dims - 1];
    if (v->dtype == HT_F32 && stride == 1) return (const float *)v->data + at;
    for (int64_t i = 0; i < n; i += 16)
        v16f_store(buffer + i, lanes_load(v->dtype, v->data, at + i * stride, stride, lanes_count(n - i)));
    return buffer;
}

HT_INLINE v16f load(const float *p, int lanes) { return lanes == 16 ? v16f_load(p) : v16f_load_n(p, lanes); }

/* Statistics of one row: dx = scale * (g - mean_g - slope * x), where x is centred by `middle`. */
typedef struct row_stats {
    v16f middle, scale, mean_g, slope;
} row_stats;

HT_INLINE row_stats stats_of(const gradient *g, const float *x, const float *dy, bool centred) {
    v16f squares[2], dots[2], sums[2], middle = v16f_zero();
    for (int k = 0; k < 2; k++) squares[k] = dots[k] = sums[k] = v16f_zero();
    float n = (float)g->n;
    if (centred) {
        for (int64_t i = 0; i < g->n; i += 32)
            for (int k = 0; k < 2; k++)
                if (i + 16 * k < g->n)
                    sums[k] = v16f_add(sums[k], load(x + i + 16 * k, lanes_count(g->n - i - 16 * k)));
        middle = v16f_set1(v16f_sum(v16f_add(sums[0], sums[1])) / n);
        sums[0] = sums[1] = v16f_zero();
    }
    for (int64_t i = 0; i < g->n; i += 32)
        for (int k = 0; k < 2; k++) {
            int64_t at = i + 16 * k;
            if (at >= g->n) break;
            int lanes = lanes_count(g->n - at);
            v16f v = load(x + at, lanes), by = v16f_mul(load(dy + at, lanes), v16f_load(g->weight + at));
            if (centred) {
                v = v16f_sub(v, middle);
                if (lanes < 16) v = v16f_select(m16_first(lanes), v, v16f_zero());
                sums[k] = v16f_add(sums[k], by);
            }
            squares[k] = v16f_fma(v, v, squares[k]);
            dots[k] = v16f_fma(v, by, dots[k]);
        }
    float scale = 1.0f / sqrtf(v16f_sum(v16f_add(squares[0], squares[1])) / n + g->eps);
    float dot = v16f_sum(v16f_add(dots[0], dots[1])) / n, sum = v16f_sum(v16f_add(sums[0], sums[1])) / n;
    return (row_stats){middle, v16f_set1(scale), v16f_set1(sum), v16f_set1(scale * scale * dot)};
}

HT_INLINE void row_gradients(const gradient *g, int64_t row, const float *x, const float *dy, float *sums,
                             bool centred) {
    const ht_view *out = &g->call->out;
    row_stats f = stats_of(g, x, dy, centred);
    for (int64_t i = 0; i < g->n; i += 16) {
        int lanes = lanes_count(g->n - i);
        v16f v = load(x + i, lanes), d = load(dy + i, lanes);
        if (centred) v = v16f_sub(v, f.middle);
        v16f change = v16f_fnma(f.slope, v, v16f_mul(d, v16f_load(g->weight + i)));
        if (centred) change = v16f_sub(change, f.mean_g);
        lanes_store(out->dtype, out->data, row * g->n + i, v16f_mul(change, f.scale), lanes);
        if (g->has_weight) v16f_store(sums + i, v16f_fma(d, v16f_mul(v, f.scale), v16f_load(sums + i)));
        if (g->has_bias) v16f_store(sums + g->padded + i, v16f_add(d, v16f_load(sums + g->padded + i)));
    }
}

static void block_gradients(void *arg, int64_t begin, int64_t end, int worker) {
    const gradient *g = arg;
    float *buffer = g->threads + worker * 2 * g->padded;
    for (int64_t block = begin; block < end; block++) {
        float *sums = g->sums + block * 2 * g->padded;
        memset(sums, 0, (size_t)(2 * g->padded) * sizeof *sums);
        int64_t last = ht_min_i64((block + 1) * g->block_rows, g->rows);
        for (int64_t row = block * g->block_rows; row < last; row++) {
            const float *x = row_of(g->x, g->x_contiguous, row, g->n, buffer);
            const float *dy = row_of(g->grad, g->grad_contiguous, row, g->n, buffer + g->padded);
            if (g->centred)
                row_gradients(g, row, x, dy, sums, true);
            else
                row_gradients(g, row, x, dy, sums, false);
        }
    }
}

/* Sums the blocks, sixteen columns at a time: dweight, then dbias. */
static void add_blocks(void *arg, int64_t begin, int64_t end, int worker) {
    (void)worker;
    const gradient *g = arg;
    const ht_view *out = &g->call->out;
    int64_t to = g->rows * g->n;
    for (int64_t i = begin * 16; i < end * 16; i += 16)
        for (int k = 0; k < 2; k++) {
            if (!(k ? g->has_bias : g->has_weight)) continue;
            v16f sum = v16f_zero();
            for (int64_t b = 0; b < g->blocks; b++)
                sum = v16f_add(sum, v16f_load(g->sums + (2 * b + k) * g->padded + i));
            lanes_store(out->dtype, out->data, to + (k && g->has_weight ? g->n : 0) + i, sum, lanes_count(g->n - i));
        }
}

static void run(gradient *g) {
    if (g->n == 0) return;
    layout_scratch(g, g->call->scratch);
    const ht_view *w = &g->call->in[1];
    for (int64_t i = 0; i < g->padded; i += 16) {
        v16f by = v16f_set1(1.0f);
        if (g->has_weight)
            by = v16f_add(v16f_set1(g->offset),
                          lanes_load(w->dtype, w->data, i * w->stride[0], w->stride[0], lanes_count(g->n - i)));
        v16f_store(g->weight + i, by);
    }
    ht_pool_run(ht_call_pool(g->call), g->blocks, ht_row_grain(HT_GRAIN_CHEAP, g->n * g->block_rows), block_gradients,
                g);
    if (g->has_weight || g->has_bias)
        ht_pool_run(ht_call_pool(g->call), g->padded / 16, ht_row_grain(HT_GRAIN_CHEAP, 16 * g->blocks), add_blocks, g);
}

static ht_status rms_norm_gradient(const ht_call *call, ht_error *err) {
    if (!lanes_supports(call->in[0].dtype)) return ht_plain_rms_norm_gradient(call, err);
    const ht_rms_norm_params *p = call->params;
    gradient g = gradient_of(call, false);
    g.eps = p->eps;
    g.offset = p->weight_offset;
    run(&g);
    return HT_OK;
}

static ht_status layer_norm_gradient(const ht_call *call, ht_error *err) {
    if (!lanes_supports(call->in[0].dtype)) return ht_plain_layer_norm_gradient(call, err);
    gradient g = gradient_of(call, true);
    g.eps = ((const ht_layer_norm_params *)call->params)->eps;
    run(&g);
    return HT_OK;
}

static size_t scratch(const ht_call *call) {
    if (!lanes_supports(call->in[0].dtype)) return ht_plain_norm_grad_scratch(call);
    gradient g = gradient_of(call, false);
    return layout_scratch(&g, NULL);
}

void HT_ISA_NAME(ht_vector_norm_grad)(ht_kernel kernels[HT_OP_COUNT]) {
    kernels[HT_OP_RMS_NORM_GRAD] = (ht_kernel){.run = rms_norm_gradient, .scratch = scratch};
    kernels[HT_OP_LAYER_NORM_GRAD] = (ht_kernel){.run = layer_norm_gradient, .scratch = scratch};
}
