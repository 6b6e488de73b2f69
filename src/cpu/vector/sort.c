/* Elements along the last axis in order, or parted by one of them, and the places they come from.
 *
 * Every dtype becomes a number without sign that has the same order: 32 or 64 bits, or for places the key above the index.
 * Rows are dealt to the threads; a row longer than all others together is sorted in pieces that are merged. A NaN comes
 * last. */
#include "base/checked.h"
#include "base/dtype.h"
#include "cpu/vector/sort_lanes.h"
#include "cpu/vector/vector.h"
#include "cpu/walk.h"
#include "device/params.h"

#include <string.h>

enum { SMALL_SORT = 24, COUNTS = 8 * 256 > 6 * 2048 ? 8 * 256 : 6 * 2048, LONG_ROW = 1 << 15 };

typedef struct ht_keyed {
    uint64_t key;
    uint32_t place;
} ht_keyed;

#define ITEM         uint32_t
#define KEY(x)       ((uint64_t)(x))
#define BEFORE(a, b) ((a) < (b))
#define NAME(f)      f##_32
#include "cpu/sort_items.h"
#undef ITEM
#undef NAME
#define ITEM    uint64_t
#define NAME(f) f##_64
#include "cpu/sort_items.h"
#undef ITEM
#undef KEY
#undef BEFORE
#undef NAME
#define ITEM         ht_keyed
#define KEY(x)       ((x).key)
#define BEFORE(a, b) ((a).key < (b).key || ((a).key == (b).key && (a).place < (b).place))
#define NAME(f)      f##_keyed
#include "cpu/sort_items.h"

/* ---- keys ---- */

static uint16_t key_of_f16(uint16_t x, uint16_t infinity) {
    if ((x & 0x7fff) > infinity) return 0xffff;
    return (uint16_t)(x & 0x8000 ? ~x : x | 0x8000);
}
static uint32_t key_of_f32(uint32_t x) {
    if ((x & 0x7fffffff) > 0x7f800000) return UINT32_MAX;
    return x ^ ((uint32_t) - (int32_t)(x >> 31) | 0x80000000);
}
static uint64_t key_of_f64(uint64_t x) {
    if ((x & INT64_MAX) > UINT64_C(0x7ff0000000000000)) return UINT64_MAX;
    return x ^ ((uint64_t) - (int64_t)(x >> 63) | UINT64_C(1) << 63);
}

/* Zeros without sign, for places: neither zero comes before the other. */
#define PLUS(x, sign) ((x) == (sign) ? 0 : (x))
#define EACH(type, of)                                                                                                 \
    for (int64_t i = 0; i < n; i++, x += stride * (int64_t)sizeof(type)) {                                             \
        type v;                                                                                                        \
        memcpy(&v, x, sizeof v);                                                                                       \
        out[i] = (of);                                                                                                 \
    }                                                                                                                  \
    break

static void load_32(ht_dtype t, const char *x, int64_t stride, int64_t n, bool places, uint32_t *out) {
    const uint16_t sign = places ? 0x8000 : 0;
    const uint32_t wide_sign = places ? 0x80000000 : 0;
    switch (t) {
    case HT_BOOL: EACH(uint8_t, v != 0);
    case HT_U8: EACH(uint8_t, v);
    case HT_I8: EACH(uint8_t, v ^ 0x80u);
    case HT_U16: EACH(uint16_t, v);
    case HT_I16: EACH(uint16_t, v ^ 0x8000u);
    case HT_F16: EACH(uint16_t, key_of_f16((uint16_t)PLUS(v, sign), 0x7c00));
    case HT_BF16: EACH(uint16_t, key_of_f16((uint16_t)PLUS(v, sign), 0x7f80));
    case HT_U32: EACH(uint32_t, v);
    case HT_I32: EACH(uint32_t, v ^ 0x80000000u);
    case HT_F32: EACH(uint32_t, key_of_f32(PLUS(v, wide_sign)));
    default: break;
    }
}

static void load_64(ht_dtype t, const char *x, int64_t stride, int64_t n, bool places, uint64_t *out) {
    const uint64_t sign = places ? UINT64_C(1) << 63 : 0;
    switch (t) {
    case HT_U64: EACH(uint64_t, v);
    case HT_I64: EACH(uint64_t, v ^ UINT64_C(1) << 63);
    case HT_F64: EACH(uint64_t, key_of_f64(PLUS(v, sign)));
    default: break;
    }
}

#define BACK(type, of)                                                                                                 \
    for (int64_t i = 0; i < n; i++) {                                                                                  \
        const uint32_t k = keys[i];                                                                                    \
        ((type *)out)[i] = (type)(of);                                                                                 \
    }                                                                                                                  \
    break

static void store_32(ht_dtype t, const uint32_t *keys, int64_t n, void *out) {
    switch (t) {
    case HT_BOOL:
    case HT_U8: BACK(uint8_t, k);
    case HT_I8: BACK(uint8_t, k ^ 0x80u);
    case HT_U16: BACK(uint16_t, k);
    case HT_I16: BACK(uint16_t, k ^ 0x8000u);
    case HT_F16:
    case HT_BF16: BACK(uint16_t, k & 0x8000 ? k ^ 0x8000u : ~k);
    case HT_U32: BACK(uint32_t, k);
    case HT_I32: BACK(uint32_t, k ^ 0x80000000u);
    case HT_F32: BACK(uint32_t, k & 0x80000000u ? k ^ 0x80000000u : ~k);
    default: break;
    }
}

static void store_64(ht_dtype t, const uint64_t *keys, int64_t n, uint64_t *out) {
    const uint64_t top = UINT64_C(1) << 63;
    for (int64_t i = 0; i < n; i++) {
        const uint64_t k = keys[i];
        out[i] = t == HT_U64 ? k : t == HT_I64 || k & top ? k ^ top : ~k;
    }
}

/* ---- rows ---- */

typedef enum item_kind { ITEMS_32, ITEMS_64, ITEMS_KEYED } item_kind;

typedef struct sort_job {
    const ht_call *call;
    const ht_view *x;
    int64_t n, n_rows;
    int64_t kth; /* -1: sort */
    bool places;
    item_kind kind;
    size_t item_bytes;
    int low, n_bits; /* of a key in an item */
    char *items;     /* [2 n] per thread */
    uint32_t *counts;
    int64_t piece; /* of a long row */
} sort_job;

static int key_bits(ht_dtype t) { return t == HT_BOOL ? 1 : 8 * (int)ht_dtype_bytes(t); }

static sort_job job_of(const ht_call *call, bool places, int64_t kth) {
    sort_job job = {.call = call, .x = &call->in[0], .kth = kth, .places = places};
    const ht_dtype t = job.x->dtype;
    const int bits = key_bits(t);
    job.n = job.x->shape[job.x->n_dims - 1];
    job.n_rows = job.n > 0 ? ht_view_size(job.x) / job.n : 0;
    job.kind = bits <= 32 ? (places ? ITEMS_64 : ITEMS_32) : places ? ITEMS_KEYED : ITEMS_64;
    job.item_bytes = job.kind == ITEMS_32 ? 4 : job.kind == ITEMS_64 ? 8 : sizeof(ht_keyed);
    job.low = bits <= 32 && places ? 32 : 0;
    job.n_bits = bits;
    return job;
}

static size_t room_of(const sort_job *job) {
    return (2 * (size_t)job->n * job->item_bytes + COUNTS * sizeof(uint32_t) + 63) / 64 * 64;
}

static void give_room(sort_job *job, int worker) {
    job->items = (char *)job->call->scratch + (size_t)worker * room_of(job);
    job->counts = (uint32_t *)(void *)(job->items + 2 * (size_t)job->n * job->item_bytes);
}

/* Elements [begin, end) of a row as items, at `to`; `room` is for keys. */
static void load(const sort_job *job, int64_t row, int64_t begin, int64_t end, void *to, void *room) {
    const ht_view *x = job->x;
    const int last = x->n_dims - 1;
    const int64_t n = end - begin, stride = x->stride[last];
    const char *from =
        (const char *)x->data + (ht_view_offset(x, last, row) + begin * stride) * (int64_t)ht_dtype_bytes(x->dtype);
    if (job->kind == ITEMS_32)
        load_32(x->dtype, from, stride, n, false, to);
    else if (job->kind == ITEMS_64 && !job->places)
        load_64(x->dtype, from, stride, n, false, to);
    else if (job->kind == ITEMS_64) {
        const uint32_t *keys = room;
        uint64_t *items = to;
        load_32(x->dtype, from, stride, n, true, room);
        for (int64_t i = 0; i < n; i++) items[i] = (uint64_t)keys[i] << 32 | (uint64_t)(begin + i);
    } else {
        const uint64_t *keys = room;
        ht_keyed *items = to;
        load_64(x->dtype, from, stride, n, true, room);
        for (int64_t i = 0; i < n; i++) items[i] = (ht_keyed){keys[i], (uint32_t)(begin + i)};
    }
}

/* Items [begin, end) of a row as elements, or places, of the result. */
static void store(const sort_job *job, int64_t row, int64_t begin, int64_t end, const void *items) {
    const ht_view *out = &job->call->out;
    const int64_t n = end - begin;
    void *to = (char *)out->data + (row * job->n + begin) * (int64_t)ht_dtype_bytes(out->dtype);
    if (job->places) {
        uint32_t *places = to;
        if (job->kind == ITEMS_64)
            for (int64_t i = 0; i < n; i++) places[i] = (uint32_t)((const uint64_t *)items)[begin + i];
        else
            for (int64_t i = 0; i < n; i++) places[i] = ((const ht_keyed *)items)[begin + i].place;
    } else if (job->kind == ITEMS_32)
        store_32(out->dtype, (const uint32_t *)items + begin, n, to);
    else
        store_64(out->dtype, (const uint64_t *)items + begin, n, to);
}

static void order(const sort_job *job, void *a, void *other, int64_t n) {
    uint32_t *counts = job->counts;
    if (job->kth >= 0) {
        switch (job->kind) {
        case ITEMS_32:
            if (!select_by_lanes(a, other, n, job->kth, depth_for(n)))
                select_32(a, other, n, job->kth, job->low, job->n_bits, counts);
            return;
        case ITEMS_64: select_64(a, other, n, job->kth, job->low, job->n_bits, counts); return;
        case ITEMS_KEYED: select_keyed(a, other, n, job->kth, job->low, job->n_bits, counts); return;
        }
    }
    switch (job->kind) {
    case ITEMS_32:
        if (!sort_by_lanes(a, other, n, depth_for(n))) sort_32(a, other, n, job->low, job->n_bits, counts);
        return;
    case ITEMS_64: sort_64(a, other, n, job->low, job->n_bits, counts); return;
    case ITEMS_KEYED: sort_keyed(a, other, n, job->low, job->n_bits, counts); return;
    }
}

static void do_rows(void *arg, int64_t begin, int64_t end, int worker) {
    sort_job job = *(const sort_job *)arg;
    give_room(&job, worker);
    char *other = job.items + (size_t)job.n * job.item_bytes;
    for (int64_t row = begin; row < end; row++) {
        load(&job, row, 0, job.n, job.items, other);
        order(&job, job.items, other, job.n);
        store(&job, row, 0, job.n, job.items);
    }
}

/* ---- one long row ---- */

static void sort_pieces(void *arg, int64_t begin, int64_t end, int worker) {
    sort_job job = *(const sort_job *)arg;
    char *items = job.items;
    give_room(&job, worker);
    for (int64_t p = begin; p < end; p++) {
        const int64_t first = p * job.piece, last = ht_min_i64(first + job.piece, job.n);
        if (first >= last) continue;
        char *a = items + (size_t)first * job.item_bytes, *other = a + (size_t)job.n * job.item_bytes;
        load(&job, job.n_rows, first, last, a, other);
        order(&job, a, other, last - first);
    }
}

typedef struct merge_job {
    const sort_job *sort;
    char *from, *to;
    int64_t sorted; /* so many items are in order already, again and again */
} merge_job;

enum { MERGE_GRAIN = 1 << 13 };

static void merge_blocks(void *arg, int64_t begin, int64_t end, int worker) {
    (void)worker;
    const merge_job *m = arg;
    const sort_job *job = m->sort;
    while (begin < end) {
        const int64_t first = begin / (2 * m->sorted) * (2 * m->sorted);
        const int64_t middle = ht_min_i64(first + m->sorted, job->n), last = ht_min_i64(middle + m->sorted, job->n);
        const int64_t until = ht_min_i64(end, last), low = begin - first, high = until - first;
        const char *a = m->from + (size_t)first * job->item_bytes, *b = m->from + (size_t)middle * job->item_bytes;
        char *to = m->to + (size_t)first * job->item_bytes;
        const void *pa = a, *pb = b;
        void *out = to;
        switch (job->kind) {
        case ITEMS_32: merge_32(pa, middle - first, pb, last - middle, low, high, out); break;
        case ITEMS_64: merge_64(pa, middle - first, pb, last - middle, low, high, out); break;
        case ITEMS_KEYED: merge_keyed(pa, middle - first, pb, last - middle, low, high, out); break;
        }
        begin = until;
    }
}

static void store_block(void *arg, int64_t begin, int64_t end, int worker) {
    (void)worker;
    const merge_job *m = arg;
    store(m->sort, m->sort->n_rows, begin, end, m->from);
}

/* The row is job->n_rows, for want of another place to say so. */
static void sort_long_row(sort_job *job, int64_t row) {
    const int threads = ht_pool_threads(job->call->pool);
    sort_job one = *job;
    one.n_rows = row;
    give_room(&one, 0);
    one.piece = (one.n + threads - 1) / threads;
    ht_pool_run(job->call->pool, threads, 1, sort_pieces, &one);
    char *from = one.items, *to = one.items + (size_t)one.n * one.item_bytes;
    merge_job merge = {&one, from, to, one.piece};
    for (; merge.sorted < one.n; merge.sorted *= 2) {
        ht_pool_run(job->call->pool, one.n, MERGE_GRAIN, merge_blocks, &merge);
        char *done = merge.from;
        merge.from = merge.to;
        merge.to = done;
    }
    ht_pool_run(job->call->pool, one.n, MERGE_GRAIN, store_block, &merge);
}

static void run(sort_job job) {
    if (job.n == 0 || job.n_rows == 0) return;
    const int threads = ht_pool_threads(job.call->pool);
    if (job.kth < 0 && job.n >= LONG_ROW && job.n_rows < threads)
        for (int64_t row = 0; row < job.n_rows; row++) sort_long_row(&job, row);
    else
        ht_pool_run(job.call->pool, job.n_rows, ht_row_grain(HT_GRAIN_PLAIN, job.n), do_rows, &job);
}

static size_t scratch_for(const ht_call *call, bool places) {
    const sort_job job = job_of(call, places, 0);
    return (size_t)ht_pool_threads(call->pool) * room_of(&job);
}

static size_t sort_scratch(const ht_call *call) { return scratch_for(call, false); }
static size_t argsort_scratch(const ht_call *call) { return scratch_for(call, true); }

static ht_status sort(const ht_call *call, ht_error *err) {
    (void)err;
    run(job_of(call, false, -1));
    return HT_OK;
}

static ht_status argsort(const ht_call *call, ht_error *err) {
    (void)err;
    run(job_of(call, true, -1));
    return HT_OK;
}

static ht_status partition(const ht_call *call, ht_error *err) {
    (void)err;
    run(job_of(call, false, ((const ht_partition_params *)call->params)->kth));
    return HT_OK;
}

static ht_status argpartition(const ht_call *call, ht_error *err) {
    (void)err;
    run(job_of(call, true, ((const ht_partition_params *)call->params)->kth));
    return HT_OK;
}

void HT_ISA_NAME(ht_vector_sort)(ht_kernel kernels[HT_OP_COUNT]) {
    kernels[HT_OP_SORT] = (ht_kernel){.run = sort, .scratch = sort_scratch};
    kernels[HT_OP_ARGSORT] = (ht_kernel){.run = argsort, .scratch = argsort_scratch};
    kernels[HT_OP_PARTITION] = (ht_kernel){.run = partition, .scratch = sort_scratch};
    kernels[HT_OP_ARGPARTITION] = (ht_kernel){.run = argpartition, .scratch = argsort_scratch};
}
