/* A request as a client may send it: head, then body, up to what follows them. However the bytes are split, the same comes of it; and what is
 * accepted has the properties that its readers rely on. The first byte says how they are split. */
#include "fuzz.h"
#include "http/body.h"
#include "http/text.h"

#include <stdlib.h>
#include <string.h>

enum { LIMIT = 4096 };

typedef struct request {
    http_head head;
    http_body_reader body;
    http_progress progress;
    bool has_head;
    size_t used;
} request;

static void take(request *r, const char *bytes, size_t n) {
    for (size_t at = 0; at < n && r->progress == HTTP_MORE;) {
        size_t used = 0;
        if (r->has_head)
            r->progress = http_body_feed(&r->body, bytes + at, n - at, &used);
        else if ((r->progress = http_head_feed(&r->head, bytes + at, n - at, &used)) == HTTP_DONE) {
            r->has_head = true;
            r->progress = http_body_begin(&r->body, &r->head, LIMIT);
        }
        check(used <= n - at && (r->progress != HTTP_MORE || used > 0));
        at += used;
        r->used += used;
    }
}

/* In pieces of `piece` bytes, each in memory of its own, so that reading beyond it is found. */
static request read_pieces(const char *bytes, size_t n, size_t piece) {
    request r = {.progress = HTTP_MORE};
    for (size_t at = 0; at < n && r.progress == HTTP_MORE; at += piece) {
        const size_t length = piece < n - at ? piece : n - at;
        char *copy = malloc(length);
        check(copy != NULL);
        memcpy(copy, bytes + at, length);
        take(&r, copy, length);
        free(copy);
    }
    return r;
}

static void check_string(const char *s) {
    for (; *s; s++) check(http_is_value(*s));
}

static void check_head(const http_head *h) {
    check(h->method && h->path && (*h->path == '/' || strcmp(h->path, "*") == 0));
    check(!strstr(h->path, "/../") && http_utf8_valid(h->path, strlen(h->path)));
    check_string(h->path);
    check(h->host || h->minor == 0);
    if (h->query) check_string(h->query);
    check((h->body == HTTP_BODY_LENGTH) == (h->content_length > 0));
    check(!http_head_value(h, "content-length") || !http_head_value(h, "transfer-encoding"));
    check(h->n_fields <= HTTP_FIELDS);
    for (size_t i = 0; i < h->n_fields; i++) {
        check(h->text[h->field[i].name] != '\0');
        check_string(h->text + h->field[i].value);
    }
}

static void check_refusal(const request *r) {
    const http_refusal *why = r->has_head ? &r->body.refusal : &r->head.refusal;
    check((why->status != 0) == (r->progress == HTTP_REFUSED));
    check(why->status == 0 || (why->status >= 400 && why->status <= 505 && *why->sentence));
}

static void check_same(const request *a, const request *b) {
    check(a->progress == b->progress && a->used == b->used && a->has_head == b->has_head);
    check(a->head.refusal.sentence == b->head.refusal.sentence && a->body.refusal.sentence == b->body.refusal.sentence);
    check(a->head.n == b->head.n && (a->head.n == 0 || memcmp(a->head.text, b->head.text, a->head.n) == 0));
    check(a->body.n == b->body.n && a->body.n <= LIMIT);
    check(a->body.n == 0 || memcmp(a->body.bytes, b->body.bytes, a->body.n + 1) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size < 2) return 0;
    const char *bytes = (const char *)data + 1;
    char value[32];
    request whole = read_pieces(bytes, size - 1, size - 1), pieces = read_pieces(bytes, size - 1, 1 + data[0] % 64);
    check_same(&whole, &pieces);
    check_refusal(&whole);
    if (whole.has_head) {
        check_head(&whole.head);
        if (http_query_value(whole.head.query, "a", value, sizeof value)) check(strlen(value) < sizeof value);
    }
    if (whole.progress == HTTP_DONE && whole.head.body == HTTP_BODY_LENGTH)
        check(whole.body.n == whole.head.content_length);
    http_head_discard(&whole.head);
    http_head_discard(&pieces.head);
    http_body_discard(&whole.body);
    http_body_discard(&pieces.body);
    return 0;
}
