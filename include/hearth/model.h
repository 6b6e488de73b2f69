/* Models: a checkpoint's configuration and weights, loaded once, immutable, shared by any number of sessions.
 *
 * A checkpoint is a `.gguf` file, or a directory with safetensors shards, config.json and tokenizer.json, or a
 * directory with one GGUF file. Facts that this file lacks (a chat template, the stop ids) are read from the other
 * files of that directory. */
#ifndef HEARTH_MODEL_H
#define HEARTH_MODEL_H

#include <hearth/array.h>
#include <hearth/cancel.h>
#include <hearth/precision.h>
#include <hearth/tokenizer.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct ht_model ht_model;

/* Options of ht_model_load. */
typedef struct ht_model_options {
    size_t size;            /* of the struct, set by ht_model_options_init */
    ht_device *device;      /* that computes, held by the model; default NULL: the CPU with one thread per core */
    ht_precision precision; /* of matrix products; default HT_PRECISION_HIGH */
    int64_t context;        /* maximum positions of a session; default 0: the model's own; more is an error */
    /* All growing caches rotate: a position attends to the last `context` positions, so generation continues when the
     * context is full. `context` limits memory; positions are limited by 2147483647. HT_ERR_UNSUPPORTED for a text encoder
     * and for a model with a table of positions. Default false. */
    bool sliding;
    /* Maximum sequences of one step, across all sessions and engines. If more wait, they alternate step by step.
     * Default 0: 64, for a text encoder 256. */
    int32_t slots;
    /* Type of cached keys and values: HT_F16, HT_BF16, HT_F32, or HT_I8 for 8 bits with a scale for every 32. Default
     * HT_F16. */
    ht_dtype kv_dtype;
    /* Positions whose KV cache must fit in free memory together with the weights; else loading fails. Default 0: only
     * the weights must fit. */
    int64_t expected_positions;
    bool skip_memory_check;  /* load without checking free memory; default false */
    const ht_cancel *cancel; /* ends loading with HT_ERR_CANCELLED; default NULL */
    /* Called periodically while loading, with the share done, 0 to 1. Default NULL. */
    void (*progress)(double done, void *user);
    void *user; /* handed to `progress` */
    /* A directory that caches packed weights, as many bytes as ht_model_info's memory_bytes for each checkpoint. It
     * is created with mode 0700 if missing, and rejected if other users may enter it. The first load writes the
     * weights, at the disk's speed. Later loads map them, at once and in memory shared by all processes.
     *
     * A checkpoint whose files have changed replaces its entry. Changes are detected by size, inode, change time and
     * sampled rows; a file changed in place with its time set back is missed. Do not truncate files in there while a
     * model is loaded; removing them is safe. Default NULL: no cache. */
    const char *packed_cache;
} ht_model_options;
HT_API void ht_model_options_init(ht_model_options *options, size_t size);

/* Loads weights and tokenizer. The caller frees *out. HT_ERR_LIMIT for insufficient memory or context;
 * HT_ERR_UNSUPPORTED for an architecture or a weight type that this build cannot run; HT_ERR_FORMAT for files that
 * are damaged or do not fit together. */
HT_API ht_status ht_model_load(const char *path, const ht_model_options *options, ht_model **out, ht_error *err);
/* Releases the caller's hold. The model lives on until its sessions are freed, too. NULL is fine. */
HT_API void ht_model_free(ht_model *m);

/* Lent until the model is freed. NULL if the checkpoint has none (a GGUF without a vocabulary, a directory without
 * tokenizer.json): such a model works with token ids only. */
HT_API const ht_tokenizer *ht_model_tokenizer(const ht_model *m);
HT_API int64_t ht_model_context(const ht_model *m);    /* positions a session may use; 2147483647 when sliding */
HT_API int32_t ht_model_slots(const ht_model *m);      /* sequences in a step at most */
HT_API int32_t ht_model_vocab_size(const ht_model *m); /* columns of the logits; the tokenizer may have fewer ids */

/* A sampling value that applies where a request gives none (ht_sampler_options in generate.h). */
typedef struct ht_sampling_value {
    const char *name; /* of the field in ht_sampler_options: "temperature" */
    double value;
    const char *source; /* "generation_config.json", "GGUF metadata", or "default" where the checkpoint has no value */
} ht_sampling_value;
/* The model's i-th sampling value; NULL past the last one. Lent until the model is freed. */
HT_API const ht_sampling_value *ht_model_sampling(const ht_model *m, int i);

/* The tensors of one stored type. */
typedef struct ht_tensor_type {
    const char *name; /* "Q4_K" */
    int64_t n_tensors, n_parameters, bytes;
} ht_tensor_type;

/* One layer of a model. */
typedef struct ht_layer_info {
    bool slides;      /* attends to the last `sliding_window` positions only */
    bool has_experts; /* mixture of experts, with or instead of a dense feed-forward part */
    bool is_latent;   /* latent attention: the values of all heads are the first elements of its one key */
    bool is_chunked;  /* slides, but attends to its chunk of `sliding_window` positions instead of to the last */
    int64_t n_kv_heads, head_dim; /* 0 heads: no attention */
    int64_t feed_forward;         /* width of the dense part; 0: experts only */
    int64_t kv_layer; /* layer whose keys and values this one uses: itself, or an earlier one that shares them */
    int64_t state;    /* f32 values of a recurrent layer's state for a sequence; 0: the layer is not recurrent */
} ht_layer_info;

/* Description of a checkpoint, read without loading weights. Strings are never NULL and lent until
 * ht_model_info_free; numbers missing in the files are 0. */
typedef struct ht_model_info {
    const char *architecture;   /* "llama", "qwen2", "gemma3" */
    const char *name;           /* the file's own name for itself, or "" */
    const char *format;         /* "gguf" or "safetensors" */
    const char *quantization;   /* dominant weight type by bytes: "Q4_1", "BF16"; "none" for a vocabulary-only file */
    const char *file_type;      /* a GGUF's description of its weights: "Q4_K_M"; "" if it has none */
    const char *tokenizer_kind; /* or "none" */
    const char *chat_format;    /* "template": its own; else one of ht_model_chat_format; or "none" */
    bool has_weights;
    bool runs;          /* a family this build runs, and weights */
    int32_t n_files;    /* that hold the weights */
    int64_t file_bytes; /* of all of them */
    int64_t n_layers, hidden, n_heads, n_kv_heads, head_dim, feed_forward, vocab, context; /* of most layers */
    const ht_layer_info *layers; /* [n_layers]; NULL for a file that this build cannot run */
    int64_t sliding_window;      /* keys a sliding layer sees; 0: no layer slides */
    int64_t n_parameters;
    int64_t weight_bytes; /* as stored */
    int64_t memory_bytes; /* of them in memory, up to 3 %; an embedding that is not the head, too, stays in the file */
    bool tied_head;
    int64_t n_sliding_layers;          /* of n_layers */
    int64_t n_experts, n_experts_used; /* of a layer, of them for a token; 0: none */
    double bits_per_weight;            /* of all weights as stored, scales included */
    int32_t quantization_bits;         /* nominal, of the dominant type: 4 for "Q4_K", 16 for "BF16" */
    int32_t quantization_group;        /* weights of that type that share a block; 0: stored one by one */
    int32_t n_tensor_types;
    const ht_tensor_type *tensor_types; /* [n_tensor_types] in the order of the files */
    /* From the tokenizer: -1 and "" for none. The strings are the tokens as stored. */
    int32_t bos_id, eos_id, n_special_tokens;
    const char *bos, *eos;
    const char *pooling; /* of embeddings, as the files state it: "last", "mean", "cls", "none", "rank" ...; or "" */
    int32_t n_sampling;
    const ht_sampling_value *sampling; /* [n_sampling] as ht_model_sampling */
    int64_t n_prediction_layers;       /* further layers, of multi-token prediction, which are not used */
    bool is_encoder;                   /* a text encoder: it embeds texts, has no KV cache and generates nothing */
    int64_t n_labels;                  /* scores of a text encoder's classification head; 0: it has none */
} ht_model_info;

/* Bytes of the KV cache of a session with default options and `positions` positions, stored as `dtype` (a kv_dtype of
 * ht_model_options). Counts whole pages of 256 positions; in sliding layers at most those of the ring; in recurrent
 * layers two states, and those kept at page ends to go back to. On a GPU the ring is longer, by the rows that its step
 * has more than the CPU's; these are counted here. 0 for another dtype, and for a file that this build cannot run. */
HT_API int64_t ht_model_info_kv_bytes(const ht_model_info *info, ht_dtype dtype, int64_t positions);
/* Bytes of the KV cache that each further position adds, in layers that do not slide. */
HT_API int64_t ht_model_info_kv_bytes_per_position(const ht_model_info *info, ht_dtype dtype);

/* The caller frees *out. A GGUF file that this build cannot run, or that contains only a vocabulary, is described as
 * far as its metadata allows. */
HT_API ht_status ht_model_info_read(const char *path, ht_model_info **out, ht_error *err);
HT_API void ht_model_info_free(ht_model_info *info); /* NULL is fine */

/* Architectures this build can run, as a NULL-terminated list that is never freed. */
HT_API const char *const *ht_model_architectures(void);
/* The i-th type of weights read from files of a format, "gguf" or "safetensors"; NULL past the last one. A constant. */
HT_API const char *ht_model_weight_type(const char *format, int i);
/* The i-th chat format that checkpoints without a template may have; NULL past the last one. A constant. */
HT_API const char *ht_model_chat_format(int i);

#ifdef __cplusplus
}
#endif
#endif
