/* Mixture-of-experts products (LINEAR_GATHER) and their gradients. Matrices that no row selects are not read.
 *
 * Integer products form one work list. Every row of x is quantised once per activation format, the rows of each expert
 * form separate tiles, and the panels of all selected matrices are split into pieces for the thread pool. Other
 * products (cpu/matrix_dense.c) and gradients run one expert after another. */
#include "cpu/experts.h"

#include "base/checked.h"
#include "base/error.h"
#include "cpu/call.h"
#include "cpu/gemm_schedule.h"
#include "cpu/matrix_ops.h"
#include "device/params.h"

#include <string.h>

enum {
    ROWS_AT_ONCE = 512, /* of one matrix; the order of sums does not depend on it */
    ROWS_OF_WAVE = 1024,
    MOST_TYPES = 4 /* weight types per call: usually one, or two if some matrices have more bits */
};

/* The work of a call. A pair is a row of x and one of the experts it selects. */
typedef struct job {
    const ht_call *call;
    const ht_linear_gather_params *p;
    int64_t n_experts, n_x, pairs, per_row; /* rows of x; pairs, of each row of ids */
    int64_t n_rows, k, n_blocks;            /* of every matrix; blocks of 32 columns */
    int64_t width;                          /* floats of output per pair */
    bool together;                          /* in integers */
    bool back;                              /* gradients: the gathered rows are dy, in `y`, and dx, in `x` */
    const ht_matrix_kernels *kernels;
    int n_types;
    const ht_matrix *of_type[MOST_TYPES]; /* one of each */
    bool needed[HT_FORM_COUNT];
    size_t decoded_bytes; /* per worker, for pieces of any group */
} job;

/* Rows in the forms that are needed, with the offsets for each type of weights. */
typedef struct rows {
    ht_qrows form[HT_FORM_COUNT];
    void *offset[MOST_TYPES];
} rows;

/* Pairs order[begin] to order[begin + n - 1], which select the same expert. */
typedef struct group {
    ht_gemm_schedule s;
    int64_t begin, n;
    float *y;                    /* results of several rows; NULL: a single row is written to the output directly */
    int64_t end_tile, end_piece; /* among those of the wave */
} group;

/* The scratch memory's parts. */
typedef struct room {
    int64_t *first; /* [n_experts + 1] of each expert's pairs in `order` */
    int64_t *order; /* [pairs] pairs, expert by expert */
    float *x, *y;   /* gathered rows, and their results */
    void *product;  /* the product's own scratch */
    rows all, tiles;
    group *groups;
    char *decoded;
    float *sums;
} room;

/* ---- work description and layout ---- */

static bool add_type(job *j, const ht_matrix *m) {
    for (int i = 0; i < j->n_types; i++)
        if (j->of_type[i]->type == m->type) return true;
    if (j->n_types == MOST_TYPES) return false;
    j->of_type[j->n_types++] = m;
    j->needed[ht_gemm_form(m)] = true;
    return true;
}

/* One of the matrices of a set that are of its i-th weight type. */
static const ht_matrix *kind_of(const ht_linear_gather_params *p, int set, int32_t i) {
    return p->experts[set]->matrix[p->experts[set]->n + i];
}

static job describe(const ht_call *call) {
    const ht_linear_gather_params *p = call->params;
    const ht_view *x = &call->in[0], *ids = &call->in[1];
    const ht_matrix *m = p->experts[0]->matrix[0];
    job j = {.call = call, .p = p, .pairs = ht_view_size(ids), .per_row = ids->shape[1]};
    j.n_x = x->n_dims == 3 ? j.pairs : x->shape[0];
    j.n_rows = m->n_rows;
    j.k = m->k;
    j.n_blocks = ht_ceil_div_i64(m->k, HT_QBLOCK);
    j.width = p->n_sets * m->n_rows;
    j.together = x->stride[x->n_dims - 1] == 1 || m->k == 1;
    j.kernels = ht_kernels_of(m);
    j.n_experts = p->experts[0]->n;
    for (int s = 0; s < p->n_sets; s++)
        for (int32_t i = 0; j.together && i < p->experts[s]->n_kinds; i++)
            j.together = ht_gemm_shares_rows(kind_of(p, s, i)) && add_type(&j, kind_of(p, s, i));
    j.decoded_bytes = (size_t)j.kernels->tile_panels * ht_max_size(sizeof(ht_qpanel), sizeof(ht_wpanel));
    return j;
}

static int64_t wave_rows(const job *j) { return ht_min_i64(j->pairs, ROWS_OF_WAVE); }
/* An expert with more than ROWS_AT_ONCE rows has several groups. */
static int64_t most_groups(const job *j) { return ht_min_i64(j->pairs, j->n_experts + ROWS_OF_WAVE / ROWS_AT_ONCE); }

/* ---- laying out ---- */

static int64_t halves_of(ht_weight_type type) { return ht_panel_layout_of(type)->halves; }

/* Workspace for n rows, each a separate tile. */
static void deal_rows(const job *j, int64_t n, ht_scratch_layout *d, rows *r) {
    int64_t blocks = n * j->n_blocks;
    *r = (rows){0};
    for (int f = 0; f < HT_FORM_COUNT; f++) {
        r->form[f] = (ht_qrows){
            .n = n, .n_blocks = j->n_blocks, .n_tiles = n, .tile_rows = 1, .planes = ht_form_planes((ht_form)f)};
        if (j->needed[f]) ht_qrows_layout(&r->form[f], (ht_form)f, blocks, d);
    }
    for (int i = 0; i < j->n_types; i++) r->offset[i] = ht_offsets_layout(j->of_type[i], blocks, d);
}

static void deal_together(const job *j, ht_scratch_layout *d, room *r) {
    const int64_t n_threads = ht_pool_threads(ht_call_pool(j->call));
    deal_rows(j, j->n_x, d, &r->all);
    deal_rows(j, wave_rows(j), d, &r->tiles);
    r->y = ht_scratch_take(d, wave_rows(j) * j->width, sizeof *r->y);
    r->groups = ht_scratch_take(d, most_groups(j), sizeof *r->groups);
    r->decoded = ht_scratch_take(d, n_threads, j->decoded_bytes);
}

static void deal_apart(const job *j, ht_scratch_layout *d, room *r) {
    int64_t n = ht_min_i64(j->pairs, ROWS_AT_ONCE);
    r->x = ht_scratch_take(d, n * j->k, sizeof *r->x);
    r->y = ht_scratch_take(d, n * j->n_rows, sizeof *r->y);
    const int threads = ht_pool_threads(ht_call_pool(j->call));
    size_t largest = 0;
    for (int s = 0; s < j->p->n_sets; s++)
        for (int32_t i = 0; i < j->p->experts[s]->n_kinds; i++) {
            const ht_matrix *one = kind_of(j->p, s, i);
            largest = ht_max_size(largest, j->back ? ht_back_scratch(one, threads)
                                                   : ht_cpu_ops_of(one)->mul_scratch(one, n, threads));
        }
    r->product = ht_scratch_take(d, 1, largest);
}

static size_t lay_out(const job *j, room *r) {
    ht_scratch_layout d = {.at = j->call->scratch};
    *r = (room){0};
    r->first = ht_scratch_take(&d, j->n_experts + 1, sizeof *r->first);
    r->order = ht_scratch_take(&d, j->pairs, sizeof *r->order);
    (j->together ? deal_together : deal_apart)(j, &d, r);
    return d.used;
}

size_t ht_cpu_linear_gather_scratch(const ht_call *call) {
    ht_call counted = *call;
    counted.scratch = NULL;
    room r;
    job j = describe(&counted);
    return lay_out(&j, &r);
}

/* ---- pairs sorted by expert ---- */

static int64_t expert_of(const ht_view *ids, int64_t pair) {
    int64_t m = ids->shape[1];
    return ((const int32_t *)ids->data)[pair / m * ids->stride[0] + pair % m * ids->stride[1]];
}

ht_status ht_experts_sort(const char *op, const ht_view *ids, int64_t begin, int64_t end, int64_t n, int64_t *first,
                          int64_t *order, ht_error *err) {
    const int64_t m = ids->shape[1];
    memset(first, 0, ((size_t)n + 1) * sizeof *first);
    for (int64_t i = begin * m; i < end * m; i++) {
        int64_t e = expert_of(ids, i);
        if (e < 0 || e >= n)
            return ht_fail(err, HT_ERR_ARGUMENT,
                           "%s: expert index %lld is out of range in row %lld, expected less than %d", op, (long long)e,
                           (long long)(i / m), (int)n);
        first[e]++;
    }
    for (int64_t e = 0, before = 0; e <= n; e++) {
        int64_t count = first[e];
        first[e] = before;
        before += count;
    }
    for (int64_t i = begin * m; i < end * m; i++) order[first[expert_of(ids, i)]++] = i;
    /* Each entry now holds the start of the next expert. */
    memmove(first + 1, first, (size_t)n * sizeof *first);
    first[0] = 0;
    return HT_OK;
}

static ht_status sort_pairs(const char *op, const job *j, const room *r, ht_error *err) {
    const ht_view *ids = &j->call->in[1];
    return ht_experts_sort(op, ids, 0, ids->shape[0], j->n_experts, r->first, r->order, err);
}

/* Row `row` of x, of which there is one per pair or one per row of ids. */
static const float *row_of(const job *j, int64_t row) {
    const ht_view *x = &j->call->in[0];
    int64_t m = j->per_row;
    return (const float *)x->data +
           (x->n_dims == 3 ? row / m * x->stride[0] + row % m * x->stride[1] : row * x->stride[0]);
}

static int64_t row_of_pair(const job *j, int64_t pair) { return j->call->in[0].n_dims == 3 ? pair : pair / j->per_row; }

static float *out_of(const job *j, int64_t pair) { return (float *)j->call->out.data + pair * j->width; }

/* ---- together: the rows of x, each once ---- */

typedef struct wave {
    const job *j;
    const room *r;
    int64_t n_groups;
} wave;

static void prepare_rows(void *arg, int64_t begin, int64_t end, int worker) {
    (void)worker;
    const wave *w = arg;
    const job *j = w->j;
    const rows *to = &w->r->all;
    for (int64_t i = begin; i < end; i++) {
        for (int f = 0; f < HT_FORM_COUNT; f++)
            if (j->needed[f]) j->kernels->prepare[f](row_of(j, i), 0, j->k, &to->form[f], i, 0, 1);
        for (int t = 0; t < j->n_types; t++) {
            const ht_qrows *form = &to->form[ht_gemm_form(j->of_type[t])];
            if (to->offset[t]) j->kernels->offsets(j->of_type[t]->type, form, i, 0, form->planes, to->offset[t]);
        }
    }
}

/* ---- together: a wave of experts ---- */

/* Sets s->x to the rows of `all` from `row` on. */
static void point_at(const job *j, const rows *all, int64_t row, ht_gemm_schedule *s) {
    for (int f = 0; f < HT_FORM_COUNT; f++) {
        const ht_qrows *from = &all->form[f];
        const int64_t blocks = row * j->n_blocks * from->planes;
        if (!j->needed[f]) continue;
        if (f == HT_FORM_WORDS)
            s->x[f].word = from->word + blocks * HT_QBLOCK;
        else {
            s->x[f].q = from->q + blocks * HT_QBLOCK;
            s->x[f].sum = from->sum + blocks * 2;
        }
        s->x[f].scale = from->scale + blocks;
    }
    for (int i = 0; i < s->n; i++)
        for (int t = 0; t < j->n_types; t++) {
            const ht_weight_type type = j->of_type[t]->type;
            const int64_t blocks = row * j->n_blocks * all->form[s->of[i].form].planes;
            if (s->product[i].m->type == type && all->offset[t])
                s->of[i].offset = (int32_t *)all->offset[t] + blocks * halves_of(type);
        }
}

/* `row`: how many rows of the wave are before it. */
static void lay_group(const job *j, const room *r, int64_t expert, int64_t row, int n_threads, group *g) {
    ht_gemm_schedule *s = &g->s;
    bool alone = g->n == 1;
    int64_t pair = r->order[g->begin];
    g->y = alone ? NULL : r->y + row * j->width;
    float *y = alone ? out_of(j, pair) : g->y;
    s->kernels = j->kernels;
    s->n_x = g->n;
    s->n_threads = n_threads;
    s->n = j->p->n_sets;
    for (int i = 0; i < s->n; i++)
        s->product[i] = (ht_gemm){.m = j->p->experts[i]->matrix[expert], .y = y + i * j->n_rows, .ldy = j->width};
    ht_gemm_schedule_cut(s);
    if (alone)
        point_at(j, &r->all, row_of_pair(j, pair), s);
    else
        point_at(j, &r->tiles, row, s);
    s->decoded = r->decoded;
    s->decoded_bytes = j->decoded_bytes;
}

/* Fills a wave from pair *pair of expert *expert on, up to its capacity, and advances both. */
static wave next_wave(const job *j, const room *r, int64_t *expert, int64_t *pair) {
    wave w = {.j = j, .r = r};
    int64_t n_rows = 0, max_groups = most_groups(j), at[2] = {*expert, *pair};
    for (int64_t e = at[0]; e < j->n_experts && w.n_groups < max_groups;) {
        int64_t n = ht_min_i64(r->first[e + 1] - at[1], ROWS_AT_ONCE);
        if (n == 0) {
            e++;
            continue;
        }
        if (n_rows + n > ROWS_OF_WAVE) break;
        r->groups[w.n_groups].begin = at[1];
        r->groups[w.n_groups++].n = n;
        n_rows += n;
        at[1] += n;
    }
    int threads = ht_pool_threads(ht_call_pool(j->call)),
        each = (int)ht_ceil_div_i64(threads, ht_max_i64(w.n_groups, 1));
    int64_t row = 0, tile = 0, piece = 0;
    for (int64_t i = 0; i < w.n_groups; i++) {
        group *g = &r->groups[i];
        while (r->first[*expert + 1] <= g->begin) ++*expert;
        lay_group(j, r, *expert, row, each, g);
        row += g->n;
        if (g->y) tile += g->s.x[0].n_tiles;
        piece += ht_gemm_schedule_pieces(&g->s);
        g->end_tile = tile;
        g->end_piece = piece;
    }
    *pair = at[1];
    return w;
}

/* Copies prepared row `from`, block by block, to row i of the tile of n rows that begins at row `first`. */
static void copy_row(const job *j, const rows *all, const ht_gemm_schedule *s, int64_t from, int64_t first, int64_t n,
                     int64_t i) {
    for (int f = 0; f < HT_FORM_COUNT; f++) {
        if (!j->needed[f]) continue;
        const ht_qrows *of = &all->form[f], *to = &s->x[f];
        const int64_t planes = of->planes;
        for (int64_t b = 0; b < j->n_blocks; b++) {
            const int64_t block = (first * j->n_blocks + n * b) * planes, at = block + planes * i;
            const int64_t old = (from * j->n_blocks + b) * planes;
            memcpy(to->scale + at, of->scale + old, (size_t)planes * sizeof *to->scale);
            if (f == HT_FORM_WORDS) {
                memcpy(to->word + at * HT_QBLOCK, of->word + old * HT_QBLOCK, HT_QBLOCK * sizeof *to->word);
                continue;
            }
            memcpy(to->q + at * HT_QBLOCK, of->q + old * HT_QBLOCK, (size_t)planes * HT_QBLOCK);
            for (int64_t half = 0; half < 2; half++)
                memcpy(to->sum + 2 * block + (half * n + i) * planes, of->sum + 2 * old + half * planes,
                       (size_t)planes * sizeof *to->sum);
        }
    }
}

static int64_t tiles_until(const group *g) { return g->end_tile; }
static int64_t pieces_until(const group *g) { return g->end_piece; }

/* The group that item `item` is of, and how many items are before that. */
static const group *group_of(const wave *w, int64_t (*until)(const group *), int64_t item, int64_t *first) {
    int64_t low = 0, high = w->n_groups - 1;
    while (low < high) {
        int64_t middle = (low + high) / 2;
        if (until(&w->r->groups[middle]) > item)
            high = middle;
        else
            low = middle + 1;
    }
    *first = low ? until(&w->r->groups[low - 1]) : 0;
    return &w->r->groups[low];
}

/* One tile of a wave: rows [first, first + n) of its group. */
typedef struct tile {
    const group *g;
    int64_t number, first, n;
} tile;

static tile tile_of(const wave *w, int64_t item) {
    int64_t before;
    tile t = {.g = group_of(w, tiles_until, item, &before)};
    t.number = item - before;
    t.first = ht_qtile_first(t.g->s.x, t.number);
    t.n = ht_qtile_rows(t.g->s.x, t.number);
    return t;
}

static int64_t pair_of(const wave *w, const tile *t, int64_t i) { return w->r->order[t->g->begin + t->first + i]; }

static void make_tiles(void *arg, int64_t begin, int64_t end, int worker) {
    (void)worker;
    const wave *w = arg;
    const job *j = w->j;
    for (int64_t item = begin; item < end; item++) {
        tile t = tile_of(w, item);
        const ht_gemm_schedule *s = &t.g->s;
        for (int64_t i = 0; i < t.n; i++)
            copy_row(j, &w->r->all, s, row_of_pair(j, pair_of(w, &t, i)), t.first, t.n, i);
        for (int i = 0; i < s->n; i++)
            if (s->of[i].offset && (i == 0 || s->of[i].offset != s->of[i - 1].offset))
                ht_gemm_offsets(s, i, t.number, 0, (int)t.n);
    }
}

static void multiply_pieces(void *arg, int64_t begin, int64_t end, int worker) {
    const wave *w = arg;
    while (begin < end) {
        int64_t before;
        const group *g = group_of(w, pieces_until, begin, &before);
        int64_t last = ht_min_i64(end, g->end_piece);
        ht_gemm_schedule_run(&g->s, begin - before, last - before, worker);
        begin = last;
    }
}

/* Copies the rows that tiles computed to the output. */
static void put_rows(void *arg, int64_t begin, int64_t end, int worker) {
    (void)worker;
    const wave *w = arg;
    const int64_t width = w->j->width;
    for (int64_t item = begin; item < end; item++) {
        tile t = tile_of(w, item);
        for (int64_t i = 0; i < t.n; i++)
            memcpy(out_of(w->j, pair_of(w, &t, i)), t.g->y + (t.first + i) * width, (size_t)width * sizeof(float));
    }
}

static void multiply_together(const job *j, const room *r) {
    ht_pool *pool = ht_call_pool(j->call);
    wave w = {.j = j, .r = r};
    ht_pool_run(pool, j->n_x, 1, prepare_rows, &w);
    for (int64_t expert = 0, pair = 0; pair < j->pairs;) {
        w = next_wave(j, r, &expert, &pair);
        const group *last = &r->groups[w.n_groups - 1];
        ht_pool_run(pool, last->end_tile, 1, make_tiles, &w);
        ht_pool_run(pool, last->end_piece, 1, multiply_pieces, &w);
        ht_pool_run(pool, last->end_tile, 1, put_rows, &w);
    }
}

/* ---- one matrix after another ---- */

static void bring_row(const job *j, int64_t row, float *to) {
    const ht_view *x = &j->call->in[0];
    int64_t stride = x->stride[x->n_dims - 1];
    const float *from = row_of(j, row);
    for (int64_t i = 0; i < j->k; i++) to[i] = from[i * stride];
}

/* Multiplies pairs order[begin] to order[begin + n - 1], which select the same expert. */
static void multiply_apart(const job *j, const room *r, int64_t expert, int64_t begin, int64_t n) {
    for (int64_t i = 0; i < n; i++) bring_row(j, row_of_pair(j, r->order[begin + i]), r->x + i * j->k);
    for (int s = 0; s < j->p->n_sets; s++) {
        const ht_matrix *m = j->p->experts[s]->matrix[expert];
        const ht_product p = {m, r->x, j->k, n, NULL, r->y, j->n_rows, 0};
        ht_cpu_ops_of(m)->mul(&p, r->product, ht_call_pool(j->call));
        for (int64_t i = 0; i < n; i++)
            memcpy(out_of(j, r->order[begin + i]) + s * j->n_rows, r->y + i * j->n_rows,
                   (size_t)j->n_rows * sizeof *r->y);
    }
}

/* Calls `multiply` for the pairs of every expert, up to ROWS_AT_ONCE at a time. */
static void each_expert(const job *j, const room *r,
                        void (*multiply)(const job *, const room *, int64_t expert, int64_t begin, int64_t n)) {
    for (int64_t e = 0; e < j->n_experts; e++)
        for (int64_t i = r->first[e]; i < r->first[e + 1]; i += ROWS_AT_ONCE)
            multiply(j, r, e, i, ht_min_i64(ROWS_AT_ONCE, r->first[e + 1] - i));
}

ht_status ht_cpu_linear_gather(const ht_call *call, ht_error *err) {
    if (ht_view_size(&call->out) == 0) return HT_OK;
    job j = describe(call);
    room r;
    lay_out(&j, &r);
    ht_status status = sort_pairs("linear_gather", &j, &r, err);
    if (status) return status;
    if (j.together)
        multiply_together(&j, &r);
    else
        each_expert(&j, &r, multiply_apart);
    return HT_OK;
}

/* ---- gradients ---- */

static job describe_back(const ht_call *call) {
    const ht_linear_gather_params *p = call->params;
    const ht_matrix *m = p->experts[0]->matrix[0];
    return (job){.call = call,
                 .p = p,
                 .n_experts = p->experts[0]->n,
                 .pairs = ht_view_size(&call->in[1]),
                 .n_rows = m->n_rows,
                 .k = m->k,
                 .back = true};
}

size_t ht_cpu_linear_gather_back_scratch(const ht_call *call) {
    ht_call counted = *call;
    counted.scratch = NULL;
    room r;
    const job j = describe_back(&counted);
    return lay_out(&j, &r);
}

/* The gradients of the outputs of pair `pair` that matrix set `set` gave. */
static void collect(const job *j, int64_t pair, int set, float *to) {
    const ht_view *dy = &j->call->in[0];
    const int64_t m = dy->shape[1], step = dy->stride[2];
    const float *from = (const float *)dy->data + pair / m * dy->stride[0] + pair % m * dy->stride[1];
    from += set * j->n_rows * step;
    for (int64_t c = 0; c < j->n_rows; c++) to[c] = from[c * step];
}

static void add_to(const job *j, int64_t pair, bool begins, const float *from) {
    float *to = (float *)j->call->out.data + pair * j->k;
    if (begins)
        memcpy(to, from, (size_t)j->k * sizeof *to);
    else
        for (int64_t c = 0; c < j->k; c++) to[c] += from[c];
}

/* Pairs order[begin] to order[begin + n - 1], which chose one expert. */
static void back_apart(const job *j, const room *r, int64_t expert, int64_t begin, int64_t n) {
    for (int s = 0; s < j->p->n_sets; s++) {
        for (int64_t i = 0; i < n; i++) collect(j, r->order[begin + i], s, r->y + i * j->n_rows);
        const ht_product p = {j->p->experts[s]->matrix[expert], r->y, j->n_rows, n, NULL, r->x, j->k, 0};
        ht_back_mul(&p, r->product, ht_call_pool(j->call));
        for (int64_t i = 0; i < n; i++) add_to(j, r->order[begin + i], s == 0, r->x + i * j->k);
    }
}

ht_status ht_cpu_linear_gather_back(const ht_call *call, ht_error *err) {
    const job j = describe_back(call);
    room r;
    if (ht_view_size(&call->out) == 0) return HT_OK;
    lay_out(&j, &r);
    ht_status status = sort_pairs("linear_gather_back", &j, &r, err);
    if (!status) each_expert(&j, &r, back_apart);
    return status;
}
