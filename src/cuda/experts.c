/* Mixture-of-experts products and their gradients: launches for every set of matrices, and for every type of weights in it. The pairs of
 * a row and an expert are sorted by expert, into tiles, but for few that each have blocks of their own. */
#include "cuda/experts.h"

#include "base/checked.h"
#include "base/error.h"
#include "cuda/matrix_run.h"
#include "cuda/tensor_run.h"
#include "device/params.h"

#include <stdlib.h>

enum {
    SORTERS = 1024,
    THREADS = 256,
    GROUP = 8, /* rows of an image that an expert's begin at a multiple of */
    /* Pairs of an expert on average, from which on: */
    PAIRS_PLAIN = 8, /* plain products sort them */
    PAIRS_FEW = 8,   /* tiles are of 32 pairs */
    PAIRS_MANY = 48, /* tensor cores multiply images */
    SOME_PAIRS = 32,
};

_Static_assert(sizeof(ht_cuda_gather_arguments) <= 4096 && sizeof(ht_cuda_back_gather_arguments) <= 4096 &&
                   sizeof(ht_cuda_expert_arguments) <= 4096 && sizeof(ht_cuda_expert_rows_arguments) <= 4096,
               "the arguments exceed the limit of a kernel");

typedef struct job {
    const ht_call *call;
    const ht_linear_gather_params *p;
    const ht_view *ids;
    int64_t n_experts, pairs, n, k;
    int64_t occupied; /* experts that there are pairs for, at most */
} job;

/* The scratch memory's parts. */
typedef struct room {
    void *rows; /* a copy of x, where one is needed */
    int32_t *next, *tile_begin, *order;
    ht_cuda_expert_tile *tiles;
    ht_cuda_expert *table; /* of more experts than are among a kernel's arguments */
    void *image, *weights; /* for tensor cores: x, and some experts */
    float *factors;        /* of these */
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
                 .n = m->n_rows,
                 .k = m->k,
                 .occupied = ht_min_i64(pairs, experts)};
}

/* Pairs of a tile at most, for matrices of this kind; 0: every pair for itself. */
static int32_t tile_for(const job *j, const ht_matrix *kind) {
    if (!ht_cuda_is_tensor(kind)) return j->pairs >= PAIRS_PLAIN * j->n_experts ? HT_CUDA_TILE_X : 0;
    if (j->ids->shape[0] == 1) return 0; /* whose experts differ */
    return j->pairs < PAIRS_FEW * j->n_experts    ? GROUP
           : j->pairs < PAIRS_MANY * j->n_experts ? SOME_PAIRS
                                                  : HT_CUDA_WIDE_TOKENS;
}

static int64_t tiles_of(const job *j, int32_t per_tile) { return j->pairs / per_tile + j->occupied; }

/* Places of sorted pairs, and rows of their image: a tile's kernel reads all rows that it could have. */
static int64_t places_of(const job *j) {
    return (j->pairs + (GROUP - 1) * j->occupied) / GROUP * GROUP + HT_CUDA_WIDE_TOKENS;
}

static void *take(room *r, void *at, int64_t n, size_t bytes) {
    void *p = at ? (char *)at + r->bytes : NULL;
    r->bytes += ((size_t)n * bytes + 1023) / 1024 * 1024;
    return p;
}

/* What sorting takes, with tiles of `per_tile` or more. */
static room lay_out(const job *j, int32_t per_tile, size_t rows, void *at) {
    room r = {0};
    r.rows = take(&r, at, 1, rows);
    r.next = take(&r, at, j->n_experts, sizeof *r.next);
    r.tile_begin = take(&r, at, j->n_experts + 1, sizeof *r.tile_begin);
    r.order = take(&r, at, places_of(j), sizeof *r.order);
    r.tiles = take(&r, at, tiles_of(j, per_tile), sizeof *r.tiles);
    r.table = take(&r, at, j->n_experts > HT_CUDA_ENTRIES ? j->n_experts : 0, sizeof *r.table);
    return r;
}

static ht_status sort_pairs(ht_cuda_device *d, const job *j, const room *r, int32_t per_tile, ht_op_id op,
                            ht_error *err) {
    const ht_cuda_sort_experts_arguments a = {.report = ht_cuda_report(d, op),
                                              .ids = j->ids->data,
                                              .id_stride = {j->ids->stride[0], j->ids->stride[1]},
                                              .pairs = j->pairs,
                                              .n_tiles = tiles_of(j, per_tile),
                                              .n_places = places_of(j),
                                              .per_row = (int32_t)j->ids->shape[1],
                                              .n_experts = (int32_t)j->n_experts,
                                              .per_tile = per_tile,
                                              .next = r->next,
                                              .tile_begin = r->tile_begin,
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

/* ---- on tensor cores ---- */

/* For few tiles of 8 pairs, tiles of 8, and of 32, and for rows as an image. */
static const ht_cuda_kernel_id tensor_kernels[HT_CUDA_FORMS][4] = {
#define KERNELS(form)                                                                                                  \
    [HT_CUDA_##form] = {HT_CUDA_ID_ht_cuda_experts_##form##_1, HT_CUDA_ID_ht_cuda_experts_##form##_8,                  \
                        HT_CUDA_ID_ht_cuda_experts_##form##_32, HT_CUDA_ID_ht_cuda_expert_rows_##form},
    HT_CUDA_EACH_TENSOR_FORM(KERNELS)
#undef KERNELS
};

/* The image of x for tiles of `per_tile`. */
static ht_cuda_swizzled image_at(const ht_cuda_device *d, const job *j, int32_t per_tile, void *at) {
    if (!per_tile) return ht_cuda_swizzled_at(d, at, ht_view_size(&j->call->in[0]) / j->k, j->k);
    return ht_cuda_swizzled_of_rows(at, places_of(j), j->k);
}

static size_t image_bytes(const ht_cuda_device *d, const job *j, int32_t per_tile) {
    if (!per_tile) return ht_cuda_swizzled_bytes(d, ht_view_size(&j->call->in[0]) / j->k, j->k);
    return ht_cuda_swizzled_of_rows_bytes(places_of(j), j->k);
}

static ht_status prepare(ht_cuda_device *d, const job *j, const room *r, int32_t per_tile, const float *x, int64_t ldx,
                         const ht_cuda_swizzled *image, ht_error *err) {
    const int64_t n = ht_view_size(&j->call->in[0]) / j->k;
    if (!per_tile) return ht_cuda_prepare_rows(d, x, ldx, n, j->k, image, err);
    const ht_cuda_prepare_pairs_arguments a = {
        .to = *image, .x = x, .order = r->order, .ldx = ldx, .k = j->k, .x_share = (int32_t)(j->pairs / n)};
    const ht_cuda_shape shape = {.grid = {(unsigned)places_of(j)}, .block = {THREADS}};
    return ht_cuda_launch(d, HT_CUDA_ID_ht_cuda_prepare_pairs, &shape, &a, err);
}

static ht_status multiply_few_pairs(ht_cuda_device *d, const job *j, ht_cuda_expert_arguments *a, int32_t per_tile,
                                    ht_error *err) {
    enum { MOST_TILES = 65535, WARPS = HT_CUDA_EXPERT_SEGMENTS, FEW_TILES = 32 };
    const int form = a->of.w.form;
    const bool shares = per_tile <= GROUP && j->pairs <= FEW_TILES;
    const int sums = shares ? WARPS * HT_CUDA_PANEL * GROUP * (int)sizeof(float) : 0;
    a->report = ht_cuda_report(d, HT_OP_LINEAR_GATHER);
    a->n_tiles = per_tile ? tiles_of(j, per_tile) : j->pairs;
    const ht_cuda_shape shape = {.grid = {(unsigned)ht_cuda_parts(j->n, HT_CUDA_PANEL * (shares ? 1 : WARPS)),
                                          (unsigned)ht_min_i64(a->n_tiles, MOST_TILES)},
                                 .block = {WARPS * 32},
                                 .shared_bytes = (unsigned)(sums + WARPS * ht_cuda_ring_bytes(form))};
    return ht_cuda_launch(d, tensor_kernels[form][shares ? 0 : per_tile == SOME_PAIRS ? 2 : 1], &shape, a, err);
}

/* As many experts at a time as their image has room for. */
static ht_status multiply_many_pairs(ht_cuda_device *d, const job *j, const room *r, const ht_cuda_expert_arguments *of,
                                     ht_error *err) {
    const int64_t each = ht_cuda_rows_of_expert(j->n), most = ht_cuda_experts_at_once(j->n, j->k, j->n_experts);
    ht_cuda_expert_rows_arguments rows = {
        .to = r->weights, .factors = r->factors, .tile_begin = r->tile_begin, .rows_each = each, .of = of->of};
    ht_cuda_gemm_large_arguments a = {.weights = r->weights,
                                      .x = of->x,
                                      .factors = r->factors,
                                      .y = of->y,
                                      .n_rows = j->n,
                                      .ldy = of->ldy,
                                      .tiles = r->tiles,
                                      .tile_begin = r->tile_begin,
                                      .order = r->order,
                                      .rows_each = each};
    ht_status status = HT_OK;
    for (rows.first = 0; rows.first < j->n_experts && !status; rows.first += rows.n) {
        a.first = rows.first;
        a.n = rows.n = ht_min_i64(most, j->n_experts - rows.first);
        a.rows_padded = a.n * each;
        const ht_cuda_shape shape = ht_cuda_threads(d, a.rows_padded * ht_cuda_parts(j->k, HT_CUDA_K_TILE));
        status = ht_cuda_launch(d, tensor_kernels[of->of.w.form][3], &shape, &rows, err);
        const int64_t tiles = j->pairs / HT_CUDA_WIDE_TOKENS + ht_min_i64(j->pairs, a.n);
        if (!status) status = ht_cuda_multiply_swizzled_experts(d, &of->of.w, &a, tiles, err);
    }
    return status;
}

static ht_status multiply_on_tensor_cores(ht_cuda_device *d, const job *j, const room *r, int32_t per_tile,
                                          const ht_cuda_swizzled *image, const ht_matrix_list *list,
                                          const ht_matrix *kind, float *y, ht_error *err) {
    ht_cuda_expert_arguments a = {
        .x = *image,
        .y = y,
        .ldy = j->p->n_sets * j->n,
        .tiles = per_tile ? r->tiles : NULL,
        .order = per_tile ? r->order : NULL,
        .ids = j->ids->data,
        .id_stride = j->ids->stride[1],
        .n_experts = (int32_t)j->n_experts,
        .x_rows = j->call->in[0].n_dims == 3,
        .of = {.w = ht_cuda_weights_of(kind), .factors = (int64_t)(kind->packed_bytes - ht_cuda_factor_bytes(j->n))}};
    const ht_status status = list_experts(d, list, kind, r, a.of.entry, &a.of.table, err);
    if (status) return status;
    if (per_tile == HT_CUDA_WIDE_TOKENS) return multiply_many_pairs(d, j, r, &a, err);
    return multiply_few_pairs(d, j, &a, per_tile, err);
}

/* ---- with plain products ---- */

/* Of any form and of f32, for few pairs and for many. */
static const ht_cuda_kernel_id plain_kernels[][2] = {
    {HT_CUDA_ID_ht_cuda_gather_ANY, HT_CUDA_ID_ht_cuda_many_gather_ANY},
    {HT_CUDA_ID_ht_cuda_gather_F32, HT_CUDA_ID_ht_cuda_many_gather_F32},
};

static ht_status multiply_plain(ht_cuda_device *d, const job *j, const room *r, int32_t per_tile, const float *x,
                                int64_t ldx, const ht_matrix_list *list, const ht_matrix *kind, float *y,
                                ht_error *err) {
    ht_cuda_gather_arguments a = {
        .l = {.w = ht_cuda_weights_of(kind), .x = x, .y = y, .n = j->pairs, .ldx = ldx, .ldy = j->p->n_sets * j->n},
        .ids = j->ids->data,
        .id_stride = {j->ids->stride[0], j->ids->stride[1]},
        .per_row = (int32_t)j->ids->shape[1],
        .x_share = j->call->in[0].n_dims == 3 ? 1 : (int32_t)j->ids->shape[1],
        .n_experts = (int32_t)j->n_experts,
        .order = r->order,
        .tiles = r->tiles};
    const ht_cuda_kernel_id *kernels = plain_kernels[a.l.w.form == HT_CUDA_F32];
    const unsigned shared = ht_cuda_few_shared(&a.l, 1);
    const ht_status status = list_experts(d, list, kind, r, a.entry, &a.table, err);
    if (status) return status;
    if (per_tile) {
        const ht_cuda_shape shape = {
            .grid = {(unsigned)ht_cuda_parts(j->n, HT_CUDA_TILE_W), (unsigned)tiles_of(j, per_tile)},
            .block = {THREADS}};
        return ht_cuda_launch(d, kernels[1], &shape, &a, err);
    }
    const ht_cuda_shape shape = {
        .grid = {(unsigned)ht_cuda_parts(j->n, HT_CUDA_FEW_ROWS), (unsigned)ht_min_i64(j->pairs, 65535)},
        .block = {HT_CUDA_FEW_ROWS * HT_CUDA_LANES},
        .shared_bytes = shared};
    a.report = ht_cuda_report(d, HT_OP_LINEAR_GATHER);
    return ht_cuda_launch(d, kernels[0], &shape, &a, err);
}

/* ---- products ---- */

/* The room for all of them: what one launch leaves the next may use. */
static room lay_out_products(const job *j, void *at) {
    const ht_cuda_device *d = ht_cuda_of(j->call->device);
    size_t image = 0, weights = 0;
    int64_t factors = 0;
    for (int s = 0; s < j->p->n_sets; s++)
        for (int32_t i = 0; i < j->p->experts[s]->n_kinds; i++) {
            const ht_matrix_list *list = j->p->experts[s];
            const ht_matrix *kind = list->matrix[list->n + i];
            const int32_t per_tile = tile_for(j, kind);
            if (!ht_cuda_is_tensor(kind)) continue;
            const size_t needed = image_bytes(d, j, per_tile);
            if (needed > image) image = needed;
            if (per_tile != HT_CUDA_WIDE_TOKENS) continue;
            const int64_t rows = ht_cuda_experts_at_once(j->n, j->k, j->n_experts) * ht_cuda_rows_of_expert(j->n);
            weights = ht_cuda_swizzled_of_rows_bytes(rows, j->k);
            factors = rows / HT_CUDA_FACTOR_ROWS;
        }
    room r = lay_out(j, GROUP, ht_cuda_rows_bytes(&j->call->in[0]), at);
    r.image = take(&r, at, 1, image);
    r.weights = take(&r, at, 1, weights);
    r.factors = take(&r, at, factors, sizeof *r.factors);
    return r;
}

size_t ht_cuda_linear_gather_scratch(const ht_call *call) {
    const job j = describe(call);
    return lay_out_products(&j, NULL).bytes;
}

ht_status ht_cuda_linear_gather(const ht_call *call, ht_error *err) {
    ht_cuda_device *d = ht_cuda_of(call->device);
    const job j = describe(call);
    if (ht_view_size(&call->out) == 0) return HT_OK;
    const room r = lay_out_products(&j, call->scratch);
    const float *x;
    int64_t ldx;
    int32_t sorted = 0; /* into tiles of so many */
    bool prepared = false;
    ht_status status = ht_cuda_contiguous_rows(d, &call->in[0], r.rows, &x, &ldx, err);
    for (int s = 0; s < j.p->n_sets; s++)
        for (int32_t i = 0; i < j.p->experts[s]->n_kinds && !status; i++) {
            const ht_matrix_list *list = j.p->experts[s];
            const ht_matrix *kind = list->matrix[list->n + i];
            const int32_t per_tile = tile_for(&j, kind);
            float *y = (float *)call->out.data + s * j.n;
            if (per_tile && per_tile != sorted) {
                status = sort_pairs(d, &j, &r, per_tile, HT_OP_LINEAR_GATHER, err);
                sorted = per_tile, prepared = false;
            }
            if (status || !ht_cuda_is_tensor(kind)) {
                if (!status) status = multiply_plain(d, &j, &r, per_tile, x, ldx, list, kind, y, err);
                continue;
            }
            const ht_cuda_swizzled image = image_at(d, &j, per_tile, r.image);
            if (!prepared) status = prepare(d, &j, &r, per_tile, x, ldx, &image, err);
            prepared = true;
            if (!status) status = multiply_on_tensor_cores(d, &j, &r, per_tile, &image, list, kind, y, err);
        }
    return status;
}

/* ---- gradients ---- */

size_t ht_cuda_linear_gather_back_scratch(const ht_call *call) {
    const job j = describe(call);
    return lay_out(&j, HT_CUDA_BACK_ROWS, 0, NULL).bytes;
}

ht_status ht_cuda_linear_gather_back(const ht_call *call, ht_error *err) {
    ht_cuda_device *d = ht_cuda_of(call->device);
    const job j = describe(call);
    const ht_view *dy = &call->in[0];
    if (ht_view_size(&call->out) == 0) return HT_OK;
    const room r = lay_out(&j, HT_CUDA_BACK_ROWS, 0, call->scratch);
    ht_cuda_back_gather_arguments a = {.b = {.dx = call->out.data, .n = j.pairs, .ldx = j.k, .dy_step = dy->stride[2]},
                                       .dy_stride = {dy->stride[0], dy->stride[1]},
                                       .per_row = (int32_t)dy->shape[1],
                                       .n_experts = (int32_t)j.n_experts,
                                       .order = r.order,
                                       .tiles = r.tiles};
    const ht_cuda_shape shape = {
        .grid = {(unsigned)ht_cuda_parts(j.k, HT_CUDA_BACK_COLUMNS), (unsigned)tiles_of(&j, HT_CUDA_BACK_ROWS)},
        .block = {THREADS}};
    ht_status status = sort_pairs(d, &j, &r, HT_CUDA_BACK_ROWS, HT_OP_LINEAR_GATHER_BACK, err);
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
