/* Conversations as samples: their ids, and the answers in them. */
#include "base/error.h"
#include "chat/conversation.h"
#include "models/model.h"
#include "train/sample.h"

#include <stdlib.h>
#include <string.h>

/* A conversation, or the beginning of one, as the template writes it. */
typedef struct rendering {
    char *text;
    size_t n;
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

size_t ht_common_prefix(const int32_t *a, size_t n_a, const int32_t *b, size_t n_b) {
    size_t n = 0;
    while (n < n_a && n < n_b && a[n] == b[n]) n++;
    return n;
}

static void rendering_free(rendering *r) {
    free(r->text);
    ht_ids_free(r->id);
    *r = (rendering){0};
}

/* Of some messages, with the assistant's turn opened behind them or not; *out is freed whatever the outcome. */
static ht_status render(const marking *k, const ht_jinja_list *messages, bool prompt, rendering *out) {
    ht_jinja_arena *a = &k->chat->arena;
    ht_jinja_list list = *messages;
    ht_chat part = *k->chat;
    part.messages = &list;
    *out = (rendering){0};
    ht_jinja_dict_set_text(a, k->chat->variables, "add_generation_prompt", ht_jinja_boolean(prompt));
    if (a->status) return a->status;
    ht_text_run *runs = NULL;
    size_t n_runs;
    ht_status status = ht_chat_write_for(k->m, &part, &out->text, &out->n, &runs, &n_runs, k->err);
    if (!status) status = ht_chat_encode_text(k->m, out->text, out->n, runs, n_runs, 0, &out->id, &out->n_ids, k->err);
    free(runs);
    return status;
}

/* Templates may refuse the beginning of a conversation, such as one without a question: it is empty then. */
static ht_status render_first(const marking *k, size_t n, bool prompt, rendering *out) {
    ht_jinja_list first = k->all;
    first.n = n;
    const ht_status status = render(k, &first, prompt, out);
    if (status != HT_ERR_ARGUMENT || n == k->all.n) return status;
    rendering_free(out);
    return HT_OK;
}

static size_t common(const rendering *a, const rendering *b) {
    return ht_common_prefix(a->id, a->n_ids, b->id, b->n_ids);
}

static bool is_prefix(const rendering *a, const rendering *b) {
    return a->n <= b->n && memcmp(a->text, b->text, a->n) == 0;
}

/* ---- where messages are ---- */

static const char other[] = "\x7F"; /* with which no text begins */

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

/* A message of the same shape that says something else in the part. */
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

/* Where the whole parts from a conversation in which message i says something else in the part. SIZE_MAX: nowhere. */
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

/* Where what message i says begins in the whole. Other than by rendering the messages before it, this finds it where a template
 * writes them differently once others follow. SIZE_MAX for a message that the template leaves out. */
static ht_status find_message(const marking *k, size_t i, size_t *at) { return find_change(k, i, every_part, at); }

static bool has_text(const ht_jinja_dict *message, const char *key) {
    const ht_jinja_value *v = ht_jinja_dict_find_text(message, key, strlen(key));
    return v && ht_jinja_is_string(*v) && v->string->n;
}

/* Templates that know no calls, or one of a message, leave them out, and an answer without what it says would be learned. */
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

/* Whether the template leaves out one of several parts of an answer; of a single one, the answer is lost. */
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

/* Behind the first token in [from, to) that ends generation; 0: there is none. */
static size_t find_end(const marking *k, size_t from, size_t to) {
    for (size_t i = from; i < to; i++)
        if (ht_sample_is_stop(k->m, k->whole.id[i])) return i + 1;
    return 0;
}

/* ---- answers ---- */

/* Where answer i begins, for a prompt that the whole does not begin with: where it parts from the prompt, which may end in marks
 * that the answer lacks, unless that is in an earlier message that is written differently now. */
static ht_status find_begin_without_prompt(const marking *k, size_t i, size_t *begin) {
    size_t before, says;
    ht_status status = find_message(k, i - 1, &before);
    if (!status) status = find_message(k, i, &says);
    if (status) return status;
    const bool is_earlier = before == SIZE_MAX || *begin <= before;
    if (says == SIZE_MAX || *begin > says || is_earlier || find_end(k, *begin, says)) *begin = says;
    return HT_OK;
}

/* Where answer i begins: behind what the whole has in common with the prompt that generation would have had. SIZE_MAX: it is not
 * in the whole. */
static ht_status find_begin(const marking *k, size_t i, const rendering *with_answer, size_t *begin) {
    if (!i) return find_message(k, 0, begin);
    rendering prompt;
    ht_status status = render_first(k, i, true, &prompt);
    if (!status) {
        *begin = common(&prompt, &k->whole);
        if (with_answer->n && (!is_prefix(&prompt, with_answer) || common(&prompt, with_answer) < prompt.n_ids))
            k->out->prompt_differs = true;
        if (!prompt.n || !is_prefix(&prompt, &k->whole)) status = find_begin_without_prompt(k, i, begin);
    }
    rendering_free(&prompt);
    return status;
}

/* Whether message i is nothing but a text that tokens [begin, end) hold as it was given. */
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

/* Where an answer ends that is written differently in the whole than at the end of a conversation: before the next message
 * begins, behind the token that ends generation; without one, where both part, if that is not before what the answer says. */
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

/* Where answer i ends: behind the token that ends generation; without one, where the conversation up to the answer does. */
static ht_status find_answer_end(const marking *k, size_t i, const rendering *with_answer, size_t begin, size_t *end) {
    const size_t same = common(with_answer, &k->whole);
    *end = find_end(k, begin, same);
    if (*end) return HT_OK;
    if (!with_answer->n || same < with_answer->n_ids) return find_end_written_now(k, i, begin, same, end);
    /* The token that opens the next turn may be the one that ends generation. */
    *end = same + (same < k->whole.n_ids && ht_sample_is_stop(k->m, k->whole.id[same]));
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

/* Takes a message's weight out: no template is to see it. */
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

/* The whole becomes the sample; its ids are the sample's from then on, and freed with it. */
static ht_status render_whole(marking *k) {
    ht_status status = render_first(k, k->all.n, false, &k->whole);
    if (status) return status;
    int32_t *ids = k->whole.id;
    return ht_sample_take_ids(k->out, ids, k->whole.n_ids, k->err);
}

ht_status ht_sample_of_chat(const ht_model *m, ht_chat *chat, const ht_sample_options *options, ht_sample *out,
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
    free(k.whole.text);
    if (!out->id) ht_ids_free(k.whole.id);
    return status;
}
