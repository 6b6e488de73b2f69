#include "http/body.h"

#include "base/checked.h"
#include "base/grow.h"
#include "http/text.h"

#include <stdlib.h>
#include <string.h>

/* Parser states of a chunked body: the next byte. */
enum {
    SIZE,          /* a digit of a chunk's size, or what ends it */
    EXTENSION,     /* of an extension, up to CR */
    SIZE_LF,       /* the LF after a size */
    DATA,          /* of the chunk */
    DATA_CR,       /* the CR after the data */
    DATA_LF,       /* the LF after it */
    TRAILER,       /* the first of a trailer field, or the CR of the last line */
    TRAILER_NAME,  /* a further one of its name, or the colon */
    TRAILER_VALUE, /* one of its value, up to CR */
    TRAILER_LF,    /* the LF after it */
    LAST_LF,       /* the LF that ends the body */
};

static bool refuse(http_body_reader *r, int status, const char *sentence) {
    r->refusal = (http_refusal){status, sentence};
    return false;
}

static bool refuse_size(http_body_reader *r) {
    return refuse(r, 413, "The body of the request is larger than this server takes.");
}

http_progress http_body_begin(http_body_reader *r, const http_head *head, size_t limit) {
    *r = (http_body_reader){.kind = head->body, .limit = limit, .left = head->content_length, .state = SIZE};
    if (head->body == HTTP_BODY_NONE) return HTTP_DONE;
    if (head->body == HTTP_BODY_CHUNKED || head->content_length <= limit) return HTTP_MORE;
    refuse_size(r);
    return HTTP_REFUSED;
}

/* Doubles the capacity so that bytes are copied only a few times, but does not exceed the announced length. */
static bool reserve(http_body_reader *r, size_t more) {
    size_t wanted, all;
    if (!ht_add_size(r->n, more, &wanted) || wanted > r->limit || !ht_add_size(wanted, 1, &wanted))
        return refuse_size(r);
    if (wanted <= r->capacity) return true;
    size_t capacity = ht_max_size(wanted, ht_max_size(2 * r->capacity, 1024));
    if (r->kind == HTTP_BODY_LENGTH && ht_add_size(r->n, (size_t)r->left, &all) && all < capacity) capacity = all + 1;
    if (!HT_RESIZE(r->bytes, capacity)) return refuse(r, 503, "The server is out of memory.");
    r->capacity = capacity;
    return true;
}

/* Copies as many bytes as belong to the body or the chunk. */
static bool take_data(http_body_reader *r, const char *bytes, size_t n, size_t *taken) {
    *taken = r->left < n ? (size_t)r->left : n;
    if (!reserve(r, *taken)) return false;
    memcpy(r->bytes + r->n, bytes, *taken);
    r->n += *taken;
    r->bytes[r->n] = '\0';
    r->left -= *taken;
    return true;
}

static bool expect(http_body_reader *r, char c, char wanted, int next) {
    r->state = next;
    return c == wanted || refuse(r, 400, "A line of the chunked body does not end with CR and LF where it should.");
}

/* Sixteen digits hold any 64-bit size; more would need misleading leading zeros. */
static bool take_size(http_body_reader *r, char c) {
    const int digit = http_hex(c);
    if (digit >= 0) {
        if (++r->digits > 16) return refuse(r, 400, "The size of a chunk has more than 16 digits.");
        r->left = r->left << 4 | (uint64_t)digit;
        return true;
    }
    if (r->digits == 0 || (c != '\r' && c != ';'))
        return refuse(r, 400, "The size of a chunk is not a hexadecimal number.");
    if (r->left > r->limit - r->n) return refuse_size(r);
    r->state = c == ';' ? EXTENSION : SIZE_LF;
    return true;
}

static bool take_extension(http_body_reader *r, char c) {
    if (c == '\r') {
        r->state = SIZE_LF;
        return true;
    }
    if (++r->extensions > HTTP_EXTENSION_BYTES)
        return refuse(r, 400, "The extensions of chunks are longer than 4096 bytes.");
    return http_is_value(c) || refuse(r, 400, "An extension of a chunk has a control character.");
}

static bool take_trailer(http_body_reader *r, char c) {
    if (++r->trailers > HTTP_TRAILER_BYTES) return refuse(r, 431, "The trailer fields are longer than 8192 bytes.");
    if (r->state == TRAILER && c == '\r') {
        r->state = LAST_LF;
        return true;
    }
    if (r->state == TRAILER_VALUE) {
        if (c == '\r') r->state = TRAILER_LF;
        return c == '\r' || http_is_value(c) || refuse(r, 400, "A trailer field has a control character.");
    }
    const bool named = r->state == TRAILER_NAME;
    r->state = c == ':' ? TRAILER_VALUE : TRAILER_NAME;
    return http_is_token(c) || (named && c == ':') ||
           refuse(r, 400, "A trailer field is not a name, a colon and a value.");
}

static bool take_byte(http_body_reader *r, char c) {
    switch (r->state) {
    case SIZE: return take_size(r, c);
    case EXTENSION: return take_extension(r, c);
    case SIZE_LF: r->digits = 0; return expect(r, c, '\n', r->left ? DATA : TRAILER);
    case DATA_CR: return expect(r, c, '\r', DATA_LF);
    case DATA_LF: return expect(r, c, '\n', SIZE);
    case TRAILER_LF: return expect(r, c, '\n', TRAILER);
    default: return take_trailer(r, c);
    }
}

static http_progress feed_length(http_body_reader *r, const char *bytes, size_t n, size_t *used) {
    if (!take_data(r, bytes, n, used)) return HTTP_REFUSED;
    return r->left ? HTTP_MORE : HTTP_DONE;
}

http_progress http_body_feed(http_body_reader *r, const char *bytes, size_t n, size_t *used) {
    *used = 0;
    if (r->kind == HTTP_BODY_LENGTH) return feed_length(r, bytes, n, used);
    while (*used < n) {
        size_t taken = 1;
        if (r->state == LAST_LF) {
            *used += 1;
            return expect(r, bytes[*used - 1], '\n', LAST_LF) ? HTTP_DONE : HTTP_REFUSED;
        }
        if (r->state == DATA ? !take_data(r, bytes + *used, n - *used, &taken) : !take_byte(r, bytes[*used])) {
            *used += 1;
            return HTTP_REFUSED;
        }
        *used += taken;
        if (r->state == DATA && r->left == 0) r->state = DATA_CR;
    }
    return HTTP_MORE;
}

void http_body_discard(http_body_reader *r) {
    free(r->bytes);
    *r = (http_body_reader){0};
}
