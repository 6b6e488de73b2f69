/* Slabs of packed weights as exact f32, for products that need other than the packed order: gradients, and losses over a
 * vocabulary. */
#ifndef HT_CPU_WIDE_SLAB_H
#define HT_CPU_WIDE_SLAB_H

#include "cpu/matrix_kernels.h"

enum { HT_SLAB = HT_DENSE_CHUNK /* rows of W at a time */ };

/* Rows [row, row + n_rows) of a matrix, n_rows <= HT_SLAB and row a multiple of it, in one order or both; NULL: not wanted.
 * Padding at the ends of rows and columns is zero, except rows from n_rows on in `columns`. */
typedef struct ht_wide_slab {
    const ht_matrix *m;
    int64_t row, n_rows;
    float *columns; /* [panels of 16 columns][HT_SLAB rows][16] */
    float *rows;    /* [panels of 16 rows][k, rounded up to 16][16] */
    float *room;    /* ht_slab_room floats per worker */
} ht_wide_slab;

static inline int64_t ht_slab_columns(const ht_matrix *m) { return (m->k + HT_PANEL - 1) / HT_PANEL * HT_PANEL; }
/* Floats of `columns` and of `rows`. */
static inline int64_t ht_slab_floats(const ht_matrix *m) { return ht_slab_columns(m) * HT_SLAB; }
int64_t ht_slab_room(const ht_matrix *m);

void ht_slab_decode(const ht_wide_slab *s, ht_pool *pool);

#endif
