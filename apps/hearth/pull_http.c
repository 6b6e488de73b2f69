#include "pull_http.h"

#include "fail.h"
#include "terminal.h"

#include <hearth/version.h>

#include <curl/curl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>
#include <unistd.h>

enum {
    REDIRECTS_MAX = 10,
    ERROR_BODY_MAX = 1 << 20, /* bytes read and discarded of an error page */
    SLOW_BYTES = 512          /* per second: a slower connection counts as stalled after the timeout */
};

struct http {
    CURL *curl;
    CURLU *hub; /* the endpoint */
    const pull_settings *settings;
    struct curl_slist *plain, *with_token; /* request headers */
};

/* One attempt. */
typedef struct attempt {
    http *h;
    const http_request *request;
    http_answer *answer;
    ht_error *err;
    bool begun;           /* `begin` has been called */
    http_outcome outcome; /* of the callbacks */
    size_t ignored;       /* bytes of discarded bodies */
} attempt;

/* Whether to abort: another transfer failed, or a signal arrived. */
static bool stopped(const pull_settings *s) {
    return ht_cancel_requested(interrupt_flag()) || (s->stop && atomic_load(s->stop));
}

/* ---- header fields ---- */

/* Copies a header value; one that is too long is truncated, or dropped if `exact`. */
static void keep(char *out, size_t room, const char *value, bool exact) {
    const size_t n = strlen(value);
    if (n >= room && exact) {
        *out = '\0';
        return;
    }
    snprintf(out, room, "%s", value);
}

/* Ignores weak ETags, W/"...": they do not guarantee identical bytes. */
static void read_etag(http_answer *a, const char *value) {
    const size_t n = strlen(value);
    if (n >= 2 && value[0] == '"' && value[n - 1] == '"') keep(a->etag, sizeof a->etag, value, true);
}

/* Finds <URL>; rel="next" in a comma-separated list. */
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

/* Parses seconds or an HTTP date. */
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
    if (n >= 5 && strncasecmp(line, "HTTP/", 5) == 0) { /* a new response, for example after "100 Continue" */
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
        if (((unsigned char)*c < ' ' && *c != '\t') || *c == 0x7F) return; /* ETags are sent back in requests */
    take_field(a, text, value);
}

/* ---- callbacks of libcurl ---- */

static size_t on_header(char *line, size_t size, size_t n, void *user) {
    const attempt *t = user;
    http_header(t->answer, line, size * n);
    return size * n;
}

static bool begin_body(attempt *t) {
    if (t->begun) return t->outcome == HTTP_COMPLETE;
    t->begun = true;
    if (t->request->begin) t->outcome = t->request->begin(t->answer, t->request->user, t->err);
    return t->outcome == HTTP_COMPLETE;
}

static size_t on_body(char *bytes, size_t size, size_t n, void *user) {
    attempt *t = user;
    n *= size;
    curl_easy_getinfo(t->h->curl, CURLINFO_RESPONSE_CODE, &t->answer->status);
    if (t->answer->status != 200 && t->answer->status != 206) {
        t->ignored += n;
        return t->ignored > ERROR_BODY_MAX ? CURL_WRITEFUNC_ERROR : n;
    }
    if (!begin_body(t)) return CURL_WRITEFUNC_ERROR;
    t->outcome = t->request->body(bytes, n, t->request->user, t->err);
    return t->outcome == HTTP_COMPLETE ? n : CURL_WRITEFUNC_ERROR;
}

static int on_progress(void *user, curl_off_t total, curl_off_t done, curl_off_t up_total, curl_off_t up) {
    (void)total, (void)done, (void)up_total, (void)up;
    return stopped(((const attempt *)user)->h->settings);
}

/* ---- origins ---- */

/* A component of a URL, freed with curl_free; NULL: absent, or memory ran out. */
static char *part_of(const CURLU *url, CURLUPart part) {
    char *text = NULL;
    return curl_url_get((CURLU *)(uintptr_t)url, part, &text, CURLU_DEFAULT_PORT) == CURLUE_OK ? text : NULL;
}

static bool same_part(const CURLU *a, const CURLU *b, CURLUPart part) {
    char *first = part_of(a, part), *second = part_of(b, part);
    const bool same = first && second && strcasecmp(first, second) == 0;
    curl_free(first);
    curl_free(second);
    return same;
}

static bool same_origin(const CURLU *a, const CURLU *b) {
    return same_part(a, b, CURLUPART_SCHEME) && same_part(a, b, CURLUPART_HOST) && same_part(a, b, CURLUPART_PORT);
}

static void keep_host(const CURLU *url, http_answer *answer) {
    char *host = part_of(url, CURLUPART_HOST);
    if (host) snprintf(answer->host, sizeof answer->host, "%s", host);
    curl_free(host);
}

static bool has_scheme(const CURLU *url, const char *scheme) {
    char *found = part_of(url, CURLUPART_SCHEME);
    const bool has = found && strcasecmp(found, scheme) == 0;
    curl_free(found);
    return has;
}

/* ---- outcome ---- */

static http_outcome lost(const attempt *t, http_outcome outcome, const char *why) {
    ht_fail(t->err, HT_ERR_IO, "%.200s: %s", t->answer->host, why);
    return outcome;
}

static http_outcome judge_status(const attempt *t) {
    const long status = t->answer->status;
    const char *said = *t->answer->error_message ? t->answer->error_message : NULL;
    char why[400];
    if (status == 200 || status == 206) return HTTP_COMPLETE;
    snprintf(why, sizeof why, "the server answers with status %ld%s%s", status, said ? ": " : "", said ? said : "");
    return lost(t, status == 408 || status == 429 || status >= 500 ? HTTP_RETRY : HTTP_FAILED, why);
}

/* Failures that a retry cannot fix: certificates and URLs. */
static bool is_permanent(CURLcode code) {
    static const CURLcode codes[] = {
        CURLE_URL_MALFORMAT, CURLE_PEER_FAILED_VERIFICATION, CURLE_SSL_CACERT_BADFILE, CURLE_OUT_OF_MEMORY,
        CURLE_NOT_BUILT_IN,  CURLE_SSL_CERTPROBLEM,          CURLE_SSL_ISSUER_ERROR};
    for (size_t i = 0; i < sizeof codes / sizeof *codes; i++)
        if (codes[i] == code) return true;
    return false;
}

static const char *reason(const attempt *t, CURLcode code, char *text, size_t n) {
    const double seconds = t->h->settings->timeout;
    switch (code) {
    case CURLE_OPERATION_TIMEDOUT: snprintf(text, n, "nothing came for %g s", seconds); return text;
    case CURLE_PEER_FAILED_VERIFICATION:
        return "its certificate is none that this system trusts; SSL_CERT_FILE names a file of others";
    case CURLE_SSL_CACERT_BADFILE:
        snprintf(text, n, "the trusted certificates cannot be read%s%.200s",
                 t->h->settings->certificates ? " from " : "",
                 t->h->settings->certificates ? t->h->settings->certificates : "");
        return text;
    case CURLE_PARTIAL_FILE: return "the connection ended before the answer did";
    case CURLE_UNSUPPORTED_PROTOCOL: return "it does not answer by HTTP";
    default: return curl_easy_strerror(code);
    }
}

static http_outcome judge(attempt *t, CURLcode code) {
    char text[300];
    if (stopped(t->h->settings)) {
        ht_fail(t->err, HT_ERR_CANCELLED, "interrupted");
        return HTTP_FAILED;
    }
    curl_easy_getinfo(t->h->curl, CURLINFO_RESPONSE_CODE, &t->answer->status);
    if (t->outcome != HTTP_COMPLETE) return t->outcome;
    if (t->answer->status >= 400) return judge_status(t);
    if (code != CURLE_OK)
        return lost(t, is_permanent(code) ? HTTP_FAILED : HTTP_RETRY, reason(t, code, text, sizeof text));
    const http_outcome outcome = judge_status(t);
    if (outcome == HTTP_COMPLETE && !begin_body(t)) return t->outcome;
    return outcome;
}

/* ---- one request ---- */

static void prepare(http *h, attempt *t, const char *url, bool with_token) {
    char range[32], name[64];
    curl_easy_reset(h->curl);
    snprintf(name, sizeof name, "hearth/%s", ht_version());
    curl_easy_setopt(h->curl, CURLOPT_URL, url);
    curl_easy_setopt(h->curl, CURLOPT_USERAGENT, name);
    curl_easy_setopt(h->curl, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(h->curl, CURLOPT_HTTPHEADER, with_token ? h->with_token : h->plain);
#if LIBCURL_VERSION_NUM >= 0x075500
    curl_easy_setopt(h->curl, CURLOPT_PROTOCOLS_STR, "http,https");
#else
    curl_easy_setopt(h->curl, CURLOPT_PROTOCOLS, (long)(CURLPROTO_HTTP | CURLPROTO_HTTPS));
#endif
    if (h->settings->certificates) curl_easy_setopt(h->curl, CURLOPT_CAINFO, h->settings->certificates);
    const long timeout = (long)ceil(h->settings->timeout);
    curl_easy_setopt(h->curl, CURLOPT_CONNECTTIMEOUT, timeout);
    curl_easy_setopt(h->curl, CURLOPT_LOW_SPEED_LIMIT, (long)SLOW_BYTES);
    curl_easy_setopt(h->curl, CURLOPT_LOW_SPEED_TIME, timeout);
    curl_easy_setopt(h->curl, CURLOPT_BUFFERSIZE, 256L << 10);
    curl_easy_setopt(h->curl, CURLOPT_HEADERFUNCTION, on_header);
    curl_easy_setopt(h->curl, CURLOPT_HEADERDATA, t);
    curl_easy_setopt(h->curl, CURLOPT_WRITEFUNCTION, on_body);
    curl_easy_setopt(h->curl, CURLOPT_WRITEDATA, t);
    curl_easy_setopt(h->curl, CURLOPT_NOPROGRESS, 0L);
    curl_easy_setopt(h->curl, CURLOPT_XFERINFOFUNCTION, on_progress);
    curl_easy_setopt(h->curl, CURLOPT_XFERINFODATA, t);
    if (t->request->from > 0) {
        snprintf(range, sizeof range, "%lld-", (long long)t->request->from);
        curl_easy_setopt(h->curl, CURLOPT_RANGE, range);
    }
}

static bool append_header(struct curl_slist **list, const char *line) {
    struct curl_slist *longer = curl_slist_append(*list, line);
    if (longer) *list = longer;
    return longer != NULL;
}

static void free_headers(http *h) {
    curl_slist_free_all(h->plain);
    curl_slist_free_all(h->with_token);
    h->plain = h->with_token = NULL;
}

/* Builds the request headers in h->plain and, with the token, in h->with_token. */
static bool make_headers(http *h, const http_request *request) {
    struct curl_slist **const lists[] = {&h->plain, &h->with_token};
    char text[4200];
    const bool conditional = request->from > 0 && request->if_range && *request->if_range;
    free_headers(h);
    for (int i = 0; i < 2; i++) {
        if (!append_header(lists[i], "Accept-Encoding: identity")) return false;
        snprintf(text, sizeof text, "If-Range: %s", conditional ? request->if_range : "");
        if (conditional && !append_header(lists[i], text)) return false;
    }
    if (!h->settings->token) return true;
    snprintf(text, sizeof text, "Authorization: Bearer %s", h->settings->token);
    return append_header(&h->with_token, text);
}

/* Follows a redirect; a relative URL refers to the same host. */
static http_outcome follow(attempt *t, CURLU *url) {
    char *location = NULL;
    const bool secure = has_scheme(url, "https");
    if (curl_easy_getinfo(t->h->curl, CURLINFO_REDIRECT_URL, &location) != CURLE_OK || !location)
        return lost(t, HTTP_FAILED, "it sends elsewhere without saying where");
    if (curl_url_set(url, CURLUPART_URL, location, CURLU_NON_SUPPORT_SCHEME) != CURLUE_OK)
        return lost(t, HTTP_FAILED, "it sends to an address that is none");
    if (!has_scheme(url, "https") && (secure || !has_scheme(url, "http")))
        return lost(t, HTTP_FAILED,
                    secure ? "it sends elsewhere, and not by https" : "it sends elsewhere, and not by http or https");
    return HTTP_COMPLETE;
}

static http_outcome get(attempt *t, CURLU *url) {
    for (int hop = 0; hop <= REDIRECTS_MAX; hop++) {
        char *text = NULL;
        const bool at_hub = same_origin(url, t->h->hub);
        keep_host(url, t->answer);
        t->answer->redirected = !at_hub;
        if (curl_url_get(url, CURLUPART_URL, &text, 0) != CURLUE_OK) {
            fail_memory(t->err, "an address");
            return HTTP_FAILED;
        }
        t->ignored = 0;
        prepare(t->h, t, text, at_hub);
        const CURLcode code = curl_easy_perform(t->h->curl);
        curl_free(text);
        curl_easy_getinfo(t->h->curl, CURLINFO_RESPONSE_CODE, &t->answer->status);
        if (t->answer->status < 300 || t->answer->status > 399 || stopped(t->h->settings)) return judge(t, code);
        const http_outcome outcome = follow(t, url);
        if (outcome != HTTP_COMPLETE) return outcome;
    }
    return lost(t, HTTP_FAILED, "it sends from one address to another without end");
}

http_outcome http_get(http *h, const http_request *request, http_answer *answer, ht_error *err) {
    *answer = (http_answer){.retry_after = -1, .range_begin = -1, .range_total = -1};
    attempt t = {.h = h, .request = request, .answer = answer, .err = err};
    CURLU *url = curl_url();
    http_outcome outcome = HTTP_FAILED;
    if (!url || !make_headers(h, request))
        fail_memory(err, "a request");
    else if (curl_url_set(url, CURLUPART_URL, request->url, 0) != CURLUE_OK)
        ht_fail(err, HT_ERR_ARGUMENT, "%.200s is no address", h->settings->endpoint);
    else
        outcome = get(&t, url);
    curl_url_cleanup(url);
    return outcome;
}

ht_status http_new(const pull_settings *settings, http **out, ht_error *err) {
    *out = NULL;
    if (curl_global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK) return fail_memory(err, "connections");
    http *h = malloc(sizeof *h);
    if (!h) {
        curl_global_cleanup();
        return fail_memory(err, "connections");
    }
    *h = (http){.curl = curl_easy_init(), .hub = curl_url(), .settings = settings};
    ht_status st = HT_OK;
    if (!h->curl || !h->hub)
        st = fail_memory(err, "connections");
    else if (curl_url_set(h->hub, CURLUPART_URL, settings->endpoint, 0) != CURLUE_OK)
        st = ht_fail(err, HT_ERR_ARGUMENT, "HF_ENDPOINT is \"%.200s\", which is no address", settings->endpoint);
    if (st)
        http_free(h);
    else
        *out = h;
    return st;
}

void http_free(http *h) {
    if (!h) return;
    curl_easy_cleanup(h->curl);
    curl_url_cleanup(h->hub);
    free_headers(h);
    free(h);
    curl_global_cleanup();
}

/* ---- retries ---- */

enum {
    DOUBLINGS_MAX = 5,     /* the longest wait is 32 times the first */
    RETRY_AFTER_MAX = 300, /* maximum accepted Retry-After, in seconds */
};

/* A factor from 0.5 to 1, so that clients rejected at the same time do not retry at the same time. */
static double jitter(void) {
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    uint64_t x = (uint64_t)t.tv_nsec ^ (uint64_t)t.tv_sec << 20 ^ (uint64_t)getpid() << 40;
    for (int i = 0; i < 3; i++) x ^= x << 13, x ^= x >> 7, x ^= x << 17;
    return 0.5 + (double)(x >> 11) / (double)(1ULL << 53) / 2;
}

static void wait_for(const pull_settings *s, double seconds) {
    const double end = now_seconds() + seconds;
    for (double left = seconds; left > 0 && !stopped(s); left = end - now_seconds()) {
        const double piece = left < 0.2 ? left : 0.2;
        const struct timespec t = {(time_t)0, (long)(piece * 1e9)};
        nanosleep(&t, NULL);
    }
}

ht_status retry_wait(retry *r, const char *what, const http_answer *answer, const ht_error *why, ht_error *err) {
    double seconds = r->settings->retry_delay *
                     ldexp(1, (int)(r->failures < DOUBLINGS_MAX ? r->failures : DOUBLINGS_MAX)) * jitter();
    if (r->failures++ >= r->settings->retries)
        return ht_fail(err, why->status, "%.200s: %.400s; given up after %lld attempt%s", what, why->message,
                       (long long)r->failures, plural(r->failures));
    if (answer->retry_after > (double)RETRY_AFTER_MAX)
        return ht_fail(err, why->status, "%.200s: %.400s; it asks to come back in %.0f s", what, why->message,
                       answer->retry_after);
    if (answer->retry_after > seconds) seconds = answer->retry_after;
    pull_note(r->show, "%.200s: %.400s; trying again in %.*f s", what, why->message, seconds < 10, seconds);
    wait_for(r->settings, seconds);
    return stopped(r->settings) ? ht_fail(err, HT_ERR_CANCELLED, "interrupted") : HT_OK;
}
