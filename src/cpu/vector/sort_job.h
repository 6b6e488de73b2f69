/* Rows of a call as items, and items as its result.
 *
 * Elements become keys: numbers without sign of 16, 32 or 64 bits in the same order. An item is a key, or where places are
 * sorted a key above the place, as many bits of it as leave room. Short rows that follow one another become items together. */
#ifndef HT_CPU_VECTOR_SORT_JOB_H
#define HT_CPU_VECTOR_SORT_JOB_H

#include "base/checked.h"
#include "base/dtype.h"
#include "cpu/vector/sort_counting.h"
#include "cpu/vector/sort_keys.h"
#include "cpu/vector/sort_lanes.h"
#include "cpu/walk.h"

/* Rows from LONG_ROW on may be dealt to several threads; up to HELD elements of rows become items together. */
enum { COUNTS = 8 * 256 > 6 * 2048 ? 8 * 256 : 6 * 2048, LONG_ROW = 1 << 15, HELD = 4096 };

typedef enum item_kind { ITEMS_16, ITEMS_32, ITEMS_64 } item_kind;

typedef struct sort_job {
    const ht_call *call;
    const ht_view *x;
    int64_t n, n_rows, at_once; /* rows that are held as items */
    int64_t stride, row_step;   /* between elements, and between rows, or -1: asked for each */
    int64_t kth;                /* -1: sort */
    bool places, counted;
    bool widened; /* keys of 16 bits are items of 32, which lanes sort and those of 16 they do not */
    item_kind kind;
    size_t item_bytes;
    int low, n_bits; /* of a key in an item; below them is the place, if places are sorted */
    uint64_t
        least; /* what keys of 64 bits count from, and by how much they are then shifted, to leave room for places */
    int shift;
    char *items; /* [rooms at_once n] per thread */
    int rooms;
    uint32_t *counts;
} sort_job;

static int key_bits(ht_dtype t) { return t == HT_BOOL ? 1 : 8 * (int)ht_dtype_bytes(t); }
static bool wide_keys(const sort_job *job) { return ht_dtype_bytes(job->x->dtype) == 8; }

static item_kind kind_of(const sort_job *job) {
    const size_t bytes = ht_dtype_bytes(job->x->dtype);
    if (bytes == 8) return ITEMS_64;
    if (job->widened) return ITEMS_32;
    if (!job->places || job->kth >= 0) return bytes <= 2 ? ITEMS_16 : ITEMS_32;
    return bytes <= 2 && job->n < LONG_ROW ? ITEMS_32 : ITEMS_64;
}

static sort_job job_of(const ht_call *call, bool places, int64_t kth) {
    sort_job job = {.call = call, .x = &call->in[0], .kth = kth, .places = places};
    const ht_dtype t = job.x->dtype;
    const int bits = key_bits(t), last = job.x->n_dims - 1;
    job.n = job.x->shape[last];
    job.n_rows = job.n > 0 ? ht_view_size(job.x) / job.n : 0;
    job.counted = !places && counting_pays(t, job.n, kth);
    const bool follow = ht_view_contiguous(job.x);
    job.stride = follow ? 1 : job.x->stride[last];
    job.row_step = follow || job.n_rows <= 1 ? job.n : last == 1 ? job.x->stride[0] : -1;
    job.at_once = follow && !job.counted && job.n > 0 ? ht_min_i64(ht_max_i64(HELD / job.n, 1), job.n_rows) : 1;
    job.widened = HT_SORT_LANES && !HT_SORT_LANES_16 && ht_dtype_bytes(t) <= 2 && (!places || kth >= 0);
    job.kind = kind_of(&job);
    job.item_bytes = job.kind == ITEMS_16 ? 2 : job.kind == ITEMS_32 ? 4 : 8;
    if (places && kth < 0)
        job.low = bits == 64 ? 64 - __builtin_clzll((unsigned long long)job.n | 1) : job.kind == ITEMS_32 ? 16 : 32;
    job.n_bits = bits == 64 ? 64 - job.low : bits;
    job.rooms = job.counted ? 0 : kth < 0 && !places ? 2 : 3;
    return job;
}

static size_t items_room(const sort_job *job) {
    return (size_t)job->rooms * (size_t)(job->at_once * job->n) * job->item_bytes;
}

static size_t room_of(const sort_job *job) {
    const size_t counts = job->counted ? counting_bytes(job->x->dtype) : COUNTS * sizeof(uint32_t);
    return (items_room(job) + 63) / 64 * 64 + (counts + 63) / 64 * 64;
}

static void give_room(sort_job *job, int worker) {
    job->items = (char *)job->call->scratch + (size_t)worker * room_of(job);
    job->counts = (uint32_t *)(void *)(job->items + (items_room(job) + 63) / 64 * 64);
}

static int64_t row_at(const sort_job *job, int64_t row) {
    return job->row_step >= 0 ? row * job->row_step : ht_view_offset(job->x, job->x->n_dims - 1, row);
}

static const char *element(const sort_job *job, int64_t row, int64_t at) {
    return (const char *)job->x->data + (row_at(job, row) + at * job->stride) * (int64_t)ht_dtype_bytes(job->x->dtype);
}

/* So many elements of a row, or of rows that follow one another, as keys. */
static void load_keys(const sort_job *job, int64_t row, int64_t begin, int64_t n, void *to) {
    const ht_dtype t = job->x->dtype;
    const char *from = element(job, row, begin);
    if (job->widened)
        load_16_as_32(t, from, job->stride, n, job->places, to);
    else if (ht_dtype_bytes(t) <= 2)
        load_16(t, from, job->stride, n, job->places, to);
    else if (ht_dtype_bytes(t) == 4)
        load_32(t, from, job->stride, n, job->places, to);
    else
        load_64(t, from, job->stride, n, job->places, to);
}

/* Keys of a row from `first` on above their places. */
static void add_places(const sort_job *job, const void *keys, int64_t first, int64_t n, void *items) {
    const size_t bytes = ht_dtype_bytes(job->x->dtype);
    uint64_t *to = items;
    if (job->kind == ITEMS_32)
        for (int64_t i = 0; i < n; i++)
            ((uint32_t *)items)[i] = (uint32_t)((const uint16_t *)keys)[i] << 16 | (uint32_t)(first + i);
    else if (bytes <= 2)
        for (int64_t i = 0; i < n; i++) to[i] = (uint64_t)((const uint16_t *)keys)[i] << 32 | (uint64_t)(first + i);
    else if (bytes == 4)
        for (int64_t i = 0; i < n; i++) to[i] = (uint64_t)((const uint32_t *)keys)[i] << 32 | (uint64_t)(first + i);
    else
        for (int64_t i = 0; i < n; i++)
            to[i] = (((const uint64_t *)keys)[i] - job->least) >> job->shift << job->low | (uint64_t)(first + i);
}

/* Elements [begin, end) of a row as items, at `to`; `room` is for keys. */
static void load(const sort_job *job, int64_t row, int64_t begin, int64_t end, void *to, void *room) {
    load_keys(job, row, begin, end - begin, job->places ? room : to);
    if (job->places) add_places(job, room, begin, end - begin, to);
}

/* Items [begin, end) of a row, or of rows, as elements, or places, of the result. */
static void store(const sort_job *job, int64_t row, int64_t begin, int64_t end, const void *items) {
    const ht_view *out = &job->call->out;
    const int64_t n = end - begin;
    void *to = (char *)out->data + (row * job->n + begin) * (int64_t)ht_dtype_bytes(out->dtype);
    if (job->places && job->kind == ITEMS_32)
        for (int64_t i = 0; i < n; i++) ((uint32_t *)to)[i] = ((const uint32_t *)items)[begin + i] & 0xffff;
    else if (job->places) {
        const uint64_t *from = (const uint64_t *)items + begin, mask = (UINT64_C(1) << job->low) - 1;
        for (int64_t i = 0; i < n; i++) ((uint32_t *)to)[i] = (uint32_t)(from[i] & mask);
    } else if (job->widened)
        store_16_of_32(out->dtype, (const uint32_t *)items + begin, n, to);
    else if (job->kind == ITEMS_16)
        store_16(out->dtype, (const uint16_t *)items + begin, n, to);
    else if (job->kind == ITEMS_32)
        store_32(out->dtype, (const uint32_t *)items + begin, n, to);
    else
        store_64(out->dtype, (const uint64_t *)items + begin, n, to);
}

static void order(const sort_job *job, void *a, void *other, int64_t n) {
    if (job->kind == ITEMS_16)
        order_16(a, other, n, job->low, job->n_bits, job->counts);
    else if (job->kind == ITEMS_32)
        order_32(a, other, n, job->low, job->n_bits, job->counts);
    else
        order_64(a, other, n, job->low, job->n_bits, job->counts);
}

#endif
