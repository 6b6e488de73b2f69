/* Fusing (hearth/fuse.h): options and places are checked, then the plan is made and carried out. */
#include "base/error.h"
#include "base/options.h"
#include "checkpoint/config.h"
#include "checkpoint/rewrite.h"
#include "formats/affine.h"

#include <math.h>
#include <stdlib.h>

static const ht_fuse_options defaults = {.size = sizeof defaults};

void ht_fuse_options_init(ht_fuse_options *options, size_t size) {
    ht_options_init(options, size, &defaults, sizeof defaults);
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

static ht_status write_checkpoint(const ht_rewrite_plan *plan, ht_fuse_report *report, ht_error *err) {
    ht_rewrite_values *values;
    ht_status status = ht_rewrite_values_new(plan, 0, &values, err);
    if (!status) status = ht_rewrite_write(plan, values, err);
    if (!status && report) ht_rewrite_values_report(values, report);
    ht_rewrite_values_free(values);
    return status;
}

ht_status ht_fuse(const char *model_path, ht_adapter *const *adapters, const float *scales, int n, const char *out_path,
                  const ht_fuse_options *options, ht_error *err) {
    ht_fuse_options o;
    ht_checkpoint_files *c = NULL;
    ht_status status = ht_options_read(&o, options, &defaults, sizeof defaults, "ht_fuse_options", err);
    if (!status) status = check_adapters(adapters, scales, n, err);
    if (!status) status = ht_checkpoint_open(model_path, &c, err);
    if (status) return status;
    ht_config *config = malloc(sizeof *config);
    ht_rewrite_plan plan = {.c = c,
                            .config = config,
                            .is_directory = ht_path_is_directory(model_path),
                            .to_gguf = c->gguf != NULL,
                            .copies_files = true,
                            .verb = "fusing",
                            .mark = HT_REWRITE_FUSED,
                            .out_path = out_path,
                            .dtype = o.dtype,
                            .file_type = -1,
                            .cancel = o.cancel,
                            .progress = o.progress,
                            .user = o.user};
    status = config ? check_options(&o, c, err) : ht_fail_memory(err, sizeof *config, "a configuration");
    if (!status) status = ht_rewrite_check_place(&plan, model_path, err);
    if (!status) status = ht_checkpoint_config(c, config, err);
    if (!status) status = ht_rewrite_plan_list(&plan, err);
    if (!status) status = ht_fuse_plan(&plan, &o, adapters, scales, n, err);
    if (!status) status = ht_rewrite_plan_finish(&plan, err);
    if (!status) status = write_checkpoint(&plan, o.report, err);
    ht_rewrite_plan_free(&plan);
    ht_checkpoint_close(c);
    free(config);
    return status;
}
