/* Attention of a few queries over one page of 256 keys, the building block of attend.c.
 *
 * Summation order, which fixes the bits of a result: a score is one sequence of fused multiply-adds over the dimensions
 * in order; a page's weights are exp(score - largest visible score of the page), summed per lane (key mod 16), then
 * across lanes; a page's output is one sequence of fused multiply-adds over its visible keys in order; pages are merged
 * in order (attend_merge), and the sink, if there is one, last (attend_finish). Nothing depends on the register
 * blocking, the number of keys loaded at once, or the thread that computes a page. */
#ifndef HT_CPU_VECTOR_ATTEND_H
#define HT_CPU_VECTOR_ATTEND_H

#include "cpu/kv.h"
#include "cpu/vector/simd.h"
#include "device/kernel.h"
#include "device/params.h"
#include "device/step.h"

#include <stddef.h>

enum { ATTEND_QUERIES = 6 }; /* queries per pass over a page, limited by the registers */

/* One KV head of one page: f16, bf16 or 8-bit as stored, or f32 (stored or converted). */
typedef struct attend_page {
    ht_dtype dtype;
    const void *k;           /* [16 tiles][head_dim][16 keys] */
    const void *v;           /* [256 keys][v_stride] */
    const uint16_t *k_scale; /* 8-bit only: [16 tiles][blocks][16 keys] */
    const uint16_t *v_scale; /* 8-bit only: [256 keys][blocks] */
    int64_t v_stride;        /* in elements */
    int64_t head_dim;
    const void *next; /* K of the page this thread reads next, or NULL; prefetched near the end of this page */
} attend_page;

/* Queries of one KV head, and their results for one page. Query i sees keys [first[i], end[i]) of the page; a query
 * with first >= end has no result. */
typedef struct attend_group {
    int n;          /* 1 .. ATTEND_QUERIES */
    const float *q; /* [n][head_dim] */
    float scale, softcap;
    int first[ATTEND_QUERIES], end[ATTEND_QUERIES];
    float max[ATTEND_QUERIES], sum[ATTEND_QUERIES]; /* results: largest score, sum of weights */
    float *weights;                                 /* scratch: [n][256] */
    float *out;                                     /* result: weighted sums of V, [n][padded head_dim] */
} attend_group;

/* head_dim rounded up to whole vectors. */
static inline int64_t attend_padded(int64_t head_dim) { return (head_dim + 15) / 16 * 16; }

/* Appends the step's keys and values to the caches, rounded to the cache's dtype. */
void HT_ISA_NAME(ht_attend_append)(const ht_call *call);
/* Whether ht_attend_append_head supports the call: K and V are present, f32, and contiguous along head_dim. */
bool HT_ISA_NAME(ht_attend_appends_heads)(const ht_call *call);
/* Appends the key and value of one row and KV head. */
void HT_ISA_NAME(ht_attend_append_head)(const ht_call *call, const ht_kv_layer *l, int64_t row, int64_t head);

/* Computes the group's max, sum, weights and out for one page. */
void HT_ISA_NAME(ht_attend_page)(const attend_page *page, attend_group *group);

/* Converts tiles [first / 16, (end + 15) / 16) of K and rows [first, end) of V to f32. K keeps its layout; rows of V
 * are padded to whole vectors. */
void HT_ISA_NAME(ht_attend_convert)(const attend_page *from, int first, int end, float *k, float *v);

/* Merges one page's result into a query's running max, sum and out [head_dim]; `fresh`: this is the first page. */
void HT_ISA_NAME(ht_attend_merge)(float *max, float *sum, float *out, int64_t head_dim, bool fresh, float page_max,
                                  float page_sum, const float *page_out);

/* Divides `out` by `sum`, to which the query's sink is added; NULL: none. */
void HT_ISA_NAME(ht_attend_finish)(float *out, int64_t head_dim, float max, float sum, const float *sink);

#endif
