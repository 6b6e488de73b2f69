#include "checkpoint/unused_tensors.h"

#include "base/checked.h"
#include "base/error.h"
#include "base/log.h"
#include "base/plural.h"
#include "base/text.h"
#include "checkpoint/family.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NAMED = 4, NAME_SHOWN = 100 };

static bool contains(const char *name, size_t len, const char *const *words) {
    for (; *words; words++)
        for (size_t n = strlen(*words), i = 0; i + n <= len; i++)
            if (!memcmp(name + i, *words, n)) return true;
    return false;
}

/* Tensors that are no weights: scales and biases read with their weight, calibration of activations and caches, buffers
 * that Hearth computes. */
static bool is_expected(const char *name, size_t len) {
    static const char *const words[] = {"_scale_inv",    "weight_scale",      "_proj_scale",
                                        "input_scale",   "activation_scale",  "_global_scale",
                                        "k_scale",       "v_scale",           "q_scale",
                                        "output_scale",  "prob_scale",        "input_zero_point",
                                        "_amax",         ".input_min",        ".input_max",
                                        ".output_min",   ".output_max",       "rotary_emb.inv_freq",
                                        "attn_rot_embd", "rope_freqs.weight", "attn.masked_bias",
                                        ".scales",       ".biases",           NULL};
    /* Causal masks that old checkpoints hold as buffers. */
    return contains(name, len, words) || (len > 10 && !memcmp(name + len - 10, ".attn.bias", 10)) ||
           (len > 15 && !memcmp(name + len - 15, ".self_attn.bias", 15));
}

/* Multi-token prediction: layers that guess further tokens, behind the model's own or apart from them. */
static bool is_of_prediction(const char *name, size_t len) {
    static const char *const words[] = {"nextn", "mtp", NULL};
    return contains(name, len, words);
}

/* GGUF files that hold a tower beside the text model have its tensors under short names. */
static bool is_of_tower(const ht_checkpoint_files *c, const char *name) {
    static const char *const starts[] = {"v.", "a.", "mm."};
    for (size_t i = 0; c->gguf && i < sizeof starts / sizeof *starts; i++)
        if (!strncmp(name, starts[i], strlen(starts[i]))) return true;
    return ht_checkpoint_is_tower(name, strlen(name));
}

/* Finds the layer of a tensor and its name in it; false outside the layers. */
static bool layer_of(const char *name, bool gguf, int64_t *layer, const char **rest) {
    const char *start = gguf ? "blk." : "layers.";
    if (strncmp(name, start, strlen(start)) != 0) return false;
    char *end;
    name += strlen(start);
    *layer = strtoll(name, &end, 10);
    *rest = end + 1;
    return end > name && *end == '.' && *name >= '0' && *name <= '9';
}

/* Whether the family has a weight of this name in its layers: the configuration says that this layer has none of its own,
 * such as keys and values that are shared between layers. */
static bool is_left_out(const ht_family *family, bool gguf, const char *name) {
    if (gguf && strncmp(name, "attn_", 5) != 0) return false; /* metadata leaves out nothing else: tensors tell */
    for (const ht_tensor_spec *const *table = family->layer; *table; table++)
        for (const ht_tensor_spec *p = *table; p->gguf; p++) {
            const char *own = gguf ? p->gguf : p->safetensors;
            const size_t n = strlen(own);
            if (p->expert || !p->has || strncmp(name, own, n) != 0) continue;
            if (p->bare ? !name[n] : !strcmp(name + n, ".weight") || !strncmp(name + n, ".weight_", 8)) return true;
        }
    return false;
}

/* Whether the results would be others with this tensor. Heads for other tasks change none: `cls.` in GGUF; outside the layers
 * of safetensors everything but what belongs to the embedding, the final norm or the logits. */
static bool is_missed(const ht_checkpoint_files *c, const ht_config *config, const char *name) {
    static const char *const around[] = {
        "embed_positions.", "embed_tokens.bias", "embedding_norm.", "norm.", "lm_head.", NULL};
    const bool gguf = c->gguf != NULL;
    const char *bare = gguf ? name : ht_checkpoint_bare_name(name), *rest;
    int64_t layer;
    if (layer_of(bare, gguf, &layer, &rest))
        return layer < config->n_layers && !is_left_out(config->family, gguf, rest);
    if (gguf) return strncmp(name, "cls.", 4) != 0;
    if (config->tied_head && !strncmp(bare, "lm_head.", 8)) return false; /* it is the embedding once more */
    for (size_t i = 0; around[i]; i++)
        if (!strncmp(bare, around[i], strlen(around[i]))) return true;
    return false;
}

/* Up to NAMED names. */
typedef struct name_list {
    size_t n, at;
    char text[NAMED * (NAME_SHOWN + 8)];
} name_list;

static void add_name(name_list *l, const char *name) {
    if (l->n++ < NAMED)
        l->at += (size_t)snprintf(l->text + l->at, sizeof l->text - l->at, "%s`%.*s`", l->n > 1 ? ", " : "",
                                  ht_name_shown(name, strlen(name)), name);
}

static void end_list(name_list *l) {
    if (l->n > NAMED) snprintf(l->text + l->at, sizeof l->text - l->at, " and %zu more", l->n - NAMED);
}

static void note(const ht_checkpoint_files *c, name_list *others, size_t n_towers) {
    char towers[64] = "";
    const char *where = ht_base_name(c->path);
    if (n_towers)
        snprintf(towers, sizeof towers, "%zu tensor%s of vision and audio left out", n_towers, ht_plural(n_towers));
    end_list(others);
    if (others->n)
        ht_log_write(HT_LOG_INFO, "%s: %s%s%zu tensor%s not needed: %s", where, towers, n_towers ? "; " : "", others->n,
                     others->n == 1 ? " is" : "s are", others->text);
    else if (n_towers)
        ht_log_write(HT_LOG_INFO, "%s: %s", where, towers);
}

ht_status ht_unused_tensors_check(const ht_checkpoint_files *c, const ht_config *config, const bool *used, bool notes,
                                  ht_error *err) {
    name_list missed = {0}, others = {0};
    size_t n_towers = 0;
    for (size_t i = 0, n = ht_checkpoint_n_tensors(c); i < n; i++) {
        ht_stored_tensor t;
        ht_checkpoint_tensor_at(c, i, &t);
        if (used[i] || is_expected(t.name, t.name_len)) continue;
        char name[256];
        snprintf(name, sizeof name, "%.*s", (int)ht_min_size(t.name_len, sizeof name - 1), t.name);
        if (is_of_tower(c, name))
            n_towers++;
        else if (!is_of_prediction(name, strlen(name)) && is_missed(c, config, name))
            add_name(&missed, name);
        else
            add_name(&others, name);
    }
    end_list(&missed);
    if (missed.n)
        return ht_fail(err, HT_ERR_UNSUPPORTED,
                       "%s: %zu tensor%s not used by %s models: %s. The model is of another architecture, or a variant "
                       "that is not supported",
                       ht_base_name(c->path), missed.n, missed.n == 1 ? " is" : "s are", config->family->architecture,
                       missed.text);
    if (notes) note(c, &others, n_towers);
    return HT_OK;
}
