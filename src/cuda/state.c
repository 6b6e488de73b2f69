/* Recurrent layers: cuda/state.cu and cuda/state_gradient.cu. The step is in host memory, so every call passes a table
 * of its sequences: with the kernels' arguments if it is small, else in device memory. */
#include "cuda/state.h"

#include "base/checked.h"
#include "base/error.h"
#include "cuda/cuda.h"
#include "device/params.h"
#include "device/state.h"

#include <stdlib.h>

/* ---- sequences of a step ---- */

static void fill_sequences(const ht_call *call, int32_t layer, ht_cuda_state_sequence *to) {
    const ht_batch *b = call->step->batch;
    int32_t run = 0;
    for (int32_t s = 0; s < b->n_seq; s++) {
        const ht_kv_layer *l = ht_state_of(call, layer, s);
        const int32_t n = b->seq_start[s + 1] - b->seq_start[s];
        to[s] = (ht_cuda_state_sequence){
            .before = ht_state_before(l), .after = ht_state_after(l), .row = b->seq_start[s], .n = n, .run = run};
        run += (int32_t)ht_max_i64(1, ht_ceil_div_i64(n, HT_CUDA_CONV_ROWS));
    }
}

/* Runs of rows of all sequences. */
static int64_t runs_of(const ht_batch *b) {
    int64_t runs = 0;
    for (int32_t s = 0; s < b->n_seq; s++)
        runs += ht_max_i64(1, ht_ceil_div_i64(b->seq_start[s + 1] - b->seq_start[s], HT_CUDA_CONV_ROWS));
    return runs;
}

/* Launches a kernel whose arguments include the table of the step's sequences. */
static ht_status launch_with_sequences(const ht_call *call, int32_t layer, ht_cuda_kernel_id kernel,
                                       const ht_cuda_shape *shape, const void *arguments, ht_cuda_state_sequences *s,
                                       ht_error *err) {
    const size_t bytes = (size_t)call->step->batch->n_seq * sizeof(ht_cuda_state_sequence);
    ht_cuda_device *d = ht_cuda_of(call->device);
    if (bytes <= sizeof s->own) {
        fill_sequences(call, layer, (ht_cuda_state_sequence *)(void *)s->own);
        return ht_cuda_launch(d, kernel, shape, arguments, err);
    }
    ht_cuda_state_sequence *table = malloc(bytes);
    if (!table) return ht_fail_memory(err, bytes, "sequences of a step");
    void *there = NULL;
    fill_sequences(call, layer, table);
    ht_status status = ht_memory_alloc(&d->memory, bytes, "sequences of a step", &there, err);
    if (!status) status = ht_memory_write(&d->memory, there, table, bytes, err);
    s->table = there;
    if (!status) status = ht_cuda_launch(d, kernel, shape, arguments, err);
    ht_memory_free(&d->memory, there, bytes);
    free(table);
    return status;
}

/* ---- short convolutions ---- */

static ht_status run_short_conv(const ht_call *call, ht_error *err) {
    const ht_short_conv_params *p = call->params;
    ht_status status = ht_state_check(call, p->layer, (call->in[1].shape[1] - 1) * p->channels, err);
    if (status || ht_view_size(&call->out) == 0) return status;
    ht_cuda_short_conv_arguments a = {.x = ht_cuda_view_of(&call->in[0]),
                                      .w = ht_cuda_view_of(&call->in[1]),
                                      .bias = ht_cuda_view_of(&call->in[2]),
                                      .out = call->out.data,
                                      .first = p->first,
                                      .channels = p->channels,
                                      .n_seq = call->step->batch->n_seq};
    const ht_cuda_shape shape = {.grid = {(unsigned)ht_ceil_div_i64(call->out.shape[1], HT_CUDA_CONV_THREADS),
                                          (unsigned)runs_of(call->step->batch)},
                                 .block = {HT_CUDA_CONV_THREADS}};
    return launch_with_sequences(call, p->layer, HT_CUDA_ID_ht_cuda_short_conv, &shape, &a, &a.sequences, err);
}

/* ---- scans ---- */

static ht_cuda_state_operand operand_of(const ht_view *v) {
    if (ht_view_absent(v)) return (ht_cuda_state_operand){0};
    return (ht_cuda_state_operand){
        .data = v->data, .row = v->stride[0], .head = v->stride[1], .step = v->n_dims == 3 ? v->stride[2] : 1};
}

/* Whether four elements of a vector of an operand are adjacent and aligned, wherever they begin. */
static bool has_quads(const ht_view *v) {
    return (uintptr_t)v->data % 16 == 0 && v->stride[0] % 4 == 0 && v->stride[1] % 4 == 0 && v->stride[2] == 1 &&
           v->shape[2] % 4 == 0;
}

static ht_cuda_state_scan_arguments arguments_of(const ht_call *call) {
    const ht_state_scan_params *p = call->params;
    const ht_view *k = &call->in[1], *v = &call->in[2];
    const int64_t key_dim = k->shape[2], value_dim = v->shape[2];
    const bool of_keys = call->in[3].n_dims == 3;
    return (ht_cuda_state_scan_arguments){.q = operand_of(&call->in[0]),
                                          .k = operand_of(k),
                                          .v = operand_of(v),
                                          .decay = operand_of(&call->in[3]),
                                          .rate = operand_of(&call->in[4]),
                                          .out = call->out.data,
                                          .heads = (int32_t)v->shape[1],
                                          .key_heads = (int32_t)k->shape[1],
                                          .key_dim = (int32_t)key_dim,
                                          .value_dim = (int32_t)value_dim,
                                          .column_blocks = (int32_t)ht_ceil_div_i64(value_dim, HT_CUDA_STATE_COLUMNS),
                                          .of_keys = of_keys,
                                          .quads = has_quads(&call->in[0]) && has_quads(k) && has_quads(v) &&
                                                   (!of_keys || has_quads(&call->in[3])),
                                          .pairs = p->first % 2 == 0 && value_dim % 2 == 0,
                                          .first = p->first,
                                          .n_rows = v->shape[0],
                                          .parts = 1};
}

static bool is_wide(const ht_cuda_state_scan_arguments *a) { return a->key_dim > HT_CUDA_STATE_KEY_DIM / 2; }
/* Key dimensions, padded. */
static int keys_of(const ht_cuda_state_scan_arguments *a) {
    return is_wide(a) ? HT_CUDA_STATE_KEY_DIM : HT_CUDA_STATE_KEY_DIM / 2;
}

static ht_status check(const ht_cuda_state_scan_arguments *a, ht_error *err) {
    if (a->key_dim <= HT_CUDA_STATE_KEY_DIM) return HT_OK;
    return ht_fail(err, HT_ERR_UNSUPPORTED, "state_scan: keys of %d dimensions are not supported on a GPU, at most %d",
                   (int)a->key_dim, (int)HT_CUDA_STATE_KEY_DIM);
}

/* Dynamic shared memory: two tiles of rows; for a gradient also the sums of each warp, of two rows. */
static ht_cuda_shape shape_of(const ht_cuda_state_scan_arguments *a, int64_t parts, bool gradient) {
    const int64_t tiles = 2 * HT_CUDA_STATE_TILE * (int64_t)ht_cuda_state_row_floats(keys_of(a), a->of_keys, gradient);
    const int64_t warps = HT_CUDA_STATE_THREADS / 32, sums = ht_cuda_state_sum_floats(keys_of(a), a->of_keys);
    return (ht_cuda_shape){.grid = {(unsigned)(a->heads * a->column_blocks), (unsigned)parts},
                           .block = {HT_CUDA_STATE_THREADS},
                           .shared_bytes =
                               (unsigned)(tiles + (gradient ? 2 * warps * sums : 0)) * (unsigned)sizeof(float)};
}

static ht_cuda_kernel_id scan_kernel(const ht_cuda_state_scan_arguments *a) {
    return is_wide(a) ? HT_CUDA_ID_ht_cuda_state_scan_256 : HT_CUDA_ID_ht_cuda_state_scan_128;
}

static ht_status run_scan(const ht_call *call, ht_error *err) {
    const ht_state_scan_params *p = call->params;
    ht_cuda_state_scan_arguments a = arguments_of(call);
    ht_status status = ht_state_check(call, p->layer, p->first + (int64_t)a.heads * a.key_dim * a.value_dim, err);
    if (!status) status = check(&a, err);
    if (status || ht_view_size(&call->out) == 0) return status;
    const ht_cuda_shape shape = shape_of(&a, call->step->batch->n_seq, false);
    return launch_with_sequences(call, p->layer, scan_kernel(&a), &shape, &a, &a.sequences, err);
}

/* Scans flat rows; sequences run side by side where heads alone are not enough for the GPU. */
static ht_status scan_flat_rows(const ht_call *call, ht_cuda_state_scan_arguments *a, ht_error *err) {
    enum { PART_ROWS = 64, BLOCKS_PER_MP = 2 };
    ht_cuda_device *d = ht_cuda_of(call->device);
    const int64_t blocks = (int64_t)a->heads * a->column_blocks;
    const int64_t wanted = ht_ceil_div_i64((int64_t)d->multiprocessors * BLOCKS_PER_MP, blocks);
    const ht_view *first = &call->in[5];
    a->first_row = first->data;
    a->first_row_stride = first->stride[0];
    a->parts = (int32_t)ht_min_i64(wanted, ht_ceil_div_i64(a->n_rows, PART_ROWS));
    a->report = ht_cuda_report(d, HT_OP_STATE_SCAN_ROWS);
    const ht_cuda_shape shape = shape_of(a, a->parts, false);
    return ht_cuda_launch(d, scan_kernel(a), &shape, a, err);
}

static ht_status run_scan_rows(const ht_call *call, ht_error *err) {
    ht_cuda_state_scan_arguments a = arguments_of(call);
    a.first = 0;
    const ht_status status = check(&a, err);
    return status || ht_view_size(&call->out) == 0 ? status : scan_flat_rows(call, &a, err);
}

/* ---- gradient ---- */

/* Memory of the gradient; returns its bytes. */
static size_t place_scratch(ht_cuda_state_scan_arguments *a, void *scratch) {
    const size_t blocks = (size_t)a->heads * (size_t)a->column_blocks;
    const size_t state = blocks * (size_t)ht_cuda_state_part_floats(keys_of(a)) * sizeof(float);
    const size_t sums = blocks * (size_t)ht_cuda_state_sum_floats(keys_of(a), a->of_keys) * sizeof(float);
    ht_cuda_scratch s = {.at = scratch};
    a->checkpoints = ht_cuda_take(&s, (size_t)ht_ceil_div_i64(a->n_rows, HT_CUDA_STATE_SEGMENT) * state);
    a->states = ht_cuda_take(&s, HT_CUDA_STATE_SEGMENT / HT_CUDA_STATE_TILE * state);
    a->rows = ht_cuda_take(&s, HT_CUDA_STATE_TILE * state);
    a->later = ht_cuda_take(&s, state);
    a->partial = ht_cuda_take(&s, HT_CUDA_STATE_SEGMENT * sums);
    return s.bytes;
}

static size_t gradient_scratch(const ht_call *call) {
    ht_cuda_state_scan_arguments a = arguments_of(call);
    return place_scratch(&a, NULL);
}

static ht_status run_gradient(const ht_call *call, ht_error *err) {
    ht_cuda_device *d = ht_cuda_of(call->device);
    ht_cuda_state_scan_arguments a = arguments_of(call);
    ht_status status = check(&a, err);
    if (status || ht_view_size(&call->out) == 0) return status;
    float **const to[5] = {&a.out_q, &a.out_k, &a.out_v, &a.out_decay, &a.out_rate};
    float *at = call->out.data;
    for (int i = 0; i < 5 && !ht_view_absent(&call->in[i]); i++) {
        *to[i] = at;
        at += ht_view_size(&call->in[i]);
    }
    if (a.heads * a.column_blocks == 0)
        return ht_memory_fill(call->device->memory, call->out.data, 0, (size_t)ht_view_size(&call->out) * sizeof(float),
                              err);
    a.first = 0;
    a.out = NULL;
    a.grad = operand_of(&call->in[6]);
    a.quads = a.quads && has_quads(&call->in[6]);
    (void)place_scratch(&a, call->scratch);
    status = scan_flat_rows(call, &a, err);
    const ht_cuda_shape shape = shape_of(&a, 1, true);
    const int64_t of_row = 2 * (int64_t)a.key_heads * a.key_dim + a.heads * (a.of_keys ? a.key_dim + 1 : 2);
    const ht_cuda_kernel_id kernel =
        is_wide(&a) ? HT_CUDA_ID_ht_cuda_state_gradient_256 : HT_CUDA_ID_ht_cuda_state_gradient_128;
    const int64_t segments = ht_ceil_div_i64(a.n_rows, HT_CUDA_STATE_SEGMENT);
    for (int64_t i = segments - 1; i >= 0 && !status; i--) {
        a.segment = i * HT_CUDA_STATE_SEGMENT;
        status = ht_cuda_launch(d, kernel, &shape, &a, err);
        if (!status)
            status = ht_cuda_launch_threads(d, HT_CUDA_ID_ht_cuda_state_gradient_sums, HT_CUDA_STATE_SEGMENT * of_row,
                                            &a, err);
    }
    return status;
}

void ht_cuda_state_kernels(ht_kernel *kernels) {
    kernels[HT_OP_SHORT_CONV].run = run_short_conv;
    kernels[HT_OP_STATE_SCAN].run = run_scan;
    kernels[HT_OP_STATE_SCAN_ROWS].run = run_scan_rows;
    kernels[HT_OP_STATE_SCAN_ROWS_GRAD] = (ht_kernel){run_gradient, gradient_scratch};
}
