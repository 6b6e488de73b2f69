/* One long row dealt to threads by value: they part their pieces of it by the same pivots, and then sort what lies between
 * two pivots in all pieces. */
#ifndef HT_CPU_VECTOR_SORT_LONG_ROW_H
#define HT_CPU_VECTOR_SORT_LONG_ROW_H

#include "cpu/vector/sort_places.h"

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
    if (job->kind == ITEMS_16) return part_by_lanes_16(a, other, n, *(const uint16_t *)pivot);
    if (job->kind == ITEMS_32) return part_by_lanes_32(a, other, n, *(const uint32_t *)pivot);
    return part_by_lanes_64(a, other, n, *(const uint64_t *)pivot);
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
        if (job.places && wide_keys(&job)) settle(&job, l->row, NULL, (uint64_t *)(void *)to, room, n);
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
    l.n_pieces = threads < MOST_PIECES ? threads : MOST_PIECES;
    l.n_buckets = (int)ht_min_i64(MOST_BUCKETS, BUCKETS_PER_THREAD * l.n_pieces);
    l.piece = (job->n + l.n_pieces - 1) / l.n_pieces;
    give_room(&l.sort, 1);
    l.room = l.sort.items;
    char *sample = l.room + bytes;
    give_room(&l.sort, 0);
    l.parted = l.sort.items;
    l.gathered = l.parted + bytes;
    if (job->places && wide_keys(job)) {
        load_keys(job, row, 0, job->n, l.room);
        measure(&l.sort, (const uint64_t *)(void *)l.room, job->n);
    }
    find_pivots(&l, sample, sample + bytes / 2 / 64 * 64);
    ht_pool_run(pool, l.n_pieces, 1, part_pieces, &l);
    ht_pool_run(pool, l.n_buckets, 1, sort_buckets, &l);
}

#endif
