#include "many.h"

#include "command.h"

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
    if (!st) st = results_open(o->out, m->prompts.n, &m->results, &err);
    if (!st && many_left(m)) st = open_model(m, &err);
    if (!st && m->results.done && !o->quiet)
        fprintf(stderr, "hearth: resuming after %zu of %zu prompt%s\n", m->results.done, m->prompts.n,
                plural(m->prompts.n));
    progress_begin(&m->shown, "computing", o->quiet);
    m->begin = now_seconds();
    return st ? many_close(m, st, &err) : EXIT_OK;
}

bool many_write(many *m, json_t *result, bool failed) {
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
