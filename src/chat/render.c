/* The text that a chat template makes of a conversation, and its tokens. */
#include "base/error.h"
#include "chat/conversation.h"
#include "models/model.h"
#include "tokenizer/tokenizer.h"

#include <stdlib.h>
#include <string.h>

/* ---- variables ---- */

static void set_token(ht_jinja_arena *a, ht_jinja_dict *names, const char *name, const char *text) {
    if (text) ht_jinja_dict_set_text(a, names, name, ht_jinja_text_value(a, text));
}

/* The messages, with the role "system" for "developer". */
static ht_jinja_value without_developer(ht_jinja_arena *a, const ht_jinja_list *messages) {
    ht_jinja_value copy =
        ht_jinja_copy(a, (ht_jinja_value){.kind = HT_VALUE_LIST, .list = (ht_jinja_list *)(uintptr_t)messages});
    for (size_t i = 0; i < messages->n && !a->status; i++) {
        ht_jinja_value *role = ht_jinja_dict_find_text(copy.list->items[i].dict, "role", 4);
        if (ht_jinja_string_is(role->string, "developer")) *role = ht_jinja_text_value(a, "system");
    }
    return copy;
}

/* After the last content, to find its end in the text: as transformers does, whose space shows whether the template trims. */
static const char tag[] = "CONTINUE_FINAL_MESSAGE_TAG ";
enum { TAG = sizeof tag - 1 };

static ht_jinja_value with_tag(ht_jinja_arena *a, ht_jinja_value messages) {
    ht_jinja_value copy = ht_jinja_copy(a, messages);
    if (a->status) return copy;
    ht_jinja_value *content = ht_jinja_dict_find_text(copy.list->items[copy.list->n - 1].dict, "content", 7);
    ht_jinja_builder b = {.arena = a};
    if (!content || !ht_jinja_is_string(*content)) {
        ht_jinja_arena_fail_as(a, HT_ERR_ARGUMENT,
                               "the last message has no text, expected one that the answer continues");
        return copy;
    }
    ht_jinja_put_string(&b, content->string);
    ht_jinja_put(&b, tag, TAG, true);
    const ht_jinja_string *tagged = ht_jinja_built(&b);
    *content = ht_jinja_string_value(tagged);
    return copy;
}

/* Cuts the text where the last message's content ends. */
static ht_status cut_at_tag(char *text, size_t *n, ht_text_run *runs, size_t *n_runs, ht_error *err) {
    size_t at = *n;
    while (at && (at + TAG - 1 > *n || memcmp(text + at, tag, TAG - 1) != 0)) at--;
    if (at + TAG - 1 > *n || memcmp(text + at, tag, TAG - 1) != 0)
        return ht_fail(err, HT_ERR_ARGUMENT,
                       "the chat template does not write the end of the last message, which the answer would continue");
    if (text[at + TAG - 1] != ' ')
        while (at && strchr(" \t\r\n\f\v", text[at - 1])) at--;
    text[at] = '\0';
    *n = at;
    while (*n_runs > 1 && runs[*n_runs - 2].end >= at) --*n_runs;
    if (*n_runs) runs[*n_runs - 1].end = at;
    return HT_OK;
}

static void set_variables(ht_jinja_arena *a, ht_jinja_dict *names, const ht_chat_setup *setup, const char *bos,
                          const char *eos, const ht_chat *chat) {
    set_token(a, names, "bos_token", bos);
    set_token(a, names, "eos_token", eos);
    ht_jinja_dict_set_text(a, names, "add_generation_prompt", ht_jinja_boolean(true));
    for (size_t i = 0; i < chat->variables->n && !a->status; i++)
        ht_jinja_dict_set(a, names, chat->variables->keys[i], chat->variables->values[i]);
    ht_jinja_value messages = {.kind = HT_VALUE_LIST, .list = chat->messages};
    if (!ht_chat_template_mentions(setup->template, "developer")) messages = without_developer(a, chat->messages);
    if (chat->continues) {
        messages = with_tag(a, messages);
        ht_jinja_dict_set_text(a, names, "add_generation_prompt", ht_jinja_boolean(false));
    }
    ht_jinja_dict_set_text(a, names, "messages", messages);
    ht_jinja_dict_set_text(a, names, "tools", chat->tools);
}

/* ---- text and ids ---- */

ht_status ht_chat_write(const ht_chat_setup *setup, const char *bos, const char *eos, const ht_chat *chat, char **text,
                        size_t *n, ht_text_run **runs, size_t *n_runs, ht_error *err) {
    *text = NULL;
    *runs = NULL;
    if (!setup->name)
        return ht_fail(err, HT_ERR_UNSUPPORTED,
                       "the model has no chat template, and no format that its vocabulary would tell; give it the text "
                       "as it is instead");
    if (!setup->template) return ht_fail(err, setup->error.status, "%s", setup->error.message);
    if (!chat->messages->n) return ht_fail(err, HT_ERR_ARGUMENT, "a conversation of no messages");
    ht_jinja_arena a = {.limit = SIZE_MAX / 4, .name = "the conversation", .err = err};
    ht_jinja_dict *names = ht_jinja_dict_new(&a);
    set_variables(&a, names, setup, bos, eos, chat);
    const ht_template_limits limits = {.now = chat->time};
    ht_status status = a.status;
    if (!status) status = ht_chat_template_render_values(setup->template, names, &limits, text, n, runs, n_runs, err);
    ht_jinja_arena_free(&a);
    if (status || !chat->continues) return status;
    status = cut_at_tag(*text, n, *runs, n_runs, err);
    if (!status) return HT_OK;
    free(*text);
    free(*runs);
    *text = NULL;
    *runs = NULL;
    return status;
}

static const char *piece_of(const ht_tokenizer *t, int32_t id) { return id >= 0 ? ht_tokenizer_piece(t, id) : NULL; }

ht_status ht_chat_write_for(const ht_model *m, const ht_chat *chat, char **text, size_t *n, ht_text_run **runs,
                            size_t *n_runs, ht_error *err) {
    const ht_tokenizer *t = m->tokenizer;
    ht_status status = ht_model_need_tokenizer(m, err);
    if (status) return status;
    return ht_chat_write(&m->chat, piece_of(t, ht_tokenizer_bos(t)), piece_of(t, ht_tokenizer_eos(t)), chat, text, n,
                         runs, n_runs, err);
}

ht_status ht_chat_encode_runs(const ht_tokenizer *t, const char *text, size_t n, const ht_text_run *runs, size_t n_runs,
                              unsigned flags, int32_t **ids, size_t *n_ids, ht_error *err) {
    const bool whole = flags & HT_ENCODE_PARSE_SPECIAL;
    /* A template of its own has written all the special tokens that it wants. */
    unsigned how = HT_ENCODE_PARSE_SPECIAL;
    if (!ht_tokenizer_chat_template(t)) how |= HT_ENCODE_ADD_SPECIAL;
    return ht_tokenizer_encode_runs(t, text, n, whole ? NULL : runs, whole ? 0 : n_runs, how, ids, n_ids, err);
}

ht_status ht_chat_encode_text(const ht_model *m, const char *text, size_t n, const ht_text_run *runs, size_t n_runs,
                              unsigned flags, int32_t **ids, size_t *n_ids, ht_error *err) {
    return ht_chat_encode_runs(m->tokenizer, text, n, runs, n_runs, flags, ids, n_ids, err);
}

ht_status ht_chat_format(const ht_model *m, const ht_chat *chat, char **text, ht_error *err) {
    ht_text_run *runs = NULL;
    size_t n, n_runs;
    *text = NULL;
    ht_status status = ht_chat_write_for(m, chat, text, &n, &runs, &n_runs, err);
    free(runs);
    return status;
}

ht_status ht_chat_encode(const ht_model *m, const ht_chat *chat, unsigned flags, int32_t **ids, size_t *n_ids,
                         ht_error *err) {
    *ids = NULL;
    *n_ids = 0;
    if (flags & ~(unsigned)HT_ENCODE_PARSE_SPECIAL)
        return ht_fail(err, HT_ERR_ARGUMENT,
                       "the flags 0x%x of a conversation: only HT_ENCODE_PARSE_SPECIAL means something", flags);
    char *text = NULL;
    ht_text_run *runs = NULL;
    size_t n, n_runs;
    ht_status status = ht_chat_write_for(m, chat, &text, &n, &runs, &n_runs, err);
    if (!status) status = ht_chat_encode_text(m, text, n, runs, n_runs, flags, ids, n_ids, err);
    free(text);
    free(runs);
    return status;
}

const char *ht_chat_format_name(const ht_model *m) { return m->chat.name; }
