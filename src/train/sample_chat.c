#include "train/sample_chat.h"

#include "base/error.h"
#include "models/model.h"

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

static ht_status render_first(const marking *k, size_t n, bool prompt, rendering *out) {
    ht_jinja_list first = k->all;
    first.n = n;
    return render(k, &first, prompt, out);
}

static size_t common(const rendering *a, const rendering *b) {
    return ht_common_prefix(a->id, a->n_ids, b->id, b->n_ids);
}

static bool is_prefix(const rendering *a, const rendering *b) {
    return a->n <= b->n && memcmp(a->text, b->text, a->n) == 0;
}

/* ---- where messages are ---- */

/* Where what message i says begins in the whole: there the whole parts from a conversation in which the message says something
 * else. Other than by rendering the messages before it, this finds it where a template writes them differently once others
 * follow. */
static ht_status find_message(const marking *k, size_t i, size_t *at) {
    static const char *const said[] = {"content", "reasoning_content", "thinking", "reasoning"};
    static const char other[] = "\x7F"; /* with which no text begins */
    ht_jinja_arena *a = &k->chat->arena;
    ht_jinja_list *changed = ht_jinja_list_new(a, k->all.n);
    for (size_t j = 0; j < k->all.n; j++) {
        ht_jinja_value message = k->all.items[j];
        if (j == i) message = ht_jinja_copy(a, message);
        ht_jinja_list_append(a, changed, message);
        for (size_t s = 0; j == i && s < sizeof said / sizeof *said && !a->status; s++) {
            ht_jinja_value *v = ht_jinja_dict_find_text(message.dict, said[s], strlen(said[s]));
            if (v && ht_jinja_is_string(*v))
                *v = ht_jinja_string_value(ht_jinja_string_new(a, other, sizeof other - 1, true));
        }
    }
    if (a->status) return a->status;
    rendering r;
    ht_status status = render(k, changed, false, &r);
    *at = common(&r, &k->whole);
    rendering_free(&r);
    return status;
}

/* Behind the first token in [from, to) that ends generation; 0: there is none. */
static size_t find_end(const marking *k, size_t from, size_t to) {
    for (size_t i = from; i < to; i++)
        if (ht_sample_is_stop(k->m, k->whole.id[i])) return i + 1;
    return 0;
}

/* ---- answers ---- */

/* Where answer i begins: behind what the whole has in common with the prompt that generation would have had. */
static ht_status find_begin(const marking *k, size_t i, const rendering *with_answer, size_t *begin) {
    if (!i) return find_message(k, 0, begin);
    rendering prompt;
    size_t before;
    ht_status status = render_first(k, i, true, &prompt);
    if (!status) {
        *begin = common(&prompt, &k->whole);
        if (!is_prefix(&prompt, with_answer)) k->out->prompt_differs = true;
        /* A prompt that is no prefix may part from the whole before the answer, in messages that are written differently now. */
        if (!is_prefix(&prompt, &k->whole)) {
            status = find_message(k, i - 1, &before);
            if (!status && *begin <= before) status = find_message(k, i, begin);
        }
    }
    rendering_free(&prompt);
    return status;
}

/* Where it ends: behind the token that ends generation; without one, where the whole has no more in common with the
 * conversation up to the answer. */
static ht_status find_answer_end(const marking *k, size_t i, const rendering *with_answer, size_t begin, size_t *end) {
    const size_t same = common(with_answer, &k->whole);
    size_t next;
    *end = find_end(k, begin, same);
    if (*end) return HT_OK;
    *end = same > begin ? same : begin;
    if (same == with_answer->n_ids || i + 1 == k->all.n) return HT_OK;
    ht_status status = find_message(k, i + 1, &next);
    if (status) return status;
    const size_t written_now = find_end(k, begin, next);
    if (written_now) {
        k->out->history_differs = true;
        *end = written_now;
    }
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
    if (ht_jinja_is_number(*weight)) {
        const double w = ht_jinja_as_real(*weight);
        if (w != 0 && w != 1)
            return ht_fail(k->err, HT_ERR_FORMAT, "the weight of message %zu is %g, expected 0 or 1", i, w);
        *learned = w != 0;
    } else if (weight->kind != HT_VALUE_NONE)
        return ht_fail(k->err, HT_ERR_FORMAT, "the weight of message %zu is %s, expected 0 or 1", i,
                       ht_chat_describe(weight));
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
    for (size_t i = 0; i < n && !status && options->mask != HT_MASK_NONE; i++)
        if (learned[i] && (options->mask == HT_MASK_ANSWERS || i == last)) status = mark_answer(&k, i);
    free(learned);
    free(k.whole.text);
    if (!out->id) ht_ids_free(k.whole.id);
    return status;
}
