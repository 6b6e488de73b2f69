/* Answers of a model taken apart as they come: thoughts, text, calls of tools (<hearth/answer.h>).
 *
 * What marks the parts is known from the chat template's source. Text is held back while it may yet become a mark, white
 * space until it is known not to stand before one; calls are read whole, and what cannot be read as one is text. */
#ifndef HT_CHAT_RESPONSE_H
#define HT_CHAT_RESPONSE_H

#include "template/template.h"
#include "template/value.h"

#include <hearth/answer.h>

/* ---- notations ---- */

/* A call that was read: `arguments` is a dict, `id` NULL for none. */
typedef struct ht_answer_call {
    const ht_jinja_string *name, *id;
    ht_jinja_value arguments;
    const ht_jinja_string
        *begun; /* of one that is cut, instead: the beginning of a JSON object, which may be empty; else NULL */
} ht_answer_call;

typedef struct ht_call_reading {
    ht_jinja_arena *a;
    ht_jinja_value tools; /* a list of descriptions, or None: what a value without quotes is, is told by its schema */
    bool cut;             /* the answer has ended, and the mark behind the calls is missing */
    bool takes_cut;       /* a call within which it has ended is one, too, once its name is known */
    ht_answer_call *calls;
    size_t n, capacity;
} ht_call_reading;

/* Whether n bytes are a JSON object whose numbers are finite. */
bool ht_answer_is_object(ht_jinja_arena *a, const char *text, size_t n);
/* Whether a call can have the name; with `tools` it is one of theirs. */
bool ht_answer_is_name(const char *name, size_t n, const ht_jinja_value *tools);

/* Reads the n bytes between a notation's marks, all of them; false when they are no calls. */
typedef bool ht_call_reader(ht_call_reading *r, const char *text, size_t n);

typedef struct ht_call_notation {
    const char *mark;  /* a template that holds this text uses the notation */
    const char *open;  /* before the calls; NULL: none */
    const char *close; /* behind them; NULL: they go on to the end of the answer */
    /* An answer that begins with this character, or goes on with it behind a thought, is calls, too, when there are tools; 0: none. */
    char bare;
    ht_call_reader *read;
} ht_call_notation;

typedef struct ht_thought_notation {
    const char *mark; /* as above */
    const char *open, *close;
    const char *title;           /* the first line of a thought, which is no part of it; NULL: none */
    bool anywhere;               /* else at the beginning of an answer, or behind a thought or calls */
    const char *before, *behind; /* white space around `close`, where the template does not tell; NULL: none */
} ht_thought_notation;

typedef struct ht_answer_format {
    const ht_thought_notation *thought; /* never NULL */
    const ht_call_notation *call;       /* NULL: none */
} ht_answer_format;

/* Whether a prompt, n bytes of a conversation as it was written, has opened a thought. */
bool ht_answer_opens_thought(const ht_answer_format *format, const char *prompt, size_t n);

/* The notations that a template uses, as its source tells. */
ht_answer_format ht_answer_format_of(const char *source);
/* How thoughts are marked, where the template's source speaks of them; else NULL. */
const ht_thought_notation *ht_thought_notation_of(const ht_chat_template *t);

/* ---- reading ---- */

typedef struct ht_answer_reader ht_answer_reader;

/* `prompt`, the conversation as it was written, tells whether it has opened a thought; tools: as in ht_call_reading, lent. */
ht_status ht_answer_reader_new(const ht_chat_template *t, ht_jinja_value tools, const char *prompt, size_t n_prompt,
                               ht_answer_fn *fn, void *user, ht_answer_reader **out, ht_error *err);
/* Hands calls over in pieces, before the answer's first text. Where the notation writes objects with name and arguments the pieces are
 * the model's own bytes as they come; other calls come whole, in one piece. One within which the answer has ended is handed over as far as
 * it came, when its name is known. */
void ht_answer_reader_set_call_pieces(ht_answer_reader *r, bool on);
/* The answer is calls alone, behind its thoughts, as a grammar holds it: what is none, as the answer has ended before the name of a call
 * was known, is handed over to nobody. */
void ht_answer_reader_set_only_calls(ht_answer_reader *r);
/* What was not handed over yet, and all that follows, is no call but text, whatever it reads as; thoughts are read as before. Not within a
 * call of which a piece was handed over. */
void ht_answer_reader_end_calls(ht_answer_reader *r);
void ht_answer_reader_free(ht_answer_reader *r); /* NULL is fine */

typedef enum ht_answer_state { HT_ANSWER_OPEN, HT_ANSWER_REFUSED, HT_ANSWER_NO_MEMORY } ht_answer_state;

/* More of the answer, valid UTF-8. */
ht_answer_state ht_answer_put(ht_answer_reader *r, const char *text, size_t n);
/* A special token that was generated: a mark, a part of a call, or nothing. */
ht_answer_state ht_answer_put_special(ht_answer_reader *r, const char *token);
/* Whether the token would be more than nothing now. */
bool ht_answer_wants_special(const ht_answer_reader *r, const char *token);
/* The answer has ended, whatever for: what was held back. */
ht_answer_state ht_answer_end(ht_answer_reader *r);

/* Where in a thought an answer is, by all of it that was put. */
typedef struct ht_thought_place {
    bool is_inside;       /* its mark has come, the closing one has not; all that follows is zero otherwise */
    bool is_title;        /* all that has come of it is a beginning of the notation's title */
    bool has_title;       /* it began with the whole of it */
    size_t title_bytes;   /* with is_title: how many have come */
    size_t closing_bytes; /* with which it ends that are the beginning of the closing mark */
} ht_thought_place;
ht_thought_place ht_answer_thought_place(const ht_answer_reader *r);

#endif
