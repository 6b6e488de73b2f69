#include "serve/failure.h"

#include "base/text.h"
#include "serve/fields.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool serve_fail(serve_failure *f, int status, const char *param, const char *format, ...) {
    if (f->status) return false;
    va_list args;
    va_start(args, format);
    vsnprintf(f->message, sizeof f->message, format, args);
    va_end(args);
    ht_utf8_trim(f->message);
    snprintf(f->param, sizeof f->param, "%s", param ? param : "");
    ht_utf8_trim(f->param);
    f->status = status;
    return false;
}

bool serve_fail_memory(serve_failure *f) {
    return serve_fail(f, 503, NULL, "the server is out of memory; try again later");
}

static int http_status(ht_status status) {
    switch (status) {
    case HT_OK: return 200;
    case HT_ERR_ARGUMENT:
    case HT_ERR_FORMAT:
    case HT_ERR_UNSUPPORTED:
    case HT_ERR_LIMIT: return 400;
    case HT_ERR_MEMORY:
    case HT_ERR_BUSY:
    case HT_ERR_CANCELLED: return 503;
    case HT_ERR_IO:
    case HT_ERR_INTERNAL:
    case HT_ERR_INDEX: break;
    }
    return 500;
}

bool serve_fail_as(serve_failure *f, ht_status status, const ht_error *err) {
    if (!f->status && status == HT_ERR_LIMIT) f->code = "context_length_exceeded";
    return serve_fail(f, http_status(status), NULL, "%s", err->message);
}

/* ---- dialects ---- */

/* Error types of OpenAI and Anthropic by status. */
static const struct error_type {
    int status;
    const char *openai, *anthropic;
} types[] = {{401, "authentication_error", "authentication_error"},
             {403, "permission_error", "permission_error"},
             {404, "not_found_error", "not_found_error"},
             {413, "invalid_request_error", "request_too_large"},
             {503, "unavailable_error", "api_error"},
             {504, "server_error", "timeout_error"},
             {529, "server_error", "overloaded_error"}};

static struct error_type type_of(int status) {
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (types[i].status == status) return types[i];
    return status < 500 ? (struct error_type){status, "invalid_request_error", "invalid_request_error"}
                        : (struct error_type){status, "server_error", "api_error"};
}

/* Anthropic's clients expect the status 529 for overload. */
static int status_in(const serve_failure *f, serve_dialect_name dialect) {
    return dialect == SERVE_ANTHROPIC && f->status == 503 ? 529 : f->status;
}

ht_json *serve_failure_json(const serve_failure *f, serve_dialect_name dialect, const char *id) {
    const int status = status_in(f, dialect);
    if (dialect == SERVE_OLLAMA) return ht_json_pack("{ss}", "error", f->message);
    if (dialect == SERVE_ANTHROPIC)
        return ht_json_pack("{ss s{ss ss so*} ss}", "type", "error", "error", "type", type_of(status).anthropic,
                            "message", f->message, "details",
                            f->lack ? ht_json_pack("{ss s[s]}", "error_code", f->lack, "unsupported", f->param) : NULL,
                            "request_id", id);
    return ht_json_pack("{s{ss ss ss? ss?}}", "error", "message", f->message, "type", type_of(status).openai, "param",
                        *f->param ? f->param : NULL, "code", f->code);
}

void serve_reply_json(http_exchange *x, int status, ht_json *value, serve_dialect_name dialect) {
    char *text = value ? ht_json_dump(value, HT_JSON_COMPACT) : NULL;
    ht_json_decref(value);
    if (text) {
        (void)http_reply(x, status, "application/json", text, strlen(text));
    } else {
        static const char *const sorry[] = {
            [SERVE_OPENAI] = "{\"error\":{\"message\":\"the server is out of memory; try again later\",\"type\":"
                             "\"unavailable_error\",\"param\":null,\"code\":null}}",
            [SERVE_ANTHROPIC] = "{\"type\":\"error\",\"error\":{\"type\":\"api_error\",\"message\":\"the server has no "
                                "memory for this now\"}}",
            [SERVE_OLLAMA] = "{\"error\":\"the server is out of memory; try again later\"}"};
        (void)http_reply(x, 503, "application/json", sorry[dialect], strlen(sorry[dialect]));
    }
    free(text);
}

void serve_failure_reply(http_exchange *x, const serve_failure *f, serve_dialect_name dialect) {
    const int status = status_in(f, dialect);
    if (f->status == 503) (void)http_exchange_field(x, "Retry-After", "1");
    serve_reply_json(x, status, serve_failure_json(f, dialect, http_exchange_request(x)->id), dialect);
}
