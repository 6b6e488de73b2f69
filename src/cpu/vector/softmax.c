/* Softmax along any axis of f32, f16 and bf16 arrays, sums of f32. Memory is read once. Along adjacent elements a row is
 * kept in a room, from which it is written while that takes up the powers of the next one; across them so are columns. */
#include "base/checked.h"
#include "cpu/reference/reference.h"
#include "cpu/vector/along.h"
#include "cpu/vector/powers.h"
#include "cpu/vector/reduce.h"
#include "cpu/vector/rows.h"
#include "cpu/vector/simd_past.h"
#include "device/params.h"

#include <float.h>
#include <math.h>

enum {
    KEPT = 6144,  /* elements of a row that are kept in the first cache on the way, */
    BLOCK = 1024, /* so many of which are computed at a time */
    MAX_BLOCKS = KEPT / BLOCK,
    FIRST = 256,         /* of a row, around the largest of which its powers are at first */
    KEPT_COLUMN = 16384, /* and of a column that is kept in a room: 4 MB */
    STRIP = 64,          /* columns: four registers, */
    BAND = 32,           /* so many rows of them at a time */
    LONG = 1024          /* elements of columns for whose sake strips are narrow where there are few */
};

/* How far elements of a row or column may be above what their powers are around: what is around something as far below the
 * largest as powers reach is lost, which is less than 1e-36. */
#define MOST_ABOVE 4.0f

typedef struct softmax_job {
    along a;
    bool whole_lines; /* rows of the result are written round the caches, register by register */
    ht_dtype dtype;
    int64_t width, strips; /* columns of a strip, at most, and how many strips they are */
    int64_t n_rooms;       /* for strips under way at a time */
    float *rooms;
} softmax_job;

/* ---- rows that are kept ---- */

/* Of three rows, or blocks of them, one is written (from what it came to, in `room`, times a factor), one computed (into the
 * same room), and of one the largest found. Any of them may be missing. */
typedef struct stages {
    const char *computed, *looked_at;
    char *written;
    v16f factor, around;
    v16f largest; /* of the block that is looked at */
    row_sum sum;  /* of the block that is computed */
    v16i most;    /* what its elements are above, compared as integers: right where it is positive */
} stages;

HT_INLINE void write_lanes(ht_dtype t, bool past_caches, char *to, int64_t i, v16f y, int lanes) {
    if (past_caches && lanes == 16)
        v16f_store_past((float *)(void *)to + i, y);
    else
        lanes_store(t, to, i, y, lanes);
}

/* Bytes ahead of what is read first that are asked for, into the second cache and from there into the first. Where result and
 * operand have the same place in a page, as large arrays do, what is whole pages ahead has the place that is written, and is
 * asked for when that store is done (as with rooms, below): rows took 1.2 to 1.3 times as long on Zen 4 with 4 KB and 1 KB. */
enum { ASK_FAR = 9 * 1024, ASK_NEAR = 2 * 1024 };

/* Loads come before the store round the caches, or they would wait for it, too: 2.15 ms instead of 1.75 for 32 MB. */
HT_INLINE void row_step(ht_dtype t, bool writes, bool computes, bool looks, bool past_caches, stages *s, float *room,
                        int64_t i, int lanes, v16f *sum, v16f *largest, v16i *most) {
    if (looks || most) {
        const char *ahead = (looks ? s->looked_at : s->computed) + i * (t == HT_F32 ? 4 : 2);
        HT_PREFETCH_SECOND(ahead + ASK_FAR);
        HT_PREFETCH(ahead + ASK_NEAR);
    }
    if (looks) {
        const v16f v = lanes_load(t, s->looked_at, i, 1, lanes);
        *largest = v16f_max(lanes == 16 ? v : v16f_select(m16_first(lanes), v, v16f_set1(-INFINITY)), *largest);
    }
    const v16f x = computes ? lanes_load(t, s->computed, i, 1, lanes) : v16f_zero();
    if (writes) write_lanes(t, past_caches, s->written, i, v16f_mul(v16f_load_n(room + i, lanes), s->factor), lanes);
    if (computes) {
        v16f above = v16f_sub(x, s->around);
        v16f e = v16f_exp_falling(above);
        if (lanes < 16) {
            above = v16f_select(m16_first(lanes), above, v16f_zero());
            e = v16f_select(m16_first(lanes), e, v16f_zero());
        }
        if (most) *most = v16i_max(v16f_bits(above), *most);
        v16f_store_n(room + i, e, lanes);
        *sum = v16f_add(*sum, e);
    }
}

/* n elements of each block. `checks` says that s->most is wanted. */
HT_INLINE void row_steps_of(ht_dtype t, bool writes, bool computes, bool looks, bool checks, bool past_caches,
                            stages *s, float *room, int64_t n) {
    v16f largest[4];
    row_sum sum = s->sum;
    v16i highest = v16i_set1(0), *const most = checks ? &highest : NULL;
    HT_UNROLL
    for (int k = 0; k < 4; k++) largest[k] = s->largest;
    int64_t i = 0;
    for (; i + 64 <= n; i += 64) {
        HT_UNROLL
        for (int k = 0; k < 4; k++)
            row_step(t, writes, computes, looks, past_caches, s, room, i + 16 * k, 16, &sum.lane[k], &largest[k], most);
    }
    HT_UNROLL
    for (int k = 0; k < 4; k++, i += 16) /* constant, as a sum in a variable place is kept in memory */
        if (i < n)
            row_step(t, writes, computes, looks, past_caches, s, room, i, lanes_of(n - i), &sum.lane[k], &largest[k],
                     most);
    s->largest = v16f_max(v16f_max(largest[0], largest[1]), v16f_max(largest[2], largest[3]));
    s->sum = sum;
    s->most = highest;
}

HT_INLINE void row_steps(ht_dtype t, bool writes, bool computes, bool looks, bool past_caches, stages *s, float *room,
                         int64_t n) {
    row_steps_of(t, writes, computes, looks, false, past_caches, s, room, n);
}

/* A room for a row in `space`, which is a page larger: half a page behind x, but for whole pages. A load may wait for a store
 * just before it to an address with the same 12 lowest bits (4K aliasing in Intel's optimization manual; Zen's cores do so,
 * too): with a room 64 bytes behind the row, softmax took twice as long. */
static float *room_for(const char *x, float *space) {
    enum { PAGE = 4096, LINE = 64 };
    return space + ((uintptr_t)x + PAGE / 2 - (uintptr_t)space) % PAGE / LINE * LINE / sizeof(float);
}

/* Row after row, each one block: its largest element is known by the time that it is computed. */
HT_INLINE void short_rows(const softmax_job *j, ht_dtype t, bool past_caches, int64_t begin, int64_t end) {
    _Alignas(64) float space[BLOCK + 1024];
    float *const room = room_for(along_x(&j->a, begin, 0), space);
    const int64_t n = j->a.of.n;
    stages s = {.looked_at = along_x(&j->a, begin, 0)};
    s.largest = v16f_set1(-FLT_MAX);
    row_steps(t, false, false, true, past_caches, &s, room, n);
    for (int64_t row = begin; row < end; row++) {
        s.around = v16f_set1(v16f_hmax(s.largest));
        s.computed = s.looked_at;
        s.sum = row_sum_zero();
        s.largest = v16f_set1(-FLT_MAX);
        if (row + 1 < end) s.looked_at = along_x(&j->a, row + 1, 0);
        if (row == begin)
            row_steps(t, false, true, true, past_caches, &s, room, n);
        else
            row_steps(t, true, true, true, past_caches, &s, room, n);
        s.written = along_y(&j->a, row, 0);
        s.factor = v16f_set1(1.0f / row_sum_total(&s.sum));
    }
    row_steps(t, true, false, false, past_caches, &s, room, n);
    if (past_caches) ht_bypass_end();
}

/* A row that is computed: blocks of it, around the largest of its first elements until some of a block are much larger. What
 * that makes of the powers is put right as they are written. */
typedef struct row_state {
    v16f around[MAX_BLOCKS]; /* of each block; once the row is finished, what it is multiplied by */
    v16f largest, total;     /* what the last block is around; sums of powers around that */
} row_state;

/* The largest of the first elements of a row. */
HT_INLINE v16f first_largest(ht_dtype t, const char *x) {
    stages s = {.looked_at = x, .sum = row_sum_zero()};
    s.largest = v16f_set1(-FLT_MAX);
    row_steps(t, false, false, true, false, &s, NULL, FIRST);
    return v16f_set1(v16f_hmax(s.largest));
}

/* n elements, some of which are much larger than what their powers were taken around, once more: around their own largest. Not
 * inline: it is rare, and of the loops round it there are many. */
#define COMPUTE_ANEW(name, t)                                                                                          \
    __attribute__((noinline)) static void name(const char *x, float *room, int64_t n, row_state *row, row_sum *sum) {  \
        stages s = {.looked_at = x, .computed = x, .largest = row->largest, .sum = row_sum_zero()};                    \
        row_steps(t, false, false, true, false, &s, room, n);                                                          \
        s.around = v16f_set1(v16f_hmax(s.largest));                                                                    \
        row_steps(t, false, true, false, false, &s, room, n);                                                          \
        row->total = v16f_mul(row->total, v16f_exp_falling(v16f_sub(row->largest, s.around)));                         \
        row->largest = s.around;                                                                                       \
        *sum = s.sum;                                                                                                  \
    }
COMPUTE_ANEW(compute_anew_f32, HT_F32)
COMPUTE_ANEW(compute_anew_f16, HT_F16)
COMPUTE_ANEW(compute_anew_bf16, HT_BF16)

/* Block b, of n elements, is computed, and the same block of the row before written if `writes`. */
HT_INLINE void block_of_powers(ht_dtype t, bool writes, bool past_caches, stages *s, row_state *row, int64_t b,
                               float *room, int64_t n) {
    s->around = row->largest;
    s->sum = row_sum_zero();
    row_steps_of(t, writes, true, false, true, past_caches, s, room, n);
    row_sum sum = s->sum;
    if (m16_any(v16f_gt(v16f_from_bits(s->most), v16f_set1(MOST_ABOVE))))
        (t == HT_F32   ? compute_anew_f32
         : t == HT_F16 ? compute_anew_f16
                       : compute_anew_bf16)(s->computed, room, n, row, &sum);
    row->total = v16f_add(row->total, row_sum_lanes(&sum));
    row->around[b] = row->largest;
}

HT_INLINE void finish_row(row_state *row, int64_t n_blocks) {
    const v16f inverse = v16f_set1(1.0f / v16f_sum(row->total));
    for (int64_t b = 0; b < n_blocks; b++)
        row->around[b] = v16f_mul(v16f_exp_falling(v16f_sub(row->around[b], row->largest)), inverse);
}

/* Block after block of row after row. */
HT_INLINE void rows_of_blocks(const softmax_job *j, ht_dtype t, bool past_caches, int64_t begin, int64_t end) {
    _Alignas(64) float space[KEPT + 1024];
    float *const room = room_for(along_x(&j->a, begin, 0), space);
    const int64_t n = j->a.of.n, n_blocks = ht_ceil_div_i64(n, BLOCK), step = BLOCK * j->a.bytes;
    row_state rows[2];
    stages s = {0};
    for (int64_t row = begin; row <= end; row++) {
        row_state *now = &rows[row % 2], *before = &rows[(row + 1) % 2];
        if (row < end) {
            now->largest = first_largest(t, along_x(&j->a, row, 0));
            now->total = v16f_zero();
        }
        for (int64_t b = 0; b < n_blocks; b++) {
            const int64_t at = b * BLOCK, some = ht_min_i64(n - at, BLOCK);
            if (row < end) s.computed = along_x(&j->a, row, 0) + b * step;
            if (row > begin) {
                s.written = along_y(&j->a, row - 1, 0) + b * step;
                s.factor = before->around[b];
            }
            if (row == end)
                row_steps(t, true, false, false, past_caches, &s, room + at, some);
            else if (row == begin)
                block_of_powers(t, false, past_caches, &s, now, b, room + at, some);
            else
                block_of_powers(t, true, past_caches, &s, now, b, room + at, some);
        }
        if (row < end) finish_row(now, n_blocks);
    }
    if (past_caches) ht_bypass_end();
}

/* ---- longer rows ---- */

/* Powers stand in the result's place, or where that is not f32, are computed twice. Sums of blocks are added in f64: a lane
 * that took in thousands of terms would lose digits. */
HT_INLINE void softmax_long(const softmax_job *j, ht_dtype t, int64_t row) {
    _Alignas(64) float room[HT_REDUCE_BLOCK];
    const int64_t n = j->a.of.n, bytes = j->a.bytes;
    const char *x = along_x(&j->a, row, 0);
    char *y = along_y(&j->a, row, 0);
    double sum = 0.0;
    stages s = {.around = v16f_zero()};
    s.largest = v16f_set1(-FLT_MAX);
    for (int pass = 0; pass < 3; pass++) {
        for (int64_t i = 0; i < n; i += HT_REDUCE_BLOCK) {
            const int64_t some = n - i < HT_REDUCE_BLOCK ? n - i : HT_REDUCE_BLOCK;
            float *powers = t == HT_F32 ? (float *)(void *)y + i : room;
            s.looked_at = s.computed = x + i * bytes;
            s.written = y + i * bytes;
            s.sum = row_sum_zero();
            if (pass == 0) row_steps(t, false, false, true, false, &s, powers, some);
            if (pass == 1 || (pass == 2 && t != HT_F32)) row_steps(t, false, true, false, false, &s, powers, some);
            if (pass == 1) sum += (double)v16f_sum(row_sum_lanes(&s.sum));
            if (pass == 2) row_steps(t, true, false, false, false, &s, powers, some);
        }
        s.around = v16f_set1(v16f_hmax(s.largest));
        s.factor = v16f_set1((float)(1.0 / sum));
    }
}

#define RUN_ROWS(name, t)                                                                                              \
    HT_INLINE void name##_of(const softmax_job *j, bool past_caches, int64_t begin, int64_t end) {                     \
        if (j->a.of.n > BLOCK)                                                                                         \
            rows_of_blocks(j, t, past_caches, begin, end);                                                             \
        else                                                                                                           \
            short_rows(j, t, past_caches, begin, end);                                                                 \
    }                                                                                                                  \
    static void name(void *arg, int64_t begin, int64_t end, int worker) {                                              \
        (void)worker;                                                                                                  \
        const softmax_job *j = arg;                                                                                    \
        if (j->a.of.n > KEPT)                                                                                          \
            for (int64_t row = begin; row < end; row++) softmax_long(j, t, row);                                       \
        else if ((t) == HT_F32 && j->whole_lines)                                                                      \
            name##_of(j, true, begin, end);                                                                            \
        else                                                                                                           \
            name##_of(j, false, begin, end);                                                                           \
    }
RUN_ROWS(rows_f32, HT_F32)
RUN_ROWS(rows_f16, HT_F16)
RUN_ROWS(rows_bf16, HT_BF16)

/* ---- columns ----
 *
 * Strips of columns are gone through in bands of rows and kept in a near cache, so that memory is read once and every element
 * has one power. Bands are computed as they come from memory, around the largest elements of the first one, or of a later one
 * that has much larger ones; what a band was computed around is remembered, and put right as it is written. Of longer columns
 * the powers are not kept but computed again. */

typedef struct strip {
    const char *x;
    char *y;
    int64_t n, x_step, y_step; /* bytes from a row to the next */
    float *power;              /* of each row, */
    float *around;             /* and what each band was computed around; NULL if they are not kept */
} strip;

static bool keeps(const softmax_job *j) { return j->a.of.n <= KEPT_COLUMN; }

/* Of a room. */
static int64_t room_floats(const softmax_job *j) {
    return keeps(j) ? (j->a.of.n + ht_ceil_div_i64(j->a.of.n, BAND)) * j->width : 0;
}

/* What columns came to. */
typedef struct sums {
    v16f around[STRIP / 16], total[STRIP / 16];
    v16f lost[STRIP / 16]; /* what was rounded off the total, of long columns: there are thousands of bands
                              (Knuth, The Art of Computer Programming 2, 4.2.2, theorem B) */
} sums;

/* A strip whose powers are computed, and what they are multiplied by. */
typedef struct finished {
    strip strip;
    v16f around[STRIP / 16], inverse[STRIP / 16];
} finished;

/* The last register of a strip has `last` lanes, the others all. */
HT_INLINE int lanes_in(int g, int registers, int last) { return g + 1 < registers ? 16 : last; }

/* What a band of a strip is multiplied by. */
HT_INLINE void factors_of(int registers, const finished *f, int64_t row, v16f *factor) {
    HT_UNROLL
    for (int g = 0; g < registers; g++) {
        const v16f around = v16f_load(f->strip.around + row / BAND * 16 * registers + 16 * g);
        factor[g] = v16f_mul(v16f_exp_falling(v16f_sub(around, f->around[g])), f->inverse[g]);
    }
}

/* What there is so far becomes what it is around something larger. */
HT_INLINE void take_down(int registers, const v16f *around, sums *to) {
    HT_UNROLL
    for (int g = 0; g < registers; g++) {
        const v16f down = v16f_exp_falling(v16f_sub(to->around[g], around[g]));
        to->around[g] = around[g];
        to->total[g] = v16f_mul(to->total[g], down);
        to->lost[g] = v16f_mul(to->lost[g], down);
    }
}

HT_INLINE void add_band(int registers, bool is_long, const v16f *sum, sums *to) {
    HT_UNROLL
    for (int g = 0; g < registers; g++) {
        const v16f before = to->total[g], total = v16f_add(before, sum[g]);
        if (is_long) {
            const v16f added = v16f_sub(total, before), was = v16f_sub(total, added);
            const v16f off = v16f_add(v16f_sub(before, was), v16f_sub(sum[g], added));
            to->lost[g] = v16f_add(to->lost[g], off);
        }
        to->total[g] = total;
    }
}

/* The largest elements of `rows` rows. */
HT_INLINE void largest_of_band(ht_dtype t, int registers, int last, const strip *s, const char *x, int64_t rows,
                               v16f *largest) {
    HT_UNROLL
    for (int g = 0; g < registers; g++) largest[g] = v16f_set1(-FLT_MAX);
    for (int64_t r = 0; r < rows; r++) {
        HT_UNROLL
        for (int g = 0; g < registers; g++)
            largest[g] =
                v16f_max(lanes_load(t, x + r * s->x_step, 16 * g, 1, lanes_in(g, registers, last)), largest[g]);
    }
}

/* Powers of `rows` rows around something, and their sums; whether all elements are at most MOST_ABOVE it, or NaN. What is read
 * next is asked for on the way, into the second cache: in the first one there is no room for it, as rows may be a power of two
 * apart. Powers of the strip `before`, which are kept in the same place, are written as their place is taken. */
HT_INLINE bool powers_around(ht_dtype t, bool past_caches, bool writes, bool keeps, int registers, int last,
                             const strip *s, const finished *before, int64_t row, int64_t rows, const v16f *around,
                             v16f *sum) {
    const int64_t width = 16 * registers;
    const char *x = s->x + row * s->x_step;
    const char *next = row + BAND < s->n ? x + BAND * s->x_step : s->x + registers * (t == HT_F32 ? 64 : 32);
    v16f factor[STRIP / 16];
    v16i most[STRIP / 16]; /* what elements are above, compared as integers: right where it is positive */
    if (writes) factors_of(registers, before, row, factor);
    HT_UNROLL
    for (int g = 0; g < registers; g++) sum[g] = v16f_zero(), most[g] = v16i_set1(0);
    for (int64_t r = 0; r < rows; r++) {
        HT_UNROLL
        for (int g = 0; g < registers; g++) {
            float *p = keeps ? s->power + (row + r) * width + 16 * g : NULL;
            const v16f v = lanes_load(t, x + r * s->x_step, 16 * g, 1, lanes_in(g, registers, last));
            HT_PREFETCH_SECOND(next + r * s->x_step + g * (t == HT_F32 ? 64 : 32));
            if (writes)
                write_lanes(t, past_caches, before->strip.y + (row + r) * s->y_step, 16 * g,
                            v16f_mul(v16f_load(p), factor[g]), 16);
            const v16f above = v16f_sub(v, around[g]), e = v16f_exp_falling(above);
            most[g] = v16i_max(v16f_bits(above), most[g]);
            if (keeps) v16f_store(p, e);
            sum[g] = v16f_add(sum[g], e);
        }
    }
    bool near = true;
    HT_UNROLL
    for (int g = 0; g < registers; g++)
        near = near && !m16_any(v16f_gt(v16f_from_bits(most[g]), v16f_set1(MOST_ABOVE)));
    return near;
}

/* `rows` rows from `row` on, some of which have much larger elements than what their powers were taken around, once more: where
 * that is so around their own largest. Not inline, as with rows. */
#define COMPUTE_BAND_ANEW(name, t, registers)                                                                          \
    __attribute__((noinline)) static void name(const strip *s, int last, int64_t row, int64_t rows, sums *to,          \
                                               v16f *sum) {                                                            \
        v16f around[STRIP / 16];                                                                                       \
        largest_of_band(t, registers, last, s, s->x + row * s->x_step, rows, around);                                  \
        HT_UNROLL                                                                                                      \
        for (int g = 0; g < registers; g++) {                                                                          \
            const m16 far = v16f_gt(v16f_sub(around[g], to->around[g]), v16f_set1(MOST_ABOVE));                        \
            around[g] = v16f_select(far, around[g], to->around[g]);                                                    \
        }                                                                                                              \
        powers_around(t, false, false, s->power, registers, last, s, NULL, row, rows, around, sum);                    \
        take_down(registers, around, to);                                                                              \
    }
COMPUTE_BAND_ANEW(compute_band_anew_f32, HT_F32, STRIP / 16)
COMPUTE_BAND_ANEW(compute_band_anew_f16, HT_F16, STRIP / 16)
COMPUTE_BAND_ANEW(compute_band_anew_bf16, HT_BF16, STRIP / 16)
COMPUTE_BAND_ANEW(compute_narrow_anew_f32, HT_F32, 1)
COMPUTE_BAND_ANEW(compute_narrow_anew_f16, HT_F16, 1)
COMPUTE_BAND_ANEW(compute_narrow_anew_bf16, HT_BF16, 1)

HT_INLINE void compute_band_anew(ht_dtype t, int registers, int last, const strip *s, int64_t row, int64_t rows,
                                 sums *to, v16f *sum) {
    if (registers == 1)
        (t == HT_F32   ? compute_narrow_anew_f32
         : t == HT_F16 ? compute_narrow_anew_f16
                       : compute_narrow_anew_bf16)(s, last, row, rows, to, sum);
    else
        (t == HT_F32   ? compute_band_anew_f32
         : t == HT_F16 ? compute_band_anew_f16
                       : compute_band_anew_bf16)(s, last, row, rows, to, sum);
}

/* Of rows from `row` on: their powers, around the largest elements of the first band in which some were not much larger than
 * what was there before. */
HT_INLINE void band_of_powers(ht_dtype t, bool past_caches, bool writes, bool keeps, int registers, int last,
                              const strip *s, const finished *before, int64_t row, sums *to) {
    const int64_t rows = s->n - row < BAND ? s->n - row : BAND;
    v16f around[STRIP / 16], sum[STRIP / 16];
    HT_UNROLL
    for (int g = 0; g < registers; g++) around[g] = to->around[g];
    if (!powers_around(t, past_caches, writes, keeps, registers, last, s, before, row, rows, around, sum))
        compute_band_anew(t, registers, last, s, row, rows, to, sum);
    if (keeps) {
        HT_UNROLL
        for (int g = 0; g < registers; g++) v16f_store(s->around + row / BAND * 16 * registers + 16 * g, to->around[g]);
    }
    add_band(registers, !keeps, sum, to);
}

/* What powers are around is at least the lowest number, so that of -inf there is a power, 0. */
HT_INLINE void strip_of_powers(ht_dtype t, bool past_caches, bool writes, int registers, int last, const strip *s,
                               const finished *before, finished *to) {
    sums all;
    HT_UNROLL
    for (int g = 0; g < registers; g++) all.total[g] = all.lost[g] = v16f_zero();
    largest_of_band(t, registers, last, s, s->x, ht_min_i64(s->n, BAND), all.around);
    for (int64_t row = 0; row < s->n; row += BAND) {
        if (s->power)
            band_of_powers(t, past_caches, writes, true, registers, last, s, before, row, &all);
        else
            band_of_powers(t, past_caches, false, false, registers, last, s, before, row, &all);
    }
    HT_UNROLL
    for (int g = 0; g < registers; g++) {
        to->around[g] = all.around[g];
        to->inverse[g] = v16f_div(v16f_set1(1.0f), v16f_add(all.total[g], all.lost[g]));
    }
    to->strip = *s;
}

HT_INLINE void write_kept(ht_dtype t, bool past_caches, int registers, int last, const finished *f) {
    const strip *s = &f->strip;
    for (int64_t band = 0; band < s->n; band += BAND) {
        const int64_t end = s->n - band < BAND ? s->n : band + BAND;
        v16f factor[STRIP / 16];
        factors_of(registers, f, band, factor);
        for (int64_t row = band; row < end; row++) {
            HT_UNROLL
            for (int g = 0; g < registers; g++) {
                const v16f e = v16f_load(s->power + (row * registers + g) * 16);
                write_lanes(t, past_caches, s->y + row * s->y_step, 16 * g, v16f_mul(e, factor[g]),
                            lanes_in(g, registers, last));
            }
        }
    }
}

HT_INLINE void write_again(ht_dtype t, bool past_caches, int registers, int last, const finished *f) {
    const strip *s = &f->strip;
    for (int64_t row = 0; row < s->n; row++) {
        HT_UNROLL
        for (int g = 0; g < registers; g++) {
            const int lanes = lanes_in(g, registers, last);
            const v16f x = lanes_load(t, s->x + row * s->x_step, 16 * g, 1, lanes);
            HT_PREFETCH_SECOND(s->x + (row + BAND) * s->x_step + g * (t == HT_F32 ? 64 : 32));
            const v16f e = v16f_exp_falling(v16f_sub(x, f->around[g]));
            write_lanes(t, past_caches, s->y + row * s->y_step, 16 * g, v16f_mul(e, f->inverse[g]), lanes);
        }
    }
}

HT_INLINE void write_strip(ht_dtype t, bool past_caches, int registers, int last, const finished *f) {
    if (f->strip.power)
        write_kept(t, past_caches, registers, last, f);
    else
        write_again(t, past_caches, registers, last, f);
}

static strip strip_at(const softmax_job *j, int64_t outer, int64_t c, int64_t room) {
    float *const power = keeps(j) ? j->rooms + room * room_floats(j) : NULL;
    return (strip){.x = along_x(&j->a, outer, c),
                   .y = along_y(&j->a, outer, c),
                   .n = j->a.of.n,
                   .x_step = j->a.step * j->a.bytes,
                   .y_step = j->a.of.inner * j->a.bytes,
                   .power = power,
                   .around = power ? power + j->a.of.n * j->width : NULL};
}

/* Strips one after another: what goes round the caches of one is written while the next is computed, 1.1 to 1.2 times as fast;
 * plain stores, of which each waits for its line behind the one before it, would make that slower. Columns of a narrower
 * strip go by sixteen. */
#define RUN_STRIPS(name, t)                                                                                            \
    HT_INLINE void name##_of(const softmax_job *j, bool past_caches, int64_t begin, int64_t end, int64_t room) {       \
        finished done[2];                                                                                              \
        int waiting = -1, now = 0;                                                                                     \
        for (int64_t unit = begin; unit < end; unit++) {                                                               \
            const int64_t c = unit % j->strips * j->width, w = ht_min_i64(j->width, j->a.of.inner - c);                \
            strip s = strip_at(j, unit / j->strips, c, room);                                                          \
            if (w == STRIP && waiting >= 0) {                                                                          \
                strip_of_powers(t, past_caches, true, STRIP / 16, 16, &s, &done[waiting], &done[now]);                 \
                waiting = now, now = !now;                                                                             \
                continue;                                                                                              \
            }                                                                                                          \
            if (waiting >= 0) write_strip(t, past_caches, STRIP / 16, 16, &done[waiting]);                             \
            waiting = -1;                                                                                              \
            if (w == STRIP) {                                                                                          \
                strip_of_powers(t, past_caches, false, STRIP / 16, 16, &s, NULL, &done[now]);                          \
                if (past_caches && s.power)                                                                            \
                    waiting = now, now = !now;                                                                         \
                else                                                                                                   \
                    write_strip(t, past_caches, STRIP / 16, 16, &done[now]);                                           \
                continue;                                                                                              \
            }                                                                                                          \
            for (int64_t i = 0; i < w; i += 16, s.x += 16 * j->a.bytes, s.y += 16 * j->a.bytes) {                      \
                strip_of_powers(t, past_caches, false, 1, lanes_of(w - i), &s, NULL, &done[now]);                      \
                write_strip(t, past_caches, 1, lanes_of(w - i), &done[now]);                                           \
            }                                                                                                          \
        }                                                                                                              \
        if (waiting >= 0) write_strip(t, past_caches, STRIP / 16, 16, &done[waiting]);                                 \
    }                                                                                                                  \
    static void name(void *arg, int64_t begin, int64_t end, int worker) {                                              \
        const softmax_job *j = arg;                                                                                    \
        const int64_t room = j->n_rooms < j->a.of.outer * j->strips ? worker : begin;                                  \
        if ((t) == HT_F32 && j->whole_lines)                                                                           \
            name##_of(j, true, begin, end, room);                                                                      \
        else                                                                                                           \
            name##_of(j, false, begin, end, room);                                                                     \
        if (j->whole_lines) ht_bypass_end();                                                                           \
    }

RUN_STRIPS(strips_f32, HT_F32)
RUN_STRIPS(strips_f16, HT_F16)
RUN_STRIPS(strips_bf16, HT_BF16)

/* ---- calls ---- */

/* Columns of a strip, and how many strips there are. Where those that are as wide as can be are fewer than threads, long
 * ones are narrow. */
static void lay_strips(softmax_job *j, const ht_along *of, int threads) {
    j->width = of->outer * ht_ceil_div_i64(of->inner, STRIP) < threads && of->n >= LONG ? 16 : STRIP;
    j->strips = ht_ceil_div_i64(of->inner, j->width);
    j->n_rooms = ht_min_i64(threads, of->outer * j->strips);
}

/* How many rows or strips, of so many elements, a thread takes at a time. The first of them is computed and the last written
 * by itself, others at once: with two at a time, softmax of rows took 1.25 times as long. A thread has EACH_TAKES turns, so
 * that one that is slower has fewer. */
static int64_t grain_of(const ht_pool *pool, int64_t n, int64_t elements) {
    enum { EACH_TAKES = 8 };
    return ht_max_i64(ht_row_grain(HT_GRAIN_MATH, elements), n / (EACH_TAKES * ht_pool_threads(pool)));
}

static size_t softmax_scratch(const ht_call *call) {
    const ht_view *x = &call->in[0];
    if (!lanes_take(x->dtype) || call->out.dtype != x->dtype || ht_view_size(x) == 0) return 0;
    softmax_job j = {.a.of = ht_along_of(x, ((const ht_along_params *)call->params)->behind)};
    if (j.a.of.inner == 1) return 0;
    lay_strips(&j, &j.a.of, ht_pool_threads(call->pool));
    return (size_t)(j.n_rooms * room_floats(&j)) * sizeof(float);
}

static ht_status softmax(const ht_call *call, ht_error *err) {
    const ht_view *x = &call->in[0];
    if (!lanes_take(x->dtype) || call->out.dtype != x->dtype) return ht_plain_softmax(call, err);
    if (ht_view_size(x) == 0) return HT_OK;
    softmax_job j = {.a = along_lay(call, ((const ht_along_params *)call->params)->behind), .dtype = x->dtype};
    const ht_along *of = &j.a.of;
    const int64_t line = of->inner == 1 ? of->n : of->inner; /* what is adjacent */
    j.whole_lines = x->dtype == HT_F32 && j.a.bypasses && line % 16 == 0 && (uintptr_t)call->out.data % 64 == 0;
    if (of->inner == 1) {
        ht_block_fn *run = x->dtype == HT_F32 ? rows_f32 : x->dtype == HT_F16 ? rows_f16 : rows_bf16;
        ht_pool_run(call->pool, of->outer, grain_of(call->pool, of->outer, of->n), run, &j);
        return HT_OK;
    }
    ht_block_fn *run = x->dtype == HT_F32 ? strips_f32 : x->dtype == HT_F16 ? strips_f16 : strips_bf16;
    lay_strips(&j, of, ht_pool_threads(call->pool));
    j.rooms = call->scratch;
    const int64_t n = of->outer * j.strips;
    ht_pool_run(call->pool, n, grain_of(call->pool, n, of->n * j.width), run, &j);
    return HT_OK;
}

void HT_ISA_NAME(ht_vector_softmax)(ht_kernel kernels[HT_OP_COUNT]) {
    kernels[HT_OP_SOFTMAX] = (ht_kernel){.run = softmax, .scratch = softmax_scratch};
}
