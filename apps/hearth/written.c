#include "written.h"

#include "fail.h"
#include "model_path.h"
#include "terminal.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static const char suffix[] = ".gguf";

/* Where the suffix begins; NULL: it has none. */
static const char *suffix_of(const char *path) {
    const size_t n = strlen(path), m = sizeof suffix - 1;
    return n >= m && !strcmp(path + n - m, suffix) ? path + n - m : NULL;
}

/* ---- before it is written ---- */

static bool is_empty(const char *path) {
    DIR *directory = opendir(path);
    int n = 0;
    while (directory && n < 3 && readdir(directory)) n++; /* "." and ".." */
    if (directory) closedir(directory);
    return directory && n < 3;
}

static ht_status exists(const char *folder, const char *name, ht_error *err) {
    return fail_with(err, HT_ERR_ARGUMENT, "%.300s%.300s already exists; use --force to replace it, or another name",
                     folder, name);
}

ht_status output_check(const options *o, const char *path, ht_error *err) {
    struct stat st;
    if (o->force || stat(path, &st) != 0) return HT_OK;
    return S_ISREG(st.st_mode) || (S_ISDIR(st.st_mode) && !is_empty(path)) ? exists("", path, err) : HT_OK;
}

/* Where it is written first: a device or pipe is written to directly. */
static bool unfinished_path(const char *path, char out[PATH_MAX]) {
    struct stat st;
    const bool direct = stat(path, &st) == 0 && !S_ISREG(st.st_mode);
    return snprintf(out, PATH_MAX, "%s%s", path, direct ? "" : ".part") < PATH_MAX || (errno = ENAMETOOLONG, false);
}

static ht_status fail_to_write(const char *path, ht_error *err) {
    return fail_with(err, HT_ERR_IO, "%.400s cannot be written: %s", path, strerror(errno));
}

FILE *output_open(const char *path, ht_error *err) {
    char unfinished[PATH_MAX];
    FILE *f = unfinished_path(path, unfinished) ? fopen(unfinished, "w") : NULL;
    if (!f) fail_to_write(path, err);
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
    fail_to_write(path, err);
    if (unfinished_path(path, unfinished) && strcmp(path, unfinished) != 0) remove(unfinished);
    return HT_ERR_IO;
}

/* Whether a file is a part of a checkpoint whose name without suffix has n bytes. */
static bool is_part(const char *file, const char *name, size_t n) {
    static const char form[] = "-00000-of-00000.gguf"; /* with any digits */
    if (strncmp(file, name, n) != 0 || strlen(file + n) != strlen(form)) return false;
    for (size_t i = 0; form[i]; i++)
        if (form[i] == '0' ? !isdigit((unsigned char)file[n + i]) : file[n + i] != form[i]) return false;
    return true;
}

/* Parts of a checkpoint of that name, however many. */
static ht_status check_parts(const options *o, const char *out, ht_error *err) {
    const char *end = suffix_of(out), *slash = strrchr(out, '/'), *name = slash ? slash + 1 : out;
    if (o->force || !end || end < name) return HT_OK;
    char *folder = slash ? strndup(out, (size_t)(name - out)) : strdup(".");
    if (!folder) return fail_memory(err, "the name of a directory");
    DIR *directory = opendir(folder);
    ht_status st = HT_OK;
    for (const struct dirent *entry; directory && !st && (entry = readdir(directory));)
        if (is_part(entry->d_name, name, (size_t)(end - name))) st = exists(slash ? folder : "", entry->d_name, err);
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
        return fail_with(err, HT_ERR_ARGUMENT,
                         "%.200s is the name of a model; use another name for the output, or ./%.200s", out, out);
    const bool is_model = !model_path(o->model, &model, &ignored) && is_same_file(model, out);
    free(model);
    if (is_model) return HT_OK;
    const ht_status st = output_check(o, out, err);
    return st ? st : check_parts(o, out, err);
}

/* ---- and afterwards ---- */

void written_path(const char *out, const ht_convert_report *r, char path[WRITTEN_PATH_SIZE]) {
    const char *end = suffix_of(out);
    struct stat st;
    if (end && r->n_files > 1 && !(stat(out, &st) == 0 && S_ISDIR(st.st_mode)))
        snprintf(path, WRITTEN_PATH_SIZE, "%.*s-00001-of-%05lld%s", (int)(end - out), out, (long long)r->n_files,
                 suffix);
    else
        snprintf(path, WRITTEN_PATH_SIZE, "%s", out);
}

void written_print(const char *out, const ht_convert_report *r) {
    char path[WRITTEN_PATH_SIZE];
    written_path(out, r, path);
    output_field("out", "%s", path);
    if (r->n_files > 1) output_field("files", "%lld", (long long)r->n_files);
    output_field("bytes", "%lld", (long long)r->bytes);
}
