#include "engine.h"

#include "device.h"
#include "model_path.h"
#include "terminal.h"

#include <stdio.h>
#include <stdlib.h>

static void on_progress(double done, void *user) { progress_show(user, done); }

/* Opens the device for this model and the others that the options name, which are loaded after it. */
static ht_status open_device(engine *e, const options *o, const engine_model *which, const char *path, ht_error *err) {
    if (e->device) return HT_OK;
    if (e->on_cpu) return device_open_cpu(o, &e->device, err);
    device_load models[3] = {{path, which->kv, which->positions}};
    char *others[2] = {0};
    int n = 1;
    const char *const named[] = {o->draft, o->vs_device         ? NULL
                                           : o->kl_vs           ? o->kl_vs
                                           : o->kl_vs_reference ? o->model
                                                                : NULL};
    ht_status st = HT_OK;
    for (int i = 0; i < 2 && !st; i++) {
        if (!named[i]) continue;
        st = model_path(named[i], &others[i], err);
        models[n++] = (device_load){others[i], o->kl_vs_reference ? HT_F32 : which->kv, which->positions};
    }
    if (!st) st = device_open(o, models, n, &e->device, &e->by_default, err);
    for (int i = 0; i < 2; i++) free(others[i]);
    return st;
}

static ht_model_options options_for(const engine *e, const options *o, const engine_model *which, const char *packed,
                                    progress *loading) {
    ht_model_options model;
    ht_model_options_init(&model, sizeof model);
    model.device = e->device;
    model.precision = which->precision;
    model.context = o->context;
    model.sliding = o->sliding;
    model.slots = (int32_t)o->slots;
    model.kv_dtype = which->kv;
    model.expected_positions = which->positions;
    model.cancel = interrupt_flag();
    model.progress = on_progress;
    model.user = loading;
    model.packed_cache = packed;
    return model;
}

bool engine_turn_to_cpu(engine *e, ht_status st, ht_error *err) {
    if (!e->by_default || (st != HT_ERR_MEMORY && st != HT_ERR_LIMIT && st != HT_ERR_UNSUPPORTED)) return false;
    engine_close(e);
    e->on_cpu = true;
    *err = (ht_error){0};
    return true;
}

static ht_status load(engine *e, const options *o, const engine_model *which, const char *path, const char *packed,
                      progress *loading, ht_model **out, ht_error *err) {
    const ht_status st = open_device(e, o, which, path, err);
    if (st) return st;
    const ht_model_options model = options_for(e, o, which, packed, loading);
    return ht_model_load(path, &model, out, err);
}

ht_status engine_load(engine *e, const options *o, const engine_model *which, ht_model **out, ht_error *err) {
    *out = NULL;
    char *path, *packed = NULL;
    ht_status st = model_path(which->name, &path, err);
    if (st) return st;
    if (o->packed_cache) st = cache_path("packed", &packed, err);
    if (st) {
        free(path);
        return st;
    }
    interrupt_watch();
    progress loading;
    progress_begin(&loading, "loading", o->quiet);
    const bool first = !e->device;
    st = load(e, o, which, path, packed, &loading, out, err);
    if (first && engine_turn_to_cpu(e, st, err)) st = load(e, o, which, path, packed, &loading, out, err);
    free(path);
    free(packed);
    progress_end(&loading);
    return st;
}

ht_status engine_session(const engine *e, const options *o, ht_session **out, ht_error *err) {
    ht_session_options session;
    ht_session_options_init(&session, sizeof session);
    if (o->chunk) session.chunk = (int32_t)o->chunk;
    ht_status st = ht_session_new(e->model, &session, out, err);
    if (!st) st = ht_session_set_adapters(*out, e->adapters.adapter, e->adapters.scale, e->adapters.n, err);
    if (!st) return HT_OK;
    ht_session_free(*out);
    *out = NULL;
    return st;
}

static ht_status open_all(engine *e, const options *o, int64_t positions, ht_error *err) {
    engine_model which = {o->model, (ht_precision)o->precision, options_kv_dtype(o), positions};
    ht_status st = engine_load(e, o, &which, &e->model, err);
    if (!st) st = adapters_load(o, e->model, &e->adapters, err);
    which.name = o->draft;
    if (!st && o->draft) st = engine_load(e, o, &which, &e->draft, err);
    if (st) return st;
    return engine_session(e, o, &e->session, err);
}

ht_status engine_open(engine *e, const options *o, int64_t positions, ht_error *err) {
    *e = (engine){0};
    const ht_status st = open_all(e, o, positions, err);
    return engine_turn_to_cpu(e, st, err) ? open_all(e, o, positions, err) : st;
}

void engine_close(engine *e) {
    ht_session_free(e->session);
    adapters_free(&e->adapters);
    ht_model_free(e->draft);
    ht_model_free(e->model);
    ht_device_free(e->device);
    *e = (engine){0};
}

ht_status engine_tokenizer(const options *o, ht_tokenizer **t, ht_error *err) {
    char *path;
    *t = NULL;
    ht_status st = model_path(o->model, &path, err);
    if (st) return st;
    st = ht_tokenizer_load(path, t, err);
    free(path);
    return st;
}
