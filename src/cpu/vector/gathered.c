/* Products by matrices that are quantised, or chosen by index, or both. Entries that meet the same right matrix are one
 * product: their rows follow one another as f32, and each block of the matrix is decoded once for up to ROW_TILE of them.
 * A few rows by 2, 4 or 8 bits never see a decoded matrix: numbers become floats in registers (few_rows.h). */
#include "cpu/gathered.h"

#include "base/checked.h"
#include "cpu/reference/reference.h"
#include "cpu/vector/few_rows.h"
#include "cpu/vector/panel.h"
#include "cpu/vector/vector.h"
#include "cpu/walk.h"
#include "device/params.h"
#include "formats/affine.h"
#include "formats/groups.h"

#include <stdlib.h>

enum {
    ROW_TILE = 192, /* rows of a pass */
    DEPTH = 256,    /* of a decoded block; a multiple of every group */
    COLUMNS = 128   /* of a decoded block, likewise */
};

/* Entries [begin, end) of the order have the same right matrix. */
typedef struct run {
    int64_t begin, end;
} run;

typedef struct job {
    const ht_call *call;
    const ht_quantize_params *p; /* NULL: the right matrices are dense */
    int64_t m, n, k;             /* of one entry */
    int64_t entries, n_runs, column_blocks, width;
    /* scratch */
    int64_t *order; /* entries, by right matrix */
    run *runs;
    float *x; /* [entries * m][k], in that order */
    few_rows few;
    float *threads; /* [threads][thread_floats()] */
} job;

/* ---- scratch ---- */

static int64_t round_up(int64_t n, int64_t to) { return (n + to - 1) / to * to; }
static int64_t thread_floats(void) { return 2 * DEPTH * COLUMNS + ROW_TILE * COLUMNS; }

/* Bytes; with memory at `base`, where everything is. */
static size_t lay_out(job *j, char *base) {
    int64_t rows = j->entries * j->m;
    const int64_t bytes[5] = {round_up(j->entries * 8, 64), round_up(j->entries * (int64_t)sizeof(run), 64),
                              round_up(rows * j->k * 4, 64), round_up(few_rows_floats(&j->few, rows) * 4, 64),
                              ht_pool_threads(j->call->pool) * thread_floats() * 4};
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
             .entries = ht_gathered_entries(call)};
    if (p && p->transpose) j.few = few_rows_of(&p->how, j.k);
    return j;
}

/* ---- entries in the order of their right matrices ---- */

typedef struct keyed {
    int64_t key, entry;
} keyed;

static int by_key(const void *a, const void *b) {
    const keyed *x = a, *y = b;
    if (x->key != y->key) return x->key < y->key ? -1 : 1;
    return x->entry < y->entry ? -1 : x->entry > y->entry;
}

static void order_entries(job *j) {
    keyed *keys = (keyed *)(void *)j->runs; /* the runs take their place afterwards */
    for (int64_t i = 0; i < j->entries; i++) keys[i] = (keyed){ht_gathered_right(j->call, &j->call->in[1], i), i};
    bool sorted = true;
    for (int64_t i = 1; sorted && i < j->entries; i++) sorted = keys[i - 1].key <= keys[i].key;
    if (!sorted) qsort(keys, (size_t)j->entries, sizeof *keys, by_key);
    for (int64_t i = 0; i < j->entries; i++) {
        int64_t key = keys[i].key;
        j->order[i] = keys[i].entry;
        bool same = j->n_runs > 0 && ht_gathered_right(j->call, &j->call->in[1], j->order[i - 1]) == key;
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
        int64_t at = ht_gathered_left(j->call, j->order[row / j->m]) + row % j->m * x->stride[last - 1];
        float *to = j->x + row * j->k;
        for (int64_t i = 0; i < j->k; i += 16) {
            int lanes = lanes_of(j->k - i);
            v16f_store_n(to + i, lanes_load(x->dtype, x->data, at + i * x->stride[last], x->stride[last], lanes),
                         lanes);
        }
        if (j->few.words) few_rows_arrange(&j->few, row, to);
    }
}

/* ---- blocks of the right matrix, decoded ---- */

typedef struct weights {
    const uint8_t *numbers;
    int64_t row_bytes, groups; /* of a row */
    const ht_view *scales, *biases;
    int64_t first_scale, first_bias;
} weights;

static weights weights_of(const job *j, int64_t entry) {
    const ht_view *w = &j->call->in[1], *scales = &j->call->in[2], *biases = &j->call->in[3];
    bool has_bias = !ht_view_absent(biases);
    return (weights){.numbers = (const uint8_t *)w->data + ht_gathered_right(j->call, w, entry) * 4,
                     .row_bytes = w->shape[w->n_dims - 1] * 4,
                     .groups = scales->shape[scales->n_dims - 1],
                     .scales = scales,
                     .biases = has_bias ? biases : NULL,
                     .first_scale = ht_gathered_right(j->call, scales, entry),
                     .first_bias = has_bias ? ht_gathered_right(j->call, biases, entry) : 0};
}

static float scale_at(const job *j, const weights *w, int64_t g) {
    return ht_groups_scale(j->p->how.mode, w->scales->dtype, w->scales->data, w->first_scale + g);
}
static float bias_at(const job *j, const weights *w, int64_t g) {
    return w->biases ? ht_groups_scale(j->p->how.mode, w->biases->dtype, w->biases->data, w->first_bias + g) : 0.0f;
}

static void decode_group(const ht_quantization *how, const uint8_t *numbers, float scale, float bias, float *out) {
    if (how->mode != HT_QUANT_AFFINE) {
        ht_groups_decode(how, numbers, scale, bias, out);
        return;
    }
    v16f by = v16f_set1(scale), plus = v16f_set1(bias);
    for (int i = 0; i < how->group; i += 16, numbers += 2 * how->bits) {
        uint64_t q[2] = {ht_affine_spread(how->bits, numbers), ht_affine_spread(how->bits, numbers + how->bits)};
        v16f_store(out + i, v16f_fma(v16f_from_i(v16i_load_u8((const uint8_t *)q)), by, plus));
    }
}

/* Columns [from, to) of row `row`, both at the ends of groups. */
static void decode_row(const job *j, const weights *w, int64_t row, int64_t from, int64_t to, float *out) {
    const ht_quantization *how = &j->p->how;
    for (int64_t c = from; c < to; c += how->group) {
        int64_t g = c / how->group, i = row * w->groups + g;
        decode_group(how, w->numbers + row * w->row_bytes + g * how->group * how->bits / 8, scale_at(j, w, i),
                     bias_at(j, w, i), out + c - from);
    }
}

/* Rows [l, l + depth) of columns [c, c + width) of the right operand, as [depth][COLUMNS]; what is behind `width` up to
 * the next sixteen is 0. `room` is for what has to be turned. */
static void load_block(const job *j, int64_t entry, const weights *w, int64_t l, int64_t depth, int64_t c,
                       int64_t width, float *room, float *to) {
    int64_t padded = round_up(width, 16), deep = round_up(depth, 16);
    const ht_view *b = &j->call->in[1];
    int last = b->n_dims - 1;
    if (j->p && !j->p->transpose) {
        for (int64_t i = 0; i < depth; i++) decode_row(j, w, l + i, c, c + width, to + i * COLUMNS);
        return;
    }
    if (!j->p && (b->stride[last] == 1 || b->stride[last - 1] != 1)) {
        int64_t at = ht_gathered_right(j->call, b, entry) + l * b->stride[last - 1] + c * b->stride[last];
        for (int64_t i = 0; i < depth; i++)
            panel_load(b->dtype, b->data, at + i * b->stride[last - 1], 0, b->stride[last], 1, width, to + i * COLUMNS,
                       padded, 1.0f);
        return;
    }
    if (width < padded) memset(room + width * DEPTH, 0, (size_t)((padded - width) * DEPTH) * sizeof *room);
    for (int64_t i = 0; i < width; i++)
        if (j->p)
            decode_row(j, w, c + i, l, l + depth, room + i * DEPTH);
        else
            panel_load(b->dtype, b->data,
                       ht_gathered_right(j->call, b, entry) + l * b->stride[last - 1] + (c + i) * b->stride[last], 0,
                       b->stride[last - 1], 1, depth, room + i * DEPTH, deep, 1.0f);
    panel_transpose(room, DEPTH, padded, deep, to, COLUMNS);
}

/* ---- products ---- */

static void store_row(const job *j, int64_t row, int64_t c, int64_t width, const float *from) {
    const ht_view *out = &j->call->out;
    int64_t at = (j->order[row / j->m] * j->m + row % j->m) * j->n + c;
    for (int64_t i = 0; i < width; i += 16) {
        int lanes = lanes_of(width - i);
        lanes_store(out->dtype, out->data, at + i, v16f_load_n(from + i, lanes), lanes);
    }
}

static void multiply_block(const job *j, const run *r, int64_t c, int64_t width, float *room) {
    int64_t entry = j->order[r->begin], padded = round_up(width, 16);
    float *block = room + DEPTH * COLUMNS, *sums = block + DEPTH * COLUMNS;
    weights w = {0};
    if (j->p) w = weights_of(j, entry);
    for (int64_t first = r->begin * j->m; first < r->end * j->m; first += ROW_TILE) {
        int64_t rows = ht_min_i64(ROW_TILE, r->end * j->m - first);
        memset(sums, 0, (size_t)(rows * COLUMNS) * sizeof *sums);
        for (int64_t l = 0; l < j->k; l += DEPTH) {
            int64_t depth = ht_min_i64(DEPTH, j->k - l);
            load_block(j, entry, &w, l, depth, c, width, room, block);
            panel_left left = {j->x + first * j->k + l, j->k, 1};
            panel_multiply(left, block, COLUMNS, depth, rows, padded, sums, COLUMNS, true);
        }
        for (int64_t i = 0; i < rows; i++) store_row(j, first + i, c, width, sums + i * COLUMNS);
    }
}

/* Rows [first, first + rows) by columns [c, c + width), each a row of the quantised matrix. */
static void multiply_few(const job *j, const run *r, int64_t first, int rows, int64_t c, int64_t width, float *room) {
    weights w = weights_of(j, j->order[r->begin]);
    int64_t padded = few_rows_groups(&j->few);
    float *scales = room, *biases = room + padded, *sums = biases + padded;
    memset(room, 0, (size_t)(2 * padded) * sizeof *room);
    for (int64_t i = 0; i < width; i++) {
        int64_t row = c + i;
        for (int64_t g = 0; g < w.groups; g++) {
            scales[g] = scale_at(j, &w, row * w.groups + g);
            biases[g] = bias_at(j, &w, row * w.groups + g);
        }
        float sum[FEW_ROWS];
        few_rows_multiply(&j->few, first, rows, w.numbers + row * w.row_bytes, scales, biases, sum);
        for (int m = 0; m < rows; m++) sums[m * COLUMNS + i] = sum[m];
    }
    for (int m = 0; m < rows; m++) store_row(j, first + m, c, width, sums + m * COLUMNS);
}

static void multiply_units(void *arg, int64_t begin, int64_t end, int worker) {
    const job *j = arg;
    float *room = j->threads + worker * thread_floats();
    for (int64_t unit = begin; unit < end; unit++) {
        const run *r = &j->runs[unit / j->column_blocks];
        int64_t c = unit % j->column_blocks * j->width, width = ht_min_i64(j->width, j->n - c);
        int64_t rows = (r->end - r->begin) * j->m, first = r->begin * j->m;
        if (!j->few.words || rows > FEW_ROWS)
            multiply_block(j, r, c, width, room);
        else
            multiply_few(j, r, first, (int)rows, c, width, room);
    }
}

static ht_status multiply(const ht_call *call, const ht_quantize_params *p, ht_error *err) {
    ht_status st = ht_gathered_check(call, err);
    if (st || ht_view_size(&call->out) == 0) return st;
    job j = job_of(call, p);
    lay_out(&j, call->scratch);
    order_entries(&j);
    ht_pool_run(call->pool, j.entries * j.m, ht_row_grain(HT_GRAIN_CHEAP, j.k), load_rows, &j);
    /* Groups along the columns may not be cut. */
    j.width = j.few.words && j.m * j.entries <= FEW_ROWS ? 32 : COLUMNS;
    j.column_blocks = ht_ceil_div_i64(j.n, j.width);
    ht_pool_run(call->pool, j.n_runs * j.column_blocks, 1, multiply_units, &j);
    return HT_OK;
}

/* ---- the table ---- */

static bool takes(const ht_call *call) { return lanes_take(call->in[0].dtype); }

static size_t scratch(const ht_call *call, const ht_quantize_params *p) {
    if (!takes(call)) return 0;
    job j = job_of(call, p);
    return lay_out(&j, NULL);
}

static size_t quantized_scratch(const ht_call *call) { return scratch(call, call->params); }
static size_t gather_scratch(const ht_call *call) { return scratch(call, NULL); }

static ht_status quantized_matmul(const ht_call *call, ht_error *err) {
    return takes(call) ? multiply(call, call->params, err) : ht_plain_quantized_matmul(call, err);
}
static ht_status gather_mm(const ht_call *call, ht_error *err) {
    return takes(call) ? multiply(call, NULL, err) : ht_plain_gather_mm(call, err);
}

void HT_ISA_NAME(ht_vector_gathered)(ht_kernel kernels[HT_OP_COUNT]) {
    kernels[HT_OP_QUANTIZED_MATMUL] = (ht_kernel){.run = quantized_matmul, .scratch = quantized_scratch};
    kernels[HT_OP_GATHER_MM] = (ht_kernel){.run = gather_mm, .scratch = gather_scratch};
}
