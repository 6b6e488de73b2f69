/* Products of bf16 arrays of any strides in tiles of 16 lines by 32 steps; other dtypes are left to the kernel beside.
 *
 * Rows of a and columns of b are both called lines, 32 of them a panel: two tiles beside each other for 32 steps, and then
 * the next. Four tiles of sums and two of either panel are all there are. Panels are packed DEPTH steps at a time: those of
 * the side that is cut into pieces by the piece that needs them, those of the other side, which all pieces need, before the
 * pieces begin. Rows of a whose steps are adjacent are read where they are.
 *
 * The order of a sum depends on k alone: 32 steps, the last ones filled up with zeros, are added as TILE_DOT does it, one after
 * the other, from 0. Sums are f32, and rounded once to the result's dtype. */
#include "base/checked.h"
#include "cpu/matmul_bf16.h"
#include "cpu/reference/reference.h"
#include "cpu/vector/bf16_tiles.h"
#include "cpu/vector/lines.h"
#include "cpu/vector/vector.h"

enum {
    PANEL = 2 * TILE_ROWS,              /* lines */
    TILE_SIZE = TILE_ROWS * TILE_STEPS, /* elements */
    SUMS = PANEL * PANEL,               /* of a panel by a panel: tile after tile, columns 16 to 31 after 0 to 15 */
#if defined(HT_ISA_amx)
    DEPTH = 512,            /* steps at a time: a panel of one side stays in a near cache while the others pass */
    SHARED_LINES = 512,     /* packed for all pieces at a time, at most, */
    SHARED_BYTES = 1 << 20, /* and as many steps as these hold, half a second cache */
    SUMS_FLOATS = 1 << 21,  /* that wait for further steps, at most */
    FEW_ROWS = 8 * PANEL,   /* up to so many rows columns are cut, if there are more of them */
    GROUP = 16,             /* panels of adjacent lines that are packed side by side, in the order of memory */
    INLINE_WORK = 1 << 19,  /* multiply-adds that are done before another thread has even noticed */
#else                       /* so small that tests go through several of each */
    DEPTH = 2 * TILE_STEPS,
    SHARED_LINES = 3 * PANEL,
    SHARED_BYTES = 1 << 15,
    SUMS_FLOATS = 8 * SUMS,
    FEW_ROWS = 2 * PANEL,
    GROUP = 2,
    INLINE_WORK = 1 << 12,
#endif
    PIECES = 2,            /* for each thread, so that one can take from another */
    SAME_SETS = 1024,      /* elements: rows a multiple apart are in the same sets of a near cache, */
    DIRECT_FAR_COLS = 128, /* and are packed if they meet more columns than so many */
    ALONE_SUMS = 1 << 16,  /* of one of many matrices, and */
    ALONE_WORK = 1 << 24   /* multiply-adds, up to which threads take whole ones */
};

typedef struct bf16_job {
    const ht_call *call;
    ht_matmul_shape shape;
    int64_t n_matrices;
    bool swapped;  /* so that the operand whose steps are adjacent is the left one, if one is a vector */
    bool alone;    /* all on this thread */
    bool by_rows;  /* pieces are rows */
    bool a_direct; /* read where it is */
    lines a, b;    /* of the matrix at work */
    int64_t row, n_rows, col, n_cols; /* the block at work */
    int64_t most_rows, most_cols;     /* of a block */
    int64_t k, steps;                 /* the steps at work: those that are packed of what all pieces share */
    int64_t shared_steps;             /* at most */
    int64_t depth;                    /* DEPTH, or less if there are no more */
    int64_t group, parts;             /* a piece: so many panels by one of so many parts of the other side */
    int64_t shared_group;             /* panels of the other side that are packed side by side */
    uint16_t *shared, *own, *out;     /* panels that pieces share, and those of each thread; the result */
    int64_t own_elements, own_sums;
    float *sums; /* of the block, a panel by a panel after the other, where they wait for further steps */
} bf16_job;

/* ---- panels ---- */

static int64_t panels_of(int64_t n) { return ht_ceil_div_i64(n, PANEL); }
static int64_t n_panels(const bf16_job *job, bool rows) { return panels_of(rows ? job->n_rows : job->n_cols); }
static bool packed(const bf16_job *job, bool rows) { return !(rows && job->a_direct); }
static int64_t panel_size(const bf16_job *job) { return PANEL * job->depth; }

/* Words of two steps: [16 lines][16] for a left operand, [16][16 lines] for a right one; what is missing is 0. */
static void pack_tile(const lines *o, int64_t first, int n, int64_t k, int64_t steps, bool left, uint16_t *to) {
    const int64_t at = o->offset + first * o->line + k * o->step;
    const bool by_line = o->step == 1;
    _Alignas(64) uint16_t room[TILE_SIZE];
    uint16_t *words = by_line == left ? to : room;
    if (by_line) {
        const uint16_t *from = (const uint16_t *)o->data + at;
        if (n < TILE_ROWS || steps < TILE_STEPS) memset(words, 0, TILE_SIZE * sizeof *words);
        for (int i = 0; i < n; i++, from += o->line) {
            if (steps < TILE_STEPS)
                memcpy(words + i * TILE_STEPS, from, (size_t)steps * sizeof *from);
            else
                memcpy(words + i * TILE_STEPS, from, TILE_BYTES);
        }
    } else {
        for (int64_t s = 0; s < TILE_STEPS; s += 2) {
            v16i even = v16i_set1(0), odd = even;
            if (s < steps) even = v16f_bits(lanes_load(HT_BF16, o->data, at + s * o->step, o->line, n));
            if (s + 1 < steps) odd = v16f_bits(lanes_load(HT_BF16, o->data, at + (s + 1) * o->step, o->line, n));
            HT_PREFETCH((const uint16_t *)o->data + at + (s + TILE_STEPS) * o->step);
            HT_PREFETCH((const uint16_t *)o->data + at + (s + 1 + TILE_STEPS) * o->step);
            v16i_store((int32_t *)(void *)(words + s * TILE_ROWS), v16i_or(v16i_shr(even, 16), odd));
        }
    }
    if (words == room) lines_turn(room, TILE_BYTES, 16, 16, (float *)(void *)to, 16);
}

static void pack_panels(const bf16_job *job, bool rows, int64_t panel, int64_t n, int64_t k, int64_t steps,
                        uint16_t *to) {
    const lines *o = rows ? &job->a : &job->b;
    const int64_t first = (rows ? job->row : job->col) + panel * PANEL, end = ht_min_i64(first + n * PANEL, o->n);
    for (int64_t s = 0; s < steps; s += TILE_STEPS)
        for (int64_t line = first; line < end; line += TILE_ROWS) {
            const int64_t p = (line - first) / PANEL, half = (line - first) / TILE_ROWS % 2;
            pack_tile(o, line, lanes_of(end - line), k + s, ht_min_i64(TILE_STEPS, steps - s), rows,
                      to + p * panel_size(job) + s * PANEL + half * TILE_SIZE);
        }
}

/* The panel of what pieces share, DEPTH steps from step k on; they lie behind those before them. */
static uint16_t *shared_at(const bf16_job *job, int64_t k, int64_t panel) {
    return job->shared + ((k - job->k) / DEPTH * n_panels(job, !job->by_rows) + panel) * panel_size(job);
}

static void pack_shared(void *arg, int64_t begin, int64_t end, int worker) {
    (void)worker;
    const bf16_job *job = arg;
    const int64_t n = n_panels(job, !job->by_rows), groups = ht_ceil_div_i64(n, job->shared_group);
    for (int64_t i = begin; i < end; i++) {
        const int64_t panel = i % groups * job->shared_group, k = job->k + i / groups * DEPTH;
        pack_panels(job, !job->by_rows, panel, ht_min_i64(job->shared_group, n - panel), k,
                    ht_min_i64(DEPTH, job->k + job->steps - k), shared_at(job, k, panel));
    }
}

/* ---- pieces ---- */

/* A panel of rows: elements from one tile to the one below, and to the next steps; bytes from row to row. */
typedef struct row_panel {
    const uint16_t *at;
    int64_t below, next, row_bytes;
} row_panel;

/* Sums over n tiles' steps go on from `from`, or from 0, to `to`; constants say whether there are tiles below and to the
 * right, and whether b passes a that stays in a near cache, or a passes b. */
HT_INLINE void product(tiles *u, const row_panel *a, const uint16_t *b, int64_t n, const float *from, float *to,
                       bool below, bool right, bool b_passes) {
    const uint16_t *top = a->at, *bottom = a->at + a->below;
    const int64_t row_bytes = a->row_bytes, next = a->next;
    (void)u;
    tiles_read_memory(from);
#define EACH_SUM(ACT)                                                                                                  \
    ACT(0);                                                                                                            \
    if (right) ACT(1);                                                                                                 \
    if (below) ACT(2);                                                                                                 \
    if (below && right) ACT(3);
#define START(t)    TILE_ZERO(u, t)
#define CONTINUE(t) TILE_LOAD(u, t, from + (t)*256, TILE_BYTES)
#define LEAVE(t)    TILE_STORE(u, t, to + (t)*256, TILE_BYTES)
    if (from) {
        EACH_SUM(CONTINUE)
    } else {
        EACH_SUM(START)
    }
#define LOAD(t, p, step, passes)                                                                                       \
    do {                                                                                                               \
        if (passes)                                                                                                    \
            TILE_LOAD_PASSING(u, t, p, step);                                                                          \
        else                                                                                                           \
            TILE_LOAD(u, t, p, step);                                                                                  \
    } while (0)
    for (; n > 0; n--, top += next, bottom += next, b += 2 * TILE_SIZE) {
        LOAD(6, b, TILE_BYTES, b_passes);
        LOAD(4, top, row_bytes, !b_passes);
        TILE_DOT(u, 0, 4, 6);
        if (right) {
            LOAD(7, b + TILE_SIZE, TILE_BYTES, b_passes);
            TILE_DOT(u, 1, 4, 7);
        }
        if (below) {
            LOAD(5, bottom, row_bytes, !b_passes);
            TILE_DOT(u, 2, 5, 6);
            if (right) TILE_DOT(u, 3, 5, 7);
        }
    }
    EACH_SUM(LEAVE)
#undef LOAD
#undef EACH_SUM
#undef START
#undef CONTINUE
#undef LEAVE
}

/* Of n_rows and n_cols lines of the panels; `shaped` is the number of rows that tiles were made for last. */
static void multiply(tiles *u, int64_t *shaped, const row_panel *a, const uint16_t *b, int64_t n_rows, int64_t n_cols,
                     int64_t steps, const float *from, float *to, bool b_passes) {
    const int64_t n = ht_ceil_div_i64(steps, TILE_STEPS);
    const bool below = n_rows > TILE_ROWS, right = n_cols > TILE_ROWS;
    if (n_rows != *shaped) tiles_begin(u, lanes_of(n_rows), below ? (int)n_rows - TILE_ROWS : 0);
    *shaped = n_rows;
    if (below && right && b_passes)
        product(u, a, b, n, from, to, true, true, true);
    else if (below && right)
        product(u, a, b, n, from, to, true, true, false);
    else if (below)
        product(u, a, b, n, from, to, true, false, false);
    else if (right)
        product(u, a, b, n, from, to, false, true, false);
    else
        product(u, a, b, n, from, to, false, false, false);
}

static void round_sums(const bf16_job *job, const float *sums, int64_t row, int64_t n_rows, int64_t col,
                       int64_t n_cols) {
    for (int64_t i = 0; i < n_rows; i++)
        for (int64_t j = 0; j < n_cols; j += 16) {
            const float *from = sums + (i / TILE_ROWS * 2 + j / 16) * 256 + i % TILE_ROWS * 16;
            lanes_store(HT_BF16, job->out, (job->row + row + i) * job->shape.n + job->col + col + j, v16f_load(from),
                        lanes_of(n_cols - j));
        }
}

/* Two panels of the block, with steps [k, k + steps), at most DEPTH; the last ones pass through `room`. */
static void multiply_panels(const bf16_job *job, int64_t row, const uint16_t *a, int64_t col, const uint16_t *b,
                            int64_t k, int64_t steps, tiles *u, int64_t *shaped, float *sums, float *room) {
    const int64_t n_rows = ht_min_i64(PANEL, job->n_rows - row * PANEL);
    const int64_t n_cols = ht_min_i64(PANEL, job->n_cols - col * PANEL);
    const bool last = k + steps == job->shape.k;
    row_panel left = {a, TILE_SIZE, 2 * TILE_SIZE, TILE_BYTES};
    if (job->a_direct) {
        const lines *o = &job->a;
        left = (row_panel){(const uint16_t *)o->data + o->offset + (job->row + row * PANEL) * o->line + k,
                           TILE_ROWS * o->line, TILE_STEPS, o->line * (int64_t)sizeof *left.at};
    }
    multiply(u, shaped, &left, b, n_rows, n_cols, steps, k > 0 ? sums : NULL, last ? room : sums, job->by_rows);
    if (last) round_sums(job, room, row * PANEL, n_rows, col * PANEL, n_cols);
}

static void multiply_pieces(void *arg, int64_t begin, int64_t end, int worker) {
    const bf16_job *job = arg;
    const bool rows = job->by_rows;
    const int64_t n_cut = n_panels(job, rows), n_other = n_panels(job, !rows), stop = job->k + job->steps;
    uint16_t *own = job->own + worker * job->own_elements;
    const bool waits = job->shape.k > job->shared_steps;
    float *room = (float *)(void *)own, *sums = waits ? job->sums : room + SUMS;
    tiles u;
    int64_t shaped = 0;
    own += job->own_sums * SUMS * (int64_t)(sizeof *room / sizeof *own);
    for (int64_t i = begin; i < end; i++) {
        const int64_t first = i / job->parts * job->group, n = ht_min_i64(job->group, n_cut - first);
        const int64_t part = i % job->parts, from = part * n_other / job->parts, to = (part + 1) * n_other / job->parts;
        for (int64_t k = job->k; k < stop; k += DEPTH) {
            const int64_t steps = ht_min_i64(DEPTH, stop - k);
            if (packed(job, rows)) pack_panels(job, rows, first, n, k, steps, own);
            for (int64_t p = 0; p < n; p++)
                for (int64_t q = from; q < to; q++) {
                    const uint16_t *x = own + p * panel_size(job), *y = shared_at(job, k, q);
                    float *of = sums + (((waits ? first : 0) + p) * n_other + q) * SUMS;
                    if (rows)
                        multiply_panels(job, first + p, x, q, y, k, steps, &u, &shaped, of, room);
                    else
                        multiply_panels(job, q, y, first + p, x, k, steps, &u, &shaped, of, room);
                }
        }
    }
    tiles_end(&u);
}

/* ---- blocks and matrices ---- */

static void run_phase(bf16_job *job, int64_t n, ht_block_fn *fn) {
    if (job->alone || job->n_rows * job->n_cols * job->steps <= INLINE_WORK)
        fn(job, 0, n, 0);
    else
        ht_pool_run(job->call->pool, n, 1, fn, job);
}

static void run_block(bf16_job *job) {
    const bool share = packed(job, !job->by_rows);
    const int64_t k = job->shape.k, n_other = n_panels(job, !job->by_rows);
    const int64_t n_threads = job->alone ? 1 : ht_pool_threads(job->call->pool);
    const int64_t n_groups = ht_ceil_div_i64(n_panels(job, job->by_rows), job->group);
    job->parts = n_threads == 1 ? 1 : ht_min_i64(n_other, ht_ceil_div_i64(PIECES * n_threads, n_groups));
    for (job->k = 0; job->k < k; job->k += job->steps) {
        job->steps = ht_min_i64(job->shared_steps, k - job->k);
        if (share)
            run_phase(job, ht_ceil_div_i64(n_other, job->shared_group) * ht_ceil_div_i64(job->steps, DEPTH),
                      pack_shared);
        run_phase(job, n_groups * job->parts, multiply_pieces);
    }
}

static void run_matrix(bf16_job *job, int64_t index) {
    const ht_call *call = job->call;
    const ht_matmul_shape *s = &job->shape;
    const ht_view *a = &call->in[job->swapped], *b = &call->in[!job->swapped];
    job->a = (lines){HT_BF16, a->data, ht_matmul_offset(a, &call->out, index), s->a_row, s->a_k, s->m, s->k};
    job->b = (lines){HT_BF16, b->data, ht_matmul_offset(b, &call->out, index), s->b_col, s->b_k, s->n, s->k};
    job->out = (uint16_t *)call->out.data + index * s->m * s->n;
    for (job->row = 0; job->row < s->m; job->row += job->most_rows)
        for (job->col = 0; job->col < s->n; job->col += job->most_cols) {
            job->n_rows = ht_min_i64(job->most_rows, s->m - job->row);
            job->n_cols = ht_min_i64(job->most_cols, s->n - job->col);
            run_block(job);
        }
}

/* ---- the kernel ---- */

/* What one matrix at a time needs, laid out at `at`, or only counted; in elements, of each part whole cache lines. */
static int64_t lay_out(bf16_job *job, uint16_t *at) {
    const ht_matmul_shape *s = &job->shape;
    const int64_t n_threads = job->alone ? 1 : ht_pool_threads(job->call->pool), size = panel_size(job);
    const int64_t n_other = ht_min_i64(panels_of(job->by_rows ? s->n : s->m), SHARED_LINES / PANEL);
    int64_t n_cut = panels_of(job->by_rows ? s->m : s->n);
    const int64_t depths = ht_max_i64(1, SHARED_BYTES / (n_other * size * (int64_t)sizeof *at));
    job->shared_steps = packed(job, !job->by_rows) ? depths * DEPTH : s->k;
    if (s->k > job->shared_steps) n_cut = ht_min_i64(n_cut, SUMS_FLOATS / (n_other * SUMS));
    job->most_rows = PANEL * (job->by_rows ? n_cut : n_other);
    job->most_cols = PANEL * (job->by_rows ? n_other : n_cut);
    const int64_t most_shared = n_other * ht_min_i64(depths, ht_ceil_div_i64(s->k, DEPTH));
    const int64_t n_shared = packed(job, !job->by_rows) ? most_shared : 0;
    job->shared_group = ht_max_i64(1, ht_min_i64(GROUP, most_shared / n_threads));
    const bool side_by_side = packed(job, job->by_rows) && (job->by_rows ? s->a_k : s->b_k) != 1;
    job->group = ht_max_i64(1, ht_min_i64(side_by_side ? GROUP : 1, n_cut / (PIECES * n_threads)));
    const bool waits = s->k > job->shared_steps;
    job->own_sums = 1 + (s->k > DEPTH && !waits ? job->group * n_other : 0);
    job->own_elements = (packed(job, job->by_rows) ? job->group * size : 0) + job->own_sums * SUMS * 2;
    const int64_t n_sums = waits ? n_cut * n_other * SUMS * 2 : 0;
    if (at) {
        job->shared = at;
        job->own = at + n_shared * size;
        job->sums = (float *)(void *)(job->own + n_threads * job->own_elements);
    }
    return n_shared * size + n_threads * job->own_elements + n_sums;
}

static bf16_job job_of(const ht_call *call) {
    bf16_job job = {.call = call, .shape = ht_matmul_shape_of(call), .n_matrices = 1};
    ht_matmul_shape *s = &job.shape;
    for (int d = 0; d < call->out.n_dims - 2; d++) job.n_matrices *= call->out.shape[d];
    job.swapped = (s->m == 1 && s->n > 1 && s->b_k == 1) || (s->n == 1 && s->m > 1 && s->a_k != 1);
    if (job.swapped) *s = (ht_matmul_shape){s->n, s->m, s->k, s->b_col, s->b_k, s->a_k, s->a_row};
    job.alone =
        job.n_matrices >= ht_pool_threads(call->pool) && s->m * s->n <= ALONE_SUMS && s->m * s->n * s->k <= ALONE_WORK;
    job.by_rows = s->m >= s->n || s->m > FEW_ROWS;
    job.a_direct = s->a_k == 1 && s->k % TILE_STEPS == 0 && s->a_row % TILE_STEPS == 0 &&
                   (s->n <= DIRECT_FAR_COLS || s->a_row % SAME_SETS != 0);
    job.depth = ht_min_i64(DEPTH, ht_ceil_div_i64(s->k, TILE_STEPS) * TILE_STEPS);
    return job;
}

static void run_matrices(void *arg, int64_t begin, int64_t end, int worker) {
    bf16_job job = *(const bf16_job *)arg;
    lay_out(&job, (uint16_t *)job.call->scratch + worker * lay_out(&job, NULL));
    for (int64_t i = begin; i < end; i++) run_matrix(&job, i);
}

static size_t matmul_scratch(const ht_call *call) {
    if (!ht_matmul_bf16_takes(call)) return HT_MATMUL_BESIDE.scratch ? HT_MATMUL_BESIDE.scratch(call) : 0;
    bf16_job job = job_of(call);
    return (size_t)(lay_out(&job, NULL) * (job.alone ? ht_pool_threads(call->pool) : 1)) * sizeof(uint16_t);
}

static ht_status matmul(const ht_call *call, ht_error *err) {
    if (!ht_matmul_bf16_takes(call)) return HT_MATMUL_BESIDE.run(call, err);
    bf16_job job = job_of(call);
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

const ht_kernel HT_ISA_NAME(ht_matmul_bf16) = {.run = matmul, .scratch = matmul_scratch};

/* ---- the trial ---- */

/* Numbers from 2^-4 to 2^4, so that every other order of a sum rounds differently, by as many rows and columns as fill
 * tiles or do not, in steps that fill the last tile or do not, in one go and in two. */
void HT_ISA_NAME(ht_tiles_trial)(float sums[HT_TILES_TRIAL]) {
    enum { STEPS = 2 * TILE_STEPS, REST = 7, ALL = STEPS + REST };
    static const int lines_of[][2] = {{PANEL, PANEL}, {21, 9}, {TILE_ROWS, PANEL}, {5, 3}};
    uint16_t from[2][PANEL * ALL];
    _Alignas(64) uint16_t panels[2][PANEL * 3 * TILE_STEPS];
    uint32_t seed = 1;
    for (int i = 0; i < 2 * PANEL * ALL; i++) {
        seed = seed * 1664525 + 1013904223;
        from[i / (PANEL * ALL)][i % (PANEL * ALL)] = (uint16_t)((seed >> 16 & 0x83ff) + 0x3d80);
    }
    memset(sums, 0, HT_TILES_TRIAL * sizeof *sums);
    for (int i = 0; i < 4; i++, sums += SUMS) {
        bf16_job job = {.depth = 3 * TILE_STEPS, .n_rows = lines_of[i][0], .n_cols = lines_of[i][1]};
        job.a = (lines){HT_BF16, from[0], 0, ALL, 1, job.n_rows, ALL};
        job.b = (lines){HT_BF16, from[1], 0, 1, PANEL, job.n_cols, ALL};
        pack_panels(&job, true, 0, 1, 0, ALL, panels[0]);
        pack_panels(&job, false, 0, 1, 0, ALL, panels[1]);
        row_panel a = {panels[0], TILE_SIZE, 2 * TILE_SIZE, TILE_BYTES};
        tiles u;
        int64_t shaped = 0;
        multiply(&u, &shaped, &a, panels[1], job.n_rows, job.n_cols, STEPS, NULL, sums, true);
        a.at += STEPS * PANEL;
        multiply(&u, &shaped, &a, panels[1] + STEPS * PANEL, job.n_rows, job.n_cols, REST, sums, sums, false);
        tiles_end(&u);
    }
}
