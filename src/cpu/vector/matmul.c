/* Products of f32, f16 and bf16 arrays of any strides; the plain kernel takes the other dtypes.
 *
 * Rows of a and columns of b are both called lines. The work is cut into pieces: some rows and all columns, or all rows and
 * some columns. Lines of f32 that are read few times are read where they are. Others are first brought into panels of f32,
 * DEPTH steps of each line at a time: those of the side that is cut by the piece that needs them, those of the other side,
 * which all pieces need, before the pieces begin.
 *
 * The order of a sum depends on k alone: a chain of v16f_fma from 0 per CHUNK steps, and those added in order. Sums are f32,
 * and rounded once to the result's dtype. */
#include "base/checked.h"
#include "cpu/reference/reference.h"
#include "cpu/vector/operand_packing.h"
#include "cpu/vector/panel.h"
#include "cpu/vector/vector.h"

enum {
    CHUNK = PACKING_STEPS,
    DEPTH = 2 * CHUNK,       /* steps that are packed and multiplied at a time: sums seldom leave the near caches */
    BLOCK = 2048,            /* rows, and columns, of the result at a time, at most, where there is memory for each */
    SHARED_FLOATS = 1 << 18, /* packed at a time, if that is more than DEPTH steps: what a second cache holds */
    PIECE_ROWS = 112,        /* what a thread takes at a time, at most: the rows' panels are 224 KB */
    PIECE_COLS = 512,        /* the columns' are made some at a time */
    LEAST_TILE = 4,          /* rows that ht_panel_rows takes at a time, if there are more */
    LEAST_ROWS = 28,         /* of a piece, or less if there are no more */
    LEAST_COLS = 64,         /* a multiple of 16 */
    PIECES = 8,              /* for each thread, so that one can take from another */
    FEW_ROWS = 4,            /* that are multiplied some steps at a time if columns' steps are far apart, */
    FEW_STEPS = 8,           /* so many, */
    FEW_COLS = 512,          /* and at least so many columns, or less if there are no more */
    PACK_PANELS = 8,         /* of columns, that are packed side by side, in the order of memory, */
    PACK_AHEAD = 4,          /* and asked for so many steps before */
    LATE_PANELS = 2,         /* of columns, that are packed and used at once */
    DIRECT_COLS = 512,       /* up to so many columns rows are read where they are if their steps are adjacent, */
    DIRECT_FAR_COLS = 128,   /* up to so many if not, or if rows are in the same sets of a near cache, */
    SAME_SETS = 1024,        /* being a multiple of so many elements apart; */
    DIRECT_ROWS = 64,        /* up to so many rows adjacent columns are, */
    DIRECT_NEAR_ROWS = 384,  /* or so many when steps are not so far apart that few of them fit a cache */
    DIRECT_NEAR_STEP = 1024, /* elements */
    ALONE_WORK = 1 << 21,    /* multiply-adds of one of many matrices, up to which threads take whole ones */
    INLINE_WORK = 1 << 16    /* multiply-adds that are done before another thread has even noticed */
};

typedef struct matmul_job {
    const ht_call *call;
    ht_matmul_shape shape;
    int64_t n_matrices;
    bool swapped;                     /* a matrix by a column is that row by the matrix turned */
    packing_operand a, b;             /* of the matrix at work */
    int64_t row, n_rows, col, n_cols; /* the block at work */
    int64_t most_rows, most_cols;     /* of a block */
    int64_t k, steps;                 /* the steps at work: those that are packed of what all pieces share */
    int64_t shared_steps;             /* at most */
    bool by_rows;                     /* pieces are rows */
    bool a_direct, b_direct;          /* read where they are; of b, whole panels */
    bool by_steps;                    /* few rows by columns that are read where they are, and far apart */
    bool dots;                        /* one row by columns whose steps are adjacent */
    int64_t piece, n_pieces;          /* lines of a piece */
    float *shared, *own,
        *sums; /* scratch: panels that pieces share and those of each thread; the sums are the result if
                                 * that is f32 */
    int64_t ld_sums, own_floats;
    char *out;  /* of the matrix at work */
    bool alone; /* all on this thread */
} matmul_job;

static int64_t panels_of(int64_t n) { return ht_ceil_div_i64(n, 16); }

/* ---- panels ---- */

/* Rows are packed as many side by side as are multiplied at a time. Behind them is room for what packing writes more. */
static int64_t tile_floats(int64_t rows, int64_t steps) { return HT_ISA_NAME(ht_panel_rows)(rows) * steps + 16; }
/* Of any piece, which may be cut into more and smaller tiles than one of more rows. */
static int64_t piece_floats(int64_t steps) { return (PIECE_ROWS + 16) * steps + PIECE_ROWS / LEAST_TILE * 16; }

/* Step k of a line that is read where it is. */
static const float *step_at(const packing_operand *o, int64_t line, int64_t k) {
    return (const float *)o->data + o->offset + line * o->line + k * o->step;
}

/* Steps [k, k + steps) of lines of an operand, to [steps][stride]. */
static void pack_lines(const packing_operand *o, int64_t first, int n, int64_t k, int64_t steps, float *to,
                       int64_t stride) {
    for (int64_t s = 0; s < steps; s += CHUNK)
        packing_pack(o, first, n, k + s, ht_min_i64(CHUNK, steps - s), to + s * stride, stride);
}

/* Tile `tile` of rows [row, row + n) of the block. */
static void pack_tile(const matmul_job *job, int64_t row, int64_t n, int64_t tile, int64_t k, int64_t steps,
                      float *to) {
    const int64_t rows = HT_ISA_NAME(ht_panel_rows)(n), first = tile * rows;
    pack_lines(&job->a, job->row + row + first, (int)ht_min_i64(rows, n - first), k, steps,
               to + tile * tile_floats(n, steps), rows);
}

/* Panels [panel, panel + n) of the block's columns, one behind the other. */
static void pack_columns(const matmul_job *job, int64_t panel, int64_t n, int64_t k, int64_t steps, float *to) {
    const packing_operand *b = &job->b;
    const int64_t first = job->col + 16 * panel;
    const int64_t whole = b->dtype == HT_F32 && b->line == 1 ? ht_min_i64(n, (b->n - first) / 16) : 0;
    for (int64_t s = 0; s < steps && whole; s++)
        for (int64_t p = 0; p < whole; p++) {
            HT_PREFETCH(step_at(b, first + 16 * p, k + s + PACK_AHEAD));
            v16f_store(to + 16 * (p * steps + s), packing_step(b, HT_F32, 1, first + 16 * p, k + s, 16));
        }
    for (int64_t p = whole; p < n; p++)
        pack_lines(b, first + 16 * p, lanes_of(b->n - first - 16 * p), k, steps, to + 16 * p * steps, 16);
}

/* Columns of the block that are read where they are. */
static int64_t direct_cols(const matmul_job *job) { return job->b_direct ? job->n_cols / 16 * 16 : 0; }

/* Panels of columns, or tiles of rows, that all pieces need and that are not read where they are. */
static int64_t n_shared(const matmul_job *job) {
    if (job->by_rows) return panels_of(job->n_cols - direct_cols(job));
    return job->a_direct ? 0 : ht_ceil_div_i64(job->n_rows, HT_ISA_NAME(ht_panel_rows)(job->n_rows));
}

static int64_t shared_floats(const matmul_job *job, int64_t steps) {
    return job->by_rows ? 16 * n_shared(job) * steps : n_shared(job) * tile_floats(job->n_rows, steps);
}

/* What pieces share of the DEPTH steps from step k on, which lie behind those before them. */
static float *shared_at(const matmul_job *job, int64_t k) {
    return job->shared + (k - job->k) / DEPTH * shared_floats(job, DEPTH);
}

/* Some panels of columns, or a tile of rows, are packed at a time. */
static int64_t shared_at_once(const matmul_job *job) { return job->by_rows ? PACK_PANELS : 1; }
static int64_t n_packings(const matmul_job *job) {
    return ht_ceil_div_i64(n_shared(job), shared_at_once(job)) * ht_ceil_div_i64(job->steps, DEPTH);
}

static void pack_shared(void *arg, int64_t begin, int64_t end, int worker) {
    (void)worker;
    const matmul_job *job = arg;
    const int64_t n = n_shared(job), at_once = shared_at_once(job), groups = ht_ceil_div_i64(n, at_once);
    for (int64_t index = begin; index < end; index++) {
        const int64_t i = index % groups * at_once, k = job->k + index / groups * DEPTH;
        const int64_t steps = ht_min_i64(DEPTH, job->k + job->steps - k);
        if (job->by_rows)
            pack_columns(job, direct_cols(job) / 16 + i, ht_min_i64(at_once, n - i), k, steps,
                         shared_at(job, k) + 16 * i * steps);
        else
            pack_tile(job, 0, job->n_rows, i, k, steps, shared_at(job, k));
    }
}

/* ---- pieces ---- */

/* Few rows by columns that are read where they are: a few steps by all columns and then the next, in the order of memory. */
static void multiply_steps(const panel_product *t) {
    float sums[FEW_ROWS][PIECE_COLS];
    panel_product part = *t;
    part.c = sums[0];
    part.c_row = PIECE_COLS;
    for (int64_t k = 0; k < t->k; k += CHUNK) {
        for (int64_t s = k; s < ht_min_i64(k + CHUNK, t->k); s += FEW_STEPS) {
            part.k = ht_min_i64(FEW_STEPS, t->k - s);
            part.mode = s > k ? PANEL_CONTINUE : PANEL_SET;
            part.left.at = t->left.at + s * t->left.step;
            part.b = t->b + s * t->b_step;
            HT_ISA_NAME(ht_panel_multiply)(&part);
        }
        const bool add = k > 0 || t->mode == PANEL_ADD;
        for (int64_t i = 0; i < t->m; i++)
            for (int64_t j = 0; j < t->n; j += 16) {
                float *to = t->c + i * t->c_row + j;
                v16f sum = v16f_load(sums[i] + j);
                v16f_store(to, add ? v16f_add(v16f_load(to), sum) : sum);
            }
    }
}

/* Sums of steps [k, k + steps), at most DEPTH, for rows [row, row + n_rows) and columns [col, col + n_cols) of the block. */
static void multiply_part(const matmul_job *job, int64_t row, int64_t n_rows, int64_t col, int64_t n_cols, int64_t k,
                          int64_t steps, float *own) {
    panel_product t = {.c = job->sums + row * job->ld_sums + col,
                       .c_row = job->ld_sums,
                       .m = n_rows,
                       .k = steps,
                       .chunk = CHUNK,
                       .mode = k > 0 ? PANEL_ADD : PANEL_SET};
    if (job->a_direct) {
        t.left = (panel_left){step_at(&job->a, job->row + row, k), job->a.line, job->a.step};
    } else {
        t.left = (panel_left){job->by_rows ? own : shared_at(job, k), 1, HT_ISA_NAME(ht_panel_rows)(n_rows)};
        t.tile = tile_floats(n_rows, steps);
        for (int64_t i = 0; job->by_rows && i * t.left.step < n_rows; i++)
            pack_tile(job, row, n_rows, i, k, steps, own);
    }
    const int64_t direct = direct_cols(job), end = col + n_cols;
    if (col < direct) {
        t.b = step_at(&job->b, job->col + col, k);
        t.b_step = job->b.step;
        t.b_panel = 16;
        t.n = ht_min_i64(direct, end) - col;
        if (job->by_steps)
            multiply_steps(&t);
        else
            HT_ISA_NAME(ht_panel_multiply)(&t);
        t.c += t.n;
        col += t.n;
    }
    t.b_step = 16;
    t.b_panel = 16 * steps;
    while (col < end) {
        t.n = job->by_rows ? end - col : ht_min_i64(16 * LATE_PANELS, end - col);
        t.b = job->by_rows ? shared_at(job, k) + (col - direct) * steps : own;
        if (!job->by_rows) pack_columns(job, col / 16, panels_of(t.n), k, steps, own);
        HT_ISA_NAME(ht_panel_multiply)(&t);
        t.c += t.n;
        col += t.n;
    }
}

/* Sums of steps [k, stop) for one row and columns [col, col + n_cols), sixteen at a time, whose steps are adjacent. */
static void multiply_dots(const matmul_job *job, int64_t col, int64_t n_cols, int64_t k, int64_t stop) {
    for (int64_t j = job->col + col; j < job->col + col + n_cols; j += 16) {
        float *y = job->sums + (j - job->col), room[CHUNK];
        v16f sum = k > 0 ? v16f_load(y) : v16f_zero();
        for (int64_t at = k; at < stop; at += CHUNK) {
            const int64_t steps = ht_min_i64(CHUNK, stop - at);
            const float *x = step_at(&job->a, 0, at);
            if (job->a.step != 1) {
                for (int64_t s = 0; s < steps; s++) room[s] = x[s * job->a.step];
                x = room;
            }
            v16f more = packing_dot(x, step_at(&job->b, j, at), job->b.line, steps);
            sum = at > 0 ? v16f_add(sum, more) : more;
        }
        v16f_store(y, sum);
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
    const matmul_job *job = arg;
    const int64_t stop = job->k + job->steps;
    for (int64_t i = begin; i < end; i++) {
        const int64_t first = i * job->piece;
        const int64_t row = job->by_rows ? first : 0, col = job->by_rows ? 0 : first;
        const int64_t n_rows = job->by_rows ? ht_min_i64(job->piece, job->n_rows - row) : job->n_rows;
        const int64_t n_cols = job->by_rows ? job->n_cols : ht_min_i64(job->piece, job->n_cols - col);
        const int64_t dots = job->dots ? n_cols / 16 * 16 : 0;
        multiply_dots(job, col, dots, job->k, stop);
        for (int64_t k = job->k; k < stop && dots < n_cols; k += DEPTH)
            multiply_part(job, row, n_rows, col + dots, n_cols - dots, k, ht_min_i64(DEPTH, stop - k),
                          job->own + worker * job->own_floats);
        if (job->call->out.dtype != HT_F32 && stop == job->shape.k) round_sums(job, row, n_rows, col, n_cols);
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

static void cut(matmul_job *job) {
    const int64_t n_threads = job->alone ? 1 : ht_pool_threads(job->call->pool);
    const int64_t n_lines = job->by_rows ? job->n_rows : job->n_cols;
    const int64_t least = job->by_rows ? LEAST_ROWS : job->by_steps ? FEW_COLS : LEAST_COLS;
    const int64_t most = job->by_rows ? PIECE_ROWS : PIECE_COLS;
    int64_t n = ht_ceil_div_i64(n_lines, most), wanted = ht_min_i64(n_lines / least, PIECES * n_threads);
    if (n_threads > 1) n = ht_max_i64(ht_ceil_div_i64(n, n_threads), wanted / n_threads) * n_threads;
    job->piece = ht_ceil_div_i64(n_lines, ht_max_i64(1, ht_min_i64(n, n_lines)));
    if (!job->by_rows) job->piece = panels_of(job->piece) * 16;
    job->n_pieces = ht_ceil_div_i64(n_lines, job->piece);
}

static void run_block(matmul_job *job) {
    const ht_matmul_shape *s = &job->shape;
    cut(job);
    if (job->call->out.dtype == HT_F32) {
        job->sums = (float *)(void *)job->out + job->row * s->n + job->col;
        job->ld_sums = s->n;
    }
    const int64_t n = n_shared(job), steps = n ? job->shared_steps : s->k;
    for (job->k = 0; job->k < s->k; job->k += steps) {
        job->steps = ht_min_i64(steps, s->k - job->k);
        run_phase(job, n_packings(job), pack_shared);
        run_phase(job, job->n_pieces, multiply_pieces);
    }
}

static void run_matrix(matmul_job *job, int64_t index) {
    const ht_call *call = job->call;
    const ht_matmul_shape *s = &job->shape;
    const ht_view *a = &call->in[job->swapped], *b = &call->in[!job->swapped];
    job->a = (packing_operand){a->dtype, a->data, ht_matmul_offset(a, &call->out, index), s->a_row, s->a_k, s->m};
    job->b = (packing_operand){b->dtype, b->data, ht_matmul_offset(b, &call->out, index), s->b_col, s->b_k, s->n};
    job->out = (char *)call->out.data + (size_t)(index * s->m * s->n) * ht_dtype_bytes(call->out.dtype);
    for (job->row = 0; job->row < s->m; job->row += job->most_rows)
        for (job->col = 0; job->col < s->n; job->col += job->most_cols) {
            job->n_rows = ht_min_i64(job->most_rows, s->m - job->row);
            job->n_cols = ht_min_i64(job->most_cols, s->n - job->col);
            run_block(job);
        }
}

/* ---- the kernel ---- */

/* What one matrix at a time needs, laid out at `at`, or only counted; in floats. */
static int64_t lay_out(matmul_job *job, float *at) {
    const ht_matmul_shape *s = &job->shape;
    const bool rounds = job->call->out.dtype != HT_F32;
    const int64_t n_threads = job->alone ? 1 : ht_pool_threads(job->call->pool), steps = ht_min_i64(DEPTH, s->k);
    job->most_rows = job->n_rows = job->by_rows && !rounds ? s->m : ht_min_i64(BLOCK, s->m);
    job->most_cols = job->n_cols = !job->by_rows && !rounds ? s->n : ht_min_i64(BLOCK, s->n);
    /* The last of several blocks may have columns that are not whole panels, where the first has none. */
    const int64_t part = ht_max_i64(shared_floats(job, DEPTH), job->by_rows ? 16 * DEPTH : 0);
    const int64_t parts = part ? ht_max_i64(1, SHARED_FLOATS / part) : 1;
    job->shared_steps = parts * DEPTH;
    const int64_t shared = ht_min_i64(parts, ht_ceil_div_i64(s->k, DEPTH)) * part;
    int64_t own = job->by_rows ? 0 : LATE_PANELS * 16 * steps;
    if (job->by_rows && !job->a_direct) own = piece_floats(steps);
    job->own_floats = panels_of(own) * 16;
    job->ld_sums = panels_of(job->most_cols) * 16;
    if (at) {
        job->shared = at;
        job->own = at + shared;
        job->sums = job->own + n_threads * job->own_floats;
    }
    return shared + n_threads * job->own_floats + (rounds ? job->most_rows * job->ld_sums : 0);
}

static matmul_job job_of(const ht_call *call) {
    matmul_job job = {.call = call, .shape = ht_matmul_shape_of(call), .n_matrices = 1};
    ht_matmul_shape *s = &job.shape;
    for (int d = 0; d < call->out.n_dims - 2; d++) job.n_matrices *= call->out.shape[d];
    job.swapped = s->n == 1 && s->m > 1;
    if (job.swapped) *s = (ht_matmul_shape){1, s->m, s->k, s->b_col, s->b_k, s->a_k, s->a_row};
    job.alone =
        job.n_matrices >= ht_pool_threads(call->pool) && s->m * s->n <= ALONE_WORK && s->m * s->n * s->k <= ALONE_WORK;
    job.by_rows = s->m >= s->n || s->m >= 2 * PIECE_ROWS;
    const bool a_is_f32 = call->in[job.swapped].dtype == HT_F32;
    const bool b_is_f32 = call->in[!job.swapped].dtype == HT_F32;
    const bool spread = s->a_k == 1 && s->a_row % (SAME_SETS) != 0;
    job.a_direct = a_is_f32 && (s->n <= (spread ? DIRECT_COLS : DIRECT_FAR_COLS) || s->m == 1);
    const bool near = s->b_k <= DIRECT_NEAR_STEP && s->b_k >= -DIRECT_NEAR_STEP;
    const int64_t direct_rows = near ? DIRECT_NEAR_ROWS : DIRECT_ROWS;
    job.b_direct = b_is_f32 && s->b_col == 1 && s->m <= direct_rows;
    job.by_steps =
        !job.by_rows && s->m <= FEW_ROWS && job.b_direct && (s->b_k >= DIRECT_NEAR_STEP || s->b_k <= -DIRECT_NEAR_STEP);
    job.dots = s->m == 1 && job.a_direct && b_is_f32 && s->b_k == 1 && s->b_col != 1;
    return job;
}

static void run_matrices(void *arg, int64_t begin, int64_t end, int worker) {
    matmul_job job = *(const matmul_job *)arg;
    lay_out(&job, (float *)job.call->scratch + worker * lay_out(&job, NULL));
    for (int64_t i = begin; i < end; i++) run_matrix(&job, i);
}

static bool takes(const ht_call *call) {
    return lanes_take(call->in[0].dtype) && lanes_take(call->in[1].dtype) && lanes_take(call->out.dtype) &&
           ht_view_size(&call->out) > 0 && ht_matmul_shape_of(call).k > 0;
}

static size_t matmul_scratch(const ht_call *call) {
    if (!takes(call)) return ht_plain_matmul_kernel.scratch ? ht_plain_matmul_kernel.scratch(call) : 0;
    matmul_job job = job_of(call);
    return (size_t)(lay_out(&job, NULL) * (job.alone ? ht_pool_threads(call->pool) : 1)) * sizeof(float);
}

static ht_status matmul(const ht_call *call, ht_error *err) {
    if (!takes(call)) return ht_plain_matmul_kernel.run(call, err);
    matmul_job job = job_of(call);
    const ht_matmul_shape *s = &job.shape;
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
