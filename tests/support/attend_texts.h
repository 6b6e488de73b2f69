/* Attention over the KV caches of a few sequences, step by step: texts that are cut into steps in one way or another. On any device. */
#ifndef TESTS_SUPPORT_ATTEND_TEXTS_H
#define TESTS_SUPPORT_ATTEND_TEXTS_H

#include "support/kernels.h"

enum { MOST_TEXTS = 3, MOST_PAGES = 12 };

/* Sinks of a case's heads: none; near the scores; among them some that take no weight, or all of it. */
typedef enum sinks_kind { NO_SINKS, NEAR_SINKS, FAR_SINKS } sinks_kind;
float far_sink(int64_t head);

/* Scores are divided by the square root of head_dim. */
typedef struct attend_case {
    const char *name;
    int n_heads, n_kv_heads, head_dim;
    ht_dtype dtype;
    int64_t window, ring_pages; /* 0: all keys; growing */
    float softcap;
    int n_seq, length[MOST_TEXTS];
    sinks_kind sinks;
    bool chunked; /* kind of window */
} attend_case;

/* q, k and v of every position of every sequence, and the sinks of all heads. */
typedef struct texts {
    const attend_case *c;
    float *q[MOST_TEXTS], *k[MOST_TEXTS], *v[MOST_TEXTS];
    float *sinks; /* [n_heads] */
} texts;
texts texts_make(const attend_case *c);
void texts_free(texts *t);

/* The caches of a device, whose pages hold NaN: what is not visible must not matter. */
typedef struct caches {
    ht_device *d;
    ht_kv_layer layer[MOST_TEXTS];
    ht_cache cache[MOST_TEXTS];
    ht_kv_page *page[MOST_TEXTS][MOST_PAGES];
} caches;
void caches_make(ht_device *d, const attend_case *c, caches *out);
void caches_free(caches *c);

/* Rows for the results of every sequence. */
void results_make(const attend_case *c, float *out[]);
void results_free(const attend_case *c, float *out[]);

/* All texts from empty caches: `chunk` rows of a sequence at a time, the last `single` one by one; in one step, or one sequence after
 * another. In n_asked ways, up to 2, each step is asked for some of its rows alone, which have the same bits. */
typedef struct attend_cut {
    int chunk, single;
    bool together;
    int n_asked;
} attend_cut;
void attend_texts(caches *kv, const texts *t, attend_cut cut, float *const out[]);

/* A position without a page in its cache is refused. */
void expect_missing_page(ht_device *d);

#endif
