#include "options.h"

#include "base/grow.h"
#include "command.h"
#include "fail.h"
#include "json.h"
#include "nearest.h"
#include "options_table.h"
#include "terminal.h"

#include <hearth/embed.h>

#include <ctype.h>
#include <errno.h>
#include <float.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

static void print_mistake(const command *c, const char *format, va_list args) {
    char shown[1024];
    vsnprintf(shown, sizeof shown, format, args);
    make_printable(shown);
    fprintf(stderr, "hearth %s: %s (see hearth %s --help)\n", c->name, shown, c->name);
}

int usage_error(const options *o, const char *format, ...) {
    va_list args;
    va_start(args, format);
    print_mistake(o->command, format, args);
    va_end(args);
    return EXIT_USAGE;
}

static bool refuse(const command *c, const char *format, ...) HT_PRINTF(2, 3);
static bool refuse(const command *c, const char *format, ...) {
    va_list args;
    va_start(args, format);
    print_mistake(c, format, args);
    va_end(args);
    return false;
}

/* ---- values ---- */

static bool bad_value(const command *c, const option_spec *spec, const char *value, const char *expected) {
    return refuse(c, "--%s is \"%.100s\", expected %s", spec->name, value, expected);
}

enum { EXPECTED_SIZE = 128, OPTION_COLUMN = 32 /* of the texts in the help */ };

/* Parses a number in the option's range; on false, `expected` describes the range. */
static bool read_number(const option_spec *spec, const char *value, void *field, char expected[EXPECTED_SIZE]) {
    char *end = NULL;
    bool good = false;
    errno = 0;
    if (spec->kind == KIND_INTEGER) {
        long long number = strtoll(value, &end, 10);
        good = (double)number >= spec->low && (double)number <= spec->high && end != value && !*end && !errno;
        if (good) *(int64_t *)field = number;
    } else if (spec->kind == KIND_SEED) {
        const unsigned long long number = strtoull(value, &end, 10); /* accepts "-1" */
        good = end != value && !*end && !errno && !strchr(value, '-');
        if (good) *(uint64_t *)field = number;
        snprintf(expected, EXPECTED_SIZE, "a whole number from 0 to %llu", (unsigned long long)UINT64_MAX);
        return good;
    } else {
        double number = strtod(value, &end);
        good = number >= spec->low && number <= spec->high && end != value && !*end && !errno; /* false for NaN */
        if (good) *(double *)field = number;
    }
    snprintf(expected, EXPECTED_SIZE,
             spec->kind == KIND_INTEGER ? "a whole number from %.0f to %.0f" : "a number from %g to %g", spec->low,
             spec->high);
    return good;
}

static bool set_number(const command *c, const option_spec *spec, const char *value, void *field) {
    char expected[EXPECTED_SIZE];
    return read_number(spec, value, field, expected) || bad_value(c, spec, value, expected);
}

/* Parses a size: K to T and KB to TB are powers of 1000, as in llama.cpp's tools, KiB to TiB of 1024.
 * 0 for a malformed size or one outside 1 to INT64_MAX. */
static int64_t read_size(const char *value) {
    static const char units[] = "KMGT";
    const size_t digits = strspn(value, "0123456789."); /* neither a sign nor an exponent */
    char *end;
    const double number = digits ? strtod(value, &end) : 0;
    if (!digits || end != value + digits) return 0;
    const char *unit = *end ? strchr(units, toupper((unsigned char)*end)) : NULL;
    const bool binary = unit && !strcasecmp(end + 1, "iB");
    const bool decimal = unit && (!end[1] || !strcasecmp(end + 1, "B"));
    if (*end && strcasecmp(end, "B") != 0 && !binary && !decimal) return 0;
    const double bytes = number * (unit ? pow(binary ? 1024 : 1000, (double)(unit - units + 1)) : 1);
    return bytes >= 1 && bytes < (double)INT64_MAX ? (int64_t)(bytes + 0.5) : 0;
}

/* A small number without a unit, such as 16, is almost certainly a mistake. */
enum { LEAST_WITHOUT_UNIT = 10000 };

static bool set_size(const command *c, const option_spec *spec, const char *value, int64_t *field) {
    *field = read_size(value);
    if (*field && *field < LEAST_WITHOUT_UNIT && isdigit((unsigned char)value[strlen(value) - 1]))
        return bad_value(c, spec, value, "a unit after so small a number, as in 500M or 4G, or B for bytes");
    return *field ||
           bad_value(c, spec, value, "a size above 0, as 500M, 4G or 1.5G (powers of 1000) or 4GiB (of 1024)");
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
    if (!HT_GROW_ONE(list->items, list->n)) {
        fprintf(stderr, "hearth: out of memory for the command line\n");
        return false;
    }
    list->items[list->n++] = item;
    return true;
}

/* Adds or replaces a token's bias; false when memory ran out. */
static bool put_bias(bias_list *list, int32_t id, float bias) {
    for (int i = 0; i < list->n; i++)
        if (list->items[i].id == id) {
            list->items[i].bias = bias;
            return true;
        }
    if (!HT_GROW_ONE(list->items, list->n)) return false;
    list->items[list->n++] = (ht_logit_bias){id, bias};
    return true;
}

bool bias_list_read(bias_list *list, const char *text, size_t n, const char **expected) {
    char word[80];
    const size_t digits = strspn(text, "0123456789"); /* neither a sign nor a space */
    *expected = "ID=BIAS, a token's id and a number, as 1234=-100";
    if (!digits || n >= sizeof word || digits >= n || text[digits] != '=') return false;
    memcpy(word, text, n);
    word[n] = '\0';
    char *end;
    errno = 0;
    const long long id = strtoll(word, NULL, 10);
    if (errno || id > INT32_MAX) return false;
    const float bias = strtof(word + digits + 1, &end);
    if (end == word + digits + 1 || *end || !isfinite(bias)) return false;
    *expected = "less, as there is no memory for it";
    return put_bias(list, (int32_t)id, bias);
}

void bias_list_free(bias_list *list) {
    free(list->items);
    *list = (bias_list){0};
}

static bool set_value(const command *c, const option_spec *spec, const char *value, options *o) {
    void *field = (char *)o + spec->field;
    ht_error err = {0};
    const char *expected;
    switch (spec->kind) {
    case KIND_FLAG: *(bool *)field = true; return true;
    case KIND_INTEGER:
    case KIND_SEED:
    case KIND_NUMBER: return set_number(c, spec, value, field);
    case KIND_SIZE: return set_size(c, spec, value, field);
    case KIND_TEXT: *(const char **)field = value; return true;
    case KIND_PATH:
        if (*value == '\0') return bad_value(c, spec, value, "the name of a file");
        *(const char **)field = value;
        return true;
    case KIND_PATHS:
        if (*value == '\0') return bad_value(c, spec, value, "the name of a file");
        return append(field, value);
    case KIND_LIST:
        if (*value == '\0' || !ht_utf8_valid(value, strlen(value)))
            return bad_value(c, spec, value, "some text in UTF-8");
        return append(field, value);
    case KIND_CHOICE: return set_choice(c, spec, value, field);
    case KIND_BIAS:
        return bias_list_read(field, value, strlen(value), &expected) || bad_value(c, spec, value, expected);
    case KIND_ORDER:
        *(const char **)field = value;
        if (ht_sampler_order_check(value, &err) == HT_OK) return true;
        return refuse(c, "--%s: %s", spec->name, err.message);
    }
    return false;
}

/* ---- parsing ---- */

bool option_is_list(const option_spec *spec) {
    return spec->kind == KIND_LIST || spec->kind == KIND_PATHS || spec->kind == KIND_BIAS;
}

static bool accepts(const command *c, const option_spec *spec) { return (spec->commands & c->bit) != 0; }

/* Finds an option by name, preferring a row that the command accepts to one of other commands; NULL: unknown. */
static const option_spec *find_long(const command *c, const char *name, size_t n) {
    const option_spec *found = NULL;
    for (int i = 0; i < option_count; i++) {
        const option_spec *spec = &option_table[i];
        if (strlen(spec->name) == n && memcmp(spec->name, name, n) == 0 && (!found || accepts(c, spec))) found = spec;
    }
    return found;
}

static const option_spec *find_letter(const command *c, char letter) {
    const option_spec *found = NULL;
    for (int i = 0; i < option_count; i++)
        if (option_table[i].letter == letter && (!found || accepts(c, &option_table[i]))) found = &option_table[i];
    return found;
}

/* "-5" and "-.5" are arguments: the only option letter that is a digit is `-0`. */
static bool is_option(const char *word) {
    return word[0] == '-' && word[1] != '\0' && !(strchr("123456789.", word[1]));
}

/* `spec`: an option of another command with that name, or NULL. */
static bool unknown_option(const command *c, const option_spec *spec, const char *word) {
    if (spec) return refuse(c, "--%s is not an option of this command", spec->name);
    nearest best = nearest_to(word + 2, word[1] == '-' ? strcspn(word + 2, "=") : 0);
    for (int i = 0; i < option_count; i++)
        if (accepts(c, &option_table[i])) nearest_try(&best, option_table[i].name);
    return refuse(c, "there is no option %.80s%s%s", word, best.word ? ", the nearest is --" : "",
                  best.word ? best.word : "");
}

/* Parses the option at argv[*at] and its value, which may be the next word; advances *at past both. */
static bool parse_option(const command *c, int argc, char **argv, int *at, options *o) {
    const char *word = argv[(*at)++], *value = NULL;
    const option_spec *spec;
    if (word[1] == '-') {
        size_t n = strcspn(word + 2, "=");
        spec = find_long(c, word + 2, n);
        if (word[2 + n] == '=') value = word + 2 + n + 1;
    } else {
        spec = find_letter(c, word[1]);
        if (word[2] != '\0') value = word + 2;
    }
    if (!spec || !accepts(c, spec)) return unknown_option(c, spec, word);
    if (spec->kind == KIND_FLAG && value) return refuse(c, "the option --%s takes no value", spec->name);
    if (spec->kind != KIND_FLAG && !value) {
        if (*at >= argc)
            return refuse(c, "the option --%s needs a value: --%s %s", spec->name, spec->name, spec->value);
        value = argv[(*at)++];
    }
    o->given[spec - option_table] = true;
    return set_value(c, spec, value, o);
}

/* ---- --config ---- */

static bool bad_entry(const command *c, const options *o, const char *name, const char *why) {
    return refuse(c, "--config %.200s: `%.80s` %s", o->config, name, why);
}

/* Converts a config value to command-line text; NULL for another type. o->config_numbers owns texts of numbers. */
static const char *entry_text(const ht_json *value, options *o) {
    char text[32];
    if (ht_json_is_string(value)) return ht_json_string_value(value);
    if (!ht_json_is_number(value)) return NULL;
    if (ht_json_is_integer(value))
        snprintf(text, sizeof text, "%lld", (long long)ht_json_integer_value(value));
    else
        snprintf(text, sizeof text, "%.17g", ht_json_real_value(value));
    char *kept = strdup(text);
    if (kept && append(&o->config_numbers, kept)) return kept;
    free(kept);
    return NULL;
}

/* Whether a mutually exclusive option on the command line overrides this one in the config file. */
static bool is_set_aside(const command *c, const char *name, const bool *on_command_line) {
    for (int i = 0; option_rivals[i][0]; i++)
        for (int k = 0; k < 2; k++) {
            const char *other = option_rivals[i][1 - k];
            if (!strcmp(name, option_rivals[i][k]) &&
                on_command_line[find_long(c, other, strlen(other)) - option_table])
                return true;
        }
    return false;
}

/* Sets a flag; `false` sets the opposite option, named with no- in front, if there is one. */
static bool take_flag(const command *c, const option_spec *spec, const ht_json *value, options *o) {
    char opposite[64];
    if (!ht_json_is_boolean(value)) return bad_entry(c, o, spec->name, "must be true or false");
    if (!ht_json_is_true(value)) {
        const int n = snprintf(opposite, sizeof opposite, "no-%s", spec->name);
        spec = find_long(c, opposite, (size_t)n);
        if (!spec || !accepts(c, spec)) return true;
    }
    *(bool *)((char *)o + spec->field) = true;
    o->given[spec - option_table] = true;
    return true;
}

static bool take_entry(const command *c, const char *name, ht_json *value, const bool *on_command_line, options *o) {
    const option_spec *spec = find_long(c, name, strlen(name));
    if (!spec || !accepts(c, spec) || !strcmp(name, "config"))
        return bad_entry(c, o, name, "is not an option of this command");
    if (on_command_line[spec - option_table] || is_set_aside(c, name, on_command_line)) return true;
    if (spec->kind == KIND_FLAG) return take_flag(c, spec, value, o);
    o->given[spec - option_table] = true;
    const size_t n = ht_json_is_array(value) ? ht_json_array_size(value) : 1;
    if (ht_json_is_array(value) && !option_is_list(spec)) return bad_entry(c, o, name, "must be one value");
    for (size_t i = 0; i < n; i++) {
        const ht_json *one = ht_json_is_array(value) ? ht_json_array_get(value, i) : value;
        const char *text = entry_text(one, o);
        if (!text) return bad_entry(c, o, name, "must be a text or a number");
        if (!set_value(c, spec, text, o)) return false;
    }
    return true;
}

static bool read_config(const command *c, options *o) {
    enum { BYTES_MAX = 16 << 20 };
    ht_error why = {0};
    const char *name;
    ht_json *value;
    if (ht_json_read_as(o->config, BYTES_MAX, &(ht_json_options){0}, &o->config_values, &why))
        return refuse(c, "--config %s", why.message);
    const size_t n = (size_t)option_count * sizeof *o->given;
    bool *on_command_line = malloc(n), good = true;
    if (!on_command_line) return refuse(c, "out of memory for the options of a file");
    memcpy(on_command_line, o->given, n);
    ht_json_object_foreach(o->config_values, name, value) good = good && take_entry(c, name, value, on_command_line, o);
    free(on_command_line);
    return good;
}

static bool take_word(const command *c, const char *word, options *o) {
    if (!o->model && c->takes_model) {
        o->model = word;
        return true;
    }
    if (c->most_arguments >= 0 && o->arguments.n >= c->most_arguments)
        return refuse(c, "too many arguments: \"%.80s\"; quote text that contains spaces", word);
    return append(&o->arguments, word);
}

static void tune_defaults(tune_options *t) {
    ht_lora_options_init(&t->lora, sizeof t->lora);
    ht_optimizer_options_init(&t->rule, sizeof t->rule);
    ht_trainer_options_init(&t->how, sizeof t->how);
    t->batch = t->how.batch;
    t->accumulate = t->how.accumulate;
    t->keep = 1;
    t->save_every = t->valid_every = 100;
    t->report_every = 10;
}

static bool check_rivals(const command *c, const options *o) {
    for (int i = 0; option_rivals[i][0]; i++)
        if (options_given(o, option_rivals[i][0]) && options_given(o, option_rivals[i][1]))
            return refuse(c, "--%s and --%s exclude each other", option_rivals[i][0], option_rivals[i][1]);
    return true;
}

bool options_parse(const command *c, int argc, char **argv, options *o) {
    ht_sampler_options sampler;
    ht_sampler_options_init(&sampler, sizeof sampler);
    *o = (options){.command = c,
                   .seed = c->bit == FOR_FINETUNE ? 0 : sampler.seed,
                   .max_tokens = -1,
                   .prompt_tokens = -1,
                   .rounds = -1,
                   .depth = -1,
                   .thinking_budget = -1,
                   .pooling = HT_POOLING_MODEL,
                   .temperature = HT_SAMPLER_UNSET,
                   .top_k = HT_SAMPLER_UNSET,
                   .top_p = HT_SAMPLER_UNSET,
                   .min_p = HT_SAMPLER_UNSET,
                   .repeat_penalty = HT_SAMPLER_UNSET,
                   .repeat_window = HT_SAMPLER_UNSET,
                   .presence_penalty = HT_SAMPLER_UNSET,
                   .frequency_penalty = HT_SAMPLER_UNSET};
    tune_defaults(&o->tune);
    o->given = calloc((size_t)option_count, sizeof *o->given);
    if (!o->given) return refuse(c, "out of memory for the command line");
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
    if (o->help) return true;
    if (o->config && !read_config(c, o)) return false;
    if (!check_rivals(c, o)) return false;
    if (c->takes_model && (!o->model || !*o->model) && !o->template_file)
        return refuse(c, "a model is needed: a .gguf file, a directory, or the word default");
    return true;
}

void options_free(options *o) {
    for (int i = 0; i < option_count; i++) {
        string_list *list = (void *)((char *)o + option_table[i].field);
        if (option_table[i].kind != KIND_LIST && option_table[i].kind != KIND_PATHS) continue;
        free(list->items);
        *list = (string_list){0};
    }
    free(o->arguments.items);
    bias_list_free(&o->logit_bias);
    for (int i = 0; i < o->config_numbers.n; i++) free((char *)(uintptr_t)o->config_numbers.items[i]);
    free(o->config_numbers.items);
    ht_json_decref(o->config_values);
    free(o->given);
    *o = (options){0};
}

bool options_given(const options *o, const char *name) {
    for (int i = 0; i < option_count; i++)
        if (o->given[i] && strcmp(option_table[i].name, name) == 0) return true;
    return false;
}

/* ---- options as JSON ---- */

/* Rounds as writing and rereading a result does, so that the values compare equal. */
static ht_json *number_value(double number) {
    char text[32];
    snprintf(text, sizeof text, "%.9g", number);
    return ht_json_real(strtod(text, NULL));
}

static ht_json *list_value(const string_list *list) {
    ht_json *values = ht_json_new_array();
    for (int i = 0; values && i < list->n; i++) ht_json_array_append_new(values, ht_json_string(list->items[i]));
    return values;
}

static ht_json *bias_value(const bias_list *list) {
    ht_json *values = ht_json_new_object();
    for (int i = 0; values && i < list->n; i++) {
        char id[16];
        snprintf(id, sizeof id, "%d", (int)list->items[i].id);
        ht_json_object_set_new(values, id, number_value((double)list->items[i].bias));
    }
    return values;
}

static ht_json *option_value(const option_spec *spec, const void *field) {
    switch (spec->kind) {
    case KIND_FLAG: return ht_json_boolean(*(const bool *)field);
    case KIND_INTEGER:
    case KIND_SIZE: return ht_json_integer(*(const int64_t *)field);
    case KIND_SEED: return ht_json_unsigned(*(const uint64_t *)field);
    case KIND_NUMBER: return number_value(*(const double *)field);
    case KIND_CHOICE: return ht_json_string(spec->choices[*(const int *)field]);
    case KIND_LIST:
    case KIND_PATHS: return list_value(field);
    case KIND_BIAS: return bias_value(field);
    case KIND_TEXT:
    case KIND_PATH:
    case KIND_ORDER: break;
    }
    const char *text = *(const char *const *)field;
    return text ? ht_json_string(text) : ht_json_null();
}

ht_json *options_values(const options *o, const char *const *others) {
    ht_json *values = ht_json_new_object();
    for (int i = 0; values && i < option_count; i++) {
        const option_spec *spec = &option_table[i];
        bool is_other = !accepts(o->command, spec);
        for (int k = 0; others[k] && !is_other; k++) is_other = strcmp(spec->name, others[k]) == 0;
        if (is_other || !ht_json_object_set_new(values, spec->name, option_value(spec, (const char *)o + spec->field)))
            continue;
        ht_json_decref(values);
        values = NULL;
    }
    return values;
}

const char options_of_model[] =
    "MODEL is a .gguf file, a directory (safetensors with config.json and tokenizer.json, or one GGUF), a name of "
    "`hearth list`, ORG/REPO of `hearth pull`, or the word default for the model that scripts/quickstart fetches.";

void options_help(const command *c) {
    printf("hearth %s%s%s\n%s\n", c->name, *c->arguments ? " " : "", c->arguments, c->summary);
    if (c->details) output_paragraphs(c->details);
    if (c->takes_model) output_paragraphs(options_of_model);
    printf("\n");
    for (int i = 0; i < option_count; i++) {
        const option_spec *spec = &option_table[i];
        if (!accepts(c, spec)) continue;
        char left[64], letter[5] = "";
        if (spec->letter) snprintf(letter, sizeof letter, "-%c, ", spec->letter);
        snprintf(left, sizeof left, "  %4s--%s %s", letter, spec->name, spec->value ? spec->value : "");
        output_entry(left, OPTION_COLUMN, spec->help);
    }
}

/* ---- library options ---- */

bool options_lookup(const options *o) { return o->lookup || (!o->no_lookup && !o->draft); }

static const ht_dtype kv_dtypes[] = {HT_F16, HT_F32, HT_BF16, HT_I8};
static const ht_dtype dtypes[] = {HT_DTYPE_NONE, HT_F32, HT_F16, HT_BF16};

ht_dtype options_kv_dtype(const options *o) { return kv_dtypes[o->kv]; }
ht_dtype options_dtype(const options *o) { return dtypes[o->dtype]; }
const char *options_kv_name(const options *o) { return kv_names[o->kv]; }
const char *options_precision_name(const options *o) { return precisions[o->precision]; }

/* A positive number must not underflow to 0, which would switch its option off. */
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
    sampler.seed = o->seed;
    sampler.order = o->order;
    sampler.presence_penalty = (float)o->presence_penalty;
    sampler.frequency_penalty = (float)o->frequency_penalty;
    sampler.logit_bias = o->logit_bias.items;
    sampler.n_logit_bias = o->logit_bias.n;
    return sampler;
}

ht_status options_chat_variables(const options *o, ht_chat *chat, ht_error *err) {
    for (int i = 0; i < o->set.n; i++) {
        char name[128];
        const char *equals = strchr(o->set.items[i], '=');
        size_t n = equals ? (size_t)(equals - o->set.items[i]) : 0;
        if (!n || n >= sizeof name)
            return ht_fail(err, HT_ERR_ARGUMENT, "--set is \"%.100s\", expected NAME=JSON", o->set.items[i]);
        memcpy(name, o->set.items[i], n);
        name[n] = '\0';
        ht_status st = ht_chat_set_variable(chat, name, equals + 1, strlen(equals + 1), err);
        if (st) return st;
    }
    return HT_OK;
}

bool options_set_number(options *o, const char *name, const char *value, char *why, size_t n) {
    char word[64], expected[EXPECTED_SIZE];
    snprintf(word, sizeof word, "%s", name);
    for (char *at = word; *at; at++)
        if (*at == '_') *at = '-';
    const option_spec *spec = find_long(o->command, word, strlen(word));
    const bool number = spec && (spec->kind == KIND_INTEGER || spec->kind == KIND_SEED || spec->kind == KIND_NUMBER);
    if (!number || !accepts(o->command, spec)) {
        snprintf(why, n, "there is no parameter %.60s", name);
        return false;
    }
    if (read_number(spec, value, (char *)o + spec->field, expected)) return true;
    snprintf(why, n, "%.60s is \"%.60s\", expected %s", name, value, expected);
    return false;
}

bool options_set_biases(options *o, const char *value, char *why, size_t n) {
    const char *expected = "ID=BIAS", *at = value + strspn(value, " ");
    if (strcmp(at, "none") == 0) {
        bias_list_free(&o->logit_bias);
        return true;
    }
    bool good = *at;
    while (good && *at) {
        const size_t length = strcspn(at, " ");
        good = bias_list_read(&o->logit_bias, at, length, &expected);
        at += length + strspn(at + length, " ");
    }
    if (!good) snprintf(why, n, "logit_bias is \"%.60s\", expected %s, or none", value, expected);
    return good;
}
