/* hearth run: answer one prompt, text to stdout as it comes. */
#include "command.h"
#include "engine.h"
#include "input.h"
#include "json.h"
#include "terminal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int32_t max_tokens(const options *o) {
    ht_generate_options how;
    ht_generate_options_init(&how, sizeof how);
    return o->max_tokens > 0 ? (int32_t)o->max_tokens : how.max_tokens;
}

typedef struct answer {
    const options *o;
    int64_t context; /* positions that prompt and answer share */
    char *text;      /* collected for --json */
    size_t n, capacity;
    bool ends_line, out_of_memory;
} answer;

static bool collect(answer *a, const char *text, size_t n) {
    if (a->capacity - a->n < n) {
        size_t capacity = (a->n + n) * 2;
        char *larger = realloc(a->text, capacity);
        a->out_of_memory = !larger;
        if (!larger) return false;
        a->text = larger;
        a->capacity = capacity;
    }
    memcpy(a->text + a->n, text, n);
    a->n += n;
    return true;
}

static bool on_text(const char *text, size_t n, void *user) {
    answer *a = user;
    bool good = true;
    if (a->o->json)
        good = collect(a, text, n);
    else {
        a->ends_line = text[n - 1] == '\n';
        good = output_write(text, n) && output_flush();
    }
    return good;
}

/* The prompt, in fresh memory. A final newline of standard input is the shell's, not the question's. */
static ht_status read_prompt(const options *o, char **prompt, size_t *n, ht_error *err) {
    if (o->arguments.n) {
        *prompt = strdup(o->arguments.items[0]);
        *n = strlen(o->arguments.items[0]);
        return *prompt ? HT_OK : (snprintf(err->message, sizeof err->message, "out of memory"), HT_ERR_MEMORY);
    }
    ht_status st = input_read_all("the prompt", prompt, n, err);
    if (st) return st;
    while (!o->raw && *n && ((*prompt)[*n - 1] == '\n' || (*prompt)[*n - 1] == '\r')) (*prompt)[--*n] = '\0';
    if (strlen(*prompt) == *n) return HT_OK;
    snprintf(err->message, sizeof err->message, "the prompt on standard input holds a NUL byte: it is not text");
    return HT_ERR_ARGUMENT;
}

static ht_status count_tokens(const options *o, const char *prompt, size_t n, size_t *count, ht_error *err) {
    ht_tokenizer *t;
    int32_t *ids = NULL;
    ht_status st = engine_tokenizer(o, &t, err);
    if (!st) st = ht_tokenizer_encode(t, prompt, n, HT_ENCODE_PARSE_SPECIAL, &ids, count, err);
    ht_ids_free(ids);
    ht_tokenizer_free(t);
    return st;
}

/* Opens the model with room for prompt and answer. A token has at least one byte, so the length of the text is a bound
 * that costs nothing; only when that much does not fit are the tokens counted. */
static ht_status open_for(engine *e, const options *o, const char *prompt, size_t n, ht_error *err) {
    enum { CHAT_FORMAT_TOKENS = 64 };
    size_t extra = CHAT_FORMAT_TOKENS + (o->system ? strlen(o->system) : 0);
    extra += (size_t)max_tokens(o);
    ht_status st = engine_open(e, o, (int64_t)(n + extra), err);
    size_t count;
    ht_error ignored = {0};
    if (st != HT_ERR_LIMIT || n < 256 || count_tokens(o, prompt, n, &count, &ignored)) return st;
    engine_close(e);
    return engine_open(e, o, (int64_t)(count + extra), err);
}

static ht_status generate(engine *e, const options *o, const char *prompt, answer *a, ht_metrics *metrics,
                          ht_error *err) {
    const ht_sampler_options sampler = options_sampler(o);
    ht_generate_options how;
    ht_generate_options_init(&how, sizeof how);
    how.max_tokens = max_tokens(o);
    how.cancel = interrupt_flag();
    how.sampler = &sampler;
    how.stop = o->stop.items;
    how.n_stop = o->stop.n;
    const ht_tokenizer *t = ht_model_tokenizer(e->model);
    const bool has_template = t && ht_tokenizer_chat_template(t), has_format = ht_chat_format_name(e->model);
    if (o->raw || (!has_format && !has_template)) {
        if (!o->system) return ht_generate_text(e->session, prompt, &how, on_text, a, metrics, err);
        snprintf(err->message, sizeof err->message,
                 "--system needs a chat format, and %s has none: put the instructions into the prompt", o->model);
        return err->status = HT_ERR_ARGUMENT;
    }
    ht_chat *chat;
    ht_status st = ht_chat_new(&chat, err);
    if (!st && o->system) st = ht_chat_add(chat, "system", o->system, err);
    if (!st) st = ht_chat_add(chat, "user", prompt, err);
    if (!st) st = ht_generate_chat(e->session, chat, &how, on_text, a, metrics, err);
    ht_chat_free(chat);
    size_t n = strlen(err->message);
    if (st == HT_ERR_UNSUPPORTED && !has_format) /* a template that Hearth does not know */
        snprintf(err->message + n, sizeof err->message - n, ", with --raw");
    return st;
}

static double rate(double count, double seconds) { return seconds > 0 && count > 0 ? count / seconds : 0; }
static double decode_rate(const ht_metrics *m) { return rate((double)(m->generated_tokens - 1), m->decode_seconds); }

static void print_statistics(const ht_metrics *m) {
    fprintf(stderr, "prefill %lld tok · ttft %.0f ms · ", (long long)m->prompt_tokens, m->first_token_seconds * 1e3);
    if (decode_rate(m) > 0) fprintf(stderr, "%.1f tok/s · ", decode_rate(m));
    fprintf(stderr, "peak %.1f GB\n", (double)peak_memory_bytes() / 1e9);
}

static const char *finish_name(ht_finish finish) {
    switch (finish) {
    case HT_FINISH_STOP: return "stop";
    case HT_FINISH_LENGTH: return "length";
    case HT_FINISH_CALLBACK: break;
    }
    return "interrupted";
}

static bool print_json(const options *o, const answer *a, const ht_metrics *m) {
    json_t *metrics =
        json_pack("{sI sI sf sf sf sf sf sI}", "prompt_tokens", (json_int_t)m->prompt_tokens, "generated_tokens",
                  (json_int_t)m->generated_tokens, "prefill_seconds", m->prefill_seconds, "decode_seconds",
                  m->decode_seconds, "time_to_first_token_ms", m->first_token_seconds * 1e3,
                  "prefill_tokens_per_second", rate((double)m->prompt_tokens, m->prefill_seconds),
                  "decode_tokens_per_second", decode_rate(m), "peak_memory_bytes", (json_int_t)peak_memory_bytes());
    return json_output(json_pack("{so so ss so}", "model", json_path(o->model), "text", json_text(a->text, a->n),
                                 "finish", finish_name(m->finish), "metrics", metrics));
}

static int finish_run(const options *o, const answer *a, const ht_metrics *metrics, ht_status st, const ht_error *err) {
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
    if (o->json && (!st || cancelled)) {
        if (!print_json(o, a, metrics)) return EXIT_FAILED;
    } else if (!o->json && !a->ends_line)
        output_write("\n", 1);
    int status = output_finish(EXIT_OK);
    if (st && !cancelled) return report(err);
    if (metrics->finish == HT_FINISH_LENGTH && metrics->generated_tokens < max_tokens(o))
        fprintf(stderr, "hearth: the answer ends after %lld tokens, as the context of %lld positions is full\n",
                (long long)metrics->generated_tokens, (long long)a->context);
    if (!o->quiet && metrics->prompt_tokens) print_statistics(metrics);
    return status;
}

int run_command(const options *o) {
    ht_error err = {0};
    char *prompt = NULL;
    size_t n = 0;
    if (o->max_tokens == 0 || (o->raw && o->system)) {
        fprintf(stderr, "hearth run: %s (see hearth run --help)\n",
                o->max_tokens == 0 ? "--max-tokens is 0, expected 1 or more" : "--system and --raw exclude each other");
        return EXIT_USAGE;
    }
    ht_status st = read_prompt(o, &prompt, &n, &err);
    if (!st && n == 0) {
        fprintf(stderr, "hearth run: the prompt is empty (see hearth run --help)\n");
        free(prompt);
        return EXIT_USAGE;
    }
    engine e = {0};
    ht_metrics metrics = {0};
    answer a = {.o = o, .ends_line = true};
    if (!st) st = open_for(&e, o, prompt, n, &err);
    if (!st) a.context = ht_model_context(e.model);
    if (!st) st = generate(&e, o, prompt, &a, &metrics, &err);
    int status = finish_run(o, &a, &metrics, st, &err);
    engine_close(&e);
    free(prompt);
    free(a.text);
    return status;
}
