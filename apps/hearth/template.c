/* hearth template: renders a conversation with a chat template. */
#include "command.h"
#include "conversation.h"
#include "engine.h"
#include "input.h"
#include "json.h"
#include "terminal.h"

#include <hearth/template.h>
#include <hearth/tokenizer.h>

#include <stdlib.h>
#include <string.h>

static ht_status read_template(const options *o, ht_chat_template **t, ht_error *err) {
    char *source;
    size_t n;
    ht_status st = input_read_file(o->template_file, &source, &n, err);
    if (st) return st;
    st = ht_chat_template_parse(source, n, o->template_file, t, err);
    free(source);
    return st;
}

/* ---- answers ---- */

typedef struct taken_apart {
    ht_text thinking, text;
    ht_json *calls; /* a list */
} taken_apart;

static bool on_piece(const ht_answer_piece *piece, void *user) {
    taken_apart *parts = user;
    if (piece->part != HT_ANSWER_CALL) {
        ht_text *to = piece->part == HT_ANSWER_TEXT ? &parts->text : &parts->thinking;
        ht_text_append(to, piece->text, piece->n);
        return !to->failed;
    }
    ht_json *call = ht_json_pack("{ss ss ss*}", "name", piece->call->name, "arguments", piece->call->arguments, "id",
                                 piece->call->id);
    return ht_json_array_append_new(parts->calls, call) == 0;
}

static ht_status take_apart(const options *o, const ht_chat_template *t, const ht_chat *chat, const char *prompt,
                            ht_error *err) {
    char *text;
    size_t n;
    ht_status st = input_read_file(o->answer, &text, &n, err);
    if (st) return st;
    taken_apart parts = {.calls = ht_json_new_array()};
    st = ht_chat_read_answer(chat, t, prompt, text, n, on_piece, &parts, err);
    if (!st)
        json_output(ht_json_pack("{so so sO}", "thinking", ht_json_stringn(parts.thinking.data, parts.thinking.len),
                                 "text", ht_json_stringn(parts.text.data, parts.text.len), "tool_calls", parts.calls));
    ht_text_discard(&parts.thinking);
    ht_text_discard(&parts.text);
    ht_json_decref(parts.calls);
    free(text);
    return st;
}

/* ---- the command ---- */

/* Builds the conversation as hearth run does and renders it; *text is NULL without a conversation. */
static ht_status render(const options *o, ht_chat **chat, ht_chat_template **t, char **text, size_t *n, ht_error *err) {
    ht_tokenizer *tokenizer = NULL;
    ht_status st = o->model ? engine_tokenizer(o, &tokenizer, err) : read_template(o, t, err);
    if (!st) st = conversation_of(o, o->arguments.n ? o->arguments.items[0] : "", chat, err);
    if (!st && o->no_generation_prompt) st = ht_chat_set_variable(*chat, "add_generation_prompt", "false", 5, err);
    if (!st && o->model) st = ht_chat_find_template(tokenizer, *chat, t, err);
    if (!st && (o->messages || o->arguments.n)) st = ht_chat_render(*t, tokenizer, *chat, text, n, err);
    ht_tokenizer_free(tokenizer);
    return st;
}

int template_command(const options *o) {
    if (o->model && o->template_file) return usage_error(o, "a model has its own template: give MODEL or --template");
    if (!o->messages && !o->answer && !o->arguments.n) return usage_error(o, "--messages is needed: a file of JSON");
    if (o->messages && o->system) return usage_error(o, "--system and --messages exclude each other");
    ht_error err = {0};
    ht_chat *chat = NULL;
    ht_chat_template *t = NULL;
    char *text = NULL;
    size_t n = 0;
    ht_status st = render(o, &chat, &t, &text, &n, &err);
    if (!st && o->answer)
        st = take_apart(o, t, chat, text, &err);
    else if (!st && o->json)
        json_output(ht_json_pack("{so}", "text", ht_json_stringn(text, n)));
    else if (!st)
        output_write(text, n);
    ht_text_free(text);
    ht_chat_template_free(t);
    ht_chat_free(chat);
    return output_finish(st ? report(&err) : EXIT_OK);
}
