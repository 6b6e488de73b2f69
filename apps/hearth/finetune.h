/* Parts of `hearth finetune`: what it reports, and the files that it keeps. */
#ifndef HEARTH_APP_FINETUNE_H
#define HEARTH_APP_FINETUNE_H

#include "engine.h"
#include "options.h"

#include <hearth/train.h>

#include <stdio.h>

/* ---- finetune_report.c: lines, --log and --plot ---- */

typedef struct point {
    int64_t iter;
    double value;
} point;

typedef struct curve {
    point *at; /* [n] of them, in memory for a fixed number; NULL: none yet */
    int n;
} curve;

typedef struct reporter {
    const options *o;
    FILE *log;           /* NULL: none */
    curve loss, valid;   /* for --plot */
    int64_t iters;       /* in all */
    double begin;        /* when the steps began */
    int64_t first_iter;  /* step before the first one of this run */
    double window_begin; /* of the lines' figures, since the last line */
    double window_loss;  /* sum over learned tokens */
    int64_t window_tok, window_learned;
} reporter;

/* `done`: steps of the run that is gone on with. Lines of --log about later ones, which an interrupted run left, go. */
ht_status reporter_open(reporter *r, const options *o, int64_t iters, int64_t done, ht_error *err);
void reporter_close(reporter *r);
/* Time that is no step's, within the window at hand. */
void reporter_pause(reporter *r, double seconds);
void reporter_step(reporter *r, const ht_train_step *step);
/* Prints a line and logs it; `valid` is NaN where there was no evaluation. */
ht_status reporter_line(reporter *r, const ht_train_step *step, double valid, ht_error *err);
/* Draws both curves to --plot. */
ht_status reporter_plot(const reporter *r, ht_error *err);
/* Both curves as a JSON object; NULL when memory ran out. */
ht_json *reporter_curves(const reporter *r);
/* The curves of such an object in place of those there are, as far as they are some. False when memory ran out. */
bool reporter_set_curves(reporter *r, const ht_json *curves);

/* "3:10", "1:02:45"; returns `out`. */
const char *time_text(double seconds, char out[24]);

/* ---- finetune_files.c: --out, and --out with .training behind it ---- */

typedef struct keeper {
    const options *o;
    const ht_model *model;
    char valid[64];         /* names the held-out samples that best_valid was measured on; "": there are none */
    char *folder;           /* OUT.training */
    int lock;               /* the folder's descriptor, locked; -1: not open */
    int64_t saved_iter;     /* step of the last checkpoint; -1: there is none */
    int64_t evaluated_iter; /* step of the last evaluation; -1: there was none */
    int64_t best_iter;      /* step of the adapter in OUT; -1: there is none */
    double best_valid;      /* its loss on held-out samples; NaN: not measured */
    int64_t since_best;     /* evaluations since then */
    double first_valid;     /* loss before the first step; NaN: not measured */
} keeper;

/* Whether OUT and the folder can be written, and hold a run if and only if --resume is given; writes nothing. The keeper is to
 * be closed after a failure, too. */
ht_status keeper_check(keeper *k, const options *o, ht_error *err);
/* Makes the folder, locks it, and removes what a killed run left in it half-written. */
ht_status keeper_open(keeper *k, const ht_model *m, const ht_data_report *valid, ht_error *err);
void keeper_close(keeper *k);
/* Goes on from the last checkpoint in the folder; *curves are those kept with it, which the caller owns, or NULL. */
ht_status keeper_resume(keeper *k, ht_trainer *t, ht_json **curves, ht_error *err);
/* Writes the trainer's adapter to OUT. */
ht_status keeper_put_adapter(keeper *k, const ht_trainer *t, ht_error *err);
/* Writes a checkpoint with what is known of the run and its curves, then the last adapter, and removes checkpoints beyond
 * --keep. */
ht_status keeper_save(keeper *k, const ht_trainer *t, int64_t iter, const reporter *r, ht_error *err);

#endif
