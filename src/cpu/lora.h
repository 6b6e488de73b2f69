/* LoRA adapters of a step: assignment of rows to matrices and of tiles to threads. The products belong to the
 * instruction set.
 *
 * The order of every sum depends on shapes alone. For one row and one adapter, ranks are taken HT_LORA_RANKS at a time:
 *
 *   low = A x      one sequence of multiply-adds from 0 per HT_LORA_CHUNK columns, the chunks added in order
 *   low = low * scale
 *   y = y + B low  one sequence of multiply-adds from 0 */
#ifndef HT_CPU_LORA_H
#define HT_CPU_LORA_H

#include "device/kernel.h"

enum {
    HT_LORA_ROWS = 28,   /* of a tile, at most: whole blocks of registers (vector/panel.c) */
    HT_LORA_RANKS = 128, /* at a time, so that scratch memory does not depend on the adapters */
    HT_LORA_CHUNK = 128  /* columns per partial sum */
};

/* low [n][HT_LORA_RANKS] = x [n, n_in] a [n_in, ranks]. */
typedef struct ht_lora_down {
    const float *x, *a;
    float *low;
    int64_t n, n_in, ranks, x_row, a_row;
} ht_lora_down;

/* y [n, n_out] += low [n][HT_LORA_RANKS] b [ranks, n_out]. */
typedef struct ht_lora_up {
    const float *low, *b;
    float *y;
    int64_t n, n_out, ranks, y_row, b_row;
} ht_lora_up;

typedef struct ht_lora_products {
    void (*down)(const ht_lora_down *d);
    void (*up)(const ht_lora_up *u);
    void (*copy)(const ht_view *from, const ht_view *to,
                 struct ht_device *d); /* y of any strides, when it is not overwritten */
} ht_lora_products;

ht_status ht_cpu_lora(const ht_call *call, const ht_lora_products *products, ht_error *err);
ht_scratch_fn ht_cpu_lora_scratch;

#endif
