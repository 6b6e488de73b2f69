/* Messages in OpenAI's form, written one part after the other from the histories of other interfaces.
 *
 * Parts of one role that follow each other become one message: templates refuse conversations whose turns do not alternate. */
#ifndef HT_SERVE_MESSAGES_H
#define HT_SERVE_MESSAGES_H

#include "serve/call.h"

/* Zero-initialised: none yet. Failures of memory are sticky. */
typedef struct serve_messages {
    ht_json *list;  /* those that are complete */
    ht_json *names; /* of tools, by the identifiers of their calls */
    bool failed;
    const char *role; /* of the message that is being written, a constant; NULL: none */
    ht_text text, thoughts;
    ht_json *calls; /* NULL: none */
    bool begun;     /* the message of the history has text already; its reader resets it for each */
} serve_messages;

/* Adds text to the message of that role, or begins one. Parts of one message of the history follow each other as they are; an empty line
 * separates it from another. */
void serve_add_text(serve_messages *m, const char *role, const char *text);
/* Likewise to a message of the assistant: its thoughts, and a call, whose arguments are a text, which may be no JSON, or another value. */
void serve_add_thoughts(serve_messages *m, const char *text);
void serve_add_call(serve_messages *m, const char *id, const char *name, const ht_json *arguments);
/* Thoughts as a text that says nothing to those that carry it, for clients that keep them and do not show them; no secret. NULL when memory ran out. */
ht_json *serve_seal_thoughts(const ht_text *thoughts);
/* As serve_add_thoughts; false for a text that no thoughts of Hearth's were sealed into. */
bool serve_add_sealed_thoughts(serve_messages *m, const char *sealed);
/* A tool's result, which is a message of its own. */
void serve_add_result(serve_messages *m, const char *id, const char *text);
/* What a tool's result has beside text, "image" or "file", in words, with a note: models read text alone here, and an agent could not go on if its
 * history were refused. */
void serve_append_unseen(serve_call *c, const char *what, ht_text *text);

/* Ends the last message and frees *m. The list of all; NULL, with a failure in the call, when memory ran out or there is none of the
 * `member`, after which comes the verb. */
ht_json *serve_messages_end(serve_messages *m, serve_call *c, const char *member, const char *verb);

#endif
