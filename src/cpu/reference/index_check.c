#include "cpu/reference/index_check.h"

#include "base/dtype.h"
#include "base/error.h"
#include "cpu/element.h"
#include "cpu/strided_iterator.h"

#include <stdatomic.h>

#define READ(type)                                                                                                     \
    for (int64_t i = 0; i < n; i++) out[i] = (int64_t)((const type *)index)[i * by];                                   \
    return

void ht_read_indices(ht_dtype t, const void *index, int64_t by, int64_t n, int64_t *out) {
    switch (t) {
    case HT_I32: READ(int32_t);
    case HT_U32: READ(uint32_t);
    case HT_U64:
    case HT_I64: READ(int64_t);
    default: break;
    }
    for (int64_t i = 0; i < n; i++) out[i] = ht_get_int(t, index, i * by);
}

bool ht_resolve_indices(ht_index_bounds bounds, bool is_unsigned, int64_t n, int64_t *at) {
    bool ok = true;
    for (int64_t i = 0; i < n; i++) {
        int64_t position = at[i];
        if (!is_unsigned && position < 0) position += bounds.size;
        bool inside = position >= 0 && position < bounds.length;
        ok &= inside;
        at[i] = inside ? position * bounds.stride : 0;
    }
    return ok;
}

enum { CHUNK = 256 };

typedef struct offsets_job {
    const ht_view *index;
    ht_index_bounds bounds;
    bool add;
    int64_t *out;
    ht_strided_iterator iterator;
    _Atomic bool outside;
} offsets_job;

static void resolve_span(void *arg, const ht_strided_span *s) {
    offsets_job *job = arg;
    const ht_dtype t = job->index->dtype;
    int64_t at[CHUNK];
    for (int64_t done = 0; done < s->n; done += CHUNK) {
        int64_t n = s->n - done < CHUNK ? s->n - done : CHUNK, *out = job->out + s->offset[0] + done;
        const char *index =
            (const char *)job->index->data + (s->offset[1] + done * s->stride[1]) * (int64_t)ht_dtype_bytes(t);
        ht_read_indices(t, index, s->stride[1], n, at);
        if (!ht_resolve_indices(job->bounds, !ht_dtype_is_signed(t), n, at)) atomic_store(&job->outside, true);
        for (int64_t i = 0; i < n; i++) out[i] = (job->add ? out[i] : 0) + at[i];
    }
}

static void resolve_range(void *arg, int64_t begin, int64_t end, int worker) {
    (void)worker;
    offsets_job *job = arg;
    ht_strided_iterator_range(&job->iterator, begin, end, resolve_span, job);
}

ht_status ht_index_offsets(ht_pool *pool, const char *op, const ht_view *index, int axis, ht_index_bounds bounds,
                           bool add, int64_t *out, ht_error *err) {
    ht_view packed = *index;
    for (int64_t d = index->n_dims - 1, stride = 1; d >= 0; stride *= index->shape[d--]) packed.stride[d] = stride;
    const ht_view *views[] = {&packed, index};
    offsets_job job = {.index = index, .bounds = bounds, .add = add, .out = out};
    ht_strided_iterator_init(&job.iterator, 2, views);
    if (job.iterator.size) ht_pool_run(pool, job.iterator.size, HT_GRAIN_CHEAP, resolve_range, &job);
    return job.outside ? ht_fail_index_bounds(op, index, axis, bounds, err) : HT_OK;
}

ht_status ht_fail_index_bounds(const char *op, const ht_view *index, int axis, ht_index_bounds bounds, ht_error *err) {
    int64_t n = ht_view_size(index);
    for (int64_t i = 0; i < n; i++) {
        int64_t value = ht_get_int(index->dtype, index->data, ht_view_offset(index, index->n_dims, i)),
                position = value;
        if (ht_resolve_indices(bounds, !ht_dtype_is_signed(index->dtype), 1, &position)) continue;
        const char *what = bounds.length < bounds.size ? " as the start of a slice" : "";
        return ht_fail(err, HT_ERR_INDEX, "%s: index %lld at position %lld is outside axis %d of size %lld%s", op,
                       (long long)value, (long long)i, axis, (long long)bounds.size, what);
    }
    return ht_fail(err, HT_ERR_INDEX, "%s: an index is outside axis %d", op, axis);
}
