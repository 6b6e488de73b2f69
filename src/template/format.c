/* Texts from formats: `%` of strings, and str.format, for the types that templates have. */
#include "template/eval.h"

#include <stdio.h>
#include <string.h>

enum { WIDTH_MAX = 10000 };

/* How one value is written: [[fill]align][sign][#][0][width][,][.precision][type]. */
typedef struct spec {
    uint32_t fill;
    char align, sign, type;
    bool alternate, comma;
    int width, precision; /* -1: none */
} spec;

/* Digits with a comma between thousands. */
static void put_commas(ht_jinja_builder *b, const char *digits) {
    size_t whole = strspn(digits, "0123456789");
    for (size_t i = 0; i < whole; i++) {
        if (i && (whole - i) % 3 == 0) ht_jinja_put_text(b, ",");
        ht_jinja_put(b, digits + i, 1, false);
    }
    ht_jinja_put_text(b, digits + whole);
}

static void integer_digits(uint64_t n, char type, bool alternate, char out[80]) {
    char reversed[72];
    unsigned base = type == 'x' || type == 'X' ? 16 : type == 'o' ? 8 : type == 'b' ? 2 : 10;
    size_t length = 0, at = 0;
    do reversed[length++] = (type == 'X' ? "0123456789ABCDEF" : "0123456789abcdef")[n % base];
    while (n /= base);
    if (alternate && base != 10) {
        out[at++] = '0';
        out[at++] = type;
    }
    while (length) out[at++] = reversed[--length];
    out[at] = '\0';
}

/* The text of a number without its sign, which goes to *negative. */
static bool number_text(ht_jinja_rendering *r, ht_jinja_value v, const spec *s, char out[512], bool *negative) {
    int64_t i;
    char type = s->type;
    bool whole = type == 'd' || type == 'i' || type == 'u' || type == 'x' || type == 'X' || type == 'o' || type == 'b';
    if (v.kind == HT_VALUE_FLOAT && whole) {
        if (!(v.real > -9.2e18 && v.real < 9.2e18)) return ht_jinja_fail(r, "a number with too many digits"), false;
        v = ht_jinja_integer((int64_t)v.real);
    }
    if (ht_jinja_as_integer(v, &i) && (whole || !type || type == 'n')) {
        *negative = i < 0;
        char digits[80];
        integer_digits(i < 0 ? 0 - (uint64_t)i : (uint64_t)i, type, s->alternate, digits);
        snprintf(out, 512, "%s", digits);
        return true;
    }
    double x = ht_jinja_as_real(v);
    *negative = x < 0 || (x == 0 && 1 / x < 0);
    if (*negative) x = -x;
    if (!type && s->precision < 0) {
        char text[64];
        ht_jinja_format_real(x, text);
        snprintf(out, 512, "%s", text);
        return true;
    }
    char how[16];
    int precision = s->precision < 0 ? 6 : s->precision;
    if (precision > 100 || x > 1e300) return ht_jinja_fail(r, "a number with too many digits"), false;
    if (type == '%') x *= 100;
    snprintf(how, sizeof how, "%%.%d%c", precision, type == '%' ? 'f' : !type || type == 'n' ? 'g' : type);
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
    snprintf(out, 512, how, x);
#pragma GCC diagnostic pop
    if (type == '%') strcat(out, "%");
    return true;
}

static void put_filled(ht_jinja_builder *b, const spec *s, const ht_jinja_string *text, char align, size_t sign_bytes) {
    int64_t n = s->width - (int64_t)text->chars, left = 0;
    if (n < 0) n = 0;
    if (align == '>' || align == '=') left = n;
    if (align == '^') left = n / 2;
    if (align == '=') ht_jinja_put_span(b, text, 0, sign_bytes);
    for (int64_t i = 0; i < left; i++) ht_jinja_put_code_point(b, s->fill, false);
    ht_jinja_put_span(b, text, align == '=' ? sign_bytes : 0, text->n);
    for (int64_t i = left; i < n; i++) ht_jinja_put_code_point(b, s->fill, false);
}

static void put_number(ht_jinja_rendering *r, ht_jinja_builder *b, const spec *s, ht_jinja_value v) {
    char digits[512], sign = 0;
    bool negative;
    if (v.kind == HT_VALUE_BIG) {
        put_filled(b, s, v.string, s->align ? s->align : '>', 0);
        return;
    }
    if (!number_text(r, v, s, digits, &negative)) return;
    if (negative)
        sign = '-';
    else if (s->sign == '+' || s->sign == ' ')
        sign = s->sign;
    ht_jinja_builder text = {.arena = r->a};
    if (sign) ht_jinja_put(&text, &sign, 1, false);
    if (s->comma)
        put_commas(&text, digits);
    else
        ht_jinja_put_text(&text, digits);
    const ht_jinja_string *whole = ht_jinja_built(&text);
    if (whole) put_filled(b, s, whole, s->align ? s->align : '>', sign != 0);
}

static void put_text(ht_jinja_rendering *r, ht_jinja_builder *b, const spec *s, const ht_jinja_string *text,
                     char align) {
    if (!text) return;
    if (s->precision >= 0 && (size_t)s->precision < text->chars)
        text = ht_jinja_string_span(r->a, text, 0, ht_jinja_string_offset(text, (size_t)s->precision));
    if (text) put_filled(b, s, text, s->align ? s->align : align, 0);
}

static int read_count(ht_jinja_rendering *r, const char **at) {
    int n = 0;
    while (**at >= '0' && **at <= '9') {
        n = n * 10 + (*(*at)++ - '0');
        if (n > WIDTH_MAX) {
            ht_jinja_arena_fail_as(r->a, HT_ERR_LIMIT, "a width of more than %d", WIDTH_MAX);
            return 0;
        }
    }
    return n;
}

/* ---- % ---- */

/* Values of a % format, taken in order or by `(name)`. A `*` takes its count from them, too. */
typedef struct percent_values {
    ht_jinja_value all;
    size_t next;
} percent_values;

static ht_jinja_value next_value(ht_jinja_rendering *r, percent_values *from) {
    if (from->all.kind != HT_VALUE_TUPLE)
        return from->next++ ? ht_jinja_fail(r, "not enough arguments for format string") : from->all;
    if (from->next >= from->all.list->n) return ht_jinja_fail(r, "not enough arguments for format string");
    return from->all.list->items[from->next++];
}

static int count_or_star(ht_jinja_rendering *r, percent_values *from, const char **at) {
    int64_t n = 0;
    if (**at != '*') return read_count(r, at);
    (*at)++;
    if (!ht_jinja_as_integer(next_value(r, from), &n) || n < -WIDTH_MAX || n > WIDTH_MAX)
        ht_jinja_fail(r, "* wants int");
    return (int)n;
}

static void put_percent(ht_jinja_rendering *r, ht_jinja_builder *b, ht_jinja_value format, percent_values *from,
                        const char **at) {
    spec s = {.fill = ' ', .precision = -1};
    ht_jinja_value v = ht_jinja_undefined();
    bool named = **at == '(', left = false, zero = false;
    if (named) {
        const char *begin = ++*at;
        *at = strchr(begin, ')');
        if (!*at || from->all.kind != HT_VALUE_DICT) {
            *at = begin;
            ht_jinja_fail(r, "format requires a mapping");
            return;
        }
        const ht_jinja_value *found = ht_jinja_dict_find_text(from->all.dict, begin, (size_t)(*at - begin));
        if (!found)
            ht_jinja_arena_fail(r->a, "there is no value '%.*s'", (int)(*at - begin < 60 ? *at - begin : 60), begin);
        if (found) v = *found;
        ++*at;
    }
    for (; **at && strchr("-+ #0", **at); ++*at) {
        if (**at == '-') left = true;
        if (**at == '0') zero = true;
        if (**at == '#') s.alternate = true;
        if (**at == '+' || (**at == ' ' && !s.sign)) s.sign = **at;
    }
    s.width = count_or_star(r, from, at);
    if (s.width < 0) {
        left = true;
        s.width = -s.width;
    }
    if (**at == '.') {
        ++*at;
        s.precision = count_or_star(r, from, at);
        if (s.precision < 0) s.precision = 0;
    }
    s.type = **at;
    if (!s.type) {
        ht_jinja_fail(r, "incomplete format");
        return;
    }
    ++*at;
    if (s.type == '%') {
        ht_jinja_put_text(b, "%");
        return;
    }
    if (!named) v = next_value(r, from);
    if (left) s.align = '<';
    if (r->a->status) return;
    if (s.type == 's' || s.type == 'r' || s.type == 'a') {
        ht_jinja_builder text = {.arena = r->a};
        if (s.type == 's')
            ht_jinja_put_string(&text, format.markup ? ht_jinja_escape(r, v).string : ht_jinja_to_string(r->a, v));
        else
            ht_jinja_put_repr(&text, v);
        put_text(r, b, &s, ht_jinja_built(&text), '>');
    } else if (s.type == 'c') {
        ht_jinja_builder text = {.arena = r->a};
        int64_t code = -1;
        if (ht_jinja_is_string(v) && v.string->chars == 1)
            ht_jinja_put_string(&text, v.string);
        else if (ht_jinja_as_integer(v, &code) && code >= 0 && code < 0x110000 && (code < 0xD800 || code >= 0xE000))
            ht_jinja_put_code_point(&text, (uint32_t)code, false);
        else
            ht_jinja_fail(r, "%%c requires int or char");
        put_text(r, b, &s, ht_jinja_built(&text), '>');
    } else if (strchr("diuxXoeEfFgG", s.type)) {
        if (!ht_jinja_is_number(v)) {
            ht_jinja_arena_fail(r->a, "%%%c format: a number is required, not %s", s.type, ht_jinja_type_name(v));
            return;
        }
        if (strchr("diu", s.type)) s.type = 'd';
        if (zero && !left) {
            s.fill = '0';
            s.align = '=';
        }
        put_number(r, b, &s, v);
    } else
        ht_jinja_arena_fail(r->a, "unsupported format character '%c'", s.type);
}

ht_jinja_value ht_jinja_format_percent(ht_jinja_rendering *r, ht_jinja_value format, ht_jinja_value values) {
    ht_jinja_builder b = {.arena = r->a};
    percent_values from = {values, 0};
    const char *text = format.string->text, *at = text;
    while (ht_jinja_step(r, 1)) {
        const char *mark = strchr(at, '%');
        size_t to = mark ? (size_t)(mark - text) : format.string->n;
        ht_jinja_put_span(&b, format.string, (size_t)(at - text), to);
        if (!mark) break;
        at = mark + 1;
        put_percent(r, &b, format, &from, &at);
    }
    if (values.kind == HT_VALUE_TUPLE ? from.next < values.list->n
                                      : values.kind != HT_VALUE_DICT && values.kind != HT_VALUE_LIST && !from.next)
        return ht_jinja_fail(r, "not all arguments converted during string formatting");
    return ht_jinja_like(format, ht_jinja_built(&b));
}

/* ---- str.format ---- */

static spec read_spec(ht_jinja_rendering *r, const ht_jinja_string *text) {
    spec s = {.fill = ' ', .precision = -1};
    size_t at = 0;
    if (text->n) {
        uint32_t first = ht_jinja_string_next(text, &at);
        if (text->text[at] && strchr("<>^=", text->text[at])) {
            s.fill = first;
            s.align = text->text[at++];
        } else {
            at = 0;
            if (strchr("<>^=", text->text[0])) s.align = text->text[at++];
        }
    }
    const char *p = text->text + at;
    if (*p && strchr("+- ", *p)) s.sign = *p++;
    if (*p == '#') {
        s.alternate = true;
        p++;
    }
    if (*p == '0') {
        if (!s.align) {
            s.fill = '0';
            s.align = '=';
        }
        p++;
    }
    s.width = read_count(r, &p);
    if (*p == ',') {
        s.comma = true;
        p++;
    }
    if (*p == '.') {
        p++;
        if (*p < '0' || *p > '9') ht_jinja_fail(r, "Format specifier missing precision");
        s.precision = read_count(r, &p);
    }
    if (*p) s.type = *p++;
    if (*p) ht_jinja_fail(r, "Invalid format specifier");
    return s;
}

static void put_formatted(ht_jinja_rendering *r, ht_jinja_builder *b, ht_jinja_value v, const ht_jinja_string *how) {
    spec s = read_spec(r, how);
    if (r->a->status) return;
    if (ht_jinja_is_number(v) && !(v.kind == HT_VALUE_BOOL && !how->n)) {
        if (s.type && !strchr("dxXobneEfFgG%", s.type))
            ht_jinja_arena_fail(r->a, "Unknown format code '%c' for object of type '%s'", s.type,
                                ht_jinja_type_name(v));
        else if (v.kind == HT_VALUE_FLOAT && s.type && strchr("dxXob", s.type))
            ht_jinja_arena_fail(r->a, "Unknown format code '%c' for object of type 'float'", s.type);
        else
            put_number(r, b, &s, v);
        return;
    }
    if (ht_jinja_is_string(v) ? s.type && s.type != 's' : how->n > 0)
        ht_jinja_arena_fail(r->a, "unsupported format string passed to %s", ht_jinja_type_name(v));
    else
        put_text(r, b, &s, ht_jinja_to_string(r->a, v), '<');
}

/* The value of a field: a position or name, then .attributes and [items]. */
static ht_jinja_value field_value(ht_jinja_rendering *r, const ht_jinja_string *field, const ht_jinja_arguments *all,
                                  int64_t *automatic) {
    size_t end = strcspn(field->text, ".[");
    ht_jinja_value v = ht_jinja_undefined();
    bool digits = end > 0 && strspn(field->text, "0123456789") >= end;
    if (!end || digits) {
        int64_t i = 0;
        for (size_t j = 0; j < end && i < 1000000; j++) i = i * 10 + (field->text[j] - '0');
        if (!end) i = *automatic >= 0 ? (*automatic)++ : -1;
        if (digits && *automatic > 0) i = -1;
        if (digits) *automatic = -1;
        if (i < 0 || (size_t)i >= all->n)
            return ht_jinja_fail(r, "Replacement index out of range for positional args tuple");
        v = all->positional[i];
    } else {
        const ht_jinja_value *found = all->named ? ht_jinja_dict_find_text(all->named, field->text, end) : NULL;
        if (!found) return ht_jinja_fail(r, "a name in a format has no value");
        v = *found;
    }
    for (const char *at = field->text + end; *at && !r->a->status;) {
        bool item = *at++ == '[';
        size_t n = item ? strcspn(at, "]") : strcspn(at, ".[");
        const ht_jinja_string *name = ht_jinja_string_new(r->a, at, n, false);
        if (!name || !n) return ht_jinja_fail(r, "Empty attribute in format string");
        int64_t number = 0;
        bool is_number = item && strspn(at, "0123456789") == n && n < 18;
        for (size_t j = 0; is_number && j < n; j++) number = number * 10 + (at[j] - '0');
        v = item ? ht_jinja_item(r, v, is_number ? ht_jinja_integer(number) : ht_jinja_string_value(name))
                 : ht_jinja_attribute(r, v, name);
        if (ht_jinja_refuse_undefined(r, v)) return v;
        at += n + (item && at[n] == ']');
    }
    return v;
}

static ht_jinja_value format_fields(ht_jinja_rendering *r, ht_jinja_value of, const ht_jinja_arguments *all,
                                    int64_t *automatic, int depth) {
    const ht_jinja_string *format = of.string;
    ht_jinja_builder b = {.arena = r->a};
    if (depth > 2) return ht_jinja_fail(r, "Max string recursion exceeded");
    for (size_t at = 0; at < format->n && ht_jinja_step(r, 1);) {
        char c = format->text[at], next = format->text[at + 1];
        if ((c == '{' || c == '}') && next == c) {
            ht_jinja_put_span(&b, format, at, at + 1);
            at += 2;
            continue;
        }
        if (c == '}') return ht_jinja_fail(r, "Single '}' encountered in format string");
        if (c != '{') {
            size_t n = strcspn(format->text + at, "{}");
            ht_jinja_put_span(&b, format, at, at + n);
            at += n;
            continue;
        }
        size_t end = ++at, name_end;
        for (int open = 1; end < format->n; end++) {
            open += (format->text[end] == '{') - (format->text[end] == '}');
            if (!open) break;
        }
        if (end >= format->n) return ht_jinja_fail(r, "expected '}' before end of string");
        name_end = at + strcspn(format->text + at, "!:}");
        const ht_jinja_string *field = ht_jinja_string_span(r->a, format, at, name_end);
        ht_jinja_value v = field ? field_value(r, field, all, automatic) : ht_jinja_undefined();
        if (format->text[name_end] == '!') {
            ht_jinja_builder repr = {.arena = r->a};
            if (format->text[name_end + 1] == 'r')
                ht_jinja_put_repr(&repr, v);
            else if (format->text[name_end + 1] == 's')
                ht_jinja_put_value(&repr, v);
            else
                return ht_jinja_fail(r, "a conversion in a format is !r or !s");
            v = ht_jinja_string_value(ht_jinja_built(&repr));
            name_end += 2;
        }
        const ht_jinja_string *how =
            ht_jinja_string_span(r->a, format, name_end + (format->text[name_end] == ':'), end);
        if (how && memchr(how->text, '{', how->n))
            how = format_fields(r, ht_jinja_string_value(how), all, automatic, depth + 1).string;
        if (of.markup) v = ht_jinja_escape(r, v);
        if (!r->a->status && how) put_formatted(r, &b, v, how);
        at = end + 1;
    }
    return ht_jinja_like(of, ht_jinja_built(&b));
}

ht_jinja_value ht_jinja_format_braces(ht_jinja_rendering *r, ht_jinja_value format, const ht_jinja_arguments *all) {
    int64_t automatic = 0;
    return format_fields(r, format, all, &automatic, 1);
}
