/* Fused stages. Each thread runs row-wise kernels and activation quantisation on a few rows at a time. Then all integer
 * products run as one work list, and the other products sequentially. */
#include "cpu/fused_stage.h"

#include "base/checked.h"
#include "cpu/call.h"
#include "cpu/device.h"
#include "cpu/gemm_schedule.h"
#include "cpu/matrix_ops.h"
#include "device/params.h"

/* A row-wise call of one thread, which keeps local values in its own rows. */
typedef struct thread_call {
    ht_call call;
    float *local; /* NULL: not local */
    int64_t width;
    ht_view in[HT_STAGE_INPUTS];
} thread_call;

typedef struct layout {
    ht_rows_fn *rows[HT_STAGE_CALLS];
    const float *x; /* input of the products, unless it is local */
    int64_t ldx;
    ht_gemm_schedule products; /* in integers */
    int n_apart;
    ht_gemm apart[HT_STAGE_CALLS]; /* the others */
    thread_call call[];            /* [n_threads][n_rowwise] */
} layout;

_Static_assert((int)HT_STAGE_CALLS <= (int)HT_MAX_GEMMS, "all products of a fused stage may be in integers");

static const ht_matrix *matrix_of(const ht_call *call) { return ((const ht_linear_params *)call->params)->matrix; }

static size_t stage_bytes(const ht_device *d, const ht_fused_stage *c) {
    return sizeof(layout) + (size_t)d->n_threads * (size_t)c->n_rowwise * sizeof(thread_call);
}

static bool is_rowwise(const ht_device *d, ht_op_id op) { return ((const ht_cpu_device *)d)->rows[op] != NULL; }
static bool takes_rows(const ht_matrix *m) { return ht_cpu_ops_of(m)->takes_rows_once; }

/* ---- laying out ---- */

static void lay_products(layout *l, const ht_fused_stage *c) {
    const ht_call *first = &c->call[c->n_rowwise];
    const ht_view *x = &first->in[0];
    l->x = x->data;
    l->ldx = x->stride[0];
    l->n_apart = 0;
    l->products = (ht_gemm_schedule){.kernels = ht_kernels_of(matrix_of(first)),
                                     .n_x = x->shape[0],
                                     .n_threads = ht_pool_threads(ht_call_pool(first))};
    for (int i = 0; i < c->n_products; i++) {
        const ht_call *call = first + i;
        const ht_matrix *m = matrix_of(call);
        const ht_view *bias = &call->in[1];
        ht_gemm p = {m, ht_view_absent(bias) ? NULL : bias->data, call->out.data, m->n_rows, call->top_k};
        if (ht_gemm_shares_rows(m))
            l->products.product[l->products.n++] = p;
        else
            l->apart[l->n_apart++] = p;
    }
}

/* Floats of a row of a call's output. */
static int64_t row_floats(const ht_call *call) {
    int64_t n = 1;
    for (int d = 1; d < call->out.n_dims; d++) n *= call->out.shape[d];
    return n;
}

/* Floats of n rows, in whole cache lines. */
static int64_t room_floats(const ht_call *call, int64_t n) { return (n * row_floats(call) + 15) / 16 * 16; }

static int64_t local_floats(const ht_fused_stage *c, int64_t most_rows) {
    int64_t floats = 0;
    for (int i = 0; i < c->n_rowwise; i++)
        if (c->is_local[i]) floats += room_floats(&c->call[i], most_rows);
    return floats;
}

static void lay_calls(const ht_fused_stage *c, int64_t most_rows, float *local, thread_call *to) {
    for (int i = 0; i < c->n_rowwise; i++, to++) {
        to->call = c->call[i];
        to->call.in = to->in;
        for (int k = 0; k < c->call[i].n_in; k++) to->in[k] = c->call[i].in[k];
        to->width = row_floats(&c->call[i]);
        to->local = c->is_local[i] ? local : NULL;
        if (c->is_local[i]) local += room_floats(&c->call[i], most_rows);
    }
}

/* Scratch memory: the workspace of the products, then each thread's local rows. */
static size_t layout_stage(const ht_fused_stage *c) {
    layout *l = c->layout;
    for (int i = 0; i < c->n_rowwise; i++) l->rows[i] = ((const ht_cpu_device *)c->call->device)->rows[c->op[i]];
    float *scratch = c->call->scratch;
    lay_products(l, c);
    const int n_threads = l->products.n_threads;
    size_t bytes = ht_gemm_schedule_layout(&l->products, scratch);
    int64_t most_rows = ht_gemm_schedule_share_rows(&l->products), floats = local_floats(c, most_rows);
    for (int i = 0; scratch && i < n_threads; i++)
        lay_calls(c, most_rows, scratch + bytes / sizeof *scratch + i * floats, &l->call[i * c->n_rowwise]);
    bytes += (size_t)n_threads * (size_t)floats * sizeof *scratch;
    for (int i = 0; i < l->n_apart; i++) {
        const ht_matrix *m = l->apart[i].m;
        bytes = ht_max_size(bytes, ht_cpu_ops_of(m)->mul_scratch(m, l->products.n_x, n_threads));
    }
    return bytes;
}

/* ---- running ---- */

/* Where row 0 would be if row `begin` is at the start of the local rows: kernels count from row 0. */
static float *from_row(const thread_call *t, int64_t begin) {
    return (float *)((uintptr_t)t->local - (uintptr_t)(begin * t->width) * sizeof(float));
}

static void run_rows(const ht_fused_stage *c, thread_call *calls, int64_t begin, int64_t end) {
    for (int i = 0; i < c->n_rowwise; i++) {
        thread_call *t = &calls[i];
        if (t->local) t->call.out.data = from_row(t, begin);
        for (int k = 0; k < t->call.n_in; k++)
            if (c->local_in[i][k] >= 0) t->in[k].data = from_row(&calls[c->local_in[i][k]], begin);
        ((const layout *)c->layout)->rows[i](&t->call, begin, end);
    }
}

static void run_shares(void *arg, int64_t begin, int64_t end, int worker) {
    const ht_fused_stage *c = arg;
    layout *l = c->layout;
    thread_call *calls = &l->call[worker * c->n_rowwise], *last = calls + c->n_rowwise - 1;
    for (int64_t i = begin; i < end; i++) {
        ht_gemm_share share = ht_gemm_schedule_share(&l->products, i);
        run_rows(c, calls, share.begin, share.end);
        const float *x = c->n_rowwise && last->local ? from_row(last, share.begin) : l->x;
        ht_gemm_schedule_quantise(&l->products, share, x, l->ldx);
    }
}

static ht_status run_stage(const ht_fused_stage *c, ht_error *err) {
    (void)err;
    const layout *l = c->layout;
    ht_pool *pool = ht_call_pool(c->call);
    ht_pool_run(pool, ht_gemm_schedule_shares(&l->products), 1, run_shares, (void *)(uintptr_t)c);
    ht_gemm_schedule_multiply(&l->products, pool);
    for (int i = 0; i < l->n_apart; i++) {
        const ht_gemm *p = &l->apart[i];
        const ht_product whole = {p->m, l->x, l->ldx, l->products.n_x, p->bias, p->y, p->ldy, 0};
        ht_cpu_ops_of(p->m)->mul(&whole, c->call->scratch, pool);
    }
    return HT_OK;
}

const ht_stage_ops ht_cpu_stages = {is_rowwise, takes_rows, stage_bytes, layout_stage, run_stage};
