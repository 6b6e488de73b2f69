/* Packed weights as pairs of f16: a lane's part of one row, in a warp that multiplies 16 rows.
 *
 * `visit` passes lane t's fields of the i-th span (CYCLES cycles of 64 columns) with their addresses to a visitor,
 * which loads or copies them (below). `open` computes their scales. `pairs` gives columns 8 t to 8 t + 7 of half h of
 * cycle c, times the factor, in the order 0 4 1 5 2 6 3 7 (cuda/tensor_product.h). */
#ifndef HT_CUDA_MATRIX_PAIRS_CUH
#define HT_CUDA_MATRIX_PAIRS_CUH

#include "cuda/matrix_values.cuh"
#include "cuda/tensor.cuh"

/* A form's LOADS_ANY: spans are any 64 columns, which `pairs` loads. ALIKE: matrices of one type and width differ in their rows only. */

/* ---- visitors ---- */

/* Loads a field. */
struct ht_load_now {
    template <class T> __device__ __forceinline__ void operator()(T &field, const uint8_t *p) { field = ht_load<T>(p); }
};

/* Starts an asynchronous copy to a lane's part of a slot in shared memory, where 32 lanes' fields are adjacent. */
template <class R> struct ht_async_copy_field {
    const R *raw;
    unsigned char *slot;
    int lane;
    uint64_t policy;
    template <class T> __device__ __forceinline__ void operator()(T &field, const uint8_t *p) {
        ht_copy<sizeof(T)>(slot + ((unsigned char *)&field - (unsigned char *)raw) * 32 + lane * sizeof(T), p, policy);
    }
};

/* Takes it from there. */
template <class R> struct ht_take_field {
    const R *raw;
    const unsigned char *slot;
    int lane;
    template <class T> __device__ __forceinline__ void operator()(T &field, const uint8_t *) {
        field = *(const T *)(slot + ((unsigned char *)&field - (unsigned char *)raw) * 32 + lane * sizeof(T));
    }
};

/* ---- forms ---- */

#define HT_1024     0x64006400u /* 1024 twice */
#define HT_MINUS_64 0xD400D400u
#define HT_16TH     0x2C002C00u

static __device__ __forceinline__ uint32_t ht_twice(float x) { return ht_pair_of(x, x); }

static __device__ __forceinline__ void ht_pairs_of_floats(const float *w, float factor, uint32_t *out) {
#pragma unroll
    for (int j = 0; j < 4; j++) out[j] = ht_pair_of(w[j] * factor, w[j + 4] * factor);
}

/* The eight numbers of a word of nibbles; each is less by `less`. */
template <int LESS> static __device__ __forceinline__ void ht_nibble_pairs(uint32_t word, uint32_t *q) {
    const uint32_t less = LESS ? 0x64086408u : HT_1024;        /* 1024 + LESS, which is 0 or 8 */
    const uint32_t less_64 = LESS ? 0xD480D480u : HT_MINUS_64; /* -(64 + LESS) */
    q[0] = ht_pair_sub(ht_bits_over(word, 0x000F000Fu, HT_1024), less);
    q[1] = ht_pair_fma(ht_bits_over(word, 0x00F000F0u, HT_1024), HT_16TH, less_64);
    word >>= 8;
    q[2] = ht_pair_sub(ht_bits_over(word, 0x000F000Fu, HT_1024), less);
    q[3] = ht_pair_fma(ht_bits_over(word, 0x00F000F0u, HT_1024), HT_16TH, less_64);
}

/* Forms whose scales are made by `pairs`. */
struct ht_pairs_with_factor {
    struct scale {
        float factor;
    };
    template <class R> static __device__ __forceinline__ scale open(const ht_cuda_weights &, const R &, float factor) {
        return scale{factor};
    }
};

/* Any form, eight columns at a time. */
struct ht_pairs_STORED : ht_pairs_with_factor {
    enum { CYCLES = 1, LOADS_ANY = 1, ALIKE = 0 };
    struct raw {
        const uint8_t *row;
        int64_t g, index;
    };
    template <class V>
    static __device__ __forceinline__ void visit(V &, raw &r, const ht_cuda_weights &, const uint8_t *row,
                                                 int64_t index, int64_t i, int t) {
        r = raw{row, i * 8 + t, index};
    }
    static __device__ __forceinline__ void pairs(const ht_cuda_weights &m, const raw &r, const scale &s, int, int h,
                                                 uint32_t *out) {
        float w[8] = {0, 0, 0, 0, 0, 0, 0, 0};
        const int64_t g = r.g + 4 * h;
        if (g * 8 < m.k) ht_part_of(m, r.row, r.index, g, w);
        ht_pairs_of_floats(w, s.factor, out);
    }
};

template <bool HALF> struct ht_pairs_16 : ht_pairs_with_factor {
    enum { CYCLES = 1, LOADS_ANY = 0, ALIKE = 1 };
    struct raw {
        uint4 q[2];
    };
    template <class V>
    static __device__ __forceinline__ void visit(V &v, raw &r, const ht_cuda_weights &, const uint8_t *row, int64_t,
                                                 int64_t i, int t) {
        const uint8_t *p = row + (i * 64 + t * 8) * 2;
        v(r.q[0], p), v(r.q[1], p + 64);
    }
    static __device__ __forceinline__ void pairs(const ht_cuda_weights &, const raw &r, const scale &s, int, int h,
                                                 uint32_t *out) {
        float w[8];
#pragma unroll
        for (int k = 0; k < 8; k++) {
            const uint32_t both = ht_component(r.q[h], k / 2);
            w[k] = HALF    ? ht_half_value(k & 1 ? both >> 16 : both & 0xFFFFu)
                   : k & 1 ? __uint_as_float(both & 0xFFFF0000u)
                           : __uint_as_float(both << 16);
        }
        ht_pairs_of_floats(w, s.factor, out);
    }
};
typedef ht_pairs_16<true> ht_pairs_F16;
typedef ht_pairs_16<false> ht_pairs_BF16;

struct ht_pairs_F8 : ht_pairs_with_factor {
    enum { CYCLES = 1, LOADS_ANY = 0, ALIKE = 0 };
    struct raw {
        uint2 q[2];
        float s[2];
    };
    template <class V>
    static __device__ __forceinline__ void visit(V &v, raw &r, const ht_cuda_weights &m, const uint8_t *row,
                                                 int64_t index, int64_t i, int t) {
        const int64_t column = i * 64 + t * 8;
        const float *scales = ht_scales_of(m, index);
        v(r.q[0], row + column), v(r.q[1], row + column + 32);
        r.s[0] = r.s[1] = 1.0f;
        if (!scales) return;
        v(r.s[0], (const uint8_t *)(scales + (column >> m.group_shift)));
        v(r.s[1], (const uint8_t *)(scales + ((column + 32) >> m.group_shift)));
    }
    static __device__ __forceinline__ void pairs(const ht_cuda_weights &m, const raw &r, const scale &s, int, int h,
                                                 uint32_t *out) {
        const bool e5m2 = m.type == HT_W_F8_E5M2;
        float w[8];
#pragma unroll
        for (int k = 0; k < 8; k++)
            w[k] = ht_f8_value(e5m2, (uint8_t)((k < 4 ? r.q[h].x : r.q[h].y) >> 8 * (k & 3))) * r.s[h];
        ht_pairs_of_floats(w, s.factor, out);
    }
};

struct ht_pairs_Q4_0 : ht_pairs_with_factor {
    enum { CYCLES = 4, LOADS_ANY = 0, ALIKE = 1 };
    struct raw {
        uint4 q[2];
        uint2 d[2]; /* of the lanes' halves */
    };
    template <class V>
    static __device__ __forceinline__ void visit(V &v, raw &r, const ht_cuda_weights &m, const uint8_t *row, int64_t,
                                                 int64_t i, int t) {
        const uint8_t *q = row + i * 128 + t * 16, *d = row + m.k / 2 + i * 16;
        v(r.q[0], q), v(r.q[1], q + 64);
        v(r.d[0], d), v(r.d[1], d + 8);
    }
    static __device__ __forceinline__ void pairs(const ht_cuda_weights &, const raw &r, const scale &s, int c, int h,
                                                 uint32_t *out) {
        const uint32_t both = c < 2 ? r.d[h].x : r.d[h].y;
        const uint32_t d = ht_twice(ht_half_value(c & 1 ? both >> 16 : both & 0xFFFFu) * s.factor);
        uint32_t q[4];
        ht_nibble_pairs<8>(ht_component(r.q[h], c), q);
#pragma unroll
        for (int j = 0; j < 4; j++) out[j] = ht_pair_mul(q[j], d);
    }
};

/* Eight bytes of two words, each less by LESS, which is less than 1024. */
template <int LESS> static __device__ __forceinline__ void ht_byte_pairs(uint32_t low, uint32_t high, uint32_t *q) {
    const uint32_t less = HT_1024 + (uint32_t)LESS * 0x10001u;
    q[0] = ht_pair_sub(ht_bits_over(__byte_perm(low, high, 0x0400), 0x00FF00FFu, HT_1024), less);
    q[1] = ht_pair_sub(ht_bits_over(__byte_perm(low, high, 0x0501), 0x00FF00FFu, HT_1024), less);
    q[2] = ht_pair_sub(ht_bits_over(__byte_perm(low, high, 0x0602), 0x00FF00FFu, HT_1024), less);
    q[3] = ht_pair_sub(ht_bits_over(__byte_perm(low, high, 0x0703), 0x00FF00FFu, HT_1024), less);
}

struct ht_pairs_Q8_0 : ht_pairs_with_factor {
    enum { CYCLES = 2, LOADS_ANY = 0, ALIKE = 1 };
    struct raw {
        uint4 q[2];
        uint32_t d[2];
    };
    template <class V>
    static __device__ __forceinline__ void visit(V &v, raw &r, const ht_cuda_weights &m, const uint8_t *row, int64_t,
                                                 int64_t i, int t) {
        const uint8_t *q = row + i * 128 + t * 16, *d = row + m.k + i * 8;
        v(r.q[0], q), v(r.q[1], q + 64);
        v(r.d[0], d), v(r.d[1], d + 4);
    }
    static __device__ __forceinline__ void pairs(const ht_cuda_weights &, const raw &r, const scale &s, int c, int h,
                                                 uint32_t *out) {
        const uint32_t d = ht_twice(ht_half_value(c ? r.d[h] >> 16 : r.d[h] & 0xFFFFu) * s.factor);
        uint32_t q[4];
        ht_byte_pairs<128>(ht_component(r.q[h], 2 * c) ^ 0x80808080u, ht_component(r.q[h], 2 * c + 1) ^ 0x80808080u, q);
#pragma unroll
        for (int j = 0; j < 4; j++) out[j] = ht_pair_mul(q[j], d);
    }
};

struct ht_pairs_Q4_K {
    enum { CYCLES = 4, LOADS_ANY = 0, ALIKE = 1 };
    struct raw {
        uint4 q[2], head;
    };
    struct scale {
        uint32_t scales[2], mins[2]; /* of 6 bits, in bytes */
        uint32_t d;                  /* d and -dmin, times the factor */
    };
    template <class V>
    static __device__ __forceinline__ void visit(V &v, raw &r, const ht_cuda_weights &m, const uint8_t *row, int64_t,
                                                 int64_t i, int t) {
        const uint8_t *q = row + i * 128 + t * 16;
        v(r.q[0], q), v(r.q[1], q + 64);
        v(r.head, row + m.k / 2 + i * 16);
    }
    /* The bits are those of ht_k_scale_min. */
    static __device__ __forceinline__ scale open(const ht_cuda_weights &, const raw &r, float factor) {
        const uint32_t a = r.head.y, b = r.head.z, both = r.head.w;
        scale s;
        s.scales[0] = a & 0x3F3F3F3Fu;
        s.scales[1] = (both & 0x0F0F0F0Fu) | (a >> 2 & 0x30303030u);
        s.mins[0] = b & 0x3F3F3F3Fu;
        s.mins[1] = (both >> 4 & 0x0F0F0F0Fu) | (b >> 2 & 0x30303030u);
        s.d = ht_pair_of(ht_half_value(r.head.x & 0xFFFFu) * factor, -(ht_half_value(r.head.x >> 16) * factor));
        return s;
    }
    static __device__ __forceinline__ void pairs(const ht_cuda_weights &, const raw &r, const scale &s, int c, int h,
                                                 uint32_t *out) {
        const uint32_t at = 2 * (uint32_t)(c & 1) + (uint32_t)h; /* group 2 c + h */
        const uint32_t both = __byte_perm(s.scales[c >> 1], s.mins[c >> 1], at | (at + 4) << 8);
        const uint32_t apart = ht_bits_over(both, 0x00FF00FFu, HT_1024);
        const uint32_t pair = ht_pair_mul(ht_pair_sub(apart, HT_1024), s.d);
        const uint32_t scale = ht_low_twice(pair), less = ht_high_twice(pair);
        uint32_t q[4];
        ht_nibble_pairs<0>(ht_component(r.q[h], c), q);
#pragma unroll
        for (int j = 0; j < 4; j++) out[j] = ht_pair_fma(q[j], scale, less);
    }
};

struct ht_pairs_Q6_K {
    enum { CYCLES = 4, LOADS_ANY = 0, ALIKE = 1 };
    struct raw {
        uint4 q[2];
        uint2 high[2];
        uint32_t scales[2], d; /* of two spans */
        int which;
    };
    struct scale {
        float d;
    };
    template <class V>
    static __device__ __forceinline__ void visit(V &v, raw &r, const ht_cuda_weights &m, const uint8_t *row, int64_t,
                                                 int64_t i, int t) {
        const uint8_t *q = row + i * 128 + t * 16, *high = row + m.k / 2 + i * 64 + t * 8;
        const uint8_t *scales = row + m.k / 2 + m.k / 4, *d = scales + m.k / 16;
        scales += i * 16 + (t >> 1) * 4;
        v(r.q[0], q), v(r.q[1], q + 64);
        v(r.high[0], high), v(r.high[1], high + 32);
        v(r.scales[0], scales), v(r.scales[1], scales + 8);
        v(r.d, d + (i >> 1) * 4); /* a row has whole words of them */
        r.which = (int)(i & 1);
    }
    static __device__ __forceinline__ scale open(const ht_cuda_weights &, const raw &r, float factor) {
        return scale{ht_half_value(r.which ? r.d >> 16 : r.d & 0xFFFFu) * factor};
    }
    static __device__ __forceinline__ void pairs(const ht_cuda_weights &, const raw &r, const scale &s, int c, int h,
                                                 uint32_t *out) {
        const uint32_t low = ht_component(r.q[h], c), high = (c < 2 ? r.high[h].x : r.high[h].y) >> 4 * (c & 1);
        const uint32_t even = (low & 0x0F0F0F0Fu) | (high << 4 & 0x30303030u); /* columns 0, 2, 4, 6 */
        const uint32_t odd = (low >> 4 & 0x0F0F0F0Fu) | (high << 2 & 0x30303030u);
        const float sc = ht_eight_of(r.scales[h] ^ 0x80808080u, c) - (HT_EIGHT_BITS + 128);
        const uint32_t d = ht_twice(s.d * sc), less = HT_1024 + 32 * 0x10001u;
        out[0] = ht_pair_mul(ht_pair_sub(ht_bits_over(even, 0x00FF00FFu, HT_1024), less), d);
        out[1] = ht_pair_mul(ht_pair_sub(ht_bits_over(odd, 0x00FF00FFu, HT_1024), less), d);
        out[2] = ht_pair_mul(ht_pair_sub(ht_bits_over(even >> 8, 0x00FF00FFu, HT_1024), less), d);
        out[3] = ht_pair_mul(ht_pair_sub(ht_bits_over(odd >> 8, 0x00FF00FFu, HT_1024), less), d);
    }
};

/* Affine groups of BITS bits: numbers, then pairs of scale and bias. */
template <int BITS> struct ht_pairs_affine : ht_pairs_with_factor {
    enum { CYCLES = 16 / BITS, LOADS_ANY = 0, ALIKE = 1 };
    struct raw {
        uint4 q[2];
        uint32_t pair[2 * CYCLES];
    };
    template <class V>
    static __device__ __forceinline__ void visit(V &v, raw &r, const ht_cuda_weights &m, const uint8_t *row, int64_t,
                                                 int64_t i, int t) {
        const uint8_t *q = row + i * 128 + t * 16;
        v(r.q[0], q), v(r.q[1], q + 64);
#pragma unroll
        for (int j = 0; j < 2 * CYCLES; j++)
            v(r.pair[j], row + m.k * BITS / 8 + ((i * CYCLES * 64 + j * 32 + t * 8) >> m.group_shift) * 4);
    }
};

struct ht_pairs_MLX4 : ht_pairs_affine<4> {
    static __device__ __forceinline__ void pairs(const ht_cuda_weights &m, const raw &r, const scale &s, int c, int h,
                                                 uint32_t *out) {
        float scale, bias;
        ht_pair_values(m, r.pair[2 * c + h], &scale, &bias);
        const uint32_t twice = ht_twice(scale * s.factor), more = ht_twice(bias * s.factor);
        uint32_t q[4];
        ht_nibble_pairs<0>(ht_component(r.q[h], c), q);
#pragma unroll
        for (int j = 0; j < 4; j++) out[j] = ht_pair_fma(q[j], twice, more);
    }
};

struct ht_pairs_MLX8 : ht_pairs_affine<8> {
    /* In f32: the bias may be a hundred times the remaining sum. */
    static __device__ __forceinline__ void pairs(const ht_cuda_weights &m, const raw &r, const scale &s, int c, int h,
                                                 uint32_t *out) {
        float scale, bias, w[8];
        ht_pair_values(m, r.pair[2 * c + h], &scale, &bias);
        const uint32_t low = ht_component(r.q[h], 2 * c), high = ht_component(r.q[h], 2 * c + 1);
#pragma unroll
        for (int k = 0; k < 4; k++) {
            w[k] = fmaf(ht_eight_of(low, k) - HT_EIGHT_BITS, scale, bias);
            w[4 + k] = fmaf(ht_eight_of(high, k) - HT_EIGHT_BITS, scale, bias);
        }
        ht_pairs_of_floats(w, s.factor, out);
    }
};

#endif
