/* Weights and configuration of Mamba-2 layers, which several families have. */
#ifndef HT_MODELS_MAMBA_H
#define HT_MODELS_MAMBA_H

#include "models/decoder.h"

struct ht_document;

/* Rows of a weight table (ht_tensor_spec), for a module of this name in layers of transformers. */
/* clang-format off */
#define HT_MAMBA_AT(field) offsetof(ht_decoder_layer, recurrence.field)
#define HT_MAMBA_SPECS(module) \
    {HT_MAMBA_AT(in), module ".in_proj", "ssm_in", HT_EXTENT_SSM_IN, HT_EXTENT_HIDDEN, \
     .has = ht_decoder_is_recurrent}, \
    {HT_MAMBA_AT(conv), module ".conv1d", "ssm_conv1d", .rows = HT_EXTENT_CONV_WEIGHTS, .row = HT_EXTENT_TAPS, \
     .axes = "r1c", .mlx_axes = "rc1", .has = ht_decoder_is_recurrent}, \
    {HT_MAMBA_AT(conv_bias), module ".conv1d.bias", "ssm_conv1d.bias", .rows = HT_EXTENT_CONV, \
     .has = ht_mamba_has_conv_bias, .bare = true}, \
    {HT_MAMBA_AT(time_bias), module ".dt_bias", "ssm_dt.bias", .rows = HT_EXTENT_STATE_HEADS, \
     .has = ht_decoder_is_recurrent, .bare = true}, \
    {HT_MAMBA_AT(a), module ".A_log", "ssm_a", .rows = HT_EXTENT_STATE_HEADS, .row = HT_EXTENT_ONE, .axes = "v", \
     .has = ht_decoder_is_recurrent, .bare = true, .is_logarithm = true}, \
    {HT_MAMBA_AT(skip), module ".D", "ssm_d", .rows = HT_EXTENT_STATE_HEADS, .row = HT_EXTENT_ONE, .axes = "v", \
     .has = ht_decoder_is_recurrent, .bare = true}, \
    {HT_MAMBA_AT(norm), module ".norm", "ssm_norm", .rows = HT_EXTENT_STATE_VALUES, .row = HT_EXTENT_STATE_GROUP, \
     .axes = "v", .has = ht_mamba_has_norm}, \
    {HT_MAMBA_AT(out), module ".out_proj", "ssm_out", HT_EXTENT_HIDDEN, HT_EXTENT_STATE_VALUES, \
     .has = ht_decoder_is_recurrent}
/* clang-format on */
bool ht_mamba_has_conv_bias(const ht_config *c, int64_t layer);
bool ht_mamba_has_norm(const ht_config *c, int64_t layer);

/* Rows of the family's fields (ht_config_field), for these keys of config.json and fallbacks. The size of a head is
 * apart. */
#define HT_MAMBA_FIELDS(taps_key, state_key, groups_key, heads_key, bias_key, state, groups, n_heads)                  \
    {HT_FIELD(I64, recurrence.taps, taps_key, "ssm.conv_kernel", 4)},                                                  \
        {HT_FIELD(I64, recurrence.key_dim, state_key, "ssm.state_size", state)},                                       \
        {HT_FIELD(I64, recurrence.key_heads, groups_key, "ssm.group_count", groups)},                                  \
        {HT_FIELD(I64, recurrence.heads, heads_key, "ssm.time_step_rank", n_heads)}, {                                 \
        HT_FIELD(BOOL, recurrence.conv_bias, bias_key, NULL, 1)                                                        \
    }
#define HT_MAMBA_JAMBA_FIELDS(state)                                                                                   \
    HT_MAMBA_FIELDS("mamba_d_conv", "mamba_d_state", "mamba_n_groups", "mamba_n_heads", "mamba_conv_bias", state, 1,   \
                    128)

/* The size of a head where all have expand * hidden values; 0 for sizes out of range. */
int64_t ht_mamba_head_size(const ht_config *c, int64_t expand);
/* Reads the size of a head, which is `size` by default or if it is "auto". Refuses biases of projections and
 * limits of time steps, which no released model has. */
void ht_mamba_read_json(ht_config *c, ht_json_reader *r, const ht_json *object, const char *head_key, int64_t size);
void ht_mamba_read_gguf(ht_config *c, ht_meta *m);
void ht_mamba_write_gguf(const ht_config *c, struct ht_document *d);

#endif
