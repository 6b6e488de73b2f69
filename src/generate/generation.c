/* Generation on the caller's thread: prompt in, tokens one by one, text out. */
#include "generate/generation.h"

#include "base/checked.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/options.h"
#include "base/plural.h"
#include "base/text.h"
#include "chat/answer_formats.h"
#include "chat/conversation.h"
#include "device/device.h"
#include "tokenizer/token_trie.h"

#include <stdlib.h>
#include <string.h>

static const ht_generate_options defaults = {.size = sizeof defaults, .max_tokens = 256, .max_thinking_tokens = -1};

void ht_generate_options_init(ht_generate_options *options, size_t size) {
    ht_options_init(options, size, &defaults, sizeof defaults);
}

ht_status ht_generation_read_options(ht_generate_options *o, const ht_generate_options *options, ht_error *err) {
    return ht_options_read(o, options, &defaults, sizeof defaults, "ht_generate_options", err);
}

/* ---- the constraint: the grammar of the options after the reasoning, that of the tools, or both ---- */

void ht_constraint_free(ht_constraint *c) {
    ht_grammar_free(c->grammar);
    ht_grammar_free(c->calls);
    *c = (ht_constraint){0};
}

/* Whether a variable of the template turns reasoning off. */
static bool has_reasoning_off(const ht_chat *chat) {
    static const char *const names[] = {"enable_thinking", "thinking"};
    bool off = false;
    for (int i = 0; i < 2; i++) {
        const ht_jinja_value *v = ht_jinja_dict_find_text(chat->variables, names[i], strlen(names[i]));
        off = off || (v && v->kind == HT_VALUE_BOOL && !v->boolean);
    }
    return off;
}

static ht_grammar_start start_of(const ht_model *m, const ht_chat *chat, const char *prompt, size_t n) {
    bool with_title;
    const char *source = ht_chat_template_source(ht_chat_template_of(&m->chat, chat));
    const ht_reasoning_format *format = ht_reasoning_format_of(source);
    if (ht_reasoning_is_open(format, prompt, n, &with_title)) return HT_START_IN_REASONING;
    /* A header or mark precedes the text of some formats, with or without reasoning. */
    const bool is_text = chat->continues || (has_reasoning_off(chat) && !format->text && !ht_message_format_of(source));
    return is_text ? HT_START_TEXT : HT_START_ANSWER;
}

/* An answer that must be calls has no text that a grammar could constrain. */
static bool has_text(ht_tool_choice choice) {
    return choice != HT_TOOL_CHOICE_REQUIRED && choice != HT_TOOL_CHOICE_NAMED;
}

ht_status ht_constraint_of_chat(ht_model *m, const ht_chat *chat, const ht_generate_options *options,
                                const char *prompt, size_t n, ht_constraint *out, ht_error *err) {
    const ht_tool_choice choice = chat->tool_choice;
    *out = (ht_constraint){0};
    if (!options->grammar && choice == HT_TOOL_CHOICE_FREE) return HT_OK;
    ht_status status = HT_OK;
    if (options->grammar && has_text(choice)) {
        if (choice == HT_TOOL_CHOICE_AUTO) status = ht_tool_cache_find(m, chat, true, &out->calls, err);
        if (status) return status;
        out->grammar = ht_grammar_retain(options->grammar);
        out->no_calls = choice != HT_TOOL_CHOICE_FREE && !out->calls;
    } else {
        status = ht_tool_cache_find(m, chat, false, &out->grammar, err);
        out->only_calls = !has_text(choice);
    }
    out->start = start_of(m, chat, prompt, n);
    return status;
}

/* ---- life ---- */

/* The session keeps the draft model's session, so that it need not read a conversation again. */
static ht_status open_draft(ht_generation *g, ht_error *err) {
    ht_session *s = g->s;
    ht_status status = ht_speculation_check_draft(s->model, g->o.draft, err);
    if (status || (s->draft && s->draft->model == g->o.draft)) return status;
    ht_session_free(s->draft);
    return ht_session_new(g->o.draft, NULL, &s->draft, err);
}

static ht_status begin_speculation(ht_generation *g, ht_error *err) {
    if (g->o.draft_tokens < 0 || g->o.draft_tokens > HT_DRAFT_TOKENS_MAX)
        return ht_fail(err, HT_ERR_ARGUMENT, "%d draft tokens per step, expected 1 to %d, or 0 for an adaptive number",
                       (int)g->o.draft_tokens, HT_DRAFT_TOKENS_MAX);
    if ((!g->o.lookup && !g->o.draft) || g->o.probes) return HT_OK;
    ht_status status = g->o.draft ? open_draft(g, err) : HT_OK;
    if (status) return status;
    const ht_speculation_setup setup = {.lookup = g->o.lookup,
                                        .draft = g->o.draft ? g->s->draft : NULL,
                                        .sampler = g->o.sampler,
                                        .most = g->o.draft_tokens,
                                        .repeats = ht_cache_has_states(g->s->cache)};
    return ht_speculation_new(&setup, &g->speculation, err);
}

static ht_status begin_grammar(ht_generation *g, ht_error *err) {
    const ht_model *m = g->s->model;
    ht_constraint *c = &g->constraint;
    if (!c->grammar) *c = (ht_constraint){.grammar = g->o.grammar, .start = HT_START_TEXT};
    if (g->o.grammar && !ht_grammar_is_for(g->o.grammar, m))
        return ht_fail(err, HT_ERR_ARGUMENT, "the grammar was compiled for another model: its tokens are other ones");
    const ht_status status = ht_sampler_constrain(g->sampler, err);
    if (!status && c->no_calls && g->answer) ht_response_reader_end_calls(g->answer);
    /* A reader of whole calls must see what was begun as one. */
    if (!status && c->only_calls && g->o.call_pieces && g->answer) ht_response_reader_set_only_calls(g->answer);
    return status ? status : ht_answer_matcher_new(c->grammar, c->calls, c->start, &g->matcher, err);
}

static ht_status begin_budget(ht_generation *g, ht_error *err) {
    const int32_t most = g->o.max_thinking_tokens;
    if (most == -1) return HT_OK;
    if (most < -1)
        return ht_fail(err, HT_ERR_ARGUMENT, "max_thinking_tokens is %d, expected 0 or more, or -1 for no bound",
                       (int)most);
    const ht_status status = ht_thinking_budget_new(g->s->model, g->chat, most, &g->budget, err);
    if (g->budget && g->constraint.no_calls) ht_thinking_budget_end_calls(g->budget);
    return status;
}

ht_status ht_generation_begin(ht_generation *g, ht_text_fn *fn, void *user, ht_error *err) {
    const ht_model *m = g->s->model;
    const bool wants_text = fn || g->answer || g->o.n_stop > 0;
    if (g->o.max_tokens < 1)
        return ht_fail(err, HT_ERR_ARGUMENT, "max_tokens is %d, expected 1 or more", (int)g->o.max_tokens);
    ht_status status = ht_sampler_options_read(g->o.sampler, &m->sampling, &g->sampler_options, err);
    if (status) return status;
    g->o.sampler = &g->sampler_options;
    status = ht_sampler_new(g->o.sampler, m->vocab, m->device->row_ops, &g->sampler, err);
    if (!status && (g->o.grammar || g->constraint.grammar)) status = begin_grammar(g, err);
    if (!status) status = begin_budget(g, err);
    if (!status) status = begin_speculation(g, err);
    if (!status && g->o.probes) status = ht_probing_new(m, g->o.probes, &g->probing, err);
    if (!status && wants_text) status = ht_model_need_tokenizer(m, err);
    return status ? status : ht_token_output_begin(&g->output, m->tokenizer, &g->o, g->answer, fn, user, err);
}

static void end_mask_order(ht_generation *g) {
    if (g->ahead && *g->ahead) ht_masks_ahead_end(*g->ahead, &g->mask_order);
}

void ht_generation_end(ht_generation *g) {
    end_mask_order(g);
    ht_sampler_free(g->sampler);
    ht_answer_matcher_free(g->matcher);
    ht_thinking_budget_free(g->budget);
    ht_probing_free(g->probing);
    ht_speculation_free(g->speculation);
    ht_token_output_free(&g->output);
}

/* ---- forced text ---- */

/* Text that the grammar forces is tokenized, and verified like other guesses, since a model may split it otherwise:
 * the output is bit-identical to plain decoding. */

enum { MOST_BYTES = 96 }; /* maximum bytes of forced text */

/* The only token with which a text can begin, if no other begins or continues it; -1: several. */
static int32_t only_token(const ht_token_trie *trie, const char *text, size_t n) {
    const ht_trie_part *all = &trie->all;
    int32_t only = -1;
    for (uint32_t depth = 0, at = 0, end = all->n; depth < n; depth++) {
        at = ht_trie_find(all, at, end, (uint8_t)text[depth]);
        if (at == end) break;
        if (all->token[at] >= 0) {
            if (only >= 0) return -1;
            only = all->token[at];
        }
        end = all->next[at++];
        if (depth + 1 == n && at < end) return -1;
    }
    return only;
}

/* Whether ids spell the n bytes: a tokenizer may encode the beginning of a text differently. */
static bool spell(const int32_t *ids, size_t n_ids, const ht_token_trie *trie, const char *text, size_t n) {
    size_t at = 0;
    for (size_t i = 0; i < n_ids; i++) {
        size_t bytes;
        const char *piece = ht_token_trie_text(trie, ids[i], &bytes);
        if (bytes > n - at || memcmp(piece, text + at, bytes) != 0) return false;
        at += bytes;
    }
    return at == n;
}

/* Guesses up to `limit` tokens after the matcher's, into out [limit]; *n may be 0. Leaves the matcher unchanged. */
static ht_status guess_text(ht_answer_matcher *m, ht_model *model, int32_t limit, int32_t *out, int32_t *n,
                            ht_error *err) {
    const ht_token_trie *trie;
    char text[MOST_BYTES];
    int32_t *ids;
    size_t n_ids, bytes = 0;
    *n = 0;
    ht_status status = ht_model_token_trie(model, &trie, err);
    if (!status) status = ht_answer_matcher_forced(m, text, sizeof text, &bytes, err);
    while (bytes && !ht_utf8_valid(text, bytes)) bytes--; /* the rest of a character is a choice */
    if (status || !bytes || limit < 1) return status;
    status = ht_tokenizer_encode(model->tokenizer, text, bytes, 0, &ids, &n_ids, err);
    if (status) return status;
    const int32_t only = only_token(trie, text, bytes);
    /* The following text may change or lengthen the last token. */
    if (n_ids > 1 && spell(ids, n_ids, trie, text, bytes)) {
        *n = (int32_t)ht_min_size(n_ids - 1, (size_t)limit);
        memcpy(out, ids, (size_t)*n * sizeof *out);
    } else if (only >= 0)
        out[(*n)++] = only;
    ht_ids_free(ids);
    return HT_OK;
}

/* ---- the answer ---- */

/* Draws from one row, among the tokens that the grammar allows, or writes the end of reasoning. */
static ht_status pick(ht_generation *g, const ht_logits_rows *logits, int32_t row, int32_t *id, ht_error *err) {
    const uint32_t *mask;
    bool allowed = false;
    ht_status status = g->matcher ? ht_answer_matcher_mask(g->matcher, &mask, err) : HT_OK;
    if (status) return status;
    if (g->matcher) ht_sampler_set_mask(g->sampler, mask, ht_tokenizer_vocab_size(g->s->model->tokenizer));
    int32_t drawn;
    status = ht_sampler_pick_row(g->sampler, logits, row, g->s->token, g->total + row, &drawn, err);
    if (status) return status;
    *id = g->budget ? ht_thinking_budget_draw(g->budget, drawn) : drawn;
    if (!g->matcher) return HT_OK;
    status = ht_answer_matcher_accept(g->matcher, *id, &allowed, err);
    if (status || allowed || *id == drawn) return status;
    /* White space after reasoning that the grammar does not have. */
    ht_thinking_budget_give_up(g->budget);
    *id = drawn;
    return ht_answer_matcher_accept(g->matcher, drawn, &allowed, err);
}

/* Draws the token after `total` others, and as long as it is what was guessed the next, on a thread of the step. */
static ht_status draw(void *user, const ht_logits_rows *logits, ht_error *err) {
    ht_generation *g = user;
    const int32_t *token = g->s->token;
    for (int32_t i = 0; i < logits->n_rows; i++) {
        int32_t id;
        const ht_status status = pick(g, logits, i, &id, err);
        if (status) return i == 0 ? status : HT_OK; /* it may never come to this row */
        g->drawn[g->n_drawn++] = id;
        if (g->probing) ht_probing_look(g->probing, id, logits->x, g->s->job.taps); /* with probes nothing is guessed */
        if (i == g->n_guesses || id != token[g->total + i]) break;
        if (g->budget && ht_thinking_budget_ends_step(g->budget, id)) break;
    }
    atomic_store_explicit(&g->mask_order.is_late, true, memory_order_relaxed);
    return HT_OK;
}

/* Preemption does not change this number. */
static int64_t n_prompt(const ht_generation *g) { return g->total - g->metrics.generated_tokens; }

static int64_t limit_of(const ht_generation *g) { return g->limit ? g->limit : g->s->model->context; }

/* Guesses the end of reasoning. */
static bool guess_ending(ht_generation *g, int32_t limit) {
    int32_t n;
    const int32_t *ending = ht_thinking_budget_ending(g->budget, &n);
    g->n_guesses = ht_min_i32(n, limit);
    if (g->n_guesses) memcpy(g->s->token + g->total, ending, (size_t)g->n_guesses * sizeof *ending);
    return g->n_guesses > 0;
}

/* Guesses what the grammar leaves no choice about. Where it cannot say, drawing will, with what went wrong. */
static ht_status guess_forced(ht_generation *g, int32_t limit, ht_error *err) {
    ht_answer_matcher_truncate(g->matcher, (size_t)g->metrics.generated_tokens);
    const ht_status status = guess_text(g->matcher, g->s->model, limit, g->s->token + g->total, &g->n_guesses, err);
    return status == HT_ERR_MEMORY ? status : HT_OK;
}

static ht_status guess(ht_generation *g, ht_error *err) {
    ht_session *s = g->s;
    const bool may_force = g->matcher && !g->probing, may_end = g->budget && !g->probing;
    if (g->budget) {
        const ht_status status = ht_thinking_budget_prepare(g->budget, s->token, g->total, err);
        if (status) return status;
    }
    if ((!g->speculation && !may_force && !may_end) || g->first_token == 0) return HT_OK;
    int64_t limit = ht_min_i64(limit_of(g) - g->total, g->o.max_tokens - g->metrics.generated_tokens) - 1;
    /* The guesses join the pending tokens in one step: more than one token is pending when states went back. */
    limit = ht_min_i64(limit, ht_min_i64(HT_DRAFT_TOKENS_MAX + 1, s->chunk) - (g->total - s->cache->length));
    limit = ht_min_i64(limit, ht_model_growth(s->model, g->total)); /* a step's rows are of one kind of sequence */
    ht_status status = ht_session_reserve_tokens(s, g->total + HT_DRAFT_TOKENS_MAX, err);
    if (status || limit <= 0 || (may_end && guess_ending(g, (int32_t)limit))) return status;
    if (g->budget) limit = ht_thinking_budget_guesses(g->budget, (int32_t)limit);
    if (limit == 0) return HT_OK;
    if (may_force) status = guess_forced(g, (int32_t)limit, err);
    if (status || g->n_guesses || !g->speculation) return status;
    ht_speculation_set_prompt(g->speculation, n_prompt(g));
    return ht_speculation_guess(g->speculation, s->token, g->total, (int32_t)limit, g->o.cancel, s->token + g->total,
                                &g->n_guesses, err);
}

ht_status ht_generation_guess(ht_generation *g, ht_error *err) {
    g->n_guesses = 0;
    ht_cache_begin(g->s->cache, g->total);
    const ht_status status = guess(g, err);
    /* The step may have to end before. */
    if (!status && g->n_guesses)
        g->n_guesses = (int32_t)ht_max_i64(0, ht_session_step_end(g->s, g->total + g->n_guesses) - g->total);
    return status;
}

/* Orders the masks that the step will need. Without a thread they are computed when needed. */
static void order_masks(ht_generation *g) {
    if (!g->matcher || !g->ahead || g->prompt_only) return;
    if (!*g->ahead && !(*g->ahead = ht_masks_ahead_new(g->s->model->device))) return;
    if (g->first_token == 0 && g->mask_order.is_there) return; /* every chunk of a prompt needs the same one */
    end_mask_order(g);
    ht_masks_ahead_order(*g->ahead, &g->mask_order, g->matcher, g->s->token + g->total, g->n_guesses);
}

ht_status ht_generation_ask(ht_generation *g, ht_error *err) {
    ht_session *s = g->s;
    g->n_drawn = 0;
    g->n_repeated = g->first_token > 0 ? ht_max_i64(0, g->total - 1 - s->cache->length) : 0;
    /* Discard tokens drawn by a job that failed. */
    if (g->matcher) ht_answer_matcher_truncate(g->matcher, (size_t)g->metrics.generated_tokens);
    g->asked = ht_now_seconds();
    const int64_t end = g->total + g->n_guesses;
    ht_status status = ht_session_prepare(s, end, g->prompt_only ? end : g->total - 1, err);
    if (status) return status;
    s->job.cancel = g->o.cancel;
    if (g->prompt_only) return HT_OK;
    order_masks(g);
    ht_sampler_set_prompt(g->sampler, n_prompt(g));
    for (int32_t i = 0; i <= g->n_guesses; i++) {
        const int32_t top_k = ht_sampler_top_k(g->sampler, g->total + i);
        s->job.top_k = i > 0 && (!top_k || !s->job.top_k) ? 0 : ht_max_i32(s->job.top_k, top_k);
    }
    if (g->probing) {
        if (ht_probing_needs_logits(g->probing)) s->job.top_k = 0;
        s->job.tapped = ht_probing_needs_taps(g->probing);
    }
    s->job.consume = draw;
    s->job.user = g;
    s->job.returns = true;
    return HT_OK;
}

static bool is_stop_id(const ht_generation *g, int32_t id) {
    const ht_model *m = g->s->model;
    for (int i = 0; i < m->n_stop_ids && !g->o.ignore_eos; i++)
        if (m->stop_ids[i] == id) return true;
    return false;
}

static void show_probes(ht_generation *g, int32_t id) {
    ht_probing_token t = {.token = id, .index = g->metrics.generated_tokens, .s = g->s};
    if (g->account) {
        t.cache_bytes = atomic_load_explicit(&g->account->bytes, memory_order_relaxed);
        t.cache_budget = g->kv_budget;
    }
    ht_probing_show(g->probing, &t, g->probe, g->probe_user);
}

/* The answer is text from here on, whatever it reads as. */
static void end_calls(ht_generation *g) {
    if (g->answer) ht_response_reader_end_calls(g->answer);
    if (g->budget) ht_thinking_budget_end_calls(g->budget);
}

/* Shows a token; sets the finish when it is the last one. */
static ht_status take_token(ht_generation *g, int32_t id, ht_error *err) {
    ht_session *s = g->s;
    if (g->first_token == 0) {
        g->first_token = ht_now_seconds();
        g->metrics.prefill_seconds = g->first_token - g->begin;
        if (!g->new_turn) ht_token_output_join(&g->output, s->token, s->n_tokens);
    }
    if (g->probing) show_probes(g, id);
    if (is_stop_id(g, id)) {
        g->metrics.finish = HT_FINISH_STOP;
        g->metrics.stop_id = id;
        return HT_OK;
    }
    ht_status status = ht_session_push(s, id, err);
    if (status) return status;
    g->total = s->n_tokens;
    g->metrics.generated_tokens++;
    if (g->matcher && ht_answer_matcher_is_text(g->matcher, (size_t)g->metrics.generated_tokens)) end_calls(g);
    status = g->budget ? ht_thinking_budget_take(g->budget, id, err) : HT_OK;
    if (status) return status;
    status = ht_token_output_put(&g->output, id, &g->metrics.finish, err);
    g->metrics.stop = g->output.stream.found;
    if (!status && g->matcher && !g->metrics.finish &&
        g->metrics.generated_tokens == (int64_t)ht_answer_matcher_length(g->matcher)) {
        ht_ending ending;
        status = ht_answer_matcher_ending(g->matcher, &ending, err);
        if (!status && ending == HT_ENDING_MUST) g->metrics.finish = HT_FINISH_STOP;
    }
    const bool full = g->metrics.generated_tokens >= g->o.max_tokens || s->n_tokens >= limit_of(g);
    if (status == HT_OK && !g->metrics.finish && full) g->metrics.finish = HT_FINISH_LENGTH;
    return status;
}

/* Counts the guesses and drops wrong ones from the cache; this step wrote them, so every ring still has the rest. */
static void judge(ht_generation *g) {
    ht_session *s = g->s;
    const int32_t right = ht_max_i32(g->n_drawn - 1, 0);
    if (g->n_guesses) ht_cache_truncate(s->cache, ht_min_i64(s->cache->length, g->total + right));
    if (g->speculation && g->first_token > 0 && g->n_drawn && g->n_repeated <= HT_DRAFT_TOKENS_MAX)
        ht_speculation_learn(g->speculation, g->n_guesses, right, g->n_repeated, ht_now_seconds() - g->asked);
    g->metrics.guessed_tokens += g->n_guesses;
    g->metrics.accepted_tokens += right;
}

ht_status ht_generation_take(ht_generation *g, ht_error *err) {
    ht_session *s = g->s;
    if (g->speculation || g->n_guesses) judge(g);
    if (s->cache->length > s->n_tokens && g->n_guesses == 0) {
        if (g->first_token == 0) g->metrics.prompt_tokens += s->cache->length - s->n_tokens;
        s->n_tokens = s->cache->length;
    }
    if (s->job.status) {
        if (s->cache->length > s->n_tokens) ht_cache_truncate(s->cache, s->n_tokens);
        if (err) *err = s->job.err;
        return s->job.status;
    }
    if (g->prompt_only && s->cache->length == g->total) g->metrics.finish = HT_FINISH_LENGTH;
    ht_status status = HT_OK;
    for (int32_t i = 0; i < g->n_drawn && !status && !g->metrics.finish; i++) status = take_token(g, g->drawn[i], err);
    if (g->budget && g->n_drawn) {
        ht_thinking_budget_end_step(g->budget);
        g->metrics.thought_ended = ht_thinking_budget_has_ended(g->budget);
    }
    if (s->cache->length > s->n_tokens) ht_cache_truncate(s->cache, s->n_tokens);
    return status;
}

/* Checks that n more tokens fit the session and leave a position for an answer. */
static ht_status check_prompt(const ht_session *s, size_t n, ht_error *err) {
    if (n == 0 && s->n_tokens == 0)
        return ht_fail(err, HT_ERR_ARGUMENT, "the prompt is empty and the session holds no tokens to continue from");
    if (n == 0 && s->n_tokens == s->model->context)
        return ht_fail(err, HT_ERR_LIMIT, "the context of %lld is full and leaves no position to go on",
                       (long long)s->model->context);
    if (s->n_tokens + (int64_t)n == s->model->context)
        return ht_fail(err, HT_ERR_LIMIT,
                       "prompt of %zu token%s fills the context of %lld and leaves no position for an answer", n,
                       ht_plural(n), (long long)s->model->context);
    return HT_OK;
}

/* Appends the ids to the session's tokens, to be computed. */
static ht_status set_prompt(ht_generation *g, const int32_t *ids, size_t n, ht_error *err) {
    ht_session *s = g->s;
    /* Without new tokens the logits after the last one are computed once more. */
    if (n == 0 && s->cache->length == s->n_tokens) ht_cache_truncate(s->cache, s->n_tokens - 1);
    g->total = s->n_tokens + (int64_t)n;
    const ht_status status = ht_session_reserve_tokens(s, g->total, err);
    if (!status && n) memcpy(s->token + s->n_tokens, ids, n * sizeof *ids);
    return status;
}

static ht_status generate(ht_generation *g, const int32_t *prompt, size_t n, ht_error *err) {
    ht_status status = set_prompt(g, prompt, n, err);
    while (!status && !g->metrics.finish) {
        status = ht_generation_guess(g, err);
        if (!status) status = ht_generation_ask(g, err);
        if (status) break;
        (void)ht_session_run(g->s, NULL);
        status = ht_generation_take(g, err);
    }
    ht_scheduler_leave(g->s->model->scheduler, &g->s->job);
    const ht_status rest = ht_token_output_end(&g->output, &g->metrics.finish, status ? NULL : err);
    return status ? status : rest;
}

/* Answers a conversation. Drops tokens beyond the common prefix only now that just computing can fail. */
static ht_status generate_turn(ht_generation *g, const int32_t *ids, size_t n, ht_error *err) {
    size_t kept;
    ht_session_keep_prefix(g->s, ids, n, &kept);
    g->metrics.reused_tokens = (int64_t)kept;
    ht_status status = ht_session_check_ids(g->s, ids + kept, n - kept, err);
    if (!status) status = check_prompt(g->s, n - kept, err);
    return status ? status : generate(g, ids + kept, n - kept, err);
}

static void report(ht_generation *g, ht_metrics *metrics) {
    if (g->first_token > 0) {
        g->metrics.first_token_seconds = g->first_token - g->begin;
        g->metrics.decode_seconds = ht_now_seconds() - g->first_token;
    }
    g->metrics.peak_memory_bytes = ht_memory_get(g->s->model->device).peak_bytes;
    if (metrics) *metrics = g->metrics;
}

/* Runs before anything else: a call that was already cancelled must leave the session unchanged. */
static ht_status begin_call(ht_generation *g, const ht_generate_options *options, ht_metrics *metrics, ht_error *err) {
    g->begin = ht_now_seconds();
    g->metrics = ht_metrics_none();
    if (metrics) *metrics = g->metrics;
    ht_status status = ht_generation_read_options(&g->o, options, err);
    if (status || !ht_cancel_requested(g->o.cancel)) return status;
    return ht_fail(err, HT_ERR_CANCELLED, "cancelled before the call");
}

static ht_status run_from(ht_generation *g, const int32_t *prompt, size_t n, ht_text_fn *fn, void *user,
                          ht_metrics *metrics, ht_error *err) {
    ht_status status = HT_OK;
    if (!g->new_turn) status = ht_session_check_ids(g->s, prompt, n, err);
    if (!g->new_turn && !status) status = check_prompt(g->s, n, err);
    if (!status) status = ht_generation_begin(g, fn, user, err);
    if (!status) status = g->new_turn ? generate_turn(g, prompt, n, err) : generate(g, prompt, n, err);
    if (status == HT_ERR_CANCELLED) /* count generated tokens only, not those of the prompt */
        ht_fail(err, status, "cancelled after %lld generated token%s", (long long)g->metrics.generated_tokens,
                ht_plural(g->metrics.generated_tokens));
    ht_metrics_end(&g->metrics, status);
    report(g, metrics);
    ht_generation_end(g);
    return status;
}

ht_status ht_generate(ht_session *s, const int32_t *prompt, size_t n_prompt, const ht_generate_options *options,
                      ht_text_fn *fn, void *user, ht_metrics *metrics, ht_error *err) {
    ht_generation g = {.s = s, .ahead = &s->masks_ahead};
    ht_status status = begin_call(&g, options, metrics, err);
    return status ? status : run_from(&g, prompt, n_prompt, fn, user, metrics, err);
}

ht_status ht_generate_text(ht_session *s, const char *prompt, const ht_generate_options *options, ht_text_fn *fn,
                           void *user, ht_metrics *metrics, ht_error *err) {
    ht_generation g = {.s = s, .ahead = &s->masks_ahead};
    int32_t *ids;
    size_t n;
    ht_status status = begin_call(&g, options, metrics, err);
    if (!status) status = ht_model_need_tokenizer(s->model, err);
    if (status) return status;
    status =
        ht_tokenizer_encode(s->model->tokenizer, prompt, strlen(prompt),
                            HT_ENCODE_PARSE_SPECIAL | (s->n_tokens == 0 ? HT_ENCODE_ADD_SPECIAL : 0), &ids, &n, err);
    if (status) return status;
    status = run_from(&g, ids, n, fn, user, metrics, err);
    ht_ids_free(ids);
    return status;
}

/* ---- chat ---- */

ht_status ht_generate_chat(ht_session *s, const ht_chat *chat, const ht_generate_options *options, ht_answer_fn *fn,
                           void *user, ht_metrics *metrics, ht_error *err) {
    ht_generation g = {.s = s, .ahead = &s->masks_ahead, .chat = chat, .new_turn = true};
    ht_model *m = s->model;
    ht_chat_text text = {0};
    int32_t *ids = NULL;
    size_t n = 0;
    ht_status status = begin_call(&g, options, metrics, err);
    if (!status) status = ht_chat_write_for(m, chat, &text, err);
    if (!status)
        status =
            ht_chat_encode_text(m->tokenizer, &text, g.o.parse_special ? HT_ENCODE_PARSE_SPECIAL : 0, &ids, &n, err);
    if (!status && (int64_t)n >= m->context) /* before what the session holds is touched */
        status = ht_fail(err, HT_ERR_LIMIT, "prompt of %zu token%s does not fit the context of %lld with an answer", n,
                         ht_plural(n), (long long)m->context);
    if (!status) status = ht_constraint_of_chat(m, chat, &g.o, text.text, text.n, &g.constraint, err);
    if (!status && fn)
        status = ht_response_reader_new(ht_chat_template_of(&m->chat, chat), chat->tools, text.text, text.n, fn, user,
                                        &g.answer, err);
    ht_constraint constraint = g.constraint;
    if (g.answer) ht_response_reader_set_call_pieces(g.answer, g.o.call_pieces);
    if (!status) status = run_from(&g, ids, n, NULL, NULL, metrics, err);
    ht_constraint_free(&constraint);
    ht_response_reader_free(g.answer);
    ht_ids_free(ids);
    ht_chat_text_free(&text);
    return status;
}
