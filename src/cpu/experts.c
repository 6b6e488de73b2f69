/* Products with the matrices that rows ask for: the rows of each matrix are brought together, multiplied at once, and put
 * where they belong. A matrix that no row asks for is not read. */
#include "cpu/experts.h"

#include "base/checked.h"
#include "base/error.h"
#include "device/params.h"

#include <string.h>

enum { ROWS_AT_ONCE = 512 /* of one matrix; the order of sums does not depend on it */ };

/* The scratch memory's parts. A pair is a row of x and one of the matrices it asks for. */
typedef struct room {
    int64_t *first; /* [n + 1] of each matrix's pairs in `order` */
    int64_t *order; /* [pairs] pairs, matrix by matrix */
    float *x, *y;   /* rows brought together, and what they give */
    void *product;  /* the product's own scratch */
} room;

static size_t aligned(size_t bytes) { return (bytes + 63) & ~(size_t)63; }

static int64_t pairs_of(const ht_call *call) { return ht_view_size(&call->in[1]); }

static size_t lay_out(const ht_call *call, room *r) {
    const ht_linear_gather_params *p = call->params;
    const ht_matrix *m = p->experts[0];
    int64_t pairs = pairs_of(call), rows = ht_min_i64(pairs, ROWS_AT_ONCE);
    size_t first = 0, order = aligned(((size_t)p->n_experts + 1) * sizeof(int64_t));
    size_t x = order + aligned((size_t)pairs * sizeof(int64_t));
    size_t y = x + aligned((size_t)(rows * m->k) * sizeof(float));
    size_t product = y + aligned((size_t)(rows * m->n_rows) * sizeof(float)), largest = 0;
    for (int32_t e = 0; e < p->n_experts; e++) {
        const ht_matrix *one = p->experts[e];
        largest = ht_max_size(largest, one->ops->mul_scratch(one, rows, ht_pool_threads(call->pool)));
    }
    char *at = call->scratch;
    if (r) *r = (room){(void *)(at + first), (void *)(at + order), (void *)(at + x), (void *)(at + y), at + product};
    return product + largest;
}

size_t ht_cpu_linear_gather_scratch(const ht_call *call) { return lay_out(call, NULL); }

static int64_t expert_of(const ht_view *ids, int64_t pair) {
    int64_t m = ids->shape[1];
    return ((const int32_t *)ids->data)[pair / m * ids->stride[0] + pair % m * ids->stride[1]];
}

/* Counts the pairs of every matrix and puts them in order: by matrix, then as they come. */
static ht_status sort_pairs(const ht_call *call, const room *r, ht_error *err) {
    const ht_linear_gather_params *p = call->params;
    const ht_view *ids = &call->in[1];
    int64_t pairs = pairs_of(call);
    memset(r->first, 0, ((size_t)p->n_experts + 1) * sizeof *r->first);
    for (int64_t i = 0; i < pairs; i++) {
        int64_t e = expert_of(ids, i);
        if (e < 0 || e >= p->n_experts)
            return ht_fail(err, HT_ERR_ARGUMENT, "linear_gather: expert %lld of row %lld is none of the %d there are",
                           (long long)e, (long long)(i / ids->shape[1]), (int)p->n_experts);
        r->first[e]++;
    }
    for (int64_t e = 0, before = 0; e <= p->n_experts; e++) {
        int64_t count = r->first[e];
        r->first[e] = before;
        before += count;
    }
    for (int64_t i = 0; i < pairs; i++) r->order[r->first[expert_of(ids, i)]++] = i;
    /* Each entry has moved on to where the next matrix begins. */
    memmove(r->first + 1, r->first, (size_t)p->n_experts * sizeof *r->first);
    r->first[0] = 0;
    return HT_OK;
}

static const float *row_of(const ht_call *call, int64_t pair, int64_t *stride) {
    const ht_view *x = &call->in[0];
    int64_t m = call->in[1].shape[1];
    *stride = x->stride[x->n_dims - 1];
    int64_t at = pair / m * x->stride[0] + (x->n_dims == 3 ? pair % m * x->stride[1] : 0);
    return (const float *)x->data + at;
}

static void bring_row(const ht_call *call, int64_t pair, int64_t k, float *to) {
    int64_t stride;
    const float *from = row_of(call, pair, &stride);
    if (stride == 1)
        memcpy(to, from, (size_t)k * sizeof *to);
    else
        for (int64_t i = 0; i < k; i++) to[i] = from[i * stride];
}

/* Pairs order[begin] to order[begin + n - 1], which ask for one matrix. */
static void multiply(const ht_call *call, const room *r, const ht_matrix *m, int64_t begin, int64_t n) {
    float *out = call->out.data;
    for (int64_t i = 0; i < n; i++) bring_row(call, r->order[begin + i], m->k, r->x + i * m->k);
    float *y = n == 1 ? out + r->order[begin] * m->n_rows : r->y;
    m->ops->mul(m, r->x, m->k, n, NULL, y, m->n_rows, r->product, call->pool);
    for (int64_t i = 0; n > 1 && i < n; i++)
        memcpy(out + r->order[begin + i] * m->n_rows, r->y + i * m->n_rows, (size_t)m->n_rows * sizeof *out);
}

ht_status ht_cpu_linear_gather(const ht_call *call, ht_error *err) {
    const ht_linear_gather_params *p = call->params;
    room r;
    if (ht_view_size(&call->out) == 0) return HT_OK;
    lay_out(call, &r);
    ht_status status = sort_pairs(call, &r, err);
    for (int32_t e = 0; !status && e < p->n_experts; e++)
        for (int64_t i = r.first[e]; i < r.first[e + 1]; i += ROWS_AT_ONCE)
            multiply(call, &r, p->experts[e], i, ht_min_i64(ROWS_AT_ONCE, r.first[e + 1] - i));
    return status;
}
