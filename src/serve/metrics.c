#include "serve/metrics.h"

#include "serve/call.h"

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
    head(out, "requests_total", "counter",
         "Requests that are over, by the class of their status; 0: the client had gone.");
    for (int i = 0; i < 6; i++)
        ht_text_printf(out, "hearth_requests_total{status=\"%d%s\"} %lld\n", i, i ? "xx" : "",
                       (long long)atomic_load_explicit(&m->requests[i], memory_order_relaxed));
    gauge(out, "requests_under_way", (double)atomic_load(&m->under_way), "Requests that are being answered.");
}

void serve_metrics_write(serve_server *s, ht_text *out) {
    serve_metrics *m = &s->metrics;
    size_t n_loaded, bytes;
    const ht_engine_statistics e = serve_models_statistics(s->models, &n_loaded, &bytes);
    requests(out, m);
    gauge(out, "connections", (double)http_server_connections(s->http), "Open connections.");
    counter(out, "prompt_tokens_total", atomic_load(&m->prompt_tokens), "Tokens of prompts, cached ones included.");
    counter(out, "cached_tokens_total", atomic_load(&m->cached_tokens), "Of these, tokens that need not be computed.");
    counter(out, "generated_tokens_total", atomic_load(&m->generated_tokens), "Tokens that were generated.");
    counter(out, "cancelled_total", atomic_load(&m->cancelled), "Answers that nobody waited for any more.");
    histogram(out, "first_token_seconds", &m->first_token, "From the request to the first token.");
    histogram(out, "token_seconds", &m->between_tokens, "From one token to the next, the mean of an answer.");
    histogram(out, "request_seconds", &m->whole, "From the head of a request to its last byte.");
    gauge(out, "answers_running", e.running, "Answers that are being computed.");
    gauge(out, "answers_waiting", e.waiting, "Answers that wait to be computed.");
    gauge(out, "models_loaded", (double)n_loaded, "Models in memory.");
    gauge(out, "memory_bytes", (double)bytes, "Bytes of their weights, keys and values.");
    gauge(out, "kv_bytes", (double)e.kv_bytes, "Bytes of keys and values in use.");
    gauge(out, "kv_budget_bytes", (double)e.kv_budget, "Bytes that they may take.");
    gauge(out, "prefix_bytes", (double)e.prefix_bytes, "Bytes that are kept for prompts that begin alike.");
    gauge(out, "prefix_lookups", (double)e.prefix_lookups, "Prompts that were looked up, of the models in memory.");
    gauge(out, "prefix_hits", (double)e.prefix_hits, "Of these, prompts whose beginning was there.");
    head(out, "info", "gauge", "Of the program.");
    ht_text_printf(out, "hearth_info{version=\"%s\"} 1\n", ht_version());
}
