/* Methods of strings, dicts and lists, as Python's. */
#include "template/eval.h"

#include <string.h>
#include <utf8proc.h>

static const ht_jinja_string *text_of(ht_jinja_rendering *r, const ht_jinja_value *v, const char *what) {
    if (ht_jinja_is_string(*v)) return v->string;
    if (!ht_jinja_refuse_undefined(r, *v))
        ht_jinja_arena_fail(r->a, "%s takes a string, not %s", what, ht_jinja_type_name(*v));
    return NULL;
}

/* An optional text, absent if None; false after a failure. */
static bool optional_text(ht_jinja_rendering *r, const ht_jinja_value *v, const char *what,
                          const ht_jinja_string **out) {
    *out = NULL;
    if (!v || v->kind == HT_VALUE_NONE) return true;
    *out = text_of(r, v, what);
    return *out != NULL;
}

static int64_t integer_of(ht_jinja_rendering *r, const ht_jinja_value *v, const char *what, int64_t otherwise) {
    int64_t i = otherwise;
    if (v && !ht_jinja_as_integer(*v, &i))
        ht_jinja_arena_fail(r->a, "%s takes an integer, not %s", what, ht_jinja_type_name(*v));
    return i;
}

/* ---- cutting ---- */

static bool in_set(const ht_jinja_string *set, uint32_t c) {
    if (!set) return ht_jinja_is_space(c);
    for (size_t at = 0; at < set->n;)
        if (ht_jinja_string_next(set, &at) == c) return true;
    return false;
}

const ht_jinja_string *ht_jinja_strip(ht_jinja_rendering *r, const ht_jinja_string *s, const ht_jinja_string *set,
                                      bool left, bool right) {
    size_t from = 0, to = s->n, end;
    if (!ht_jinja_step(r, s->n / 64 * (set ? set->n + 1 : 1))) return s;
    for (size_t at = 0; left && at < s->n; from = at)
        if (!in_set(set, ht_jinja_string_next(s, &at))) break;
    end = right ? from : to;
    for (size_t at = from; right && at < s->n;)
        if (!in_set(set, ht_jinja_string_next(s, &at))) end = at;
    return ht_jinja_string_span(r->a, s, from, end);
}

static ht_jinja_list *split_space(ht_jinja_rendering *r, const ht_jinja_string *s, int64_t most) {
    ht_jinja_list *list = ht_jinja_list_new(r->a, 0);
    size_t at = 0;
    while (list && at < s->n && ht_jinja_step(r, 1)) {
        size_t from = at, to;
        if (ht_jinja_is_space(ht_jinja_string_next(s, &at))) continue;
        if (most >= 0 && (int64_t)list->n == most) {
            ht_jinja_list_append(r->a, list, ht_jinja_string_value(ht_jinja_string_span(r->a, s, from, s->n)));
            break;
        }
        for (to = at; at < s->n; to = at)
            if (ht_jinja_is_space(ht_jinja_string_next(s, &at))) break;
        ht_jinja_list_append(r->a, list, ht_jinja_string_value(ht_jinja_string_span(r->a, s, from, to)));
    }
    return list;
}

static ht_jinja_list *split_space_from_right(ht_jinja_rendering *r, const ht_jinja_string *s, int64_t most) {
    ht_jinja_list *words = split_space(r, s, -1), *list = ht_jinja_list_new(r->a, 0);
    if (!words || !list || most < 0 || (int64_t)words->n <= most) return words;
    /* The last words equal those of a full split; the text before them stays in one piece. */
    size_t at = s->n, n_last = (size_t)most;
    for (size_t i = 0; i < n_last; i++) {
        const ht_jinja_string *word = words->items[words->n - 1 - i].string;
        while (at && memcmp(s->text + at - word->n, word->text, word->n)) at--;
        at -= word->n;
    }
    const ht_jinja_string *before = ht_jinja_string_span(r->a, s, 0, at);
    if (before) ht_jinja_list_append(r->a, list, ht_jinja_string_value(ht_jinja_strip(r, before, NULL, false, true)));
    for (size_t i = words->n - n_last; i < words->n; i++) ht_jinja_list_append(r->a, list, words->items[i]);
    return list;
}

ht_jinja_list *ht_jinja_split(ht_jinja_rendering *r, const ht_jinja_string *s, const ht_jinja_string *separator,
                              int64_t most, bool from_right) {
    if (!ht_jinja_step(r, s->n / 64)) return NULL;
    if (!separator) return from_right ? split_space_from_right(r, s, most) : split_space(r, s, most);
    if (!separator->n) {
        ht_jinja_arena_fail(r->a, "empty separator");
        return NULL;
    }
    size_t n = 0, from = 0, skip = 0;
    for (const char *at = s->text; (at = memmem(at, s->n - (size_t)(at - s->text), separator->text, separator->n));
         at += separator->n)
        n++;
    if (from_right && most >= 0 && n > (size_t)most) skip = n - (size_t)most;
    ht_jinja_list *list = ht_jinja_list_new(r->a, 0);
    const char *search = s->text, *at;
    while (list && !r->a->status &&
           (at = memmem(search, s->n - (size_t)(search - s->text), separator->text, separator->n))) {
        search = at + separator->n;
        if (skip && skip--) continue;
        if (!from_right && most >= 0 && (int64_t)list->n == most) break;
        ht_jinja_list_append(r->a, list,
                             ht_jinja_string_value(ht_jinja_string_span(r->a, s, from, (size_t)(at - s->text))));
        from = (size_t)(search - s->text);
    }
    ht_jinja_list_append(r->a, list, ht_jinja_string_value(ht_jinja_string_span(r->a, s, from, s->n)));
    return list;
}

/* split, or rsplit. */
HT_BUILTIN(split) {
    const ht_jinja_string *separator;
    int64_t most = integer_of(r, with[1], "split", -1);
    if (!optional_text(r, with[0], "split", &separator)) return ht_jinja_undefined();
    ht_jinja_list *list = ht_jinja_split(r, v.string, separator, most, how == 'r');
    for (size_t i = 0; list && i < list->n; i++) list->items[i].markup = v.markup;
    return ht_jinja_list_value(HT_VALUE_LIST, list);
}

bool ht_jinja_breaks_line(uint32_t c) {
    return (c >= 10 && c <= 13) || (c >= 28 && c <= 30) || c == 0x85 || c == 0x2028 || c == 0x2029;
}

HT_BUILTIN(splitlines) {
    ht_jinja_list *list = ht_jinja_list_new(r->a, 0);
    const ht_jinja_string *s = v.string;
    bool keeps = ht_jinja_flag(with[0]);
    size_t from = 0, at = 0;
    while (at < s->n && ht_jinja_step(r, 1)) {
        size_t end = at;
        uint32_t c = ht_jinja_string_next(s, &at);
        if (!ht_jinja_breaks_line(c)) continue;
        if (c == '\r' && at < s->n && s->text[at] == '\n') at++;
        ht_jinja_list_append(r->a, list, ht_jinja_like(v, ht_jinja_string_span(r->a, s, from, keeps ? at : end)));
        from = at;
    }
    if (from < s->n) ht_jinja_list_append(r->a, list, ht_jinja_like(v, ht_jinja_string_span(r->a, s, from, s->n)));
    return ht_jinja_list_value(HT_VALUE_LIST, list);
}

/* strip, lstrip or rstrip. */
HT_BUILTIN(strip) {
    const ht_jinja_string *set;
    if (!optional_text(r, with[0], "strip", &set)) return ht_jinja_undefined();
    return ht_jinja_like(v, ht_jinja_strip(r, v.string, set, how != 'r', how != 'l'));
}

/* partition, or rpartition. */
HT_BUILTIN(partition) {
    const bool last = how == 'r';
    const ht_jinja_string *s = v.string, *separator = text_of(r, with[0], "partition");
    ht_jinja_list *list = ht_jinja_list_new(r->a, 3);
    if (!separator || !list) return ht_jinja_undefined();
    if (!separator->n) ht_jinja_arena_fail(r->a, "empty separator");
    const char *found = NULL, *at = s->text;
    while (!r->a->status && (at = memmem(at, s->n - (size_t)(at - s->text), separator->text, separator->n))) {
        found = at;
        if (!last) break;
        at++;
    }
    size_t from = found ? (size_t)(found - s->text) : last ? 0 : s->n, to = found ? from + separator->n : from;
    ht_jinja_list_append(r->a, list, ht_jinja_like(v, ht_jinja_string_span(r->a, s, 0, from)));
    ht_jinja_list_append(r->a, list, ht_jinja_like(v, ht_jinja_string_span(r->a, s, from, to)));
    ht_jinja_list_append(r->a, list, ht_jinja_like(v, ht_jinja_string_span(r->a, s, to, s->n)));
    return ht_jinja_list_value(HT_VALUE_TUPLE, list);
}

/* ---- searching ---- */

/* Byte range of v from the arguments `start` and `end`; false when start > end. */
static bool part_of(ht_jinja_rendering *r, ht_jinja_value v, const ht_jinja_value *const *with, size_t *from,
                    size_t *to) {
    int64_t n = (int64_t)v.string->chars, begin = 0, end = n;
    if (with[1] && with[1]->kind != HT_VALUE_NONE) begin = integer_of(r, with[1], "the start", 0);
    if (with[2] && with[2]->kind != HT_VALUE_NONE) end = integer_of(r, with[2], "the end", 0);
    begin = begin < 0 ? (begin + n < 0 ? 0 : begin + n) : begin;
    end = end < 0 ? (end + n < 0 ? 0 : end + n) : end > n ? n : end;
    if (begin > end) return false;
    *from = ht_jinja_string_offset(v.string, (size_t)begin);
    *to = ht_jinja_string_offset(v.string, (size_t)end);
    return !r->a->status;
}

static bool ends_with_one(ht_jinja_rendering *r, ht_jinja_value v, const ht_jinja_value *const *with,
                          ht_jinja_value what, bool start) {
    size_t from, to;
    if (!ht_jinja_is_string(what)) {
        if (!ht_jinja_refuse_undefined(r, what))
            ht_jinja_arena_fail(r->a, "startswith and endswith take a string or a tuple of strings, not %s",
                                ht_jinja_type_name(what));
        return false;
    }
    if (!part_of(r, v, with, &from, &to) || what.string->n > to - from) return false;
    return !memcmp(v.string->text + (start ? from : to - what.string->n), what.string->text, what.string->n);
}

/* startswith, or endswith. */
HT_BUILTIN(ends_with) {
    const ht_jinja_value what = *with[0];
    const ht_jinja_list one = {.items = (ht_jinja_value[]){what}, .n = 1},
                        *texts = what.kind == HT_VALUE_TUPLE ? what.list : &one;
    bool found = false;
    for (size_t i = 0; i < texts->n && !found; i++) found = ends_with_one(r, v, with, texts->items[i], how == 's');
    return ht_jinja_boolean(found);
}

/* Index of the first or last match in characters, or -1. */
static int64_t find_in(ht_jinja_rendering *r, ht_jinja_value v, const ht_jinja_value *const *with, bool last) {
    const ht_jinja_string *s = v.string, *what = text_of(r, with[0], "find");
    size_t from, to, chars = 0;
    if (!what || !part_of(r, v, with, &from, &to)) return -1;
    const char *found = NULL, *at = s->text + from;
    while (ht_jinja_step(r, 1) && (at = memmem(at, to - (size_t)(at - s->text), what->text, what->n))) {
        found = at;
        if (!last || at == s->text + to) break;
        at++;
    }
    if (!found) return -1;
    for (const char *p = s->text; p < found; p++) chars += (*p & 0xC0) != 0x80;
    return (int64_t)chars;
}

/* find or rfind, or else index or rindex, for which there must be one. */
HT_BUILTIN(find) {
    int64_t at = find_in(r, v, with, how == 'r' || how == 'R');
    if (at < 0 && (how == 'I' || how == 'R')) ht_jinja_arena_fail(r->a, "substring not found");
    return ht_jinja_integer(at);
}

HT_BUILTIN(string_count) {
    const ht_jinja_string *what = text_of(r, with[0], "count");
    size_t from, to;
    int64_t n = 0;
    if (!what || !part_of(r, v, with, &from, &to)) return ht_jinja_integer(0);
    if (!what->n) {
        for (size_t i = from; i < to; i++) n += (v.string->text[i] & 0xC0) != 0x80;
        return ht_jinja_integer(n + 1);
    }
    const char *at = v.string->text + from;
    while ((at = memmem(at, to - (size_t)(at - v.string->text), what->text, what->n))) {
        n++;
        at += what->n;
    }
    return ht_jinja_integer(n);
}

/* ---- making ---- */

const ht_jinja_string *ht_jinja_replace(ht_jinja_rendering *r, const ht_jinja_string *s, const ht_jinja_string *what,
                                        const ht_jinja_string *with, int64_t most) {
    ht_jinja_builder b = {.arena = r->a};
    size_t from = 0;
    if (!what->n) { /* between all characters */
        for (size_t at = 0; most && ht_jinja_step(r, 1); most -= most > 0) {
            ht_jinja_put_string(&b, with);
            if (at >= s->n) return ht_jinja_built(&b);
            ht_jinja_string_next(s, &at);
            ht_jinja_put_span(&b, s, from, at);
            from = at;
        }
    } else
        while (most && ht_jinja_step(r, 1)) {
            const char *at = memmem(s->text + from, s->n - from, what->text, what->n);
            if (!at) break;
            ht_jinja_put_span(&b, s, from, (size_t)(at - s->text));
            ht_jinja_put_string(&b, with);
            from = (size_t)(at - s->text) + what->n;
            most -= most > 0;
        }
    if (!from && what->n) return s;
    ht_jinja_put_span(&b, s, from, s->n);
    return ht_jinja_built(&b);
}

HT_BUILTIN(replace) {
    const ht_jinja_string *what = text_of(r, with[0], "replace"), *by = text_of(r, with[1], "replace");
    int64_t most = integer_of(r, with[2], "replace", -1);
    if (!what || !by) return ht_jinja_undefined();
    if (v.markup) {
        what = ht_jinja_escape(r, *with[0]).string;
        by = ht_jinja_escape(r, *with[1]).string;
    }
    return what && by ? ht_jinja_like(v, ht_jinja_replace(r, v.string, what, by, most)) : ht_jinja_undefined();
}

ht_jinja_value ht_jinja_join(ht_jinja_rendering *r, ht_jinja_value separator, const ht_jinja_list *items) {
    ht_jinja_builder b = {.arena = r->a};
    if (r->a->status) return ht_jinja_undefined(); /* there may be no list */
    for (size_t i = 0; i < items->n && ht_jinja_step(r, 1); i++) {
        ht_jinja_value item = items->items[i];
        if (i) ht_jinja_put_string(&b, separator.string);
        ht_jinja_put_string(&b, separator.markup ? ht_jinja_escape(r, item).string : ht_jinja_to_string(r->a, item));
    }
    return ht_jinja_like(separator, ht_jinja_built(&b));
}

HT_BUILTIN(join) {
    const ht_jinja_list *items = ht_jinja_items(r->a, *with[0]);
    for (size_t i = 0; i < items->n; i++)
        if (!ht_jinja_is_string(items->items[i]))
            return ht_jinja_fail(r, "join takes strings, item %zu is %s", i, ht_jinja_type_name(items->items[i]));
    return ht_jinja_join(r, v, items);
}

static bool is_cased(uint32_t c) {
    utf8proc_category_t k = utf8proc_category((utf8proc_int32_t)c);
    return k == UTF8PROC_CATEGORY_LU || k == UTF8PROC_CATEGORY_LL || k == UTF8PROC_CATEGORY_LT;
}

/* Upper case of letters that have it in several characters only. */
static const char *long_upper(uint32_t c, bool title) {
    switch (c) {
    case 0xDF: return title ? "Ss" : "SS";
    case 0x149: return "\u02bcN";
    case 0xFB00: return title ? "Ff" : "FF";
    case 0xFB01: return title ? "Fi" : "FI";
    case 0xFB02: return title ? "Fl" : "FL";
    default: return NULL;
    }
}

static void put_case(ht_jinja_builder *b, uint32_t c, char how, bool input) {
    const char *text = how == 'u' || how == 't' ? long_upper(c, how == 't') : NULL;
    if (how == 'l' && c == 0x130) text = "i\u0307";
    if (text) {
        ht_jinja_put(b, text, strlen(text), input);
        return;
    }
    utf8proc_int32_t p = (utf8proc_int32_t)c;
    ht_jinja_put_code_point(b,
                            (uint32_t)(how == 'u'   ? utf8proc_toupper(p)
                                       : how == 't' ? utf8proc_totitle(p)
                                                    : utf8proc_tolower(p)),
                            input);
}

/* Whether the sigma that ends at `at` ends its word. */
static bool is_final_sigma(const ht_jinja_string *s, size_t at, bool after_letter) {
    return after_letter && (at >= s->n || !is_cased(ht_jinja_string_next(s, &at)));
}

const ht_jinja_string *ht_jinja_change_case(ht_jinja_rendering *r, const ht_jinja_string *s, char how) {
    ht_jinja_builder b = {.arena = r->a};
    bool after_letter = false;
    for (size_t at = 0; at < s->n && ht_jinja_step(r, (at & 63) == 0);) {
        size_t from = at;
        uint32_t c = ht_jinja_string_next(s, &at);
        char to = how;
        if (how == 'c') to = from == 0 ? 't' : 'l';
        if (how == 't') to = after_letter ? 'l' : 't';
        if (how == 's') to = utf8proc_category((utf8proc_int32_t)c) == UTF8PROC_CATEGORY_LU ? 'l' : 'u';
        bool input = ht_jinja_string_input_at(s, from);
        if (to == 'l' && c == 0x3A3 && is_final_sigma(s, at, after_letter))
            ht_jinja_put_code_point(&b, 0x3C2, input);
        else
            put_case(&b, c, to, input);
        after_letter = is_cased(c);
    }
    return ht_jinja_built(&b);
}

HT_BUILTIN(change_case) { return ht_jinja_like(v, ht_jinja_change_case(r, v.string, how)); }

HT_BUILTIN(casefold) {
    ht_jinja_builder b = {.arena = r->a};
    utf8proc_int32_t folded[4]; /* full case folding has three at most */
    for (size_t at = 0; at < v.string->n && ht_jinja_step(r, (at & 63) == 0);) {
        const bool input = ht_jinja_string_input_at(v.string, at);
        const utf8proc_int32_t c = (utf8proc_int32_t)ht_jinja_string_next(v.string, &at);
        const utf8proc_ssize_t n = utf8proc_decompose_char(c, folded, 4, UTF8PROC_CASEFOLD, NULL);
        for (utf8proc_ssize_t i = 0; i < n; i++) ht_jinja_put_code_point(&b, (uint32_t)folded[i], input);
    }
    return ht_jinja_like(v, ht_jinja_built(&b));
}

/* Whether a text is not empty and all its characters are of a kind. */
static bool all_are(const ht_jinja_string *s, bool (*is)(uint32_t c)) {
    for (size_t at = 0; at < s->n;)
        if (!is(ht_jinja_string_next(s, &at))) return false;
    return s->n > 0;
}

static bool is_decimal(uint32_t c) { return utf8proc_category((utf8proc_int32_t)c) == UTF8PROC_CATEGORY_ND; }

static bool is_digit(uint32_t c) {
    return is_decimal(c) || c == 0xB2 || c == 0xB3 || c == 0xB9 || c == 0x2070 || (c >= 0x2074 && c <= 0x2079) ||
           (c >= 0x2080 && c <= 0x2089);
}

static bool is_numeric(uint32_t c) {
    utf8proc_category_t k = utf8proc_category((utf8proc_int32_t)c);
    return k == UTF8PROC_CATEGORY_ND || k == UTF8PROC_CATEGORY_NL || k == UTF8PROC_CATEGORY_NO;
}

static bool is_alpha(uint32_t c) {
    utf8proc_category_t k = utf8proc_category((utf8proc_int32_t)c);
    return is_cased(c) || k == UTF8PROC_CATEGORY_LM || k == UTF8PROC_CATEGORY_LO;
}

static bool is_alnum(uint32_t c) { return is_alpha(c) || is_numeric(c); }

/* isdecimal, isdigit ... */
HT_BUILTIN(all_are_of) {
    static bool (*const kinds[])(uint32_t c) = {['0'] = is_decimal, ['d'] = is_digit, ['n'] = is_numeric,
                                                ['a'] = is_alpha,   ['w'] = is_alnum, ['s'] = ht_jinja_is_space};
    return ht_jinja_boolean(all_are(v.string, kinds[(int)how]));
}

/* isupper, or islower. */
HT_BUILTIN(has_case) { return ht_jinja_boolean(ht_jinja_has_case(v.string, how == 'u')); }

static int64_t missing(ht_jinja_rendering *r, ht_jinja_value v, const ht_jinja_value *width) {
    int64_t n = integer_of(r, width, "a width", 0), chars = (int64_t)v.string->chars;
    return n > chars ? n - chars : 0;
}

/* center, ljust and rjust. */
HT_BUILTIN(justify) {
    const int64_t n = missing(r, v, with[0]), width = n + (int64_t)v.string->chars;
    const int64_t left = how == 'l' ? 0 : how == 'r' ? n : n / 2 + (n & width & 1);
    const ht_jinja_string *filling =
        with[1] ? text_of(r, with[1], "filling") : ht_jinja_string_new(r->a, " ", 1, false);
    ht_jinja_builder b = {.arena = r->a};
    if (!filling) return ht_jinja_undefined();
    if (filling->chars != 1) ht_jinja_arena_fail(r->a, "The fill character must be exactly one character long");
    if (n > (int64_t)r->output_limit) ht_jinja_arena_fail_as(r->a, HT_ERR_LIMIT, "a text that is too long");
    for (int64_t i = 0; i < left && ht_jinja_step(r, 1); i++) ht_jinja_put_string(&b, filling);
    ht_jinja_put_string(&b, v.string);
    for (int64_t i = left; i < n && ht_jinja_step(r, 1); i++) ht_jinja_put_string(&b, filling);
    return ht_jinja_like(v, ht_jinja_built(&b));
}

HT_BUILTIN(zfill) {
    int64_t n = missing(r, v, with[0]);
    const ht_jinja_string *s = v.string;
    bool sign = s->n && (s->text[0] == '+' || s->text[0] == '-');
    if (n > (int64_t)r->output_limit) ht_jinja_arena_fail_as(r->a, HT_ERR_LIMIT, "a text that is too long");
    ht_jinja_builder b = {.arena = r->a};
    ht_jinja_put_span(&b, s, 0, sign);
    for (int64_t i = 0; i < n && ht_jinja_step(r, 1); i++) ht_jinja_put_text(&b, "0");
    ht_jinja_put_span(&b, s, sign, s->n);
    return ht_jinja_like(v, ht_jinja_built(&b));
}

/* removeprefix, or removesuffix. */
HT_BUILTIN(remove_end) {
    const bool is_prefix = how == 'p';
    const ht_jinja_string *s = v.string, *what = text_of(r, with[0], is_prefix ? "removeprefix" : "removesuffix");
    if (!what || what->n > s->n) return v;
    const size_t rest = s->n - what->n;
    if (memcmp(s->text + (is_prefix ? 0 : rest), what->text, what->n)) return v;
    return ht_jinja_like(v, ht_jinja_string_span(r->a, s, is_prefix ? what->n : 0, is_prefix ? s->n : rest));
}

HT_BUILTIN(format) { return ht_jinja_format_braces(r, v, all); }

static const ht_jinja_builtin string_methods[] = {
    {"split", "sep maxsplit", 0, split, 'l'},
    {"rsplit", "sep maxsplit", 0, split, 'r'},
    {"splitlines", "keepends", 0, splitlines, 0},
    {"strip", "chars", 0, strip, 0},
    {"lstrip", "chars", 0, strip, 'l'},
    {"rstrip", "chars", 0, strip, 'r'},
    {"partition", "sep", 1, partition, 'l'},
    {"rpartition", "sep", 1, partition, 'r'},
    {"startswith", "prefix start end", 1, ends_with, 's'},
    {"endswith", "suffix start end", 1, ends_with, 'e'},
    {"find", "sub start end", 1, find, 'f'},
    {"rfind", "sub start end", 1, find, 'r'},
    {"index", "sub start end", 1, find, 'I'},
    {"rindex", "sub start end", 1, find, 'R'},
    {"count", "sub start end", 1, string_count, 0},
    {"replace", "old new count", 2, replace, 0},
    {"join", "iterable", 1, join, 0},
    {"upper", "", 0, change_case, 'u'},
    {"lower", "", 0, change_case, 'l'},
    {"casefold", "", 0, casefold, 0},
    {"title", "", 0, change_case, 't'},
    {"capitalize", "", 0, change_case, 'c'},
    {"swapcase", "", 0, change_case, 's'},
    {"isdecimal", "", 0, all_are_of, '0'},
    {"isdigit", "", 0, all_are_of, 'd'},
    {"isnumeric", "", 0, all_are_of, 'n'},
    {"isalpha", "", 0, all_are_of, 'a'},
    {"isalnum", "", 0, all_are_of, 'w'},
    {"isspace", "", 0, all_are_of, 's'},
    {"isupper", "", 0, has_case, 'u'},
    {"islower", "", 0, has_case, 'l'},
    {"center", "width fillchar", 1, justify, 'c'},
    {"ljust", "width fillchar", 1, justify, 'l'},
    {"rjust", "width fillchar", 1, justify, 'r'},
    {"zfill", "width", 1, zfill, 0},
    {"removeprefix", "prefix", 1, remove_end, 'p'},
    {"removesuffix", "suffix", 1, remove_end, 's'},
    {"format", "*", 0, format, 0},
    {NULL, NULL, 0, NULL, 0},
};

/* ---- dicts ---- */

ht_jinja_list *ht_jinja_pairs(ht_jinja_rendering *r, const ht_jinja_dict *d) {
    ht_jinja_list *list = ht_jinja_list_new(r->a, d->n);
    for (size_t i = 0; i < d->n && ht_jinja_step(r, 1); i++)
        ht_jinja_list_append(r->a, list, ht_jinja_pair(r->a, d->keys[i], d->values[i]));
    return list;
}

/* keys, values and items. */
HT_BUILTIN(view) {
    const ht_jinja_dict *d = v.dict;
    ht_jinja_list *list = how == 'i' ? ht_jinja_pairs(r, d) : ht_jinja_list_new(r->a, d->n);
    for (size_t i = 0; how != 'i' && i < d->n && ht_jinja_step(r, 1); i++)
        ht_jinja_list_append(r->a, list, how == 'k' ? d->keys[i] : d->values[i]);
    ht_jinja_value of = ht_jinja_list_value(HT_VALUE_VIEW, list);
    of.how = how == 'k' ? "dict_keys" : how == 'v' ? "dict_values" : "dict_items";
    return of;
}

HT_BUILTIN(get) {
    const ht_jinja_value *found = ht_jinja_dict_find(r->a, v.dict, *with[0]);
    return found ? *found : with[1] ? *with[1] : ht_jinja_none();
}

HT_BUILTIN(dict_copy) {
    const ht_jinja_arguments from = {.positional = &v, .n = 1};
    return ht_jinja_call_builtin(r, ht_jinja_function_of("dict", 4), ht_jinja_none(), &from);
}

static const ht_jinja_builtin dict_methods[] = {
    {"items", "", 0, view, 'i'},       {"keys", "", 0, view, 'k'},    {"values", "", 0, view, 'v'},
    {"get", "key default", 1, get, 0}, {"copy", "", 0, dict_copy, 0}, {NULL, NULL, 0, NULL, 0},
};

/* ---- lists and tuples ---- */

HT_BUILTIN(list_index) {
    for (size_t i = 0; i < v.list->n && ht_jinja_step(r, 1); i++)
        if (ht_jinja_equal(r->a, v.list->items[i], *with[0])) return ht_jinja_integer((int64_t)i);
    return ht_jinja_fail(r, "a value is not in the list");
}

HT_BUILTIN(list_count) {
    int64_t n = 0;
    for (size_t i = 0; i < v.list->n && ht_jinja_step(r, 1); i++) n += ht_jinja_equal(r->a, v.list->items[i], *with[0]);
    return ht_jinja_integer(n);
}

HT_BUILTIN(list_copy) { return ht_jinja_slice(r, v, ht_jinja_none(), ht_jinja_none(), ht_jinja_none()); }

static const ht_jinja_builtin list_methods[] = {
    {"copy", "", 0, list_copy, 0},
    {"index", "value", 1, list_index, 0},
    {"count", "value", 1, list_count, 0},
    {NULL, NULL, 0, NULL, 0},
};

const ht_jinja_builtin *ht_jinja_method_of(ht_jinja_value v, const char *name, size_t n) {
    const ht_jinja_builtin *table = v.kind == HT_VALUE_STRING  ? string_methods
                                    : v.kind == HT_VALUE_DICT  ? dict_methods
                                    : v.kind == HT_VALUE_LIST  ? list_methods
                                    : v.kind == HT_VALUE_TUPLE ? list_methods + 1 /* without copy */
                                                               : NULL;
    return table ? ht_jinja_builtin_in(table, name, n) : NULL;
}

/* As jinja2's ImmutableSandboxedEnvironment, which transformers renders with. */
bool ht_jinja_modifies(ht_jinja_value v, const ht_jinja_string *name) {
    static const char *const of_list[] = {"append", "clear",   "extend", "insert", "pop",
                                          "remove", "reverse", "sort",   NULL},
                             *const of_dict[] = {"clear", "pop", "popitem", "setdefault", "update", NULL};
    const char *const *names = v.kind == HT_VALUE_LIST ? of_list : v.kind == HT_VALUE_DICT ? of_dict : NULL;
    while (names && *names && !ht_jinja_string_is(name, *names)) names++;
    return names && *names;
}
