/* Runs strips (cpu/strips.h), with the numbers in eight registers: of AVX-512 all of a strip, of AVX2 half of it, so that eight
 * are left to compute in. Every step is a function that takes the registers as arguments and ends by calling the next one's,
 * which compilers make a jump, so that they stay where they are; where one does not, calls are as deep as a list is long. */
#include "cpu/strips.h"

#include "cpu/vector/each.h"
#include "cpu/vector/each_lanes.h"
#include "cpu/vector/simd_past.h"

#if defined(HT_ISA_avx512)
enum { AT_A_TIME = HT_STRIP };
typedef __m512 register_f32;
#define TAKEN                                                                                                          \
    { r0, r1, r2, r3, r4, r5, r6, r7 }
#define GIVEN a[0], a[1], a[2], a[3], a[4], a[5], a[6], a[7]
#else
enum { AT_A_TIME = HT_STRIP / 2 };
typedef __m256 register_f32;
#define TAKEN                                                                                                          \
    {                                                                                                                  \
        {r0, r1}, {r2, r3}, {r4, r5}, { r6, r7 }                                                                       \
    }
#define GIVEN a[0].a, a[0].b, a[1].a, a[1].b, a[2].a, a[2].b, a[3].a, a[3].b
#endif
enum { PARTS = HT_STRIP / AT_A_TIME, REGISTERS = AT_A_TIME / 16 };

/* A step of a list whose places are known. */
typedef struct step step;

/* What all steps of a part share: the truths, and for calls where the places are. */
typedef struct common {
    char *const *places;
    m16 m[REGISTERS];
} common;

#define STATE                                                                                                          \
    const step *s, common *c, int64_t part, register_f32 r0, register_f32 r1, register_f32 r2, register_f32 r3,        \
        register_f32 r4, register_f32 r5, register_f32 r6, register_f32 r7
typedef void step_fn(STATE);

struct step {
    step_fn *fn;
    char *at[HT_AT_COUNT];      /* for the first part, */
    int64_t bytes[HT_AT_COUNT]; /* and from one part to the next */
    float value[2];
    const ht_strip_step *of;
};

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

#define AT(k) (s->at[k] + part * s->bytes[k])

/* A step: what it does to `a`, the numbers, or c->m, the truths. */
#define STEP(id, ...)                                                                                                  \
    static void step_##id(STATE) {                                                                                     \
        v16f a[REGISTERS] = TAKEN;                                                                                     \
        __VA_ARGS__;                                                                                                   \
        s++;                                                                                                           \
        s->fn(s, c, part, GIVEN);                                                                                      \
    }

static void step_END(STATE) {
    (void)s, (void)c, (void)part;
    (void)r0, (void)r1, (void)r2, (void)r3, (void)r4, (void)r5, (void)r6, (void)r7;
}

/* Register k of a part in memory: by halves from its beginning, as otherwise gcc keeps an address for every k. */
#if defined(HT_ISA_avx512)
HT_INLINE v16f part_load(const float *x, int k) { return v16f_load(x + 16 * k); }
HT_INLINE void part_store(float *to, int k, v16f a) { v16f_store(to + 16 * k, a); }
HT_INLINE void part_store_past(float *to, int k, v16f a) { v16f_store_past(to + 16 * k, a); }
#else
HT_INLINE v16f part_load(const float *x, int k) {
    return (v16f){_mm256_loadu_ps(x + 16 * k), _mm256_loadu_ps(x + (16 * k + 8))};
}
HT_INLINE void part_store(float *to, int k, v16f a) {
    _mm256_storeu_ps(to + 16 * k, a.a);
    _mm256_storeu_ps(to + (16 * k + 8), a.b);
}
HT_INLINE void part_store_past(float *to, int k, v16f a) {
    _mm256_stream_ps(to + 16 * k, a.a);
    _mm256_stream_ps(to + (16 * k + 8), a.b);
}
#endif

/* ---- steps of few instructions ---- */

HT_INLINE v16f subtract_to_lanes(v16f a, v16f b) { return subtract_lanes(b, a); }
HT_INLINE v16f divide_to_lanes(v16f a, v16f b) { return divide_lanes(b, a); }
HT_INLINE v16f minimum_to_lanes(v16f a, v16f b) { return minimum_lanes(b, a); }
HT_INLINE v16f maximum_to_lanes(v16f a, v16f b) { return maximum_lanes(b, a); }

HT_INLINE v16f light_lanes(ht_strip_light what, v16f a, const float *x, int k, v16f value) {
#define CASE(id, name)                                                                                                 \
    case HT_LIGHT_##id: return name##_lanes(a, HT_LIGHT_##id == HT_LIGHT_SCALE ? value : part_load(x, k));
    switch (what) { HT_STRIP_LIGHT_OF(CASE) HT_STRIP_LIGHT_FIRST(CASE) default : return a; }
#undef CASE
}

HT_INLINE void light(bool loads, ht_strip_light first, ht_strip_light second, ht_strip_store store, const step *s,
                     int64_t part, v16f a[REGISTERS]) {
    const float *const x = (const void *)AT(HT_AT_LOAD), *const y = (const void *)AT(HT_AT_FIRST);
    const float *const z = (const void *)AT(HT_AT_SECOND);
    float *const to = (void *)AT(HT_AT_STORE);
    const v16f y_value = v16f_set1(s->value[0]), z_value = v16f_set1(s->value[1]);
    EACH {
        if (loads) a[k] = part_load(x, k);
        a[k] = light_lanes(first, a[k], y, k, y_value);
        a[k] = light_lanes(second, a[k], z, k, z_value);
        if (store == HT_STORE_THERE) part_store(to, k, a[k]);
        if (store == HT_STORE_PAST) part_store_past(to, k, a[k]);
    }
}

/* All of them: X(loads, first, second, store). */
#define LIGHT_STORES(X, loads, first, second)                                                                          \
    X(loads, first, second, NOTHING) X(loads, first, second, THERE) X(loads, first, second, PAST)
#define LIGHT_SECONDS(X, loads, first)                                                                                 \
    LIGHT_STORES(X, loads, first, NOTHING)                                                                             \
    LIGHT_STORES(X, loads, first, ADD)                                                                                 \
    LIGHT_STORES(X, loads, first, SUBTRACT)                                                                            \
    LIGHT_STORES(X, loads, first, SUBTRACT_TO)                                                                         \
    LIGHT_STORES(X, loads, first, MULTIPLY)                                                                            \
    LIGHT_STORES(X, loads, first, MINIMUM)                                                                             \
    LIGHT_STORES(X, loads, first, MAXIMUM)                                                                             \
    LIGHT_STORES(X, loads, first, SCALE)
#define LIGHT_FIRSTS(X, loads)                                                                                         \
    LIGHT_STORES(X, loads, NOTHING, NOTHING)                                                                           \
    LIGHT_SECONDS(X, loads, ADD)                                                                                       \
    LIGHT_SECONDS(X, loads, SUBTRACT)                                                                                  \
    LIGHT_SECONDS(X, loads, SUBTRACT_TO)                                                                               \
    LIGHT_SECONDS(X, loads, MULTIPLY)                                                                                  \
    LIGHT_SECONDS(X, loads, MINIMUM)                                                                                   \
    LIGHT_SECONDS(X, loads, MAXIMUM)                                                                                   \
    LIGHT_SECONDS(X, loads, SCALE)                                                                                     \
    LIGHT_SECONDS(X, loads, DIVIDE)                                                                                    \
    LIGHT_SECONDS(X, loads, DIVIDE_TO)                                                                                 \
    LIGHT_SECONDS(X, loads, MINIMUM_TO)                                                                                \
    LIGHT_SECONDS(X, loads, MAXIMUM_TO)
#define EVERY_LIGHT(X) LIGHT_FIRSTS(X, false) LIGHT_FIRSTS(X, true)

#define LIGHT_NAME(loads, first, second, store) step_light_##loads##_##first##_##second##_##store
#define LIGHT_STEP(loads, first, second, store)                                                                        \
    STEP(light_##loads##_##first##_##second##_##store,                                                                 \
         light(loads, HT_LIGHT_##first, HT_LIGHT_##second, HT_STORE_##store, s, part, a))
EVERY_LIGHT(LIGHT_STEP)
_Static_assert(HT_LIGHT_SECONDS == 8 && HT_LIGHT_COUNT == 12, "each operation has its steps");

#define LIGHT_ENTRY(loads, first, second, store)                                                                       \
    [loads][HT_LIGHT_##first][HT_LIGHT_##second][HT_STORE_##store] = LIGHT_NAME(loads, first, second, store),
static step_fn *const light_steps[2][HT_LIGHT_COUNT][HT_LIGHT_SECONDS][HT_STORE_COUNT] = {EVERY_LIGHT(LIGHT_ENTRY)};

/* ---- powers ---- */

#if defined(HT_ISA_YMM)
/* What v16f_exp computes with. Most of it stays in memory, as there are few registers beside eight of numbers. */
#define EIGHT(x)                                                                                                       \
    { x, x, x, x, x, x, x, x }
typedef struct exp_constants {
    float lowest[8], log2_e[8], shift[8], ln2_high[8], ln2_low[8], third[8], second[8];
    int32_t power[16];
} exp_constants;
static const _Alignas(64) exp_constants exp_in_eights = {EIGHT(HT_EXP_LEAST_UNSCALED),
                                                         EIGHT(HT_LOG2_E),
                                                         EIGHT(HT_POWER_SHIFT),
                                                         EIGHT(HT_LN2_HIGH),
                                                         EIGHT(HT_LN2_LOW),
                                                         EIGHT(HT_POWER_3),
                                                         EIGHT(HT_POWER_2),
                                                         HT_UNSCALED_POWERS};

/* v16f_exp of eight that need no scaling. */
HT_INLINE __m256 exp_of_eight(__m256 x, __m256 shift, __m256 ln2_high) {
    const exp_constants *of = &exp_in_eights;
    __asm__("" : "+r"(of), "+x"(x)); /* or compilers would keep all of it in registers, and numbers in memory */
    const float *table = (const float *)(const void *)of->power;
    const __m256 near = _mm256_max_ps(_mm256_load_ps(of->lowest), x);
    const __m256 shifted = _mm256_fmadd_ps(near, _mm256_load_ps(of->log2_e), shift);
    const __m256i bits = _mm256_castps_si256(shifted);
    const __m256i fraction = ht_choose_16(_mm256_load_ps(table), _mm256_load_ps(table + 8), bits);
    const __m256 power = _mm256_castsi256_ps(_mm256_add_epi32(fraction, _mm256_slli_epi32(bits, 19)));
    const __m256 n = _mm256_sub_ps(shifted, shift);
    const __m256 r = _mm256_fnmadd_ps(n, _mm256_load_ps(of->ln2_low), _mm256_fnmadd_ps(n, ln2_high, near));
    const __m256 q = _mm256_fmadd_ps(_mm256_load_ps(of->third), r, _mm256_load_ps(of->second));
    return _mm256_fmadd_ps(power, _mm256_fmadd_ps(_mm256_mul_ps(r, r), q, r), power);
}

/* Whether some power has to be scaled. Bits are compared as integers, so a NaN with a sign counts as small: what is unscaled of
 * it is NaN, too. */
HT_INLINE bool is_scaled(const v16f a[REGISTERS]) {
    v16i most = v16f_bits(a[0]);
    HT_UNROLL
    for (int k = 1; k < REGISTERS; k++) most = v16i_max(most, v16f_bits(a[k]));
    const __m256i highest = _mm256_castps_si256(_mm256_set1_ps(HT_EXP_MOST_UNSCALED));
    return _mm256_movemask_epi8(_mm256_cmpgt_epi32(_mm256_max_epi32(most.a, most.b), highest)) != 0;
}

/* Any of the steps below, after what it does first, where that is so, which is rare: these have no place for it. */
__attribute__((noinline)) static void step_exp_scaled(STATE) {
    v16f a[REGISTERS] = TAKEN;
    EACH a[k] = v16f_exp_scaled(a[k]);
    light(false, HT_LIGHT_NOTHING, s->of->light[1], s->of->store, s, part, a);
    s++;
    s->fn(s, c, part, GIVEN);
}

HT_INLINE void exp_of_part(v16f a[REGISTERS]) {
    const __m256 shift = _mm256_load_ps(exp_in_eights.shift), ln2_high = _mm256_load_ps(exp_in_eights.ln2_high);
    EACH a[k] = (v16f){exp_of_eight(a[k].a, shift, ln2_high), exp_of_eight(a[k].b, shift, ln2_high)};
}
#else
HT_INLINE void exp_of_part(v16f a[REGISTERS]) { EACH a[k] = v16f_exp(a[k]); }
#endif

HT_INLINE void exp_step(ht_strip_light first, ht_strip_light second, ht_strip_store store, STATE) {
    v16f a[REGISTERS] = TAKEN;
    light(false, first, HT_LIGHT_NOTHING, HT_STORE_NOTHING, s, part, a);
#if defined(HT_ISA_YMM)
    if (__builtin_expect(is_scaled(a), 0)) {
        step_exp_scaled(s, c, part, GIVEN);
        return;
    }
#endif
    exp_of_part(a);
    light(false, HT_LIGHT_NOTHING, second, store, s, part, a);
    s++;
    s->fn(s, c, part, GIVEN);
}

#define EXP_NAME(first, second, store) step_exp_##first##_##second##_##store
#define EXP_STEP(loads, first, second, store)                                                                          \
    static void EXP_NAME(first, second, store)(STATE) {                                                                \
        exp_step(HT_LIGHT_##first, HT_LIGHT_##second, HT_STORE_##store, s, c, part, r0, r1, r2, r3, r4, r5, r6, r7);   \
    }
#define EXP_ENTRY(loads, first, second, store)                                                                         \
    [HT_LIGHT_##first == HT_LIGHT_SCALE][HT_LIGHT_##second][HT_STORE_##store] = EXP_NAME(first, second, store),
#define EVERY_EXP(X) LIGHT_SECONDS(X, false, NOTHING) LIGHT_SECONDS(X, false, SCALE)
EVERY_EXP(EXP_STEP)
static step_fn *const exp_steps[2][HT_LIGHT_SECONDS][HT_STORE_COUNT] = {EVERY_EXP(EXP_ENTRY)};

/* ---- others ---- */

#define NUMBERS (const float *)(const void *)AT(0)
#define TRUTHS  (uint8_t *)AT(0)

STEP(LOAD_TRUTHS, const uint8_t *const x = TRUTHS; EACH_FOUR load_truths(c->m + k, x + 16 * k))
STEP(STORE_TRUTHS, uint8_t *const to = TRUTHS; EACH_FOUR store_truths(to + 16 * k, c->m + k))
STEP(STORE_TRUTHS_PAST, uint8_t *const to = TRUTHS; EACH_FOUR store_truths_past(to + 16 * k, c->m + k))
STEP(WHERE, const float *const x = NUMBERS; EACH a[k] = v16f_select(c->m[k], a[k], part_load(x, k)))
STEP(ELSEWHERE, const float *const x = NUMBERS; EACH a[k] = v16f_select(c->m[k], part_load(x, k), a[k]))

static void call(const step *s, char *const *places, int64_t part) {
    const ht_strip_call *f = s->of->call;
    const void *in[HT_STEP_INPUTS];
    for (int k = 0; k < f->n_in; k++) in[k] = places[f->at[k].place] + part * (f->at[k].bytes / PARTS);
    f->fn(in, AT(0), AT_A_TIME, f->params);
}
STEP(CALL, call(s, c->places, part))

#define OF_ONE(id, name) STEP(id, EACH a[k] = name##_lanes(a[k], v16f_zero()))
#define TWICE(id, name)  STEP(id##_SELF, EACH a[k] = name##_lanes(a[k], a[k]))
#define COMPARED(id, name)                                                                                             \
    STEP(id, const float *const x = NUMBERS; EACH c->m[k] = name##_lanes(a[k], part_load(x, k)))                       \
    STEP(id##_TO, const float *const x = NUMBERS; EACH c->m[k] = name##_lanes(part_load(x, k), a[k]))                  \
    STEP(id##_SELF, EACH c->m[k] = name##_lanes(a[k], a[k]))
HT_STRIP_OF_ONE(OF_ONE)
HT_STRIP_FUNCTION(OF_ONE)
HT_STRIP_OF_TWO(TWICE)
HT_STRIP_COMPARED(COMPARED)

/* ---- lists ---- */

#define ENTRY(id, name)      [HT_STRIP_##id] = step_##id,
#define ENTRY_SELF(id, name) ENTRY(id##_SELF, name)
#define ENTRIES(id, name)    ENTRY(id, name) ENTRY(id##_TO, name) ENTRY(id##_SELF, name)
static step_fn *const steps[HT_STRIP_CODES] = {[HT_STRIP_END] = step_END,
                                               [HT_STRIP_LOAD_TRUTHS] = step_LOAD_TRUTHS,
                                               [HT_STRIP_STORE_TRUTHS] = step_STORE_TRUTHS,
                                               [HT_STRIP_STORE_TRUTHS_PAST] = step_STORE_TRUTHS_PAST,
                                               [HT_STRIP_WHERE] = step_WHERE,
                                               [HT_STRIP_ELSEWHERE] = step_ELSEWHERE,
                                               [HT_STRIP_CALL] = step_CALL,
                                               HT_STRIP_OF_ONE(ENTRY) HT_STRIP_FUNCTION(ENTRY)
                                                   HT_STRIP_OF_TWO(ENTRY_SELF) HT_STRIP_COMPARED(ENTRIES)};

static step_fn *fn_of(const ht_strip_step *s) {
    if (s->code == HT_STRIP_LIGHT) return light_steps[s->loads][s->light[0]][s->light[1]][s->store];
    if (s->code == HT_STRIP_EXP) return exp_steps[s->light[0] == HT_LIGHT_SCALE][s->light[1]][s->store];
    return steps[s->code];
}

static step with_places(const ht_strip_step *of, char *const *places) {
    step s = {.fn = fn_of(of), .value = {of->value[0], of->value[1]}, .of = of};
    for (int k = 0; k < HT_AT_COUNT; k++) {
        s.at[k] = places[of->at[k].place] + of->at[k].offset;
        s.bytes[k] = of->at[k].bytes / PARTS;
    }
    return s;
}

/* What is asked for with part 0. */
typedef struct asked {
    const char *at;
    int64_t bytes;
    bool far;
} asked;

HT_INLINE void ask(const asked *of, int64_t part) {
    const char *from = of->at + part * of->bytes;
    for (int64_t b = 0; b < of->bytes; b += 64) {
        if (of->far)
            HT_PREFETCH_SECOND(from + b);
        else
            HT_PREFETCH(from + b);
    }
}

void HT_ISA_NAME(ht_run_strips)(const ht_strip_step *list, char *const *places, int64_t n) {
    asked asks[HT_STRIP_ASKS];
    int n_asks = 0;
    for (; list->code == HT_STRIP_ASK || list->code == HT_STRIP_ASK_FAR; list++)
        asks[n_asks++] = (asked){.at = places[list->at[0].place] + list->at[0].offset,
                                 .bytes = list->at[0].bytes / PARTS,
                                 .far = list->code == HT_STRIP_ASK_FAR};
    step s[HT_STRIP_STEPS];
    for (int i = 0;; i++) {
        s[i] = with_places(&list[i], places);
        if (list[i].code == HT_STRIP_END) break;
    }
    common c = {.places = places};
    v16f a[REGISTERS];
    EACH a[k] = v16f_zero();
    EACH c.m[k] = m16_first(0);
    for (int64_t part = 0; part < n * PARTS; part++) {
        for (int k = 0; k < n_asks; k++) ask(&asks[k], part);
        s->fn(s, &c, part, GIVEN);
    }
}
