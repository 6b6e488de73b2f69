/* Fusing (hearth/fuse.h): options and places are checked, then the plan is made and carried out. */
#define _GNU_SOURCE
#include "models/fuse.h"

#include "base/error.h"
#include "base/options.h"
#include "formats/affine.h"
#include "models/config.h"

#include <dirent.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static const ht_fuse_options defaults = {.size = sizeof defaults};

void ht_fuse_options_init(ht_fuse_options *options, size_t size) {
    ht_options_init(options, size, &defaults, sizeof defaults);
}

/* ---- places ---- */

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
    for (int i = 0; !status && c->gguf && i < ht_gguf_set_n_parts(c->parts); i++)
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

static ht_status find_mark(const char *path, bool *found, ht_error *err) {
    ht_checkpoint_files *c;
    ht_error why = {0};
    *found = false;
    ht_status status = ht_checkpoint_open(path, &c, &why);
    if (status) return status == HT_ERR_MEMORY ? ht_fail(err, status, "%s", why.message) : HT_OK;
    *found = c->gguf ? ht_gguf_find(c->gguf, HT_FUSE_MARK) != NULL
                     : ht_safetensors_metadata(c->tensors, HT_FUSE_MARK) != NULL;
    ht_checkpoint_close(c);
    return HT_OK;
}

/* Nobody's files are lost: only what this function wrote is replaced. */
static ht_status check_target(const char *path, bool is_directory, ht_error *err) {
    if (!*path) return ht_fail(err, HT_ERR_ARGUMENT, "the name of the checkpoint to write is empty");
    if (!ht_path_exists(path)) return HT_OK;
    if (ht_path_is_directory(path) != is_directory)
        return ht_fail(err, HT_ERR_ARGUMENT, "%s: is %s, and what is written is %s", path,
                       is_directory ? "a file" : "a directory", is_directory ? "a directory" : "a file");
    if (is_directory && is_empty(path)) return HT_OK;
    bool ours;
    ht_status status = find_mark(path, &ours, err);
    if (status || ours) return status;
    return ht_fail(err, HT_ERR_ARGUMENT,
                   "%s: is not replaced, as it is no fused checkpoint; remove it, or take another name", path);
}

/* ---- options ---- */

static ht_status check_options(ht_fuse_options *o, const ht_checkpoint_files *c, ht_error *err) {
    if (o->dtype != HT_DTYPE_NONE && o->dtype != HT_F32 && o->dtype != HT_F16 && o->dtype != HT_BF16)
        return ht_fail(err, HT_ERR_ARGUMENT, "weights cannot be written as %s; f32, f16 and bf16 can",
                       ht_dtype_name(o->dtype));
    if (!o->quantize_bits && o->quantize_group)
        return ht_fail(err, HT_ERR_ARGUMENT, "groups of %d without a number of bits", (int)o->quantize_group);
    if (!o->quantize_bits) return HT_OK;
    if (!o->quantize_group) o->quantize_group = 64;
    if (ht_affine_type(o->quantize_bits, o->quantize_group, HT_W_F32) < 0)
        return ht_fail(
            err, HT_ERR_ARGUMENT,
            "%d bits in groups of %d are not supported; 2, 3, 4, 5, 6 and 8 bits in groups of 32, 64 and 128 "
            "are",
            (int)o->quantize_bits, (int)o->quantize_group);
    if (o->dense) return ht_fail(err, HT_ERR_ARGUMENT, "all weights as floats and some in groups exclude each other");
    if (!c->quantization)
        return ht_fail(err, HT_ERR_ARGUMENT,
                       "%s: only checkpoints of MLX's groups are quantised again, and this is none", c->path);
    return HT_OK;
}

static ht_status check_adapters(ht_adapter *const *adapters, const float *scales, int n, ht_error *err) {
    if (n < 1) return ht_fail(err, HT_ERR_ARGUMENT, "there is no adapter to fuse");
    for (int i = 0; i < n; i++) {
        if (!adapters[i]) return ht_fail(err, HT_ERR_ARGUMENT, "adapter %d is NULL", i);
        if (scales && !isfinite(scales[i]))
            return ht_fail(err, HT_ERR_ARGUMENT, "the scale of adapter %d is %g, expected a finite number", i,
                           (double)scales[i]);
    }
    return HT_OK;
}

/* ---- fusing ---- */

static ht_status write_checkpoint(const ht_fuse_plan *plan, const char *path, bool is_directory, ht_error *err) {
    ht_fuse_values *values;
    ht_status status = ht_fuse_values_new(plan, &values, err);
    if (status) return status;
    status =
        is_directory ? ht_fuse_write_directory(plan, values, path, err) : ht_fuse_write_gguf(plan, values, path, err);
    if (!status && plan->options.report) ht_fuse_values_report(values, plan->options.report);
    ht_fuse_values_free(values);
    return status;
}

ht_status ht_fuse(const char *model_path, ht_adapter *const *adapters, const float *scales, int n, const char *out_path,
                  const ht_fuse_options *options, ht_error *err) {
    ht_fuse_plan plan = {0};
    ht_checkpoint_files *c = NULL;
    const bool is_directory = ht_path_is_directory(model_path);
    ht_status status = ht_options_read(&plan.options, options, &defaults, sizeof defaults, "ht_fuse_options", err);
    if (!status) status = check_adapters(adapters, scales, n, err);
    if (!status) status = ht_checkpoint_open(model_path, &c, err);
    if (status) return status;
    ht_config *config = malloc(sizeof *config);
    status = config ? check_options(&plan.options, c, err) : ht_fail_memory(err, sizeof *config, "a configuration");
    if (!status) status = check_target(out_path, is_directory, err);
    if (!status) status = check_apart(c, model_path, out_path, err);
    if (!status) status = ht_checkpoint_config(c, config, err);
    plan.c = c;
    plan.config = config;
    if (!status) status = ht_fuse_plan_make(&plan, adapters, scales, n, err);
    if (!status) status = write_checkpoint(&plan, out_path, is_directory, err);
    ht_fuse_plan_free(&plan);
    ht_checkpoint_close(c);
    free(config);
    return status;
}
