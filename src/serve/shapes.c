/* Checks of members: whether values have the shapes that tables say, and what is said of those that have not. */
#include "base/text.h"
#include "formats/json.h"
#include "serve/fields.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

const serve_shape serve_any_text = {.types = SERVE_JSON_TEXT},
                  serve_full_text = {.types = SERVE_JSON_TEXT, .filled = true};

enum { PATH = 96, DESCRIPTION = 480 };

/* Where a value is: a member of the value outside it, or an item. Most are never told of, so that paths are written when one is. */
typedef struct place {
    const struct place *outer; /* NULL: the body */
    const char *name;          /* NULL: an item */
    size_t i;
} place;

typedef struct checker {
    bool strict;
    serve_unknown_fn *unknown;
    void *user;
    serve_failure *f;
    const place *at; /* the value that is looked at */
} checker;

static bool check_value(checker *k, const ht_json *value, const serve_shape *s);

/* ---- places ---- */

/* "messages[0].role"; what has no room is left out. */
static void write_path(const place *at, char out[PATH]) {
    if (!at) {
        *out = '\0';
        return;
    }
    write_path(at->outer, out);
    const size_t n = strlen(out);
    if (at->name)
        snprintf(out + n, PATH - n, "%s%s", n ? "." : "", at->name);
    else
        snprintf(out + n, PATH - n, "[%zu]", at->i);
    ht_utf8_trim(out);
}

/* ---- what is expected ---- */

static void add(char out[DESCRIPTION], const char *format, ...) HT_PRINTF(2, 3);
static void add(char out[DESCRIPTION], const char *format, ...) {
    const size_t n = strlen(out);
    va_list args;
    va_start(args, format);
    vsnprintf(out + n, DESCRIPTION - n, format, args);
    va_end(args);
}

static void add_range(char out[DESCRIPTION], const char *what, const serve_shape *s) {
    const long long low = s->low, high = s->high;
    add(out, "%s", what);
    if (!low && !high) return;
    if (high == INT64_MAX)
        add(out, " of %lld or more", low);
    else if (low == INT64_MIN)
        add(out, " of at most %lld", high);
    else
        add(out, " from %lld to %lld", low, high);
}

static void add_words(char out[DESCRIPTION], const char *const *words) {
    for (size_t i = 0; words[i]; i++) add(out, "%s\"%s\"", !i ? "" : words[i + 1] ? ", " : " or ", words[i]);
}

static void add_kinds(char out[DESCRIPTION], const serve_kind *kinds) {
    for (size_t i = 0; kinds[i].type; i++)
        add(out, "%s\"%s\"", !i ? "" : kinds[i + 1].type ? ", " : " or ", kinds[i].type);
}

static void add_list(char out[DESCRIPTION], const serve_shape *s) {
    add(out, "a list");
    if (s->fewest && s->most)
        add(out, " of %zu to %zu", s->fewest, s->most);
    else if (s->fewest)
        add(out, " of %zu or more", s->fewest);
    else if (s->most)
        add(out, " of at most %zu", s->most);
}

static void add_type(char out[DESCRIPTION], unsigned type, const serve_shape *s) {
    switch (type) {
    case SERVE_JSON_INTEGER: add_range(out, "a whole number", s); break;
    case SERVE_JSON_NUMBER: add_range(out, "a number", s); break;
    case SERVE_JSON_FLAG: add(out, s->on ? "true" : "true or false"); break;
    case SERVE_JSON_TEXT:
        if (s->words)
            add_words(out, s->words);
        else
            add(out, s->filled ? "a non-empty string" : "a string");
        break;
    case SERVE_JSON_LIST: add_list(out, s); break;
    default: add(out, "an object"); break;
    }
}

static void describe(const serve_shape *s, char out[DESCRIPTION]) {
    *out = '\0';
    for (unsigned type = SERVE_JSON_INTEGER; type <= SERVE_JSON_OBJECT; type *= 2) {
        if (!(s->types & type)) continue;
        if (*out) add(out, s->types >= 2 * type ? ", " : " or ");
        add_type(out, type, s);
    }
}

static bool refuse(checker *k, const ht_json *value, const char *expected) {
    char found[128], path[PATH];
    write_path(k->at, path);
    if (value)
        return serve_fail(k->f, 400, path, "\"%s\" must be %s, not %s", path, expected,
                          ht_json_describe(value, found, sizeof found));
    return serve_fail(k->f, 400, path, "\"%s\" is missing: it must be %s", path, expected);
}

static bool refuse_shape(checker *k, const ht_json *value, const serve_shape *s) {
    char expected[DESCRIPTION];
    describe(s, expected);
    return refuse(k, value, *expected ? expected : "present");
}

/* ---- members ---- */

static const serve_field *find(const serve_field *const *tables, const char *name) {
    for (; *tables; tables++)
        for (const serve_field *field = *tables; field->name; field++)
            if (strcmp(field->name, name) == 0) return field;
    return NULL;
}

/* Whether a value asks for nothing. */
static bool is_void(const ht_json *value) {
    return ht_json_is_false(value) ||
           (ht_json_is_number(value) && !(ht_json_number_value(value) < 0 || ht_json_number_value(value) > 0)) ||
           (ht_json_is_array(value) && !ht_json_array_size(value)) ||
           (ht_json_is_object(value) && !ht_json_object_size(value)) ||
           (ht_json_is_string(value) && !ht_json_string_length(value));
}

static bool check_lacked(checker *k, const ht_json *value, const serve_field *field) {
    serve_failure ignored = {0};
    checker quiet = *k;
    quiet.f = &ignored;
    if (field->is.types ? check_value(&quiet, value, &field->is) : is_void(value)) return true;
    char path[PATH];
    write_path(k->at, path);
    if (!k->f->status) k->f->lack = field->lack;
    return serve_fail(k->f, 400, path, "\"%s\" is not supported%s%s", path, field->instead ? ": " : "",
                      field->instead ? field->instead : "");
}

static bool check_unknown(checker *k) {
    char path[PATH];
    write_path(k->at, path);
    if (k->strict) return serve_fail(k->f, 400, path, "\"%s\" is unknown", path);
    k->unknown(path, k->user);
    return true;
}

static bool check_member(checker *k, const char *name, const ht_json *value, const serve_field *field, bool lenient) {
    const place here = {.outer = k->at, .name = name};
    bool good = true;
    k->at = &here;
    if (!field)
        good = lenient || check_unknown(k);
    else if (!ht_json_is_null(value) && field->class == SERVE_LACKED)
        good = check_lacked(k, value, field);
    else if (!ht_json_is_null(value) && field->class == SERVE_USED)
        good = check_value(k, value, &field->is);
    k->at = here.outer;
    return good;
}

static bool check_required(checker *k, const ht_json *object, const serve_field *const *tables) {
    bool good = true;
    for (; *tables; tables++)
        for (const serve_field *field = *tables; field->name && good; field++) {
            if (!field->required || serve_member(object, field->name)) continue;
            const place here = {.outer = k->at, .name = field->name};
            k->at = &here;
            good = refuse_shape(k, NULL, &field->is);
            k->at = here.outer;
        }
    return good;
}

/* The members but for `tag`, which has been looked at; NULL: all. */
static bool check_members(checker *k, const ht_json *object, const serve_field *const *tables, const char *tag,
                          bool lenient) {
    const char *name;
    ht_json *value;
    ht_json_object_foreach((ht_json *)object, name, value) {
        if (tag && strcmp(name, tag) == 0) continue;
        if (!check_member(k, name, value, find(tables, name), lenient)) return false;
    }
    return check_required(k, object, tables);
}

/* ---- values ---- */

/* A value within the one that is looked at. */
static bool check_inner(checker *k, const char *name, size_t i, const ht_json *value, const serve_shape *s) {
    const place here = {k->at, name, i};
    k->at = &here;
    const bool good = check_value(k, value, s);
    k->at = here.outer;
    return good;
}

static bool check_kind(checker *k, const ht_json *object, const serve_shape *s) {
    const char *tag = s->tag ? s->tag : "type";
    const ht_json *type = serve_member(object, tag);
    const serve_kind *kind = s->kinds;
    while (kind->type && !(ht_json_is_string(type) && strcmp(ht_json_string_value(type), kind->type) == 0)) kind++;
    if (!type && s->first_kind) kind = s->kinds;
    if (kind->type) return check_members(k, object, kind->members, tag, s->lenient);
    if (s->other_kinds && ht_json_is_string(type)) return true;
    char expected[DESCRIPTION] = "";
    if (s->other_kinds)
        add(expected, "a string");
    else
        add_kinds(expected, s->kinds);
    const place here = {.outer = k->at, .name = tag};
    k->at = &here;
    const bool good = refuse(k, type, expected);
    k->at = here.outer;
    return good;
}

static bool check_list(checker *k, const ht_json *list, const serve_shape *s) {
    const size_t n = ht_json_array_size(list);
    if (n < s->fewest || (s->most && n > s->most)) return refuse_shape(k, list, s);
    for (size_t i = 0; s->item && i < n; i++)
        if (!check_inner(k, NULL, i, ht_json_array_get(list, i), s->item)) return false;
    return true;
}

static bool check_every(checker *k, const ht_json *object, const serve_shape *every) {
    const char *name;
    ht_json *value;
    if (!every) return true;
    ht_json_object_foreach((ht_json *)object, name, value) if (!check_inner(k, name, 0, value, every)) return false;
    return true;
}

static bool in_words(const char *text, const char *const *words) {
    while (*words && strcmp(text, *words) != 0) words++;
    return *words;
}

static bool in_range(const ht_json *value, const serve_shape *s) {
    int64_t whole;
    if (!s->low && !s->high) return true;
    if (ht_json_whole(value, &whole)) return whole >= s->low && whole <= s->high;
    const double real = ht_json_number_value(value); /* whole and that large: beyond 64 bits maybe */
    return (s->low == INT64_MIN || real >= (double)s->low) && (s->high == INT64_MAX || real <= (double)s->high);
}

static bool is_number(const ht_json *value, const serve_shape *s) {
    int64_t whole;
    if (s->types & SERVE_JSON_NUMBER || !(s->types & SERVE_JSON_INTEGER)) return s->types & SERVE_JSON_NUMBER;
    /* Whole numbers beyond 64 bits are for members without bounds alone. */
    const double real = ht_json_number_value(value);
    return ht_json_whole(value, &whole) || (!s->low && !s->high && real == floor(real));
}

static bool check_value(checker *k, const ht_json *value, const serve_shape *s) {
    bool good = false;
    if (!s->types) return true;
    switch (ht_json_typeof(value)) {
    case HT_JSON_INTEGER:
    case HT_JSON_REAL: good = is_number(value, s) && in_range(value, s); break;
    case HT_JSON_TRUE:
    case HT_JSON_FALSE: good = s->types & SERVE_JSON_FLAG && (ht_json_is_true(value) || !s->on); break;
    case HT_JSON_STRING:
        good = s->types & SERVE_JSON_TEXT && (!s->words || in_words(ht_json_string_value(value), s->words)) &&
               (!s->filled || ht_json_string_length(value));
        break;
    case HT_JSON_ARRAY:
        if (s->types & SERVE_JSON_LIST) return check_list(k, value, s);
        break;
    case HT_JSON_OBJECT:
        if (!(s->types & SERVE_JSON_OBJECT)) break;
        if (s->kinds) return check_kind(k, value, s);
        return s->members ? check_members(k, value, s->members, NULL, s->lenient) : check_every(k, value, s->every);
    case HT_JSON_NOT_FINITE: /* 1e999 */
    case HT_JSON_NULL: break;
    }
    return good ? true : refuse_shape(k, value, s);
}

bool serve_fields_check(const ht_json *body, const serve_field *const *tables, bool strict, serve_unknown_fn *unknown,
                        void *user, serve_failure *f) {
    checker k = {.strict = strict, .unknown = unknown, .user = user, .f = f};
    return check_members(&k, body, tables, NULL, false);
}
