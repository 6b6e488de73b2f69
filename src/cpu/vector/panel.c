/* Inner multiply-add loop of matrix products and attention: a block of rows by panels of sixteen columns, with all sums
 * in registers. */
#include "cpu/vector/panel.h"

/* Register blocking: 14 rows by 2 panels of sums, 2 vectors of the right operand and one broadcast element in AVX-512's
 * 32 registers; elsewhere a panel takes two or four registers. Fewer than LEAST rows give too few independent
 * additions. */
#if defined(HT_ISA_avx512)
enum { ROWS = 14, LEAST = 6, WIDEST = 8 };
#else
enum { ROWS = 6, LEAST = 3, WIDEST = 4 };
#endif

/* prefetch distance in steps */
enum { PREFETCH_STEPS = 8 };

/* One address register per three rows. */
enum { THIRDS = (ROWS + 2) / 3 };

/* The last panel of a block may be partial. Masked accesses are free only with AVX-512. */
HT_INLINE v16f load_part(const float *p, int n, bool whole) {
#if !defined(HT_ISA_avx512)
    whole |= n == 16;
#endif
    return whole ? v16f_load(p) : v16f_load_n(p, n);
}
HT_INLINE void store_part(float *p, v16f v, int n, bool whole) {
#if !defined(HT_ISA_avx512)
    whole |= n == 16;
#endif
    if (whole)
        v16f_store(p, v);
    else
        v16f_store_n(p, v, n);
}

#define EACH_SUM                                                                                                       \
    HT_UNROLL                                                                                                          \
    for (int i = 0; i < m; i++) HT_UNROLL                                                                              \
    for (int p = 0; p < panels; p++)

HT_INLINE void block(const panel_product *t, const float *left, int64_t row, int64_t panel, int lanes, int m,
                     int panels) {
    v16f sum[ROWS][WIDEST];
    const float *a[THIRDS], *b = t->b + panel * t->b_panel, *const factor = t->factor ? t->factor + row : NULL;
    float *const c = t->c + row * t->c_row + 16 * panel;
    const int64_t a_row = t->left.row, a_step = t->left.step, b_step = t->b_step, b_panel = t->b_panel,
                  c_row = t->c_row;
    const int64_t ahead = PREFETCH_STEPS * b_step; /* hardware prefetchers do not follow large strides */
    panel_mode mode = t->mode;
    HT_UNROLL
    for (int i = 0; i < THIRDS; i++) a[i] = left + 3 * i * a_row;
    int64_t rest = t->k;
    do {
        const int64_t steps = t->chunk && t->chunk < rest ? t->chunk : rest;
        EACH_SUM sum[i][p] = v16f_zero();
        if (mode == PANEL_CONTINUE) {
            EACH_SUM sum[i][p] = load_part(c + i * c_row + 16 * p, lanes, p < panels - 1);
        } else {
            EACH_SUM HT_PREFETCH(c + i * c_row + 16 * p); /* sums are written later */
        }
        for (int64_t s = steps; s > 0; s--, b += b_step) {
            v16f y[WIDEST];
            HT_UNROLL
            for (int p = 0; p < panels; p++) {
                y[p] = v16f_load(b + p * b_panel);
                HT_PREFETCH(b + p * b_panel + ahead);
            }
            HT_UNROLL
            for (int i = 0; i < m; i++) {
                v16f x = v16f_set1(a[i / 3][i % 3 * a_row]);
                HT_UNROLL
                for (int p = 0; p < panels; p++) sum[i][p] = v16f_fma(x, y[p], sum[i][p]);
            }
            HT_UNROLL
            for (int i = 0; i < (m + 2) / 3; i++) a[i] += a_step;
        }
        if (mode == PANEL_ADD) {
            EACH_SUM sum[i][p] = v16f_add(load_part(c + i * c_row + 16 * p, lanes, p < panels - 1), sum[i][p]);
        } else if (mode == PANEL_SCALE) {
            EACH_SUM sum[i][p] =
                v16f_fma(load_part(c + i * c_row + 16 * p, lanes, p < panels - 1), v16f_set1(factor[i]), sum[i][p]);
        }
        EACH_SUM store_part(c + i * c_row + 16 * p, sum[i][p], lanes, p < panels - 1);
        mode = PANEL_ADD;
        rest -= steps;
    } while (rest > 0);
}

/* X(rows, panels) for every block size; fewer rows take more panels. */
#if defined(HT_ISA_avx512)
#define BLOCKS_OF_8(X, m) X(m, 8) X(m, 4) X(m, 2) X(m, 1)
#define BLOCKS_OF_4(X, m) X(m, 4) X(m, 2) X(m, 1)
#define BLOCKS_OF_2(X, m) X(m, 2) X(m, 1)
#define BLOCKS(X)                                                                                                      \
    BLOCKS_OF_8(X, 1)                                                                                                  \
    BLOCKS_OF_8(X, 2)                                                                                                  \
    BLOCKS_OF_8(X, 3)                                                                                                  \
    BLOCKS_OF_4(X, 4)                                                                                                  \
    BLOCKS_OF_4(X, 5)                                                                                                  \
    BLOCKS_OF_4(X, 6)                                                                                                  \
    BLOCKS_OF_2(X, 7)                                                                                                  \
    BLOCKS_OF_2(X, 8)                                                                                                  \
    BLOCKS_OF_2(X, 9)                                                                                                  \
    BLOCKS_OF_2(X, 10)                                                                                                 \
    BLOCKS_OF_2(X, 11)                                                                                                 \
    BLOCKS_OF_2(X, 12)                                                                                                 \
    BLOCKS_OF_2(X, 13)                                                                                                 \
    BLOCKS_OF_2(X, 14)
static int widest(int64_t rows) { return rows <= 3 ? 8 : rows <= 6 ? 4 : 2; }
#else
#define BLOCKS(X) X(1, 4) X(1, 2) X(1, 1) X(2, 2) X(2, 1) X(3, 1) X(4, 1) X(5, 1) X(6, 1)
static int widest(int64_t rows) { return rows == 1 ? 4 : rows == 2 ? 2 : 1; }
#endif

static void run_block(const panel_product *t, const float *left, int64_t row, int m, int64_t panel, int panels,
                      int lanes) {
#define RUN_BLOCK(rows, wide)                                                                                          \
    case 16 * (rows) + (wide): block(t, left, row, panel, lanes, rows, wide); break;
    switch (16 * m + panels) { BLOCKS(RUN_BLOCK) }
}

/* Rows per block, chosen so that the remainder is not too small. */
int HT_ISA_NAME(ht_panel_rows)(int64_t m) {
    if (m <= ROWS) return m > 0 ? (int)m : 1;
    for (int rows = ROWS; rows > LEAST; rows--)
        if (m % rows == 0 || m % rows >= LEAST) return rows;
    return ROWS;
}

/* Rows [row, end) by panels [first, last), block by block. */
static void run_blocks(const panel_product *t, int rows, int64_t row, int64_t end, int64_t first, int64_t last) {
    int panels = widest(rows);
    for (int64_t panel = first; panel < last; panel += panels) {
        while (panel + panels > last) panels /= 2;
        const int lanes = lanes_count(t->n - 16 * (panel + panels - 1));
        for (int64_t r = row, m; r < end; r += m) {
            m = rows < end - r ? rows : end - r;
            const float *left = t->left.at + (t->tile ? r / rows * t->tile : r * t->left.row);
            run_block(t, left, r, (int)m, panel, panels, lanes);
        }
    }
}

/* Loop order: a right operand of at most this many floats stays in cache for all row blocks; for a larger one, the left
 * operand and a few panels stay in cache. */
enum { RIGHT_FLOATS = 1 << 15 };

void HT_ISA_NAME(ht_panel_multiply)(const panel_product *t) {
    const int64_t n_panels = (t->n + 15) / 16;
    const int rows = HT_ISA_NAME(ht_panel_rows)(t->m);
    if (16 * n_panels * t->k > RIGHT_FLOATS) {
        run_blocks(t, rows, 0, t->m, 0, n_panels);
        return;
    }
    for (int64_t row = 0; row < t->m; row += rows)
        run_blocks(t, rows, row, row + rows < t->m ? row + rows : t->m, 0, n_panels);
}
