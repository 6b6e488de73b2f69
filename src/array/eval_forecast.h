/* Memory that an evaluation will take, without computing anything. */
#ifndef HT_ARRAY_EVAL_FORECAST_H
#define HT_ARRAY_EVAL_FORECAST_H

#include "array/array.h"

/* Most bytes that buffers and scratch memory of the evaluation of `arrays` take at once, beside what is evaluated already; the
 * results and the graph among them. Elementwise nodes count as if each ran by itself. */
ht_status ht_eval_forecast(ht_scope *s, ht_array *const *arrays, int n, size_t *peak_bytes, ht_error *err);

#endif
