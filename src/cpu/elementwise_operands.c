/* Elementwise operands (elementwise_job.h): contiguous ones are used in place, others are gathered block by block. */
#include "base/checked.h"
#include "cpu/elementwise_job.h"

#include <string.h>

/* A constant stride lets the compiler vectorise the loop. */
#define GATHER(type, name)                                                                                             \
    static void name(type *to, const type *from, int64_t stride, int64_t n) {                                          \
        if (stride == 2)                                                                                               \
            for (int64_t i = 0; i < n; i++) to[i] = from[2 * i];                                                       \
        else                                                                                                           \
            for (int64_t i = 0; i < n; i++) to[i] = from[i * stride];                                                  \
    }
GATHER(uint8_t, gather1)
GATHER(uint16_t, gather2)
GATHER(uint32_t, gather4)
GATHER(uint64_t, gather8)

/* Fills `to` with n copies of one element. */
static void fill(char *to, const char *from, int64_t n, size_t bytes) {
    switch (bytes) {
    case 1: memset(to, *from, (size_t)n); break;
    case 2: gather2((uint16_t *)(void *)to, (const uint16_t *)(const void *)from, 0, n); break;
    case 4: gather4((uint32_t *)(void *)to, (const uint32_t *)(const void *)from, 0, n); break;
    default: gather8((uint64_t *)(void *)to, (const uint64_t *)(const void *)from, 0, n);
    }
}

void ht_gather_elements(char *to, const char *from, int64_t stride, int64_t n, size_t bytes) {
    if (stride == 0) {
        fill(to, from, n, bytes);
        return;
    }
    if (stride == 1) {
        memcpy(to, from, (size_t)n * bytes);
        return;
    }
    switch (bytes) {
    case 1: gather1((uint8_t *)(void *)to, (const uint8_t *)(const void *)from, stride, n); break;
    case 2: gather2((uint16_t *)(void *)to, (const uint16_t *)(const void *)from, stride, n); break;
    case 4: gather4((uint32_t *)(void *)to, (const uint32_t *)(const void *)from, stride, n); break;
    default: gather8((uint64_t *)(void *)to, (const uint64_t *)(const void *)from, stride, n);
    }
}

/* ---- layout ---- */

/* Least row length for which blocks end at the ends of rows. */
enum { MIN_ROW_BLOCK = 192 };

static bool same_layout(const ht_view *v, const ht_view *out) {
    for (int d = 0; d < out->n_dims; d++)
        if (out->shape[d] != 1 && v->stride[d] != out->stride[d]) return false;
    return true;
}

static bool is_scalar(const ht_view *v, const ht_view *out) {
    for (int d = 0; d < out->n_dims; d++)
        if (out->shape[d] != 1 && v->stride[d] != 0) return false;
    return true;
}

static bool mergeable(const elementwise_job *j, int outer, int inner) {
    for (int k = 0; k < j->p->n_in; k++)
        if (j->in[k].access == OPERAND_STRIDED && j->in[k].stride[outer] != j->in[k].stride[inner] * j->shape[inner])
            return false;
    return true;
}

/* Merges adjacent axes that are contiguous in every strided operand. */
static void merge_axes(elementwise_job *j, const ht_view *in, const ht_view *out) {
    int d = 0;
    for (int axis = 0; axis < out->n_dims; axis++) {
        if (out->shape[axis] == 1) continue;
        j->shape[d] = out->shape[axis];
        for (int k = 0; k < j->p->n_in; k++) j->in[k].stride[d] = in[k].stride[axis];
        if (d > 0 && mergeable(j, d - 1, d)) {
            j->shape[d - 1] *= j->shape[d];
            for (int k = 0; k < j->p->n_in; k++) j->in[k].stride[d - 1] = j->in[k].stride[d];
        } else
            d++;
    }
    j->n_dims = d;
}

void ht_elementwise_layout_operands(elementwise_job *j, const ht_view *in, const ht_view *out) {
    bool any_strided = false;
    for (int k = 0; k < j->p->n_in; k++) {
        elementwise_operand *s = &j->in[k];
        s->data = in[k].data;
        s->bytes = (int64_t)ht_dtype_bytes(in[k].dtype);
        s->access = same_layout(&in[k], out) ? OPERAND_SAME_LAYOUT
                    : is_scalar(&in[k], out) ? OPERAND_SCALAR
                                             : OPERAND_STRIDED;
        any_strided |= s->access == OPERAND_STRIDED;
    }
    j->n_dims = 0;
    j->by_rows = false;
    if (!any_strided) return;
    merge_axes(j, in, out);
    j->by_rows = j->shape[j->n_dims - 1] >= MIN_ROW_BLOCK;
}

/* ---- blocks ---- */

static int64_t offset_of(const elementwise_job *j, const elementwise_operand *s, const int64_t *index) {
    int64_t offset = 0;
    for (int d = 0; d < j->n_dims; d++) offset += index[d] * s->stride[d];
    return offset;
}

/* Gathers n elements from index `from` on, across row ends. */
static void gather_rows(const elementwise_job *j, const elementwise_operand *s, const int64_t *from, char *to,
                        int64_t n) {
    int64_t index[HT_MAX_DIMS], offset = offset_of(j, s, from);
    const int last = j->n_dims - 1;
    memcpy(index, from, (size_t)j->n_dims * sizeof *index);
    while (n > 0) {
        const int64_t run = ht_min_i64(n, j->shape[last] - index[last]);
        ht_gather_elements(to, s->data + offset * s->bytes, s->stride[last], run, (size_t)s->bytes);
        to += run * s->bytes;
        n -= run;
        offset -= index[last] * s->stride[last];
        index[last] = 0;
        for (int d = last - 1; d >= 0; d--) {
            offset += s->stride[d];
            if (++index[d] < j->shape[d]) break;
            offset -= index[d] * s->stride[d];
            index[d] = 0;
        }
    }
}

void ht_elementwise_find_index(const elementwise_job *j, elementwise_block *b) {
    int64_t at = b->at;
    for (int d = j->n_dims - 1; d >= 0; d--) {
        b->index[d] = at % j->shape[d];
        at /= j->shape[d];
    }
}

const void *ht_elementwise_operand(const elementwise_job *j, int k, const elementwise_block *b,
                                   elementwise_scratch *r) {
    const elementwise_operand *s = &j->in[k];
    const int last = j->n_dims - 1;
    if (s->access == OPERAND_SAME_LAYOUT) return s->data + b->at * s->bytes;
    if (s->access == OPERAND_SCALAR) return r->staged[k];
    const bool in_row = b->index[last] + b->n <= j->shape[last];
    if (in_row && s->stride[last] == 1) return s->data + offset_of(j, s, b->index) * s->bytes;
    gather_rows(j, s, b->index, r->staged[k], b->n);
    return r->staged[k];
}

void ht_elementwise_fill_scalars(const elementwise_job *j, int64_t n, elementwise_scratch *r) {
    for (int k = 0; k < j->p->n_in; k++)
        if (j->in[k].access == OPERAND_SCALAR) fill(r->staged[k], j->in[k].data, n, (size_t)j->in[k].bytes);
}
