/* What the benchmark programs share: reading their arguments, and the median. */
#ifndef HEARTH_BENCH_H
#define HEARTH_BENCH_H

#include <hearth/generate.h>

#include <stddef.h>
#include <stdlib.h>

/* Goes through a command line of options with a letter and a value each, and words between them. */
typedef struct bench_arguments {
    int argc;
    char **argv;
    int at; /* of the last one read */
} bench_arguments;

/* The next one: its letter, with *value what follows it ("" when nothing does); 0 for a word, which then is *value; -1 at
 * the end. What is longer than a dash and a letter is '?'. */
static inline int bench_next(bench_arguments *a, const char **value) {
    *value = "";
    if (a->at + 1 >= a->argc) return -1;
    const char *found = a->argv[++a->at];
    if (found[0] != '-') {
        *value = found;
        return 0;
    }
    if (!found[1] || found[2]) return '?';
    if (a->at + 1 < a->argc) *value = a->argv[++a->at];
    return found[1];
}

static inline int bench_ascending(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Sorts the values. */
static inline double bench_median(double *values, int n) {
    qsort(values, (size_t)n, sizeof *values, bench_ascending);
    return values[n / 2];
}

/* The most likely tokens, whatever the model recommends. */
static inline const ht_sampler_options *greedy(void) {
    static ht_sampler_options options;
    ht_sampler_options_init(&options, sizeof options);
    options.temperature = options.presence_penalty = options.frequency_penalty = 0;
    options.repeat_penalty = 1;
    return &options;
}

#endif
