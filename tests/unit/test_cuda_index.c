/* Indexing on the CUDA device beside the CPU's plain kernels: generated operands of any dtype, strides and collisions give the same
 * elements, and bad indices the same messages. Skipped where there is no GPU; CTest runs it with a driver on the host, too. */
#include "array/op.h"
#include "support/gpu.h"
#include "support/test.h"

#include <hearth/hearth.h>

#include <math.h>
#include <string.h>

/* ---- random operands ---- */

typedef uint64_t random_state;

static int64_t below(random_state *r, int64_t n) {
    *r = *r * 6364136223846793005u + 1442695040888963407u;
    return n > 0 ? (int64_t)((*r >> 33) % (uint64_t)n) : 0;
}

static float value_of(random_state *r) {
    static const float odd[] = {0.0f, -0.0f, INFINITY, -INFINITY, NAN, 1e-40f, 65504.0f, 3e38f};
    const int64_t i = below(r, 60);
    if (i < 8) return odd[i];
    return (float)below(r, 2001) / 97.0f - 10.0f;
}

static double double_of(random_state *r) { return (double)value_of(r) * (1.0 + 1e-12); }

static ht_dtype any_dtype(random_state *r) { return (ht_dtype)(HT_BOOL + below(r, HT_DTYPE_COUNT - HT_BOOL)); }

static ht_array *dense(ht_scope *s, random_state *r, ht_dtype t, const int64_t *shape, int n_dims) {
    int64_t n = 1;
    for (int i = 0; i < n_dims; i++) n *= shape[i];
    const size_t bytes = ht_dtype_bytes(t);
    char *values = malloc((size_t)n * bytes + 1);
    for (int64_t i = 0; i < n; i++) {
        const int64_t bits =
            (int64_t)((uint64_t)below(r, INT64_C(1) << 31) << 33 ^ (uint64_t)below(r, INT64_C(1) << 31));
        const float f = value_of(r);
        const double d = double_of(r);
        const uint8_t truth = below(r, 2) != 0;
        const void *from = t == HT_BOOL ? (const void *)&truth : t == HT_F32 ? (const void *)&f : &bits;
        memcpy(values + (size_t)i * bytes, t == HT_F64 ? (const void *)&d : from, bytes);
    }
    ht_array *a = ht_array_from(s, values, t == HT_F16 || t == HT_BF16 ? HT_U16 : t, shape, n_dims);
    free(values);
    return t == HT_F16 || t == HT_BF16
               ? ht_astype(s, ht_divide(s, ht_astype(s, a, HT_F32), ht_full(s, 997.0, HT_F32, NULL, 0)), t)
               : a;
}

/* With strides: turned axes, every other element, or an axis of stride 0. */
static ht_array *operand(ht_scope *s, random_state *r, ht_dtype t, const int64_t *shape, int n_dims) {
    int64_t larger[HT_MAX_DIMS], start[HT_MAX_DIMS] = {0}, step[HT_MAX_DIMS], stop[HT_MAX_DIMS];
    int axes[HT_MAX_DIMS], back[HT_MAX_DIMS];
    if (n_dims == 0 || below(r, 2)) return dense(s, r, t, shape, n_dims);
    const int turn = (int)below(r, n_dims);
    for (int i = 0; i < n_dims; i++) {
        axes[i] = (i + turn) % n_dims;
        back[(i + turn) % n_dims] = i;
    }
    for (int i = 0; i < n_dims; i++) { /* of the array before it is turned */
        step[i] = below(r, 3) ? 1 : 2;
        larger[i] = shape[axes[i]] * step[i];
        stop[i] = larger[i];
    }
    return ht_transpose(s, ht_slice(s, dense(s, r, t, larger, n_dims), start, stop, step), back);
}

/* Valid indices into an axis, as `spread` of its places, negative ones among them. */
static ht_array *indices(ht_scope *s, random_state *r, int64_t size, int64_t spread, const int64_t *shape, int n_dims) {
    static const ht_dtype dtypes[] = {HT_I8, HT_U8, HT_I16, HT_U16, HT_I32, HT_U32, HT_I64, HT_U64};
    int64_t n = 1;
    for (int i = 0; i < n_dims; i++) n *= shape[i];
    int64_t *values = malloc((size_t)n * sizeof *values + 1);
    ht_dtype t = dtypes[below(r, 8)];
    if (size > 100) t = below(r, 2) ? HT_I32 : HT_U64;
    const bool is_signed = t == HT_I8 || t == HT_I16 || t == HT_I32 || t == HT_I64;
    for (int64_t i = 0; i < n; i++) {
        const int64_t at = below(r, spread < size ? spread : size);
        values[i] = is_signed && below(r, 3) == 0 ? at - size : at;
    }
    ht_array *a = ht_astype(s, ht_array_from(s, values, HT_I64, shape, n_dims), t);
    free(values);
    return a;
}

static int some_shape(random_state *r, int least, int most, int64_t *shape) {
    const int n = least + (int)below(r, most - least + 1);
    for (int i = 0; i < n; i++) shape[i] = below(r, 25) ? 1 + below(r, 5) : 8 * below(r, 3);
    return n;
}

/* ---- operations ---- */

typedef ht_array *build_fn(ht_scope *s, random_state *r);

static ht_array *take(ht_scope *s, random_state *r) {
    int64_t shape[HT_MAX_DIMS], places[HT_MAX_DIMS];
    const int n = some_shape(r, 1, 4, shape), m = some_shape(r, 0, 3, places), axis = (int)below(r, n);
    if (below(r, 3) == 0) shape[n - 1] = 16 * (1 + below(r, 20));
    if (shape[axis] == 0) shape[axis] = 3;
    ht_array *index = indices(s, r, shape[axis], 100, places, m);
    return ht_take(s, operand(s, r, any_dtype(r), shape, n), index, axis);
}

static ht_array *take_along(ht_scope *s, random_state *r) {
    int64_t shape[HT_MAX_DIMS], places[HT_MAX_DIMS];
    const int n = some_shape(r, 1, 4, shape), axis = (int)below(r, n);
    if (shape[axis] == 0) shape[axis] = 3;
    memcpy(places, shape, sizeof places);
    places[axis] = below(r, 7);
    ht_array *index = indices(s, r, shape[axis], 100, places, n);
    return ht_take_along_axis(s, operand(s, r, any_dtype(r), shape, n), index, axis);
}

/* Slices of one to all elements of the axes; n indices, of different axes. */
static int some_slices(ht_scope *s, random_state *r, const int64_t *shape, int n_dims, int64_t spread, int64_t *places,
                       int n_places, int64_t *size, ht_array **index, int *axis) {
    const int n = 1 + (int)below(r, n_dims), first = (int)below(r, n_dims);
    for (int i = 0; i < n_dims; i++) size[i] = below(r, 4) ? shape[i] : below(r, shape[i] + 1);
    for (int i = 0; i < n; i++) {
        axis[i] = (first + i) % n_dims;
        if (below(r, 3)) size[axis[i]] = shape[axis[i]] > 0;
        const int64_t starts = shape[axis[i]] - size[axis[i]] + 1;
        index[i] = indices(s, r, starts < shape[axis[i]] ? starts : shape[axis[i]], spread, places, n_places);
        if (starts != shape[axis[i]]) /* negative ones count from the end of the axis, not from the last start */
            index[i] = ht_maximum(s, ht_astype(s, index[i], HT_I64), ht_full(s, 0, HT_I64, NULL, 0));
    }
    return n;
}

static ht_array *gather(ht_scope *s, random_state *r) {
    int64_t shape[HT_MAX_DIMS], places[HT_MAX_DIMS], size[HT_MAX_DIMS];
    int axis[HT_MAX_DIMS];
    ht_array *index[HT_MAX_DIMS];
    const int n_dims = some_shape(r, 1, 4, shape), m = some_shape(r, 0, 3, places);
    for (int i = 0; i < n_dims; i++) shape[i] += shape[i] == 0;
    const int n = some_slices(s, r, shape, n_dims, 100, places, m, size, index, axis);
    return ht_gather(s, operand(s, r, any_dtype(r), shape, n_dims), index, axis, n, size);
}

static ht_array *scatter(ht_scope *s, random_state *r) {
    int64_t shape[HT_MAX_DIMS], size[2 * HT_MAX_DIMS];
    int axis[HT_MAX_DIMS];
    ht_array *index[HT_MAX_DIMS];
    const int n_dims = some_shape(r, 1, 4, shape), m = some_shape(r, 0, 3, size);
    const ht_dtype t = any_dtype(r);
    for (int i = 0; i < n_dims; i++) shape[i] += shape[i] == 0;
    if (below(r, 3) == 0) shape[n_dims - 1] = 16 * (1 + below(r, 20));
    const int n = some_slices(s, r, shape, n_dims, 1 + below(r, 6), size, m, size + m, index, axis);
    ht_array *updates = operand(s, r, t, size, m + n_dims), *x = operand(s, r, t, shape, n_dims);
    return ht_scatter(s, x, index, axis, n, updates, (ht_scatter_mode)below(r, HT_SCATTER_MAX + 1));
}

/* More updates than one block sorts, of few destinations or of many. */
static ht_array *scatter_much(ht_scope *s, random_state *r) {
    const int64_t shape[2] = {2 + below(r, below(r, 2) ? 5 : 70000), 1 + below(r, 3)};
    const int64_t n = 4000 + below(r, 9000), size[3] = {n, 1 + below(r, 2), shape[1]};
    const ht_dtype t = any_dtype(r);
    ht_array *index = indices(s, r, shape[0] - 1, below(r, 2) ? 300 : 70000, &n, 1);
    index = ht_maximum(s, ht_astype(s, index, HT_I64), ht_full(s, 0, HT_I64, NULL, 0));
    ht_array *updates = operand(s, r, t, size, 3), *x = operand(s, r, t, shape, 2);
    return ht_scatter(s, x, &index, (int[]){0}, 1, updates, (ht_scatter_mode)below(r, HT_SCATTER_MAX + 1));
}

static ht_array *put_along(ht_scope *s, random_state *r) {
    int64_t shape[HT_MAX_DIMS], places[HT_MAX_DIMS];
    const int n = some_shape(r, 1, 4, shape), axis = (int)below(r, n);
    const ht_dtype t = any_dtype(r);
    if (shape[axis] == 0) shape[axis] = 3;
    memcpy(places, shape, sizeof places);
    places[axis] = below(r, 12) ? below(r, 9) : 3000;
    ht_array *index = indices(s, r, shape[axis], 100, places, n), *x = operand(s, r, t, shape, n);
    ht_array *values = operand(s, r, t, places, n);
    return (below(r, 2) ? ht_put_along_axis : ht_scatter_add_axis)(s, x, index, values, axis);
}

static ht_array *slice_update(ht_scope *s, random_state *r) {
    int64_t shape[HT_MAX_DIMS], size[HT_MAX_DIMS], start[HT_MAX_DIMS], stop[HT_MAX_DIMS], step[HT_MAX_DIMS];
    const int n = some_shape(r, 0, 4, shape);
    const ht_dtype t = any_dtype(r);
    for (int i = 0; i < n; i++) {
        step[i] = 1 + below(r, 2);
        size[i] = shape[i] ? below(r, (shape[i] - 1) / step[i] + 2) : 0;
        start[i] = size[i] ? below(r, shape[i] - (size[i] - 1) * step[i]) : 0;
        stop[i] = size[i] ? start[i] + (size[i] - 1) * step[i] + 1 : start[i];
        if (size[i] == 0 || below(r, 2)) continue;
        const int64_t last = stop[i] - 1; /* backwards */
        stop[i] = start[i] - 1;
        start[i] = last;
        step[i] = -step[i];
    }
    ht_array *x = operand(s, r, t, shape, n);
    return ht_slice_update(s, x, operand(s, r, t, size, n), start, stop, step);
}

static ht_array *concatenate(ht_scope *s, random_state *r) {
    int64_t shape[HT_MAX_DIMS];
    const int n_dims = some_shape(r, 1, 4, shape), n = 1 + (int)below(r, 4), axis = (int)below(r, n_dims);
    const ht_dtype t = any_dtype(r);
    ht_array *part[4];
    for (int i = 0; i < n; i++) {
        shape[axis] = below(r, 3) ? 8 * below(r, 5) : below(r, 40);
        part[i] = operand(s, r, t, shape, n_dims);
    }
    return ht_concatenate(s, part, n, axis);
}

static ht_array *strided_add(ht_scope *s, random_state *r) {
    int64_t shape[HT_MAX_DIMS], stride[HT_MAX_DIMS], low = 0, high = 0;
    const int n = some_shape(r, 0, 4, shape);
    for (int i = n - 1, c = 1; i >= 0; i--) {
        stride[i] = below(r, 2) ? c : below(r, 9) - 4;
        if (below(r, 10) == 0) shape[i] *= 40;
        const int64_t reach = stride[i] * (shape[i] - 1);
        *(reach < 0 ? &low : &high) += reach;
        c *= (int)(below(r, 2) ? shape[i] : 2);
    }
    ht_array *x = operand(s, r, any_dtype(r), shape, n);
    if (ht_array_size(x) == 0) low = high = 0;
    const int64_t before = below(r, 3), all = before + high - low + 1 + below(r, 3);
    return ht_strided_add(s, x, &all, 1, stride, before - low);
}

static ht_array *copy(ht_scope *s, random_state *r) {
    int64_t shape[HT_MAX_DIMS];
    const int n = some_shape(r, 1, 4, shape);
    for (int i = 0; i < n; i++)
        if (below(r, 2)) shape[i] = below(r, 50);
    ht_array *x = operand(s, r, any_dtype(r), shape, n);
    return ht_concatenate(s, (ht_array *[]){x, x}, 2, 0);
}

/* ---- comparison ---- */

static bool same(ht_dtype t, const char *a, const char *b) {
    if (memcmp(a, b, ht_dtype_bytes(t)) == 0) return true;
    switch (t) { /* any NaN is another's equal */
    case HT_F16:
    case HT_BF16: {
        uint16_t x, y;
        memcpy(&x, a, sizeof x);
        memcpy(&y, b, sizeof y);
        const unsigned infinity = t == HT_F16 ? 0x7C00u : 0x7F80u;
        return (x & 0x7FFFu) > infinity && (y & 0x7FFFu) > infinity;
    }
    case HT_F32: {
        float x, y;
        memcpy(&x, a, sizeof x);
        memcpy(&y, b, sizeof y);
        return isnan(x) && isnan(y);
    }
    case HT_F64: {
        double x, y;
        memcpy(&x, a, sizeof x);
        memcpy(&y, b, sizeof y);
        return isnan(x) && isnan(y);
    }
    default: return false;
    }
}

static void compare(const char *name, build_fn *build, random_state seed) {
    char *out[DEVICES];
    int64_t n = 0;
    ht_dtype t = HT_BOOL;
    for (int i = 0; i < DEVICES; i++) {
        ht_error err = {0};
        ht_scope *s = ht_scope_new(beside_stream[i]);
        random_state r = seed;
        ht_array *y = build(s, &r);
        if (!y && !ht_array_eval(s, &y, 1, &err))
            fail_msg("%s %llu: nothing was built", name, (unsigned long long)seed);
        if (!y) fail_msg("%s %llu: %s", name, (unsigned long long)seed, err.message);
        n = ht_array_size(y);
        t = ht_array_dtype(y);
        const size_t bytes = (size_t)n * ht_dtype_bytes(t);
        out[i] = malloc(bytes + 1);
        if (ht_array_read(s, y, out[i], bytes, &err))
            fail_msg("%s %llu: %s", name, (unsigned long long)seed, err.message);
        ht_scope_free(s);
    }
    const size_t width = ht_dtype_bytes(t);
    for (int64_t i = 0; i < n; i++)
        if (!same(t, out[CPU] + (size_t)i * width, out[GPU] + (size_t)i * width))
            fail_msg("%s %llu: element %lld of %s differs", name, (unsigned long long)seed, (long long)i,
                     ht_dtype_name(t));
    for (int i = 0; i < DEVICES; i++) free(out[i]);
}

static void elements_are_the_cpus(void **state) {
    (void)state;
    static const struct {
        const char *name;
        build_fn *build;
        int cases;
    } operations[] = {{"take", take, 300},
                      {"take_along", take_along, 200},
                      {"gather", gather, 300},
                      {"scatter", scatter, 600},
                      {"scatter much", scatter_much, 12},
                      {"put_along", put_along, 300},
                      {"slice_update", slice_update, 300},
                      {"concatenate", concatenate, 200},
                      {"strided_add", strided_add, 400},
                      {"copy", copy, 200}};
    if (!beside_stream[GPU]) skip();
    for (size_t i = 0; i < sizeof operations / sizeof *operations; i++) {
        const int n = test_cases(operations[i].cases / 3 + 1, 50 * operations[i].cases);
        for (int k = 1; k <= n; k++) compare(operations[i].name, operations[i].build, (random_state)k);
    }
}

/* ---- bad indices ---- */

static ht_array *numbers(ht_scope *s, const int64_t *values, int64_t n, ht_dtype t) {
    return ht_astype(s, ht_array_from(s, values, HT_I64, &n, 1), t);
}

static ht_array *bad(ht_scope *s, random_state *r) {
    const int64_t which = below(r, 7), n = 3 + below(r, 3000), two[2] = {2, 7}, wide[2] = {n, 7};
    const ht_dtype t = below(r, 2) ? HT_I64 : HT_I32;
    int64_t *value = calloc((size_t)(7 * n), sizeof *value), size[2] = {2, 1}, updates[3] = {n, 2, 1};
    const int64_t first = below(r, n);
    for (int64_t i = first; i < n; i += 1 + below(r, 2)) value[i] = below(r, 2) ? 2 + below(r, 5) : -3 - below(r, 5);
    ht_array *index = numbers(s, value, n, t), *fine = numbers(s, value + n, n, t);
    ht_array *all = ht_astype(s, ht_array_from(s, value, HT_I64, wide, 2), t), *y;
    free(value);
    ht_array *x = ht_full(s, 1, HT_F32, two, 2), *empty = ht_zeros(s, HT_F32, (int64_t[]){0, 7}, 2);
    ht_array *u = ht_full(s, 2, HT_F32, updates, 3);
    switch (which) {
    case 0: y = ht_take(s, x, index, 0); break;
    case 1: y = ht_take_along_axis(s, below(r, 2) ? x : empty, all, 0); break;
    case 2: y = ht_gather(s, x, (ht_array *[]){fine, index}, (int[]){1, 0}, 2, size); break;
    case 3: y = ht_gather(s, x, (ht_array *[]){index, index}, (int[]){0, 1}, 2, size); break;
    case 4: y = ht_scatter(s, x, (ht_array *[]){fine, index}, (int[]){1, 0}, 2, u, HT_SCATTER_ADD); break;
    case 5: y = ht_put_along_axis(s, below(r, 2) ? x : empty, all, ht_full(s, 1, HT_F32, NULL, 0), 0); break;
    default: y = ht_take(s, below(r, 2) ? empty : ht_zeros(s, HT_F32, (int64_t[]){2, 0}, 2), index, 0);
    }
    return y;
}

static void messages_are_the_cpus(void **state) {
    (void)state;
    if (!beside_stream[GPU]) skip();
    for (int seed = 1; seed <= test_cases(100, 3000); seed++) {
        ht_error err[DEVICES] = {0};
        for (int i = 0; i < DEVICES; i++) {
            ht_scope *s = ht_scope_new(beside_stream[i]);
            random_state r = (random_state)seed;
            ht_array *y = bad(s, &r);
            assert_int_equal(ht_array_eval(s, &y, 1, &err[i]), HT_ERR_INDEX);
            ht_scope_free(s);
        }
        assert_string_equal(err[GPU].message, err[CPU].message);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(elements_are_the_cpus),
        cmocka_unit_test(messages_are_the_cpus),
    };
    return cmocka_run_group_tests(tests, beside_open, beside_close);
}
