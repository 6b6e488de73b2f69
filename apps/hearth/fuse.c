/* hearth fuse: a checkpoint with adapters merged into its weights. */
#include "command.h"
#include "engine.h"
#include "fail.h"
#include "json.h"
#include "model_path.h"
#include "terminal.h"
#include "written.h"

#include <hearth/fuse.h>

#include <stdio.h>
#include <stdlib.h>

/* Parses BITS or BITS:GROUP; the library checks the values. */
static bool parse_quantize(const char *text, ht_fuse_options *out) {
    char *end;
    const long bits = strtol(text, &end, 10), group = *end == ':' ? strtol(end + 1, &end, 10) : 0;
    if (*end != '\0' || bits < 1 || bits > 64 || group < 0 || group > 4096) return false;
    out->quantize_bits = (int32_t)bits;
    out->quantize_group = (int32_t)group;
    return true;
}

/* Loads the model too, if it fits in memory, to report an adapter of another base model. */
static ht_status load_adapters(const options *o, adapter_list *out, ht_error *err) {
    engine e = {.on_cpu = true};
    const engine_model which = {o->model, HT_PRECISION_REFERENCE, HT_F16, 0};
    ht_error why = {0};
    ht_status st = engine_load(&e, o, &which, &e.model, &why);
    const bool too_large = st == HT_ERR_MEMORY || st == HT_ERR_LIMIT; /* fusing takes a tensor at a time */
    if (too_large && !o->quiet)
        fprintf(stderr, "hearth fuse: whether the adapter is of this checkpoint is not checked: %s\n", why.message);
    if (st && !too_large)
        *err = why;
    else
        st = adapters_load(o, e.model, out, err);
    engine_close(&e);
    return st;
}

static ht_status fuse(const options *o, ht_fuse_options *how, ht_error *err) {
    adapter_list adapters = {0};
    char *path = NULL;
    progress show;
    ht_status st = checkpoint_output_check(o, err);
    if (!st) st = load_adapters(o, &adapters, err);
    if (!st) st = model_path(o->model, &path, err);
    progress_begin(&show, "fusing", o->quiet);
    how->cancel = interrupt_flag();
    how->progress = progress_show;
    how->user = &show;
    if (!st) st = ht_fuse(path, adapters.adapter, adapters.scale, adapters.n, o->arguments.items[0], how, err);
    progress_end(&show);
    if (st && interrupted()) ht_fail(err, st, "interrupted: %s was not written", o->arguments.items[0]);
    adapters_free(&adapters);
    free(path);
    return st;
}

static void print_text(const char *out, const ht_fuse_report *r) {
    output_field("out", "%s", out);
    output_field("bytes", "%lld", (long long)r->bytes);
    output_field("changed", "%lld tensor%s", (long long)r->n_changed, plural(r->n_changed));
    if (r->n_dense) output_field("", "%lld that were quantised are floats now", (long long)r->n_dense);
    output_field("rounding", "%.3g %% of the weights, %.3g %% of the change", 100 * r->error, 100 * r->noise);
    output_field("kept", "%.4g %% of the change, at least %.4g %% of each tensor's", 100 * r->kept,
                 100 * r->least_kept);
}

static void print_json(const char *out, const ht_fuse_report *r) {
    json_output(ht_json_pack("{so sI sI sI sf sf sf sf}", "out", ht_json_string(out), "bytes", (int64_t)r->bytes,
                             "changed", (int64_t)r->n_changed, "dense", (int64_t)r->n_dense, "error", r->error, "noise",
                             r->noise, "kept", r->kept, "least_kept", r->least_kept));
}

/* Warns when quantisation has rounded away most of the adapters' change. */
static void warn_of_loss(const ht_fuse_report *r) {
    if (r->noise < 1 && r->kept > 0.9) return;
    fprintf(
        stderr,
        "hearth fuse: rounding moved the weights by %.3g times what the adapters changed, and %.3g %% of the change is "
        "left: more bits, or no --quantize, keep it\n",
        r->noise, 100 * r->kept);
}

int fuse_command(const options *o) {
    ht_error err = {0};
    ht_fuse_report report_of = {0};
    ht_fuse_options how;
    ht_fuse_options_init(&how, sizeof how);
    how.dtype = options_dtype(o);
    how.dense = o->dense;
    how.report = &report_of;
    if (o->arguments.n != 1) return usage_error(o, "the name of what to write is needed: MODEL --adapter PATH OUT");
    if (!o->adapters.n) return usage_error(o, "--adapter PATH is needed");
    if (o->quantize && !parse_quantize(o->quantize, &how))
        return usage_error(o, "--quantize expects BITS or BITS:GROUP");
    if (fuse(o, &how, &err)) return output_finish(report(&err));
    if (!o->quiet) warn_of_loss(&report_of);
    (o->json ? print_json : print_text)(o->arguments.items[0], &report_of);
    return output_finish(EXIT_OK);
}
