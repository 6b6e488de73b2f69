/* What a quantization_config says of 8-bit floats and NVFP4: what is read from it, and what is refused by name. Whole models
 * are in test_golden_tiny.c. */
#include "checkpoint/scheme.h"
#include "support/json_file.h"
#include "support/test.h"

#include <stdio.h>
#include <string.h>

static ht_status read_config(const char *inside, ht_quantized *out, ht_error *err) {
    char text[1024];
    ht_json *root;
    snprintf(text, sizeof text, "{\"quantization_config\": %s}", json_quoted(inside));
    assert_int_equal(ht_json_parse(text, strlen(text), "config.json", &root, err), HT_OK);
    ht_json_reader r = {.file = "config.json", .err = err};
    *out = ht_quantized_read(&r, root);
    ht_json_decref(root);
    return r.status;
}

#define COMPRESSED(format, groups)                                                                                     \
    "{'quant_method': 'compressed-tensors', 'format': '" format "', 'config_groups': {" groups "}}"
#define GROUP(name, more, weights) "'" name "': {" more "'weights': {'num_bits': 8, " weights "}}"
#define FORMAT(name)               "'format': " name ", "

UNIT_TEST(what_is_read) {
    static const struct {
        const char *inside, *scale;
        int64_t block[2];
    } cases[] = {
        {"null", NULL, {0, 0}},
        {"{'bits': 4, 'group_size': 64}", NULL, {0, 0}}, /* MLX's */
        {"{'quant_method': 'fp8'}", "_scale_inv", {0, 0}},
        {"{'quant_method': 'fp8', 'weight_block_size': null}", "_scale_inv", {0, 0}},
        {"{'quant_method': 'fp8', 'weight_block_size': [128, 64]}", "_scale_inv", {128, 64}},
        {"{'quant_method': 'fbgemm_fp8'}", "_scale", {0, 0}},
        {"{'quant_method': 'modelopt', 'quant_algo': 'FP8'}", "_scale", {0, 0}},
        {"{'quant_method': 'modelopt', 'quant_algo': 'MIXED_PRECISION', 'quantized_layers': {'a': {'quant_algo': "
         "'FP8'}, 'b': {'quant_algo': 'NVFP4', 'group_size': 16}}}",
         "_scale",
         {0, 0}},
        {COMPRESSED("naive-quantized", GROUP("a", "", "'strategy': 'tensor', 'block_structure': null")),
         "_scale",
         {0, 0}},
        {COMPRESSED("float-quantized", GROUP("a", "", "'strategy': 'block', 'block_structure': [128, 96]")),
         "_scale",
         {128, 96}},
        {COMPRESSED("float-quantized", GROUP("a", "", "'strategy': 'group', 'group_size': 32")), "_scale", {1, 32}},
        {COMPRESSED("mixed-precision",
                    GROUP("a", FORMAT("'float-quantized'"), "'block_structure': [4, 8]") ", " GROUP(
                        "b", FORMAT("'float-quantized'"),
                        "'strategy': 'channel'") ", 'c': {'format': 'nvfp4-pack-quantized', 'weights': {'num_bits': 4, "
                                                 "'strategy': 'tensor_group', 'group_size': 16}}"),
         "_scale",
         {4, 8}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        ht_quantized q;
        ht_error err = {0};
        if (read_config(cases[i].inside, &q, &err)) fail_msg("case %zu: %s", i, err.message);
        if (!q.scale != !cases[i].scale || (q.scale && strcmp(q.scale, cases[i].scale) != 0) ||
            memcmp(q.block, cases[i].block, sizeof q.block) != 0)
            fail_msg("case %zu: %s, [%lld, %lld]", i, q.scale ? q.scale : "-", (long long)q.block[0],
                     (long long)q.block[1]);
    }
}

UNIT_TEST(what_is_refused) {
    static const struct {
        const char *inside;
        ht_status status;
        const char *part;
    } cases[] = {
        {"{}", HT_ERR_UNSUPPORTED, "`an unnamed method`"},
        {"{'quant_method': 'awq'}", HT_ERR_UNSUPPORTED, "`awq` are not supported"},
        {"{'quant_method': 3}", HT_ERR_FORMAT, "`quant_method` is 3"},
        {"{'quant_method': 'fp8', 'weight_block_size': [128, 0]}", HT_ERR_FORMAT, "expected two numbers"},
        {"{'quant_method': 'fp8', 'weight_block_size': [128]}", HT_ERR_FORMAT, "expected two numbers"},
        {"{'quant_method': 'modelopt', 'quant_algo': 'W4A8_AWQ'}", HT_ERR_UNSUPPORTED, "as W4A8_AWQ are not"},
        {"{'quant_method': 'modelopt', 'quant_algo': 'MIXED_PRECISION', 'quantized_layers': {'a': {'quant_algo': "
         "'W4A16_AWQ'}}}",
         HT_ERR_UNSUPPORTED, "as W4A16_AWQ are not"},
        {COMPRESSED("pack-quantized", ""), HT_ERR_UNSUPPORTED, "as pack-quantized are not"},
        {COMPRESSED("mixed-precision", GROUP("a", FORMAT("'pack-quantized'"), "'strategy': 'group'")),
         HT_ERR_UNSUPPORTED, "as pack-quantized are not"},
        {COMPRESSED("float-quantized", GROUP("a", "", "'symmetric': false")), HT_ERR_UNSUPPORTED,
         "as float-quantized with zero points are not"},
        {COMPRESSED("float-quantized", GROUP("a", "", "'actorder': 'group'")), HT_ERR_UNSUPPORTED,
         "in an order of their own are not"},
        {COMPRESSED("float-quantized",
                    GROUP("a", "", "'block_structure': [4, 8]") ", " GROUP("b", "", "'block_structure': [8, 8]")),
         HT_ERR_UNSUPPORTED, "blocks of 4 by 8 and of 8 by 8; one size is supported"},
        {"{'quant_method': 'compressed-tensors', 'format': 'float-quantized', 'sparsity_config': {'format': "
         "'sparse-24-bitmask'}}",
         HT_ERR_UNSUPPORTED, "as sparse-24-bitmask are not"},
        {"{'quant_method': 'compressed-tensors', 'format': 'float-quantized', 'transform_config': {'a': 1}}",
         HT_ERR_UNSUPPORTED, "with a transform_config are not"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        ht_quantized q;
        ht_error err = {0};
        ht_status status = read_config(cases[i].inside, &q, &err);
        if (status != cases[i].status || !strstr(err.message, cases[i].part))
            fail_msg("case %zu: status %d, \"%s\" lacks \"%s\"", i, status, err.message, cases[i].part);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(what_is_read), cmocka_unit_test(what_is_refused)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
