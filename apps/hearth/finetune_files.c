/* hearth finetune: OUT is the adapter; OUT.training holds the last adapter and the checkpoints. A checkpoint is the
 * trainer's values file and the command's state file. The state file is written first, so that a values file always
 * belongs to a complete checkpoint, even after a kill. */
#include "base/file.h"
#include "fail.h"
#include "finetune.h"
#include "json.h"
#include "terminal.h"
#include "tree.h"
#include "written.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

enum { STATE_BYTES_MAX = 256 << 20 };

static const char last_name[] = "last", prefix[] = "checkpoint-", values_suffix[] = ".safetensors",
                  state_suffix[] = ".json", temporary_suffix[] = ".tmp";

static ht_status no_memory(ht_error *err) { return fail_memory(err, "a file of the run"); }

/* ---- checkpoint names ---- */

static void name_checkpoint(int64_t iter, const char *suffix, char out[64]) {
    snprintf(out, 64, "%s%07lld%s", prefix, (long long)iter, suffix);
}

static char *checkpoint_path(const keeper *k, int64_t iter, const char *suffix) {
    char name[64];
    name_checkpoint(iter, suffix, name);
    return ht_path_join(k->folder, name);
}

/* The step in a name made by name_checkpoint; -1 for any other name. */
static int64_t iter_of(const char *name, const char *suffix) {
    char same[64];
    if (strncmp(name, prefix, sizeof prefix - 1) != 0) return -1;
    const long long iter = strtoll(name + sizeof prefix - 1, NULL, 10);
    name_checkpoint(iter, suffix, same);
    return iter >= 0 && !strcmp(name, same) ? iter : -1;
}

/* The step of the latest checkpoint after skipping `skip` later ones; -1: none. */
static int64_t latest(const keeper *k, int64_t skip) {
    int64_t below = INT64_MAX, best = 0;
    for (int64_t i = 0; i <= skip && best >= 0; i++) {
        DIR *folder = opendir(k->folder);
        if (!folder) return -1;
        best = -1;
        for (const struct dirent *entry; (entry = readdir(folder));) {
            const int64_t iter = iter_of(entry->d_name, values_suffix);
            if (iter < below && iter > best) best = iter;
        }
        closedir(folder);
        below = best;
    }
    return best;
}

/* ---- opening ---- */

static ht_status check_run(const keeper *k, ht_error *err) {
    const int64_t there = latest(k, 0);
    if (k->o->tune.resume == (there >= 0)) return HT_OK;
    if (there < 0)
        return ht_fail(err, HT_ERR_ARGUMENT, "%s holds no checkpoint to resume from; without --resume the run begins",
                       k->folder);
    return ht_fail(err, HT_ERR_ARGUMENT,
                   "%s holds a run of %lld step%s: --resume goes on with it, another --out begins a new one", k->folder,
                   (long long)there, plural(there));
}

static ht_status check_folder(const keeper *k, ht_error *err) {
    struct stat st;
    if (stat(k->folder, &st) != 0) return errno == ENOENT ? HT_OK : fail_system(err, k->folder, "written to");
    errno = ENOTDIR;
    if (!S_ISDIR(st.st_mode) || access(k->folder, R_OK | W_OK | X_OK) != 0)
        return fail_system(err, k->folder, "written to");
    char *last = ht_path_join(k->folder, last_name);
    if (!last) return no_memory(err);
    const ht_status status = ht_adapter_save_check(last, err);
    free(last);
    return status;
}

ht_status keeper_check(keeper *k, const options *o, ht_error *err) {
    *k = (keeper){.o = o,
                  .lock = -1,
                  .saved_iter = -1,
                  .evaluated_iter = -1,
                  .best_iter = -1,
                  .best_valid = (double)NAN,
                  .first_valid = (double)NAN};
    if (!o->out) return HT_OK;
    size_t n = strlen(o->out);
    while (n > 1 && o->out[n - 1] == '/') n--;
    if (asprintf(&k->folder, "%.*s.training", (int)n, o->out) < 0) {
        k->folder = NULL;
        return no_memory(err);
    }
    ht_status status = ht_adapter_save_check(o->out, err);
    if (!status) status = check_folder(k, err);
    if (!status) status = check_run(k, err);
    return status || o->tune.resume ? status : output_check(o, o->out, err);
}

/* Whether a name is a save's temporary file or directory, or a state file without its values file. */
static bool is_left_over(const keeper *k, const char *name) {
    const int64_t iter = iter_of(name, state_suffix);
    if (iter < 0) return strstr(name, temporary_suffix) && name[0] != '.';
    char values[64];
    name_checkpoint(iter, values_suffix, values);
    return faccessat(k->lock, values, F_OK, 0) != 0;
}

/* Removes partial files of a killed run. The lock on the folder excludes other writers. */
static void remove_left_over(const keeper *k) {
    DIR *folder = opendir(k->folder);
    if (!folder) return;
    for (const struct dirent *entry; (entry = readdir(folder));) {
        char *path = is_left_over(k, entry->d_name) ? ht_path_join(k->folder, entry->d_name) : NULL;
        if (path) (void)tree_remove(path);
        free(path);
    }
    closedir(folder);
}

static ht_adapter_format format_of(const options *o) { return o->tune.format ? HT_ADAPTER_MLX : HT_ADAPTER_PEFT; }

ht_status keeper_open(keeper *k, const ht_model *m, const ht_data_report *valid, ht_error *err) {
    k->model = m;
    if (k->o->out && ht_adapter_format_check(m, format_of(k->o), err)) return HT_ERR_UNSUPPORTED;
    if (valid)
        snprintf(k->valid, sizeof k->valid, "%016" PRIx64 "-%lld", valid->fingerprint,
                 (long long)k->o->tune.how.valid_batches);
    if (mkdir(k->folder, 0777) != 0 && errno != EEXIST) return fail_system(err, k->folder, "made");
    k->lock = open(k->folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (k->lock < 0) return fail_system(err, k->folder, "opened");
    if (flock(k->lock, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
        close(k->lock); /* keeper_close must not remove another run's folder */
        k->lock = -1;
        return ht_fail(err, HT_ERR_ARGUMENT, "%s is another run's, which has not ended", k->folder);
    }
    remove_left_over(k);
    return check_run(k, err);
}

void keeper_close(keeper *k) {
    if (k->lock >= 0) {
        (void)rmdir(k->folder); /* removes only an empty folder */
        close(k->lock);
    }
    free(k->folder);
}

/* ---- state file ---- */

static ht_json *describe(const keeper *k, const reporter *r) {
    return ht_json_pack("{ss sI sI so sI so so}", "valid", k->valid, "evaluated_iter", (int64_t)k->evaluated_iter,
                        "best_iter", (int64_t)k->best_iter, "best_valid_loss", json_number(k->best_valid), "since_best",
                        (int64_t)k->since_best, "first_valid_loss", json_number(k->first_valid), "curves",
                        reporter_curves(r));
}

static ht_status save_state(const keeper *k, int64_t iter, const reporter *r, ht_error *err) {
    ht_json *state = describe(k, r);
    char *path = checkpoint_path(k, iter, state_suffix);
    const ht_status status =
        state && path ? json_write(path, state, HT_JSON_REAL_PRECISION(17), false, err) : no_memory(err);
    ht_json_decref(state);
    free(path);
    return status;
}

static double number_or_nan(const ht_json *x) { return ht_json_is_number(x) ? ht_json_number_value(x) : (double)NAN; }

static ht_status damaged(const char *path, const char *why, ht_error *err) {
    const ht_error reason = *err;
    return ht_fail(err, HT_ERR_FORMAT,
                   "%.300s is damaged: %.300s; without that file the run goes on, and the best adapter is chosen again",
                   path, why ? why : reason.message);
}

/* The state of the best adapter is valid only for the same held-out samples. */
static ht_status take_state(keeper *k, const char *path, ht_json *state, ht_json **curves, ht_error *err) {
    int64_t evaluated, best, since;
    const char *was;
    ht_json_reader r = {.file = path, .err = err};
    const bool whole = ht_json_str(&r, state, "valid", &was) && ht_json_i64(&r, state, "evaluated_iter", &evaluated) &&
                       ht_json_i64(&r, state, "best_iter", &best) && ht_json_i64(&r, state, "since_best", &since) &&
                       ht_json_object_get(state, "best_valid_loss") && ht_json_object_get(state, "first_valid_loss") &&
                       ht_json_object_get(state, "curves");
    if (!whole) return damaged(path, r.status ? NULL : "a member is missing", err);
    *curves = ht_json_incref(ht_json_object_get(state, "curves"));
    if (strcmp(was, k->valid) != 0) {
        if (*was && *k->valid)
            fprintf(stderr, "hearth: the held-out samples differ from before: the best adapter is chosen again\n");
        return HT_OK;
    }
    k->evaluated_iter = evaluated;
    k->best_iter = best;
    k->best_valid = number_or_nan(ht_json_object_get(state, "best_valid_loss"));
    k->since_best = since;
    k->first_valid = number_or_nan(ht_json_object_get(state, "first_valid_loss"));
    return HT_OK;
}

static ht_status load_state(keeper *k, int64_t iter, ht_json **curves, ht_error *err) {
    char *path = checkpoint_path(k, iter, state_suffix);
    if (!path) return no_memory(err);
    ht_status status = HT_OK;
    if (access(path, F_OK) == 0) {
        ht_json *state;
        status = ht_json_read(path, STATE_BYTES_MAX, &state, err);
        status = status ? damaged(path, NULL, err) : take_state(k, path, state, curves, err);
        ht_json_decref(state);
    }
    free(path);
    return status;
}

ht_status keeper_resume(keeper *k, ht_trainer *t, ht_json **curves, ht_error *err) {
    *curves = NULL;
    const int64_t iter = latest(k, 0);
    char *path = checkpoint_path(k, iter, values_suffix);
    if (!path) return no_memory(err);
    const ht_status status = ht_trainer_resume(t, path, err);
    const size_t n = strlen(err->message);
    if (status == HT_ERR_FORMAT && latest(k, 1) >= 0)
        snprintf(err->message + n, sizeof err->message - n, "; without that file the run goes on from step %lld",
                 (long long)latest(k, 1));
    free(path);
    if (!status) k->saved_iter = iter;
    return status ? status : load_state(k, iter, curves, err);
}

/* ---- saving ---- */

static ht_status put_adapter(const keeper *k, const ht_trainer *t, const char *path, ht_error *err) {
    ht_adapter *a;
    ht_status status = ht_trainer_adapter(t, &a, err);
    if (status) return status;
    status = ht_adapter_save(a, k->model, path, format_of(k->o), err);
    ht_adapter_free(a);
    return status;
}

ht_status keeper_put_adapter(keeper *k, const ht_trainer *t, ht_error *err) {
    return put_adapter(k, t, k->o->out, err);
}

static ht_status remove_checkpoint(const keeper *k, int64_t iter, ht_error *err) {
    char *values = checkpoint_path(k, iter, values_suffix), *state = checkpoint_path(k, iter, state_suffix);
    ht_status status = values && state ? HT_OK : no_memory(err);
    if (!status && unlink(values) != 0) status = fail_system(err, values, "removed");
    if (!status && unlink(state) != 0 && errno != ENOENT) status = fail_system(err, state, "removed");
    free(values);
    free(state);
    return status;
}

ht_status keeper_save(keeper *k, const ht_trainer *t, int64_t iter, const reporter *r, ht_error *err) {
    char *values = checkpoint_path(k, iter, values_suffix), *state = checkpoint_path(k, iter, state_suffix),
         *last = ht_path_join(k->folder, last_name);
    ht_status status = values && state && last ? HT_OK : no_memory(err);
    if (!status) status = save_state(k, iter, r, err);
    if (!status) {
        status = ht_trainer_save(t, values, err);
        if (!status)
            k->saved_iter = iter;
        else if (k->saved_iter != iter)
            (void)unlink(state);
    }
    if (!status) status = put_adapter(k, t, last, err);
    free(values);
    free(state);
    free(last);
    for (int64_t old; !status && (old = latest(k, k->o->tune.keep)) >= 0;) status = remove_checkpoint(k, old, err);
    return status;
}
