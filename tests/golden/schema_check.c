/* Answers questions about JSON Schemas, for scripts that compare them with other libraries (json_schemas.py). Standard input has
 * questions, each a line `KIND BYTES NUMBER` and so many bytes behind it, with the end of a line behind them:
 *
 *     S  a schema; NUMBER has bits: 1 formats say nothing, 2 members in order, 4 any white space, 8 whole numbers only as such, 16 members that
 *        are described alone
 *     I  whether a text is one of the schema
 *     G  bytes are not looked at: a text of the schema, drawn by chance from NUMBER
 *
 * Each is answered by a line: `ok`, `yes` or `no`, the text as a JSON string, or `error STATUS MESSAGE`; `stuck TEXT` where a text may
 * neither end nor go on, and `long` where chance does not come to an end. */
#include "formats/json.h"
#include "grammar/automaton.h"
#include "grammar/schema_rules.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TEXT_MOST = 4000, HASTE = 150 };

static ht_automaton *automaton;

static void fail(const ht_error *err) { printf("error %d %s\n", (int)err->status, err->message); }

static void take_schema(const char *text, size_t n, unsigned bits) {
    const ht_schema_options options = {.ignore_formats = bits & 1,
                                       .ordered = bits & 2,
                                       .closed = bits & 16,
                                       .space = bits & 4 ? HT_SCHEMA_SPACE_ANY : HT_SCHEMA_SPACE_LINES,
                                       .every_spelling = !(bits & 8)};
    ht_error err = {0};
    ht_rules *rules;
    ht_automaton_free(automaton);
    automaton = NULL;
    if (ht_schema_compile(text, n, &options, &rules, &err) || ht_automaton_new(rules, &automaton, &err))
        fail(&err);
    else
        puts("ok");
}

static void check(const char *text, size_t n) {
    ht_error err = {0};
    const uint32_t end = ht_automaton_feed(automaton, automaton->start[0], text, n);
    if (!ht_automaton_status(automaton, &err)) {
        puts(ht_automaton_may_end(automaton, end) ? "yes" : "no");
        return;
    }
    fail(&err);
    ht_automaton_reset(automaton, NULL);
}

static unsigned draw(uint64_t *seed) {
    *seed = *seed * 6364136223846793005u + 1442695040888963407u;
    return (unsigned)(*seed >> 33);
}

/* One of the bytes that may follow, closing ones rather than others in haste; -1 when there is none. */
static int next_byte(uint32_t at, bool haste, uint64_t *seed, uint32_t *behind) {
    int found = -1;
    unsigned total = 0;
    for (int b = 0; b < 256; b++) {
        const char byte = (char)b;
        const uint32_t next = ht_automaton_feed(automaton, at, &byte, 1);
        size_t n;
        ht_automaton_threads(automaton, next, &n);
        if (!n && !ht_automaton_may_end(automaton, next)) continue;
        const unsigned weight = b >= 0x80 || b == '\\' ? 1 : strchr("\"]}", b) && b ? (haste ? 4000 : 200) : 8;
        total += weight;
        if (draw(seed) % total >= weight) continue;
        found = b;
        *behind = next;
    }
    return found;
}

static void generate(uint64_t seed) {
    char text[TEXT_MOST];
    size_t n = 0;
    uint32_t at = automaton->start[0];
    ht_error err = {0};
    while (n < TEXT_MOST) {
        if (ht_automaton_may_end(automaton, at) && (n > HASTE || draw(&seed) % 4 == 0)) break;
        const int byte = next_byte(at, n > HASTE, &seed, &at);
        if (ht_automaton_status(automaton, &err)) {
            fail(&err);
            ht_automaton_reset(automaton, NULL);
            return;
        }
        if (byte < 0) break;
        text[n++] = (char)byte;
    }
    const bool ends = ht_automaton_may_end(automaton, at);
    ht_json *string = ht_json_stringn(text, n);
    char *line = n < TEXT_MOST ? ht_json_dump(string, HT_JSON_ASCII) : NULL;
    printf("%s%s\n", ends || !line ? "" : "stuck ", line ? line : "long");
    free(line);
    ht_json_decref(string);
}

int main(void) {
    char line[100], kind;
    size_t n;
    unsigned long number;
    while (fgets(line, sizeof line, stdin) && sscanf(line, "%c %zu %lu", &kind, &n, &number) == 3) {
        char *text = malloc(n + 1);
        if (!text || fread(text, 1, n, stdin) != n || getchar() != '\n') return 1;
        if (kind == 'S')
            take_schema(text, n, (unsigned)number);
        else if (!automaton)
            puts("error 0 no schema");
        else if (kind == 'I')
            check(text, n);
        else
            generate(number);
        fflush(stdout);
        free(text);
    }
    ht_automaton_free(automaton);
    return 0;
}
