/* hearth discover lists every checkpoint under a directory, hearth list those in the cache by name. */
#include "command.h"
#include "json.h"
#include "model_path.h"
#include "terminal.h"

#include <hearth/discover.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Usable checkpoints are printed at once, broken ones at the end. */
typedef struct finds {
    const options *o;
    const char *models; /* the cache's directory, of `list`; else NULL */
    ht_json *checkpoints, *broken;
    int64_t n;
    bool out_of_memory;
} finds;

static ht_json *describe(const ht_find *f) {
    const ht_model_info *i = f->info;
    if (!i) return ht_json_pack("{so ss}", "path", ht_json_string(f->path), "problem", f->problem->message);
    return ht_json_pack("{so ss ss ss sb ss ss sI sI sI si sI}", "path", ht_json_string(f->path), "architecture",
                        i->architecture, "name", i->name, "format", i->format, "runs", (int)i->runs, "quantization",
                        i->quantization, "file_type", i->file_type, "parameters", (int64_t)i->n_parameters,
                        "weight_bytes", (int64_t)i->weight_bytes, "file_bytes", (int64_t)i->file_bytes, "files",
                        (int)i->n_files, "context", (int64_t)i->context);
}

static ht_json *as_json(const finds *all, const ht_find *f) {
    const char *name;
    ht_json *value = describe(f);
    if (!all->models) return value;
    const size_t n = model_name(all->models, f->path, &name);
    ht_json_object_set_new(value, "model", ht_json_stringn(name, n));
    return value;
}

static void print_find(finds *all, const ht_find *f) {
    const char *name = f->path;
    const int n = all->models ? (int)model_name(all->models, f->path, &name) : (int)strlen(name);
    const ht_model_info *i = f->info;
    const char *type = i->file_type[0] ? i->file_type : i->quantization; /* mixes have their own type */
    char size[32], context[32] = "-";
    if (i->file_bytes < 999950000)
        snprintf(size, sizeof size, "%.1f MB", (double)i->file_bytes / 1e6);
    else
        snprintf(size, sizeof size, "%.2f GB", (double)i->file_bytes / 1e9);
    if (i->context) snprintf(context, sizeof context, "%lld", (long long)i->context);
    if (all->n == 0)
        output_line("%-12s %10s  %-12s %5s %9s  %s", "family", "size", "quantisation", "files", "context",
                    all->models ? "name" : "path");
    output_line("%-12s %10s  %-12s %5d %9s  %.*s%s", i->architecture, size, i->has_weights ? type : "no weights",
                (int)i->n_files, context, n, name, i->runs || !i->has_weights ? "" : " (this build cannot run it)");
}

static bool on_find(const ht_find *f, void *user) {
    finds *all = user;
    if (all->models && f->info && !f->info->has_weights) return true; /* vocabulary only */
    if (f->info && !all->o->json) print_find(all, f);
    if (f->info) all->n++;
    if (all->o->json || !f->info)
        all->out_of_memory = ht_json_array_append_new(f->info ? all->checkpoints : all->broken, as_json(all, f)) != 0;
    return !all->out_of_memory && !interrupted() && output_flush();
}

static void print_broken(const finds *all) {
    size_t i;
    ht_json *each;
    if (all->n == 0 && ht_json_array_size(all->broken) == 0) output_line(all->models ? "no models" : "no checkpoints");
    ht_json_array_foreach(all->broken, i, each) {
        if (i == 0) output_line("broken:");
        output_line("  %s: %s", ht_json_string_value(ht_json_object_get(each, "path")),
                    ht_json_string_value(ht_json_object_get(each, "problem")));
    }
}

static int show(const options *o, const char *directory, bool by_name) {
    ht_error err = {0};
    finds all = {.o = o,
                 .models = by_name ? directory : NULL,
                 .checkpoints = ht_json_new_array(),
                 .broken = ht_json_new_array()};
    int status = EXIT_OK;
    interrupt_watch();
    const bool none = by_name && access(directory, F_OK) != 0; /* nothing has been fetched yet */
    ht_status st = none ? HT_OK : ht_discover(directory, on_find, &all, &err);
    if (all.out_of_memory || !all.checkpoints || !all.broken) {
        output_lacks("out of memory for the result");
    } else if (st && !(st == HT_ERR_CANCELLED && output_reader_gone()))
        status = report(&err);
    else if (!st && o->json)
        json_output(ht_json_pack("{sO sO}", "checkpoints", all.checkpoints, "broken", all.broken));
    else if (!st)
        print_broken(&all);
    ht_json_decref(all.checkpoints);
    ht_json_decref(all.broken);
    return output_finish(status);
}

int discover_command(const options *o) {
    return o->arguments.n ? show(o, o->arguments.items[0], false) : usage_error(o, "a directory is needed");
}

int list_command(const options *o) {
    char *directory;
    ht_error err = {0};
    if (cache_path("models", &directory, &err)) return report(&err);
    const int status = show(o, directory, true);
    free(directory);
    return status;
}
