/* Random numbers: bits from a key, and distributions derived from them. Bit-identity with MLX depends on the order of
 * the operations and on the dtype of every intermediate result. */
#include "array/op.h"
#include "base/error.h"
#include "ops/replay_arguments.h"

#include <hearth/index.h>
#include <hearth/ops.h>
#include <hearth/order.h>
#include <hearth/random.h>

#include <math.h>
#include <string.h>

/* ---- bits ---- */

ht_status ht_shape_random_bits(const ht_op_call *c, ht_result_type *out, ht_error *err) {
    const ht_random_bits_params *p = c->params;
    const ht_array *key = c->in[0];
    char text[HT_SHAPE_TEXT];
    if (key->dtype != HT_U32 || key->n_dims != 1 || key->shape[0] != 2)
        return ht_fail(err, HT_ERR_ARGUMENT, "%s: the key is %s of %s, expected u32 [2]", c->op,
                       ht_shape_text(key->shape, key->n_dims, text), ht_dtype_name(key->dtype));
    out->dtype = p->dtype;
    out->n_dims = p->n_dims;
    memcpy(out->shape, p->shape, sizeof out->shape);
    return HT_OK;
}

static ht_array *bits(ht_scope *s, ht_dtype dtype, const int64_t *shape, int n_dims, ht_array *key) {
    ht_random_bits_params p = {.n_dims = n_dims, .dtype = dtype};
    if (n_dims < 0 || n_dims > HT_MAX_DIMS)
        return ht_scope_fail(s, HT_ERR_ARGUMENT, "random_bits: %d dimensions, expected 0 to %d", n_dims, HT_MAX_DIMS);
    for (int i = 0; i < n_dims; i++) p.shape[i] = shape[i];
    return ht_apply(s, HT_OP_RANDOM_BITS, &p, &key, 1);
}

ht_array *ht_random_key(ht_scope *s, uint64_t seed) {
    const uint32_t words[2] = {(uint32_t)(seed >> 32), (uint32_t)seed};
    return ht_array_from(s, words, HT_U32, (int64_t[]){2}, 1);
}

ht_array *ht_random_split(ht_scope *s, ht_array *key, int64_t n) { return bits(s, HT_U32, (int64_t[]){n, 2}, 2, key); }

ht_array *ht_random_bits(ht_scope *s, int width, const int64_t *shape, int n_dims, ht_array *key) {
    if (width != 1 && width != 2 && width != 4)
        return ht_scope_fail(s, HT_ERR_ARGUMENT, "random_bits: %d bytes, expected 1, 2 or 4", width);
    return bits(s, width == 1 ? HT_U8 : width == 2 ? HT_U16 : HT_U32, shape, n_dims, key);
}

/* ---- real numbers ---- */

static ht_array *number(ht_scope *s, double value, ht_dtype dtype) { return ht_full(s, value, dtype, NULL, 0); }

static bool is_drawn(ht_scope *s, const char *name, ht_dtype dtype) {
    if (dtype == HT_F16 || dtype == HT_BF16 || dtype == HT_F32) return true;
    return ht_scope_fail(s, HT_ERR_ARGUMENT, "%s: gives f16, bf16 or f32, not %s", name, ht_dtype_name(dtype));
}

typedef struct broadcast_args {
    const char *name;
    int n_dims;
    int64_t shape[HT_MAX_DIMS];
} broadcast_args;
static ht_replay_fn check_broadcast_again;

/* Checks that x broadcasts to the requested shape. */
static bool check_broadcast(ht_scope *s, const char *name, const ht_array *x, const int64_t *shape, int n_dims) {
    ht_array want = {.n_dims = n_dims}, both = {.n_dims = 0};
    char tx[HT_SHAPE_TEXT], tw[HT_SHAPE_TEXT];
    if (!x || n_dims < 0 || n_dims > HT_MAX_DIMS) return x != NULL; /* an invalid shape is reported by bits() */
    if (n_dims) memcpy(want.shape, shape, (size_t)n_dims * sizeof *shape);
    if (ht_recording()) {
        broadcast_args a = {.name = name, .n_dims = n_dims};
        memcpy(a.shape, want.shape, sizeof a.shape);
        return ht_record_call(s, &(ht_recorded_call){check_broadcast_again, &a, sizeof a, NULL},
                              (ht_array *[]){(ht_array *)(uintptr_t)x}, 1, NULL, 0);
    }
    bool ok = ht_broadcast_shapes(x, &want, both.shape, &both.n_dims) && both.n_dims == n_dims;
    for (int i = 0; ok && i < n_dims; i++) ok = both.shape[i] == shape[i];
    if (!ok)
        ht_scope_fail(s, HT_ERR_ARGUMENT, "%s: bounds of shape %s do not stretch to %s", name,
                      ht_shape_text(x->shape, x->n_dims, tx), ht_shape_text(want.shape, n_dims, tw));
    return ok;
}

static bool check_broadcast_again(ht_scope *s, const void *args, ht_array *const *in, int n_in, ht_array **out) {
    const broadcast_args *a = args;
    (void)n_in, (void)out;
    return check_broadcast(s, a->name, in[0], a->shape, a->n_dims);
}

/* Uniform on [0, 1): in f16 and bf16, numbers that round up to 1 become the largest number below 1. */
static ht_array *unit(ht_scope *s, ht_dtype dtype, const int64_t *shape, int n_dims, ht_array *key) {
    ht_array *u = bits(s, HT_F32, shape, n_dims, key);
    if (dtype == HT_F32) return u;
    const double below_one = dtype == HT_F16 ? 1.0 - 0x1p-11 : 1.0 - 0x1p-8;
    return ht_minimum(s, ht_astype(s, u, dtype), number(s, below_one, dtype));
}

ht_array *ht_random_uniform(ht_scope *s, ht_array *low, ht_array *high, ht_dtype dtype, const int64_t *shape,
                            int n_dims, ht_array *key) {
    if (!is_drawn(s, "uniform", dtype)) return NULL;
    ht_array *u = unit(s, dtype, shape, n_dims, key);
    if (low == HT_NONE && high == HT_NONE) return u;
    low = low == HT_NONE ? number(s, 0, dtype) : ht_astype(s, low, dtype);
    high = high == HT_NONE ? number(s, 1, dtype) : ht_astype(s, high, dtype);
    ht_array *range = ht_subtract(s, high, low);
    if (!check_broadcast(s, "uniform", range, shape, n_dims)) return NULL;
    return ht_add(s, ht_multiply(s, range, u), low);
}

/* An elementary function, bit-identical to MLX (base/math_drawn.h). */
static ht_array *drawn(ht_scope *s, ht_drawn_function function, ht_array *x) {
    const ht_drawn_params p = {function};
    return ht_apply(s, HT_OP_DRAWN, &p, &x, 1);
}

/* Uniform on (-1, 1), f32. */
static ht_array *open_interval(ht_scope *s, const int64_t *shape, int n_dims, ht_array *key) {
    ht_array *low = number(s, (double)nextafterf(-1.0f, 0.0f), HT_F32);
    return ht_random_uniform(s, low, HT_NONE, HT_F32, shape, n_dims, key);
}

static ht_array *moved(ht_scope *s, const char *name, ht_array *x, ht_array *loc, const int64_t *shape, int n_dims) {
    if (loc == HT_NONE || !x) return x;
    loc = ht_astype(s, loc, x->dtype);
    return check_broadcast(s, name, loc, shape, n_dims) ? ht_add(s, loc, x) : NULL;
}

ht_array *ht_random_normal(ht_scope *s, ht_array *loc, ht_array *scale, ht_dtype dtype, const int64_t *shape,
                           int n_dims, ht_array *key) {
    if (!is_drawn(s, "normal", dtype)) return NULL;
    ht_array *x = ht_astype(s, drawn(s, HT_DRAWN_ERFINV, open_interval(s, shape, n_dims, key)), dtype);
    ht_array *by = number(s, sqrt(2.0), dtype);
    if (scale != HT_NONE) by = ht_multiply(s, by, ht_astype(s, scale, dtype));
    if (!check_broadcast(s, "normal", by, shape, n_dims)) return NULL;
    return moved(s, "normal", ht_multiply(s, by, x), loc, shape, n_dims);
}

ht_array *ht_random_truncated_normal(ht_scope *s, ht_array *lower, ht_array *upper, ht_dtype dtype,
                                     const int64_t *shape, int n_dims, ht_array *key) {
    if (!is_drawn(s, "truncated_normal", dtype)) return NULL;
    ht_array *root = number(s, sqrt(2.0), dtype);
    lower = ht_astype(s, lower, dtype);
    upper = ht_astype(s, upper, dtype);
    ht_array *low = drawn(s, HT_DRAWN_ERF, ht_divide(s, lower, root));
    ht_array *high = drawn(s, HT_DRAWN_ERF, ht_divide(s, upper, root));
    ht_array *u = ht_random_uniform(s, low, high, dtype, shape, n_dims, key);
    return ht_maximum(s, ht_minimum(s, upper, ht_multiply(s, root, drawn(s, HT_DRAWN_ERFINV, u))), lower);
}

ht_array *ht_random_laplace(ht_scope *s, ht_array *loc, ht_array *scale, ht_dtype dtype, const int64_t *shape,
                            int n_dims, ht_array *key) {
    if (!is_drawn(s, "laplace", dtype)) return NULL;
    ht_array *u = open_interval(s, shape, n_dims, key);
    ht_array *x = ht_multiply(s, ht_sign(s, u), drawn(s, HT_DRAWN_LOG1P, ht_negative(s, ht_abs(s, u))));
    x = ht_astype(s, x, dtype);
    if (scale != HT_NONE) {
        scale = ht_astype(s, scale, dtype);
        if (!check_broadcast(s, "laplace", scale, shape, n_dims)) return NULL;
        x = ht_multiply(s, scale, x);
    }
    return moved(s, "laplace", x, loc, shape, n_dims);
}

ht_array *ht_random_gumbel(ht_scope *s, ht_dtype dtype, const int64_t *shape, int n_dims, ht_array *key) {
    ht_array *u = ht_random_uniform(s, HT_NONE, HT_NONE, dtype, shape, n_dims, key);
    return ht_negative(s, drawn(s, HT_DRAWN_LOG, ht_negative(s, drawn(s, HT_DRAWN_LOG, u))));
}

/* ---- integers ---- */

/* Bounds of MLX's method for integers, floor(low + u * (high - low)) in f32. Beyond them rounding makes some integers
 * impossible. Within them every integer occurs, and probabilities differ by less than 1 %: there the numbers are MLX's. */
enum { MOST_IN_F32 = 1 << 17, MOST_FOR_ONE = 128 };

__extension__ typedef __int128 bound; /* any signed or unsigned 64-bit bound */

/* True when MLX's method is nearly uniform for [low, high), or the range is empty. */
static bool is_even_in_f32(bound low, bound high) {
    const bound most = high > -low ? high : -low;
    return high <= low || (most <= MOST_IN_F32 && most <= MOST_FOR_ONE * (high - low));
}

/* Reads a bound that is one evaluated integer; false for other arrays. */
static bool known_bound(ht_scope *s, ht_array *x, bound *out) {
    union {
        int32_t i32;
        int64_t i64;
        uint64_t u64;
    } v;
    ht_error ignored = {0};
    if ((x->dtype != HT_I32 && x->dtype != HT_I64 && x->dtype != HT_U64) || ht_array_size(x) != 1) return false;
    if (ht_recording() || !ht_array_is_evaluated(x)) return false;
    if (ht_array_read(s, x, &v, ht_dtype_bytes(x->dtype), &ignored)) return false;
    *out = x->dtype == HT_I32 ? v.i32 : x->dtype == HT_I64 ? v.i64 : (bound)v.u64;
    return true;
}

/* is_even_in_f32 of arrays, bool. A range is empty when its size modulo 2^64, as a signed number, is not positive; f64
 * arithmetic decides for sizes beyond 2^62. */
static ht_array *even_in_f32(ht_scope *s, ht_array *low, ht_array *high, ht_array *size) {
    ht_array *far = ht_subtract(s, ht_astype(s, high, HT_F64), ht_astype(s, low, HT_F64));
    ht_array *some = ht_greater(s, ht_astype(s, size, HT_I64), number(s, 0, HT_I64));
    some = ht_logical_and(s, some, ht_greater(s, far, number(s, -0x1p62, HT_F64)));
    some = ht_logical_or(s, some, ht_greater(s, far, number(s, 0x1p62, HT_F64)));
    ht_array *most = ht_maximum(s, ht_negative(s, ht_astype(s, low, HT_F64)), ht_astype(s, high, HT_F64));
    ht_array *near = ht_less_equal(s, most, ht_multiply(s, far, number(s, MOST_FOR_ONE, HT_F64)));
    near = ht_logical_and(s, near, ht_less_equal(s, most, number(s, MOST_IN_F32, HT_F64)));
    return ht_logical_or(s, near, ht_logical_not(s, some));
}

/* MLX's method; results rounded up to `high` become high - 1. */
static ht_array *integers_of_f32(ht_scope *s, ht_array *low, ht_array *high, const int64_t *shape, int n_dims,
                                 ht_array *key) {
    low = ht_astype(s, low, HT_F32);
    high = ht_astype(s, high, HT_F32);
    ht_array *x = ht_floor(s, ht_random_uniform(s, low, high, HT_F32, shape, n_dims, key));
    return ht_minimum(s, x, ht_maximum(s, low, ht_subtract(s, high, number(s, 1, HT_F32))));
}

/* floor((word * size + rest) / 2^32) in u64 arithmetic, word < 2^32; `rest` NULL: 0. */
static ht_array *scaled(ht_scope *s, ht_array *word, ht_array *size, ht_array *rest) {
    ht_array *shift = number(s, 32, HT_U64), *mask = number(s, 0xFFFFFFFF, HT_U64);
    ht_array *x = ht_multiply(s, word, ht_bitwise_and(s, size, mask));
    if (rest) x = ht_add(s, x, ht_bitwise_and(s, rest, mask));
    x = ht_add(s, ht_right_shift(s, x, shift), ht_multiply(s, word, ht_right_shift(s, size, shift)));
    return rest ? ht_add(s, x, ht_right_shift(s, rest, shift)) : x;
}

static ht_array *words(ht_scope *s, const int64_t *shape, int n_dims, ht_array *key) {
    return ht_astype(s, bits(s, HT_U32, shape, n_dims, key), HT_U64);
}

/* Uniform integers, u64: floor(low + u * size) modulo 2^64 with a 96-bit fraction u, so that probabilities differ by
 * less than 2^-32, relatively. The first word of u is the word from which MLX makes its u. */
static ht_array *integers_of_bits(ht_scope *s, ht_array *low, ht_array *size, const int64_t *shape, int n_dims,
                                  ht_array *key) {
    ht_array *more = ht_random_split(s, key, 2), *x = NULL;
    for (int i = 1; more && i >= 0; i--) {
        ht_array *row = ht_slice(s, more, (int64_t[]){i, 0}, (int64_t[]){i + 1, 2}, NULL);
        ht_array *word = words(s, shape, n_dims, ht_squeeze(s, row, 0));
        if (!word || !(x = scaled(s, word, size, x))) return NULL;
    }
    x = more ? scaled(s, words(s, shape, n_dims, key), size, x) : NULL;
    return ht_add(s, low, x);
}

/* x as u64, modulo 2^64. */
static ht_array *modulo(ht_scope *s, ht_array *x) {
    return ht_astype(s, x && ht_dtype_is_float(x->dtype) ? ht_astype(s, x, HT_I64) : x, HT_U64);
}

static ht_array *whole_bound(ht_scope *s, ht_array *x) { return x && ht_dtype_is_float(x->dtype) ? ht_ceil(s, x) : x; }

ht_array *ht_random_randint(ht_scope *s, ht_array *low, ht_array *high, ht_dtype dtype, const int64_t *shape,
                            int n_dims, ht_array *key) {
    if (ht_dtype_is_float(dtype))
        return ht_scope_fail(s, HT_ERR_ARGUMENT, "randint: gives integers or bool, not %s", ht_dtype_name(dtype));
    low = whole_bound(s, low);
    high = whole_bound(s, high);
    if (!low || !high || !key) return NULL;
    bound from, to;
    const bool known = known_bound(s, low, &from) && known_bound(s, high, &to);
    ht_array *from_f32 = NULL, *from_bits = NULL;
    if (!known || is_even_in_f32(from, to)) {
        from_f32 = ht_astype(s, integers_of_f32(s, low, high, shape, n_dims, key), dtype);
        if (known || !from_f32) return from_f32;
    }
    ht_array *first = modulo(s, low), *size = ht_subtract(s, modulo(s, high), first);
    if (!check_broadcast(s, "randint", size, shape, n_dims)) return NULL;
    from_bits = ht_astype(s, integers_of_bits(s, first, size, shape, n_dims, key), dtype);
    return known ? from_bits : ht_where(s, even_in_f32(s, low, high, size), from_f32, from_bits);
}

/* ---- choices ---- */

ht_array *ht_random_bernoulli(ht_scope *s, ht_array *p, const int64_t *shape, int n_dims, ht_array *key) {
    if (p && !ht_dtype_is_float(p->dtype))
        return ht_scope_fail(s, HT_ERR_ARGUMENT, "bernoulli: probabilities are %s, expected floating point",
                             ht_dtype_name(p->dtype));
    if (!check_broadcast(s, "bernoulli", p, shape, n_dims)) return NULL;
    /* 32 bits are compared as they are: rounded to f32, as uniform numbers are, some would equal p from below. */
    ht_array *drawn = ht_astype(s, bits(s, HT_U32, shape, n_dims, key), HT_F64);
    return ht_less(s, drawn, ht_multiply(s, p ? ht_astype(s, p, HT_F64) : NULL, number(s, 0x1p32, HT_F64)));
}

/* Number of elements of sorted x f32 [n] that are <= each element of v, by binary search. */
static ht_array *count_below(ht_scope *s, ht_array *x, ht_array *v) {
    if (!x || !v) return NULL;
    const int64_t n = x->shape[0];
    int64_t step = 1;
    while (step <= n / 2) step *= 2;
    ht_array *found = ht_full(s, 0, HT_I32, v->shape, v->n_dims);
    for (; step > 0; step /= 2) {
        ht_array *next = ht_add(s, found, number(s, (double)step, HT_I32));
        ht_array *place = ht_minimum(s, ht_subtract(s, next, number(s, 1, HT_I32)), number(s, (double)(n - 1), HT_I32));
        ht_array *is_below = ht_less_equal(s, ht_take(s, x, place, 0), v);
        is_below = ht_logical_and(s, is_below, ht_less_equal(s, next, number(s, (double)n, HT_I32)));
        found = ht_where(s, is_below, next, found);
    }
    return found;
}

/* Samples of one distribution: inverse of its cumulative sums at uniform random numbers. */
static ht_array *drawn_from_one(ht_scope *s, ht_array *logits, const int64_t *shape, int n_dims, ht_array *key) {
    const int64_t n = ht_array_size(logits);
    ht_array *x = ht_astype(s, ht_reshape(s, logits, &n, 1), HT_F32);
    x = ht_subtract(s, x, ht_max(s, x, NULL, 0, false));
    x = ht_apply(s, HT_OP_RANDOM_SUMS, NULL, &x, 1);
    ht_array *whole = ht_slice(s, x, (int64_t[]){n - 1}, &n, NULL);
    ht_array *v = ht_multiply(s, bits(s, HT_F32, shape, n_dims, key), whole);
    return ht_astype(s, ht_minimum(s, count_below(s, x, v), number(s, (double)(n - 1), HT_I32)), HT_U32);
}

HT_REPLAY(categorical_again, ht_random_categorical(s, in[0], a->axis[0], a->size, a->n_axes, in[1]))
HT_REPLAY(permutation_again, ht_random_permutation(s, in[0], a->axis[0], in[1]))

/* Samples of several distributions by the Gumbel-max trick: argmax of logits plus Gumbel noise. */
ht_array *ht_random_categorical(ht_scope *s, ht_array *logits, int axis, const int64_t *shape, int n_dims,
                                ht_array *key) {
    int at;
    if (!logits || !ht_find_axis(s, "categorical", logits, axis, &at)) return NULL;
    const int behind = logits->n_dims - 1 - at; /* axes of the logits after the sampled one */
    if (n_dims < behind || n_dims >= HT_MAX_DIMS)
        return ht_scope_fail(s, HT_ERR_ARGUMENT, "categorical: a result of %d dimensions, expected %d to %d", n_dims,
                             behind, HT_MAX_DIMS - 1);
    if (key && ht_recording()) {
        const ht_plain_args args = {.axis = {at}, .n_axes = n_dims};
        return ht_record_plain(s, categorical_again, ht_with_sizes(args, shape, n_dims), (ht_array *[]){logits, key},
                               2);
    }
    if (n_dims > 0 && logits->shape[at] > 0 && ht_array_size(logits) == logits->shape[at])
        return drawn_from_one(s, logits, shape, n_dims, key);
    int64_t wide[HT_MAX_DIMS];
    const int along = n_dims - behind;
    for (int i = 0; i <= n_dims; i++) wide[i] = i == along ? logits->shape[at] : shape[i - (i > along)];
    if (!check_broadcast(s, "categorical", logits, wide, n_dims + 1)) return NULL;
    ht_array *noise = ht_random_gumbel(s, HT_F32, wide, n_dims + 1, key);
    return ht_argmax(s, ht_add(s, noise, logits), &along, false);
}

ht_array *ht_random_permutation(ht_scope *s, ht_array *x, int axis, ht_array *key) {
    int at;
    if (!x || !ht_find_axis(s, "permutation", x, axis, &at)) return NULL;
    if (key && ht_recording())
        return ht_record_plain(s, permutation_again, (ht_plain_args){.axis = {at}}, (ht_array *[]){x, key}, 2);
    return ht_take(s, x, ht_argsort(s, bits(s, HT_U32, &x->shape[at], 1, key), 0), at);
}
