/* Radix sort, selection and their argument versions along the last axis; threads share rows.
 *
 * Elements are mapped to unsigned 16, 32 or 64-bit keys of the same order, NaN last. Keys are sorted or partitioned by
 * digits (sort_items.h), together with their indices for the argument versions, which are stable. */
#include "base/checked.h"
#include "base/dtype.h"
#include "cpu/call.h"
#include "cpu/reference/reference.h"
#include "cpu/strided_iterator.h"
#include "device/params.h"

#include <string.h>

/* Digit widths. Long rows take wider digits: counting costs less than the saved pass. */
enum { SMALL_SORT = 24, MANY = 1 << 14, FEW_BITS = 8, MANY_BITS = 11, COUNTS = 6 << MANY_BITS };
static inline int digit_bits(int64_t n) { return n >= MANY ? MANY_BITS : FEW_BITS; }

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
/* Key of at most 32 bits above the index. */
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

/* Key of a float's bits: a negative number's bits are inverted. NaN has the largest key. */
static inline uint64_t key_of_float(uint64_t bits, int width, uint64_t infinity) {
    const uint64_t sign = UINT64_C(1) << (width - 1), all = sign | (sign - 1);
    const uint64_t key =
        (bits ^ ((0 - (bits >> (width - 1))) | sign)) & all; /* branch-free, since signs are unpredictable */
    return (bits & ~sign) > infinity ? all : key;
}

static inline uint64_t bits_of_key(uint64_t key, int width) {
    const uint64_t sign = UINT64_C(1) << (width - 1);
    return key ^ (((key >> (width - 1)) - 1) | sign);
}

/* Key of an element's bits. With `places` -0 and 0 are equal. */
static inline uint64_t key_of(ht_dtype t, uint64_t v, int width, bool places) {
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

static inline uint64_t element_of(ht_dtype t, uint64_t key, int width) {
    if (ht_dtype_is_float(t)) return bits_of_key(key, width);
    return ht_dtype_is_signed(t) ? key ^ UINT64_C(1) << (width - 1) : key;
}

/* ---- rows ---- */

typedef enum item_kind { ITEMS_16, ITEMS_32, ITEMS_64, ITEMS_NEAR, ITEMS_FAR } item_kind;

typedef struct sort_job {
    const ht_call *call;
    int64_t n;   /* elements of a row */
    int64_t kth; /* -1: full sort */
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

/* Bytes of one thread's items, and as many spare items. */
static size_t items_bytes(const sort_job *j) { return (2 * (size_t)j->n * j->item_bytes + 63) / 64 * 64; }
static size_t scratch_of(const sort_job *j) { return items_bytes(j) + COUNTS * sizeof(uint32_t); }

/* X(item type, function suffix, item of `key` and index i, stored value of `item`) for the job's item kind. */
#define FOR_ITEMS(X)                                                                                                   \
    switch (j->kind) {                                                                                                 \
    case ITEMS_16: X(uint16_t, 16, (uint16_t)key, item) break;                                                         \
    case ITEMS_32: X(uint32_t, 32, (uint32_t)key, item) break;                                                         \
    case ITEMS_64: X(uint64_t, 64, key, item) break;                                                                   \
    case ITEMS_NEAR: X(uint64_t, near, key << 32 | (uint64_t)i, item & UINT32_MAX) break;                              \
    case ITEMS_FAR: X(placed, far, ((placed){key, (uint64_t)i}), item.place) break;                                    \
    }

/* X(element type, dtype, places) with constant arguments, so that every combination gets its own loop. */
#define FOR_DTYPE_OF(X, type, id)                                                                                      \
    case id:                                                                                                           \
        if (j->places) {                                                                                               \
            X(type, id, true)                                                                                          \
        } else {                                                                                                       \
            X(type, id, false)                                                                                         \
        }                                                                                                              \
        break;
#define FOR_DTYPES(X)                                                                                                  \
    switch (j->call->in[0].dtype) {                                                                                    \
        FOR_DTYPE_OF(X, uint8_t, HT_BOOL)                                                                              \
        FOR_DTYPE_OF(X, uint8_t, HT_U8)                                                                                \
        FOR_DTYPE_OF(X, uint8_t, HT_I8)                                                                                \
        FOR_DTYPE_OF(X, uint16_t, HT_U16)                                                                              \
        FOR_DTYPE_OF(X, uint16_t, HT_I16)                                                                              \
        FOR_DTYPE_OF(X, uint16_t, HT_F16)                                                                              \
        FOR_DTYPE_OF(X, uint16_t, HT_BF16)                                                                             \
        FOR_DTYPE_OF(X, uint32_t, HT_U32)                                                                              \
        FOR_DTYPE_OF(X, uint32_t, HT_I32)                                                                              \
        FOR_DTYPE_OF(X, uint32_t, HT_F32)                                                                              \
        FOR_DTYPE_OF(X, uint64_t, HT_U64)                                                                              \
        FOR_DTYPE_OF(X, uint64_t, HT_I64)                                                                              \
        FOR_DTYPE_OF(X, uint64_t, HT_F64)                                                                              \
    default: break;                                                                                                    \
    }

static void load_items(const sort_job *j, const void *from, int64_t step, void *items) {
#define LOAD_ITEMS(type, kind, of_key, of_item) ((type *)items)[i] = of_key;
#define LOAD(type, id, places)                                                                                         \
    for (int64_t i = 0; i < j->n; i++) {                                                                               \
        const uint64_t key = key_of(id, ((const type *)from)[i * step], 8 * (int)sizeof(type), places);                \
        FOR_ITEMS(LOAD_ITEMS)                                                                                          \
    }
    FOR_DTYPES(LOAD)
#undef LOAD
#undef LOAD_ITEMS
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

static void store_elements(const sort_job *j, int64_t row, const void *items) {
#define STORE(type, id, places)                                                                                        \
    type *out = (type *)j->call->out.data + row * j->n;                                                                \
    for (int64_t i = 0; i < j->n; i++) {                                                                               \
        uint64_t key = 0;                                                                                              \
        if (sizeof(type) <= 2)                                                                                         \
            key = ((const uint16_t *)items)[i];                                                                        \
        else if (sizeof(type) == 4)                                                                                    \
            key = ((const uint32_t *)items)[i];                                                                        \
        else                                                                                                           \
            key = ((const uint64_t *)items)[i];                                                                        \
        out[i] = (type)element_of(id, key, 8 * (int)sizeof(type));                                                     \
    }
    FOR_DTYPES(STORE)
#undef STORE
}

static void store_places(const sort_job *j, int64_t row, const void *items) {
    uint32_t *places = (uint32_t *)j->call->out.data + row * j->n;
    if (j->kind == ITEMS_NEAR)
        for (int64_t i = 0; i < j->n; i++) places[i] = (uint32_t)((const uint64_t *)items)[i];
    else
        for (int64_t i = 0; i < j->n; i++) places[i] = (uint32_t)((const placed *)items)[i].place;
}

static void sort_rows(void *arg, int64_t begin, int64_t end, int worker) {
    const sort_job *j = arg;
    const ht_view *x = &j->call->in[0];
    const int64_t bytes = (int64_t)ht_dtype_bytes(x->dtype);
    char *items = (char *)j->call->scratch + (size_t)worker * scratch_of(j);
    char *other = items + (size_t)j->n * j->item_bytes;
    uint32_t *counts = (uint32_t *)(void *)(items + items_bytes(j));
    for (int64_t row = begin; row < end; row++) {
        const char *from = (const char *)x->data + ht_view_offset(x, x->n_dims - 1, row) * bytes;
        load_items(j, from, x->stride[x->n_dims - 1], items);
        order_items(j, items, other, counts);
        (j->places ? store_places : store_elements)(j, row, items);
    }
}

static ht_status run(sort_job j) {
    ht_run_rows(j.call, &j.call->in[0], j.n, sort_rows, &j);
    return HT_OK;
}

static size_t total_scratch(const ht_call *call, bool places) {
    const sort_job j = job_of(call, places, -1);
    return (size_t)ht_pool_threads(ht_call_pool(call)) * scratch_of(&j);
}

size_t ht_plain_sort_scratch(const ht_call *call) { return total_scratch(call, false); }
size_t ht_plain_argsort_scratch(const ht_call *call) { return total_scratch(call, true); }

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
