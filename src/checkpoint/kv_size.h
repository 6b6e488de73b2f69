/* Cache layers of a model, and the cache's size: positions to pages, pages to bytes. */
#ifndef HT_CHECKPOINT_KV_SIZE_H
#define HT_CHECKPOINT_KV_SIZE_H

#include "checkpoint/config.h"
#include "device/kv.h"

/* Keys and values of one layer, or its state. */
typedef struct ht_layer_kv {
    ht_kv_shape shape;
    int64_t window; /* in keys; 0: full attention */
    bool chunked;   /* the window restarts at every multiple of `window` (device/window.h) */
} ht_layer_kv;

/* Number of layers before the first that shares K and V of an earlier one; all later layers share, too. */
int64_t ht_unshared_layers(const ht_config *c);

/* The cache's layers: for each layer of the model in order, its K and V if it keeps any, then its state, if
 * any. Their number; and the index of the K and V, or of the state, of layer `layer`. */
int64_t ht_cache_layers(const ht_config *c);
int64_t ht_cache_layer_of(const ht_config *c, int64_t layer, bool of_state);
/* Keys and values of a dtype, or the state, of cache layer `index`. */
ht_layer_kv ht_layer_kv_of(const ht_config *c, int64_t index, ht_dtype dtype);

/* Pages of a sliding layer's ring: enough for the window of the first row of a `chunk`-row step, window - 1 + chunk
 * adjacent positions at any page offset; a chunked window needs no more. 0: the window never slides within `context`.
 */
int64_t ht_kv_ring_pages(int64_t window, int64_t chunk, int64_t context);
/* Pages of a layer of keys and values for `positions`; ring = 0: a growing cache. */
int64_t ht_kv_pages(int64_t ring, int64_t positions);
/* Pages of a layer of states: before a step and after it, and with the snapshots of a sequence of `positions`, which are
 * at page ends and at the last message's end (generate/snapshots.h). */
enum { HT_STATE_COPIES = 2 };
int64_t ht_state_pages(int64_t positions);
/* Bytes of all layers' pages of a dtype for `positions`, in a device's form or as saved; SIZE_MAX on overflow. */
typedef size_t ht_kv_page_bytes_fn(const ht_kv_shape *shape);
size_t ht_kv_bytes(const ht_layer_kv *kv, int32_t n_cache_layers, ht_dtype dtype, ht_kv_page_bytes_fn *page_bytes,
                   int64_t positions, int64_t chunk, int64_t context);

#endif
