/* HTTP GET by libcurl: one try with its redirects, what came of it, and whether another try may help. The token goes to the hub's own origin
 * alone. One thread at a time. */
#ifndef HEARTH_APP_PULL_HTTP_H
#define HEARTH_APP_PULL_HTTP_H

#include "pull_settings.h"

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

/* One line of an answer's head, of n bytes. (pull_headers.c) */
void http_header(http_answer *answer, const char *line, size_t n);

#endif
