/* JSON documents: parsing with limits, and typed member access whose errors name what was expected and found.
 *
 * A thin layer over jansson: a document is a json_t, released with json_decref by its parser's caller. For small
 * documents; a tokenizer.json is streamed (tokenizer/json_document.h). */
#ifndef HT_FORMATS_JSON_H
#define HT_FORMATS_JSON_H

#include <hearth/status.h>

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { HT_JSON_DEPTH_MAX = 192, HT_JSON_VALUES_MAX = 1 << 22 };

/* Parses an object as Python's json does: strict UTF-8, the last of several members with one name, NaN and +-Infinity
 * accepted (no getter below returns them). Depth and value count are limited as above. Messages give `name`, line and
 * column. An integer beyond 64 bits (tokenizer_config.json: 10^30 for "no limit") is read as a real. */
ht_status ht_json_parse(const char *text, size_t size, const char *name, json_t **out, ht_error *err);
/* Standard JSON: no non-finite numbers, no repeated members; `values_max` values, or HT_JSON_VALUES_MAX if that is less. */
ht_status ht_json_parse_strict(const char *text, size_t size, const char *name, size_t values_max, json_t **out,
                               ht_error *err);
/* ht_json_parse of a file of at most `limit` bytes. */
ht_status ht_json_read(const char *path, size_t limit, json_t **out, ht_error *err);

/* Member reader with a sticky error, checked once after all fields are read. A NULL object counts as empty, null as
 * absent. */
typedef struct ht_json_reader {
    const char *file; /* for messages */
    ht_status status; /* the first failure */
    ht_error *err;
} ht_json_reader;

/* Getters: true and *out set when the member has the type; false without an error when absent; false with an error for
 * another type ("config.json: `hidden_size` is the string "x", expected an integer"). */
bool ht_json_i64(ht_json_reader *r, const json_t *object, const char *key, int64_t *out);
bool ht_json_f64(ht_json_reader *r, const json_t *object, const char *key, double *out); /* finite; accepts integers */
bool ht_json_bool(ht_json_reader *r, const json_t *object, const char *key, bool *out);
bool ht_json_str(ht_json_reader *r, const json_t *object, const char *key, const char **out); /* borrowed */
/* Borrowed, or NULL. */
const json_t *ht_json_object(ht_json_reader *r, const json_t *object, const char *key);
const json_t *ht_json_array(ht_json_reader *r, const json_t *object, const char *key);

/* Records the error that `key` is required: `if (!ht_json_i64(...)) ht_json_missing(r, "hidden_size", "an
 * integer")`. */
void ht_json_missing(ht_json_reader *r, const char *key, const char *expected);
/* Records an error, prefixed by the file name. */
ht_status ht_json_fail(ht_json_reader *r, ht_status status, const char *fmt, ...) HT_PRINTF(3, 4);

/* The text of a document that ht_json_parse has read, in lines, its non-finite numbers as they were. NULL when memory ran out;
 * the caller frees it. */
char *ht_json_text_of(const json_t *root);
/* The text of a document as json_dumps writes it with these flags, whose own text lacks a key when memory runs out for one. The
 * caller frees it; NULL when memory ran out. */
char *ht_json_write(const json_t *value, size_t flags);

/* Integer value of an integer, or of a whole real up to 2^53; false for other values. */
bool ht_json_whole(const json_t *value, int64_t *out);
/* Describes a value for messages: "the string \"abc\"", "an object", "12". Returns `buffer`. */
const char *ht_json_describe(const json_t *value, char *buffer, size_t size);

#endif
