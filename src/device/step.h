/* Model step: the rows (tokens) of one forward pass and the KV caches of their sequences.
 *
 * Rows are flat, without padding: sequence s has rows seq_start[s] .. seq_start[s + 1] - 1, in order of position. */
#ifndef HT_DEVICE_STEP_H
#define HT_DEVICE_STEP_H

#include "device/kv.h"
#include "device/lora.h"
#include "device/window.h"

#include <stdint.h>

/* The rows of a step. */
typedef struct ht_batch {
    int32_t n_tok;            /* rows, > 0 */
    int32_t n_seq;            /* sequences, > 0 */
    int32_t n_out;            /* rows whose logits are computed, >= 0 */
    const int32_t *id;        /* [n_tok] token ids */
    const int32_t *pos;       /* [n_tok] absolute positions */
    const int32_t *seq_start; /* [n_seq + 1] first row of each sequence, then n_tok */
    const int32_t *kv_len;    /* [n_seq] positions in the sequence's cache after this step */
    const int32_t *out_row;   /* [n_out] rows whose logits are computed, increasing */
    /* [n_tok] first and last row of each row's sequence, and its token type, for models that attend to both sides, whose
     * sequences are whole; NULL in others. */
    const int32_t *first, *last, *type;
} ht_batch;

/* Pages of one cache layer of one sequence. A growing layer (ring_pages == 0) keeps every page: position p is in
 * pages[p / 256]. A ring of ring_pages pages, for sliding-window attention, has position p in
 * pages[(p / 256) % ring_pages].
 *
 * A layer of states (shape.state > 0) has two pages. pages[0] is the state after the cache's positions; a step writes the
 * state after its own rows to pages[1], and once it has succeeded the two are swapped. A state holds the convolution's
 * last inputs [taps - 1][channels], the latest one last, then that of the scan [heads][key_dim][value_dim]; it begins as
 * zeros. */
typedef struct ht_kv_layer {
    ht_kv_shape shape;
    int64_t window;     /* keys that a row attends to at most, its own included; 0: all */
    bool chunked;       /* those of its chunk of `window` positions, not the last ones (device/window.h) */
    int64_t ring_pages; /* 0: growing */
    int64_t n_pages;    /* pages allocated so far */
    ht_kv_page **pages;
} ht_kv_layer;

/* KV cache of one sequence, in host memory. `length` is the number of committed positions and advances only after a
 * step has succeeded. A step writes positions length .. kv_len - 1, whose pages must already exist and be unshared. */
typedef struct ht_cache {
    int32_t n_layers;
    ht_kv_layer *layer;
    int64_t length;
    bool is_long;                 /* of a long sequence (models/model.h) */
    struct ht_cache_owner *owner; /* allocator of the pages; unused by kernels */
} ht_cache;

/* Rows of logits [n_rows, n]: of all tokens or, with `id` [n_rows, n], of some, each row in increasing order of id. */
typedef struct ht_logits_rows {
    const float *x;
    const int32_t *id; /* NULL: of token 0, 1, ... */
    int64_t n_rows, n;
} ht_logits_rows;

typedef struct ht_step {
    const ht_batch *batch;
    ht_cache *const *kv; /* [n_seq] */
    /* [n_seq] adapters of each sequence, for plans with LORA operations; an entry that is NULL: none. NULL: none at all. */
    const ht_lora_set *const *lora;
    float *output; /* memory for the plan's output; NULL: the executor's arena */
    /* Only the top_k highest logits of each row, and logits equal to the lowest of these, are needed; others may be
     * HT_MASKED_LOGIT (device/matrix.h). 0: all logits. */
    int32_t top_k;
} ht_step;

/* Index in l->pages of the page that holds position `pos`. */
static inline int64_t ht_kv_page_of(const ht_kv_layer *l, int64_t pos) {
    int64_t page = pos / HT_KV_PAGE;
    return l->ring_pages ? page % l->ring_pages : page;
}

/* The state of a sequence before a step's rows, and after them. */
static inline const float *ht_state_before(const ht_kv_layer *l) { return l->pages[0]->data; }
static inline float *ht_state_after(const ht_kv_layer *l) { return l->pages[1]->data; }

/* First position that a row at position `pos` attends to. */
static inline int64_t ht_kv_first_visible(const ht_kv_layer *l, int64_t pos) {
    return ht_first_visible(l->window, l->chunked, pos);
}

#endif
