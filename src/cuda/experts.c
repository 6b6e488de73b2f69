/* Mixture-of-experts products and their gradients: launches per set of matrices, and per weight type in it. The pairs
 * of a row and an expert are sorted by expert into tiles. If there are few, each pair has separate blocks instead. */
#include "cuda/experts.h"

#include "base/error.h"
#include "cuda/matrix_run.h"
#include "device/params.h"

#include <stdlib.h>

enum {
    SORTERS = 1024,
    THREADS = 256,
    GROUP = 8, /* each expert's rows begin at a multiple of this */
    /* Mean pairs per expert, from which on: */
    PAIRS_PLAIN = 8, /* plain products sort them */
    PAIRS_FEW = 8,   /* tiles are of 32 pairs */
    PAIRS_MANY = 48, /* tensor cores multiply swizzled operands */
    SOME_PAIRS = 32,
};

typedef struct job {
    const ht_call *call;
    const ht_linear_gather_params *p;
    ht_cuda_pair_ids ids;
    int64_t n_experts, pairs, n, k;
    int64_t n_x;      /* rows of x */
    int64_t occupied; /* upper bound of experts with pairs */
} job;

/* The scratch memory's parts. */
typedef struct room {
    void *rows; /* a copy of x, where one is needed */
    int32_t *next, *tile_begin, *order;
    ht_cuda_expert_tile *tiles;
    ht_cuda_expert *table; /* of more experts than are among a kernel's arguments */
    void *image, *weights; /* for tensor cores: x, and some experts */
    float *factors;        /* of these */
} room;

static job describe(const ht_call *call) {
    const ht_linear_gather_params *p = call->params;
    const ht_matrix *m = p->experts[0]->matrix[0];
    const ht_view *ids = &call->in[1];
    const int64_t experts = p->experts[0]->n, pairs = ht_view_size(ids);
    return (job){.call = call,
                 .p = p,
                 .ids = {.id = ids->data,
                         .stride = {ids->stride[0], ids->stride[1]},
                         .per_row = (int32_t)ids->shape[1],
                         .n_experts = (int32_t)experts},
                 .n_experts = experts,
                 .pairs = pairs,
                 .n = m->n_rows,
                 .k = m->k,
                 .n_x = ht_view_size(&call->in[0]) / m->k,
                 .occupied = ht_min_i64(pairs, experts)};
}

/* Most pairs per tile for matrices of this type; 0: pairs are not sorted. */
static int32_t tile_for(const job *j, const ht_matrix *kind) {
    if (!ht_cuda_is_tensor(kind)) return j->pairs >= PAIRS_PLAIN * j->n_experts ? HT_CUDA_TILE_X : 0;
    if (j->pairs == j->ids.per_row) return 0; /* whose experts differ */
    return j->pairs < PAIRS_FEW * j->n_experts    ? GROUP
           : j->pairs < PAIRS_MANY * j->n_experts ? SOME_PAIRS
                                                  : HT_CUDA_WIDE_TOKENS;
}

/* The matrices of a launch, which are of one type, and the pairs of a tile. */
typedef struct matrices {
    const ht_matrix_list *list;
    const ht_matrix *kind;
    int32_t per_tile;
} matrices;

static matrices matrices_of(const job *j, int set, int32_t i) {
    const ht_matrix_list *list = j->p->experts[set];
    const ht_matrix *kind = list->matrix[list->n + i];
    return (matrices){list, kind, tile_for(j, kind)};
}

static int64_t tiles_of(const job *j, int32_t per_tile) { return j->pairs / per_tile + j->occupied; }

/* Capacity for sorted pairs, and rows of their swizzled operand: a tile's kernel always reads a full tile of rows. */
static int64_t places_of(const job *j) {
    return (j->pairs + (GROUP - 1) * j->occupied) / GROUP * GROUP + HT_CUDA_WIDE_TOKENS;
}

/* Workspace for sorting, with tiles of `per_tile` or more. */
static room lay_out(const job *j, int32_t per_tile, ht_cuda_scratch *s) {
    const size_t experts = (size_t)j->n_experts;
    room r = {0};
    r.next = ht_cuda_take(s, experts * sizeof *r.next);
    r.tile_begin = ht_cuda_take(s, (experts + 1) * sizeof *r.tile_begin);
    r.order = ht_cuda_take(s, (size_t)places_of(j) * sizeof *r.order);
    r.tiles = ht_cuda_take(s, (size_t)tiles_of(j, per_tile) * sizeof *r.tiles);
    r.table = ht_cuda_take(s, experts > HT_CUDA_ENTRIES ? experts * sizeof *r.table : 0);
    return r;
}

static ht_status sort_pairs(ht_cuda_device *d, const job *j, const room *r, int32_t per_tile, ht_op_id op,
                            ht_error *err) {
    const ht_cuda_sort_experts_arguments a = {.report = ht_cuda_report(d, op),
                                              .ids = j->ids,
                                              .pairs = j->pairs,
                                              .n_tiles = tiles_of(j, per_tile),
                                              .n_places = places_of(j),
                                              .per_tile = per_tile,
                                              .next = r->next,
                                              .tile_begin = r->tile_begin,
                                              .order = r->order,
                                              .tiles = r->tiles};
    const ht_cuda_shape shape = {.grid = {1}, .block = {SORTERS}};
    return ht_cuda_launch(d, HT_CUDA_ID_ht_cuda_sort_experts, &shape, &a, err);
}

/* Into a kernel's arguments, or into memory of the device. */
static ht_status list_experts(ht_cuda_device *d, const matrices *of, const room *r, ht_cuda_expert_list *out,
                              ht_error *err) {
    const bool fits = of->list->n <= HT_CUDA_ENTRIES;
    const size_t bytes = (size_t)of->list->n * sizeof *out->entry;
    ht_cuda_expert *to = fits ? out->entry : malloc(bytes);
    out->table = fits ? NULL : r->table;
    if (!to) return ht_fail_memory(err, bytes, "addresses of experts");
    for (int32_t e = 0; e < of->list->n; e++) {
        const ht_matrix *m = of->list->matrix[e];
        to[e] = m->type == of->kind->type ? (ht_cuda_expert){m->packed, m->scales} : (ht_cuda_expert){0};
    }
    if (fits) return HT_OK;
    const ht_status status = d->memory.ops->write(d, r->table, to, bytes, err);
    free(to);
    return status;
}

/* ---- on tensor cores ---- */

/* For few tiles of 8 pairs, for tiles of 8 and of 32, and for swizzled rows. */
static const ht_cuda_kernel_id tensor_kernels[HT_CUDA_FORMS][4] = {
#define KERNELS(X, form)                                                                                               \
    [HT_CUDA_##form] = {HT_CUDA_ID_ht_cuda_experts_##form##_1, HT_CUDA_ID_ht_cuda_experts_##form##_8,                  \
                        HT_CUDA_ID_ht_cuda_experts_##form##_32, HT_CUDA_ID_ht_cuda_expert_rows_##form},
    HT_CUDA_EACH_TENSOR_FORM(KERNELS, )
#undef KERNELS
};

/* The swizzled operand x for tiles of `per_tile`. */
static ht_cuda_swizzled image_at(const ht_cuda_device *d, const job *j, int32_t per_tile, void *at) {
    if (!per_tile) return ht_cuda_swizzled_at(d, at, j->n_x, j->k);
    return ht_cuda_swizzled_of_rows(at, places_of(j), j->k);
}

static size_t image_bytes(const ht_cuda_device *d, const job *j, int32_t per_tile) {
    if (!per_tile) return ht_cuda_swizzled_bytes(d, j->n_x, j->k);
    return ht_cuda_swizzled_of_rows_bytes(places_of(j), j->k);
}

static ht_status prepare(ht_cuda_device *d, const job *j, const room *r, int32_t per_tile,
                         const ht_cuda_linear_arguments *l, const ht_cuda_swizzled *image, ht_error *err) {
    if (!per_tile) return ht_cuda_prepare_rows(d, l->x, l->ldx, j->n_x, j->k, image, err);
    const ht_cuda_prepare_arguments a = {.to = *image,
                                         .x = l->x,
                                         .n = j->pairs,
                                         .ldx = l->ldx,
                                         .k = j->k,
                                         .order = r->order,
                                         .x_share = (int32_t)(j->pairs / j->n_x)};
    const ht_cuda_shape shape = {.grid = {(unsigned)places_of(j)}, .block = {THREADS}};
    return ht_cuda_launch(d, HT_CUDA_ID_ht_cuda_prepare, &shape, &a, err);
}

static ht_status multiply_few_pairs(ht_cuda_device *d, const job *j, ht_cuda_expert_arguments *a, int32_t per_tile,
                                    ht_error *err) {
    enum { MOST_TILES = 65535, WARPS = HT_CUDA_EXPERT_SEGMENTS, FEW_TILES = 32 };
    const int form = a->of.w.form;
    const bool shares = per_tile <= GROUP && j->pairs <= FEW_TILES;
    const int sums = shares ? WARPS * HT_CUDA_PANEL * GROUP * (int)sizeof(float) : 0;
    a->report = ht_cuda_report(d, HT_OP_LINEAR_GATHER);
    a->n_tiles = per_tile ? tiles_of(j, per_tile) : j->pairs;
    const ht_cuda_shape shape = {.grid = {(unsigned)ht_ceil_div_i64(j->n, HT_CUDA_PANEL * (shares ? 1 : WARPS)),
                                          (unsigned)ht_min_i64(a->n_tiles, MOST_TILES)},
                                 .block = {WARPS * 32},
                                 .shared_bytes = (unsigned)(sums + WARPS * ht_cuda_ring_bytes(form))};
    return ht_cuda_launch(d, tensor_kernels[form][shares ? 0 : per_tile == SOME_PAIRS ? 2 : 1], &shape, a, err);
}

/* Multiplies as many experts at a time as the workspace holds swizzled. */
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
        status = ht_cuda_launch_threads(d, tensor_kernels[of->of.w.form][3],
                                        a.rows_padded * ht_ceil_div_i64(j->k, HT_CUDA_K_TILE), &rows, err);
        const int64_t tiles = j->pairs / HT_CUDA_WIDE_TOKENS + ht_min_i64(j->pairs, a.n);
        if (!status) status = ht_cuda_multiply_swizzled_experts(d, &of->of.w, &a, tiles, err);
    }
    return status;
}

static ht_status multiply_on_tensor_cores(ht_cuda_device *d, const job *j, const room *r, const matrices *of,
                                          const ht_cuda_swizzled *image, const ht_cuda_linear_arguments *l,
                                          ht_error *err) {
    ht_cuda_expert_arguments a = {
        .x = *image,
        .y = l->y,
        .ldy = l->ldy,
        .tiles = of->per_tile ? r->tiles : NULL,
        .order = of->per_tile ? r->order : NULL,
        .ids = j->ids,
        .x_rows = j->call->in[0].n_dims == 3,
        .of = {.w = l->w, .factors = (int64_t)(of->kind->packed_bytes - ht_cuda_factor_bytes(j->n))}};
    const ht_status status = list_experts(d, of, r, &a.of.experts, err);
    if (status) return status;
    if (of->per_tile == HT_CUDA_WIDE_TOKENS) return multiply_many_pairs(d, j, r, &a, err);
    return multiply_few_pairs(d, j, &a, of->per_tile, err);
}

/* ---- with plain products ---- */

/* For the rows of `l`, whose matrix is any of that type. */
static ht_status multiply_plain(ht_cuda_device *d, const job *j, const room *r, const matrices *of,
                                const ht_cuda_linear_arguments *l, ht_error *err) {
    ht_cuda_gather_arguments a = {
        .l = *l, .ids = j->ids, .x_share = (int32_t)(j->pairs / j->n_x), .order = r->order, .tiles = r->tiles};
    const unsigned shared = ht_cuda_few_shared(&a.l, 1);
    const ht_status status = list_experts(d, of, r, &a.experts, err);
    if (status) return status;
    if (of->per_tile) {
        const ht_cuda_shape shape = {
            .grid = {(unsigned)ht_ceil_div_i64(j->n, HT_CUDA_TILE_W), (unsigned)tiles_of(j, of->per_tile)},
            .block = {THREADS}};
        return ht_cuda_launch(d, HT_CUDA_ID_ht_cuda_many_gather, &shape, &a, err);
    }
    const ht_cuda_shape shape = {
        .grid = {(unsigned)ht_ceil_div_i64(j->n, HT_CUDA_FEW_ROWS), (unsigned)ht_min_i64(j->pairs, 65535)},
        .block = {HT_CUDA_FEW_ROWS * HT_CUDA_LANES},
        .shared_bytes = shared};
    a.report = ht_cuda_report(d, HT_OP_LINEAR_GATHER);
    return ht_cuda_launch(d, HT_CUDA_ID_ht_cuda_gather, &shape, &a, err);
}

/* ---- products ---- */

/* The workspace of all launches, which reuse it one after another. */
static room lay_out_products(const job *j, ht_cuda_scratch *scratch) {
    const ht_cuda_device *d = ht_cuda_of(j->call->device);
    size_t image = 0, weights = 0, factors = 0;
    for (int s = 0; s < j->p->n_sets; s++)
        for (int32_t i = 0; i < j->p->experts[s]->n_kinds; i++) {
            const matrices of = matrices_of(j, s, i);
            if (!ht_cuda_is_tensor(of.kind)) continue;
            image = ht_max_size(image, image_bytes(d, j, of.per_tile));
            if (of.per_tile != HT_CUDA_WIDE_TOKENS) continue;
            const int64_t rows = ht_cuda_experts_at_once(j->n, j->k, j->n_experts) * ht_cuda_rows_of_expert(j->n);
            weights = ht_cuda_swizzled_of_rows_bytes(rows, j->k);
            factors = (size_t)(rows / HT_CUDA_FACTOR_ROWS);
        }
    room r = lay_out(j, GROUP, scratch);
    r.rows = ht_cuda_take(scratch, ht_cuda_rows_bytes(&j->call->in[0]));
    r.image = ht_cuda_take(scratch, image);
    r.weights = ht_cuda_take(scratch, weights);
    r.factors = ht_cuda_take(scratch, factors * sizeof *r.factors);
    return r;
}

size_t ht_cuda_linear_gather_scratch(const ht_call *call) {
    const job j = describe(call);
    ht_cuda_scratch s = {0};
    lay_out_products(&j, &s);
    return s.bytes;
}

ht_status ht_cuda_linear_gather(const ht_call *call, ht_error *err) {
    ht_cuda_device *d = ht_cuda_of(call->device);
    const job j = describe(call);
    if (ht_view_size(&call->out) == 0) return HT_OK;
    const room r = lay_out_products(&j, &(ht_cuda_scratch){.at = call->scratch});
    ht_cuda_linear_arguments l = {.n = j.pairs, .ldy = j.p->n_sets * j.n};
    int32_t sorted = 0; /* tile size of the current order; 0: not sorted */
    bool prepared = false;
    ht_status status = ht_cuda_contiguous_rows(d, &call->in[0], r.rows, &l.x, &l.ldx, err);
    for (int s = 0; s < j.p->n_sets; s++)
        for (int32_t i = 0; i < j.p->experts[s]->n_kinds && !status; i++) {
            const matrices of = matrices_of(&j, s, i);
            l.w = ht_cuda_weights_of(of.kind);
            l.y = (float *)call->out.data + s * j.n;
            if (of.per_tile && of.per_tile != sorted) {
                status = sort_pairs(d, &j, &r, of.per_tile, HT_OP_LINEAR_GATHER, err);
                sorted = of.per_tile, prepared = false;
            }
            if (status || !ht_cuda_is_tensor(of.kind)) {
                if (!status) status = multiply_plain(d, &j, &r, &of, &l, err);
                continue;
            }
            const ht_cuda_swizzled image = image_at(d, &j, of.per_tile, r.image);
            if (!prepared) status = prepare(d, &j, &r, of.per_tile, &l, &image, err);
            prepared = true;
            if (!status) status = multiply_on_tensor_cores(d, &j, &r, &of, &image, &l, err);
        }
    return status;
}

/* ---- gradients ---- */

size_t ht_cuda_linear_gather_back_scratch(const ht_call *call) {
    const job j = describe(call);
    ht_cuda_scratch s = {0};
    lay_out(&j, HT_CUDA_BACK_ROWS, &s);
    return s.bytes;
}

ht_status ht_cuda_linear_gather_back(const ht_call *call, ht_error *err) {
    ht_cuda_device *d = ht_cuda_of(call->device);
    const job j = describe(call);
    const ht_view *dy = &call->in[0];
    if (ht_view_size(&call->out) == 0) return HT_OK;
    const room r = lay_out(&j, HT_CUDA_BACK_ROWS, &(ht_cuda_scratch){.at = call->scratch});
    ht_cuda_back_gather_arguments a = {.b = {.dx = call->out.data,
                                             .n = j.pairs,
                                             .ldx = j.k,
                                             .dy_stride = {dy->stride[0], dy->stride[1]},
                                             .dy_step = dy->stride[2]},
                                       .per_row = (int32_t)dy->shape[1],
                                       .order = r.order,
                                       .tiles = r.tiles};
    const ht_cuda_shape shape = {
        .grid = {(unsigned)ht_ceil_div_i64(j.k, HT_CUDA_BACK_COLUMNS), (unsigned)tiles_of(&j, HT_CUDA_BACK_ROWS)},
        .block = {THREADS}};
    ht_status status = sort_pairs(d, &j, &r, HT_CUDA_BACK_ROWS, HT_OP_LINEAR_GATHER_BACK, err);
    for (int s = 0; s < j.p->n_sets; s++)
        for (int32_t i = 0; i < j.p->experts[s]->n_kinds && !status; i++) {
            const matrices of = matrices_of(&j, s, i);
            a.b.w = ht_cuda_weights_of(of.kind);
            a.b.dy = (const float *)dy->data + s * j.n * dy->stride[2];
            a.b.accumulate = s > 0;
            status = list_experts(d, &of, &r, &a.experts, err);
            if (!status) status = ht_cuda_launch(d, HT_CUDA_ID_ht_cuda_back_gather, &shape, &a, err);
        }
    return status;
}
