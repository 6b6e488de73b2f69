/* Scans of f32, f64 and integers of 32 and 64 bits with the bits of the plain kernels. What a row has come to is needed for
 * its next element, so several rows are gone through side by side. */
#include "cpu/reference/reference.h"
#include "cpu/vector/rows.h"
#include "cpu/vector/vector.h"
#include "device/params.h"

#include <math.h>

enum { ABREAST = 8 };

/* Rows from row `first` on, `rows` of them, n elements each: element k of row r is at r * row_step + k. */
typedef void scan_fn(const void *in, int64_t row_step, void *out, int64_t n, int rows, const ht_scan_params *p);

#define SCAN_ROWS(name, type, so_far, rows)                                                                            \
    for (int64_t k = 0; k < n; k++) {                                                                                  \
        int64_t i = p->reverse ? n - 1 - k : k;                                                                        \
        HT_UNROLL                                                                                                      \
        for (int r = 0; r < (rows); r++) {                                                                             \
            so_far before = value[r];                                                                                  \
            value[r] = name##_of(before, (so_far)x[r * row_step + i]);                                                 \
            y[r * n + i] = (type)(p->inclusive ? value[r] : before);                                                   \
        }                                                                                                              \
    }

#define SCAN(name, type, so_far, start, expression)                                                                    \
    HT_INLINE so_far name##_of(so_far a, so_far b) { return expression; }                                              \
    static void name(const void *in, int64_t row_step, void *out, int64_t n, int n_rows, const ht_scan_params *p) {    \
        const type *x = in;                                                                                            \
        type *y = out;                                                                                                 \
        so_far value[ABREAST];                                                                                         \
        for (int r = 0; r < ABREAST; r++) value[r] = (so_far)(start);                                                  \
        if (n_rows == ABREAST)                                                                                         \
            SCAN_ROWS(name, type, so_far, ABREAST)                                                                     \
        else                                                                                                           \
            SCAN_ROWS(name, type, so_far, n_rows)                                                                      \
    }

#define SCANS(kind, type, so_far, low, high, worked_in)                                                                \
    SCAN(sum_##kind, type, so_far, 0, (so_far)((worked_in)a + (worked_in)b))                                           \
    SCAN(prod_##kind, type, so_far, 1, (so_far)((worked_in)a * (worked_in)b))                                          \
    SCAN(max_##kind, type, so_far, low, a != a || a > b ? a : b)                                                       \
    SCAN(min_##kind, type, so_far, high, a != a || a < b ? a : b)

SCANS(f32, float, double, -(double)INFINITY, (double)INFINITY, double)
SCANS(f64, double, double, -(double)INFINITY, (double)INFINITY, double)
SCANS(i32, int32_t, int32_t, INT32_MIN, INT32_MAX, uint32_t)
SCANS(u32, uint32_t, uint32_t, 0, UINT32_MAX, uint32_t)
SCANS(i64, int64_t, int64_t, INT64_MIN, INT64_MAX, uint64_t)
SCANS(u64, uint64_t, uint64_t, 0, UINT64_MAX, uint64_t)

typedef struct scan_job {
    const ht_view *x;
    const ht_call *call;
    scan_fn *fn;
    int64_t n, row_step, bytes;
} scan_job;

static void run_rows(void *arg, int64_t begin, int64_t end, int worker) {
    (void)worker;
    const scan_job *j = arg;
    for (int64_t row = begin; row < end; row += ABREAST) {
        int rows = end - row < ABREAST ? (int)(end - row) : ABREAST;
        j->fn((const char *)j->x->data + row * j->row_step * j->bytes, j->row_step,
              (char *)j->call->out.data + row * j->n * j->bytes, j->n, rows, j->call->params);
    }
}

/* Rows that do not follow one another are brought together in the result's place first. */
static bool scan(const ht_call *call, scan_fn *const fn[6]) {
    static const ht_dtype dtypes[6] = {HT_F32, HT_F64, HT_I32, HT_U32, HT_I64, HT_U64};
    const ht_view *x = &call->in[0];
    int which = 0;
    while (which < 6 && dtypes[which] != x->dtype) which++;
    if (which == 6 || call->out.dtype != x->dtype) return false;
    const int64_t n = x->shape[x->n_dims - 1];
    if (ht_view_size(x) == 0) return true;
    scan_job j = {
        .x = x, .call = call, .fn = fn[which], .n = n, .row_step = n, .bytes = (int64_t)ht_dtype_bytes(x->dtype)};
    if (!ht_view_contiguous(x)) {
        HT_ISA_NAME(ht_vector_turn)(x, &call->out, call->pool);
        j.x = &call->out;
    }
    int64_t grain = ht_row_grain(HT_GRAIN_MATH, n);
    ht_pool_run(call->pool, row_count(x), (grain + ABREAST - 1) / ABREAST * ABREAST, run_rows, &j);
    return true;
}

#define KERNEL(name, kind)                                                                                             \
    static ht_status name(const ht_call *call, ht_error *err) {                                                        \
        static scan_fn *const fn[6] = {kind##_f32, kind##_f64, kind##_i32, kind##_u32, kind##_i64, kind##_u64};        \
        return scan(call, fn) ? HT_OK : ht_plain_##name(call, err);                                                    \
    }
KERNEL(cumsum, sum)
KERNEL(cumprod, prod)
KERNEL(cummax, max)
KERNEL(cummin, min)

void HT_ISA_NAME(ht_vector_scan)(ht_kernel kernels[HT_OP_COUNT]) {
    kernels[HT_OP_CUMSUM].run = cumsum;
    kernels[HT_OP_CUMPROD].run = cumprod;
    kernels[HT_OP_CUMMAX].run = cummax;
    kernels[HT_OP_CUMMIN].run = cummin;
}
