/* Embeddings of Ollama's interface, in its current and its former form. */
#include "base/clock.h"
#include "serve/embeddings.h"
#include "serve/ollama/ollama.h"

#include <stdlib.h>
#include <string.h>

static const serve_field common_fields[] = {{"model", .is = SERVE_IS_TEXT},
                                            {"options", .is = SERVE_IS_OBJECT(serve_ollama_options)},
                                            {"keep_alive", .is = SERVE_IS_DURATION},
                                            {0}};
const serve_field serve_ollama_embed_fields[] = {
    {"input", .is = {.types = SERVE_JSON_TEXT | SERVE_JSON_LIST, .most = SERVE_MOST_INPUTS, .item = &serve_full_text}},
    {"truncate", .is = SERVE_IS_FLAG},
    {"dimensions", .is = SERVE_IS_INTEGER(1, INT32_MAX)},
    SERVE_MORE(common_fields),
    {0}};
const serve_field serve_ollama_embeddings_fields[] = {{"prompt", .is = SERVE_IS_TEXT}, SERVE_MORE(common_fields), {0}};

/* ---- truncation of inputs ---- */

/* The ids of a text, truncated to the context, as a list; *cut is set when tokens were dropped. */
static ht_json *cut_ids(serve_call *c, const char *text, bool *cut) {
    serve_ids ids = {0};
    const size_t most = (size_t)ht_model_context(c->lease.model);
    const bool good = serve_ids_append_text(c, &ids, text, SERVE_BEGINS, "input");
    ht_json *list = good ? ht_json_new_array() : NULL;
    *cut = *cut || ids.n > most;
    for (size_t i = 0; good && i < ids.n && i < most; i++) ht_json_array_append_new(list, ht_json_integer(ids.id[i]));
    free(ids.id);
    return list;
}

/* Whether a text may exceed the context: every token except the added ones has at least one byte. */
static bool may_be_long(const serve_call *c, const ht_json *input) {
    enum { ADDED = 8 };
    const size_t n = ht_json_is_array(input) ? ht_json_array_size(input) : 1;
    for (size_t i = 0; i < n; i++) {
        const ht_json *one = ht_json_is_array(input) ? ht_json_array_get(input, i) : input;
        if ((int64_t)ht_json_string_length(one) + ADDED > ht_model_context(c->lease.model)) return true;
    }
    return false;
}

/* The input with its texts truncated to the context, which the response's header reports; NULL: a failure. */
static ht_json *fitting_input(serve_call *c, const ht_json *input) {
    bool cut = false;
    if (!serve_flag(c->body, "truncate", true) || !may_be_long(c, input)) return ht_json_incref((ht_json *)input);
    ht_json *lists = ht_json_new_array();
    const size_t n = ht_json_is_array(input) ? ht_json_array_size(input) : 1;
    bool good = lists;
    for (size_t i = 0; good && i < n; i++) {
        const ht_json *one = ht_json_is_array(input) ? ht_json_array_get(input, i) : input;
        ht_json *ids = cut_ids(c, ht_json_string_value(one), &cut);
        good = ids && ht_json_array_append_new(lists, ids) == 0;
    }
    if (!good) {
        ht_json_decref(lists);
        serve_fail_memory(&c->failure);
        return NULL;
    }
    if (cut) serve_call_ignore(c, "input beyond the context");
    return lists;
}

/* ---- answers ---- */

/* Starts both kinds of request; *loaded is the time when the model was ready. */
static bool begin(serve_call *c, double *loaded) {
    bool unload;
    *loaded = ht_now_seconds();
    if (!serve_ollama_read_keep_alive(c->body, &unload, &c->failure)) return false;
    if (unload) (void)serve_models_unload(c->server->models, c->lease.name);
    return true;
}

static bool embed(serve_call *c, const ht_json *input, bool normalize, ht_embeddings **out) {
    ht_embed_options o;
    ht_embed_options_init(&o, sizeof o);
    o.normalize = normalize;
    ht_json *fitting = fitting_input(c, input);
    const bool good = fitting && serve_embed_inputs(c, fitting, &o, out);
    ht_json_decref(fitting);
    return good;
}

bool serve_ollama_embed(serve_call *c) {
    ht_embeddings *e = NULL;
    int64_t n = 0, tokens = 0;
    double loaded;
    const ht_json *input = serve_member(c->body, "input");
    const bool nothing = !input || (ht_json_is_array(input) && !ht_json_array_size(input)) ||
                         (ht_json_is_string(input) && !ht_json_string_length(input));
    if (!begin(c, &loaded)) return false;
    if (!nothing && !embed(c, input, true, &e)) return false;
    if (e && !serve_read_dimensions(c, e, &n)) {
        ht_embeddings_free(e);
        return false;
    }
    ht_json *vectors = ht_json_new_array();
    for (size_t i = 0; e && i < e->n; i++) {
        tokens += e->embeddings[i].n_tokens;
        ht_json_array_append_new(vectors, serve_embedding_json(&e->embeddings[i], n, n < e->hidden ? 2 : -1, false));
    }
    ht_embeddings_free(e);
    serve_reply_json(c->x, 200,
                     ht_json_pack("{ss so sI sI sI}", "model", serve_ollama_model_name(c), "embeddings", vectors,
                                  "total_duration", (int64_t)serve_ollama_nanoseconds(ht_now_seconds() - c->begin),
                                  "load_duration", (int64_t)serve_ollama_nanoseconds(loaded - c->begin),
                                  "prompt_eval_count", (int64_t)tokens),
                     SERVE_OLLAMA);
    return true;
}

/* Vectors of the former endpoint are not normalized. */
bool serve_ollama_embeddings(serve_call *c) {
    ht_embeddings *e = NULL;
    double loaded;
    if (!begin(c, &loaded)) return false;
    if (serve_filled_text(c->body, "prompt") && !embed(c, ht_json_object_get(c->body, "prompt"), false, &e))
        return false;
    ht_json *vector = e ? serve_embedding_json(&e->embeddings[0], e->hidden, -1, false) : ht_json_new_array();
    ht_embeddings_free(e);
    serve_reply_json(c->x, 200, ht_json_pack("{so}", "embedding", vector), SERVE_OLLAMA);
    return true;
}
