/* NVFP4 in safetensors as ModelOpt and compressed-tensors write it: the scale of the whole, and broken checkpoints with one
 * message each. Whole models are in test_golden_tiny.c. */
#include "base/error.h"
#include "checkpoint/scheme.h"
#include "support/safetensors_writer.h"
#include "support/scratch.h"
#include "support/test.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* One weight X of [2, 2 * bytes] with `groups` scales a row, and the scale of the whole under a name. */
typedef struct sample {
    const char *numbers, *type;
    int64_t bytes, groups;
    const char *whole, *whole_type;
    float value;
    const char *more; /* another tensor, or NULL */
} sample;

static ht_status open_sample(const sample *s, ht_checkpoint_files **c, ht_error *err) {
    static const char config[] = "{\"model_type\": \"llama\"}";
    safetensors_writer w = {0};
    char name[64];
    snprintf(name, sizeof name, "model.x.%s", s->numbers);
    safetensors_put(&w, name, s->type, 2, (int64_t[]){2, s->bytes}, NULL, 2 * (size_t)s->bytes);
    safetensors_put(&w, "model.x.weight_scale", "F8_E4M3", 2, (int64_t[]){2, s->groups}, NULL, 2 * (size_t)s->groups);
    snprintf(name, sizeof name, "model.x.%s", s->whole);
    bool f32 = !strcmp(s->whole_type, "F32");
    safetensors_put(&w, name, s->whole_type, 1, (int64_t[]){1}, f32 ? &s->value : NULL, f32 ? 4 : 2);
    if (s->more) safetensors_put(&w, s->more, "F32", 1, (int64_t[]){1}, NULL, 4);
    safetensors_write(&w, "model.safetensors");
    scratch_write("config.json", config, strlen(config));
    return ht_checkpoint_open(scratch_directory(), c, err);
}

#define MODELOPT   "weight", "U8", 32, 4, "weight_scale_2", "F32"
#define COMPRESSED "weight_packed", "U8", 32, 4, "weight_global_scale", "F32"

static void the_scale_of_the_whole(void **state) {
    (void)state;
    const struct {
        sample s;
        float expected; /* 0: an error */
        const char *part;
    } cases[] = {
        {{MODELOPT, 0.25f, NULL}, 0.25f, ""},
        {{COMPRESSED, 8.0f, NULL}, 0.125f, ""},
        {{MODELOPT, 0.0f, NULL}, 0, "`model.x.weight_scale_2` holds 0, expected positive numbers"},
        {{COMPRESSED, -1.0f, NULL}, 0, "holds -1, expected positive numbers"},
        {{COMPRESSED, INFINITY, NULL}, 0, "holds inf, expected positive numbers"},
        {{"weight", "U8", 32, 4, "weight_scale_2", "F16", 0, NULL}, 0, "is no single number in F32"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        ht_checkpoint_files *c;
        ht_stored_tensor t;
        ht_error err = {0};
        if (open_sample(&cases[i].s, &c, &err)) fail_msg("case %zu: %s", i, err.message);
        assert_true(ht_checkpoint_find(c, "model.x.weight", &t));
        assert_true(t.type == HT_W_NVFP4 && t.dims[0] == 2 && t.dims[1] == 64 && t.n_bytes == 72);
        float scale = 0;
        bool found;
        size_t number;
        ht_status status =
            ht_nvfp4_product_scales(c, &(ht_product_scales){"model.x.weight", 1, 0, 1}, &scale, &found, &number, &err);
        if (cases[i].expected != 0)
            assert_true(!status && found && scale == cases[i].expected);
        else if (status != HT_ERR_FORMAT || !strstr(err.message, cases[i].part))
            fail_msg("case %zu: status %d, \"%s\"", i, status, err.message);
        ht_error none = {0};
        assert_true(!ht_nvfp4_product_scales(c, &(ht_product_scales){"model.y.weight", 1, 0, 1}, &scale, &found,
                                             &number, &none) &&
                    !found);
        ht_checkpoint_close(c);
    }
}

/* Three experts in one tensor, [3, 4, 64], of which gate and up have two rows each. */
static ht_status open_stacked(bool modelopt, int n_dims, const int64_t *dims, const float *whole,
                              ht_checkpoint_files **c, ht_error *err) {
    static const char config[] = "{\"model_type\": \"qwen3_moe\"}";
    safetensors_writer w = {0};
    size_t n = 1;
    for (int i = 0; i < n_dims; i++) n *= (size_t)dims[i];
    safetensors_put(&w, modelopt ? "model.x" : "model.x.weight_packed", "U8", 3, (int64_t[]){3, 4, 32}, NULL, 384);
    safetensors_put(&w, modelopt ? "model.x_weight_scale" : "model.x.weight_scale", "F8_E4M3", 3, (int64_t[]){3, 4, 4},
                    NULL, 48);
    safetensors_put(&w, modelopt ? "model.x_weight_scale_2" : "model.x.weight_global_scale", "F32", n_dims, dims, whole,
                    4 * n);
    safetensors_write(&w, "model.safetensors");
    scratch_write("config.json", config, strlen(config));
    return ht_checkpoint_open(scratch_directory(), c, err);
}

static void experts_in_one_tensor(void **state) {
    (void)state;
    static const float values[12] = {1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048};
    static const struct {
        int n_dims;
        int64_t dims[3];
        float gate[3], up[3]; /* ModelOpt's; 0: refused */
    } cases[] = {
        {0, {0}, {1, 1, 1}, {1, 1, 1}},
        {1, {1}, {1, 1, 1}, {1, 1, 1}},
        {1, {3}, {1, 2, 4}, {1, 2, 4}},
        {3, {3, 1, 1}, {1, 2, 4}, {1, 2, 4}},
        {2, {3, 2}, {1, 4, 16}, {2, 8, 32}},
        {3, {3, 2, 1}, {1, 4, 16}, {2, 8, 32}},
        {1, {2}, {0}, {0}},
        {1, {6}, {0}, {0}},
        {2, {2, 3}, {0}, {0}},
        {2, {3, 4}, {0}, {0}},
    };
    for (size_t i = 0; i < 2 * (sizeof cases / sizeof *cases); i++) {
        const size_t k = i / 2;
        const bool modelopt = i % 2;
        const char *name = modelopt ? "model.x" : "model.x.weight";
        ht_checkpoint_files *c;
        ht_stored_tensor t;
        ht_error err = {0};
        if (open_stacked(modelopt, cases[k].n_dims, cases[k].dims, values, &c, &err)) fail_msg("%s", err.message);
        assert_true(ht_checkpoint_find(c, name, &t));
        assert_true(t.type == HT_W_NVFP4 && t.n_dims == 3 && t.dims[1] == 4 && t.dims[2] == 64 && t.n_bytes == 432);
        for (int share = 0; share < 2; share++) {
            float scales[3] = {0};
            const float *expected = share ? cases[k].up : cases[k].gate;
            bool found;
            size_t number;
            ht_status status =
                ht_nvfp4_product_scales(c, &(ht_product_scales){name, 3, share, 2}, scales, &found, &number, &err);
            if (expected[0] == 0) {
                assert_error(status, &err, HT_ERR_FORMAT, "is no single number in F32, nor one for each expert");
            } else
                for (int e = 0; e < 3; e++)
                    assert_true(!status && found && scales[e] == (modelopt ? expected[e] : 1 / expected[e]));
        }
        ht_checkpoint_close(c);
    }
}

static void broken_checkpoints(void **state) {
    (void)state;
    const struct {
        sample s;
        ht_status status;
        const char *part;
    } cases[] = {
        {{"weight", "U8", 32, 5, "weight_scale_2", "F32", 1, NULL},
         HT_ERR_FORMAT,
         "`model.x.weight_scale` is not [2, 4], a scale for 16 columns of `model.x.weight`"},
        {{"weight_packed", "U8", 32, 2, "weight_global_scale", "F32", 1, NULL}, HT_ERR_FORMAT, "is not [2, 4]"},
        {{"weight", "U8", 24, 3, "weight_scale_2", "F32", 1, NULL},
         HT_ERR_UNSUPPORTED,
         "has rows of 48 columns; NVFP4 is read in multiples of 64"},
        {{MODELOPT, 1, "model.x.pre_quant_scale"},
         HT_ERR_UNSUPPORTED,
         "`model.x.pre_quant_scale` scales what is multiplied by `model.x.weight`"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        ht_checkpoint_files *c;
        ht_error err = {0};
        ht_status status = open_sample(&cases[i].s, &c, &err);
        if (status != cases[i].status || c || !strstr(err.message, cases[i].part))
            fail_msg("case %zu: status %d, \"%s\" lacks \"%s\"", i, status, err.message, cases[i].part);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {in_scratch(the_scale_of_the_whole), in_scratch(experts_in_one_tensor),
                                       in_scratch(broken_checkpoints)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
