#include "pull_progress.h"

#include "terminal.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

const char *size_text(int64_t bytes, char text[SIZE_BYTES]) {
    if (bytes < 1000)
        snprintf(text, SIZE_BYTES, "%lld B", (long long)bytes);
    else if (bytes < 999950)
        snprintf(text, SIZE_BYTES, "%.1f kB", (double)bytes / 1e3);
    else if (bytes < 999950000)
        snprintf(text, SIZE_BYTES, "%.1f MB", (double)bytes / 1e6);
    else
        snprintf(text, SIZE_BYTES, "%.2f GB", (double)bytes / 1e9);
    return text;
}

void pull_progress_begin(pull_progress *p, bool quiet, int64_t total, int64_t done) {
    *p = (pull_progress){.quiet = quiet,
                         .terminal = isatty(STDERR_FILENO) == 1,
                         .total = total,
                         .done = done,
                         .done_then = done,
                         .since = now_seconds()};
}

/* Exponential moving average of the transfer rate; a new measurement has weight 1/3. */
static void measure(pull_progress *p, double now) {
    const double rate = (double)(p->done - p->done_then) / (now - p->since);
    p->rate = p->rate > 0 ? p->rate + (rate - p->rate) / 3 : rate;
    if (p->rate < 0) p->rate = 0; /* a file was restarted */
    p->since = now;
    p->done_then = p->done;
}

/* Terminal width: a line that wraps cannot be overwritten by the next one. */
static int columns(void) {
    struct winsize size = {0};
    return ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col ? size.ws_col : 80;
}

/* Formats percentage, sizes, rate and time left, shown after the file name. */
static void write_figures(const pull_progress *p, char *text, size_t n) {
    char here[SIZE_BYTES], all[SIZE_BYTES], rate[SIZE_BYTES], left[32] = "";
    const double seconds = p->rate > 0 ? (double)(p->total - p->done) / p->rate : -1;
    if (seconds >= 0 && seconds < 360000)
        snprintf(left, sizeof left, "  %lld:%02lld left", (long long)seconds / 60, (long long)seconds % 60);
    snprintf(text, n, "  %3.0f %%  %s of %s  %s/s%s", p->total ? 100 * (double)p->done / (double)p->total : 100,
             size_text(p->done, here), size_text(p->total, all), size_text((int64_t)p->rate, rate), left);
}

static pthread_mutex_t one_line = PTHREAD_MUTEX_INITIALIZER; /* parallel transfers share the line */

static void show(pull_progress *p, const char *name) {
    char figures[160], shown[61];
    const double now = now_seconds();
    if (p->quiet || !p->terminal || now - p->since < 0.5) return;
    measure(p, now);
    write_figures(p, figures, sizeof figures);
    const int room = columns() - 1 - (int)strlen(figures);
    snprintf(shown, sizeof shown, "%.*s", room > 0 ? room : 0, name);
    make_printable(shown);
    fprintf(stderr, "\r\033[K%s%.*s", shown, columns() - 1, figures);
    fflush(stderr);
    p->shown = true;
}

void pull_progress_add(pull_progress *p, const char *name, int64_t bytes) {
    pthread_mutex_lock(&one_line);
    p->done += bytes;
    show(p, name);
    pthread_mutex_unlock(&one_line);
}

void pull_progress_clear(pull_progress *p) {
    if (p->shown) fputs("\r\033[K", stderr);
    p->shown = false;
}

void pull_note(pull_progress *p, const char *format, ...) {
    char text[1024];
    va_list args;
    if (p->quiet) return;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    make_printable(text);
    pthread_mutex_lock(&one_line);
    pull_progress_clear(p);
    fprintf(stderr, "%s\n", text);
    pthread_mutex_unlock(&one_line);
}
