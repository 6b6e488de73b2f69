/* Tile transpose (transpose.h). A tile is transposed in squares of 16-byte registers, available on all targets, by
 * rounds of register interleaving. */
#include "cpu/transpose.h"

#include "base/checked.h"
#include "base/dtype.h"
#include "cpu/call.h"
#include "cpu/strided_iterator.h"

#include <string.h>

#if defined(__clang__)
#define UNROLL _Pragma("clang loop unroll(full)")
#else
#define UNROLL _Pragma("GCC unroll 16")
#endif

#define PLAIN(type, name)                                                                                              \
    static void name##_plain(const type *from, int64_t row_stride, int64_t column_stride, type *to, int64_t to_step,   \
                             int64_t rows, int64_t columns) {                                                          \
        for (int64_t r = 0; r < rows; r++)                                                                             \
            for (int64_t c = 0; c < columns; c++) to[r * to_step + c] = from[r * row_stride + c * column_stride];      \
    }

/* Transposes n registers of n elements by log2 n rounds, each interleaving registers i and i + n / 2 into 2 i and 2 i +
 * 1. */
#define SQUARE(type, name, n)                                                                                          \
    typedef type name##_lanes __attribute__((vector_size(16)));                                                        \
    static inline void name##_square(const type *from, int64_t column_stride, type *to, int64_t to_step) {             \
        name##_lanes v[n], w[n];                                                                                       \
        UNROLL                                                                                                         \
        for (int i = 0; i < n; i++) memcpy(&v[i], from + i * column_stride, sizeof v[i]);                              \
        UNROLL                                                                                                         \
        for (int round = 1; round < n; round *= 2) {                                                                   \
            UNROLL                                                                                                     \
            for (int i = 0; i < n / 2; i++) {                                                                          \
                w[2 * i] = __builtin_shufflevector(v[i], v[i + n / 2], LOW_##n);                                       \
                w[2 * i + 1] = __builtin_shufflevector(v[i], v[i + n / 2], HIGH_##n);                                  \
            }                                                                                                          \
            memcpy(v, w, sizeof v);                                                                                    \
        }                                                                                                              \
        UNROLL                                                                                                         \
        for (int i = 0; i < n; i++) memcpy(to + i * to_step, &v[i], sizeof v[i]);                                      \
    }

#define TRANSPOSE(type, name, n)                                                                                       \
    PLAIN(type, name)                                                                                                  \
    SQUARE(type, name, n)                                                                                              \
    static void name(const type *from, int64_t row_stride, int64_t column_stride, type *to, int64_t to_step,           \
                     int64_t rows, int64_t columns) {                                                                  \
        const int64_t r_end = row_stride == 1 ? rows - rows % n : 0, c_end = columns - columns % n;                    \
        const int64_t line = 64 / (int64_t)sizeof(type);                                                               \
        for (int64_t top = 0; top < c_end; top += line)                                                                \
            for (int64_t side = 0; side < r_end; side += line)                                                         \
                for (int64_t c = top; c < top + line && c < c_end; c += n)                                             \
                    for (int64_t r = side; r < side + line && r < r_end; r += n)                                       \
                        name##_square(from + r + c * column_stride, column_stride, to + r * to_step + c, to_step);     \
        name##_plain(from + c_end * column_stride, row_stride, column_stride, to + c_end, to_step, r_end,              \
                     columns - c_end);                                                                                 \
        name##_plain(from + r_end * row_stride, row_stride, column_stride, to + r_end * to_step, to_step,              \
                     rows - r_end, columns);                                                                           \
    }

#define LOW_2   0, 2
#define HIGH_2  1, 3
#define LOW_4   0, 4, 1, 5
#define HIGH_4  2, 6, 3, 7
#define LOW_8   0, 8, 1, 9, 2, 10, 3, 11
#define HIGH_8  4, 12, 5, 13, 6, 14, 7, 15
#define LOW_16  0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23
#define HIGH_16 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31
TRANSPOSE(uint8_t, transpose1, 16)
TRANSPOSE(uint16_t, transpose2, 8)
TRANSPOSE(uint32_t, transpose4, 4)
TRANSPOSE(uint64_t, transpose8, 2)

/* to[r * to_step + c] = from[r * row_stride + c * column_stride] for r < rows, c < columns, in elements. */
static void transpose_tile(const char *from, int64_t row_stride, int64_t column_stride, char *to, int64_t to_step,
                           int64_t rows, int64_t columns, size_t bytes) {
    if (row_stride == -1) { /* reversed rows: start from the last one */
        from -= (rows - 1) * (int64_t)bytes;
        to += (rows - 1) * to_step * (int64_t)bytes;
        row_stride = 1;
        to_step = -to_step;
    }
    const void *x = from;
    void *y = to;
    switch (bytes) {
    case 1: transpose1(x, row_stride, column_stride, y, to_step, rows, columns); break;
    case 2: transpose2(x, row_stride, column_stride, y, to_step, rows, columns); break;
    case 4: transpose4(x, row_stride, column_stride, y, to_step, rows, columns); break;
    default: transpose8(x, row_stride, column_stride, y, to_step, rows, columns);
    }
}

/* Copy by tiles of the result over two of the merged axes: `row_axis` and the last axis. */
typedef struct transpose_job {
    ht_strided_iterator iterator; /* view 0: result, view 1: operand */
    const char *from;
    char *to;
    int64_t bytes;
    int row_axis;
    int64_t rows, columns; /* per tile */
    int64_t bands, pieces; /* tiles along row_axis, and along the last axis */
} transpose_job;

enum { TILE_BYTES = 16384, MIN_ROWS = 4 };

/* Axis, other than the last, along which the operand has the smallest stride; -1 if no stride is clearly smaller than
 * the last axis'. */
static int axis_across(const ht_strided_iterator *w, int64_t bytes) {
    const int last = w->n_dims - 1;
    int axis = -1;
    int64_t least = ht_min_i64((w->stride[1][last] < 0 ? -w->stride[1][last] : w->stride[1][last]) / 4, 32 / bytes);
    for (int d = 0; d < last; d++) {
        const int64_t step = w->stride[1][d] < 0 ? -w->stride[1][d] : w->stride[1][d];
        if (step == 0 || step > least || w->shape[d] < MIN_ROWS) continue;
        least = step;
        axis = d;
    }
    return axis;
}

static void run_tiles(void *arg, int64_t begin, int64_t end, int worker) {
    (void)worker;
    const transpose_job *j = arg;
    const ht_strided_iterator *w = &j->iterator;
    const int last = w->n_dims - 1;
    for (int64_t i = begin; i < end; i++) {
        int64_t index[HT_MAX_DIMS] = {0}, rest = i, from = 0, to = 0;
        index[last] = rest % j->pieces * j->columns;
        rest /= j->pieces;
        index[j->row_axis] = rest % j->bands * j->rows;
        rest /= j->bands;
        for (int d = last - 1; d >= 0; d--) {
            if (d == j->row_axis) continue;
            index[d] = rest % w->shape[d];
            rest /= w->shape[d];
        }
        for (int d = 0; d <= last; d++) {
            from += index[d] * w->stride[1][d];
            to += index[d] * w->stride[0][d];
        }
        transpose_tile(j->from + from * j->bytes, w->stride[1][j->row_axis], w->stride[1][last], j->to + to * j->bytes,
                       w->stride[0][j->row_axis], ht_min_i64(j->rows, w->shape[j->row_axis] - index[j->row_axis]),
                       ht_min_i64(j->columns, w->shape[last] - index[last]), (size_t)j->bytes);
    }
}

bool ht_transpose_copy(const ht_call *call) {
    const ht_view *views[] = {&call->out, &call->in[0]};
    transpose_job j = {.from = call->in[0].data, .to = call->out.data};
    j.bytes = (int64_t)ht_dtype_bytes(call->out.dtype);
    ht_strided_iterator_init(&j.iterator, 2, views);
    const ht_strided_iterator *w = &j.iterator;
    const int last = w->n_dims - 1;
    j.row_axis = w->size ? axis_across(w, j.bytes) : -1;
    if (j.row_axis < 0) return false;
    j.rows = ht_min_i64(w->shape[j.row_axis], (j.bytes < 4 ? 64 : 128) / j.bytes);
    j.columns = ht_min_i64(w->shape[last], ht_max_i64(16, TILE_BYTES / j.bytes / j.rows / 16 * 16));
    j.bands = ht_ceil_div_i64(w->shape[j.row_axis], j.rows);
    j.pieces = ht_ceil_div_i64(w->shape[last], j.columns);
    const int64_t count = w->size / (w->shape[j.row_axis] * w->shape[last]) * j.bands * j.pieces;
    ht_pool_run(ht_call_pool(call), count, ht_max_i64(1, HT_GRAIN_CHEAP / (j.rows * j.columns)), run_tiles, &j);
    return true;
}
