/* Scans along any axis, bit-identical to the plain kernels. The recurrence along a line is sequential, so lines are
 * processed in parallel lanes: the inner elements, or several rows if inner = 1. */
#include "base/dtype.h"
#include "cpu/call.h"
#include "cpu/reference/reference.h"
#include "cpu/vector/axis_view.h"
#include "cpu/vector/elementwise.h"
#include "cpu/vector/vector.h"
#include "device/params.h"

#include <math.h>

enum {
    ROWS = 8,                                          /* rows at a time */
    TRANSPOSED_ROWS = 16,                              /* rows at a time, transposed: 4-byte elements */
    PIECE = 128,                                       /* elements per row at a time */
    BUFFER_BYTES = TRANSPOSED_ROWS * (PIECE * 4 + 64), /* pieces of TRANSPOSED_ROWS 4-byte or ROWS 8-byte rows */
    MAX_WIDTH = 2048,                                  /* most inner elements per unit of work */
    CHUNK = 256                                        /* inner elements per step, and prefetch unit */
};

/* Scans the next n elements of up to ROWS rows and updates their accumulators `values`; element k of row r is at r *
 * row_step + k. */
typedef void rows_fn(const void *in, void *values, void *out, int64_t row_step, int64_t n, int rows,
                     const ht_scan_params *p);
/* Scans the next element of each of w adjacent lines and updates their accumulators. */
typedef void across_fn(const void *in, void *values, void *out, int64_t w, bool inclusive);
/* Scans n transposed vectors, [n][TRANSPOSED_ROWS], in place and updates the rows' accumulators. */
typedef void lines_fn(void *lines, void *values, int64_t n, bool reverse, bool inclusive);
/* Sets w accumulators to the identity element. */
typedef void start_fn(void *values, int64_t w);

typedef struct scan_kind {
    rows_fn *rows;
    lines_fn *lines;
    across_fn *across;
    start_fn *start;
    size_t accumulator_bytes; /* per line */
} scan_kind;

#define SCAN_ROWS(name, type, accumulator, rows)                                                                       \
    for (int64_t k = 0; k < n; k++) {                                                                                  \
        int64_t i = p->reverse ? n - 1 - k : k;                                                                        \
        HT_UNROLL                                                                                                      \
        for (int r = 0; r < (rows); r++) {                                                                             \
            accumulator before = value[r];                                                                             \
            value[r] = name##_of(before, (accumulator)x[r * row_step + i]);                                            \
            y[r * row_step + i] = (type)(p->inclusive ? value[r] : before);                                            \
        }                                                                                                              \
    }

#define SCAN(name, type, accumulator, first, expression)                                                               \
    HT_INLINE accumulator name##_of(accumulator a, accumulator b) { return expression; }                               \
    static void name##_rows(const void *in, void *values, void *out, int64_t row_step, int64_t n, int n_rows,          \
                            const ht_scan_params *p) {                                                                 \
        const type *x = in;                                                                                            \
        type *y = out;                                                                                                 \
        accumulator value[ROWS];                                                                                       \
        memcpy(value, values, sizeof value);                                                                           \
        if (n_rows == ROWS)                                                                                            \
            SCAN_ROWS(name, type, accumulator, ROWS)                                                                   \
        else                                                                                                           \
            SCAN_ROWS(name, type, accumulator, n_rows)                                                                 \
        memcpy(values, value, sizeof value);                                                                           \
    }                                                                                                                  \
    static void name##_lines(void *lines, void *values, int64_t n, bool reverse, bool inclusive) {                     \
        accumulator value[TRANSPOSED_ROWS];                                                                            \
        memcpy(value, values, sizeof value);                                                                           \
        for (int64_t k = 0; k < n; k++) {                                                                              \
            type *line = (type *)lines + TRANSPOSED_ROWS * (reverse ? n - 1 - k : k);                                  \
            accumulator before[TRANSPOSED_ROWS];                                                                       \
            memcpy(before, value, sizeof value);                                                                       \
            HT_VECTORISE                                                                                               \
            for (int c = 0; c < TRANSPOSED_ROWS; c++) value[c] = name##_of(value[c], (accumulator)line[c]);            \
            const accumulator *result = inclusive ? value : before;                                                    \
            HT_VECTORISE                                                                                               \
            for (int c = 0; c < TRANSPOSED_ROWS; c++) line[c] = (type)result[c];                                       \
        }                                                                                                              \
        memcpy(values, value, sizeof value);                                                                           \
    }                                                                                                                  \
    HT_INLINE void name##_write(const accumulator *value, type *y, int64_t w) {                                        \
        HT_VECTORISE                                                                                                   \
        for (int64_t c = 0; c < w; c++) y[c] = (type)value[c];                                                         \
    }                                                                                                                  \
    static void name##_across(const void *in, void *values, void *out, int64_t w, bool inclusive) {                    \
        const type *x = in;                                                                                            \
        accumulator *value = values;                                                                                   \
        if (!inclusive) name##_write(value, out, w);                                                                   \
        HT_VECTORISE                                                                                                   \
        for (int64_t c = 0; c < w; c++) value[c] = name##_of(value[c], (accumulator)x[c]);                             \
        if (inclusive) name##_write(value, out, w);                                                                    \
    }                                                                                                                  \
    static void name##_start(void *values, int64_t w) {                                                                \
        for (int64_t c = 0; c < w; c++) ((accumulator *)values)[c] = (accumulator)(first);                             \
    }

#define SCANS(kind, type, accumulator, low, high, worked_in)                                                           \
    SCAN(sum_##kind, type, accumulator, 0, (accumulator)((worked_in)a + (worked_in)b))                                 \
    SCAN(prod_##kind, type, accumulator, 1, (accumulator)((worked_in)a * (worked_in)b))                                \
    SCAN(max_##kind, type, accumulator, low, a != a || a > b ? a : b)                                                  \
    SCAN(min_##kind, type, accumulator, high, a != a || a < b ? a : b)

SCANS(f32, float, double, -(double)INFINITY, (double)INFINITY, double)
SCANS(f64, double, double, -(double)INFINITY, (double)INFINITY, double)
SCANS(i8, int8_t, int8_t, INT8_MIN, INT8_MAX, uint8_t)
SCANS(u8, uint8_t, uint8_t, 0, UINT8_MAX, uint8_t)
SCANS(i16, int16_t, int16_t, INT16_MIN, INT16_MAX, uint32_t)
SCANS(u16, uint16_t, uint16_t, 0, UINT16_MAX, uint32_t)
SCANS(i32, int32_t, int32_t, INT32_MIN, INT32_MAX, uint32_t)
SCANS(u32, uint32_t, uint32_t, 0, UINT32_MAX, uint32_t)
SCANS(i64, int64_t, int64_t, INT64_MIN, INT64_MAX, uint64_t)
SCANS(u64, uint64_t, uint64_t, 0, UINT64_MAX, uint64_t)

typedef struct scan_job {
    axis_operand a;
    scan_kind kind;
    ht_dtype dtype;
    const ht_scan_params *p;
    int64_t width, pieces; /* inner elements per unit of work, and units */
} scan_job;

/* ---- rows ---- */

/* Transposes sixteen rows of 4-byte elements, `step` apart, to [n][16]. */
HT_INLINE void transpose_rows(const float *rows, int64_t step, int64_t n, float *lines) {
    for (int64_t i = 0; i < n; i += 4) { /* writes up to three vectors beyond n */
        v16f v[4];
        HT_UNROLL
        for (int k = 0; k < 4; k++) {
            const float *row = rows + k * step + i;
            v[k] = v16f_load_quads(row, row + 4 * step, row + 8 * step, row + 12 * step);
        }
        v16f_transpose_quads(v);
        HT_UNROLL
        for (int k = 0; k < 4; k++) v16f_store(lines + 16 * (i + k), v[k]);
    }
}
/* Transposes [n][16] back to rows. */
HT_INLINE void transpose_back(const float *lines, int64_t step, int64_t n, float *rows) {
    for (int64_t i = 0; i < n; i += 4) {
        v16f v[4];
        HT_UNROLL
        for (int k = 0; k < 4; k++) v[k] = v16f_load(lines + 16 * (i + k));
        v16f_transpose_quads(v);
        HT_UNROLL
        for (int k = 0; k < 4; k++) {
            float quads[16];
            v16f_store(quads, v[k]);
            for (int g = 0; g < 4; g++) memcpy(rows + (4 * g + k) * step + i, quads + 4 * g, 4 * sizeof *quads);
        }
    }
}

/* Scans a piece of sixteen rows by transposing it: a scan along a row waits for every previous element. */
static void scan_transposed(const scan_job *j, const void *operand, void *values, void *result, int64_t step,
                            int64_t n) {
    _Alignas(64) float lines[PIECE * TRANSPOSED_ROWS];
    transpose_rows(operand, step, n, lines);
    j->kind.lines(lines, values, n, j->p->reverse, j->p->inclusive);
    transpose_back(lines, step, n, result);
}

static int64_t rows_at_once(const scan_job *j) { return j->a.bytes == 4 ? TRANSPOSED_ROWS : ROWS; }

/* Copies a piece of each row to a padded buffer first: row strides are often powers of two, which map to few cache
 * sets. */
static void run_rows(void *arg, int64_t begin, int64_t end, int worker) {
    (void)worker;
    const scan_job *j = arg;
    const int64_t n = j->a.view.n, bytes = j->a.bytes, step = PIECE + 64 / bytes, max_rows = rows_at_once(j);
    _Alignas(64) char operand[BUFFER_BYTES], result[sizeof operand];
    _Alignas(64) char values[TRANSPOSED_ROWS * sizeof(double)];
    for (int64_t row = begin; row < end;) {
        const int64_t left = end - row;
        const int rows = left >= max_rows ? (int)max_rows : left < ROWS ? (int)left : ROWS;
        const char *x[TRANSPOSED_ROWS];
        for (int r = 0; r < rows; r++) x[r] = axis_operand_x(&j->a, row + r, 0);
        char *y = axis_operand_y(&j->a, row, 0);
        j->kind.start(values, TRANSPOSED_ROWS);
        for (int64_t k = 0; k < n; k += PIECE) {
            const int64_t some = n - k < PIECE ? n - k : PIECE, from = j->p->reverse ? n - k - some : k;
            const int64_t next = (j->p->reverse ? -PIECE : PIECE) * bytes;
            for (int r = 0; r < rows; r++)
                memcpy(operand + r * step * bytes, x[r] + from * bytes, (size_t)(some * bytes));
            if (rows == TRANSPOSED_ROWS)
                scan_transposed(j, operand, values, result, step, some);
            else
                j->kind.rows(operand, values, result, step, some, rows, j->p);
            for (int r = 0; r < rows; r++) {
                char *to = y + (r * n + from) * bytes;
                const char *ahead = x[r] + from * bytes + next;
                if (j->a.streaming) {
                    ht_stream_store(to, result + r * step * bytes, (size_t)(some * bytes),
                                    &(ht_prefetch_stream){ahead, 64}, 1);
                    continue;
                }
                for (int64_t b = 0; b < some * bytes; b += 64) HT_PREFETCH(ahead + b);
                memcpy(to, result + r * step * bytes,
                       (size_t)(some * bytes)); /* the result may be the operand's memory */
            }
        }
        row += rows;
    }
    if (j->a.streaming) ht_stream_fence();
}

/* ---- inner elements ---- */

/* f16 and bf16 are accumulated by way of f32. */
static void step_across(const scan_job *j, const char *x, char *values, char *y, int64_t w) {
    _Alignas(64) float wide[CHUNK], result[CHUNK];
    if (j->dtype != HT_F16 && j->dtype != HT_BF16) {
        j->kind.across(x, values, y, w, j->p->inclusive);
        return;
    }
    elementwise_widen(j->dtype, x, wide, w);
    j->kind.across(wide, values, result, w, j->p->inclusive);
    elementwise_narrow(j->dtype, result, y, w);
}

static void run_across(void *arg, int64_t begin, int64_t end, int worker) {
    (void)worker;
    const scan_job *j = arg;
    const int64_t n = j->a.view.n, bytes = j->a.bytes, accumulator_bytes = (int64_t)j->kind.accumulator_bytes;
    const int64_t direction = j->p->reverse ? -1 : 1, x_step = direction * j->a.step * bytes;
    const int64_t y_step = direction * j->a.view.inner * bytes;
    _Alignas(64) char values[MAX_WIDTH * sizeof(double)], result[CHUNK * sizeof(double)];
    for (int64_t unit = begin; unit < end; unit++) {
        const int64_t first = unit % j->pieces * j->width, left = j->a.view.inner - first;
        const int64_t w = left < j->width ? left : j->width, from = j->p->reverse ? n - 1 : 0;
        const char *x = axis_operand_x(&j->a, unit / j->pieces, first) + from * j->a.step * bytes;
        char *y = axis_operand_y(&j->a, unit / j->pieces, first) + from * j->a.view.inner * bytes;
        j->kind.start(values, w);
        for (int64_t k = 0; k < n; k++, x += x_step, y += y_step)
            for (int64_t c = 0; c < w; c += CHUNK) {
                const int64_t some = w - c < CHUNK ? w - c : CHUNK;
                const char *next = x + x_step + c * bytes;
                step_across(j, x + c * bytes, values + c * accumulator_bytes, result, some);
                if (j->a.streaming) {
                    ht_stream_store(y + c * bytes, result, (size_t)(some * bytes), &(ht_prefetch_stream){next, 64}, 1);
                    continue;
                }
                for (int64_t b = 0; b < some * bytes; b += 64) HT_PREFETCH(next + b);
                memcpy(y + c * bytes, result, (size_t)(some * bytes)); /* the result may be the operand's memory */
            }
    }
    if (j->a.streaming) ht_stream_fence();
}

/* ---- calls ---- */

static const ht_dtype scanned[] = {HT_F32, HT_F64, HT_I8, HT_U8, HT_I16, HT_U16, HT_I32, HT_U32, HT_I64, HT_U64};
enum { N_SCANNED = sizeof scanned / sizeof *scanned };

static bool scan(const ht_call *call, const scan_kind kinds[N_SCANNED]) {
    const ht_view *x = &call->in[0];
    const bool narrow = x->dtype == HT_F16 || x->dtype == HT_BF16;
    scan_job j = {.dtype = x->dtype, .p = call->params};
    int which = 0;
    while (which < N_SCANNED && scanned[which] != (narrow ? HT_F32 : x->dtype)) which++;
    if (which == N_SCANNED || call->out.dtype != x->dtype) return false;
    if (ht_view_size(x) == 0) return true;
    j.kind = kinds[which];
    const ht_axis_view view = ht_axis_view_of(x, j.p->behind);
    if (narrow && view.inner == 1) return false;
    j.a = axis_operand_of(call, j.p->behind);
    if (view.inner == 1) {
        const int64_t grain = ht_row_grain(HT_GRAIN_MATH, view.n);
        ht_pool_run(ht_call_pool(call), view.outer, (grain + TRANSPOSED_ROWS - 1) / TRANSPOSED_ROWS * TRANSPOSED_ROWS,
                    run_rows, &j);
        return true;
    }
    const int64_t threads = ht_pool_threads(ht_call_pool(call)), share = (view.inner + threads - 1) / threads;
    j.width = view.outer >= threads || share > MAX_WIDTH ? MAX_WIDTH : (share + CHUNK - 1) / CHUNK * CHUNK;
    j.pieces = (view.inner + j.width - 1) / j.width;
    const int64_t w = view.inner < j.width ? view.inner : j.width;
    ht_pool_run(ht_call_pool(call), view.outer * j.pieces, ht_row_grain(HT_GRAIN_MATH, view.n * w), run_across, &j);
    return true;
}

#define KIND(name, accumulator)                                                                                        \
    { name##_rows, name##_lines, name##_across, name##_start, sizeof(accumulator) }
#define KERNEL(name, kind)                                                                                             \
    static ht_status name(const ht_call *call, ht_error *err) {                                                        \
        static const scan_kind kinds[N_SCANNED] = {KIND(kind##_f32, double),  KIND(kind##_f64, double),                \
                                                   KIND(kind##_i8, int8_t),   KIND(kind##_u8, uint8_t),                \
                                                   KIND(kind##_i16, int16_t), KIND(kind##_u16, uint16_t),              \
                                                   KIND(kind##_i32, int32_t), KIND(kind##_u32, uint32_t),              \
                                                   KIND(kind##_i64, int64_t), KIND(kind##_u64, uint64_t)};             \
        return scan(call, kinds) ? HT_OK : ht_plain_##name(call, err);                                                 \
    }
KERNEL(cumsum, sum)
KERNEL(cumprod, prod)
KERNEL(cummax, max)
KERNEL(cummin, min)

void HT_ISA_NAME(ht_vector_scan)(ht_kernel kernels[HT_OP_COUNT]) {
    HT_ISA_NAME(ht_vector_softmax)(kernels);
    kernels[HT_OP_CUMSUM].run = cumsum;
    kernels[HT_OP_CUMPROD].run = cumprod;
    kernels[HT_OP_CUMMAX].run = cummax;
    kernels[HT_OP_CUMMIN].run = cummin;
}
