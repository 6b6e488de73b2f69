/* Ollama's interface: chats and completions as streams of JSON lines, embeddings, and the models that there are. */
#ifndef HT_SERVE_OLLAMA_OLLAMA_H
#define HT_SERVE_OLLAMA_OLLAMA_H

#include "serve/conversation.h"
#include "serve/prompts.h"

/* Each answers a call, as a route runs it, with its tables of members. */
bool serve_ollama_chat(serve_call *c);
extern const serve_field *const serve_ollama_chat_fields[];
bool serve_ollama_generate(serve_call *c);
extern const serve_field *const serve_ollama_generate_fields[];
bool serve_ollama_embed(serve_call *c);
extern const serve_field *const serve_ollama_embed_fields[];
bool serve_ollama_embeddings(serve_call *c);
extern const serve_field *const serve_ollama_embeddings_fields[];
bool serve_ollama_tags(serve_call *c);
bool serve_ollama_running(serve_call *c);
bool serve_ollama_show(serve_call *c);
extern const serve_field *const serve_ollama_show_fields[];
bool serve_ollama_pull(serve_call *c);
extern const serve_field *const serve_ollama_pull_fields[];
/* Says how what Ollama's clients can do to the models of a server is done here. */
bool serve_ollama_manage(serve_call *c);

/* ---- requests ---- */

/* A generation's `extra`. */
typedef struct serve_ollama {
    bool chat;          /* lines have a message, not a response */
    double model_ready; /* seconds on the clock of ht_now_seconds */
    serve_ids prompt;   /* of a completion that gives its context back */
    bool gives_context;
} serve_ollama;

/* The call's generation with its `extra`, and what chats and completions have in common read into it: options, format, thinking, stream,
 * log-probabilities. */
serve_generation *serve_ollama_generation(serve_call *c, bool chat, serve_conversation *k);
/* Submits it, and has the model go afterwards when the request says so. */
bool serve_ollama_start(serve_generation *g);

/* What both have in their tables, and those of `options`. */
extern const serve_field serve_ollama_fields[], *const serve_ollama_options[];
#define SERVE_IS_DURATION                                                                                              \
    {                                                                                                                  \
        .types = SERVE_JSON_TEXT | SERVE_JSON_NUMBER,                                                                  \
        .pattern = "^[-+]?(([0-9]+[.]?[0-9]*|[.][0-9]+)(ns|us|\u00B5s|ms|s|m|h))*([0-9]+[.]?[0-9]*|[.][0-9]+)(ns|us|"  \
                   "\u00B5s|ms|s|m|h)?$"                                                                               \
    }
/* Whether the model is to go, in *unload. */
bool serve_ollama_read_keep_alive(const ht_json *body, bool *unload, serve_failure *f);
/* Whether a request asks for nothing but that; it needs no model then. */
bool serve_ollama_only_unloads(const ht_json *body);
/* Answers a request without messages or a prompt: its model has been loaded, or is to go. */
bool serve_ollama_answer_loaded(serve_call *c, bool chat);
/* The name of the call's model as the client wrote it. */
const char *serve_ollama_model_name(const serve_call *c);

/* ---- answers ---- */

extern const serve_dialect serve_ollama_dialect;

enum { SERVE_OLLAMA_TIME = 48 };
/* A time, or the present for 0 seconds, in the form of RFC 3339 with nanoseconds. */
void serve_ollama_time(int64_t seconds, char out[SERVE_OLLAMA_TIME]);
/* {"model": ..., "created_at": ..., "message": {...}, "done": ...}, or with a response. */
ht_json *serve_ollama_line(const serve_call *c, bool chat, const char *text, size_t n, bool done);
int64_t serve_ollama_nanoseconds(double seconds);

#endif
