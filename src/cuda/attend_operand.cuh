/* Attention over KV pages on tensor cores: the operands. Queries and weights are f16 where pages are; pages of bf16 keep their range,
 * and pages of 8 bits, whose integers are exact in bf16, their scales, so that queries and weights are there in two parts of bf16,
 * the second of which is what the first leaves: an infinity becomes NaN then.
 *
 * 64 keys are a step. Within a page, scores are relative to the largest one so far of a query, step by step; every score, weight and
 * sum is the result of one sequence of operations, whichever warp of whichever kernel computes it. A weight of a key that is not seen
 * is -0, which no other weight is. */
#ifndef HT_CUDA_ATTEND_OPERAND_CUH
#define HT_CUDA_ATTEND_OPERAND_CUH

#include "cuda/attend_unit.cuh"

enum { STEP_KEYS = HT_CUDA_STEP_KEYS, TENSOR_THREADS = HT_CUDA_TENSOR_THREADS, TENSOR_WARPS = TENSOR_THREADS / 32 };
enum { HIDDEN_HALF = 0x8000 /* the weight of a key that is not seen */ };

#define HT_LOG2_OF_E 1.44269504f

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

/* The queries of a tile in shared memory, [PARTS][rows][chunks * 8 + 8], and the factors of their products. f16 has a query's largest
 * number between 2^14 and 2^15. Rows behind the tile's queries stay what they are: no row has to do with another. */
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

/* Keys `first` to first + 63 of a page and a head, [padded chunks][64], and behind `elements` bytes their scales [blocks][64]. */
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

/* Values, `value_bytes` apart, and their scales [64][blocks]. Values outside [low, high) of the page are zeros: nobody sees them, and they
 * may not be numbers. */
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
            *(words4 *)at = widened(*(const words2 *)(from + i * 8));
        else if (first + key >= low && first + key < high)
            ht_copy<16>(at, from + i * 16);
        else
            put_zeros(at);
        key += keys_on;
        c += chunks_on;
        if (c >= f.chunks) {
            c -= f.chunks;
            key++;
        }
    }
    if (A::SCALED)
        for (int i = threadIdx.x; i < f.blocks * STEP_KEYS / 8; i += TENSOR_THREADS)
            ht_copy<16>(to + elements + i * 16, page + ht_cuda_v_scale(&f, head, first, 0) + i * 16);
}

/* Waits for this thread's copies but for those of the latest n steps. */
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

/* The largest score so far, where there was none, is replaced by 0. */
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

/* ---- values that are no numbers ---- */

/* Keys of a page that some queries of a tile see, and others do not: [low, high) without [all_low, all_high). */
struct keys_seen {
    int low, high, all_low, all_high;
    __device__ bool by_some(int key) const { return key >= low && key < high && (key < all_low || key >= all_high); }
    __device__ bool any_by_some(int first) const {
        const int from = first > low ? first : low, to = first + STEP_KEYS < high ? first + STEP_KEYS : high;
        return from < to && (from < all_low || to > all_high);
    }
};

/* Whether a value of the step that some queries do not see is infinite or NaN; a thread says so of its own ones. */
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

/* What those values add to a block of sums, whose two dimensions are at `values`, for the queries that see them. */
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
