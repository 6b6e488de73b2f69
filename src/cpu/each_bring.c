/* Brings operands that do not lie one element after the other into blocks of their own. */
#include "base/checked.h"
#include "cpu/each_job.h"

#include <string.h>

/* A distance that compilers know becomes vectors. */
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

/* n elements from a place on, across the ends of rows. */
static void gather_rows(const each_job *j, const each_source *s, const each_place *from, char *to, int64_t n) {
    each_place p = *from;
    int last = j->n_dims - 1;
    int64_t offset = each_offset(j, s, &p);
    while (n > 0) {
        int64_t run = ht_min_i64(n, j->shape[last] - p.index[last]);
        ht_gather_elements(to, s->data + offset * s->bytes, s->stride[last], run, (size_t)s->bytes);
        to += run * s->bytes;
        n -= run;
        offset -= p.index[last] * s->stride[last];
        p.index[last] = 0;
        for (int d = last - 1; d >= 0; d--) {
            offset += s->stride[d];
            if (++p.index[d] < j->shape[d]) break;
            offset -= p.index[d] * s->stride[d];
            p.index[d] = 0;
        }
    }
}

void ht_each_find_place(const each_job *j, int64_t at, each_place *p) {
    for (int d = j->n_dims - 1; d >= 0; d--) {
        p->index[d] = at % j->shape[d];
        at /= j->shape[d];
    }
}

const void *ht_each_bring(const each_job *j, int k, const each_block *b, each_room *r) {
    const each_source *s = &j->in[k];
    const each_place *p = &b->where;
    const int64_t n = each_is_still(j, k) ? ht_min_i64(b->n, j->block) : b->n;
    if (s->how == WHOLE) return s->data + b->at * s->bytes;
    if (s->how == SCALAR) return r->staged[k];
    if (s->how == TURNED) return r->tiles + s->room + b->in_tile * s->bytes;
    if (p->index[j->n_dims - 1] + n > j->shape[j->n_dims - 1])
        gather_rows(j, s, p, r->staged[k], n);
    else {
        const char *from = s->data + each_offset(j, s, p) * s->bytes;
        int64_t stride = s->stride[j->n_dims - 1];
        if (stride == 1) return from;
        ht_gather_elements(r->staged[k], from, stride, n, (size_t)s->bytes);
    }
    return r->staged[k];
}

void ht_each_fill_scalars(const each_job *j, int64_t most, each_room *r) {
    for (int k = 0; k < j->p->n_in; k++)
        if (j->in[k].how == SCALAR) fill(r->staged[k], j->in[k].data, most, (size_t)j->in[k].bytes);
}
