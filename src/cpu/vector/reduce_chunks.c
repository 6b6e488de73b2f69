/* Chunked reduction schedule (reduce_chunks.h): chunks of rows, or of adjacent columns, distributed over threads. */
#include "cpu/vector/reduce_chunks.h"

#include "base/checked.h"
#include "cpu/call.h"
#include "cpu/element.h"
#include "cpu/vector/panel.h"
#include "cpu/vector/rows.h"

typedef struct chunks_job {
    const ht_call *call;
    const ht_chunk_ops *ops;
    bool contiguous, by_columns;
    int64_t n, chunks;            /* per row or column: elements, chunks */
    int64_t width, piece, pieces; /* adjacent columns, columns per piece, pieces */
    ht_partial *part;             /* [rows][chunks] or [outer][chunks][width]; NULL: one chunk each */
} chunks_job;

static void store_result(const chunks_job *j, int64_t at, ht_partial p) {
    const ht_view *out = &j->call->out;
    ht_set_f64(out->dtype, out->data, at, j->ops->result(p, j->n));
}

/* Combines the partials of one row or column, `step` apart, and stores its result. */
static void combine_chunks(const chunks_job *j, int64_t at, const ht_partial *p, int64_t step) {
    ht_partial all = p[0];
    for (int64_t k = 1; k < j->chunks; k++) all = j->ops->combine(all, p[k * step]);
    store_result(j, at, all);
}

static void run_rows(void *arg, int64_t begin, int64_t end, int worker) {
    (void)worker;
    const chunks_job *j = arg;
    const ht_view *x = &j->call->in[0];
    const int64_t stride = x->stride[x->n_dims - 1];
    _Alignas(64) float converted[HT_CHUNK];
    for (int64_t unit = begin; unit < end; unit++) {
        const int64_t first = unit % j->chunks * HT_CHUNK, n = ht_min_i64(HT_CHUNK, j->n - first);
        const int64_t at = row_offset(x, j->contiguous, unit / j->chunks) + first * stride;
        const float *p = (const float *)x->data + at;
        if (x->dtype != HT_F32 || stride != 1) {
            for (int64_t i = 0; i < n; i += 16)
                v16f_store(converted + i, lanes_load(x->dtype, x->data, at + i * stride, stride, lanes_count(n - i)));
            p = converted;
        }
        const ht_partial part = j->ops->reduce_row(p, n);
        if (j->part)
            j->part[unit] = part;
        else
            store_result(j, unit, part);
    }
}

/* Elements [0, n) of sixteen adjacent columns, of which `lanes` exist, one column after another. */
static void load_columns(const ht_view *x, int64_t at, int64_t n, int lanes, float *lines) {
    const int64_t step = x->stride[x->n_dims - 1];
    _Alignas(64) float square[256];
    for (int64_t r = 0; r < n; r += 16) {
        for (int64_t i = 0; i < 16; i++) {
            const int64_t row = ht_min_i64(r + i, n - 1);
            v16f_store(square + 16 * i, lanes_load(x->dtype, x->data, at + row * step, 1, lanes));
        }
        panel_transpose(square, 16, 16, 16, lines + r, HT_CHUNK);
    }
}

static void run_columns(void *arg, int64_t begin, int64_t end, int worker) {
    (void)worker;
    const chunks_job *j = arg;
    const ht_view *x = &j->call->in[0];
    _Alignas(64) float lines[16 * HT_CHUNK];
    ht_partial parts[HT_CHUNK_COLUMNS];
    for (int64_t unit = begin; unit < end; unit++) {
        const int64_t c = unit % j->pieces * j->piece, w = ht_min_i64(j->piece, j->width - c);
        const int64_t chunk = unit / j->pieces % j->chunks, outer = unit / j->pieces / j->chunks;
        const int64_t row = chunk * HT_CHUNK, n = ht_min_i64(HT_CHUNK, j->n - row);
        const int64_t at = ht_view_offset(x, x->n_dims - 2, outer) + c + row * x->stride[x->n_dims - 1];
        ht_partial *to = j->part ? j->part + (outer * j->chunks + chunk) * j->width + c : parts;
        for (int64_t i = 0; i < w; i++) {
            if (i % 16 == 0) load_columns(x, at + i, n, lanes_count(w - i), lines);
            to[i] = j->ops->reduce_row(lines + i % 16 * HT_CHUNK, n);
            if (!j->part) store_result(j, outer * j->width + c + i, to[i]);
        }
    }
}

static void finish_all(void *arg, int64_t begin, int64_t end, int worker) {
    (void)worker;
    const chunks_job *j = arg;
    for (int64_t i = begin; i < end; i++) {
        if (j->by_columns)
            combine_chunks(j, i, j->part + i / j->width * j->chunks * j->width + i % j->width, j->width);
        else
            combine_chunks(j, i, j->part + i * j->chunks, 1);
    }
}

static bool init_chunks_job(const ht_call *call, chunks_job *j) {
    const ht_view *x = &call->in[0];
    const int last = x->n_dims - 1;
    if (!lanes_supports(x->dtype) || x->shape[last] < 1) return false;
    *j = (chunks_job){.call = call, .contiguous = ht_view_contiguous(x), .n = x->shape[last]};
    j->by_columns = last >= 1 && x->stride[last] != 1 && x->stride[last - 1] == 1 && x->shape[last - 1] > 1;
    j->chunks = ht_ceil_div_i64(j->n, HT_CHUNK);
    if (j->by_columns) {
        j->width = x->shape[last - 1];
        const int64_t threads = ht_pool_threads(ht_call_pool(call)), rows = row_count(x) / j->width;
        j->piece = HT_CHUNK_COLUMNS;
        while (j->piece > 16 && threads > 1 && rows * j->chunks * ht_ceil_div_i64(j->width, j->piece) < 4 * threads)
            j->piece /= 2;
        j->pieces = ht_ceil_div_i64(j->width, j->piece);
    }
    return true;
}

size_t HT_ISA_NAME(ht_reduce_chunks_scratch)(const ht_call *call) {
    chunks_job j;
    if (!init_chunks_job(call, &j) || j.chunks == 1) return 0;
    return (size_t)(row_count(&call->in[0]) * j.chunks) * sizeof(ht_partial);
}

bool HT_ISA_NAME(ht_reduce_chunks)(const ht_call *call, const ht_chunk_ops *ops) {
    chunks_job j;
    if (!init_chunks_job(call, &j)) return false;
    j.ops = ops;
    j.part = j.chunks > 1 ? call->scratch : NULL;
    const int64_t rows = row_count(&call->in[0]), most = ht_min_i64(j.n, HT_CHUNK);
    if (j.by_columns)
        ht_pool_run(ht_call_pool(call), rows / j.width * j.chunks * j.pieces,
                    ht_row_grain(ops->grain, most * ht_min_i64(j.width, j.piece)), run_columns, &j);
    else
        ht_pool_run(ht_call_pool(call), rows * j.chunks, ht_row_grain(ops->grain, most), run_rows, &j);
    if (j.part) ht_pool_run(ht_call_pool(call), rows, ht_row_grain(HT_GRAIN_MATH, j.chunks), finish_all, &j);
    return true;
}
