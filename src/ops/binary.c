/* Binary elementwise operations and comparisons of arrays: operands broadcast by NumPy's rule and promote by MLX's
 * (ht_dtype_promote). */
#include "array/op.h"
#include "base/error.h"
#include "ops/gradient.h"
#include "ops/replay_arguments.h"

#include <hearth/ops.h>

#include <math.h>
#include <string.h>

bool ht_broadcast_shapes(const ht_array *a, const ht_array *b, int64_t *shape, int *n_dims) {
    int n = a->n_dims > b->n_dims ? a->n_dims : b->n_dims;
    for (int i = 0; i < n; i++) {
        int ia = i - (n - a->n_dims), ib = i - (n - b->n_dims);
        int64_t da = ia < 0 ? 1 : a->shape[ia], db = ib < 0 ? 1 : b->shape[ib];
        if (da != db && da != 1 && db != 1) return false;
        shape[i] = da == 1 ? db : da;
    }
    *n_dims = n;
    return true;
}

bool ht_same_shape(const ht_array *a, const ht_array *b) {
    return a->n_dims == b->n_dims && ht_shape_begins(a, b->shape, b->n_dims);
}

bool ht_shape_begins(const ht_array *x, const int64_t *shape, int n) {
    return x->n_dims >= n && memcmp(x->shape, shape, (size_t)n * sizeof *shape) == 0;
}

/* ---- shape rules: operands have been converted and broadcast before, if possible ---- */

static ht_status same_shapes(const char *op, const ht_array *a, const ht_array *b, ht_error *err) {
    char text_a[HT_SHAPE_TEXT], text_b[HT_SHAPE_TEXT];
    if (ht_same_shape(a, b)) return HT_OK;
    return ht_fail(err, HT_ERR_ARGUMENT, "%s: shapes %s and %s do not broadcast", op,
                   ht_shape_text(a->shape, a->n_dims, text_a), ht_shape_text(b->shape, b->n_dims, text_b));
}

static ht_status same_operands(const char *op, const ht_array *a, const ht_array *b, ht_error *err) {
    if (a->dtype == b->dtype) return same_shapes(op, a, b, err);
    return ht_fail(err, HT_ERR_ARGUMENT, "%s: operands are %s and %s; cast one of them", op, ht_dtype_name(a->dtype),
                   ht_dtype_name(b->dtype));
}

ht_status ht_shape_binary(const ht_op_call *c, ht_result_type *out, ht_error *err) {
    ht_status status = same_operands(c->op, c->in[0], c->in[1], err);
    return status ? status : ht_result_like(c->in[0], c->in[0]->dtype, out);
}

ht_status ht_shape_compare(const ht_op_call *c, ht_result_type *out, ht_error *err) {
    ht_status status = same_operands(c->op, c->in[0], c->in[1], err);
    return status ? status : ht_result_like(c->in[0], HT_BOOL, out);
}

ht_status ht_shape_where(const ht_op_call *c, ht_result_type *out, ht_error *err) {
    ht_status status = same_operands(c->op, c->in[1], c->in[2], err);
    if (!status) status = same_shapes(c->op, c->in[0], c->in[1], err);
    return status ? status : ht_result_like(c->in[1], c->in[1]->dtype, out);
}

/* ---- operands ---- */

/* x broadcast to the result's shape, as kernels require; x itself when it has that shape. */
static ht_array *broadcast_operand(ht_scope *s, ht_array *x, const int64_t *shape, int n_dims) {
    return x->n_dims == n_dims && ht_shape_begins(x, shape, n_dims) ? x : ht_broadcast_to(s, x, shape, n_dims);
}

/* Broadcasts both operands; incompatible shapes are left for the shape rule to report. */
static void broadcast_both(ht_scope *s, ht_array **a, ht_array **b) {
    int64_t shape[HT_MAX_DIMS];
    int n_dims;
    if (!*a || !*b || !ht_broadcast_shapes(*a, *b, shape, &n_dims)) return;
    *a = broadcast_operand(s, *a, shape, n_dims);
    *b = broadcast_operand(s, *b, shape, n_dims);
}

static ht_array *of_dtype(ht_scope *s, ht_op_id op, ht_dtype dtype, ht_array *a, ht_array *b);
HT_REPLAY(binary_again, of_dtype(s, (ht_op_id)a->number[0], (ht_dtype)a->number[1], in[0], in[1]))

static ht_array *of_dtype(ht_scope *s, ht_op_id op, ht_dtype dtype, ht_array *a, ht_array *b) {
    if (ht_recording())
        return ht_record_plain(s, binary_again, (ht_plain_args){.number = {(int64_t)op, (int64_t)dtype}},
                               (ht_array *[]){a, b}, 2);
    a = ht_astype(s, a, dtype);
    b = ht_astype(s, b, dtype);
    broadcast_both(s, &a, &b);
    return ht_apply(s, op, NULL, (ht_array *[]){a, b}, 2);
}

static ht_array *promoted(ht_scope *s, ht_op_id op, ht_array *a, ht_array *b) {
    return a && b ? of_dtype(s, op, ht_dtype_promote(a->dtype, b->dtype), a, b) : NULL;
}

static ht_array *floating(ht_scope *s, ht_op_id op, ht_array *a, ht_array *b) {
    if (!a || !b) return NULL;
    return of_dtype(s, op, ht_dtype_at_least_float(ht_dtype_promote(a->dtype, b->dtype)), a, b);
}

static ht_array *of_bits(ht_scope *s, ht_op_id op, ht_array *a, ht_array *b) {
    if (!a || !b) return NULL;
    ht_dtype dtype = ht_dtype_promote(a->dtype, b->dtype);
    if (ht_dtype_is_float(dtype))
        return ht_scope_fail(s, HT_ERR_ARGUMENT, "%s: operands are %s and %s, expected integers or bool",
                             ht_op_name(op), ht_dtype_name(a->dtype), ht_dtype_name(b->dtype));
    bool shifts = op == HT_OP_LEFT_SHIFT || op == HT_OP_RIGHT_SHIFT;
    return of_dtype(s, op, shifts && dtype == HT_BOOL ? HT_U8 : dtype, a, b);
}

/* Operands of logical operations: integers of one dtype unchanged, anything else converted to bool. */
static ht_array *truths(ht_scope *s, ht_op_id op, ht_array *a, ht_array *b) {
    if (!a || !b) return NULL;
    const bool alike = a->dtype == b->dtype && !ht_dtype_is_float(a->dtype);
    return of_dtype(s, op, alike ? a->dtype : HT_BOOL, a, b);
}

/* ---- operations ---- */

#define BINARY(name, operands, id)                                                                                     \
    ht_array *name(ht_scope *s, ht_array *a, ht_array *b) { return operands(s, HT_OP_##id, a, b); }

BINARY(ht_add, promoted, ADD)
BINARY(ht_subtract, promoted, SUBTRACT)
BINARY(ht_multiply, promoted, MULTIPLY)
BINARY(ht_divide, floating, DIVIDE)
BINARY(ht_floor_divide, promoted, FLOOR_DIVIDE)
BINARY(ht_remainder, promoted, REMAINDER)
BINARY(ht_power, promoted, POWER)
BINARY(ht_logaddexp, floating, LOGADDEXP)
BINARY(ht_arctan2, floating, ARCTAN2)
BINARY(ht_minimum, promoted, MINIMUM)
BINARY(ht_maximum, promoted, MAXIMUM)
BINARY(ht_equal, promoted, EQUAL)
BINARY(ht_not_equal, promoted, NOT_EQUAL)
BINARY(ht_less, promoted, LESS)
BINARY(ht_less_equal, promoted, LESS_EQUAL)
BINARY(ht_logical_and, truths, LOGICAL_AND)
BINARY(ht_logical_or, truths, LOGICAL_OR)
BINARY(ht_bitwise_and, of_bits, BITWISE_AND)
BINARY(ht_bitwise_or, of_bits, BITWISE_OR)
BINARY(ht_bitwise_xor, of_bits, BITWISE_XOR)
BINARY(ht_left_shift, of_bits, LEFT_SHIFT)
BINARY(ht_right_shift, of_bits, RIGHT_SHIFT)

ht_array *ht_greater(ht_scope *s, ht_array *a, ht_array *b) { return ht_less(s, b, a); }
ht_array *ht_greater_equal(ht_scope *s, ht_array *a, ht_array *b) { return ht_less_equal(s, b, a); }

HT_REPLAY(where_again, ht_where(s, in[0], in[1], in[2]))

ht_array *ht_where(ht_scope *s, ht_array *condition, ht_array *a, ht_array *b) {
    if (!condition || !a || !b) return NULL;
    if (ht_recording())
        return ht_record_plain(s, where_again, (ht_plain_args){.number = {0}}, (ht_array *[]){condition, a, b}, 3);
    ht_dtype dtype = ht_dtype_promote(a->dtype, b->dtype);
    condition = ht_astype(s, condition, HT_BOOL);
    a = ht_astype(s, a, dtype);
    b = ht_astype(s, b, dtype);
    broadcast_both(s, &a, &b);
    broadcast_both(s, &condition, &a);
    broadcast_both(s, &condition, &b);
    return ht_apply(s, HT_OP_WHERE, NULL, (ht_array *[]){condition, a, b}, 3);
}

ht_array *ht_clip(ht_scope *s, ht_array *x, ht_array *low, ht_array *high) {
    if (low == HT_NONE && high == HT_NONE)
        return ht_scope_fail(s, HT_ERR_ARGUMENT, "clip: neither a lower nor an upper bound is given");
    if (low != HT_NONE) x = ht_maximum(s, x, low);
    return high == HT_NONE ? x : ht_minimum(s, x, high);
}

static ht_array *constant(ht_scope *s, double value, ht_dtype dtype) { return ht_full(s, value, dtype, NULL, 0); }

static ht_array *both_nan(ht_scope *s, ht_array *a, ht_array *b) {
    return ht_logical_and(s, ht_isnan(s, a), ht_isnan(s, b));
}

/* Infinite elements are compared for equality, as their differences are NaN or infinite. */
ht_array *ht_isclose(ht_scope *s, ht_array *a, ht_array *b, double rtol, double atol, bool equal_nan) {
    if (!a || !b) return NULL;
    ht_dtype dtype = ht_dtype_at_least_float(ht_dtype_promote(a->dtype, b->dtype));
    a = ht_astype(s, a, dtype);
    b = ht_astype(s, b, dtype);
    ht_array *distance = ht_abs(s, ht_subtract(s, a, b));
    ht_array *tolerance = ht_add(s, ht_multiply(s, ht_abs(s, b), constant(s, rtol, dtype)), constant(s, atol, dtype));
    ht_array *finite = ht_logical_and(s, ht_isfinite(s, a), ht_isfinite(s, b));
    ht_array *near = ht_logical_and(s, finite, ht_less_equal(s, distance, tolerance));
    ht_array *close = ht_logical_or(s, near, ht_equal(s, a, b));
    return equal_nan ? ht_logical_or(s, close, both_nan(s, a, b)) : close;
}

ht_array *ht_allclose(ht_scope *s, ht_array *a, ht_array *b, double rtol, double atol, bool equal_nan) {
    return ht_all(s, ht_isclose(s, a, b, rtol, atol, equal_nan), NULL, 0, false);
}

HT_REPLAY(array_equal_again, ht_array_equal(s, in[0], in[1], a->number[0]))

ht_array *ht_array_equal(ht_scope *s, ht_array *a, ht_array *b, bool equal_nan) {
    if (!a || !b) return NULL;
    if (ht_recording())
        return ht_record_plain(s, array_equal_again, (ht_plain_args){.number = {equal_nan}}, (ht_array *[]){a, b}, 2);
    if (!ht_same_shape(a, b)) return constant(s, 0.0, HT_BOOL);
    ht_array *same = ht_equal(s, a, b);
    if (equal_nan) same = ht_logical_or(s, same, both_nan(s, a, b));
    return ht_all(s, same, NULL, 0, false);
}

/* ---- reverse rules ---- */

/* Operands have the result's shape: a broadcast operand is a view, whose own reverse rule sums. */

#define RULE(name, of_a, of_b)                                                                                         \
    void ht_vjp_##name(ht_scope *s, const ht_array *node, ht_array *g, ht_array **grad_in) {                           \
        ht_array *a = node->in[0], *b = node->in[1], *y = ht_node_output(node);                                        \
        (void)a, (void)b, (void)y, (void)s;                                                                            \
        grad_in[0] = (of_a);                                                                                           \
        grad_in[1] = (of_b);                                                                                           \
    }

#define MUL(p, q) ht_multiply(s, p, q)
#define DIV(p, q) ht_divide(s, p, q)
#define NEG(p)    ht_negative(s, p)

RULE(add, g, g)
RULE(subtract, g, NEG(g))
RULE(multiply, MUL(g, b), MUL(g, a))
RULE(divide, DIV(g, b), NEG(DIV(MUL(g, y), b)))
RULE(remainder, g, NEG(MUL(g, ht_floor_divide(s, a, b))))
RULE(logaddexp, MUL(g, ht_sigmoid(s, ht_subtract(s, a, b))), MUL(g, ht_sigmoid(s, ht_subtract(s, b, a))))

/* Derivative of y = a^b with respect to b: y log(a), 0 at a = 0. */
static ht_array *of_exponent(ht_scope *s, ht_array *a, ht_array *y) {
    ht_array *zero = ht_constant_like(s, a, 0.0), *is_zero = ht_equal(s, a, zero);
    ht_array *log_a = ht_log(s, ht_where(s, is_zero, ht_constant_like(s, a, 1.0), a));
    return MUL(y, log_a);
}
RULE(power, MUL(MUL(g, b), ht_power(s, a, ht_plus(s, b, -1.0))), MUL(g, of_exponent(s, a, y)))

/* g / (a^2 + b^2), the common factor of the derivatives of arctan2. */
static ht_array *over_square(ht_scope *s, ht_array *g, ht_array *a, ht_array *b) {
    return DIV(g, ht_add(s, ht_square(s, a), ht_square(s, b)));
}
RULE(arctan2, MUL(over_square(s, g, a, b), b), NEG(MUL(over_square(s, g, a, b), a)))

/* Gradients of minimum and maximum; equal operands give it to b. */
static ht_array *where_true(ht_scope *s, ht_array *condition, ht_array *g) {
    return ht_where(s, condition, g, ht_constant_like(s, g, 0.0));
}
RULE(maximum, where_true(s, ht_greater(s, a, b), g), where_true(s, ht_less_equal(s, a, b), g))
RULE(minimum, where_true(s, ht_less(s, a, b), g), where_true(s, ht_greater_equal(s, a, b), g))

void ht_vjp_where(ht_scope *s, const ht_array *node, ht_array *grad, ht_array **grad_in) {
    ht_array *zero = ht_constant_like(s, grad, 0.0);
    grad_in[1] = ht_where(s, node->in[0], grad, zero);
    grad_in[2] = ht_where(s, node->in[0], zero, grad);
}
