/* Products with quantised weights: the activations quantised tile by tile, then the panels of all matrices that read them
 * cut into one list of work for the pool. */
#include "base/checked.h"
#include "cpu/split.h"

enum {
    DIRECT_TILES = 2,            /* up to so many tiles of rows, decoding weights in registers beats keeping them */
    ROWS_BYTES_MAX = 768 * 1024, /* activations that stay in the second-level cache while all weights pass */
    BLOCKS_PER_THREAD = 8        /* so that a thread that lost its core for a while does not hold up the others */
};

static size_t round_up_64(size_t n) { return (n + 63) & ~(size_t)63; }

/* ---- memory ---- */

static size_t q_bytes(int64_t n, int64_t k) { return round_up_64((size_t)(n * k)); }
static size_t scale_bytes(int64_t n, int64_t k) { return round_up_64((size_t)(n * (k / HT_QBLOCK)) * sizeof(float)); }
static size_t sum_bytes(int64_t n, int64_t k) {
    return round_up_64((size_t)(n * (k / HT_QBLOCK)) * 2 * sizeof(int32_t));
}

static size_t offset_bytes(ht_weight_type type, int64_t n, int64_t k) {
    return round_up_64((size_t)(n * (k / HT_QBLOCK) * ht_panel_layout_of(type)->halves) * 4);
}

static size_t decoded_bytes(const ht_matrix_kernels *kernels) {
    return round_up_64((size_t)kernels->tile_panels * sizeof(ht_qpanel));
}

/* The first product whose weights are of the type of product i: they share their offsets. */
static int first_alike(const ht_product *product, int i) {
    int first = 0;
    while (product[first].m->type != product[i].m->type) first++;
    return first;
}

size_t ht_quantised_scratch(const ht_product *product, int n, int64_t n_x, int n_threads) {
    int64_t k = product->m->k;
    size_t bytes = q_bytes(n_x, k) + scale_bytes(n_x, k) + sum_bytes(n_x, k);
    for (int i = 0; i < n; i++)
        if (first_alike(product, i) == i) bytes += offset_bytes(product[i].m->type, n_x, k);
    for (int i = 0; i < n; i++)
        if (n_x == 1 && ht_is_split(product[i].m)) bytes += ht_split_top_scratch(product[i].m);
    return bytes + (size_t)n_threads * decoded_bytes(ht_kernels_of(product->m));
}

void ht_quantised_begin(ht_quantised *s, const ht_product *product, int n, int64_t n_x, void *scratch) {
    const ht_matrix_kernels *kernels = ht_kernels_of(product->m);
    int64_t k = product->m->k;
    char *at = scratch;
    *s = (ht_quantised){.kernels = kernels, .n = n, .product = product};
    int64_t n_tiles = n_x <= kernels->direct_rows ? 1 : ht_ceil_div_i64(n_x, kernels->tile_rows);
    s->x = (ht_qrows){.n = n_x, .n_blocks = k / HT_QBLOCK, .n_tiles = n_tiles};
    s->x.tile_rows = n_x / s->x.n_tiles;
    s->x.n_larger = n_x % s->x.n_tiles;
    s->x.q = (void *)at, at += q_bytes(n_x, k);
    s->x.scale = (void *)at, at += scale_bytes(n_x, k);
    s->x.sum = (void *)at, at += sum_bytes(n_x, k);
    for (int i = 0; i < n; i++) {
        int first = first_alike(product, i);
        s->offset[i] = first < i ? s->offset[first] : at;
        if (first == i) at += offset_bytes(product[i].m->type, n_x, k);
    }
    s->top = at;
    for (int i = 0; i < n; i++)
        if (n_x == 1 && ht_is_split(product[i].m)) at += ht_split_top_scratch(product[i].m);
    s->decoded = at;
}

/* ---- activations ---- */

void ht_quantised_take(const ht_quantised *s, int64_t tile, const float *x, int64_t ldx) {
    const ht_qrows *rows = &s->x;
    int64_t first = ht_qtile_first(rows, tile), at = first * rows->n_blocks;
    int n = ht_qtile_rows(rows, tile);
    s->kernels->quantise(x + first * ldx, ldx, n, rows->n_blocks, rows->q + at * HT_QBLOCK, rows->scale + at,
                         rows->sum + 2 * at);
    for (int i = 0; i < s->n; i++) {
        ht_weight_type type = s->product[i].m->type;
        if (first_alike(s->product, i) == i)
            s->kernels->offsets(type, rows->sum + 2 * at, n, rows->n_blocks,
                                s->offset[i] + 4 * ht_panel_layout_of(type)->halves * at);
    }
}

/* ---- the products ---- */

/* The pieces of one product, of which workers take one at a time. */
typedef struct pieces {
    int64_t first, n_panels, n_groups; /* a group is what the kernels take at a time */
    int64_t grain;                     /* panels per piece, for few rows */
    int64_t chunk;                     /* blocks decoded at a time, for many */
} pieces;

typedef struct work {
    const ht_quantised *s;
    int64_t n_parts; /* of the tiles */
    pieces of[HT_MAX_PRODUCTS];
} work;

static const uint8_t *panel_at(const ht_product *p, int64_t panel) {
    return (const uint8_t *)p->m->packed + (size_t)panel * ht_panel_bytes(p->m->type, p->m->k);
}

/* Where rows [panel, panel + n_panels) of y go. */
static ht_product_out out_at(const ht_product *p, int64_t panel, int64_t n_panels) {
    int64_t row = panel * HT_PANEL, left = p->m->n_rows - row;
    return (ht_product_out){
        .y = p->y, .ldy = p->ldy, .bias = p->bias, .row = row, .n = ht_min_i64(n_panels * HT_PANEL, left)};
}

static int product_of(const work *w, int64_t piece) {
    int i = w->s->n - 1;
    while (w->of[i].first > piece) i--;
    return i;
}

static void multiply_direct(void *arg, int64_t begin, int64_t end, int worker) {
    (void)worker;
    const work *w = arg;
    const ht_quantised *s = w->s;
    for (int64_t piece = begin; piece < end; piece++) {
        int i = product_of(w, piece);
        const ht_product *p = &s->product[i];
        int64_t panel = (piece - w->of[i].first) * w->of[i].grain;
        ht_qtiles tiles = {&s->x, s->offset[i], 0, s->x.n_tiles};
        ht_product_out out = out_at(p, panel, ht_min_i64(w->of[i].grain, w->of[i].n_panels - panel));
        if (ht_is_split(p->m))
            s->kernels->split_direct(ht_split_panels_at(p->m, panel), p->m->k, &tiles, &out);
        else
            s->kernels->direct[p->m->type](panel_at(p, panel), p->m->k, &tiles, &out);
    }
}

static void decode(const ht_quantised *s, const ht_product *p, int64_t panel, int64_t block, int n, ht_qpanel *to) {
    if (ht_is_split(p->m))
        s->kernels->split_decode(ht_split_panels_at(p->m, panel), p->m->k, block, n, to);
    else
        s->kernels->decode[p->m->type](panel_at(p, panel), p->m->k, block, n, to);
}

/* One group of panels against one part of the tiles: a chunk of blocks at a time is decoded, small enough for the first
 * cache, and meets every tile. */
static void multiply_group(const work *w, int i, int64_t group, int64_t part, ht_qpanel *decoded) {
    const ht_quantised *s = w->s;
    const ht_product *p = &s->product[i];
    const ht_matrix_kernels *kernels = s->kernels;
    ht_weight_type type = p->m->type;
    int64_t panel = group * kernels->tile_panels, n = ht_min_i64(kernels->tile_panels, w->of[i].n_panels - panel);
    ht_qtiles tiles = {&s->x, s->offset[i], part * s->x.n_tiles / w->n_parts, (part + 1) * s->x.n_tiles / w->n_parts};
    ht_product_out out = out_at(p, panel, n);
    for (int64_t block = 0; block < s->x.n_blocks; block += w->of[i].chunk) {
        int count = (int)ht_min_i64(w->of[i].chunk, s->x.n_blocks - block);
        for (int64_t j = 0; j < n; j++) decode(s, p, panel + j, block, count, &decoded[j]);
        out.bias = block + count < s->x.n_blocks ? NULL : p->bias;
        kernels->decoded[type](decoded, block, count, &tiles, &out);
    }
}

/* The pieces of a product are numbered part by part, so that neighbours in time share activations. */
static void multiply_decoded(void *arg, int64_t begin, int64_t end, int worker) {
    const work *w = arg;
    ht_qpanel *decoded = (void *)(w->s->decoded + (size_t)worker * decoded_bytes(w->s->kernels));
    for (int64_t piece = begin; piece < end; piece++) {
        int i = product_of(w, piece);
        int64_t at = piece - w->of[i].first;
        multiply_group(w, i, at % w->of[i].n_groups, at / w->of[i].n_groups, decoded);
    }
}

/* Chunks of about the same size, as many whole scale units as HT_QCHUNK holds at most. */
static int64_t chunk_of(ht_weight_type type, int64_t n_blocks) {
    int64_t group = ht_panel_layout_of(type)->group, groups = n_blocks / group, most = HT_QCHUNK / group;
    return ht_ceil_div_i64(groups, ht_ceil_div_i64(groups, most)) * group;
}

void ht_quantised_multiply(const ht_quantised *s, ht_pool *pool) {
    if (s->product->top_k && ht_split_top(s, pool)) return;
    work w = {.s = s};
    int64_t wanted = (int64_t)ht_pool_threads(pool) * BLOCKS_PER_THREAD, n_panels = 0, n_groups = 0, n_pieces = 0;
    for (int i = 0; i < s->n; i++) {
        pieces *of = &w.of[i];
        of->n_panels = ht_panel_count(s->product[i].m->n_rows);
        of->n_groups = ht_ceil_div_i64(of->n_panels, s->kernels->tile_panels);
        of->chunk = chunk_of(s->product[i].m->type, s->x.n_blocks);
        n_panels += of->n_panels;
        n_groups += of->n_groups;
    }
    bool direct = s->x.n_tiles <= DIRECT_TILES;
    int64_t grain = ht_max_i64(1, n_panels / wanted);
    int64_t parts_for_cache = ht_ceil_div_i64(s->x.n * s->x.n_blocks * HT_QBLOCK, ROWS_BYTES_MAX);
    int64_t parts_for_threads = ht_min_i64(ht_ceil_div_i64(wanted, n_groups), ht_ceil_div_i64(s->x.n_tiles, 8));
    w.n_parts = ht_min_i64(ht_max_i64(parts_for_cache, parts_for_threads), s->x.n_tiles);
    for (int i = 0; i < s->n; i++) {
        pieces *of = &w.of[i];
        of->first = n_pieces;
        of->grain = grain;
        n_pieces += direct ? ht_ceil_div_i64(of->n_panels, grain) : of->n_groups * w.n_parts;
    }
    ht_pool_run(pool, n_pieces, 1, direct ? multiply_direct : multiply_decoded, &w);
}

/* ---- one matrix ---- */

typedef struct take_job {
    const ht_quantised *s;
    const float *x;
    int64_t ldx;
} take_job;

static void take_tiles(void *arg, int64_t begin, int64_t end, int worker) {
    (void)worker;
    const take_job *job = arg;
    for (int64_t t = begin; t < end; t++) ht_quantised_take(job->s, t, job->x, job->ldx);
}

size_t ht_fast_scratch(const ht_matrix *m, int64_t n_x, int n_threads) {
    return ht_quantised_scratch(&(ht_product){.m = m}, 1, n_x, n_threads);
}

void ht_fast_mul_top(const ht_matrix *m, int32_t top_k, const float *x, int64_t ldx, int64_t n_x, const float *bias,
                     float *y, int64_t ldy, void *scratch, ht_pool *pool) {
    const ht_product product = {m, bias, y, ldy, top_k};
    ht_quantised s;
    if (n_x <= 0) return;
    ht_quantised_begin(&s, &product, 1, n_x, scratch);
    ht_pool_run(pool, s.x.n_tiles, 1, take_tiles, &(take_job){&s, x, ldx});
    ht_quantised_multiply(&s, pool);
}

void ht_fast_mul(const ht_matrix *m, const float *x, int64_t ldx, int64_t n_x, const float *bias, float *y, int64_t ldy,
                 void *scratch, ht_pool *pool) {
    ht_fast_mul_top(m, 0, x, ldx, n_x, bias, y, ldy, scratch, pool);
}
