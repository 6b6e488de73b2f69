/* hearth run: answers one prompt and streams the text to stdout. */
#include "answer.h"
#include "command.h"
#include "conversation.h"
#include "engine.h"
#include "fail.h"
#include "input.h"
#include "json.h"
#include "terminal.h"

#include <hearth/state.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { EXPECTED_TOKENS = 2048 /* estimate for an answer that only the context limits */ };

/* A user at a terminal can interrupt a long answer; a script cannot. */
static int32_t max_tokens(const options *o) {
    ht_generate_options how;
    ht_generate_options_init(&how, sizeof how);
    return o->max_tokens > 0 ? (int32_t)o->max_tokens : output_is_terminal() ? INT32_MAX : how.max_tokens;
}

/* One answer to one prompt. */
typedef struct reply {
    int64_t context; /* positions that prompt and answer share */
    answer answer;
    probe_lines probes;
} reply;

static ht_status count_tokens(const options *o, const char *prompt, size_t n, size_t *count, ht_error *err) {
    ht_tokenizer *t;
    int32_t *ids = NULL;
    ht_status st = engine_tokenizer(o, &t, err);
    if (!st) st = ht_tokenizer_encode(t, prompt, n, HT_ENCODE_PARSE_SPECIAL, &ids, count, err);
    ht_ids_free(ids);
    ht_tokenizer_free(t);
    return st;
}

/* File size as an estimate; 0 if unknown. */
static size_t file_bytes(const char *path) {
    struct stat s;
    return path && stat(path, &s) == 0 && S_ISREG(s.st_mode) ? (size_t)s.st_size : 0;
}

/* Opens the model with capacity for prompt and answer. A token has at least one byte, so the prompt's length is a cheap
 * upper bound; tokens are counted only when that many do not fit. */
static ht_status open_for(engine *e, const options *o, const char *prompt, size_t n, ht_error *err) {
    enum { CHAT_FORMAT_TOKENS = 256 };
    size_t extra = CHAT_FORMAT_TOKENS + (o->system ? strlen(o->system) : 0);
    extra += file_bytes(o->messages) + file_bytes(o->tools);
    extra += (size_t)(max_tokens(o) < INT32_MAX ? max_tokens(o) : EXPECTED_TOKENS);
    ht_status st = engine_open(e, o, (int64_t)(n + extra), err);
    size_t count;
    ht_error ignored = {0};
    if (st != HT_ERR_LIMIT || n < 256 || count_tokens(o, prompt, n, &count, &ignored)) return st;
    engine_close(e);
    return engine_open(e, o, (int64_t)(count + extra), err);
}

/* Notes when the chat template ignores --no-thinking: it renders the same text with and without thinking. */
static ht_status note_thinking_off(const engine *e, const options *o, ht_chat *chat, ht_error *err) {
    char *with = NULL, *without = NULL;
    ht_status st = ht_chat_format(e->model, chat, &without, err);
    if (!st) st = ht_chat_set_thinking(chat, true, err);
    if (!st) st = ht_chat_format(e->model, chat, &with, err);
    if (!st) st = ht_chat_set_thinking(chat, false, err);
    if (!st && !o->quiet && strcmp(with, without) == 0)
        fprintf(stderr, "hearth run: the chat template has no switch for thinking, so --no-thinking changes nothing\n");
    ht_text_free(with);
    ht_text_free(without);
    return st;
}

/* Generates the answer: the engine, or another backend's model. */
typedef struct answerer {
    engine e;
    ht_backend_model *other; /* NULL: the engine */
    ht_grammar *grammar;     /* of the answer; NULL: none */
    const char *chat_format; /* NULL: none */
    int64_t context;         /* 0: not known */
} answerer;

static ht_status make_chat(const answerer *by, const options *o, const char *prompt, ht_chat **chat, ht_error *err) {
    ht_status st = conversation_of(o, prompt, chat, err);
    if (!st && by->grammar && !o->tool_choice) st = constraint_choose_tools(*chat, err);
    return !st && o->no_thinking && !by->other ? note_thinking_off(&by->e, o, *chat, err) : st;
}

/* The first given option that is valid only in a conversation. */
static const char *option_of_chats(const options *o) {
    return o->system        ? "system"
           : o->messages    ? "messages"
           : o->tools       ? "tools"
           : o->tool_choice ? "tool-choice"
           : o->set.n       ? "set"
                            : NULL;
}

/* After --load-state the prompt is the whole text: the session keeps their common prefix and discards the rest. */
static ht_status generate_after_state(answerer *by, const char *prompt, const ht_generate_options *how, answer *a,
                                      ht_metrics *metrics, ht_error *err) {
    ht_session *s = by->e.session;
    const ht_tokenizer *t = ht_model_tokenizer(by->e.model);
    int32_t *ids;
    size_t n, kept = 0;
    ht_status st =
        ht_tokenizer_encode(t, prompt, strlen(prompt), HT_ENCODE_PARSE_SPECIAL | HT_ENCODE_ADD_SPECIAL, &ids, &n, err);
    if (st) return st;
    while (kept + 1 < n && (int64_t)kept < ht_session_length(s) && ht_session_tokens(s)[kept] == ids[kept]) kept++;
    if (ht_session_truncate(s, (int64_t)kept, err)) {
        ht_session_reset(s);
        kept = 0;
    }
    st = ht_generate(s, ids + kept, n - kept, how, answer_text, a, metrics, err);
    metrics->reused_tokens = (int64_t)kept;
    ht_ids_free(ids);
    return st;
}

static ht_status generate_text(answerer *by, const options *o, const char *prompt, const ht_generate_options *how,
                               answer *a, ht_metrics *metrics, ht_error *err) {
    const ht_backend_prompt text = {.text = prompt};
    if (o->load_state && *prompt && ht_model_tokenizer(by->e.model))
        return generate_after_state(by, prompt, how, a, metrics, err);
    return by->other ? ht_backend_generate(by->other, &text, how, answer_text, a, NULL, metrics, err)
                     : ht_generate_text(by->e.session, prompt, how, answer_text, a, metrics, err);
}

static ht_status generate(answerer *by, const options *o, const char *prompt, reply *r, ht_metrics *metrics,
                          ht_error *err) {
    const ht_sampler_options sampler = options_sampler(o);
    ht_generate_options how;
    ht_generate_options_init(&how, sizeof how);
    how.max_tokens = max_tokens(o);
    how.cancel = interrupt_flag();
    how.sampler = &sampler;
    how.stop = o->stop.items;
    how.n_stop = o->stop.n;
    how.max_thinking_tokens = (int32_t)o->thinking_budget;
    how.parse_special = o->parse_special;
    how.lookup = !by->other && options_lookup(o);
    how.draft = by->e.draft;
    how.draft_tokens = (int32_t)o->draft_tokens;
    how.grammar = by->grammar;
    how.probes = o->probe ? &r->probes.options : NULL;
    if (o->raw || !by->chat_format) {
        const char *needs = option_of_chats(o);
        if (!needs) return generate_text(by, o, prompt, &how, &r->answer, metrics, err);
        return ht_fail(err, HT_ERR_ARGUMENT,
                       "--%s needs a chat template, and %s has none: put all of it into the prompt", needs, o->model);
    }
    ht_chat *chat = NULL;
    ht_status st = make_chat(by, o, prompt, &chat, err);
    if (!st)
        st = by->other ? ht_backend_chat(by->other, chat, &how, answer_piece, &r->answer, metrics, err)
                       : ht_generate_chat(by->e.session, chat, &how, answer_piece, &r->answer, metrics, err);
    ht_chat_free(chat);
    return st;
}

/* Peak memory of this process, or of the backend's process. */
static size_t peak_of(const options *o, const ht_metrics *m) {
    return backend_is_native(o) ? (size_t)peak_memory_bytes() : m->peak_memory_bytes;
}

static void print_statistics(const options *o, const ht_device *d, const ht_metrics *m) {
    char note[DEVICE_NOTE];
    metrics_print(m);
    fprintf(stderr, " · peak %.1f GB%s\n", (double)peak_of(o, m) / 1e9, device_note(d, note));
}

static const char *finish_name(ht_finish finish) {
    switch (finish) {
    case HT_FINISH_STOP: return "stop";
    case HT_FINISH_LENGTH: return "length";
    case HT_FINISH_CALLBACK: break;
    }
    return "interrupted";
}

static void print_json(const options *o, const answer *a, const ht_metrics *m) {
    ht_json *metrics = ht_json_pack(
        "{sI sI sf sf sf sf sf sI sI sI}", "prompt_tokens", (int64_t)m->prompt_tokens, "generated_tokens",
        (int64_t)m->generated_tokens, "prefill_seconds", m->prefill_seconds, "decode_seconds", m->decode_seconds,
        "time_to_first_token_ms", m->first_token_seconds * 1e3, "prefill_tokens_per_second", prefill_rate(m),
        "decode_tokens_per_second", decode_rate(m), "peak_memory_bytes", (int64_t)peak_of(o, m), "guessed_tokens",
        (int64_t)m->guessed_tokens, "accepted_tokens", (int64_t)m->accepted_tokens);
    ht_json *value =
        ht_json_pack("{so so ss so}", "model", ht_json_string(o->model), "text",
                     ht_json_stringn(a->text.data, a->text.len), "finish", finish_name(m->finish), "metrics", metrics);
    if (m->stop >= 0)
        ht_json_object_set_new(value, "stop", ht_json_stringn(o->stop.items[m->stop], strlen(o->stop.items[m->stop])));
    if (m->stop_id >= 0) ht_json_object_set_new(value, "stop_id", ht_json_integer(m->stop_id));
    if (m->thought_ended) ht_json_object_set_new(value, "thought_ended", ht_json_boolean(true));
    if (a->thinking.len) ht_json_object_set_new(value, "thinking", ht_json_stringn(a->thinking.data, a->thinking.len));
    if (a->calls) ht_json_object_set(value, "tool_calls", a->calls);
    json_output(value);
}

static int finish_run(const options *o, const ht_device *d, reply *r, const ht_metrics *metrics, ht_status st,
                      const ht_error *err) {
    answer *a = &r->answer;
    bool cancelled = st == HT_ERR_CANCELLED && interrupted() && metrics->generated_tokens > 0;
    if (a->out_of_memory) {
        fprintf(stderr, "hearth: out of memory for the answer's text\n");
        return EXIT_FAILED;
    }
    if (output_reader_gone()) return EXIT_OK;
    if (st == HT_ERR_CANCELLED && !cancelled) {
        fprintf(stderr, "hearth: interrupted before the first token\n");
        return EXIT_FAILED;
    }
    if (o->json && (!st || cancelled))
        print_json(o, a, metrics);
    else if (!o->json)
        answer_end(a);
    int status = output_finish(EXIT_OK);
    if (st && !cancelled) return report(err);
    if (!o->quiet && metrics->prompt_tokens) print_statistics(o, d, metrics);
    if (!st) limit_print(o, metrics, max_tokens(o), r->context, a);
    return status;
}

static ht_status open_answerer(answerer *by, const options *o, const char *prompt, size_t n, ht_error *err) {
    ht_backend_info info;
    if (backend_is_native(o)) {
        ht_status st = open_for(&by->e, o, prompt, n, err);
        if (!st && o->load_state) st = ht_session_load(by->e.session, o->load_state, err);
        if (st) return st;
        by->chat_format = ht_chat_format_name(by->e.model);
        by->context = ht_model_context(by->e.model);
        return constraint_open(o, by->e.model, &by->grammar, err);
    }
    ht_status st = backend_open(o, &by->other, err);
    if (!st) st = ht_backend_get_info(by->other, &info, err);
    if (st) return st;
    by->chat_format = *info.chat_format ? info.chat_format : NULL;
    by->context = info.context;
    return HT_OK;
}

static void close_answerer(answerer *by) {
    ht_backend_close(by->other);
    ht_grammar_free(by->grammar);
    engine_close(&by->e);
}

int run_command(const options *o) {
    ht_error err = {0};
    char *prompt = NULL;
    size_t n = 0;
    if (o->draft_tokens && !options_lookup(o) && !o->draft)
        return usage_error(o, "--draft-tokens and --no-lookup exclude each other");
    if (o->system && o->messages) return usage_error(o, "--system and --messages exclude each other");
    if (constraint_problem(o)) return usage_error(o, "%s", constraint_problem(o));
    if (o->top_logprobs && !o->probe) return usage_error(o, "--top-logprobs is of --probe logprob");
    if (o->probe_out && !o->probe) return usage_error(o, "--probe-out is of --probe");
    if (o->probe && !probes_kinds(o->probe)) return usage_error(o, "--probe is a list as in token,entropy, or all");
    ht_status st = prompt_read(o, &prompt, &n, &err);
    if (!st && n == 0 && !o->messages && !o->load_state) {
        free(prompt);
        return usage_error(o, "the prompt is empty");
    }
    answerer by = {0};
    ht_metrics metrics = {0};
    reply r = {.answer = {.shows = !o->json, .keeps = o->json}};
    if (!st) st = open_answerer(&by, o, prompt, n, &err);
    r.context = by.context;
    if (!st) st = probes_open(o, &r.probes, &err);
    if (!st) st = generate(&by, o, prompt, &r, &metrics, &err);
    int status = finish_run(o, by.e.device, &r, &metrics, st, &err);
    if (probes_close(&r.probes, &err) && status == EXIT_OK) status = report(&err);
    if (o->save_state && status == EXIT_OK && ht_session_save(by.e.session, o->save_state, &err)) status = report(&err);
    close_answerer(&by);
    free(prompt);
    answer_free(&r.answer);
    return status;
}
