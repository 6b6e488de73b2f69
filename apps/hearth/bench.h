/* Figures and options of `hearth bench`, shared by its files. */
#ifndef HEARTH_APP_BENCH_H
#define HEARTH_APP_BENCH_H

#include "engine.h"

#include <hearth/measure.h>

/* One value per round. */
typedef struct series {
    double *values;
    int n;
} series;

double series_mean(const series *s);      /* 0 when empty */
double series_deviation(const series *s); /* of the sample, so with n - 1 */
double series_median(const series *s);
void series_add(series *s, double value);

enum {
    PREFILL,          /* tokens per second */
    DECODE,           /* likewise */
    FIRST_TOKEN,      /* milliseconds */
    TOGETHER,         /* tokens per second of all sessions */
    TOGETHER_GAIN,    /* that by the same round's DECODE */
    READ,             /* bytes per second, measured around decoding */
    OF_READ,          /* decoding's part of it */
    TOGETHER_OF_READ, /* that of all sessions, which read the weights once a step */
    OF_PEAK,          /* prefill's part of what the arithmetic allows, measured around it */
    PEAK,             /* operations per second, HT_ARITHMETICS of them */
    N_SERIES = PEAK + HT_ARITHMETICS
};

typedef struct bench {
    const options *o;
    engine e;
    int32_t *ids; /* [longest of prompt and depth, + 1], any valid ones: the work does not depend on which */
    int32_t n_prompt, n_decode, depth;
    int n_together;        /* sessions decoding in one step; 0: not measured */
    ht_session **sessions; /* [n_together] */
    int32_t *next;         /* [n_together] */
    ht_meter *meter;       /* after the first round: its memory is not to be part of the peak */
    int64_t layer_products[HT_ARITHMETICS], head_products[HT_ARITHMETICS]; /* multiply-adds of a token */
    int64_t bytes_per_token;    /* of weights, that picking as the options say reads */
    int64_t kv_bytes_per_token; /* of keys and values, of a session in the middle of decoding */
    long long peak_bytes;
    series series[N_SERIES];
} bench;

/* An interrupted call's options, and its status, with a message that says so. */
ht_forward_options bench_forward_options(void);
ht_status bench_status(ht_status st, ht_error *err);

/* Decodes n_decode tokens in n_together sessions; adds to TOGETHER and TOGETHER_GAIN. */
ht_status bench_together(bench *b, ht_error *err);

/* `hearth bench --report`. */
int bench_report_command(const options *o);

bool bench_print_json(const bench *b);
void bench_print_text(const bench *b);

#endif
