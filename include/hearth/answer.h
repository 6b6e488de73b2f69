/* Parts of an answer: reasoning, text and tool calls, in the formats that the model's chat template uses. Text in an
 * unknown format stays text. */
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
    /* Replace HT_ANSWER_CALL where calls are streamed in pieces. A call begins when its name is known and the text
     * can only be a call. Pieces of its arguments follow, then its end. An id that the model writes after the
     * arguments is not delivered. */
    HT_ANSWER_CALL_BEGIN,
    HT_ANSWER_CALL_ARGUMENTS,
    HT_ANSWER_CALL_END
} ht_answer_part;

/* The next piece of an answer. Lent during the call. */
typedef struct ht_answer_piece {
    ht_answer_part part;
    const char *text; /* of text, reasoning and arguments: n > 0 bytes more of valid UTF-8, NUL-terminated; else NULL */
    size_t n;
    const ht_tool_call *call; /* of HT_ANSWER_CALL: a whole call; of its beginning: without arguments; else NULL */
    /* For HT_ANSWER_CALL_END. True: the pieces of the arguments, possibly none, do not form a JSON object, because
     * the answer ended within them or the model wrote other text. They are then the model's own text; in formats
     * without JSON, the beginning of an object with the complete fields. They are not delivered again as text. False:
     * the arguments are complete, even if text after them is missing. */
    bool cut;
    int64_t tokens; /* of the answer so far, in an engine; else 0 */
} ht_answer_piece;
/* Return false to stop. */
typedef bool ht_answer_fn(const ht_answer_piece *piece, void *user);

#ifdef __cplusplus
}
#endif
#endif
