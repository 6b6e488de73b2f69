/* Symbolic row counts of a traced plan. During tracing the number of rows and the number of output rows are
 * placeholders far above any real size: 2^40 and 2^40 + 2^20. Products of a placeholder and a constant can be
 * recognised in shapes and strides, and resolved when the plan runs. */
#ifndef HT_ARRAY_SYMBOL_H
#define HT_ARRAY_SYMBOL_H

#include <stdbool.h>
#include <stdint.h>

#define HT_SYM_ROWS ((int64_t)1 << 40)
#define HT_SYM_OUT  (((int64_t)1 << 40) + ((int64_t)1 << 20))

/* A size, stride or offset as constant + rows * n_tok + out * n_out; only one of the three terms is not 0. */
typedef struct ht_linear_form {
    int64_t constant, rows, out;
} ht_linear_form;

/* Decodes a traced size. False when `value` mixes the two placeholders or adds a constant, which a plan cannot
 * represent. */
static inline bool ht_symbol_decode(int64_t value, ht_linear_form *form) {
    int64_t magnitude = value < 0 ? -value : value, sign = value < 0 ? -1 : 1;
    *form = (ht_linear_form){0};
    if (magnitude < HT_SYM_ROWS) {
        form->constant = value;
        return true;
    }
    int64_t k = magnitude >> 40, low = magnitude & (HT_SYM_ROWS - 1);
    if (low == 0)
        form->rows = sign * k;
    else if (k < (1 << 20) && low == k << 20)
        form->out = sign * k;
    else
        return false;
    return true;
}

static inline int64_t ht_symbol_resolve(ht_linear_form f, int64_t n_tok, int64_t n_out) {
    return f.constant + f.rows * n_tok + f.out * n_out;
}

#endif
