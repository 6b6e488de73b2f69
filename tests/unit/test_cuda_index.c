/* Indexing on the CUDA device beside the CPU's plain kernels: generated operands of any dtype, strides and collisions give the same
 * elements, and bad indices the same messages. Skipped where there is no GPU; CTest runs it with a driver on the host, too. */
#include "array/op.h"
#include "support/gpu.h"
#include "support/operands.h"
#include "support/test.h"
#include "support/weights.h"

#include <hearth/hearth.h>

#include <stdio.h>
#include <string.h>

/* ---- random operands ---- */

typedef uint64_t random_state;

static int64_t below(random_state *r, int64_t n) { return n > 0 ? (int64_t)(test_random(r) % (uint64_t)n) : 0; }

static ht_dtype any_dtype(random_state *r) { return (ht_dtype)(HT_BOOL + below(r, HT_DTYPE_COUNT - HT_BOOL)); }

static ht_array *operand_of(ht_scope *s, random_state *r, ht_dtype t, const int64_t *dim, int n_dims) {
    operand o = test_operand(t, n_dims, dim, (layout)below(r, LAYOUT_COUNT), EXTREME, r);
    ht_array *a = beside_array(s, &o);
    free(o.memory);
    return a;
}

/* Valid indices into an axis, as `spread` of its places, negative ones among them. */
static ht_array *indices(ht_scope *s, random_state *r, int64_t size, int64_t spread, const int64_t *dim, int n_dims) {
    static const ht_dtype dtypes[] = {HT_I8, HT_U8, HT_I16, HT_U16, HT_I32, HT_U32, HT_I64, HT_U64};
    int64_t n = 1;
    for (int i = 0; i < n_dims; i++) n *= dim[i];
    int64_t *number = malloc((size_t)n * sizeof *number + 1);
    ht_dtype t = dtypes[below(r, 8)];
    if (size > 100) t = below(r, 2) ? HT_I32 : HT_U64;
    const bool is_signed = t == HT_I8 || t == HT_I16 || t == HT_I32 || t == HT_I64;
    for (int64_t i = 0; i < n; i++) {
        const int64_t at = below(r, spread < size ? spread : size);
        number[i] = is_signed && below(r, 3) == 0 ? at - size : at;
    }
    ht_array *a = ht_astype(s, ht_array_from(s, number, HT_I64, dim, n_dims), t);
    free(number);
    return a;
}

static int some_shape(random_state *r, int least, int most, int64_t *dim) {
    const int n = least + (int)below(r, most - least + 1);
    for (int i = 0; i < n; i++) dim[i] = below(r, 25) ? 1 + below(r, 5) : 8 * below(r, 3);
    return n;
}

/* ---- operations ---- */

typedef ht_array *build_fn(ht_scope *s, random_state *r);

static ht_array *take(ht_scope *s, random_state *r) {
    int64_t dim[HT_MAX_DIMS], places[HT_MAX_DIMS];
    const int n = some_shape(r, 1, 4, dim), m = some_shape(r, 0, 3, places), axis = (int)below(r, n);
    if (below(r, 3) == 0) dim[n - 1] = 16 * (1 + below(r, 20));
    if (dim[axis] == 0) dim[axis] = 3;
    ht_array *index = indices(s, r, dim[axis], 100, places, m);
    return ht_take(s, operand_of(s, r, any_dtype(r), dim, n), index, axis);
}

static ht_array *take_along(ht_scope *s, random_state *r) {
    int64_t dim[HT_MAX_DIMS], places[HT_MAX_DIMS];
    const int n = some_shape(r, 1, 4, dim), axis = (int)below(r, n);
    if (dim[axis] == 0) dim[axis] = 3;
    memcpy(places, dim, sizeof places);
    places[axis] = below(r, 7);
    ht_array *index = indices(s, r, dim[axis], 100, places, n);
    return ht_take_along_axis(s, operand_of(s, r, any_dtype(r), dim, n), index, axis);
}

/* Slices of one to all elements of the axes; n indices, of different axes. */
static int some_slices(ht_scope *s, random_state *r, const int64_t *dim, int n_dims, int64_t spread, int64_t *places,
                       int n_places, int64_t *size, ht_array **index, int *axis) {
    const int n = 1 + (int)below(r, n_dims), first = (int)below(r, n_dims);
    for (int i = 0; i < n_dims; i++) size[i] = below(r, 4) ? dim[i] : below(r, dim[i] + 1);
    for (int i = 0; i < n; i++) {
        axis[i] = (first + i) % n_dims;
        if (below(r, 3)) size[axis[i]] = dim[axis[i]] > 0;
        const int64_t starts = dim[axis[i]] - size[axis[i]] + 1;
        index[i] = indices(s, r, starts < dim[axis[i]] ? starts : dim[axis[i]], spread, places, n_places);
        if (starts != dim[axis[i]]) /* negative ones count from the end of the axis, not from the last start */
            index[i] = ht_maximum(s, ht_astype(s, index[i], HT_I64), ht_full(s, 0, HT_I64, NULL, 0));
    }
    return n;
}

static ht_array *gather(ht_scope *s, random_state *r) {
    int64_t dim[HT_MAX_DIMS], places[HT_MAX_DIMS], size[HT_MAX_DIMS];
    int axis[HT_MAX_DIMS];
    ht_array *index[HT_MAX_DIMS];
    const int n_dims = some_shape(r, 1, 4, dim), m = some_shape(r, 0, 3, places);
    for (int i = 0; i < n_dims; i++) dim[i] += dim[i] == 0;
    const int n = some_slices(s, r, dim, n_dims, 100, places, m, size, index, axis);
    return ht_gather(s, operand_of(s, r, any_dtype(r), dim, n_dims), index, axis, n, size);
}

static ht_array *scatter(ht_scope *s, random_state *r) {
    int64_t dim[HT_MAX_DIMS], size[2 * HT_MAX_DIMS];
    int axis[HT_MAX_DIMS];
    ht_array *index[HT_MAX_DIMS];
    const int n_dims = some_shape(r, 1, 4, dim), m = some_shape(r, 0, 3, size);
    const ht_dtype t = any_dtype(r);
    for (int i = 0; i < n_dims; i++) dim[i] += dim[i] == 0;
    if (below(r, 3) == 0) dim[n_dims - 1] = 16 * (1 + below(r, 20));
    const int n = some_slices(s, r, dim, n_dims, 1 + below(r, 6), size, m, size + m, index, axis);
    ht_array *updates = operand_of(s, r, t, size, m + n_dims), *x = operand_of(s, r, t, dim, n_dims);
    return ht_scatter(s, x, index, axis, n, updates, (ht_scatter_mode)below(r, HT_SCATTER_MAX + 1));
}

/* More updates than one block sorts, of few destinations or of many. */
static ht_array *scatter_much(ht_scope *s, random_state *r) {
    const int64_t dim[2] = {2 + below(r, below(r, 2) ? 5 : 70000), 1 + below(r, 3)};
    const int64_t n = 4000 + below(r, 9000), size[3] = {n, 1 + below(r, 2), dim[1]};
    const ht_dtype t = any_dtype(r);
    ht_array *index = indices(s, r, dim[0] - 1, below(r, 2) ? 300 : 70000, &n, 1);
    index = ht_maximum(s, ht_astype(s, index, HT_I64), ht_full(s, 0, HT_I64, NULL, 0));
    ht_array *updates = operand_of(s, r, t, size, 3), *x = operand_of(s, r, t, dim, 2);
    return ht_scatter(s, x, &index, (int[]){0}, 1, updates, (ht_scatter_mode)below(r, HT_SCATTER_MAX + 1));
}

static ht_array *put_along(ht_scope *s, random_state *r) {
    int64_t dim[HT_MAX_DIMS], places[HT_MAX_DIMS];
    const int n = some_shape(r, 1, 4, dim), axis = (int)below(r, n);
    const ht_dtype t = any_dtype(r);
    if (dim[axis] == 0) dim[axis] = 3;
    memcpy(places, dim, sizeof places);
    places[axis] = below(r, 12) ? below(r, 9) : 3000;
    ht_array *index = indices(s, r, dim[axis], 100, places, n), *x = operand_of(s, r, t, dim, n);
    ht_array *number = operand_of(s, r, t, places, n);
    return (below(r, 2) ? ht_put_along_axis : ht_scatter_add_axis)(s, x, index, number, axis);
}

static ht_array *slice_update(ht_scope *s, random_state *r) {
    int64_t dim[HT_MAX_DIMS], size[HT_MAX_DIMS], start[HT_MAX_DIMS], stop[HT_MAX_DIMS], step[HT_MAX_DIMS];
    const int n = some_shape(r, 0, 4, dim);
    const ht_dtype t = any_dtype(r);
    for (int i = 0; i < n; i++) {
        step[i] = 1 + below(r, 2);
        size[i] = dim[i] ? below(r, (dim[i] - 1) / step[i] + 2) : 0;
        start[i] = size[i] ? below(r, dim[i] - (size[i] - 1) * step[i]) : 0;
        stop[i] = size[i] ? start[i] + (size[i] - 1) * step[i] + 1 : start[i];
        if (size[i] == 0 || below(r, 2)) continue;
        const int64_t last = stop[i] - 1; /* backwards */
        stop[i] = start[i] - 1;
        start[i] = last;
        step[i] = -step[i];
    }
    ht_array *x = operand_of(s, r, t, dim, n);
    return ht_slice_update(s, x, operand_of(s, r, t, size, n), start, stop, step);
}

static ht_array *concatenate(ht_scope *s, random_state *r) {
    int64_t dim[HT_MAX_DIMS];
    const int n_dims = some_shape(r, 1, 4, dim), n = 1 + (int)below(r, 4), axis = (int)below(r, n_dims);
    const ht_dtype t = any_dtype(r);
    ht_array *part[4];
    for (int i = 0; i < n; i++) {
        dim[axis] = below(r, 3) ? 8 * below(r, 5) : below(r, 40);
        part[i] = operand_of(s, r, t, dim, n_dims);
    }
    return ht_concatenate(s, part, n, axis);
}

static ht_array *strided_add(ht_scope *s, random_state *r) {
    int64_t dim[HT_MAX_DIMS], stride[HT_MAX_DIMS], low = 0, high = 0;
    const int n = some_shape(r, 0, 4, dim);
    for (int i = n - 1, c = 1; i >= 0; i--) {
        stride[i] = below(r, 2) ? c : below(r, 9) - 4;
        if (below(r, 10) == 0) dim[i] *= 40;
        const int64_t reach = stride[i] * (dim[i] - 1);
        *(reach < 0 ? &low : &high) += reach;
        c *= (int)(below(r, 2) ? dim[i] : 2);
    }
    ht_array *x = operand_of(s, r, any_dtype(r), dim, n);
    if (ht_array_size(x) == 0) low = high = 0;
    const int64_t before = below(r, 3), all = before + high - low + 1 + below(r, 3);
    return ht_strided_add(s, x, &all, 1, stride, before - low);
}

/* ---- comparison ---- */

typedef struct question {
    build_fn *build;
    random_state seed;
} question;

static ht_array *ask(ht_scope *s, const void *how) {
    const question *q = how;
    random_state r = q->seed;
    return q->build(s, &r);
}

UNIT_TEST(elements_are_the_cpus) {
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
                      {"strided_add", strided_add, 400}};
    if (!beside_stream[GPU]) skip();
    for (size_t i = 0; i < sizeof operations / sizeof *operations; i++) {
        const int n = test_cases(operations[i].cases / 3 + 1, 50 * operations[i].cases);
        for (int k = 1; k <= n; k++) {
            char what[64];
            snprintf(what, sizeof what, "%s %d", operations[i].name, k);
            beside_same(what, ask, &(question){operations[i].build, (random_state)k});
        }
    }
}

/* ---- bad indices ---- */

static ht_array *numbers(ht_scope *s, const int64_t *number, int64_t n, ht_dtype t) {
    return ht_astype(s, ht_array_from(s, number, HT_I64, &n, 1), t);
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

UNIT_TEST(messages_are_the_cpus) {
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
