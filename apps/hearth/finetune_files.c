/* hearth finetune: OUT, which is the adapter; and OUT.training with the last adapter, checkpoints and how far the run came. */
#include "finetune.h"
#include "json.h"
#include "terminal.h"

#include <dirent.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char state_name[] = "state.json", last_name[] = "last", prefix[] = "checkpoint-",
                  suffix[] = ".safetensors";

static ht_status cannot(ht_error *err, const char *path, const char *what) {
    snprintf(err->message, sizeof err->message, "%s cannot be %s: %s", path, what, strerror(errno));
    return err->status = HT_ERR_IO;
}

static ht_status no_memory(ht_error *err) {
    snprintf(err->message, sizeof err->message, "out of memory for a path");
    return err->status = HT_ERR_MEMORY;
}

/* folder/name; the caller frees it. */
static char *path_in(const keeper *k, const char *name) {
    const size_t size = strlen(k->folder) + strlen(name) + 2;
    char *path = malloc(size);
    if (path) snprintf(path, size, "%s/%s", k->folder, name);
    return path;
}

/* ---- checkpoints, by the steps they were saved after ---- */

static int64_t iter_of(const char *name) {
    char *end;
    if (strncmp(name, prefix, sizeof prefix - 1) != 0) return -1;
    const long long iter = strtoll(name + sizeof prefix - 1, &end, 10);
    return end == name + sizeof prefix - 1 || strcmp(end, suffix) != 0 ? -1 : iter;
}

static void name_checkpoint(int64_t iter, char out[64]) {
    snprintf(out, 64, "%s%07lld%s", prefix, (long long)iter, suffix);
}

/* The latest checkpoint but `skip` of them; -1: there is none. */
static int64_t latest(const keeper *k, int64_t skip) {
    int64_t below = INT64_MAX, best = -1;
    for (int64_t i = 0; i <= skip; i++) {
        DIR *folder = opendir(k->folder);
        if (!folder) return -1;
        best = -1;
        for (struct dirent *entry; (entry = readdir(folder));) {
            const int64_t iter = iter_of(entry->d_name);
            if (iter < below && iter > best) best = iter;
        }
        closedir(folder);
        below = best;
    }
    return best;
}

/* ---- opening ---- */

ht_status keeper_open(keeper *k, const options *o, const ht_model *m, ht_error *err) {
    *k = (keeper){.o = o, .model = m, .best_iter = -1, .best_valid = (double)NAN, .first_valid = (double)NAN};
    size_t n = strlen(o->out);
    while (n > 1 && o->out[n - 1] == '/') n--;
    k->folder = malloc(n + sizeof ".training");
    if (!k->folder) return no_memory(err);
    snprintf(k->folder, n + sizeof ".training", "%.*s.training", (int)n, o->out);
    if (mkdir(k->folder, 0777) != 0 && errno != EEXIST) return cannot(err, k->folder, "made");
    if (access(k->folder, R_OK | W_OK | X_OK) != 0) return cannot(err, k->folder, "written to");
    const int64_t there = latest(k, 0);
    if (o->tune.resume || there < 0) return HT_OK;
    snprintf(err->message, sizeof err->message,
             "%s holds a run of %lld steps: --resume goes on with it, another --out begins a new one", k->folder,
             (long long)there);
    return err->status = HT_ERR_ARGUMENT;
}

void keeper_close(keeper *k) { free(k->folder); }

/* ---- what the best adapter is ---- */

static json_t *number_or_null(double x) { return isfinite(x) ? json_real(x) : json_null(); }
static double number_or_nan(const json_t *x) { return json_is_number(x) ? json_number_value(x) : (double)NAN; }

static ht_status save_state(const keeper *k, ht_error *err) {
    char *path = path_in(k, state_name), *fresh = path_in(k, "state.json.tmp");
    json_t *state = json_pack("{sI so sI so}", "best_iter", (json_int_t)k->best_iter, "best_valid_loss",
                              number_or_null(k->best_valid), "since_best", (json_int_t)k->since_best,
                              "first_valid_loss", number_or_null(k->first_valid));
    ht_status st = path && fresh && state ? HT_OK : no_memory(err);
    if (!st && json_dump_file(state, fresh, JSON_REAL_PRECISION(17)) != 0) st = cannot(err, fresh, "written");
    if (!st && rename(fresh, path) != 0) st = cannot(err, path, "written");
    json_decref(state);
    free(path);
    free(fresh);
    return st;
}

static ht_status load_state(keeper *k, ht_error *err) {
    char *path = path_in(k, state_name);
    if (!path) return no_memory(err);
    json_error_t why;
    json_t *state = json_load_file(path, 0, &why);
    if (state) {
        k->best_iter = json_integer_value(json_object_get(state, "best_iter"));
        k->best_valid = number_or_nan(json_object_get(state, "best_valid_loss"));
        k->since_best = json_integer_value(json_object_get(state, "since_best"));
        k->first_valid = number_or_nan(json_object_get(state, "first_valid_loss"));
    } else {
        snprintf(err->message, sizeof err->message, "%s cannot be read: %s", path, why.text);
        err->status = HT_ERR_FORMAT;
    }
    json_decref(state);
    free(path);
    return state ? HT_OK : HT_ERR_FORMAT;
}

ht_status keeper_resume(keeper *k, ht_trainer *t, ht_error *err) {
    char name[64];
    const int64_t iter = latest(k, 0);
    if (iter < 0) {
        snprintf(err->message, sizeof err->message, "%s holds no checkpoint to resume from", k->folder);
        return err->status = HT_ERR_ARGUMENT;
    }
    name_checkpoint(iter, name);
    char *path = path_in(k, name);
    if (!path) return no_memory(err);
    ht_status st = ht_trainer_resume(t, path, err);
    free(path);
    return st ? st : load_state(k, err);
}

/* ---- saving ---- */

static ht_status put_adapter(const keeper *k, const ht_trainer *t, const char *path, ht_error *err) {
    ht_adapter *a;
    ht_status st = ht_trainer_adapter(t, &a, err);
    if (st) return st;
    st = ht_adapter_save(a, k->model, path, k->o->tune.format ? HT_ADAPTER_MLX : HT_ADAPTER_PEFT, err);
    ht_adapter_free(a);
    return st;
}

ht_status keeper_put_adapter(keeper *k, const ht_trainer *t, ht_error *err) {
    return put_adapter(k, t, k->o->out, err);
}

ht_status keeper_save(keeper *k, const ht_trainer *t, int64_t iter, ht_error *err) {
    char name[64];
    name_checkpoint(iter, name);
    char *path = path_in(k, name), *last = path_in(k, last_name);
    ht_status st = path && last ? HT_OK : no_memory(err);
    if (!st) st = save_state(k, err);
    if (!st) st = ht_trainer_save(t, path, err);
    if (!st) st = put_adapter(k, t, last, err);
    free(path);
    free(last);
    for (int64_t old; !st && (old = latest(k, k->o->tune.keep)) >= 0;) {
        name_checkpoint(old, name);
        char *gone = path_in(k, name);
        if (!gone || unlink(gone) != 0) st = gone ? cannot(err, gone, "removed") : no_memory(err);
        free(gone);
    }
    return st;
}
