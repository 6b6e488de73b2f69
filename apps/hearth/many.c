#include "many.h"

#include "command.h"
#include "fail.h"

#include <stdio.h>
#include <string.h>

enum { EXPECTED_TOKENS = 512 };

static ht_status open_model(many *m, ht_error *err) {
    const options *o = m->o;
    const engine_model which = {o->model, (ht_precision)o->precision, options_kv_dtype(o), EXPECTED_TOKENS};
    ht_status st = engine_load(&m->e, o, &which, &m->e.model, err);
    if (!st) st = adapters_load(o, m->e.model, &m->e.adapters, err);
    if (st || !o->system || (!o->raw && ht_chat_format_name(m->e.model))) return st;
    snprintf(err->message, sizeof err->message, "--system needs a chat format, and %.300s has none", o->model);
    return err->status = HT_ERR_ARGUMENT;
}

/* What decides results: all options but these. */
static const char *const without_effect[] = {"prompts", "out", "force", "cache-file",   "threads", "context", "slots",
                                             "device",  "cpu", "json",  "packed-cache", "quiet",   "help",    NULL};

/* The record of a run, without its model. */
static ht_json *describe_run(const many *m, const char *name) {
    const command *c = command_table;
    char prompts[32];
    while (strcmp(c->name, name) != 0) c++;
    snprintf(prompts, sizeof prompts, "%016llx", (unsigned long long)m->prompts.hash);
    return ht_json_pack("{ss ss so}", "command", name, "prompts", prompts, "options",
                        options_values(m->o, c, without_effect));
}

/* Opens results, whose model is known once it is loaded. */
static ht_status open_results(many *m, const char *name, ht_error *err) {
    char model[HT_FINGERPRINT_SIZE];
    ht_status st = results_open(m->o->out, m->prompts.n, m->o->force, &m->results, err);
    if (st) return st;
    ht_json *run = describe_run(m, name);
    if (!run) st = fail_memory(err, "the record of results");
    if (!st) st = results_check(&m->results, run, err);
    if (!st) st = open_model(m, err);
    if (!st) st = ht_model_fingerprint(m->e.model, model, err);
    if (!st) ht_json_object_set_new(run, "model", ht_json_string(model));
    if (!st) st = results_check(&m->results, run, err);
    if (!st && !m->results.done) m->results.run = ht_json_incref(run);
    ht_json_decref(run);
    return st;
}

int many_open(many *m, const options *o, const char *name) {
    *m = (many){.o = o};
    const char *wrong = !o->prompts           ? "--prompts FILE is needed"
                        : o->raw && o->system ? "--system and --raw exclude each other"
                                              : NULL;
    if (wrong) {
        fprintf(stderr, "hearth %s: %s (see hearth %s --help)\n", name, wrong, name);
        return EXIT_USAGE;
    }
    ht_error err = {0};
    ht_status st = prompts_open(o->prompts, &m->prompts, &err);
    if (!st) st = o->out ? open_results(m, name, &err) : open_model(m, &err);
    if (!st && m->results.done && !o->quiet)
        fprintf(stderr, "hearth: resuming after %zu of %zu prompt%s\n", m->results.done, m->prompts.n,
                plural(m->prompts.n));
    progress_begin(&m->shown, "computing", o->quiet);
    m->begin = now_seconds();
    return st ? many_close(m, st, &err) : EXIT_OK;
}

bool many_write(many *m, ht_json *result, bool failed) {
    if (results_write(&m->results, result, &m->err)) return false;
    m->failed += failed;
    m->done++;
    progress_show(&m->shown, (double)(m->results.done + m->done) / (double)m->prompts.n);
    return true;
}

bool many_interrupted(ht_status status) { return status == HT_ERR_CANCELLED && interrupted(); }

int many_close(many *m, ht_status status, const ht_error *err) {
    ht_error closing = {0};
    progress_end(&m->shown);
    const ht_status closed = results_close(&m->results, &closing);
    int exit_status = EXIT_OK;
    if (interrupted() && status) {
        fprintf(stderr, "hearth: interrupted after %zu of %zu prompt%s%s\n", m->results.done + m->done, m->prompts.n,
                plural(m->prompts.n), m->o->out ? "; the same command goes on from there" : "");
        exit_status = EXIT_FAILED;
    } else if (m->err.message[0]) {
        exit_status = report(&m->err);
    } else if (status && !output_reader_gone()) {
        exit_status = report(err);
    } else if (closed) {
        exit_status = report(&closing);
    } else if (m->failed) {
        fprintf(stderr, "hearth: %zu of %zu prompt%s failed; their results say why\n", m->failed, m->done,
                plural(m->done));
        exit_status = EXIT_FAILED;
    }
    prompt_line_clear(&m->line);
    prompts_close(&m->prompts);
    engine_close(&m->e);
    return output_finish(exit_status);
}
