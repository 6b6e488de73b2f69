/* Quantised groups (formats/groups.h) on the device, with the CPU's bits. */
#ifndef HT_CUDA_GROUPS_CUH
#define HT_CUDA_GROUPS_CUH

#include "cuda/kernel.cuh"
#include "cuda/product.h"

enum { HT_CUDA_AFFINE, HT_CUDA_MXFP4, HT_CUDA_MXFP8, HT_CUDA_NVFP4 }; /* ht_quantization_mode */

/* Elements that pack to whole bytes: one byte per bit of an element. */
enum { HT_CUDA_UNIT = 8 };

/* ---- dequantisation ---- */

static inline __device__ float ht_e4m3(uint8_t x) {
    const int magnitude = x & 127;
    const float value = magnitude == 127 ? NAN : ht_f16_to_f32((uint16_t)(magnitude << 7)) * 256.0f;
    return x >> 7 ? -value : value;
}

/* Twice the value of an e2m1 code; there is no -0. */
static inline __device__ float ht_e2m1_doubled(unsigned code) {
    const int value = (int)(0xC8643210u >> 4 * (code & 7) & 15);
    return (float)(code & 8 ? -value : value);
}

/* Element i of the scales or biases: its bits, as they are in memory, or those of an f32 instead of an f64. */
static inline __device__ uint32_t ht_group_scale_bits(int mode, ht_dtype dtype, const void *scales, int64_t i) {
    if (mode != HT_CUDA_AFFINE) return ((const uint8_t *)scales)[i];
    switch (dtype) {
    case HT_F16:
    case HT_BF16: return ((const uint16_t *)scales)[i];
    case HT_F64: return ht_float_bits((float)((const double *)scales)[i]);
    default: return ((const uint32_t *)scales)[i];
    }
}

static inline __device__ float ht_group_scale_of(int mode, ht_dtype dtype, uint32_t bits) {
    if (mode == HT_CUDA_NVFP4) return ht_e4m3((uint8_t)bits);
    if (mode != HT_CUDA_AFFINE) return 2.0f * ht_float_from_bits(bits < 2 ? 0x00200000u << bits : (bits - 1) << 23);
    return dtype == HT_F16    ? ht_f16_to_f32((uint16_t)bits)
           : dtype == HT_BF16 ? ht_bf16_to_f32((uint16_t)bits)
                              : ht_float_from_bits(bits);
}

static inline __device__ float ht_group_scale(int mode, ht_dtype dtype, const void *scales, int64_t i) {
    return ht_group_scale_of(mode, dtype, ht_group_scale_bits(mode, dtype, scales, i));
}

static inline __device__ float ht_group_element(int mode, unsigned q, float scale, float bias) {
    if (mode == HT_CUDA_AFFINE) return scale * (float)q + bias;
    return (mode == HT_CUDA_MXFP8 ? ht_e4m3((uint8_t)q) : 0.5f * ht_e2m1_doubled(q)) * scale;
}

/* The bits of a unit, which begins at a multiple of `bits` bytes from an address of whole words. */
static inline __device__ uint64_t ht_group_unit(int bits, const uint8_t *p) {
    const uint16_t *halves = (const uint16_t *)p;
    const uint32_t *words = (const uint32_t *)p;
    uint64_t x = 0;
    switch (bits) {
    case 2: return halves[0];
    case 4: return words[0];
    case 6: return halves[0] | (uint64_t)halves[1] << 16 | (uint64_t)halves[2] << 32;
    case 8: return words[0] | (uint64_t)words[1] << 32;
    default:
        for (int i = 0; i < bits; i++) x |= (uint64_t)p[i] << 8 * i;
        return x;
    }
}

/* ---- quantisation ---- */

typedef struct ht_group_fit {
    float scale, bias;
    uint8_t code; /* of an 8-bit scale */
} ht_group_fit;

/* Round to nearest even; saturates. */
static inline __device__ uint8_t ht_to_e4m3(float x) {
    const uint8_t sign = signbit(x) ? 0x80 : 0;
    const float a = fabsf(x);
    if (isnan(a)) return 0x7f;
    if (a == 0.0f) return sign;
    if (a >= 448.0f) return (uint8_t)(sign | 0x7e);
    int e;
    frexpf(a, &e);
    if (e < -5) e = -5;                         /* 2^-6: the smallest normal number */
    const int q = (int)rintf(ldexpf(a, 4 - e)); /* in eighths of 2^(e - 1); a carry to 16 moves to the next exponent */
    return (uint8_t)(sign | ((e + 5) * 8 + q));
}

/* Nearest E2M1 code, the smaller code on ties; negative values that round to zero give +0. */
static inline __device__ unsigned ht_to_e2m1(float x) {
    unsigned best = 0;
    float distance = INFINITY;
    for (unsigned i = 0; i < 16; i++) {
        const float d = fabsf(x - 0.5f * ht_e2m1_doubled(i));
        if (d < distance) {
            best = i;
            distance = d;
        }
    }
    return best;
}

static inline __device__ uint8_t ht_power_for(float scale) {
    if (!(scale > 0.0f)) return 127;
    const float e = ceilf((float)log2((double)scale));
    return e < -127.0f ? 0 : e > 127.0f ? 254 : (uint8_t)(int)(e + 127.0f);
}

static inline __device__ ht_group_fit ht_fit_affine(int bits, float low, float high) {
    const bool from_low = fabsf(low) > fabsf(high);
    const float step = (high - low) / (float)((1 << bits) - 1), edge = from_low ? low : high;
    float scale = step > 1e-7f ? step : 1e-7f;
    if (!from_low) scale = -scale;
    const float at_zero = rintf(edge / scale);
    ht_group_fit fit;
    fit.code = 0;
    fit.scale = at_zero != 0.0f ? edge / at_zero : scale;
    fit.bias = at_zero != 0.0f ? edge : 0.0f;
    return fit;
}

/* Fits a group with this minimum and maximum, NaNs excluded. */
static inline __device__ ht_group_fit ht_fit_group(const ht_cuda_quantization &how, float low, float high) {
    if (how.mode == HT_CUDA_AFFINE) return ht_fit_affine(how.bits, low, high);
    const float largest = low > high ? 0.0f : fmaxf(fabsf(low), fabsf(high));
    const float scale = largest / (how.mode == HT_CUDA_MXFP8 ? 448.0f : 6.0f);
    ht_group_fit fit;
    fit.code = how.mode == HT_CUDA_NVFP4 ? ht_to_e4m3(scale) : ht_power_for(scale);
    fit.scale = ht_group_scale(how.mode, HT_U8, &fit.code, 0);
    fit.bias = 0.0f;
    return fit;
}

static inline __device__ unsigned ht_quantized(const ht_cuda_quantization &how, const ht_group_fit &fit, float x) {
    if (how.mode == HT_CUDA_AFFINE) {
        const float most = (float)((1 << how.bits) - 1);
        float q = rintf((x - fit.bias) / fit.scale);
        q = q > 0.0f ? q : 0.0f; /* also for NaN */
        return (unsigned)(q < most ? q : most);
    }
    const float v = fit.scale > 0.0f ? x / fit.scale : 0.0f;
    return how.mode == HT_CUDA_MXFP8 ? ht_to_e4m3(v) : ht_to_e2m1(v);
}

#endif
