/* Tests (`value is test`) and the functions available to every template. */
#include "template/eval.h"

#include <string.h>
#include <time.h>
#include <utf8proc.h>

#define IS(name, condition)                                                                                            \
    HT_BUILTIN(name) { return ht_jinja_boolean(condition); }

/* ---- tests ---- */

static bool is_sequence(ht_jinja_value v) {
    return v.kind == HT_VALUE_UNDEFINED || v.kind == HT_VALUE_STRING || v.kind == HT_VALUE_LIST ||
           v.kind == HT_VALUE_TUPLE || v.kind == HT_VALUE_DICT || v.kind == HT_VALUE_RANGE;
}

static bool is_iterable(ht_jinja_value v) {
    return is_sequence(v) || v.kind == HT_VALUE_VIEW || v.kind == HT_VALUE_ITERATOR || v.kind == HT_VALUE_LOOP;
}

IS(is_defined, v.kind != HT_VALUE_UNDEFINED)
IS(is_undefined, v.kind == HT_VALUE_UNDEFINED)
IS(is_none, v.kind == HT_VALUE_NONE)
IS(is_boolean, v.kind == HT_VALUE_BOOL)
IS(is_true, v.kind == HT_VALUE_BOOL && v.boolean)
IS(is_false, v.kind == HT_VALUE_BOOL && !v.boolean)
IS(is_integer, v.kind == HT_VALUE_INT || v.kind == HT_VALUE_BIG)
IS(is_float, v.kind == HT_VALUE_FLOAT)
IS(is_number, ht_jinja_is_number(v))
IS(is_text, v.kind == HT_VALUE_STRING)
IS(is_mapping, v.kind == HT_VALUE_DICT)
IS(is_any_sequence, is_sequence(v))
IS(is_any_iterable, is_iterable(v))
IS(is_callable,
   v.kind == HT_VALUE_MACRO || v.kind == HT_VALUE_FUNCTION || v.kind == HT_VALUE_LOOP || v.kind == HT_VALUE_UNDEFINED)
IS(is_escaped, v.kind == HT_VALUE_STRING && v.markup)
IS(is_filter, ht_jinja_is_string(v) && ht_jinja_filter_of(v.string))
IS(is_test, ht_jinja_is_string(v) && ht_jinja_test_of(v.string))
IS(is_equal, ht_jinja_equal(r->a, v, *with[0]))
IS(is_unequal, !ht_jinja_equal(r->a, v, *with[0]))
IS(is_in, ht_jinja_contains(r, *with[0], v))

/* Python's `is`. Integers and strings compare by value, as Python shares small ones; other objects by identity. */
HT_BUILTIN(is_same) {
    ht_jinja_value w = *with[0];
    if (v.kind != w.kind) return ht_jinja_boolean(false);
    if (v.kind == HT_VALUE_NONE) return ht_jinja_boolean(true);
    if (v.kind == HT_VALUE_BOOL) return ht_jinja_boolean(v.boolean == w.boolean);
    if (v.kind == HT_VALUE_INT || v.kind == HT_VALUE_STRING) return ht_jinja_boolean(ht_jinja_equal(r->a, v, w));
    return ht_jinja_boolean(v.kind != HT_VALUE_FLOAT && v.object == w.object);
}

static int order(ht_jinja_rendering *r, ht_jinja_value v, ht_jinja_value w) {
    return ht_jinja_refuse_undefined(r, v) || ht_jinja_refuse_undefined(r, w) ? 0 : ht_jinja_order(r->a, v, w);
}

IS(is_less, order(r, v, *with[0]) < 0)
IS(is_at_most, order(r, v, *with[0]) <= 0)
IS(is_greater, order(r, v, *with[0]) > 0)
IS(is_at_least, order(r, v, *with[0]) >= 0)

static double remainder_by(ht_jinja_rendering *r, ht_jinja_value v, ht_jinja_value by) {
    ht_jinja_value rest = ht_jinja_binary(r, "%", v, by);
    return ht_jinja_is_number(rest) ? ht_jinja_as_real(rest) : 0;
}

IS(is_odd, remainder_by(r, v, ht_jinja_integer(2)) == 1)
IS(is_even, remainder_by(r, v, ht_jinja_integer(2)) == 0)
IS(is_divisible, remainder_by(r, v, *with[0]) == 0)

bool ht_jinja_has_case(const ht_jinja_string *s, bool upper) {
    bool any = false;
    for (size_t at = 0; s && at < s->n;) {
        utf8proc_category_t c = utf8proc_category((utf8proc_int32_t)ht_jinja_string_next(s, &at));
        if (c == UTF8PROC_CATEGORY_LT || c == (upper ? UTF8PROC_CATEGORY_LL : UTF8PROC_CATEGORY_LU)) return false;
        any = any || c == (upper ? UTF8PROC_CATEGORY_LU : UTF8PROC_CATEGORY_LL);
    }
    return any;
}

IS(is_lower, ht_jinja_has_case(ht_jinja_to_string(r->a, v), false))
IS(is_upper, ht_jinja_has_case(ht_jinja_to_string(r->a, v), true))

static const ht_jinja_builtin tests[] = {
    {"defined", "", 0, is_defined, 0},
    {"undefined", "", 0, is_undefined, 0},
    {"none", "", 0, is_none, 0},
    {"boolean", "", 0, is_boolean, 0},
    {"true", "", 0, is_true, 0},
    {"false", "", 0, is_false, 0},
    {"integer", "", 0, is_integer, 0},
    {"float", "", 0, is_float, 0},
    {"number", "", 0, is_number, 0},
    {"string", "", 0, is_text, 0},
    {"mapping", "", 0, is_mapping, 0},
    {"sequence", "", 0, is_any_sequence, 0},
    {"iterable", "", 0, is_any_iterable, 0},
    {"callable", "", 0, is_callable, 0},
    {"escaped", "", 0, is_escaped, 0},
    {"filter", "", 0, is_filter, 0},
    {"test", "", 0, is_test, 0},
    {"odd", "", 0, is_odd, 0},
    {"even", "", 0, is_even, 0},
    {"divisibleby", "num", 1, is_divisible, 0},
    {"sameas", "other", 1, is_same, 0},
    {"in", "seq", 1, is_in, 0},
    {"lower", "", 0, is_lower, 0},
    {"upper", "", 0, is_upper, 0},
    {"eq", "other", 1, is_equal, 0},
    {"equalto", "other", 1, is_equal, 0},
    {"==", "other", 1, is_equal, 0},
    {"ne", "other", 1, is_unequal, 0},
    {"!=", "other", 1, is_unequal, 0},
    {"lt", "other", 1, is_less, 0},
    {"lessthan", "other", 1, is_less, 0},
    {"<", "other", 1, is_less, 0},
    {"le", "other", 1, is_at_most, 0},
    {"<=", "other", 1, is_at_most, 0},
    {"gt", "other", 1, is_greater, 0},
    {"greaterthan", "other", 1, is_greater, 0},
    {">", "other", 1, is_greater, 0},
    {"ge", "other", 1, is_at_least, 0},
    {">=", "other", 1, is_at_least, 0},
    {NULL, NULL, 0, NULL, 0},
};

const ht_jinja_builtin *ht_jinja_builtin_in(const ht_jinja_builtin *table, const char *name, size_t n) {
    for (; table->name; table++)
        if (strlen(table->name) == n && !memcmp(table->name, name, n)) return table;
    return NULL;
}

const ht_jinja_builtin *ht_jinja_test_of(const ht_jinja_string *name) {
    return ht_jinja_builtin_in(tests, name->text, name->n);
}

/* ---- functions ---- */

HT_BUILTIN(range_of) {
    int64_t number[3] = {0, 0, 1};
    if (all->n < 1 || all->n > 3 || all->named) return ht_jinja_fail(r, "range takes one to three numbers");
    for (size_t i = 0; i < all->n; i++)
        if (!ht_jinja_as_integer(all->positional[i], &number[all->n == 1 ? 1 : i]))
            return ht_jinja_fail(r, "range takes integers, not %s", ht_jinja_type_name(all->positional[i]));
    if (!number[2]) return ht_jinja_fail(r, "range() arg 3 must not be zero");
    ht_jinja_list *list = ht_jinja_list_new(r->a, 0);
    for (int64_t i = number[0]; number[2] > 0 ? i < number[1] : i > number[1];) {
        if (!list || !ht_jinja_step(r, 1)) break;
        if (list->n == HT_RANGE_MAX) {
            ht_jinja_arena_fail_as(r->a, HT_ERR_LIMIT, "a range of more than %d numbers", HT_RANGE_MAX);
            break;
        }
        ht_jinja_list_append(r->a, list, ht_jinja_integer(i));
        if (__builtin_add_overflow(i, number[2], &i)) break;
    }
    return ht_jinja_list_value(HT_VALUE_RANGE, list);
}

/* dict(...) and namespace(...): a mapping or pairs, and keywords. */
static ht_jinja_dict *new_dict(ht_jinja_rendering *r, const ht_jinja_arguments *all) {
    ht_jinja_dict *d = ht_jinja_dict_new(r->a);
    if (all->n > 1) ht_jinja_arena_fail(r->a, "a dict is made of one mapping and of keywords");
    if (all->n == 1 && all->positional[0].kind == HT_VALUE_DICT) {
        const ht_jinja_dict *from = all->positional[0].dict;
        for (size_t i = 0; i < from->n; i++) ht_jinja_dict_set(r->a, d, from->keys[i], from->values[i]);
    } else if (all->n == 1) {
        const ht_jinja_list *pairs = ht_jinja_items(r->a, all->positional[0]);
        for (size_t i = 0; i < pairs->n && !r->a->status; i++) {
            const ht_jinja_list *pair = ht_jinja_items(r->a, pairs->items[i]);
            if (pair->n == 2)
                ht_jinja_dict_set(r->a, d, pair->items[0], pair->items[1]);
            else
                ht_jinja_arena_fail(r->a, "a dict is made of pairs");
        }
    }
    for (size_t i = 0; all->named && i < all->named->n; i++)
        ht_jinja_dict_set(r->a, d, all->named->keys[i], all->named->values[i]);
    return d;
}

HT_BUILTIN(dict_of) {
    ht_jinja_dict *d = new_dict(r, all);
    return d ? (ht_jinja_value){.kind = HT_VALUE_DICT, .dict = d} : ht_jinja_undefined();
}

HT_BUILTIN(namespace_of) {
    ht_jinja_dict *d = new_dict(r, all);
    for (size_t i = 0; d && i < d->n; i++)
        if (ht_jinja_is_string(d->keys[i]) && d->keys[i].string->text[0] == '_')
            ht_jinja_arena_fail(r->a, "a namespace takes no '%.60s'", d->keys[i].string->text);
    return d ? (ht_jinja_value){.kind = HT_VALUE_NAMESPACE, .dict = d} : ht_jinja_undefined();
}

HT_BUILTIN(raise) {
    const ht_jinja_string *message = ht_jinja_to_string(r->a, *with[0]);
    char line[256];
    size_t n = 0; /* white space of any length as one space: errors are one line */
    for (const char *c = message ? message->text : ""; *c && n + 1 < sizeof line; c++) {
        bool blank = *c == ' ' || (*c >= 9 && *c <= 13);
        if (!blank || (n && line[n - 1] != ' ')) line[n++] = blank ? ' ' : *c;
    }
    line[n] = '\0';
    if (message) ht_jinja_arena_fail_as(r->a, HT_ERR_ARGUMENT, "%s", line);
    return ht_jinja_undefined();
}

HT_BUILTIN(time_text) {
    char text[256];
    struct tm local;
    time_t now = (time_t)r->now;
    if (!ht_jinja_is_string(*with[0]) || !localtime_r(&now, &local))
        return ht_jinja_fail(r, "strftime_now takes a format");
    size_t n = strftime(text, sizeof text, with[0]->string->text, &local);
    return ht_jinja_string_value(ht_jinja_string_new(r->a, text, n, false));
}

static const ht_jinja_builtin functions[] = {
    {"range", "*", 0, range_of, 0},
    {"dict", "*", 0, dict_of, 0},
    {"namespace", "*", 0, namespace_of, 0},
    {"raise_exception", "message", 1, raise, 0},
    {"strftime_now", "format", 1, time_text, 0},
    {NULL, NULL, 0, NULL, 0},
};

const ht_jinja_builtin *ht_jinja_function_of(const char *name, size_t n) {
    return ht_jinja_builtin_in(functions, name, n);
}
