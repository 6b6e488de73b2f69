/* KV cache size: positions to pages, pages to bytes. */
#ifndef HT_CHECKPOINT_KV_SIZE_H
#define HT_CHECKPOINT_KV_SIZE_H

#include "checkpoint/config.h"
#include "device/kv.h"

/* Keys and values of one layer. */
typedef struct ht_layer_kv {
    ht_kv_shape shape;
    int64_t window; /* in keys; 0: full attention */
    bool chunked;   /* the window restarts at every multiple of `window` (device/window.h) */
} ht_layer_kv;

/* Number of layers with their own K and V; they precede all layers that share. */
int64_t ht_kv_layers(const ht_config *c);
/* Keys and values of layer `layer` < ht_kv_layers. */
ht_layer_kv ht_layer_kv_of(const ht_config *c, int64_t layer, ht_dtype dtype);

/* Pages of a sliding layer's ring: enough for the window of the first row of a `chunk`-row step, window - 1 + chunk
 * adjacent positions at any page offset; a chunked window needs no more. 0: the window never slides within `context`.
 */
int64_t ht_kv_ring_pages(int64_t window, int64_t chunk, int64_t context);
/* Pages of a layer for `positions`; ring = 0: a growing cache. */
int64_t ht_kv_pages(int64_t ring, int64_t positions);
/* Bytes of all layers' pages of a dtype for `positions`, in a device's form or as saved; SIZE_MAX on overflow. */
typedef size_t ht_kv_page_bytes_fn(const ht_kv_shape *shape);
size_t ht_kv_bytes(const ht_layer_kv *kv, int32_t n_kv_layers, ht_dtype dtype, ht_kv_page_bytes_fn *page_bytes,
                   int64_t positions, int64_t chunk, int64_t context);

#endif
