#include "generate/encode.h"

#include "base/checked.h"
#include "base/error.h"
#include "generate/scheduler.h"
#include "generate/session_internal.h"

#include <stdlib.h>

/* A sequence of a step. */
typedef struct slot {
    ht_step_job job;
    const ht_prefill_calls *calls;
    int32_t index; /* of the sequence */
} slot;

typedef struct encoder {
    ht_model *model;
    ht_prefill_sequence *sequence;
    int32_t *order; /* [n] sequences, the longest first */
    int32_t n, begin, end;
    const ht_prefill_calls *calls;
    const ht_cancel *cancel;
    ht_session_adapters *adapters; /* NULL: none */
    slot *slot;                    /* [n_slots] */
    ht_step_job **job;             /* [n_slots] */
    int32_t n_slots;
} encoder;

typedef struct length_of {
    int64_t n;
    int32_t index;
} length_of;

static int by_length(const void *a, const void *b) {
    const length_of *x = a, *y = b;
    return x->n != y->n ? (x->n < y->n) - (x->n > y->n) : (x->index > y->index) - (x->index < y->index);
}

static ht_status sort(encoder *e, ht_error *err) {
    length_of *length = malloc((size_t)e->n * sizeof *length);
    e->order = malloc((size_t)e->n * sizeof *e->order);
    if (!length || !e->order) {
        free(length);
        return ht_fail_memory(err, (size_t)e->n * sizeof *length, "sequences");
    }
    for (int32_t i = 0; i < e->n; i++) length[i] = (length_of){e->sequence[i].n, i};
    qsort(length, (size_t)e->n, sizeof *length, by_length);
    for (int32_t i = 0; i < e->n; i++) e->order[i] = length[i].index;
    free(length);
    return HT_OK;
}

static ht_status make_slots(encoder *e, ht_error *err) {
    ht_status status = HT_OK;
    e->slot = calloc((size_t)e->n_slots, sizeof *e->slot);
    e->job = calloc((size_t)e->n_slots, sizeof *e->job);
    if (!e->slot || !e->job) return ht_fail_memory(err, (size_t)e->n_slots * sizeof *e->slot, "sequences");
    for (int32_t i = 0; i < e->n_slots && !status; i++) {
        e->job[i] = &e->slot[i].job;
        status = ht_cache_new(e->model, 1, &e->slot[i].job.cache, err);
    }
    return status;
}

static void free_encoder(encoder *e) {
    for (int32_t i = 0; e->slot && i < e->n_slots; i++) ht_cache_free(e->slot[i].job.cache);
    free(e->slot);
    free(e->job);
    free(e->order);
    ht_session_adapters_free(e->adapters);
}

/* Hands the hidden states of a sequence over, on a thread of the step. */
static ht_status take_rows(void *user, const ht_logits_rows *rows, ht_error *err) {
    slot *s = user;
    (void)err;
    for (int64_t i = 0; i < rows->n_rows; i++)
        s->calls->row(s->calls->user, rows->x + i * rows->n, s->job.first_row + i, &s->index, 1, NULL);
    return HT_OK;
}

static void fill_slot(encoder *e, slot *s, int32_t index) {
    const ht_prefill_sequence *q = &e->sequence[index];
    ht_cache *cache = s->job.cache;
    ht_cache_truncate(cache, 0);
    s->calls = e->calls;
    s->index = index;
    s->job = (ht_step_job){.cache = cache,
                           .token = q->token,
                           .type = q->type,
                           .end = q->n,
                           .first_out = q->first_out,
                           .end_out = q->end_out,
                           .most_rows = ht_max_i32(e->model->step_rows, (int32_t)q->n),
                           .lora = e->adapters ? &e->adapters->set : NULL,
                           .consume = take_rows,
                           .user = s,
                           .cancel = e->cancel,
                           .hidden = true,
                           .prompt = true};
}

/* Fills slots with the longest sequence that is left, others as long as they fit, then the shortest; returns how many. */
static int32_t choose(encoder *e) {
    int32_t n = 0;
    int64_t rows = 0;
    for (bool longest = true; n < e->n_slots && e->begin < e->end;) {
        const int32_t index = e->order[longest ? e->begin : e->end - 1];
        rows += e->sequence[index].n;
        if (n > 0 && rows > e->model->step_rows) {
            if (!longest) break;
            rows -= e->sequence[index].n;
            longest = false;
            continue;
        }
        if (longest)
            e->begin++;
        else
            e->end--;
        fill_slot(e, &e->slot[n++], index);
    }
    return n;
}

static ht_status run(encoder *e, ht_error *err) {
    e->end = e->n;
    while (e->begin < e->end) {
        if (ht_cancel_requested(e->cancel)) return ht_fail(err, HT_ERR_CANCELLED, "cancelled");
        const int32_t n = choose(e);
        bool cancelled = false;
        ht_scheduler_run(e->model->scheduler, e->job, n);
        for (int32_t i = 0; i < n; i++) {
            const slot *s = &e->slot[i];
            cancelled = cancelled || s->job.status == HT_ERR_CANCELLED;
            if (s->job.status == HT_ERR_CANCELLED) continue;
            e->sequence[s->index].done = true;
            e->sequence[s->index].computed = e->sequence[s->index].n;
            if (s->job.status) e->calls->failed(e->calls->user, s->index, &s->job.err);
        }
        if (!e->calls->stepped(e->calls->user)) return ht_fail(err, HT_ERR_CANCELLED, "stopped by the callback");
        if (cancelled) return ht_fail(err, HT_ERR_CANCELLED, "cancelled");
    }
    return HT_OK;
}

ht_status ht_encode(ht_model *m, const ht_prefill_options *options, ht_prefill_sequence *sequences, int32_t n,
                    const ht_prefill_calls *calls, const ht_cancel *cancel, ht_error *err) {
    if (n == 0) return HT_OK;
    encoder e = {.model = m,
                 .sequence = sequences,
                 .n = n,
                 .calls = calls,
                 .cancel = cancel,
                 .n_slots = ht_min_i32(m->slots, n)};
    ht_status status = ht_scheduler_open(m, err);
    if (status) return status;
    status = sort(&e, err);
    if (!status && options->n_adapters)
        status = ht_session_adapters_new(m, options->adapters, options->adapter_scales, options->n_adapters,
                                         &e.adapters, err);
    if (!status) status = make_slots(&e, err);
    if (!status) status = run(&e, err);
    free_encoder(&e);
    ht_scheduler_close(m->scheduler);
    return status;
}

ht_status ht_compute_sequences(ht_model *m, const ht_prefill_options *options, ht_prefill_sequence *sequences,
                               int32_t n, const ht_prefill_calls *calls, const ht_cancel *cancel, ht_error *err) {
    ht_prefill *p;
    if (m->config->two_sided) return ht_encode(m, options, sequences, n, calls, cancel, err);
    ht_status status = ht_prefill_new(m, options, &p, err);
    if (status) return status;
    status = ht_prefill_run(p, sequences, n, calls, cancel, err);
    ht_prefill_free(p);
    return status;
}
