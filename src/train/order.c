#include "train/order.h"

#include "base/checked.h"
#include "base/error.h"
#include "generate/philox.h"

#include <stdlib.h>

enum { WINDOW_BATCHES = 16 };

/* A sample of a window. */
typedef struct entry {
    uint32_t sample;
    uint32_t position; /* in the epoch's permutation */
    int32_t rows;
    uint32_t batch; /* of the window's; then its rank in their shuffled order */
} entry;

typedef struct window_maker {
    const ht_data *data;
    const ht_batches_options *o;
    uint64_t epoch;
    int64_t capacity; /* rows of a packed batch */
    ht_order *out;
    entry *entries; /* [n] of the window */
    int64_t *room;  /* [n] rows that the window's packed batches have left */
    uint32_t *rank; /* [n] of the window's batches */
} window_maker;

int64_t ht_order_batches(int64_t n, int32_t batch) { return ht_ceil_div_i64(n, batch); }

/* ---- random order ---- */

/* What is drawn from one seed for an epoch: its permutation is draw 0, the batches of window w are draw w + 1. */
static uint64_t draw(const window_maker *w, uint64_t which, uint32_t i) {
    uint32_t out[4];
    ht_philox4x32((const uint32_t[4]){i, (uint32_t)which, (uint32_t)w->epoch, (uint32_t)(w->epoch >> 32)},
                  (const uint32_t[2]){(uint32_t)w->o->seed, (uint32_t)(w->o->seed >> 32)}, out);
    return (uint64_t)out[1] << 32 | out[0];
}

/* Fisher and Yates; a remainder of 64 bits is as good as uniform below 2^32. */
static void permute(const window_maker *w, uint64_t which, uint32_t *a, uint32_t n) {
    for (uint32_t i = 0; i < n; i++) a[i] = i;
    for (uint32_t i = n; i > 1; i--) {
        const uint32_t j = (uint32_t)(draw(w, which, i) % i), t = a[i - 1];
        a[i - 1] = a[j];
        a[j] = t;
    }
}

/* ---- windows ---- */

static int by_position(const entry *a, const entry *b) {
    return (a->position > b->position) - (a->position < b->position);
}

static int longer_first(const void *x, const void *y) {
    const entry *a = x, *b = y;
    return a->rows != b->rows ? (a->rows < b->rows) - (a->rows > b->rows) : by_position(a, b);
}

static int by_batch(const void *x, const void *y) {
    const entry *a = x, *b = y;
    return a->batch != b->batch ? (a->batch > b->batch) - (a->batch < b->batch) : by_position(a, b);
}

static int32_t rows_of(const window_maker *w, uint32_t sample) { return ht_data_tokens(w->data, sample) - 1; }

static void open_window(window_maker *w, int64_t from, int64_t to) {
    for (int64_t i = from; i < to; i++) {
        const uint32_t sample = w->out->sample[i];
        w->entries[i - from] = (entry){.sample = sample, .position = (uint32_t)i, .rows = rows_of(w, sample)};
    }
    qsort(w->entries, (size_t)(to - from), sizeof *w->entries, longer_first);
}

/* Writes the window's samples in place of those that it was made of, batch after batch: so many of them in random order, then
 * what is left. Returns where that begins. */
static int64_t close_window(window_maker *w, int64_t from, int64_t to, uint32_t n_batches, uint64_t number) {
    ht_order *o = w->out;
    int64_t left = to;
    permute(w, number + 1, w->rank, n_batches);
    for (int64_t i = 0; i < to - from; i++)
        if (w->entries[i].batch < n_batches) w->entries[i].batch = w->rank[w->entries[i].batch];
    qsort(w->entries, (size_t)(to - from), sizeof *w->entries, by_batch);
    for (int64_t i = to - from - 1; i >= 0; i--) {
        o->sample[from + i] = w->entries[i].sample;
        if (w->entries[i].batch >= n_batches) left = from + i;
    }
    for (int64_t i = 0; i < left - from; i++)
        if (!i || w->entries[i].batch != w->entries[i - 1].batch) o->start[o->n_batches++] = (uint32_t)(from + i);
    return left;
}

/* Batches of so many samples each. */
static void make_even(window_maker *w) {
    const int64_t n = w->out->n, all = ht_order_batches(n, w->o->batch);
    uint64_t number = 0;
    for (int64_t first = 0; first < all; first += WINDOW_BATCHES) {
        const int64_t end = ht_min_i64(first + WINDOW_BATCHES, all), from = first * n / all, to = end * n / all;
        open_window(w, from, to);
        for (int64_t b = first; b < end; b++)
            for (int64_t i = b * n / all; i < (b + 1) * n / all; i++)
                w->entries[i - from].batch = (uint32_t)(b - first);
        (void)close_window(w, from, to, (uint32_t)(end - first), number++);
    }
}

/* First-fit decreasing: returns the number of batches. */
static uint32_t fit(window_maker *w, int64_t n) {
    uint32_t n_batches = 0;
    for (int64_t i = 0; i < n; i++) {
        uint32_t b = 0;
        while (b < n_batches && w->room[b] < w->entries[i].rows) b++;
        if (b == n_batches) w->room[n_batches++] = w->capacity;
        w->room[b] -= w->entries[i].rows;
        w->entries[i].batch = b;
    }
    return n_batches;
}

/* The last batch that a window opened has room: its samples go into the next window. */
static void make_packed(window_maker *w) {
    const ht_order *o = w->out;
    uint64_t number = 0;
    for (int64_t from = 0; from < o->n;) {
        int64_t rows = 0, to = from;
        while (to < o->n && rows < WINDOW_BATCHES * w->capacity) rows += rows_of(w, o->sample[to++]);
        open_window(w, from, to);
        const uint32_t n_batches = fit(w, to - from);
        from = close_window(w, from, to, to < o->n && n_batches > 1 ? n_batches - 1 : n_batches, number++);
    }
}

static void make_packed_in_order(window_maker *w) {
    ht_order *o = w->out;
    int64_t room = 0;
    for (int64_t i = 0; i < o->n; i++) {
        const int32_t rows = rows_of(w, o->sample[i]);
        if (room < rows) {
            o->start[o->n_batches++] = (uint32_t)i;
            room = w->capacity;
        }
        room -= rows;
    }
}

/* ---- epochs ---- */

static ht_status reserve(window_maker *w, ht_error *err) {
    const size_t n = (size_t)w->out->n;
    w->out->sample = malloc(n * sizeof *w->out->sample);
    w->out->start = malloc((n + 1) * sizeof *w->out->start);
    w->entries = malloc(n * sizeof *w->entries);
    w->room = malloc(n * sizeof *w->room);
    w->rank = malloc(n * sizeof *w->rank);
    if (w->out->sample && w->out->start && w->entries && w->room && w->rank) return HT_OK;
    return ht_fail_memory(err, n * (sizeof *w->entries + sizeof *w->room), "the order of an epoch's samples");
}

ht_status ht_order_make(const ht_data *data, const ht_batches_options *options, int64_t epoch, ht_order *out,
                        ht_error *err) {
    *out = (ht_order){.n = ht_data_length(data)};
    window_maker w = {.data = data, .o = options, .epoch = (uint64_t)epoch, .out = out};
    w.capacity = options->batch * ht_data_get_report(data)->max_length;
    ht_status status = reserve(&w, err);
    if (!status) {
        if (options->shuffle)
            permute(&w, 0, out->sample, (uint32_t)out->n);
        else
            for (int64_t i = 0; i < out->n; i++) out->sample[i] = (uint32_t)i;
        if (!options->pack)
            make_even(&w);
        else if (options->shuffle)
            make_packed(&w);
        else
            make_packed_in_order(&w);
        out->start[out->n_batches] = (uint32_t)out->n;
    }
    free(w.entries);
    free(w.room);
    free(w.rank);
    if (status) ht_order_free(out);
    return status;
}

void ht_order_free(ht_order *o) {
    free(o->sample);
    free(o->start);
    *o = (ht_order){0};
}
