/* The highest logits of rows, for samplers that need only these. */
#include "base/checked.h"
#include "cuda/cuda.h"

static int64_t segments_of(int64_t n) { return ht_ceil_div_i64(n, HT_CUDA_TOP_SEGMENT); }

static int32_t most(int64_t n) {
    if (n < 1 || n > INT32_MAX) return 0;
    const int64_t room = HT_CUDA_TOP_CANDIDATES / segments_of(n) - HT_CUDA_TOP_MORE;
    return (int32_t)ht_max_i64(0, ht_min_i64(ht_min_i64(HT_CUDA_TOP_MOST, n), room));
}

static size_t scratch(int64_t n_rows, int64_t n, int32_t k) {
    return (size_t)(n_rows * segments_of(n) * (k + HT_CUDA_TOP_MORE)) * sizeof(uint64_t);
}

static ht_status run(ht_device *device, const ht_top_search *search, ht_error *err) {
    ht_cuda_device *d = ht_cuda_of(device);
    const ht_cuda_top_arguments a = {.x = search->x,
                                     .rows = search->n_rows,
                                     .n = search->n,
                                     .k = search->k,
                                     .segments = (int32_t)segments_of(search->n),
                                     .room = search->k + HT_CUDA_TOP_MORE,
                                     .candidates = search->scratch,
                                     .value = search->value,
                                     .id = search->id};
    if (a.rows == 0) return HT_OK;
    const ht_cuda_shape segments = {.grid = {(unsigned)(a.rows * a.segments)}, .block = {HT_CUDA_TOP_THREADS}};
    const ht_cuda_shape rows = {.grid = {(unsigned)a.rows}, .block = {HT_CUDA_TOP_ROW_THREADS}};
    const ht_status status = ht_cuda_launch(d, HT_CUDA_ID_ht_cuda_top_of_segments, &segments, &a, err);
    return status ? status : ht_cuda_launch(d, HT_CUDA_ID_ht_cuda_top_of_rows, &rows, &a, err);
}

const ht_top_ops ht_cuda_top = {most, scratch, run};
