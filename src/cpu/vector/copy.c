/* Copies of any strides. Where the operand's neighbours along another axis than the last lie together, as in a transpose,
 * square tiles are turned around: whole cache lines are read and written. */
#include "cpu/reference/reference.h"
#include "cpu/vector/simd.h"
#include "cpu/vector/vector.h"
#include "cpu/walk.h"

/* Elements of a tile's side: of a run in the result, and of a run in the operand. */
enum { TILE = 64 };

/* Two axes of the operand: `across` with a stride of 1, and the last. Other axes are counted by `others`. */
typedef struct turn_job {
    const char *in;
    char *out;
    size_t bytes;          /* of an element */
    int64_t across, along; /* lengths of the two axes */
    int64_t in_step;       /* elements from one to the next along the last axis */
    int64_t out_step;      /* elements from one to the next along `across` in the result */
    int64_t strips;        /* of TILE elements of `across` */
    ht_view others;        /* the operand without the two axes */
    int64_t out_stride[HT_MAX_DIMS];
} turn_job;

#define TURN(type, name)                                                                                               \
    static void name(const type *in, int64_t in_step, type *out, int64_t out_step, int64_t across, int64_t along) {    \
        for (int64_t i = 0; i < across; i++)                                                                           \
            for (int64_t k = 0; k < along; k++) out[i * out_step + k] = in[k * in_step + i];                           \
    }
TURN(uint8_t, turn1)
TURN(uint16_t, turn2)
TURN(uint32_t, turn4)
TURN(uint64_t, turn8)

/* Sixteen by sixteen: four by four in each register of four rows. */
HT_INLINE void turn_16(const float *in, int64_t in_step, float *out, int64_t out_step) {
    HT_UNROLL
    for (int g = 0; g < 4; g++) {
        v16f v[4];
        HT_UNROLL
        for (int j = 0; j < 4; j++) {
            const float *p = in + 4 * g + j * in_step;
            v[j] = v16f_load_quads(p, p + 4 * in_step, p + 8 * in_step, p + 12 * in_step);
        }
        v16f_transpose_quads(v);
        HT_UNROLL
        for (int i = 0; i < 4; i++) v16f_store(out + (4 * g + i) * out_step, v[i]);
    }
}

static void turn_floats(const float *in, int64_t in_step, float *out, int64_t out_step, int64_t across, int64_t along) {
    if (across % 16 || along % 16) {
        turn4((const uint32_t *)(const void *)in, in_step, (uint32_t *)(void *)out, out_step, across, along);
        return;
    }
    for (int64_t i = 0; i < across; i += 16)
        for (int64_t k = 0; k < along; k += 16)
            turn_16(in + k * in_step + i, in_step, out + i * out_step + k, out_step);
}

static void turn_tile(const turn_job *j, const char *in, char *out, int64_t across, int64_t along) {
    const void *from = in;
    void *to = out;
    switch (j->bytes) {
    case 1: turn1(from, j->in_step, to, j->out_step, across, along); break;
    case 2: turn2(from, j->in_step, to, j->out_step, across, along); break;
    case 4: turn_floats(from, j->in_step, to, j->out_step, across, along); break;
    default: turn8(from, j->in_step, to, j->out_step, across, along);
    }
}

static void turn_strips(void *arg, int64_t begin, int64_t end, int worker) {
    (void)worker;
    const turn_job *j = arg;
    const int64_t bytes = (int64_t)j->bytes;
    for (int64_t s = begin; s < end; s++) {
        int64_t first = s % j->strips * TILE, across = j->across - first < TILE ? j->across - first : TILE;
        int64_t which = s / j->strips, from = first, to = first * j->out_step;
        for (int d = j->others.n_dims - 1; d >= 0; d--) {
            int64_t index = which % j->others.shape[d];
            which /= j->others.shape[d];
            from += index * j->others.stride[d];
            to += index * j->out_stride[d];
        }
        for (int64_t k = 0; k < j->along; k += TILE) {
            int64_t along = j->along - k < TILE ? j->along - k : TILE;
            turn_tile(j, j->in + (from + k * j->in_step) * bytes, j->out + (to + k) * bytes, across, along);
        }
    }
}

/* Whether the operand is to be turned: its last axis is long and not contiguous, and another long one is. */
static bool lay_turn(const ht_call *call, turn_job *j) {
    const ht_view *x = &call->in[0], *out = &call->out;
    int last = x->n_dims - 1, across = -1;
    while (last >= 0 && x->shape[last] == 1) last--;
    if (last < 1 || x->stride[last] == 1 || x->shape[last] < 8) return false;
    for (int d = 0; d < last; d++)
        if (x->stride[d] == 1 && x->shape[d] >= 8) across = d;
    if (across < 0) return false;
    *j = (turn_job){.in = x->data,
                    .out = out->data,
                    .bytes = ht_dtype_bytes(x->dtype),
                    .across = x->shape[across],
                    .along = x->shape[last],
                    .in_step = x->stride[last],
                    .out_step = out->stride[across],
                    .strips = (x->shape[across] + TILE - 1) / TILE};
    for (int d = 0; d < last; d++) {
        if (d == across) continue;
        j->others.shape[j->others.n_dims] = x->shape[d];
        j->others.stride[j->others.n_dims] = x->stride[d];
        j->out_stride[j->others.n_dims++] = out->stride[d];
    }
    return true;
}

static ht_status copy(const ht_call *call, ht_error *err) {
    turn_job j;
    if (ht_view_size(&call->out) == 0 || !lay_turn(call, &j)) return ht_plain_copy(call, err);
    ht_pool_run(call->pool, j.strips * ht_view_size(&j.others), 1, turn_strips, &j);
    return HT_OK;
}

void HT_ISA_NAME(ht_vector_turn)(const ht_view *x, const ht_view *out, ht_pool *pool) {
    ht_call call = {.n_in = 1, .in = x, .out = *out, .pool = pool};
    (void)copy(&call, NULL);
}

void HT_ISA_NAME(ht_vector_copy)(ht_kernel kernels[HT_OP_COUNT]) { kernels[HT_OP_COPY].run = copy; }
