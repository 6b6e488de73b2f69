/* Tensor cores, pairs of f16 and asynchronous copies to shared memory, on sm_80 and later. */
#ifndef HT_CUDA_TENSOR_CUH
#define HT_CUDA_TENSOR_CUH

#include "cuda/kernel.cuh"

/* The thread index, kept in a register: the compiler would read the slow special register at every use. Whole warps
 * call it. */
static __device__ __forceinline__ int ht_kept_thread(void) {
    return (int)__shfl_sync(0xffffffffu, threadIdx.x, (int)(threadIdx.x & 31));
}

/* ---- f16, and pairs of them ---- */

static __device__ __forceinline__ float ht_half_value(uint32_t bits) {
#ifdef HT_CUDA_ON_HOST
    return ht_f16_to_f32((uint16_t)bits);
#else
    float value;
    asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"((uint16_t)bits));
    return value;
#endif
}

#ifdef HT_CUDA_ON_HOST
static inline uint16_t
ht_half_rounded(double x) { /* to nearest, ties to even: of a sum or product of halves, which is exact */
    const float nearest = (float)x;
    uint32_t bits = ht_float_bits(nearest);
    if ((double)nearest != x) { /* toward zero, with a bit that says that more followed */
        if (fabs((double)nearest) > fabs(x)) bits--;
        bits |= 1;
    }
    return ht_f32_to_f16(ht_float_from_bits(bits));
}
#define HT_OF_PAIR(name, expression)                                                                                   \
    static inline uint32_t name(uint32_t a, uint32_t b, uint32_t c) {                                                  \
        uint32_t out = 0;                                                                                              \
        for (int i = 0; i < 32; i += 16) {                                                                             \
            const double x = ht_f16_to_f32((uint16_t)(a >> i)), y = ht_f16_to_f32((uint16_t)(b >> i)),                 \
                         z = ht_f16_to_f32((uint16_t)(c >> i));                                                        \
            (void)z;                                                                                                   \
            out |= (uint32_t)ht_half_rounded(expression) << i;                                                         \
        }                                                                                                              \
        return out;                                                                                                    \
    }
HT_OF_PAIR(ht_pair_fma, x *y + z)
HT_OF_PAIR(ht_pair_mul3, x *y)
HT_OF_PAIR(ht_pair_sub3, x - y)
#undef HT_OF_PAIR
static inline uint32_t ht_pair_mul(uint32_t a, uint32_t b) { return ht_pair_mul3(a, b, 0); }
static inline uint32_t ht_pair_sub(uint32_t a, uint32_t b) { return ht_pair_sub3(a, b, 0); }
static inline uint32_t ht_pair_of(float low, float high) {
    return ht_f32_to_f16(low) | (uint32_t)ht_f32_to_f16(high) << 16;
}
static inline uint32_t ht_low_twice(uint32_t pair) { return (pair & 0xFFFFu) * 0x10001u; }
static inline uint32_t ht_high_twice(uint32_t pair) { return (pair >> 16) * 0x10001u; }
static inline uint32_t ht_bits_over(uint32_t x, uint32_t mask, uint32_t over) { return (x & mask) | over; }
#else
static __device__ __forceinline__ uint32_t ht_pair_fma(uint32_t a, uint32_t b, uint32_t c) {
    uint32_t out;
    asm("fma.rn.f16x2 %0, %1, %2, %3;" : "=r"(out) : "r"(a), "r"(b), "r"(c));
    return out;
}
static __device__ __forceinline__ uint32_t ht_pair_mul(uint32_t a, uint32_t b) {
    uint32_t out;
    asm("mul.rn.f16x2 %0, %1, %2;" : "=r"(out) : "r"(a), "r"(b));
    return out;
}
static __device__ __forceinline__ uint32_t ht_pair_sub(uint32_t a, uint32_t b) {
    uint32_t out;
    asm("sub.rn.f16x2 %0, %1, %2;" : "=r"(out) : "r"(a), "r"(b));
    return out;
}
static __device__ __forceinline__ uint32_t ht_pair_of(float low, float high) {
    uint32_t out;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(out) : "f"(high), "f"(low));
    return out;
}
/* One half of a pair, twice: free as an operand of pair instructions. */
static __device__ __forceinline__ uint32_t ht_low_twice(uint32_t pair) {
    uint32_t out;
    asm("{\n\t.reg .b16 low, high;\n\tmov.b32 {low, high}, %1;\n\tmov.b32 %0, {low, low};\n\t}"
        : "=r"(out)
        : "r"(pair));
    return out;
}
static __device__ __forceinline__ uint32_t ht_high_twice(uint32_t pair) {
    uint32_t out;
    asm("{\n\t.reg .b16 low, high;\n\tmov.b32 {low, high}, %1;\n\tmov.b32 %0, {high, high};\n\t}"
        : "=r"(out)
        : "r"(pair));
    return out;
}
/* (x & mask) | over in one instruction, which allows one constant, so `over` comes from a register. */
static __device__ __forceinline__ uint32_t ht_bits_over(uint32_t x, uint32_t mask, uint32_t over) {
    uint32_t kept, out;
    asm volatile("mov.b32 %0, %1;" : "=r"(kept) : "r"(over));
    asm("lop3.b32 %0, %1, %2, %3, 0xEA;" : "=r"(out) : "r"(x), "r"(mask), "r"(kept));
    return out;
}
#endif

/* ---- products of tiles ---- */

#ifdef HT_CUDA_ON_HOST
/* One of the products below, of 16-bit numbers that `value` turns into floats. */
static inline void ht_mma_on_host(float *c, const uint32_t *a, const uint32_t *b, float (*value)(uint16_t)) {
    struct operands {
        float a[8], b[4];
    } mine;
    for (int i = 0; i < 8; i++) mine.a[i] = value((uint16_t)(a[i / 2] >> 16 * (i & 1)));
    for (int i = 0; i < 4; i++) mine.b[i] = value((uint16_t)(b[i / 2] >> 16 * (i & 1)));
    const operands *all = (const operands *)on_host_gather(&mine, sizeof mine);
    const int g = (int)on_host_lane() / 4, t = (int)on_host_lane() % 4;
    for (int i = 0; i < 4; i++) {
        const int column = 2 * t + (i & 1);
        double sum = c[i];
        for (int k = 0; k < 16; k++)
            sum += (double)all[4 * g + k % 8 / 2].a[2 * (i / 2 + k / 8 * 2) + (k & 1)] *
                   (double)all[4 * column + k % 8 / 2].b[2 * (k / 8) + (k & 1)];
        c[i] = (float)sum;
    }
}
#endif

#define HT_MMA_INSTRUCTION(type)                                                                                       \
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32." type "." type ".f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "    \
                 "{%8, %9}, {%0, %1, %2, %3};"                                                                         \
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])                                                      \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]))

/* c [16, 8] += a [16, 16] b [16, 8], f16 with f32 sums, by a warp. With g = lane / 4 and t = lane % 4, a lane has, as pairs,
 *   a[0]: row g,     columns 2t, 2t + 1        b[0]: rows 2t, 2t + 1 of column g
 *   a[1]: row g + 8, columns 2t, 2t + 1        b[1]: rows 2t + 8, 2t + 9
 *   a[2]: row g,     columns 2t + 8, 2t + 9    c[0], c[1]: row g, columns 2t, 2t + 1
 *   a[3]: row g + 8, columns 2t + 8, 2t + 9    c[2], c[3]: row g + 8
 * (PTX ISA, mma.m16n8k16). */
static __device__ __forceinline__ void ht_mma(float *c, const uint32_t *a, const uint32_t *b) {
#ifdef HT_CUDA_ON_HOST
    ht_mma_on_host(c, a, b, ht_f16_to_f32);
#else
    HT_MMA_INSTRUCTION("f16");
#endif
}

/* As ht_mma, of bf16. */
static __device__ __forceinline__ void ht_mma_bf16(float *c, const uint32_t *a, const uint32_t *b) {
#ifdef HT_CUDA_ON_HOST
    ht_mma_on_host(c, a, b, ht_bf16_to_f32);
#else
    HT_MMA_INSTRUCTION("bf16");
#endif
}

/* Loads four matrices of 8 rows of 8 halves from shared memory; lane i has the address of row i % 8 of matrix i / 8.
 * out[m] is columns 2t, 2t + 1 of row g of matrix m, or transposed, rows 2t, 2t + 1 of column g. */
template <bool TRANSPOSED> static __device__ __forceinline__ void ht_matrices(uint32_t *out, const void *row) {
#ifdef HT_CUDA_ON_HOST
    const char *const *all = (const char *const *)on_host_gather(&row, sizeof row);
    const int g = (int)on_host_lane() / 4, t = (int)on_host_lane() % 4;
    for (int m = 0; m < 4; m++) {
        uint16_t pair[2];
        for (int i = 0; i < 2; i++) {
            const int from = TRANSPOSED ? 2 * t + i : g, column = TRANSPOSED ? g : 2 * t + i;
            memcpy(&pair[i], all[8 * m + from] + 2 * column, 2);
        }
        out[m] = pair[0] | (uint32_t)pair[1] << 16;
    }
#else
    const uint32_t at = (uint32_t)__cvta_generic_to_shared(row);
    if (TRANSPOSED)
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                     : "=r"(out[0]), "=r"(out[1]), "=r"(out[2]), "=r"(out[3])
                     : "r"(at)
                     : "memory");
    else
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                     : "=r"(out[0]), "=r"(out[1]), "=r"(out[2]), "=r"(out[3])
                     : "r"(at)
                     : "memory");
#endif
}

/* A pair of bf16, rounded to nearest. */
static __device__ __forceinline__ uint32_t ht_bf16_pair_of(float low, float high) {
#ifdef HT_CUDA_ON_HOST
    return ht_f32_to_bf16(low) | (uint32_t)ht_f32_to_bf16(high) << 16;
#else
    uint32_t out;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(out) : "f"(high), "f"(low));
    return out;
#endif
}

/* 2^x to about an ulp or two, 0 where that is no normal number. */
static __device__ __forceinline__ float ht_fast_exp2(float x) {
#ifdef HT_CUDA_ON_HOST
    return exp2f(x);
#else
    float out;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(out) : "f"(x));
    return out;
#endif
}

/* 1 / x to about an ulp; 0 of an infinity. */
static __device__ __forceinline__ float ht_fast_reciprocal(float x) {
#ifdef HT_CUDA_ON_HOST
    return 1.0f / x;
#else
    float out;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(out) : "f"(x));
    return out;
#endif
}

/* ---- copies from global to shared memory ---- */

/* L2 policy for data that is read once: evict it first, so that other data and kernel code stay cached. */
static __device__ __forceinline__ uint64_t ht_read_once(void) {
    return 0x12F0000000000000u; /* the value of createpolicy.fractional.L2::evict_first */
}

/* Copies BYTES bytes (4, 8 or 16) between addresses aligned to BYTES; complete after a wait. */
template <int BYTES> static __device__ __forceinline__ void ht_copy(void *shared, const void *global) {
#ifdef HT_CUDA_ON_HOST
    memcpy(shared, global, BYTES);
#else
    const uint32_t to = (uint32_t)__cvta_generic_to_shared(shared);
    if (BYTES == 16)
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(global) : "memory");
    else
        asm volatile("cp.async.ca.shared.global [%0], [%1], %2;" ::"r"(to), "l"(global), "n"(BYTES) : "memory");
#endif
}
template <int BYTES> static __device__ __forceinline__ void ht_copy(void *shared, const void *global, uint64_t policy) {
#ifdef HT_CUDA_ON_HOST
    (void)policy;
    memcpy(shared, global, BYTES);
#else
    const uint32_t to = (uint32_t)__cvta_generic_to_shared(shared);
    if (BYTES == 16)
        asm volatile("cp.async.cg.shared.global.L2::cache_hint [%0], [%1], 16, %2;" ::"r"(to), "l"(global), "l"(policy)
                     : "memory");
    else
        asm volatile("cp.async.ca.shared.global.L2::cache_hint [%0], [%1], %2, %3;" ::"r"(to), "l"(global), "n"(BYTES),
                     "l"(policy)
                     : "memory");
#endif
}
/* Closes a group of this thread's copies. */
static __device__ __forceinline__ void ht_copies_end(void) {
#ifndef HT_CUDA_ON_HOST
    asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}
/* Waits for this thread's groups but the latest N. */
template <int N> static __device__ __forceinline__ void ht_copies_wait(void) {
#ifndef HT_CUDA_ON_HOST
    asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory");
#endif
}
#endif
