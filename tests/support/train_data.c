#include "support/train_data.h"

#include "base/text.h"
#include "models/model.h"
#include "support/scratch.h"
#include "support/test.h"

#include <string.h>

void train_use_template(ht_model *m, const char *source) {
    ht_error err = {0};
    ht_chat_setup_free(&m->chat);
    if (!source) return;
    if (ht_chat_setup_parse(source, "template", "t", &m->chat, &err)) fail_msg("%s", err.message);
    if (m->chat.error.status) fail_msg("%s", m->chat.error.message);
}

static bool put_piece(const char *text, size_t n, bool learned, void *user) {
    ht_text *to = user;
    if (learned) ht_text_append_str(to, "[");
    ht_text_append(to, text, n);
    if (learned) ht_text_append_str(to, "]");
    return true;
}

char *train_marked(const ht_model *m, const char *line, const ht_sample_options *options, ht_sample *sample) {
    ht_sample s;
    ht_text text = {0};
    ht_error err = {0};
    ht_text_append_str(&text, "");
    if (ht_sample_read(m, line, strlen(line), options, &s, &err) || ht_sample_pieces(m, &s, put_piece, &text, &err))
        fail_msg("%s: %s", line, err.message);
    if (sample)
        *sample = s;
    else
        ht_sample_free(&s);
    return ht_text_take(&text);
}

ht_data *train_open(ht_model *m, const char *text, const ht_data_options *options) {
    ht_data *d;
    ht_error err = {0};
    scratch_write("train.jsonl", text, strlen(text));
    if (ht_data_open(m, scratch_path("train.jsonl"), options, &d, &err)) fail_msg("%s", err.message);
    return d;
}

ht_status train_open_fails(ht_model *m, const char *text, const ht_data_options *options, ht_error *err) {
    ht_data *d;
    *err = (ht_error){0};
    scratch_write("train.jsonl", text, strlen(text));
    ht_status status = ht_data_open(m, scratch_path("train.jsonl"), options, &d, err);
    if (!status) fail_msg("it was opened: %s", text);
    assert_null(d);
    assert_int_equal(err->status, status);
    return status;
}
