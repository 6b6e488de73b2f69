#include "serve/operations.h"

#include <hearth/version.h>

#include <string.h>
bool serve_health(serve_call *c) {
    serve_server *s = c->server;
    if (atomic_load(&s->draining)) return serve_fail(&c->failure, 503, NULL, "The server is shutting down.");
    if (!serve_models_ready(s->models)) return serve_fail(&c->failure, 503, NULL, "Loading model");
    serve_reply_json(c->x, 200, ht_json_pack("{ss}", "status", "ok"), SERVE_OPENAI);
    return true;
}

bool serve_metrics_page(serve_call *c) {
    ht_text text = {0};
    serve_metrics_write(c->server, &text);
    const bool good = !text.failed;
    if (good) (void)http_reply(c->x, 200, "text/plain; version=0.0.4; charset=utf-8", text.data, text.len);
    ht_text_discard(&text);
    return good ? true : serve_fail_memory(&c->failure);
}

bool serve_version(serve_call *c) {
    serve_reply_json(c->x, 200, ht_json_pack("{ss}", "version", ht_version()), SERVE_OLLAMA);
    return true;
}
