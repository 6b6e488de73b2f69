/* Parser of HTTP request heads: request line and header fields (RFC 9112). It takes bytes as they arrive and needs
 * no socket.
 *
 * It refuses whatever another parser could read differently, to prevent request smuggling through proxies: bare CR
 * or LF, NUL, folded fields, space before a colon, a length and a coding together, either of them or Host twice, a
 * length with anything but digits, any coding but "chunked". Any thread, one at a time per head. */
#ifndef HT_HTTP_HEAD_H
#define HT_HTTP_HEAD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Limits of a head: more bytes than HTTP_HEAD_BYTES, or more fields, are refused with 431, a longer target with 414. */
enum { HTTP_HEAD_BYTES = 32768, HTTP_TARGET_BYTES = 8192, HTTP_FIELDS = 100 };

typedef enum http_progress {
    HTTP_MORE,    /* all bytes were consumed, and more are needed */
    HTTP_DONE,    /* complete; unconsumed bytes belong to what follows */
    HTTP_REFUSED, /* `refusal` says why; the bytes that follow cannot be parsed */
} http_progress;

/* Refusal of a request: the status of the response, and a sentence of static storage for its body. */
typedef struct http_refusal {
    int status;
    const char *sentence;
} http_refusal;

typedef enum http_body_kind { HTTP_BODY_NONE, HTTP_BODY_LENGTH, HTTP_BODY_CHUNKED } http_body_kind;

/* Field of a head, as offsets into its text; the name in lower case. */
typedef struct http_field {
    uint32_t name, value;
} http_field;

/* Zero-initialised: an empty head. It owns the strings. Before HTTP_DONE, method, path and query are those of the
 * request line if that has been received, else NULL. */
typedef struct http_head {
    const char *method; /* GET, HEAD, POST, PUT, PATCH, DELETE or OPTIONS */
    const char *path;   /* percent-decoded UTF-8 that begins with '/' and has no segment ".."; or "*" with OPTIONS */
    const char *query;  /* the text after '?', as sent; NULL: none */
    const char *host;   /* with its port, from an absolute target, else from Host; NULL: HTTP/1.0 */
    int minor;          /* of the version: 1 of HTTP/1.1, 0 of HTTP/1.0 */
    bool keep_alive;    /* the client will reuse the connection */
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

/* Parses up to n bytes; *used of them were consumed. Do not call it after HTTP_DONE or HTTP_REFUSED. */
http_progress http_head_feed(http_head *h, const char *bytes, size_t n, size_t *used);
/* Frees the strings and empties the head. */
void http_head_discard(http_head *h);

/* The value of the first field with this lower-case name; NULL: none. */
const char *http_head_value(const http_head *h, const char *name);

/* Writes a decoded query parameter to `out` ('+' is a space). False: it is absent, does not fit, is not UTF-8, or
 * has a control character. */
bool http_query_value(const char *query, const char *name, char *out, size_t room);

#endif
