/* Filters: `value | filter`. */
#include "template/eval.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static ht_jinja_value iterator(ht_jinja_list *list, const char *how) {
    ht_jinja_value v = ht_jinja_list_value(HT_VALUE_ITERATOR, list);
    v.how = how;
    return v;
}

/* The text of any value; empty after a failure, so that callers need no check. */
static ht_jinja_value string_of(ht_jinja_rendering *r, ht_jinja_value v) {
    static const ht_jinja_string empty = {.text = ""};
    const ht_jinja_string *s = ht_jinja_to_string(r->a, v);
    if (ht_jinja_is_string(v)) return v;
    return ht_jinja_string_value(s ? s : &empty);
}

/* The string that an argument is; NULL for none or another value. */
static const ht_jinja_string *text_of(const ht_jinja_value *v) {
    return v && ht_jinja_is_string(*v) ? v->string : NULL;
}

static int64_t integer_of(ht_jinja_rendering *r, const ht_jinja_value *v, int64_t otherwise) {
    int64_t i = otherwise;
    if (v && !ht_jinja_as_integer(*v, &i))
        ht_jinja_arena_fail(r->a, "an integer is needed, not %s", ht_jinja_type_name(*v));
    return i;
}

static ht_jinja_value item_of(ht_jinja_rendering *r, ht_jinja_value v, const ht_jinja_value *attribute) {
    return ht_jinja_given(attribute) ? ht_jinja_path(r, v, *attribute, NULL) : v;
}

/* ---- texts ---- */

HT_BUILTIN(change_case) {
    ht_jinja_value s = string_of(r, v);
    return ht_jinja_like(s, ht_jinja_change_case(r, s.string, how));
}

/* Words, which spaces and some brackets begin, as jinja2 has them: the rest of a word keeps no capitals. */
HT_BUILTIN(title) {
    const ht_jinja_string *s = string_of(r, v).string;
    ht_jinja_builder b = {.arena = r->a};
    size_t from = 0;
    for (size_t at = 0; at < s->n && ht_jinja_step(r, 1);) {
        size_t here = at;
        uint32_t c = ht_jinja_string_next(s, &at);
        bool begins = ht_jinja_is_space(c) || (c < 128 && strchr("-({[<", (int)c));
        if (!begins && at < s->n) continue;
        size_t end = begins ? here : at;
        if (end > from) {
            size_t second = from;
            ht_jinja_string_next(s, &second);
            const ht_jinja_string *one = ht_jinja_string_span(r->a, s, from, second),
                                  *rest = ht_jinja_string_span(r->a, s, second, end);
            if (!one || !rest) break;
            ht_jinja_put_string(&b, ht_jinja_change_case(r, one, 'u'));
            ht_jinja_put_string(&b, ht_jinja_change_case(r, rest, 'l'));
        }
        ht_jinja_put_span(&b, s, end, at);
        from = at;
    }
    return ht_jinja_string_value(ht_jinja_built(&b));
}

HT_BUILTIN(trim) {
    ht_jinja_value s = string_of(r, v);
    return ht_jinja_like(s, ht_jinja_strip(r, s.string, text_of(with[0]), true, true));
}

HT_BUILTIN(string) { return string_of(r, v); }

HT_BUILTIN(safe) {
    ht_jinja_value s = string_of(r, v);
    s.markup = true;
    return s;
}

HT_BUILTIN(escape) { return ht_jinja_escape(r, v); }

HT_BUILTIN(force_escape) {
    ht_jinja_value s = string_of(r, v);
    s.markup = false;
    return ht_jinja_escape(r, s);
}

HT_BUILTIN(replace) {
    ht_jinja_value s = string_of(r, v), what = string_of(r, *with[0]), by = string_of(r, *with[1]);
    int64_t most = ht_jinja_given(with[2]) ? integer_of(r, with[2], -1) : -1;
    return ht_jinja_like(s, ht_jinja_replace(r, s.string, what.string, by.string, most));
}

HT_BUILTIN(format) {
    ht_jinja_value values = {.kind = HT_VALUE_DICT, .dict = all->named};
    ht_jinja_list positional = {.items = all->positional, .n = all->n};
    if (all->n && all->named) return ht_jinja_fail(r, "format takes positions or names, not both");
    if (!all->named) values = ht_jinja_list_value(HT_VALUE_TUPLE, &positional);
    return ht_jinja_format_percent(r, string_of(r, v), values);
}

HT_BUILTIN(center) {
    ht_jinja_value s = string_of(r, v), width = with[0] ? *with[0] : ht_jinja_integer(80);
    const ht_jinja_arguments to = {.positional = &width, .n = 1};
    return ht_jinja_call_builtin(r, ht_jinja_method_of(s, "center", 6), s, &to);
}

static const ht_jinja_string *spaces(ht_jinja_rendering *r, int64_t n) {
    ht_jinja_builder b = {.arena = r->a};
    for (int64_t i = 0; i < n && ht_jinja_step(r, 1); i++) ht_jinja_put_text(&b, " ");
    return ht_jinja_built(&b);
}

HT_BUILTIN(indent) {
    ht_jinja_value s = string_of(r, v);
    bool first = ht_jinja_flag(with[1]), blank = ht_jinja_flag(with[2]);
    const ht_jinja_string *by = text_of(with[0]);
    if (ht_jinja_refuse_undefined(r, v)) return ht_jinja_undefined();
    if (!by) by = spaces(r, integer_of(r, with[0], 4));
    ht_jinja_value lines =
        ht_jinja_call_builtin(r, ht_jinja_method_of(s, "splitlines", 10), s, &(ht_jinja_arguments){0});
    if (r->a->status) return ht_jinja_undefined();
    uint32_t last = '\n'; /* a text that ends with a line end has one more line, which is empty */
    for (size_t at = 0; at < s.string->n;) last = ht_jinja_string_next(s.string, &at);
    if (ht_jinja_breaks_line(last)) ht_jinja_list_append(r->a, lines.list, ht_jinja_text_value(r->a, ""));
    ht_jinja_builder b = {.arena = r->a};
    for (size_t i = 0; i < lines.list->n && ht_jinja_step(r, 1); i++) {
        const ht_jinja_string *line = lines.list->items[i].string;
        if (i) ht_jinja_put_text(&b, "\n");
        if (i ? blank || (line && line->n) : first) ht_jinja_put_string(&b, by);
        ht_jinja_put_string(&b, line);
    }
    return ht_jinja_like(s, ht_jinja_built(&b));
}

HT_BUILTIN(urlencode) {
    static const char plain[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.-~/";
    const ht_jinja_string *s = string_of(r, v).string;
    ht_jinja_builder b = {.arena = r->a};
    for (size_t i = 0; i < s->n && ht_jinja_step(r, (i & 63) == 0); i++) {
        char text[8];
        unsigned char c = (unsigned char)s->text[i];
        bool keeps = c && strchr(plain, c);
        snprintf(text, sizeof text, keeps ? "%c" : "%%%02X", c);
        ht_jinja_put(&b, text, strlen(text), ht_jinja_string_input_at(s, i));
    }
    return ht_jinja_string_value(ht_jinja_built(&b));
}

HT_BUILTIN(tojson) {
    const ht_jinja_string *item = NULL, *key = NULL, *indent = NULL;
    if (ht_jinja_given(with[1]))
        indent = ht_jinja_is_string(*with[1]) ? with[1]->string : spaces(r, integer_of(r, with[1], 0));
    if (ht_jinja_given(with[2])) {
        const ht_jinja_list *both = ht_jinja_items(r->a, *with[2]);
        if (!both || both->n != 2 || !ht_jinja_is_string(both->items[0]) || !ht_jinja_is_string(both->items[1]))
            return ht_jinja_fail(r, "separators are two strings");
        item = both->items[0].string;
        key = both->items[1].string;
    }
    return ht_jinja_string_value(
        ht_jinja_json_text(r, v, indent, item, key, ht_jinja_flag(with[3]), ht_jinja_flag(with[0])));
}

HT_BUILTIN(from_json) {
    if (ht_jinja_is_string(v)) return ht_jinja_json_loads(r->a, v.string->text, v.string->n, "from_json");
    ht_jinja_refuse_undefined(r, v);
    return ht_jinja_fail(r, "from_json takes a string, not %s", ht_jinja_type_name(v));
}

/* ---- numbers ---- */

HT_BUILTIN(to_int) {
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

HT_BUILTIN(to_float) {
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

HT_BUILTIN(absolute) {
    int64_t i;
    if (ht_jinja_as_integer(v, &i)) return ht_jinja_integer(i < 0 && i != INT64_MIN ? -i : i);
    if (v.kind == HT_VALUE_FLOAT) return ht_jinja_real(fabs(v.real));
    ht_jinja_refuse_undefined(r, v);
    return ht_jinja_fail(r, "bad operand type for abs(): '%s'", ht_jinja_type_name(v));
}

HT_BUILTIN(rounded) {
    int64_t precision = integer_of(r, with[0], 0), i;
    const ht_jinja_string *method = text_of(with[1]);
    bool up = method && ht_jinja_string_is(method, "ceil"), down = method && ht_jinja_string_is(method, "floor");
    if (method && !up && !down && !ht_jinja_string_is(method, "common"))
        ht_jinja_arena_fail(r->a, "method must be common, ceil or floor");
    if (ht_jinja_refuse_undefined(r, v) || !ht_jinja_is_number(v))
        return ht_jinja_fail(r, "round takes a number, not %s", ht_jinja_type_name(v));
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

HT_BUILTIN(sum) {
    ht_jinja_value total = with[1] ? *with[1] : ht_jinja_integer(0);
    const ht_jinja_list *items = ht_jinja_items(r->a, v);
    if (ht_jinja_is_string(total)) ht_jinja_arena_fail(r->a, "sum() cannot sum strings");
    for (size_t i = 0; i < items->n && ht_jinja_step(r, 1); i++)
        total = ht_jinja_binary(r, "+", total, item_of(r, items->items[i], with[0]));
    return total;
}

/* ---- sequences ---- */

HT_BUILTIN(default_of) {
    bool also_false = ht_jinja_flag(with[1]);
    if (v.kind != HT_VALUE_UNDEFINED && !(also_false && !ht_jinja_truth(v))) return v;
    return with[0] ? *with[0] : ht_jinja_text_value(r->a, "");
}

HT_BUILTIN(length) {
    size_t n;
    if (v.kind == HT_VALUE_LOOP) return ht_jinja_loop_attribute(r, v.object, "length");
    if (!ht_jinja_length(v, &n)) return ht_jinja_fail(r, "object of type '%s' has no len()", ht_jinja_type_name(v));
    return ht_jinja_integer((int64_t)n);
}

static ht_jinja_list *list_of(ht_jinja_rendering *r, ht_jinja_value v) {
    const ht_jinja_list *items = ht_jinja_items(r->a, v);
    ht_jinja_list *copy = ht_jinja_list_new(r->a, items->n);
    for (size_t i = 0; i < items->n && ht_jinja_step(r, 1); i++) ht_jinja_list_append(r->a, copy, items->items[i]);
    return copy;
}

HT_BUILTIN(list) { return ht_jinja_list_value(HT_VALUE_LIST, list_of(r, v)); }

HT_BUILTIN(first) {
    if (v.kind == HT_VALUE_ITERATOR && v.list->next < v.list->n) return v.list->items[v.list->next++];
    const ht_jinja_list *items = ht_jinja_items(r->a, v);
    return items->n ? items->items[0] : ht_jinja_undefined_because(r->a, "No first item, sequence was empty.");
}

HT_BUILTIN(last) {
    if (v.kind == HT_VALUE_ITERATOR) return ht_jinja_fail(r, "'%s' object is not reversible", ht_jinja_type_name(v));
    const ht_jinja_list *items = ht_jinja_items(r->a, v);
    return items->n ? items->items[items->n - 1]
                    : ht_jinja_undefined_because(r->a, "No last item, sequence was empty.");
}

HT_BUILTIN(reverse) {
    const ht_jinja_list *items = ht_jinja_items(r->a, v);
    ht_jinja_list *list = ht_jinja_list_new(r->a, items->n);
    for (size_t i = items->n; i-- > 0 && ht_jinja_step(r, 1);) ht_jinja_list_append(r->a, list, items->items[i]);
    if (!ht_jinja_is_string(v)) return iterator(list, "list_reverseiterator");
    return ht_jinja_join(r, ht_jinja_like(v, ht_jinja_text_value(r->a, "").string), list);
}

HT_BUILTIN(join) {
    ht_jinja_value separator = with[0] ? string_of(r, *with[0]) : ht_jinja_text_value(r->a, "");
    const ht_jinja_list *items = ht_jinja_items(r->a, v);
    ht_jinja_list *texts = ht_jinja_list_new(r->a, items->n);
    for (size_t i = 0; i < items->n && ht_jinja_step(r, 1); i++)
        ht_jinja_list_append(r->a, texts, string_of(r, item_of(r, items->items[i], with[1])));
    separator.markup = false; /* without automatic escaping, texts are joined as they are */
    return ht_jinja_join(r, separator, texts);
}

static ht_jinja_list *pairs_of(ht_jinja_rendering *r, ht_jinja_value v) {
    if (v.kind == HT_VALUE_UNDEFINED) return ht_jinja_list_new(r->a, 0);
    if (v.kind == HT_VALUE_DICT) return ht_jinja_pairs(r, v.dict);
    ht_jinja_arena_fail(r->a, "Can only get item pairs from a mapping.");
    return NULL;
}

HT_BUILTIN(items_of) { return iterator(pairs_of(r, v), "generator"); }

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

void ht_jinja_sort(ht_jinja_rendering *r, ht_jinja_list *list, const ht_jinja_sorting *by) {
    keyed *items = list ? ht_jinja_arena_alloc(r->a, (list->n + 1) * sizeof *items) : NULL,
          *room = list ? ht_jinja_arena_alloc(r->a, (list->n + 1) * sizeof *room) : NULL;
    if (!items || !room) return;
    /* Several attributes with commas between are compared one after the other. */
    ht_jinja_value attribute = by->attribute ? *by->attribute : ht_jinja_none();
    const ht_jinja_list one = {.items = &attribute, .n = by->attribute != NULL}, *paths = &one;
    if (ht_jinja_is_string(attribute))
        paths = ht_jinja_split(r, attribute.string, ht_jinja_string_new(r->a, ",", 1, false), -1, false);
    for (size_t i = 0; i < list->n && !r->a->status; i++) {
        const ht_jinja_value item = list->items[i];
        ht_jinja_list *key = ht_jinja_list_new(r->a, 1);
        for (size_t j = 0; j < paths->n; j++)
            ht_jinja_list_append(r->a, key,
                                 sort_key(r, ht_jinja_path(r, item, paths->items[j], by->otherwise), by->ignores_case));
        if (!paths->n) ht_jinja_list_append(r->a, key, sort_key(r, item, by->ignores_case));
        items[i] = (keyed){key && key->n == 1 ? key->items[0] : ht_jinja_list_value(HT_VALUE_LIST, key), item};
    }
    if (r->a->status) return;
    merge(r, items, room, list->n, by->reverse);
    for (size_t i = 0; i < list->n; i++) list->items[i] = items[i].v;
}

HT_BUILTIN(sort) {
    ht_jinja_list *copy = list_of(r, v);
    ht_jinja_sort(r, copy,
                  &(ht_jinja_sorting){.attribute = ht_jinja_given(with[2]) ? with[2] : NULL,
                                      .ignores_case = !ht_jinja_flag(with[1]),
                                      .reverse = ht_jinja_flag(with[0])});
    return ht_jinja_list_value(HT_VALUE_LIST, copy);
}

HT_BUILTIN(dictsort) {
    const ht_jinja_string *by = text_of(with[1]);
    const bool by_value = by && ht_jinja_string_is(by, "value");
    if (with[1] && !by_value && !(by && ht_jinja_string_is(by, "key")))
        ht_jinja_arena_fail(r->a, "You can only sort by either \"key\" or \"value\"");
    if (ht_jinja_refuse_undefined(r, v)) return v;
    ht_jinja_list *pairs = pairs_of(r, v);
    const ht_jinja_value part = ht_jinja_integer(by_value);
    ht_jinja_sort(r, pairs,
                  &(ht_jinja_sorting){
                      .attribute = &part, .ignores_case = !ht_jinja_flag(with[0]), .reverse = ht_jinja_flag(with[2])});
    return ht_jinja_list_value(HT_VALUE_LIST, pairs);
}

HT_BUILTIN(unique) {
    const ht_jinja_list *items = ht_jinja_items(r->a, v);
    ht_jinja_list *out = ht_jinja_list_new(r->a, 0);
    ht_jinja_dict *seen = ht_jinja_dict_new(r->a);
    bool ignores_case = !ht_jinja_flag(with[0]);
    for (size_t i = 0; seen && i < items->n && ht_jinja_step(r, 1); i++) {
        ht_jinja_value key = sort_key(r, item_of(r, items->items[i], with[1]), ignores_case);
        if (ht_jinja_dict_find(r->a, seen, key)) continue;
        ht_jinja_dict_set(r->a, seen, key, ht_jinja_none());
        ht_jinja_list_append(r->a, out, items->items[i]);
    }
    return iterator(out, "generator");
}

/* The largest item, or the smallest. */
HT_BUILTIN(extreme) {
    const int sign = how == '>' ? 1 : -1;
    const ht_jinja_list *items = ht_jinja_items(r->a, v);
    bool ignores_case = !ht_jinja_flag(with[0]);
    ht_jinja_value best = ht_jinja_undefined_because(r->a, "No aggregated item, sequence was empty."), best_key = best;
    for (size_t i = 0; i < items->n && ht_jinja_step(r, 1); i++) {
        ht_jinja_value key = sort_key(r, item_of(r, items->items[i], with[1]), ignores_case);
        if (i && ht_jinja_order(r->a, key, best_key) * sign <= 0) continue;
        best = items->items[i];
        best_key = key;
    }
    return best;
}

HT_BUILTIN(batch) {
    const ht_jinja_list *items = ht_jinja_items(r->a, v);
    int64_t n = integer_of(r, with[0], 1);
    ht_jinja_list *out = ht_jinja_list_new(r->a, 0), *row = NULL;
    for (size_t i = 0; i < items->n && ht_jinja_step(r, 1); i++) {
        if (!row || (int64_t)row->n == n) {
            row = ht_jinja_list_new(r->a, 0);
            ht_jinja_list_append(r->a, out, ht_jinja_list_value(HT_VALUE_LIST, row));
        }
        ht_jinja_list_append(r->a, row, items->items[i]);
    }
    while (ht_jinja_given(with[1]) && row && (int64_t)row->n < n && ht_jinja_step(r, 1))
        ht_jinja_list_append(r->a, row, *with[1]);
    return iterator(out, "generator");
}

HT_BUILTIN(slices) {
    const ht_jinja_list *items = ht_jinja_items(r->a, v);
    int64_t n = integer_of(r, with[0], 1);
    if (n < 1) return ht_jinja_fail(r, "slices are 1 or more");
    ht_jinja_list *out = ht_jinja_list_new(r->a, 0);
    size_t each = items->n / (size_t)n, more = items->n % (size_t)n, at = 0;
    for (size_t i = 0; i < (size_t)n && ht_jinja_step(r, 1); i++) {
        ht_jinja_list *row = ht_jinja_list_new(r->a, 0);
        for (size_t j = 0; j < each + (i < more); j++) ht_jinja_list_append(r->a, row, items->items[at++]);
        if (ht_jinja_given(with[1]) && i >= more) ht_jinja_list_append(r->a, row, *with[1]);
        ht_jinja_list_append(r->a, out, ht_jinja_list_value(HT_VALUE_LIST, row));
    }
    return iterator(out, "generator");
}

HT_BUILTIN(groupby) {
    ht_jinja_list *items = list_of(r, v);
    bool ignores_case = !ht_jinja_flag(with[2]);
    ht_jinja_sort(r, items,
                  &(ht_jinja_sorting){.attribute = with[0], .otherwise = with[1], .ignores_case = ignores_case});
    if (r->a->status) return ht_jinja_undefined();
    ht_jinja_list *out = ht_jinja_list_new(r->a, 0), *group = NULL;
    ht_jinja_value last = ht_jinja_undefined();
    for (size_t i = 0; i < items->n && ht_jinja_step(r, 1); i++) {
        ht_jinja_value key = ht_jinja_path(r, items->items[i], *with[0], with[1]);
        ht_jinja_value compared = sort_key(r, key, ignores_case);
        if (!group || !ht_jinja_equal(r->a, compared, last)) {
            group = ht_jinja_list_new(r->a, 0);
            ht_jinja_value named = ht_jinja_pair(r->a, key, ht_jinja_list_value(HT_VALUE_LIST, group));
            named.how = "_GroupTuple";
            ht_jinja_list_append(r->a, out, named);
        }
        ht_jinja_list_append(r->a, group, items->items[i]);
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

/* Items of any value; a false value has none. */
static const ht_jinja_list *items_or_none(ht_jinja_rendering *r, ht_jinja_value v) {
    return ht_jinja_items(r->a, ht_jinja_truth(v) ? v : ht_jinja_undefined());
}

/* select, reject, selectattr and rejectattr. */
HT_BUILTIN(choose) {
    const bool keeps = how == 's' || how == 'S', by_attribute = how == 'S' || how == 'R';
    const ht_jinja_list *items = items_or_none(r, v);
    ht_jinja_list *out = ht_jinja_list_new(r->a, 0);
    if (by_attribute && !all->n) ht_jinja_arena_fail(r->a, "Missing parameter for attribute name");
    for (size_t i = 0; i < items->n && ht_jinja_step(r, 1); i++) {
        ht_jinja_value of =
            by_attribute ? ht_jinja_path(r, items->items[i], all->positional[0], NULL) : items->items[i];
        if (passes(r, of, all, by_attribute) == keeps) ht_jinja_list_append(r->a, out, items->items[i]);
    }
    return iterator(out, "generator");
}

HT_BUILTIN(map) {
    const ht_jinja_list *items = items_or_none(r, v);
    ht_jinja_list *out = ht_jinja_list_new(r->a, 0);
    const ht_jinja_value *attribute = all->named ? ht_jinja_dict_find_text(all->named, "attribute", 9) : NULL;
    const ht_jinja_value *otherwise = all->named ? ht_jinja_dict_find_text(all->named, "default", 7) : NULL;
    const ht_jinja_builtin *filter = NULL;
    if (all->n) {
        attribute = NULL;
        if (ht_jinja_is_string(all->positional[0])) filter = ht_jinja_filter_of(all->positional[0].string);
        if (!filter && items->n) ht_jinja_arena_fail(r->a, "map needs the name of a filter");
    } else if (!attribute)
        ht_jinja_arena_fail(r->a, "map requires a filter argument");
    for (size_t i = 0; i < items->n && ht_jinja_step(r, 1); i++) {
        const ht_jinja_arguments rest = attribute ? (ht_jinja_arguments){0} : without(all, 1);
        ht_jinja_list_append(r->a, out,
                             attribute ? ht_jinja_path(r, items->items[i], *attribute, otherwise)
                                       : ht_jinja_call_builtin(r, filter, items->items[i], &rest));
    }
    return iterator(out, "generator");
}

HT_BUILTIN(attr) {
    const ht_jinja_string *name = string_of(r, *with[0]).string;
    if (ht_jinja_refuse_undefined(r, v)) return ht_jinja_undefined();
    const ht_jinja_builtin *method = ht_jinja_method_of(v, name->text, name->n); /* only attributes, no items */
    if (method) return ht_jinja_method_value(r, method, v);
    if (v.kind == HT_VALUE_NAMESPACE || v.kind == HT_VALUE_LOOP) return ht_jinja_attribute(r, v, name);
    return ht_jinja_undefined_because(r->a, "'%s object' has no attribute '%.60s'", ht_jinja_type_name(v), name->text);
}

static const ht_jinja_builtin filters[] = {
    {"abs", "", 0, absolute, 0},
    {"attr", "name", 1, attr, 0},
    {"batch", "linecount fill_with", 1, batch, 0},
    {"capitalize", "", 0, change_case, 'c'},
    {"center", "width", 0, center, 0},
    {"count", "", 0, length, 0},
    {"d", "default_value boolean", 0, default_of, 0},
    {"default", "default_value boolean", 0, default_of, 0},
    {"dictsort", "case_sensitive by reverse", 0, dictsort, 0},
    {"e", "", 0, escape, 0},
    {"escape", "", 0, escape, 0},
    {"first", "", 0, first, 0},
    {"float", "default", 0, to_float, 0},
    {"forceescape", "", 0, force_escape, 0},
    {"format", "*", 0, format, 0},
    {"from_json", "", 0, from_json, 0},
    {"groupby", "attribute default case_sensitive", 1, groupby, 0},
    {"indent", "width first blank", 0, indent, 0},
    {"int", "default base", 0, to_int, 0},
    {"items", "", 0, items_of, 0},
    {"join", "d attribute", 0, join, 0},
    {"last", "", 0, last, 0},
    {"length", "", 0, length, 0},
    {"list", "", 0, list, 0},
    {"lower", "", 0, change_case, 'l'},
    {"map", "*", 0, map, 0},
    {"max", "case_sensitive attribute", 0, extreme, '>'},
    {"min", "case_sensitive attribute", 0, extreme, '<'},
    {"reject", "*", 0, choose, 'r'},
    {"rejectattr", "*", 0, choose, 'R'},
    {"replace", "old new count", 2, replace, 0},
    {"reverse", "", 0, reverse, 0},
    {"round", "precision method", 0, rounded, 0},
    {"safe", "", 0, safe, 0},
    {"select", "*", 0, choose, 's'},
    {"selectattr", "*", 0, choose, 'S'},
    {"slice", "slices fill_with", 1, slices, 0},
    {"sort", "reverse case_sensitive attribute", 0, sort, 0},
    {"string", "", 0, string, 0},
    {"sum", "attribute start", 0, sum, 0},
    {"title", "", 0, title, 0},
    {"tojson", "ensure_ascii indent separators sort_keys", 0, tojson, 0},
    {"trim", "chars", 0, trim, 0},
    {"unique", "case_sensitive attribute", 0, unique, 0},
    {"upper", "", 0, change_case, 'u'},
    {"urlencode", "", 0, urlencode, 0},
    {NULL, NULL, 0, NULL, 0},
};

const ht_jinja_builtin *ht_jinja_filter_of(const ht_jinja_string *name) {
    return ht_jinja_builtin_in(filters, name->text, name->n);
}
