/* Einstein summation (einsum). An axis label is a number: letters in ASCII order, then the axes of an ellipsis, counted
 * from the right. A pair of operands is contracted by one batched matrix product: shared labels that are needed later
 * are batch axes, other shared labels are summed over. */
#include "array/op.h"
#include "base/error.h"
#include "ops/replay_arguments.h"

#include <hearth/linalg.h>
#include <hearth/ops.h>

#include <stdlib.h>
#include <string.h>

enum { LETTERS = 52, LABELS = LETTERS + HT_MAX_DIMS };

/* A set of labels, one per bit. */
typedef uint64_t label_set;
#define BIT(label) ((label_set)1 << (label))

/* The labels of an array's axes, or of the result's. */
typedef struct labels {
    int n;
    int8_t at[HT_MAX_DIMS];
} labels;

typedef struct operand {
    ht_array *x;
    labels l;
} operand;

typedef struct equation {
    ht_scope *s;
    const char *text;
    operand *in; /* [n] */
    int n;
    labels out;
    int64_t size[LABELS]; /* of each label; 1 until a longer axis is found */
    int ellipsis;         /* largest number of axes that "..." stands for */
} equation;

static int label_of(char c) { return c >= 'A' && c <= 'Z' ? c - 'A' : c >= 'a' && c <= 'z' ? c - 'a' + 26 : -1; }

static label_set set_of(const labels *l) {
    label_set set = 0;
    for (int i = 0; i < l->n; i++) set |= BIT(l->at[i]);
    return set;
}

static bool fail(equation *e, const char *what) {
    return ht_scope_fail(e->s, HT_ERR_ARGUMENT, "einsum: \"%s\": %s", e->text, what);
}

/* ---- parsing ---- */

/* Parses labels up to a comma, an arrow or the end. An ellipsis stands for `hidden` labels; hidden < 0: it is an error. */
static bool read_labels(equation *e, const char **p, int hidden, labels *l) {
    bool dots = false;
    l->n = 0;
    for (; **p && **p != ',' && !(**p == '-' && (*p)[1] == '>'); ++*p) {
        int label = label_of(**p), n = 1;
        if (**p == ' ') continue;
        if (**p == '.') {
            if (strncmp(*p, "...", 3) != 0 || dots) return fail(e, "an ellipsis is three dots, once per operand");
            dots = true;
            *p += 2;
            n = hidden;
            label = LETTERS + hidden - 1;
        } else if (label < 0)
            return fail(e, "axes are named by letters");
        if (n < 0 || l->n + n > HT_MAX_DIMS) return fail(e, "there are more axes than arrays have");
        for (int i = 0; i < n; i++) l->at[l->n++] = (int8_t)(label - i);
    }
    return true;
}

/* Number of axes of an operand without a letter; false when the operand has too few axes. */
static bool count_hidden(equation *e, const char *p, const ht_array *x, int *hidden) {
    int letters = 0;
    bool dots = false;
    for (; *p && *p != ',' && *p != '-'; p++) {
        letters += label_of(*p) >= 0;
        dots |= *p == '.';
    }
    *hidden = x->n_dims - letters;
    if (*hidden == 0 || (*hidden > 0 && dots)) return true;
    return ht_scope_fail(e->s, HT_ERR_ARGUMENT, "einsum: \"%s\": %d axes are named of an operand that has %d", e->text,
                         letters, x->n_dims);
}

static bool note_sizes(equation *e, const operand *o) {
    for (int i = 0; i < o->l.n; i++) {
        int64_t *size = &e->size[o->l.at[i]], length = o->x->shape[i];
        if (*size != 1 && length != 1 && *size != length)
            return ht_scope_fail(e->s, HT_ERR_ARGUMENT,
                                 "einsum: \"%s\": an axis is %lld long in one place, %lld in another", e->text,
                                 (long long)*size, (long long)length);
        if (length != 1) *size = length;
    }
    return true;
}

static bool read_inputs(equation *e, ht_array *const *arrays, const char **p) {
    for (int i = 0; i < e->n; i++) {
        int hidden;
        e->in[i].x = arrays[i];
        if (!count_hidden(e, *p, arrays[i], &hidden) || !read_labels(e, p, hidden, &e->in[i].l)) return false;
        if (hidden > e->ellipsis) e->ellipsis = hidden;
        if (!note_sizes(e, &e->in[i])) return false;
        if ((**p == ',') != (i + 1 < e->n)) return fail(e, "too many operands");
        if (**p == ',') ++*p;
    }
    return true;
}

/* Output without an arrow: the axes of the ellipsis, then every letter that occurs once. */
static bool implied_output(equation *e) {
    int times[LABELS] = {0};
    for (int i = 0; i < e->n; i++)
        for (int k = 0; k < e->in[i].l.n; k++) times[e->in[i].l.at[k]]++;
    for (int i = 0; i < e->ellipsis; i++) e->out.at[e->out.n++] = (int8_t)(LETTERS + e->ellipsis - 1 - i);
    for (int i = 0; i < LETTERS; i++) {
        if (times[i] != 1) continue;
        if (e->out.n == HT_MAX_DIMS) return fail(e, "the result has more axes than arrays have");
        e->out.at[e->out.n++] = (int8_t)i;
    }
    return true;
}

static bool read_output(equation *e, const char *p) {
    if (!*p) return implied_output(e);
    p += 2;
    if (!read_labels(e, &p, e->ellipsis, &e->out)) return false;
    if (*p) return fail(e, "nothing follows the result");
    label_set known = 0, seen = 0;
    for (int i = 0; i < e->n; i++) known |= set_of(&e->in[i].l);
    for (int i = 0; i < e->out.n; i++) {
        if (!(known & BIT(e->out.at[i]))) return fail(e, "the result has an axis that no operand has");
        if (seen & BIT(e->out.at[i])) return fail(e, "the result has an axis twice");
        seen |= BIT(e->out.at[i]);
    }
    if (known >> LETTERS & ~(seen >> LETTERS)) return fail(e, "the ellipsis is missing in the result");
    return true;
}

/* ---- one operand ---- */

static void drop_axis(labels *l, int axis) {
    l->n--;
    memmove(l->at + axis, l->at + axis + 1, (size_t)(l->n - axis));
}

/* Replaces axes with the same label by their diagonal, and removes axes of length 1 that broadcast. */
static void make_simple(equation *e, operand *o) {
    for (int i = 0; o->x && i < o->l.n; i++) {
        if (o->x->shape[i] == 1 && e->size[o->l.at[i]] != 1) {
            o->x = ht_squeeze(e->s, o->x, i);
            drop_axis(&o->l, i--);
        }
    }
    for (int i = 0; o->x && i < o->l.n; i++)
        for (int k = i + 1; o->x && k < o->l.n; k++) {
            if (o->l.at[i] != o->l.at[k]) continue;
            int8_t label = o->l.at[i];
            o->x = ht_diagonal(e->s, o->x, 0, i, k);
            drop_axis(&o->l, k);
            drop_axis(&o->l, i);
            o->l.at[o->l.n++] = label;
            i = -1; /* restart: the axes moved */
            break;
        }
}

static void sum_all_but(equation *e, operand *o, label_set wanted) {
    int axes[HT_MAX_DIMS], n = 0;
    for (int i = 0; i < o->l.n; i++)
        if (!(wanted & BIT(o->l.at[i]))) axes[n++] = i;
    if (n == 0) return;
    o->x = ht_sum(e->s, o->x, axes, n, false);
    while (n > 0) drop_axis(&o->l, axes[--n]);
}

/* ---- two operands ---- */

static void append(labels *l, const labels *from, label_set which) {
    for (int i = 0; i < from->n; i++)
        if (which & BIT(from->at[i])) l->at[l->n++] = from->at[i];
}

static int axis_of(const labels *l, int label) {
    for (int i = 0; i < l->n; i++)
        if (l->at[i] == label) return i;
    return -1;
}

static ht_array *in_order(equation *e, const operand *o, const labels *order) {
    int axes[HT_MAX_DIMS];
    bool same = true;
    for (int i = 0; i < order->n; i++) {
        axes[i] = axis_of(&o->l, order->at[i]);
        same &= axes[i] == i;
    }
    return same ? o->x : ht_transpose(e->s, o->x, axes);
}

static int64_t length_of(const equation *e, const labels *l) {
    int64_t n = 1;
    for (int i = 0; i < l->n; i++) n *= e->size[l->at[i]];
    return n;
}

/* o reshaped to [batch, own, summed], the axes of each kind merged. */
static ht_array *as_matrices(equation *e, const operand *o, const labels *batch, const labels *own,
                             const labels *summed) {
    labels order = {0};
    append(&order, batch, ~(label_set)0);
    append(&order, own, ~(label_set)0);
    append(&order, summed, ~(label_set)0);
    const int64_t shape[3] = {length_of(e, batch), length_of(e, own), length_of(e, summed)};
    return ht_reshape(e->s, in_order(e, o, &order), shape, 3);
}

/* o with axes of length 1 for missing labels, for broadcasting. */
static ht_array *spread(equation *e, const operand *o, const labels *all) {
    labels own = {0};
    append(&own, all, set_of(&o->l));
    ht_array *x = in_order(e, o, &own);
    for (int i = 0; i < all->n; i++)
        if (axis_of(&o->l, all->at[i]) < 0) x = ht_expand_dims(e->s, x, i);
    return x;
}

static operand contract(equation *e, operand a, operand b, label_set wanted) {
    label_set in_a = set_of(&a.l), in_b = set_of(&b.l);
    sum_all_but(e, &a, wanted | in_b);
    sum_all_but(e, &b, wanted | in_a);
    in_a = set_of(&a.l), in_b = set_of(&b.l);
    label_set both = in_a & in_b, all = in_a | in_b;
    operand y = {0};
    if (__builtin_popcountll(wanted & all) > HT_MAX_DIMS || !a.x || !b.x) {
        if (a.x && b.x) fail(e, "a product on the way has more axes than arrays have");
        return y;
    }
    labels batch = {0}, own_a = {0}, own_b = {0}, summed = {0};
    append(&batch, &a.l, both & wanted);
    append(&own_a, &a.l, ~both);
    append(&own_b, &b.l, ~both);
    append(&summed, &a.l, both & ~wanted);
    append(&y.l, &batch, all);
    append(&y.l, &own_a, all);
    append(&y.l, &own_b, all);
    if (summed.n == 0) {
        y.x = ht_multiply(e->s, spread(e, &a, &y.l), spread(e, &b, &y.l));
        return y;
    }
    int64_t shape[HT_MAX_DIMS];
    for (int i = 0; i < y.l.n; i++) shape[i] = e->size[y.l.at[i]];
    y.x =
        ht_matmul(e->s, as_matrices(e, &a, &batch, &own_a, &summed), as_matrices(e, &b, &batch, &own_b, &summed), true);
    y.x = ht_reshape(e->s, y.x, shape, y.l.n);
    return y;
}

/* ---- contraction order ---- */

static double volume(const equation *e, label_set set) {
    double n = 1;
    for (int i = 0; i < LABELS; i++)
        if (set & BIT(i)) n *= (double)e->size[i];
    return n;
}

/* Labels needed after the contraction of i and j: those of the output and of all other operands. */
static label_set wanted_of(const equation *e, int i, int j) {
    label_set set = set_of(&e->out);
    for (int k = 0; k < e->n; k++)
        if (k != i && k != j) set |= set_of(&e->in[k].l);
    return set;
}

static void pick_pair(const equation *e, int *first, int *second) {
    double best = 0, best_cost = 0;
    *first = -1;
    for (int i = 0; i < e->n; i++)
        for (int j = i + 1; j < e->n; j++) {
            label_set a = set_of(&e->in[i].l), b = set_of(&e->in[j].l);
            double growth = volume(e, (a | b) & wanted_of(e, i, j)) - volume(e, a) - volume(e, b);
            double cost = volume(e, a | b);
            if (*first >= 0 && (growth > best || (growth == best && cost >= best_cost))) continue;
            *first = i, *second = j, best = growth, best_cost = cost;
        }
}

static ht_array *evaluate(equation *e) {
    for (int i = 0; i < e->n; i++) make_simple(e, &e->in[i]);
    while (e->n > 1) {
        int i = 0, j = 1;
        if (e->n > 2) pick_pair(e, &i, &j);
        operand y = contract(e, e->in[i], e->in[j], wanted_of(e, i, j));
        if (!y.x) return NULL;
        e->in[i] = y;
        e->in[j] = e->in[--e->n];
    }
    sum_all_but(e, &e->in[0], set_of(&e->out));
    return e->in[0].x ? in_order(e, &e->in[0], &e->out) : NULL;
}

HT_REPLAY_OF(einsum_again, char, ht_einsum(s, a, in, n_in))

ht_array *ht_einsum(ht_scope *s, const char *subscripts, ht_array *const *operands, int n) {
    if (n < 1) return ht_scope_fail(s, HT_ERR_ARGUMENT, "einsum: no arrays are given");
    for (int i = 0; i < n; i++)
        if (!operands[i]) return NULL;
    if (ht_recording()) return ht_record_one(s, einsum_again, subscripts, strlen(subscripts) + 1, operands, n);
    equation e = {.s = s, .text = subscripts, .n = n, .in = calloc((size_t)n, sizeof(operand))};
    if (!e.in) return ht_scope_fail(s, HT_ERR_MEMORY, "out of memory: %d operands of einsum", n);
    for (int i = 0; i < LABELS; i++) e.size[i] = 1;
    ht_array *y = read_inputs(&e, operands, &subscripts) && read_output(&e, subscripts) ? evaluate(&e) : NULL;
    free(e.in);
    return y;
}
