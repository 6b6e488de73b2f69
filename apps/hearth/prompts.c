#include "prompts.h"

#include "base/grow.h"
#include "chat/reader.h"
#include "fail.h"
#include "input.h"
#include "json.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static ht_status no_memory(ht_error *err) { return fail_memory(err, "the prompts"); }

/* ---- the index ---- */

static bool is_blank(const char *line, ssize_t n) {
    for (ssize_t i = 0; i < n; i++)
        if (!strchr(" \t\r\n", line[i]) || !line[i]) return false;
    return true;
}

static ht_status add_line(prompt_file *p, off_t at, size_t number, ht_error *err) {
    if (!HT_GROW_ONE(p->offset, p->n) || !HT_GROW_ONE(p->number, p->n)) return no_memory(err);
    p->offset[p->n] = at;
    p->number[p->n++] = number;
    return HT_OK;
}

/* FNV-1a of the line without its newline, so that CRLF makes no difference. */
static void add_hash(prompt_file *p, const char *line, size_t n) {
    while (n && (line[n - 1] == '\n' || line[n - 1] == '\r')) n--;
    if (!p->n) p->hash = 0xcbf29ce484222325u;
    for (size_t i = 0; i <= n; i++) p->hash = (p->hash ^ (i < n ? (unsigned char)line[i] : '\n')) * 0x100000001b3u;
}

static ht_status make_index(prompt_file *p, ht_error *err) {
    static const char mark[] = "\xEF\xBB\xBF"; /* byte order mark */
    char *line = NULL;
    size_t room = 0, number = 0;
    ht_status st = HT_OK;
    off_t at = 0;
    for (ssize_t n; !st && (n = getline(&line, &room, p->file)) >= 0; at += n) {
        const size_t skipped = !number++ && n >= 3 && !memcmp(line, mark, strlen(mark)) ? strlen(mark) : 0;
        const char *text = line + skipped;
        if (is_blank(text, n - (ssize_t)skipped)) continue;
        if (!p->n) p->jsonl = ht_ends_with(p->path, ".jsonl") || text[strspn(text, " \t")] == '{';
        add_hash(p, text, (size_t)n - skipped);
        st = add_line(p, at + (off_t)skipped, number, err);
    }
    if (!st && ferror(p->file)) st = ht_fail(err, HT_ERR_IO, "%.300s cannot be read: %s", p->path, strerror(errno));
    if (!st && !p->n) st = ht_fail(err, HT_ERR_ARGUMENT, "%.300s holds no prompt", p->path);
    free(line);
    return st;
}

/* Standard input can be read only once, but lines are read by offset: copies it to a temporary file. */
static ht_status keep_input(prompt_file *p, ht_error *err) {
    char *text;
    size_t n;
    ht_status st = input_read_all("the prompts", &text, &n, err);
    if (st) return st;
    p->path = "standard input";
    p->file = tmpfile();
    if (!p->file || fwrite(text, 1, n, p->file) != n || fflush(p->file))
        st = ht_fail(err, HT_ERR_IO, "standard input cannot be kept in a temporary file: %s", strerror(errno));
    else
        rewind(p->file);
    free(text);
    return st;
}

ht_status prompts_open(const char *path, prompt_file *out, ht_error *err) {
    *out = (prompt_file){.path = path};
    if (strcmp(path, "-") == 0) {
        ht_status st = keep_input(out, err);
        if (st) return st;
    } else if (!(out->file = fopen(path, "re"))) {
        return ht_fail(err, HT_ERR_IO, "%.300s cannot be read: %s", path, strerror(errno));
    }
    return make_index(out, err);
}

void prompts_close(prompt_file *p) {
    if (p->file) fclose(p->file);
    free(p->offset);
    free(p->number);
    *p = (prompt_file){0};
}

ht_status prompts_fail(const prompt_file *p, size_t i, ht_status status, ht_error *err) {
    ht_error inner = *err;
    return ht_fail(err, status, "%.200s: line %zu: %.500s", p->path, p->number[i], inner.message);
}

/* ---- a line ---- */

void prompt_line_clear(prompt_line *line) {
    ht_json_decref(line->object);
    ht_chat_free(line->chat);
    free(line->text);
    free(line->ids);
    *line = (prompt_line){0};
}

ht_prompt prompt_of(const prompt_line *line) {
    return (ht_prompt){.ids = line->ids, .n_ids = line->n_ids, .text = line->text, .chat = line->chat};
}

ht_status prompt_ids(const ht_json *list, int32_t **ids, size_t *n, ht_error *err) {
    *n = ht_json_array_size(list);
    *ids = malloc(*n * sizeof **ids + 1);
    if (!*ids) return no_memory(err);
    for (size_t i = 0; i < *n; i++) {
        const ht_json *id = ht_json_array_get(list, i);
        const int64_t value = ht_json_integer_value(id);
        if (!ht_json_is_integer(id) || value < 0 || value > INT32_MAX) {
            free(*ids);
            *ids = NULL;
            return ht_fail(err, HT_ERR_ARGUMENT, "entry %zu of a list of ids is no token id", i);
        }
        (*ids)[i] = (int32_t)value;
    }
    return HT_OK;
}

static bool is_prompt_member(const char *name) {
    static const char *const names[] = {"prompt", "messages", "tools", "chat_template_kwargs", "continue_final_message",
                                        "ids",    "id"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(name, names[i]) == 0) return true;
    return false;
}

static ht_status check_members(ht_json *object, prompt_member *is_other, ht_error *err) {
    const char *name;
    ht_json *value;
    ht_json_object_foreach(object, name, value) if (!is_prompt_member(name) && !(is_other && is_other(name))) {
        char shown[100];
        snprintf(shown, sizeof shown, "%s", name);
        return ht_fail(err, HT_ERR_ARGUMENT, "unknown field \"%s\"", shown);
    }
    const bool text = ht_json_object_get(object, "prompt"), chat = ht_json_object_get(object, "messages"),
               ids = ht_json_object_get(object, "ids");
    if (text + chat + ids != 1)
        return ht_fail(err, HT_ERR_ARGUMENT,
                       "it has %d of the fields \"prompt\", \"messages\" and \"ids\", expected one", text + chat + ids);
    return HT_OK;
}

static ht_status read_messages(const ht_json *object, const char *name, ht_chat **chat, ht_error *err) {
    static const char *const members[] = {"messages", "tools", "chat_template_kwargs", "continue_final_message"};
    ht_json *conversation = ht_json_new_object();
    for (int i = 0; conversation && i < 4; i++)
        if (ht_json_object_get(object, members[i]))
            ht_json_object_set(conversation, members[i], ht_json_object_get(object, members[i]));
    const ht_status st = conversation ? ht_chat_from_value(conversation, name, chat, err) : no_memory(err);
    ht_json_decref(conversation);
    return st;
}

/* Makes a text a one-message conversation, or keeps it raw if `without` says why there is no chat format. */
static ht_status read_text(const options *o, const char *without, const char *text, prompt_line *line, ht_error *err) {
    if (without) {
        line->text = strdup(text);
        return line->text ? HT_OK : no_memory(err);
    }
    ht_status st = ht_chat_new(&line->chat, err);
    if (!st && o->system) st = ht_chat_add(line->chat, "system", o->system, err);
    return st ? st : ht_chat_add(line->chat, "user", text, err);
}

static ht_status read_object(const options *o, const char *without, prompt_member *is_other, const char *path,
                             prompt_line *line, bool *placed, ht_error *err) {
    ht_status st = check_members(line->object, is_other, err);
    if (st) return st;
    const ht_json *text = ht_json_object_get(line->object, "prompt"), *ids = ht_json_object_get(line->object, "ids");
    if (text && !ht_json_is_string(text)) return ht_fail(err, HT_ERR_ARGUMENT, "\"prompt\" is no string");
    if (text) return read_text(o, without, ht_json_string_value(text), line, err);
    if (ids && !ht_json_is_array(ids)) return ht_fail(err, HT_ERR_ARGUMENT, "\"ids\" is no list");
    if (ids) return prompt_ids(ids, &line->ids, &line->n_ids, err);
    if (without) return ht_fail(err, HT_ERR_ARGUMENT, "messages need a chat format, which %s", without);
    st = read_messages(line->object, path, &line->chat, err);
    *placed = st != HT_OK;
    return st;
}

/* Reads line i as an object, or as a text without its newline, of which the caller frees both. *placed: the error already
 * names file and line. */
static ht_status load_line(prompt_file *p, size_t i, ht_json **object, char **text, bool *placed, ht_error *err) {
    size_t room = 0;
    ht_status st = HT_OK;
    const ssize_t got = fseeko(p->file, p->offset[i], SEEK_SET) ? -1 : getline(text, &room, p->file);
    if (got < 0) return ht_fail(err, HT_ERR_IO, "cannot be read any more");
    if (p->jsonl) {
        const ht_json_options json = {.name = p->path, .first_line = (uint32_t)p->number[i]};
        st = ht_json_load(*text, (size_t)got, &json, object, err);
        *placed = st != HT_OK;
        return st;
    }
    size_t n = (size_t)got;
    while (n && ((*text)[n - 1] == '\n' || (*text)[n - 1] == '\r')) (*text)[--n] = '\0';
    return strlen(*text) == n ? HT_OK : ht_fail(err, HT_ERR_ARGUMENT, "it holds a NUL byte");
}

static ht_status read_line(prompt_file *p, size_t i, const options *o, const char *without, prompt_member *is_other,
                           prompt_line *line, bool *placed, ht_error *err) {
    char *bytes = NULL;
    ht_status st = load_line(p, i, &line->object, &bytes, placed, err);
    if (!st)
        st = line->object ? read_object(o, without, is_other, p->path, line, placed, err)
                          : read_text(o, without, bytes, line, err);
    free(bytes);
    return st;
}

ht_status prompts_read_text(prompt_file *p, size_t i, char **text, ht_error *err) {
    ht_json *object = NULL;
    bool placed = false;
    *text = NULL;
    ht_status st = load_line(p, i, &object, text, &placed, err);
    const char *own = ht_json_string_value(ht_json_object_get(object, "text"));
    if (object || st) {
        free(*text);
        *text = own ? strdup(own) : NULL;
    }
    if (!st && !*text) st = own ? no_memory(err) : ht_fail(err, HT_ERR_ARGUMENT, "\"text\" must be a string");
    ht_json_decref(object);
    return st && !placed ? prompts_fail(p, i, st, err) : st;
}

ht_status prompts_read(prompt_file *p, size_t i, const options *o, const ht_model *m, prompt_member *is_other,
                       prompt_line *line, ht_error *err) {
    prompt_line_clear(line);
    const char *without = !m                        ? "embeddings do not use"
                          : o->raw                  ? "--raw turns off"
                          : !ht_chat_format_name(m) ? "the model does not have"
                                                    : NULL;
    bool placed = false;
    const ht_status st = read_line(p, i, o, without, is_other, line, &placed, err);
    return st && !placed ? prompts_fail(p, i, st, err) : st;
}

ht_json *prompts_id(prompt_file *p, size_t i) {
    char *bytes = NULL;
    size_t room = 0;
    ht_json *id = NULL;
    const ssize_t got = !p->jsonl || fseeko(p->file, p->offset[i], SEEK_SET) ? -1 : getline(&bytes, &room, p->file);
    if (got > 0) {
        ht_json *object = ht_json_of(bytes, (size_t)got);
        id = ht_json_incref(ht_json_object_get(object, "id"));
        ht_json_decref(object);
    }
    free(bytes);
    return id;
}
