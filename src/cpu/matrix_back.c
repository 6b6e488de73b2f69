/* Products with the transposed matrix, dy W, for gradients: weights become exact f32 in slabs of rows, in panels of sixteen
 * columns, and the kernels of dense products sum over the rows of W in their order. */
#include "base/checked.h"
#include "cpu/coarse_head.h"
#include "cpu/matrix_ops.h"

#include <string.h>

enum {
    SLAB = HT_DENSE_CHUNK, /* rows of W at a time */
    STRETCH = 256          /* columns that are decoded at a time: whole groups of every type */
};

typedef struct product {
    const ht_matrix *m;
    const ht_matrix_kernels *kernels;
    const float *dy;
    int64_t ldy, n_x;
    float *dx;
    int64_t ldx;
    int64_t row, n_rows;     /* of the slab */
    int64_t panels, x_parts; /* of 16 columns; and what the rows of x are cut into */
    float *slab;             /* [panels][SLAB][16] */
    float *room;             /* room_floats per worker */
} product;

static int64_t column_panels(const ht_matrix *m) { return ht_ceil_div_i64(m->k, HT_PANEL); }

/* Types whose panels are decoded sixteen rows at a time; others give their rows one by one. */
static bool by_panels(const ht_matrix *m) {
    const ht_matrix_kernels *kernels = ht_kernels_of(m);
    if (m->ops->row != ht_panels_row || ht_is_coarse_head(m)) return false;
    return kernels->widen_blocks[m->type] || m->type <= HT_W_BF16;
}

static int64_t room_floats(const ht_matrix *m) {
    return by_panels(m) ? STRETCH * HT_PANEL : (m->k + HT_PANEL - 1) / HT_PANEL * HT_PANEL;
}

static float *slab_at(const product *p, int64_t panel, int64_t row) {
    return p->slab + (panel * SLAB + row) * HT_PANEL;
}

/* ---- decoding a slab ---- */

static void decode_row(const product *p, int64_t row, float *room) {
    const ht_matrix *m = p->m;
    (void)m->ops->row(m, p->row + row, room, NULL); /* fails only for tables in files */
    for (int64_t c = m->k; c < p->panels * HT_PANEL; c++) room[c] = 0;
    for (int64_t i = 0; i < p->panels; i++) memcpy(slab_at(p, i, row), room + i * HT_PANEL, HT_PANEL * sizeof *room);
}

/* Columns [column, column + n) of panel i of the slab. */
static void decode_stretch(const product *p, int64_t i, int64_t column, int64_t n, float *room) {
    const ht_matrix *m = p->m;
    const char *panel = (const char *)m->packed + (size_t)(p->row / HT_PANEL + i) * ht_panel_bytes(m->type, m->k);
    if (p->kernels->widen_blocks[m->type])
        p->kernels->widen_blocks[m->type](panel, m->k, column / HT_QBLOCK, (int)(n / HT_QBLOCK), room);
    else
        p->kernels->widen[m->type](panel, column, (int)n, room);
    for (int64_t c = n; c % HT_PANEL; c++) memset(room + c * HT_PANEL, 0, HT_PANEL * sizeof *room);
    for (int64_t c = 0; c < n; c += HT_PANEL)
        p->kernels->transpose(room + c * HT_PANEL, HT_PANEL, HT_PANEL,
                              slab_at(p, (column + c) / HT_PANEL, i * HT_PANEL));
}

static void decode_rows(void *arg, int64_t begin, int64_t end, int worker) {
    const product *p = arg;
    for (int64_t i = begin; i < end; i++) decode_row(p, i, p->room + worker * room_floats(p->m));
}

static void decode_stretches(void *arg, int64_t begin, int64_t end, int worker) {
    const product *p = arg;
    const int64_t panels = ht_panel_count(p->n_rows);
    for (int64_t i = begin; i < end; i++) {
        const int64_t column = i / panels * STRETCH;
        decode_stretch(p, i % panels, column, ht_min_i64(STRETCH, p->m->k - column),
                       p->room + worker * room_floats(p->m));
    }
}

static void decode_slab(product *p, ht_pool *pool) {
    if (by_panels(p->m))
        ht_pool_run(pool, ht_panel_count(p->n_rows) * ht_ceil_div_i64(p->m->k, STRETCH), 1, decode_stretches, p);
    else
        ht_pool_run(pool, p->n_rows, 4, decode_rows, p);
}

/* ---- multiplying by it ---- */

static void multiply_groups(void *arg, int64_t begin, int64_t end, int worker) {
    (void)worker;
    const product *p = arg;
    const ht_matrix_kernels *kernels = p->kernels;
    const int64_t tile = kernels->tile_rows, tiles = ht_ceil_div_i64(p->n_x, tile);
    for (int64_t piece = begin; piece < end; piece++) {
        const int64_t panel = piece / p->x_parts * kernels->tile_panels, part = piece % p->x_parts,
                      column = panel * HT_PANEL;
        const int64_t last = (part + 1) * tiles / p->x_parts;
        for (int64_t t = part * tiles / p->x_parts; t < last; t++) {
            const int64_t i = t * tile;
            const ht_gemm_out out = {.y = p->dx + i * p->ldx,
                                     .ldy = p->ldx,
                                     .row = column,
                                     .n = ht_min_i64(kernels->tile_panels * HT_PANEL, p->m->k - column)};
            kernels->dense[HT_W_F32](slab_at(p, panel, 0), SLAB * HT_PANEL, p->row, (int)p->n_rows, p->dy + i * p->ldy,
                                     p->ldy, (int)ht_min_i64(tile, p->n_x - i), &out);
        }
    }
}

size_t ht_back_scratch(const ht_matrix *m, int n_threads) {
    const int64_t slab = column_panels(m) * SLAB * HT_PANEL;
    return (size_t)(slab + n_threads * room_floats(m)) * sizeof(float);
}

void ht_back_mul(const ht_matrix *m, const float *dy, int64_t ldy, int64_t n_x, float *dx, int64_t ldx, void *scratch,
                 ht_pool *pool) {
    product p = {.m = m, .kernels = ht_kernels_of(m), .dy = dy, .ldy = ldy, .n_x = n_x, .dx = dx, .ldx = ldx};
    p.panels = column_panels(m);
    p.slab = scratch;
    p.room = p.slab + p.panels * SLAB * HT_PANEL;
    const int64_t groups = ht_ceil_div_i64(p.panels, p.kernels->tile_panels),
                  wanted = 8 * (int64_t)ht_pool_threads(pool);
    p.x_parts = ht_min_i64(ht_ceil_div_i64(wanted, groups), ht_ceil_div_i64(n_x, p.kernels->tile_rows));
    for (p.row = 0; p.row < m->n_rows && n_x > 0; p.row += SLAB) {
        p.n_rows = ht_min_i64(SLAB, m->n_rows - p.row);
        decode_slab(&p, pool);
        ht_pool_run(pool, groups * p.x_parts, 1, multiply_groups, &p);
    }
}
