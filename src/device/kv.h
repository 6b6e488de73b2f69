/* Cache pages: keys and values of 256 positions of one layer of one sequence, in the device's layout, or the state of a
 * recurrent layer; reference-counted so that sequences can share them. */
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

/* Contents of a page: keys and values of n_kv_heads heads of head_dim dimensions, as HT_F16, HT_BF16, HT_F32 or HT_I8.
 * HT_I8 has 8 bits per element and a bf16 scale per 32 dimensions of a vector; the last block may be shorter. A value
 * is then scale * q, exact in f32. The scale is max |x| / 127 rounded up; q is x / scale rounded to nearest. A denormal
 * scale is flushed to 0; a block with a NaN or an infinity has a NaN scale. */
typedef struct ht_kv_shape {
    int32_t n_kv_heads, head_dim;
    ht_dtype dtype;
    bool keys_only; /* values are the first elements of the keys, and pages hold keys alone */
    int64_t state;  /* f32 values of a recurrent layer's state, which pages hold instead; 0: keys and values */
} ht_kv_shape;

/* Bytes of pages; a shared page counts once. Must outlive its pages. */
typedef struct ht_kv_account {
    _Atomic size_t bytes;
} ht_kv_account;

typedef struct ht_kv_page {
    _Atomic int refs;
    void *data;             /* memory of the device, 64-byte aligned */
    ht_kv_account *account; /* NULL: none */
} ht_kv_page;

/* Page layout of a device. Kernels append to pages and read them (ATTEND); all other code calls these functions.
 *
 * Saved positions are independent of the device: for every position its keys, head by head, then its values, unless
 * the pages hold keys alone. A vector is head_dim elements of the dtype; 8-bit elements are followed by their scales.
 * A page of a state is saved as it is, as one position. */
typedef struct ht_kv_ops {
    size_t (*page_bytes)(const ht_kv_shape *shape); /* SIZE_MAX on overflow */
    /* Copy positions [first, first + n) of a page to and from host memory, ht_kv_saved_bytes for each, in the order of
     * the device's queue. `read` waits. */
    ht_status (*read)(struct ht_device *d, const ht_kv_shape *shape, const ht_kv_page *page, int64_t first, int64_t n,
                      void *out, ht_error *err);
    ht_status (*write)(struct ht_device *d, const ht_kv_shape *shape, ht_kv_page *page, int64_t first, int64_t n,
                       const void *from, ht_error *err);
    bool keys_only; /* whether ATTEND supports pages of keys alone */
} ht_kv_ops;

/* Number of scales of a vector of head_dim 8-bit elements. */
static inline int64_t ht_kv_blocks(int64_t head_dim) { return (head_dim + HT_KV_QBLOCK - 1) / HT_KV_QBLOCK; }
/* Bytes of a saved vector. */
static inline size_t ht_kv_vector_bytes(const ht_kv_shape *s) {
    const size_t scales = s->dtype == HT_I8 ? 2 * (size_t)ht_kv_blocks(s->head_dim) : 0;
    return (size_t)s->head_dim * ht_dtype_bytes(s->dtype) + scales;
}
/* Parts of a page: keys and values, or keys alone. */
static inline size_t ht_kv_parts(const ht_kv_shape *s) { return s->keys_only ? 1 : 2; }
/* Bytes of a saved position. */
static inline size_t ht_kv_saved_bytes(const ht_kv_shape *s) {
    return s->state ? (size_t)s->state * sizeof(float) : ht_kv_parts(s) * (size_t)s->n_kv_heads * ht_kv_vector_bytes(s);
}

/* Bytes of a saved page; SIZE_MAX on overflow. */
size_t ht_kv_saved_page_bytes(const ht_kv_shape *shape);

/* ---- pages, of any device (device/kv.c) ---- */

/* A zeroed page with one reference: kernels may read keys outside the requested range, and these must be numbers.
 * `account` counts the page; NULL: not counted. */
ht_status ht_kv_page_new(struct ht_device *d, const ht_kv_shape *shape, ht_kv_account *account, ht_kv_page **out,
                         ht_error *err);
/* The same with undefined contents, for a state that will be written as a whole. */
ht_status ht_kv_page_alloc(struct ht_device *d, const ht_kv_shape *shape, ht_kv_account *account, ht_kv_page **out,
                           ht_error *err);
ht_kv_page *ht_kv_page_retain(ht_kv_page *page);
/* Adds an uncounted page to `account`. The caller must hold the only reference. */
void ht_kv_page_count(struct ht_device *d, const ht_kv_shape *shape, ht_kv_page *page, ht_kv_account *account);
/* Releases a reference; the last one frees the page. NULL is allowed. */
void ht_kv_page_release(struct ht_device *d, const ht_kv_shape *shape, ht_kv_page *page);
/* Whether the page has other references; it must not be written then. */
static inline bool ht_kv_page_is_shared(const ht_kv_page *page) {
    return atomic_load_explicit(&page->refs, memory_order_acquire) > 1;
}
/* An unshared copy of a page. */
ht_status ht_kv_page_copy(struct ht_device *d, const ht_kv_shape *shape, const ht_kv_page *page, ht_kv_account *account,
                          ht_kv_page **out, ht_error *err);

#endif
