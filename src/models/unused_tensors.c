#include "models/unused_tensors.h"

#include "base/log.h"
#include "base/plural.h"
#include "base/text.h"

#include <stdio.h>
#include <string.h>

enum { NAMED = 4, NAME_SHOWN = 100 };

static bool contains(const char *name, size_t len, const char *const *words) {
    for (; *words; words++)
        for (size_t n = strlen(*words), i = 0; i + n <= len; i++)
            if (!memcmp(name + i, *words, n)) return true;
    return false;
}

/* Tensors that never are weights: scales and biases read with their weight, and values that Hearth computes. */
static bool is_expected(const char *name, size_t len) {
    static const char *const words[] = {
        "_scale_inv",    "weight_scale", "_proj_scale", "input_scale",         "activation_scale",
        "_global_scale", "k_scale",      "v_scale",     "rotary_emb.inv_freq", "rope_freqs.weight",
        ".scales",       ".biases",      NULL};
    return contains(name, len, words);
}

static bool is_of_a_tower(const char *name, size_t len) {
    static const char *const words[] = {"vision", "visual", "audio", "multi_modal_projector", "image_newline", NULL};
    return contains(name, len, words);
}

void ht_unused_tensors_note(const ht_checkpoint_files *c, const bool *used) {
    size_t n_others = 0, n_towers = 0, at = 0;
    char names[NAMED * (NAME_SHOWN + 8)] = "", towers[64] = "";
    for (size_t i = 0, n = ht_checkpoint_n_tensors(c); i < n; i++) {
        ht_stored_tensor t;
        ht_checkpoint_tensor_at(c, i, &t);
        if (used[i] || is_expected(t.name, t.name_len)) continue;
        if (is_of_a_tower(t.name, t.name_len)) {
            n_towers++;
            continue;
        }
        int shown = t.name_len < NAME_SHOWN ? (int)t.name_len : NAME_SHOWN;
        if (n_others++ < NAMED)
            at += (size_t)snprintf(names + at, sizeof names - at, "%s`%.*s`", n_others > 1 ? ", " : "", shown, t.name);
    }
    const char *where = ht_base_name(c->path);
    if (n_towers)
        snprintf(towers, sizeof towers, "%zu tensor%s of vision and audio left out", n_towers, ht_plural(n_towers));
    if (n_others > NAMED) snprintf(names + at, sizeof names - at, " and %zu more", n_others - NAMED);
    if (n_others)
        ht_log_write(HT_LOG_INFO, "%s: %s%s%zu tensor%s not needed: %s", where, towers, n_towers ? "; " : "", n_others,
                     n_others == 1 ? " is" : "s are", names);
    else if (n_towers)
        ht_log_write(HT_LOG_INFO, "%s: %s", where, towers);
}
