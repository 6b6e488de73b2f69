/* Backends: engines that load a model and compute its answers.
 *
 * `native` is this library. `mlx_lm` is mlx-lm in a Python child process, which reaches Apple's GPU; it computes,
 * while tokenizer, chat template, stop texts and the parts of answers are Hearth's in both. A program may register
 * other backends: a backend is a table of functions. Operations missing in the table are HT_ERR_UNSUPPORTED, with
 * the names of both. */
#ifndef HEARTH_BACKEND_H
#define HEARTH_BACKEND_H

#include <hearth/generate.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- options ---- */

/* Options of ht_backend_load. */
typedef struct ht_backend_options {
    size_t size; /* of the struct, set by ht_backend_options_init */
    /* Options of the model; default NULL. `mlx_lm` takes `context`, `cancel` and `progress`; device, precision, slots,
     * kv_dtype, sliding and packed_cache are HT_ERR_UNSUPPORTED there unless they are the defaults, and memory is not
     * checked. */
    const ht_model_options *model;
    const char *const
        *adapters; /* [n_adapters] LoRA adapters of the model, as ht_adapter_load reads them; default none */
    const float *adapter_scales; /* [n_adapters]; default NULL: 1 each */
    int n_adapters;              /* `mlx_lm` accepts one, a directory in its format; default 0 */

    /* The rest applies to `mlx_lm`, whose child process is killed at a timeout. */
    const char *python;   /* the interpreter: a path, or a name that PATH has; default NULL: "python3" */
    double load_seconds;  /* that starting and loading may take; default 600 */
    double first_seconds; /* from a call to its first token; default 600 */
    double next_seconds;  /* from one token to the next, and for all else; default 120 */
    size_t line_bytes;    /* a line of the child's at most; default 16 MiB */
    const char *bridge;   /* source of another program for `python`, NUL-terminated; default NULL: Hearth's */
} ht_backend_options;
HT_API void ht_backend_options_init(ht_backend_options *options, size_t size);

/* A prompt: a text, which is encoded as ht_generate_text does, or ids. */
typedef struct ht_backend_prompt {
    const char *text; /* NUL-terminated UTF-8; NULL: the ids */
    const int32_t *ids;
    size_t n_ids;
} ht_backend_prompt;

/* ---- description of a model ---- */

/* Texts are never NULL and lent until the model is closed; numbers that are not known are 0. */
typedef struct ht_backend_info {
    const char *architecture; /* "llama", "qwen2", "gemma3" */
    const char *engine;       /* "hearth 0.2.0", "mlx-lm 0.31.0, mlx 0.30.0" */
    const char *device;       /* "cpu", "gpu" */
    const char *chat_format;  /* as ht_chat_format_name; "": conversations have none */
    int64_t context, vocab, n_layers;
    int64_t memory_bytes; /* of weights and caches, in the memory of the device */
} ht_backend_info;

/* Keys and values of one head of one layer, after rotary embeddings: f32 [n_tokens, head_dim] each, lent during the
 * call. */
typedef struct ht_backend_keys {
    int64_t layer, n_layers; /* among layers that store keys and values */
    int64_t head, n_heads;
    int64_t n_tokens, head_dim;
    const float *keys, *values;
} ht_backend_keys;
/* Return false to stop: ht_backend_inspect then returns HT_ERR_CANCELLED. */
typedef bool ht_backend_keys_fn(const ht_backend_keys *keys, void *user);

/* ---- backends ---- */

/* A backend. `state` is the result of `load` for a model. Several threads may call functions at once, also on one
 * state. Options are never NULL and are complete, except that numbers of the sampler may be HT_SAMPLER_UNSET: use the
 * checkpoint's values for these, else the defaults. Functions may not be NULL unless noted. */
typedef struct ht_backend {
    size_t size;         /* of the struct, set by ht_backend_init */
    const char *name;    /* this and the next are kept, not copied */
    const char *summary; /* one line for lists */
    int preference;      /* the highest is the default backend; 100 of `native`, 50 of `mlx_lm`; default 0 */
    ht_status (*load)(const char *path, const ht_backend_options *options, void **state, ht_error *err);
    void (*close)(void *state); /* no call is under way */
    /* As ht_backend_generate and so on; NULL: unsupported. `metrics` is never NULL, and zero but for its stops,
     * which are -1. */
    ht_status (*generate)(void *state, const ht_backend_prompt *prompt, const ht_generate_options *options,
                          ht_text_fn *fn, void *user, int32_t *ids, ht_metrics *metrics, ht_error *err);
    ht_status (*chat)(void *state, const ht_chat *chat, const ht_generate_options *options, ht_answer_fn *fn,
                      void *user, ht_metrics *metrics, ht_error *err);
    ht_status (*info)(void *state, ht_backend_info *out, ht_error *err);
    ht_status (*inspect)(void *state, const ht_backend_prompt *prompt, const ht_cancel *cancel, ht_backend_keys_fn *fn,
                         void *user, ht_error *err);
    void (*cancel)(void *state);      /* ends all calls, from any thread; NULL: their own flags alone do */
    ht_model *(*native)(void *state); /* the ht_model that it computes with; NULL: none */
} ht_backend;
HT_API void ht_backend_init(ht_backend *backend, size_t size);

/* Adds a backend for the rest of the process; the table is copied. HT_ERR_ARGUMENT for a name already in use, and for
 * a table without name, load or close; HT_ERR_LIMIT for more than 32. Any thread may call this and the next three. */
HT_API ht_status ht_backend_register(const ht_backend *backend, ht_error *err);
/* The backend of that name, or NULL; lent for the rest of the process. */
HT_API const ht_backend *ht_backend_get(const char *name);
/* The i-th backend, the default first, by preference and then by name; NULL past the last one. */
HT_API const ht_backend *ht_backend_at(int i);
HT_API const ht_backend *ht_backend_default(void);

/* ---- models ---- */

typedef struct ht_backend_model ht_backend_model;

/* Loads a checkpoint with the backend of that name; NULL: the default. HT_ERR_ARGUMENT, with the existing names, for
 * another name. The caller closes *out. */
HT_API ht_status ht_backend_load(const char *name, const char *path, const ht_backend_options *options,
                                 ht_backend_model **out, ht_error *err);
/* Frees the model; its calls must have returned. NULL is fine. */
HT_API void ht_backend_close(ht_backend_model *m);
HT_API const ht_backend *ht_backend_of(const ht_backend_model *m); /* never NULL */

/* Answers a prompt, as ht_generate and ht_generate_text do for a fresh session. `ids`, with space for max_tokens,
 * receives the generated_tokens of the answer, however it ended; fn, ids and metrics may be NULL. Several threads may
 * call a model. `mlx_lm` serves them in order of arrival, and rejects a call from a callback of another with
 * HT_ERR_ARGUMENT. `mlx_lm` has no speculation (`lookup`, `draft`, `draft_tokens` are HT_ERR_UNSUPPORTED). It samples by
 * the same stages with the same random numbers; its logits differ by rounding.
 *
 * If the child process of `mlx_lm` ends, times out, or violates the protocol, the call fails with the reason and the
 * last lines of its standard error. All later calls on this model fail, too; another can be loaded. */
HT_API ht_status ht_backend_generate(ht_backend_model *m, const ht_backend_prompt *prompt,
                                     const ht_generate_options *options, ht_text_fn *fn, void *user, int32_t *ids,
                                     ht_metrics *metrics, ht_error *err);
/* Answers a conversation, as ht_generate_chat. The prefix that it shares with the last conversation is not computed
 * again, where the cache allows it. */
HT_API ht_status ht_backend_chat(ht_backend_model *m, const ht_chat *chat, const ht_generate_options *options,
                                 ht_answer_fn *fn, void *user, ht_metrics *metrics, ht_error *err);
HT_API ht_status ht_backend_get_info(ht_backend_model *m, ht_backend_info *out, ht_error *err);
/* Keys and values of a prompt, layer by layer and head by head. `cancel` may be NULL. */
HT_API ht_status ht_backend_inspect(ht_backend_model *m, const ht_backend_prompt *prompt, const ht_cancel *cancel,
                                    ht_backend_keys_fn *fn, void *user, ht_error *err);
/* Ends all running and waiting calls on the model with HT_ERR_CANCELLED; later calls are not affected. From any
 * thread, not from a signal handler. */
HT_API ht_status ht_backend_cancel(ht_backend_model *m, ht_error *err);
/* The underlying model, for sessions and for operations of this library alone; lent until ht_backend_close. Without
 * one, HT_ERR_UNSUPPORTED: "classify is not supported by mlx_lm" for the operation "classify". */
HT_API ht_status ht_backend_native_model(ht_backend_model *m, const char *operation, ht_model **out, ht_error *err);

#ifdef __cplusplus
}
#endif
#endif
