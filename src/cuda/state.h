/* Recurrent layers, SHORT_CONV and the scans of states with their gradient: the arguments of the kernels of
 * cuda/state.cu and cuda/state_gradient.cu.
 *
 * A block of a scan holds 32 columns of the state of a head in registers, and processes the rows of a sequence in turn.
 * Eight lanes share a column: sums over the key's dimensions have one order, whatever the rows of a step. */
#ifndef HT_CUDA_STATE_H
#define HT_CUDA_STATE_H

#include "cuda/fault.h"

/* X(module, kernel): for keys of up to 128 and of up to 256 dimensions. */
#define HT_CUDA_KERNELS_OF_STATE(X)                                                                                    \
    X(state, ht_cuda_short_conv)                                                                                       \
    X(state, ht_cuda_state_scan_128)                                                                                   \
    X(state, ht_cuda_state_scan_256)                                                                                   \
    X(state_gradient, ht_cuda_state_gradient_128)                                                                      \
    X(state_gradient, ht_cuda_state_gradient_256)                                                                      \
    X(state_gradient, ht_cuda_state_gradient_sums)

enum {
    HT_CUDA_STATE_THREADS = 128,
    HT_CUDA_STATE_COLUMNS = 32,  /* of a block: eight lanes share two columns */
    HT_CUDA_STATE_KEY_DIM = 256, /* at most */
    HT_CUDA_STATE_TILE = 8,      /* rows in shared memory, twice */
    HT_CUDA_STATE_SEGMENT = 64,  /* rows of a launch of the gradient, before which the states are kept */
    HT_CUDA_STATE_OWN = 2560,    /* bytes of sequences that are passed with the arguments */
    HT_CUDA_CONV_THREADS = 128,
    HT_CUDA_CONV_ROWS = 16 /* of a thread */
};

/* A sequence of a step. */
typedef struct ht_cuda_state_sequence {
    const float *before; /* its state */
    float *after;
    int32_t row, n; /* rows [row, row + n) */
    int32_t run;    /* runs of HT_CUDA_CONV_ROWS rows of earlier sequences */
} ht_cuda_state_sequence;

/* Sequences, at `table`, or at `own` if `table` is NULL. */
typedef struct ht_cuda_state_sequences {
    const void *table;
    uint64_t own[HT_CUDA_STATE_OWN / 8];
} ht_cuda_state_sequences;

typedef struct ht_cuda_short_conv_arguments {
    ht_cuda_view x, w, bias; /* n_dims of the bias is -1 if absent */
    float *out;
    int64_t first, channels; /* of the state */
    int32_t n_seq;
    ht_cuda_state_sequences sequences;
} ht_cuda_short_conv_arguments;

typedef struct ht_cuda_state_operand {
    const float *data;       /* NULL: none */
    int64_t row, head, step; /* elements between adjacent rows, heads and dimensions */
} ht_cuda_state_operand;

typedef struct ht_cuda_state_scan_arguments {
    ht_cuda_state_operand q, k, v, decay, rate;
    ht_cuda_state_operand grad; /* of a gradient */
    float *out;                 /* [rows, heads, value_dim] */
    int32_t heads, key_heads, key_dim, value_dim;
    int32_t column_blocks; /* of a head */
    bool of_keys;          /* a decay per key dimension */
    bool quads;            /* four elements of any operand can be copied at once */
    bool pairs;            /* two columns of a state can be moved at once */
    int64_t first;         /* value of the state */
    /* Flat rows, in sequences that `parts` groups of blocks share. */
    const int32_t *first_row; /* NULL: a step */
    int64_t first_row_stride, n_rows;
    int32_t parts;
    float *checkpoints; /* states before every HT_CUDA_STATE_SEGMENT rows, as the threads have them; NULL: none */
    ht_cuda_reporter report;
    /* Gradient of rows [segment, segment + HT_CUDA_STATE_SEGMENT), after that of all later rows. */
    int64_t segment;
    float *states;  /* [tiles] before each tile of the segment */
    float *rows;    /* [rows of a tile] before each row of a tile */
    float *later;   /* gradient of the state after the segment */
    float *partial; /* [rows of the segment][heads][column_blocks] sums over the columns of a block */
    float *out_q, *out_k, *out_v, *out_decay, *out_rate;
    ht_cuda_state_sequences sequences;
} ht_cuda_state_scan_arguments;

/* Floats of a row in shared memory: q, k, 32 values, then decay, rate and first row of the sequence; the decays of all
 * key dimensions; the gradients of 32 results. `keys`: key dimensions, padded to 128 or 256. */
HT_CUDA_BOTH int ht_cuda_state_row_floats(int keys, bool of_keys, bool gradient) {
    return 2 * keys + HT_CUDA_STATE_COLUMNS + 4 + (of_keys ? keys : 0) + (gradient ? HT_CUDA_STATE_COLUMNS : 0);
}
/* Floats of a row's sums over columns: of the gradients of q and k, of decay and rate, of all key dimensions' decays. */
HT_CUDA_BOTH int ht_cuda_state_sum_floats(int keys, bool of_keys) { return 2 * keys + 4 + (of_keys ? keys : 0); }
/* Floats of a block's part of a state, as its threads have it. */
HT_CUDA_BOTH int ht_cuda_state_part_floats(int keys) { return keys * HT_CUDA_STATE_COLUMNS; }

#endif
