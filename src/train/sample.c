#include "base/checked.h"
#include "base/error.h"
#include "base/grow.h"
#include "base/plural.h"
#include "base/text.h"
#include "chat/conversation.h"
#include "chat/reader.h"
#include "formats/json.h"
#include "models/model.h"
#include "train/sample_reading.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NOT_LEARNED = -100 }; /* the label of ids that are not learned */

/* ---- samples ---- */

void ht_sample_free(ht_sample *s) {
    free(s->id);
    free(s->learned);
    free(s->begin);
    *s = (ht_sample){0};
}

int32_t ht_sample_length(const ht_sample *s) {
    int32_t longest = s->begin ? 0 : s->n;
    for (int32_t t = 0; t < s->n_texts; t++) longest = (int32_t)ht_max_i64(longest, s->begin[t + 1] - s->begin[t]);
    return longest;
}

static bool is_stop(const ht_model *m, int32_t id) {
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
    s->learns_stop = s->begin != NULL; /* pairs generate nothing */
    if (s->n) s->learned[0] = false;
    for (int32_t i = 0; i < s->n; i++) {
        s->n_learned += s->learned[i];
        s->learns_stop = s->learns_stop || (s->learned[i] && is_stop(m, s->id[i]));
    }
}

/* Removes ids from each text of more than n, before its special ones at the end. */
static void truncate_texts(ht_sample *s, int32_t n) {
    int32_t to = 0, from = 0;
    const int32_t tail = (int32_t)ht_min_i64(s->n_tail, n);
    for (int32_t t = 0; t < s->n_texts; t++) {
        const int32_t all = s->begin[t + 1] - from, kept = (int32_t)ht_min_i64(all, n);
        for (int32_t i = 0; i < kept; i++, to++) {
            const int32_t at = from + (i < kept - tail ? i : i + all - kept);
            s->id[to] = s->id[at];
            s->learned[to] = s->learned[at];
        }
        from = s->begin[t + 1];
        s->begin[t + 1] = to;
    }
    s->n = to;
}

void ht_sample_truncate(const ht_model *m, ht_sample *s, int32_t n) {
    if (ht_sample_length(s) <= n) return;
    if (s->begin)
        truncate_texts(s, n);
    else
        s->n = n;
    s->truncated = true;
    count_learned(m, s);
}

static void learn_from(ht_sample *s, size_t first) {
    for (size_t i = first; i < (size_t)s->n; i++) s->learned[i] = true;
}

/* ---- conversations as the template writes them ---- */

/* A conversation, or the beginning of one, as the template writes it. */
typedef struct rendering {
    ht_chat_text written;
    int32_t *id;
    size_t n_ids;
} rendering;

typedef struct marking {
    const ht_model *m;
    ht_chat *chat;
    ht_jinja_list all; /* its messages */
    rendering whole;
    ht_sample *out;
    ht_error *err;
} marking;

static size_t common_prefix(const int32_t *a, size_t n_a, const int32_t *b, size_t n_b) {
    size_t n = 0;
    while (n < n_a && n < n_b && a[n] == b[n]) n++;
    return n;
}

static void rendering_free(rendering *r) {
    ht_chat_text_free(&r->written);
    ht_ids_free(r->id);
    *r = (rendering){0};
}

/* Renders messages; `prompt` appends the generation prompt. The caller frees *out also on failure. */
static ht_status render(const marking *k, const ht_jinja_list *messages, bool prompt, rendering *out) {
    ht_jinja_arena *a = &k->chat->arena;
    ht_jinja_list list = *messages;
    ht_chat part = *k->chat;
    part.messages = &list;
    *out = (rendering){0};
    ht_jinja_dict_set_text(a, k->chat->variables, "add_generation_prompt", ht_jinja_boolean(prompt));
    if (a->status) return a->status;
    ht_status status = ht_chat_write_for(k->m, &part, &out->written, k->err);
    if (!status) status = ht_chat_encode_text(k->m->tokenizer, &out->written, 0, &out->id, &out->n_ids, k->err);
    return status;
}

/* Renders the first n messages; *out is empty where the template rejects them, for example without a question. */
static ht_status render_first(const marking *k, size_t n, bool prompt, rendering *out) {
    ht_jinja_list first = k->all;
    first.n = n;
    const ht_status status = render(k, &first, prompt, out);
    if (status != HT_ERR_ARGUMENT || n == k->all.n) return status;
    rendering_free(out);
    return HT_OK;
}

static size_t common(const rendering *a, const rendering *b) { return common_prefix(a->id, a->n_ids, b->id, b->n_ids); }

static bool is_prefix(const rendering *a, const rendering *b) {
    const size_t n = a->written.n;
    return n <= b->written.n && memcmp(a->written.text, b->written.text, n) == 0;
}

/* ---- where messages are ---- */

static const char other[] = "\x7F"; /* no text begins with it */

static void say_other(ht_jinja_arena *a, const ht_jinja_dict *d, const char *key) {
    ht_jinja_value *v = d ? ht_jinja_dict_find_text(d, key, strlen(key)) : NULL;
    if (v && ht_jinja_is_string(*v)) *v = ht_jinja_string_value(ht_jinja_string_new(a, other, sizeof other - 1, true));
}

static const ht_jinja_dict *dict_of(const ht_jinja_value *v) { return v && v->kind == HT_VALUE_DICT ? v->dict : NULL; }

static const ht_jinja_list *calls_of(const ht_jinja_dict *message) {
    const ht_jinja_value *calls = ht_jinja_dict_find_text(message, "tool_calls", 10);
    return calls && calls->kind == HT_VALUE_LIST && calls->list->n ? calls->list : NULL;
}

static const char *const texts[] = {"content", "reasoning_content", "thinking", "reasoning"};
enum { N_TEXTS = sizeof texts / sizeof *texts };

/* Parts of a message: its texts, then its calls. */
static const size_t every_part = SIZE_MAX;

/* A copy of the message with `part` replaced. */
static ht_jinja_value changed_message(ht_jinja_arena *a, ht_jinja_value message, size_t part) {
    const ht_jinja_value copy = ht_jinja_copy(a, message);
    if (a->status) return copy;
    for (size_t i = 0; i < N_TEXTS; i++)
        if (part == every_part || part == i) say_other(a, copy.dict, texts[i]);
    const ht_jinja_list *calls = calls_of(copy.dict);
    for (size_t i = 0; calls && i < calls->n && !a->status; i++) {
        if (part != every_part && part != N_TEXTS + i) continue;
        const ht_jinja_dict *call = dict_of(&calls->items[i]);
        say_other(a, call, "name");
        say_other(a, call ? dict_of(ht_jinja_dict_find_text(call, "function", 8)) : NULL, "name");
    }
    return copy;
}

/* The first token of the whole that changes when `part` of message i does; SIZE_MAX: none. */
static ht_status find_change(const marking *k, size_t i, size_t part, size_t *at) {
    ht_jinja_arena *a = &k->chat->arena;
    ht_jinja_list *changed = ht_jinja_list_new(a, k->all.n);
    for (size_t j = 0; j < k->all.n && !a->status; j++)
        ht_jinja_list_append(a, changed, j == i ? changed_message(a, k->all.items[j], part) : k->all.items[j]);
    if (a->status) return a->status;
    rendering r;
    ht_status status = render(k, changed, false, &r);
    *at = common(&r, &k->whole);
    if (*at == k->whole.n_ids && *at == r.n_ids) *at = SIZE_MAX;
    rendering_free(&r);
    return status;
}

/* Where the content of message i begins in the whole, even if later messages change it; SIZE_MAX: omitted. */
static ht_status find_message(const marking *k, size_t i, size_t *at) { return find_change(k, i, every_part, at); }

static bool has_text(const ht_jinja_dict *message, const char *key) {
    const ht_jinja_value *v = ht_jinja_dict_find_text(message, key, strlen(key));
    return v && ht_jinja_is_string(*v) && v->string->n;
}

/* Rejects templates that omit tool calls, or all but the first: training would learn an incomplete answer. */
static ht_status check_calls(const marking *k, size_t i) {
    const ht_jinja_list *calls = calls_of(k->all.items[i].dict);
    size_t at;
    ht_status status = HT_OK;
    for (size_t c = 0; calls && c < calls->n && !status; c++) {
        status = find_change(k, i, N_TEXTS + c, &at);
        if (!status && at == SIZE_MAX)
            return ht_fail(k->err, HT_ERR_UNSUPPORTED,
                           "the model's chat template leaves out the `tool_calls` of message %zu%s", i,
                           c ? " but for the first" : "");
    }
    return status;
}

/* Sets history_differs if the template omits one of several parts of an answer; a single omitted part loses it. */
static ht_status check_texts(const marking *k, size_t i) {
    const ht_jinja_dict *message = k->all.items[i].dict;
    size_t at, n_parts = calls_of(message) != NULL;
    ht_status status = HT_OK;
    for (size_t t = 0; t < N_TEXTS; t++) n_parts += has_text(message, texts[t]);
    if (n_parts < 2) return HT_OK;
    for (size_t t = 0; t < N_TEXTS && !status; t++) {
        if (!has_text(message, texts[t])) continue;
        status = find_change(k, i, t, &at);
        if (!status && at == SIZE_MAX) k->out->history_differs = true;
    }
    return status;
}

/* Index after the first token in [from, to) that ends generation; 0: none. */
static size_t find_end(const marking *k, size_t from, size_t to) {
    for (size_t i = from; i < to; i++)
        if (is_stop(k->m, k->whole.id[i])) return i + 1;
    return 0;
}

/* ---- answers ---- */

/* Where answer i begins if its prompt is not a prefix of the whole: after their common prefix, as the prompt may end
 * in extra tokens. If they already differ in an earlier message, where the answer's content begins. */
static ht_status find_begin_without_prompt(const marking *k, size_t i, size_t *begin) {
    size_t before, says;
    ht_status status = find_message(k, i - 1, &before);
    if (!status) status = find_message(k, i, &says);
    if (status) return status;
    const bool is_earlier = before == SIZE_MAX || *begin <= before;
    if (says == SIZE_MAX || *begin > says || is_earlier || find_end(k, *begin, says)) *begin = says;
    return HT_OK;
}

/* Where answer i begins: after the common prefix with its generation prompt. SIZE_MAX: it is not in the whole. */
static ht_status find_begin(const marking *k, size_t i, const rendering *with_answer, size_t *begin) {
    if (!i) return find_message(k, 0, begin);
    rendering prompt;
    ht_status status = render_first(k, i, true, &prompt);
    if (!status) {
        *begin = common(&prompt, &k->whole);
        if (with_answer->written.n && (!is_prefix(&prompt, with_answer) || common(&prompt, with_answer) < prompt.n_ids))
            k->out->prompt_differs = true;
        if (!prompt.written.n || !is_prefix(&prompt, &k->whole)) status = find_begin_without_prompt(k, i, begin);
    }
    rendering_free(&prompt);
    return status;
}

/* Whether message i is only a text that tokens [begin, end) contain unchanged. */
static ht_status is_as_given(const marking *k, size_t i, size_t begin, size_t end, bool *as_given) {
    const ht_jinja_dict *message = k->all.items[i].dict;
    char *text;
    size_t n;
    *as_given = false;
    for (size_t t = 1; t < N_TEXTS; t++)
        if (has_text(message, texts[t])) return HT_OK;
    if (!has_text(message, texts[0]) || begin >= end) return HT_OK;
    const ht_jinja_string *content = ht_jinja_dict_find_text(message, texts[0], strlen(texts[0]))->string;
    ht_status status = ht_tokenizer_decode(k->m->tokenizer, k->whole.id + begin, end - begin, false, &text, &n, k->err);
    if (status) return status;
    *as_given = n >= content->n && memmem(text, n, content->text, content->n);
    ht_text_free(text);
    return HT_OK;
}

/* Where an answer ends that later messages change: after its stop token, before the next message. Without a stop token,
 * after the common prefix of both renderings, if that includes some of the answer's content. */
static ht_status find_end_written_now(const marking *k, size_t i, size_t begin, size_t same, size_t *end) {
    size_t next, says;
    ht_status status = find_message(k, i + 1, &next);
    if (!status) status = find_message(k, i, &says);
    if (status) return status;
    *end = next == SIZE_MAX ? 0 : find_end(k, begin, next);
    const bool differs = *end || same <= says;
    if (!*end) *end = same > says ? same : begin;
    bool as_given;
    status = is_as_given(k, i, begin, *end, &as_given);
    if (differs && !as_given) k->out->history_differs = true;
    return status;
}

/* Where answer i ends: after its stop token; without one, where the conversation up to the answer ends. */
static ht_status find_answer_end(const marking *k, size_t i, const rendering *with_answer, size_t begin, size_t *end) {
    const size_t same = common(with_answer, &k->whole);
    *end = find_end(k, begin, same);
    if (*end) return HT_OK;
    if (!with_answer->written.n || same < with_answer->n_ids) return find_end_written_now(k, i, begin, same, end);
    /* The token that opens the next turn may also be the stop token. */
    *end = same + (same < k->whole.n_ids && is_stop(k->m, k->whole.id[same]));
    return HT_OK;
}

static ht_status mark_answer(const marking *k, size_t i) {
    rendering with_answer = {0};
    const bool last = i + 1 == k->all.n;
    size_t begin = 0, end = 0;
    ht_status status = last ? HT_OK : render_first(k, i + 1, false, &with_answer);
    const rendering *up_to = last ? &k->whole : &with_answer;
    if (!status) status = find_begin(k, i, up_to, &begin);
    if (!status) status = find_answer_end(k, i, up_to, begin, &end);
    for (size_t t = begin; t < end && !status; t++) k->out->learned[t] = true;
    if (!status && begin >= end) k->out->answer_lost = true;
    if (!status) status = check_texts(k, i);
    rendering_free(&with_answer);
    return status;
}

/* Removes a message's weight before templates see it. */
static ht_status take_weight(const marking *k, size_t i, bool *learned) {
    ht_jinja_arena *a = &k->chat->arena;
    ht_jinja_dict *message = k->all.items[i].dict;
    const ht_jinja_value *weight = ht_jinja_dict_find_text(message, "weight", 6);
    *learned = true;
    if (!weight) return HT_OK;
    const double w = ht_jinja_is_number(*weight) ? ht_jinja_as_real(*weight) : weight->kind == HT_VALUE_NONE ? 1 : -1;
    if (w != 0 && w != 1) return ht_fail(k->err, HT_ERR_FORMAT, "the weight of message %zu must be 0 or 1", i);
    *learned = w != 0;
    ht_jinja_dict_remove(a, message, ht_jinja_text_value(a, "weight"));
    return a->status;
}

static bool is_answer(const marking *k, size_t i) {
    return ht_jinja_string_is(ht_jinja_dict_find_text(k->all.items[i].dict, "role", 4)->string, "assistant");
}

/* Renders the whole conversation and moves its ids into the sample, which frees them. */
static ht_status render_whole(marking *k) {
    ht_status status = render_first(k, k->all.n, false, &k->whole);
    if (status) return status;
    int32_t *ids = k->whole.id;
    return ht_sample_take_ids(k->out, ids, k->whole.n_ids, k->err);
}

/* Ids of a conversation, and which are learned; weights of messages are removed. *out owns them, even on failure. */
static ht_status mark_chat(const ht_model *m, ht_chat *chat, const ht_sample_options *options, ht_sample *out,
                           ht_error *err) {
    marking k = {.m = m, .chat = chat, .all = *chat->messages, .out = out, .err = err};
    const size_t n = k.all.n;
    bool *learned = calloc(n + 1, sizeof *learned);
    if (!learned) return ht_fail_memory(err, n, "a conversation");
    ht_status status = HT_OK;
    size_t last = n;
    for (size_t i = 0; i < n && !status; i++) {
        status = take_weight(&k, i, &learned[i]);
        learned[i] = learned[i] && is_answer(&k, i);
        if (is_answer(&k, i)) last = i;
    }
    if (!status) status = render_whole(&k);
    for (size_t i = 0; i < n && !status; i++) status = check_calls(&k, i);
    for (size_t i = 0; i < n && !status && options->mask != HT_MASK_NONE; i++)
        if (learned[i] && (options->mask == HT_MASK_ANSWERS || i == last)) status = mark_answer(&k, i);
    free(learned);
    ht_chat_text_free(&k.whole.written);
    if (!out->id) ht_ids_free(k.whole.id);
    return status;
}

/* ---- fields of a line ---- */

const ht_json *ht_sample_field(ht_sample_reading *r, const char *key) {
    const ht_json *v = ht_json_object_get(r->line, key);
    return ht_json_is_null(v) ? NULL : v;
}

ht_status ht_sample_fail_field(ht_sample_reading *r, const char *key, const ht_json *v, const char *expected) {
    char found[80] = "missing";
    if (v) ht_json_describe(v, found, sizeof found);
    r->at = v;
    return ht_fail(r->err, HT_ERR_FORMAT, "`%s` is %s, expected %s", key, found, expected);
}

static const ht_json *text_member(ht_sample_reading *r, const char *key) {
    const ht_json *v = ht_sample_field(r, key);
    if (ht_json_is_string(v)) return v;
    ht_sample_fail_field(r, key, v,
                         ht_json_is_array(v) ? "a string; a conversation is given as `messages`" : "a string");
    return NULL;
}

/* ---- lines with conversations ---- */

/* Rejects `functions` and `function_call`, which preceded tools: templates would drop them silently. */
static ht_status refuse_functions(ht_sample_reading *r, const ht_json *messages) {
    if (ht_sample_field(r, "functions"))
        return ht_fail(r->err, HT_ERR_UNSUPPORTED, "it has `functions`, expected `tools`");
    for (size_t i = 0; i < ht_json_array_size(messages); i++) {
        const ht_json *call = ht_json_object_get(ht_json_array_get(messages, i), "function_call");
        if (call && !ht_json_is_null(call))
            return ht_fail(r->err, HT_ERR_UNSUPPORTED, "message %zu has a `function_call`, expected `tool_calls`", i);
    }
    return HT_OK;
}

/* Takes ownership of a document with the fields `messages`, `tools` and `chat_template_kwargs`; NULL: out of memory. */
static ht_status read_document(ht_sample_reading *r, ht_json *document) {
    ht_chat *chat = NULL;
    if (!document) return ht_fail_memory(r->err, 0, "a conversation");
    ht_status status = ht_chat_from_value(document, r->o->path, &chat, r->err);
    r->placed = status != HT_OK && r->o->path;
    if (!status) status = refuse_functions(r, ht_json_object_get(document, "messages"));
    ht_json_decref(document);
    if (!status) {
        ht_chat_set_time(chat, r->o->time);
        status = mark_chat(r->m, chat, r->o, r->out, r->err);
    }
    ht_chat_free(chat);
    return status;
}

static ht_status read_chat(ht_sample_reading *r) {
    return read_document(r, ht_json_pack("{sO sO* sO*}", "messages", ht_sample_field(r, "messages"), "tools",
                                         ht_sample_field(r, "tools"), "chat_template_kwargs",
                                         ht_sample_field(r, "chat_template_kwargs")));
}

/* ---- texts ---- */

ht_status ht_sample_encode(ht_sample_reading *r, const char *text, size_t n, int32_t **ids, size_t *n_ids) {
    return ht_tokenizer_encode(r->m->tokenizer, text, n, HT_ENCODE_PARSE_SPECIAL | HT_ENCODE_ADD_SPECIAL, ids, n_ids,
                               r->err);
}

/* Encodes the text into the sample and appends EOS unless it ends with a stop token. */
static ht_status take_text(ht_sample_reading *r, const char *text, size_t n) {
    int32_t *ids;
    size_t n_ids;
    ht_status status = ht_sample_encode(r, text, n, &ids, &n_ids);
    if (status) return status;
    const int32_t eos = ht_tokenizer_eos(r->m->tokenizer);
    if (eos >= 0 && !(n_ids && is_stop(r->m, ids[n_ids - 1]))) {
        if (!HT_RESIZE(ids, n_ids + 1)) {
            free(ids);
            return ht_fail_memory(r->err, (n_ids + 1) * sizeof *ids, "a sample");
        }
        ids[n_ids++] = eos;
    }
    return ht_sample_take_ids(r->out, ids, n_ids, r->err);
}

static ht_status read_text(ht_sample_reading *r) {
    const ht_json *text = text_member(r, "text");
    if (!text) return HT_ERR_FORMAT;
    ht_status status = ht_model_need_tokenizer(r->m, r->err);
    if (!status) status = take_text(r, ht_json_string_value(text), ht_json_string_length(text));
    if (!status) learn_from(r->out, 0);
    return status;
}

/* The completion begins after the common prefix of the prompt's ids and the ids of both texts together. */
static ht_status read_plain_completion(ht_sample_reading *r, const ht_json *prompt, const ht_json *completion) {
    const size_t n_prompt = ht_json_string_length(prompt);
    int32_t *ids = NULL;
    size_t n_ids = 0;
    ht_text whole = {0};
    ht_text_append(&whole, ht_json_string_value(prompt), n_prompt);
    ht_text_append(&whole, ht_json_string_value(completion), ht_json_string_length(completion));
    ht_status status =
        whole.failed ? ht_fail_memory(r->err, n_prompt, "a sample") : ht_model_need_tokenizer(r->m, r->err);
    if (!status) status = take_text(r, whole.data ? whole.data : "", whole.len);
    if (!status) status = ht_sample_encode(r, ht_json_string_value(prompt), n_prompt, &ids, &n_ids);
    if (!status) learn_from(r->out, common_prefix(ids, n_ids, r->out->id, (size_t)r->out->n));
    ht_ids_free(ids);
    ht_text_discard(&whole);
    return status;
}

static ht_status read_completion(ht_sample_reading *r) {
    const ht_json *prompt = text_member(r, "prompt"), *completion = prompt ? text_member(r, "completion") : NULL;
    if (!completion) return HT_ERR_FORMAT;
    if (!r->m->chat.name) return read_plain_completion(r, prompt, completion);
    return read_document(r,
                         ht_json_pack("{s[{sssO}{sssO}]sO*sO*}", "messages", "role", "user", "content", prompt, "role",
                                      "assistant", "content", completion, "tools", ht_sample_field(r, "tools"),
                                      "chat_template_kwargs", ht_sample_field(r, "chat_template_kwargs")));
}

/* ---- ids ---- */

/* A list of n integers; n = SIZE_MAX: of any length. */
static const ht_json *integers(ht_sample_reading *r, const char *key, size_t n) {
    const ht_json *v = ht_sample_field(r, key);
    if (!ht_json_is_array(v)) {
        ht_sample_fail_field(r, key, v, "a list of integers");
        return NULL;
    }
    if (n != SIZE_MAX && ht_json_array_size(v) != n) {
        ht_fail(r->err, HT_ERR_FORMAT, "`%s` has %zu entries for %zu ids", key, ht_json_array_size(v), n);
        return NULL;
    }
    for (size_t i = 0; i < ht_json_array_size(v); i++) {
        char found[80];
        const ht_json *item = ht_json_array_get(v, i);
        if (ht_json_is_integer(item)) continue;
        r->at = item;
        ht_fail(r->err, HT_ERR_FORMAT, "entry %zu of `%s` is %s, expected an integer", i, key,
                ht_json_describe(item, found, sizeof found));
        return NULL;
    }
    return v;
}

/* Each label must be at the index of the id itself. Labels shifted by one would train on other data. */
static ht_status read_labels(ht_sample_reading *r) {
    const ht_json *labels = integers(r, "labels", (size_t)r->out->n);
    if (!labels) return HT_ERR_FORMAT;
    for (int32_t i = 0; i < r->out->n; i++) {
        const int64_t label = ht_json_integer_value(ht_json_array_get(labels, (size_t)i));
        if (label != NOT_LEARNED && label != r->out->id[i])
            return ht_fail(r->err, HT_ERR_FORMAT,
                           "label %d is %" PRId64 ", expected %d or the id in its place, %d; labels are not shifted", i,
                           label, NOT_LEARNED, r->out->id[i]);
        r->out->learned[i] = label != NOT_LEARNED;
    }
    return HT_OK;
}

ht_status ht_sample_read_id(ht_sample_reading *r, const ht_json *list, size_t i, int32_t *out) {
    const int64_t id = ht_json_integer_value(ht_json_array_get(list, i));
    if (id < 0 || id >= r->m->vocab)
        return ht_fail(r->err, HT_ERR_FORMAT, "id %zu is %" PRId64 ", expected 0 to %d, the model's tokens", i, id,
                       r->m->vocab - 1);
    *out = (int32_t)id;
    return HT_OK;
}

static ht_status read_ids(ht_sample_reading *r) {
    const ht_json *list = integers(r, "input_ids", SIZE_MAX);
    const size_t n = ht_json_array_size(list);
    if (!list) return HT_ERR_FORMAT;
    if (ht_sample_field(r, "attention_mask")) {
        const ht_json *mask = integers(r, "attention_mask", n);
        if (!mask) return HT_ERR_FORMAT;
        for (size_t i = 0; i < ht_json_array_size(mask); i++)
            if (ht_json_integer_value(ht_json_array_get(mask, i)) != 1)
                return ht_fail(r->err, HT_ERR_UNSUPPORTED,
                               "entry %zu of `attention_mask` is %" PRId64 ", expected 1: samples are given without "
                               "padding",
                               i, ht_json_integer_value(ht_json_array_get(mask, i)));
    }
    int32_t *ids = malloc((n + 1) * sizeof *ids);
    if (!ids) return ht_fail_memory(r->err, n * sizeof *ids, "a sample");
    for (size_t i = 0; i < n; i++) {
        const ht_status status = ht_sample_read_id(r, list, i, &ids[i]);
        if (!status) continue;
        free(ids);
        return status;
    }
    ht_status status = ht_sample_take_ids(r->out, ids, n, r->err);
    if (status) return status;
    if (ht_sample_field(r, "labels")) return read_labels(r);
    learn_from(r->out, 0);
    return HT_OK;
}

/* ---- lines ---- */

/* Fields that identify each form; the second may be NULL. */
static const struct {
    const char *name, *first, *second;
} forms[HT_SAMPLE_FORMS] = {[HT_SAMPLE_MESSAGES] = {"messages", "messages", NULL},
                            [HT_SAMPLE_COMPLETION] = {"prompt and completion", "prompt", "completion"},
                            [HT_SAMPLE_TEXT] = {"text", "text", NULL},
                            [HT_SAMPLE_IDS] = {"input_ids", "input_ids", NULL},
                            [HT_SAMPLE_PAIR] = {"anchor and positive", "anchor", "positive"}};

const char *ht_sample_form_name(ht_sample_form form) { return forms[form].name; }

static ht_status find_form(ht_sample_reading *r) {
    if (r->o->method == HT_METHOD_EMBED) {
        r->out->form = HT_SAMPLE_PAIR;
        return HT_OK;
    }
    int found = -1;
    for (int f = 0; f < HT_SAMPLE_FORMS; f++) {
        if (f == HT_SAMPLE_PAIR || !ht_sample_field(r, forms[f].first) ||
            (forms[f].second && !ht_sample_field(r, forms[f].second)))
            continue;
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

static ht_status read_form(ht_sample_reading *r) {
    switch (r->out->form) {
    case HT_SAMPLE_MESSAGES: return read_chat(r);
    case HT_SAMPLE_COMPLETION: return read_completion(r);
    case HT_SAMPLE_TEXT: return read_text(r);
    case HT_SAMPLE_PAIR: return ht_sample_read_pair(r);
    default: return read_ids(r);
    }
}

/* A tokenizer may have more tokens than the model has rows. */
static ht_status check_ids(ht_sample_reading *r) {
    for (int32_t i = 0; i < r->out->n; i++)
        if (r->out->id[i] >= r->m->vocab)
            return ht_fail(r->err, HT_ERR_FORMAT, "token %d is the tokenizer's %d; the model has %d token%s", i,
                           r->out->id[i], r->m->vocab, ht_plural(r->m->vocab));
    return HT_OK;
}

static ht_status read_line(ht_sample_reading *r) {
    ht_status status = find_form(r);
    if (!status) status = read_form(r);
    if (!status) status = check_ids(r);
    if (status) return status;
    if (r->o->mask == HT_MASK_NONE && !r->out->begin) learn_from(r->out, 0);
    count_learned(r->m, r->out);
    return HT_OK;
}

ht_status ht_sample_read(const ht_model *m, const char *line, size_t n, const ht_sample_options *options,
                         ht_sample *out, ht_error *err) {
    const ht_json_options json = {.name = options->path, .first_line = (uint32_t)options->line};
    ht_json *object;
    *out = (ht_sample){0};
    ht_status status = ht_json_load(line, n, &json, &object, err);
    if (status) return status;
    ht_sample_reading r = {.m = m, .o = options, .line = object, .out = out, .err = err};
    status = read_line(&r);
    const uint32_t column = (r.at ? r.at : object)->column;
    ht_json_decref(object);
    if (!status) return HT_OK;
    ht_sample_free(out);
    if (!options->path || r.placed) return status;
    return ht_fail_in(err, status, "%s: line %lld, column %u", options->path, (long long)options->line, column);
}

/* ---- samples as text: learned and other pieces ---- */

static ht_status hand_over(ht_text *run, bool learned, ht_train_piece_fn *fn, void *user, ht_error *err) {
    if (run->failed) return ht_fail_memory(err, run->len, "the text of a sample");
    if (run->len && !fn(run->data, run->len, learned, user))
        return ht_fail(err, HT_ERR_CANCELLED, "showing the sample was ended");
    ht_text_clear(run);
    return HT_OK;
}

/* The text of a token, or without a decoder its number. */
static ht_status append_token(ht_decoder *d, int32_t id, ht_text *run, ht_error *err) {
    const char *piece;
    size_t n;
    if (!d) {
        ht_text_printf(run, "%d ", (int)id);
        return HT_OK;
    }
    ht_status status = ht_decoder_feed(d, id, &piece, &n, err);
    if (!status) ht_text_append(run, piece, n);
    return status;
}

/* An incomplete UTF-8 character at the end of a run moves to the next run. */
static ht_status decode(ht_decoder *d, const ht_sample *s, ht_text *run, ht_train_piece_fn *fn, void *user,
                        ht_error *err) {
    ht_status status = HT_OK;
    const char *piece = "";
    size_t n = 0;
    for (int32_t i = 0; i < s->n && !status; i++) {
        if (i && s->learned[i] != s->learned[i - 1]) status = hand_over(run, s->learned[i - 1], fn, user, err);
        if (!status) status = append_token(d, s->id[i], run, err);
    }
    if (!status && d) status = ht_decoder_flush(d, &piece, &n, err);
    if (status || !s->n) return status;
    ht_text_append(run, piece, n);
    return hand_over(run, s->learned[s->n - 1], fn, user, err);
}

static ht_status decode_all(const ht_model *m, const ht_sample *s, ht_train_piece_fn *fn, void *user, ht_error *err) {
    ht_decoder *d = NULL;
    ht_text run = {0};
    ht_status status = HT_OK;
    if (m->tokenizer) status = ht_decoder_new(m->tokenizer, false, &d, err);
    if (!status) status = decode(d, s, &run, fn, user, err);
    ht_text_discard(&run);
    ht_decoder_free(d);
    return status;
}

ht_status ht_sample_pieces(const ht_model *m, const ht_sample *s, ht_train_piece_fn *fn, void *user, ht_error *err) {
    if (!s->begin) return decode_all(m, s, fn, user, err);
    ht_status status = HT_OK;
    for (int32_t t = 0; t < s->n_texts && !status; t++) {
        const int32_t from = s->begin[t];
        const ht_sample text = {.n = s->begin[t + 1] - from, .id = s->id + from, .learned = s->learned + from};
        status = decode_all(m, &text, fn, user, err);
        if (!status && !fn("\n", 1, false, user))
            status = ht_fail(err, HT_ERR_CANCELLED, "showing the sample was ended");
    }
    return status;
}
