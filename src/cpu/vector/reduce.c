/* Row reductions of f32, f16 and bf16 arrays, with f32 sums. */
#include "cpu/vector/reduce.h"

#include "base/error.h"
#include "cpu/call.h"
#include "cpu/reference/reference.h"
#include "cpu/vector/reduce_chunks.h"
#include "cpu/vector/rows.h"
#include "cpu/vector/vector.h"

#include <math.h>

/* One row: n elements of x from x[at] on. */
typedef struct row {
    const ht_view *x;
    int64_t at, stride, n;
} row;

HT_INLINE v16f load(const row *r, int64_t i, int n) {
    return lanes_load(r->x->dtype, r->x->data, r->at + i * r->stride, r->stride, n);
}

static row row_at(const ht_call *call, bool contiguous, int64_t i) {
    const ht_view *x = &call->in[0];
    int last = x->n_dims - 1;
    return (row){.x = x, .at = row_offset(x, contiguous, i), .stride = x->stride[last], .n = x->shape[last]};
}

/* ---- sum and mean: f32 within a chunk, f64 across chunks ---- */

static ht_partial sum_chunk(const float *x, int64_t n) {
    row_sum sum = row_sum_zero();
    int64_t i = 0;
    for (; i + 64 <= n; i += 64)
        for (int k = 0; k < 4; k++) sum.lane[k] = v16f_add(sum.lane[k], v16f_load(x + i + 16 * k));
    for (; i < n; i += 16)
        sum.lane[i / 16 % 4] = v16f_add(sum.lane[i / 16 % 4], v16f_load_n(x + i, lanes_count(n - i)));
    return (ht_partial){.sum = (double)row_sum_total(&sum)};
}

static ht_partial add_chunks(ht_partial a, ht_partial b) { return (ht_partial){.sum = a.sum + b.sum}; }
static double sum_of(ht_partial p, int64_t n) { return (void)n, p.sum; }
static double mean_of(ht_partial p, int64_t n) { return p.sum / (double)n; }

static const ht_chunk_ops sum_ops = {sum_chunk, add_chunks, sum_of, HT_GRAIN_CHEAP};
static const ht_chunk_ops mean_ops = {sum_chunk, add_chunks, mean_of, HT_GRAIN_CHEAP};

/* ---- max and argmax: NaN is the largest value ---- */

/* Maximum of n values, ignoring NaN; *nan: NaN seen. `flip` = INT32_MIN negates all values, for minima. */
static v16f max_of_floats(const float *p, int64_t n, int32_t flip, m16 *nan) {
    v16f max[4];
    m16 is_nan[4];
    const v16i sign = v16i_set1(flip);
    for (int k = 0; k < 4; k++) {
        max[k] = v16f_set1(-INFINITY);
        is_nan[k] = m16_first(0);
    }
    int64_t i = 0;
    for (; i + 64 <= n; i += 64) {
        HT_UNROLL
        for (int k = 0; k < 4; k++) {
            const v16f v = v16f_from_bits(v16i_xor(v16f_bits(v16f_load(p + i + 16 * k)), sign));
            max[k] = v16f_max(v, max[k]);
            is_nan[k] = m16_or(is_nan[k], v16f_is_nan(v));
        }
    }
    for (; i < n; i += 16) {
        int lanes = lanes_count(n - i);
        const v16f x = v16f_from_bits(v16i_xor(v16f_bits(v16f_load_n(p + i, lanes)), sign));
        max[0] = v16f_select(m16_first(lanes), v16f_max(x, max[0]), max[0]);
        is_nan[0] = m16_or(is_nan[0], v16f_is_nan(x));
    }
    *nan = m16_or(m16_or(is_nan[0], is_nan[1]), m16_or(is_nan[2], is_nan[3]));
    return v16f_max(v16f_max(max[0], max[1]), v16f_max(max[2], max[3]));
}

enum { STAGED = 1024 };

/* max_of_floats of a row of any dtype and stride. */
static v16f max_of(const row *r, int32_t flip, m16 *nan) {
    if (r->x->dtype == HT_F32 && r->stride == 1)
        return max_of_floats((const float *)r->x->data + r->at, r->n, flip, nan);
    float staged[STAGED];
    v16f max = v16f_set1(-INFINITY);
    *nan = m16_first(0);
    for (int64_t i = 0; i < r->n; i += STAGED) {
        int64_t some = r->n - i < STAGED ? r->n - i : STAGED;
        for (int64_t k = 0; k < some; k += 16)
            v16f_store_n(staged + k, load(r, i + k, lanes_count(some - k)), lanes_count(some - k));
        m16 here;
        max = v16f_max(max, max_of_floats(staged, some, flip, &here));
        *nan = m16_or(*nan, here);
    }
    return max;
}

enum { PART = 1024 };

typedef struct max_job {
    const ht_call *call;
    bool contiguous, want_index;
    int32_t flip; /* INT32_MIN for minima, as maxima of the negated values */
} max_job;

/* Order of max: NaN is the largest value, ties keep the earlier one. */
static bool is_larger(float value, float than) { return !isnan(than) && (isnan(value) || value > than); }

static const float lane_numbers[16] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};

/* Index of the first of 64 elements equal to v, if any is. */
HT_INLINE int place_of(const float *p, v16f v) {
    const v16f none = v16f_set1(-64.0f), numbers = v16f_load(lane_numbers);
    v16f first = none;
    HT_UNROLL
    for (int k = 3; k >= 0; k--)
        first = v16f_select(v16f_eq(v16f_load(p + 16 * k), v), v16f_sub(v16f_set1(-16.0f * (float)k), numbers), first);
    return -(int)v16f_hmax(first);
}

/* Index in the chunk of the first element equal to `value`, or of the first NaN. */
static int64_t find(const row *r, float value) {
    int64_t i = 0;
    if (r->x->dtype == HT_F32 && r->stride == 1 && !isnan(value)) {
        const float *p = (const float *)r->x->data + r->at;
        const v16f v = v16f_set1(value);
        for (; i + 64 <= r->n; i += 64) {
            const m16 hit = m16_or(m16_or(v16f_eq(v16f_load(p + i), v), v16f_eq(v16f_load(p + i + 16), v)),
                                   m16_or(v16f_eq(v16f_load(p + i + 32), v), v16f_eq(v16f_load(p + i + 48), v)));
            if (m16_any(hit)) return i + place_of(p + i, v);
        }
    }
    for (; i < r->n; i += 16) {
        int n = lanes_count(r->n - i);
        v16f v = load(r, i, n);
        m16 hit = m16_and(m16_first(n), isnan(value) ? v16f_is_nan(v) : v16f_eq(v, v16f_set1(value)));
        if (!m16_any(hit)) continue;
        float values[16];
        v16f_store(values, v);
        for (int k = 0; k < n; k++)
            if (isnan(value) ? isnan(values[k]) : values[k] == value) return i + k;
    }
    return 0;
}

/* Stores a row's result, first found in r, elements from `begin` on. Zeros and NaN are copied from the operand, since
 * their sign or payload may differ. */
static void finish_row(const max_job *job, int64_t row_index, const row *r, int64_t begin, float max) {
    const ht_view *x = &job->call->in[0], *out = &job->call->out;
    const float value = job->flip ? -max : max;
    if (!job->want_index && !isnan(value) && value != 0.0f) {
        lanes_store(out->dtype, out->data, row_index, v16f_set1(value), 1);
        return;
    }
    const int64_t at = find(r, value);
    if (job->want_index)
        ((uint32_t *)out->data)[row_index] = (uint32_t)(begin + at);
    else
        lanes_store(out->dtype, out->data, row_index, lanes_load(x->dtype, x->data, r->at + at * r->stride, 1, 1), 1);
}

/* Elements of r from `begin` on, at most PART. */
static row part_of(const row *r, int64_t begin) {
    row part = *r;
    part.at += begin * r->stride;
    part.n = r->n - begin < PART ? r->n - begin : PART;
    return part;
}

/* Maximum of a row; *from: start of the first part with the maximum, the only part to search. */
static float largest_by_parts(const row *r, int32_t flip, int64_t *from) {
    float largest = 0.0f;
    for (int64_t i = 0; i < r->n; i += PART) {
        const row part = part_of(r, i);
        m16 nan;
        const v16f max = max_of(&part, flip, &nan);
        const float value = m16_any(nan) ? NAN : v16f_hmax(max);
        if (i > 0 && !is_larger(value, largest)) continue;
        largest = value;
        *from = i;
    }
    return largest;
}

static void max_rows(void *arg, int64_t begin, int64_t end, int worker) {
    (void)worker;
    const max_job *job = arg;
    for (int64_t i = begin; i < end; i++) {
        const row r = row_at(job->call, job->contiguous, i);
        m16 nan;
        if (job->want_index) {
            int64_t from = 0;
            const float max = largest_by_parts(&r, job->flip, &from);
            const row part = part_of(&r, from);
            finish_row(job, i, &part, from, max);
            continue;
        }
        const v16f max = max_of(&r, job->flip, &nan);
        finish_row(job, i, &r, 0, m16_any(nan) ? NAN : v16f_hmax(max));
    }
}

static ht_status largest(const ht_call *call, const char *name, bool smallest, bool want_index, ht_error *err) {
    const ht_view *x = &call->in[0];
    int64_t n = x->shape[x->n_dims - 1], rows = row_count(x);
    if (rows == 0) return HT_OK;
    if (n == 0) return ht_fail(err, HT_ERR_ARGUMENT, "%s over an axis of length 0 has no value", name);
    max_job job = {
        .call = call, .contiguous = ht_view_contiguous(x), .want_index = want_index, .flip = smallest ? INT32_MIN : 0};
    ht_pool_run(ht_call_pool(call), rows, ht_row_grain(HT_GRAIN_CHEAP, n), max_rows, &job);
    return HT_OK;
}

/* ---- kernel table ---- */

/* Largest scratch of the kernels that may run the call. */
static size_t most_scratch(const ht_call *call, ht_op_id op) {
    const size_t columns = HT_ISA_NAME(ht_reduce_columns_scratch)(call, op);
    const size_t types = HT_ISA_NAME(ht_reduce_types_scratch)(call, op);
    const size_t chunks = op == HT_OP_SUM || op == HT_OP_MEAN ? HT_ISA_NAME(ht_reduce_chunks_scratch)(call) : 0;
    const size_t most = columns > types ? columns : types;
    return most > chunks ? most : chunks;
}
#define SCRATCH(name, id)                                                                                              \
    static size_t name##_scratch(const ht_call *call) { return most_scratch(call, HT_OP_##id); }
SCRATCH(sum, SUM)
SCRATCH(mean, MEAN)
SCRATCH(prod, PROD)
SCRATCH(max, MAX)
SCRATCH(min, MIN)
SCRATCH(argmax, ARGMAX)
SCRATCH(argmin, ARGMIN)

static bool is_supported(const ht_call *call) {
    return lanes_supports(call->in[0].dtype) && lanes_supports(call->out.dtype);
}

static bool run_columns_or_types(const ht_call *call, ht_op_id op) {
    return HT_ISA_NAME(ht_reduce_columns)(call, op) || HT_ISA_NAME(ht_reduce_types)(call, op);
}

static ht_status sum(const ht_call *call, ht_error *err) {
    if (run_columns_or_types(call, HT_OP_SUM)) return HT_OK;
    return is_supported(call) && HT_ISA_NAME(ht_reduce_chunks)(call, &sum_ops) ? HT_OK : ht_plain_sum(call, err);
}

static ht_status mean(const ht_call *call, ht_error *err) {
    if (run_columns_or_types(call, HT_OP_MEAN)) return HT_OK;
    return is_supported(call) && HT_ISA_NAME(ht_reduce_chunks)(call, &mean_ops) ? HT_OK : ht_plain_mean(call, err);
}

static ht_status prod(const ht_call *call, ht_error *err) {
    return run_columns_or_types(call, HT_OP_PROD) ? HT_OK : ht_plain_prod(call, err);
}

#define EXTREME(name, id, smallest)                                                                                    \
    static ht_status name(const ht_call *call, ht_error *err) {                                                        \
        if (run_columns_or_types(call, HT_OP_##id)) return HT_OK;                                                      \
        if (!is_supported(call) || call->in[0].dtype != call->out.dtype) return ht_plain_##name(call, err);            \
        return largest(call, #name, smallest, false, err);                                                             \
    }
EXTREME(max, MAX, false)
EXTREME(min, MIN, true)

#define PLACE(name, id, smallest)                                                                                      \
    static ht_status name(const ht_call *call, ht_error *err) {                                                        \
        if (run_columns_or_types(call, HT_OP_##id)) return HT_OK;                                                      \
        bool ours = lanes_supports(call->in[0].dtype) && call->out.dtype == HT_U32;                                    \
        return ours ? largest(call, #name, smallest, true, err) : ht_plain_##name(call, err);                          \
    }
PLACE(argmax, ARGMAX, false)
PLACE(argmin, ARGMIN, true)

void HT_ISA_NAME(ht_vector_reduce)(ht_kernel kernels[HT_OP_COUNT]) {
    kernels[HT_OP_SUM] = (ht_kernel){.run = sum, .scratch = sum_scratch};
    kernels[HT_OP_MEAN] = (ht_kernel){.run = mean, .scratch = mean_scratch};
    kernels[HT_OP_PROD] = (ht_kernel){.run = prod, .scratch = prod_scratch};
    kernels[HT_OP_MAX] = (ht_kernel){.run = max, .scratch = max_scratch};
    kernels[HT_OP_MIN] = (ht_kernel){.run = min, .scratch = min_scratch};
    kernels[HT_OP_ARGMAX] = (ht_kernel){.run = argmax, .scratch = argmax_scratch};
    kernels[HT_OP_ARGMIN] = (ht_kernel){.run = argmin, .scratch = argmin_scratch};
}
