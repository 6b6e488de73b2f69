#include "engine.h"

#include "model_path.h"
#include "terminal.h"

#include <stdlib.h>

static bool on_progress(double done, void *user) {
    progress_show(user, done);
    return !interrupted();
}

ht_status engine_open(engine *e, const options *o, int64_t positions, ht_error *err) {
    *e = (engine){0};
    char *path;
    ht_status st = model_path(o->model, &path, err);
    if (st) return st;
    interrupt_watch(NULL);
    progress loading;
    progress_begin(&loading, "loading", o->quiet);
    ht_device_options device = {.n_threads = (int)o->threads, .instruction_set = o->cpu};
    st = ht_device_open("cpu", &device, &e->device, err);
    if (!st) {
        ht_model_options model = {
            .device = e->device,
            .precision = (ht_precision)o->precision,
            .context = o->context,
            .kv_dtype = options_kv_dtype(o),
            .expected_positions = positions,
            .progress = on_progress,
            .user = &loading,
        };
        st = ht_model_load(path, &model, &e->model, err);
    }
    free(path);
    progress_end(&loading);
    if (st) return st;
    ht_session_options session = {.chunk = (int32_t)o->chunk};
    st = ht_session_open(e->model, &session, &e->session, err);
    if (!st) interrupt_watch(e->session);
    return st;
}

void engine_close(engine *e) {
    interrupt_watch(NULL);
    ht_session_close(&e->session);
    ht_model_close(&e->model);
    ht_device_release(e->device);
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
