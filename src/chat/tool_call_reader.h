/* Reads tool calls by the table of formats: whole ones, and streams of those whose arguments are a JSON object (%a). */
#ifndef HT_CHAT_TOOL_CALL_READER_H
#define HT_CHAT_TOOL_CALL_READER_H

#include "chat/answer_formats.h"
#include "template/value.h"

/* A call as read: `arguments` is a dict. */
typedef struct ht_read_call {
    const ht_jinja_string *name, *id; /* id NULL: none */
    ht_jinja_value arguments;
    const ht_jinja_string *begun; /* of a truncated call, instead: the beginning of its JSON, maybe empty; else NULL */
} ht_read_call;

typedef struct ht_call_reading {
    ht_jinja_arena *a;
    ht_jinja_value tools; /* a list of descriptions, or None; schemas distinguish strings from other bare values */
    bool only_tools;      /* other names are no calls */
    bool is_truncated;    /* the answer ended before the closing mark */
    bool with_truncated;  /* a call truncated by the answer's end counts, once its name is known */
    bool ends_in_name;    /* the text ends within a call whose name is unknown */
    ht_read_call *calls;
    size_t n, capacity;
} ht_call_reading;

/* Reads all n bytes between a format's marks; false when not all are calls, though some may have been read. */
bool ht_tool_calls_read(ht_call_reading *r, const ht_tool_call_format *format, const char *text, size_t n);
/* Whether n bytes are a JSON object whose numbers are finite. */
bool ht_is_arguments(ht_jinja_arena *a, const char *text, size_t n);
/* Names are words: text with blanks or quotes is prose. */
bool ht_is_call_name(const char *name, size_t n);

/* ---- streams of calls ---- */

typedef enum ht_call_stage {
    HT_CALL_SEEK, /* before a call */
    HT_CALL_IN_ARGUMENTS,
    HT_CALL_AFTER_ARGUMENTS, /* the call continues */
    HT_CALL_REST             /* no more calls can be streamed */
} ht_call_stage;

typedef struct ht_span {
    const char *p;
    size_t n;
} ht_span;

/* Starts as zeros and the format. Numbers are positions in the text of the calls. */
typedef struct ht_call_stream {
    const ht_tool_call_format *format;
    ht_call_stage stage;
    size_t at;    /* all before was read */
    size_t begin; /* of the arguments */
    size_t shown; /* arguments before were delivered */
    size_t end;   /* of the arguments, after them */
    size_t depth;
    const char *tail;                      /* the pattern's text after the arguments */
    bool is_quoted, is_escaped, is_broken; /* broken: a mark occurs in the arguments */
    ht_span name, id;                      /* when a call begins */
} ht_call_stream;

typedef enum ht_call_event { HT_CALL_NEEDS_TEXT, HT_CALL_BEGINS, HT_CALL_ENDS } ht_call_event;

/* Continues in the text of calls, of which n bytes arrived so far. Repeat until it needs text. */
ht_call_event ht_call_stream_next(ht_call_stream *c, const char *text, size_t n);

#endif
