/* Strided iterator: visits the elements of equally shaped views in row-major order, span by span; within a span every
 * view has one stride. Axes are merged where all views allow it, so contiguous data is a single span. */
#ifndef HT_CPU_STRIDED_ITERATOR_H
#define HT_CPU_STRIDED_ITERATOR_H

#include "device/kernel.h"

enum { HT_STRIDED_VIEWS = 4 };

typedef struct ht_strided_iterator {
    int n_views, n_dims; /* n_dims >= 1; spans run along the last axis */
    int64_t size;        /* total elements */
    int64_t shape[HT_MAX_DIMS];
    int64_t stride[HT_STRIDED_VIEWS][HT_MAX_DIMS];
} ht_strided_iterator;

/* All views have the shape of views[0]. */
void ht_strided_iterator_init(ht_strided_iterator *w, int n_views, const ht_view *const *views);

/* Span of n elements: element i of view v is at offset[v] + i * stride[v], in elements. */
typedef struct ht_strided_span {
    int64_t n;
    int64_t offset[HT_STRIDED_VIEWS];
    int64_t stride[HT_STRIDED_VIEWS];
} ht_strided_span;

typedef void ht_strided_visit(void *arg, const ht_strided_span *span);
/* Calls `visit` for the spans of elements [begin, end) of the row-major order. */
void ht_strided_iterator_range(const ht_strided_iterator *w, int64_t begin, int64_t end, ht_strided_visit *visit,
                               void *arg);

/* Element offset of entry `flat` of the row-major order over the first n_dims axes. */
int64_t ht_view_offset(const ht_view *v, int n_dims, int64_t flat);
/* Element offset of an operand's matrix for result matrix `flat`; leading axes that are missing or of length 1
 * broadcast. */
int64_t ht_matmul_offset(const ht_view *v, const ht_view *out, int64_t flat);

/* Elementwise kernel function for one span: views 1, 2 and 3 of the span are call->in[0], [1] and [2]; view 0, of
 * stride 1, is call->out. */
typedef void ht_strided_span_fn(const ht_call *call, const ht_strided_span *span);
/* Applies `fn` to all elements of call->out, in parallel if they exceed `grain`. */
void ht_strided_elementwise(const ht_call *call, int64_t grain, ht_strided_span_fn *fn);

/* Grain sizes: least elements per parallel block for plain kernels, vector kernels with elementary functions, and
 * vector kernels bound by memory. */
enum { HT_GRAIN_PLAIN = 4096, HT_GRAIN_MATH = 8192, HT_GRAIN_CHEAP = 32768 };

/* Grain in rows of n elements. */
static inline int64_t ht_row_grain(int64_t grain, int64_t n) { return n >= grain ? 1 : grain / (n > 0 ? n : 1); }

#endif
