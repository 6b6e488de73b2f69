#include "cpu/kv.h"

#include "base/checked.h"
#include "base/error.h"
#include "base/half.h"
#include "cpu/call.h"
#include "cpu/device.h"
#include "cpu/element.h"
#include "cpu/strided_iterator.h"

#include <float.h>
#include <math.h>
#include <string.h>

uint16_t ht_kv_quantise(const float *x, int64_t n, int8_t *q, int64_t step) {
    float max = 0.0f, sum = 0.0f;
    for (int64_t i = 0; i < n; i++) {
        float size = fabsf(x[i]);
        max = size > max ? size : max;
        sum += size * 0.0f; /* 0, or NaN if x has a NaN or an infinity */
    }
    if (sum != 0.0f) {
        for (int64_t i = 0; i < n; i++) q[i * step] = 1;
        return ht_f32_to_bf16(NAN);
    }
    /* Rounded up, so that no quotient exceeds 127. A scale below the smallest normal number becomes 0. */
    uint32_t bits = (ht_float_bits(max / (float)HT_KV_QMAX) + 0xFFFFu) >> 16;
    float scale = ht_bf16_to_f32((uint16_t)bits);
    if (scale < FLT_MIN) scale = 0.0f;
    float inverse = scale > 0.0f ? 1.0f / scale : 0.0f;
    for (int64_t i = 0; i < n; i++) q[i * step] = (int8_t)rintf(x[i] * inverse);
    return ht_f32_to_bf16(scale);
}

float ht_kv_key(const ht_kv_layer *l, int64_t head, int64_t pos, int64_t d) {
    void *page = l->pages[ht_kv_page_of(l, pos)]->data;
    float x = ht_get_f32(l->shape.dtype, page, ht_kv_k_index(l, head, pos) + d * HT_KV_TILE);
    if (l->shape.dtype != HT_I8) return x;
    int64_t scale = ht_kv_k_scale_index(l, head, pos) + d / HT_KV_QBLOCK * HT_KV_TILE;
    return x * ht_bf16_to_f32(ht_kv_scales(l, page)[scale]);
}

float ht_kv_value(const ht_kv_layer *l, int64_t head, int64_t pos, int64_t d) {
    if (l->shape.keys_only) return ht_kv_key(l, head, pos, d);
    void *page = l->pages[ht_kv_page_of(l, pos)]->data;
    float x = ht_get_f32(l->shape.dtype, page, ht_kv_v_index(l, head, pos) + d);
    if (l->shape.dtype != HT_I8) return x;
    return x * ht_bf16_to_f32(ht_kv_scales(l, page)[ht_kv_v_scale_index(l, head, pos) + d / HT_KV_QBLOCK]);
}

/* Quantises one row and head into an 8-bit page; `step` is the stride between dimensions and between block scales. */
static void store_quantised(const ht_view *from, int64_t base, const ht_kv_layer *l, int8_t *to, uint16_t *scale,
                            int64_t step) {
    for (int64_t d = 0; d < l->shape.head_dim; d += HT_KV_QBLOCK, scale += step) {
        float x[HT_KV_QBLOCK];
        int64_t n = ht_min_i64(HT_KV_QBLOCK, l->shape.head_dim - d);
        for (int64_t i = 0; i < n; i++) x[i] = ht_get_f32(from->dtype, from->data, base + (d + i) * from->stride[2]);
        *scale = ht_kv_quantise(x, n, to + d * step, step);
    }
}

/* Stores one row and head at element `at` of the page; `step` is the stride between dimensions. */
static void store_vector(const ht_view *from, int64_t row, int64_t head, const ht_kv_layer *l, void *page, int64_t at,
                         int64_t scale, int64_t step) {
    int64_t base = row * from->stride[0] + head * from->stride[1];
    if (l->shape.dtype == HT_I8) {
        store_quantised(from, base, l, (int8_t *)page + at, ht_kv_scales(l, page) + scale, step);
        return;
    }
    for (int64_t d = 0; d < l->shape.head_dim; d++)
        ht_set_f32(l->shape.dtype, page, at + d * step,
                   ht_get_f32(from->dtype, from->data, base + d * from->stride[2]));
}

static void append_rows(void *arg, int64_t begin, int64_t end, int worker) {
    (void)worker;
    const ht_call *call = arg;
    for (int64_t row = begin; row < end; row++) {
        const ht_kv_layer *l = ht_kv_layer_of(call, row);
        int64_t pos = call->step->batch->pos[row];
        void *page = l->pages[ht_kv_page_of(l, pos)]->data;
        for (int64_t head = 0; head < l->shape.n_kv_heads; head++) {
            store_vector(&call->in[1], row, head, l, page, ht_kv_k_index(l, head, pos),
                         ht_kv_k_scale_index(l, head, pos), HT_KV_TILE);
            if (l->shape.keys_only) continue;
            store_vector(&call->in[2], row, head, l, page, ht_kv_v_index(l, head, pos),
                         ht_kv_v_scale_index(l, head, pos), 1);
        }
    }
}

void ht_kv_append(const ht_call *call) {
    const ht_view *k = &call->in[1];
    if (ht_view_absent(k)) return;
    ht_pool_run(ht_call_pool(call), k->shape[0], ht_row_grain(HT_GRAIN_PLAIN, k->shape[1] * k->shape[2]), append_rows,
                (void *)call);
}

ht_status ht_kv_check(const ht_call *call, ht_error *err) {
    const ht_batch *b = call->step->batch;
    for (int32_t s = 0; s < b->n_seq; s++) {
        const ht_kv_layer *l = ht_kv_layer_of(call, b->seq_start[s]);
        for (int64_t row = b->seq_start[s]; row < b->seq_start[s + 1]; row++)
            if (b->pos[row] < 0 || ht_kv_page_of(l, b->pos[row]) >= l->n_pages)
                return ht_fail(err, HT_ERR_INTERNAL, "row %lld: position %d has no page in the cache, which holds %lld",
                               (long long)row, b->pos[row], (long long)l->n_pages);
    }
    return HT_OK;
}

/* ---- saved positions ---- */

/* Copies n elements of `size` bytes, `step` apart in the page, to or from `saved`; returns the end of saved ones. */
static inline char *move_elements(char *elements, int64_t step, int64_t n, size_t size, char *saved, bool save) {
    for (int64_t i = 0; i < n; i++, saved += size, elements += (size_t)step * size)
        memcpy(save ? saved : elements, save ? elements : saved, size);
    return saved;
}

/* One vector, of `step` between its dimensions and between its scales in the page. */
static char *move_vector(const ht_kv_shape *s, char *values, int64_t at, uint16_t *scales, int64_t scale, int64_t step,
                         char *saved, bool save) {
    const int64_t n = s->head_dim;
    switch (ht_dtype_bytes(s->dtype)) {
    case 4: return move_elements(values + 4 * at, step, n, 4, saved, save);
    case 2: return move_elements(values + 2 * at, step, n, 2, saved, save);
    default: saved = move_elements(values + at, step, n, 1, saved, save); break;
    }
    return move_elements((char *)(scales + scale), step, ht_kv_blocks(n), sizeof *scales, saved, save);
}

static void move_positions(const ht_kv_shape *s, void *page, int64_t first, int64_t n, char *saved, bool save) {
    const ht_kv_layer l = {.shape = *s};
    if (s->state) {
        memcpy(save ? saved : page, save ? page : saved, ht_kv_saved_bytes(s));
        return;
    }
    uint16_t *scales = ht_kv_scales(&l, page);
    for (int64_t pos = first; pos < first + n; pos++) {
        for (int64_t h = 0; h < s->n_kv_heads; h++)
            saved = move_vector(s, page, ht_kv_k_index(&l, h, pos), scales, ht_kv_k_scale_index(&l, h, pos), HT_KV_TILE,
                                saved, save);
        for (int64_t h = 0; h < s->n_kv_heads && !s->keys_only; h++)
            saved = move_vector(s, page, ht_kv_v_index(&l, h, pos), scales, ht_kv_v_scale_index(&l, h, pos), 1, saved,
                                save);
    }
}

static ht_status read_positions(ht_device *d, const ht_kv_shape *shape, const ht_kv_page *page, int64_t first,
                                int64_t n, void *out, ht_error *err) {
    (void)d, (void)err;
    move_positions(shape, page->data, first, n, out, true);
    return HT_OK;
}

static ht_status write_positions(ht_device *d, const ht_kv_shape *shape, ht_kv_page *page, int64_t first, int64_t n,
                                 const void *from, ht_error *err) {
    (void)d, (void)err;
    move_positions(shape, page->data, first, n, (char *)(uintptr_t)from, false);
    return HT_OK;
}

const ht_kv_ops ht_cpu_kv = {ht_kv_saved_page_bytes, read_positions, write_positions, .keys_only = true};

/* ---- output rows ---- */

static bool output_rows_only(const ht_call *call) { return ((const ht_attend_params *)call->params)->asked; }

/* Caches, positions, lengths and starts; there are at most as many sequences as rows. */
size_t ht_kv_output_rows_bytes(const ht_call *call) {
    size_t n = (size_t)call->in[0].shape[0];
    if (!output_rows_only(call)) return 0;
    return (n * sizeof(ht_cache *) + (3 * n + 1) * sizeof(int32_t) + 63) & ~(size_t)63;
}

/* Builds a batch and a step of the output rows alone. */
static ht_status select_output_rows(const ht_call *call, ht_batch *to, ht_step *step, ht_error *err) {
    const ht_batch *b = call->step->batch;
    int32_t n = b->n_out, sequence = -1;
    if (call->in[0].shape[0] != n)
        return ht_fail(err, HT_ERR_INTERNAL, "attend: %lld rows, %d are asked for", (long long)call->in[0].shape[0],
                       (int)n);
    ht_cache **kv = call->scratch;
    int32_t *pos = (int32_t *)(kv + n), *kv_len = pos + n, *start = kv_len + n;
    *to = (ht_batch){.n_tok = n, .n_out = n, .pos = pos, .seq_start = start, .kv_len = kv_len};
    for (int32_t i = 0; i < n; i++) {
        int32_t row = b->out_row[i];
        if (row < (i ? b->out_row[i - 1] + 1 : 0) || row >= b->n_tok)
            return ht_fail(err, HT_ERR_INTERNAL, "attend: rows that are asked for are not in order");
        pos[i] = b->pos[row];
        if (ht_batch_sequence(b, row) == sequence) continue;
        sequence = ht_batch_sequence(b, row);
        kv[to->n_seq] = call->step->kv[sequence];
        kv_len[to->n_seq] = b->kv_len[sequence];
        start[to->n_seq++] = i;
    }
    start[to->n_seq] = n;
    *step = (ht_step){.batch = to, .kv = kv};
    return HT_OK;
}

ht_status ht_kv_run(const ht_call *call, ht_kernel_fn *attend, ht_error *err) {
    if (!output_rows_only(call)) return attend(call, err);
    if (ht_view_size(&call->in[0]) == 0) return HT_OK;
    ht_batch batch;
    ht_step step;
    ht_status status = select_output_rows(call, &batch, &step, err);
    if (status) return status;
    ht_call selected = *call;
    selected.step = &step;
    selected.scratch = (char *)call->scratch + ht_kv_output_rows_bytes(call);
    return attend(&selected, err);
}
