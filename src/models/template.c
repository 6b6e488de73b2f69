/* Chat template fingerprints: a Jinja tokenizer that normalises a template far enough to compare it with known ones.
 *
 * The normal form is the sequence of output texts, expressions and statements in canonical spelling: insignificant
 * blanks, line ends and comments removed (trim_blocks and lstrip_blocks, as in `transformers`), strings unescaped,
 * x['name'] as x.name, concatenations 'a' + b + 'c' split into text, expression, text, and adjacent texts merged. Equal
 * forms produce equal output. A default system text is cut out of the form, so that templates with another one match
 * too. */
#include "models/template.h"

#include "base/error.h"
#include "base/text.h"

#include <stdlib.h>
#include <string.h>

/* Framing bytes of the form; templates that contain one are unreadable. */
enum { OUTPUT = 1, QUOTED, CLOSED, EXPRESSION, STATEMENT, HOLE };

enum { MOST_TOKENS = 1024 }; /* per tag */

typedef enum token_kind { NAME, NUMBER, STRING, OPERATOR } token_kind;

typedef struct token {
    token_kind kind;
    const char *text; /* of a string, the text between the quotes */
    size_t n;
} token;

typedef struct reader {
    const char *text;
    size_t n, at;
    bool line_start; /* `at` is at the start of a line, for lstrip_blocks */
    bool unreadable;
    bool in_text; /* the form ends inside an OUTPUT */
    ht_text form;
    ht_text system; /* value of `set default_system_message` */
    bool has_system;
    token tokens[MOST_TOKENS];
    int n_tokens;
} reader;

static bool is_blank(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }
static bool is_digit(char c) { return c >= '0' && c <= '9'; }
static bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
static bool is(const token *t, token_kind kind, const char *text) {
    return t->kind == kind && strlen(text) == t->n && memcmp(t->text, text, t->n) == 0;
}

/* ---- normal form ---- */

static void put_byte(reader *r, char byte) { ht_text_append(&r->form, &byte, 1); }

static void end_text(reader *r) {
    if (r->in_text) put_byte(r, CLOSED);
    r->in_text = false;
}

static void put_text(reader *r, const char *text, size_t n) {
    if (!n) return;
    if (!r->in_text) put_byte(r, OUTPUT);
    r->in_text = true;
    ht_text_append(&r->form, text, n);
}

/* Appends the value of a string literal. */
static void unescape(reader *r, const token *t, ht_text *out) {
    for (size_t i = 0; i < t->n; i++) {
        char c = t->text[i];
        if (c == '\\') {
            static const char escapes[] = "n\nt\t\\\\''\"\"";
            const char *known = escapes;
            while (*known && *known != t->text[i + 1]) known += 2;
            r->unreadable = r->unreadable || !*known;
            c = *known ? known[1] : c;
            i++;
        }
        ht_text_append(out, &c, 1);
    }
}

static void put_string(reader *r, const token *t) {
    ht_text text = {0};
    unescape(r, t, &text);
    if (text.len) put_text(r, text.data, text.len);
    r->form.failed = r->form.failed || text.failed;
    ht_text_discard(&text);
}

static bool is_identifier(const token *t) {
    if (!t->n || !is_letter(t->text[0])) return false;
    for (size_t i = 1; i < t->n; i++)
        if (!is_letter(t->text[i]) && !is_digit(t->text[i])) return false;
    return true;
}

static void put_tokens(reader *r, char frame, const token *t, int n) {
    end_text(r);
    put_byte(r, frame);
    for (int i = 0; i < n; i++) {
        bool member = i > 0 && i + 2 < n && is(&t[i], OPERATOR, "[") && t[i + 1].kind == STRING &&
                      is_identifier(&t[i + 1]) && is(&t[i + 2], OPERATOR, "]") &&
                      (t[i - 1].kind == NAME || is(&t[i - 1], OPERATOR, "]") || is(&t[i - 1], OPERATOR, ")"));
        if (member) {
            ht_text_append_str(&r->form, " . ");
            ht_text_append(&r->form, t[i + 1].text, t[i + 1].n);
            i += 2;
        } else if (t[i].kind == STRING) {
            put_byte(r, QUOTED);
            unescape(r, &t[i], &r->form);
            put_byte(r, CLOSED);
        } else {
            put_byte(r, ' ');
            ht_text_append(&r->form, t[i].text, t[i].n);
        }
    }
}

/* +1 for an opening bracket, -1 for a closing one. */
static int nesting(const token *t) {
    if (t->kind != OPERATOR || t->n != 1) return 0;
    return strchr("([{", t->text[0]) ? 1 : strchr(")]}", t->text[0]) ? -1 : 0;
}

static bool joins(const token *t) { return is(t, OPERATOR, "+") || is(t, OPERATOR, "~"); }

/* Whether an expression is, outside brackets, a concatenation (+ or ~) of strings, names and filters. */
static bool is_sum(const token *t, int n) {
    static const char *const words[] = {"if", "else", "or", "and", "not", "in", "is"};
    for (int i = 0, depth = 0; i < n; i++) {
        int change = nesting(&t[i]);
        depth += change;
        if (depth || change) continue;
        if (t[i].kind == NUMBER) return false;
        if (t[i].kind == OPERATOR && !joins(&t[i]) && !is(&t[i], OPERATOR, "|") && !is(&t[i], OPERATOR, "."))
            return false;
        for (size_t w = 0; w < sizeof words / sizeof *words; w++)
            if (is(&t[i], NAME, words[w])) return false;
    }
    return true;
}

static void put_output(reader *r) {
    const token *t = r->tokens;
    const bool sum = is_sum(t, r->n_tokens);
    for (int i = 0, begin = 0, depth = 0; i <= r->n_tokens; i++) {
        if (i < r->n_tokens) depth += nesting(&t[i]);
        if (i < r->n_tokens && !(sum && !depth && joins(&t[i]))) continue;
        if (i == begin)
            r->unreadable = true;
        else if (i == begin + 1 && t[begin].kind == STRING)
            put_string(r, &t[begin]);
        else
            put_tokens(r, EXPRESSION, t + begin, i - begin);
        begin = i + 1;
    }
}

/* Reads Mistral's default system text, a concatenation of strings and dates. Dates are fixed, as in Llama's templates:
 * answers must not depend on the day. */
static void read_system(reader *r) {
    static const struct { const char *name, *value; } dates[] = {{"today", "2024-07-26"}, {"yesterday", "2024-07-25"}};
    const token *t = r->tokens;
    if (r->n_tokens < 4 || !is(&t[0], NAME, "set") || !is(&t[1], NAME, "default_system_message") ||
        !is(&t[2], OPERATOR, "="))
        return;
    ht_text_clear(&r->system);
    r->has_system = r->n_tokens % 2 == 0;
    for (int i = 3; i < r->n_tokens; i++) {
        bool known = i % 2 ? t[i].kind == STRING : is(&t[i], OPERATOR, "+");
        if (i % 2 && known) unescape(r, &t[i], &r->system);
        for (size_t d = 0; i % 2 && d < sizeof dates / sizeof *dates; d++)
            if (is(&t[i], NAME, dates[d].name)) {
                known = true;
                ht_text_append_str(&r->system, dates[d].value);
            }
        r->has_system = r->has_system && known;
    }
}

/* ---- tags ---- */

/* Reads the token at r->at, which is not blank. */
static bool read_token(reader *r, token *t) {
    static const char *const pairs[] = {"==", "!=", "<=", ">=", "//", "**"};
    const char *begin = r->text + r->at;
    size_t n = 1, rest = r->n - r->at;
    if (*begin == '\'' || *begin == '"') {
        while (n < rest && begin[n] != *begin) n += begin[n] == '\\' ? 2u : 1u;
        if (n >= rest) return false;
        *t = (token){STRING, begin + 1, n - 1};
        r->at += n + 1;
        return true;
    }
    if (is_letter(*begin) || is_digit(*begin)) {
        while (n < rest && (is_letter(begin[n]) || is_digit(begin[n]))) n++;
        t->kind = is_letter(*begin) ? NAME : NUMBER;
    } else if (strchr("+-/*%~[](){}><=.:|,!", *begin)) {
        for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++)
            if (rest > 1 && memcmp(begin, pairs[i], 2) == 0) n = 2;
        t->kind = OPERATOR;
    } else
        return false;
    t->text = begin;
    t->n = n;
    r->at += n;
    return true;
}

/* Consumes a tag's end at r->at and the whitespace that it strips. */
static bool accept_end(reader *r, const char *end, bool cuts_newline) {
    const char *p = r->text + r->at;
    char sign = *p == '-' || (*p == '+' && cuts_newline) ? *p : '\0';
    if (strncmp(p + (sign != '\0'), end, 2) != 0) return false;
    r->at += sign ? 3 : 2;
    if (sign == '-')
        while (is_blank(r->text[r->at])) r->at++;
    else if (!sign && cuts_newline && r->text[r->at] == '\n')
        r->at++;
    r->line_start = r->text[r->at - 1] == '\n';
    return true;
}

static void skip_comment(reader *r) {
    while (!accept_end(r, "#}", true))
        if (++r->at >= r->n) {
            r->unreadable = true;
            return;
        }
}

static void read_tag(reader *r) {
    const bool block = r->text[r->at + 1] == '%', comment = r->text[r->at + 1] == '#';
    const char *end = block ? "%}" : "}}";
    r->at += 2;
    if (comment) {
        skip_comment(r);
        return;
    }
    if (r->text[r->at] == '-' || r->text[r->at] == '+') r->at++;
    r->n_tokens = 0;
    for (int depth = 0;;) {
        while (is_blank(r->text[r->at])) r->at++;
        if (!depth && accept_end(r, end, block)) break;
        token *t = &r->tokens[r->n_tokens];
        if (r->n_tokens == MOST_TOKENS - 1 || r->at >= r->n || !read_token(r, t)) {
            r->unreadable = true;
            return;
        }
        depth += nesting(t);
        r->n_tokens++;
    }
    if (!r->n_tokens || is(&r->tokens[0], NAME, "raw"))
        r->unreadable = true;
    else if (!block)
        put_output(r);
    else {
        read_system(r);
        put_tokens(r, STATEMENT, r->tokens, r->n_tokens);
    }
}

/* Reads text up to the next tag or the end. */
static void read_text(reader *r) {
    const char *text = r->text, *p = text + r->at;
    while ((p = strchr(p, '{')) && p[1] != '{' && p[1] != '%' && p[1] != '#') p++;
    const size_t begin = r->at, tag = p ? (size_t)(p - text) : r->n;
    size_t end = tag;
    r->at = tag;
    if (p && p[2] == '-')
        while (end > begin && is_blank(text[end - 1])) end--;
    else if (p && p[1] != '{' && p[2] != '+') {
        while (end > begin && is_blank(text[end - 1]) && text[end - 1] != '\n') end--;
        if (end > begin ? text[end - 1] != '\n' : !r->line_start) end = tag;
    }
    put_text(r, text + begin, end - begin);
}

static void read_form(reader *r) {
    for (size_t i = 0; i < r->n; i++) {
        unsigned char c = (unsigned char)r->text[i];
        r->unreadable = r->unreadable || (c < 0x20 && c != '\n' && c != '\t');
    }
    while (!r->unreadable && r->at < r->n) {
        read_text(r);
        if (r->at < r->n) read_tag(r);
    }
    end_text(r);
}

/* ---- identification ---- */

/* The default system text: an output text between chatml's system header and end of turn. */
static const char *find_system(const char *form, size_t *n) {
    static const char header[] = "<|im_start|>system\n", end[] = "<|im_end|>";
    for (const char *p = form; (p = strstr(p, header));) {
        p += strlen(header);
        const char *stop = strstr(p, end);
        *n = stop ? (size_t)(stop - p) : 0;
        size_t inside = 0;
        while (stop && inside < *n && (unsigned char)p[inside] > HOLE) inside++;
        if (stop && inside == *n) return p;
    }
    return NULL;
}

/* FNV-1a of the form, with every occurrence of the system text replaced by HOLE. */
static uint64_t fingerprint_of(const ht_text *form, const char *system, size_t n) {
    uint64_t hash = 14695981039346656037u;
    for (size_t i = 0; i < form->len;) {
        const char *p = form->data + i;
        bool hole = system && (n ? form->len - i >= n && memcmp(p, system, n) == 0 : p == system);
        unsigned char byte = hole ? HOLE : (unsigned char)*p;
        hash = (hash ^ byte) * 1099511628211u;
        if (hole && !n) hash = (hash ^ (unsigned char)*p) * 1099511628211u;
        i += hole && n ? n : 1;
    }
    return hash;
}

/* Sets fingerprint, format and default system text (chatml's or Mistral's). */
static ht_status describe(const reader *r, ht_template *out, ht_error *err) {
    size_t n = 0;
    const char *system = find_system(r->form.data, &n);
    out->fingerprint = fingerprint_of(&r->form, system, n);
    ht_template_find(out);
    if (r->has_system) {
        system = r->system.len ? r->system.data : "";
        n = r->system.len;
    }
    if (!system) return HT_OK;
    out->system = malloc(n + 1);
    if (!out->system) return ht_fail_memory(err, n + 1, "a chat template");
    memcpy(out->system, system, n);
    out->system[n] = '\0';
    return HT_OK;
}

/* ---- formats ---- */

#define FORMAT(name, opening, bos) {#name, opening, bos},
static const struct {
    const char *name, *opening;
    bool bos;
} formats[] = {HT_CHAT_FORMATS(FORMAT)};

bool ht_template_format(int i, const char **name, const char **opening, bool *bos) {
    if (i < 0 || i >= (int)(sizeof formats / sizeof *formats)) return false;
    if (name) *name = formats[i].name;
    if (opening) *opening = formats[i].opening;
    if (bos) *bos = formats[i].bos;
    return true;
}

ht_status ht_template_read(const char *text, ht_template *out, ht_error *err) {
    *out = (ht_template){0};
    reader *r = calloc(1, sizeof *r);
    if (!r) return ht_fail_memory(err, sizeof *r, "a chat template");
    r->text = text;
    r->n = strlen(text);
    r->line_start = true;
    if (r->n && text[r->n - 1] == '\n') r->n--; /* as Jinja does */
    read_form(r);
    ht_status status = HT_OK;
    if (r->form.failed || r->system.failed)
        status = ht_fail_memory(err, r->n, "a chat template");
    else if (!r->unreadable && r->form.len)
        status = describe(r, out, err);
    for (size_t i = 0; !out->format && !out->resembles && i < sizeof formats / sizeof *formats; i++)
        if (strstr(text, formats[i].opening)) out->resembles = formats[i].name;
    ht_text_discard(&r->form);
    ht_text_discard(&r->system);
    free(r);
    return status;
}

void ht_template_free(ht_template *t) {
    free(t->system);
    *t = (ht_template){0};
}
