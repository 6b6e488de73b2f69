/* Ollama's interface: chats and completions as streams of JSON lines, embeddings and models. */
#ifndef HT_SERVE_OLLAMA_OLLAMA_H
#define HT_SERVE_OLLAMA_OLLAMA_H

#include "serve/conversation.h"
#include "serve/endpoints.h"
#include "serve/prompts.h"

/* A generation's `extra`. */
typedef struct serve_ollama {
    bool chat;          /* lines have "message", not "response" */
    bool unload;        /* unload the model afterwards */
    double model_ready; /* seconds on the clock of ht_now_seconds */
    serve_ids prompt;   /* prompt of a completion that returns its context */
    bool gives_context;
} serve_ollama;

extern const serve_field serve_ollama_options[];
#define SERVE_IS_DURATION                                                                                              \
    {                                                                                                                  \
        .types = SERVE_JSON_TEXT | SERVE_JSON_NUMBER,                                                                  \
        .pattern = "^[-+]?(([0-9]+[.]?[0-9]*|[.][0-9]+)(ns|us|\u00B5s|ms|s|m|h))*([0-9]+[.]?[0-9]*|[.][0-9]+)(ns|us|"  \
                   "\u00B5s|ms|s|m|h)?$"                                                                               \
    }
/* Reads keep_alive: whether the model is unloaded after the request. */
bool serve_ollama_read_keep_alive(const ht_json *body, bool *unload, serve_failure *f);
/* The model's name as the client wrote it. */
const char *serve_ollama_model_name(const serve_call *c);

/* Capabilities of a model, from its template and vocabulary. */
typedef struct serve_capabilities {
    bool template; /* the checkpoint has a template; else the next two are unknown */
    bool tools;    /* the template formats tools */
    bool thinking; /* the template can enable reasoning, or has reasoning markers */
    bool insert;   /* the vocabulary has fill-in-the-middle tokens (serve_has_infill) */
} serve_capabilities;
/* Renders the template a few times. NULL, a model without a tokenizer, has no capabilities. (models.c) */
serve_capabilities serve_capabilities_of(const ht_tokenizer *t);

extern const serve_dialect serve_ollama_dialect;

enum { SERVE_OLLAMA_TIME = 48 };
/* A time, or now for 0 seconds, in RFC 3339 with nanoseconds. */
void serve_ollama_time(int64_t seconds, char out[SERVE_OLLAMA_TIME]);
/* {"model": ..., "created_at": ..., "message": {...}, "done": ...}, or with "response". */
ht_json *serve_ollama_line(const serve_call *c, bool chat, const char *text, size_t n, bool done);
int64_t serve_ollama_nanoseconds(double seconds);

#endif
