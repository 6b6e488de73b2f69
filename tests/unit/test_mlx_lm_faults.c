/* A child process of mlx_lm that does wrong: it dies, hangs, lies, floods or is slow, at any place of a load and an answer. Each
 * is an error that says so, leaves no process and no descriptor, and the next load works. */
#include "support/options.h"
#include "support/scratch.h"
#include "support/scripted_child.h"
#include "support/test.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* ---- faults ---- */

/* The lines of a load and an answer of three tokens: the place of a fault is before one of them. */
enum { INFO, BEGIN, TOKEN_1, TOKEN_2, TOKEN_3, DONE, PLACES, ANY = -1 };
static const char *const lines[PLACES] = {
    [BEGIN] = "{\"id\":2,\"event\":\"begin\",\"reused\":0}",
    [TOKEN_1] = "{\"id\":2,\"event\":\"tokens\",\"ids\":[0]}",
    [TOKEN_2] = "{\"id\":2,\"event\":\"tokens\",\"ids\":[1]}",
    [TOKEN_3] = "{\"id\":2,\"event\":\"tokens\",\"ids\":[2]}",
    [DONE] = "{\"id\":2,\"event\":\"done\",\"finish\":\"stop\",\"stop_id\":27,\"peak_memory_bytes\":1}",
};
static const char *line_at(int place) { return place == INFO ? script_info : lines[place]; }

enum { MAX_TOKENS = 5 };

/* A fault: what the child does in the place of a line (RAW: a line that it says instead), and how that is reported. */
typedef struct fault {
    int place;
    const char *does;
    const char *says; /* in the message */
    ht_status status;
    bool hangs; /* until a deadline, which is short then */
} fault;

#define LINE(place, line, says)                                                                                        \
    { place, "say '" line "'", says, HT_ERR_FORMAT, false }
#define SILENT(does)                                                                                                   \
    { ANY, does, "did not come within", HT_ERR_LIMIT, true }

static const fault faults[] = {
    /* dies */
    {ANY, "echo so it is >&2; exit 3", "ended with status 3", HT_ERR_IO, false},
    {ANY, "echo so it is >&2; exit 3", "standard error ends with: so it is", HT_ERR_IO, false},
    {ANY, "exit 0", "ended with status 0", HT_ERR_IO, false},
    {ANY, "kill -9 $$", "ended by signal 9", HT_ERR_IO, false},
    {ANY, "kill -SEGV $$", "ended by signal 11", HT_ERR_IO, false},
    {ANY, "exec no-such-program", "ended with status 127", HT_ERR_IO, false},
    {ANY, "printf '{\"id\":'; exit 5", "ended with status 5", HT_ERR_IO, false},
    {ANY, "printf '\\377\\001\\033[31m' >&2; exit 7", "ended with status 7", HT_ERR_IO, false},
    {ANY, "yes | head -c 300000 >&2; echo enough >&2; exit 6", "enough", HT_ERR_IO, false},
    {ANY, "exec 1>&-; exec sleep 1000", "closed its input or output", HT_ERR_IO, false},
    {ANY, "sleep 1000 & exit 4", "ended with status 4", HT_ERR_IO, false},
    {ANY, "command -v setsid >/dev/null && setsid sleep 1 & exit 4", "ended with status 4", HT_ERR_IO, false},
    /* hangs */
    SILENT("exec sleep 1000"),
    SILENT("sleep 1000"),
    SILENT("trap '' HUP INT TERM QUIT PIPE; sleep 1000"),
    SILENT("kill -STOP $$"),
    SILENT("sleep 1000 & sleep 1000 & wait"),
    SILENT("exec 0<&-; exec sleep 1000"),
    SILENT("printf '{\"id\":'; exec sleep 1000"),
    /* is slow */
    SILENT("sleep 5"),
    SILENT("for c in a b c d e f g h i j k l m n o p q r s t u v w x y z; do printf $c; sleep 0.1; done"),
    /* floods */
    {ANY, "tr '\\0' a </dev/zero", "a line of more than 10000 bytes", HT_ERR_LIMIT, false},
    {ANY, "head -c 10001 /dev/zero | tr '\\0' '['; echo", "a line of more than 10000 bytes", HT_ERR_LIMIT, false},
    {ANY, "yes ''", "expected ", HT_ERR_FORMAT, false},
    {ANY, "yes '{}'", "`event` is missing", HT_ERR_FORMAT, false},
    SILENT("yes out of order >&2"),
    {DONE, "while :; do say '{\"id\":2,\"event\":\"tokens\",\"ids\":[1,2,3]}'; done", "more than the 5 tokens",
     HT_ERR_LIMIT, false},
    /* says what is no message */
    LINE(ANY, "", "expected "),
    LINE(ANY, "{", "expected "),
    LINE(ANY, "nonsense", "expected "),
    LINE(ANY, "[]", "expected an object"),
    LINE(ANY, "null", "expected "),
    LINE(ANY, "\"tokens\"", "expected "),
    LINE(ANY, "{}", "`event` is missing"),
    LINE(ANY, "{\"event\":\"done\"}", "`id` is missing"),
    LINE(ANY, "{\"id\":2}", "`event` is missing"),
    LINE(ANY, "{\"id\":\"2\",\"event\":\"done\"}", "`id` is the string"),
    LINE(ANY, "{\"id\":2.5,\"event\":\"done\"}", "`id` is"),
    LINE(ANY, "{\"id\":-1,\"event\":\"done\"}", "`id` is -1"),
    LINE(ANY, "{\"id\":2,\"event\":7}", "`event` is 7"),
    LINE(ANY, "{\"id\":2,\"event\":\"load\"}", "`event` is \"load\""),
    LINE(ANY, "{\"id\":2,\"id\":2,\"event\":\"done\"}", "expected "),
    {ANY, "printf '{\"id\":\\0002}\\n'", "expected ", HT_ERR_FORMAT, false},
    {ANY, "printf '{\"id\":2,\"event\":\"\\377\"}\\n'", "expected ", HT_ERR_FORMAT, false},
    /* answers another request */
    LINE(ANY, "{\"id\":77,\"event\":\"begin\",\"reused\":0}", "answers request 77"),
    LINE(ANY, "{\"id\":0,\"event\":\"begin\",\"reused\":0}", "answers request 0"),
    LINE(BEGIN, "{\"id\":1,\"event\":\"begin\",\"reused\":0}", "answers request 1, expected 2"),
    /* says something else than is expected */
    LINE(INFO, "{\"id\":1,\"event\":\"begin\",\"reused\":0}", "says \"begin\", expected \"info\""),
    LINE(BEGIN, "{\"id\":2,\"event\":\"tokens\",\"ids\":[0]}", "says \"tokens\", expected \"begin\""),
    LINE(BEGIN, "{\"id\":2,\"event\":\"done\",\"finish\":\"stop\",\"stop_id\":27,\"peak_memory_bytes\":1}",
         "says \"done\""),
    LINE(TOKEN_2, "{\"id\":2,\"event\":\"begin\",\"reused\":0}", "says \"begin\", expected \"tokens\""),
    /* has the wrong members */
    LINE(INFO, "{\"id\":1,\"event\":\"info\",\"architecture\":\"llama\"}", "is missing"),
    LINE(BEGIN, "{\"id\":2,\"event\":\"begin\"}", "`reused` is missing"),
    LINE(BEGIN, "{\"id\":2,\"event\":\"begin\",\"reused\":0,\"more\":1}", "of 4 fields, expected 3"),
    LINE(BEGIN, "{\"id\":2,\"event\":\"begin\",\"reused\":-1}", "`reused` is -1"),
    LINE(BEGIN, "{\"id\":2,\"event\":\"begin\",\"reused\":3}", "3 tokens of a prompt of 3"),
    LINE(BEGIN, "{\"id\":2,\"event\":\"begin\",\"reused\":1e999}", "expected "),
    LINE(TOKEN_1, "{\"id\":2,\"event\":\"tokens\",\"ids\":[]}", "has 0 tokens"),
    LINE(TOKEN_1, "{\"id\":2,\"event\":\"tokens\",\"ids\":7}", "`ids` is 7"),
    LINE(TOKEN_1, "{\"id\":2,\"event\":\"tokens\",\"ids\":[-1]}", "`ids` holds -1"),
    LINE(TOKEN_1, "{\"id\":2,\"event\":\"tokens\",\"ids\":[28]}", "gives token 28"),
    LINE(TOKEN_2, "{\"id\":2,\"event\":\"tokens\",\"ids\":[4294967296]}", "`ids` holds 4294967296"),
    LINE(TOKEN_2, "{\"id\":2,\"event\":\"tokens\",\"ids\":[1.5]}", "`ids` holds 1.5"),
    LINE(TOKEN_2, "{\"id\":2,\"event\":\"tokens\",\"ids\":[\"a\"]}", "`ids` holds the string"),
    LINE(TOKEN_3, "{\"id\":2,\"event\":\"tokens\",\"ids\":[null]}", "`ids` holds null"),
    LINE(TOKEN_3, "{\"id\":2,\"event\":\"tokens\",\"ids\":[1],\"text\":\"b\"}", "of 4 fields"),
    LINE(DONE, "{\"id\":2,\"event\":\"done\",\"finish\":\"ended\",\"stop_id\":-1,\"peak_memory_bytes\":1}",
         "`finish` is \"ended\""),
    LINE(DONE, "{\"id\":2,\"event\":\"done\",\"finish\":\"length\",\"stop_id\":-1,\"peak_memory_bytes\":1}",
         "ends after 3 tokens"),
    LINE(DONE, "{\"id\":2,\"event\":\"done\",\"finish\":\"cancelled\",\"stop_id\":-1,\"peak_memory_bytes\":1}",
         "that was not"),
    LINE(DONE, "{\"id\":2,\"event\":\"done\",\"finish\":\"stop\",\"stop_id\":27,\"peak_memory_bytes\":-1}",
         "`peak_memory_bytes` is -1"),
    LINE(DONE, "{\"id\":2,\"event\":\"done\",\"finish\":\"stop\",\"stop_id\":27}", "`peak_memory_bytes` is missing"),
    LINE(DONE, "{\"id\":2,\"event\":\"done\",\"finish\":\"stop\",\"peak_memory_bytes\":1}", "`stop_id` is missing"),
    LINE(DONE, "{\"id\":2,\"event\":\"done\",\"finish\":\"stop\",\"stop_id\":-2,\"peak_memory_bytes\":1}",
         "`stop_id` is -2"),
    LINE(DONE, "{\"id\":2,\"event\":\"done\",\"finish\":\"stop\",\"stop_id\":26,\"peak_memory_bytes\":1}",
         "token 26, which is no stop id"),
    LINE(DONE, "{\"id\":2,\"event\":\"error\",\"kind\":\"sad\",\"message\":\"no\"}", "`kind` is \"sad\""),
    LINE(DONE, "{\"id\":2,\"event\":\"error\",\"kind\":\"cancelled\",\"message\":\"no\"}", "`kind` is \"cancelled\""),
    LINE(DONE, "{\"id\":2,\"event\":\"error\",\"kind\":\"io\",\"message\":\"a\\u0007\"}", "control character"),
};
enum { N_FAULTS = sizeof faults / sizeof *faults };

/* ---- the check ---- */

static int n_files;
static const script_deadlines unhurried, hurried = {0.15, 0.15, 0.15};

static ht_status answer(ht_backend_model *m, ht_error *err) {
    static const int32_t ids[] = {0, 1, 2};
    const ht_generate_options how = OPTIONS(ht_generate_options, with.max_tokens = MAX_TOKENS);
    return ht_backend_generate(m, &(ht_backend_prompt){.ids = ids, .n_ids = 3}, &how, NULL, NULL, NULL, NULL, err);
}

/* Loads, asks for an answer if that worked, once more if it did not, and closes; `for_good`: the model has failed then. */
static ht_status run(const char *script, script_deadlines seconds, bool for_good, ht_error *err) {
    ht_backend_model *m = NULL;
    ht_status st = script_load(script, seconds, &m, err);
    assert_true(!m == !!st);
    if (!st) st = answer(m, err);
    if (st) assert_int_equal(err->status, st);
    if (m && st) {
        ht_error again = {0};
        assert_int_equal(answer(m, &again), st);
        assert_true(!for_good || strstr(again.message, "must be loaded again"));
    }
    ht_backend_close(m);
    script_check_clean(n_files);
    return st;
}

static void check_next_load(void) {
    ht_error err = {0};
    if (run(script_good, unhurried, true, &err)) fail_msg("the next load: %s", err.message);
}

/* A script that says the lines before `place`, does `does` in its place, and then the rest. */
static void write_script(char *script, size_t size, int place, const char *does) {
    size_t n = (size_t)snprintf(script, size, "read -r line\n");
    for (int i = 0; i < PLACES; i++) {
        if (i == BEGIN) n += (size_t)snprintf(script + n, size - n, "read -r line\n");
        n += i == place ? (size_t)snprintf(script + n, size - n, "%s\n", does)
                        : (size_t)snprintf(script + n, size - n, "say '%s'\n", line_at(i));
        assert_true(n < size);
    }
    snprintf(script + n, size - n, "exec cat >/dev/null\n");
}

/* Random numbers of the cases. */
static uint64_t drawn = 1;
static int draw(int n) {
    drawn = drawn * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (int)((drawn >> 33) % (uint64_t)n);
}

static void check_fault(const fault *f) {
    char script[8192];
    ht_error err = {0};
    const int place = f->place == ANY ? draw(PLACES) : f->place;
    write_script(script, sizeof script, place, f->does);
    const ht_status st = run(script, f->hangs ? hurried : unhurried, true, &err);
    if (st != f->status || !strstr(err.message, f->says))
        fail_msg("%s, in the place of line %d: status %d, %s", f->does, place, st, err.message);
    check_next_load();
}

UNIT_TEST(faults_are_errors_and_leave_nothing) {
    for (int i = 0; i < test_cases(2 * N_FAULTS, 25 * N_FAULTS); i++) check_fault(&faults[i % N_FAULTS]);
}

/* ---- lines that are changed anywhere ---- */

/* A line with a byte changed, taken out, put in or doubled, or cut off, as printf takes it. */
static void write_changed(char *does, size_t size, const char *line) {
    const int n = (int)strlen(line), at = draw(n), how = draw(5);
    size_t to = (size_t)snprintf(does, size, "printf '");
    for (int i = 0; i < (how == 4 ? at : n); i++) {
        unsigned c = (unsigned char)line[i];
        if (i == at && how == 0) c ^= 1u << draw(8);
        if (i == at && how == 1) continue;
        if (i == at && how == 2) to += (size_t)snprintf(does + to, size - to, "\\%03o", (unsigned)draw(256));
        if (i == at && how == 3) to += (size_t)snprintf(does + to, size - to, "\\%03o", c);
        to += (size_t)snprintf(does + to, size - to, "\\%03o", c);
        assert_true(to + 16 < size);
    }
    snprintf(does + to, size - to, "\\n'");
}

/* Some such lines still say what may be said. */
UNIT_TEST(changed_lines_are_read_or_refused) {
    char does[4096], script[8192];
    for (int i = 0; i < test_cases(30, 3000); i++) {
        ht_error err = {0};
        const int place = draw(PLACES);
        write_changed(does, sizeof does, line_at(place));
        write_script(script, sizeof script, place, does);
        const ht_status st = run(script, unhurried, false, &err);
        /* with another vocabulary or context the prompt may be the fault */
        assert_true(st == HT_OK || st == HT_ERR_ARGUMENT || st == HT_ERR_FORMAT || st == HT_ERR_LIMIT);
        assert_true(st == HT_OK || err.message[0]);
    }
    check_next_load();
}

/* ---- a child that does not read ---- */

/* A prompt longer than a pipe holds. */
static ht_status ask_much(ht_backend_model *m, ht_error *err) {
    enum { MUCH = 300000 };
    int32_t *ids = calloc(MUCH, sizeof *ids);
    assert_non_null(ids);
    const ht_status st =
        ht_backend_generate(m, &(ht_backend_prompt){.ids = ids, .n_ids = MUCH}, NULL, NULL, NULL, NULL, NULL, err);
    free(ids);
    return st;
}

static void check_unread(const char *then, double seconds, ht_status expected, const char *says) {
    char script[2048];
    ht_backend_model *m;
    snprintf(script, sizeof script, "read -r line; say '%s'; %s", script_info, then);
    assert_works(script_load, script, (script_deadlines){.next = seconds}, &m);
    assert_fails(expected, says, ask_much, m);
    ht_backend_close(m);
    script_check_clean(n_files);
}

/* Writing to a child that is gone would end this program by SIGPIPE. */
UNIT_TEST(a_child_that_does_not_read_is_an_error) {
    assert_ptr_equal(signal(SIGPIPE, SIG_DFL), SIG_DFL);
    check_unread("exec sleep 1000", 0.3, HT_ERR_LIMIT, "did not come within 0.3 seconds");
    check_unread("exec 0<&-; exec sleep 1000", 0, HT_ERR_IO, "closed its input or output");
    check_unread("exit 9", 0, HT_ERR_IO, "status 9");
    check_next_load();
}

/* ---- a child that was told to end a call, and does not ---- */

static bool refuse(const char *text, size_t n, void *user) {
    (void)text, (void)n, (void)user;
    return false;
}

static void check_unended(const char *then, script_deadlines deadlines, ht_status expected, const char *says) {
    char script[4096];
    ht_backend_model *m;
    ht_metrics metrics;
    snprintf(script, sizeof script, "read -r line; say '%s'; read -r line; say '%s'; say '%s'; %s", script_info,
             lines[BEGIN], lines[TOKEN_1], then);
    assert_works(script_load, script, deadlines, &m);
    assert_works(ht_backend_generate, m, &(ht_backend_prompt){.text = "abc"}, NULL, refuse, NULL, NULL, &metrics);
    assert_int_equal(metrics.finish, HT_FINISH_CALLBACK);
    assert_int_equal(metrics.generated_tokens, 1);
    assert_fails(expected, says, answer, m);
    ht_backend_close(m);
    script_check_clean(n_files);
}

UNIT_TEST(a_call_that_does_not_end_is_an_error_of_the_next) {
    check_unended("exec sleep 1000", (script_deadlines){.next = 0.3}, HT_ERR_LIMIT,
                  "the end of the last call did not come");
    /* late, whether a line is there just then or not */
    check_unended("while :; do say '{\"id\":2,\"event\":\"tokens\",\"ids\":[1]}'; done",
                  (script_deadlines){.next = 0.3}, HT_ERR_LIMIT, "within 0.3 seconds");
    check_unended("say '{\"id\":3,\"event\":\"begin\",\"reused\":0}'; exec sleep 1000", unhurried, HT_ERR_FORMAT,
                  "answers request 3, expected 2");
    check_next_load();
}

/* ---- what a child starts ---- */

/* Whether a process runs, as /proc has it: one that has ended and waits for the system's first process does not. */
static bool runs(long pid) {
    char path[64], state = 'Z';
    snprintf(path, sizeof path, "/proc/%ld/stat", pid);
    FILE *f = fopen(path, "r");
    if (!f) return false;
    if (fscanf(f, "%*d (%*[^)]) %c", &state) != 1) state = 'Z';
    fclose(f);
    return state != 'Z' && state != 'X';
}

static long read_pid(void) {
    long pid = 0;
    FILE *f = fopen(scratch_path("pid"), "r");
    if (f && fscanf(f, "%ld", &pid) != 1) pid = 0;
    if (f) fclose(f);
    return pid;
}

UNIT_TEST(what_a_child_starts_goes_with_it) {
    char script[2048];
    long pid = 0;
    snprintf(script, sizeof script, "sleep 1000 & echo $! >'%s'; exec sleep 1000", scratch_path("pid"));
    for (double seconds = 0.3; !pid; seconds *= 2) { /* until the machine has time to start it */
        assert_fails(HT_ERR_LIMIT, "", run, script, (script_deadlines){.load = seconds}, true);
        pid = read_pid();
    }
    while (runs(pid)) nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    check_next_load();
}

/* ---- no child at all ---- */

static ht_status load_with(const char *program, const char *script, ht_error *err) {
    ht_backend_model *m;
    const ht_backend_options how = OPTIONS(ht_backend_options, with.python = program, with.bridge = script);
    const ht_status st = ht_backend_load("mlx_lm", scratch_directory(), &how, &m, err);
    assert_null(m);
    script_check_clean(n_files);
    return st;
}

UNIT_TEST(a_program_that_cannot_start_is_an_error) {
    assert_fails(HT_ERR_IO, "cannot start \"no-such-python\"", load_with, "no-such-python", NULL);
    assert_fails(HT_ERR_IO, "", load_with, scratch_directory(), NULL);
    assert_fails(HT_ERR_IO, "ended with status 1", load_with, "/bin/false", NULL);
    char *script = malloc(1 << 21);
    assert_non_null(script);
    memset(script, '#', (1 << 21) - 1);
    script[(1 << 21) - 1] = '\0';
    assert_fails(HT_ERR_LIMIT, "does not fit a pipe", load_with, "/bin/sh", script);
    free(script);
    check_next_load();
}

static int setup(void **state) {
    (void)state;
    scratch_make();
    script_write_checkpoint();
    n_files = script_open_files();
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(faults_are_errors_and_leave_nothing),
        cmocka_unit_test(changed_lines_are_read_or_refused),
        cmocka_unit_test(a_child_that_does_not_read_is_an_error),
        cmocka_unit_test(a_call_that_does_not_end_is_an_error_of_the_next),
        cmocka_unit_test(what_a_child_starts_goes_with_it),
        cmocka_unit_test(a_program_that_cannot_start_is_an_error),
    };
    return cmocka_run_group_tests(tests, setup, scratch_finish);
}
