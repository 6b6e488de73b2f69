/* Matrix products of arrays, dense and quantised: cuda/product.cu. */
#include "cuda/product.h"

#include "base/checked.h"
#include "base/dtype.h"
#include "cuda/cuda.h"
#include "device/params.h"

#include <string.h>

static unsigned blocks_of(int64_t n) { return (unsigned)ht_min_i64(n, INT32_MAX); /* blocks then take several tiles */ }

/* ---- arguments ---- */

static ht_cuda_quantization quantization_of(const ht_quantization *how) {
    return (ht_cuda_quantization){.mode = (int32_t)how->mode, .group = how->group, .bits = how->bits};
}

/* Sets the leading axes of the result and the operands' strides along them, 0 for broadcast operands. Axes that are
 * contiguous in all operands are merged. */
static void set_lead(ht_cuda_product_arguments *a, const ht_view *out) {
    a->entries = 1;
    for (int d = 0; d < out->n_dims - 2; d++) {
        a->entries *= out->shape[d];
        if (out->shape[d] == 1) continue;
        int64_t stride[HT_CUDA_OPERANDS] = {0};
        bool joined = a->n_lead > 0;
        for (int k = 0; k < HT_CUDA_OPERANDS; k++) {
            const ht_cuda_view *v = &a->operand[k];
            const int own = d - (out->n_dims - v->n_dims);
            if (v->n_dims >= 0 && own >= 0 && own < v->n_dims - 2 && v->shape[own] != 1) stride[k] = v->stride[own];
            joined = joined && a->lead_stride[k][a->n_lead - 1] == stride[k] * out->shape[d];
        }
        const int at = joined ? a->n_lead - 1 : a->n_lead++;
        a->lead[at] = joined ? a->lead[at] * out->shape[d] : out->shape[d];
        for (int k = 0; k < HT_CUDA_OPERANDS; k++) a->lead_stride[k][at] = stride[k];
    }
}

static ht_cuda_product_arguments arguments_of(const ht_call *call) {
    const ht_view *x = &call->in[0], *out = &call->out;
    const int last = x->n_dims - 1;
    ht_cuda_product_arguments a = {.m = out->shape[out->n_dims - 2],
                                   .n = out->shape[out->n_dims - 1],
                                   .k = x->shape[last],
                                   .left_row = x->stride[last - 1],
                                   .left_k = x->stride[last],
                                   .out = out->data,
                                   .dtype = out->dtype,
                                   .out_row = out->shape[out->n_dims - 1],
                                   .out_column = 1};
    for (int i = 0; i < HT_CUDA_OPERANDS; i++) a.operand[i].n_dims = -1;
    for (int i = 0; i < 2; i++) a.index[i].n_dims = -1;
    return a;
}

/* Transposes the product, which keeps the sums: few columns then run as few rows. */
static void exchange(ht_cuda_product_arguments *a) {
#define EXCHANGE(type, one, other)                                                                                     \
    {                                                                                                                  \
        const type kept = one;                                                                                         \
        one = other;                                                                                                   \
        other = kept;                                                                                                  \
    }
    EXCHANGE(int64_t, a->m, a->n)
    EXCHANGE(int64_t, a->left_row, a->right_column)
    EXCHANGE(int64_t, a->left_k, a->right_k)
    EXCHANGE(int64_t, a->out_row, a->out_column)
    EXCHANGE(ht_cuda_view, a->operand[HT_CUDA_LEFT], a->operand[HT_CUDA_RIGHT])
    EXCHANGE(ht_cuda_view, a->index[0], a->index[1])
    for (int d = 0; d < a->n_lead; d++)
        EXCHANGE(int64_t, a->lead_stride[HT_CUDA_LEFT][d], a->lead_stride[HT_CUDA_RIGHT][d])
#undef EXCHANGE
}

/* The last two operands of a call by index are indices of the left and of the right matrices. */
static void set_indices(const ht_call *call, ht_cuda_view index[2]) {
    for (int i = 0; i < 2; i++) index[i] = ht_cuda_view_of(&call->in[call->n_in - 2 + i]);
}

static ht_cuda_product_arguments dense_arguments(const ht_call *call, bool transposed, bool by_index) {
    ht_cuda_product_arguments a = arguments_of(call);
    const ht_view *y = &call->in[1];
    const int last = y->n_dims - 1;
    for (int i = 0; i < 2; i++) a.operand[i] = ht_cuda_view_of(&call->in[i]);
    a.right_k = y->stride[transposed ? last : last - 1];
    a.right_column = y->stride[transposed ? last - 1 : last];
    set_lead(&a, &call->out);
    if (by_index) set_indices(call, a.index);
    if (a.n <= HT_CUDA_PRODUCT_FEW && a.m > HT_CUDA_PRODUCT_FEW) exchange(&a);
    return a;
}

static ht_cuda_product_arguments quantized_arguments(const ht_call *call) {
    const ht_quantize_params *p = call->params;
    ht_cuda_product_arguments a = arguments_of(call);
    for (int i = 0; i < HT_CUDA_OPERANDS; i++) a.operand[i] = ht_cuda_view_of(&call->in[i]);
    a.how = quantization_of(&p->how);
    a.transpose = p->transpose;
    set_lead(&a, &call->out);
    set_indices(call, a.index);
    return a;
}

/* ---- choice of kernel and grid ---- */

typedef struct product_plan {
    ht_cuda_kernel_id kernel;
    int rows, columns, threads;
    int64_t chunks, chunks_each; /* fewer each: blocks share results, whose chunks are added by another kernel */
} product_plan;

static product_plan kernel_for(const ht_cuda_product_arguments *a, bool quantized) {
    const ht_dtype dtype = a->operand[HT_CUDA_LEFT].dtype;
    if (dtype == HT_F64 || !ht_dtype_is_float(dtype))
        return (product_plan){.kernel = quantized         ? HT_CUDA_ID_ht_cuda_multiply_quantized_f64
                                        : dtype == HT_F64 ? HT_CUDA_ID_ht_cuda_multiply_f64
                                                          : HT_CUDA_ID_ht_cuda_multiply_int,
                              .rows = HT_CUDA_WIDE_TILE,
                              .columns = HT_CUDA_WIDE_TILE,
                              .threads = HT_CUDA_TILE_THREADS};
    product_plan p = {.columns = HT_CUDA_TILE, .threads = HT_CUDA_FEW_THREADS};
    if (a->m == 1) {
        p.kernel = quantized ? HT_CUDA_ID_ht_cuda_multiply_quantized_one : HT_CUDA_ID_ht_cuda_multiply_one;
        p.rows = 1;
    } else if (a->m <= HT_CUDA_PRODUCT_FEW) {
        p.kernel = quantized ? HT_CUDA_ID_ht_cuda_multiply_quantized_few : HT_CUDA_ID_ht_cuda_multiply_few;
        p.rows = HT_CUDA_PRODUCT_FEW;
    } else {
        p.kernel = quantized ? HT_CUDA_ID_ht_cuda_multiply_quantized_tiles : HT_CUDA_ID_ht_cuda_multiply_tiles;
        p.rows = HT_CUDA_TILE;
        p.threads = HT_CUDA_TILE_THREADS;
    }
    return p;
}

static int64_t tiles_of(const ht_cuda_product_arguments *a, const product_plan *p) {
    return ht_ceil_div_i64(a->m, p->rows) * ht_ceil_div_i64(a->n, p->columns) * a->entries;
}

static size_t partial_bytes(const ht_cuda_product_arguments *a, const product_plan *p) {
    if (p->chunks_each >= p->chunks) return 0;
    return (size_t)p->chunks * (size_t)(a->entries * a->m * a->n) * sizeof(float);
}

static product_plan plan_of(const ht_cuda_device *d, const ht_cuda_product_arguments *a, bool quantized) {
    enum { THREADS = 1024, MOST_PARTIAL = 64 << 20 }; /* of a multiprocessor that has enough to do; bytes */
    product_plan p = kernel_for(a, quantized);
    p.chunks = ht_ceil_div_i64(a->k, HT_CUDA_CHUNK);
    p.chunks_each = p.chunks ? p.chunks : 1;
    const int64_t tiles = tiles_of(a, &p), wanted = (int64_t)d->multiprocessors * (THREADS / p.threads);
    if (p.rows == HT_CUDA_WIDE_TILE || tiles == 0 || tiles >= wanted || p.chunks < 2) return p;
    product_plan shared = p;
    shared.chunks_each = ht_ceil_div_i64(p.chunks, ht_ceil_div_i64(wanted, tiles));
    return partial_bytes(a, &shared) <= MOST_PARTIAL ? shared : p;
}

static ht_status multiply(const ht_call *call, ht_cuda_product_arguments a, bool quantized, ht_error *err) {
    ht_cuda_device *d = ht_cuda_of(call->device);
    const int64_t size = ht_view_size(&call->out);
    if (size == 0) return HT_OK;
    const product_plan p = plan_of(d, &a, quantized);
    a.chunks_each = p.chunks_each;
    a.partial = p.chunks_each < p.chunks ? call->scratch : NULL;
    const ht_cuda_shape shape = {.grid = {blocks_of(tiles_of(&a, &p) * ht_ceil_div_i64(p.chunks, p.chunks_each))},
                                 .block = {(unsigned)p.threads}};
    const ht_status status = ht_cuda_launch(d, p.kernel, &shape, &a, err);
    if (status || !a.partial) return status;
    const ht_cuda_add_chunks_arguments add = {
        .partial = a.partial, .chunks = p.chunks, .n = size, .out = a.out, .dtype = a.dtype};
    return ht_cuda_launch_threads(d, HT_CUDA_ID_ht_cuda_add_chunks, size, &add, err);
}

/* ---- MATMUL ---- */

static ht_cuda_product_arguments matmul_arguments(const ht_call *call) {
    const ht_matmul_params *p = call->params;
    return dense_arguments(call, p && p->transpose_b, false);
}

static ht_status run_matmul(const ht_call *call, ht_error *err) {
    return multiply(call, matmul_arguments(call), false, err);
}

static size_t scratch_for(const ht_call *call, ht_cuda_product_arguments a, bool quantized) {
    const product_plan p = plan_of(ht_cuda_of(call->device), &a, quantized);
    return partial_bytes(&a, &p);
}

static size_t matmul_scratch(const ht_call *call) { return scratch_for(call, matmul_arguments(call), false); }

/* ---- GATHER_MM and QUANTIZED_MATMUL: matrices by index ---- */

static int64_t matrices_of(const ht_view *x) {
    int64_t n = 1;
    for (int i = 0; i < x->n_dims - 2; i++) n *= x->shape[i];
    return n;
}

static ht_status check_indices(const ht_call *call, ht_op_id op, ht_error *err) {
    ht_cuda_device *d = ht_cuda_of(call->device);
    ht_cuda_check_matrices_arguments check = {.limit = {matrices_of(&call->in[0]), matrices_of(&call->in[1])}};
    set_indices(call, check.index);
    for (int i = call->n_in - 2; i < call->n_in; i++)
        if (!ht_view_absent(&call->in[i])) check.n = ht_view_size(&call->in[i]);
    check.reporter = ht_cuda_report(d, op);
    return ht_cuda_launch_threads(d, HT_CUDA_ID_ht_cuda_check_matrices, 2 * check.n, &check, err);
}

static ht_status run_gather_mm(const ht_call *call, ht_error *err) {
    const ht_status status = check_indices(call, HT_OP_GATHER_MM, err);
    return status ? status : multiply(call, dense_arguments(call, false, true), false, err);
}

static size_t gather_mm_scratch(const ht_call *call) {
    return scratch_for(call, dense_arguments(call, false, true), false);
}

static ht_status run_quantized_matmul(const ht_call *call, ht_error *err) {
    const ht_status status = check_indices(call, HT_OP_QUANTIZED_MATMUL, err);
    return status ? status : multiply(call, quantized_arguments(call), true, err);
}

static size_t quantized_matmul_scratch(const ht_call *call) {
    return scratch_for(call, quantized_arguments(call), true);
}

/* ---- QUANTIZE and DEQUANTIZE ---- */

static ht_status run_quantize(const ht_call *call, ht_error *err) {
    const ht_quantize_params *p = call->params;
    const ht_cuda_quantize_arguments a = {.w = ht_cuda_view_of(&call->in[0]),
                                          .out = call->out.data,
                                          .dtype = call->out.dtype,
                                          .how = quantization_of(&p->how),
                                          .part = p->part,
                                          .groups = ht_view_size(&call->in[0]) / p->how.group};
    enum { UNIT = 8 };
    return ht_cuda_launch_threads(ht_cuda_of(call->device), HT_CUDA_ID_ht_cuda_quantize,
                                  a.groups * (p->how.group / UNIT), &a, err);
}

static ht_status run_dequantize(const ht_call *call, ht_error *err) {
    const ht_quantize_params *p = call->params;
    const ht_cuda_dequantize_arguments a = {.n = ht_view_size(&call->out),
                                            .numbers = call->in[0].data,
                                            .scales = call->in[1].data,
                                            .biases = ht_view_absent(&call->in[2]) ? NULL : call->in[2].data,
                                            .scale_dtype = call->in[1].dtype,
                                            .how = quantization_of(&p->how),
                                            .out = call->out.data,
                                            .dtype = call->out.dtype};
    return ht_cuda_launch_threads(ht_cuda_of(call->device), HT_CUDA_ID_ht_cuda_dequantize, a.n, &a, err);
}

void ht_cuda_product_kernels(ht_kernel *kernels) {
    kernels[HT_OP_MATMUL] = (ht_kernel){run_matmul, matmul_scratch};
    kernels[HT_OP_GATHER_MM] = (ht_kernel){run_gather_mm, gather_mm_scratch};
    kernels[HT_OP_QUANTIZED_MATMUL] = (ht_kernel){run_quantized_matmul, quantized_matmul_scratch};
    kernels[HT_OP_QUANTIZE].run = run_quantize;
    kernels[HT_OP_DEQUANTIZE].run = run_dequantize;
}
