/* Sequences of ATTEND_ROWS: flat rows of queries, each with its key row and the first key row of its sequence. */
#ifndef HT_CPU_ATTEND_ROWS_H
#define HT_CPU_ATTEND_ROWS_H

#include "device/kernel.h"

/* Runs of queries whose keys begin at the same row. */
typedef struct ht_ragged {
    int64_t n;
    int64_t *start; /* [n + 1] first query of each run, then the number of queries */
    int32_t *own;   /* [n_q] key row of each query */
    int32_t *first; /* [n_q] first key row of each query's sequence */
} ht_ragged;

/* Bytes of memory that ht_ragged_find needs, a multiple of 64. */
size_t ht_ragged_bytes(const ht_call *call);
/* Reads rows and sequences of the call's operands into `memory`. HT_ERR_ARGUMENT when a query's key is outside the keys, or
 * before that of an earlier query of its sequence. */
ht_status ht_ragged_find(const ht_call *call, void *memory, ht_ragged *out, ht_error *err);

#endif
