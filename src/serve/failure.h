/* Failures of requests: a status of HTTP with what clients of each dialect look at. */
#ifndef HT_SERVE_FAILURE_H
#define HT_SERVE_FAILURE_H

#include "formats/json.h"
#include "http/exchange.h"

#include <hearth/status.h>

#include <stdbool.h>

/* Whose format an endpoint has, which decides how its failures are written. */
typedef enum serve_dialect_name { SERVE_OPENAI, SERVE_ANTHROPIC, SERVE_OLLAMA } serve_dialect_name;

/* Zero-initialised: none. */
typedef struct serve_failure {
    int status;       /* of HTTP; 0: none */
    const char *code; /* OpenAI's word for some, a constant; NULL: none */
    const char *lack; /* Anthropic's for a field of what is not there, by which its clients do without; NULL: none */
    char param[128];  /* the member that is wrong; "": none in particular */
    char message[1024];
} serve_failure;

/* Fills in *f, and returns false, for `return serve_fail(...)`. The first failure stays. */
bool serve_fail(serve_failure *f, int status, const char *param, const char *format, ...) HT_PRINTF(4, 5);
bool serve_fail_memory(serve_failure *f);
/* The same of what a call of the library said about a request. */
bool serve_fail_as(serve_failure *f, ht_status status, const ht_error *err);

/* The failure in a dialect's form; NULL when memory ran out. `id` is the request's. */
ht_json *serve_failure_json(const serve_failure *f, serve_dialect_name dialect, const char *id);
/* Answers an exchange with it. */
void serve_failure_reply(http_exchange *x, const serve_failure *f, serve_dialect_name dialect);
/* Answers with a JSON text; takes the value, NULL for one that memory ran out for. */
void serve_reply_json(http_exchange *x, int status, ht_json *value, serve_dialect_name dialect);

#endif
