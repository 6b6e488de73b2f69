/* Functions compiled without shapes: called once, and right for every size. */
#include "array/array.h"
#include "support/arrays.h"
#include "support/options.h"
#include "support/test.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- what is compiled: functions of x [B, T, D] and w [D, T], of sizes that vary ---- */

#define AXES(...)  (int[]){__VA_ARGS__}, (int)(sizeof((int[]){__VA_ARGS__}) / sizeof(int))
#define SIZES(...) (int64_t[]){__VA_ARGS__}, (int)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t))
#define BOUNDS(...)                                                                                                    \
    (const int64_t[]) { __VA_ARGS__ }

static ht_array *number(ht_scope *s, double v) { return ht_full(s, v, HT_F32, NULL, 0); }
static ht_array *whole(ht_scope *s, ht_array *x) { return x ? ht_astype(s, ht_scale(s, x, 7), HT_I32) : NULL; }
static ht_array *places(ht_scope *s, ht_array *x, int n) { /* indices from 0 to below n */
    return ht_remainder(s, ht_abs(s, whole(s, x)), ht_full(s, n, HT_I32, NULL, 0));
}
static ht_array *rows_of(ht_scope *s, ht_array *x) { return ht_flatten(s, x, 0, 1); }
static ht_array *nth(ht_scope *s, ht_array *x, int n, int axis, int i) {
    ht_array *parts[8];
    return ht_split_equally(s, x, n, axis, parts) ? parts[i] : NULL;
}
static ht_array *heads_of(ht_scope *s, ht_array *x) { /* [B, T, D] -> [B, 1, T, D], of numbers between 0 and 1 */
    return ht_expand_dims(s, ht_sigmoid(s, x), 1);
}
static ht_array *attended(ht_scope *s, ht_array *x, ht_array *mask, bool causal) {
    ht_array *h = heads_of(s, x);
    const ht_attention_config how = {0.5f, causal, 0};
    return ht_scaled_dot_product_attention(s, h, ht_square(s, h), ht_exp(s, h), mask, HT_NONE, &how);
}
static ht_array *attended_in_parts(ht_scope *s, ht_array *x) {
    ht_array *scores = ht_matmul(s, x, ht_scale(s, x, 0.1f), true);
    scores = ht_where(s, ht_tril(s, ht_ones_like(s, scores), 0), scores, number(s, -1e9));
    return ht_matmul(s, ht_softmax(s, scores, -1), x, false);
}
static ht_array *joined(ht_scope *s, ht_array *a, ht_array *b, int axis) {
    return ht_concatenate(s, (ht_array *[]){a, b}, 2, axis);
}
static ht_array *grid(ht_scope *s, ht_array *a, ht_array *b) {
    ht_array *grids[2];
    return ht_meshgrid(s, (ht_array *[]){a, b}, 2, false, true, grids) ? ht_subtract(s, grids[0], grids[1]) : NULL;
}
static ht_array *turned(ht_scope *s, ht_array *x) {
    return ht_rope_rows(s, heads_of(s, joined(s, x, x, -1)), ht_full(s, 3, HT_I32, NULL, 0), HT_NONE,
                        &(ht_rope_config){100, 1, 1, 2, false});
}
static ht_array *gathered(ht_scope *s, ht_array *x, ht_array *at) {
    return ht_gather(s, x, &at, (int[]){0}, 1, BOUNDS(1, HT_OPEN, HT_OPEN));
}
static ht_array *scattered(ht_scope *s, ht_array *x, ht_array *at) {
    ht_array *updates =
        ht_expand_dims(s, ht_broadcast_like(s, number(s, 0.5), ht_take(s, x, at, 0)), at ? at->n_dims : 0);
    return ht_scatter(s, x, &at, (int[]){0}, 1, updates, HT_SCATTER_ADD);
}
/* The value on the way, beside an array that is its own result under other sizes alone. */
static ht_array *rolled_twice(ht_scope *s, ht_array *x) {
    ht_array *once = ht_roll(s, x, 3, 1);
    return ht_add(s, ht_roll(s, once, 2, 2), ht_multiply(s, x, once));
}

#define FUNCTIONS(X)                                                                                                   \
    X(chain, ht_multiply(s, ht_exp(s, ht_negative(s, x)), ht_add(s, x, number(s, 1))))                                 \
    X(of_matrix, ht_matmul(s, x, w, false))                                                                            \
    X(of_vector, ht_matmul(s, ht_mean(s, x, AXES(0), false), ht_sum(s, w, AXES(1), false), false))                     \
    X(transposed_product, ht_matmul(s, ht_swapaxes(s, x, 1, 2), x, false))                                             \
    X(centred, ht_subtract(s, x, ht_mean(s, x, AXES(0, 2), true)))                                                     \
    X(sums, ht_add(s, ht_sum(s, x, AXES(1), false), ht_sum(s, w, AXES(1), false)))                                     \
    X(variance, ht_var(s, x, AXES(1, 2), false, 1))                                                                    \
    X(deviation, ht_std(s, x, NULL, 0, true, 0))                                                                       \
    X(spread, ht_logsumexp(s, x, AXES(2), false))                                                                      \
    X(all_logsumexp, ht_logsumexp(s, x, NULL, 0, true))                                                                \
    X(soft, ht_softmax(s, x, 1))                                                                                       \
    X(running, ht_cumsum(s, x, 1, true, false))                                                                        \
    X(highest, ht_subtract(s, ht_max(s, x, AXES(-1), true), x))                                                        \
    X(lowest_place, ht_argmin(s, x, (int[]){2}, false))                                                                \
    X(any_negative, ht_any(s, ht_less(s, x, number(s, 0)), AXES(0, 1), false))                                         \
    X(all_finite, ht_all(s, ht_isfinite(s, x), NULL, 0, true))                                                         \
    X(is_nan_of_integers, ht_isnan(s, whole(s, x)))                                                                    \
    X(flat, ht_flatten(s, ht_transpose(s, x, (int[]){2, 0, 1}), 1, 2))                                                 \
    X(flat_all, ht_reshape(s, ht_transpose(s, x, NULL), SIZES(-1)))                                                    \
    X(apart_again, ht_unflatten(s, ht_flatten(s, joined(s, x, x, 0), 0, 2), 0, SIZES(2, -1)))                          \
    X(moved, ht_moveaxis(s, x, 2, 0))                                                                                  \
    X(shaped_like, ht_reshape_like(s, ht_flatten(s, x, 0, -1), ht_swapaxes(s, x, 0, 1)))                               \
    X(stretched_like, ht_broadcast_like(s, ht_mean(s, x, AXES(1), true), x))                                           \
    X(backwards, ht_slice(s, x, BOUNDS(HT_OPEN, 0, HT_OPEN), BOUNDS(HT_OPEN, HT_OPEN, HT_OPEN), BOUNDS(-1, 1, -2)))    \
    X(second_to_last, ht_slice_range(s, x, BOUNDS(0, 1, -2), BOUNDS(HT_OPEN, -1, 5), NULL))                            \
    X(far_slice, ht_slice_range(s, x, BOUNDS(-9, 9, 1), BOUNDS(9, -9, 2), BOUNDS(1, -2, 1)))                           \
    X(window_replaced, ht_slice_update(s, x, number(s, 5), BOUNDS(0, HT_OPEN, HT_OPEN),                                \
                                       BOUNDS(HT_OPEN, HT_OPEN, HT_OPEN), BOUNDS(2, 1, -1)))                           \
    X(rolled, rolled_twice(s, x))                                                                                      \
    X(tiled, ht_tile(s, x, BOUNDS(2, 1, 3), 3))                                                                        \
    X(repeated, ht_repeat(s, x, 3, 1))                                                                                 \
    X(padded, ht_pad(s, x, (const int64_t[3][2]){{1, 0}, {0, 2}, {1, 1}}, number(s, 9)))                               \
    X(edged, ht_pad(s, x, (const int64_t[3][2]){{1, 0}, {0, 2}, {0, 0}}, HT_NONE))                                     \
    X(halves, ht_subtract(s, nth(s, joined(s, x, x, 1), 2, 1, 1), x))                                                  \
    X(stacked, ht_stack(s, (ht_array *[]){x, ht_square(s, x)}, 2, 1))                                                  \
    X(diagonal, ht_diagonal(s, x, 1, 1, 2))                                                                            \
    X(upper, ht_triu(s, x, 1))                                                                                         \
    X(meshed, grid(s, rows_of(s, rows_of(s, x)), rows_of(s, w)))                                                       \
    X(sorted, ht_sort(s, x, 1))                                                                                        \
    X(places_of_sorted, ht_argsort(s, x, 0))                                                                           \
    X(best, ht_topk(s, joined(s, x, ht_square(s, x), 1), 1, 1))                                                        \
    X(parted, ht_partition(s, x, -1, 2))                                                                               \
    X(taken, ht_take(s, ht_pad(s, w, (const int64_t[2][2]){{4, 0}, {0, 0}}, number(s, 3)), places(s, x, 4), 0))        \
    X(taken_along, ht_take_along_axis(s, joined(s, x, x, 2), places(s, ht_sum(s, x, AXES(2), true), 2), 2))            \
    X(put_along, ht_put_along_axis(s, joined(s, x, x, 2), places(s, ht_sum(s, x, AXES(1), true), 2), number(s, 8), 2)) \
    X(gathered, gathered(s, joined(s, x, x, 0), places(s, ht_sum(s, x, AXES(0, 2), false), 2)))                        \
    X(scattered, scattered(s, joined(s, x, x, 0), places(s, ht_sum(s, x, AXES(0, 2), false), 2)))                      \
    X(contracted, ht_einsum(s, "btd,dk->bkt", (ht_array *[]){x, w}, 2))                                                \
    X(contracted_dots, ht_einsum(s, "...t,kt->k...", (ht_array *[]){ht_swapaxes(s, x, 1, 2), w}, 2))                   \
    X(tensors, ht_tensordot(s, x, w, (int[]){1, 2}, (int[]){1, 0}, 2))                                                 \
    X(inner, ht_inner(s, x, ht_transpose(s, w, NULL)))                                                                 \
    X(outer, ht_outer(s, x, w))                                                                                        \
    X(added_product, ht_addmm(s, ht_sum(s, w, AXES(0), true), rows_of(s, x), w, 2, 3))                                 \
    X(third_norm, ht_norm(s, x, 3, AXES(1), true))                                                                     \
    X(layer_norm, ht_layer_norm(s, x, ht_mean(s, w, AXES(1), false), HT_NONE, 1e-5f))                                  \
    X(rms_norm, ht_rms_norm(s, x, HT_NONE, 1e-5f, 0))                                                                  \
    X(rope, turned(s, x))                                                                                              \
    X(attention, attended(s, x, HT_NONE, true))                                                                        \
    X(masked_attention, attended(s, x, ht_less(s, ht_sum(s, x, AXES(0, 2), false), number(s, 0)), false))              \
    X(attention_in_parts, attended_in_parts(s, x))                                                                     \
    X(zeros, ht_add(s, ht_zeros_like(s, x), ht_sum(s, ht_ones_like(s, w), NULL, 0, false)))                            \
    X(counted, ht_multiply(s, x, ht_number_of_elements(s, x, AXES(0, -1), HT_F32)))                                    \
    X(equal_arrays, ht_array_equal(s, ht_transpose(s, w, NULL), ht_swapaxes(s, w, 0, 1), true))                        \
    X(close_arrays, ht_allclose(s, x, ht_add(s, x, number(s, 1e-9)), 1e-3, 1e-3, false))                               \
    X(shuffled, ht_random_permutation(s, x, 1, ht_random_key(s, 5)))                                                   \
    X(drawn, ht_random_categorical(s, ht_slice_range(s, rows_of(s, x), BOUNDS(0, 0), BOUNDS(2, HT_OPEN), NULL), -1,    \
                                   SIZES(2), ht_random_key(s, 5)))                                                     \
    X(clipped, ht_clip(s, x, number(s, -0.5), number(s, 0.5)))                                                         \
    X(as_bytes, ht_view_as(s, ht_contiguous(s, ht_swapaxes(s, x, 0, 1)), HT_U8))                                       \
    X(itself, x)

typedef ht_array *composition(ht_scope *s, ht_array *x, ht_array *w);
#define DEFINE(name, expression)                                                                                       \
    static ht_array *make_##name(ht_scope *s, ht_array *x, ht_array *w) {                                              \
        (void)s, (void)x, (void)w;                                                                                     \
        return expression;                                                                                             \
    }
FUNCTIONS(DEFINE)

/* ---- losses, whose derivatives are compiled ---- */

static ht_array *mean_of(ht_scope *s, ht_array *x) { return ht_mean(s, x, NULL, 0, false); }
static ht_array *perceptron(ht_scope *s, ht_array *x, ht_array *w) {
    ht_array *hidden = ht_tanh(s, ht_matmul(s, x, w, false));
    ht_array *y = ht_add(s, ht_matmul(s, hidden, ht_transpose(s, w, NULL), false), ht_mean(s, w, AXES(1), false));
    return mean_of(s, ht_square(s, ht_subtract(s, y, number(s, 0.5))));
}
static ht_array *cross_entropy(ht_scope *s, ht_array *x, ht_array *w) {
    ht_array *logits = ht_matmul(s, x, w, false);
    ht_array *label = ht_expand_dims(s, ht_argmax(s, ht_sin(s, logits), (int[]){-1}, false), -1);
    ht_array *picked = ht_squeeze(s, ht_take_along_axis(s, logits, label, -1), -1);
    return mean_of(s, ht_subtract(s, ht_logsumexp(s, logits, AXES(-1), false), picked));
}
static ht_array *normalised(ht_scope *s, ht_array *x, ht_array *w) {
    ht_array *gain = ht_mean(s, w, AXES(1), false), *y = ht_layer_norm(s, x, gain, ht_square(s, gain), 1e-5f);
    return mean_of(s, ht_multiply(s, ht_rms_norm(s, y, gain, 1e-5f, 1), ht_cos(s, x)));
}
static ht_array *normalised_in_parts(ht_scope *s, ht_array *x, ht_array *w) {
    ht_array *off = ht_subtract(s, x, ht_mean(s, x, AXES(-1), true));
    ht_array *y = ht_multiply(s, off, ht_rsqrt(s, ht_add(s, ht_var(s, x, AXES(-1), true, 0), number(s, 1e-3))));
    return ht_sum(s, ht_multiply(s, y, ht_mean(s, w, AXES(1), false)), NULL, 0, false);
}
static ht_array *attentive(ht_scope *s, ht_array *x, ht_array *w) {
    ht_array *y = attended(s, ht_matmul(s, x, ht_matmul(s, w, w, true), false), HT_NONE, true);
    return mean_of(s, ht_add(s, ht_squeeze(s, y, 1), ht_square(s, attended_in_parts(s, x))));
}
static ht_array *cut_and_joined(ht_scope *s, ht_array *x, ht_array *w) {
    ht_array *y = ht_slice_range(s, x, BOUNDS(0, 1, 0), BOUNDS(HT_OPEN, HT_OPEN, -1), NULL);
    y = joined(s, ht_sum(s, y, AXES(1, 2), false), ht_max(s, ht_roll(s, w, 1, 0), AXES(1), false), 0);
    y = ht_multiply(s, ht_pad(s, y, (const int64_t[1][2]){{1, 2}}, number(s, 1)), number(s, 3));
    return ht_sum(s, ht_square(s, ht_cumsum(s, y, 0, false, true)), NULL, 0, false);
}
/* An array that is its own result, used beside it: its gradient adds up in the order of its uses. */
static ht_array *used_often(ht_scope *s, ht_array *x, ht_array *w) {
    ht_array *y = ht_view_as(s, x, HT_F32);
    y = ht_add(s, ht_multiply(s, ht_cos(s, x), y), ht_multiply(s, ht_exp(s, y), ht_sin(s, x)));
    return ht_sum(s, ht_multiply(s, y, ht_mean(s, w, AXES(1), false)), NULL, 0, false);
}
#define LOSSES(X)                                                                                                      \
    X(perceptron) X(cross_entropy) X(normalised) X(normalised_in_parts) X(attentive) X(cut_and_joined) X(used_often)

/* ---- comparing ---- */

enum { VALUE, GRADIENT, SECOND, FORWARD, CHECKPOINTED };

typedef struct compiled_function {
    composition *make;
    int mode;
    int calls;
} compiled_function;

static int loss_alone(ht_scope *s, ht_array *const *in, int n_in, ht_array **out, int max_out, void *user) {
    (void)n_in, (void)max_out;
    out[0] = ((compiled_function *)user)->make(s, in[0], in[1]);
    return out[0] ? 1 : -1;
}

static int checkpointed_loss(ht_scope *s, ht_array *const *in, int n_in, ht_array **out, int max_out, void *user) {
    const ht_function f = {loss_alone, user};
    return ht_checkpoint(s, &f, in, n_in, out, max_out);
}

/* The size of the first gradient. */
static int slope(ht_scope *s, ht_array *const *in, int n_in, ht_array **out, int max_out, void *user) {
    const ht_function f = {loss_alone, user};
    ht_array *grad[2];
    (void)max_out;
    if (!ht_grad(s, &f, in, n_in, (ht_wrt){(int[]){0, 1}, 2}, grad)) return -1;
    out[0] =
        ht_add(s, ht_sum(s, ht_square(s, grad[0]), NULL, 0, false), ht_sum(s, ht_square(s, grad[1]), NULL, 0, false));
    return out[0] ? 1 : -1;
}

static int compute(ht_scope *s, ht_array *const *in, int n_in, ht_array **out, int max_out, void *user) {
    compiled_function *c = user;
    ht_function f = {c->mode == SECOND ? slope : c->mode == CHECKPOINTED ? checkpointed_loss : loss_alone, c};
    c->calls++;
    if (c->mode == VALUE) return f.call(s, in, n_in, out, max_out, c);
    if (c->mode == FORWARD)
        return ht_jvp(s, &f, in, (ht_array *[]){ht_cos(s, in[0]), in[1]}, 2, out, out + 1, 1) == 1 ? 2 : -1;
    return ht_value_and_grad(s, &f, in, 2, (ht_wrt){(int[]){0, 1}, 2}, out, 1, out + 1) == 1 ? 3 : -1;
}

static ht_array *sample(ht_scope *s, const int64_t *shape, int n_dims, bool turned) {
    int64_t n = 1, back[3];
    for (int i = 0; i < n_dims; i++) {
        n *= shape[i];
        back[i] = shape[n_dims - 1 - i];
    }
    ht_array *x = ht_sin(s, ht_square(s, ht_arange(s, 1, (double)n + 0.5, 1, HT_F32)));
    return turned ? ht_transpose(s, ht_reshape(s, x, back, n_dims), NULL) : ht_reshape(s, x, shape, n_dims);
}

static void expect_equal(ht_scope *s, const char *name, const int64_t *size, ht_array *a, ht_array *b) {
    char wanted[HT_SHAPE_TEXT], found[HT_SHAPE_TEXT];
    ht_error err;
    if (!ht_array_n_dims(a) != !ht_array_n_dims(b) ||
        strcmp(ht_shape_text(a->shape, a->n_dims, wanted), ht_shape_text(b->shape, b->n_dims, found)) != 0)
        fail_msg("%s: %s, expected %s", name, ht_shape_text(b->shape, b->n_dims, found), wanted);
    assert_int_equal(ht_array_dtype(a), ht_array_dtype(b));
    size_t bytes = (size_t)ht_array_size(a) * ht_dtype_bytes(ht_array_dtype(a));
    unsigned char *x = malloc(bytes + 1), *y = malloc(bytes + 1);
    const bool refused = ht_array_read(s, a, x, bytes, &err); /* an index outside, of an axis of none */
    if (refused != (ht_array_read(s, b, y, bytes, &err) != HT_OK)) fail_msg("%s: %s", name, err.message);
    if (!refused && memcmp(x, y, bytes) != 0)
        fail_msg("%s of sizes %d, %d, %d: another result than without compiling", name, (int)size[0], (int)size[1],
                 (int)size[2]);
    free(x);
    free(y);
}

static const int64_t sizes[][3] = {{2, 3, 4}, {2, 3, 4}, {3, 3, 3}, {1, 1, 1}, {5, 2, 7}, {1, 4, 2},
                                   {4, 1, 3}, {2, 6, 1}, {0, 3, 2}, {2, 0, 3}, {3, 2, 0}, {6, 5, 4}};
enum { N_SIZES = sizeof sizes / sizeof *sizes };

/* Traced with the sizes at `first`, then called with all others. */
static void check_from(const char *name, composition *make, int mode, int first) {
    ht_compiled *compiled;
    compiled_function once = {.make = make, .mode = mode}, plain = once;
    const ht_function f = {compute, &once};
    assert_works(ht_compile, &f, OPTIONS_AT(ht_compile_options, with.shapeless = true), &compiled);
    int settled = 0; /* the calls until the first that succeeded */
    for (int i = 0; i < N_SIZES; i++) {
        const int64_t *z = sizes[(first + i) % N_SIZES];
        ht_scope *s = ht_scope_new(test_stream), *t = ht_scope_new(test_stream);
        ht_array *in[2] = {sample(s, z, 3, i % 2), sample(s, (int64_t[]){z[2], z[1]}, 2, i % 3 == 1)};
        ht_array *got[3], *want[3];
        int n = compute(s, in, 2, want, 3, &plain), m = ht_compiled_call(t, compiled, in, 2, got, 3);
        if (n != m)
            fail_msg("%s of sizes %d, %d, %d: gives %d arrays, compiled %d: %s", name, (int)z[0], (int)z[1], (int)z[2],
                     n, m, ht_scope_error(n < m ? s : t)->message);
        if (settled) assert_int_equal(once.calls, settled);
        if (n > 0) settled = once.calls;
        for (int k = 0; k < n; k++) expect_equal(t, name, z, want[k], got[k]);
        ht_scope_free(t);
        ht_scope_free(s);
    }
    ht_compiled_free(compiled);
}

UNIT_TEST(values_follow_the_sizes) {
    for (int first = 0; first < N_SIZES; first += TEST_SLOW ? 8 : 3) {
#define CHECK(name, expression) check_from(#name, make_##name, VALUE, first);
        FUNCTIONS(CHECK)
#undef CHECK
    }
}

UNIT_TEST(derivatives_follow_the_sizes) {
    for (int first = 0; first < N_SIZES; first += TEST_SLOW ? 8 : 3)
        for (int mode = GRADIENT; mode <= CHECKPOINTED; mode++) {
#define CHECK(name) check_from(#name, name, mode, first);
            LOSSES(CHECK)
#undef CHECK
        }
}

/* ---- what is traced anew, and what is refused ---- */

static int call_compiled(ht_scope *s, ht_array *const *in, int n_in, ht_array **out, int max_out, void *user) {
    return ht_compiled_call(s, user, in, n_in, out, max_out);
}

static ht_compiled *compiled_of(const ht_function *f) {
    ht_compiled *c;
    assert_works(ht_compile, f, OPTIONS_AT(ht_compile_options, with.shapeless = true), &c);
    return c;
}

static int doubled(ht_scope *s, ht_array *const *in, int n_in, ht_array **out, int max_out, void *user) {
    (void)n_in, (void)max_out;
    ++*(int *)user;
    out[0] = ht_add(s, in[0], in[0]);
    return 1;
}

UNIT_TEST(other_dtypes_and_dimensions_are_traced_anew) {
    int calls = 0;
    const ht_function f = {doubled, &calls};
    ht_compiled *c = compiled_of(&f);
    ht_scope *s = ht_scope_new(test_stream);
    for (int round = 0; round < 2; round++)
        for (int n_dims = 0; n_dims < 4; n_dims++)
            for (int k = 0; k < 2; k++) {
                ht_array *x = ht_ones(s, k ? HT_I32 : HT_F32, (int64_t[]){2 + round, 3, 5 - round}, n_dims), *y;
                assert_int_equal(ht_compiled_call(s, c, &x, 1, &y, 1), 1);
                assert_int_equal(ht_array_n_dims(y), n_dims);
                assert_int_equal(ht_array_dtype(y), k ? HT_I32 : HT_F32);
                assert_int_equal(calls, round ? 8 : 2 * n_dims + k + 1);
            }
    ht_scope_free(s);
    ht_compiled_free(c);
}

/* One way of writing a size as a number. */
static int written(ht_scope *s, ht_array *const *in, int n_in, ht_array **out, int max_out, void *user) {
    const int64_t n = ht_array_dim(in[0], 0), zero = 0, two = 2;
    ht_array *x = in[0], *y = NULL;
    (void)n_in, (void)max_out;
    switch (*(int *)user) {
    case 0: y = ht_reshape(s, x, (int64_t[]){2, n / 2}, 2); break;
    case 1: y = ht_broadcast_to(s, x, (int64_t[]){2, n}, 2); break;
    case 2: y = ht_slice(s, x, &zero, &n, NULL); break;
    case 3: y = ht_add(s, x, ht_zeros(s, HT_F32, &n, 1)); break;
    case 4: y = ht_slice(s, x, &two, (int64_t[]){n - 1}, NULL); break;
    case 5: y = ht_gather(s, x, (ht_array *[]){ht_zeros(s, HT_I32, NULL, 0)}, (int[]){0}, 1, &n); break;
    case 6: y = ht_slice_update(s, x, x, &zero, &n, NULL); break;
    case 7: y = ht_split(s, x, (int64_t[]){3, n - 1}, 2, 0, out) ? out[2] : NULL; break;
    case 8: y = ht_random_uniform(s, x, HT_NONE, HT_F32, (int64_t[]){1, n}, 2, ht_random_key(s, 1)); break;
    case 9: y = ht_squeeze(s, ht_slice_range(s, x, (int64_t[]){n - 1}, (int64_t[]){n}, NULL), 0); break;
    case 10: y = ht_as_strided(s, x, &n, (int64_t[]){1}, 1, 0); break;
    default: y = ht_partition(s, x, n - 1, 0);
    }
    out[0] = y;
    return y ? 1 : -1;
}

UNIT_TEST(sizes_written_as_numbers_are_never_wrong) {
    static const char *const error[] = {"reshape: [5] cannot become [2, 3]",
                                        "broadcast: [5] does not stretch to [2, 6]",
                                        "slice: bound 6 of axis 0 was the end",
                                        "shapes [5] and [6] do not broadcast",
                                        "cannot be cut from 2 to 5",
                                        "slices [6]",
                                        "slice_update: bound 6 of axis 0 was the end",
                                        "slice: axis 0 of 4 cannot be cut from 3 to 5",
                                        "bounds of shape [5]",
                                        "squeeze: axis 0 of [0] is not 1",
                                        "a window [6] reaches outside the 5",
                                        "there is no place 5"};
    for (int way = 0; way < (int)(sizeof error / sizeof *error); way++) {
        const ht_function f = {written, &way};
        ht_compiled *c = compiled_of(&f);
        for (int round = 0; round < 4; round++) { /* what was refused once changes nothing */
            ht_scope *s = ht_scope_new(test_stream);
            ht_array *x = test_counting(s, (int64_t[]){round % 2 ? (way == 4 || way == 7 ? 4 : 5) : 6}, 1), *y[3];
            int n = ht_compiled_call(s, c, &x, 1, y, 3);
            if (round % 2 == 0) {
                if (n != 1) fail_msg("way %d: %s", way, ht_scope_error(s)->message);
                ht_scope_free(s);
                continue;
            }
            assert_int_equal(n, -1);
            if (!strstr(ht_scope_error(s)->message, error[way])) print_message("way %d\n", way);
            assert_non_null(strstr(ht_scope_error(s)->message, "traced with [6]"));
            test_expect_error(s, y[0], error[way]);
        }
        ht_compiled_free(c);
    }
}

/* ---- functions in functions ---- */

static int cubed(ht_scope *s, ht_array *const *in, int n_in, ht_array **out, int max_out, void *user) {
    (void)n_in, (void)max_out;
    ++*(int *)user;
    out[0] = mean_of(s, ht_multiply(s, in[0], ht_square(s, in[0])));
    return 1;
}

static int slope_of(ht_scope *s, ht_array *const *in, int n_in, ht_array **out, int max_out, void *user) {
    ht_array *grad;
    (void)max_out;
    if (!ht_grad(s, user, in, n_in, (ht_wrt){(int[]){0}, 1}, &grad)) return -1;
    out[0] = ht_sum(s, grad, NULL, 0, false);
    return 1;
}

static double value_of(ht_scope *s, ht_array *a) {
    float v = NAN;
    ht_error err = {0};
    if (!a) fail_msg("%s", ht_scope_error(s)->message);
    if (ht_array_read(s, ht_reshape(s, ht_mean(s, a, NULL, 0, false), NULL, 0), &v, sizeof v, &err))
        fail_msg("%s", err.message);
    return (double)v;
}

UNIT_TEST(compiled_functions_nest) {
    int calls = 0;
    const ht_function f = {cubed, &calls};
    ht_compiled *inner = compiled_of(&f);
    ht_function through = {call_compiled, inner}, slope_function = {slope_of, &through};
    ht_compiled *outer = compiled_of(&slope_function);
    ht_function of_outer = {call_compiled, outer};
    for (int n = 1; n < 5; n++) { /* d/dx sum(3 x^2 / n) at x = 2, and its derivative */
        ht_scope *s = ht_scope_new(test_stream);
        ht_array *x = ht_full(s, 2, HT_F32, (int64_t[]){n, 3}, 2), *y, *grad;
        assert_int_equal(ht_compiled_call(s, outer, &x, 1, &y, 1), 1);
        assert_true(fabs(value_of(s, y) - 12) < 1e-5);
        assert_true(ht_grad(s, &of_outer, &x, 1, (ht_wrt){(int[]){0}, 1}, &grad));
        assert_true(fabs(value_of(s, grad) - 12.0 / (3 * n)) < 1e-5);
        assert_int_equal(ht_compiled_call(s, inner, &x, 1, &y, 1), 1);
        assert_true(fabs(value_of(s, y) - 8) < 1e-5);
        ht_scope_free(s);
    }
    assert_int_equal(calls, 2); /* for the record of each of the two */
    ht_compiled_free(outer);
    ht_compiled_free(inner);
}

static bool three_times(ht_scope *s, ht_array *const *in, int n_in, ht_array *const *out, ht_array *const *grad_out,
                        int n_out, ht_array **grad_in, void *user) {
    (void)in, (void)n_in, (void)out, (void)n_out, (void)user;
    grad_in[0] = ht_scale(s, grad_out[0], 3);
    return grad_in[0] != NULL;
}
static void count_release(void *user) { ++*(int *)user; }

static int squared(ht_scope *s, ht_array *const *in, int n_in, ht_array **out, int max_out, void *user) {
    (void)n_in, (void)max_out, (void)user;
    out[0] = ht_sum(s, ht_square(s, in[0]), NULL, 0, false);
    return 1;
}
static int with_own_slope(ht_scope *s, ht_array *const *in, int n_in, ht_array **out, int max_out, void *user) {
    const ht_function f = {squared, NULL};
    const ht_custom_vjp vjp = {three_times, user, count_release};
    return ht_custom_function(s, &f, &vjp, in, n_in, out, max_out);
}
static bool one_for_all(ht_scope *s, ht_array *const *in, int n_in, ht_array *const *out, ht_array *const *grad_out,
                        int n_out, ht_array **grad_in, void *user) {
    (void)out;
    if (!three_times(s, in, n_in, out, grad_out, n_out, grad_in, user)) return false;
    grad_in[0] = ht_broadcast_like(s, grad_in[0], in[0]);
    return grad_in[0] != NULL;
}
static int with_broadcast_slope(ht_scope *s, ht_array *const *in, int n_in, ht_array **out, int max_out, void *user) {
    const ht_function f = {squared, NULL};
    const ht_custom_vjp vjp = {one_for_all, user, count_release};
    return ht_custom_function(s, &f, &vjp, in, n_in, out, max_out);
}

UNIT_TEST(custom_derivatives_are_kept_and_released) {
    int released = 0;
    ht_function f = {with_broadcast_slope, &released}, slope_function = {slope_of, &f};
    ht_compiled *c = compiled_of(&slope_function);
    for (int n = 1; n < 5; n++) {
        ht_scope *s = ht_scope_new(test_stream);
        ht_array *x = ht_ones(s, HT_F32, (int64_t[]){n}, 1), *y;
        assert_int_equal(ht_compiled_call(s, c, &x, 1, &y, 1), 1);
        assert_true(fabs(value_of(s, y) - 3.0 * n) < 1e-5);
        ht_scope_free(s);
    }
    assert_int_equal(released, 0);
    ht_compiled_free(c);
    assert_int_equal(released, 1);
    f.call = with_own_slope; /* of the wrong shape */
    c = compiled_of(&slope_function);
    ht_scope *s = ht_scope_new(test_stream);
    ht_array *x = ht_ones(s, HT_F32, (int64_t[]){4}, 1), *y;
    assert_int_equal(ht_compiled_call(s, c, &x, 1, &y, 1), -1);
    test_expect_error(s, y, "a custom gradient, of input 0, is []");
    ht_compiled_free(c);
    assert_int_equal(released, 2);
}

/* ---- constants ---- */

static int with_constant(ht_scope *s, ht_array *const *in, int n_in, ht_array **out, int max_out, void *user) {
    (void)n_in, (void)max_out;
    out[0] = ht_multiply(s, in[0], *(ht_array **)user);
    out[1] = *(ht_array **)user;
    return 2;
}

UNIT_TEST(constants_are_kept_as_they_were) {
    ht_scope *outer = ht_scope_new(test_stream);
    ht_array *captured = ht_exp(outer, number(outer, 1)), *y[2];
    const ht_function f = {with_constant, &captured};
    ht_compiled *c = compiled_of(&f);
    for (int n = 1; n < 4; n++) {
        ht_scope *s = ht_scope_new(test_stream);
        ht_array *x = ht_full(s, n, HT_F32, (int64_t[]){n}, 1);
        assert_int_equal(ht_compiled_call(s, c, &x, 1, y, 2), 2);
        assert_true(fabs(value_of(s, y[0]) - n * exp(1)) < 1e-4);
        assert_true(fabs(value_of(s, y[1]) - exp(1)) < 1e-4);
        ht_scope_free(s);
        if (n == 1) ht_scope_free(outer); /* the compiled function holds it */
    }
    ht_compiled_free(c);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values_follow_the_sizes),
        cmocka_unit_test(derivatives_follow_the_sizes),
        cmocka_unit_test(other_dtypes_and_dimensions_are_traced_anew),
        cmocka_unit_test(sizes_written_as_numbers_are_never_wrong),
        cmocka_unit_test(compiled_functions_nest),
        cmocka_unit_test(custom_derivatives_are_kept_and_released),
        cmocka_unit_test(constants_are_kept_as_they_were),
    };
    return cmocka_run_group_tests(tests, test_open_stream, test_close_stream);
}
