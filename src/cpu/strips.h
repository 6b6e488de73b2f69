/* Strips: so many elements at a time (HT_STRIP) of a program whose operations are on f32. What one operation makes is still in
 * registers when the next one takes it, which by blocks (each.h) goes through the first cache; and results leave for memory
 * from there. An instruction set whose registers hold so many, or half of them, follows a list of the steps below, which
 * each_strips.c makes from a program. On a Zen 4 core, from memory, eight operations take 0.55 to 0.65 of the time that blocks
 * take, x * y + x 0.75, and in caches a single one as long. With AVX2 on a Zen 3 core eight operations take 0.85 and
 * where(x < y, x, y * 2) 0.8 from memory; in caches single ones take up to 1.6 times as long as by blocks, as steps are only
 * eight instructions long.
 *
 * There are two values: numbers and truths, one of each for every element of the strip. A step takes them, memory, or both,
 * and replaces one of them. */
#ifndef HT_CPU_STRIPS_H
#define HT_CPU_STRIPS_H

#include "cpu/each.h"

/* X(id, name): the numbers become a function of them, by name in cpu/vector/each_lanes.h. */
#define HT_STRIP_OF_ONE(X)                                                                                             \
    X(NEGATIVE, negative)                                                                                              \
    X(ABS, abs)                                                                                                        \
    X(SQUARE, square)                                                                                                  \
    X(SQRT, sqrt)                                                                                                      \
    X(RSQRT, rsqrt)                                                                                                    \
    X(RECIPROCAL, reciprocal)                                                                                          \
    X(SCALE, scale)

/* The same, of many instructions. */
#define HT_STRIP_FUNCTION(X)                                                                                           \
    X(EXP, exp)                                                                                                        \
    X(LOG, log)                                                                                                        \
    X(TANH, tanh)                                                                                                      \
    X(SIGMOID, sigmoid)                                                                                                \
    X(SILU, silu)                                                                                                      \
    X(GELU_TANH, gelu_tanh)

/* X(id, name): the numbers become a function of them and numbers in memory; id_TO of those in memory and them; id_SELF of
 * them twice. */
#define HT_STRIP_OF_TWO(X)                                                                                             \
    X(ADD, add)                                                                                                        \
    X(SUBTRACT, subtract)                                                                                              \
    X(MULTIPLY, multiply)                                                                                              \
    X(DIVIDE, divide)                                                                                                  \
    X(MINIMUM, minimum)                                                                                                \
    X(MAXIMUM, maximum)

/* The same of truths: whether numbers compare so. */
#define HT_STRIP_COMPARED(X)                                                                                           \
    X(EQUAL, equal)                                                                                                    \
    X(NOT_EQUAL, not_equal)                                                                                            \
    X(LESS, less)                                                                                                      \
    X(LESS_EQUAL, less_equal)

#define HT_STRIP_ONE(id, name)   HT_STRIP_##id,
#define HT_STRIP_THREE(id, name) HT_STRIP_##id, HT_STRIP_##id##_TO, HT_STRIP_##id##_SELF,
typedef enum ht_strip_code {
    HT_STRIP_END,
    HT_STRIP_LOAD,        /* numbers */
    HT_STRIP_STORE,       /* them */
    HT_STRIP_STORE_PAST,  /* round the caches, to the beginning of a line; ht_bypass_end has to follow */
    HT_STRIP_LOAD_TRUTHS, /* as the numbers: of bytes, which are true if not 0 */
    HT_STRIP_STORE_TRUTHS,
    HT_STRIP_STORE_TRUTHS_PAST,
    HT_STRIP_WHERE,     /* numbers, where the truths are, others from memory elsewhere */
    HT_STRIP_ELSEWHERE, /* the other way round */
    HT_STRIP_CALL,      /* any other operation, from memory to memory */
    HT_STRIP_ASK,       /* for the lines that begin there */
    HT_STRIP_ASK_FAR,   /* into the second cache */
    HT_STRIP_OF_ONE(HT_STRIP_ONE) HT_STRIP_FUNCTION(HT_STRIP_ONE) HT_STRIP_OF_TWO(HT_STRIP_THREE)
        HT_STRIP_COMPARED(HT_STRIP_THREE)
} ht_strip_code;
#undef HT_STRIP_ONE
#undef HT_STRIP_THREE

typedef struct ht_strip_step {
    ht_strip_code code;
    int8_t place;   /* in memory: which of the places, */
    int32_t bytes;  /* from one strip to the next there, 0: all have one. ASK: those of a strip, */
    int64_t offset; /* and how far behind it */
    float value;    /* OF_ONE: what the function takes besides */
    const struct ht_strip_call *call;
} ht_strip_step;

/* A function of blocks and its operands. */
typedef struct ht_strip_call {
    ht_each_fn *fn;
    const void *params;
    int n_in;
    int8_t place[HT_STEP_INPUTS];
    int32_t bytes[HT_STEP_INPUTS];
    int8_t element[HT_STEP_INPUTS], to_element; /* bytes of one */
} ht_strip_call;

#endif
