/* Softmax along any axis of f32, f16 and bf16 arrays, sums of f32. Along adjacent elements memory is read once and three
 * rows are under way at a time, of which one is written while the next is computed and the one behind it read. */
#include "cpu/reference/reference.h"
#include "cpu/vector/along.h"
#include "cpu/vector/powers.h"
#include "cpu/vector/powers_sum.h"
#include "cpu/vector/reduce.h"
#include "cpu/vector/simd_past.h"
#include "device/params.h"

#include <float.h>
#include <math.h>

enum {
    KEPT = 6144,      /* elements of a row that are kept in the first cache on the way */
    PER_THREAD = 4,   /* blocks of columns, so that threads end together */
    LEAST_WIDTH = 64, /* columns of a block, where there are so many */
    SHORT = 128,      /* elements of a column that is kept, in */
    STRIP = 64,       /* columns: four registers, */
    BAND = 32         /* so many rows of them at a time */
};

typedef struct softmax_job {
    along a;
    bool whole_lines; /* rows of the result are written round the caches, register by register */
    ht_dtype dtype;
    int64_t width, blocks; /* columns of a block, at most, and blocks or strips of a row */
} softmax_job;

/* ---- rows that are kept ---- */

/* One row is written (from what it came to, in `room`, times a factor), one computed (into the same room), and of one the
 * largest found. Any of them may be missing. */
typedef struct stages {
    const char *computed, *looked_at;
    char *written;
    float factor, around;
    v16f largest; /* of the row that is looked at */
    row_sum sum;  /* of the row that is computed */
} stages;

HT_INLINE void write_lanes(ht_dtype t, bool past_caches, char *to, int64_t i, v16f y, int lanes) {
    if (past_caches && lanes == 16)
        v16f_store_past((float *)(void *)to + i, y);
    else
        lanes_store(t, to, i, y, lanes);
}

HT_INLINE void row_step(ht_dtype t, bool writes, bool computes, bool looks, bool past_caches, stages *s, float *room,
                        int64_t i, int lanes, v16f *sum, v16f *largest) {
    if (looks) {
        const v16f x = lanes_load(t, s->looked_at, i, 1, lanes);
        HT_PREFETCH_ALONG(s->looked_at + i * (t == HT_F32 ? 4 : 2));
        *largest = v16f_max(lanes == 16 ? x : v16f_select(m16_first(lanes), x, v16f_set1(-INFINITY)), *largest);
    }
    if (writes)
        write_lanes(t, past_caches, s->written, i, v16f_mul(v16f_load_n(room + i, lanes), v16f_set1(s->factor)), lanes);
    if (computes) {
        v16f e = v16f_exp_falling(v16f_sub(lanes_load(t, s->computed, i, 1, lanes), v16f_set1(s->around)));
        if (lanes < 16) e = v16f_select(m16_first(lanes), e, v16f_zero());
        v16f_store_n(room + i, e, lanes);
        *sum = v16f_add(*sum, e);
    }
}

HT_INLINE void row_steps(ht_dtype t, bool writes, bool computes, bool looks, bool past_caches, stages *s, float *room,
                         int64_t n) {
    v16f largest[4];
    row_sum sum = row_sum_zero();
    HT_UNROLL
    for (int k = 0; k < 4; k++) largest[k] = v16f_set1(-INFINITY);
    int64_t i = 0;
    for (; i + 64 <= n; i += 64) {
        HT_UNROLL
        for (int k = 0; k < 4; k++)
            row_step(t, writes, computes, looks, past_caches, s, room, i + 16 * k, 16, &sum.lane[k], &largest[k]);
    }
    HT_UNROLL
    for (int k = 0; k < 4; k++, i += 16) /* constant, as a sum in a variable place is kept in memory */
        if (i < n)
            row_step(t, writes, computes, looks, past_caches, s, room, i, lanes_of(n - i), &sum.lane[k], &largest[k]);
    s->largest = v16f_max(v16f_max(largest[0], largest[1]), v16f_max(largest[2], largest[3]));
    s->sum = sum;
}

/* Row after row: `largest` is that of the next one by the time that it is computed. */
HT_INLINE void softmax_rows(const softmax_job *j, ht_dtype t, bool past_caches, int64_t begin, int64_t end) {
    _Alignas(64) float room[KEPT];
    const int64_t n = j->a.of.n;
    stages s = {.looked_at = along_x(&j->a, begin, 0)};
    row_steps(t, false, false, true, past_caches, &s, room, n);
    for (int64_t row = begin; row < end; row++) {
        s.around = v16f_hmax(s.largest);
        s.computed = s.looked_at;
        if (row + 1 < end) s.looked_at = along_x(&j->a, row + 1, 0);
        if (row == begin)
            row_steps(t, false, true, true, past_caches, &s, room, n);
        else
            row_steps(t, true, true, true, past_caches, &s, room, n);
        s.written = along_y(&j->a, row, 0);
        s.factor = 1.0f / row_sum_total(&s.sum);
    }
    row_steps(t, true, false, false, past_caches, &s, room, n);
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
    v16f largest = v16f_set1(-INFINITY);
    double sum = 0.0;
    stages s = {.around = 0.0f};
    for (int pass = 0; pass < 3; pass++) {
        for (int64_t i = 0; i < n; i += HT_REDUCE_BLOCK) {
            const int64_t some = n - i < HT_REDUCE_BLOCK ? n - i : HT_REDUCE_BLOCK;
            float *powers = t == HT_F32 ? (float *)(void *)y + i : room;
            s.looked_at = s.computed = x + i * bytes;
            s.written = y + i * bytes;
            if (pass == 0) {
                row_steps(t, false, false, true, false, &s, powers, some);
                largest = v16f_max(s.largest, largest);
            }
            if (pass == 1 || (pass == 2 && t != HT_F32)) row_steps(t, false, true, false, false, &s, powers, some);
            if (pass == 1) sum += (double)row_sum_total(&s.sum);
            if (pass == 2) row_steps(t, true, false, false, false, &s, powers, some);
        }
        s.around = v16f_hmax(largest);
        s.factor = (float)(1.0 / sum);
    }
}

#define RUN_ROWS(name, t)                                                                                              \
    static void name(void *arg, int64_t begin, int64_t end, int worker) {                                              \
        (void)worker;                                                                                                  \
        const softmax_job *j = arg;                                                                                    \
        if (j->a.of.n > KEPT)                                                                                          \
            for (int64_t row = begin; row < end; row++) softmax_long(j, t, row);                                       \
        else if ((t) == HT_F32 && j->whole_lines)                                                                      \
            softmax_rows(j, t, true, begin, end);                                                                      \
        else                                                                                                           \
            softmax_rows(j, t, false, begin, end);                                                                     \
    }
RUN_ROWS(rows_f32, HT_F32)
RUN_ROWS(rows_f16, HT_F16)
RUN_ROWS(rows_bf16, HT_BF16)

/* ---- short columns ----
 *
 * Strips of columns are gone through in bands of rows and kept in a near cache. Bands are computed around the largest elements
 * so far, which are remembered; what that makes of the powers is put right as they are written. */

typedef struct strip_room {
    _Alignas(64) float power[SHORT * STRIP], around[SHORT / BAND * STRIP]; /* of each row, and of each band */
} strip_room;

typedef struct strip {
    const char *x;
    char *y;
    int64_t n, x_step, y_step; /* bytes from a row to the next */
    strip_room *room;
} strip;

/* A strip whose powers are computed, and what they are multiplied by. */
typedef struct finished {
    strip strip;
    v16f largest[STRIP / 16], inverse[STRIP / 16];
} finished;

/* The last register of a strip has `last` lanes, the others all. */
HT_INLINE int lanes_in(int g, int registers, int last) { return g + 1 < registers ? 16 : last; }

/* What a band of a strip is multiplied by. */
HT_INLINE void factors_of(int registers, const finished *f, int64_t row, v16f *factor) {
    HT_UNROLL
    for (int g = 0; g < registers; g++) {
        const v16f around = v16f_load(f->strip.room->around + row / BAND * STRIP + 16 * g);
        factor[g] = v16f_mul(v16f_exp_falling(v16f_sub(around, f->largest[g])), f->inverse[g]);
    }
}

/* Of rows from `row` on: their powers, around the largest elements up to there. What is read next is asked for on the way,
 * into the second cache: in the first one there is no room for it, as rows may be a power of two apart. Powers of the strip
 * `before`, which are kept in the same place, are written as their place is taken. */
HT_INLINE void band_of_powers(ht_dtype t, bool past_caches, bool writes, int registers, int last, const strip *s,
                              const finished *before, int64_t row, v16f *largest, v16f *total) {
    const int64_t rows = s->n - row < BAND ? s->n - row : BAND;
    const char *x = s->x + row * s->x_step;
    const char *next = row + BAND < s->n ? x + BAND * s->x_step : s->x + registers * (t == HT_F32 ? 64 : 32);
    float *power = s->room->power + row * STRIP, *around = s->room->around + row / BAND * STRIP;
    v16f old[STRIP / 16], sum[STRIP / 16], factor[STRIP / 16];
    if (writes) factors_of(registers, before, row, factor);
    HT_UNROLL
    for (int g = 0; g < registers; g++) old[g] = largest[g];
    for (int64_t r = 0; r < rows; r++) {
        HT_UNROLL
        for (int g = 0; g < registers; g++) {
            float *p = power + r * STRIP + 16 * g;
            const v16f v = lanes_load(t, x + r * s->x_step, 16 * g, 1, lanes_in(g, registers, last));
            if (writes)
                write_lanes(t, past_caches, before->strip.y + (row + r) * s->y_step, 16 * g,
                            v16f_mul(v16f_load(p), factor[g]), 16);
            v16f_store(p, v);
            largest[g] = v16f_max(v, largest[g]);
        }
    }
    HT_UNROLL
    for (int g = 0; g < registers; g++) {
        v16f_store(around + 16 * g, largest[g]);
        total[g] = v16f_mul(total[g], v16f_exp_falling(v16f_sub(old[g], largest[g])));
        sum[g] = v16f_zero();
    }
    for (int64_t r = 0; r < rows; r++) {
        HT_UNROLL
        for (int g = 0; g < registers; g++) {
            float *p = power + r * STRIP + 16 * g;
            const v16f e = v16f_exp_falling(v16f_sub(v16f_load(p), largest[g]));
            HT_PREFETCH_SECOND(next + r * s->x_step + g * (t == HT_F32 ? 64 : 32));
            v16f_store(p, e);
            sum[g] = v16f_add(sum[g], e);
        }
    }
    HT_UNROLL
    for (int g = 0; g < registers; g++) total[g] = v16f_add(total[g], sum[g]);
}

/* The largest is at least the lowest number, so that of -inf there is a power, 0. */
HT_INLINE void strip_of_powers(ht_dtype t, bool past_caches, bool writes, int registers, int last, const strip *s,
                               const finished *before, finished *to) {
    v16f largest[STRIP / 16], total[STRIP / 16];
    HT_UNROLL
    for (int g = 0; g < registers; g++) largest[g] = v16f_set1(-FLT_MAX), total[g] = v16f_zero();
    for (int64_t row = 0; row < s->n; row += BAND)
        band_of_powers(t, past_caches, writes, registers, last, s, before, row, largest, total);
    HT_UNROLL
    for (int g = 0; g < registers; g++) {
        to->largest[g] = largest[g];
        to->inverse[g] = v16f_div(v16f_set1(1.0f), total[g]);
    }
    to->strip = *s;
}

HT_INLINE void write_strip(ht_dtype t, bool past_caches, int registers, int last, const finished *f) {
    const strip *s = &f->strip;
    for (int64_t band = 0; band < s->n; band += BAND) {
        const int64_t end = s->n - band < BAND ? s->n : band + BAND;
        v16f factor[STRIP / 16];
        factors_of(registers, f, band, factor);
        for (int64_t row = band; row < end; row++) {
            HT_UNROLL
            for (int g = 0; g < registers; g++) {
                const v16f e = v16f_load(s->room->power + row * STRIP + 16 * g);
                write_lanes(t, past_caches, s->y + row * s->y_step, 16 * g, v16f_mul(e, factor[g]),
                            lanes_in(g, registers, last));
            }
        }
    }
}

static strip strip_at(const softmax_job *j, int64_t outer, int64_t c, strip_room *room) {
    return (strip){.x = along_x(&j->a, outer, c),
                   .y = along_y(&j->a, outer, c),
                   .n = j->a.of.n,
                   .x_step = j->a.step * j->a.bytes,
                   .y_step = j->a.of.inner * j->a.bytes,
                   .room = room};
}

/* Strips one after another: what goes round the caches of one is written while the next is computed, 1.1 to 1.2 times as fast;
 * plain stores, of which each waits for its line behind the one before it, would make that slower. Columns of a narrower
 * strip go by sixteen. */
#define RUN_STRIPS(name, t)                                                                                            \
    HT_INLINE void name##_of(const softmax_job *j, bool past_caches, int64_t begin, int64_t end) {                     \
        strip_room room;                                                                                               \
        finished done[2];                                                                                              \
        int waiting = -1, now = 0;                                                                                     \
        for (int64_t unit = begin; unit < end; unit++) {                                                               \
            const int64_t c = unit % j->blocks * STRIP, left = j->a.of.inner - c, w = left < STRIP ? left : STRIP;     \
            strip s = strip_at(j, unit / j->blocks, c, &room);                                                         \
            if (w == STRIP && waiting >= 0) {                                                                          \
                strip_of_powers(t, past_caches, true, STRIP / 16, 16, &s, &done[waiting], &done[now]);                 \
                waiting = now, now = !now;                                                                             \
                continue;                                                                                              \
            }                                                                                                          \
            if (waiting >= 0) write_strip(t, past_caches, STRIP / 16, 16, &done[waiting]);                             \
            waiting = -1;                                                                                              \
            if (w == STRIP) {                                                                                          \
                strip_of_powers(t, past_caches, false, STRIP / 16, 16, &s, NULL, &done[now]);                          \
                if (past_caches)                                                                                       \
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
        (void)worker;                                                                                                  \
        const softmax_job *j = arg;                                                                                    \
        if ((t) == HT_F32 && j->whole_lines)                                                                           \
            name##_of(j, true, begin, end);                                                                            \
        else                                                                                                           \
            name##_of(j, false, begin, end);                                                                           \
        if (j->whole_lines) ht_bypass_end();                                                                           \
    }

RUN_STRIPS(strips_f32, HT_F32)
RUN_STRIPS(strips_f16, HT_F16)
RUN_STRIPS(strips_bf16, HT_BF16)

/* ---- columns ----
 *
 * Blocks of columns are read along the rows, which is how memory is fast, twice: for the largest elements and the sums of
 * powers around them, and for what is written, which a shared cache still has then. What goes round the caches is written
 * while the next block is summed. */

/* What the columns of a block are written with: e^(x - around) * factor. */
typedef struct block {
    float around[HT_POWERS_WIDTH], factor[HT_POWERS_WIDTH];
} block;

/* Of w columns from c on. A column with an infinite element, or with none above -inf, has a factor that is no number. */
static void sum_columns(const softmax_job *j, int64_t outer, int64_t c, int64_t w, block *to,
                        ht_powers_waiting *waiting) {
    const ht_view x = {
        .dtype = j->dtype, .n_dims = 1, .stride = {j->a.step}, .data = (void *)(uintptr_t)along_x(&j->a, outer, c)};
    ht_powers all[HT_POWERS_WIDTH], more[HT_POWERS_WIDTH];
    for (int64_t r = 0; r < j->a.of.n; r += HT_REDUCE_BLOCK) {
        const int64_t left = j->a.of.n - r, n = left < HT_REDUCE_BLOCK ? left : HT_REDUCE_BLOCK;
        HT_ISA_NAME(ht_powers_of_columns)(&x, r * j->a.step, n, w, r > 0 ? more : all, waiting);
        for (int64_t i = 0; r > 0 && i < w; i++) all[i] = ht_powers_joined(all[i], more[i]);
    }
    for (int64_t i = 0; i < w; i++) {
        to->around[i] = all[i].high;
        to->factor[i] = all[i].high == INFINITY ? NAN : 1.0f / all[i].sum;
    }
}

HT_INLINE void write_columns(ht_dtype t, const ht_powers_waiting *q) {
    const int64_t bytes = t == HT_F32 ? 4 : 2;
    const char *x = q->x;
    char *y = q->y;
    for (int64_t r = 0; r < q->rows; r++, x += q->x_step, y += q->y_step)
        for (int64_t i = 0; i < q->width; i += 16) {
            const int lanes = lanes_of(q->width - i);
            HT_PREFETCH(x + q->x_step + i * bytes);
            const v16f e = v16f_exp_falling(v16f_sub(lanes_load(t, x, i, 1, lanes), v16f_load(q->around + i)));
            lanes_store(t, y, i, v16f_mul(e, v16f_load(q->factor + i)), lanes);
        }
}

static void run_columns(void *arg, int64_t begin, int64_t end, int worker) {
    (void)worker;
    const softmax_job *j = arg;
    ht_powers_waiting q = {0};
    block blocks[2];
    for (int64_t unit = begin; unit < end; unit++) {
        const int64_t outer = unit / j->blocks, c = unit % j->blocks * j->width, left = j->a.of.inner - c;
        const int64_t w = left < j->width ? left : j->width;
        block *b = &blocks[unit % 2];
        sum_columns(j, outer, c, w, b, j->whole_lines ? &q : NULL);
        while (q.rows > 0) ht_powers_write(&q);
        q = (ht_powers_waiting){.x = along_x(&j->a, outer, c),
                                .y = along_y(&j->a, outer, c),
                                .x_step = j->a.step * j->a.bytes,
                                .y_step = j->a.of.inner * j->a.bytes,
                                .rows = j->a.of.n,
                                .width = w,
                                .around = b->around,
                                .factor = b->factor};
        if (j->whole_lines && w % HT_POWERS_AT_ONCE == 0) continue;
        if (j->dtype == HT_F32)
            write_columns(HT_F32, &q);
        else if (j->dtype == HT_F16)
            write_columns(HT_F16, &q);
        else
            write_columns(HT_BF16, &q);
        q.rows = 0;
    }
    while (q.rows > 0) ht_powers_write(&q);
    if (j->whole_lines) ht_bypass_end();
}

/* ---- calls ---- */

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
        ht_pool_run(call->pool, of->outer, ht_row_grain(HT_GRAIN_MATH, of->n), run, &j);
        return HT_OK;
    }
    if (of->n <= SHORT) {
        ht_block_fn *run = x->dtype == HT_F32 ? strips_f32 : x->dtype == HT_F16 ? strips_f16 : strips_bf16;
        j.blocks = (of->inner + STRIP - 1) / STRIP;
        ht_pool_run(call->pool, of->outer * j.blocks, ht_row_grain(HT_GRAIN_MATH, of->n * STRIP), run, &j);
        return HT_OK;
    }
    const int64_t threads = ht_pool_threads(call->pool), wanted = threads > 1 ? PER_THREAD * threads : 1;
    j.width = HT_POWERS_WIDTH;
    while (j.width > LEAST_WIDTH && of->outer * (of->inner / j.width) < wanted) j.width /= 2;
    j.blocks = (of->inner + j.width - 1) / j.width;
    ht_pool_run(call->pool, of->outer * j.blocks, ht_row_grain(HT_GRAIN_MATH, of->n * j.width), run_columns, &j);
    return HT_OK;
}

void HT_ISA_NAME(ht_vector_softmax)(ht_kernel kernels[HT_OP_COUNT]) {
    kernels[HT_OP_SOFTMAX] = (ht_kernel){.run = softmax};
}
