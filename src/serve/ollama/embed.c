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
    {"input", .is = {.types = SERVE_JSON_TEXT | SERVE_JSON_LIST, .most = SERVE_MOST_INPUTS, .item = &serve_any_text}},
    {"truncate", .is = SERVE_IS_FLAG},
    {"dimensions", .is = SERVE_IS_INTEGER(1, INT32_MAX)},
    SERVE_MORE(common_fields),
    {0}};
const serve_field serve_ollama_embeddings_fields[] = {{"prompt", .is = SERVE_IS_TEXT}, SERVE_MORE(common_fields), {0}};

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
    o.truncate = serve_flag(c->body, "truncate", true);
    if (!serve_embed_inputs(c, input, &o, out)) return false;
    serve_report_truncated(c, *out);
    return true;
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
        ht_json_array_append_new(vectors,
                                 serve_embedding_json(e->embeddings[i].values, n, n < e->hidden ? 2 : -1, false));
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
    ht_json *vector = e ? serve_embedding_json(e->embeddings[0].values, e->hidden, -1, false) : ht_json_new_array();
    ht_embeddings_free(e);
    serve_reply_json(c->x, 200, ht_json_pack("{so}", "embedding", vector), SERVE_OLLAMA);
    return true;
}
