/* Tests, behind `is`. */
#include "template/eval.h"

#include <string.h>
#include <utf8proc.h>

#define TEST(name)                                                                                                     \
    static ht_jinja_value name(ht_jinja_rendering *r, ht_jinja_value v, const ht_jinja_value *const *with,             \
                               const ht_jinja_arguments *all)
#define UNUSED (void)r, (void)v, (void)with, (void)all

#define IS(name, condition)                                                                                            \
    TEST(name) {                                                                                                       \
        UNUSED;                                                                                                        \
        return ht_jinja_boolean(condition);                                                                            \
    }

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
IS(is_filter, ht_jinja_is_string(v) && ht_jinja_filter_exists(v.string))
IS(is_test, ht_jinja_is_string(v) && ht_jinja_test_exists(v.string))
IS(is_equal, ht_jinja_equal(r->a, v, *with[0]))
IS(is_unequal, !ht_jinja_equal(r->a, v, *with[0]))
IS(is_in, ht_jinja_contains(r, *with[0], v))

/* `is` of Python: small numbers and short names aside, only what is one object is the same. */
TEST(is_same) {
    UNUSED;
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
    {"defined", "", 0, is_defined},
    {"undefined", "", 0, is_undefined},
    {"none", "", 0, is_none},
    {"boolean", "", 0, is_boolean},
    {"true", "", 0, is_true},
    {"false", "", 0, is_false},
    {"integer", "", 0, is_integer},
    {"float", "", 0, is_float},
    {"number", "", 0, is_number},
    {"string", "", 0, is_text},
    {"mapping", "", 0, is_mapping},
    {"sequence", "", 0, is_any_sequence},
    {"iterable", "", 0, is_any_iterable},
    {"callable", "", 0, is_callable},
    {"escaped", "", 0, is_escaped},
    {"filter", "", 0, is_filter},
    {"test", "", 0, is_test},
    {"odd", "", 0, is_odd},
    {"even", "", 0, is_even},
    {"divisibleby", "num", 1, is_divisible},
    {"sameas", "other", 1, is_same},
    {"in", "seq", 1, is_in},
    {"lower", "", 0, is_lower},
    {"upper", "", 0, is_upper},
    {"eq", "other", 1, is_equal},
    {"equalto", "other", 1, is_equal},
    {"==", "other", 1, is_equal},
    {"ne", "other", 1, is_unequal},
    {"!=", "other", 1, is_unequal},
    {"lt", "other", 1, is_less},
    {"lessthan", "other", 1, is_less},
    {"<", "other", 1, is_less},
    {"le", "other", 1, is_at_most},
    {"<=", "other", 1, is_at_most},
    {"gt", "other", 1, is_greater},
    {"greaterthan", "other", 1, is_greater},
    {">", "other", 1, is_greater},
    {"ge", "other", 1, is_at_least},
    {">=", "other", 1, is_at_least},
    {NULL, NULL, 0, NULL},
};

const ht_jinja_builtin *ht_jinja_builtin_in(const ht_jinja_builtin *table, const char *name, size_t n) {
    for (; table->name; table++)
        if (strlen(table->name) == n && !memcmp(table->name, name, n)) return table;
    return NULL;
}

const ht_jinja_builtin *ht_jinja_test_of(const ht_jinja_string *name) {
    return ht_jinja_builtin_in(tests, name->text, name->n);
}
bool ht_jinja_test_exists(const ht_jinja_string *name) { return ht_jinja_test_of(name) != NULL; }
