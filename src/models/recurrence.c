/* Recurrences of layers that have them instead of attention, or in addition to it. */
#include "checkpoint/kv_size.h"
#include "models/decoder.h"

ht_array *ht_decoder_convolved(ht_ctx *c, const ht_config *cfg, const ht_recurrence_weights *w, int index,
                               ht_array *x) {
    const int64_t channels = ht_conv_channels(cfg), shape[] = {channels, cfg->recurrence.taps};
    return ht_short_conv(c, x, ht_reshape(c->s, w->conv, shape, 2), w->conv_bias ? w->conv_bias : HT_NONE,
                         (int)ht_cache_layer_of(cfg, index, true), 0, channels);
}

/* LFM2: the convolution of a gated input, with a gate after it. */
static ht_array *gated_convolution(ht_ctx *c, const ht_config *cfg, const ht_recurrence_weights *w, int index,
                                   ht_array *x) {
    const int64_t n = cfg->hidden;
    ht_array *all = ht_linear(c, x, &w->in); /* gate before, gate after, input: [T, 3 hidden] */
    ht_array *y = ht_multiply(c->s, ht_decoder_columns(c, all, 0, n), ht_decoder_columns(c, all, 2 * n, n));
    y = ht_decoder_convolved(c, cfg, w, index, y);
    return ht_linear(c, ht_multiply(c->s, ht_decoder_columns(c, all, n, n), y), &w->out);
}

ht_array *ht_decoder_recurrence(ht_ctx *c, const ht_decoder_weights *m, const ht_decoder_layer *l, int index,
                                ht_array *x) {
    const ht_config *cfg = m->config;
    switch (cfg->recurrence.kind) {
    case HT_RECURRENCE_DELTA: return ht_gated_delta(c, cfg, &l->recurrence, index, x);
    case HT_RECURRENCE_KDA: return ht_kimi_delta(c, cfg, l, index, x);
    case HT_RECURRENCE_SSM: return ht_mamba2(c, cfg, &l->recurrence, index, x);
    default: return gated_convolution(c, cfg, &l->recurrence, index, x);
    }
}
