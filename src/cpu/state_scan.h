/* Operands and sequences of STATE_SCAN, STATE_SCAN_ROWS and its gradient (device/params.h). */
#ifndef HT_CPU_STATE_SCAN_H
#define HT_CPU_STATE_SCAN_H

#include "device/kernel.h"
#include "device/params.h"

typedef struct ht_state_scan {
    const ht_call *call;
    const ht_state_scan_params *params;
    const ht_view *q, *k, *v, *decay, *rate; /* of the call */
    int64_t heads, key_heads, key_dim, value_dim;
    int64_t key_step; /* elements between the decays of two key dimensions; 0: one decay for all */
    int64_t n_seq;
    const int32_t *start; /* [n_seq + 1] first row of each sequence, then the number of rows */
} ht_state_scan;

/* Sizes and operands, from a call whose data pointers may be missing; without sequences. */
ht_state_scan ht_state_scan_of(const ht_call *call);
/* Bytes for the sequences of flat rows, a multiple of 64; 0 for STATE_SCAN. */
size_t ht_state_scan_bytes(const ht_call *call);
/* Finds the sequences: those of the step, whose states are checked, or of flat rows, listed in the call's scratch memory.
 * HT_ERR_ARGUMENT when the first rows of flat rows are not those of adjacent sequences. */
ht_status ht_state_scan_start(const ht_call *call, ht_state_scan *out, ht_error *err);

/* Key head of a head. */
static inline int64_t ht_state_scan_key_head(const ht_state_scan *s, int64_t head) {
    return head / (s->heads / s->key_heads);
}

/* Element 0 of a head in a row of an operand. */
static inline const float *ht_state_scan_at(const ht_view *x, int64_t row, int64_t head) {
    return (const float *)x->data + row * x->stride[0] + head * x->stride[1];
}

#endif
