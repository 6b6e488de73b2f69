/* End of a thought as a model writes it: the closing mark with the white space that its chat template puts around it, as tokens. */
#ifndef HT_GENERATE_THOUGHT_END_H
#define HT_GENERATE_THOUGHT_END_H

#include "chat/response.h"
#include "models/model.h"

enum { HT_THOUGHT_BLANKS_MOST = 7 }; /* bytes on either side of a mark */

/* White space around the closing mark, NUL-terminated. */
typedef struct ht_thought_blanks {
    char before[HT_THOUGHT_BLANKS_MOST + 1], behind[HT_THOUGHT_BLANKS_MOST + 1];
} ht_thought_blanks;

/* That of an answer which the model's chat template writes; what it does not write is as the format has it. */
ht_status ht_thought_blanks_find(const ht_model *m, const ht_reasoning_format *t, ht_thought_blanks *out,
                                 ht_error *err);

/* Tokens in order: those before the mark, those up to its end, the others. Zeroed it has none. */
typedef struct ht_thought_end {
    int32_t *id; /* [n] owned */
    int32_t n, n_before, n_mark;
} ht_thought_end;

/* The end of a thought at that place. Of a title that has been begun it has the rest. Of a mark that has been begun it has the rest
 * where the mark is several tokens, and all where it is one, as what has come is the thought's own text then. HT_ERR_UNSUPPORTED
 * when no tokens write it. */
ht_status ht_thought_end_write(ht_model *m, const ht_reasoning_format *t, const ht_thought_blanks *blanks,
                               const ht_reasoning_position *place, ht_thought_end *out, ht_error *err);
void ht_thought_end_free(ht_thought_end *end);

#endif
