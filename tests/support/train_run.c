#include "support/train_run.h"

#include "support/json_file.h"
#include "support/options.h"
#include "support/test.h"

#include <hearth/ops.h>

#include <stdlib.h>

/* A row's target is the next label of its sequence. Embedders have the matches of anchors instead. */
static void read_sequences(train_run *r, const ht_json *sequences) {
    int32_t n_tok = 0, n_seq = (int32_t)ht_json_array_size(sequences);
    for (int32_t q = 0; q < n_seq; q++)
        n_tok += (int32_t)ht_json_array_size(ht_json_object_get(ht_json_array_get(sequences, (size_t)q), "ids"));
    r->rows = calloc(3 * (size_t)n_tok + 2 * (size_t)n_seq + 1, sizeof *r->rows);
    assert_non_null(r->rows);
    int32_t *id = r->rows, *pos = id + n_tok, *target = pos + n_tok, *start = target + n_tok,
            *match = start + n_seq + 1, at = 0;
    r->batch =
        (ht_train_batch){.n_tok = n_tok, .n_seq = n_seq, .id = id, .pos = pos, .seq_start = start, .target = target};
    for (int32_t q = 0; q < n_seq; q++) {
        const ht_json *ids = ht_json_object_get(ht_json_array_get(sequences, (size_t)q), "ids");
        const ht_json *labels = ht_json_object_get(ht_json_array_get(sequences, (size_t)q), "labels");
        const size_t n = ht_json_array_size(ids);
        assert_int_equal(ht_json_array_size(labels), r->pooling ? 0 : n);
        start[q] = at;
        if (r->pooling) {
            match[q] =
                (int32_t)ht_json_integer_value(ht_json_object_get(ht_json_array_get(sequences, (size_t)q), "match"));
            r->batch.n_learned += match[q] >= 0;
        }
        for (size_t i = 0; i < n; i++, at++) {
            id[at] = (int32_t)ht_json_integer_value(ht_json_array_get(ids, i));
            pos[at] = (int32_t)i;
            target[at] =
                !r->pooling && i + 1 < n ? (int32_t)ht_json_integer_value(ht_json_array_get(labels, i + 1)) : -1;
            r->batch.n_learned += target[at] >= 0;
        }
    }
    start[n_seq] = at;
    if (!r->pooling) return;
    r->batch.match = match;
    r->batch.temperature = ht_json_number_value(ht_json_object_get(r->document, "temperature"));
}

train_run train_run_open(const char *path) {
    train_run r = {.document = json_file(path)};
    r.steps = (int)ht_json_integer_value(ht_json_object_get(r.document, "steps"));
    r.learning_rate = ht_json_number_value(ht_json_object_get(r.document, "learning_rate"));
    r.weight_decay = ht_json_number_value(ht_json_object_get(r.document, "weight_decay"));
    r.clip = ht_json_number_value(ht_json_object_get(r.document, "clip"));
    r.pooling = ht_json_string_value(ht_json_object_get(r.document, "pooling"));
    assert_true(r.steps > 0 && r.learning_rate > 0 && r.clip > 0);
    read_sequences(&r, ht_json_object_get(r.document, "sequences"));
    return r;
}

void train_run_close(train_run *r) {
    ht_json_decref(r->document);
    free(r->rows);
    *r = (train_run){0};
}

ht_model *train_run_model(const char *path, ht_precision precision) {
    ht_device *device;
    ht_model *m;
    ht_error err = {0};
    if (ht_device_open("cpu", OPTIONS_AT(ht_device_options, with.n_threads = 2), &device, &err))
        fail_msg("%s", err.message);
    const ht_model_options options = OPTIONS(ht_model_options, with.device = device, with.precision = precision);
    if (ht_model_load(path, &options, &m, &err)) fail_msg("%s", err.message);
    ht_device_free(device);
    return m;
}

ht_trainable *train_run_trainable(ht_model *m, const char *path, ht_dtype dtype) {
    ht_adapter *a;
    ht_trainable *t;
    ht_error err = {0};
    if (ht_adapter_load(path, m, NULL, &a, &err)) fail_msg("%s", err.message);
    const ht_lora_options options = OPTIONS(ht_lora_options, with.init = a, with.dtype = dtype);
    if (ht_trainable_new(m, &options, &t, &err)) fail_msg("%s", err.message);
    ht_adapter_free(a);
    return t;
}

double train_run_gradients(const train_run *r, const ht_trainable *t, ht_scope *s, bool checkpointing,
                           ht_array **grads) {
    ht_error err = {0};
    ht_array *sum;
    if (ht_trainable_gradients(t, s, &r->batch, HT_NONE, checkpointing, &sum, grads, &err)) fail_msg("%s", err.message);
    const float share = 1 / (float)r->batch.n_learned;
    for (int i = 0; i < ht_trainable_count(t); i++) grads[i] = ht_scale(s, grads[i], share);
    float loss;
    if (ht_array_read(s, ht_scale(s, sum, share), &loss, sizeof loss, &err)) fail_msg("%s", err.message);
    return (double)loss;
}

void train_run_steps(const train_run *r, ht_trainable *t, ht_stream *stream, bool checkpointing, double *losses,
                     double *norms) {
    const int n = ht_trainable_count(t);
    ht_array **params = calloc(3 * (size_t)n, sizeof *params), **grads = params + n, **after = grads + n, *norm;
    ht_optimizer *optimizer;
    ht_error err = {0};
    const ht_optimizer_options options = OPTIONS(ht_optimizer_options, with.weight_decay = r->weight_decay);
    if (ht_optimizer_new(&options, &optimizer, &err)) fail_msg("%s", err.message);
    for (int step = 0; step <= r->steps; step++) {
        ht_scope *s = ht_scope_new(stream);
        losses[step] = train_run_gradients(r, t, s, checkpointing, grads);
        float total;
        if (!ht_clip_grad_norm(s, grads, n, r->clip, grads, &norm)) fail_msg("%s", ht_scope_error(s)->message);
        if (ht_array_read(s, norm, &total, sizeof total, &err)) fail_msg("%s", err.message);
        norms[step] = (double)total;
        for (int i = 0; i < n; i++) params[i] = ht_trainable_get(t, i);
        if (step < r->steps) {
            if (ht_optimizer_step(optimizer, s, params, grads, n, r->learning_rate, after, &err) ||
                ht_trainable_set(t, after, &err))
                fail_msg("step %d: %s", step, err.message);
        }
        ht_scope_free(s);
    }
    ht_optimizer_free(optimizer);
    free(params);
}
