/* The response at "/": a chat page for browsers, or a short text for other clients. */
#include "base/base64.h"
#include "base/text.h"
#include "http/text.h"
#include "serve/endpoints.h"

#include <openssl/sha.h>
#include <string.h>

extern const char serve_page_html[]; /* made of page.html by cmake/embed.cmake */

/* ---- content negotiation ---- */

static size_t skip_space(const char *text, size_t at) {
    while (text[at] == ' ' || text[at] == '\t') at++;
    return at;
}

static bool same_bytes(const char *text, size_t n, const char *word) {
    if (strlen(word) != n) return false;
    for (size_t i = 0; i < n; i++)
        if (http_lower(text[i]) != word[i]) return false;
    return true;
}

/* Whether the parameters of a media type, n bytes, have the weight q=0, 0.0, 0.00 or 0.000. */
static bool weighs_nothing(const char *text, size_t n) {
    for (size_t at = 0; at < n; at++) {
        if (text[at] != ';') continue;
        at = skip_space(text, at + 1);
        if (at + 2 >= n || http_lower(text[at]) != 'q' || text[at + 1] != '=') continue;
        const size_t digits = strspn(text + at + 2, "0.");
        const char end = text[at + 2 + digits];
        return digits > 0 && (end == '\0' || strchr(" \t,;", end));
    }
    return false;
}

/* Whether an Accept header (RFC 9110, 12.5.1; NULL: none) names this type with a weight above zero. Wildcard ranges do
 * not count: programs that want no page send them. */
static bool accepts(const char *accept, const char *type) {
    for (const char *at = accept; at && *at;) {
        at += skip_space(at, 0);
        const size_t n = strcspn(at, ","), name = strcspn(at, ",; \t");
        if (same_bytes(at, name, type)) return !weighs_nothing(at + name, n - name);
        at += n;
        if (*at) at++;
    }
    return false;
}

/* ---- the page ---- */

/* Appends the hash that lets a policy allow the text between <tag> and </tag>. */
static void append_hash(ht_text *policy, const char *begin_tag, const char *end_tag) {
    unsigned char hash[SHA256_DIGEST_LENGTH];
    const char *begin = strstr(serve_page_html, begin_tag) + strlen(begin_tag);
    SHA256((const unsigned char *)begin, (size_t)(strstr(begin, end_tag) - begin), hash);
    ht_text_append_str(policy, " 'sha256-");
    ht_base64_encode(hash, sizeof hash, policy);
    ht_text_append_str(policy, "'");
}

/* The page runs only these styles and scripts, and connects only to this server: HTML injected by model output could
 * neither run nor send data. Trusted Types make the browser reject text that would become HTML. */
static void append_policy(ht_text *policy) {
    ht_text_append_str(policy, "default-src 'none'; script-src");
    append_hash(policy, "<script>", "</script>");
    ht_text_append_str(policy, "; style-src");
    append_hash(policy, "<style>", "</style>");
    ht_text_append_str(policy, "; connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; "
                               "frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'");
}

static bool send_page(serve_call *c) {
    ht_text policy = {0};
    append_policy(&policy);
    const bool good = !policy.failed && http_exchange_field(c->x, "Content-Security-Policy", policy.data) &&
                      http_exchange_field(c->x, "X-Content-Type-Options", "nosniff") &&
                      http_exchange_field(c->x, "Referrer-Policy", "no-referrer") &&
                      http_exchange_field(c->x, "Cache-Control", "no-cache");
    ht_text_discard(&policy);
    if (!good) return serve_fail_memory(&c->failure);
    (void)http_reply(c->x, 200, "text/html; charset=utf-8", serve_page_html, strlen(serve_page_html));
    return true;
}

bool serve_page(serve_call *c) {
    static const char ollama[] = "Ollama is running"; /* exact text that clients compare */
    (void)http_exchange_field(c->x, "Vary", "Accept");
    if (!c->server->o.no_page && accepts(http_head_value(&http_exchange_request(c->x)->head, "accept"), "text/html"))
        return send_page(c);
    (void)http_reply(c->x, 200, "text/plain; charset=utf-8", ollama, strlen(ollama));
    return true;
}
