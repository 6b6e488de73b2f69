#define _GNU_SOURCE
#include "pull_hub.h"

#include "base/grow.h"
#include "fail.h"
#include "formats/json.h"

#include <curl/curl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    TEXT_MAX = 64 << 20, /* bytes of one answer in JSON */
    PAGES_MAX = 1000
};

/* ---- texts ---- */

typedef struct answer_text {
    char *data;
    size_t n, capacity;
    const char *what;
} answer_text;

static http_outcome add_bytes(const char *bytes, size_t n, void *user, ht_error *err) {
    answer_text *t = user;
    if (n > TEXT_MAX - t->n) {
        fail_with(err, HT_ERR_LIMIT, "%.200s: the hub's response is longer than %d MB", t->what, TEXT_MAX >> 20);
        return HTTP_FAILED;
    }
    if (!HT_GROW(t->data, t->capacity, t->n + n)) {
        fail_memory(err, "the hub's response");
        return HTTP_FAILED;
    }
    memcpy(t->data + t->n, bytes, n);
    t->n += n;
    return HTTP_COMPLETE;
}

void hub_explain(const hub *h, const char *what, const http_answer *a, ht_error *err) {
    const char *with = h->settings->token ? "the token that was sent does not open it"
                                          : "set HF_TOKEN to a token of an account that may read it";
    if (a->redirected || err->status == HT_ERR_CANCELLED) return;
    if (strcmp(a->error_code, "RevisionNotFound") == 0 || strcmp(a->error_code, "EntryNotFound") == 0 ||
        a->status == 404)
        fail_with(err, HT_ERR_ARGUMENT,
                  "%.200s: the hub has none (status %ld%s%s); check the name, and the revision after @", what,
                  a->status, *a->error_code ? ", " : "", a->error_code);
    else if (strcmp(a->error_code, "GatedRepo") == 0 || (a->status == 403 && !*a->error_code))
        fail_with(err, HT_ERR_IO,
                  "%.200s: the hub gives it to those alone who have accepted its terms: accept them at %.200s/%.200s, "
                  "then %s",
                  what, h->settings->endpoint, h->repo,
                  h->settings->token ? "use a token that may read gated models"
                                     : "set HF_TOKEN to a token of that account");
    else if (a->status == 401 || a->status == 403)
        fail_with(err, HT_ERR_IO,
                  "%.200s: the hub does not let this reader have it (status %ld%s%.200s): it is private, gated or "
                  "misspelt; %s",
                  what, a->status, *a->error_message ? ": " : "", a->error_message, with);
}

/* A whole text, however many tries it takes. */
static ht_status get_text(const hub *h, const char *url, const char *what, answer_text *out, http_answer *answer,
                          ht_error *err) {
    retry r = {.settings = h->settings, .show = h->show};
    const http_request request = {.url = url, .body = add_bytes, .user = out};
    for (;;) {
        ht_error why = {0};
        out->n = 0;
        out->what = what;
        const http_outcome outcome = http_get(h->http, &request, answer, &why);
        if (outcome == HTTP_COMPLETE) return HT_OK;
        if (outcome == HTTP_FAILED) {
            hub_explain(h, what, answer, &why);
            *err = why;
            return why.status;
        }
        const ht_status st = retry_wait(&r, what, answer, &why, err);
        if (st) return st;
    }
}

static ht_status get_json(const hub *h, const char *url, const char *what, ht_json **out, http_answer *answer,
                          ht_error *err) {
    answer_text t = {0};
    ht_error why = {0};
    *out = NULL;
    ht_status st = get_text(h, url, what, &t, answer, err);
    if (!st) {
        const ht_json_options json = {.name = "the hub's response", .any_value = true};
        st = ht_json_load(t.data ? t.data : "", t.n, &json, out, &why);
        if (st) st = fail_with(err, st, "%.200s: %.400s", what, why.message);
    }
    free(t.data);
    return st;
}

/* ---- addresses ---- */

/* A text in the form that an address takes; with `slashes` these stay. NULL when memory ran out. */
static char *escaped(const char *from, bool slashes) {
    static const char digits[] = "0123456789ABCDEF", plain[] = "-._~";
    char *out = malloc(3 * strlen(from) + 1), *to = out;
    for (; out && *from; from++) {
        const unsigned char c = (unsigned char)*from;
        if ((c >= '0' && c <= '9') || ((c | 32) >= 'a' && (c | 32) <= 'z') || strchr(plain, c) || (slashes && c == '/'))
            *to++ = (char)c;
        else {
            *to++ = '%';
            *to++ = digits[c >> 4];
            *to++ = digits[c & 15];
        }
    }
    if (out) *to = '\0';
    return out;
}

char *hub_file_address(const hub *h, const char *path) {
    char *name = escaped(path, true), *url = NULL;
    if (name && asprintf(&url, "%s/%s/resolve/%s/%s", h->settings->endpoint, h->repo, h->commit, name) < 0) url = NULL;
    free(name);
    return url;
}

ht_status hub_read_file(const hub *h, const hub_file *f, char **text_out, size_t *n, ht_error *err) {
    char *url = hub_file_address(h, f->path);
    answer_text t = {0};
    http_answer answer;
    const ht_status st = url ? get_text(h, url, f->path, &t, &answer, err) : fail_memory(err, "an address");
    free(url);
    *text_out = st ? NULL : t.data;
    *n = st ? 0 : t.n;
    if (st) free(t.data);
    return st;
}

/* ---- the commit ---- */

static bool is_hex(const char *s, size_t n) { return strspn(s, "0123456789abcdef") == n && s[n] == '\0'; }

ht_status hub_find_commit(hub *h, const char *revision, ht_error *err) {
    char *name = escaped(revision ? revision : "main", false), *url = NULL, what[400];
    ht_json *root = NULL;
    http_answer answer;
    snprintf(what, sizeof what, "%.190s%s%.190s", h->repo, revision ? "@" : "", revision ? revision : "");
    if (!name || asprintf(&url, "%s/api/models/%s/revision/%s", h->settings->endpoint, h->repo, name) < 0) url = NULL;
    ht_status st = url ? get_json(h, url, what, &root, &answer, err) : fail_memory(err, "an address");
    const char *sha = ht_json_string_value(ht_json_object_get(root, "sha"));
    if (!st && (!sha || (!is_hex(sha, 40) && !is_hex(sha, 64))))
        st = fail_with(err, HT_ERR_FORMAT,
                       "%.200s: the hub's response names no commit, expected `sha`; is %.200s a hub of models?", what,
                       h->settings->endpoint);
    if (!st) snprintf(h->commit, sizeof h->commit, "%s", sha);
    ht_json_decref(root);
    free(url);
    free(name);
    return st;
}

/* ---- the listing ---- */

static ht_status list_page(const hub *h, const char *url, hub_listing *out, http_answer *answer, ht_error *err) {
    answer_text t = {0};
    ht_status st = get_text(h, url, h->repo, &t, answer, err);
    if (!st) st = hub_listing_add(out, h->repo, t.data ? t.data : "", t.n, err);
    free(t.data);
    return st;
}

/* The address of the next page, which may be relative to this one; NULL when memory ran out or it is none. */
static char *next_address(const char *url, const char *next) {
    CURLU *u = curl_url();
    char *text = NULL, *out = NULL;
    if (u && curl_url_set(u, CURLUPART_URL, url, 0) == CURLUE_OK &&
        curl_url_set(u, CURLUPART_URL, next, 0) == CURLUE_OK && curl_url_get(u, CURLUPART_URL, &text, 0) == CURLUE_OK)
        out = strdup(text);
    curl_free(text);
    curl_url_cleanup(u);
    return out;
}

ht_status hub_list(const hub *h, hub_listing *out, ht_error *err) {
    char *url = NULL;
    *out = (hub_listing){0};
    if (asprintf(&url, "%s/api/models/%s/tree/%s?recursive=true", h->settings->endpoint, h->repo, h->commit) < 0)
        return fail_memory(err, "an address");
    ht_status st = HT_OK;
    for (int page = 1; !st && url; page++) {
        http_answer answer;
        st = list_page(h, url, out, &answer, err);
        char *next = !st && *answer.next ? next_address(url, answer.next) : NULL;
        if (!st && *answer.next && !next)
            st = fail_with(err, HT_ERR_FORMAT, "%.200s: the listing goes on at an address that is none", h->repo);
        if (!st && next && page == PAGES_MAX)
            st = fail_with(err, HT_ERR_LIMIT, "%.200s: the listing has more than %d pages", h->repo, PAGES_MAX);
        free(url);
        url = next;
    }
    free(url);
    if (!st) st = hub_listing_finish(out, h->repo, err);
    if (st) hub_listing_free(out);
    return st;
}
