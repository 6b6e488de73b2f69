/* Heads of HTTP requests: request line and header fields, read byte by byte from whatever pieces they come in, without a socket
 * (RFC 9112).
 *
 * What another reader could take for something else is refused, so that nothing can hide behind a proxy that reads it
 * differently: bare CR or LF, NUL, folded fields, space before a colon, a length and a coding together, either of them or Host
 * twice, a length that is not digits alone, a coding that is not "chunked" alone. Any thread, one at a time for a head. */
#ifndef HT_HTTP_HEAD_H
#define HT_HTTP_HEAD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Limits of a head: more bytes than HTTP_HEAD_BYTES, or more fields, are refused with 431, a longer target with 414. */
enum { HTTP_HEAD_BYTES = 32768, HTTP_TARGET_BYTES = 8192, HTTP_FIELDS = 100 };

typedef enum http_progress {
    HTTP_MORE,    /* all bytes were taken, and more are needed */
    HTTP_DONE,    /* complete; bytes that were not taken belong to what comes next */
    HTTP_REFUSED, /* `refusal` says why; what comes after it cannot be told apart any more */
} http_progress;

/* Refusal of a request: the status of the answer, and a sentence for its body, of static storage. */
typedef struct http_refusal {
    int status;
    const char *sentence;
} http_refusal;

typedef enum http_body_kind { HTTP_BODY_NONE, HTTP_BODY_LENGTH, HTTP_BODY_CHUNKED } http_body_kind;

/* Field of a head, as offsets into its text; the name in lower case. */
typedef struct http_field {
    uint32_t name, value;
} http_field;

/* Zero-initialised: a head of which no byte has come. The strings belong to it. Before HTTP_DONE, method, path and query are
 * those of the request line, once that has come; else NULL. */
typedef struct http_head {
    const char *method; /* GET, HEAD, POST, PUT, PATCH, DELETE or OPTIONS */
    const char *path;   /* percent-decoded UTF-8 that begins with '/' and has no segment ".."; or "*" with OPTIONS */
    const char *query;  /* what follows '?', as it was sent; NULL: none */
    const char *host;   /* with its port: of the target if that is a whole address, else of Host; NULL: HTTP/1.0 */
    int minor;          /* of the version: 1 of HTTP/1.1, 0 of HTTP/1.0 */
    bool keep_alive;    /* the client wants to use the connection again */
    bool expects_continue;
    http_body_kind body;
    uint64_t content_length; /* of HTTP_BODY_LENGTH, not 0 */
    http_refusal refusal;

    /* Private: the strings, each with its NUL, and the state of the parser. */
    char *text;
    size_t n, capacity, line, taken;
    size_t path_at, query_at, authority_at; /* 0: none */
    size_t n_fields;
    http_field field[HTTP_FIELDS];
    bool after_cr, skipped_line, has_request_line;
} http_head;

/* Takes the next n bytes; *used of them were taken. Not to be called again after HTTP_DONE or HTTP_REFUSED. */
http_progress http_head_feed(http_head *h, const char *bytes, size_t n, size_t *used);
/* Frees the strings and makes it a head of which no byte has come. */
void http_head_discard(http_head *h);

/* The value of the first field of this name, in lower case; NULL: there is none. */
const char *http_head_value(const http_head *h, const char *name);

/* The value of a parameter of the query, decoded ('+' is a space), as a string in out. False: there is none, or it does not
 * fit, is not UTF-8, or has a control character. */
bool http_query_value(const char *query, const char *name, char *out, size_t room);

#endif
