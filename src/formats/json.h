/* JSON documents: parsing of texts and files, and typed field access with errors that name the expected type. */
#ifndef HT_FORMATS_JSON_H
#define HT_FORMATS_JSON_H

#include "formats/json_value.h"
#include "formats/json_write.h"

/* Parses an object by the rules of Python's json, which writes checkpoints: the last field with a name counts, and
 * NaN and +-Infinity are accepted (no getter below returns them). */
ht_status ht_json_parse(const char *text, size_t size, const char *name, ht_json **out, ht_error *err);
/* Standard JSON: no non-finite numbers, no repeated fields, at most `values_max` and HT_JSON_VALUES_MAX values. */
ht_status ht_json_parse_strict(const char *text, size_t size, const char *name, size_t values_max, ht_json **out,
                               ht_error *err);
/* ht_json_parse of a file of at most `limit` bytes. */
ht_status ht_json_read(const char *path, size_t limit, ht_json **out, ht_error *err);
/* ht_json_load of a file of at most `limit` bytes, whose path is the name in messages. */
ht_status ht_json_read_as(const char *path, size_t limit, const ht_json_options *options, ht_json **out, ht_error *err);

/* Field reader with a sticky error, checked once after all fields are read. A NULL object counts as empty, null as
 * absent. */
typedef struct ht_json_reader {
    const char *file; /* for messages */
    ht_status status; /* the first failure */
    ht_error *err;
} ht_json_reader;

/* Getters: true and *out set when the field has the type; false without an error when absent; false with an error for
 * another type ("config.json: `hidden_size` is the string "x", expected an integer"). */
bool ht_json_i64(ht_json_reader *r, const ht_json *object, const char *key, int64_t *out);
bool ht_json_f64(ht_json_reader *r, const ht_json *object, const char *key, double *out); /* finite; accepts integers */
bool ht_json_bool(ht_json_reader *r, const ht_json *object, const char *key, bool *out);
bool ht_json_str(ht_json_reader *r, const ht_json *object, const char *key, const char **out); /* borrowed */
/* Borrowed, or NULL. */
const ht_json *ht_json_object(ht_json_reader *r, const ht_json *object, const char *key);
const ht_json *ht_json_array(ht_json_reader *r, const ht_json *object, const char *key);

/* Records the error that `key` is required: `if (!ht_json_i64(...)) ht_json_missing(r, "hidden_size", "an
 * integer")`. */
void ht_json_missing(ht_json_reader *r, const char *key, const char *expected);
/* Records an error, prefixed by the file name. */
ht_status ht_json_fail(ht_json_reader *r, ht_status status, const char *fmt, ...) HT_PRINTF(3, 4);

/* Integer value of an integer, or of a whole real up to 2^53; false for other values. */
bool ht_json_whole(const ht_json *value, int64_t *out);
/* A whole number of any size, modulo 2^64; false for other values. */
bool ht_json_modulo(const ht_json *value, uint64_t *out);
/* Describes a value for messages: "the string \"abc\"", "an object", "12". Returns `buffer`. */
const char *ht_json_describe(const ht_json *value, char *buffer, size_t size);

#endif
