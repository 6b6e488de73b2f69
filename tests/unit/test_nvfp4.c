/* NVFP4 in safetensors as ModelOpt and compressed-tensors write it: the scale of the whole, and broken checkpoints with one
 * message each. Whole models are in test_golden_tiny.c. */
#include "base/error.h"
#include "models/nvfp4.h"
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
    size_t size;
    unsigned char *file = safetensors_finish(&w, &size);
    scratch_write("model.safetensors", file, size);
    scratch_write("config.json", config, strlen(config));
    free(file);
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
        {{MODELOPT, 0.0f, NULL}, 0, "`model.x.weight_scale_2` is 0, expected a positive number"},
        {{COMPRESSED, -1.0f, NULL}, 0, "is -1, expected a positive number"},
        {{COMPRESSED, INFINITY, NULL}, 0, "is inf, expected a positive number"},
        {{"weight", "U8", 32, 4, "weight_scale_2", "F16", 0, NULL}, 0, "is no single number in F32"},
    };
    scratch_make();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        ht_checkpoint_files *c;
        ht_stored t;
        ht_error err = {0};
        if (open_sample(&cases[i].s, &c, &err)) fail_msg("case %zu: %s", i, err.message);
        assert_true(ht_checkpoint_find(c, "model.x.weight", &t));
        assert_true(t.type == HT_W_NVFP4 && t.dims[0] == 2 && t.dims[1] == 64 && t.n_bytes == 72);
        float scale = 0;
        bool found;
        ht_status status = ht_nvfp4_whole_scale(c, "model.x.weight", &scale, &found, &err);
        if (cases[i].expected != 0)
            assert_true(!status && found && scale == cases[i].expected);
        else if (status != HT_ERR_FORMAT || found || !strstr(err.message, cases[i].part))
            fail_msg("case %zu: status %d, \"%s\"", i, status, err.message);
        ht_error none = {0};
        assert_true(!ht_nvfp4_whole_scale(c, "model.y.weight", &scale, &found, &none) && !found);
        ht_checkpoint_close(c);
    }
    scratch_remove();
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
    scratch_make();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        ht_checkpoint_files *c;
        ht_error err = {0};
        ht_status status = open_sample(&cases[i].s, &c, &err);
        if (status != cases[i].status || c || !strstr(err.message, cases[i].part))
            fail_msg("case %zu: status %d, \"%s\" lacks \"%s\"", i, status, err.message, cases[i].part);
    }
    scratch_remove();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_scale_of_the_whole),
        cmocka_unit_test(broken_checkpoints),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
