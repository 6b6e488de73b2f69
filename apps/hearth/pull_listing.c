/* Listings of a repository's files, as a hub writes them in JSON. */
#include "base/grow.h"
#include "fail.h"
#include "formats/json.h"
#include "pull_hub.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FILES_MAX = 200000 };

static bool is_hex(const char *s, size_t n) { return strspn(s, "0123456789abcdef") == n && s[n] == '\0'; }

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

/* A path that stays below the directory it is put in, on any system. */
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
        return fail_with(err, HT_ERR_FORMAT, "%.200s: the hub lists an entry that is no file and no directory", repo);
    if (!is_safe_path(path))
        return fail_with(
            err, HT_ERR_FORMAT,
            "%.200s: the hub lists a file named \"%.200s\", which no file may be named; nothing was fetched", repo,
            path);
    if (type && strcmp(type, "directory") == 0) return HT_OK;
    if (!ht_json_is_integer(size) || ht_json_integer_value(size) < 0)
        return fail_with(err, HT_ERR_FORMAT, "%.200s: the hub lists %.200s without its size", repo, path);
    if (l->n == FILES_MAX)
        return fail_with(err, HT_ERR_LIMIT, "%.200s: the hub lists more than %d files", repo, FILES_MAX);
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
            return fail_with(err, HT_ERR_FORMAT, "%.200s: the hub lists %.200s twice", repo, l->file[i].path);
    return HT_OK;
}

ht_status hub_listing_add(hub_listing *l, const char *repo, const char *text, size_t n, ht_error *err) {
    ht_error why = {0};
    const ht_json *entry;
    size_t i;
    ht_json *root;
    const ht_json_options json = {.name = "the hub's listing", .any_value = true};
    ht_status st = ht_json_load(text, n, &json, &root, &why);
    if (st)
        st = fail_with(err, st, "%.200s: %.400s", repo, why.message);
    else if (!ht_json_is_array(root))
        st = fail_with(err, HT_ERR_FORMAT, "%.200s: the hub's listing is no list of files", repo);
    ht_json_array_foreach(root, i, entry) if (!st) st = add_entry(l, repo, entry, err);
    ht_json_decref(root);
    return st;
}
