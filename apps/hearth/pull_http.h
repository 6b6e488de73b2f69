/* HTTP GET with libcurl: one attempt including redirects, and whether and when to retry. The token is sent only to the
 * hub's own origin. A handle is not thread-safe. */
#ifndef HEARTH_APP_PULL_HTTP_H
#define HEARTH_APP_PULL_HTTP_H

#include "pull_progress.h"

#include <stdatomic.h>
#include <stddef.h>

/* Settings of `hearth pull`: endpoint and token, from the same environment variables as Hugging Face's tools, and
 * retries and timeouts. */
typedef struct pull_settings {
    char *endpoint; /* HF_ENDPOINT, else https://huggingface.co; without a slash at its end */
    char *token; /* HF_TOKEN, else the file of HF_TOKEN_PATH, HF_HOME/token or ~/.cache/huggingface/token; NULL: none */
    /* File of trusted certificates: CURL_CA_BUNDLE, REQUESTS_CA_BUNDLE or SSL_CERT_FILE; NULL: the system's. */
    const char *certificates;
    int64_t retries;     /* retries in a row without progress before a transfer fails */
    double retry_delay;  /* seconds before the first retry; doubles with each one */
    double timeout;      /* seconds without a response, or almost without data, until a connection fails */
    int64_t connections; /* files to fetch at once */
    bool quiet;
    const atomic_bool *stop; /* set after another transfer's permanent failure, to end this one; NULL: none */
} pull_settings;

typedef struct http http;

/* Status and headers of a response. */
typedef struct http_answer {
    long status;             /* 0: no response */
    char host[256];          /* of the last redirect */
    bool redirected;         /* to another origin than the hub's */
    char etag[256];          /* strong, with its quotes; "": none */
    char next[2048];         /* Link: <...>; rel="next"; "": none */
    char error_code[64];     /* X-Error-Code of hubs: "GatedRepo", "RepoNotFound", ... */
    char error_message[256]; /* X-Error-Message */
    double retry_after;      /* seconds; negative: none */
    int64_t range_begin;     /* of Content-Range; -1: none */
    int64_t range_total;     /* -1: unknown */
} http_answer;

typedef enum http_outcome {
    HTTP_COMPLETE, /* complete, if the server sent a length */
    HTTP_RETRY,    /* transient: connection lost, server busy, ... */
    HTTP_FAILED,   /* permanent */
} http_outcome;

/* Callbacks for a response of status 200 or 206 and for its body. Any result but HTTP_COMPLETE aborts the attempt. */
typedef http_outcome http_begin(const http_answer *answer, void *user, ht_error *err);
typedef http_outcome http_body(const char *bytes, size_t n, void *user, ht_error *err);

typedef struct http_request {
    const char *url;
    int64_t from;         /* first byte wanted; 0: all */
    const char *if_range; /* ETag of the bytes fetched so far; "" or NULL: any */
    http_begin *begin;    /* NULL: nothing to check */
    http_body *body;
    void *user;
} http_request;

ht_status http_new(const pull_settings *settings, http **out, ht_error *err);
void http_free(http *h); /* NULL is fine */

/* Any outcome but HTTP_COMPLETE sets *err, without URLs, which may contain signatures.
 * HT_ERR_CANCELLED after an interruption or `stop`. */
http_outcome http_get(http *h, const http_request *request, http_answer *answer, ht_error *err);

/* Parses one response header line of n bytes. */
void http_header(http_answer *answer, const char *line, size_t n);

typedef struct retry {
    const pull_settings *settings;
    pull_progress *show;
    int64_t failures; /* in a row; the caller resets it after progress */
} retry;

/* Reports the failure `why` of `what` and waits: exponential backoff with jitter, or the server's Retry-After. Fails
 * after too many retries, when the server asks for more than five minutes, or after an interruption. */
ht_status retry_wait(retry *r, const char *what, const http_answer *answer, const ht_error *why, ht_error *err);

#endif
