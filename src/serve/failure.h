/* Failures of requests: an HTTP status and the error fields of each dialect. */
#ifndef HT_SERVE_FAILURE_H
#define HT_SERVE_FAILURE_H

#include "formats/json.h"
#include "http/exchange.h"

#include <hearth/status.h>

#include <stdbool.h>

/* Whose format an endpoint uses, also for its failures. */
typedef enum serve_dialect_name { SERVE_OPENAI, SERVE_ANTHROPIC, SERVE_OLLAMA } serve_dialect_name;

/* Zero-initialised: no failure. */
typedef struct serve_failure {
    int status;       /* HTTP status; 0: none */
    const char *code; /* OpenAI's error code, a constant; NULL: none */
    const char *lack; /* Anthropic's error code for an unsupported field, which clients then omit; NULL: none */
    char param[128];  /* the invalid field; "": none in particular */
    char message[1024];
} serve_failure;

/* Fills in *f unless it holds an earlier failure. Returns false, for `return serve_fail(...)`. */
bool serve_fail(serve_failure *f, int status, const char *param, const char *format, ...) HT_PRINTF(4, 5);
bool serve_fail_memory(serve_failure *f);
/* The same for an error that the library reported. */
bool serve_fail_as(serve_failure *f, ht_status status, const ht_error *err);

/* The failure in a dialect's format; NULL when memory ran out. `id` is the request's. */
ht_json *serve_failure_json(const serve_failure *f, serve_dialect_name dialect, const char *id);
void serve_failure_reply(http_exchange *x, const serve_failure *f, serve_dialect_name dialect);
/* Sends a value, which it consumes, as JSON; NULL, from a failed allocation, sends an out-of-memory error. */
void serve_reply_json(http_exchange *x, int status, ht_json *value, serve_dialect_name dialect);

#endif
