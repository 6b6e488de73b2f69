/* Header fields of HTTP answers that `hearth pull` reads: ETag, Link, Content-Range, Retry-After and a hub's reasons. */
#include "pull_http.h"

#include <curl/curl.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>

/* Kept whole or, where it has to be exact, not at all. */
static void keep(char *out, size_t room, const char *value, bool exact) {
    const size_t n = strlen(value);
    if (n >= room && exact) {
        *out = '\0';
        return;
    }
    snprintf(out, room, "%s", value);
}

/* A weak ETag, W/"...", does not promise the same bytes. */
static void read_etag(http_answer *a, const char *value) {
    const size_t n = strlen(value);
    if (n >= 2 && value[0] == '"' && value[n - 1] == '"') keep(a->etag, sizeof a->etag, value, true);
}

/* "<address>; rel="next"" among entries that commas separate. */
static void read_link(http_answer *a, const char *value) {
    for (const char *at = value; (at = strchr(at, '<'));) {
        const char *end = strchr(at, '>');
        if (!end) return;
        const size_t parameters = strcspn(end, ","), n = (size_t)(end - at) - 1;
        const bool next = memmem(end, parameters, "rel=\"next\"", 10) || memmem(end, parameters, "rel=next", 8);
        if (next && n < sizeof a->next) {
            memcpy(a->next, at + 1, n);
            a->next[n] = '\0';
            return;
        }
        at = end + parameters;
    }
}

/* "bytes 100-199/200", "bytes 100-199/" and an asterisk, or "bytes", an asterisk and "/200". */
static void read_range(http_answer *a, const char *value) {
    long long begin, last, total;
    const char *slash = strchr(value, '/');
    if (strncasecmp(value, "bytes ", 6) != 0 || !slash) return;
    if (sscanf(value + 6, "%19lld-%19lld/", &begin, &last) == 2 && begin >= 0 && last >= begin) a->range_begin = begin;
    if (sscanf(slash + 1, "%19lld", &total) == 1 && total >= 0) a->range_total = total;
}

/* Seconds, or a date. */
static void read_retry_after(http_answer *a, const char *value) {
    char *end;
    const double seconds = strtod(value, &end);
    if (end != value && !*end && isfinite(seconds) && seconds >= 0) {
        a->retry_after = seconds;
        return;
    }
    const time_t then = curl_getdate(value, NULL);
    if (then == (time_t)-1) return;
    a->retry_after = difftime(then, time(NULL));
    if (a->retry_after < 0) a->retry_after = 0;
}

static void take_field(http_answer *a, const char *name, const char *value) {
    if (strcasecmp(name, "etag") == 0)
        read_etag(a, value);
    else if (strcasecmp(name, "link") == 0)
        read_link(a, value);
    else if (strcasecmp(name, "content-range") == 0)
        read_range(a, value);
    else if (strcasecmp(name, "retry-after") == 0)
        read_retry_after(a, value);
    else if (strcasecmp(name, "x-error-code") == 0)
        keep(a->error_code, sizeof a->error_code, value, true);
    else if (strcasecmp(name, "x-error-message") == 0)
        keep(a->error_message, sizeof a->error_message, value, false);
}

void http_header(http_answer *a, const char *line, size_t n) {
    char text[4096];
    if (n >= 5 && strncasecmp(line, "HTTP/", 5) == 0) { /* of another answer, as after "100 Continue" */
        const bool redirected = a->redirected;
        char host[sizeof a->host];
        memcpy(host, a->host, sizeof host);
        *a = (http_answer){.retry_after = -1, .range_begin = -1, .range_total = -1, .redirected = redirected};
        memcpy(a->host, host, sizeof host);
        return;
    }
    if (n >= sizeof text) return;
    memcpy(text, line, n);
    text[n] = '\0';
    char *colon = strchr(text, ':');
    if (!colon) return;
    *colon = '\0';
    char *value = colon + 1 + strspn(colon + 1, " \t"), *end = value + strlen(value);
    while (end > value && strchr(" \t\r\n", end[-1])) *--end = '\0';
    for (const char *c = value; *c; c++)
        if (((unsigned char)*c < ' ' && *c != '\t') || *c == 0x7F) return; /* an ETag goes back in a header of ours */
    take_field(a, text, value);
}
