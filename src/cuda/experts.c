/* Mixture-of-experts products and their gradients: a launch for every set of matrices, and for every type of weights in it. Few pairs
 * of rows and experts each have blocks of their own; many are sorted by expert, into tiles. */
#include "base/checked.h"
#include "base/error.h"
#include "cuda/matrix_run.h"
#include "device/params.h"

#include <stdlib.h>

enum { PAIRS_OF_EXPERT = 8, /* as many on average, and they are sorted */ SORTERS = 1024, THREADS = 256 };

_Static_assert(sizeof(ht_cuda_gather_arguments) <= 4096 && sizeof(ht_cuda_back_gather_arguments) <= 4096,
               "a kernel takes at most so many bytes");

/* For few pairs, and for many. */
static const ht_cuda_kernel_id gather_kernels[HT_CUDA_FORMS][2] = {
#define KERNELS(form) [HT_CUDA_##form] = {HT_CUDA_ID_ht_cuda_gather_##form, HT_CUDA_ID_ht_cuda_many_gather_##form},
    HT_CUDA_EACH_FORM(KERNELS)
#undef KERNELS
};

typedef struct job {
    const ht_call *call;
    const ht_linear_gather_params *p;
    const ht_view *ids;
    int64_t n_experts, pairs, n_tiles, n, k;
} job;

/* The scratch memory's parts. */
typedef struct room {
    void *rows; /* a copy of x, where one is needed */
    int32_t *first, *order;
    ht_cuda_expert_tile *tiles;
    ht_cuda_expert *table; /* of more experts than are among a kernel's arguments */
    size_t bytes;
} room;

static job describe(const ht_call *call) {
    const ht_linear_gather_params *p = call->params;
    const ht_matrix *m = p->experts[0]->matrix[0];
    const int64_t experts = p->experts[0]->n, pairs = ht_view_size(&call->in[1]);
    return (job){.call = call,
                 .p = p,
                 .ids = &call->in[1],
                 .n_experts = experts,
                 .pairs = pairs,
                 .n_tiles = pairs / HT_CUDA_TILE_X + ht_min_i64(pairs, experts),
                 .n = m->n_rows,
                 .k = m->k};
}

static bool is_sorted(const job *j) { return j->pairs >= PAIRS_OF_EXPERT * j->n_experts; }

static void *take(room *r, void *at, int64_t n, size_t bytes) {
    void *p = at ? (char *)at + r->bytes : NULL;
    r->bytes += ((size_t)n * bytes + 63) / 64 * 64;
    return p;
}

static room lay_out(const job *j, size_t rows, void *at) {
    room r = {0};
    r.rows = take(&r, at, 1, rows);
    r.first = take(&r, at, j->n_experts, sizeof *r.first);
    r.order = take(&r, at, j->pairs, sizeof *r.order);
    r.tiles = take(&r, at, j->n_tiles, sizeof *r.tiles);
    r.table = take(&r, at, j->n_experts > HT_CUDA_ENTRIES ? j->n_experts : 0, sizeof *r.table);
    return r;
}

static ht_status sort_pairs(ht_cuda_device *d, const job *j, const room *r, ht_op_id op, ht_error *err) {
    const ht_cuda_sort_experts_arguments a = {.report = ht_cuda_report(d, op),
                                              .ids = j->ids->data,
                                              .id_stride = {j->ids->stride[0], j->ids->stride[1]},
                                              .pairs = j->pairs,
                                              .n_tiles = j->n_tiles,
                                              .per_row = (int32_t)j->ids->shape[1],
                                              .n_experts = (int32_t)j->n_experts,
                                              .first = r->first,
                                              .order = r->order,
                                              .tiles = r->tiles};
    const ht_cuda_shape shape = {.grid = {1}, .block = {SORTERS}};
    return ht_cuda_launch(d, HT_CUDA_ID_ht_cuda_sort_experts, &shape, &a, err);
}

/* The matrices of `list` that are of the type of `kind`: into a kernel's arguments, or into memory of the device, which *table then is. */
static ht_status list_experts(ht_cuda_device *d, const ht_matrix_list *list, const ht_matrix *kind, const room *r,
                              ht_cuda_expert *entry, const ht_cuda_expert **table, ht_error *err) {
    const bool fits = list->n <= HT_CUDA_ENTRIES;
    const size_t bytes = (size_t)list->n * sizeof *entry;
    ht_cuda_expert *to = fits ? entry : malloc(bytes);
    *table = fits ? NULL : r->table;
    if (!to) return ht_fail_memory(err, bytes, "addresses of experts");
    for (int32_t e = 0; e < list->n; e++) {
        const ht_matrix *m = list->matrix[e];
        to[e] = m->type == kind->type ? (ht_cuda_expert){m->packed, m->scales} : (ht_cuda_expert){0};
    }
    if (fits) return HT_OK;
    const ht_status status = d->memory.ops->write(d, r->table, to, bytes, err);
    free(to);
    return status;
}

/* ---- products ---- */

size_t ht_cuda_linear_gather_scratch(const ht_call *call) {
    const job j = describe(call);
    return lay_out(&j, ht_cuda_rows_bytes(&call->in[0]), NULL).bytes;
}

static ht_status multiply(ht_cuda_device *d, const job *j, ht_cuda_gather_arguments *a, ht_error *err) {
    if (is_sorted(j)) {
        const ht_cuda_shape shape = {.grid = {(unsigned)ht_cuda_parts(j->n, HT_CUDA_TILE_W), (unsigned)j->n_tiles},
                                     .block = {THREADS}};
        (void)ht_cuda_few_shared(&a->l, 1);
        return ht_cuda_launch(d, gather_kernels[a->l.w.form][1], &shape, a, err);
    }
    const unsigned blocks = (unsigned)ht_min_i64(j->pairs, 65535);
    const ht_cuda_shape shape = {.grid = {(unsigned)ht_cuda_parts(j->n, HT_CUDA_FEW_ROWS), blocks},
                                 .block = {HT_CUDA_FEW_ROWS * HT_CUDA_LANES},
                                 .shared_bytes = ht_cuda_few_shared(&a->l, 1)};
    a->report = ht_cuda_report(d, HT_OP_LINEAR_GATHER);
    return ht_cuda_launch(d, gather_kernels[a->l.w.form][0], &shape, a, err);
}

ht_status ht_cuda_linear_gather(const ht_call *call, ht_error *err) {
    ht_cuda_device *d = ht_cuda_of(call->device);
    const job j = describe(call);
    const ht_view *x = &call->in[0];
    if (ht_view_size(&call->out) == 0) return HT_OK;
    const room r = lay_out(&j, ht_cuda_rows_bytes(x), call->scratch);
    const int64_t width = j.p->n_sets * j.n;
    ht_cuda_gather_arguments a = {.l = {.n = j.pairs, .ldy = width},
                                  .ids = j.ids->data,
                                  .id_stride = {j.ids->stride[0], j.ids->stride[1]},
                                  .per_row = (int32_t)j.ids->shape[1],
                                  .x_share = x->n_dims == 3 ? 1 : (int32_t)j.ids->shape[1],
                                  .n_experts = (int32_t)j.n_experts,
                                  .order = r.order,
                                  .tiles = r.tiles};
    ht_status status = ht_cuda_contiguous_rows(d, x, r.rows, &a.l.x, &a.l.ldx, err);
    if (!status && is_sorted(&j)) status = sort_pairs(d, &j, &r, HT_OP_LINEAR_GATHER, err);
    for (int s = 0; s < j.p->n_sets; s++)
        for (int32_t i = 0; i < j.p->experts[s]->n_kinds && !status; i++) {
            const ht_matrix_list *list = j.p->experts[s];
            const ht_matrix *kind = list->matrix[list->n + i];
            a.l.w = ht_cuda_weights_of(kind);
            a.l.y = (float *)call->out.data + s * j.n;
            status = list_experts(d, list, kind, &r, a.entry, &a.table, err);
            if (!status) status = multiply(d, &j, &a, err);
        }
    return status;
}

/* ---- gradients ---- */

size_t ht_cuda_linear_gather_back_scratch(const ht_call *call) {
    const job j = describe(call);
    return lay_out(&j, 0, NULL).bytes;
}

ht_status ht_cuda_linear_gather_back(const ht_call *call, ht_error *err) {
    ht_cuda_device *d = ht_cuda_of(call->device);
    const job j = describe(call);
    const ht_view *dy = &call->in[0];
    if (ht_view_size(&call->out) == 0) return HT_OK;
    const room r = lay_out(&j, 0, call->scratch);
    ht_cuda_back_gather_arguments a = {.b = {.dx = call->out.data, .n = j.pairs, .ldx = j.k, .dy_step = dy->stride[2]},
                                       .dy_stride = {dy->stride[0], dy->stride[1]},
                                       .per_row = (int32_t)dy->shape[1],
                                       .n_experts = (int32_t)j.n_experts,
                                       .order = r.order,
                                       .tiles = r.tiles};
    const ht_cuda_shape shape = {.grid = {(unsigned)ht_cuda_parts(j.k, HT_CUDA_BACK_COLUMNS), (unsigned)j.n_tiles},
                                 .block = {THREADS}};
    ht_status status = sort_pairs(d, &j, &r, HT_OP_LINEAR_GATHER_BACK, err);
    for (int s = 0; s < j.p->n_sets; s++)
        for (int32_t i = 0; i < j.p->experts[s]->n_kinds && !status; i++) {
            const ht_matrix_list *list = j.p->experts[s];
            const ht_matrix *kind = list->matrix[list->n + i];
            a.b.w = ht_cuda_weights_of(kind);
            a.b.dy = (const float *)dy->data + s * j.n * dy->stride[2];
            a.b.accumulate = s > 0;
            status = list_experts(d, list, kind, &r, a.entry, &a.table, err);
            if (!status) status = ht_cuda_launch(d, HT_CUDA_ID_ht_cuda_back_gather, &shape, &a, err);
        }
    return status;
}
