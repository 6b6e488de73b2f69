/* Measurement loops that saturate one execution unit. */
#include "cpu/vector/measure.h"

#include "cpu/vector/simd_half.h"

/* Hides a value from the optimiser, which would otherwise fold the loop. */
#if defined(HT_ISA_avx512)
#define HIDE(v) __asm__ volatile("" : "+v"(v))
#elif defined(HT_ISA_YMM)
#define HIDE(v) __asm__ volatile("" : "+x"((v).a), "+x"((v).b))
#elif defined(HT_ISA_ARM)
#define HIDE(v) __asm__ volatile("" : "+w"((v).a), "+w"((v).b), "+w"((v).c), "+w"((v).d))
#else
#define HIDE(v) __asm__ volatile("" : "+m"(v))
#endif

#if defined(HT_ISA_avx512)
enum { CHAINS = 12 };
#elif defined(HT_ISA_avxvnni)
enum { CHAINS = 6 }; /* two registers each; enough to hide five cycles of latency */
#elif defined(HT_ISA_YMM)
enum { CHAINS = 4 }; /* two registers each */
#else
enum { CHAINS = 3 };
#endif

/* The matrix kernels' integer instruction with the most products. */

double HT_ISA_NAME(ht_int8_loop)(int64_t iterations) {
    static const int8_t numbers[8] = {1, 2, 3, 4};
    v16r d[CHAINS];
    v16i w = v16i_set1(0x01020304);
    for (int c = 0; c < CHAINS; c++) d[c] = v16r_start(c, c);
    for (int64_t i = 0; i < iterations; i++) {
        for (int j = 0; j < 8; j++)
            for (int c = 0; c < CHAINS; c++) {
                HIDE(w); /* a new value per step: without dot instructions, products could be reused */
                d[c] = v16r_step(d[c], w, v16r_load(numbers, numbers, 0), 4, 8, j);
            }
    }
    for (int c = 0; c < CHAINS; c++)
        for (int i = 0; i < HT_ABREAST; i++) {
            v16i sum = v16r_sum(d[c], i, c);
            HIDE(sum);
        }
    return (double)(iterations * 8 * CHAINS * HT_ABREAST * 128);
}

double HT_ISA_NAME(ht_int16_loop)(int64_t iterations) {
#if HT_DOT_WORDS
    v16i d[CHAINS], w = v16i_set1(0x00020001), x = v16i_set1(0x00010002);
    for (int c = 0; c < CHAINS; c++) d[c] = v16i_set1(c);
    for (int64_t i = 0; i < iterations; i++) {
        HIDE(w);
        HIDE(x);
        for (int j = 0; j < 8; j++)
            for (int c = 0; c < CHAINS; c++) d[c] = v16w_dot(d[c], w, x);
    }
    for (int c = 0; c < CHAINS; c++) HIDE(d[c]);
    return (double)(iterations * 8 * CHAINS * 64);
#else
    (void)iterations;
    return 0;
#endif
}

double HT_ISA_NAME(ht_f32_loop)(int64_t iterations) {
    v16f y[CHAINS], w = v16f_set1(0.5f), x = v16f_set1(0.25f);
    for (int c = 0; c < CHAINS; c++) y[c] = v16f_set1((float)c);
    for (int64_t i = 0; i < iterations; i++) {
        HIDE(w);
        HIDE(x);
        for (int j = 0; j < 8; j++)
            for (int c = 0; c < CHAINS; c++) y[c] = v16f_fma(w, x, y[c]);
    }
    for (int c = 0; c < CHAINS; c++) HIDE(y[c]);
    return (double)(iterations * 8 * CHAINS * 32);
}

void HT_ISA_NAME(ht_read_loop)(const char *memory, size_t bytes) {
    v16i sum[4] = {v16i_set1(0), v16i_set1(0), v16i_set1(0), v16i_set1(0)};
    for (size_t i = 0; i + 256 <= bytes; i += 256)
        for (int c = 0; c < 4; c++) sum[c] = v16i_xor(sum[c], v16i_load_bytes(memory + i + 64 * (size_t)c));
    for (int c = 0; c < 4; c++) HIDE(sum[c]);
}
