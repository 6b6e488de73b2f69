#include "models/label_head.h"

#include "base/error.h"
#include "models/decoder.h"

#include <hearth/transform.h>

ht_status ht_label_head_need(const ht_model *m, ht_error *err) {
    if (m->config->n_labels) return HT_OK;
    return ht_fail(err, HT_ERR_UNSUPPORTED, "the model (%s) has no classification head, whose scores rank texts",
                   m->architecture);
}

bool ht_label_head_is_whole(const ht_model *m) {
    const ht_encoder_around *a = m->config->n_labels ? ht_weights_decoder(m->weights)->around : NULL;
    return a && a->head.dense.matrix;
}

/* x [n, hidden] -> [n, n_labels] */
static ht_array *forward(ht_ctx *c, const ht_config *config, const ht_label_head *head, ht_array *x) {
    if (head->dense.matrix) x = config->family->activate_head(c->s, ht_linear(c, x, &head->dense));
    return ht_linear(c, ht_decoder_norm(c, config, x, &head->norm), &head->out);
}

ht_status ht_label_head_scores(const ht_model *m, const float *pooled, int64_t n, float *scores, ht_error *err) {
    const ht_config *config = m->config;
    ht_stream *stream;
    ht_status status = ht_label_head_need(m, err);
    if (status || n == 0) return status;
    const ht_encoder_around *a = ht_weights_decoder(m->weights)->around;
    status = ht_stream_new(m->device, &stream, err);
    if (status) return status;
    ht_scope *s = ht_scope_new(stream);
    if (s) {
        ht_ctx c = {.s = s};
        ht_array *x = ht_array_from(s, pooled, HT_F32, (int64_t[]){n, config->hidden}, 2);
        status = ht_array_read(s, forward(&c, config, &a->head, x), scores,
                               (size_t)(n * config->n_labels) * sizeof *scores, err);
    } else
        status = ht_fail_memory(err, sizeof(void *), "a scope");
    ht_scope_free(s);
    ht_stream_free(stream);
    return status;
}
