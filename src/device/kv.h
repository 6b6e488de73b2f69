/* KV cache pages: the keys and values of 256 positions of one layer of one sequence, in a device's own form, counted so that
 * sequences can share them. */
#ifndef HT_DEVICE_KV_H
#define HT_DEVICE_KV_H

#include <hearth/dtype.h>
#include <hearth/status.h>

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct ht_device;

enum {
    HT_KV_PAGE = 256, /* positions per page */
    HT_KV_QBLOCK = 32 /* dimensions that share a scale in 8-bit pages */
};

/* What a page holds: keys and values of n_kv_heads heads of head_dim dimensions, HT_F16, HT_BF16, HT_F32, or HT_I8 (8 bits
 * with a bf16 scale for every 32 dimensions of a vector; the last may be of fewer). A value is then scale * q, exact in f32.
 * The scale is max |x| / 127 rounded up; q is x / scale rounded to nearest. A denormal scale is flushed to 0; a block with a
 * NaN or an infinity has a NaN scale. */
typedef struct ht_kv_shape {
    int32_t n_kv_heads, head_dim;
    ht_dtype dtype;
} ht_kv_shape;

/* Counts what pages take, each once however many hold it. It has to outlive its pages. */
typedef struct ht_kv_account {
    _Atomic size_t bytes;
} ht_kv_account;

typedef struct ht_kv_page {
    _Atomic int refs;
    void *data;             /* memory of the device, 64-byte aligned */
    ht_kv_account *account; /* NULL: none */
} ht_kv_page;

/* The form of a device's pages. Kernels append to them and read them (ATTEND); everybody else goes through these.
 *
 * Saved positions are independent of the device: for every position its keys, head by head, then its values; a vector is
 * head_dim elements of the dtype, of 8 bits followed by its scales. */
typedef struct ht_kv_ops {
    size_t (*page_bytes)(const ht_kv_shape *shape); /* SIZE_MAX when that is no size */
    /* Positions [first, first + n) of a page to and from host memory, ht_kv_saved_bytes for each. In the order of the
     * device's queue; `read` waits. */
    ht_status (*read)(struct ht_device *d, const ht_kv_shape *shape, const ht_kv_page *page, int64_t first, int64_t n,
                      void *out, ht_error *err);
    ht_status (*write)(struct ht_device *d, const ht_kv_shape *shape, ht_kv_page *page, int64_t first, int64_t n,
                       const void *from, ht_error *err);
} ht_kv_ops;

/* Scales of a vector of head_dim in 8 bits. */
static inline int64_t ht_kv_blocks(int64_t head_dim) { return (head_dim + HT_KV_QBLOCK - 1) / HT_KV_QBLOCK; }
/* Bytes of a saved vector. */
static inline size_t ht_kv_vector_bytes(const ht_kv_shape *s) {
    const size_t scales = s->dtype == HT_I8 ? 2 * (size_t)ht_kv_blocks(s->head_dim) : 0;
    return (size_t)s->head_dim * ht_dtype_bytes(s->dtype) + scales;
}
/* Bytes of a saved position. */
static inline size_t ht_kv_saved_bytes(const ht_kv_shape *s) {
    return 2 * (size_t)s->n_kv_heads * ht_kv_vector_bytes(s);
}

/* Bytes of a saved page; SIZE_MAX when that is no size. */
size_t ht_kv_saved_page_bytes(const ht_kv_shape *shape);

/* ---- pages, of any device (device/kv.c) ---- */

/* A page of zeros with one reference: what a kernel reads beside the keys it was asked for must at least be numbers.
 * `account` counts it; NULL: nobody does. */
ht_status ht_kv_page_new(struct ht_device *d, const ht_kv_shape *shape, ht_kv_account *account, ht_kv_page **out,
                         ht_error *err);
ht_kv_page *ht_kv_page_retain(ht_kv_page *page);
/* Has a page counted that nobody counts yet; for its only holder. */
void ht_kv_page_count(struct ht_device *d, const ht_kv_shape *shape, ht_kv_page *page, ht_kv_account *account);
/* Gives a reference back; the last one frees the page. NULL is fine. */
void ht_kv_page_release(struct ht_device *d, const ht_kv_shape *shape, ht_kv_page *page);
/* Whether others hold the page, which must not be written to then. */
static inline bool ht_kv_page_is_shared(const ht_kv_page *page) {
    return atomic_load_explicit(&page->refs, memory_order_acquire) > 1;
}
/* A page of its own with the contents of another. */
ht_status ht_kv_page_copy(struct ht_device *d, const ht_kv_shape *shape, const ht_kv_page *page, ht_kv_account *account,
                          ht_kv_page **out, ht_error *err);

#endif
