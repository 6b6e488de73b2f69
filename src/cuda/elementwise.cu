/* Elementwise operations: one kernel runs the steps of a program on each element. The functions are the CPU's
 * (base/math.h), so results have the same bits. */
#include "cuda/elementwise.cuh"
#include "cuda/elementwise.h"

/* Operand of a step: integers as 64 bits, f16, bf16 and f32 as f32, and f64. */
typedef union value {
    int64_t i;
    float f;
    double d;
} value;

enum { F_DRAWN_LOG, F_DRAWN_LOG1P, F_DRAWN_ERF, F_DRAWN_ERFINV }; /* ht_drawn_function */

static __device__ value load(ht_dtype t, const void *p, int64_t i) {
    value v;
    if (t == HT_F64)
        v.d = ((const double *)p)[i];
    else if (ht_dtype_is_float(t))
        v.f = ht_get_f32(t, p, i);
    else
        v.i = ht_get_int(t, p, i);
    return v;
}

/* The value rounded to the type. */
static __device__ value rounded(ht_dtype t, value v) {
    switch (t) {
    case HT_F16: v.f = ht_f16_to_f32(ht_f32_to_f16(v.f)); break;
    case HT_BF16: v.f = ht_bf16_to_f32(ht_f32_to_bf16(v.f)); break;
    case HT_BOOL: v.i = v.i != 0; break;
    case HT_U8: v.i = (uint8_t)v.i; break;
    case HT_U16: v.i = (uint16_t)v.i; break;
    case HT_U32: v.i = (uint32_t)v.i; break;
    case HT_I8: v.i = (int8_t)v.i; break;
    case HT_I16: v.i = (int16_t)v.i; break;
    case HT_I32: v.i = (int32_t)v.i; break;
    default: break;
    }
    return v;
}

static __device__ void store(ht_dtype t, void *p, int64_t i, value v) {
    if (t == HT_F64)
        ((double *)p)[i] = v.d;
    else if (ht_dtype_is_float(t))
        ht_set_f32(t, p, i, v.f);
    else
        ht_set_int(t, p, i, v.i);
}

/* Index of a step's j-th operand among the inputs and earlier results. */
static __device__ int operand_of(const ht_cuda_step *s, int j) {
    return s->in[j] >= 0 ? s->in[j] : HT_CUDA_INPUTS - 1 - s->in[j];
}

static __device__ value of_int(int64_t i) {
    value v;
    v.i = i;
    return v;
}
static __device__ value of_f32(float f) {
    value v;
    v.f = f;
    return v;
}
static __device__ value of_f64(double d) {
    value v;
    v.d = d;
    return v;
}

/* ---- one operand ---- */

static __device__ double ht_erfinv_f64(double x) {
    if (fabs(x) >= 1.0) return fabs(x) == 1.0 ? x * (double)INFINITY : (double)NAN;
    double y = (double)ht_erfinv_f32((float)x);
    if (isinf(y)) y = copysign(5.9, x);
    for (int i = 0; i < 3; i++) y -= (erf(y) - x) * 0.88622692545275801365 * exp(y * y);
    return y;
}

static __device__ float drawn(int f, float x) {
    switch (f) {
    case F_DRAWN_LOG: return logf(x);
    case F_DRAWN_LOG1P: return log1pf(x);
    case F_DRAWN_ERF: return ht_drawn_erf(x);
    default: return ht_drawn_erfinv_of(x, logf(ht_drawn_erfinv_inner(x)));
    }
}

#define HT_CASE_F64(op, of_f32, of_f64)                                                                                \
    case HT_OP_##op: return of_f64;

static __device__ double unary_f64(int op, double x) {
    switch (op) {
        HT_UNARY_FUNCTIONS(HT_CASE_F64)
    default: return rint(x); /* ROUND */
    }
}

static __device__ int64_t unary_int(int op, bool is_signed, int64_t x) {
    switch (op) {
    case HT_OP_NEGATIVE: return (int64_t)(0 - (uint64_t)x);
    case HT_OP_ABS: return is_signed && x < 0 ? (int64_t)(0 - (uint64_t)x) : x;
    case HT_OP_SIGN: return is_signed && x < 0 ? -1 : x != 0;
    case HT_OP_SQUARE: return (int64_t)((uint64_t)x * (uint64_t)x);
    case HT_OP_BITWISE_INVERT: return ~x;
    default: return x;
    }
}

static __device__ bool test_of(int op, double x) {
    switch (op) {
    case HT_OP_IS_NAN: return isnan(x);
    case HT_OP_IS_INF: return isinf(x);
    case HT_OP_IS_FINITE: return isfinite(x);
    default: return x == 0.0; /* LOGICAL_NOT */
    }
}

static __device__ double as_f64(ht_dtype t, value v) {
    return t == HT_F64 ? v.d : ht_dtype_is_float(t) ? (double)v.f : t == HT_U64 ? (double)(uint64_t)v.i : (double)v.i;
}

static __device__ value cast(ht_dtype from, ht_dtype to, value v) {
    if (!ht_dtype_is_float(from) && !ht_dtype_is_float(to)) return rounded(to, v);
    if (to == HT_F64) return of_f64(as_f64(from, v));
    if (ht_dtype_is_float(to)) {
        if (from == HT_F64) return rounded(to, of_f32((float)v.d));
        if (ht_dtype_is_float(from)) return rounded(to, v);
        return rounded(to, of_f32(from == HT_U64 ? (float)(uint64_t)v.i : (float)v.i));
    }
    const double x = as_f64(from, v);
    return of_int(to == HT_BOOL ? x != 0 : ht_saturated(to, x));
}

static __device__ value nan_to_num(ht_dtype t, value v, const double *p) {
    const double x = as_f64(t, v);
    if (isfinite(x)) return v;
    const double largest = t == HT_F16    ? 65504.0
                           : t == HT_BF16 ? 0x1.fep+127
                           : t == HT_F32  ? 0x1.fffffep+127
                                          : 0x1.fffffffffffffp+1023;
    const double high = isnan(p[1]) ? largest : p[1], low = isnan(p[2]) ? -largest : p[2];
    const double y = isnan(x) ? p[0] : x > 0 ? high : low;
    return t == HT_F64 ? of_f64(y) : rounded(t, of_f32((float)y));
}

static __device__ value scale(ht_dtype t, value v, float by) {
    if (t == HT_F16 || t == HT_BF16 || t == HT_F32) return rounded(t, of_f32(v.f * by));
    const double y = as_f64(t, v) * (double)by;
    return t == HT_F64 ? of_f64(y) : of_int(t == HT_BOOL ? y != 0 : ht_saturated(t, y));
}

static __device__ value softcap(ht_dtype t, value v, float cap) {
    if (t == HT_F64) return of_f64((double)cap * ht_tanh_f64(v.d / (double)cap));
    return rounded(t, of_f32(cap * ht_tanh_f32(v.f / cap)));
}

static __device__ value unary(const ht_cuda_step *s, value x) {
    const int op = s->op;
    const ht_dtype t = (ht_dtype)s->from;
    switch (op) {
    case HT_OP_CAST: return cast(t, (ht_dtype)s->to, x);
    case HT_OP_IS_NAN:
    case HT_OP_IS_INF:
    case HT_OP_IS_FINITE:
    case HT_OP_LOGICAL_NOT: return of_int(test_of(op, as_f64(t, x)));
    case HT_OP_NAN_TO_NUM: return nan_to_num(t, x, s->parameter);
    case HT_OP_SCALE: return scale(t, x, (float)s->parameter[0]);
    case HT_OP_SOFTCAP: return softcap(t, x, (float)s->parameter[0]);
    case HT_OP_DRAWN: return rounded(t, of_f32(drawn((int)s->parameter[0], x.f)));
    default: break;
    }
    if (t == HT_F64) return of_f64(unary_f64(op, x.d));
    if (ht_dtype_is_float(t)) return rounded(t, of_f32(ht_unary_f32(op, t == HT_F16, x.f)));
    return rounded(t, of_int(unary_int(op, ht_dtype_is_signed(t), x.i)));
}

/* ---- two operands ---- */

static __device__ bool less(bool is_signed, int64_t a, int64_t b) {
    return is_signed ? a < b : (uint64_t)a < (uint64_t)b;
}

static __device__ int64_t quotient(bool s, int64_t a, int64_t b) {
    if (b == 0) return 0;
    if (!s) return (int64_t)((uint64_t)a / (uint64_t)b);
    if (b == -1) return (int64_t)(0 - (uint64_t)a);
    return a / b - (a % b != 0 && (a < 0) != (b < 0));
}

static __device__ int64_t power_int(bool s, int64_t base, int64_t exponent) {
    uint64_t result = 1, factor = (uint64_t)base, left = (uint64_t)exponent;
    if (s && exponent < 0) return base == 1 ? 1 : base == -1 ? (exponent & 1 ? -1 : 1) : 0;
    for (; left; left >>= 1, factor *= factor)
        if (left & 1) result *= factor;
    return (int64_t)result;
}

static __device__ int64_t shifted_right(bool s, int64_t a, int64_t b) {
    const uint64_t by = (uint64_t)b < 63 ? (uint64_t)b : 63;
    if (!s) return (uint64_t)b < 64 ? (int64_t)((uint64_t)a >> b) : 0;
    return a < 0 ? ~(int64_t)(~(uint64_t)a >> by) : (int64_t)((uint64_t)a >> by);
}

static __device__ double binary_f64(int op, double a, double b) {
    switch (op) {
        HT_BINARY_FUNCTIONS(HT_CASE_F64)
    default: return ht_atan2_f64(a, b); /* ARCTAN2 */
    }
}

static __device__ int64_t binary_int(int op, ht_dtype t, int64_t a, int64_t b) {
    const bool s = ht_dtype_is_signed(t), truth = t == HT_BOOL;
    switch (op) {
    case HT_OP_ADD: return truth ? a || b : (int64_t)((uint64_t)a + (uint64_t)b);
    case HT_OP_SUBTRACT: return truth ? a != b : (int64_t)((uint64_t)a - (uint64_t)b);
    case HT_OP_MULTIPLY: return (int64_t)((uint64_t)a * (uint64_t)b);
    case HT_OP_MINIMUM: return less(s, a, b) ? a : b;
    case HT_OP_MAXIMUM: return less(s, b, a) ? a : b;
    case HT_OP_FLOOR_DIVIDE: return quotient(s, a, b);
    case HT_OP_REMAINDER: return b ? (int64_t)((uint64_t)a - (uint64_t)quotient(s, a, b) * (uint64_t)b) : 0;
    case HT_OP_POWER: return power_int(s, a, b);
    case HT_OP_LOGICAL_AND: return a && b;
    case HT_OP_LOGICAL_OR: return a || b;
    case HT_OP_BITWISE_AND: return a & b;
    case HT_OP_BITWISE_OR: return a | b;
    case HT_OP_BITWISE_XOR: return a ^ b;
    case HT_OP_LEFT_SHIFT: return (uint64_t)b < 64 ? (int64_t)((uint64_t)a << b) : 0;
    default: return shifted_right(s, a, b); /* RIGHT_SHIFT */
    }
}

template <typename T> static __device__ bool compare(int op, T a, T b) {
    return op == HT_OP_EQUAL ? a == b : op == HT_OP_NOT_EQUAL ? a != b : op == HT_OP_LESS ? a < b : a <= b;
}

static __device__ bool is_comparison(int op) {
    return op == HT_OP_EQUAL || op == HT_OP_NOT_EQUAL || op == HT_OP_LESS || op == HT_OP_LESS_EQUAL;
}

static __device__ value binary(const ht_cuda_step *s, value a, value b) {
    const int op = s->op;
    const ht_dtype t = (ht_dtype)s->from;
    if (is_comparison(op)) {
        if (t == HT_F64) return of_int(compare(op, a.d, b.d));
        if (ht_dtype_is_float(t)) return of_int(compare(op, a.f, b.f));
        return of_int(ht_dtype_is_signed(t) ? compare(op, a.i, b.i) : compare(op, (uint64_t)a.i, (uint64_t)b.i));
    }
    if (t == HT_F64) return of_f64(binary_f64(op, a.d, b.d));
    if (ht_dtype_is_float(t)) return rounded(t, of_f32(ht_binary_f32(op, a.f, b.f)));
    return rounded((ht_dtype)s->to, of_int(binary_int(op, t, a.i, b.i)));
}

/* ---- the kernels ---- */

HT_CUDA_KERNEL(ht_cuda_elementwise, ht_cuda_elementwise_arguments) {
    value v[HT_CUDA_INPUTS + HT_CUDA_STEPS];
    for (int64_t i = ht_first(); i < a.n; i += ht_step()) {
        int64_t at[HT_CUDA_INPUTS];
        for (int k = 0; k < a.n_in; k++) at[k] = a.flat ? i : 0;
        if (!a.flat) {
            int64_t rest = i;
            for (int d = a.n_dims - 1; d >= 0; d--) {
                const int64_t place = rest % a.shape[d];
                rest /= a.shape[d];
                for (int k = 0; k < a.n_in; k++) at[k] += place * a.stride[k][d];
            }
        }
        for (int k = 0; k < a.n_in; k++) v[k] = load((ht_dtype)a.in_type[k], a.in[k], at[k]);
        for (int k = 0; k < a.n_steps; k++) {
            const ht_cuda_step *s = &a.step[k];
            value x[HT_CUDA_STEP_INPUTS];
            for (int j = 0; j < s->n_in; j++) x[j] = v[operand_of(s, j)];
            const value y = s->n_in == 1 ? unary(s, x[0]) : s->n_in == 2 ? binary(s, x[0], x[1]) : x[0].i ? x[1] : x[2];
            v[HT_CUDA_INPUTS + k] = y;
            if (s->out >= 0) store((ht_dtype)s->to, a.out[s->out], i, y);
        }
    }
}

/* Result of a step on f32. */
static __device__ float of_step(const ht_cuda_step *s, float a, float b) {
    if (s->n_in == 2) return ht_binary_f32(s->op, a, b);
    const float by = (float)s->parameter[0];
    return s->op == HT_OP_SCALE     ? a * by
           : s->op == HT_OP_SOFTCAP ? by * ht_tanh_f32(a / by)
                                    : ht_unary_f32(s->op, false, a);
}

HT_CUDA_KERNEL(ht_cuda_elementwise_quads, ht_cuda_elementwise_arguments) {
    float4 v[HT_CUDA_INPUTS + HT_CUDA_STEPS];
    const uint32_t n = (uint32_t)(a.n / 4), step = gridDim.x * blockDim.x, last = a.n_dims - 1;
    for (uint32_t i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += step) {
        uint32_t rest = i;
        int64_t at[HT_CUDA_INPUTS];
        for (int k = 0; k < a.n_in; k++) at[k] = a.flat ? (int64_t)i * 4 : 0;
        for (uint32_t d = a.flat ? 0 : last + 1; d-- > 0;) {
            const uint32_t size = (uint32_t)a.shape[d] / (d == last ? 4 : 1), place = rest % size * (d == last ? 4 : 1);
            rest /= size;
            for (int k = 0; k < a.n_in; k++) at[k] += place * a.stride[k][d];
        }
        for (int k = 0; k < a.n_in; k++) {
            const float *from = (const float *)a.in[k] + at[k];
            if (a.flat || a.stride[k][last])
                v[k] = *(const float4 *)from;
            else
                v[k].x = v[k].y = v[k].z = v[k].w = *from;
        }
        for (int k = 0; k < a.n_steps; k++) {
            const ht_cuda_step *s = &a.step[k];
            const float4 x = v[operand_of(s, 0)], y = v[operand_of(s, s->n_in > 1)],
                         to = {of_step(s, x.x, y.x), of_step(s, x.y, y.y), of_step(s, x.z, y.z), of_step(s, x.w, y.w)};
            v[HT_CUDA_INPUTS + k] = to;
            if (s->out >= 0) ((float4 *)a.out[s->out])[i] = to;
        }
    }
}
