#include "checkpoint/experts.h"

#include "checkpoint/tensor_read.h"

#include <stdio.h>
#include <string.h>

enum { NAME_SIZE = 160 };

/* The first row of a part and format names the tensor in messages when none exists. */
static const ht_expert_form forms[] = {
    {HT_EXPERT_GATE, true, true, "ffn_gate_exps.weight", 0, 1},
    {HT_EXPERT_UP, true, true, "ffn_up_exps.weight", 0, 1},
    {HT_EXPERT_DOWN, true, true, "ffn_down_exps.weight", 0, 1},
    {HT_EXPERT_GATE, true, true, "ffn_gate_up_exps.weight", 0, 2},
    {HT_EXPERT_UP, true, true, "ffn_gate_up_exps.weight", 1, 2},
    {HT_EXPERT_GATE, false, false, "mlp.experts.%d.gate_proj.weight", 0, 1},
    {HT_EXPERT_UP, false, false, "mlp.experts.%d.up_proj.weight", 0, 1},
    {HT_EXPERT_DOWN, false, false, "mlp.experts.%d.down_proj.weight", 0, 1},
    {HT_EXPERT_GATE, false, true, "mlp.experts.gate_up_proj", 0, 2},
    {HT_EXPERT_UP, false, true, "mlp.experts.gate_up_proj", 1, 2},
    {HT_EXPERT_DOWN, false, true, "mlp.experts.down_proj", 0, 1},
    {HT_EXPERT_GATE, false, true, "mlp.experts.gate_up_proj.weight", 0, 2},
    {HT_EXPERT_UP, false, true, "mlp.experts.gate_up_proj.weight", 1, 2},
    {HT_EXPERT_DOWN, false, true, "mlp.experts.down_proj.weight", 0, 1},
    {HT_EXPERT_GATE, false, true, "mlp.switch_mlp.gate_proj.weight", 0, 1},
    {HT_EXPERT_UP, false, true, "mlp.switch_mlp.up_proj.weight", 0, 1},
    {HT_EXPERT_DOWN, false, true, "mlp.switch_mlp.down_proj.weight", 0, 1},
    {HT_EXPERT_GATE, false, true, "experts.gate_up_proj", 0, 2},
    {HT_EXPERT_UP, false, true, "experts.gate_up_proj", 1, 2},
    {HT_EXPERT_DOWN, false, true, "experts.down_proj", 0, 1},
    {HT_EXPERT_GATE, false, true, "experts.gate_up_proj.weight", 0, 2},
    {HT_EXPERT_UP, false, true, "experts.gate_up_proj.weight", 1, 2},
    {HT_EXPERT_DOWN, false, true, "experts.down_proj.weight", 0, 1},
    {HT_EXPERT_GATE, false, false, "experts.%d.gate_proj.weight", 0, 1},
    {HT_EXPERT_UP, false, false, "experts.%d.up_proj.weight", 0, 1},
    {HT_EXPERT_DOWN, false, false, "experts.%d.down_proj.weight", 0, 1},
    {HT_EXPERT_GATE, false, false, "moe.experts.%d.gate_proj.weight", 0, 1},
    {HT_EXPERT_UP, false, false, "moe.experts.%d.up_proj.weight", 0, 1},
    {HT_EXPERT_DOWN, false, false, "moe.experts.%d.down_proj.weight", 0, 1},
    {HT_EXPERT_GATE, false, true, "experts.switch_glu.gate_proj.weight", 0, 1},
    {HT_EXPERT_UP, false, true, "experts.switch_glu.up_proj.weight", 0, 1},
    {HT_EXPERT_DOWN, false, true, "experts.switch_glu.down_proj.weight", 0, 1},
};

void ht_expert_name_behind(const char *prefix, const ht_expert_form *f, int64_t layer, int64_t expert, char *out,
                           size_t size) {
    char part[96];
    if (f->stacked)
        snprintf(part, sizeof part, "%s", f->name);
    else { /* a name has one %d, the expert's index */
        const char *number = strstr(f->name, "%d");
        snprintf(part, sizeof part, "%.*s%lld%s", (int)(number - f->name), f->name, (long long)expert, number + 2);
    }
    snprintf(out, size, "%s%s.%lld.%s", prefix, f->gguf ? "blk" : "layers", (long long)layer, part);
}

void ht_expert_name(const ht_checkpoint_files *c, const ht_expert_form *f, int64_t layer, int64_t expert, char *out,
                    size_t size) {
    ht_expert_name_behind(c->gguf ? "" : c->prefix, f, layer, expert, out, size);
}

const ht_expert_form *ht_expert_form_named(ht_expert_naming naming, bool outside, ht_expert_part part) {
    static const char *const stems[][2] = {{"ffn_", "ffn_"}, /* by naming, and whether they are outside */
                                           {"mlp.experts.%d.", "experts."},
                                           {"mlp.switch_mlp.", "experts.switch_glu."}};
    const char *stem = stems[naming][outside];
    const int n_shares = outside && naming != HT_EXPERTS_MLX && part != HT_EXPERT_DOWN ? 2 : 1;
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
        const ht_expert_form *f = &forms[i];
        if (f->part == part && f->gguf == (naming == HT_EXPERTS_GGUF) && f->n_shares == n_shares &&
            !strncmp(f->name, stem, strlen(stem)))
            return f;
    }
    return NULL; /* not reached: the table has all of them */
}

const ht_expert_form *ht_expert_form_of(const ht_checkpoint_files *c, ht_expert_part part, int64_t layer) {
    const ht_expert_form *first = NULL;
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
        const ht_expert_form *f = &forms[i];
        if (f->part != part || f->gguf != (c->gguf != NULL)) continue;
        char name[NAME_SIZE];
        ht_stored_tensor t;
        ht_expert_name(c, f, layer, 0, name, sizeof name);
        if (ht_checkpoint_find(c, name, &t)) return f;
        if (!first) first = f;
    }
    return first;
}

ht_stored_tensor ht_expert_slice(const ht_stored_tensor *all, const ht_expert_form *f, int64_t expert, int64_t rows) {
    return ht_tensor_rows(all, expert * all->dims[1] + f->share * rows, rows);
}
