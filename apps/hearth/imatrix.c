/* hearth imatrix: computes an importance matrix over a text, for quantisation. */
#include "command.h"
#include "engine.h"
#include "fail.h"
#include "input.h"
#include "json.h"
#include "terminal.h"
#include "written.h"

#include <hearth/importance.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { DEFAULT_WINDOW = 512, DEFAULT_SAVE_EVERY = 10 };

typedef struct loaded { /* files of --from */
    ht_importance **item;
    int n;
} loaded;

static ht_status load_from(const options *o, loaded *l, ht_error *err) {
    ht_status st = HT_OK;
    if (!o->from.n) return HT_OK;
    l->item = calloc((size_t)o->from.n, sizeof *l->item);
    if (!l->item) return ht_fail(err, HT_ERR_MEMORY, "out of memory: importance weights");
    for (; !st && l->n < o->from.n; l->n += !st) st = ht_importance_load(o->from.items[l->n], &l->item[l->n], err);
    return st;
}

typedef struct gathering {
    const options *o;
    progress computing;
    long long every, saved; /* windows between saves; windows in the last save, skipped ones included */
    ht_error failure;
} gathering;

static void on_progress(double done, void *user) { progress_show(done, &((gathering *)user)->computing); }

/* Saves intermediate results, so that an interruption loses at most `every` windows. */
static bool on_so_far(const ht_importance *i, void *user) {
    gathering *g = user;
    if (ht_importance_save(i, g->o->out, &g->failure)) return false;
    g->saved = (g->saved ? g->saved : (long long)g->o->skip_chunks) + g->every;
    return true;
}

static ht_status gather(const options *o, const text_source *s, const engine *e, const loaded *from,
                        ht_importance **out, ht_error *err) {
    gathering g = {.o = o, .every = options_given(o, "save-every") ? o->tune.save_every : DEFAULT_SAVE_EVERY};
    progress_begin(&g.computing, "computing", o->quiet);
    ht_importance_options how;
    ht_importance_options_init(&how, sizeof how);
    how.window = (int32_t)o->window;
    how.skip_chunks = o->skip_chunks;
    how.max_chunks = o->chunks;
    how.from = (const ht_importance *const *)from->item;
    how.n_from = from->n;
    how.dataset = o->text && strcmp(o->text, "-") != 0 ? o->text : NULL;
    how.adapters = e->adapters.adapter;
    how.adapter_scales = e->adapters.scale;
    how.n_adapters = e->adapters.n;
    how.cancel = interrupt_flag();
    how.progress = on_progress;
    how.user = &g;
    how.so_far = on_so_far;
    how.so_far_chunks = g.every;
    ht_status st = o->text ? ht_importance_gather_text(e->model, s->text, s->n, &how, out, err)
                           : ht_importance_gather_ids(e->model, s->list.ids, s->list.n, &how, out, err);
    progress_end(&g.computing);
    if (st && g.failure.status) {
        *err = g.failure;
        return g.failure.status;
    }
    if (st == HT_ERR_CANCELLED && g.saved)
        ht_fail(err, st, "interrupted: %s has %lld window%s of the text; --from it with --skip-chunks %lld goes on",
                o->out, g.saved, plural(g.saved), g.saved);
    else if (st == HT_ERR_CANCELLED)
        ht_fail(err, st, "interrupted: %s was not written", o->out);
    return st;
}

static ht_status load_and_gather(const options *o, const text_source *s, const loaded *from, char note[DEVICE_NOTE],
                                 ht_importance **out, ht_error *err) {
    engine e = {0};
    ht_status st = engine_open_model(&e, o, o->window ? o->window : DEFAULT_WINDOW, err);
    if (!st) st = gather(o, s, &e, from, out, err);
    device_note(e.device, note);
    engine_close(&e);
    return st;
}

/* --out may be one of the --from files, which is then extended. */
static ht_status check_output(const options *o, ht_error *err) {
    for (int i = 0; i < o->from.n; i++)
        if (strcmp(o->from.items[i], o->out) == 0) return HT_OK;
    return output_check(o, o->out, err);
}

static ht_status make(const options *o, char note[DEVICE_NOTE], ht_importance **out, ht_error *err) {
    text_source s = {0};
    loaded from = {0};
    ht_status st = check_output(o, err);
    if (!st) st = load_from(o, &from, err);
    if (!st) st = text_source_read(o->text, o->ids, &s, err);
    if (!st && (o->text || o->ids))
        st = load_and_gather(o, &s, &from, note, out, err);
    else if (!st)
        st = ht_importance_merge((const ht_importance *const *)from.item, from.n, out, err);
    if (!st) st = ht_importance_save(*out, o->out, err);
    for (int i = 0; i < from.n; i++) ht_importance_free(from.item[i]);
    free(from.item);
    text_source_free(&s);
    return st;
}

/* Summary of a file; its token count is the largest input count of any matrix. */
typedef struct figures {
    ht_importance_info info;
    long long tokens, experts, unchosen; /* `experts`: of all layers; `unchosen`: never selected in the text */
} figures;

static figures figures_of(const ht_importance *i) {
    figures f = {.info = ht_importance_get_info(i)};
    for (int64_t k = 0; k < f.info.n_entries; k++) {
        const ht_importance_entry e = ht_importance_entry_at(i, k);
        if (e.n_experts == 1 && e.count[0] > (double)f.tokens) f.tokens = (long long)e.count[0];
        if (e.n_experts == 1 || !strstr(e.name, "_down_exps.")) continue; /* count each expert once */
        f.experts += e.n_experts;
        for (int64_t x = 0; x < e.n_experts; x++) f.unchosen += e.count[x] == 0;
    }
    return f;
}

static void print_text(const options *o, const figures *f, double seconds, const char *note) {
    output_field("out", "%s", o->out);
    output_field("entries", "%lld", (long long)f->info.n_entries);
    output_field("tokens", "%lld in %lld window%s of %lld", f->tokens, (long long)f->info.n_chunks,
                 plural(f->info.n_chunks), (long long)f->info.chunk_tokens);
    if (f->experts) output_field("experts", "%lld, of which %lld were never chosen", f->experts, f->unchosen);
    if (!o->quiet) fprintf(stderr, "%.1f s%s\n", seconds, note);
}

static void print_json(const options *o, const figures *f, double seconds) {
    json_output(ht_json_pack("{so sI sI sI sI sI sI sf}", "out", ht_json_string(o->out), "entries",
                             (int64_t)f->info.n_entries, "tokens", (int64_t)f->tokens, "windows",
                             (int64_t)f->info.n_chunks, "ctx", (int64_t)f->info.chunk_tokens, "experts",
                             (int64_t)f->experts, "unchosen_experts", (int64_t)f->unchosen, "seconds", seconds));
}

int imatrix_command(const options *o) {
    if (!o->out) return usage_error(o, "--out FILE.gguf is needed");
    if (!o->text && !o->ids && !o->from.n) return usage_error(o, "--text FILE is needed");
    ht_error err = {0};
    ht_importance *result = NULL;
    char note[DEVICE_NOTE] = "";
    const double begin = now_seconds();
    const ht_status st = make(o, note, &result, &err);
    const figures f = st ? (figures){0} : figures_of(result);
    if (!st && o->json)
        print_json(o, &f, now_seconds() - begin);
    else if (!st)
        print_text(o, &f, now_seconds() - begin, note);
    ht_importance_free(result);
    return output_finish(st ? report(&err) : EXIT_OK);
}
