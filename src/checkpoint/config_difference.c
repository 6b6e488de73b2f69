/* The first difference in what two configurations compute, for conversions: what a container could not express. */
#include "checkpoint/config.h"
#include "checkpoint/family.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* A setting: a number, described as "NAME is 4", or a yes or no, described by a text with %s for "a" or "no". */
typedef struct setting {
    enum { NUMBER, REAL, YES, NO } type; /* NO: described by its opposite */
    size_t offset;
    const char *text;
} setting;

#define NUMBER_OF(type, field, text)                                                                                   \
    { NUMBER, offsetof(type, field), text }
#define REAL_OF(field, text)                                                                                           \
    { REAL, offsetof(ht_config, field), text }
#define YES_OF(type, field, text)                                                                                      \
    { YES, offsetof(type, field), text }

static const setting model[] = {NUMBER_OF(ht_config, n_layers, "the number of layers"),
                                NUMBER_OF(ht_config, hidden, "the hidden size"),
                                NUMBER_OF(ht_config, n_heads, "the number of attention heads"),
                                NUMBER_OF(ht_config, vocab, "the size of the vocabulary"),
                                NUMBER_OF(ht_config, context, "the context length"),
                                YES_OF(ht_config, layer_norm, "norms have %s subtraction of the mean"),
                                REAL_OF(norm_eps, "the epsilon of the norms"),
                                REAL_OF(attention_scale, "the attention scale"),
                                REAL_OF(attention_softcap, "the cap of attention scores"),
                                REAL_OF(final_softcap, "the cap of the logits"),
                                REAL_OF(embedding_scale, "the factor on embeddings"),
                                REAL_OF(residual_scale, "the factor on residuals"),
                                REAL_OF(logit_scale, "the factor on the logits"),
                                REAL_OF(query_beta, "the temperature of queries"),
                                YES_OF(ht_config, q_bias, "queries have %s bias"),
                                YES_OF(ht_config, out_bias, "attention outputs have %s bias"),
                                YES_OF(ht_config, mlp_bias, "feed-forwards have %s bias"),
                                YES_OF(ht_config, norm_bias, "norms have %s bias"),
                                YES_OF(ht_config, head_bias, "the output head has %s bias"),
                                {NO, offsetof(ht_config, two_sided), "attention has %s causal mask"},
                                NUMBER_OF(ht_config, n_token_types, "the number of token types"),
                                YES_OF(ht_config, silu, "feed-forwards have %s SiLU instead of the usual activation"),
                                YES_OF(ht_config, parallel, "layers have %s feed-forward parallel to attention"),
                                NUMBER_OF(ht_config, altup.streams, "the number of streams"),
                                NUMBER_OF(ht_config, altup.active, "the active stream"),
                                {NO, offsetof(ht_config, altup.unscaled), "there is %s scale of the active stream"},
                                {NO, offsetof(ht_config, tied_head), "there is %s output head besides the embedding"},
                                NUMBER_OF(ht_config, layer_input, "the width of per-layer inputs"),
                                NUMBER_OF(ht_config, n_experts, "the number of experts"),
                                {.text = NULL}},
                     window[] = {NUMBER_OF(ht_config, window, "the sliding window"), {.text = NULL}},
                     period[] = {NUMBER_OF(ht_config, query_period, "the period of the temperature"),
                                 NUMBER_OF(ht_config, query_shift, "the shift of the temperature's positions"),
                                 {.text = NULL}},
                     inputs[] = {NUMBER_OF(ht_config, layer_input_vocab, "`vocab_size_per_layer_input`"),
                                 {.text = NULL}},
                     norms[] = {YES_OF(ht_config, head_norms, "queries and keys have %s norm"), {.text = NULL}},
                     experts[] = {NUMBER_OF(ht_config, experts_used, "the number of experts per token"),
                                  NUMBER_OF(ht_config, expert_feed_forward, "the feed-forward size of experts"),
                                  NUMBER_OF(ht_config, shared_feed_forward, "the size of the shared expert"),
                                  YES_OF(ht_config, routing.normalized,
                                         "router weights have %s normalization (`norm_topk_prob`)"),
                                  {NO, offsetof(ht_config, routing.unbiased), "the choice of experts has %s bias"},
                                  YES_OF(ht_config, routing.on_input, "inputs of experts have %s weight"),
                                  REAL_OF(routing.shared_scale, "the factor on all experts"),
                                  REAL_OF(routing.jitter, "`router_jitter_noise`"),
                                  {.text = NULL}},
                     groups[] = {NUMBER_OF(ht_config, routing.groups, "the number of groups of experts"),
                                 NUMBER_OF(ht_config, routing.groups_used, "the number of chosen groups of experts"),
                                 YES_OF(ht_config, routing.best_of_group,
                                        "groups of experts have %s choice by their best score alone"),
                                 {.text = NULL}},
                     recurrence[] = {NUMBER_OF(ht_config, recurrence.taps, "the width of the convolution"),
                                     NUMBER_OF(ht_config, recurrence.key_heads, "the number of the scan's key heads"),
                                     NUMBER_OF(ht_config, recurrence.heads, "the number of the scan's heads"),
                                     NUMBER_OF(ht_config, recurrence.key_dim, "the key size of the scan"),
                                     NUMBER_OF(ht_config, recurrence.value_dim, "the value size of the scan"),
                                     {.text = NULL}},
                     layers[] = {YES_OF(ht_layer_config, slides, "%s sliding window"),
                                 YES_OF(ht_layer_config, chunked, "%s chunk instead of a window"),
                                 {NO, offsetof(ht_layer_config, no_rope), "%s rotary embedding"},
                                 YES_OF(ht_layer_config, recurrent, "%s recurrence"),
                                 {NO, offsetof(ht_layer_config, no_attention), "%s attention"},
                                 YES_OF(ht_layer_config, has_experts, "%s mixture of experts"),
                                 NUMBER_OF(ht_layer_config, n_kv_heads, "the number of K/V heads"),
                                 NUMBER_OF(ht_layer_config, head_dim, "the head size"),
                                 NUMBER_OF(ht_layer_config, feed_forward, "the feed-forward size"),
                                 NUMBER_OF(ht_layer_config, kv_layer, "the layer of its keys and values"),
                                 YES_OF(ht_layer_config, is_sparse, "%s cutoff of gates"),
                                 {REAL, offsetof(ht_layer_config, cutoff), "the cutoff of gates"},
                                 {.text = NULL}},
                     values[] = {{NO, offsetof(ht_layer_config, v_is_k), "%s projection of values"}, {.text = NULL}};

/* Settings of Mamba-2 and Nemotron, and factors of Falcon-H1. */
static const setting ssm[] = {YES_OF(ht_config, recurrence.conv_bias, "the convolution has %s bias"),
                              YES_OF(ht_config, recurrence.normed, "the recurrence has %s norm of its output"),
                              {.text = NULL}},
                     gated_norm[] = {YES_OF(ht_config, recurrence.norm_before_gate,
                                            "the recurrence has %s norm before its gate"),
                                     {.text = NULL}},
                     latent[] = {NUMBER_OF(ht_config, expert_latent, "the latent size of experts"), {.text = NULL}},
                     multipliers[] = {REAL_OF(multipliers.attention_in, "`attention_in_multiplier`"),
                                      REAL_OF(multipliers.attention_out, "`attention_out_multiplier`"),
                                      REAL_OF(multipliers.key, "`key_multiplier`"),
                                      REAL_OF(multipliers.gate, "the first of `mlp_multipliers`"),
                                      REAL_OF(multipliers.down, "the second of `mlp_multipliers`"),
                                      REAL_OF(multipliers.ssm_in, "`ssm_in_multiplier`"),
                                      REAL_OF(multipliers.ssm_out, "`ssm_out_multiplier`"),
                                      REAL_OF(multipliers.ssm[HT_SSM_Z], "the first of `ssm_multipliers`"),
                                      REAL_OF(multipliers.ssm[HT_SSM_X], "the second of `ssm_multipliers`"),
                                      REAL_OF(multipliers.ssm[HT_SSM_B], "the third of `ssm_multipliers`"),
                                      REAL_OF(multipliers.ssm[HT_SSM_C], "the fourth of `ssm_multipliers`"),
                                      REAL_OF(multipliers.ssm[HT_SSM_DT], "the fifth of `ssm_multipliers`"),
                                      {.text = NULL}};

static double value_of(const setting *s, const void *of) {
    const char *at = (const char *)of + s->offset;
    return s->type == NUMBER ? (double)*(const int64_t *)(const void *)at
           : s->type == REAL ? (double)*(const float *)(const void *)at
                             : (double)*(const bool *)(const void *)at;
}

/* Writes the first setting that differs to `text`, after `where`. Files hold some factors as 1 / value. */
static bool differ(const setting *s, const void *a, const void *b, const char *where, char *text) {
    for (; s->text; s++) {
        const double x = value_of(s, a), y = value_of(s, b);
        if (fabs(x - y) <= (s->type == REAL ? 2e-7 * fabs(x) : 0)) continue;
        const char *word = (x != 0) == (s->type == YES) ? "a" : "no", *gap = strstr(s->text, "%s");
        if (gap)
            snprintf(text, HT_CONFIG_DIFFERENCE, "%s%s%.*s%s%s", where, *where ? " has " : "", (int)(gap - s->text),
                     s->text, word, gap + 2);
        else
            snprintf(text, HT_CONFIG_DIFFERENCE, "%s%s%s is %.9g", s->text, *where ? " of " : "", where, x);
        return true;
    }
    return false;
}

static bool layers_differ(const ht_config *a, const ht_config *b, char *text) {
    for (int64_t i = 0; i < a->n_layers; i++) {
        char where[32];
        snprintf(where, sizeof where, "layer %lld", (long long)i);
        if (differ(layers, &a->layer[i], &b->layer[i], where, text)) return true;
        if (a->layer[i].kv_layer == i && differ(values, &a->layer[i], &b->layer[i], where, text)) return true;
    }
    return false;
}

/* Whether layers with or without a window rotate differently. */
static bool rope_differs(const ht_config *a, const ht_config *b, bool slides, char *text) {
    const bool local = slides && a->has_local_rope;
    if (slides && a->has_local_rope != b->has_local_rope && b->rope.kind == HT_ROPE_PLAIN &&
        a->local_rope.theta == b->rope.theta)
        return false;
    if (ht_rope_is_same(local ? &a->local_rope : &a->rope, local && b->has_local_rope ? &b->local_rope : &b->rope,
                        (int32_t)ht_config_head_dim(a, slides)))
        return false;
    snprintf(text, HT_CONFIG_DIFFERENCE, "%s layers have this RoPE scaling", slides ? "sliding" : "full-attention");
    return true;
}

static bool ropes_differ(const ht_config *a, const ht_config *b, char *text) {
    bool rotates[2] = {false, false};
    for (int64_t i = 0; i < a->n_layers; i++)
        if (!a->layer[i].no_rope) rotates[a->layer[i].slides] = true;
    return (rotates[0] && rope_differs(a, b, false, text)) || (rotates[1] && rope_differs(a, b, true, text));
}

static bool experts_differ(const ht_config *a, const ht_config *b, char *text) {
    static const char *const scores[] = {[HT_ROUTER_SOFTMAX] = "a softmax over all experts",
                                         [HT_ROUTER_SIGMOID] = "the sigmoids of all logits",
                                         [HT_ROUTER_CHOSEN_SOFTMAX] = "a softmax over the chosen experts",
                                         [HT_ROUTER_CHOSEN_SIGMOID] = "the sigmoids of the chosen experts' logits",
                                         [HT_ROUTER_SPARSE_MIXER] = "those of a sparse mixer"};
    const ht_routing *r = &a->routing;
    if (a->n_experts == 0) return false;
    if (differ(experts, a, b, "", text) || ((r->groups > 1 || b->routing.groups > 1) && differ(groups, a, b, "", text)))
        return true;
    const float scale = r->scale != 0 ? r->scale : 1, other = b->routing.scale != 0 ? b->routing.scale : 1;
    if (scale == other && r->scores == b->routing.scores) return false;
    snprintf(text, HT_CONFIG_DIFFERENCE, "router weights are %s", scale == other ? scores[r->scores] : "scaled");
    return true;
}

const char *ht_config_difference(const ht_config *a, const ht_config *b, char text[HT_CONFIG_DIFFERENCE]) {
    bool slides = false;
    *text = '\0';
    if (differ(model, a, b, "", text) || layers_differ(a, b, text) || experts_differ(a, b, text)) return text;
    for (int64_t i = 0; i < a->n_layers; i++) slides = slides || a->layer[i].slides;
    if ((slides && differ(window, a, b, "", text)) || (a->query_beta != 0 && differ(period, a, b, "", text)) ||
        (a->recurrence.kind && differ(recurrence, a, b, "", text)) ||
        (a->layer_input && differ(inputs, a, b, "", text)) ||
        (ht_config_field_of(a->family, offsetof(ht_config, head_norms)) && differ(norms, a, b, "", text)))
        return text;
    if (a->recurrence.kind == HT_RECURRENCE_SSM &&
        (differ(ssm, a, b, "", text) || (a->recurrence.normed && differ(gated_norm, a, b, "", text))))
        return text;
    if ((a->n_experts && differ(latent, a, b, "", text)) || differ(multipliers, a, b, "", text)) return text;
    ropes_differ(a, b, text);
    return text;
}
