/* SHORT_CONV, with the bits of the plain kernel: channels are in lanes, and a block of them goes through the rows of a
 * sequence with its weights transposed to [taps][channels]. */
#include "cpu/call.h"
#include "cpu/strided_iterator.h"
#include "cpu/vector/lanes.h"
#include "cpu/vector/vector.h"
#include "device/params.h"
#include "device/state.h"

enum { CHANNELS = 256 /* of a block: a row's part is a few cache lines in one page */ };

typedef struct channel_block {
    const ht_call *call;
    int64_t sequence, first, n; /* channels [first, first + n) */
    float *w, *bias;            /* [taps][CHANNELS], [CHANNELS] */
} channel_block;

static int64_t thread_floats(const ht_call *call) { return (call->in[1].shape[1] + 1) * CHANNELS; }

static void load_weights(const channel_block *b) {
    const ht_view *w = &b->call->in[1], *bias = &b->call->in[2];
    for (int64_t c = 0; c < b->n; c += 16) {
        const int n = lanes_count(b->n - c);
        v16f start = v16f_zero();
        if (!ht_view_absent(bias))
            start = lanes_load(HT_F32, bias->data, (b->first + c) * bias->stride[0], bias->stride[0], n);
        v16f_store(b->bias + c, start);
        for (int64_t j = 0; j < w->shape[1]; j++)
            v16f_store(b->w + j * CHANNELS + c,
                       lanes_load(HT_F32, w->data, (b->first + c) * w->stride[0] + j * w->stride[1], w->stride[0], n));
    }
}

/* n inputs from channel c of the block on, of row t of the sequence; rows before it are in the state. */
HT_INLINE v16f load_input(const channel_block *b, const float *before, int64_t begin, int64_t t, int64_t c, int n) {
    const ht_short_conv_params *p = b->call->params;
    const ht_view *x = &b->call->in[0];
    if (t < 0)
        return v16f_load_n(before + (b->call->in[1].shape[1] - 1 + t) * p->channels + p->first + b->first + c, n);
    return lanes_load(HT_F32, x->data, (begin + t) * x->stride[0] + (b->first + c) * x->stride[1], x->stride[1], n);
}

static void convolve_block(const channel_block *b) {
    const ht_short_conv_params *p = b->call->params;
    const ht_batch *batch = b->call->step->batch;
    const ht_kv_layer *l = ht_state_of(b->call, p->layer, b->sequence);
    const int64_t taps = b->call->in[1].shape[1], width = b->call->out.shape[1];
    const int64_t begin = batch->seq_start[b->sequence], rows = batch->seq_start[b->sequence + 1] - begin;
    const float *before = ht_state_before(l);
    float *after = ht_state_after(l) + p->first + b->first,
          *out = (float *)b->call->out.data + begin * width + b->first;
    for (int64_t t = 0; t < rows; t++, out += width)
        for (int64_t c = 0; c < b->n; c += 16) {
            const int n = lanes_count(b->n - c);
            v16f y = v16f_load(b->bias + c);
            for (int64_t j = 0; j < taps; j++)
                y = v16f_fma(v16f_load(b->w + j * CHANNELS + c), load_input(b, before, begin, t - taps + 1 + j, c, n),
                             y);
            v16f_store_n(out + c, y, n);
        }
    for (int64_t j = 0; j < taps - 1; j++)
        for (int64_t c = 0; c < b->n; c += 16) {
            const int n = lanes_count(b->n - c);
            v16f_store_n(after + j * p->channels + c, load_input(b, before, begin, rows - taps + 1 + j, c, n), n);
        }
}

static int64_t blocks_of(const ht_call *call) { return (call->out.shape[1] + CHANNELS - 1) / CHANNELS; }

static void convolve_blocks(void *arg, int64_t begin, int64_t end, int worker) {
    const ht_call *call = arg;
    const int64_t blocks = blocks_of(call), n = call->out.shape[1];
    float *w = (float *)call->scratch + worker * thread_floats(call);
    for (int64_t item = begin; item < end; item++) {
        channel_block b = {.call = call,
                           .sequence = item / blocks,
                           .first = item % blocks * CHANNELS,
                           .w = w,
                           .bias = w + call->in[1].shape[1] * CHANNELS};
        b.n = n - b.first < CHANNELS ? n - b.first : CHANNELS;
        load_weights(&b);
        convolve_block(&b);
    }
}

static size_t short_conv_scratch(const ht_call *call) {
    return (size_t)ht_pool_threads(ht_call_pool(call)) * (size_t)thread_floats(call) * sizeof(float);
}

static ht_status short_conv(const ht_call *call, ht_error *err) {
    const ht_short_conv_params *p = call->params;
    const int64_t taps = call->in[1].shape[1], rows = call->out.shape[0], n_seq = call->step->batch->n_seq;
    const ht_status status = ht_state_check(call, p->layer, (taps - 1) * p->channels, err);
    if (!status)
        ht_pool_run(ht_call_pool(call), n_seq * blocks_of(call),
                    ht_row_grain(HT_GRAIN_MATH, (rows / n_seq + 1) * taps * CHANNELS), convolve_blocks,
                    (void *)(uintptr_t)call);
    return status;
}

void HT_ISA_NAME(ht_vector_short_conv)(ht_kernel kernels[HT_OP_COUNT]) {
    kernels[HT_OP_SHORT_CONV] = (ht_kernel){.run = short_conv, .scratch = short_conv_scratch};
}
