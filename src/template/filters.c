/* Filters, behind `|`. */
#include "template/eval.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FILTER(name)                                                                                                   \
    static ht_jinja_value name(ht_jinja_rendering *r, ht_jinja_value v, const ht_jinja_value *const *with,             \
                               const ht_jinja_arguments *all)
#define UNUSED (void)r, (void)v, (void)with, (void)all

static ht_jinja_value iterator(ht_jinja_list *list, const char *how) {
    ht_jinja_value v = ht_jinja_list_value(HT_VALUE_ITERATOR, list);
    v.how = how;
    return v;
}

static ht_jinja_value string_of(ht_jinja_rendering *r, ht_jinja_value v) {
    return ht_jinja_is_string(v) ? v : ht_jinja_string_value(ht_jinja_to_string(r->a, v));
}

static int64_t integer_of(ht_jinja_rendering *r, const ht_jinja_value *v, int64_t otherwise) {
    int64_t i = otherwise;
    if (v && !ht_jinja_as_integer(*v, &i))
        ht_jinja_arena_fail(r->a, "an integer is needed, not %s", ht_jinja_type_name(*v));
    return i;
}

static ht_jinja_value item_of(ht_jinja_rendering *r, ht_jinja_value v, const ht_jinja_value *attribute) {
    return attribute && attribute->kind != HT_VALUE_NONE ? ht_jinja_path(r, v, *attribute, NULL) : v;
}

/* ---- texts ---- */

#define CASE(name, how)                                                                                                \
    FILTER(name) {                                                                                                     \
        UNUSED;                                                                                                        \
        ht_jinja_value s = string_of(r, v);                                                                            \
        ht_jinja_value out =                                                                                           \
            ht_jinja_string_value(s.kind == HT_VALUE_STRING ? ht_jinja_change_case(r, s.string, how) : NULL);          \
        out.markup = s.markup;                                                                                         \
        return out;                                                                                                    \
    }
CASE(upper, 'u')
CASE(lower, 'l')
CASE(capitalize, 'c')

/* Words, which spaces and some brackets begin, as jinja2 has them: the rest of a word keeps no capitals. */
FILTER(title) {
    UNUSED;
    ht_jinja_value s = string_of(r, v);
    if (!ht_jinja_is_string(s)) return ht_jinja_undefined();
    ht_jinja_builder b = {.arena = r->a};
    size_t from = 0;
    for (size_t at = 0; at < s.string->n && ht_jinja_step(r, 1);) {
        size_t here = at;
        uint32_t c = ht_jinja_string_next(s.string, &at);
        bool begins = ht_jinja_is_space(c) || (c < 128 && strchr("-({[<", (int)c));
        if (!begins && at < s.string->n) continue;
        size_t end = begins ? here : at;
        if (end > from) {
            size_t second = from;
            ht_jinja_string_next(s.string, &second);
            const ht_jinja_string *one = ht_jinja_string_span(r->a, s.string, from, second),
                                  *rest = ht_jinja_string_span(r->a, s.string, second, end);
            if (!one || !rest) break;
            ht_jinja_put_string(&b, ht_jinja_change_case(r, one, 'u'));
            ht_jinja_put_string(&b, ht_jinja_change_case(r, rest, 'l'));
        }
        ht_jinja_put_span(&b, s.string, end, at);
        from = at;
    }
    return ht_jinja_string_value(ht_jinja_built(&b));
}

FILTER(trim) {
    UNUSED;
    ht_jinja_value s = string_of(r, v);
    const ht_jinja_string *set = with[0] && ht_jinja_is_string(*with[0]) ? with[0]->string : NULL;
    ht_jinja_value out =
        ht_jinja_string_value(ht_jinja_is_string(s) ? ht_jinja_strip(r, s.string, set, true, true) : NULL);
    out.markup = s.markup;
    return out;
}

FILTER(string) {
    UNUSED;
    return string_of(r, v);
}

FILTER(safe) {
    UNUSED;
    ht_jinja_value s = string_of(r, v);
    s.markup = ht_jinja_is_string(s);
    return s;
}

FILTER(escape) {
    UNUSED;
    return ht_jinja_escape(r, v);
}

FILTER(force_escape) {
    UNUSED;
    ht_jinja_value s = string_of(r, v);
    s.markup = false;
    return ht_jinja_escape(r, s);
}

FILTER(replace) {
    UNUSED;
    ht_jinja_value s = string_of(r, v), what = string_of(r, *with[0]), by = string_of(r, *with[1]);
    int64_t most = with[2] && with[2]->kind != HT_VALUE_NONE ? integer_of(r, with[2], -1) : -1;
    if (!ht_jinja_is_string(s) || !ht_jinja_is_string(what) || !ht_jinja_is_string(by)) return ht_jinja_undefined();
    ht_jinja_value out = ht_jinja_string_value(ht_jinja_replace(r, s.string, what.string, by.string, most));
    out.markup = s.markup;
    return out;
}

FILTER(format) {
    UNUSED;
    ht_jinja_value values = {.kind = HT_VALUE_DICT, .dict = all->named};
    if (all->n && all->named) {
        ht_jinja_arena_fail(r->a, "format takes positions or names, not both");
        return ht_jinja_undefined();
    }
    if (!all->named) {
        ht_jinja_list *list = ht_jinja_list_new(r->a, all->n);
        for (size_t i = 0; i < all->n; i++) ht_jinja_list_append(r->a, list, all->positional[i]);
        values = ht_jinja_list_value(HT_VALUE_TUPLE, list);
    }
    ht_jinja_value s = string_of(r, v);
    return ht_jinja_is_string(s) ? ht_jinja_format_percent(r, s, values) : ht_jinja_undefined();
}

FILTER(center) {
    UNUSED;
    ht_jinja_value s = string_of(r, v), width = with[0] ? *with[0] : ht_jinja_integer(80);
    const ht_jinja_arguments to = {.positional = &width, .n = 1};
    const ht_jinja_builtin *method = ht_jinja_is_string(s) ? ht_jinja_method_of(s, "center", 6) : NULL;
    return method ? ht_jinja_call_builtin(r, method, s, &to) : ht_jinja_undefined();
}

static const ht_jinja_string *spaces(ht_jinja_rendering *r, int64_t n) {
    ht_jinja_builder b = {.arena = r->a};
    for (int64_t i = 0; i < n && ht_jinja_step(r, 1); i++) ht_jinja_put_text(&b, " ");
    return ht_jinja_built(&b);
}

FILTER(indent) {
    UNUSED;
    ht_jinja_value s = string_of(r, v);
    bool first = with[1] && ht_jinja_truth(*with[1]), blank = with[2] && ht_jinja_truth(*with[2]);
    const ht_jinja_string *by = with[0] && ht_jinja_is_string(*with[0]) ? with[0]->string : NULL;
    if (!ht_jinja_is_string(s) || ht_jinja_refuse_undefined(r, v)) return ht_jinja_undefined();
    if (!by) by = spaces(r, integer_of(r, with[0], 4));
    ht_jinja_value lines =
        ht_jinja_call_builtin(r, ht_jinja_method_of(s, "splitlines", 10), s, &(ht_jinja_arguments){0});
    if (r->a->status) return ht_jinja_undefined();
    size_t n = lines.list->n;
    uint32_t last = '\n'; /* a text that ends with a line end has one more line, which is empty */
    for (size_t at = 0; at < s.string->n;) last = ht_jinja_string_next(s.string, &at);
    if (!n || (last >= 10 && last <= 13) || (last >= 28 && last <= 30) || last == 0x85 || last == 0x2028 ||
        last == 0x2029)
        ht_jinja_list_append(r->a, lines.list, ht_jinja_text_value(r->a, ""));
    ht_jinja_builder b = {.arena = r->a};
    for (size_t i = 0; i < lines.list->n && ht_jinja_step(r, 1); i++) {
        const ht_jinja_string *line = lines.list->items[i].string;
        if (i) ht_jinja_put_text(&b, "\n");
        if (i ? blank || (line && line->n) : first) ht_jinja_put_string(&b, by);
        ht_jinja_put_string(&b, line);
    }
    ht_jinja_value out = ht_jinja_string_value(ht_jinja_built(&b));
    out.markup = s.markup;
    return out;
}

FILTER(urlencode) {
    UNUSED;
    static const char plain[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.-~/";
    ht_jinja_value s = string_of(r, v);
    ht_jinja_builder b = {.arena = r->a};
    for (size_t i = 0; ht_jinja_is_string(s) && i < s.string->n && ht_jinja_step(r, (i & 63) == 0); i++) {
        char text[8];
        unsigned char c = (unsigned char)s.string->text[i];
        bool keeps = c && strchr(plain, c);
        snprintf(text, sizeof text, keeps ? "%c" : "%%%02X", c);
        ht_jinja_put(&b, text, strlen(text), ht_jinja_string_input_at(s.string, i));
    }
    return ht_jinja_string_value(ht_jinja_built(&b));
}

FILTER(tojson) {
    UNUSED;
    const ht_jinja_string *item = NULL, *key = NULL, *indent = NULL;
    if (with[1] && with[1]->kind != HT_VALUE_NONE)
        indent = ht_jinja_is_string(*with[1]) ? with[1]->string : spaces(r, integer_of(r, with[1], 0));
    if (with[2] && with[2]->kind != HT_VALUE_NONE) {
        const ht_jinja_list *both = ht_jinja_items(r->a, *with[2]);
        if (!both || both->n != 2 || !ht_jinja_is_string(both->items[0]) || !ht_jinja_is_string(both->items[1])) {
            ht_jinja_arena_fail(r->a, "separators are two strings");
            return ht_jinja_undefined();
        }
        item = both->items[0].string;
        key = both->items[1].string;
    }
    bool ascii = with[0] && ht_jinja_truth(*with[0]), sorts = with[3] && ht_jinja_truth(*with[3]);
    return ht_jinja_string_value(ht_jinja_json_text(r, v, indent, item, key, sorts, ascii));
}

FILTER(from_json) {
    UNUSED;
    if (ht_jinja_is_string(v)) return ht_jinja_json_loads(r->a, v.string->text, v.string->n, "from_json");
    if (!ht_jinja_refuse_undefined(r, v))
        ht_jinja_arena_fail(r->a, "from_json takes a string, not %s", ht_jinja_type_name(v));
    return ht_jinja_undefined();
}

/* ---- numbers ---- */

FILTER(to_int) {
    UNUSED;
    int64_t base = integer_of(r, with[1], 10), i;
    ht_jinja_value otherwise = with[0] ? *with[0] : ht_jinja_integer(0);
    if (ht_jinja_refuse_undefined(r, v)) return v;
    if (ht_jinja_as_integer(v, &i)) return ht_jinja_integer(i);
    if (v.kind == HT_VALUE_BIG) return v;
    if (v.kind == HT_VALUE_FLOAT) return fabs(v.real) < 9.2e18 ? ht_jinja_integer((int64_t)v.real) : otherwise;
    if (!ht_jinja_is_string(v) || base < 0 || base > 36 || base == 1) return otherwise;
    const ht_jinja_string *s = ht_jinja_strip(r, v.string, NULL, true, true);
    if (!s) return ht_jinja_undefined();
    /* Underscores between digits, as Python reads them. */
    char digits[72], *end;
    size_t n = 0;
    for (size_t j = 0; j < s->n && n < sizeof digits - 1; j++) {
        bool between = j && j + 1 < s->n && s->text[j] == '_' && s->text[j - 1] != '_' && s->text[j + 1] != '_';
        if (!between) digits[n++] = s->text[j];
    }
    digits[n] = '\0';
    size_t sign = n && (digits[0] == '-' || digits[0] == '+');
    char second = n > sign + 1 && digits[sign] == '0' ? (char)(digits[sign + 1] | 32) : 0;
    bool octal = second == 'o' && (base == 8 || base == 0), binary = second == 'b' && (base == 2 || base == 0);
    if (octal || binary) {
        memmove(digits + sign, digits + sign + 2, n - sign - 1);
        base = octal ? 8 : 2;
    } else if (base == 0 && second != 'x')
        base = 10;
    i = strtoll(digits, &end, (int)base);
    if (s->n && n < sizeof digits - 1 && end != digits && !*end && i != INT64_MAX && i != INT64_MIN)
        return ht_jinja_integer(i);
    double x = strtod(digits, &end);
    return base == 10 && end != digits && !*end && !strpbrk(digits, "xX") && fabs(x) < 9.2e18
               ? ht_jinja_integer((int64_t)x)
               : otherwise;
}

FILTER(to_float) {
    UNUSED;
    if (ht_jinja_refuse_undefined(r, v)) return v;
    if (ht_jinja_is_number(v)) return ht_jinja_real(ht_jinja_as_real(v));
    if (ht_jinja_is_string(v)) {
        const ht_jinja_string *s = ht_jinja_strip(r, v.string, NULL, true, true);
        char *end = NULL;
        double x = s ? strtod(s->text, &end) : 0;
        if (s && s->n && end == s->text + s->n && !strpbrk(s->text, "xX(")) return ht_jinja_real(x);
    }
    return with[0] ? *with[0] : ht_jinja_real(0);
}

FILTER(absolute) {
    UNUSED;
    int64_t i;
    if (ht_jinja_as_integer(v, &i)) return ht_jinja_integer(i < 0 && i != INT64_MIN ? -i : i);
    if (v.kind == HT_VALUE_FLOAT) return ht_jinja_real(fabs(v.real));
    if (!ht_jinja_refuse_undefined(r, v))
        ht_jinja_arena_fail(r->a, "bad operand type for abs(): '%s'", ht_jinja_type_name(v));
    return ht_jinja_undefined();
}

FILTER(rounded) {
    UNUSED;
    int64_t precision = integer_of(r, with[0], 0), i;
    const ht_jinja_string *method = with[1] && ht_jinja_is_string(*with[1]) ? with[1]->string : NULL;
    bool up = method && ht_jinja_string_is(method, "ceil"), down = method && ht_jinja_string_is(method, "floor");
    if (method && !up && !down && !ht_jinja_string_is(method, "common"))
        ht_jinja_arena_fail(r->a, "method must be common, ceil or floor");
    if (!ht_jinja_is_number(v)) {
        if (!ht_jinja_refuse_undefined(r, v))
            ht_jinja_arena_fail(r->a, "round takes a number, not %s", ht_jinja_type_name(v));
        return ht_jinja_undefined();
    }
    double x = ht_jinja_as_real(v);
    if (up || down) {
        double scale = pow(10, (double)precision);
        return ht_jinja_real((up ? ceil(x * scale) : floor(x * scale)) / scale);
    }
    if (ht_jinja_as_integer(v, &i) && precision >= 0) return ht_jinja_integer(i);
    char text[400];
    if (!isfinite(x) || precision > 300) return ht_jinja_real(x);
    if (precision < 0) {
        double scale = pow(10, (double)-precision);
        x = isfinite(scale) ? nearbyint(x / scale) * scale : 0;
        if (v.kind == HT_VALUE_FLOAT || fabs(x) >= 9.2e18) return ht_jinja_real(x);
        return ht_jinja_integer((int64_t)x);
    }
    snprintf(text, sizeof text, "%.*f", (int)precision, x);
    return ht_jinja_real(strtod(text, NULL));
}

FILTER(sum) {
    UNUSED;
    ht_jinja_value total = with[1] ? *with[1] : ht_jinja_integer(0);
    const ht_jinja_list *items = ht_jinja_items(r->a, v);
    if (ht_jinja_is_string(total)) ht_jinja_arena_fail(r->a, "sum() cannot sum strings");
    for (size_t i = 0; items && i < items->n && ht_jinja_step(r, 1); i++)
        total = ht_jinja_binary(r, "+", total, item_of(r, items->items[i], with[0]));
    return total;
}

/* ---- sequences ---- */

FILTER(default_of) {
    UNUSED;
    bool also_false = with[1] && ht_jinja_truth(*with[1]);
    if (v.kind != HT_VALUE_UNDEFINED && !(also_false && !ht_jinja_truth(v))) return v;
    return with[0] ? *with[0] : ht_jinja_text_value(r->a, "");
}

FILTER(length) {
    UNUSED;
    size_t n;
    if (v.kind == HT_VALUE_LOOP) return ht_jinja_loop_attribute(r, v.object, "length");
    if (!ht_jinja_length(v, &n)) {
        ht_jinja_arena_fail(r->a, "object of type '%s' has no len()", ht_jinja_type_name(v));
        return ht_jinja_undefined();
    }
    return ht_jinja_integer((int64_t)n);
}

FILTER(list) {
    UNUSED;
    const ht_jinja_list *items = ht_jinja_items(r->a, v);
    ht_jinja_list *copy = ht_jinja_list_new(r->a, items ? items->n : 0);
    for (size_t i = 0; items && i < items->n && ht_jinja_step(r, 1); i++)
        ht_jinja_list_append(r->a, copy, items->items[i]);
    return ht_jinja_list_value(HT_VALUE_LIST, copy);
}

FILTER(first) {
    UNUSED;
    if (v.kind == HT_VALUE_ITERATOR && v.list->next < v.list->n) return v.list->items[v.list->next++];
    const ht_jinja_list *items = ht_jinja_items(r->a, v);
    return items && items->n ? items->items[0] : ht_jinja_undefined_because(r->a, "No first item, sequence was empty.");
}

FILTER(last) {
    UNUSED;
    if (v.kind == HT_VALUE_ITERATOR) {
        ht_jinja_arena_fail(r->a, "'%s' object is not reversible", ht_jinja_type_name(v));
        return ht_jinja_undefined();
    }
    const ht_jinja_list *items = ht_jinja_items(r->a, v);
    return items && items->n ? items->items[items->n - 1]
                             : ht_jinja_undefined_because(r->a, "No last item, sequence was empty.");
}

FILTER(reverse) {
    UNUSED;
    const ht_jinja_list *items = ht_jinja_items(r->a, v);
    ht_jinja_list *list = ht_jinja_list_new(r->a, items ? items->n : 0);
    for (size_t i = items ? items->n : 0; i-- > 0 && ht_jinja_step(r, 1);)
        ht_jinja_list_append(r->a, list, items->items[i]);
    if (!ht_jinja_is_string(v)) return iterator(list, "list_reverseiterator");
    ht_jinja_value nothing = ht_jinja_text_value(r->a, "");
    nothing.markup = v.markup;
    return list && ht_jinja_is_string(nothing) ? ht_jinja_join(r, nothing, list) : ht_jinja_undefined();
}

FILTER(join) {
    UNUSED;
    ht_jinja_value separator = with[0] ? string_of(r, *with[0]) : ht_jinja_text_value(r->a, "");
    const ht_jinja_list *items = ht_jinja_items(r->a, v);
    ht_jinja_list *texts = ht_jinja_list_new(r->a, items ? items->n : 0);
    for (size_t i = 0; items && i < items->n && ht_jinja_step(r, 1); i++)
        ht_jinja_list_append(r->a, texts, string_of(r, item_of(r, items->items[i], with[1])));
    if (r->a->status) return ht_jinja_undefined();
    separator.markup = false; /* without automatic escaping, texts are joined as they are */
    return ht_jinja_join(r, separator, texts);
}

FILTER(items_of) {
    UNUSED;
    if (v.kind == HT_VALUE_UNDEFINED) return iterator(ht_jinja_list_new(r->a, 0), "generator");
    if (v.kind != HT_VALUE_DICT) {
        ht_jinja_arena_fail(r->a, "Can only get item pairs from a mapping.");
        return ht_jinja_undefined();
    }
    const ht_jinja_builtin *method = ht_jinja_method_of(v, "items", 5);
    ht_jinja_value view = ht_jinja_call_builtin(r, method, v, &(ht_jinja_arguments){0});
    return r->a->status ? ht_jinja_undefined() : iterator(view.list, "generator");
}

/* Strings without case where it is ignored. */
static ht_jinja_value sort_key(ht_jinja_rendering *r, ht_jinja_value v, bool ignores_case) {
    if (!ignores_case || !ht_jinja_is_string(v)) return v;
    return ht_jinja_string_value(ht_jinja_change_case(r, v.string, 'l'));
}

typedef struct keyed {
    ht_jinja_value key, v;
} keyed;

static void merge(ht_jinja_rendering *r, keyed *items, keyed *room, size_t n, bool reverse) {
    if (n < 2 || !ht_jinja_step(r, n)) return;
    size_t half = n / 2, i = 0, j = half, k = 0;
    merge(r, items, room, half, reverse);
    merge(r, items + half, room, n - half, reverse);
    while (i < half && j < n && !r->a->status) {
        int order = ht_jinja_order(r->a, items[i].key, items[j].key);
        bool takes_second = reverse ? order < 0 : order > 0;
        room[k++] = takes_second ? items[j++] : items[i++];
    }
    while (i < half) room[k++] = items[i++];
    while (j < n) room[k++] = items[j++];
    memcpy(items, room, n * sizeof *items);
}

static void sort_by(ht_jinja_rendering *r, ht_jinja_list *list, ht_jinja_value attribute, bool with_attribute,
                    const ht_jinja_value *otherwise, bool ignores_case, bool reverse) {
    keyed *items = ht_jinja_arena_alloc(r->a, (list->n + 1) * sizeof *items),
          *room = ht_jinja_arena_alloc(r->a, (list->n + 1) * sizeof *room);
    if (!items || !room) return;
    /* Several attributes with commas between are compared one after the other. */
    const ht_jinja_list *paths = NULL;
    if (with_attribute && ht_jinja_is_string(attribute))
        paths = ht_jinja_split(r, attribute.string, ht_jinja_string_new(r->a, ",", 1, false), -1, false);
    for (size_t i = 0; i < list->n && !r->a->status; i++) {
        ht_jinja_list *key = ht_jinja_list_new(r->a, 1);
        for (size_t j = 0; paths && j < paths->n; j++)
            ht_jinja_list_append(
                r->a, key, sort_key(r, ht_jinja_path(r, list->items[i], paths->items[j], otherwise), ignores_case));
        if (!paths) {
            ht_jinja_value of =
                with_attribute ? ht_jinja_path(r, list->items[i], attribute, otherwise) : list->items[i];
            ht_jinja_list_append(r->a, key, sort_key(r, of, ignores_case));
        }
        items[i] =
            (keyed){key && key->n == 1 ? key->items[0] : ht_jinja_list_value(HT_VALUE_LIST, key), list->items[i]};
    }
    if (r->a->status) return;
    merge(r, items, room, list->n, reverse);
    for (size_t i = 0; i < list->n; i++) list->items[i] = items[i].v;
}

void ht_jinja_sort(ht_jinja_rendering *r, ht_jinja_list *list, ht_jinja_value attribute, bool with_attribute,
                   bool ignores_case, bool reverse) {
    sort_by(r, list, attribute, with_attribute, NULL, ignores_case, reverse);
}

FILTER(sort) {
    UNUSED;
    ht_jinja_value copy = list(r, v, with, all);
    bool has_attribute = with[2] && with[2]->kind != HT_VALUE_NONE;
    if (copy.kind == HT_VALUE_LIST)
        ht_jinja_sort(r, copy.list, has_attribute ? *with[2] : ht_jinja_none(), has_attribute,
                      !(with[1] && ht_jinja_truth(*with[1])), with[0] && ht_jinja_truth(*with[0]));
    return copy;
}

FILTER(dictsort) {
    UNUSED;
    ht_jinja_value by = with[1] ? *with[1] : ht_jinja_text_value(r->a, "key");
    bool by_value = ht_jinja_is_string(by) && ht_jinja_string_is(by.string, "value");
    if (!by_value && !(ht_jinja_is_string(by) && ht_jinja_string_is(by.string, "key")))
        ht_jinja_arena_fail(r->a, "You can only sort by either \"key\" or \"value\"");
    if (ht_jinja_refuse_undefined(r, v)) return v;
    ht_jinja_value pairs = items_of(r, v, with, all);
    if (r->a->status) return ht_jinja_undefined();
    ht_jinja_value copy = list(r, pairs, with, all);
    if (copy.kind != HT_VALUE_LIST) return ht_jinja_undefined();
    ht_jinja_sort(r, copy.list, ht_jinja_integer(by_value), true, !(with[0] && ht_jinja_truth(*with[0])),
                  with[2] && ht_jinja_truth(*with[2]));
    return copy;
}

FILTER(unique) {
    UNUSED;
    const ht_jinja_list *items = ht_jinja_items(r->a, v);
    ht_jinja_list *out = ht_jinja_list_new(r->a, 0);
    ht_jinja_dict *seen = ht_jinja_dict_new(r->a);
    bool ignores_case = !(with[0] && ht_jinja_truth(*with[0]));
    for (size_t i = 0; seen && items && i < items->n && ht_jinja_step(r, 1); i++) {
        ht_jinja_value key = sort_key(r, item_of(r, items->items[i], with[1]), ignores_case);
        if (ht_jinja_dict_find(r->a, seen, key)) continue;
        ht_jinja_dict_set(r->a, seen, key, ht_jinja_none());
        ht_jinja_list_append(r->a, out, items->items[i]);
    }
    return iterator(out, "generator");
}

static ht_jinja_value extreme(ht_jinja_rendering *r, ht_jinja_value v, const ht_jinja_value *const *with, int sign) {
    const ht_jinja_list *items = ht_jinja_items(r->a, v);
    bool ignores_case = !(with[0] && ht_jinja_truth(*with[0]));
    ht_jinja_value best = ht_jinja_undefined_because(r->a, "No aggregated item, sequence was empty."), best_key = best;
    for (size_t i = 0; items && i < items->n && ht_jinja_step(r, 1); i++) {
        ht_jinja_value key = sort_key(r, item_of(r, items->items[i], with[1]), ignores_case);
        if (i && ht_jinja_order(r->a, key, best_key) * sign <= 0) continue;
        best = items->items[i];
        best_key = key;
    }
    return best;
}

FILTER(smallest) {
    UNUSED;
    return extreme(r, v, with, -1);
}

FILTER(largest) {
    UNUSED;
    return extreme(r, v, with, 1);
}

FILTER(batch) {
    UNUSED;
    const ht_jinja_list *items = ht_jinja_items(r->a, v);
    int64_t n = integer_of(r, with[0], 1);
    ht_jinja_list *out = ht_jinja_list_new(r->a, 0), *row = NULL;
    for (size_t i = 0; items && i < items->n && ht_jinja_step(r, 1); i++) {
        if (!row || (int64_t)row->n == n) {
            row = ht_jinja_list_new(r->a, 0);
            ht_jinja_list_append(r->a, out, ht_jinja_list_value(HT_VALUE_LIST, row));
        }
        ht_jinja_list_append(r->a, row, items->items[i]);
    }
    bool fills = with[1] && with[1]->kind != HT_VALUE_NONE;
    while (fills && row && (int64_t)row->n < n && ht_jinja_step(r, 1)) ht_jinja_list_append(r->a, row, *with[1]);
    return iterator(out, "generator");
}

FILTER(slices) {
    UNUSED;
    const ht_jinja_list *items = ht_jinja_items(r->a, v);
    int64_t n = integer_of(r, with[0], 1);
    if (n < 1 || !items) {
        ht_jinja_arena_fail(r->a, "slices are 1 or more");
        return ht_jinja_undefined();
    }
    ht_jinja_list *out = ht_jinja_list_new(r->a, 0);
    size_t each = items->n / (size_t)n, more = items->n % (size_t)n, at = 0;
    bool fills = with[1] && with[1]->kind != HT_VALUE_NONE;
    for (size_t i = 0; i < (size_t)n && ht_jinja_step(r, 1); i++) {
        ht_jinja_list *row = ht_jinja_list_new(r->a, 0);
        for (size_t j = 0; j < each + (i < more); j++) ht_jinja_list_append(r->a, row, items->items[at++]);
        if (fills && i >= more) ht_jinja_list_append(r->a, row, *with[1]);
        ht_jinja_list_append(r->a, out, ht_jinja_list_value(HT_VALUE_LIST, row));
    }
    return iterator(out, "generator");
}

FILTER(groupby) {
    UNUSED;
    ht_jinja_value copy = list(r, v, with, all);
    bool ignores_case = !(with[2] && ht_jinja_truth(*with[2]));
    if (copy.kind != HT_VALUE_LIST) return ht_jinja_undefined();
    sort_by(r, copy.list, *with[0], true, with[1], ignores_case, false);
    if (r->a->status) return ht_jinja_undefined();
    ht_jinja_list *out = ht_jinja_list_new(r->a, 0), *group = NULL;
    ht_jinja_value last = ht_jinja_undefined();
    for (size_t i = 0; i < copy.list->n && ht_jinja_step(r, 1); i++) {
        ht_jinja_value key = ht_jinja_path(r, copy.list->items[i], *with[0], with[1]);
        ht_jinja_value compared = sort_key(r, key, ignores_case);
        if (!group || !ht_jinja_equal(r->a, compared, last)) {
            ht_jinja_list *pair = ht_jinja_list_new(r->a, 2);
            group = ht_jinja_list_new(r->a, 0);
            ht_jinja_list_append(r->a, pair, key);
            ht_jinja_list_append(r->a, pair, ht_jinja_list_value(HT_VALUE_LIST, group));
            ht_jinja_value named = ht_jinja_list_value(HT_VALUE_TUPLE, pair);
            named.how = "_GroupTuple";
            ht_jinja_list_append(r->a, out, named);
        }
        ht_jinja_list_append(r->a, group, copy.list->items[i]);
        last = compared;
    }
    return ht_jinja_list_value(HT_VALUE_LIST, out);
}

/* ---- filters and tests of items ---- */

static ht_jinja_arguments without(const ht_jinja_arguments *all, size_t n) {
    return (ht_jinja_arguments){all->positional + n, all->n - n, all->named};
}

/* Whether an item passes the test that the arguments from `first` on name; without one, whether it is true. */
static bool passes(ht_jinja_rendering *r, ht_jinja_value v, const ht_jinja_arguments *all, size_t first) {
    if (all->n <= first) return ht_jinja_truth(v);
    ht_jinja_value name = all->positional[first];
    const ht_jinja_builtin *test = ht_jinja_is_string(name) ? ht_jinja_test_of(name.string) : NULL;
    if (!test) {
        ht_jinja_arena_fail(r->a, "there is no test '%.60s'",
                            ht_jinja_is_string(name) ? name.string->text : ht_jinja_type_name(name));
        return false;
    }
    ht_jinja_arguments rest = without(all, first + 1);
    return ht_jinja_truth(ht_jinja_call_builtin(r, test, v, &rest));
}

static ht_jinja_value choose(ht_jinja_rendering *r, ht_jinja_value v, const ht_jinja_arguments *all, bool by_attribute,
                             bool keeps) {
    const ht_jinja_list *items =
        ht_jinja_truth(v) ? ht_jinja_items(r->a, v) : NULL; /* of what is false there are none */
    ht_jinja_list *out = ht_jinja_list_new(r->a, 0);
    if (by_attribute && !all->n) ht_jinja_arena_fail(r->a, "Missing parameter for attribute name");
    for (size_t i = 0; items && i < items->n && ht_jinja_step(r, 1); i++) {
        ht_jinja_value of =
            by_attribute ? ht_jinja_path(r, items->items[i], all->positional[0], NULL) : items->items[i];
        if (passes(r, of, all, by_attribute) == keeps) ht_jinja_list_append(r->a, out, items->items[i]);
    }
    return iterator(out, "generator");
}

FILTER(select_items) {
    UNUSED;
    return choose(r, v, all, false, true);
}

FILTER(reject) {
    UNUSED;
    return choose(r, v, all, false, false);
}

FILTER(selectattr) {
    UNUSED;
    return choose(r, v, all, true, true);
}

FILTER(rejectattr) {
    UNUSED;
    return choose(r, v, all, true, false);
}

FILTER(map) {
    UNUSED;
    const ht_jinja_list *items = ht_jinja_truth(v) ? ht_jinja_items(r->a, v) : NULL;
    ht_jinja_list *out = ht_jinja_list_new(r->a, 0);
    const ht_jinja_value *attribute = all->named ? ht_jinja_dict_find_text(all->named, "attribute", 9) : NULL;
    const ht_jinja_value *otherwise = all->named ? ht_jinja_dict_find_text(all->named, "default", 7) : NULL;
    const ht_jinja_builtin *filter = NULL;
    if (all->n) {
        attribute = NULL;
        if (ht_jinja_is_string(all->positional[0])) filter = ht_jinja_filter_of(all->positional[0].string);
        if (!filter && items && items->n) ht_jinja_arena_fail(r->a, "map needs the name of a filter");
    } else if (!attribute)
        ht_jinja_arena_fail(r->a, "map requires a filter argument");
    for (size_t i = 0; items && i < items->n && ht_jinja_step(r, 1); i++) {
        ht_jinja_value mapped;
        if (attribute) {
            mapped = ht_jinja_path(r, items->items[i], *attribute, otherwise);
        } else {
            ht_jinja_arguments rest = without(all, 1);
            mapped = ht_jinja_call_builtin(r, filter, items->items[i], &rest);
        }
        ht_jinja_list_append(r->a, out, mapped);
    }
    return iterator(out, "generator");
}

FILTER(attr) {
    UNUSED;
    ht_jinja_value name = string_of(r, *with[0]);
    if (!ht_jinja_is_string(name) || ht_jinja_refuse_undefined(r, v)) return ht_jinja_undefined();
    const ht_jinja_builtin *method =
        ht_jinja_method_of(v, name.string->text, name.string->n); /* attributes alone, no items */
    if (method) return ht_jinja_method_value(r, method, v);
    if (v.kind == HT_VALUE_NAMESPACE || v.kind == HT_VALUE_LOOP) return ht_jinja_attribute(r, v, name.string);
    return ht_jinja_undefined_because(r->a, "'%s object' has no attribute '%.60s'", ht_jinja_type_name(v),
                                      name.string->text);
}

static const ht_jinja_builtin filters[] = {
    {"abs", "", 0, absolute},
    {"attr", "name", 1, attr},
    {"batch", "linecount fill_with", 1, batch},
    {"capitalize", "", 0, capitalize},
    {"center", "width", 0, center},
    {"count", "", 0, length},
    {"d", "default_value boolean", 0, default_of},
    {"default", "default_value boolean", 0, default_of},
    {"dictsort", "case_sensitive by reverse", 0, dictsort},
    {"e", "", 0, escape},
    {"escape", "", 0, escape},
    {"first", "", 0, first},
    {"float", "default", 0, to_float},
    {"forceescape", "", 0, force_escape},
    {"format", "*", 0, format},
    {"from_json", "", 0, from_json},
    {"groupby", "attribute default case_sensitive", 1, groupby},
    {"indent", "width first blank", 0, indent},
    {"int", "default base", 0, to_int},
    {"items", "", 0, items_of},
    {"join", "d attribute", 0, join},
    {"last", "", 0, last},
    {"length", "", 0, length},
    {"list", "", 0, list},
    {"lower", "", 0, lower},
    {"map", "*", 0, map},
    {"max", "case_sensitive attribute", 0, largest},
    {"min", "case_sensitive attribute", 0, smallest},
    {"reject", "*", 0, reject},
    {"rejectattr", "*", 0, rejectattr},
    {"replace", "old new count", 2, replace},
    {"reverse", "", 0, reverse},
    {"round", "precision method", 0, rounded},
    {"safe", "", 0, safe},
    {"select", "*", 0, select_items},
    {"selectattr", "*", 0, selectattr},
    {"slice", "slices fill_with", 1, slices},
    {"sort", "reverse case_sensitive attribute", 0, sort},
    {"string", "", 0, string},
    {"sum", "attribute start", 0, sum},
    {"title", "", 0, title},
    {"tojson", "ensure_ascii indent separators sort_keys", 0, tojson},
    {"trim", "chars", 0, trim},
    {"unique", "case_sensitive attribute", 0, unique},
    {"upper", "", 0, upper},
    {"urlencode", "", 0, urlencode},
    {NULL, NULL, 0, NULL},
};

const ht_jinja_builtin *ht_jinja_filter_of(const ht_jinja_string *name) {
    return ht_jinja_builtin_in(filters, name->text, name->n);
}
bool ht_jinja_filter_exists(const ht_jinja_string *name) { return ht_jinja_filter_of(name) != NULL; }
