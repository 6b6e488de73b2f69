/* Model and session of a command, opened as its options say. */
#ifndef HEARTH_APP_ENGINE_H
#define HEARTH_APP_ENGINE_H

#include "adapters.h"
#include "options.h"

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

/* Opens the device (device.h), if it is not yet, and loads a model as the options say but for its name, precision and cache. The
 * caller closes *out before the engine. */
typedef struct engine_model {
    const char *name; /* as typed */
    ht_precision precision;
    ht_dtype kv;
    int64_t positions; /* as above */
} engine_model;
ht_status engine_load(engine *e, const options *o, const engine_model *which, ht_model **out, ht_error *err);

/* Behind a failure of what is in the engine: closes it, and has it open on the CPU from then on, when a GPU that nobody asked for has no
 * room, or cannot do it. The error is void then. */
bool engine_turn_to_cpu(engine *e, ht_status st, ht_error *err);

/* Loads only the tokenizer of MODEL; the caller frees it. */
ht_status engine_tokenizer(const options *o, ht_tokenizer **t, ht_error *err);

#endif
