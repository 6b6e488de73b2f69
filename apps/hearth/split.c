/* hearth split and hearth merge: the tensors of a checkpoint in more files, or in one, bit for bit. */
#include "command.h"
#include "json.h"
#include "model_path.h"
#include "terminal.h"
#include "written.h"

#include <hearth/convert.h>

#include <stdio.h>
#include <stdlib.h>

static void on_progress(double done, void *user) { progress_show(user, done); }

static ht_status copy(const options *o, const char *what, int64_t max_file_bytes, ht_convert_report *result,
                      ht_error *err) {
    const char *out = o->arguments.items[0];
    char *path;
    progress show;
    ht_convert_options how;
    ht_status st = checkpoint_output_check(o, err);
    if (!st) st = model_path(o->model, &path, err);
    if (st) return st;
    ht_convert_options_init(&how, sizeof how);
    how.max_file_bytes = max_file_bytes;
    how.cancel = interrupt_flag();
    how.progress = on_progress;
    how.user = &show;
    how.report = result;
    progress_begin(&show, what, o->quiet);
    st = ht_convert(path, out, &how, err);
    progress_end(&show);
    if (st && interrupted()) snprintf(err->message, sizeof err->message, "interrupted: %s was not written", out);
    free(path);
    return st;
}

static bool print_json(const char *out, const ht_convert_report *r) {
    char path[WRITTEN_PATH_SIZE];
    written_path(out, r, path);
    return json_output(ht_json_pack("{so sI sI sI}", "out", ht_json_string(path), "bytes", (int64_t)r->bytes, "tensors",
                                    (int64_t)r->n_tensors, "files", (int64_t)r->n_files));
}

static int run(const options *o, const char *what, int64_t max_file_bytes) {
    ht_error err = {0};
    ht_convert_report result = {0};
    if (copy(o, what, max_file_bytes, &result, &err)) return output_finish(report(&err));
    if (o->json) return output_finish(print_json(o->arguments.items[0], &result) ? EXIT_OK : EXIT_FAILED);
    written_print(o->arguments.items[0], &result);
    output_field("tensors", "%lld", (long long)result.n_tensors);
    return output_finish(EXIT_OK);
}

static int usage(const char *name, const char *what) {
    fprintf(stderr, "hearth %s: %s (see hearth %s --help)\n", name, what, name);
    return EXIT_USAGE;
}

int split_command(const options *o) {
    if (o->arguments.n != 1) return usage("split", "the name of what to write is needed: MODEL OUT --max-size SIZE");
    if (!o->max_size) return usage("split", "--max-size SIZE is needed, as 4G");
    return run(o, "splitting", o->max_size);
}

int merge_command(const options *o) {
    if (o->arguments.n != 1) return usage("merge", "the name of what to write is needed: MODEL OUT");
    return run(o, "merging", HT_ONE_FILE);
}
