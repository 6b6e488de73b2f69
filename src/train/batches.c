#include "train/batches.h"

#include "base/checked.h"
#include "base/error.h"
#include "base/plural.h"
#include "train/order.h"

#include <stdlib.h>
#include <string.h>

struct ht_batches {
    const ht_data *data;
    ht_batches_options o;
    int64_t per_epoch; /* of the first */
    ht_order order;    /* of the epoch at hand; empty before the first one, and in the file's order without packing */
    int64_t epoch, first_step;
    /* The batch at hand. */
    uint32_t *sample; /* [seq_capacity] */
    int64_t seq_capacity, tok_capacity;
    int32_t *seq_start;         /* [seq_capacity + 1] */
    int32_t *id, *pos, *target; /* [tok_capacity] */
    int32_t n_seq;
};

/* Batches come one by one from the file: no order is kept. */
static bool is_plain(const ht_batches *b) { return !b->o.shuffle && !b->o.pack; }

/* ---- order ---- */

static ht_status enter_epoch(ht_batches *b, int64_t epoch, int64_t first_step, ht_error *err) {
    ht_order order;
    ht_status status = ht_order_make(b->data, &b->o, epoch, &order, err);
    if (status) return status;
    ht_order_free(&b->order);
    b->order = order;
    b->epoch = epoch;
    b->first_step = first_step;
    return HT_OK;
}

/* Makes the step's epoch the one at hand. Those of packed samples are as long as their draws make them, so that each is found
 * from the one before. */
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
    b->per_epoch = is_plain(b) ? ht_order_batches(ht_data_length(data), b->o.batch) : b->order.n_batches;
    if (status)
        ht_batches_free(b);
    else
        *out = b;
    return status;
}

void ht_batches_free(ht_batches *b) {
    if (!b) return;
    ht_order_free(&b->order);
    free(b->sample);
    free(b->seq_start);
    free(b->id);
    free(b->pos);
    free(b->target);
    free(b);
}

int64_t ht_batches_per_epoch(const ht_batches *b) { return b->per_epoch; }
int64_t ht_batches_line(const ht_batches *b, int32_t s) { return ht_data_line(b->data, b->sample[s]); }

/* ---- memory ---- */

static ht_status reserve_sequences(ht_batches *b, int64_t n, ht_error *err) {
    if (n <= b->seq_capacity) return HT_OK;
    free(b->sample);
    free(b->seq_start);
    b->sample = malloc((size_t)n * sizeof *b->sample);
    b->seq_start = malloc(((size_t)n + 1) * sizeof *b->seq_start);
    b->seq_capacity = b->sample && b->seq_start ? n : 0;
    if (b->seq_capacity) return HT_OK;
    return ht_fail_memory(err, (size_t)n * (sizeof *b->sample + sizeof *b->seq_start), "a batch");
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
    status = reserve_sequences(b, n, err);
    if (status) return status;
    const int64_t all = ht_data_length(b->data);
    for (int64_t s = 0; s < n; s++) b->sample[s] = chosen ? chosen[s] : (uint32_t)((first + s) % all);
    b->n_seq = (int32_t)n;
    return HT_OK;
}

/* A row for each id but the last one, which is nobody's input. Returns the learned ones. */
static int64_t put_rows(ht_batches *b, int32_t from, const ht_sample *s) {
    for (int32_t i = 0; i + 1 < s->n; i++) {
        b->id[from + i] = s->id[i];
        b->pos[from + i] = i;
        b->target[from + i] = s->learned[i + 1] ? s->id[i + 1] : -1;
    }
    return s->n_learned;
}

ht_status ht_batches_get(ht_batches *b, int64_t step, ht_train_batch *out, ht_error *err) {
    *out = (ht_train_batch){0};
    if (step < 0) return ht_fail(err, HT_ERR_ARGUMENT, "the batch of step %lld, expected 0 or more", (long long)step);
    b->n_seq = 0;
    ht_status status = choose_samples(b, step, err);
    int64_t n_tok = 0, n_learned = 0;
    for (int32_t s = 0; s < b->n_seq; s++) n_tok += ht_data_tokens(b->data, b->sample[s]) - 1;
    if (!status) status = reserve_rows(b, n_tok, err);
    if (status) return status;
    b->seq_start[0] = 0;
    for (int32_t s = 0; s < b->n_seq; s++) {
        ht_sample sample;
        status = ht_data_sample(b->data, b->sample[s], &sample, err);
        if (status) return status;
        n_learned += put_rows(b, b->seq_start[s], &sample);
        b->seq_start[s + 1] = b->seq_start[s] + sample.n - 1;
        ht_sample_free(&sample);
    }
    *out = (ht_train_batch){.n_tok = (int32_t)n_tok,
                            .n_seq = b->n_seq,
                            .id = b->id,
                            .pos = b->pos,
                            .seq_start = b->seq_start,
                            .target = b->target,
                            .n_learned = n_learned};
    return HT_OK;
}
