#include "backends.h"

#include "adapters.h"
#include "model_path.h"
#include "terminal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool backend_is_native(const options *o) { return !o->backend || strcmp(o->backend, "native") == 0; }

/* Options of the CPU device and of sessions, which only the native backend has. */
static ht_status refuse_native_options(const options *o, ht_error *err) {
    static const char *const names[] = {"threads", "cpu",         "chunk",          "save-state", "load-state",
                                        "draft",   "lookup",      "guesses",        "regex",      "grammar",
                                        "schema",  "tool-choice", "thinking-budget"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (options_given(o, names[i])) {
            snprintf(err->message, sizeof err->message, "--%s is not supported by %.64s", names[i], o->backend);
            return err->status = HT_ERR_UNSUPPORTED;
        }
    return HT_OK;
}

static void on_progress(double done, void *user) { progress_show(user, done); }

static ht_model_options model_options(const options *o, progress *loading, ht_device *device) {
    ht_model_options model;
    ht_model_options_init(&model, sizeof model);
    model.device = device;
    model.precision = (ht_precision)o->precision;
    model.context = o->context;
    model.sliding = o->sliding;
    model.kv_dtype = options_kv_dtype(o);
    model.packed_cache = o->packed_cache ? "packed" : NULL;
    model.cancel = interrupt_flag();
    model.progress = on_progress;
    model.user = loading;
    return model;
}

/* Paths and scales of --adapter, in fresh memory. */
typedef struct named_adapters {
    char **path;
    float *scale;
} named_adapters;

static void free_adapters(const options *o, named_adapters *a) {
    for (int i = 0; a->path && i < o->adapters.n; i++) free(a->path[i]);
    free(a->path);
    free(a->scale);
}

static ht_status name_adapters(const options *o, named_adapters *a, ht_error *err) {
    const size_t n = (size_t)o->adapters.n + 1;
    a->path = calloc(n, sizeof *a->path);
    a->scale = calloc(n, sizeof *a->scale);
    bool whole = a->path && a->scale;
    for (int i = 0; whole && i < o->adapters.n; i++)
        whole = (a->path[i] = adapter_path(o->adapters.items[i], &a->scale[i])) != NULL;
    if (whole) return HT_OK;
    snprintf(err->message, sizeof err->message, "out of memory for the adapters");
    return err->status = HT_ERR_MEMORY;
}

static ht_status load(const options *o, const char *path, ht_device *device, ht_backend_model **out, ht_error *err) {
    named_adapters adapters = {0};
    progress loading;
    ht_status st = name_adapters(o, &adapters, err);
    if (!st) {
        const char *from_environment = getenv("HEARTH_PYTHON");
        progress_begin(&loading, "loading", o->quiet);
        const ht_model_options model = model_options(o, &loading, device);
        ht_backend_options how;
        ht_backend_options_init(&how, sizeof how);
        how.model = &model;
        how.adapters = (const char *const *)adapters.path;
        how.adapter_scales = adapters.scale;
        how.n_adapters = o->adapters.n;
        how.python = o->python ? o->python : from_environment && *from_environment ? from_environment : NULL;
        st = ht_backend_load(o->backend, path, &how, out, err);
        progress_end(&loading);
    }
    free_adapters(o, &adapters);
    return st;
}

ht_status backend_open(const options *o, ht_backend_model **out, ht_error *err) {
    char *path = NULL;
    ht_device *device = NULL; /* only to be refused by a backend that has none of Hearth's */
    *out = NULL;
    interrupt_watch();
    ht_status st = refuse_native_options(o, err);
    if (!st) st = model_path(o->model, &path, err);
    if (!st && o->device) st = ht_device_open(o->device, NULL, &device, err);
    if (!st) st = load(o, path, device, out, err);
    ht_device_free(device);
    free(path);
    return st;
}
