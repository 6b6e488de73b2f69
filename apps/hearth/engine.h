/* Opening a model and a session as the options say. */
#ifndef HEARTH_APP_ENGINE_H
#define HEARTH_APP_ENGINE_H

#include "options.h"

typedef struct engine {
    ht_device *device;
    ht_model *model;
    ht_session *session;
} engine;

/* Opens all three; `positions` is how far the KV cache is expected to grow, so that what does not fit is refused before
 * anything is loaded. The engine is to be closed after a failure too. */
ht_status engine_open(engine *e, const options *o, int64_t positions, ht_error *err);
void engine_close(engine *e);

/* Loads only the tokenizer of MODEL; the caller frees it. */
ht_status engine_tokenizer(const options *o, ht_tokenizer **t, ht_error *err);

#endif
