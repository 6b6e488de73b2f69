/* GEMM schedule of integer products with the same activations: every row is brought into the form that the weights ask
 * for (bytes, planes of bytes, words), once for all products and by any thread; then the panels of all matrices are cut into
 * one list of work for the pool. Everything is laid out before the first row is there, so that a plan does it once for
 * many steps. */
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
    /* So that a thread that lost its core for a while does not hold up the others; of panels, which take microseconds,
     * also because threads wait for half a piece at the end of a product. */
    HT_PIECES_PER_THREAD = 8,
    HT_PANEL_PIECES_PER_THREAD = 16
};

/* How one product is cut into pieces, of which threads take one at a time. */
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
    ht_qrows x[HT_FORM_COUNT]; /* alike but for their memory, which only those have that are needed */
    bool direct;               /* the tiles are as large as `direct` takes them, and few enough for it */
    int64_t n_shares;          /* of a tile's rows, each made by one thread */
    ht_gemm_pieces of[HT_MAX_GEMMS];
    char *decoded; /* decoded_bytes per worker */
    size_t decoded_bytes;
    float *sums; /* of planes: sums_floats per worker */
    int64_t sums_floats;
    void *top; /* what ht_coarse_head_top works in */
} ht_gemm_schedule;

/* Whether the product with such a matrix is in integers, and may be one of several. */
bool ht_gemm_shares_rows(const ht_matrix *m);
/* The form that products with such a matrix ask for. */
ht_form ht_gemm_form(const ht_matrix *m);

/* Room for so many blocks of rows in one form; and for their offsets under weights of a type, which has some or not. */
void ht_qrows_layout(ht_qrows *x, ht_form form, int64_t blocks, ht_scratch_layout *d);
void *ht_offsets_layout(const ht_matrix *m, int64_t blocks, ht_scratch_layout *d);

/* Lays out what stands above "The layout". `scratch` is 64-byte aligned; gives the bytes that are needed there, which is
 * all that it does with NULL. */
size_t ht_gemm_schedule_layout(ht_gemm_schedule *s, void *scratch);

/* Rows are made by shares: rows [begin, end) of x, of one tile, in ht_gemm_schedule_shares shares in all, each once. */
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

/* When all rows are there. */
void ht_gemm_schedule_multiply(const ht_gemm_schedule *s, ht_pool *pool);

/* The same by parts, for a caller who has the rows and the memory and makes one list of work of several ht_gemm_schedule: lays
 * out without memory, so that what x, the offsets and `decoded` point at is the caller's to fill in; then pieces [begin,
 * end) of all there are. */
void ht_gemm_schedule_cut(ht_gemm_schedule *s);
int64_t ht_gemm_schedule_pieces(const ht_gemm_schedule *s);
void ht_gemm_schedule_run(const ht_gemm_schedule *s, int64_t begin, int64_t end, int worker);

#endif
