#include "models/registry.h"

#include "formats/weight_type.h"

#include <hearth/model.h>

#include <string.h>

#define ROW(name) &ht_family_##name,
const ht_family *const ht_families[] = {HT_FAMILIES(ROW) NULL};
const char *const *ht_model_architectures(void) {
    static const char *names[sizeof ht_families / sizeof *ht_families];
    for (size_t i = 0; ht_families[i]; i++) names[i] = ht_families[i]->architecture;
    return names;
}

const char *ht_model_weight_type(const char *format, int i) {
    bool gguf = !strcmp(format, "gguf");
    if (!gguf && strcmp(format, "safetensors") != 0) return NULL;
    for (int t = 0; t < HT_W_COUNT; t++) {
        const ht_weight_type_info *type = ht_weight_type_info_of((ht_weight_type)t);
        bool there = gguf ? type->gguf_id >= 0 : type->block == 1; /* safetensors has no block types */
        if (there && i-- == 0) return type->name;
    }
    return NULL;
}
