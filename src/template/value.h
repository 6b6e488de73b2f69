/* Values of template expressions, with the semantics of Python's values in jinja2.
 *
 * All values of a program or a rendering are in one arena of limited size and are freed with it. Errors are sticky:
 * after the first one, functions do nothing and return undefined values, so that callers check once.
 *
 * A string records for each byte whether it came from the inputs (a message's content, a tool's description) or from
 * the template, through slices, joins and replacements. Only the template's bytes may form special tokens. */
#ifndef HT_TEMPLATE_VALUE_H
#define HT_TEMPLATE_VALUE_H

#include "base/arena.h"
#include "base/text.h"

#include <hearth/status.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* ---- arena ---- */

/* Memory and the first failure of a program or a rendering. One thread at a time. */
typedef struct ht_jinja_arena {
    ht_arena memory;
    size_t limit;            /* bytes of it */
    int64_t work, most_work; /* steps of rendering, about as much as an operator or 64 bytes; most_work 0: any number */
    const char *name;        /* of the template, for messages */
    int line, column;        /* position that is being parsed or evaluated, from 1; line 0: no template */
    ht_status status;
    ht_error *err;
} ht_jinja_arena;

/* 16-byte aligned, zeroed; NULL after a failure, of this call or before. */
void *ht_jinja_arena_alloc(ht_jinja_arena *a, size_t bytes);
/* An array of n items of `size` bytes that may take one more: the same array, or a larger copy. NULL as above. */
void *ht_jinja_arena_grow(ht_jinja_arena *a, void *items, size_t n, size_t size, size_t *capacity);
void ht_jinja_arena_free(ht_jinja_arena *a);
/* Counts n steps of work; false after a failure, the one about too many steps included. */
bool ht_jinja_work(ht_jinja_arena *a, size_t n);
/* Keeps the first failure, with the template's name, line and column before the sentence. */
void ht_jinja_arena_fail(ht_jinja_arena *a, const char *fmt, ...) HT_PRINTF(2, 3);
/* The same with a given status, for limits (HT_ERR_LIMIT) and memory. */
void ht_jinja_arena_fail_as(ht_jinja_arena *a, ht_status status, const char *fmt, ...) HT_PRINTF(3, 4);

/* ---- values ---- */

typedef enum ht_jinja_value_kind {
    HT_VALUE_UNDEFINED, /* `string`: what is undefined, for messages; may be NULL */
    HT_VALUE_NONE,
    HT_VALUE_BOOL,
    HT_VALUE_INT,
    HT_VALUE_BIG, /* an integer of the inputs beyond 64 bits: `string` is its text */
    HT_VALUE_FLOAT,
    HT_VALUE_STRING,
    HT_VALUE_LIST,
    HT_VALUE_TUPLE,
    HT_VALUE_DICT,
    HT_VALUE_VIEW,     /* keys, values or items of a dict, as a list */
    HT_VALUE_RANGE,    /* as a list */
    HT_VALUE_ITERATOR, /* of a list, at its next item: the result of filters such as map */
    HT_VALUE_NAMESPACE,
    HT_VALUE_MACRO,
    HT_VALUE_FUNCTION,
    HT_VALUE_LOOP
} ht_jinja_value_kind;

typedef struct ht_jinja_string ht_jinja_string;
typedef struct ht_jinja_list ht_jinja_list;
typedef struct ht_jinja_dict ht_jinja_dict;

typedef struct ht_jinja_value {
    ht_jinja_value_kind kind;
    bool markup;     /* a string that is safe HTML (jinja2's Markup) */
    const char *how; /* of a view: "dict_items"; of an iterator, its name in Python */
    union {
        bool boolean;
        int64_t integer;
        double real;
        const ht_jinja_string *string;
        ht_jinja_list *list; /* of a tuple, view, range and iterator, too */
        ht_jinja_dict *dict; /* of a namespace, too */
        void *object;        /* of a macro, function and loop: eval.h's */
    };
} ht_jinja_value;

struct ht_jinja_string {
    size_t n, chars; /* bytes, code points */
    const ht_text_run *runs;
    size_t n_runs; /* 0: an empty string */
    char text[];   /* valid UTF-8 and a NUL */
};

struct ht_jinja_list {
    ht_jinja_value *items;
    size_t n, capacity;
    size_t next; /* of an iterator */
};

/* In the order of insertion; looked up by hash. The slots lie in the arena, unlike those of base/table.h. */
struct ht_jinja_dict {
    ht_jinja_value *keys, *values;
    size_t n, keys_capacity, values_capacity;
    uint32_t *slots; /* [n_slots] of index + 1; 0: free */
    size_t n_slots;
};

static inline ht_jinja_value ht_jinja_none(void) { return (ht_jinja_value){.kind = HT_VALUE_NONE}; }
static inline ht_jinja_value ht_jinja_undefined(void) { return (ht_jinja_value){.kind = HT_VALUE_UNDEFINED}; }
static inline ht_jinja_value ht_jinja_boolean(bool b) { return (ht_jinja_value){.kind = HT_VALUE_BOOL, .boolean = b}; }
static inline ht_jinja_value ht_jinja_integer(int64_t i) {
    return (ht_jinja_value){.kind = HT_VALUE_INT, .integer = i};
}
static inline ht_jinja_value ht_jinja_real(double x) { return (ht_jinja_value){.kind = HT_VALUE_FLOAT, .real = x}; }
static inline ht_jinja_value ht_jinja_string_value(const ht_jinja_string *s) {
    return s ? (ht_jinja_value){.kind = HT_VALUE_STRING, .string = s} : ht_jinja_undefined();
}
/* A string made of `v`, which stays markup. */
static inline ht_jinja_value ht_jinja_like(ht_jinja_value v, const ht_jinja_string *s) {
    return s ? (ht_jinja_value){.kind = HT_VALUE_STRING, .markup = v.markup, .string = s} : ht_jinja_undefined();
}
static inline ht_jinja_value ht_jinja_list_value(ht_jinja_value_kind kind, ht_jinja_list *list) {
    return list ? (ht_jinja_value){.kind = kind, .list = list} : ht_jinja_undefined();
}
/* An undefined value with a name for messages: "'x' is undefined". */
ht_jinja_value ht_jinja_undefined_because(ht_jinja_arena *a, const char *fmt, ...) HT_PRINTF(2, 3);

static inline bool ht_jinja_is_string(ht_jinja_value v) { return v.kind == HT_VALUE_STRING; }
static inline bool ht_jinja_is_number(ht_jinja_value v) {
    return v.kind == HT_VALUE_BOOL || v.kind == HT_VALUE_INT || v.kind == HT_VALUE_FLOAT || v.kind == HT_VALUE_BIG;
}
/* An int or a bool as an int; false for other values. */
bool ht_jinja_as_integer(ht_jinja_value v, int64_t *out);
double ht_jinja_as_real(ht_jinja_value v); /* of a number */

/* The name of the value's type in Python: "str", "dict_items". */
const char *ht_jinja_type_name(ht_jinja_value v);
bool ht_jinja_truth(ht_jinja_value v);
/* `==`: numbers of all types by value, sequences by items, others by identity. */
bool ht_jinja_equal(ht_jinja_arena *a, ht_jinja_value x, ht_jinja_value y);
/* -1, 0 or 1 by Python's order; a failure for types without an order. */
int ht_jinja_order(ht_jinja_arena *a, ht_jinja_value x, ht_jinja_value y);
/* The number of items or code points; false for values without a length. */
bool ht_jinja_length(ht_jinja_value v, size_t *n);

/* ---- strings ---- */

/* Builds a string out of pieces. A failure of the arena makes the rest do nothing. */
typedef struct ht_jinja_builder {
    ht_jinja_arena *arena;
    ht_jinja_string *string; /* that becomes the result */
    char *text;              /* its text */
    size_t n, capacity, chars;
    ht_text_run *runs;
    size_t n_runs, runs_capacity;
} ht_jinja_builder;

void ht_jinja_put(ht_jinja_builder *b, const void *bytes, size_t n, bool input);
void ht_jinja_reserve(ht_jinja_builder *b, size_t n);          /* for n bytes that will be put */
void ht_jinja_put_text(ht_jinja_builder *b, const char *text); /* the template's */
/* Bytes [from, to) of a string, with their origins. */
void ht_jinja_put_span(ht_jinja_builder *b, const ht_jinja_string *s, size_t from, size_t to);
void ht_jinja_put_string(ht_jinja_builder *b, const ht_jinja_string *s);
void ht_jinja_put_code_point(ht_jinja_builder *b, uint32_t c, bool input);
/* NULL after a failure. Nothing more may be put. */
const ht_jinja_string *ht_jinja_built(ht_jinja_builder *b);

const ht_jinja_string *ht_jinja_string_new(ht_jinja_arena *a, const char *text, size_t n, bool input);
const ht_jinja_string *ht_jinja_string_span(ht_jinja_arena *a, const ht_jinja_string *s, size_t from, size_t to);
ht_jinja_value ht_jinja_text_value(ht_jinja_arena *a, const char *text); /* the template's */
bool ht_jinja_string_is(const ht_jinja_string *s, const char *text);
/* Whether a byte came from the inputs. */
bool ht_jinja_string_input_at(const ht_jinja_string *s, size_t at);
/* The byte where code point i begins, 0 <= i <= chars. */
size_t ht_jinja_string_offset(const ht_jinja_string *s, size_t i);
/* The code point at byte `at` < n; *at moves past it. */
uint32_t ht_jinja_string_next(const ht_jinja_string *s, size_t *at);
/* Python's str.isspace of a code point, which is what str.strip strips. */
bool ht_jinja_is_space(uint32_t c);

/* str(v) and repr(v). */
const ht_jinja_string *ht_jinja_to_string(ht_jinja_arena *a, ht_jinja_value v);
void ht_jinja_put_value(ht_jinja_builder *b, ht_jinja_value v);
void ht_jinja_put_repr(ht_jinja_builder *b, ht_jinja_value v);
/* The shortest text that reads as x again, as Python writes it. */
void ht_jinja_format_real(double x, char out[64]);

/* ---- lists and dicts ---- */

ht_jinja_list *ht_jinja_list_new(ht_jinja_arena *a, size_t capacity);
void ht_jinja_list_append(ht_jinja_arena *a, ht_jinja_list *list, ht_jinja_value v);
ht_jinja_value ht_jinja_pair(ht_jinja_arena *a, ht_jinja_value x, ht_jinja_value y); /* a tuple */
/* The items of anything that can be iterated over; an iterator's are used up. None and a failure for other values. */
ht_jinja_list *ht_jinja_items(ht_jinja_arena *a, ht_jinja_value v);

ht_jinja_dict *ht_jinja_dict_new(ht_jinja_arena *a);
/* NULL when the key is absent; a failure when it cannot be a key. */
ht_jinja_value *ht_jinja_dict_find(ht_jinja_arena *a, const ht_jinja_dict *d, ht_jinja_value key);
ht_jinja_value *ht_jinja_dict_find_text(const ht_jinja_dict *d, const char *key, size_t n);
void ht_jinja_dict_set(ht_jinja_arena *a, ht_jinja_dict *d, ht_jinja_value key, ht_jinja_value v);
void ht_jinja_dict_set_text(ht_jinja_arena *a, ht_jinja_dict *d, const char *key, ht_jinja_value v);
bool ht_jinja_dict_remove(ht_jinja_arena *a, ht_jinja_dict *d, ht_jinja_value key);
/* Copies a value of JSON types, with new lists and dicts in `a`; strings are shared with the original. */
ht_jinja_value ht_jinja_copy(ht_jinja_arena *a, ht_jinja_value v);

#endif
