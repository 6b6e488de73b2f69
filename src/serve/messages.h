/* Builds OpenAI's messages part by part from the histories of other interfaces.
 *
 * Consecutive parts of one role merge into one message: templates reject conversations whose turns do not alternate. */
#ifndef HT_SERVE_MESSAGES_H
#define HT_SERVE_MESSAGES_H

#include "serve/call.h"

/* Zero-initialised: empty. Memory failures are sticky. */
typedef struct serve_messages {
    ht_json *list;  /* complete messages */
    ht_json *names; /* tool names by call id */
    bool failed;
    const char *role; /* role of the open message, a constant; NULL: none is open */
    ht_text text, thoughts;
    ht_json *calls; /* NULL: none */
    bool begun;     /* the current history message already has text; the reader resets this for each message */
} serve_messages;

/* Adds text to the open message of that role, or opens one. Parts of one history message are joined directly; an empty
 * line separates two messages. */
void serve_add_text(serve_messages *m, const char *role, const char *text);
/* Add reasoning or a call to the assistant's message. Arguments are a text, possibly no JSON, or another value. */
void serve_add_thoughts(serve_messages *m, const char *text);
void serve_add_call(serve_messages *m, const char *id, const char *name, const ht_json *arguments);
/* Encodes reasoning, unencrypted, as opaque text for clients that store but do not show it. NULL: out of memory. */
ht_json *serve_seal_thoughts(const ht_text *thoughts);
/* As serve_add_thoughts, for sealed text; false for text that Hearth did not seal. */
bool serve_add_sealed_thoughts(serve_messages *m, const char *sealed);
/* Adds a tool's result as a separate message. */
void serve_add_result(serve_messages *m, const char *id, const char *text);
/* Replaces an "image" or "file" in a tool's result with a description, and reports it. Models read text only; rejecting
 * the history would stop an agent. */
void serve_append_unseen(serve_call *c, const char *what, ht_text *text);

/* Ends the last message, frees *m and returns the messages. NULL, with a failure in the call, when memory ran out or
 * there are none. `verb` is the verb of that error, "has" or "have". */
ht_json *serve_messages_end(serve_messages *m, serve_call *c, const char *member, const char *verb);

#endif
