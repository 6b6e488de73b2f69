/* Latent attention: its weight table and configuration, shared by the families that have it (deepseek.c). */
#ifndef HT_MODELS_LATENT_H
#define HT_MODELS_LATENT_H

#include "models/decoder.h"

struct ht_document;

/* Queries, latents, all heads' keys and values, and the output, in layers with attention. */
extern const ht_tensor_spec ht_latent_specs[];

/* Rows of a family's fields, with its defaults. */
#define HT_LATENT_FIELDS(q_rank_by_default, rank_by_default, key_by_default, value_by_default)                         \
    {HT_FIELD(I64, latent.q_rank, "q_lora_rank", "attention.q_lora_rank", q_rank_by_default)},                         \
        {HT_FIELD(I64, latent.rank, "kv_lora_rank", "attention.kv_lora_rank", rank_by_default)},                       \
        {HT_FIELD(I64, latent.key_dim, "qk_nope_head_dim", NULL, key_by_default)},                                     \
        {HT_FIELD(I64, latent.rope_dim, "qk_rope_head_dim", "rope.dimension_count", 64)}, {                            \
        HT_FIELD(I64, latent.value_dim, "v_head_dim", NULL, value_by_default)                                          \
    }

/* For ht_family.read_json_layers and after it: the one key and value of the cache, and the scale of attention. */
void ht_latent_set_heads(ht_config *c);
/* For ht_family.read_gguf and write_gguf. */
void ht_latent_read_gguf(ht_config *c, ht_meta *m);
void ht_latent_write_gguf(const ht_config *c, struct ht_document *d);

#endif
