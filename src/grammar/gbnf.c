/* Parser of GBNF grammars. Parts without recursion become regular expressions. */
#include "base/checked.h"
#include "base/error.h"
#include "base/grow.h"
#include "base/hex.h"
#include "base/text.h"
#include "grammar/regex_syntax.h"
#include "grammar/rules.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NESTING_MOST = 200, COUNT_MOST = 10000 };

typedef enum node_kind {
    NODE_EMPTY,
    NODE_TEXT,     /* an expression */
    NODE_RULE,     /* number */
    NODE_SEQUENCE, /* left, right */
    NODE_EITHER,   /* left, right */
    NODE_REPEAT    /* left, min, max */
} node_kind;

typedef struct node {
    node_kind kind;
    uint32_t left, right, min, max; /* NODE_TEXT: left is the expression; NODE_RULE: the rule */
} node;

typedef struct named_rule {
    uint32_t node; /* its alternatives */
    bool is_defined;
    size_t at, n_name; /* where it is first named, and the bytes of its name */
    uint8_t state;     /* 0: unvisited, 1: being checked, 2: `recurs` is known, 3: compiled */
    bool recurs;       /* it refers to itself, or to a rule that does, and needs rules */
    ht_re re;          /* compiled, and it does not recur */
    ht_symbol rule;    /* compiled, and it does */
} named_rule;

typedef struct parser {
    const char *text;
    size_t n, at;
    int depth;
    node *nodes;
    uint32_t n_nodes;
    named_rule *rules;
    uint32_t n_rules;
    ht_intern names; /* of the rules by number */
    ht_code_set ranges;
    ht_rules *out;
    ht_status status;
    ht_error *err;
} parser;

static uint32_t fail_at(parser *p, size_t at, ht_status status, const char *what) {
    size_t line = 1, begin = 0;
    for (size_t i = 0; i < at; i++)
        if (p->text[i] == '\n') {
            line++;
            begin = i + 1;
        }
    if (!p->status)
        p->status = ht_fail(p->err, status, "grammar, line %zu, column %zu: %s", line, at - begin + 1, what);
    return 0;
}

static uint32_t fail(parser *p, ht_status status, const char *what) { return fail_at(p, p->at, status, what); }

static uint32_t fail_memory(parser *p) {
    if (!p->status) p->status = ht_fail_memory(p->err, p->n, "a grammar");
    return 0;
}

static uint32_t add(parser *p, node of) {
    if (!HT_GROW_ONE(p->nodes, p->n_nodes)) return fail_memory(p);
    p->nodes[p->n_nodes] = of;
    return p->n_nodes++;
}

/* ---- characters ---- */

static bool peek(const parser *p, char c) { return p->at < p->n && p->text[p->at] == c; }

static bool take(parser *p, char c) {
    if (!peek(p, c)) return false;
    p->at++;
    return true;
}

/* Skips spaces and comments, and with `lines` also line ends. */
static void skip(parser *p, bool lines) {
    while (p->at < p->n) {
        const char c = p->text[p->at];
        if (c == '#')
            while (p->at < p->n && p->text[p->at] != '\n') p->at++;
        else if (c == ' ' || c == '\t' || (lines && (c == '\n' || c == '\r')))
            p->at++;
        else
            return;
    }
}

static uint32_t hex(parser *p, int n) {
    uint32_t value = 0;
    for (int i = 0; i < n; i++) {
        const int digit = p->at < p->n ? ht_hex_digit(p->text[p->at]) : -1;
        if (digit < 0) return fail(p, HT_ERR_FORMAT, "a hexadecimal digit is missing");
        value = value * 16 + (uint32_t)digit;
        p->at++;
    }
    return value <= 0x10FFFF ? value : fail(p, HT_ERR_FORMAT, "there is no such code point");
}

static uint32_t character(parser *p) {
    uint32_t c;
    if (p->at >= p->n) return fail(p, HT_ERR_FORMAT, "the text ends within a literal or a class");
    if (!take(p, '\\')) {
        p->at += ht_utf8_decode(p->text + p->at, p->n - p->at, &c);
        return c;
    }
    static const char letters[] = "tnr\\\"[]-^", values[] = "\t\n\r\\\"[]-^";
    const char e = p->at < p->n ? p->text[p->at] : '\0', *simple = e ? strchr(letters, e) : NULL;
    const int digits = e == 'x' ? 2 : e == 'u' ? 4 : e == 'U' ? 8 : 0;
    if (!simple && !digits) {
        p->at -= p->at == p->n;
        return fail(p, HT_ERR_FORMAT, "there is no such escape");
    }
    p->at++;
    return simple ? (unsigned char)values[simple - letters] : hex(p, digits);
}

static uint32_t text_node(parser *p, ht_re re) { return add(p, (node){.kind = NODE_TEXT, .left = re}); }

static uint32_t parse_literal(parser *p) {
    ht_text text = {0};
    while (!p->status && !take(p, '"')) {
        const uint32_t c = character(p);
        if (c >= 0xD800 && c < 0xE000) fail(p, HT_ERR_FORMAT, "halves of surrogate pairs are no characters");
        ht_text_append_utf8(&text, c);
    }
    if (text.failed) fail_memory(p);
    const uint32_t made = text_node(p, p->status ? HT_RE_NONE : ht_re_text(p->out->re, text.data, text.len));
    ht_text_discard(&text);
    return made;
}

static uint32_t parse_class(parser *p) {
    const bool inverted = take(p, '^');
    p->ranges.n = 0;
    while (!p->status && !take(p, ']')) {
        const size_t at = p->at;
        const uint32_t first = character(p);
        uint32_t last = first;
        if (peek(p, '-') && p->at + 1 < p->n && p->text[p->at + 1] != ']') {
            p->at++;
            last = character(p);
        }
        if (last < first) return fail_at(p, at, HT_ERR_FORMAT, "a range whose end is before its beginning");
        if (!p->status && !ht_code_set_add(&p->ranges, first, last)) return fail_memory(p);
    }
    if (inverted && !ht_code_set_invert(&p->ranges, 0)) return fail_memory(p);
    return text_node(p, ht_re_code_points(p->out->re, p->ranges.range, p->ranges.n));
}

/* ---- rules ---- */

static bool is_name_character(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_';
}

/* Parses the name of a rule and returns its number; HT_INTERN_FAILED without a name. */
static uint32_t parse_name(parser *p) {
    const size_t begin = p->at;
    bool is_new;
    while (p->at < p->n && is_name_character(p->text[p->at])) p->at++;
    const size_t n = p->at - begin;
    if (n == 0) return HT_INTERN_FAILED;
    const uint32_t rule = ht_intern_text(&p->names, p->text + begin, n, &is_new);
    if (rule == HT_INTERN_FAILED) return fail_memory(p);
    if (!is_new) return rule;
    if (!HT_GROW_ONE(p->rules, p->n_rules)) return fail_memory(p);
    p->rules[p->n_rules++] = (named_rule){.at = begin, .n_name = n};
    return rule;
}

static uint32_t parse_either(parser *p, bool lines);

/* llama.cpp's references to tokens: <[1000]>, <think> and !<think>. */
static bool is_token(const parser *p) {
    return peek(p, '<') || (peek(p, '!') && p->n - p->at > 1 && p->text[p->at + 1] == '<');
}

static uint32_t parse_atom(parser *p) {
    if (is_token(p))
        return fail(p, HT_ERR_UNSUPPORTED,
                    "tokens in grammars are not supported: write the text of a token in quotes, as \"<think>\"");
    if (take(p, '"')) return parse_literal(p);
    if (take(p, '[')) return parse_class(p);
    if (take(p, '.')) return text_node(p, ht_re_code_points(p->out->re, &(ht_code_range){0, 0x10FFFF}, 1));
    if (take(p, '(')) {
        if (++p->depth > NESTING_MOST) return fail(p, HT_ERR_LIMIT, "groups are nested too deeply");
        skip(p, true);
        const uint32_t inside = parse_either(p, true);
        p->depth--;
        if (!p->status && !take(p, ')')) return fail(p, HT_ERR_FORMAT, "`(` without `)`");
        return inside;
    }
    const uint32_t rule = parse_name(p);
    if (rule == HT_INTERN_FAILED) return HT_INTERN_FAILED;
    return add(p, (node){.kind = NODE_RULE, .left = rule});
}

static int64_t number(parser *p) {
    int64_t value = -1;
    while (p->at < p->n && p->text[p->at] >= '0' && p->text[p->at] <= '9') {
        value = (value < 0 ? 0 : value) * 10 + (p->text[p->at++] - '0');
        if (value > COUNT_MOST) {
            fail(p, HT_ERR_LIMIT, "a count of more than 10000");
            return -1;
        }
    }
    return value;
}

static bool parse_counts(parser *p, uint32_t *min, uint32_t *max) {
    *min = 0;
    *max = HT_RE_UNBOUNDED;
    if (take(p, '*')) return true;
    if (take(p, '+')) return *min = 1, true;
    if (take(p, '?')) return *max = 1, true;
    if (!take(p, '{')) return false;
    skip(p, true);
    const int64_t from = number(p);
    int64_t to = from;
    skip(p, true);
    if (take(p, ',')) {
        skip(p, true);
        to = number(p);
        if (to < 0) to = HT_RE_UNBOUNDED;
        skip(p, true);
    }
    if (from < 0 || !take(p, '}') || from > to) fail(p, HT_ERR_FORMAT, "counts are {m}, {m,} or {m,n} with m <= n");
    *min = (uint32_t)from;
    *max = (uint32_t)to;
    return !p->status;
}

static uint32_t parse_sequence(parser *p, bool lines) {
    uint32_t all = HT_INTERN_FAILED;
    while (!p->status) {
        uint32_t atom = parse_atom(p), min, max;
        if (atom == HT_INTERN_FAILED || p->status) break;
        skip(p, lines);
        while (parse_counts(p, &min, &max)) {
            atom = add(p, (node){.kind = NODE_REPEAT, .left = atom, .min = min, .max = max});
            skip(p, lines);
        }
        all = all == HT_INTERN_FAILED ? atom : add(p, (node){.kind = NODE_SEQUENCE, .left = all, .right = atom});
    }
    return all == HT_INTERN_FAILED ? add(p, (node){.kind = NODE_EMPTY}) : all;
}

/* Takes a bar, also on a later line: no rule begins with one. */
static bool take_bar(parser *p) {
    const size_t at = p->at;
    skip(p, true);
    if (take(p, '|')) return true;
    p->at = at;
    return false;
}

static uint32_t parse_either(parser *p, bool lines) {
    uint32_t all = parse_sequence(p, lines);
    while (!p->status && take_bar(p)) {
        skip(p, true);
        const uint32_t right = parse_sequence(p, lines);
        all = add(p, (node){.kind = NODE_EITHER, .left = all, .right = right});
    }
    return all;
}

static void parse_rule(parser *p) {
    const size_t at = p->at;
    const uint32_t rule = parse_name(p);
    if (rule == HT_INTERN_FAILED) fail(p, HT_ERR_FORMAT, "the name of a rule is expected");
    if (p->status) return;
    if (p->rules[rule].is_defined) fail_at(p, at, HT_ERR_FORMAT, "this rule is already defined");
    skip(p, false);
    if (p->n - p->at < 3 || memcmp(p->text + p->at, "::=", 3) != 0) {
        fail(p, HT_ERR_FORMAT, "`::=` is expected after the name of a rule");
        return;
    }
    p->at += 3;
    skip(p, true);
    const uint32_t alternatives = parse_either(p, false);
    if (p->status) return;
    p->rules[rule].node = alternatives;
    p->rules[rule].is_defined = true;
    if (p->at < p->n && !peek(p, '\n') && !peek(p, '\r')) fail(p, HT_ERR_FORMAT, "this does not belong to a rule");
    skip(p, true);
}

/* ---- recursion ---- */

static bool node_recurs(parser *p, uint32_t at);

/* Whether a rule is recursive, or refers to a recursive one. */
static bool rule_recurs(parser *p, uint32_t number) {
    named_rule *r = &p->rules[number];
    if (r->state == 1) return true;
    if (r->state >= 2) return r->recurs;
    if (++p->depth > NESTING_MOST) return fail_at(p, r->at, HT_ERR_LIMIT, "rules are nested too deeply"), true;
    r->state = 1;
    r->recurs = node_recurs(p, r->node);
    r->state = 2;
    p->depth--;
    return r->recurs;
}

static bool node_recurs(parser *p, uint32_t at) {
    for (;;) {
        const node of = p->nodes[at];
        switch (of.kind) {
        case NODE_RULE: return rule_recurs(p, of.left);
        case NODE_SEQUENCE:
        case NODE_EITHER:
            if (node_recurs(p, of.right)) return true;
            at = of.left; /* the trees lean to the left */
            break;
        case NODE_REPEAT: at = of.left; break;
        default: return false;
        }
    }
}

/* ---- to rules ---- */

static ht_re regular(parser *p, uint32_t at) {
    const node of = p->nodes[at];
    ht_regexes *s = p->out->re;
    ht_re all = HT_RE_EMPTY;
    switch (of.kind) {
    case NODE_TEXT: return of.left;
    case NODE_RULE: {
        named_rule *r = &p->rules[of.left];
        if (r->state != 3) {
            r->re = regular(p, r->node);
            r->state = 3;
        }
        return r->re;
    }
    case NODE_SEQUENCE:
        for (; p->nodes[at].kind == NODE_SEQUENCE; at = p->nodes[at].left)
            all = ht_re_concat(s, regular(p, p->nodes[at].right), all);
        return ht_re_concat(s, regular(p, at), all);
    case NODE_EITHER: {
        const size_t begin = s->n_scratch;
        for (; p->nodes[at].kind == NODE_EITHER; at = p->nodes[at].left) ht_re_push(s, regular(p, p->nodes[at].right));
        ht_re_push(s, regular(p, at));
        return ht_re_join_scratch(s, HT_RE_KIND_ALTERNATIVES, begin);
    }
    case NODE_REPEAT: return ht_re_repeat(s, regular(p, of.left), of.min, of.max);
    default: return HT_RE_EMPTY;
    }
}

/* Writes the expression of a node without recursion; false for other nodes. */
static bool compile_regular(parser *p, uint32_t at, ht_re *out) {
    if (p->status || node_recurs(p, at)) return false;
    *out = regular(p, at);
    return true;
}

static ht_symbol compile(parser *p, uint32_t at);

/* Adjacent parts without recursion become one expression. */
static ht_symbol compile_sequence(parser *p, uint32_t at) {
    uint32_t n = 1;
    for (uint32_t i = at; p->nodes[i].kind == NODE_SEQUENCE; i = p->nodes[i].left) n++;
    ht_symbol *symbols = malloc(n * sizeof *symbols);
    if (!symbols) return fail_memory(p);
    uint32_t begin = n;
    ht_re pending = HT_RE_EMPTY, re;
    for (uint32_t i = 0; i < n && !p->status; i++) {
        const bool is_last = i == n - 1;
        const uint32_t part = is_last ? at : p->nodes[at].right;
        if (!is_last) at = p->nodes[at].left;
        if (compile_regular(p, part, &re)) {
            pending = ht_re_concat(p->out->re, re, pending);
            continue;
        }
        if (pending != HT_RE_EMPTY) symbols[--begin] = ht_rules_text(p->out, pending);
        pending = HT_RE_EMPTY;
        symbols[--begin] = compile(p, part);
    }
    if (pending != HT_RE_EMPTY) symbols[--begin] = ht_rules_text(p->out, pending);
    const ht_symbol rule = ht_rules_rule(p->out);
    ht_rules_add(p->out, rule, symbols + begin, n - begin);
    free(symbols);
    return rule;
}

static ht_symbol compile_either(parser *p, ht_symbol rule, uint32_t at) {
    for (; p->nodes[at].kind == NODE_EITHER; at = p->nodes[at].left) {
        const ht_symbol right = compile(p, p->nodes[at].right);
        ht_rules_add(p->out, rule, &right, 1);
    }
    const ht_symbol left = compile(p, at);
    ht_rules_add(p->out, rule, &left, 1);
    return rule;
}

/* x repeated min times, then up to max: each further repetition is a rule that ends or continues. */
static ht_symbol compile_repeat(parser *p, node of) {
    ht_rules *out = p->out;
    const ht_symbol x = compile(p, of.left);
    ht_symbol tail = ht_rules_rule(out);
    ht_rules_add(out, tail, NULL, 0);
    if (of.max == HT_RE_UNBOUNDED) ht_rules_add(out, tail, (ht_symbol[]){x, tail}, 2);
    for (uint32_t i = of.min; of.max != HT_RE_UNBOUNDED && i < of.max && !p->status; i++) {
        const ht_symbol more = ht_rules_rule(out);
        ht_rules_add(out, more, NULL, 0);
        ht_rules_add(out, more, (ht_symbol[]){x, tail}, 2);
        tail = more;
    }
    for (uint32_t i = 0; i < of.min && !p->status; i++) {
        const ht_symbol more = ht_rules_rule(out);
        ht_rules_add(out, more, (ht_symbol[]){x, tail}, 2);
        tail = more;
    }
    return tail;
}

static ht_symbol compile(parser *p, uint32_t at) {
    ht_re re;
    if (compile_regular(p, at, &re)) return ht_rules_text(p->out, re);
    const node of = p->nodes[at];
    if (p->status) return 0;
    switch (of.kind) {
    case NODE_RULE: {
        named_rule *r = &p->rules[of.left];
        if (r->state == 3) return r->rule;
        r->state = 3;
        r->rule = ht_rules_rule(p->out);
        const ht_symbol rule = r->rule, inside = compile(p, r->node);
        ht_rules_add(p->out, rule, &inside, 1);
        return rule;
    }
    case NODE_SEQUENCE: return compile_sequence(p, at);
    case NODE_EITHER: return compile_either(p, ht_rules_rule(p->out), at);
    default: return compile_repeat(p, of);
    }
}

/* ---- whole grammar ---- */

static void check_defined(parser *p) {
    for (uint32_t i = 0; i < p->n_rules && !p->status; i++)
        if (!p->rules[i].is_defined) {
            char what[120];
            const named_rule *r = &p->rules[i];
            snprintf(what, sizeof what, "there is no rule `%.*s`%s", (int)ht_min_size(r->n_name, 80), p->text + r->at,
                     r->n_name > 80 ? "..." : "");
            fail_at(p, r->at, HT_ERR_FORMAT, what);
        }
}

static ht_status parse_all(parser *p) {
    bool has_text = false;
    skip(p, true);
    while (!p->status && p->at < p->n) parse_rule(p);
    check_defined(p);
    const uint32_t root = ht_intern_text(&p->names, "root", 4, NULL);
    if (root == HT_INTERN_FAILED) fail_memory(p);
    if (!p->status && root == p->n_rules) fail(p, HT_ERR_FORMAT, "there is no rule `root`, which is where texts begin");
    const uint32_t start = p->status ? 0 : add(p, (node){.kind = NODE_RULE, .left = root});
    const ht_symbol symbol = p->status ? 0 : compile(p, start);
    if (p->status) return p->status;
    const ht_symbol whole = ht_rules_rule(p->out);
    ht_rules_add(p->out, whole, &symbol, 1);
    ht_rules_finish(p->out, whole, &has_text);
    const ht_status status = ht_rules_status(p->out, p->err);
    if (status || has_text) return status;
    return ht_fail(p->err, HT_ERR_FORMAT,
                   "the grammar has no text: each alternative of `root` needs another one, without end");
}

ht_status ht_gbnf_parse(const char *text, size_t n, ht_rules **out, ht_error *err) {
    parser p = {.text = text, .n = n, .out = ht_rules_new(), .err = err};
    *out = NULL;
    if (!p.out) return ht_fail_memory(err, sizeof *p.out, "a grammar");
    const ht_status status = parse_all(&p);
    if (status)
        ht_rules_free(p.out);
    else
        *out = p.out;
    free(p.nodes);
    free(p.rules);
    ht_intern_free(&p.names);
    ht_code_set_free(&p.ranges);
    return status;
}
