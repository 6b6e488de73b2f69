/* Elements along the last axis in order, or parted by one of them, and the places they come from.
 *
 * What an item is says sort_job.h, how items are ordered sort_lanes.h. Rows are dealt to the threads; a long row that is
 * alone is dealt by value (sort_long_row.h). A NaN comes last. */
#include "cpu/sort_trial.h"
#include "cpu/vector/simd.h"
#include "cpu/vector/sort_long_row.h"
#include "cpu/vector/sort_places.h"
#include "cpu/vector/vector.h"
#include "device/params.h"

#include <string.h>

/* ---- elements, not places ---- */

#if HT_SORT_LANES
/* A number without sign, and what form elements of its width have. */
#if HT_SORT_LANES_16
static const form_16 *form_of_16(ht_dtype t) {
    static const form_16 f16 = {0x8000, INT16_MAX, 0x7c00}, bf16 = {0x8000, INT16_MAX, 0x7f80};
    static const form_16 i16 = {0x8000, 0, INT16_MAX};
    return t == HT_F16 ? &f16 : t == HT_BF16 ? &bf16 : t == HT_I16 ? &i16 : &plain_16;
}
#endif
static const form_32 *form_of_32(ht_dtype t) {
    static const form_32 f32 = {0x80000000, INT32_MAX, 0x7f800000}, i32 = {0x80000000, 0, INT32_MAX};
    return t == HT_F32 ? &f32 : t == HT_I32 ? &i32 : &plain_32;
}
static const form_64 *form_of_64(ht_dtype t) {
    static const form_64 f64 = {UINT64_C(1) << 63, INT64_MAX, UINT64_C(0x7ff0000000000000)};
    static const form_64 i64 = {UINT64_C(1) << 63, 0, INT64_MAX};
    return t == HT_F64 ? &f64 : t == HT_I64 ? &i64 : &plain_64;
}

/* Rows sorted, or parted, from where they lie or are loaded to, to the result, or if that is of fewer bytes to where they can
 * be stored from. There is room for them three times. */
#define ROWS_OF_WIDTH(w)                                                                                               \
    static void order_rows_##w(const sort_job *job, int64_t row, int64_t rows) {                                       \
        const ht_view *x = job->x;                                                                                     \
        const int64_t n = job->n, held = rows * n;                                                                     \
        const bool wide = ht_dtype_bytes(x->dtype) == (w) / 8, there = wide && job->stride == 1;                       \
        uint##w##_t *items = (uint##w##_t *)(void *)job->items, *out = items + held, *other = out + held;              \
        const form_##w *form = wide ? form_of_##w(x->dtype) : &plain_##w, *given = there ? form : &plain_##w;          \
        const uint##w##_t *from = there ? (const uint##w##_t *)x->data + row_at(job, row) : items;                     \
        uint##w##_t *to = wide ? (uint##w##_t *)job->call->out.data + row * n : out;                                   \
        if (!there) load_keys(job, row, 0, held, job->items);                                                          \
        for (int64_t r = 0; r < rows; r++, from += n, to += n, items += n)                                             \
            if (job->kth < 0 || n <= BASE_SORT_##w)                                                                    \
                sort_elements_##w(from, given, to, items, n, depth_for(n), &(sorting_##w){form, job->counts});         \
            else                                                                                                       \
                part_at_##w(from, given, to, form, other, items, n, job->kth, depth_for(n), job->counts);              \
        if (!wide) store(job, row, 0, held, out);                                                                      \
    }
#if HT_SORT_LANES_16
ROWS_OF_WIDTH(16)
#endif
ROWS_OF_WIDTH(32)
ROWS_OF_WIDTH(64)
#endif

#if !HT_SORT_LANES_16
static void order_rows_by_digits(const sort_job *job, int64_t row, int64_t rows) {
    const int64_t n = job->n, kth = job->kth;
    const size_t bytes = (size_t)n * job->item_bytes;
    void *other = job->items + (size_t)rows * bytes;
    load_keys(job, row, 0, rows * n, job->items);
    for (int64_t r = 0; r < rows; r++) {
        void *a = job->items + (size_t)r * bytes;
        if (kth < 0)
            order(job, a, other, n);
        else if (job->kind == ITEMS_16)
            select_16(a, other, n, kth, 0, job->n_bits, job->counts);
        else if (job->kind == ITEMS_32)
            select_32(a, other, n, kth, 0, job->n_bits, job->counts);
        else
            select_64(a, other, n, kth, 0, job->n_bits, job->counts);
    }
    store(job, row, 0, rows * n, job->items);
}
#endif

#if !HT_SORT_LANES_16
#define order_rows_16 order_rows_by_digits
#endif
#if !HT_SORT_LANES
#define order_rows_32 order_rows_by_digits
#define order_rows_64 order_rows_by_digits
#endif

static void order_rows(const sort_job *job, int64_t row, int64_t rows) {
    switch (job->kind) {
    case ITEMS_16: order_rows_16(job, row, rows); break;
    case ITEMS_32: order_rows_32(job, row, rows); break;
    case ITEMS_64: order_rows_64(job, row, rows); break;
    }
}

static void count_row(const sort_job *job, int64_t row) {
    const ht_dtype t = job->x->dtype;
    const char *from = element(job, row, 0);
    void *to = (char *)job->call->out.data + row * job->n * (int64_t)ht_dtype_bytes(t);
#if HT_SORT_LANES_16
    const form_16 *form = form_of_16(t);
    if (ht_dtype_bytes(t) == 2 && job->stride == 1 && sort_plain_16((const void *)from, form, to, job->n, form)) return;
#endif
    sort_by_counting(t, from, job->stride, job->n, job->counts, to);
}

static void do_rows(void *arg, int64_t begin, int64_t end, int worker) {
    sort_job job = *(const sort_job *)arg;
    give_room(&job, worker);
    for (int64_t row = begin; row < end; row += job.at_once) {
        const int64_t rows = ht_min_i64(job.at_once, end - row);
        if (job.counted)
            count_row(&job, row);
        else if (!job.places)
            order_rows(&job, row, rows);
        else if (job.kth >= 0)
            part_rows(&job, row, rows);
        else
            sort_places(&job, row, rows);
    }
}

static void run(sort_job job) {
    if (job.n == 0 || job.n_rows == 0) return;
    const int threads = ht_pool_threads(job.call->pool);
    if (job.kth < 0 && job.n >= LONG_ROW && job.n_rows < threads && !job.counted)
        for (int64_t row = 0; row < job.n_rows; row++) sort_long_row(&job, row);
    else
        ht_pool_run(job.call->pool, job.n_rows, ht_row_grain(HT_GRAIN_PLAIN, job.n), do_rows, &job);
}

static size_t scratch_for(const ht_call *call, bool places, int64_t kth) {
    const sort_job job = job_of(call, places, kth);
    return (size_t)ht_pool_threads(call->pool) * room_of(&job);
}

static size_t sort_scratch(const ht_call *call) { return scratch_for(call, false, -1); }
static size_t argsort_scratch(const ht_call *call) { return scratch_for(call, true, -1); }
static size_t partition_scratch(const ht_call *call) { return scratch_for(call, false, 0); }
static size_t argpartition_scratch(const ht_call *call) { return scratch_for(call, true, 0); }

static ht_status sort(const ht_call *call, ht_error *err) {
    (void)err;
    run(job_of(call, false, -1));
    return HT_OK;
}

static ht_status argsort(const ht_call *call, ht_error *err) {
    (void)err;
    run(job_of(call, true, -1));
    return HT_OK;
}

static ht_status partition(const ht_call *call, ht_error *err) {
    (void)err;
    run(job_of(call, false, ((const ht_partition_params *)call->params)->kth));
    return HT_OK;
}

static ht_status argpartition(const ht_call *call, ht_error *err) {
    (void)err;
    run(job_of(call, true, ((const ht_partition_params *)call->params)->kth));
    return HT_OK;
}

void HT_ISA_NAME(ht_vector_sort)(ht_kernel kernels[HT_OP_COUNT]) {
    kernels[HT_OP_SORT] = (ht_kernel){.run = sort, .scratch = sort_scratch};
    kernels[HT_OP_ARGSORT] = (ht_kernel){.run = argsort, .scratch = argsort_scratch};
    kernels[HT_OP_PARTITION] = (ht_kernel){.run = partition, .scratch = partition_scratch};
    kernels[HT_OP_ARGPARTITION] = (ht_kernel){.run = argpartition, .scratch = argpartition_scratch};
}

/* ---- for tests ---- */

bool HT_ISA_NAME(ht_sort_trial)(ht_sort_trial *trial);

#if HT_SORT_LANES
#define TRIAL_OF_WIDTH(w)                                                                                              \
    static void trial_##w(ht_sort_trial *t) {                                                                          \
        uint##w##_t *x = t->x, *to = t->to, *room = t->room;                                                           \
        uint32_t counts[COUNTS];                                                                                       \
        const sorting_##w s = {&plain_##w, counts};                                                                    \
        placed_##w at = {0};                                                                                           \
        switch (t->way) {                                                                                              \
        case HT_SORT_WITHIN: sort_within_##w(x, room, t->n, 0, t->splits, &s); break;                                  \
        case HT_SORT_INTO: sort_into_##w(x, to, t->n, 0, t->splits, &s); break;                                        \
        case HT_SORT_ELEMENTS: sort_elements_##w(x, &plain_##w, to, room, t->n, t->splits, &s); break;                 \
        case HT_SORT_PART: part_at_##w(x, &plain_##w, to, &plain_##w, room, x, t->n, t->kth, t->splits, counts);       \
            break;                                                                                                     \
        default: at = find_##w(x, &plain_##w, room, to, t->n, t->kth, t->splits, counts); break;                       \
        }                                                                                                              \
        t->number = at.number, t->below = at.below, t->equal = at.equal;                                               \
    }
#if HT_SORT_LANES_16
TRIAL_OF_WIDTH(16)
#endif
TRIAL_OF_WIDTH(32)
TRIAL_OF_WIDTH(64)

bool HT_ISA_NAME(ht_sort_trial)(ht_sort_trial *trial) {
    if (trial->width == 16)
#if HT_SORT_LANES_16
        trial_16(trial);
#else
        return false;
#endif
    else if (trial->width == 32)
        trial_32(trial);
    else
        trial_64(trial);
    return true;
}
#else
bool HT_ISA_NAME(ht_sort_trial)(ht_sort_trial *trial) {
    (void)trial;
    return false;
}
#endif
