/* Symbolic row counts in the shapes of a trace. While a forward function is traced, the number of rows and the number
 * of rows asked for are stand-ins far above any real size: shapes and strides built from them by multiplication with
 * constants can be told apart and resolved when the plan runs. k times the rows is k * 2^40; k times the rows asked for
 * is k * (2^40 + 2^20). */
#ifndef HT_ARRAY_SYMBOL_H
#define HT_ARRAY_SYMBOL_H

#include <stdbool.h>
#include <stdint.h>

#define HT_SYM_ROWS ((int64_t)1 << 40)
#define HT_SYM_OUT  (((int64_t)1 << 40) + ((int64_t)1 << 20))

/* What a size, stride or offset is made of: constant + rows * n_tok + out * n_out, one of the three only. */
typedef struct ht_linear_form {
    int64_t constant, rows, out;
} ht_linear_form;

/* False when `value` mixes the two counts or adds a constant to one: no plan can hold it. */
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
