/* Gradients and steps of training against those of torch and PEFT (tests/golden/make_train.py), on tiny checkpoints of every
 * family, dense and quantised. */
#include "models/adapter.h"
#include "support/test.h"
#include "support/train_run.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const names[] = {"llama",           "llama-rslora",
                                    "llama-q4_1",      "llama-mlx4",
                                    "mistral-sliding", "qwen2",
                                    "qwen3",           "qwen3-moe",
                                    "gemma2",          "gemma3",
                                    "gemma4",          "gemma4-shared",
                                    "gemma4-k-is-v",   "gemma4-experts-router",
                                    "deepseek"};

enum { PATH_SIZE = 160, MOST_STEPS = 20 };

static const char *path_of(char path[PATH_SIZE], const char *name, const char *file) {
    snprintf(path, PATH_SIZE, "tests/golden/train/%s/%s", name, file);
    return path;
}

/* "norms", or losses by the type of A and B. */
static double golden_at(const train_run *r, const char *key, int i) {
    const ht_json *list = ht_json_object_get(r->document, key);
    assert_int_equal(ht_json_array_size(list), r->steps + 1);
    return ht_json_number_value(ht_json_array_get(list, (size_t)i));
}

/* |x - y| / |y| of n values. */
static double difference(const float *x, const float *y, int64_t n) {
    double apart = 0, norm = 0;
    for (int64_t i = 0; i < n; i++) {
        const double d = (double)x[i] - (double)y[i];
        apart += d * d;
        norm += (double)y[i] * (double)y[i];
    }
    return sqrt(apart / norm);
}

static void check_gradients(const char *name, const train_run *r, ht_model *m, bool checkpointing) {
    char path[PATH_SIZE];
    ht_adapter *wanted;
    ht_trainable *t = train_run_trainable(m, path_of(path, name, "adapter"), HT_F32);
    assert_works(ht_adapter_load, path_of(path, name, "gradients"), m, NULL, &wanted);
    const int n = ht_trainable_count(t);
    assert_int_equal(n, 2 * wanted->n);
    ht_array **grads = calloc((size_t)n, sizeof *grads);
    ht_scope *s = ht_scope_new(m->stream);
    const double loss = train_run_gradients(r, t, s, checkpointing, grads), want = golden_at(r, "f32", 0);
    if (!(fabs(loss - want) <= 1e-5 * want)) fail_msg("%s: loss %.8g, expected %.8g", name, loss, want);
    for (int i = 0; i < n; i++) {
        const ht_lora *l = &wanted->lora[i / 2];
        const int64_t size = ht_array_size(grads[i]);
        const char *parameter = ht_trainable_name(t, i);
        assert_memory_equal(parameter, l->slot, strlen(l->slot));
        assert_int_equal(size, (l->n_experts ? l->n_experts : 1) * l->rank * (i % 2 ? l->n_out : l->n_in));
        float *got = malloc((size_t)size * sizeof *got);
        assert_works(ht_array_read, s, grads[i], got, (size_t)size * sizeof *got);
        const double apart = difference(got, i % 2 ? l->b : l->a, size);
        if (!(apart <= 2e-5)) fail_msg("%s: the gradient by %s differs by %.2g of its norm", name, parameter, apart);
        free(got);
    }
    ht_scope_free(s);
    free(grads);
    ht_adapter_free(wanted);
    ht_trainable_free(t);
}

/* The loss before every step and after the last; norms of gradients as well when `norms`. */
static void check_steps(const char *name, const train_run *r, ht_model *m, ht_dtype dtype, bool checkpointing,
                        double limit, bool norms) {
    char path[PATH_SIZE];
    double loss[MOST_STEPS + 1], norm[MOST_STEPS + 1];
    assert_in_range(r->steps, 1, MOST_STEPS);
    ht_trainable *t = train_run_trainable(m, path_of(path, name, "adapter"), dtype);
    train_run_steps(r, t, m->stream, checkpointing, loss, norm);
    for (int i = 0; i <= r->steps; i++) {
        double want = golden_at(r, ht_dtype_name(dtype), i);
        if (!(fabs(loss[i] - want) <= limit * want))
            fail_msg("%s with %s A and B: loss %.7g after %d steps, expected %.7g", name, ht_dtype_name(dtype), loss[i],
                     i, want);
        want = golden_at(r, "norms", i);
        if (norms && !(fabs(norm[i] - want) <= 10 * limit * want))
            fail_msg("%s: norm %.7g of the gradients after %d steps, expected %.7g", name, norm[i], i, want);
    }
    ht_trainable_free(t);
}

/* Of each checkpoint the gradients and one kind of steps; all kinds in a soak. */
UNIT_TEST(torch_and_peft) {
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (TEST_SLOW && i % 3) continue; /* test_train_loss runs every family */
        char path[PATH_SIZE];
        train_run r = train_run_open(path_of(path, names[i], "train.json"));
        snprintf(path, sizeof path, "tests/golden/tiny/%s",
                 ht_json_string_value(ht_json_object_get(r.document, "base")));
        ht_model *m = train_run_model(path, HT_PRECISION_REFERENCE);
        const int64_t turn = (int64_t)i;
        for (int checkpointing = 0; checkpointing < 2; checkpointing++) {
            if (test_takes(turn + checkpointing, 2)) check_gradients(names[i], &r, m, checkpointing);
            if (test_takes(turn + 2 * checkpointing, 4))
                check_steps(names[i], &r, m, HT_F32, checkpointing, 1e-5, true);
        }
        if (test_takes(turn + 1, 4)) check_steps(names[i], &r, m, HT_BF16, false, 5e-3, false);
        ht_model_free(m);
        if (test_takes(turn + 3, 4)) {
            m = train_run_model(path, HT_PRECISION_HIGH);
            check_steps(names[i], &r, m, HT_F32, false, 1e-2, false);
            ht_model_free(m);
        }
        train_run_close(&r);
    }
}

/* `all-linear` is what PEFT trains by this name. */
UNIT_TEST(all_linear) {
    static const char *const of[] = {"llama", "gemma2"};
    for (size_t i = 0; i < sizeof of / sizeof *of; i++) {
        char path[PATH_SIZE];
        train_run r = train_run_open(path_of(path, of[i], "train.json"));
        snprintf(path, sizeof path, "tests/golden/tiny/%s",
                 ht_json_string_value(ht_json_object_get(r.document, "base")));
        ht_model *m = train_run_model(path, HT_PRECISION_REFERENCE);
        ht_trainable *peft = train_run_trainable(m, path_of(path, of[i], "adapter"), HT_F32), *own;
        ht_lora_options options;
        ht_lora_options_init(&options, sizeof options);
        options.targets = "all-linear";
        options.rank = 2;
        assert_works(ht_trainable_new, m, &options, &own);
        assert_int_equal(ht_trainable_parameters(own), ht_trainable_parameters(peft));
        assert_int_equal(ht_trainable_count(own), ht_trainable_count(peft));
        for (int k = 0; k < ht_trainable_count(own); k++)
            assert_string_equal(ht_trainable_name(own, k), ht_trainable_name(peft, k));
        ht_trainable_free(own);
        ht_trainable_free(peft);
        ht_model_free(m);
        train_run_close(&r);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(torch_and_peft), cmocka_unit_test(all_linear)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
