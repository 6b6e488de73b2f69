/* Quantisation and dequantisation of groups, sixteen elements at a time, bit-identical to the plain kernels. */
#include "cpu/vector/groups.h"

#include "base/checked.h"
#include "cpu/call.h"
#include "cpu/element.h"
#include "cpu/reference/reference.h"
#include "cpu/strided_iterator.h"
#include "cpu/vector/vector.h"
#include "device/params.h"
#include "formats/affine.h"

#include <math.h>

enum { BLOCK = 256 }; /* groups per block of converted scales */

/* ---- decoding ---- */

/* Sixteen elements, packed in 2 * bits bytes. */
HT_INLINE v16f numbers_at(const uint8_t *p, group_kind kind, int bits) {
    uint64_t unpacked[2];
    if (bits == 8)
        memcpy(unpacked, p, sizeof unpacked);
    else
        for (int i = 0; i < 2; i++) unpacked[i] = ht_affine_spread(bits, p + i * bits);
    v16i codes = v16i_load_u8((const uint8_t *)unpacked);
    if (kind == GROUP_E4M3) return v16f_e4m3(codes, 0);
    /* adding 0 turns -0 into 0, as the plain kernel's e2m1 table has only one zero */
    return kind == GROUP_E2M1 ? v16f_add(v16f_e2m1(codes, 0), v16f_zero()) : v16f_from_i(codes);
}

HT_INLINE void decode_run(const ht_call *call, int64_t first, int64_t n, group_kind kind, int bits) {
    const ht_quantize_params *p = call->params;
    const group_format format = group_format_of(&p->how);
    const int group = p->how.group;
    const bool has_bias = kind == GROUP_INTEGERS && !ht_view_absent(&call->in[2]);
    float scale[BLOCK], bias[BLOCK];
    group_scales(&format, &call->in[1], first, n, scale);
    if (has_bias) group_scales(&format, &call->in[2], first, n, bias);
    const uint8_t *numbers = (const uint8_t *)call->in[0].data + first * group * bits / 8;
    int64_t at = first * group;
    for (int64_t g = 0; g < n; g++) {
        const v16f s = v16f_set1(scale[g]), b = v16f_set1(has_bias ? bias[g] : 0.0f);
        for (int i = 0; i < group; i += 16, numbers += 2 * bits, at += 16) {
            v16f x = v16f_mul(s, numbers_at(numbers, kind, bits));
            lanes_store(call->out.dtype, call->out.data, at, kind == GROUP_INTEGERS ? v16f_add(x, b) : x, 16);
        }
    }
}

/* ---- encoding ---- */

/* Loads the group of elements at `at`, and its minimum and maximum, ignoring NaN. */
HT_INLINE void load_group(const ht_view *w, int64_t at, int group, v16f *x, float *low, float *high) {
    const int64_t stride = w->stride[w->n_dims - 1];
    v16f least = v16f_set1(INFINITY), largest = v16f_set1(-INFINITY);
    for (int i = 0; i < group / 16; i++) {
        x[i] = lanes_load(w->dtype, w->data, at + 16 * i * stride, stride, 16);
        least = v16f_min(x[i], least);
        largest = v16f_max(x[i], largest);
    }
    *low = -v16f_hmax(v16f_neg(least));
    *high = v16f_hmax(largest);
}

/* e2m1 codes: counts the thresholds, midpoints between adjacent values, below the magnitude. */
HT_INLINE v16i e2m1_codes(v16f v) {
    static const float turn[7] = {0.25f, 0.75f, 1.25f, 1.75f, 2.5f, 3.5f, 5.0f};
    const v16f magnitude = v16f_abs(v), one = v16f_from_bits(v16i_set1(1)), none = v16f_zero();
    v16i code = v16i_set1(0);
    for (int i = 0; i < 7; i++)
        code = v16i_add(code, v16f_bits(v16f_select(v16f_gt(magnitude, v16f_set1(turn[i])), one, none)));
    const v16f sign = v16f_from_bits(v16i_and(v16i_shr(v16f_bits(v), 28), v16i_set1(8)));
    return v16i_or(code, v16f_bits(v16f_select(v16f_gt(magnitude, v16f_set1(turn[0])), sign, v16f_zero())));
}

/* e4m3 codes, rounded to nearest even as in the plain kernel. */
HT_INLINE v16i e4m3_codes(v16f v) {
    const v16f magnitude = v16f_abs(v);
    const v16i sign = v16i_and(v16i_shr(v16f_bits(v), 24), v16i_set1(0x80));
    /* The magnitude is in [2^(e - 1), 2^e); below 2^-6 the code counts steps of 2^-9. */
    v16i e = v16i_max(v16i_sub(v16i_shr(v16f_bits(magnitude), 23), v16i_set1(126)), v16i_set1(-5));
    v16f eighths = v16f_round(v16f_scale(magnitude, v16f_from_i(v16i_sub(v16i_set1(4), e))));
    v16i code = v16i_add(v16i_shl(v16i_add(e, v16i_set1(5)), 3), v16i_from_f(eighths));
    const v16f most = v16f_from_bits(v16i_set1(0x7e)), nan = v16f_from_bits(v16i_set1(0x7f));
    code = v16f_bits(v16f_select(v16f_lt(magnitude, v16f_set1(448.0f)), v16f_from_bits(code), most));
    code = v16i_or(code, sign);
    return v16f_bits(v16f_select(v16f_is_nan(v), nan, v16f_from_bits(code)));
}

HT_INLINE v16i codes_of(v16f x, const ht_group *g, group_kind kind, int bits) {
    if (kind == GROUP_INTEGERS) {
        v16f q = v16f_round(v16f_div(v16f_sub(x, v16f_set1(g->bias)), v16f_set1(g->scale)));
        q = v16f_max(q, v16f_zero()); /* also replaces NaN */
        return v16i_from_f(v16f_min(q, v16f_set1((float)((1 << bits) - 1))));
    }
    v16f v = g->scale > 0.0f ? v16f_div(x, v16f_set1(g->scale)) : v16f_zero();
    return kind == GROUP_E2M1 ? e2m1_codes(v) : e4m3_codes(v);
}

HT_INLINE void store_codes(uint8_t *to, v16i codes, int bits) {
    int32_t lane[16];
    uint8_t byte[16];
    uint64_t numbers[2];
    v16i_store(lane, codes);
    for (int i = 0; i < 16; i++) byte[i] = (uint8_t)lane[i];
    memcpy(numbers, byte, sizeof numbers);
    for (int i = 0; i < 2; i++) ht_affine_gather(bits, numbers[i], to + i * bits);
}

HT_INLINE void store_numbers(uint8_t *to, const v16f *x, const ht_group *g, int group, group_kind kind, int bits) {
    for (int i = 0; i < group / 16; i++) store_codes(to + 2 * bits * i, codes_of(x[i], g, kind, bits), bits);
}

/* Whether f32 resolves the distances of all elements to the e2m1 values; otherwise the plain kernel chooses the
 * codes. */
static bool in_range(const ht_group *g, float low, float high) {
    const float most = 0x1p18f * g->scale;
    return -low < most && high < most;
}

HT_INLINE void encode_run(const ht_call *call, int64_t first, int64_t n, group_kind kind, int bits) {
    const ht_quantize_params *p = call->params;
    const ht_view *w = &call->in[0], *out = &call->out;
    const int last = w->n_dims - 1, group = p->how.group;
    const int64_t per_row = w->shape[last] / group, group_bytes = group * bits / 8;
    int64_t row = first / per_row, in_row = first % per_row, from = ht_view_offset(w, last, row);
    for (int64_t g = first; g < first + n; g++, in_row++) {
        if (in_row == per_row) {
            in_row = 0;
            from = ht_view_offset(w, last, ++row);
        }
        ht_group fit;
        v16f x[HT_GROUP_MOST / 16];
        float low, high;
        load_group(w, from + in_row * group * w->stride[last], group, x, &low, &high);
        ht_groups_fit(&p->how, low, high, &fit);
        uint8_t *numbers = (uint8_t *)out->data + g * group_bytes;
        if (p->part == 0 && (kind != GROUP_E2M1 || in_range(&fit, low, high)))
            store_numbers(numbers, x, &fit, group, kind, bits);
        else if (p->part == 0) {
            float plain[HT_GROUP_MOST];
            for (int i = 0; i < group / 16; i++) v16f_store(plain + 16 * i, x[i]);
            ht_groups_encode(&p->how, plain, &fit);
            memcpy(numbers, fit.numbers, (size_t)group_bytes);
        } else if (kind == GROUP_INTEGERS)
            ht_set_f32(out->dtype, out->data, g, p->part == 1 ? fit.scale : fit.bias);
        else
            ((uint8_t *)out->data)[g] = fit.code;
    }
}

/* ---- kernel table ---- */

#define RUNS(kind, bits)                                                                                               \
    static void decode_##kind##_##bits(const ht_call *call, int64_t first, int64_t n) {                                \
        decode_run(call, first, n, kind, bits);                                                                        \
    }                                                                                                                  \
    static void encode_##kind##_##bits(const ht_call *call, int64_t first, int64_t n) {                                \
        encode_run(call, first, n, kind, bits);                                                                        \
    }
GROUP_FORMATS(RUNS)

typedef void run_fn(const ht_call *call, int64_t first, int64_t n);

static run_fn *run_of(const ht_call *call, bool encodes) {
    const group_format f = group_format_of(&((const ht_quantize_params *)call->params)->how);
#define CHOOSE(of_kind, of_bits)                                                                                       \
    if (f.kind == of_kind && f.bits == of_bits)                                                                        \
        return encodes ? encode_##of_kind##_##of_bits : decode_##of_kind##_##of_bits;
    GROUP_FORMATS(CHOOSE)
#undef CHOOSE
    return NULL;
}

typedef struct job {
    const ht_call *call;
    run_fn *run;
} job;

static void run_groups(void *arg, int64_t begin, int64_t end, int worker) {
    (void)worker;
    const job *j = arg;
    for (int64_t g = begin; g < end; g += BLOCK) j->run(j->call, g, ht_min_i64(BLOCK, end - g));
}

static ht_status run(const ht_call *call, int64_t elements, bool encodes) {
    const int32_t group = ((const ht_quantize_params *)call->params)->how.group;
    job j = {call, run_of(call, encodes)};
    ht_pool_run(ht_call_pool(call), elements / group, ht_row_grain(HT_GRAIN_MATH, group), run_groups, &j);
    return HT_OK;
}

static bool scales_supported(const ht_call *call) {
    const bool affine = ((const ht_quantize_params *)call->params)->how.mode == HT_QUANT_AFFINE;
    return !affine ||
           (lanes_supports(call->in[1].dtype) && (ht_view_absent(&call->in[2]) || lanes_supports(call->in[2].dtype)));
}

static ht_status quantize(const ht_call *call, ht_error *err) {
    const bool supported = lanes_supports(call->in[0].dtype);
    return supported ? run(call, ht_view_size(&call->in[0]), true) : ht_plain_quantize(call, err);
}

static ht_status dequantize(const ht_call *call, ht_error *err) {
    const bool supported = lanes_supports(call->out.dtype) && scales_supported(call);
    return supported ? run(call, ht_view_size(&call->out), false) : ht_plain_dequantize(call, err);
}

void HT_ISA_NAME(ht_vector_groups)(ht_kernel kernels[HT_OP_COUNT]) {
    kernels[HT_OP_QUANTIZE].run = quantize;
    kernels[HT_OP_DEQUANTIZE].run = dequantize;
}
