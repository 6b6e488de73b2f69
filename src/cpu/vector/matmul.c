/* Products of f32, f16 and bf16 arrays of any strides; the plain kernel takes the other dtypes.
 *
 * Rows of a and columns of b, both called lines, are first brought into panels of f32: 16 lines by a chunk of k,
 * [steps][16]. A tile is then some rows by some panels of columns, with all sums in registers. Everything is done for a
 * block of the result at a time, whose panels fit the second cache in pieces and the third one as a whole.
 *
 * The order of a sum depends on k alone: a chain of fused multiply-adds from 0 per CHUNK steps, and those added in order.
 * Sums are f32, and rounded once to the result's dtype. */
#include "base/checked.h"
#include "cpu/reference/reference.h"
#include "cpu/vector/lanes.h"
#include "cpu/vector/vector.h"

enum {
    CHUNK = 256,
    LINES = 16,           /* of a panel */
    BLOCK = 2048,         /* rows, and columns, of the result at a time, at most */
    PIECE_ROWS = 128,     /* what a thread takes at a time: the rows' panels are 128 KB, */
    PIECE_PANELS = 48,    /* the columns' 768 */
    DIRECT_ROWS = 8,      /* up to so many rows, columns that are adjacent are not worth copying */
    ALONE_WORK = 1 << 21, /* multiply-adds of one of many matrices, up to which threads take whole ones */
    INLINE_WORK = 1 << 16 /* multiply-adds that are done before another thread has even noticed */
};

#if defined(HT_ISA_avx512)
enum { TILE_ROWS = 8, TILE_PANELS = 3, WIDE_PANELS = 8 }; /* 24 sums in 32 registers; WIDE: of one or two rows */
#else
enum { TILE_ROWS = 4, TILE_PANELS = 1, WIDE_PANELS = 2 }; /* a panel's lanes are several registers already */
#endif

/* Lines of an operand: element s of line l at data[offset + l * line + s * step]. */
typedef struct operand {
    ht_dtype dtype;
    const void *data;
    int64_t offset, line, step, n;
} operand;

typedef struct matmul_job {
    const ht_call *call;
    ht_matmul_shape shape;
    int64_t n_matrices;
    operand a, b;                     /* of the matrix at work */
    int64_t row, n_rows, col, n_cols; /* the block at work */
    int64_t k, steps;                 /* the chunk at work */
    int64_t n_direct;                 /* panels of columns that are read where they are */
    int64_t piece_rows, n_row_pieces;
    float *a_panels, *b_panels, *sums; /* scratch; the sums are the result itself if it is f32 */
    int64_t ld_sums;
    char *out;  /* of the matrix at work */
    bool alone; /* all on this thread */
} matmul_job;

/* ---- panels ---- */

/* 16 rows of f32, ld apart, to [n][16]; n is a multiple of 4. */
HT_INLINE void transpose(const float *rows, int64_t ld, int64_t n, float *to) {
    for (int64_t s = 0; s < n; s += 4) {
        v16f v[4];
        for (int i = 0; i < 4; i++) {
            const float *p = rows + i * ld + s;
            v[i] = v16f_load_quads(p, p + 4 * ld, p + 8 * ld, p + 12 * ld);
        }
        v16f_transpose_quads(v);
        for (int i = 0; i < 4; i++) v16f_store(to + LINES * (s + i), v[i]);
    }
}

/* Steps [k, k + steps) of up to 16 lines from line `first` on; lines that are missing are 0. */
static void pack_panel(const operand *o, int64_t first, int64_t k, int64_t steps, float *to) {
    const int n = lanes_of(o->n - first);
    const int64_t at = o->offset + first * o->line + k * o->step, whole = steps / 4 * 4;
    int64_t done = 0;
    if (o->step == 1 && o->line != 1 && n == LINES && o->dtype == HT_F32) {
        transpose((const float *)o->data + at, o->line, whole, to);
        done = whole;
    } else if (o->step == 1 && o->line != 1) {
        float room[LINES][CHUNK];
        memset(room[n], 0, (size_t)(LINES - n) * sizeof *room);
        for (int i = 0; i < n; i++)
            for (int64_t s = 0; s < whole; s += 16)
                v16f_store(room[i] + s, lanes_load(o->dtype, o->data, at + i * o->line + s, 1, lanes_of(whole - s)));
        transpose(room[0], CHUNK, whole, to);
        done = whole;
    }
    for (int64_t s = done; s < steps; s++)
        v16f_store(to + LINES * s, lanes_load(o->dtype, o->data, at + s * o->step, o->line, n));
}

static int64_t panels_of(int64_t lines) { return ht_ceil_div_i64(lines, LINES); }

/* The panels of the block's rows, then those of its columns. */
static void pack_panels(void *arg, int64_t begin, int64_t end, int worker) {
    (void)worker;
    const matmul_job *job = arg;
    const int64_t n_a = panels_of(job->n_rows), floats = job->steps * LINES;
    for (int64_t i = begin; i < end; i++) {
        int64_t p = i < n_a ? i : i - n_a + job->n_direct;
        if (i < n_a)
            pack_panel(&job->a, job->row + p * LINES, job->k, job->steps, job->a_panels + p * floats);
        else
            pack_panel(&job->b, job->col + p * LINES, job->k, job->steps, job->b_panels + p * floats);
    }
}

/* ---- tiles ---- */

/* Where the rows and columns of a tile are: step s of row i at a[16 s + i], of panel p at b[s * b_step + p * b_panel]. */
typedef struct tile_at {
    const float *a, *b;
    int64_t b_step, b_panel, steps;
    bool adds; /* to what is there: not the first chunk */
    float *y;
    int64_t ldy;
    int lanes; /* of the last panel */
} tile_at;

HT_INLINE void tile(const tile_at *t, int m, int panels) {
    v16f sum[TILE_ROWS][WIDE_PANELS];
    const float *a = t->a, *b = t->b;
#pragma GCC unroll 8
    for (int i = 0; i < m; i++)
#pragma GCC unroll 8
        for (int p = 0; p < panels; p++) {
            sum[i][p] = v16f_zero();
            if (t->adds) HT_PREFETCH(t->y + i * t->ldy + LINES * p);
        }
    for (int64_t s = 0; s < t->steps; s++, a += LINES, b += t->b_step) {
        v16f w[WIDE_PANELS];
#pragma GCC unroll 8
        for (int p = 0; p < panels; p++) w[p] = v16f_load(b + p * t->b_panel);
#pragma GCC unroll 8
        for (int i = 0; i < m; i++) {
            v16f x = v16f_set1(a[i]);
#pragma GCC unroll 8
            for (int p = 0; p < panels; p++) sum[i][p] = v16f_fma(w[p], x, sum[i][p]);
        }
    }
#pragma GCC unroll 8
    for (int i = 0; i < m; i++)
#pragma GCC unroll 8
        for (int p = 0; p < panels; p++) {
            float *y = t->y + i * t->ldy + LINES * p;
            int lanes = p == panels - 1 ? t->lanes : LINES;
            v16f v = sum[i][p];
            if (t->adds) v = v16f_add(lanes == LINES ? v16f_load(y) : v16f_load_n(y, lanes), v);
            if (lanes == LINES)
                v16f_store(y, v);
            else
                v16f_store_n(y, v, lanes);
        }
}

/* X(rows, panels): the tiles there are. */
#if defined(HT_ISA_avx512)
#define TILES(X)                                                                                                       \
    X(8, 3) X(8, 2) X(8, 1) X(4, 3) X(4, 2) X(4, 1) X(2, 8) X(2, 3) X(2, 2) X(2, 1) X(1, 8) X(1, 3) X(1, 2) X(1, 1)
#else
#define TILES(X) X(4, 1) X(2, 2) X(2, 1) X(1, 2) X(1, 1)
#endif

static void run_tile(const tile_at *t, int m, int panels) {
#define RUN_TILE(rows, wide)                                                                                           \
    case 16 * (rows) + (wide): tile(t, rows, wide); break;
    switch (16 * m + panels) { TILES(RUN_TILE) }
}

/* Rows that go next: 7 as 4, 2 and 1. */
static int next_rows(int64_t left) {
    int m = TILE_ROWS;
    while (m > left) m /= 2;
    return m;
}

/* Rows [row, row + n) of the block, of one panel of rows, against `panels` panels of columns from `panel` on. */
static void run_tiles(const matmul_job *job, int64_t row, int64_t n, int64_t panel, int panels) {
    const int64_t floats = job->steps * LINES;
    const bool direct = panel < job->n_direct;
    tile_at t = {.b = job->b_panels + panel * floats,
                 .b_step = LINES,
                 .b_panel = floats,
                 .steps = job->steps,
                 .adds = job->k > 0,
                 .ldy = job->ld_sums,
                 .lanes = lanes_of(job->n_cols - (panel + panels - 1) * LINES)};
    if (direct) {
        t.b = (const float *)job->b.data + job->b.offset + job->k * job->b.step + job->col + panel * LINES;
        t.b_step = job->b.step;
        t.b_panel = LINES;
    }
    int m;
    for (int64_t i = 0; i < n; i += m) {
        m = next_rows(n - i);
        t.a = job->a_panels + row / LINES * floats + i;
        t.y = job->sums + (row + i) * job->ld_sums + panel * LINES;
        if (panels <= TILE_PANELS || m <= 2)
            run_tile(&t, m, panels);
        else { /* some of the wide ones at a time */
            tile_at part = t;
            for (int p = 0; p < panels; p += TILE_PANELS) {
                int wide = (int)ht_min_i64(TILE_PANELS, panels - p);
                part.b = t.b + p * t.b_panel;
                part.y = t.y + p * LINES;
                part.lanes = p + wide == panels ? t.lanes : LINES;
                run_tile(&part, m, wide);
            }
        }
    }
}

/* The sums of a piece that is done, in the result's dtype. */
static void round_sums(const matmul_job *job, int64_t row, int64_t n_rows, int64_t col, int64_t n_cols) {
    const ht_dtype dtype = job->call->out.dtype;
    for (int64_t i = row; i < row + n_rows; i++)
        for (int64_t j = col; j < col + n_cols; j += 16) {
            int lanes = lanes_of(col + n_cols - j);
            v16f v = v16f_load_n(job->sums + i * job->ld_sums + j, lanes);
            lanes_store(dtype, job->out, (job->row + i) * job->shape.n + job->col + j, v, lanes);
        }
}

static void multiply_pieces(void *arg, int64_t begin, int64_t end, int worker) {
    (void)worker;
    const matmul_job *job = arg;
    const int64_t n_panels = panels_of(job->n_cols);
    const int wide = job->n_rows <= 2 ? WIDE_PANELS : TILE_PANELS;
    for (int64_t index = begin; index < end; index++) {
        int64_t row = index % job->n_row_pieces * job->piece_rows, first = index / job->n_row_pieces * PIECE_PANELS;
        int64_t end_row = ht_min_i64(row + job->piece_rows, job->n_rows);
        int64_t end_panel = ht_min_i64(first + PIECE_PANELS, n_panels);
        for (int64_t r = row; r < end_row; r += LINES)
            for (int64_t p = first; p < end_panel;) {
                int64_t stop = p < job->n_direct ? ht_min_i64(job->n_direct, end_panel) : end_panel, n = stop - p;
                int panels = n >= wide ? wide : (int)ht_min_i64(n, TILE_PANELS);
                run_tiles(job, r, ht_min_i64(LINES, end_row - r), p, panels);
                p += panels;
            }
        int64_t col = first * LINES;
        if (job->call->out.dtype != HT_F32 && job->k + job->steps == job->shape.k)
            round_sums(job, row, end_row - row, col, ht_min_i64(end_panel * LINES, job->n_cols) - col);
    }
}

/* ---- blocks and matrices ---- */

static void run_phase(matmul_job *job, int64_t n, ht_block_fn *fn) {
    bool here = job->alone || job->n_rows * job->n_cols * job->steps <= INLINE_WORK;
    if (here)
        fn(job, 0, n, 0);
    else
        ht_pool_run(job->call->pool, n, 1, fn, job);
}

static void run_block(matmul_job *job) {
    const ht_matmul_shape *s = &job->shape;
    const int64_t n_threads = job->alone ? 1 : ht_pool_threads(job->call->pool);
    const int64_t col_pieces = ht_ceil_div_i64(panels_of(job->n_cols), PIECE_PANELS);
    int64_t row_pieces = ht_ceil_div_i64(job->n_rows, PIECE_ROWS);
    if (row_pieces * col_pieces % n_threads) row_pieces = ht_ceil_div_i64(row_pieces, n_threads) * n_threads;
    job->piece_rows = ht_ceil_div_i64(panels_of(job->n_rows), row_pieces) * LINES;
    job->n_row_pieces = ht_ceil_div_i64(job->n_rows, job->piece_rows);
    bool direct = s->m <= DIRECT_ROWS && job->b.line == 1 && job->b.dtype == HT_F32;
    job->n_direct = direct ? job->n_cols / LINES : 0;
    if (job->call->out.dtype == HT_F32) {
        job->sums = (float *)(void *)job->out + job->row * s->n + job->col;
        job->ld_sums = s->n;
    }
    for (job->k = 0; job->k < s->k; job->k += CHUNK) {
        job->steps = ht_min_i64(CHUNK, s->k - job->k);
        run_phase(job, panels_of(job->n_rows) + panels_of(job->n_cols) - job->n_direct, pack_panels);
        run_phase(job, job->n_row_pieces * col_pieces, multiply_pieces);
    }
}

static void run_matrix(matmul_job *job, int64_t index) {
    const ht_call *call = job->call;
    const ht_matmul_shape *s = &job->shape;
    const ht_view *a = &call->in[0], *b = &call->in[1];
    job->a = (operand){a->dtype, a->data, ht_matmul_offset(a, &call->out, index), s->a_row, s->a_k, s->m};
    job->b = (operand){b->dtype, b->data, ht_matmul_offset(b, &call->out, index), s->b_col, s->b_k, s->n};
    job->out = (char *)call->out.data + (size_t)(index * s->m * s->n) * ht_dtype_bytes(call->out.dtype);
    for (job->row = 0; job->row < s->m; job->row += BLOCK)
        for (job->col = 0; job->col < s->n; job->col += BLOCK) {
            job->n_rows = ht_min_i64(BLOCK, s->m - job->row);
            job->n_cols = ht_min_i64(BLOCK, s->n - job->col);
            run_block(job);
        }
}

/* ---- the kernel ---- */

/* What one matrix at a time needs, laid out at `at`, or only counted; in floats. */
static int64_t lay_out(matmul_job *job, float *at) {
    const ht_matmul_shape *s = &job->shape;
    int64_t steps = ht_min_i64(CHUNK, s->k), rows = ht_min_i64(BLOCK, s->m), cols = ht_min_i64(BLOCK, s->n);
    int64_t a = panels_of(rows) * LINES * steps, b = panels_of(cols) * LINES * steps;
    bool keeps_sums = job->call->out.dtype != HT_F32;
    job->ld_sums = panels_of(cols) * LINES;
    if (at) {
        job->a_panels = at;
        job->b_panels = at + a;
        job->sums = at + a + b;
    }
    return a + b + (keeps_sums ? rows * job->ld_sums : 0);
}

static matmul_job job_of(const ht_call *call) {
    matmul_job job = {.call = call, .shape = ht_matmul_shape_of(call), .n_matrices = 1};
    const ht_matmul_shape *s = &job.shape;
    for (int d = 0; d < call->out.n_dims - 2; d++) job.n_matrices *= call->out.shape[d];
    job.alone =
        job.n_matrices >= ht_pool_threads(call->pool) && s->m * s->n <= ALONE_WORK && s->m * s->n * s->k <= ALONE_WORK;
    return job;
}

static void run_matrices(void *arg, int64_t begin, int64_t end, int worker) {
    matmul_job job = *(const matmul_job *)arg;
    lay_out(&job, (float *)job.call->scratch + worker * lay_out(&job, NULL));
    for (int64_t i = begin; i < end; i++) run_matrix(&job, i);
}

static size_t matmul_scratch(const ht_call *call) {
    matmul_job job = job_of(call);
    return (size_t)(lay_out(&job, NULL) * (job.alone ? ht_pool_threads(call->pool) : 1)) * sizeof(float);
}

static ht_status matmul(const ht_call *call, ht_error *err) {
    const ht_dtype a = call->in[0].dtype, b = call->in[1].dtype;
    if (!lanes_take(a) || !lanes_take(b) || !lanes_take(call->out.dtype)) return ht_plain_matmul(call, err);
    matmul_job job = job_of(call);
    const ht_matmul_shape *s = &job.shape;
    if (s->k == 0 || ht_view_size(&call->out) == 0) return ht_plain_matmul(call, err);
    if (job.alone) {
        int64_t grain = ht_max_i64(1, INLINE_WORK / (s->m * s->n * s->k));
        ht_pool_run(call->pool, job.n_matrices, grain, run_matrices, &job);
        return HT_OK;
    }
    lay_out(&job, call->scratch);
    for (int64_t i = 0; i < job.n_matrices; i++) run_matrix(&job, i);
    return HT_OK;
}

void HT_ISA_NAME(ht_vector_matmul)(ht_kernel kernels[HT_OP_COUNT]) {
    kernels[HT_OP_MATMUL] = (ht_kernel){.run = matmul, .scratch = matmul_scratch};
}
