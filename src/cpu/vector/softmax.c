/* Softmax along any axis of f32, f16 and bf16 arrays, sums of f32. Memory is read and written once: what lies between is
 * kept in a cache. Along adjacent elements three rows are under way at a time, of which one is written while the next is
 * computed and the one behind it read. Across others a strip of columns is gone through in bands of rows. */
#include "cpu/reference/reference.h"
#include "cpu/vector/along.h"
#include "cpu/vector/powers.h"
#include "cpu/vector/reduce.h"
#include "cpu/vector/simd_past.h"
#include "device/params.h"

#include <float.h>

enum {
    KEPT = 6144,     /* elements of a row that are kept in the first cache on the way */
    ROW_AHEAD = 256, /* elements that are asked for before they are needed */
    STRIP = 64,      /* columns of a strip: four registers */
    BAND = 32,       /* rows of a band */
    KEPT_ROWS = 8192 /* of a strip: in the second cache, where that is large enough */
};

typedef struct softmax_job {
    along a;
    bool whole_lines; /* rows of the result are written round the caches, register by register */
    int64_t strips;
    float *room; /* of each thread: strip_floats() of them */
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
        HT_PREFETCH(s->looked_at + (i + ROW_AHEAD) * (t == HT_F32 ? 4 : 2));
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
    for (int k = 0; i < n; i += 16, k++)
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

/* ---- strips of columns ----
 *
 * Bands of rows are computed around the largest elements so far, which are remembered; what that makes of the powers is put
 * right as they are written. */

static bool keeps(int64_t n) { return n <= KEPT_ROWS; }
static int64_t bands_of(int64_t n) { return (n + BAND - 1) / BAND; }
static int64_t strip_floats(int64_t n) { return ((keeps(n) ? n : BAND) + bands_of(n)) * STRIP; }

typedef struct strip {
    const char *x;
    char *y;
    int64_t n, x_step, y_step; /* bytes from a row to the next */
    float *power, *around;     /* [n or BAND][STRIP], [bands][STRIP] */
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
        const v16f around = v16f_load(f->strip.around + row / BAND * STRIP + 16 * g);
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
    float *power = s->power + (keeps(s->n) ? row : 0) * STRIP, *around = s->around + row / BAND * STRIP;
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
    const bool kept = keeps(s->n);
    v16f factor[STRIP / 16];
    HT_UNROLL
    for (int g = 0; g < registers; g++) factor[g] = f->inverse[g];
    for (int64_t row = 0; row < s->n; row++) {
        if (kept && row % BAND == 0) factors_of(registers, f, row, factor);
        HT_UNROLL
        for (int g = 0; g < registers; g++) {
            const int lanes = lanes_in(g, registers, last);
            v16f e;
            if (kept)
                e = v16f_load(s->power + row * STRIP + 16 * g);
            else
                e = v16f_exp_falling(v16f_sub(lanes_load(t, s->x + row * s->x_step, 16 * g, 1, lanes), f->largest[g]));
            write_lanes(t, past_caches, s->y + row * s->y_step, 16 * g, v16f_mul(e, factor[g]), lanes);
        }
    }
}

/* Strips one after another: of those that are kept, one is written round the caches while the next is computed, 1.1 to 1.2
 * times as fast; plain stores, of which each waits for its line behind the one before it, would make that slower. Columns
 * of a narrower strip go by sixteen. */
#define RUN_STRIPS(name, t)                                                                                            \
    HT_INLINE void name##_of(const softmax_job *j, bool past_caches, int64_t begin, int64_t end, int worker) {         \
        finished done[2];                                                                                              \
        int waiting = -1, now = 0;                                                                                     \
        for (int64_t unit = begin; unit < end; unit++) {                                                               \
            const int64_t c = unit % j->strips * STRIP, left = j->a.of.inner - c, w = left < STRIP ? left : STRIP;     \
            strip s = strip_at(j, unit / j->strips, c, worker);                                                        \
            if (w == STRIP && waiting >= 0) {                                                                          \
                strip_of_powers(t, past_caches, true, STRIP / 16, 16, &s, &done[waiting], &done[now]);                 \
                waiting = now, now = !now;                                                                             \
                continue;                                                                                              \
            }                                                                                                          \
            if (waiting >= 0) write_strip(t, past_caches, STRIP / 16, 16, &done[waiting]);                             \
            waiting = -1;                                                                                              \
            if (w == STRIP) {                                                                                          \
                strip_of_powers(t, past_caches, false, STRIP / 16, 16, &s, NULL, &done[now]);                          \
                if (past_caches && keeps(s.n))                                                                         \
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
        if ((t) == HT_F32 && j->whole_lines)                                                                           \
            name##_of(j, true, begin, end, worker);                                                                    \
        else                                                                                                           \
            name##_of(j, false, begin, end, worker);                                                                   \
        if (j->whole_lines) ht_bypass_end();                                                                           \
    }

static strip strip_at(const softmax_job *j, int64_t outer, int64_t c, int worker) {
    const int64_t n = j->a.of.n;
    float *room = j->room + worker * strip_floats(n);
    return (strip){.x = along_x(&j->a, outer, c),
                   .y = along_y(&j->a, outer, c),
                   .n = n,
                   .x_step = j->a.step * j->a.bytes,
                   .y_step = j->a.of.inner * j->a.bytes,
                   .power = room + bands_of(n) * STRIP,
                   .around = room};
}

RUN_STRIPS(strips_f32, HT_F32)
RUN_STRIPS(strips_f16, HT_F16)
RUN_STRIPS(strips_bf16, HT_BF16)

/* ---- calls ---- */

static size_t scratch(const ht_call *call) {
    const ht_along of = ht_along_of(&call->in[0], ((const ht_along_params *)call->params)->behind);
    if (of.inner == 1) return 0;
    return (size_t)ht_pool_threads(call->pool) * (size_t)strip_floats(of.n) * sizeof(float);
}

static ht_status softmax(const ht_call *call, ht_error *err) {
    const ht_view *x = &call->in[0];
    if (!lanes_take(x->dtype) || call->out.dtype != x->dtype) return ht_plain_softmax(call, err);
    if (ht_view_size(x) == 0) return HT_OK;
    softmax_job j = {.a = along_lay(call, ((const ht_along_params *)call->params)->behind), .room = call->scratch};
    const ht_along *of = &j.a.of;
    const int64_t line = of->inner == 1 ? of->n : of->inner; /* what is adjacent */
    j.whole_lines = x->dtype == HT_F32 && j.a.bypasses && line % 16 == 0 && (uintptr_t)call->out.data % 64 == 0;
    if (of->inner == 1) {
        ht_block_fn *run = x->dtype == HT_F32 ? rows_f32 : x->dtype == HT_F16 ? rows_f16 : rows_bf16;
        ht_pool_run(call->pool, of->outer, ht_row_grain(HT_GRAIN_MATH, of->n), run, &j);
        return HT_OK;
    }
    ht_block_fn *run = x->dtype == HT_F32 ? strips_f32 : x->dtype == HT_F16 ? strips_f16 : strips_bf16;
    j.strips = (of->inner + STRIP - 1) / STRIP;
    ht_pool_run(call->pool, of->outer * j.strips, ht_row_grain(HT_GRAIN_MATH, of->n * STRIP), run, &j);
    return HT_OK;
}

void HT_ISA_NAME(ht_vector_softmax)(ht_kernel kernels[HT_OP_COUNT]) {
    kernels[HT_OP_SOFTMAX] = (ht_kernel){.run = softmax, .scratch = scratch};
}
