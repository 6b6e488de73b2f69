/* hearth convert, quantize, split and merge: change a checkpoint's container, weight types or number of files. */
#include "command.h"
#include "fail.h"
#include "json.h"
#include "model_path.h"
#include "terminal.h"
#include "written.h"

#include <hearth/convert.h>

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { PATH_BYTES = PATH_MAX + 32 /* plus the suffix of a part */ };

typedef struct conversion {
    const options *o;
    const char *out; /* NULL: not given */
    ht_convert_options how;
    ht_convert_report report;
    progress progress;
    ht_json *tensors;   /* of --errors with --json; else NULL */
    bool out_of_memory; /* for the tensors */
} conversion;

/* How a command reports its result. */
typedef struct presentation {
    const char *doing; /* label of the progress line */
    void (*print)(const ht_convert_report *r);
    ht_json *(*describe)(const conversion *c, ht_json *path);
} presentation;

static conversion conversion_of(const options *o) {
    conversion c = {.o = o, .out = o->arguments.n ? o->arguments.items[0] : NULL};
    ht_convert_options_init(&c.how, sizeof c.how);
    c.how.max_file_bytes = o->max_size;
    c.how.n_threads = (int32_t)o->threads;
    c.how.cancel = interrupt_flag();
    return c;
}

static void on_progress(double done, void *user) { progress_show(done, &((conversion *)user)->progress); }

static void on_tensor(const ht_convert_tensor *t, void *user) {
    conversion *c = user;
    if (!c->o->json) {
        output_line("%-40s %-6s %-6s %10lld bytes  error %.3g %%", t->name, t->from, t->to, (long long)t->bytes,
                    100 * t->error);
        return;
    }
    ht_json *said = ht_json_pack("{ss ss ss sI sf}", "name", t->name, "from", t->from, "to", t->to, "bytes",
                                 (int64_t)t->bytes, "error", t->error);
    if (!said || ht_json_array_append_new(c->tensors, said)) c->out_of_memory = true;
}

static ht_status convert(conversion *c, const char *doing, ht_error *err) {
    char *path = NULL;
    ht_importance *importance = NULL;
    ht_status st = checkpoint_output_check(c->o, err);
    if (!st) st = model_path(c->o->model, &path, err);
    if (!st && c->o->imatrix) st = ht_importance_load(c->o->imatrix, &importance, err);
    if (!st) {
        c->how.importance = importance;
        c->how.progress = on_progress;
        c->how.user = c;
        c->how.report = &c->report;
        progress_begin(&c->progress, doing, c->o->quiet);
        st = ht_convert(path, c->out, &c->how, err);
        progress_end(&c->progress);
        if (st && interrupted()) ht_fail(err, st, "interrupted: %s was not written", c->out);
    }
    ht_importance_free(importance);
    free(path);
    return st;
}

/* The path to load: `out`, or the first part of a split GGUF file. */
static void written_path(const conversion *c, char path[PATH_BYTES]) {
    static const char suffix[] = ".gguf";
    const long long n_files = (long long)c->report.n_files;
    struct stat st;
    if (ht_ends_with(c->out, suffix) && n_files > 1 && !(stat(c->out, &st) == 0 && S_ISDIR(st.st_mode)))
        snprintf(path, PATH_BYTES, "%.*s-00001-of-%05lld%s", (int)(strlen(c->out) - strlen(suffix)), c->out, n_files,
                 suffix);
    else
        snprintf(path, PATH_BYTES, "%s", c->out);
}

static int run(conversion *c, const presentation *by) {
    ht_error err = {0};
    char path[PATH_BYTES];
    const ht_convert_report *r = &c->report;
    const ht_status st = convert(c, by->doing, &err);
    written_path(c, path);
    if (!st && c->o->json) {
        json_output(c->out_of_memory ? NULL : by->describe(c, ht_json_string(path)));
    } else if (!st) {
        output_field("out", "%s", path);
        if (r->n_files > 1) output_field("files", "%lld", (long long)r->n_files);
        output_field("bytes", "%lld", (long long)r->bytes);
        by->print(r);
    }
    ht_json_decref(c->tensors);
    return output_finish(st ? report(&err) : EXIT_OK);
}

/* ---- convert ---- */

static bool parse_container(const char *name, ht_container *out) {
    static const char *const names[] = {"gguf", "safetensors", "mlx"};
    for (int i = 0; i < 3; i++) {
        if (strcmp(name, names[i]) != 0) continue;
        *out = (ht_container)(HT_CONTAINER_GGUF + i);
        return true;
    }
    return false;
}

static void print_converted(const ht_convert_report *r) {
    output_field("tensors", "%lld", (long long)r->n_tensors);
    if (r->n_rounded) output_field("", "%lld of another type than before", (long long)r->n_rounded);
    if (r->n_floats) output_field("", "%lld that were quantised are floats now", (long long)r->n_floats);
    if (r->n_inexact) output_field("rounded", "%lld, whose values changed", (long long)r->n_inexact);
}

static ht_json *describe_converted(const conversion *c, ht_json *path) {
    const ht_convert_report *r = &c->report;
    return ht_json_pack("{so sI sI sI sI sI sI}", "out", path, "bytes", (int64_t)r->bytes, "tensors",
                        (int64_t)r->n_tensors, "retyped", (int64_t)r->n_rounded, "floats", (int64_t)r->n_floats,
                        "rounded", (int64_t)r->n_inexact, "files", (int64_t)r->n_files);
}

int convert_command(const options *o) {
    conversion c = conversion_of(o);
    c.how.dtype = options_dtype(o);
    if (!c.out) return usage_error(o, "the name of what to write is needed: MODEL OUT --to gguf");
    if (!o->to) return usage_error(o, "--to gguf, safetensors or mlx is needed");
    if (!parse_container(o->to, &c.how.container)) return usage_error(o, "--to expects gguf, safetensors or mlx");
    return run(&c, &(presentation){"converting", print_converted, describe_converted});
}

/* ---- quantize ---- */

static void print_quantized(const ht_convert_report *r) {
    if (r->n_rounded)
        output_field("rounded", "%lld tensor%s, to %.3g bits a weight", (long long)r->n_rounded, plural(r->n_rounded),
                     r->bits);
    else
        output_field("rounded", "none: all weights have the type, or rows that are no whole blocks or groups of it");
}

static ht_json *describe_quantized(const conversion *c, ht_json *path) {
    const ht_convert_report *r = &c->report;
    return ht_json_pack("{so sI sI sf sI sO*}", "out", path, "bytes", (int64_t)r->bytes, "rounded",
                        (int64_t)r->n_rounded, "bits", r->bits, "files", (int64_t)r->n_files, "tensors", c->tensors);
}

int quantize_command(const options *o) {
    conversion c = conversion_of(o);
    if (!c.out) return usage_error(o, "the name of what to write is needed: MODEL OUT --to TYPE");
    if (!o->to) return usage_error(o, "--to TYPE is needed, as Q4_K_M");
    c.how.type = o->to;
    c.how.pure = o->pure;
    c.how.on_tensor = o->errors ? on_tensor : NULL;
    if (o->json && o->errors) c.tensors = ht_json_new_array();
    return run(&c, &(presentation){"quantising", print_quantized, describe_quantized});
}

/* ---- split and merge ---- */

static void print_copied(const ht_convert_report *r) { output_field("tensors", "%lld", (long long)r->n_tensors); }

static ht_json *describe_copied(const conversion *c, ht_json *path) {
    const ht_convert_report *r = &c->report;
    return ht_json_pack("{so sI sI sI}", "out", path, "bytes", (int64_t)r->bytes, "tensors", (int64_t)r->n_tensors,
                        "files", (int64_t)r->n_files);
}

int split_command(const options *o) {
    conversion c = conversion_of(o);
    if (!c.out) return usage_error(o, "the name of what to write is needed: MODEL OUT --max-size SIZE");
    if (!o->max_size) return usage_error(o, "--max-size SIZE is needed, as 4G");
    return run(&c, &(presentation){"splitting", print_copied, describe_copied});
}

int merge_command(const options *o) {
    conversion c = conversion_of(o);
    if (!c.out) return usage_error(o, "the name of what to write is needed: MODEL OUT");
    c.how.max_file_bytes = HT_ONE_FILE;
    return run(&c, &(presentation){"merging", print_copied, describe_copied});
}
