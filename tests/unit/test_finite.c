/* Values that are no finite numbers are found in weights of every type. */
#include "base/half.h"
#include "formats/affine.h"
#include "formats/blocks.h"
#include "formats/finite.h"
#include "support/test.h"
#include "support/weights.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { COLUMNS = 4 * HT_BLOCK_K };

/* What is said of the scales agrees with the values, whatever bytes there are: every byte of a block is one of several. */
static void agree(ht_weight_type type, const unsigned char *blocks, int64_t want) {
    float value = 0;
    const int64_t first = ht_first_not_finite(type, blocks, COLUMNS, &value);
    if (first != want || ht_is_finite(type, blocks, COLUMNS) != (want < 0) || (first >= 0 && isfinite(value)))
        fail_msg("%s: first %lld, expected %lld, value %g", ht_weight_type_info_of(type)->name, (long long)first,
                 (long long)want, (double)value);
}

static int64_t first_by_values(ht_weight_type type, const unsigned char *blocks) {
    static float x[COLUMNS];
    ht_dequantize(type, blocks, COLUMNS, x);
    for (int64_t i = 0; i < COLUMNS; i++)
        if (!isfinite(x[i])) return i;
    return -1;
}

UNIT_TEST(every_type) {
    static const uint8_t values[] = {0x00, 0x7C, 0x7E, 0x7F, 0x80, 0xFC, 0xFF};
    uint64_t seed = 5;
    for (int i = 0; i < HT_W_COUNT; i++) {
        const ht_weight_type type = (ht_weight_type)i;
        const ht_weight_type_info *info = ht_weight_type_info_of(type);
        const size_t n = test_row_bytes(type, COLUMNS), block = info->block_bytes;
        unsigned char *blocks = malloc(n);
        assert_non_null(blocks);
        test_random_weights(type, 1, COLUMNS, &seed, blocks);
        int64_t first = first_by_values(type, blocks);
        agree(type, blocks, first);
        int n_bad = 0;
        /* All bytes of some block in the middle, by pairs, which hold the upper byte of every float. */
        for (size_t at = n / block / 2 * block, k = 0; k < block; k++)
            for (size_t v = 0; v < sizeof values; v++) {
                unsigned char was[4];
                const size_t pair = k + 1 < block ? 2 : 1;
                memcpy(was, blocks + at + k, pair);
                blocks[at + k] = values[v];
                if (pair == 2) blocks[at + k + 1] = values[(v + 1) % sizeof values];
                first = first_by_values(type, blocks);
                agree(type, blocks, first);
                n_bad += first >= 0;
                memcpy(blocks + at + k, was, pair);
            }
        if ((n_bad > 0) != (type != HT_W_NVFP4)) /* all of whose scales are numbers */
            fail_msg("%s: %d changes make values that are not finite", info->name, n_bad);
        free(blocks);
    }
}

/* The first, and the last, of many. */
UNIT_TEST(places_are_found) {
    static float x[COLUMNS];
    static const int64_t places[] = {0, 1, 255, 256, 511, COLUMNS - 1};
    agree(HT_W_F32, (const unsigned char *)x, -1);
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        x[places[i]] = i % 2 ? -INFINITY : NAN;
        agree(HT_W_F32, (const unsigned char *)x, places[i]);
        x[places[i]] = 3e38f;
        agree(HT_W_F32, (const unsigned char *)x, -1);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_type), cmocka_unit_test(places_are_found)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
