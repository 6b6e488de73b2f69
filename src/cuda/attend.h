/* Attention over KV pages: the arguments of the kernels of cuda/attend.cu.
 *
 * A query is one head of one row. Queries are counted row by row, and within a row by their place among the heads that share a
 * KV head: query i of KV head h is row i / group, head h * group + i % group. A tile is up to `tile` adjacent queries of one
 * sequence; a unit is a tile and a page that any of its rows sees. */
#ifndef HT_CUDA_ATTEND_H
#define HT_CUDA_ATTEND_H

#include "cuda/page.h"

/* X(module, kernel): attend_pages_N takes tiles of N queries. */
#define HT_CUDA_KERNELS_OF_ATTEND(X)                                                                                   \
    X(attend, ht_cuda_append)                                                                                          \
    X(attend, ht_cuda_attend_pages_1)                                                                                  \
    X(attend, ht_cuda_attend_pages_2)                                                                                  \
    X(attend, ht_cuda_attend_pages_4)                                                                                  \
    X(attend, ht_cuda_attend_pages_8)                                                                                  \
    X(attend, ht_cuda_attend_merge)

enum {
    HT_CUDA_ATTEND_THREADS = 128, /* of a block of attend_pages: each has two keys */
    HT_CUDA_ATTEND_TILE = 8,      /* queries of a tile at most */
    HT_CUDA_ATTEND_REDUCED = 4,   /* queries whose sums are brought together at a time */
    HT_CUDA_MERGE_SLICES = 4,     /* page i of a row is added by slice i % 4 */
    HT_CUDA_ATTEND_OWN = 3072     /* bytes of tables that are passed with the arguments */
};

typedef struct ht_cuda_attend_tile {
    int32_t query, n; /* queries [query, query + n) */
    int32_t first_page, n_pages;
    int32_t address; /* index of the first page's address */
    int32_t unit;    /* units of the tiles before */
} ht_cuda_attend_tile;

typedef struct ht_cuda_attend_row {
    int32_t pos;
    int32_t address; /* index of the address of the page that holds the row */
} ht_cuda_attend_row;

typedef struct ht_cuda_attend_arguments {
    ht_cuda_page_form form;
    ht_cuda_view q, k, v; /* [rows, heads, head_dim] */
    float *out;           /* [rows, n_heads, head_dim] */
    int64_t window;       /* 0: none */
    float scale, softcap;
    int32_t n_heads, group;
    int32_t tile;                 /* queries */
    int32_t first_tile, end_tile; /* of this launch */
    float *partial;               /* [units of the launch][n_kv_heads][tile][head_dim] */
    float *totals;                /* [units of the launch][n_kv_heads][tile][2]: largest score, and sum */
    /* Addresses of pages [8 bytes each], tiles, rows; at `table`, or where that is NULL at `own`. */
    const void *table;
    int64_t tiles_at, rows_at; /* bytes from its beginning */
    uint64_t own[HT_CUDA_ATTEND_OWN / 8];
} ht_cuda_attend_arguments;

#endif
