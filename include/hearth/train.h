/* Fine-tuning: LoRA adapters (Hu et al., 2021) trained on a model's weights as they are, quantised or not.
 *
 * A trainer reads samples from a JSONL file, renders them in the model's chat format, and changes an adapter step by
 * step. Custom loops use ht_trainable, the adapter as arrays, and ht_trainable_gradients, the loss of a batch with its
 * gradients.
 *
 * Results depend, to the bit, only on the data, the options and the model: not on threads or interruptions. */
#ifndef HEARTH_TRAIN_H
#define HEARTH_TRAIN_H

#include <hearth/adapter.h>
#include <hearth/cancel.h>
#include <hearth/optimizer.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- parameters ---- */

/* Options of ht_trainable_new, and of a trainer's adapter. */
typedef struct ht_lora_options {
    size_t size;    /* of the struct, set by ht_lora_options_init */
    int64_t rank;   /* 1 to 4096; default 8 */
    double alpha;   /* the adapter's change is multiplied by alpha / rank; default 16 */
    double scale;   /* overrides alpha / rank; default 0: by alpha */
    bool rslora;    /* alpha / sqrt(rank) instead (Kalajdzievski, 2023); default false */
    double dropout; /* share of a projection's inputs that A does not see, in [0, 1); default 0 */
    /* Projections, as names separated by commas: the end of a slot ("q_proj", "self_attn.q_proj"), a pattern with *
     * ("*.mlp.*"), or all-linear for all but routers. q_proj, k_proj, v_proj, gate_proj and up_proj are also names of
     * the matrix with their outputs in models that have one for several. Default "q_proj,v_proj". */
    const char *targets;
    int64_t layers;   /* only the last ones; default 0: all */
    ht_dtype dtype;   /* of A and B: HT_F32 or HT_BF16; default HT_F32 */
    bool normal_init; /* A is normal with deviation 1 / rank; default false: uniform within 1 / sqrt(n_in). B is 0 */
    uint64_t seed;    /* default 0 */
    const char *base; /* name or path of the model, recorded in the adapter; default NULL: its own name */
    const ht_adapter *init; /* begin with its values, ranks, scales and projections instead; lent; default NULL */
} ht_lora_options;
HT_API void ht_lora_options_init(ht_lora_options *options, size_t size);

/* An adapter that is being trained: for each chosen projection, in the order of their slots, A then B. */
typedef struct ht_trainable ht_trainable;

/* The caller frees *out, which holds the model. HT_ERR_ARGUMENT, with the valid targets, for a target that the model
 * lacks. */
HT_API ht_status ht_trainable_new(ht_model *m, const ht_lora_options *options, ht_trainable **out, ht_error *err);
HT_API void ht_trainable_free(ht_trainable *t);                     /* NULL is fine */
HT_API int ht_trainable_count(const ht_trainable *t);               /* of parameters: two for each projection */
HT_API int64_t ht_trainable_parameters(const ht_trainable *t);      /* numbers in all of them */
HT_API const char *ht_trainable_name(const ht_trainable *t, int i); /* "model.layers.0.self_attn.q_proj.lora_A"; lent */
/* Parameter i: A [rank, n_in] or B [n_out, rank], of experts with a leading axis; lent until it is replaced. */
HT_API ht_array *ht_trainable_get(const ht_trainable *t, int i);
/* Replaces all parameters by evaluated arrays of the same shapes and dtype, such as ht_optimizer_step gives. */
HT_API ht_status ht_trainable_set(ht_trainable *t, ht_array *const *parameters, ht_error *err);
/* A copy of the values as an adapter, to be saved or to generate with. The caller frees *out. */
HT_API ht_status ht_trainable_adapter(const ht_trainable *t, ht_adapter **out, ht_error *err);

/* ---- the loss of a batch ---- */

/* Rows of one step: sequences lie end to end without padding and do not attend to one another. Row i reads token
 * id[i]. All arrays are lent.
 *
 * With `match` NULL, row i predicts target[i], and the loss is the cross-entropy of the learned rows.
 *
 * Otherwise the sequences are texts, and the loss is contrastive (multiple negatives ranking; InfoNCE, van den Oord et
 * al., 2018). A text's vector is pooled as HT_POOLING_MODEL of hearth/embed.h says, and scaled to length 1. An anchor
 * is to choose its own positive among the candidates, all texts that are no anchors: its loss is the cross-entropy of
 * the softmax over cosine / temperature. Candidates known to be right are left out of the softmax: equal texts of its
 * positive, and positives of anchors with its own text. */
typedef struct ht_train_batch {
    int32_t n_tok, n_seq;
    const int32_t *id;        /* [n_tok] */
    const int32_t *pos;       /* [n_tok] from 0 in each sequence */
    const int32_t *seq_start; /* [n_seq + 1] first row of each sequence, then n_tok */
    const int32_t *target;    /* [n_tok] the id that follows; negative: not learned. Not read with `match` */
    int64_t n_learned;        /* targets that are learned, or anchors */
    const int32_t *match;     /* [n_seq] the sequence of an anchor's positive, -1 of candidates; NULL: no anchors */
    double temperature;       /* with `match`: more than 0 */
} ht_train_batch;

/* The sum of the losses of the batch's learned rows or anchors, f32 [], and its gradients by all parameters, both lazy
 * arrays of scope `s`. `checkpointing` computes each layer again for its gradient, which saves memory and costs a
 * third more time; key: u32 [2] of dropout's random numbers, or HT_NONE without dropout. The batch must outlive the
 * scope. HT_ERR_ARGUMENT when no row is learned, for an id that the model does not have, or a wrong match;
 * HT_ERR_UNSUPPORTED when a text encoder is to predict tokens, or for a pooling other than last, mean and cls. */
HT_API ht_status ht_trainable_gradients(const ht_trainable *t, ht_scope *s, const ht_train_batch *batch, ht_array *key,
                                        bool checkpointing, ht_array **loss, ht_array **grads, ht_error *err);

/* ---- data ---- */

/* Methods of trainers. */
typedef enum ht_train_method {
    HT_METHOD_SFT,  /* to write the learned tokens of its samples (supervised fine-tuning) */
    HT_METHOD_EMBED /* vectors of texts by which an anchor finds its positive: samples are HT_SAMPLE_PAIR */
} ht_train_method;

/* Which tokens of a conversation, or of a prompt and its completion, are learned. */
typedef enum ht_mask {
    HT_MASK_ANSWERS, /* all answers, each with the token that ends it */
    HT_MASK_LAST,    /* the last one */
    HT_MASK_NONE     /* every token; labels and weights do not count */
} ht_mask;

/* Treatment of samples of more than max_length tokens, or with a text that has more. */
typedef enum ht_long_samples {
    HT_LONG_DROP,     /* dropped */
    HT_LONG_TRUNCATE, /* their first max_length tokens are kept; of texts of pairs also special ones at the end */
    HT_LONG_REFUSE    /* HT_ERR_LIMIT, with the line */
} ht_long_samples;

/* The form of a sample, detected from the fields of its line. */
typedef enum ht_sample_form {
    HT_SAMPLE_MESSAGES,   /* {"messages": [...], "tools": [...]}; a message with "weight": 0 is not learned */
    HT_SAMPLE_COMPLETION, /* {"prompt": "...", "completion": "..."} */
    HT_SAMPLE_TEXT,       /* {"text": "..."}, all of which is learned */
    HT_SAMPLE_IDS,        /* {"input_ids": [...], "labels": [...]}; -100: not learned */
    /* {"anchor": TEXT, "positive": TEXT, "negatives": [TEXT, ...]}; "query" is an anchor too, "negative" is one text
     * or a list, "negative_1", ... are further ones, and "sentence1" and "sentence2" are a pair. A TEXT is a string, or
     * a list of ids, taken as they are. */
    HT_SAMPLE_PAIR,
    HT_SAMPLE_FORMS /* number of forms */
} ht_sample_form;
/* The fields that identify a form: "messages", "prompt and completion". A constant. */
HT_API const char *ht_sample_form_name(ht_sample_form form);

enum { HT_DATA_LINES_NAMED = 5, HT_DATA_LENGTH_BINS = 31 };

/* A count of samples, with the lines of the first. */
typedef struct ht_data_count {
    int64_t n;
    int64_t line[HT_DATA_LINES_NAMED]; /* the first of them, from 1 */
} ht_data_count;

/* Stats of a file of samples. */
typedef struct ht_data_report {
    int64_t n_lines;                     /* that are not empty */
    int64_t n_samples;                   /* that are left */
    int64_t n_form[HT_SAMPLE_FORMS];     /* of them, in each form */
    int64_t n_tokens, n_learned;         /* of them; of pairs, the positives' tokens are the learned ones */
    int64_t max_length;                  /* in effect */
    int32_t longest;                     /* tokens of the longest that is left, of pairs those of all their texts */
    int64_t length[HT_DATA_LENGTH_BINS]; /* remaining samples of 2^i tokens or more, but fewer than 2^(i + 1) */
    /* Omitted: not a sample; too long and dropped; without a learned token in the kept part. */
    ht_data_count bad, too_long, unlearned;
    ht_error first_bad;      /* why, of the first bad one */
    ht_data_count truncated; /* of those left */
    ht_data_count stopless;  /* of those left: no token that ends generation is learned */
    /* Remaining samples with a difference. prompt_differs: prompt and answer together do not begin with the prompt of
     * generation, so its end is not learned. history_differs: the template changes an answer, such as by omitting its
     * reasoning. answer_lost: an answer was not found, and is not learned. */
    ht_data_count prompt_differs, history_differs, answer_lost;
    int64_t time;         /* the current time for templates, in seconds since 1970 */
    uint64_t fingerprint; /* of the lines, in their order */
} ht_data_report;

/* ---- trainers ---- */

typedef enum ht_checkpointing {
    HT_CHECKPOINTING_AUTO, /* if the forecast exceeds free memory without it */
    HT_CHECKPOINTING_ON,
    HT_CHECKPOINTING_OFF
} ht_checkpointing;

/* Options of ht_trainer_new. */
typedef struct ht_trainer_options {
    size_t size;                           /* of the struct, set by ht_trainer_options_init */
    const ht_lora_options *lora;           /* lent; default NULL: its defaults. Its seed is not read */
    const ht_optimizer_options *optimizer; /* lent; default NULL: its defaults */

    const char *data;             /* JSONL file of samples; needed */
    const char *valid;            /* of held-out ones; default NULL: none */
    ht_mask mask;                 /* default HT_MASK_ANSWERS */
    ht_long_samples long_samples; /* default HT_LONG_DROP */
    int64_t max_length;           /* tokens of a sample; default 0: 2048, or the model's context where that is less */
    bool skip_bad;                /* skip lines that are not samples; default false: an error with line and reason */

    int32_t batch;      /* sequences computed at once; default 4 */
    int32_t accumulate; /* batches of one step; default 1. The loss is the mean over all their learned tokens */
    /* `batch` sequences of max_length take as many samples as fit; default true. HT_METHOD_EMBED takes `batch` samples
     * and contrasts each anchor with the candidates of its batch alone. */
    bool pack;
    bool in_order; /* the file's order; default false: shuffled by the seed, with samples of similar length together */
    uint64_t seed; /* of order, first values and dropout; default 0 */

    int64_t iters;                  /* steps; default 0: by `epochs` */
    double epochs;                  /* default 1 */
    double learning_rate;           /* default 1e-4 */
    ht_schedule_kind schedule;      /* default HT_SCHEDULE_CONSTANT */
    int64_t warmup;                 /* steps; default 0 */
    double clip;                    /* maximum norm of all gradients; default 1; 0: not clipped */
    ht_checkpointing checkpointing; /* default HT_CHECKPOINTING_AUTO */
    int64_t valid_batches;          /* of ht_trainer_evaluate, always the same; default 0: all */
    bool skip_memory_check;         /* train even if the forecast exceeds free memory; default false */

    const ht_cancel *cancel; /* ends a call with HT_ERR_CANCELLED; the state is then that after the last whole step */
    void (*progress)(double done,
                     void *user); /* called periodically by ht_trainer_new with the share done; default NULL */
    void *user;
    ht_train_method method; /* default HT_METHOD_SFT */
    double temperature;     /* of HT_METHOD_EMBED: divides cosines; default 0.05 */
} ht_trainer_options;
HT_API void ht_trainer_options_init(ht_trainer_options *options, size_t size);

/* Plan of a trainer. */
typedef struct ht_trainer_plan {
    int64_t iters, iters_per_epoch;
    int64_t done, skipped;                  /* of them */
    int64_t n_parameters, model_parameters; /* trained ones; all of the model's matrices */
    int n_projections;
    bool checkpointing;
    size_t peak_bytes;           /* forecast of the process's memory at its peak, with the model */
    const ht_data_report *data;  /* lent */
    const ht_data_report *valid; /* NULL: none */
} ht_trainer_plan;

/* Stats of a step. */
typedef struct ht_train_step {
    int64_t iter;          /* steps done, this one included */
    double loss;           /* mean over the learned tokens, or the anchors */
    double learning_rate;  /* of this step */
    double grad_norm;      /* before clipping */
    int64_t n_tok;         /* rows computed */
    int64_t n_learned;     /* of them; of HT_METHOD_EMBED, anchors */
    bool skipped;          /* loss or norm were not finite: nothing was changed */
    int64_t total_skipped; /* so far */
} ht_train_step;

typedef struct ht_trainer ht_trainer;

/* Reads the data, draws the adapter's first values and forecasts memory. The trainer holds the model; the caller
 * frees *out. HT_ERR_LIMIT, with an option that helps, if the forecast exceeds free memory; HT_ERR_FORMAT, with file,
 * line and reason, for unusable data. */
HT_API ht_status ht_trainer_new(ht_model *m, const ht_trainer_options *options, ht_trainer **out, ht_error *err);
HT_API void ht_trainer_free(ht_trainer *t); /* NULL is fine */
HT_API void ht_trainer_describe(const ht_trainer *t, ht_trainer_plan *out);

/* One step, unless plan.iters are done: then HT_ERR_LIMIT. A step whose loss or gradients are not finite changes
 * nothing and is counted; the fifth in a row is HT_ERR_ARGUMENT, with the lines of its samples. After any failure the
 * state is that after the last whole step. */
HT_API ht_status ht_trainer_step(ht_trainer *t, ht_train_step *out, ht_error *err);
/* Mean loss over the learned tokens or anchors of the held-out samples; HT_ERR_ARGUMENT without any. */
HT_API ht_status ht_trainer_evaluate(ht_trainer *t, double *loss, ht_error *err);

/* Retrieval of held-out samples: each anchor ranks the candidates of all of them by cosine. Equal texts are one
 * candidate; other positives of an equal anchor are not ranked. A candidate of the same cosine as the positive ranks
 * before it. */
typedef struct ht_retrieval {
    int64_t n_anchors, n_candidates; /* 0: there was no evaluation of HT_METHOD_EMBED */
    double accuracy_at_1;            /* share of anchors whose positive is first */
    double mrr_at_10;                /* mean of 1 / rank of the positive; 0 beyond rank 10 */
    double ndcg_at_10;               /* mean of 1 / log2(1 + rank); 0 beyond rank 10 */
} ht_retrieval;
/* The measures of the last ht_trainer_evaluate. */
HT_API void ht_trainer_retrieval(const ht_trainer *t, ht_retrieval *out);

/* The adapter as it is now; the caller frees *out. */
HT_API ht_status ht_trainer_adapter(const ht_trainer *t, ht_adapter **out, ht_error *err);

/* Writes parameters, moments and the position in the data to a file, which appears whole or not at all. */
HT_API ht_status ht_trainer_save(const ht_trainer *t, const char *path, ht_error *err);
/* Resumes from a saved file: further steps give the bits of an uninterrupted run. HT_ERR_ARGUMENT, with the
 * difference, if data or options are not those of the file. */
HT_API ht_status ht_trainer_resume(ht_trainer *t, const char *path, ht_error *err);

/* A run of tokens that are all learned, or all not, as n bytes of text. Return false to stop. */
typedef bool ht_train_piece_fn(const char *text, size_t n, bool learned, void *user);
/* Sample i of the training data, 0 to n_samples - 1, in such pieces, special tokens included; without a tokenizer,
 * the tokens' numbers. The learned piece of a pair is its positive; texts end with a newline. */
HT_API ht_status ht_trainer_sample(const ht_trainer *t, int64_t i, ht_train_piece_fn *fn, void *user, ht_error *err);

#ifdef __cplusplus
}
#endif
#endif
