/* Products with the transposed matrix, dy W, for gradients: weights become exact f32 slab by slab, and the kernels of dense
 * products sum over the rows of W in their order. */
#include "base/checked.h"
#include "cpu/matrix_ops.h"
#include "cpu/wide_slab.h"

typedef struct product {
    ht_product of;
    ht_wide_slab slab;
    int64_t x_parts; /* parts into which the rows of x are split */
} product;

static void multiply_groups(void *arg, int64_t begin, int64_t end, int worker) {
    (void)worker;
    const product *p = arg;
    const ht_product *of = &p->of;
    const ht_matrix_kernels *kernels = ht_kernels_of(of->m);
    const int64_t tile = kernels->tile_rows[0], tiles = ht_ceil_div_i64(of->n_x, tile);
    for (int64_t piece = begin; piece < end; piece++) {
        const int64_t panel = piece / p->x_parts * kernels->tile_panels, part = piece % p->x_parts;
        const int64_t column = panel * HT_PANEL, last = (part + 1) * tiles / p->x_parts;
        for (int64_t t = part * tiles / p->x_parts; t < last; t++) {
            const int64_t i = t * tile;
            const ht_gemm_out out = {.y = of->y + i * of->ldy,
                                     .ldy = of->ldy,
                                     .row = column,
                                     .n = ht_min_i64(kernels->tile_panels * HT_PANEL, of->m->k - column)};
            kernels->dense[HT_W_F32](p->slab.columns + panel * HT_SLAB * HT_PANEL, HT_SLAB * HT_PANEL, p->slab.row,
                                     (int)p->slab.n_rows, of->x + i * of->ldx, of->ldx,
                                     (int)ht_min_i64(tile, of->n_x - i), &out);
        }
    }
}

size_t ht_back_scratch(const ht_matrix *m, int n_threads) {
    return (size_t)(ht_slab_floats(m) + n_threads * ht_slab_room(m)) * sizeof(float);
}

void ht_back_mul(const ht_product *of, void *scratch, ht_pool *pool) {
    const ht_matrix *m = of->m;
    const ht_matrix_kernels *kernels = ht_kernels_of(m);
    float *columns = scratch;
    product p = {.of = *of, .slab = {.m = m, .columns = columns, .room = columns + ht_slab_floats(m)}};
    const int64_t groups = ht_ceil_div_i64(ht_slab_columns(m) / HT_PANEL, kernels->tile_panels);
    const int64_t wanted = 8 * (int64_t)ht_pool_threads(pool);
    p.x_parts = ht_min_i64(ht_ceil_div_i64(wanted, groups), ht_ceil_div_i64(of->n_x, kernels->tile_rows[0]));
    for (; p.slab.row < m->n_rows && of->n_x > 0; p.slab.row += HT_SLAB) {
        p.slab.n_rows = ht_min_i64(HT_SLAB, m->n_rows - p.slab.row);
        ht_slab_decode(&p.slab, pool);
        ht_pool_run(pool, groups * p.x_parts, 1, multiply_groups, &p);
    }
}
