#include "train/sample.h"

#include "base/error.h"
#include "base/grow.h"
#include "base/plural.h"
#include "models/model.h"
#include "template/eval.h"
#include "train/sample_chat.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { NOT_LEARNED = -100 }; /* the label that says so */

/* A line on its way to a sample. */
typedef struct reading {
    const ht_model *m;
    const ht_sample_options *o;
    ht_chat *chat; /* whose arena holds the line's values */
    ht_jinja_arena *a;
    const ht_jinja_dict *line;
    ht_sample *out;
    ht_error *err;
} reading;

/* ---- samples ---- */

void ht_sample_free(ht_sample *s) {
    free(s->id);
    free(s->learned);
    *s = (ht_sample){0};
}

bool ht_sample_is_stop(const ht_model *m, int32_t id) {
    for (int i = 0; i < m->n_stop_ids; i++)
        if (m->stop_ids[i] == id) return true;
    return false;
}

ht_status ht_sample_take_ids(ht_sample *s, int32_t *ids, size_t n, ht_error *err) {
    s->id = ids;
    if (n > INT32_MAX)
        return ht_fail(err, HT_ERR_LIMIT, "it has %zu token%s, at most %d make sense", n, ht_plural(n), INT32_MAX);
    s->n = (int32_t)n;
    s->learned = calloc(n + 1, sizeof *s->learned);
    return s->learned ? HT_OK : ht_fail_memory(err, n, "a sample");
}

static void count_learned(const ht_model *m, ht_sample *s) {
    s->n_learned = 0;
    s->learns_stop = false;
    if (s->n) s->learned[0] = false;
    for (int32_t i = 0; i < s->n; i++) {
        s->n_learned += s->learned[i];
        s->learns_stop = s->learns_stop || (s->learned[i] && ht_sample_is_stop(m, s->id[i]));
    }
}

void ht_sample_truncate(const ht_model *m, ht_sample *s, int32_t n) {
    if (s->n <= n) return;
    s->n = n;
    s->truncated = true;
    count_learned(m, s);
}

static void learn_from(ht_sample *s, size_t first) {
    for (size_t i = first; i < (size_t)s->n; i++) s->learned[i] = true;
}

/* ---- members of a line ---- */

/* NULL when the member is absent or null. */
static const ht_jinja_value *member(const reading *r, const char *key) {
    const ht_jinja_value *v = ht_jinja_dict_find_text(r->line, key, strlen(key));
    return v && v->kind != HT_VALUE_NONE ? v : NULL;
}

static const ht_jinja_string *text_member(const reading *r, const char *key) {
    const ht_jinja_value *v = member(r, key);
    if (v && ht_jinja_is_string(*v)) return v->string;
    ht_fail(r->err, HT_ERR_FORMAT, "`%s` is %s, expected a string%s", key, ht_chat_describe(v),
            v && v->kind == HT_VALUE_LIST ? "; a conversation is given as `messages`" : "");
    return NULL;
}

/* ---- conversations ---- */

/* Calls of functions as they were before there were tools would be lost without a word: templates do not know them. */
static ht_status refuse_functions(const reading *r) {
    if (member(r, "functions")) return ht_fail(r->err, HT_ERR_UNSUPPORTED, "it has `functions`, expected `tools`");
    for (size_t i = 0; i < r->chat->messages->n; i++) {
        const ht_jinja_value *call = ht_jinja_dict_find_text(r->chat->messages->items[i].dict, "function_call", 13);
        if (call && call->kind != HT_VALUE_NONE)
            return ht_fail(r->err, HT_ERR_UNSUPPORTED, "message %zu has a `function_call`, expected `tool_calls`", i);
    }
    return HT_OK;
}

static ht_status read_chat(const reading *r, ht_jinja_value messages) {
    static const char *const others[] = {"tools", "chat_template_kwargs"};
    ht_jinja_dict *document = ht_jinja_dict_new(r->a);
    ht_jinja_dict_set_text(r->a, document, "messages", messages);
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (member(r, others[i])) ht_jinja_dict_set_text(r->a, document, others[i], *member(r, others[i]));
    ht_status status = r->a->status ? r->a->status : ht_chat_read(r->chat, document, r->err);
    if (!status) status = refuse_functions(r);
    ht_chat_set_time(r->chat, r->o->time);
    return status ? status : ht_sample_of_chat(r->m, r->chat, r->o, r->out, r->err);
}

static void append_message(ht_jinja_arena *a, ht_jinja_list *to, const char *role, const ht_jinja_string *content) {
    ht_jinja_value message = {.kind = HT_VALUE_DICT, .dict = ht_jinja_dict_new(a)};
    ht_jinja_dict_set_text(a, message.dict, "role", ht_jinja_text_value(a, role));
    ht_jinja_dict_set_text(a, message.dict, "content", ht_jinja_string_value(content));
    ht_jinja_list_append(a, to, message);
}

/* ---- texts ---- */

/* The ids of a text as ht_generate_text encodes it. */
static ht_status encode(const reading *r, const char *text, size_t n, int32_t **ids, size_t *n_ids) {
    return ht_tokenizer_encode(r->m->tokenizer, text, n, HT_ENCODE_PARSE_SPECIAL | HT_ENCODE_ADD_SPECIAL, ids, n_ids,
                               r->err);
}

/* The ids of the text become the sample's, with EOS behind them unless they end in a token that ends generation. */
static ht_status take_text(const reading *r, const char *text, size_t n) {
    int32_t *ids;
    size_t n_ids;
    ht_status status = encode(r, text, n, &ids, &n_ids);
    if (status) return status;
    const int32_t eos = ht_tokenizer_eos(r->m->tokenizer);
    if (eos >= 0 && !(n_ids && ht_sample_is_stop(r->m, ids[n_ids - 1]))) {
        if (!HT_RESIZE(ids, n_ids + 1)) {
            free(ids);
            return ht_fail_memory(r->err, (n_ids + 1) * sizeof *ids, "a sample");
        }
        ids[n_ids++] = eos;
    }
    return ht_sample_take_ids(r->out, ids, n_ids, r->err);
}

static ht_status read_text(const reading *r) {
    const ht_jinja_string *text = text_member(r, "text");
    if (!text) return HT_ERR_FORMAT;
    ht_status status = ht_model_need_tokenizer(r->m, r->err);
    if (!status) status = take_text(r, text->text, text->n);
    if (!status) learn_from(r->out, 0);
    return status;
}

/* The completion is what follows the beginning that the ids of both have in common with those of the prompt. */
static ht_status read_plain_completion(const reading *r, const ht_jinja_string *prompt,
                                       const ht_jinja_string *completion) {
    ht_jinja_builder both = {.arena = r->a};
    ht_jinja_put_string(&both, prompt);
    ht_jinja_put_string(&both, completion);
    const ht_jinja_string *whole = ht_jinja_built(&both);
    int32_t *ids = NULL;
    size_t n_ids = 0;
    ht_status status = whole ? ht_model_need_tokenizer(r->m, r->err) : r->a->status;
    if (!status) status = take_text(r, whole->text, whole->n);
    if (!status) status = encode(r, prompt->text, prompt->n, &ids, &n_ids);
    if (!status) learn_from(r->out, ht_common_prefix(ids, n_ids, r->out->id, (size_t)r->out->n));
    ht_ids_free(ids);
    return status;
}

static ht_status read_completion(const reading *r) {
    const ht_jinja_string *prompt = text_member(r, "prompt");
    const ht_jinja_string *completion = prompt ? text_member(r, "completion") : NULL;
    if (!completion) return HT_ERR_FORMAT;
    if (!r->m->chat.name) return read_plain_completion(r, prompt, completion);
    ht_jinja_list *messages = ht_jinja_list_new(r->a, 2);
    append_message(r->a, messages, "user", prompt);
    append_message(r->a, messages, "assistant", completion);
    return read_chat(r, ht_jinja_list_value(HT_VALUE_LIST, messages));
}

/* ---- ids ---- */

/* A list of integers as long as the ids (n of them; SIZE_MAX: of any length). */
static const ht_jinja_list *integers(const reading *r, const char *key, size_t n) {
    const ht_jinja_value *v = member(r, key);
    if (!v || v->kind != HT_VALUE_LIST) {
        ht_fail(r->err, HT_ERR_FORMAT, "`%s` is %s, expected a list of integers", key, ht_chat_describe(v));
        return NULL;
    }
    if (n != SIZE_MAX && v->list->n != n) {
        ht_fail(r->err, HT_ERR_FORMAT, "`%s` has %zu entries for %zu ids", key, v->list->n, n);
        return NULL;
    }
    for (size_t i = 0; i < v->list->n; i++)
        if (v->list->items[i].kind != HT_VALUE_INT) {
            ht_fail(r->err, HT_ERR_FORMAT, "entry %zu of `%s` is %s, expected an integer", i, key,
                    ht_chat_describe(&v->list->items[i]));
            return NULL;
        }
    return v->list;
}

/* Labels stand at their own ids, not at those before them: which would be taken for other data without this check. */
static ht_status read_labels(const reading *r) {
    const ht_jinja_list *labels = integers(r, "labels", (size_t)r->out->n);
    if (!labels) return HT_ERR_FORMAT;
    for (int32_t i = 0; i < r->out->n; i++) {
        const int64_t label = labels->items[i].integer;
        if (label != NOT_LEARNED && label != r->out->id[i])
            return ht_fail(r->err, HT_ERR_FORMAT,
                           "label %d is %" PRId64 ", expected %d or the id in its place, %d; labels are not shifted", i,
                           label, NOT_LEARNED, r->out->id[i]);
        r->out->learned[i] = label != NOT_LEARNED;
    }
    return HT_OK;
}

static ht_status read_ids(const reading *r) {
    const ht_jinja_list *list = integers(r, "input_ids", SIZE_MAX);
    if (!list) return HT_ERR_FORMAT;
    if (member(r, "attention_mask")) {
        const ht_jinja_list *mask = integers(r, "attention_mask", list->n);
        if (!mask) return HT_ERR_FORMAT;
        for (size_t i = 0; i < mask->n; i++)
            if (mask->items[i].integer != 1)
                return ht_fail(r->err, HT_ERR_UNSUPPORTED,
                               "entry %zu of `attention_mask` is %" PRId64 ", expected 1: samples are given without "
                               "padding",
                               i, mask->items[i].integer);
    }
    int32_t *ids = malloc((list->n + 1) * sizeof *ids);
    if (!ids) return ht_fail_memory(r->err, list->n * sizeof *ids, "a sample");
    for (size_t i = 0; i < list->n; i++) {
        const int64_t id = list->items[i].integer;
        if (id < 0 || id >= r->m->vocab) {
            free(ids);
            return ht_fail(r->err, HT_ERR_FORMAT, "id %zu is %" PRId64 ", expected 0 to %d, the model's tokens", i, id,
                           r->m->vocab - 1);
        }
        ids[i] = (int32_t)id;
    }
    ht_status status = ht_sample_take_ids(r->out, ids, list->n, r->err);
    if (status) return status;
    if (member(r, "labels")) return read_labels(r);
    learn_from(r->out, 0);
    return HT_OK;
}

/* ---- lines ---- */

/* The members that tell each form, the second of which may be NULL. */
static const struct {
    const char *name, *first, *second;
} forms[HT_SAMPLE_FORMS] = {[HT_SAMPLE_MESSAGES] = {"messages", "messages", NULL},
                            [HT_SAMPLE_COMPLETION] = {"prompt and completion", "prompt", "completion"},
                            [HT_SAMPLE_TEXT] = {"text", "text", NULL},
                            [HT_SAMPLE_IDS] = {"input_ids", "input_ids", NULL}};

const char *ht_sample_form_name(ht_sample_form form) { return forms[form].name; }

static ht_status find_form(const reading *r) {
    int found = -1;
    for (int f = 0; f < HT_SAMPLE_FORMS; f++) {
        if (!member(r, forms[f].first) || (forms[f].second && !member(r, forms[f].second))) continue;
        if (found >= 0)
            return ht_fail(r->err, HT_ERR_FORMAT, "it has both %s and %s, expected one of them", forms[found].name,
                           forms[f].name);
        found = f;
    }
    if (found < 0)
        return ht_fail(r->err, HT_ERR_FORMAT,
                       "it has no field of a sample, expected `messages`, `prompt` and `completion`, `text`, or "
                       "`input_ids`");
    r->out->form = (ht_sample_form)found;
    return HT_OK;
}

static ht_status read_form(const reading *r) {
    switch (r->out->form) {
    case HT_SAMPLE_MESSAGES: return read_chat(r, *member(r, "messages"));
    case HT_SAMPLE_COMPLETION: return read_completion(r);
    case HT_SAMPLE_TEXT: return read_text(r);
    default: return read_ids(r);
    }
}

/* A tokenizer may know more tokens than the model has rows for. */
static ht_status check_ids(const reading *r) {
    for (int32_t i = 0; i < r->out->n; i++)
        if (r->out->id[i] >= r->m->vocab)
            return ht_fail(r->err, HT_ERR_FORMAT, "token %d is the tokenizer's %d; the model has %d token%s", i,
                           r->out->id[i], r->m->vocab, ht_plural(r->m->vocab));
    return HT_OK;
}

static ht_status read_line(reading *r, const char *line, size_t n) {
    const ht_jinja_value v = ht_jinja_json_value(r->a, line, n, "it is no JSON");
    if (r->a->status) return r->a->status;
    if (v.kind != HT_VALUE_DICT)
        return ht_fail(r->err, HT_ERR_FORMAT, "it is %s, expected an object on each line", ht_chat_describe(&v));
    r->line = v.dict;
    ht_status status = find_form(r);
    if (!status) status = read_form(r);
    if (!status) status = check_ids(r);
    if (status) return status;
    if (r->o->mask == HT_MASK_NONE) learn_from(r->out, 0);
    count_learned(r->m, r->out);
    return HT_OK;
}

ht_status ht_sample_read(const ht_model *m, const char *line, size_t n, const ht_sample_options *options,
                         ht_sample *out, ht_error *err) {
    *out = (ht_sample){0};
    reading r = {.m = m, .o = options, .out = out, .err = err};
    ht_status status = ht_chat_new(&r.chat, err);
    if (status) return status;
    r.a = &r.chat->arena;
    r.a->name = "the sample";
    status = read_line(&r, line, n);
    ht_chat_free(r.chat);
    if (status) ht_sample_free(out);
    return status;
}
