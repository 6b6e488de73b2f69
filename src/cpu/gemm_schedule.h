/* GEMM schedule of integer products with the same activations. Any thread converts a row to the format that the weights
 * need (bytes, planes of bytes, words), once for all products. Then the panels of all matrices form one work list for
 * the thread pool. The layout does not depend on activations, so a plan computes it once for many steps. */
#ifndef HT_CPU_GEMM_SCHEDULE_H
#define HT_CPU_GEMM_SCHEDULE_H

#include "cpu/matrix_kernels.h"
#include "cpu/scratch_layout.h"

/* y = W x + bias. */
typedef struct ht_gemm {
    const ht_matrix *m;
    const float *bias; /* NULL: none */
    float *y;
    int64_t ldy;
    int32_t top_k; /* as in ht_product */
} ht_gemm;

enum {
    HT_MAX_GEMMS = 8,
    /* Several pieces per thread, so that a preempted thread does not hold up the others. Panels take microseconds; they
     * get more pieces, because threads wait for half a piece on average at the end of a product. */
    HT_PIECES_PER_THREAD = 8,
    HT_PANEL_PIECES_PER_THREAD = 16
};

/* How one product is split into pieces; a thread takes one piece at a time. */
typedef struct ht_gemm_pieces {
    ht_form form;
    bool direct;             /* from the packed panels, `grain` panels per piece */
    int64_t first, end;      /* pieces, among those of all products */
    int64_t n_panels, grain; /* panels in all, and per piece */
    int64_t n_parts, chunk;  /* not direct: of the tiles; and blocks decoded at a time */
    size_t panel_bytes;
    void *offset; /* of all tiles, shared by products of one type; NULL for words */
} ht_gemm_pieces;

typedef struct ht_gemm_schedule {
    const ht_matrix_kernels *kernels;
    int64_t n_x;   /* rows, > 0 */
    int n_threads; /* of the pool */
    int n;
    ht_gemm product[HT_MAX_GEMMS]; /* all of the same k and kernels */

    /* The layout. */
    ht_qrows x[HT_FORM_COUNT]; /* same shape; only the formats in use have memory */
    bool direct;               /* the tiles are as large as `direct` takes them, and few enough for it */
    int64_t n_shares;          /* of a tile's rows, each made by one thread */
    ht_gemm_pieces of[HT_MAX_GEMMS];
    char *decoded; /* decoded_bytes per worker */
    size_t decoded_bytes;
    void *top; /* workspace of ht_coarse_head_top */
} ht_gemm_schedule;

/* Whether the product with `m` uses integers, and may share a schedule with others. */
bool ht_gemm_shares_rows(const ht_matrix *m);
/* The activation format for products with `m`. */
ht_form ht_gemm_form(const ht_matrix *m);

/* Workspace for `blocks` blocks of rows in one format, and for their offsets, if weights of the type of `m` use any. */
void ht_qrows_layout(ht_qrows *x, ht_form form, int64_t blocks, ht_scratch_layout *d);
void *ht_offsets_layout(const ht_matrix *m, int64_t blocks, ht_scratch_layout *d);

/* Computes the fields under "The layout" from those above it, in `scratch`, which is 64-byte aligned. Returns the bytes
 * needed; with NULL it only measures. */
size_t ht_gemm_schedule_layout(ht_gemm_schedule *s, void *scratch);

/* Unit of work for quantising rows: rows [begin, end) of x in one tile. Each of ht_gemm_schedule_shares runs once. */
typedef struct ht_gemm_share {
    int64_t tile, begin, end;
} ht_gemm_share;
int64_t ht_gemm_schedule_shares(const ht_gemm_schedule *s);
int64_t ht_gemm_schedule_share_rows(const ht_gemm_schedule *s); /* of a share, at most */
ht_gemm_share ht_gemm_schedule_share(const ht_gemm_schedule *s, int64_t share);
/* x is row 0. */
void ht_gemm_schedule_quantise(const ht_gemm_schedule *s, ht_gemm_share share, const float *x, int64_t ldx);
/* The offsets of product i for rows [first, last) of activations of a tile. */
void ht_gemm_offsets(const ht_gemm_schedule *s, int i, int64_t tile, int first, int last);

/* Runs all products, after all rows have been quantised. */
void ht_gemm_schedule_multiply(const ht_gemm_schedule *s, ht_pool *pool);

/* For callers that join several schedules in one work list. `cut` computes the layout without memory: the caller sets
 * the pointers of x, the offsets and `decoded`. `run` computes pieces [begin, end) of ht_gemm_schedule_pieces. */
void ht_gemm_schedule_cut(ht_gemm_schedule *s);
int64_t ht_gemm_schedule_pieces(const ht_gemm_schedule *s);
void ht_gemm_schedule_run(const ht_gemm_schedule *s, int64_t begin, int64_t end, int worker);

#endif
