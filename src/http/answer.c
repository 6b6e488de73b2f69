/* Heads of answers: status line and the fields that the server adds. */
#include "http/internal.h"

#include <stdio.h>
#include <time.h>

static const char *reason(int status) {
    static const struct {
        int status;
        const char *text;
    } known[] = {{200, "OK"},
                 {201, "Created"},
                 {202, "Accepted"},
                 {204, "No Content"},
                 {304, "Not Modified"},
                 {400, "Bad Request"},
                 {401, "Unauthorized"},
                 {403, "Forbidden"},
                 {404, "Not Found"},
                 {405, "Method Not Allowed"},
                 {408, "Request Timeout"},
                 {409, "Conflict"},
                 {413, "Content Too Large"},
                 {414, "URI Too Long"},
                 {415, "Unsupported Media Type"},
                 {417, "Expectation Failed"},
                 {422, "Unprocessable Content"},
                 {429, "Too Many Requests"},
                 {431, "Request Header Fields Too Large"},
                 {500, "Internal Server Error"},
                 {501, "Not Implemented"},
                 {502, "Bad Gateway"},
                 {503, "Service Unavailable"},
                 {504, "Gateway Timeout"},
                 {505, "HTTP Version Not Supported"},
                 {529, "Overloaded"}};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (known[i].status == status) return known[i].text;
    return "";
}

/* "Sun, 06 Nov 1994 08:49:37 GMT", whatever the locale. */
static bool add_date(struct evbuffer *out) {
    static const char days[] = "SunMonTueWedThuFriSat", months[] = "JanFebMarAprMayJunJulAugSepOctNovDec";
    const time_t now = time(NULL);
    struct tm t;
    if (!gmtime_r(&now, &t)) return true;
    return evbuffer_add_printf(out, "Date: %.3s, %02d %.3s %d %02d:%02d:%02d GMT\r\n", days + 3 * t.tm_wday, t.tm_mday,
                               months + 3 * t.tm_mon, 1900 + t.tm_year, t.tm_hour, t.tm_min, t.tm_sec) >= 0;
}

bool http_answer_head(http_exchange *x, const char *content_type, bool has_length, size_t length) {
    struct evbuffer *out = x->out;
    const bool bodiless = x->status == 204 || x->status == 304;
    if (x->head.minor == 0 && !has_length && !bodiless) x->close = true;
    if (atomic_load(&x->mailbox->draining)) x->close = true;
    bool good = evbuffer_add_printf(out, "HTTP/1.1 %d %s\r\n", x->status, reason(x->status)) >= 0 && add_date(out);
    good = good && evbuffer_add_printf(out, "X-Request-Id: %s\r\n", x->id) >= 0;
    if (content_type && !bodiless) good = good && evbuffer_add_printf(out, "Content-Type: %s\r\n", content_type) >= 0;
    if (has_length && !bodiless) good = good && evbuffer_add_printf(out, "Content-Length: %zu\r\n", length) >= 0;
    if (x->chunked) good = good && evbuffer_add_printf(out, "Transfer-Encoding: chunked\r\n") >= 0;
    if (x->close)
        good = good && evbuffer_add_printf(out, "Connection: close\r\n") >= 0;
    else if (x->head.minor == 0)
        good = good && evbuffer_add_printf(out, "Connection: keep-alive\r\n") >= 0;
    if (x->origin)
        good =
            good && evbuffer_add_printf(
                        out,
                        "Access-Control-Allow-Origin: %s\r\nVary: Origin\r\n"
                        "Access-Control-Expose-Headers: X-Request-Id, Request-Id, X-Seed, X-Ignored, Retry-After\r\n",
                        x->origin) >= 0;
    return good && evbuffer_add_buffer(out, x->fields) == 0 && evbuffer_add(out, "\r\n", 2) == 0;
}
