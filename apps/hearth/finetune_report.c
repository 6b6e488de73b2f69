/* hearth finetune: report lines, a JSON Lines log, and a plot of both losses. */
#include "fail.h"
#include "finetune.h"
#include "json.h"
#include "terminal.h"
#include "written.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

const char *time_text(double seconds, char out[24]) {
    const long long s = seconds > 0 ? (long long)(seconds + 0.5) : 0;
    if (s >= 3600)
        snprintf(out, 24, "%lld:%02lld:%02lld", s / 3600, s / 60 % 60, s % 60);
    else
        snprintf(out, 24, "%lld:%02lld", s / 60, s % 60);
    return out;
}

/* ---- curves ---- */

enum { MOST_POINTS = 4096 }; /* more than the plot has columns */

/* A full curve drops every second point. False when memory ran out. */
static bool add_point(curve *c, int64_t iter, double value) {
    if (!c->at && !(c->at = malloc(MOST_POINTS * sizeof *c->at))) return false;
    if (c->n == MOST_POINTS) {
        c->n /= 2;
        for (int i = 0; i < c->n; i++) c->at[i] = c->at[2 * i + 1];
    }
    c->at[c->n++] = (point){iter, value};
    return true;
}

/* ---- reports ---- */

/* Truncates the log before the first line about a later step than `done`, or before an incomplete line. */
static ht_status cut_log(const char *path, int64_t done, ht_error *err) {
    struct stat there;
    if (stat(path, &there) == 0 && !S_ISREG(there.st_mode)) return HT_OK; /* /dev/null, or a pipe */
    FILE *f = fopen(path, "r+");
    if (!f) return errno == ENOENT ? HT_OK : fail_system(err, path, "read");
    char *text = NULL;
    size_t size = 0;
    off_t keep = 0;
    for (ssize_t n; (n = getline(&text, &size, f)) > 0; keep += n) {
        ht_json *line = ht_json_of(text, (size_t)n);
        const bool later = ht_json_integer_value(ht_json_object_get(line, "iter")) > done;
        ht_json_decref(line);
        if (later || text[n - 1] != '\n') break;
    }
    free(text);
    const bool good = !ferror(f) && ftruncate(fileno(f), keep) == 0;
    const ht_status st = good ? HT_OK : fail_system(err, path, "written");
    fclose(f);
    return st;
}

ht_status reporter_open(reporter *r, const options *o, int64_t iters, int64_t done, ht_error *err) {
    const double now = now_seconds();
    *r = (reporter){.o = o, .iters = iters, .begin = now, .window_begin = now, .first_iter = done};
    if (!o->log) return HT_OK;
    ht_status st = o->tune.resume ? cut_log(o->log, done, err) : HT_OK;
    if (st) return st;
    r->log = fopen(o->log, o->tune.resume ? "a" : "w");
    return r->log ? HT_OK : fail_system(err, o->log, "written");
}

void reporter_close(reporter *r) {
    if (r->log) fclose(r->log);
    free(r->loss.at);
    free(r->valid.at);
}

void reporter_step(reporter *r, const ht_train_step *step) {
    if (!step->skipped) {
        r->window_loss += step->loss * (double)step->n_learned;
        r->window_learned += step->n_learned;
    }
    r->window_tok += step->n_tok;
}

void reporter_pause(reporter *r, double seconds) { r->window_begin += seconds; }

/* Measures of retrieval, for an evaluation of --method embed. */
static bool has_retrieval(const reporter *r, double valid) { return isfinite(valid) && r->retrieval.n_anchors; }

char *retrieval_text(const ht_retrieval *found, char out[80]) {
    (void)snprintf(out, 80, "accuracy@1 %.4f  MRR@10 %.4f  nDCG@10 %.4f", found->accuracy_at_1, found->mrr_at_10,
                   found->ndcg_at_10);
    return out;
}

ht_json *retrieval_json(const ht_retrieval *found) {
    return ht_json_pack("{sf sf sf sI sI}", "accuracy_at_1", found->accuracy_at_1, "mrr_at_10", found->mrr_at_10,
                        "ndcg_at_10", found->ndcg_at_10, "anchors", (int64_t)found->n_anchors, "candidates",
                        (int64_t)found->n_candidates);
}

static ht_status log_line(reporter *r, const ht_train_step *step, double loss, double valid, double speed,
                          ht_error *err) {
    ht_json *line =
        ht_json_pack("{sI so so so sI sf so sI sI}", "iter", (int64_t)step->iter, "loss", json_number(loss),
                     "valid_loss", json_number(valid), "lr", json_number(step->learning_rate), "tokens",
                     (int64_t)r->window_tok, "tokens_per_second", speed, "grad_norm", json_number(step->grad_norm),
                     "peak_memory_bytes", (int64_t)peak_memory_bytes(), "skipped", (int64_t)step->total_skipped);
    bool good = line != NULL;
    if (good && has_retrieval(r, valid))
        good = ht_json_object_set_new(line, "retrieval", retrieval_json(&r->retrieval)) == 0;
    good = good && ht_json_dumpf(line, r->log, HT_JSON_REAL_PRECISION(10)) == 0 && fputc('\n', r->log) != EOF &&
           fflush(r->log) == 0;
    ht_json_decref(line);
    return good ? HT_OK : fail_system(err, r->o->log, "written");
}

ht_status reporter_line(reporter *r, const ht_train_step *step, double valid, ht_error *err) {
    const double now = now_seconds(), took = now - r->window_begin;
    const double loss = r->window_learned ? r->window_loss / (double)r->window_learned : (double)NAN;
    const double speed = took > 0 ? (double)r->window_tok / took : 0;
    const int64_t done = step->iter - r->first_iter;
    const double left = done ? (now - r->begin) / (double)done * (double)(r->iters - step->iter) : 0;
    char text[128] = "", found[80] = "", memory[24], eta[24], skipped[40] = "";
    if (has_retrieval(r, valid)) (void)retrieval_text(&r->retrieval, found);
    if (isfinite(valid)) snprintf(text, sizeof text, "  valid %.4f%s%s", valid, *found ? "  " : "", found);
    if (step->total_skipped) snprintf(skipped, sizeof skipped, "  skipped %lld", (long long)step->total_skipped);
    if (!r->o->json && !r->window_tok) {
        output_line("iter %lld/%lld%s", (long long)step->iter, (long long)r->iters, text);
        output_flush();
    } else if (!r->o->json) {
        output_line("iter %lld/%lld  loss %.4f%s  lr %.3g  %.0f tok/s  peak %s  eta %s%s", (long long)step->iter,
                    (long long)r->iters, loss, text, step->learning_rate, speed,
                    bytes_text((double)peak_memory_bytes(), memory), time_text(left, eta), skipped);
        output_flush();
    }
    ht_status st = r->log ? log_line(r, step, loss, valid, speed, err) : HT_OK;
    bool whole = !r->window_learned || add_point(&r->loss, step->iter, loss);
    if (isfinite(valid)) whole = whole && add_point(&r->valid, step->iter, valid);
    if (!st && !whole) st = fail_memory(err, "the reports");
    r->window_begin = now_seconds();
    r->window_loss = 0;
    r->window_tok = r->window_learned = 0;
    return st;
}

/* ---- curves as JSON: lists of [step, loss] ---- */

static ht_json *points(const curve *c) {
    ht_json *list = ht_json_new_array();
    for (int i = 0; list && i < c->n; i++)
        list = json_appended(list, ht_json_pack("[If]", (int64_t)c->at[i].iter, c->at[i].value));
    return list;
}

ht_json *reporter_curves(const reporter *r) {
    return ht_json_pack("{so so}", "loss", points(&r->loss), "valid_loss", points(&r->valid));
}

static bool set_points(curve *c, const ht_json *list) {
    size_t i;
    ht_json *pair;
    c->n = 0;
    ht_json_array_foreach(list, i, pair) {
        const ht_json *iter = ht_json_array_get(pair, 0), *value = ht_json_array_get(pair, 1);
        if (ht_json_is_integer(iter) && ht_json_is_number(value) &&
            !add_point(c, ht_json_integer_value(iter), ht_json_number_value(value)))
            return false;
    }
    return true;
}

bool reporter_set_curves(reporter *r, const ht_json *curves) {
    return set_points(&r->loss, ht_json_object_get(curves, "loss")) &&
           set_points(&r->valid, ht_json_object_get(curves, "valid_loss"));
}

/* ---- plot ---- */

enum { WIDTH = 720, HEIGHT = 400, LEFT = 60, RIGHT = 20, TOP = 30, BOTTOM = 40, TICKS = 5 };

typedef struct range {
    double low, high;
    int64_t last;
} range;

static void widen(range *r, const curve *c) {
    for (int i = 0; i < c->n; i++) {
        r->low = fmin(r->low, c->at[i].value);
        r->high = fmax(r->high, c->at[i].value);
        if (c->at[i].iter > r->last) r->last = c->at[i].iter;
    }
}

static double x_of(const range *r, double iter) {
    return (double)LEFT + (double)(WIDTH - LEFT - RIGHT) * iter / (double)(r->last > 0 ? r->last : 1);
}
static double y_of(const range *r, double value) {
    return (double)TOP + (double)(HEIGHT - TOP - BOTTOM) * (r->high - value) / (r->high - r->low);
}

static void draw_curve(FILE *f, const range *r, const curve *c, const char *colour, const char *name, int row) {
    if (!c->n) return;
    fprintf(f, "<polyline fill=\"none\" stroke=\"%s\" stroke-width=\"2\" points=\"", colour);
    for (int i = 0; i < c->n; i++)
        fprintf(f, "%s%.1f,%.1f", i ? " " : "", x_of(r, (double)c->at[i].iter), y_of(r, c->at[i].value));
    fprintf(f, "\"/>\n<text x=\"%d\" y=\"%d\" fill=\"%s\" text-anchor=\"end\">%s</text>\n", WIDTH - RIGHT,
            TOP + 16 * row, colour, name);
}

static void draw_axes(FILE *f, const range *r) {
    for (int i = 0; i <= TICKS; i++) {
        const double value = r->low + (r->high - r->low) * i / (double)TICKS,
                     iter = (double)r->last * i / (double)TICKS;
        fprintf(f,
                "<line x1=\"%d\" x2=\"%d\" y1=\"%.1f\" y2=\"%.1f\" stroke=\"#ddd\"/>\n"
                "<text x=\"%d\" y=\"%.1f\" text-anchor=\"end\">%.3g</text>\n"
                "<text x=\"%.1f\" y=\"%d\" text-anchor=\"middle\">%.0f</text>\n",
                LEFT, WIDTH - RIGHT, y_of(r, value), y_of(r, value), LEFT - 6, y_of(r, value) + 4, value, x_of(r, iter),
                HEIGHT - BOTTOM + 18, iter);
    }
}

ht_status reporter_plot(const reporter *r, ht_error *err) {
    const char *path = r->o->tune.plot;
    if (!path) return HT_OK;
    range all = {(double)INFINITY, (double)-INFINITY, 0};
    widen(&all, &r->loss);
    widen(&all, &r->valid);
    if (!(all.low < all.high)) { /* one value, or none */
        all.low = isfinite(all.low) ? all.low - 0.5 : 0;
        all.high = all.low + 1;
    }
    FILE *f = output_open(path, err);
    if (!f) return err->status;
    fprintf(f,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" font-family=\"sans-serif\" "
            "font-size=\"12\">\n<rect width=\"100%%\" height=\"100%%\" fill=\"white\"/>\n",
            WIDTH, HEIGHT);
    draw_axes(f, &all);
    draw_curve(f, &all, &r->loss, "#1f77b4", "loss", 0);
    draw_curve(f, &all, &r->valid, "#d62728", "held-out loss", 1);
    fprintf(f, "</svg>\n");
    return output_close(f, path, err);
}
