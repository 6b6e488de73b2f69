/* Random graphs of arrays, from shapes, views and operations that the bytes choose. Computed at once, one node at a time,
 * compiled, and by the plain kernels, every array must be the same to the bit; derivatives of it must not break. Compiled
 * without shapes, it and its derivatives must be the same for other sizes. */
#include <hearth/hearth.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { MAX_REGISTERS = 20, N_INPUTS = 3, MAX_ELEMENTS = 2048, LARGE = 16, MAX_AXES = 5 };

static void check(bool promise, const char *what) {
    if (promise) return;
    fprintf(stderr, "%s\n", what);
    abort();
}

typedef struct program {
    const uint8_t *byte;
    size_t size, at;
    bool apart;                  /* evaluate every node as soon as it is there */
    bool inexact[MAX_REGISTERS]; /* the plain kernels may differ in the last digits */
    bool follows;                /* write no sizes */
    int sizes;                   /* not 0: other sizes of the inputs, and decisions as they were for the first ones */
    bool decision[4 * MAX_REGISTERS];
    int n_decisions;
} program;

/* One program of eight has thousands of elements, most of them f32 and of one shape: more than one block of an elementwise
 * program (cpu/elementwise.h). */
static bool is_large(const program *p) { return p->size % 8 == 0; }

static int next(program *p, int below) { return p->at < p->size ? p->byte[p->at++] % below : 0; }

/* What depends on sizes and has to stay as it was for the first ones. */
static bool decide(program *p, bool now) {
    if (p->n_decisions == 4 * MAX_REGISTERS) return false;
    bool *decision = &p->decision[p->n_decisions++];
    if (!p->sizes) *decision = now;
    return *decision;
}

typedef struct machine {
    ht_array *reg[MAX_REGISTERS];
    int n;
} machine;

/* ---- operations ---- */

typedef ht_array *unary_fn(ht_scope *s, ht_array *x);
typedef ht_array *binary_fn(ht_scope *s, ht_array *a, ht_array *b);
static unary_fn *const exact_of_one[] = {ht_abs,   ht_square,      ht_sign, ht_floor,
                                         ht_isnan, ht_logical_not, ht_relu, ht_ceil};
static unary_fn *const inexact_of_one[] = {ht_exp, ht_sin, ht_tanh, ht_sigmoid, ht_sqrt, ht_erf, ht_log1p, ht_silu};
static binary_fn *const of_two[] = {ht_add,           ht_subtract,    ht_multiply,  ht_minimum,
                                    ht_maximum,       ht_equal,       ht_less,      ht_divide,
                                    ht_greater_equal, ht_logical_and, ht_not_equal, ht_less_equal};

static ht_array *cut(ht_scope *s, program *p, ht_array *x) {
    int64_t start[MAX_AXES], stop[MAX_AXES], step[MAX_AXES];
    if (p->follows) {
        for (int i = 0; i < ht_array_n_dims(x); i++) {
            int64_t from = next(p, 9) - 4, to = next(p, 9) - 4, by = next(p, 5) - 2;
            start[i] = from == -4 ? HT_OPEN : from;
            stop[i] = to == -4 ? HT_OPEN : to;
            step[i] = by ? by : 3;
        }
        return ht_slice_range(s, x, start, stop, step);
    }
    for (int i = 0; i < ht_array_n_dims(x); i++) {
        int64_t n = ht_array_dim(x, i), by = 1 + next(p, 3);
        bool back = next(p, 2) && n > 0;
        int64_t from = n ? next(p, (int)n) : 0, to = from + next(p, (int)(n - from) + 1);
        start[i] = back ? (to > 0 ? to - 1 : 0) : from;
        stop[i] = back ? (to > 0 ? from - 1 : 0) : to;
        if (back && stop[i] > start[i]) stop[i] = start[i];
        step[i] = back ? -by : by;
    }
    return ht_slice(s, x, start, stop, step);
}

static ht_array *turned(ht_scope *s, program *p, ht_array *x) {
    int order[MAX_AXES], n = ht_array_n_dims(x);
    for (int i = 0; i < n; i++) order[i] = i;
    for (int i = n - 1; i > 0; i--) {
        int k = next(p, i + 1), t = order[i];
        order[i] = order[k];
        order[k] = t;
    }
    return ht_transpose(s, x, order);
}

static ht_array *view(ht_scope *s, program *p, ht_array *x) {
    int n = ht_array_n_dims(x), axis = n ? next(p, n) : 0;
    switch (next(p, 6)) {
    case 0: return cut(s, p, x);
    case 1: return turned(s, p, x);
    case 2: return ht_reshape(s, x, (int64_t[]){p->follows ? -1 : ht_array_size(x)}, 1);
    case 3: return n < MAX_AXES ? ht_expand_dims(s, x, axis) : ht_flatten(s, x, 0, -1);
    case 4: return n ? ht_roll(s, x, 1 + next(p, 4), axis) : x;
    default: return ht_contiguous(s, x);
    }
}

static ht_array *reduction(ht_scope *s, program *p, ht_array *x, bool *inexact) {
    int n = ht_array_n_dims(x), axis = n ? next(p, n) : 0, kind = next(p, 5);
    if (n == 0 || decide(p, ht_array_dim(x, axis) == 0)) return x;
    if (kind < 2 && ht_array_dtype(x) >= HT_F16) *inexact = true;
    switch (kind) {
    case 0: return ht_sum(s, x, &axis, 1, next(p, 2));
    case 1: return ht_cumsum(s, x, axis, next(p, 2), next(p, 2));
    case 2: return ht_max(s, x, &axis, 1, next(p, 2));
    case 3: return ht_argmin(s, x, &axis, next(p, 2));
    default: return ht_any(s, x, &axis, 1, next(p, 2));
    }
}

static bool broadcast(const program *p, const ht_array *a, const ht_array *b) {
    int n = ht_array_n_dims(a) > ht_array_n_dims(b) ? ht_array_n_dims(a) : ht_array_n_dims(b);
    int64_t size = 1;
    for (int i = 1; i <= n; i++) {
        int64_t da = i <= ht_array_n_dims(a) ? ht_array_dim(a, -i) : 1,
                db = i <= ht_array_n_dims(b) ? ht_array_dim(b, -i) : 1;
        if (da != db && da != 1 && db != 1) return false;
        size *= da == 1 ? db : da;
    }
    return n <= MAX_AXES && size <= (is_large(p) ? LARGE * MAX_ELEMENTS : MAX_ELEMENTS);
}

static ht_array *one_node(ht_scope *s, program *p, machine *m) {
    int i = next(p, m->n), j = next(p, m->n), k = next(p, m->n);
    ht_array *x = m->reg[i], *y = m->reg[j], *z = m->reg[k];
    bool *inexact = &p->inexact[m->n];
    *inexact = p->inexact[i];
    switch (next(p, 7)) {
    case 0: return view(s, p, x);
    case 1: return exact_of_one[next(p, 8)](s, x);
    case 2: *inexact = true; return inexact_of_one[next(p, 8)](s, x);
    case 3: return reduction(s, p, x, inexact);
    case 4:
        return ht_astype(s, x,
                         (ht_dtype[]){HT_BOOL, HT_U8, HT_I32, HT_I64, HT_F16, HT_BF16, HT_F32, HT_F64}[next(p, 8)]);
    case 5:
        *inexact |= p->inexact[j] | p->inexact[k];
        return decide(p, broadcast(p, x, y) && broadcast(p, y, z) && broadcast(p, x, z)) ? ht_where(s, x, y, z) : x;
    default: *inexact |= p->inexact[j]; return decide(p, broadcast(p, x, y)) ? of_two[next(p, 12)](s, x, y) : x;
    }
}

static int run(ht_scope *s, ht_array *const *in, int n_in, ht_array **out, int max_out, void *user) {
    program *p = user;
    machine m = {.n = n_in};
    p->at = 16;
    p->n_decisions = 0;
    ht_error err;
    memcpy(m.reg, in, (size_t)n_in * sizeof *in);
    memset(p->inexact, 0, sizeof p->inexact);
    while (m.n < max_out && p->at < p->size) {
        m.reg[m.n] = one_node(s, p, &m);
        if (!m.reg[m.n]) return -1;
        if (p->apart) check(ht_array_eval(s, &m.reg[m.n], 1, &err) == HT_OK, "a node alone was not evaluated");
        m.n++;
    }
    memcpy(out, m.reg, (size_t)m.n * sizeof *out);
    return m.n;
}

/* ---- comparing ---- */

typedef struct results {
    int n;
    ht_dtype dtype[MAX_REGISTERS];
    size_t bytes[MAX_REGISTERS];
    unsigned char *data[MAX_REGISTERS];
} results;

static void free_results(results *r) {
    for (int i = 0; i < r->n; i++) free(r->data[i]);
}

/* Inputs of small whole numbers, some of them broadcast or turned. */
static void make_inputs(ht_scope *s, program *p, ht_array **in) {
    const bool large = is_large(p);
    int64_t shape[2];
    p->at = 0;
    for (int i = 0; i < N_INPUTS; i++) {
        const int64_t chosen[2] = {1 + next(p, 5), 1 + next(p, 7)};
        for (int k = 0; k < 2 && !(large && i > 0); k++) {
            shape[k] = chosen[k];
            if (p->sizes && (shape[k] > 1 || p->sizes % 2)) /* equal ones stay equal, and 1 stays 1 every other time */
                shape[k] = (5 * shape[k] + p->sizes) % 8;
            if (large) shape[k] *= LARGE;
        }
        ht_dtype dtype = (ht_dtype[]){HT_F32, HT_I32, HT_BF16, HT_F16, HT_U8, HT_F64}[next(p, 6)];
        if (large && i > 0) dtype = HT_F32;
        float start = (float)next(p, 16) - 6;
        ht_array *x = ht_arange(s, (double)start, (double)start + (double)(shape[0] * shape[1]), 1, HT_F32);
        if (large) x = ht_remainder(s, x, ht_full(s, 36, HT_F32, NULL, 0));
        const bool turned = i == 1;
        x = ht_reshape(s, x, turned && large ? (int64_t[]){shape[1], shape[0]} : shape, 2);
        if (turned) x = ht_transpose(s, x, NULL);
        if (p->follows) x = ht_contiguous(s, x); /* as in a trace: gradients of a copy may add up in another order */
        in[i] = ht_astype(s, x, dtype);
    }
}

/* The function's arrays, read; false when it refuses the program. */
static bool compute(ht_stream *stream, program *p, ht_compiled *compiled, const ht_function *f, results *r) {
    ht_scope *s = ht_scope_new(stream);
    ht_array *in[N_INPUTS], *out[MAX_REGISTERS];
    ht_error err;
    r->n = 0;
    make_inputs(s, p, in);
    int n = compiled ? ht_compiled_call(s, compiled, in, N_INPUTS, out, MAX_REGISTERS)
                     : f->call(s, in, N_INPUTS, out, MAX_REGISTERS, p);
    check(n >= 0 || ht_scope_error(s), "a failure without an error");
    if (n > 0) check(ht_array_eval(s, out, n, &err) == HT_OK, "a graph was not evaluated");
    for (; r->n < n; r->n++) {
        ht_array *a = out[r->n];
        r->dtype[r->n] = ht_array_dtype(a);
        r->bytes[r->n] = (size_t)ht_array_size(a) * ht_dtype_bytes(ht_array_dtype(a));
        r->data[r->n] = malloc(r->bytes[r->n] + 1);
        check(ht_array_read(s, a, r->data[r->n], r->bytes[r->n], &err) == HT_OK, "an array was not read");
    }
    ht_scope_free(s);
    return n >= 0;
}

/* Whether element i of both is NaN: its bits are nobody's promise. */
static bool both_nan(ht_dtype t, const unsigned char *a, const unsigned char *b, size_t i) {
    if (t == HT_F32) {
        float x, y;
        memcpy(&x, a + 4 * i, 4);
        memcpy(&y, b + 4 * i, 4);
        return isnan(x) && isnan(y);
    }
    if (t == HT_F64) {
        double x, y;
        memcpy(&x, a + 8 * i, 8);
        memcpy(&y, b + 8 * i, 8);
        return isnan(x) && isnan(y);
    }
    uint16_t x, y, high = t == HT_BF16 ? 0x7f80 : 0x7c00;
    if (t != HT_BF16 && t != HT_F16) return false;
    memcpy(&x, a + 2 * i, 2);
    memcpy(&y, b + 2 * i, 2);
    return (x & 0x7fff) > high && (y & 0x7fff) > high;
}

static void expect_same(const results *a, const results *b, const bool *skip, const char *what) {
    check(a->n == b->n, what);
    for (int i = 0; i < a->n; i++) {
        check(a->dtype[i] == b->dtype[i] && a->bytes[i] == b->bytes[i], what);
        size_t width = ht_dtype_bytes(a->dtype[i]);
        for (size_t k = 0; k < a->bytes[i] / width && !(skip && skip[i]); k++)
            if (memcmp(a->data[i] + k * width, b->data[i] + k * width, width) &&
                !both_nan(a->dtype[i], a->data[i], b->data[i], k)) {
                fprintf(stderr, "array %d of %s, element %zu\n", i, ht_dtype_name(a->dtype[i]), k);
                check(false, what);
            }
    }
}

/* ---- derivatives ---- */

static int total(ht_scope *s, ht_array *const *in, int n_in, ht_array **out, int max_out, void *user) {
    ht_array *all[MAX_REGISTERS];
    int n = run(s, in, n_in, all, MAX_REGISTERS, user);
    (void)max_out;
    if (n < 0) return -1;
    out[0] = ht_full(s, 0, HT_F32, NULL, 0);
    for (int i = 0; i < n; i++) out[0] = ht_add(s, out[0], ht_sum(s, ht_astype(s, all[i], HT_F32), NULL, 0, false));
    return out[0] ? 1 : -1;
}

static void differentiate(ht_stream *stream, program *p) {
    ht_scope *s = ht_scope_new(stream);
    ht_array *in[N_INPUTS], *out[1], *grad[N_INPUTS];
    int which[N_INPUTS], n = 0;
    ht_error err;
    make_inputs(s, p, in);
    for (int i = 0; i < N_INPUTS; i++)
        if (ht_array_dtype(in[i]) >= HT_F16) which[n++] = i;
    const ht_function f = {total, p};
    p->apart = false;
    if (n && ht_value_and_grad(s, &f, in, N_INPUTS, (ht_wrt){which, n}, out, 1, grad) == 1)
        check(ht_array_eval(s, grad, n, &err) == HT_OK, "gradients were not evaluated");
    else
        check(!n || ht_scope_error(s), "no gradients, and no error");
    ht_scope_free(s);
}

/* Gradients, and what they are of. */
static int slopes(ht_scope *s, ht_array *const *in, int n_in, ht_array **out, int max_out, void *user) {
    const ht_function f = {total, user};
    int which[N_INPUTS], n = 0;
    (void)max_out;
    for (int i = 0; i < n_in; i++)
        if (ht_array_dtype(in[i]) >= HT_F16) which[n++] = i;
    return ht_value_and_grad(s, &f, in, n_in, (ht_wrt){which, n}, out, 1, out + 1) == 1 ? n + 1 : -1;
}

/* Traced for some sizes, and right for others. */
static void without_shapes(ht_stream *stream, program *p, const ht_function *f) {
    ht_compiled *compiled;
    ht_error err;
    results eager, laid_out;
    p->follows = true;
    p->sizes = 0;
    ht_compile_options how;
    ht_compile_options_init(&how, sizeof how);
    how.shapeless = true;
    if (ht_compile(f, &how, &compiled, &err)) abort();
    bool traced = compute(stream, p, compiled, f, &laid_out); /* which decides */
    free_results(&laid_out);
    for (p->sizes = 1; traced && p->sizes < 4; p->sizes++) {
        bool ok = compute(stream, p, NULL, f, &eager);
        check(compute(stream, p, compiled, f, &laid_out) == ok, "refused compiled without shapes or not, not both");
        expect_same(&eager, &laid_out, NULL, "a graph compiled without shapes differs for other sizes");
        free_results(&eager);
        free_results(&laid_out);
    }
    p->follows = false;
    p->sizes = 0;
    ht_compiled_free(compiled);
}

static ht_stream *stream_on(const char *instruction_set) {
    ht_device *device;
    ht_stream *stream;
    ht_error err;
    ht_device_options options;
    ht_device_options_init(&options, sizeof options);
    options.n_threads = 1;
    options.instruction_set = instruction_set;
    if (ht_device_open("cpu", &options, &device, &err) || ht_stream_new(device, &stream, &err)) abort();
    ht_device_free(device);
    return stream;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static ht_stream *fast, *plain;
    if (!fast) {
        fast = stream_on(NULL);
        plain = stream_on("reference");
    }
    if (size < 24 || size > 200) return 0;
    program p = {.byte = data, .size = size}, apart = p;
    apart.apart = true;
    const ht_function f = {run, &p};
    ht_compiled *compiled;
    ht_error err;
    results whole, alone, laid_out, reference;
    if (ht_compile(&f, NULL, &compiled, &err)) abort();
    bool ok = compute(fast, &p, NULL, &f, &whole);
    check(compute(fast, &apart, NULL, &f, &alone) == ok, "refused as a whole or node by node, not both");
    check(compute(fast, &p, compiled, &f, &laid_out) == ok, "refused as a whole or compiled, not both");
    check(compute(plain, &p, NULL, &f, &reference) == ok, "refused by one device");
    expect_same(&whole, &alone, NULL, "a graph as a whole and node by node differ");
    expect_same(&whole, &laid_out, NULL, "a graph and the compiled one differ");
    expect_same(&whole, &reference, p.inexact, "vector and plain kernels differ");
    free_results(&laid_out);
    check(compute(fast, &p, compiled, &f, &laid_out) == ok, "a second call failed");
    expect_same(&whole, &laid_out, NULL, "the second call of a compiled graph differs");
    free_results(&whole);
    free_results(&alone);
    free_results(&laid_out);
    free_results(&reference);
    ht_compiled_free(compiled);
    differentiate(fast, &p);
    without_shapes(fast, &p, &f);
    without_shapes(fast, &p, &(ht_function){slopes, &p});
    return 0;
}
