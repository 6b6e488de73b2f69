/* Options of tests: made by their _init functions, with some fields changed by assignments to those of `with`. The sampler
 * takes the most likely token, and only what a test sets is on. */
#ifndef TEST_SUPPORT_OPTIONS_H
#define TEST_SUPPORT_OPTIONS_H

#include <hearth/generate.h>

static const ht_sampler_options test_greedy = {.size = sizeof test_greedy, .repeat_penalty = 1, .repeat_window = 64};

static inline void test_set_sampler(void *options) { *(ht_sampler_options *)options = test_greedy; }
static inline void test_set_generate(void *options) { ((ht_generate_options *)options)->sampler = &test_greedy; }
static inline void test_set_nothing(void *options) { (void)options; }

/* OPTIONS(ht_session_options, with.chunk = 7): the struct. */
#define OPTIONS(type, ...)                                                                                             \
    __extension__({                                                                                                    \
        type with;                                                                                                     \
        type##_init(&with, sizeof with);                                                                               \
        _Generic(&with, ht_sampler_options *                                                                           \
                 : test_set_sampler, ht_generate_options *                                                             \
                 : test_set_generate, default                                                                          \
                 : test_set_nothing)(&with);                                                                           \
        __VA_ARGS__;                                                                                                   \
        with;                                                                                                          \
    })
#define DEFAULTS(type) OPTIONS(type, (void)0)
/* The address of such a struct, until the end of the block. */
#define OPTIONS_AT(type, ...) ((type[]){OPTIONS(type, __VA_ARGS__)})

#endif
