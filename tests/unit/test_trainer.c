/* Trainers: steps that learn, the same bits however training is cut, and what ends it. */
#include "models/adapter.h"
#include "support/scratch.h"
#include "support/test.h"
#include "support/tiny_model.h"
#include "support/train_data.h"
#include "train/trainer.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SAMPLES = 11 };

/* Samples of different lengths, as texts of bytes. */
static const char *write_data(const char *name, int n) {
    char text[8192];
    size_t used = 0;
    for (int i = 0; i < n; i++) {
        used += (size_t)snprintf(text + used, sizeof text - used, "{\"text\": \"");
        for (int k = 0; k < 5 + 7 * (i % 5); k++) text[used++] = (char)('a' + (i + k * k) % 26);
        used += (size_t)snprintf(text + used, sizeof text - used, "\"}\n");
    }
    static char paths[8][512];
    static int next;
    char *path = paths[next++ % 8];
    scratch_write(name, text, used);
    (void)snprintf(path, sizeof paths[0], "%s", scratch_path(name));
    return path;
}

static ht_model *model, *alone; /* on two threads, on one */

static ht_lora_options lora; /* of the options that basic() made last */

static ht_trainer_options basic(const char *data) {
    ht_trainer_options o;
    ht_trainer_options_init(&o, sizeof o);
    ht_lora_options_init(&lora, sizeof lora);
    o.lora = &lora;
    o.data = data;
    o.batch = 2;
    o.pack = false;
    o.iters = 6;
    o.learning_rate = 1e-2;
    lora.targets = "q_proj, v_proj,down_proj";
    o.seed = 3;
    return o;
}

static ht_trainer *open_on(ht_model *m, const ht_trainer_options *o) {
    ht_trainer *t;
    assert_works(ht_trainer_new, m, o, &t);
    return t;
}

static ht_train_step step(ht_trainer *t) {
    ht_train_step s;
    assert_works(ht_trainer_step, t, &s);
    return s;
}

static ht_adapter *adapter_of(const ht_trainer *t) {
    ht_adapter *a;
    assert_works(ht_trainer_adapter, t, &a);
    return a;
}

/* The largest difference of any value, and in *size the largest value. */
static double difference(const ht_adapter *a, const ht_adapter *b, double *size) {
    double most = 0;
    *size = 0;
    assert_int_equal(a->n, b->n);
    for (int64_t i = 0; i < a->n; i++) {
        const ht_lora *x = &a->lora[i], *y = &b->lora[i];
        for (int64_t k = 0; k < x->rank * x->n_in; k++) most = fmax(most, fabs((double)x->a[k] - (double)y->a[k]));
        for (int64_t k = 0; k < x->rank * x->n_out; k++) {
            most = fmax(most, fabs((double)x->b[k] - (double)y->b[k]));
            *size = fmax(*size, fabs((double)x->b[k]));
        }
    }
    return most;
}

/* The adapter after all steps; the losses go to `losses` unless it is NULL. */
static ht_adapter *train(ht_model *m, const ht_trainer_options *o, double *losses) {
    ht_trainer *t = open_on(m, o);
    ht_trainer_plan plan;
    ht_trainer_describe(t, &plan);
    for (int64_t i = 0; i < plan.iters; i++) {
        const ht_train_step s = step(t);
        if (losses) losses[i] = s.loss;
    }
    ht_adapter *a = adapter_of(t);
    ht_trainer_free(t);
    return a;
}

static void expect_same_bits(ht_adapter *a, ht_adapter *b) {
    double size;
    assert_true(difference(a, b, &size) == 0);
    assert_true(size > 0);
    ht_adapter_free(a);
    ht_adapter_free(b);
}

UNIT_TEST(learns) {
    const char *data = write_data("train.jsonl", SAMPLES);
    ht_trainer_options o = basic(data);
    o.valid = data;
    o.iters = 40;
    ht_trainer *t = open_on(model, &o);
    ht_trainer_plan plan;
    ht_trainer_describe(t, &plan);
    assert_int_equal(plan.iters, 40);
    assert_int_equal(plan.iters_per_epoch, 6);
    assert_int_equal(plan.data->n_samples, SAMPLES);
    assert_true(plan.n_parameters > 0 && plan.n_parameters < plan.model_parameters && plan.peak_bytes > 0);
    double before, after;
    ht_train_step s = {0};
    assert_works(ht_trainer_evaluate, t, &before);
    for (int i = 0; i < 40; i++) {
        s = step(t);
        assert_int_equal(s.iter, i + 1);
        assert_true(isfinite(s.loss) && s.grad_norm > 0 && s.n_learned > 0 && s.n_tok >= s.n_learned && !s.skipped);
    }
    assert_works(ht_trainer_evaluate, t, &after);
    if (!(after < 0.5 * before)) fail_msg("the loss was %g and is %g", before, after);
    assert_fails(HT_ERR_LIMIT, "training is complete after 40 steps", ht_trainer_step, t, &s);
    ht_trainer_free(t);
}

/* Samples are no multiple of the batch: none counts twice. */
UNIT_TEST(held_out_loss_is_of_every_sample_once) {
    const char *data = write_data("odd.jsonl", 7);
    ht_trainer_options o = basic(data);
    o.valid = data;
    double loss[3];
    for (int i = 0; i < 3; i++) {
        o.batch = (int[]){1, 3, 16}[i];
        ht_trainer *t = open_on(model, &o);
        assert_works(ht_trainer_evaluate, t, &loss[i]);
        ht_trainer_free(t);
    }
    assert_true(fabs(loss[1] - loss[0]) < 1e-6 * loss[0]);
    assert_true(fabs(loss[2] - loss[0]) < 1e-6 * loss[0]);
}

static int64_t steps_of(const char *data, bool in_order, int batch, int accumulate, double epochs) {
    ht_trainer_options o = basic(data);
    o.in_order = in_order;
    o.batch = batch;
    o.accumulate = accumulate;
    o.epochs = epochs;
    o.iters = 0;
    ht_trainer *t = open_on(model, &o);
    ht_trainer_plan plan;
    ht_trainer_describe(t, &plan);
    ht_trainer_free(t);
    return plan.iters;
}

/* Epochs are passes through the samples, also where batches or accumulated steps do not divide them. */
UNIT_TEST(steps_of_epochs) {
    const char *data = write_data("five.jsonl", 5);
    assert_int_equal(steps_of(data, false, 1, 4, 10), 13);
    assert_int_equal(steps_of(data, false, 2, 1, 3), 9); /* an epoch has two batches of two, and one of one */
    assert_int_equal(steps_of(data, true, 4, 1, 10), 13);
    assert_int_equal(steps_of(data, true, 4, 3, 10), 5);
    assert_int_equal(steps_of(data, true, 8, 1, 0.1), 1);
    assert_int_equal(steps_of(data, false, 5, 1, 1), 1);
}

/* Steps smaller than the last place of bf16 add up. */
UNIT_TEST(bf16_moves_as_f32) {
    ht_trainer_options o = basic(write_data("train.jsonl", SAMPLES));
    ht_adapter *after[2];
    double apart = 0, n = 0;
    o.iters = 40;
    o.learning_rate = 1e-4;
    for (int i = 0; i < 2; i++) {
        lora.dtype = i ? HT_BF16 : HT_F32;
        ht_trainer *t = open_on(model, &o);
        while (step(t).iter < 40) {}
        after[i] = adapter_of(t);
        ht_trainer_free(t);
    }
    for (int64_t i = 0; i < after[0]->n; i++) {
        const ht_lora *a = &after[0]->lora[i], *b = &after[1]->lora[i];
        for (int64_t k = 0; k < a->rank * a->n_in; k++, n++) apart += fabs((double)a->a[k] - (double)b->a[k]);
    }
    ht_adapter_free(after[0]);
    ht_adapter_free(after[1]);
    if (!(apart / n < 4e-4)) fail_msg("A of bf16 is %g from that of f32 on average, after 40 steps of 1e-4", apart / n);
}

/* B = 0 at first: the loss is that of the model, and A has no gradient. */
UNIT_TEST(begins_as_the_model) {
    ht_trainer_options o = basic(write_data("train.jsonl", SAMPLES));
    ht_trainer *t = open_on(model, &o);
    ht_adapter *a = adapter_of(t);
    for (int64_t i = 0; i < a->n; i++) {
        const ht_lora *l = &a->lora[i];
        double sum = 0, most = 0;
        for (int64_t k = 0; k < l->rank * l->n_out; k++) assert_true(l->b[k] == 0);
        for (int64_t k = 0; k < l->rank * l->n_in; k++) {
            sum += (double)l->a[k];
            most = fmax(most, fabs((double)l->a[k]));
        }
        const double bound = 1 / sqrt((double)l->n_in);
        assert_true(most <= bound && most > 0.9 * bound);
        assert_true(fabs(sum) / (double)(l->rank * l->n_in) < 0.2 * bound);
        assert_true(l->scale == 2);
    }
    ht_adapter_free(a);
    ht_trainer_free(t);
}

UNIT_TEST(the_same_bits_on_any_threads) {
    ht_trainer_options o = basic(write_data("train.jsonl", SAMPLES));
    expect_same_bits(train(model, &o, NULL), train(alone, &o, NULL));
    lora.dropout = 0.3;
    lora.dtype = HT_BF16;
    o.pack = true;
    o.max_length = 64;
    expect_same_bits(train(model, &o, NULL), train(alone, &o, NULL));
}

/* Saved after any step, and gone on with in another trainer. */
UNIT_TEST(resumes_with_the_same_bits) {
    ht_trainer_options o = basic(write_data("train.jsonl", SAMPLES));
    lora.dropout = 0.25;
    o.accumulate = 2;
    o.schedule = HT_SCHEDULE_COSINE;
    o.warmup = 2;
    char path[512];
    (void)snprintf(path, sizeof path, "%s", scratch_path("checkpoint.safetensors"));
    for (int cut = 0; cut <= 6; cut += 2) {
        ht_trainer *first = open_on(model, &o), *second = open_on(model, &o);
        for (int i = 0; i < cut; i++) (void)step(first);
        assert_works(ht_trainer_save, first, path);
        assert_works(ht_trainer_resume, second, path);
        for (int i = cut; i < 6; i++) assert_int_equal(step(second).iter, i + 1);
        ht_adapter *a = adapter_of(second);
        ht_trainer_free(first);
        ht_trainer_free(second);
        expect_same_bits(train(model, &o, NULL), a);
    }
}

/* A mean over all learned tokens of a step, however they are divided into batches. Sums come in another order; a GPU computes in
 * reference precision here, as f16 operands would turn a last digit of a weight into one of f16 a step later. */
UNIT_TEST(accumulates_as_one_batch) {
    const char *device = getenv("HEARTH_TEST_DEVICE");
    const bool on_gpu = device && strcmp(device, "cuda") == 0;
    ht_model *m = on_gpu ? tiny_load(&(tiny_options){.type = HT_W_Q8_0, .reference = true}) : model;
    ht_trainer_options o = basic(write_data("train.jsonl", SAMPLES));
    double one[6], four[6], size;
    o.in_order = true;
    o.batch = 4;
    ht_adapter *a = train(m, &o, one);
    o.batch = 1;
    o.accumulate = 4;
    ht_adapter *b = train(m, &o, four);
    for (int i = 0; i < 6; i++)
        if (!(fabs(one[i] - four[i]) < 1e-5 * one[i])) fail_msg("loss %d: %.9g and %.9g", i, one[i], four[i]);
    const double most = difference(a, b, &size);
    if (!(most < 1e-2 * size)) fail_msg("values differ by %g of %g", most, size);
    ht_adapter_free(a);
    ht_adapter_free(b);
    if (on_gpu) ht_model_free(m);
}

/* Packed samples do not see one another: the loss of all of them is that of one by one. */
UNIT_TEST(packs_without_leaks) {
    ht_trainer_options o = basic(write_data("train.jsonl", SAMPLES));
    double packed, apart;
    o.in_order = true;
    o.iters = 1;
    o.pack = true;
    o.batch = 1;
    o.max_length = 2048;
    ht_adapter *a = train(model, &o, &packed);
    o.pack = false;
    o.batch = SAMPLES;
    ht_adapter *b = train(model, &o, &apart);
    double size;
    assert_true(fabs(packed - apart) < 1e-6 * apart);
    assert_true(difference(a, b, &size) < 1e-3 * size);
    ht_adapter_free(a);
    ht_adapter_free(b);
}

UNIT_TEST(checkpointing_changes_nothing) {
    ht_trainer_options o = basic(write_data("train.jsonl", SAMPLES));
    double size;
    o.checkpointing = HT_CHECKPOINTING_OFF;
    ht_adapter *a = train(model, &o, NULL);
    o.checkpointing = HT_CHECKPOINTING_ON;
    ht_adapter *b = train(model, &o, NULL);
    assert_true(difference(a, b, &size) < 1e-5 * size);
    ht_adapter_free(a);
    ht_adapter_free(b);
}

UNIT_TEST(init_and_layers) {
    ht_trainer_options o = basic(write_data("train.jsonl", SAMPLES));
    ht_adapter *a = train(model, &o, NULL);
    lora.init = a;
    o.iters = 1;
    o.learning_rate = 0;
    ht_adapter *b = train(model, &o, NULL);
    expect_same_bits(ht_adapter_retain(a), b);
    lora.init = NULL;
    lora.layers = 1;
    lora.targets = "all-linear";
    ht_adapter *last = train(model, &o, NULL);
    for (int64_t i = 0; i < last->n; i++) assert_non_null(strstr(last->lora[i].slot, "layers.1."));
    assert_int_equal(last->n, 7);
    ht_adapter_free(a);
    ht_adapter_free(last);
}

/* ---- what ends training ---- */

UNIT_TEST(diverges) {
    tiny_options how = {.type = HT_W_F32, .nan_token = 'q' - '!'};
    ht_model *m = tiny_load(&how);
    static const char text[] = "{\"text\": \"qqqq\"}\n{\"text\": \"abcd\"}\n";
    scratch_write("nan.jsonl", text, sizeof text - 1);
    ht_trainer_options o = basic(scratch_path("nan.jsonl"));
    o.in_order = true;
    o.batch = 1;
    o.iters = 4;
    ht_trainer *t = open_on(m, &o);
    ht_train_step s = {0};
    for (int i = 0; i < 4; i++) {
        s = step(t);
        assert_int_equal(s.skipped, i % 2 == 0);
    }
    assert_int_equal(s.total_skipped, 2);
    ht_adapter *a = adapter_of(t);
    for (int64_t i = 0; i < a->n; i++)
        for (int64_t k = 0; k < a->lora[i].rank * a->lora[i].n_out; k++) assert_true(isfinite(a->lora[i].b[k]));
    ht_adapter_free(a);
    ht_trainer_free(t);
    scratch_write("nan.jsonl", text, strlen("{\"text\": \"qqqq\"}\n"));
    o.iters = 9;
    t = open_on(m, &o);
    ht_error err = {0};
    for (int i = 0; i < 4; i++) assert_true(step(t).skipped);
    assert_int_equal(ht_trainer_step(t, &s, &err), HT_ERR_ARGUMENT);
    assert_true(strstr(err.message, "5 steps in a row") && strstr(err.message, "in line 1"));
    ht_trainer_free(t);
    ht_model_free(m);
    o = basic(write_data("train.jsonl", SAMPLES));
    o.learning_rate = 1e39;
    t = open_on(model, &o);
    assert_fails(HT_ERR_ARGUMENT, "made values that are no finite numbers", ht_trainer_step, t, &s);
    a = adapter_of(t); /* as it was */
    for (int64_t i = 0; i < a->n; i++)
        for (int64_t k = 0; k < a->lora[i].rank * a->lora[i].n_out; k++) assert_true(a->lora[i].b[k] == 0);
    ht_adapter_free(a);
    ht_trainer_free(t);
}

static void count_progress(double done, void *user) {
    (void)done;
    ++*(int *)user;
}

/* Another time makes other samples where the template writes dates, and there alone the data are read again; what the caller
 * lends for opening is not used then. */
UNIT_TEST(the_time_of_a_template) {
    static const char talk[] = "{%- for m in messages %}{{ m.content }}<|im_end|>{%- endfor %}";
    static const char line[] = "{\"prompt\": \"a\", \"completion\": \"b\"}\n";
    char dated[sizeof talk + 64];
    snprintf(dated, sizeof dated, "%s%s", "{{ '!' * (strftime_now('%Y')|int - 1969) }}", talk);
    char lines[100 * sizeof line];
    for (size_t i = 0; i < 100; i++) memcpy(lines + i * (sizeof line - 1), line, sizeof line - 1);
    scratch_write("talk.jsonl", lines, 100 * (sizeof line - 1));
    ht_model *m = tiny_load(&(tiny_options){.type = HT_W_F32});
    for (int i = 0; i < 2; i++) {
        train_use_template(m, i ? dated : talk);
        int calls = 0;
        ht_trainer_options o = basic(scratch_path("talk.jsonl"));
        o.progress = count_progress;
        o.user = &calls;
        ht_trainer *t = open_on(m, &o);
        assert_true(calls > 0);
        calls = 0;
        const ht_data *data = t->train.data;
        assert_works(ht_trainer_set_time, t, 86400);
        assert_int_equal(t->train.data != data, i);
        assert_int_equal(ht_data_get_report(t->train.data)->n_tokens, 100 * (4 + i));
        assert_int_equal(calls, 0);
        ht_trainer_free(t);
    }
    ht_model_free(m);
}

static void refused(const ht_trainer_options *o, ht_status want, const char *says) {
    ht_trainer *t;
    assert_fails(want, says, ht_trainer_new, model, o, &t);
    assert_null(t);
}

UNIT_TEST(bad_options) {
    const char *data = write_data("train.jsonl", SAMPLES);
    ht_trainer_options bad = basic(data);
    lora.targets = "q_proj,w_proj";
    refused(&bad, HT_ERR_ARGUMENT, "named `w_proj`; there are q_proj, k_proj");
    bad = basic(data);
    lora.rank = 0;
    refused(&bad, HT_ERR_ARGUMENT, "rank of 0");
    bad = basic(data);
    lora.layers = 3;
    refused(&bad, HT_ERR_ARGUMENT, "3 layers, the model has 2");
    bad = basic(data);
    lora.dropout = 1;
    refused(&bad, HT_ERR_ARGUMENT, "dropout of 1");
    bad = basic(data);
    lora.alpha = 0;
    refused(&bad, HT_ERR_ARGUMENT, "would change nothing");
    bad = basic("nowhere.jsonl");
    refused(&bad, HT_ERR_IO, "nowhere.jsonl");
    bad = basic(NULL);
    refused(&bad, HT_ERR_ARGUMENT, "no file of training data");
    bad = basic(data);
    bad.batch = 0;
    refused(&bad, HT_ERR_ARGUMENT, "batch of 0");
    bad = basic(data);
    bad.learning_rate = NAN;
    refused(&bad, HT_ERR_ARGUMENT, "learning rate");
}

static void not_resumed(ht_model *m, const ht_trainer_options *o, const char *path, const char *says) {
    ht_trainer *t = open_on(m, o);
    assert_fails(HT_ERR_ARGUMENT, says, ht_trainer_resume, t, path);
    ht_trainer_free(t);
}

UNIT_TEST(bad_checkpoints) {
    ht_trainer_options o = basic(write_data("train.jsonl", SAMPLES));
    char path[512];
    (void)snprintf(path, sizeof path, "%s", scratch_path("checkpoint.safetensors"));
    ht_trainer *t = open_on(model, &o);
    (void)step(t);
    assert_works(ht_trainer_save, t, path);
    ht_adapter *before = adapter_of(t);
    FILE *f = fopen(path, "r+b");
    assert_non_null(f);
    assert_int_equal(fseek(f, -100, SEEK_END), 0);
    const int byte = fgetc(f);
    assert_int_equal(fseek(f, -100, SEEK_END), 0);
    assert_int_not_equal(fputc(byte ^ 1, f), EOF);
    assert_int_equal(fclose(f), 0);
    assert_fails(HT_ERR_FORMAT, "checksum", ht_trainer_resume, t, path);
    assert_works(ht_trainer_save, t, path);
    o.batch = 3;
    not_resumed(model, &o, path, "batch 2, this run has 3");
    o = basic(write_data("other.jsonl", SAMPLES - 1));
    not_resumed(model, &o, path, "other data");
    o = basic(write_data("train.jsonl", SAMPLES));
    lora.targets = "q_proj";
    not_resumed(model, &o, path, "other targets");
    o = basic(write_data("train.jsonl", SAMPLES));
    lora.alpha = 8;
    not_resumed(model, &o, path, "scale 2, this run has 1");
    lora.rank = 4;
    not_resumed(model, &o, path, "rank 8, this run has 4");
    o = basic(write_data("train.jsonl", SAMPLES));
    ht_model *another = tiny_load(&(tiny_options){.type = HT_W_F32});
    not_resumed(another, &o, path, "another model");
    ht_model_free(another);
    assert_fails(HT_ERR_IO, "", ht_trainer_resume, t, scratch_path("none"));
    assert_fails(HT_ERR_FORMAT, "", ht_trainer_resume, t, scratch_path("train.jsonl"));
    assert_fails(HT_ERR_IO, "", ht_trainer_save, t, scratch_path("no/such/folder"));
    expect_same_bits(before, adapter_of(t));
    ht_trainer_free(t);
}

static int set_up(void **state) {
    const int failed = scratch_start(state);
    model = tiny_load(&(tiny_options){.type = HT_W_Q8_0});
    alone = tiny_load(&(tiny_options){.type = HT_W_Q8_0, .n_threads = 1});
    return failed;
}

static int tear_down(void **state) {
    ht_model_free(model);
    ht_model_free(alone);
    return scratch_finish(state);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(learns),
        cmocka_unit_test(steps_of_epochs),
        cmocka_unit_test(bf16_moves_as_f32),
        cmocka_unit_test(held_out_loss_is_of_every_sample_once),
        cmocka_unit_test(begins_as_the_model),
        cmocka_unit_test(the_same_bits_on_any_threads),
        cmocka_unit_test(resumes_with_the_same_bits),
        cmocka_unit_test(accumulates_as_one_batch),
        cmocka_unit_test(packs_without_leaks),
        cmocka_unit_test(checkpointing_changes_nothing),
        cmocka_unit_test(init_and_layers),
        cmocka_unit_test(diverges),
        cmocka_unit_test(the_time_of_a_template),
        cmocka_unit_test(bad_options),
        cmocka_unit_test(bad_checkpoints),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
