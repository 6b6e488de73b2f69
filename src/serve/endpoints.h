/* The functions that serve the routes (routes.c), and the field tables of their requests. */
#ifndef HT_SERVE_ENDPOINTS_H
#define HT_SERVE_ENDPOINTS_H

#include "serve/call.h"

/* Replies to a call, now or later, or returns false with a failure in the call. */
typedef bool serve_endpoint(serve_call *c);

/* The page for browsers (page.html); with no_page, or for requests that do not accept HTML, Ollama's short text. */
serve_endpoint serve_page;
/* For operators. */
serve_endpoint serve_health, serve_metrics_page, serve_version;
/* The OpenAPI 3.1 description. Requests come from the routes and their field tables (fields.h). Responses come from
 * responses.json, which tests/serve/check_answers.py records. */
serve_endpoint serve_openapi;

serve_endpoint serve_openai_chat, serve_openai_completions, serve_openai_embeddings, serve_openai_models,
    serve_openai_model;
extern const serve_field serve_openai_chat_fields[], serve_openai_completions_fields[],
    serve_openai_embeddings_fields[];

/* Jina's, Cohere's and llama-server's reranking. */
serve_endpoint serve_rerank;
extern const serve_field serve_rerank_fields[];

serve_endpoint serve_responses, serve_responses_input_tokens;
extern const serve_field serve_responses_fields[];

serve_endpoint serve_anthropic_messages, serve_anthropic_count_tokens;
extern const serve_field serve_anthropic_fields[], serve_anthropic_count_fields[];

serve_endpoint serve_ollama_chat, serve_ollama_generate, serve_ollama_embed, serve_ollama_embeddings, serve_ollama_tags,
    serve_ollama_running, serve_ollama_show, serve_ollama_pull;
/* Refuses Ollama's requests to manage models, and names the command that does it here. */
serve_endpoint serve_ollama_manage;
extern const serve_field serve_ollama_chat_fields[], serve_ollama_generate_fields[], serve_ollama_embed_fields[],
    serve_ollama_embeddings_fields[], serve_ollama_show_fields[], serve_ollama_pull_fields[];
/* Whether a request only unloads its model, and thus needs none loaded. */
bool serve_ollama_only_unloads(const ht_json *body);

serve_endpoint serve_llama_completion, serve_llama_infill, serve_llama_embedding, serve_llama_props,
    serve_llama_change_props, serve_llama_adapters, serve_llama_change_adapters, serve_tokenize, serve_detokenize,
    serve_apply_template;
/* Emulated slots of llama-server, one per concurrent answer: all answers share one prefix cache. */
serve_endpoint serve_llama_slots, serve_llama_slot_action;
extern const serve_field serve_llama_completion_fields[], serve_llama_infill_fields[], serve_llama_embedding_fields[],
    serve_llama_slot_fields[], serve_tokenize_fields[], serve_detokenize_fields[];

#endif
