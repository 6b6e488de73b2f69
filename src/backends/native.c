/* The backend `native`: this library. */
#include "backends/backends.h"
#include "backends/calls.h"
#include "base/error.h"
#include "models/model.h"

#include <hearth/inspect.h>
#include <hearth/version.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct native_model {
    ht_model *model;
    ht_adapter **adapter; /* [n_adapters] */
    float *scale;         /* [n_adapters] */
    int n_adapters;
    ht_model_info *info;
    char engine[64];
    ht_calls calls;
    pthread_mutex_t lock; /* of `idle` */
    ht_session *idle;     /* holds the last conversation, to continue it; NULL: in use, or none yet */
} native_model;

static void close_model(void *state) {
    native_model *m = state;
    ht_session_free(m->idle);
    for (int i = 0; i < m->n_adapters; i++) ht_adapter_free(m->adapter[i]);
    free(m->adapter);
    free(m->scale);
    ht_model_free(m->model);
    ht_model_info_free(m->info);
    ht_calls_free(&m->calls);
    pthread_mutex_destroy(&m->lock);
    free(m);
}

static ht_status load_adapters(native_model *m, const ht_backend_options *o, ht_error *err) {
    if (!o->n_adapters) return HT_OK;
    m->adapter = calloc((size_t)o->n_adapters, sizeof *m->adapter);
    m->scale = calloc((size_t)o->n_adapters, sizeof *m->scale);
    if (!m->adapter || !m->scale) return ht_fail_memory(err, (size_t)o->n_adapters * sizeof *m->adapter, "adapters");
    ht_status st = HT_OK;
    for (int i = 0; i < o->n_adapters && !st; i++) {
        m->scale[i] = o->adapter_scales ? o->adapter_scales[i] : 1;
        st = ht_adapter_load(o->adapters[i], m->model, NULL, &m->adapter[i], err);
        if (!st) m->n_adapters++;
    }
    return st;
}

static ht_status load(const char *path, const ht_backend_options *o, void **state, ht_error *err) {
    *state = NULL;
    native_model *m = calloc(1, sizeof *m);
    if (!m) return ht_fail_memory(err, sizeof *m, "a model");
    ht_calls_init(&m->calls);
    pthread_mutex_init(&m->lock, NULL);
    snprintf(m->engine, sizeof m->engine, "hearth %s", ht_version());
    ht_status st = ht_model_info_read(path, &m->info, err);
    if (!st) st = ht_model_load(path, o->model, &m->model, err);
    if (!st) st = load_adapters(m, o, err);
    if (st) {
        close_model(m);
        return st;
    }
    *state = m;
    return HT_OK;
}

/* ---- calls ---- */

static ht_status new_session(const native_model *m, ht_session **out, ht_error *err) {
    ht_status st = ht_session_new(m->model, NULL, out, err);
    if (!st) st = ht_session_set_adapters(*out, m->adapter, m->scale, m->n_adapters, err);
    if (!st) return HT_OK;
    ht_session_free(*out);
    *out = NULL;
    return st;
}

static ht_status generate(void *state, const ht_backend_prompt *prompt, const ht_generate_options *options,
                          ht_text_fn *fn, void *user, int32_t *ids, ht_metrics *metrics, ht_error *err) {
    native_model *m = state;
    ht_generate_options o = *options;
    ht_session *s;
    ht_status st = new_session(m, &s, err);
    if (st) return st;
    ht_backend_call call;
    ht_calls_enter(&m->calls, &call, options->cancel);
    o.cancel = &call.cancel.flag;
    st = prompt->text ? ht_generate_text(s, prompt->text, &o, fn, user, metrics, err)
                      : ht_generate(s, prompt->ids, prompt->n_ids, &o, fn, user, metrics, err);
    ht_calls_leave(&m->calls, &call);
    const int64_t n = metrics->generated_tokens;
    if (ids && n) memcpy(ids, ht_session_tokens(s) + ht_session_length(s) - n, (size_t)n * sizeof *ids);
    ht_session_free(s);
    return st;
}

static ht_session *take_idle(native_model *m) {
    pthread_mutex_lock(&m->lock);
    ht_session *s = m->idle;
    m->idle = NULL;
    pthread_mutex_unlock(&m->lock);
    return s;
}

static void put_idle(native_model *m, ht_session *s) {
    pthread_mutex_lock(&m->lock);
    ht_session *before = m->idle;
    m->idle = s;
    pthread_mutex_unlock(&m->lock);
    ht_session_free(before);
}

static ht_status chat(void *state, const ht_chat *conversation, const ht_generate_options *options, ht_answer_fn *fn,
                      void *user, ht_metrics *metrics, ht_error *err) {
    native_model *m = state;
    ht_generate_options o = *options;
    ht_session *s = take_idle(m);
    ht_status st = s ? HT_OK : new_session(m, &s, err);
    if (st) return st;
    ht_backend_call call;
    ht_calls_enter(&m->calls, &call, options->cancel);
    o.cancel = &call.cancel.flag;
    st = ht_generate_chat(s, conversation, &o, fn, user, metrics, err);
    ht_calls_leave(&m->calls, &call);
    put_idle(m, s);
    return st;
}

static ht_status info(void *state, ht_backend_info *out, ht_error *err) {
    const native_model *m = state;
    (void)err;
    *out = (ht_backend_info){.architecture = m->info->architecture,
                             .engine = m->engine,
                             .device = ht_device_name(m->model->device),
                             .chat_format = ht_chat_format_name(m->model) ? ht_chat_format_name(m->model) : "",
                             .context = ht_model_context(m->model),
                             .vocab = ht_model_vocab_size(m->model),
                             .n_layers = m->info->n_layers,
                             .memory_bytes = m->info->memory_bytes};
    return HT_OK;
}

static bool show_layer(const ht_inspection *i, int64_t layer, int64_t n_layers, const ht_inspected_layer *l,
                       ht_backend_keys_fn *fn, void *user) {
    bool wanted = true;
    for (int32_t h = 0; h < l->n_kv_heads && wanted; h++) {
        const int64_t first = h * i->n_tokens * l->head_dim;
        wanted = fn(&(ht_backend_keys){.layer = layer,
                                       .n_layers = n_layers,
                                       .head = h,
                                       .n_heads = l->n_kv_heads,
                                       .n_tokens = i->n_tokens,
                                       .head_dim = l->head_dim,
                                       .keys = l->k + first,
                                       .values = l->v + first},
                    user);
    }
    return wanted;
}

/* Later layers may share the keys and values of the first ones; only the first layers have their own. */
static ht_status show(const ht_inspection *i, ht_backend_keys_fn *fn, void *user, ht_error *err) {
    int32_t n = 0;
    while (n < i->n_layers && i->layers[n].kv_layer == n) n++;
    for (int32_t layer = 0; layer < n; layer++)
        if (!show_layer(i, layer, n, &i->layers[layer], fn, user))
            return ht_fail(err, HT_ERR_CANCELLED, "inspection was ended by its callback");
    return HT_OK;
}

static ht_status encode(const native_model *m, const ht_backend_prompt *prompt, int32_t **own, const int32_t **ids,
                        size_t *n, ht_error *err) {
    *own = NULL;
    *ids = prompt->ids;
    *n = prompt->n_ids;
    if (!prompt->text) return HT_OK;
    ht_status st = ht_model_need_tokenizer(m->model, err);
    if (!st)
        st = ht_tokenizer_encode(m->model->tokenizer, prompt->text, strlen(prompt->text),
                                 HT_ENCODE_PARSE_SPECIAL | HT_ENCODE_ADD_SPECIAL, own, n, err);
    *ids = *own;
    return st;
}

static ht_status inspect(void *state, const ht_backend_prompt *prompt, const ht_cancel *of_caller,
                         ht_backend_keys_fn *fn, void *user, ht_error *err) {
    native_model *m = state;
    int32_t *own;
    const int32_t *ids;
    size_t n;
    ht_inspection *inspection = NULL;
    ht_backend_call call;
    ht_inspect_options o;
    ht_status st = encode(m, prompt, &own, &ids, &n, err);
    if (st) return st;
    ht_calls_enter(&m->calls, &call, of_caller);
    ht_inspect_options_init(&o, sizeof o);
    o.values = true;
    o.adapters = m->adapter;
    o.adapter_scales = m->scale;
    o.n_adapters = m->n_adapters;
    o.cancel = &call.cancel.flag;
    st = ht_inspect(m->model, ids, n, &o, &inspection, err);
    ht_calls_leave(&m->calls, &call);
    if (!st) st = show(inspection, fn, user, err);
    ht_inspection_free(inspection);
    ht_ids_free(own);
    return st;
}

static void cancel(void *state) { ht_calls_cancel(&((native_model *)state)->calls); }

static ht_model *native(void *state) { return ((native_model *)state)->model; }

const ht_backend ht_native_backend = {.size = sizeof ht_native_backend,
                                      .name = "native",
                                      .summary = "this library",
                                      .preference = 100,
                                      .load = load,
                                      .close = close_model,
                                      .generate = generate,
                                      .chat = chat,
                                      .info = info,
                                      .inspect = inspect,
                                      .cancel = cancel,
                                      .native = native};
