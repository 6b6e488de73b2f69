/* Products with quantised weights: quantises the activations, then cuts the weights into blocks for the pool. */
#include "base/checked.h"
#include "cpu/matrix_ops.h"

enum {
    DIRECT_TILES = 2,            /* up to so many tiles of rows, decoding weights in registers beats keeping them */
    ROWS_BYTES_MAX = 768 * 1024, /* activations that stay in the second-level cache while all weights pass */
    BLOCKS_PER_THREAD = 8        /* so that a thread that lost its core for a while does not hold up the others */
};

static size_t round_up_64(size_t n) { return (n + 63) & ~(size_t)63; }

/* ---- activations ---- */

static size_t q_bytes(int64_t n, int64_t k) { return round_up_64((size_t)(n * k)); }
static size_t scale_bytes(int64_t n, int64_t k) { return round_up_64((size_t)(n * (k / HT_QBLOCK)) * sizeof(float)); }
static size_t sum_bytes(int64_t n, int64_t k) {
    return round_up_64((size_t)(n * (k / HT_QBLOCK)) * 2 * sizeof(int32_t));
}

size_t ht_quantised_bytes(int64_t n, int64_t k) { return q_bytes(n, k) + scale_bytes(n, k) + sum_bytes(n, k); }

typedef struct quantise_job {
    const ht_matrix_kernels *kernels;
    const float *x;
    int64_t ldx;
    const ht_qrows *rows;
} quantise_job;

static void quantise_tiles(void *arg, int64_t begin, int64_t end, int worker) {
    (void)worker;
    const quantise_job *job = arg;
    const ht_qrows *rows = job->rows;
    for (int64_t t = begin; t < end; t++) {
        int64_t first = ht_qtile_first(rows, t), at = first * rows->n_blocks;
        job->kernels->quantise(job->x + first * job->ldx, job->ldx, ht_qtile_rows(rows, t), rows->n_blocks,
                               rows->q + at * HT_QBLOCK, rows->scale + at, rows->sum + 2 * at);
    }
}

void ht_quantise_rows(const ht_matrix_kernels *kernels, const float *x, int64_t ldx, int64_t n, int64_t k, void *memory,
                      ht_pool *pool, ht_qrows *out) {
    char *at = memory;
    *out = (ht_qrows){.n = n, .n_blocks = k / HT_QBLOCK, .n_tiles = ht_ceil_div_i64(n, kernels->tile_rows)};
    out->tile_rows = n / out->n_tiles;
    out->n_larger = n % out->n_tiles;
    out->q = (void *)at;
    out->scale = (void *)(at + q_bytes(n, k));
    out->sum = (void *)(at + q_bytes(n, k) + scale_bytes(n, k));
    quantise_job job = {kernels, x, ldx, out};
    ht_pool_run(pool, out->n_tiles, 1, quantise_tiles, &job);
}

/* ---- the product ---- */

typedef struct product {
    const ht_matrix *m;
    const ht_matrix_kernels *kernels;
    const ht_qrows *x;
    char *offset; /* of all tiles */
    const float *bias;
    float *y;
    int64_t ldy;
    int64_t n_panels, n_groups; /* a group is what the kernels take at a time */
    int64_t n_parts;            /* of the tiles */
    int64_t chunk;              /* blocks decoded at a time */
    char *decoded;              /* tile_panels ht_qpanel per worker */
} product;

static size_t offset_bytes(const ht_matrix *m, int64_t n_x) {
    return round_up_64((size_t)(n_x * (m->k / HT_QBLOCK) * ht_panel_layout_of(m->type)->halves) * 4);
}

static size_t decoded_bytes(const ht_matrix_kernels *kernels) {
    return round_up_64((size_t)kernels->tile_panels * sizeof(ht_qpanel));
}

static const uint8_t *panel_at(const product *p, int64_t panel) {
    return (const uint8_t *)p->m->packed + (size_t)panel * ht_panel_bytes(p->m->type, p->m->k);
}

/* Where rows [panel, panel + n_panels) of y go. */
static ht_product_out out_at(const product *p, int64_t panel, int64_t n_panels) {
    int64_t row = panel * HT_PANEL, left = p->m->n_rows - row;
    return (ht_product_out){
        .y = p->y, .ldy = p->ldy, .bias = p->bias, .row = row, .n = ht_min_i64(n_panels * HT_PANEL, left)};
}

static void make_offsets(void *arg, int64_t begin, int64_t end, int worker) {
    (void)worker;
    const product *p = arg;
    int halves = ht_panel_layout_of(p->m->type)->halves;
    for (int64_t t = begin; t < end; t++) {
        int64_t at = ht_qtile_first(p->x, t) * p->x->n_blocks;
        p->kernels->offsets(p->m->type, p->x->sum + 2 * at, ht_qtile_rows(p->x, t), p->x->n_blocks,
                            p->offset + 4 * halves * at);
    }
}

static void multiply_direct(void *arg, int64_t begin, int64_t end, int worker) {
    (void)worker;
    const product *p = arg;
    ht_qtiles tiles = {p->x, p->offset, 0, p->x->n_tiles};
    ht_product_out out = out_at(p, begin, end - begin);
    p->kernels->direct[p->m->type](panel_at(p, begin), p->m->k, &tiles, &out);
}

/* One group of panels against one part of the tiles: a chunk of blocks at a time is decoded, small enough for the first
 * cache, and meets every tile. */
static void multiply_group(const product *p, int64_t group, int64_t part, ht_qpanel *decoded) {
    ht_weight_type type = p->m->type;
    int64_t panel = group * p->kernels->tile_panels, n = ht_min_i64(p->kernels->tile_panels, p->n_panels - panel);
    ht_qtiles tiles = {p->x, p->offset, part * p->x->n_tiles / p->n_parts, (part + 1) * p->x->n_tiles / p->n_parts};
    ht_product_out out = out_at(p, panel, n);
    for (int64_t block = 0; block < p->x->n_blocks; block += p->chunk) {
        int count = (int)ht_min_i64(p->chunk, p->x->n_blocks - block);
        for (int64_t i = 0; i < n; i++)
            p->kernels->decode[type](panel_at(p, panel + i), p->m->k, block, count, &decoded[i]);
        out.bias = block + count < p->x->n_blocks ? NULL : p->bias;
        p->kernels->decoded[type](decoded, block, count, &tiles, &out);
    }
}

/* Chunks of about the same size, as many whole scale units as HT_QCHUNK holds at most. */
static int64_t chunk_of(ht_weight_type type, int64_t n_blocks) {
    int64_t group = ht_panel_layout_of(type)->group, groups = n_blocks / group, most = HT_QCHUNK / group;
    return ht_ceil_div_i64(groups, ht_ceil_div_i64(groups, most)) * group;
}

/* Blocks of work are numbered part by part, so that neighbours in time share activations. */
static void multiply_decoded(void *arg, int64_t begin, int64_t end, int worker) {
    const product *p = arg;
    ht_qpanel *decoded = (void *)(p->decoded + (size_t)worker * decoded_bytes(p->kernels));
    for (int64_t i = begin; i < end; i++) multiply_group(p, i % p->n_groups, i / p->n_groups, decoded);
}

size_t ht_mul_quantised_scratch(const ht_matrix *m, int64_t n_x, int n_threads) {
    return offset_bytes(m, n_x) + (size_t)n_threads * decoded_bytes(ht_kernels_of(m));
}

void ht_mul_quantised(const ht_matrix *m, const ht_qrows *x, const float *bias, float *y, int64_t ldy, void *scratch,
                      ht_pool *pool) {
    const ht_matrix_kernels *kernels = ht_kernels_of(m);
    product p = {.m = m, .kernels = kernels, .x = x, .offset = scratch, .bias = bias, .y = y, .ldy = ldy};
    p.decoded = p.offset + offset_bytes(m, x->n);
    p.n_panels = ht_panel_count(m->n_rows);
    ht_pool_run(pool, x->n_tiles, 1, make_offsets, &p);
    int64_t wanted = (int64_t)ht_pool_threads(pool) * BLOCKS_PER_THREAD;
    if (x->n_tiles <= DIRECT_TILES) {
        ht_pool_run(pool, p.n_panels, ht_max_i64(1, p.n_panels / wanted), multiply_direct, &p);
        return;
    }
    p.chunk = chunk_of(m->type, x->n_blocks);
    p.n_groups = ht_ceil_div_i64(p.n_panels, kernels->tile_panels);
    int64_t parts_for_cache = ht_ceil_div_i64(x->n * m->k, ROWS_BYTES_MAX);
    int64_t parts_for_threads = ht_min_i64(ht_ceil_div_i64(wanted, p.n_groups), ht_ceil_div_i64(x->n_tiles, 8));
    p.n_parts = ht_min_i64(ht_max_i64(parts_for_cache, parts_for_threads), x->n_tiles);
    ht_pool_run(pool, p.n_groups * p.n_parts, 1, multiply_decoded, &p);
}

size_t ht_fast_scratch(const ht_matrix *m, int64_t n_x, int n_threads) {
    return ht_quantised_bytes(n_x, m->k) + ht_mul_quantised_scratch(m, n_x, n_threads);
}

void ht_fast_mul(const ht_matrix *m, const float *x, int64_t ldx, int64_t n_x, const float *bias, float *y, int64_t ldy,
                 void *scratch, ht_pool *pool) {
    ht_qrows rows;
    if (n_x <= 0) return;
    ht_quantise_rows(ht_kernels_of(m), x, ldx, n_x, m->k, scratch, pool, &rows);
    ht_mul_quantised(m, &rows, bias, y, ldy, (char *)scratch + ht_quantised_bytes(n_x, m->k), pool);
}
