/* hearth finetune: the trainer's options, and what is shown before the first step. */
#include "device.h"
#include "finetune.h"
#include "json.h"
#include "model_path.h"
#include "terminal.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SAMPLE_SHOWN = 2000, BAR = 30 };

/* ---- opening ---- */

static void on_progress(double done, void *user) { progress_show(user, done); }

bool setup_layers(const char *text, int64_t *out) {
    char *end;
    *out = 0;
    if (!text || !strcmp(text, "all")) return true;
    *out = strtoll(text, &end, 10);
    return *out > 0 && !*end;
}

static void lora_options(const setup *s, const options *o, ht_lora_options *lora) {
    const tune_options *t = &o->tune;
    ht_lora_options_init(lora, sizeof *lora);
    lora->rank = t->rank;
    lora->alpha = t->alpha;
    lora->scale = t->scale;
    lora->rslora = t->rslora;
    lora->dropout = t->dropout;
    if (t->targets) lora->targets = t->targets;
    if (options_dtype(o)) lora->dtype = options_dtype(o);
    lora->base = o->model;
    lora->init = s->init;
    (void)setup_layers(t->layers, &lora->layers); /* finetune_mistake has */
}

static void rule_options(const tune_options *t, ht_optimizer_options *rule) {
    ht_optimizer_options_init(rule, sizeof *rule);
    rule->kind = (ht_optimizer_kind)t->optimizer;
    rule->weight_decay = t->weight_decay;
    rule->beta1 = t->beta1;
    rule->beta2 = t->beta2;
    rule->eps = t->eps;
    rule->momentum = t->momentum;
}

static ht_status open_trainer(setup *s, const options *o, ht_error *err) {
    const tune_options *t = &o->tune;
    ht_lora_options lora;
    ht_optimizer_options rule;
    ht_trainer_options how;
    progress reading;
    lora_options(s, o, &lora);
    rule_options(t, &rule);
    ht_trainer_options_init(&how, sizeof how);
    how.lora = &lora;
    how.optimizer = &rule;
    how.data = t->data;
    how.valid = t->valid;
    how.mask = (ht_mask)t->mask;
    how.long_samples = (ht_long_samples)t->long_samples;
    how.max_length = t->max_length;
    how.skip_bad = t->skip_bad;
    how.batch = (int32_t)t->batch;
    how.accumulate = (int32_t)t->accumulate;
    how.pack = !t->no_pack;
    how.in_order = t->no_shuffle;
    how.seed = o->seed;
    how.iters = t->iters;
    how.epochs = t->epochs;
    how.learning_rate = t->lr;
    how.schedule = (ht_schedule_kind)t->schedule;
    how.warmup = t->warmup;
    how.clip = t->clip;
    how.checkpointing = (ht_checkpointing)t->checkpointing;
    how.valid_batches = t->valid_batches;
    how.cancel = interrupt_flag();
    how.progress = on_progress;
    how.user = &reading;
    progress_begin(&reading, "reading the data", o->quiet);
    const ht_status st = ht_trainer_new(s->engine.model, &how, &s->trainer, err);
    progress_end(&reading);
    if (!st) ht_trainer_describe(s->trainer, &s->plan);
    return st;
}

static ht_status open_all(setup *s, const options *o, ht_error *err) {
    const engine_model which = {o->model, (ht_precision)o->precision, HT_F16, 0};
    ht_status st = engine_load(&s->engine, o, &which, &s->engine.model, err);
    if (!st && o->tune.init_adapter) st = ht_adapter_load(o->tune.init_adapter, s->engine.model, NULL, &s->init, err);
    return st ? st : open_trainer(s, o, err);
}

ht_status setup_open(setup *s, const options *o, ht_error *err) {
    *s = (setup){0};
    const ht_status st = open_all(s, o, err);
    if (!st || !s->engine.by_default) return st;
    ht_adapter_free(s->init);
    s->init = NULL;
    return engine_turn_to_cpu(&s->engine, st, err) ? open_all(s, o, err) : st;
}

void setup_close(setup *s) {
    ht_trainer_free(s->trainer);
    ht_adapter_free(s->init);
    engine_close(&s->engine);
}

/* ---- what is shown ---- */

static void print_count(const char *name, const ht_data_count *c) {
    char lines[160];
    size_t used = 0;
    if (!c->n) return;
    for (int i = 0; i < HT_DATA_LINES_NAMED && i < c->n; i++)
        used += (size_t)snprintf(lines + used, sizeof lines - used, "%s%lld", i ? ", " : "", (long long)c->line[i]);
    output_field("", "%lld %s (line %s%s)", (long long)c->n, name, lines, c->n > HT_DATA_LINES_NAMED ? ", ..." : "");
}

static void print_lengths(const ht_data_report *r) {
    int64_t most = 1;
    for (int i = 0; i < HT_DATA_LENGTH_BINS; i++)
        if (r->length[i] > most) most = r->length[i];
    bool first = true;
    for (int i = 0; i < HT_DATA_LENGTH_BINS; i++) {
        if (!r->length[i]) continue;
        char bar[BAR + 1];
        const int n = (int)ceil((double)BAR * (double)r->length[i] / (double)most);
        memset(bar, '#', (size_t)n);
        bar[n] = '\0';
        output_field(first ? "tokens" : "", "%6lld to %-6lld %-*s %lld", 1LL << i, (1LL << (i + 1)) - 1, BAR, bar,
                     (long long)r->length[i]);
        first = false;
    }
}

static void print_data(const char *name, const ht_data_report *r) {
    char forms[160] = "";
    for (int i = 0; i < HT_SAMPLE_FORMS; i++) {
        const size_t used = strlen(forms);
        if (r->n_form[i])
            snprintf(forms + used, sizeof forms - used, "%s%s", used ? ", " : "",
                     ht_sample_form_name((ht_sample_form)i));
    }
    output_field(name, "%lld sample%s of %s; %lld token%s, %lld of them learned", (long long)r->n_samples,
                 plural(r->n_samples), forms, (long long)r->n_tokens, plural(r->n_tokens), (long long)r->n_learned);
    print_count("left out: no sample", &r->bad);
    if (r->bad.n) output_field("", "%s", r->first_bad.message);
    char longer[80];
    snprintf(longer, sizeof longer, "left out: longer than %lld token%s, of --max-length or the model's context",
             (long long)r->max_length, plural(r->max_length));
    print_count(longer, &r->too_long);
    print_count("left out: no token is learned", &r->unlearned);
    snprintf(longer, sizeof longer, "cut after %lld token%s", (long long)r->max_length, plural(r->max_length));
    print_count(longer, &r->truncated);
    print_count("without a learned token that ends generation: the model would not learn to stop", &r->stopless);
    print_count("whose answer is written otherwise than after the prompt of generation", &r->prompt_differs);
    print_count("with answers that the template writes otherwise than they were given", &r->history_differs);
    print_count("with an answer that was not found in what the template writes, and is not learned", &r->answer_lost);
}

/* The learned part of a sample: by colour on a terminal, else between marks. */
typedef struct shown {
    size_t left;
    bool colours;
} shown;

static bool show_piece(const char *text, size_t n, bool learned, void *user) {
    shown *s = user;
    size_t some = n < s->left ? n : s->left;
    s->left -= some;
    while (some < n && some && ((unsigned char)text[some] & 0xC0) == 0x80) some--; /* no half character */
    const char *begin = s->colours ? "\033[32m" : "[[", *end = s->colours ? "\033[0m" : "]]";
    if (learned) output_write(begin, strlen(begin));
    output_text(text, some);
    if (learned) output_write(end, strlen(end));
    return s->left > 0;
}

static ht_status print_sample(const setup *s, ht_error *err) {
    const char *no = getenv("NO_COLOR");
    shown state = {SAMPLE_SHOWN, output_is_terminal() && (!no || !*no)};
    output_write("\n", 1);
    output_line("One sample, with what is learned %s:", state.colours ? "in green" : "between [[ and ]]");
    ht_status st = ht_trainer_sample(s->trainer, 0, show_piece, &state, err);
    if (st == HT_ERR_CANCELLED && !state.left) st = HT_OK;
    if (!state.left) output_write(" ...", 4);
    output_write("\n\n", 2);
    return st;
}

/* ---- as JSON ---- */

static ht_json *describe_data(const ht_data_report *r) {
    if (!r) return ht_json_null();
    return ht_json_pack("{sI sI sI sI sI s{sI sI sI} sI sI sI sI sI}", "samples", (int64_t)r->n_samples, "tokens",
                        (int64_t)r->n_tokens, "learned_tokens", (int64_t)r->n_learned, "longest", (int64_t)r->longest,
                        "max_length", (int64_t)r->max_length, "left_out", "bad", (int64_t)r->bad.n, "too_long",
                        (int64_t)r->too_long.n, "unlearned", (int64_t)r->unlearned.n, "truncated",
                        (int64_t)r->truncated.n, "without_stop", (int64_t)r->stopless.n, "prompt_differs",
                        (int64_t)r->prompt_differs.n, "history_differs", (int64_t)r->history_differs.n, "answer_lost",
                        (int64_t)r->answer_lost.n);
}

bool setup_print_json(const setup *s, const options *o) {
    const ht_trainer_plan *p = &s->plan;
    return json_output(ht_json_pack(
        "{so so so sI sI sI sI sI sb sI}", "model", ht_json_string(o->model), "data", describe_data(p->data), "valid",
        describe_data(p->valid), "iters", (int64_t)p->iters, "iters_per_epoch", (int64_t)p->iters_per_epoch,
        "parameters", (int64_t)p->n_parameters, "model_parameters", (int64_t)p->model_parameters, "projections",
        (int64_t)p->n_projections, "checkpointing", p->checkpointing, "peak_memory_bytes", (int64_t)p->peak_bytes));
}

/* ---- as text ---- */

ht_status setup_print(const setup *s, const options *o, ht_error *err) {
    const ht_trainer_plan *p = &s->plan;
    char memory[24];
    print_data("data", p->data);
    if (p->valid) print_data("valid", p->valid);
    print_lengths(p->data);
    ht_status st = print_sample(s, err);
    if (st) return st;
    output_field("trained", "%lld parameter%s of %d projection%s, %.2f %% of the model's %lld",
                 (long long)p->n_parameters, plural(p->n_parameters), p->n_projections, plural(p->n_projections),
                 100 * (double)p->n_parameters / (double)p->model_parameters, (long long)p->model_parameters);
    output_field("steps", "%lld, of %lld an epoch", (long long)p->iters, (long long)p->iters_per_epoch);
    output_field("memory", "%s at its peak%s", bytes_text((double)p->peak_bytes, memory),
                 p->checkpointing ? ", with checkpointing" : "");
    char note[DEVICE_NOTE];
    if (*device_note(s->engine.device, note)) output_field("device", "%s", ht_device_instruction_set(s->engine.device));
    output_field("time", "%s", o->dry_run ? "told by the first steps" : "after three steps, in every line");
    output_write("\n", 1);
    output_flush();
    return HT_OK;
}
