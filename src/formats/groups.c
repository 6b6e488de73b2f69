#include "formats/groups.h"

#include "base/half.h"
#include "formats/affine.h"
#include "formats/blocks.h"
#include "formats/weight_type.h"

#include <math.h>
#include <string.h>

/* Twice the E2M1 values. */
#define CODE(value) (value)
static const int8_t e2m1[16] = {HT_E2M1_VALUES(CODE)};
#undef CODE

bool ht_groups_complete(ht_quantization *how) {
    static const int32_t groups[] = {64, 32, 32, 16}, bits[] = {4, 4, 8, 4};
    if ((int)how->mode < 0 || how->mode > HT_QUANT_NVFP4) return false;
    if (how->group == 0) how->group = groups[how->mode];
    if (how->bits == 0) how->bits = bits[how->mode];
    if (how->mode == HT_QUANT_AFFINE) return ht_affine_type(how->bits, how->group, HT_W_F32) >= 0;
    return how->group == groups[how->mode] && how->bits == bits[how->mode];
}

const char *ht_groups_name(ht_quantization_mode mode) {
    static const char *const names[] = {"affine", "mxfp4", "mxfp8", "nvfp4"};
    return (int)mode >= 0 && mode <= HT_QUANT_NVFP4 ? names[mode] : "an unknown mode";
}

/* ---- dequantisation ---- */

static float e4m3(uint8_t x) {
    float y;
    ht_dequantize(HT_W_F8_E4M3, &x, 1, &y);
    return y;
}

float ht_groups_scale(ht_quantization_mode mode, ht_dtype dtype, const void *scales, int64_t i) {
    if (mode == HT_QUANT_NVFP4) return e4m3(((const uint8_t *)scales)[i]);
    if (mode != HT_QUANT_AFFINE) return 2.0f * ht_mxfp4_scale(((const uint8_t *)scales)[i]);
    switch (dtype) {
    case HT_F16: return ht_f16_to_f32(((const uint16_t *)scales)[i]);
    case HT_BF16: return ht_bf16_to_f32(((const uint16_t *)scales)[i]);
    case HT_F64: return (float)((const double *)scales)[i];
    default: return ((const float *)scales)[i];
    }
}

void ht_groups_decode(const ht_quantization *how, const uint8_t *numbers, float scale, float bias, float *out) {
    if (how->mode == HT_QUANT_MXFP8) {
        ht_dequantize(HT_W_F8_E4M3, numbers, how->group, out);
        for (int i = 0; i < how->group; i++) out[i] *= scale;
    } else if (how->mode != HT_QUANT_AFFINE) {
        for (int i = 0; i < how->group; i++) out[i] = 0.5f * (float)e2m1[numbers[i / 2] >> 4 * (i & 1) & 15] * scale;
    } else
        for (int i = 0; i < how->group; i += 8, numbers += how->bits) {
            uint64_t q = ht_affine_spread(how->bits, numbers);
            for (int k = 0; k < 8; k++) out[i + k] = scale * (float)(q >> 8 * k & 255) + bias;
        }
}

/* ---- quantisation ---- */

/* Round to nearest even; saturates. */
static uint8_t to_e4m3(float x) {
    uint8_t sign = signbit(x) ? 0x80 : 0;
    float a = fabsf(x);
    if (isnan(a)) return 0x7f;
    if (a == 0.0f) return sign;
    if (a >= 448.0f) return sign | 0x7e;
    int e;
    frexpf(a, &e);
    if (e < -5) e = -5;                   /* 2^-6: the smallest normal number */
    int q = (int)rintf(ldexpf(a, 4 - e)); /* in eighths of 2^(e - 1); a carry to 16 moves to the next exponent */
    return sign | (uint8_t)((e + 5) * 8 + q);
}

/* Nearest E2M1 code, the smaller code on ties; negative values that round to zero give +0. */
static uint8_t to_e2m1(float x) {
    uint8_t best = 0;
    float distance = INFINITY;
    for (uint8_t i = 0; i < 16; i++) {
        float d = fabsf(x - 0.5f * (float)e2m1[i]);
        if (d < distance) best = i, distance = d;
    }
    return best;
}

/* Exponent, biased by 127, of the smallest power of two that scales the largest element into the element type's
 * range. */
static uint8_t power_for(float scale) {
    if (!(scale > 0.0f)) return 127;
    float e = ceilf((float)log2((double)scale));
    return e < -127.0f ? 0 : e > 127.0f ? 254 : (uint8_t)(int)(e + 127.0f);
}

static void fit_float(const ht_quantization *how, float low, float high, ht_group *out) {
    float largest = low > high ? 0.0f : fmaxf(fabsf(low), fabsf(high));
    float scale = largest / (how->mode == HT_QUANT_MXFP8 ? 448.0f : 6.0f);
    out->code = how->mode == HT_QUANT_NVFP4 ? to_e4m3(scale) : power_for(scale);
    out->scale = ht_groups_scale(how->mode, HT_U8, &out->code, 0);
    out->bias = 0.0f;
}

/* Affine fit of MLX: the end of the range farther from 0 is exact, or else 0 is. */
static void fit_affine(const ht_quantization *how, float low, float high, ht_group *out) {
    bool from_low = fabsf(low) > fabsf(high);
    float step = (high - low) / (float)((1 << how->bits) - 1), edge = from_low ? low : high;
    float scale = step > 1e-7f ? step : 1e-7f;
    if (!from_low) scale = -scale;
    float at_zero = rintf(edge / scale);
    out->code = 0;
    out->scale = at_zero != 0.0f ? edge / at_zero : scale;
    out->bias = at_zero != 0.0f ? edge : 0.0f;
}

static void groups_fit(const ht_quantization *how, float low, float high, ht_group *out) {
    if (how->mode == HT_QUANT_AFFINE)
        fit_affine(how, low, high, out);
    else
        fit_float(how, low, high, out);
}

static void encode_float(const ht_quantization *how, const float *x, ht_group *out) {
    for (int i = 0; i < how->group; i++) {
        float v = out->scale > 0.0f ? x[i] / out->scale : 0.0f;
        if (how->mode == HT_QUANT_MXFP8)
            out->numbers[i] = to_e4m3(v);
        else
            out->numbers[i / 2] = (uint8_t)(i & 1 ? out->numbers[i / 2] | to_e2m1(v) << 4 : to_e2m1(v));
    }
}

static void encode_affine(const ht_quantization *how, const float *x, ht_group *out) {
    const float most = (float)((1 << how->bits) - 1);
    uint8_t *to = out->numbers;
    for (int i = 0; i < how->group; i += 8, to += how->bits) {
        uint64_t numbers = 0;
        for (int k = 0; k < 8; k++) {
            float q = rintf((x[i + k] - out->bias) / out->scale);
            q = q > 0.0f ? q : 0.0f; /* also for NaN */
            numbers |= (uint64_t)(q < most ? q : most) << 8 * k;
        }
        ht_affine_gather(how->bits, numbers, to);
    }
}

void ht_groups_encode(const ht_quantization *how, const float *x, ht_group *out) {
    float low = INFINITY, high = -INFINITY;
    for (int i = 0; i < how->group; i++) {
        low = x[i] < low ? x[i] : low;
        high = x[i] > high ? x[i] : high;
    }
    groups_fit(how, low, high, out);
    if (how->mode == HT_QUANT_AFFINE)
        encode_affine(how, x, out);
    else
        encode_float(how, x, out);
}
