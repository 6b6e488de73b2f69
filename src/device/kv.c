#include "device/kv.h"

#include "base/checked.h"
#include "base/error.h"
#include "device/device.h"

#include <stdlib.h>

size_t ht_kv_saved_page_bytes(const ht_kv_shape *s) {
    size_t vector, bytes;
    if (s->state) return ht_mul_size((size_t)s->state, sizeof(float), &bytes) ? bytes : SIZE_MAX;
    bool fits = ht_mul_size((size_t)s->head_dim, ht_dtype_bytes(s->dtype), &vector);
    if (s->dtype == HT_I8) fits = fits && ht_add_size(vector, (size_t)ht_kv_blocks(s->head_dim) * 2, &vector);
    fits = fits && ht_mul_size((size_t)s->n_kv_heads, vector, &bytes) &&
           ht_mul_size(bytes, ht_kv_parts(s) * HT_KV_PAGE, &bytes);
    return fits ? bytes : SIZE_MAX;
}

void ht_kv_page_count(ht_device *d, const ht_kv_shape *shape, ht_kv_page *page, ht_kv_account *account) {
    page->account = account;
    if (account) atomic_fetch_add_explicit(&account->bytes, d->kv->page_bytes(shape), memory_order_relaxed);
}

ht_status ht_kv_page_alloc(ht_device *d, const ht_kv_shape *shape, ht_kv_account *account, ht_kv_page **out,
                           ht_error *err) {
    const size_t bytes = d->kv->page_bytes(shape);
    *out = NULL;
    ht_kv_page *page = malloc(sizeof *page);
    if (!page) return ht_fail_memory(err, sizeof *page, "a page of the KV cache");
    ht_status status = ht_memory_alloc(d->memory, bytes, "a page of the KV cache", &page->data, err);
    if (status) {
        free(page);
        return status;
    }
    atomic_init(&page->refs, 1);
    ht_kv_page_count(d, shape, page, account);
    *out = page;
    return HT_OK;
}

/* A page with the contents of `from`; NULL: zeros. */
static ht_status new_page(ht_device *d, const ht_kv_shape *shape, const ht_kv_page *from, ht_kv_account *account,
                          ht_kv_page **out, ht_error *err) {
    const size_t bytes = d->kv->page_bytes(shape);
    ht_status status = ht_kv_page_alloc(d, shape, account, out, err);
    if (status) return status;
    status = from ? ht_memory_copy(d->memory, (*out)->data, from->data, bytes, err)
                  : ht_memory_fill(d->memory, (*out)->data, 0, bytes, err);
    if (status) {
        ht_kv_page_release(d, shape, *out);
        *out = NULL;
    }
    return status;
}

ht_status ht_kv_page_new(ht_device *d, const ht_kv_shape *shape, ht_kv_account *account, ht_kv_page **out,
                         ht_error *err) {
    return new_page(d, shape, NULL, account, out, err);
}

ht_status ht_kv_page_copy(ht_device *d, const ht_kv_shape *shape, const ht_kv_page *page, ht_kv_account *account,
                          ht_kv_page **out, ht_error *err) {
    return new_page(d, shape, page, account, out, err);
}

ht_kv_page *ht_kv_page_retain(ht_kv_page *page) {
    atomic_fetch_add_explicit(&page->refs, 1, memory_order_relaxed);
    return page;
}

void ht_kv_page_release(ht_device *d, const ht_kv_shape *shape, ht_kv_page *page) {
    if (!page || atomic_fetch_sub_explicit(&page->refs, 1, memory_order_acq_rel) != 1) return;
    const size_t bytes = d->kv->page_bytes(shape);
    if (page->account) atomic_fetch_sub_explicit(&page->account->bytes, bytes, memory_order_relaxed);
    ht_memory_free(d->memory, page->data, bytes);
    free(page);
}
