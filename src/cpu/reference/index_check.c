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

bool ht_find_places(ht_place_limit limit, bool is_unsigned, int64_t n, int64_t *at) {
    bool ok = true;
    for (int64_t i = 0; i < n; i++) {
        int64_t place = at[i];
        if (!is_unsigned && place < 0) place += limit.size;
        bool inside = place >= 0 && place < limit.length;
        ok &= inside;
        at[i] = inside ? place * limit.stride : 0;
    }
    return ok;
}

enum { CHUNK = 256 };

typedef struct places_job {
    const ht_view *index;
    ht_place_limit limit;
    bool add;
    int64_t *out;
    ht_strided_iterator iterator;
    _Atomic bool outside;
} places_job;

static void find_span(void *arg, const ht_strided_span *s) {
    places_job *job = arg;
    const ht_dtype t = job->index->dtype;
    int64_t at[CHUNK];
    for (int64_t done = 0; done < s->n; done += CHUNK) {
        int64_t n = s->n - done < CHUNK ? s->n - done : CHUNK, *out = job->out + s->offset[0] + done;
        const char *index =
            (const char *)job->index->data + (s->offset[1] + done * s->stride[1]) * (int64_t)ht_dtype_bytes(t);
        ht_read_indices(t, index, s->stride[1], n, at);
        if (!ht_find_places(job->limit, !ht_dtype_is_signed(t), n, at)) atomic_store(&job->outside, true);
        for (int64_t i = 0; i < n; i++) out[i] = (job->add ? out[i] : 0) + at[i];
    }
}

static void find_block(void *arg, int64_t begin, int64_t end, int worker) {
    (void)worker;
    places_job *job = arg;
    ht_strided_iterator_range(&job->iterator, begin, end, find_span, job);
}

ht_status ht_places(ht_pool *pool, const char *op, const ht_view *index, int axis, ht_place_limit limit, bool add,
                    int64_t *out, ht_error *err) {
    ht_view packed = *index;
    for (int64_t d = index->n_dims - 1, stride = 1; d >= 0; stride *= index->shape[d--]) packed.stride[d] = stride;
    const ht_view *views[] = {&packed, index};
    places_job job = {.index = index, .limit = limit, .add = add, .out = out};
    ht_strided_iterator_init(&job.iterator, 2, views);
    if (job.iterator.size) ht_pool_run(pool, job.iterator.size, HT_GRAIN_CHEAP, find_block, &job);
    return job.outside ? ht_fail_outside(op, index, axis, limit, err) : HT_OK;
}

ht_status ht_fail_outside(const char *op, const ht_view *index, int axis, ht_place_limit limit, ht_error *err) {
    int64_t n = ht_view_size(index);
    for (int64_t i = 0; i < n; i++) {
        int64_t value = ht_get_int(index->dtype, index->data, ht_view_offset(index, index->n_dims, i)), place = value;
        if (ht_find_places(limit, !ht_dtype_is_signed(index->dtype), 1, &place)) continue;
        const char *what = limit.length < limit.size ? " as the start of a slice" : "";
        return ht_fail(err, HT_ERR_INDEX, "%s: index %lld at position %lld is outside axis %d of %lld elements%s", op,
                       (long long)value, (long long)i, axis, (long long)limit.size, what);
    }
    return ht_fail(err, HT_ERR_INDEX, "%s: an index is outside axis %d", op, axis);
}
