/* KV pages on a GPU: their layout (cuda/page.h), and conversion from and to saved positions on the host. */
#include "cuda/page.h"

#include "base/checked.h"
#include "base/dtype.h"
#include "base/error.h"
#include "cuda/cuda.h"

#include <stdlib.h>
#include <string.h>

_Static_assert((int)HT_CUDA_KEYS == (int)HT_KV_PAGE && (int)HT_CUDA_QUANTISED == (int)HT_KV_QBLOCK,
               "one form of pages");

ht_cuda_page_form ht_cuda_page_form_of(const ht_kv_shape *s) {
    ht_cuda_page_form f = {
        .dtype = s->dtype, .n_kv_heads = s->n_kv_heads, .head_dim = s->head_dim, .keys_only = s->keys_only};
    f.chunk = s->dtype == HT_F32 ? 4 : 8;
    f.chunk_bytes = f.chunk * (int32_t)ht_dtype_bytes(s->dtype);
    f.chunks = (s->head_dim + f.chunk - 1) / f.chunk;
    f.blocks = s->dtype == HT_I8 ? (int32_t)ht_kv_blocks(s->head_dim) : 0;
    f.head_bytes = (int64_t)f.chunks * f.chunk_bytes * HT_CUDA_KEYS;
    const int64_t part = f.head_bytes * s->n_kv_heads;
    f.k_scale = part * (int64_t)ht_kv_parts(s);
    if (s->keys_only) {
        f.v_scale = f.k_scale;
        f.v_key = f.chunk_bytes;
        f.v_chunk = HT_CUDA_KEYS * f.chunk_bytes;
        f.v_scale_key = 1;
        f.v_scale_block = HT_CUDA_KEYS;
        return f;
    }
    f.v = part;
    f.v_scale = f.k_scale + (int64_t)2 * HT_CUDA_KEYS * f.blocks * s->n_kv_heads;
    f.v_key = f.chunks * f.chunk_bytes;
    f.v_chunk = f.chunk_bytes;
    f.v_scale_key = f.blocks;
    f.v_scale_block = 1;
    return f;
}

static size_t page_bytes(const ht_kv_shape *s) {
    if (s->state) return ht_kv_saved_page_bytes(s);
    const ht_cuda_page_form f = ht_cuda_page_form_of(s);
    const size_t vector = (size_t)f.chunks * (size_t)f.chunk_bytes + 2 * (size_t)f.blocks;
    size_t bytes;
    return ht_mul_size((size_t)s->n_kv_heads, vector, &bytes) && ht_mul_size(bytes, ht_kv_parts(s) * HT_KV_PAGE, &bytes)
               ? bytes
               : SIZE_MAX;
}

/* Moves one vector of a page in host memory; returns the end of its saved form. */
static char *move_vector(const ht_cuda_page_form *f, char *page, bool keys, int64_t head, int64_t key, char *saved,
                         bool save) {
    const size_t element = (size_t)(f->chunk_bytes / f->chunk);
    for (int32_t c = 0; c < f->chunks; c++) {
        char *chunk = page + (keys ? ht_cuda_k_chunk(f, head, key, c) : ht_cuda_v_chunk(f, head, key, c));
        const size_t n = (size_t)ht_min_i64(f->chunk, f->head_dim - c * f->chunk) * element;
        if (!save) memset(chunk, 0, (size_t)f->chunk_bytes);
        memcpy(save ? saved : chunk, save ? chunk : saved, n);
        saved += n;
    }
    for (int32_t b = 0; b < f->blocks; b++, saved += 2) {
        char *scale = page + (keys ? ht_cuda_k_scale(f, head, key, b) : ht_cuda_v_scale(f, head, key, b));
        memcpy(save ? saved : scale, save ? scale : saved, 2);
    }
    return saved;
}

/* Positions of a page to their saved form, or from it. */
static ht_status move_positions(ht_device *d, const ht_kv_shape *s, const ht_kv_page *page, int64_t first, int64_t n,
                                char *saved, bool save, ht_error *err) {
    const ht_cuda_page_form f = ht_cuda_page_form_of(s);
    const size_t bytes = page_bytes(s);
    char *copy = malloc(bytes);
    if (!copy) return ht_fail_memory(err, bytes, "a page of the KV cache");
    ht_status status = save || n < HT_KV_PAGE ? ht_memory_read(d->memory, copy, page->data, bytes, err) : HT_OK;
    for (int64_t key = first; key < first + n && !status; key++)
        for (int keys = 1; keys >= (f.keys_only ? 1 : 0); keys--)
            for (int64_t head = 0; head < s->n_kv_heads; head++)
                saved = move_vector(&f, copy, keys, head, key, saved, save);
    if (!save && !status) status = ht_memory_write(d->memory, page->data, copy, bytes, err);
    free(copy);
    return status;
}

static ht_status read_positions(ht_device *d, const ht_kv_shape *shape, const ht_kv_page *page, int64_t first,
                                int64_t n, void *out, ht_error *err) {
    if (shape->state) return ht_memory_read(d->memory, out, page->data, page_bytes(shape), err);
    return move_positions(d, shape, page, first, n, out, true, err);
}

static ht_status write_positions(ht_device *d, const ht_kv_shape *shape, ht_kv_page *page, int64_t first, int64_t n,
                                 const void *from, ht_error *err) {
    if (shape->state) return ht_memory_write(d->memory, page->data, from, page_bytes(shape), err);
    return move_positions(d, shape, page, first, n, (char *)(uintptr_t)from, false, err);
}

const ht_kv_ops ht_cuda_kv = {page_bytes, read_positions, write_positions, .keys_only = true};
