/* Falcon-H1: attention and Mamba-2 side by side after one norm, and factors on the products of most matrices. */
#include "checkpoint/convert_metadata.h"
#include "checkpoint/sampling.h"
#include "models/mamba.h"
#include "models/registry.h"

#define AT(field) offsetof(ht_decoder_layer, field)
static const ht_tensor_spec mamba_specs[] = {HT_MAMBA_SPECS("mamba"), {.gguf = NULL}};

static const ht_tensor_spec mlp_specs[] = {
    {AT(mlp_norm), "pre_ff_layernorm.weight", "ffn_norm", .rows = HT_EXTENT_HIDDEN, .bare = true},
    {AT(gate), "feed_forward.gate_proj", "ffn_gate", HT_EXTENT_FEED_FORWARD, HT_EXTENT_HIDDEN,
     .has = ht_decoder_is_dense},
    {AT(up), "feed_forward.up_proj", "ffn_up", HT_EXTENT_FEED_FORWARD, HT_EXTENT_HIDDEN, .has = ht_decoder_is_dense},
    {AT(down), "feed_forward.down_proj", "ffn_down", HT_EXTENT_HIDDEN, HT_EXTENT_FEED_FORWARD,
     .has = ht_decoder_is_dense},
    {.gguf = NULL}};

static float multiplier(const ht_config *c, const ht_multipliers *m, size_t offset, int64_t row) {
    if (offset == AT(q) || offset == AT(v)) return m->attention_in;
    if (offset == AT(k)) return m->attention_in * m->key;
    if (offset == AT(out)) return m->attention_out;
    if (offset == AT(gate)) return m->gate;
    if (offset == AT(down)) return m->down;
    if (offset == AT(recurrence.out)) return m->ssm_out;
    if (offset != AT(recurrence.in)) return 1;
    int segment = HT_SSM_Z;
    while (segment + 1 < HT_SSM_SEGMENTS && row >= ht_ssm_rows_before(c, segment + 1)) segment++;
    return m->ssm_in * m->ssm[segment];
}
#undef AT

/* ---- configuration ---- */

static const ht_config_field fields[] = {
    HT_MAMBA_JAMBA_FIELDS(256),
    {HT_FIELD(BOOL, recurrence.normed, "mamba_rms_norm", NULL, 0)},
    {HT_FIELD(BOOL, recurrence.norm_before_gate, "mamba_norm_before_gate", NULL, 1)},
    {HT_FIELD(F32, embedding_scale, "embedding_multiplier", NULL, 1)},
    {HT_FIELD(F32, logit_scale, "lm_head_multiplier", NULL, 1)},
    {HT_FIELD(F32, multipliers.attention_in, "attention_in_multiplier", NULL, 1)},
    {HT_FIELD(F32, multipliers.attention_out, "attention_out_multiplier", NULL, 1)},
    {HT_FIELD(F32, multipliers.key, "key_multiplier", NULL, 1)},
    {HT_FIELD(F32, multipliers.ssm_in, "ssm_in_multiplier", NULL, 1)},
    {HT_FIELD(F32, multipliers.ssm_out, "ssm_out_multiplier", NULL, 1)},
    {.json = NULL}};

/* Reads a list of n multipliers; null: all are 1. */
static void read_multipliers(ht_json_reader *r, const ht_json *object, const char *key, int n, float *const *out) {
    const ht_json *list = ht_json_array(r, object, key);
    if (!list) return;
    for (int i = 0; i < n; i++) {
        const ht_json *value = ht_json_array_get(list, (size_t)i);
        *out[i] = (float)ht_json_number_value(value);
        if (ht_json_array_size(list) != (size_t)n || !ht_json_is_number(value))
            ht_json_fail(r, HT_ERR_FORMAT, "`%s` is no list of %d numbers", key, n);
    }
}

/* All layers have both; one for which a file says otherwise keeps no K/V heads, which is refused. */
static void make_parallel(ht_config *c) {
    for (int64_t i = 0; i < c->n_layers; i++) {
        c->layer[i].recurrent = true;
        c->layer[i].no_attention = false;
    }
}

static void read_json(ht_config *c, ht_json_reader *r, const ht_json *object) {
    ht_multipliers *m = &c->multipliers;
    int64_t width = 1024, expand = 2;
    const bool is_null = ht_json_is_null(ht_json_object_get(object, "mamba_d_ssm"));
    ht_json_i64(r, object, "mamba_expand", &expand);
    ht_json_i64(r, object, "mamba_d_ssm", &width);
    ht_mamba_read_json(c, r, object, "mamba_d_head",
                       is_null                   ? ht_mamba_head_size(c, expand)
                       : c->recurrence.heads > 0 ? width / c->recurrence.heads
                                                 : 0);
    read_multipliers(r, object, "mlp_multipliers", 2, (float *[]){&m->gate, &m->down});
    read_multipliers(r, object, "ssm_multipliers", HT_SSM_SEGMENTS,
                     (float *[]){&m->ssm[0], &m->ssm[1], &m->ssm[2], &m->ssm[3], &m->ssm[4]});
    if (c->q_bias || c->mlp_bias)
        ht_json_fail(r, HT_ERR_UNSUPPORTED, "`attention_bias` or `mlp_bias` is true; %s models have no biases",
                     c->family->architecture);
}

static void read_json_layers(ht_config *c, ht_json_reader *r, const ht_json *object) {
    (void)r, (void)object;
    make_parallel(c);
}

static void write_json(const ht_config *c, ht_document *d) {
    const ht_multipliers *m = &c->multipliers;
    ht_json *ssm = ht_json_new_array();
    for (int i = 0; i < HT_SSM_SEGMENTS; i++) ht_list_append(&ssm, ht_json_real(ht_short_decimal((double)m->ssm[i])));
    ht_document_set(d, "ssm_multipliers", ssm);
    ht_document_set(d, "mlp_multipliers",
                    ht_json_pack("[f, f]", ht_short_decimal((double)m->gate), ht_short_decimal((double)m->down)));
    ht_document_set(d, "mamba_d_ssm", ht_json_integer(c->recurrence.heads * c->recurrence.value_dim));
    ht_document_set(d, "mamba_d_head", ht_json_integer(c->recurrence.value_dim));
    ht_document_set(d, "mamba_proj_bias", ht_json_boolean(false));
    ht_document_set(d, "projectors_bias", ht_json_boolean(false));
}

/* GGUF files have no keys of multipliers, whose products are in the weights, and norms after the gate. */
static void read_gguf(ht_config *c, ht_meta *m) {
    make_parallel(c);
    ht_mamba_read_gguf(c, m);
}

const ht_family ht_family_falcon_h1 = {
    .architecture = "falcon-h1",
    .model_types = {"falcon_h1"},
    .class_name = "FalconH1ForCausalLM",
    .defaults = {.n_layers = 32,
                 .hidden = 4096,
                 .n_heads = 32,
                 .n_kv_heads = 8,
                 .feed_forward = 14336,
                 .vocab = 128000,
                 .context = 8192,
                 .norm_eps = 1e-5,
                 .rope_theta = 10000,
                 HT_LLAMA_LIKE("silu")},
    .recurrence = HT_RECURRENCE_SSM,
    .fields = fields,
    .read_json = read_json,
    .read_json_layers = read_json_layers,
    .write_json = write_json,
    .read_gguf = read_gguf,
    .write_gguf = ht_mamba_write_gguf,
    .multiplier = multiplier,
    .activate = ht_silu,
    .final_norm_name = "final_layernorm",
    .layer = {ht_decoder_norm_specs, ht_decoder_attention_specs, mamba_specs, mlp_specs},
    HT_DECODER_RUNS};
