/* Calls of an answer before they are whole. */
#ifndef HT_CHAT_TOOL_CALL_STREAM_H
#define HT_CHAT_TOOL_CALL_STREAM_H

#include <stdbool.h>
#include <stddef.h>

typedef enum ht_call_stage {
    HT_CALL_SEEK, /* before a call */
    HT_CALL_IN_ARGUMENTS,
    HT_CALL_BEHIND, /* its arguments have ended, and its object has not */
    HT_CALL_REST    /* what follows is no call that can be told before the end */
} ht_call_stage;

/* Places in a call's text. */
typedef struct ht_call_head {
    size_t name, n_name, id, n_id; /* n_id 0: none before the arguments */
    size_t arguments;
} ht_call_head;

typedef struct ht_call_stream {
    ht_call_stage stage;
    size_t at;    /* what is before it was read */
    size_t shown; /* and of the arguments handed over */
    size_t end;   /* of the arguments, once they have one */
    size_t depth;
    bool is_quoted, is_escaped, is_broken; /* broken: a mark stands in the arguments */
    ht_call_head head;
} ht_call_stream;

typedef enum ht_call_step { HT_CALL_WAITS, HT_CALL_BEGINS, HT_CALL_ENDS } ht_call_step;

/* Reads on in the text of calls, of which there are n bytes by now; zeroed before the first. To be called until it waits. */
ht_call_step ht_call_stream_next(ht_call_stream *c, const char *text, size_t n);

#endif
