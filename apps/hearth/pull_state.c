#define _GNU_SOURCE
#include "pull_state.h"

#include "fail.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

const char pull_state_name[] = ".hearth-pull.json";

enum { FORMAT = 1, STATE_BYTES_MAX = 64 << 20 };

static char *path_in(const char *directory, const char *name) {
    char *path;
    return asprintf(&path, "%s/%s", directory, name) < 0 ? NULL : path;
}

ht_json *pull_state_read(const char *directory) {
    char *path = path_in(directory, pull_state_name);
    ht_json *state = NULL;
    if (path) (void)ht_json_read_as(path, STATE_BYTES_MAX, &(ht_json_options){0}, &state, NULL);
    const bool known = ht_json_integer_value(ht_json_object_get(state, "format")) == FORMAT &&
                       ht_json_is_object(ht_json_object_get(state, "files")) &&
                       ht_json_is_object(ht_json_object_get(state, "parts"));
    free(path);
    if (known) return state;
    ht_json_decref(state);
    return ht_json_pack("{si s{} s{}}", "format", FORMAT, "files", "parts");
}

ht_status pull_state_write(const char *directory, const ht_json *state, ht_error *err) {
    char *path = path_in(directory, pull_state_name), *fresh = path_in(directory, ".hearth-pull.new");
    FILE *file = path && fresh ? fopen(fresh, "we") : NULL;
    ht_status st = HT_OK;
    if (!path || !fresh)
        st = fail_memory(err, "a path");
    else if (!file)
        st = fail_system(err, fresh, "written");
    else {
        bool good = ht_json_dumpf(state, file, HT_JSON_INDENT(1)) == 0 && fputc('\n', file) != EOF &&
                    fflush(file) == 0 && fsync(fileno(file)) == 0;
        good = (fclose(file) == 0) && good;
        if (!good || rename(fresh, path) != 0) st = fail_system(err, path, "written");
        if (st) unlink(fresh);
    }
    free(path);
    free(fresh);
    return st;
}

ht_status pull_state_set_source(ht_json *state, const hub *h, const char *revision, ht_error *err) {
    const bool failed = ht_json_object_set_new(state, "endpoint", ht_json_string(h->settings->endpoint)) ||
                        ht_json_object_set_new(state, "repo", ht_json_string(h->repo)) ||
                        ht_json_object_set_new(state, "revision", ht_json_string(revision ? revision : "main")) ||
                        ht_json_object_set_new(state, "commit", ht_json_string(h->commit));
    return failed ? fail_memory(err, "a record of files") : HT_OK;
}

bool pull_state_is_of(const char *directory, const char *revision) {
    ht_json *state = pull_state_read(directory);
    const char *asked = ht_json_string_value(ht_json_object_get(state, "revision")),
               *commit = ht_json_string_value(ht_json_object_get(state, "commit"));
    const bool is = (asked && strcmp(asked, revision) == 0) || (commit && strcmp(commit, revision) == 0);
    ht_json_decref(state);
    return is;
}

/* Size and time of a file; false when it is not there. */
static bool look(const char *directory, const char *name, struct stat *out) {
    char *path = path_in(directory, name);
    const bool there = path && stat(path, out) == 0 && S_ISREG(out->st_mode);
    free(path);
    return there;
}

ht_status pull_state_add(ht_json *state, const char *directory, const hub_file *f, ht_error *err) {
    struct stat s;
    if (!look(directory, f->path, &s))
        return fail_with(err, HT_ERR_IO, "%.300s in %.300s has been removed", f->path, directory);
    ht_json *entry = ht_json_pack("{ss sI sI}", "hash", f->hash, "size", (int64_t)f->size, "time", (int64_t)s.st_mtime);
    return ht_json_object_set_new(ht_json_object_get(state, "files"), f->path, entry)
               ? fail_memory(err, "a record of files")
               : HT_OK;
}

bool pull_state_has(const ht_json *state, const char *directory, const hub_file *f) {
    struct stat s;
    const ht_json *entry = ht_json_object_get(ht_json_object_get(state, "files"), f->path);
    const char *hash = ht_json_string_value(ht_json_object_get(entry, "hash"));
    return hash && strcmp(hash, f->hash) == 0 && look(directory, f->path, &s) && s.st_size == f->size &&
           ht_json_integer_value(ht_json_object_get(entry, "time")) == (int64_t)s.st_mtime;
}

const char *pull_state_etag(const ht_json *state, const hub_file *f) {
    const ht_json *entry = ht_json_object_get(ht_json_object_get(state, "parts"), f->path);
    const char *hash = ht_json_string_value(ht_json_object_get(entry, "hash")),
               *etag = ht_json_string_value(ht_json_object_get(entry, "etag"));
    return hash && etag && strcmp(hash, f->hash) == 0 ? etag : NULL;
}

ht_status pull_state_set_etag(ht_json *state, const hub_file *f, const char *etag, ht_error *err) {
    ht_json *text = ht_json_string(etag); /* NULL for one that is no UTF-8, which is none then */
    ht_json *entry = ht_json_pack("{ss so}", "hash", f->hash, "etag", text ? text : ht_json_string(""));
    return ht_json_object_set_new(ht_json_object_get(state, "parts"), f->path, entry)
               ? fail_memory(err, "a record of files")
               : HT_OK;
}

void pull_state_drop_part(ht_json *state, const char *path) {
    ht_json_object_del(ht_json_object_get(state, "parts"), path);
}
