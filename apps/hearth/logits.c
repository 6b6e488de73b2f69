/* hearth logits: the logits after every position of a given sequence of ids, as a NumPy file. */
#include "command.h"
#include "engine.h"
#include "input.h"
#include "json.h"
#include "terminal.h"
#include "written.h"

#include <hearth/npy.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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
    progress_show(&s->show, (double)(first + n_rows) / (double)s->n_rows);
    return !st;
}

static ht_status read_ids(const options *o, id_list *list, ht_error *err) {
    if (strcmp(o->ids, "-") != 0) return ids_parse(o->ids, list, err);
    char *text;
    size_t n;
    ht_status st = input_read_all("token ids", &text, &n, err);
    if (!st) st = ids_parse(text, list, err);
    free(text);
    return st;
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
        snprintf(err->message, sizeof err->message, "interrupted: %s was not written", o->out);
    if (!st) st = ht_npy_writer_commit(s.npy, err);
    ht_npy_writer_free(s.npy);
    return st;
}

int logits_command(const options *o) {
    if (!o->ids || !o->out) {
        fprintf(stderr, "hearth logits: %s is needed (see hearth logits --help)\n",
                o->ids ? "--out FILE.npy" : "--ids 1,2,3");
        return EXIT_USAGE;
    }
    ht_error err = {0};
    id_list list = {0};
    engine e = {0};
    ht_status st = read_ids(o, &list, &err);
    if (st == HT_ERR_ARGUMENT || (!st && list.n == 0)) {
        fprintf(stderr, "hearth logits: --ids: %s (see hearth logits --help)\n",
                st ? err.message : "the list is empty");
        free(list.ids);
        return EXIT_USAGE;
    }
    int status = EXIT_OK;
    if (!st) st = output_check(o, o->out, &err);
    if (!st) st = engine_open(&e, o, (int64_t)list.n, &err);
    if (!st) st = write_logits(&e, o, &list, &err);
    if (st)
        status = report(&err);
    else if (o->json && !json_output(ht_json_pack("{so s[II]}", "out", ht_json_string(o->out), "shape", (int64_t)list.n,
                                                  (int64_t)ht_model_vocab_size(e.model))))
        status = EXIT_FAILED;
    engine_close(&e);
    free(list.ids);
    return output_finish(status);
}
