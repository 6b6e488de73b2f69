/* From tokens to a tree: recursive descent over jinja2's grammar. A unary minus binds closer than a power, a power than a
 * product, `~` than a sum; filters and tests bind closest of all. */
#include "template/eval.h"

#include <string.h>

typedef struct parser {
    ht_jinja_arena *a;
    const ht_jinja_token *at;
    int depth;           /* of nesting, now */
    int unsure;          /* inside code that may never run: unknown filters fail only when executed */
    int loops;           /* around this place */
    int mentions;        /* HT_MACRO_ flags of names in the macro that is parsed */
    ht_jinja_node spare; /* after a failure, in the place of nodes of the tree, which is then dropped */
} parser;

static ht_jinja_node *parse_expression(parser *p);
static ht_jinja_node *parse_unary(parser *p, bool with_filters);
static ht_jinja_node *parse_statements(parser *p, const char *const *ends);

/* ---- tokens ---- */

static void locate(const parser *p) {
    p->a->line = p->at->line;
    p->a->column = p->at->column;
}

/* Whether the next token is this operator or name. */
static bool is(const parser *p, const char *text) {
    return (p->at->kind == HT_TOKEN_OPERATOR || p->at->kind == HT_TOKEN_NAME) && ht_jinja_string_is(p->at->text, text);
}

/* Whether the next token is one of a list that ends with NULL. */
static bool is_one_of(const parser *p, const char *const *texts) {
    while (*texts && !is(p, *texts)) texts++;
    return *texts != NULL;
}

static void advance(parser *p) {
    if (p->at->kind != HT_TOKEN_END) p->at++;
}

static bool skip(parser *p, const char *text) {
    bool found = is(p, text);
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

static void expect(parser *p, const char *text) {
    if (!skip(p, text)) unexpected(p, text);
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

static void expect_kind(parser *p, ht_jinja_token_kind kind, const char *what) {
    if (p->at->kind != kind)
        unexpected(p, what);
    else
        advance(p);
}

/* ---- nodes ---- */

/* Never NULL. */
static ht_jinja_node *node_at(parser *p, const ht_jinja_token *t, ht_jinja_node_kind kind) {
    ht_jinja_node *n = ht_jinja_arena_alloc(p->a, sizeof *n);
    if (!n) n = &p->spare;
    *n = (ht_jinja_node){.kind = kind, .line = t->line, .column = t->column};
    return n;
}

static ht_jinja_node *node(parser *p, ht_jinja_node_kind kind) { return node_at(p, p->at, kind); }

static void add_item(parser *p, ht_jinja_node *n, ht_jinja_node *item) {
    if (!item) return;
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
    return p->at->kind == HT_TOKEN_PRINT_END || p->at->kind == HT_TOKEN_BLOCK_END || is(p, ")") ||
           (word && is(p, word));
}

static ht_jinja_node *parse_or(parser *p);

/* An expression, or several with commas as a tuple. `word` may end it. */
static ht_jinja_node *parse_tuple(parser *p, bool with_condition, bool in_parentheses, const char *word) {
    ht_jinja_node *tuple = node(p, HT_NODE_TUPLE);
    bool is_tuple = false;
    while (!p->a->status) {
        if (tuple->n) expect(p, ",");
        if (p->a->status || tuple_ends(p, word)) break;
        add_item(p, tuple, with_condition ? parse_expression(p) : parse_or(p));
        if (!is(p, ",")) break;
        is_tuple = true;
    }
    if (p->a->status) return NULL;
    if (!is_tuple && tuple->n) return tuple->items[0];
    if (!tuple->n && !in_parentheses) unexpected(p, "an expression");
    return tuple;
}

/* A list or, in pairs, a dict. */
static ht_jinja_node *parse_items(parser *p, ht_jinja_node_kind kind, const char *end) {
    ht_jinja_node *n = node(p, kind);
    advance(p);
    while (!p->a->status && !is(p, end)) {
        if (n->n) expect(p, ",");
        if (is(p, end)) break;
        add_item(p, n, parse_expression(p));
        if (kind == HT_NODE_LIST) continue;
        expect(p, ":");
        add_item(p, n, parse_expression(p));
    }
    expect(p, end);
    return n;
}

static ht_jinja_node *constant(parser *p, ht_jinja_value v) {
    ht_jinja_node *n = node(p, HT_NODE_CONSTANT);
    n->constant = v;
    advance(p);
    return n;
}

static ht_jinja_node *parse_strings(parser *p) {
    ht_jinja_node *n = node(p, HT_NODE_CONSTANT);
    ht_jinja_builder b = {.arena = p->a};
    for (; p->at->kind == HT_TOKEN_CONSTANT && ht_jinja_is_string(p->at->constant); advance(p))
        ht_jinja_put_string(&b, p->at->constant.string);
    n->constant = ht_jinja_string_value(ht_jinja_built(&b));
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
    n->name = name;
    advance(p);
    return n;
}

static ht_jinja_node *parse_primary(parser *p) {
    if (p->at->kind == HT_TOKEN_NAME) return parse_name(p);
    if (p->at->kind == HT_TOKEN_CONSTANT)
        return ht_jinja_is_string(p->at->constant) ? parse_strings(p) : constant(p, p->at->constant);
    if (skip(p, "(")) {
        ht_jinja_node *inside = parse_tuple(p, true, true, NULL);
        expect(p, ")");
        return inside;
    }
    if (is(p, "[")) return parse_items(p, HT_NODE_LIST, "]");
    if (is(p, "{")) return parse_items(p, HT_NODE_DICT, "}");
    unexpected(p, "an expression");
    return NULL;
}

/* One index between brackets: an expression or a slice. */
static ht_jinja_node *parse_index(parser *p) {
    ht_jinja_node *slice = node(p, HT_NODE_SLICE), *first = is(p, ":") ? NULL : parse_expression(p);
    if (!skip(p, ":")) return first;
    slice->a = first;
    if (!is(p, ":") && !is(p, "]") && !is(p, ",")) slice->b = parse_expression(p);
    if (skip(p, ":") && !is(p, "]") && !is(p, ",")) slice->c = parse_expression(p);
    return slice;
}

static ht_jinja_node *parse_subscript(parser *p, ht_jinja_node *of) {
    ht_jinja_node *n = node(p, HT_NODE_ITEM);
    n->a = of;
    if (skip(p, ".")) {
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
    expect(p, "[");
    ht_jinja_node *indices = node(p, HT_NODE_TUPLE);
    while (!p->a->status && !is(p, "]")) {
        if (indices->n) expect(p, ",");
        add_item(p, indices, parse_index(p));
    }
    expect(p, "]");
    n->b = indices->n == 1 ? indices->items[0] : indices;
    return n;
}

/* The arguments of a call, from its parenthesis on: positions, then keywords, with *a and **b. */
static void parse_arguments(parser *p, ht_jinja_node *call) {
    bool keywords = false, star = false, star_star = false, more = false;
    expect(p, "(");
    while (!p->a->status && !is(p, ")")) {
        if (more) expect(p, ",");
        if (more && is(p, ")")) break;
        more = true;
        ht_jinja_node *n = node(p, HT_NODE_KEYWORD);
        bool good = true;
        if (skip(p, "*")) {
            good = !star && !star_star;
            n->kind = HT_NODE_STAR;
            n->a = parse_expression(p);
            star = true;
        } else if (skip(p, "**")) {
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
    expect(p, ")");
}

static ht_jinja_node *parse_call(parser *p, ht_jinja_node *callee) {
    ht_jinja_node *call = node(p, HT_NODE_CALL);
    call->a = callee;
    parse_arguments(p, call);
    return call;
}

static ht_jinja_node *parse_postfix(parser *p, ht_jinja_node *n) {
    while (!p->a->status) {
        if (is(p, ".") || is(p, "["))
            n = parse_subscript(p, n);
        else if (is(p, "("))
            n = parse_call(p, n);
        else
            break;
    }
    return n;
}

/* A name that may have dots in it. */
static const ht_jinja_string *dotted_name(parser *p, const char *what) {
    const ht_jinja_string *name = expect_name(p, what);
    while (name && is(p, ".")) {
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
        if (!name) return NULL;
        filter->a = n;
        filter->name = name;
        if (!p->unsure && !ht_jinja_filter_of(name))
            ht_jinja_arena_fail(p->a, "there is no filter '%.60s'", name->text);
        if (is(p, "(")) parse_arguments(p, filter);
        n = filter;
    } while (!p->a->status && skip(p, "|"));
    return n;
}

/* A test, after `is`; an argument without parentheses is allowed. */
static ht_jinja_node *parse_test(parser *p, ht_jinja_node *n) {
    bool negated = skip(p, "not");
    ht_jinja_node *test = node(p, HT_NODE_TEST), *result = test;
    const ht_jinja_string *name = dotted_name(p, "the name of a test");
    if (!name) return NULL;
    test->a = n;
    test->name = name;
    if (!p->unsure && !ht_jinja_test_of(name)) ht_jinja_arena_fail(p->a, "there is no test '%.60s'", name->text);
    bool is_word = is(p, "else") || is(p, "or") || is(p, "and");
    if (is(p, "("))
        parse_arguments(p, test);
    else if ((p->at->kind == HT_TOKEN_NAME && !is_word) || p->at->kind == HT_TOKEN_CONSTANT || is(p, "[") ||
             is(p, "{")) {
        if (is(p, "is")) {
            locate(p);
            ht_jinja_arena_fail(p->a, "tests cannot be chained with is");
            return NULL;
        }
        add_item(p, test, parse_postfix(p, parse_primary(p)));
    }
    if (negated) {
        result = node(p, HT_NODE_NOT);
        result->a = test;
    }
    return result;
}

static ht_jinja_node *parse_unary(parser *p, bool with_filters) {
    if (!enter(p)) return NULL;
    ht_jinja_node *n = node(p, HT_NODE_NEGATE);
    if (is(p, "-") || is(p, "+")) {
        if (is(p, "+")) n->kind = HT_NODE_PLUS;
        advance(p);
        n->a = parse_unary(p, false);
    } else
        n = parse_primary(p);
    n = parse_postfix(p, n);
    while (with_filters && !p->a->status) {
        if (skip(p, "|"))
            n = parse_filters(p, n);
        else if (skip(p, "is"))
            n = parse_test(p, n);
        else if (is(p, "("))
            n = parse_call(p, n);
        else
            break;
    }
    p->depth--;
    return n;
}

static ht_jinja_node *binary(parser *p, ht_jinja_node_kind kind, const ht_jinja_token *operator, ht_jinja_node * left,
                             ht_jinja_node *right) {
    ht_jinja_node *n = node_at(p, operator, kind);
    n->name = operator->text;
    n->a = left;
    n->b = right;
    return n;
}

/* Operators of one precedence, from the left; their sides are of the next higher one. */
static ht_jinja_node *parse_level(parser *p, ht_jinja_node_kind kind, const char *const *operators,
                                  ht_jinja_node *(*side)(parser *p)) {
    ht_jinja_node *left = side(p);
    while (!p->a->status && is_one_of(p, operators)) {
        const ht_jinja_token *operator= p->at;
        advance(p);
        left = binary(p, kind, operator, left, side(p));
    }
    return left;
}

static ht_jinja_node *parse_operand(parser *p) { return parse_unary(p, true); }

static ht_jinja_node *parse_power(parser *p) {
    static const char *const operators[] = {"**", NULL};
    return parse_level(p, HT_NODE_BINARY, operators, parse_operand);
}

static ht_jinja_node *parse_product(parser *p) {
    static const char *const operators[] = {"*", "/", "//", "%", NULL};
    return parse_level(p, HT_NODE_BINARY, operators, parse_power);
}

static ht_jinja_node *parse_concatenation(parser *p) {
    ht_jinja_node *all = node(p, HT_NODE_CONCATENATE), *first = parse_product(p);
    if (!is(p, "~")) return first;
    add_item(p, all, first);
    while (!p->a->status && skip(p, "~")) add_item(p, all, parse_product(p));
    return all;
}

static ht_jinja_node *parse_sum(parser *p) {
    static const char *const operators[] = {"+", "-", NULL};
    return parse_level(p, HT_NODE_BINARY, operators, parse_concatenation);
}

static bool is_comparison(const parser *p) {
    static const char *const operators[] = {"==", "!=", "<", "<=", ">", ">=", "in", NULL};
    return is_one_of(p, operators) ||
           (is(p, "not") && p->at[1].kind == HT_TOKEN_NAME && ht_jinja_string_is(p->at[1].text, "in"));
}

static ht_jinja_node *parse_comparison(parser *p) {
    ht_jinja_node *all = node(p, HT_NODE_COMPARE), *first = parse_sum(p);
    if (p->a->status || !is_comparison(p)) return first;
    all->a = first;
    while (!p->a->status && is_comparison(p)) {
        const ht_jinja_token *operator= p->at;
        advance(p);
        bool not_in = ht_jinja_string_is(operator->text, "not");
        if (not_in) advance(p);
        ht_jinja_node *right = parse_sum(p);
        add_item(p, all, binary(p, HT_NODE_BINARY, operator, NULL, right));
    }
    return all;
}

static ht_jinja_node *parse_not(parser *p) {
    if (!is(p, "not")) return parse_comparison(p);
    if (!enter(p)) return NULL;
    ht_jinja_node *n = node(p, HT_NODE_NOT);
    advance(p);
    n->a = parse_not(p);
    p->depth--;
    return n;
}

static ht_jinja_node *parse_and(parser *p) {
    static const char *const operators[] = {"and", NULL};
    return parse_level(p, HT_NODE_AND, operators, parse_not);
}

static ht_jinja_node *parse_or(parser *p) {
    static const char *const operators[] = {"or", NULL};
    if (!enter(p)) return NULL;
    ht_jinja_node *n = parse_level(p, HT_NODE_OR, operators, parse_and);
    p->depth--;
    return n;
}

static ht_jinja_node *parse_expression(parser *p) {
    if (!enter(p)) return NULL;
    /* A condition may guard an unknown filter or test, but its `if` comes last: parse as unsure first. */
    const ht_jinja_token *begin = p->at;
    p->unsure++;
    ht_jinja_node *n = parse_or(p);
    p->unsure--;
    if (!p->unsure && !p->a->status && !is(p, "if")) {
        p->at = begin;
        n = parse_or(p);
    }
    while (!p->a->status && is(p, "if")) {
        ht_jinja_node *condition = node(p, HT_NODE_CONDITION);
        advance(p);
        p->unsure++;
        condition->a = parse_or(p);
        condition->b = n;
        condition->c = skip(p, "else") ? parse_expression(p) : NULL;
        p->unsure--;
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

/* An assignment target: a name, an attribute of a namespace, or a tuple of both. */
static ht_jinja_node *parse_target(parser *p, bool with_namespace, const char *word) {
    ht_jinja_node *tuple = node(p, HT_NODE_TUPLE);
    bool is_tuple = false;
    if (!enter(p)) return NULL;
    while (!p->a->status) {
        if (tuple->n) expect(p, ",");
        if (p->a->status || tuple_ends(p, word) || is(p, "=")) break;
        ht_jinja_node *n = node(p, HT_NODE_NAME);
        if (skip(p, "(")) {
            n = parse_target(p, with_namespace, NULL);
            expect(p, ")");
        } else {
            const ht_jinja_string *name = expect_name(p, "the name of a variable");
            if (!name) return NULL;
            if (is_reserved(name)) ht_jinja_arena_fail(p->a, "%.20s cannot be assigned to", name->text);
            n->name = name;
            if (with_namespace && skip(p, ".")) {
                n->kind = HT_NODE_NAMESPACE;
                n->constant = ht_jinja_string_value(expect_name(p, "the name of an attribute"));
            }
        }
        add_item(p, tuple, n);
        if (!is(p, ",")) break;
        is_tuple = true;
    }
    p->depth--;
    if (p->a->status) return NULL;
    if (!is_tuple && tuple->n) return tuple->items[0];
    if (!tuple->n) unexpected(p, "the name of a variable");
    return tuple;
}

static void end_block(parser *p) { expect_kind(p, HT_TOKEN_BLOCK_END, "%}"); }

/* Parses the end of the current tag, then the body up to one of the words in `ends`, which is not consumed. */
static ht_jinja_node *parse_body(parser *p, const char *const *ends) {
    end_block(p);
    return parse_statements(p, ends);
}

/* The same up to the word `end`, which is consumed. */
static ht_jinja_node *parse_last_body(parser *p, const char *end) {
    const char *const ends[] = {end, NULL};
    ht_jinja_node *body = parse_body(p, ends);
    skip(p, end);
    return body;
}

static void parse_for(parser *p, ht_jinja_node *loop) {
    static const char *const ends[] = {"endfor", "else", NULL};
    loop->a = parse_target(p, false, "in");
    if (loop->a && loop->a->kind == HT_NODE_NAME && ht_jinja_string_is(loop->a->name, "loop"))
        ht_jinja_arena_fail(p->a, "loop cannot be the variable of a loop");
    if (!skip(p, "in")) unexpected(p, "in");
    loop->b = parse_tuple(p, false, false, "recursive");
    if (skip(p, "if")) loop->c = parse_expression(p);
    loop->flags = skip(p, "recursive");
    p->loops++;
    add_item(p, loop, parse_body(p, ends));
    p->loops--;
    if (!skip(p, "endfor") && skip(p, "else")) add_item(p, loop, parse_last_body(p, "endfor"));
}

static void parse_if(parser *p, ht_jinja_node *n) {
    static const char *const ends[] = {"elif", "else", "endif", NULL};
    if (!enter(p)) return;
    p->unsure++;
    n->a = parse_tuple(p, false, false, NULL);
    n->b = parse_body(p, ends);
    if (is(p, "elif")) {
        n->c = node(p, HT_NODE_IF);
        advance(p);
        parse_if(p, n->c);
    } else if (!skip(p, "endif") && skip(p, "else"))
        n->c = parse_last_body(p, "endif");
    p->unsure--;
    p->depth--;
}

static void parse_set(parser *p, ht_jinja_node *n) {
    n->a = parse_target(p, true, NULL);
    if (skip(p, "=")) {
        n->b = parse_tuple(p, true, false, NULL);
        return;
    }
    n->kind = HT_NODE_SET_BLOCK;
    if (skip(p, "|")) n->c = parse_filters(p, NULL);
    n->b = parse_last_body(p, "endset");
}

/* Parameters in parentheses, then the body of a macro or call block. Sets the HT_MACRO_ flags of the body. */
static void parse_signature(parser *p, ht_jinja_node *macro) {
    bool defaults = false;
    while (!p->a->status && !is(p, ")")) {
        if (macro->n) expect(p, ",");
        if (p->a->status) return;
        ht_jinja_node *parameter = node(p, HT_NODE_NAME);
        const ht_jinja_string *name = expect_name(p, "the name of a parameter");
        if (!name) return;
        parameter->name = name;
        for (size_t i = 0; i < macro->n; i++)
            if (!strcmp(macro->items[i]->name->text, name->text))
                ht_jinja_arena_fail(p->a, "the parameter %.60s occurs twice", name->text);
        if (skip(p, "=")) {
            parameter->a = parse_expression(p);
            defaults = true;
        } else if (defaults)
            ht_jinja_arena_fail(p->a, "a parameter without a default follows one with a default");
        if (ht_jinja_string_is(name, "caller") && !parameter->a)
            ht_jinja_arena_fail(p->a, "a parameter called caller needs a default");
        add_item(p, macro, parameter);
    }
    expect(p, ")");
}

static void parse_macro_body(parser *p, ht_jinja_node *macro, const char *end) {
    int mentions = p->mentions, loops = p->loops;
    p->mentions = p->loops = 0;
    macro->b = parse_last_body(p, end);
    macro->flags = p->mentions;
    p->mentions |= mentions;
    p->loops = loops;
}

static void parse_macro(parser *p, ht_jinja_node *macro) {
    macro->name = expect_name(p, "the name of a macro");
    expect(p, "(");
    parse_signature(p, macro);
    parse_macro_body(p, macro, "endmacro");
}

static void parse_call_block(parser *p, ht_jinja_node *n) {
    ht_jinja_node *caller = n->b = node(p, HT_NODE_MACRO);
    caller->name = ht_jinja_string_new(p->a, "caller", 6, false);
    if (skip(p, "(")) parse_signature(p, caller);
    n->a = parse_expression(p);
    if (n->a && n->a->kind != HT_NODE_CALL) {
        locate(p);
        ht_jinja_arena_fail(p->a, "a call block needs a call");
    }
    parse_macro_body(p, caller, "endcall");
}

static void parse_with(parser *p, ht_jinja_node *n) {
    while (!p->a->status && p->at->kind != HT_TOKEN_BLOCK_END) {
        if (n->n) expect(p, ",");
        ht_jinja_node *set = node(p, HT_NODE_SET);
        set->a = parse_target(p, false, NULL);
        expect(p, "=");
        set->b = parse_expression(p);
        add_item(p, n, set);
    }
    n->b = parse_last_body(p, "endwith");
}

static void parse_print(parser *p, ht_jinja_node *n) { n->a = parse_tuple(p, true, false, NULL); }

static void parse_filter_block(parser *p, ht_jinja_node *n) {
    n->a = parse_filters(p, NULL);
    n->b = parse_last_body(p, "endfilter");
}

static void parse_generation(parser *p, ht_jinja_node *n) { n->b = parse_last_body(p, "endgeneration"); }

static void parse_break(parser *p, ht_jinja_node *n) {
    if (!p->loops) ht_jinja_arena_fail(p->a, "%.10s outside of a loop", n->name->text);
}

/* Statements that need other files or settings: parsed to their end, an error when they are executed. */
static void parse_refused(parser *p, ht_jinja_node *n) {
    ht_jinja_builder why = {.arena = p->a};
    ht_jinja_put_text(&why, "a template of a chat cannot have {% ");
    ht_jinja_put_string(&why, n->name);
    ht_jinja_put_text(&why, " %}");
    n->constant = ht_jinja_string_value(ht_jinja_built(&why));
    while (!p->a->status && p->at->kind != HT_TOKEN_BLOCK_END && p->at->kind != HT_TOKEN_END) advance(p);
}

static ht_jinja_node *parse_statement(parser *p) {
    static const struct {
        const char *tag;
        ht_jinja_node_kind kind;
        void (*parse)(parser *p, ht_jinja_node *n);
    } statements[] = {
        {"if", HT_NODE_IF, parse_if},
        {"for", HT_NODE_FOR, parse_for},
        {"set", HT_NODE_SET, parse_set},
        {"macro", HT_NODE_MACRO, parse_macro},
        {"call", HT_NODE_CALL_BLOCK, parse_call_block},
        {"with", HT_NODE_WITH, parse_with},
        {"print", HT_NODE_PRINT, parse_print},
        {"filter", HT_NODE_FILTER_BLOCK, parse_filter_block},
        {"generation", HT_NODE_SCOPE, parse_generation},
        {"break", HT_NODE_BREAK, parse_break},
        {"continue", HT_NODE_CONTINUE, parse_break},
        {"include", HT_NODE_REFUSED, parse_refused},
        {"import", HT_NODE_REFUSED, parse_refused},
        {"from", HT_NODE_REFUSED, parse_refused},
        {"extends", HT_NODE_REFUSED, parse_refused},
    };
    ht_jinja_node *n = node(p, HT_NODE_IF);
    n->name = expect_name(p, "the name of a tag");
    for (size_t i = 0; n->name && i < sizeof statements / sizeof *statements; i++) {
        if (!ht_jinja_string_is(n->name, statements[i].tag)) continue;
        n->kind = statements[i].kind;
        statements[i].parse(p, n);
        return n;
    }
    if (n->name) ht_jinja_arena_fail(p->a, "there is no tag '%.60s'", n->name->text);
    return NULL;
}

/* Parses up to a tag that begins with one of the words, which is then the next token. NULL: up to the end. */
static ht_jinja_node *parse_statements(parser *p, const char *const *ends) {
    ht_jinja_node *body = node(p, HT_NODE_BODY);
    if (!enter(p)) return NULL;
    while (!p->a->status) {
        ht_jinja_node *n = NULL;
        if (p->at->kind == HT_TOKEN_END) {
            while (ends && ends[1]) ends++; /* the last word is the required tag */
            if (ends) unexpected(p, *ends);
            break;
        }
        if (p->at->kind == HT_TOKEN_TEXT) {
            n = node(p, HT_NODE_TEXT);
            n->constant = ht_jinja_string_value(p->at->text);
            advance(p);
        } else if (p->at->kind == HT_TOKEN_PRINT_BEGIN) {
            n = node(p, HT_NODE_PRINT);
            advance(p);
            parse_print(p, n);
            expect_kind(p, HT_TOKEN_PRINT_END, "}}");
        } else {
            expect_kind(p, HT_TOKEN_BLOCK_BEGIN, "{%");
            if (ends && is_one_of(p, ends)) break;
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
