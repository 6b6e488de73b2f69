/* Several conversations that decode in one step, each matrix being read once for all of them. */
#include "bench.h"
#include "terminal.h"

#include <stdio.h>

/* The lowest id of the largest value: the block with the largest is found on vectors, and searched. */
static int32_t most_likely(const float *logits, int32_t vocab) {
    enum { LANES = 16, BLOCK = 512 };
    float best = logits[0];
    int32_t first = 0;
    for (int32_t at = 0; at < vocab; at += BLOCK) {
        int32_t end = vocab - at < BLOCK ? vocab : at + BLOCK, i = at;
        float largest[LANES], most;
        for (int j = 0; j < LANES; j++) largest[j] = logits[at];
        for (; i + LANES <= end; i += LANES)
            for (int j = 0; j < LANES; j++) largest[j] = logits[i + j] > largest[j] ? logits[i + j] : largest[j];
        most = largest[0];
        for (int j = 1; j < LANES; j++) most = largest[j] > most ? largest[j] : most;
        for (; i < end; i++) most = logits[i] > most ? logits[i] : most;
        if (!(most > best)) continue;
        best = most;
        first = at;
    }
    int32_t id = first;
    while (id + 1 < vocab && logits[id] != best) id++;
    return id;
}

static ht_status begin(bench *b, ht_error *err) {
    ht_status st = HT_OK;
    for (int i = 0; i < b->n_together && !st; i++) {
        ht_session_reset(b->sessions[i]);
        st = ht_session_forward(b->sessions[i], b->ids, (size_t)b->depth + 1, false, NULL, NULL, err);
        b->next[i] = b->ids[i % (b->depth + 1)];
        if (!st && interrupted()) {
            snprintf(err->message, sizeof err->message, "interrupted: nothing was measured to the end");
            st = err->status = HT_ERR_CANCELLED;
        }
    }
    return st;
}

ht_status bench_together(bench *b, ht_error *err) {
    int32_t vocab = ht_model_vocab_size(b->e.model);
    ht_status st = begin(b, err);
    double start = now_seconds();
    for (int32_t step = 0; step < b->n_decode && !st && !interrupted(); step++) {
        st = ht_session_forward_together(b->sessions, b->next, b->n_together, b->logits, err);
        for (int i = 0; i < b->n_together && !st; i++)
            b->next[i] = most_likely(b->logits + (size_t)i * (size_t)vocab, vocab);
    }
    double rate = (double)b->n_together * b->n_decode / (now_seconds() - start);
    if (!st && interrupted()) {
        snprintf(err->message, sizeof err->message, "interrupted: nothing was measured to the end");
        st = err->status = HT_ERR_CANCELLED;
    }
    if (st) return st;
    const series *alone = &b->series[DECODE];
    series_add(&b->series[TOGETHER], rate);
    series_add(&b->series[TOGETHER_GAIN], rate / alone->values[alone->n - 1]);
    return HT_OK;
}
