#include "train/sample.h"

#include "base/error.h"
#include "base/grow.h"
#include "base/plural.h"
#include "base/text.h"
#include "chat/reader.h"
#include "formats/json.h"
#include "models/model.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { NOT_LEARNED = -100 }; /* the label that says so */

/* A line on its way to a sample. */
typedef struct reading {
    const ht_model *m;
    const ht_sample_options *o;
    const ht_json *line;
    ht_sample *out;
    ht_error *err;
    const ht_json *at; /* what the error is about; NULL: the line */
    bool placed;       /* the error has the place already */
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
static const ht_json *member(reading *r, const char *key) {
    const ht_json *v = ht_json_object_get(r->line, key);
    return ht_json_is_null(v) ? NULL : v;
}

static ht_status fail_member(reading *r, const char *key, const ht_json *v, const char *expected) {
    char found[80] = "missing";
    if (v) ht_json_describe(v, found, sizeof found);
    r->at = v;
    return ht_fail(r->err, HT_ERR_FORMAT, "`%s` is %s, expected %s", key, found, expected);
}

static const ht_json *text_member(reading *r, const char *key) {
    const ht_json *v = member(r, key);
    if (ht_json_is_string(v)) return v;
    fail_member(r, key, v, ht_json_is_array(v) ? "a string; a conversation is given as `messages`" : "a string");
    return NULL;
}

/* ---- conversations ---- */

/* Calls of functions as they were before there were tools would be lost without a word: templates do not know them. */
static ht_status refuse_functions(reading *r, const ht_json *messages) {
    if (member(r, "functions")) return ht_fail(r->err, HT_ERR_UNSUPPORTED, "it has `functions`, expected `tools`");
    for (size_t i = 0; i < ht_json_array_size(messages); i++) {
        const ht_json *call = ht_json_object_get(ht_json_array_get(messages, i), "function_call");
        if (call && !ht_json_is_null(call))
            return ht_fail(r->err, HT_ERR_UNSUPPORTED, "message %zu has a `function_call`, expected `tool_calls`", i);
    }
    return HT_OK;
}

/* Takes the document, with the members `messages`, `tools` and `chat_template_kwargs`; NULL: memory ran out. */
static ht_status read_document(reading *r, ht_json *document) {
    ht_chat *chat = NULL;
    if (!document) return ht_fail_memory(r->err, 0, "a conversation");
    ht_status status = ht_chat_from_value(document, r->o->path, &chat, r->err);
    r->placed = status != HT_OK && r->o->path;
    if (!status) status = refuse_functions(r, ht_json_object_get(document, "messages"));
    ht_json_decref(document);
    if (!status) {
        ht_chat_set_time(chat, r->o->time);
        status = ht_sample_of_chat(r->m, chat, r->o, r->out, r->err);
    }
    ht_chat_free(chat);
    return status;
}

static ht_status read_chat(reading *r) {
    return read_document(r, ht_json_pack("{sO sO* sO*}", "messages", member(r, "messages"), "tools", member(r, "tools"),
                                         "chat_template_kwargs", member(r, "chat_template_kwargs")));
}

/* ---- texts ---- */

/* The ids of a text as ht_generate_text encodes it. */
static ht_status encode(reading *r, const char *text, size_t n, int32_t **ids, size_t *n_ids) {
    return ht_tokenizer_encode(r->m->tokenizer, text, n, HT_ENCODE_PARSE_SPECIAL | HT_ENCODE_ADD_SPECIAL, ids, n_ids,
                               r->err);
}

/* The ids of the text become the sample's, with EOS behind them unless they end in a token that ends generation. */
static ht_status take_text(reading *r, const char *text, size_t n) {
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

static ht_status read_text(reading *r) {
    const ht_json *text = text_member(r, "text");
    if (!text) return HT_ERR_FORMAT;
    ht_status status = ht_model_need_tokenizer(r->m, r->err);
    if (!status) status = take_text(r, ht_json_string_value(text), ht_json_string_length(text));
    if (!status) learn_from(r->out, 0);
    return status;
}

/* The completion is what follows the beginning that the ids of both have in common with those of the prompt. */
static ht_status read_plain_completion(reading *r, const ht_json *prompt, const ht_json *completion) {
    const size_t n_prompt = ht_json_string_length(prompt);
    int32_t *ids = NULL;
    size_t n_ids = 0;
    ht_text whole = {0};
    ht_text_append(&whole, ht_json_string_value(prompt), n_prompt);
    ht_text_append(&whole, ht_json_string_value(completion), ht_json_string_length(completion));
    ht_status status =
        whole.failed ? ht_fail_memory(r->err, n_prompt, "a sample") : ht_model_need_tokenizer(r->m, r->err);
    if (!status) status = take_text(r, whole.data ? whole.data : "", whole.len);
    if (!status) status = encode(r, ht_json_string_value(prompt), n_prompt, &ids, &n_ids);
    if (!status) learn_from(r->out, ht_common_prefix(ids, n_ids, r->out->id, (size_t)r->out->n));
    ht_ids_free(ids);
    ht_text_discard(&whole);
    return status;
}

static ht_status read_completion(reading *r) {
    const ht_json *prompt = text_member(r, "prompt"), *completion = prompt ? text_member(r, "completion") : NULL;
    if (!completion) return HT_ERR_FORMAT;
    if (!r->m->chat.name) return read_plain_completion(r, prompt, completion);
    return read_document(r, ht_json_pack("{s[{sssO}{sssO}]sO*sO*}", "messages", "role", "user", "content", prompt,
                                         "role", "assistant", "content", completion, "tools", member(r, "tools"),
                                         "chat_template_kwargs", member(r, "chat_template_kwargs")));
}

/* ---- ids ---- */

/* A list of integers as long as the ids (n of them; SIZE_MAX: of any length). */
static const ht_json *integers(reading *r, const char *key, size_t n) {
    const ht_json *v = member(r, key);
    if (!ht_json_is_array(v)) {
        fail_member(r, key, v, "a list of integers");
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

/* Labels stand at their own ids, not at those before them: which would be taken for other data without this check. */
static ht_status read_labels(reading *r) {
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

static ht_status read_ids(reading *r) {
    const ht_json *list = integers(r, "input_ids", SIZE_MAX);
    const size_t n = ht_json_array_size(list);
    if (!list) return HT_ERR_FORMAT;
    if (member(r, "attention_mask")) {
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
        const int64_t id = ht_json_integer_value(ht_json_array_get(list, i));
        if (id < 0 || id >= r->m->vocab) {
            free(ids);
            return ht_fail(r->err, HT_ERR_FORMAT, "id %zu is %" PRId64 ", expected 0 to %d, the model's tokens", i, id,
                           r->m->vocab - 1);
        }
        ids[i] = (int32_t)id;
    }
    ht_status status = ht_sample_take_ids(r->out, ids, n, r->err);
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

static ht_status find_form(reading *r) {
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

static ht_status read_form(reading *r) {
    switch (r->out->form) {
    case HT_SAMPLE_MESSAGES: return read_chat(r);
    case HT_SAMPLE_COMPLETION: return read_completion(r);
    case HT_SAMPLE_TEXT: return read_text(r);
    default: return read_ids(r);
    }
}

/* A tokenizer may know more tokens than the model has rows for. */
static ht_status check_ids(reading *r) {
    for (int32_t i = 0; i < r->out->n; i++)
        if (r->out->id[i] >= r->m->vocab)
            return ht_fail(r->err, HT_ERR_FORMAT, "token %d is the tokenizer's %d; the model has %d token%s", i,
                           r->out->id[i], r->m->vocab, ht_plural(r->m->vocab));
    return HT_OK;
}

static ht_status read_line(reading *r) {
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
    const ht_json_options json = {.name = options->path, .first_line = (uint32_t)options->line};
    ht_json *object;
    *out = (ht_sample){0};
    ht_status status = ht_json_load(line, n, &json, &object, err);
    if (status) return status;
    reading r = {.m = m, .o = options, .line = object, .out = out, .err = err};
    status = read_line(&r);
    const uint32_t column = (r.at ? r.at : object)->column;
    ht_json_decref(object);
    if (!status) return HT_OK;
    ht_sample_free(out);
    if (!options->path || r.placed) return status;
    return ht_fail_in(err, status, "%s: line %lld, column %u", options->path, (long long)options->line, column);
}

/* ---- samples as text, in pieces that are learned and pieces that are not ---- */

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

/* A character of which a run has only the first bytes belongs to the next one. */
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

ht_status ht_sample_pieces(const ht_model *m, const ht_sample *s, ht_train_piece_fn *fn, void *user, ht_error *err) {
    ht_decoder *d = NULL;
    ht_text run = {0};
    ht_status status = HT_OK;
    if (m->tokenizer) status = ht_decoder_new(m->tokenizer, false, &d, err);
    if (!status) status = decode(d, s, &run, fn, user, err);
    ht_text_discard(&run);
    ht_decoder_free(d);
    return status;
}
