/* Fields of requests: parses JSON bodies, checks them against tables of shapes, words the errors, and reads values. */
#include "serve/fields.h"

#include "base/text.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

const serve_shape serve_any_text = {.types = SERVE_JSON_TEXT},
                  serve_full_text = {.types = SERVE_JSON_TEXT, .filled = true};

/* ---- JSON ---- */

ht_json *serve_json_parse(const char *text, size_t n, size_t values_max, ht_json_replaced *replaced, serve_failure *f) {
    const ht_json_options options = {.name = "the body", .values_max = values_max, .replaced = replaced};
    ht_json *value;
    ht_error err = {0};
    const ht_status status = ht_json_load(text, n, &options, &value, &err);
    if (status == HT_ERR_MEMORY)
        serve_fail_memory(f);
    else if (status)
        serve_fail(f, 400, NULL, "%s", err.message);
    return value;
}

/* ---- fields ---- */

const ht_json *serve_member(const ht_json *object, const char *name) {
    const ht_json *value = ht_json_object_get(object, name);
    return ht_json_is_null(value) ? NULL : value;
}

int64_t serve_integer(const ht_json *object, const char *name, int64_t otherwise) {
    int64_t value = otherwise;
    (void)ht_json_whole(ht_json_object_get(object, name), &value);
    return value;
}

bool serve_flag(const ht_json *object, const char *name, bool otherwise) {
    const ht_json *value = ht_json_object_get(object, name);
    return ht_json_is_boolean(value) ? ht_json_is_true(value) : otherwise;
}

const char *serve_text(const ht_json *object, const char *name) {
    return ht_json_string_value(ht_json_object_get(object, name));
}

const char *serve_filled_text(const ht_json *object, const char *name) {
    const char *text = serve_text(object, name);
    return text && *text ? text : NULL;
}

int serve_word(const ht_json *object, const char *name, const char *const *words, int otherwise) {
    const char *text = serve_text(object, name);
    for (int i = 0; text && words[i]; i++)
        if (strcmp(text, words[i]) == 0) return i;
    return otherwise;
}

/* ---- paths ---- */

enum { PATH = 96, DESCRIPTION = 480 };

/* The position of a value: a field or a list item. Paths are formatted only for errors, which are rare. */
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
} checker;

static bool check_value(const checker *k, const place *at, const ht_json *value, const serve_shape *s);

/* Formats a path such as "messages[0].role", truncated to the buffer. */
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

/* ---- expectations ---- */

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

static void add_word(char out[DESCRIPTION], const char *word, bool first, bool last) {
    add(out, "%s\"%s\"", first ? "" : last ? " or " : ", ", word);
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
        for (size_t i = 0; s->words && s->words[i]; i++) add_word(out, s->words[i], !i, !s->words[i + 1]);
        if (!s->words) add(out, s->filled ? "a non-empty string" : "a string");
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

static bool refuse(const checker *k, const place *at, const ht_json *value, const char *expected) {
    char found[128], path[PATH];
    write_path(at, path);
    if (value)
        return serve_fail(k->f, 400, path, "\"%s\" must be %s, not %s", path, expected,
                          ht_json_describe(value, found, sizeof found));
    return serve_fail(k->f, 400, path, "\"%s\" is missing: it must be %s", path, expected);
}

static bool refuse_shape(const checker *k, const place *at, const ht_json *value, const serve_shape *s) {
    char expected[DESCRIPTION];
    describe(s, expected);
    return refuse(k, at, value, *expected ? expected : "present");
}

/* ---- fields ---- */

static bool in_words(const char *text, const char *const *words) {
    while (*words && strcmp(text, *words) != 0) words++;
    return *words;
}

static const serve_field *find(const serve_field *table, const char *name) {
    const serve_field *found = NULL;
    for (; table->name && !found; table++)
        if (table->more)
            found = find(table->more, name);
        else if (table->names ? in_words(name, table->names) : strcmp(table->name, name) == 0)
            found = table;
    return found;
}

/* Whether a value disables its feature: false, 0 or empty. */
static bool is_void(const ht_json *value) {
    return ht_json_is_false(value) ||
           (ht_json_is_number(value) && !(ht_json_number_value(value) < 0 || ht_json_number_value(value) > 0)) ||
           (ht_json_is_array(value) && !ht_json_array_size(value)) ||
           (ht_json_is_object(value) && !ht_json_object_size(value)) ||
           (ht_json_is_string(value) && !ht_json_string_length(value));
}

static bool check_lacked(const checker *k, const place *at, const ht_json *value, const serve_field *field) {
    serve_failure ignored = {0};
    checker quiet = *k;
    quiet.f = &ignored;
    if (field->is.types ? check_value(&quiet, at, value, &field->is) : is_void(value)) return true;
    char path[PATH];
    write_path(at, path);
    if (!k->f->status) k->f->lack = field->lack;
    return serve_fail(k->f, 400, path, "\"%s\" is not supported%s%s", path, field->instead ? ": " : "",
                      field->instead ? field->instead : "");
}

/* Checks one field; `field` NULL: no table has it. */
static bool check_member(const checker *k, const place *at, const ht_json *value, const serve_field *field,
                         bool lenient) {
    if (field ? ht_json_is_null(value) || field->class == SERVE_NOTED : lenient) return true;
    if (field && field->class == SERVE_LACKED) return check_lacked(k, at, value, field);
    if (field) return check_value(k, at, value, &field->is);
    char path[PATH];
    write_path(at, path);
    if (k->strict) return serve_fail(k->f, 400, path, "\"%s\" is unknown", path);
    k->unknown(path, k->user);
    return true;
}

static bool check_required(const checker *k, const place *at, const ht_json *object, const serve_field *table) {
    for (; table->name; table++) {
        const place here = {.outer = at, .name = table->name};
        if (table->more && !check_required(k, at, object, table->more)) return false;
        if (table->required && !serve_member(object, table->name)) return refuse_shape(k, &here, NULL, &table->is);
    }
    return true;
}

/* Checks all fields except `tag`, which is checked already; NULL: all fields. */
static bool check_members(const checker *k, const place *at, const ht_json *object, const serve_field *table,
                          const char *tag, bool lenient) {
    const char *name;
    ht_json *value;
    ht_json_object_foreach((ht_json *)object, name, value) {
        const place here = {.outer = at, .name = name};
        if (tag && strcmp(name, tag) == 0) continue;
        if (!check_member(k, &here, value, find(table, name), lenient)) return false;
    }
    return check_required(k, at, object, table);
}

/* ---- values ---- */

static bool check_kind(const checker *k, const place *at, const ht_json *object, const serve_shape *s) {
    const char *tag = s->tag ? s->tag : "type";
    const ht_json *type = serve_member(object, tag);
    const serve_kind *kind = s->kinds;
    while (kind->type && !(ht_json_is_string(type) && strcmp(ht_json_string_value(type), kind->type) == 0)) kind++;
    if (!type && s->first_kind) kind = s->kinds;
    if (kind->type) return check_members(k, at, object, kind->members, tag, s->lenient);
    if (s->other_kinds && ht_json_is_string(type)) return true;
    const place here = {.outer = at, .name = tag};
    char expected[DESCRIPTION] = "";
    for (size_t i = 0; !s->other_kinds && s->kinds[i].type; i++)
        add_word(expected, s->kinds[i].type, !i, !s->kinds[i + 1].type);
    return refuse(k, &here, type, s->other_kinds ? "a string" : expected);
}

static bool check_list(const checker *k, const place *at, const ht_json *list, const serve_shape *s) {
    const size_t n = ht_json_array_size(list);
    if (n < s->fewest || (s->most && n > s->most)) return refuse_shape(k, at, list, s);
    for (size_t i = 0; s->item && i < n; i++) {
        const place here = {.outer = at, .i = i};
        if (!check_value(k, &here, ht_json_array_get(list, i), s->item)) return false;
    }
    return true;
}

static bool check_object(const checker *k, const place *at, const ht_json *object, const serve_shape *s) {
    const char *name;
    ht_json *value;
    if (s->kinds) return check_kind(k, at, object, s);
    if (s->members) return check_members(k, at, object, s->members, NULL, s->lenient);
    ht_json_object_foreach((ht_json *)object, name, value) {
        const place here = {.outer = at, .name = name};
        if (s->every && !check_value(k, &here, value, s->every)) return false;
    }
    return true;
}

static bool in_range(const ht_json *value, const serve_shape *s) {
    int64_t whole;
    if (!s->low && !s->high) return true;
    if (ht_json_whole(value, &whole)) return whole >= s->low && whole <= s->high;
    const double real = ht_json_number_value(value); /* an integer beyond 64 bits, or a fraction */
    return (s->low == INT64_MIN || real >= (double)s->low) && (s->high == INT64_MAX || real <= (double)s->high);
}

static bool is_number(const ht_json *value, const serve_shape *s) {
    int64_t whole;
    if (s->types & SERVE_JSON_NUMBER || !(s->types & SERVE_JSON_INTEGER)) return s->types & SERVE_JSON_NUMBER;
    /* Integers beyond 64 bits are valid only without bounds. */
    const double real = ht_json_number_value(value);
    return ht_json_whole(value, &whole) || (!s->low && !s->high && real == floor(real));
}

static bool check_value(const checker *k, const place *at, const ht_json *value, const serve_shape *s) {
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
        if (s->types & SERVE_JSON_LIST) return check_list(k, at, value, s);
        break;
    case HT_JSON_OBJECT:
        if (s->types & SERVE_JSON_OBJECT) return check_object(k, at, value, s);
        break;
    case HT_JSON_NOT_FINITE: /* 1e999 */
    case HT_JSON_NULL: break;
    }
    return good ? true : refuse_shape(k, at, value, s);
}

bool serve_fields_check(const ht_json *body, const serve_field *table, bool strict, serve_unknown_fn *unknown,
                        void *user, serve_failure *f) {
    const checker k = {.strict = strict, .unknown = unknown, .user = user, .f = f};
    return check_members(&k, NULL, body, table, NULL, false);
}
