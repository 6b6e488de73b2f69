/* Elementwise operations and programs of them: cuda/elementwise.cu. */
#include "cuda/elementwise.h"

#include "base/dtype.h"
#include "base/error.h"
#include "cuda/cuda.h"
#include "device/params.h"

#include <string.h>

_Static_assert((int)HT_CUDA_STEPS == (int)HT_PROGRAM_STEPS && (int)HT_CUDA_INPUTS == (int)HT_PROGRAM_INPUTS &&
                   (int)HT_CUDA_OUTPUTS == (int)HT_PROGRAM_OUTPUTS && (int)HT_CUDA_STEP_INPUTS == (int)HT_STEP_INPUTS,
               "the kernel takes any program");
/* ---- which dtypes ---- */

/* FLOATS: of all others; BITS: integers but bool. */
typedef enum kind { FLOATS, ANY, INTEGERS, BITS } kind;

static const kind kinds[HT_OP_COUNT] = {[HT_OP_CAST] = ANY,
                                        [HT_OP_NEGATIVE] = ANY,
                                        [HT_OP_ABS] = ANY,
                                        [HT_OP_SIGN] = ANY,
                                        [HT_OP_SQUARE] = ANY,
                                        [HT_OP_IS_NAN] = ANY,
                                        [HT_OP_IS_INF] = ANY,
                                        [HT_OP_IS_FINITE] = ANY,
                                        [HT_OP_LOGICAL_NOT] = ANY,
                                        [HT_OP_ADD] = ANY,
                                        [HT_OP_SUBTRACT] = ANY,
                                        [HT_OP_MULTIPLY] = ANY,
                                        [HT_OP_FLOOR_DIVIDE] = ANY,
                                        [HT_OP_REMAINDER] = ANY,
                                        [HT_OP_POWER] = ANY,
                                        [HT_OP_MINIMUM] = ANY,
                                        [HT_OP_MAXIMUM] = ANY,
                                        [HT_OP_EQUAL] = ANY,
                                        [HT_OP_NOT_EQUAL] = ANY,
                                        [HT_OP_LESS] = ANY,
                                        [HT_OP_LESS_EQUAL] = ANY,
                                        [HT_OP_WHERE] = ANY,
                                        [HT_OP_SCALE] = ANY,
                                        [HT_OP_LOGICAL_AND] = INTEGERS,
                                        [HT_OP_LOGICAL_OR] = INTEGERS,
                                        [HT_OP_BITWISE_AND] = INTEGERS,
                                        [HT_OP_BITWISE_OR] = INTEGERS,
                                        [HT_OP_BITWISE_XOR] = INTEGERS,
                                        [HT_OP_LEFT_SHIFT] = INTEGERS,
                                        [HT_OP_RIGHT_SHIFT] = INTEGERS,
                                        [HT_OP_BITWISE_INVERT] = BITS};

static bool takes(ht_op_id op, ht_dtype from) {
    const bool floating = ht_dtype_is_float(from);
    switch (kinds[op]) {
    case ANY: return true;
    case FLOATS: return floating && (op != HT_OP_DRAWN || from != HT_F64);
    case INTEGERS: return !floating;
    case BITS: return !floating && from != HT_BOOL;
    }
    return false;
}

static ht_status refuse(const char *name, const ht_call *call, bool unary, ht_error *err) {
    const char *dtype = ht_dtype_name(call->in[0].dtype);
    if (strcmp(name, "drawn") == 0)
        return ht_fail(err, HT_ERR_UNSUPPORTED, "drawn of %s is not defined: it takes f16, bf16 and f32", dtype);
    if (unary && !ht_dtype_is_float(call->in[0].dtype) && strcmp(name, "bitwise_invert") != 0)
        return ht_fail(err, HT_ERR_UNSUPPORTED, "%s of %s is not defined; cast to a floating-point type first", name,
                       dtype);
    return ht_fail(err, HT_ERR_UNSUPPORTED, "%s of %s is not defined", name, dtype);
}

/* ---- arguments ---- */

static void set_parameters(ht_cuda_step *s, ht_op_id op, const void *params) {
    switch (op) {
    case HT_OP_SCALE:
    case HT_OP_SOFTCAP: s->parameter[0] = (double)((const ht_scale_params *)params)->value; break;
    case HT_OP_NAN_TO_NUM: {
        const ht_nan_to_num_params *p = params;
        s->parameter[0] = p->nan;
        s->parameter[1] = p->posinf;
        s->parameter[2] = p->neginf;
        break;
    }
    case HT_OP_DRAWN: s->parameter[0] = ((const ht_drawn_params *)params)->function; break;
    default: break;
    }
}

static void set_operands(ht_cuda_elementwise_arguments *a, const ht_view *in, int n_in, const ht_view *out) {
    ht_cuda_view views[HT_CUDA_INPUTS + 1], *of[HT_CUDA_INPUTS + 1]; /* the result is the first */
    a->n = ht_view_size(out);
    a->n_in = n_in;
    a->flat = true;
    for (int i = 0; i <= n_in; i++) {
        const ht_view *v = i ? &in[i - 1] : out;
        views[i] = (ht_cuda_view){.n_dims = out->n_dims};
        memcpy(views[i].shape, out->shape, (size_t)out->n_dims * sizeof *out->shape);
        memcpy(views[i].stride, v->stride, (size_t)out->n_dims * sizeof *v->stride);
        of[i] = &views[i];
    }
    ht_cuda_collapse(n_in + 1, of);
    a->n_dims = views[0].n_dims;
    memcpy(a->shape, views[0].shape, sizeof a->shape);
    for (int i = 0; i < n_in; i++) {
        a->in[i] = in[i].data;
        a->in_type[i] = (int8_t)in[i].dtype;
        a->flat = a->flat && ht_view_contiguous(&in[i]);
        memcpy(a->stride[i], views[i + 1].stride, sizeof a->stride[i]);
    }
}

/* ---- four elements at a time ---- */

static bool is_of_f32(const ht_cuda_step *s) {
    switch (s->op) {
    case HT_OP_CAST:
    case HT_OP_IS_NAN:
    case HT_OP_IS_INF:
    case HT_OP_IS_FINITE:
    case HT_OP_LOGICAL_NOT:
    case HT_OP_NAN_TO_NUM:
    case HT_OP_DRAWN: return false;
    default: return s->from == HT_F32 && s->to == HT_F32 && s->n_in <= 2;
    }
}

static bool has_quads(const ht_cuda_elementwise_arguments *a, int input) {
    const int last = a->n_dims - 1;
    const int64_t *stride = a->stride[input];
    if (a->in_type[input] != HT_F32 || stride[last] < 0 || stride[last] > 1) return false;
    if (stride[last] == 0) return true;
    bool aligned = (uintptr_t)a->in[input] % 16 == 0;
    for (int d = 0; d < last; d++) aligned = aligned && stride[d] % 4 == 0;
    return aligned;
}

static bool is_quads(const ht_cuda_elementwise_arguments *a) {
    if (a->n_dims == 0 || a->shape[a->n_dims - 1] % 4 || a->n > UINT32_MAX) return false;
    for (int i = 0; i < a->n_steps; i++)
        if (!is_of_f32(&a->step[i])) return false;
    for (int i = 0; i < a->n_in; i++)
        if (!has_quads(a, i)) return false;
    return true;
}

static ht_status launch(ht_device *device, const ht_cuda_elementwise_arguments *a, ht_error *err) {
    ht_cuda_device *d = ht_cuda_of(device);
    const bool quads = is_quads(a);
    return quads ? ht_cuda_launch_threads(d, HT_CUDA_ID_ht_cuda_elementwise_quads, a->n / 4, a, err)
                 : ht_cuda_launch_threads(d, HT_CUDA_ID_ht_cuda_elementwise, a->n, a, err);
}

/* ---- single operations ---- */

static ht_status run_one(ht_op_id op, const char *name, const ht_call *call, ht_error *err) {
    const int first = op == HT_OP_WHERE; /* the values that it has a dtype of */
    if (!takes(op, call->in[first].dtype)) return refuse(name, call, call->n_in == 1, err);
    ht_cuda_elementwise_arguments a = {.n_steps = 1, .out = {call->out.data}};
    set_operands(&a, call->in, call->n_in, &call->out);
    ht_cuda_step *s = &a.step[0];
    s->op = (int16_t)op;
    s->from = (int8_t)call->in[first].dtype;
    s->to = (int8_t)call->out.dtype;
    s->n_in = (int8_t)call->n_in;
    for (int i = 0; i < call->n_in; i++) s->in[i] = (int8_t)i;
    set_parameters(s, op, call->params);
    return launch(call->device, &a, err);
}

#define RUN(id, name)                                                                                                  \
    static ht_status run_##name(const ht_call *call, ht_error *err) { return run_one(HT_OP_##id, #name, call, err); }
HT_OP_ELEMENTWISE(RUN)

void ht_cuda_elementwise_kernels(ht_kernel *kernels) {
#define FILL(id, name) kernels[HT_OP_##id].run = run_##name;
    HT_OP_ELEMENTWISE(FILL)
}

/* ---- programs ---- */

static bool takes_step(const ht_device *d, ht_op_id op, ht_dtype from, ht_dtype to) {
    (void)d, (void)to;
    return takes(op, from);
}

static bool prepare(const ht_device *d, ht_program *p) {
    (void)d, (void)p;
    return true;
}

static ht_status run_program(const ht_program_run *run, ht_error *err) {
    const ht_program *p = run->program;
    ht_cuda_elementwise_arguments a = {.n_steps = p->n_steps};
    set_operands(&a, run->in, p->n_in, &run->out[0]);
    for (int i = 0; i < p->n_out; i++) a.out[i] = run->out[i].data;
    for (int i = 0; i < p->n_steps; i++) {
        const ht_program_step *from = &p->step[i];
        ht_cuda_step *to = &a.step[i];
        to->op = (int16_t)from->op;
        to->from = (int8_t)from->from;
        to->to = (int8_t)from->to;
        to->n_in = from->n_in;
        memcpy(to->in, from->in, sizeof to->in);
        to->out = from->out;
        set_parameters(to, from->op, from->params);
    }
    return launch(run->device, &a, err);
}

const ht_program_ops ht_cuda_programs = {takes_step, prepare, run_program};
