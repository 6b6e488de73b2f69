/* Samples: one line of training data as token ids, and which of them are learned.
 *
 * The form of a line, a JSON object, is told by its members, one of
 *
 *   {"messages": [...], "tools": [...]}   a conversation, as ht_chat_from_json reads it. A message with "weight": 0 is not
 *                                         learned.
 *   {"prompt": "...", "completion": "..."} a conversation of one question and its answer; for a model without a chat format,
 *                                         both texts as they are, one after the other, and EOS
 *   {"text": "..."}                       a text, encoded as a prompt is, and EOS
 *   {"input_ids": [...], "labels": [...]} ids, of which those are learned whose label is not -100; without labels, all
 *
 * Members that belong to no form (such as the name of a source) are passed over. */
#ifndef HT_TRAIN_SAMPLE_H
#define HT_TRAIN_SAMPLE_H

#include <hearth/train.h>

typedef struct ht_sample_options {
    ht_mask mask;
    const char *path; /* of the file, which errors begin with; NULL: none */
    int64_t line;     /* its number there */
    int64_t time;     /* that templates are told which write a date, in seconds since 1970; 0: the present */
} ht_sample_options;

typedef struct ht_sample {
    ht_sample_form form;
    int32_t n;
    int32_t *id;       /* [n] */
    bool *learned;     /* [n] whether the id is to be predicted from those before it; false for the first */
    int32_t n_learned; /* of them; may be 0 */
    bool learns_stop;  /* a token that ends generation is learned */
    /* The prompt of generation is not what prompt and answer together begin with: marks at its end are no part of the sample. */
    bool prompt_differs;
    /* The template writes an answer otherwise than it was given; that form of it is learned. */
    bool history_differs;
    bool answer_lost; /* an answer is empty, or not to be found in what the template writes: it is not learned */
    bool truncated;   /* by ht_sample_truncate */
} ht_sample;

/* The sample of n bytes of JSON; the caller frees what *out holds with ht_sample_free. HT_ERR_FORMAT for what is no such
 * line, HT_ERR_ARGUMENT for messages that the template refuses, HT_ERR_UNSUPPORTED when the model cannot have such samples
 * (no tokenizer, no chat format), HT_ERR_LIMIT for a sample beyond all bounds; other failures are not the line's. */
ht_status ht_sample_read(const ht_model *m, const char *line, size_t n, const ht_sample_options *options,
                         ht_sample *out, ht_error *err);
void ht_sample_free(ht_sample *s); /* and clears it */
/* Keeps the first n ids at most. */
void ht_sample_truncate(const ht_model *m, ht_sample *s, int32_t n);

/* The sample in such pieces, special tokens included; together they are the text of all its ids. HT_ERR_CANCELLED when fn
 * returned false. */
ht_status ht_sample_pieces(const ht_model *m, const ht_sample *s, ht_train_piece_fn *fn, void *user, ht_error *err);

#endif
