#define _GNU_SOURCE
#include "results.h"

#include "json.h"
#include "terminal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static ht_status cannot(const result_file *r, const char *what, ht_error *err) {
    snprintf(err->message, sizeof err->message, "%.300s cannot be %s: %s", r->path, what, strerror(errno));
    return err->status = HT_ERR_IO;
}

/* Whether the line is a result of that prompt. */
static bool is_result(const char *line, size_t n, size_t index) {
    json_t *value = json_loadb(line, n, 0, NULL);
    const json_t *of = json_object_get(value, "index");
    const bool is = json_is_integer(of) && json_integer_value(of) == (json_int_t)index;
    json_decref(value);
    return is;
}

/* Counts the lines; what is behind the last whole one goes. */
static ht_status read_results(result_file *r, size_t n, ht_error *err) {
    char *line = NULL;
    size_t room = 0;
    off_t end = 0;
    ht_status st = HT_OK;
    for (ssize_t got; !st && (got = getline(&line, &room, r->file)) > 0 && line[got - 1] == '\n';) {
        if (r->done == n || !is_result(line, (size_t)got, r->done)) {
            snprintf(err->message, sizeof err->message,
                     "%.300s: line %zu is no result of the %zu prompt%s: name another file, or move this one away",
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

ht_status results_open(const char *path, size_t n, result_file *out, ht_error *err) {
    *out = (result_file){.path = path};
    if (!path) return HT_OK;
    out->file = fopen(path, "r+e");
    if (!out->file && errno == ENOENT) out->file = fopen(path, "w+e");
    return out->file ? read_results(out, n, err) : cannot(out, "opened", err);
}

ht_status results_write(result_file *r, json_t *value, ht_error *err) {
    char *text = value ? json_dumps(value, JSON_COMPACT | JSON_REAL_PRECISION(9)) : NULL;
    json_decref(value);
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
    return file && fclose(file) ? cannot(r, "written", err) : HT_OK;
}

json_t *result_of(prompt_file *prompts, size_t index, const char *error) {
    json_t *value = json_pack("{sI}", "index", (json_int_t)index), *id = prompts_id(prompts, index);
    if (value && id) json_object_set(value, "id", id);
    json_decref(id);
    if (value && error) json_object_set_new(value, "error", json_text(error, strlen(error)));
    return value;
}
