/* Scans along any axis, with the bits of the plain kernels. What a line has come to is needed for its next element, so
 * lines are gone through side by side: across the elements behind the axis, or several rows if there are none. */
#include "base/dtype.h"
#include "cpu/reference/reference.h"
#include "cpu/vector/axis_view.h"
#include "cpu/vector/elementwise.h"
#include "cpu/vector/vector.h"
#include "device/params.h"

#include <math.h>

enum {
    ABREAST = 8, /* rows */
    TURNED = 16, /* rows of elements of 4 bytes */
    PIECE = 128, /* elements of a row at a time */
    ROOM_BYTES =
        TURNED * (PIECE * 4 + 64), /* of pieces of so many rows, or of half as many of elements twice as long */
    WIDEST = 2048,                 /* elements behind the axis that are gone through together, */
    CHUNK = 256                    /* so many at a time, for which the next ones along the axis are asked for */
};

/* The next n elements of each of some rows, and what they have come to: element k of row r is at r * row_step + k. */
typedef void rows_fn(const void *in, void *values, void *out, int64_t row_step, int64_t n, int rows,
                     const ht_scan_params *p);
/* The next element of each of w lines, and what they have come to. */
typedef void across_fn(const void *in, void *values, void *out, int64_t w, bool inclusive);
/* The next n lines, of an element of TURNED rows each, in place, and what the rows have come to. */
typedef void lines_fn(void *lines, void *values, int64_t n, bool reverse, bool inclusive);
typedef void start_fn(void *values, int64_t w);

typedef struct scan_kind {
    rows_fn *rows;
    lines_fn *lines;
    across_fn *across;
    start_fn *start;
    size_t so_far; /* bytes of a value */
} scan_kind;

#define SCAN_ROWS(name, type, so_far, rows)                                                                            \
    for (int64_t k = 0; k < n; k++) {                                                                                  \
        int64_t i = p->reverse ? n - 1 - k : k;                                                                        \
        HT_UNROLL                                                                                                      \
        for (int r = 0; r < (rows); r++) {                                                                             \
            so_far before = value[r];                                                                                  \
            value[r] = name##_of(before, (so_far)x[r * row_step + i]);                                                 \
            y[r * row_step + i] = (type)(p->inclusive ? value[r] : before);                                            \
        }                                                                                                              \
    }

#define SCAN(name, type, so_far, first, expression)                                                                    \
    HT_INLINE so_far name##_of(so_far a, so_far b) { return expression; }                                              \
    static void name##_rows(const void *in, void *values, void *out, int64_t row_step, int64_t n, int n_rows,          \
                            const ht_scan_params *p) {                                                                 \
        const type *x = in;                                                                                            \
        type *y = out;                                                                                                 \
        so_far value[ABREAST];                                                                                         \
        memcpy(value, values, sizeof value);                                                                           \
        if (n_rows == ABREAST)                                                                                         \
            SCAN_ROWS(name, type, so_far, ABREAST)                                                                     \
        else                                                                                                           \
            SCAN_ROWS(name, type, so_far, n_rows)                                                                      \
        memcpy(values, value, sizeof value);                                                                           \
    }                                                                                                                  \
    static void name##_lines(void *lines, void *values, int64_t n, bool reverse, bool inclusive) {                     \
        so_far value[TURNED];                                                                                          \
        memcpy(value, values, sizeof value);                                                                           \
        for (int64_t k = 0; k < n; k++) {                                                                              \
            type *line = (type *)lines + TURNED * (reverse ? n - 1 - k : k);                                           \
            so_far before[TURNED];                                                                                     \
            memcpy(before, value, sizeof value);                                                                       \
            HT_VECTORISE                                                                                               \
            for (int c = 0; c < TURNED; c++) value[c] = name##_of(value[c], (so_far)line[c]);                          \
            const so_far *result = inclusive ? value : before;                                                         \
            HT_VECTORISE                                                                                               \
            for (int c = 0; c < TURNED; c++) line[c] = (type)result[c];                                                \
        }                                                                                                              \
        memcpy(values, value, sizeof value);                                                                           \
    }                                                                                                                  \
    HT_INLINE void name##_write(const so_far *value, type *y, int64_t w) {                                             \
        HT_VECTORISE                                                                                                   \
        for (int64_t c = 0; c < w; c++) y[c] = (type)value[c];                                                         \
    }                                                                                                                  \
    static void name##_across(const void *in, void *values, void *out, int64_t w, bool inclusive) {                    \
        const type *x = in;                                                                                            \
        so_far *value = values;                                                                                        \
        if (!inclusive) name##_write(value, out, w);                                                                   \
        HT_VECTORISE                                                                                                   \
        for (int64_t c = 0; c < w; c++) value[c] = name##_of(value[c], (so_far)x[c]);                                  \
        if (inclusive) name##_write(value, out, w);                                                                    \
    }                                                                                                                  \
    static void name##_start(void *values, int64_t w) {                                                                \
        for (int64_t c = 0; c < w; c++) ((so_far *)values)[c] = (so_far)(first);                                       \
    }

#define SCANS(kind, type, so_far, low, high, worked_in)                                                                \
    SCAN(sum_##kind, type, so_far, 0, (so_far)((worked_in)a + (worked_in)b))                                           \
    SCAN(prod_##kind, type, so_far, 1, (so_far)((worked_in)a * (worked_in)b))                                          \
    SCAN(max_##kind, type, so_far, low, a != a || a > b ? a : b)                                                       \
    SCAN(min_##kind, type, so_far, high, a != a || a < b ? a : b)

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
    along a;
    scan_kind kind;
    ht_dtype dtype;
    const ht_scan_params *p;
    int64_t width, pieces; /* of the elements behind the axis */
} scan_job;

/* ---- rows ---- */

/* Sixteen rows of elements of 4 bytes, `step` elements apart, so that lines of 16 hold an element of each; and back. */
HT_INLINE void turn_rows(const float *rows, int64_t step, int64_t n, float *lines) {
    for (int64_t i = 0; i < n; i += 4) { /* and up to three behind the last */
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
HT_INLINE void turn_lines(const float *lines, int64_t step, int64_t n, float *rows) {
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

/* A piece of sixteen rows, across them: whole registers of rows, as the elements along them wait for one another. */
static void scan_turned(const scan_job *j, const void *operand, void *values, void *result, int64_t step, int64_t n) {
    _Alignas(64) float lines[PIECE * TURNED];
    turn_rows(operand, step, n, lines);
    j->kind.lines(lines, values, n, j->p->reverse, j->p->inclusive);
    turn_lines(lines, step, n, result);
}

static int64_t rows_abreast(const scan_job *j) { return j->a.bytes == 4 ? TURNED : ABREAST; }

/* Some rows, a piece of each at a time, which are brought together on the way: rows are often a power of two apart, and of
 * such places a cache holds only few. */
static void run_rows(void *arg, int64_t begin, int64_t end, int worker) {
    (void)worker;
    const scan_job *j = arg;
    const int64_t n = j->a.of.n, bytes = j->a.bytes, step = PIECE + 64 / bytes, abreast = rows_abreast(j);
    _Alignas(64) char operand[ROOM_BYTES], result[sizeof operand];
    _Alignas(64) char values[TURNED * sizeof(double)];
    for (int64_t row = begin; row < end;) {
        const int64_t left = end - row;
        const int rows = left >= abreast ? (int)abreast : left < ABREAST ? (int)left : ABREAST;
        const char *x[TURNED];
        for (int r = 0; r < rows; r++) x[r] = axis_operand_x(&j->a, row + r, 0);
        char *y = axis_operand_y(&j->a, row, 0);
        j->kind.start(values, TURNED);
        for (int64_t k = 0; k < n; k += PIECE) {
            const int64_t some = n - k < PIECE ? n - k : PIECE, from = j->p->reverse ? n - k - some : k;
            const int64_t next = (j->p->reverse ? -PIECE : PIECE) * bytes;
            for (int r = 0; r < rows; r++)
                memcpy(operand + r * step * bytes, x[r] + from * bytes, (size_t)(some * bytes));
            if (rows == TURNED)
                scan_turned(j, operand, values, result, step, some);
            else
                j->kind.rows(operand, values, result, step, some, rows, j->p);
            for (int r = 0; r < rows; r++) {
                char *to = y + (r * n + from) * bytes;
                const char *ahead = x[r] + from * bytes + next;
                if (j->a.bypasses) {
                    ht_bypass(to, result + r * step * bytes, (size_t)(some * bytes), &(ht_ahead){ahead, 64}, 1);
                    continue;
                }
                for (int64_t b = 0; b < some * bytes; b += 64) HT_PREFETCH(ahead + b);
                memcpy(to, result + r * step * bytes, (size_t)(some * bytes)); /* which may be where x is */
            }
        }
        row += rows;
    }
    if (j->a.bypasses) ht_bypass_end();
}

/* ---- across ---- */

/* f16 and bf16 are f32 on the way. */
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
    const int64_t n = j->a.of.n, bytes = j->a.bytes, so_far = (int64_t)j->kind.so_far;
    const int64_t direction = j->p->reverse ? -1 : 1, x_step = direction * j->a.step * bytes;
    const int64_t y_step = direction * j->a.of.inner * bytes;
    _Alignas(64) char values[WIDEST * sizeof(double)], room[CHUNK * sizeof(double)];
    for (int64_t unit = begin; unit < end; unit++) {
        const int64_t first = unit % j->pieces * j->width, left = j->a.of.inner - first;
        const int64_t w = left < j->width ? left : j->width, from = j->p->reverse ? n - 1 : 0;
        const char *x = axis_operand_x(&j->a, unit / j->pieces, first) + from * j->a.step * bytes;
        char *y = axis_operand_y(&j->a, unit / j->pieces, first) + from * j->a.of.inner * bytes;
        j->kind.start(values, w);
        for (int64_t k = 0; k < n; k++, x += x_step, y += y_step)
            for (int64_t c = 0; c < w; c += CHUNK) {
                const int64_t some = w - c < CHUNK ? w - c : CHUNK;
                const char *next = x + x_step + c * bytes;
                step_across(j, x + c * bytes, values + c * so_far, room, some);
                if (j->a.bypasses) {
                    ht_bypass(y + c * bytes, room, (size_t)(some * bytes), &(ht_ahead){next, 64}, 1);
                    continue;
                }
                for (int64_t b = 0; b < some * bytes; b += 64) HT_PREFETCH(next + b);
                memcpy(y + c * bytes, room, (size_t)(some * bytes)); /* which may be where x is */
            }
    }
    if (j->a.bypasses) ht_bypass_end();
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
    const ht_axis_view of = ht_axis_view_of(x, j.p->behind);
    if (narrow && of.inner == 1) return false;
    j.a = axis_operand_of(call, j.p->behind);
    if (of.inner == 1) {
        const int64_t grain = ht_row_grain(HT_GRAIN_MATH, of.n);
        ht_pool_run(call->pool, of.outer, (grain + TURNED - 1) / TURNED * TURNED, run_rows, &j);
        return true;
    }
    const int64_t threads = ht_pool_threads(call->pool), share = (of.inner + threads - 1) / threads;
    j.width = of.outer >= threads || share > WIDEST ? WIDEST : (share + CHUNK - 1) / CHUNK * CHUNK;
    j.pieces = (of.inner + j.width - 1) / j.width;
    const int64_t w = of.inner < j.width ? of.inner : j.width;
    ht_pool_run(call->pool, of.outer * j.pieces, ht_row_grain(HT_GRAIN_MATH, of.n * w), run_across, &j);
    return true;
}

#define KIND(name, so_far)                                                                                             \
    { name##_rows, name##_lines, name##_across, name##_start, sizeof(so_far) }
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
