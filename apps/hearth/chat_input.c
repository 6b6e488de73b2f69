#include "chat_input.h"

#include "base/grow.h"
#include "json.h"
#include "model_path.h"
#include "terminal.h"
#include "tree.h"

#include <errno.h>
#include <fcntl.h>
#include <histedit.h>
#include <locale.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <wchar.h>

enum { HISTORY_LINES = 1000, PASTE_LIMIT = 1 << 20 };

struct chat_input {
    EditLine *edit; /* NULL: no terminal */
    History *history;
    char *history_path; /* NULL: not kept in a file */
    bool keeps_history;
    const char *prompt, *begun;
    bool ended, was_interrupted; /* while a key was read */
    mbstate_t shift;
    char *text; /* the returned line, valid until the next call */
    size_t capacity;
};

/* ---- keys ---- */

static chat_input *of(EditLine *edit) {
    void *in = NULL;
    el_get(edit, EL_CLIENTDATA, &in);
    return in;
}

/* A byte of standard input; -1 at end of file or after a signal. */
static int next_byte(chat_input *in) {
    struct pollfd from[] = {{STDIN_FILENO, POLLIN, 0}, {interrupt_descriptor(), POLLIN, 0}};
    while (poll(from, 2, -1) < 0 && errno == EINTR) {}
    in->was_interrupted = from[1].revents != 0;
    if (in->was_interrupted) return -1;
    unsigned char byte;
    const ssize_t got = read(STDIN_FILENO, &byte, 1);
    in->ended = got != 1;
    return got == 1 ? byte : -1;
}

static int next_key(EditLine *edit, wchar_t *key) {
    chat_input *in = of(edit);
    for (;;) {
        const int byte = next_byte(in);
        if (byte < 0) return -1;
        const char c = (char)byte;
        const size_t used = mbrtowc(key, &c, 1, &in->shift);
        if (used == (size_t)-2) continue;
        if (used == (size_t)-1) {
            memset(&in->shift, 0, sizeof in->shift);
            *key = L'\uFFFD';
        }
        return 1;
    }
}

/* ---- pasted text ----
 *
 * Bracketed paste: the terminal marks the start and end of pasted text. libedit does not support it, so the start mark
 * is bound to a function that inserts everything up to the end mark, newlines included. */

#define PASTE_ON    "\033[?2004h"
#define PASTE_OFF   "\033[?2004l"
#define PASTE_BEGIN "\033[200~"
#define PASTE_END   "\033[201~"
#define INSERT_KEY  "\033[990~" /* not on any keyboard; inserts the initial text */

static unsigned char paste(EditLine *edit, int key) {
    (void)key;
    chat_input *in = of(edit);
    const size_t end = strlen(PASTE_END);
    char *text = NULL;
    size_t n = 0, capacity = 0;
    for (int byte, was = 0; n < PASTE_LIMIT && (byte = next_byte(in)) >= 0;) {
        if (!HT_GROW(text, capacity, n + 2)) break;
        const bool in_crlf = byte == '\n' && was == '\r';
        was = byte;
        if (in_crlf) continue;
        text[n++] = byte == '\r' ? '\n' : (char)byte;
        text[n] = '\0';
        if (n >= end && memcmp(text + n - end, PASTE_END, end) == 0) {
            text[n -= end] = '\0';
            break;
        }
    }
    while (n && text[n - 1] == '\n') text[--n] = '\0'; /* only Enter sends a message */
    char *clean = n ? text_to_utf8(text, n) : NULL;    /* libedit requires valid UTF-8 */
    if (clean) el_insertstr(edit, clean);
    free(clean);
    free(text);
    return CC_REFRESH;
}

static unsigned char insert_begun(EditLine *edit, int key) {
    (void)key;
    const char *begun = of(edit)->begun;
    if (begun && *begun) el_insertstr(edit, begun);
    return CC_REFRESH;
}

static char *prompt_of(EditLine *edit) { return (char *)of(edit)->prompt; /* libedit does not modify it */ }

/* ---- history ---- */

static void history_open(chat_input *in) {
    HistEvent event;
    ht_error ignored = {0};
    in->history = history_init();
    if (!in->history) return;
    history(in->history, &event, H_SETSIZE, HISTORY_LINES);
    history(in->history, &event, H_SETUNIQUE, 1);
    el_set(in->edit, EL_HIST, history, in->history);
    if (cache_path("chat-history", &in->history_path, &ignored) == HT_OK)
        history(in->history, &event, H_LOAD, in->history_path);
}

/* Prompts are private: only the user may read the file. */
static void history_save(const chat_input *in) {
    HistEvent event;
    if (!in->history || !in->history_path || !in->keeps_history) return;
    (void)tree_make_parents(in->history_path, 0);
    const mode_t before = umask(077);
    const int fd = open(in->history_path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    if (fd >= 0) close(fd);
    history(in->history, &event, H_SAVE, in->history_path);
    umask(before);
}

/* ---- opening ---- */

static bool edit_open(chat_input *in) {
    in->edit = el_init("chat", stdin, stdout, stderr);
    if (!in->edit) return false;
    el_set(in->edit, EL_CLIENTDATA, in);
    el_set(in->edit, EL_GETCFN, next_key);
    el_set(in->edit, EL_PROMPT, prompt_of);
    el_set(in->edit, EL_EDITOR, "emacs");
    /* el_set would leak its copies of the names. */
    el_wset(in->edit, EL_ADDFN, L"hearth-paste", L"takes pasted text as it is", paste);
    el_wset(in->edit, EL_ADDFN, L"hearth-insert", L"begins the line", insert_begun);
    el_source(in->edit, NULL); /* the user's ~/.editrc */
    /* Without noflsh, Ctrl-C makes the kernel discard pending output, which may be the next prompt. */
    el_set(in->edit, EL_SETTY, "-x", "+noflsh", NULL);
    /* Without -icrnl and -inlcr, a pasted CRLF would become two newlines. */
    el_set(in->edit, EL_SETTY, "-d", "+noflsh", "-icrnl", "-inlcr", NULL);
    el_set(in->edit, EL_BIND, PASTE_BEGIN, "hearth-paste", NULL);
    el_set(in->edit, EL_BIND, INSERT_KEY, "hearth-insert", NULL);
    el_set(in->edit, EL_BIND, "^R", "em-inc-search-prev", NULL);
    history_open(in);
    return true;
}

chat_input *chat_input_open(void) {
    chat_input *in = calloc(1, sizeof *in);
    if (!in) return NULL;
    in->keeps_history = true;
    if (isatty(STDIN_FILENO) != 1 || !output_is_terminal()) return in;
    if (!setlocale(LC_CTYPE, "") || MB_CUR_MAX == 1) setlocale(LC_CTYPE, "C.UTF-8");
    if (edit_open(in)) return in;
    chat_input_close(in);
    return NULL;
}

void chat_input_close(chat_input *in) {
    if (!in) return;
    history_save(in);
    if (in->edit) el_end(in->edit);
    if (in->history) history_end(in->history);
    free(in->history_path);
    free(in->text);
    free(in);
}

bool chat_input_is_terminal(const chat_input *in) { return in->edit; }
void chat_input_keep_history(chat_input *in, bool on) { in->keeps_history = on; }

/* ---- reading ---- */

static chat_line read_plain(chat_input *in, const char **line) {
    errno = 0;
    ssize_t n = getline(&in->text, &in->capacity, stdin);
    if (n < 0) return errno == EINTR ? LINE_INTERRUPTED : errno == ENOMEM ? LINE_FAILED : LINE_END;
    while (n && (in->text[n - 1] == '\n' || in->text[n - 1] == '\r')) in->text[--n] = '\0';
    char *clean = text_to_utf8(in->text, (size_t)n);
    if (!clean) return LINE_FAILED;
    free(in->text);
    in->text = clean;
    in->capacity = (size_t)n + 1;
    *line = in->text;
    return LINE_READ;
}

static chat_line read_edited(chat_input *in, const char *prompt, const char *begun, const char **line) {
    int n = 0;
    in->prompt = prompt;
    in->begun = begun;
    in->ended = in->was_interrupted = false;
    memset(&in->shift, 0, sizeof in->shift);
    if (begun) el_push(in->edit, INSERT_KEY);
    output_write(PASTE_ON, strlen(PASTE_ON));
    output_flush();
    const char *typed = el_gets(in->edit, &n);
    const bool interrupted = !typed && in->was_interrupted; /* libedit's search reports end of input after Ctrl-C */
    output_write(PASTE_OFF, strlen(PASTE_OFF));
    if (!typed || n <= 0) output_write("\n", 1);
    output_flush();
    if (!typed || n <= 0) return interrupted ? LINE_INTERRUPTED : LINE_END;
    free(in->text);
    in->text = strndup(typed, (size_t)n);
    in->capacity = 0;
    if (!in->text) return LINE_FAILED;
    n = (int)strlen(in->text);
    while (n && in->text[n - 1] == '\n') in->text[--n] = '\0';
    HistEvent event;
    if (n && in->history && in->keeps_history) history(in->history, &event, H_ENTER, in->text);
    *line = in->text;
    return LINE_READ;
}

chat_line chat_input_next(chat_input *in, const char *prompt, const char *begun, const char **line) {
    *line = NULL;
    return in->edit ? read_edited(in, prompt, begun, line) : read_plain(in, line);
}

bool chat_input_ask(chat_input *in, const char *question) {
    if (!in->edit) return false;
    const bool kept = in->keeps_history;
    const char *line;
    in->keeps_history = false;
    const chat_line read = chat_input_next(in, question, NULL, &line);
    in->keeps_history = kept;
    return read == LINE_READ && (line[0] == 'y' || line[0] == 'Y');
}
