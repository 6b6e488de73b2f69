/* Runs strips (cpu/strips.h), of the numbers in eight registers of AVX-512. */
#include "cpu/strips.h"

#include "cpu/vector/each.h"
#include "cpu/vector/each_lanes.h"
#include "cpu/vector/simd_past.h"

enum { REGISTERS = HT_STRIP / 16 };

#define EACH                                                                                                           \
    HT_UNROLL                                                                                                          \
    for (int k = 0; k < REGISTERS; k++)

#define EACH_FOUR                                                                                                      \
    HT_UNROLL                                                                                                          \
    for (int k = 0; k < REGISTERS; k += 4)

/* Blocks compare in plain C (each_float.c). */
HT_INLINE m16 equal_lanes(v16f a, v16f b) { return v16f_eq(a, b); }
HT_INLINE m16 not_equal_lanes(v16f a, v16f b) { return (m16)~v16f_eq(a, b); }
HT_INLINE m16 less_lanes(v16f a, v16f b) { return v16f_lt(a, b); }
HT_INLINE m16 less_equal_lanes(v16f a, v16f b) { return m16_or(v16f_lt(a, b), v16f_eq(a, b)); }

/* Truths of four registers as bytes, and back: what is not 0 is true. */
HT_INLINE __m512i bytes_of(const m16 m[4]) {
    const uint64_t low = (uint64_t)m[0] | (uint64_t)m[1] << 16, high = (uint64_t)m[2] | (uint64_t)m[3] << 16;
    return _mm512_maskz_set1_epi8(low | high << 32, 1);
}
HT_INLINE void load_truths(m16 m[4], const uint8_t *p) {
    const __m512i x = _mm512_loadu_si512(p);
    const uint64_t bits = _mm512_test_epi8_mask(x, x);
    for (int k = 0; k < 4; k++) m[k] = (m16)(bits >> 16 * k);
}

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

static void call(const ht_strip_step *s, char *const *places, char *to, int64_t i) {
    const ht_strip_call *c = s->call;
    const void *in[HT_STEP_INPUTS];
    for (int k = 0; k < c->n_in; k++) in[k] = places[c->place[k]] + i * c->bytes[k];
    c->fn(in, to, HT_STRIP, c->params);
}

void HT_ISA_NAME(ht_run_strips)(const ht_strip_step *list, char *const *places, int64_t n) {
    v16f a[REGISTERS];
    m16 m[REGISTERS];
    EACH a[k] = v16f_zero();
    EACH m[k] = m16_first(0);
    for (int64_t i = 0; i < n; i++)
        for (const ht_strip_step *s = list; s->code != HT_STRIP_END; s++) {
            char *at = places[s->place] + i * s->bytes + s->offset;
            float *x = (float *)(void *)at;
            uint8_t *truths = (uint8_t *)at;
            switch (s->code) {
            case HT_STRIP_LOAD: EACH a[k] = v16f_load(x + 16 * k); break;
            case HT_STRIP_STORE: EACH v16f_store(x + 16 * k, a[k]); break;
            case HT_STRIP_STORE_PAST: EACH v16f_store_past(x + 16 * k, a[k]); break;
            case HT_STRIP_LOAD_TRUTHS: EACH_FOUR load_truths(m + k, truths + 16 * k); break;
            case HT_STRIP_STORE_TRUTHS: EACH_FOUR _mm512_storeu_si512(truths + 16 * k, bytes_of(m + k)); break;
            case HT_STRIP_STORE_TRUTHS_PAST:
                EACH_FOUR _mm512_stream_si512((void *)(truths + 16 * k), bytes_of(m + k));
                break;
            case HT_STRIP_WHERE: EACH a[k] = v16f_select(m[k], a[k], v16f_load(x + 16 * k)); break;
            case HT_STRIP_ELSEWHERE: EACH a[k] = v16f_select(m[k], v16f_load(x + 16 * k), a[k]); break;
            case HT_STRIP_CALL: call(s, places, at, i); break;
            case HT_STRIP_ASK:
                for (int32_t b = 0; b < s->bytes; b += 64) HT_PREFETCH(at + b);
                break;
            case HT_STRIP_ASK_FAR:
                for (int32_t b = 0; b < s->bytes; b += 64) HT_PREFETCH_SECOND(at + b);
                break;
                HT_STRIP_OF_ONE(OF_ONE)
                HT_STRIP_FUNCTION(OF_ONE)
                HT_STRIP_OF_TWO(OF_TWO)
                HT_STRIP_COMPARED(COMPARED)
            case HT_STRIP_END: break;
            }
        }
}
