/* Strided iterator: the elements of equally shaped views in row-major order, by spans along which every view has one
 * stride. Axes that all views could just as well see as one are merged first, so that contiguous data is a single span. */
#ifndef HT_CPU_STRIDED_ITERATOR_H
#define HT_CPU_STRIDED_ITERATOR_H

#include "device/kernel.h"

enum { HT_STRIDED_VIEWS = 4 };

typedef struct ht_strided_iterator {
    int n_views, n_dims; /* n_dims >= 1; the last axis is the span */
    int64_t size;        /* elements in all */
    int64_t shape[HT_MAX_DIMS];
    int64_t stride[HT_STRIDED_VIEWS][HT_MAX_DIMS];
} ht_strided_iterator;

/* All views have the shape of views[0]. */
void ht_strided_iterator_init(ht_strided_iterator *w, int n_views, const ht_view *const *views);

/* A piece of the walk: n elements, element i of view v at offset[v] + i * stride[v], in elements. */
typedef struct ht_strided_span {
    int64_t n;
    int64_t offset[HT_STRIDED_VIEWS];
    int64_t stride[HT_STRIDED_VIEWS];
} ht_strided_span;

typedef void ht_strided_visit(void *arg, const ht_strided_span *span);
/* Visits elements [begin, end) of the row-major order. */
void ht_strided_iterator_range(const ht_strided_iterator *w, int64_t begin, int64_t end, ht_strided_visit *visit,
                               void *arg);

/* Offset in elements of entry `flat` of the row-major order over the first n_dims axes. */
int64_t ht_view_offset(const ht_view *v, int n_dims, int64_t flat);

/* An elementwise kernel: `fn` computes one span of call->out (view 0, stride 1) from call->in[0] (view 1) and, when there
 * are more operands, call->in[1] (view 2) and call->in[2] (view 3). Spans go to several threads when there are more than `grain` elements. */
typedef void ht_strided_span_fn(const ht_call *call, const ht_strided_span *span);
void ht_strided_elementwise(const ht_call *call, int64_t grain, ht_strided_span_fn *fn);

/* The same for rows [begin, end) of the leading axis of call->out, on the calling thread. */
void ht_strided_elementwise_rows(const ht_call *call, int64_t begin, int64_t end, ht_strided_span_fn *fn);

/* Elements per block such that handing a block to another thread is worth it. */
enum { HT_GRAIN_PLAIN = 4096, HT_GRAIN_MATH = 8192, HT_GRAIN_CHEAP = 32768 };

/* Rows of n elements per block, for kernels that go row by row. */
static inline int64_t ht_row_grain(int64_t grain, int64_t n) { return n >= grain ? 1 : grain / (n > 0 ? n : 1); }

#endif
