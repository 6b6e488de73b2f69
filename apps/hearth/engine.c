#include "engine.h"

#include "model_path.h"
#include "terminal.h"

#include <stdio.h>
#include <stdlib.h>

static void on_progress(double done, void *user) { progress_show(user, done); }

static ht_status open_device(engine *e, const options *o, ht_error *err) {
    if (e->device) return HT_OK;
    ht_device_options device;
    ht_device_options_init(&device, sizeof device);
    device.n_threads = (int)o->threads;
    device.instruction_set = o->cpu;
    return ht_device_open(o->device ? o->device : "cpu", &device, &e->device, err);
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
    st = open_device(e, o, err);
    if (!st) {
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
        model.user = &loading;
        model.packed_cache = packed;
        st = ht_model_load(path, &model, out, err);
    }
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

ht_status engine_open(engine *e, const options *o, int64_t positions, ht_error *err) {
    *e = (engine){0};
    engine_model which = {o->model, (ht_precision)o->precision, options_kv_dtype(o), positions};
    ht_status st = engine_load(e, o, &which, &e->model, err);
    if (!st) st = adapters_load(o, e->model, &e->adapters, err);
    which.name = o->draft;
    if (!st && o->draft) st = engine_load(e, o, &which, &e->draft, err);
    if (st) return st;
    return engine_session(e, o, &e->session, err);
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
