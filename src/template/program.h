/* Programs: a template's text as a tree, made by lexer.c and parser.c and walked by eval.c.
 *
 * The language is jinja2's as chat templates are run: trim_blocks, lstrip_blocks, loop controls and `generation` blocks.
 * Grammar and white space: the jinja2 documentation ("Template Designer Documentation"). */
#ifndef HT_TEMPLATE_PROGRAM_H
#define HT_TEMPLATE_PROGRAM_H

#include "template/value.h"

/* ---- tokens ---- */

typedef enum ht_jinja_token_kind {
    HT_TOKEN_TEXT, /* between the tags */
    HT_TOKEN_PRINT_BEGIN,
    HT_TOKEN_PRINT_END,
    HT_TOKEN_BLOCK_BEGIN,
    HT_TOKEN_BLOCK_END,
    HT_TOKEN_NAME,
    HT_TOKEN_CONSTANT, /* a string or number */
    HT_TOKEN_OPERATOR,
    HT_TOKEN_END
} ht_jinja_token_kind;

typedef struct ht_jinja_token {
    ht_jinja_token_kind kind;
    int line, column;
    const ht_jinja_string *text; /* of a text, name or operator */
    ht_jinja_value constant;
} ht_jinja_token;

/* The tokens of a template, ended by HT_TOKEN_END; NULL after a failure. */
ht_jinja_token *ht_jinja_tokens(ht_jinja_arena *a, const char *source, size_t n);

/* ---- tree ---- */

typedef enum ht_jinja_node_kind {
    /* expressions */
    HT_NODE_CONSTANT,  /* constant */
    HT_NODE_NAME,      /* name */
    HT_NODE_TUPLE,     /* items */
    HT_NODE_LIST,      /* items */
    HT_NODE_DICT,      /* items: key, value, key ... */
    HT_NODE_ATTRIBUTE, /* a.name */
    HT_NODE_ITEM,      /* a[b] */
    HT_NODE_SLICE,     /* a:b:c, each may be NULL */
    HT_NODE_CALL,      /* a(items) */
    HT_NODE_FILTER,    /* a | name(items); a is NULL in a filter block */
    HT_NODE_TEST,      /* a is name(items) */
    HT_NODE_CONDITION, /* b if a else c; c may be NULL */
    HT_NODE_AND,
    HT_NODE_OR,
    HT_NODE_NOT,
    HT_NODE_COMPARE, /* a, then HT_NODE_BINARY items of an operator and a right side */
    HT_NODE_BINARY,  /* a name b */
    HT_NODE_NEGATE,
    HT_NODE_PLUS,
    HT_NODE_CONCATENATE, /* items */
    HT_NODE_KEYWORD,     /* name = a, in items of a call */
    HT_NODE_STAR,        /* *a, in items of a call */
    HT_NODE_STAR_STAR,   /* **a */
    HT_NODE_NAMESPACE,   /* name.constant, as a target */
    /* statements */
    HT_NODE_BODY,         /* items */
    HT_NODE_TEXT,         /* constant */
    HT_NODE_PRINT,        /* a */
    HT_NODE_IF,           /* if a then b else c */
    HT_NODE_FOR,          /* for a in b if c: items[0] else items[1]; flag: recursive */
    HT_NODE_SET,          /* a = b */
    HT_NODE_SET_BLOCK,    /* a = body b through filter c */
    HT_NODE_MACRO,        /* name, items of parameters: a name and perhaps a default a; body b */
    HT_NODE_CALL_BLOCK,   /* call a with the body of macro b */
    HT_NODE_FILTER_BLOCK, /* filter a over body b */
    HT_NODE_WITH,         /* items of a = b, then body b */
    HT_NODE_SCOPE,        /* body b in a new scope */
    HT_NODE_BREAK,
    HT_NODE_CONTINUE,
    HT_NODE_REFUSED /* constant: why; a failure when it is reached */
} ht_jinja_node_kind;

/* Special names in a macro's body; a call may pass only these. */
enum { HT_MACRO_VARARGS = 1, HT_MACRO_KWARGS = 2, HT_MACRO_CALLER = 4 };

typedef struct ht_jinja_node {
    ht_jinja_node_kind kind;
    int line, column;
    int flags;                   /* a macro's, or 1 for a recursive loop */
    const ht_jinja_string *name; /* or an operator */
    ht_jinja_value constant;
    struct ht_jinja_node *a, *b, *c;
    struct ht_jinja_node **items;
    size_t n, capacity;
} ht_jinja_node;

enum { HT_TEMPLATE_NESTING = 100 }; /* of expressions and statements, at most */

/* The tree of a template; NULL after a failure. */
ht_jinja_node *ht_jinja_parse(ht_jinja_arena *a, const char *source, size_t n);

#endif
