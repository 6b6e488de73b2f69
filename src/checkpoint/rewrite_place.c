/* The place of a rewritten checkpoint: apart from the one that is read, and only over what was written here. */
#define _GNU_SOURCE
#include "base/error.h"
#include "base/text.h"
#include "checkpoint/rewrite.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* The absolute path of what exists, or of a new name in a directory that does; the caller frees *out. */
static ht_status resolve(const char *path, char **out, ht_error *err) {
    *out = realpath(path, NULL);
    if (*out) return HT_OK;
    size_t n = strlen(path);
    while (n > 1 && path[n - 1] == '/') n--;
    size_t at = n;
    while (at && path[at - 1] != '/') at--;
    char *parent = at ? strndup(path, at) : strdup("."), *name = strndup(path + at, n - at);
    char *real = parent && name ? realpath(parent, NULL) : NULL;
    const int code = parent && name ? errno : ENOMEM;
    if (real) *out = ht_path_join(real, name);
    free(real);
    free(parent);
    free(name);
    if (*out) return HT_OK;
    return ht_fail(err, code == ENOMEM ? HT_ERR_MEMORY : HT_ERR_IO, "%s: cannot be written: %s", path, strerror(code));
}

static bool is_within(const char *path, const char *directory) {
    const size_t n = strlen(directory);
    return !strncmp(path, directory, n) && (path[n] == '\0' || path[n] == '/');
}

static bool is_same_file(const char *a, const char *b) {
    struct stat x, y;
    return stat(a, &x) == 0 && stat(b, &y) == 0 && x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

/* Refuses to write over the checkpoint or into it. */
static ht_status check_apart(const ht_checkpoint_files *c, const char *model_path, const char *out_path,
                             ht_error *err) {
    char *model = NULL, *out = NULL;
    ht_status status = resolve(model_path, &model, err);
    if (!status) status = resolve(out_path, &out, err);
    bool same = !status && is_within(out, model);
    for (int i = 0; !status && c->gguf && ht_path_exists(out_path) && i < ht_gguf_set_n_parts(c->parts); i++)
        same = same || is_same_file(out_path, ht_gguf_set_part(c->parts, i)->path);
    free(model);
    free(out);
    if (!same) return status;
    return ht_fail(err, HT_ERR_ARGUMENT, "%s: is the checkpoint that is read, or inside of it; take another place",
                   out_path);
}

static bool is_empty(const char *path) {
    DIR *directory = opendir(path);
    int n = 0;
    if (!directory) return false;
    while (n < 3 && readdir(directory)) n++; /* "." and ".." */
    closedir(directory);
    return n < 3;
}

static const char *const marks[] = {HT_REWRITE_FUSED, HT_REWRITE_QUANTIZED, HT_REWRITE_CONVERTED};
enum { N_MARKS = sizeof marks / sizeof *marks };

/* What cannot be read is not ours. */
static ht_status not_ours(ht_status why, const ht_error *message, ht_error *err) {
    return why == HT_ERR_MEMORY ? ht_fail(err, why, "%s", message->message) : HT_OK;
}

static ht_status find_mark(const char *path, bool *found, ht_error *err) {
    ht_checkpoint_files *c;
    ht_error why = {0};
    *found = false;
    ht_status status = ht_checkpoint_open(path, &c, &why);
    if (status) return not_ours(status, &why, err);
    for (int i = 0; i < N_MARKS && !*found; i++)
        *found =
            c->gguf ? ht_gguf_find(c->gguf, marks[i]) != NULL : ht_safetensors_metadata(c->tensors, marks[i]) != NULL;
    ht_checkpoint_close(c);
    return HT_OK;
}

/* That of one part alone, as the others need not be there. */
static ht_status find_part_mark(const char *path, bool *found, ht_error *err) {
    ht_file *file = NULL;
    ht_gguf *gguf = NULL;
    ht_error why = {0};
    *found = false;
    ht_status status = ht_file_open(path, &file, &why);
    if (!status) status = ht_gguf_read(file, path, &gguf, &why);
    for (int i = 0; !status && i < N_MARKS && !*found; i++) *found = ht_gguf_find(gguf, marks[i]) != NULL;
    ht_gguf_free(gguf);
    ht_file_close(file);
    return status ? not_ours(status, &why, err) : HT_OK;
}

static ht_status not_replaced(const char *path, ht_error *err) {
    return ht_fail(err, HT_ERR_ARGUMENT,
                   "%s: is not replaced, as it is neither a fused nor a quantised checkpoint of Hearth's, nor a "
                   "converted one; remove it, or take another name",
                   path);
}

/* Nobody's files are lost: only what was written here is replaced. */
static ht_status check_target(const char *path, bool is_directory, ht_error *err) {
    if (!*path) return ht_fail(err, HT_ERR_ARGUMENT, "the name of the checkpoint to write is empty");
    if (ht_path_exists(path) && ht_path_is_directory(path) != is_directory)
        return ht_fail(err, HT_ERR_ARGUMENT, "%s: is %s, and what is written is %s", path,
                       is_directory ? "a file" : "a directory", is_directory ? "a directory" : "a file");
    if (!is_directory && !ht_ends_with(path, ".gguf")) /* such as `default`, a model's name in place of a file's */
        return ht_fail(err, HT_ERR_ARGUMENT, "%s: the name of a GGUF file must end with .gguf; use %s.gguf", path,
                       path);
    if (!ht_path_exists(path) || (is_directory && is_empty(path))) return HT_OK;
    bool ours;
    ht_status status = find_mark(path, &ours, err);
    return status || ours ? status : not_replaced(path, err);
}

/* Parts are beside each other; what else has the name of the checkpoint is left alone. */
static ht_status check_part(const ht_rewrite_plan *plan, int part, const char *model_path, ht_error *err) {
    const size_t n = strlen(plan->out_path) - strlen(".gguf");
    char *path = ht_gguf_part_path(plan->out_path, n, part + 1, plan->n_files);
    bool ours = true;
    ht_status status = path ? HT_OK : ht_fail_memory(err, n, "a path");
    if (!status && ht_path_exists(path)) status = find_part_mark(path, &ours, err);
    if (!status && !ours) status = not_replaced(path, err);
    if (!status) status = check_apart(plan->c, model_path, path, err);
    free(path);
    return status;
}

ht_status ht_rewrite_check_place(const ht_rewrite_plan *plan, const char *model_path, ht_error *err) {
    ht_status status = HT_OK;
    if (plan->is_directory || plan->n_files < 2) {
        status = check_target(plan->out_path, plan->is_directory, err);
        return status ? status : check_apart(plan->c, model_path, plan->out_path, err);
    }
    for (int i = 0; !status && i < plan->n_files; i++) status = check_part(plan, i, model_path, err);
    return status;
}
