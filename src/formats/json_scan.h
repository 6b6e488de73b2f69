/* JSON scanner: returns the events of a text one by one, with their positions.
 *
 * RFC 8259: UTF-8, no comments, no trailing commas; a byte order mark at the beginning is accepted. An escaped
 * surrogate without its other half becomes U+FFFD, and so does an escaped NUL unless `keeps_nul` is set. Errors are
 * sticky and name the text, line and column: "talk.json: line 3, column 8: expected a comma or `}`, found `"`".
 * Nothing recurses. The scanner does not remember names: code that builds values must reject or replace repeated
 * fields. */
#ifndef HT_FORMATS_JSON_SCAN_H
#define HT_FORMATS_JSON_SCAN_H

#include "base/text.h"

#include <hearth/status.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Levels of a text that a program receives, and of one that it has made of such texts, which has a few more. */
enum { HT_JSON_DEPTH = 192, HT_JSON_DEPTH_MAX = 256, HT_JSON_VALUES_MAX = 1 << 22 };

/* Characters of strings that were replaced by U+FFFD. */
typedef struct ht_json_replaced {
    bool nul, surrogate;
} ht_json_replaced;

/* Zeroed options are standard JSON with an object at the top. */
typedef struct ht_json_options {
    const char *name;           /* for messages: a path, "the body"; NULL: the caller puts one before them */
    size_t values_max;          /* 0: HT_JSON_VALUES_MAX. Counted are scalars and empty containers */
    int depth_max;              /* 0: HT_JSON_DEPTH */
    bool as_python;             /* accepts NaN, +-Infinity and repeated fields, the last of which counts */
    bool keeps_nul;             /* strings may have NUL */
    bool any_value;             /* the top may be any value */
    uint32_t first_line;        /* of a text that is part of a file: the number of its first line; 0: 1 */
    ht_json_replaced *replaced; /* set to the characters that were replaced; may be NULL */
} ht_json_options;

typedef enum ht_json_event {
    HT_SCAN_FAILED, /* `status` and the error say why */
    HT_SCAN_END,
    HT_SCAN_OBJECT, /* an object begins */
    HT_SCAN_ARRAY,  /* an array begins */
    HT_SCAN_CLOSE,  /* the innermost container ends */
    HT_SCAN_KEY,    /* its value is the next event */
    HT_SCAN_STRING,
    HT_SCAN_NUMBER, /* `bytes` is its spelling, NaN and Infinity included */
    HT_SCAN_TRUE,
    HT_SCAN_FALSE,
    HT_SCAN_NULL
} ht_json_event;

typedef struct ht_json_scanner {
    /* The last event. `bytes` are not NUL-terminated and are valid until the next string. */
    const char *bytes;
    size_t n_bytes;
    uint32_t line, column; /* from 1; columns are characters */
    int depth;             /* open containers */
    ht_status status;
    /* Private. */
    ht_json_options options;
    ht_error *err;
    const char *text;
    size_t n, at, n_commas;
    uint32_t row;                    /* the current line, from 1 */
    size_t line_begin, continuation; /* its offset, and its bytes that continue a character */
    int state;
    uint64_t is_object[HT_JSON_DEPTH_MAX / 64]; /* a bit for each open container */
    ht_text unescaped;                          /* the characters of a string with escapes */
} ht_json_scanner;

/* The text and the name are lent until ht_json_scan_end. */
void ht_json_scan_begin(ht_json_scanner *s, const char *text, size_t n, const ht_json_options *options, ht_error *err);
ht_json_event ht_json_scan_next(ht_json_scanner *s);
/* Skips the rest of the value that begins with an event; returns its last event. */
ht_json_event ht_json_scan_skip(ht_json_scanner *s, ht_json_event event);
/* Frees the memory of the scanner and returns its status. */
ht_status ht_json_scan_end(ht_json_scanner *s);
/* Records an error at the last event, unless there is one: "name: line 3, column 8: ...". Returns HT_SCAN_FAILED. */
ht_json_event ht_json_scan_fail(ht_json_scanner *s, ht_status status, const char *fmt, ...) HT_PRINTF(3, 4);
/* Records the error that the last event, a name, repeats a field. */
ht_json_event ht_json_scan_fail_repeated(ht_json_scanner *s);
ht_json_event ht_json_scan_fail_memory(ht_json_scanner *s);

#endif
