/* hearth convert: a checkpoint in another container, with the values that it has. */
#include "command.h"
#include "json.h"
#include "model_path.h"
#include "terminal.h"
#include "written.h"

#include <hearth/convert.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool parse_container(const char *name, ht_container *out) {
    static const char *const names[] = {"gguf", "safetensors", "mlx"};
    for (int i = 0; i < 3; i++) {
        if (strcmp(name, names[i]) != 0) continue;
        *out = (ht_container)(HT_CONTAINER_GGUF + i);
        return true;
    }
    return false;
}

static void on_progress(double done, void *user) { progress_show(user, done); }

static ht_status convert(const options *o, ht_convert_options *how, ht_error *err) {
    char *path;
    progress show;
    ht_status st = checkpoint_output_check(o, err);
    if (!st) st = model_path(o->model, &path, err);
    if (st) return st;
    progress_begin(&show, "converting", o->quiet);
    how->n_threads = (int32_t)o->threads;
    how->cancel = interrupt_flag();
    how->progress = on_progress;
    how->user = &show;
    st = ht_convert(path, o->arguments.items[0], how, err);
    progress_end(&show);
    if (st && interrupted())
        snprintf(err->message, sizeof err->message, "interrupted: %s was not written", o->arguments.items[0]);
    free(path);
    return st;
}

static void print_text(const char *out, const ht_convert_report *r) {
    written_print(out, r);
    output_field("tensors", "%lld", (long long)r->n_tensors);
    if (r->n_rounded) output_field("", "%lld of another type than before", (long long)r->n_rounded);
    if (r->n_floats) output_field("", "%lld that were quantised are floats now", (long long)r->n_floats);
    if (r->n_inexact) output_field("rounded", "%lld, whose values changed", (long long)r->n_inexact);
}

static bool print_json(const char *out, const ht_convert_report *r) {
    char path[WRITTEN_PATH_SIZE];
    written_path(out, r, path);
    return json_output(ht_json_pack("{so sI sI sI sI sI sI}", "out", ht_json_string(path), "bytes", (int64_t)r->bytes,
                                    "tensors", (int64_t)r->n_tensors, "retyped", (int64_t)r->n_rounded, "floats",
                                    (int64_t)r->n_floats, "rounded", (int64_t)r->n_inexact, "files",
                                    (int64_t)r->n_files));
}

static int usage(const char *what) {
    fprintf(stderr, "hearth convert: %s (see hearth convert --help)\n", what);
    return EXIT_USAGE;
}

int convert_command(const options *o) {
    ht_error err = {0};
    ht_convert_report result = {0};
    ht_convert_options how;
    ht_convert_options_init(&how, sizeof how);
    how.dtype = options_dtype(o);
    how.max_file_bytes = o->max_size;
    how.report = &result;
    if (o->arguments.n != 1) return usage("the name of what to write is needed: MODEL OUT --to gguf");
    if (!o->to) return usage("--to gguf, safetensors or mlx is needed");
    if (!parse_container(o->to, &how.container)) return usage("--to expects gguf, safetensors or mlx");
    if (convert(o, &how, &err)) return output_finish(report(&err));
    if (!o->json) print_text(o->arguments.items[0], &result);
    return output_finish(!o->json || print_json(o->arguments.items[0], &result) ? EXIT_OK : EXIT_FAILED);
}
