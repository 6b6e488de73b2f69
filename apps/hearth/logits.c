/* hearth logits: writes the logits at every position of an id sequence to a NumPy file. */
#include "command.h"
#include "engine.h"
#include "fail.h"
#include "input.h"
#include "json.h"
#include "terminal.h"
#include "written.h"

#include <hearth/npy.h>

#include <stdio.h>
#include <stdlib.h>

typedef struct sink {
    ht_npy_writer *npy;
    progress show;
    int64_t n_rows;
    ht_error err; /* of the first failed append, which the session reports as a cancellation */
} sink;

static bool on_logits(const float *logits, int64_t first, int64_t n_rows, int32_t vocab, void *user) {
    sink *s = user;
    (void)vocab;
    ht_status st = ht_npy_writer_put(s->npy, logits, n_rows, &s->err);
    progress_show((double)(first + n_rows) / (double)s->n_rows, &s->show);
    return !st;
}

static ht_status write_logits(engine *e, const options *o, const id_list *list, ht_error *err) {
    sink s = {.n_rows = (int64_t)list->n};
    ht_status st = ht_npy_writer_new(o->out, s.n_rows, ht_model_vocab_size(e->model), &s.npy, err);
    if (st) return st;
    progress_begin(&s.show, "computing", o->quiet);
    ht_forward_options how;
    ht_forward_options_init(&how, sizeof how);
    how.all_rows = true;
    how.cancel = interrupt_flag();
    st = ht_session_forward(e->session, list->ids, list->n, &how, on_logits, &s, err);
    progress_end(&s.show);
    if (s.err.status)
        *err = s.err;
    else if (st && interrupted())
        ht_fail(err, st, "interrupted: %s was not written", o->out);
    if (!st) st = ht_npy_writer_commit(s.npy, err);
    ht_npy_writer_free(s.npy);
    return st;
}

int logits_command(const options *o) {
    if (!o->ids || !o->out) return usage_error(o, "%s is needed", o->ids ? "--out FILE.npy" : "--ids 1,2,3");
    ht_error err = {0};
    id_list list = {0};
    engine e = {0};
    ht_status st = ids_read(o->ids, &list, &err);
    if (st == HT_ERR_ARGUMENT || (!st && list.n == 0)) {
        free(list.ids);
        return usage_error(o, "--ids: %s", st ? err.message : "the list is empty");
    }
    if (!st) st = output_check(o, o->out, &err);
    if (!st) st = engine_open(&e, o, (int64_t)list.n, &err);
    if (!st) st = write_logits(&e, o, &list, &err);
    if (!st && o->json)
        json_output(ht_json_pack("{so s[II]}", "out", ht_json_string(o->out), "shape", (int64_t)list.n,
                                 (int64_t)ht_model_vocab_size(e.model)));
    engine_close(&e);
    free(list.ids);
    return output_finish(st ? report(&err) : EXIT_OK);
}
