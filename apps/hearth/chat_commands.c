/* Slash commands of hearth chat, with ollama's names as aliases. */
#include "chat.h"
#include "input.h"
#include "nearest.h"
#include "terminal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct chat_command_entry {
    const char *name, *also; /* without the slash; another name, or NULL */
    const char *arguments, *summary;
    void (*run)(chat *c, char *rest); /* `rest`: the arguments, trimmed */
} chat_command_entry;

static const chat_command_entry entries[];
static const int entry_count;

/* The required path argument in fresh memory; NULL, with an error message, when it is missing. */
static char *need_path(const char *rest, const char *sentence) {
    char *path = *rest ? expand_home(rest) : NULL;
    if (!path) warn("%s", *rest ? "out of memory for the name of a file" : sentence);
    return path;
}

/* Cuts off and returns the first word; *rest is the remainder. */
static char *take_word(char **rest) {
    char *word = *rest;
    word += strspn(word, " \t");
    char *end = word + strcspn(word, " \t");
    *rest = end + strspn(end, " \t");
    if (*end) *end = '\0';
    return word;
}

/* ---- the conversation ---- */

static void run_system(chat *c, char *rest) {
    ht_error err = {0};
    if (!*rest) {
        const char *text = talk_system(&c->t);
        if (text) output_text(text, strlen(text));
        output_line(text ? "" : "There are no instructions; /system TEXT gives some.");
    } else if (talk_set_system(&c->t, strcmp(rest, "\"\"") == 0 ? "" : rest, &err))
        chat_report(c, &err);
}

/* Answers the user's last message again, with the next seed. */
static void run_regen(chat *c, char *rest) {
    (void)rest;
    ht_error err = {0};
    ht_sampler_options sampler;
    const uint64_t regenerated = c->t.regenerated + 1;
    char *text = talk_undo(&c->t);
    if (!text) {
        warn("there is nothing to answer yet");
        return;
    }
    if (!talk_sampler(&c->t, &sampler, &err) && sampler.temperature == 0)
        fprintf(stderr, "hearth: temperature 0 gives the same answer again; /set temperature 0.7 draws others\n");
    if (talk_say(&c->t, text, &err)) {
        chat_report(c, &err);
    } else {
        c->t.regenerated = regenerated;
        chat_answer(c);
    }
    free(text);
}

static void run_undo(chat *c, char *rest) {
    (void)rest;
    char *text = talk_undo(&c->t);
    if (!text) warn("there is nothing to take back");
    free(text);
}

static void run_edit(chat *c, char *rest) {
    (void)rest;
    free(c->begun);
    c->begun = talk_undo(&c->t);
    if (!c->begun) warn("there is nothing to edit yet");
}

static void run_clear(chat *c, char *rest) {
    (void)rest;
    talk_clear(&c->t);
    free(c->attached);
    c->attached = NULL;
}

/* ---- files ---- */

static void run_save(chat *c, char *rest) {
    ht_error err = {0};
    char *path = need_path(rest, "/save needs the name of a file");
    if (path && talk_save(&c->t, path, &err)) chat_report(c, &err);
    free(path);
}

static void run_load(chat *c, char *rest) {
    ht_error err = {0};
    char *path = need_path(rest, "/load needs the name of a file");
    if (path && talk_load(&c->t, path, &err))
        chat_report(c, &err);
    else if (path)
        output_line("%zu message%s", talk_length(&c->t), plural(talk_length(&c->t)));
    free(path);
}

/* Prepends the file to the next message as a block labelled with its name. */
static void attach(chat *c, const char *path, const char *text, size_t n) {
    const char *base = strrchr(path, '/') ? strrchr(path, '/') + 1 : path, *before = c->attached ? c->attached : "";
    char *all;
    if (asprintf(&all, "%s%s\n```\n%s%s```\n\n", before, base, text, n && text[n - 1] == '\n' ? "" : "\n") < 0) {
        warn("out of memory for %s", path);
        return;
    }
    free(c->attached);
    c->attached = all;
    output_line("attached %zu byte%s to the next message", n, plural(n));
}

static void run_attach(chat *c, char *rest) {
    ht_error err = {0};
    char *text = NULL, *path = need_path(rest, "/attach needs the name of a file");
    size_t n = 0;
    if (path && input_read_file(path, &text, &n, &err))
        chat_report(c, &err);
    else if (path && memchr(text, '\0', n))
        warn("%s holds a NUL byte: it is not text", path);
    else if (path)
        attach(c, path, text, n);
    free(text);
    free(path);
}

/* ---- statistics ---- */

static void run_tokens(chat *c, char *rest) {
    (void)rest;
    ht_error err = {0};
    size_t n;
    const long long context = (long long)ht_model_context(c->t.e.model);
    if (talk_count(&c->t, &n, &err))
        chat_report(c, &err);
    else
        output_line("%zu token%s, of a context of %lld", n, plural(n), context);
}

static void run_stats(chat *c, char *rest) {
    (void)rest;
    const ht_metrics *m = &c->t.last;
    if (!c->t.answers) {
        output_line("There is no answer yet.");
        return;
    }
    output_field("last prompt", "%lld token%s computed, %lld reused", (long long)m->prompt_tokens,
                 plural(m->prompt_tokens), (long long)m->reused_tokens);
    output_field("", "%.0f tok/s, first token after %.0f ms", prefill_rate(m), m->first_token_seconds * 1e3);
    output_field("last answer", "%lld token%s, %.1f tok/s", (long long)m->generated_tokens, plural(m->generated_tokens),
                 decode_rate(m));
    if (m->guessed_tokens)
        output_field("draft tokens", "%lld of %lld accepted", (long long)m->accepted_tokens,
                     (long long)m->guessed_tokens);
    output_field("all answers", "%lld: %lld token%s computed, %lld reused, %lld generated", (long long)c->t.answers,
                 (long long)c->t.computed, plural(c->t.computed), (long long)c->t.reused, (long long)c->t.generated);
    output_field("cache", "%.1f MB", (double)ht_session_cache_bytes(c->t.e.session) / 1e6);
}

static void show_parameters(chat *c) {
    const options *o = &c->t.o;
    ht_sampler_options s;
    ht_error err = {0};
    if (talk_sampler(&c->t, &s, &err)) {
        chat_report(c, &err);
        return;
    }
    output_field("temperature", "%g", (double)s.temperature);
    output_field("top_k", "%d", (int)s.top_k);
    output_field("top_p", "%g", (double)s.top_p);
    output_field("min_p", "%g", (double)s.min_p);
    output_field("repeat_penalty", "%g", (double)s.repeat_penalty);
    output_field("repeat_window", "%d", (int)s.repeat_window);
    output_field("presence_penalty", "%g", (double)s.presence_penalty);
    output_field("frequency_penalty", "%g", (double)s.frequency_penalty);
    for (int i = 0; i < o->logit_bias.n; i++)
        output_field(i ? "" : "logit_bias", "%d=%g", (int)o->logit_bias.items[i].id,
                     (double)o->logit_bias.items[i].bias);
    output_field("seed", "%llu", (unsigned long long)o->seed);
    if (o->max_tokens > 0)
        output_field("max_tokens", "%lld", (long long)o->max_tokens);
    else
        output_field("max_tokens", "as many as there is room for");
    if (o->thinking_budget >= 0) output_field("thinking_budget", "%lld", (long long)o->thinking_budget);
}

static void show_model(chat *c) {
    const ht_model *m = c->t.e.model;
    output_field("model", "%s", c->t.o.model);
    output_field("context", "%lld position%s", (long long)ht_model_context(m), plural(ht_model_context(m)));
    output_field("chat format", "%s", ht_chat_format_name(m));
    for (int i = 0; i < c->t.e.adapters.n; i++)
        output_field(i ? "" : "adapters", "%s, times %g", c->t.e.adapters.name[i], (double)c->t.e.adapters.scale[i]);
}

static void run_show(chat *c, char *rest) {
    if (!*rest || strcmp(rest, "info") == 0)
        show_model(c);
    else if (strcmp(rest, "parameters") == 0)
        show_parameters(c);
    else if (strcmp(rest, "system") == 0)
        run_system(c, rest + strlen(rest));
    else
        warn("/show takes info, parameters or system, not \"%.60s\"", rest);
}

/* ---- settings ---- */

static void set_parameter(chat *c, char *rest) {
    static const char *const others[][2] = {{"num_predict", "max_tokens"}, {"repeat_last_n", "repeat_window"}};
    static const char *const known[] = {
        "temperature",       "top_k",     "top_p",      "min_p",           "repeat_penalty",
        "repeat_window",     "seed",      "max_tokens", "thinking_budget", "presence_penalty",
        "frequency_penalty", "logit_bias"};
    char why[256];
    const char *name = take_word(&rest);
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (strcmp(name, others[i][0]) == 0) name = others[i][1];
    bool found = false;
    nearest best = nearest_to(name, strlen(name));
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        found |= strcmp(name, known[i]) == 0;
        nearest_try(&best, known[i]);
    }
    if (found) {
        const bool set = strcmp(name, "logit_bias") == 0 ? options_set_biases(&c->t.o, rest, why, sizeof why)
                                                         : options_set_number(&c->t.o, name, rest, why, sizeof why);
        if (!set) warn("%s", why);
        return;
    }
    warn("\"%.60s\" cannot be set%s%s", name, best.word ? ", the nearest is " : "; /set shows what can",
         best.word ? best.word : "");
}

static void run_set(chat *c, char *rest) {
    char *const whole = rest;
    if (!*rest) {
        show_parameters(c);
        return;
    }
    if (strcmp(whole, "verbose") == 0 || strcmp(whole, "quiet") == 0)
        c->t.shows_statistics = *whole == 'v';
    else if (strcmp(whole, "think") == 0 || strcmp(whole, "nothink") == 0)
        c->t.thinking = *whole == 't' ? THINKING_ON : THINKING_OFF;
    else if (strcmp(whole, "history") == 0 || strcmp(whole, "nohistory") == 0)
        chat_input_keep_history(c->in, *whole == 'h');
    else if (strncmp(whole, "system ", 7) == 0)
        run_system(c, whole + 7);
    else if (strncmp(whole, "parameter ", 10) == 0)
        set_parameter(c, whole + 10);
    else
        set_parameter(c, whole);
}

/* [NAME=]PATH[@X] with ~ in the path expanded. */
static char *adapter_word(const char *word) {
    const char *equals = strchr(word, '='), *slash = strchr(word, '/');
    const size_t name = equals && (!slash || equals < slash) ? (size_t)(equals + 1 - word) : 0;
    char *path = expand_home(word + name), *whole = NULL;
    if (path && asprintf(&whole, "%.*s%s", (int)name, word, path) < 0) whole = NULL;
    free(path);
    return whole;
}

static void run_adapter(chat *c, char *rest) {
    enum { MOST = 16 };
    char *words[MOST] = {NULL};
    ht_error err = {0};
    int n = 0;
    bool whole = true;
    if (!*rest) {
        for (int i = 0; i < c->t.e.adapters.n; i++)
            output_line("%s, times %g", c->t.e.adapters.name[i], (double)c->t.e.adapters.scale[i]);
        if (!c->t.e.adapters.n) output_line("There is no adapter; /adapter PATH uses one.");
        return;
    }
    if (strcmp(rest, "off") != 0)
        for (; whole && *rest && n < MOST; n += whole) whole = (words[n] = adapter_word(take_word(&rest))) != NULL;
    if (!whole)
        warn("out of memory for the adapters");
    else if (*rest && n == MOST)
        warn("more than 16 adapters at once are too many");
    else if (talk_set_adapters(&c->t, (const char *const *)words, n, &err))
        chat_report(c, &err);
    while (n) free(words[--n]);
}

/* ---- help ---- */

static void run_help(chat *c, char *rest) {
    (void)c, (void)rest;
    for (int i = 0; i < entry_count; i++) {
        char left[64];
        snprintf(left, sizeof left, "/%s %s", entries[i].name, entries[i].arguments);
        output_line("  %-30s %s", left, entries[i].summary);
    }
    output_line("  %-30s %s", "\"\"\" ... \"\"\"", "a message of several lines; pasted lines are one without them");
    output_line("  %-30s %s", "//...", "a message that begins with a slash");
    output_line("  %-30s %s", "Ctrl-C, Ctrl-D", "stop an answer (twice: leave); leave");
}

static void run_bye(chat *c, char *rest) {
    (void)rest;
    c->leaves = true;
}

static const chat_command_entry entries[] = {
    {"system", NULL, "[TEXT]", "show the instructions, or give others (\"\": none)", run_system},
    {"regen", NULL, "", "draw another answer to your last message", run_regen},
    {"undo", NULL, "", "remove the last message and its answer", run_undo},
    {"edit", NULL, "", "edit and resend your last message", run_edit},
    {"clear", NULL, "", "start a new conversation", run_clear},
    {"save", NULL, "FILE", "write the conversation as JSON, for /load and --messages", run_save},
    {"load", NULL, "FILE", "continue such a conversation", run_load},
    {"attach", NULL, "FILE", "put a file's text before the next message", run_attach},
    {"tokens", NULL, "", "count the conversation's tokens", run_tokens},
    {"stats", NULL, "", "speed of the last answer, and reused tokens", run_stats},
    {"set", NULL, "[NAME VALUE]", "show or set temperature, top_k, top_p, min_p, seed, ...", run_set},
    {"set verbose|quiet", NULL, "", "print statistics after every answer, or not", run_set},
    {"set think|nothink", NULL, "", "think before answers, if the template supports that", run_set},
    {"set history|nohistory", NULL, "", "remember lines for the arrow keys, or not", run_set},
    {"adapter", NULL, "[PATH[@X]...|off]", "show the LoRA adapters, or use others", run_adapter},
    {"show", NULL, "[info|parameters|system]", "show the model or what is set", run_show},
    {"help", "?", "", "this list", run_help},
    {"bye", "exit", "", "leave", run_bye},
    {"quit", NULL, "", "leave", run_bye},
};
static const int entry_count = sizeof entries / sizeof *entries;

void chat_run_command(chat *c, const char *line) {
    char *copy = strdup(line + 1), *rest = copy;
    if (!copy) {
        warn("out of memory for %.60s", line);
        return;
    }
    size_t n = strlen(copy);
    while (n && strchr(" \t", copy[n - 1])) copy[--n] = '\0';
    const char *name = take_word(&rest);
    nearest best = nearest_to(name, strlen(name));
    int found = -1;
    for (int i = 0; i < entry_count && found < 0; i++) {
        if (strcmp(name, entries[i].name) == 0 || (entries[i].also && strcmp(name, entries[i].also) == 0)) found = i;
        nearest_try(&best, entries[i].name);
    }
    if (found >= 0)
        entries[found].run(c, rest);
    else
        warn("there is no command /%.60s%s%s", name, best.word ? ", the nearest is /" : "; /help lists them",
             best.word ? best.word : "");
    free(copy);
    output_flush();
}
