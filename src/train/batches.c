#include "train/batches.h"

#include "base/checked.h"
#include "base/error.h"
#include "base/plural.h"
#include "generate/philox.h"

#include <stdlib.h>
#include <string.h>

enum { WINDOW_BATCHES = 16 };

/* The order of an epoch: its samples, batch after batch, drawn from a seed and the number of the epoch. */
typedef struct order {
    int64_t n, n_batches;
    uint32_t *sample; /* [n] */
    uint32_t *start;  /* [n_batches + 1] where each batch begins in `sample` */
} order;

/* A sample of a window. */
typedef struct entry {
    uint32_t sample;
    uint32_t position; /* in the epoch's permutation */
    int32_t rows;
    uint32_t batch; /* index in the window; later its rank in the shuffled order */
} entry;

typedef struct window_maker {
    const ht_data *data;
    const ht_batches_options *o;
    uint64_t epoch;
    int64_t capacity; /* rows of a packed batch */
    order *out;
    entry *entries; /* [n] of the window */
    int64_t *room;  /* [n] free rows of the window's packed batches */
    uint32_t *rank; /* [n] of the window's batches */
} window_maker;

/* ---- random order ---- */

/* Random number i of a stream, by seed and epoch. Stream 0 permutes samples, stream w + 1 batches of window w. */
static uint64_t draw(const window_maker *w, uint64_t which, uint32_t i) {
    uint32_t out[4];
    ht_philox4x32((const uint32_t[4]){i, (uint32_t)which, (uint32_t)w->epoch, (uint32_t)(w->epoch >> 32)},
                  (const uint32_t[2]){(uint32_t)w->o->seed, (uint32_t)(w->o->seed >> 32)}, out);
    return (uint64_t)out[1] << 32 | out[0];
}

/* Fisher-Yates shuffle. The modulo bias of 64 random bits is negligible for n below 2^32. */
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

static int32_t rows_of(const window_maker *w, uint32_t sample) {
    return ht_sample_rows(ht_data_sample(w->data, sample));
}

static void open_window(window_maker *w, int64_t from, int64_t to) {
    for (int64_t i = from; i < to; i++) {
        const uint32_t sample = w->out->sample[i];
        w->entries[i - from] = (entry){.sample = sample, .position = (uint32_t)i, .rows = rows_of(w, sample)};
    }
    qsort(w->entries, (size_t)(to - from), sizeof *w->entries, longer_first);
}

/* Writes the window's samples back, batches in random order, then unbatched ones; returns the first index of these. */
static int64_t close_window(window_maker *w, int64_t from, int64_t to, uint32_t n_batches, uint64_t number) {
    order *o = w->out;
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

/* Batches of at most o->batch samples; their sizes differ by one at most. */
static void make_even(window_maker *w) {
    const int64_t n = w->out->n, all = ht_ceil_div_i64(n, w->o->batch);
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

/* The last batch of a window may have free rows, so its samples move to the next window. */
static void make_packed(window_maker *w) {
    const order *o = w->out;
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
    order *o = w->out;
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

static void free_order(order *o) {
    free(o->sample);
    free(o->start);
    *o = (order){0};
}

/* Not for the file's order without packing, which has no epochs. *out is freed by free_order. */
static ht_status make_order(const ht_data *data, const ht_batches_options *options, int64_t epoch, order *out,
                            ht_error *err) {
    *out = (order){.n = ht_data_length(data)};
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
    if (status) free_order(out);
    return status;
}

/* ---- life ---- */

struct ht_batches {
    const ht_data *data;
    ht_batches_options o;
    int64_t per_epoch; /* of the first */
    order order;       /* of the current epoch; empty before the first one, and in file order without packing */
    int64_t epoch, first_step;
    /* The current batch. */
    uint32_t *sample; /* [sample_capacity] */
    int64_t sample_capacity, seq_capacity, tok_capacity;
    int32_t *seq_start, *match; /* [seq_capacity + 1] */
    int32_t *id, *pos, *target; /* [tok_capacity] */
    int32_t n_samples;
};

/* Batches in file order need no stored order. */
static bool is_plain(const ht_batches *b) { return !b->o.shuffle && !b->o.pack; }

static ht_status enter_epoch(ht_batches *b, int64_t epoch, int64_t first_step, ht_error *err) {
    order next;
    ht_status status = make_order(b->data, &b->o, epoch, &next, err);
    if (status) return status;
    free_order(&b->order);
    b->order = next;
    b->epoch = epoch;
    b->first_step = first_step;
    return HT_OK;
}

/* Makes the step's epoch the current one. Packed epochs vary in length, so each is computed from its predecessor. */
static ht_status find_epoch(ht_batches *b, int64_t step, ht_error *err) {
    ht_status status = HT_OK;
    if (!b->o.pack || !b->o.shuffle) {
        const int64_t epoch = step / b->per_epoch;
        return epoch == b->epoch ? HT_OK : enter_epoch(b, epoch, epoch * b->per_epoch, err);
    }
    if (step < b->first_step) status = enter_epoch(b, 0, 0, err);
    while (!status && step >= b->first_step + b->order.n_batches)
        status = enter_epoch(b, b->epoch + 1, b->first_step + b->order.n_batches, err);
    return status;
}

ht_status ht_batches_new(const ht_data *data, const ht_batches_options *options, ht_batches **out, ht_error *err) {
    *out = NULL;
    const ht_data_report *r = ht_data_get_report(data);
    if (options->batch < 1)
        return ht_fail(err, HT_ERR_ARGUMENT, "batches of %d sequences, expected 1 or more", options->batch);
    const int64_t longest = options->pack ? r->max_length : r->longest;
    if (options->batch > INT32_MAX / longest)
        return ht_fail(err, HT_ERR_LIMIT,
                       "batches of %d sequence%s with up to %lld token%s; at most %d tokens make a batch",
                       options->batch, ht_plural(options->batch), (long long)longest, ht_plural(longest), INT32_MAX);
    ht_batches *b = calloc(1, sizeof *b);
    if (!b) return ht_fail_memory(err, sizeof *b, "batches");
    b->data = data;
    b->o = *options;
    ht_status status = is_plain(b) ? HT_OK : enter_epoch(b, 0, 0, err);
    b->per_epoch = is_plain(b) ? ht_ceil_div_i64(ht_data_length(data), b->o.batch) : b->order.n_batches;
    if (status)
        ht_batches_free(b);
    else
        *out = b;
    return status;
}

void ht_batches_free(ht_batches *b) {
    if (!b) return;
    free_order(&b->order);
    free(b->sample);
    free(b->seq_start);
    free(b->match);
    free(b->id);
    free(b->pos);
    free(b->target);
    free(b);
}

int64_t ht_batches_per_epoch(const ht_batches *b) { return b->per_epoch; }
int32_t ht_batches_samples(const ht_batches *b) { return b->n_samples; }
int64_t ht_batches_line(const ht_batches *b, int32_t i) { return ht_data_line(b->data, b->sample[i]); }

/* ---- memory ---- */

static ht_status reserve_samples(ht_batches *b, int64_t n, ht_error *err) {
    if (n <= b->sample_capacity) return HT_OK;
    free(b->sample);
    b->sample = malloc((size_t)n * sizeof *b->sample);
    b->sample_capacity = b->sample ? n : 0;
    return b->sample ? HT_OK : ht_fail_memory(err, (size_t)n * sizeof *b->sample, "a batch");
}

static ht_status reserve_sequences(ht_batches *b, int64_t n, ht_error *err) {
    if (n <= b->seq_capacity) return HT_OK;
    free(b->seq_start);
    free(b->match);
    b->seq_start = malloc(((size_t)n + 1) * sizeof *b->seq_start);
    b->match = malloc(((size_t)n + 1) * sizeof *b->match);
    b->seq_capacity = b->seq_start && b->match ? n : 0;
    return b->seq_capacity ? HT_OK : ht_fail_memory(err, (size_t)n * 2 * sizeof *b->match, "a batch");
}

static ht_status reserve_rows(ht_batches *b, int64_t n, ht_error *err) {
    if (n <= b->tok_capacity) return HT_OK;
    free(b->id);
    free(b->pos);
    free(b->target);
    b->id = malloc((size_t)n * sizeof *b->id);
    b->pos = malloc((size_t)n * sizeof *b->pos);
    b->target = malloc((size_t)n * sizeof *b->target);
    b->tok_capacity = b->id && b->pos && b->target ? n : 0;
    return b->tok_capacity ? HT_OK : ht_fail_memory(err, (size_t)n * 3 * sizeof *b->id, "a batch");
}

/* ---- batches ---- */

/* Samples of a step in the file's order; *first is the first one. */
static int64_t plain_samples(const ht_batches *b, int64_t step, int64_t *first) {
    const int64_t all = ht_data_length(b->data), n = b->o.batch;
    *first = b->o.once ? step % b->per_epoch * n : step % all * n % all;
    return b->o.once ? ht_min_i64(n, all - *first) : n;
}

/* The samples of the step. */
static ht_status choose_samples(ht_batches *b, int64_t step, ht_error *err) {
    const uint32_t *chosen = NULL;
    int64_t first = 0, n;
    ht_status status = HT_OK;
    if (is_plain(b)) {
        n = plain_samples(b, step, &first);
    } else {
        status = find_epoch(b, step, err);
        if (status) return status;
        const uint32_t *start = b->order.start + (step - b->first_step);
        chosen = b->order.sample + start[0];
        n = start[1] - start[0];
    }
    status = reserve_samples(b, n, err);
    if (status) return status;
    const int64_t all = ht_data_length(b->data);
    for (int64_t s = 0; s < n; s++) b->sample[s] = chosen ? chosen[s] : (uint32_t)((first + s) % all);
    b->n_samples = (int32_t)n;
    return HT_OK;
}

/* Writes one row per id; the last id is only a target. Returns the number of learned rows. */
static int64_t put_rows(ht_batches *b, int32_t from, const ht_sample *s) {
    for (int32_t i = 0; i + 1 < s->n; i++) {
        b->id[from + i] = s->id[i];
        b->pos[from + i] = i;
        b->target[from + i] = s->learned[i + 1] ? s->id[i + 1] : -1;
    }
    return s->n_learned;
}

/* Writes a row per id of all texts of a pair, from sequence n_seq on. Returns the sequences after them. */
static int32_t put_texts(ht_batches *b, int32_t n_seq, const ht_sample *s) {
    const int32_t from = b->seq_start[n_seq], anchor = n_seq;
    for (int32_t t = 0; t < s->n_texts; t++, n_seq++) {
        for (int32_t i = s->begin[t]; i < s->begin[t + 1]; i++) {
            b->id[from + i] = s->id[i];
            b->pos[from + i] = i - s->begin[t];
            b->target[from + i] = -1;
        }
        b->match[n_seq] = t == 0 ? anchor + 1 : -1;
        b->seq_start[n_seq + 1] = from + s->begin[t + 1];
    }
    return n_seq;
}

ht_status ht_batches_get(ht_batches *b, int64_t step, ht_train_batch *out, ht_error *err) {
    *out = (ht_train_batch){0};
    if (step < 0) return ht_fail(err, HT_ERR_ARGUMENT, "the batch of step %lld, expected 0 or more", (long long)step);
    b->n_samples = 0;
    ht_status status = choose_samples(b, step, err);
    int64_t n_tok = 0, n_learned = 0, n_all = 0;
    for (int32_t i = 0; i < b->n_samples; i++) {
        const ht_sample *sample = ht_data_sample(b->data, b->sample[i]);
        n_tok += ht_sample_rows(sample);
        n_all += sample->begin ? sample->n_texts : 1;
    }
    if (!status) status = reserve_rows(b, n_tok, err);
    if (!status) status = reserve_sequences(b, n_all, err);
    if (status) return status;
    int32_t n_seq = 0;
    bool pairs = false;
    b->seq_start[0] = 0;
    for (int32_t i = 0; i < b->n_samples; i++) {
        const ht_sample *sample = ht_data_sample(b->data, b->sample[i]);
        pairs = sample->begin != NULL;
        if (pairs) {
            n_seq = put_texts(b, n_seq, sample);
            n_learned++;
            continue;
        }
        n_learned += put_rows(b, b->seq_start[n_seq], sample);
        b->seq_start[n_seq + 1] = b->seq_start[n_seq] + ht_sample_rows(sample);
        n_seq++;
    }
    *out = (ht_train_batch){.n_tok = (int32_t)n_tok,
                            .n_seq = n_seq,
                            .id = b->id,
                            .pos = b->pos,
                            .seq_start = b->seq_start,
                            .target = b->target,
                            .n_learned = n_learned,
                            .match = pairs ? b->match : NULL,
                            .temperature = pairs ? b->o.temperature : 0};
    return HT_OK;
}
