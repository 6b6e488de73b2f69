/* Parts of `hearth finetune`: its reports, and its adapter and checkpoint files. */
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
    point *at; /* [n], fixed capacity; NULL: none yet */
    int n;
} curve;

typedef struct reporter {
    const options *o;
    FILE *log;           /* NULL: none */
    curve loss, valid;   /* for --plot */
    int64_t iters;       /* total steps */
    double begin;        /* time of the first step */
    int64_t first_iter;  /* last step before this run */
    double window_begin; /* start of the current report interval */
    double window_loss;  /* sum over learned tokens */
    int64_t window_tok, window_learned;
    ht_retrieval retrieval; /* of the last evaluation of --method embed */
} reporter;

/* `done`: steps completed before a resume. Removes lines of --log about later steps, which an interrupted run left. */
ht_status reporter_open(reporter *r, const options *o, int64_t iters, int64_t done, ht_error *err);
void reporter_close(reporter *r);
/* Excludes time spent outside training steps from the report interval. */
void reporter_pause(reporter *r, double seconds);
void reporter_step(reporter *r, const ht_train_step *step);
/* Prints a report line and appends it to --log; `valid` is NaN without an evaluation. */
ht_status reporter_line(reporter *r, const ht_train_step *step, double valid, ht_error *err);
/* Draws both curves to --plot. */
ht_status reporter_plot(const reporter *r, ht_error *err);
/* Both curves as a JSON object; NULL when memory ran out. */
ht_json *reporter_curves(const reporter *r);
/* Replaces the curves by those in such an object, ignoring invalid ones. False when memory ran out. */
bool reporter_set_curves(reporter *r, const ht_json *curves);

/* "accuracy@1 0.9250  MRR@10 0.9531  nDCG@10 0.9644"; returns `out`. */
char *retrieval_text(const ht_retrieval *found, char out[80]);
/* As an object. */
ht_json *retrieval_json(const ht_retrieval *found);

/* "3:10", "1:02:45"; returns `out`. */
const char *time_text(double seconds, char out[24]);

/* ---- finetune_files.c: OUT (--out) and OUT.training ---- */

typedef struct keeper {
    const options *o;
    const ht_model *model;
    char valid[64];         /* identifies the held-out samples of best_valid; "": none */
    char *folder;           /* OUT.training */
    int lock;               /* the folder's descriptor, locked; -1: not open */
    int64_t saved_iter;     /* step of the last checkpoint; -1: there is none */
    int64_t evaluated_iter; /* step of the last evaluation; -1: there was none */
    int64_t best_iter;      /* step of the adapter in OUT; -1: there is none */
    double best_valid;      /* its loss on held-out samples; NaN: not measured */
    int64_t since_best;     /* evaluations since then */
    double first_valid;     /* loss before the first step; NaN: not measured */
} keeper;

/* Checks that OUT and the folder are writable, and hold a run if and only if --resume is given; writes nothing.
 * Call keeper_close also after a failure. */
ht_status keeper_check(keeper *k, const options *o, ht_error *err);
/* Creates and locks the folder, and removes partial files of a killed run. */
ht_status keeper_open(keeper *k, const ht_model *m, const ht_data_report *valid, ht_error *err);
void keeper_close(keeper *k);
/* Resumes from the folder's last checkpoint; *curves are its curves, owned by the caller, or NULL. */
ht_status keeper_resume(keeper *k, ht_trainer *t, ht_json **curves, ht_error *err);
/* Writes the trainer's adapter to OUT. */
ht_status keeper_put_adapter(keeper *k, const ht_trainer *t, ht_error *err);
/* Writes a checkpoint with the run's state and curves, then the last adapter, and removes checkpoints beyond --keep. */
ht_status keeper_save(keeper *k, const ht_trainer *t, int64_t iter, const reporter *r, ht_error *err);

#endif
