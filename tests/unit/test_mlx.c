/* MLX-quantised safetensors: every type against what mlx makes of it (tests/golden/make_mlx.py), rows of it wherever they are
 * cut, and broken checkpoints with one message each. Whole models are in test_golden_tiny.c. */
#include "base/error.h"
#include "checkpoint/scheme.h"
#include "formats/affine.h"
#include "formats/json.h"
#include "models/pack.h"
#include "support/safetensors_writer.h"
#include "support/scratch.h"
#include "support/test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char types[] = "tests/golden/mlx-types";
enum { ROWS = 2, COLUMNS = 128, N = ROWS * COLUMNS };

static uint32_t crc32_of(const void *bytes, size_t n) {
    uint32_t crc = ~0u;
    for (size_t i = 0; i < n; i++) {
        crc ^= ((const unsigned char *)bytes)[i];
        for (int b = 0; b < 8; b++) crc = (crc >> 1) ^ (crc & 1 ? 0xEDB88320u : 0);
    }
    return ~crc;
}

/* Its values; those of mxfp8 with the scales beside them. */
static void read_values(const ht_checkpoint_files *c, const char *name, const ht_stored_tensor *t, float values[N]) {
    ht_error err = {0};
    if (ht_tensor_read_f32(t, N, values, &err)) fail_msg("%s: %s", name, err.message);
    if (t->type != HT_W_F8_E4M3) return;
    ht_fp8_scales scales;
    ht_block_scales read;
    if (ht_fp8_scales_find(c, name, 0, ROWS, COLUMNS, &scales, &err) ||
        ht_fp8_scales_read(&scales, 0, 0, ROWS, &read, &err))
        fail_msg("%s: %s", name, err.message);
    assert_true(scales.any && read.rows == 1 && read.columns == 32);
    for (int i = 0; i < N; i++) values[i] *= read.values[i / 32];
    free(read.values);
}

static void values_equal_mlx(void **state) {
    (void)state;
    ht_checkpoint_files *c;
    ht_error err = {0};
    ht_json *golden, *value;
    char path[256];
    snprintf(path, sizeof path, "%s/values.json", types);
    if (ht_json_read(path, 1 << 20, &golden, &err) || ht_checkpoint_open(types, &c, &err)) fail_msg("%s", err.message);
    const char *name;
    int n = 0;
    ht_json_object_foreach(ht_json_object_get(golden, "values"), name, value) {
        ht_stored_tensor t;
        float values[N];
        snprintf(path, sizeof path, "%s.weight", name);
        assert_true(ht_checkpoint_find(c, path, &t));
        assert_true(t.n_dims == 2 && t.dims[0] == ROWS && t.dims[1] == COLUMNS);
        read_values(c, path, &t, values);
        uint32_t crc = crc32_of(values, sizeof values);
        if (crc != (uint32_t)ht_json_integer_value(value)) fail_msg("%s: the values are others", name);
        n++;
    }
    assert_int_equal(n, 54 + 3);
    /* What the weights are joined from is not counted again. */
    size_t bytes = 0;
    for (size_t i = 0; i < ht_checkpoint_n_tensors(c); i++) {
        ht_stored_tensor t;
        ht_checkpoint_tensor_at(c, i, &t);
        bytes += t.n_bytes;
        if (t.n_dims == 1) assert_true(t.dims[0] == 0 && t.n_bytes == 0);
    }
    size_t stored = 0;
    for (size_t i = 0; i < ht_safetensors_count(c->tensors); i++) stored += ht_safetensors_at(c->tensors, i)->n_bytes;
    assert_true(bytes == stored);
    ht_checkpoint_close(c);
    ht_json_decref(golden);
}

/* Some rows of a tensor, and a table in the file, give what the whole does. */
static void rows_and_tables(void **state) {
    (void)state;
    static const char *const names[] = {"model.b3_32_bfloat16.weight", "model.b6_128_float32.weight",
                                        "model.mxfp4.weight", "model.nvfp4.weight"};
    ht_checkpoint_files *c;
    ht_error err = {0};
    if (ht_checkpoint_open(types, &c, &err)) fail_msg("%s", err.message);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        ht_stored_tensor t;
        float whole[N], row[COLUMNS];
        assert_true(ht_checkpoint_find(c, names[i], &t));
        read_values(c, names[i], &t, whole);
        ht_stored_tensor second = ht_tensor_rows(&t, 1, 1);
        assert_true(second.dims[0] == 1 && second.dims[1] == COLUMNS && 2 * second.n_bytes == t.n_bytes);
        assert_int_equal(ht_tensor_read_f32(&second, COLUMNS, row, &err), HT_OK);
        assert_memory_equal(row, whole + COLUMNS, sizeof row);
        ht_matrix *m;
        assert_int_equal(ht_file_rows_new(&t, &m, &err), HT_OK);
        for (int r = ROWS - 1; r >= 0; r--) {
            assert_int_equal(m->ops->row(m, r, row, &err), HT_OK);
            assert_memory_equal(row, whole + r * COLUMNS, sizeof row);
        }
        ht_file_rows_free(m);
    }
    ht_checkpoint_close(c);
}

/* Numbers of every width, in both directions. */
static void numbers_of_any_width(void **state) {
    (void)state;
    for (int bits = 2; bits <= 8; bits++)
        for (int i = 0; i < 8; i++) {
            uint8_t bytes[8] = {0};
            uint64_t numbers = (uint64_t)((1 << bits) - 1) << 8 * i | (uint64_t)1 << 8 * (7 - i);
            ht_affine_gather(bits, numbers, bytes);
            for (int b = 0; b < 8 * bits; b++) {
                int expected = (int)(numbers >> (8 * (b / bits) + b % bits) & 1);
                assert_int_equal(bytes[b / 8] >> b % 8 & 1, expected);
            }
            assert_true(ht_affine_spread(bits, bytes) == numbers);
        }
}

/* ---- broken ones ---- */

/* One weight X of [4, 64] with its parts as given; a NULL type leaves a part out. */
typedef struct sample {
    const char *config; /* the whole of config.json */
    const char *weight, *scales, *biases;
    int64_t words, n_scales, n_biases; /* per row */
} sample;

static void put(safetensors_writer *w, const char *name, const char *type, int64_t per_row) {
    size_t bytes = !strcmp(type, "U32") || !strcmp(type, "F32") ? 4 : !strcmp(type, "U8") ? 1 : 2;
    if (*type) safetensors_put(w, name, type, 2, (int64_t[]){4, per_row}, NULL, 4 * (size_t)per_row * bytes);
}

static ht_status open_sample(const sample *s, ht_error *err) {
    safetensors_writer w = {0};
    put(&w, "model.x.weight", s->weight, s->words);
    put(&w, "model.x.scales", s->scales, s->n_scales);
    put(&w, "model.x.biases", s->biases, s->n_biases);
    safetensors_write(&w, "model.safetensors");
    scratch_write("config.json", s->config, strlen(s->config));
    ht_checkpoint_files *c;
    ht_status status = ht_checkpoint_open(scratch_directory(), &c, err);
    ht_checkpoint_close(c);
    return status;
}

#define WAY(text) "{\"model_type\": \"llama\", \"quantization\": {" text "}}"
#define FOUR      WAY("\"bits\": 4, \"group_size\": 64")
#define GROUPS    "U32", "F16", "F16", 8, 1, 1 /* of 64 columns in 4 bits */
/* A config.json with which such parts are read; and with which others, or they, are refused, and how. */
#define FINE(config)                                                                                                   \
    { {config, GROUPS}, HT_OK, "" }
#define BAD(...) BAD_(__VA_ARGS__)
#define BAD_(config, w, s, b, nw, ns, nb, how, m)                                                                      \
    { {config, w, s, b, nw, ns, nb}, HT_ERR_##how, m }

static void broken_checkpoints(void **state) {
    (void)state;
    const struct {
        sample s;
        ht_status status;
        const char *part; /* of the message */
    } cases[] = {
        FINE(FOUR),
        FINE(WAY("\"bits\": 8, \"group_size\": 32, \"model.x\": {\"bits\": 4, \"group_size\": 64}")),
        FINE(WAY("\"bits\": 4, \"group_size\": 64, \"model.x\": true, \"model.y\": {\"bits\": 1}")),
        FINE("{\"quantization_config\": {\"bits\": 4, \"group_size\": 64}}"),
        BAD(FOUR, "U32", "", "F16", 8, 1, 1, FORMAT, "`model.x.scales` is missing"),
        BAD(FOUR, "U32", "F16", "", 8, 1, 1, FORMAT, "`model.x.biases` is missing"),
        BAD(FOUR, "", "F16", "F16", 8, 1, 1, FORMAT, "`model.x.weight` is missing"),
        BAD(FOUR, "U32", "F16", "F16", 9, 1, 1, FORMAT, "`model.x.scales` is [4, 1], which does not go with"),
        BAD(FOUR, "U32", "F16", "F16", 8, 2, 1, FORMAT, "`model.x.scales` is [4, 2], which does not go with"),
        BAD(FOUR, "U32", "F16", "F16", 8, 1, 2, FORMAT, "`model.x.biases` is [4, 2], which does not go with"),
        BAD(FOUR, "U32", "F16", "BF16", 8, 1, 1, FORMAT, "`model.x.biases` is of type BF16, expected F16"),
        BAD(FOUR, "U32", "U8", "U8", 8, 1, 1, UNSUPPORTED, "of type U8, expected F32, F16 or BF16"),
        BAD(WAY("\"bits\": 5, \"group_size\": 64"), GROUPS, FORMAT, "holds no rows of 5-bit numbers"),
        BAD(WAY("\"bits\": 7, \"group_size\": 64"), "U32", "F16", "F16", 14, 1, 1, UNSUPPORTED,
            "7 bits in groups of 64 are not supported"),
        BAD(WAY("\"bits\": 4, \"group_size\": 16"), "U32", "F16", "F16", 8, 4, 4, UNSUPPORTED,
            "4 bits in groups of 16 are not supported"),
        BAD(WAY("\"bits\": 4, \"group_size\": 32, \"mode\": \"mxfp4\""), "U32", "F16", "", 8, 2, 1, FORMAT,
            "of type F16, expected U8"),
        BAD(WAY("\"bits\": 4, \"group_size\": 64, \"mode\": \"mxfp4\""), "U32", "U8", "", 8, 1, 1, FORMAT,
            "mxfp4 has 4 bits in groups of 32"),
        BAD(WAY("\"bits\": 4, \"group_size\": 64, \"mode\": \"zip\""), GROUPS, UNSUPPORTED,
            "the mode `zip` is not supported"),
        BAD(WAY("\"bits\": 4, \"group_size\": 64, \"model.x\": {\"bits\": 1}"), GROUPS, UNSUPPORTED,
            "`model.x`: 1 bits"),
        BAD(WAY("\"bits\": 4, \"group_size\": 64, \"model.x\": false"), GROUPS, FORMAT,
            "`model.x` is not to be quantised"),
        BAD(WAY("\"bits\": \"4\", \"group_size\": 64"), GROUPS, FORMAT, "`bits` is"),
        BAD(WAY("\"bits\": -4, \"group_size\": 0"), GROUPS, UNSUPPORTED, "-4 bits"),
        BAD("{\"model_type\": \"llama\"}", GROUPS, FORMAT, "has no `quantization`"),
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        ht_error err = {0};
        ht_status status = open_sample(&cases[i].s, &err);
        if (status != cases[i].status || !strstr(err.message, cases[i].part))
            fail_msg("case %zu: status %d, \"%s\" lacks \"%s\"", i, status, err.message, cases[i].part);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(values_equal_mlx), cmocka_unit_test(rows_and_tables),
                                       cmocka_unit_test(numbers_of_any_width), in_scratch(broken_checkpoints)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
