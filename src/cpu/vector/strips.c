/* Runs strips (cpu/strips.h), whole or in halves, so that the numbers fit into the registers. */
#include "cpu/strips.h"

#include "cpu/vector/each.h"
#include "cpu/vector/each_lanes.h"
#include "cpu/vector/simd_past.h"

#if defined(HT_ISA_YMM) || defined(HT_ISA_ARM)
enum { PARTS = 2 };
#else
enum { PARTS = 1 };
#endif
enum { PART = HT_STRIP / PARTS, REGISTERS = PART / 16 };

#define EACH                                                                                                           \
    HT_UNROLL                                                                                                          \
    for (int k = 0; k < REGISTERS; k++)

#define EACH_FOUR                                                                                                      \
    HT_UNROLL                                                                                                          \
    for (int k = 0; k < REGISTERS; k += 4)

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
    for (int k = 0; k < c->n_in; k++) in[k] = places[c->place[k]] + i * (c->bytes[k] / PARTS);
    c->fn(in, to, PART, c->params);
}

void HT_ISA_NAME(ht_run_strips)(const ht_strip_step *list, char *const *places, int64_t n) {
    v16f a[REGISTERS];
    m16 m[REGISTERS];
    EACH a[k] = v16f_zero();
    EACH m[k] = m16_first(0);
    for (int64_t i = 0; i < n * PARTS; i++)
        for (const ht_strip_step *s = list; s->code != HT_STRIP_END; s++) {
            const int32_t bytes = s->bytes / PARTS;
            char *at = places[s->place] + i * bytes + s->offset;
            float *x = (float *)(void *)at;
            uint8_t *truths = (uint8_t *)at;
            switch (s->code) {
            case HT_STRIP_LOAD: EACH a[k] = v16f_load(x + 16 * k); break;
            case HT_STRIP_STORE: EACH v16f_store(x + 16 * k, a[k]); break;
            case HT_STRIP_STORE_PAST: EACH v16f_store_past(x + 16 * k, a[k]); break;
            case HT_STRIP_LOAD_TRUTHS: EACH_FOUR m16_load_4(m + k, truths + 16 * k); break;
            case HT_STRIP_STORE_TRUTHS: EACH_FOUR m16_store_4(truths + 16 * k, m + k); break;
            case HT_STRIP_STORE_TRUTHS_PAST: EACH_FOUR m16_store_4_past(truths + 16 * k, m + k); break;
            case HT_STRIP_WHERE: EACH a[k] = v16f_select(m[k], a[k], v16f_load(x + 16 * k)); break;
            case HT_STRIP_ELSEWHERE: EACH a[k] = v16f_select(m[k], v16f_load(x + 16 * k), a[k]); break;
            case HT_STRIP_CALL: call(s, places, at, i); break;
            case HT_STRIP_ASK:
                for (int32_t b = 0; b < bytes; b += 64) HT_PREFETCH(at + b);
                break;
            case HT_STRIP_ASK_FAR:
                for (int32_t b = 0; b < bytes; b += 64) HT_PREFETCH_SECOND(at + b);
                break;
                HT_STRIP_OF_ONE(OF_ONE)
                HT_STRIP_FUNCTION(OF_ONE)
                HT_STRIP_OF_TWO(OF_TWO)
                HT_STRIP_COMPARED(COMPARED)
            case HT_STRIP_END: break;
            }
        }
}
