/* Where two dtypes meet, as MLX 0.31 answers for the sum of two arrays. */
#include "support/test.h"

#include <hearth/dtype.h>

#include <string.h>

enum { B = HT_BOOL, F = HT_F32 };

static const int meeting[HT_DTYPE_COUNT - HT_BOOL][HT_DTYPE_COUNT - HT_BOOL] = {
#define U8  HT_U8
#define U16 HT_U16
#define U32 HT_U32
#define U64 HT_U64
#define I8  HT_I8
#define I16 HT_I16
#define I32 HT_I32
#define I64 HT_I64
#define H   HT_F16
#define BF  HT_BF16
#define D   HT_F64
    {B, U8, U16, U32, U64, I8, I16, I32, I64, H, BF, F, D},
    {U8, U8, U16, U32, U64, I16, I16, I32, I64, H, BF, F, D},
    {U16, U16, U16, U32, U64, I32, I32, I32, I64, H, BF, F, D},
    {U32, U32, U32, U32, U64, I64, I64, I64, I64, H, BF, F, D},
    {U64, U64, U64, U64, U64, F, F, F, F, H, BF, F, D},
    {I8, I16, I32, I64, F, I8, I16, I32, I64, H, BF, F, D},
    {I16, I16, I32, I64, F, I16, I16, I32, I64, H, BF, F, D},
    {I32, I32, I32, I64, F, I32, I32, I32, I64, H, BF, F, D},
    {I64, I64, I64, I64, F, I64, I64, I64, I64, H, BF, F, D},
    {H, H, H, H, H, H, H, H, H, H, F, F, D},
    {BF, BF, BF, BF, BF, BF, BF, BF, BF, F, BF, F, D},
    {F, F, F, F, F, F, F, F, F, F, F, F, D},
    {D, D, D, D, D, D, D, D, D, D, D, D, D},
};

UNIT_TEST(two_dtypes_meet_as_in_mlx) {
    for (int a = HT_BOOL; a < HT_DTYPE_COUNT; a++)
        for (int b = HT_BOOL; b < HT_DTYPE_COUNT; b++)
            if ((int)ht_dtype_promote((ht_dtype)a, (ht_dtype)b) != meeting[a - HT_BOOL][b - HT_BOOL])
                fail_msg("%s and %s meet in %s", ht_dtype_name((ht_dtype)a), ht_dtype_name((ht_dtype)b),
                         ht_dtype_name(ht_dtype_promote((ht_dtype)a, (ht_dtype)b)));
}

UNIT_TEST(what_is_no_dtype_meets_nothing) {
    assert_int_equal(ht_dtype_promote(HT_DTYPE_COUNT, HT_F32), HT_DTYPE_NONE);
    assert_int_equal(ht_dtype_promote(HT_F32, (ht_dtype)99), HT_DTYPE_NONE);
    assert_int_equal(ht_dtype_promote(HT_DTYPE_NONE, HT_F32), HT_DTYPE_NONE);
}

UNIT_TEST(a_zeroed_dtype_is_none) {
    ht_dtype zeroed = 0;
    assert_int_equal(zeroed, HT_DTYPE_NONE);
    assert_int_equal(ht_dtype_bytes(zeroed), 0);
    assert_string_equal(ht_dtype_name(zeroed), "?");
    assert_int_equal(ht_dtype_bytes(HT_BOOL), 1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(two_dtypes_meet_as_in_mlx),
        cmocka_unit_test(what_is_no_dtype_meets_nothing),
        cmocka_unit_test(a_zeroed_dtype_is_none),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
