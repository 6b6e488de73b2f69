/* hearth quantize: a checkpoint with its weights rounded to another type. */
#include "command.h"
#include "json.h"
#include "model_path.h"
#include "terminal.h"
#include "written.h"

#include <hearth/convert.h>

#include <stdio.h>
#include <stdlib.h>

typedef struct shown {
    progress progress;
    const options *o;
    ht_json *tensors; /* with --json and --errors; else NULL */
    bool failed;      /* memory ran out */
} shown;

static void on_progress(double done, void *user) { progress_show(&((shown *)user)->progress, done); }

static void on_tensor(const ht_convert_tensor *t, void *user) {
    shown *s = user;
    if (!s->o->json) {
        output_line("%-40s %-6s %-6s %10lld bytes  error %.3g %%", t->name, t->from, t->to, (long long)t->bytes,
                    100 * t->error);
        return;
    }
    ht_json *said = ht_json_pack("{ss ss ss sI sf}", "name", t->name, "from", t->from, "to", t->to, "bytes",
                                 (int64_t)t->bytes, "error", t->error);
    if (!said || ht_json_array_append_new(s->tensors, said)) s->failed = true;
}

static ht_status quantize(const options *o, shown *s, ht_convert_report *result, ht_error *err) {
    ht_convert_options how;
    ht_importance *importance = NULL;
    char *path = NULL;
    ht_status st = checkpoint_output_check(o, err);
    if (!st) st = model_path(o->model, &path, err);
    if (!st && o->imatrix) st = ht_importance_load(o->imatrix, &importance, err);
    if (st) {
        free(path);
        return st;
    }
    ht_convert_options_init(&how, sizeof how);
    how.type = o->to;
    how.pure = o->pure;
    how.max_file_bytes = o->max_size;
    how.importance = importance;
    how.n_threads = (int32_t)o->threads;
    how.cancel = interrupt_flag();
    how.progress = on_progress;
    how.on_tensor = o->errors ? on_tensor : NULL;
    how.user = s;
    how.report = result;
    progress_begin(&s->progress, "quantising", o->quiet);
    st = ht_convert(path, o->arguments.items[0], &how, err);
    progress_end(&s->progress);
    if (st && interrupted())
        snprintf(err->message, sizeof err->message, "interrupted: %s was not written", o->arguments.items[0]);
    ht_importance_free(importance);
    free(path);
    return st;
}

static void print_text(const char *out, const ht_convert_report *r) {
    written_print(out, r);
    if (r->n_rounded)
        output_field("rounded", "%lld tensor%s, to %.3g bits a weight", (long long)r->n_rounded, plural(r->n_rounded),
                     r->bits);
    else
        output_field("rounded", "none: all weights have the type, or rows that are no whole blocks or groups of it");
}

/* Takes `tensors`. */
static bool print_json(const char *out, const ht_convert_report *r, ht_json *tensors) {
    char path[WRITTEN_PATH_SIZE];
    written_path(out, r, path);
    return json_output(ht_json_pack("{so sI sI sf sI so*}", "out", ht_json_string(path), "bytes", (int64_t)r->bytes,
                                    "rounded", (int64_t)r->n_rounded, "bits", r->bits, "files", (int64_t)r->n_files,
                                    "tensors", tensors));
}

static int usage(const char *what) {
    fprintf(stderr, "hearth quantize: %s (see hearth quantize --help)\n", what);
    return EXIT_USAGE;
}

int quantize_command(const options *o) {
    ht_error err = {0};
    ht_convert_report result = {0};
    shown s = {.o = o, .tensors = o->json && o->errors ? ht_json_new_array() : NULL};
    if (o->arguments.n != 1) return usage("the name of what to write is needed: MODEL OUT --to TYPE");
    if (!o->to) return usage("--to TYPE is needed, as Q4_K_M");
    if (quantize(o, &s, &result, &err)) {
        ht_json_decref(s.tensors);
        return output_finish(report(&err));
    }
    if (!o->json) print_text(o->arguments.items[0], &result);
    const bool good = !s.failed && (!o->json || print_json(o->arguments.items[0], &result, s.tensors));
    return output_finish(good ? EXIT_OK : EXIT_FAILED);
}
