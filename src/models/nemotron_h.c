/* Nemotron-H and Nemotron 3: layers of one block each, after one norm: Mamba-2, attention without RoPE, a feed-forward
 * of relu(x)^2 without a gate, or experts of that kind, in Nemotron 3 Super between two projections. */
#include "checkpoint/convert_metadata.h"
#include "models/mamba.h"
#include "models/registry.h"

#include <string.h>

static bool mixes(const ht_config *c, int64_t layer) {
    return ht_decoder_has_attention(c, layer) || ht_decoder_is_recurrent(c, layer);
}
static bool has_latent_experts(const ht_config *c, int64_t layer) {
    return ht_decoder_has_experts(c, layer) && c->expert_latent;
}

#define AT(field) offsetof(ht_decoder_layer, field)
static const ht_tensor_spec mixer_specs[] = {
    {AT(attention_norm), "norm", "attn_norm", .rows = HT_EXTENT_HIDDEN, .has = mixes},
    {AT(q), "mixer.q_proj", "attn_q", HT_EXTENT_Q, HT_EXTENT_HIDDEN, .bias = HT_BIAS_Q, .heads = HT_HEADS_Q,
     .has = ht_decoder_has_attention},
    {AT(k), "mixer.k_proj", "attn_k", HT_EXTENT_KV, HT_EXTENT_HIDDEN, .bias = HT_BIAS_Q, .heads = HT_HEADS_KV,
     .has = ht_decoder_has_attention},
    {AT(v), "mixer.v_proj", "attn_v", HT_EXTENT_KV, HT_EXTENT_HIDDEN, .bias = HT_BIAS_Q,
     .has = ht_decoder_has_attention},
    {AT(out), "mixer.o_proj", "attn_output", HT_EXTENT_HIDDEN, HT_EXTENT_Q, .bias = HT_BIAS_OUT,
     .has = ht_decoder_has_attention},
    HT_MAMBA_SPECS("mixer"),
    {.gguf = NULL}};

static const ht_tensor_spec mlp_specs[] = {
    {AT(mlp_norm), "norm", "attn_norm", .rows = HT_EXTENT_HIDDEN, .has = ht_decoder_has_feed_forward},
    {AT(up), "mixer.up_proj", "ffn_up", HT_EXTENT_FEED_FORWARD, HT_EXTENT_HIDDEN, .bias = HT_BIAS_MLP,
     .has = ht_decoder_is_dense},
    {AT(down), "mixer.down_proj", "ffn_down", HT_EXTENT_HIDDEN, HT_EXTENT_FEED_FORWARD, .bias = HT_BIAS_MLP,
     .has = ht_decoder_is_dense},
    {.gguf = NULL}};

static const ht_tensor_spec expert_specs[] = {
    {AT(router), "mixer.gate", "ffn_gate_inp", HT_EXTENT_EXPERTS, HT_EXTENT_HIDDEN, .has = ht_decoder_has_experts},
    {AT(router_bias), "mixer.gate.e_score_correction_bias", "exp_probs_b.bias", .rows = HT_EXTENT_EXPERTS,
     .has = ht_decoder_has_experts, .bare = true},
    {AT(latent_in), "mixer.fc1_latent_proj", "ffn_latent_down", HT_EXTENT_EXPERT_LATENT, HT_EXTENT_HIDDEN,
     .has = has_latent_experts},
    {AT(latent_out), "mixer.fc2_latent_proj", "ffn_latent_up", HT_EXTENT_HIDDEN, HT_EXTENT_EXPERT_LATENT,
     .has = has_latent_experts},
    {AT(expert_up), "experts.up_proj", "ffn_up_exps", HT_EXTENT_EXPERT_FEED_FORWARD, HT_EXTENT_EXPERT_INPUT,
     .has = ht_decoder_has_experts, .expert = HT_EXPERT_UP},
    {AT(expert_down), "experts.down_proj", "ffn_down_exps", HT_EXTENT_EXPERT_INPUT, HT_EXTENT_EXPERT_FEED_FORWARD,
     .has = ht_decoder_has_experts, .expert = HT_EXPERT_DOWN},
    {AT(shared_up), "mixer.shared_experts.up_proj", "ffn_up_shexp", HT_EXTENT_SHARED_FEED_FORWARD, HT_EXTENT_HIDDEN,
     .has = ht_decoder_has_shared_expert},
    {AT(shared_down), "mixer.shared_experts.down_proj", "ffn_down_shexp", HT_EXTENT_HIDDEN,
     HT_EXTENT_SHARED_FEED_FORWARD, .has = ht_decoder_has_shared_expert},
    {.gguf = NULL}};
#undef AT

/* ---- configuration ---- */

static const ht_config_field fields[] = {
    HT_MAMBA_FIELDS("conv_kernel", "ssm_state_size", "n_groups", "mamba_num_heads", "use_conv_bias", 128, 8, 128),
    {HT_FIELD(I64, expert_latent, "moe_latent_size", "moe_latent_size", 0)},
    {.json = NULL}};

/* The blocks of layers: their letter, and their names, of which the first is transformers' own. */
static const struct {
    char letter;
    const char *name[3];
} blocks[] = {{'M', {"linear_attention", "mamba", "conv"}},
              {'*', {"full_attention", "attention"}},
              {'-', {"mlp"}},
              {'E', {"moe"}}};
enum { N_BLOCKS = sizeof blocks / sizeof *blocks };

static char letter_of(const char *name) {
    for (int i = 0; i < N_BLOCKS; i++)
        for (int k = 0; k < 3 && blocks[i].name[k]; k++)
            if (!strcmp(name, blocks[i].name[k])) return blocks[i].letter;
    return *name && !name[1] ? *name : '?'; /* mlx-lm's list of letters */
}

static char letter_of_layer(const ht_layer_config *l) {
    return l->recurrent ? 'M' : !l->no_attention ? '*' : l->has_experts ? 'E' : '-';
}

/* Makes a layer the block with a letter; false for an unknown one. */
static bool set_block(ht_config *c, int64_t layer, char letter) {
    ht_layer_config *l = &c->layer[layer];
    l->no_rope = true;
    l->has_experts = letter == 'E';
    if (letter != '-') l->feed_forward = 0;
    if (letter == 'M') ht_config_make_recurrent(c, layer);
    if (letter == '-' || letter == 'E') ht_config_remove_attention(c, layer);
    return strchr("M*-E", letter) != NULL;
}

/* A model without layers of experts has none, whatever the defaults are. */
static void drop_unused_experts(ht_config *c) {
    bool any = false;
    for (int64_t i = 0; i < c->n_layers; i++) any = any || c->layer[i].has_experts;
    if (any) return;
    c->n_experts = c->experts_used = c->shared_feed_forward = c->expert_latent = 0;
    c->expert_feed_forward = c->feed_forward;
}

static void read_json_layers(ht_config *c, ht_json_reader *r, const ht_json *object) {
    const char *keys[] = {"layers_block_type", "layer_types", "hybrid_override_pattern"}, *pattern = NULL;
    const ht_json *list = NULL;
    int k = 0;
    while (k < 2 && !ht_json_object_get(object, keys[k])) k++;
    if (k < 2 || !ht_json_is_string(ht_json_object_get(object, keys[k])))
        list = ht_json_array(r, object, keys[k]);
    else
        ht_json_str(r, object, keys[k], &pattern);
    const size_t n = pattern ? strlen(pattern) : ht_json_array_size(list);
    if ((int64_t)n != c->n_layers)
        ht_json_fail(r, HT_ERR_FORMAT, "`%s` lists %zu layers, `num_hidden_layers` says %lld", keys[k], n,
                     (long long)c->n_layers);
    for (int64_t i = 0; i < c->n_layers && !r->status; i++) {
        const char *name = pattern ? &pattern[i] : ht_json_string_value(ht_json_array_get(list, (size_t)i));
        const char letter = pattern ? *name : letter_of(name ? name : "");
        c->layer[i].feed_forward = c->feed_forward;
        if (!set_block(c, i, letter))
            ht_json_fail(r, HT_ERR_UNSUPPORTED,
                         "layer %lld is of type `%.40s`; Mamba-2 (M), attention (*), feed-forwards (-) and experts (E) "
                         "are supported",
                         (long long)i,
                         pattern ? (char[]){letter, '\0'}
                         : name  ? name
                                 : "?");
    }
    drop_unused_experts(c);
    if (c->n_experts && c->mlp_bias)
        ht_json_fail(r, HT_ERR_UNSUPPORTED, "`mlp_bias` is true; experts without biases are supported");
}

static void read_json(ht_config *c, ht_json_reader *r, const ht_json *object) {
    int64_t n_shared = 1, width = 7688;
    ht_json_i64(r, object, "n_shared_experts", &n_shared);
    ht_json_i64(r, object, "moe_shared_expert_intermediate_size", &width);
    c->shared_feed_forward = n_shared ? width : 0;
    ht_mamba_read_json(c, r, object, "mamba_head_dim", 64);
}

static void write_json(const ht_config *c, ht_document *d) {
    const ht_recurrence_spec *s = &c->recurrence;
    ht_json *types = ht_json_new_array();
    for (int64_t i = 0; i < c->n_layers; i++)
        for (int k = 0; k < N_BLOCKS; k++)
            if (blocks[k].letter == letter_of_layer(&c->layer[i]))
                ht_list_append(&types, ht_json_string(blocks[k].name[0]));
    ht_document_set(d, "layers_block_type", types);
    ht_document_set(d, "intermediate_size", ht_json_integer(c->feed_forward));
    ht_document_set(d, "n_shared_experts", ht_json_integer(c->shared_feed_forward > 0));
    ht_document_set(d, "moe_shared_expert_intermediate_size", ht_json_integer(c->shared_feed_forward));
    ht_document_set(d, "mamba_head_dim", ht_json_integer(s->value_dim));
    ht_document_set(d, "expand", ht_json_integer((s->heads * s->value_dim + c->hidden - 1) / c->hidden));
    ht_document_set(d, "mamba_proj_bias", ht_json_boolean(false));
    ht_document_set(d, "use_bias", ht_json_boolean(false));
}

/* Goes by the tensors: some converted files have no sizes of feed-forwards, others a number of experts without any. */
static void read_gguf(ht_config *c, ht_meta *m) {
    c->rope.dims = 0; /* of unused rotations */
    for (int64_t i = 0; i < c->n_layers; i++) {
        const ht_gguf_tensor *up = ht_meta_tensor(m, i, "ffn_up.weight");
        ht_layer_config *l = &c->layer[i];
        l->recurrent = l->no_attention = false;
        if (up && l->feed_forward == 0 && up->n_dims == 2) l->feed_forward = up->dims[1];
        if (up && c->feed_forward == 0) c->feed_forward = l->feed_forward;
        set_block(c, i, up ? '-' : l->has_experts ? 'E' : ht_meta_tensor(m, i, "ssm_in.weight") ? 'M' : '*');
    }
    drop_unused_experts(c);
    ht_mamba_read_gguf(c, m);
}

static void write_gguf(const ht_config *c, ht_document *d) {
    /* The key that its readers ask for; the norms are RMS norms all the same. */
    ht_gguf_put(d, c, "attention.layer_norm_epsilon", ht_gguf_f32((double)c->norm_eps));
    ht_gguf_put(d, c, "rope.scaling.finetuned", ht_gguf_bool(false));
    if (c->n_experts) ht_gguf_put(d, c, "expert_shared_count", ht_gguf_u32(c->shared_feed_forward > 0));
    ht_mamba_write_gguf(c, d);
}

const ht_family ht_family_nemotron_h = {.architecture = "nemotron_h",
                                        .gguf_moe_architecture = "nemotron_h_moe",
                                        .gguf_aliases = {"nemotron_h_moe"},
                                        .model_types = {"nemotron_h"},
                                        .class_name = "NemotronHForCausalLM",
                                        .defaults = {.n_layers = 52,
                                                     .hidden = 4096,
                                                     .n_heads = 32,
                                                     .n_kv_heads = 8,
                                                     .head_dim = 128,
                                                     .feed_forward = 21504,
                                                     .vocab = 131072,
                                                     .context = 4096,
                                                     .norm_eps = 1e-5,
                                                     .norm_eps_field = "layer_norm_epsilon",
                                                     .rope_theta = 10000,
                                                     .activation_field = "mlp_hidden_act",
                                                     .activation = "relu2",
                                                     .n_experts = 8,
                                                     .experts_used = 2,
                                                     .expert_feed_forward = 7688,
                                                     .n_shared = 1,
                                                     .experts_field = "n_routed_experts",
                                                     .routing = {HT_ROUTER_SIGMOID, .normalized = true, .scale = 1}},
                                        .recurrence = HT_RECURRENCE_SSM,
                                        .fields = fields,
                                        .read_json = read_json,
                                        .read_json_layers = read_json_layers,
                                        .write_json = write_json,
                                        .read_gguf = read_gguf,
                                        .write_gguf = write_gguf,
                                        .activate = ht_decoder_relu_squared,
                                        .one_block = true,
                                        .gguf_interleaves = true,
                                        .experts = HT_EXPERTS_MIXER,
                                        .prefix = "backbone.",
                                        .embedding_name = "embeddings",
                                        .final_norm_name = "norm_f",
                                        .layer = {mixer_specs, mlp_specs, expert_specs},
                                        HT_DECODER_RUNS};
