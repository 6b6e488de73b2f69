#include "support/operands.h"

#include "base/half.h"
#include "cpu/element.h"
#include "support/test.h"
#include "support/weights.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

float test_value(values kind, uint64_t *state) {
    static const float extremes[] = {INFINITY, -INFINITY, NAN,      0.0f,  -0.0f,     FLT_MAX, -FLT_MAX,
                                     FLT_MIN,  -FLT_MIN,  1e-41f,   1e20f, -1e20f,    65504.f, 65520.f,
                                     88.7f,    -87.3f,    -87.337f, 1.0f,  -103.972f, 0.5f,    2147483648.0f};
    if (kind == EXTREME && test_random(state) % 3 == 0)
        return extremes[test_random(state) % (sizeof extremes / sizeof *extremes)];
    return 4.0f * test_random_float(state);
}

operand test_operand(ht_dtype dtype, int n_dims, const int64_t *dim, layout how, values kind, uint64_t *state) {
    operand o = {.view = {.dtype = dtype, .n_dims = n_dims}};
    int64_t step = how == EVERY_SECOND ? 2 : 1, size = 1;
    for (int i = 0; i < n_dims; i++) {
        int axis = how == REVERSED_AXES ? i : n_dims - 1 - i; /* the one that varies fastest comes first */
        o.view.shape[axis] = dim[axis];
        o.view.stride[axis] = size * step;
        size *= dim[axis] > 0 ? dim[axis] : 1;
    }
    int64_t first = how == SHIFTED ? 1 : 0;
    o.room = size * step + 1;
    if (how == BACKWARDS && n_dims > 0) {
        first = (dim[n_dims - 1] > 0 ? dim[n_dims - 1] : 1) - 1;
        o.view.stride[n_dims - 1] = -1;
    }
    if (how == REPEATED && n_dims > 0) o.view.stride[state[0] % (uint64_t)n_dims] = 0;
    size_t bytes = ht_dtype_bytes(dtype);
    o.memory = malloc((size_t)o.room * bytes);
    assert_non_null(o.memory);
    for (int64_t i = 0; i < o.room; i++) {
        if (ht_dtype_is_float(dtype))
            ht_set_f32(dtype, o.memory, i, test_value(kind, state));
        else
            ht_set_int(dtype, o.memory, i, (int64_t)((uint64_t)test_random(state) << 32 | test_random(state)));
    }
    o.view.data = (char *)o.memory + (size_t)first * bytes;
    return o;
}

bool test_alike(ht_dtype t, const void *a, const void *b, int64_t i, double tolerance) {
    size_t bytes = ht_dtype_bytes(t);
    if (memcmp((const char *)a + (size_t)i * bytes, (const char *)b + (size_t)i * bytes, bytes) == 0) return true;
    if (!ht_dtype_is_float(t)) return false;
    double x = ht_get_f64(t, a, i), y = ht_get_f64(t, b, i);
    if (isnan(x) || isnan(y)) return isnan(x) && isnan(y);
    if (x == 0.0 && y == 0.0) return signbit(x) == signbit(y) || tolerance > 0.0;
    if (isinf(x) || isinf(y) || tolerance == 0.0) return false;
    double rounding = t == HT_F16 ? 0x1p-10 : t == HT_BF16 ? 0x1p-7 : 0.0;
    return fabs(x - y) <= (tolerance + rounding) * fmax(1.0, fmax(fabs(x), fabs(y)));
}

ht_status test_compare(const comparison *c) {
    int64_t size = ht_view_size(&c->out);
    size_t bytes = (size_t)size * ht_dtype_bytes(c->out.dtype), guard = 64;
    char *want = malloc(bytes + guard), *got = malloc(bytes + guard);
    ht_device *devices[2][TEST_MAX_DEVICES];
    const int n = test_devices(1, devices[0]);
    test_devices(3, devices[1]);
    ht_view out = c->out;
    out.data = want;
    ht_error err = {0};
    ht_status expected = test_run(devices[0][0], c->op, c->params, c->n_in, c->in, &out, NULL, &err);
    for (int t = 0; t < 2; t++)
        for (int d = t ? 0 : 1; d < n; d++) {
            memset(got, 0x5a, bytes + guard);
            out.data = got;
            ht_status status = test_run(devices[t][d], c->op, c->params, c->n_in, c->in, &out, NULL, &err);
            const char *isa = devices[t][d]->instruction_set;
            if (status != expected)
                fail_msg("%s (%s, %s): status %d, not %d", test_op_name(c->op), isa, c->what, status, expected);
            if (status != HT_OK) continue;
            for (int64_t i = 0; i < size; i++)
                if (!test_alike(out.dtype, want, got, i, c->tolerance))
                    fail_msg("%s (%s, %s, %s): element %lld of %lld is %g, not %g", test_op_name(c->op), isa, c->what,
                             ht_dtype_name(out.dtype), (long long)i, (long long)size, ht_get_f64(out.dtype, got, i),
                             ht_get_f64(out.dtype, want, i));
            for (size_t i = bytes; i < bytes + guard; i++)
                if (got[i] != 0x5a) fail_msg("%s (%s, %s) writes past its result", test_op_name(c->op), isa, c->what);
        }
    free(want), free(got);
    return expected;
}
