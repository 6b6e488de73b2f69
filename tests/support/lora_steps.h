/* Adapters of a step whose sequences have some each, on any device. */
#ifndef TESTS_SUPPORT_LORA_STEPS_H
#define TESTS_SUPPORT_LORA_STEPS_H

#include "support/kernels.h"

enum { LORA_PAIRS = 3, LORA_SETS = 4, LORA_PROJECTIONS = 2, LORA_PROJECTION = 1, MOST_SEQUENCES = 8, LORA_MIXES = 5 };

typedef struct lora_shape {
    int64_t n_in, n_out, rank;
    int64_t n_experts, per_row;   /* 0 and 1: dense */
    bool x_of_items;              /* of experts: x [T, m, k] */
    int64_t x_step;               /* stride of x within a row; 0: 1 */
    int64_t head_rows, first_row; /* the experts are heads of a dense pair, as in ht_lora_params; 0: they are none */
    bool transposed;
} lora_shape;

/* Pairs of three ranks; sets of one adapter, of two, of one that leaves the projection alone, and the first once more. */
typedef struct adapters {
    ht_device *d;
    lora_shape s;
    void *values[LORA_PAIRS][2]; /* A and B of the device, exactly as long as kernels may read */
    size_t bytes[LORA_PAIRS][2];
    ht_lora_pair pair[LORA_PAIRS];
    ht_lora_use use[LORA_SETS][LORA_PROJECTIONS * 2];
    ht_lora_set set[LORA_SETS];
} adapters;
void adapters_make(adapters *f, ht_device *d, const lora_shape *s);
void adapters_free(adapters *f);

/* Sequences of a step, with the set of each; -1: none. `asked`: only every other row is an output row. */
typedef struct sequences {
    int n;
    int32_t rows[MOST_SEQUENCES];
    int set[MOST_SEQUENCES];
    bool asked;
} sequences;
extern const sequences lora_mixes[LORA_MIXES];
/* Sequence of row `row` of the kernel. */
int sequence_of(const sequences *q, int64_t row);

typedef struct lora_data {
    int64_t n, items, x_row; /* rows; x_row: of an item, or of a row */
    float *x, *y;
    int32_t *ids;
} lora_data;
lora_data lora_data_make(const lora_shape *s, const sequences *q);
void lora_data_free(lora_data *v);

/* Runs the step's kernel; y is overwritten when `out` is y. */
ht_status lora_run(const adapters *f, const sequences *q, const lora_data *v, float *out, ht_error *err);
/* The result; each row alone in its step, and the result in place, have the same bits, and rows without adapters keep theirs. */
void lora_run_all(const adapters *f, const sequences *q, const lora_data *v, float *out);

/* An expert that is none is refused. */
void expect_unknown_expert(ht_device *d);

#endif
