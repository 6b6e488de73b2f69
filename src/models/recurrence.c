/* Recurrences of layers that have them instead of attention, or beside it. */
#include "checkpoint/kv_size.h"
#include "models/decoder.h"

/* Columns [first, first + n) of x [T, *]. */
static ht_array *columns(ht_ctx *c, ht_array *x, int64_t first, int64_t n) {
    return ht_slice(c->s, x, (int64_t[]){0, first}, (int64_t[]){HT_OPEN, first + n}, NULL);
}

/* The short convolution of a layer's channels, all at once: x [T, channels]. */
static ht_array *convolved(ht_ctx *c, const ht_config *cfg, const ht_recurrence_weights *w, int index, ht_array *x) {
    const int64_t channels = ht_conv_channels(cfg), shape[] = {channels, cfg->recurrence.taps};
    return ht_short_conv(c, x, ht_reshape(c->s, w->conv, shape, 2), w->conv_bias ? w->conv_bias : HT_NONE,
                         (int)ht_cache_layer_of(cfg, index, true), 0, channels);
}

/* LFM2: the convolution of a gated input, with a gate after it. */
static ht_array *gated_convolution(ht_ctx *c, const ht_config *cfg, const ht_recurrence_weights *w, int index,
                                   ht_array *x) {
    const int64_t n = cfg->hidden;
    ht_array *all = ht_linear(c, x, &w->in); /* gate before, gate after, input: [T, 3 hidden] */
    ht_array *y = ht_multiply(c->s, columns(c, all, 0, n), columns(c, all, 2 * n, n));
    y = convolved(c, cfg, w, index, y);
    return ht_linear(c, ht_multiply(c->s, columns(c, all, n, n), y), &w->out);
}

ht_array *ht_decoder_recurrence(ht_ctx *c, const ht_decoder_weights *m, const ht_decoder_layer *l, int index,
                                ht_array *x) {
    return gated_convolution(c, m->config, &l->recurrence, index, x);
}
