/* The server's routes: each endpoint and its handler. */
#include "serve/endpoints.h"

#include <stdio.h>
#include <string.h>

enum {
    ASKS = SERVE_MODEL | SERVE_BODY,
    GENERATES = ASKS | SERVE_GENERATES,
    EMBEDS = ASKS | SERVE_EMBEDS | SERVE_COMPUTES,
    RERANKS = ASKS | SERVE_RERANKS | SERVE_COMPUTES
};

static const serve_field model_in_path = {"model", .is = {.types = SERVE_JSON_TEXT,
                                                          .filled = true,
                                                          .pattern = "^[^\\u0000-\\u001F\\u007F]+$"}},
                         slot_in_path = {"id_slot", .is = SERVE_IS_INTEGER(0, INT32_MAX)};
static const char *const slot_actions[] = {"save", "restore", "erase", NULL};
static const serve_field slot_query[] = {{"action", .is = SERVE_IS_WORD(slot_actions), .required = true}, {0}},
                         slots_query[] = {{"fail_on_no_slot", .is = SERVE_IS_TEXT}, {0}};

const serve_route serve_routes[] = {
    {"GET", "/", SERVE_OLLAMA, SERVE_AT_ONCE | SERVE_OPEN, NULL, .run = serve_page,
     .summary = "A page to chat on, for browsers", .type = "text/html", .other_type = "text/plain"},
    {"GET", "/health", SERVE_OPENAI, SERVE_AT_ONCE | SERVE_OPEN, NULL, .run = serve_health,
     .summary = "Whether requests are taken"},
    {"GET", "/v1/health", SERVE_OPENAI, SERVE_AT_ONCE | SERVE_OPEN, NULL, .run = serve_health,
     .summary = "Whether requests are taken"},
    {"GET", "/metrics", SERVE_OPENAI, 0, NULL, .run = serve_metrics_page,
     .summary = "Figures, in the text format of Prometheus", .type = "text/plain"},
    {"GET", "/openapi.json", SERVE_OPENAI, SERVE_OPEN, NULL, .run = serve_openapi, .summary = "This description"},
    {"POST", "/v1/chat/completions", SERVE_OPENAI, GENERATES, serve_openai_chat_fields, .run = serve_openai_chat,
     .summary = "Answers to a conversation", .streams = true},
    {"POST", "/v1/completions", SERVE_OPENAI, GENERATES, serve_openai_completions_fields,
     .run = serve_openai_completions, .summary = "Texts that go on with prompts", .streams = true},
    {"POST", "/v1/embeddings", SERVE_OPENAI, EMBEDS, serve_openai_embeddings_fields, .run = serve_openai_embeddings,
     .summary = "Vectors of texts"},
    {"POST", "/v1/rerank", SERVE_OPENAI, RERANKS, serve_rerank_fields, .run = serve_rerank,
     .summary = "Documents by their relevance to a query, in the forms of Jina, Cohere and llama-server"},
    {"POST", "/v2/rerank", SERVE_OPENAI, RERANKS, serve_rerank_fields, .run = serve_rerank,
     .summary = "The same by another name"},
    {"POST", "/rerank", SERVE_OPENAI, RERANKS, serve_rerank_fields, .run = serve_rerank,
     .summary = "The same by another name"},
    {"POST", "/v1/reranking", SERVE_OPENAI, RERANKS, serve_rerank_fields, .run = serve_rerank,
     .summary = "The same by another name"},
    {"POST", "/reranking", SERVE_OPENAI, RERANKS, serve_rerank_fields, .run = serve_rerank,
     .summary = "The same by another name"},
    {"POST", "/v1/messages", SERVE_ANTHROPIC, GENERATES, serve_anthropic_fields, .run = serve_anthropic_messages,
     .summary = "Answers to a conversation, in Anthropic's form", .streams = true},
    {"POST", "/v1/messages/count_tokens", SERVE_ANTHROPIC, GENERATES, serve_anthropic_count_fields,
     .run = serve_anthropic_count_tokens, .summary = "Tokens of such a conversation"},
    {"POST", "/v1/responses", SERVE_OPENAI, GENERATES, serve_responses_fields, .run = serve_responses,
     .summary = "Answers to a conversation, in the form of OpenAI's responses", .streams = true},
    {"POST", "/v1/responses/input_tokens", SERVE_OPENAI, GENERATES, serve_responses_fields,
     .run = serve_responses_input_tokens, .summary = "Tokens of such a conversation"},
    {"GET", "/v1/models", SERVE_OPENAI, 0, NULL, .run = serve_openai_models,
     .summary = "Models, adapters and their other names"},
    {"GET", "/v1/models/*", SERVE_OPENAI, 0, NULL, .run = serve_openai_model, .summary = "One of them",
     .rest = &model_in_path},
    {"POST", "/tokenize", SERVE_OPENAI, ASKS, serve_tokenize_fields, .run = serve_tokenize,
     .summary = "Tokens of a text"},
    {"POST", "/detokenize", SERVE_OPENAI, ASKS, serve_detokenize_fields, .run = serve_detokenize,
     .summary = "The text of tokens"},
    {"POST", "/apply-template", SERVE_OPENAI, GENERATES, serve_openai_chat_fields, .run = serve_apply_template,
     .summary = "A conversation as the chat template writes it"},
    {"POST", "/completion", SERVE_OPENAI, GENERATES, serve_llama_completion_fields, .run = serve_llama_completion,
     .summary = "Texts that go on with prompts, in llama-server's form", .streams = true},
    {"POST", "/completions", SERVE_OPENAI, GENERATES, serve_llama_completion_fields, .run = serve_llama_completion,
     .summary = "The same by another name", .streams = true},
    {"POST", "/infill", SERVE_OPENAI, GENERATES, serve_llama_infill_fields, .run = serve_llama_infill,
     .summary = "What is to stand between a text and another", .streams = true},
    {"POST", "/embedding", SERVE_OPENAI, EMBEDS | SERVE_SAYS, serve_llama_embedding_fields,
     .run = serve_llama_embedding, .summary = "Vectors of texts, in llama-server's form"},
    {"POST", "/embeddings", SERVE_OPENAI, EMBEDS | SERVE_SAYS, serve_llama_embedding_fields,
     .run = serve_llama_embedding, .summary = "The same by another name"},
    {"GET", "/props", SERVE_OPENAI, SERVE_MODEL, NULL, .run = serve_llama_props,
     .summary = "What the first model is, and its defaults"},
    {"POST", "/props", SERVE_OPENAI, SERVE_REFUSES, NULL, .run = serve_llama_change_props,
     .summary = "Refused: options do not change while it runs"},
    {"GET", "/slots", SERVE_OPENAI, 0, NULL, .run = serve_llama_slots, .summary = "Answers under way",
     .query = slots_query},
    {"POST", "/slots/*", SERVE_OPENAI, SERVE_MODEL | SERVE_BODY | SERVE_SAYS, serve_llama_slot_fields,
     .run = serve_llama_slot_action, .summary = "Saves the prefix cache, loads what was saved, or erases it",
     .rest = &slot_in_path, .query = slot_query},
    {"GET", "/lora-adapters", SERVE_OPENAI, 0, NULL, .run = serve_llama_adapters,
     .summary = "Adapters, which are models here"},
    {"POST", "/lora-adapters", SERVE_OPENAI, SERVE_REFUSES, NULL, .run = serve_llama_change_adapters,
     .summary = "Refused: a request asks for an adapter by its name"},
    {"POST", "/chat/completions", SERVE_OPENAI, GENERATES, serve_openai_chat_fields, .run = serve_openai_chat,
     .summary = "Answers to a conversation: /v1/chat/completions by another name", .streams = true},
    {"GET", "/models", SERVE_OPENAI, 0, NULL, .run = serve_openai_models, .summary = "/v1/models by another name"},
    {"GET", "/models/*", SERVE_OPENAI, 0, NULL, .run = serve_openai_model, .summary = "One of them",
     .rest = &model_in_path},
    {"POST", "/api/chat", SERVE_OLLAMA, GENERATES, serve_ollama_chat_fields,
     .needs_no_model = serve_ollama_only_unloads, .run = serve_ollama_chat,
     .summary = "Answers to a conversation, in Ollama's form", .streams = true},
    {"POST", "/api/generate", SERVE_OLLAMA, GENERATES, serve_ollama_generate_fields,
     .needs_no_model = serve_ollama_only_unloads, .run = serve_ollama_generate,
     .summary = "Answers to a prompt, in Ollama's form", .streams = true},
    {"POST", "/api/embed", SERVE_OLLAMA, EMBEDS, serve_ollama_embed_fields, .run = serve_ollama_embed,
     .summary = "Vectors of texts, in Ollama's form"},
    {"POST", "/api/embeddings", SERVE_OLLAMA, EMBEDS, serve_ollama_embeddings_fields, .run = serve_ollama_embeddings,
     .summary = "The vector of a text, in Ollama's older form"},
    {"GET", "/api/version", SERVE_OLLAMA, SERVE_AT_ONCE, NULL, .run = serve_version, .summary = "The server's version"},
    {"GET", "/api/tags", SERVE_OLLAMA, 0, NULL, .run = serve_ollama_tags, .summary = "Models, in Ollama's form"},
    {"GET", "/api/ps", SERVE_OLLAMA, 0, NULL, .run = serve_ollama_running, .summary = "Models that are loaded"},
    {"POST", "/api/show", SERVE_OLLAMA, SERVE_BODY | SERVE_SAYS, serve_ollama_show_fields, .run = serve_ollama_show,
     .summary = "What a model is"},
    {"POST", "/api/pull", SERVE_OLLAMA, SERVE_BODY | SERVE_SAYS, serve_ollama_pull_fields, .run = serve_ollama_pull,
     .summary = "Refused unless the model is there"},
    {"POST", "/api/create", SERVE_OLLAMA, SERVE_REFUSES, NULL, .run = serve_ollama_manage,
     .summary = "Refused: models do not change while it runs"},
    {"POST", "/api/copy", SERVE_OLLAMA, SERVE_REFUSES, NULL, .run = serve_ollama_manage, .summary = "Refused likewise"},
    {"POST", "/api/push", SERVE_OLLAMA, SERVE_REFUSES, NULL, .run = serve_ollama_manage, .summary = "Refused likewise"},
    {"DELETE", "/api/delete", SERVE_OLLAMA, SERVE_REFUSES, NULL, .run = serve_ollama_manage,
     .summary = "Refused likewise"},
    {0},
};

/* Whether a route accepts the method; GET routes accept HEAD, too. */
static bool takes(const serve_route *r, const char *method) {
    return !method || strcmp(r->method, method) == 0 || (strcmp(r->method, "GET") == 0 && strcmp(method, "HEAD") == 0);
}

/* Whether a path matches a route, with an optional trailing slash; *rest gets the part that `*` matches. */
static bool leads_to(const serve_route *r, const char *path, const char **rest) {
    const size_t n = strlen(r->path);
    const bool open_end = r->path[n - 1] == '*';
    *rest = open_end && strncmp(r->path, path, n - 1) == 0 ? path + n - 1 : "";
    if (open_end) return **rest;
    return strncmp(r->path, path, n) == 0 && (path[n] == '\0' || (n > 1 && strcmp(path + n, "/") == 0));
}

const serve_route *serve_route_find(const char *method, const char *path, const char **rest) {
    for (const serve_route *r = serve_routes; r->method; r++)
        if (leads_to(r, path, rest) && takes(r, method)) return r;
    return NULL;
}

/* Whether a path is `top` or below it. */
static bool lies_below(const char *path, const char *top) {
    const size_t n = strlen(top);
    return strncmp(path, top, n) == 0 && (path[n] == '\0' || path[n] == '/');
}

serve_dialect_name serve_route_dialect(const char *path) {
    const char *rest;
    const serve_route *r = serve_route_find(NULL, path, &rest);
    if (r) return r->dialect;
    return lies_below(path, "/v1/messages") ? SERVE_ANTHROPIC : lies_below(path, "/api") ? SERVE_OLLAMA : SERVE_OPENAI;
}

void serve_route_methods(const char *path, char out[SERVE_METHODS]) {
    const char *rest;
    *out = '\0';
    for (const serve_route *r = serve_routes; r->method; r++) {
        const size_t n = strlen(out);
        if (!leads_to(r, path, &rest) || (r->flags & SERVE_REFUSES)) continue;
        snprintf(out + n, SERVE_METHODS - n, "%s%s%s", n ? ", " : "", r->method,
                 strcmp(r->method, "GET") == 0 ? ", HEAD" : "");
    }
}
