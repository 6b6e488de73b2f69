#include "pull_hub.h"

#include "base/grow.h"
#include "fail.h"
#include "formats/json.h"

#include <curl/curl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    TEXT_MAX = 64 << 20, /* bytes of one JSON response */
    PAGES_MAX = 1000,
    FILES_MAX = 200000
};

/* ---- texts ---- */

typedef struct answer_text {
    ht_text text;
    const char *what;
} answer_text;

static http_outcome add_bytes(const char *bytes, size_t n, void *user, ht_error *err) {
    answer_text *t = user;
    if (n > TEXT_MAX - t->text.len) {
        ht_fail(err, HT_ERR_LIMIT, "%.200s: the hub's response is longer than %d MB", t->what, TEXT_MAX >> 20);
        return HTTP_FAILED;
    }
    ht_text_append(&t->text, bytes, n);
    if (!t->text.failed) return HTTP_COMPLETE;
    fail_memory(err, "the hub's response");
    return HTTP_FAILED;
}

void hub_explain(const hub *h, const char *what, const http_answer *a, ht_error *err) {
    const char *with = h->settings->token ? "the token that was sent does not open it"
                                          : "set HF_TOKEN to a token of an account that may read it";
    if (a->redirected || err->status == HT_ERR_CANCELLED) return;
    if (strcmp(a->error_code, "RevisionNotFound") == 0 || strcmp(a->error_code, "EntryNotFound") == 0 ||
        a->status == 404)
        ht_fail(err, HT_ERR_ARGUMENT,
                "%.200s: the hub has none (status %ld%s%s); check the name, and the revision after @", what, a->status,
                *a->error_code ? ", " : "", a->error_code);
    else if (strcmp(a->error_code, "GatedRepo") == 0 || (a->status == 403 && !*a->error_code))
        ht_fail(err, HT_ERR_IO,
                "%.200s: the hub gives it to those alone who have accepted its terms: accept them at %.200s/%.200s, "
                "then %s",
                what, h->settings->endpoint, h->repo,
                h->settings->token ? "use a token that may read gated models"
                                   : "set HF_TOKEN to a token of that account");
    else if (a->status == 401 || a->status == 403)
        ht_fail(err, HT_ERR_IO,
                "%.200s: the hub does not let this reader have it (status %ld%s%.200s): it is private, gated or "
                "misspelt; %s",
                what, a->status, *a->error_message ? ": " : "", a->error_message, with);
}

/* Downloads a text with retries. *out is never NULL on success; the caller frees it. */
static ht_status get_text(const hub *h, const char *url, const char *what, char **out, size_t *n, http_answer *answer,
                          ht_error *err) {
    retry r = {.settings = h->settings, .show = h->show};
    answer_text t = {.what = what};
    const http_request request = {.url = url, .body = add_bytes, .user = &t};
    ht_status st = HT_OK;
    http_outcome outcome = HTTP_RETRY;
    *out = NULL;
    while (!st && outcome != HTTP_COMPLETE) {
        ht_error why = {0};
        ht_text_clear(&t.text);
        outcome = http_get(h->http, &request, answer, &why);
        if (outcome == HTTP_FAILED) {
            hub_explain(h, what, answer, &why);
            *err = why;
            st = why.status;
        } else if (outcome == HTTP_RETRY)
            st = retry_wait(&r, what, answer, &why, err);
    }
    ht_text_append_str(&t.text, "");
    *n = t.text.len;
    if (!st && !(*out = ht_text_take(&t.text))) st = fail_memory(err, "the hub's response");
    ht_text_discard(&t.text);
    return st;
}

static ht_status get_json(const hub *h, const char *url, const char *what, ht_json **out, ht_error *err) {
    const ht_json_options json = {.name = "the hub's response", .any_value = true};
    char *text;
    size_t n;
    http_answer answer;
    *out = NULL;
    ht_status st = get_text(h, url, what, &text, &n, &answer, err);
    if (st) return st;
    st = ht_json_load(text, n, &json, out, err);
    free(text);
    return st ? ht_fail_in(err, st, "%.200s", what) : HT_OK;
}

/* ---- URLs ---- */

/* Percent-encodes a text, except for slashes with `slashes`. NULL when memory ran out. */
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

ht_status hub_read_file(const hub *h, const hub_file *f, char **text, size_t *n, ht_error *err) {
    char *url = hub_file_address(h, f->path);
    http_answer answer;
    *text = NULL;
    const ht_status st = url ? get_text(h, url, f->path, text, n, &answer, err) : fail_memory(err, "an address");
    free(url);
    return st;
}

/* ---- the commit ---- */

static bool is_hex(const char *s, size_t n) { return strspn(s, "0123456789abcdef") == n && s[n] == '\0'; }

ht_status hub_find_commit(hub *h, const char *revision, ht_error *err) {
    char *name = escaped(revision ? revision : "main", false), *url = NULL, what[400];
    ht_json *root = NULL;
    snprintf(what, sizeof what, "%.190s%s%.190s", h->repo, revision ? "@" : "", revision ? revision : "");
    if (!name || asprintf(&url, "%s/api/models/%s/revision/%s", h->settings->endpoint, h->repo, name) < 0) url = NULL;
    ht_status st = url ? get_json(h, url, what, &root, err) : fail_memory(err, "an address");
    const char *sha = ht_json_string_value(ht_json_object_get(root, "sha"));
    if (!st && (!sha || (!is_hex(sha, 40) && !is_hex(sha, 64))))
        st = ht_fail(err, HT_ERR_FORMAT,
                     "%.200s: the hub's response names no commit, expected `sha`; is %.200s a hub of models?", what,
                     h->settings->endpoint);
    if (!st) snprintf(h->commit, sizeof h->commit, "%s", sha);
    ht_json_decref(root);
    free(url);
    free(name);
    return st;
}

/* ---- the listing ---- */

void hub_listing_free(hub_listing *l) {
    for (size_t i = 0; i < l->n; i++) free(l->file[i].path);
    free(l->file);
    *l = (hub_listing){0};
}

static int by_path(const void *a, const void *b) {
    return strcmp(((const hub_file *)a)->path, ((const hub_file *)b)->path);
}

const hub_file *hub_find(const hub_listing *l, const char *path) {
    const hub_file key = {.path = (char *)(uintptr_t)path};
    return l->n ? bsearch(&key, l->file, l->n, sizeof key, by_path) : NULL;
}

/* Whether a path stays below its directory on any operating system. */
static bool is_safe_path(const char *path) {
    const size_t n = strlen(path);
    if (n == 0 || n > 1000) return false;
    for (const unsigned char *c = (const unsigned char *)path; *c; c++)
        if (*c < 0x20 || *c == 0x7F || *c == '\\') return false;
    for (const char *at = path;; at++) {
        const size_t length = strcspn(at, "/");
        if (length == 0 || length > 200 || (length <= 2 && strspn(at, ".") >= length)) return false;
        at += length;
        if (*at == '\0') return true;
    }
}

static void read_hash(const ht_json *entry, hub_file *f) {
    const ht_json *lfs = ht_json_object_get(entry, "lfs");
    const char *sha256 = ht_json_string_value(ht_json_object_get(lfs, "oid")),
               *blob = ht_json_string_value(ht_json_object_get(entry, "oid"));
    if (sha256 && strncmp(sha256, "sha256:", 7) == 0) sha256 += 7;
    if (sha256 && is_hex(sha256, 64))
        snprintf(f->hash, sizeof f->hash, "sha256:%s", sha256);
    else if (!ht_json_is_object(lfs) && blob && (is_hex(blob, 40) || is_hex(blob, 64)))
        snprintf(f->hash, sizeof f->hash, "git:%s", blob);
}

static ht_status add_entry(hub_listing *l, const char *repo, const ht_json *entry, ht_error *err) {
    const char *type = ht_json_string_value(ht_json_object_get(entry, "type")),
               *path = ht_json_string_value(ht_json_object_get(entry, "path"));
    const ht_json *size = ht_json_object_get(ht_json_object_get(entry, "lfs"), "size");
    if (!size) size = ht_json_object_get(entry, "size");
    if (!path || (type && strcmp(type, "file") != 0 && strcmp(type, "directory") != 0))
        return ht_fail(err, HT_ERR_FORMAT, "%.200s: the hub lists an entry that is no file and no directory", repo);
    if (!is_safe_path(path))
        return ht_fail(err, HT_ERR_FORMAT,
                       "%.200s: the hub lists a file named \"%.200s\", which no file may be named; nothing was fetched",
                       repo, path);
    if (type && strcmp(type, "directory") == 0) return HT_OK;
    if (!ht_json_is_integer(size) || ht_json_integer_value(size) < 0)
        return ht_fail(err, HT_ERR_FORMAT, "%.200s: the hub lists %.200s without its size", repo, path);
    if (l->n == FILES_MAX)
        return ht_fail(err, HT_ERR_LIMIT, "%.200s: the hub lists more than %d files", repo, FILES_MAX);
    if (!HT_GROW_ONE(l->file, l->n)) return fail_memory(err, "the listing of files");
    hub_file *f = &l->file[l->n];
    *f = (hub_file){.path = strdup(path), .size = (int64_t)ht_json_integer_value(size)};
    if (!f->path) return fail_memory(err, "the listing of files");
    l->n++;
    read_hash(entry, f);
    return HT_OK;
}

ht_status hub_listing_finish(hub_listing *l, const char *repo, ht_error *err) {
    if (l->n) qsort(l->file, l->n, sizeof *l->file, by_path);
    for (size_t i = 1; i < l->n; i++)
        if (strcmp(l->file[i - 1].path, l->file[i].path) == 0)
            return ht_fail(err, HT_ERR_FORMAT, "%.200s: the hub lists %.200s twice", repo, l->file[i].path);
    return HT_OK;
}

ht_status hub_listing_add(hub_listing *l, const char *repo, const char *text, size_t n, ht_error *err) {
    const ht_json *entry;
    size_t i;
    ht_json *root;
    const ht_json_options json = {.name = "the hub's listing", .any_value = true};
    ht_status st = ht_json_load(text, n, &json, &root, err);
    if (st) return ht_fail_in(err, st, "%.200s", repo);
    if (!ht_json_is_array(root))
        st = ht_fail(err, HT_ERR_FORMAT, "%.200s: the hub's listing is no list of files", repo);
    ht_json_array_foreach(root, i, entry) if (!st) st = add_entry(l, repo, entry, err);
    ht_json_decref(root);
    return st;
}

static ht_status list_page(const hub *h, const char *url, hub_listing *out, http_answer *answer, ht_error *err) {
    char *text;
    size_t n;
    ht_status st = get_text(h, url, h->repo, &text, &n, answer, err);
    if (!st) st = hub_listing_add(out, h->repo, text, n, err);
    free(text);
    return st;
}

/* Resolves the next page's URL against this one; NULL when memory ran out or it is invalid. */
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
            st = ht_fail(err, HT_ERR_FORMAT, "%.200s: the listing goes on at an address that is none", h->repo);
        if (!st && next && page == PAGES_MAX)
            st = ht_fail(err, HT_ERR_LIMIT, "%.200s: the listing has more than %d pages", h->repo, PAGES_MAX);
        free(url);
        url = next;
    }
    free(url);
    if (!st) st = hub_listing_finish(out, h->repo, err);
    if (st) hub_listing_free(out);
    return st;
}
