#include "cpu/gemm_schedule.h"

#include "base/checked.h"
#include "cpu/coarse_head.h"
#include "cpu/matrix_ops.h"

#include <stdint.h>

enum {
    ROWS_BYTES_MAX = 768 * 1024, /* activations that stay in the L2 cache while all weights are read */
    TILES_PER_THREAD = 4         /* as HT_PIECES_PER_THREAD, for quantising rows */
};

/* Types with 32-bit scales, which are rare, and unpacked ones have no kernel that decodes in registers. */
static bool has_direct(ht_weight_type type) {
    const ht_panel_layout *l = ht_panel_layout_of(type);
    return !l->unpacked && !(l->affine && l->scale_bytes == 2 * HT_PANEL * (int)sizeof(float));
}

bool ht_gemm_shares_rows(const ht_matrix *m) { return ht_cpu_ops_of(m)->takes_rows_once; }

ht_form ht_gemm_form(const ht_matrix *m) {
    return !ht_panel_layout_of(m->type)->bits ? HT_FORM_WORDS : ht_is_high(m) ? HT_FORM_PLANES : HT_FORM_BYTES;
}

/* ---- layout ---- */

void ht_qrows_layout(ht_qrows *x, ht_form form, int64_t blocks, ht_scratch_layout *d) {
    blocks = blocks * ht_form_planes(form) + 1; /* kernels may read one row past the end */
    if (form != HT_FORM_WORDS) {
        x->q = ht_scratch_take(d, blocks * HT_QBLOCK, sizeof *x->q);
        x->sum = ht_scratch_take(d, blocks * 2, sizeof *x->sum);
    } else
        x->word = ht_scratch_take(d, blocks * HT_QBLOCK, sizeof *x->word);
    x->scale = ht_scratch_take(d, blocks, sizeof *x->scale);
}

void *ht_offsets_layout(const ht_matrix *m, int64_t blocks, ht_scratch_layout *d) {
    const ht_form form = ht_gemm_form(m);
    if (form == HT_FORM_WORDS) return NULL;
    return ht_scratch_take(d, blocks * ht_form_planes(form) * ht_panel_layout_of(m->type)->halves + 1, sizeof(int32_t));
}

static void lay_tiles(ht_gemm_schedule *s) {
    const ht_matrix_kernels *kernels = s->kernels;
    int planes = 1;
    for (int i = 0; i < s->n; i++)
        if (ht_gemm_form(s->product[i].m) == HT_FORM_PLANES) planes = 2;
    s->direct = s->n_x <= kernels->direct_most[planes - 1];
    const int rows = (s->direct ? kernels->direct_rows : kernels->tile_rows)[planes - 1];
    const int64_t n_tiles = ht_ceil_div_i64(s->n_x, rows);
    for (int f = 0; f < HT_FORM_COUNT; f++)
        s->x[f] = (ht_qrows){.n = s->n_x,
                             .n_blocks = s->n ? ht_ceil_div_i64(s->product[0].m->k, HT_QBLOCK) : 0,
                             .n_tiles = n_tiles,
                             .tile_rows = s->n_x / n_tiles,
                             .n_larger = s->n_x % n_tiles,
                             .planes = ht_form_planes((ht_form)f)};
    bool dealt_evenly = n_tiles % s->n_threads == 0 || n_tiles >= TILES_PER_THREAD * (int64_t)s->n_threads;
    s->n_shares = dealt_evenly ? 1 : ht_min_i64(s->n_threads, s->x[0].tile_rows);
}

static bool needed(const ht_gemm_schedule *s, ht_form form) {
    for (int i = 0; i < s->n; i++)
        if (s->of[i].form == form) return true;
    return false;
}

static void lay_rows(ht_gemm_schedule *s, ht_scratch_layout *d) {
    for (int f = 0; f < HT_FORM_COUNT; f++)
        if (needed(s, (ht_form)f)) ht_qrows_layout(&s->x[f], (ht_form)f, s->n_x * s->x[0].n_blocks, d);
}

/* The first product with the weight type of product i: products of one type share offsets. */
static int first_alike(const ht_gemm_schedule *s, int i) {
    int first = 0;
    while (s->product[first].m->type != s->product[i].m->type) first++;
    return first;
}

static void lay_offsets(ht_gemm_schedule *s, ht_scratch_layout *d) {
    for (int i = 0; i < s->n; i++) {
        int first = first_alike(s, i);
        s->of[i].offset =
            first < i ? s->of[first].offset : ht_offsets_layout(s->product[i].m, s->n_x * s->x[0].n_blocks, d);
    }
}

static void count_decoded(ht_gemm_schedule *s) {
    size_t panel = 0;
    for (int i = 0; i < s->n; i++)
        if (!s->of[i].direct)
            panel = ht_max_size(panel, s->of[i].form == HT_FORM_WORDS ? sizeof(ht_wpanel) : sizeof(ht_qpanel));
    s->decoded_bytes = (size_t)s->kernels->tile_panels * panel;
}

/* Chunks of about the same size, as many whole scale units as can be decoded at a time. */
static int64_t chunk_of(const ht_matrix *m, int64_t n_blocks) {
    bool bytes = ht_gemm_form(m) != HT_FORM_WORDS;
    int64_t group = bytes ? ht_panel_layout_of(m->type)->group : 1, most = (bytes ? HT_QCHUNK : HT_WCHUNK) / group;
    int64_t groups = n_blocks / group;
    return ht_ceil_div_i64(groups, ht_ceil_div_i64(groups, most)) * group;
}

static int64_t groups_of(const ht_gemm_schedule *s, int i) {
    return ht_ceil_div_i64(s->of[i].n_panels, s->kernels->tile_panels);
}

static void lay_pieces(ht_gemm_schedule *s) {
    int64_t n_tiles = s->x[0].n_tiles, wanted = (int64_t)s->n_threads * HT_PIECES_PER_THREAD, at = 0, panels = 0,
            groups = 0;
    for (int i = 0; i < s->n; i++) {
        const ht_matrix *m = s->product[i].m;
        s->of[i] = (ht_gemm_pieces){.form = ht_gemm_form(m),
                                    .direct = s->direct && has_direct(m->type),
                                    .n_panels = ht_panel_count(m->n_rows),
                                    .chunk = chunk_of(m, s->x[0].n_blocks),
                                    .panel_bytes = ht_panel_bytes(m->type, m->k)};
        panels += s->of[i].n_panels;
        groups += groups_of(s, i);
    }
    for (int i = 0; i < s->n; i++) {
        ht_gemm_pieces *of = &s->of[i];
        int64_t number = of->form == HT_FORM_BYTES ? 1 : 2; /* bytes */
        int64_t for_cache = ht_ceil_div_i64(s->n_x * s->x[0].n_blocks * HT_QBLOCK * number, ROWS_BYTES_MAX);
        int64_t for_threads = ht_min_i64(ht_ceil_div_i64(wanted, groups), ht_ceil_div_i64(n_tiles, 8));
        of->n_parts = ht_min_i64(ht_max_i64(for_cache, for_threads), n_tiles);
        of->grain = ht_max_i64(1, panels / ((int64_t)s->n_threads * HT_PANEL_PIECES_PER_THREAD));
        of->first = at;
        at += of->direct ? ht_ceil_div_i64(of->n_panels, of->grain) : groups_of(s, i) * of->n_parts;
        of->end = at;
    }
}

void ht_gemm_schedule_cut(ht_gemm_schedule *s) {
    lay_tiles(s);
    lay_pieces(s);
    count_decoded(s);
}

size_t ht_gemm_schedule_layout(ht_gemm_schedule *s, void *scratch) {
    ht_scratch_layout d = {.at = scratch};
    ht_gemm_schedule_cut(s);
    lay_rows(s, &d);
    lay_offsets(s, &d);
    s->decoded = ht_scratch_take(&d, s->n_threads, s->decoded_bytes);
    bool top = s->n == 1 && s->n_x == 1 && ht_is_coarse_head(s->product[0].m);
    s->top = top ? ht_scratch_take(&d, 1, ht_coarse_head_top_scratch(s->product[0].m)) : NULL;
    return d.used;
}

/* ---- activations ---- */

int64_t ht_gemm_schedule_shares(const ht_gemm_schedule *s) { return s->x[0].n_tiles * s->n_shares; }

int64_t ht_gemm_schedule_share_rows(const ht_gemm_schedule *s) {
    return ht_ceil_div_i64(ht_qtile_rows(&s->x[0], 0), s->n_shares);
}

ht_gemm_share ht_gemm_schedule_share(const ht_gemm_schedule *s, int64_t share) {
    int64_t tile = share / s->n_shares, part = share % s->n_shares;
    int64_t first = ht_qtile_first(&s->x[0], tile), n = ht_qtile_rows(&s->x[0], tile);
    return (ht_gemm_share){tile, first + part * n / s->n_shares, first + (part + 1) * n / s->n_shares};
}

void ht_gemm_offsets(const ht_gemm_schedule *s, int i, int64_t tile, int first, int last) {
    const ht_qrows *x = &s->x[s->of[i].form];
    s->kernels->offsets(s->product[i].m->type, x, tile, x->planes * first, x->planes * last, s->of[i].offset);
}

void ht_gemm_schedule_quantise(const ht_gemm_schedule *s, ht_gemm_share share, const float *x, int64_t ldx) {
    int64_t tile_first = ht_qtile_first(&s->x[0], share.tile);
    int first = (int)(share.begin - tile_first), last = (int)(share.end - tile_first);
    for (int f = 0; f < HT_FORM_COUNT; f++)
        if (s->x[f].scale) s->kernels->prepare[f](x, ldx, s->product[0].m->k, &s->x[f], share.tile, first, last);
    for (int i = 0; i < s->n; i++)
        if (s->of[i].offset && first_alike(s, i) == i) ht_gemm_offsets(s, i, share.tile, first, last);
}

/* ---- the products ---- */

static const char *panel_at(const ht_gemm_schedule *s, int i, int64_t panel) {
    return (const char *)s->product[i].m->packed + (size_t)panel * s->of[i].panel_bytes;
}

static const ht_integer_kernels *integer_kernels(const ht_gemm_schedule *s, int i) {
    return s->of[i].form == HT_FORM_WORDS ? &s->kernels->words : &s->kernels->bytes;
}

/* The output of panels [panel, panel + n_panels). */
static ht_gemm_out out_at(const ht_gemm *p, int64_t panel, int64_t n_panels) {
    int64_t row = panel * HT_PANEL, left = p->m->n_rows - row;
    return (ht_gemm_out){
        .y = p->y, .ldy = p->ldy, .bias = p->bias, .row = row, .n = ht_min_i64(n_panels * HT_PANEL, left)};
}

/* Multiplies a grain of panels. With several tiles, one panel at a time, so that later tiles find it in the cache. */
static void multiply_direct(const ht_gemm_schedule *s, int i, int64_t panel) {
    const ht_gemm *p = &s->product[i];
    const ht_gemm_pieces *of = &s->of[i];
    const ht_qtiles tiles = {&s->x[of->form], of->offset, 0, s->x[of->form].n_tiles};
    const int64_t end = ht_min_i64(panel + of->grain, of->n_panels), step = tiles.last > 1 ? 1 : of->grain;
    for (; panel < end; panel += step) {
        const ht_gemm_out out = out_at(p, panel, ht_min_i64(step, end - panel));
        if (ht_is_coarse_head(p->m))
            s->kernels->coarse_direct(ht_coarse_panels_at(p->m, panel), p->m->k, &tiles, &out);
        else
            integer_kernels(s, i)->direct(p->m->type, panel_at(s, i, panel), p->m->k, &tiles, &out);
    }
}

static void decode(const ht_gemm_schedule *s, int i, int64_t panel, int64_t block, int n, void *to) {
    const ht_matrix *m = s->product[i].m;
    if (ht_is_coarse_head(m))
        s->kernels->coarse_decode(ht_coarse_panels_at(m, panel), m->k, block, n, to);
    else
        integer_kernels(s, i)->decode(m->type, panel_at(s, i, panel), m->k, block, n, to);
}

/* Multiplies one group of panels by one part of the tiles. Each decoded chunk of blocks fits the L1 cache and is used
 * by every tile. */
static void multiply_group(const ht_gemm_schedule *s, int i, int64_t group, int64_t part, char *decoded) {
    const ht_gemm *p = &s->product[i];
    const ht_gemm_pieces *of = &s->of[i];
    const ht_qrows *x = &s->x[of->form];
    const size_t bytes = of->form == HT_FORM_WORDS ? sizeof(ht_wpanel) : sizeof(ht_qpanel);
    const int64_t panel = group * s->kernels->tile_panels;
    const int64_t n = ht_min_i64(s->kernels->tile_panels, of->n_panels - panel);
    const ht_qtiles tiles = {x, of->offset, part * x->n_tiles / of->n_parts, (part + 1) * x->n_tiles / of->n_parts};
    ht_gemm_out out = out_at(p, panel, n);
    for (int64_t block = 0; block < x->n_blocks; block += of->chunk) {
        int count = (int)ht_min_i64(of->chunk, x->n_blocks - block);
        for (int64_t j = 0; j < n; j++) decode(s, i, panel + j, block, count, decoded + (size_t)j * bytes);
        out.bias = block + count < x->n_blocks ? NULL : p->bias;
        integer_kernels(s, i)->decoded(p->m->type, decoded, block, count, &tiles, &out);
    }
}

/* Pieces of decoded panels are numbered part by part, so that consecutive pieces share activations. */
void ht_gemm_schedule_run(const ht_gemm_schedule *s, int64_t begin, int64_t end, int worker) {
    char *decoded = s->decoded + (size_t)worker * s->decoded_bytes;
    int i = 0;
    for (int64_t piece = begin; piece < end; piece++) {
        while (s->of[i].end <= piece) i++;
        const ht_gemm_pieces *of = &s->of[i];
        int64_t at = piece - of->first;
        if (of->direct)
            multiply_direct(s, i, at * of->grain);
        else
            multiply_group(s, i, at % groups_of(s, i), at / groups_of(s, i), decoded);
    }
}

int64_t ht_gemm_schedule_pieces(const ht_gemm_schedule *s) { return s->n ? s->of[s->n - 1].end : 0; }

static void multiply_pieces(void *arg, int64_t begin, int64_t end, int worker) {
    ht_gemm_schedule_run(arg, begin, end, worker);
}

void ht_gemm_schedule_multiply(const ht_gemm_schedule *s, ht_pool *pool) {
    if (!s->n || (s->product->top_k && ht_coarse_head_top(s, pool))) return;
    ht_pool_run(pool, ht_gemm_schedule_pieces(s), 1, multiply_pieces, (void *)(uintptr_t)s);
}

/* ---- one matrix ---- */

typedef struct take_job {
    const ht_gemm_schedule *s;
    const ht_product *p;
} take_job;

static void take_shares(void *arg, int64_t begin, int64_t end, int worker) {
    (void)worker;
    const take_job *job = arg;
    for (int64_t i = begin; i < end; i++)
        ht_gemm_schedule_quantise(job->s, ht_gemm_schedule_share(job->s, i), job->p->x, job->p->ldx);
}

static ht_gemm_schedule schedule_of(const ht_product *p, int n_threads) {
    return (ht_gemm_schedule){.kernels = ht_kernels_of(p->m),
                              .n_x = p->n_x,
                              .n_threads = n_threads,
                              .n = 1,
                              .product[0] = {p->m, p->bias, p->y, p->ldy, p->top_k}};
}

size_t ht_fast_scratch(const ht_matrix *m, int64_t n_x, int n_threads) {
    if (n_x <= 0) return 0;
    ht_gemm_schedule s = schedule_of(&(ht_product){.m = m, .n_x = n_x}, n_threads);
    return ht_gemm_schedule_layout(&s, NULL);
}

void ht_fast_mul(const ht_product *p, void *scratch, ht_pool *pool) {
    if (p->n_x <= 0) return;
    ht_gemm_schedule s = schedule_of(p, ht_pool_threads(pool));
    ht_gemm_schedule_layout(&s, scratch);
    ht_pool_run(pool, ht_gemm_schedule_shares(&s), 1, take_shares, &(take_job){&s, p});
    ht_gemm_schedule_multiply(&s, pool);
}
