/* Batched decode in `hearth bench`: several conversations in one step, each matrix read once for all of them. */
#include "bench.h"
#include "terminal.h"

#include <stdio.h>

static ht_status begin(bench *b, ht_error *err) {
    const ht_forward_options how = bench_forward_options();
    ht_status st = HT_OK;
    for (int i = 0; i < b->n_together && !st; i++) {
        ht_session_reset(b->sessions[i]);
        st = ht_session_forward(b->sessions[i], b->ids, (size_t)b->depth + 1, &how, NULL, NULL, err);
        b->next[i] = b->ids[i % (b->depth + 1)];
    }
    return st;
}

ht_status bench_together(bench *b, ht_error *err) {
    ht_status st = begin(b, err);
    double start = now_seconds();
    const ht_forward_options how = bench_forward_options();
    for (int32_t step = 0; step < b->n_decode && !st; step++)
        st = ht_session_decode_together(b->sessions, b->next, b->n_together, &how, b->next, err);
    double rate = (double)b->n_together * b->n_decode / (now_seconds() - start);
    if (st) return bench_status(st, err);
    const series *alone = &b->series[DECODE];
    series_add(&b->series[TOGETHER], rate);
    series_add(&b->series[TOGETHER_GAIN], rate / alone->values[alone->n - 1]);
    if (!b->meter) return HT_OK;
    const series *read = &b->series[READ];
    const double step_bytes = (double)b->bytes_per_token + (double)b->n_together * (double)b->kv_bytes_per_token;
    series_add(&b->series[TOGETHER_OF_READ], rate / b->n_together * step_bytes / read->values[read->n - 1]);
    return HT_OK;
}
