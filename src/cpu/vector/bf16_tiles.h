/* Tiles of bf16 and their products: a unit of eight tiles, each of at most 16 rows of 64 bytes, as AMX has it, or the same in
 * lanes of simd.h, where nothing is left to the processor: the statement of what the instructions do, for tests and for
 * the trial that they have to pass (cpu/isa.c).
 *
 *   tiles_begin(u, rows, below)   before tiles are used on a thread: tiles 0, 1 and 4 have `rows` rows, 2, 3 and 5 `below`,
 *                                 6 and 7 sixteen
 *   tiles_end(u)                  gives them back
 *   TILE_ZERO(u, t)
 *   TILE_LOAD(u, t, p, step)      rows from p on, `step` bytes apart
 *   TILE_LOAD_PASSING             the same of what a near cache need not keep
 *   TILE_STORE(u, t, p, step)
 *   TILE_DOT(u, c, a, b)          c, rows of 16 f32, += a b: rows of a are 32 bf16; row l of b has of each of 16 columns
 *                                 elements 2 l and 2 l + 1
 *
 * Of a product, the even elements' sum and the odd elements' are each a chain of fused multiply-adds from 0; their sum is
 * added to c. Every step rounds to nearest even, takes denormals as 0 and gives 0 for them. Tiles are constants. */
#ifndef HT_CPU_VECTOR_BF16_TILES_H
#define HT_CPU_VECTOR_BF16_TILES_H

#include "cpu/vector/simd.h"

enum { TILE_ROWS = 16, TILE_STEPS = 32, TILE_BYTES = 64 /* of a row */ };

#if defined(HT_ISA_amx)

typedef struct tiles {
    struct {
        uint8_t palette, start_row, reserved[14];
        uint16_t row_bytes[16];
        uint8_t rows[16];
    } shape;
} tiles;
_Static_assert(sizeof(tiles) == 64, "as LDTILECFG reads it");

#define TILE_ZERO(u, t)                  _tile_zero(t)
#define TILE_LOAD(u, t, p, step)         _tile_loadd(t, p, (size_t)(step))
#define TILE_LOAD_PASSING(u, t, p, step) _tile_stream_loadd(t, p, (size_t)(step))
#define TILE_STORE(u, t, p, step)        _tile_stored(t, p, (size_t)(step))
#define TILE_DOT(u, c, a, b)             _tile_dpbf16ps(c, a, b)

/* gcc's tile loads do not say that they read memory: what was written before has to be there. */
HT_INLINE void tiles_read_memory(const void *p) { __asm__ volatile("" : : "r"(p) : "memory"); }

HT_INLINE void tiles_begin(tiles *u, int rows, int below) {
    const int of[8] = {rows, rows, below, below, rows, below, TILE_ROWS, TILE_ROWS};
    *u = (tiles){.shape = {.palette = 1}};
    for (int t = 0; t < 8; t++) {
        u->shape.rows[t] = (uint8_t)of[t];
        u->shape.row_bytes[t] = of[t] ? TILE_BYTES : 0;
    }
    tiles_read_memory(u);
    _tile_loadconfig(u);
}
HT_INLINE void tiles_end(tiles *u) {
    (void)u;
    _tile_release();
}

#else

#include "cpu/vector/bf16_lanes.h"

typedef struct tiles {
    int rows[8];
    v16i row[8][TILE_ROWS];
} tiles;

#define TILE_ZERO(u, t)           tile_zero(u, t)
#define TILE_LOAD(u, t, p, step)  tile_load(u, t, p, step)
#define TILE_LOAD_PASSING         TILE_LOAD
#define TILE_STORE(u, t, p, step) tile_store(u, t, p, step)
#define TILE_DOT(u, c, a, b)      tile_dot(u, c, a, b)

HT_INLINE void tiles_read_memory(const void *p) { (void)p; }

HT_INLINE void tiles_begin(tiles *u, int rows, int below) {
    const int of[8] = {rows, rows, below, below, rows, below, TILE_ROWS, TILE_ROWS};
    memcpy(u->rows, of, sizeof of);
}
HT_INLINE void tiles_end(tiles *u) { (void)u; }

HT_INLINE void tile_zero(tiles *u, int t) {
    for (int r = 0; r < u->rows[t]; r++) u->row[t][r] = v16i_set1(0);
}
HT_INLINE void tile_load(tiles *u, int t, const void *p, int64_t step) {
    for (int r = 0; r < u->rows[t]; r++) memcpy(&u->row[t][r], (const char *)p + r * step, TILE_BYTES);
}
HT_INLINE void tile_store(const tiles *u, int t, void *p, int64_t step) {
    for (int r = 0; r < u->rows[t]; r++) memcpy((char *)p + r * step, &u->row[t][r], TILE_BYTES);
}

HT_INLINE void tile_dot(tiles *u, int c, int a, int b) {
    for (int r = 0; r < u->rows[c]; r++) {
        v16f even = v16f_zero(), odd = v16f_zero();
        int32_t pair[16];
        v16i_store(pair, u->row[a][r]);
        for (int l = 0; l < 16; l++) {
            const v16i x = v16i_set1(pair[l]), y = u->row[b][l];
            even = bf16_flushed(v16f_fma(bf16_even(x), bf16_even(y), even));
            odd = bf16_flushed(v16f_fma(bf16_odd(x), bf16_odd(y), odd));
        }
        const v16f sum = v16f_add(bf16_flushed(v16f_from_bits(u->row[c][r])), bf16_flushed(v16f_add(even, odd)));
        u->row[c][r] = v16f_bits(bf16_flushed(sum));
    }
}

#endif

#endif
