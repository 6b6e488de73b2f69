/* JSON Schemas: whatever the schema is, there are rules or an error, and a text that they take can always be brought to an end. The
 * bytes are a schema, then a NUL, a byte of options, and bytes that choose a text. */
#include "base/text.h"
#include "fuzz.h"
#include "grammar/automaton.h"
#include "grammar/schema_rules.h"

#include <stdlib.h>
#include <string.h>

enum { STEPS_MOST = 60 };

static bool goes_on(ht_automaton *a, uint32_t at) {
    size_t n;
    ht_automaton_threads(a, at, &n);
    return n > 0;
}

/* Each chosen byte picks one of those that may come next. */
static void follow(ht_automaton *a, const uint8_t *choice, size_t n) {
    uint32_t at = a->start[0];
    ht_error err = {0};
    check(goes_on(a, at));
    for (size_t i = 0; i < n && i < STEPS_MOST && goes_on(a, at); i++) {
        uint32_t next = 0, found = 0;
        for (unsigned b = 0; b < 256 && !found; b++) {
            const char byte = (char)(choice[i] + b);
            next = ht_automaton_feed(a, at, &byte, 1);
            if (ht_automaton_status(a, &err)) {
                check(err.status == HT_ERR_LIMIT && err.message[0]);
                return;
            }
            found = goes_on(a, next) || ht_automaton_may_end(a, next);
        }
        check(found != 0);
        at = next;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    const uint8_t *nul = memchr(data, 0, size);
    const size_t n = nul ? (size_t)(nul - data) : size, rest = nul ? size - n - 1 : 0;
    const unsigned bits = rest ? nul[1] : 0;
    const ht_schema_options options = {.space = bits % 3,
                                       .ordered = bits & 4,
                                       .every_spelling = bits & 8,
                                       .ignore_formats = bits & 16,
                                       .closed = bits & 32};
    ht_rules *rules;
    ht_automaton *a;
    ht_error err = {0};
    ht_status st = ht_schema_compile((const char *)data, n, &options, &rules, &err);
    if (refused(st, &err, rules)) {
        check(ht_utf8_valid(err.message, strlen(err.message)));
        return 0;
    }
    st = ht_automaton_new(rules, &a, &err);
    if (st) {
        check(st == HT_ERR_LIMIT);
        return 0;
    }
    if (rest) follow(a, nul + 2, rest - 1);
    ht_automaton_free(a);
    return 0;
}
