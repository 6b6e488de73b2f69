/* Gradients of mixture-of-experts products (LINEAR_GATHER_BACK): one expert after another, the rows that chose it brought
 * together. Experts that no row chose are not read. */
#include "base/checked.h"
#include "cpu/call.h"
#include "cpu/experts.h"
#include "cpu/matrix_ops.h"
#include "cpu/scratch_layout.h"
#include "device/params.h"

#include <string.h>

enum { ROWS_AT_ONCE = 512 }; /* of one expert; the order of sums does not depend on it */

typedef struct job {
    const ht_call *call;
    const ht_linear_gather_params *p;
    int64_t n_experts, pairs, n, k;
} job;

typedef struct room {
    int64_t *first, *order;
    float *dy, *dx; /* rows brought together */
    void *product;
} room;

static job describe(const ht_call *call) {
    const ht_linear_gather_params *p = call->params;
    const ht_matrix *m = p->experts[0]->matrix[0];
    return (job){call, p, p->experts[0]->n, ht_view_size(&call->in[1]), m->n_rows, m->k};
}

static size_t lay_out(const job *j, void *memory, room *r) {
    ht_scratch_layout d = {.at = memory};
    const int64_t rows = ht_min_i64(j->pairs, ROWS_AT_ONCE);
    size_t largest = 0;
    for (int s = 0; s < j->p->n_sets; s++)
        for (int32_t i = 0; i < j->p->experts[s]->n_kinds; i++) {
            const ht_matrix *one = j->p->experts[s]->matrix[j->p->experts[s]->n + i];
            largest = ht_max_size(largest, ht_back_scratch(one, ht_pool_threads(ht_call_pool(j->call))));
        }
    r->first = ht_scratch_take(&d, j->n_experts + 1, sizeof *r->first);
    r->order = ht_scratch_take(&d, j->pairs, sizeof *r->order);
    r->dy = ht_scratch_take(&d, rows * j->n, sizeof *r->dy);
    r->dx = ht_scratch_take(&d, rows * j->k, sizeof *r->dx);
    r->product = ht_scratch_take(&d, 1, largest);
    return d.used;
}

size_t ht_cpu_linear_gather_back_scratch(const ht_call *call) {
    const job j = describe(call);
    room r;
    return lay_out(&j, NULL, &r);
}

/* The gradients of the outputs of pair `pair` that matrix set `set` gave. */
static void collect(const job *j, int64_t pair, int set, float *to) {
    const ht_view *dy = &j->call->in[0];
    const int64_t m = dy->shape[1], step = dy->stride[2];
    const float *from = (const float *)dy->data + pair / m * dy->stride[0] + pair % m * dy->stride[1];
    from += set * j->n * step;
    for (int64_t c = 0; c < j->n; c++) to[c] = from[c * step];
}

static void add_to(const job *j, int64_t pair, bool begins, const float *from) {
    float *to = (float *)j->call->out.data + pair * j->k;
    if (begins)
        memcpy(to, from, (size_t)j->k * sizeof *to);
    else
        for (int64_t c = 0; c < j->k; c++) to[c] += from[c];
}

ht_status ht_cpu_linear_gather_back(const ht_call *call, ht_error *err) {
    const job j = describe(call);
    room r;
    if (ht_view_size(&call->out) == 0) return HT_OK;
    (void)lay_out(&j, call->scratch, &r);
    ht_status status = ht_experts_sort("linear_gather_back", &call->in[1], j.n_experts, r.first, r.order, err);
    for (int64_t e = 0; !status && e < j.n_experts; e++)
        for (int64_t at = r.first[e]; at < r.first[e + 1]; at += ROWS_AT_ONCE) {
            const int64_t n = ht_min_i64(ROWS_AT_ONCE, r.first[e + 1] - at);
            for (int s = 0; s < j.p->n_sets; s++) {
                for (int64_t i = 0; i < n; i++) collect(&j, r.order[at + i], s, r.dy + i * j.n);
                ht_back_mul(j.p->experts[s]->matrix[e], r.dy, j.n, n, r.dx, j.k, r.product, ht_call_pool(call));
                for (int64_t i = 0; i < n; i++) add_to(&j, r.order[at + i], s == 0, r.dx + i * j.k);
            }
        }
    return status;
}
