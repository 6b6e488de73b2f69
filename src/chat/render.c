/* The text that a chat template makes of a conversation, and its tokens. */
#include "base/error.h"
#include "chat/answer_formats.h"
#include "chat/conversation.h"
#include "chat/tools.h"
#include "models/model.h"
#include "template/eval.h"
#include "tokenizer/tokenizer.h"

#include <stdlib.h>
#include <string.h>

/* ---- messages as the template takes them ---- */

typedef struct preparation {
    ht_jinja_arena *a;
    const ht_chat_setup *setup;
    bool has_developer; /* the template knows the role */
    bool has_messages;  /* the template writes one message before that of a call */
    bool has_tools;     /* the template writes the tools of a system message, as JSON text */
    bool has_metadata;  /* the template writes a call as a message with metadata, and its result as an observation */
    const ht_tool_call_format *in_text; /* the template leaves calls to the text of messages; NULL: it does not */
} preparation;

static bool is_blank(const ht_jinja_string *s) { return strspn(s->text, " \t\r\n") == s->n; }

/* The object that the text of arguments is; the text itself when it is none. */
static ht_jinja_value object_of(ht_jinja_arena *a, ht_jinja_value text) {
    if (a->status) return text;
    ht_error *const err = a->err;
    a->err = NULL;
    ht_jinja_value v = ht_jinja_json_value(a, text.string->text, text.string->n, "the arguments");
    const bool memory = a->status == HT_ERR_MEMORY, object = !a->status && v.kind == HT_VALUE_DICT;
    a->status = HT_OK;
    a->err = err;
    if (memory) ht_jinja_arena_fail_as(a, HT_ERR_MEMORY, "out of memory for the arguments of a call");
    return object ? v : text;
}

/* The arguments of a call as an object, or as JSON text for a template that appends them to a text. A text that is no object stays. */
static ht_jinja_value arguments_for(const preparation *p, ht_jinja_value v) {
    const bool is_text = ht_jinja_is_string(v), blank = is_text && is_blank(v.string);
    if (p->a->status) return v;
    if (p->setup->text_arguments) {
        if (blank) return ht_jinja_text_value(p->a, "{}");
        return v.kind == HT_VALUE_DICT ? ht_jinja_string_value(ht_tool_json(p->a, v)) : v;
    }
    if (blank) return (ht_jinja_value){.kind = HT_VALUE_DICT, .dict = ht_jinja_dict_new(p->a)};
    return is_text ? object_of(p->a, v) : v;
}

static ht_jinja_value call_for(const preparation *p, ht_jinja_value call) {
    if (call.kind != HT_VALUE_DICT) return call;
    ht_jinja_dict *copy = ht_jinja_dict_new(p->a);
    for (size_t i = 0; i < call.dict->n && !p->a->status; i++) {
        ht_jinja_value v = call.dict->values[i];
        if (ht_jinja_string_is(call.dict->keys[i].string, "function")) v = call_for(p, v);
        if (ht_jinja_string_is(call.dict->keys[i].string, "arguments")) v = arguments_for(p, v);
        ht_jinja_dict_set(p->a, copy, call.dict->keys[i], v);
    }
    return (ht_jinja_value){.kind = HT_VALUE_DICT, .dict = copy};
}

static ht_jinja_value calls_for(const preparation *p, const ht_jinja_list *calls) {
    ht_jinja_list *copy = ht_jinja_list_new(p->a, calls->n);
    for (size_t i = 0; i < calls->n && !p->a->status; i++)
        ht_jinja_list_append(p->a, copy, call_for(p, calls->items[i]));
    return ht_jinja_list_value(HT_VALUE_LIST, copy);
}

static ht_jinja_value field_for(const preparation *p, const char *key, bool from_assistant, ht_jinja_value v) {
    if (strcmp(key, "content") == 0 && v.kind == HT_VALUE_NONE && !(from_assistant && p->setup->null_content))
        return ht_jinja_text_value(p->a, "");
    if (strcmp(key, "role") == 0 && !p->has_developer && ht_jinja_string_is(v.string, "developer"))
        return ht_jinja_text_value(p->a, "system");
    if (strcmp(key, "role") == 0 && p->has_metadata && ht_jinja_string_is(v.string, "tool"))
        return ht_jinja_text_value(p->a, "observation");
    return strcmp(key, "tool_calls") == 0 && v.kind == HT_VALUE_LIST ? calls_for(p, v.list) : v;
}

/* Reasoning with the text that follows it, where the template writes one of them before a call; else undefined. */
static ht_jinja_value joined_text(const preparation *p, const ht_jinja_dict *m, ht_jinja_value thinking) {
    const ht_jinja_value *content = ht_jinja_dict_find_text(m, "content", 7);
    ht_jinja_builder b = {.arena = p->a};
    if (!p->has_messages || !ht_jinja_is_string(thinking) || !content || !ht_jinja_is_string(*content) ||
        !content->string->n || !ht_jinja_dict_find_text(m, "tool_calls", 10))
        return ht_jinja_undefined();
    ht_jinja_put_string(&b, thinking.string);
    ht_jinja_put(&b, "\n\n", 2, true);
    ht_jinja_put_string(&b, content->string);
    return ht_jinja_string_value(ht_jinja_built(&b));
}

/* Reasoning gets both of its names, whichever of three it had. Other null fields are dropped, as in `transformers`. */
static ht_jinja_value message_for(const preparation *p, const ht_jinja_dict *m) {
    static const char *const names[] = {"reasoning_content", "thinking", "reasoning"};
    ht_jinja_dict *copy = ht_jinja_dict_new(p->a);
    const bool from_assistant = ht_jinja_string_is(ht_jinja_dict_find_text(m, "role", 4)->string, "assistant");
    const ht_jinja_value *thinking = NULL;
    for (int j = 0; j < 3 && (!thinking || thinking->kind == HT_VALUE_NONE); j++)
        thinking = ht_jinja_dict_find_text(m, names[j], strlen(names[j]));
    const bool any = thinking && thinking->kind != HT_VALUE_NONE;
    const ht_jinja_value joined = any ? joined_text(p, m, *thinking) : ht_jinja_undefined();
    const bool is_joined = joined.kind != HT_VALUE_UNDEFINED;
    if (is_joined) thinking = &joined;
    if (any) ht_jinja_dict_set_text(p->a, copy, "thinking", *thinking);
    for (size_t i = 0; i < m->n && !p->a->status; i++) {
        const char *key = m->keys[i].string->text;
        if (m->values[i].kind == HT_VALUE_NONE && strcmp(key, "content") != 0) continue;
        ht_jinja_dict_set(p->a, copy, m->keys[i], field_for(p, key, from_assistant, m->values[i]));
    }
    if (any) ht_jinja_dict_set_text(p->a, copy, "reasoning_content", *thinking);
    if (is_joined) ht_jinja_dict_set_text(p->a, copy, "thinking", *thinking);
    if (is_joined) ht_jinja_dict_set_text(p->a, copy, "content", ht_jinja_text_value(p->a, ""));
    return (ht_jinja_value){.kind = HT_VALUE_DICT, .dict = copy};
}

/* A system message with descriptions of tools as JSON text. */
static ht_jinja_value with_tools(ht_jinja_arena *a, ht_jinja_value message, const ht_jinja_list *tools) {
    ht_jinja_list *all = ht_jinja_list_new(a, tools->n);
    for (size_t i = 0; i < tools->n && !a->status; i++)
        ht_jinja_list_append(a, all, *ht_tool_description(&tools->items[i]));
    const ht_jinja_string *json = a->status ? NULL : ht_tool_json(a, ht_jinja_list_value(HT_VALUE_LIST, all));
    if (json) ht_jinja_dict_set_text(a, message.dict, "tools", ht_jinja_string_value(json));
    return message;
}

static ht_jinja_value system_message(ht_jinja_arena *a) {
    ht_jinja_dict *d = ht_jinja_dict_new(a);
    ht_jinja_dict_set_text(a, d, "role", ht_jinja_text_value(a, "system"));
    ht_jinja_dict_set_text(a, d, "content", ht_jinja_text_value(a, ""));
    return (ht_jinja_value){.kind = HT_VALUE_DICT, .dict = d};
}

/* A call's name, and its arguments as JSON text. */
typedef struct written_call {
    const ht_jinja_string *name, *arguments;
} written_call;

static written_call written_call_of(ht_jinja_arena *a, const ht_jinja_value *call) {
    call = ht_tool_description(call);
    const ht_jinja_value *name = ht_tool_field(call, "name"), *arguments = ht_tool_field(call, "arguments");
    const bool is_text = arguments && ht_jinja_is_string(*arguments) && !is_blank(arguments->string);
    const bool is_object = arguments && arguments->kind == HT_VALUE_DICT;
    return (written_call){.name =
                              name && ht_jinja_is_string(*name) ? name->string : ht_jinja_string_new(a, "", 0, false),
                          .arguments = is_text                   ? arguments->string
                                       : is_object && !a->status ? ht_tool_json(a, *arguments)
                                                                 : ht_jinja_string_new(a, "{}", 2, false)};
}

/* Appends a message whose calls are messages: their metadata are the names, their contents the arguments. */
static void append_calls(const preparation *p, ht_jinja_list *all, ht_jinja_value message, const ht_jinja_list *calls) {
    const ht_jinja_value *content = ht_jinja_dict_find_text(message.dict, "content", 7);
    if (content && ht_jinja_is_string(*content) && content->string->n) ht_jinja_list_append(p->a, all, message);
    for (size_t i = 0; i < calls->n && !p->a->status; i++) {
        const written_call c = written_call_of(p->a, &calls->items[i]);
        ht_jinja_dict *d = ht_jinja_dict_new(p->a);
        if (p->a->status) return;
        ht_jinja_dict_set_text(p->a, d, "role", ht_jinja_text_value(p->a, "assistant"));
        ht_jinja_dict_set_text(p->a, d, "metadata", ht_jinja_string_value(c.name));
        ht_jinja_dict_set_text(p->a, d, "content", ht_jinja_string_value(c.arguments));
        ht_jinja_list_append(p->a, all, (ht_jinja_value){.kind = HT_VALUE_DICT, .dict = d});
    }
}

/* Whether names and arguments are all that a format's calls have. */
static bool can_write(const ht_tool_call_format *f) {
    if (!f || !f->open || f->at_start) return false;
    const char *const parts[] = {f->begin, f->call, f->separator, f->end};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        for (const char *at = parts[i]; at && (at = strchr(at, '%')); at += 2)
            if (!strchr("snam", at[1])) return false;
    return true;
}

/* Writes a part of a format; `call` may be NULL where it has no fields. White space is a space after commas and colons. */
static void put_part(ht_jinja_builder *b, const char *part, const written_call *call) {
    for (const char *at = part ? part : ""; *at;) {
        const size_t n = strcspn(at, "%");
        ht_jinja_put(b, at, n, false);
        at += n;
        if (!*at) return;
        if (strchr("sa", at[1]) && n && strchr(",:", at[-1])) ht_jinja_put(b, " ", 1, false);
        if (at[1] == 'n') ht_jinja_put_string(b, call->name);
        if (at[1] == 'a') ht_jinja_put_string(b, call->arguments);
        at += 2;
    }
}

/* Moves the calls of a message to the end of its text. */
static void put_calls_in_text(const preparation *p, ht_jinja_value message, const ht_jinja_list *calls) {
    const ht_tool_call_format *f = p->in_text;
    const ht_jinja_value *content = ht_jinja_dict_find_text(message.dict, "content", 7);
    const char *line = f->close && !f->begin ? "\n" : "";
    ht_jinja_builder b = {.arena = p->a};
    if (content && ht_jinja_is_string(*content) && content->string->n) {
        ht_jinja_put_string(&b, content->string);
        ht_jinja_put_text(&b, "\n");
    }
    for (size_t i = 0; i < calls->n && !p->a->status; i++) {
        const written_call call = written_call_of(p->a, &calls->items[i]);
        const bool first = i == 0 || !f->separator, last = i == calls->n - 1 || !f->separator;
        if (p->a->status) return;
        if (i && first) ht_jinja_put_text(&b, "\n");
        if (first) ht_jinja_put_text(&b, f->open);
        if (first) ht_jinja_put_text(&b, line);
        put_part(&b, first ? f->begin : f->separator, NULL);
        if (!first) ht_jinja_put_text(&b, " ");
        put_part(&b, f->call, &call);
        if (last) put_part(&b, f->end, NULL);
        if (last) ht_jinja_put_text(&b, line);
        if (last && f->close) ht_jinja_put_text(&b, f->close);
    }
    const ht_jinja_string *text = p->a->status ? NULL : ht_jinja_built(&b);
    if (text) ht_jinja_dict_set_text(p->a, message.dict, "content", ht_jinja_string_value(text));
}

static ht_jinja_value messages_for(ht_jinja_arena *a, const ht_chat_setup *setup, const ht_chat *chat) {
    const ht_jinja_list *messages = chat->messages;
    const ht_chat_template *t = setup->template;
    const ht_tool_call_format *format = ht_tool_call_format_of(ht_chat_template_source(t));
    const bool has_calls = ht_chat_template_mentions(t, "tool_calls");
    const preparation p = {
        .a = a,
        .setup = setup,
        .has_developer = ht_chat_template_mentions(t, "developer"),
        .has_messages = ht_message_format_of(ht_chat_template_source(t)),
        .has_tools = ht_chat_template_mentions(t, "message['tools']"),
        .has_metadata =
            !has_calls && ht_chat_template_mentions(t, "metadata") && ht_chat_template_mentions(t, "<|observation|>"),
        .in_text = !has_calls && !ht_message_format_of(ht_chat_template_source(t)) && can_write(format) ? format : NULL,
    };
    ht_jinja_list *all = ht_jinja_list_new(a, messages->n + 1);
    const ht_jinja_list *tools = p.has_tools && chat->tools.kind == HT_VALUE_LIST ? chat->tools.list : NULL;
    for (size_t i = 0; i < messages->n && !a->status; i++) {
        const ht_jinja_value v = message_for(&p, messages->items[i].dict);
        if (i == 0 && tools && tools->n && !a->status) {
            const bool is_system = ht_jinja_string_is(ht_jinja_dict_find_text(v.dict, "role", 4)->string, "system");
            const ht_jinja_value system = with_tools(a, is_system ? v : system_message(a), tools);
            if (!is_system) ht_jinja_list_append(a, all, system);
        }
        const ht_jinja_value *calls = has_calls || a->status ? NULL : ht_tool_field(&v, "tool_calls");
        const bool any = calls && calls->kind == HT_VALUE_LIST && calls->list->n;
        if (any && p.in_text) put_calls_in_text(&p, v, calls->list);
        if (any && p.has_metadata)
            append_calls(&p, all, v, calls->list);
        else
            ht_jinja_list_append(a, all, v);
    }
    return ht_jinja_list_value(HT_VALUE_LIST, all);
}

/* ---- variables ---- */

static void set_token(ht_jinja_arena *a, ht_jinja_dict *names, const char *name, const char *text) {
    if (text) ht_jinja_dict_set_text(a, names, name, ht_jinja_text_value(a, text));
}

/* After the last content, to find its end in the text: as transformers does, whose space shows whether the template trims. */
static const char tag[] = "CONTINUE_FINAL_MESSAGE_TAG ";
enum { TAG = sizeof tag - 1 };

static void tag_last(ht_jinja_arena *a, ht_jinja_value messages) {
    if (a->status) return;
    ht_jinja_value *content = ht_jinja_dict_find_text(messages.list->items[messages.list->n - 1].dict, "content", 7);
    ht_jinja_builder b = {.arena = a};
    if (!content || !ht_jinja_is_string(*content)) {
        ht_jinja_arena_fail_as(a, HT_ERR_ARGUMENT,
                               "the last message has no text, expected one that the answer continues");
        return;
    }
    ht_jinja_put_string(&b, content->string);
    ht_jinja_put(&b, tag, TAG, true);
    const ht_jinja_string *tagged = ht_jinja_built(&b);
    *content = ht_jinja_string_value(tagged);
}

/* Cuts the text where the last message's content ends. */
static ht_status cut_at_tag(ht_chat_text *out, ht_error *err) {
    char *text = out->text;
    size_t at = out->n;
    while (at && (at + TAG - 1 > out->n || memcmp(text + at, tag, TAG - 1) != 0)) at--;
    if (at + TAG - 1 > out->n || memcmp(text + at, tag, TAG - 1) != 0)
        return ht_fail(err, HT_ERR_ARGUMENT,
                       "the chat template does not write the end of the last message, which the answer would continue");
    if (text[at + TAG - 1] != ' ')
        while (at && strchr(" \t\r\n\f\v", text[at - 1])) at--;
    text[at] = '\0';
    out->n = at;
    while (out->n_runs > 1 && out->runs[out->n_runs - 2].end >= at) out->n_runs--;
    if (out->n_runs) out->runs[out->n_runs - 1].end = at;
    return HT_OK;
}

static void set_default(ht_jinja_arena *a, ht_jinja_dict *names, const char *name, ht_jinja_value v) {
    if (!a->status && !ht_jinja_dict_find_text(names, name, strlen(name))) ht_jinja_dict_set_text(a, names, name, v);
}

/* Other names of what is set, for templates with this text: SmolLM3's of the tools, Seed's and Cohere's of reasoning that is off. */
static void set_other_names(ht_jinja_arena *a, ht_jinja_dict *names, const ht_chat_template *t,
                            const ht_jinja_value *tools) {
    const ht_jinja_value *thinks = a->status ? NULL : ht_jinja_dict_find_text(names, "enable_thinking", 15);
    const bool is_off = thinks && thinks->kind == HT_VALUE_BOOL && !thinks->boolean;
    if (tools->kind == HT_VALUE_LIST && ht_chat_template_mentions(t, "xml_tools"))
        set_default(a, names, "xml_tools", *tools);
    if (is_off && ht_chat_template_mentions(t, "thinking_budget"))
        set_default(a, names, "thinking_budget", ht_jinja_integer(0));
    if (is_off && ht_chat_template_mentions(t, "reasoning is not undefined"))
        set_default(a, names, "reasoning", ht_jinja_boolean(false));
}

static void set_variables(ht_jinja_arena *a, ht_jinja_dict *names, const ht_chat_setup *setup, const char *bos,
                          const char *eos, const ht_chat *chat) {
    set_token(a, names, "bos_token", bos);
    set_token(a, names, "eos_token", eos);
    ht_jinja_dict_set_text(a, names, "add_generation_prompt", ht_jinja_boolean(true));
    for (size_t i = 0; i < chat->variables->n && !a->status; i++)
        ht_jinja_dict_set(a, names, chat->variables->keys[i], chat->variables->values[i]);
    const ht_jinja_value messages = messages_for(a, setup, chat);
    if (chat->continues) {
        tag_last(a, messages);
        ht_jinja_dict_set_text(a, names, "add_generation_prompt", ht_jinja_boolean(false));
    }
    ht_jinja_dict_set_text(a, names, "messages", messages);
    ht_jinja_dict_set_text(a, names, "tools", chat->tools);
    set_other_names(a, names, setup->template, &chat->tools);
}

/* ---- text and ids ---- */

static const ht_chat_setup *setup_of(const ht_chat_setup *setup, const ht_chat *chat) {
    return ht_chat_setup_for(setup, chat && chat->tools.kind == HT_VALUE_LIST);
}

const ht_chat_template *ht_chat_template_of(const ht_chat_setup *setup, const ht_chat *chat) {
    return setup_of(setup, chat)->template;
}

static ht_status fail_without_template(ht_error *err) {
    return ht_fail(
        err, HT_ERR_UNSUPPORTED,
        "the model has no chat template, and no format that its vocabulary would tell; give it the text as it is "
        "instead");
}

void ht_chat_text_free(const ht_chat_text *text) {
    free(text->text);
    free(text->runs);
}

ht_status ht_chat_write(const ht_chat_setup *setup, const char *bos, const char *eos, const ht_chat *chat,
                        ht_chat_text *out, ht_error *err) {
    *out = (ht_chat_text){0};
    setup = setup_of(setup, chat);
    if (!setup->name) return fail_without_template(err);
    if (!setup->template) return ht_fail(err, setup->error.status, "%s", setup->error.message);
    if (!chat->messages->n) return ht_fail(err, HT_ERR_ARGUMENT, "a conversation of no messages");
    ht_jinja_arena a = {.limit = SIZE_MAX / 4, .name = "the conversation", .err = err};
    ht_jinja_dict *names = ht_jinja_dict_new(&a);
    set_variables(&a, names, setup, bos, eos, chat);
    const ht_template_limits limits = {.now = chat->time};
    ht_status status = a.status;
    if (!status) status = ht_chat_template_render_values(setup->template, names, &limits, out, err);
    ht_jinja_arena_free(&a);
    if (status || !chat->continues) return status;
    status = cut_at_tag(out, err);
    if (!status) return HT_OK;
    ht_chat_text_free(out);
    *out = (ht_chat_text){0};
    return status;
}

static const char *piece_of(const ht_tokenizer *t, int32_t id) { return id >= 0 ? ht_tokenizer_piece(t, id) : NULL; }

ht_status ht_chat_write_with(const ht_chat_setup *setup, const ht_tokenizer *t, const ht_chat *chat, ht_chat_text *out,
                             ht_error *err) {
    const char *bos = t ? piece_of(t, ht_tokenizer_bos(t)) : NULL, *eos = t ? piece_of(t, ht_tokenizer_eos(t)) : NULL;
    return ht_chat_write(setup, bos, eos, chat, out, err);
}

ht_status ht_chat_write_for(const ht_model *m, const ht_chat *chat, ht_chat_text *out, ht_error *err) {
    *out = (ht_chat_text){0};
    const ht_status status = ht_model_need_tokenizer(m, err);
    return status ? status : ht_chat_write_with(&m->chat, m->tokenizer, chat, out, err);
}

ht_status ht_chat_encode_text(const ht_tokenizer *t, const ht_chat_text *text, unsigned flags, int32_t **ids,
                              size_t *n_ids, ht_error *err) {
    ht_chat_text as = *text;
    if (flags & HT_ENCODE_PARSE_SPECIAL) as.runs = NULL;
    /* A checkpoint's own template writes every special token itself. */
    unsigned how = HT_ENCODE_PARSE_SPECIAL;
    if (!ht_tokenizer_chat_template(t)) how |= HT_ENCODE_ADD_SPECIAL;
    return ht_tokenizer_encode_runs(t, &as, how, ids, n_ids, err);
}

ht_status ht_chat_format(const ht_model *m, const ht_chat *chat, char **text, ht_error *err) {
    ht_chat_text written;
    const ht_status status = ht_chat_write_for(m, chat, &written, err);
    *text = written.text;
    free(written.runs);
    return status;
}

ht_status ht_chat_encode(const ht_model *m, const ht_chat *chat, unsigned flags, int32_t **ids, size_t *n_ids,
                         ht_error *err) {
    *ids = NULL;
    *n_ids = 0;
    if (flags & ~(unsigned)HT_ENCODE_PARSE_SPECIAL)
        return ht_fail(err, HT_ERR_ARGUMENT,
                       "the flags 0x%x of a conversation: only HT_ENCODE_PARSE_SPECIAL means something", flags);
    ht_chat_text text;
    ht_status status = ht_chat_write_for(m, chat, &text, err);
    if (!status) status = ht_chat_encode_text(m->tokenizer, &text, flags, ids, n_ids, err);
    ht_chat_text_free(&text);
    return status;
}

/* ---- without a model ---- */

ht_status ht_chat_find_template(const ht_tokenizer *tokenizer, const ht_chat *chat, ht_chat_template **out,
                                ht_error *err) {
    ht_chat_setup all;
    ht_status status = ht_chat_detect_template(tokenizer, &all, err);
    ht_chat_setup *found = (ht_chat_setup *)(uintptr_t)setup_of(&all, chat);
    *out = NULL;
    if (!status && !found->name) status = fail_without_template(err);
    if (!status && !found->template) status = ht_fail(err, found->error.status, "%s", found->error.message);
    if (!status) {
        *out = found->template;
        found->template = NULL;
    }
    ht_chat_setup_free(&all);
    return status;
}

ht_status ht_chat_render(const ht_chat_template *t, const ht_tokenizer *tokenizer, const ht_chat *chat, char **text,
                         size_t *n, ht_error *err) {
    ht_chat_setup setup = {.name = "template", .template = (ht_chat_template *)(uintptr_t)t};
    ht_chat_text written;
    ht_chat_setup_probe(&setup);
    const ht_status status = ht_chat_write_with(&setup, tokenizer, chat, &written, err);
    *text = written.text;
    *n = written.n;
    free(written.runs);
    return status;
}

const char *ht_chat_format_name(const ht_model *m) { return m->chat.name; }
