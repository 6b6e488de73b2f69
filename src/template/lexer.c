/* Tokens of templates. White space follows jinja2's lexer with trim_blocks and lstrip_blocks: a block or comment
 * removes the line end after it, and the white space before it if it comes first on its line. `-` removes all white
 * space on its side, `+` keeps it. */
#include "base/text.h"
#include "template/program.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

typedef struct lexer {
    ht_jinja_arena *a;
    const char *s; /* with line ends as \n */
    size_t n, at;
    size_t counted; /* bytes before `line` and `column` */
    int line, column;
    ht_jinja_token *tokens;
    size_t n_tokens, capacity;
    bool starts_line; /* nothing of the line is before `at` */
} lexer;

static bool is_at(const lexer *l, size_t at, const char *text) {
    size_t n = strlen(text);
    return l->n - at >= n && !memcmp(l->s + at, text, n);
}

static void place(lexer *l, size_t at) {
    for (; l->counted < at; l->counted++)
        if (l->s[l->counted] == '\n') {
            l->line++;
            l->column = 1;
        } else
            l->column += (l->s[l->counted] & 0xC0) != 0x80;
    l->a->line = l->line;
    l->a->column = l->column;
}

static ht_jinja_token *add(lexer *l, ht_jinja_token_kind kind, size_t at) {
    place(l, at);
    ht_jinja_token *tokens = ht_jinja_arena_grow(l->a, l->tokens, l->n_tokens, sizeof *tokens, &l->capacity);
    if (!tokens) return NULL;
    l->tokens = tokens;
    ht_jinja_token *t = &tokens[l->n_tokens++];
    *t = (ht_jinja_token){.kind = kind, .line = l->a->line, .column = l->a->column};
    return t;
}

static void add_text(lexer *l, ht_jinja_token_kind kind, size_t from, size_t to) {
    if (kind == HT_TOKEN_TEXT && from == to) return;
    ht_jinja_token *t = add(l, kind, from);
    if (t) t->text = ht_jinja_string_new(l->a, l->s + from, to - from, false);
}

/* ---- white space ---- */

static size_t skip_space(const lexer *l, size_t at) {
    while (at < l->n) {
        uint32_t c;
        size_t n = ht_utf8_decode(l->s + at, l->n - at, &c);
        if (!ht_jinja_is_space(c)) break;
        at += n;
    }
    return at;
}

/* The end of s[from .. to) without white space there. */
static size_t strip_end(const lexer *l, size_t from, size_t to) {
    size_t end = from;
    for (size_t at = from; at < to;) {
        uint32_t c;
        at += ht_utf8_decode(l->s + at, to - at, &c);
        if (!ht_jinja_is_space(c)) end = at;
    }
    return end;
}

/* End of the text between `from` and the tag at `tag`, without the white space that `sign` removes. */
static size_t text_end(const lexer *l, size_t from, size_t tag, char sign, bool prints) {
    if (sign == '-') return strip_end(l, from, tag);
    if (sign == '+' || prints) return tag;
    size_t begin = tag;
    while (begin > from && l->s[begin - 1] != '\n') begin--;
    if (begin == from && !l->starts_line) return tag;
    return begin < tag && strip_end(l, begin, tag) == begin ? begin : tag;
}

/* Skips the white space that a tag removes after its end. */
static void skip_after(lexer *l, char sign, bool trims) {
    if (sign == '-')
        l->at = skip_space(l, l->at);
    else if (trims && sign != '+' && l->at < l->n && l->s[l->at] == '\n')
        l->at++;
    l->starts_line = l->at > 0 && l->s[l->at - 1] == '\n';
}

/* ---- inside tags ---- */

static int hex_value(char c) {
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                  : -1;
}

/* A numeric escape of up to `most` digits at `*at` of base 8 or 16; exactly as many with base 16. */
static bool read_code(const lexer *l, size_t *at, size_t end, int most, unsigned base, uint32_t *out) {
    int n = 0;
    for (*out = 0; n < most && *at < end; n++, (*at)++) {
        int digit = hex_value(l->s[*at]);
        if (digit < 0 || digit >= (int)base) break;
        *out = *out * base + (uint32_t)digit;
    }
    return base == 8 ? n > 0 : n == most;
}

/* Escapes as in Python's strings; an unknown one stays as it is. */
static void put_escape(lexer *l, ht_jinja_builder *b, size_t *at, size_t end) {
    static const char letters[] = "abfnrtv\\'\"", values[] = "\a\b\f\n\r\t\v\\'\"";
    char c = l->s[*at];
    uint32_t code;
    const char *letter = c ? strchr(letters, c) : NULL;
    if (letter) {
        ht_jinja_put(b, &values[letter - letters], 1, false);
        (*at)++;
    } else if (c == '\n')
        (*at)++;
    else if (c >= '0' && c <= '7' && read_code(l, at, end, 3, 8, &code))
        ht_jinja_put_code_point(b, code, false);
    else if (c == 'x' || c == 'u' || c == 'U') {
        (*at)++;
        if (!read_code(l, at, end,
                       c == 'x'   ? 2
                       : c == 'u' ? 4
                                  : 8,
                       16, &code) ||
            code > 0x10FFFF || (code >= 0xD800 && code < 0xE000))
            ht_jinja_arena_fail(l->a, "an escape \\%c without the digits of a character", c);
        else
            ht_jinja_put_code_point(b, code, false);
    } else
        ht_jinja_put_text(b, "\\");
}

static void read_string(lexer *l) {
    size_t begin = l->at, at = begin + 1;
    char quote = l->s[begin];
    while (at < l->n && l->s[at] != quote) at += l->s[at] == '\\' ? 2 : 1;
    ht_jinja_token *t = add(l, HT_TOKEN_CONSTANT, begin);
    if (!t) return;
    if (at >= l->n) {
        ht_jinja_arena_fail(l->a, "a string that does not end");
        return;
    }
    ht_jinja_builder b = {.arena = l->a};
    for (size_t i = begin + 1; i < at;) {
        if (l->s[i] == '\\') {
            i++;
            put_escape(l, &b, &i, at);
        } else
            ht_jinja_put(&b, &l->s[i++], 1, false);
    }
    t->constant = ht_jinja_string_value(ht_jinja_built(&b));
    l->at = at + 1;
}

static bool is_digit(char c) { return c >= '0' && c <= '9'; }

/* Digits of a base from `at` on, with single underscores between them; returns their end. */
static size_t digits_end(const lexer *l, size_t at, int base) {
    size_t end = at;
    while (end < l->n) {
        size_t next = end > at && l->s[end] == '_' ? end + 1 : end;
        int digit = next < l->n ? hex_value(l->s[next]) : -1;
        if (digit < 0 || digit >= base) break;
        end = next + 1;
    }
    return end;
}

static void read_number(lexer *l) {
    size_t begin = l->at, end = begin, exponent;
    int base = 10;
    bool real = false;
    ht_jinja_token *t = add(l, HT_TOKEN_CONSTANT, begin);
    if (!t) return;
    char prefix = l->n - begin > 1 && l->s[begin] == '0' ? (char)(l->s[begin + 1] | 32) : 0;
    if (prefix == 'x' || prefix == 'o' || prefix == 'b') {
        base = prefix == 'x' ? 16 : prefix == 'o' ? 8 : 2;
        begin += 2;
        if (begin < l->n && l->s[begin] == '_') begin++;
    }
    end = digits_end(l, begin, base);
    if (base == 10) {
        bool after_dot = begin > 0 && l->s[begin - 1] == '.';
        if (!after_dot && end + 1 < l->n && l->s[end] == '.' && is_digit(l->s[end + 1])) {
            real = true;
            end = digits_end(l, end + 1, 10);
        }
        exponent = end + 1;
        if (!after_dot && end < l->n && (l->s[end] | 32) == 'e') {
            if (exponent < l->n && (l->s[exponent] == '+' || l->s[exponent] == '-')) exponent++;
            if (exponent < l->n && is_digit(l->s[exponent])) {
                real = true;
                end = digits_end(l, exponent, 10);
            }
        }
    }
    char *text = ht_jinja_arena_alloc(l->a, end - begin + 1), *stop;
    size_t n = 0;
    for (size_t i = begin; text && i < end; i++)
        if (l->s[i] != '_') text[n++] = l->s[i];
    if (!text) return;
    errno = 0;
    t->constant = real ? ht_jinja_real(strtod(text, &stop)) : ht_jinja_integer((int64_t)strtoll(text, &stop, base));
    if (!n || (!real && errno))
        ht_jinja_arena_fail(l->a, n ? "the number %.40s is too large" : "a number without digits%s", n ? text : "");
    else if (!real && base == 10 && n > 1 && text[0] == '0' && strspn(text, "0") != n)
        ht_jinja_arena_fail(l->a, "the number %.40s begins with 0", text);
    l->at = end;
}

static bool is_name_part(uint32_t c, bool first) {
    if (c < 128) return c == '_' || (c | 32) - 'a' < 26 || (!first && c - '0' < 10);
    switch (utf8proc_category((utf8proc_int32_t)c)) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
    case UTF8PROC_CATEGORY_NL: return true;
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_PC: return !first;
    default: return false;
    }
}

static size_t name_end(const lexer *l, size_t at) {
    for (size_t begin = at; at < l->n;) {
        uint32_t c;
        size_t n = ht_utf8_decode(l->s + at, l->n - at, &c);
        if (!is_name_part(c, at == begin)) break;
        at += n;
    }
    return at;
}

/* The operator at `at`: its length, 0 for none. */
static size_t operator_length(const lexer *l, size_t at) {
    static const char *const two[] = {"//", "**", "==", "!=", "<=", ">="};
    for (size_t i = 0; i < sizeof two / sizeof *two; i++)
        if (is_at(l, at, two[i])) return 2;
    return l->s[at] && strchr("+-*/%~[](){}.,:;|<>=", l->s[at]) ? 1 : 0;
}

/* The end of a tag at `at`, with its sign; false when there is none. */
static bool tag_ends(const lexer *l, size_t at, const char *end, char *sign) {
    *sign = 0;
    if (at < l->n && (l->s[at] == '-' || (l->s[at] == '+' && end[0] == '%')) && is_at(l, at + 1, end)) {
        *sign = l->s[at];
        return true;
    }
    return is_at(l, at, end);
}

/* Reads an expression's tokens up to the tag's end, which counts only where no bracket is open. */
static void read_tag(lexer *l, bool prints) {
    const char *end = prints ? "}}" : "%}";
    char open[HT_TEMPLATE_NESTING], sign;
    int depth = 0;
    while (!l->a->status) {
        l->at = skip_space(l, l->at);
        if (l->at >= l->n) {
            place(l, l->n);
            ht_jinja_arena_fail(l->a, "the template ends within a tag; %s is missing", end);
            return;
        }
        if (!depth && tag_ends(l, l->at, end, &sign)) {
            add(l, prints ? HT_TOKEN_PRINT_END : HT_TOKEN_BLOCK_END, l->at);
            l->at += sign ? 3 : 2;
            skip_after(l, sign, !prints);
            return;
        }
        char c = l->s[l->at];
        size_t name = name_end(l, l->at), n;
        if (name > l->at) {
            add_text(l, HT_TOKEN_NAME, l->at, name);
            l->at = name;
        } else if (c == '"' || c == '\'')
            read_string(l);
        else if (is_digit(c))
            read_number(l);
        else if ((n = operator_length(l, l->at))) {
            place(l, l->at);
            if (strchr("([{", c)) {
                if (depth == HT_TEMPLATE_NESTING)
                    ht_jinja_arena_fail_as(l->a, HT_ERR_LIMIT, "brackets are nested more than %d deep",
                                           HT_TEMPLATE_NESTING);
                else
                    open[depth++] = c == '(' ? ')' : c == '[' ? ']' : '}';
            } else if (strchr(")]}", c) && (!depth || open[--depth] != c))
                ht_jinja_arena_fail(l->a, "%c closes nothing that is open", c);
            add_text(l, HT_TOKEN_OPERATOR, l->at, l->at + n);
            l->at += n;
        } else {
            place(l, l->at);
            ht_jinja_arena_fail(l->a, "the character %.*s is not expected here",
                                (int)ht_utf8_decode(l->s + l->at, l->n - l->at, &(uint32_t){0}), l->s + l->at);
        }
    }
}

/* ---- around tags ---- */

/* End of a tag that has only `word`, such as {%- raw %}; 0 for another tag. `at` is the offset after the tag's sign. */
static size_t lone_word(const lexer *l, size_t at, const char *word, char *sign) {
    at = skip_space(l, at);
    if (!is_at(l, at, word)) return 0;
    at = skip_space(l, at + strlen(word));
    return tag_ends(l, at, "%}", sign) ? at + (*sign ? 3 : 2) : 0;
}

static char sign_at(const lexer *l, size_t at) {
    return at < l->n && (l->s[at] == '-' || l->s[at] == '+') ? l->s[at] : 0;
}

static void read_raw(lexer *l) {
    size_t from = l->at;
    for (size_t at = from; at < l->n; at++) {
        if (!is_at(l, at, "{%")) continue;
        char before = sign_at(l, at + 2), after;
        size_t end = lone_word(l, at + (before ? 3 : 2), "endraw", &after);
        if (!end) continue;
        add_text(l, HT_TOKEN_TEXT, from, text_end(l, from, at, before, false));
        l->at = end;
        skip_after(l, after, true);
        return;
    }
    ht_jinja_arena_fail(l->a, "{%% raw %%} without {%% endraw %%}");
}

static void skip_comment(lexer *l) {
    for (size_t at = l->at; at + 1 < l->n; at++) {
        if (!is_at(l, at, "#}")) continue;
        char sign = at > l->at && (l->s[at - 1] == '-' || l->s[at - 1] == '+') ? l->s[at - 1] : 0;
        l->at = at + 2;
        skip_after(l, sign, true);
        return;
    }
    ht_jinja_arena_fail(l->a, "a comment that does not end");
}

static void read_tags(lexer *l) {
    size_t from = 0;
    while (!l->a->status) {
        size_t at = l->at;
        while (at + 1 < l->n && !(l->s[at] == '{' && strchr("{%#", l->s[at + 1]))) at++;
        if (at + 1 >= l->n) {
            add_text(l, HT_TOKEN_TEXT, from, l->n);
            return;
        }
        char kind = l->s[at + 1], sign = sign_at(l, at + 2), after;
        add_text(l, HT_TOKEN_TEXT, from, text_end(l, from, at, sign, kind == '{'));
        place(l, at);
        l->at = at + (sign ? 3 : 2);
        size_t raw = kind == '%' ? lone_word(l, l->at, "raw", &after) : 0;
        if (raw) {
            l->at = after == '-' ? skip_space(l, raw) : raw;
            l->starts_line = l->at > 0 && l->s[l->at - 1] == '\n';
            read_raw(l);
        } else if (kind == '#') {
            l->at = at + 2; /* a sign that is also the end's counts for both */
            skip_comment(l);
        } else {
            add(l, kind == '{' ? HT_TOKEN_PRINT_BEGIN : HT_TOKEN_BLOCK_BEGIN, at);
            read_tag(l, kind == '{');
        }
        from = l->at;
    }
}

/* Line ends as \n, without the last one. */
static const char *normalise(ht_jinja_arena *a, const char *source, size_t *n) {
    char *copy = ht_jinja_arena_alloc(a, *n + 1);
    size_t m = 0;
    for (size_t i = 0; copy && i < *n; i++) {
        if (source[i] == '\r' && i + 1 < *n && source[i + 1] == '\n') continue;
        copy[m++] = source[i] == '\r' ? '\n' : source[i];
    }
    if (m && copy[m - 1] == '\n') copy[--m] = '\0';
    *n = m;
    return copy;
}

ht_jinja_token *ht_jinja_tokens(ht_jinja_arena *a, const char *source, size_t n) {
    a->line = a->column = 1;
    if (!ht_utf8_valid(source, n)) {
        ht_jinja_arena_fail(a, "the template is not UTF-8");
        return NULL;
    }
    lexer l = {.a = a, .n = n, .line = 1, .column = 1, .starts_line = true};
    l.s = normalise(a, source, &l.n);
    if (!l.s) return NULL;
    read_tags(&l);
    add(&l, HT_TOKEN_END, l.n);
    return a->status ? NULL : l.tokens;
}
