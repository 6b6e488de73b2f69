/* Options of tests: made by their _init functions, with some fields changed by assignments to those of `with`. */
#ifndef TEST_SUPPORT_OPTIONS_H
#define TEST_SUPPORT_OPTIONS_H

/* OPTIONS(ht_session_options, with.chunk = 7): the struct. */
#define OPTIONS(type, ...)                                                                                             \
    __extension__({                                                                                                    \
        type with;                                                                                                     \
        type##_init(&with, sizeof with);                                                                               \
        __VA_ARGS__;                                                                                                   \
        with;                                                                                                          \
    })
#define DEFAULTS(type) OPTIONS(type, (void)0)
/* The address of such a struct, until the end of the block. */
#define OPTIONS_AT(type, ...) ((type[]){OPTIONS(type, __VA_ARGS__)})

#endif
