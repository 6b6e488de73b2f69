#include "answer.h"

#include "backends.h"
#include "base/grow.h"
#include "command.h"
#include "terminal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- kept ---- */

static bool keep(answer *a, answer_part *part, const char *text, size_t n) {
    a->out_of_memory = !HT_GROW(part->text, part->capacity, part->n + n + 1);
    if (a->out_of_memory) return false;
    memcpy(part->text + part->n, text, n);
    part->n += n;
    part->text[part->n] = '\0';
    return true;
}

static bool keep_call(answer *a, const ht_tool_call *call) {
    ht_json *arguments = ht_json_of(call->arguments, strlen(call->arguments));
    if (!arguments) arguments = ht_json_string(call->arguments);
    ht_json *item = ht_json_pack("{ss so}", "name", call->name, "arguments", arguments);
    if (item && call->id) ht_json_object_set_new(item, "id", ht_json_string(call->id));
    if (!a->calls) a->calls = ht_json_new_array();
    a->out_of_memory = ht_json_array_append_new(a->calls, item) != 0;
    return !a->out_of_memory;
}

/* ---- shown ---- */

static bool put(answer *a, const char *text, size_t n) {
    if (n) a->in_line = text[n - 1] != '\n';
    return output_write(text, n) && output_flush();
}

static bool put_text(answer *a, const char *text) { return put(a, text, strlen(text)); }

/* Colours are for who wants them (https://no-color.org). */
static bool dims(void) {
    const char *no = getenv("NO_COLOR");
    return !no || !*no;
}

static bool show_thought(answer *a, const char *text, size_t n) {
    if (!output_is_terminal()) return true;
    if (!a->dimmed && dims() && !put_text(a, "\033[2m")) return false;
    a->dimmed = true;
    return put(a, text, n);
}

static bool end_thought(answer *a, const char *gap) {
    if (!a->dimmed) return true;
    a->dimmed = false;
    return (!dims() || put_text(a, "\033[0m")) && put_text(a, gap);
}

static bool show_call(answer *a, const ht_tool_call *call) {
    return (!a->in_line || put_text(a, "\n")) && put_text(a, call->name) && put_text(a, " ") &&
           put_text(a, call->arguments) && put_text(a, "\n");
}

/* ---- as it comes ---- */

bool answer_text(const char *text, size_t n, void *user) {
    answer *a = user;
    a->has_text = true;
    return (!a->keeps || keep(a, &a->text, text, n)) && (!a->shows || put(a, text, n));
}

bool answer_piece(const ht_answer_piece *piece, void *user) {
    answer *a = user;
    if (piece->part == HT_ANSWER_THINKING) {
        a->has_thought = true;
        return (!a->keeps || keep(a, &a->thinking, piece->text, piece->n)) &&
               (!a->shows || show_thought(a, piece->text, piece->n));
    }
    if (!end_thought(a, "\n\n")) return false;
    if (piece->part != HT_ANSWER_CALL) return answer_text(piece->text, piece->n, a);
    a->has_text = true;
    return (!a->keeps || keep_call(a, piece->call)) && (!a->shows || show_call(a, piece->call));
}

void answer_end(answer *a) {
    end_thought(a, "\n");
    if (a->in_line) put_text(a, "\n");
}

void answer_free(answer *a) {
    free(a->text.text);
    free(a->thinking.text);
    ht_json_decref(a->calls);
    *a = (answer){0};
}

/* ---- its figures ---- */

static double rate(double count, double seconds) { return seconds > 0 && count > 0 ? count / seconds : 0; }

double prefill_rate(const ht_metrics *m) { return rate((double)m->prompt_tokens, m->prefill_seconds); }
double decode_rate(const ht_metrics *m) { return rate((double)(m->generated_tokens - 1), m->decode_seconds); }

/* What allows a longer answer once the context is full. */
static const char *more_context(const options *o) {
    if (!backend_is_native(o)) return "--context raises the limit, up to that of the model";
    return o->context ? "--context raises the limit, --sliding discards the oldest tokens and goes on"
                      : "--sliding discards the oldest tokens and goes on";
}

void limit_print(const options *o, const ht_metrics *m, int32_t max_tokens, int64_t context, const answer *a) {
    if (m->finish != HT_FINISH_LENGTH) return;
    const bool talks = o->command->bit == FOR_CHAT, full = m->generated_tokens < max_tokens;
    if (full || !o->quiet)
        fprintf(stderr, "stopped after %lld token%s", (long long)m->generated_tokens, plural(m->generated_tokens));
    if (full) {
        fprintf(stderr, ", as the context");
        if (context) fprintf(stderr, " of %lld token%s", (long long)context, plural(context));
        fprintf(stderr, " is full; %s%s\n", more_context(o), talks ? ", /clear starts over" : "");
    } else if (!o->quiet)
        fprintf(stderr, "; %s raises the limit\n", talks ? "--max-tokens or /set max_tokens" : "--max-tokens");
    if (a->has_thought && !a->has_text)
        fprintf(stderr,
                "the answer ended within its thinking; --thinking-budget ends that sooner, --no-thinking leaves "
                "it out\n");
}

void metrics_print(const ht_metrics *m) {
    fprintf(stderr, "prefill %lld tok", (long long)m->prompt_tokens);
    if (m->reused_tokens) fprintf(stderr, " · %lld reused", (long long)m->reused_tokens);
    fprintf(stderr, " · ttft %.0f ms", m->first_token_seconds * 1e3);
    if (decode_rate(m) > 0) fprintf(stderr, " · %.1f tok/s", decode_rate(m));
    if (m->guessed_tokens)
        fprintf(stderr, " · %lld of %lld draft token%s accepted", (long long)m->accepted_tokens,
                (long long)m->guessed_tokens, plural(m->guessed_tokens));
}
