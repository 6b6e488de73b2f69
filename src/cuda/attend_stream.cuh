/* Attention over KV pages on tensor cores, all pages in one block: a block takes a tile of 128 queries, 16 per warp.
 * Registers hold the sums of the current page and those of earlier pages. */
#ifndef HT_CUDA_ATTEND_STREAM_CUH
#define HT_CUDA_ATTEND_STREAM_CUH

#include "cuda/attend_unit.cuh"

/* A lane's two queries, g and g + 8 of the warp's 16. */
struct lane_queries {
    int64_t first[2], end[2]; /* positions that they see */
    float factor[2];
    int64_t first_of_warp, end_of_warp;
};

static __device__ lane_queries lane_queries_of(const ht_cuda_attend_arguments &a, const ht_cuda_attend_tile &tile,
                                               const float *factors) {
    const int warp = (int)threadIdx.x / 32, g = (int)threadIdx.x % 32 / 4;
    lane_queries q;
    for (int half = 0; half < 2; half++) {
        const int i = warp * 16 + g + 8 * half;
        const int64_t pos = i < tile.n ? pos_of(a, tile.query + i) : -1;
        q.first[half] = pos < 0 ? 0 : first_visible(a, pos);
        q.end[half] = pos + 1;
        q.factor[half] = factor_of_score(a, factors[i]);
    }
    const int low = warp * 16, high = low + 15 < tile.n - 1 ? low + 15 : tile.n - 1;
    q.first_of_warp = low < tile.n ? first_visible(a, pos_of(a, tile.query + low)) : 0;
    q.end_of_warp = low < tile.n ? pos_of(a, tile.query + high) + 1 : 0;
    return q;
}

/* Adds products of a warp's queries and 64 keys, [8 keys each]. */
template <class A, int N>
static __device__ __forceinline__ void score_queries(const char *queries, const uint32_t (*own)[4], const char *keys,
                                                     int elements, int blocks, float (*score)[4]) {
    enum { QUERY_BYTES = N * 16 + 16, PART_BYTES = HT_CUDA_STREAM_TILE * QUERY_BYTES, STEPS = N / 2 };
    const int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32;
    const char *of_lane = queries + (warp * 16 + lane % 16) * QUERY_BYTES + lane / 16 * 16;
    const char *of_keys = keys + (lane / 8 % 2 * STEP_KEYS + lane / 16 * 8 + lane % 8) * 16;
    if constexpr (!A::SCALED) {
#pragma unroll
        for (int k = 0; k < STEPS; k++) {
            uint32_t q[A::PARTS][4];
#pragma unroll
            for (int part = 0; part < A::PARTS; part++)
                if constexpr (A::PARTS == 1)
                    for (int e = 0; e < 4; e++) q[0][e] = own[k][e];
                else
                    ht_matrices<false>(q[part], of_lane + part * PART_BYTES + k * 32);
#pragma unroll
            for (int i = 0; i < 8; i += 2) {
                uint32_t b[4];
                ht_matrices<false>(b, of_keys + (2 * k * STEP_KEYS + i * 8) * 16);
                multiply<A>(score[i], q, b);
                multiply<A>(score[i + 1], q, b + 2);
            }
        }
    } else {
#pragma unroll 1
        for (int k = 0; k < 2 * blocks; k += 2) { /* 32 dimensions */
            uint32_t q[2][A::PARTS][4];
#pragma unroll
            for (int e = 0; e < 2; e++)
#pragma unroll
                for (int part = 0; part < A::PARTS; part++)
                    ht_matrices<false>(q[e][part], of_lane + part * PART_BYTES + (k + e) * 32);
#pragma unroll
            for (int i = 0; i < 8; i += 2) {
                float part_of[2][4] = {};
#pragma unroll
                for (int e = 0; e < 2; e++) {
                    uint32_t b[4];
                    ht_matrices<false>(b, of_keys + (2 * (k + e) * STEP_KEYS + i * 8) * 16);
                    multiply<A>(part_of[0], q[e], b);
                    multiply<A>(part_of[1], q[e], b + 2);
                }
#pragma unroll
                for (int j = 0; j < 2; j++) {
                    const floats2 scale = key_scales(keys + elements, k / 2, (i + j) * 8 + 2 * (lane % 4));
#pragma unroll
                    for (int e = 0; e < 4; e++) score[i + j][e] = fmaf(part_of[j][e], scale.f[e % 2], score[i + j][e]);
                }
            }
        }
    }
}

/* Adds 64 weighted values to the sums. */
template <class A, int N>
static __device__ __forceinline__ void weigh_queries(const uint32_t (*weight)[A::PARTS][4], const char *values,
                                                     int elements, int blocks, float (*sum)[4], float *total) {
    enum { VALUE_BYTES = (N | 1) * 16 };
    const int lane = (int)threadIdx.x % 32;
    const uint32_t ones[2] = {A::ONES, A::ONES};
#pragma unroll
    for (int k = 0; k < STEP_KEYS / 16; k++) {
        multiply<A>(total, weight[k], ones);
        uint32_t scaled[A::PARTS][4];
#pragma unroll
        for (int d = 0; d < N; d += 2) {
            uint32_t b[4];
            if constexpr (A::SCALED != 0)
                if (d % 4 == 0 && d / 4 < blocks)
                    scale_weights(weight[k], values + elements, blocks, k * 16, d / 4, scaled);
            ht_matrices<true>(b, values + (k * 16 + lane % 16) * VALUE_BYTES + (d + lane / 16) * 16);
            multiply<A>(sum[d], A::SCALED ? scaled : weight[k], b);
            multiply<A>(sum[d + 1], A::SCALED ? scaled : weight[k], b + 2);
        }
    }
}

/* Turns scores into weights, relative to the largest score so far; decay[half] is the factor of the earlier sums. */
template <class A>
static __device__ __forceinline__ void weights_of(const ht_cuda_attend_arguments &a, const lane_queries &q,
                                                  const float *raw_factor, int64_t begin, float (*score)[4], float *max,
                                                  float *decay, uint32_t (*weight)[A::PARTS][4]) {
    const int t = (int)threadIdx.x % 4;
    if (a.softcap > 0.0f)
#pragma unroll
        for (int i = 0; i < 8; i++)
#pragma unroll
            for (int e = 0; e < 4; e++) score[i][e] = capped(score[i][e], raw_factor[e / 2], a.softcap);
#pragma unroll
    for (int half = 0; half < 2; half++) {
        const int64_t from = q.first[half] - begin, to = q.end[half] - begin;
        const int low = (int)(from < 0           ? 0
                              : from > STEP_KEYS ? STEP_KEYS
                                                 : from),
                  high = (int)(to < low         ? low
                               : to > STEP_KEYS ? STEP_KEYS
                                                : to);
        const unsigned seen = (unsigned)(high - low), first = (unsigned)(2 * t - low);
        float top = -INFINITY;
#pragma unroll
        for (int i = 0; i < 8; i++)
#pragma unroll
            for (unsigned e = 0; e < 2; e++)
                top = fmaxf(top, first + 8 * i + e < seen ? score[i][2 * half + e] : -INFINITY);
        top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, 1));
        top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, 2));
        top = fmaxf(max[half], top * q.factor[half]);
        const float base = base_of(top);
        decay[half] = ht_fast_exp2(max[half] - base);
        max[half] = top;
#pragma unroll
        for (int i = 0; i < 8; i++) {
            float w[2];
#pragma unroll
            for (unsigned e = 0; e < 2; e++)
                w[e] = weight_at(score[i][2 * half + e], q.factor[half], base, first + 8 * i + e < seen);
            uint32_t parts[2];
            split<A>(w[0], w[1], parts);
#pragma unroll
            for (int part = 0; part < A::PARTS; part++) weight[i / 2][part][half + i % 2 * 2] = parts[part];
        }
    }
}

/* Writes a warp's weights to shared memory, [PARTS][16][64 and 8]. */
enum { SPILLED_BYTES = (STEP_KEYS + 8) * 2 };
template <class A> static __device__ void spill_weights(const uint32_t (*weight)[A::PARTS][4], char *to) {
    const int lane = (int)threadIdx.x % 32, g = lane / 4, t = lane % 4;
#pragma unroll
    for (int k = 0; k < STEP_KEYS / 16; k++)
#pragma unroll
        for (int part = 0; part < A::PARTS; part++)
#pragma unroll
            for (int i = 0; i < 4; i++)
                *(uint32_t *)(to + (part * 16 + g + i % 2 * 8) * SPILLED_BYTES + (k * 16 + i / 2 * 8 + 2 * t) * 2) =
                    weight[k][part][i];
    __syncwarp();
}

template <class A, int N> static __device__ void attend_stream(const ht_cuda_attend_arguments &a) {
    enum {
        QUERY_BYTES = N * 16 + 16,
        VALUE_BYTES = (N | 1) * 16,
        ELEMENTS = (STEP_KEYS * VALUE_BYTES + 16 + 127) / 128 * 128,
        STEP_BYTES = ELEMENTS + (A::SCALED ? N / 4 * 2 * STEP_KEYS : 0),
        STAGES = HT_CUDA_STREAM_STEPS,
        PAGE_STEPS = HT_CUDA_KEYS / STEP_KEYS
    };
    HT_CUDA_SHARED(char, shared);
    __shared__ float factors[HT_CUDA_STREAM_TILE];
    const int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32, g = lane / 4, t = lane % 4;
    const int n_kv = a.form.n_kv_heads;
    const int64_t head = blockIdx.x % n_kv;
    /* The last tiles first, as they have the most pages. */
    const ht_cuda_attend_tile tile = tiles_of(a)[a.end_tile - 1 - (int)(blockIdx.x / n_kv)];
    const int64_t pos = pos_of(a, tile.query), last = pos_of(a, tile.query + tile.n - 1);
    const int64_t low = first_visible(a, pos), all_low = first_visible(a, last);
    const int begin = (int)(low / STEP_KEYS), end = (int)(last / STEP_KEYS) + 1;
    char *const queries = shared, *const keys = queries + A::PARTS * HT_CUDA_STREAM_TILE * QUERY_BYTES,
                *const values = keys + STAGES * STEP_BYTES;
    /* Weights, if needed in memory: f16 weights stay in registers. */
    char *const spilled =
        (A::PARTS == 1 ? queries : values + STAGES * STEP_BYTES) + warp * A::PARTS * 16 * SPILLED_BYTES;
    auto page_of = [&](int step) { return page_at(a, tile.address + step / PAGE_STEPS - tile.first_page); };
    auto load = [&](int step) {
        if (step < end) {
            const int64_t at = (int64_t)(step / PAGE_STEPS) * HT_CUDA_KEYS, from = low - at, to = last + 1 - at;
            const int stage = (step - begin) % STAGES, key = step % PAGE_STEPS * STEP_KEYS;
            const char *page = page_of(step);
            load_keys<A>(a.form, page, head, key, N, ELEMENTS, keys + stage * STEP_BYTES);
            load_values<A>(a.form, page, head, key, (int)(from < 0 ? 0 : from),
                           (int)(to > HT_CUDA_KEYS ? HT_CUDA_KEYS : to), VALUE_BYTES, ELEMENTS,
                           values + stage * STEP_BYTES);
        }
        ht_copies_end();
    };
#pragma unroll 1
    for (int step = begin; step < begin + STAGES - 1; step++) load(step);
    load_halves<A>(a, tile, head, HT_CUDA_STREAM_TILE, N, queries, factors);
    __syncthreads();
    const lane_queries q = lane_queries_of(a, tile, factors);
    const float raw_factor[2] = {factors[warp * 16 + g], factors[warp * 16 + g + 8]};
    uint32_t own[N / 2][4];
    if (A::PARTS == 1)
#pragma unroll
        for (int k = 0; k < N / 2; k++)
            ht_matrices<false>(own[k], queries + (warp * 16 + lane % 16) * QUERY_BYTES + (2 * k + lane / 16) * 16);

    float sum[N][4] = {}, merged[N][4] = {}, total[4] = {}, max[2] = {-INFINITY, -INFINITY};
    running<false> so_far[2] = {{-INFINITY, 0.0f}, {-INFINITY, 0.0f}};

#pragma unroll 1
    for (int step = begin; step < end; step++) {
        const int64_t at = (int64_t)step * STEP_KEYS;
        const char *step_keys = keys + (step - begin) % STAGES * STEP_BYTES;
        char *step_values = values + (step - begin) % STAGES * STEP_BYTES;
        const bool sees = at < q.end_of_warp && at + STEP_KEYS > q.first_of_warp;
        uint32_t weight[STEP_KEYS / 16][A::PARTS][4];
        float decay[2];
        ht_copies_wait<STAGES - 2>();
        __syncthreads();
        load(step + STAGES - 1);
        if (sees) {
            float score[8][4] = {};
            score_queries<A, N>(queries, own, step_keys, ELEMENTS, a.form.blocks, score);
            weights_of<A>(a, q, raw_factor, at, score, max, decay, weight);
        }
        if (sees && __any_sync(0xffffffffu, decay[0] != 1.0f || decay[1] != 1.0f)) {
#pragma unroll
            for (int e = 0; e < 4; e++) {
                total[e] *= decay[e / 2];
#pragma unroll
                for (int d = 0; d < N; d++) sum[d][e] *= decay[e / 2];
            }
        }
        if constexpr (!A::SCALED) {
            const keys_seen s = {(int)(low - at < 0 ? 0 : low - at),
                                 (int)(last + 1 - at > STEP_KEYS ? STEP_KEYS : last + 1 - at),
                                 (int)(all_low - at > STEP_KEYS ? STEP_KEYS
                                       : all_low - at < 0       ? 0
                                                                : all_low - at),
                                 (int)(pos + 1 - at > STEP_KEYS ? STEP_KEYS
                                       : pos + 1 - at < 0       ? 0
                                                                : pos + 1 - at)};
            if (s.any_by_some(0) && __syncthreads_or(finds_no_number<A>(a.form, s, 0, VALUE_BYTES, step_values))) {
                if (sees) {
                    float more[N][4];
                    spill_weights<A>(weight, spilled);
#pragma unroll 1
                    for (int d = 0; d < N; d++)
                        no_numbers<A>(spilled, SPILLED_BYTES, 16 * SPILLED_BYTES,
                                      step_values + (d < a.form.chunks ? d : 0) * 16 + 4 * t, VALUE_BYTES, more[d]);
#pragma unroll
                    for (int d = 0; d < N; d++)
#pragma unroll
                        for (int e = 0; e < 4; e++) sum[d][e] += more[d][e];
                }
                __syncthreads();
                drop_no_numbers<A>(a.form, VALUE_BYTES, step_values);
                __syncthreads();
            }
        }
        if (sees) weigh_queries<A, N>(weight, step_values, ELEMENTS, a.form.blocks, sum, total);
        if (step % PAGE_STEPS < PAGE_STEPS - 1 && step < end - 1) continue;
#pragma unroll
        for (int half = 0; half < 2; half++) {
            float mine, its;
            so_far[half].add(max[half], total[2 * half], &mine, &its);
            max[half] = -INFINITY;
            total[2 * half] = total[2 * half + 1] = 0.0f;
#pragma unroll
            for (int d = 0; d < N; d++)
#pragma unroll
                for (int e = 2 * half; e < 2 * half + 2; e++) {
                    merged[d][e] = fmaf(merged[d][e], mine, sum[d][e] * its);
                    sum[d][e] = 0.0f;
                }
        }
    }
#pragma unroll
    for (int half = 0; half < 2; half++) {
        const int i = warp * 16 + g + 8 * half;
        if (i >= tile.n) continue;
        float *to = out_of(a, tile.query + i, head);
        const float inverse = inverse_of(a, tile.query + i, head, so_far[half]);
#pragma unroll
        for (int d = 0; d < N; d++) {
            const int dim = d * 8 + 2 * t;
            const floats2 x = {{result_of(merged[d][2 * half], inverse), result_of(merged[d][2 * half + 1], inverse)}};
            if (a.out_dim % 2 == 0) {
                if (dim < a.out_dim) *(floats2 *)(to + dim) = x;
            } else {
                for (int e = 0; e < 2; e++)
                    if (dim + e < a.out_dim) to[dim + e] = x.f[e];
            }
        }
    }
}

#endif
