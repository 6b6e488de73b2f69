/* Rows of an array by index. */
#include "base/error.h"
#include "cpu/reference/reference.h"
#include "cpu/reference/value.h"
#include "cpu/walk.h"

#include <string.h>

typedef struct take_job {
    const ht_call *call;
    int64_t row_size; /* elements */
    size_t bytes;     /* of one element */
    ht_walk walk;     /* over one row: the result, then x */
} take_job;

typedef struct row_job {
    char *out;
    const char *in;
    size_t bytes;
} row_job;

static void copy_span(void *arg, const ht_span *s) {
    const row_job *job = arg;
    int64_t bytes = (int64_t)job->bytes;
    if (s->stride[1] == 1) {
        memcpy(job->out + s->offset[0] * bytes, job->in + s->offset[1] * bytes, (size_t)(s->n * bytes));
        return;
    }
    for (int64_t i = 0; i < s->n; i++)
        memcpy(job->out + (s->offset[0] + i) * bytes, job->in + (s->offset[1] + i * s->stride[1]) * bytes, job->bytes);
}

static int64_t index_at(const ht_view *index, int64_t i) {
    return ht_get_int(index->dtype, index->data, ht_view_offset(index, index->n_dims, i));
}

static void take_rows(void *arg, int64_t begin, int64_t end, int worker) {
    (void)worker;
    const take_job *job = arg;
    const ht_view *x = &job->call->in[0];
    for (int64_t i = begin; i < end; i++) {
        int64_t from = index_at(&job->call->in[1], i) * x->stride[0];
        row_job row = {.out = (char *)job->call->out.data + i * job->row_size * (int64_t)job->bytes,
                       .in = (const char *)x->data + from * (int64_t)job->bytes,
                       .bytes = job->bytes};
        ht_walk_range(&job->walk, 0, job->walk.size, copy_span, &row);
    }
}

ht_status ht_plain_take(const ht_call *call, ht_error *err) {
    const ht_view *x = &call->in[0], *index = &call->in[1];
    int64_t n = ht_view_size(index);
    for (int64_t i = 0; i < n; i++) {
        int64_t at = index_at(index, i);
        if (at < 0 || at >= x->shape[0])
            return ht_fail(err, HT_ERR_ARGUMENT,
                           "take: index %lld at position %lld is outside the %lld rows of the array", (long long)at,
                           (long long)i, (long long)x->shape[0]);
    }
    if (ht_view_size(&call->out) == 0) return HT_OK;
    /* One row of x, and the same shape contiguous. */
    ht_view row = *x, packed;
    row.n_dims--;
    memmove(row.shape, row.shape + 1, (size_t)row.n_dims * sizeof *row.shape);
    memmove(row.stride, row.stride + 1, (size_t)row.n_dims * sizeof *row.stride);
    packed = row;
    int64_t size = 1;
    for (int d = row.n_dims - 1; d >= 0; d--) {
        packed.stride[d] = size;
        size *= row.shape[d];
    }
    take_job job = {.call = call, .row_size = size, .bytes = ht_dtype_bytes(x->dtype)};
    const ht_view *views[] = {&packed, &row};
    ht_walk_init(&job.walk, 2, views);
    ht_pool_run(call->pool, n, ht_row_grain(HT_GRAIN_CHEAP, size), take_rows, &job);
    return HT_OK;
}
