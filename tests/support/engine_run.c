#include "support/engine_run.h"

#include "device/device.h"
#include "models/model.h"
#include "support/options.h"
#include "support/test.h"

#include <string.h>

ht_engine *engine_open(ht_model *m, int32_t step_tokens, size_t prefix_bytes) {
    ht_engine *e;
    const ht_engine_options o = OPTIONS(ht_engine_options, with.step_tokens = step_tokens,
                                        with.kv_bytes = (size_t)64 << 20, with.prefix_bytes = prefix_bytes);
    assert_works(ht_engine_open, m, &o, &e);
    return e;
}

size_t engine_node_bytes(const ht_model *m) {
    size_t bytes = 0;
    for (int32_t l = 0; l < m->n_cache_layers; l++) bytes += m->device->kv->page_bytes(&m->kv[l].shape);
    return bytes;
}

static ht_generate_options options_of(const engine_question *how) {
    return OPTIONS(ht_generate_options, with.max_tokens = how->max_tokens ? how->max_tokens : 8,
                   with.ignore_eos = true);
}

static ht_request request_of(const int32_t *ids, size_t n, const engine_question *how) {
    return OPTIONS(ht_request, with.ids = ids, with.n_ids = n, with.salt = how->salt, with.adapters = &how->adapter,
                   with.n_adapters = how->adapter != NULL, with.adapter_scales = how->scale != 0 ? &how->scale : NULL);
}

static void take_end(const ht_answer_report *end, void *user) {
    engine_answer *a = user;
    if (end->status) print_error("%s\n", end->message);
    a->n = end->status ? -1 : (int32_t)end->metrics.generated_tokens;
    a->reuse = end->reuse;
    a->reused_tokens = end->metrics.reused_tokens;
    if (a->n > 0 && a->n <= ENGINE_RUN_TOKENS) memcpy(a->token, end->token, (size_t)a->n * sizeof *a->token);
}

engine_answer engine_ask(ht_engine *e, const int32_t *ids, size_t n, const engine_question *how) {
    static const engine_question none;
    if (!how) how = &none;
    engine_answer a = {0};
    ht_ticket ticket;
    const ht_generate_options o = options_of(how);
    ht_request r = request_of(ids, n, how);
    r.options = &o;
    r.end = take_end;
    r.user = &a;
    assert_works(ht_engine_submit, e, &r, &ticket);
    ht_engine_wait(e, ticket);
    assert_int_equal(a.n, o.max_tokens);
    assert_int_equal(a.reuse.reused + a.reuse.computed, n);
    assert_int_equal(a.reused_tokens, a.reuse.reused);
    return a;
}

ht_reuse engine_warm(ht_engine *e, const int32_t *ids, size_t n, const engine_question *how) {
    static const engine_question none;
    ht_reuse reuse;
    const ht_request r = request_of(ids, n, how ? how : &none);
    assert_works(ht_engine_warm, e, &r, &reuse);
    assert_int_equal(reuse.reused + reuse.computed, n);
    return reuse;
}

engine_answer engine_alone(ht_model *m, const int32_t *ids, size_t n, const engine_question *how) {
    static const engine_question none;
    if (!how) how = &none;
    engine_answer a = {0};
    ht_session *s;
    const ht_generate_options o = options_of(how);
    const float scale = how->scale != 0 ? how->scale : 1;
    assert_works(ht_session_new, m, NULL, &s);
    assert_works(ht_session_set_adapters, s, &how->adapter, &scale, how->adapter != NULL);
    assert_works(ht_generate, s, ids, n, &o, NULL, NULL, NULL);
    a.n = o.max_tokens;
    memcpy(a.token, ht_session_tokens(s) + n, (size_t)a.n * sizeof *a.token);
    ht_session_free(s);
    return a;
}
