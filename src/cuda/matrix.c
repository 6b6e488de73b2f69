/* Packed weights, and the products with them. */
#include "cuda/matrix.h"

#include "base/error.h"
#include "cuda/matrix_run.h"
#include "device/params.h"
#include "formats/affine.h"

#include <stdlib.h>
#include <string.h>

/* ---- packing ---- */

static size_t rows_bytes(ht_weight_type type, int64_t n_rows, int64_t k) {
    return (size_t)n_rows * (size_t)ht_cuda_layout_of(type, k).row_bytes;
}

static size_t tensor_bytes(ht_weight_type type, int64_t n_rows, int64_t k) {
    return (rows_bytes(type, n_rows, k) + 15) / 16 * 16 + ht_cuda_factor_bytes(n_rows);
}

static bool is_as_stored(const ht_cuda_layout *l) { return l->form <= HT_CUDA_F8; }

/* Lays out as many stored rows as a staging buffer holds, on the GPU. */
static ht_status lay_out_some(ht_cuda_device *d, ht_matrix *m, const ht_cuda_layout *l, int64_t n, const char *stored,
                              char *to, ht_error *err) {
    ht_cuda_piece *piece;
    ht_status status = ht_cuda_piece_take(d, &piece, err);
    if (status) return status;
    const size_t bytes = (size_t)(n * l->stored_bytes);
    memcpy(piece->host, stored, bytes);
    const unsigned state = d->base.begin(&d->base);
    status = ht_cuda_piece_copy(d, piece, bytes, err);
    if (!status) status = ht_cuda_lay_out(d, m->type, l, m->k, n, piece->device, to, err);
    ht_cuda_piece_give_back(d, piece);
    d->base.end(&d->base, state);
    return status;
}

static ht_status pack(ht_matrix *m, int64_t row, int64_t n, const void *stored, ht_error *err) {
    ht_cuda_device *d = ht_cuda_of(m->device);
    const ht_cuda_layout l = ht_cuda_layout_of(m->type, m->k);
    char *to = (char *)m->packed + row * l.row_bytes;
    if (is_as_stored(&l)) return d->memory.ops->write(d, to, stored, (size_t)(n * l.row_bytes), err);
    if (l.stored_bytes > HT_CUDA_PIECE_BYTES)
        return ht_fail(err, HT_ERR_UNSUPPORTED, "rows of %lld weights are too long for this GPU", (long long)m->k);
    const int64_t at_once = HT_CUDA_PIECE_BYTES / l.stored_bytes;
    ht_status status = HT_OK;
    for (int64_t i = 0; i < n && !status; i += at_once)
        status = lay_out_some(d, m, &l, ht_min_i64(at_once, n - i), (const char *)stored + i * l.stored_bytes,
                              to + i * l.row_bytes, err);
    return status;
}

static ht_status pack_tensor(ht_matrix *m, int64_t row, int64_t n, const void *stored, ht_error *err) {
    ht_status status = pack(m, row, n, stored, err);
    if (status) return status;
    const unsigned state = m->device->begin(m->device);
    status = ht_cuda_set_factors(ht_cuda_of(m->device), m, row, n, err);
    m->device->end(m->device, state);
    return status;
}

static ht_status scale_row(const ht_matrix *m, int64_t row, float *out, ht_error *err) {
    ht_cuda_device *d = ht_cuda_of(m->device);
    const int64_t n = ht_ceil_div_i64(m->k, m->scale_columns);
    const size_t bytes = (size_t)n * sizeof(float);
    float *scales = malloc(bytes);
    if (!scales) return ht_fail_memory(err, bytes, "scales");
    const ht_status status = d->memory.ops->read(d, scales, m->scales + row / m->scale_rows * n, bytes, err);
    for (int64_t c = 0; c < m->k && !status; c++) out[c] *= scales[c / m->scale_columns];
    free(scales);
    return status;
}

static ht_status read_row(const ht_matrix *m, int64_t row, float *out, ht_error *err) {
    ht_cuda_device *d = ht_cuda_of(m->device);
    const ht_cuda_layout l = ht_cuda_layout_of(m->type, m->k);
    const size_t bytes = (size_t)(l.row_bytes + l.stored_bytes);
    char *packed = malloc(bytes ? bytes : 1), *stored = packed;
    if (!packed) return ht_fail_memory(err, bytes, "a row of weights");
    ht_status status =
        d->memory.ops->read(d, packed, (const char *)m->packed + row * l.row_bytes, (size_t)l.row_bytes, err);
    if (!status && !is_as_stored(&l)) {
        stored = packed + l.row_bytes;
        ht_cuda_restore_row(m->type, &l, m->k, packed, stored);
    }
    if (!status) ht_dequantize(m->type, stored, m->k, out);
    free(packed);
    return status || !m->scales ? status : scale_row(m, row, out, err);
}

static const ht_matrix_ops row_ops = {"rows (cuda)", rows_bytes, pack, read_row, NULL};
static const ht_matrix_ops tensor_ops = {"rows for tensor cores (cuda)", tensor_bytes, pack_tensor, read_row, NULL};

bool ht_cuda_is_tensor(const ht_matrix *m) { return m->ops == &tensor_ops; }

const ht_matrix_ops *ht_cuda_matrix_ops(const ht_device *d, ht_weight_type type, ht_precision precision) {
    (void)d;
    return precision == HT_PRECISION_REFERENCE || type == HT_W_F32 ? &row_ops : &tensor_ops;
}

/* ---- operands ---- */

ht_cuda_weights ht_cuda_weights_of(const ht_matrix *m) {
    const ht_cuda_layout l = ht_cuda_layout_of(m->type, m->k);
    const ht_affine affine = ht_affine_of(m->type);
    ht_cuda_weights w = {.packed = m->packed,
                         .scales = m->scales,
                         .n_rows = m->n_rows,
                         .k = m->k,
                         .row_bytes = l.row_bytes,
                         .whole = l.whole,
                         .scale_rows = m->scale_rows,
                         .scale_columns = m->scale_columns,
                         .type = (int32_t)m->type,
                         .form = (int32_t)l.form,
                         .bits = affine.bits,
                         .group = affine.group,
                         .scale_type = (int32_t)affine.scale};
    const int64_t group = m->scales ? m->scale_columns : affine.group;
    while (group > (int64_t)1 << w.group_shift) w.group_shift++;
    if (m->scales && (group % HT_CUDA_PART || group != (int64_t)1 << w.group_shift)) w.whole = 0;
    return w;
}

ht_cuda_weights ht_cuda_some_rows(const ht_cuda_weights *w, int64_t row, int64_t n) {
    ht_cuda_weights some = *w;
    some.packed += row * w->row_bytes;
    some.first_row += row;
    some.n_rows = n;
    return some;
}

size_t ht_cuda_rows_bytes(const ht_view *x) {
    int64_t ld;
    return ht_view_has_rows(x, &ld) ? 0 : (size_t)ht_view_size(x) * sizeof(float);
}

ht_status ht_cuda_contiguous_rows(ht_cuda_device *d, const ht_view *x, void *room, const float **rows, int64_t *ld,
                                  ht_error *err) {
    *rows = x->data;
    if (ht_view_has_rows(x, ld)) return HT_OK;
    const ht_view copy = ht_cuda_contiguous(x, room);
    *rows = room;
    *ld = x->shape[x->n_dims - 1];
    return ht_cuda_strided_copy(d, &copy, x, err);
}

/* ---- products ---- */

enum { MOST_FEW = 32, FEW_THREADS = HT_CUDA_FEW_ROWS * HT_CUDA_LANES, THREADS = 256, CHUNK = 256 };

unsigned ht_cuda_few_shared(ht_cuda_linear_arguments *a, int64_t r) {
    const int64_t most = HT_CUDA_FEW_CHUNK / r / CHUNK * CHUNK, needed = ht_ceil_div_i64(a->w.k, CHUNK) * CHUNK;
    a->chunk = (int32_t)(needed < most ? needed : most);
    a->x_aligned = (uintptr_t)a->x % 16 == 0 && a->ldx % 4 == 0;
    return (unsigned)(r * a->chunk * (int64_t)sizeof(float));
}

ht_status ht_cuda_multiply(ht_cuda_device *d, ht_cuda_linear_arguments *a, ht_error *err) {
    static const int rows[] = {HT_CUDA_FEW_ROWS_1, HT_CUDA_FEW_ROWS_2, HT_CUDA_FEW_ROWS_4, HT_CUDA_FEW_ROWS_8};
    int kernel = 0;
    while (kernel < 3 && 1 << kernel < a->n) kernel++;
    const int64_t r = 1 << kernel;
    const unsigned shared = ht_cuda_few_shared(a, r);
    const int64_t tiles = ht_ceil_div_i64(a->n, HT_CUDA_TILE_X) * ht_ceil_div_i64(a->w.n_rows, HT_CUDA_TILE_W);
    if (a->n <= MOST_FEW || tiles * 2 < d->multiprocessors) { /* tiles would leave most of them without work */
        const ht_cuda_shape shape = {.grid = {(unsigned)ht_ceil_div_i64(a->w.n_rows, HT_CUDA_FEW_ROWS * rows[kernel]),
                                              (unsigned)ht_ceil_div_i64(a->n, r)},
                                     .block = {FEW_THREADS},
                                     .shared_bytes = shared};
        const int first =
            a->w.form == HT_CUDA_F32 ? HT_CUDA_ID_ht_cuda_few_F32_1 : HT_CUDA_ID_ht_cuda_few_ANY_1; /* of 1, 2, 4, 8 */
        return ht_cuda_launch(d, (ht_cuda_kernel_id)(first + kernel), &shape, a, err);
    }
    const ht_cuda_shape shape = {.grid = {(unsigned)tiles}, .block = {THREADS}};
    return ht_cuda_launch(d, HT_CUDA_ID_ht_cuda_many, &shape, a, err);
}

/* The scratch memory's parts. */
typedef struct linear_room {
    void *rows, *bias; /* contiguous copies of x and of the bias, if needed */
    void *image, *matrix;
    size_t bytes;
} linear_room;

static linear_room lay_out_linear(const ht_call *call, void *at) {
    const ht_cuda_device *d = ht_cuda_of(call->device);
    const ht_matrix *m = ((const ht_linear_params *)call->params)->matrix;
    const int64_t n = ht_view_size(&call->out) / m->n_rows;
    const bool tensor = ht_cuda_is_tensor(m), biased = call->n_in > 1 && !ht_view_absent(&call->in[1]);
    ht_cuda_scratch s = {.at = at};
    linear_room r;
    r.rows = ht_cuda_take(&s, ht_cuda_rows_bytes(&call->in[0]));
    r.bias = ht_cuda_take(&s, biased ? ht_cuda_rows_bytes(&call->in[1]) : 0);
    r.image = ht_cuda_take(&s, tensor ? ht_cuda_swizzled_bytes(d, n, m->k) : 0);
    r.matrix = ht_cuda_take(&s, tensor ? ht_cuda_tensor_room(d, n, m->n_rows, m->k) : 0);
    r.bytes = s.bytes;
    return r;
}

static size_t linear_scratch(const ht_call *call) { return lay_out_linear(call, NULL).bytes; }

static ht_status run_linear(const ht_call *call, ht_error *err) {
    ht_cuda_device *d = ht_cuda_of(call->device);
    const ht_matrix *m = ((const ht_linear_params *)call->params)->matrix;
    const ht_view *x = &call->in[0], *bias = call->n_in > 1 ? &call->in[1] : NULL;
    if (ht_view_size(&call->out) == 0) return HT_OK;
    const linear_room r = lay_out_linear(call, call->scratch);
    ht_cuda_linear_arguments a = {
        .w = ht_cuda_weights_of(m), .y = call->out.data, .n = ht_view_size(&call->out) / m->n_rows, .ldy = m->n_rows};
    int64_t ld;
    ht_status status = ht_cuda_contiguous_rows(d, x, r.rows, &a.x, &a.ldx, err);
    if (!status && bias && !ht_view_absent(bias)) status = ht_cuda_contiguous_rows(d, bias, r.bias, &a.bias, &ld, err);
    if (status || !ht_cuda_is_tensor(m)) return status ? status : ht_cuda_multiply(d, &a, err);
    ht_cuda_swizzled image = ht_cuda_swizzled_at(d, r.image, a.n, m->k);
    image.apart = ht_cuda_takes_apart(d, m, a.n);
    const ht_cuda_product product = {m, a.bias, a.y};
    status = ht_cuda_prepare_rows(d, a.x, a.ldx, a.n, m->k, &image, err);
    return status ? status : ht_cuda_multiply_swizzled(d, &product, 1, &image, a.n, r.matrix, err);
}

/* ---- gradients ---- */

ht_status ht_cuda_multiply_back(ht_cuda_device *d, const ht_cuda_back_arguments *a, ht_error *err) {
    const int64_t tiles = ht_ceil_div_i64(a->n, HT_CUDA_BACK_ROWS) * ht_ceil_div_i64(a->w.k, HT_CUDA_BACK_COLUMNS);
    const ht_cuda_shape shape = {.grid = {(unsigned)tiles}, .block = {THREADS}};
    return ht_cuda_launch(d, HT_CUDA_ID_ht_cuda_back, &shape, a, err);
}

static size_t linear_back_scratch(const ht_call *call) { return ht_cuda_rows_bytes(&call->in[0]); }

static ht_status run_linear_back(const ht_call *call, ht_error *err) {
    ht_cuda_device *d = ht_cuda_of(call->device);
    const ht_matrix *m = ((const ht_linear_params *)call->params)->matrix;
    if (ht_view_size(&call->out) == 0) return HT_OK;
    ht_cuda_back_arguments a = {.w = ht_cuda_weights_of(m),
                                .dx = call->out.data,
                                .n = ht_view_size(&call->out) / m->k,
                                .ldx = m->k,
                                .dy_step = 1};
    const ht_status status = ht_cuda_contiguous_rows(d, &call->in[0], call->scratch, &a.dy, &a.dy_stride[0], err);
    return status ? status : ht_cuda_multiply_back(d, &a, err);
}

/* ---- rows by index ---- */

static ht_status run_embed(const ht_call *call, ht_error *err) {
    ht_cuda_device *d = ht_cuda_of(call->device);
    const ht_linear_params *p = call->params;
    const ht_cuda_embed_arguments a = {.w = ht_cuda_weights_of(p->matrix),
                                       .report = ht_cuda_report(d, HT_OP_EMBED),
                                       .ids = ht_cuda_view_of(&call->in[0]),
                                       .n = ht_view_size(&call->in[0]),
                                       .out = call->out.data,
                                       .scale = p->scale};
    const ht_cuda_shape shape = {.grid = {ht_cuda_blocks(d, a.n)}, .block = {THREADS}};
    return a.n == 0 ? HT_OK : ht_cuda_launch(d, HT_CUDA_ID_ht_cuda_embed, &shape, &a, err);
}

void ht_cuda_matrix_kernels(ht_kernel *kernels) {
    kernels[HT_OP_LINEAR] = (ht_kernel){.run = run_linear, .scratch = linear_scratch};
    kernels[HT_OP_LINEAR_BACK] = (ht_kernel){.run = run_linear_back, .scratch = linear_back_scratch};
    kernels[HT_OP_EMBED].run = run_embed;
    kernels[HT_OP_HEAD_LOSS] = (ht_kernel){.run = ht_cuda_head_loss, .scratch = ht_cuda_head_loss_scratch};
    kernels[HT_OP_HEAD_LOSS_GRAD] = (ht_kernel){.run = ht_cuda_head_loss_grad, .scratch = ht_cuda_head_loss_scratch};
    kernels[HT_OP_LINEAR_GATHER] = (ht_kernel){.run = ht_cuda_linear_gather, .scratch = ht_cuda_linear_gather_scratch};
    kernels[HT_OP_LINEAR_GATHER_BACK] =
        (ht_kernel){.run = ht_cuda_linear_gather_back, .scratch = ht_cuda_linear_gather_back_scratch};
}
