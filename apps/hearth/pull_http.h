/* HTTP GET by libcurl: one try with its redirects, what came of it, and whether another try may help, after which wait. The token goes to the
 * hub's own origin alone. One thread at a time. */
#ifndef HEARTH_APP_PULL_HTTP_H
#define HEARTH_APP_PULL_HTTP_H

#include "pull_progress.h"

#include <stdatomic.h>
#include <stddef.h>

/* Settings of `hearth pull`: the hub's address and token, from the environment as Hugging Face's own tools read it, and how patient a transfer
 * is. */
typedef struct pull_settings {
    char *endpoint; /* HF_ENDPOINT, else https://huggingface.co; without a slash at its end */
    char *token; /* HF_TOKEN, else the file of HF_TOKEN_PATH, HF_HOME/token or ~/.cache/huggingface/token; NULL: none */
    /* File of trusted certificates: CURL_CA_BUNDLE, REQUESTS_CA_BUNDLE or SSL_CERT_FILE; NULL: the system's. */
    const char *certificates;
    int64_t retries;    /* failures in a row, without a byte in between, after which a transfer is given up, less one */
    double retry_delay; /* seconds before the first retry; doubled for each further one */
    double timeout; /* seconds without an answer, or nearly without bytes, after which a connection counts as failed */
    int64_t connections; /* files to fetch at once */
    bool quiet;
    const atomic_bool
        *stop; /* set when another transfer has failed for good: this one ends, too; NULL: there is no other */
} pull_settings;

typedef struct http http;

/* What a server said before the body. */
typedef struct http_answer {
    long status;             /* 0: it did not answer */
    char host[256];          /* of the last redirect */
    bool redirected;         /* away from the hub's own origin */
    char etag[256];          /* strong, with its quotes; "": none */
    char next[2048];         /* Link: <...>; rel="next"; "": none */
    char error_code[64];     /* X-Error-Code, which hubs send: "GatedRepo", "RepoNotFound", ... */
    char error_message[256]; /* X-Error-Message */
    double retry_after;      /* seconds; negative: none */
    int64_t range_begin;     /* of Content-Range; -1: none */
    int64_t range_total;     /* -1: not said */
} http_answer;

typedef enum http_outcome {
    HTTP_COMPLETE, /* as far as the server said how long the body is */
    HTTP_RETRY,    /* connection lost, server busy, ...: another try may help */
    HTTP_FAILED,   /* it may not */
} http_outcome;

/* The receiver of an answer of status 200 or 206 and of its body; what is not HTTP_COMPLETE ends the try with that outcome and *err. */
typedef http_outcome http_begin(const http_answer *answer, void *user, ht_error *err);
typedef http_outcome http_body(const char *bytes, size_t n, void *user, ht_error *err);

typedef struct http_request {
    const char *url;
    int64_t from;         /* first byte wanted; 0: all */
    const char *if_range; /* ETag of the bytes that are there; "" or NULL: any */
    http_begin *begin;    /* NULL: nothing to check */
    http_body *body;
    void *user;
} http_request;

ht_status http_new(const pull_settings *settings, http **out, ht_error *err);
void http_free(http *h); /* NULL is fine */

/* Every outcome but HTTP_COMPLETE has a sentence in *err, without addresses, which may hold signatures; HT_ERR_CANCELLED when
 * it was to stop. */
http_outcome http_get(http *h, const http_request *request, http_answer *answer, ht_error *err);

/* Reads one line of an answer's head, of n bytes. */
void http_header(http_answer *answer, const char *line, size_t n);

typedef struct retry {
    const pull_settings *settings;
    pull_progress *show;
    int64_t failures; /* in a row; whoever got further sets it to 0 */
} retry;

/* After a failure `why` of `what`: waits with exponential backoff and jitter, or as long as the server asks, and says so. Not HT_OK when it has
 * failed often enough, when the server wants to be left alone for longer than five minutes, or when it is to stop. */
ht_status retry_wait(retry *r, const char *what, const http_answer *answer, const ht_error *why, ht_error *err);

#endif
