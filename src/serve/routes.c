/* Routes of the server: which endpoint is answered by what. */
#include "serve/anthropic.h"
#include "serve/call.h"
#include "serve/extras.h"
#include "serve/llama.h"
#include "serve/ollama.h"
#include "serve/openai.h"
#include "serve/operations.h"
#include "serve/page.h"
#include "serve/responses.h"

#include <string.h>

enum { GENERATES = SERVE_MODEL | SERVE_BODY };

const serve_route serve_routes[] = {
    {"GET", "/", SERVE_OLLAMA, SERVE_AT_ONCE | SERVE_OPEN, NULL, serve_page, "A page to chat on, for browsers"},
    {"GET", "/health", SERVE_OPENAI, SERVE_AT_ONCE | SERVE_OPEN, NULL, serve_health, "Whether requests are taken"},
    {"GET", "/v1/health", SERVE_OPENAI, SERVE_AT_ONCE | SERVE_OPEN, NULL, serve_health, "Whether requests are taken"},
    {"GET", "/metrics", SERVE_OPENAI, 0, NULL, serve_metrics_page, "Figures, in the text format of Prometheus"},
    {"POST", "/v1/chat/completions", SERVE_OPENAI, GENERATES, serve_openai_chat_fields, serve_openai_chat,
     "Answers to a conversation"},
    {"POST", "/v1/completions", SERVE_OPENAI, GENERATES, serve_openai_completions_fields, serve_openai_completions,
     "Texts that go on with prompts"},
    {"POST", "/v1/embeddings", SERVE_OPENAI, GENERATES, serve_openai_embeddings_fields, serve_openai_embeddings,
     "Vectors of texts"},
    {"POST", "/v1/messages", SERVE_ANTHROPIC, GENERATES, serve_anthropic_fields, serve_anthropic_messages,
     "Answers to a conversation, in Anthropic's form"},
    {"POST", "/v1/messages/count_tokens", SERVE_ANTHROPIC, GENERATES, serve_anthropic_fields,
     serve_anthropic_count_tokens, "Tokens of such a conversation"},
    {"POST", "/v1/responses", SERVE_OPENAI, GENERATES, serve_responses_fields, serve_responses,
     "Answers to a conversation, in the form of OpenAI's responses"},
    {"POST", "/v1/responses/input_tokens", SERVE_OPENAI, GENERATES, serve_responses_fields,
     serve_responses_input_tokens, "Tokens of such a conversation"},
    {"GET", "/v1/models", SERVE_OPENAI, 0, NULL, serve_openai_models, "Models, adapters and their other names"},
    {"GET", "/v1/models/*", SERVE_OPENAI, 0, NULL, serve_openai_model, "One of them"},
    {"POST", "/tokenize", SERVE_OPENAI, GENERATES, serve_tokenize_fields, serve_tokenize, "Tokens of a text"},
    {"POST", "/detokenize", SERVE_OPENAI, GENERATES, serve_detokenize_fields, serve_detokenize, "The text of tokens"},
    {"POST", "/apply-template", SERVE_OPENAI, GENERATES, serve_openai_chat_fields, serve_apply_template,
     "A conversation as the chat template writes it"},
    {"POST", "/completion", SERVE_OPENAI, GENERATES, serve_llama_completion_fields, serve_llama_completion,
     "Texts that go on with prompts, in llama-server's form"},
    {"POST", "/completions", SERVE_OPENAI, GENERATES, serve_llama_completion_fields, serve_llama_completion,
     "The same by another name"},
    {"POST", "/infill", SERVE_OPENAI, GENERATES, serve_llama_infill_fields, serve_llama_infill,
     "What is to stand between a text and another"},
    {"POST", "/embedding", SERVE_OPENAI, GENERATES, serve_llama_embedding_fields, serve_llama_embedding,
     "Vectors of texts, in llama-server's form"},
    {"POST", "/embeddings", SERVE_OPENAI, GENERATES, serve_llama_embedding_fields, serve_llama_embedding,
     "The same by another name"},
    {"GET", "/props", SERVE_OPENAI, SERVE_MODEL, NULL, serve_llama_props, "What the first model is, and its defaults"},
    {"POST", "/props", SERVE_OPENAI, 0, NULL, serve_llama_change_props, "Refused: options do not change while it runs"},
    {"GET", "/slots", SERVE_OPENAI, 0, NULL, serve_llama_slots, "Answers under way"},
    {"POST", "/slots/*", SERVE_OPENAI, SERVE_MODEL | SERVE_BODY, serve_llama_slot_fields, serve_llama_slot_action,
     "Saves the prefix cache, loads what was saved, or erases it"},
    {"GET", "/lora-adapters", SERVE_OPENAI, 0, NULL, serve_llama_adapters, "Adapters, which are models here"},
    {"POST", "/lora-adapters", SERVE_OPENAI, 0, NULL, serve_llama_change_adapters,
     "Refused: a request asks for an adapter by its name"},
    {"POST", "/api/chat", SERVE_OLLAMA, GENERATES | SERVE_UNLOADS, serve_ollama_chat_fields, serve_ollama_chat,
     "Answers to a conversation, in Ollama's form"},
    {"POST", "/api/generate", SERVE_OLLAMA, GENERATES | SERVE_UNLOADS, serve_ollama_generate_fields,
     serve_ollama_generate, "Answers to a prompt, in Ollama's form"},
    {"POST", "/api/embed", SERVE_OLLAMA, GENERATES, serve_ollama_embed_fields, serve_ollama_embed,
     "Vectors of texts, in Ollama's form"},
    {"POST", "/api/embeddings", SERVE_OLLAMA, GENERATES, serve_ollama_embeddings_fields, serve_ollama_embeddings,
     "The vector of a text, in Ollama's older form"},
    {"GET", "/api/version", SERVE_OLLAMA, SERVE_AT_ONCE, NULL, serve_version, "The server's version"},
    {"GET", "/api/tags", SERVE_OLLAMA, 0, NULL, serve_ollama_tags, "Models, in Ollama's form"},
    {"GET", "/api/ps", SERVE_OLLAMA, 0, NULL, serve_ollama_running, "Models that are loaded"},
    {"POST", "/api/show", SERVE_OLLAMA, SERVE_BODY, serve_ollama_show_fields, serve_ollama_show, "What a model is"},
    {"POST", "/api/pull", SERVE_OLLAMA, SERVE_BODY, NULL, serve_ollama_pull, "Refused unless the model is there"},
    {"POST", "/api/create", SERVE_OLLAMA, 0, NULL, serve_ollama_manage, "Refused: models do not change while it runs"},
    {"POST", "/api/copy", SERVE_OLLAMA, 0, NULL, serve_ollama_manage, "Refused likewise"},
    {"POST", "/api/push", SERVE_OLLAMA, 0, NULL, serve_ollama_manage, "Refused likewise"},
    {"DELETE", "/api/delete", SERVE_OLLAMA, 0, NULL, serve_ollama_manage, "Refused likewise"},
    {NULL, NULL, SERVE_OPENAI, 0, NULL, NULL, NULL},
};

/* Whether a route's method is the request's: where GET is answered, HEAD is. */
static bool takes(const serve_route *r, const char *method) {
    return strcmp(r->method, method) == 0 || (strcmp(r->method, "GET") == 0 && strcmp(method, "HEAD") == 0);
}

const serve_route *serve_route_find(const char *method, const char *path, const char **rest, bool *other) {
    *other = false;
    for (const serve_route *r = serve_routes; r->method; r++) {
        const size_t n = strlen(r->path);
        const bool open_end = r->path[n - 1] == '*';
        if (open_end ? strncmp(r->path, path, n - 1) != 0 || !path[n - 1] : strcmp(r->path, path) != 0) continue;
        *rest = open_end ? path + n - 1 : "";
        if (takes(r, method)) return r;
        *other = true;
    }
    return NULL;
}
