#include "http/head.h"

#include "base/checked.h"
#include "base/grow.h"
#include "http/text.h"

#include <stdlib.h>
#include <string.h>

enum { METHOD_BYTES = 32, VERSION_BYTES = 8 };

static bool refuse(http_head *h, int status, const char *sentence) {
    h->refusal = (http_refusal){status, sentence};
    return false;
}

/* ---- text ---- */

static void point(http_head *h) {
    if (!h->has_request_line) return;
    h->method = h->text;
    h->path = h->text + h->path_at;
    h->query = h->query_at ? h->text + h->query_at : NULL;
    h->host = h->authority_at ? h->text + h->authority_at : h->host;
}

static bool append(http_head *h, char c) {
    if (h->n == h->capacity) {
        if (!HT_GROW(h->text, h->capacity, h->n + 512)) return refuse(h, 503, "The server is out of memory.");
        point(h);
    }
    h->text[h->n++] = c;
    return true;
}

void http_head_discard(http_head *h) {
    free(h->text);
    *h = (http_head){0};
}

/* ---- request line ---- */

static bool take_version(http_head *h, const char *version) {
    if (strncmp(version, "HTTP/", 5) != 0 || !http_is_digit(version[5]) || version[6] != '.' ||
        !http_is_digit(version[7]) || version[8] != '\0')
        return refuse(h, 400, "The request line does not end with a version such as HTTP/1.1.");
    if (version[5] != '1' || version[7] > '1')
        return refuse(h, 505, "The version of HTTP is neither 1.1 nor 1.0, which this server speaks.");
    h->minor = version[7] - '0';
    return true;
}

static bool take_method(http_head *h, const char *method) {
    static const char *const known[] = {"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "QUERY", "TRACE"};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (strcmp(method, known[i]) == 0) return true;
    if (strcmp(method, "CONNECT") == 0) return refuse(h, 405, "The method CONNECT is not allowed here.");
    return refuse(h, 501, "The method of the request is not one that this server knows.");
}

/* Whether a string is a host with or without a port: a name, an IPv4 address, or an IPv6 address in brackets. */
static bool is_authority(const char *s) {
    if (*s == '[') {
        const size_t n = strspn(s + 1, "0123456789abcdefABCDEF:.");
        if (n == 0 || s[1 + n] != ']') return false;
        s += n + 2;
    } else
        while (http_is_digit(*s) || http_is_letter(*s) || (*s && strchr("-._~", *s))) s++;
    if (*s == '\0') return true;
    if (*s++ != ':') return false;
    int32_t port = 0;
    for (; http_is_digit(*s) && port <= 65535; s++) port = 10 * port + *s - '0';
    return *s == '\0' && port <= 65535;
}

/* Splits "http://host:port/path" into host and path. The removed scheme leaves space for a NUL and a missing '/'. */
static bool take_absolute(http_head *h, char **path) {
    char *target = *path, *authority = strstr(target, "://");
    authority += 3;
    const size_t n = strcspn(authority, "/?");
    char *rest = authority + n;
    memmove(target, authority, n);
    target[n] = '\0';
    if (n == 0 || !is_authority(target) || *target == ':')
        return refuse(h, 400, "The address in the request line has no valid host.");
    h->authority_at = (size_t)(target - h->text);
    if (*rest != '/') *--rest = '/';
    *path = rest;
    return true;
}

static bool has_scheme(const char *target) {
    char scheme[9] = "";
    for (size_t i = 0; i < sizeof scheme - 1 && target[i]; i++) scheme[i] = http_lower(target[i]);
    return strncmp(scheme, "http://", 7) == 0 || strncmp(scheme, "https://", 8) == 0;
}

/* Segments are checked after decoding: "%2e%2e" is "..", too. */
static bool has_parent(const char *path) {
    for (const char *at = path; (at = strstr(at, "/..")); at += 3)
        if (at[3] == '/' || at[3] == '\0') return true;
    return false;
}

static bool take_path(http_head *h, char *path, bool is_options) {
    if (strcmp(path, "*") == 0) {
        h->path_at = (size_t)(path - h->text);
        return is_options || refuse(h, 400, "The target * goes with the method OPTIONS alone.");
    }
    if (has_scheme(path) && !take_absolute(h, &path)) return false;
    if (*path != '/') return refuse(h, 400, "The target of the request is neither a path nor an address of http.");
    char *query = strchr(path, '?');
    const size_t n = query ? (size_t)(query - path) : strlen(path);
    for (size_t i = 0; i < n; i++)
        if (!http_is_path(path[i]))
            return refuse(h, 400, "The path of the request has a character that must be escaped.");
    if (query) h->query_at = (size_t)(query - h->text) + 1;
    if (!http_percent_decode(path, n, false, path))
        return refuse(h, 400,
                      "The path of the request has an escape that is not valid, of a control character, or not UTF-8.");
    if (has_parent(path)) return refuse(h, 400, "The path of the request has a segment of two dots.");
    h->path_at = (size_t)(path - h->text);
    return true;
}

/* "METHOD SP target SP version", at the beginning of the text. */
static bool take_request_line(http_head *h) {
    char *method = h->text, *target = strchr(method, ' ');
    char *version = target ? strchr(target + 1, ' ') : NULL;
    if (!version || strchr(version + 1, ' '))
        return refuse(h, 400, "The request line is not a method, a target and a version with one space between them.");
    *target++ = *version++ = '\0';
    for (const char *c = method; *c; c++)
        if (!http_is_token(*c)) return refuse(h, 400, "The method of the request is not a word.");
    for (const char *c = target; *c; c++)
        if (*c < 0x21 || *c > 0x7E || *c == '#')
            return refuse(h, 400, "The target of the request has a character that must be escaped.");
    if (*method == '\0' || *target == '\0') return refuse(h, 400, "The request line has no method or no target.");
    if (strlen(target) > HTTP_TARGET_BYTES)
        return refuse(h, 414, "The target of the request is longer than 8192 bytes.");
    if (!take_version(h, version) || !take_method(h, method) || !take_path(h, target, strcmp(method, "OPTIONS") == 0))
        return false;
    h->has_request_line = true;
    point(h);
    return true;
}

/* ---- fields ---- */

static bool take_field(http_head *h) {
    char *line = h->text + h->line, *colon = line;
    if (*line == ' ' || *line == '\t')
        return refuse(h, 400, "A header field is folded over two lines, or begins with a space.");
    if (h->n_fields == HTTP_FIELDS) return refuse(h, 431, "The request has more than 100 header fields.");
    for (; http_is_token(*colon); colon++) *colon = http_lower(*colon);
    if (colon == line || *colon != ':') return refuse(h, 400, "A header field is not a name, a colon and a value.");
    char *value = colon + 1 + strspn(colon + 1, " \t"), *end = value + strlen(value);
    while (end > value && (end[-1] == ' ' || end[-1] == '\t')) end--;
    for (const char *c = value; c < end; c++)
        if (!http_is_value(*c)) return refuse(h, 400, "The value of a header field has a control character.");
    *colon = *end = '\0';
    h->field[h->n_fields++] = (http_field){(uint32_t)h->line, (uint32_t)(value - h->text)};
    return true;
}

const char *http_head_value(const http_head *h, const char *name) {
    for (size_t i = 0; i < h->n_fields; i++)
        if (strcmp(h->text + h->field[i].name, name) == 0) return h->text + h->field[i].value;
    return NULL;
}

static bool read_length(http_head *h, const char *digits) {
    uint64_t length = 0;
    for (const char *c = digits; *c; c++) {
        if (!http_is_digit(*c)) return refuse(h, 400, "Content-Length is not a number of decimal digits.");
        if (length > (UINT64_MAX - 9) / 10) return refuse(h, 413, "Content-Length is more than this server can count.");
        length = 10 * length + (uint64_t)(*c - '0');
    }
    if (*digits == '\0') return refuse(h, 400, "Content-Length is not a number of decimal digits.");
    h->content_length = length;
    h->body = length ? HTTP_BODY_LENGTH : HTTP_BODY_NONE;
    return true;
}

/* Fields that the server itself reads. */
enum { LENGTH, CODING, HOST, EXPECT, CONTENT_CODING, READ };
typedef struct read_field {
    const char *value; /* of the first; NULL: none */
    size_t n;
} read_field;

/* Finds these fields and evaluates every field Connection. */
static void find_fields(http_head *h, read_field found[READ]) {
    static const char *const names[READ] = {"content-length", "transfer-encoding", "host", "expect",
                                            "content-encoding"};
    bool close = false, keep = h->minor > 0;
    for (size_t i = 0; i < h->n_fields; i++) {
        const char *name = h->text + h->field[i].name, *value = h->text + h->field[i].value;
        if (strcmp(name, "connection") == 0) {
            close |= http_list_has(value, "close");
            keep |= http_list_has(value, "keep-alive");
        }
        for (int k = 0; k < READ; k++)
            if (strcmp(name, names[k]) == 0 && found[k].n++ == 0) found[k].value = value;
    }
    h->keep_alive = keep && !close;
}

/* Determines the framing of the body (RFC 9112, 6.3; by default none), then checks Host and Expect. */
static bool read_fields(http_head *h) {
    read_field found[READ] = {{0}};
    find_fields(h, found);
    const char *length = found[LENGTH].value, *coding = found[CODING].value, *host = found[HOST].value,
               *expect = found[EXPECT].value, *content_coding = found[CONTENT_CODING].value;
    if (length && coding) return refuse(h, 400, "The request has both Content-Length and Transfer-Encoding.");
    if (found[LENGTH].n > 1) return refuse(h, 400, "The request has Content-Length more than once.");
    if (found[CODING].n > 1) return refuse(h, 400, "The request has Transfer-Encoding more than once.");
    if (length && !read_length(h, length)) return false;
    if (coding && h->minor == 0) return refuse(h, 400, "Transfer-Encoding is no part of HTTP/1.0.");
    if (coding && !http_same_word(coding, "chunked"))
        return refuse(h, 501, "The only Transfer-Encoding that this server reads is chunked.");
    if (coding) h->body = HTTP_BODY_CHUNKED;

    if (found[HOST].n > 1) return refuse(h, 400, "The request has Host more than once.");
    if (!host && h->minor > 0) return refuse(h, 400, "The request has no Host, which HTTP/1.1 asks for.");
    if (host && !is_authority(host)) return refuse(h, 400, "Host is not a host with or without a port.");
    h->host = h->authority_at ? h->text + h->authority_at : host;

    if (expect && h->minor > 0) {
        if (found[EXPECT].n > 1 || !http_same_word(expect, "100-continue"))
            return refuse(h, 417, "The only Expect that this server meets is 100-continue.");
        h->expects_continue = h->body != HTTP_BODY_NONE;
    }
    if (content_coding && (found[CONTENT_CODING].n > 1 || !http_same_word(content_coding, "identity")))
        return refuse(h, 415, "The body has a Content-Encoding; this server reads plain bodies.");
    return true;
}

/* ---- bytes ---- */

/* A line is complete. True with *done at the end of the head. */
static bool take_line(http_head *h, bool *done) {
    const bool empty = h->n == h->line;
    if (empty && !h->has_request_line) { /* one is allowed: some clients send one after a body */
        if (h->skipped_line) return refuse(h, 400, "The request begins with empty lines.");
        return h->skipped_line = true;
    }
    if (empty) {
        *done = true;
        return read_fields(h);
    }
    if (!append(h, '\0') || !(h->has_request_line ? take_field(h) : take_request_line(h))) return false;
    h->line = h->n;
    return true;
}

static bool take_byte(http_head *h, char c, bool *done) {
    if (++h->taken > HTTP_HEAD_BYTES) return refuse(h, 431, "The head of the request is longer than 32768 bytes.");
    if (h->after_cr) {
        h->after_cr = false;
        return c == '\n' ? take_line(h, done) : refuse(h, 400, "The head of the request has a CR without LF.");
    }
    if (c == '\r') return h->after_cr = true;
    if (c == '\n') return refuse(h, 400, "The head of the request has an LF without CR.");
    if (c == '\0') return refuse(h, 400, "The head of the request has a NUL.");
    if (!h->has_request_line && h->n == METHOD_BYTES + HTTP_TARGET_BYTES + VERSION_BYTES + 2)
        return refuse(h, 414, "The target of the request is longer than 8192 bytes.");
    return append(h, c);
}

http_progress http_head_feed(http_head *h, const char *bytes, size_t n, size_t *used) {
    bool done = false;
    for (*used = 0; *used < n;) {
        if (!take_byte(h, bytes[(*used)++], &done)) return HTTP_REFUSED;
        if (done) return HTTP_DONE;
    }
    return HTTP_MORE;
}

/* ---- query ---- */

bool http_query_value(const char *query, const char *name, char *out, size_t room) {
    const size_t n = strlen(name);
    for (const char *at = query; at;) {
        const size_t length = strcspn(at, "&");
        if (length >= n && strncmp(at, name, n) == 0 && (length == n || at[n] == '=')) {
            const size_t skipped = length == n ? n : n + 1;
            return length - skipped < room && http_percent_decode(at + skipped, length - skipped, true, out);
        }
        at = at[length] ? at + length + 1 : NULL;
    }
    return false;
}
