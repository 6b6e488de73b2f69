/* Attention over KV pages on tensor cores, a page at a time: a block takes a page and a tile of up to 64 queries, with
 * all their scores and weights in shared memory. Its warps divide the keys among them, and then the dimensions. */
#ifndef HT_CUDA_ATTEND_TILES_CUH
#define HT_CUDA_ATTEND_TILES_CUH

#include "cuda/attend_unit.cuh"

enum { PAGE_STEPS = HT_CUDA_KEYS / STEP_KEYS, SCORES_BYTES = HT_CUDA_WEIGHTS_STRIDE * 4 /* of a query */ };

/* Appends the rows of the tile that are in the block's page. */
static __device__ void append_rows(const ht_cuda_attend_arguments &a, const unit &u) {
    const int first = u.tile.query / a.group, rows = u.tile.n / a.group, items = append_items(a.form);
    const int of_row = (a.form.keys_only ? 1 : 2) * items;
    for (int i = threadIdx.x; i < rows * of_row; i += TENSOR_THREADS) {
        const int row = first + i / of_row;
        const int64_t pos = row_of(a, row).pos;
        if (pos < u.begin || pos >= u.begin + HT_CUDA_KEYS) continue;
        append_item(a, (char *)u.page, i % of_row < items, row, u.head, pos, i % items);
    }
}

/* Shared memory of a block. */
struct tiles_memory {
    char *queries, *scores, *weights, *steps;
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
    m.scores = m.queries + A::PARTS * 16 * M * m.query_bytes;
    m.weights = m.scores + 16 * M * SCORES_BYTES;
    m.steps = m.weights + A::PARTS * 16 * M * m.weights_bytes;
    return m;
}

/* Loads step `next` of a page in order of use: the keys of n steps from `begin` on, then their values. */
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

/* Adds products of all queries and a warp's 8 keys of a step. */
template <class A, int M>
static __device__ __forceinline__ void score_step(const tiles_memory &m, const char *keys, float (*score)[4]) {
    const int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32;
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
#pragma unroll 2
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

/* Turns the scores of query `i` into weights, by one warp: a lane has 8 keys, and 8 lanes a step. */
template <class A>
static __device__ __forceinline__ void weigh_query(const ht_cuda_attend_arguments &a, const unit &u,
                                                   const tiles_memory &m, int rows, int i, ht_cuda_tile_scores &of) {
    const int lane = (int)threadIdx.x % 32, own = lane / (STEP_KEYS / 8);
    const int64_t pos = pos_of(a, u.tile.query + i);
    const int low = in_page(first_visible(a, pos), u), high = in_page(pos + 1, u);
    const unsigned seen = high > low ? (unsigned)(high - low) : 0, first = (unsigned)(8 * lane - low);
    const float *from = (const float *)(m.scores + i * SCORES_BYTES) + 8 * lane;
    const float of_product = of.factors[i], factor = factor_of_score(a, of_product);
    float x[8], top = -INFINITY, max = -INFINITY, base = 0.0f;
#pragma unroll
    for (int e = 0; e < 8; e += 4) {
        const floats4 four = *(const floats4 *)(from + e);
#pragma unroll
        for (int k = 0; k < 4; k++) x[e + k] = four.f[k];
    }
    if (a.softcap > 0.0f)
#pragma unroll
        for (int e = 0; e < 8; e++) x[e] = capped(x[e], of_product, a.softcap);
#pragma unroll
    for (unsigned e = 0; e < 8; e++) top = fmaxf(top, first + e < seen ? x[e] : -INFINITY);
#pragma unroll
    for (int step = 1; step < STEP_KEYS / 8; step *= 2) top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, step));
    top *= factor;
#pragma unroll
    for (int step = 0; step < PAGE_STEPS; step++) {
        const float so_far = fmaxf(max, __shfl_sync(0xffffffffu, top, step * (STEP_KEYS / 8)));
        if (step == own) base = base_of(so_far);
        if (lane == 0) of.decay[step][i] = ht_fast_exp2(max - base_of(so_far));
        max = so_far;
    }
    if (lane == 0) of.largest[i] = max;
    words4 out[A::PARTS];
#pragma unroll
    for (unsigned e = 0; e < 8; e += 2) {
        uint32_t parts[2];
        split<A>(weight_at(x[e], factor, base, first + e < seen),
                 weight_at(x[e + 1], factor, base, first + e + 1 < seen), parts);
#pragma unroll
        for (int part = 0; part < A::PARTS; part++) out[part].w[e / 2] = parts[part];
    }
#pragma unroll
    for (int part = 0; part < A::PARTS; part++)
        *(words4 *)(m.weights + (part * rows + i) * m.weights_bytes + lane * 16) = out[part];
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
    if (a.appends) {
        append_rows(a, u);
        __syncthreads();
    }
#pragma unroll 1
    for (int i = 0; i < a.buffers; i++) load_next();
    load_halves<A>(a, u.tile, u.head, Q, m.chunks, m.queries, of.factors);

#pragma unroll 1
    for (int step = begin; step < end; step++) {
        float score[M][4] = {};
        wait_for_steps(a.buffers - 1);
        __syncthreads();
        score_step<A, M>(m, m.steps + next % a.buffers * m.step_bytes, score);
#pragma unroll
        for (int i = 0; i < M; i++)
#pragma unroll
            for (int half = 0; half < 2; half++)
                *(floats2 *)(m.scores + (i * 16 + g + 8 * half) * SCORES_BYTES +
                             (step * STEP_KEYS + warp * 8 + 2 * t) * 4) =
                    floats2{{score[i][2 * half], score[i][2 * half + 1]}};
        if (a.buffers < 2 * n) __syncthreads();
        load_next();
    }
    __syncthreads();
#pragma unroll 1
    for (int i = warp; i < u.tile.n; i += TENSOR_WARPS) weigh_query<A>(a, u, m, Q, i, of);

    float sum[PAIRS][M][2][4] = {}, total[M][4] = {};
#pragma unroll 1
    for (int step = begin; step < end; step++) {
        char *values = m.steps + next % a.buffers * m.step_bytes;
        wait_for_steps(a.buffers - 1);
        __syncthreads();
#pragma unroll
        for (int i = 0; i < M; i++)
#pragma unroll
            for (int half = 0; half < 2; half++) {
                const float by = of.decay[step][i * 16 + g + 8 * half];
#pragma unroll
                for (int e = 2 * half; e < 2 * half + 2; e++) {
                    total[i][e] *= by;
#pragma unroll
                    for (int j = 0; j < 2 * PAIRS; j++) sum[j / 2][i][j % 2][e] *= by;
                }
            }
        if constexpr (!A::SCALED)
            if (s.any_by_some(step * STEP_KEYS) &&
                __syncthreads_or(finds_no_number<A>(a.form, s, step * STEP_KEYS, m.value_bytes, values))) {
                float more[M * 2 * PAIRS][4];
#pragma unroll 1
                for (int k = 0; k < M * 2 * PAIRS; k++) {
                    const int i = k / (2 * PAIRS), j = k % (2 * PAIRS);
                    const int c = 2 * (warp + TENSOR_WARPS * (j / 2)) + j % 2;
                    no_numbers<A>(m.weights + i * 16 * m.weights_bytes + step * STEP_KEYS * 2, m.weights_bytes,
                                  Q * m.weights_bytes, values + (c < a.form.chunks ? c : 0) * 16 + 4 * t, m.value_bytes,
                                  more[k]);
                }
#pragma unroll
                for (int k = 0; k < M * 2 * PAIRS; k++)
#pragma unroll
                    for (int e = 0; e < 4; e++) sum[k % (2 * PAIRS) / 2][k / (2 * PAIRS)][k % 2][e] += more[k][e];
                __syncthreads();
                drop_no_numbers<A>(a.form, m.value_bytes, values);
                __syncthreads();
            }
        weigh_step<A, M>(a, m, values, step, sum, total);
        if (a.buffers < 2 * n) __syncthreads();
        load_next();
    }

    const bool is_alone = u.n == 1 && a.end_part == 0; /* nothing to merge: the results are final */
    if (is_alone) {
        __syncthreads();
        if (warp == 0 && t == 0)
#pragma unroll
            for (int i = 0; i < M; i++) of.factors[i * 16 + g] = total[i][0], of.factors[i * 16 + g + 8] = total[i][2];
        __syncthreads();
    }
#pragma unroll
    for (int i = 0; i < M; i++)
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const int query = i * 16 + g + 8 * half;
            if (query >= u.tile.n) continue;
            float *to = a.partial + (u.own + query) * a.form.head_dim;
            float mine = 0.0f, its = 1.0f, inverse = 1.0f;
            if (is_alone) {
                running<false> r = {-INFINITY, 0.0f};
                r.add(of.largest[query], of.factors[query], &mine, &its);
                inverse = inverse_of(a, u.tile.query + query, u.head, r);
                to = out_of(a, u.tile.query + query, u.head);
            } else if (warp == 0 && t == 0) {
                a.totals[2 * (u.own + query)] = of.largest[query];
                a.totals[2 * (u.own + query) + 1] = total[i][2 * half];
            }
#pragma unroll
            for (int j = 0; j < 2 * PAIRS; j++) {
                const int d = 8 * (2 * (warp + TENSOR_WARPS * (j / 2)) + j % 2) + 2 * t;
                for (int e = 0; e < 2; e++) {
                    const float x = sum[j / 2][i][j % 2][2 * half + e];
                    if (d + e < (is_alone ? a.out_dim : a.form.head_dim))
                        to[d + e] = is_alone ? result_of(fmaf(0.0f, mine, x * its), inverse) : x;
                }
            }
        }
    if (!is_alone) finish<false>(a, u);
}

#endif
