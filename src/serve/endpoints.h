/* The functions behind the routes (routes.c), and the tables of their requests' fields. */
#ifndef HT_SERVE_ENDPOINTS_H
#define HT_SERVE_ENDPOINTS_H

#include "serve/call.h"

/* Answers a call, at once or later, or returns false with a failure in the call. */
typedef bool serve_endpoint(serve_call *c);

/* The page for browsers (page.html), or what Ollama's clients look for there when the request does not name HTML among what it accepts, or
 * there is to be no page. */
serve_endpoint serve_page;
/* For who runs the server. */
serve_endpoint serve_health, serve_metrics_page, serve_version;
/* The description of the interface in the form of OpenAPI 3.1, made of the routes and of the tables of their fields (fields.h): what requests
 * may be. What responses are is recorded in responses.json, by tests/serve/check_answers.py. */
serve_endpoint serve_openapi;

serve_endpoint serve_openai_chat, serve_openai_completions, serve_openai_embeddings, serve_openai_models,
    serve_openai_model;
extern const serve_field serve_openai_chat_fields[], serve_openai_completions_fields[],
    serve_openai_embeddings_fields[];

serve_endpoint serve_responses, serve_responses_input_tokens;
extern const serve_field serve_responses_fields[];

serve_endpoint serve_anthropic_messages, serve_anthropic_count_tokens;
extern const serve_field serve_anthropic_fields[], serve_anthropic_count_fields[];

serve_endpoint serve_ollama_chat, serve_ollama_generate, serve_ollama_embed, serve_ollama_embeddings, serve_ollama_tags,
    serve_ollama_running, serve_ollama_show, serve_ollama_pull;
/* Says how what Ollama's clients can do to the models of a server is done here. */
serve_endpoint serve_ollama_manage;
extern const serve_field serve_ollama_chat_fields[], serve_ollama_generate_fields[], serve_ollama_embed_fields[],
    serve_ollama_embeddings_fields[], serve_ollama_show_fields[], serve_ollama_pull_fields[];
/* Whether a request asks for nothing but that its model goes; it needs none then. */
bool serve_ollama_only_unloads(const ht_json *body);

serve_endpoint serve_llama_completion, serve_llama_infill, serve_llama_embedding, serve_llama_props,
    serve_llama_change_props, serve_llama_adapters, serve_llama_change_adapters, serve_tokenize, serve_detokenize,
    serve_apply_template;
/* There are no slots: answers come and go, and share one prefix cache. The list has as many as there may be answers at once. */
serve_endpoint serve_llama_slots, serve_llama_slot_action;
extern const serve_field serve_llama_completion_fields[], serve_llama_infill_fields[], serve_llama_embedding_fields[],
    serve_llama_slot_fields[], serve_tokenize_fields[], serve_detokenize_fields[];

#endif
