#include "written.h"

#include "fail.h"
#include "model_path.h"
#include "pull_name.h"
#include "terminal.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static bool is_empty(const char *path) {
    DIR *directory = opendir(path);
    int n = 0;
    while (directory && n < 3 && readdir(directory)) n++; /* "." and ".." */
    if (directory) closedir(directory);
    return directory && n < 3;
}

static ht_status exists(const char *folder, const char *name, ht_error *err) {
    return ht_fail(err, HT_ERR_ARGUMENT, "%.300s%.300s already exists; use --force to replace it, or another name",
                   folder, name);
}

ht_status output_check(const options *o, const char *path, ht_error *err) {
    struct stat st;
    if (o->force || stat(path, &st) != 0) return HT_OK;
    return S_ISREG(st.st_mode) || (S_ISDIR(st.st_mode) && !is_empty(path)) ? exists("", path, err) : HT_OK;
}

/* The temporary path; devices and pipes are written directly. */
static bool unfinished_path(const char *path, char out[PATH_MAX]) {
    struct stat st;
    const bool direct = stat(path, &st) == 0 && !S_ISREG(st.st_mode);
    return snprintf(out, PATH_MAX, "%s%s", path, direct ? "" : ".part") < PATH_MAX || (errno = ENAMETOOLONG, false);
}

FILE *output_open(const char *path, ht_error *err) {
    char unfinished[PATH_MAX];
    FILE *f = unfinished_path(path, unfinished) ? fopen(unfinished, "w") : NULL;
    if (!f) fail_system(err, path, "written");
    return f;
}

ht_status output_close(FILE *f, const char *path, ht_error *err) {
    char unfinished[PATH_MAX];
    const bool written = fflush(f) == 0 && !ferror(f);
    const int why = errno;
    if (fclose(f) == 0 && written && unfinished_path(path, unfinished) &&
        (!strcmp(path, unfinished) || rename(unfinished, path) == 0))
        return HT_OK;
    if (!written) errno = why;
    fail_system(err, path, "written");
    if (unfinished_path(path, unfinished) && strcmp(path, unfinished) != 0) remove(unfinished);
    return HT_ERR_IO;
}

/* Whether a file is a part of the split checkpoint `name`, whose length without suffix is n. */
static bool is_part(const char *file, const char *name, size_t n) {
    size_t prefix;
    gguf_parts(file, &prefix);
    return prefix == n && prefix < strlen(file) && strncmp(file, name, n) == 0;
}

/* Rejects existing parts of a split checkpoint with this name, whatever their number. */
static ht_status check_parts(const options *o, const char *out, ht_error *err) {
    static const char suffix[] = ".gguf";
    const char *slash = strrchr(out, '/'), *name = slash ? slash + 1 : out;
    if (o->force || !ht_ends_with(name, suffix)) return HT_OK;
    char *folder = slash ? strndup(out, (size_t)(name - out)) : strdup(".");
    if (!folder) return fail_memory(err, "the name of a directory");
    DIR *directory = opendir(folder);
    ht_status st = HT_OK;
    for (const struct dirent *entry; directory && !st && (entry = readdir(directory));)
        if (is_part(entry->d_name, name, strlen(name) - strlen(suffix)))
            st = exists(slash ? folder : "", entry->d_name, err);
    if (directory) closedir(directory);
    free(folder);
    return st;
}

static bool is_same_file(const char *a, const char *b) {
    struct stat x, y;
    return stat(a, &x) == 0 && stat(b, &y) == 0 && x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

ht_status checkpoint_output_check(const options *o, ht_error *err) {
    const char *out = o->arguments.items[0];
    char *cached = NULL, *model = NULL;
    ht_error ignored = {0};
    if (*out != '/' && *out != '.') (void)model_in_cache(out, &cached, &ignored);
    const bool is_name = cached || !strcmp(out, "default");
    free(cached);
    if (is_name)
        return ht_fail(err, HT_ERR_ARGUMENT,
                       "%.200s is the name of a model; use another name for the output, or ./%.200s", out, out);
    const bool is_model = !model_path(o->model, &model, &ignored) && is_same_file(model, out);
    free(model);
    if (is_model) return HT_OK;
    const ht_status st = output_check(o, out, err);
    return st ? st : check_parts(o, out, err);
}
