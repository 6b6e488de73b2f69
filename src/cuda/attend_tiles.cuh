/* Attention over KV pages on tensor cores, a page at a time: a block takes a tile of up to 64 queries and a page, whose scores and weights
 * it has together. Its warps share the keys among themselves, and then the dimensions. */
#ifndef HT_CUDA_ATTEND_TILES_CUH
#define HT_CUDA_ATTEND_TILES_CUH

#include "cuda/attend_operand.cuh"

enum { PAGE_STEPS = HT_CUDA_KEYS / STEP_KEYS };

/* Appends the rows of the tile that are in the block's page. */
static __device__ void append_rows(const ht_cuda_attend_arguments &a, const unit &u) {
    const int first = u.tile.query / a.group, rows = u.tile.n / a.group, items = append_items(a.form);
    for (int i = threadIdx.x; i < rows * 2 * items; i += TENSOR_THREADS) {
        const int row = first + i / (2 * items);
        const int64_t pos = row_of(a, row).pos;
        if (pos < u.begin || pos >= u.begin + HT_CUDA_KEYS) continue;
        append_item(a, (char *)u.page, i / items % 2 == 0, row, u.head, pos, i % items);
    }
}

/* What a block has in shared memory. */
struct tiles_memory {
    char *queries, *weights, *steps;
    int chunks, value_bytes, elements, step_bytes, query_bytes, weights_bytes;
};

template <class A, int M> static __device__ tiles_memory memory_of(const ht_cuda_attend_arguments &a, char *shared) {
    tiles_memory m;
    m.chunks = ht_cuda_tiles_chunks(&a.form);
    m.value_bytes = ht_cuda_value_bytes(a.form.chunks);
    m.elements = ht_cuda_step_elements(m.chunks, m.value_bytes);
    m.step_bytes = ht_cuda_step_bytes(&a.form, m.chunks, m.value_bytes);
    m.query_bytes = ht_cuda_queries_bytes(1, m.chunks);
    m.weights_bytes = HT_CUDA_WEIGHTS_STRIDE * 2;
    m.queries = shared + sizeof(ht_cuda_tile_scores);
    m.weights = m.queries + A::PARTS * 16 * M * m.query_bytes;
    m.steps = m.weights + A::PARTS * 16 * M * m.weights_bytes;
    return m;
}

/* Loads step `next` of a page in the order in which they are used: the keys of n steps from `begin` on, then their values. */
template <class A>
static __device__ __noinline__ void load_step(const ht_cuda_attend_arguments &a, const char *page, int64_t head,
                                              const tiles_memory &m, int low, int high, int begin, int n, int next) {
    char *to = m.steps + next % a.buffers * m.step_bytes;
    if (next < n)
        load_keys<A>(a.form, page, head, (begin + next) * STEP_KEYS, m.chunks, m.elements, to);
    else if (next < 2 * n)
        load_values<A>(a.form, page, head, (begin + next - n) * STEP_KEYS, low, high, m.value_bytes, m.elements, to);
    ht_copies_end();
}

/* Products of all queries and a warp's 8 keys of a step. */
template <class A, int M>
static __device__ __forceinline__ void score_step(const tiles_memory &m, const char *keys, float (*score)[4]) {
    const int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32;
    for (int i = 0; i < M; i++)
        for (int e = 0; e < 4; e++) score[i][e] = 0.0f;
#pragma unroll 2
    for (int c = 0; c < m.chunks; c += 4) { /* 32 dimensions */
        uint32_t b[4];
        ht_matrices<false>(b, keys + ((c + lane / 8) * STEP_KEYS + warp * 8 + lane % 8) * 16);
        floats2 scale = {{1.0f, 1.0f}};
        if (A::SCALED) scale = key_scales(keys + m.elements, c / 4, warp * 8 + 2 * (lane % 4));
#pragma unroll
        for (int i = 0; i < M; i++) {
            float part_of[4] = {0.0f, 0.0f, 0.0f, 0.0f}, *sum = A::SCALED ? part_of : score[i];
#pragma unroll
            for (int k = 0; k < 2; k++) {
                uint32_t q[A::PARTS][4];
#pragma unroll
                for (int part = 0; part < A::PARTS; part++)
                    ht_matrices<false>(q[part], m.queries + (part * 16 * M + i * 16 + lane % 16) * m.query_bytes +
                                                    (c + 2 * k + lane / 16) * 16);
                multiply<A>(sum, q, b + 2 * k);
            }
            if (A::SCALED)
                for (int e = 0; e < 4; e++) score[i][e] = fmaf(part_of[e], scale.f[e % 2], score[i][e]);
        }
    }
}

/* One step's part of the sums of all queries. Warp w has 16 dimensions at a time, w of every 8. */
template <class A, int M>
static __device__ __forceinline__ void weigh_step(const ht_cuda_attend_arguments &a, const tiles_memory &m,
                                                  const char *values, int step, float (*sum)[M][2][4],
                                                  float (*total)[4]) {
    const int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32;
    const uint32_t ones[2] = {A::ONES, A::ONES};
#pragma unroll
    for (int key = 0; key < STEP_KEYS; key += 16) {
        uint32_t w[M][A::PARTS][4];
#pragma unroll
        for (int i = 0; i < M; i++)
#pragma unroll
            for (int part = 0; part < A::PARTS; part++)
                ht_matrices<false>(w[i][part], m.weights + (part * 16 * M + i * 16 + lane % 16) * m.weights_bytes +
                                                   (step * STEP_KEYS + key + lane / 16 * 8) * 2);
        if (warp == 0)
#pragma unroll
            for (int i = 0; i < M; i++) multiply<A>(total[i], w[i], ones);
#pragma unroll
        for (int j = 0; j < HT_CUDA_TILES_AT_ONCE / M / 2; j++) {
            const int pair = warp + TENSOR_WARPS * j;
            if (2 * pair >= a.form.chunks) break;
            uint32_t b[4];
            ht_matrices<true>(b, values + (key + lane % 16) * m.value_bytes + (2 * pair + lane / 16) * 16);
#pragma unroll
            for (int i = 0; i < M; i++) {
                uint32_t scaled[A::PARTS][4];
                if constexpr (A::SCALED != 0)
                    scale_weights(w[i], values + m.elements, a.form.blocks, key, pair / 2, scaled);
                multiply<A>(sum[j][i][0], A::SCALED ? scaled : w[i], b);
                multiply<A>(sum[j][i][1], A::SCALED ? scaled : w[i], b + 2);
            }
        }
    }
}

template <class A, int M> static __device__ void attend_tile(const ht_cuda_attend_arguments &a) {
    enum { Q = 16 * M, PAIRS = HT_CUDA_TILES_AT_ONCE / M / 2 };
    HT_CUDA_SHARED(char, shared);
    ht_cuda_tile_scores &of = *(ht_cuda_tile_scores *)shared;
    const unit u = unit_of(a);
    const tiles_memory m = memory_of<A, M>(a, shared);
    const int tid = (int)threadIdx.x, warp = tid / 32, lane = tid % 32, g = lane / 4, t = lane % 4;
    const int64_t pos = pos_of(a, u.tile.query), last = pos_of(a, u.tile.query + u.tile.n - 1);
    const keys_seen s = {in_page(first_visible(a, pos), u), in_page(last + 1, u), in_page(first_visible(a, last), u),
                         in_page(pos + 1, u)};
    const int begin = s.low / STEP_KEYS, end = s.low < s.high ? (s.high + STEP_KEYS - 1) / STEP_KEYS : begin;
    const int n = end - begin;
    int next = 0;
    auto load_next = [&]() { load_step<A>(a, u.page, u.head, m, s.low, s.high, begin, n, next++); };
    if (tid < Q) {
        const int64_t at = tid < u.tile.n ? pos_of(a, u.tile.query + tid) : -1;
        of.first[tid] = at < 0 ? 0 : in_page(first_visible(a, at), u);
        of.end[tid] = at < 0 ? 0 : in_page(at + 1, u);
    }
    if (a.appends) {
        append_rows(a, u);
        __syncthreads();
    }
    for (int i = 0; i < a.buffers; i++) load_next();
    load_halves<A>(a, u.tile, u.head, Q, m.chunks, m.queries, of.factors);

    float score[PAGE_STEPS][M][4];
#pragma unroll
    for (int step = 0; step < PAGE_STEPS; step++) {
        if (step < begin || step >= end) continue;
        wait_for_steps(a.buffers - 1);
        __syncthreads();
        score_step<A, M>(m, m.steps + (step - begin) % a.buffers * m.step_bytes, score[step]);
        if (a.buffers < 2 * n) __syncthreads();
        load_next();
    }

    /* Largest scores, of a warp's keys of each step. */
#pragma unroll
    for (int step = 0; step < PAGE_STEPS; step++)
#pragma unroll
        for (int i = 0; i < M; i++)
#pragma unroll
            for (int half = 0; half < 2; half++) {
                const int query = i * 16 + g + 8 * half;
                float max = -INFINITY;
                if (step >= begin && step < end)
                    for (int e = 0; e < 2; e++) {
                        const int key = step * STEP_KEYS + warp * 8 + 2 * t + e;
                        float *x = &score[step][i][2 * half + e];
                        *x = score_of(a, *x, of.factors[query]);
                        if (key >= of.first[query] && key < of.end[query]) max = fmaxf(max, *x);
                    }
                max = fmaxf(max, __shfl_xor_sync(0xffffffffu, max, 1));
                max = fmaxf(max, __shfl_xor_sync(0xffffffffu, max, 2));
                if (t == 0) of.max[warp][step][query] = max;
            }
    __syncthreads();
    if (tid < Q) {
        const float factor = factor_of_score(a, of.factors[tid]);
        float max = -INFINITY;
        for (int step = 0; step < PAGE_STEPS; step++) {
            float top = of.max[0][step][tid];
            for (int w = 1; w < TENSOR_WARPS; w++) top = fmaxf(top, of.max[w][step][tid]);
            top = fmaxf(max, top * factor);
            of.base[step][tid] = base_of(top);
            of.decay[step][tid] = ht_fast_exp2(max - base_of(top));
            max = top;
        }
        of.largest[tid] = max;
    }
    __syncthreads();

    /* Weights. */
#pragma unroll
    for (int step = 0; step < PAGE_STEPS; step++) {
        if (step < begin || step >= end) continue;
#pragma unroll
        for (int i = 0; i < M; i++)
#pragma unroll
            for (int half = 0; half < 2; half++) {
                const int query = i * 16 + g + 8 * half, key = step * STEP_KEYS + warp * 8 + 2 * t;
                const float factor = factor_of_score(a, of.factors[query]);
                float weight[2];
                for (int e = 0; e < 2; e++)
                    weight[e] = weight_at(score[step][i][2 * half + e], factor, of.base[step][query],
                                          key + e >= of.first[query] && key + e < of.end[query]);
                uint32_t parts[2];
                split<A>(weight[0], weight[1], parts);
                for (int part = 0; part < A::PARTS; part++)
                    *(uint32_t *)(m.weights + (part * Q + query) * m.weights_bytes + key * 2) = parts[part];
            }
    }

    float sum[PAIRS][M][2][4], total[M][4];
#pragma unroll
    for (int i = 0; i < M; i++)
#pragma unroll
        for (int e = 0; e < 4; e++) {
            total[i][e] = 0.0f;
#pragma unroll
            for (int j = 0; j < 2 * PAIRS; j++) sum[j / 2][i][j % 2][e] = 0.0f;
        }
    for (int step = begin; step < end; step++) {
        char *values = m.steps + (n + step - begin) % a.buffers * m.step_bytes;
        wait_for_steps(a.buffers - 1);
        __syncthreads();
#pragma unroll
        for (int i = 0; i < M; i++)
#pragma unroll
            for (int e = 0; e < 4; e++) {
                const float by = of.decay[step][i * 16 + g + e / 2 * 8];
                total[i][e] *= by;
#pragma unroll
                for (int j = 0; j < 2 * PAIRS; j++) sum[j / 2][i][j % 2][e] *= by;
            }
        if constexpr (!A::SCALED)
            if (s.any_by_some(step * STEP_KEYS) &&
                __syncthreads_or(finds_no_number<A>(a.form, s, step * STEP_KEYS, m.value_bytes, values))) {
#pragma unroll
                for (int i = 0; i < M; i++)
#pragma unroll
                    for (int j = 0; j < 2 * PAIRS; j++) {
                        const int c = 2 * (warp + TENSOR_WARPS * (j / 2)) + j % 2;
                        if (c < a.form.chunks)
                            put(sum[j / 2][i][j % 2],
                                with_no_numbers<A>(m.weights + i * 16 * m.weights_bytes + step * STEP_KEYS * 2,
                                                   m.weights_bytes, Q * m.weights_bytes, values + c * 16 + 4 * t,
                                                   m.value_bytes, get(sum[j / 2][i][j % 2])));
                    }
                __syncthreads();
                drop_no_numbers<A>(a.form, m.value_bytes, values);
                __syncthreads();
            }
        weigh_step<A, M>(a, m, values, step, sum, total);
        if (a.buffers < 2 * n) __syncthreads();
        load_next();
    }

#pragma unroll
    for (int i = 0; i < M; i++)
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const int query = i * 16 + g + 8 * half;
            if (query >= u.tile.n) continue;
            if (warp == 0 && t == 0) {
                a.totals[2 * (u.own + query)] = of.largest[query];
                a.totals[2 * (u.own + query) + 1] = total[i][2 * half];
            }
            float *to = a.partial + (u.own + query) * a.form.head_dim;
#pragma unroll
            for (int j = 0; j < 2 * PAIRS; j++) {
                const int d = 8 * (2 * (warp + TENSOR_WARPS * (j / 2)) + j % 2) + 2 * t;
                for (int e = 0; e < 2; e++)
                    if (d + e < a.form.head_dim) to[d + e] = sum[j / 2][i][j % 2][2 * half + e];
            }
        }
    finish<false>(a, u);
}

#define HT_ATTEND_TILES(type, n)                                                                                       \
    HT_CUDA_KERNEL_OF(HT_CUDA_TENSOR_THREADS, ht_cuda_attend_tiles_##type##_##n, ht_cuda_attend_arguments) {           \
        attend_tile<of_##type##_pages, n>(a);                                                                          \
    }
HT_ATTEND_TILES(f16, 1)
HT_ATTEND_TILES(f16, 2)
HT_ATTEND_TILES(f16, 4)
HT_ATTEND_TILES(bf16, 1)
HT_ATTEND_TILES(bf16, 2)
HT_ATTEND_TILES(bf16, 4)
HT_ATTEND_TILES(i8, 1)
HT_ATTEND_TILES(i8, 2)
HT_ATTEND_TILES(i8, 4)
#undef HT_ATTEND_TILES

#endif
