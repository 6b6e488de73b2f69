/* Parts of an answer: the text that a model writes is reasoning, text and tool calls, in the formats that its chat template uses.
 * Text in an unknown format stays text. */
#ifndef HEARTH_ANSWER_H
#define HEARTH_ANSWER_H

#include <hearth/status.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A call of a tool. */
typedef struct ht_tool_call {
    const char *name;
    const char *arguments; /* a JSON object */
    const char *id;        /* NULL: none */
} ht_tool_call;

typedef enum ht_answer_part {
    HT_ANSWER_TEXT = 1,
    HT_ANSWER_THINKING, /* reasoning, without its marks */
    HT_ANSWER_CALL,
    /* In the place of HT_ANSWER_CALL where calls come in pieces: one begins when its name is known and the text can only be a call;
     * pieces of its arguments follow, and its end. An id that the model writes behind the arguments is not handed over. */
    HT_ANSWER_CALL_BEGIN,
    HT_ANSWER_CALL_ARGUMENTS,
    HT_ANSWER_CALL_END
} ht_answer_part;

/* What comes next in an answer. All of it is lent during the call. */
typedef struct ht_answer_piece {
    ht_answer_part part;
    const char *text; /* of text, reasoning and arguments: n > 0 bytes more of valid UTF-8, NUL-terminated; else NULL */
    size_t n;
    const ht_tool_call *call; /* of HT_ANSWER_CALL: a whole call; of its beginning: without arguments; else NULL */
    /* Of HT_ANSWER_CALL_END: the pieces of the arguments, of which there may be none, are no JSON object, as the answer has ended within them or
     * the model has written something else. What was handed over is what it wrote, or in formats without JSON the beginning of an object
     * with the members that were whole; it is not handed over as text again. False: the arguments are whole, whatever was missing behind them. */
    bool cut;
    int64_t tokens; /* of the answer so far, in an engine; else 0 */
} ht_answer_piece;
/* Return false to stop. */
typedef bool ht_answer_fn(const ht_answer_piece *piece, void *user);

#ifdef __cplusplus
}
#endif
#endif
