/* Elements along the last axis in order, or parted by one of them, and the places they come from.
 *
 * Every dtype becomes a number without sign that has the same order: 32 or 64 bits, or for places the key above the index.
 * Rows are dealt to the threads; a long row that is alone is dealt by value: threads part their pieces of it by the same
 * pivots, and then sort what lies between two pivots in all pieces. A NaN comes last. */
#include "base/checked.h"
#include "base/dtype.h"
#include "cpu/sort_trial.h"
#include "cpu/vector/simd.h"
#include "cpu/vector/sort_counting.h"
#include "cpu/vector/sort_keys.h"
#include "cpu/vector/vector.h"
#include "cpu/walk.h"
#include "device/params.h"

#include <string.h>

enum { SMALL_SORT = 24, COUNTS = 8 * 256 > 6 * 2048 ? 8 * 256 : 6 * 2048, LONG_ROW = 1 << 15 };

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
#include "cpu/vector/sort_lanes.h"

/* ---- rows ---- */

typedef enum item_kind { ITEMS_32, ITEMS_64 } item_kind;

typedef struct sort_job {
    const ht_call *call;
    const ht_view *x;
    int64_t n, n_rows;
    int64_t kth; /* -1: sort */
    bool places;
    item_kind kind;
    size_t item_bytes;
    int low, n_bits; /* of a key in an item; below them is the place, if places are asked for */
    uint64_t
        least; /* what keys of 64 bits count from, and by how much they are then shifted, to leave room for places */
    int shift;
    char *items; /* [rooms n] per thread */
    int rooms;
    uint32_t *counts;
} sort_job;

static int key_bits(ht_dtype t) { return t == HT_BOOL ? 1 : 8 * (int)ht_dtype_bytes(t); }

static sort_job job_of(const ht_call *call, bool places, int64_t kth) {
    sort_job job = {.call = call, .x = &call->in[0], .kth = kth, .places = places};
    const ht_dtype t = job.x->dtype;
    const int bits = key_bits(t);
    job.n = job.x->shape[job.x->n_dims - 1];
    job.n_rows = job.n > 0 ? ht_view_size(job.x) / job.n : 0;
    job.kind = bits <= 32 && !places ? ITEMS_32 : ITEMS_64;
    job.item_bytes = job.kind == ITEMS_32 ? 4 : 8;
    job.low = !places ? 0 : bits <= 32 ? 32 : 64 - __builtin_clzll((unsigned long long)job.n | 1);
    job.n_bits = places && bits == 64 && kth < 0 ? 64 - job.low : bits;
    job.rooms = kth < 0 ? 2 : 3;
    return job;
}

static size_t room_of(const sort_job *job) {
    return ((size_t)job->rooms * (size_t)job->n * job->item_bytes + COUNTS * sizeof(uint32_t) + 63) / 64 * 64;
}

static void give_room(sort_job *job, int worker) {
    job->items = (char *)job->call->scratch + (size_t)worker * room_of(job);
    job->counts = (uint32_t *)(void *)(job->items + (size_t)job->rooms * (size_t)job->n * job->item_bytes);
}

static const char *element(const sort_job *job, int64_t row, int64_t at) {
    const ht_view *x = job->x;
    const int last = x->n_dims - 1;
    return (const char *)x->data +
           (ht_view_offset(x, last, row) + at * x->stride[last]) * (int64_t)ht_dtype_bytes(x->dtype);
}

static bool wide_keys(const sort_job *job) { return ht_dtype_bytes(job->x->dtype) == 8; }

/* Elements [begin, end) of a row as items, at `to`; `room` is for keys. */
static void load(const sort_job *job, int64_t row, int64_t begin, int64_t end, void *to, void *room) {
    const ht_dtype t = job->x->dtype;
    const int64_t n = end - begin, stride = job->x->stride[job->x->n_dims - 1];
    const char *from = element(job, row, begin);
    uint64_t *items = to;
    if (job->kind == ITEMS_32)
        load_32(t, from, stride, n, false, to);
    else if (!job->places)
        load_64(t, from, stride, n, false, to);
    else if (wide_keys(job)) {
        const uint64_t *keys = room;
        load_64(t, from, stride, n, true, room);
        for (int64_t i = 0; i < n; i++)
            items[i] = (keys[i] - job->least) >> job->shift << job->low | (uint64_t)(begin + i);
    } else {
        const uint32_t *keys = room;
        load_32(t, from, stride, n, true, room);
        for (int64_t i = 0; i < n; i++) items[i] = (uint64_t)keys[i] << 32 | (uint64_t)(begin + i);
    }
}

/* Items [begin, end) of a row as elements, or places, of the result. */
static void store(const sort_job *job, int64_t row, int64_t begin, int64_t end, const void *items) {
    const ht_view *out = &job->call->out;
    const int64_t n = end - begin;
    void *to = (char *)out->data + (row * job->n + begin) * (int64_t)ht_dtype_bytes(out->dtype);
    if (job->places) {
        const uint64_t *from = (const uint64_t *)items + begin, mask = (UINT64_C(1) << job->low) - 1;
        for (int64_t i = 0; i < n; i++) ((uint32_t *)to)[i] = (uint32_t)(from[i] & mask);
    } else if (job->kind == ITEMS_32)
        store_32(out->dtype, (const uint32_t *)items + begin, n, to);
    else
        store_64(out->dtype, (const uint64_t *)items + begin, n, to);
}

static void order(const sort_job *job, void *a, void *other, int64_t n) {
    if (job->kind == ITEMS_32)
        order_32(a, other, n, job->low, job->n_bits, job->counts);
    else
        order_64(a, other, n, job->low, job->n_bits, job->counts);
}

/* ---- places of keys of 64 bits ---- */

/* A place and 64 bits do not fit into an item: it has as many of the upper bits of what a key is above the least one as leave
 * room for the place. */
static void measure(sort_job *job, int64_t row) {
    enum { AT_ONCE = 256 };
    uint64_t keys[AT_ONCE], least = UINT64_MAX, most = 0;
    const int64_t stride = job->x->stride[job->x->n_dims - 1];
    for (int64_t at = 0; at < job->n; at += AT_ONCE) {
        const int64_t n = ht_min_i64(AT_ONCE, job->n - at);
        load_64(job->x->dtype, element(job, row, at), stride, n, true, keys);
        for (int64_t i = 0; i < n; i++) {
            least = keys[i] < least ? keys[i] : least;
            most = keys[i] > most ? keys[i] : most;
        }
    }
    const int bits = 64 - __builtin_clzll((unsigned long long)(most - least) | 1);
    job->least = least;
    job->shift = bits > 64 - job->low ? bits - (64 - job->low) : 0;
}

/* Items in order, of which some may be alike but for the place and for bits that were left out: those, which are no more than
 * a place has, with the place fit into an item again. */
static void settle(const sort_job *job, int64_t row, uint64_t *items, uint64_t *other, int64_t n) {
    if (!wide_keys(job) || job->shift == 0) return;
    const uint64_t places = (UINT64_C(1) << job->low) - 1, left_out = (UINT64_C(1) << job->shift) - 1;
    for (int64_t i = 0, end; i < n; i = end) {
        const uint64_t alike = items[i] >> job->low;
        for (end = i + 1; end < n && items[end] >> job->low == alike;) end++;
        if (end == i + 1) continue;
        for (int64_t k = i; k < end; k++) {
            const uint64_t place = items[k] & places;
            uint64_t key = 0;
            load_64(job->x->dtype, element(job, row, (int64_t)place), 1, 1, true, &key);
            items[k] = ((key - job->least) & left_out) << job->low | place;
        }
        order_64(items + i, other, end - i, job->low, job->shift, job->counts);
    }
}

/* ---- places parted by the element at kth ---- */

/* The places of keys below the one that sorting would put at kth, then of those equal to it, then of those above it: each
 * of the three in order. `room` is for 2 n keys more. */
#define PART_PLACES(width)                                                                                             \
    static void part_places_##width(const uint##width##_t *keys, uint##width##_t *room, int64_t n,                     \
                                    const sort_job *job, uint32_t *places) {                                           \
        const placed_##width at = find_at_##width(keys, room, n, job->kth, job->n_bits, job->counts);                  \
        deal_places_##width(keys, n, at.number, (int64_t[]){0, at.below, at.below + at.equal}, places);                \
    }

#ifdef HT_ISA_avx512
#define DEAL_PLACES(width, lanes, mask, word, set1, packed, store, iota)                                               \
    static void deal_places_##width(const uint##width##_t *keys, int64_t n, uint##width##_t pivot, int64_t next[3],    \
                                    uint32_t *places) {                                                                \
        const __m512i middle = _mm512_set1_epi##width((word)pivot);                                                    \
        for (int64_t i = 0; i < n; i += (lanes)) {                                                                     \
            const mask here = n - i >= (lanes) ? (mask)-1 : (mask)((1u << (n - i)) - 1);                               \
            const __m512i x = _mm512_maskz_loadu_epi##width(here, keys + i);                                           \
            const mask below = _mm512_mask_cmplt_epu##width##_mask(here, x, middle);                                   \
            const mask equal = _mm512_mask_cmpeq_epu##width##_mask(here, x, middle);                                   \
            const mask part[3] = {below, equal, (mask)(here & ~(below | equal))};                                      \
            for (int k = 0; k < 3; k++) {                                                                              \
                if (!part[k]) continue;                                                                                \
                const int count = __builtin_popcount(part[k]);                                                         \
                store(places + next[k], (mask)((1u << count) - 1),                                                     \
                      packed(part[k], _mm512_add_epi32(set1((int)i), iota)));                                          \
                next[k] += count;                                                                                      \
            }                                                                                                          \
        }                                                                                                              \
    }
#define IOTA _mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0)
DEAL_PLACES(32, 16, __mmask16, int, _mm512_set1_epi32, _mm512_maskz_compress_epi32, _mm512_mask_storeu_epi32, IOTA)
#define STORE_8(to, m, v) _mm512_mask_storeu_epi32((to), (__mmask16)(m), (v))
#define PACK_8(m, v)      _mm512_maskz_compress_epi32((__mmask16)(m), (v))
DEAL_PLACES(64, 8, __mmask8, long long, _mm512_set1_epi32, PACK_8, STORE_8, IOTA)
#else
#define DEAL_PLACES(width)                                                                                             \
    static void deal_places_##width(const uint##width##_t *keys, int64_t n, uint##width##_t pivot, int64_t next[3],    \
                                    uint32_t *places) {                                                                \
        for (int64_t i = 0; i < n; i++) places[next[(keys[i] >= pivot) + (keys[i] > pivot)]++] = (uint32_t)i;          \
    }
DEAL_PLACES(32)
DEAL_PLACES(64)
#endif
PART_PLACES(32)
PART_PLACES(64)

static void part_row(const sort_job *job, int64_t row) {
    const int64_t stride = job->x->stride[job->x->n_dims - 1];
    uint32_t *places = (uint32_t *)job->call->out.data + row * job->n;
    void *keys = job->items;
    if (wide_keys(job)) {
        load_64(job->x->dtype, element(job, row, 0), stride, job->n, true, keys);
        part_places_64(keys, (uint64_t *)keys + job->n, job->n, job, places);
    } else {
        load_32(job->x->dtype, element(job, row, 0), stride, job->n, true, keys);
        part_places_32(keys, (uint32_t *)keys + job->n, job->n, job, places);
    }
}

/* ---- elements, not places ---- */

#ifdef HT_ISA_avx512
/* A number without sign, and what form elements of its width have. */
static const form_32 *form_of_32(ht_dtype t) {
    static const form_32 f32 = {0x80000000, INT32_MAX, 0x7f800000}, i32 = {0x80000000, 0, INT32_MAX};
    return t == HT_F32 ? &f32 : t == HT_I32 ? &i32 : &plain_32;
}
static const form_64 *form_of_64(ht_dtype t) {
    static const form_64 f64 = {UINT64_C(1) << 63, INT64_MAX, UINT64_C(0x7ff0000000000000)};
    static const form_64 i64 = {UINT64_C(1) << 63, 0, INT64_MAX};
    return t == HT_F64 ? &f64 : t == HT_I64 ? &i64 : &plain_64;
}

/* A row sorted, or parted, from where it lies or is loaded to, to the result, or if that is of fewer bytes to where it can be
 * stored from. `items` has room for 3 n. */
#define ROW_OF_WIDTH(w)                                                                                                \
    static void do_row_##w(const sort_job *job, int64_t row) {                                                         \
        const ht_view *x = job->x;                                                                                     \
        const int last = x->n_dims - 1;                                                                                \
        const bool wide = ht_dtype_bytes(x->dtype) == (w) / 8, there = wide && x->stride[last] == 1;                   \
        uint##w##_t *items = (uint##w##_t *)(void *)job->items, *room = items + job->n, *other = room + job->n;        \
        const form_##w *form = wide ? form_of_##w(x->dtype) : &plain_##w, *given = there ? form : &plain_##w;          \
        const uint##w##_t *from = there ? (const uint##w##_t *)x->data + ht_view_offset(x, last, row) : items;         \
        uint##w##_t *to = wide ? (uint##w##_t *)job->call->out.data + row * job->n : room;                             \
        if (!there) load(job, row, 0, job->n, items, room);                                                            \
        if (job->kth < 0 || job->n <= BASE_SORT_##w)                                                                   \
            sort_elements_##w(from, given, to, items, job->n, depth_for(job->n), &(sorting_##w){form, job->counts});   \
        else {                                                                                                         \
            const placed_##w at =                                                                                      \
                find_##w(from, given, room, other, job->n, job->kth, depth_for(job->n), job->counts);                  \
            part_elements_##w(from, given, to, form, job->n, &at);                                                     \
        }                                                                                                              \
        if (!wide) store(job, row, 0, job->n, room);                                                                   \
    }
ROW_OF_WIDTH(32)
ROW_OF_WIDTH(64)

static void do_row(const sort_job *job, int64_t row) {
    if (job->kind == ITEMS_32)
        do_row_32(job, row);
    else
        do_row_64(job, row);
}
#else
static void do_row(const sort_job *job, int64_t row) {
    char *other = job->items + (size_t)job->n * job->item_bytes;
    load(job, row, 0, job->n, job->items, other);
    if (job->kth < 0)
        order(job, job->items, other, job->n);
    else if (job->kind == ITEMS_32)
        select_32((uint32_t *)(void *)job->items, (uint32_t *)(void *)other, job->n, job->kth, 0, job->n_bits,
                  job->counts);
    else
        select_64((uint64_t *)(void *)job->items, (uint64_t *)(void *)other, job->n, job->kth, 0, job->n_bits,
                  job->counts);
    store(job, row, 0, job->n, job->items);
}
#endif

static bool is_counted(const sort_job *job) {
    return !job->places && job->kth < 0 && counting_pays(job->x->dtype, job->n);
}

static void count_row(const sort_job *job, int64_t row) {
    const ht_dtype t = job->x->dtype;
    const bool fit = counting_bytes(t) <= COUNTS * sizeof(uint32_t); /* else they do among the items */
    sort_by_counting(t, element(job, row, 0), job->x->stride[job->x->n_dims - 1], job->n,
                     fit ? job->counts : (uint32_t *)(void *)job->items,
                     (char *)job->call->out.data + row * job->n * (int64_t)ht_dtype_bytes(t));
}

static void sort_places(sort_job *job, int64_t row) {
    uint64_t *items = (uint64_t *)(void *)job->items, *other = items + job->n;
    if (wide_keys(job)) measure(job, row);
    load(job, row, 0, job->n, items, other);
    order(job, items, other, job->n);
    settle(job, row, items, other, job->n);
    store(job, row, 0, job->n, items);
}

static void do_rows(void *arg, int64_t begin, int64_t end, int worker) {
    sort_job job = *(const sort_job *)arg;
    give_room(&job, worker);
    for (int64_t row = begin; row < end; row++)
        if (is_counted(&job))
            count_row(&job, row);
        else if (!job.places)
            do_row(&job, row);
        else if (job.kth >= 0)
            part_row(&job, row);
        else
            sort_places(&job, row);
}

/* ---- one long row ---- */

enum { BUCKETS_PER_THREAD = 4, MOST_BUCKETS = 64, SAMPLED = 16, MOST_PIECES = 64 };

typedef struct long_row {
    sort_job sort;
    int64_t row, piece; /* so many items in each piece */
    int n_pieces, n_buckets;
    char *parted, *gathered, *room;               /* [n] each */
    const char *pivots;                           /* [n_buckets - 1], in order */
    int64_t begin[MOST_PIECES][MOST_BUCKETS + 1]; /* of each bucket in each piece */
} long_row;

static int64_t part_items(const sort_job *job, void *a, void *other, int64_t n, const void *pivot) {
    return job->kind == ITEMS_32 ? part_by_lanes_32(a, other, n, *(const uint32_t *)pivot)
                                 : part_by_lanes_64(a, other, n, *(const uint64_t *)pivot);
}

/* Parts items [begin[low], begin[high]) of a piece into the buckets from low to high. */
static void part_piece(const long_row *l, char *a, char *other, int64_t *begin, int low, int high) {
    if (high - low < 2) return;
    const int middle = (low + high) / 2;
    const size_t bytes = l->sort.item_bytes;
    char *from = a + (size_t)begin[low] * bytes;
    begin[middle] = begin[low] + part_items(&l->sort, from, other, begin[high] - begin[low],
                                            l->pivots + (size_t)(middle - 1) * bytes);
    part_piece(l, a, other, begin, low, middle);
    part_piece(l, a, other, begin, middle, high);
}

static void part_pieces(void *arg, int64_t begin, int64_t end, int worker) {
    (void)worker;
    long_row *l = arg;
    for (int64_t p = begin; p < end; p++) {
        const int64_t first = ht_min_i64(p * l->piece, l->sort.n), last = ht_min_i64(first + l->piece, l->sort.n);
        const size_t at = (size_t)first * l->sort.item_bytes;
        load(&l->sort, l->row, first, last, l->parted + at, l->gathered + at);
        l->begin[p][0] = 0;
        l->begin[p][l->n_buckets] = last - first;
        part_piece(l, l->parted + at, l->gathered + at, l->begin[p], 0, l->n_buckets);
    }
}

static void sort_buckets(void *arg, int64_t begin, int64_t end, int worker) {
    const long_row *l = arg;
    sort_job job = l->sort;
    const size_t bytes = job.item_bytes;
    give_room(&job, worker);
    for (int64_t b = begin; b < end; b++) {
        int64_t first = 0, n = 0;
        for (int p = 0; p < l->n_pieces; p++) first += l->begin[p][b];
        char *to = l->gathered + (size_t)first * bytes;
        for (int p = 0; p < l->n_pieces; p++) {
            const int64_t some = l->begin[p][b + 1] - l->begin[p][b];
            memcpy(to + (size_t)n * bytes, l->parted + (size_t)(p * l->piece + l->begin[p][b]) * bytes,
                   (size_t)some * bytes);
            n += some;
        }
        void *room = l->room + (size_t)first * bytes;
        order(&job, to, room, n);
        if (job.places) settle(&job, l->row, (uint64_t *)(void *)to, room, n);
        store(&job, l->row, first, first + n, l->gathered);
    }
}

/* Every so manyth of some items of the row, in order. */
static void find_pivots(long_row *l, char *items, char *other) {
    const size_t bytes = l->sort.item_bytes;
    const int64_t n = l->n_buckets * SAMPLED;
    for (int64_t i = 0; i < n; i++) {
        const int64_t at = (2 * i + 1) * (l->sort.n / (2 * n));
        load(&l->sort, l->row, at, at + 1, items + (size_t)i * bytes, other);
    }
    order(&l->sort, items, other, n);
    for (int b = 1; b < l->n_buckets; b++)
        memcpy(other + (size_t)(b - 1) * bytes, items + (size_t)(b * SAMPLED) * bytes, bytes);
    memcpy(items, other, (size_t)(l->n_buckets - 1) * bytes);
    /* Of places all that are alike but for the place go to one bucket. */
    for (int b = 1; b < l->n_buckets && l->sort.places; b++)
        ((uint64_t *)(void *)items)[b - 1] &= ~((UINT64_C(1) << l->sort.low) - 1);
    l->pivots = items;
}

/* The threads are two at least: the room of the second one holds the third of the buffers, and the pivots behind it. */
static void sort_long_row(const sort_job *job, int64_t row) {
    ht_pool *pool = job->call->pool;
    const int threads = ht_pool_threads(pool);
    long_row l = {.sort = *job, .row = row};
    const size_t bytes = (size_t)job->n * job->item_bytes;
    if (job->places && wide_keys(job)) measure(&l.sort, row);
    l.n_pieces = threads < MOST_PIECES ? threads : MOST_PIECES;
    l.n_buckets = (int)ht_min_i64(MOST_BUCKETS, BUCKETS_PER_THREAD * l.n_pieces);
    l.piece = (job->n + l.n_pieces - 1) / l.n_pieces;
    give_room(&l.sort, 1);
    l.room = l.sort.items;
    char *sample = l.room + bytes;
    give_room(&l.sort, 0);
    l.parted = l.sort.items;
    l.gathered = l.parted + bytes;
    find_pivots(&l, sample, sample + bytes / 2 / 64 * 64);
    ht_pool_run(pool, l.n_pieces, 1, part_pieces, &l);
    ht_pool_run(pool, l.n_buckets, 1, sort_buckets, &l);
}

static void run(sort_job job) {
    if (job.n == 0 || job.n_rows == 0) return;
    const int threads = ht_pool_threads(job.call->pool);
    if (job.kth < 0 && job.n >= LONG_ROW && job.n_rows < threads && !is_counted(&job))
        for (int64_t row = 0; row < job.n_rows; row++) sort_long_row(&job, row);
    else
        ht_pool_run(job.call->pool, job.n_rows, ht_row_grain(HT_GRAIN_PLAIN, job.n), do_rows, &job);
}

static size_t scratch_for(const ht_call *call, bool places, int64_t kth) {
    const sort_job job = job_of(call, places, kth);
    return (size_t)ht_pool_threads(call->pool) * room_of(&job);
}

static size_t sort_scratch(const ht_call *call) { return scratch_for(call, false, -1); }
static size_t argsort_scratch(const ht_call *call) { return scratch_for(call, true, -1); }
static size_t partition_scratch(const ht_call *call) { return scratch_for(call, false, 0); }
static size_t argpartition_scratch(const ht_call *call) { return scratch_for(call, true, 0); }

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
    kernels[HT_OP_PARTITION] = (ht_kernel){.run = partition, .scratch = partition_scratch};
    kernels[HT_OP_ARGPARTITION] = (ht_kernel){.run = argpartition, .scratch = argpartition_scratch};
}

/* ---- for tests ---- */

bool HT_ISA_NAME(ht_sort_trial)(ht_sort_trial *trial);

#ifdef HT_ISA_avx512
#define TRIAL_OF_WIDTH(w)                                                                                              \
    static void trial_##w(ht_sort_trial *t) {                                                                          \
        uint##w##_t *x = t->x, *to = t->to, *room = t->room;                                                           \
        uint32_t counts[COUNTS];                                                                                       \
        const sorting_##w s = {&plain_##w, counts};                                                                    \
        placed_##w at = {0};                                                                                           \
        switch (t->way) {                                                                                              \
        case HT_SORT_WITHIN: sort_within_##w(x, room, t->n, 0, t->splits, &s); break;                                  \
        case HT_SORT_INTO: sort_into_##w(x, to, t->n, 0, t->splits, &s); break;                                        \
        case HT_SORT_ELEMENTS: sort_elements_##w(x, &plain_##w, to, room, t->n, t->splits, &s); break;                 \
        default: at = find_##w(x, &plain_##w, room, to, t->n, t->kth, t->splits, counts); break;                       \
        }                                                                                                              \
        t->number = at.number, t->below = at.below, t->equal = at.equal;                                               \
    }
TRIAL_OF_WIDTH(32)
TRIAL_OF_WIDTH(64)

bool HT_ISA_NAME(ht_sort_trial)(ht_sort_trial *trial) {
    if (trial->width == 32)
        trial_32(trial);
    else
        trial_64(trial);
    return true;
}
#else
bool HT_ISA_NAME(ht_sort_trial)(ht_sort_trial *trial) {
    (void)trial;
    return false;
}
#endif
