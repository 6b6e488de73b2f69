/* Tile transpose of copies (transpose.h). A tile consists of squares as wide as a register of 16 bytes, which all
 * machines have: rounds of interleaving registers transpose them. */
#include "cpu/transpose.h"

#include "base/checked.h"
#include "base/dtype.h"
#include "cpu/strided_iterator.h"

#include <string.h>

#if defined(__clang__)
#define UNROLL _Pragma("clang loop unroll(full)")
#else
#define UNROLL _Pragma("GCC unroll 16")
#endif

#define PLAIN(type, name)                                                                                              \
    static void name##_plain(const type *from, int64_t across, int64_t along, type *to, int64_t to_step, int64_t rows, \
                             int64_t columns) {                                                                        \
        for (int64_t r = 0; r < rows; r++)                                                                             \
            for (int64_t c = 0; c < columns; c++) to[r * to_step + c] = from[r * across + c * along];                  \
    }

/* Registers i and i + n / 2 are interleaved to 2 i and 2 i + 1; log n such rounds transpose n registers of n elements. */
#define SQUARE(type, name, n)                                                                                          \
    typedef type name##_lanes __attribute__((vector_size(16)));                                                        \
    static inline void name##_square(const type *from, int64_t along, type *to, int64_t to_step) {                     \
        name##_lanes v[n], w[n];                                                                                       \
        UNROLL                                                                                                         \
        for (int i = 0; i < n; i++) memcpy(&v[i], from + i * along, sizeof v[i]);                                      \
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
    static void name(const type *from, int64_t across, int64_t along, type *to, int64_t to_step, int64_t rows,         \
                     int64_t columns) {                                                                                \
        const int64_t r_end = across == 1 ? rows - rows % n : 0, c_end = columns - columns % n;                        \
        const int64_t line = 64 / (int64_t)sizeof(type);                                                               \
        for (int64_t top = 0; top < c_end; top += line)                                                                \
            for (int64_t side = 0; side < r_end; side += line)                                                         \
                for (int64_t c = top; c < top + line && c < c_end; c += n)                                             \
                    for (int64_t r = side; r < side + line && r < r_end; r += n)                                       \
                        name##_square(from + r + c * along, along, to + r * to_step + c, to_step);                     \
        name##_plain(from + c_end * along, across, along, to + c_end, to_step, r_end, columns - c_end);                \
        name##_plain(from + r_end * across, across, along, to + r_end * to_step, to_step, rows - r_end, columns);      \
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

/* to[r * to_step + c] = from[r * across + c * along] for r < rows, c < columns, in elements. */
static void transpose_tile(const char *from, int64_t across, int64_t along, char *to, int64_t to_step, int64_t rows,
                           int64_t columns, size_t bytes) {
    if (across == -1) { /* from its last row on, it is a tile like others */
        from -= (rows - 1) * (int64_t)bytes;
        to += (rows - 1) * to_step * (int64_t)bytes;
        across = 1;
        to_step = -to_step;
    }
    const void *x = from;
    void *y = to;
    switch (bytes) {
    case 1: transpose1(x, across, along, y, to_step, rows, columns); break;
    case 2: transpose2(x, across, along, y, to_step, rows, columns); break;
    case 4: transpose4(x, across, along, y, to_step, rows, columns); break;
    default: transpose8(x, across, along, y, to_step, rows, columns);
    }
}

/* Tiles of the result along two of the merged axes, `across` and the last. A row of a tile is a line of the operand. */
typedef struct transpose_job {
    ht_strided_iterator iterator; /* of the result, view 0, and the operand, view 1 */
    const char *from;
    char *to;
    int64_t bytes;
    int across;
    int64_t rows, columns; /* of a tile */
    int64_t bands, pieces; /* tiles across, and along the last axis */
} transpose_job;

enum { TILE_BYTES = 16384, LEAST_ROWS = 4 };

/* The axis other than the last along which neighbours of the operand lie; -1: none, or the last one's are as near. */
static int axis_across(const ht_strided_iterator *w, int64_t bytes) {
    const int last = w->n_dims - 1;
    int axis = -1;
    int64_t least = ht_min_i64((w->stride[1][last] < 0 ? -w->stride[1][last] : w->stride[1][last]) / 4, 32 / bytes);
    for (int d = 0; d < last; d++) {
        const int64_t step = w->stride[1][d] < 0 ? -w->stride[1][d] : w->stride[1][d];
        if (step == 0 || step > least || w->shape[d] < LEAST_ROWS) continue;
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
        index[j->across] = rest % j->bands * j->rows;
        rest /= j->bands;
        for (int d = last - 1; d >= 0; d--) {
            if (d == j->across) continue;
            index[d] = rest % w->shape[d];
            rest /= w->shape[d];
        }
        for (int d = 0; d <= last; d++) {
            from += index[d] * w->stride[1][d];
            to += index[d] * w->stride[0][d];
        }
        transpose_tile(j->from + from * j->bytes, w->stride[1][j->across], w->stride[1][last], j->to + to * j->bytes,
                       w->stride[0][j->across], ht_min_i64(j->rows, w->shape[j->across] - index[j->across]),
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
    j.across = w->size ? axis_across(w, j.bytes) : -1;
    if (j.across < 0) return false;
    j.rows = ht_min_i64(w->shape[j.across], (j.bytes < 4 ? 64 : 128) / j.bytes);
    j.columns = ht_min_i64(w->shape[last], ht_max_i64(16, TILE_BYTES / j.bytes / j.rows / 16 * 16));
    j.bands = ht_ceil_div_i64(w->shape[j.across], j.rows);
    j.pieces = ht_ceil_div_i64(w->shape[last], j.columns);
    const int64_t count = w->size / (w->shape[j.across] * w->shape[last]) * j.bands * j.pieces;
    ht_pool_run(call->pool, count, ht_max_i64(1, HT_GRAIN_CHEAP / (j.rows * j.columns)), run_tiles, &j);
    return true;
}
