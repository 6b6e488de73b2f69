/* From tokens to a tree: recursive descent over jinja2's grammar. A unary minus binds closer than a power, a power than a
 * product, `~` than a sum; filters and tests bind closest of all. */
#include "template/program.h"

#include <string.h>

typedef struct parser {
    ht_jinja_arena *a;
    const ht_jinja_token *at;
    int depth;    /* of nesting, now */
    int unsure;   /* inside of what may never be evaluated: unknown filters fail only there */
    int loops;    /* around this place */
    int mentions; /* HT_MACRO_ flags of names in the macro that is parsed */
} parser;

static ht_jinja_node *parse_expression(parser *p);
static ht_jinja_node *parse_unary(parser *p, bool with_filters);
static ht_jinja_node *parse_statements(parser *p, const char *const *ends);

/* ---- tokens ---- */

static void locate(const parser *p) {
    p->a->line = p->at->line;
    p->a->column = p->at->column;
}

static bool is_operator(const parser *p, const char *text) {
    return p->at->kind == HT_TOKEN_OPERATOR && ht_jinja_string_is(p->at->text, text);
}

static bool is_name(const parser *p, const char *text) {
    return p->at->kind == HT_TOKEN_NAME && ht_jinja_string_is(p->at->text, text);
}

static void advance(parser *p) {
    if (p->at->kind != HT_TOKEN_END) p->at++;
}

static bool skip_operator(parser *p, const char *text) {
    bool found = is_operator(p, text);
    if (found) advance(p);
    return found;
}

static bool skip_name(parser *p, const char *text) {
    bool found = is_name(p, text);
    if (found) advance(p);
    return found;
}

static void unexpected(parser *p, const char *expected) {
    static const char *const names[] = {
        "text", "{{", "}}", "{%", "%}", "", "a constant", "", "the end of the template"};
    locate(p);
    if (p->at->text && p->at->kind != HT_TOKEN_TEXT)
        ht_jinja_arena_fail(p->a, "%.60s instead of %s", p->at->text->text, expected);
    else
        ht_jinja_arena_fail(p->a, "%s instead of %s", names[p->at->kind], expected);
}

static void expect_operator(parser *p, const char *text) {
    if (!skip_operator(p, text)) unexpected(p, text);
}

static const ht_jinja_string *expect_name(parser *p, const char *what) {
    const ht_jinja_string *name = p->at->text;
    if (p->at->kind != HT_TOKEN_NAME) {
        unexpected(p, what);
        return NULL;
    }
    advance(p);
    return name;
}

static void expect(parser *p, ht_jinja_token_kind kind, const char *what) {
    if (p->at->kind != kind)
        unexpected(p, what);
    else
        advance(p);
}

/* ---- nodes ---- */

static ht_jinja_node *node_at(parser *p, const ht_jinja_token *t, ht_jinja_node_kind kind) {
    ht_jinja_node *n = ht_jinja_arena_alloc(p->a, sizeof *n);
    if (n) *n = (ht_jinja_node){.kind = kind, .line = t->line, .column = t->column};
    return n;
}

static ht_jinja_node *node(parser *p, ht_jinja_node_kind kind) { return node_at(p, p->at, kind); }

static void add_item(parser *p, ht_jinja_node *n, ht_jinja_node *item) {
    if (!n || !item) return;
    ht_jinja_node **items = ht_jinja_arena_grow(p->a, n->items, n->n, sizeof *items, &n->capacity);
    if (!items) return;
    n->items = items;
    n->items[n->n++] = item;
}

static bool enter(parser *p) {
    if (++p->depth > HT_TEMPLATE_NESTING) {
        locate(p);
        ht_jinja_arena_fail_as(p->a, HT_ERR_LIMIT, "the template is nested more than %d deep", HT_TEMPLATE_NESTING);
    }
    return !p->a->status;
}

/* ---- expressions ---- */

static bool tuple_ends(const parser *p, const char *word) {
    return p->at->kind == HT_TOKEN_PRINT_END || p->at->kind == HT_TOKEN_BLOCK_END || is_operator(p, ")") ||
           (word && is_name(p, word));
}

static ht_jinja_node *parse_or(parser *p);

/* An expression, or several with commas as a tuple. `word` may end it. */
static ht_jinja_node *parse_tuple(parser *p, bool with_condition, bool in_parentheses, const char *word) {
    ht_jinja_node *tuple = node(p, HT_NODE_TUPLE);
    bool is_tuple = false;
    while (!p->a->status) {
        if (tuple && tuple->n) expect_operator(p, ",");
        if (p->a->status || tuple_ends(p, word)) break;
        add_item(p, tuple, with_condition ? parse_expression(p) : parse_or(p));
        if (!is_operator(p, ",")) break;
        is_tuple = true;
    }
    if (p->a->status || !tuple) return NULL;
    if (!is_tuple && tuple->n) return tuple->items[0];
    if (!tuple->n && !in_parentheses) unexpected(p, "an expression");
    return tuple;
}

static ht_jinja_node *parse_list(parser *p) {
    ht_jinja_node *list = node(p, HT_NODE_LIST);
    expect_operator(p, "[");
    while (!p->a->status && !is_operator(p, "]")) {
        if (list && list->n) expect_operator(p, ",");
        if (is_operator(p, "]")) break;
        add_item(p, list, parse_expression(p));
    }
    expect_operator(p, "]");
    return list;
}

static ht_jinja_node *parse_dict(parser *p) {
    ht_jinja_node *dict = node(p, HT_NODE_DICT);
    expect_operator(p, "{");
    while (!p->a->status && !is_operator(p, "}")) {
        if (dict && dict->n) expect_operator(p, ",");
        if (is_operator(p, "}")) break;
        add_item(p, dict, parse_expression(p));
        expect_operator(p, ":");
        add_item(p, dict, parse_expression(p));
    }
    expect_operator(p, "}");
    return dict;
}

static ht_jinja_node *constant(parser *p, ht_jinja_value v) {
    ht_jinja_node *n = node(p, HT_NODE_CONSTANT);
    if (n) n->constant = v;
    advance(p);
    return n;
}

static ht_jinja_node *parse_strings(parser *p) {
    ht_jinja_node *n = node(p, HT_NODE_CONSTANT);
    ht_jinja_builder b = {.arena = p->a};
    for (; p->at->kind == HT_TOKEN_CONSTANT && ht_jinja_is_string(p->at->constant); advance(p))
        ht_jinja_put_string(&b, p->at->constant.string);
    if (n) n->constant = ht_jinja_string_value(ht_jinja_built(&b));
    return n;
}

static ht_jinja_node *parse_name(parser *p) {
    const ht_jinja_string *name = p->at->text;
    if (ht_jinja_string_is(name, "true") || ht_jinja_string_is(name, "True"))
        return constant(p, ht_jinja_boolean(true));
    if (ht_jinja_string_is(name, "false") || ht_jinja_string_is(name, "False"))
        return constant(p, ht_jinja_boolean(false));
    if (ht_jinja_string_is(name, "none") || ht_jinja_string_is(name, "None")) return constant(p, ht_jinja_none());
    if (ht_jinja_string_is(name, "varargs")) p->mentions |= HT_MACRO_VARARGS;
    if (ht_jinja_string_is(name, "kwargs")) p->mentions |= HT_MACRO_KWARGS;
    if (ht_jinja_string_is(name, "caller")) p->mentions |= HT_MACRO_CALLER;
    ht_jinja_node *n = node(p, HT_NODE_NAME);
    if (n) n->name = name;
    advance(p);
    return n;
}

static ht_jinja_node *parse_primary(parser *p) {
    if (p->at->kind == HT_TOKEN_NAME) return parse_name(p);
    if (p->at->kind == HT_TOKEN_CONSTANT)
        return ht_jinja_is_string(p->at->constant) ? parse_strings(p) : constant(p, p->at->constant);
    if (skip_operator(p, "(")) {
        ht_jinja_node *inside = parse_tuple(p, true, true, NULL);
        expect_operator(p, ")");
        return inside;
    }
    if (is_operator(p, "[")) return parse_list(p);
    if (is_operator(p, "{")) return parse_dict(p);
    unexpected(p, "an expression");
    return NULL;
}

/* One index between brackets: an expression or a slice. */
static ht_jinja_node *parse_index(parser *p) {
    ht_jinja_node *slice = node(p, HT_NODE_SLICE), *first = is_operator(p, ":") ? NULL : parse_expression(p);
    if (!skip_operator(p, ":")) return first;
    if (!slice) return NULL;
    slice->a = first;
    if (!is_operator(p, ":") && !is_operator(p, "]") && !is_operator(p, ",")) slice->b = parse_expression(p);
    if (skip_operator(p, ":") && !is_operator(p, "]") && !is_operator(p, ",")) slice->c = parse_expression(p);
    return slice;
}

static ht_jinja_node *parse_subscript(parser *p, ht_jinja_node *of) {
    ht_jinja_node *n = node(p, HT_NODE_ITEM);
    if (!n) return NULL;
    n->a = of;
    if (skip_operator(p, ".")) {
        if (p->at->kind == HT_TOKEN_NAME) {
            n->kind = HT_NODE_ATTRIBUTE;
            n->name = p->at->text;
            advance(p);
        } else if (p->at->kind == HT_TOKEN_CONSTANT && p->at->constant.kind == HT_VALUE_INT)
            n->b = constant(p, p->at->constant);
        else
            unexpected(p, "a name or a number");
        return n;
    }
    expect_operator(p, "[");
    ht_jinja_node *indices = node(p, HT_NODE_TUPLE);
    while (!p->a->status && !is_operator(p, "]")) {
        if (indices && indices->n) expect_operator(p, ",");
        add_item(p, indices, parse_index(p));
    }
    expect_operator(p, "]");
    if (indices) n->b = indices->n == 1 ? indices->items[0] : indices;
    return n;
}

/* The arguments of a call, from its parenthesis on: positions, then keywords, with *a and **b. */
static void parse_arguments(parser *p, ht_jinja_node *call) {
    bool keywords = false, star = false, star_star = false, more = false;
    expect_operator(p, "(");
    while (call && !p->a->status && !is_operator(p, ")")) {
        if (more) expect_operator(p, ",");
        if (more && is_operator(p, ")")) break;
        more = true;
        ht_jinja_node *n = node(p, HT_NODE_KEYWORD);
        if (!n) return;
        bool good = true;
        if (skip_operator(p, "*")) {
            good = !star && !star_star;
            n->kind = HT_NODE_STAR;
            n->a = parse_expression(p);
            star = true;
        } else if (skip_operator(p, "**")) {
            good = !star_star;
            n->kind = HT_NODE_STAR_STAR;
            n->a = parse_expression(p);
            star_star = true;
        } else if (p->at->kind == HT_TOKEN_NAME && p->at[1].kind == HT_TOKEN_OPERATOR &&
                   ht_jinja_string_is(p->at[1].text, "=")) {
            good = !star_star;
            n->name = p->at->text;
            p->at += 2;
            n->a = parse_expression(p);
            keywords = true;
        } else {
            good = !keywords && !star && !star_star;
            n = parse_expression(p);
        }
        if (!good) {
            locate(p);
            ht_jinja_arena_fail(p->a, "the arguments are in an order that calls do not have");
        }
        add_item(p, call, n);
    }
    expect_operator(p, ")");
}

static ht_jinja_node *parse_call(parser *p, ht_jinja_node *callee) {
    ht_jinja_node *call = node(p, HT_NODE_CALL);
    if (call) call->a = callee;
    parse_arguments(p, call);
    return call;
}

static ht_jinja_node *parse_postfix(parser *p, ht_jinja_node *n) {
    while (!p->a->status) {
        if (is_operator(p, ".") || is_operator(p, "["))
            n = parse_subscript(p, n);
        else if (is_operator(p, "("))
            n = parse_call(p, n);
        else
            break;
    }
    return n;
}

/* A name that may have dots in it. */
static const ht_jinja_string *dotted_name(parser *p, const char *what) {
    const ht_jinja_string *name = expect_name(p, what);
    while (name && is_operator(p, ".")) {
        advance(p);
        const ht_jinja_string *next = expect_name(p, what);
        ht_jinja_builder b = {.arena = p->a};
        ht_jinja_put_string(&b, name);
        ht_jinja_put_text(&b, ".");
        ht_jinja_put_string(&b, next);
        name = ht_jinja_built(&b);
    }
    return name;
}

/* One or more filters of n, from the first one's name on; n is NULL in a filter block. */
static ht_jinja_node *parse_filters(parser *p, ht_jinja_node *n) {
    do {
        ht_jinja_node *filter = node(p, HT_NODE_FILTER);
        const ht_jinja_string *name = dotted_name(p, "the name of a filter");
        if (!filter || !name) return NULL;
        filter->a = n;
        filter->name = name;
        if (!p->unsure && !ht_jinja_filter_exists(name))
            ht_jinja_arena_fail(p->a, "there is no filter '%.60s'", name->text);
        if (is_operator(p, "(")) parse_arguments(p, filter);
        n = filter;
    } while (!p->a->status && skip_operator(p, "|"));
    return n;
}

/* A test, behind `is`; an argument without parentheses is allowed. */
static ht_jinja_node *parse_test(parser *p, ht_jinja_node *n) {
    bool negated = skip_name(p, "not");
    ht_jinja_node *test = node(p, HT_NODE_TEST), *result = test;
    const ht_jinja_string *name = dotted_name(p, "the name of a test");
    if (!test || !name) return NULL;
    test->a = n;
    test->name = name;
    if (!p->unsure && !ht_jinja_test_exists(name)) ht_jinja_arena_fail(p->a, "there is no test '%.60s'", name->text);
    bool is_word = is_name(p, "else") || is_name(p, "or") || is_name(p, "and");
    if (is_operator(p, "("))
        parse_arguments(p, test);
    else if ((p->at->kind == HT_TOKEN_NAME && !is_word) || p->at->kind == HT_TOKEN_CONSTANT || is_operator(p, "[") ||
             is_operator(p, "{")) {
        if (is_name(p, "is")) {
            locate(p);
            ht_jinja_arena_fail(p->a, "tests cannot be chained with is");
            return NULL;
        }
        add_item(p, test, parse_postfix(p, parse_primary(p)));
    }
    if (negated) {
        result = node(p, HT_NODE_NOT);
        if (result) result->a = test;
    }
    return result;
}

static ht_jinja_node *parse_unary(parser *p, bool with_filters) {
    if (!enter(p)) return NULL;
    ht_jinja_node *n = node(p, HT_NODE_NEGATE);
    if (is_operator(p, "-") || is_operator(p, "+")) {
        if (n && is_operator(p, "+")) n->kind = HT_NODE_PLUS;
        advance(p);
        ht_jinja_node *of = parse_unary(p, false);
        if (n) n->a = of;
    } else
        n = parse_primary(p);
    n = parse_postfix(p, n);
    while (with_filters && !p->a->status) {
        if (skip_operator(p, "|"))
            n = parse_filters(p, n);
        else if (skip_name(p, "is"))
            n = parse_test(p, n);
        else if (is_operator(p, "("))
            n = parse_call(p, n);
        else
            break;
    }
    p->depth--;
    return n;
}

static ht_jinja_node *binary(parser *p, const ht_jinja_token *operator, ht_jinja_node * left, ht_jinja_node *right) {
    ht_jinja_node *n = node_at(p, operator, HT_NODE_BINARY);
    if (!n) return NULL;
    n->name = operator->text;
    n->a = left;
    n->b = right;
    return n;
}

static ht_jinja_node *parse_power(parser *p) {
    ht_jinja_node *left = parse_unary(p, true);
    while (!p->a->status && is_operator(p, "**")) {
        const ht_jinja_token *operator= p->at;
        advance(p);
        left = binary(p, operator, left, parse_unary(p, true));
    }
    return left;
}

static ht_jinja_node *parse_product(parser *p) {
    ht_jinja_node *left = parse_power(p);
    while (!p->a->status &&
           (is_operator(p, "*") || is_operator(p, "/") || is_operator(p, "//") || is_operator(p, "%"))) {
        const ht_jinja_token *operator= p->at;
        advance(p);
        left = binary(p, operator, left, parse_power(p));
    }
    return left;
}

static ht_jinja_node *parse_concatenation(parser *p) {
    ht_jinja_node *all = node(p, HT_NODE_CONCATENATE), *first = parse_product(p);
    if (!is_operator(p, "~")) return first;
    add_item(p, all, first);
    while (!p->a->status && skip_operator(p, "~")) add_item(p, all, parse_product(p));
    return all;
}

static ht_jinja_node *parse_sum(parser *p) {
    ht_jinja_node *left = parse_concatenation(p);
    while (!p->a->status && (is_operator(p, "+") || is_operator(p, "-"))) {
        const ht_jinja_token *operator= p->at;
        advance(p);
        left = binary(p, operator, left, parse_concatenation(p));
    }
    return left;
}

static bool is_comparison(const parser *p) {
    static const char *const operators[] = {"==", "!=", "<", "<=", ">", ">="};
    for (size_t i = 0; i < sizeof operators / sizeof *operators; i++)
        if (is_operator(p, operators[i])) return true;
    return is_name(p, "in") ||
           (is_name(p, "not") && p->at[1].kind == HT_TOKEN_NAME && ht_jinja_string_is(p->at[1].text, "in"));
}

static ht_jinja_node *parse_comparison(parser *p) {
    ht_jinja_node *all = node(p, HT_NODE_COMPARE), *first = parse_sum(p);
    if (p->a->status || !is_comparison(p)) return first;
    if (all) all->a = first;
    while (!p->a->status && is_comparison(p)) {
        const ht_jinja_token *operator= p->at;
        advance(p);
        bool not_in = ht_jinja_string_is(operator->text, "not");
        if (not_in) advance(p);
        ht_jinja_node *right = parse_sum(p);
        add_item(p, all, binary(p, operator, NULL, right));
    }
    return all;
}

static ht_jinja_node *parse_not(parser *p) {
    if (!is_name(p, "not")) return parse_comparison(p);
    if (!enter(p)) return NULL;
    ht_jinja_node *n = node(p, HT_NODE_NOT);
    advance(p);
    ht_jinja_node *of = parse_not(p);
    if (n) n->a = of;
    p->depth--;
    return n;
}

static ht_jinja_node *parse_and(parser *p) {
    ht_jinja_node *left = parse_not(p);
    while (!p->a->status && is_name(p, "and")) {
        ht_jinja_node *n = node(p, HT_NODE_AND);
        advance(p);
        ht_jinja_node *right = parse_not(p);
        if (!n) return NULL;
        n->a = left;
        n->b = right;
        left = n;
    }
    return left;
}

static ht_jinja_node *parse_or(parser *p) {
    if (!enter(p)) return NULL;
    ht_jinja_node *left = parse_and(p);
    while (!p->a->status && is_name(p, "or")) {
        ht_jinja_node *n = node(p, HT_NODE_OR);
        advance(p);
        ht_jinja_node *right = parse_and(p);
        if (!n) return NULL;
        n->a = left;
        n->b = right;
        left = n;
    }
    p->depth--;
    return left;
}

static ht_jinja_node *parse_expression(parser *p) {
    if (!enter(p)) return NULL;
    /* Whether what was parsed first is part of a condition is known only behind it. */
    const ht_jinja_token *begin = p->at;
    p->unsure++;
    ht_jinja_node *n = parse_or(p);
    p->unsure--;
    if (!p->unsure && !p->a->status && !is_name(p, "if")) {
        p->at = begin;
        n = parse_or(p);
    }
    while (!p->a->status && is_name(p, "if")) {
        ht_jinja_node *condition = node(p, HT_NODE_CONDITION);
        advance(p);
        p->unsure++;
        ht_jinja_node *test = parse_or(p), *other = skip_name(p, "else") ? parse_expression(p) : NULL;
        p->unsure--;
        if (!condition) break;
        condition->a = test;
        condition->b = n;
        condition->c = other;
        n = condition;
    }
    p->depth--;
    return n;
}

/* ---- statements ---- */

static bool is_reserved(const ht_jinja_string *name) {
    static const char *const names[] = {"true", "false", "none", "True", "False", "None"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (ht_jinja_string_is(name, names[i])) return true;
    return false;
}

/* A name, perhaps with an attribute of a namespace, or several in a tuple. */
static ht_jinja_node *parse_target(parser *p, bool with_namespace, const char *word) {
    ht_jinja_node *tuple = node(p, HT_NODE_TUPLE);
    bool is_tuple = false;
    if (!enter(p)) return NULL;
    while (!p->a->status) {
        if (tuple && tuple->n) expect_operator(p, ",");
        if (p->a->status || tuple_ends(p, word) || is_operator(p, "=")) break;
        ht_jinja_node *n = node(p, HT_NODE_NAME);
        if (skip_operator(p, "(")) {
            n = parse_target(p, with_namespace, NULL);
            expect_operator(p, ")");
        } else {
            const ht_jinja_string *name = expect_name(p, "the name of a variable");
            if (!n || !name) return NULL;
            if (is_reserved(name)) ht_jinja_arena_fail(p->a, "%.20s cannot be assigned to", name->text);
            n->name = name;
            if (with_namespace && skip_operator(p, ".")) {
                n->kind = HT_NODE_NAMESPACE;
                n->constant = ht_jinja_string_value(expect_name(p, "the name of an attribute"));
            }
        }
        add_item(p, tuple, n);
        if (!is_operator(p, ",")) break;
        is_tuple = true;
    }
    p->depth--;
    if (p->a->status || !tuple) return NULL;
    if (!is_tuple && tuple->n) return tuple->items[0];
    if (!tuple->n) unexpected(p, "the name of a variable");
    return tuple;
}

static void end_block(parser *p) { expect(p, HT_TOKEN_BLOCK_END, "%}"); }

/* The body up to one of the words, which is left to be looked at, behind the %} of its own tag. */
static ht_jinja_node *parse_body(parser *p, const char *const *ends) {
    end_block(p);
    return parse_statements(p, ends);
}

static ht_jinja_node *parse_for(parser *p, ht_jinja_node *loop) {
    static const char *const first[] = {"endfor", "else", NULL}, *const second[] = {"endfor", NULL};
    loop->a = parse_target(p, false, "in");
    if (loop->a && loop->a->kind == HT_NODE_NAME && ht_jinja_string_is(loop->a->name, "loop"))
        ht_jinja_arena_fail(p->a, "loop cannot be the variable of a loop");
    if (!skip_name(p, "in")) unexpected(p, "in");
    loop->b = parse_tuple(p, false, false, "recursive");
    if (skip_name(p, "if")) loop->c = parse_expression(p);
    loop->flags = skip_name(p, "recursive");
    p->loops++;
    add_item(p, loop, parse_body(p, first));
    p->loops--;
    if (skip_name(p, "else")) add_item(p, loop, parse_body(p, second));
    skip_name(p, "endfor");
    return loop;
}

static ht_jinja_node *parse_if(parser *p, ht_jinja_node *n) {
    static const char *const first[] = {"elif", "else", "endif", NULL}, *const last[] = {"endif", NULL};
    if (!enter(p)) return NULL;
    p->unsure++;
    n->a = parse_tuple(p, false, false, NULL);
    n->b = parse_body(p, first);
    if (is_name(p, "elif")) {
        ht_jinja_node *next = node(p, HT_NODE_IF);
        advance(p);
        n->c = next ? parse_if(p, next) : NULL;
    } else {
        if (skip_name(p, "else")) n->c = parse_body(p, last);
        skip_name(p, "endif");
    }
    p->unsure--;
    p->depth--;
    return n;
}

static ht_jinja_node *parse_set(parser *p, ht_jinja_node *n) {
    static const char *const ends[] = {"endset", NULL};
    n->a = parse_target(p, true, NULL);
    if (skip_operator(p, "=")) {
        n->b = parse_tuple(p, true, false, NULL);
        return n;
    }
    n->kind = HT_NODE_SET_BLOCK;
    if (skip_operator(p, "|")) n->c = parse_filters(p, NULL);
    n->b = parse_body(p, ends);
    skip_name(p, "endset");
    return n;
}

/* Parameters in parentheses, then the body of a macro or call block, whose names its flags tell. */
static void parse_signature(parser *p, ht_jinja_node *macro) {
    bool defaults = false;
    while (!p->a->status && !is_operator(p, ")")) {
        if (macro->n) expect_operator(p, ",");
        if (p->a->status) return;
        ht_jinja_node *parameter = node(p, HT_NODE_NAME);
        const ht_jinja_string *name = expect_name(p, "the name of a parameter");
        if (!parameter || !name) return;
        parameter->name = name;
        for (size_t i = 0; i < macro->n; i++)
            if (!strcmp(macro->items[i]->name->text, name->text))
                ht_jinja_arena_fail(p->a, "the parameter %.60s occurs twice", name->text);
        if (skip_operator(p, "=")) {
            parameter->a = parse_expression(p);
            defaults = true;
        } else if (defaults)
            ht_jinja_arena_fail(p->a, "a parameter without a default follows one with a default");
        if (ht_jinja_string_is(name, "caller") && !parameter->a)
            ht_jinja_arena_fail(p->a, "a parameter called caller needs a default");
        add_item(p, macro, parameter);
    }
    expect_operator(p, ")");
}

static void parse_macro_body(parser *p, ht_jinja_node *macro, const char *const *ends) {
    int mentions = p->mentions, loops = p->loops;
    p->mentions = p->loops = 0;
    macro->b = parse_body(p, ends);
    macro->flags = p->mentions;
    p->mentions |= mentions;
    p->loops = loops;
}

static ht_jinja_node *parse_macro(parser *p, ht_jinja_node *macro) {
    static const char *const ends[] = {"endmacro", NULL};
    macro->name = expect_name(p, "the name of a macro");
    expect_operator(p, "(");
    parse_signature(p, macro);
    parse_macro_body(p, macro, ends);
    skip_name(p, "endmacro");
    return macro;
}

static ht_jinja_node *parse_call_block(parser *p, ht_jinja_node *n) {
    static const char *const ends[] = {"endcall", NULL};
    ht_jinja_node *caller = node(p, HT_NODE_MACRO);
    if (!caller) return NULL;
    caller->name = ht_jinja_string_new(p->a, "caller", 6, false);
    if (skip_operator(p, "(")) parse_signature(p, caller);
    n->a = parse_expression(p);
    if (n->a && n->a->kind != HT_NODE_CALL) {
        locate(p);
        ht_jinja_arena_fail(p->a, "a call block needs a call");
    }
    parse_macro_body(p, caller, ends);
    skip_name(p, "endcall");
    n->b = caller;
    return n;
}

static ht_jinja_node *parse_with(parser *p, ht_jinja_node *n) {
    static const char *const ends[] = {"endwith", NULL};
    while (!p->a->status && p->at->kind != HT_TOKEN_BLOCK_END) {
        if (n->n) expect_operator(p, ",");
        ht_jinja_node *set = node(p, HT_NODE_SET);
        if (!set) return NULL;
        set->a = parse_target(p, false, NULL);
        expect_operator(p, "=");
        set->b = parse_expression(p);
        add_item(p, n, set);
    }
    n->b = parse_body(p, ends);
    skip_name(p, "endwith");
    return n;
}

/* Statements that other files are needed for, or other settings: read as far as their end, refused when reached. */
static ht_jinja_node *refuse(parser *p, ht_jinja_node *n, const char *tag) {
    char why[96];
    int length = 0;
    n->kind = HT_NODE_REFUSED;
    for (const char *part[] = {"a template of a chat cannot have {% ", tag, " %}", NULL}, **at = part; *at; at++)
        for (const char *c = *at; *c && length < 95; c++) why[length++] = *c;
    n->constant = ht_jinja_string_value(ht_jinja_string_new(p->a, why, (size_t)length, false));
    while (!p->a->status && p->at->kind != HT_TOKEN_BLOCK_END && p->at->kind != HT_TOKEN_END) advance(p);
    return n;
}

static ht_jinja_node *parse_statement(parser *p) {
    static const char *const filter_ends[] = {"endfilter", NULL}, *const generation_ends[] = {"endgeneration", NULL};
    static const char *const refused[] = {"include", "import", "from", "extends", NULL};
    ht_jinja_node *n = node(p, HT_NODE_IF);
    const ht_jinja_string *tag = expect_name(p, "the name of a tag");
    if (!n || !tag) return NULL;
    if (ht_jinja_string_is(tag, "if")) return parse_if(p, n);
    if (ht_jinja_string_is(tag, "for")) return n->kind = HT_NODE_FOR, parse_for(p, n);
    if (ht_jinja_string_is(tag, "set")) return n->kind = HT_NODE_SET, parse_set(p, n);
    if (ht_jinja_string_is(tag, "macro")) return n->kind = HT_NODE_MACRO, parse_macro(p, n);
    if (ht_jinja_string_is(tag, "call")) return n->kind = HT_NODE_CALL_BLOCK, parse_call_block(p, n);
    if (ht_jinja_string_is(tag, "with")) return n->kind = HT_NODE_WITH, parse_with(p, n);
    if (ht_jinja_string_is(tag, "print")) {
        n->kind = HT_NODE_PRINT;
        n->a = parse_tuple(p, true, false, NULL);
        return n;
    }
    if (ht_jinja_string_is(tag, "filter")) {
        n->kind = HT_NODE_FILTER_BLOCK;
        n->a = parse_filters(p, NULL);
        n->b = parse_body(p, filter_ends);
        skip_name(p, "endfilter");
        return n;
    }
    if (ht_jinja_string_is(tag, "generation")) {
        n->kind = HT_NODE_SCOPE;
        n->b = parse_body(p, generation_ends);
        skip_name(p, "endgeneration");
        return n;
    }
    if (ht_jinja_string_is(tag, "break") || ht_jinja_string_is(tag, "continue")) {
        n->kind = ht_jinja_string_is(tag, "break") ? HT_NODE_BREAK : HT_NODE_CONTINUE;
        if (!p->loops) ht_jinja_arena_fail(p->a, "%.10s outside of a loop", tag->text);
        return n;
    }
    for (int i = 0; refused[i]; i++)
        if (ht_jinja_string_is(tag, refused[i])) return refuse(p, n, refused[i]);
    ht_jinja_arena_fail(p->a, "there is no tag '%.60s'", tag->text);
    return NULL;
}

static bool ends_here(const parser *p, const char *const *ends) {
    for (; ends && *ends; ends++)
        if (is_name(p, *ends)) return true;
    return false;
}

/* The body up to a tag that begins with one of the words; the word is the next token then. NULL: up to the end. */
static ht_jinja_node *parse_statements(parser *p, const char *const *ends) {
    ht_jinja_node *body = node(p, HT_NODE_BODY);
    if (!enter(p)) return NULL;
    while (body && !p->a->status) {
        ht_jinja_node *n = NULL;
        if (p->at->kind == HT_TOKEN_END) {
            while (ends && ends[1]) ends++; /* the tag that would have to come at last */
            if (ends) unexpected(p, *ends);
            break;
        }
        if (p->at->kind == HT_TOKEN_TEXT) {
            n = node(p, HT_NODE_TEXT);
            if (n) n->constant = ht_jinja_string_value(p->at->text);
            advance(p);
        } else if (p->at->kind == HT_TOKEN_PRINT_BEGIN) {
            n = node(p, HT_NODE_PRINT);
            advance(p);
            ht_jinja_node *value = parse_tuple(p, true, false, NULL);
            if (n) n->a = value;
            expect(p, HT_TOKEN_PRINT_END, "}}");
        } else {
            expect(p, HT_TOKEN_BLOCK_BEGIN, "{%");
            if (ends_here(p, ends)) break;
            n = parse_statement(p);
            end_block(p);
        }
        add_item(p, body, n);
    }
    p->depth--;
    return body;
}

ht_jinja_node *ht_jinja_parse(ht_jinja_arena *a, const char *source, size_t n) {
    parser p = {.a = a, .at = ht_jinja_tokens(a, source, n)};
    if (!p.at) return NULL;
    ht_jinja_node *body = parse_statements(&p, NULL);
    return a->status ? NULL : body;
}
