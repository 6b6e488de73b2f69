/* Training data: samples, the tokenized lines of a JSONL file, and data sets, which keep them in memory at 5 bytes per token.
 *
 * Each line is a JSON object. Its fields determine its form, one of
 *
 *   {"messages": [...], "tools": [...]}   a conversation, as ht_chat_from_json reads it. A message with "weight": 0 is not
 *                                         learned.
 *   {"prompt": "...", "completion": "..."} a conversation of one question and its answer; for a model without a chat format,
 *                                         both texts as they are, one after the other, and EOS
 *   {"text": "..."}                       a text, encoded as a prompt is, and EOS
 *   {"input_ids": [...], "labels": [...]} ids, of which those are learned whose label is not -100; without labels, all
 *   {"anchor": ..., "positive": ..., "negatives": [...]} texts of HT_METHOD_EMBED, which takes no other form
 *
 * Other fields, such as the name of a source, are ignored. */
#ifndef HT_TRAIN_DATA_H
#define HT_TRAIN_DATA_H

#include <hearth/cancel.h>
#include <hearth/train.h>

/* ---- samples ---- */

typedef struct ht_sample_options {
    ht_train_method method;
    ht_mask mask;
    const char *path; /* of the file, for errors; NULL: none */
    int64_t line;     /* line number, from 1 */
    int64_t time;     /* for templates that write a date, in seconds since 1970; 0: now */
} ht_sample_options;

typedef struct ht_sample {
    ht_sample_form form;
    int32_t n;
    int32_t *id;       /* [n] */
    bool *learned;     /* [n] whether the loss includes predicting this id; false for the first */
    int32_t n_learned; /* number of learned ids, possibly 0 */
    bool learns_stop;  /* a token that ends generation is learned */
    /* The rendered prompt is not a prefix of prompt plus answer; the sample lacks the prompt's last tokens. */
    bool prompt_differs;
    /* The template changes an answer, for example drops its reasoning; the changed answer is learned. */
    bool history_differs;
    bool answer_lost; /* an answer is empty, or missing from the template's output; it is not learned */
    bool truncated;   /* by ht_sample_truncate */
    /* Text i of a pair has ids begin[i] to begin[i + 1] - 1; NULL in other forms. The first is the anchor, the second the positive. */
    int32_t n_texts;
    int32_t *begin; /* [n_texts + 1] */
    int32_t n_tail; /* special ids that end each text, and stay when it is truncated */
} ht_sample;

/* Rows of a sample in a batch: the last id of other forms than pairs is only a target. */
static inline int32_t ht_sample_rows(const ht_sample *s) { return s->begin ? s->n : s->n - 1; }
/* The tokens that max_length limits: of a pair, those of its longest text. */
int32_t ht_sample_length(const ht_sample *s);

/* Makes the sample of a line; the caller frees it. HT_ERR_FORMAT: invalid line; HT_ERR_ARGUMENT: the template
 * rejects it; HT_ERR_UNSUPPORTED: no tokenizer or chat format; HT_ERR_LIMIT: too large. The line does not cause
 * other errors. */
ht_status ht_sample_read(const ht_model *m, const char *line, size_t n, const ht_sample_options *options,
                         ht_sample *out, ht_error *err);
void ht_sample_free(ht_sample *s); /* and clears it */
/* Keeps the first n ids at most, of each text of a pair. */
void ht_sample_truncate(const ht_model *m, ht_sample *s, int32_t n);

/* Passes the text of all ids to fn in pieces, special tokens included. HT_ERR_CANCELLED if fn returns false. */
ht_status ht_sample_pieces(const ht_model *m, const ht_sample *s, ht_train_piece_fn *fn, void *user, ht_error *err);

/* ---- data sets: every line is read and rendered once, before training begins ---- */

enum { HT_DATA_LENGTH_DEFAULT = 2048 };

typedef struct ht_data_options {
    ht_train_method method;
    ht_mask mask;
    ht_long_samples long_samples;
    /* Maximum tokens of a sample, or of a text of a pair; 0: 2048. Limited to the model's context. */
    int64_t max_length;
    bool skip_bad;                             /* skips invalid lines; otherwise they fail ht_data_open */
    int64_t time;                              /* as in ht_sample_options; 0: when the data is opened */
    const ht_cancel *cancel;                   /* of ht_data_open; NULL: none */
    void (*progress)(double done, void *user); /* called by ht_data_open with the share done; NULL: none */
    void *user;
} ht_data_options;

/* Immutable; may be shared between threads. */
typedef struct ht_data ht_data;

/* Reads every line of the file and retains the model; the caller frees *out. An invalid line (unless skip_bad) is an
 * error with file, line and reason. A file without usable samples is an error that counts the reasons. */
ht_status ht_data_open(ht_model *m, const char *path, const ht_data_options *options, ht_data **out, ht_error *err);
void ht_data_free(ht_data *d); /* NULL is fine */

const ht_data_report *ht_data_get_report(const ht_data *d); /* lent */
int64_t ht_data_length(const ht_data *d);                   /* samples, at least one */
/* The i-th sample in the order of the file, of 2 ids or more; lent. */
const ht_sample *ht_data_sample(const ht_data *d, int64_t i);
int64_t ht_data_line(const ht_data *d, int64_t i); /* its line in the file, from 1 */

#endif
