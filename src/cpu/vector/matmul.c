/* Matrix products of f32, f16 and bf16 arrays of any strides; other dtypes are left to the plain kernel.
 *
 * A line is a row of a or a column of b; a step is one index of k. Work is split into pieces of rows or of columns. f32
 * lines with little reuse are read in place. Other lines are packed into f32 panels, DEPTH steps at a time: lines of
 * the split operand by the piece that needs them, lines of the shared operand before the pieces start.
 *
 * Summation order depends on k alone: one sequence of fused multiply-adds from 0 per CHUNK steps, and the chunks added
 * in order. Sums are f32, rounded once to the result's dtype. */
#include "base/checked.h"
#include "cpu/call.h"
#include "cpu/reference/reference.h"
#include "cpu/strided_iterator.h"
#include "cpu/vector/operand_packing.h"
#include "cpu/vector/panel.h"
#include "cpu/vector/vector.h"

enum {
    CHUNK = PACKING_STEPS,
    DEPTH =
        2 * CHUNK, /* steps packed and multiplied at a time; fewer would move sums between cache levels more often */
    BLOCK = 2048,  /* most rows and columns of the result per block, where sums take scratch memory */
    SHARED_FLOATS = 1 << 18, /* packed shared panels, if more than DEPTH steps: fits an L2 cache */
    PIECE_ROWS = 112,        /* most rows per piece: its packed panels take 224 KB */
    PIECE_COLS = 512,        /* most columns per piece; packed a few panels at a time */
    MIN_TILE = 4,            /* least rows per register tile (ht_panel_rows), if m has more */
    MIN_ROWS = 28,           /* least rows per piece, if m has more */
    MIN_COLS = 64,           /* least columns per piece; a multiple of 16 */
    PIECES = 8,              /* per thread, for load balance */
    FEW_ROWS = 4,            /* multiply_steps: most rows */
    FEW_STEPS = 8,           /* multiply_steps: steps per pass over the columns */
    FEW_COLS = 512,          /* multiply_steps: least columns per piece */
    PACK_PANELS = 8,         /* panels packed together, in memory order */
    PACK_PREFETCH = 4,       /* prefetch distance of packing, in steps */
    LAZY_PANELS = 2,         /* panels of the split operand packed at a time */
    DIRECT_COLS = 512,       /* most columns for reading rows in place, if contiguous along k */
    DIRECT_FAR_COLS = 128,   /* most columns for reading rows in place otherwise, or if they share cache sets */
    SAME_SETS = 1024,        /* row strides that are a multiple of this, in elements, share cache sets */
    DIRECT_ROWS = 64,        /* most rows for reading adjacent columns in place */
    DIRECT_NEAR_ROWS = 384,  /* most rows for reading adjacent columns in place, if their step stride is small */
    DIRECT_NEAR_STEP = 1024, /* largest such stride, in elements */
    ALONE_WORK = 1 << 21,    /* multiply-adds up to which one thread computes a whole matrix of a batch */
    INLINE_WORK = 1 << 16    /* multiply-adds that take less time than waking a thread */
};

typedef struct matmul_job {
    const ht_call *call;
    ht_matmul_shape shape;
    int64_t n_matrices;
    bool swapped;                     /* matrix-vector product computed as vector times transposed matrix */
    packing_operand a, b;             /* of the current matrix */
    int64_t row, n_rows, col, n_cols; /* current block */
    int64_t most_rows, most_cols;     /* largest block */
    int64_t k, steps;                 /* current range of steps */
    int64_t shared_steps;             /* most steps with shared panels at a time */
    bool by_rows;                     /* pieces are rows */
    bool a_direct, b_direct;          /* read in place; of b whole panels only */
    bool by_steps;                    /* few rows by columns read in place with a large step stride (multiply_steps) */
    bool dots;                        /* one row by columns contiguous along k (multiply_dots) */
    int64_t piece, n_pieces;          /* lines per piece */
    float *shared, *own, *sums; /* scratch: shared panels, panels per thread, sums (the result itself if it is f32) */
    int64_t ld_sums, own_floats;
    char *out;  /* of the current matrix */
    bool alone; /* single-threaded */
} matmul_job;

static int64_t panels_of(int64_t n) { return ht_ceil_div_i64(n, 16); }

/* ---- panels ---- */

/* Floats of a packed row tile, including the excess lanes that packing writes past its end. */
static int64_t tile_floats(int64_t rows, int64_t steps) { return HT_ISA_NAME(ht_panel_rows)(rows) * steps + 16; }
/* Upper bound for the row tiles of any piece. */
static int64_t piece_floats(int64_t steps) { return (PIECE_ROWS + 16) * steps + PIECE_ROWS / MIN_TILE * 16; }

/* Address of a line's step k, for lines read in place. */
static const float *step_at(const packing_operand *o, int64_t line, int64_t k) {
    return (const float *)o->data + o->offset + line * o->line + k * o->step;
}

/* Packs steps [k, k + steps) of n lines to [steps][stride]. */
static void pack_lines(const packing_operand *o, int64_t first, int n, int64_t k, int64_t steps, float *to,
                       int64_t stride) {
    for (int64_t s = 0; s < steps; s += CHUNK)
        packing_pack(o, first, n, k + s, ht_min_i64(CHUNK, steps - s), to + s * stride, stride);
}

/* Packs tile number `tile` of rows [row, row + n) of the block. */
static void pack_tile(const matmul_job *job, int64_t row, int64_t n, int64_t tile, int64_t k, int64_t steps,
                      float *to) {
    const int64_t rows = HT_ISA_NAME(ht_panel_rows)(n), first = tile * rows;
    pack_lines(&job->a, job->row + row + first, (int)ht_min_i64(rows, n - first), k, steps,
               to + tile * tile_floats(n, steps), rows);
}

/* Packs panels [panel, panel + n) of the block's columns, one after another. */
static void pack_columns(const matmul_job *job, int64_t panel, int64_t n, int64_t k, int64_t steps, float *to) {
    const packing_operand *b = &job->b;
    const int64_t first = job->col + 16 * panel;
    const int64_t whole = b->dtype == HT_F32 && b->line == 1 ? ht_min_i64(n, (b->n - first) / 16) : 0;
    for (int64_t s = 0; s < steps && whole; s++)
        for (int64_t p = 0; p < whole; p++) {
            HT_PREFETCH(step_at(b, first + 16 * p, k + s + PACK_PREFETCH));
            v16f_store(to + 16 * (p * steps + s), packing_step(b, HT_F32, 1, first + 16 * p, k + s, 16));
        }
    for (int64_t p = whole; p < n; p++)
        pack_lines(b, first + 16 * p, lanes_count(b->n - first - 16 * p), k, steps, to + 16 * p * steps, 16);
}

/* Columns of the block read in place. */
static int64_t direct_cols(const matmul_job *job) { return job->b_direct ? job->n_cols / 16 * 16 : 0; }

/* Panels of columns, or tiles of rows, to be packed for all pieces. */
static int64_t n_shared(const matmul_job *job) {
    if (job->by_rows) return panels_of(job->n_cols - direct_cols(job));
    return job->a_direct ? 0 : ht_ceil_div_i64(job->n_rows, HT_ISA_NAME(ht_panel_rows)(job->n_rows));
}

static int64_t shared_floats(const matmul_job *job, int64_t steps) {
    return job->by_rows ? 16 * n_shared(job) * steps : n_shared(job) * tile_floats(job->n_rows, steps);
}

/* Shared panels of the DEPTH steps from step k on. */
static float *shared_at(const matmul_job *job, int64_t k) {
    return job->shared + (k - job->k) / DEPTH * shared_floats(job, DEPTH);
}

/* Shared panels, or row tiles, packed per unit of work. */
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

/* Few rows by columns read in place: FEW_STEPS steps for all columns at a time, in memory order. */
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

/* Adds steps [k, k + steps), steps <= DEPTH, to the sums of rows [row, row + n_rows) and columns [col, col + n_cols) of
 * the block. */
static void multiply_part(const matmul_job *job, int64_t row, int64_t n_rows, int64_t col, int64_t n_cols, int64_t k,
                          int64_t steps, float *own) {
    panel_product t = {.c = job->sums + row * job->ld_sums + col,
                       .c_row = job->ld_sums,
                       .m = n_rows,
                       .k = steps,
                       .chunk = CHUNK,
                       .mode = k > 0 ? PANEL_ADD : PANEL_SET};
    if (job->a_direct) {
        t.left = (panel_operand){step_at(&job->a, job->row + row, k), job->a.line, job->a.step};
    } else {
        t.left = (panel_operand){job->by_rows ? own : shared_at(job, k), 1, HT_ISA_NAME(ht_panel_rows)(n_rows)};
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
        t.n = job->by_rows ? end - col : ht_min_i64(16 * LAZY_PANELS, end - col);
        t.b = job->by_rows ? shared_at(job, k) + (col - direct) * steps : own;
        if (!job->by_rows) pack_columns(job, col / 16, panels_of(t.n), k, steps, own);
        HT_ISA_NAME(ht_panel_multiply)(&t);
        t.c += t.n;
        col += t.n;
    }
}

/* Adds steps [k, stop) to the sums of one row and columns [col, col + n_cols), contiguous along k, sixteen at a
 * time. */
static void multiply_dots(const matmul_job *job, int64_t col, int64_t n_cols, int64_t k, int64_t stop) {
    for (int64_t j = job->col + col; j < job->col + col + n_cols; j += 16) {
        float *y = job->sums + (j - job->col), packed[CHUNK];
        v16f sum = k > 0 ? v16f_load(y) : v16f_zero();
        for (int64_t at = k; at < stop; at += CHUNK) {
            const int64_t steps = ht_min_i64(CHUNK, stop - at);
            const float *x = step_at(&job->a, 0, at);
            if (job->a.step != 1) {
                for (int64_t s = 0; s < steps; s++) packed[s] = x[s * job->a.step];
                x = packed;
            }
            v16f more = packing_dot(x, step_at(&job->b, j, at), job->b.line, steps);
            sum = at > 0 ? v16f_add(sum, more) : more;
        }
        v16f_store(y, sum);
    }
}

/* Rounds a finished piece to the result's dtype. */
static void round_sums(const matmul_job *job, int64_t row, int64_t n_rows, int64_t col, int64_t n_cols) {
    const ht_dtype dtype = job->call->out.dtype;
    for (int64_t i = row; i < row + n_rows; i++)
        for (int64_t j = col; j < col + n_cols; j += 16) {
            int lanes = lanes_count(col + n_cols - j);
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
        ht_pool_run(ht_call_pool(job->call), n, 1, fn, job);
}

static void split_pieces(matmul_job *job) {
    const int64_t n_threads = job->alone ? 1 : ht_pool_threads(ht_call_pool(job->call));
    const int64_t n_lines = job->by_rows ? job->n_rows : job->n_cols;
    const int64_t least = job->by_rows ? MIN_ROWS : job->by_steps ? FEW_COLS : MIN_COLS;
    const int64_t most = job->by_rows ? PIECE_ROWS : PIECE_COLS;
    int64_t n = ht_ceil_div_i64(n_lines, most), wanted = ht_min_i64(n_lines / least, PIECES * n_threads);
    if (n_threads > 1) n = ht_max_i64(ht_ceil_div_i64(n, n_threads), wanted / n_threads) * n_threads;
    job->piece = ht_ceil_div_i64(n_lines, ht_max_i64(1, ht_min_i64(n, n_lines)));
    if (!job->by_rows) job->piece = panels_of(job->piece) * 16;
    job->n_pieces = ht_ceil_div_i64(n_lines, job->piece);
}

static void run_block(matmul_job *job) {
    const ht_matmul_shape *s = &job->shape;
    split_pieces(job);
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

/* ---- kernel ---- */

/* Lays out the scratch memory of one matrix at `at` and returns its floats; with NULL it only counts. */
static int64_t layout_scratch(matmul_job *job, float *at) {
    const ht_matmul_shape *s = &job->shape;
    const bool rounds = job->call->out.dtype != HT_F32;
    const int64_t n_threads = job->alone ? 1 : ht_pool_threads(ht_call_pool(job->call)),
                  steps = ht_min_i64(DEPTH, s->k);
    job->most_rows = job->n_rows = job->by_rows && !rounds ? s->m : ht_min_i64(BLOCK, s->m);
    job->most_cols = job->n_cols = !job->by_rows && !rounds ? s->n : ht_min_i64(BLOCK, s->n);
    /* A narrower last block may have a partial panel to pack even if the first has none. */
    const int64_t part = ht_max_i64(shared_floats(job, DEPTH), job->by_rows ? 16 * DEPTH : 0);
    const int64_t parts = part ? ht_max_i64(1, SHARED_FLOATS / part) : 1;
    job->shared_steps = parts * DEPTH;
    const int64_t shared = ht_min_i64(parts, ht_ceil_div_i64(s->k, DEPTH)) * part;
    int64_t own = job->by_rows ? 0 : LAZY_PANELS * 16 * steps;
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
    job.alone = job.n_matrices >= ht_pool_threads(ht_call_pool(call)) && s->m * s->n <= ALONE_WORK &&
                s->m * s->n * s->k <= ALONE_WORK;
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
    layout_scratch(&job, (float *)job.call->scratch + worker * layout_scratch(&job, NULL));
    for (int64_t i = begin; i < end; i++) run_matrix(&job, i);
}

static bool is_supported(const ht_call *call) {
    return lanes_supports(call->in[0].dtype) && lanes_supports(call->in[1].dtype) && lanes_supports(call->out.dtype) &&
           ht_view_size(&call->out) > 0 && ht_matmul_shape_of(call).k > 0;
}

static size_t matmul_scratch(const ht_call *call) {
    if (!is_supported(call)) return ht_plain_matmul_kernel.scratch ? ht_plain_matmul_kernel.scratch(call) : 0;
    matmul_job job = job_of(call);
    return (size_t)(layout_scratch(&job, NULL) * (job.alone ? ht_pool_threads(ht_call_pool(call)) : 1)) * sizeof(float);
}

static ht_status matmul(const ht_call *call, ht_error *err) {
    if (!is_supported(call)) return ht_plain_matmul_kernel.run(call, err);
    matmul_job job = job_of(call);
    const ht_matmul_shape *s = &job.shape;
    if (job.alone) {
        int64_t grain = ht_max_i64(1, INLINE_WORK / (s->m * s->n * s->k));
        ht_pool_run(ht_call_pool(call), job.n_matrices, grain, run_matrices, &job);
        return HT_OK;
    }
    layout_scratch(&job, call->scratch);
    for (int64_t i = 0; i < job.n_matrices; i++) run_matrix(&job, i);
    return HT_OK;
}

void HT_ISA_NAME(ht_vector_matmul)(ht_kernel kernels[HT_OP_COUNT]) {
    kernels[HT_OP_MATMUL] = (ht_kernel){.run = matmul, .scratch = matmul_scratch};
}
