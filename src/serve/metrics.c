/* Server metrics, and endpoints for operators: health, metrics, version. */
#include "serve/metrics.h"

#include "serve/endpoints.h"

#include <hearth/version.h>

static const double bounds[SERVE_BUCKETS] = {0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5,
                                             1,     2,     5,     10,   20,   50,   100, 200, 500};

void serve_histogram_add(serve_histogram *h, double seconds) {
    int i = 0;
    while (i < SERVE_BUCKETS && seconds > bounds[i]) i++;
    atomic_fetch_add_explicit(&h->bucket[i], 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&h->nanoseconds, (long long)(seconds * 1e9), memory_order_relaxed);
}

static void head(ht_text *out, const char *name, const char *kind, const char *help) {
    ht_text_printf(out, "# HELP hearth_%s %s\n# TYPE hearth_%s %s\n", name, help, name, kind);
}

static void counter(ht_text *out, const char *name, long long value, const char *help) {
    head(out, name, "counter", help);
    ht_text_printf(out, "hearth_%s %lld\n", name, value);
}

static void gauge(ht_text *out, const char *name, double value, const char *help) {
    head(out, name, "gauge", help);
    ht_text_printf(out, "hearth_%s %.17g\n", name, value);
}

static void histogram(ht_text *out, const char *name, serve_histogram *h, const char *help) {
    long long sum = 0;
    head(out, name, "histogram", help);
    for (int i = 0; i < SERVE_BUCKETS; i++) {
        sum += atomic_load_explicit(&h->bucket[i], memory_order_relaxed);
        ht_text_printf(out, "hearth_%s_bucket{le=\"%g\"} %lld\n", name, bounds[i], sum);
    }
    sum += atomic_load_explicit(&h->bucket[SERVE_BUCKETS], memory_order_relaxed);
    ht_text_printf(out, "hearth_%s_bucket{le=\"+Inf\"} %lld\nhearth_%s_sum %.9f\nhearth_%s_count %lld\n", name, sum,
                   name, (double)atomic_load_explicit(&h->nanoseconds, memory_order_relaxed) * 1e-9, name, sum);
}

static void requests(ht_text *out, serve_metrics *m) {
    head(out, "requests_total", "counter", "Finished requests by status class; 0: the client disconnected.");
    for (int i = 0; i < 6; i++)
        ht_text_printf(out, "hearth_requests_total{status=\"%d%s\"} %lld\n", i, i ? "xx" : "",
                       (long long)atomic_load_explicit(&m->requests[i], memory_order_relaxed));
    gauge(out, "requests_under_way", (double)atomic_load(&m->under_way), "Running requests.");
}

/* Appends all metrics, including those of the engines. */
static void write(serve_server *s, ht_text *out) {
    serve_metrics *m = &s->metrics;
    size_t n_loaded, bytes;
    const ht_engine_statistics e = serve_models_statistics(s->models, &n_loaded, &bytes);
    requests(out, m);
    gauge(out, "connections", (double)http_server_connections(s->http), "Open connections.");
    counter(out, "prompt_tokens_total", atomic_load(&m->prompt_tokens), "Prompt tokens, including cached ones.");
    counter(out, "cached_tokens_total", atomic_load(&m->cached_tokens), "Prompt tokens from the prefix cache.");
    counter(out, "generated_tokens_total", atomic_load(&m->generated_tokens), "Generated tokens.");
    counter(out, "cancelled_total", atomic_load(&m->cancelled), "Cancelled answers.");
    histogram(out, "first_token_seconds", &m->first_token, "Time to first token.");
    histogram(out, "token_seconds", &m->between_tokens, "Mean time between the tokens of an answer.");
    histogram(out, "request_seconds", &m->whole, "Time from the head of a request to the last byte of the response.");
    gauge(out, "answers_running", e.running, "Running answers.");
    gauge(out, "answers_waiting", e.waiting, "Queued answers.");
    gauge(out, "models_loaded", (double)n_loaded, "Models in memory.");
    gauge(out, "memory_bytes", (double)bytes, "Memory of loaded models: weights and KV cache.");
    gauge(out, "kv_bytes", (double)e.kv_bytes, "KV cache in use.");
    gauge(out, "kv_budget_bytes", (double)e.kv_budget, "KV cache limit.");
    gauge(out, "prefix_bytes", (double)e.prefix_bytes, "Prefix cache size.");
    gauge(out, "prefix_lookups", (double)e.prefix_lookups, "Prefix cache lookups of loaded models.");
    gauge(out, "prefix_hits", (double)e.prefix_hits, "Prefix cache hits of loaded models.");
    head(out, "info", "gauge", "Version of the program.");
    ht_text_printf(out, "hearth_info{version=\"%s\"} 1\n", ht_version());
}

/* ---- endpoints ---- */

bool serve_health(serve_call *c) {
    serve_server *s = c->server;
    if (atomic_load(&s->draining)) return serve_fail(&c->failure, 503, NULL, "The server is shutting down.");
    if (!serve_models_ready(s->models)) return serve_fail(&c->failure, 503, NULL, "Loading model");
    serve_reply_json(c->x, 200, ht_json_pack("{ss}", "status", "ok"), SERVE_OPENAI);
    return true;
}

bool serve_metrics_page(serve_call *c) {
    ht_text text = {0};
    write(c->server, &text);
    const bool good = !text.failed;
    if (good) (void)http_reply(c->x, 200, "text/plain; version=0.0.4; charset=utf-8", text.data, text.len);
    ht_text_discard(&text);
    return good ? true : serve_fail_memory(&c->failure);
}

bool serve_version(serve_call *c) {
    serve_reply_json(c->x, 200, ht_json_pack("{ss}", "version", ht_version()), SERVE_OLLAMA);
    return true;
}
