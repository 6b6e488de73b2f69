/* Members of requests: JSON bodies, read within bounds, and told apart by what the server does with each member.
 *
 * A member is used; or it is of the kind that has no effect here ("user", "metadata"), and passed over; or it asks for something that is
 * not there, and is refused by name unless its value asks for nothing; or nobody knows it, and it is passed over and named. */
#ifndef HT_SERVE_FIELDS_H
#define HT_SERVE_FIELDS_H

#include "serve/failure.h"

#include <stdint.h>

/* The n bytes as a JSON object of so many values, within the limits of formats/json.h; NULL, with a failure, for what is none. The caller gives
 * it back. */
json_t *serve_json_parse(const char *text, size_t n, size_t values_max, serve_failure *f);
/* A value as JSON text, numbers by as few digits as give them back; NULL when memory ran out. The caller frees it. */
char *serve_json_dump(const json_t *value);

typedef enum serve_field_class {
    SERVE_USED,
    SERVE_NOTED, /* bookkeeping of other services */
    SERVE_LACKED /* with an effect that is not there */
} serve_field_class;

typedef struct serve_field {
    const char *name; /* NULL: the end of a table */
    serve_field_class class;
} serve_field;

/* A member that no table knows. */
typedef void serve_unknown_fn(const char *name, void *user);
/* Refuses members of an object that are lacked, and, when `strict`, those that no table (NULL-terminated list of them) knows; else these are told. */
bool serve_fields_check(const json_t *body, const serve_field *const *tables, bool strict, serve_unknown_fn *unknown,
                        void *user, serve_failure *f);

/* Readers of single members: true, with *out as it was, for one that is not there or null. False is a failure that names it. */
bool serve_read_integer(const json_t *object, const char *name, int64_t low, int64_t high, int64_t *out,
                        serve_failure *f);
bool serve_read_number(const json_t *object, const char *name, double low, double high, double *out, serve_failure *f);
bool serve_read_flag(const json_t *object, const char *name, bool *out, serve_failure *f);
/* *out is lent from the object. */
bool serve_read_text(const json_t *object, const char *name, const char **out, serve_failure *f);
bool serve_read_object(const json_t *object, const char *name, const json_t **out, serve_failure *f);
bool serve_read_array(const json_t *object, const char *name, const json_t **out, serve_failure *f);
/* Which of the n words it is, in *out. */
bool serve_read_word(const json_t *object, const char *name, const char *const *words, int n, int *out,
                     serve_failure *f);
/* The member, NULL when it is not there or null. */
const json_t *serve_member(const json_t *object, const char *name);

#endif
