/* Command-line options: one table says which commands use an option; a command rejects all others by name. */
#ifndef HEARTH_APP_OPTIONS_H
#define HEARTH_APP_OPTIONS_H

#include "formats/json.h"

#include <hearth/generate.h>
#include <hearth/train.h>

/* Which commands accept an option, as bits. */
#define FOR_RUN        (1u << 0)
#define FOR_INFO       (1u << 1)
#define FOR_TOKENIZE   (1u << 2)
#define FOR_DETOKENIZE (1u << 3)
#define FOR_LOGITS     (1u << 4)
#define FOR_BENCH      (1u << 5)
#define FOR_DOCTOR     (1u << 6)
#define FOR_DISCOVER   (1u << 7)
#define FOR_EVAL       (1u << 8)
#define FOR_FORMATS    (1u << 9)
#define FOR_TEMPLATE   (1u << 10)
#define FOR_ADAPTER    (1u << 11)
#define FOR_FINETUNE   (1u << 12)
#define FOR_FUSE       (1u << 13)
#define FOR_CLASSIFY   (1u << 14)
#define FOR_BATCH      (1u << 15)
#define FOR_SCORE      (1u << 16)
#define FOR_INSPECT    (1u << 17)
#define FOR_EMBED      (1u << 18)
#define FOR_CHAT       (1u << 19)
#define FOR_LIST       (1u << 20)
#define FOR_RM         (1u << 21)
#define FOR_COMPLETION (1u << 22)
#define FOR_MAN        (1u << 23)
#define FOR_QUANTIZE   (1u << 24)
#define FOR_IMATRIX    (1u << 25)
#define FOR_PULL       (1u << 26)
#define FOR_CONVERT    (1u << 27)
#define FOR_SPLIT      (1u << 28)
#define FOR_MERGE      (1u << 29)
#define FOR_SERVE      (1u << 30)
#define FOR_RERANK     (1u << 31)
#define FOR_ALL        (~0u)

typedef struct string_list {
    const char **items; /* borrowed from argv */
    int n;
} string_list;

typedef struct bias_list {
    ht_logit_bias *items; /* each token once */
    int n;
} bias_list;

/* Options of `finetune`. The library's option structs hold its defaults unless set. */
typedef struct tune_options {
    ht_lora_options lora;
    ht_optimizer_options rule;
    ht_trainer_options how;
    const char *layers, *init_adapter, *plot; /* NULL when not given */
    int64_t batch, accumulate, keep, save_every, valid_every, report_every, patience;
    int format; /* index of its name */
    bool pack, no_pack, resume;
    string_list samples;
} tune_options;

/* Parsed options. Unless noted, an option that is not given holds 0, the library's default. */
typedef struct options {
    const struct command *command;
    const char *model;     /* as typed; an option of `adapter` */
    string_list arguments; /* after MODEL */
    string_list stop, set, adapters, from;
    bias_list logit_bias;
    const char *system, *ids, *out, *cpu, *text, *kl_vs, *device, *vs_device; /* NULL when not given */
    const char *template_file, *messages, *tools, *answer, *to;               /* likewise */
    const char *tool_choice;
    const char *prompt; /* text of `bench --report` */
    bool report;
    const char *draft; /* model */
    const char *regex, *grammar, *schema;
    bool lookup, no_lookup;
    int64_t draft_tokens;
    const char *load_state, *save_state; /* likewise */
    const char *backend, *python;        /* likewise */
    const char *attention, *svg, *head;  /* likewise, of inspect */
    const char *quantize;                /* likewise, BITS[:GROUP] */
    const char *prompts, *labels;        /* likewise */
    const char *query, *documents;       /* likewise, of rerank */
    const char *instruction;             /* likewise */
    const char *prompt_name;             /* likewise, of embed */
    int64_t top_n, dimensions;
    const char *probe, *probe_out; /* likewise: a list, a file */
    const char *cache_file;        /* likewise */
    int64_t retries, connections;  /* of pull, like the next two: valid if options_given */
    double retry_delay, timeout;   /* seconds */
    bool dry_run, verify;
    uint64_t seed;
    int64_t threads, context, chunk, parallel, window, slots, top, chunks, skip_chunks, top_logprobs;
    int64_t max_tokens, prompt_tokens, rounds, depth; /* -1 when not given, as 0 is a value */
    int64_t thinking_budget;                          /* likewise */
    /* Sampler options; HT_SAMPLER_UNSET when not given, because 0 is a value. */
    int64_t top_k, repeat_window;
    double temperature, top_p, min_p, repeat_penalty, presence_penalty, frequency_penalty;
    const char *order;   /* of the sampler's stages, checked */
    int precision;       /* ht_precision */
    int kv;              /* index into kv_names */
    int dtype;           /* index into auto, f32, f16, bf16 */
    int64_t max_size;    /* bytes of a file; 0 when not given */
    int pooling;         /* ht_pooling */
    const char *imatrix; /* of quantize; NULL: none */
    bool pure, errors;   /* likewise */
    bool kl_vs_reference, dense, inspect_q, inspect_v, normalize, no_normalize, truncate;
    bool sliding, markdown, packed_cache, no_generation_prompt, no_thinking, parse_special, one_call;
    bool force;
    bool json, quiet, raw, null, add_special, help;
    tune_options tune;
    /* Options of serve; NULL or 0 when not given, except that port and drain are valid only if options_given. */
    const char *host, *api_key_file, *models, *certificate, *certificate_key, *slots_directory;
    string_list aliases, allow_hosts, allow_origins;
    int64_t port, queue, memory, kv_memory, body_size;
    double drain;
    bool any_model, strict_params, no_page;
    const char *log;            /* of serve and finetune; NULL: none */
    const char *config;         /* file of further options; NULL: none */
    ht_json *config_values;     /* its object, which owns texts used here; NULL: none */
    string_list config_numbers; /* owned texts of its numbers */
    bool *given;                /* [option_count] on the command line, or in that file */
} options;

struct command;

/* Parses the words after the command's name into *o. On a usage error prints one sentence to stderr; returns false. */
bool options_parse(const struct command *c, int argc, char **argv, options *o);
void options_free(options *o);
/* Prints a usage error prefixed with the command's name; returns EXIT_USAGE. */
int usage_error(const options *o, const char *format, ...) HT_PRINTF(2, 3);
/* Whether the command line or --config gave the option of that name; a flag that --config switches off is not given. */
bool options_given(const options *o, const char *name);
/* All options of the command as an object, except `others` (NULL-terminated). NULL: memory ran out. */
ht_json *options_values(const options *o, const char *const *others);
/* Whether a single sequence uses prompt lookup: not with --no-lookup, nor with --draft unless --lookup is given. */
bool options_lookup(const options *o);
/* Sets the template variables of --set in a conversation. */
ht_status options_chat_variables(const options *o, ht_chat *chat, ht_error *err);
/* Changes a numeric option at run time, by name; `_` may replace `-`. False with the reason in `why`. */
bool options_set_number(options *o, const char *name, const char *value, char *why, size_t n);
/* Sets logit biases from space-separated ID=BIAS, or `none`; false with the reason in `why`. */
bool options_set_biases(options *o, const char *value, char *why, size_t n);
/* Adds or replaces a bias from ID=BIAS of n bytes; false with the expected form. */
bool bias_list_read(bias_list *list, const char *text, size_t n, const char **expected);
void bias_list_free(bias_list *list);
/* Prints the usage, details and options of a command to stdout. */
void options_help(const struct command *c);

extern const char options_of_model[]; /* what the word MODEL stands for */

ht_dtype options_kv_dtype(const options *o);
ht_dtype options_dtype(const options *o);      /* HT_DTYPE_NONE when not given */
const char *options_kv_name(const options *o); /* the user's spelling, like the next */
const char *options_precision_name(const options *o);
ht_sampler_options options_sampler(const options *o); /* borrows texts and lists from *o */

#endif
