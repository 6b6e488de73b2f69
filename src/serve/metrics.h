/* Server metrics since start, in the Prometheus text format. */
#ifndef HT_SERVE_METRICS_H
#define HT_SERVE_METRICS_H

#include <stdatomic.h>
#include <stdint.h>

enum { SERVE_BUCKETS = 18 };

/* A histogram of seconds by upper bounds. */
typedef struct serve_histogram {
    atomic_llong bucket[SERVE_BUCKETS + 1]; /* the last bucket is above all bounds */
    atomic_llong nanoseconds;
} serve_histogram;

typedef struct serve_metrics {
    atomic_llong requests[6]; /* by the first digit of the status; 0: no response */
    atomic_llong prompt_tokens, cached_tokens, generated_tokens, cancelled;
    atomic_llong under_way;
    serve_histogram first_token, between_tokens, whole;
} serve_metrics;

void serve_histogram_add(serve_histogram *h, double seconds);

#endif
