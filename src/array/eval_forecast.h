/* Memory that an evaluation will take, without computing anything. */
#ifndef HT_ARRAY_EVAL_FORECAST_H
#define HT_ARRAY_EVAL_FORECAST_H

#include "array/array.h"

/* Peak bytes of buffers and scratch memory while `arrays` are evaluated, including the results and the graph, excluding
 * arrays already evaluated. Elementwise nodes count as if they were not fused. */
ht_status ht_eval_forecast(ht_scope *s, ht_array *const *arrays, int n, size_t *peak_bytes, ht_error *err);

#endif
