/* RMS norm and layer norm over the last axis, and their gradients, in f64. */
#include "cpu/call.h"
#include "cpu/element.h"
#include "cpu/reference/reference.h"
#include "cpu/strided_iterator.h"
#include "device/params.h"

/* Statistics of one row that the weight and bias gradients need. */
typedef struct row_stats {
    double mean, scale;
} row_stats;

typedef struct norm {
    const ht_call *call;
    const ht_view *x, *weight, *bias; /* weight and bias: NULL if absent */
    const ht_view *grad;              /* of the result, for gradients */
    bool centred;                     /* layer norm subtracts the mean */
    double eps, offset;
    int64_t n, rows;
    row_stats *row;
} norm;

static norm norm_of(const ht_call *call, bool centred, int n_operands) {
    const ht_view *x = &call->in[0];
    norm g = {.call = call, .x = x, .centred = centred, .n = x->shape[x->n_dims - 1], .row = call->scratch};
    if (n_operands > 1 && !ht_view_absent(&call->in[1])) g.weight = &call->in[1];
    if (centred && !ht_view_absent(&call->in[2])) g.bias = &call->in[2];
    if (n_operands < call->n_in) g.grad = &call->in[n_operands];
    g.eps = (double)(centred ? ((const ht_layer_norm_params *)call->params)->eps
                             : ((const ht_rms_norm_params *)call->params)->eps);
    if (!centred) g.offset = (double)((const ht_rms_norm_params *)call->params)->weight_offset;
    g.rows = g.n ? ht_view_size(x) / g.n : 0;
    return g;
}

/* Element i of the row at an offset, and of row `row`. */
static double value(const ht_view *v, int64_t offset, int64_t i) {
    return ht_get_f64(v->dtype, v->data, offset + i * v->stride[v->n_dims - 1]);
}
static double at(const ht_view *v, int64_t row, int64_t i) {
    return value(v, ht_view_offset(v, v->n_dims - 1, row), i);
}

static double weight_at(const norm *g, int64_t i) {
    double w = at(g->weight, 0, i);
    return g->centred ? w : g->offset + w;
}

/* ---- results ---- */

static void norm_rows(void *arg, int64_t begin, int64_t end, int worker) {
    (void)worker;
    const norm *g = arg;
    for (int64_t row = begin; row < end; row++) {
        const int64_t offset = ht_view_offset(g->x, g->x->n_dims - 1, row);
        double sum = 0.0, squares = 0.0;
        for (int64_t i = 0; g->centred && i < g->n; i++) sum += value(g->x, offset, i);
        const double mean = sum / (double)g->n;
        for (int64_t i = 0; i < g->n; i++) {
            double v = value(g->x, offset, i) - mean;
            squares += v * v;
        }
        const double scale = 1.0 / sqrt(squares / (double)g->n + g->eps);
        for (int64_t i = 0; i < g->n; i++) {
            double v = (value(g->x, offset, i) - mean) * scale;
            if (g->weight) v *= weight_at(g, i);
            if (g->bias) v += at(g->bias, 0, i);
            ht_set_f64(g->call->out.dtype, g->call->out.data, row * g->n + i, v);
        }
    }
}

ht_status ht_plain_rms_norm(const ht_call *call, ht_error *err) {
    (void)err;
    const norm g = norm_of(call, false, call->n_in);
    ht_run_rows(call, g.x, g.n, norm_rows, &g);
    return HT_OK;
}

ht_status ht_plain_layer_norm(const ht_call *call, ht_error *err) {
    (void)err;
    const norm g = norm_of(call, true, call->n_in);
    ht_run_rows(call, g.x, g.n, norm_rows, &g);
    return HT_OK;
}

/* ---- gradients ---- */

size_t ht_plain_norm_grad_scratch(const ht_call *call) {
    const ht_view *x = &call->in[0];
    int64_t n = x->shape[x->n_dims - 1];
    return n ? (size_t)(ht_view_size(x) / n) * sizeof(row_stats) : 0;
}

static double weighted(const norm *g, int64_t row, int64_t i) {
    double dy = at(g->grad, row, i);
    return g->weight ? dy * weight_at(g, i) : dy;
}

static void row_gradients(void *arg, int64_t begin, int64_t end, int worker) {
    (void)worker;
    const norm *g = arg;
    double n = (double)g->n;
    for (int64_t row = begin; row < end; row++) {
        double mean = 0.0, squares = 0.0, sum = 0.0, dot = 0.0;
        for (int64_t i = 0; g->centred && i < g->n; i++) mean += at(g->x, row, i) / n;
        for (int64_t i = 0; i < g->n; i++) {
            double x = at(g->x, row, i) - mean, dy = weighted(g, row, i);
            squares += x * x;
            sum += dy;
            dot += dy * x;
        }
        double scale = 1.0 / sqrt(squares / n + g->eps);
        if (!g->centred) sum = 0.0;
        for (int64_t i = 0; i < g->n; i++) {
            double x = at(g->x, row, i) - mean;
            ht_set_f64(g->call->out.dtype, g->call->out.data, row * g->n + i,
                       scale * (weighted(g, row, i) - sum / n - x * scale * scale * dot / n));
        }
        g->row[row] = (row_stats){mean, scale};
    }
}

static void column_gradients(void *arg, int64_t begin, int64_t end, int worker) {
    (void)worker;
    const norm *g = arg;
    const ht_view *out = &g->call->out;
    int64_t to = g->rows * g->n;
    for (int64_t i = begin; i < end; i++) {
        double weight = 0.0, bias = 0.0;
        for (int64_t row = 0; row < g->rows; row++) {
            double dy = at(g->grad, row, i);
            weight += dy * (at(g->x, row, i) - g->row[row].mean) * g->row[row].scale;
            bias += dy;
        }
        if (g->weight) ht_set_f64(out->dtype, out->data, to + i, weight);
        if (g->bias) ht_set_f64(out->dtype, out->data, to + (g->weight ? g->n : 0) + i, bias);
    }
}

static ht_status run_gradients(const ht_call *call, bool centred) {
    norm g = norm_of(call, centred, call->n_in - 1);
    if (g.n == 0) return HT_OK;
    ht_pool_run(ht_call_pool(call), g.rows, ht_row_grain(HT_GRAIN_PLAIN, g.n), row_gradients, &g);
    ht_pool_run(ht_call_pool(call), g.n, ht_row_grain(HT_GRAIN_PLAIN, g.rows), column_gradients, &g);
    return HT_OK;
}

ht_status ht_plain_rms_norm_gradient(const ht_call *call, ht_error *err) {
    (void)err;
    return run_gradients(call, false);
}

ht_status ht_plain_layer_norm_gradient(const ht_call *call, ht_error *err) {
    (void)err;
    return run_gradients(call, true);
}
