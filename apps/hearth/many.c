#include "many.h"

#include "command.h"
#include "fail.h"
#include "json.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- results ---- */

/* Whether the line is the next result; the first one also carries the run's record. */
static bool is_result(result_file *r, const char *line, size_t n) {
    ht_json *value = ht_json_of(line, n);
    const ht_json *of = ht_json_object_get(value, "index");
    const bool is = ht_json_is_integer(of) && ht_json_integer_value(of) == (int64_t)r->done;
    if (is && r->done == 0) r->run = ht_json_incref(ht_json_object_get(value, "run"));
    ht_json_decref(value);
    return is;
}

/* Counts complete lines and truncates the file after the last one. */
static ht_status read_results(result_file *r, size_t n, ht_error *err) {
    char *line = NULL;
    size_t room = 0;
    off_t end = 0;
    ht_status st = HT_OK;
    for (ssize_t got; !st && (got = getline(&line, &room, r->file)) > 0 && line[got - 1] == '\n';) {
        if (r->done == n || !is_result(r, line, (size_t)got))
            st =
                ht_fail(err, HT_ERR_ARGUMENT,
                        "%.300s: line %zu is no result of the %zu prompt%s; use another file, or --force to replace it",
                        r->path, r->done + 1, n, plural(n));
        r->done += !st;
        end += got;
    }
    free(line);
    if (!st && ferror(r->file)) return fail_system(err, r->path, "read");
    if (!st && (fseeko(r->file, end, SEEK_SET) || ftruncate(fileno(r->file), end)))
        return fail_system(err, r->path, "written");
    return st;
}

/* Opens the file of --out (NULL: standard output) to append results after those of prompts 0, 1, ... below n. An
 * incomplete last line is removed; `replace` removes all lines. Call results_close also after a failure. */
static ht_status results_open(const char *path, size_t n, bool replace, result_file *out, ht_error *err) {
    *out = (result_file){.path = path};
    if (!path) return HT_OK;
    out->file = fopen(path, replace ? "w+e" : "r+e");
    if (!out->file && errno == ENOENT) out->file = fopen(path, "w+e");
    return out->file ? read_results(out, n, err) : fail_system(err, path, "opened");
}

static ht_status differs(const result_file *r, ht_error *err, const char *what) {
    return ht_fail(err, HT_ERR_ARGUMENT, "%.300s has results %s; use another file, or --force to replace it", r->path,
                   what);
}

/* Reports an option whose value differs. */
static ht_status option_differs(const result_file *r, const char *name, const ht_json *was, const ht_json *is,
                                ht_error *err) {
    const unsigned flags = HT_JSON_COMPACT | HT_JSON_REAL_PRECISION(9);
    char *before = was ? ht_json_dump(was, flags) : NULL, *now = ht_json_dump(is, flags);
    char what[320];
    snprintf(what, sizeof what, "with %.60s %.100s, this command has %.100s", name, before ? before : "unset",
             now ? now : "another");
    free(before);
    free(now);
    return differs(r, err, what);
}

/* Checks that existing results belong to this run. `run` has "command", "model", "prompts" and the object "options";
 * absent fields are not compared. HT_ERR_ARGUMENT names the first difference. */
static ht_status results_check(const result_file *r, const ht_json *run, ht_error *err) {
    static const char *const fields[][2] = {
        {"command", "of another command"}, {"prompts", "of other prompts"}, {"model", "of another model"}};
    const ht_json *before = ht_json_object_get(r->run, "options"), *now = ht_json_object_get(run, "options");
    const char *name;
    ht_json *value;
    if (!r->done) return HT_OK;
    if (!r->run) return differs(r, err, "without a record of their prompts and options");
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
        const ht_json *is = ht_json_object_get(run, fields[i][0]);
        if (is && !ht_json_equal(ht_json_object_get(r->run, fields[i][0]), is)) return differs(r, err, fields[i][1]);
    }
    ht_json_object_foreach((ht_json *)(uintptr_t)now, name, value) {
        const ht_json *was = ht_json_object_get(before, name);
        if (!ht_json_equal(was, value)) return option_differs(r, name, was, value, err);
    }
    return HT_OK;
}

/* Writes a line and releases the value; a file's first line also carries r->run. */
static ht_status results_write(result_file *r, ht_json *value, ht_error *err) {
    if (r->run && !r->done) ht_json_object_set(value, "run", r->run);
    ht_json_decref(r->run);
    r->run = NULL;
    char *text = ht_json_dump(value, HT_JSON_COMPACT | HT_JSON_REAL_PRECISION(9));
    ht_json_decref(value);
    if (!text) return ht_fail(err, HT_ERR_MEMORY, "out of memory for a result");
    ht_status st = HT_OK;
    if (!r->file) { /* output_finish reports the failure */
        if (!output_write(text, strlen(text)) || !output_write("\n", 1) || !output_flush()) st = HT_ERR_IO;
    } else if (fputs(text, r->file) == EOF || fputc('\n', r->file) == EOF || fflush(r->file)) {
        st = fail_system(err, r->path, "written");
    }
    free(text);
    return st;
}

static ht_status results_close(result_file *r, ht_error *err) {
    FILE *file = r->file;
    r->file = NULL;
    ht_json_decref(r->run);
    r->run = NULL;
    return file && fclose(file) ? fail_system(err, r->path, "written") : HT_OK;
}

ht_json *many_result(many *m, size_t i, const char *error) {
    ht_json *value = ht_json_pack("{sI}", "index", (int64_t)many_index(m, i)),
            *id = prompts_id(&m->prompts, many_index(m, i));
    if (value && id) ht_json_object_set(value, "id", id);
    ht_json_decref(id);
    if (value && error) ht_json_object_set_new(value, "error", ht_json_stringn(error, strlen(error)));
    return value;
}

/* ---- a command ---- */

enum { EXPECTED_TOKENS = 512 };

static ht_status open_model(many *m, ht_error *err) {
    const options *o = m->o;
    const ht_status st = engine_open_model(&m->e, o, EXPECTED_TOKENS, err);
    if (st || !o->system || ht_chat_format_name(m->e.model)) return st;
    return ht_fail(err, HT_ERR_ARGUMENT, "--system needs a chat format, and %.300s has none", o->model);
}

/* Options that do not affect results; all others belong to the run's record. */
static const char *const without_effect[] = {"prompts", "out", "force", "cache-file",   "threads", "context", "slots",
                                             "device",  "cpu", "json",  "packed-cache", "quiet",   "help",    NULL};

/* The record of a run, without its model. */
static ht_json *describe_run(const many *m) {
    char prompts[32];
    snprintf(prompts, sizeof prompts, "%016llx", (unsigned long long)m->prompts.hash);
    return ht_json_pack("{ss ss so}", "command", m->o->command->name, "prompts", prompts, "options",
                        options_values(m->o, without_effect));
}

/* Checks existing results before the model is loaded, and again with the model's fingerprint. */
static ht_status open_results(many *m, ht_error *err) {
    char model[HT_FINGERPRINT_SIZE];
    ht_status st = results_open(m->o->out, m->prompts.n, m->o->force, &m->results, err);
    if (st) return st;
    ht_json *run = describe_run(m);
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

int many_open(many *m, const options *o) {
    *m = (many){.o = o};
    if (!o->prompts) return usage_error(o, "--prompts FILE is needed");
    ht_error err = {0};
    ht_status st = prompts_open(o->prompts, &m->prompts, &err);
    if (!st) st = o->out ? open_results(m, &err) : open_model(m, &err);
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
    progress_show((double)(m->results.done + m->done) / (double)m->prompts.n, &m->shown);
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
