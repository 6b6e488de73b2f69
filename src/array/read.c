/* Host transfer: arrays made from memory, and their values read back. */
#include "array/array.h"
#include "array/load.h"
#include "base/checked.h"
#include "base/error.h"

#include <hearth/ops.h>

#include <stdlib.h>
#include <string.h>

static bool shape_is_sound(ht_scope *s, ht_dtype dtype, const int64_t *shape, int n_dims, size_t *bytes) {
    char text[HT_SHAPE_TEXT];
    int64_t size;
    if (ht_dtype_bytes(dtype) == 0)
        ht_scope_fail(s, HT_ERR_ARGUMENT, "%d is no dtype", (int)dtype);
    else if (n_dims < 0 || n_dims > HT_MAX_DIMS)
        ht_scope_fail(s, HT_ERR_ARGUMENT, "a %d-dimensional array was asked for, expected 0 to %d", n_dims,
                      HT_MAX_DIMS);
    else if (!ht_shape_size(shape, n_dims, &size) || !ht_mul_size((size_t)size, ht_dtype_bytes(dtype), bytes))
        ht_scope_fail(s, HT_ERR_ARGUMENT, "shape %s is negative or too large", ht_shape_text(shape, n_dims, text));
    else
        return true;
    return false;
}

static ht_array *leaf(ht_scope *s, ht_buffer *b, ht_dtype dtype, const int64_t *shape, int n_dims) {
    ht_array *a = ht_array_new(s, HT_OP_LEAF, NULL, 0);
    if (!a) return NULL;
    ht_array_set_contiguous(a, dtype, shape, n_dims);
    a->buffer = b;
    atomic_store_explicit(&a->state, HT_READY, memory_order_release);
    atomic_store_explicit(&a->at_rest, true, memory_order_release);
    return a;
}

/* A leaf of the scope's device with an uninitialised buffer. */
static ht_array *empty_leaf(ht_scope *s, ht_dtype dtype, const int64_t *shape, int n_dims) {
    size_t bytes;
    ht_error err;
    ht_buffer *b;
    if (!shape_is_sound(s, dtype, shape, n_dims, &bytes)) return NULL;
    if (ht_buffer_new(s->memory, bytes, &b, &err)) return ht_scope_fail_with(s, &err);
    ht_array *a = leaf(s, b, dtype, shape, n_dims);
    if (!a) ht_buffer_release(b);
    return a;
}

ht_array *ht_array_unfilled(ht_scope *s, ht_dtype dtype, const int64_t *shape, int n_dims, void **data) {
    ht_array *a = empty_leaf(s, dtype, shape, n_dims);
    if (!a) return NULL;
    *data = a->buffer->data;
    if (ht_memory_is_host(a->memory)) return a;
    ht_error err;
    if (ht_memory_alloc(ht_memory_of_host(), a->buffer->bytes, "an array on its way to its device", data, &err))
        return ht_scope_fail_with(s, &err);
    atomic_store_explicit(&a->buffer->mirror, *data, memory_order_relaxed);
    return a;
}

ht_array *ht_array_filled(ht_scope *s, ht_array *a) {
    ht_error err;
    if (!a || ht_memory_is_host(a->memory)) return a;
    ht_buffer *b = a->buffer;
    if (ht_memory_write(b->memory, b->data, atomic_load_explicit(&b->mirror, memory_order_relaxed), b->bytes, &err))
        return ht_scope_fail_with(s, &err);
    ht_buffer_begin_writing(b);
    return a;
}

ht_array *ht_array_from(ht_scope *s, const void *values, ht_dtype dtype, const int64_t *shape, int n_dims) {
    ht_error err;
    ht_array *a = empty_leaf(s, dtype, shape, n_dims);
    if (a && ht_memory_write(a->memory, a->buffer->data, values, a->buffer->bytes, &err))
        return ht_scope_fail_with(s, &err);
    return a;
}

ht_array *ht_array_wrap(ht_scope *s, const void *values, ht_dtype dtype, const int64_t *shape, int n_dims,
                        void (*release)(void *user), void *user) {
    size_t bytes;
    if (!ht_memory_is_host(s->memory)) {
        ht_array *copy = ht_array_from(s, values, dtype, shape, n_dims);
        if (copy && release) release(user);
        return copy;
    }
    if (!shape_is_sound(s, dtype, shape, n_dims, &bytes)) return NULL;
    ht_buffer *b = calloc(1, sizeof *b);
    if (!b) return ht_scope_fail(s, HT_ERR_MEMORY, "out of memory: %zu bytes for a buffer", sizeof *b);
    *b = (ht_buffer){.refs = 1,
                     .memory = ht_memory_of_host(),
                     .data = (void *)(uintptr_t)values,
                     .bytes = bytes,
                     .user = user,
                     .wrapped = true};
    ht_array *a = leaf(s, b, dtype, shape, n_dims);
    if (!a) {
        free(b);
        return NULL;
    }
    b->release = release;
    return a;
}

/* Stores a contiguous copy in the array for later readers, and returns the stored copy. Concurrent readers race; the
 * first store wins. */
static ht_array *keep_copy(ht_array *a, ht_array *copy) {
    ht_array *kept = NULL;
    ht_array_retain(copy);
    atomic_fetch_add_explicit(&copy->graph_refs, 1, memory_order_relaxed);
    if (atomic_compare_exchange_strong_explicit(&a->contiguous, &kept, copy, memory_order_acq_rel,
                                                memory_order_acquire))
        return copy;
    atomic_fetch_sub_explicit(&copy->graph_refs, 1, memory_order_relaxed);
    ht_array_free(copy);
    return kept;
}

/* Evaluates; *out is the array itself, or its contiguous copy. */
static ht_status contiguous_form(ht_scope *s, ht_array *a, ht_array **out, ht_error *err) {
    *out = a;
    ht_status st = ht_array_eval(s, &a, 1, err);
    if (st || ht_array_is_contiguous(a)) return st;
    *out = atomic_load_explicit(&a->contiguous, memory_order_acquire);
    if (*out) return HT_OK;
    ht_array *copy = ht_contiguous(s, a);
    st = ht_array_eval(s, &copy, 1, err);
    /* The copy is detached from its source, which refers to it, or the two would keep each other alive. */
    if (st == HT_OK) st = ht_array_detach(s, copy, err);
    if (st) return st;
    *out = keep_copy(a, copy);
    ht_scope_drop(s, copy);
    return HT_OK;
}

static ht_status lend_elements(ht_array *a, const void **data, ht_error *err) {
    ht_status st = ht_buffer_on_host(ht_storage(a)->buffer, data, err);
    if (st == HT_OK) *data = (const char *)*data + a->offset * (int64_t)ht_dtype_bytes(a->dtype);
    return st;
}

ht_status ht_array_lend(ht_scope *s, ht_array *a, const void **data, ht_error *err) {
    *data = NULL;
    ht_status st = ht_array_eval(s, &a, 1, err);
    return st ? st : lend_elements(a, data, err);
}

ht_status ht_array_data(ht_scope *s, ht_array *a, const void **data, ht_error *err) {
    *data = NULL;
    ht_array *c;
    ht_status st = contiguous_form(s, a, &c, err);
    return st ? st : lend_elements(c, data, err);
}

ht_status ht_array_read(ht_scope *s, ht_array *a, void *out, size_t bytes, ht_error *err) {
    ht_array *c;
    ht_status st = contiguous_form(s, a, &c, err);
    if (st) return st;
    size_t have = (size_t)ht_array_size(a) * ht_dtype_bytes(a->dtype);
    char text[HT_SHAPE_TEXT];
    if (bytes != have)
        return ht_fail(err, HT_ERR_ARGUMENT, "an array %s of %s holds %zu bytes, the buffer given has %zu",
                       ht_shape_text(a->shape, a->n_dims, text), ht_dtype_name(a->dtype), have, bytes);
    const char *data = ht_storage(c)->buffer->data;
    return ht_memory_read(c->memory, out, data + c->offset * (int64_t)ht_dtype_bytes(c->dtype), bytes, err);
}

ht_status ht_array_borrow(ht_scope *s, ht_array *a, const void **data, void **copy, ht_error *err) {
    *data = *copy = NULL;
    const size_t bytes = (size_t)ht_array_size(a) * ht_dtype_bytes(a->dtype);
    if (ht_memory_is_host(a->memory)) return ht_array_data(s, a, data, err);
    if (!(*copy = malloc(bytes + 1))) return ht_fail_memory(err, bytes, "an array read from its device");
    const ht_status st = ht_array_read(s, a, *copy, bytes, err);
    if (st == HT_OK) {
        *data = *copy;
        return HT_OK;
    }
    free(*copy);
    *copy = NULL;
    return st;
}

ht_array *ht_array_to(ht_scope *s, ht_array *a, ht_scope *from) {
    ht_error err = {0};
    const void *data;
    void *copy = NULL;
    if (!a || a == HT_NONE) return a;
    ht_status st = ht_array_eval(from, &a, 1, &err);
    if (st == HT_OK && a->memory == s->memory) return ht_view_node(s, HT_OP_STOP_GRADIENT, &a, 1, 0);
    if (st == HT_OK) st = ht_array_borrow(from, a, &data, &copy, &err);
    if (st) return ht_scope_fail_with(s, &err);
    ht_array *moved = ht_array_from(s, data, a->dtype, a->shape, a->n_dims);
    free(copy);
    return moved;
}
