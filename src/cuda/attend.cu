/* Attention over KV pages.
 *
 * Softmax restarts in every page, and the pages of a row are merged in order. A row's result depends only on its keys,
 * not on other rows, their number, or the kernel that computes it. Keys that a query does not see may have any value
 * and weigh nothing.
 *
 * This file computes pages of f32, and heads too wide for the other kernels, without tensor cores: a block takes a page
 * and a tile of one query or up to 8. */
#include "cuda/attend_stream.cuh"
#include "cuda/attend_tiles.cuh"

enum { THREADS = HT_CUDA_ATTEND_THREADS, WARPS = THREADS / 32, REDUCED = HT_CUDA_ATTEND_REDUCED };

/* One item of keys (y = 0) or of values (y = 1) per thread; adjacent threads write adjacent items of a page. */
HT_CUDA_KERNEL(ht_cuda_append, ht_cuda_attend_arguments) {
    const unsigned items = (unsigned)append_items(a.form), n_kv = (unsigned)a.form.n_kv_heads,
                   rows = (unsigned)a.k.shape[0], i = blockIdx.x * blockDim.x + threadIdx.x;
    const bool keys = blockIdx.y == 0;
    if (i >= rows * n_kv * items) return;
    const unsigned row = keys ? i % rows : i / items / n_kv, head = keys ? i / rows / items : i / items % n_kv;
    const int at = (int)(keys ? i / rows % items : i % items);
    const ht_cuda_attend_row r = row_of(a, row);
    append_item(a, (char *)page_at(a, r.address), keys, row, head, r.pos, at);
}

/* ---- one page ---- */

/* Keys of the page that each query sees, and those that any of them sees. */
template <int Q> struct visible {
    int first[Q], end[Q], low, high;
    bool alike;
};

template <int Q> static __device__ visible<Q> visible_of(const ht_cuda_attend_arguments &a, const unit &u) {
    visible<Q> s;
    s.low = HT_CUDA_KEYS;
    s.high = 0;
    for (int i = 0; i < Q; i++) {
        const int64_t pos = i < u.tile.n ? row_of(a, (u.tile.query + i) / a.group).pos : -1;
        s.first[i] = pos < 0 ? 0 : in_page(first_visible(a, pos), u);
        s.end[i] = in_page(pos + 1, u);
        if (s.first[i] >= s.end[i]) continue;
        if (s.first[i] < s.low) s.low = s.first[i];
        if (s.end[i] > s.high) s.high = s.end[i];
    }
    s.alike = true;
    for (int i = 0; i < Q; i++) s.alike = s.alike && (i >= u.tile.n || (s.first[i] == s.low && s.end[i] == s.high));
    return s;
}

/* Loads the tile's queries as f32 to shared memory [Q][padded], 0 past the last. */
template <int Q>
static __device__ void load_queries(const ht_cuda_attend_arguments &a, const unit &u, int padded, float *to) {
    for (int at = threadIdx.x; at < Q * padded; at += THREADS) {
        const int i = at / padded, d = at % padded, query = u.tile.query + i;
        float x = 0.0f;
        if (i < u.tile.n && d < a.form.head_dim)
            x = ((const float *)a.q.data)[query / a.group * a.q.stride[0] +
                                          (u.head * a.group + query % a.group) * a.q.stride[1] + d * a.q.stride[2]];
        to[at] = x;
    }
}

/* Products of a thread's two keys and all queries, each one sequence of multiply-adds. */
template <class C, int Q>
static __device__ void score_keys(const ht_cuda_attend_arguments &a, const unit &u, const visible<Q> &s, int padded,
                                  const float *queries, float (*score)[2]) {
    const ht_cuda_page_form &f = a.form;
    const int key[2] = {(int)threadIdx.x, (int)threadIdx.x + THREADS};
    const bool seen[2] = {key[0] >= s.low && key[0] < s.high, key[1] >= s.low && key[1] < s.high};
    if (!seen[0] && !seen[1]) return;
#pragma unroll 2
    for (int c = 0; c < f.chunks; c++) {
        float k[2][C::DIMS];
#pragma unroll
        for (int e = 0; e < 2; e++) {
            C chunk = {};
            float scale = 1.0f;
            if (seen[e]) {
                chunk = *(const C *)(u.page + ht_cuda_k_chunk(&f, u.head, key[e], c));
                if (C::SCALED)
                    scale = scale_at(u.page, ht_cuda_k_scale(&f, u.head, key[e], c * C::DIMS / HT_CUDA_QUANTISED));
            }
            chunk.unpack(scale, k[e]);
        }
#pragma unroll
        for (int i = 0; i < Q; i++)
#pragma unroll
            for (int d = 0; d < C::DIMS; d += 4) {
                const floats4 q = *(const floats4 *)(queries + i * padded + c * C::DIMS + d);
#pragma unroll
                for (int e = 0; e < 4; e++) {
                    score[i][0] = fmaf(q.f[e], k[0][d + e], score[i][0]);
                    score[i][1] = fmaf(q.f[e], k[1][d + e], score[i][1]);
                }
            }
    }
}

/* Turns scores into weights [256][Q], and writes the largest score and the sum of each query. */
template <int Q>
static __device__ void softmax_of(const ht_cuda_attend_arguments &a, const unit &u, const visible<Q> &s,
                                  float (*score)[2], float *weights) {
    __shared__ float of_warp[2][WARPS][Q];
    const int t = (int)threadIdx.x, warp = t / 32, lane = t % 32;
    bool seen[Q][2];
    for (int i = 0; i < Q; i++) {
        float max = -INFINITY;
        for (int e = 0; e < 2; e++) {
            const int key = t + e * THREADS;
            seen[i][e] = key >= s.first[i] && key < s.end[i];
            float x = a.scale * score[i][e];
            if (a.softcap > 0.0f) x = a.softcap * ht_tanh_f32(x / a.softcap);
            score[i][e] = x;
            if (seen[i][e]) max = fmaxf(max, x);
        }
        for (int step = 16; step > 0; step /= 2) max = fmaxf(max, __shfl_xor_sync(0xffffffffu, max, step));
        if (lane == 0) of_warp[0][warp][i] = max;
    }
    __syncthreads();
    for (int i = 0; i < Q; i++) {
        float max = of_warp[0][0][i], sum = 0.0f;
        for (int w = 1; w < WARPS; w++) max = fmaxf(max, of_warp[0][w][i]);
        const float base = max == -INFINITY ? 0.0f : max;
        for (int e = 0; e < 2; e++) {
            const float weight = seen[i][e] ? ht_exp_of_negative(score[i][e] - base) : 0.0f;
            weights[(t + e * THREADS) * Q + i] = weight;
            sum += weight;
        }
        for (int step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, step);
        if (lane == 0) of_warp[1][warp][i] = sum;
        if (t == 0 && i < u.tile.n) a.totals[2 * (u.own + i)] = max;
    }
    __syncthreads();
    if (t >= u.tile.n) return;
    float sum = of_warp[1][0][t];
    for (int w = 1; w < WARPS; w++) sum += of_warp[1][w][t];
    a.totals[2 * (u.own + t) + 1] = sum;
}

/* Adds the values of keys j, j + step, ... to one chunk of all queries' sums. */
template <class C, int Q>
static __device__ void weigh_values(const ht_cuda_attend_arguments &a, const unit &u, const visible<Q> &s, int c, int j,
                                    int step, const float *weights, float (*sum)[C::DIMS]) {
    const ht_cuda_page_form &f = a.form;
#pragma unroll 4
    for (; j < s.high; j += step) {
        alignas(16) float w[Q];
        float v[C::DIMS], scale = 1.0f;
        if constexpr (Q == 1)
            w[0] = weights[j];
        else
            for (int i = 0; i < Q; i += 4) *(floats4 *)(w + i) = *(const floats4 *)(weights + j * Q + i);
        if (C::SCALED) scale = scale_at(u.page, ht_cuda_v_scale(&f, u.head, j, c * C::DIMS / HT_CUDA_QUANTISED));
        (*(const C *)(u.page + ht_cuda_v_chunk(&f, u.head, j, c))).unpack(scale, v);
#pragma unroll
        for (int i = 0; i < Q; i++) {
            if (!s.alike && (j < s.first[i] || j >= s.end[i])) continue;
#pragma unroll
            for (int d = 0; d < C::DIMS; d++) sum[i][d] = fmaf(w[i], v[d], sum[i][d]);
        }
    }
}

/* Sums of the weighted values. Slice i of n takes keys i, i + n, ...; n depends only on the page layout. */
template <class C, int Q>
static __device__ void sum_values(const ht_cuda_attend_arguments &a, const unit &u, const visible<Q> &s,
                                  const float *weights, float *slices) {
    enum { AT_A_TIME = Q < REDUCED ? Q : REDUCED };
    const ht_cuda_page_form &f = a.form;
    const int t = (int)threadIdx.x, width = f.chunks < THREADS ? f.chunks : THREADS, n_slices = THREADS / width;
    const int slice = t / width, floats = width * C::DIMS;
    for (int first = 0; first < f.chunks; first += width) {
        const int c = first + t % width;
        float sum[Q][C::DIMS] = {};
        const int begin = slice + (s.low - slice + n_slices - 1) / n_slices * n_slices;
        if (slice < n_slices && c < f.chunks && s.low < s.high)
            weigh_values<C, Q>(a, u, s, c, s.low <= slice ? slice : begin, n_slices, weights, sum);
#pragma unroll
        for (int from = 0; from < Q; from += AT_A_TIME) {
            if (slice < n_slices)
#pragma unroll
                for (int i = 0; i < AT_A_TIME; i++)
#pragma unroll
                    for (int d = 0; d < C::DIMS; d++)
                        slices[(i * n_slices + slice) * floats + t % width * C::DIMS + d] = sum[from + i][d];
            __syncthreads();
            for (int at = t; at < AT_A_TIME * floats; at += THREADS) {
                const int i = at / floats, d = at % floats;
                float total = slices[i * n_slices * floats + d];
                for (int k = 1; k < n_slices; k++) total += slices[(i * n_slices + k) * floats + d];
                const int dim = first * C::DIMS + d;
                if (from + i < u.tile.n && dim < f.head_dim) a.partial[(u.own + from + i) * f.head_dim + dim] = total;
            }
            __syncthreads();
        }
    }
}

template <class C, int Q> static __device__ void attend_page(const ht_cuda_attend_arguments &a) {
    HT_CUDA_SHARED(float, shared);
    const unit u = unit_of(a);
    const visible<Q> s = visible_of<Q>(a, u);
    const int padded = a.form.chunks * C::DIMS;
    float *queries = shared, *weights = queries + Q * padded, *slices = weights + Q * HT_CUDA_KEYS;
    load_queries<Q>(a, u, padded, queries);
    __syncthreads();
    float score[Q][2] = {};
    score_keys<C, Q>(a, u, s, padded, queries, score);
    softmax_of<Q>(a, u, s, score, weights);
    sum_values<C, Q>(a, u, s, weights, slices);
    finish<true>(a, u);
}

template <int Q> static __device__ void attend_pages(const ht_cuda_attend_arguments &a) {
    switch (a.form.dtype) {
    case HT_F16: attend_page<f16_chunk, Q>(a); break;
    case HT_BF16: attend_page<bf16_chunk, Q>(a); break;
    case HT_F32: attend_page<f32_chunk, Q>(a); break;
    default: attend_page<i8_chunk, Q>(a);
    }
}

HT_CUDA_KERNEL(ht_cuda_attend_pages_1, ht_cuda_attend_arguments) { attend_pages<1>(a); }
HT_CUDA_KERNEL(ht_cuda_attend_pages_8, ht_cuda_attend_arguments) { attend_pages<HT_CUDA_ATTEND_TILE>(a); }

#define KERNELS(type)                                                                                                  \
    TENSOR_KERNEL(type, tiles, 1, attend_tile)                                                                         \
    TENSOR_KERNEL(type, tiles, 2, attend_tile)                                                                         \
    TENSOR_KERNEL(type, tiles, 4, attend_tile)                                                                         \
    TENSOR_KERNEL(type, stream, 8, attend_stream)                                                                      \
    TENSOR_KERNEL(type, stream, 12, attend_stream)                                                                     \
    TENSOR_KERNEL(type, stream, 16, attend_stream)
#define TENSOR_KERNEL(type, name, n, body)                                                                             \
    HT_CUDA_KERNEL_OF(HT_CUDA_TENSOR_THREADS, ht_cuda_attend_##name##_##type##_##n, ht_cuda_attend_arguments) {        \
        body<of_##type##_pages, n>(a);                                                                                 \
    }
KERNELS(f16)
KERNELS(bf16)
KERNELS(i8)
