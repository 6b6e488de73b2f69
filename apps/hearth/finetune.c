/* hearth finetune: trains a LoRA adapter, step by step. */
#include "finetune.h"

#include "base/directory_writer.h"
#include "command.h"
#include "engine.h"
#include "fail.h"
#include "json.h"
#include "terminal.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { SAMPLE_SHOWN = 2000, SAMPLE_TOKENS = 64, BAR = 30 };

/* ---- setup ---- */

typedef struct setup {
    engine engine;
    ht_adapter *init; /* of --init-adapter; NULL: none */
    ht_trainer *trainer;
    ht_trainer_plan plan;
} setup;

/* Parses --layers: "all" gives 0; false for anything but that or a positive number. */
static bool setup_layers(const char *text, int64_t *out) {
    char *end;
    *out = 0;
    if (!text || !strcmp(text, "all")) return true;
    *out = strtoll(text, &end, 10);
    return *out > 0 && !*end;
}

static ht_status open_trainer(setup *s, const options *o, ht_error *err) {
    const tune_options *t = &o->tune;
    ht_lora_options lora = t->lora;
    ht_trainer_options how = t->how;
    progress reading;
    if (options_dtype(o)) lora.dtype = options_dtype(o);
    lora.base = o->model;
    lora.init = s->init;
    (void)setup_layers(t->layers, &lora.layers); /* check_options has checked it */
    how.lora = &lora;
    how.optimizer = &t->rule;
    how.batch = (int32_t)t->batch;
    how.accumulate = (int32_t)t->accumulate;
    how.pack = !t->no_pack;
    how.seed = o->seed;
    how.cancel = interrupt_flag();
    how.progress = progress_show;
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

/* Loads the model and the data, on the CPU if a default GPU fails. Call setup_close also after a failure. */
static ht_status setup_open(setup *s, const options *o, ht_error *err) {
    *s = (setup){0};
    const ht_status st = open_all(s, o, err);
    if (!st || !s->engine.by_default) return st;
    ht_adapter_free(s->init);
    s->init = NULL;
    return engine_turn_to_cpu(&s->engine, st, err) ? open_all(s, o, err) : st;
}

static void setup_close(setup *s) {
    ht_trainer_free(s->trainer);
    ht_adapter_free(s->init);
    engine_close(&s->engine);
}

/* ---- sample and plan ---- */

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
    output_field(name, "%lld sample%s of %s; %lld token%s, %lld of them %s", (long long)r->n_samples,
                 plural(r->n_samples), forms, (long long)r->n_tokens, plural(r->n_tokens), (long long)r->n_learned,
                 r->n_form[HT_SAMPLE_PAIR] ? "in positives" : "learned");
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

/* Marks the trained-on part of a sample: coloured on a terminal, else in [[ ]]. */
typedef struct shown {
    size_t left;
    bool colours;
} shown;

static bool show_piece(const char *text, size_t n, bool learned, void *user) {
    shown *s = user;
    size_t some = n < s->left ? n : s->left;
    s->left -= some;
    while (some < n && some && ((unsigned char)text[some] & 0xC0) == 0x80) some--; /* never split a UTF-8 character */
    const char *begin = s->colours ? "\033[32m" : "[[", *end = s->colours ? "\033[0m" : "]]";
    if (learned) output_write(begin, strlen(begin));
    output_text(text, some);
    if (learned) output_write(end, strlen(end));
    return s->left > 0;
}

static ht_status print_sample(const setup *s, const options *o, ht_error *err) {
    const char *no = getenv("NO_COLOR");
    shown state = {SAMPLE_SHOWN, output_is_terminal() && (!no || !*no)};
    output_write("\n", 1);
    output_line("One sample, with %s %s:", o->tune.how.method == HT_METHOD_EMBED ? "its positive" : "what is learned",
                state.colours ? "in green" : "between [[ and ]]");
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

/* Prints the training plan as one JSON object. */
static void setup_print_json(const setup *s, const options *o) {
    const ht_trainer_plan *p = &s->plan;
    json_output(ht_json_pack("{so so so sI sI sI sI sI sb sI}", "model", ht_json_string(o->model), "data",
                             describe_data(p->data), "valid", describe_data(p->valid), "iters", (int64_t)p->iters,
                             "iters_per_epoch", (int64_t)p->iters_per_epoch, "parameters", (int64_t)p->n_parameters,
                             "model_parameters", (int64_t)p->model_parameters, "projections", (int64_t)p->n_projections,
                             "checkpointing", p->checkpointing, "peak_memory_bytes", (int64_t)p->peak_bytes));
}

/* ---- as text ---- */

/* Prints the detected data format, one sample, a histogram of lengths and the training plan. */
static ht_status setup_print(const setup *s, const options *o, ht_error *err) {
    const ht_trainer_plan *p = &s->plan;
    char memory[24];
    print_data("data", p->data);
    if (p->valid) print_data("valid", p->valid);
    print_lengths(p->data);
    ht_status st = print_sample(s, o, err);
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

/* ---- the run ---- */

typedef struct training {
    const options *o;
    setup s;
    keeper k;
    reporter r;
    ht_train_step step; /* the last one */
    double valid;       /* the last held-out loss; NaN: not measured */
} training;

/* ---- checks before loading ---- */

static int check_options(const options *o) {
    static const char *const brought[] = {"rank", "alpha", "scale", "rslora", "targets", "layers", NULL};
    const tune_options *t = &o->tune;
    int64_t layers;
    if (!t->how.data) return usage_error(o, "--data FILE.jsonl is needed");
    if (!o->out && !o->dry_run) return usage_error(o, "--out DIR is needed, where the adapter goes");
    if (t->patience && !t->how.valid) return usage_error(o, "--patience needs --valid");
    if (options_given(o, "scale") && t->lora.scale == 0)
        return usage_error(o, "--scale is 0: the adapter would change nothing");
    static const char *const of_sft[] = {"mask", "pack", "sample", NULL};
    for (int i = 0; t->how.method == HT_METHOD_EMBED && of_sft[i]; i++)
        if (options_given(o, of_sft[i])) return usage_error(o, "--%s is for --method sft", of_sft[i]);
    if (t->how.method != HT_METHOD_EMBED && options_given(o, "temperature"))
        return usage_error(o, "--temperature is for --method embed");
    if (t->lora.alpha == 0) return usage_error(o, "--alpha is 0: the adapter would change nothing");
    if (!setup_layers(t->layers, &layers)) return usage_error(o, "--layers must be `all` or a number of layers");
    for (int i = 0; t->init_adapter && brought[i]; i++)
        if (options_given(o, brought[i]))
            return usage_error(o, "--init-adapter brings its rank, scale and targets: leave out --%s", brought[i]);
    return EXIT_OK;
}

static ht_status check_input(const char *path, ht_error *err) {
    if (!path || access(path, R_OK) == 0) return HT_OK;
    return fail_system(err, path, "read");
}

/* Checks that fopen could write to the path, without creating it. */
static ht_status check_output(const char *path, ht_error *err) {
    struct stat st;
    if (stat(path, &st) == 0) {
        errno = EISDIR;
        return !S_ISDIR(st.st_mode) && access(path, W_OK) == 0 ? HT_OK : fail_system(err, path, "written");
    }
    if (errno != ENOENT) return fail_system(err, path, "written");
    char *parent = ht_directory_above(path);
    const ht_status status = parent && access(parent, W_OK | X_OK) == 0 ? HT_OK : fail_system(err, path, "written");
    free(parent);
    return status;
}

static bool same_file(const char *a, const char *b) {
    struct stat x, y;
    if (!a || !b) return false;
    if (!strcmp(a, b)) return true;
    return stat(a, &x) == 0 && stat(b, &y) == 0 && S_ISREG(x.st_mode) && x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

/* Checks that input files exist and that --log and --plot are writable, without writing. */
static ht_status check_files(const options *o, ht_error *err) {
    const tune_options *t = &o->tune;
    const struct {
        const char *option, *path;
    } input[] = {{"data", t->how.data}, {"valid", t->how.valid}, {"config", o->config}, {NULL, NULL}},
      output[] = {{"log", o->log}, {"plot", t->plot}};
    ht_status status = check_input(t->how.data, err);
    if (!status) status = check_input(t->how.valid, err);
    if (!status) status = check_input(t->init_adapter, err);
    for (int i = 0; i < 2 && !status; i++) {
        if (!output[i].path) continue;
        for (int k = 0; input[k].option; k++)
            if (same_file(output[i].path, input[k].path))
                return ht_fail(err, HT_ERR_ARGUMENT, "--%s %.400s would overwrite the file of --%s", output[i].option,
                               output[i].path, input[k].option);
        status = check_output(output[i].path, err);
    }
    if (!status && same_file(o->log, t->plot))
        status = ht_fail(err, HT_ERR_ARGUMENT, "--log and --plot name the same file, %.400s", o->log);
    return status;
}

/* ---- --sample ---- */

static bool show_text(const char *text, size_t n, void *user) {
    (void)user;
    return output_text(text, n);
}

static bool show_answer_piece(const ht_answer_piece *piece, void *user) {
    if (piece->part == HT_ANSWER_CALL) return show_text(piece->call->name, strlen(piece->call->name), user);
    return show_text(piece->text, piece->n, user);
}

static ht_status answer(ht_session *session, const ht_model *m, const char *prompt, ht_error *err) {
    ht_sampler_options greedy; /* samples of different steps then differ only through training */
    ht_sampler_options_init(&greedy, sizeof greedy);
    greedy.temperature = 0;
    ht_generate_options how;
    ht_generate_options_init(&how, sizeof how);
    how.sampler = &greedy;
    how.max_tokens = SAMPLE_TOKENS;
    how.cancel = interrupt_flag();
    if (!ht_chat_format_name(m)) return ht_generate_text(session, prompt, &how, show_text, NULL, NULL, err);
    ht_chat *chat;
    ht_status st = ht_chat_new(&chat, err);
    if (!st) st = ht_chat_add(chat, "user", prompt, err);
    if (!st) st = ht_generate_chat(session, chat, &how, show_answer_piece, NULL, NULL, err);
    ht_chat_free(chat);
    return st;
}

/* Generates an answer to each --sample with the current adapter. */
static ht_status show_samples(const training *run, ht_error *err) {
    const string_list *prompts = &run->o->tune.samples;
    if (!prompts->n || run->o->json) return HT_OK;
    ht_model *m = run->s.engine.model;
    ht_adapter *adapter = NULL;
    ht_session *session = NULL;
    ht_status st = ht_trainer_adapter(run->s.trainer, &adapter, err);
    if (!st) st = ht_session_new(m, NULL, &session, err);
    if (!st) st = ht_session_set_adapters(session, &adapter, NULL, 1, err);
    for (int i = 0; !st && i < prompts->n; i++) {
        output_line("  > %s", prompts->items[i]);
        output_write("  ", 2);
        ht_session_reset(session);
        st = answer(session, m, prompts->items[i], err);
        output_write("\n", 1);
    }
    output_flush();
    ht_session_free(session);
    ht_adapter_free(adapter);
    return st;
}

/* ---- evaluation ---- */

/* Measures the held-out loss and writes the best adapter so far to --out. */
static ht_status evaluate(training *run, bool first, ht_error *err) {
    keeper *k = &run->k;
    const double began = now_seconds();
    ht_status st = show_samples(run, err);
    if (!st && run->s.plan.valid) st = ht_trainer_evaluate(run->s.trainer, &run->valid, err);
    if (st) return st;
    ht_trainer_retrieval(run->s.trainer, &run->r.retrieval);
    reporter_pause(&run->r, now_seconds() - began);
    if (first || !run->s.plan.valid) {
        k->first_valid = run->valid;
        return HT_OK;
    }
    if (isfinite(k->best_valid) && !(run->valid < k->best_valid)) {
        k->since_best++;
    } else {
        st = keeper_put_adapter(k, run->s.trainer, err);
        if (st) return st;
        k->best_valid = run->valid;
        k->best_iter = run->step.iter;
        k->since_best = 0;
    }
    k->evaluated_iter = run->step.iter;
    return HT_OK;
}

/* ---- steps ---- */

static bool due(int64_t iter, int64_t every, int64_t iters) { return iter % every == 0 || iter == iters; }

static bool patient(const training *run) {
    const int64_t patience = run->o->tune.patience;
    return !patience || run->k.since_best < patience;
}

static ht_status save(training *run, ht_error *err) {
    const double began = now_seconds();
    const ht_status st = keeper_save(&run->k, run->s.trainer, run->step.iter, &run->r, err);
    reporter_pause(&run->r, now_seconds() - began);
    return st;
}

/* Evaluates, reports and saves a checkpoint when they are due. */
static ht_status after_step(training *run, ht_error *err) {
    const tune_options *t = &run->o->tune;
    const int64_t iter = run->step.iter, iters = run->s.plan.iters;
    ht_status st = HT_OK;
    double valid = (double)NAN;
    reporter_step(&run->r, &run->step);
    if (due(iter, t->valid_every, iters)) {
        st = evaluate(run, false, err);
        valid = run->valid;
    }
    const bool told = !st && (due(iter, t->report_every, iters) || isfinite(valid) || iter == run->r.first_iter + 3);
    if (told) st = reporter_line(&run->r, &run->step, valid, err);
    /* A skipped step can mean divergence: keep the checkpoint before it. */
    if (!st && !run->step.skipped && due(iter, t->save_every, iters)) {
        st = save(run, err);
        if (!st) st = reporter_plot(&run->r, err);
    }
    return st;
}

static ht_status train(training *run, ht_error *err) {
    ht_status st = HT_OK;
    while (!st && run->step.iter < run->s.plan.iters && patient(run)) {
        ht_train_step step;
        st = ht_trainer_step(run->s.trainer, &step, err);
        if (!st) run->step = step;
        if (!st) st = after_step(run, err);
    }
    if (!st && run->step.iter > run->k.saved_iter) st = save(run, err);
    return st;
}

/* ---- interruption and failure ---- */

/* Ctrl-C: saves a checkpoint that --resume continues from. */
static ht_status interrupt(training *run, ht_error *err) {
    if (!run->step.iter) return HT_ERR_CANCELLED;
    ht_error why = {0};
    ht_status st = save(run, &why);
    if (!st && run->k.best_iter < 0) st = keeper_put_adapter(&run->k, run->s.trainer, &why);
    if (!st) st = reporter_plot(&run->r, &why);
    if (st) {
        *err = why;
        return st;
    }
    return ht_fail(err, HT_ERR_CANCELLED,
                   "interrupted and saved after %lld of %lld step%s; the same command with --resume continues",
                   (long long)run->step.iter, (long long)run->s.plan.iters, plural(run->s.plan.iters));
}

/* The user can fix I/O and memory failures and resume, so the steps since the last checkpoint are saved.
 * Diverged training keeps its last good checkpoint. */
static ht_status rescue(training *run, ht_status failure, ht_error *err) {
    ht_error why = {0};
    if (failure != HT_ERR_IO && failure != HT_ERR_MEMORY) return failure;
    if (run->step.iter <= run->k.saved_iter || run->step.iter <= run->s.plan.done || save(run, &why)) return failure;
    const size_t n = strlen(err->message);
    snprintf(err->message + n, sizeof err->message - n, "; %lld step%s saved, --resume continues",
             (long long)run->step.iter, plural(run->step.iter));
    return failure;
}

/* ---- the end ---- */

static ht_status finish(training *run, ht_error *err) {
    ht_status st = run->s.plan.valid ? HT_OK : keeper_put_adapter(&run->k, run->s.trainer, err);
    if (!st) st = reporter_plot(&run->r, err);
    return st;
}

/* Prints a shell word, quoted if necessary. */
static void print_word(const char *word) {
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-+=./:,@%";
    const bool bare = *word && strspn(word, plain) == strlen(word);
    if (!bare) putchar('\'');
    for (; *word; word++) printf(*word == '\'' ? "'\\''" : "%c", *word);
    if (!bare) putchar('\'');
}

static void print_command(const options *o) {
    printf("hearth %s ", o->tune.how.method == HT_METHOD_EMBED ? "embed" : "run");
    print_word(o->model);
    printf(" --adapter ");
    print_word(o->out);
    printf(" \"...\"\n");
}

static void print_end(const training *run) {
    const keeper *k = &run->k;
    char took[24], before[40] = "";
    const double seconds = now_seconds() - run->r.begin;
    if (run->o->json) {
        json_output(ht_json_pack("{so so sI sI so so sI sI sf sI}", "model", ht_json_string(run->o->model), "adapter",
                                 ht_json_string(run->o->out), "iters", (int64_t)run->step.iter, "best_iter",
                                 (int64_t)(run->s.plan.valid ? k->best_iter : run->step.iter), "valid_loss_before",
                                 json_number(k->first_valid), "valid_loss", json_number(k->best_valid), "parameters",
                                 (int64_t)run->s.plan.n_parameters, "skipped", (int64_t)run->step.total_skipped,
                                 "seconds", seconds, "peak_memory_bytes", (int64_t)peak_memory_bytes()));
        return;
    }
    output_write("\n", 1);
    output_line("%lld step%s in %s%s", (long long)(run->step.iter - run->r.first_iter),
                plural((run->step.iter - run->r.first_iter)), time_text(seconds, took),
                patient(run) ? "" : ", ended early: --patience evaluations were not the best");
    if (isfinite(k->first_valid)) snprintf(before, sizeof before, " %.4f before,", k->first_valid);
    if (run->s.plan.valid)
        output_line("held-out loss%s %.4f after step %lld, which is kept", before, k->best_valid,
                    (long long)k->best_iter);
    print_command(run->o);
}

/* Resumes from the last checkpoint and first repeats an evaluation that was interrupted there. */
static ht_status resume(training *run, ht_error *err) {
    const int64_t iters = run->s.plan.iters;
    ht_json *curves;
    ht_status st = keeper_resume(&run->k, run->s.trainer, &curves, err);
    if (!st) {
        ht_trainer_describe(run->s.trainer, &run->s.plan);
        run->step = (ht_train_step){.iter = run->s.plan.done,
                                    .learning_rate = (double)NAN,
                                    .grad_norm = (double)NAN,
                                    .total_skipped = run->s.plan.skipped};
        st = reporter_open(&run->r, run->o, iters, run->step.iter, err);
    }
    if (!st && curves && !reporter_set_curves(&run->r, curves)) st = fail_memory(err, "the curves of the run");
    ht_json_decref(curves);
    const bool evaluated = run->k.evaluated_iter == run->step.iter || !run->s.plan.valid;
    if (st || evaluated || !run->step.iter || !due(run->step.iter, run->o->tune.valid_every, iters)) return st;
    st = evaluate(run, false, err);
    return st ? st : reporter_line(&run->r, &run->step, run->valid, err);
}

static void print_first(const training *run) {
    const ht_retrieval *found = &run->r.retrieval;
    char text[80];
    output_line("held-out loss %.4f before the first step%s%s", run->valid, found->n_anchors ? "; " : "",
                found->n_anchors ? retrieval_text(found, text) : "");
}

static ht_status begin(training *run, ht_error *err) {
    const options *o = run->o;
    ht_status st = keeper_open(&run->k, run->s.engine.model, run->s.plan.valid, err);
    if (!st && o->tune.resume)
        st = resume(run, err);
    else if (!st) {
        st = reporter_open(&run->r, o, run->s.plan.iters, 0, err);
        if (!st) st = evaluate(run, true, err);
        if (!st && isfinite(run->valid) && !o->json) print_first(run);
    }
    output_flush();
    run->r.begin = run->r.window_begin = now_seconds();
    return st;
}

static ht_status finetune(training *run, ht_error *err) {
    const options *o = run->o;
    ht_status st = check_files(o, err);
    if (!st) st = keeper_check(&run->k, o, err);
    if (!st) st = setup_open(&run->s, o, err);
    if (!st && !o->json && (!o->quiet || o->dry_run)) st = setup_print(&run->s, o, err);
    if (st || o->dry_run) return st;
    st = begin(run, err);
    if (!st) st = train(run, err);
    if (!st) st = finish(run, err);
    return st == HT_ERR_CANCELLED ? interrupt(run, err) : st ? rescue(run, st, err) : st;
}

int finetune_command(const options *o) {
    ht_error err = {0};
    training run = {.o = o, .k = {.lock = -1}, .valid = (double)NAN};
    int status = check_options(o);
    if (status) return status;
    if (finetune(&run, &err))
        status = report(&err);
    else if (!o->dry_run)
        print_end(&run);
    else if (o->json)
        setup_print_json(&run.s, o);
    reporter_close(&run.r);
    keeper_close(&run.k);
    setup_close(&run.s);
    return output_finish(status);
}
