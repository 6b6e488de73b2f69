#include <cmocka.h>

static jmp_buf end_of_test;

void standalone_fail(const char *file, int line, const char *format, ...) {
    va_list args;
    va_start(args, format);
    fprintf(stderr, "%s:%d: ", file, line);
    vfprintf(stderr, format, args);
    fputc('\n', stderr);
    va_end(args);
    longjmp(end_of_test, 1);
}

void standalone_skip(void) { longjmp(end_of_test, 2); }

int standalone_run(const CMUnitTest *tests, size_t n, int (*setup)(void **), int (*teardown)(void **)) {
    void *state = NULL;
    volatile int failed = 0;
    if (setup && setup(&state) != 0) {
        fprintf(stderr, "the tests could not be set up\n");
        return 1;
    }
    for (volatile size_t i = 0; i < n; i++) {
        switch (setjmp(end_of_test)) {
        case 0:
            tests[i].run(&state);
            printf("%s: passed\n", tests[i].name);
            break;
        case 1:
            printf("%s: FAILED\n", tests[i].name);
            failed++;
            break;
        default: printf("%s: skipped\n", tests[i].name);
        }
    }
    if (teardown) teardown(&state);
    return failed;
}
