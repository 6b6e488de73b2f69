/* hearth finetune: trains a LoRA adapter, step by step. */
#include "finetune.h"

#include "command.h"
#include "json.h"
#include "terminal.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { SAMPLE_TOKENS = 64 };

typedef struct training {
    const options *o;
    setup s;
    keeper k;
    reporter r;
    ht_train_step step; /* the last one */
    double valid;       /* the last held-out loss; NaN: not measured */
} training;

/* ---- --sample ---- */

static bool show_text(const char *text, size_t n, void *user) {
    (void)user;
    return output_text(text, n);
}

static bool show_piece(const ht_answer_piece *piece, void *user) {
    if (piece->part == HT_ANSWER_CALL) return show_text(piece->call->name, strlen(piece->call->name), user);
    return show_text(piece->text, piece->n, user);
}

static ht_status answer(ht_session *session, const ht_model *m, const char *prompt, ht_error *err) {
    ht_sampler_options greedy; /* so that samples of different steps differ by the training alone */
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
    if (!st) st = ht_generate_chat(session, chat, &how, show_piece, NULL, NULL, err);
    ht_chat_free(chat);
    return st;
}

/* Answers every --sample with the adapter as it is. */
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

/* Measures the held-out loss; the best adapter so far goes to --out. */
static ht_status evaluate(training *run, bool first, ht_error *err) {
    keeper *k = &run->k;
    const double began = now_seconds();
    ht_status st = show_samples(run, err);
    if (!st && run->s.plan.valid) st = ht_trainer_evaluate(run->s.trainer, &run->valid, err);
    if (st) return st;
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

/* What follows a step: an evaluation, a line, a checkpoint. */
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
    /* A run that diverges keeps the checkpoint before it. */
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

/* ---- what ends a run before its end ---- */

/* Ctrl-C: what there is stays, and can be gone on with. */
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
    snprintf(err->message, sizeof err->message,
             "interrupted and saved after %lld of %lld step%s; the same command with --resume continues",
             (long long)run->step.iter, (long long)run->s.plan.iters, plural(run->s.plan.iters));
    return HT_ERR_CANCELLED;
}

/* A failure of files or memory, which may be mended: the steps since the last checkpoint are not lost with it. Training that
 * has diverged keeps the last good one. */
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

/* A word of a shell's command line, in quotes where it needs some. */
static void print_word(const char *word) {
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-+=./:,@%";
    const bool bare = *word && strspn(word, plain) == strlen(word);
    if (!bare) output_write("'", 1);
    for (; *word; word++)
        if (*word == '\'')
            output_write("'\\''", 4);
        else
            output_write(word, 1);
    if (!bare) output_write("'", 1);
}

static void print_command(const options *o) {
    static const char run[] = "hearth run ", with[] = " --adapter ", prompt[] = " \"...\"\n";
    output_write(run, sizeof run - 1);
    print_word(o->model);
    output_write(with, sizeof with - 1);
    print_word(o->out);
    output_write(prompt, sizeof prompt - 1);
}

static bool print_end(const training *run) {
    const keeper *k = &run->k;
    char took[24], before[40] = "";
    const double seconds = now_seconds() - run->r.begin;
    if (run->o->json)
        return json_output(ht_json_pack("{so so sI sI so so sI sI sf sI}", "model", ht_json_string(run->o->model),
                                        "adapter", ht_json_string(run->o->out), "iters", (int64_t)run->step.iter,
                                        "best_iter", (int64_t)(run->s.plan.valid ? k->best_iter : run->step.iter),
                                        "valid_loss_before", number_or_null(k->first_valid), "valid_loss",
                                        number_or_null(k->best_valid), "parameters", (int64_t)run->s.plan.n_parameters,
                                        "skipped", (int64_t)run->step.total_skipped, "seconds", seconds,
                                        "peak_memory_bytes", (int64_t)peak_memory_bytes()));
    output_write("\n", 1);
    output_line("%lld step%s in %s%s", (long long)(run->step.iter - run->r.first_iter),
                plural((run->step.iter - run->r.first_iter)), time_text(seconds, took),
                patient(run) ? "" : ", ended early: --patience evaluations were not the best");
    if (isfinite(k->first_valid)) snprintf(before, sizeof before, " %.4f before,", k->first_valid);
    if (run->s.plan.valid)
        output_line("held-out loss%s %.4f after step %lld, which is kept", before, k->best_valid,
                    (long long)k->best_iter);
    print_command(run->o);
    return true;
}

/* Goes on from the last checkpoint; an evaluation that was interrupted there is made first. */
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
    if (!st && curves && !reporter_set_curves(&run->r, curves)) {
        snprintf(err->message, sizeof err->message, "out of memory for the curves of the run");
        st = err->status = HT_ERR_MEMORY;
    }
    ht_json_decref(curves);
    const bool evaluated = run->k.evaluated_iter == run->step.iter || !run->s.plan.valid;
    if (st || evaluated || !run->step.iter || !due(run->step.iter, run->o->tune.valid_every, iters)) return st;
    st = evaluate(run, false, err);
    return st ? st : reporter_line(&run->r, &run->step, run->valid, err);
}

static ht_status begin(training *run, ht_error *err) {
    const options *o = run->o;
    ht_status st = keeper_open(&run->k, run->s.engine.model, run->s.plan.valid, err);
    if (!st && o->tune.resume)
        st = resume(run, err);
    else if (!st) {
        st = reporter_open(&run->r, o, run->s.plan.iters, 0, err);
        if (!st) st = evaluate(run, true, err);
        if (!st && isfinite(run->valid) && !o->json)
            output_line("held-out loss %.4f before the first step", run->valid);
    }
    output_flush();
    run->r.begin = run->r.window_begin = now_seconds();
    return st;
}

static ht_status finetune(training *run, ht_error *err) {
    const options *o = run->o;
    ht_status st = finetune_check_files(o, err);
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
    char sentence[96];
    const char *wrong = finetune_mistake(o, sentence);
    if (wrong) {
        fprintf(stderr, "hearth finetune: %s (see hearth finetune --help)\n", wrong);
        return EXIT_USAGE;
    }
    ht_error err = {0};
    training run = {.o = o, .k = {.lock = -1}, .valid = (double)NAN};
    int status = EXIT_OK;
    if (finetune(&run, &err))
        status = report(&err);
    else if (o->dry_run ? o->json && !setup_print_json(&run.s, o) : !print_end(&run))
        status = EXIT_FAILED;
    reporter_close(&run.r);
    keeper_close(&run.k);
    setup_close(&run.s);
    return output_finish(status);
}
