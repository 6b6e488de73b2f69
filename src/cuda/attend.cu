/* Attention over KV pages.
 *
 * Softmax begins anew in every page, and the pages of a row are merged in order: what a row gives depends on its own keys, and
 * not on the rows beside it, nor on how many of them there are. One block computes a tile of queries in one page; a second
 * kernel merges. A key that a query does not see is not read for it: it may be anything, and weighs nothing. */
#include "cuda/attend.h"
#include "cuda/kernel.cuh"

enum { THREADS = HT_CUDA_ATTEND_THREADS, WARPS = THREADS / 32, REDUCED = HT_CUDA_ATTEND_REDUCED };

/* ---- tables ---- */

static __device__ const char *table_of(const ht_cuda_attend_arguments &a) {
    return a.table ? (const char *)a.table : (const char *)a.own;
}
static __device__ const char *page_at(const ht_cuda_attend_arguments &a, int64_t i) {
    return (const char *)((const uint64_t *)table_of(a))[i];
}
static __device__ const ht_cuda_attend_tile *tiles_of(const ht_cuda_attend_arguments &a) {
    return (const ht_cuda_attend_tile *)(table_of(a) + a.tiles_at);
}
static __device__ ht_cuda_attend_row row_of(const ht_cuda_attend_arguments &a, int64_t row) {
    return ((const ht_cuda_attend_row *)(table_of(a) + a.rows_at))[row];
}

static __device__ int64_t first_visible(const ht_cuda_attend_arguments &a, int64_t pos) {
    return a.window > 0 && pos >= a.window ? pos - a.window + 1 : 0;
}

/* ---- elements ---- */

struct alignas(16) words4 {
    uint32_t w[4];
};
struct alignas(8) words2 {
    uint32_t w[2];
};
struct alignas(16) floats4 {
    float f[4];
};
struct alignas(8) floats2 {
    float f[2];
};

static __device__ float of_f16(uint32_t bits) {
#ifdef HT_CUDA_ON_HOST
    return ht_f16_to_f32((uint16_t)bits);
#else
    float x;
    asm("cvt.f32.f16 %0, %1;" : "=f"(x) : "h"((uint16_t)bits));
    return x;
#endif
}

/* A chunk as it lies in a page, and as f32. */
struct f16_chunk {
    enum { DIMS = 8, SCALED = 0 };
    words4 bits;
    __device__ void unpack(float, float *x) const {
        for (int i = 0; i < 4; i++) {
            x[2 * i] = of_f16(bits.w[i] & 0xFFFFu);
            x[2 * i + 1] = of_f16(bits.w[i] >> 16);
        }
    }
};
struct bf16_chunk {
    enum { DIMS = 8, SCALED = 0 };
    words4 bits;
    __device__ void unpack(float, float *x) const {
        for (int i = 0; i < 4; i++) {
            x[2 * i] = ht_float_from_bits(bits.w[i] << 16);
            x[2 * i + 1] = ht_float_from_bits(bits.w[i] & 0xFFFF0000u);
        }
    }
};
struct f32_chunk {
    enum { DIMS = 4, SCALED = 0 };
    words4 bits;
    __device__ void unpack(float, float *x) const {
        for (int i = 0; i < 4; i++) x[i] = ht_float_from_bits(bits.w[i]);
    }
};
struct i8_chunk {
    enum { DIMS = 8, SCALED = 1 };
    words2 bits;
    __device__ void unpack(float scale, float *x) const {
        for (int i = 0; i < 8; i++) x[i] = scale * (float)(int8_t)(bits.w[i / 4] >> (8 * (i % 4)));
    }
};

static __device__ float scale_at(const char *page, int64_t at) {
    return ht_bf16_to_f32(*(const uint16_t *)(page + at));
}

/* e^x of x <= 0; 0 where that is below the smallest normal number. */
static __device__ float weight_of(float x) {
    const float lowest = -87.0f;
    float n;
    const float p = ht_expm1_reduced(x < lowest ? lowest : x, &n);
    const float power = ht_float_from_bits(((uint32_t)(int32_t)n + 127u) << 23);
    return x < lowest ? 0.0f : fmaf(power, p, power);
}

/* ---- appending ---- */

enum { LARGEST = 127 }; /* |q| in 8-bit pages */

/* As ht_kv_quantise, with the CPU's bits. */
static __device__ uint16_t quantise(const float *x, int n, int8_t *q) {
    float max = 0.0f, sum = 0.0f;
    for (int i = 0; i < n; i++) {
        const float size = fabsf(x[i]);
        max = size > max ? size : max;
        sum += size * 0.0f; /* 0, or NaN if x has a NaN or an infinity */
    }
    if (sum != 0.0f) {
        for (int i = 0; i < n; i++) q[i] = 1;
        return ht_f32_to_bf16(NAN);
    }
    const uint32_t bits = (ht_float_bits(max / (float)LARGEST) + 0xFFFFu) >> 16;
    float scale = ht_bf16_to_f32((uint16_t)bits);
    if (scale < FLT_MIN) scale = 0.0f;
    const float inverse = scale > 0.0f ? 1.0f / scale : 0.0f;
    for (int i = 0; i < n; i++) q[i] = (int8_t)rintf(x[i] * inverse);
    return ht_f32_to_bf16(scale);
}

/* A block of 32 dimensions of one vector. */
static __device__ void append_block(const ht_cuda_attend_arguments &a, char *page, bool keys, int64_t head, int64_t key,
                                    int b, const float *from, int64_t stride) {
    const ht_cuda_page_form &f = a.form;
    const int begin = b * HT_CUDA_QUANTISED, left = f.head_dim - begin;
    const int n = left < HT_CUDA_QUANTISED ? left : HT_CUDA_QUANTISED;
    float x[HT_CUDA_QUANTISED];
    int8_t q[HT_CUDA_QUANTISED];
    for (int i = 0; i < HT_CUDA_QUANTISED; i++) {
        x[i] = i < n ? from[(begin + i) * stride] : 0.0f;
        q[i] = 0;
    }
    const int64_t scale = keys ? ht_cuda_k_scale(&f, head, key, b) : ht_cuda_v_scale(&f, head, key, b);
    *(uint16_t *)(page + scale) = quantise(x, n, q);
    for (int c = begin / f.chunk; c < f.chunks && c * f.chunk < begin + HT_CUDA_QUANTISED; c++) {
        const int64_t at = keys ? ht_cuda_k_chunk(&f, head, key, c) : ht_cuda_v_chunk(&f, head, key, c);
        for (int i = 0; i < f.chunk; i++) ((int8_t *)(page + at))[i] = q[c * f.chunk - begin + i];
    }
}

static __device__ void append_chunk(const ht_cuda_attend_arguments &a, char *page, bool keys, int64_t head, int64_t key,
                                    int c, const float *from, int64_t stride) {
    const ht_cuda_page_form &f = a.form;
    char *to = page + (keys ? ht_cuda_k_chunk(&f, head, key, c) : ht_cuda_v_chunk(&f, head, key, c));
    for (int i = 0; i < f.chunk; i++) {
        const int d = c * f.chunk + i;
        ht_set_f32(f.dtype, to, i, d < f.head_dim ? from[d * stride] : 0.0f);
    }
}

/* A block for the key or the value of a row and a head. */
HT_CUDA_KERNEL(ht_cuda_append, ht_cuda_attend_arguments) {
    const int n_kv = a.form.n_kv_heads;
    const bool keys = blockIdx.y == 0;
    const int64_t row = blockIdx.x / n_kv, head = blockIdx.x % n_kv;
    const ht_cuda_view &from = keys ? a.k : a.v;
    const ht_cuda_attend_row r = row_of(a, row);
    const float *x = (const float *)from.data + row * from.stride[0] + head * from.stride[1];
    char *page = (char *)page_at(a, r.address);
    const int key = r.pos % HT_CUDA_KEYS;
    if (a.form.dtype == HT_I8)
        for (int b = threadIdx.x; b < a.form.blocks; b += blockDim.x)
            append_block(a, page, keys, head, key, b, x, from.stride[2]);
    else
        for (int c = threadIdx.x; c < a.form.chunks; c += blockDim.x)
            append_chunk(a, page, keys, head, key, c, x, from.stride[2]);
}

/* ---- one page ---- */

/* What a block computes. */
struct unit {
    ht_cuda_attend_tile tile;
    const char *page;
    int64_t head;
    int64_t result; /* of its first query, in `partial` and `totals` */
    int64_t begin;  /* first position of the page */
};

static __device__ unit unit_of(const ht_cuda_attend_arguments &a) {
    const ht_cuda_attend_tile *tiles = tiles_of(a);
    const int n_kv = a.form.n_kv_heads, at = (int)(blockIdx.x / n_kv), first = tiles[a.first_tile].unit;
    int low = a.first_tile, high = a.end_tile - 1; /* the last tile that begins at `at` or before */
    while (low < high) {
        const int middle = low + (high - low + 1) / 2;
        if (tiles[middle].unit - first <= at)
            low = middle;
        else
            high = middle - 1;
    }
    unit u;
    u.tile = tiles[low];
    const int page = at - (u.tile.unit - first);
    u.page = page_at(a, u.tile.address + page);
    u.head = blockIdx.x % n_kv;
    u.result = (int64_t)blockIdx.x * a.tile;
    u.begin = (int64_t)(u.tile.first_page + page) * HT_CUDA_KEYS;
    return u;
}

static __device__ int in_page(int64_t pos, const unit &u) {
    const int64_t i = pos - u.begin;
    return (int)(i < 0 ? 0 : i > HT_CUDA_KEYS ? HT_CUDA_KEYS : i);
}

/* Keys of the page that each query sees, and all that any of them does. */
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

/* The tile's queries as f32 in shared memory [Q][padded], 0 where there are none. */
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
    for (int i = 0; i < Q; i++) score[i][0] = score[i][1] = 0.0f;
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
            const float weight = seen[i][e] ? weight_of(score[i][e] - base) : 0.0f;
            weights[(t + e * THREADS) * Q + i] = weight;
            sum += weight;
        }
        for (int step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, step);
        if (lane == 0) of_warp[1][warp][i] = sum;
        if (t == 0) a.totals[2 * (u.result + i)] = max;
    }
    __syncthreads();
    if (t >= u.tile.n) return;
    float sum = of_warp[1][0][t];
    for (int w = 1; w < WARPS; w++) sum += of_warp[1][w][t];
    a.totals[2 * (u.result + t) + 1] = sum;
}

/* The weights of one key. */
template <int Q> static __device__ void load_weights(const float *from, float *to) {
    if (Q % 4 == 0)
        for (int i = 0; i < Q; i += 4) *(floats4 *)(to + i) = *(const floats4 *)(from + i);
    else if (Q == 2)
        *(floats2 *)to = *(const floats2 *)from;
    else
        to[0] = from[0];
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
        load_weights<Q>(weights + j * Q, w);
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

/* Sums of the weighted values. Slice i of n takes keys i, i + n, ...; n depends on the form of the page alone. */
template <class C, int Q>
static __device__ void sum_values(const ht_cuda_attend_arguments &a, const unit &u, const visible<Q> &s,
                                  const float *weights, float *slices) {
    enum { AT_A_TIME = Q < REDUCED ? Q : REDUCED };
    const ht_cuda_page_form &f = a.form;
    const int t = (int)threadIdx.x, width = f.chunks < THREADS ? f.chunks : THREADS, n_slices = THREADS / width;
    const int slice = t / width, floats = width * C::DIMS;
    for (int first = 0; first < f.chunks; first += width) {
        const int c = first + t % width;
        float sum[Q][C::DIMS];
        for (int i = 0; i < Q; i++)
            for (int d = 0; d < C::DIMS; d++) sum[i][d] = 0.0f;
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
                if (from + i < u.tile.n && dim < f.head_dim)
                    a.partial[(u.result + from + i) * f.head_dim + dim] = total;
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
    float score[Q][2];
    score_keys<C, Q>(a, u, s, padded, queries, score);
    softmax_of<Q>(a, u, s, score, weights);
    sum_values<C, Q>(a, u, s, weights, slices);
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
HT_CUDA_KERNEL(ht_cuda_attend_pages_2, ht_cuda_attend_arguments) { attend_pages<2>(a); }
HT_CUDA_KERNEL(ht_cuda_attend_pages_4, ht_cuda_attend_arguments) { attend_pages<4>(a); }
HT_CUDA_KERNEL(ht_cuda_attend_pages_8, ht_cuda_attend_arguments) { attend_pages<8>(a); }

/* ---- merging ---- */

enum { BATCH = 256 }; /* pages whose weights are in shared memory at a time */

/* The largest of the block's values, for all threads. */
static __device__ float block_max(float x) {
    __shared__ float of_warp[32];
    const int t = (int)(threadIdx.y * blockDim.x + threadIdx.x), n = (int)(blockDim.x * blockDim.y / 32);
    for (int step = 16; step > 0; step /= 2) x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, step));
    if (t % 32 == 0) of_warp[t / 32] = x;
    __syncthreads();
    x = of_warp[0];
    for (int w = 1; w < n; w++) x = fmaxf(x, of_warp[w]);
    return x;
}

/* A block for a query and a KV head: blockDim.x dimensions at a time, by blockDim.y slices. */
HT_CUDA_KERNEL(ht_cuda_attend_merge, ht_cuda_attend_arguments) {
    __shared__ float weights[BATCH], sums[BATCH], slices[HT_CUDA_MERGE_SLICES][2][128];
    const int n_kv = a.form.n_kv_heads, n_dims = a.form.head_dim, n_threads = (int)(blockDim.x * blockDim.y);
    const int64_t head = blockIdx.x % n_kv, i = blockIdx.x / n_kv % a.tile;
    const ht_cuda_attend_tile *tiles = tiles_of(a);
    const ht_cuda_attend_tile tile = tiles[a.first_tile + blockIdx.x / n_kv / a.tile];
    if (i >= tile.n) return;
    const int64_t query = tile.query + i, pos = row_of(a, query / a.group).pos;
    const int first = (int)(first_visible(a, pos) / HT_CUDA_KEYS) - tile.first_page;
    const int n_pages = (int)(pos / HT_CUDA_KEYS) - tile.first_page + 1 - first;
    /* Results of one page are `next` behind those of the page before. */
    const int64_t next = (int64_t)n_kv * a.tile;
    const int64_t result = (tile.unit - tiles[a.first_tile].unit + first) * next + head * a.tile + i;
    const int t = (int)(threadIdx.y * blockDim.x + threadIdx.x), slice = (int)threadIdx.y;
    float max = -INFINITY;
    for (int p = t; p < n_pages; p += n_threads) max = fmaxf(max, a.totals[2 * (result + p * next)]);
    max = block_max(max);
    float *out = a.out + (query / a.group * a.n_heads + head * a.group + query % a.group) * n_dims;
    for (int begin = 0; begin < n_dims; begin += (int)blockDim.x) {
        const int d = begin + (int)threadIdx.x;
        float sum = 0.0f, total = 0.0f;
        for (int from = 0; from < n_pages; from += BATCH) {
            const int n = n_pages - from < BATCH ? n_pages - from : BATCH;
            __syncthreads();
            for (int p = t; p < n; p += n_threads) {
                const float *of = a.totals + 2 * (result + (from + p) * next);
                weights[p] = weight_of(of[0] - max);
                sums[p] = of[1];
            }
            __syncthreads();
#pragma unroll 4
            for (int p = slice; p < n; p += HT_CUDA_MERGE_SLICES) { /* BATCH is a multiple of the slices */
                if (d < n_dims) sum = fmaf(weights[p], a.partial[(result + (from + p) * next) * n_dims + d], sum);
                total = fmaf(weights[p], sums[p], total);
            }
        }
        slices[slice][0][threadIdx.x] = sum;
        slices[slice][1][threadIdx.x] = total;
        __syncthreads();
        if (slice > 0 || d >= n_dims) continue;
        for (int k = 1; k < HT_CUDA_MERGE_SLICES; k++) {
            sum += slices[k][0][threadIdx.x];
            total += slices[k][1][threadIdx.x];
        }
        out[d] = sum / total;
    }
}
