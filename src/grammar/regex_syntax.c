/* Parser of regular expressions: builds a tree and converts it from its end, so that lookahead sees the rest. */
#include "grammar/regex_syntax.h"

#include "base/error.h"
#include "base/grow.h"
#include "base/hex.h"
#include "base/text.h"

#include <stdlib.h>
#include <string.h>

enum { NESTING_MOST = 200, COUNT_MOST = 100000 };

typedef enum node_kind {
    NODE_EMPTY,
    NODE_CHARACTERS, /* ranges */
    NODE_SEQUENCE,   /* left, right */
    NODE_EITHER,     /* left, right */
    NODE_REPEAT,     /* left, min, max */
    NODE_AHEAD,      /* left; negated with min */
    NODE_BEGIN,
    NODE_END
} node_kind;

typedef struct node {
    node_kind kind;
    bool asserts; /* it has an anchor or lookahead */
    bool anchors; /* it has the anchor of the beginning */
    bool is_bare; /* it takes no text, only assertions */
    bool may_be_empty;
    uint32_t left, right, min, max;
    size_t first, n; /* of its ranges */
} node;

typedef struct parser {
    const char *pattern;
    size_t n, at;
    int depth;
    node *nodes;
    uint32_t n_nodes;
    ht_code_set ranges;
    bool has_open_bracket; /* an earlier class has a literal `[` */
    ht_regexes *re;
    const ht_regex_syntax *how;
    ht_status status;
    ht_error *err;
} parser;

static uint32_t parse_either(parser *p);

static uint32_t fail(parser *p, ht_status status, const char *what) {
    if (!p->status)
        p->status = ht_fail(p->err, status, "the regular expression `%.*s`%s: %s at byte %zu",
                            (int)ht_utf8_complete_prefix(p->pattern, p->n < 100 ? p->n : 100), p->pattern,
                            p->n > 100 ? "..." : "", what, p->at);
    return 0;
}

static uint32_t fail_memory(parser *p) {
    if (!p->status) p->status = ht_fail_memory(p->err, p->n, "a regular expression");
    return 0;
}

static uint32_t add(parser *p, node of) {
    if (!HT_GROW_ONE(p->nodes, p->n_nodes)) return fail_memory(p);
    const node *left = of.kind >= NODE_SEQUENCE && of.kind <= NODE_AHEAD ? &p->nodes[of.left] : NULL;
    const node *right = of.kind == NODE_SEQUENCE || of.kind == NODE_EITHER ? &p->nodes[of.right] : NULL;
    of.asserts = of.kind >= NODE_AHEAD || (left && left->asserts) || (right && right->asserts);
    of.anchors = of.kind == NODE_BEGIN || (left && left->anchors) || (right && right->anchors);
    of.is_bare =
        of.kind == NODE_EMPTY || of.kind >= NODE_AHEAD || (of.kind == NODE_SEQUENCE && left->is_bare && right->is_bare);
    switch (of.kind) {
    case NODE_CHARACTERS: break;
    case NODE_SEQUENCE: of.may_be_empty = left->may_be_empty && right->may_be_empty; break;
    case NODE_EITHER: of.may_be_empty = left->may_be_empty || right->may_be_empty; break;
    case NODE_REPEAT: of.may_be_empty = of.min == 0 || left->may_be_empty; break;
    default: of.may_be_empty = true;
    }
    p->nodes[p->n_nodes] = of;
    return p->n_nodes++;
}

/* ---- characters ---- */

static bool peek(const parser *p, char c) { return p->at < p->n && p->pattern[p->at] == c; }

static bool take(parser *p, const char *text) {
    const size_t n = strlen(text);
    if (p->n - p->at < n || memcmp(p->pattern + p->at, text, n) != 0) return false;
    p->at += n;
    return true;
}

static uint32_t next_code_point(parser *p) {
    uint32_t c;
    p->at += ht_utf8_decode(p->pattern + p->at, p->n - p->at, &c);
    return c;
}

/* n hexadecimal digits; -1 when there are fewer. */
static int64_t hex(parser *p, int n) {
    int64_t value = 0;
    for (int i = 0; i < n; i++) {
        const int digit = p->at < p->n ? ht_hex_digit(p->pattern[p->at]) : -1;
        if (digit < 0) return -1;
        value = value * 16 + digit;
        p->at++;
    }
    return value;
}

/* After \u: four digits, or any number in braces; a surrogate pair is one character. */
static uint32_t unicode_escape(parser *p) {
    int64_t value;
    if (take(p, "{")) {
        value = 0;
        while (!peek(p, '}') && value >= 0 && value <= 0x10FFFF) {
            const int64_t digit = hex(p, 1);
            value = digit < 0 ? -1 : value * 16 + digit;
        }
        if (!take(p, "}")) value = -1;
    } else
        value = hex(p, 4);
    if (value >= 0xD800 && value < 0xDC00 && take(p, "\\u")) {
        const int64_t low = hex(p, 4);
        value = low >= 0xDC00 && low < 0xE000 ? 0x10000 + ((value - 0xD800) << 10) + (low - 0xDC00) : -1;
    }
    if (value < 0 || value > 0x10FFFF)
        return fail(p, HT_ERR_FORMAT, "`\\u` needs four hexadecimal digits, or some in braces");
    return (uint32_t)value;
}

/* After a backslash: one character, or HT_INTERN_FAILED for a class, which is added to the ranges. */
static uint32_t escape(parser *p, bool in_class) {
    const size_t begin = p->at;
    if (p->at >= p->n) return fail(p, HT_ERR_FORMAT, "a backslash at the end");
    static const char letters[] = "tnrfv0", values[] = "\t\n\r\f\v\0";
    const uint32_t c = next_code_point(p);
    const char *simple = c && c < 0x80 ? strchr(letters, (int)c) : NULL;
    if (simple) return (unsigned char)values[simple - letters];
    if (c && c < 0x80 && strchr("dDwWsS", (int)c)) {
        if (!ht_code_set_add_class(&p->ranges, (char)c)) fail_memory(p);
        return HT_INTERN_FAILED;
    }
    switch (c) {
    case 'p':
    case 'P': {
        const char *end = peek(p, '{') ? memchr(p->pattern + p->at, '}', p->n - p->at) : NULL;
        if (!end) return fail(p, HT_ERR_FORMAT, "`\\p` needs the name of a property in braces");
        const char *name = p->pattern + p->at + 1;
        const int known = ht_code_set_add_property(&p->ranges, name, (size_t)(end - name), c == 'P');
        if (known < 0) return fail_memory(p);
        if (!known)
            return fail(p, HT_ERR_UNSUPPORTED,
                        "only general categories of Unicode are known as properties, such as `\\p{L}`");
        p->at = (size_t)(end - p->pattern) + 1;
        return HT_INTERN_FAILED;
    }
    case 'x': {
        const int64_t value = hex(p, 2);
        return value < 0 ? fail(p, HT_ERR_FORMAT, "`\\x` needs two hexadecimal digits") : (uint32_t)value;
    }
    case 'u': return unicode_escape(p);
    case 'c': {
        const char letter = p->at < p->n ? p->pattern[p->at] : '\0';
        if (!((letter >= 'a' && letter <= 'z') || (letter >= 'A' && letter <= 'Z')))
            return fail(p, HT_ERR_FORMAT, "`\\c` needs a letter");
        p->at++;
        return (uint32_t)letter & 31;
    }
    default: break;
    }
    if (c == 'b' && in_class) return '\b';
    const size_t end = p->at;
    p->at = begin; /* position of errors */
    if (c == 'b') return fail(p, HT_ERR_UNSUPPORTED, "word boundaries (`\\b`) are not supported");
    if (c == 'B') return fail(p, HT_ERR_UNSUPPORTED, "word boundaries (`\\B`) are not supported");
    if (c >= '1' && c <= '9' && !in_class) return fail(p, HT_ERR_UNSUPPORTED, "back references are not supported");
    if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z')) return fail(p, HT_ERR_FORMAT, "there is no such escape");
    p->at = end;
    return c;
}

static void add_range(parser *p, uint32_t first, uint32_t last) {
    if (!ht_code_set_add(&p->ranges, first, last)) fail_memory(p);
}

/* The node of the ranges from `first` on. */
static uint32_t characters(parser *p, size_t first, bool inverted) {
    if (inverted && !ht_code_set_invert(&p->ranges, first)) fail_memory(p);
    return add(p, (node){.kind = NODE_CHARACTERS, .first = first, .n = p->ranges.n - first});
}

/* An item of a class: a character, or HT_INTERN_FAILED for a class within it. */
static uint32_t class_member(parser *p) { return take(p, "\\") ? escape(p, true) : next_code_point(p); }

/* Whether a POSIX class such as [:alpha:] is next. ECMA-262 reads it as its characters, which is never intended. */
static bool is_posix_class(const parser *p) {
    size_t at = p->at + 2;
    if (!peek(p, '[') || at > p->n || p->pattern[p->at + 1] != ':') return false;
    if (at < p->n && p->pattern[at] == '^') at++;
    const size_t name = at;
    while (at < p->n && p->pattern[at] >= 'a' && p->pattern[at] <= 'z') at++;
    return at > name && p->n - at >= 2 && p->pattern[at] == ':' && p->pattern[at + 1] == ']';
}

/* Rejects class syntax of other dialects, recognised where it makes no sense as characters. */
static bool check_class_syntax(parser *p, size_t begin) {
    if (is_posix_class(p))
        fail(p, HT_ERR_UNSUPPORTED,
             "POSIX classes are not of ECMA-262: write [a-z], \\d, \\s, or \\p{L} for all letters");
    else if (p->at > begin && p->n - p->at > 2 && memcmp(p->pattern + p->at, "&&", 2) == 0 &&
             p->pattern[p->at + 2] != ']')
        fail(p, HT_ERR_UNSUPPORTED,
             "`&&` within a class is of the flag v, which is not supported: write (?=[a-z])[^b] for [a-z&&[^b]]");
    else if (peek(p, '['))
        p->has_open_bracket = true;
    return !p->status;
}

static uint32_t parse_class(parser *p) {
    const bool inverted = take(p, "^");
    const size_t first = p->ranges.n, begin = p->at;
    while (!p->status && !peek(p, ']')) {
        if (p->at >= p->n) return fail(p, HT_ERR_FORMAT, "`[` without `]`");
        if (!check_class_syntax(p, begin)) return 0;
        const uint32_t from = class_member(p);
        if (p->status) return 0;
        const bool is_range = peek(p, '-') && p->at + 1 < p->n && p->pattern[p->at + 1] != ']';
        if (!is_range) {
            if (from != HT_INTERN_FAILED) add_range(p, from, from);
            continue;
        }
        p->at++;
        if (peek(p, '[')) p->has_open_bracket = true;
        const uint32_t to = class_member(p);
        if (p->status) return 0;
        if (from == HT_INTERN_FAILED || to == HT_INTERN_FAILED) { /* next to a class, a hyphen is literal */
            add_range(p, '-', '-');
            if (from != HT_INTERN_FAILED) add_range(p, from, from);
            if (to != HT_INTERN_FAILED) add_range(p, to, to);
        } else if (from > to)
            return fail(p, HT_ERR_FORMAT, "a range whose end is before its beginning");
        else
            add_range(p, from, to);
    }
    p->at++;
    return characters(p, first, inverted);
}

/* ---- the tree ---- */

static uint32_t parse_group(parser *p) {
    node of = {.kind = NODE_EMPTY};
    if (take(p, "?=") || take(p, "?!")) {
        of.kind = NODE_AHEAD;
        of.min = p->pattern[p->at - 1] == '!';
    } else if (take(p, "?<=") || take(p, "?<!"))
        return fail(p, HT_ERR_UNSUPPORTED, "lookbehind is not supported");
    else if (take(p, "?<")) {
        const char *end = memchr(p->pattern + p->at, '>', p->n - p->at);
        if (!end) return fail(p, HT_ERR_FORMAT, "`(?<` without `>`");
        p->at = (size_t)(end - p->pattern) + 1;
    } else if (!take(p, "?:") && peek(p, '?'))
        return fail(p, HT_ERR_UNSUPPORTED, "this kind of group is not supported");
    if (++p->depth > NESTING_MOST) return fail(p, HT_ERR_LIMIT, "groups are nested too deeply");
    const uint32_t inside = parse_either(p);
    p->depth--;
    if (!p->status && !take(p, ")")) return fail(p, HT_ERR_FORMAT, "`(` without `)`");
    if (p->status || of.kind == NODE_EMPTY) return inside;
    of.left = inside;
    return add(p, of);
}

static uint32_t parse_atom(parser *p) {
    const size_t first = p->ranges.n;
    if (take(p, "(")) return parse_group(p);
    if (take(p, "[")) return parse_class(p);
    if (take(p, "^")) return add(p, (node){.kind = NODE_BEGIN});
    if (take(p, "$")) return add(p, (node){.kind = NODE_END});
    if (take(p, ".")) {
        add_range(p, '\n', '\n');
        add_range(p, '\r', '\r');
        add_range(p, 0x2028, 0x2029);
        return characters(p, first, true);
    }
    if (p->has_open_bracket && peek(p, ']')) /* [a[bc]] is [a[bc] and a bracket that nothing opens */
        return fail(
            p, HT_ERR_UNSUPPORTED,
            "a class within a class is of the flag v, which is not supported: write `\\[` and `\\]` for brackets, "
            "and (?:[a-z]|[0-9]) for [[a-z][0-9]]");
    if (peek(p, '*') || peek(p, '+') || peek(p, '?')) return fail(p, HT_ERR_FORMAT, "nothing to repeat");
    const uint32_t c = take(p, "\\") ? escape(p, false) : next_code_point(p);
    if (c != HT_INTERN_FAILED && !p->status) add_range(p, c, c);
    return p->status ? 0 : characters(p, first, false);
}

static int64_t number(parser *p) {
    int64_t value = -1;
    while (p->at < p->n && p->pattern[p->at] >= '0' && p->pattern[p->at] <= '9') {
        value = (value < 0 ? 0 : value) * 10 + (p->pattern[p->at++] - '0');
        if (value > COUNT_MOST) fail(p, HT_ERR_LIMIT, "a count of more than 100000");
        if (p->status) return -1;
    }
    return value;
}

/* Parses the counts after an atom. A brace that begins no count is a literal character, as in browsers. */
static bool parse_counts(parser *p, uint32_t *min, uint32_t *max) {
    const size_t begin = p->at;
    *min = 0;
    *max = HT_RE_UNBOUNDED;
    if (take(p, "*")) return true;
    if (take(p, "+")) return *min = 1, true;
    if (take(p, "?")) return *max = 1, true;
    if (!take(p, "{")) return false;
    const int64_t from = number(p);
    int64_t to = from;
    if (take(p, ",")) {
        to = number(p);
        if (to < 0) to = HT_RE_UNBOUNDED;
    }
    if (from < 0 || !take(p, "}")) {
        p->at = begin;
        return false;
    }
    if (from > to) fail(p, HT_ERR_FORMAT, "a count whose end is before its beginning");
    *min = (uint32_t)from;
    *max = (uint32_t)to;
    return true;
}

static uint32_t parse_sequence(parser *p) {
    uint32_t all = add(p, (node){.kind = NODE_EMPTY});
    while (!p->status && p->at < p->n && !peek(p, '|') && !peek(p, ')')) {
        uint32_t atom = parse_atom(p), min, max;
        while (!p->status && parse_counts(p, &min, &max)) {
            if (!take(p, "?") && peek(p, '+')) /* lazy: the same texts */
                fail(p, HT_ERR_UNSUPPORTED, "possessive repetitions such as `a++` are not of ECMA-262: write `a+`");
            atom = add(p, (node){.kind = NODE_REPEAT, .left = atom, .min = min, .max = max});
        }
        if (!p->status) all = add(p, (node){.kind = NODE_SEQUENCE, .left = all, .right = atom});
    }
    return all;
}

static uint32_t parse_either(parser *p) {
    uint32_t all = parse_sequence(p);
    while (!p->status && take(p, "|")) {
        const uint32_t right = parse_sequence(p);
        if (!p->status) all = add(p, (node){.kind = NODE_EITHER, .left = all, .right = right});
    }
    return all;
}

/* ---- to an expression ---- */

static ht_re characters_of(parser *p, const ht_code_range *ranges, size_t n) {
    return p->how->characters ? p->how->characters(p->re, ranges, n) : ht_re_code_points(p->re, ranges, n);
}

static ht_re build(parser *p, uint32_t at, ht_re rest, bool at_begin);

/* The tree of a sequence is left-deep: build from its last part. */
static ht_re build_sequence(parser *p, uint32_t at, ht_re rest, bool at_begin) {
    const node *nodes = p->nodes;
    for (; nodes[at].kind == NODE_SEQUENCE; at = nodes[at].left) {
        const node *left = &nodes[nodes[at].left];
        if (nodes[nodes[at].right].anchors && at_begin && !left->is_bare && left->may_be_empty)
            return fail(p, HT_ERR_UNSUPPORTED, "`^` after an expression that may be empty is not supported");
        rest = build(p, nodes[at].right, rest, at_begin && left->is_bare);
    }
    return build(p, at, rest, at_begin);
}

/* The texts of a node followed by `rest`. `at_begin`: the node is at the beginning of the text. */
static ht_re build(parser *p, uint32_t at, ht_re rest, bool at_begin) {
    const node of = p->nodes[at];
    /* Alternatives get `rest` only if an assertion in them depends on it. */
    if (!of.asserts && rest != HT_RE_EMPTY) return ht_re_concat(p->re, build(p, at, HT_RE_EMPTY, at_begin), rest);
    switch (of.kind) {
    case NODE_EMPTY: return rest;
    case NODE_CHARACTERS: return of.n ? characters_of(p, p->ranges.range + of.first, of.n) : HT_RE_NONE;
    case NODE_SEQUENCE: return build_sequence(p, at, rest, at_begin);
    case NODE_EITHER: {
        const size_t begin = p->re->n_scratch;
        for (; p->nodes[at].kind == NODE_EITHER; at = p->nodes[at].left)
            ht_re_push(p->re, build(p, p->nodes[at].right, rest, at_begin));
        ht_re_push(p->re, build(p, at, rest, at_begin));
        return ht_re_join_scratch(p->re, HT_RE_KIND_ALTERNATIVES, begin);
    }
    case NODE_REPEAT:
        if (!of.asserts) return ht_re_repeat(p->re, build(p, of.left, HT_RE_EMPTY, at_begin), of.min, of.max);
        if (of.max > 1)
            return fail(p, HT_ERR_UNSUPPORTED, "an anchor or look-ahead within a repetition is not supported");
        if (of.max == 0) return rest;
        return ht_re_either(p->re, build(p, of.left, rest, at_begin), of.min ? HT_RE_NONE : rest);
    case NODE_AHEAD: {
        const ht_re ahead = build(p, of.left, HT_RE_ALL, at_begin);
        return ht_re_both(p->re, of.min ? ht_re_not(p->re, ahead) : ahead, rest);
    }
    case NODE_BEGIN: return at_begin ? rest : HT_RE_NONE;
    default: return ht_re_both(p->re, HT_RE_EMPTY, rest); /* NODE_END */
    }
}

static ht_re build_whole(parser *p, uint32_t root) {
    static const ht_code_range every = {0, 0x10FFFF};
    if (!p->how->searches) return build(p, root, HT_RE_EMPTY, true);
    const ht_re any = characters_of(p, &every, 1), some = ht_re_repeat(p->re, any, 0, HT_RE_UNBOUNDED);
    if (!p->nodes[root].anchors) return ht_re_concat(p->re, some, build(p, root, some, true));
    return ht_re_either(p->re, build(p, root, some, true),
                        ht_re_concat(p->re, ht_re_concat(p->re, any, some), build(p, root, some, false)));
}

ht_status ht_regex_parse(ht_regexes *s, const char *pattern, size_t n, const ht_regex_syntax *how, ht_re *out,
                         ht_error *err) {
    parser p = {.pattern = pattern, .n = n, .re = s, .how = how, .err = err};
    *out = HT_RE_NONE;
    const uint32_t root = parse_either(&p);
    if (!p.status && p.at < n) fail(&p, HT_ERR_FORMAT, "`)` without `(`");
    if (!p.status) *out = build_whole(&p, root);
    if (!p.status) p.status = ht_regexes_status(s, err);
    free(p.nodes);
    ht_code_set_free(&p.ranges);
    return p.status;
}
