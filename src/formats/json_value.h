/* JSON values in memory: trees with reference counts, read from a text or made by a program.
 *
 * Ownership: a function that makes a value gives its caller a reference, released with ht_json_decref. A container owns
 * references to its items: ..._set and _append add one, the _new forms take the caller's, also when they fail. Lent
 * values (`get`, `value`) live as long as their container. Counts are atomic; a value that several threads read must
 * not change. NULL is accepted everywhere and has no type. Functions that return int give 0, or -1 when memory ran out
 * or an argument does not fit.
 *
 * Numbers keep the spelling they were read with, and are written so (json_write.h): HT_JSON_INTEGER is integer
 * syntax that fits 64 bits, any other finite number HT_JSON_REAL. Fields keep their order. */
#ifndef HT_FORMATS_JSON_VALUE_H
#define HT_FORMATS_JSON_VALUE_H

#include "formats/json_scan.h"

typedef enum ht_json_type {
    HT_JSON_OBJECT,
    HT_JSON_ARRAY,
    HT_JSON_STRING,
    HT_JSON_INTEGER,
    HT_JSON_REAL,
    HT_JSON_TRUE,
    HT_JSON_FALSE,
    HT_JSON_NULL,
    HT_JSON_NOT_FINITE /* no number: one beyond 1.8e308, or NaN, Infinity or -Infinity of a text read with `as_python` */
} ht_json_type;

typedef struct ht_json {
    ht_json_type type;
    uint32_t references;
    uint32_t line, column; /* in the text it was read from, from 1; 0: made by a program */
} ht_json;

/* ---- reading ---- */

/* Reads one value. Repeated fields are errors, unless options->as_python. */
ht_status ht_json_load(const char *text, size_t n, const ht_json_options *options, ht_json **out, ht_error *err);
/* Reads the value that begins with `event`, which may be inside a larger document; NULL with the scanner's error. */
ht_json *ht_json_scan_value(ht_json_scanner *s, ht_json_event event);
/* Reads any value of standard JSON; NULL for another text, or when memory ran out. */
ht_json *ht_json_of(const char *text, size_t n);

/* ---- types ---- */

static inline ht_json_type ht_json_typeof(const ht_json *v) { return v->type; }
static inline bool ht_json_is_object(const ht_json *v) { return v && v->type == HT_JSON_OBJECT; }
static inline bool ht_json_is_array(const ht_json *v) { return v && v->type == HT_JSON_ARRAY; }
static inline bool ht_json_is_string(const ht_json *v) { return v && v->type == HT_JSON_STRING; }
static inline bool ht_json_is_integer(const ht_json *v) { return v && v->type == HT_JSON_INTEGER; }
static inline bool ht_json_is_real(const ht_json *v) { return v && v->type == HT_JSON_REAL; }
static inline bool ht_json_is_number(const ht_json *v) { return ht_json_is_integer(v) || ht_json_is_real(v); }
static inline bool ht_json_is_true(const ht_json *v) { return v && v->type == HT_JSON_TRUE; }
static inline bool ht_json_is_false(const ht_json *v) { return v && v->type == HT_JSON_FALSE; }
static inline bool ht_json_is_boolean(const ht_json *v) { return ht_json_is_true(v) || ht_json_is_false(v); }
static inline bool ht_json_is_null(const ht_json *v) { return v && v->type == HT_JSON_NULL; }

ht_json *ht_json_incref(const ht_json *v); /* returns the value */
void ht_json_decref(ht_json *v);

/* ---- scalars; functions that make one return NULL when memory ran out ---- */

ht_json *ht_json_null(void);
ht_json *ht_json_boolean(bool value);
ht_json *ht_json_integer(int64_t value);
ht_json *ht_json_unsigned(uint64_t value);
ht_json *ht_json_real(double value);       /* NULL for a number that is not finite */
ht_json *ht_json_string(const char *text); /* NULL for NULL */
/* Invalid UTF-8 in the bytes becomes U+FFFD. */
ht_json *ht_json_stringn(const char *text, size_t n);
/* Keeps invalid UTF-8, which ht_json_append writes as U+FFFD: for formats other than JSON. */
ht_json *ht_json_bytes(const char *bytes, size_t n);

const char *ht_json_string_value(const ht_json *v); /* lent, NUL-terminated; NULL: no string */
size_t ht_json_string_length(const ht_json *v);
int64_t ht_json_integer_value(const ht_json *v); /* 0: no integer */
double ht_json_real_value(const ht_json *v);     /* 0: no real */
double ht_json_number_value(const ht_json *v);   /* 0: no number */
/* The spelling a number was read with; NULL for an integer as C prints it, a number made by a program, and other values. */
const char *ht_json_spelling(const ht_json *v);

/* ---- arrays ---- */

ht_json *ht_json_new_array(void);
size_t ht_json_array_size(const ht_json *array);
ht_json *ht_json_array_get(const ht_json *array, size_t i); /* lent; NULL: no such item */
int ht_json_array_append(ht_json *array, ht_json *value);
int ht_json_array_append_new(ht_json *array, ht_json *value);
int ht_json_array_insert_new(ht_json *array, size_t i, ht_json *value);
int ht_json_array_extend(ht_json *array, const ht_json *other);
int ht_json_array_remove(ht_json *array, size_t i);
int ht_json_array_clear(ht_json *array);

#define ht_json_array_foreach(array, i, value)                                                                         \
    for ((i) = 0; (i) < ht_json_array_size(array) && ((value) = ht_json_array_get(array, i)); (i)++)

/* ---- objects ---- */

typedef struct ht_json_member {
    const char *name; /* NUL-terminated */
    size_t n_name;
    ht_json *value;
} ht_json_member;

ht_json *ht_json_new_object(void);
size_t ht_json_object_size(const ht_json *object);
/* Lent, in order, and valid until the object changes; NULL with *n 0 for another value. */
const ht_json_member *ht_json_members(const ht_json *object, size_t *n);
ht_json *ht_json_object_get(const ht_json *object, const char *name); /* lent; NULL: no such field */
ht_json *ht_json_object_getn(const ht_json *object, const char *name, size_t n);
/* An existing field keeps its position. The object must not be in `value`. */
int ht_json_object_set(ht_json *object, const char *name, ht_json *value);
int ht_json_object_set_new(ht_json *object, const char *name, ht_json *value);
int ht_json_object_setn_new(ht_json *object, const char *name, size_t n, ht_json *value);
int ht_json_object_del(ht_json *object, const char *name);
int ht_json_object_update(ht_json *object, const ht_json *other);

/* Lent until the object changes; NULL: i is out of range. */
const ht_json_member *ht_json_object_at(const ht_json *object, size_t i);
/* Iterates over the fields in order. The loop may set values of existing fields but must not remove any. */
#define ht_json_object_foreach(object, name, value)                                                                    \
    HT_JSON_MEMBERS(object, name, value, HT_JSON_JOIN(ht_member_, __LINE__))
#define HT_JSON_MEMBERS(object, key, item, i)                                                                          \
    for (size_t i = 0;                                                                                                 \
         ht_json_object_at(object, i) && ((key) = ht_json_object_at(object, i)->name, (void)(key),                     \
                                         (item) = ht_json_object_at(object, i)->value, (void)(item), true);            \
         i++)
#define HT_JSON_JOIN(a, b)  HT_JSON_JOIN_(a, b)
#define HT_JSON_JOIN_(a, b) a##b

/* ---- whole values ---- */

ht_json *ht_json_copy(const ht_json *v); /* a container of the same items; NULL when memory ran out */
/* Deep equality, with equal types. The order of fields does not matter. */
bool ht_json_equal(const ht_json *a, const ht_json *b);

/* Makes a value from a format: `{` names and values `}`, `[` values `]`, and for the arguments
 *   s  const char *, as the name of a field or a string; `s%` and its size_t length
 *   i  int    I  int64_t    f  double    b  int, as true or false    n  null
 *   o  ht_json *, whose reference is taken, also when the call fails    O  ht_json *, which gets another reference
 * `s?`, `o?` and `O?` are null for NULL, `s*`, `o*` and `O*` omit the field or item; otherwise NULL is an error.
 * Spaces, colons and commas between them mean nothing. NULL: memory ran out, or an argument does not fit. */
ht_json *ht_json_pack(const char *format, ...);

#endif
