/* Fields of requests: JSON bodies within limits, and tables that describe each field. The tables give the checks, the
 * error messages and the OpenAPI description.
 *
 * A field is used; or noted, accepted without effect ("user", "metadata"); or lacked, rejected by name unless its value
 * disables it; or unknown, ignored and reported. */
#ifndef HT_SERVE_FIELDS_H
#define HT_SERVE_FIELDS_H

#include "serve/failure.h"

#include <stdint.h>

/* Parses n bytes as a JSON object of at most values_max values, within the limits of formats/json.h. NULL, with a
 * failure, for invalid JSON. The caller releases it. */
ht_json *serve_json_parse(const char *text, size_t n, size_t values_max, ht_json_replaced *replaced, serve_failure *f);

/* ---- shapes ---- */

typedef struct serve_shape serve_shape;
typedef struct serve_field serve_field;

/* Types of values, a bit mask. */
enum {
    SERVE_JSON_INTEGER = 1, /* 256.0 counts, too */
    SERVE_JSON_NUMBER = 2,
    SERVE_JSON_FLAG = 4,
    SERVE_JSON_TEXT = 8,
    SERVE_JSON_LIST = 16,
    SERVE_JSON_OBJECT = 32
};

/* One variant of a tagged object, and its other fields. */
typedef struct serve_kind {
    const char *type; /* the tag's value; NULL: the end of a list */
    const serve_field *members;
} serve_kind;

struct serve_shape {
    unsigned types; /* 0: any value; the rest constrains values of the matching type */
    /* Bounds of numbers, inclusive; 0 and 0: none. INT64_MIN and INT64_MAX leave a fractional number unbounded. */
    int64_t low, high;
    const char *const *words;   /* allowed texts; NULL: any */
    bool filled;                /* texts are not empty */
    const char *pattern;        /* regular expression for the OpenAPI description; readers of the field check it */
    bool on;                    /* flags must be true */
    size_t fewest, most;        /* bounds of a list's length; most 0: unlimited */
    const serve_shape *item;    /* shape of list items; NULL: any */
    const serve_field *members; /* table of an object's fields; NULL: any fields */
    const serve_shape *every;   /* instead: the shape of every field; NULL: any */
    const serve_kind *kinds;    /* instead: variants of a tagged object */
    const char *tag;            /* the field that holds the tag; NULL: "type" */
    bool first_kind;            /* an object without a tag is of the first kind */
    bool other_kinds;           /* other tags are valid; their fields are not checked */
    bool lenient;               /* unknown fields are not reported, since histories carry many */
};

typedef enum serve_field_class {
    SERVE_USED,
    SERVE_NOTED, /* bookkeeping of other services: any value, without effect */
    SERVE_LACKED /* unsupported: only values that disable it, or that match the shape if it has one */
} serve_field_class;

struct serve_field {
    const char *name; /* NULL: the end of a table */
    serve_field_class class;
    serve_shape is; /* null counts as absent */
    bool required;
    const char *instead; /* for a lacked field: what to send instead; NULL: nothing */
    const char *lack;    /* and its error code, serve_failure.lack; NULL: none */
    /* Instead of one field, with the name "": several alike, or another table's. The first match by name counts. */
    const char *const *names; /* NULL-terminated */
    const serve_field *more;
};

/* Any text, and any non-empty text. */
extern const serve_shape serve_any_text, serve_full_text;

#define SERVE_IS_INTEGER(from, to)                                                                                     \
    { .types = SERVE_JSON_INTEGER, .low = (from), .high = (to) }
#define SERVE_IS_NUMBER(from, to)                                                                                      \
    { .types = SERVE_JSON_NUMBER, .low = (from), .high = (to) }
#define SERVE_IS_FLAG                                                                                                  \
    { .types = SERVE_JSON_FLAG }
#define SERVE_IS_TEXT                                                                                                  \
    { .types = SERVE_JSON_TEXT }
#define SERVE_IS_WORD(list)                                                                                            \
    { .types = SERVE_JSON_TEXT, .words = (list) }
#define SERVE_IS_OBJECT(table)                                                                                         \
    { .types = SERVE_JSON_OBJECT, .members = (table) }
/* Part of a history, which may have unknown fields. */
#define SERVE_IS_PART(table)                                                                                           \
    { .types = SERVE_JSON_OBJECT, .members = (table), .lenient = true }
#define SERVE_IS_LIST(shape)                                                                                           \
    { .types = SERVE_JSON_LIST, .item = (shape) }

/* Anonymous tables. */
#define SERVE_FIELDS(...)                                                                                              \
    (const serve_field[]) {                                                                                            \
        __VA_ARGS__, { 0 }                                                                                             \
    }
#define SERVE_NO_FIELDS                                                                                                \
    (const serve_field[]) {                                                                                            \
        { 0 }                                                                                                          \
    }
#define SERVE_KINDS(...)                                                                                               \
    (const serve_kind[]) {                                                                                             \
        __VA_ARGS__, { 0 }                                                                                             \
    }

/* Rows for several fields: alike, noted, lacked, and included from another table. */
#define SERVE_NAMES(...)                                                                                               \
    .name = "", .names = (const char *const[]) { __VA_ARGS__, NULL }
#define SERVE_NOTED_FIELDS(...)                                                                                        \
    { SERVE_NAMES(__VA_ARGS__), .class = SERVE_NOTED }
#define SERVE_LACKED_FIELDS(...)                                                                                       \
    { SERVE_NAMES(__VA_ARGS__), .class = SERVE_LACKED }
#define SERVE_MORE(table)                                                                                              \
    { .name = "", .more = (table) }

/* Called for each unknown field. */
typedef void serve_unknown_fn(const char *name, void *user);
/* Checks an object against a table. Unknown fields are failures when `strict`, else they are reported. The failure
 * names a field by its path: "messages[0].role". */
bool serve_fields_check(const ht_json *body, const serve_field *table, bool strict, serve_unknown_fn *unknown,
                        void *user, serve_failure *f);

/* ---- fields of checked objects; NULL has none ---- */

/* The field's value; NULL when it is absent or null. */
const ht_json *serve_member(const ht_json *object, const char *name);
/* The field's value, or `otherwise` when it is absent or of another type. */
int64_t serve_integer(const ht_json *object, const char *name, int64_t otherwise);
bool serve_flag(const ht_json *object, const char *name, bool otherwise);
/* Lent; NULL: none. */
const char *serve_text(const ht_json *object, const char *name);
/* Likewise, but "" counts as none. */
const char *serve_filled_text(const ht_json *object, const char *name);
/* The index of the value in words (NULL-terminated). */
int serve_word(const ht_json *object, const char *name, const char *const *words, int otherwise);

#endif
