/* The response reader: splits a model's answer as it comes into reasoning, text and tool calls (<hearth/answer.h>).
 *
 * The chat template's source determines the formats. Text is held back while it may become a mark, and white space until no mark
 * follows it. Text between the marks of calls that is no call is text. */
#ifndef HT_CHAT_RESPONSE_H
#define HT_CHAT_RESPONSE_H

#include "chat/answer_formats.h"
#include "template/template.h"
#include "template/value.h"

#include <hearth/answer.h>

typedef struct ht_response_reader ht_response_reader;

/* `prompt`, the rendered conversation, may have opened reasoning; `tools` as in ht_call_reading, borrowed. */
ht_status ht_response_reader_new(const ht_chat_template *t, ht_jinja_value tools, const char *prompt, size_t n_prompt,
                                 ht_answer_fn *fn, void *user, ht_response_reader **out, ht_error *err);
/* Delivers calls in pieces; set it before the first text. JSON arguments are delivered as the model's bytes come, others in one piece. A
 * truncated call is delivered as far as it came, once its name is known. */
void ht_response_reader_set_call_pieces(ht_response_reader *r, bool on);
/* A grammar constrains the answer to calls after its reasoning: text, which is a call truncated before its name, is dropped. */
void ht_response_reader_set_only_calls(ht_response_reader *r);
/* Reads undelivered and further calls as text. No effect within a call of which a piece was delivered. */
void ht_response_reader_end_calls(ht_response_reader *r);
void ht_response_reader_free(ht_response_reader *r); /* NULL is fine */

typedef enum ht_response_state { HT_RESPONSE_OPEN, HT_RESPONSE_REFUSED, HT_RESPONSE_NO_MEMORY } ht_response_state;

/* More of the answer, valid UTF-8. */
ht_response_state ht_response_put(ht_response_reader *r, const char *text, size_t n);
/* A special token that was generated: a mark, a part of a call, or nothing. */
ht_response_state ht_response_put_special(ht_response_reader *r, const char *token);
/* Whether the token has a meaning now. */
bool ht_response_wants_special(const ht_response_reader *r, const char *token);
/* Ends the answer: delivers held text. */
ht_response_state ht_response_end(ht_response_reader *r);

/* The position of the answer so far within its reasoning. */
typedef struct ht_reasoning_position {
    bool is_inside;       /* else the other fields are zero */
    bool is_title;        /* it is a beginning of the format's title so far */
    bool has_title;       /* it began with the whole title */
    size_t title_bytes;   /* with is_title: of the title so far */
    size_t closing_bytes; /* of the closing mark so far */
} ht_reasoning_position;
ht_reasoning_position ht_response_reasoning_position(const ht_response_reader *r);

#endif
