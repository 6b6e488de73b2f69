/* hearth finetune: mistakes that are found before anything is loaded. */
#include "finetune.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- options ---- */

const char *finetune_mistake(const options *o, char sentence[96]) {
    static const char *const brought[] = {"rank", "alpha", "scale", "rslora", "targets", "layers", NULL};
    const tune_options *t = &o->tune;
    int64_t layers;
    if (!t->data) return "--data FILE.jsonl is needed";
    if (!o->out && !o->dry_run) return "--out DIR is needed, where the adapter goes";
    if (t->patience && !t->valid) return "--patience needs --valid";
    if (options_given(o, "scale") && t->scale == 0) return "--scale is 0: the adapter would change nothing";
    if (t->alpha == 0) return "--alpha is 0: the adapter would change nothing";
    if (!setup_layers(t->layers, &layers)) return "--layers must be `all` or a number of layers";
    for (int i = 0; t->init_adapter && brought[i]; i++) {
        if (!options_given(o, brought[i])) continue;
        snprintf(sentence, 96, "--init-adapter brings its rank, scale and targets: leave out --%s", brought[i]);
        return sentence;
    }
    return NULL;
}

/* ---- files ---- */

static ht_status check_input(const char *path, ht_error *err) {
    if (!path || access(path, R_OK) == 0) return HT_OK;
    return file_error(err, path, "read");
}

/* Whether fopen could write there, told without writing. */
static ht_status check_output(const char *path, ht_error *err) {
    struct stat st;
    const char *slash = strrchr(path, '/');
    if (stat(path, &st) == 0) {
        errno = EISDIR;
        return !S_ISDIR(st.st_mode) && access(path, W_OK) == 0 ? HT_OK : file_error(err, path, "written");
    }
    if (errno != ENOENT) return file_error(err, path, "written");
    char *parent = slash == path ? strdup("/") : slash ? strndup(path, (size_t)(slash - path)) : strdup(".");
    const ht_status status = parent && access(parent, W_OK | X_OK) == 0 ? HT_OK : file_error(err, path, "written");
    free(parent);
    return status;
}

static bool same_file(const char *a, const char *b) {
    struct stat x, y;
    if (!a || !b) return false;
    if (!strcmp(a, b)) return true;
    return stat(a, &x) == 0 && stat(b, &y) == 0 && S_ISREG(x.st_mode) && x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

ht_status finetune_check_files(const options *o, ht_error *err) {
    const tune_options *t = &o->tune;
    const struct {
        const char *option, *path;
    } input[] = {{"data", t->data}, {"valid", t->valid}, {"config", o->config}, {NULL, NULL}},
      output[] = {{"log", o->log}, {"plot", t->plot}};
    ht_status status = check_input(t->data, err);
    if (!status) status = check_input(t->valid, err);
    if (!status) status = check_input(t->init_adapter, err);
    for (int i = 0; i < 2 && !status; i++) {
        if (!output[i].path) continue;
        for (int k = 0; input[k].option; k++)
            if (same_file(output[i].path, input[k].path)) {
                snprintf(err->message, sizeof err->message, "--%s %.400s would overwrite the file of --%s",
                         output[i].option, output[i].path, input[k].option);
                return err->status = HT_ERR_ARGUMENT;
            }
        status = check_output(output[i].path, err);
    }
    if (!status && same_file(o->log, t->plot)) {
        snprintf(err->message, sizeof err->message, "--log and --plot name the same file, %.400s", o->log);
        status = err->status = HT_ERR_ARGUMENT;
    }
    return status;
}
