/* JSON documents: parsing with limits, and reading members with messages that say what was expected and found.
 *
 * A thin layer over jansson: documents are json_t, owned by whoever parsed them (json_decref). For documents that fit in
 * memory many times over; a tokenizer.json is streamed elsewhere. */
#ifndef HT_FORMATS_JSON_H
#define HT_FORMATS_JSON_H

#include <hearth/status.h>

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { HT_JSON_DEPTH_MAX = 64, HT_JSON_VALUES_MAX = 1 << 22 };

/* As Python reads what it writes: strict UTF-8, of members with the same name the last one counts, and NaN, Infinity and
 * -Infinity may stand where values do, though no function below takes them for one. The document is an object, nesting and
 * number of values are limited as above. `name` and the line and column are in the messages. An integer beyond 64 bits
 * (tokenizer_config.json writes 10^30 for "no limit") makes every number of the document a real; ht_json_i64 still reads
 * whole ones up to 2^53. */
ht_status ht_json_parse(const char *text, size_t size, const char *name, json_t **out, ht_error *err);
/* The same as the standard has it, and without members of the same name. */
ht_status ht_json_parse_strict(const char *text, size_t size, const char *name, json_t **out, ht_error *err);
/* ht_json_parse for a file of at most `limit` bytes. */
ht_status ht_json_read(const char *path, size_t limit, json_t **out, ht_error *err);

/* Members are read through a reader that keeps the first failure, so that a config is read line by line and checked once.
 * In every function below a NULL object counts as an empty one, and null as absent. */
typedef struct ht_json_reader {
    const char *file; /* for messages */
    ht_status status; /* the first failure */
    ht_error *err;
} ht_json_reader;

/* True when the member is there, and is of the kind: *out is set then. Absent is false and no failure; another kind is
 * false and a failure ("config.json: `hidden_size` is the string "x", expected an integer"). */
bool ht_json_i64(ht_json_reader *r, const json_t *object, const char *key, int64_t *out);
bool ht_json_f64(ht_json_reader *r, const json_t *object, const char *key, double *out); /* finite; integers too */
bool ht_json_bool(ht_json_reader *r, const json_t *object, const char *key, bool *out);
bool ht_json_str(ht_json_reader *r, const json_t *object, const char *key, const char **out); /* lent */
/* Lent, or NULL. */
const json_t *ht_json_object(ht_json_reader *r, const json_t *object, const char *key);
const json_t *ht_json_array(ht_json_reader *r, const json_t *object, const char *key);

/* Records that `key` had to be there: `if (!ht_json_i64(...)) ht_json_missing(r, "hidden_size", "an integer")`. */
void ht_json_missing(ht_json_reader *r, const char *key, const char *expected);
/* Records a failure of the caller's own; the file's name is put before it. */
ht_status ht_json_fail(ht_json_reader *r, ht_status status, const char *fmt, ...) HT_PRINTF(3, 4);

/* The whole number in `value` (an integer, or a real without fraction up to 2^53); false when it is none. */
bool ht_json_whole(const json_t *value, int64_t *out);
/* "the string \"abc\"", "an object", "12": what a value is, for messages. Written to `buffer`, which is returned. */
const char *ht_json_describe(const json_t *value, char *buffer, size_t size);

#endif
