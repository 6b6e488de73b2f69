/* Model loading: checkpoint, configuration, tokenizer, weights, plan; and release. */
#include "base/checked.h"
#include "base/error.h"
#include "base/options.h"
#include "base/plural.h"
#include "checkpoint/chat_detection.h"
#include "checkpoint/kv_size.h"
#include "models/memory_check.h"
#include "models/model.h"
#include "models/taps.h"
#include "models/weights.h"
#include "tokenizer/token_trie.h"

#include <stdlib.h>
#include <string.h>

static const ht_model_options defaults = {.size = sizeof defaults, .precision = HT_PRECISION_HIGH, .kv_dtype = HT_F16};

void ht_model_options_init(ht_model_options *options, size_t size) {
    ht_options_init(options, size, &defaults, sizeof defaults);
}

ht_model *ht_model_retain(ht_model *m) {
    atomic_fetch_add_explicit(&m->refs, 1, memory_order_relaxed);
    return m;
}

static void free_model(ht_model *m) {
    if (m->scheduler) m->free_scheduler(m->scheduler);
    if (m->kept) m->free_kept(m->kept);
    for (int i = 0; i < HT_PLAN_FORMS; i++) ht_plan_free(m->plan[i]);
    pthread_mutex_destroy(&m->lock);
    ht_weights_free(m->weights);
    ht_modules_free(&m->modules);
    free(m->config);
    free(m->kv);
    free(m->stop_ids);
    ht_chat_setup_free(&m->chat);
    ht_token_trie_free(m->token_trie);
    ht_tokenizer_free(m->tokenizer);
    ht_stream_free(m->stream);
    ht_device_free(m->device);
    free(m);
}

void ht_model_free(ht_model *m) {
    if (m && atomic_fetch_sub_explicit(&m->refs, 1, memory_order_acq_rel) == 1) free_model(m);
}

static ht_status choose_context(ht_model *m, const ht_model_options *o, const char *name, ht_error *err) {
    m->trained_context = m->config->context;
    if (o->context < 0)
        return ht_fail(err, HT_ERR_ARGUMENT, "a context of %lld positions makes no sense", (long long)o->context);
    if (o->context > m->trained_context)
        return ht_fail(err, HT_ERR_LIMIT, "%s was trained for a context of %lld position%s; %lld were asked for", name,
                       (long long)m->trained_context, ht_plural(m->trained_context), (long long)o->context);
    m->context = o->context ? o->context : m->trained_context;
    return HT_OK;
}

/* Whether positions are rows of a table, which has none for positions beyond the context. */
static bool has_position_table(const ht_family *f) {
    for (const ht_tensor_spec *p = f->around; p && p->gguf; p++)
        if (p->rows == HT_EXTENT_CONTEXT) return true;
    return false;
}

/* Turns every growing cache into a ring of the last `context` positions, which lifts the limit on positions. A state
 * keeps all positions, so that in models with states only layers that slide anyway may drop any. */
static ht_status make_sliding(ht_model *m, const char *name, ht_error *err) {
    const bool recurrent = m->config->recurrence.kind;
    if (m->config->two_sided)
        return ht_fail(err, HT_ERR_UNSUPPORTED, "%s is a text encoder, without a cache: its context cannot slide",
                       name);
    if (has_position_table(m->config->family))
        return ht_fail(err, HT_ERR_UNSUPPORTED,
                       "%s has a table of %lld learned positions: its context cannot slide beyond them", name,
                       (long long)m->trained_context);
    for (int32_t i = 0; i < m->n_cache_layers; i++) {
        if (m->kv[i].shape.state) continue;
        if (recurrent && !m->kv[i].window)
            return ht_fail(err, HT_ERR_UNSUPPORTED,
                           "%s has recurrent layers and attention to all positions: its cache cannot slide", name);
        if (!m->kv[i].window || (m->kv[i].window > m->context && !m->kv[i].chunked)) m->kv[i].window = m->context;
    }
    m->context = INT32_MAX;
    return HT_OK;
}

/* Fails if the model needs an operation that the device lacks. */
static ht_status check_device(const ht_model *m, const char *name, ht_error *err) {
    if (!m->config->latent.rank || m->device->kv->keys_only) return HT_OK;
    return ht_fail(err, HT_ERR_UNSUPPORTED, "%s: the device %s has no latent attention, which %s models need", name,
                   m->device->name, m->architecture);
}

static ht_status set_slots(ht_model *m, const ht_model_options *o, ht_error *err) {
    enum { DEFAULT_SLOTS = 64, ENCODER_SLOTS = 256 }; /* texts are short, and have no cache */
    if (o->slots < 0)
        return ht_fail(err, HT_ERR_ARGUMENT, "%d slots, expected 1 or more, or 0 for the default", (int)o->slots);
    m->slots = o->slots ? o->slots : m->config->two_sided ? ENCODER_SLOTS : DEFAULT_SLOTS;
    return HT_OK;
}

static ht_status describe(ht_model *m, const ht_model_options *o, const char *name, ht_error *err) {
    const ht_config *c = m->config;
    m->architecture = c->family->architecture;
    m->precision = o->precision;
    m->kv_dtype = o->kv_dtype;
    m->skip_memory_check = o->skip_memory_check;
    if (m->kv_dtype != HT_F16 && m->kv_dtype != HT_BF16 && m->kv_dtype != HT_F32 && m->kv_dtype != HT_I8)
        return ht_fail(err, HT_ERR_ARGUMENT, "a KV cache cannot be of type %s; f16, bf16, f32 and i8 can",
                       ht_dtype_name(m->kv_dtype));
    m->vocab = (int32_t)c->vocab;
    m->n_cache_layers = (int32_t)ht_cache_layers(c);
    m->kv = calloc((size_t)m->n_cache_layers + 1, sizeof *m->kv);
    if (!m->kv) return ht_fail_memory(err, (size_t)m->n_cache_layers * sizeof *m->kv, "a model");
    for (int32_t i = 0; i < m->n_cache_layers; i++) m->kv[i] = ht_layer_kv_of(c, i, m->kv_dtype);
    ht_status status = choose_context(m, o, name, err);
    if (!status && o->sliding) status = make_sliding(m, name, err);
    m->short_length = c->rope.kind == HT_ROPE_LONG ? (int64_t)c->rope.original_context : INT64_MAX;
    return status;
}

/* Halves the step's rows until their memory fits into half of the memory that the weights leave. The KV cache gets the
 * other half by default (ht_memory_check_kv_bytes). */
static void choose_step_rows(ht_model *m, const ht_plan *plan, ht_memory_check_wanted *w, size_t free_bytes) {
    const size_t left = free_bytes - ht_min_size(w->weight_bytes, free_bytes);
    for (;;) {
        w->step_rows = m->step_rows;
        w->arena_bytes = ht_exec_bytes(plan, m->step_rows, m->config->two_sided ? m->step_rows : 1);
        if (m->step_rows <= HT_LEAST_STEP_ROWS) return;
        if (w->arena_bytes <= left / 2 && ht_memory_check(w, free_bytes, NULL) == HT_OK) return;
        m->step_rows = ht_max_i32(m->step_rows / 2, HT_LEAST_STEP_ROWS);
    }
}

/* Called before loading the weights; for devices with separate memory again afterwards, with a plan. */
static ht_status check_room(ht_model *m, const ht_checkpoint_files *c, const ht_model_options *o, const ht_plan *plan,
                            ht_error *err) {
    size_t weight_bytes, free_bytes;
    const bool is_host = ht_memory_is_host(m->device->memory);
    if (plan && is_host) return HT_OK;
    ht_status status = ht_weights_measure(c, m->config, m->device, m->precision, &weight_bytes, err);
    if (status || !ht_memory_check_free_on(m->device, &free_bytes)) return status;
    ht_memory_check_wanted wanted = {.name = ht_base_name(c->path),
                                     .where = is_host ? NULL : m->device->name,
                                     .weight_bytes = weight_bytes,
                                     .kv = m->kv,
                                     .n_cache_layers = m->n_cache_layers,
                                     .kv_dtype = m->kv_dtype,
                                     .page_bytes = m->device->kv->page_bytes,
                                     .context = m->context,
                                     .step_rows = ht_min_i32(m->step_rows, HT_LEAST_STEP_ROWS),
                                     .positions = ht_max_i64(0, ht_min_i64(o->expected_positions, m->context))};
    if (plan) {
        if (!ht_add_size(free_bytes, weight_bytes, &free_bytes)) return HT_OK; /* the weights are already loaded */
        choose_step_rows(m, plan, &wanted, free_bytes);
    }
    return o->skip_memory_check ? HT_OK : ht_memory_check(&wanted, free_bytes, err);
}

typedef struct traced_form {
    const ht_model *model;
    unsigned form;
    ht_taps taps;
    ht_array *joined; /* of taps */
} traced_form;

static ht_array *trace(ht_scope *s, void *user) {
    traced_form *f = user;
    const ht_model *m = f->model;
    ht_ctx c = {.s = s,
                .lora = f->form & HT_PLAN_ADAPTERS ? m->weights : NULL,
                .is_long = (f->form & HT_PLAN_LONG) != 0,
                .hidden = (f->form & HT_PLAN_HIDDEN) != 0,
                .taps = f->form & HT_PLAN_TAPS ? &f->taps : NULL};
    ht_array *y = m->config->family->forward(&c, ht_weights_decoder(m->weights));
    if (y && c.taps && !(f->joined = ht_taps_join(&c))) return NULL;
    return y;
}

static ht_status trace_form(ht_model *m, unsigned form, ht_plan **out, ht_error *err) {
    traced_form f = {.model = m, .form = form};
    ht_status status = form & HT_PLAN_TAPS ? ht_taps_begin(&f.taps, m->config, err) : HT_OK;
    if (!status) status = ht_plan_trace(m->device, trace, &f, &f.joined, out, err);
    ht_taps_free(&f.taps);
    return status;
}

ht_status ht_model_plan(ht_model *m, unsigned form, const ht_plan **out, ht_error *err) {
    pthread_mutex_lock(&m->lock);
    const ht_status status = m->plan[form] ? HT_OK : trace_form(m, form, &m->plan[form], err);
    *out = m->plan[form];
    pthread_mutex_unlock(&m->lock);
    return status;
}

ht_status ht_model_token_trie(ht_model *m, const ht_token_trie **out, ht_error *err) {
    *out = NULL;
    ht_status status = ht_model_need_tokenizer(m, err);
    if (status) return status;
    pthread_mutex_lock(&m->lock);
    if (!m->token_trie) status = ht_token_trie_new(m->tokenizer, &m->token_trie, err);
    *out = m->token_trie;
    pthread_mutex_unlock(&m->lock);
    return status;
}

int64_t ht_model_row_width(const ht_model *m, unsigned form) {
    return form & HT_PLAN_HIDDEN ? m->config->hidden : m->vocab;
}

static ht_status open_device(ht_model *m, const ht_model_options *o, ht_error *err) {
    if (o->device)
        m->device = ht_device_retain(o->device);
    else {
        ht_status status = ht_device_open("cpu", NULL, &m->device, err);
        if (status) return status;
    }
    m->step_rows = (int32_t)ht_min_i64(m->device->step_rows, m->context);
    return ht_stream_new(m->device, &m->stream, err);
}

/* The tokenizer is built while the weights load: it uses one thread, and on machines with few cores takes as long as a
 * small model's weights. */
typedef struct tokenizer_job {
    const ht_checkpoint_files *c;
    ht_tokenizer **out;
} tokenizer_job;

static ht_status load_tokenizer(void *user, ht_error *err) {
    const tokenizer_job *job = user;
    return ht_chat_detect_tokenizer(job->c, job->out, err);
}

/* False ends loading. */
static bool on_progress(double done, void *user) {
    const ht_model_options *o = user;
    if (o->progress) o->progress(done, o->user);
    return !ht_cancel_requested(o->cancel);
}

static ht_status load_weights(ht_model *m, const ht_checkpoint_files *c, const ht_model_options *o, ht_error *err) {
    tokenizer_job job = {c, &m->tokenizer};
    ht_model_options watched = *o;
    ht_weights_options how = {.device = m->device,
                              .stream = m->stream,
                              .precision = m->precision,
                              .packed_cache = o->packed_cache,
                              .hooks = {load_tokenizer, &job, on_progress, &watched, .end = 1}};
    return ht_weights_load(c, m->config, &how, &m->weights, err);
}

static ht_status fill(ht_model *m, const ht_checkpoint_files *c, const ht_model_options *o, ht_error *err) {
    const ht_plan *plan;
    if (ht_checkpoint_n_tensors(c) == 0)
        return ht_fail(err, HT_ERR_FORMAT, "%s holds a vocabulary but no weights", ht_base_name(c->path));
    m->config = malloc(sizeof *m->config);
    if (!m->config) return ht_fail_memory(err, sizeof *m->config, "a model");
    ht_status status = ht_checkpoint_config(c, m->config, err);
    if (!status) status = ht_sampling_read(c, &m->sampling, err);
    if (!status) status = ht_modules_read(c, m->config, &m->modules, err);
    if (c->prefix && strstr(c->prefix, "text_model")) m->text = HT_TEXT_TEXT_MODEL;
    if (!status && c->prefix && strstr(c->prefix, "language_model"))
        m->text = m->config->family->has_causal_text ? HT_TEXT_CAUSAL_MODEL : HT_TEXT_LANGUAGE_MODEL;
    if (!status) status = describe(m, o, ht_base_name(c->path), err);
    if (!status) status = open_device(m, o, err);
    if (!status) status = check_device(m, ht_base_name(c->path), err);
    if (!status) status = set_slots(m, o, err);
    if (!status) status = check_room(m, c, o, NULL, err);
    if (!status) status = load_weights(m, c, o, err);
    if (!status) status = ht_chat_detect_stop_ids(m->config, m->tokenizer, &m->stop_ids, &m->n_stop_ids, err);
    if (!status) status = ht_model_plan(m, m->config->two_sided ? HT_PLAN_HIDDEN : 0, &plan, err);
    if (!status) status = check_room(m, c, o, plan, err);
    if (!status && m->tokenizer) status = ht_chat_detect_template(m->tokenizer, &m->chat, err);
    if (!status && !m->tokenizer) m->no_tokenizer = ht_chat_detect_no_tokenizer(c);
    return status;
}

ht_status ht_model_load(const char *path, const ht_model_options *options, ht_model **out, ht_error *err) {
    *out = NULL;
    ht_model_options o;
    ht_checkpoint_files *c;
    ht_status status = ht_options_read(&o, options, &defaults, sizeof defaults, "ht_model_options", err);
    if (!status && ht_cancel_requested(o.cancel)) status = ht_fail(err, HT_ERR_CANCELLED, "loading was cancelled");
    if (!status) status = ht_checkpoint_open(path, &c, err);
    if (status) return status;
    ht_model *m = calloc(1, sizeof *m);
    if (!m) {
        ht_checkpoint_close(c);
        return ht_fail_memory(err, sizeof *m, "a model");
    }
    atomic_init(&m->refs, 1);
    pthread_mutex_init(&m->lock, NULL);
    status = fill(m, c, &o, err);
    ht_checkpoint_close(c);
    if (status)
        free_model(m);
    else
        *out = m;
    return status;
}

const char *ht_precision_name(ht_precision p) {
    return p == HT_PRECISION_HIGH ? "high" : p == HT_PRECISION_FAST ? "fast" : "reference";
}

ht_status ht_model_check_ids(const ht_model *m, const int32_t *ids, size_t n, ht_error *err) {
    for (size_t i = 0; i < n; i++)
        if (ids[i] < 0 || ids[i] >= m->vocab)
            return ht_fail(err, HT_ERR_ARGUMENT, "token id %d at place %zu is outside the vocabulary of %d",
                           (int)ids[i], i, (int)m->vocab);
    return HT_OK;
}

ht_status ht_model_need_decoder(const ht_model *m, ht_error *err) {
    if (!m->config->two_sided) return HT_OK;
    return ht_fail(err, HT_ERR_UNSUPPORTED,
                   "the model is a text encoder (%s): it generates no text and has no logits. `hearth embed` makes "
                   "vectors of texts with it, and `hearth finetune --method embed` trains it",
                   m->architecture);
}

ht_status ht_model_need_tokenizer(const ht_model *m, ht_error *err) {
    if (m->tokenizer) return HT_OK;
    return ht_fail(err, HT_ERR_UNSUPPORTED, "no tokenizer: the checkpoint %s. It takes and gives token ids alone",
                   m->no_tokenizer);
}

const ht_tokenizer *ht_model_tokenizer(const ht_model *m) { return m->tokenizer; }
const ht_sampling_value *ht_model_sampling(const ht_model *m, int i) {
    return i >= 0 && i < HT_SAMPLING_FIELDS ? &m->sampling.field[i] : NULL;
}
int64_t ht_model_context(const ht_model *m) { return m->context; }
int32_t ht_model_slots(const ht_model *m) { return m->slots; }
int32_t ht_model_vocab_size(const ht_model *m) { return m->vocab; }
