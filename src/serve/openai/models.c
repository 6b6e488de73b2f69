/* Models and embeddings of OpenAI's interface. */
#include "serve/embeddings.h"
#include "serve/endpoints.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

/* ---- models ---- */

static ht_json *model_json(const serve_model_name *m) {
    ht_json *model = ht_json_pack("{ss ss sI ss so}", "id", m->name, "object", "model", "created", (int64_t)m->created,
                                  "owned_by", "hearth", "capabilities", serve_tasks_json(m->tasks));
    if (m->model) ht_json_object_set_new(model, "parent", ht_json_string(m->model));
    return model;
}

/* Whether the client wants Anthropic's form, which its header announces. */
static bool for_anthropic(const serve_call *c) {
    return http_head_value(&http_exchange_request(c->x)->head, "anthropic-version") != NULL;
}

static ht_json *anthropic_model_json(const serve_model_name *m) {
    struct tm utc;
    char time[40];
    const time_t created = (time_t)m->created;
    gmtime_r(&created, &utc);
    strftime(time, sizeof time, "%Y-%m-%dT%H:%M:%SZ", &utc);
    return ht_json_pack("{ss ss ss ss ss}", "type", "model", "id", m->name, "display_name", m->name, "created_at", time,
                        "lifecycle", "active");
}

bool serve_openai_models(serve_call *c) {
    ht_json *data = ht_json_new_array();
    serve_model_name m;
    const bool anthropic = for_anthropic(c);
    for (size_t i = 0; serve_models_name(c->server->models, i, &m); i++)
        ht_json_array_append_new(data, anthropic ? anthropic_model_json(&m) : model_json(&m));
    ht_json *first = ht_json_object_get(ht_json_array_get(data, 0), "id"),
            *last = ht_json_object_get(ht_json_array_get(data, ht_json_array_size(data) - 1), "id");
    ht_json *list = anthropic
                        ? ht_json_pack("{sO sb sO sO}", "data", data, "has_more", 0, "first_id", first, "last_id", last)
                        : ht_json_pack("{ss sO}", "object", "list", "data", data);
    ht_json_decref(data);
    serve_reply_json(c->x, 200, list, SERVE_OPENAI);
    return true;
}

bool serve_openai_model(serve_call *c) {
    serve_model_name m;
    if (!serve_models_get(c->server->models, c->rest, &m, &c->failure)) return false;
    serve_reply_json(c->x, 200, for_anthropic(c) ? anthropic_model_json(&m) : model_json(&m), SERVE_OPENAI);
    return true;
}

/* ---- embeddings ---- */

static const char *const formats[] = {"float", "base64", NULL};
const serve_field serve_openai_embeddings_fields[] = {{"model", .is = SERVE_IS_TEXT},
                                                      {"input", .is = SERVE_IS_INPUTS, .required = true},
                                                      {"encoding_format", .is = SERVE_IS_WORD(formats)},
                                                      {"dimensions", .is = SERVE_IS_INTEGER(1, INT32_MAX)},
                                                      SERVE_NOTED_FIELDS("user"),
                                                      {"pooling", .is = SERVE_IS_WORD(serve_poolings + 1)},
                                                      {"normalize", .is = SERVE_IS_FLAG},
                                                      {"prompt_name", .is = SERVE_IS_TEXT},
                                                      {"truncate", .is = SERVE_IS_FLAG},
                                                      {0}};

bool serve_openai_embeddings(serve_call *c) {
    ht_embed_options o;
    ht_embeddings *e;
    int64_t n;
    ht_embed_options_init(&o, sizeof o);
    o.normalize = serve_flag(c->body, "normalize", o.normalize);
    o.pooling = serve_read_pooling(c);
    o.prompt = serve_text(c->body, "prompt_name");
    o.truncate = serve_flag(c->body, "truncate", false);
    if (!serve_embed_inputs(c, serve_member(c->body, "input"), &o, &e)) return false;
    bool good = serve_read_dimensions(c, e, &n);
    if (good) serve_report_truncated(c, e);
    int64_t tokens = 0;
    ht_json *data = ht_json_new_array();
    for (size_t i = 0; good && i < e->n; i++) {
        tokens += e->embeddings[i].n_tokens;
        ht_json_array_append_new(
            data, ht_json_pack("{ss si so}", "object", "embedding", "index", (int)i, "embedding",
                               serve_embedding_json(e->embeddings[i].values, n, o.normalize && n < e->hidden ? 2 : -1,
                                                    serve_word(c->body, "encoding_format", formats, 0) == 1)));
    }
    ht_embeddings_free(e);
    if (good)
        serve_reply_json(c->x, 200,
                         ht_json_pack("{ss sO ss s{sI sI}}", "object", "list", "data", data, "model", c->lease.name,
                                      "usage", "prompt_tokens", (int64_t)tokens, "total_tokens", (int64_t)tokens),
                         SERVE_OPENAI);
    ht_json_decref(data);
    return good;
}
