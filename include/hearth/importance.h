/* Importance matrices for quantisation ("imatrix" in llama.cpp): for every column of a weight matrix, the mean
 * square of its inputs over a text. A quantiser weighs its errors by them to preserve the model's output on such
 * texts.
 *
 * Matrices are named as in GGUF files, "blk.0.attn_q.weight", for every checkpoint format, so one importance
 * matrix serves all formats. Matrices with the same input (q, k and v; gate and up) have an entry each. Entries
 * cover all projections in the layers, each expert separately, and the output head: "output.weight", or
 * "token_embd.weight" where the embedding is the head.
 *
 * Files are those of llama.cpp: GGUF with the sums of squares and the number of inputs, or, read-only, the older
 * .dat with means. */
#ifndef HEARTH_IMPORTANCE_H
#define HEARTH_IMPORTANCE_H

#include <hearth/adapter.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Immutable: any number of threads may read one. */
typedef struct ht_importance ht_importance;

/* ---- files ---- */

/* Reads a file of either form. HT_ERR_FORMAT for files of another format, damaged files, or numbers that cannot be
 * sums of squares. The older form lacks the number of inputs: it counts as 512 for each chunk in the file. */
HT_API ht_status ht_importance_load(const char *path, ht_importance **out, ht_error *err);
/* Writes GGUF, which appears whole or not at all; llama.cpp's llama-quantize reads it. */
HT_API ht_status ht_importance_save(const ht_importance *importance, const char *path, ht_error *err);
HT_API void ht_importance_free(ht_importance *importance); /* NULL is fine */

/* ---- use by a quantiser ---- */

/* Mean squares f32 [n_columns] of the columns of matrix `name`, of expert `expert` if it has several, else 0; lent
 * until ht_importance_free. They are not negative, and may be 0. NULL without such an entry, or if it has another
 * shape (ht_importance_check gives the reason). An expert that the text never chose has ones, as in llama.cpp: all
 * its columns have equal weight.
 *
 * Matrices with the same inputs share entries: gate and up experts, their fused tensor
 * "blk.0.ffn_gate_up_exps.weight", and "output.weight" where the embedding was the head. */
HT_API const float *ht_importance_find(const ht_importance *importance, const char *name, int64_t n_columns,
                                       int64_t expert);
/* Checks an entry. HT_ERR_ARGUMENT if entry `name` does not have n_experts (1 when dense) times n_columns columns:
 * it belongs to another model. HT_OK also without such an entry. */
HT_API ht_status ht_importance_check(const ht_importance *importance, const char *name, int64_t n_columns,
                                     int64_t n_experts, ht_error *err);

/* ---- contents ---- */

/* An entry; lent until ht_importance_free. */
typedef struct ht_importance_entry {
    const char *name;  /* "blk.0.attn_q.weight" */
    int64_t n_columns; /* of an expert; of all of them in an entry of the older form, which does not separate experts */
    int64_t n_experts; /* experts with separate sums; 1 when dense */
    const float *sum;  /* [n_experts][n_columns] of the squares */
    const double *count; /* [n_experts] inputs, whose squares these are; 0: the text never chose the expert */
} ht_importance_entry;

typedef struct ht_importance_info {
    int64_t n_entries;
    int64_t n_chunks;            /* of text */
    int64_t chunk_tokens;        /* tokens of a chunk; 0: unknown */
    int64_t n_datasets;          /* names of texts */
    const char *const *datasets; /* [n_datasets], lent until ht_importance_free */
} ht_importance_info;
/* Number of entries, and their texts. */
HT_API ht_importance_info ht_importance_get_info(const ht_importance *importance);
/* Entry i, 0 to n_entries - 1. */
HT_API ht_importance_entry ht_importance_entry_at(const ht_importance *importance, int64_t i);

/* Adds up n importance matrices, 1 or more; all inputs have equal weight. Gate and up experts that are fused in
 * one file and separate in another are separate in the sum. HT_ERR_ARGUMENT if two entries of one name have
 * different shapes. */
HT_API ht_status ht_importance_merge(const ht_importance *const *parts, int n, ht_importance **out, ht_error *err);

/* ---- gathering ---- */

/* Options of ht_importance_gather_text and ht_importance_gather_ids. */
typedef struct ht_importance_options {
    size_t size;         /* of the struct, set by ht_importance_options_init */
    int32_t window;      /* tokens of a chunk; default 0: 512, or the context when that is less */
    int64_t skip_chunks; /* chunks skipped at the beginning; default 0 */
    int64_t max_chunks;  /* maximum chunks computed; default 0: all */
    /* [n_from] earlier results to add to; default none. They are checked against the model before any computation. */
    const ht_importance *const *from;
    int n_from;
    const char *dataset; /* name of the text, for the file; default NULL: none */
    /* [n_adapters] of the model, as for ht_session_set_adapters; default none. */
    ht_adapter *const *adapters;
    const float *adapter_scales; /* NULL: 1 each */
    int n_adapters;
    const ht_cancel *cancel; /* ends the call with HT_ERR_CANCELLED; default NULL */
    /* Called periodically with the share done, 0 to 1. Default NULL. */
    void (*progress)(double done, void *user);
    void *user; /* handed to `progress` and `so_far` */
    /* Called after every so_far_chunks chunks but the last, with the result so far, `from` included, lent during
     * the call; use it to save progress. To continue, skip as many chunks. Return false to end the call with
     * HT_ERR_CANCELLED. Default NULL; default 0: never. */
    bool (*so_far)(const ht_importance *importance, void *user);
    int64_t so_far_chunks;
} ht_importance_options;
HT_API void ht_importance_options_init(ht_importance_options *options, size_t size);

/* Runs n ids through the model unchanged, in consecutive chunks of `window` without overlap, each from an empty
 * cache. A last partial chunk counts if it is at least half full, or the only one: inputs at the first positions of a
 * text are unusual and would weigh too much. The bits of the result depend on the model and the ids, not on the
 * number of threads.
 *
 * HT_ERR_ARGUMENT for ids outside the vocabulary, no chunk to compute, or a `from` of another model; HT_ERR_LIMIT for
 * a window longer than the context; HT_ERR_FORMAT when inputs are not finite. Sessions may use the model meanwhile.
 * The caller frees *out. */
HT_API ht_status ht_importance_gather_ids(ht_model *m, const int32_t *ids, size_t n,
                                          const ht_importance_options *options, ht_importance **out, ht_error *err);
/* The same on n bytes of UTF-8, encoded as a whole by the model's tokenizer (HT_ERR_UNSUPPORTED without one); special
 * tokens written in the text are recognised. Where the checkpoint requires BOS at the beginning of a text, every
 * chunk begins with it and holds one token of the text less. */
HT_API ht_status ht_importance_gather_text(ht_model *m, const char *text, size_t n,
                                           const ht_importance_options *options, ht_importance **out, ht_error *err);

#ifdef __cplusplus
}
#endif
#endif
