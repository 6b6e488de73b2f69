/* Device, model, adapters and session of a command, opened as its options say. */
#ifndef HEARTH_APP_ENGINE_H
#define HEARTH_APP_ENGINE_H

#include "options.h"

#include <hearth/adapter.h>
#include <hearth/backend.h>

/* The adapters of --adapter. */
typedef struct adapter_list {
    ht_adapter **adapter; /* [n] */
    float *scale;         /* [n] */
    char **name;          /* [n] NAME, or the path where none was given */
    int n;
} adapter_list;

/* Loads [name=]PATH[@scale] for each of o->adapters, for the model, and prints warnings about them. A list that is not whole is to
 * be freed, too. */
ht_status adapters_load(const options *o, const ht_model *m, adapter_list *out, ht_error *err);
/* The path of one such word, in fresh memory, and its scale; NULL when memory ran out. */
char *adapter_path(const char *word, float *scale);
void adapters_free(adapter_list *list);

typedef struct engine {
    ht_device *device;
    bool by_default; /* it is a GPU that nobody asked for */
    bool on_cpu;     /* whatever the options say: little is computed, or a GPU could not */
    ht_model *model;
    ht_session *session;
    adapter_list adapters; /* of --adapter */
    ht_model *draft;       /* of --draft; NULL: none */
} engine;

/* Opens all of it; `positions` is how far the KV cache is expected to grow, so that what does not fit is refused before
 * anything is loaded. The engine is to be closed after a failure too. */
ht_status engine_open(engine *e, const options *o, int64_t positions, ht_error *err);
void engine_close(engine *e);

/* One more session on the model, as the options say; the caller frees it. */
ht_status engine_session(const engine *e, const options *o, ht_session **out, ht_error *err);

/* Opens the device, if it is not yet, and loads a model as the options say but for its name, precision and cache. The
 * caller closes *out before the engine. */
typedef struct engine_model {
    const char *name; /* as typed */
    ht_precision precision;
    ht_dtype kv;
    int64_t positions; /* as above; 0: of the whole context */
} engine_model;
/* MODEL as the options say. */
engine_model engine_model_of(const options *o, int64_t positions);
ht_status engine_load(engine *e, const options *o, const engine_model *which, ht_model **out, ht_error *err);

/* Opens device, model and adapters for a command that needs no session. */
ht_status engine_open_model(engine *e, const options *o, int64_t positions, ht_error *err);

/* Behind a failure of what is in the engine: closes it, and has it open on the CPU from then on, when a GPU that nobody asked for has no
 * room, or cannot do it. The error is void then. */
bool engine_turn_to_cpu(engine *e, ht_status st, ht_error *err);

/* Loads only the tokenizer of MODEL; the caller frees it. */
ht_status engine_tokenizer(const options *o, ht_tokenizer **t, ht_error *err);

enum { DEVICE_NOTE = 160 };
/* " · NAME" of a GPU, behind what a command says of its speed; "" of the CPU. */
const char *device_note(const ht_device *d, char note[DEVICE_NOTE]);

bool backend_is_native(const options *o);
/* Loads MODEL with the backend of --backend, which is not the native one; options that the backend does not have are rejected by name.
 * The interpreter of mlx_lm is --python, else HEARTH_PYTHON, else python3. The caller closes *out. */
ht_status backend_open(const options *o, ht_backend_model **out, ht_error *err);

#endif
