#define _GNU_SOURCE
#include "results.h"

#include "json.h"
#include "terminal.h"

#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static ht_status cannot(const result_file *r, const char *what, ht_error *err) {
    snprintf(err->message, sizeof err->message, "%.300s cannot be %s: %s", r->path, what, strerror(errno));
    return err->status = HT_ERR_IO;
}

/* Whether the line is the next result; takes the record in the first one. */
static bool is_result(result_file *r, const char *line, size_t n) {
    ht_json *value = ht_json_of(line, n);
    const ht_json *of = ht_json_object_get(value, "index");
    const bool is = ht_json_is_integer(of) && ht_json_integer_value(of) == (int64_t)r->done;
    if (is && r->done == 0) r->run = ht_json_incref(ht_json_object_get(value, "run"));
    ht_json_decref(value);
    return is;
}

/* Counts the lines; what is behind the last whole one goes. */
static ht_status read_results(result_file *r, size_t n, ht_error *err) {
    char *line = NULL;
    size_t room = 0;
    off_t end = 0;
    ht_status st = HT_OK;
    for (ssize_t got; !st && (got = getline(&line, &room, r->file)) > 0 && line[got - 1] == '\n';) {
        if (r->done == n || !is_result(r, line, (size_t)got)) {
            snprintf(err->message, sizeof err->message,
                     "%.300s: line %zu is no result of the %zu prompt%s; use another file, or --force to replace it",
                     r->path, r->done + 1, n, plural(n));
            st = err->status = HT_ERR_ARGUMENT;
        }
        r->done += !st;
        end += got;
    }
    free(line);
    if (!st && ferror(r->file)) return cannot(r, "read", err);
    if (!st && (fseeko(r->file, end, SEEK_SET) || ftruncate(fileno(r->file), end))) return cannot(r, "written", err);
    return st;
}

ht_status results_open(const char *path, size_t n, bool replace, result_file *out, ht_error *err) {
    *out = (result_file){.path = path};
    if (!path) return HT_OK;
    out->file = fopen(path, replace ? "w+e" : "r+e");
    if (!out->file && errno == ENOENT) out->file = fopen(path, "w+e");
    return out->file ? read_results(out, n, err) : cannot(out, "opened", err);
}

static ht_status differs(const result_file *r, ht_error *err, const char *format, ...) HT_PRINTF(3, 4);
static ht_status differs(const result_file *r, ht_error *err, const char *format, ...) {
    char what[320];
    va_list args;
    va_start(args, format);
    vsnprintf(what, sizeof what, format, args);
    va_end(args);
    snprintf(err->message, sizeof err->message, "%.300s has results %s; use another file, or --force to replace it",
             r->path, what);
    return err->status = HT_ERR_ARGUMENT;
}

/* Names an option and its two values. */
static ht_status option_differs(const result_file *r, const char *name, const ht_json *was, const ht_json *is,
                                ht_error *err) {
    const unsigned flags = HT_JSON_COMPACT | HT_JSON_REAL_PRECISION(9);
    char *before = was ? ht_json_dump(was, flags) : NULL, *now = ht_json_dump(is, flags);
    const ht_status st = differs(r, err, "with %.60s %.100s, this command has %.100s", name, before ? before : "unset",
                                 now ? now : "another");
    free(before);
    free(now);
    return st;
}

ht_status results_check(const result_file *r, const ht_json *run, ht_error *err) {
    static const char *const fields[][2] = {
        {"command", "of another command"}, {"prompts", "of other prompts"}, {"model", "of another model"}};
    const ht_json *before = ht_json_object_get(r->run, "options"), *now = ht_json_object_get(run, "options");
    const char *name;
    ht_json *value;
    if (!r->done) return HT_OK;
    if (!r->run) return differs(r, err, "without a record of their prompts and options");
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
        const ht_json *is = ht_json_object_get(run, fields[i][0]);
        if (is && !ht_json_equal(ht_json_object_get(r->run, fields[i][0]), is))
            return differs(r, err, "%s", fields[i][1]);
    }
    ht_json_object_foreach((ht_json *)(uintptr_t)now, name, value) {
        const ht_json *was = ht_json_object_get(before, name);
        if (!ht_json_equal(was, value)) return option_differs(r, name, was, value, err);
    }
    return HT_OK;
}

ht_status results_write(result_file *r, ht_json *value, ht_error *err) {
    if (r->run && !r->done) ht_json_object_set(value, "run", r->run);
    ht_json_decref(r->run);
    r->run = NULL;
    char *text = ht_json_dump(value, HT_JSON_COMPACT | HT_JSON_REAL_PRECISION(9));
    ht_json_decref(value);
    if (!text) {
        snprintf(err->message, sizeof err->message, "out of memory for a result");
        return err->status = HT_ERR_MEMORY;
    }
    ht_status st = HT_OK;
    if (!r->file) { /* output_finish tells what went wrong */
        if (!output_write(text, strlen(text)) || !output_write("\n", 1) || !output_flush()) st = HT_ERR_IO;
    } else if (fputs(text, r->file) == EOF || fputc('\n', r->file) == EOF || fflush(r->file)) {
        st = cannot(r, "written", err);
    }
    free(text);
    return st;
}

ht_status results_close(result_file *r, ht_error *err) {
    FILE *file = r->file;
    r->file = NULL;
    ht_json_decref(r->run);
    r->run = NULL;
    return file && fclose(file) ? cannot(r, "written", err) : HT_OK;
}

ht_json *result_of(prompt_file *prompts, size_t index, const char *error) {
    ht_json *value = ht_json_pack("{sI}", "index", (int64_t)index), *id = prompts_id(prompts, index);
    if (value && id) ht_json_object_set(value, "id", id);
    ht_json_decref(id);
    if (value && error) ht_json_object_set_new(value, "error", ht_json_stringn(error, strlen(error)));
    return value;
}
