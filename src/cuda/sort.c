/* Sorting, the largest elements, and random numbers: cuda/sort.cu. Partitions are sorted as a whole. */
#include "cuda/sort.h"

#include "base/checked.h"
#include "base/dtype.h"
#include "cuda/cuda.h"
#include "device/params.h"

/* ---- sorting ---- */

typedef enum result { ELEMENTS, PLACES, LARGEST } result;

static ht_cuda_item_kind kind_of(const ht_view *x, result what) {
    const bool small = ht_dtype_bytes(x->dtype) <= 4;
    if (what == ELEMENTS) return small ? HT_CUDA_ITEM_KEY32 : HT_CUDA_ITEM_KEY64;
    return small && x->shape[x->n_dims - 1] <= UINT32_MAX ? HT_CUDA_ITEM_PLACE32 : HT_CUDA_ITEM_PLACE64;
}

static size_t item_bytes(ht_cuda_item_kind kind) {
    static const size_t bytes[] = {[HT_CUDA_ITEM_KEY32] = sizeof(uint32_t),
                                   [HT_CUDA_ITEM_KEY64] = sizeof(uint64_t),
                                   [HT_CUDA_ITEM_PLACE32] = sizeof(uint64_t),
                                   [HT_CUDA_ITEM_PLACE64] = sizeof(ht_cuda_placed)};
    return bytes[kind];
}

enum { TILE = HT_CUDA_SORT_EACH * HT_CUDA_SORT_THREADS };

/* One step's items, in bytes: rows of more than a tile are merged from one such buffer to another. */
static size_t items_bytes(const ht_call *call, result what) {
    const ht_view *x = &call->in[0];
    if (x->shape[x->n_dims - 1] <= TILE) return 0;
    return ((size_t)ht_view_size(x) * item_bytes(kind_of(x, what)) + 63) / 64 * 64;
}

static unsigned blocks_of(int64_t n) { return (unsigned)ht_min_i64(n, INT32_MAX); /* blocks then take several tiles */ }

/* Sorts tiles, then merges lists between items[*at] and the other buffer. The last step writes `out`; without one it
 * leaves the items in items[*at]. */
static ht_status sort_lists(ht_cuda_device *d, ht_cuda_sort_arguments *a, void *const items[2], int *at,
                            ht_error *err) {
    const int64_t n = a->n;
    unsigned threads = 32; /* no more than a short row can use */
    while (threads < HT_CUDA_SORT_THREADS && threads * HT_CUDA_SORT_EACH < n) threads *= 2;
    const int64_t tile = (int64_t)threads * HT_CUDA_SORT_EACH;
    ht_cuda_shape shape = {.grid = {blocks_of(a->rows * ((n + tile - 1) / tile))},
                           .block = {threads},
                           .shared_bytes = (unsigned)((size_t)tile * item_bytes((ht_cuda_item_kind)a->kind))};
    a->to = n > tile || !a->out ? items[0] : NULL;
    ht_status status = ht_cuda_launch(d, HT_CUDA_ID_ht_cuda_sort_tiles, &shape, a, err);
    *at = 0;
    for (a->width = tile; a->width < n && !status; a->width *= 2, *at = 1 - *at) {
        const int64_t pairs = (n + 2 * a->width - 1) / (2 * a->width), kept = ht_min_i64(2 * a->width, a->limit);
        a->from = items[*at];
        a->to = 2 * a->width < n || !a->out ? items[1 - *at] : NULL;
        shape.grid[0] = blocks_of(a->rows * pairs * ((kept + tile - 1) / tile));
        status = ht_cuda_launch(d, HT_CUDA_ID_ht_cuda_merge_lists, &shape, a, err);
    }
    return status;
}

static ht_status sort_rows(const ht_call *call, result what, ht_error *err) {
    const ht_view *x = &call->in[0];
    if (ht_view_size(x) == 0) return HT_OK;
    const int64_t n = x->shape[x->n_dims - 1];
    ht_cuda_sort_arguments a = {.x = ht_cuda_view_of(x),
                                .out = call->out.data,
                                .rows = ht_view_size(x) / n,
                                .n = n,
                                .limit = call->out.shape[call->out.n_dims - 1],
                                .kind = (int32_t)kind_of(x, what),
                                .largest = what == LARGEST};
    const size_t buffer = items_bytes(call, what);
    void *const items[2] = {call->scratch, buffer ? (char *)call->scratch + buffer : NULL};
    int at;
    return sort_lists(ht_cuda_of(call->device), &a, items, &at, err);
}

ht_status ht_cuda_sort_items(ht_cuda_device *d, uint64_t *items, uint64_t *room, int64_t n, const uint64_t **sorted,
                             ht_error *err) {
    ht_cuda_sort_arguments a = {.x = {.data = items, .dtype = HT_U64, .n_dims = 1, .shape = {n}, .stride = {1}},
                                .rows = 1,
                                .n = n,
                                .limit = n,
                                .kind = HT_CUDA_ITEM_KEY64};
    void *const buffers[2] = {items, room};
    int at;
    const ht_status status = sort_lists(d, &a, buffers, &at, err);
    *sorted = buffers[at];
    return status;
}

static ht_status run_sort(const ht_call *call, ht_error *err) { return sort_rows(call, ELEMENTS, err); }
static ht_status run_argsort(const ht_call *call, ht_error *err) { return sort_rows(call, PLACES, err); }
static ht_status run_top_k(const ht_call *call, ht_error *err) { return sort_rows(call, LARGEST, err); }

static size_t sort_scratch(const ht_call *call) { return 2 * items_bytes(call, ELEMENTS); }
static size_t argsort_scratch(const ht_call *call) { return 2 * items_bytes(call, PLACES); }

/* ---- random numbers ---- */

static ht_status run_random_bits(const ht_call *call, ht_error *err) {
    const ht_view *out = &call->out;
    const ht_cuda_random_bits_arguments a = {.key = ht_cuda_view_of(&call->in[0]),
                                             .out = out->data,
                                             .bytes = ht_view_size(out) * (int64_t)ht_dtype_bytes(out->dtype),
                                             .unit = out->dtype == HT_F32};
    return ht_cuda_launch_threads(ht_cuda_of(call->device), HT_CUDA_ID_ht_cuda_random_bits, (a.bytes + 7) / 8, &a, err);
}

static ht_status run_random_sums(const ht_call *call, ht_error *err) {
    const ht_view *x = &call->in[0];
    if (ht_view_size(x) == 0) return HT_OK;
    const int64_t n = x->shape[x->n_dims - 1];
    const ht_cuda_random_sums_arguments a = {
        .x = ht_cuda_view_of(x), .out = call->out.data, .rows = ht_view_size(x) / n, .n = n};
    const ht_cuda_shape shape = {.grid = {blocks_of(a.rows)}, .block = {256}};
    return ht_cuda_launch(ht_cuda_of(call->device), HT_CUDA_ID_ht_cuda_random_sums, &shape, &a, err);
}

void ht_cuda_sort_kernels(ht_kernel *kernels) {
    kernels[HT_OP_SORT] = (ht_kernel){run_sort, sort_scratch};
    kernels[HT_OP_ARGSORT] = (ht_kernel){run_argsort, argsort_scratch};
    kernels[HT_OP_PARTITION] = (ht_kernel){run_sort, sort_scratch};
    kernels[HT_OP_ARGPARTITION] = (ht_kernel){run_argsort, argsort_scratch};
    kernels[HT_OP_TOP_K] = (ht_kernel){run_top_k, argsort_scratch};
    kernels[HT_OP_RANDOM_BITS].run = run_random_bits;
    kernels[HT_OP_RANDOM_SUMS].run = run_random_sums;
}
