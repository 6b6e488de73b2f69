/* Runs strips (cpu/strips.h), with the numbers in eight registers: of AVX-512 all of a strip, of AVX2 half of it, so that eight
 * are left to compute in. */
#include "cpu/strips.h"

#include "cpu/vector/each.h"
#include "cpu/vector/each_lanes.h"
#include "cpu/vector/simd_past.h"

#if defined(HT_ISA_avx512)
enum { AT_A_TIME = HT_STRIP };
#else
enum { AT_A_TIME = HT_STRIP / 2 };
#endif
enum { PARTS = HT_STRIP / AT_A_TIME, REGISTERS = AT_A_TIME / 16 };

#define EACH                                                                                                           \
    HT_UNROLL                                                                                                          \
    for (int k = 0; k < REGISTERS; k++)

#define EACH_FOUR                                                                                                      \
    HT_UNROLL                                                                                                          \
    for (int k = 0; k < REGISTERS; k += 4)

/* Blocks compare in plain C (each_float.c). */
HT_INLINE m16 equal_lanes(v16f a, v16f b) { return v16f_eq(a, b); }
HT_INLINE m16 less_lanes(v16f a, v16f b) { return v16f_lt(a, b); }
HT_INLINE m16 less_equal_lanes(v16f a, v16f b) { return m16_or(v16f_lt(a, b), v16f_eq(a, b)); }

#if defined(HT_ISA_avx512)
HT_INLINE m16 not_equal_lanes(v16f a, v16f b) { return (m16)~v16f_eq(a, b); }

/* Truths of four registers as bytes, and back: what is not 0 is true. */
HT_INLINE __m512i bytes_of(const m16 m[4]) {
    const uint64_t low = (uint64_t)m[0] | (uint64_t)m[1] << 16, high = (uint64_t)m[2] | (uint64_t)m[3] << 16;
    return _mm512_maskz_set1_epi8(low | high << 32, 1);
}
HT_INLINE void store_truths(uint8_t *p, const m16 m[4]) { _mm512_storeu_si512(p, bytes_of(m)); }
HT_INLINE void store_truths_past(uint8_t *p, const m16 m[4]) { _mm512_stream_si512((void *)p, bytes_of(m)); }
HT_INLINE void load_truths(m16 m[4], const uint8_t *p) {
    const __m512i x = _mm512_loadu_si512(p);
    const uint64_t bits = _mm512_test_epi8_mask(x, x);
    for (int k = 0; k < 4; k++) m[k] = (m16)(bits >> 16 * k);
}
#else
HT_INLINE m16 not_equal_lanes(v16f a, v16f b) {
    return (m16){_mm256_cmp_ps(a.a, b.a, _CMP_NEQ_UQ), _mm256_cmp_ps(a.b, b.b, _CMP_NEQ_UQ)};
}

HT_INLINE __m128i bytes_of(m16 m) {
    const __m256i words = _mm256_packs_epi32(_mm256_castps_si256(m.a), _mm256_castps_si256(m.b));
    const __m256i in_order = _mm256_permute4x64_epi64(words, 0xd8);
    const __m128i all = _mm_packs_epi16(_mm256_castsi256_si128(in_order), _mm256_extracti128_si256(in_order, 1));
    return _mm_and_si128(all, _mm_set1_epi8(1));
}
HT_INLINE void store_truths(uint8_t *p, const m16 m[4]) {
    HT_UNROLL
    for (int k = 0; k < 4; k++) _mm_storeu_si128((__m128i *)(void *)(p + 16 * k), bytes_of(m[k]));
}
HT_INLINE void store_truths_past(uint8_t *p, const m16 m[4]) {
    HT_UNROLL
    for (int k = 0; k < 4; k++) _mm_stream_si128((__m128i *)(void *)(p + 16 * k), bytes_of(m[k]));
}
HT_INLINE void load_truths(m16 m[4], const uint8_t *p) {
    HT_UNROLL
    for (int k = 0; k < 4; k++) {
        const __m128i x = _mm_loadu_si128((const __m128i *)(const void *)(p + 16 * k));
        const __m128i none = _mm_cmpeq_epi8(x, _mm_setzero_si128()), all = _mm_xor_si128(none, _mm_set1_epi8(-1));
        m[k].a = _mm256_castsi256_ps(_mm256_cvtepi8_epi32(all));
        m[k].b = _mm256_castsi256_ps(_mm256_cvtepi8_epi32(_mm_srli_si128(all, 8)));
    }
}
#endif

#define OF_ONE(id, name)                                                                                               \
    case HT_STRIP_##id: {                                                                                              \
        const v16f p = v16f_set1(s->value);                                                                            \
        EACH a[k] = name##_lanes(a[k], p);                                                                             \
        break;                                                                                                         \
    }
#define OF_TWO_TO(to, id, name)                                                                                        \
    case HT_STRIP_##id: EACH to[k] = name##_lanes(a[k], v16f_load(x + 16 * k)); break;                                 \
    case HT_STRIP_##id##_TO: EACH to[k] = name##_lanes(v16f_load(x + 16 * k), a[k]); break;                            \
    case HT_STRIP_##id##_SELF:                                                                                         \
        EACH to[k] = name##_lanes(a[k], a[k]);                                                                         \
        break;
#define OF_TWO(id, name)   OF_TWO_TO(a, id, name)
#define COMPARED(id, name) OF_TWO_TO(m, id, name)

/* The elements from `from` on of strip i. */
static void call(const ht_strip_step *s, char *const *places, char *to, int64_t i, int64_t from) {
    const ht_strip_call *c = s->call;
    const void *in[HT_STEP_INPUTS];
    for (int k = 0; k < c->n_in; k++) in[k] = places[c->place[k]] + i * c->bytes[k] + from * c->element[k];
    c->fn(in, to + from * c->to_element, AT_A_TIME, c->params);
}

void HT_ISA_NAME(ht_run_strips)(const ht_strip_step *list, char *const *places, int64_t n) {
    v16f a[REGISTERS];
    m16 m[REGISTERS];
    EACH a[k] = v16f_zero();
    EACH m[k] = m16_first(0);
    for (int64_t part = 0; part < n * PARTS; part++) {
        const int64_t i = part / PARTS, from = part % PARTS * AT_A_TIME;
        for (const ht_strip_step *s = list; s->code != HT_STRIP_END; s++) {
            char *at = places[s->place] + i * s->bytes + s->offset;
            float *x = (float *)(void *)at + from;
            uint8_t *truths = (uint8_t *)at + from;
            switch (s->code) {
            case HT_STRIP_LOAD: EACH a[k] = v16f_load(x + 16 * k); break;
            case HT_STRIP_STORE: EACH v16f_store(x + 16 * k, a[k]); break;
            case HT_STRIP_STORE_PAST: EACH v16f_store_past(x + 16 * k, a[k]); break;
            case HT_STRIP_LOAD_TRUTHS: EACH_FOUR load_truths(m + k, truths + 16 * k); break;
            case HT_STRIP_STORE_TRUTHS: EACH_FOUR store_truths(truths + 16 * k, m + k); break;
            case HT_STRIP_STORE_TRUTHS_PAST: EACH_FOUR store_truths_past(truths + 16 * k, m + k); break;
            case HT_STRIP_WHERE: EACH a[k] = v16f_select(m[k], a[k], v16f_load(x + 16 * k)); break;
            case HT_STRIP_ELSEWHERE: EACH a[k] = v16f_select(m[k], v16f_load(x + 16 * k), a[k]); break;
            case HT_STRIP_CALL: call(s, places, at, i, from); break;
            case HT_STRIP_ASK:
                for (int32_t b = (int32_t)(part % PARTS) * 64; b < s->bytes; b += 64 * PARTS) HT_PREFETCH(at + b);
                break;
            case HT_STRIP_ASK_FAR:
                for (int32_t b = (int32_t)(part % PARTS) * 64; b < s->bytes; b += 64 * PARTS)
                    HT_PREFETCH_SECOND(at + b);
                break;
                HT_STRIP_OF_ONE(OF_ONE)
                HT_STRIP_FUNCTION(OF_ONE)
                HT_STRIP_OF_TWO(OF_TWO)
                HT_STRIP_COMPARED(COMPARED)
            case HT_STRIP_END: break;
            }
        }
    }
}
