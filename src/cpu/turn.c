/* Squares as wide as a register of 16 bytes, which all machines have: rounds of interleaving registers turn them around. */
#include "cpu/turn.h"

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

#define TURN(type, name, n)                                                                                            \
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
TURN(uint8_t, turn1, 16)
TURN(uint16_t, turn2, 8)
TURN(uint32_t, turn4, 4)
TURN(uint64_t, turn8, 2)

void ht_turn_tile(const char *from, int64_t across, int64_t along, char *to, int64_t to_step, int64_t rows,
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
    case 1: turn1(x, across, along, y, to_step, rows, columns); break;
    case 2: turn2(x, across, along, y, to_step, rows, columns); break;
    case 4: turn4(x, across, along, y, to_step, rows, columns); break;
    default: turn8(x, across, along, y, to_step, rows, columns);
    }
}
