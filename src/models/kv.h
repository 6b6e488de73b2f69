/* KV cache memory: positions to pages, and pages to bytes. */
#ifndef HT_MODELS_KV_H
#define HT_MODELS_KV_H

#include "models/config.h"
#include "models/model.h"

/* Rows of a prefill step unless a session says otherwise. */
enum { HT_KV_CHUNK = 512 };

/* How many layers keep keys and values: the first ones, as those that share come last. */
int64_t ht_kv_layers(const ht_config *c);
/* What layer `layer` of them keeps. */
ht_kv_shape ht_kv_shape_of(const ht_config *c, int64_t layer);

/* Pages of a ring in which a step of `chunk` rows may be written while its first row still sees its whole window: the
 * window - 1 + chunk adjacent positions lie in at most this many pages. 0 for a window that never slides. */
int64_t ht_kv_ring_pages(int64_t window, int64_t chunk, int64_t context);
/* Pages for `positions` in a layer with a ring of `ring` pages, or with none (0). */
int64_t ht_kv_pages(int64_t ring, int64_t positions);
/* Bytes of one page of a layer; SIZE_MAX when that is no size. */
size_t ht_kv_page_bytes(const ht_kv_shape *kv, ht_dtype dtype);
/* Bytes of all pages of `positions` in all layers; SIZE_MAX when that is no size. */
size_t ht_kv_bytes(const ht_kv_shape *kv, int32_t n_kv_layers, ht_dtype dtype, int64_t positions, int64_t chunk,
                   int64_t context);

#endif
