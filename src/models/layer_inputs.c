#include "models/layer_inputs.h"

#include "checkpoint/kv_size.h"

#include <math.h>

bool ht_has_layer_inputs(const ht_config *c, int64_t layer) {
    (void)layer;
    return c->layer_input > 0;
}

#define AT(field) offsetof(ht_input_layer, field)
const ht_tensor_spec ht_layer_input_specs[] = {{AT(input_gate), "per_layer_input_gate", "inp_gate",
                                                HT_EXTENT_LAYER_INPUT, HT_EXTENT_HIDDEN, .has = ht_has_layer_inputs},
                                               {AT(input_projection), "per_layer_projection", "proj", HT_EXTENT_HIDDEN,
                                                HT_EXTENT_LAYER_INPUT, .has = ht_has_layer_inputs},
                                               {AT(after_input_norm), "post_per_layer_input_norm", "post_norm",
                                                .rows = HT_EXTENT_HIDDEN, .has = ht_has_layer_inputs},
                                               {.gguf = NULL}};
#undef AT

ht_array *ht_input_cut(ht_ctx *c, ht_array *x) { return ht_take(c->s, x, ht_batch_out_rows(c), 0); }

/* Per-layer inputs [T, n_layers, layer_input]: the token's second embedding plus a normed projection of its embedding
 * h. Tokens that are not in the smaller second table have that of token 0. */
static ht_array *layer_inputs(ht_ctx *c, const ht_decoder_weights *m, ht_array *h) {
    const ht_config *cfg = m->config;
    const ht_input_tables *a = m->around;
    const int64_t shape[] = {-1, cfg->n_layers, cfg->layer_input};
    ht_array *ids = ht_batch_ids(c);
    if (cfg->layer_input_vocab < cfg->vocab) {
        ht_array *n = ht_full(c->s, (double)cfg->layer_input_vocab, HT_I32, NULL, 0);
        ids = ht_where(c->s, ht_less(c->s, ids, n), ids, ht_full(c->s, 0, HT_I32, NULL, 0));
    }
    ht_array *by_token = ht_embed(c, ids, &a->inputs, (float)sqrt((double)cfg->layer_input));
    ht_array *projected =
        ht_scale(c->s, ht_linear(c, h, &a->inputs_projection), (float)(1 / sqrt((double)cfg->hidden)));
    projected = ht_decoder_norm(c, cfg, ht_reshape(c->s, projected, shape, 3), &a->inputs_norm);
    return ht_scale(c->s, ht_add(c->s, projected, ht_reshape(c->s, by_token, shape, 3)), (float)sqrt(0.5));
}

/* Per-layer input of layer i: [T, layer_input]. */
static ht_array *slice_input(ht_ctx *c, const ht_config *cfg, ht_array *inputs, int64_t i) {
    if (!inputs) return NULL;
    const int64_t start[] = {0, i, 0}, stop[] = {ht_array_dim(inputs, 0), i + 1, cfg->layer_input};
    return ht_squeeze(c->s, ht_slice(c->s, inputs, start, stop, NULL), 1);
}

ht_array *ht_layer_input_term(ht_ctx *c, const ht_decoder_weights *m, const ht_input_layer *l, ht_array *h,
                              ht_array *input) {
    ht_array *gate = m->config->family->activate(c->s, ht_linear(c, h, &l->input_gate)); /* [T, layer_input] */
    ht_array *y = ht_linear(c, ht_multiply(c->s, gate, input), &l->input_projection);
    return ht_decoder_norm(c, m->config, y, &l->after_input_norm);
}

ht_array *ht_input_layers(ht_ctx *c, const ht_decoder_weights *m, ht_layer_fn *layer, ht_array *h,
                          ht_array *embeddings) {
    const ht_config *cfg = m->config;
    ht_array *pos = ht_batch_positions(c), *inputs = cfg->layer_input ? layer_inputs(c, m, embeddings) : NULL;
    for (int i = 0; i < cfg->n_layers; i++) {
        if (i == ht_unshared_layers(cfg)) {
            pos = ht_input_cut(c, pos);
            if (inputs) inputs = ht_input_cut(c, inputs); /* [n_out, n_layers, layer_input] */
        }
        ht_array *in[] = {h, pos, slice_input(c, cfg, inputs, i)};
        h = ht_layer(c, layer, m, i, cfg->layer[i].kv_layer, in, cfg->layer_input ? 3 : 2);
    }
    return h;
}
