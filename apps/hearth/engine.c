#include "engine.h"

#include "fail.h"
#include "model_path.h"
#include "terminal.h"

#include <hearth/measure.h>
#include <hearth/model.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- the device ---- */

static ht_device_options device_options(const options *o) {
    ht_device_options how;
    ht_device_options_init(&how, sizeof how);
    how.n_threads = (int)o->threads;
    how.instruction_set = o->cpu;
    return how;
}

static ht_status open_cpu(const options *o, ht_device **out, ht_error *err) {
    const ht_device_options how = device_options(o);
    return ht_device_open("cpu", &how, out, err);
}

/* Reserve for activations, logits and kernel code, in addition to the weights and the KV cache. */
static const int64_t margin_bytes = (int64_t)1 << 30;

/* Device memory for the weights and KV cache of a model; -1 when its files do not say. */
static int64_t model_bytes(const options *o, const engine_model *m) {
    ht_model_info *info;
    ht_error ignored = {0};
    if (ht_model_info_read(m->name, &info, &ignored)) return -1;
    int64_t context = o->context ? o->context : info->context;
    if (m->positions && m->positions < context) context = m->positions;
    const int64_t bytes = info->runs ? info->file_bytes + ht_model_info_kv_bytes(info, m->kv, context) : -1;
    ht_model_info_free(info);
    return bytes;
}

/* Opens the first GPU with at least `bytes` of free memory; *out is NULL when no GPU has them. */
static void open_gpu(const options *o, int64_t bytes, ht_device **out) {
    const ht_device_options how = device_options(o);
    int n;
    ht_error ignored = {0};
    *out = NULL;
    if (ht_device_count("cuda", &n, &ignored)) return;
    for (int i = 0; i < n; i++) {
        ht_gpu gpu;
        if (ht_device_cuda(i, &how, out, &ignored)) continue;
        if (ht_device_gpu(*out, &gpu) && (size_t)bytes <= gpu.memory_free_bytes) return;
        ht_device_free(*out);
        *out = NULL;
    }
}

/* Opens the device of --device, else of HEARTH_DEVICE. Without either it opens the first GPU with enough memory for the
 * models, else the CPU. --cpu and --packed-cache select the CPU. *by_default: the user did not request this GPU. */
static ht_status open_device(const options *o, const engine_model *models, int n, ht_device **out, bool *by_default,
                             ht_error *err) {
    const char *environment = getenv("HEARTH_DEVICE");
    const char *name = o->device ? o->device : environment && *environment ? environment : NULL;
    const ht_device_options how = device_options(o);
    *by_default = false;
    *out = NULL;
    if (name) return ht_device_open(name, &how, out, err);
    int64_t bytes = margin_bytes;
    for (int i = 0; i < n && bytes >= 0; i++) {
        const int64_t more = model_bytes(o, &models[i]);
        bytes = more < 0 ? -1 : bytes + more;
    }
    if (bytes >= 0 && !o->cpu && !o->packed_cache) open_gpu(o, bytes, out);
    *by_default = *out != NULL;
    return *out ? HT_OK : open_cpu(o, out, err);
}

const char *device_note(const ht_device *d, char note[DEVICE_NOTE]) {
    *note = '\0';
    if (d && strcmp(ht_device_name(d), "cpu") != 0) snprintf(note, DEVICE_NOTE, " · %s", ht_device_instruction_set(d));
    return note;
}

/* ---- adapters ---- */

/* Length of NAME in NAME=PATH. A slash before the `=` makes it part of a path: 0. */
static size_t name_length(const char *word) {
    const size_t n = strcspn(word, "=/");
    return word[n] == '=' ? n : 0;
}

/* Parses a scale after the last `@`. Without a finite number there, the `@` belongs to the path. */
static size_t path_length(const char *path, float *scale) {
    const char *at = strrchr(path, '@');
    char *end = NULL;
    *scale = 1;
    if (!at || at == path || at[1] == '\0') return strlen(path);
    const float number = strtof(at + 1, &end);
    if (*end != '\0' || !isfinite(number)) return strlen(path);
    *scale = number;
    return (size_t)(at - path);
}

char *adapter_path(const char *word, float *scale) {
    const size_t name = name_length(word);
    const char *rest = name ? word + name + 1 : word;
    return strndup(rest, path_length(rest, scale));
}

static ht_status load_one(const options *o, const char *word, const ht_model *m, adapter_list *out, ht_error *err) {
    const size_t name = name_length(word);
    char *path = adapter_path(word, &out->scale[out->n]);
    if (!path) return fail_memory(err, "the adapters");
    const ht_status st = ht_adapter_load(path, m, NULL, &out->adapter[out->n], err);
    if (st) {
        free(path);
        return st;
    }
    const char *warning = ht_adapter_warning(out->adapter[out->n]);
    if (warning && !o->quiet)
        fprintf(stderr, "hearth: %.*s: %s\n", (int)(name ? name : strlen(path)), name ? word : path, warning);
    out->name[out->n] = name ? strndup(word, name) : path;
    if (name) free(path);
    return out->name[out->n++] ? HT_OK : fail_memory(err, "the adapters");
}

static ht_status make_list(const options *o, adapter_list *out, ht_error *err) {
    const size_t n = (size_t)o->adapters.n;
    *out = (adapter_list){0};
    if (!n) return HT_OK;
    out->adapter = calloc(n, sizeof(ht_adapter *));
    out->scale = calloc(n, sizeof *out->scale);
    out->name = calloc(n, sizeof *out->name);
    return out->adapter && out->scale && out->name ? HT_OK : fail_memory(err, "the adapters");
}

ht_status adapters_load(const options *o, const ht_model *m, adapter_list *out, ht_error *err) {
    ht_status st = make_list(o, out, err);
    for (int i = 0; i < o->adapters.n && !st; i++) st = load_one(o, o->adapters.items[i], m, out, err);
    return st;
}

void adapters_free(adapter_list *list) {
    for (int i = 0; i < list->n; i++) {
        ht_adapter_free(list->adapter[i]);
        free(list->name[i]);
    }
    free(list->adapter);
    free(list->name);
    free(list->scale);
    *list = (adapter_list){0};
}

/* ---- models and sessions ---- */

/* Opens a device with enough memory for this model and those that the options load later. */
static ht_status open_device_for(engine *e, const options *o, const engine_model *which, const char *path,
                                 ht_error *err) {
    if (e->device) return HT_OK;
    if (e->on_cpu) return open_cpu(o, &e->device, err);
    engine_model models[3] = {{path, which->precision, which->kv, which->positions}};
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
        models[n++] =
            (engine_model){others[i], which->precision, o->kl_vs_reference ? HT_F32 : which->kv, which->positions};
    }
    if (!st) st = open_device(o, models, n, &e->device, &e->by_default, err);
    for (int i = 0; i < 2; i++) free(others[i]);
    return st;
}

static ht_model_options options_for(const options *o, const engine_model *which, ht_device *device, const char *packed,
                                    progress *loading) {
    ht_model_options model;
    ht_model_options_init(&model, sizeof model);
    model.device = device;
    model.precision = which->precision;
    model.context = o->context;
    model.sliding = o->sliding;
    model.slots = (int32_t)o->slots;
    model.kv_dtype = which->kv;
    model.expected_positions = which->positions;
    model.cancel = interrupt_flag();
    model.progress = progress_show;
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
    const ht_status st = open_device_for(e, o, which, path, err);
    if (st) return st;
    const ht_model_options model = options_for(o, which, e->device, packed, loading);
    return ht_model_load(path, &model, out, err);
}

ht_status engine_load(engine *e, const options *o, const engine_model *which, ht_model **out, ht_error *err) {
    char *path, *packed = NULL;
    const bool first = !e->device;
    progress loading;
    *out = NULL;
    interrupt_watch();
    ht_status st = model_path(which->name, &path, err);
    if (!st && o->packed_cache) st = cache_path("packed", &packed, err);
    progress_begin(&loading, "loading", o->quiet);
    if (!st) st = load(e, o, which, path, packed, &loading, out, err);
    if (first && engine_turn_to_cpu(e, st, err)) st = load(e, o, which, path, packed, &loading, out, err);
    free(path);
    free(packed);
    progress_end(&loading);
    return st;
}

engine_model engine_model_of(const options *o, int64_t positions) {
    return (engine_model){o->model, (ht_precision)o->precision, options_kv_dtype(o), positions};
}

ht_status engine_open_model(engine *e, const options *o, int64_t positions, ht_error *err) {
    const engine_model which = engine_model_of(o, positions);
    const ht_status st = engine_load(e, o, &which, &e->model, err);
    return st ? st : adapters_load(o, e->model, &e->adapters, err);
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
    engine_model draft = engine_model_of(o, positions);
    ht_status st = engine_open_model(e, o, positions, err);
    draft.name = o->draft;
    if (!st && o->draft) st = engine_load(e, o, &draft, &e->draft, err);
    return st ? st : engine_session(e, o, &e->session, err);
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

/* ---- other backends ---- */

bool backend_is_native(const options *o) { return !o->backend || strcmp(o->backend, "native") == 0; }

/* Rejects options of the CPU device and of sessions, which only the native backend supports. */
static ht_status refuse_native_options(const options *o, ht_error *err) {
    static const char *const names[] = {"threads", "cpu",         "chunk",          "save-state", "load-state",
                                        "draft",   "lookup",      "draft_tokens",   "regex",      "grammar",
                                        "schema",  "tool-choice", "thinking-budget"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (options_given(o, names[i]))
            return ht_fail(err, HT_ERR_UNSUPPORTED, "--%s is not supported by %.64s", names[i], o->backend);
    return HT_OK;
}

static ht_status load_other(const options *o, const char *path, ht_device *device, ht_backend_model **out,
                            ht_error *err) {
    const char *from_environment = getenv("HEARTH_PYTHON");
    const engine_model which = engine_model_of(o, 0);
    adapter_list named; /* not loaded */
    progress loading;
    ht_status st = make_list(o, &named, err);
    for (; !st && named.n < o->adapters.n; named.n++) {
        named.name[named.n] = adapter_path(o->adapters.items[named.n], &named.scale[named.n]);
        if (!named.name[named.n]) st = fail_memory(err, "the adapters");
    }
    progress_begin(&loading, "loading", o->quiet);
    const ht_model_options model = options_for(o, &which, device, o->packed_cache ? "packed" : NULL, &loading);
    ht_backend_options how;
    ht_backend_options_init(&how, sizeof how);
    how.model = &model;
    how.adapters = (const char *const *)named.name;
    how.adapter_scales = named.scale;
    how.n_adapters = named.n;
    how.python = o->python ? o->python : from_environment && *from_environment ? from_environment : NULL;
    if (!st) st = ht_backend_load(o->backend, path, &how, out, err);
    progress_end(&loading);
    adapters_free(&named);
    return st;
}

ht_status backend_open(const options *o, ht_backend_model **out, ht_error *err) {
    char *path = NULL;
    ht_device *device = NULL; /* opened only so that the backend rejects it */
    *out = NULL;
    interrupt_watch();
    ht_status st = refuse_native_options(o, err);
    if (!st) st = model_path(o->model, &path, err);
    if (!st && o->device) st = ht_device_open(o->device, NULL, &device, err);
    if (!st) st = load_other(o, path, device, out, err);
    ht_device_free(device);
    free(path);
    return st;
}
