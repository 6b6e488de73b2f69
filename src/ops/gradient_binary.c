/* Reverse rules of elementwise operations of two operands. Their operands have the result's shape: what was broadcast
 * was so by a view, whose rule adds up. */
#include "ops/gradient.h"

#define RULE(name, of_a, of_b)                                                                                         \
    bool ht_vjp_##name(ht_scope *s, const ht_array *node, ht_array *g, ht_array **grad_in) {                           \
        ht_array *a = node->in[0], *b = node->in[1], *y = ht_output(node);                                             \
        (void)a, (void)b, (void)y, (void)s;                                                                            \
        grad_in[0] = (of_a);                                                                                           \
        grad_in[1] = (of_b);                                                                                           \
        return grad_in[0] && grad_in[1];                                                                               \
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

/* a^b: b a^(b-1), and y log a, which is 0 at a = 0. */
static ht_array *of_exponent(ht_scope *s, ht_array *a, ht_array *y) {
    ht_array *zero = ht_constant_like(s, a, 0.0), *is_zero = ht_equal(s, a, zero);
    ht_array *log_a = ht_log(s, ht_where(s, is_zero, ht_constant_like(s, a, 1.0), a));
    return MUL(y, log_a);
}
RULE(power, MUL(MUL(g, b), ht_power(s, a, ht_plus(s, b, -1.0))), MUL(g, of_exponent(s, a, y)))

/* The angle of the point (b, a). */
static ht_array *over_square(ht_scope *s, ht_array *g, ht_array *a, ht_array *b) {
    return DIV(g, ht_add(s, ht_square(s, a), ht_square(s, b)));
}
RULE(arctan2, MUL(over_square(s, g, a, b), b), NEG(MUL(over_square(s, g, a, b), a)))

/* Where both are equal the gradient is b's. */
static ht_array *where_true(ht_scope *s, ht_array *condition, ht_array *g) {
    return ht_where(s, condition, g, ht_constant_like(s, g, 0.0));
}
RULE(maximum, where_true(s, ht_greater(s, a, b), g), where_true(s, ht_less_equal(s, a, b), g))
RULE(minimum, where_true(s, ht_less(s, a, b), g), where_true(s, ht_greater_equal(s, a, b), g))

bool ht_vjp_where(ht_scope *s, const ht_array *node, ht_array *grad, ht_array **grad_in) {
    ht_array *zero = ht_constant_like(s, grad, 0.0);
    grad_in[1] = ht_where(s, node->in[0], grad, zero);
    grad_in[2] = ht_where(s, node->in[0], zero, grad);
    return grad_in[1] && grad_in[2];
}
