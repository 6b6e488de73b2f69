/* Step of a model: the rows it computes and the caches they belong to.
 *
 * Rows are flat: sequence s owns rows seq_start[s] .. seq_start[s + 1] - 1, in increasing position order, so ragged
 * sequences need no padding. */
#ifndef HT_DEVICE_STEP_H
#define HT_DEVICE_STEP_H

#include <hearth/dtype.h>

#include <stdint.h>

typedef struct ht_batch {
    int32_t n_tok;            /* rows, > 0 */
    int32_t n_seq;            /* sequences, > 0 */
    int32_t n_out;            /* rows whose output is asked for, >= 0 */
    const int32_t *id;        /* [n_tok] token ids */
    const int32_t *pos;       /* [n_tok] absolute positions */
    const int32_t *seq_start; /* [n_seq + 1] first row of each sequence; the last entry is n_tok */
    const int32_t *kv_len;    /* [n_seq] positions in the sequence's cache after this step */
    const int32_t *out_row;   /* [n_out] rows that meet the output head, increasing */
} ht_batch;

enum {
    HT_KV_PAGE = 256,  /* positions per page */
    HT_KV_TILE = 16,   /* keys per tile of the K layout */
    HT_KV_QBLOCK = 32, /* dimensions that share a scale in 8-bit pages */
    HT_KV_QMAX = 127
};

/* The pages of one layer of one sequence. A growing layer keeps every page (ring_pages == 0): position p is in
 * pages[p / 256]. A rotating layer has ring_pages pages: position p is in pages[(p / 256) % ring_pages].
 *
 * A page holds K then V, both in `dtype`:
 *   K [n_kv_heads][256 / 16 tiles][head_dim][16 keys]   sixteen scores advance together, d by d
 *   V [n_kv_heads][256][head_dim]
 *
 * 8-bit pages go on with the scales of K and those of V, bf16, one for every 32 dimensions of a vector (n_blocks of them,
 * the last one maybe for fewer):
 *   K [n_kv_heads][256 / 16 tiles][n_blocks][16 keys]
 *   V [n_kv_heads][256][n_blocks]
 * A number is scale * q, which is exact in f32. The scale is max |x| / 127, rounded up, and q the nearest integer to
 * x / scale; a scale under the smallest normal number is 0; a block with a NaN or an infinity has a NaN for a scale. */
typedef struct ht_kv_layer {
    int32_t n_kv_heads;
    int32_t head_dim;
    ht_dtype dtype;     /* HT_F16, HT_BF16, HT_F32, or HT_I8 for 8 bits with scales */
    int64_t window;     /* keys visible to a row, itself included; 0: all */
    int64_t ring_pages; /* 0: growing */
    int64_t n_pages;    /* pages allocated so far */
    void **pages;
} ht_kv_layer;

/* One sequence's keys and values, all layers. `length` counts the committed positions and moves only after a whole step
 * succeeded; a step may write positions length .. kv_len - 1, for which pages exist beforehand. */
typedef struct ht_cache {
    int32_t n_layers;
    ht_kv_layer *layer;
    int64_t length;
    struct ht_cache_owner *owner; /* who allocates; the kernels do not look at it */
} ht_cache;

static inline int64_t ht_kv_blocks(int64_t head_dim) { return (head_dim + HT_KV_QBLOCK - 1) / HT_KV_QBLOCK; }

typedef struct ht_step {
    const ht_batch *batch;
    ht_cache *const *kv; /* [n_seq] */
    float *output;       /* where the plan's output goes; NULL: somewhere in the executor */
    /* Of each row of the output only the so many highest are wanted, and what equals the lowest of them: others may be
     * HT_LEFT_OUT (device/matrix.h). 0: all. */
    int32_t top_k;
} ht_step;

static inline int64_t ht_kv_page_of(const ht_kv_layer *l, int64_t pos) {
    int64_t page = pos / HT_KV_PAGE;
    return l->ring_pages ? page % l->ring_pages : page;
}

#endif
