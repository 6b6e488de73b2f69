/* Products with f16 and bf16 weights: in integers of 16 bits where the instruction set adds their products in pairs, in
 * f32 elsewhere. Cuts the weights and the activations into blocks for the pool. */
#include "base/checked.h"
#include "cpu/matrix_ops.h"

enum {
    ROWS_BYTES_MAX = 1024 * 1024, /* activations that stay in the second-level cache while all weights pass */
    BLOCKS_PER_THREAD = 8         /* so that a thread that lost its core for a while does not hold up the others */
};

typedef struct product {
    const ht_matrix *m;
    const ht_matrix_kernels *kernels;
    ht_wrows x;
    const float *rows; /* what x is made of */
    int64_t ldx;
    const float *bias;
    float *y;
    int64_t ldy;
    int64_t n_panels, n_groups; /* a group is tile_panels panels */
    int64_t n_parts;            /* of the tiles */
    int64_t chunk;              /* blocks converted at a time */
    char *converted;            /* tile_panels ht_wpanel per worker */
} product;

static size_t round_up_64(size_t n) { return (n + 63) & ~(size_t)63; }

static int64_t blocks_of(int64_t k) { return ht_ceil_div_i64(k, HT_QBLOCK); }

static size_t q_bytes(int64_t n, int64_t k) {
    return round_up_64((size_t)(n * blocks_of(k) * HT_QBLOCK) * sizeof(int16_t));
}
static size_t scale_bytes(int64_t n, int64_t k) { return round_up_64((size_t)(n * blocks_of(k)) * sizeof(float)); }
static size_t converted_bytes(const ht_matrix_kernels *kernels) {
    return (size_t)kernels->tile_panels * sizeof(ht_wpanel);
}

static const char *panel_at(const product *p, int64_t panel) {
    return (const char *)p->m->packed + (size_t)panel * ht_panel_bytes(p->m->type, p->m->k);
}

/* Where rows [panel, panel + n_panels) of W go. */
static ht_product_out out_at(const product *p, int64_t panel, int64_t n_panels) {
    int64_t row = panel * HT_PANEL, left = p->m->n_rows - row;
    return (ht_product_out){
        .y = p->y, .ldy = p->ldy, .bias = p->bias, .row = row, .n = ht_min_i64(n_panels * HT_PANEL, left)};
}

static void make_words(void *arg, int64_t begin, int64_t end, int worker) {
    (void)worker;
    const product *p = arg;
    for (int64_t t = begin; t < end; t++) {
        int64_t first = t * p->x.tile_rows, at = first * p->x.n_blocks;
        p->kernels->words_of(p->rows + first * p->ldx, p->ldx, ht_wtile_rows(&p->x, t), p->m->k,
                             p->x.q + at * HT_QBLOCK, p->x.scale + at);
    }
}

static void multiply_direct(void *arg, int64_t begin, int64_t end, int worker) {
    (void)worker;
    const product *p = arg;
    ht_product_out out = out_at(p, begin, end - begin);
    p->kernels->words_direct[p->m->type](panel_at(p, begin), p->m->k, &p->x, &out);
}

/* One group of panels against one part of the tiles: a chunk of blocks at a time is converted, small enough for the
 * first cache, and meets every tile. */
static void multiply_group(const product *p, int64_t group, int64_t part, ht_wpanel *converted) {
    int64_t panel = group * p->kernels->tile_panels, n = ht_min_i64(p->kernels->tile_panels, p->n_panels - panel);
    int64_t n_tiles = ht_wtiles(&p->x), first = part * n_tiles / p->n_parts, last = (part + 1) * n_tiles / p->n_parts;
    ht_product_out out = out_at(p, panel, n);
    for (int64_t block = 0; block < p->x.n_blocks; block += p->chunk) {
        int64_t count = ht_min_i64(p->chunk, p->x.n_blocks - block), column = block * HT_QBLOCK;
        for (int64_t i = 0; i < n; i++)
            p->kernels->words_convert[p->m->type](panel_at(p, panel + i), column,
                                                  ht_min_i64(count * HT_QBLOCK, p->m->k - column), &converted[i]);
        out.bias = block + count < p->x.n_blocks ? NULL : p->bias;
        p->kernels->words_multiply(converted, block, (int)count, &p->x, first, last, &out);
    }
}

/* Blocks of work are numbered part by part, so that neighbours in time share activations. */
static void multiply_converted(void *arg, int64_t begin, int64_t end, int worker) {
    const product *p = arg;
    ht_wpanel *converted = (void *)(p->converted + (size_t)worker * converted_bytes(p->kernels));
    for (int64_t i = begin; i < end; i++) multiply_group(p, i % p->n_groups, i / p->n_groups, converted);
}

static void multiply(product *p, ht_pool *pool) {
    int64_t wanted = (int64_t)ht_pool_threads(pool) * BLOCKS_PER_THREAD, n_tiles = ht_wtiles(&p->x);
    ht_pool_run(pool, n_tiles, 1, make_words, p);
    if (n_tiles == 1) {
        ht_pool_run(pool, p->n_panels, ht_max_i64(1, p->n_panels / wanted), multiply_direct, p);
        return;
    }
    p->chunk = ht_ceil_div_i64(p->x.n_blocks, ht_ceil_div_i64(p->x.n_blocks, HT_WCHUNK)); /* all about the same */
    p->n_groups = ht_ceil_div_i64(p->n_panels, p->kernels->tile_panels);
    int64_t for_cache = ht_ceil_div_i64((int64_t)q_bytes(p->x.n, p->m->k), ROWS_BYTES_MAX);
    int64_t for_threads = ht_min_i64(ht_ceil_div_i64(wanted, p->n_groups), ht_ceil_div_i64(n_tiles, 8));
    p->n_parts = ht_min_i64(ht_max_i64(for_cache, for_threads), n_tiles);
    ht_pool_run(pool, p->n_groups * p->n_parts, 1, multiply_converted, p);
}

size_t ht_half_scratch(const ht_matrix *m, int64_t n_x, int n_threads) {
    const ht_matrix_kernels *kernels = ht_kernels_of(m);
    if (!kernels->words_of) return ht_dense_scratch(m, n_x, n_threads);
    return q_bytes(n_x, m->k) + scale_bytes(n_x, m->k) + (size_t)n_threads * converted_bytes(kernels);
}

void ht_half_mul(const ht_matrix *m, const float *x, int64_t ldx, int64_t n_x, const float *bias, float *y, int64_t ldy,
                 void *scratch, ht_pool *pool) {
    const ht_matrix_kernels *kernels = ht_kernels_of(m);
    if (!kernels->words_of) {
        ht_dense_mul(m, x, ldx, n_x, bias, y, ldy, scratch, pool);
        return;
    }
    if (n_x <= 0) return;
    char *q = scratch, *scale = q + q_bytes(n_x, m->k);
    product p = {.m = m, .kernels = kernels, .rows = x, .ldx = ldx, .bias = bias, .y = y, .ldy = ldy};
    p.x = (ht_wrows){.n = n_x, .n_blocks = blocks_of(m->k), .tile_rows = kernels->tile_rows};
    p.x.q = (void *)q;
    p.x.scale = (void *)scale;
    p.converted = scale + scale_bytes(n_x, m->k);
    p.n_panels = ht_panel_count(m->n_rows);
    multiply(&p, pool);
}
