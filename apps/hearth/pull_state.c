#define _GNU_SOURCE
#include "pull_state.h"

#include "fail.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

const char pull_state_name[] = ".hearth-pull.json";

enum { FORMAT = 1 };

static char *path_in(const char *directory, const char *name) {
    char *path;
    return asprintf(&path, "%s/%s", directory, name) < 0 ? NULL : path;
}

json_t *pull_state_read(const char *directory) {
    char *path = path_in(directory, pull_state_name);
    json_t *state = path ? json_load_file(path, JSON_REJECT_DUPLICATES, NULL) : NULL;
    const bool known = json_integer_value(json_object_get(state, "format")) == FORMAT &&
                       json_is_object(json_object_get(state, "files")) &&
                       json_is_object(json_object_get(state, "parts"));
    free(path);
    if (known) return state;
    json_decref(state);
    return json_pack("{si s{} s{}}", "format", FORMAT, "files", "parts");
}

ht_status pull_state_write(const char *directory, const json_t *state, ht_error *err) {
    char *path = path_in(directory, pull_state_name), *fresh = path_in(directory, ".hearth-pull.new");
    FILE *file = path && fresh ? fopen(fresh, "we") : NULL;
    ht_status st = HT_OK;
    if (!path || !fresh)
        st = fail_memory(err, "a path");
    else if (!file)
        st = fail_system(err, fresh, "written");
    else {
        bool good = json_dumpf(state, file, JSON_INDENT(1)) == 0 && fputc('\n', file) != EOF && fflush(file) == 0 &&
                    fsync(fileno(file)) == 0;
        good = (fclose(file) == 0) && good;
        if (!good || rename(fresh, path) != 0) st = fail_system(err, path, "written");
        if (st) unlink(fresh);
    }
    free(path);
    free(fresh);
    return st;
}

ht_status pull_state_set_source(json_t *state, const hub *h, const char *revision, ht_error *err) {
    const bool failed = json_object_set_new(state, "endpoint", json_string(h->settings->endpoint)) ||
                        json_object_set_new(state, "repo", json_string(h->repo)) ||
                        json_object_set_new(state, "revision", json_string(revision ? revision : "main")) ||
                        json_object_set_new(state, "commit", json_string(h->commit));
    return failed ? fail_memory(err, "a record of files") : HT_OK;
}

bool pull_state_is_of(const char *directory, const char *revision) {
    json_t *state = pull_state_read(directory);
    const char *asked = json_string_value(json_object_get(state, "revision")),
               *commit = json_string_value(json_object_get(state, "commit"));
    const bool is = (asked && strcmp(asked, revision) == 0) || (commit && strcmp(commit, revision) == 0);
    json_decref(state);
    return is;
}

/* Size and time of a file; false when it is not there. */
static bool look(const char *directory, const char *name, struct stat *out) {
    char *path = path_in(directory, name);
    const bool there = path && stat(path, out) == 0 && S_ISREG(out->st_mode);
    free(path);
    return there;
}

ht_status pull_state_add(json_t *state, const char *directory, const hub_file *f, ht_error *err) {
    struct stat s;
    if (!look(directory, f->path, &s))
        return fail_with(err, HT_ERR_IO, "%.300s in %.300s has been removed", f->path, directory);
    json_t *entry =
        json_pack("{ss sI sI}", "hash", f->hash, "size", (json_int_t)f->size, "time", (json_int_t)s.st_mtime);
    return json_object_set_new(json_object_get(state, "files"), f->path, entry) ? fail_memory(err, "a record of files")
                                                                                : HT_OK;
}

bool pull_state_has(const json_t *state, const char *directory, const hub_file *f) {
    struct stat s;
    const json_t *entry = json_object_get(json_object_get(state, "files"), f->path);
    const char *hash = json_string_value(json_object_get(entry, "hash"));
    return hash && strcmp(hash, f->hash) == 0 && look(directory, f->path, &s) && s.st_size == f->size &&
           json_integer_value(json_object_get(entry, "time")) == (json_int_t)s.st_mtime;
}

const char *pull_state_etag(const json_t *state, const hub_file *f) {
    const json_t *entry = json_object_get(json_object_get(state, "parts"), f->path);
    const char *hash = json_string_value(json_object_get(entry, "hash")),
               *etag = json_string_value(json_object_get(entry, "etag"));
    return hash && etag && strcmp(hash, f->hash) == 0 ? etag : NULL;
}

ht_status pull_state_set_etag(json_t *state, const hub_file *f, const char *etag, ht_error *err) {
    json_t *text = json_string(etag); /* NULL for one that is no UTF-8, which is none then */
    json_t *entry = json_pack("{ss so}", "hash", f->hash, "etag", text ? text : json_string(""));
    return json_object_set_new(json_object_get(state, "parts"), f->path, entry) ? fail_memory(err, "a record of files")
                                                                                : HT_OK;
}

void pull_state_drop_part(json_t *state, const char *path) { json_object_del(json_object_get(state, "parts"), path); }
