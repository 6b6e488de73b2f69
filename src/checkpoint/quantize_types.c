#include "checkpoint/quantize_types.h"

#include <string.h>
#include <strings.h>

/* Numbers of llama.h (llama_ftype). */
static const ht_quantize_mix mixes[] = {
    {"F32", HT_W_F32, 0},
    {"F16", HT_W_F16, 1},
    {"BF16", HT_W_BF16, 32},
    {"Q4_0", HT_W_Q4_0, 2},
    {"Q4_1", HT_W_Q4_1, 3},
    {"Q5_0", HT_W_Q5_0, 8},
    {"Q5_1", HT_W_Q5_1, 9},
    {"Q8_0", HT_W_Q8_0, 7},
    {"Q2_K", HT_W_Q2_K, 10},
    {"Q2_K_S", HT_W_Q2_K, 21},
    {"Q3_K_S", HT_W_Q3_K, 11},
    {"Q3_K_M", HT_W_Q3_K, 12},
    {"Q3_K_L", HT_W_Q3_K, 13},
    {"Q4_K_S", HT_W_Q4_K, 14},
    {"Q4_K_M", HT_W_Q4_K, 15},
    {"Q5_K_S", HT_W_Q5_K, 16},
    {"Q5_K_M", HT_W_Q5_K, 17},
    {"Q6_K", HT_W_Q6_K, 18},
    {"IQ4_NL", HT_W_IQ4_NL, 25},
    {"IQ4_XS", HT_W_IQ4_XS, 30},
    {"MXFP4", HT_W_MXFP4, 38},
    /* As llama-quantize understands them. */
    {"Q3_K", HT_W_Q3_K, 12},
    {"Q4_K", HT_W_Q4_K, 15},
    {"Q5_K", HT_W_Q5_K, 17},
};
enum { N_MIXES = sizeof mixes / sizeof *mixes };

const ht_quantize_mix *ht_quantize_mix_at(int i) { return i < N_MIXES ? &mixes[i] : NULL; }

const ht_quantize_mix *ht_quantize_mix_named(const char *name) {
    for (int i = 0; i < N_MIXES; i++)
        if (!strcasecmp(mixes[i].name, name)) return &mixes[i];
    return NULL;
}

static bool contains(const char *name, const char *part) { return strstr(name, part) != NULL; }

bool ht_quantize_is_rounded(const char *name) {
    static const char *const kept[] = {"ffn_gate_inp",         "altup",         "laurel",
                                       "per_layer_model_proj", "position_embd", "token_types"};
    for (size_t i = 0; i < sizeof kept / sizeof *kept; i++)
        if (contains(name, kept[i])) return false;
    return true;
}

/* ---- mixes ---- */

enum {
    FT_Q4_0 = 2,
    FT_Q5_0 = 8,
    FT_Q2_K = 10,
    FT_Q3_K_S,
    FT_Q3_K_M,
    FT_Q3_K_L,
    FT_Q4_K_S,
    FT_Q4_K_M,
    FT_Q5_K_S,
    FT_Q5_K_M,
    FT_Q6_K,
    FT_Q2_K_S = 21,
    FT_IQ4_NL = 25,
    FT_IQ4_XS = 30
};

/* The first and the last eighth of the layers, and every third one between them. */
static bool is_sensitive(int layer, int n) { return layer < n / 8 || layer >= 7 * n / 8 || (layer - n / 8) % 3 == 2; }

static ht_weight_type head_type(const ht_quantize_mix *mix) {
    if (mix->type == HT_W_Q8_0 || mix->type == HT_W_F16 || mix->type == HT_W_BF16 || mix->type == HT_W_F32)
        return mix->type;
    return HT_W_Q6_K;
}

static ht_weight_type value_type(const ht_quantize_mix *mix, const ht_quantize_tensor *t) {
    const bool shared = t->queries_per_kv >= 4; /* few values serve many queries */
    if (t->n_experts == 8) return HT_W_Q8_0;
    switch (mix->file_type) {
    case FT_Q2_K: return shared ? HT_W_Q4_K : HT_W_Q3_K;
    case FT_Q2_K_S: return shared ? HT_W_Q4_K : mix->type;
    case FT_Q3_K_M: return t->layer < 2 ? HT_W_Q5_K : HT_W_Q4_K;
    case FT_Q3_K_L: return HT_W_Q5_K;
    case FT_IQ4_NL:
    case FT_IQ4_XS: return shared ? HT_W_Q5_K : mix->type;
    case FT_Q4_K_S: return t->layer < 4 ? HT_W_Q5_K : mix->type;
    case FT_Q4_K_M:
    case FT_Q5_K_M: return is_sensitive(t->layer, t->n_layers) ? HT_W_Q6_K : mix->type;
    default: return mix->type;
    }
}

static ht_weight_type down_type(const ht_quantize_mix *mix, const ht_quantize_tensor *t) {
    const bool early = t->layer < t->n_layers / 8;
    switch (mix->file_type) {
    case FT_Q2_K: return HT_W_Q3_K;
    case FT_Q2_K_S: return early ? HT_W_Q4_K : mix->type;
    case FT_Q3_K_M: return t->layer < t->n_layers / 16 ? HT_W_Q5_K : HT_W_Q4_K;
    case FT_Q3_K_L: return HT_W_Q5_K;
    case FT_IQ4_NL:
    case FT_IQ4_XS: return early && !t->importance ? HT_W_Q5_K : mix->type;
    case FT_Q4_K_S: return early ? HT_W_Q5_K : mix->type;
    case FT_Q4_K_M:
    case FT_Q5_K_M: return is_sensitive(t->layer, t->n_layers) ? HT_W_Q6_K : mix->type;
    case FT_Q4_0: return early && t->importance ? HT_W_Q4_1 : mix->type;
    case FT_Q5_0: return early && t->importance ? HT_W_Q5_1 : mix->type;
    default: return mix->type;
    }
}

static ht_weight_type output_type(const ht_quantize_mix *mix, const ht_quantize_tensor *t) {
    const bool few_bits = mix->type == HT_W_Q2_K || mix->type == HT_W_Q3_K || mix->type == HT_W_Q4_K ||
                          mix->type == HT_W_IQ4_NL || mix->type == HT_W_IQ4_XS;
    if (t->n_experts == 8) return few_bits ? HT_W_Q5_K : mix->type;
    switch (mix->file_type) {
    case FT_Q2_K: return HT_W_Q3_K;
    case FT_Q3_K_M: return HT_W_Q4_K;
    case FT_Q3_K_L: return HT_W_Q5_K;
    default: return mix->type;
    }
}

/* Rules of llama.cpp (llama_tensor_get_type), which decide a file's size. */
static ht_weight_type mixed_type(const ht_quantize_mix *mix, const ht_quantize_tensor *t) {
    if (t->is_head) return head_type(mix);
    if (t->layer < 0) return mix->type;
    if (contains(t->name, "attn_v.")) return value_type(mix, t);
    if (contains(t->name, "attn_k.") && t->n_experts == 8) return HT_W_Q8_0;
    if (contains(t->name, "ffn_down")) return down_type(mix, t);
    if (contains(t->name, "attn_output.")) return output_type(mix, t);
    return mix->type;
}

/* ---- rows that are no whole blocks ---- */

static ht_weight_type type_for_columns(ht_weight_type type, int64_t columns) {
    if (columns % ht_weight_type_info_of(type)->block == 0) return type;
    switch (type) {
    case HT_W_Q4_K: type = HT_W_Q5_0; break;
    case HT_W_Q5_K: type = HT_W_Q5_1; break;
    case HT_W_Q6_K: type = HT_W_Q8_0; break;
    default: type = HT_W_IQ4_NL; break;
    }
    return columns % ht_weight_type_info_of(type)->block == 0 ? type : HT_W_F16;
}

ht_weight_type ht_quantize_type(const ht_quantize_mix *mix, bool pure, const ht_quantize_tensor *t) {
    ht_weight_type type = pure ? mix->type : mixed_type(mix, t);
    if (t->is_head && !pure && type == HT_W_Q6_K && t->columns % ht_weight_type_info_of(type)->block) type = HT_W_Q8_0;
    return type_for_columns(type, t->columns);
}
