#include "options.h"

#include "command.h"
#include "json.h"
#include "nearest.h"
#include "terminal.h"

#include <errno.h>
#include <float.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef enum option_kind {
    KIND_FLAG,
    KIND_INTEGER,
    KIND_NUMBER,
    KIND_TEXT,
    KIND_PATH,
    KIND_LIST,
    KIND_CHOICE,
    KIND_ORDER
} option_kind;

typedef struct option_spec {
    const char *name; /* without the dashes */
    char letter;      /* 0: none */
    option_kind kind;
    size_t field; /* offset in options */
    double low, high;
    const char *const *choices;
    unsigned commands; /* the ones it means something to */
    bool common;       /* accepted by the others too, without effect, so that one set of options does for all */
    const char *value; /* as the help shows it */
    const char *help;
} option_spec;

static const char *const precisions[] = {"high", "fast", "reference", NULL};
static const char *const kv_names[] = {"f16", "f32", "bf16", "q8", NULL};
static const ht_dtype kv_dtypes[] = {HT_F16, HT_F32, HT_BF16, HT_I8};

#define AT(field) offsetof(options, field)
#define MAX_COUNT 2147483647.0
#define COMPUTING (FOR_RUN | FOR_LOGITS | FOR_BENCH | FOR_EVAL)
#define SAMPLING  (FOR_RUN | FOR_BENCH)

static const option_spec specs[] = {
    {"max-tokens", 'n', KIND_INTEGER, AT(max_tokens), 0, MAX_COUNT, NULL, SAMPLING, true, "N",
     "tokens to generate at most (run: 256, bench: 128)"},
    {"system", 0, KIND_TEXT, AT(system), 0, 0, NULL, FOR_RUN, true, "TEXT", "instructions put before the conversation"},
    {"raw", 0, KIND_FLAG, AT(raw), 0, 0, NULL, FOR_RUN, false, NULL,
     "continue the text as it is, without the chat format"},
    {"stop", 0, KIND_LIST, AT(stop), 0, 0, NULL, FOR_RUN, true, "TEXT",
     "end before this text; may be given several times"},
    {"temperature", 0, KIND_NUMBER, AT(temperature), 0, 1000, NULL, SAMPLING, true, "X",
     "0, the default, takes the most likely token"},
    {"top-k", 0, KIND_INTEGER, AT(top_k), 0, MAX_COUNT, NULL, SAMPLING, true, "N",
     "sample among the N most likely tokens (0: all)"},
    {"top-p", 0, KIND_NUMBER, AT(top_p), 0, 1, NULL, SAMPLING, true, "X",
     "sample among the likeliest that add up to X (0: all)"},
    {"min-p", 0, KIND_NUMBER, AT(min_p), 0, 1, NULL, SAMPLING, true, "X",
     "leave out what is less likely than X times the best (0: off)"},
    {"repeat-penalty", 0, KIND_NUMBER, AT(repeat_penalty), 0, 1000, NULL, SAMPLING, true, "X",
     "make recent tokens less likely (1: off)"},
    {"repeat-window", 0, KIND_INTEGER, AT(repeat_window), -1, MAX_COUNT, NULL, SAMPLING, false, "N",
     "tokens the penalty looks back on (64; 0: none, so no penalty; -1: all)"},
    {"sampler-order", 0, KIND_ORDER, AT(order), 0, 0, NULL, SAMPLING, true, "A,B,...",
     "order of repeat_penalty, temperature, top_p, top_k, min_p"},
    {"seed", 0, KIND_INTEGER, AT(seed), 0, 9007199254740992.0, NULL, SAMPLING, true, "N", "same seed, same text (0)"},
    {"ids", 0, KIND_TEXT, AT(ids), 0, 0, NULL, FOR_LOGITS | FOR_EVAL, false, "1,2,3",
     "the token ids; - reads them from standard input"},
    {"out", 'o', KIND_PATH, AT(out), 0, 0, NULL, FOR_LOGITS, false, "FILE.npy", "where the logits go"},
    {"chunk", 0, KIND_INTEGER, AT(chunk), 1, MAX_COUNT, NULL, FOR_LOGITS | FOR_RUN | FOR_BENCH, false, "N",
     "feed the prompt N tokens at a time (512)"},
    {"text", 0, KIND_PATH, AT(text), 0, 0, NULL, FOR_EVAL, false, "FILE", "the text; - reads it from standard input"},
    {"ctx", 0, KIND_INTEGER, AT(window), 2, MAX_COUNT, NULL, FOR_EVAL, false, "N", "tokens of a window (512)"},
    {"kl-vs", 0, KIND_PATH, AT(kl_vs), 0, 0, NULL, FOR_EVAL, false, "MODEL2",
     "also the divergence from another checkpoint's predictions"},
    {"kl-vs-reference", 0, KIND_FLAG, AT(kl_vs_reference), 0, 0, NULL, FOR_EVAL, false, NULL,
     "also the divergence from the same checkpoint's in reference precision with a cache of f32"},
    {"template", 0, KIND_PATH, AT(template_file), 0, 0, NULL, FOR_TEMPLATE, false, "FILE",
     "the template, in place of a model's"},
    {"messages", 0, KIND_PATH, AT(messages), 0, 0, NULL, FOR_TEMPLATE | FOR_RUN, false, "FILE",
     "the conversation as JSON; - reads it from standard input"},
    {"tools", 0, KIND_PATH, AT(tools), 0, 0, NULL, FOR_TEMPLATE | FOR_RUN, false, "FILE", "the tools as a JSON list"},
    {"set", 0, KIND_LIST, AT(set), 0, 0, NULL, FOR_TEMPLATE | FOR_RUN, false, "NAME=JSON",
     "a variable of the chat template; may be given several times"},
    {"no-thinking", 0, KIND_FLAG, AT(no_thinking), 0, 0, NULL, FOR_RUN, true, NULL,
     "answer without thoughts, where the chat template can"},
    {"parse-special", 0, KIND_FLAG, AT(parse_special), 0, 0, NULL, FOR_RUN, false, NULL,
     "special tokens that messages spell are some, as in transformers"},
    {"answer", 0, KIND_PATH, AT(answer), 0, 0, NULL, FOR_TEMPLATE, false, "FILE",
     "take this answer apart instead: thoughts, text, calls, as JSON"},
    {"no-generation-prompt", 0, KIND_FLAG, AT(no_generation_prompt), 0, 0, NULL, FOR_TEMPLATE, false, NULL,
     "end with the last message, without opening an answer"},
    {"model", 0, KIND_PATH, AT(model), 0, 0, NULL, FOR_ADAPTER, false, "MODEL",
     "the model it is for: checks it, and orders the rows of q and k for GGUF"},
    {"to", 0, KIND_TEXT, AT(to), 0, 0, NULL, FOR_ADAPTER, false, "peft|mlx|gguf", "the format to convert to"},
    {"markdown", 0, KIND_FLAG, AT(markdown), 0, 0, NULL, FOR_FORMATS, false, NULL, "as rows of a Markdown table"},
    {"null", '0', KIND_FLAG, AT(null), 0, 0, NULL, FOR_TOKENIZE, false, NULL,
     "texts on standard input, separated by NUL; one line each"},
    {"add-special", 0, KIND_FLAG, AT(add_special), 0, 0, NULL, FOR_TOKENIZE, false, NULL,
     "add the special tokens that the checkpoint asks for"},
    {"prompt-tokens", 'p', KIND_INTEGER, AT(prompt_tokens), 0, MAX_COUNT, NULL, FOR_BENCH, false, "N",
     "length of the prompt (512); 0 leaves prefill out"},
    {"repetitions", 'r', KIND_INTEGER, AT(rounds), 1, 10000, NULL, FOR_BENCH, false, "N",
     "rounds to measure (5), after one to warm up"},
    {"depth", 'd', KIND_INTEGER, AT(depth), 0, MAX_COUNT, NULL, FOR_BENCH, false, "N",
     "fill the cache with N tokens first (0)"},
    {"parallel", 0, KIND_INTEGER, AT(parallel), 1, 1024, NULL, FOR_BENCH, false, "N",
     "also decode in N sessions at once, one step for all"},
    {"threads", 't', KIND_INTEGER, AT(threads), 1, 1024, NULL, COMPUTING | FOR_DOCTOR, true, "N",
     "threads to compute with (one per core)"},
    {"context", 'c', KIND_INTEGER, AT(context), 1, MAX_COUNT, NULL, COMPUTING | FOR_INFO, true, "N",
     "positions to allow, at most the model's own"},
    {"sliding", 0, KIND_FLAG, AT(sliding), 0, 0, NULL, FOR_RUN | FOR_BENCH | FOR_LOGITS, true, NULL,
     "when --context is full, forget the oldest positions and go on"},
    {"slots", 0, KIND_INTEGER, AT(slots), 1, 1024, NULL, COMPUTING, true, "N",
     "calls at once on a model, more wait (1 for two threads, at most 4)"},
    {"adapter", 0, KIND_LIST, AT(adapters), 0, 0, NULL, COMPUTING, true, "[NAME=]PATH[@X]",
     "a LoRA adapter, times X (1); several add up"},
    {"device", 0, KIND_TEXT, AT(device), 0, 0, NULL, COMPUTING, true, "NAME", "what computes: cpu (cpu)"},
    {"cpu", 0, KIND_TEXT, AT(cpu), 0, 0, NULL, COMPUTING | FOR_DOCTOR, true, "NAME",
     "instruction set: avx512, avxvnni, avx2, i8mm, neon, reference (best)"},
    {"precision", 0, KIND_CHOICE, AT(precision), 0, 0, precisions, COMPUTING, true, "high|fast|reference",
     "fast rounds activations to 8 bits, not 15; reference is f32"},
    {"kv", 0, KIND_CHOICE, AT(kv), 0, 0, kv_names, COMPUTING | FOR_INFO, true, "f16|f32|bf16|q8",
     "how the cache stores keys and values"},
    {"packed-cache", 0, KIND_FLAG, AT(packed_cache), 0, 0, NULL, COMPUTING, true, NULL,
     "keep the packed weights in ~/.cache/hearth/packed, to load at once"},
    {"json", 0, KIND_FLAG, AT(json), 0, 0, NULL, FOR_ALL, true, NULL, "one JSON object on standard output"},
    {"quiet", 'q', KIND_FLAG, AT(quiet), 0, 0, NULL, FOR_ALL, true, NULL, "no progress and no statistics"},
    {"help", 'h', KIND_FLAG, AT(help), 0, 0, NULL, FOR_ALL, true, NULL, "this text"},
};
enum { N_SPECS = sizeof specs / sizeof *specs };

static bool usage_error(const command *c, const char *sentence) {
    char shown[1024];
    snprintf(shown, sizeof shown, "%s", sentence);
    make_printable(shown);
    fprintf(stderr, "hearth %s: %s (see hearth %s --help)\n", c->name, shown, c->name);
    return false;
}

/* ---- values ---- */

static bool bad_value(const command *c, const option_spec *spec, const char *value, const char *expected) {
    char sentence[512];
    snprintf(sentence, sizeof sentence, "--%s is \"%.100s\", expected %s", spec->name, value, expected);
    return usage_error(c, sentence);
}

static bool set_number(const command *c, const option_spec *spec, const char *value, void *field) {
    char *end = NULL, expected[128];
    bool good = false;
    errno = 0;
    if (spec->kind == KIND_INTEGER) {
        long long number = strtoll(value, &end, 10);
        good = (double)number >= spec->low && (double)number <= spec->high;
        if (good) *(int64_t *)field = number;
    } else {
        double number = strtod(value, &end);
        good = number >= spec->low && number <= spec->high; /* false for a NaN */
        if (good) *(double *)field = number;
    }
    if (good && end != value && *end == '\0' && errno == 0) return true;
    snprintf(expected, sizeof expected, "a %s from %.0f to %.0f",
             spec->kind == KIND_INTEGER ? "whole number" : "number", spec->low, spec->high);
    return bad_value(c, spec, value, expected);
}

static bool set_choice(const command *c, const option_spec *spec, const char *value, int *field) {
    char expected[128] = "";
    for (int i = 0; spec->choices[i]; i++) {
        if (strcmp(spec->choices[i], value) == 0) {
            *field = i;
            return true;
        }
        size_t used = strlen(expected);
        snprintf(expected + used, sizeof expected - used, "%s%s", i ? " or " : "", spec->choices[i]);
    }
    return bad_value(c, spec, value, expected);
}

static bool append(string_list *list, const char *item) {
    const char **items = realloc(list->items, ((size_t)list->n + 1) * sizeof *items);
    if (!items) {
        fprintf(stderr, "hearth: out of memory for the command line\n");
        return false;
    }
    list->items = items;
    list->items[list->n++] = item;
    return true;
}

static bool set_value(const command *c, const option_spec *spec, const char *value, options *o) {
    void *field = (char *)o + spec->field;
    ht_error err = {0};
    char sentence[sizeof err.message + 32];
    switch (spec->kind) {
    case KIND_FLAG: *(bool *)field = true; return true;
    case KIND_INTEGER:
    case KIND_NUMBER: return set_number(c, spec, value, field);
    case KIND_TEXT: *(const char **)field = value; return true;
    case KIND_PATH:
        if (*value == '\0') return bad_value(c, spec, value, "the name of a file");
        *(const char **)field = value;
        return true;
    case KIND_LIST:
        if (*value == '\0' || !text_is_utf8(value)) return bad_value(c, spec, value, "some text in UTF-8");
        return append(field, value);
    case KIND_CHOICE: return set_choice(c, spec, value, field);
    case KIND_ORDER:
        *(const char **)field = value;
        if (ht_sampler_order_check(value, &err) == HT_OK) return true;
        snprintf(sentence, sizeof sentence, "--%s: %s", spec->name, err.message);
        return usage_error(c, sentence);
    }
    return false;
}

/* ---- words ---- */

static const option_spec *find_long(const char *name, size_t n) {
    for (int i = 0; i < N_SPECS; i++)
        if (strlen(specs[i].name) == n && memcmp(specs[i].name, name, n) == 0) return &specs[i];
    return NULL;
}

static const option_spec *find_letter(char letter) {
    for (int i = 0; i < N_SPECS; i++)
        if (specs[i].letter == letter) return &specs[i];
    return NULL;
}

/* "-5" and "-.5" are words, as no option's letter is a digit but `-0`. */
static bool is_option(const char *word) {
    return word[0] == '-' && word[1] != '\0' && !(strchr("123456789.", word[1]));
}

static bool accepts(const command *c, const option_spec *spec) { return spec->common || (spec->commands & c->bit); }

/* `spec` is that of another command's option, or NULL. */
static bool unknown_option(const command *c, const option_spec *spec, const char *word) {
    char sentence[256];
    int n = snprintf(sentence, sizeof sentence,
                     spec ? "the option %.80s is not one of this command" : "there is no option %.80s", word);
    nearest best = nearest_to(word + 2, word[1] == '-' ? strcspn(word + 2, "=") : 0);
    for (int i = 0; !spec && i < N_SPECS; i++)
        if (accepts(c, &specs[i])) nearest_try(&best, specs[i].name);
    if (best.word) snprintf(sentence + n, sizeof sentence - (size_t)n, ", the nearest is --%s", best.word);
    return usage_error(c, sentence);
}

/* One option at argv[*at], with its value, which may be in the next word; moves *at past them. */
static bool parse_option(const command *c, int argc, char **argv, int *at, options *o) {
    char sentence[256];
    const char *word = argv[(*at)++], *value = NULL;
    const option_spec *spec;
    if (word[1] == '-') {
        size_t n = strcspn(word + 2, "=");
        spec = find_long(word + 2, n);
        if (word[2 + n] == '=') value = word + 2 + n + 1;
    } else {
        spec = find_letter(word[1]);
        if (word[2] != '\0') value = word + 2;
    }
    if (!spec || !accepts(c, spec)) return unknown_option(c, spec, word);
    if (spec->kind == KIND_FLAG && value) {
        snprintf(sentence, sizeof sentence, "the option --%s takes no value", spec->name);
        return usage_error(c, sentence);
    }
    if (spec->kind != KIND_FLAG && !value) {
        if (*at >= argc) {
            snprintf(sentence, sizeof sentence, "the option --%s needs a value: --%s %s", spec->name, spec->name,
                     spec->value);
            return usage_error(c, sentence);
        }
        value = argv[(*at)++];
    }
    return set_value(c, spec, value, o);
}

static bool take_word(const command *c, const char *word, options *o) {
    char sentence[256];
    if (!o->model && c->takes_model) {
        o->model = word;
        return true;
    }
    if (c->most_arguments >= 0 && o->arguments.n >= c->most_arguments) {
        snprintf(sentence, sizeof sentence, "\"%.80s\" is one argument too many; a text with spaces goes in quotes",
                 word);
        return usage_error(c, sentence);
    }
    return append(&o->arguments, word);
}

bool options_parse(const command *c, int argc, char **argv, options *o) {
    ht_sampler_options defaults;
    ht_sampler_options_init(&defaults, sizeof defaults);
    *o = (options){
        .max_tokens = -1, .prompt_tokens = -1, .rounds = -1, .depth = -1, .repeat_window = defaults.repeat_window};
    bool words_only = false;
    for (int at = 0; at < argc;) {
        if (!words_only && strcmp(argv[at], "--") == 0) {
            words_only = true;
            at++;
        } else if (!words_only && is_option(argv[at])) {
            if (!parse_option(c, argc, argv, &at, o)) return false;
        } else if (!take_word(c, argv[at++], o))
            return false;
    }
    if (!o->help && c->takes_model && (!o->model || !*o->model) && !o->template_file)
        return usage_error(c, "a model is needed: a .gguf file, a directory, or the word default");
    return true;
}

void options_free(options *o) {
    free(o->arguments.items);
    free(o->stop.items);
    free(o->set.items);
    free(o->adapters.items);
    *o = (options){0};
}

void options_help(const command *c) {
    printf("hearth %s %s\n%s\n", c->name, c->arguments, c->summary);
    if (c->details) printf("\n%s\n", c->details);
    if (c->takes_model)
        printf("\nMODEL is a .gguf file, a directory (safetensors with config.json and tokenizer.json, or one GGUF),\n"
               "or the word default for the model that scripts/quickstart fetches.\n");
    printf("\n");
    for (int i = 0; i < N_SPECS; i++) {
        const option_spec *spec = &specs[i];
        if (!(spec->commands & c->bit)) continue;
        char left[48], letter[5] = "";
        if (spec->letter) snprintf(letter, sizeof letter, "-%c, ", spec->letter);
        snprintf(left, sizeof left, "%4s--%s %s", letter, spec->name, spec->value ? spec->value : "");
        printf("  %-30s  %s\n", left, spec->help);
    }
    if (c->bit != FOR_RUN)
        printf("\nThe options of `hearth run` are accepted too, and do nothing here unless listed.\n");
}

/* ---- what the library takes ---- */

ht_dtype options_kv_dtype(const options *o) { return kv_dtypes[o->kv]; }
const char *options_kv_name(const options *o) { return kv_names[o->kv]; }
const char *options_precision_name(const options *o) { return precisions[o->precision]; }

/* A number too small for a float must not become the 0 that switches its option off. */
static float above_zero(double number) { return number > 0 && number < FLT_MIN ? FLT_MIN : (float)number; }

ht_sampler_options options_sampler(const options *o) {
    ht_sampler_options sampler;
    ht_sampler_options_init(&sampler, sizeof sampler);
    sampler.temperature = (float)o->temperature;
    sampler.top_k = (int32_t)o->top_k;
    sampler.top_p = above_zero(o->top_p);
    sampler.min_p = (float)o->min_p;
    sampler.repeat_penalty = above_zero(o->repeat_penalty);
    sampler.repeat_window = (int32_t)o->repeat_window;
    sampler.seed = (uint64_t)o->seed;
    sampler.order = o->order;
    return sampler;
}
