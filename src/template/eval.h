/* Rendering: evaluates a program's tree within limits. The built-in filters, tests, methods and functions are tables
 * that follow the documentation of jinja2 and Python. */
#ifndef HT_TEMPLATE_EVAL_H
#define HT_TEMPLATE_EVAL_H

#include "formats/json_value.h"
#include "template/program.h"

typedef struct ht_jinja_scope {
    struct ht_jinja_scope *parent;
    ht_jinja_dict *names;
} ht_jinja_scope;

typedef struct ht_jinja_rendering {
    ht_jinja_arena *a;
    ht_jinja_scope *scope;
    ht_jinja_builder *out;
    size_t output_limit;
    int depth;
    bool breaks, continues; /* a break or continue of the innermost loop is pending */
    int64_t now;            /* seconds since 1970, for strftime_now */
} ht_jinja_rendering;

enum { HT_RENDERING_DEPTH = 600, HT_RANGE_MAX = 100000 /* as jinja2's sandbox */ };

/* The arguments of a call, evaluated. */
typedef struct ht_jinja_arguments {
    ht_jinja_value *positional;
    size_t n;
    ht_jinja_dict *named; /* NULL: none */
} ht_jinja_arguments;

/* A filter, test, method or function. `parameters` names them in order with spaces between, the first `required` of which a
 * call must give; `with` has one pointer for each, NULL where nothing was given. "*": any arguments, in `all` alone. */
typedef struct ht_jinja_builtin {
    const char *name, *parameters;
    int required;
    ht_jinja_value (*call)(ht_jinja_rendering *r, ht_jinja_value v, const ht_jinja_value *const *with,
                           const ht_jinja_arguments *all, char how);
    char how; /* which of the builtins that share `call` */
} ht_jinja_builtin;

enum { HT_PARAMETERS_MAX = 8 };

/* The head of a builtin's function, which may leave arguments unused. `v`: the value of a filter or test, or of a method. */
#define HT_UNUSED __attribute__((unused))
#define HT_BUILTIN(name)                                                                                               \
    static ht_jinja_value name(HT_UNUSED ht_jinja_rendering *r, HT_UNUSED ht_jinja_value v,                            \
                               HT_UNUSED const ht_jinja_value *const *with, HT_UNUSED const ht_jinja_arguments *all,   \
                               HT_UNUSED char how)

/* A builtin bound to its value: a method, or a function without one. */
typedef struct ht_jinja_function {
    const ht_jinja_builtin *builtin;
    ht_jinja_value self;
} ht_jinja_function;

typedef struct ht_jinja_macro {
    const ht_jinja_node *node;
    ht_jinja_scope *scope; /* it was defined in */
} ht_jinja_macro;

typedef struct ht_jinja_loop {
    const ht_jinja_node *node;
    ht_jinja_scope *scope; /* around the loop */
    ht_jinja_list *source;
    size_t next;    /* in `source` */
    int64_t index0; /* of the current item among those that pass the loop's test */
    ht_jinja_value before, current, after;
    bool has_after, ended; /* `after` is set; there are no more items */
    int depth0;
    ht_jinja_list *last_changed;
} ht_jinja_loop;

/* eval.c: expressions, calls and statements. */
ht_jinja_value ht_jinja_evaluate(ht_jinja_rendering *r, const ht_jinja_node *n);
void ht_jinja_execute(ht_jinja_rendering *r, const ht_jinja_node *n);
ht_jinja_value ht_jinja_call_builtin(ht_jinja_rendering *r, const ht_jinja_builtin *b, ht_jinja_value self,
                                     const ht_jinja_arguments *all);
ht_jinja_value ht_jinja_loop_attribute(ht_jinja_rendering *r, ht_jinja_loop *loop, const char *name);
/* ht_jinja_work of the rendering's arena. */
bool ht_jinja_step(ht_jinja_rendering *r, size_t n);
/* ht_jinja_arena_fail of the rendering's arena; an undefined value. */
ht_jinja_value ht_jinja_fail(ht_jinja_rendering *r, const char *fmt, ...) HT_PRINTF(2, 3);
/* An optional argument: whether it is given and true; whether it is given and not None. */
static inline bool ht_jinja_flag(const ht_jinja_value *v) { return v && ht_jinja_truth(*v); }
static inline bool ht_jinja_given(const ht_jinja_value *v) { return v && v->kind != HT_VALUE_NONE; }

/* operators.c */
ht_jinja_value ht_jinja_binary(ht_jinja_rendering *r, const char *operator, ht_jinja_value x, ht_jinja_value y);
bool ht_jinja_contains(ht_jinja_rendering *r, ht_jinja_value container, ht_jinja_value item);
ht_jinja_value ht_jinja_attribute(ht_jinja_rendering *r, ht_jinja_value v, const ht_jinja_string *name);
ht_jinja_value ht_jinja_item(ht_jinja_rendering *r, ht_jinja_value v, ht_jinja_value key);
ht_jinja_value ht_jinja_slice(ht_jinja_rendering *r, ht_jinja_value v, ht_jinja_value begin, ht_jinja_value end,
                              ht_jinja_value step);
/* `v` with the HTML characters replaced, as markup. */
ht_jinja_value ht_jinja_escape(ht_jinja_rendering *r, ht_jinja_value v);
/* Fails for an undefined value, saying which; true when it did. */
bool ht_jinja_refuse_undefined(ht_jinja_rendering *r, ht_jinja_value v);
/* Looks up a filter's attribute path, such as "users.0.name". `otherwise`, if not NULL, replaces an undefined value. */
ht_jinja_value ht_jinja_path(ht_jinja_rendering *r, ht_jinja_value v, ht_jinja_value path,
                             const ht_jinja_value *otherwise);

/* methods.c, filters.c, tests.c: the row of a name; NULL when there is none. */
const ht_jinja_builtin *ht_jinja_method_of(ht_jinja_value v, const char *name, size_t n);
/* Whether `name` is a method that would modify the list or dict. Such methods are undefined in templates. */
bool ht_jinja_modifies(ht_jinja_value v, const ht_jinja_string *name);
const ht_jinja_builtin *ht_jinja_filter_of(const ht_jinja_string *name);
const ht_jinja_builtin *ht_jinja_test_of(const ht_jinja_string *name);
/* str.isupper or str.islower: at least one cased character, and all cased characters have this case. */
bool ht_jinja_has_case(const ht_jinja_string *s, bool upper);
const ht_jinja_builtin *ht_jinja_function_of(const char *name, size_t n);
const ht_jinja_builtin *ht_jinja_builtin_in(const ht_jinja_builtin *table, const char *name, size_t n);
ht_jinja_value ht_jinja_method_value(ht_jinja_rendering *r, const ht_jinja_builtin *b, ht_jinja_value self);
/* Splits as str.split: `separator` NULL for white space, at most `most` times when it is not negative. */
ht_jinja_list *ht_jinja_split(ht_jinja_rendering *r, const ht_jinja_string *s, const ht_jinja_string *separator,
                              int64_t most, bool from_right);
/* str.strip: of the characters of `set`, or white space when it is NULL. */
const ht_jinja_string *ht_jinja_strip(ht_jinja_rendering *r, const ht_jinja_string *s, const ht_jinja_string *set,
                                      bool left, bool right);
const ht_jinja_string *ht_jinja_replace(ht_jinja_rendering *r, const ht_jinja_string *s, const ht_jinja_string *what,
                                        const ht_jinja_string *with, int64_t most);
ht_jinja_value ht_jinja_join(ht_jinja_rendering *r, ht_jinja_value separator, const ht_jinja_list *items);
/* Changes case: 'u'pper, 'l'ower, 't'itle, 'c'apitalize, 's'wap. */
const ht_jinja_string *ht_jinja_change_case(ht_jinja_rendering *r, const ht_jinja_string *s, char how);
typedef struct ht_jinja_sorting {
    const ht_jinja_value *attribute, *otherwise; /* as in ht_jinja_path; attribute NULL: the items themselves */
    bool ignores_case, reverse;
} ht_jinja_sorting;
void ht_jinja_sort(ht_jinja_rendering *r, ht_jinja_list *list, const ht_jinja_sorting *by); /* stable; NULL is fine */
/* The keys of a dict with their values, as tuples. */
ht_jinja_list *ht_jinja_pairs(ht_jinja_rendering *r, const ht_jinja_dict *d);
/* A line end of str.splitlines. */
bool ht_jinja_breaks_line(uint32_t c);

/* format.c: str % values, and str.format. */
ht_jinja_value ht_jinja_format_percent(ht_jinja_rendering *r, ht_jinja_value format, ht_jinja_value values);
ht_jinja_value ht_jinja_format_braces(ht_jinja_rendering *r, ht_jinja_value format, const ht_jinja_arguments *all);

/* json.c */
/* The value of a JSON text; its strings are inputs. Repeated fields are errors. Errors begin with `name`. */
ht_jinja_value ht_jinja_json_value(ht_jinja_arena *a, const char *text, size_t n, const char *name);
/* Converts a JSON value; its strings are inputs. */
ht_jinja_value ht_jinja_of_json(ht_jinja_arena *a, const ht_json *v);
/* The same by the rules of Python's json.loads, for texts from models and templates. */
ht_jinja_value ht_jinja_json_loads(ht_jinja_arena *a, const char *text, size_t n, const char *name);
/* json.dumps; `indent` NULL for one line. */
const ht_jinja_string *ht_jinja_json_text(ht_jinja_rendering *r, ht_jinja_value v, const ht_jinja_string *indent,
                                          const ht_jinja_string *item_separator, const ht_jinja_string *key_separator,
                                          bool sort_keys, bool ascii);

#endif
