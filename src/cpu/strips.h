/* Strips: so many elements at a time (HT_STRIP) of a program whose operations are on f32. What one operation makes is still in
 * registers when the next one takes it, which by blocks (each.h) goes through the first cache; and results leave for memory
 * from there. An instruction set whose registers hold so many, or half of them, follows a list of the steps below, which
 * each_strips.c makes from a program. On a Zen 4 core, from memory, eight operations take 0.55 to 0.65 of the time that blocks
 * take, x * y + x 0.75, and in caches a single one as long. With AVX2 on a Zen 3 core eight operations take 0.7 from memory and
 * 0.82 in caches, where(x < y, x, y * 2) 0.7, x * 2 + 1 0.8, and single ones as long.
 *
 * Getting from a step to the next takes as long as an operation on eight registers, so that steps do what they can: LIGHT loads,
 * does two operations and stores; EXP scales, takes powers, does one and stores. On a Zen 3 core that took eight operations from 1.0 to 0.72 ns an element in caches, where a
 * loop by hand takes 0.65.
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
    X(RECIPROCAL, reciprocal)

/* The same, of many instructions. */
#define HT_STRIP_FUNCTION(X)                                                                                           \
    X(LOG, log)                                                                                                        \
    X(TANH, tanh)                                                                                                      \
    X(SIGMOID, sigmoid)                                                                                                \
    X(SILU, silu)                                                                                                      \
    X(GELU_TANH, gelu_tanh)

/* X(id, name): the numbers become a function of them and others. Of numbers in memory that is a part of LIGHT; id_SELF is of
 * them twice. */
#define HT_STRIP_OF_TWO(X)                                                                                             \
    X(ADD, add)                                                                                                        \
    X(SUBTRACT, subtract)                                                                                              \
    X(MULTIPLY, multiply)                                                                                              \
    X(DIVIDE, divide)                                                                                                  \
    X(MINIMUM, minimum)                                                                                                \
    X(MAXIMUM, maximum)

/* X(id, name): the truths become whether the numbers and those in memory compare so; id_TO those in memory and them; id_SELF
 * they and they. */
#define HT_STRIP_COMPARED(X)                                                                                           \
    X(EQUAL, equal)                                                                                                    \
    X(NOT_EQUAL, not_equal)                                                                                            \
    X(LESS, less)                                                                                                      \
    X(LESS_EQUAL, less_equal)

/* X(id, name): what a LIGHT step does, twice at most, or an EXP step after the power: with the numbers and others in memory,
 * id_TO with those and them, or SCALE with a value. */
#define HT_STRIP_LIGHT_OF(X)                                                                                           \
    X(ADD, add)                                                                                                        \
    X(SUBTRACT, subtract)                                                                                              \
    X(SUBTRACT_TO, subtract_to)                                                                                        \
    X(MULTIPLY, multiply)                                                                                              \
    X(MINIMUM, minimum)                                                                                                \
    X(MAXIMUM, maximum)                                                                                                \
    X(SCALE, scale)

/* The same, which are only done first. */
#define HT_STRIP_LIGHT_FIRST(X)                                                                                        \
    X(DIVIDE, divide)                                                                                                  \
    X(DIVIDE_TO, divide_to)                                                                                            \
    X(MINIMUM_TO, minimum_to)                                                                                          \
    X(MAXIMUM_TO, maximum_to)

#define HT_STRIP_NAMED(id, name) HT_LIGHT_##id,
typedef enum ht_strip_light {
    HT_LIGHT_NOTHING,
    HT_STRIP_LIGHT_OF(HT_STRIP_NAMED) HT_LIGHT_SECONDS, /* those before it can be done second */
    HT_LIGHT_LAST_SECOND = HT_LIGHT_SECONDS - 1,
    HT_STRIP_LIGHT_FIRST(HT_STRIP_NAMED) HT_LIGHT_COUNT
} ht_strip_light;
#undef HT_STRIP_NAMED

typedef enum ht_strip_store {
    HT_STORE_NOTHING,
    HT_STORE_THERE,
    HT_STORE_PAST, /* round the caches, to the beginning of a line; ht_bypass_end has to follow */
    HT_STORE_COUNT
} ht_strip_store;

#define HT_STRIP_ONE(id, name)   HT_STRIP_##id,
#define HT_STRIP_TWICE(id, name) HT_STRIP_##id##_SELF,
#define HT_STRIP_THREE(id, name) HT_STRIP_##id, HT_STRIP_##id##_TO, HT_STRIP_##id##_SELF,
typedef enum ht_strip_code {
    HT_STRIP_END,
    HT_STRIP_LIGHT, /* loads numbers, does two operations of few instructions, and stores them, or some of that */
    HT_STRIP_EXP, /* takes powers, of numbers times a value if the first operation is SCALE, does another and stores */
    HT_STRIP_LOAD_TRUTHS, /* of bytes, which are true if not 0 */
    HT_STRIP_STORE_TRUTHS,
    HT_STRIP_STORE_TRUTHS_PAST, /* as HT_STORE_PAST */
    HT_STRIP_WHERE,             /* numbers, where the truths are, others from memory elsewhere */
    HT_STRIP_ELSEWHERE,         /* the other way round */
    HT_STRIP_CALL,              /* any other operation, from memory to memory */
    HT_STRIP_ASK,               /* for the lines that begin there; before all others */
    HT_STRIP_ASK_FAR,           /* into the second cache */
    HT_STRIP_OF_ONE(HT_STRIP_ONE) HT_STRIP_FUNCTION(HT_STRIP_ONE) HT_STRIP_OF_TWO(HT_STRIP_TWICE)
        HT_STRIP_COMPARED(HT_STRIP_THREE) HT_STRIP_CODES
} ht_strip_code;
#undef HT_STRIP_ONE
#undef HT_STRIP_TWICE
#undef HT_STRIP_THREE

/* In memory: which of the places, how far behind it, and bytes from one strip to the next there; 0: what is the same
 * everywhere, or kept only from one step to the next. */
typedef struct ht_strip_at {
    int8_t place;
    int32_t bytes;
    int64_t offset;
} ht_strip_at;

/* Where what a step loads, takes and stores is; other steps than LIGHT and EXP have one place, the first. */
enum { HT_AT_LOAD, HT_AT_FIRST, HT_AT_SECOND, HT_AT_STORE, HT_AT_COUNT };

typedef struct ht_strip_step {
    ht_strip_code code;
    bool loads;       /* of LIGHT alone; of EXP, too, are */
    uint8_t light[2]; /* ht_strip_light, in that order, and */
    uint8_t store;    /* ht_strip_store */
    float value[2];   /* of SCALE */
    ht_strip_at at[HT_AT_COUNT];
    const struct ht_strip_call *call;
} ht_strip_step;

/* Steps that a list has at most: what asks, for one operand twice; for every step of a program what loads its operands, does
 * it, and stores its result in two places; and the end. */
enum {
    HT_STRIP_ASKS = HT_PROGRAM_INPUTS + HT_PROGRAM_OUTPUTS + 1,
    HT_STRIP_STEPS = HT_STRIP_ASKS + 5 * HT_PROGRAM_STEPS + 1
};

/* A function of blocks and its operands. */
typedef struct ht_strip_call {
    ht_each_fn *fn;
    const void *params;
    int n_in;
    ht_strip_at at[HT_STEP_INPUTS];
} ht_strip_call;

#endif
