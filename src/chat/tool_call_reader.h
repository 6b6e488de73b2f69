/* Reads tool calls by the table of formats (chat/tool_call_formats.h). */
#ifndef HT_CHAT_TOOL_CALL_READER_H
#define HT_CHAT_TOOL_CALL_READER_H

#include "chat/span.h"
#include "chat/tool_call_formats.h"
#include "template/value.h"

/* A call as read: `arguments` is a dict. */
typedef struct ht_read_call {
    const ht_jinja_string *name, *id; /* id NULL: none */
    ht_jinja_value arguments;
    const ht_jinja_string *begun; /* of a truncated call, instead: the beginning of its JSON, maybe empty; else NULL */
} ht_read_call;

typedef struct ht_call_reading {
    ht_jinja_arena *a;
    ht_jinja_value tools; /* a list of descriptions, or None: schemas tell strings from other bare values */
    bool only_tools;      /* other names are no calls */
    bool is_truncated;    /* the answer ended before the closing mark */
    bool with_truncated;  /* a call that the answer's end truncates counts, once its name is known */
    ht_read_call *calls;
    size_t n, capacity;
} ht_call_reading;

/* Reads n bytes between a format's marks, all of them; false when they are not calls, or not all: some may have been read. */
bool ht_tool_calls_read(ht_call_reading *r, const ht_tool_call_format *format, const char *text, size_t n);

typedef enum ht_match {
    HT_DIFFERS,
    HT_MATCHES,
    HT_TRUNCATED /* the text ends, and could go on as the pattern does */
} ht_match;

/* Reads a call up to its JSON arguments, in the format or another with the same opening mark. *tail: the pattern after them. */
ht_match ht_tool_call_read_head(const ht_tool_call_format *format, ht_span *s, ht_span *name, ht_span *id,
                                const char **tail);
/* Reads the literal text of such a pattern. */
ht_match ht_tool_call_read_tail(ht_span *s, const char *tail);

/* Whether n bytes are a JSON object whose numbers are finite. */
bool ht_is_arguments(ht_jinja_arena *a, const char *text, size_t n);
/* Names are words: text with blanks or quotes is a sentence about something else. */
bool ht_is_call_name(const char *name, size_t n);

#endif
