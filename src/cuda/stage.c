/* Fused stages: row-wise calls run as one kernel, whose last output is f16 for the products that read it. Products
 * whose matrices are of one type run as one launch. */
#include "cuda/stage.h"

#include "cuda/matrix_run.h"

#include <string.h>

enum { PREPARE_THREADS = 256, FIRST_CLUSTER_MAJOR = 9, LEAST_THREADS = 64 /* of a block of a cluster */ };

typedef struct layout {
    bool is_one_kernel; /* one kernel runs all row-wise calls */
    int64_t n, k;       /* rows and columns of the products' input */
    ht_cuda_stage_step step[HT_STAGE_CALLS];
    float *local[HT_STAGE_CALLS]; /* scratch memory of local outputs, when calls run one by one */
    void *image, *matrix;
    bool has_tensor; /* products on tensor cores */
} layout;

static const ht_matrix *matrix_of(const ht_call *call) { return ((const ht_linear_params *)call->params)->matrix; }

static bool is_rowwise(const ht_device *d, ht_op_id op) {
    (void)d;
    switch (op) {
    case HT_OP_RMS_NORM:
    case HT_OP_ADD:
    case HT_OP_SUBTRACT:
    case HT_OP_MULTIPLY:
    case HT_OP_SILU:
    case HT_OP_GELU:
    case HT_OP_GELU_TANH:
    case HT_OP_SIGMOID:
    case HT_OP_TANH: return true;
    default: return false;
    }
}

static size_t stage_bytes(const ht_device *d, const ht_fused_stage *s) {
    (void)d, (void)s;
    return sizeof(layout);
}

/* ---- laying out ---- */

static bool has_aligned_rows(const ht_view *v, int64_t width, int64_t *stride) {
    const bool vector = v->n_dims == 1 && v->shape[0] == width && v->stride[0] == 1;
    const bool rows = v->n_dims == 2 && v->shape[1] == width && v->stride[1] == 1;
    *stride = rows ? v->stride[0] : 0;
    return (vector || rows) && *stride % 4 == 0 && *stride >= 0 && (uintptr_t)v->data % 16 == 0;
}

/* Makes call i a step of the kernel. False if unsupported: after the first, one operand must be the previous call's
 * result and the other must come from outside the stage. */
static bool make_step(const ht_fused_stage *s, int i, int64_t n, int64_t width, ht_cuda_stage_step *step) {
    const ht_call *call = &s->call[i];
    *step = (ht_cuda_stage_step){.op = (int32_t)s->op[i], .out = s->is_local[i] ? NULL : call->out.data};
    if (call->out.n_dims != 2 || call->out.shape[0] != n || call->out.shape[1] != width) return false;
    if (s->op[i] == HT_OP_RMS_NORM) {
        const ht_rms_norm_params *p = call->params;
        step->eps = p->eps;
        step->weight_offset = p->weight_offset;
    }
    int n_before = 0;
    for (int j = 0; j < call->n_in; j++) {
        const ht_view *in = &call->in[j];
        if (ht_view_absent(in)) continue;
        if (step->n_in != j || j == HT_CUDA_STAGE_OPERANDS) return false;
        step->n_in++;
        if (!has_aligned_rows(in, width, &step->stride[j])) return false;
        int maker = s->local_in[i][j];
        for (int m = 0; m < i; m++)
            if (s->call[m].out.data && s->call[m].out.data == in->data) maker = m;
        if (maker < 0)
            step->in[j] = in->data;
        else if (maker == i - 1)
            n_before++;
        else
            return false;
    }
    const bool norms_another = s->op[i] == HT_OP_RMS_NORM && i > 0 && step->in[0];
    return !norms_another && (i == 0 || n_before == 1);
}

/* Whether a block keeps a row in shared memory instead of registers. */
static bool is_long(int64_t k) { return k > (int64_t)ht_cuda_team_of(k) * 4 * HT_CUDA_STAGE_QUADS; }

/* Whether the kernel supports rows of that width. */
static bool fits(const ht_cuda_device *d, int64_t k) {
    enum { DECLARED = 1024 /* bytes of shared memory that the kernel has besides */ };
    const int64_t most = d->most_shared_of_block - DECLARED;
    return k % 4 == 0 && k <= INT32_MAX && (!is_long(k) || k <= most / (int64_t)sizeof(float));
}

static bool make_steps(const ht_fused_stage *s, layout *l) {
    if (s->n_rowwise == 0 || !fits(ht_cuda_of(s->call->device), l->k)) return false;
    for (int i = 0; i < s->n_rowwise; i++)
        if (!make_step(s, i, l->n, l->k, &l->step[i])) return false;
    return true;
}

static size_t lay_out(const ht_fused_stage *s) {
    layout *l = s->layout;
    const ht_cuda_device *d = ht_cuda_of(s->call->device);
    ht_cuda_scratch scratch = {.at = s->call->scratch};
    const ht_call *first = &s->call[s->n_rowwise];
    int64_t most_rows = 0;
    *l = (layout){.n = first->in[0].shape[0], .k = first->in[0].shape[1]};
    for (int i = 0; i < s->n_products; i++)
        if (ht_cuda_is_tensor(matrix_of(first + i))) {
            l->has_tensor = true;
            most_rows = ht_max_i64(most_rows, matrix_of(first + i)->n_rows);
        }
    l->is_one_kernel = make_steps(s, l);
    for (int i = 0; i < s->n_rowwise; i++)
        if (s->is_local[i] && !l->is_one_kernel)
            l->local[i] = ht_cuda_take(&scratch, (size_t)ht_view_size(&s->call[i].out) * sizeof(float));
    if (l->has_tensor) {
        l->image = ht_cuda_take(&scratch, ht_cuda_swizzled_bytes(d, l->n, l->k));
        l->matrix = ht_cuda_take(&scratch, ht_cuda_tensor_room(d, l->n, most_rows, l->k));
    }
    return scratch.bytes;
}

/* ---- running ---- */

/* Rows of a swizzled operand that products of n rows read; the first n are x's. */
static int64_t rows_read(const ht_cuda_swizzled *image, int64_t n) { return n <= 8 ? n : image->n_padded; }

/* Whether rows are few enough for a cluster of blocks each, with a thread per quad; sets *shape then. */
static bool spread(const ht_cuda_device *d, const ht_cuda_stage_arguments *a, int64_t rows, ht_cuda_shape *shape) {
    const int64_t quads = (a->width + HT_CUDA_K_TILE - 1) / HT_CUDA_K_TILE * (HT_CUDA_K_TILE / 4);
    const int64_t most = d->major >= FIRST_CLUSTER_MAJOR ? HT_CUDA_STAGE_BLOCKS : 1;
    const int64_t blocks = ht_min_i64(most, (quads + LEAST_THREADS - 1) / LEAST_THREADS);
    const int64_t threads = (quads + 32 * blocks - 1) / (32 * blocks) * 32;
    *shape =
        (ht_cuda_shape){.grid = {(unsigned)(rows * blocks)}, .block = {(unsigned)threads}, .cluster = (unsigned)blocks};
    bool norms = false; /* whether a step is a norm, which sums one quad per thread */
    for (int i = 0; i < a->n_steps; i++) norms = norms || a->step[i].op == HT_OP_RMS_NORM;
    return !(norms && is_long(a->width)) && threads <= HT_CUDA_STAGE_THREADS && rows * blocks <= d->multiprocessors;
}

static ht_status launch_steps(ht_cuda_device *d, const ht_cuda_stage_arguments *a, ht_error *err) {
    const int64_t rows = a->to.rows ? rows_read(&a->to, a->n) : a->n;
    ht_cuda_shape shape;
    const bool few = spread(d, a, rows, &shape);
    if (!few)
        shape = (ht_cuda_shape){.grid = {(unsigned)rows},
                                .block = {(unsigned)ht_cuda_team_of(a->width)},
                                .shared_bytes = is_long(a->width) ? (unsigned)((size_t)a->width * sizeof(float)) : 0};
    return ht_cuda_launch(d, few ? HT_CUDA_ID_ht_cuda_stage_few : HT_CUDA_ID_ht_cuda_stage_rows, &shape, a, err);
}

ht_status ht_cuda_prepare_rows(ht_cuda_device *d, const float *x, int64_t ldx, int64_t n, int64_t k,
                               const ht_cuda_swizzled *image, ht_error *err) {
    if (fits(d, k) && ldx % 4 == 0 && (uintptr_t)x % 16 == 0) {
        const ht_cuda_stage_arguments a = {.x = x, .ldx = ldx, .n = n, .width = k, .to = *image};
        return launch_steps(d, &a, err);
    }
    const ht_cuda_prepare_arguments a = {.to = *image, .x = x, .n = n, .ldx = ldx, .k = k};
    const ht_cuda_shape shape = {.grid = {(unsigned)rows_read(image, n)}, .block = {PREPARE_THREADS}};
    return ht_cuda_launch(d, HT_CUDA_ID_ht_cuda_prepare, &shape, &a, err);
}

static ht_status run_one_by_one(ht_cuda_device *d, const ht_fused_stage *s, ht_error *err) {
    const layout *l = s->layout;
    ht_status status = HT_OK;
    for (int i = 0; i < s->n_rowwise && !status; i++) {
        ht_view in[HT_STAGE_INPUTS];
        ht_call call = s->call[i];
        for (int j = 0; j < call.n_in; j++) {
            in[j] = call.in[j];
            if (s->local_in[i][j] >= 0) in[j].data = l->local[s->local_in[i][j]];
        }
        call.in = in;
        if (l->local[i]) call.out.data = l->local[i];
        status = d->base.kernels[s->op[i]].run(&call, err);
    }
    return status;
}

static ht_status run_products(ht_cuda_device *d, const ht_fused_stage *s, const ht_cuda_swizzled *image,
                              ht_error *err) {
    const layout *l = s->layout;
    ht_cuda_product products[HT_STAGE_CALLS];
    int n = 0;
    ht_status status = HT_OK;
    for (int i = s->n_rowwise; i < s->n_rowwise + s->n_products && !status; i++) {
        const ht_call *call = &s->call[i];
        const ht_view *bias = &call->in[1];
        if (ht_cuda_is_tensor(matrix_of(call)))
            products[n++] =
                (ht_cuda_product){matrix_of(call), ht_view_absent(bias) ? NULL : bias->data, call->out.data};
        else
            status = d->base.kernels[HT_OP_LINEAR].run(call, err);
    }
    return status || n == 0 ? status : ht_cuda_multiply_swizzled(d, products, n, image, l->n, l->matrix, err);
}

static ht_status run_stage(const ht_fused_stage *s, ht_error *err) {
    ht_cuda_device *d = ht_cuda_of(s->call->device);
    const layout *l = s->layout;
    ht_cuda_swizzled image = {0};
    ht_status status = HT_OK;
    if (l->has_tensor) image = ht_cuda_swizzled_at(d, l->image, l->n, l->k);
    image.apart = l->has_tensor;
    for (int i = s->n_rowwise; i < s->n_rowwise + s->n_products; i++) {
        const ht_matrix *m = matrix_of(&s->call[i]);
        if (ht_cuda_is_tensor(m) && !ht_cuda_takes_apart(d, m, l->n)) image.apart = false;
    }
    if (l->is_one_kernel) {
        ht_cuda_stage_arguments a = {.n_steps = s->n_rowwise, .n = l->n, .width = l->k, .to = image};
        memcpy(a.step, l->step, sizeof a.step);
        status = launch_steps(d, &a, err);
    } else {
        status = run_one_by_one(d, s, err);
        const float *local = s->n_rowwise ? l->local[s->n_rowwise - 1] : NULL;
        const ht_view *x = &s->call[s->n_rowwise].in[0];
        if (!status && l->has_tensor)
            status = ht_cuda_prepare_rows(d, local ? local : x->data, x->stride[0], l->n, l->k, &image, err);
    }
    return status ? status : run_products(d, s, &image, err);
}

const ht_stage_ops ht_cuda_stages = {is_rowwise, ht_cuda_is_tensor, stage_bytes, lay_out, run_stage};
