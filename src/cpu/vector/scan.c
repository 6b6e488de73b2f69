/* Scans along any axis, bit-identical to the plain kernels. The recurrence along a line is sequential. Adjacent lines
 * advance together by elementwise functions, whose first operand is the accumulator. Rows go one by one: sums and
 * products of f32 and i32 here, the rest by the plain kernels. */
#include "base/dtype.h"
#include "cpu/call.h"
#include "cpu/element.h"
#include "cpu/reference/reference.h"
#include "cpu/vector/axis_view.h"
#include "cpu/vector/elementwise.h"
#include "cpu/vector/vector.h"
#include "device/params.h"

#include <math.h>

enum { WIDTH = 512 /* most lines at a time */ };

/* Scans n elements of one row, `step` apart. */
typedef void row_fn(const void *in, void *out, int64_t step, int64_t n, bool inclusive);

#define ROW(name, type, accumulator, first, expression)                                                                \
    static void name(const void *in, void *out, int64_t step, int64_t n, bool inclusive) {                             \
        const type *x = in;                                                                                            \
        type *y = out;                                                                                                 \
        accumulator a = first;                                                                                         \
        for (int64_t i = 0; i < n; i++, x += step, y += step) {                                                        \
            const accumulator before = a, b = (accumulator)*x;                                                         \
            a = (accumulator)(expression);                                                                             \
            *y = (type)(inclusive ? a : before);                                                                       \
        }                                                                                                              \
    }
ROW(sum_f32, float, double, 0.0, a + b)
ROW(prod_f32, float, double, 1.0, a *b)
ROW(sum_i32, int32_t, int32_t, 0, (uint32_t)a + (uint32_t)b)
ROW(prod_i32, int32_t, int32_t, 1, (uint32_t)a *(uint32_t)b)

typedef struct scan_job {
    axis_operand a;
    const ht_scan_params *p;
    row_fn *row;
    ht_elementwise_fn *fold, *widen, *narrow; /* on accumulators, to them and from them */
    int64_t kept_bytes, pieces;               /* bytes of an accumulator; parts of the inner elements */
    _Alignas(8) char first[8];                /* the accumulator to begin with */
} scan_job;

/* The identity element of a scan's function. */
static void set_first(ht_op_id fold, ht_dtype t, void *to) {
    const int bits = 8 * (int)ht_dtype_bytes(t);
    const bool is_signed = ht_dtype_is_signed(t);
    const int64_t low = is_signed ? (int64_t)(UINT64_MAX << (bits - 1)) : 0;
    const bool product = fold == HT_OP_MULTIPLY, max = fold == HT_OP_MAXIMUM, min = fold == HT_OP_MINIMUM;
    if (t == HT_F64)
        *(double *)to = max ? -(double)INFINITY : min ? (double)INFINITY : (double)product;
    else
        ht_set_int(t, to, 0, max ? low : min ? (is_signed ? ~low : -1) : product);
}

static void run_rows(void *arg, int64_t begin, int64_t end, int worker) {
    (void)worker;
    const scan_job *j = arg;
    const int64_t n = j->a.view.n, from = j->p->reverse ? (n - 1) * j->a.bytes : 0;
    for (int64_t row = begin; row < end; row++)
        j->row(axis_operand_x(&j->a, row, 0) + from, axis_operand_y(&j->a, row, 0) + from, j->p->reverse ? -1 : 1, n,
               j->p->inclusive);
}

/* The next elements of w lines. The result may be the operand's memory: each is read before it is written. */
static void step_across(const scan_job *j, const char *x, char *kept, char *y, int64_t w) {
    _Alignas(64) char next[8 * WIDTH];
    const void *from = x, *const operands[2] = {kept, next}, *const accumulators = kept;
    j->widen(&from, next, w, NULL);
    if (!j->p->inclusive) j->narrow(&accumulators, y, w, NULL);
    j->fold(operands, kept, w, NULL);
    if (j->p->inclusive) j->narrow(&accumulators, y, w, NULL);
}

static void run_across(void *arg, int64_t begin, int64_t end, int worker) {
    (void)worker;
    const scan_job *j = arg;
    const int64_t n = j->a.view.n, bytes = j->a.bytes, direction = j->p->reverse ? -1 : 1;
    const int64_t x_step = j->a.step * bytes, y_step = j->a.view.inner * bytes, from = j->p->reverse ? n - 1 : 0;
    _Alignas(64) char kept[8 * WIDTH];
    for (int64_t unit = begin; unit < end; unit++) {
        const int64_t c = unit % j->pieces * WIDTH, left = j->a.view.inner - c, w = left < WIDTH ? left : WIDTH;
        const char *x = axis_operand_x(&j->a, unit / j->pieces, c) + from * x_step;
        char *y = axis_operand_y(&j->a, unit / j->pieces, c) + from * y_step;
        for (int64_t i = 0; i < w; i++) memcpy(kept + i * j->kept_bytes, j->first, (size_t)j->kept_bytes);
        for (int64_t k = 0; k < n; k++, x += direction * x_step, y += direction * y_step) step_across(j, x, kept, y, w);
    }
}

static bool scan(const ht_call *call, ht_op_id fold, row_fn *row_f32, row_fn *row_i32) {
    const ht_view *x = &call->in[0];
    const ht_dtype t = x->dtype, kept = ht_dtype_is_float(t) ? HT_F64 : t;
    scan_job j = {.p = call->params, .row = t == HT_F32 ? row_f32 : t == HT_I32 ? row_i32 : NULL};
    if (t == HT_BOOL || call->out.dtype != t) return false;
    if (ht_view_size(x) == 0) return true;
    const ht_axis_view view = ht_axis_view_of(x, j.p->behind);
    j.fold = HT_ISA_NAME(ht_find_elementwise)(fold, kept, kept);
    j.widen = HT_ISA_NAME(ht_find_elementwise)(HT_OP_CAST, t, kept);
    j.narrow = HT_ISA_NAME(ht_find_elementwise)(HT_OP_CAST, kept, t);
    if (view.inner == 1 ? !j.row : !j.fold || !j.widen || !j.narrow) return false;
    j.kept_bytes = (int64_t)ht_dtype_bytes(kept);
    set_first(fold, kept, j.first);
    j.a = axis_operand_of(call, j.p->behind);
    j.pieces = (view.inner + WIDTH - 1) / WIDTH;
    const int64_t w = view.inner < WIDTH ? view.inner : WIDTH;
    ht_pool_run(ht_call_pool(call), view.outer * j.pieces, ht_row_grain(HT_GRAIN_MATH, view.n * w),
                view.inner == 1 ? run_rows : run_across, &j);
    return true;
}

#define KERNEL(name, fold, row_f32, row_i32)                                                                           \
    static ht_status name(const ht_call *call, ht_error *err) {                                                        \
        return scan(call, fold, row_f32, row_i32) ? HT_OK : ht_plain_##name(call, err);                                \
    }
KERNEL(cumsum, HT_OP_ADD, sum_f32, sum_i32)
KERNEL(cumprod, HT_OP_MULTIPLY, prod_f32, prod_i32)
KERNEL(cummax, HT_OP_MAXIMUM, NULL, NULL)
KERNEL(cummin, HT_OP_MINIMUM, NULL, NULL)

void HT_ISA_NAME(ht_vector_scan)(ht_kernel kernels[HT_OP_COUNT]) {
    kernels[HT_OP_CUMSUM].run = cumsum;
    kernels[HT_OP_CUMPROD].run = cumprod;
    kernels[HT_OP_CUMMAX].run = cummax;
    kernels[HT_OP_CUMMIN].run = cummin;
}
