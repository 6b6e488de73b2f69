/* hearth discover: every checkpoint under a directory. */
#include "command.h"
#include "json.h"
#include "terminal.h"

#include <hearth/discover.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Finds are shown as they come, broken ones after them, so that neither gets lost among the others. */
typedef struct finds {
    const options *o;
    json_t *checkpoints, *broken;
    int64_t n;
    bool out_of_memory;
} finds;

static json_t *as_json(const ht_find *f) {
    const ht_model_info *i = f->info;
    if (!i) return json_pack("{so ss}", "path", json_path(f->path), "problem", f->problem->message);
    return json_pack("{so ss ss ss sb ss sI sI sI si sI}", "path", json_path(f->path), "architecture", i->architecture,
                     "name", i->name, "format", i->format, "runs", (int)i->runs, "quantization", i->quantization,
                     "parameters", (json_int_t)i->n_parameters, "weight_bytes", (json_int_t)i->weight_bytes,
                     "file_bytes", (json_int_t)i->file_bytes, "files", (int)i->n_files, "context",
                     (json_int_t)i->context);
}

static void print_find(finds *all, const ht_find *f) {
    const ht_model_info *i = f->info;
    char size[32], context[32] = "-";
    if (i->file_bytes < 999950000)
        snprintf(size, sizeof size, "%.1f MB", (double)i->file_bytes / 1e6);
    else
        snprintf(size, sizeof size, "%.2f GB", (double)i->file_bytes / 1e9);
    if (i->context) snprintf(context, sizeof context, "%lld", (long long)i->context);
    if (all->n == 0)
        output_line("%-12s %10s  %-12s %5s %9s  %s", "family", "size", "quantisation", "files", "context", "path");
    output_line("%-12s %10s  %-12s %5d %9s  %s%s", i->architecture, size,
                i->has_weights ? i->quantization : "no weights", (int)i->n_files, context, f->path,
                i->runs || !i->has_weights ? "" : " (this build cannot run it)");
}

static bool on_find(const ht_find *f, void *user) {
    finds *all = user;
    if (f->info && !all->o->json) print_find(all, f);
    if (f->info) all->n++;
    if (all->o->json || !f->info)
        all->out_of_memory = json_array_append_new(f->info ? all->checkpoints : all->broken, as_json(f)) != 0;
    return !all->out_of_memory && !interrupted() && output_flush();
}

static void print_broken(const finds *all) {
    size_t i;
    json_t *each;
    if (all->n == 0 && json_array_size(all->broken) == 0) output_line("no checkpoints");
    json_array_foreach(all->broken, i, each) {
        if (i == 0) output_line("broken:");
        output_line("  %s: %s", json_string_value(json_object_get(each, "path")),
                    json_string_value(json_object_get(each, "problem")));
    }
}

int discover_command(const options *o) {
    if (!o->arguments.n) {
        fprintf(stderr, "hearth discover: a directory is needed (see hearth discover --help)\n");
        return EXIT_USAGE;
    }
    ht_error err = {0};
    finds all = {.o = o, .checkpoints = json_array(), .broken = json_array()};
    int status = EXIT_OK;
    interrupt_watch();
    ht_status st = ht_discover(o->arguments.items[0], on_find, &all, &err);
    if (all.out_of_memory || !all.checkpoints || !all.broken) {
        fprintf(stderr, "hearth: out of memory for the result\n");
        status = EXIT_FAILED;
    } else if (st == HT_ERR_CANCELLED && output_reader_gone())
        status = EXIT_OK;
    else if (st)
        status = report(&err);
    else if (o->json) {
        json_t *value = json_pack("{sO sO}", "checkpoints", all.checkpoints, "broken", all.broken);
        if (!json_output(value)) status = EXIT_FAILED;
    } else
        print_broken(&all);
    json_decref(all.checkpoints);
    json_decref(all.broken);
    return output_finish(status);
}
