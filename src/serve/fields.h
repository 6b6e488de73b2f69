/* Members of requests: JSON bodies, read within bounds, and tables of what each member may be, from which come the checks, what failures say, and
 * the description of the interface (openapi.h).
 *
 * A member of a request is used; or it is of the kind that has no effect here ("user", "metadata"), and passed over; or it asks for something
 * that is not there, and is refused by name unless its value asks for nothing; or nobody knows it, and it is passed over and named. */
#ifndef HT_SERVE_FIELDS_H
#define HT_SERVE_FIELDS_H

#include "serve/failure.h"

#include <stdint.h>

/* The n bytes as a JSON object of so many values, within the limits of formats/json.h; NULL, with a failure, for what is none. The caller gives
 * it back. */
ht_json *serve_json_parse(const char *text, size_t n, size_t values_max, ht_json_replaced *replaced, serve_failure *f);

/* ---- what values may be ---- */

typedef struct serve_shape serve_shape;
typedef struct serve_field serve_field;

/* Types of values, or'ed. */
enum {
    SERVE_JSON_INTEGER = 1, /* 256.0 is one, too */
    SERVE_JSON_NUMBER = 2,
    SERVE_JSON_FLAG = 4,
    SERVE_JSON_TEXT = 8,
    SERVE_JSON_LIST = 16,
    SERVE_JSON_OBJECT = 32
};

/* Objects that a member tells apart, and the other members of each. */
typedef struct serve_kind {
    const char *type; /* the text of that member; NULL: the end of a list */
    const serve_field *members;
} serve_kind;

struct serve_shape {
    unsigned types; /* 0: any value; what follows is for values of its type alone */
    /* Of numbers, both included; 0 and 0: any; INT64_MIN, INT64_MAX: no bound of a number that is not whole. */
    int64_t low, high;
    const char *const *words; /* a text is one of these; NULL: any */
    bool filled;              /* texts are not empty */
    const char *pattern; /* texts match it, which who reads them sees to: for the description of the interface alone */
    bool on;             /* flags are true */
    size_t fewest, most; /* values of a list; most 0: as many as there may be */
    const serve_shape *item;    /* of a list; NULL: any */
    const serve_field *members; /* table of an object's fields; NULL: any members */
    const serve_shape *every;   /* instead: of each member; NULL: any */
    const serve_kind *kinds;    /* instead: objects of several kinds */
    const char *tag;            /* the member that tells them apart; NULL: "type" */
    bool first_kind;            /* one without it is of the first kind */
    bool other_kinds;           /* there may be others, whose members are not looked at */
    bool lenient;               /* members that no table knows are not reported: parts of a history carry much */
};

typedef enum serve_field_class {
    SERVE_USED,
    SERVE_NOTED, /* bookkeeping of other services: any value */
    SERVE_LACKED /* with an effect that is not there: values that ask for nothing, or of the shape if there is one */
} serve_field_class;

struct serve_field {
    const char *name; /* NULL: the end of a table */
    serve_field_class class;
    serve_shape is; /* null is a member that is not there */
    bool required;
    const char *instead; /* of one that is lacked: what can be done; NULL: nothing */
    const char *lack;    /* and the word that clients know that by, serve_failure.lack; NULL: none */
    /* Instead of one field, whose name is then "": several that are alike, or those of another table. The first of several with one name counts. */
    const char *const *names; /* NULL-terminated */
    const serve_field *more;
};

/* A text, and one that is not empty. */
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
/* Part of a history, which may have fields that no table knows. */
#define SERVE_IS_PART(table)                                                                                           \
    { .types = SERVE_JSON_OBJECT, .members = (table), .lenient = true }
#define SERVE_IS_LIST(shape)                                                                                           \
    { .types = SERVE_JSON_LIST, .item = (shape) }

/* Tables without a name. */
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

/* Rows of several fields: alike, bookkeeping, lacked, and those of another table. */
#define SERVE_NAMES(...)                                                                                               \
    .name = "", .names = (const char *const[]) { __VA_ARGS__, NULL }
#define SERVE_NOTED_FIELDS(...)                                                                                        \
    { SERVE_NAMES(__VA_ARGS__), .class = SERVE_NOTED }
#define SERVE_LACKED_FIELDS(...)                                                                                       \
    { SERVE_NAMES(__VA_ARGS__), .class = SERVE_LACKED }
#define SERVE_MORE(table)                                                                                              \
    { .name = "", .more = (table) }

/* A member that no table knows. */
typedef void serve_unknown_fn(const char *name, void *user);
/* Refuses an object with a member that is not what the table says, or, when `strict`, that it does not know; else these are reported. The
 * failure names the member by its path: "messages[0].role". */
bool serve_fields_check(const ht_json *body, const serve_field *table, bool strict, serve_unknown_fn *unknown,
                        void *user, serve_failure *f);

/* ---- members of objects that have been checked; NULL has none ---- */

/* The member, NULL when it is not there or null. */
const ht_json *serve_member(const ht_json *object, const char *name);
/* Its value, or `otherwise` where there is none of that type. */
int64_t serve_integer(const ht_json *object, const char *name, int64_t otherwise);
bool serve_flag(const ht_json *object, const char *name, bool otherwise);
/* Lent; NULL: none. */
const char *serve_text(const ht_json *object, const char *name);
/* Likewise, but "" counts as none. */
const char *serve_filled_text(const ht_json *object, const char *name);
/* Which of the words (NULL-terminated) it is. */
int serve_word(const ht_json *object, const char *name, const char *const *words, int otherwise);

#endif
