/* Softmax along any axis of f32, f16 and bf16 arrays: maximum, exponentials and their sum, division. f32 exponentials
 * are kept in the result; narrower dtypes would round them, so they are computed twice. Sums are f32 within BLOCK
 * elements and f64 across blocks: a long f32 sum loses digits. */
#include "base/checked.h"
#include "cpu/call.h"
#include "cpu/reference/reference.h"
#include "cpu/vector/axis_view.h"
#include "cpu/vector/exp_bounded.h"
#include "cpu/vector/rows.h"
#include "device/params.h"

#include <math.h>

enum {
    SHORT_ROW = 4096,      /* elements; shorter rows prefetch the next row */
    BLOCK = 1024,          /* row elements per f32 sum */
    COLUMN_BLOCK = 256,    /* column elements per f32 sum */
    STRIP_BYTES = 1 << 18, /* strip of short columns that stays in an L2 cache between passes */
    MIN_STRIP = 256,       /* columns */
    MAX_STRIP = 1024
};

typedef struct softmax_job {
    axis_operand a;
    ht_dtype dtype;
    int64_t width, strips; /* columns per strip, and strips */
} softmax_job;

/* ---- rows ---- */

/* Row maximum, ignoring NaN: its exponential makes the sum NaN. */
HT_INLINE v16f row_max(ht_dtype t, const char *x, int64_t n) {
    v16f most[4];
    HT_UNROLL
    for (int k = 0; k < 4; k++) most[k] = v16f_set1(-INFINITY);
    int64_t i = 0;
    for (; i + 64 <= n; i += 64) {
        HT_UNROLL
        for (int k = 0; k < 4; k++) most[k] = v16f_max(lanes_load(t, x, i + 16 * k, 1, 16), most[k]);
    }
    for (; i < n; i += 16) {
        const int lanes = lanes_count(n - i);
        most[0] = v16f_select(m16_first(lanes), v16f_max(lanes_load(t, x, i, 1, lanes), most[0]), most[0]);
    }
    return v16f_set1(v16f_hmax(v16f_max(v16f_max(most[0], most[1]), v16f_max(most[2], most[3]))));
}

/* Sum of the exponentials of elements [i, end), stored if the result is f32; prefetches the row at `next`, if any. */
HT_INLINE float row_exp(ht_dtype t, const char *x, const char *next, char *y, int64_t i, int64_t end, v16f most) {
    row_sum sum = row_sum_zero();
    for (; i + 64 <= end; i += 64) {
        HT_UNROLL
        for (int k = 0; k < 4; k++) {
            if (next) HT_PREFETCH(next + (i + 16 * k) * (t == HT_F32 ? 4 : 2));
            const v16f p = v16f_exp_bounded(v16f_sub(lanes_load(t, x, i + 16 * k, 1, 16), most));
            if (t == HT_F32) lanes_store(t, y, i + 16 * k, p, 16);
            sum.lane[k] = v16f_add(sum.lane[k], p);
        }
    }
    for (; i < end; i += 16) {
        const int lanes = lanes_count(end - i);
        const v16f p = v16f_exp_bounded(v16f_sub(lanes_load(t, x, i, 1, lanes), most));
        if (t == HT_F32) lanes_store(t, y, i, p, lanes);
        sum.lane[0] = v16f_add(sum.lane[0], v16f_select(m16_first(lanes), p, v16f_zero()));
    }
    return row_sum_total(&sum);
}

HT_INLINE void softmax_row(ht_dtype t, const char *x, char *y, int64_t n) {
    const v16f most = row_max(t, x, n);
    const char *next = n <= SHORT_ROW ? x + n * (t == HT_F32 ? 4 : 2) : NULL;
    double sum = 0.0;
    for (int64_t i = 0; i < n; i += BLOCK) sum += (double)row_exp(t, x, next, y, i, ht_min_i64(n, i + BLOCK), most);
    const v16f factor = v16f_set1((float)(1.0 / sum));
    for (int64_t i = 0; i < n; i += 16) {
        const int lanes = lanes_count(n - i);
        const v16f p = t == HT_F32 ? lanes_load(t, y, i, 1, lanes)
                                   : v16f_exp_bounded(v16f_sub(lanes_load(t, x, i, 1, lanes), most));
        lanes_store(t, y, i, v16f_mul(p, factor), lanes);
    }
}

/* ---- columns ---- */

/* w adjacent columns of n elements, `step` apart in the operand and `inner` apart in the result. */
typedef struct strip {
    const char *x;
    char *y;
    int64_t step, inner, n, w;
} strip;

HT_INLINE void strip_max(ht_dtype t, const strip *s, float *most) {
    for (int64_t c = 0; c < s->w; c += 16) v16f_store(most + c, v16f_set1(-INFINITY));
    for (int64_t r = 0; r < s->n; r++)
        for (int64_t c = 0; c < s->w; c += 16)
            v16f_store(most + c,
                       v16f_max(lanes_load(t, s->x, r * s->step + c, 1, lanes_count(s->w - c)), v16f_load(most + c)));
}

/* Adds the exponentials of rows [r, end) to `total` and stores them if the result is f32. */
HT_INLINE void strip_exp(ht_dtype t, const strip *s, int64_t r, int64_t end, const float *most, double *total) {
    _Alignas(64) float sum[MAX_STRIP] = {0};
    for (; r < end; r++)
        for (int64_t c = 0; c < s->w; c += 16) {
            const int lanes = lanes_count(s->w - c);
            const v16f p =
                v16f_exp_bounded(v16f_sub(lanes_load(t, s->x, r * s->step + c, 1, lanes), v16f_load(most + c)));
            if (t == HT_F32) lanes_store(t, s->y, r * s->inner + c, p, lanes);
            v16f_store(sum + c, v16f_add(v16f_load(sum + c), p));
        }
    for (int64_t c = 0; c < s->w; c++) total[c] += (double)sum[c];
}

HT_INLINE void softmax_strip(ht_dtype t, const strip *s) {
    _Alignas(64) float most[MAX_STRIP], factor[MAX_STRIP];
    double total[MAX_STRIP];
    strip_max(t, s, most);
    for (int64_t c = 0; c < s->w; c++) total[c] = 0.0;
    for (int64_t r = 0; r < s->n; r += COLUMN_BLOCK)
        strip_exp(t, s, r, ht_min_i64(s->n, r + COLUMN_BLOCK), most, total);
    for (int64_t c = 0; c < s->w; c++) factor[c] = (float)(1.0 / total[c]);
    for (int64_t r = 0; r < s->n; r++)
        for (int64_t c = 0; c < s->w; c += 16) {
            const int lanes = lanes_count(s->w - c);
            const v16f p =
                t == HT_F32
                    ? lanes_load(t, s->y, r * s->inner + c, 1, lanes)
                    : v16f_exp_bounded(v16f_sub(lanes_load(t, s->x, r * s->step + c, 1, lanes), v16f_load(most + c)));
            lanes_store(t, s->y, r * s->inner + c, v16f_mul(p, v16f_load(factor + c)), lanes);
        }
}

/* ---- calls ---- */

#define OF_DTYPE(name, t)                                                                                              \
    static void rows_##name(void *arg, int64_t begin, int64_t end, int worker) {                                       \
        (void)worker;                                                                                                  \
        const softmax_job *j = arg;                                                                                    \
        for (int64_t i = begin; i < end; i++)                                                                          \
            softmax_row(t, axis_operand_x(&j->a, i, 0), axis_operand_y(&j->a, i, 0), j->a.view.n);                     \
    }                                                                                                                  \
    static void strips_##name(void *arg, int64_t begin, int64_t end, int worker) {                                     \
        (void)worker;                                                                                                  \
        const softmax_job *j = arg;                                                                                    \
        const ht_axis_view *view = &j->a.view;                                                                         \
        for (int64_t i = begin; i < end; i++) {                                                                        \
            const int64_t outer = i / j->strips, c = i % j->strips * j->width;                                         \
            softmax_strip(t, &(strip){axis_operand_x(&j->a, outer, c), axis_operand_y(&j->a, outer, c), j->a.step,     \
                                      view->inner, view->n, ht_min_i64(j->width, view->inner - c)});                   \
        }                                                                                                              \
    }
OF_DTYPE(f32, HT_F32)
OF_DTYPE(f16, HT_F16)
OF_DTYPE(bf16, HT_BF16)

static ht_status softmax(const ht_call *call, ht_error *err) {
    const ht_view *x = &call->in[0];
    if (!lanes_supports(x->dtype) || call->out.dtype != x->dtype) return ht_plain_softmax(call, err);
    if (ht_view_size(x) == 0) return HT_OK;
    softmax_job j = {.a = axis_operand_of(call, ((const ht_along_params *)call->params)->behind), .dtype = x->dtype};
    const ht_axis_view *view = &j.a.view;
    if (view->inner == 1) {
        ht_block_fn *run = x->dtype == HT_F32 ? rows_f32 : x->dtype == HT_F16 ? rows_f16 : rows_bf16;
        ht_pool_run(ht_call_pool(call), view->outer, ht_row_grain(HT_GRAIN_MATH, view->n), run, &j);
        return HT_OK;
    }
    ht_block_fn *run = x->dtype == HT_F32 ? strips_f32 : x->dtype == HT_F16 ? strips_f16 : strips_bf16;
    const int64_t fits = STRIP_BYTES / (int64_t)sizeof(float) / view->n / 16 * 16;
    j.width = ht_max_i64(MIN_STRIP, ht_min_i64(MAX_STRIP, fits));
    j.strips = ht_ceil_div_i64(view->inner, j.width);
    ht_pool_run(ht_call_pool(call), view->outer * j.strips, ht_row_grain(HT_GRAIN_MATH, view->n * j.width), run, &j);
    return HT_OK;
}

void HT_ISA_NAME(ht_vector_softmax)(ht_kernel kernels[HT_OP_COUNT]) { kernels[HT_OP_SOFTMAX].run = softmax; }
