/* Attention over KV pages: the arguments of the kernels of cuda/attend.cu.
 *
 * A query is one head of one row. Queries are numbered by row, then by their index among the heads that share a KV
 * head: query i of KV head h is row i / group, head h * group + i % group. A tile is adjacent queries of one sequence;
 * a unit is a tile and a page that any of its rows sees. attend_stream_* processes all pages of a tile in one block.
 * Other kernels process one unit per block; the last block to finish a tile merges its units. */
#ifndef HT_CUDA_ATTEND_H
#define HT_CUDA_ATTEND_H

#include "cuda/page.h"

/* X(module, kernel): attend_pages_N takes tiles of N queries, attend_tiles_*_N of 16 N, attend_stream_*_N heads of up to 8 N. */
#define HT_CUDA_TENSOR_KERNELS_OF_ATTEND(X, type)                                                                      \
    X(attend, ht_cuda_attend_tiles_##type##_1)                                                                         \
    X(attend, ht_cuda_attend_tiles_##type##_2)                                                                         \
    X(attend, ht_cuda_attend_tiles_##type##_4)                                                                         \
    X(attend, ht_cuda_attend_stream_##type##_8)                                                                        \
    X(attend, ht_cuda_attend_stream_##type##_12)                                                                       \
    X(attend, ht_cuda_attend_stream_##type##_16)
#define HT_CUDA_KERNELS_OF_ATTEND(X)                                                                                   \
    X(attend, ht_cuda_append)                                                                                          \
    X(attend, ht_cuda_attend_pages_1)                                                                                  \
    X(attend, ht_cuda_attend_pages_8)                                                                                  \
    HT_CUDA_TENSOR_KERNELS_OF_ATTEND(X, f16)                                                                           \
    HT_CUDA_TENSOR_KERNELS_OF_ATTEND(X, bf16)                                                                          \
    HT_CUDA_TENSOR_KERNELS_OF_ATTEND(X, i8)

enum {
    HT_CUDA_ATTEND_THREADS = 128, /* of a block of attend_pages: each has two keys */
    HT_CUDA_ATTEND_TILE = 8,      /* queries of a tile at most */
    HT_CUDA_ATTEND_REDUCED = 4,   /* queries whose sums are reduced at a time */
    HT_CUDA_TENSOR_THREADS = 256, /* of a block of the others */
    HT_CUDA_TENSOR_HEAD = 512,    /* dimensions at most */
    HT_CUDA_TILES_AT_ONCE = 8,    /* blocks of sums of a warp: 16 queries of 8 dimensions */
    HT_CUDA_MOST_TILE = 64,       /* queries of a unit at most */
    HT_CUDA_STREAM_TILE = 128,    /* queries: 16 of each warp */
    HT_CUDA_STREAM_STEPS = 3,     /* in shared memory at once */
    HT_CUDA_STREAM_HEAD = 128,    /* dimensions at most, whose sums fit in registers twice */
    HT_CUDA_STEP_KEYS = 64,       /* keys in shared memory at once */
    HT_CUDA_PAGE_STEPS = 2 * HT_CUDA_KEYS / HT_CUDA_STEP_KEYS, /* of the keys and values of a page */
    HT_CUDA_WEIGHTS_STRIDE = HT_CUDA_KEYS + 8,                 /* halves: rows are in different banks */
    HT_CUDA_ARRIVALS = 1 << 14,                                /* KV heads of tiles of a launch at most */
    HT_CUDA_ATTEND_OWN = 3072                                  /* bytes of tables that are passed with the arguments */
};

typedef struct ht_cuda_attend_tile {
    int32_t query, n; /* queries [query, query + n) */
    int32_t first_page, n_pages;
    int32_t address; /* index of the first page's address */
    int32_t unit;    /* units of earlier tiles of its kind */
    int64_t result;  /* queries of these units */
} ht_cuda_attend_tile;

typedef struct ht_cuda_attend_row {
    int32_t pos;
    int32_t address; /* index of the address of the page that holds the row */
} ht_cuda_attend_row;

typedef struct ht_cuda_attend_arguments {
    ht_cuda_page_form form;
    ht_cuda_view q, k, v; /* [rows, heads, head_dim] */
    float *out;           /* [rows, n_heads, out_dim] */
    const float *sinks;   /* of head h at h * sinks_stride; NULL: none */
    int64_t sinks_stride;
    int64_t window; /* 0: none */
    float scale, softcap;
    int32_t n_heads, group;
    int32_t out_dim;              /* first elements of the values that are results: head_dim, or less of keys alone */
    int32_t chunked;              /* kind of window */
    int32_t tile;                 /* queries at most */
    int32_t first_tile, end_tile; /* of this launch */
    int32_t first_part, end_part; /* pages of its only tile, if that is split; else 0 */
    int32_t buffers;              /* of attend_tiles: steps in shared memory at once */
    int32_t appends;              /* attend_tiles appends the rows: each sequence is one tile */
    /* Per query of each unit: [units][n_kv_heads][queries of the tile]. */
    float *partial;     /* [head_dim] */
    float *totals;      /* largest score, and sum */
    float *continued;   /* of a split tile so far: [n_kv_heads][queries][head_dim] largest score, sum, weighted sum */
    uint32_t *arrivals; /* [tiles of the launch][n_kv_heads] units that are done; 0 between launches */
    /* Page addresses (8 bytes each), tiles and rows, at `table`, or at `own` if `table` is NULL. */
    const void *table;
    int64_t tiles_at, rows_at; /* bytes from its beginning */
    uint64_t own[HT_CUDA_ATTEND_OWN / 8];
} ht_cuda_attend_arguments;

/* ---- shared memory of the kernels with tensor cores ---- */

/* attend_tiles: results for the scores of a page. */
typedef struct ht_cuda_tile_scores {
    float factors[HT_CUDA_MOST_TILE];                       /* of products */
    float decay[HT_CUDA_PAGE_STEPS / 2][HT_CUDA_MOST_TILE]; /* factors of the sums of the steps before */
    float largest[HT_CUDA_MOST_TILE];
} ht_cuda_tile_scores;

/* Parts of a query or weight: one for f16; two for bf16 and 8-bit pages, the second the remainder of the first. */
HT_CUDA_BOTH int ht_cuda_operand_parts(const ht_cuda_page_form *f) { return f->dtype == HT_F16 ? 1 : 2; }

/* attend_tiles: chunks of a query and of keys, padded with zeros; of 8 elements for any page dtype. */
HT_CUDA_BOTH int ht_cuda_tiles_chunks(const ht_cuda_page_form *f) { return (f->chunks + 3) / 4 * 4; }
/* Bytes between values; an odd number of chunks, so that the same chunk of 8 values is in different banks. */
HT_CUDA_BOTH int ht_cuda_value_bytes(int chunks) { return (chunks | 1) * 16; }
/* Bytes of a step's keys or values, before their scales, and with them. */
HT_CUDA_BOTH int ht_cuda_step_elements(int padded, int value_bytes) {
    const int keys = padded * 16 * HT_CUDA_STEP_KEYS, values = value_bytes * HT_CUDA_STEP_KEYS + 16;
    return ((keys > values ? keys : values) + 127) / 128 * 128;
}
HT_CUDA_BOTH int ht_cuda_step_bytes(const ht_cuda_page_form *f, int padded, int value_bytes) {
    return ht_cuda_step_elements(padded, value_bytes) + f->blocks * 2 * HT_CUDA_STEP_KEYS;
}
/* Bytes of one part of `n` queries. */
HT_CUDA_BOTH int ht_cuda_queries_bytes(int n, int chunks) { return n * (chunks * 16 + 16); }

#endif
