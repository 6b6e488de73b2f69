#include "pull_http.h"

#include "fail.h"

#include <hearth/version.h>

#include <curl/curl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum {
    REDIRECTS_MAX = 10,
    ERROR_BODY_MAX = 1 << 20, /* bytes of a page that says what went wrong; it is not shown */
    SLOW_BYTES = 512          /* a second: less for the time-out's length is a stalled connection */
};

struct http {
    CURL *curl;
    CURLU *hub; /* the endpoint */
    const pull_settings *settings;
    struct curl_slist *plain, *with_token; /* request headers */
};

/* One try. */
typedef struct attempt {
    http *h;
    const http_request *request;
    http_answer *answer;
    ht_error *err;
    bool begun;           /* the receiver has seen the answer */
    http_outcome outcome; /* of the receiver */
    size_t ignored;       /* bytes of other bodies */
} attempt;

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
    return pull_stopped(((const attempt *)user)->h->settings);
}

/* ---- origins ---- */

static bool same_part(const CURLU *a, const CURLU *b, CURLUPart part) {
    char *first = NULL, *second = NULL;
    const bool same = curl_url_get((CURLU *)(uintptr_t)a, part, &first, CURLU_DEFAULT_PORT) == CURLUE_OK &&
                      curl_url_get((CURLU *)(uintptr_t)b, part, &second, CURLU_DEFAULT_PORT) == CURLUE_OK &&
                      strcasecmp(first, second) == 0;
    curl_free(first);
    curl_free(second);
    return same;
}

static bool same_origin(const CURLU *a, const CURLU *b) {
    return same_part(a, b, CURLUPART_SCHEME) && same_part(a, b, CURLUPART_HOST) && same_part(a, b, CURLUPART_PORT);
}

static void keep_host(const CURLU *url, http_answer *answer) {
    char *host = NULL;
    if (curl_url_get((CURLU *)(uintptr_t)url, CURLUPART_HOST, &host, 0) == CURLUE_OK)
        snprintf(answer->host, sizeof answer->host, "%s", host);
    curl_free(host);
}

static bool has_scheme(const CURLU *url, const char *scheme) {
    char *found = NULL;
    const bool has = curl_url_get((CURLU *)(uintptr_t)url, CURLUPART_SCHEME, &found, 0) == CURLUE_OK &&
                     strcasecmp(found, scheme) == 0;
    curl_free(found);
    return has;
}

/* ---- what came of it ---- */

static http_outcome lost(const attempt *t, http_outcome outcome, const char *why) {
    fail_with(t->err, HT_ERR_IO, "%.200s: %s", t->answer->host, why);
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

/* Reasons that another try will not remove: certificates and addresses. */
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
    if (pull_stopped(t->h->settings)) {
        fail_with(t->err, HT_ERR_CANCELLED, "interrupted");
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
    static const char agent[] = "hearth/";
    char range[32], name[64];
    curl_easy_reset(h->curl);
    snprintf(name, sizeof name, "%s%s", agent, ht_version());
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

/* The headers of one request, in h->plain and, with the token, in h->with_token. */
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

/* Follows a redirect; an address that is not complete is one of the same host. */
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
        if (t->answer->status < 300 || t->answer->status > 399 || pull_stopped(t->h->settings)) return judge(t, code);
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
        fail_with(err, HT_ERR_ARGUMENT, "%.200s is no address", h->settings->endpoint);
    else
        outcome = get(&t, url);
    curl_url_cleanup(url);
    return outcome;
}

ht_status http_new(const pull_settings *settings, http **out, ht_error *err) {
    *out = NULL;
    if (curl_global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK) return fail_memory(err, "connections");
    http *h = calloc(1, sizeof *h);
    if (!h) {
        curl_global_cleanup();
        return fail_memory(err, "connections");
    }
    *h = (http){.curl = curl_easy_init(), .hub = curl_url(), .settings = settings};
    ht_status st = HT_OK;
    if (!h->curl || !h->hub)
        st = fail_memory(err, "connections");
    else if (curl_url_set(h->hub, CURLUPART_URL, settings->endpoint, 0) != CURLUE_OK)
        st = fail_with(err, HT_ERR_ARGUMENT, "HF_ENDPOINT is \"%.200s\", which is no address", settings->endpoint);
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
