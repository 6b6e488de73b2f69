/* Requests of an engine, copied and checked on the thread that submits them. */
#include "base/clock.h"
#include "base/error.h"
#include "base/options.h"
#include "base/plural.h"
#include "generate/engine_internal.h"
#include "generate/logit_changes.h"
#include "models/model.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const ht_request defaults = {.size = sizeof defaults, .n = 1};

void ht_request_init(ht_request *request, size_t size) { ht_options_init(request, size, &defaults, sizeof defaults); }

enum { MOST_ANSWERS = 1024 };

/* ---- copies ---- */

static ht_status no_memory(ht_error *err) { return ht_fail_memory(err, sizeof(ht_engine_request), "a request"); }

static ht_status copy_sampler(ht_engine_request *r, const ht_model *m, ht_error *err) {
    ht_status status = ht_sampler_options_read(r->o.sampler, &m->sampling, &r->sampler, err);
    if (!status) status = ht_logit_biases_read(&r->sampler, m->vocab, &r->bias, err);
    if (status) return status;
    r->sampler.logit_bias = r->bias;
    if (r->sampler.order && !(r->order = strdup(r->sampler.order))) return no_memory(err);
    r->sampler.order = r->order;
    r->o.sampler = &r->sampler;
    return HT_OK;
}

static ht_status copy_options(ht_engine_request *r, const ht_model *m, const ht_generate_options *options,
                              ht_error *err) {
    ht_status status = ht_generation_read_options(&r->o, options, err);
    if (!status) status = ht_text_stream_check_stops(r->o.stop, r->o.n_stop, err);
    if (!status && r->o.draft)
        status = ht_fail(err, HT_ERR_UNSUPPORTED, "a draft model for a request: an engine guesses by lookup alone");
    if (status) return status;
    const char *const *stop = r->o.stop;
    r->stop = calloc((size_t)r->o.n_stop + 1, sizeof *r->stop);
    if (!r->stop) return no_memory(err);
    for (int i = 0; i < r->o.n_stop; i++)
        if (!(r->stop[i] = strdup(stop[i]))) return no_memory(err);
    r->o.stop = (const char *const *)r->stop;
    status = copy_sampler(r, m, err);
    if (status) return status;
    if (r->o.grammar) r->constraint.grammar = ht_grammar_retain(r->o.grammar);
    status = ht_probing_read_options(&r->probes, r->o.probes, err);
    r->o.probes = r->probes.kinds ? &r->probes : NULL;
    return status;
}

static ht_status copy_adapters(ht_engine_request *r, const ht_request *q, ht_error *err) {
    if (q->n_adapters < 0) return ht_fail(err, HT_ERR_ARGUMENT, "%d adapters, expected 0 or more", q->n_adapters);
    const size_t n = (size_t)q->n_adapters;
    r->adapter = calloc(n + 1, sizeof *r->adapter);
    r->digest = calloc(n + 1, sizeof *r->digest);
    r->scale = calloc(n + 1, sizeof *r->scale);
    if (!r->adapter || !r->digest || !r->scale || !(r->salt = strdup(q->salt ? q->salt : ""))) return no_memory(err);
    for (int i = 0; i < q->n_adapters; i++) {
        if (!q->adapters[i]) return ht_fail(err, HT_ERR_ARGUMENT, "adapter %d of %d is NULL", i, q->n_adapters);
        r->scale[i] = q->adapter_scales ? q->adapter_scales[i] : 1;
        r->adapter[i] = ht_adapter_retain(q->adapters[i]);
        r->digest[i] = ht_adapter_digest(r->adapter[i]);
        r->key.n_adapters = i + 1;
    }
    r->key.salt = r->salt;
    r->key.adapters = r->digest;
    r->key.scales = r->scale;
    return HT_OK;
}

/* ---- the prompt ---- */

static ht_status copy_prompt(ht_engine_request *r, const ht_engine *e, const ht_request *q, ht_error *err) {
    const ht_prompt prompt = {.ids = q->ids, .n_ids = q->n_ids, .text = q->text, .chat = q->chat};
    const unsigned flags = r->o.parse_special ? HT_ENCODE_PARSE_SPECIAL : 0;
    ht_status status = ht_prompt_encode(e->model, &prompt, flags, &r->ids, &r->text, err);
    r->goes_on = !q->chat;
    if (status || !q->chat) return status;
    r->chat = ht_chat_retain(q->chat);
    ht_constraint constraint;
    status = ht_constraint_of_chat(e->model, q->chat, &r->o, r->text.text, r->text.n, &constraint, err);
    if (status) return status;
    ht_constraint_free(&r->constraint);
    r->constraint = constraint;
    return HT_OK;
}

static ht_status check_prompt(const ht_engine_request *r, const ht_engine *e, ht_error *err) {
    const ht_model *m = e->model;
    const int64_t n = (int64_t)r->ids.n;
    if (n >= m->context)
        return ht_fail(err, HT_ERR_LIMIT, "prompt of %lld token%s does not fit the context of %lld with an answer",
                       (long long)n, ht_plural(n), (long long)m->context);
    if (n >= e->most_positions)
        return ht_fail(err, HT_ERR_LIMIT,
                       "prompt of %lld token%s can never fit with an answer: the engine's %zu bytes for keys and "
                       "values hold %lld position%s",
                       (long long)n, ht_plural(n), e->o.kv_bytes, (long long)e->most_positions,
                       ht_plural(e->most_positions));
    return HT_OK;
}

/* What only making them shows: samplers, decoders and adapters. */
static ht_status check_parts(const ht_engine_request *r, const ht_engine *e, ht_error *err) {
    ht_session *s;
    ht_status status = ht_session_new(e->model, NULL, &s, err);
    if (status) return status;
    ht_generation g = {.s = s, .o = r->o, .constraint = r->constraint, .chat = r->chat};
    status = ht_session_set_adapters(s, r->adapter, r->scale, r->key.n_adapters, err);
    if (!status && !r->prompt_only) status = ht_generation_begin(&g, r->piece ? ht_engine_post_text : NULL, NULL, err);
    ht_generation_end(&g);
    ht_session_free(s);
    return status;
}

static ht_status fill(ht_engine_request *r, const ht_engine *e, const ht_request *q, ht_error *err) {
    ht_status status = copy_options(r, e->model, q->options, err);
    if (!status) status = copy_adapters(r, q, err);
    if (!status) status = copy_prompt(r, e, q, err);
    if (!status) status = check_prompt(r, e, err);
    if (!status) status = check_parts(r, e, err);
    return status;
}

ht_status ht_engine_request_new(ht_engine *e, const ht_request *request, bool prompt_only, ht_engine_request **out,
                                ht_error *err) {
    ht_request q;
    *out = NULL;
    ht_status status = ht_options_read(&q, request, &defaults, sizeof defaults, "ht_request", err);
    if (status) return status;
    if (prompt_only) q.n = 1;
    if (q.n < 1 || q.n > MOST_ANSWERS)
        return ht_fail(err, HT_ERR_ARGUMENT, "%d answers, expected 1 to %d", (int)q.n, MOST_ANSWERS);
    if (!(q.deadline >= 0) || isinf(q.deadline))
        return ht_fail(err, HT_ERR_ARGUMENT, "a deadline of %g seconds, expected 0 or more", q.deadline);
    ht_engine_request *r = calloc(1, sizeof *r + (size_t)q.n * sizeof *r->answer);
    if (!r) return no_memory(err);
    r->n = r->left = q.n;
    r->prompt_only = prompt_only;
    r->priority = q.priority;
    r->submitted = ht_now_seconds();
    r->seconds = q.deadline;
    r->deadline = q.deadline > 0 ? r->submitted + q.deadline : 0;
    if (!prompt_only) {
        r->piece = q.piece;
        r->end = q.end;
        r->user = q.user;
    }
    for (int32_t i = 0; i < q.n; i++) {
        r->answer[i].engine = e;
        r->answer[i].request = r;
        r->answer[i].index = i;
        r->answer[i].g.metrics = ht_metrics_none();
    }
    status = fill(r, e, &q, err);
    if (status)
        ht_engine_request_free(r);
    else
        *out = r;
    return status;
}

void ht_engine_request_free(ht_engine_request *r) {
    if (!r) return;
    for (int i = 0; i < r->key.n_adapters; i++) ht_adapter_free(r->adapter[i]);
    for (int i = 0; r->stop && i < r->o.n_stop; i++) free(r->stop[i]);
    for (int32_t i = 0; i < r->n; i++) free(r->answer[i].token);
    ht_constraint_free(&r->constraint);
    free(r->stop);
    free(r->order);
    free(r->bias);
    free(r->salt);
    free(r->adapter);
    free(r->digest);
    free(r->scale);
    free(r->text.text);
    ht_ids_free(r->ids.id);
    ht_chat_free(r->chat);
    free(r);
}
