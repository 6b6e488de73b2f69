/* Parts of `hearth finetune`: the trainer's options, what it prints, and the files that it keeps. */
#ifndef HEARTH_APP_FINETUNE_H
#define HEARTH_APP_FINETUNE_H

#include "engine.h"
#include "options.h"

#include <hearth/train.h>

#include <stdio.h>

/* ---- finetune_setup.c: from options to a trainer ---- */

typedef struct setup {
    engine engine;
    ht_adapter *init; /* of --init-adapter; NULL: none */
    ht_trainer *trainer;
    ht_trainer_plan plan;
} setup;

/* Loads the model and the data. The setup is to be closed after a failure, too. */
ht_status setup_open(setup *s, const options *o, ht_error *err);
void setup_close(setup *s);
/* Prints the data as recognised, one sample, a histogram of lengths, and what will be trained. */
ht_status setup_print(const setup *s, const options *o, ht_error *err);

/* ---- finetune_files.c: --out, and --out with .training behind it ---- */

typedef struct keeper {
    const options *o;
    const ht_model *model;
    char *folder;       /* OUT.training */
    int64_t best_iter;  /* step of the adapter in OUT; -1: there is none */
    double best_valid;  /* its loss on held-out samples; NaN: not measured */
    int64_t since_best; /* evaluations since then */
    double first_valid; /* loss before the first step; NaN: not measured */
} keeper;

/* Checks OUT and makes the folder. A run that is there already is refused unless --resume is given. */
ht_status keeper_open(keeper *k, const options *o, const ht_model *m, ht_error *err);
void keeper_close(keeper *k);
/* Goes on from the last checkpoint in the folder. */
ht_status keeper_resume(keeper *k, ht_trainer *t, ht_error *err);
/* Writes the trainer's adapter to OUT. */
ht_status keeper_put_adapter(keeper *k, const ht_trainer *t, ht_error *err);
/* Writes a checkpoint and the last adapter, and removes checkpoints beyond --keep. */
ht_status keeper_save(keeper *k, const ht_trainer *t, int64_t iter, ht_error *err);

/* ---- finetune_report.c: lines, --log and --plot ---- */

typedef struct point {
    int64_t iter;
    double value;
} point;

typedef struct curve {
    point *at;
    int64_t n, capacity;
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

ht_status reporter_open(reporter *r, const options *o, int64_t iters, int64_t done, ht_error *err);
void reporter_close(reporter *r);
void reporter_step(reporter *r, const ht_train_step *step);
/* Prints a line and logs it; `valid` is NaN where there was no evaluation. */
ht_status reporter_line(reporter *r, const ht_train_step *step, double valid, ht_error *err);
/* Draws both curves to --plot. */
ht_status reporter_plot(const reporter *r, ht_error *err);

/* "1.2 GB", "350 MB"; returns `out`. */
const char *bytes_text(double bytes, char out[24]);
/* "3:10", "1:02:45"; returns `out`. */
const char *time_text(double seconds, char out[24]);

#endif
