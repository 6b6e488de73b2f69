/* Quantised and gathered matrix products (gather_qmm). Entries with the same right matrix are one product: their rows
 * are loaded contiguously as f32, and each block of the matrix is decoded once for up to ROW_TILE rows. Products of few
 * rows decode in registers instead (few_rows.h). */
#include "cpu/gather_qmm.h"

#include "base/checked.h"
#include "cpu/call.h"
#include "cpu/reference/reference.h"
#include "cpu/strided_iterator.h"
#include "cpu/vector/few_rows.h"
#include "cpu/vector/panel.h"
#include "cpu/vector/vector.h"
#include "device/params.h"
#include "formats/affine.h"

#include <stdlib.h>

enum {
    ROW_TILE = 192, /* rows per pass over a decoded block */
    DEPTH = 256,    /* of a decoded block; a multiple of all group and chunk sizes */
    COLUMNS = 128,  /* of a decoded block; a multiple of all group sizes */
    STRIPE = 32,    /* columns of a decoded block stored together, so that its active part fits the L1 cache */
    STEPS = 128     /* steps of k per stripe */
};

/* Entries [begin, end) of the order, all with the same right matrix. */
typedef struct run {
    int64_t begin, end;
} run;

typedef struct job {
    const ht_call *call;
    const ht_quantize_params *p; /* NULL: dense right matrices */
    int64_t m, n, k;             /* of one entry */
    int64_t entries, n_runs, column_blocks, width;
    group_format format;
    /* scratch */
    int64_t *order; /* entries sorted by right matrix */
    run *runs;
    int64_t x_row; /* an odd number of cache lines, so that rows do not share cache sets */
    float *x;      /* rows in that order, [entries * m][x_row] */
    few_rows few;
    float *threads; /* [threads][thread_floats()] */
} job;

/* ---- scratch ---- */

static int64_t round_up(int64_t n, int64_t to) { return (n + to - 1) / to * to; }
static int64_t thread_floats(void) { return 2 * DEPTH * COLUMNS + ROW_TILE * COLUMNS; }

/* Lays out the scratch memory at `base` and returns its bytes; with NULL it only counts. */
static size_t layout_scratch(job *j, char *base) {
    int64_t rows = j->entries * j->m;
    const int64_t bytes[5] = {round_up(j->entries * 8, 64), round_up(j->entries * (int64_t)sizeof(run), 64),
                              rows * j->x_row * 4, round_up(few_rows_floats(&j->few, rows) * 4, 64),
                              ht_pool_threads(ht_call_pool(j->call)) * thread_floats() * 4};
    void *part[5] = {NULL};
    int64_t at = 0;
    for (int i = 0; i < 5; i++) {
        if (base) part[i] = base + at;
        at += bytes[i];
    }
    j->order = part[0];
    j->runs = part[1];
    j->x = part[2];
    j->few.x = part[3];
    j->threads = part[4];
    return (size_t)at;
}

static job job_of(const ht_call *call, const ht_quantize_params *p) {
    const ht_view *x = &call->in[0], *out = &call->out;
    job j = {.call = call,
             .p = p,
             .m = out->shape[out->n_dims - 2],
             .n = out->shape[out->n_dims - 1],
             .k = x->shape[x->n_dims - 1],
             .entries = ht_gather_entries(call)};
    j.x_row = round_up(j.k, 16) | 16;
    if (p) j.format = group_format_of(&p->how);
    if (p && p->transpose && j.m <= FEW_ROWS) j.few = (few_rows){.format = j.format, .k = j.k};
    return j;
}

/* ---- order of the entries ---- */

typedef struct keyed {
    int64_t key, entry;
} keyed;

static int by_key(const void *a, const void *b) {
    const keyed *x = a, *y = b;
    if (x->key != y->key) return x->key < y->key ? -1 : 1;
    return x->entry < y->entry ? -1 : x->entry > y->entry;
}

static void order_entries(job *j) {
    keyed *keys = (keyed *)(void *)j->runs; /* shares memory with the runs, which overwrite it from the front */
    for (int64_t i = 0; i < j->entries; i++) keys[i] = (keyed){ht_gather_right(j->call, &j->call->in[1], i), i};
    bool sorted = true;
    for (int64_t i = 1; sorted && i < j->entries; i++) sorted = keys[i - 1].key <= keys[i].key;
    if (!sorted) qsort(keys, (size_t)j->entries, sizeof *keys, by_key);
    for (int64_t i = 0; i < j->entries; i++) {
        int64_t key = keys[i].key;
        j->order[i] = keys[i].entry;
        bool same = j->n_runs > 0 && ht_gather_right(j->call, &j->call->in[1], j->order[i - 1]) == key;
        if (same)
            j->runs[j->n_runs - 1].end = i + 1;
        else
            j->runs[j->n_runs++] = (run){i, i + 1};
    }
}

static void load_rows(void *arg, int64_t begin, int64_t end, int worker) {
    (void)worker;
    const job *j = arg;
    const ht_view *x = &j->call->in[0];
    int last = x->n_dims - 1;
    for (int64_t row = begin; row < end; row++) {
        int64_t at = ht_gather_left(j->call, j->order[row / j->m]) + row % j->m * x->stride[last - 1];
        float *to = j->x + row * j->x_row;
        for (int64_t i = 0; i < j->k; i += 16) {
            int lanes = lanes_count(j->k - i);
            v16f_store_n(to + i, lanes_load(x->dtype, x->data, at + i * x->stride[last], x->stride[last], lanes),
                         lanes);
        }
        if (j->few.k) few_rows_arrange(&j->few, row, to);
    }
}

/* ---- decoded blocks of the right matrix ---- */

typedef struct weights {
    const uint8_t *numbers;
    int64_t row_bytes, groups; /* per row */
    const ht_view *scales, *biases;
    int64_t first_scale, first_bias;
} weights;

static weights weights_of(const job *j, int64_t entry) {
    const ht_view *w = &j->call->in[1], *scales = &j->call->in[2], *biases = &j->call->in[3];
    bool has_bias = !ht_view_absent(biases);
    return (weights){.numbers = (const uint8_t *)w->data + ht_gather_right(j->call, w, entry) * 4,
                     .row_bytes = w->shape[w->n_dims - 1] * 4,
                     .groups = scales->shape[scales->n_dims - 1],
                     .scales = scales,
                     .biases = has_bias ? biases : NULL,
                     .first_scale = ht_gather_right(j->call, scales, entry),
                     .first_bias = has_bias ? ht_gather_right(j->call, biases, entry) : 0};
}

/* Element (l, c) of a decoded block, stored stripe by stripe. */
static float *block_at(float *block, int64_t l, int64_t c) {
    return block + c / STRIPE * (DEPTH * STRIPE) + l * STRIPE + c % STRIPE;
}

/* Decodes elements [from, from + n) of a matrix row, whole groups of them. */
typedef void decode_row_fn(const weights *w, const group_format *f, int64_t row, int64_t from, int64_t n, float *to);

HT_INLINE void decode_row(const weights *w, const group_format *f, int64_t row, int64_t from, int64_t n, float *to,
                          group_kind kind, int bits) {
    float scale[DEPTH / 16], bias[DEPTH / 16];
    const int64_t first = row * w->groups + from / f->group;
    group_scales(f, w->scales, w->first_scale + first, n / f->group, scale);
    if (w->biases) group_scales(f, w->biases, w->first_bias + first, n / f->group, bias);
    const uint8_t *numbers = w->numbers + row * w->row_bytes + from * bits / 8;
    for (int64_t i = 0; i < n; i += 16, numbers += 2 * bits) {
        const v16f q = group_numbers_at(numbers, kind, bits), s = v16f_set1(scale[i / f->group]);
        v16f_store(to + i, w->biases ? v16f_fma(q, s, v16f_set1(bias[i / f->group])) : v16f_mul(q, s));
    }
}

#define DECODE_ROW(kind, bits)                                                                                         \
    static void decode_row_##kind##_##bits(const weights *w, const group_format *f, int64_t row, int64_t from,         \
                                           int64_t n, float *to) {                                                     \
        decode_row(w, f, row, from, n, to, kind, bits);                                                                \
    }
GROUP_FORMATS(DECODE_ROW)

static decode_row_fn *decode_row_of(const group_format *f) {
#define CHOOSE(k, b)                                                                                                   \
    if (f->kind == k && f->bits == b) return decode_row_##k##_##b;
    GROUP_FORMATS(CHOOSE)
#undef CHOOSE
    return NULL;
}

/* Decodes rows [l, l + depth) of columns [c, c + width) of the quantised right operand. */
static void decode_block(const job *j, const weights *w, int64_t l, int64_t depth, int64_t c, int64_t width,
                         float *scratch, float *block) {
    decode_row_fn *decode = decode_row_of(&j->format);
    for (int64_t i = 0; j->p->transpose && i < width; i += 16) {
        for (int64_t r = 0; r < 16; r++)
            decode(w, &j->format, c + ht_min_i64(i + r, width - 1), l, depth, scratch + r * DEPTH);
        panel_transpose(scratch, DEPTH, 16, depth, block_at(block, 0, i), STRIPE);
    }
    for (int64_t i = 0; !j->p->transpose && i < depth; i++) {
        decode(w, &j->format, l + i, c, width, scratch);
        for (int64_t at = 0; at < width; at += 16) v16f_store(block_at(block, i, at), v16f_load(scratch + at));
    }
}

/* Loads steps [l, l + depth) of columns [c, c + width) of the right operand. Padding columns up to a multiple of
 * sixteen are finite. `scratch` holds blocks to be transposed. */
static void load_block(const job *j, int64_t entry, const weights *w, int64_t l, int64_t depth, int64_t c,
                       int64_t width, float *scratch, float *block) {
    if (j->p) {
        decode_block(j, w, l, depth, c, width, scratch, block);
        return;
    }
    const ht_view *b = &j->call->in[1];
    int last = b->n_dims - 1;
    int64_t step = b->stride[last - 1], column = b->stride[last];
    for (int64_t first = 0; first < width; first += STRIPE) {
        int64_t some = ht_min_i64(STRIPE, width - first), padded = round_up(some, 16), deep = round_up(depth, 16);
        int64_t at = ht_gather_right(j->call, b, entry) + l * step + (c + first) * column;
        float *to = block_at(block, 0, first);
        if (column == 1 || step != 1) {
            for (int64_t i = 0; i < depth; i++)
                panel_load(b->dtype, b->data, at + i * step, 0, column, 1, some, to + i * STRIPE, padded, 1.0f);
            continue;
        }
        memset(scratch + some * DEPTH, 0, (size_t)((padded - some) * DEPTH) * sizeof *scratch);
        for (int64_t i = 0; i < some; i++)
            panel_load(b->dtype, b->data, at + i * column, 0, step, 1, depth, scratch + i * DEPTH, deep, 1.0f);
        panel_transpose(scratch, DEPTH, padded, deep, to, STRIPE);
    }
}

/* ---- products ---- */

static void store_row(const job *j, int64_t row, int64_t c, int64_t width, const float *from) {
    const ht_view *out = &j->call->out;
    int64_t at = (j->order[row / j->m] * j->m + row % j->m) * j->n + c;
    for (int64_t i = 0; i < width; i += 16) {
        int lanes = lanes_count(width - i);
        lanes_store(out->dtype, out->data, at + i, v16f_load_n(from + i, lanes), lanes);
    }
}

static void multiply_block(const job *j, const run *r, int64_t c, int64_t width, float *scratch) {
    int64_t entry = j->order[r->begin], padded = round_up(width, 16);
    float *block = scratch + DEPTH * COLUMNS, *sums = block + DEPTH * COLUMNS;
    weights w = {0};
    if (j->p) w = weights_of(j, entry);
    for (int64_t first = r->begin * j->m; first < r->end * j->m; first += ROW_TILE) {
        int64_t rows = ht_min_i64(ROW_TILE, r->end * j->m - first);
        memset(sums, 0, (size_t)(rows * COLUMNS) * sizeof *sums);
        for (int64_t l = 0; l < j->k; l += DEPTH) {
            int64_t depth = ht_min_i64(DEPTH, j->k - l);
            load_block(j, entry, &w, l, depth, c, width, scratch, block);
            for (int64_t at = 0; at < padded; at += STRIPE)
                for (int64_t s = 0; s < depth; s += STEPS) {
                    panel_operand left = {j->x + first * j->x_row + l + s, j->x_row, 1};
                    panel_multiply(left, block_at(block, s, at), STRIPE, ht_min_i64(STEPS, depth - s), rows,
                                   ht_min_i64(STRIPE, padded - at), sums + at, COLUMNS, true);
                }
        }
        for (int64_t i = 0; i < rows; i++) store_row(j, first + i, c, width, sums + i * COLUMNS);
    }
}

/* Few rows [first, first + rows) by columns [c, c + width), which are rows of the transposed quantised matrix. */
static void multiply_few(const job *j, const run *r, int64_t first, int rows, int64_t c, int64_t width,
                         float *scratch) {
    weights w = weights_of(j, j->order[r->begin]);
    int64_t padded = few_rows_groups(&j->few);
    float *scales = scratch, *biases = scratch + padded, *sums = biases + padded;
    memset(scratch, 0, (size_t)(2 * padded) * sizeof *scratch);
    for (int64_t i = 0; i < width; i++) {
        int64_t row = c + i;
        group_scales(&j->format, w.scales, w.first_scale + row * w.groups, w.groups, scales);
        if (w.biases) group_scales(&j->format, w.biases, w.first_bias + row * w.groups, w.groups, biases);
        float sum[FEW_ROWS + ROWS_AT_ONCE - 1];
        few_rows_multiply(&j->few, first, rows, w.numbers + row * w.row_bytes, scales, w.biases ? biases : NULL, sum);
        for (int m = 0; m < rows; m++) sums[m * COLUMNS + i] = sum[m];
    }
    for (int m = 0; m < rows; m++) store_row(j, first + m, c, width, sums + m * COLUMNS);
}

static void multiply_units(void *arg, int64_t begin, int64_t end, int worker) {
    const job *j = arg;
    float *scratch = j->threads + worker * thread_floats();
    for (int64_t unit = begin; unit < end; unit++) {
        const run *r = &j->runs[unit / j->column_blocks];
        int64_t c = unit % j->column_blocks * j->width, width = ht_min_i64(j->width, j->n - c);
        int64_t rows = (r->end - r->begin) * j->m, first = r->begin * j->m;
        if (j->few.k && rows <= FEW_ROWS)
            multiply_few(j, r, first, (int)rows, c, width, scratch);
        else
            multiply_block(j, r, c, width, scratch);
    }
}

static ht_status multiply(const ht_call *call, const ht_quantize_params *p, ht_error *err) {
    ht_status st = ht_gather_check(call, err);
    if (st || ht_view_size(&call->out) == 0) return st;
    job j = job_of(call, p);
    layout_scratch(&j, call->scratch);
    order_entries(&j);
    if (j.n_runs == 1 && j.m * j.entries > FEW_ROWS) j.few.k = 0;
    ht_pool_run(ht_call_pool(call), j.entries * j.m, ht_row_grain(HT_GRAIN_CHEAP, j.k), load_rows, &j);
    j.width = j.few.k && j.m * j.entries <= FEW_ROWS ? 32 : COLUMNS;
    j.column_blocks = ht_ceil_div_i64(j.n, j.width);
    ht_pool_run(ht_call_pool(call), j.n_runs * j.column_blocks, 1, multiply_units, &j);
    return HT_OK;
}

/* ---- kernel table ---- */

static bool is_supported(const ht_call *call) { return lanes_supports(call->in[0].dtype); }

static size_t scratch(const ht_call *call, const ht_quantize_params *p) {
    if (!is_supported(call)) return 0;
    job j = job_of(call, p);
    return layout_scratch(&j, NULL);
}

static size_t quantized_scratch(const ht_call *call) { return scratch(call, call->params); }
static size_t gather_scratch(const ht_call *call) { return scratch(call, NULL); }

static ht_status quantized_matmul(const ht_call *call, ht_error *err) {
    return is_supported(call) ? multiply(call, call->params, err) : ht_plain_quantized_matmul(call, err);
}
static ht_status gather_mm(const ht_call *call, ht_error *err) {
    return is_supported(call) ? multiply(call, NULL, err) : ht_plain_gather_mm(call, err);
}

void HT_ISA_NAME(ht_vector_gather_qmm)(ht_kernel kernels[HT_OP_COUNT]) {
    kernels[HT_OP_QUANTIZED_MATMUL] = (ht_kernel){.run = quantized_matmul, .scratch = quantized_scratch};
    kernels[HT_OP_GATHER_MM] = (ht_kernel){.run = gather_mm, .scratch = gather_scratch};
}
