/* Attention of a few queries over one page of 256 keys, the unit of which attend.c builds everything.
 *
 * What fixes the bits of a result: a score is one chain of fused multiply-adds over the dimensions in order; a page's
 * weights are exp(score - largest visible score of the page), summed lane by lane (key mod 16) and then across; a page's
 * output is one chain over its visible keys in order; pages are merged in order (attend_merge). None of this depends on
 * which queries share a register block, on how many keys are loaded at once, or on who computes which page. */
#ifndef HT_CPU_VECTOR_ATTEND_H
#define HT_CPU_VECTOR_ATTEND_H

#include "cpu/vector/simd.h"
#include "device/kernel.h"
#include "device/params.h"
#include "device/step.h"

#include <stddef.h>

enum { ATTEND_QUERIES = 6 }; /* at most so many queries go through a page together: what the registers hold */

/* One KV head of one page: f16, bf16 or 8 bits as stored, or f32 (stored or converted). */
typedef struct attend_page {
    ht_dtype dtype;
    const void *k;           /* [16 tiles][head_dim][16 keys] */
    const void *v;           /* [256 keys][v_stride] */
    const uint16_t *k_scale; /* of 8 bits: [16 tiles][blocks][16 keys] */
    const uint16_t *v_scale; /* [256 keys][blocks] */
    int64_t v_stride;        /* elements */
    int64_t head_dim;
    const void *next; /* K of the page that the thread reads after this, or NULL: fetched towards the end */
} attend_page;

/* Queries of one KV head and what they get from a page. Query i sees keys [first[i], end[i]) of the page; one that sees
 * none (first >= end) gets nothing. */
typedef struct attend_group {
    int n;          /* 1 .. ATTEND_QUERIES */
    const float *q; /* [n][head_dim] */
    float scale, softcap;
    int first[ATTEND_QUERIES], end[ATTEND_QUERIES];
    float max[ATTEND_QUERIES], sum[ATTEND_QUERIES]; /* out: largest score, sum of weights */
    float *weights;                                 /* room: [n][256] */
    float *out;                                     /* [n][padded head_dim]: the weighted sums of V */
} attend_group;

static inline int64_t attend_padded(int64_t head_dim) { return (head_dim + 15) / 16 * 16; }

/* Puts the step's keys and values into the caches, rounded to their dtype. */
void HT_ISA_NAME(ht_attend_append)(const ht_call *call);
/* The same for one row and KV head, if ht_attend_appends_heads. */
bool HT_ISA_NAME(ht_attend_appends_heads)(const ht_call *call);
void HT_ISA_NAME(ht_attend_append_head)(const ht_call *call, const ht_kv_layer *l, int64_t row, int64_t head);

void HT_ISA_NAME(ht_attend_page)(const attend_page *page, attend_group *group);

/* The f32 form of tiles [first / 16, (end + 15) / 16) of K and rows [first, end) of V: K keeps its layout, rows of V are
 * padded to whole lanes. */
void HT_ISA_NAME(ht_attend_convert)(const attend_page *from, int first, int end, float *k, float *v);

/* Adds a page's result to a query's running one (max, sum, out [head_dim]); `fresh` when it is the first. */
void HT_ISA_NAME(ht_attend_merge)(float *max, float *sum, float *out, int64_t head_dim, bool fresh, float page_max,
                                  float page_sum, const float *page_out);

/* out / sum */
void HT_ISA_NAME(ht_attend_finish)(float *out, int64_t head_dim, float sum);

#endif
