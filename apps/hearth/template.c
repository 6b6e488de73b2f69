/* hearth template: a conversation as a chat template writes it. */
#include "command.h"
#include "engine.h"
#include "input.h"
#include "json.h"
#include "model_path.h"
#include "terminal.h"

#include <hearth/template.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_VARIABLES = 256 };

typedef struct variables {
    ht_template_variable items[MOST_VARIABLES];
    char *owned[MOST_VARIABLES]; /* their JSON, or NULL */
    size_t n;
} variables;

/* Takes the JSON over. */
static void add(variables *v, const char *name, char *json, size_t n) {
    v->items[v->n] = (ht_template_variable){name, json, n};
    v->owned[v->n++] = json;
}

static void add_text(variables *v, const char *name, const char *text) {
    ht_json *value = text && *text ? ht_json_stringn(text, strlen(text)) : NULL;
    char *json = value ? ht_json_dump(value, 0) : NULL;
    ht_json_decref(value);
    if (json) add(v, name, json, strlen(json));
}

static ht_status add_file(variables *v, const char *name, const char *path, ht_error *err) {
    char *text;
    size_t n;
    ht_status st = input_read_file(path, &text, &n, err);
    if (st) return st;
    bool is_list = text[strspn(text, " \t\r\n")] == '[';
    add(v, name || !is_list ? name : "messages", text, n);
    return HT_OK;
}

static ht_status add_set(variables *v, const string_list *set, ht_error *err) {
    for (int i = 0; i < set->n; i++) {
        const char *equals = strchr(set->items[i], '=');
        size_t n = equals ? (size_t)(equals - set->items[i]) : 0;
        if (!n || v->n + 2 >= MOST_VARIABLES) {
            snprintf(err->message, sizeof err->message,
                     n ? "--set %.100s: too many variables" : "--set is \"%.100s\", expected NAME=JSON", set->items[i]);
            return err->status = HT_ERR_ARGUMENT;
        }
        char *whole = strdup(set->items[i]);
        if (!whole) return err->status = HT_ERR_MEMORY;
        whole[n] = '\0';
        v->items[v->n] = (ht_template_variable){whole, whole + n + 1, strlen(whole + n + 1)};
        v->owned[v->n++] = whole;
    }
    return HT_OK;
}

/* The template of the checkpoint, and its tokens as variables. */
static ht_status read_model(const options *o, variables *v, ht_chat_template **t, ht_error *err) {
    char *path;
    ht_model_info *info = NULL;
    ht_tokenizer *tokenizer = NULL;
    ht_status st = model_path(o->model, &path, err);
    if (!st) st = ht_model_info_read(path, &info, err);
    if (!st) {
        add_text(v, "bos_token", info->bos);
        add_text(v, "eos_token", info->eos);
        st = ht_tokenizer_load(path, &tokenizer, err);
    }
    const char *source = tokenizer ? ht_tokenizer_chat_template(tokenizer) : NULL;
    if (!st && !source) {
        snprintf(err->message, sizeof err->message, "%.200s has no chat template; --template FILE gives one", o->model);
        st = err->status = HT_ERR_UNSUPPORTED;
    }
    if (!st) st = ht_chat_template_parse(source, strlen(source), "the chat template", t, err);
    ht_tokenizer_free(tokenizer);
    ht_model_info_free(info);
    free(path);
    return st;
}

static ht_status read_template(const options *o, ht_chat_template **t, ht_error *err) {
    char *source;
    size_t n;
    ht_status st = input_read_file(o->template_file, &source, &n, err);
    if (!st) st = ht_chat_template_parse(source, n, o->template_file, t, err);
    if (!st || source) free(source);
    return st;
}

/* ---- answers ---- */

typedef struct taken_apart {
    ht_json *thinking, *text, *calls; /* lists */
} taken_apart;

static bool on_piece(const ht_answer_piece *piece, void *user) {
    taken_apart *parts = user;
    if (piece->part != HT_ANSWER_CALL)
        return ht_json_array_append_new(piece->part == HT_ANSWER_TEXT ? parts->text : parts->thinking,
                                        ht_json_stringn(piece->text, piece->n)) == 0;
    ht_json *call = ht_json_pack("{ss ss}", "name", piece->call->name, "arguments", piece->call->arguments);
    if (call && piece->call->id) ht_json_object_set_new(call, "id", ht_json_string(piece->call->id));
    return ht_json_array_append_new(parts->calls, call) == 0;
}

/* The texts of a list as one. */
static ht_json *joined(ht_json *list) {
    size_t n = 0, i;
    ht_json *item;
    ht_json_array_foreach(list, i, item) n += ht_json_string_length(item);
    char *text = malloc(n + 1);
    if (!text) return NULL;
    n = 0;
    ht_json_array_foreach(list, i, item) {
        memcpy(text + n, ht_json_string_value(item), ht_json_string_length(item));
        n += ht_json_string_length(item);
    }
    ht_json *value = ht_json_stringn(text, n);
    free(text);
    return value;
}

static const ht_template_variable *variable(const variables *v, const char *name) {
    const ht_template_variable *found = NULL;
    for (size_t i = 0; i < v->n; i++)
        if (v->items[i].name && strcmp(v->items[i].name, name) == 0) found = &v->items[i];
    return found;
}

/* The member `tools` of the object that came as --messages, or NULL. */
static char *tools_of_messages(const variables *v) {
    char *tools = NULL;
    for (size_t i = 0; i < v->n && !tools; i++)
        if (!v->items[i].name) {
            ht_json *object = ht_json_of(v->items[i].json, v->items[i].n);
            ht_json *list = ht_json_object_get(object, "tools");
            if (ht_json_is_array(list)) tools = ht_json_dump(list, 0);
            ht_json_decref(object);
        }
    return tools;
}

static ht_status take_apart(const options *o, const ht_chat_template *t, const variables *v, const char *prompt,
                            ht_error *err) {
    char *text;
    size_t n;
    ht_status st = input_read_file(o->answer, &text, &n, err);
    if (st) return st;
    taken_apart parts = {ht_json_new_array(), ht_json_new_array(), ht_json_new_array()};
    const ht_template_variable *named = variable(v, "tools");
    char *of_messages = named ? NULL : tools_of_messages(v);
    const char *tools = named ? named->json : of_messages;
    const size_t n_tools = named ? named->n : of_messages ? strlen(of_messages) : 0;
    st = ht_chat_template_read_answer(t, tools, n_tools, prompt, text, n, on_piece, &parts, err);
    free(of_messages);
    if (!st)
        json_output(ht_json_pack("{so so sO}", "thinking", joined(parts.thinking), "text", joined(parts.text),
                                 "tool_calls", parts.calls));
    ht_json_decref(parts.thinking);
    ht_json_decref(parts.text);
    ht_json_decref(parts.calls);
    free(text);
    return st;
}

/* ---- the command ---- */

int template_command(const options *o) {
    if ((!o->messages && !o->answer) || (o->model && o->template_file)) {
        fprintf(stderr, "hearth template: %s (see hearth template --help)\n",
                o->messages || o->answer ? "a model has its own template: give MODEL or --template"
                                         : "--messages is needed: a file of JSON");
        return EXIT_USAGE;
    }
    ht_error err = {0};
    ht_chat_template *t = NULL;
    variables *v = calloc(1, sizeof *v);
    char *text = NULL;
    size_t n = 0;
    static char yes[] = "true", no[] = "false";
    ht_status st = v ? HT_OK : (snprintf(err.message, sizeof err.message, "out of memory"), HT_ERR_MEMORY);
    if (!st) st = o->template_file ? read_template(o, &t, &err) : read_model(o, v, &t, &err);
    if (!st) {
        const char *opens = o->no_generation_prompt ? no : yes;
        v->items[v->n++] = (ht_template_variable){"add_generation_prompt", opens, strlen(opens)};
        if (o->messages) st = add_file(v, NULL, o->messages, &err);
    }
    if (!st && o->tools) st = add_file(v, "tools", o->tools, &err);
    if (!st) st = add_set(v, &o->set, &err);
    if (!st && o->messages) st = ht_chat_template_render(t, v->items, v->n, &text, &n, &err);
    if (!st && o->answer)
        st = take_apart(o, t, v, text, &err);
    else if (!st && o->json)
        json_output(ht_json_pack("{so}", "text", ht_json_stringn(text, n)));
    else if (!st)
        output_write(text, n);
    ht_text_free(text);
    for (size_t i = 0; v && i < v->n; i++) free(v->owned[i]);
    free(v);
    ht_chat_template_free(t);
    return output_finish(st ? report(&err) : EXIT_OK);
}
