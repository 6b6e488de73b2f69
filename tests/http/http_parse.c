/* Parser of requests for compare_h11.py: a line of hexadecimal digits in, a line out that says what they are.
 *
 * "METHOD BODY;" for each request in the bytes, the body in hexadecimal digits, and behind them "refused STATUS" or "more" for bytes that
 * are no whole request. */
#include "http/body.h"
#include "http/text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LINE_BYTES = 1 << 20, LIMIT = 1 << 20 };

/* One request from n bytes; the number of bytes that it took, 0 when it is not whole. */
static size_t parse_one(const char *bytes, size_t n) {
    http_head head = {0};
    http_body_reader body = {0};
    size_t used = 0, more = 0;
    http_progress progress = http_head_feed(&head, bytes, n, &used);
    int status = head.refusal.status;
    if (progress == HTTP_DONE) {
        progress = http_body_begin(&body, &head, LIMIT);
        if (progress == HTTP_MORE) progress = http_body_feed(&body, bytes + used, n - used, &more);
        status = body.refusal.status;
    }
    if (progress == HTTP_DONE) {
        printf("%s ", head.method);
        for (size_t i = 0; i < body.n; i++) printf("%02x", (unsigned char)body.bytes[i]);
        printf(";");
    } else if (progress == HTTP_REFUSED)
        printf("refused %d", status);
    else
        printf("more");
    http_head_discard(&head);
    http_body_discard(&body);
    return progress == HTTP_DONE ? used + more : 0;
}

int main(void) {
    char *line = malloc(LINE_BYTES), *bytes = malloc(LINE_BYTES / 2);
    if (!line || !bytes) return 1;
    while (fgets(line, LINE_BYTES, stdin)) {
        size_t n = 0, used;
        for (; http_hex(line[2 * n]) >= 0 && http_hex(line[2 * n + 1]) >= 0; n++)
            bytes[n] = (char)(http_hex(line[2 * n]) << 4 | http_hex(line[2 * n + 1]));
        for (size_t at = 0; at < n && (used = parse_one(bytes + at, n - at)) > 0; at += used) {}
        printf("\n");
        fflush(stdout);
    }
    free(line);
    free(bytes);
    return 0;
}
