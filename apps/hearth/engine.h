/* Device, model, adapters and session of a command, opened from its options. */
#ifndef HEARTH_APP_ENGINE_H
#define HEARTH_APP_ENGINE_H

#include "options.h"

#include <hearth/adapter.h>
#include <hearth/backend.h>

/* The adapters of --adapter. */
typedef struct adapter_list {
    ht_adapter **adapter; /* [n] */
    float *scale;         /* [n] */
    char **name;          /* [n] NAME, else the path */
    int n;
} adapter_list;

/* Loads each [name=]PATH[@scale] of o->adapters for the model and prints warnings.
 * The caller frees the list, also after a failure. */
ht_status adapters_load(const options *o, const ht_model *m, adapter_list *out, ht_error *err);
/* The path of one such word in fresh memory, and its scale; NULL when memory ran out. */
char *adapter_path(const char *word, float *scale);
void adapters_free(adapter_list *list);

typedef struct engine {
    ht_device *device;
    bool by_default; /* a GPU that the user did not request */
    bool on_cpu;     /* overrides the options: little to compute, or the GPU failed */
    ht_model *model;
    ht_session *session;
    adapter_list adapters; /* of --adapter */
    ht_model *draft;       /* of --draft; NULL: none */
} engine;

/* Opens device, model, adapters and session. `positions` is the expected size of the KV cache: a model that does not
 * fit with it is rejected before loading. Call engine_close also after a failure. */
ht_status engine_open(engine *e, const options *o, int64_t positions, ht_error *err);
void engine_close(engine *e);

/* Opens another session on the model; the caller frees it. */
ht_status engine_session(const engine *e, const options *o, ht_session **out, ht_error *err);

/* Opens the device if necessary and loads a model with the options, except for the fields below. The caller frees *out
 * before closing the engine. */
typedef struct engine_model {
    const char *name; /* as typed */
    ht_precision precision;
    ht_dtype kv;
    int64_t positions; /* expected size of the KV cache; 0: the whole context */
} engine_model;
/* MODEL with the options' precision and cache type. */
engine_model engine_model_of(const options *o, int64_t positions);
ht_status engine_load(engine *e, const options *o, const engine_model *which, ht_model **out, ht_error *err);

/* Opens device, model and adapters for a command that needs no session. */
ht_status engine_open_model(engine *e, const options *o, int64_t positions, ht_error *err);

/* After a failure on a GPU that the user did not request (out of memory or unsupported), closes the engine and makes it
 * reopen on the CPU. Returns true and clears *err in that case. */
bool engine_turn_to_cpu(engine *e, ht_status st, ht_error *err);

/* Loads only the tokenizer of MODEL; the caller frees it. */
ht_status engine_tokenizer(const options *o, ht_tokenizer **t, ht_error *err);

enum { DEVICE_NOTE = 160 };
/* " · NAME" of a GPU, which commands append to their speed; "" for the CPU. */
const char *device_note(const ht_device *d, char note[DEVICE_NOTE]);

bool backend_is_native(const options *o);
/* Loads MODEL with the non-native backend of --backend and rejects options that it does not support. The interpreter
 * for mlx_lm is --python, else HEARTH_PYTHON, else python3. The caller closes *out. */
ht_status backend_open(const options *o, ht_backend_model **out, ht_error *err);

#endif
