/* Operators, attributes, items and slices, as Python has them, with jinja2's undefined values and markup. */
#include "template/eval.h"

#include <math.h>
#include <string.h>

bool ht_jinja_refuse_undefined(ht_jinja_rendering *r, ht_jinja_value v) {
    if (v.kind != HT_VALUE_UNDEFINED) return false;
    ht_jinja_arena_fail(r->a, "%s", v.string ? v.string->text : "a value is undefined");
    return true;
}

static ht_jinja_value refuse(ht_jinja_rendering *r, const char *operator, ht_jinja_value x, ht_jinja_value y) {
    return ht_jinja_fail(r, "%s %s %s has no meaning", ht_jinja_type_name(x), operator, ht_jinja_type_name(y));
}

static ht_jinja_value too_large(ht_jinja_rendering *r) {
    ht_jinja_arena_fail_as(r->a, HT_ERR_LIMIT, "a number is too large");
    return ht_jinja_undefined();
}

/* ---- markup ---- */

ht_jinja_value ht_jinja_escape(ht_jinja_rendering *r, ht_jinja_value v) {
    static const char *const entities[256] = {
        ['&'] = "&amp;", ['<'] = "&lt;", ['>'] = "&gt;", ['"'] = "&#34;", ['\''] = "&#39;"};
    if (ht_jinja_is_string(v) && v.markup) return v;
    const ht_jinja_string *s = ht_jinja_to_string(r->a, v);
    ht_jinja_builder b = {.arena = r->a};
    for (size_t i = 0; s && i < s->n; i++) {
        char c = s->text[i];
        const char *safe = entities[(unsigned char)c];
        bool input = ht_jinja_string_input_at(s, i);
        ht_jinja_put(&b, safe ? safe : &c, safe ? strlen(safe) : 1, input);
    }
    return ht_jinja_like((ht_jinja_value){.markup = true}, ht_jinja_built(&b));
}

/* ---- arithmetic ---- */

static ht_jinja_value power_of_integers(ht_jinja_rendering *r, int64_t x, int64_t y) {
    if (y < 0) return x ? ht_jinja_real(pow((double)x, (double)y)) : ht_jinja_fail(r, "0 to a negative power");
    int64_t result = 1;
    for (; y; y >>= 1) {
        if ((y & 1) && __builtin_mul_overflow(result, x, &result)) return too_large(r);
        if (y > 1 && __builtin_mul_overflow(x, x, &x)) return too_large(r);
    }
    return ht_jinja_integer(result);
}

static ht_jinja_value of_integers(ht_jinja_rendering *r, const char *operator, int64_t x, int64_t y) {
    int64_t z;
    if (strchr("/%", operator[0]) && y == 0) return ht_jinja_fail(r, "division by zero");
    switch (operator[0]) {
    case '+': return __builtin_add_overflow(x, y, &z) ? too_large(r) : ht_jinja_integer(z);
    case '-': return __builtin_sub_overflow(x, y, &z) ? too_large(r) : ht_jinja_integer(z);
    case '%':
        if (y == -1) return ht_jinja_integer(0);
        z = x % y;
        return ht_jinja_integer(z && (z < 0) != (y < 0) ? z + y : z);
    case '/':
        if (!operator[1]) return ht_jinja_real((double)x / (double)y);
        if (y == -1) return x == INT64_MIN ? too_large(r) : ht_jinja_integer(-x);
        return ht_jinja_integer(x / y - (x % y && (x < 0) != (y < 0)));
    default:
        if (operator[1]) return power_of_integers(r, x, y);
        return __builtin_mul_overflow(x, y, &z) ? too_large(r) : ht_jinja_integer(z);
    }
}

static ht_jinja_value of_reals(ht_jinja_rendering *r, const char *operator, double x, double y) {
    if (strchr("/%", operator[0]) && y == 0) return ht_jinja_fail(r, "division by zero");
    double rest = operator[0] == '%' || operator[1] ? fmod(x, y) : 0.0;
    if (rest != 0 && (rest < 0) != (y < 0)) rest += y;
    switch (operator[0]) {
    case '+': return ht_jinja_real(x + y);
    case '-': return ht_jinja_real(x - y);
    case '%': return ht_jinja_real(rest);
    case '/': return ht_jinja_real(operator[1] ? round((x - rest) / y) : x / y);
    default: return ht_jinja_real(operator[1] ? pow(x, y) : x * y);
    }
}

/* A string or sequence n times. */
static ht_jinja_value repeat(ht_jinja_rendering *r, ht_jinja_value v, int64_t n) {
    size_t times = n > 0 ? (size_t)n : 0, each = ht_jinja_is_string(v) ? v.string->n : v.list->n;
    if (each == 0) times = 0;
    if (times && times > r->output_limit / each) return too_large(r);
    if (!ht_jinja_step(r, times * each / 64)) return ht_jinja_undefined();
    if (ht_jinja_is_string(v)) {
        ht_jinja_builder b = {.arena = r->a};
        for (size_t i = 0; i < times && !r->a->status; i++) ht_jinja_put_string(&b, v.string);
        return ht_jinja_like(v, ht_jinja_built(&b));
    }
    ht_jinja_list *list = ht_jinja_list_new(r->a, times * each);
    for (size_t i = 0; list && i < times * each; i++) ht_jinja_list_append(r->a, list, v.list->items[i % each]);
    return ht_jinja_list_value(v.kind, list);
}

static ht_jinja_value add_strings(ht_jinja_rendering *r, ht_jinja_value x, ht_jinja_value y) {
    const ht_jinja_value markup = {.markup = x.markup || y.markup};
    ht_jinja_builder b = {.arena = r->a};
    ht_jinja_put_string(&b, markup.markup ? ht_jinja_escape(r, x).string : x.string);
    ht_jinja_put_string(&b, markup.markup ? ht_jinja_escape(r, y).string : y.string);
    return ht_jinja_like(markup, ht_jinja_built(&b));
}

static ht_jinja_value add_lists(ht_jinja_rendering *r, ht_jinja_value x, ht_jinja_value y) {
    ht_jinja_list *list = ht_jinja_list_new(r->a, x.list->n + y.list->n);
    for (size_t i = 0; i < x.list->n; i++) ht_jinja_list_append(r->a, list, x.list->items[i]);
    for (size_t i = 0; i < y.list->n; i++) ht_jinja_list_append(r->a, list, y.list->items[i]);
    return ht_jinja_list_value(x.kind, list);
}

static bool is_repeatable(ht_jinja_value v) {
    return v.kind == HT_VALUE_STRING || v.kind == HT_VALUE_LIST || v.kind == HT_VALUE_TUPLE;
}

ht_jinja_value ht_jinja_binary(ht_jinja_rendering *r, const char *op, ht_jinja_value x, ht_jinja_value y) {
    int64_t i, j;
    if (ht_jinja_refuse_undefined(r, x)) return ht_jinja_undefined();
    if (op[0] == '%' && ht_jinja_is_string(x)) return ht_jinja_format_percent(r, x, y);
    if (ht_jinja_refuse_undefined(r, y)) return ht_jinja_undefined();
    if (x.kind == HT_VALUE_BIG || y.kind == HT_VALUE_BIG) return too_large(r);
    if (ht_jinja_as_integer(x, &i) && ht_jinja_as_integer(y, &j)) return of_integers(r, op, i, j);
    if (ht_jinja_is_number(x) && ht_jinja_is_number(y))
        return of_reals(r, op, ht_jinja_as_real(x), ht_jinja_as_real(y));
    if (op[0] == '+') {
        if (ht_jinja_is_string(x) && ht_jinja_is_string(y)) return add_strings(r, x, y);
        if (x.kind == y.kind && (x.kind == HT_VALUE_LIST || x.kind == HT_VALUE_TUPLE)) return add_lists(r, x, y);
    }
    if (op[0] == '*' && !op[1]) {
        if (is_repeatable(x) && ht_jinja_as_integer(y, &j)) return repeat(r, x, j);
        if (is_repeatable(y) && ht_jinja_as_integer(x, &i)) return repeat(r, y, i);
    }
    return refuse(r, op, x, y);
}

bool ht_jinja_contains(ht_jinja_rendering *r, ht_jinja_value container, ht_jinja_value item) {
    const ht_jinja_list *items;
    switch (container.kind) {
    case HT_VALUE_STRING:
        if (ht_jinja_refuse_undefined(r, item)) return false;
        if (!ht_jinja_is_string(item)) {
            ht_jinja_arena_fail(r->a, "a string contains strings, not %s", ht_jinja_type_name(item));
            return false;
        }
        if (!item.string->n) return true;
        ht_jinja_step(r, container.string->n / 64);
        return memmem(container.string->text, container.string->n, item.string->text, item.string->n) != NULL;
    case HT_VALUE_DICT: return ht_jinja_dict_find(r->a, container.dict, item) != NULL;
    default:
        items = ht_jinja_items(r->a, container);
        for (size_t i = 0; i < items->n && ht_jinja_step(r, 1); i++)
            if (ht_jinja_equal(r->a, items->items[i], item)) return true;
        return false;
    }
}

/* ---- attributes and items ---- */

ht_jinja_value ht_jinja_method_value(ht_jinja_rendering *r, const ht_jinja_builtin *b, ht_jinja_value self) {
    ht_jinja_function *f = ht_jinja_arena_alloc(r->a, sizeof *f);
    if (!f) return ht_jinja_undefined();
    *f = (ht_jinja_function){b, self};
    return (ht_jinja_value){.kind = HT_VALUE_FUNCTION, .object = f};
}

static ht_jinja_value absent(ht_jinja_rendering *r, ht_jinja_value v, const char *name) {
    return ht_jinja_undefined_because(r->a, "'%s object' has no attribute '%.60s'", ht_jinja_type_name(v), name);
}

ht_jinja_value ht_jinja_attribute(ht_jinja_rendering *r, ht_jinja_value v, const ht_jinja_string *name) {
    if (ht_jinja_refuse_undefined(r, v)) return v;
    if (v.kind == HT_VALUE_LOOP) return ht_jinja_loop_attribute(r, v.object, name->text);
    if (ht_jinja_modifies(v, name))
        return ht_jinja_undefined_because(r->a, "access to attribute '%s' of '%s' object is unsafe", name->text,
                                          ht_jinja_type_name(v));
    const ht_jinja_builtin *method = ht_jinja_method_of(v, name->text, name->n);
    if (method) return ht_jinja_method_value(r, method, v);
    if (v.kind == HT_VALUE_DICT || v.kind == HT_VALUE_NAMESPACE) {
        const ht_jinja_value *found = ht_jinja_dict_find_text(v.dict, name->text, name->n);
        if (found) return *found;
    }
    if (v.kind == HT_VALUE_MACRO && ht_jinja_string_is(name, "name"))
        return ht_jinja_string_value(((const ht_jinja_macro *)v.object)->node->name);
    if (v.kind == HT_VALUE_TUPLE && v.how) { /* a group of groupby */
        if (ht_jinja_string_is(name, "grouper")) return v.list->items[0];
        if (ht_jinja_string_is(name, "list")) return v.list->items[1];
    }
    return absent(r, v, name->text);
}

static bool can_be_key(ht_jinja_value v) {
    if (v.kind == HT_VALUE_TUPLE)
        for (size_t i = 0; i < v.list->n; i++)
            if (!can_be_key(v.list->items[i])) return false;
    return v.kind != HT_VALUE_LIST && v.kind != HT_VALUE_DICT;
}

static bool has_positions(ht_jinja_value v) {
    return v.kind == HT_VALUE_STRING || v.kind == HT_VALUE_LIST || v.kind == HT_VALUE_TUPLE || v.kind == HT_VALUE_RANGE;
}

static ht_jinja_value at_position(ht_jinja_rendering *r, ht_jinja_value v, size_t i) {
    if (!ht_jinja_is_string(v)) return v.list->items[i];
    size_t from = ht_jinja_string_offset(v.string, i), to = from;
    if (!ht_jinja_step(r, v.string->n == v.string->chars ? 0 : from / 64)) return ht_jinja_undefined();
    ht_jinja_string_next(v.string, &to);
    return ht_jinja_like(v, ht_jinja_string_span(r->a, v.string, from, to));
}

ht_jinja_value ht_jinja_item(ht_jinja_rendering *r, ht_jinja_value v, ht_jinja_value key) {
    int64_t i;
    size_t n;
    if (ht_jinja_refuse_undefined(r, v)) return v;
    if (v.kind == HT_VALUE_DICT && can_be_key(key)) {
        const ht_jinja_value *found = ht_jinja_dict_find(r->a, v.dict, key);
        if (found) return *found;
    } else if (has_positions(v) && ht_jinja_as_integer(key, &i) && ht_jinja_length(v, &n)) {
        if (i < 0) i += (int64_t)n;
        if (i >= 0 && i < (int64_t)n) return at_position(r, v, (size_t)i);
    }
    if (ht_jinja_is_string(key)) return ht_jinja_attribute(r, v, key.string);
    ht_jinja_builder b = {.arena = r->a};
    ht_jinja_put_repr(&b, key);
    const ht_jinja_string *text = ht_jinja_built(&b);
    return ht_jinja_undefined_because(r->a, "%s object has no element %.60s", ht_jinja_type_name(v),
                                      text ? text->text : "");
}

/* A bound of a slice of n items, by the rules of Python's slice.indices; false when it is not an integer. */
static bool bound(ht_jinja_value v, int64_t n, int64_t step, bool begins, int64_t *out) {
    int64_t lowest = step < 0 ? -1 : 0, highest = step < 0 ? n - 1 : n;
    if (v.kind == HT_VALUE_NONE) {
        *out = begins == (step > 0) ? lowest : highest;
        return true;
    }
    if (!ht_jinja_as_integer(v, out)) return false;
    if (*out < 0) *out += n;
    if (*out < lowest) *out = lowest;
    if (*out > highest) *out = highest;
    return true;
}

ht_jinja_value ht_jinja_slice(ht_jinja_rendering *r, ht_jinja_value v, ht_jinja_value begin, ht_jinja_value end,
                              ht_jinja_value step) {
    int64_t by = 1, from, to;
    size_t n;
    if (r->a->status || ht_jinja_refuse_undefined(r, v)) return ht_jinja_undefined();
    if (step.kind != HT_VALUE_NONE && !ht_jinja_as_integer(step, &by)) by = 0;
    if (step.kind == HT_VALUE_INT && by == 0) return ht_jinja_fail(r, "slice step cannot be zero");
    if (!by || !has_positions(v) || !ht_jinja_length(v, &n) || !bound(begin, (int64_t)n, by, true, &from) ||
        !bound(end, (int64_t)n, by, false, &to))
        return ht_jinja_fail(r, "%s has no such slice", ht_jinja_type_name(v));
    if (by > (int64_t)n) by = (int64_t)n + 1;
    if (by < -(int64_t)n) by = -(int64_t)n - 1;
    if (!ht_jinja_step(r, n / 64)) return ht_jinja_undefined();
    if (!ht_jinja_is_string(v)) {
        ht_jinja_list *list = ht_jinja_list_new(r->a, 0);
        for (int64_t i = from; by > 0 ? i < to : i > to; i += by) ht_jinja_list_append(r->a, list, v.list->items[i]);
        return ht_jinja_list_value(v.kind, list);
    }
    if (by == 1) {
        size_t first = ht_jinja_string_offset(v.string, (size_t)from);
        size_t last = to > from ? ht_jinja_string_offset(v.string, (size_t)to) : first;
        return ht_jinja_like(v, ht_jinja_string_span(r->a, v.string, first, last));
    }
    ht_jinja_builder b = {.arena = r->a};
    for (int64_t i = from; by > 0 ? i < to : i > to; i += by) {
        if (!ht_jinja_step(r, v.string->n == v.string->chars ? 1 : 1 + (size_t)i / 64)) break;
        size_t first = ht_jinja_string_offset(v.string, (size_t)i), last = first;
        ht_jinja_string_next(v.string, &last);
        ht_jinja_put_span(&b, v.string, first, last);
    }
    return ht_jinja_like(v, ht_jinja_built(&b));
}

ht_jinja_value ht_jinja_path(ht_jinja_rendering *r, ht_jinja_value v, ht_jinja_value path,
                             const ht_jinja_value *otherwise) {
    if (!ht_jinja_is_string(path)) {
        v = ht_jinja_item(r, v, path);
        return v.kind == HT_VALUE_UNDEFINED && otherwise ? *otherwise : v;
    }
    const ht_jinja_string *dot = ht_jinja_string_new(r->a, ".", 1, false);
    const ht_jinja_list *parts = dot ? ht_jinja_split(r, path.string, dot, -1, false) : NULL;
    for (size_t i = 0; parts && i < parts->n && !r->a->status; i++) {
        const ht_jinja_string *part = parts->items[i].string;
        int64_t number = 0;
        bool digits = part->n > 0 && part->n < 18;
        for (size_t j = 0; digits && j < part->n; j++) {
            digits = part->text[j] >= '0' && part->text[j] <= '9';
            number = number * 10 + (part->text[j] - '0');
        }
        v = ht_jinja_item(r, v, digits ? ht_jinja_integer(number) : parts->items[i]);
        if (v.kind == HT_VALUE_UNDEFINED && otherwise) v = *otherwise;
    }
    return v;
}
