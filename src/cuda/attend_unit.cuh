/* Attention over KV pages: what its kernels have in common. Tables, elements of pages, appending, units and how they are merged. */
#ifndef HT_CUDA_ATTEND_UNIT_CUH
#define HT_CUDA_ATTEND_UNIT_CUH

#include "cuda/attend.h"
#include "cuda/tensor.cuh"

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

/* What a block computes. */
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
    return a.out + ((int64_t)(query / a.group) * a.n_heads + head * a.group + query % a.group) * a.form.head_dim;
}

/* ---- merging ---- */

/* Weights of pages of f32 are powers of e; with tensor cores they are powers of 2. */
template <bool OF_E> static __device__ float power_of(float x) { return OF_E ? weight_of(x) : ht_fast_exp2(x); }

/* What has been added up of a query so far: relative to its largest score. */
template <bool OF_E> struct running {
    float max, total;
    /* Takes on a page with such a largest score and sum; *mine and *its are the factors of the sums so far, and of the page's. */
    __device__ void add(float page_max, float page_total, float *mine, float *its) {
        const float top = fmaxf(max, page_max), base = top == -INFINITY ? 0.0f : top;
        *mine = power_of<OF_E>(max - base);
        *its = power_of<OF_E>(page_max - base);
        total = fmaf(total, *mine, page_total * *its);
        max = top;
    }
};

/* As other blocks wrote it. */
static __device__ float written(const float *p) {
#ifdef HT_CUDA_ON_HOST
    return *p;
#else
    return __ldcg(p);
#endif
}

static __device__ float result_of(float sum, float inverse) { return sum * inverse + 0.0f; /* no -0 */ }

/* One dimension of one query: adds the pages that it sees, in order. */
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
        out_of(a, u.tile.query + i, u.head)[d] = result_of(sum, 1.0f / r.total);
    }
}

/* Behind the results of a unit: the last block of a tile and a head merges them. */
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
    const int n_dims = a.form.head_dim;
    for (int at = threadIdx.x; at < u.tile.n * n_dims; at += blockDim.x) merge<OF_E>(a, u, at / n_dims, at % n_dims);
}

#endif
