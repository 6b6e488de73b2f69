/* Yardsticks: what is measured is there and makes sense, and a model's cost is that of its matrices. */
#include "cpu/matrix.h"
#include "device/device.h"
#include "support/options.h"
#include "support/scratch.h"
#include "support/test.h"
#include "support/tiny_model.h"

#include <hearth/measure.h>

#include <string.h>

static int setup(void **state) {
    (void)state;
    scratch_make();
    return 0;
}

static ht_device *open_device(const char *set) {
    ht_device *d;
    ht_error err = {0};
    if (ht_device_open("cpu", OPTIONS_AT(ht_device_options, with.n_threads = 2, with.instruction_set = set), &d, &err))
        fail_msg("%s", err.message);
    return d;
}

UNIT_TEST(the_best_set_is_the_one_used) {
    int n, best = 0;
    const ht_instruction_set *sets = ht_instruction_sets(&n);
    ht_device *d = open_device(NULL);
    for (int i = 0; i < n; i++) {
        assert_true(*sets[i].name && *sets[i].needs);
        best += sets[i].best;
        if (sets[i].best) assert_string_equal(sets[i].name, ht_device_instruction_set(d));
        bool usable = sets[i].built_in && sets[i].machine_has;
        ht_device *other;
        ht_error err = {0};
        ht_device_options how = OPTIONS(ht_device_options, with.n_threads = 1, with.instruction_set = sets[i].name);
        assert_int_equal(ht_device_open("cpu", &how, &other, &err), usable ? HT_OK : HT_ERR_UNSUPPORTED);
        ht_device_free(other);
    }
    assert_int_equal(best, 1);
    ht_device_free(d);
}

UNIT_TEST(every_set_measures_itself) {
    int n;
    const ht_instruction_set *sets = ht_instruction_sets(&n);
    for (int i = 0; i < n; i++) {
        if (!sets[i].built_in || !sets[i].machine_has) continue;
        ht_device *d = open_device(sets[i].name);
        ht_meter *m;
        assert_works(ht_meter_new, d, (3 << 20) + 100, &m);
        ht_device_free(d); /* the meter holds it */
        assert_true(ht_meter_read(m, 0.002) > 1e6);
        assert_true(ht_meter_compute(m, HT_ARITHMETIC_INT8, 0.002) > 1e6);
        assert_true(ht_meter_compute(m, HT_ARITHMETIC_F32, 0.002) > 1e6);
        assert_true(ht_meter_compute(m, HT_ARITHMETIC_INT16, 0.002) >= 0);
        assert_true(ht_meter_compute(m, HT_ARITHMETIC_F16, 0.002) == 0);
        ht_meter_free(m);
    }
    ht_meter_free(NULL);
}

UNIT_TEST(a_meter_without_memory_only_computes) {
    ht_device *d = open_device(NULL);
    ht_meter *m;
    ht_error err = {0};
    assert_int_equal(ht_meter_new(d, 0, &m, &err), HT_OK);
    assert_true(ht_meter_read(m, 0.001) == 0);
    assert_true(ht_meter_compute(m, HT_ARITHMETIC_INT8, 0.001) > 0);
    ht_meter_free(m);
    const ht_measure_ops *measure = d->measure;
    d->measure = NULL; /* as a device that cannot */
    assert_int_equal(ht_meter_new(d, 0, &m, &err), HT_ERR_UNSUPPORTED);
    assert_null(m);
    d->measure = measure;
    ht_device_free(d);
}

UNIT_TEST(measuring_leaves_no_memory) {
    ht_device *d = open_device(NULL);
    size_t before = ht_memory_get(NULL).active_bytes;
    ht_meter *m;
    ht_error err = {0};
    assert_int_equal(ht_meter_new(d, 5 << 20, &m, &err), HT_OK);
    assert_true(ht_memory_get(NULL).active_bytes >= before + (5 << 20));
    ht_meter_free(m);
    assert_int_equal(ht_memory_get(NULL).active_bytes, before);
    size_t limit = ht_memory_set_limit(NULL, before + (1 << 20));
    assert_int_equal(ht_meter_new(d, 5 << 20, &m, &err), HT_ERR_MEMORY);
    assert_null(m);
    ht_memory_set_limit(NULL, limit);
    ht_device_free(d);
}

/* The embedding is looked up in a table that is not the head, so it is no part of what a token reads. */
UNIT_TEST(a_cost_is_that_of_the_matrices) {
    for (int quantised = 0; quantised < 2; quantised++) {
        ht_model *m = tiny_load(&(tiny_options){.type = quantised ? HT_W_Q8_0 : HT_W_F32});
        ht_model_info *info;
        assert_works(ht_model_info_read, scratch_path("tiny.gguf"), &info);
        int64_t q = info->n_heads * info->head_dim, kv = info->n_kv_heads * info->head_dim;
        int64_t layer = info->hidden * (2 * q + 2 * kv + 3 * info->feed_forward);
        int64_t products = info->n_layers * layer, head = TINY_VOCAB * info->hidden;
        /* 15 bits are two bytes where there are no products of words. */
        const ht_arithmetic high =
            ht_cpu_multiplies_words(ht_cpu_isa_best()) ? HT_ARITHMETIC_INT16 : HT_ARITHMETIC_INT8;
        const ht_arithmetic used = quantised ? high : HT_ARITHMETIC_F32;
        const int planes = used == HT_ARITHMETIC_INT8 ? 2 : 1;
        for (int a = 0; a < HT_ARITHMETICS; a++) {
            assert_int_equal(ht_model_layer_products(m, (ht_arithmetic)a), a == (int)used ? planes * products : 0);
            assert_int_equal(ht_model_head_products(m, (ht_arithmetic)a), a == (int)used ? planes * head : 0);
        }
        int64_t stored = quantised ? (products + head) / 32 * 34 : (products + head) * 4;
        assert_in_range(ht_model_token_bytes(m, false), stored, stored + stored * 3 / 100);
        assert_int_equal(ht_model_token_bytes(m, true),
                         ht_model_token_bytes(m, false)); /* too small a head to be split */
        ht_model_info_free(info);
        ht_model_free(m);
    }
}

UNIT_TEST(arithmetics_have_names) {
    assert_string_equal(ht_arithmetic_name(HT_ARITHMETIC_INT8), "int8");
    assert_string_equal(ht_arithmetic_name(HT_ARITHMETIC_INT16), "int16");
    assert_string_equal(ht_arithmetic_name(HT_ARITHMETIC_F32), "f32");
    assert_string_equal(ht_arithmetic_name(HT_ARITHMETIC_F16), "f16");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_best_set_is_the_one_used),         cmocka_unit_test(every_set_measures_itself),
        cmocka_unit_test(a_meter_without_memory_only_computes), cmocka_unit_test(measuring_leaves_no_memory),
        cmocka_unit_test(a_cost_is_that_of_the_matrices),       cmocka_unit_test(arithmetics_have_names),
    };
    return cmocka_run_group_tests(tests, setup, scratch_finish);
}
