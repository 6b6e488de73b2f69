/* hearth eval: perplexity of a text, and KL divergence from another model or from reference arithmetic. */
#include "command.h"
#include "engine.h"
#include "fail.h"
#include "input.h"
#include "json.h"
#include "terminal.h"

#include <hearth/evaluate.h>

#include <stdio.h>

enum { DEFAULT_WINDOW = 512 };

static ht_status evaluate(const options *o, const text_source *s, const engine *e, ht_model *reference,
                          ht_evaluation **out, ht_error *err) {
    progress computing;
    progress_begin(&computing, "computing", o->quiet);
    ht_evaluate_options how;
    ht_evaluate_options_init(&how, sizeof how);
    how.window = (int32_t)o->window;
    how.reference = reference;
    how.adapters = e->adapters.adapter;
    how.adapter_scales = e->adapters.scale;
    how.n_adapters = e->adapters.n;
    how.adapted_reference = o->kl_vs_reference;
    how.cancel = interrupt_flag();
    how.progress = progress_show;
    how.user = &computing;
    ht_status st = o->text ? ht_evaluate_text(e->model, s->text, s->n, &how, out, err)
                           : ht_evaluate_ids(e->model, s->list.ids, s->list.n, &how, out, err);
    progress_end(&computing);
    return st == HT_ERR_CANCELLED ? ht_fail(err, st, "interrupted: there is no result") : st;
}

static ht_status load_and_evaluate(const options *o, const text_source *s, char note[DEVICE_NOTE], ht_evaluation **out,
                                   ht_error *err) {
    engine e = {0}, other = {0}; /* other: only for --vs-device */
    ht_model *reference = NULL;
    int64_t positions = o->window ? o->window : DEFAULT_WINDOW;
    engine_model first = engine_model_of(o, positions), second = first;
    ht_status st = engine_load(&e, o, &first, &e.model, err);
    if (o->kl_vs) second.name = o->kl_vs;
    if (o->kl_vs_reference) {
        second.precision = HT_PRECISION_REFERENCE;
        second.kv = HT_F32;
    }
    options elsewhere = *o;
    elsewhere.device = o->vs_device;
    if (!st && (o->kl_vs || o->kl_vs_reference))
        st = o->vs_device ? engine_load(&other, &elsewhere, &second, &reference, err)
                          : engine_load(&e, o, &second, &reference, err);
    if (!st) st = adapters_load(o, e.model, &e.adapters, err);
    if (!st) st = evaluate(o, s, &e, reference, out, err);
    device_note(e.device, note);
    ht_model_free(reference);
    engine_close(&other);
    engine_close(&e);
    return st;
}

/* "50", "99.9" */
static void percentile_name(const ht_percentile *p, char out[16]) { snprintf(out, 16, "%g", p->percent); }

static void print_json(const options *o, const ht_evaluation *r, double seconds) {
    ht_json *value =
        ht_json_pack("{so ss sI sI sI si sf sf sf sf}", "model", ht_json_string(o->model), "precision",
                     options_precision_name(o), "tokens", (int64_t)r->n_tokens, "windows", (int64_t)r->n_windows,
                     "scored_tokens", (int64_t)r->n_scored, "ctx", (int)r->window, "mean_nll", r->mean_nll,
                     "perplexity", r->perplexity, "perplexity_error", r->perplexity_error, "seconds", seconds);
    if (!o->kl_vs && !o->kl_vs_reference) {
        json_output(value);
        return;
    }
    ht_json *percentiles = ht_json_new_object();
    for (int i = 0; i < r->n_kl_percentiles; i++) {
        char name[16];
        percentile_name(&r->kl_percentiles[i], name);
        ht_json_object_set_new(percentiles, name, ht_json_real(r->kl_percentiles[i].value));
    }
    ht_json *more =
        ht_json_pack("{so sf sf sf sf so sf sf sf}", "compared_with",
                     o->kl_vs ? ht_json_string(o->kl_vs) : ht_json_string("reference"), "compared_perplexity",
                     r->reference_perplexity, "compared_perplexity_error", r->reference_perplexity_error, "kl_mean",
                     r->kl_mean, "kl_error", r->kl_error, "kl_percentiles", percentiles, "kl_max", r->kl_max,
                     "same_top", r->same_top, "same_top_error", r->same_top_error);
    json_output(json_merge(value, more));
}

static void print_text(const options *o, const ht_evaluation *r, double seconds, const char *note) {
    output_field("tokens", "%lld, of which %lld count, in %lld window%s of %d", (long long)r->n_tokens,
                 (long long)r->n_scored, (long long)r->n_windows, plural(r->n_windows), (int)r->window);
    output_field("precision", "%s", options_precision_name(o));
    output_field("perplexity", "%.4f ± %.4f", r->perplexity, r->perplexity_error);
    if (o->kl_vs || o->kl_vs_reference) {
        output_field("compared with", "%s", o->kl_vs ? o->kl_vs : "reference precision");
        output_field("its perplexity", "%.4f ± %.4f", r->reference_perplexity, r->reference_perplexity_error);
        output_field("KL", "%.3g ± %.2g nats", r->kl_mean, r->kl_error);
        for (int i = 0; i < r->n_kl_percentiles; i++) {
            char number[16], name[32];
            percentile_name(&r->kl_percentiles[i], number);
            snprintf(name, sizeof name, "KL %s %%", number);
            output_field(name, "%.3g", r->kl_percentiles[i].value);
        }
        output_field("KL max", "%.3g", r->kl_max);
        output_field("same top", "%.2f %% ± %.2f %%", 100 * r->same_top, 100 * r->same_top_error);
    }
    if (!o->quiet)
        fprintf(stderr, "%.1f s, %.0f tok/s%s\n", seconds, seconds > 0 ? (double)r->n_tokens / seconds : 0, note);
}

int eval_command(const options *o) {
    if (!o->text && !o->ids) return usage_error(o, "--text FILE is needed");
    if (o->vs_device && !o->kl_vs && !o->kl_vs_reference)
        return usage_error(o, "--vs-device needs --kl-vs or --kl-vs-reference");
    ht_error err = {0};
    text_source s = {0};
    ht_evaluation *result = NULL;
    char note[DEVICE_NOTE];
    double begin = now_seconds();
    ht_status st = text_source_read(o->text, o->ids, &s, &err);
    if (!st) st = load_and_evaluate(o, &s, note, &result, &err);
    if (!st && o->json)
        print_json(o, result, now_seconds() - begin);
    else if (!st)
        print_text(o, result, now_seconds() - begin, note);
    ht_evaluation_free(result);
    text_source_free(&s);
    return output_finish(st ? report(&err) : EXIT_OK);
}
