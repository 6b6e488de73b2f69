#include "generate/prompt_ids.h"

#include "base/error.h"
#include "base/grow.h"
#include "base/plural.h"
#include "base/text.h"
#include "chat/conversation.h"
#include "models/model.h"
#include "tokenizer/tokenizer.h"

#include <stdlib.h>
#include <string.h>

/* A prompt as text, with the runs that came from messages. */
typedef struct source {
    ht_chat_text text; /* none: the prompt is ids; the runs of a conversation have room for one more */
    unsigned flags;    /* of its encoding */
    bool chat;
} source;

static ht_status read_chat(const ht_model *m, const ht_chat *chat, source *s, ht_error *err) {
    s->chat = true;
    ht_chat_text *t = &s->text;
    ht_status status = ht_chat_write_for(m, chat, t, err);
    if (status) return status;
    return HT_RESIZE(t->runs, t->n_runs + 1) ? HT_OK
                                             : ht_fail_memory(err, t->n_runs * sizeof *t->runs, "a conversation");
}

static ht_status read_source(const ht_model *m, const ht_prompt *prompt, source *s, ht_error *err) {
    const int given = (prompt->ids != NULL) + (prompt->text != NULL) + (prompt->chat != NULL);
    if (given != 1)
        return ht_fail(err, HT_ERR_ARGUMENT, "a prompt has one of ids, text and chat; this one has %d of them", given);
    if (prompt->ids) return HT_OK;
    ht_status status = ht_model_need_tokenizer(m, err);
    if (status) return status;
    if (prompt->chat) return read_chat(m, prompt->chat, s, err);
    s->text = (ht_chat_text){.text = strdup(prompt->text), .n = strlen(prompt->text)};
    return s->text.text ? HT_OK : ht_fail_memory(err, s->text.n, "a prompt");
}

/* ---- ids ---- */

static ht_status encode_source(const ht_model *m, const source *s, ht_ids *out, ht_error *err) {
    if (s->chat) return ht_chat_encode_text(m->tokenizer, &s->text, s->flags, &out->id, &out->n, err);
    return ht_tokenizer_encode(m->tokenizer, s->text.text, s->text.n, HT_ENCODE_PARSE_SPECIAL | HT_ENCODE_ADD_SPECIAL,
                               &out->id, &out->n, err);
}

static ht_status append(const ht_ids *a, const int32_t *ids, size_t n, ht_ids *out, ht_error *err) {
    out->id = malloc((a->n + n) * sizeof *ids + 1);
    if (!out->id) return ht_fail_memory(err, (a->n + n) * sizeof *ids, "a prompt's ids");
    if (a->n) memcpy(out->id, a->id, a->n * sizeof *ids);
    if (n) memcpy(out->id + a->n, ids, n * sizeof *ids);
    out->n = a->n + n;
    return HT_OK;
}

/* Encodes the source and a text after it as one text. */
static ht_status encode_joined(const ht_model *m, const source *s, const char *text, ht_ids *out, ht_error *err) {
    const size_t n = strlen(text);
    source joined = *s;
    ht_chat_text *t = &joined.text;
    t->text = malloc(t->n + n + 1);
    if (!t->text) return ht_fail_memory(err, t->n + n, "a prompt with what continues it");
    memcpy(t->text, s->text.text, t->n);
    memcpy(t->text + t->n, text, n + 1);
    t->n += n;
    if (s->chat) t->runs[t->n_runs++] = (ht_text_run){t->n, true};
    const ht_status status = encode_source(m, &joined, out, err);
    free(t->text);
    return status;
}

static ht_status encode_continuation(const ht_model *m, const source *s, const ht_ids *prompt, const ht_continuation *c,
                                     ht_ids *out, ht_error *err) {
    if ((c->text != NULL) + (c->ids != NULL) != 1)
        return ht_fail(err, HT_ERR_ARGUMENT, "it has %s text and ids, expected one of them",
                       c->text ? "both" : "neither");
    if (c->ids) return append(prompt, c->ids, c->n_ids, out, err);
    if (!ht_utf8_valid(c->text, strlen(c->text))) return ht_fail(err, HT_ERR_ARGUMENT, "it is not UTF-8");
    if (s->text.text) return encode_joined(m, s, c->text, out, err);
    ht_ids own;
    ht_status status = ht_model_need_tokenizer(m, err);
    if (!status)
        status =
            ht_tokenizer_encode(m->tokenizer, c->text, strlen(c->text), HT_ENCODE_PARSE_SPECIAL, &own.id, &own.n, err);
    if (status) return status;
    status = append(prompt, own.id, own.n, out, err);
    ht_ids_free(own.id);
    return status;
}

/* ---- checks ---- */

ht_status ht_prompt_check(const ht_model *m, const int32_t *id, size_t n, ht_error *err) {
    if (n == 0) return ht_fail(err, HT_ERR_ARGUMENT, "the prompt is empty");
    if (n > (uint64_t)m->context)
        return ht_fail(err, HT_ERR_LIMIT, "prompt of %zu token%s does not fit the context of %lld", n, ht_plural(n),
                       (long long)m->context);
    return ht_model_check_ids(m, id, n, err);
}

static ht_status check_joined(const ht_model *m, const ht_prompt_ids *p, const ht_ids *joined, ht_error *err) {
    if (joined->n <= (size_t)p->shared) return ht_fail(err, HT_ERR_ARGUMENT, "it adds no tokens to the prompt");
    if (p->shared == 0)
        return ht_fail(err, HT_ERR_ARGUMENT,
                       "with it no token of the prompt stays as it is, so that it follows nothing");
    if (joined->n - 1 > (uint64_t)m->context)
        return ht_fail(err, HT_ERR_LIMIT, "with the prompt it has %zu token%s, which do not fit the context of %lld",
                       joined->n, ht_plural(joined->n), (long long)m->context);
    return ht_model_check_ids(m, joined->id, joined->n, err);
}

/* ---- all of it ---- */

static ht_status encode_prompt(const ht_model *m, const ht_prompt *prompt, const source *s, ht_ids *out,
                               ht_error *err) {
    ht_status status =
        s->text.text ? encode_source(m, s, out, err) : append(&(ht_ids){0}, prompt->ids, prompt->n_ids, out, err);
    if (!status) status = ht_prompt_check(m, out->id, out->n, err);
    return status;
}

ht_status ht_prompt_encode(const ht_model *m, const ht_prompt *prompt, unsigned flags, ht_ids *out,
                           ht_prompt_text *text, ht_error *err) {
    source s = {.flags = flags};
    *out = (ht_ids){0};
    if (text) *text = (ht_prompt_text){0};
    ht_status status = read_source(m, prompt, &s, err);
    if (!status) status = encode_prompt(m, prompt, &s, out, err);
    if (!status && text && s.chat) {
        *text = (ht_prompt_text){s.text.text, s.text.n};
        s.text.text = NULL;
    }
    ht_chat_text_free(&s.text);
    if (!status) return HT_OK;
    ht_ids_free(out->id);
    *out = (ht_ids){0};
    return status;
}

/* ---- texts that are cut ---- */

/* Counts the ids at the end that the tokenizer adds to a text: those after the ids of the text alone. */
static ht_status count_added(const ht_model *m, const char *text, const ht_ids *all, size_t *out, ht_error *err) {
    ht_ids bare;
    ht_status status =
        ht_tokenizer_encode(m->tokenizer, text, strlen(text), HT_ENCODE_PARSE_SPECIAL, &bare.id, &bare.n, err);
    *out = 0;
    if (status) return status;
    for (size_t before = 0; before + bare.n <= all->n; before++)
        if (!bare.n || !memcmp(all->id + before, bare.id, bare.n * sizeof *bare.id)) {
            *out = all->n - before - bare.n;
            break;
        }
    ht_ids_free(bare.id);
    return HT_OK;
}

static ht_status encode_whole(const ht_model *m, const char *text, ht_ids *out, ht_error *err) {
    const source s = {.text = {.text = (char *)(uintptr_t)text, .n = strlen(text)}}; /* which is only read */
    return encode_source(m, &s, out, err);
}

ht_status ht_prompt_encode_cut(const ht_model *m, const char *text, int64_t most, ht_ids *out, bool *cut,
                               ht_error *err) {
    size_t added;
    *out = (ht_ids){0};
    ht_status status = encode_whole(m, text, out, err);
    *cut = !status && most > 0 && out->n > (uint64_t)most;
    if (*cut) {
        status = count_added(m, text, out, &added, err);
        if (added >= (uint64_t)most) added = (size_t)most - 1;
        if (!status) memmove(out->id + most - added, out->id + out->n - added, added * sizeof *out->id);
        out->n = (size_t)most;
    }
    if (!status) status = ht_prompt_check(m, out->id, out->n, err);
    if (!status) return HT_OK;
    ht_ids_free(out->id);
    *out = (ht_ids){0};
    return status;
}

ht_status ht_prompt_count(const ht_model *m, const char *prefix, int64_t *out, ht_error *err) {
    ht_ids ids = {0};
    size_t added = 0;
    ht_status status = encode_whole(m, prefix, &ids, err);
    if (!status) status = count_added(m, prefix, &ids, &added, err);
    *out = (int64_t)(ids.n - added);
    ht_ids_free(ids.id);
    return status;
}

/* ---- with continuations ---- */

static ht_status encode_all(const ht_model *m, const ht_prompt *prompt, const source *s, const ht_continuation *c,
                            size_t n, ht_prompt_ids *out, ht_error *err) {
    ht_status status = encode_prompt(m, prompt, s, &out->prompt, err);
    if (status) return status;
    out->joined = calloc(n + 1, sizeof *out->joined);
    if (!out->joined) return ht_fail_memory(err, n * sizeof *out->joined, "continuations");
    out->shared = (int64_t)out->prompt.n;
    for (size_t i = 0; i < n; i++) {
        ht_ids *joined = &out->joined[out->n_joined++];
        status = encode_continuation(m, s, &out->prompt, &c[i], joined, err);
        if (status) return ht_fail_in(err, status, "continuation %zu", i);
        int64_t same = 0;
        while (same < out->shared && (size_t)same < joined->n && joined->id[same] == out->prompt.id[same]) same++;
        out->shared = same;
    }
    for (size_t i = 0; i < n; i++) {
        status = check_joined(m, out, &out->joined[i], err);
        if (status) return ht_fail_in(err, status, "continuation %zu", i);
    }
    return HT_OK;
}

ht_status ht_prompt_encode_all(const ht_model *m, const ht_prompt *prompt, const ht_continuation *continuations,
                               size_t n, ht_prompt_ids *out, ht_error *err) {
    source s = {0};
    *out = (ht_prompt_ids){0};
    ht_status status = read_source(m, prompt, &s, err);
    if (!status) status = encode_all(m, prompt, &s, continuations, n, out, err);
    ht_chat_text_free(&s.text);
    if (status) ht_prompt_ids_free(out);
    return status;
}

void ht_prompt_ids_free(ht_prompt_ids *p) {
    ht_ids_free(p->prompt.id);
    for (size_t i = 0; i < p->n_joined; i++) ht_ids_free(p->joined[i].id);
    free(p->joined);
    *p = (ht_prompt_ids){0};
}
