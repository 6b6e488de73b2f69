/* Gradients of RMS norm and layer norm, in f64. */
#include "cpu/call.h"
#include "cpu/element.h"
#include "cpu/reference/reference.h"
#include "cpu/strided_iterator.h"
#include "device/params.h"

/* Statistics of one row that the weight and bias gradients need. */
typedef struct row_stats {
    double mean, scale;
} row_stats;

typedef struct gradient {
    const ht_call *call;
    const ht_view *x, *weight, *grad;
    bool centred; /* layer norm subtracts the mean */
    double eps, offset;
    int64_t n, rows;
    row_stats *row;
} gradient;

size_t ht_plain_norm_grad_scratch(const ht_call *call) {
    const ht_view *x = &call->in[0];
    int64_t n = x->shape[x->n_dims - 1];
    return n ? (size_t)(ht_view_size(x) / n) * sizeof(row_stats) : 0;
}

static double at(const ht_view *v, int64_t row, int64_t i) {
    int last = v->n_dims - 1;
    return ht_get_f64(v->dtype, v->data, ht_view_offset(v, last, row) + i * v->stride[last]);
}

static double weighted(const gradient *g, int64_t row, int64_t i) {
    double dy = at(g->grad, row, i);
    return ht_view_absent(g->weight) ? dy : dy * (g->offset + at(g->weight, 0, i));
}

static void row_gradients(void *arg, int64_t begin, int64_t end, int worker) {
    (void)worker;
    const gradient *g = arg;
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
    const gradient *g = arg;
    const ht_view *out = &g->call->out;
    int64_t to = g->rows * g->n;
    bool has_bias = g->centred && !ht_view_absent(&g->call->in[2]);
    for (int64_t i = begin; i < end; i++) {
        double weight = 0.0, bias = 0.0;
        for (int64_t row = 0; row < g->rows; row++) {
            double dy = at(g->grad, row, i);
            weight += dy * (at(g->x, row, i) - g->row[row].mean) * g->row[row].scale;
            bias += dy;
        }
        if (!ht_view_absent(g->weight)) ht_set_f64(out->dtype, out->data, to + i, weight);
        if (has_bias) ht_set_f64(out->dtype, out->data, to + (ht_view_absent(g->weight) ? 0 : g->n) + i, bias);
    }
}

static ht_status run(const ht_call *call, bool centred, double eps, double offset) {
    const ht_view *x = &call->in[0];
    gradient g = {
        call,         x, &call->in[1], &call->in[call->n_in - 1], centred, eps, offset, x->shape[x->n_dims - 1], 0,
        call->scratch};
    if (g.n == 0) return HT_OK;
    g.rows = ht_view_size(x) / g.n;
    ht_pool_run(ht_call_pool(call), g.rows, ht_row_grain(HT_GRAIN_PLAIN, g.n), row_gradients, &g);
    ht_pool_run(ht_call_pool(call), g.n, ht_row_grain(HT_GRAIN_PLAIN, g.rows), column_gradients, &g);
    return HT_OK;
}

ht_status ht_plain_rms_norm_gradient(const ht_call *call, ht_error *err) {
    (void)err;
    const ht_rms_norm_params *p = call->params;
    return run(call, false, (double)p->eps, (double)p->weight_offset);
}

ht_status ht_plain_layer_norm_gradient(const ht_call *call, ht_error *err) {
    (void)err;
    return run(call, true, (double)((const ht_layer_norm_params *)call->params)->eps, 0.0);
}
