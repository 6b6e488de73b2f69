/* hearth score: log-probabilities of given texts after prompts. */
#include "command.h"
#include "fail.h"
#include "json.h"
#include "many.h"

#include <hearth/score.h>

#include <stdlib.h>
#include <string.h>

typedef struct scoring {
    many m;
    ht_continuation *continuations; /* of the latest line; owns the ids, borrows the texts */
    size_t n;
} scoring;

static void clear(scoring *s) {
    for (size_t i = 0; i < s->n; i++) free((void *)(uintptr_t)s->continuations[i].ids);
    free(s->continuations);
    s->continuations = NULL;
    s->n = 0;
}

static ht_status read_continuations(scoring *s, ht_error *err) {
    const ht_json *list = ht_json_object_get(s->m.line.object, "continuations");
    const size_t n = ht_json_array_size(list);
    if (!n) return ht_fail(err, HT_ERR_ARGUMENT, "\"continuations\" must be a list of texts or of lists of ids");
    s->continuations = calloc(n, sizeof *s->continuations);
    if (!s->continuations) return ht_fail(err, HT_ERR_ARGUMENT, "out of memory for the continuations");
    for (; s->n < n; s->n++) {
        ht_continuation *c = &s->continuations[s->n];
        const ht_json *value = ht_json_array_get(list, s->n);
        if (ht_json_is_string(value)) {
            c->text = ht_json_string_value(value);
        } else if (ht_json_is_array(value)) {
            int32_t *ids;
            const ht_status st = prompt_ids(value, &ids, &c->n_ids, err);
            if (st) return st;
            c->ids = ids;
        } else
            return ht_fail(err, HT_ERR_ARGUMENT, "a continuation is neither a text nor a list of ids");
    }
    return HT_OK;
}

static bool is_member(const char *name) { return strcmp(name, "continuations") == 0; }

static ht_status next(size_t i, ht_score_request *request, void *user, ht_error *err) {
    scoring *s = user;
    const size_t index = many_index(&s->m, i);
    clear(s);
    ht_status st = prompts_read(&s->m.prompts, index, s->m.o, s->m.e.model, is_member, &s->m.line, err);
    if (st) return st;
    st = read_continuations(s, err);
    if (st) return prompts_fail(&s->m.prompts, index, st, err);
    *request = (ht_score_request){prompt_of(&s->m.line), s->continuations, s->n};
    return HT_OK;
}

static ht_json *token_json(const ht_token_score *t) {
    ht_json *value = ht_json_pack("{si sf}", "id", (int)t->id, "log_probability", t->log_probability);
    ht_json *top = t->n_top ? ht_json_new_array() : NULL;
    for (int32_t i = 0; top && i < t->n_top; i++)
        ht_json_array_append_new(top, ht_json_pack("[if]", (int)t->top[i].id, t->top[i].log_probability));
    if (top) ht_json_object_set_new(value, "top", top);
    return value;
}

static ht_json *continuation_json(const ht_continuation_score *c) {
    ht_json *tokens = ht_json_new_array();
    for (int64_t i = 0; tokens && i < c->n_tokens; i++) ht_json_array_append_new(tokens, token_json(&c->tokens[i]));
    return ht_json_pack("{sf so}", "log_probability", c->log_probability, "tokens", tokens);
}

static bool take(const ht_score_result *r, void *user) {
    scoring *s = user;
    if (many_interrupted(r->status)) return false;
    ht_json *value = many_result(&s->m, r->index, r->status ? r->message : NULL);
    if (value && !r->status) {
        ht_json *list = ht_json_new_array();
        for (size_t i = 0; list && i < r->n_continuations; i++)
            ht_json_array_append_new(list, continuation_json(&r->continuations[i]));
        value = json_merge(value, ht_json_pack("{sI sI so}", "prompt_tokens", (int64_t)r->prompt_tokens,
                                               "shared_tokens", (int64_t)r->shared_tokens, "continuations", list));
    }
    return many_write(&s->m, value, r->status != HT_OK);
}

int score_command(const options *o) {
    scoring s = {0};
    ht_error err = {0};
    const int status = many_open(&s.m, o);
    if (status) return status;
    ht_score_options how;
    ht_score_options_init(&how, sizeof how);
    how.top_k = (int32_t)o->top;
    how.adapters = s.m.e.adapters.adapter;
    how.adapter_scales = s.m.e.adapters.scale;
    how.n_adapters = s.m.e.adapters.n;
    how.next = next;
    how.cancel = interrupt_flag();
    const ht_status st = many_left(&s.m) ? ht_score(s.m.e.model, NULL, many_left(&s.m), &how, take, &s, &err) : HT_OK;
    clear(&s);
    return many_close(&s.m, st, &err);
}
