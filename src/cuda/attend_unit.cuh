/* Attention over KV pages, shared parts of its kernels: tables, elements of pages, appending, units and merging them,
 * and the operands on tensor cores. */
#ifndef HT_CUDA_ATTEND_UNIT_CUH
#define HT_CUDA_ATTEND_UNIT_CUH

#include "cuda/attend.h"
#include "cuda/tensor.cuh"
#include "cuda/window.cuh"

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
    return ht_first_visible(a.window, a.chunked, pos);
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

/* A chunk as it lies in a page, and as f32. */
struct f16_chunk {
    enum { DIMS = 8, SCALED = 0 };
    words4 bits;
    __device__ void unpack(float, float *x) const {
        for (int i = 0; i < 4; i++) {
            x[2 * i] = ht_half_value(bits.w[i] & 0xFFFFu);
            x[2 * i + 1] = ht_half_value(bits.w[i] >> 16);
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

/* Two numbers as f16 with the CPU's bits. */
static __device__ uint32_t f16_pair(float low, float high) {
    if (low != low || high != high) return ht_f32_to_f16(low) | (uint32_t)ht_f32_to_f16(high) << 16;
    return ht_pair_of(low, high);
}

static __device__ void append_chunk(const ht_cuda_attend_arguments &a, char *page, bool keys, int64_t head, int64_t key,
                                    int c, const float *from, int64_t stride) {
    const ht_cuda_page_form &f = a.form;
    char *to = page + (keys ? ht_cuda_k_chunk(&f, head, key, c) : ht_cuda_v_chunk(&f, head, key, c));
    float x[8];
#pragma unroll
    for (int i = 0; i < 8; i++) {
        const int d = c * f.chunk + i;
        x[i] = i < f.chunk && d < f.head_dim ? from[d * stride] : 0.0f;
    }
    words4 bits;
#pragma unroll
    for (int i = 0; i < 4; i++)
        bits.w[i] = f.dtype == HT_F32   ? ht_float_bits(x[i])
                    : f.dtype == HT_F16 ? f16_pair(x[2 * i], x[2 * i + 1])
                                        : ht_f32_to_bf16(x[2 * i]) | (uint32_t)ht_f32_to_bf16(x[2 * i + 1]) << 16;
    *(words4 *)to = bits;
}

/* Item `at` of the keys or the values of a row and a head: a chunk, or in 8-bit pages the chunks that share a scale. */
static __device__ __noinline__ void append_item(const ht_cuda_attend_arguments &a, char *page, bool keys, int64_t row,
                                                int64_t head, int64_t pos, int at) {
    const ht_cuda_view &from = keys ? a.k : a.v;
    const float *x = (const float *)from.data + row * from.stride[0] + head * from.stride[1];
    if (a.form.dtype == HT_I8)
        append_block(a, page, keys, head, pos % HT_CUDA_KEYS, at, x, from.stride[2]);
    else
        append_chunk(a, page, keys, head, pos % HT_CUDA_KEYS, at, x, from.stride[2]);
}
static __device__ int append_items(const ht_cuda_page_form &f) { return f.dtype == HT_I8 ? f.blocks : f.chunks; }

/* ---- units ---- */

/* Work of a block. */
struct unit {
    ht_cuda_attend_tile tile;
    const char *page;
    int64_t head;
    int slot;       /* of the tile and the head among those of the launch */
    int first, n;   /* pages of the tile in this launch */
    int64_t result; /* of the first query in the first of these pages, in `partial` and `totals` */
    int64_t own;    /* in this page */
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
    u.head = blockIdx.x % n_kv;
    u.slot = (int)((low - a.first_tile) * n_kv + u.head);
    u.first = a.first_part;
    u.n = a.end_part > 0 ? a.end_part - a.first_part : u.tile.n_pages;
    const int page = at - (u.tile.unit - first);
    u.page = page_at(a, u.tile.address + u.first + page);
    u.result = (u.tile.result - tiles[a.first_tile].result) * n_kv + u.head * u.tile.n;
    u.own = u.result + (int64_t)page * n_kv * u.tile.n;
    u.begin = (int64_t)(u.tile.first_page + u.first + page) * HT_CUDA_KEYS;
    return u;
}

static __device__ int in_page(int64_t pos, const unit &u) {
    const int64_t i = pos - u.begin;
    return (int)(i < 0 ? 0 : i > HT_CUDA_KEYS ? HT_CUDA_KEYS : i);
}

static __device__ int64_t pos_of(const ht_cuda_attend_arguments &a, int query) {
    return row_of(a, query / a.group).pos;
}

static __device__ float *out_of(const ht_cuda_attend_arguments &a, int query, int64_t head) {
    return a.out + ((int64_t)(query / a.group) * a.n_heads + head * a.group + query % a.group) * a.out_dim;
}

/* ---- merging ---- */

#define HT_LOG2_OF_E 1.44269504f

/* Weights of pages of f32 are powers of e; with tensor cores they are powers of 2. */
template <bool OF_E> static __device__ float power_of(float x) {
    return OF_E ? ht_exp_of_negative(x) : ht_fast_exp2(x);
}

/* Softmax sum of a query so far, relative to its largest score. */
template <bool OF_E> struct running {
    float max, total;
    /* Merges a page with this largest score and sum. *mine and *its rescale the sums so far and the page's. */
    __device__ void add(float page_max, float page_total, float *mine, float *its) {
        const float top = fmaxf(max, page_max), base = top == -INFINITY ? 0.0f : top;
        *mine = power_of<OF_E>(max - base);
        *its = power_of<OF_E>(page_max - base);
        total = fmaf(total, *mine, page_total * *its);
        max = top;
    }
};

/* Inverse of the softmax sum of a query of KV head `head`, whose pages are merged, and of its sink. */
template <bool OF_E>
static __device__ float inverse_of(const ht_cuda_attend_arguments &a, int query, int64_t head, running<OF_E> of) {
    if (!a.sinks) return 1.0f / of.total;
    const float sink = a.sinks[(head * a.group + query % a.group) * a.sinks_stride];
    const float score = OF_E ? sink : sink * HT_LOG2_OF_E;
    float mine, its;
    of.add(score > FLT_MAX ? FLT_MAX : score, 1.0f, &mine, &its); /* an infinite maximum would make the result NaN */
    return mine / of.total;
}

/* A value that another block wrote: bypasses the L1 cache. */
static __device__ float written(const float *p) {
#ifdef HT_CUDA_ON_HOST
    return *p;
#else
    return __ldcg(p);
#endif
}

static __device__ float result_of(float sum, float inverse) { return sum * inverse + 0.0f; /* no -0 */ }

/* Merges one dimension of one query over the pages that it sees, in order. */
template <bool OF_E> static __device__ void merge(const ht_cuda_attend_arguments &a, const unit &u, int i, int d) {
    enum { AT_A_TIME = 8 };
    const int64_t pos = pos_of(a, u.tile.query + i), next = (int64_t)a.form.n_kv_heads * u.tile.n;
    const int n_dims = a.form.head_dim;
    int begin = (int)(first_visible(a, pos) / HT_CUDA_KEYS) - u.tile.first_page - u.first;
    int end = (int)(pos / HT_CUDA_KEYS) + 1 - u.tile.first_page - u.first;
    begin = begin < 0 ? 0 : begin;
    end = end > u.n ? u.n : end;
    running<OF_E> r = {-INFINITY, 0.0f};
    float sum = 0.0f;
    float *const so_far = a.continued + 3 * ((u.head * u.tile.n + i) * n_dims + d);
    if (u.first > 0) {
        r = {so_far[0], so_far[1]};
        sum = so_far[2];
    }
    const float *totals = a.totals + 2 * (u.result + i), *sums = a.partial + (u.result + i) * n_dims + d;
    for (int from = begin; from < end; from += AT_A_TIME) {
        float max[AT_A_TIME], total[AT_A_TIME], its_sum[AT_A_TIME];
#pragma unroll
        for (int e = 0; e < AT_A_TIME; e++) {
            const int64_t p = (from + e < end ? from + e : from) * next;
            max[e] = written(totals + 2 * p);
            total[e] = written(totals + 2 * p + 1);
            its_sum[e] = written(sums + p * n_dims);
        }
#pragma unroll
        for (int e = 0; e < AT_A_TIME; e++) {
            if (from + e >= end) break;
            float mine, its;
            r.add(max[e], total[e], &mine, &its);
            sum = fmaf(sum, mine, its_sum[e] * its);
        }
    }
    if (a.end_part > 0 && a.end_part < u.tile.n_pages) {
        so_far[0] = r.max;
        so_far[1] = r.total;
        so_far[2] = sum;
    } else {
        const int query = u.tile.query + i;
        out_of(a, query, u.head)[d] = result_of(sum, inverse_of(a, query, u.head, r));
    }
}

/* Runs after a unit's results are stored: the last block of a tile and a head merges them. */
template <bool OF_E> static __device__ void finish(const ht_cuda_attend_arguments &a, const unit &u) {
    __shared__ int is_last;
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) {
        is_last = u.n == 1 || atomicAdd(&a.arrivals[u.slot], 1u) + 1 == (uint32_t)u.n;
        if (is_last && u.n > 1) a.arrivals[u.slot] = 0;
    }
    __syncthreads();
    if (!is_last) return;
    __threadfence();
    const int n_dims = a.out_dim;
    for (int at = threadIdx.x; at < u.tile.n * n_dims; at += blockDim.x) merge<OF_E>(a, u, at / n_dims, at % n_dims);
}

/* ---- operands on tensor cores ----
 *
 * Queries and weights are f16 if pages are. bf16 pages keep their range, as do the scales of 8-bit pages, whose
 * integers are exact in bf16. For both, queries and weights are two bf16 parts; the second is the remainder of the
 * first, so an infinity becomes NaN.
 *
 * A step is 64 keys. Within a page, scores are relative to the largest score of the query so far, step by step. Every
 * score, weight and sum results from one sequence of operations, in any warp of any kernel. The weight of an unseen key
 * is -0, which no other weight is. */

enum { STEP_KEYS = HT_CUDA_STEP_KEYS, TENSOR_THREADS = HT_CUDA_TENSOR_THREADS, TENSOR_WARPS = TENSOR_THREADS / 32 };
enum { HIDDEN_HALF = 0x8000 /* the weight of an unseen key */ };

struct of_f16_pages {
    enum { PARTS = 1, SCALED = 0, EXPONENT = 0x7C00, ONES = 0x3C003C00 };
    static __device__ uint32_t pair(float low, float high) { return ht_pair_of(low, high); }
    static __device__ float value(uint32_t bits) { return ht_half_value(bits & 0xFFFFu); }
    static __device__ void mma(float *c, const uint32_t *a, const uint32_t *b) { ht_mma(c, a, b); }
};
struct of_bf16_pages {
    enum { PARTS = 2, SCALED = 0, EXPONENT = 0x7F80, ONES = 0x3F803F80 };
    static __device__ uint32_t pair(float low, float high) { return ht_bf16_pair_of(low, high); }
    static __device__ float value(uint32_t bits) { return ht_float_from_bits(bits << 16); }
    static __device__ void mma(float *c, const uint32_t *a, const uint32_t *b) { ht_mma_bf16(c, a, b); }
};
struct of_i8_pages : of_bf16_pages {
    enum { SCALED = 1 };
};

/* Two numbers in parts. */
template <class A> static __device__ __forceinline__ void split(float low, float high, uint32_t *parts) {
    parts[0] = A::pair(low, high);
    if (A::PARTS > 1)
        parts[A::PARTS - 1] = A::pair(low - A::value(parts[0] & 0xFFFFu), high - A::value(parts[0] >> 16));
}

/* c += a b, of all parts of a. */
template <class A>
static __device__ __forceinline__ void multiply(float *c, const uint32_t (*a)[4], const uint32_t *b) {
#pragma unroll
    for (int part = A::PARTS - 1; part >= 0; part--) A::mma(c, a[part], b);
}

/* ---- loading ---- */

/* Loads the queries of a tile, [PARTS][rows][chunks * 8 + 8], and the factors of their products. f16 queries are scaled
 * to a maximum in [2^14, 2^15). Rows after the tile's queries stay unset, as rows are independent. */
template <class A>
static __device__ void load_halves(const ht_cuda_attend_arguments &a, const ht_cuda_attend_tile &tile, int64_t head,
                                   int rows, int chunks, char *to, float *factors) {
    const int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32, bytes = ht_cuda_queries_bytes(1, chunks);
    for (int i = warp; i < tile.n; i += TENSOR_WARPS) {
        const int query = tile.query + i;
        const int64_t of_head = head * a.group + query % a.group;
        const float *x = (const float *)a.q.data + (int64_t)(query / a.group) * a.q.stride[0] + of_head * a.q.stride[1];
        const int n = a.form.head_dim;
        float up = a.scale < 0.0f ? -1.0f : 1.0f, factor = fabsf(a.scale);
        if (A::PARTS == 1) {
            float max = 0.0f;
            for (int d = lane; d < n; d += 32) max = fmaxf(max, fabsf(x[d * a.q.stride[2]]));
            for (int step = 16; step > 0; step /= 2) max = fmaxf(max, __shfl_xor_sync(0xffffffffu, max, step));
            int exponent = (int)(ht_float_bits(max) >> 23) - 127; /* 128: infinite */
            exponent = exponent < -100 || exponent > 127 ? 14 : exponent;
            up *= ht_float_from_bits((uint32_t)(127 + 14 - exponent) << 23);
            factor *= ht_float_from_bits((uint32_t)(127 - 14 + exponent) << 23);
        }
        for (int d = 2 * lane; d < 8 * chunks; d += 64) {
            uint32_t parts[2];
            split<A>(d < n ? x[d * a.q.stride[2]] * up : 0.0f, d + 1 < n ? x[(d + 1) * a.q.stride[2]] * up : 0.0f,
                     parts);
            for (int part = 0; part < A::PARTS; part++)
                *(uint32_t *)(to + ((int64_t)part * rows + i) * bytes + 2 * d) = parts[part];
        }
        if (lane == 0) factors[i] = a.softcap > 0.0f ? factor / a.softcap : factor * HT_LOG2_OF_E;
    }
}

/* Integers of 8 bits as bf16. */
static __device__ words4 widened(words2 from) {
    words4 out;
    for (int i = 0; i < 4; i++) {
        const uint32_t two = from.w[i / 2] >> 16 * (i % 2);
        out.w[i] = ht_bf16_pair_of((float)(int8_t)two, (float)(int8_t)(two >> 8));
    }
    return out;
}

static __device__ void put_zeros(char *to) { *(words4 *)to = words4{{0, 0, 0, 0}}; }

/* Loads keys `first` to first + 63 of a page and a head, [padded chunks][64], then at `elements` scales
 * [blocks][64]. */
template <class A>
static __device__ __forceinline__ void load_keys(const ht_cuda_page_form &f, const char *page, int64_t head, int first,
                                                 int padded, int elements, char *to) {
    const char *from = page + ht_cuda_k_chunk(&f, head, first, 0);
#pragma unroll 4
    for (int i = threadIdx.x; i < f.chunks * STEP_KEYS; i += TENSOR_THREADS) {
        const int64_t at = (int64_t)(i / STEP_KEYS) * HT_CUDA_KEYS + i % STEP_KEYS;
        if (A::SCALED)
            *(words4 *)(to + i * 16) = widened(*(const words2 *)(from + at * 8));
        else
            ht_copy<16>(to + i * 16, from + at * 16);
    }
    for (int i = f.chunks * STEP_KEYS + (int)threadIdx.x; i < padded * STEP_KEYS; i += TENSOR_THREADS)
        put_zeros(to + i * 16);
    if (A::SCALED)
        for (int i = threadIdx.x; i < f.blocks * STEP_KEYS / 8; i += TENSOR_THREADS)
            ht_copy<16>(to + elements + i * 16,
                        page + ht_cuda_k_scale(&f, head, first + i % (STEP_KEYS / 8) * 8, i / (STEP_KEYS / 8)));
}

/* Loads values, `value_bytes` apart, and their scales [64][blocks]. Values outside [low, high) of the page become
 * zeros: no query sees them, and they may be NaN. */
template <class A>
static __device__ __forceinline__ void load_values(const ht_cuda_page_form &f, const char *page, int64_t head,
                                                   int first, int low, int high, int value_bytes, int elements,
                                                   char *to) {
    const char *from = page + ht_cuda_v_chunk(&f, head, first, 0);
    int key = (int)threadIdx.x / f.chunks, c = (int)threadIdx.x % f.chunks;
    const int keys_on = TENSOR_THREADS / f.chunks, chunks_on = TENSOR_THREADS % f.chunks;
#pragma unroll 4
    for (int i = threadIdx.x; i < f.chunks * STEP_KEYS; i += TENSOR_THREADS) {
        char *at = to + key * value_bytes + c * 16;
        if (A::SCALED)
            *(words4 *)at = widened(*(const words2 *)(from + key * f.v_key + c * f.v_chunk));
        else if (first + key >= low && first + key < high)
            ht_copy<16>(at, from + key * f.v_key + c * f.v_chunk);
        else
            put_zeros(at);
        key += keys_on;
        c += chunks_on;
        if (c >= f.chunks) {
            c -= f.chunks;
            key++;
        }
    }
    if (!A::SCALED) return;
    if (f.keys_only) /* their scales are in the order of keys */
        for (int i = threadIdx.x; i < f.blocks * STEP_KEYS; i += TENSOR_THREADS)
            *(uint16_t *)(to + elements + i * 2) =
                *(const uint16_t *)(page + ht_cuda_v_scale(&f, head, first + i / f.blocks, i % f.blocks));
    else
        for (int i = threadIdx.x; i < f.blocks * STEP_KEYS / 8; i += TENSOR_THREADS)
            ht_copy<16>(to + elements + i * 16, page + ht_cuda_v_scale(&f, head, first, 0) + i * 16);
}

/* Waits for all copies of this thread except those of the latest n steps. */
static __device__ __forceinline__ void wait_for_steps(int n) {
    switch (n) {
    case 0: ht_copies_wait<0>(); break;
    case 1: ht_copies_wait<1>(); break;
    case 2: ht_copies_wait<2>(); break;
    case 3: ht_copies_wait<3>(); break;
    case 4: ht_copies_wait<4>(); break;
    case 5: ht_copies_wait<5>(); break;
    case 6: ht_copies_wait<6>(); break;
    default: ht_copies_wait<7>();
    }
}

/* ---- scores and weights ---- */

/* A product as a score, whose weight is 2^(factor * score): with a softcap, softcap * tanh(factor_of_product * product / softcap). */
static __device__ __forceinline__ float capped(float product, float factor_of_product, float softcap) {
    const float power = ht_fast_exp2(2.0f * HT_LOG2_OF_E * factor_of_product * product);
    return fmaf(-2.0f * softcap, ht_fast_reciprocal(1.0f + power), softcap);
}
static __device__ __forceinline__ float factor_of_score(const ht_cuda_attend_arguments &a, float factor) {
    return a.softcap > 0.0f ? HT_LOG2_OF_E : factor;
}

/* Replaces a missing largest score by 0. */
static __device__ __forceinline__ float base_of(float max) { return max == -INFINITY ? 0.0f : max; }

static __device__ __forceinline__ float weight_at(float score, float factor, float base, bool seen) {
    const float weight = ht_fast_exp2(fmaf(score, factor, -base));
    return seen ? weight : -0.0f;
}

/* Scales of a lane's two keys of 8 adjacent ones, of block b. */
static __device__ __forceinline__ floats2 key_scales(const char *scales, int b, int key) {
    const uint32_t two = *(const uint32_t *)(scales + (b * STEP_KEYS + key) * 2);
    return floats2{{ht_float_from_bits(two << 16), ht_float_from_bits(two & 0xFFFF0000u)}};
}

/* A block of weights, of 16 queries and the keys from `key` on, with the scales of their values in block b. */
static __device__ __forceinline__ void scale_weights(const uint32_t (*weights)[4], const char *scales, int blocks,
                                                     int key, int b, uint32_t (*scaled)[4]) {
    const int t = (int)threadIdx.x % 4;
    float scale[4];
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const int at = key + 2 * t + i % 2 + i / 2 * 8;
        scale[i] = ht_bf16_to_f32(*(const uint16_t *)(scales + (at * blocks + b) * 2));
    }
#pragma unroll
    for (int i = 0; i < 4; i++) {
        float x[2];
#pragma unroll
        for (int e = 0; e < 2; e++) {
            const uint32_t first = weights[0][i] >> 16 * e & 0xFFFFu, second = weights[1][i] >> 16 * e & 0xFFFFu;
            const float weight = of_bf16_pages::value(first) + of_bf16_pages::value(second);
            x[e] = first == HIDDEN_HALF ? 0.0f : weight * scale[i / 2 * 2 + e];
        }
        uint32_t parts[2];
        split<of_bf16_pages>(x[0], x[1], parts);
        scaled[0][i] = parts[0];
        scaled[1][i] = parts[1];
    }
}

/* ---- infinite and NaN values ---- */

/* Keys of a page that only some queries of a tile see: [low, high) without [all_low, all_high). */
struct keys_seen {
    int low, high, all_low, all_high;
    __device__ bool by_some(int key) const { return key >= low && key < high && (key < all_low || key >= all_high); }
    __device__ bool any_by_some(int first) const {
        const int from = first > low ? first : low, to = first + STEP_KEYS < high ? first + STEP_KEYS : high;
        return from < to && (from < all_low || to > all_high);
    }
};

/* Whether one of the thread's values in the step is infinite or NaN and some queries do not see it. */
template <class A>
static __device__ bool finds_no_number(const ht_cuda_page_form &f, const keys_seen &s, int first, int value_bytes,
                                       const char *values) {
    bool found = false;
    for (int i = threadIdx.x; i < f.chunks * STEP_KEYS; i += TENSOR_THREADS) {
        const int key = i / f.chunks, c = i % f.chunks;
        if (!s.by_some(first + key)) continue;
        const words4 x = *(const words4 *)(values + key * value_bytes + c * 16);
        for (int w = 0; w < 4; w++)
            found |= (x.w[w] & A::EXPONENT) == A::EXPONENT || (x.w[w] >> 16 & A::EXPONENT) == A::EXPONENT;
    }
    return found;
}

/* Contribution of those values to a block of sums, for the queries that see them; `values` has its two dimensions. */
template <class A>
static __device__ __forceinline__ void no_numbers(const char *weights, int weights_bytes, int part_bytes,
                                                  const char *values, int value_bytes, float *c) {
    const int g = (int)threadIdx.x % 32 / 4;
    for (int i = 0; i < 4; i++) c[i] = 0.0f;
#pragma unroll 1
    for (int i = 0; i < 4 * STEP_KEYS; i++) {
        const int key = i / 4, e = i % 2, half = i / 2 % 2;
        const uint16_t bits = *(const uint16_t *)(values + key * value_bytes + e * 2);
        const char *at = weights + (g + 8 * half) * weights_bytes + key * 2;
        if ((bits & A::EXPONENT) != A::EXPONENT || *(const uint16_t *)at == HIDDEN_HALF) continue;
        float sum = 0.0f;
#pragma unroll
        for (int part = A::PARTS - 1; part >= 0; part--)
            sum = fmaf(A::value(*(const uint16_t *)(at + part * part_bytes)), A::value(bits), sum);
        c[2 * half + e] += sum;
    }
}

/* And has them be 0. */
template <class A> static __device__ void drop_no_numbers(const ht_cuda_page_form &f, int value_bytes, char *values) {
    for (int i = threadIdx.x; i < 8 * f.chunks * STEP_KEYS; i += TENSOR_THREADS) {
        uint16_t *x = (uint16_t *)(values + i / (8 * f.chunks) * value_bytes) + i % (8 * f.chunks);
        if ((*x & A::EXPONENT) == A::EXPONENT) *x = 0;
    }
}

#endif
