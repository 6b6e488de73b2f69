/* Answers of a model taken apart as they come: thoughts, text, calls of tools (<hearth/answer.h>).
 *
 * What marks the parts is known from the chat template's source. Text is held back while it may yet become a mark, white
 * space until it is known not to stand before one; calls are read whole, and what cannot be read as one is text. */
#ifndef HT_CHAT_RESPONSE_H
#define HT_CHAT_RESPONSE_H

#include "chat/reasoning_formats.h"
#include "template/template.h"
#include "template/value.h"

#include <hearth/answer.h>

typedef struct ht_response_reader ht_response_reader;

/* `prompt`, the conversation as it was written, tells whether it has opened a thought; tools: as in ht_call_reading, lent. */
ht_status ht_response_reader_new(const ht_chat_template *t, ht_jinja_value tools, const char *prompt, size_t n_prompt,
                                 ht_answer_fn *fn, void *user, ht_response_reader **out, ht_error *err);
/* Hands calls over in pieces, before the answer's first text. Where the notation writes objects with name and arguments the pieces are
 * the model's own bytes as they come; other calls come whole, in one piece. One within which the answer has ended is handed over as far as
 * it came, when its name is known. */
void ht_response_reader_set_call_pieces(ht_response_reader *r, bool on);
/* The answer is calls alone, behind its thoughts, as a grammar holds it: what is none, as the answer has ended before the name of a call
 * was known, is handed over to nobody. */
void ht_response_reader_set_only_calls(ht_response_reader *r);
/* What was not handed over yet, and all that follows, is no call but text, whatever it reads as; thoughts are read as before. Not within a
 * call of which a piece was handed over. */
void ht_response_reader_end_calls(ht_response_reader *r);
void ht_response_reader_free(ht_response_reader *r); /* NULL is fine */

typedef enum ht_response_state { HT_RESPONSE_OPEN, HT_RESPONSE_REFUSED, HT_RESPONSE_NO_MEMORY } ht_response_state;

/* More of the answer, valid UTF-8. */
ht_response_state ht_response_put(ht_response_reader *r, const char *text, size_t n);
/* A special token that was generated: a mark, a part of a call, or nothing. */
ht_response_state ht_response_put_special(ht_response_reader *r, const char *token);
/* Whether the token would be more than nothing now. */
bool ht_response_wants_special(const ht_response_reader *r, const char *token);
/* The answer has ended, whatever for: what was held back. */
ht_response_state ht_response_end(ht_response_reader *r);

/* Where in a thought an answer is, by all of it that was put. */
typedef struct ht_reasoning_position {
    bool is_inside;       /* its mark has come, the closing one has not; all that follows is zero otherwise */
    bool is_title;        /* all that has come of it is a beginning of the notation's title */
    bool has_title;       /* it began with the whole of it */
    size_t title_bytes;   /* with is_title: how many have come */
    size_t closing_bytes; /* with which it ends that are the beginning of the closing mark */
} ht_reasoning_position;
ht_reasoning_position ht_response_reasoning_position(const ht_response_reader *r);

#endif
