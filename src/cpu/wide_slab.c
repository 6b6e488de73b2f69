#include "cpu/wide_slab.h"

#include "base/checked.h"
#include "cpu/matrix_ops.h"

#include <string.h>

enum { STRETCH = 256 }; /* columns that are decoded at a time: whole groups of every type */

/* Types whose panels are decoded sixteen rows at a time; others give their rows one by one. */
static bool by_panels(const ht_matrix *m) {
    if (m->ops->row != ht_panels_row || ht_is_coarse_head(m)) return false;
    const ht_panel_layout *l = ht_panel_layout_of(m->type);
    return (l->bits && !l->unpacked) || m->type <= HT_W_BF16;
}

int64_t ht_slab_room(const ht_matrix *m) { return by_panels(m) ? STRETCH * HT_PANEL : ht_slab_columns(m); }

static float *column_panel(const ht_wide_slab *s, int64_t panel, int64_t row) {
    return s->columns + (panel * HT_SLAB + row) * HT_PANEL;
}

static float *row_panel(const ht_wide_slab *s, int64_t panel, int64_t column) {
    return s->rows + (panel * ht_slab_columns(s->m) + column) * HT_PANEL;
}

static void decode_row(const ht_wide_slab *s, int64_t row, float *room) {
    const ht_matrix *m = s->m;
    const int64_t columns = ht_slab_columns(m);
    (void)m->ops->row(m, s->row + row, room, NULL); /* fails only for tables in files */
    for (int64_t c = m->k; c < columns; c++) room[c] = 0;
    for (int64_t c = 0; s->columns && c < columns; c += HT_PANEL)
        memcpy(column_panel(s, c / HT_PANEL, row), room + c, HT_PANEL * sizeof *room);
    float *to = s->rows ? row_panel(s, row / HT_PANEL, 0) + row % HT_PANEL : NULL;
    for (int64_t c = 0; to && c < columns; c++) to[c * HT_PANEL] = room[c];
}

/* Columns [column, column + n) of panel i of the slab. */
static void decode_stretch(const ht_wide_slab *s, int64_t i, int64_t column, int64_t n, float *room) {
    const ht_matrix *m = s->m;
    const ht_matrix_kernels *kernels = ht_kernels_of(m);
    const char *panel = (const char *)m->packed + (size_t)(s->row / HT_PANEL + i) * ht_panel_bytes(m->type, m->k);
    float *to = s->rows ? row_panel(s, i, column) : room;
    if (ht_panel_layout_of(m->type)->bits)
        kernels->widen_blocks(m->type, panel, m->k, column / HT_QBLOCK, (int)(n / HT_QBLOCK), to);
    else
        kernels->widen[m->type](panel, column, (int)n, to);
    for (int64_t c = n; c % HT_PANEL; c++) memset(to + c * HT_PANEL, 0, HT_PANEL * sizeof *to);
    for (int64_t c = 0; s->columns && c < n; c += HT_PANEL)
        kernels->transpose(to + c * HT_PANEL, HT_PANEL, HT_PANEL,
                           column_panel(s, (column + c) / HT_PANEL, i * HT_PANEL));
}

static void decode_rows(void *arg, int64_t begin, int64_t end, int worker) {
    const ht_wide_slab *s = arg;
    for (int64_t i = begin; i < end; i++) decode_row(s, i, s->room + worker * ht_slab_room(s->m));
}

static void decode_stretches(void *arg, int64_t begin, int64_t end, int worker) {
    const ht_wide_slab *s = arg;
    const int64_t panels = ht_panel_count(s->n_rows);
    for (int64_t i = begin; i < end; i++) {
        const int64_t column = i / panels * STRETCH;
        decode_stretch(s, i % panels, column, ht_min_i64(STRETCH, s->m->k - column),
                       s->room + worker * ht_slab_room(s->m));
    }
}

void ht_slab_decode(const ht_wide_slab *s, ht_pool *pool) {
    ht_wide_slab *arg = (ht_wide_slab *)(uintptr_t)s;
    if (by_panels(s->m)) {
        ht_pool_run(pool, ht_panel_count(s->n_rows) * ht_ceil_div_i64(s->m->k, STRETCH), 1, decode_stretches, arg);
        return;
    }
    /* Rows of a panel that do not exist. */
    const int64_t last = ht_panel_count(s->n_rows) - 1;
    if (s->rows && s->n_rows % HT_PANEL)
        memset(row_panel(s, last, 0), 0, (size_t)(ht_slab_columns(s->m) * HT_PANEL) * sizeof *s->rows);
    ht_pool_run(pool, s->n_rows, 4, decode_rows, arg);
}
