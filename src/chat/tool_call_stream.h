/* Tool calls whose arguments are streamed before the call is whole: those that a format's pattern writes as a JSON object (%a). */
#ifndef HT_CHAT_TOOL_CALL_STREAM_H
#define HT_CHAT_TOOL_CALL_STREAM_H

#include "chat/tool_call_reader.h"

typedef enum ht_call_stage {
    HT_CALL_SEEK, /* before a call */
    HT_CALL_IN_ARGUMENTS,
    HT_CALL_AFTER_ARGUMENTS, /* the call goes on */
    HT_CALL_REST             /* no more calls can be streamed */
} ht_call_stage;

/* Zeroed but for the format at the beginning. Numbers are positions in the text of the calls. */
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

/* Reads on in the text of calls, of which n bytes came so far. Repeat until it needs text. */
ht_call_event ht_call_stream_next(ht_call_stream *c, const char *text, size_t n);

#endif
