/* Functions that every template has. */
#include "template/eval.h"

#include <string.h>
#include <time.h>

#define FUNCTION(name)                                                                                                 \
    static ht_jinja_value name(ht_jinja_rendering *r, ht_jinja_value self, const ht_jinja_value *const *with,          \
                               const ht_jinja_arguments *all)
#define UNUSED (void)self, (void)with, (void)all

FUNCTION(range_of) {
    UNUSED;
    int64_t number[3] = {0, 0, 1};
    if (all->n < 1 || all->n > 3 || all->named) {
        ht_jinja_arena_fail(r->a, "range takes one to three numbers");
        return ht_jinja_undefined();
    }
    for (size_t i = 0; i < all->n; i++)
        if (!ht_jinja_as_integer(all->positional[i], &number[all->n == 1 ? 1 : i])) {
            ht_jinja_arena_fail(r->a, "range takes integers, not %s", ht_jinja_type_name(all->positional[i]));
            return ht_jinja_undefined();
        }
    if (!number[2]) {
        ht_jinja_arena_fail(r->a, "range() arg 3 must not be zero");
        return ht_jinja_undefined();
    }
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
        for (size_t i = 0; pairs && i < pairs->n && !r->a->status; i++) {
            const ht_jinja_list *pair = ht_jinja_items(r->a, pairs->items[i]);
            if (pair && pair->n == 2)
                ht_jinja_dict_set(r->a, d, pair->items[0], pair->items[1]);
            else
                ht_jinja_arena_fail(r->a, "a dict is made of pairs");
        }
    }
    for (size_t i = 0; all->named && i < all->named->n; i++)
        ht_jinja_dict_set(r->a, d, all->named->keys[i], all->named->values[i]);
    return d;
}

FUNCTION(dict_of) {
    UNUSED;
    ht_jinja_dict *d = new_dict(r, all);
    return d ? (ht_jinja_value){.kind = HT_VALUE_DICT, .dict = d} : ht_jinja_undefined();
}

FUNCTION(namespace_of) {
    UNUSED;
    ht_jinja_dict *d = new_dict(r, all);
    for (size_t i = 0; d && i < d->n; i++)
        if (ht_jinja_is_string(d->keys[i]) && d->keys[i].string->text[0] == '_')
            ht_jinja_arena_fail(r->a, "a namespace takes no '%.60s'", d->keys[i].string->text);
    return d ? (ht_jinja_value){.kind = HT_VALUE_NAMESPACE, .dict = d} : ht_jinja_undefined();
}

FUNCTION(raise) {
    UNUSED;
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

FUNCTION(time_text) {
    UNUSED;
    char text[256];
    struct tm local;
    time_t now = (time_t)r->now;
    if (!ht_jinja_is_string(*with[0]) || !localtime_r(&now, &local)) {
        ht_jinja_arena_fail(r->a, "strftime_now takes a format");
        return ht_jinja_undefined();
    }
    size_t n = strftime(text, sizeof text, with[0]->string->text, &local);
    return ht_jinja_string_value(ht_jinja_string_new(r->a, text, n, false));
}

static const ht_jinja_builtin functions[] = {
    {"range", "*", 0, range_of},
    {"dict", "*", 0, dict_of},
    {"namespace", "*", 0, namespace_of},
    {"raise_exception", "message", 1, raise},
    {"strftime_now", "format", 1, time_text},
    {NULL, NULL, 0, NULL},
};

const ht_jinja_builtin *ht_jinja_function_of(const char *name, size_t n) {
    return ht_jinja_builtin_in(functions, name, n);
}
