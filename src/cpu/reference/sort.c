/* Radix sort and selection along the last axis, and the indices that elements come from. Rows are dealt to the threads.
 *
 * Elements become keys: unsigned numbers of 16, 32 or 64 bits in the same order, a NaN last. Keys are sorted, or parted,
 * by digits (sort_items.h), for places together with the place: equal elements keep the order of their places. */
#include "base/checked.h"
#include "base/dtype.h"
#include "cpu/reference/reference.h"
#include "cpu/walk.h"
#include "device/params.h"

#include <string.h>

enum { SMALL_SORT = 24, COUNTS = 8 * 256 > 6 * 2048 ? 8 * 256 : 6 * 2048 };

typedef struct placed {
    uint64_t key;
    uint64_t place;
} placed;

#define ITEM    uint16_t
#define KEY(x)  ((uint64_t)(x))
#define NAME(f) f##_16
#include "cpu/reference/sort_items.h"
#undef ITEM
#undef NAME
#define ITEM    uint32_t
#define NAME(f) f##_32
#include "cpu/reference/sort_items.h"
#undef ITEM
#undef NAME
#define ITEM    uint64_t
#define NAME(f) f##_64
#include "cpu/reference/sort_items.h"
#undef ITEM
#undef NAME
#undef KEY
/* A key of 32 bits at most above the place. */
#define ITEM    uint64_t
#define KEY(x)  ((x) >> 32)
#define NAME(f) f##_near
#include "cpu/reference/sort_items.h"
#undef ITEM
#undef NAME
#undef KEY
#define ITEM    placed
#define KEY(x)  ((x).key)
#define NAME(f) f##_far
#include "cpu/reference/sort_items.h"
#undef ITEM
#undef NAME
#undef KEY

/* ---- keys ---- */

/* The key of a float's bits: negative numbers count down. A NaN has the last key of all. */
static uint64_t key_of_float(uint64_t bits, int width, uint64_t infinity) {
    const uint64_t sign = UINT64_C(1) << (width - 1), all = sign | (sign - 1);
    if ((bits & ~sign) > infinity) return all;
    return bits & sign ? ~bits & all : bits | sign;
}

static uint64_t bits_of_key(uint64_t key, int width) {
    const uint64_t sign = UINT64_C(1) << (width - 1);
    return key & sign ? key ^ sign : ~key;
}

/* `places`: neither zero comes before the other. */
static uint64_t key_of(ht_dtype t, const char *x, bool places) {
    const int width = 8 * (int)ht_dtype_bytes(t);
    uint64_t v = 0;
    memcpy(&v, x, ht_dtype_bytes(t));
    if (places && ht_dtype_is_float(t) && v == UINT64_C(1) << (width - 1)) v = 0;
    switch (t) {
    case HT_BOOL: return v != 0;
    case HT_F16: return key_of_float(v, width, 0x7c00);
    case HT_BF16: return key_of_float(v, width, 0x7f80);
    case HT_F32: return key_of_float(v, width, 0x7f800000);
    case HT_F64: return key_of_float(v, width, UINT64_C(0x7ff0000000000000));
    default: return ht_dtype_is_signed(t) ? v ^ UINT64_C(1) << (width - 1) : v;
    }
}

static void store_key(ht_dtype t, uint64_t key, char *to) {
    const int width = 8 * (int)ht_dtype_bytes(t);
    uint64_t v = key;
    if (ht_dtype_is_float(t))
        v = bits_of_key(key, width);
    else if (ht_dtype_is_signed(t))
        v = key ^ UINT64_C(1) << (width - 1);
    memcpy(to, &v, ht_dtype_bytes(t));
}

/* ---- rows ---- */

typedef enum item_kind { ITEMS_16, ITEMS_32, ITEMS_64, ITEMS_NEAR, ITEMS_FAR } item_kind;

typedef struct sort_job {
    const ht_call *call;
    int64_t n;   /* elements of a row */
    int64_t kth; /* -1: sort */
    bool places;
    item_kind kind;
    size_t item_bytes;
} sort_job;

static sort_job job_of(const ht_call *call, bool places, int64_t kth) {
    static const size_t item_bytes[] = {2, 4, 8, 8, sizeof(placed)};
    const ht_view *x = &call->in[0];
    const size_t bytes = ht_dtype_bytes(x->dtype);
    sort_job j = {.call = call, .n = x->shape[x->n_dims - 1], .kth = kth, .places = places};
    j.kind = places       ? (bytes <= 4 && j.n <= UINT32_MAX ? ITEMS_NEAR : ITEMS_FAR)
             : bytes <= 2 ? ITEMS_16
             : bytes <= 4 ? ITEMS_32
                          : ITEMS_64;
    j.item_bytes = item_bytes[j.kind];
    return j;
}

/* The items of a row, as many again for sorting them, and counts: of one thread. */
static size_t items_room(const sort_job *j) { return (2 * (size_t)j->n * j->item_bytes + 63) / 64 * 64; }
static size_t room_of(const sort_job *j) { return items_room(j) + COUNTS * sizeof(uint32_t); }

/* A loop of its own for each kind of item. */
#define FOR_ITEMS(X)                                                                                                   \
    switch (j->kind) {                                                                                                 \
    case ITEMS_16: X(uint16_t, 16, (uint16_t)key, item) break;                                                         \
    case ITEMS_32: X(uint32_t, 32, (uint32_t)key, item) break;                                                         \
    case ITEMS_64: X(uint64_t, 64, key, item) break;                                                                   \
    case ITEMS_NEAR: X(uint64_t, near, key << 32 | (uint64_t)i, item & UINT32_MAX) break;                              \
    case ITEMS_FAR: X(placed, far, ((placed){key, (uint64_t)i}), item.place) break;                                    \
    }

static void load_items(const sort_job *j, const char *x, int64_t step_bytes, void *items) {
    const ht_dtype t = j->call->in[0].dtype;
#define LOAD(type, kind, of_key, of_item)                                                                              \
    for (int64_t i = 0; i < j->n; i++) {                                                                               \
        const uint64_t key = key_of(t, x + i * step_bytes, j->places);                                                 \
        ((type *)items)[i] = of_key;                                                                                   \
    }
    FOR_ITEMS(LOAD)
#undef LOAD
}

static void order_items(const sort_job *j, void *items, void *other, uint32_t *counts) {
    const int n_bits = 8 * (int)ht_dtype_bytes(j->call->in[0].dtype);
#define ORDER(type, kind, of_key, of_item)                                                                             \
    if (j->kth < 0)                                                                                                    \
        sort_##kind(items, other, j->n, n_bits, counts);                                                               \
    else                                                                                                               \
        select_##kind(items, other, j->n, j->kth, n_bits, counts);
    FOR_ITEMS(ORDER)
#undef ORDER
}

static void store_items(const sort_job *j, int64_t row, const void *items) {
    const ht_dtype t = j->call->in[0].dtype;
    const int64_t bytes = (int64_t)ht_dtype_bytes(t);
    char *out = (char *)j->call->out.data + row * j->n * bytes;
    uint32_t *places = (uint32_t *)j->call->out.data + row * j->n;
#define STORE(type, kind, of_key, of_item)                                                                             \
    for (int64_t i = 0; i < j->n; i++) {                                                                               \
        const type item = ((const type *)items)[i];                                                                    \
        if (j->places)                                                                                                 \
            places[i] = (uint32_t)(of_item);                                                                           \
        else                                                                                                           \
            store_key(t, of_item, out + i * bytes);                                                                    \
    }
    FOR_ITEMS(STORE)
#undef STORE
}

static void do_rows(void *arg, int64_t begin, int64_t end, int worker) {
    const sort_job *j = arg;
    const ht_view *x = &j->call->in[0];
    const int64_t bytes = (int64_t)ht_dtype_bytes(x->dtype);
    char *items = (char *)j->call->scratch + (size_t)worker * room_of(j);
    char *other = items + (size_t)j->n * j->item_bytes;
    uint32_t *counts = (uint32_t *)(void *)(items + items_room(j));
    for (int64_t row = begin; row < end; row++) {
        const char *from = (const char *)x->data + ht_view_offset(x, x->n_dims - 1, row) * bytes;
        load_items(j, from, x->stride[x->n_dims - 1] * bytes, items);
        order_items(j, items, other, counts);
        store_items(j, row, items);
    }
}

static ht_status run(sort_job j) {
    const int64_t size = ht_view_size(&j.call->in[0]);
    if (size) ht_pool_run(j.call->pool, size / j.n, ht_row_grain(HT_GRAIN_PLAIN, j.n), do_rows, &j);
    return HT_OK;
}

static size_t scratch_for(const ht_call *call, bool places) {
    const sort_job j = job_of(call, places, -1);
    return (size_t)ht_pool_threads(call->pool) * room_of(&j);
}

size_t ht_plain_sort_scratch(const ht_call *call) { return scratch_for(call, false); }
size_t ht_plain_argsort_scratch(const ht_call *call) { return scratch_for(call, true); }

static int64_t kth_of(const ht_call *call) { return ((const ht_partition_params *)call->params)->kth; }

ht_status ht_plain_sort(const ht_call *call, ht_error *err) {
    (void)err;
    return run(job_of(call, false, -1));
}
ht_status ht_plain_argsort(const ht_call *call, ht_error *err) {
    (void)err;
    return run(job_of(call, true, -1));
}
ht_status ht_plain_partition(const ht_call *call, ht_error *err) {
    (void)err;
    return run(job_of(call, false, kth_of(call)));
}
ht_status ht_plain_argpartition(const ht_call *call, ht_error *err) {
    (void)err;
    return run(job_of(call, true, kth_of(call)));
}
